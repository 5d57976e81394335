/* Beam search: the N best continuations of each row, step by step.
 *   each live beam   its N best next tokens i: log p' = log p + log p_i
 *   a finished one   itself
 *   kept             the N best of these by log p / length^A, equal ones by beam, then by token
 *
 * Beams are rows of a second, wider generator. A beam's number is its place in the order, its row
 * is any: the first that follows a beam stays in its row, others are copied to rows whose beams
 * were dropped. So a copy never overwrites what another still needs, and all a row has cached goes
 * with it. The token chosen last is not read until another step needs it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/generator.h"

typedef struct beam {
    int64_t    row; /* of the wide generator: there is its state, and there are its ids */
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

typedef struct search {
    dra_generator             *g, *wide;
    const dra_generate_config *c;
    const dra_beam_config     *how;
    int64_t                    N, each; /* beams, and how many may follow one */
    beam                      *beams;   /* (rows, N) */
    int64_t                   *n;       /* (rows): how many there are of each */
    candidate                 *found;   /* (N each) */
    dra_ranked                *ranked;  /* (each) */
    beam                      *kept;    /* (N): of the next step */
    bool                      *used;    /* (N): rows of this one that have a beam */
} search;

/* ---- starting and ending --------------------------------------------------------------------- */

static dra_status check(const dra_generator *g, const dra_generate_config *c,
                        const dra_beam_config *how, dra_error *err)
{
    if (how->beams < 1 || how->beams > DRA_BEAMS)
        return dra_fail(err, DRA_ERR_VALUE, "beam search: %lld beams, expected 1 to %d",
                        (long long)how->beams, DRA_BEAMS);
    if (!(fabs(how->length_penalty) <= 100))
        return dra_fail(err, DRA_ERR_VALUE,
                        "beam search: length_penalty is %g, expected -100 to 100",
                        how->length_penalty);
    if (how->noise && g->config.sampler.temperature == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "beam search: noise needs a temperature above 0, found 0");
    if (c->n_stop > 0) return dra_fail(err, DRA_ERR_VALUE, "beam search: has no stop strings");
    if (c->logprobs > 0)
        return dra_fail(err, DRA_ERR_VALUE, "beam search: has no log-probabilities of tokens");
    if (c->next) return dra_fail(err, DRA_ERR_VALUE, "beam search: has no next texts");
    return dra_generator_begun(g, err);
}

/* A generator with N rows for each of g; one of the search before is used again. */
static dra_status widen(dra_generator *g, int64_t N, dra_error *err)
{
    dra_generator_config c = g->config;
    c.rows = c.samples = g->config.rows * N;
    if (g->wide && g->wide->config.rows == c.rows)
        return dra_generator_set_sampler(g->wide, &c.sampler, err);
    if (g->wide) g->clamped += dra_generator_clamped(g->wide);
    dra_generator_destroy(g->wide);
    return dra_generator_create(&c, &g->wide, err);
}

static dra_status allocate(search *s, dra_error *err)
{
    const size_t rows = (size_t)s->g->config.rows, N = (size_t)s->N, each = (size_t)s->each;
    s->beams = calloc(rows * N, sizeof *s->beams);
    s->n = calloc(rows, sizeof *s->n);
    s->found = calloc(N * each, sizeof *s->found);
    s->ranked = calloc(each, sizeof *s->ranked);
    s->kept = calloc(N, sizeof *s->kept);
    s->used = calloc(N, sizeof *s->used);
    if (s->beams && s->n && s->found && s->ranked && s->kept && s->used) return DRA_OK;
    return dra_fail(err, DRA_ERR_MEMORY, "beam search: out of memory");
}

/* The rows of the beams of row r are as that row. Only the first is a beam yet; but no row of a
 * model with a context is read without one. */
static dra_status fill_rows(search *s, int64_t r, dra_error *err)
{
    const bool context = dra_model_context_stack(s->g->config.model);
    dra_status st = DRA_OK;
    for (int64_t k = 0; k < s->N && st == DRA_OK; k++) {
        const int64_t row = r * s->N + k;
        st = dra_generator_reset(s->wide, row, err);
        if (st == DRA_OK && (k == 0 || context))
            st = dra_generator_take(s->wide, row, s->g, r, err);
        if (k > 0) s->wide->row[row].next = -1;
        s->wide->row[row].ids.n = 0;
    }
    return st;
}

/* Every row is one beam, with nothing written. */
static dra_status start(search *s, dra_error *err)
{
    dra_status st = check(s->g, s->c, s->how, err);
    if (st != DRA_OK) return st;
    s->N = s->how->beams;
    s->each = dra_imin(s->N, s->g->V);
    st = widen(s->g, s->N, err);
    if (st == DRA_OK) st = allocate(s, err);
    s->wide = s->g->wide;
    for (int64_t r = 0; r < s->g->config.rows && st == DRA_OK; r++) {
        s->beams[r * s->N] = (beam){.row = r * s->N, .live = true};
        s->n[r] = 1;
        st = fill_rows(s, r, err);
    }
    return st;
}

static void release(search *s)
{
    free(s->beams);
    free(s->n);
    free(s->found);
    free(s->ranked);
    free(s->kept);
    free(s->used);
}

/* ---- candidates ------------------------------------------------------------------------------ */

static double score_of(const search *s, double log_prob, size_t length)
{
    return length ? log_prob / pow((double)length, s->how->length_penalty) : log_prob;
}

static void end_beam(beam *b, dra_finish why)
{
    b->live = false;
    b->finish = why;
}

/* What may follow beam k of row r; returns how many. */
static dra_status follow(search *s, int64_t r, int64_t k, candidate *to, int64_t *n, dra_error *err)
{
    beam            *b = &s->beams[r * s->N + k];
    const dra_gumbel noise = {dra_generator_stream(s->g, r), dra_generator_tokens(s->wide, b->row),
                              (uint32_t)k};
    dra_offer        offer;
    const dra_status st = dra_generator_offer(s->wide, s->c, b->row, &offer, err);
    if (st != DRA_OK) return st;
    if (offer.ended) {
        end_beam(b, DRA_FINISH_END);
        to[0] = (candidate){b->log_prob, b->score, k, -1};
        *n = 1;
        return DRA_OK;
    }
    *n = dra_sampler_rank(s->g->sampler, offer.logits, offer.seen, s->how->noise ? &noise : NULL,
                          s->each, s->ranked);
    if (*n < 0) return dra_generator_refuse(s->wide, "beam search", b->row, err);
    for (int64_t i = 0; i < *n; i++) {
        const double log_prob = b->log_prob + s->ranked[i].log_prob;
        to[i] = (candidate){log_prob, score_of(s, log_prob, b->length + 1), k, s->ranked[i].id};
    }
    return DRA_OK;
}

static int compare(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The best are the first of s->found; *n is how many are kept. */
static dra_status choose(search *s, int64_t r, int64_t *n, dra_error *err)
{
    int64_t    count = 0, more = 0;
    dra_status st = DRA_OK;
    for (int64_t k = 0; k < s->n[r] && st == DRA_OK; k++, count += more) {
        const beam *b = &s->beams[r * s->N + k];
        s->found[count] = (candidate){b->log_prob, b->score, k, -1};
        more = 1;
        if (b->live) st = follow(s, r, k, s->found + count, &more, err);
    }
    if (st != DRA_OK) return st;
    qsort(s->found, (size_t)count, sizeof *s->found, compare);
    *n = dra_imin(count, s->N);
    return DRA_OK;
}

/* ---- moving to them -------------------------------------------------------------------------- */

static dra_status copy_ids(dra_ids *to, const dra_ids *from, dra_error *err)
{
    dra_status st = DRA_OK;
    to->n = 0;
    for (size_t i = 0; i < from->n && st == DRA_OK; i++) st = dra_ids_add(to, from->data[i], err);
    return st;
}

/* Gives each of the n best a row: that of its parent, if it is the first, else one that is free. */
static dra_status assign_rows(search *s, int64_t r, int64_t n, dra_error *err)
{
    const int64_t first = r * s->N;
    int64_t       free_row = 0;
    dra_status    st = DRA_OK;
    memset(s->used, 0, (size_t)s->N);
    for (int64_t k = 0; k < n; k++) {
        s->kept[k] = s->beams[first + s->found[k].parent];
        bool *used = &s->used[s->kept[k].row - first];
        if (*used) s->kept[k].row = -1; /* for now */
        *used = true;
    }
    for (int64_t k = 0; k < n && st == DRA_OK; k++) {
        const int64_t from = s->beams[first + s->found[k].parent].row;
        if (s->kept[k].row >= 0) continue;
        while (s->used[free_row]) free_row++;
        s->used[free_row] = true;
        s->kept[k].row = first + free_row;
        st = dra_generator_take(s->wide, s->kept[k].row, s->wide, from, err);
        if (st == DRA_OK)
            st = copy_ids(&s->wide->row[s->kept[k].row].ids, &s->wide->row[from].ids, err);
    }
    for (int64_t row = 0; row < s->N; row++) /* those without a beam read nothing */
        if (!s->used[row]) s->wide->row[first + row].next = -1;
    return st;
}

/* A kept beam gets its token: to be read, or its end. */
static dra_status extend(search *s, beam *b, const candidate *c, dra_error *err)
{
    dra_row *row = &s->wide->row[b->row];
    if (c->id < 0) return DRA_OK;
    b->log_prob = c->log_prob;
    b->score = c->score;
    b->length++;
    if (dra_generate_ends(s->g, s->c, c->id)) {
        end_beam(b, DRA_FINISH_END);
        return DRA_OK;
    }
    row->next = c->id;
    const dra_status st = dra_generator_advance(s->wide, b->row, c->id, err);
    return st == DRA_OK ? dra_ids_add(&row->ids, c->id, err) : st;
}

static dra_status advance(search *s, int64_t r, dra_error *err)
{
    int64_t    n = 0;
    dra_status st = choose(s, r, &n, err);
    if (st == DRA_OK) st = assign_rows(s, r, n, err);
    for (int64_t k = 0; k < n && st == DRA_OK; k++) st = extend(s, &s->kept[k], &s->found[k], err);
    if (st != DRA_OK) return st;
    memcpy(s->beams + r * s->N, s->kept, (size_t)n * sizeof *s->kept);
    s->n[r] = n;
    return DRA_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* What ends the beams of a row before the next token: they are all equally long. */
static dra_status look_ahead(search *s, int64_t r, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t k = 0; k < s->n[r] && st == DRA_OK; k++) {
        beam *b = &s->beams[r * s->N + k];
        bool  must;
        if (!b->live) continue;
        st = dra_generator_must_end(s->wide, b->row, &must, err);
        if (must)
            end_beam(b, DRA_FINISH_END);
        else if (s->c->tokens > 0 && b->length >= (size_t)s->c->tokens)
            end_beam(b, DRA_FINISH_LENGTH);
        else if (!dra_generator_fits(s->wide, b->row, 1))
            end_beam(b, DRA_FINISH_CONTEXT);
    }
    return st;
}

static bool lives(const search *s, int64_t r)
{
    bool any = false;
    for (int64_t k = 0; k < s->n[r]; k++) any = any || s->beams[r * s->N + k].live;
    return any;
}

/* Asks whether a row shall have another token. */
static void ask(search *s, int64_t r)
{
    if (!lives(s, r) || !s->c->write || s->c->write(s->c->user, r * s->N, "", 0)) return;
    for (int64_t k = 0; k < s->n[r]; k++) {
        beam *b = &s->beams[r * s->N + k];
        if (b->live) b->finish = DRA_FINISH_ASKED;
        b->live = false;
    }
}

static dra_status step(search *s, bool *more, dra_error *err)
{
    const int64_t rows = s->g->config.rows;
    dra_status    st = DRA_OK;
    *more = false;
    for (int64_t r = 0; r < rows && st == DRA_OK; r++) {
        st = look_ahead(s, r, err);
        *more = *more || lives(s, r);
    }
    if (*more && st == DRA_OK) st = dra_generator_flush_pending(s->wide, err);
    for (int64_t r = 0; r < rows && st == DRA_OK; r++) {
        if (!lives(s, r)) continue;
        st = advance(s, r, err);
        if (st == DRA_OK) ask(s, r);
    }
    return st;
}

static dra_status hand_out(search *s, int64_t at, const dra_ids *ids, dra_error *err)
{
    dra_text_stream outlet = {0};
    dra_text_chunk  flow = {0};
    dra_status      st = DRA_OK;
    size_t          bytes;
    if (!s->c->write) return DRA_OK;
    for (size_t i = 0; i <= ids->n && st == DRA_OK; i++) {
        const char *piece = i < ids->n ? dra_generator_piece(s->g, ids->data[i], &bytes) : NULL;
        st = piece ? dra_text_stream_push(&outlet, piece, bytes, &flow, err)
                   : dra_text_stream_flush(&outlet, &flow, err);
        if (st == DRA_OK && flow.bytes) s->c->write(s->c->user, at, flow.text, flow.bytes);
    }
    dra_text_stream_free(&outlet);
    return st;
}

static dra_status end(search *s, dra_beam *out, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t r = 0; r < s->g->config.rows && st == DRA_OK; r++) {
        const int64_t first = r * s->N;
        st = dra_generator_take(s->g, r, s->wide, s->beams[first].row, err);
        for (int64_t k = 0; k < s->N; k++) out[first + k] = (dra_beam){.score = -INFINITY};
        for (int64_t k = 0; k < s->n[r] && st == DRA_OK; k++) {
            const beam    *b = &s->beams[first + k];
            const dra_ids *ids = &s->wide->row[b->row].ids;
            out[first + k] = (dra_beam){{b->finish, ids->n, ids->data}, b->score};
            st = hand_out(s, first + k, ids, err);
        }
    }
    return st;
}

dra_status dra_generate_beam(dra_generator *g, const dra_generate_config *config,
                             const dra_beam_config *beam_config, dra_beam *out, dra_error *err)
{
    search     s = {.g = g, .c = config, .how = beam_config};
    bool       more = true;
    dra_status st = start(&s, err);
    while (st == DRA_OK && more) st = step(&s, &more, err);
    if (st == DRA_OK) st = end(&s, out, err);
    release(&s);
    return st;
}
