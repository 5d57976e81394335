/* What must hold for a grammar, for harnesses: a text that follows what is allowed byte by byte
 * matches all the way, and every state of it is the same by value; or a step is refused, since it
 * needs more moves than a step may. */
#ifndef DRA_TESTS_FUZZ_GRAMMARS_H
#define DRA_TESTS_FUZZ_GRAMMARS_H

#include "harness.h"
#include "generate/grammar/grammar.h"

enum { BYTES = 60 };

/* Whether a state is the same after it went through a value. */
static inline void grammar_check_value(const dra_grammar *g, dra_matcher *m, int32_t state)
{
    dra_grammar_state *s = NULL, *again = NULL;
    dra_matcher       *other = NULL;
    dra_error          err = {0};
    if (dra_matcher_leave(m, state, &s, &err) != DRA_OK) broken(err.text);
    if (dra_matcher_enter(m, s) != state) broken("a state is another by its value");
    if (dra_matcher_create(g, &other, &err) != DRA_OK) broken(err.text);
    const int32_t there = dra_matcher_enter(other, s);
    if (there < 0 || dra_matcher_leave(other, there, &again, &err) != DRA_OK)
        broken("a value cannot be used elsewhere");
    if (again->n != s->n) broken("a value is another elsewhere");
    free(s);
    free(again);
    dra_matcher_destroy(other);
}

static inline int32_t grammar_step(dra_matcher *m, int32_t state, unsigned char byte)
{
    const int64_t before = dra_matcher_moves(m), most = dra_matcher_step_most(m);
    const int32_t to = dra_matcher_step(m, state, byte);
    const int64_t moves = dra_matcher_moves(m) - before;
    if (to != DRA_MATCH_FAILED && moves > most) broken("a step takes more moves than it may");
    if (to == DRA_MATCH_FAILED && moves <= most) broken("a step failed");
    return to;
}

/* What follows the bytes of a walk is refused when they are read again, in the same words. */
static inline void grammar_check_refusal(const dra_grammar *g, const dra_matcher *m,
                                         const char *bytes, size_t n)
{
    dra_error       err = {0}, again = {0};
    dra_grammar_fit fit;
    if (dra_matcher_why(m, &err) != DRA_ERR_VALUE) broken(err.text);
    expect_line(&err, "grammar: a byte needs more than");
    if (dra_grammar_match(g, bytes, n, &fit, &again) != err.code) broken("matches what is refused");
    if (strcmp(again.text, err.text) != 0) broken(again.text);
}

/* Follows any byte that may follow. */
static inline void grammar_walk(const dra_grammar *g)
{
    dra_matcher    *m = NULL;
    char            bytes[BYTES];
    dra_error       err = {0};
    dra_grammar_fit fit;
    size_t          n = 0;
    if (dra_matcher_create(g, &m, &err) != DRA_OK) broken(err.text);
    int32_t state = dra_matcher_enter(m, NULL);
    while (state >= 0 && n < BYTES && !dra_matcher_must_end(m, state)) {
        const uint32_t first = below(256);
        int32_t        to = DRA_MATCH_NOT;
        for (uint32_t k = 0; k < 256 && to == DRA_MATCH_NOT; k++) {
            bytes[n] = (char)(unsigned char)((first + k) % 256);
            to = grammar_step(m, state, (unsigned char)bytes[n]);
        }
        if (to == DRA_MATCH_NOT) break; /* a class without characters */
        state = to;
        n++;
        if (state >= 0 && n % 16 == 1) grammar_check_value(g, m, state);
    }
    if (state == DRA_MATCH_FAILED) {
        grammar_check_refusal(g, m, bytes, n);
    } else {
        if (dra_grammar_match(g, bytes, n, &fit, &err) != DRA_OK) broken(err.text);
        if (state >= 0 && fit == DRA_GRAMMAR_NOT) broken("what may follow does not match");
    }
    dra_matcher_destroy(m);
}

typedef dra_status (*grammar_reader)(const char *name, const char *text, size_t bytes,
                                     dra_grammar **out, dra_error *err);

static inline int grammar_try(grammar_reader read, const uint8_t *data, size_t bytes)
{
    dra_grammar     *g = NULL;
    dra_error        err = {0};
    char            *copy = exact_copy(data, bytes);
    const dra_status st = read("text", copy, bytes, &g, &err);
    free(copy);
    if ((st == DRA_OK) != (g != NULL)) broken("a status and a grammar that do not fit");
    if (st == DRA_OK)
        grammar_walk(g);
    else
        expect_line(&err, "text:");
    dra_grammar_destroy(g);
    return st == DRA_OK;
}

#endif
