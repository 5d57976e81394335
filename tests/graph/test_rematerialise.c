/* rematerialise.c: norms and activations of a training step are computed twice instead of kept: the
 * same bits, less memory. */
#include "check.h"
#include "graph/program.h"

#include <stdlib.h>

enum { DEPTH = 12, ROWS = 1024, C = 64, HIDDEN = 256, THREADS = 2 };

typedef struct inputs {
    dra_value x, gain, up, down;
} inputs;

static inputs declare(dra_graph *g)
{
    return (inputs){check_real(g, "x", DRA_SHAPE(ROWS, C)), check_real(g, "gain", DRA_SHAPE(C)),
                    check_real(g, "up", DRA_SHAPE(C, HIDDEN)),
                    check_real(g, "down", DRA_SHAPE(HIDDEN, C))};
}

/* x + gelu(norm(x) up) down, DEPTH times, and the gradients of a sum. */
static dra_graph *feed_forwards(void)
{
    dra_graph   *g = check_graph();
    const inputs in = declare(g);
    dra_value    x = in.x, dx[4];
    for (int i = 0; i < DEPTH; i++) {
        const dra_value n = dra_layer_norm(g, x, in.gain, (dra_value){0}, 1e-5);
        const dra_value h = dra_gelu(g, dra_matmul(g, n, in.up));
        x = dra_add(g, x, dra_matmul(g, h, in.down));
    }
    const dra_value y = dra_sum_all(g, dra_square(g, x)), of[] = {in.x, in.gain, in.up, in.down};
    dra_gradient(g, 1, &y, NULL, 4, of, dx);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "dgain", dx[1]);
    dra_output(g, "dup", dx[2]);
    dra_output(g, "ddown", dx[3]);
    return g;
}

typedef struct numbers {
    dra_real x[ROWS * C], gain[C], up[C * HIDDEN], down[HIDDEN * C];
} numbers;

static numbers *draw(void)
{
    numbers *n = malloc(sizeof *n);
    uint64_t seed = 3;
    assert_non_null(n);
    dra_real *all = n->x;
    for (size_t i = 0; i < sizeof *n / sizeof *all; i++)
        all[i] = (dra_real)(0.2 * (check_random(&seed) - 0.5));
    return n;
}

static check_program compile(bool plain)
{
    check_program p = {0};
    dra_error     err = {0};
    dra_graph    *g = feed_forwards();
    dra_device   *d = check_device(THREADS, dra_device_level_at(0));
    dra_status    st = (plain ? dra_compile_plain : dra_compile_fenced)(g, d, 64, &p.program, &err);
    if (st == DRA_OK) st = dra_buffers_create(p.program, &p.buffers, &err);
    if (st != DRA_OK) fail_msg("%s", err.text);
    dra_graph_destroy(g);
    return p;
}

static void run(check_program *p, numbers *n)
{
    check_bind(p, "x", n->x, sizeof n->x);
    check_bind(p, "gain", n->gain, sizeof n->gain);
    check_bind(p, "up", n->up, sizeof n->up);
    check_bind(p, "down", n->down, sizeof n->down);
    check_run(p);
}

/* As it is compiled, and instruction by instruction as it was built. */
static void keeps_the_bits_and_saves_memory(void **state)
{
    numbers      *n = draw();
    check_program p[] = {compile(false), compile(true)};
    for (int k = 0; k < 2; k++) run(&p[k], n);
    assert_memory_equal(check_result(&p[0], "dx"), check_result(&p[1], "dx"), sizeof n->x);
    assert_memory_equal(check_result(&p[0], "dgain"), check_result(&p[1], "dgain"), sizeof n->gain);
    assert_memory_equal(check_result(&p[0], "dup"), check_result(&p[1], "dup"), sizeof n->up);
    assert_memory_equal(check_result(&p[0], "ddown"), check_result(&p[1], "ddown"), sizeof n->down);
    /* Of each block the norm (C), the activation (HIDDEN) and what both are made of (C + HIDDEN)
     * were kept; the last blocks gain nothing. */
    const size_t kept = dra_program_memory(p[0].program).activations;
    const size_t all = dra_program_memory(p[1].program).activations;
    assert_true(kept * 3 < all * 2);
    for (int k = 0; k < 2; k++) check_free(&p[k]);
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_the_bits_and_saves_memory)};
    return check_main("rematerialise", NULL, 0, tests, COUNT(tests));
}
