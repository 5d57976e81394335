/* bounded: what is not finite becomes 0, the rest stays within a limit; changes are counted. */
#include "check.h"

#include <math.h>

typedef struct args {
    double limit;
} args;

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_bounded(g, in[0], ((const args *)a)->limit, &out[1]);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const double limit = ((const args *)a)->limit;
    for (int64_t i = 0; i < in[0].count; i++) {
        const double x = in[0].at[i];
        out[0].at[i] = !isfinite(x) ? 0 : fmin(fmax(x, -limit), limit);
        out[1].at[0] += out[0].at[i] != x;
    }
}

static const args   one = {1}, many = {1e4};
static const double odd[] = {NAN, 0.5, INFINITY, -INFINITY, -NAN, 1, -1, 1.5, -0.0, 3e38, -2};

static const check_case cases[] = {
    {"all within", 1, {{{3, {2, 3, 17}}, .lo = -9, .hi = 9}}, &many},
    {"some outside", 1, {{{2, {5, 7}}, .lo = -3, .hi = 3}}, &one},
    {"not finite", 1, {{{1, {COUNT(odd)}}, .values = odd}}, &one, .no_grad = true},
    {"one element", 1, {{{0}, .lo = 2, .hi = 3}}, &one},
    {"nothing", 1, {{{2, {0, 8}}}}, &one},
    {"several tiles", 1, {{{2, {130, 257}}, .lo = -2, .hi = 2}}, &one, .no_grad = true},
};

/* ---- several at once ------------------------------------------------------------------------- */

enum { SEVERAL = 4 };

static void build_all(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    for (int i = 0; i < SEVERAL; i++) out[i] = in[i];
    out[SEVERAL] = dra_clamp_states(g, SEVERAL, out, ((const args *)a)->limit);
}

static void oracle_all(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int i = 0; i < SEVERAL; i++) {
        check_tensor each[2] = {out[i], out[SEVERAL]};
        oracle(a, &in[i], each);
    }
}

static const check_case all_cases[] = {
    {"small ones",
     SEVERAL,
     {{{2, {5, 7}}, .lo = -3, .hi = 3}, {{0}, .lo = 2, .hi = 3}, {{2, {0, 8}}}, {{1, {9}}}},
     &one},
    {"across tiles",
     SEVERAL,
     {{{1, {16383}}, .lo = -2, .hi = 2},
      {{1, {COUNT(odd)}}, .values = odd},
      {{2, {130, 257}}, .lo = -2, .hi = 2},
      {{1, {3}}, .lo = -9, .hi = 9}},
     &one,
     .no_grad = true},
};

static void refuses_a_limit_that_is_none(void **state)
{
    dra_value  count;
    dra_graph *g = check_graph();
    dra_bounded(g, check_real(g, "x", DRA_SHAPE(3)), 0, &count);
    assert_int_equal(count.id, 0);
    check_refused(g, DRA_ERR_VALUE, "bounded: limit is 0, expected more than 0");
    g = check_graph();
    dra_bounded(g, check_real(g, "x", DRA_SHAPE(3)), INFINITY, &count);
    check_refused(g, DRA_ERR_VALUE, "bounded: limit is inf, expected more than 0");
    g = check_graph();
    dra_bounded(g, dra_arange(g, 3), 1, &count);
#ifdef DRA_REAL_DOUBLE
    check_refused(g, DRA_ERR_DTYPE, "bounded: x is i32, expected f64");
#else
    check_refused(g, DRA_ERR_DTYPE, "bounded: x is i32, expected f32");
#endif
}

/* In place, a state that is fine is left alone, to the bit. */
static void takes_over_a_state(void **state)
{
    dra_real        x[5] = {1, (dra_real)-0.0, 3, (dra_real)NAN, 7};
    dra_value       count;
    dra_graph      *g = check_graph();
    const dra_value s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(5));
    dra_donate(g, "next", dra_bounded(g, s, 5, &count), s);
    dra_output(g, "count", count);
    check_program p = check_compile(g, 1);
    check_bind(&p, "s", x, sizeof x);
    check_run(&p);
    const dra_real expected[5] = {1, (dra_real)-0.0, 3, 0, 5};
    assert_memory_equal(x, expected, sizeof x);
    assert_int_equal(*(const int32_t *)check_result_of(&p, "count"), 2);
    check_run(&p);
    assert_int_equal(*(const int32_t *)check_result_of(&p, "count"), 0);
    check_free(&p);
}

int main(void)
{
    const check_spec specs[] = {
        {"bounded", 2, build, oracle, cases, COUNT(cases)},
        {"bounded_all", SEVERAL + 1, build_all, oracle_all, all_cases, COUNT(all_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_a_limit_that_is_none),
        cmocka_unit_test(takes_over_a_state),
    };
    return check_main("bounded", specs, COUNT(specs), tests, COUNT(tests));
}
