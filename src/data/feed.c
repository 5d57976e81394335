/* Batches. The part of a feed is the tokens begin <= i < end of its corpus.
 *   windows  window w is tokens begin + wT + (0 .. T-1); row b of step s is place sB + b in the
 *            orders of all epochs, one after the other, so no step is short
 *   lanes    lane b is tokens begin + bL + (0 .. L-1), L = ceil(n / B); row b of step s is chunk
 *            s mod ceil(L / T) of lane b */
#include <stdlib.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "data/corpus.h"
#include "data/shuffle.h"
#include "file/fail.h"

struct dra_feed {
    dra_feed_config c;
    int64_t         begin, end;
    int64_t         lane;    /* tokens of a lane */
    int64_t         windows; /* of the part; of a lane in a feed that carries */
};

/* Row b of a step: n of its T tokens, from a token of the corpus on. */
typedef struct row {
    int64_t from, n;
    bool    fresh; /* its first token starts a sequence */
} row;

/* ---- create ---------------------------------------------------------------------------------- */

static int64_t find_cut(const dra_corpus *c, double x)
{
    const int64_t n = dra_corpus_tokens(c), token = dra_imin((int64_t)(x * (double)n), n);
    if (x >= 1 || token == n) return n;
    return dra_corpus_documents(c) == 1 ? token : dra_corpus_document(c, dra_corpus_find(c, token));
}

/* To measure, anything that has a target will do; to learn, a step should be full. */
static dra_status check_tokens(const dra_feed *f, dra_error *err)
{
    const dra_feed_config *c = &f->c;
    const int64_t          n = f->end - f->begin, needed = c->carry ? c->B * c->T : c->T;
    if (n == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "feed: from %g to %g of %lld tokens in %lld documents there are none",
                        c->from, c->to, (long long)dra_corpus_tokens(c->corpus),
                        (long long)dra_corpus_documents(c->corpus));
    if (n >= needed || c->once) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_VALUE, dra_corpus_name(c->corpus),
                       "%lld tokens to read, expected at least %lld, %s %lld (the context)",
                       (long long)n, (long long)needed,
                       c->carry ? "rows of a batch, each of" : "a row of", (long long)c->T);
}

dra_status dra_feed_create(const dra_feed_config *c, dra_feed **out, dra_error *err)
{
    const int64_t limit = (int64_t)1 << 31;
    if (!out) return dra_fail(err, DRA_ERR_VALUE, "feed: no out");
    *out = NULL;
    if (!c || !c->corpus) return dra_fail(err, DRA_ERR_VALUE, "feed: no corpus");
    if (c->B < 1 || c->T < 1 || c->B >= limit || c->T >= limit)
        return dra_fail(err, DRA_ERR_VALUE, "feed: B %lld, T %lld, expected 1 to 2^31 - 1",
                        (long long)c->B, (long long)c->T);
    dra_feed f = {.c = *c};
    if (dra_part_check("feed", c->from, &f.c.to, err) != DRA_OK) return DRA_ERR_VALUE;
    f.begin = find_cut(c->corpus, c->from);
    f.end = find_cut(c->corpus, f.c.to);
    f.lane = dra_div_up(f.end - f.begin, c->B);
    f.windows = dra_div_up(c->carry ? f.lane : f.end - f.begin, c->T);
    if (check_tokens(&f, err) != DRA_OK) return DRA_ERR_VALUE;
    *out = malloc(sizeof **out);
    if (!*out) return dra_fail(err, DRA_ERR_MEMORY, "feed: out of memory");
    **out = f;
    return DRA_OK;
}

void dra_feed_destroy(dra_feed *f) { free(f); }

/* ---- what a step reads ----------------------------------------------------------------------- */

static row window_of(const dra_feed *f, int64_t step, int64_t b)
{
    const int64_t w = dra_order(f->c.seed, f->windows, f->c.once, step * f->c.B + b);
    if (w < 0) return (row){0};
    const int64_t from = f->begin + w * f->c.T;
    return (row){from, dra_imin(f->c.T, f->end - from), true};
}

static row chunk_of(const dra_feed *f, int64_t step, int64_t b)
{
    const int64_t chunk = step % f->windows, start = f->begin + b * f->lane;
    const int64_t end = dra_imin(start + f->lane, f->end), from = start + chunk * f->c.T;
    if ((f->c.once && step >= f->windows) || from >= end) return (row){0};
    return (row){from, dra_imin(f->c.T, end - from), chunk == 0};
}

/* A document's start is a reset, and the token before it has no target. Start number
 * dra_corpus_documents() is the end of all. */
static void mark_documents(const dra_feed *f, row r, int32_t *targets, int32_t *mark)
{
    const dra_corpus *c = f->c.corpus;
    const int64_t     documents = dra_corpus_documents(c);
    for (int64_t d = dra_corpus_find(c, r.from); d <= documents; d++) {
        const int64_t at = dra_corpus_document(c, d) - r.from;
        if (at > r.n) break;
        if (mark && at >= 0 && at < r.n) mark[at] |= DRA_MARK_RESET;
        if (targets && at > 0) targets[at - 1] = -1;
    }
}

static void fill_row(const dra_feed *f, row r, int32_t *ids, int32_t *targets, int32_t *mark)
{
    const dra_corpus *c = f->c.corpus;
    const int64_t     follow = r.n ? dra_imin(r.n, f->end - r.from - 1) : 0; /* have a next token */
    if (ids) dra_corpus_read(c, r.from, r.n, ids);
    if (targets) dra_corpus_read(c, r.from + 1, follow, targets);
    for (int64_t t = r.n; ids && t < f->c.T; t++) ids[t] = 0;
    for (int64_t t = follow; targets && t < f->c.T; t++) targets[t] = -1;
    for (int64_t t = 0; mark && t < f->c.T; t++) mark[t] = t < r.n ? 0 : DRA_MARK_PAD;
    if (mark && r.fresh) mark[0] |= DRA_MARK_RESET;
    if (r.n && !f->c.cross) mark_documents(f, r, targets, mark);
}

static row row_of(const dra_feed *f, int64_t step, int64_t b)
{
    return f->c.carry ? chunk_of(f, step, b) : window_of(f, step, b);
}

int64_t dra_feed_start(const dra_feed *f, int64_t step, int64_t b)
{
    const row r = row_of(f, step, b);
    return r.n ? r.from : -1;
}

void dra_feed_batch(const dra_feed *f, int64_t step, int32_t *ids, int32_t *targets, int32_t *mark)
{
    dra_feed_rows(f, step, 0, f->c.B, ids, targets, mark);
}

void dra_feed_rows(const dra_feed *f, int64_t step, int64_t first, int64_t n, int32_t *ids,
                   int32_t *targets, int32_t *mark)
{
    for (int64_t b = 0; b < n; b++) {
        const int64_t at = b * f->c.T;
        fill_row(f, row_of(f, step, first + b), ids ? ids + at : NULL,
                 targets ? targets + at : NULL, mark ? mark + at : NULL);
    }
}

/* ---- what there is --------------------------------------------------------------------------- */

int64_t dra_feed_tokens(const dra_feed *f) { return f->end - f->begin; }

int64_t dra_feed_steps(const dra_feed *f)
{
    return f->c.carry ? f->windows : dra_div_up(f->windows, f->c.B);
}

int64_t dra_feed_epoch(const dra_feed *f, int64_t step)
{
    return (f->c.carry ? step : step * f->c.B) / f->windows;
}

bool dra_feed_resets(const dra_feed *f)
{
    const dra_corpus *c = f->c.corpus;
    return !f->c.cross && dra_corpus_find(c, f->begin) != dra_corpus_find(c, f->end - 1);
}

uint64_t dra_feed_fingerprint(const dra_feed *f)
{
    const uint64_t facts[] = {
        dra_corpus_fingerprint(f->c.corpus),
        (uint64_t)f->begin,
        (uint64_t)f->end,
        (uint64_t)f->c.B,
        (uint64_t)f->c.T,
        f->c.carry ? 0 : f->c.seed,
        (uint64_t)(f->c.carry | f->c.cross << 1 | f->c.once << 2),
    };
    return dra_hash_of(0, facts, sizeof facts);
}
