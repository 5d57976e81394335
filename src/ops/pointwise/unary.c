/* Pointwise ops of one input. A row of the table below is an op: its gradient rule, written with
 * x, y = f(x) and dy; formulas are in functions.c. The smooth activations whose derivative is worth
 * one pass have it as an op of its own (gelu_slope, ...). */
#include "ops/pointwise/pointwise.h"

#define TWO_BY_ROOT_PI ((dra_real)1.12837916709551257390)
#define ONE_BY_ROOT_2PI ((dra_real)0.39894228040143267794)
#define ROOT_2_BY_PI ((dra_real)0.79788456080286535588)
#define GELU_CUBE ((dra_real)0.044715)

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_function_attr *a = n->attr;
    *out = *dra_type_of(g, n->in[0]);
    if (out->dtype == DRA_I32 && dra_function_takes_i32(a->function)) return DRA_OK;
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

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
    const dra_value curvature = dra_sub(g, u2,
                                        dra_affine(g, dra_mul(g, t, dra_square(g, u1)), 2, 0));
    const dra_value sum = dra_add(g, u1, dra_mul(g, dra_affine(g, X, 0.5, 0), curvature));
    dx[0] = times(g, dy, dra_mul(g, one_minus(g, dra_square(g, t)), sum));
}

/* ---- the table ------------------------------------------------------------------------------- */

#define ROW(op_name, rule, op_flags)                                                               \
    const dra_op         dra_op_##op_name = {.name = #op_name,                                     \
                                             .n_in = 1,                                            \
                                             .n_out = 1,                                           \
                                             .flags = DRA_OP_POINTWISE | op_flags,                 \
                                             .attr_size = sizeof(dra_function_attr),               \
                                             .infer = infer,                                       \
                                             .gradient = rule,                                     \
                                             .cost = dra_pointwise_cost};                          \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .in_place = 1},           \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = dra_function_tile,                                                                 \
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

static dra_value build(dra_graph *g, const dra_op *op, dra_function function, dra_value x)
{
    return dra_add_op(g, op, 1, &x, &(dra_function_attr){function});
}

dra_value dra_neg(dra_graph *g, dra_value x) { return build(g, &dra_op_neg, DRA_FUNCTION_NEG, x); }
dra_value dra_abs(dra_graph *g, dra_value x) { return build(g, &dra_op_abs, DRA_FUNCTION_ABS, x); }
dra_value dra_sign(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_sign, DRA_FUNCTION_SIGN, x);
}
dra_value dra_exp(dra_graph *g, dra_value x) { return build(g, &dra_op_exp, DRA_FUNCTION_EXP, x); }
dra_value dra_expm1(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_expm1, DRA_FUNCTION_EXPM1, x);
}
dra_value dra_log(dra_graph *g, dra_value x) { return build(g, &dra_op_log, DRA_FUNCTION_LOG, x); }
dra_value dra_log1p(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_log1p, DRA_FUNCTION_LOG1P, x);
}
dra_value dra_sqrt(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_sqrt, DRA_FUNCTION_SQRT, x);
}
dra_value dra_rsqrt(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_rsqrt, DRA_FUNCTION_RSQRT, x);
}
dra_value dra_square(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_square, DRA_FUNCTION_SQUARE, x);
}
dra_value dra_reciprocal(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_reciprocal, DRA_FUNCTION_RECIPROCAL, x);
}
dra_value dra_sin(dra_graph *g, dra_value x) { return build(g, &dra_op_sin, DRA_FUNCTION_SIN, x); }
dra_value dra_cos(dra_graph *g, dra_value x) { return build(g, &dra_op_cos, DRA_FUNCTION_COS, x); }
dra_value dra_tanh(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_tanh, DRA_FUNCTION_TANH, x);
}
dra_value dra_erf(dra_graph *g, dra_value x) { return build(g, &dra_op_erf, DRA_FUNCTION_ERF, x); }
dra_value dra_sigmoid(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_sigmoid, DRA_FUNCTION_SIGMOID, x);
}
dra_value dra_softplus(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_softplus, DRA_FUNCTION_SOFTPLUS, x);
}
dra_value dra_log_sigmoid(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_log_sigmoid, DRA_FUNCTION_LOG_SIGMOID, x);
}
dra_value dra_relu(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_relu, DRA_FUNCTION_RELU, x);
}
dra_value dra_relu2(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_relu2, DRA_FUNCTION_RELU2, x);
}
dra_value dra_elu(dra_graph *g, dra_value x) { return build(g, &dra_op_elu, DRA_FUNCTION_ELU, x); }
dra_value dra_silu(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_silu, DRA_FUNCTION_SILU, x);
}
static dra_value silu_slope(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_silu_slope, DRA_FUNCTION_SILU_SLOPE, x);
}
dra_value dra_gelu(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_gelu, DRA_FUNCTION_GELU, x);
}
static dra_value gelu_slope(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_gelu_slope, DRA_FUNCTION_GELU_SLOPE, x);
}
dra_value dra_gelu_tanh(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_gelu_tanh, DRA_FUNCTION_GELU_TANH, x);
}
static dra_value gelu_tanh_slope(dra_graph *g, dra_value x)
{
    return build(g, &dra_op_gelu_tanh_slope, DRA_FUNCTION_GELU_TANH_SLOPE, x);
}
