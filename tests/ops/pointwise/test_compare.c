/* Comparisons of reals and i32, and logic on bools, over every kind of broadcast. */
#include "pointwise.h"

#include <math.h>
#include <stdio.h>

typedef struct args {
    const char *name;
    dra_value (*op)(dra_graph *g, dra_value a, dra_value b);
    bool (*f)(double a, double b);
} args;

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = ((const args *)a)->op(g, in[0], in[1]);
    if (dra_graph_error(g)->code == DRA_OK) assert_int_equal(dra_dtype_of(g, out[0]), DRA_BOOL);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->at[i] = ((const args *)a)
                         ->f(broadcast_at(&in[0], out, i), broadcast_at(&in[1], out, i));
}

static bool equal(double a, double b) { return a == b; }
static bool not_equal(double a, double b) { return a != b; }
static bool less(double a, double b) { return a < b; }
static bool less_equal(double a, double b) { return a <= b; }
static bool greater(double a, double b) { return a > b; }
static bool greater_equal(double a, double b) { return a >= b; }
static bool both(double a, double b) { return a != 0 && b != 0; }
static bool either(double a, double b) { return a != 0 || b != 0; }

static const args compare_ops[] = {
    {"equal", dra_equal, equal},       {"not_equal", dra_not_equal, not_equal},
    {"less", dra_less, less},          {"less_equal", dra_less_equal, less_equal},
    {"greater", dra_greater, greater}, {"greater_equal", dra_greater_equal, greater_equal},
};
static const args logic_ops[] = {{"and", dra_and, both}, {"or", dra_or, either}};

/* Few values, so that ties are common; NaN is unequal to all, -0 equals 0. */
static const double real_values[] = {NAN, -INFINITY, -1.5, -0.0, 0, 1, 1 + 0x1p-20, INFINITY};
static const double i32_values[] = {INT32_MIN, -2, -1, 0, 1, 16777216, 16777217, INT32_MAX};
static const double bool_values[] = {0, 1};

static check_case real_cases[COUNT(compare_ops) * (COUNT(pairs) + 1)];
static check_case i32_cases[COUNT(compare_ops) * (COUNT(pairs) + 1)];
static check_case logic_cases[COUNT(logic_ops) * (COUNT(pairs) + 1)];
static char       names[3][COUNT(compare_ops) * (COUNT(pairs) + 1)][64];

/* All ops over all pairs of shapes, then all pairs of `n` special values. */
static void fill(check_case *cases, char (*name)[64], size_t n_ops, const args *ops,
                 check_input like, int64_t n, const double *special)
{
    size_t at = 0;
    for (size_t i = 0; i < n_ops; i++) {
        for (size_t k = 0; k <= COUNT(pairs); k++, at++) {
            const bool all = k == COUNT(pairs);
            snprintf(name[at], sizeof name[at], "%s, %s", ops[i].name,
                     all ? "special values" : pairs[k].name);
            cases[at] = (check_case){name[at], 2, {like, like}, &ops[i], .no_grad = true};
            cases[at].in[0].shape = all ? (dra_shape){2, {n, 1}} : pairs[k].a;
            cases[at].in[1].shape = all ? (dra_shape){1, {n}} : pairs[k].b;
            if (all) cases[at].in[0].values = cases[at].in[1].values = special;
        }
    }
}

/* ---- not ------------------------------------------------------------------------------------- */

static void build_not(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_not(g, in[0]);
}

static void oracle_not(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++) out->at[i] = in->at[i] == 0;
}

static const check_case not_cases[] = {
    {"odd width", 1, {{{3, {2, 3, 17}}, CHECK_BOOL}}},
    {"scalar", 1, {{{0}, CHECK_BOOL}}},
    {"nothing", 1, {{{2, {0, 8}}, CHECK_BOOL}}},
    {"several tiles", 1, {{{2, {130, 257}}, CHECK_BOOL}}},
};

/* ---- what a caller's bool may be, gradients, refused inputs ---------------------------------- */

static void takes_any_byte_for_true(void **state)
{
    dra_graph *g = check_graph();
    dra_value  a = dra_input(g, "a", DRA_BOOL, DRA_SHAPE(4));
    dra_value  b = dra_input(g, "b", DRA_BOOL, DRA_SHAPE(4));
    dra_output(g, "and", dra_and(g, a, b));
    dra_output(g, "or", dra_or(g, a, b));
    dra_output(g, "not", dra_not(g, a));
    check_program p = check_compile(g, 1);
    uint8_t       av[] = {0, 2, 255, 0}, bv[] = {0, 1, 0, 4};
    check_bind(&p, "a", av, sizeof av);
    check_bind(&p, "b", bv, sizeof bv);
    check_run(&p);
    assert_memory_equal(check_result_of(&p, "and"), ((uint8_t[]){0, 1, 0, 0}), 4);
    assert_memory_equal(check_result_of(&p, "or"), ((uint8_t[]){0, 1, 1, 1}), 4);
    assert_memory_equal(check_result_of(&p, "not"), ((uint8_t[]){1, 0, 0, 1}), 4);
    check_free(&p);
}

static void stops_gradients(void **state) /* y = (x > 0) as real, times x: dx = (x > 0) */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3)), dx;
    dra_value  positive = dra_cast(g, dra_greater(g, x, dra_number(g, 0)), DRA_REAL);
    dra_value  y = dra_sum_all(g, dra_mul(g, positive, x));
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {-1, 2, 0};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("dx", 3, check_result(&p, "dx"), (double[]){0, 1, 0}, 0);
    check_free(&p);
}

static void refuses_dtypes(void **state)
{
    dra_graph *g = check_graph();
    dra_value  a = check_real(g, "a", DRA_SHAPE(2)), b = dra_input(g, "b", DRA_I32, DRA_SHAPE(2));
    assert_int_equal(dra_less(g, a, b).id, 0);
    check_refused(g, DRA_ERR_DTYPE,
                  "less: a " REAL " (2) and b i32 (2), expected two of " REAL " or i32");
    g = check_graph();
    a = dra_input(g, "a", DRA_BF16, DRA_SHAPE(2));
    assert_int_equal(dra_equal(g, a, a).id, 0);
    check_refused(g, DRA_ERR_DTYPE,
                  "equal: a bf16 (2) and b bf16 (2), expected two of " REAL " or i32");
    g = check_graph();
    a = dra_input(g, "a", DRA_BOOL, DRA_SHAPE(2));
    assert_int_equal(dra_and(g, a, check_real(g, "b", DRA_SHAPE(2))).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "and: b is " REAL ", expected bool");
    g = check_graph();
    assert_int_equal(dra_or(g, dra_integer(g, 1), dra_integer(g, 1)).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "or: a is i32, expected bool");
    g = check_graph();
    assert_int_equal(dra_not(g, dra_number(g, 1)).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "not: a is " REAL ", expected bool");
}

static void refuses_shapes(void **state)
{
    for (size_t i = 0; i < COUNT(compare_ops); i++) {
        char       text[96];
        dra_graph *g = check_graph();
        dra_value  a = check_real(g, "a", DRA_SHAPE(2)), b = check_real(g, "b", DRA_SHAPE(3));
        snprintf(text, sizeof text, "%s: " REAL " (2) and " REAL " (3) do not broadcast",
                 compare_ops[i].name);
        assert_int_equal(compare_ops[i].op(g, a, b).id, 0);
        check_refused(g, DRA_ERR_SHAPE, text);
    }
}

static void refuses_null(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_less(g, (dra_value){0}, dra_number(g, 1)).id, 0);
    check_refused(g, DRA_ERR_VALUE, "less: input 0 is the null value");
    g = check_graph();
    assert_int_equal(dra_not(g, (dra_value){0}).id, 0);
    check_refused(g, DRA_ERR_VALUE, "not: input 0 is the null value");
}

int main(void)
{
    const check_input real = {{0}, CHECK_REAL}, i32 = {{0}, CHECK_I32}, flag = {{0}, CHECK_BOOL};
    fill(real_cases, names[0], COUNT(compare_ops), compare_ops, real, 8, real_values);
    fill(i32_cases, names[1], COUNT(compare_ops), compare_ops, i32, 8, i32_values);
    fill(logic_cases, names[2], COUNT(logic_ops), logic_ops, flag, 2, bool_values);
    const check_spec specs[] = {
        {"real", 1, build, oracle, real_cases, COUNT(real_cases)},
        {"i32", 1, build, oracle, i32_cases, COUNT(i32_cases)},
        {"logic", 1, build, oracle, logic_cases, COUNT(logic_cases)},
        {"not", 1, build_not, oracle_not, not_cases, COUNT(not_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_any_byte_for_true),
        cmocka_unit_test(stops_gradients),
        cmocka_unit_test(refuses_dtypes),
        cmocka_unit_test(refuses_shapes),
        cmocka_unit_test(refuses_null),
    };
    return check_main("compare", specs, COUNT(specs), tests, COUNT(tests));
}
