/* Pointwise ops of two inputs: each against its formula in double, over every kind of broadcast. */
#include "pointwise.h"

#include <math.h>
#include <stdio.h>

typedef struct args {
    const char *name;
    dra_value (*op)(dra_graph *g, dra_value a, dra_value b);
    double (*f)(double a, double b);
    double a_lo, a_hi, b_lo, b_hi; /* where differences work: away from kinks and jumps */
    bool   b_constant;             /* has no gradient */
} args;

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = ((const args *)a)->op(g, in[0], in[1]);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->at[i] = ((const args *)a)
                         ->f(broadcast_at(&in[0], out, i), broadcast_at(&in[1], out, i));
}

static double add(double a, double b) { return a + b; }
static double sub(double a, double b) { return a - b; }
static double mul(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }
static double mod(double a, double b)
{
    const double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static double minimum(double a, double b) { return isnan(a) || isnan(b) ? NAN : fmin(a, b); }
static double maximum(double a, double b) { return isnan(a) || isnan(b) ? NAN : fmax(a, b); }

static const args ops[] = {
    {"add", dra_add, add, -2, 2, -2, 2},
    {"sub", dra_sub, sub, -2, 2, -2, 2},
    {"mul", dra_mul, mul, -2, 2, -2, 2},
    {"div", dra_div, divide, -2, 2, 0.5, 2},
    {"mod", dra_mod, mod, 1.0, 1.3, 0.7, 0.9, true}, /* the quotient is 1 everywhere */
    {"pow", dra_pow, pow, 0.5, 2, -2, 2},
    {"minimum", dra_minimum, minimum, -2, 2, -2, 2},
    {"maximum", dra_maximum, maximum, -2, 2, -2, 2},
};

/* ---- far out: every sign, zero, infinity and NaN against every other ------------------------- */

static const double     wild[] = {NAN, INFINITY, -INFINITY, 0, 1.5, -2, 3, 1e-3};
static const check_case wild_cases[] = {
#define WILD(i)                                                                                    \
    {                                                                                              \
        "all pairs", 2, {{{2, {8, 1}}, .values = wild}, {{1, {8}}, .values = wild}}, &ops[i],      \
            .no_grad = true                                                                        \
    }
    WILD(0), WILD(1), WILD(2), WILD(3), WILD(5), WILD(6), WILD(7),
};

/* A quotient that does not fit the mantissa must not spoil the remainder. */
static const double     mod_a[] = {7, -7, 7, -7, 1e10, -1e10, 123456789, 5.5, -5.5, 0, -6, 6};
static const double     mod_b[] = {3, 3, -3, -3, 3, 3, -0.75, 2, 2, 5, 3, -3};
static const check_case mod_cases[] = {
    {"signs and large quotients",
     2,
     {{{1, {12}}, .values = mod_a}, {{1, {12}}, .values = mod_b}},
     &ops[4],
     .no_grad = true},
};

/* ---- i32: wraps, floors, gives 0 for a division by 0 ----------------------------------------- */

static double wrap(int64_t x) { return (int32_t)(uint32_t)(uint64_t)x; }
static double i_add(double a, double b) { return wrap((int64_t)a + (int64_t)b); }
static double i_sub(double a, double b) { return wrap((int64_t)a - (int64_t)b); }
static double i_mul(double a, double b) { return wrap((int64_t)a * (int64_t)b); }
static double i_div(double a, double b) { return b == 0 ? 0 : wrap((int64_t)floor(a / b)); }
static double i_mod(double a, double b) { return b == 0 ? 0 : mod(a, b); }

static const double i32_wild[] = {INT32_MIN, INT32_MIN + 1, -8, -7, -3, -1, 0, 1, 3, 7,
                                  8,         INT32_MAX};
static const args   i32_ops[] = {
      {"add", dra_add, i_add},        {"sub", dra_sub, i_sub}, {"mul", dra_mul, i_mul},
      {"div", dra_div, i_div},        {"mod", dra_mod, i_mod}, {"minimum", dra_minimum, fmin},
      {"maximum", dra_maximum, fmax},
};

/* ---- second derivatives ---------------------------------------------------------------------- */

/* d/da of sum(op(a, b)) as an op of its own: the harness then differentiates it once more. */
static void build_slope(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const dra_value y = dra_sum_all(g, ((const args *)a)->op(g, in[0], in[1]));
    dra_gradient(g, 1, &y, NULL, 1, in, out);
}

static double mul_slope(double a, double b) { return b; }
static double div_slope(double a, double b) { return 1 / b; }
static double pow_slope(double a, double b) { return b * pow(a, b - 1); }

static const args slopes[] = {
    {"mul", dra_mul, mul_slope}, {"div", dra_div, div_slope}, {"pow", dra_pow, pow_slope}};
static const check_case slope_cases[] = {
#define SLOPE(i)                                                                                   \
    {                                                                                              \
        "second derivative", 2,                                                                    \
            {{{2, {3, 5}}, .lo = 0.5, .hi = 2}, {{2, {3, 5}}, .lo = 0.5, .hi = 2}}, &slopes[i]     \
    }
    SLOPE(0),
    SLOPE(1),
    SLOPE(2),
};

/* ---- affine ---------------------------------------------------------------------------------- */

static void build_affine(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const double *s = a;
    out[0] = dra_affine(g, in[0], s[0], s[1]);
}

static void oracle_affine(const void *a, const check_tensor *in, check_tensor *out)
{
    const double *s = a;
    for (int64_t i = 0; i < out->count; i++) out->at[i] = s[0] * in->at[i] + s[1];
}

static const double     st[][2] = {{2, 3}, {-0.5, 0}, {0, 7}, {1e6, -1e6}};
static const check_case affine_cases[] = {
    {"odd width", 1, {{{3, {2, 3, 17}}}}, st[0]},  {"scalar", 1, {{{0}}}, st[1]},
    {"nothing", 1, {{{2, {3, 0}}}}, st[0]},        {"slope 0", 1, {{{1, {5}}}}, st[2]},
    {"large numbers", 1, {{{2, {4, 33}}}}, st[3]}, {"several tiles", 1, {{{2, {130, 257}}}}, st[0]},
};

/* ---- gradients at the edges ------------------------------------------------------------------ */

typedef struct pair_gradient {
    dra_real da[8], db[8];
} pair_gradient;

static pair_gradient gradient_at(const args *op, int n, dra_real *a, dra_real *b)
{
    dra_graph      *g = check_graph();
    const dra_shape shape = {1, {n}};
    dra_value       x[] = {check_real(g, "a", shape), check_real(g, "b", shape)}, dx[2];
    dra_value       y = op->op(g, x[0], x[1]), up = check_real(g, "up", shape);
    dra_gradient(g, 1, &y, &up, 2, x, dx);
    dra_output(g, "da", dx[0]);
    dra_output(g, "db", dx[1]);
    check_program p = check_compile(g, 1);
    const size_t  bytes = (size_t)n * sizeof *a;
    dra_real      ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    check_bind(&p, "a", a, bytes);
    check_bind(&p, "b", b, bytes);
    check_bind(&p, "up", ones, bytes);
    check_run(&p);
    pair_gradient d = {{0}, {0}};
    for (int i = 0; i < n; i++) {
        d.da[i] = check_result(&p, "da")[i];
        d.db[i] = check_result(&p, "db")[i];
    }
    check_free(&p);
    return d;
}

static void ties_go_to_a(void **state)
{
    for (size_t i = 6; i < 8; i++) {
        dra_real            a[] = {1, 0, -2}, b[] = {1, 0, -2};
        const pair_gradient d = gradient_at(&ops[i], 3, a, b);
        check_close("da", 3, d.da, (double[]){1, 1, 1}, 0);
        check_close("db", 3, d.db, (double[]){0, 0, 0}, 0);
    }
}

static void mod_has_no_gradient_in_b(void **state)
{
    dra_real            a[] = {7, -7}, b[] = {3, 3};
    const pair_gradient d = gradient_at(&ops[4], 2, a, b);
    check_close("da", 2, d.da, (double[]){1, 1}, 0);
    check_close("db", 2, d.db, (double[]){0, 0}, 0);
}

static void pow_has_slopes_at_zero(void **state) /* 0^0 = 1 whatever a: no slope in a */
{
    dra_real            a[] = {0, 0, 0, -2}, b[] = {0, 1, 2, 3};
    const pair_gradient d = gradient_at(&ops[5], 4, a, b);
    check_close("da", 4, d.da, (double[]){0, 1, 0, 12}, 0);
    check_close("db", 3, d.db, (double[]){0, 0, 0}, 0);
}

static void takes_one_value_twice(void **state) /* y = x x, in place if it can: dx = 2 x */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3)), dx;
    dra_value  e = dra_affine(g, x, 1, 0), y = dra_mul(g, e, e), sum = dra_sum_all(g, y);
    dra_gradient(g, 1, &sum, NULL, 1, &x, &dx);
    dra_output(g, "y", y);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 2);
    dra_real      data[] = {3, -4, 5};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("y", 3, check_result(&p, "y"), (double[]){9, 16, 25}, 0);
    check_close("dx", 3, check_result(&p, "dx"), (double[]){6, -8, 10}, 0);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_shapes_that_do_not_broadcast(void **state)
{
    for (size_t i = 0; i < COUNT(ops); i++) {
        char       text[96];
        dra_graph *g = check_graph();
        dra_value  a = check_real(g, "a", DRA_SHAPE(2, 3)), b = check_real(g, "b", DRA_SHAPE(2));
        snprintf(text, sizeof text, "%s: " REAL " (2, 3) and " REAL " (2) do not broadcast",
                 ops[i].name);
        assert_int_equal(ops[i].op(g, a, b).id, 0);
        check_refused(g, DRA_ERR_SHAPE, text);
    }
}

static void refuses_two_dtypes(void **state)
{
    dra_graph *g = check_graph();
    dra_value  a = dra_input(g, "a", DRA_I32, DRA_SHAPE(3)), b = check_real(g, "b", DRA_SHAPE(1));
    assert_int_equal(dra_add(g, a, b).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "add: a i32 (3) and b " REAL " (3) do not fit");
}

static void refuses_other_dtypes(void **state)
{
    for (size_t i = 0; i < COUNT(ops); i++) {
        char       text[96];
        dra_graph *g = check_graph();
        dra_value  a = dra_input(g, "a", DRA_BOOL, DRA_SHAPE(3));
        snprintf(text, sizeof text, "%s: a is bool, expected " REAL, ops[i].name);
        assert_int_equal(ops[i].op(g, a, a).id, 0);
        check_refused(g, DRA_ERR_DTYPE, text);
    }
    dra_graph *g = check_graph();
    dra_value  a = dra_input(g, "a", DRA_I32, DRA_SHAPE(3));
    assert_int_equal(dra_pow(g, a, a).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "pow: a is i32, expected " REAL);
    g = check_graph();
    assert_int_equal(dra_affine(g, dra_integer(g, 3), 2, 1).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "affine: input 0 is i32 (), expected " REAL);
}

static void refuses_null(void **state)
{
    for (size_t i = 0; i < COUNT(ops); i++) {
        char       text[96];
        dra_graph *g = check_graph();
        snprintf(text, sizeof text, "%s: input 1 is the null value", ops[i].name);
        assert_int_equal(ops[i].op(g, dra_number(g, 1), (dra_value){0}).id, 0);
        assert_int_equal(ops[i].op(g, dra_number(g, 1), dra_number(g, 2)).id, 0);
        check_refused(g, DRA_ERR_VALUE, text);
    }
}

/* ---- all ops over all pairs of shapes -------------------------------------------------------- */

static check_case pair_cases[COUNT(ops) * COUNT(pairs)];
static char       pair_names[COUNT(ops) * COUNT(pairs)][64];
static check_case i32_cases[COUNT(i32_ops) * (COUNT(pairs) + 1)];
static char       i32_names[COUNT(i32_ops) * (COUNT(pairs) + 1)][64];

/* Among many random pairs one is always within a step of a = b, the kink of minimum and maximum:
 * there the ranges are kept apart. */
static void fill_pairs(void)
{
    size_t n = 0;
    for (size_t i = 0; i < COUNT(ops); i++) {
        for (size_t k = 0; k < COUNT(pairs); k++, n++) {
            const args *o = &ops[i];
            const bool  many = pairs[k].a.dim[0] > 100 && o->b_lo == o->a_lo;
            snprintf(pair_names[n], sizeof pair_names[n], "%s, %s", o->name, pairs[k].name);
            pair_cases[n] = (check_case){pair_names[n],
                                         2,
                                         {{pairs[k].a, .lo = o->a_lo, .hi = many ? -0.1 : o->a_hi},
                                          {pairs[k].b, .lo = many ? 0.1 : o->b_lo, .hi = o->b_hi,
                                           .constant = o->b_constant}},
                                         o};
        }
    }
}

static void fill_i32(void)
{
    size_t n = 0;
    for (size_t i = 0; i < COUNT(i32_ops); i++) {
        for (size_t k = 0; k <= COUNT(pairs); k++, n++) {
            const bool special = k == COUNT(pairs);
            snprintf(i32_names[n], sizeof i32_names[n], "%s, %s", i32_ops[i].name,
                     special ? "extremes" : pairs[k].name);
            i32_cases[n] = (check_case){i32_names[n], 2, {{{0}}}, &i32_ops[i]};
            check_input *in = i32_cases[n].in;
            in[0] = special ? (check_input){{2, {12, 1}}, CHECK_I32, .values = i32_wild}
                            : (check_input){pairs[k].a, CHECK_I32, .lo = -99, .hi = 99};
            in[1] = special ? (check_input){{1, {12}}, CHECK_I32, .values = i32_wild}
                            : (check_input){pairs[k].b, CHECK_I32, .lo = -9, .hi = 9};
            i32_cases[n].tol = 1e-15; /* integers are exact; 0 would mean the usual */
        }
    }
}

int main(void)
{
    fill_pairs();
    fill_i32();
    const check_spec specs[] = {
        {"real", 1, build, oracle, pair_cases, COUNT(pair_cases)},
        {"i32", 1, build, oracle, i32_cases, COUNT(i32_cases)},
        {"wild", 1, build, oracle, wild_cases, COUNT(wild_cases)},
        {"mod", 1, build, oracle, mod_cases, COUNT(mod_cases)},
        {"slope", 1, build_slope, oracle, slope_cases, COUNT(slope_cases)},
        {"affine", 1, build_affine, oracle_affine, affine_cases, COUNT(affine_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_go_to_a),
        cmocka_unit_test(mod_has_no_gradient_in_b),
        cmocka_unit_test(pow_has_slopes_at_zero),
        cmocka_unit_test(takes_one_value_twice),
        cmocka_unit_test(refuses_shapes_that_do_not_broadcast),
        cmocka_unit_test(refuses_two_dtypes),
        cmocka_unit_test(refuses_other_dtypes),
        cmocka_unit_test(refuses_null),
    };
    return check_main("binary", specs, COUNT(specs), tests, COUNT(tests));
}
