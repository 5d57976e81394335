/* Prepare and step: what depends on parameters alone is computed once per change of a parameter,
 * also inside regions. */
#include "check.h"

static void runs_once_per_change(void **state)
{
    dra_graph *g = check_graph();
    dra_value  w = dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(2));
    dra_value  x = check_real(g, "x", DRA_SHAPE(2));
    dra_output(g, "y", dra_mul(g, x, dra_exp(g, w)));
    check_program p = check_compile(g, 1);
    assert_int_equal(dra_program_memory(p.program).prepare_steps, 1);
    assert_int_equal(dra_program_memory(p.program).steps, 1);
    dra_real wv[] = {0, 0}, other[] = {1, 1}, xv[] = {2, 3};
    check_bind(&p, "w", wv, sizeof wv);
    check_bind(&p, "x", xv, sizeof xv);
    for (int i = 0; i < 3; i++) check_run(&p);
    assert_int_equal(dra_prepare_runs(p.buffers), 1);
    check_bind(&p, "x", xv, sizeof xv); /* an input is no parameter */
    check_run(&p);
    assert_int_equal(dra_prepare_runs(p.buffers), 1);
    wv[0] = wv[1] = 2; /* changed in place: unseen until touched */
    check_run(&p);
    check_close("y", 2, check_result(&p, "y"), (double[]){2, 3}, 1e-6);
    assert_int_equal(dra_touch(p.buffers, "w", NULL), DRA_OK);
    check_run(&p);
    check_close("y", 2, check_result(&p, "y"), (double[]){14.7781121978613, 22.16716829679195},
                1e-6);
    assert_int_equal(dra_prepare_runs(p.buffers), 2);
    check_bind(&p, "w", other, sizeof other);
    check_run(&p);
    check_close("y", 2, check_result(&p, "y"), (double[]){5.43656365691809, 8.15484548537714},
                1e-6);
    assert_int_equal(dra_prepare_runs(p.buffers), 3);
    check_free(&p);
}

static void step_body(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                      const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = dra_add(g, carry[0], dra_exp(g, constant[0])); /* exp leaves the loop */
}

static void leaves_regions(void **state)
{
    dra_graph *g = check_graph();
    dra_value  w = dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(2));
    dra_value  h = check_real(g, "h", DRA_SHAPE(2)), out;
    dra_scan(g,
             &(dra_scan_config){.length = 50,
                                .carries = 1,
                                .constants = 1,
                                .carry = &h,
                                .constant = &w,
                                .body = step_body},
             &out, NULL);
    dra_output(g, "h1", out);
    check_program p = check_compile(g, 1);
    assert_int_equal(dra_program_memory(p.program).prepare_steps, 1);
    dra_real        wv[] = {0, 1}, hv[] = {1, 1};
    dra_profile_row rows[8];
    check_bind(&p, "w", wv, sizeof wv);
    check_bind(&p, "h", hv, sizeof hv);
    dra_profile_enable(p.buffers, true);
    check_run(&p);
    check_run(&p);
    const size_t n = dra_profile_read(p.buffers, rows, COUNT(rows));
    for (size_t i = 0; i < n; i++) {
        if (rows[i].op[0] == 'e') assert_int_equal(rows[i].calls, 1);   /* exp */
        if (rows[i].op[0] == 'a') assert_int_equal(rows[i].calls, 100); /* add */
    }
    check_close("h1", 2, check_result(&p, "h1"), (double[]){51, 1 + 50 * 2.718281828459045}, 1e-5);
    check_free(&p);
}

/* A program that updates its own parameter prepares again at every run. */
static void follows_donated_parameters(void **state)
{
    dra_graph *g = check_graph();
    dra_value  w = dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(2));
    dra_output(g, "e", dra_copy(g, dra_exp(g, w)));
    dra_value one = dra_input(g, "one", DRA_REAL, (dra_shape){0});
    dra_donate(g, "w1", dra_add(g, w, one), w);
    check_program p = check_compile(g, 1);
    dra_real      wv[] = {0, 1}, step = 1;
    check_bind(&p, "w", wv, sizeof wv);
    check_bind(&p, "one", &step, sizeof step);
    for (int i = 0; i < 3; i++) check_run(&p);
    assert_true(wv[0] == 3 && wv[1] == 4);
    check_close("e", 2, check_result(&p, "e"), (double[]){7.38905609893065, 20.0855369231877},
                1e-6);
    assert_int_equal(dra_prepare_runs(p.buffers), 3);
    check_free(&p);
}

static void refuses_to_touch_the_unknown(void **state)
{
    dra_graph *g = check_graph();
    dra_output(g, "y", dra_number(g, 1));
    check_program p = check_compile(g, 1);
    dra_error     err = {0};
    assert_int_equal(dra_touch(p.buffers, "nobody", &err), DRA_ERR_NAME);
    assert_string_equal(err.text, "touch: no input is called 'nobody'");
    check_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_once_per_change),
        cmocka_unit_test(leaves_regions),
        cmocka_unit_test(follows_donated_parameters),
        cmocka_unit_test(refuses_to_touch_the_unknown),
    };
    return check_main("prepare", NULL, 0, tests, COUNT(tests));
}
