/* Pointwise ops of one input: a line of device/functions.def is an op and its builder, its gradient
 * rule is here, written with x, y = f(x) and dy. The smooth activations whose derivative is worth
 * one pass have it as an op of its own (gelu_slope, ...). */
#include "ops/pointwise/pointwise.h"

#define TWO_BY_ROOT_PI ((dra_real)1.12837916709551257390)
#define ONE_BY_ROOT_2PI ((dra_real)0.39894228040143267794)
#define ROOT_2_BY_PI ((dra_real)0.79788456080286535588)
#define GELU_CUBE ((dra_real)0.044715)

static dra_status infer_unary(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_function_attr *a = n->attr;
    *out = *dra_type_of(g, n->in[0]);
    if (out->dtype == DRA_I32 && dra_function_takes_i32(a->function)) return DRA_OK;
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

/* ---- gradient rules -------------------------------------------------------------------------- */

/* dx = dy slope */
static dra_value scale_upstream(dra_graph *g, const dra_value *dy, dra_value slope)
{
    return dra_mul(g, dy[0], slope);
}

static dra_value one_minus(dra_graph *g, dra_value x) { return dra_affine(g, x, -1, 1); }

#define GRADIENT(name)                                                                             \
    static void name(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
#define X n->in[0]
#define Y n->out[0]

GRADIENT(d_neg) { dx[0] = dra_neg(g, dy[0]); }
GRADIENT(d_abs) { dx[0] = scale_upstream(g, dy, dra_sign(g, X)); }
GRADIENT(d_sign) {} /* 0 wherever there is one */
GRADIENT(d_exp) { dx[0] = scale_upstream(g, dy, Y); }
GRADIENT(d_expm1) { dx[0] = scale_upstream(g, dy, dra_affine(g, Y, 1, 1)); }
GRADIENT(d_log) { dx[0] = dra_div(g, dy[0], X); }
GRADIENT(d_log1p) { dx[0] = dra_div(g, dy[0], dra_affine(g, X, 1, 1)); }
GRADIENT(d_sqrt) { dx[0] = dra_div(g, dy[0], dra_affine(g, Y, 2, 0)); }
GRADIENT(d_rsqrt)
{
    dx[0] = scale_upstream(g, dy, dra_mul(g, dra_affine(g, Y, -0.5, 0), dra_square(g, Y)));
}
GRADIENT(d_square) { dx[0] = scale_upstream(g, dy, dra_affine(g, X, 2, 0)); }
GRADIENT(d_reciprocal) { dx[0] = scale_upstream(g, dy, dra_neg(g, dra_square(g, Y))); }
GRADIENT(d_sin) { dx[0] = scale_upstream(g, dy, dra_cos(g, X)); }
GRADIENT(d_cos) { dx[0] = scale_upstream(g, dy, dra_neg(g, dra_sin(g, X))); }
GRADIENT(d_tanh) { dx[0] = scale_upstream(g, dy, one_minus(g, dra_square(g, Y))); }
GRADIENT(d_erf)
{
    const dra_value bell = dra_exp(g, dra_neg(g, dra_square(g, X)));
    dx[0] = scale_upstream(g, dy, dra_affine(g, bell, TWO_BY_ROOT_PI, 0));
}
GRADIENT(d_sigmoid) { dx[0] = scale_upstream(g, dy, dra_mul(g, Y, one_minus(g, Y))); }
GRADIENT(d_softplus) { dx[0] = scale_upstream(g, dy, dra_sigmoid(g, X)); }
GRADIENT(d_log_sigmoid) { dx[0] = scale_upstream(g, dy, dra_sigmoid(g, dra_neg(g, X))); }
GRADIENT(d_softsign) /* 1 / (1 + |x|)^2 */
{
    const dra_value whole = dra_affine(g, dra_abs(g, X), 1, 1);
    dx[0] = dra_div(g, dy[0], dra_square(g, whole));
}
GRADIENT(d_relu)
{
    const dra_value zero = dra_number(g, 0);
    dx[0] = dra_select(g, dra_greater(g, X, zero), dy[0], zero);
}
GRADIENT(d_relu2) { dx[0] = scale_upstream(g, dy, dra_affine(g, dra_relu(g, X), 2, 0)); }
GRADIENT(d_elu) /* y + 1 = e^x below 0 */
{
    const dra_value below = dra_affine(g, dra_minimum(g, Y, dra_number(g, 0)), 1, 1);
    dx[0] = scale_upstream(g, dy, below);
}

dra_value dra_gelu_slope(dra_graph *g, dra_value x);
dra_value dra_gelu_tanh_slope(dra_graph *g, dra_value x);
dra_value dra_silu_slope(dra_graph *g, dra_value x);

GRADIENT(d_gelu) { dx[0] = scale_upstream(g, dy, dra_gelu_slope(g, X)); }
GRADIENT(d_gelu_tanh) { dx[0] = scale_upstream(g, dy, dra_gelu_tanh_slope(g, X)); }
GRADIENT(d_silu) { dx[0] = scale_upstream(g, dy, dra_silu_slope(g, X)); }

GRADIENT(d_gelu_slope) /* (2 - x^2) e^(-x^2/2) / sqrt(2 pi) */
{
    const dra_value x2 = dra_square(g, X);
    const dra_value bell = dra_exp(g, dra_affine(g, x2, -0.5, 0));
    dx[0] = scale_upstream(
        g, dy, dra_mul(g, dra_affine(g, x2, -ONE_BY_ROOT_2PI, 2 * ONE_BY_ROOT_2PI), bell));
}

GRADIENT(d_silu_slope) /* s (1-s) (2 + x (1 - 2s)) */
{
    const dra_value s = dra_sigmoid(g, X);
    const dra_value factor = dra_affine(g, dra_mul(g, X, dra_affine(g, s, -2, 1)), 1, 2);
    dx[0] = scale_upstream(g, dy, dra_mul(g, dra_mul(g, s, one_minus(g, s)), factor));
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
    dx[0] = scale_upstream(g, dy, dra_mul(g, one_minus(g, dra_square(g, t)), sum));
}

/* ---- ops, kernels, builders ------------------------------------------------------------------ */

#define DRA_UNARY(vectors, NAME, op_name, formula)                                                 \
    const dra_op         dra_op_##op_name = {.name = #op_name,                                     \
                                             .n_in = 1,                                            \
                                             .n_out = 1,                                           \
                                             .flags = DRA_OP_POINTWISE,                            \
                                             .attr_size = sizeof(dra_function_attr),               \
                                             .infer = infer_unary,                                 \
                                             .gradient = d_##op_name,                              \
                                             .cost = dra_pointwise_cost};                          \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .in_place = 1},           \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = dra_function_tile,                                                                 \
    };                                                                                             \
    dra_value dra_##op_name(dra_graph *g, dra_value x)                                             \
    {                                                                                              \
        return dra_add_op(g, &dra_op_##op_name, 1, &x, &(dra_function_attr){DRA_FUNCTION_##NAME}); \
    }
#include "device/functions.def"
