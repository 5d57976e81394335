/* Micro-kernels in plain C: the oracle of every faster level. Sums run in LANES partial sums, an
 * order fixed by the length, which the compiler can vectorise without reordering anything. */
#include "device/simd.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

static dra_real fold(const dra_real *lane)
{
    dra_real s[LANES];
    memcpy(s, lane, sizeof s);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
}

static dra_real dot(int64_t n, const dra_real *a, const dra_real *b)
{
    dra_real lane[LANES] = {0};
    int64_t  i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; i++, j++) lane[j] += a[i] * b[i];
    return fold(lane);
}

static dra_real sum(int64_t n, const dra_real *x)
{
    dra_real lane[LANES] = {0};
    int64_t  i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += x[i + j];
    for (int j = 0; i < n; i++, j++) lane[j] += x[i];
    return fold(lane);
}

static dra_real max(int64_t n, const dra_real *x)
{
    dra_real m = -(dra_real)INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > m || x[i] != x[i]) m = x[i]; /* a NaN stays: nothing is greater than it */
    return m;
}

static dra_real exp_sum(int64_t n, const dra_real *x, dra_real m, dra_real *y)
{
    for (int64_t i = 0; i < n; i++)
#ifdef DRA_REAL_DOUBLE
        y[i] = exp(x[i] - m);
#else
        y[i] = expf(x[i] - m);
#endif
    return sum(n, y);
}

static void scale(int64_t n, dra_real s, dra_real *x)
{
    for (int64_t i = 0; i < n; i++) x[i] *= s;
}

static void axpy(int64_t n, dra_real s, const dra_real *x, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] += s * x[i];
}

/* ---- rows of results ------------------------------------------------------------------------- */

static void add(int64_t n, const dra_real *a, const dra_real *b, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void sub(int64_t n, const dra_real *a, const dra_real *b, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = a[i] - b[i];
}

static void mul(int64_t n, const dra_real *a, const dra_real *b, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

static void add_mul(int64_t n, const dra_real *a, const dra_real *b, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] += a[i] * b[i];
}

static void affine(int64_t n, dra_real s, dra_real t, const dra_real *x, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = s * x[i] + t;
}

static void center(int64_t n, const dra_real *x, dra_real c, dra_real rest, dra_real r, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - c - rest) * r;
}

static void combine(int64_t n, dra_real a, const dra_real *x, dra_real b, const dra_real *z,
                    dra_real c, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = a * (x[i] - c - b * z[i]);
}

static dra_real moments(int64_t n, const dra_real *x, dra_real c, dra_real *squares)
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

static void adamw(int64_t n, const dra_adamw_step *f, const dra_real *dp, const dra_real *p,
                  const dra_real *m, const dra_real *v, dra_real *p_out, dra_real *m_out,
                  dra_real *v_out)
{
    for (int64_t i = 0; i < n; i++) {
        const dra_real d = f->s * dp[i];
        const dra_real m_new = f->b1 * m[i] + f->new1 * d;
        const dra_real v_new = f->b2 * v[i] + f->new2 * d * d;
        const dra_real root = (dra_real)sqrt((double)(v_new * f->fix2));
        const dra_real way = m_new * f->fix1 / (root + f->eps);
        const dra_real p_new = p[i] - f->rate * (f->decay * p[i] + way);
        if (p_out) p_out[i] = p_new;
        if (m_out) m_out[i] = m_new;
        if (v_out) v_out[i] = v_new;
    }
}

/* ---- gemm: pack panels of A (ROWS wide) and B (COLS wide), multiply them in registers -------- */

enum { ROWS = 4, COLS = 8, DEPTH = 128, PANELS = 16 }; /* B: PANELS * COLS columns at a time */

/* panel[k][i] = x[i * step + k * depth_step], zeros from n on. */
static void pack(int width, int64_t n, int64_t depth, const dra_real *x, int64_t step,
                 int64_t depth_step, dra_real *panel)
{
    for (int64_t k = 0; k < depth; k++)
        for (int i = 0; i < width; i++)
            panel[k * width + i] = i < n ? x[i * step + k * depth_step] : 0;
}

static void multiply_panels(int64_t depth, const dra_real *a, const dra_real *b,
                            dra_real acc[ROWS][COLS])
{
    for (int64_t k = 0; k < depth; k++, a += ROWS, b += COLS)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++) acc[i][j] += a[i] * b[j];
}

static void store(const dra_gemm *g, int64_t row, int64_t col, bool add,
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
    dra_real   b[PANELS * COLS * DEPTH], a[ROWS * DEPTH];
    const bool add = g->accumulate || k0 > 0;
    for (int64_t j = 0; j < cols; j += COLS)
        pack(COLS, cols - j, depth, g->b + k0 * g->b_row + (col + j) * g->b_col, g->b_col, g->b_row,
             b + j * DEPTH);
    for (int64_t i = 0; i < g->M; i += ROWS) {
        pack(ROWS, g->M - i, depth, g->a + i * g->a_row + k0 * g->a_col, g->a_row, g->a_col, a);
        for (int64_t j = 0; j < cols; j += COLS) {
            dra_real acc[ROWS][COLS] = {{0}};
            multiply_panels(depth, a, b + j * DEPTH, acc);
            store(g, i, col + j, add, (const dra_real(*)[COLS])acc);
        }
    }
}

static void gemm(const dra_gemm *g)
{
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
                               .dot = dot,
                               .sum = sum,
                               .max = max,
                               .exp_sum = exp_sum,
                               .scale = scale,
                               .axpy = axpy,
                               .add = add,
                               .sub = sub,
                               .mul = mul,
                               .add_mul = add_mul,
                               .affine = affine,
                               .center = center,
                               .combine = combine,
                               .moments = moments,
                               .adamw = adamw,
                               .gemm = gemm};
