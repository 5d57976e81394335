/* What the core costs: the executor per node, and a few ops with FLOPs and bytes by their own
 * formulas. Prints a table; judges nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dra/dra.h"

enum { REPEATS = 9 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(dra_status st, const dra_error *err)
{
    if (st == DRA_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef struct bench {
    const char *name;
    void (*build)(dra_graph *g);
    const char *input[3]; /* names, bound to zeros */
    size_t      count[3];
} bench;

static void chain(dra_graph *g)
{
    dra_value x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(16));
    for (int i = 0; i < 1000; i++) x = dra_tanh(g, x);
    dra_output(g, "y", x);
}

static void product(dra_graph *g)
{
    const dra_value a = dra_input(g, "x", DRA_REAL, DRA_SHAPE(512, 384));
    const dra_value b = dra_input(g, "w", DRA_REAL, DRA_SHAPE(384, 384));
    dra_output(g, "y", dra_matmul(g, a, b));
}

static void attention(dra_graph *g)
{
    const dra_value q = dra_input(g, "x", DRA_REAL, DRA_SHAPE(1, 6, 512, 64));
    dra_value       lo, hi;
    dra_causal_interval(g, (dra_value){0}, 1, 512, 0, &lo, &hi);
    dra_output(g, "y", dra_attend(g, q, q, q, &(dra_attend_config){.lo = lo, .hi = hi}));
}

static void add(dra_graph *g)
{
    const dra_value a = dra_input(g, "x", DRA_REAL, DRA_SHAPE(4 << 20));
    const dra_value b = dra_input(g, "w", DRA_REAL, DRA_SHAPE(4 << 20));
    dra_output(g, "y", dra_add(g, a, b));
}

static void softmax(dra_graph *g)
{
    dra_output(g, "y", dra_softmax(g, dra_input(g, "x", DRA_REAL, DRA_SHAPE(4096, 1024))));
}

static const bench benches[] = {
    {"executor: 1000 tiny ops", chain, {"x"}, {16}},
    {"matmul 512 x 384 x 384", product, {"x", "w"}, {512 * 384, 384 * 384}},
    {"attention causal, 6 heads, T 512, D 64", attention, {"x"}, {6 * 512 * 64}},
    {"add, 4 M elements", add, {"x", "w"}, {4 << 20, 4 << 20}},
    {"softmax 4096 x 1024", softmax, {"x"}, {4096 * 1024}},
};

static void measure(const bench *k, dra_device *cpu)
{
    dra_graph      *g = NULL;
    dra_program    *p = NULL;
    dra_buffers    *b = NULL;
    dra_error       err = {0};
    double          seconds[REPEATS], flops = 0, bytes = 0;
    void           *data[3] = {0};
    dra_profile_row rows[16];
    must(dra_graph_create(&g, &err), &err);
    k->build(g);
    must(dra_compile(g, cpu, &p, &err), &err);
    must(dra_buffers_create(p, &b, &err), &err);
    for (int i = 0; i < 3 && k->input[i]; i++) {
        data[i] = calloc(k->count[i], sizeof(dra_real));
        must(dra_bind(b, k->input[i], data[i], k->count[i] * sizeof(dra_real), &err), &err);
    }
    dra_profile_enable(b, true);
    must(dra_run(b, &err), &err);
    dra_profile_enable(b, false);
    const size_t n = dra_profile_read(b, rows, 16);
    for (size_t i = 0; i < n && i < 16; i++) flops += rows[i].flops, bytes += rows[i].bytes;
    for (int i = 0; i < REPEATS; i++) {
        const double start = now();
        must(dra_run(b, &err), &err);
        seconds[i] = now() - start;
    }
    qsort(seconds, REPEATS, sizeof *seconds, ascending);
    const double s = seconds[REPEATS / 2];
    printf("%-40s %3d  %10.1f us %8.2f GFLOP/s %8.2f GB/s\n", k->name, dra_device_threads(cpu),
           1e6 * s, 1e-9 * flops / s, 1e-9 * bytes / s);
    for (int i = 0; i < 3; i++) free(data[i]);
    dra_buffers_destroy(b);
    dra_program_destroy(p);
    dra_graph_destroy(g);
}

int main(void)
{
    printf("%-40s %s  %13s %16s %13s   (median of %d)\n", "", "threads", "time", "", "", REPEATS);
    for (int threads = 1; threads <= 2; threads++) {
        dra_device *cpu = NULL;
        dra_error   err = {0};
        must(dra_device_create_cpu(&(dra_cpu_config){.threads = threads}, &cpu, &err), &err);
        for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) measure(&benches[i], cpu);
        dra_device_destroy(cpu);
    }
    return 0;
}
