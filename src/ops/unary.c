/* Pointwise ops of one input. A row of the table below is an op: its loop and its gradient rule,
 * written with x, y = f(x) and dy. The smooth activations whose derivative is worth one pass have
 * it as an op of its own (gelu_slope, ...). */
#include <tgmath.h>

#include "ops/common.h"

typedef struct unary_attr {
    real (*f)(real);
    dra_pointwise_fn map;        /* the same function as one fast pass, where a level has it */
    int32_t (*integer)(int32_t); /* NULL: reals only */
} unary_attr;

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const unary_attr *a = n->attr;
    *out = *dra_type_of(g, n->in[0]);
    if (out->dtype == DRA_I32 && a->integer) return DRA_OK;
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

/* A level's own function sees dense rows alone; strided ones pass through a small buffer, so that
 * a result does not depend on how its element lies in memory. */
static void map_row(const dra_call *c, int64_t n, const real *x, int64_t step, real *y)
{
    enum { CHUNK = 256 };
    const unary_attr *a = c->attr;
    real              part[CHUNK];
    if (step == 1) {
        dra_simd_of(c)->map[a->map](n, x, y);
        return;
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t m = dra_imin(CHUNK, n - i);
        for (int64_t j = 0; j < m; j++) part[j] = x[(i + j) * step];
        dra_simd_of(c)->map[a->map](m, part, y + i);
    }
}

static void real_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const unary_attr *a = c->attr;
    const real       *x = ptr[1];
    real             *y = ptr[0];
    if (dra_simd_of(c)->map[a->map]) {
        map_row(c, n, x, step[1], y);
        return;
    }
    for (int64_t i = 0; i < n; i++) y[i] = a->f(x[i * step[1]]);
}

static void integer_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const unary_attr *a = c->attr;
    const int32_t    *x = ptr[1];
    int32_t          *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = a->integer(x[i * step[1]]);
}

static void tile(const dra_call *c, int64_t i)
{
    dra_pointwise_tile(c, i, c->out[0].dtype == DRA_I32 ? integer_row : real_row);
}

/* ---- formulas -------------------------------------------------------------------------------- */

#define ROOT_HALF ((real)0.70710678118654752440)
#define TWO_BY_ROOT_PI ((real)1.12837916709551257390)
#define ONE_BY_ROOT_2PI ((real)0.39894228040143267794)
#define ROOT_2_BY_PI ((real)0.79788456080286535588)
#define GELU_CUBE ((real)0.044715)

static real f_neg(real x) { return -x; }
static real f_abs(real x) { return fabs(x); }
static real f_sign(real x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
static real f_exp(real x) { return exp(x); }
static real f_expm1(real x) { return expm1(x); }
static real f_log(real x) { return log(x); }
static real f_log1p(real x) { return log1p(x); }
static real f_sqrt(real x) { return sqrt(x); }
static real f_rsqrt(real x) { return 1 / sqrt(x); }
static real f_square(real x) { return x * x; }
static real f_reciprocal(real x) { return 1 / x; }
static real f_sin(real x) { return sin(x); }
static real f_cos(real x) { return cos(x); }
static real f_tanh(real x) { return tanh(x); }
static real f_erf(real x) { return erf(x); }
static real f_sigmoid(real x)
{
    const real e = exp(-fabs(x)); /* never overflows */
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}
static real f_softplus(real x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static real f_log_sigmoid(real x) { return -f_softplus(-x); }
static real f_relu(real x) { return x > 0 || isnan(x) ? x : 0; }
static real f_relu2(real x) { return f_relu(x) * f_relu(x); }
static real f_silu(real x) { return x * f_sigmoid(x); }
static real f_silu_slope(real x)
{
    const real s = f_sigmoid(x);
    return s * (1 + x * (1 - s));
}
static real f_elu(real x) { return x > 0 ? x : expm1(x); }
static real f_gelu(real x) { return x * (1 + erf(x * ROOT_HALF)) / 2; }
static real f_gelu_slope(real x)
{
    return (1 + erf(x * ROOT_HALF)) / 2 + x * ONE_BY_ROOT_2PI * exp(-x * x / 2);
}
static real f_gelu_tanh(real x)
{
    return x * (1 + tanh(ROOT_2_BY_PI * (x + GELU_CUBE * x * x * x))) / 2;
}
static real f_gelu_tanh_slope(real x)
{
    const real t = tanh(ROOT_2_BY_PI * (x + GELU_CUBE * x * x * x));
    const real du = ROOT_2_BY_PI * (1 + 3 * GELU_CUBE * x * x);
    return (1 + t) / 2 + x * (1 - t * t) * du / 2;
}

static int32_t neg_i32(int32_t x) { return (int32_t)(0u - (uint32_t)x); } /* wraps */
static int32_t abs_i32(int32_t x) { return x < 0 ? neg_i32(x) : x; }

/* ---- gradient rules -------------------------------------------------------------------------- */

/* dx = dy slope */
static dra_value times(dra_graph *g, const dra_value *dy, dra_value slope)
{
    return dra_mul(g, dy[0], slope);
}

static dra_value one_minus(dra_graph *g, dra_value x) { return dra_affine(g, x, -1, 1); }

#define GRADIENT(name)                                                                             \
    static void name(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
#define X n->in[0]
#define Y n->out[0]

GRADIENT(d_neg) { dx[0] = dra_neg(g, dy[0]); }
GRADIENT(d_abs) { dx[0] = times(g, dy, dra_sign(g, X)); }
GRADIENT(d_exp) { dx[0] = times(g, dy, Y); }
GRADIENT(d_expm1) { dx[0] = times(g, dy, dra_affine(g, Y, 1, 1)); }
GRADIENT(d_log) { dx[0] = dra_div(g, dy[0], X); }
GRADIENT(d_log1p) { dx[0] = dra_div(g, dy[0], dra_affine(g, X, 1, 1)); }
GRADIENT(d_sqrt) { dx[0] = dra_div(g, dy[0], dra_affine(g, Y, 2, 0)); }
GRADIENT(d_rsqrt) { dx[0] = times(g, dy, dra_mul(g, dra_affine(g, Y, -0.5, 0), dra_square(g, Y))); }
GRADIENT(d_square) { dx[0] = times(g, dy, dra_affine(g, X, 2, 0)); }
GRADIENT(d_reciprocal) { dx[0] = times(g, dy, dra_neg(g, dra_square(g, Y))); }
GRADIENT(d_sin) { dx[0] = times(g, dy, dra_cos(g, X)); }
GRADIENT(d_cos) { dx[0] = times(g, dy, dra_neg(g, dra_sin(g, X))); }
GRADIENT(d_tanh) { dx[0] = times(g, dy, one_minus(g, dra_square(g, Y))); }
GRADIENT(d_erf)
{
    const dra_value bell = dra_exp(g, dra_neg(g, dra_square(g, X)));
    dx[0] = times(g, dy, dra_affine(g, bell, TWO_BY_ROOT_PI, 0));
}
GRADIENT(d_sigmoid) { dx[0] = times(g, dy, dra_mul(g, Y, one_minus(g, Y))); }
GRADIENT(d_softplus) { dx[0] = times(g, dy, dra_sigmoid(g, X)); }
GRADIENT(d_log_sigmoid) { dx[0] = times(g, dy, dra_sigmoid(g, dra_neg(g, X))); }
GRADIENT(d_relu)
{
    const dra_value zero = dra_number(g, 0);
    dx[0] = dra_select(g, dra_greater(g, X, zero), dy[0], zero);
}
GRADIENT(d_relu2) { dx[0] = times(g, dy, dra_affine(g, dra_relu(g, X), 2, 0)); }
GRADIENT(d_elu) /* y + 1 = e^x below 0 */
{
    const dra_value below = dra_affine(g, dra_minimum(g, Y, dra_number(g, 0)), 1, 1);
    dx[0] = times(g, dy, below);
}

static dra_value gelu_slope(dra_graph *g, dra_value x);
static dra_value gelu_tanh_slope(dra_graph *g, dra_value x);
static dra_value silu_slope(dra_graph *g, dra_value x);

GRADIENT(d_gelu) { dx[0] = times(g, dy, gelu_slope(g, X)); }
GRADIENT(d_gelu_tanh) { dx[0] = times(g, dy, gelu_tanh_slope(g, X)); }
GRADIENT(d_silu) { dx[0] = times(g, dy, silu_slope(g, X)); }

GRADIENT(d_gelu_slope) /* (2 - x^2) e^(-x^2/2) / sqrt(2 pi) */
{
    const dra_value x2 = dra_square(g, X);
    const dra_value bell = dra_exp(g, dra_affine(g, x2, -0.5, 0));
    dx[0] = times(g, dy,
                  dra_mul(g, dra_affine(g, x2, -ONE_BY_ROOT_2PI, 2 * ONE_BY_ROOT_2PI), bell));
}

GRADIENT(d_silu_slope) /* s (1-s) (2 + x (1 - 2s)) */
{
    const dra_value s = dra_sigmoid(g, X);
    const dra_value factor = dra_affine(g, dra_mul(g, X, dra_affine(g, s, -2, 1)), 1, 2);
    dx[0] = times(g, dy, dra_mul(g, dra_mul(g, s, one_minus(g, s)), factor));
}

GRADIENT(d_gelu_tanh_slope) /* (1 - t^2) (u' + x/2 (u'' - 2 t u'^2)), t = tanh u */
{
    const double    k = ROOT_2_BY_PI, c = GELU_CUBE;
    const dra_value x2 = dra_square(g, X);
    const dra_value u = dra_mul(g, X, dra_affine(g, x2, k * c, k)), t = dra_tanh(g, u);
    const dra_value u1 = dra_affine(g, x2, 3 * k * c, k), u2 = dra_affine(g, X, 6 * k * c, 0);
    const dra_value bend = dra_sub(g, u2, dra_affine(g, dra_mul(g, t, dra_square(g, u1)), 2, 0));
    const dra_value sum = dra_add(g, u1, dra_mul(g, dra_affine(g, X, 0.5, 0), bend));
    dx[0] = times(g, dy, dra_mul(g, one_minus(g, dra_square(g, t)), sum));
}

/* ---- the table ------------------------------------------------------------------------------- */

#define ROW(op_name, rule, op_flags)                                                               \
    const dra_op dra_op_##op_name = {                                                              \
        .name = #op_name,                                                                          \
        .n_in = 1,                                                                                 \
        .n_out = 1,                                                                                \
        .flags = op_flags,                                                                         \
        .attr_size = sizeof(unary_attr),                                                           \
        .infer = infer,                                                                            \
        .gradient = rule,                                                                          \
        .cost = dra_pointwise_cost,                                                                \
    };                                                                                             \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .in_place = 1},           \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = tile,                                                                              \
    };

ROW(neg, d_neg, 0)
ROW(abs, d_abs, 0)
ROW(sign, NULL, DRA_OP_NO_GRAD)
ROW(exp, d_exp, 0)
ROW(expm1, d_expm1, 0)
ROW(log, d_log, 0)
ROW(log1p, d_log1p, 0)
ROW(sqrt, d_sqrt, 0)
ROW(rsqrt, d_rsqrt, 0)
ROW(square, d_square, 0)
ROW(reciprocal, d_reciprocal, 0)
ROW(sin, d_sin, 0)
ROW(cos, d_cos, 0)
ROW(tanh, d_tanh, 0)
ROW(erf, d_erf, 0)
ROW(sigmoid, d_sigmoid, 0)
ROW(softplus, d_softplus, 0)
ROW(log_sigmoid, d_log_sigmoid, 0)
ROW(relu, d_relu, 0)
ROW(relu2, d_relu2, 0)
ROW(elu, d_elu, 0)
ROW(silu, d_silu, 0)
ROW(silu_slope, d_silu_slope, 0)
ROW(gelu, d_gelu, 0)
ROW(gelu_slope, d_gelu_slope, 0)
ROW(gelu_tanh, d_gelu_tanh, 0)
ROW(gelu_tanh_slope, d_gelu_tanh_slope, 0)

/* ---- builders -------------------------------------------------------------------------------- */

static dra_value build(dra_graph *g, const dra_op *op, real (*f)(real), dra_pointwise_fn map,
                       dra_value x)
{
    return dra_add_op(g, op, 1, &x, &(unary_attr){f, map, NULL});
}

dra_value dra_neg(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_neg, 1, &x, &(unary_attr){f_neg, DRA_MAP_NEG, neg_i32});
}

dra_value dra_abs(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_abs, 1, &x, &(unary_attr){f_abs, DRA_MAP_ABS, abs_i32});
}

dra_value dra_sign(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_sign, f_sign, DRA_MAP_NONE, x);
}
dra_value dra_exp(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_exp, f_exp, DRA_MAP_EXP, x);
}
dra_value dra_expm1(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_expm1, f_expm1, DRA_MAP_NONE, x);
}
dra_value dra_log(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_log, f_log, DRA_MAP_LOG, x);
}
dra_value dra_log1p(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_log1p, f_log1p, DRA_MAP_NONE, x);
}
dra_value dra_sqrt(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_sqrt, f_sqrt, DRA_MAP_SQRT, x);
}
dra_value dra_rsqrt(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_rsqrt, f_rsqrt, DRA_MAP_RSQRT, x);
}
dra_value dra_square(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_square, f_square, DRA_MAP_SQUARE, x);
}
dra_value dra_reciprocal(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_reciprocal, f_reciprocal, DRA_MAP_RECIPROCAL, x);
}
dra_value dra_sin(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_sin, f_sin, DRA_MAP_NONE, x);
}
dra_value dra_cos(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_cos, f_cos, DRA_MAP_NONE, x);
}
dra_value dra_tanh(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_tanh, f_tanh, DRA_MAP_TANH, x);
}
dra_value dra_erf(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_erf, f_erf, DRA_MAP_ERF, x);
}
dra_value dra_sigmoid(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_sigmoid, f_sigmoid, DRA_MAP_SIGMOID, x);
}
dra_value dra_softplus(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_softplus, f_softplus, DRA_MAP_SOFTPLUS, x);
}
dra_value dra_log_sigmoid(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_log_sigmoid, f_log_sigmoid, DRA_MAP_LOG_SIGMOID, x);
}
dra_value dra_relu(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_relu, f_relu, DRA_MAP_RELU, x);
}
dra_value dra_relu2(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_relu2, f_relu2, DRA_MAP_RELU2, x);
}
dra_value dra_elu(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_elu, f_elu, DRA_MAP_ELU, x);
}
dra_value dra_silu(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_silu, f_silu, DRA_MAP_SILU, x);
}
static dra_value silu_slope(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_silu_slope, f_silu_slope, DRA_MAP_SILU_SLOPE, x);
}
dra_value dra_gelu(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_gelu, f_gelu, DRA_MAP_GELU, x);
}
static dra_value gelu_slope(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_gelu_slope, f_gelu_slope, DRA_MAP_GELU_SLOPE, x);
}
dra_value dra_gelu_tanh(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_gelu_tanh, f_gelu_tanh, DRA_MAP_GELU_TANH, x);
}
static dra_value gelu_tanh_slope(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_gelu_tanh_slope, f_gelu_tanh_slope, DRA_MAP_GELU_TANH_SLOPE, x);
}
