/* engine [--device NAME] [PRESET [DEPTH DIM [THREADS [CHUNK]]]]: how many tokens an engine writes,
 * and how long its sequences wait for each other. Without --device that of DRA_DEVICE, or the CPU.
 *   many     tokens a second of one sequence and of 16
 *   streams  1 to 8 of them write, then a prompt of 4096 tokens comes: time between two tokens of a
 *            stream before it, and while it is read; how fast it is read, and how fast alone
 *   cached   first token of a prompt of 8192 tokens that was read before, of one token, and the
 *            time in which its bytes can be read: weights and states
 * Weights are random. Times are of the wall: they need a quiet machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/timing.h"
#include "dra/dra.h"

enum { STREAMS = 8, PROMPT = 4096, CACHED = 8192, BEFORE = 60, GAPS = 1 << 14, ROUNDS = 9 };
enum { MANY = 16, WRITTEN = 64, WRITES = 5, THREADS = 2 };
enum { FILL = 24, LIMIT = 1 << 30, LASTING = 2048 /* tokens of a stream: more than it gets to */ };

typedef struct bench {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    dra_engine  *engine;
    int32_t      ids[CACHED + 1];
} bench;

typedef struct stream { /* when its tokens came */
    double last, *gap;
    int    n;
    bool   ended;
} stream;

static void must(dra_status st, const dra_error *err)
{
    if (st == DRA_OK) return;
    fprintf(stderr, "engine: %s\n", err->text);
    exit(1);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static bool on_token(void *user, const dra_job_token *t)
{
    stream      *s = user;
    const double at = now();
    (void)t;
    if (s->last > 0 && s->gap && s->n < GAPS) s->gap[s->n++] = at - s->last;
    s->last = at;
    return true;
}

static void on_end(void *user, const dra_job_result *r)
{
    ((stream *)user)->ended = true;
    if (r->end == DRA_JOB_FAILED) must(r->error.code, &r->error);
}

static uint64_t submit(bench *b, stream *s, size_t n, const int32_t *ids, int64_t tokens)
{
    uint64_t             id;
    dra_error            err = {0};
    const dra_job_config c = {.n = n,
                              .ids = ids,
                              .tokens = tokens,
                              .ignore_end = true,
                              .logprobs = -1,
                              .token = on_token,
                              .end = on_end,
                              .user = s};
    must(dra_engine_submit(b->engine, &c, &id, &err), &err);
    return id;
}

static void step(bench *b)
{
    bool      idle;
    dra_error err = {0};
    must(dra_engine_step(b->engine, &idle, &err), &err);
}

/* Seconds until the first token of a prompt that comes now. */
static double first_token(bench *b, size_t n, const int32_t *ids)
{
    stream       s = {0};
    const double began = now();
    submit(b, &s, n, ids, 1);
    while (!s.ended) step(b);
    return now() - began;
}

/* ---- many sequences -------------------------------------------------------------------------- */

/* Tokens a second of n sequences that write. */
static double write_with(bench *b, int n)
{
    stream        s[MANY] = {{0}};
    const int32_t first = 5;
    int           left = n;
    for (int k = 0; k < n; k++) submit(b, &s[k], 1, &first, WRITTEN + 1);
    step(b);
    const double began = now();
    while (left > 0) {
        step(b);
        left = 0;
        for (int k = 0; k < n; k++) left += !s[k].ended;
    }
    return n * WRITTEN / (now() - began);
}

static void run_many(bench *b)
{
    double one[WRITES], many[WRITES];
    write_with(b, 1); /* compiles */
    write_with(b, MANY);
    for (int i = 0; i < WRITES; i++) {
        one[i] = write_with(b, 1);
        many[i] = write_with(b, MANY);
    }
    const double a = quantile(one, WRITES, 0.5), c = quantile(many, WRITES, 0.5);
    printf("one sequence writes %.1f tokens/s, %d write %.1f: %.2f times\n", a, MANY, c, c / a);
}

/* ---- streams and a prompt -------------------------------------------------------------------- */

/* A prompt that no kept state begins with. */
static void other_prompt(bench *b, int64_t V)
{
    static uint64_t x = 1;
    for (int i = 0; i <= CACHED; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (int32_t)((x >> 33) % (uint64_t)V);
    }
}

/* Moves the gaps of n streams into one list; returns how many. */
static size_t take_gaps(stream *s, int n, double *all)
{
    size_t count = 0;
    for (int k = 0; k < n; k++) {
        memcpy(all + count, s[k].gap, (size_t)s[k].n * sizeof *all);
        count += (size_t)s[k].n;
        s[k].n = 0;
    }
    return count;
}

static void run_streams(bench *b, int n, int64_t V, bool shown)
{
    static double gap[STREAMS][GAPS], all[STREAMS * GAPS];
    stream        s[STREAMS] = {{0}}, prompt = {0};
    uint64_t      id[STREAMS];
    const int32_t first = 5;
    for (int k = 0; k < n; k++) {
        s[k].gap = gap[k];
        id[k] = submit(b, &s[k], 1, &first, LASTING);
    }
    for (int i = 0; i < 8; i++) step(b);
    for (int k = 0; k < n; k++) s[k].n = 0;
    for (int i = 0; i < BEFORE; i++) step(b);
    const size_t before = take_gaps(s, n, all);
    const double usual = quantile(all, before, 0.5), usually = quantile(all, before, 0.99);
    other_prompt(b, V);
    const double began = now();
    submit(b, &prompt, PROMPT, b->ids, 1);
    while (!prompt.ended) step(b);
    const double seconds = now() - began;
    const size_t during = take_gaps(s, n, all);
    for (int k = 0; k < n; k++) dra_engine_cancel(b->engine, id[k]);
    step(b);
    if (!shown) return;
    const double half = quantile(all, during, 0.5), most = quantile(all, during, 0.99);
    printf("%7d %9.1f %7.1f %11.1f %7.1f %7.1f %8.2f %9.2f %10.0f\n", n, 1e3 * usual, 1e3 * usually,
           1e3 * half, 1e3 * most, during ? 1e3 * all[during - 1] : 0, most / half, most / usual,
           PROMPT / seconds);
}

/* Prompts until the memory of states is full, where it is filled by a few: memory that is used for
 * the first time comes from the system, which may take long. */
static void fill(bench *b, int64_t V)
{
    for (size_t before = 0, n = 0; n < FILL; n++) {
        other_prompt(b, V);
        first_token(b, PROMPT, b->ids);
        const size_t bytes = dra_engine_stats_of(b->engine).state_bytes;
        if (bytes < before + LIMIT / FILL) return;
        before = bytes;
    }
}

static void run_all_streams(bench *b, int64_t V)
{
    double alone[3];
    fill(b, V);
    for (int i = 0; i < 3; i++) {
        other_prompt(b, V);
        alone[i] = first_token(b, PROMPT, b->ids);
    }
    printf("a prompt of %d alone: %.0f tokens/s\n", PROMPT, PROMPT / quantile(alone, 3, 0.5));
    printf("ms between two tokens of a stream, a prompt of %d comes\n", PROMPT);
    printf("          before              while it is read        p99 to median     tokens/s\n");
    printf("streams   median     p99      median     p99     max      then    before  of prompt\n");
    /* The first time programs of these sizes are compiled, once in the life of a server. */
    for (int n = 1; n <= STREAMS; n *= 2)
        for (int again = 0; again < 2; again++) run_streams(b, n, V, again);
}

/* ---- a prompt that was read before ----------------------------------------------------------- */

/* Bytes that the first token after the prompt reads: the weights and the state. */
static double bytes_read(const bench *b, size_t state)
{
    const dra_specs *p = dra_model_params(b->model);
    double           n = (double)state;
    for (int i = 0; i < dra_specs_count(p); i++) {
        const dra_shape *s = &dra_specs_at(p, i)->shape;
        double           count = sizeof(dra_real);
        for (int k = 0; k < s->rank; k++) count *= (double)s->dim[k];
        n += count;
    }
    return n;
}

static void run_cached(bench *b, int64_t V)
{
    double       one[ROUNDS], many[ROUNDS];
    dra_limits   limits;
    dra_error    err = {0};
    const bool   known = dra_limits_measure(b->device, 5, &limits, &err) == DRA_OK;
    const size_t before = dra_engine_stats_of(b->engine).state_bytes;
    other_prompt(b, V);
    first_token(b, CACHED, b->ids);
    const size_t bytes = dra_engine_stats_of(b->engine).state_bytes - before;
    for (int i = 0; i < ROUNDS; i++) {
        const int32_t id = b->ids[i];
        one[i] = first_token(b, 1, &id);
        many[i] = first_token(b, CACHED, b->ids);
    }
    const double a = quantile(one, ROUNDS, 0.5), c = quantile(many, ROUNDS, 0.5);
    printf("first token: of one token %.2f ms, of %d that were read before %.2f ms: %.2f times\n",
           1e3 * a, CACHED, 1e3 * c, c / a);
    if (!known) {
        printf("limits of this device are not known: %s\n", err.text);
        return;
    }
    const double read = bytes_read(b, bytes) / limits.read;
    printf("weights and states kept of it (%.1f MB) are read in %.2f ms: %.2f times\n",
           1e-6 * (double)bytes, 1e3 * read, c / read);
}

static void open_all(bench *b, const char *device, int argc, char **argv, dra_model_config **c)
{
    const long     threads = argc > 4 ? strtol(argv[4], NULL, 10) : THREADS;
    dra_cpu_config d = {.threads = (int)threads};
    dra_error      err = {0};
    must(dra_preset_config(argc > 1 ? argv[1] : "rwkv4", c, &err), &err);
    if (argc > 3) (*c)->depth = strtol(argv[2], NULL, 10), (*c)->dim = strtol(argv[3], NULL, 10);
    if ((*c)->context < CACHED + 64) (*c)->context = CACHED + 64;
    must(dra_model_create(*c, &b->model, &err), &err);
    must(dra_weights_draw(b->model, 7, &b->weights, &err), &err);
    must(dra_device_create(device, &d, &b->device, &err), &err);
    must(dra_engine_create(&(dra_engine_config){.model = b->model,
                                                .weights = b->weights,
                                                .device = b->device,
                                                .memory_limit = LIMIT,
                                                .chunk = argc > 5 ? strtol(argv[5], NULL, 10) : 0},
                           &b->engine, &err),
         &err);
    printf("%s, %lld layers of %lld, %s\n", argc > 1 ? argv[1] : "rwkv4", (long long)(*c)->depth,
           (long long)(*c)->dim, dra_device_level(b->device));
}

int main(int argc, char **argv)
{
    static bench      b;
    dra_model_config *c = NULL;
    const char       *device = NULL;
    const double      began = now();
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 2 && strcmp(argv[1], "--device") == 0) {
        device = argv[2];
        argc -= 2;
        argv += 2;
    }
    open_all(&b, device, argc, argv, &c);
    const double opened = now();
    run_many(&b);
    run_all_streams(&b, c->vocab);
    run_cached(&b, c->vocab);
    printf("%.1f s, after %.1f s to draw the weights\n", now() - opened, opened - began);
    dra_engine_destroy(b.engine);
    dra_weights_destroy(b.weights);
    dra_model_destroy(b.model);
    dra_device_destroy(b.device);
    dra_model_config_destroy(c);
    return 0;
}
