/* What the forward and the backward op of the delta rule share: see delta.c. */
#ifndef DRA_SRC_OPS_CHUNKED_DELTA_H
#define DRA_SRC_OPS_CHUNKED_DELTA_H

#include "ops/chunked/chunk.h"

/* The strengths of the chunk's writes from b (B, T, H), 0 at pads. */
void dra_delta_strengths(const dra_chunk *k, const dra_tensor *b, real *to);

/* A = (a b^T) o D below the diagonal, 0 on it: rows of width W. */
void dra_delta_overlaps(const dra_chunk *k, const dra_decay *d, int64_t W, dra_matrix_block a,
                        dra_matrix_block b, real *A);

/* N (n, n) strictly lower: x = x + N x solved from the first row to the last, and x = x + N^T x
 * from the last to the first. */
void dra_delta_solve(const dra_simd *simd, int64_t n, int64_t E, dra_matrix_block N,
                     dra_matrix_block x);
void dra_delta_solve_back(const dra_simd *simd, int64_t n, int64_t E, dra_matrix_block N,
                          dra_matrix_block x);

extern const dra_op dra_op_delta_back;

#endif
