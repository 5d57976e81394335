/* Activations by number and gated linear units. */
#include "check.h"

#include <math.h>

static double act(dra_activation a, double x)
{
    switch (a) {
    case DRA_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case DRA_ACT_TANH: return tanh(x);
    case DRA_ACT_RELU: return fmax(x, 0);
    case DRA_ACT_RELU2: return fmax(x, 0) * fmax(x, 0);
    case DRA_ACT_GELU: return x / 2 * (1 + erf(x / sqrt(2)));
    case DRA_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case DRA_ACT_SILU: return x / (1 + exp(-x));
    case DRA_ACT_ELU: return x > 0 ? x : expm1(x);
    case DRA_ACT_SOFTPLUS: return log1p(exp(x));
    case DRA_ACT_NONE:
    case DRA_ACT_COUNT: break;
    }
    return x;
}

static void build_activate(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    for (int a = 0; a < 5; a++) {
        out[a] = dra_activate(g, in[0], (dra_activation)(*(const int *)args + a));
        if (out[a].id == in[0].id) out[a] = dra_copy(g, in[0]); /* NONE is x itself */
    }
}

static void oracle_activate(const void *args, const check_tensor *in, check_tensor *out)
{
    for (int a = 0; a < 5; a++)
        for (int64_t i = 0; i < in->count; i++)
            out[a].at[i] = act((dra_activation)(*(const int *)args + a), in->at[i]);
}

_Static_assert(DRA_ACT_COUNT == 10, "the cases below cover the activations five by five");
static const int        firsts[] = {0, 5};
static const check_case activate_cases[] = {
    {"above 0", 1, {{{2, {3, 7}}, .lo = 0.01, .hi = 2}}, &firsts[0]},
    {"below 0", 1, {{{2, {3, 7}}, .lo = -2, .hi = -0.01}}, &firsts[0]},
    {"above 0, others", 1, {{{2, {3, 7}}, .lo = 0.01, .hi = 2}}, &firsts[1]},
    {"below 0, others", 1, {{{2, {3, 7}}, .lo = -2, .hi = -0.01}}, &firsts[1]},
    {"nothing", 1, {{{2, {3, 0}}}}, &firsts[0]},
    {"scalar", 1, {{{0}, .lo = 0.01, .hi = 2}}, &firsts[1]},
};

static void build_glu(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_glu(g, in[0], *(const dra_activation *)args);
}

static void oracle_glu(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in) / 2;
    for (int64_t i = 0; i < out->count; i++) {
        const double *row = in->at + i / C * 2 * C;
        out->at[i] = row[i % C] * act(*(const dra_activation *)args, row[C + i % C]);
    }
}

static const dra_activation acts[] = {
    DRA_ACT_NONE, DRA_ACT_SIGMOID,   DRA_ACT_TANH, DRA_ACT_RELU, DRA_ACT_RELU2,
    DRA_ACT_GELU, DRA_ACT_GELU_TANH, DRA_ACT_SILU, DRA_ACT_ELU,  DRA_ACT_SOFTPLUS};
#define CASE(name, number)                                                                         \
    {                                                                                              \
        name, 1, {{{3, {2, 3, 14}}, .lo = 0.01, .hi = 2}}, &acts[number]                           \
    }
static const check_case glu_cases[] = {
    CASE("none", 0),
    CASE("sigmoid", 1),
    CASE("tanh", 2),
    CASE("relu", 3),
    CASE("relu2", 4),
    CASE("gelu", 5),
    CASE("gelu_tanh", 6),
    CASE("silu", 7),
    CASE("elu", 8),
    CASE("softplus", 9),
    {"both signs", 1, {{{2, {5, 18}}}}, &acts[7]},
    {"two wide", 1, {{{2, {5, 2}}}}, &acts[7]},
    {"one row", 1, {{{1, {6}}}}, &acts[7]},
    {"no rows", 1, {{{2, {0, 6}}}}, &acts[7]},
    {"no width", 1, {{{2, {6, 0}}}}, &acts[7]},
    {"several tiles", 1, {{{2, {300, 130}}}}, &acts[5]},
};

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void none_is_x(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3));
    assert_int_equal(dra_activate(g, x, DRA_ACT_NONE).id, x.id);
    dra_graph_destroy(g);
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_activate(g, check_real(g, "x", DRA_SHAPE(3)), DRA_ACT_COUNT).id, 0);
    check_refused(g, DRA_ERR_VALUE, "activate: no activation number 10");
    g = check_graph();
    assert_int_equal(dra_activate(g, (dra_value){0}, DRA_ACT_NONE).id, 0);
    check_refused(g, DRA_ERR_VALUE, "activate: input 0 is the null value");
    g = check_graph();
    assert_int_equal(dra_glu(g, check_real(g, "x", DRA_SHAPE(2, 7)), DRA_ACT_SILU).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "glu: x " REAL " (2, 7): the last axis is not two halves");
    g = check_graph();
    dra_glu(g, check_real(g, "x", (dra_shape){0}), DRA_ACT_SILU);
    check_refused(g, DRA_ERR_SHAPE, "glu: x " REAL " (): the last axis is not two halves");
    g = check_graph();
    dra_glu(g, (dra_value){0}, DRA_ACT_SILU);
    check_refused(g, DRA_ERR_VALUE, "glu: input 0 is the null value");
    g = check_graph();
    dra_glu(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(2, 6)), DRA_ACT_SILU);
    check_refused(g, DRA_ERR_DTYPE, "silu: x is i32, expected " REAL);
}

int main(void)
{
    const check_spec specs[] = {
        {"activate", 5, build_activate, oracle_activate, activate_cases, COUNT(activate_cases)},
        {"glu", 1, build_glu, oracle_glu, glu_cases, COUNT(glu_cases)},
    };
    const struct CMUnitTest tests[] = {cmocka_unit_test(none_is_x), cmocka_unit_test(refuses)};
    return check_main("glu", specs, COUNT(specs), tests, COUNT(tests));
}
