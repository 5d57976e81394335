/* cumsum and cummax along every axis, both ways, against sums and searches from scratch. */
#include "check.h"

#include <math.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

typedef struct args {
    int  axis;
    bool reverse;
} args;

static void build_sum(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const args *k = a;
    out[0] = dra_cumsum(g, in[0], k->axis, k->reverse);
}

static void build_max(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const args *k = a;
    out[0] = dra_cummax(g, in[0], k->axis, k->reverse);
}

/* Position along the axis, and the distance in memory of its neighbours. */
static int64_t position(const check_tensor *t, int axis, int64_t i, int64_t *inner)
{
    *inner = 1;
    for (int32_t d = t->shape.rank - 1; d > axis; d--) *inner *= t->shape.dim[d];
    return i / *inner % t->shape.dim[axis];
}

static double larger(double a, double b) { return isnan(a) || a >= b ? a : b; }

static void oracle(const args *k, const check_tensor *in, check_tensor *out, bool max)
{
    const int axis = k->axis < 0 ? k->axis + in->shape.rank : k->axis;
    for (int64_t i = 0; i < in->count; i++) {
        int64_t       inner;
        const int64_t t = position(in, axis, i, &inner), T = in->shape.dim[axis];
        const int64_t from = k->reverse ? t : 0, to = k->reverse ? T : t + 1;
        double        y = max ? -INFINITY : 0;
        for (int64_t s = from; s < to; s++) {
            const double v = in->at[i + (s - t) * inner];
            y = max ? larger(y, v) : y + v;
        }
        out->at[i] = y;
    }
}

static void oracle_sum(const void *a, const check_tensor *in, check_tensor *out)
{
    oracle(a, in, out, false);
}

static void oracle_max(const void *a, const check_tensor *in, check_tensor *out)
{
    oracle(a, in, out, true);
}

static const args   way[] = {{0}, {0, true}, {1}, {1, true}, {-1}, {-1, true}};
static const double odd[] = {-INFINITY, 2, NAN, 7, 1, -INFINITY, -INFINITY, INFINITY};

#define BOTH                                                                                       \
    {"first axis", 1, {{{3, {5, 3, 4}}}}, &way[0]},                                                \
        {"first axis, reverse", 1, {{{3, {5, 3, 4}}}}, &way[1]},                                   \
        {"middle axis", 1, {{{3, {2, 5, 7}}}}, &way[2]},                                           \
        {"middle axis, reverse", 1, {{{3, {2, 5, 7}}}}, &way[3]},                                  \
        {"last axis", 1, {{{3, {2, 3, 17}}}}, &way[4]},                                            \
        {"last axis, reverse", 1, {{{3, {2, 3, 17}}}}, &way[5]},                                   \
        {"one value", 1, {{{1, {1}}}}, &way[0]}, {"no lines", 1, {{{3, {4, 3, 0}}}}, &way[0]},     \
        {"no steps", 1, {{{2, {3, 0}}}}, &way[4]},                                                 \
        {"far out", 1, {{{2, {4, 33}}, .lo = -1e30, .hi = 1e30}}, &way[4], .no_grad = true},       \
        {"several tiles", 1, {{{3, {3, 40, 131}}}}, &way[2]},                                      \
        {"many lines", 1, {{{3, {2, 9, 1031}}}}, &way[3]},                                         \
        {"long lines", 1, {{{2, {3, 20001}}}}, &way[4], .no_grad = true},                          \
        {"rank 6", 1, {{{6, {2, 3, 2, 1, 3, 2}}}}, &way[3]},

static const check_case sums[] = {
    BOTH{"i32", 1, {{{3, {2, 5, 7}}, CHECK_I32, .lo = -50, .hi = 50}}, &way[2]},
    {"i32, reverse", 1, {{{3, {2, 3, 17}}, CHECK_I32, .lo = -50, .hi = 50}}, &way[5]},
};
static const check_case maxima[] = {
    BOTH{"special values", 1, {{{2, {2, 4}}, .values = odd}}, &way[4], .no_grad = true},
    {"special values, reverse", 1, {{{2, {2, 4}}, .values = odd}}, &way[5], .no_grad = true},
};

/* At a tie the whole gradient goes to the element that comes first on the way. */
static void first_of_ties_gets_the_gradient(void **state)
{
    for (int reverse = 0; reverse < 2; reverse++) {
        dra_graph *g = check_graph();
        dra_value  x = check_real(g, "x", DRA_SHAPE(4)), dx = {0};
        dra_value  y = dra_sum_all(g, dra_cummax(g, x, 0, reverse != 0));
        dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
        dra_output(g, "dx", dx);
        check_program p = check_compile(g, 1);
        dra_real      in[] = {1, 5, 5, 2};
        const double  want[2][4] = {{1, 3, 0, 0}, {0, 0, 3, 1}};
        check_bind(&p, "x", in, sizeof in);
        check_run(&p);
        check_close("dx", 4, check_result(&p, "dx"), want[reverse], 1e-6);
        check_free(&p);
    }
}

/* A running sum written over its own input. */
static void works_in_place(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_state(g, "x", DRA_REAL, DRA_SHAPE(2, 3));
    dra_donate(g, "y", dra_cumsum(g, x, 1, true), x);
    check_program p = check_compile(g, 2);
    dra_real      in[] = {1, 2, 3, 4, 5, 6};
    const double  want[] = {6, 5, 3, 15, 11, 6};
    check_bind(&p, "x", in, sizeof in);
    check_run(&p);
    check_close("x", 6, in, want, 0);
    assert_int_equal(dra_program_memory(p.program).activations, 0);
    check_free(&p);
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_cumsum(g, check_real(g, "x", DRA_SHAPE(2, 3)), 2, false).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "cumsum: x " REAL " (2, 3) has no axis 2");

    g = check_graph();
    dra_cummax(g, check_real(g, "x", (dra_shape){0}), -1, false);
    check_refused(g, DRA_ERR_SHAPE, "cummax: x " REAL " () has no axis -1");

    g = check_graph();
    dra_cumsum(g, dra_input(g, "x", DRA_BOOL, DRA_SHAPE(3)), 0, false);
    check_refused(g, DRA_ERR_DTYPE, "cumsum: x is bool, expected " REAL);

    g = check_graph();
    dra_cummax(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)), 0, false);
    check_refused(g, DRA_ERR_DTYPE, "cummax: x is i32, expected " REAL);

    g = check_graph();
    dra_cummax(g, check_real(g, "x", DRA_SHAPE(3000000000)), 0, false);
    check_refused(g, DRA_ERR_SHAPE,
                  "cummax: x " REAL " (3000000000): axis 0 is longer than an i32 index");

    g = check_graph();
    dra_cumsum(g, (dra_value){0}, 0, false);
    check_refused(g, DRA_ERR_VALUE, "cumsum: input 0 is the null value");
}

int main(void)
{
    const check_spec        specs[] = {{"cumsum", 1, build_sum, oracle_sum, sums, COUNT(sums)},
                                       {"cummax", 1, build_max, oracle_max, maxima, COUNT(maxima)}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_of_ties_gets_the_gradient),
                                       cmocka_unit_test(works_in_place), cmocka_unit_test(refuses)};
    return check_main("cumulate", specs, COUNT(specs), tests, COUNT(tests));
}
