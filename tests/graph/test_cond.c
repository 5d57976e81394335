/* cond: runs its body or passes `otherwise` through, by a flag read at run time. */
#include "check.h"

#include <math.h>
#include <string.h>

static void block(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    out[0] = dra_tanh(g, dra_mul(g, in[0], in[1]));
}

static void build(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_cond(g, in[2], block, NULL, 2, in, 1, in, out); /* x through when it does not run */
    out[0] = dra_add(g, out[0], dra_sin(g, in[0]));
}

static void oracle(const void *user, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < in[0].count; i++) {
        const double x = in[0].at[i];
        out[0].at[i] = (in[2].at[0] != 0 ? tanh(x * in[1].at[i]) : x) + sin(x);
    }
}

static const double on[] = {1}, off[] = {0};

static const check_case cases[] = {
    {"on", 3, {{{2, {3, 5}}}, {{2, {3, 5}}}, {{0}, CHECK_I32, .values = on}}},
    {"off", 3, {{{2, {3, 5}}}, {{2, {3, 5}}}, {{0}, CHECK_I32, .values = off}}},
    {"nothing", 3, {{{2, {0, 5}}}, {{2, {0, 5}}}, {{0}, CHECK_I32, .values = on}}},
};

/* The flag is a value: one program serves both. */
static void changes_between_runs(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), w = check_real(g, "w", DRA_SHAPE(2));
    dra_value  in[] = {x, w}, flag = dra_input(g, "flag", DRA_I32, (dra_shape){0}), y, dx[2];
    dra_cond(g, flag, block, NULL, 2, in, 1, &x, &y);
    dra_output(g, "y", y);
    y = dra_sum_all(g, y);
    dra_gradient(g, 1, &y, NULL, 2, in, dx);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "dw", dx[1]);
    check_program p = check_compile(g, 1);
    dra_real      xv[] = {1, 2}, wv[] = {3, 4};
    int32_t       flag_value = 0;
    check_bind(&p, "x", xv, sizeof xv);
    check_bind(&p, "w", wv, sizeof wv);
    check_bind(&p, "flag", &flag_value, sizeof flag_value);
    for (int k = 0; k < 4; k++) {
        flag_value = k % 2 ? -1 : 0; /* anything but 0 runs it */
        check_run(&p);
        const double t[] = {tanh(3), tanh(8)};
        double       y_want[2], dx_want[2], dw_want[2];
        for (int i = 0; i < 2; i++) {
            const double slope = 1 - t[i] * t[i];
            y_want[i] = k % 2 ? t[i] : (double)xv[i];
            dx_want[i] = k % 2 ? slope * (double)wv[i] : 1;
            dw_want[i] = k % 2 ? slope * (double)xv[i] : 0;
        }
        check_close("y", 2, check_result(&p, "y"), y_want, 1e-6);
        /* gradients of tanh at 8 lose digits in fp32: 1 - t^2 with t rounded */
        check_close("dx", 2, check_result(&p, "dx"), dx_want, 1e-4);
        check_close("dw", 2, check_result(&p, "dw"), dw_want, 1e-4);
    }
    check_free(&p);
}

/* A body that does not run costs nothing: its kernels are not called. */
static void costs_nothing_when_off(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), in[] = {x, x}, y;
    dra_cond(g, dra_input(g, "flag", DRA_I32, (dra_shape){0}), block, NULL, 2, in, 1, &x, &y);
    dra_output(g, "y", y);
    check_program p = check_compile(g, 1);
    dra_real      xv[] = {1, 2};
    int32_t       flag = 0;
    check_bind(&p, "x", xv, sizeof xv);
    check_bind(&p, "flag", &flag, sizeof flag);
    for (int k = 0; k < 2; k++) {
        dra_profile_row rows[8];
        bool            ran = false;
        flag = k;
        dra_profile_enable(p.buffers, true);
        check_run(&p);
        const size_t n = dra_profile_read(p.buffers, rows, COUNT(rows));
        for (size_t i = 0; i < n; i++) ran = ran || strcmp(rows[i].op, "pointwise") == 0;
        assert_int_equal(ran, k == 1); /* the product and its tanh, fused */
    }
    check_free(&p);
}

static void refuses_another_type_otherwise(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_input(g, "x", DRA_I32, DRA_SHAPE(2)), in[] = {x, x}, y;
    dra_value  z = dra_input(g, "z", DRA_I32, DRA_SHAPE(3));
    dra_cond(g, dra_integer(g, 1), block, NULL, 2, in, 1, &z, &y);
    assert_int_equal(y.id, 0);
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_DTYPE); /* tanh refuses i32 inside */
    dra_graph_destroy(g);
}

static void hands_on(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    out[0] = in[0];
}

static void refuses_a_mismatch(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_input(g, "x", DRA_I32, DRA_SHAPE(2)), y;
    dra_value  z = dra_input(g, "z", DRA_I32, DRA_SHAPE(3));
    dra_cond(g, dra_integer(g, 1), hands_on, NULL, 1, &x, 1, &z, &y);
    check_refused(g, DRA_ERR_SHAPE, "cond: otherwise 0 is i32 (3), the body returns i32 (2)");
}

static void refuses_a_flag_that_is_no_scalar(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_input(g, "x", DRA_I32, DRA_SHAPE(2)), y;
    dra_cond(g, x, hands_on, NULL, 1, &x, 1, &x, &y);
    check_refused(g, DRA_ERR_DTYPE, "cond: flag is i32 (2), expected i32 ()");
}

int main(void)
{
    const check_spec        specs[] = {{"cond", 1, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_between_runs),
        cmocka_unit_test(costs_nothing_when_off),
        cmocka_unit_test(refuses_another_type_otherwise),
        cmocka_unit_test(refuses_a_mismatch),
        cmocka_unit_test(refuses_a_flag_that_is_no_scalar),
    };
    return check_main("cond", specs, COUNT(specs), tests, COUNT(tests));
}
