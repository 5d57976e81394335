/* The plan: reuse of memory, in-place results, views without copies, dead nodes, results that
 * survive, what is refused when compiling and running. */
#include "check.h"

#include <string.h>

#include "graph/op.h"

static dra_memory_report report_of(const check_program *p)
{
    return dra_program_memory(p->program);
}

static check_program plain(dra_graph *g) /* without the fences of check_compile() */
{
    check_program p = {0};
    dra_error     err = {0};
    if (dra_compile(g, check_device(1, "ref"), &p.program, &err) != DRA_OK ||
        dra_buffers_create(p.program, &p.buffers, &err) != DRA_OK)
        fail_msg("%s", err.text);
    dra_graph_destroy(g);
    return p;
}

static void reuses_memory(void **state)
{
    enum { N = 1024 };
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(N)), h = x;
    for (int i = 0; i < 20; i++) /* two values alive at a time */
        h = dra_add(g, dra_sin(g, h), dra_cos(g, h));
    dra_output(g, "y", h);
    check_program p = plain(g);
    assert_true(report_of(&p).activations <= 3 * N * sizeof(dra_real));
    assert_int_equal(report_of(&p).without_plan, 60 * N * sizeof(dra_real));
    check_free(&p);
}

static void works_in_place(void **state)
{
    enum { N = 1024 };
    dra_graph *g = check_graph();
    dra_value  h = dra_exp(g, check_real(g, "x", DRA_SHAPE(N)));
    for (int i = 0; i < 10; i++) h = dra_tanh(g, h);
    dra_output(g, "y", h);
    check_program p = plain(g);
    assert_int_equal(report_of(&p).activations, N * sizeof(dra_real));
    check_free(&p);
}

/* So that lines of the same number do not share one place of a cache. */
static void large_arrays_begin_apart(void **state)
{
    enum { ARRAYS = 7, PAGE = 4096, N = 256 * PAGE / sizeof(dra_real) };
    static dra_real x[N];
    dra_graph      *g = check_graph();
    dra_value       h = check_real(g, "x", DRA_SHAPE(N));
    char            name[] = "a";
    uintptr_t       at[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        name[0] = (char)('a' + i);
        h = dra_sin(g, h);
        dra_output(g, name, h);
    }
    check_program p = plain(g);
    check_bind(&p, "x", x, sizeof x);
    check_run(&p);
    for (int i = 0; i < ARRAYS; i++) {
        name[0] = (char)('a' + i);
        at[i] = dra_result(p.buffers, name).offset % PAGE / 64;
        for (int k = 0; k < i; k++) assert_true(at[k] != at[i]);
    }
    check_free(&p);
}

/* x - x[0]: the second input is a view of the first, so writing in place would be wrong. */
static void does_not_overwrite_what_it_still_reads(void **state)
{
    dra_graph *g = check_graph();
    dra_value  h = dra_affine(g, check_real(g, "x", DRA_SHAPE(4)), 1, 0);
    dra_value  first = dra_broadcast(g, dra_slice(g, h, 0, 0, 1), DRA_SHAPE(4));
    dra_output(g, "y", dra_sub(g, h, first));
    check_program p = check_compile(g, 1);
    dra_real      x[] = {1, 2, 3, 4};
    check_bind(&p, "x", x, sizeof x);
    check_run(&p);
    check_close("y", 4, check_result(&p, "y"), (double[]){0, 1, 2, 3}, 0);
    check_free(&p);
}

static void moves_nothing_for_views(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3, 4));
    dra_value  v = dra_transpose(g, dra_slice(g, x, 1, 1, 2), 0, 2); /* (4, 2, 2) */
    v = dra_broadcast(g, dra_reshape(g, v, DRA_SHAPE(4, 2, 1, 2)), DRA_SHAPE(4, 2, 5, 2));
    dra_output(g, "y", dra_affine(g, v, 1, 0));
    check_program p = check_compile(g, 1);
    assert_int_equal(report_of(&p).steps, 1);
    check_free(&p);
}

static void computes_only_what_is_asked(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(4)), unused = check_real(g, "unused", DRA_SHAPE(4));
    dra_exp(g, unused);
    dra_sin(g, dra_exp(g, x));
    dra_output(g, "y", dra_neg(g, x));
    check_program p = check_compile(g, 1);
    dra_real      data[] = {1, 2, 3, 4};
    assert_int_equal(report_of(&p).steps, 1);
    check_bind(&p, "x", data, sizeof data); /* `unused` need not be bound */
    check_run(&p);
    check_bind(&p, "unused", data, sizeof data); /* but may be */
    check_free(&p);
}

/* Outputs survive to the end of the run, also inputs and views handed straight out. */
static void keeps_results(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3)), a = dra_exp(g, x), h = a;
    for (int i = 0; i < 6; i++) h = dra_sin(g, h);
    dra_output(g, "a", a);
    dra_output(g, "a again", a);
    dra_output(g, "at", dra_transpose(g, a, 0, 1));
    dra_output(g, "x", x);
    dra_output(g, "xt", dra_transpose(g, x, 0, 1));
    dra_output(g, "row", dra_slice(g, a, 0, 1, 1));
    dra_output(g, "h", h);
    check_program p = check_compile(g, 2);
    dra_real      data[] = {0, 1, 2, 3, 4, 5};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    const double e[] = {1,
                        2.718281828459045,
                        7.38905609893065,
                        20.08553692318767,
                        54.598150033144236,
                        148.4131591025766};
    check_close("a", 6, check_result(&p, "a"), e, 1e-6);
    check_close("a again", 6, check_result(&p, "a again"), e, 1e-6);
    check_close("at", 6, check_result(&p, "at"), (double[]){e[0], e[3], e[1], e[4], e[2], e[5]},
                1e-6);
    check_close("row", 3, check_result(&p, "row"), e + 3, 1e-6);
    check_close("xt", 6, check_result(&p, "xt"), (double[]){0, 3, 1, 4, 2, 5}, 0);
    assert_true(check_in_place(&p, "x", "x"));
    check_free(&p);
}

static void reports_its_memory(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(256));
    dra_output(g, "y", dra_exp(g, x));
    check_program p = plain(g);
    char          text[512];
    const size_t  n = dra_program_text(p.program, text, sizeof text);
    assert_int_equal(n, strlen(text));
    assert_non_null(strstr(text, "activations"));
    assert_non_null(strstr(text, "prepared"));
    assert_int_equal(dra_program_text(p.program, text, 5), n); /* as snprintf */
    assert_int_equal(report_of(&p).bound, 256 * sizeof(dra_real));
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_when_compiling(void **state)
{
    dra_graph   *g = check_graph();
    dra_program *p = NULL;
    dra_error    err = {0};
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "compile: the graph has no output");
    dra_exp(g, (dra_value){0});
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "exp: input 0 is the null value");
    assert_int_equal(dra_compile(NULL, NULL, &p, &err), DRA_ERR_VALUE);
    dra_graph_destroy(g);
}

/* An op the device has never heard of. */
static dra_status like_input(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    return DRA_OK;
}

static void refuses_an_op_without_kernel(void **state)
{
    static const dra_op homeless = {.name = "homeless", .n_in = 1, .n_out = 1, .infer = like_input};
    dra_graph          *g = check_graph();
    dra_value           x = check_real(g, "x", DRA_SHAPE(4)), dx;
    dra_value           y = dra_add_op(g, &homeless, 1, &x, NULL);
    dra_program        *p = NULL;
    dra_error           err = {0};
    dra_output(g, "y", y);
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, &err), DRA_ERR_DEVICE);
    assert_string_equal(err.text, "compile: the device has no kernel for 'homeless'");
    assert_null(p);
    y = dra_sum_all(g, y);
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    check_refused(g, DRA_ERR_GRAD, "gradient: op 'homeless' has none");
}

static void refuses_when_binding(void **state)
{
    dra_graph *g = check_graph();
    dra_output(g, "y", dra_neg(g, check_real(g, "x", DRA_SHAPE(4))));
    check_program p = check_compile(g, 1);
    dra_real      data[4] = {0};
    dra_error     err = {0};
    assert_int_equal(check_try(&p, &err), DRA_ERR_BIND);
    assert_string_equal(err.text, "run: 'x' is not bound");
    assert_int_equal(dra_put(p.buffers, "z", data, sizeof data, &err), DRA_ERR_NAME);
    assert_string_equal(err.text, "bind: no input is called 'z'");
    assert_int_equal(dra_put(p.buffers, "x", data, 3, &err), DRA_ERR_SHAPE);
    assert_int_equal(dra_put(p.buffers, "x", NULL, sizeof data, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "bind: 'x' gets no memory");
    assert_null(dra_result(p.buffers, "nobody").array);
    assert_int_equal(dra_result_type(p.program, "nobody", NULL, NULL, &err), DRA_ERR_NAME);
    check_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reuses_memory),
        cmocka_unit_test(works_in_place),
        cmocka_unit_test(large_arrays_begin_apart),
        cmocka_unit_test(does_not_overwrite_what_it_still_reads),
        cmocka_unit_test(moves_nothing_for_views),
        cmocka_unit_test(computes_only_what_is_asked),
        cmocka_unit_test(keeps_results),
        cmocka_unit_test(reports_its_memory),
        cmocka_unit_test(refuses_when_compiling),
        cmocka_unit_test(refuses_an_op_without_kernel),
        cmocka_unit_test(refuses_when_binding),
    };
    return check_main("plan", NULL, 0, tests, COUNT(tests));
}
