/* Numbers, integers and ranges known when the graph is built. */
#include "ops/pointwise/pointwise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void gives_numbers(void **state)
{
    const double x[] = {0, 1, -2.5, 0.1, 1e-30, 1e30, INFINITY, -INFINITY, NAN, -0.0};
    for (size_t i = 0; i < COUNT(x); i++) {
        dra_graph *g = check_graph();
        dra_value  v = dra_number(g, x[i]);
        assert_int_equal(dra_dtype_of(g, v), DRA_REAL);
        assert_int_equal(dra_shape_of(g, v).rank, 0);
        dra_output(g, "x", v);
        check_program p = check_compile(g, 1);
        check_run(&p);
        const dra_real want = (dra_real)x[i], found = *check_result(&p, "x");
        assert_true(memcmp(&want, &found, sizeof want) == 0 || (isnan(want) && isnan(found)));
        check_free(&p);
    }
}

static void gives_integers(void **state)
{
    const int32_t x[] = {0, 1, -1, INT32_MIN, INT32_MAX, 16777217}; /* the last is no float */
    for (size_t i = 0; i < COUNT(x); i++) {
        dra_graph *g = check_graph();
        dra_value  v = dra_integer(g, x[i]);
        assert_int_equal(dra_dtype_of(g, v), DRA_I32);
        assert_int_equal(dra_shape_of(g, v).rank, 0);
        dra_output(g, "x", v);
        check_program p = check_compile(g, 1);
        check_run(&p);
        assert_int_equal(*(const int32_t *)check_result_of(&p, "x"), x[i]);
        check_free(&p);
    }
}

static void gives_ranges(void **state)
{
    const int64_t n[] = {0, 1, 2, 17, 100000};
    for (size_t i = 0; i < COUNT(n); i++) {
        dra_graph *g = check_graph();
        dra_value  v = dra_arange(g, n[i]);
        assert_int_equal(dra_dtype_of(g, v), DRA_I32);
        assert_int_equal(dra_shape_of(g, v).rank, 1);
        assert_int_equal(dra_shape_of(g, v).dim[0], n[i]);
        dra_output(g, "x", v);
        check_program p = check_compile(g, 7);
        check_run(&p);
        for (int64_t k = 0; k < n[i]; k++)
            assert_int_equal(((const int32_t *)check_result_of(&p, "x"))[k], k);
        check_free(&p);
    }
}

/* Constants depend on nothing: computed once, not with every run, and filled out without memory. */
static void are_prepared_once(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(4, 1000));
    dra_value  ramp = dra_cast(g, dra_arange(g, 4), DRA_REAL);
    ramp = dra_mul(g, dra_reshape(g, ramp, DRA_SHAPE(4, 1)), dra_number(g, 10));
    dra_output(g, "y", dra_add(g, x, ramp));
    check_program           p = check_compile(g, 1);
    const dra_memory_report r = dra_program_memory(p.program);
    assert_int_equal(r.steps, 1);
    assert_true(r.prepared < 4096);
    dra_real *data = calloc(4000, sizeof *data);
    assert_non_null(data);
    check_bind(&p, "x", data, 4000 * sizeof *data);
    for (int run = 0; run < 3; run++) check_run(&p);
    assert_int_equal(dra_prepare_runs(p.buffers), 1);
    for (int i = 0; i < 4000; i++) assert_true(check_result(&p, "y")[i] == 10 * (i / 1000));
    check_free(&p);
    free(data);
}

/* A number is an x like any other inner value. */
static void have_gradients(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3)), s = dra_number(g, 5), ds;
    dra_value  y = dra_sum_all(g, dra_mul(g, x, s));
    dra_gradient(g, 1, &y, NULL, 1, &s, &ds);
    dra_output(g, "ds", ds);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {1, 2, 4};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("ds", 1, check_result(&p, "ds"), (double[]){7}, 0);
    check_free(&p);
}

static void refuses_ranges(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_arange(g, -1).id, 0);
    check_refused(g, DRA_ERR_VALUE, "arange: -1 numbers, expected 0 to 2147483647");
    g = check_graph();
    assert_int_equal(dra_arange(g, (int64_t)INT32_MAX + 1).id, 0);
    check_refused(g, DRA_ERR_VALUE, "arange: 2147483648 numbers, expected 0 to 2147483647");
}

static void stay_silent_after_an_error(void **state)
{
    dra_graph *g = check_graph();
    dra_arange(g, -1);
    assert_int_equal(dra_number(g, 1).id, 0);
    assert_int_equal(dra_integer(g, 1).id, 0);
    assert_int_equal(dra_arange(g, 1).id, 0);
    check_refused(g, DRA_ERR_VALUE, "arange: -1 numbers, expected 0 to 2147483647");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_numbers),
        cmocka_unit_test(gives_integers),
        cmocka_unit_test(gives_ranges),
        cmocka_unit_test(are_prepared_once),
        cmocka_unit_test(have_gradients),
        cmocka_unit_test(refuses_ranges),
        cmocka_unit_test(stay_silent_after_an_error),
    };
    return check_main("constant", NULL, 0, tests, COUNT(tests));
}
