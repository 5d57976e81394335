/* Ranks of merges from scores of tokens, and back. All merges that make a token have its rank: of
 * several that are possible the leftmost is next, as in SentencePiece. */
#include "text/gguf_scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/gguf_world.h"
#include "text/letters.h"

#define KEY(name) DRA_GGUF_TOKENIZER_KEY(name)

typedef struct scored {
    int32_t id, rank;
    double  score;
} scored;

typedef struct found_merge {
    dra_merge_rule rule;
    int32_t        rank;
} found_merge;

typedef struct reader {
    dra_vocabulary *v;
    const json_t   *tokens, *types;
    found_merge    *merge; /* NULL: they are only counted */
    size_t          n;
} reader;

static bool is_normal(const reader *r, int64_t id)
{
    const json_t *type = json_array_get(r->types, (size_t)id);
    return r->v->t->token[id].kind == DRA_TOKEN_BYTES &&
           (!type || json_integer_value(type) == DRA_GGUF_NORMAL);
}

/* The normal token with a spelling; -1: none. */
static int32_t find_normal(const reader *r, const char *text, size_t n)
{
    memcpy(r->v->room, text, n);
    r->v->room[n] = 0;
    const json_t *id = json_object_get(r->v->vocab, r->v->room);
    return id && is_normal(r, json_integer_value(id)) ? (int32_t)json_integer_value(id) : -1;
}

/* Every way to make a token of two. */
static void find_merges(reader *r, int32_t id, int32_t rank)
{
    const char  *text = json_string_value(json_array_get(r->tokens, (size_t)id));
    const size_t bytes = strlen(text);
    int32_t      code;
    for (size_t at = dra_utf8(text, bytes, &code); at < bytes;
         at += dra_utf8(text + at, bytes - at, &code)) {
        const int32_t left = find_normal(r, text, at);
        const int32_t right = left < 0 ? -1 : find_normal(r, text + at, bytes - at);
        if (right < 0) continue;
        if (r->merge) r->merge[r->n] = (found_merge){{left, right, id}, rank};
        r->n++;
    }
}

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                : (x->id > y->id) - (x->id < y->id);
}

static int compare_ids(int32_t a, int32_t b) { return (a > b) - (a < b); }

static int by_rank(const void *a, const void *b)
{
    const found_merge *x = a, *y = b;
    int                order = compare_ids(x->rank, y->rank);
    if (!order) order = compare_ids(x->rule.id, y->rule.id);
    if (!order) order = compare_ids(x->rule.left, y->rule.left);
    return order ? order : compare_ids(x->rule.right, y->rule.right);
}

/* The normal tokens by their scores; equal scores are one rank. */
static dra_status rank_tokens(const reader *r, const json_t *scores, scored *token, size_t *n)
{
    const int32_t size = r->v->t->size;
    *n = 0;
    for (int32_t id = 0; id < size; id++) {
        const json_t *score = json_array_get(scores, (size_t)id);
        if (!is_normal(r, id)) continue;
        if (!json_is_number(score) || !isfinite(json_number_value(score)))
            return dra_vocabulary_fail(r->v, KEY("scores") " %d: expected a number", id);
        token[(*n)++] = (scored){id, 0, json_number_value(score)};
    }
    qsort(token, *n, sizeof *token, by_score);
    for (size_t i = 1; i < *n; i++)
        token[i].rank = token[i - 1].rank + (token[i].score < token[i - 1].score);
    return DRA_OK;
}

static dra_status keep_merges(dra_vocabulary *v, const found_merge *merge, size_t n)
{
    dra_tokenizer   *t = v->t;
    const dra_status st = dra_vocabulary_merges(v, n);
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        const dra_merge_rule m = merge[i].rule;
        t->merge[t->merges++] = m;
        *dra_pairs_find(&t->pairs, m.left, m.right) = (dra_pair){m.left, m.right, merge[i].rank,
                                                                 m.id};
    }
    return st;
}

dra_status dra_gguf_scores_read(dra_vocabulary *v, const json_t *tokens, const json_t *types,
                                const json_t *scores)
{
    reader     r = {.v = v, .tokens = tokens, .types = types};
    size_t     n = 0;
    scored    *token = malloc(((size_t)v->t->size + 1) * sizeof *token);
    dra_status st = token ? rank_tokens(&r, scores, token, &n) : dra_vocabulary_no_memory(v);
    for (int fill = 0; fill < 2 && st == DRA_OK; fill++) {
        if (fill && !(r.merge = malloc((r.n + 1) * sizeof *r.merge)))
            st = dra_vocabulary_no_memory(v);
        r.n = 0;
        for (size_t i = 0; i < n && st == DRA_OK; i++) find_merges(&r, token[i].id, token[i].rank);
    }
    if (st == DRA_OK) qsort(r.merge, r.n, sizeof *r.merge, by_rank);
    if (st == DRA_OK) st = keep_merges(v, r.merge, r.n);
    v->t->how.by_score = true;
    free(r.merge);
    free(token);
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The groups of merges that make one token each, in their order. */
static bool order_tokens(const dra_tokenizer *t, int32_t *order)
{
    int32_t groups = 0;
    for (int32_t id = 0; id < t->size; id++) order[id] = -1;
    for (size_t i = 0; i < t->merges; i++) {
        const int32_t id = t->merge[i].id;
        if (i && t->merge[i - 1].id == id) continue;
        if (order[id] >= 0) return false;
        order[id] = groups++;
    }
    for (int32_t id = 0; id < t->size; id++)
        if (order[id] < 0) order[id] = groups++;
    return true;
}

dra_status dra_gguf_scores_put(const dra_tokenizer *t, int64_t vocab, dra_json *j, json_t *pairs,
                               dra_error *err)
{
    json_t    *scores = dra_json_array(j);
    int32_t   *order = malloc((size_t)t->size * sizeof *order);
    const bool fits = order && order_tokens(t, order);
    for (int64_t id = 0; id < vocab && fits; id++) {
        const double score = id < t->size ? -(double)order[id] : -(double)id;
        dra_json_append(j, scores, dra_json_real(j, score));
    }
    dra_json_set(j, pairs, KEY("scores"), scores);
    const bool room = order;
    free(order);
    if (fits) return DRA_OK;
    return room ? dra_fail(err, DRA_ERR_VALUE,
                           "gguf: the merges of the tokenizer make a token at several ranks, "
                           "expected one score for each token")
                : dra_fail(err, DRA_ERR_MEMORY, "gguf: out of memory");
}
