/* recompute: the same values and gradients as without it, with less memory. */
#include "check.h"

#include <math.h>
#include <string.h>

static void block(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    dra_value h = in[0];
    for (int i = 0; i < 8; i++) h = dra_tanh(g, dra_add(g, dra_mul(g, h, in[1]), in[0]));
    out[0] = h;
    out[1] = dra_sin(g, h);
}

static void build(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_recompute(g, block, NULL, 2, in, 2, out);
}

static void oracle(const void *user, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < in[0].count; i++) {
        double h = in[0].at[i];
        for (int k = 0; k < 8; k++) h = tanh(h * in[1].at[i] + in[0].at[i]);
        out[0].at[i] = h;
        out[1].at[i] = sin(h);
    }
}

/* The same value twice: its gradient holds both uses once. */
static void build_twice_the_same(dra_graph *g, const void *user, const dra_value *in,
                                 dra_value *out)
{
    const dra_value both[] = {in[0], in[0]};
    dra_recompute(g, block, NULL, 2, both, 2, out);
}

static void oracle_twice_the_same(const void *user, const check_tensor *in, check_tensor *out)
{
    const check_tensor both[] = {in[0], in[0]};
    oracle(user, both, out);
}

/* One input made from another: the path between them belongs to the outer graph. */
static void build_dependent(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    const dra_value both[] = {in[0], dra_sin(g, in[0])};
    dra_recompute(g, block, NULL, 2, both, 2, out);
}

static void oracle_dependent(const void *user, const check_tensor *in, check_tensor *out)
{
    double       second[64];
    check_tensor both[] = {in[0], {in[0].shape, in[0].count, second}};
    for (int64_t i = 0; i < in[0].count; i++) second[i] = sin(in[0].at[i]);
    oracle(user, both, out);
}

static const check_case cases[] = {
    {"two inputs", 2, {{{2, {3, 5}}}, {{2, {3, 5}}}}},
    {"nothing", 2, {{{2, {0, 5}}}, {{2, {0, 5}}}}},
};
static const check_case one_case[] = {{"value", 1, {{{2, {3, 5}}}}}};

/* A stack of blocks with or without recompute: memory, and the bits of the gradients. */
enum { DEPTH = 12, C = 512 };

static check_program stack(bool again)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(C)), w = check_real(g, "w", DRA_SHAPE(C)), h = x;
    for (int i = 0; i < DEPTH; i++) {
        dra_value in[] = {h, w}, out[2];
        if (again)
            dra_recompute(g, block, NULL, 2, in, 2, out);
        else
            block(g, NULL, in, out);
        h = out[0];
    }
    dra_value y = dra_sum_all(g, h), in[] = {x, w}, dx[2];
    dra_gradient(g, 1, &y, NULL, 2, in, dx);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "dw", dx[1]);
    return check_compile(g, 2);
}

static void saves_memory_and_keeps_the_gradients(void **state)
{
    check_program p[] = {stack(false), stack(true)};
    dra_real      x[C], w[C];
    uint64_t      seed = 9;
    for (int i = 0; i < C; i++)
        x[i] = (dra_real)check_random(&seed), w[i] = (dra_real)check_random(&seed);
    for (int k = 0; k < 2; k++) {
        check_bind(&p[k], "x", x, sizeof x);
        check_bind(&p[k], "w", w, sizeof w);
        check_run(&p[k]);
    }
    assert_memory_equal(check_result(&p[0], "dx"), check_result(&p[1], "dx"), sizeof x);
    double dw[C]; /* used by all blocks: its parts are added up block by block, in another order */
    for (int i = 0; i < C; i++) dw[i] = (double)check_result(&p[0], "dw")[i];
    check_close("dw", C, check_result(&p[1], "dw"), dw, sizeof(dra_real) == 4 ? 1e-6 : 1e-14);
    const size_t plain = dra_program_memory(p[0].program).activations;
    const size_t again = dra_program_memory(p[1].program).activations;
    assert_true(again * 3 < plain); /* 12 + 8 values alive instead of 12 x 8 */
    check_free(&p[0]);
    check_free(&p[1]);
}

int main(void)
{
    const check_spec specs[] = {
        {"recompute", 2, build, oracle, cases, COUNT(cases)},
        {"recompute the same", 2, build_twice_the_same, oracle_twice_the_same, one_case, 1},
        {"recompute dependent", 2, build_dependent, oracle_dependent, one_case, 1},
    };
    const struct CMUnitTest tests[] = {cmocka_unit_test(saves_memory_and_keeps_the_gradients)};
    return check_main("recompute", specs, COUNT(specs), tests, COUNT(tests));
}
