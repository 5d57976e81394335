/* The micro-kernels: few loops that make everything fast. The table is filled with plain C first
 * and overlaid at device creation by what the processor has. Row lengths are any; pointers need
 * no alignment. */
#ifndef DRA_SRC_SIMD_H
#define DRA_SRC_SIMD_H

#include "dra/base.h"

/* C (M, N) (+)= A (M, K) B (K, N), any strides in A and B, rows of C contiguous. The order of the
 * sum over K depends on K alone, so a row of C does not depend on M or N. */
typedef struct dra_gemm {
    int64_t         M, N, K;
    const dra_real *a;
    int64_t         a_row, a_col;
    const dra_real *b;
    int64_t         b_row, b_col;
    dra_real       *c;
    int64_t         c_row;
    bool            accumulate;
} dra_gemm;

typedef struct dra_simd {
    const char *name;
    dra_real (*dot)(int64_t n, const dra_real *a, const dra_real *b);
    dra_real (*sum)(int64_t n, const dra_real *x);
    dra_real (*max)(int64_t n, const dra_real *x); /* -INFINITY for n = 0; NaN if any is NaN */
    /* y = e^(x - m), returns the sum; y may be x; exactly 0 for arguments far below. */
    dra_real (*exp_sum)(int64_t n, const dra_real *x, dra_real m, dra_real *y);
    void (*scale)(int64_t n, dra_real s, dra_real *x);                   /* x *= s      */
    void (*axpy)(int64_t n, dra_real s, const dra_real *x, dra_real *y); /* y += s x    */
    void (*gemm)(const dra_gemm *g);
} dra_simd;

extern const dra_simd dra_simd_ref;

#endif
