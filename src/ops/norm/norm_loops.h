/* The loops of a gradient through norm_gain over one row. */
#ifndef DRA_SRC_OPS_NORM_NORM_LOOPS_H
#define DRA_SRC_OPS_NORM_NORM_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

typedef struct dra_norm_row { /* n = (x - c - rest) r and t = dy w, see norm_gain.c */
    const dra_real *x, *dy, *w;
    dra_real       *dx; /* may be dy; NULL where it is not wanted */
    dra_real        c, rest, r;
} dra_norm_row;

typedef struct dra_norm_loops {
    /* dw += dy n and db += dy; returns sum t, and in *with_n sum t n. */
    dra_real (*sums)(int64_t n, const dra_norm_row *row, dra_real *dw, dra_real *db,
                     dra_real *with_n);
    void (*back)(int64_t n, const dra_norm_row *row, dra_real mean,
                 dra_real slope); /* dx = r (t - mean - slope n) */
} dra_norm_loops;

extern const dra_norm_loops DRA_LEVELS(dra_norm_loops);

/* Those of the level of these micro-kernels. */
const dra_norm_loops *dra_norm_loops_of(const dra_simd *simd);

#endif
