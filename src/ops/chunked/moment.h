/* What the forward and the backward op of moments share: see moment.c. */
#ifndef DRA_SRC_OPS_CHUNKED_MOMENT_H
#define DRA_SRC_OPS_CHUNKED_MOMENT_H

#include "ops/chunked/chunk.h"

/* A = (q k^T) o D and, where normalised, den[t] = what y is divided by; 1 at pads. */
void dra_moment_weights(const dra_chunk *k, const dra_moment_attr *a, const dra_decay *d, int64_t F,
                        dra_matrix_block q, dra_matrix_block keys, const real *z, real *A,
                        real *den);

extern const dra_op dra_op_moment_back;

#endif
