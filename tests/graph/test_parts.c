/* Runs in two parts: outputs first, then their gradients, from memory that others have. */
#include "check.h"

static dra_device *cpu; /* also where the suite runs on another device */

typedef struct parts {
    dra_program *program;
    dra_buffers *buffers;
} parts;

static parts compile_graph(dra_graph *g)
{
    parts p = {0};
    assert_int_equal(dra_compile(g, cpu, &p.program, NULL), DRA_OK);
    assert_int_equal(dra_buffers_create(p.program, &p.buffers, NULL), DRA_OK);
    dra_graph_destroy(g);
    return p;
}

static void free_parts(const parts *p)
{
    dra_buffers_destroy(p->buffers);
    dra_program_destroy(p->program);
}

/* y = W tanh(x) and the gradient of x, the upstream of y being an input. */
static parts make_parts(void)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(3, 4));
    const dra_value w = dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(5, 4));
    const dra_value y = dra_linear(g, dra_tanh(g, x), w, (dra_value){0});
    const dra_value dy = check_real(g, "dy", DRA_SHAPE(3, 5));
    dra_value       dx;
    dra_output(g, "y", y);
    dra_gradient(g, 1, &y, &dy, 1, &x, &dx);
    dra_output(g, "dx", dx);
    return compile_graph(g);
}

static void fill_numbers(dra_real *x, int n, double step)
{
    for (int i = 0; i < n; i++) x[i] = (dra_real)(step * ((i * 7) % 11 - 5));
}

static dra_array *wrap_as(dra_buffers *b, const char *name, dra_real *x, size_t bytes)
{
    dra_array *a = NULL;
    assert_int_equal(dra_array_wrap(cpu, x, bytes, &a, NULL), DRA_OK);
    assert_int_equal(dra_bind(b, name, dra_array_whole(a), NULL), DRA_OK);
    return a;
}

static void two_are_one(void **state)
{
    const parts p = make_parts();
    dra_real    x[12], w[20], dy[15], y[15], dx[12], whole_y[15], whole_dx[12];
    dra_error   err = {0};
    const char *first[] = {"y"};
    fill_numbers(x, 12, 0.1), fill_numbers(w, 20, 0.2), fill_numbers(dy, 15, 0.3);
    dra_array *a = wrap_as(p.buffers, "x", x, sizeof x);
    dra_array *b = wrap_as(p.buffers, "w", w, sizeof w);
    assert_int_equal(dra_run_rest(p.buffers, &err), DRA_ERR_BIND); /* nothing was begun */
    assert_int_equal(dra_run_until(p.buffers, 1, first, &err), DRA_OK);
    assert_int_equal(dra_get(p.buffers, "y", y, sizeof y, &err), DRA_OK);
    assert_int_equal(dra_run_rest(p.buffers, &err), DRA_ERR_BIND);
    assert_string_equal(err.text, "run: 'dy' is not bound");
    dra_array *c = wrap_as(p.buffers, "dy", dy, sizeof dy);
    assert_int_equal(dra_run_rest(p.buffers, &err), DRA_OK);
    assert_int_equal(dra_get(p.buffers, "dx", dx, sizeof dx, &err), DRA_OK);
    assert_int_equal(dra_run_rest(p.buffers, &err), DRA_ERR_BIND); /* it is over */
    assert_int_equal(dra_run(p.buffers, &err), DRA_OK);
    assert_int_equal(dra_get(p.buffers, "y", whole_y, sizeof y, &err), DRA_OK);
    assert_int_equal(dra_get(p.buffers, "dx", whole_dx, sizeof dx, &err), DRA_OK);
    assert_memory_equal(y, whole_y, sizeof y);
    assert_memory_equal(dx, whole_dx, sizeof dx);
    dra_array_destroy(a), dra_array_destroy(b), dra_array_destroy(c);
    free_parts(&p);
}

static void refuses(void **state)
{
    const parts p = make_parts();
    dra_error   err = {0};
    const char *nobody[] = {"nobody"}, *last[] = {"dx"};
    dra_real    x[12], w[20];
    dra_array  *none;
    fill_numbers(x, 12, 0.1), fill_numbers(w, 20, 0.2);
    assert_int_equal(dra_run_until(p.buffers, 1, nobody, &err), DRA_ERR_NAME);
    assert_string_equal(err.text, "run: no output is called 'nobody'");
    dra_array *a = wrap_as(p.buffers, "x", x, sizeof x);
    dra_array *b = wrap_as(p.buffers, "w", w, sizeof w);
    assert_int_equal(dra_run_until(p.buffers, 1, last, &err), DRA_ERR_BIND); /* needs dy */
    assert_string_equal(err.text, "run: 'dy' is not bound");
    assert_int_equal(dra_array_wrap(cpu, NULL, 4, &none, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "array: no memory to wrap");
    assert_null(none);
    dra_array_destroy(a), dra_array_destroy(b);
    free_parts(&p);
}

/* A donated output goes into memory of others, which a borrowed array would refuse. */
static void wrapped_memory_is_written(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(2));
    dra_donate(g, "next", dra_affine(g, s, 2, 1), s);
    const parts p = compile_graph(g);
    dra_real    v[] = {1, 2};
    dra_array  *a = wrap_as(p.buffers, "s", v, sizeof v);
    assert_int_equal(dra_run(p.buffers, NULL), DRA_OK);
    assert_true(v[0] == 3 && v[1] == 5);
    assert_int_equal(dra_device_order(cpu, NULL, false, NULL), DRA_OK); /* no streams */
    dra_array_destroy(a);
    free_parts(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_are_one),
        cmocka_unit_test(refuses),
        cmocka_unit_test(wrapped_memory_is_written),
    };
    if (dra_device_create_cpu(&(dra_cpu_config){.threads = 2}, &cpu, NULL) != DRA_OK) return 1;
    const int failed = check_main("parts", NULL, 0, tests, COUNT(tests));
    dra_device_destroy(cpu);
    return failed;
}
