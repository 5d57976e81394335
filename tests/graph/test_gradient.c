/* Gradients as rules over the graph: what is asked for, given upstream, and refused. */
#include "check.h"
#include "graph/program.h"

#include <string.h>

static void adds_over_uses(void **state) /* y = x x + 3 x: dx = 2 x + 3 */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3)), dx;
    dra_value  y = dra_sum_all(g, dra_add(g, dra_mul(g, x, x), dra_affine(g, x, 3, 0)));
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {1, -2, (dra_real)0.5};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("dx", 3, check_result(&p, "dx"), (double[]){5, -1, 4}, 1e-6);
    check_free(&p);
}

static void takes_several_outputs_and_upstreams(void **state) /* y1 = 2 x, y2 = x^2 */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), dx;
    dra_value  y[] = {dra_affine(g, x, 2, 0), dra_square(g, x)};
    dra_value  dy[] = {check_real(g, "u1", DRA_SHAPE(2)), check_real(g, "u2", DRA_SHAPE(2))};
    dra_gradient(g, 2, y, dy, 1, &x, &dx);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {3, 5}, u1[] = {1, 10}, u2[] = {100, 1000};
    check_bind(&p, "x", data, sizeof data);
    check_bind(&p, "u1", u1, sizeof u1);
    check_bind(&p, "u2", u2, sizeof u2);
    check_run(&p);
    check_close("dx", 2, check_result(&p, "dx"), (double[]){2 + 600, 20 + 10000}, 1e-6);
    check_free(&p);
}

static void reaches_inner_values_and_states(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(2));
    dra_value  w = dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(2));
    dra_value  inner = dra_mul(g, s, w), y = dra_sum_all(g, dra_square(g, inner));
    dra_value  x[] = {s, w, inner}, dx[3];
    dra_gradient(g, 1, &y, NULL, 3, x, dx);
    dra_output(g, "ds", dx[0]);
    dra_output(g, "dw", dx[1]);
    dra_output(g, "dinner", dx[2]);
    check_program p = check_compile(g, 1);
    dra_real      sv[] = {2, 3}, wv[] = {5, 7};
    check_bind(&p, "s", sv, sizeof sv);
    check_bind(&p, "w", wv, sizeof wv);
    check_run(&p);
    check_close("dinner", 2, check_result(&p, "dinner"), (double[]){20, 42}, 1e-6);
    check_close("ds", 2, check_result(&p, "ds"), (double[]){100, 294}, 1e-6);
    check_close("dw", 2, check_result(&p, "dw"), (double[]){40, 126}, 1e-6);
    check_free(&p);
}

static void gives_zeros_where_nothing_depends(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), z = check_real(g, "z", DRA_SHAPE(2, 2));
    dra_value  y = dra_sum_all(g, dra_add(g, x, dra_stop_gradient(g, dra_sum_last(g, z))));
    dra_value  dz;
    dra_gradient(g, 1, &y, NULL, 1, &z, &dz);
    dra_output(g, "dz", dz);
    check_program p = check_compile(g, 1);
    check_run(&p);
    check_close("dz", 4, check_result(&p, "dz"), (double[]){0, 0, 0, 0}, 0);
    check_free(&p);
}

static void goes_straight_through(void **state) /* forward sign(x), backward 7 x */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), dx;
    dra_value  y = dra_straight_through(g, dra_sign(g, x), dra_affine(g, x, 7, 0));
    dra_output(g, "y", y);
    y = dra_sum_all(g, y);
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {(dra_real)0.3, -4};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("y", 2, check_result(&p, "y"), (double[]){1, -1}, 0);
    check_close("dx", 2, check_result(&p, "dx"), (double[]){7, 7}, 0);
    check_free(&p);
}

static void of_a_gradient(void **state) /* y = x^4: y'' = 12 x^2 */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), d1, d2;
    dra_value  y = dra_sum_all(g, dra_square(g, dra_square(g, x)));
    dra_gradient(g, 1, &y, NULL, 1, &x, &d1);
    d1 = dra_sum_all(g, d1);
    dra_gradient(g, 1, &d1, NULL, 1, &x, &d2);
    dra_output(g, "d2", d2);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {2, -3};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("d2", 2, check_result(&p, "d2"), (double[]){48, 108}, 1e-6);
    check_free(&p);
}

static void is_real_for_bf16_parameters(void **state)
{
    dra_graph *g = check_graph();
    dra_value  w = dra_parameter(g, "w", DRA_BF16, DRA_SHAPE(2)), dw;
    dra_value  y = dra_sum_all(g, dra_square(g, dra_cast(g, w, DRA_REAL)));
    dra_gradient(g, 1, &y, NULL, 1, &w, &dw);
    assert_int_equal(dra_dtype_of(g, dw), DRA_REAL);
    dra_output(g, "dw", dw);
    check_program p = check_compile(g, 1);
    uint16_t      data[] = {0x4000, 0x4040}; /* 2 and 3 in bf16 */
    check_bind(&p, "w", data, sizeof data);
    check_run(&p);
    check_close("dw", 2, check_result(&p, "dw"), (double[]){4, 6}, 0);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

/* y = sum over parts k of the square of k + 1 times the part, in any order of slices and with gaps:
 * dx = 2 (k + 1)^2 x, 0 where no slice is; a part that is read twice counts twice. */
static void of_slices(void **state)
{
    static const struct {
        int     n;
        int64_t start[4], size[4];
        bool    pads; /* expected to be left */
    } cases[] = {
        {3, {0, 2, 4}, {2, 2, 3}, false},
        {3, {4, 2, 0}, {3, 2, 2}, false},
        {3, {2, 0, 4}, {2, 2, 3}, true},
        {3, {0, 4, 2}, {2, 3, 2}, false},
        {2, {1, 3}, {2, 1}, true},
        {3, {0, 2, 1}, {3, 5, 2}, true},
        {4, {0, 2, 4, 0}, {2, 2, 3, 7}, true},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        dra_graph *g = check_graph();
        dra_value  x = check_real(g, "x", DRA_SHAPE(2, 7)), y = {0}, dx;
        double     expected[14] = {0};
        dra_real   data[14];
        for (int i = 0; i < 14; i++) data[i] = (dra_real)(0.25 * i - 1);
        for (int k = 0; k < cases[c].n; k++) {
            const dra_value part = dra_slice(g, x, 1, cases[c].start[k], cases[c].size[k]);
            const dra_value sum = dra_sum_all(g, dra_square(g, dra_affine(g, part, k + 1, 0)));
            y = y.id ? dra_add(g, y, sum) : sum;
            for (int i = 0; i < 14; i++)
                if (i % 7 >= cases[c].start[k] && i % 7 < cases[c].start[k] + cases[c].size[k])
                    expected[i] += 2 * (k + 1) * (k + 1) * (double)data[i];
        }
        dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
        dra_output(g, "dx", dx);
        check_program p = check_compile(g, 1);
        check_bind(&p, "x", data, sizeof data);
        check_run(&p);
        check_close("dx", 14, check_result(&p, "dx"), expected, 1e-6);
        bool pads = false;
        for (size_t i = 0; i < p.program->block[DRA_BLOCK_STEP].n; i++)
            pads = pads || strcmp(p.program->block[DRA_BLOCK_STEP].instr[i]->name, "pad") == 0;
        assert_int_equal(pads, cases[c].pads);
        check_free(&p);
    }
}

static void refuses_integers(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_input(g, "x", DRA_I32, DRA_SHAPE(2)), dx;
    dra_value  y = dra_sum_all(g, dra_cast(g, x, DRA_REAL));
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    assert_int_equal(dx.id, 0);
    check_refused(g, DRA_ERR_GRAD, "gradient: x 0 is i32 (2); only floats have one");
}

static void refuses_an_integer_result(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), dx;
    dra_value  y = dra_cast(g, dra_sum_all(g, x), DRA_I32);
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    check_refused(g, DRA_ERR_GRAD, "gradient: y is i32 (); only floats have one");
}

static void refuses_many_elements_without_upstream(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), y = dra_square(g, x), dx;
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
#ifdef DRA_REAL_DOUBLE
    check_refused(g, DRA_ERR_SHAPE, "gradient: y f64 (2) has several elements and no upstream");
#else
    check_refused(g, DRA_ERR_SHAPE, "gradient: y f32 (2) has several elements and no upstream");
#endif
}

static void refuses_another_shape_of_upstream(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), y = dra_square(g, x), dx;
    dra_value  dy = check_real(g, "u", DRA_SHAPE(3));
    dra_gradient(g, 1, &y, &dy, 1, &x, &dx);
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_SHAPE);
    assert_non_null(strstr(dra_graph_error(g)->text, "its upstream"));
    dra_graph_destroy(g);
}

static void refuses_an_op_without_one(void **state)
{
    dra_graph       *g = check_graph();
    dra_value        p = check_real(g, "p", DRA_SHAPE(2)), rate = dra_number(g, 1), dp;
    dra_value        t = dra_integer(g, 1);
    dra_adamw_result r = dra_adamw(g, p, p, p, p, rate, rate, t,
                                   &(dra_adamw_config){0.9, 0.9, 1e-8, 0});
    dra_value        y = dra_sum_all(g, r.p);
    dra_gradient(g, 1, &y, NULL, 1, &p, &dp);
    check_refused(g, DRA_ERR_GRAD, "gradient: op 'adamw' has none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_over_uses),
        cmocka_unit_test(takes_several_outputs_and_upstreams),
        cmocka_unit_test(reaches_inner_values_and_states),
        cmocka_unit_test(gives_zeros_where_nothing_depends),
        cmocka_unit_test(goes_straight_through),
        cmocka_unit_test(of_a_gradient),
        cmocka_unit_test(is_real_for_bf16_parameters),
        cmocka_unit_test(of_slices),
        cmocka_unit_test(refuses_integers),
        cmocka_unit_test(refuses_an_integer_result),
        cmocka_unit_test(refuses_many_elements_without_upstream),
        cmocka_unit_test(refuses_another_shape_of_upstream),
        cmocka_unit_test(refuses_an_op_without_one),
    };
    return check_main("gradient", NULL, 0, tests, COUNT(tests));
}
