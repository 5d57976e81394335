/* The micro-kernels: few general loops that make everything fast, one table for each level of
 * instructions. Row lengths are any; pointers need no alignment. */
#ifndef DRA_SRC_SIMD_H
#define DRA_SRC_SIMD_H

#include "device/caches.h"
#include "dra/base.h"

/* Each element of c is a chain of multiply-adds for every 128 packed elements of k, and the sum of
 * these chains in their order, whatever else is computed: so k can be cut between chains. A packed
 * element is an element or, with bf16, a pair where a level multiplies pairs. */
enum { DRA_CHAIN = 128 };

/* An operand of a product in bf16 that was packed ahead, by dra_simd.pack_rows or pack_columns: a
 * line of it (a row of A, a column of B) has pack_depth / 2 floats in every block of k. */
typedef struct dra_packed {
    const float *at;   /* NULL: it was not */
    int64_t      step; /* floats from block to block of k: those of all lines */
} dra_packed;

enum { DRA_PACKED_LINES = 32 }; /* parts of packed operands begin and end at multiples of it */

/* C (M, N) (+)= A (M, K) B (K, N), any strides in A and B, rows of C contiguous. The order of the
 * sum over K depends on K and the precision alone, so a row of C does not depend on M or N. */
typedef struct dra_gemm {
    int64_t     M, N, K;
    const void *a;
    int64_t     a_row, a_col;
    const void *b;
    int64_t     b_row, b_col;
    dra_real   *c;
    int64_t     c_row;
    bool        accumulate;
    bool        bf16;           /* both operands are rounded to bf16, sums stay real */
    dra_dtype   a_type, b_type; /* bf16, f16, b also quantised, or else (also 0) real */
    int64_t     b_first;        /* quantised: b is the start of a block, this the element of it */
    dra_packed  a_packed, b_packed;
    bool q8; /* a is rounded to blocks of 8 bits where b is quantised, see dra_gemm_rounds() */
} dra_gemm;

/* Whether rows of A are rounded: B has blocks of 32 along its lines, and nothing else of it is
 * asked for. It does not depend on M or N. */
static inline bool dra_gemm_rounds(const dra_gemm *g)
{
    return g->q8 && g->b_type >= DRA_Q4_0 && g->b_type <= DRA_Q8_0 && g->b_row == 1 &&
           g->b_col % 32 == 0 && g->b_first == 0 && g->K > 0 && g->K % 32 == 0 &&
           (g->a_type == 0 || g->a_type == DRA_REAL);
}

/* Pointwise functions, which a level may have as one fast pass. A result depends on its element
 * alone, never on its place in the row. */
typedef enum dra_pointwise_fn {
#define DRA_UNARY(vectors, NAME, name, formula) DRA_MAP_##NAME,
#include "device/functions.def"
#undef DRA_UNARY
    DRA_MAP_COUNT
} dra_pointwise_fn;

typedef enum dra_level {
    DRA_LEVEL_REF, /* plain C */
    DRA_LEVEL_AVX2,
    DRA_LEVEL_AVX512,
    DRA_LEVEL_AVX512BF16,
    DRA_LEVEL_AVX512AMX, /* products of bf16 on tiles, all else that of AVX512BF16 */
    DRA_LEVEL_NEON
} dra_level;

typedef struct dra_simd {
    const char *name;
    dra_level   level;
    dra_real (*dot)(int64_t n, const dra_real *a, const dra_real *b);
    dra_real (*sum)(int64_t n, const dra_real *x);
    dra_real (*max)(int64_t n, const dra_real *x); /* -INFINITY for n = 0; NaN if any is NaN */
    /* y = e^(x - m), returns the sum; y may be x; exactly 0 for arguments far below. An element of
     * y depends on x - m alone. */
    dra_real (*exp_sum)(int64_t n, const dra_real *x, dra_real m, dra_real *y);
    /* The same of s x; exp_sum() is the one with s = 1, bit for bit. */
    dra_real (*exp_scaled)(int64_t n, const dra_real *x, dra_real s, dra_real m, dra_real *y);
    void (*scale)(int64_t n, dra_real s, dra_real *x);                   /* x *= s   */
    void (*axpy)(int64_t n, dra_real s, const dra_real *x, dra_real *y); /* y += s x */

    /* Rows of results; y may be any of the inputs. */
    void (*add)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    void (*sub)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    void (*mul)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    /* y += every row of x (rows, n), one after the other; rows are `row` apart. */
    void (*add_rows)(int64_t rows, int64_t n, const dra_real *x, int64_t row, dra_real *y);
    void (*affine)(int64_t n, dra_real s, dra_real t, const dra_real *x, dra_real *y); /* s x + t */
    void (*center)(int64_t n, const dra_real *x, dra_real c, dra_real rest, dra_real r,
                   dra_real *y); /* ((x - c) - rest) r */
    void (*combine)(int64_t n, dra_real a, const dra_real *x, dra_real b, const dra_real *z,
                    dra_real c, dra_real *y); /* a (x - c - b z) */
    /* Sum of x - c, and of its squares. */
    dra_real (*moments)(int64_t n, const dra_real *x, dra_real c, dra_real *squares);
    /* ln sum e^(x - m), m the largest element: 0 or more, NaN if m is not finite. */
    dra_real (*log_sum)(int64_t n, const dra_real *x, dra_real *m);
    /* Rows of n > 0, a may be s; lse = ln sum e^s, or NULL. */
    void (*softmax_rows)(int64_t rows, int64_t n, const dra_real *s, dra_real *a, dra_real *lse);
    /* NULL: the op's own scalar formula serves. */
    void (*map[DRA_MAP_COUNT])(int64_t n, const dra_real *x, dra_real *y);
    void (*gemm)(const dra_gemm *g);
    /* Packs the rows of A or the columns of B for products in bf16, so that several tiles of C that
     * read them need not: elements of k in a block; 0: this level never does. `to` has room for a
     * multiple of DRA_PACKED_LINES lines and holds the first block of k. */
    int64_t pack_depth;
    void (*pack_rows)(const dra_gemm *g, float *to, int64_t step);
    void (*pack_columns)(const dra_gemm *g, float *to, int64_t step);
    dra_caches caches; /* of the device that has this table; empty in those of the levels */
} dra_simd;

/* The tables of each level of this build, whatever the processor: DRA_LEVELS(x) are x_ref, ... to
 * declare, DRA_BY_LEVEL(x) their addresses by dra_level. Loops that belong to one op stand with it
 * (src/ops/<family>_loops.h), in tables of their own that are made the same way. */
#if defined(__x86_64__) && !defined(DRA_REAL_DOUBLE)
#define DRA_LEVELS(x) x##_ref, x##_avx2, x##_avx512, x##_avx512bf16
#define DRA_BY_LEVEL(x)                                                                            \
    {                                                                                              \
        [DRA_LEVEL_REF] = &x##_ref, [DRA_LEVEL_AVX2] = &x##_avx2,                                  \
        [DRA_LEVEL_AVX512] = &x##_avx512, [DRA_LEVEL_AVX512BF16] = &x##_avx512bf16,                \
        [DRA_LEVEL_AVX512AMX] = &x##_avx512bf16                                                    \
    }
#elif defined(__aarch64__) && !defined(DRA_REAL_DOUBLE)
#define DRA_LEVELS(x) x##_ref, x##_neon
#define DRA_BY_LEVEL(x)                                                                            \
    {                                                                                              \
        [DRA_LEVEL_REF] = &x##_ref, [DRA_LEVEL_NEON] = &x##_neon                                   \
    }
#else
#define DRA_LEVELS(x) x##_ref
#define DRA_BY_LEVEL(x)                                                                            \
    {                                                                                              \
        [DRA_LEVEL_REF] = &x##_ref                                                                 \
    }
#endif

extern const dra_simd DRA_LEVELS(dra_simd);
#if defined(__x86_64__) && !defined(DRA_REAL_DOUBLE)
extern const dra_simd dra_simd_avx512amx;
#endif

/* The levels this build and processor have, best first, the reference last; NULL at the end.
 * Levels other than the reference exist for float alone. */
const dra_simd *const *dra_simd_levels(void);

#endif
