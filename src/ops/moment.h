/* What the forward and the backward op of moments share: see moment.c. */
#ifndef DRA_SRC_OPS_MOMENT_H
#define DRA_SRC_OPS_MOMENT_H

#include "ops/chunk.h"

enum { DRA_MOMENT_Q, DRA_MOMENT_K, DRA_MOMENT_V, DRA_MOMENT_OPTIONS };
/* Outputs of the backward op. */
enum {
    DRA_MOMENT_DQ,
    DRA_MOMENT_DK,
    DRA_MOMENT_DV,
    DRA_MOMENT_DL,
    DRA_MOMENT_DS,
    DRA_MOMENT_DZ,
    DRA_MOMENT_BACK_OUTPUTS
};

typedef struct dra_moment_attr { /* places among the inputs; 0: it is not there */
    double eps, least;
    bool   normalise;
    int    l, mark;
    int    S, z;                      /* the first state; backward: gradients of the last one */
    int    dy, y, borders, z_borders; /* backward only */
} dra_moment_attr;

/* A = (q k^T) o D and, where normalised, den[t] = what y is divided by; 1 at pads. */
void dra_moment_weights(const dra_chunk *k, const dra_moment_attr *a, const dra_decay *d, int64_t F,
                        dra_block q, dra_block keys, const real *z, real *A, real *den);

extern const dra_op dra_op_moment_back;

#endif
