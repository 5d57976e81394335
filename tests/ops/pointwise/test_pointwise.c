/* The pointwise kernel: what the compiler makes of neighbouring functions, against formulas in
 * double, over dense, strided and broadcast operands, on every level and for every number of
 * threads. */
#include "check.h"
#include "graph/program.h"

#include <math.h>
#include <string.h>

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Element i of x as one of a tensor of shape s, against which x is broadcast. */
static double seen(const check_tensor *x, const dra_shape *s, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int32_t k = 0; k < s->rank; k++) {
        const int64_t index = i % s->dim[s->rank - 1 - k];
        i /= s->dim[s->rank - 1 - k];
        if (k >= x->shape.rank) continue;
        const int64_t dim = x->shape.dim[x->shape.rank - 1 - k];
        if (dim > 1) at += index * step;
        step *= dim;
    }
    return x->at[at];
}

/* ---- a gated mix: m = a w + b (1 - w), y = sigmoid(m), z = y a ------------------------------- */

static void mix(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_value a = in[0], b = in[1], w = in[2];
    out[2] = dra_add(g, dra_mul(g, a, w), dra_mul(g, b, dra_affine(g, w, -1, 1)));
    out[0] = dra_sigmoid(g, out[2]);
    out[1] = dra_mul(g, out[0], a);
}

static void mix_oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    const dra_shape *s = &in[0].shape;
    for (int64_t i = 0; i < in[0].count; i++) {
        const double a = in[0].at[i], b = seen(&in[1], s, i), w = seen(&in[2], s, i);
        out[2].at[i] = a * w + b * (1 - w);
        out[0].at[i] = sigmoid(out[2].at[i]);
        out[1].at[i] = out[0].at[i] * a;
    }
}

static const check_case mix_cases[] = {
    {"same shapes", 3, {{{3, {2, 3, 17}}}, {{3, {2, 3, 17}}}, {{3, {2, 3, 17}}}}},
    {"a row", 3, {{{3, {2, 3, 70}}}, {{3, {2, 3, 70}}}, {{1, {70}}}}},
    {"a short row", 3, {{{3, {2, 40, 7}}}, {{3, {2, 40, 7}}}, {{1, {7}}}}},
    {"a column", 3, {{{2, {5, 300}}}, {{2, {5, 1}}}, {{2, {5, 300}}}}},
    {"a number", 3, {{{2, {9, 33}}}, {{0}}, {{1, {33}}}}},
    {"all numbers", 3, {{{0}}, {{0}}, {{0}}}},
    {"an axis in between", 3, {{{3, {3, 4, 65}}}, {{3, {3, 1, 65}}}, {{3, {1, 4, 1}}}}},
    {"nothing", 3, {{{2, {0, 8}}}, {{2, {0, 8}}}, {{1, {8}}}}},
    {"several tiles", 3, {{{2, {130, 257}}}, {{1, {257}}}, {{2, {130, 1}}}}, .no_grad = true},
};

/* ---- tests and choices: y = a < b ? a : max(b, -a), z = a < b -------------------------------- */

static void choose(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[1] = dra_less(g, in[0], in[1]);
    out[0] = dra_select(g, out[1], in[0], dra_maximum(g, in[1], dra_neg(g, in[0])));
}

static void choose_oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < in[0].count; i++) {
        const double a = in[0].at[i], b = seen(&in[1], &in[0].shape, i);
        out[1].at[i] = a < b;
        out[0].at[i] = a < b ? a : fmax(b, -a);
    }
}

static const check_case choose_cases[] = {
    {"same shapes", 2, {{{2, {7, 9}}}, {{2, {7, 9}}}}, .no_grad = true},
    {"a row", 2, {{{2, {7, 90}}}, {{1, {90}}}}, .no_grad = true},
    {"nothing", 2, {{{1, {0}}}, {{1, {0}}}}, .no_grad = true},
};

/* ---- what it is made of ---------------------------------------------------------------------- */

static size_t steps(dra_graph *g)
{
    dra_program *p = NULL;
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, NULL), DRA_OK);
    const dra_instr *in = p->block[DRA_BLOCK_STEP].instr[0];
    const size_t     n = p->block[DRA_BLOCK_STEP].n;
    if (n == 1) assert_string_equal(in->op->name, "pointwise");
    dra_program_destroy(p);
    dra_graph_destroy(g);
    return n;
}

static void is_one_instruction(void **state)
{
    dra_graph *g = check_graph();
    dra_value  out[3],
        in[3] = {check_real(g, "a", DRA_SHAPE(2, 8)), check_real(g, "b", DRA_SHAPE(2, 8)),
                 check_real(g, "w", DRA_SHAPE(2, 8))};
    mix(g, NULL, in, out);
    dra_output(g, "y", out[0]);
    dra_output(g, "z", out[1]);
    assert_int_equal(steps(g), 1);
    g = check_graph();
    in[0] = dra_flip(g, check_real(g, "a", DRA_SHAPE(2, 8)), 1); /* negative strides */
    in[1] = dra_transpose(g, check_real(g, "b", DRA_SHAPE(8, 2)), 0, 1);
    choose(g, NULL, in, out);
    dra_output(g, "y", out[0]);
    dra_output(g, "z", out[1]);
    assert_int_equal(steps(g), 1);
}

static void flips_are_read_backwards(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value x = dra_flip(g, check_real(g, "x", DRA_SHAPE(2, 100)), 1);
    dra_output(g, "y", dra_affine(g, dra_neg(g, x), 1, 1));
    check_program p = check_compile(g, 1);
    dra_real      v[200];
    double        want[200];
    for (int i = 0; i < 200; i++) v[i] = (dra_real)i;
    for (int i = 0; i < 200; i++) want[i] = 1 - (i / 100 * 100 + 99 - i % 100);
    check_bind(&p, "x", v, sizeof v);
    check_run(&p);
    check_close("y", 200, check_result(&p, "y"), want, 0);
    check_free(&p);
}

int main(void)
{
    const check_spec specs[] = {
        {"mix", 3, mix, mix_oracle, mix_cases, COUNT(mix_cases)},
        {"choose", 2, choose, choose_oracle, choose_cases, COUNT(choose_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_one_instruction),
        cmocka_unit_test(flips_are_read_backwards),
    };
    return check_main("pointwise", specs, COUNT(specs), tests, COUNT(tests));
}
