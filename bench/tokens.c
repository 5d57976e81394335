/* tokens [PRESET... [THREADS]]: what a token of one stream costs, and what guesses by n-grams save.
 *   token    median time of a token, greedy, and processor time of one thread or all
 *   repeats  how many times as fast guesses are where the text repeats itself, and their accepted
 *            share: what a greedy model of random weights writes soon turns round in a circle
 *   random   the same where no guess is right: every token is as likely as any
 * Both ways of writing take turns in ROUNDS pairs, and the median of their ratios counts. Weights
 * are random. Times need a quiet machine. Without a PRESET: the smallest, where the host counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../tests/timing.h"
#include "dra/dra.h"

enum { PROMPT = 64, WRITTEN = 256, ROUNDS = 7 };
enum { TURNS = 300 }; /* tokens until the circle is closed */

typedef struct bench {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
} bench;

typedef struct timing { /* of a token */
    double wall, processor;
    double accepted; /* share of the guesses */
} timing;

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st == DRA_OK) return;
    fprintf(stderr, "tokens: %s\n", err->text);
    exit(1);
}

static double processor_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void open_bench(bench *b, const char *preset, int threads)
{
    dra_model_config *c = NULL;
    dra_error         err = {0};
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    c->context = 2048;
    expect_ok(dra_model_create(c, &b->model, &err), &err);
    dra_model_config_destroy(c);
    expect_ok(dra_weights_draw(b->model, 1, &b->weights, &err), &err);
    const dra_cpu_config d = {.threads = threads};
    expect_ok(dra_device_create(NULL, &d, &b->device, &err), &err);
}

static void close_bench(bench *b)
{
    dra_weights_destroy(b->weights);
    dra_model_destroy(b->model);
    dra_device_destroy(b->device);
}

/* ---- writing --------------------------------------------------------------------------------- */

static dra_generator *open_generator(const bench *b, double temperature, bool draft)
{
    const dra_generator_config c = {.model = b->model,
                                    .weights = b->weights,
                                    .device = b->device,
                                    .sampler = {.temperature = temperature, .seed = 3},
                                    .draft = {.text = draft}};
    dra_generator             *g;
    dra_error                  err = {0};
    int32_t                    ids[PROMPT];
    for (int i = 0; i < PROMPT; i++) ids[i] = i * 37 % 50;
    expect_ok(dra_generator_create(&c, &g, &err), &err);
    expect_ok(dra_generator_read(g, 0, PROMPT, ids, &err), &err);
    return g;
}

static void write_tokens(dra_generator *g, int64_t n)
{
    const dra_generate_config c = {.tokens = n, .ignore_end = true};
    dra_generated             out;
    dra_error                 err = {0};
    expect_ok(dra_generate(g, &c, &out, &err), &err);
}

static timing time_tokens(const bench *b, double temperature, bool draft)
{
    dra_generator *g = open_generator(b, temperature, draft);
    int64_t        made[2], right[2];
    write_tokens(g, TURNS);
    dra_generator_drafted(g, &made[0], &right[0]);
    const double wall = now(), processor = processor_now();
    write_tokens(g, WRITTEN);
    const timing t = {(now() - wall) / WRITTEN, (processor_now() - processor) / WRITTEN, 0};
    dra_generator_drafted(g, &made[1], &right[1]);
    dra_generator_destroy(g);
    const int64_t n = made[1] - made[0];
    return (timing){t.wall, t.processor, n ? (double)(right[1] - right[0]) / (double)n : 0};
}

/* How many times as fast guesses are. */
static double compare_ways(const bench *b, double temperature, timing *plain, double *accepted)
{
    double ratio[ROUNDS], wall[ROUNDS], processor[ROUNDS];
    for (int k = 0; k < ROUNDS; k++) {
        const timing without = time_tokens(b, temperature, false);
        const timing with = time_tokens(b, temperature, true);
        ratio[k] = without.wall / with.wall;
        wall[k] = without.wall;
        processor[k] = without.processor;
        *accepted = with.accepted;
    }
    *plain = (timing){quantile(wall, ROUNDS, 0.5), quantile(processor, ROUNDS, 0.5), 0};
    return quantile(ratio, ROUNDS, 0.5);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void measure_preset(const char *preset, int threads)
{
    bench  b;
    timing greedy, drawn;
    double accepted, none;
    open_bench(&b, preset, threads);
    const double repeats = compare_ways(&b, 0, &greedy, &accepted);
    const double random = compare_ways(&b, 1e6, &drawn, &none);
    printf("%-16s  token %8.1f us, processor %8.1f us  repeats %5.2f x (%3.0f %% accepted)  "
           "random %5.2f x (%.0f %%)\n",
           preset, 1e6 * greedy.wall, 1e6 * greedy.processor, repeats, 100 * accepted, random,
           100 * none);
    fflush(stdout);
    close_bench(&b);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"gpt2-tiny", "rwkv4-tiny", "dra-delta-tiny"};
    const int                threads = argc > 1 ? (int)strtol(argv[argc - 1], NULL, 10) : 0;
    const int                presets = argc - 1 - (threads > 0);
    for (int i = 0; i < presets; i++) measure_preset(argv[1 + i], threads > 0 ? threads : 2);
    for (int i = 0; i < 3 && presets == 0; i++) measure_preset(usual[i], threads > 0 ? threads : 2);
    return 0;
}
