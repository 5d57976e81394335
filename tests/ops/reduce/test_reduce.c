/* Reductions against plain loops in double, over all kinds of axes. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct args {
    dra_value (*op)(dra_graph *g, dra_value x, dra_axes axes);
    double (*reduce)(int64_t n, const double *x);
    dra_axes axes;
} args;

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const args *k = a;
    out[0] = k->op(g, in[0], k->axes);
}

/* The output that element e of x falls onto. */
static int64_t output_of(const dra_shape *x, const bool *reduced, int64_t e)
{
    int64_t at = 0, scale = 1;
    for (int32_t d = x->rank - 1; d >= 0; e /= x->dim[d], d--) {
        if (reduced[d]) continue;
        at += e % x->dim[d] * scale;
        scale *= x->dim[d];
    }
    return at;
}

/* Collects the elements that fall onto each output, then reduces them. */
static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const args *k = a;
    bool        reduced[DRA_MAX_RANK] = {false};
    double     *some = calloc((size_t)in->count + 1, sizeof *some);
    int64_t    *at = calloc((size_t)in->count + 1, sizeof *at);
    for (int i = 0; i < k->axes.n; i++)
        reduced[k->axes.axis[i] < 0 ? k->axes.axis[i] + in->shape.rank : k->axes.axis[i]] = true;
    for (int64_t e = 0; e < in->count; e++) at[e] = output_of(&in->shape, reduced, e);
    for (int64_t o = 0; o < out->count; o++) {
        int64_t n = 0;
        for (int64_t e = 0; e < in->count; e++)
            if (at[e] == o) some[n++] = in->at[e];
        out->at[o] = k->reduce(n, some);
    }
    free(some);
    free(at);
}

static double sum(int64_t n, const double *x)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i];
    return s;
}

static double mean(int64_t n, const double *x) { return sum(n, x) / (double)n; }

static double max(int64_t n, const double *x)
{
    double m = -INFINITY;
    for (int64_t i = 0; i < n; i++) m = isnan(x[i]) || x[i] > m ? x[i] : m;
    return m;
}

static double logsumexp(int64_t n, const double *x)
{
    const double m = max(n, x);
    double       s = 0;
    for (int64_t i = 0; i < n; i++) s += exp(x[i] - m);
    return isinf(m) ? m : m + log(s);
}

/* ---- every reduction over every kind of axes ------------------------------------------------- */

static const dra_axes last = {1, {-1}}, last_kept = {1, {-1}, true}, first = {1, {0}},
                      middle = {1, {1}, true}, outside = {2, {0, 2}}, two_kept = {2, {2, 1}, true},
                      all = {3, {0, 1, 2}}, none = {0}, pair = {2, {0, 1}},
                      mixed = {3, {0, 2, 4}, true}, others = {3, {1, 3, 5}};

/* `many` sums over several segments along memory, `columns` across it. */
#define AXES(function)                                                                             \
    static const args function##_args[] = {                                                        \
        {dra_##function, function, last},    {dra_##function, function, last_kept},                \
        {dra_##function, function, first},   {dra_##function, function, middle},                   \
        {dra_##function, function, outside}, {dra_##function, function, two_kept},                 \
        {dra_##function, function, all},     {dra_##function, function, none},                     \
        {dra_##function, function, pair},    {dra_##function, function, mixed},                    \
        {dra_##function, function, others}};                                                       \
    static const check_case function##_cases[] = {                                                 \
        {"last", 1, {{{3, {2, 3, 17}}}}, &function##_args[0]},                                     \
        {"last kept", 1, {{{3, {2, 3, 17}}}}, &function##_args[1]},                                \
        {"first", 1, {{{3, {5, 3, 7}}}}, &function##_args[2]},                                     \
        {"middle kept", 1, {{{3, {4, 5, 3}}}}, &function##_args[3]},                               \
        {"outside", 1, {{{3, {4, 5, 3}}}}, &function##_args[4]},                                   \
        {"middle of wide rows", 1, {{{3, {3, 2, 201}}}}, &function##_args[3]},                     \
        {"two kept", 1, {{{3, {4, 5, 3}}}}, &function##_args[5]},                                  \
        {"all", 1, {{{3, {4, 5, 3}}}}, &function##_args[6]},                                       \
        {"no axis", 1, {{{3, {4, 5, 3}}}}, &function##_args[7]},                                   \
        {"scalar", 1, {{{0}}}, &function##_args[7]},                                               \
        {"one value", 1, {{{1, {1}}}}, &function##_args[0]},                                       \
        {"no outputs", 1, {{{2, {0, 4}}}}, &function##_args[0]},                                   \
        {"rank 6", 1, {{{6, {2, 3, 2, 2, 3, 2}}}}, &function##_args[9]},                           \
        {"rank 6, others", 1, {{{6, {2, 3, 2, 2, 3, 2}}}}, &function##_args[10]},                  \
        {"far out",                                                                                \
         1,                                                                                        \
         {{{2, {3, 33}}, .lo = -1e4, .hi = 1e4}},                                                  \
         &function##_args[0],                                                                      \
         .no_grad = true},                                                                         \
        {"many", 1, {{{1, {32801}}}}, &function##_args[0]},                                        \
        {"columns", 1, {{{2, {1203, 5}}}}, &function##_args[2]},                                   \
        {"wide columns", 1, {{{2, {3, 1301}}}}, &function##_args[2]},                              \
        {"many to one", 1, {{{2, {181, 182}}}}, &function##_args[8]},                              \
    };

AXES(sum)
AXES(mean)
AXES(max)
AXES(logsumexp)

static const check_case more_sums[] = {
    {"long wide columns", 1, {{{2, {131, 1030}}}}, &sum_args[2]},
    {"rows of many columns", 1, {{{2, {300, 264}}}}, &sum_args[2]},
    {"rows of few columns, in a batch", 1, {{{3, {3, 111, 12}}}}, &sum_args[8]},
    {"of nothing", 1, {{{2, {3, 0}}}}, &sum_args[0]},
    {"of nothing at all", 1, {{{3, {0, 0, 0}}}}, &sum_args[6]},
    {"i32", 1, {{{3, {4, 5, 3}}, CHECK_I32, .lo = -50, .hi = 50}}, &sum_args[3]},
    {"many i32", 1, {{{2, {1, 33001}}, CHECK_I32, .lo = -50, .hi = 50}}, &sum_args[0]},
    {"bool", 1, {{{3, {4, 5, 3}}, CHECK_BOOL}}, &sum_args[4]},
    {"many bools", 1, {{{2, {191, 207}}, CHECK_BOOL}}, &sum_args[8]},
};

static dra_value sum_last(dra_graph *g, dra_value x, dra_axes axes) { return dra_sum_last(g, x); }
static dra_value sum_all(dra_graph *g, dra_value x, dra_axes axes) { return dra_sum_all(g, x); }

static const args       short_args[] = {{sum_last, sum, last_kept}, {sum_all, sum, all}};
static const check_case short_cases[] = {{"last", 1, {{{3, {4, 5, 3}}}}, &short_args[0]},
                                         {"all", 1, {{{3, {4, 5, 3}}}}, &short_args[1]}};

/* ---- special values -------------------------------------------------------------------------- */

static const double odd[] = {-INFINITY, -INFINITY, -INFINITY, 1,   -INFINITY, 2,
                             INFINITY,  3,         -INFINITY, NAN, 5,         INFINITY};

static const check_case odd_cases[] = {
    {"max", 1, {{{2, {4, 3}}, .values = odd}}, &max_args[0], .no_grad = true},
    {"logsumexp", 1, {{{2, {4, 3}}, .values = odd}}, &logsumexp_args[0], .no_grad = true},
};

/* dx of the sum of op(x), for x (rows, n). */
static const dra_real *gradient(check_program *p, dra_value (*op)(dra_graph *, dra_value, dra_axes),
                                int64_t rows, int64_t n, dra_real *x)
{
    dra_graph *g = check_graph();
    dra_value  in = check_real(g, "x", DRA_SHAPE(rows, n)), dx = {0};
    dra_value  y = dra_sum_all(g, op(g, in, last));
    dra_gradient(g, 1, &y, NULL, 1, &in, &dx);
    dra_output(g, "dx", dx);
    *p = check_compile(g, 2);
    check_bind(p, "x", x, (size_t)(rows * n) * sizeof *x);
    check_run(p);
    return check_result(p, "dx");
}

static void max_shares_among_ties(void **state)
{
    dra_real        x[] = {1, 3, 3, 0, 3, -2, -2, -2, -2, -2};
    const double    want[] = {0, 1 / 3.0, 1 / 3.0, 0, 1 / 3.0, 0.2, 0.2, 0.2, 0.2, 0.2};
    check_program   p;
    const dra_real *dx = gradient(&p, dra_max, 2, 5, x);
    check_close("dx", 10, dx, want, 1e-6);
    check_free(&p);
}

static void logsumexp_of_empty_rows_has_no_gradient(void **state)
{
    dra_real        x[] = {-(dra_real)INFINITY, -(dra_real)INFINITY, 0, -(dra_real)INFINITY};
    const double    want[] = {0, 0, 1, 0};
    check_program   p;
    const dra_real *dx = gradient(&p, dra_logsumexp, 2, 2, x);
    check_close("dx", 4, dx, want, 1e-6);
    check_free(&p);
}

/* One segment is all -inf, another far below 0: neither may drown the other. */
static void logsumexp_joins_far_segments(void **state)
{
    enum { N = 40000, SEGMENT = 32768 };
    static dra_real x[N];
    dra_graph      *g = check_graph();
    for (int i = 0; i < N; i++) x[i] = i < SEGMENT ? -(dra_real)INFINITY : -2000;
    dra_output(g, "y", dra_logsumexp(g, check_real(g, "x", DRA_SHAPE(N)), last));
    check_program p = check_compile(g, 2);
    check_bind(&p, "x", x, sizeof x);
    check_run(&p);
    const double want = -2000 + log(N - SEGMENT);
    check_close("y", 1, check_result(&p, "y"), &want, 1e-6);
    check_free(&p);
}

/* i32 sums wrap. */
static void integers_wrap(void **state)
{
    int32_t    x[] = {INT32_MAX, 1, 1};
    dra_graph *g = check_graph();
    dra_output(g, "y", dra_sum_all(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3))));
    check_program p = check_compile(g, 1);
    check_bind(&p, "x", x, sizeof x);
    check_run(&p);
    assert_int_equal(*(const int32_t *)check_result_of(&p, "y"), INT32_MIN + 1);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3));
    assert_int_equal(dra_sum(g, x, (dra_axes){1, {2}}).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "sum: x " REAL " (2, 3): axis 2 is outside or named twice");

    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 3));
    dra_max(g, x, (dra_axes){2, {1, -1}});
    check_refused(g, DRA_ERR_SHAPE, "max: x " REAL " (2, 3): axis -1 is outside or named twice");

    g = check_graph();
    dra_sum(g, check_real(g, "x", DRA_SHAPE(2, 3)), (dra_axes){.n = 7});
    check_refused(g, DRA_ERR_SHAPE, "sum: x " REAL " (2, 3): 7 axes, expected 0 to 2");

    g = check_graph();
    dra_sum_last(g, check_real(g, "x", (dra_shape){0}));
    check_refused(g, DRA_ERR_SHAPE, "sum: x " REAL " (): 1 axes, expected 0 to 0");

    g = check_graph();
    dra_sum(g, (dra_value){0}, last);
    check_refused(g, DRA_ERR_VALUE, "sum: input 0 is the null value");

    g = check_graph();
    dra_sum_all(g, (dra_value){0});
    check_refused(g, DRA_ERR_VALUE, "sum: input 0 is the null value");
}

static void refuses_dtypes(void **state)
{
    dra_graph *g = check_graph();
    dra_sum_all(g, dra_input(g, "x", DRA_BF16, DRA_SHAPE(3)));
    check_refused(g, DRA_ERR_DTYPE, "sum: x is bf16 (3), expected " REAL ", i32 or bool");

    g = check_graph();
    dra_mean(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)), last);
    check_refused(g, DRA_ERR_DTYPE, "mean: x is i32, expected " REAL);

    g = check_graph();
    dra_max(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)), last);
    check_refused(g, DRA_ERR_DTYPE, "max: x is i32, expected " REAL);

    g = check_graph();
    dra_logsumexp(g, dra_input(g, "x", DRA_BOOL, DRA_SHAPE(3)), last);
    check_refused(g, DRA_ERR_DTYPE, "logsumexp: x is bool, expected " REAL);
}

static void refuses_nothing(void **state)
{
    static const struct {
        const char *name;
        dra_value (*op)(dra_graph *g, dra_value x, dra_axes axes);
    } ops[] = {{"mean", dra_mean}, {"max", dra_max}, {"logsumexp", dra_logsumexp}};
    for (size_t i = 0; i < COUNT(ops); i++) {
        char       text[128];
        dra_graph *g = check_graph();
        assert_int_equal(ops[i].op(g, check_real(g, "x", DRA_SHAPE(2, 0)), last).id, 0);
        snprintf(text, sizeof text, "%s: x " REAL " (2, 0) has no element along the reduced axes",
                 ops[i].name);
        check_refused(g, DRA_ERR_SHAPE, text);
    }
}

#define SPEC(function)                                                                             \
    {                                                                                              \
#function, 1, build, oracle, function##_cases, COUNT(function##_cases)                     \
    }

int main(void)
{
    const check_spec specs[] = {
        SPEC(sum),
        SPEC(mean),
        SPEC(max),
        SPEC(logsumexp),
        {"sum", 1, build, oracle, more_sums, COUNT(more_sums)},
        {"short sums", 1, build, oracle, short_cases, COUNT(short_cases)},
        {"special values", 1, build, oracle, odd_cases, COUNT(odd_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_shares_among_ties),
        cmocka_unit_test(logsumexp_of_empty_rows_has_no_gradient),
        cmocka_unit_test(logsumexp_joins_far_segments),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_dtypes),
        cmocka_unit_test(refuses_nothing),
    };
    return check_main("reduce", specs, COUNT(specs), tests, COUNT(tests));
}
