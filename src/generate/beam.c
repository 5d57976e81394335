/* Beam search: the N best continuations of a job, step by step.
 *   each live beam   its N best next tokens i: log p' = log p + log p_i
 *   a finished one   itself
 *   kept             the N best of these by log p / length^A, equal ones by beam, then by token
 *
 * Beams are sequences of the job. A beam's number is its place in the order, its sequence is any:
 * the first that follows a beam stays in its sequence, others are copied to those whose beams were
 * dropped. So a copy never overwrites what another still needs, and all a row has cached goes with
 * it. The token chosen last is not read until another step needs it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/engine.h"
#include "generate/sample.h"

typedef struct beam {
    int64_t    at; /* which sequence is its own */
    double     log_prob, score;
    size_t     length; /* tokens that log_prob is of, an end of text among them */
    bool       live;
    dra_finish finish;
} beam;

typedef struct candidate {
    double  log_prob, score;
    int64_t parent; /* number of a beam */
    int32_t id;     /* -1: a finished beam, as it is */
} candidate;

struct dra_search {
    const dra_beam_config *how;
    int64_t                N, each;     /* beams, and how many may follow one */
    int64_t                n;           /* how many there are now */
    dra_sequence          *seq;         /* (N); their ids are what was written */
    beam                  *beam, *kept; /* (N) */
    candidate             *found;       /* (N each) */
    dra_ranked            *ranked;      /* (each) */
    bool                  *used;        /* (N): sequences that have a beam */
    dra_beam              *out;         /* (N): the result */
};

/* ---- checks ---------------------------------------------------------------------------------- */

dra_status dra_search_check(const dra_job_config *c, dra_error *err)
{
    const dra_beam_config *how = &c->beam;
    if (how->beams < 1 || how->beams > DRA_BEAMS)
        return dra_fail(err, DRA_ERR_VALUE, "beam search: %lld beams, expected 1 to %d",
                        (long long)how->beams, DRA_BEAMS);
    if (!(fabs(how->length_penalty) <= 100))
        return dra_fail(err, DRA_ERR_VALUE,
                        "beam search: length_penalty is %g, expected -100 to 100",
                        how->length_penalty);
    if (how->noise && c->sampler.temperature == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "beam search: noise needs a temperature above 0, found 0");
    if (c->n_stop > 0) return dra_fail(err, DRA_ERR_VALUE, "beam search: has no stop strings");
    if (c->logprobs > 0)
        return dra_fail(err, DRA_ERR_VALUE, "beam search: has no log-probabilities of tokens");
    return DRA_OK;
}

/* ---- starting and ending --------------------------------------------------------------------- */

static dra_status make_room(dra_engine *e, dra_search *s, dra_error *err)
{
    const size_t N = (size_t)s->N, each = (size_t)s->each;
    s->seq = calloc(N, sizeof *s->seq);
    s->beam = calloc(N, sizeof *s->beam);
    s->kept = calloc(N, sizeof *s->kept);
    s->found = calloc(N * each, sizeof *s->found);
    s->ranked = calloc(each, sizeof *s->ranked);
    s->used = calloc(N, sizeof *s->used);
    s->out = calloc(N, sizeof *s->out);
    if (s->seq && s->beam && s->kept && s->found && s->ranked && s->used && s->out) return DRA_OK;
    return dra_engine_no_memory(err);
}

/* A sequence of each beam, without a row. */
static dra_status open_sequences(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_search *s = job->search;
    for (int64_t k = 0; k < s->N; k++) {
        dra_sequence *q = &s->seq[k];
        *q = (dra_sequence){.job = job, .row = -1, .copy = -1, .view = DRA_VIEWS};
        q->base = job->base + (int64_t)job->seq.prompt;
        if (job->seq.seen) q->seen = malloc((size_t)e->V * sizeof *q->seen);
        if (job->seq.seen && !q->seen) return dra_engine_no_memory(err);
    }
    return DRA_OK;
}

static dra_status copy_logits(dra_engine *e, dra_sequence *q, const dra_sequence *from,
                              dra_error *err)
{
    const size_t each = (size_t)(e->lanes * e->V) * sizeof *q->logits;
    q->view = from->view;
    q->at = from->at;
    if (q->view != DRA_VIEWS) return DRA_OK;
    if (!q->logits) q->logits = malloc(each);
    if (!q->logits) return dra_engine_no_memory(err);
    memcpy(q->logits, from->logits, each);
    return DRA_OK;
}

/* Sequence q, which has no row, becomes like another. */
static dra_status copy_sequence(dra_engine *e, dra_sequence *q, const dra_sequence *from,
                                dra_error *err)
{
    dra_status st = dra_rows_take(e, from->row, &q->row, err);
    q->ids.n = 0;
    for (size_t i = 0; i < from->ids.n && st == DRA_OK; i++)
        st = dra_ids_add(&q->ids, from->ids.data[i], err);
    free(q->place);
    q->place = NULL;
    if (st == DRA_OK) st = dra_grammar_state_copy(from->place, &q->place, err);
    if (st != DRA_OK) return st;
    q->read = from->read;
    if (q->seen) memcpy(q->seen, from->seen, (size_t)e->V * sizeof *q->seen);
    return copy_logits(e, q, from, err);
}

/* The first beam takes the row of the job; it has written nothing. */
static dra_status open_first(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_search   *s = job->search;
    dra_sequence *q = &s->seq[0], *own = &job->seq;
    q->row = own->row;
    own->row = -1;
    q->view = own->view;
    q->at = own->at;
    q->logits = own->logits;
    own->logits = NULL;
    if (q->seen) memcpy(q->seen, own->seen, (size_t)e->V * sizeof *q->seen);
    s->beam[0] = (beam){.live = true};
    s->n = 1;
    return dra_grammar_state_copy(own->place, &q->place, err);
}

dra_status dra_search_begin(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_search *s = job->search = calloc(1, sizeof *s);
    if (!s) return dra_engine_no_memory(err);
    s->how = &job->config.beam;
    s->N = s->how->beams;
    s->each = dra_imin(s->N, e->V);
    dra_status st = make_room(e, s, err);
    if (st == DRA_OK) st = open_sequences(e, job, err);
    return st == DRA_OK ? open_first(e, job, err) : st;
}

void dra_search_release(dra_engine *e, dra_search *s)
{
    for (int64_t k = 0; s && s->seq && k < s->N; k++)
        if (s->seq[k].job) dra_rows_give(e, &s->seq[k].row);
}

void dra_search_free(dra_engine *e, dra_search *s)
{
    if (!s) return;
    dra_search_release(e, s);
    for (int64_t k = 0; s->seq && k < s->N; k++) {
        dra_ids_free(&s->seq[k].ids);
        free(s->seq[k].logits);
        free(s->seq[k].seen);
        free(s->seq[k].place);
    }
    void *const freed[] = {s->seq, s->beam, s->kept, s->found, s->ranked, s->used, s->out};
    for (size_t i = 0; i < sizeof freed / sizeof *freed; i++) free(freed[i]);
    free(s);
}

int64_t dra_search_result(const dra_search *s, const dra_beam **beams)
{
    *beams = s->out;
    return s->N;
}

int64_t dra_search_unread(dra_search *s, dra_sequence **out)
{
    int64_t n = 0;
    for (int64_t k = 0; k < s->n; k++) {
        dra_sequence *q = &s->seq[s->beam[k].at];
        if (s->beam[k].live && q->read < q->ids.n) out[n++] = q;
    }
    return n;
}

/* ---- candidates ------------------------------------------------------------------------------ */

static double score_of(const dra_search *s, double log_prob, size_t length)
{
    return length ? log_prob / pow((double)length, s->how->length_penalty) : log_prob;
}

static void end_beam(beam *b, dra_finish why)
{
    b->live = false;
    b->finish = why;
}

/* What may follow beam k; *n: how many. */
static dra_status offer_candidates(dra_engine *e, dra_job *job, int64_t k, candidate *to,
                                   int64_t *n, dra_error *err)
{
    dra_search      *s = job->search;
    beam            *b = &s->beam[k];
    dra_sequence    *q = &s->seq[b->at];
    const dra_gumbel noise = {0, q->base + (int64_t)q->read, (uint32_t)k};
    dra_offer        offer;
    const dra_status st = dra_sequence_offer(e, q, &offer, err);
    if (st != DRA_OK) return st;
    if (offer.ended) {
        end_beam(b, DRA_FINISH_END);
        to[0] = (candidate){b->log_prob, b->score, k, -1};
        *n = 1;
        return dra_sequence_own_logits(e, q, err);
    }
    *n = dra_sampler_rank(job->sampler, offer.logits, offer.seen, s->how->noise ? &noise : NULL,
                          s->each, s->ranked);
    if (*n < 0) return dra_sequence_refuse(e, q, err);
    for (int64_t i = 0; i < *n; i++) {
        const double log_prob = b->log_prob + s->ranked[i].log_prob;
        to[i] = (candidate){log_prob, score_of(s, log_prob, b->length + 1), k, s->ranked[i].id};
    }
    return DRA_OK;
}

static int compare_candidates(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The best are the first of s->found; *n is how many are kept. */
static dra_status choose_candidates(dra_engine *e, dra_job *job, int64_t *n, dra_error *err)
{
    dra_search *s = job->search;
    int64_t     count = 0, more = 0;
    dra_status  st = DRA_OK;
    for (int64_t k = 0; k < s->n && st == DRA_OK; k++, count += more) {
        const beam *b = &s->beam[k];
        s->found[count] = (candidate){b->log_prob, b->score, k, -1};
        more = 1;
        if (b->live) st = offer_candidates(e, job, k, s->found + count, &more, err);
    }
    if (st != DRA_OK) return st;
    qsort(s->found, (size_t)count, sizeof *s->found, compare_candidates);
    *n = dra_imin(count, s->N);
    return DRA_OK;
}

/* ---- moving to them -------------------------------------------------------------------------- */

/* Gives each of the n best a sequence: that of its parent, if it is the first, else a free one. */
static dra_status assign_sequences(dra_engine *e, dra_search *s, int64_t n, dra_error *err)
{
    int64_t    free_one = 0;
    dra_status st = DRA_OK;
    memset(s->used, 0, (size_t)s->N);
    for (int64_t k = 0; k < n; k++) {
        s->kept[k] = s->beam[s->found[k].parent];
        bool *used = &s->used[s->kept[k].at];
        if (*used) s->kept[k].at = -1; /* for now */
        *used = true;
    }
    for (int64_t i = 0; i < s->N; i++)
        if (!s->used[i]) dra_rows_give(e, &s->seq[i].row);
    for (int64_t k = 0; k < n && st == DRA_OK; k++) {
        const int64_t from = s->beam[s->found[k].parent].at;
        if (s->kept[k].at >= 0) continue;
        while (s->used[free_one]) free_one++;
        s->used[free_one] = true;
        s->kept[k].at = free_one;
        st = copy_sequence(e, &s->seq[free_one], &s->seq[from], err);
    }
    return st;
}

/* A kept beam gets its token: to be read, or its end. */
static dra_status extend_beam(dra_engine *e, dra_job *job, beam *b, const candidate *c,
                              dra_error *err)
{
    dra_sequence *q = &job->search->seq[b->at];
    dra_finish    how;
    if (c->id < 0) return DRA_OK;
    b->log_prob = c->log_prob;
    b->score = c->score;
    b->length++;
    if (dra_sequence_ends(e, q, c->id, &how)) {
        end_beam(b, how);
        return dra_sequence_own_logits(e, q, err);
    }
    const dra_status st = dra_sequence_advance(e, q, c->id, err);
    return st == DRA_OK ? dra_ids_add(&q->ids, c->id, err) : st;
}

static dra_status advance_beams(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_search *s = job->search;
    int64_t     n = 0;
    dra_status  st = choose_candidates(e, job, &n, err);
    if (st == DRA_OK) st = assign_sequences(e, s, n, err);
    for (int64_t k = 0; k < n && st == DRA_OK; k++)
        st = extend_beam(e, job, &s->kept[k], &s->found[k], err);
    if (st != DRA_OK) return st;
    memcpy(s->beam, s->kept, (size_t)n * sizeof *s->kept);
    s->n = n;
    return DRA_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool has_live_beams(const dra_search *s)
{
    bool any = false;
    for (int64_t k = 0; k < s->n; k++) any = any || s->beam[k].live;
    return any;
}

/* What ends beams before the next token. */
static dra_status look_ahead(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_search   *s = job->search;
    const int64_t most = job->config.tokens;
    dra_status    st = DRA_OK;
    for (int64_t k = 0; k < s->n && st == DRA_OK; k++) {
        beam               *b = &s->beam[k];
        const dra_sequence *q = &s->seq[b->at];
        const int64_t       tokens = job->base + (int64_t)(job->seq.prompt + q->ids.n) + 1;
        bool                may, must = false;
        if (!b->live) continue;
        if (job->constraint) st = dra_constraint_end(job->constraint, q->place, &may, &must, err);
        if (job->asked)
            end_beam(b, DRA_FINISH_ASKED);
        else if (must)
            end_beam(b, DRA_FINISH_END);
        else if (most >= 0 && b->length >= (size_t)most)
            end_beam(b, DRA_FINISH_LENGTH);
        else if (!dra_job_has_room(e, job, tokens))
            end_beam(b, DRA_FINISH_CONTEXT);
    }
    return st;
}

/* The best text and its row become those of the job, which ends when all of it is read. */
static dra_status end_search(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_search   *s = job->search;
    dra_sequence *best = &s->seq[s->beam[0].at], *q = &job->seq;
    dra_status    st = DRA_OK;
    for (int64_t k = 0; k < s->N; k++) s->out[k].score = -INFINITY;
    for (int64_t k = 0; k < s->n; k++) {
        const beam    *b = &s->beam[k];
        const dra_ids *ids = &s->seq[b->at].ids;
        s->out[k] = (dra_beam){{b->finish, ids->n, ids->data}, b->score};
    }
    for (size_t i = 0; i < best->ids.n && st == DRA_OK; i++)
        st = dra_ids_add(&q->ids, best->ids.data[i], err);
    if (st == DRA_OK && best->read == best->ids.n) st = dra_sequence_own_logits(e, best, err);
    if (st != DRA_OK) return st;
    q->row = best->row;
    best->row = -1;
    q->view = DRA_VIEWS;
    q->logits = best->logits;
    best->logits = NULL;
    q->read += best->read;
    dra_grammar_state *place = q->place;
    q->place = best->place;
    best->place = place;
    return dra_job_close(e, job, s->beam[0].finish, err);
}

dra_status dra_search_step(dra_engine *e, dra_job *job, dra_error *err)
{
    static const dra_job_token step = {.id = -1, .logprob = NAN, .text = ""};
    dra_search                *s = job->search;
    dra_status                 st = advance_beams(e, job, err);
    if (st == DRA_OK && has_live_beams(s)) dra_job_tell(e, job, &step);
    if (st == DRA_OK) st = look_ahead(e, job, err);
    return st == DRA_OK && !has_live_beams(s) ? end_search(e, job, err) : st;
}
