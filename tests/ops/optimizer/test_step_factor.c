/* step_factor: clips, and says no where something is not finite or a fault was met; adamw changes
 * nothing then. */
#include "check.h"

#include <math.h>

static check_program program(double clip)
{
    dra_graph *g = check_graph();
    dra_output(g, "s",
               dra_step_factor(g, check_real(g, "norm", (dra_shape){0}),
                               check_real(g, "losses", DRA_SHAPE(3)),
                               dra_input(g, "fault", DRA_I32, (dra_shape){0}), clip));
    return check_compile(g, 1);
}

static double factor(double clip, double norm, double loss, int32_t fault)
{
    check_program p = program(clip);
    dra_real      n = (dra_real)norm, losses[3] = {1, (dra_real)loss, 2};
    check_bind(&p, "norm", &n, sizeof n);
    check_bind(&p, "losses", losses, sizeof losses);
    check_bind(&p, "fault", &fault, sizeof fault);
    check_run(&p);
    const double s = (double)*check_result(&p, "s");
    check_free(&p);
    return s;
}

static void clips_in_double(void **state)
{
    assert_true(factor(0, 100, 0, 0) == 1);
    assert_true(factor(1, 0.5, 0, 0) == 1);
    assert_true(factor(1, 4, 0, 0) == (double)(dra_real)(1 / (4 + 1e-6)));
    assert_true(factor(0.25, 3, 0, 0) == (double)(dra_real)(0.25 / (3 + 1e-6)));
}

static void says_no(void **state)
{
    assert_true(isnan(factor(1, NAN, 0, 0)));
    assert_true(isnan(factor(1, INFINITY, 0, 0)));
    assert_true(isnan(factor(0, 1, NAN, 0)));
    assert_true(isnan(factor(0, 1, -INFINITY, 0)));
    assert_true(isnan(factor(0, 1, 1, 3)));
}

/* p, m, v keep their values, in place and apart. */
static void a_refused_step_changes_nothing(void **state)
{
    for (int donated = 0; donated < 2; donated++) {
        dra_graph       *g = check_graph();
        const dra_shape  shape = DRA_SHAPE(5), scalar = {0};
        const dra_value  p = dra_state(g, "p", DRA_REAL, shape);
        const dra_value  m = dra_state(g, "m", DRA_REAL, shape);
        const dra_value  v = dra_state(g, "v", DRA_REAL, shape);
        dra_adamw_result r = dra_adamw(g, p, check_real(g, "d", shape), m, v,
                                       check_real(g, "rate", scalar), check_real(g, "s", scalar),
                                       dra_input(g, "t", DRA_I32, scalar),
                                       &(dra_adamw_config){0.9, 0.95, 1e-8, 0.1});
        const dra_value  out[] = {r.p, r.m, r.v}, in[] = {p, m, v};
        const char      *names[] = {"new p", "new m", "new v"};
        for (int i = 0; i < 3; i++)
            if (donated)
                dra_donate(g, names[i], out[i], in[i]);
            else
                dra_output(g, names[i], out[i]);
        check_program q = check_compile(g, 2);
        dra_real      data[4][5], rate = 1, s = (dra_real)NAN;
        int32_t       t = 1;
        const char   *inputs[] = {"p", "m", "v", "d"};
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < 5; k++) data[i][k] = (dra_real)(i + k + 1);
            check_bind(&q, inputs[i], data[i], sizeof data[i]);
        }
        check_bind(&q, "rate", &rate, sizeof rate);
        check_bind(&q, "s", &s, sizeof s);
        check_bind(&q, "t", &t, sizeof t);
        check_run(&q);
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 5; k++) assert_true(check_result(&q, names[i])[k] == i + k + 1);
        check_free(&q);
    }
}

static void refuses_wrong_inputs(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(2));
    dra_step_factor(g, x, x, dra_input(g, "f", DRA_I32, (dra_shape){0}), 1);
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_SHAPE);
    dra_graph_destroy(g);
    g = check_graph();
    const dra_value n = check_real(g, "n", (dra_shape){0});
    dra_step_factor(g, n, n, dra_input(g, "f", DRA_I32, (dra_shape){0}), -1);
    check_refused(g, DRA_ERR_VALUE, "step_factor: clip -1, expected 0 or more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clips_in_double),
        cmocka_unit_test(says_no),
        cmocka_unit_test(a_refused_step_changes_nothing),
        cmocka_unit_test(refuses_wrong_inputs),
    };
    return check_main("step_factor", NULL, 0, tests, COUNT(tests));
}
