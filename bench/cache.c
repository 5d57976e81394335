/* cache [PRESET [CONTEXT [THREADS]]]: what a cache in bf16 saves where one stream writes.
 *   prompt   seconds for CONTEXT tokens, with a cache in full precision and in bf16
 *   token    median time of a token after them, and processor time of all threads, with matrices in
 *            full precision and in bf16
 * Both kinds of cache take turns in ROUNDS pairs of WRITTEN tokens, and the median of their ratios
 * counts. Weights are random. Times need a quiet machine. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../tests/timing.h"
#include "dra/dra.h"

enum { WRITTEN = 16, ROUNDS = 9 };

typedef struct side { /* one kind of cache */
    dra_model     *model;
    dra_weights   *weights;
    dra_device    *device;
    dra_generator *writer;
} side;

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st == DRA_OK) return;
    fprintf(stderr, "cache: %s\n", err->text);
    exit(1);
}

/* Reads a text of `context` tokens; returns the seconds it took. */
static double open_side(side *s, const char *preset, int64_t context, int threads, bool cache,
                        bool matrices)
{
    const dra_cpu_config d = {.threads = threads};
    dra_model_config    *c = NULL;
    dra_error            err = {0};
    int32_t             *ids = calloc((size_t)context, sizeof *ids);
    for (int64_t i = 0; ids && i < context; i++) ids[i] = (int32_t)(i * 37 % 50);
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    c->context = context + (2 + ROUNDS) * WRITTEN;
    c->bf16_cache = cache;
    expect_ok(dra_model_create(c, &s->model, &err), &err);
    dra_model_config_destroy(c);
    expect_ok(dra_weights_draw(s->model, 1, &s->weights, &err), &err);
    if (matrices) expect_ok(dra_weights_to_bf16(s->weights, &err), &err);
    expect_ok(dra_device_create(NULL, &d, &s->device, &err), &err);
    const dra_generator_config g = {.model = s->model, .weights = s->weights, .device = s->device};
    expect_ok(dra_generator_create(&g, &s->writer, &err), &err);
    const double start = now();
    expect_ok(dra_generator_read(s->writer, 0, (size_t)context, ids, &err), &err);
    const double seconds = now() - start;
    free(ids);
    return seconds;
}

static void close_side(side *s)
{
    dra_generator_destroy(s->writer);
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
    dra_device_destroy(s->device);
}

static double processor_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { WALL, PROCESSOR, CLOCKS };

static void time_token(const side *s, double seconds[CLOCKS])
{
    const dra_generate_config c = {.tokens = WRITTEN, .ignore_end = true};
    dra_generated             out;
    dra_error                 err = {0};
    const double              wall = now(), processor = processor_now();
    expect_ok(dra_generate(s->writer, &c, &out, &err), &err);
    seconds[WALL] = (now() - wall) / WRITTEN;
    seconds[PROCESSOR] = (processor_now() - processor) / WRITTEN;
}

/* times of both sides, by round */
static void print_clock(const char *name, double (*times)[2][ROUNDS])
{
    double ratio[ROUNDS];
    for (int k = 0; k < ROUNDS; k++) ratio[k] = (*times)[0][k] / (*times)[1][k];
    printf("  %s %.0f us, %.0f us, %.2f x", name, 1e6 * quantile((*times)[0], ROUNDS, 0.5),
           1e6 * quantile((*times)[1], ROUNDS, 0.5), quantile(ratio, ROUNDS, 0.5));
}

static void measure_preset(const char *preset, int64_t context, int threads, bool matrices)
{
    side   s[2];
    double prompt[2], times[CLOCKS][2][ROUNDS], seconds[CLOCKS];
    for (int i = 0; i < 2; i++) prompt[i] = open_side(&s[i], preset, context, threads, i, matrices);
    for (int k = -1; k < ROUNDS; k++)
        for (int i = 0; i < 2; i++) {
            time_token(&s[i], seconds);
            for (int t = 0; t < CLOCKS && k >= 0; t++) times[t][i][k] = seconds[t];
        }
    printf("%s, matrices %s, %lld tokens, caches f32 and bf16:  prompt %.2f s, %.2f s", preset,
           matrices ? "bf16" : "f32", (long long)context, prompt[0], prompt[1]);
    print_clock("token", &times[WALL]);
    print_clock("processor", &times[PROCESSOR]);
    putchar('\n');
    fflush(stdout);
    for (int i = 0; i < 2; i++) close_side(&s[i]);
}

int main(int argc, char **argv)
{
    const char   *preset = argc > 1 ? argv[1] : "gpt2";
    const int64_t context = argc > 2 ? strtol(argv[2], NULL, 10) : 2048;
    const int     threads = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 2;
    for (int i = 0; i < 2; i++) measure_preset(preset, context > 0 ? context : 2048, threads, i);
    return 0;
}
