/* Drafts: guesses at the tokens that follow, which verify.c reads all at once and keeps as far as
 * they are right. A wrong guess costs time and nothing else, so guesses are made where they have
 * been right lately: their number doubles while all are right, and after each try of which none
 * was the pause before the next one doubles.
 *
 * By n-grams: what followed the longest earlier occurrence of the text's end. Occurrences of its
 * last G tokens are found by a table, the latest first, and compared backwards. What follows the
 * end of the text itself is what was guessed, so a text of period p goes on with period p. By a
 * model: a smaller one with the same vocabulary, which reads the same text in pools of its own and
 * draws with the same numbers. [Leviathan et al. 2023; Saxena 2023, prompt lookup] */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "generate/engine.h"
#include "generate/sample.h"

enum {
    TRIED = 16,       /* occurrences that are compared */
    COMPARED = 64,    /* tokens of each */
    FIRST = 4,        /* drafts to begin with */
    PAUSE_MOST = 256, /* tokens */
};

struct dra_drafts {
    int32_t id[DRA_DRAFTS];
    int64_t n;     /* of these, now */
    int64_t most;  /* how many may be made at a time */
    int64_t pause; /* tokens to be written without */
    int     misses;
    size_t  read; /* tokens of the text that the draft's model has read */
    /* Occurrences of G tokens, by where they end: the last one of each hash, and the one before. */
    uint32_t *last, *earlier;
    size_t    buckets, room, indexed;
};

/* ---- making them ----------------------------------------------------------------------------- */

dra_status dra_drafts_create(dra_drafts **out, dra_error *err)
{
    dra_drafts *d = *out = calloc(1, sizeof *d);
    if (!d) return dra_engine_no_memory(err);
    d->most = FIRST;
    return DRA_OK;
}

void dra_drafts_free(dra_drafts *d)
{
    if (!d) return;
    free(d->last);
    free(d->earlier);
    free(d);
}

int64_t dra_drafts_count(const dra_drafts *d) { return d ? d->n : 0; }
int32_t dra_drafts_at(const dra_drafts *d, int64_t i) { return d->id[i]; }

void dra_drafts_judge(dra_drafts *d, int64_t right)
{
    if (right == d->n) {
        d->most = dra_imin(2 * d->most, DRA_DRAFTS);
        d->read += d->read ? (size_t)d->n - 1 : 0;
    } else {
        d->most = dra_imax(right, 2);
    }
    d->misses = right > 0 ? 0 : d->misses + 1;
    d->pause = right > 0 ? 0 : dra_imin((int64_t)1 << dra_imin(d->misses, 30), PAUSE_MOST);
    d->n = 0;
}

/* ---- by n-grams ------------------------------------------------------------------------------ */

/* The text of a sequence: what the state that it began from has read, then its own tokens. */
static size_t text_length(const dra_sequence *s) { return s->before.n + s->ids.n; }

static int32_t text_at(const dra_sequence *s, size_t i)
{
    return i < s->before.n ? s->before.data[i] : s->ids.data[i - s->before.n];
}

/* Tokens that have to be alike: more where tokens are bytes. */
static size_t gram_of(const dra_engine *e) { return e->V <= 512 ? 6 : 3; }

static uint32_t *bucket_of(dra_drafts *d, const dra_sequence *s, size_t end, size_t G)
{
    uint64_t h = 0;
    for (size_t i = end + 1 - G; i <= end; i++)
        h = dra_hash_number(h ^ (uint64_t)(uint32_t)text_at(s, i));
    return &d->last[h & (d->buckets - 1)];
}

/* Positions are stored plus one: 0 is none. */
static void index_until(dra_drafts *d, const dra_sequence *s, size_t end, size_t G)
{
    for (; d->indexed < end; d->indexed++) {
        if (d->indexed + 1 < G) continue;
        uint32_t *last = bucket_of(d, s, d->indexed, G);
        d->earlier[d->indexed] = *last;
        *last = (uint32_t)d->indexed + 1;
    }
}

/* Room for a text of n tokens; the table is made again when it has become too small. */
static bool make_room(dra_drafts *d, size_t n)
{
    if (n <= d->room) return true;
    const size_t room = 2 * n + 256;
    uint32_t    *earlier = realloc(d->earlier, room * sizeof *earlier);
    if (earlier) d->earlier = earlier;
    size_t buckets = 256;
    while (buckets < room) buckets *= 2;
    uint32_t *last = earlier ? calloc(buckets, sizeof *last) : NULL;
    if (!last) return false;
    free(d->last);
    d->last = last;
    d->buckets = buckets;
    d->room = room;
    d->indexed = 0;
    return true;
}

/* How many tokens before two positions, with them, are alike. */
static size_t count_alike(const dra_sequence *s, size_t a, size_t b)
{
    size_t n = 0;
    while (n < COMPARED && n <= a && text_at(s, a - n) == text_at(s, b - n)) n++;
    return n;
}

static void guess_by_text(dra_engine *e, const dra_sequence *s, int64_t most)
{
    dra_drafts  *d = s->drafts;
    const size_t N = text_length(s), G = gram_of(e);
    size_t       best = 0, length = G - 1;
    if (N <= G || N > UINT32_MAX / 2 || !make_room(d, N)) return;
    index_until(d, s, N - 1, G);
    uint32_t at = *bucket_of(d, s, N - 1, G);
    for (int i = 0; at > 0 && i < TRIED; i++, at = d->earlier[at - 1]) {
        const size_t n = count_alike(s, at - 1, N - 1);
        if (n > length) length = n, best = at;
    }
    for (; best > 0 && d->n < most; d->n++) {
        const size_t i = best + (size_t)d->n;
        d->id[d->n] = i < N ? text_at(s, i) : d->id[i - N];
    }
}

/* ---- by a model ------------------------------------------------------------------------------ */

/* The draft's model reads the n tokens in e->ids, up to a power of two with pads; *id: what it
 * would write at a position. */
static dra_status read_tokens(dra_engine *e, const dra_sequence *s, int64_t row, int64_t n,
                              int64_t position, int32_t *id, dra_error *err)
{
    dra_lane     *l = &e->lane[e->lanes];
    const int32_t last = (int32_t)n - 1;
    int64_t       P = 1;
    dra_reader   *r;
    dra_status    st = dra_engine_reader(e, e->lanes, DRA_VIEW_LAST, &r, err);
    while (P < n) P *= 2;
    for (int64_t t = 0; t < P; t++) {
        if (t >= n) e->ids[t] = 0;
        e->mark[t] = t < n ? 0 : DRA_MARK_PAD;
    }
    const dra_named in[] = {{"ids", e->ids, (size_t)P * sizeof *e->ids},
                            {"picks", &last, sizeof last}};
    if (st == DRA_OK)
        st = dra_reader_read_rows(r, l->pool, 1, &row, P, P > n ? e->mark : NULL, 2, in, err);
    const dra_real *x = st == DRA_OK ? dra_reader_result(r, "logits") : NULL;
    if (st == DRA_OK && !x) st = dra_engine_no_memory(err);
    if (st == DRA_OK) *id = dra_sampler_pick(s->job->sampler, x, s->seen, 0, position);
    return st;
}

/* It reads what it has not read of the text; *id: what it would write after it, or -1. */
static dra_status catch_up(dra_engine *e, const dra_sequence *s, int32_t *id, dra_error *err)
{
    dra_drafts   *d = s->drafts;
    const int64_t begin = s->base - (int64_t)s->before.n; /* tokens before the text */
    const int64_t read = dra_states_tokens(e->lane[e->lanes].pool, s->row);
    const size_t  N = text_length(s);
    dra_status    st = DRA_OK;
    if (d->read == 0 && read > begin) d->read = (size_t)dra_imin(read - begin, (int64_t)N);
    *id = -1;
    while (d->read < N && st == DRA_OK) {
        const int64_t n = dra_imin((int64_t)(N - d->read), DRA_ENGINE_KEPT);
        for (int64_t t = 0; t < n; t++) e->ids[t] = text_at(s, d->read + (size_t)t);
        st = read_tokens(e, s, s->row, n, begin + (int64_t)N, id, err);
        if (st == DRA_OK) d->read += (size_t)n;
    }
    return st;
}

/* Then its own guesses, of which `id` is the first, in the copy of the row. */
static dra_status guess_by_model(dra_engine *e, const dra_sequence *s, int32_t id, int64_t most,
                                 dra_error *err)
{
    dra_drafts   *d = s->drafts;
    const int64_t end = s->base + (int64_t)s->ids.n;
    dra_status    st = DRA_OK;
    while (st == DRA_OK && id >= 0 && d->n < most) {
        e->ids[0] = d->id[d->n++] = id;
        if (d->n < most) st = read_tokens(e, s, s->copy, 1, end + d->n, &id, err);
    }
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool may_guess(const dra_engine *e, const dra_sequence *s, int64_t unread)
{
    const dra_job *job = s->job;
    return s->drafts && !job->search && job->started && !job->closing && !job->over &&
           unread <= DRA_VERIFIED / 2 && e->cut > 0;
}

dra_status dra_drafts_make(dra_engine *e, dra_sequence *s, dra_error *err)
{
    dra_drafts      *d = s->drafts;
    const int64_t    unread = (int64_t)(s->ids.n - s->read);
    const dra_draft *how = &e->config.draft;
    if (!may_guess(e, s, unread)) return DRA_OK;
    d->n = 0;
    if (d->pause > 0) {
        d->pause--;
        return DRA_OK;
    }
    const int64_t left = s->job->config.tokens < 0
                             ? INT64_MAX
                             : s->job->config.tokens - (int64_t)(s->ids.n - s->job->seq.prompt) - 1;
    const int64_t room = e->positions - s->base - (int64_t)s->ids.n;
    const int64_t limit = how->most > 0 ? how->most : DRA_DRAFTS;
    const int64_t most = dra_imin(dra_imin(dra_imin(d->most, limit), DRA_VERIFIED - unread),
                                  dra_imin(left, room));
    if (most < 1) return DRA_OK;
    int32_t    id = -1;
    dra_status st = DRA_OK;
    if (how->model)
        st = catch_up(e, s, &id, err);
    else
        guess_by_text(e, s, most);
    if (st != DRA_OK || (id < 0 && d->n == 0)) return st;
    if (dra_rows_take(e, s->row, &s->copy, NULL) != DRA_OK)
        d->n = 0; /* there is no memory for a copy */
    else if (how->model)
        st = guess_by_model(e, s, id, most, err);
    if (d->n == 0) dra_rows_give(e, &s->copy);
    return st;
}
