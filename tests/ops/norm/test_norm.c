/* Norms: each against its formula in double, row by row. */
#include "check.h"

#include <math.h>
#include <string.h>

typedef enum kind { LAYER, RMS, UNIT, CLAMPED, SCALE, GROUP } kind;

typedef struct args {
    kind    kind;
    double  eps;
    bool    w, b; /* inputs after x */
    int64_t groups;
} args;

static void build(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    const args     *a = user;
    const dra_value w = a->w ? in[1] : (dra_value){0};
    const dra_value b = a->b ? in[a->w ? 2 : 1] : (dra_value){0};
    switch (a->kind) {
    case LAYER: *out = dra_layer_norm(g, in[0], w, b, a->eps); break;
    case RMS: *out = dra_rms_norm(g, in[0], w, a->eps); break;
    case UNIT: *out = dra_unit(g, in[0], a->eps); break;
    case CLAMPED: *out = dra_unit_clamped(g, in[0], a->eps); break;
    case SCALE: *out = dra_scale_norm(g, in[0], w, a->eps); break;
    case GROUP: *out = dra_group_norm(g, in[0], a->groups, w, b, a->eps); break;
    }
}

static void norm_part(const args *a, int64_t n, const double *x, double *y)
{
    const bool  centered = a->kind == LAYER || a->kind == GROUP;
    long double mean = 0; /* long: differences of numbers that are close */
    double      squares = 0, divisor = 1;
    for (int64_t i = 0; i < n; i++) mean += centered ? x[i] / (long double)n : 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = (double)(x[i] - mean);
        squares += y[i] * y[i];
    }
    switch (a->kind) {
    case LAYER:
    case GROUP:
    case RMS: divisor = sqrt(squares / (double)n + a->eps); break;
    case UNIT: divisor = sqrt(squares + a->eps); break;
    case CLAMPED:
    case SCALE: divisor = fmax(sqrt(squares), a->eps); break;
    }
    if (a->kind == SCALE) divisor /= sqrt((double)n);
    for (int64_t i = 0; i < n; i++) y[i] /= divisor;
}

static void oracle(const void *user, const check_tensor *in, check_tensor *out)
{
    const args         *a = user;
    const check_tensor *w = a->w ? &in[1] : NULL, *b = a->b ? &in[a->w ? 2 : 1] : NULL;
    const int64_t       C = check_last(&in[0]), part = C / (a->groups ? a->groups : 1);
    for (int64_t at = 0; at < in[0].count; at += part)
        norm_part(a, part, in[0].at + at, out->at + at);
    for (int64_t i = 0; i < in[0].count; i++) {
        if (w) out->at[i] *= w->at[w->count == 1 ? 0 : i % C];
        if (b) out->at[i] += b->at[i % C];
    }
}

static const args layer = {LAYER, 1e-5}, layer_w = {LAYER, 1e-5, true},
                  layer_b = {LAYER, 1e-5, false, true}, layer_wb = {LAYER, 1e-5, true, true},
                  layer_big = {LAYER, 0.5}, layer_0 = {LAYER, 0}, rms = {RMS, 1e-6},
                  rms_w = {RMS, 1e-6, true}, rms_big = {RMS, 0.5}, rms_0 = {RMS, 0},
                  unit = {UNIT, 1e-6}, unit_big = {UNIT, 2}, clamped = {CLAMPED, 1e-6},
                  clamped_always = {CLAMPED, 100}, scale = {SCALE, 1e-5},
                  scale_w = {SCALE, 1e-5, true}, scale_clamped = {SCALE, 100, true},
                  group = {GROUP, 1e-5, .groups = 3}, group_wb = {GROUP, 1e-5, true, true, 3},
                  group_one = {GROUP, 1e-5, true, true, 1}, group_all = {GROUP, 0.1, .groups = 6};

/* What every norm is tried on. At least two wide: the gradient of a lone entry is next to 0. */
#define SHAPES(of)                                                                                 \
    {"odd width", 1, {{{3, {2, 3, 17}}}}, of}, {"two wide", 1, {{{2, {5, 2}}}}, of},               \
        {"one row", 1, {{{1, {9}}}}, of}, {"no rows", 1, {{{2, {0, 8}}}}, of},                     \
        {"no rows inside", 1, {{{3, {4, 0, 8}}}}, of}, {"wide", 1, {{{2, {3, 1031}}}}, of},        \
        {"200 wide", 1, {{{2, {3, 200}}}}, of}, {"300 wide", 1, {{{2, {3, 300}}}}, of},            \
        {"several tiles", 1, {{{2, {700, 65}}}}, of},                                              \
        {"six axes", 1, {{{6, {2, 1, 2, 1, 2, 7}}}}, of},                                          \
    {                                                                                              \
        "far out", 1, {{{2, {4, 33}}, .lo = -1e15, .hi = 1e15}}, of, .no_grad = true               \
    }

static const double     constant_rows[] = {1000.1, 1000.1, 1000.1, 0, 0, 0};
static const check_case layer_cases[] = {
    SHAPES(&layer),
    {"w", 2, {{{2, {3, 17}}}, {{1, {17}}}}, &layer_w},
    {"b", 2, {{{2, {3, 17}}}, {{1, {17}}}}, &layer_b},
    {"w and b", 3, {{{3, {2, 3, 17}}}, {{1, {17}}}, {{1, {17}}}}, &layer_wb},
    {"w and b, no rows", 3, {{{2, {0, 5}}}, {{1, {5}}}, {{1, {5}}}}, &layer_wb},
    {"one value", 1, {{{2, {3, 1}}}}, &layer},
    {"large eps", 1, {{{2, {3, 17}}}}, &layer_big},
    {"no eps", 1, {{{2, {3, 17}}}}, &layer_0},
    /* The mean is 3,000 times the differences, and a float has 7 digits. 1e-5: the steps of the
     * difference quotient are 0.01 there, 0.03 of a standard deviation. */
    {"far mean", 1, {{{2, {4, 300}}, .lo = 999.5, .hi = 1000.5}}, &layer, .grad_tol = 1e-5},
    {"constant rows", 1, {{{2, {2, 3}}, .values = constant_rows}}, &layer, .no_grad = true},
};
static const check_case rms_cases[] = {
    SHAPES(&rms),
    {"w", 2, {{{3, {2, 3, 17}}}, {{1, {17}}}}, &rms_w},
    {"one value", 1, {{{2, {3, 1}}, .lo = 0.5, .hi = 1}}, &rms_big},
    {"large eps", 1, {{{2, {3, 17}}}}, &rms_big},
    {"no eps", 1, {{{2, {3, 17}}}}, &rms_0},
};
static const double     zero_row[] = {0, 0, 0, 1, 2, 3};
static const check_case unit_cases[] = {
    SHAPES(&unit),
    {"large eps", 1, {{{2, {3, 17}}}}, &unit_big},
    {"a row of zeros", 1, {{{2, {2, 3}}, .values = zero_row}}, &unit_big},
};
static const check_case clamped_cases[] = {
    SHAPES(&clamped),
    {"clamped throughout", 1, {{{2, {3, 17}}}}, &clamped_always},
    {"a row of zeros", 1, {{{2, {2, 3}}, .values = zero_row}}, &clamped, .no_grad = true},
};
static const check_case scale_cases[] = {
    SHAPES(&scale),
    {"scalar w", 2, {{{2, {3, 17}}}, {{0}}}, &scale_w},
    {"w of every channel", 2, {{{3, {2, 3, 17}}}, {{1, {17}}}}, &scale_w},
    {"clamped", 2, {{{2, {3, 17}}}, {{0}}}, &scale_clamped},
};
static const check_case group_cases[] = {
    {"three groups", 1, {{{3, {2, 3, 12}}}}, &group},
    {"w and b", 3, {{{3, {2, 3, 12}}}, {{1, {12}}}, {{1, {12}}}}, &group_wb},
    {"one group", 3, {{{2, {3, 7}}}, {{1, {7}}}, {{1, {7}}}}, &group_one},
    {"groups of one", 1, {{{2, {3, 6}}}}, &group_all},
    {"no rows", 1, {{{3, {2, 0, 12}}}}, &group},
    {"six axes", 1, {{{6, {2, 1, 2, 1, 2, 9}}}}, &group},
    {"several tiles", 1, {{{2, {700, 66}}}}, &group},
};

/* ---- gradients of gradients ------------------------------------------------------------------ */

/* dx of sum(y^2 / 2 + y v): the upstream y + v depends on x too. */
static void build_twice(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_value y;
    build(g, user, in, &y);
    const dra_value up = dra_add(g, y, in[1]);
    dra_gradient(g, 1, &y, &up, 1, in, out);
}

static double value_twice(const args *a, const double *at, const double *v, int64_t C, double *y)
{
    double sum = 0;
    norm_part(a, C, at, y);
    for (int64_t i = 0; i < C; i++) sum += y[i] * y[i] / 2 + y[i] * v[i];
    return sum;
}

static void oracle_twice(const void *user, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(&in[0]);
    double        x[64], y[64];
    for (int64_t i = 0; i < in[0].count; i++) {
        const double *v = in[1].at + i / C * C, h = 1e-5;
        memcpy(x, in[0].at + i / C * C, (size_t)C * sizeof *x);
        x[i % C] += h;
        out->at[i] = value_twice(user, x, v, C, y);
        x[i % C] -= 2 * h;
        out->at[i] = (out->at[i] - value_twice(user, x, v, C, y)) / (2 * h);
    }
}

/* 1e-5: the oracle itself is a difference quotient. */
static const check_case twice_cases[] = {
    {"layer", 2, {{{2, {3, 7}}}, {{2, {3, 7}}}}, &layer_big, .tol = 1e-5},
    {"rms", 2, {{{2, {3, 7}}}, {{2, {3, 7}}}}, &rms_big, .tol = 1e-5},
    {"unit", 2, {{{2, {3, 7}}}, {{2, {3, 7}}}}, &unit_big, .tol = 1e-5},
    {"clamped, free", 2, {{{2, {3, 7}}}, {{2, {3, 7}}}}, &clamped, .tol = 1e-5},
    {"clamped, held", 2, {{{2, {3, 7}}}, {{2, {3, 7}}}}, &clamped_always, .tol = 1e-5},
};

/* ---- promises and refusals ------------------------------------------------------------------- */

/* Where the clamp holds the norm is a plain factor: dx = dy / eps, in the same call in which other
 * rows are scaled to length 1. */
static void clamp_is_by_row(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 2)), u = check_real(g, "u", DRA_SHAPE(2, 2));
    dra_value  y = dra_unit_clamped(g, x, 0.5), dx;
    dra_gradient(g, 1, &y, &u, 1, &x, &dx);
    dra_output(g, "y", y);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      at[] = {(dra_real)0.1, (dra_real)0.2, 3, 4}, up[] = {1, 2, 1, 2};
    check_bind(&p, "x", at, sizeof at);
    check_bind(&p, "u", up, sizeof up);
    check_run(&p);
    const double s = 1.0 * 0.6 + 2.0 * 0.8; /* <dy, y> of the second row */
    check_close("y", 4, check_result(&p, "y"), (const double[]){0.2, 0.4, 0.6, 0.8}, 1e-6);
    check_close("dx", 4, check_result(&p, "dx"),
                (const double[]){2, 4, (1 - 0.6 * s) / 5, (2 - 0.8 * s) / 5}, 1e-6);
    check_free(&p);
}

static void keeps_nan(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2));
    dra_output(g, "layer", dra_layer_norm(g, x, (dra_value){0}, (dra_value){0}, 1e-5));
    dra_output(g, "clamped", dra_unit_clamped(g, x, 1e-5));
    check_program p = check_compile(g, 1);
    dra_real      at[] = {(dra_real)NAN, 1};
    check_bind(&p, "x", at, sizeof at);
    check_run(&p);
    assert_true(isnan(check_result(&p, "layer")[1]));
    assert_true(isnan(check_result(&p, "clamped")[1]));
    check_free(&p);
}

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none = {0};

static void refuses_x(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_rms_norm(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)), none, 1).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "rms_norm: x is i32 (3), expected " REAL);
    g = check_graph();
    assert_int_equal(dra_unit(g, check_real(g, "x", (dra_shape){0}), 1).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "unit: x has no axis");
    g = check_graph();
    dra_layer_norm(g, check_real(g, "x", DRA_SHAPE(4, 0)), none, none, 1);
    check_refused(g, DRA_ERR_SHAPE, "layer_norm: x " REAL " (4, 0): the last axis is empty");
    g = check_graph();
    dra_unit_clamped(g, none, 1);
    check_refused(g, DRA_ERR_VALUE, "unit_clamped: input 0 is the null value");
}

static void refuses_eps(void **state)
{
    dra_graph *g = check_graph();
    dra_layer_norm(g, check_real(g, "x", DRA_SHAPE(4)), none, none, -1);
    check_refused(g, DRA_ERR_VALUE, "layer_norm: eps -1, expected 0 or more");
    g = check_graph();
    dra_scale_norm(g, check_real(g, "x", DRA_SHAPE(4)), none, INFINITY);
    check_refused(g, DRA_ERR_VALUE, "scale_norm: eps inf, expected 0 or more");
}

static void refuses_gain_and_bias(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 4));
    dra_layer_norm(g, x, check_real(g, "w", DRA_SHAPE(3)), none, 1);
    check_refused(g, DRA_ERR_SHAPE,
                  "layer_norm: x " REAL " (2, 4), w " REAL " (3): expected " REAL " (4)");
    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 4));
    dra_layer_norm(g, x, none, check_real(g, "b", DRA_SHAPE(2, 4)), 1);
    check_refused(g, DRA_ERR_SHAPE,
                  "layer_norm: x " REAL " (2, 4), b " REAL " (2, 4): expected " REAL " (4)");
    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 4));
    dra_rms_norm(g, x, dra_input(g, "w", DRA_BF16, DRA_SHAPE(4)), 1);
    check_refused(g, DRA_ERR_DTYPE,
                  "rms_norm: x " REAL " (2, 4), w bf16 (4): expected " REAL " (4)");
    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 4));
    dra_scale_norm(g, x, check_real(g, "w", DRA_SHAPE(1)), 1);
    check_refused(g, DRA_ERR_SHAPE,
                  "scale_norm: x " REAL " (2, 4), w " REAL " (1): expected " REAL " (4)");
}

static void refuses_groups(void **state)
{
    const int64_t groups[] = {5, 0, -1};
    const char   *text[] = {"group_norm: x " REAL " (2, 12): 5 groups do not divide 12 channels",
                            "group_norm: x " REAL " (2, 12): 0 groups do not divide 12 channels",
                            "group_norm: x " REAL " (2, 12): -1 groups do not divide 12 channels"};
    for (size_t i = 0; i < COUNT(groups); i++) {
        dra_graph *g = check_graph();
        dra_group_norm(g, check_real(g, "x", DRA_SHAPE(2, 12)), groups[i], none, none, 1);
        check_refused(g, DRA_ERR_SHAPE, text[i]);
    }
}

#define SPEC(of)                                                                                   \
    {                                                                                              \
#of, 1, build, oracle, of##_cases, COUNT(of##_cases)                                       \
    }

/* ---- the gradients of norms with gain as what is checked: dx, dw, db under upstream v -------- */

typedef struct gain_args {
    bool layer;
} gain_args;

static void build_gain_back(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    const gain_args *a = user;
    const dra_value  y = a->layer ? dra_layer_norm(g, in[0], in[1], in[2], 1e-3)
                                  : dra_rms_norm(g, in[0], in[1], 1e-3);
    dra_gradient(g, 1, &y, &in[3], a->layer ? 3 : 2, in, out);
    if (!a->layer) out[2] = dra_affine(g, in[2], 1, 0);
}

static void oracle_gain_back(const void *user, const check_tensor *in, check_tensor *out)
{
    const gain_args *a = user;
    const int64_t    C = check_last(&in[0]);
    const double    *w = in[1].at;
    for (int64_t c = 0; c < C; c++) out[2].at[c] = a->layer ? 0 : in[2].at[c];
    for (int64_t r = 0; r < check_rows(&in[0]); r++) {
        const double *x = in[0].at + r * C, *v = in[3].at + r * C;
        double       *dx = out[0].at + r * C, mean = 0, squares = 0, t = 0, tn = 0;
        for (int64_t c = 0; c < C && a->layer; c++) mean += x[c] / (double)C;
        for (int64_t c = 0; c < C; c++) squares += (x[c] - mean) * (x[c] - mean) / (double)C;
        const double f = 1 / sqrt(squares + 1e-3);
        for (int64_t c = 0; c < C; c++) {
            const double n = (x[c] - mean) * f;
            t += a->layer ? v[c] * w[c] / (double)C : 0;
            tn += v[c] * w[c] * n / (double)C;
            out[1].at[c] += v[c] * n;
            if (a->layer) out[2].at[c] += v[c];
        }
        for (int64_t c = 0; c < C; c++) dx[c] = f * (v[c] * w[c] - t - (x[c] - mean) * f * tn);
    }
}

/* Where a device has kernels of its own for each width. */
#define GAIN_WIDTH(name, n, of)                                                                    \
    {                                                                                              \
        name, 4, {{{2, {37, n}}}, {{1, {n}}}, {{1, {n}}}, {{2, {37, n}}}}, of, .no_grad = true     \
    }

static const gain_args  gains[] = {{true}, {false}};
static const check_case gain_cases[] = {
    {"layer", 4, {{{2, {5, 9}}}, {{1, {9}}}, {{1, {9}}}, {{2, {5, 9}}}}, &gains[0]},
    {"rms", 4, {{{2, {5, 9}}}, {{1, {9}}}, {{1, {9}}}, {{2, {5, 9}}}}, &gains[1]},
    {"layer, several tiles",
     4,
     {{{3, {2, 150, 3}}}, {{1, {3}}}, {{1, {3}}}, {{3, {2, 150, 3}}}},
     &gains[0]},
    {"rms, one row", 4, {{{1, {7}}}, {{1, {7}}}, {{1, {7}}}, {{1, {7}}}}, &gains[1]},
    {"layer, no rows", 4, {{{2, {0, 4}}}, {{1, {4}}}, {{1, {4}}}, {{2, {0, 4}}}}, &gains[0]},
    GAIN_WIDTH("layer, 200 wide", 200, &gains[0]),
    GAIN_WIDTH("rms, 389 wide", 389, &gains[1]),
    GAIN_WIDTH("layer, 500 wide", 500, &gains[0]),
    GAIN_WIDTH("layer, 700 wide", 700, &gains[0]),
    GAIN_WIDTH("rms, 1029 wide", 1029, &gains[1]),
    GAIN_WIDTH("layer, 3100 wide", 3100, &gains[0]),
    GAIN_WIDTH("layer, 9001 wide", 9001, &gains[0]),
};

int main(void)
{
    const check_spec specs[] = {
        SPEC(layer),
        SPEC(rms),
        SPEC(unit),
        SPEC(clamped),
        SPEC(scale),
        SPEC(group),
        {"twice", 1, build_twice, oracle_twice, twice_cases, COUNT(twice_cases)},
        {"gradients with gain", 3, build_gain_back, oracle_gain_back, gain_cases,
         COUNT(gain_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clamp_is_by_row),
        cmocka_unit_test(keeps_nan),
        cmocka_unit_test(refuses_x),
        cmocka_unit_test(refuses_eps),
        cmocka_unit_test(refuses_gain_and_bias),
        cmocka_unit_test(refuses_groups),
    };
    return check_main("norm", specs, COUNT(specs), tests, COUNT(tests));
}
