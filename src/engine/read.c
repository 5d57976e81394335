/* Reading: prompts in pieces, one job at a time; single tokens of many jobs at once.
 *
 * Pieces end at multiples of DRA_ENGINE_CUT tokens from the beginning of a sequence, but for the
 * last: 512, 256, 128 or 64 tokens, none over a place where states are kept, and what is less than
 * 64 is filled up with pads to a power of two. A batch of single tokens is filled up with empty
 * rows to a power of two. So programs are few, and where a text is cut follows from the text
 * alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "engine/engine.h"
#include "sequence/module.h"
#include "session/session.h"

static int64_t power_of_two(int64_t n)
{
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

dra_status dra_engine_reader(dra_engine *e, dra_engine_view view, dra_reader **out, dra_error *err)
{
    const dra_engine_config *c = &e->config;
    const dra_module         module = dra_view_module(&e->view[view]);
    dra_reader              *r = e->reader[view];
    dra_status               st = r ? DRA_OK : dra_reader_create(c->device, &module, &r, err);
    if (st == DRA_OK && !e->reader[view]) {
        if (view != DRA_VIEW_BATCH && e->pace.pauses)
            dra_session_pause(dra_reader_session(r), dra_pace_pause, e);
        dra_reader_clamp(r, c->state_limit >= 0);
        dra_reader_clamp_limit(r, c->state_limit);
        st = dra_weights_bind(c->weights, r, err);
    }
    if (st == DRA_OK)
        *out = e->reader[view] = r;
    else if (!e->reader[view])
        dra_reader_destroy(r);
    return st;
}

static const dra_real *result(dra_reader *r, const char *name, dra_error *err)
{
    const dra_real *x = dra_reader_result(r, name);
    if (!x) dra_engine_no_memory(err);
    return x;
}

/* n tokens of a job were read. */
static void advance(dra_job *job, size_t n)
{
    for (size_t i = job->read; job->seen && i < job->read + n; i++)
        job->seen[job->ids.data[i]] = true;
    job->read += n;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Of a text that any cut leaves as it is, the last token is left to a batch, which costs less and
 * lets the state before it be kept. */
int64_t dra_piece_next(const dra_engine *e, const dra_job *job)
{
    const bool    alone = job->view != DRA_VIEW_LAST && !job->started;
    const int64_t left = (int64_t)(job->ids.n - job->read), at = job->base + (int64_t)job->read;
    const int64_t n = alone || (e->cut != 1 && left > 1) ? left : left - 1;
    const int64_t to_cut = DRA_ENGINE_CUT - at % DRA_ENGINE_CUT;
    const int64_t most = dra_imin(dra_imin(n, e->pace.most),
                                  DRA_ENGINE_KEPT - at % DRA_ENGINE_KEPT);
    if (to_cut < DRA_ENGINE_CUT || n < DRA_ENGINE_CUT) return dra_imin(n, to_cut);
    int64_t T = DRA_ENGINE_KEPT;
    while (T > most) T /= 2;
    return T;
}

/* Of a prompt: log-probabilities of its tokens i, from..from+T-1, each by the row of logits before
 * it, which for the first is what followed the piece before. */
static dra_status tell_prompt(dra_engine *e, dra_job *job, int64_t T, const dra_real *rows,
                              dra_error *err)
{
    const int64_t top = job->config.logprobs;
    dra_logprob  *most = malloc(((size_t)top + 1) * sizeof *most);
    if (!most) return dra_engine_no_memory(err);
    for (int64_t t = 0; t < T; t++) {
        const int32_t   id = job->ids.data[job->read + (size_t)t];
        const dra_real *x = t > 0 ? rows + (t - 1) * e->V : job->logits;
        const bool      first = t == 0 && job->read == 0 && !job->begin;
        dra_job_token   token = {.id = id, .prompt = true, .logprob = NAN, .text = ""};
        if (!first) token.logprob = dra_logprobs(e->V, x, id, top, most);
        if (!first) token.top = top, token.most = most;
        dra_job_tell(e, job, &token);
    }
    free(most);
    return DRA_OK;
}

/* Hidden states (T, C) of tokens of a text: the sum in their order, however it is cut, or the last.
 */
static void add_hidden(dra_engine *e, dra_job *job, int64_t T, const dra_real *x)
{
    const bool mean = job->config.pooling == DRA_EMBED_MEAN;
    for (int64_t t = mean ? 0 : T - 1; t < T; t++)
        for (int64_t c = 0; c < e->C; c++)
            job->sum[c] = (mean ? job->sum[c] : 0) + (double)x[t * e->C + c];
}

/* What is wanted of a piece. Logits only where the text ends with it; rests are rare and short, and
 * other devices would hold the weights once more. */
static dra_engine_view view_of(const dra_engine *e, const dra_job *job, int64_t T)
{
    const dra_engine_view view = job->started ? DRA_VIEW_LAST : job->view;
    const bool            ends = job->read + (size_t)T == job->ids.n;
    const bool            plain = view == DRA_VIEW_LAST && e->pace.pauses;
    return plain && !ends && T >= DRA_ENGINE_CUT ? DRA_VIEW_STATES : view;
}

static dra_status take_piece(dra_engine *e, dra_job *job, dra_engine_view view, int64_t T,
                             dra_error *err)
{
    if (view == DRA_VIEW_STATES) return DRA_OK;
    const bool      hidden = view == DRA_VIEW_HIDDEN;
    const dra_real *x = result(e->reader[view], hidden ? "hidden" : "logits", err);
    dra_status      st = x ? DRA_OK : DRA_ERR_MEMORY;
    if (x && hidden) add_hidden(e, job, T, x);
    if (x && view == DRA_VIEW_ALL) {
        st = tell_prompt(e, job, T, x, err);
        x += (T - 1) * e->V;
    }
    if (x && !hidden) memcpy(job->logits, x, (size_t)e->V * sizeof *x);
    return st;
}

dra_status dra_piece_read(dra_engine *e, dra_job *job, int64_t T, dra_error *err)
{
    const int64_t         P = T < DRA_ENGINE_CUT ? power_of_two(T) : T;
    const int32_t         last = (int32_t)T - 1;
    const dra_named       in[] = {{"ids", e->ids, (size_t)P * sizeof *e->ids},
                                  {"picks", &last, sizeof last}};
    const dra_engine_view view = view_of(e, job, T);
    dra_reader           *r = NULL;
    for (int64_t t = 0; t < P; t++) {
        e->ids[t] = t < T ? job->ids.data[job->read + (size_t)t] : 0;
        e->mark[t] = t < T ? 0 : DRA_MARK_PAD;
    }
    dra_status   st = dra_engine_reader(e, view, &r, err);
    const size_t programs = st == DRA_OK ? dra_reader_programs(r) : 0;
    dra_pace_begin(e);
    if (st == DRA_OK)
        st = dra_reader_read_rows(r, e->pool, 1, &job->row, P, T < DRA_ENGINE_CUT ? e->mark : NULL,
                                  view == DRA_VIEW_LAST ? 2 : 1, in, err);
    dra_pace_end(e, P, st == DRA_OK && dra_reader_programs(r) != programs);
    if (st == DRA_OK) st = take_piece(e, job, view, T, err);
    if (st == DRA_OK) advance(job, (size_t)T);
    return st;
}

/* ---- batches --------------------------------------------------------------------------------- */

dra_status dra_batch_read(dra_engine *e, int64_t n, dra_job *const *jobs, dra_error *err)
{
    const int64_t   B = power_of_two(n);
    const dra_named in[] = {{"ids", e->ids, (size_t)B * sizeof *e->ids},
                            {"picks", e->picks, (size_t)B * sizeof *e->picks}};
    dra_reader     *r = NULL;
    for (int64_t b = 0; b < B; b++) {
        e->ids[b] = b < n ? jobs[b]->ids.data[jobs[b]->read] : 0;
        e->rows[b] = b < n ? jobs[b]->row : -1;
        e->picks[b] = 0;
    }
    dra_status st = dra_engine_reader(e, e->pace.pauses ? DRA_VIEW_BATCH : DRA_VIEW_LAST, &r, err);
    if (st == DRA_OK) st = dra_reader_read_rows(r, e->pool, B, e->rows, 1, NULL, 2, in, err);
    const dra_real *x = st == DRA_OK ? result(r, "logits", err) : NULL;
    if (st == DRA_OK && !x) st = DRA_ERR_MEMORY;
    for (int64_t b = 0; b < n && st == DRA_OK; b++) {
        memcpy(jobs[b]->logits, x + b * e->V, (size_t)e->V * sizeof *x);
        advance(jobs[b], 1);
    }
    return st;
}
