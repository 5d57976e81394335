/* Trials of modules: outputs, final state and gradients of
 *   L = sum y u + sum s us,   s the final state,
 * read whole or in any chunks from any start state; what the harness of mixers compares. */
#ifndef DRA_TESTS_TRIAL_H
#define DRA_TESTS_TRIAL_H

#include "check.h"
#include "dra/memory.h"
#include "sequence/states.h"

typedef struct trial {
    const dra_module *module;
    dra_device       *device;
    int64_t           B, T, C;
    const int32_t    *mark;  /* (B, T) or NULL */
    const dra_real   *x, *u; /* (B, T, C) */
    dra_real *const  *param;
    const dra_states *start;
    bool              fresh; /* leave out the start state, which then must be the initial one */
    /* Upstream of element k of state i of row b, counted over what is live; NULL: 0. */
    double (*us)(const void *user, int i, int64_t b, int64_t k);
    const void *user;
    double      equal; /* what counts as equal, see docs/testing.md; 0: as of one mixer */
} trial;

typedef struct outcome {
    double      L;
    dra_real   *y, *dx; /* (B, T, C) */
    dra_real  **dparam;
    dra_real  **dstart; /* (B, live) of each state: as many as the start has, row after row */
    dra_states *final;  /* NULL for a fresh trial */
} outcome;

/* Reads in chunks of these lengths, which add up to T; n = 0: whole. */
void trial_run(const trial *t, int n, const int64_t *chunk, outcome *out);
void outcome_free(const trial *t, outcome *out);

/* What gradients may differ by where values may by `most`. On CUDA another cut adds up in another
 * order, which shows in sums over all tokens that cancel. */
static inline double equal_gradients(double most) { return check_cuda() ? 10 * most : most; }
/* Largest |a - b| / max |b| over y, state and all gradients, with the tensor's name; same: bits of
 * y and state. */
typedef struct outcome_difference {
    double value, gradient;
    char   where[80];
    bool   same;
} outcome_difference;

outcome_difference outcome_compare(const trial *t, const outcome *a, const outcome *b);

/* Over the largest of b, or `least` if that is more. */
double relative_difference(int64_t n, const dra_real *a, const dra_real *b, double least);
/* Puts the numbers of tokens into a program that has no session. */
void   put_extents(dra_buffers *b, const dra_extents *e, bool marked);
size_t live_elements(const dra_states *s, int i); /* of state i over all rows */

#endif
