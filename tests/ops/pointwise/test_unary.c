/* Pointwise ops of one input: each against its formula in double. */
#include "check.h"

#include <math.h>

typedef struct args {
    dra_value (*op)(dra_graph *g, dra_value x);
    double (*f)(double x);
} args;

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = ((const args *)a)->op(g, in[0]);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < in->count; i++) out->at[i] = ((const args *)a)->f(in->at[i]);
}

static double neg(double x) { return -x; }
static double sign(double x) { return (x > 0) - (x < 0); }
static double rsqrt_(double x) { return 1 / sqrt(x); }
static double square(double x) { return x * x; }
static double reciprocal(double x) { return 1 / x; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return x > 30 ? x + exp(-x) : log1p(exp(x)); }
static double log_sigmoid(double x) { return -softplus(-x); }
static double softsign(double x) { return x / (1 + fabs(x)); }
static double relu(double x) { return x > 0 ? x : 0; }
static double relu2(double x) { return x > 0 ? x * x : 0; }
static double gelu(double x) { return x / 2 * (1 + erf(x / sqrt(2))); }
static double gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}
static double silu(double x) { return x / (1 + exp(-x)); }
static double elu(double x) { return x > 0 ? x : expm1(x); }

/* Every function: odd width, one value, nothing, a scalar, and values far out. `far` is where the
 * result stays finite; lo..hi is inside the domain and away from kinks. */
#define CASES(function, builder, oracle_function, lo_, hi_, far_)                                  \
    static const args       function##_args = {builder, oracle_function};                          \
    static const check_case function##_cases[] = {                                                 \
        {"odd width", 1, {{{3, {2, 3, 17}}, .lo = lo_, .hi = hi_}}, &function##_args},             \
        {"one value", 1, {{{1, {1}}, .lo = lo_, .hi = hi_}}, &function##_args},                    \
        {"scalar", 1, {{{0}, .lo = lo_, .hi = hi_}}, &function##_args},                            \
        {"nothing", 1, {{{2, {0, 8}}, .lo = lo_, .hi = hi_}}, &function##_args},                   \
        {"several tiles", 1, {{{2, {130, 257}}, .lo = lo_, .hi = hi_}}, &function##_args},         \
        {"far out",                                                                                \
         1,                                                                                        \
         {{{2, {4, 33}}, .lo = (lo_) < 0 ? -(far_) : (lo_), .hi = far_}},                          \
         &function##_args,                                                                         \
         .no_grad = true},                                                                         \
    };

CASES(neg, dra_neg, neg, -2, 2, 1e30)
CASES(abs, dra_abs, fabs, 0.01, 2, 1e30)
CASES(sign, dra_sign, sign, 0.01, 2, 1e30)
CASES(exp, dra_exp, exp, -2, 2, 80)
CASES(expm1, dra_expm1, expm1, -2, 2, 80)
CASES(log, dra_log, log, 0.5, 2, 1e30)
CASES(log1p, dra_log1p, log1p, -0.5, 2, 1e30)
CASES(sqrt, dra_sqrt, sqrt, 0.5, 2, 1e30)
CASES(rsqrt, dra_rsqrt, rsqrt_, 0.5, 2, 1e30)
CASES(square, dra_square, square, -2, 2, 1e15)
CASES(reciprocal, dra_reciprocal, reciprocal, 0.5, 2, 1e30)
CASES(sin, dra_sin, sin, -3, 3, 100)
CASES(cos, dra_cos, cos, -3, 3, 100)
CASES(tanh, dra_tanh, tanh, -2, 2, 200)
CASES(erf, dra_erf, erf, -2, 2, 200)
CASES(sigmoid, dra_sigmoid, sigmoid, -3, 3, 200)
CASES(log_sigmoid, dra_log_sigmoid, log_sigmoid, -3, 3, 200)
CASES(softplus, dra_softplus, softplus, -3, 3, 200)
CASES(softsign, dra_softsign, softsign, -3, 3, 1e30)
CASES(relu, dra_relu, relu, 0.01, 2, 1e30)
CASES(relu2, dra_relu2, relu2, -2, 2, 1e15)
CASES(gelu, dra_gelu, gelu, -3, 3, 200)
CASES(gelu_tanh, dra_gelu_tanh, gelu_tanh, -3, 3, 200)
CASES(silu, dra_silu, silu, -3, 3, 200)
CASES(elu, dra_elu, elu, 0.01, 2, 80)

/* Below the kink, where CASES stays away from 0 on one side only. */
static const args       elu_below_args = {dra_elu, elu}, relu_below_args = {dra_relu, relu};
static const check_case below_cases[] = {
    {"elu below 0", 1, {{{2, {3, 7}}, .lo = -2, .hi = -0.01}}, &elu_below_args},
    {"relu below 0", 1, {{{2, {3, 7}}, .lo = -2, .hi = -0.01}}, &relu_below_args},
};

/* Second derivatives: the gradient of the gradient, through the slope ops. */
static dra_value gradient_of(dra_graph *g, dra_value x, dra_value (*op)(dra_graph *, dra_value))
{
    dra_value y = dra_sum_all(g, op(g, x)), dx = {0};
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    return dx;
}
static dra_value gelu_twice(dra_graph *g, dra_value x) { return gradient_of(g, x, dra_gelu); }
static dra_value silu_twice(dra_graph *g, dra_value x) { return gradient_of(g, x, dra_silu); }
static dra_value tanh_twice(dra_graph *g, dra_value x) { return gradient_of(g, x, dra_gelu_tanh); }

static double slope(double (*f)(double), double x) { return (f(x + 1e-6) - f(x - 1e-6)) / 2e-6; }
static double gelu_slope(double x) { return slope(gelu, x); }
static double silu_slope(double x) { return slope(silu, x); }
static double tanh_slope(double x) { return slope(gelu_tanh, x); }

static const args twice_args[] = {
    {gelu_twice, gelu_slope}, {silu_twice, silu_slope}, {tanh_twice, tanh_slope}};
static const check_case twice_cases[] = {
    /* 1e-5: the oracle itself is a difference quotient */
    {"gelu", 1, {{{2, {3, 9}}, .lo = -3, .hi = 3}}, &twice_args[0], .tol = 1e-5},
    {"silu", 1, {{{2, {3, 9}}, .lo = -3, .hi = 3}}, &twice_args[1], .tol = 1e-5},
    {"gelu tanh", 1, {{{2, {3, 9}}, .lo = -3, .hi = 3}}, &twice_args[2], .tol = 1e-5},
};

static const check_input ints = {{2, {3, 5}}, CHECK_I32, .lo = -50, .hi = 50};
static const args        int_args[] = {{dra_neg, neg}, {dra_abs, fabs}};
static check_case        int_cases[] = {{"neg", 1, {{{0}}}, &int_args[0]},
                                        {"abs", 1, {{{0}}}, &int_args[1]}};

static void refuses_integers(void **state)
{
    dra_graph *g = check_graph();
    dra_value  y = dra_exp(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)));
    assert_int_equal(y.id, 0);
#ifdef DRA_REAL_DOUBLE
    check_refused(g, DRA_ERR_DTYPE, "exp: x is i32, expected f64");
#else
    check_refused(g, DRA_ERR_DTYPE, "exp: x is i32, expected f32");
#endif
}

static void refuses_null(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_exp(g, (dra_value){0}).id, 0);
    check_refused(g, DRA_ERR_VALUE, "exp: input 0 is the null value");
}

static void keeps_nan(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(1));
    dra_output(g, "relu", dra_relu(g, x));
    dra_output(g, "relu2", dra_relu2(g, x));
    dra_output(g, "silu", dra_silu(g, x));
    check_program p = check_compile(g, 1);
    dra_real      nan_in[] = {(dra_real)NAN};
    check_bind(&p, "x", nan_in, sizeof nan_in);
    check_run(&p);
    assert_true(isnan(*check_result(&p, "relu")));
    assert_true(isnan(*check_result(&p, "relu2")));
    assert_true(isnan(*check_result(&p, "silu")));
    check_free(&p);
}

#define SPEC(function)                                                                             \
    {                                                                                              \
#function, 1, build, oracle, function##_cases, COUNT(function##_cases)                     \
    }

int main(void)
{
    for (size_t i = 0; i < COUNT(int_cases); i++) int_cases[i].in[0] = ints;
    const check_spec specs[] = {
        SPEC(neg),
        SPEC(abs),
        SPEC(sign),
        SPEC(exp),
        SPEC(expm1),
        SPEC(log),
        SPEC(log1p),
        SPEC(sqrt),
        SPEC(rsqrt),
        SPEC(square),
        SPEC(reciprocal),
        SPEC(sin),
        SPEC(cos),
        SPEC(tanh),
        SPEC(erf),
        SPEC(sigmoid),
        SPEC(log_sigmoid),
        SPEC(softplus),
        SPEC(softsign),
        SPEC(relu),
        SPEC(relu2),
        SPEC(gelu),
        SPEC(gelu_tanh),
        SPEC(silu),
        SPEC(elu),
        {"below", 1, build, oracle, below_cases, COUNT(below_cases)},
        {"second derivative", 1, build, oracle, twice_cases, COUNT(twice_cases)},
        {"i32", 1, build, oracle, int_cases, COUNT(int_cases)},
    };
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses_integers),
                                       cmocka_unit_test(refuses_null), cmocka_unit_test(keeps_nan)};
    return check_main("unary", specs, COUNT(specs), tests, COUNT(tests));
}
