/* concat along each axis, pad along each axis, in every dtype. */
#include "ops/pointwise/pointwise.h"

#include <math.h>

#define S(...)                                                                                     \
    {                                                                                              \
        COUNT(((int64_t[]){__VA_ARGS__})), { __VA_ARGS__ }                                         \
    }

typedef struct args {
    int     n, axis; /* concat: how many */
    int64_t before, after;
    double  fill;
} args;

/* Sizes before, along and after an axis. */
typedef struct split {
    int64_t outer, size, inner;
} split;

static split split_at(const check_tensor *t, int axis)
{
    split s = {1, 1, 1};
    if (axis < 0) axis += t->shape.rank;
    for (int32_t i = 0; i < t->shape.rank; i++)
        *(i < axis ? &s.outer : i == axis ? &s.size : &s.inner) *= t->shape.dim[i];
    return s;
}

/* ---- concat ---------------------------------------------------------------------------------- */

static void build_concat(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_concat(g, ((const args *)a)->n, in, ((const args *)a)->axis);
}

static void oracle_concat(const void *a, const check_tensor *in, check_tensor *out)
{
    const args *k = a;
    const split y = split_at(out, k->axis);
    int64_t     start = 0;
    for (int i = 0; i < k->n; i++) {
        const split x = split_at(&in[i], k->axis);
        for (int64_t o = 0; o < x.outer; o++)
            for (int64_t r = 0; r < x.size; r++)
                for (int64_t c = 0; c < x.inner; c++)
                    out->at[(o * y.size + start + r) * y.inner + c] =
                        in[i].at[(o * x.size + r) * x.inner + c];
        start += x.size;
    }
}

static const args one[] = {{1, 0}, {1, -1}}, two[] = {{2, 0}, {2, 1}, {2, 2}, {2, -1}, {2, -3}};
static const args three[] = {{3, 0}, {3, 1}, {3, 2}, {3, 5}}, six = {6, 0};

static const check_case concat_cases[] = {
    {"one", 1, {{S(2, 3)}}, &one[0]},
    {"one, last axis", 1, {{S(2, 3)}}, &one[1]},
    {"two, axis 0", 2, {{S(2, 3, 5)}, {S(4, 3, 5)}}, &two[0]},
    {"two, axis 1", 2, {{S(2, 3, 5)}, {S(2, 1, 5)}}, &two[1]},
    {"two, axis 2", 2, {{S(2, 3, 5)}, {S(2, 3, 7)}}, &two[2]},
    {"two, last axis", 2, {{S(17)}, {S(1)}}, &two[3]},
    {"two, first axis from the end", 2, {{S(2, 3, 5)}, {S(1, 3, 5)}}, &two[4]},
    {"three, axis 0", 3, {{S(1, 3)}, {S(5, 3)}, {S(2, 3)}}, &three[0]},
    {"three, axis 1", 3, {{S(3, 1)}, {S(3, 5)}, {S(3, 2)}}, &three[1]},
    {"three, axis 2", 3, {{S(2, 2, 1)}, {S(2, 2, 3)}, {S(2, 2, 2)}}, &three[2]},
    {"three, rank 6",
     3,
     {{S(2, 1, 2, 1, 2, 3)}, {S(2, 1, 2, 1, 2, 1)}, {S(2, 1, 2, 1, 2, 2)}},
     &three[3]},
    {"six", 6, {{S(1, 2)}, {S(2, 2)}, {S(1, 2)}, {S(3, 2)}, {S(1, 2)}, {S(1, 2)}}, &six},
    {"an empty part first", 3, {{S(0, 3)}, {S(2, 3)}, {S(1, 3)}}, &three[0]},
    {"an empty part between", 3, {{S(3, 2)}, {S(3, 0)}, {S(3, 1)}}, &three[1]},
    {"empty parts only", 3, {{S(0, 3)}, {S(0, 3)}, {S(0, 3)}}, &three[0]},
    {"empty outside the axis", 2, {{S(0, 3)}, {S(0, 2)}}, &two[1]},
    {"several tiles", 2, {{S(70, 3, 2)}, {S(70, 4, 2)}}, &two[1]},
    {"long parts", 3, {{S(65, 129)}, {S(1, 129)}, {S(200, 129)}}, &three[0]},
};

/* A part whose memory is in another order, and one that is repeated, keep their places. */
static void build_views(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const dra_value parts[] = {dra_transpose(g, in[0], 0, 2), dra_slice(g, in[1], 2, 1, 5),
                               dra_broadcast(g, in[2], (dra_shape)S(2, 3, 5))};
    out[0] = dra_concat(g, 3, parts, 1);
}

static void oracle_views(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t o = 0; o < 2; o++)
        for (int64_t r = 0; r < 9; r++)
            for (int64_t c = 0; c < 5; c++)
                out->at[(o * 9 + r) * 5 + c] = r < 3   ? in[0].at[(c * 3 + r) * 2 + o]
                                               : r < 6 ? in[1].at[(o * 3 + r - 3) * 7 + c + 1]
                                                       : in[2].at[c];
}

static const check_case view_cases[] = {
    {"parts are views", 3, {{S(5, 3, 2)}, {S(2, 3, 7)}, {S(5)}}},
};

#define CONCAT(name, dtype, l, h)                                                                  \
    {                                                                                              \
        name, 3,                                                                                   \
            {{S(3, 4), dtype, .lo = l, .hi = h},                                                   \
             {S(3, 1), dtype, .lo = l, .hi = h},                                                   \
             {S(3, 3), dtype, .lo = l, .hi = h}},                                                  \
            &three[1]                                                                              \
    }

static const check_case dtype_cases[] = {
    CONCAT("i32", CHECK_I32, -1e9, 1e9),
    CONCAT("bool", CHECK_BOOL, 0, 0),
    CONCAT("bf16", CHECK_BF16, -9, 9),
    CONCAT("f16", CHECK_F16, -9, 9),
};

/* ---- pad ------------------------------------------------------------------------------------- */

static void build_pad(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const args *k = a;
    out[0] = dra_pad(g, in[0], k->axis, k->before, k->after, k->fill);
}

static void oracle_pad(const void *a, const check_tensor *in, check_tensor *out)
{
    const args *k = a;
    const split x = split_at(in, k->axis), y = split_at(out, k->axis);
    for (int64_t o = 0; o < y.outer; o++)
        for (int64_t r = 0; r < y.size; r++)
            for (int64_t c = 0; c < y.inner; c++) {
                const int64_t row = r - k->before;
                out->at[(o * y.size + r) * y.inner + c] =
                    row < 0 || row >= x.size ? k->fill : in->at[(o * x.size + row) * x.inner + c];
            }
}

static const args pads[] = {
    {0, 0, 2, 0, 0},         {0, 0, 0, 3, 7},   {0, 1, 1, 2, -0.5},
    {0, 2, 3, 1, 0.25},      {0, -1, 0, 70, 1}, {0, 0, 0, 0, 9},
    {0, 1, 4, 4, -INFINITY}, {0, 5, 1, 1, 2},   {0, 0, 65, 129, 3},
};

static const check_case pad_cases[] = {
    {"before", 1, {{S(3, 5)}}, &pads[0]},
    {"after", 1, {{S(3, 5)}}, &pads[1]},
    {"axis 1, both", 1, {{S(2, 3, 5)}}, &pads[2]},
    {"axis 2, both", 1, {{S(2, 3, 5)}}, &pads[3]},
    {"one axis", 1, {{S(17)}}, &pads[4]},
    {"nothing new", 1, {{S(3, 5)}}, &pads[5]},
    {"with infinities", 1, {{S(3, 2)}}, &pads[6], .no_grad = true},
    {"rank 6", 1, {{S(1, 2, 1, 2, 2, 3)}}, &pads[7]},
    {"of nothing", 1, {{S(0, 5)}}, &pads[0]},
    {"of nothing outside the axis", 1, {{S(3, 0)}}, &pads[1]},
    {"several tiles", 1, {{S(30, 33)}}, &pads[8]},
};

static const args       narrow_pads[] = {{0, 1, 1, 2, -3}, {0, 1, 1, 2, 1}, {0, 1, 2, 1, 0.5}};
static const check_case pad_dtype_cases[] = {
    {"i32", 1, {{S(3, 4), CHECK_I32, .lo = -1e9, .hi = 1e9}}, &narrow_pads[0]},
    {"bool", 1, {{S(3, 4), CHECK_BOOL}}, &narrow_pads[1]},
    {"bf16", 1, {{S(3, 4), CHECK_BF16, .lo = -9, .hi = 9}}, &narrow_pads[2]},
    {"f16", 1, {{S(3, 4), CHECK_F16, .lo = -9, .hi = 9}}, &narrow_pads[2]},
};

/* The fill becomes the dtype as dra_cast() would: i32 truncates and saturates, NaN is 0. */
static void fills_as_a_cast_does(void **state)
{
    const double  fill[] = {2.9, -2.9, 1e30, -1e30, NAN, INFINITY};
    const int32_t want[] = {2, -2, INT32_MAX, INT32_MIN, 0, INT32_MAX};
    for (size_t i = 0; i < COUNT(fill); i++) {
        dra_graph *g = check_graph();
        dra_output(g, "i", dra_pad(g, dra_arange(g, 2), 0, 1, 0, fill[i]));
        dra_value b = dra_input(g, "b", DRA_BOOL, DRA_SHAPE(1));
        dra_output(g, "b", dra_pad(g, b, 0, 1, 0, fill[i]));
        check_program p = check_compile(g, 1);
        uint8_t       zero[] = {0};
        check_bind(&p, "b", zero, 1);
        check_run(&p);
        assert_int_equal(((const int32_t *)check_result_of(&p, "i"))[0], want[i]);
        assert_int_equal(((const uint8_t *)check_result_of(&p, "b"))[0], 1); /* none of them is 0 */
        check_free(&p);
    }
}

static void passes_gradients_to_narrow_parts(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x[] = {dra_input(g, "a", DRA_BF16, DRA_SHAPE(1)),
                      dra_input(g, "b", DRA_BF16, DRA_SHAPE(2))};
    dra_value  y = dra_pad(g, dra_concat(g, 2, x, 0), 0, 1, 1, 0), dx[2];
    dra_value  up = check_real(g, "up", DRA_SHAPE(5));
    dra_gradient(g, 1, &y, &up, 2, x, dx);
    dra_output(g, "da", dx[0]);
    dra_output(g, "db", dx[1]);
    check_program p = check_compile(g, 1);
    dra_real      upstream[] = {1, 2, 3, 4, 5};
    check_bind(&p, "up", upstream, sizeof upstream);
    check_run(&p);
    check_close("da", 1, check_result(&p, "da"), (double[]){2}, 0);
    check_close("db", 2, check_result(&p, "db"), (double[]){3, 4}, 0);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_concat(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_concat(g, 0, NULL, 0).id, 0);
    check_refused(g, DRA_ERR_VALUE, "concat: of 0 values");
    g = check_graph();
    dra_value x[] = {check_real(g, "a", DRA_SHAPE(2, 3)), check_real(g, "b", DRA_SHAPE(2, 4))};
    assert_int_equal(dra_concat(g, 2, x, 0).id, 0);
    check_refused(g, DRA_ERR_SHAPE,
                  "concat: " REAL " (2, 3) and " REAL " (2, 4) differ outside axis 0");
    g = check_graph();
    dra_value r[] = {check_real(g, "a", DRA_SHAPE(2, 3)), check_real(g, "b", DRA_SHAPE(2))};
    assert_int_equal(dra_concat(g, 2, r, 0).id, 0);
    check_refused(g, DRA_ERR_SHAPE,
                  "concat: " REAL " (2, 3) and " REAL " (2) differ outside axis 0");
    g = check_graph();
    dra_value d[] = {check_real(g, "a", DRA_SHAPE(2)), dra_arange(g, 2)};
    assert_int_equal(dra_concat(g, 2, d, 0).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "concat: " REAL " (2) and i32 (2) are of two dtypes");
    g = check_graph();
    dra_value n[] = {dra_arange(g, 2), {0}};
    assert_int_equal(dra_concat(g, 2, n, 0).id, 0);
    check_refused(g, DRA_ERR_VALUE, "concat: input 1 is the null value");
}

static void refuses_axes(void **state)
{
    for (int n = 1; n <= 2; n++) { /* one part alone must not hide a wrong axis */
        dra_graph *g = check_graph();
        dra_value  x[] = {dra_arange(g, 2), dra_arange(g, 3)};
        assert_int_equal(dra_concat(g, n, x, 1).id, 0);
        check_refused(g, DRA_ERR_SHAPE, "concat: x i32 (2) has no such axis");
        g = check_graph();
        assert_int_equal(dra_pad(g, dra_arange(g, 2), -2, 0, n - 1, 0).id, 0);
        check_refused(g, DRA_ERR_SHAPE, "pad: x i32 (2) has no such axis");
    }
    dra_graph *g = check_graph();
    dra_value  x[] = {dra_number(g, 1), dra_number(g, 2)};
    assert_int_equal(dra_concat(g, 2, x, 0).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "concat: x " REAL " () has no such axis");
}

static void refuses_pad(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_pad(g, dra_arange(g, 2), 0, -1, 0, 0).id, 0);
    check_refused(g, DRA_ERR_VALUE, "pad: -1 before and 0 after");
    g = check_graph();
    assert_int_equal(dra_pad(g, dra_arange(g, 2), 0, 0, INT64_MAX, 0).id, 0);
    check_refused(g, DRA_ERR_VALUE, "pad: 0 before and 9223372036854775807 after");
    g = check_graph();
    assert_int_equal(dra_pad(g, dra_arange(g, 2), 0, INT64_MAX / 4, 0, 0).id, 0);
    check_refused(g, DRA_ERR_MEMORY, "pad: size of (2305843009213693953) overflows");
    g = check_graph();
    assert_int_equal(dra_pad(g, (dra_value){0}, 0, 1, 1, 0).id, 0);
    check_refused(g, DRA_ERR_VALUE, "pad: input 0 is the null value");
}

int main(void)
{
    const check_spec specs[] = {
        {"concat", 1, build_concat, oracle_concat, concat_cases, COUNT(concat_cases)},
        {"concat", 1, build_views, oracle_views, view_cases, COUNT(view_cases)},
        {"concat", 1, build_concat, oracle_concat, dtype_cases, COUNT(dtype_cases)},
        {"pad", 1, build_pad, oracle_pad, pad_cases, COUNT(pad_cases)},
        {"pad", 1, build_pad, oracle_pad, pad_dtype_cases, COUNT(pad_dtype_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_as_a_cast_does), cmocka_unit_test(passes_gradients_to_narrow_parts),
        cmocka_unit_test(refuses_concat),       cmocka_unit_test(refuses_axes),
        cmocka_unit_test(refuses_pad),
    };
    return check_main("join", specs, COUNT(specs), tests, COUNT(tests));
}
