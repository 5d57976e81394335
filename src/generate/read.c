/* Reading: prompts in chunks, one job at a time; single tokens of many sequences at once.
 *
 * Chunks end at multiples of DRA_ENGINE_CUT tokens from the beginning of a sequence, but for the
 * last: 512, 256, 128 or 64 tokens, none over a place where states are kept, and what is less than
 * 64 is filled up with pads to a power of two. A batch of single tokens is filled up with empty
 * rows to a power of two. So programs are few, and where a text is cut follows from the text
 * alone. Every lane reads what the first one reads.
 *
 * Batches are started, not waited for: the picker waits once, for the next tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/engine.h"
#include "generate/sample.h"
#include "sequence/module.h"
#include "session/session.h"

static int64_t power_of_two(int64_t n)
{
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

/* Segments of Transformer-XL are several runs of one chunk, as the lanes are. */
static bool can_slice(const dra_engine *e, int lane, const dra_module *module)
{
    return e->pace.slices && lane == 0 && e->lanes == 1 && module->segment == 0;
}

dra_status dra_engine_reader(dra_engine *e, int lane, dra_engine_view view, dra_reader **out,
                             dra_error *err)
{
    const dra_engine_config *c = &e->config;
    dra_lane                *l = &e->lane[lane];
    const dra_module         module = dra_view_module(&l->view[view]);
    dra_reader              *r = l->reader[view];
    dra_status               st = r ? DRA_OK : dra_reader_create(c->device, &module, &r, err);
    if (st == DRA_OK && !l->reader[view]) {
        if (view != DRA_VIEW_BATCH && view != DRA_VIEW_VERIFY && can_slice(e, lane, &module))
            dra_session_slice(dra_reader_session(r), &e->pace.slice);
        dra_reader_defer(r, true);
        dra_reader_by_token(r, view == DRA_VIEW_VERIFY);
        dra_reader_clamp(r, c->state_limit >= 0);
        dra_reader_clamp_limit(r, c->state_limit);
        st = dra_weights_bind(l->weights, r, err);
        if (st == DRA_OK) st = dra_columns_bind(l, r, err);
    }
    if (st == DRA_OK)
        *out = l->reader[view] = r;
    else if (!l->reader[view])
        dra_reader_destroy(r);
    return st;
}

dra_status dra_engine_finish(dra_engine *e, dra_engine_view view, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < e->lanes && st == DRA_OK; i++)
        if (e->lane[i].reader[view]) st = dra_reader_finish(e->lane[i].reader[view], err);
    return st;
}

/* n tokens of a sequence were read. */
static void advance_sequence(dra_sequence *s, size_t n)
{
    for (size_t i = s->read; s->seen && i < s->read + n; i++) s->seen[s->ids.data[i]] = true;
    s->read += n;
    s->fresh = n;
}

/* ---- chunks of prompts ----------------------------------------------------------------------- */

/* What has to be read in one call: the text of an encoder, a prefix that sees all of itself, and
 * what comes with a source. */
static bool is_read_whole(const dra_engine *e, const dra_job *job)
{
    return e->encoder ||
           ((job->config.prefix || job->config.n_source) && !job->begin && job->seq.read == 0);
}

size_t dra_job_goal(const dra_job *job)
{
    const dra_job_config *c = &job->config;
    const bool            keeps = c->save || job->inside.keep;
    const bool scores = job->view == DRA_VIEW_ALL && c->tokens == 0 && !keeps && !c->beam.beams;
    return job->seq.ids.n - (scores && job->seq.ids.n > 0);
}

/* Of a text that any cut leaves as it is, the last token is left to a batch, which costs less and
 * lets the state before it be kept. */
int64_t dra_chunk_next(const dra_engine *e, const dra_job *job)
{
    const dra_sequence *s = &job->seq;
    const bool          alone = job->view != DRA_VIEW_LAST && !job->started;
    const int64_t       left = (int64_t)(dra_job_goal(job) - s->read);
    const int64_t       at = job->base + (int64_t)s->read;
    const int64_t       all = alone || (e->cut != 1 && left > 1) ? left : left - 1;
    const int64_t       kept = (int64_t)(dra_prefix_next(e, job) - s->read);
    const int64_t       n = alone || job->started ? all : dra_imin(all, kept);
    const int64_t       to_cut = DRA_ENGINE_CUT - at % DRA_ENGINE_CUT;
    const int64_t       most = dra_imin(dra_imin(n, e->pace.most),
                                        DRA_ENGINE_KEPT - at % DRA_ENGINE_KEPT);
    if (job->search || (job->started && !job->closing)) return 0;
    if (is_read_whole(e, job)) return left;
    if (to_cut < DRA_ENGINE_CUT || n < DRA_ENGINE_CUT) return dra_imin(n, to_cut);
    int64_t T = DRA_ENGINE_KEPT;
    while (T > most) T /= 2;
    return T;
}

/* Whether the next chunk has pads, or could: that follows from the text alone, as bits do. */
static bool has_pads(const dra_engine *e, const dra_job *job)
{
    return e->encoder || (dra_chunk_next(e, job) < DRA_ENGINE_CUT && !is_read_whole(e, job));
}

int64_t dra_chunk_padded(const dra_engine *e, const dra_job *job)
{
    const int64_t T = dra_chunk_next(e, job);
    if (!has_pads(e, job)) return T;
    return dra_imin(T < DRA_ENGINE_CUT ? power_of_two(T)
                                       : dra_div_up(T, DRA_ENGINE_CUT) * DRA_ENGINE_CUT,
                    e->positions);
}

/* Of a prompt's token: what was measured in a row, or nothing (-1). */
static dra_status tell_token(dra_engine *e, dra_job *job, int32_t id, int64_t row, dra_error *err)
{
    const int64_t top = row < 0 ? 0 : job->config.logprobs;
    dra_logprob  *most = malloc(((size_t)top + 1) * sizeof *most);
    dra_job_token token = {
        .id = id, .prompt = true, .logprob = NAN, .top = top, .most = most, .text = ""};
    if (!most) return dra_engine_no_memory(err);
    if (row >= 0) token.logprob = dra_measure_logprob(e->measure, row, top, most);
    dra_job_tell(e, job, &token);
    free(most);
    return DRA_OK;
}

/* It is predicted by nothing, or by the state that the job begins from. */
dra_status dra_job_tell_first(dra_engine *e, dra_job *job, dra_error *err)
{
    const dra_sequence *s = &job->seq;
    dra_span            logits;
    if (!job->begin) return tell_token(e, job, s->ids.data[0], -1, err);
    dra_status st = dra_batch_logits(e, s, 1, dra_measure_made(e->measure), &logits, err);
    if (st == DRA_OK)
        st = dra_measure_ids(e->measure, 1, logits, s->ids.data, job->config.logprobs, err);
    return st == DRA_OK ? tell_token(e, job, s->ids.data[0], 0, err) : st;
}

/* The tokens that follow those that were read, from number `from` of the chunk on, by n rows of the
 * view, of which some may be of pads. */
static dra_status tell_rows(dra_engine *e, const dra_chunk_part *part, int64_t from, int64_t row,
                            int64_t n, dra_error *err)
{
    const dra_sequence *s = &part->job->seq;
    const int64_t       top = part->job->config.logprobs;
    const size_t        next = s->read + (size_t)from + 1;
    const int64_t       told = dra_imin(dra_imin(n, part->T - from), (int64_t)(s->ids.n - next));
    dra_span            logits;
    dra_status st = dra_view_logits(e, DRA_VIEW_ALL, row, n, dra_measure_made(e->measure), &logits,
                                    err);
    for (int64_t t = 0; t < n; t++) e->ids[t] = t < told ? s->ids.data[next + (size_t)t] : -1;
    if (st == DRA_OK) st = dra_measure_ids(e->measure, n, logits, e->ids, top, err);
    for (int64_t t = 0; t < told && st == DRA_OK; t++)
        st = tell_token(e, part->job, s->ids.data[next + (size_t)t], t, err);
    return st;
}

/* A chunk filled up to P, the rows of the view from `row` on. */
static dra_status tell_chunk(dra_engine *e, const dra_chunk_part *part, int64_t row, int64_t P,
                             dra_error *err)
{
    const dra_job *job = part->job;
    const int64_t  each = dra_imin(dra_measure_rows(e->measure, job->config.logprobs), e->room);
    dra_status     st = job->seq.read == 0 ? dra_job_tell_first(e, part->job, err) : DRA_OK;
    for (int64_t t = 0; t < part->T && st == DRA_OK; t += each)
        st = tell_rows(e, part, t, row + t, dra_imin(each, P - t), err);
    return st;
}

/* Hidden states (T, C) of tokens of a text: the sum in their order, however it is cut, the first or
 * the last. */
static void add_hidden(dra_engine *e, dra_job *job, int64_t T, const dra_real *x)
{
    const dra_pooling how = job->config.pooling;
    const int64_t     from = how == DRA_EMBED_LAST ? T - 1 : 0;
    const int64_t     end = how != DRA_EMBED_FIRST ? T : job->seq.read == 0;
    for (int64_t t = from; t < end; t++)
        for (int64_t c = 0; c < e->C; c++)
            job->sum[c] = (how == DRA_EMBED_MEAN ? job->sum[c] : 0) + (double)x[t * e->C + c];
}

/* What is wanted of a chunk. Logits only where the text ends with it; rests are rare and short, and
 * other devices would hold the weights once more. */
static dra_engine_view view_of(const dra_engine *e, const dra_job *job, int64_t T)
{
    const dra_engine_view view = job->started ? DRA_VIEW_LAST : job->view;
    const bool            ends = job->seq.read + (size_t)T == dra_job_goal(job);
    const bool            plain = view == DRA_VIEW_LAST && e->pace.slices;
    return plain && !ends && T >= DRA_ENGINE_CUT ? DRA_VIEW_STATES : view;
}

/* Programs are compiled for each number of texts, which pays where there are many and nobody waits
 * for the first token. */
static bool writes(const dra_job *job)
{
    return job->config.kind == DRA_JOB_GENERATE && job->config.tokens != 0;
}

bool dra_chunk_joins(const dra_engine *e, const dra_job *a, const dra_job *b)
{
    const bool whole = is_read_whole(e, a) || is_read_whole(e, b);
    return !writes(a) && !writes(b) && (e->encoder || !whole) && has_pads(e, a) == has_pads(e, b) &&
           dra_chunk_padded(e, a) == dra_chunk_padded(e, b) &&
           view_of(e, a, dra_chunk_next(e, a)) == view_of(e, b, dra_chunk_next(e, b));
}

/* What a job has asked of part b of the chunk. */
static dra_status take_part(dra_engine *e, const dra_chunk *c, int64_t b, dra_error *err)
{
    const dra_chunk_part *part = &e->part[b];
    dra_sequence         *s = &part->job->seq;
    dra_status            st = DRA_OK;
    if (c->view == DRA_VIEW_ALL) st = tell_chunk(e, part, b * c->P, c->P, err);
    if (c->view == DRA_VIEW_HIDDEN) {
        const dra_real *x = dra_engine_result(e->lane[0].reader[c->view], "hidden", err);
        if (!x) return err ? err->code : DRA_ERR_MEMORY;
        add_hidden(e, part->job, part->T, x + b * c->P * e->C);
    }
    s->view = c->view;
    s->at = c->view == DRA_VIEW_ALL ? b * c->P + part->T - 1 : b;
    if (st == DRA_OK) advance_sequence(s, (size_t)part->T);
    return st;
}

static bool is_prefix(const dra_engine *e, int lane, const dra_job *job)
{
    return job->config.prefix && is_read_whole(e, job) &&
           dra_model_config_of(e->lane[lane].model)->visible == DRA_VISIBLE_PREFIX;
}

/* Marks of the chunk, B rows; NULL: none are needed. */
static const int32_t *make_marks(dra_engine *e, int lane, const dra_chunk *c, int64_t B)
{
    const int32_t kind = is_prefix(e, lane, c->job) ? DRA_MARK_PREFIX : 0;
    if (!kind && !has_pads(e, c->job)) return NULL;
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < c->P; t++)
            e->mark[b * c->P + t] = b < c->n && t < e->part[b].T ? kind : DRA_MARK_PAD;
    return e->mark;
}

/* The input that a source is read as. */
static const char *source_name(const dra_model *m)
{
    dra_model_input in;
    for (int i = 0; dra_model_input_at(m, i, &in); i++)
        if (in.context) return in.name;
    return "";
}

/* Puts the tokens of all parts one after another; B: with rows of nobody. */
static void put_chunk(dra_engine *e, const dra_chunk *c, int64_t B)
{
    for (int64_t b = 0; b < B; b++) {
        const dra_chunk_part *part = b < c->n ? &e->part[b] : NULL;
        const dra_sequence   *s = part ? &part->job->seq : NULL;
        e->rows[b] = part ? s->row : -1;
        e->picks[b] = part ? (int32_t)part->T - 1 : 0;
        for (int64_t t = 0; t < c->P; t++)
            e->ids[b * c->P + t] = part && t < part->T ? s->ids.data[s->read + (size_t)t] : 0;
    }
}

static dra_status read_lane(dra_engine *e, int lane, dra_engine_view view, dra_error *err)
{
    const dra_chunk       *c = &e->chunk;
    const dra_job_config  *job = &c->job->config;
    const int64_t          B = power_of_two(c->n);
    const bool             source = job->n_source && is_read_whole(e, c->job);
    const dra_context_text context = {(int64_t)job->n_source, NULL};
    dra_reader            *r = NULL;
    dra_named              in[3];
    int                    n = 0;
    dra_status             st = dra_engine_reserve(e, B * c->P, err);
    if (st == DRA_OK) st = dra_engine_reader(e, lane, view, &r, err);
    if (st != DRA_OK) return st;
    put_chunk(e, c, B);
    in[n++] = (dra_named){"ids", e->ids, (size_t)(B * c->P) * sizeof *e->ids};
    if (view == DRA_VIEW_LAST)
        in[n++] = (dra_named){"picks", e->picks, (size_t)B * sizeof *e->picks};
    if (source)
        in[n++] = (dra_named){source_name(e->lane[lane].model), job->source,
                              job->n_source * sizeof *job->source};
    return dra_reader_read_rows_context(r, e->lane[lane].pool, source ? &context : NULL, B, e->rows,
                                        c->P, make_marks(e, lane, c, B), n, in, err);
}

/* What the last slice of a chunk has left to do, if it was the last. */
static dra_status end_slice(dra_engine *e, dra_status st, dra_error *err)
{
    const dra_chunk c = e->chunk;
    if (st == DRA_OK && e->pace.slice.at > 0) return DRA_OK;
    e->chunk.job = NULL;
    e->pace.slice.at = 0;
    if (st == DRA_OK) st = dra_engine_finish(e, c.view, err);
    if (st != DRA_OK) return st;
    if (dra_reader_programs(e->lane[0].reader[c.view]) == c.programs) /* compiling says nothing */
        dra_pace_end(e, c.n * c.P, dra_clock() - c.began);
    for (int64_t b = 0; b < c.n && st == DRA_OK; b++) st = take_part(e, &c, b, err);
    return st;
}

dra_status dra_chunk_read(dra_engine *e, int64_t n, dra_error *err)
{
    dra_job    *job = e->part[0].job;
    dra_chunk  *c = &e->chunk;
    dra_reader *r = NULL;
    for (int64_t b = 0; b < n; b++) e->part[b].T = dra_chunk_next(e, e->part[b].job);
    *c = (dra_chunk){.job = job,
                     .n = n,
                     .P = dra_chunk_padded(e, job),
                     .view = view_of(e, job, e->part[0].T),
                     .began = dra_clock()};
    dra_status st = dra_engine_reader(e, 0, c->view, &r, err);
    if (st == DRA_OK) c->programs = dra_reader_programs(r);
    e->pace.slice = (dra_time_slice){0};
    dra_pace_slice(e);
    for (int i = 0; i < e->lanes && st == DRA_OK; i++) {
        const bool all = i == 0 || c->view == DRA_VIEW_STATES;
        st = read_lane(e, i, all ? c->view : DRA_VIEW_LAST, err);
    }
    return end_slice(e, st, err);
}

dra_status dra_chunk_continue(dra_engine *e, dra_error *err)
{
    dra_reader *r = e->lane[0].reader[e->chunk.view];
    return end_slice(e, dra_session_continue(dra_reader_session(r), err), err);
}

/* ---- batches --------------------------------------------------------------------------------- */

dra_status dra_batch_read(dra_engine *e, int64_t n, dra_sequence *const *of, dra_error *err)
{
    const int64_t         B = power_of_two(n);
    const dra_engine_view view = e->pace.slices ? DRA_VIEW_BATCH : DRA_VIEW_LAST;
    const dra_named       in[] = {{"ids", e->ids, (size_t)B * sizeof *e->ids},
                                  {"picks", e->picks, (size_t)B * sizeof *e->picks}};
    dra_reader           *r = NULL;
    dra_status            st = DRA_OK;
    for (int64_t b = 0; b < B; b++) {
        e->ids[b] = b < n ? of[b]->ids.data[of[b]->read] : 0;
        e->rows[b] = b < n ? of[b]->row : -1;
        e->picks[b] = 0;
    }
    for (int i = 0; i < e->lanes && st == DRA_OK; i++) {
        st = dra_engine_reader(e, i, view, &r, err);
        if (st == DRA_OK)
            st = dra_reader_read_rows(r, e->lane[i].pool, B, e->rows, 1, NULL, 2, in, err);
    }
    for (int64_t b = 0; b < n && st == DRA_OK; b++) {
        of[b]->view = view;
        of[b]->at = b;
        advance_sequence(of[b], 1);
    }
    return st;
}
