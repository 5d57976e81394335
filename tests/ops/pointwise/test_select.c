/* select: where ? a : b with all three broadcast. clamp: min(max(x, lo), hi). */
#include "pointwise.h"

#include <math.h>

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_select(g, in[0], in[1], in[2]);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->at[i] = broadcast_at(&in[broadcast_at(&in[0], out, i) != 0 ? 1 : 2], out, i);
}

#define SELECT(name, where, a, b)                                                                  \
    {                                                                                              \
        name, 3,                                                                                   \
        {                                                                                          \
            {where, CHECK_BOOL}, {a}, { b }                                                        \
        }                                                                                          \
    }
#define S(...)                                                                                     \
    {                                                                                              \
        COUNT(((int64_t[]){__VA_ARGS__})), { __VA_ARGS__ }                                         \
    }

static const check_case select_cases[] = {
    SELECT("same shape", S(2, 3, 17), S(2, 3, 17), S(2, 3, 17)),
    SELECT("where is a row", S(17), S(2, 3, 17), S(2, 3, 17)),
    SELECT("where is a column", S(3, 1), S(3, 5), S(3, 5)),
    SELECT("where is the largest", S(4, 3, 5), S(5), S(3, 1)),
    SELECT("where is a scalar", {0}, S(3, 5), S(3, 5)),
    SELECT("values are scalars", S(3, 5), {0}, {0}),
    SELECT("all scalars", {0}, {0}, {0}),
    SELECT("each has an axis of its own", S(4, 1, 1), S(1, 3, 1), S(1, 1, 5)),
    SELECT("rank 6", S(2, 1, 2, 1, 3, 1), S(3, 2), S(1, 2, 1, 2, 1, 2)),
    SELECT("one element", S(1), S(7), S(1)),
    SELECT("nothing", S(0, 8), S(0, 8), S(8)),
    SELECT("where is empty", S(0, 1), S(1, 8), S(8)),
    SELECT("several tiles", S(130, 257), S(257), S(130, 1)),
};

/* Other dtypes move as they are. */
#define DTYPE(name, dtype, ...)                                                                    \
    {                                                                                              \
        name, 3,                                                                                   \
        {                                                                                          \
            {S(5, 1), CHECK_BOOL}, {S(5, 7), dtype, __VA_ARGS__}, { S(7), dtype, __VA_ARGS__ }     \
        }                                                                                          \
    }

static const check_case dtype_cases[] = {
    DTYPE("i32", CHECK_I32, .lo = -1e9, .hi = 1e9),
    DTYPE("bool", CHECK_BOOL, .lo = 0),
    DTYPE("bf16", CHECK_BF16, .lo = -9, .hi = 9),
    DTYPE("f16", CHECK_F16, .lo = -9, .hi = 9),
};

/* The side that is not taken may be anything. */
static const double     chosen[] = {1, 0, 1, 0}, left[] = {1, NAN, NAN, INFINITY};
static const double     right[] = {NAN, 2, 3, NAN};
static const check_case nan_cases[] = {
    {"NaN on either side",
     3,
     {{S(4), CHECK_BOOL, .values = chosen}, {S(4), .values = left}, {S(4), .values = right}},
     .no_grad = true},
};

/* ---- clamp ----------------------------------------------------------------------------------- */

typedef struct range {
    double lo, hi;
} range;

static void build_clamp(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_clamp(g, in[0], ((const range *)a)->lo, ((const range *)a)->hi);
}

static void oracle_clamp(const void *a, const check_tensor *in, check_tensor *out)
{
    const range *r = a;
    for (int64_t i = 0; i < out->count; i++)
        out->at[i] = isnan(in->at[i]) ? NAN : fmin(fmax(in->at[i], r->lo), r->hi);
}

static const range      ranges[] = {{-0.5, 0.5}, {-INFINITY, 0.25}, {0.5, 0.5}, {-2, INFINITY}};
static const double     odd[] = {NAN, INFINITY, -INFINITY, 0, -0.5, 0.5, -0.75, 1e30};
static const check_case clamp_cases[] = {
    {"odd width", 1, {{S(2, 3, 17)}}, &ranges[0]},
    {"scalar", 1, {{{0}}}, &ranges[0]},
    {"one side", 1, {{S(3, 5)}}, &ranges[1]},
    {"one value", 1, {{S(3, 5)}}, &ranges[2]},
    {"nothing", 1, {{S(0, 8)}}, &ranges[0]},
    {"several tiles", 1, {{S(130, 257), .lo = 0.6, .hi = 3}}, &ranges[3]},
    {"special values", 1, {{S(8), .values = odd}}, &ranges[0], .no_grad = true},
    {"special values, one side", 1, {{S(8), .values = odd}}, &ranges[3], .no_grad = true},
};

static void clamp_has_no_gradient_outside(void **state) /* at the ends it passes */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(6)), dx;
    dra_value  y = dra_sum_all(g, dra_clamp(g, x, -1, 2));
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {-3, -1, 0, 2, 3, (dra_real)NAN};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("dx", 6, check_result(&p, "dx"), (double[]){0, 1, 1, 1, 0, 0}, 0);
    check_free(&p);
}

/* ---- gradients of narrow values, refused inputs ---------------------------------------------- */

static void passes_gradients_to_bf16(void **state)
{
    dra_graph *g = check_graph();
    dra_value  where = dra_input(g, "where", DRA_BOOL, DRA_SHAPE(3));
    dra_value  x[] = {dra_input(g, "a", DRA_BF16, DRA_SHAPE(3)),
                      dra_input(g, "b", DRA_BF16, DRA_SHAPE(1))};
    dra_value  y = dra_sum_all(g, dra_cast(g, dra_select(g, where, x[0], x[1]), DRA_REAL)), dx[2];
    dra_gradient(g, 1, &y, NULL, 2, x, dx);
    dra_output(g, "da", dx[0]);
    dra_output(g, "db", dx[1]);
    check_program p = check_compile(g, 1);
    uint8_t       wv[] = {1, 0, 0};
    uint16_t      av[] = {0x3f80, 0x3f80, 0x3f80}, bv[] = {0x4000};
    check_bind(&p, "where", wv, sizeof wv);
    check_bind(&p, "a", av, sizeof av);
    check_bind(&p, "b", bv, sizeof bv);
    check_run(&p);
    check_close("da", 3, check_result(&p, "da"), (double[]){1, 0, 0}, 0);
    check_close("db", 1, check_result(&p, "db"), (double[]){2}, 0);
    check_free(&p);
}

static void refuses_select(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2));
    assert_int_equal(dra_select(g, x, x, x).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "select: where is " REAL ", expected bool");
    g = check_graph();
    dra_value where = dra_input(g, "w", DRA_BOOL, DRA_SHAPE(2));
    x = check_real(g, "x", DRA_SHAPE(2));
    assert_int_equal(dra_select(g, where, x, dra_integer(g, 1)).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "select: a " REAL " (2) and b i32 (2) are of two dtypes");
    g = check_graph();
    where = dra_input(g, "w", DRA_BOOL, DRA_SHAPE(3));
    x = check_real(g, "x", DRA_SHAPE(2));
    assert_int_equal(dra_select(g, where, x, x).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "select: bool (3) and " REAL " (2) do not broadcast");
    g = check_graph();
    where = dra_input(g, "w", DRA_BOOL, DRA_SHAPE(3));
    assert_int_equal(
        dra_select(g, where, check_real(g, "a", DRA_SHAPE(2)), check_real(g, "b", DRA_SHAPE(3))).id,
        0);
    check_refused(g, DRA_ERR_SHAPE, "select: " REAL " (2) and " REAL " (3) do not broadcast");
    g = check_graph();
    where = dra_input(g, "w", DRA_BOOL, DRA_SHAPE(3));
    assert_int_equal(dra_select(g, where, dra_number(g, 0), (dra_value){0}).id, 0);
    check_refused(g, DRA_ERR_VALUE, "select: input 2 is the null value");
}

static void refuses_clamp(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_clamp(g, dra_number(g, 1), 2, 1).id, 0);
    check_refused(g, DRA_ERR_VALUE, "clamp: lo 2 is not at most hi 1");
    g = check_graph();
    assert_int_equal(dra_clamp(g, dra_number(g, 1), NAN, 1).id, 0);
    check_refused(g, DRA_ERR_VALUE, "clamp: lo nan is not at most hi 1");
    g = check_graph();
    assert_int_equal(dra_clamp(g, dra_integer(g, 1), 0, 1).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "clamp: input 0 is i32 (), expected " REAL);
    g = check_graph();
    assert_int_equal(dra_clamp(g, (dra_value){0}, 0, 1).id, 0);
    check_refused(g, DRA_ERR_VALUE, "clamp: input 0 is the null value");
}

int main(void)
{
    const check_spec specs[] = {
        {"select", 1, build, oracle, select_cases, COUNT(select_cases)},
        {"select", 1, build, oracle, dtype_cases, COUNT(dtype_cases)},
        {"select", 1, build, oracle, nan_cases, COUNT(nan_cases)},
        {"clamp", 1, build_clamp, oracle_clamp, clamp_cases, COUNT(clamp_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clamp_has_no_gradient_outside),
        cmocka_unit_test(passes_gradients_to_bf16),
        cmocka_unit_test(refuses_select),
        cmocka_unit_test(refuses_clamp),
    };
    return check_main("select", specs, COUNT(specs), tests, COUNT(tests));
}
