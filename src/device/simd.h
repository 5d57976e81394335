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

/* Pointwise functions a level may have as one fast pass; the formulas are those of
 * src/ops/unary.c. A result depends on its element alone, never on its place in the row. */
typedef enum dra_map {
    DRA_MAP_NONE,
    DRA_MAP_NEG,
    DRA_MAP_ABS,
    DRA_MAP_EXP,
    DRA_MAP_LOG,
    DRA_MAP_SQRT,
    DRA_MAP_RSQRT,
    DRA_MAP_SQUARE,
    DRA_MAP_RECIPROCAL,
    DRA_MAP_TANH,
    DRA_MAP_ERF,
    DRA_MAP_SIGMOID,
    DRA_MAP_SOFTPLUS,
    DRA_MAP_LOG_SIGMOID,
    DRA_MAP_RELU,
    DRA_MAP_RELU2,
    DRA_MAP_ELU,
    DRA_MAP_SILU,
    DRA_MAP_SILU_SLOPE,
    DRA_MAP_GELU,
    DRA_MAP_GELU_SLOPE,
    DRA_MAP_GELU_TANH,
    DRA_MAP_GELU_TANH_SLOPE,
    DRA_MAP_COUNT
} dra_map;

typedef struct dra_adamw_step { /* see src/ops/adamw.c */
    dra_real b1, new1, b2, new2, fix1, fix2, rate, s, eps, decay;
} dra_adamw_step;

typedef struct dra_simd {
    const char *name;
    dra_real (*dot)(int64_t n, const dra_real *a, const dra_real *b);
    dra_real (*sum)(int64_t n, const dra_real *x);
    dra_real (*max)(int64_t n, const dra_real *x); /* -INFINITY for n = 0; NaN if any is NaN */
    /* y = e^(x - m), returns the sum; y may be x; exactly 0 for arguments far below. An element of
     * y depends on x - m alone. */
    dra_real (*exp_sum)(int64_t n, const dra_real *x, dra_real m, dra_real *y);
    void (*scale)(int64_t n, dra_real s, dra_real *x);                   /* x *= s   */
    void (*axpy)(int64_t n, dra_real s, const dra_real *x, dra_real *y); /* y += s x */

    /* Rows of results; y may be any of the inputs. */
    void (*add)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    void (*sub)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    void (*mul)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    void (*add_mul)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y); /* y += a b */
    void (*affine)(int64_t n, dra_real s, dra_real t, const dra_real *x, dra_real *y); /* s x + t */
    void (*center)(int64_t n, const dra_real *x, dra_real c, dra_real rest, dra_real r,
                   dra_real *y); /* ((x - c) - rest) r */
    void (*combine)(int64_t n, dra_real a, const dra_real *x, dra_real b, const dra_real *z,
                    dra_real c, dra_real *y); /* a (x - c - b z) */
    /* Sum of x - c, and of its squares. */
    dra_real (*moments)(int64_t n, const dra_real *x, dra_real c, dra_real *squares);
    /* p, m, v become p', m', v'; an output may be NULL or the memory of its input. */
    void (*adamw)(int64_t n, const dra_adamw_step *f, const dra_real *dp, const dra_real *p,
                  const dra_real *m, const dra_real *v, dra_real *p_out, dra_real *m_out,
                  dra_real *v_out);

    /* NULL: the op's own scalar formula serves. */
    void (*map[DRA_MAP_COUNT])(int64_t n, const dra_real *x, dra_real *y);
    void (*gemm)(const dra_gemm *g);
} dra_simd;

extern const dra_simd dra_simd_ref;
extern const dra_simd dra_simd_avx2, dra_simd_avx512; /* x86-64 */
extern const dra_simd dra_simd_neon;                  /* 64-bit ARM */

/* The levels this build and processor have, best first, the reference last; NULL at the end.
 * Levels other than the reference exist for float alone. */
const dra_simd *const *dra_simd_levels(void);

#endif
