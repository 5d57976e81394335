/* Which tokens of a vocabulary may come next. Tokens are sorted by their bytes: those that begin
 * alike follow each other, and what they have in common is walked once. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/grammar/grammar.h"

enum {
    MOVES = 1 << 26
}; /* of a question, about a second; 50257 tokens in JSON take a thousandth */

struct dra_constraint {
    dra_matcher    *m;
    dra_token_text *token;  /* (n), in the order of their bytes */
    size_t         *shared; /* (n): bytes that each has in common with the one before it */
    size_t          n;
    int32_t        *state; /* (longest + 1): after each byte of the token at hand */
};

static int by_bytes(const void *a, const void *b)
{
    const dra_token_text *x = a, *y = b;
    const int             order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order != 0) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static size_t common_bytes(const dra_token_text *a, const dra_token_text *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Copies the tokens that have a text. */
static bool take_tokens(dra_constraint *c, size_t n, const dra_token_text *tokens)
{
    size_t longest = 0;
    c->token = malloc((n + 1) * sizeof *c->token);
    c->shared = calloc(n + 1, sizeof *c->shared);
    if (!c->token || !c->shared) return false;
    for (size_t i = 0; i < n; i++) {
        if (tokens[i].n == 0) continue;
        c->token[c->n++] = tokens[i];
        if (tokens[i].n > longest) longest = tokens[i].n;
    }
    qsort(c->token, c->n, sizeof *c->token, by_bytes);
    for (size_t i = 1; i < c->n; i++) c->shared[i] = common_bytes(&c->token[i - 1], &c->token[i]);
    c->state = calloc(longest + 1, sizeof *c->state);
    return c->state;
}

dra_status dra_constraint_create(const dra_grammar *g, size_t n, const dra_token_text *tokens,
                                 dra_constraint **out, dra_error *err)
{
    dra_constraint *c = calloc(1, sizeof *c);
    *out = NULL;
    dra_status st = DRA_OK;
    if (!c || !take_tokens(c, n, tokens))
        st = dra_fail(err, DRA_ERR_MEMORY, "grammar: out of memory");
    if (st == DRA_OK) st = dra_matcher_create(g, &c->m, err);
    if (st == DRA_OK)
        *out = c;
    else
        dra_constraint_destroy(c);
    return st;
}

void dra_constraint_destroy(dra_constraint *c)
{
    if (!c) return;
    dra_matcher_destroy(c->m);
    free(c->token);
    free(c->shared);
    free(c->state);
    free(c);
}

static dra_status enter_state(dra_constraint *c, const dra_grammar_state *s, int32_t *state,
                              dra_error *err)
{
    dra_matcher_ask(c->m, MOVES);
    *state = dra_matcher_enter(c->m, s);
    return *state == DRA_MATCH_FAILED ? dra_matcher_why(c->m, err) : DRA_OK;
}

dra_status dra_constraint_allow(dra_constraint *c, const dra_grammar_state *s, bool *allowed,
                                size_t *n, dra_error *err)
{
    size_t     depth = 0; /* bytes of the token at hand that may follow */
    dra_status st = enter_state(c, s, &c->state[0], err);
    *n = 0;
    for (size_t i = 0; i < c->n && st == DRA_OK && c->state[0] >= 0; i++) {
        const dra_token_text *t = &c->token[i];
        if (c->shared[i] > depth) continue; /* it begins as one that may not follow */
        for (depth = c->shared[i]; depth < t->n; depth++) {
            const int32_t to = dra_matcher_step(c->m, c->state[depth],
                                                (unsigned char)t->bytes[depth]);
            if (to == DRA_MATCH_FAILED) st = dra_matcher_why(c->m, err);
            if (to < 0) break;
            c->state[depth + 1] = to;
        }
        if (depth < t->n) continue;
        allowed[t->id] = true;
        (*n)++;
    }
    return st;
}

dra_status dra_constraint_end(dra_constraint *c, const dra_grammar_state *s, bool *may, bool *must,
                              dra_error *err)
{
    int32_t          state;
    const dra_status st = enter_state(c, s, &state, err);
    *may = *must = false;
    if (st != DRA_OK || state < 0) return st;
    *may = dra_matcher_may_end(c->m, state);
    *must = dra_matcher_must_end(c->m, state);
    return DRA_OK;
}

dra_status dra_constraint_advance(dra_constraint *c, dra_grammar_state **s, const char *bytes,
                                  size_t n, dra_error *err)
{
    dra_grammar_state *next = NULL;
    int32_t            state;
    dra_status         st = enter_state(c, *s, &state, err);
    for (size_t i = 0; i < n && st == DRA_OK && state >= 0; i++) {
        state = dra_matcher_step(c->m, state, (unsigned char)bytes[i]);
        if (state == DRA_MATCH_FAILED) st = dra_matcher_why(c->m, err);
    }
    if (st == DRA_OK && state < 0)
        st = dra_fail(err, DRA_ERR_VALUE, "grammar: no text has these bytes here");
    if (st == DRA_OK) st = dra_matcher_leave(c->m, state, &next, err);
    if (st != DRA_OK) return st;
    free(*s);
    *s = next;
    return DRA_OK;
}

dra_status dra_grammar_match(const dra_grammar *g, const char *text, size_t bytes,
                             dra_grammar_fit *out, dra_error *err)
{
    dra_matcher *m = NULL;
    *out = DRA_GRAMMAR_NOT;
    dra_status st = dra_matcher_create(g, &m, err);
    if (st != DRA_OK) return st;
    int32_t state = dra_matcher_enter(m, NULL);
    for (size_t i = 0; i < bytes && state >= 0; i++)
        state = dra_matcher_step(m, state, (unsigned char)text[i]);
    if (state == DRA_MATCH_FAILED) st = dra_matcher_why(m, err);
    if (state >= 0) *out = dra_matcher_may_end(m, state) ? DRA_GRAMMAR_WHOLE : DRA_GRAMMAR_PART;
    dra_matcher_destroy(m);
    return st;
}

/* ---- tokens of a tokenizer ------------------------------------------------------------------- */

const char *dra_token_piece(const dra_tokenizer *t, int32_t id, size_t *bytes)
{
    const char *piece = t ? dra_tokenizer_piece(t, id, bytes) : NULL;
    if (piece && !dra_tokenizer_is_special(t, id)) return piece;
    *bytes = 0;
    return "";
}

dra_status dra_constraint_open(const dra_grammar *g, const dra_tokenizer *t, dra_constraint **out,
                               dra_error *err)
{
    const int32_t   n = dra_tokenizer_size(t);
    dra_token_text *tokens = calloc((size_t)n + 1, sizeof *tokens);
    *out = NULL;
    if (!tokens) return dra_fail(err, DRA_ERR_MEMORY, "grammar: out of memory");
    for (int32_t id = 0; id < n; id++) {
        tokens[id].id = id;
        tokens[id].bytes = dra_token_piece(t, id, &tokens[id].n);
    }
    const dra_status st = dra_constraint_create(g, (size_t)n, tokens, out, err);
    free(tokens);
    return st;
}
