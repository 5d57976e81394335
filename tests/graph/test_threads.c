/* Threads: one program shared by many of them, each with its own buffers, on devices of 1, 2 and 7
 * threads: the same bits everywhere. */
#include "check.h"

#include <pthread.h>
#include <string.h>

enum { N = 40000, RUNNERS = 5, RUNS = 6 };

static dra_graph *model(void)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(N / 40, 40)), dx;
    dra_value  w = dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(40, 40));
    dra_value  h = dra_silu(g, dra_linear(g, x, w, (dra_value){0}));
    dra_value  y = dra_sum_all(g, dra_mul(g, dra_softmax(g, h), x));
    dra_gradient(g, 1, &y, NULL, 1, &w, &dx);
    dra_output(g, "y", y);
    dra_output(g, "dw", dx);
    return g;
}

typedef struct runner {
    const dra_program *program;
    dra_real          *x, *w;
    dra_real           result[1 + 1600];
    dra_status         status;
} runner;

static void *work(void *arg)
{
    runner      *r = arg;
    dra_buffers *b = NULL;
    r->status = dra_buffers_create(r->program, &b, NULL);
    if (r->status == DRA_OK) r->status = dra_put(b, "x", r->x, N * sizeof(dra_real), NULL);
    if (r->status == DRA_OK) r->status = dra_put(b, "w", r->w, 1600 * sizeof(dra_real), NULL);
    for (int i = 0; i < RUNS && r->status == DRA_OK; i++) r->status = dra_run(b, NULL);
    if (r->status == DRA_OK) r->status = dra_get(b, "y", r->result, sizeof(dra_real), NULL);
    if (r->status == DRA_OK)
        r->status = dra_get(b, "dw", r->result + 1, 1600 * sizeof(dra_real), NULL);
    dra_buffers_destroy(b);
    return NULL;
}

static void gives_the_same_bits_everywhere(void **state)
{
    static dra_real  x[N], w[1600];
    static runner    runners[3][RUNNERS];
    static const int threads[] = {1, 2, 7};
    uint64_t         seed = 4;
    for (int i = 0; i < N; i++) x[i] = (dra_real)(check_random(&seed) - 0.5);
    for (int i = 0; i < 1600; i++) w[i] = (dra_real)(check_random(&seed) - 0.5);
    dra_graph *g = model();
    for (int d = 0; d < 3; d++) {
        dra_program *p = NULL;
        dra_error    err = {0};
        pthread_t    id[RUNNERS];
        if (dra_compile(g, check_device(threads[d], "ref"), &p, &err) != DRA_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i < RUNNERS; i++) {
            runners[d][i] = (runner){.program = p, .x = x, .w = w};
            assert_int_equal(pthread_create(&id[i], NULL, work, &runners[d][i]), 0);
        }
        for (int i = 0; i < RUNNERS; i++) pthread_join(id[i], NULL);
        for (int i = 0; i < RUNNERS; i++) {
            assert_int_equal(runners[d][i].status, DRA_OK);
            assert_memory_equal(runners[d][i].result, runners[0][0].result,
                                sizeof runners[0][0].result);
        }
        dra_program_destroy(p);
    }
    dra_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gives_the_same_bits_everywhere)};
    return check_main("threads", NULL, 0, tests, COUNT(tests));
}
