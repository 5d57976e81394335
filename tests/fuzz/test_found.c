/* What fuzz_graph found, each as a test of its own. */
#include "check.h"

#include <string.h>

static void terminates_an_empty_dump(void **state)
{
    char       text[] = "before";
    dra_graph *g = check_graph();
    assert_int_equal(dra_graph_text(g, text, sizeof text), 0);
    assert_string_equal(text, "");
    dra_graph_destroy(g);
}

/* ---- donations ------------------------------------------------------------------------------- */

static void check_not_compiled(dra_graph *g, const char *text)
{
    dra_program *p = NULL;
    dra_error    err = {0};
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, &err), DRA_ERR_VALUE);
    assert_null(p);
    assert_string_equal(err.text, text);
    dra_graph_destroy(g);
}

/* A state that is written but never read has to be bound too. */
static void asks_for_a_state_it_only_writes(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(2)), x = check_real(g, "x", DRA_SHAPE(2));
    dra_donate(g, "s1", dra_affine(g, x, 2, 0), s);
    check_program p = check_compile(g, 1);
    dra_real      xv[] = {1, 2}, sv[] = {7, 7};
    dra_error     err = {0};
    check_bind(&p, "x", xv, sizeof xv);
    assert_int_equal(dra_run(p.buffers, &err), DRA_ERR_BIND);
    assert_string_equal(err.text, "run: 's' is not bound");
    check_bind(&p, "s", sv, sizeof sv);
    check_run(&p);
    check_close("s", 2, sv, (double[]){2, 4}, 0);
    check_free(&p);
}

static void hand_on(dra_graph *b, void *user, const dra_value *in, dra_value *out)
{
    out[0] = dra_reshape(b, in[0], DRA_SHAPE(2, 2));
}

/* A recompute is inlined: what hands on a state is the state's own memory. */
static void sees_a_state_through_recompute(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(4)), old;
    dra_recompute(g, hand_on, NULL, 1, &s, 1, &old);
    dra_donate(g, "new", dra_affine(g, s, 2, 0), s);
    dra_output(g, "old", old);
    check_not_compiled(g,
                       "donate: output 'old' is the old value of 's', whose memory goes to 'new'");
}

static void sees_a_state_and_its_permutation(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(2, 2));
    dra_donate(g, "new", dra_transpose(g, s, 0, 1), s);
    dra_output(g, "old", s);
    check_not_compiled(g,
                       "donate: output 'old' is the old value of 's', whose memory goes to 'new'");
}

static void gives_a_state_to_itself(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(2));
    dra_donate(g, "new", s, s);
    dra_output(g, "old", s);
    check_program p = check_compile(g, 1);
    dra_real      sv[] = {3, 4};
    check_bind(&p, "s", sv, sizeof sv);
    check_run(&p);
    check_close("old", 2, check_result(&p, "old"), (double[]){3, 4}, 0);
    check_close("new", 2, check_result(&p, "new"), (double[]){3, 4}, 0);
    check_free(&p);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void refuses_strides_that_overflow(void **state) /* though there is not one element */
{
    const int64_t n = (int64_t)1 << 61;
    dra_graph    *g = check_graph();
    assert_int_equal(check_real(g, "x", DRA_SHAPE(0, n, n)).id, 0);
    check_refused(g, DRA_ERR_MEMORY,
                  "input: size of (0, 2305843009213693952, 2305843009213693952) overflows");
}

static void refuses_a_plan_that_overflows(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    dra_graph               *g = check_graph();
    dra_program             *p = NULL;
    dra_error                err = {0};
    for (size_t i = 0; i < COUNT(names); i++) {
        const dra_value one = dra_number(g, (double)i);
        dra_output(g, names[i], dra_exp(g, dra_broadcast(g, one, DRA_SHAPE((int64_t)1 << 58))));
    }
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, &err), DRA_ERR_MEMORY);
    assert_string_equal(err.text, "compile: sizes overflow");
    assert_null(p);
    dra_graph_destroy(g);
}

static void add_up(dra_graph *b, void *user, const dra_value *carry, const dra_value *x,
                   const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = dra_add(b, dra_mul(b, carry[0], carry[0]), x[0]);
}

static void takes_any_border(void **state) /* more than there are steps: one segment */
{
    const int64_t borders[] = {1, 2, 3, 4, INT64_MAX};
    for (size_t i = 0; i < COUNT(borders); i++) {
        dra_graph *g = check_graph();
        dra_value  start = check_real(g, "start", (dra_shape){0}), last, d;
        dra_value  x = check_real(g, "x", DRA_SHAPE(3));
        dra_scan(g,
                 &(dra_scan_config){.length = 3,
                                    .carries = 1,
                                    .xs = 1,
                                    .carry = &start,
                                    .x = &x,
                                    .border = borders[i],
                                    .body = add_up},
                 &last, NULL);
        dra_gradient(g, 1, &last, NULL, 1, &start, &d);
        dra_output(g, "d", d);
        check_program p = check_compile(g, 1);
        dra_real      sv[] = {1}, xv[] = {1, -1, 2}; /* 1, 2, 3, 11: slopes 2, 4, 6 */
        check_bind(&p, "start", sv, sizeof sv);
        check_bind(&p, "x", xv, sizeof xv);
        check_run(&p);
        check_close("d", 1, check_result(&p, "d"), (double[]){48}, 0);
        check_free(&p);
    }
}

/* Strides count as if axes of size 0 had one element, so a view would begin past the end. */
static void gives_a_view_of_nothing(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(1, 0, 3, 3));
    dra_output(g, "y", dra_reshape(g, dra_slice(g, x, 2, 2, 1), DRA_SHAPE(0)));
    check_program p = check_compile(g, 1);
    dra_error     err = {0};
    dra_real      xv[1], yv[1];
    assert_int_equal(dra_put(p.buffers, "x", xv, 0, &err), DRA_OK);
    check_run(&p);
    if (dra_get(p.buffers, "y", yv, 0, &err) != DRA_OK) fail_msg("%s", err.text);
    check_free(&p);
}

/* ---- regions --------------------------------------------------------------------------------- */

static void use_outer(dra_graph *b, void *user, const dra_value *in, dra_value *out)
{
    out[0] = user ? dra_neg(b, *(const dra_value *)user) : dra_neg(b, in[0]);
}

static void tells_outer_values_after_many_regions(void **state) /* tags of bodies repeat by then */
{
    for (int regions = 1020; regions < 1028; regions++) {
        dra_graph *g = check_graph();
        dra_value  x = check_real(g, "x", DRA_SHAPE(1)), y;
        for (int i = 0; i < regions; i++) dra_recompute(g, use_outer, NULL, 1, &x, 1, &y);
        dra_recompute(g, use_outer, &x, 1, &x, 1, &y);
        check_refused(g, DRA_ERR_VALUE,
                      "neg: input 0 is a value of another graph (hand it to the region as an "
                      "input)");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terminates_an_empty_dump),
        cmocka_unit_test(asks_for_a_state_it_only_writes),
        cmocka_unit_test(sees_a_state_through_recompute),
        cmocka_unit_test(sees_a_state_and_its_permutation),
        cmocka_unit_test(gives_a_state_to_itself),
        cmocka_unit_test(refuses_strides_that_overflow),
        cmocka_unit_test(refuses_a_plan_that_overflows),
        cmocka_unit_test(takes_any_border),
        cmocka_unit_test(gives_a_view_of_nothing),
        cmocka_unit_test(tells_outer_values_after_many_regions),
    };
    return check_main("found", NULL, 0, tests, COUNT(tests));
}
