/* What the forward and the backward op of the delta rule share: see delta.c. */
#ifndef DRA_SRC_OPS_DELTA_H
#define DRA_SRC_OPS_DELTA_H

#include "ops/chunk.h"

typedef struct dra_delta_attr { /* places among the inputs; 0: it is not there */
    int l, mark;
    int S; /* the first state; backward: the gradient of the last one */
} dra_delta_attr;

/* Inputs of the backward op before its options. */
enum {
    DRA_DELTA_BACK_Q,
    DRA_DELTA_BACK_K,
    DRA_DELTA_BACK_B,
    DRA_DELTA_BACK_MISS,
    DRA_DELTA_BACK_BORDERS,
    DRA_DELTA_BACK_DY,
    DRA_DELTA_BACK_OPTIONS
};
/* And its outputs. */
enum {
    DRA_DELTA_DQ,
    DRA_DELTA_DK,
    DRA_DELTA_DV,
    DRA_DELTA_DB,
    DRA_DELTA_DL,
    DRA_DELTA_DS,
    DRA_DELTA_BACK_OUTPUTS
};

/* The strengths of the chunk's writes from b (B, T, H), 0 at pads. */
void dra_delta_strengths(const dra_chunk *k, const dra_tensor *b, real *to);

/* A = (a b^T) o D below the diagonal, 0 on it: rows of width W. */
void dra_delta_overlaps(const dra_chunk *k, const dra_decay *d, int64_t W, dra_block a, dra_block b,
                        real *A);

/* N (n, n) strictly lower: x = x + N x solved from the first row to the last, and x = x + N^T x
 * from the last to the first. */
void dra_delta_solve(const dra_simd *simd, int64_t n, int64_t E, dra_block N, dra_block x);
void dra_delta_solve_back(const dra_simd *simd, int64_t n, int64_t E, dra_block N, dra_block x);

extern const dra_op dra_op_delta_back;

#endif
