/* Building: handles, names, first error, sizes that overflow, scopes, dumps, the verifier. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

static void keeps_the_first_error(void **state)
{
    dra_graph *g = check_graph();
    dra_value  a = dra_input(g, "a", DRA_I32, DRA_SHAPE(4)),
              b = dra_input(g, "b", DRA_I32, DRA_SHAPE(3));
    dra_value c = dra_add(g, a, b);
    assert_int_equal(c.id, 0);
    assert_int_equal(dra_exp(g, c).id, 0); /* does nothing, reports nothing new */
    assert_int_equal(dra_input(g, "d", DRA_I32, DRA_SHAPE(3)).id, 0);
    dra_output(g, "y", c);
    check_refused(g, DRA_ERR_SHAPE, "add: i32 (4) and i32 (3) do not broadcast");
}

static void refuses_values_of_another_family(void **state)
{
    dra_graph *g = check_graph(), *other = check_graph();
    dra_value  x = {0};
    for (int i = 0; i < 5; i++)
        x = check_real(other, (const char *[]){"a", "b", "c", "d", "e"}[i], DRA_SHAPE(1));
    assert_int_equal(dra_exp(g, x).id, 0); /* g has no value of that number */
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_VALUE);
    dra_graph_destroy(other);
    dra_graph_destroy(g);
}

static void refuses_names(void **state)
{
    dra_graph *g = check_graph();
    dra_input(g, "x", DRA_REAL, DRA_SHAPE(1));
    dra_state(g, "x", DRA_REAL, DRA_SHAPE(1));
    check_refused(g, DRA_ERR_NAME, "state: 'x' is there already");
    g = check_graph();
    dra_parameter(g, "", DRA_REAL, DRA_SHAPE(1));
    check_refused(g, DRA_ERR_NAME, "parameter: needs a name");
    g = check_graph();
    dra_output(g, "y", dra_number(g, 1));
    dra_output(g, "y", dra_number(g, 2));
    check_refused(g, DRA_ERR_NAME, "output: 'y' is there already");
}

static void refuses_types(void **state)
{
    dra_graph *g = check_graph();
    dra_input(g, "x", (dra_dtype)99, DRA_SHAPE(1));
    check_refused(g, DRA_ERR_DTYPE, "input: no dtype number 99");
    g = check_graph();
    dra_input(g, "x", DRA_REAL, (dra_shape){.rank = 7});
    check_refused(g, DRA_ERR_SHAPE, "input: rank 7, expected 0 to 6");
    g = check_graph();
    dra_input(g, "x", DRA_REAL, DRA_SHAPE(2, -1));
    check_refused(g, DRA_ERR_SHAPE, "input: axis 1 has size -1");
    g = check_graph();
    dra_input(g, "x", DRA_I32, DRA_SHAPE(INT64_MAX / 2, 4));
    check_refused(g, DRA_ERR_MEMORY, "input: size of (4611686018427387903, 4) overflows");
#ifndef DRA_REAL_DOUBLE
    g = check_graph();
    dra_input(g, "x", DRA_F64, DRA_SHAPE(1));
    check_refused(g, DRA_ERR_DTYPE, "input: f64 needs the double build");
#endif
}

static void refuses_overflow_by_ops(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_input(g, "x", DRA_I32, DRA_SHAPE(1, 1));
    dra_broadcast(g, x, DRA_SHAPE(INT64_MAX / 2, INT64_MAX / 2));
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_MEMORY);
    dra_graph_destroy(g);
    g = check_graph();
    x = dra_input(g, "x", DRA_I32, DRA_SHAPE(1));
    dra_pad(g, x, 0, INT64_MAX, 0, 0);
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_VALUE);
    dra_graph_destroy(g);
}

static void refuses_memory_that_is_not_there(void **state)
{
    dra_graph   *g = check_graph();
    dra_program *p = NULL;
    dra_buffers *b = NULL;
    dra_error    err = {0};
    dra_value    x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(1));
    dra_output(g, "y", dra_exp(g, dra_broadcast(g, x, DRA_SHAPE((int64_t)1 << 55))));
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, &err), DRA_OK);
    assert_int_equal(dra_buffers_create(p, &b, &err), DRA_ERR_MEMORY);
    assert_null(b);
    assert_non_null(strstr(err.text, "array: out of memory for"));
    dra_buffers_destroy(b);
    dra_program_destroy(p);
    dra_graph_destroy(g);
}

static void knows_scopes(void **state)
{
    dra_graph     *g = check_graph();
    const uint64_t top = dra_scope_hash(g, "drop");
    dra_scope_push(g, "layer0");
    const uint64_t inner = dra_scope_hash(g, "drop");
    dra_scope_push(g, "attn");
    assert_true(dra_scope_hash(g, "drop") != inner);
    dra_scope_pop(g);
    assert_true(dra_scope_hash(g, "drop") == inner);
    dra_scope_pop(g);
    assert_true(dra_scope_hash(g, "drop") == top && top != inner);
    dra_scope_pop(g);
    check_refused(g, DRA_ERR_VALUE, "scope: pop without push");
    g = check_graph();
    dra_scope_push(g, "a/b");
    check_refused(g, DRA_ERR_NAME, "scope: needs a name without '/'");
}

/* ---- dumps ----------------------------------------------------------------------------------- */

static void half(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    out[0] = dra_neg(g, in[0]);
}

static void prints_itself(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_state(g, "x", DRA_I32, DRA_SHAPE(2, 3)), y;
    dra_recompute(g, half, NULL, 1, &x, 1, &y);
    dra_donate(g, "y", y, x);
    const char *want = "%1: i32 (2, 3) = state x\n"
                       "%2: i32 (2, 3) = recompute(%1) {\n"
                       "  %1: i32 (2, 3) = input \n"
                       "  %2: i32 (2, 3) = neg(%1)\n"
                       "  out %2\n"
                       "}\n"
                       "out y = %2 takes over x\n";
    char        text[1024], small[8];
    assert_int_equal(dra_graph_text(g, text, sizeof text), strlen(want));
    assert_string_equal(text, want);
    assert_int_equal(dra_graph_text(g, small, sizeof small), strlen(want));
    assert_int_equal(strlen(small), sizeof small - 1);
    assert_int_equal(dra_graph_text(g, NULL, 0), strlen(want));
    const size_t n = dra_graph_dot(g, text, sizeof text);
    assert_true(n < sizeof text);
    assert_non_null(strstr(text, "digraph dra {"));
    assert_non_null(strstr(text, "subgraph cluster_0"));
    assert_non_null(strstr(text, "state x\\n"));
    dra_graph_destroy(g);
}

/* ---- the verifier: a graph bent by hand is refused ------------------------------------------- */

static dra_graph *chain(dra_value *last)
{
    dra_graph *g = check_graph();
    *last = dra_neg(g, dra_neg(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(2))));
    dra_output(g, "y", *last);
    assert_int_equal(dra_graph_verify(g, NULL), DRA_OK);
    return g;
}

static void verify_says(dra_graph *g, const char *text)
{
    dra_error err = {0};
    assert_int_not_equal(dra_graph_verify(g, &err), DRA_OK);
    assert_string_equal(err.text, text);
    dra_graph_destroy(g);
}

static void verifier_finds_what_is_bent(void **state)
{
    dra_value  last;
    dra_graph *g = chain(&last);
    ((dra_value *)dra_node_at(g, 0)->in)[0] = last; /* reads a value made later */
    verify_says(g, "verify: node 0 (neg): input 0 is not made before it");
    g = chain(&last);
    dra_info(g, last)->type.shape.dim[0] = 5;
    verify_says(g, "verify: node 1 (neg): output 0 has another type");
    g = chain(&last);
    dra_info(g, last)->node = 0;
    verify_says(g, "verify: node 1 (neg): output 0 is not its own");
    g = chain(&last);
    dra_node_at(g, 1)->n_in = 0;
    verify_says(g, "verify: node 1 (neg) has 0 inputs and 1 outputs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_first_error),
        cmocka_unit_test(refuses_values_of_another_family),
        cmocka_unit_test(refuses_names),
        cmocka_unit_test(refuses_types),
        cmocka_unit_test(refuses_overflow_by_ops),
        cmocka_unit_test(refuses_memory_that_is_not_there),
        cmocka_unit_test(knows_scopes),
        cmocka_unit_test(prints_itself),
        cmocka_unit_test(verifier_finds_what_is_bent),
    };
    return check_main("build", NULL, 0, tests, COUNT(tests));
}
