/* Donation: an output takes over the memory of a state. */
#include "check.h"

#include <string.h>

static dra_value state_of(dra_graph *g, const char *name)
{
    return dra_state(g, name, DRA_REAL, DRA_SHAPE(4));
}

static size_t copies(const check_program *p)
{
    dra_profile_row rows[16];
    const size_t    n = dra_profile_read(p->buffers, rows, COUNT(rows));
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].op, "copy") == 0) return (size_t)rows[i].calls;
    return 0;
}

static void writes_into_the_state(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = state_of(g, "s");
    dra_donate(g, "s1", dra_affine(g, dra_exp(g, s), 1, 1), s);
    check_program p = check_compile(g, 1);
    dra_real      sv[] = {0, 0, 0, 0};
    check_bind(&p, "s", sv, sizeof sv);
    dra_profile_enable(p.buffers, true);
    check_run(&p);
    check_close("s", 4, sv, (double[]){2, 2, 2, 2}, 0);
    assert_true(check_in_place(&p, "s1", "s"));
    assert_int_equal(copies(&p), 0);
    check_run(&p); /* the state continues from where it was */
    check_close("s", 4, sv,
                (double[]){8.38905609893065, 8.38905609893065, 8.38905609893065, 8.38905609893065},
                1e-6);
    check_free(&p);
}

/* The producer reads the state in another order than it writes: computed aside, then copied. */
static void copies_where_it_must(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(2, 2));
    dra_donate(g, "s1", dra_affine(g, dra_transpose(g, s, 0, 1), 10, 0), s);
    check_program p = check_compile(g, 1);
    dra_real      sv[] = {1, 2, 3, 4};
    check_bind(&p, "s", sv, sizeof sv);
    check_run(&p);
    check_close("s", 4, sv, (double[]){10, 30, 20, 40}, 0);
    check_free(&p);
}

/* Readers of the old value that come before are fine, and read the old value. */
static void lets_earlier_readers_read(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = state_of(g, "s"), x = check_real(g, "x", DRA_SHAPE(4));
    dra_value  before = dra_sum_all(g, s);
    dra_value  after = dra_add(g, s, x);
    dra_donate(g, "s1", after, s);
    dra_output(g, "before", before);
    dra_output(g, "after", dra_sum_all(g, after));
    check_program p = check_compile(g, 1);
    dra_real      sv[] = {1, 2, 3, 4}, xv[] = {1, 1, 1, 1};
    check_bind(&p, "s", sv, sizeof sv);
    check_bind(&p, "x", xv, sizeof xv);
    check_run(&p);
    check_close("before", 1, check_result(&p, "before"), (double[]){10}, 0);
    check_close("after", 1, check_result(&p, "after"), (double[]){14}, 0);
    check_close("s", 4, sv, (double[]){2, 3, 4, 5}, 0);
    check_free(&p);
}

static void gives_a_state_back_unchanged(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = state_of(g, "s");
    dra_donate(g, "s1", s, s);
    dra_output(g, "sum", dra_sum_all(g, s));
    check_program p = check_compile(g, 1);
    dra_real      sv[] = {1, 2, 3, 4};
    check_bind(&p, "s", sv, sizeof sv);
    check_run(&p);
    check_close("s", 4, sv, (double[]){1, 2, 3, 4}, 0);
    check_free(&p);
}

/* Takes over a constant, and a second output reads the same value. */
static void takes_any_value(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = state_of(g, "s"), seven = dra_broadcast(g, dra_number(g, 7), DRA_SHAPE(4));
    dra_donate(g, "s1", seven, s);
    dra_output(g, "seven", seven);
    check_program p = check_compile(g, 1);
    dra_real      sv[] = {1, 2, 3, 4};
    check_bind(&p, "s", sv, sizeof sv);
    check_run(&p);
    check_close("s", 4, sv, (double[]){7, 7, 7, 7}, 0);
    check_close("seven", 4, check_result(&p, "seven"), (double[]){7, 7, 7, 7}, 0);
    check_free(&p);
}

/* Rows written at run-time places: in place, nothing the size of the cache is planned. */
static void appends_in_place(void **state)
{
    enum { CAP = 4096 };
    dra_graph *g = check_graph();
    dra_value  cache = dra_state(g, "cache", DRA_REAL, DRA_SHAPE(1, CAP, 2));
    dra_value  row = check_real(g, "row", DRA_SHAPE(1, 1, 2));
    dra_value  at = dra_input(g, "at", DRA_I32, DRA_SHAPE(1, 1));
    dra_donate(g, "cache1", dra_write_rows(g, cache, row, at), cache);
    check_program   p = check_compile(g, 1);
    static dra_real memory[CAP * 2];
    dra_real        rv[] = {0, 0};
    int32_t         where = 0;
    assert_true(dra_program_memory(p.program).activations < 1024);
    check_bind(&p, "cache", memory, sizeof memory);
    check_bind(&p, "row", rv, sizeof rv);
    check_bind(&p, "at", &where, sizeof where);
    for (where = 0; where < 10; where++) {
        rv[0] = (dra_real)where;
        rv[1] = (dra_real)-where;
        check_run(&p);
    }
    for (int i = 0; i < 20; i++) assert_true(memory[i] == (dra_real)(i % 2 ? -(i / 2) : i / 2));
    where = CAP;
    dra_error err = {0};
    assert_int_equal(check_try(&p, &err), DRA_ERR_INDEX);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses(dra_graph *g, dra_status code, const char *text)
{
    dra_program *p = NULL;
    dra_error    err = {0};
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, &err), code);
    assert_null(p);
    assert_string_equal(err.text, text);
    dra_graph_destroy(g);
}

static void refuses_a_later_reader(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = state_of(g, "s"), s1 = dra_exp(g, s);
    dra_donate(g, "s1", s1, s);
    dra_output(g, "late", dra_sum_all(g, dra_reshape(g, s, DRA_SHAPE(2, 2))));
    refuses(g, DRA_ERR_VALUE,
            "donate: node 2 (sum) reads 's' after node 0 (exp) gave its memory "
            "to 's1'");
}

static void refuses_the_old_value_as_output(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = state_of(g, "s");
    dra_donate(g, "s1", dra_exp(g, s), s);
    dra_output(g, "old", dra_reshape(g, s, DRA_SHAPE(2, 2)));
    refuses(g, DRA_ERR_VALUE,
            "donate: output 'old' is the old value of 's', whose memory goes to "
            "'s1'");
}

static void refuses_an_exchange(void **state)
{
    dra_graph *g = check_graph();
    dra_value  a = state_of(g, "a"), b = state_of(g, "b");
    dra_donate(g, "a1", b, a);
    dra_donate(g, "b1", a, b);
    refuses(g, DRA_ERR_VALUE,
            "donate: output 'b1' is the old value of 'a', whose memory goes to "
            "'a1'");
}

static void refuses_other_types_and_inputs(void **state)
{
    dra_graph *g = check_graph();
    dra_value  s = dra_state(g, "s", DRA_I32, DRA_SHAPE(4));
    dra_donate(g, "s1", dra_arange(g, 5), s);
    check_refused(g, DRA_ERR_SHAPE, "donate: value i32 (5), 's' is i32 (4)");
    g = check_graph();
    dra_value x = check_real(g, "x", DRA_SHAPE(4));
    dra_donate(g, "x1", dra_exp(g, x), x);
    check_refused(g, DRA_ERR_VALUE, "donate: 'x1' gets no state or parameter to take over");
    g = check_graph();
    s = state_of(g, "s");
    dra_donate(g, "s1", dra_exp(g, s), s);
    dra_donate(g, "s2", dra_exp(g, s), s);
    check_refused(g, DRA_ERR_VALUE, "donate: 's' is given to 's1' already");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_into_the_state),
        cmocka_unit_test(copies_where_it_must),
        cmocka_unit_test(lets_earlier_readers_read),
        cmocka_unit_test(gives_a_state_back_unchanged),
        cmocka_unit_test(takes_any_value),
        cmocka_unit_test(appends_in_place),
        cmocka_unit_test(refuses_a_later_reader),
        cmocka_unit_test(refuses_the_old_value_as_output),
        cmocka_unit_test(refuses_an_exchange),
        cmocka_unit_test(refuses_other_types_and_inputs),
    };
    return check_main("donate", NULL, 0, tests, COUNT(tests));
}
