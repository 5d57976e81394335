/* softmax and log_softmax against their formulas in double, with the rule of masked entries. */
#include "check.h"

#include <math.h>

static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_softmax(g, in[0]);
    out[1] = dra_log_softmax(g, in[0]);
}

static bool takes_part(double x) { return x > DRA_MASKED / 2; }

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in);
    for (int64_t r = 0; r < check_rows(in); r++) {
        const double *x = in->at + r * C;
        double       *y = out[0].at + r * C, *l = out[1].at + r * C, m = -INFINITY, sum = 0;
        for (int64_t i = 0; i < C; i++)
            if (takes_part(x[i])) m = fmax(m, x[i]);
        for (int64_t i = 0; i < C; i++)
            if (takes_part(x[i])) sum += exp(x[i] - m);
        for (int64_t i = 0; i < C; i++) {
            y[i] = takes_part(x[i]) ? exp(x[i] - m) / sum : 0;
            l[i] = takes_part(x[i]) ? x[i] - m - log(sum) : DRA_MASKED;
        }
    }
}

static const double one_masked[] = {0.5, DRA_MASKED, -1, 2, 0.1, 0.2, 0.3, DRA_MASKED};
static const double all_masked[] = {DRA_MASKED, DRA_MASKED, DRA_MASKED, -1e38, 1, 2, 3, 4};
static const double one_left[] = {DRA_MASKED, 3, DRA_MASKED, DRA_MASKED};
static const double no_fence[] = {-4e29, -6e29, -4e29, -1e29}; /* around the limit */
static const double infinite[] = {-INFINITY, 1, 2, -INFINITY, -INFINITY, -INFINITY};

static const check_case cases[] = {
    {"one value", 1, {{{1, {1}}}}},
    {"odd width", 1, {{{3, {2, 3, 17}}}}},
    {"no rows", 1, {{{2, {0, 8}}}}},
    {"no width", 1, {{{2, {8, 0}}}}},
    {"wide", 1, {{{2, {3, 1031}}}}},
    {"200 wide", 1, {{{2, {3, 200}}}}},
    {"300 wide", 1, {{{2, {3, 300}}}}},
    {"1032 wide", 1, {{{2, {3, 1032}}}}},
    {"9001 wide", 1, {{{2, {3, 9001}}}}, .no_grad = true},
    {"several tiles", 1, {{{2, {700, 65}}}}},
    {"six axes", 1, {{{6, {2, 1, 2, 1, 2, 7}}}}},
    /* 1e-6: the steps of the difference quotient are 0.002 at 200 */
    {"saturated", 1, {{{2, {4, 33}}, .lo = -200, .hi = 200}}, .grad_tol = 1e-6},
    {"far out", 1, {{{2, {4, 33}}, .lo = -1e15, .hi = 1e15}}, .no_grad = true},
};

/* The gradient of sum(y^2), so that the harness differentiates softmax_back: dx = 2 y (y - y.y) */
static void build_twice(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_value sum = dra_sum_all(g, dra_square(g, dra_softmax(g, in[0])));
    dra_gradient(g, 1, &sum, NULL, 1, in, out);
}

static void oracle_twice(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in);
    for (int64_t r = 0; r < check_rows(in); r++) {
        double sum = 0, squares = 0, *y = out[0].at + r * C;
        for (int64_t i = 0; i < C; i++) sum += y[i] = exp(in->at[r * C + i]);
        for (int64_t i = 0; i < C; i++) squares += y[i] * y[i] / (sum * sum);
        for (int64_t i = 0; i < C; i++) y[i] = 2 * y[i] / sum * (y[i] / sum - squares);
    }
}

static const check_case twice_cases[] = {{"rows", 1, {{{2, {3, 9}}}}}};

/* Results next to DRA_MASKED are compared one by one, below: here softmax alone. */
static void build_softmax(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_softmax(g, in[0]);
}

static void oracle_softmax(const void *args, const check_tensor *in, check_tensor *out)
{
    double       unused[8] = {0};
    check_tensor both[] = {out[0], {out[0].shape, out[0].count, unused}};
    oracle(args, in, both);
}

/* log_softmax with masked results set to 0, so that the others are compared by their own size. */
static void build_log(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_value y = dra_log_softmax(g, in[0]), zero = dra_number(g, 0);
    out[0] = dra_select(g, dra_equal(g, y, dra_number(g, DRA_MASKED)), zero, y);
}

static void oracle_log(const void *args, const check_tensor *in, check_tensor *out)
{
    double       unused[8] = {0};
    check_tensor both[] = {{out[0].shape, out[0].count, unused}, out[0]};
    oracle(args, in, both);
    for (int64_t i = 0; i < out->count; i++)
        if (out->at[i] == DRA_MASKED) out->at[i] = 0;
}

static const check_case masked_cases[] = {
    {"one masked", 1, {{{2, {2, 4}}, .values = one_masked}}},
    {"a row masked", 1, {{{2, {2, 4}}, .values = all_masked}}},
    {"one left", 1, {{{1, {4}}, .values = one_left}}},
    {"around the limit", 1, {{{1, {4}}, .values = no_fence}}, .no_grad = true},
    {"minus infinity", 1, {{{2, {2, 3}}, .values = infinite}}, .no_grad = true},
};

/* Every level of micro-kernels: weights of masked entries are 0 and nothing else, gradients too. */
static void masked_is_exact(void **state)
{
    for (size_t l = 0; dra_device_level_at(l); l++) {
        enum { N = 37 };
        dra_real   x[2 * N], u[2 * N];
        dra_graph *g = check_graph();
        dra_value  in = check_real(g, "x", DRA_SHAPE(2, N)),
                  up = check_real(g, "u", DRA_SHAPE(2, N));
        dra_value y[] = {dra_softmax(g, in), dra_log_softmax(g, in)}, dx[2];
        for (int k = 0; k < 2; k++) dra_gradient(g, 1, &y[k], &up, 1, &in, &dx[k]);
        dra_output(g, "y", y[0]);
        dra_output(g, "l", y[1]);
        dra_output(g, "dy", dx[0]);
        dra_output(g, "dl", dx[1]);
        for (int i = 0; i < 2 * N; i++) {
            x[i] = (dra_real)(i % 3 == 0 || i >= N ? DRA_MASKED / (1 + i % 2) : 0.01 * i);
            u[i] = (dra_real)(i % 5 - 2);
        }
        check_program p = {0};
        dra_error     err = {0};
        if (dra_compile(g, check_device(1, dra_device_level_at(l)), &p.program, &err) != DRA_OK ||
            dra_buffers_create(p.program, &p.buffers, &err) != DRA_OK)
            fail_msg("%s", err.text);
        dra_graph_destroy(g);
        check_bind(&p, "x", x, sizeof x);
        check_bind(&p, "u", u, sizeof u);
        check_run(&p);
        for (int i = 0; i < 2 * N; i++) {
            const bool masked = i % 3 == 0 || i >= N;
            assert_int_equal(check_result(&p, "y")[i] == 0, masked);
            assert_int_equal(check_result(&p, "l")[i] == (dra_real)DRA_MASKED, masked);
            if (masked) assert_true(check_result(&p, "dy")[i] == 0);
            if (masked) assert_true(check_result(&p, "dl")[i] == 0);
        }
        check_free(&p);
    }
}

static void keeps_nan(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2));
    dra_output(g, "y", dra_softmax(g, x));
    dra_output(g, "l", dra_log_softmax(g, x));
    check_program p = check_compile(g, 1);
    dra_real      at[] = {1, (dra_real)NAN};
    check_bind(&p, "x", at, sizeof at);
    check_run(&p);
    for (int i = 0; i < 2; i++) {
        assert_true(isnan(check_result(&p, "y")[i]));
        assert_true(isnan(check_result(&p, "l")[i]));
    }
    check_free(&p);
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_softmax(g, check_real(g, "x", (dra_shape){0})).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "softmax: x has no axis");
    g = check_graph();
    assert_int_equal(dra_log_softmax(g, (dra_value){0}).id, 0);
    check_refused(g, DRA_ERR_VALUE, "log_softmax: input 0 is the null value");
    g = check_graph();
    dra_softmax(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)));
#ifdef DRA_REAL_DOUBLE
    check_refused(g, DRA_ERR_DTYPE, "softmax: x is i32, expected f64");
#else
    check_refused(g, DRA_ERR_DTYPE, "softmax: x is i32, expected f32");
#endif
}

int main(void)
{
    const check_spec specs[] = {
        {"softmax gradient's gradient", 1, build_twice, oracle_twice, twice_cases,
         COUNT(twice_cases)},
        {"both", 2, build, oracle, cases, COUNT(cases)},
        {"masked softmax", 1, build_softmax, oracle_softmax, masked_cases, COUNT(masked_cases)},
        {"masked log_softmax", 1, build_log, oracle_log, masked_cases, COUNT(masked_cases)},
    };
    const struct CMUnitTest tests[] = {cmocka_unit_test(masked_is_exact),
                                       cmocka_unit_test(keeps_nan), cmocka_unit_test(refuses)};
    return check_main("softmax", specs, COUNT(specs), tests, COUNT(tests));
}
