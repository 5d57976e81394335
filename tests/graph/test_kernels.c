/* What planning reads from a device's kernels: layouts, what they overwrite; kernels are found by
 * the name of their op in the table that the device was created with. */
#include "check.h"

#include <string.h>

#include "device/cpu_kernel.h"
#include "device/device.h"
#include "graph/op.h"

enum { ROWS = 3, COLUMNS = 4 };

static struct seen { /* by the last call of the kernel of neg below */
    bool  dense;
    void *in, *out;
} seen;

static int64_t one_tile(const dra_call *c) { return 1; }

static void each(const dra_call *c, dra_real factor)
{
    const dra_tensor *x = &c->in[0];
    dra_real         *y = c->out[0].data;
    for (int64_t r = 0; r < dra_rows(x); r++)
        for (int64_t i = 0; i < dra_last(x); i++) *y++ = factor * dra_row(x, r)[i * x->stride[1]];
}

static void copy(const dra_call *c, int64_t tile) { each(c, 1); }

static void negate(const dra_call *c, int64_t tile)
{
    seen = (struct seen){dra_tensor_is_dense(&c->in[0]), c->in[0].data, c->out[0].data};
    each(c, -1);
}

/* y = neg(neg(x)), with a transposition between the two or none, on a device of two kernels. */
static void run_negations(dra_kernel base, bool transposed, struct seen *last)
{
    const dra_cpu_kernel        kernel = {.base = base, .tiles = one_tile, .tile = negate};
    const dra_cpu_kernel        copies = {{.op = "copy", .dtypes = DRA_REALS}, one_tile, copy};
    const dra_cpu_kernel *const kernels[] = {&kernel, &copies, NULL};
    dra_device                 *device = NULL;
    dra_program                *program = NULL;
    dra_buffers                *buffers = NULL;
    dra_error                   err = {0};
    dra_real                    x[ROWS * COLUMNS];
    dra_graph                  *g = check_graph();
    dra_value                   y = dra_neg(g, check_real(g, "x", DRA_SHAPE(ROWS, COLUMNS)));
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (dra_real)(i + 1);
    dra_output(g, "y", dra_neg(g, transposed ? dra_transpose(g, y, 0, 1) : y));
    if (dra_cpu_create(&(dra_cpu_config){.threads = 1}, kernels, &device, &err) != DRA_OK ||
        dra_compile(g, device, &program, &err) != DRA_OK ||
        dra_buffers_create(program, &buffers, &err) != DRA_OK ||
        dra_put(buffers, "x", x, sizeof x, &err) != DRA_OK || dra_run(buffers, &err) != DRA_OK)
        fail_msg("%s", err.text);
    dra_real found[ROWS * COLUMNS];
    assert_int_equal(dra_get(buffers, "y", found, sizeof found, &err), DRA_OK);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(found[i] == x[transposed ? i % ROWS * COLUMNS + i / ROWS : i]);
    *last = seen;
    dra_buffers_destroy(buffers);
    dra_program_destroy(program);
    dra_graph_destroy(g);
    dra_device_destroy(device);
}

static void layouts_are_the_kernels(void **state)
{
    dra_kernel  kernel = {.op = "neg", .dtypes = DRA_REALS};
    struct seen last;
    run_negations(kernel, true, &last);
    assert_false(last.dense);
    kernel.layout = DRA_LAYOUT_DENSE;
    run_negations(kernel, true, &last);
    assert_true(last.dense);
}

static void overwriting_is_the_kernels(void **state)
{
    dra_kernel  kernel = {.op = "neg", .dtypes = DRA_REALS};
    struct seen last;
    run_negations(kernel, false, &last);
    assert_ptr_not_equal(last.in, last.out);
    kernel.in_place = 1;
    run_negations(kernel, false, &last);
    assert_ptr_equal(last.in, last.out);
    kernel.in_place = 0;
    kernel.paired = true;
    run_negations(kernel, false, &last);
    assert_ptr_equal(last.in, last.out);
}

static void a_device_has_the_kernels_it_was_given(void **state)
{
    const dra_cpu_kernel        neg = {{.op = "neg", .dtypes = DRA_REALS}, one_tile, negate};
    const dra_cpu_kernel *const kernels[] = {&neg, NULL};
    dra_device                 *device = NULL;
    dra_program                *program = NULL;
    dra_error                   err = {0};
    dra_graph                  *g = check_graph();
    assert_int_equal(dra_cpu_create(NULL, kernels, &device, &err), DRA_OK);
    assert_ptr_equal(device->table->find(device, "neg"), &neg.base);
    assert_null(device->table->find(device, "exp"));
    dra_output(g, "y", dra_exp(g, check_real(g, "x", DRA_SHAPE(2))));
    assert_int_equal(dra_compile(g, device, &program, &err), DRA_ERR_DEVICE);
    assert_string_equal(err.text, "compile: the device has no kernel for 'exp'");
    dra_graph_destroy(g);
    dra_device_destroy(device);
}

/* Two ops of one name would share a kernel. */
static void names_are_unique(void **state)
{
    const dra_device *device = check_device(1, "ref");
    for (size_t i = 0; i < dra_op_count(); i++) {
        const dra_op_info op = dra_op_at(i);
        const dra_kernel *kernel = device->table->find(device, op.name);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(dra_op_at(k).name, op.name);
        assert_true(op.cpu); /* or a view or region, which needs no kernel */
        if (kernel) assert_string_equal(kernel->op, op.name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_the_kernels),
        cmocka_unit_test(overwriting_is_the_kernels),
        cmocka_unit_test(a_device_has_the_kernels_it_was_given),
        cmocka_unit_test(names_are_unique),
    };
    return check_main("kernels", NULL, 0, tests, COUNT(tests));
}
