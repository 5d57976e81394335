/* What norm.c and norm_gain.c share. */
#ifndef DRA_SRC_OPS_NORM_NORM_H
#define DRA_SRC_OPS_NORM_NORM_H

#include "ops/rows.h"

typedef struct dra_moments { /* of a row: its mean is c + rest, y = (x - c - rest) r */
    real c, rest, r;
    real squares; /* sum((x - mean)^2) */
} dra_moments;

dra_moments dra_norm_moments(const dra_simd *simd, const dra_norm_attr *a, int64_t C,
                             const real *x);

/* y = norm(x) without gain; checked before. */
dra_value dra_norm(dra_graph *g, const dra_norm_attr *a, dra_value x);

/* y = norm(x) w + b; layer and RMS only; w (C), b (C) or none; checked before. */
dra_value dra_norm_gain(dra_graph *g, const dra_norm_attr *a, dra_value x, dra_value w,
                        dra_value b);

#endif
