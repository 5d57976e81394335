/* Running sums in two parts against sums in double; parts of a sequence against the whole; how
 * exact differences are after long stretches. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none;

/* ---- the formula ----------------------------------------------------------------------------- */

typedef struct args { /* options by number of input; 0: none, since that is x */
    int start, mark;
} args;

static dra_value option(const dra_value *in, int i) { return i ? in[i] : none; }

/* Both parts together: how they share the sum depends on rounding. */
static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args     *a = p;
    dra_value       last;
    const dra_value y = dra_running_sum(g, in[0], option(in, a->start), option(in, a->mark), &last);
    out[0] = dra_sum_last(g, y);
    out[1] = dra_sum_last(g, last);
}

static void oracle(const void *p, const check_tensor *in, check_tensor *out)
{
    const args    *a = p;
    const int64_t *x = in[0].shape.dim, T = x[1], N = x[2];
    for (int64_t i = 0; i < x[0] * N; i++) {
        const int64_t b = i / N, k = i % N;
        double        sum = a->start ? in[a->start].at[2 * i] + in[a->start].at[2 * i + 1] : 0;
        for (int64_t t = 0; t < T; t++) {
            const int mark = a->mark ? (int)in[a->mark].at[b * T + t] : 0;
            if (mark & DRA_MARK_RESET) sum = 0;
            if (!(mark & DRA_MARK_PAD)) sum += in[0].at[(b * T + t) * N + k];
            out[0].at[(b * T + t) * N + k] = sum;
        }
        out[1].at[i] = sum;
    }
}

/* clang-format off: it does not know that this is an initialiser */
#define MARKS(B, T)                                                                                \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = 0, .hi = 4                                                   \
    }
/* clang-format on */

static const check_case cases[] = {
    {"one", 1, {{{3, {1, 1, 1}}}}, &(args){0}},
    {"rows", 1, {{{3, {3, 17, 5}}}}, &(args){0}},
    {"from a start", 2, {{{3, {3, 17, 5}}}, {{3, {3, 5, 2}}}}, &(args){.start = 1}},
    {"marks", 2, {{{3, {3, 40, 2}}}, MARKS(3, 40)}, &(args){.mark = 1}},
    {"all", 3, {{{3, {2, 33, 7}}}, {{3, {2, 7, 2}}}, MARKS(2, 33)}, &(args){.start = 1, .mark = 2}},
    {"no tokens", 2, {{{3, {2, 0, 3}}}, {{3, {2, 3, 2}}}}, &(args){.start = 1}},
    {"no channels", 1, {{{3, {2, 5, 0}}}}, &(args){0}},
};

/* ---- long rows ------------------------------------------------------------------------------- */

enum { LONG = 4096 };

static void run(int64_t T, const dra_real *x, const dra_real start[2], dra_real *y,
                dra_real last[2])
{
    dra_graph *g = check_graph();
    dra_value  end, in = check_real(g, "x", DRA_SHAPE(1, T, 1));
    dra_output(g, "y",
               dra_running_sum(g, in, check_real(g, "start", DRA_SHAPE(1, 1, 2)), none, &end));
    dra_output(g, "last", end);
    check_program p = check_compile(g, 1);
    check_bind(&p, "x", (void *)(uintptr_t)x, (size_t)T * sizeof *x);
    check_bind(&p, "start", (void *)(uintptr_t)start, 2 * sizeof *start);
    check_run(&p);
    memcpy(y, check_result(&p, "y"), (size_t)(2 * T) * sizeof *y);
    memcpy(last, check_result(&p, "last"), 2 * sizeof *last);
    check_free(&p);
}

/* However a start shares its sum. */
static void pads_leave_its_bits(void **state)
{
    const dra_real  start[2] = {(dra_real)0.37, (dra_real)-1.61};
    const int32_t   mark[3] = {DRA_MARK_PAD, DRA_MARK_PAD, DRA_MARK_PAD};
    const dra_real  x[3] = {1, 2, 3};
    dra_graph      *g = check_graph();
    dra_value       end, in = check_real(g, "x", DRA_SHAPE(1, 3, 1));
    const dra_value from = check_real(g, "start", DRA_SHAPE(1, 1, 2));
    const dra_value marks = dra_input(g, "mark", DRA_I32, DRA_SHAPE(1, 3));
    dra_output(g, "y", dra_running_sum(g, in, from, marks, &end));
    dra_output(g, "last", end);
    check_program p = check_compile(g, 1);
    check_bind(&p, "x", (void *)(uintptr_t)x, sizeof x);
    check_bind(&p, "start", (void *)(uintptr_t)start, sizeof start);
    check_bind(&p, "mark", (void *)(uintptr_t)mark, sizeof mark);
    check_run(&p);
    for (int t = 0; t < 3; t++)
        assert_memory_equal((const dra_real *)check_result(&p, "y") + 2 * t, start, sizeof start);
    assert_memory_equal(check_result(&p, "last"), start, sizeof start);
    check_free(&p);
}

/* Steps near -3, as gates that forget fast: sums reach -12000, where floats are 1e-3 apart. */
static void draw(dra_real *x)
{
    uint64_t seed = 5;
    for (int t = 0; t < LONG; t++) x[t] = (dra_real)(-3 + 2 * check_random(&seed));
}

static void differences_are_exact(void **unused)
{
    static dra_real x[LONG], y[2 * LONG];
    static double   sum[LONG];
    dra_real        last[2];
    const dra_real  start[2] = {0};
    draw(x);
    run(LONG, x, start, y, last);
    for (int t = 0; t < LONG; t++) sum[t] = (t ? sum[t - 1] : 0) + (double)x[t];
    for (int i = LONG - 100; i < LONG; i++)
        for (int j = i - 90; j <= i; j++) {
            const dra_real far = (y[2 * i] - y[2 * j]) + (y[2 * i + 1] - y[2 * j + 1]);
            const double   should = sum[i] - sum[j];
            if (!(fabs((double)far - should) <= 1e-6 + 2e-7 * fabs(should)))
                fail_msg("from %d to %d: %.9g, should be %.9g", j, i, (double)far, should);
        }
}

static void parts_give_the_same_bits(void **unused)
{
    static dra_real x[LONG], whole[2 * LONG], parts[2 * LONG];
    dra_real        a[2], b[2], zero[2] = {0};
    draw(x);
    run(LONG, x, zero, whole, a);
    for (int from = 0, n = 1; from < LONG; from += n, n = n % 700 + 331) {
        if (n > LONG - from) n = LONG - from;
        run(n, x + from, from ? b : zero, parts + 2 * from, b);
    }
    assert_memory_equal(whole, parts, sizeof whole);
    assert_memory_equal(a, b, sizeof a);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_other_shapes(void **unused)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_running_sum(g, check_real(g, "x", DRA_SHAPE(2, 3)), none, none, NULL).id,
                     0);
    check_refused(g, DRA_ERR_SHAPE, "running_sum: x is " REAL " (2, 3), expected (B, T, N)");

    g = check_graph();
    dra_running_sum(g, check_real(g, "x", DRA_SHAPE(2, 3, 4)),
                    check_real(g, "start", DRA_SHAPE(2, 4)), none, NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "running_sum: start is " REAL " (2, 4), expected " REAL " (2, 4, 2)");

    g = check_graph();
    dra_running_sum(g, check_real(g, "x", DRA_SHAPE(2, 3, 4)), none,
                    check_real(g, "mark", DRA_SHAPE(2, 3)), NULL);
    check_refused(g, DRA_ERR_DTYPE, "running_sum: mark is " REAL " (2, 3), expected i32 (2, 3)");
}

int main(void)
{
    const check_spec        specs[] = {{"running_sum", 2, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pads_leave_its_bits), cmocka_unit_test(differences_are_exact),
        cmocka_unit_test(parts_give_the_same_bits), cmocka_unit_test(refuses_other_shapes)};
    return check_main("running_sum", specs, COUNT(specs), tests, COUNT(tests));
}
