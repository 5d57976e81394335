/* scan [TOKENS [WIDTH [SETTING...]]]: how long a device takes to read tokens with a memory that has
 * nothing but a step, which a scan runs for each token. The device is that of DRA_DEVICE; on a GPU
 * each SETTING of DRA_CUDA_SCAN (docs/cuda.md) is timed for itself, e.g. auto unrolled 16 64. The
 * memory is that of examples/05_new_memory.c. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dra/dra.h"

enum { WARM = 3, REPEATS = 31 }; /* a GPU walks a program, captures it, replays it */

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    static const char *const names[] = {"peak_0", "peak_1"};
    dra_gamma_declare(s, prefix, "beta", 0, s->stream[0].width, params);
    for (int i = 0; i < s->streams; i++)
        dra_specs_add(state, prefix,
                      &(dra_spec){.name = names[i], .shape = DRA_SHAPE(s->H, s->stream[i].width)});
}

static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_value gamma = dra_sigmoid(g, dra_reshape(g, c->param[0], DRA_SHAPE(-1, 1)));
    for (int i = 0; i < c->sizes->streams; i++) {
        r->state[i] = dra_maximum(g, dra_mul(g, gamma, c->state[i]), c->x[i]);
        r->item[i] = r->state[i];
    }
}

static const char *const retrievals[] = {"time", "window", "none", NULL};
static const dra_memory  peak = {
     .name = "peak", .retrievals = retrievals, .declare = declare, .step = step};

typedef struct bench {
    dra_device *device;
    dra_mixer  *mixer;
    dra_reader *reader;
    dra_states *states;
    dra_real   *x;
    int64_t     tokens, width;
} bench;

static dra_status open_bench(bench *b, dra_error *err)
{
    const dra_mixer_config config = {.dim = b->width, .heads = 2, .a = {.own = &peak}};
    dra_status             st = dra_device_create(NULL, NULL, &b->device, err);
    if (st == DRA_OK) st = dra_mixer_create(&config, &b->mixer, err);
    if (st == DRA_OK)
        st = dra_reader_create(b->device, dra_mixer_module(b->mixer), &b->reader, err);
    if (st == DRA_OK) st = dra_reader_start(b->reader, 1, err);
    if (st == DRA_OK)
        st = dra_states_create(b->device, dra_mixer_module(b->mixer)->state, 1, &b->states, err);
    return st;
}

static void close_bench(bench *b)
{
    dra_states_destroy(b->states);
    dra_reader_destroy(b->reader);
    dra_mixer_destroy(b->mixer);
    dra_device_destroy(b->device);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* From the host's tokens to the host's results, a sequence from its beginning each time. */
static dra_status time_reads(bench *b, double *median, dra_error *err)
{
    const size_t    bytes = (size_t)(b->tokens * b->width) * sizeof *b->x;
    const dra_named x = {"x", b->x, bytes};
    double          seconds[REPEATS] = {0};
    dra_status      st = DRA_OK;
    for (int i = -WARM; i < REPEATS && st == DRA_OK; i++) {
        struct timespec from, to;
        st = dra_states_reset(b->states, -1, err);
        clock_gettime(CLOCK_MONOTONIC, &from);
        if (st == DRA_OK) st = dra_reader_read(b->reader, b->states, b->tokens, NULL, 1, &x, err);
        if (st == DRA_OK && !dra_reader_result(b->reader, "y")) st = DRA_ERR_MEMORY;
        clock_gettime(CLOCK_MONOTONIC, &to);
        if (i >= 0)
            seconds[i] = (double)(to.tv_sec - from.tv_sec) +
                         1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    }
    qsort(seconds, REPEATS, sizeof *seconds, compare);
    *median = seconds[REPEATS / 2];
    return st;
}

static dra_status time_setting(bench b, const char *setting, dra_error *err)
{
    double seconds = 0;
    if (setting) setenv("DRA_CUDA_SCAN", setting, 1);
    dra_status st = open_bench(&b, err);
    if (st == DRA_OK) st = time_reads(&b, &seconds, err);
    if (st == DRA_OK)
        printf("%-10s %s: %lld tokens, width %lld: %.3f ms, %.2f us a token\n",
               setting ? setting : "", dra_device_level(b.device), (long long)b.tokens,
               (long long)b.width, 1e3 * seconds, 1e6 * seconds / (double)b.tokens);
    close_bench(&b);
    return st;
}

int main(int argc, char **argv)
{
    bench      b = {.tokens = argc > 1 ? atoll(argv[1]) : 1024,
                    .width = argc > 2 ? atoll(argv[2]) : 384};
    dra_error  err = {0};
    dra_status st = b.tokens > 0 && b.width > 0 ? DRA_OK : DRA_ERR_VALUE;
    if (st == DRA_OK) b.x = calloc((size_t)(b.tokens * b.width), sizeof *b.x);
    for (int64_t i = 0; b.x && i < b.tokens * b.width; i++)
        b.x[i] = (dra_real)((double)(i * 37 % 19 - 9) / 9);
    int i = 3;
    do st = b.x ? time_setting(b, i < argc ? argv[i] : NULL, &err) : DRA_ERR_MEMORY;
    while (++i < argc && st == DRA_OK);
    if (st != DRA_OK) fprintf(stderr, "scan: %s\n", err.text[0] ? err.text : "cannot be timed");
    free(b.x);
    return st != DRA_OK;
}
