/* Derivatives of a loss along one direction of a parameter. */
#ifndef DRA_TESTS_MODEL_NUDGE_H
#define DRA_TESTS_MODEL_NUDGE_H

#include <math.h>

#include "dra/train.h"

static inline double direction(int64_t k) { return cos(3.0 * (double)k); }

/* The derivative that gradient i, of n numbers, stands for. */
static inline double along(dra_gradients *l, int i, int64_t n)
{
    const dra_real *g = dra_gradients_of(l, i);
    double          sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)g[k] * direction(k);
    return sum;
}

/* Moves weight i, of n numbers. */
static inline void nudge(dra_weights *w, int i, int64_t n, double step)
{
    dra_real *x = dra_weights_edit(w, i);
    for (int64_t k = 0; k < n; k++) x[k] += (dra_real)(step * direction(k));
}

#endif
