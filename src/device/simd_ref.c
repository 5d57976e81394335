/* Micro-kernels in plain C: the oracle of every faster level. */
#include "device/simd.h"

#include <float.h>

#include "base/quant.h"
#include "device/simd_plain.h"

static dra_real ref_sum(int64_t n, const dra_real *x)
{
    dra_real lane[LANES] = {0};
    int64_t  i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += x[i + j];
    for (int j = 0; i < n; i++, j++) lane[j] += x[i];
    return fold(lane);
}

static dra_real ref_max(int64_t n, const dra_real *x)
{
    dra_real m = -(dra_real)INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > m || x[i] != x[i]) m = x[i]; /* a NaN stays: nothing is greater than it */
    return m;
}

static dra_real exp_scaled(int64_t n, const dra_real *x, dra_real s, dra_real m, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = exponential(s * x[i] - m);
    return ref_sum(n, y);
}

static dra_real exp_sum(int64_t n, const dra_real *x, dra_real m, dra_real *y)
{
    return exp_scaled(n, x, 1, m, y);
}

static dra_real log_sum(int64_t n, const dra_real *x, dra_real *m)
{
    enum { PART = 512 };
    dra_real part[PART], s = 0;
    *m = ref_max(n, x);
    for (int64_t i = 0; i < n; i += PART)
        s += exp_sum(n - i < PART ? n - i : PART, x + i, *m, part);
    return log(s);
}

static void ref_scale(int64_t n, dra_real s, dra_real *x)
{
    for (int64_t i = 0; i < n; i++) x[i] *= s;
}

/* ---- rows of results ------------------------------------------------------------------------- */

static void ref_add(int64_t n, const dra_real *a, const dra_real *b, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void ref_sub(int64_t n, const dra_real *a, const dra_real *b, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = a[i] - b[i];
}

static void ref_mul(int64_t n, const dra_real *a, const dra_real *b, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

static void add_rows(int64_t rows, int64_t n, const dra_real *x, int64_t row, dra_real *y)
{
    for (int64_t r = 0; r < rows; r++) ref_add(n, y, x + r * row, y);
}

static void ref_affine(int64_t n, dra_real s, dra_real t, const dra_real *x, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = s * x[i] + t;
}

static void ref_center(int64_t n, const dra_real *x, dra_real c, dra_real rest, dra_real r,
                       dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - c - rest) * r;
}

static void ref_combine(int64_t n, dra_real a, const dra_real *x, dra_real b, const dra_real *z,
                        dra_real c, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = a * (x[i] - c - b * z[i]);
}

static dra_real ref_moments(int64_t n, const dra_real *x, dra_real c, dra_real *squares)
{
    dra_real first[LANES] = {0}, second[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        const dra_real d = x[i] - c;
        first[i % LANES] += d;
        second[i % LANES] += d * d;
    }
    *squares = fold(second);
    return fold(first);
}

static void softmax_rows(int64_t rows, int64_t n, const dra_real *s, dra_real *a, dra_real *lse)
{
    for (int64_t r = 0; r < rows; r++, s += n, a += n) {
        const dra_real top = ref_max(n, s), total = exp_sum(n, s, top, a);
        ref_scale(n, 1 / total, a);
        if (lse) lse[r] = top + (dra_real)log((double)total);
    }
}

/* ---- gemm: pack panels of A (ROWS wide) and B (COLS wide), multiply them in registers -------- */

/* B: PANELS * COLS columns at a time */
enum { ROWS = 4, COLS = 8, DEPTH = DRA_CHAIN, PANELS = 16 };

typedef struct operand { /* lines along k: the rows of A, the columns of B */
    const void *at;
    int64_t     line, k; /* steps, in elements */
    dra_dtype   dtype;
    bool        round; /* to bf16 */
    int64_t     first; /* quantised: the element of the first block that is meant */
} operand;

static dra_real operand_element(const operand *o, int64_t i)
{
    dra_real x;
    switch (o->dtype) {
    case DRA_BF16: x = (dra_real)dra_bf16_to_f32(((const uint16_t *)o->at)[i]); break;
    case DRA_F16: x = (dra_real)dra_f16_to_f32(((const uint16_t *)o->at)[i]); break;
    default:
        x = dra_is_quantised(o->dtype) ? (dra_real)dra_dequantised(o->dtype, o->at, o->first + i)
                                       : ((const dra_real *)o->at)[i];
    }
    return o->round ? (dra_real)dra_bf16_to_f32(dra_f32_to_bf16(dra_round_to_odd((double)x))) : x;
}

/* panel[k][i] = element k0 + k of line `first` + i, zeros from n lines on. */
static void pack_panel(int width, const operand *o, int64_t first, int64_t n, int64_t k0,
                       int64_t depth, dra_real *panel)
{
    for (int64_t k = 0; k < depth; k++)
        for (int i = 0; i < width; i++)
            panel[k * width + i] = i < n
                                       ? operand_element(o, (first + i) * o->line + (k0 + k) * o->k)
                                       : 0;
}

static void multiply_panels(int64_t depth, const dra_real *a, const dra_real *b,
                            dra_real acc[ROWS][COLS])
{
    for (int64_t k = 0; k < depth; k++, a += ROWS, b += COLS)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++) acc[i][j] += a[i] * b[j];
}

static void store_tile(const dra_gemm *g, int64_t row, int64_t col, bool add,
                       const dra_real acc[ROWS][COLS])
{
    for (int64_t i = 0; i < ROWS && row + i < g->M; i++) {
        dra_real *c = g->c + (row + i) * g->c_row + col;
        for (int64_t j = 0; j < COLS && col + j < g->N; j++)
            c[j] = add ? c[j] + acc[i][j] : acc[i][j];
    }
}

/* One block of columns and depth: all rows of A against the packed panels of B. */
static void gemm_block(const dra_gemm *g, int64_t col, int64_t cols, int64_t k0, int64_t depth)
{
    dra_real      b[PANELS * COLS * DEPTH], a[ROWS * DEPTH];
    const operand rows = {g->a, g->a_row, g->a_col, g->a_type, g->bf16, 0};
    const operand columns = {g->b, g->b_col, g->b_row, g->b_type, g->bf16, g->b_first};
    const bool    add = g->accumulate || k0 > 0;
    for (int64_t j = 0; j < cols; j += COLS)
        pack_panel(COLS, &columns, col + j, cols - j, k0, depth, b + j * DEPTH);
    for (int64_t i = 0; i < g->M; i += ROWS) {
        pack_panel(ROWS, &rows, i, g->M - i, k0, depth, a);
        for (int64_t j = 0; j < cols; j += COLS) {
            dra_real acc[ROWS][COLS] = {{0}};
            multiply_panels(depth, a, b + j * DEPTH, acc);
            store_tile(g, i, col + j, add, (const dra_real(*)[COLS])acc);
        }
    }
}

/* ---- activations in blocks of 8 bits: the formulas of gemm_q8.h ------------------------------ */

enum { BLOCK = 32 };

typedef struct rounded { /* 32 activations: d q */
    int      q[BLOCK];
    dra_real d;
} rounded;

static rounded round_block(const dra_real *x, int64_t step)
{
    rounded  r;
    dra_real most = 0, not_finite = 0;
    for (int e = 0; e < BLOCK; e++) {
        most = fabs(x[e * step]) > most ? fabs(x[e * step]) : most;
        not_finite += x[e * step] * 0;
    }
    r.d = most / 127 + not_finite;
    for (int e = 0; e < BLOCK; e++)
        r.q[e] = r.d >= (dra_real)FLT_MIN ? (int)rint(x[e * step] / r.d) : 0;
    return r;
}

/* Of numbers u d + m: d (sum of q u) and m (sum of q), both times the scale of the activations. */
static dra_real block_product(const rounded *a, dra_dtype t, const unsigned char *b)
{
    const bool minimum = t == DRA_Q4_1 || t == DRA_Q5_1;
    int        x[BLOCK];
    uint16_t   head[2] = {0};
    int        dot = 0, sum = 0;
    memcpy(head, b, minimum ? 4 : 2);
    const float d = dra_f16_to_f32(head[0]), m = minimum ? dra_f16_to_f32(head[1]) : 0;
    dra_quantised_integers(t, b, x);
    for (int e = 0; e < BLOCK; e++) {
        dot += a->q[e] * x[e];
        sum += a->q[e];
    }
    return a->d * (dra_real)d * (dra_real)dot + (dra_real)m * (a->d * (dra_real)sum);
}

static void gemm_q8(const dra_gemm *g)
{
    for (int64_t i = 0; i < g->M; i++)
        for (int64_t j = 0; j < g->N; j++) {
            dra_real *c = g->c + i * g->c_row + j, sum = 0;
            for (int64_t k = 0; k < g->K; k += BLOCK) {
                const dra_real *x = (const dra_real *)g->a + i * g->a_row + k * g->a_col;
                const rounded   a = round_block(x, g->a_col);
                const size_t    at = (size_t)dra_elements_bytes(g->b_type, j * g->b_col + k);
                sum += block_product(&a, g->b_type, (const unsigned char *)g->b + at);
            }
            *c = g->accumulate ? *c + sum : sum;
        }
}

static void ref_gemm(const dra_gemm *g)
{
    if (dra_gemm_rounds(g)) {
        gemm_q8(g);
        return;
    }
    if (g->K == 0 && !g->accumulate)
        for (int64_t i = 0; i < g->M; i++)
            for (int64_t j = 0; j < g->N; j++) g->c[i * g->c_row + j] = 0;
    for (int64_t col = 0; col < g->N; col += PANELS * COLS) {
        const int64_t rest = g->N - col, cols = rest < PANELS * COLS ? rest : PANELS * COLS;
        for (int64_t k = 0; k < g->K; k += DEPTH)
            gemm_block(g, col, cols, k, g->K - k < DEPTH ? g->K - k : DEPTH);
    }
}

const dra_simd dra_simd_ref = {.name = "ref",
                               .level = DRA_LEVEL_REF,
                               .dot = dot,
                               .sum = ref_sum,
                               .max = ref_max,
                               .exp_sum = exp_sum,
                               .exp_scaled = exp_scaled,
                               .scale = ref_scale,
                               .axpy = axpy,
                               .add = ref_add,
                               .sub = ref_sub,
                               .mul = ref_mul,
                               .add_rows = add_rows,
                               .affine = ref_affine,
                               .center = ref_center,
                               .combine = ref_combine,
                               .moments = ref_moments,
                               .log_sum = log_sum,
                               .softmax_rows = softmax_rows,
                               .gemm = ref_gemm};
