/* flip: against its formula, alone and in front of kernels that want other layouts. */
#include "check.h"

#include <math.h>
#include <string.h>

static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_value y = dra_flip(g, in[0], *(const int *)args);
    out[0] = dra_copy(g, y);                   /* any strides */
    out[1] = dra_sin(g, y);                    /* pointwise */
    out[2] = dra_sum_last(g, y);               /* a reduction */
    out[3] = dra_softmax(g, y);                /* rows */
    out[4] = dra_reshape(g, y, DRA_SHAPE(-1)); /* a view of the view */
}

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    const dra_shape *s = &in->shape;
    const int     axis = *(const int *)args < 0 ? *(const int *)args + s->rank : *(const int *)args;
    const int64_t C = check_last(in), n = s->dim[axis];
    int64_t       inner = 1;
    for (int32_t i = axis + 1; i < s->rank; i++) inner *= s->dim[i];
    for (int64_t i = 0; i < in->count; i++) {
        const int64_t at = i / inner % n, from = i + (n - 1 - 2 * at) * inner;
        out[0].at[i] = out[4].at[i] = in->at[from];
        out[1].at[i] = sin(in->at[from]);
    }
    for (int64_t r = 0; r < check_rows(in); r++) {
        const double *y = out[0].at + r * C;
        double        sum = 0;
        for (int64_t c = 0; c < C; c++) out[2].at[r] += y[c], sum += exp(y[c]);
        for (int64_t c = 0; c < C; c++) out[3].at[r * C + c] = exp(y[c]) / sum;
    }
}

static const int axes[] = {0, 1, 2, -1};

static const check_case cases[] = {
    {"first axis", 1, {{{3, {4, 3, 5}}}}, &axes[0]},
    {"middle axis", 1, {{{3, {4, 3, 5}}}}, &axes[1]},
    {"last axis", 1, {{{3, {4, 3, 5}}}}, &axes[2]},
    {"from the end", 1, {{{2, {3, 17}}}}, &axes[3]},
    {"one value", 1, {{{1, {1}}}}, &axes[0]},
    {"nothing", 1, {{{2, {2, 0}}}}, &axes[0]},
};

static void moves_nothing(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(4));
    dra_output(g, "y", dra_neg(g, dra_flip(g, dra_flip(g, x, 0), 0)));
    check_program p = check_compile(g, 1);
    assert_int_equal(dra_program_memory(p.program).steps, 1);
    check_free(&p);
}

static void refuses_an_axis_outside(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_flip(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(2, 3)), 2).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "flip: x i32 (2, 3) has no such axis");
}

int main(void)
{
    const check_spec        specs[] = {{"flip", 5, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(moves_nothing),
                                       cmocka_unit_test(refuses_an_axis_outside)};
    return check_main("flip", specs, COUNT(specs), tests, COUNT(tests));
}
