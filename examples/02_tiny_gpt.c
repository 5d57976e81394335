/* A small byte-level GPT, from nothing: it learns a short text by heart.
 *
 * One function describes the model. Two programs come out of it: a training step over (B, T) with
 * gradients and AdamW, which updates the weights in place, and a decoding step over (1, 1), which
 * appends keys and values to a cache in place. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dra/dra.h"
#include "support/terminal.h"

enum { B = 8, T = 160, C = 128, H = 4, L = 3, V = 256, D = C / H, WEIGHTS = 64 };

static const dra_value none;

/* ---- weights: made when the model is first described, then found by name --------------------- */

typedef struct weight {
    char      name[24];
    dra_shape shape;
    size_t    count;
    dra_real *p, *zeros; /* first value, and that of AdamW's moments */
    dra_value value;     /* in the graph being built */
} weight;

typedef struct gpt {
    weight   w[WEIGHTS];
    int      n;
    uint64_t seed;
} gpt;

static dra_real *numbers(size_t n)
{
    dra_real *x = calloc(n, sizeof *x);
    if (!x) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return x;
}

/* A repeatable number in 0..n-1. */
static unsigned random_below(uint64_t *seed, unsigned n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((*seed >> 33) % n);
}

static dra_real normal(uint64_t *seed) /* nearly: the sum of 12 uniform numbers */
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += random_below(seed, 1u << 24) / (double)(1u << 24);
    return (dra_real)sum;
}

/* The parameter `part` of layer l; std 0 means all ones. */
static dra_value weight_of(dra_graph *g, gpt *m, const char *part, int l, dra_shape shape,
                           double std)
{
    char name[24];
    int  i = 0;
    snprintf(name, sizeof name, "%s.%d", part, l);
    while (i < m->n && strcmp(m->w[i].name, name) != 0) i++;
    weight *w = &m->w[i];
    if (i == m->n) {
        m->n++;
        memcpy(w->name, name, sizeof name);
        w->shape = shape;
        w->count = (size_t)dra_shape_count(&shape);
        w->p = numbers(w->count);
        w->zeros = numbers(w->count);
        for (size_t k = 0; k < w->count; k++)
            w->p[k] = std > 0 ? (dra_real)std * normal(&m->seed) : 1;
    }
    return w->value = dra_parameter(g, name, DRA_REAL, shape);
}

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct context { /* of one graph: where the tokens stand, and the caches when decoding */
    int64_t   batch, time;
    dra_value pos, lo, hi; /* pos (batch, time) */
    bool      cached;
} context;

static dra_value heads(dra_graph *g, const context *c, dra_value x, int part) /* (B, H, T, D) */
{
    x = dra_slice(g, x, 2, (int64_t)part * C, C);
    return dra_transpose(g, dra_reshape(g, x, DRA_SHAPE(c->batch, c->time, H, D)), 1, 2);
}

/* Writes x (1, H, 1, D) at `pos` into a cache of T rows, which the next step finds there. */
static dra_value append(dra_graph *g, const context *c, const char *part, int l, dra_value x)
{
    char name[24], out[24];
    snprintf(name, sizeof name, "%s cache %d", part, l);
    snprintf(out, sizeof out, "new %s cache %d", part, l);
    const dra_value cache = dra_state(g, name, DRA_REAL, DRA_SHAPE(1, T, H, D));
    const dra_value next = dra_write_rows(g, cache, dra_transpose(g, x, 1, 2), c->pos);
    dra_donate(g, out, next, cache);
    return dra_transpose(g, next, 1, 2);
}

static dra_value attention(dra_graph *g, gpt *m, const context *c, int l, dra_value x)
{
    const dra_value qkv = dra_linear(g, x, weight_of(g, m, "qkv", l, DRA_SHAPE(3 * C, C), 0.08),
                                     none);
    const dra_value q = dra_rotary(g, heads(g, c, qkv, 0), c->pos, NULL);
    dra_value       k = dra_rotary(g, heads(g, c, qkv, 1), c->pos, NULL), v = heads(g, c, qkv, 2);
    if (c->cached) {
        k = append(g, c, "key", l, k);
        v = append(g, c, "value", l, v);
    }
    const dra_attend_config config = {.lo = c->lo, .hi = c->hi};
    const dra_value         y = dra_transpose(g, dra_attend(g, q, k, v, &config), 1, 2);
    return dra_linear(g, dra_reshape(g, y, DRA_SHAPE(c->batch, c->time, C)),
                      weight_of(g, m, "out", l, DRA_SHAPE(C, C), 0.04), none);
}

static dra_value feed_forward(dra_graph *g, gpt *m, int l, dra_value x)
{
    x = dra_linear(g, x, weight_of(g, m, "up", l, DRA_SHAPE(4 * C, C), 0.08), none);
    return dra_linear(g, dra_gelu_tanh(g, x), weight_of(g, m, "down", l, DRA_SHAPE(C, 4 * C), 0.04),
                      none);
}

static dra_value norm(dra_graph *g, gpt *m, const char *part, int l, dra_value x)
{
    return dra_rms_norm(g, x, weight_of(g, m, part, l, DRA_SHAPE(C), 0), 1e-5);
}

/* ids (batch, time) -> hidden states (batch, time, C), ready for the head. */
static dra_value describe(dra_graph *g, gpt *m, const context *c, dra_value ids, dra_value table)
{
    dra_value x = dra_embedding(g, table, ids);
    for (int l = 0; l < L; l++) {
        x = dra_add(g, x, attention(g, m, c, l, norm(g, m, "norm1", l, x)));
        x = dra_add(g, x, feed_forward(g, m, l, norm(g, m, "norm2", l, x)));
    }
    return norm(g, m, "norm", L, x);
}

/* ---- the two programs ------------------------------------------------------------------------ */

static void update(dra_graph *g, gpt *m, dra_value loss) /* clipped AdamW, in place */
{
    const dra_value rate = dra_input(g, "rate", DRA_REAL, (dra_shape){0});
    const dra_value step = dra_input(g, "step", DRA_I32, (dra_shape){0});
    dra_value       p[WEIGHTS], dp[WEIGHTS];
    char            name[3][40];
    for (int i = 0; i < m->n; i++) p[i] = m->w[i].value;
    dra_gradient(g, 1, &loss, NULL, m->n, p, dp);
    const dra_value clip = dra_clip_factor(g, dra_global_norm(g, m->n, dp), 1.0);
    for (int i = 0; i < m->n; i++) {
        const dra_adamw_config config = {0.9, 0.95, 1e-8, m->w[i].shape.rank > 1 ? 0.1 : 0};
        snprintf(name[0], sizeof name[0], "%s m", m->w[i].name);
        snprintf(name[1], sizeof name[1], "%s v", m->w[i].name);
        const dra_value        m1 = dra_state(g, name[0], DRA_REAL, m->w[i].shape);
        const dra_value        v1 = dra_state(g, name[1], DRA_REAL, m->w[i].shape);
        const dra_adamw_result r = dra_adamw(g, p[i], dp[i], m1, v1, rate, clip, step, &config);
        snprintf(name[2], sizeof name[2], "new %s", m->w[i].name);
        dra_donate(g, name[2], r.p, p[i]);
        dra_donate(g, name[0], r.m, m1);
        dra_donate(g, name[1], r.v, v1);
    }
}

static void describe_training(dra_graph *g, gpt *m)
{
    context         c = {.batch = B, .time = T};
    const dra_value ids = dra_input(g, "ids", DRA_I32, DRA_SHAPE(B, T));
    const dra_value target = dra_input(g, "target", DRA_I32, DRA_SHAPE(B, T));
    const dra_value table = weight_of(g, m, "table", 0, DRA_SHAPE(V, C), 0.1);
    c.pos = dra_broadcast(g, dra_arange(g, T), DRA_SHAPE(B, T));
    dra_causal_interval(g, none, B, T, 0, &c.lo, &c.hi);
    const dra_value x = describe(g, m, &c, ids, table);
    const dra_value loss = dra_linear_cross_entropy(g, x, table, target, NULL);
    dra_output(g, "loss", loss);
    update(g, m, loss);
}

static void describe_decoding(dra_graph *g, gpt *m)
{
    context         c = {.batch = 1, .time = 1, .cached = true};
    const dra_value ids = dra_input(g, "ids", DRA_I32, DRA_SHAPE(1, 1));
    const dra_value pos = dra_input(g, "pos", DRA_I32, DRA_SHAPE(1));
    const dra_value table = weight_of(g, m, "table", 0, DRA_SHAPE(V, C), 0.1);
    c.pos = dra_reshape(g, pos, DRA_SHAPE(1, 1));
    dra_causal_interval(g, pos, 1, 1, 0, &c.lo, &c.hi);
    const dra_value x = describe(g, m, &c, ids, table);
    dra_output(g, "logits", dra_linear(g, x, table, none));
}

typedef struct runnable {
    dra_program *program;
    dra_buffers *buffers;
} runnable;

static void check(dra_status st, const dra_error *err)
{
    if (st == DRA_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static runnable make(dra_device *cpu, gpt *m, void (*describe_it)(dra_graph *, gpt *))
{
    runnable   r = {0};
    dra_graph *g = NULL;
    dra_error  err = {0};
    check(dra_graph_create(&g, &err), &err);
    describe_it(g, m);
    check(dra_compile(g, cpu, &r.program, &err), &err);
    check(dra_buffers_create(r.program, &r.buffers, &err), &err);
    dra_graph_destroy(g);
    return r;
}

static void put(runnable *r, const char *name, const void *data, size_t bytes)
{
    dra_error err = {0};
    check(dra_put(r->buffers, name, data, bytes, &err), &err);
}

static void get(const runnable *r, const char *name, void *data, size_t bytes)
{
    dra_error err = {0};
    check(dra_get(r->buffers, name, data, bytes, &err), &err);
}

static void run(runnable *r)
{
    dra_error err = {0};
    check(dra_run(r->buffers, &err), &err);
}

static void release(runnable *r)
{
    dra_buffers_destroy(r->buffers);
    dra_program_destroy(r->program);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int draw(const dra_real *logits, double temperature, uint64_t *seed)
{
    double chance[V], sum = 0, most = -1e30;
    for (int i = 0; i < V; i++) most = fmax(most, (double)logits[i]);
    for (int i = 0; i < V; i++) sum += chance[i] = exp(((double)logits[i] - most) / temperature);
    double r = sum * random_below(seed, 1u << 24) / (double)(1u << 24);
    for (int i = 0; i < V; i++)
        if ((r -= chance[i]) < 0) return i;
    return V - 1;
}

/* Both programs use the same weights: binding again says that they changed. */
static void share_weights(const runnable *train, runnable *decode, const gpt *m)
{
    dra_error err = {0};
    char      name[40];
    for (int i = 0; i < m->n; i++) {
        snprintf(name, sizeof name, "new %s", m->w[i].name);
        check(dra_bind(decode->buffers, m->w[i].name, dra_result(train->buffers, name), &err),
              &err);
    }
}

static void write_sample(const runnable *train, runnable *decode, gpt *m, const char *prompt,
                         uint64_t seed)
{
    static const dra_real empty[T * C];
    dra_real              logits[V];
    int32_t               id = (unsigned char)prompt[0], pos = 0;
    char                  name[32];
    for (int i = 0; i < 2 * L; i++) {
        snprintf(name, sizeof name, "%s cache %d", i % 2 ? "value" : "key", i / 2);
        put(decode, name, empty, sizeof empty);
    }
    share_weights(train, decode, m);
    printf("  | ");
    for (pos = 0; pos < T; pos++) {
        putchar(id == '\n' ? '/' : id >= 32 && id < 127 ? id : '?');
        put(decode, "ids", &id, sizeof id);
        put(decode, "pos", &pos, sizeof pos);
        run(decode);
        get(decode, "logits", logits, sizeof logits);
        id = (size_t)pos + 1 < strlen(prompt) ? (unsigned char)prompt[pos + 1]
                                              : draw(logits, 0.7, &seed);
    }
    printf("\n");
}

/* ---- learning -------------------------------------------------------------------------------- */

static const char text[] =
    "The lighthouse stood where the land ended. In it lived an old woman and a grey cat. Every "
    "evening she climbed the stairs, all hundred and twelve of them, and lit the lamp. The cat "
    "counted the ships. When there were many, it purred; when there were none, it slept. One "
    "winter the fog came and did not leave. The lamp shone, but nobody saw it, and no ship came "
    "by. The old woman sat at the window and listened. On the ninth day she heard a bell, very "
    "small and far away. She took the biggest pot from the kitchen and a spoon of iron, and went "
    "out on the rocks. There she beat the pot, three times and three times again, until her arms "
    "were tired. The bell answered. Slowly a boat came out of the grey, and in the boat stood a "
    "boy with a lantern that had gone out long ago. \"I followed the pot,\" said the boy. \"I know "
    "no other light that one can hear.\" The old woman laughed and made soup in the pot, which had "
    "a dent from that day on. The boy stayed until the fog was gone. In spring he sailed home, "
    "and he took the dented pot with him. The old woman bought a bell. The cat counted it as a "
    "ship.\n";

enum { TEXT = sizeof text - 1 };

static double train_step(runnable *train, uint64_t *seed, dra_real rate, int32_t step)
{
    static int32_t ids[B * T], target[B * T];
    dra_real       loss;
    for (int b = 0; b < B; b++) {
        const unsigned start = random_below(seed, TEXT - T - 1);
        for (int t = 0; t < T; t++) {
            ids[b * T + t] = (unsigned char)text[start + (unsigned)t];
            target[b * T + t] = (unsigned char)text[start + (unsigned)t + 1];
        }
    }
    put(train, "ids", ids, sizeof ids);
    put(train, "target", target, sizeof target);
    put(train, "rate", &rate, sizeof rate);
    put(train, "step", &step, sizeof step);
    run(train);
    get(train, "loss", &loss, sizeof loss);
    return (double)loss;
}

/* From here on the newest weights and moments are those of the program. */
static void put_weights(runnable *train, const gpt *m)
{
    char name[40];
    for (int i = 0; i < m->n; i++) {
        const size_t bytes = m->w[i].count * sizeof(dra_real);
        put(train, m->w[i].name, m->w[i].p, bytes);
        snprintf(name, sizeof name, "%s m", m->w[i].name);
        put(train, name, m->w[i].zeros, bytes);
        snprintf(name, sizeof name, "%s v", m->w[i].name);
        put(train, name, m->w[i].zeros, bytes);
    }
}

static void learn(runnable *train, runnable *decode, gpt *m, int steps)
{
    uint64_t seed = 42;
    double  *losses = calloc((size_t)steps, sizeof *losses);
    if (!losses) return;
    put_weights(train, m);
    printf("before learning:\n");
    write_sample(train, decode, m, "The old woman ", 1);
    const double started = terminal_seconds();
    for (int step = 1; step <= steps; step++) {
        const double warm = fmin(1, step / 20.0), done = (double)step / steps;
        const double rate = 4e-3 * warm * (0.55 + 0.45 * cos(3.14159265 * done));
        losses[step - 1] = train_step(train, &seed, (dra_real)rate, step);
        const double speed = B * T * step / (terminal_seconds() - started);
        terminal_progress(step, steps, steps / 10 > 0 ? steps / 10 : 1, losses[step - 1], speed,
                          started);
        if (step == steps / 4 || step == steps / 2 || step == steps) {
            printf("\nafter %d steps:\n", step);
            write_sample(train, decode, m, "The old woman ", (uint64_t)step);
        }
    }
    terminal_plot("loss (nats per byte)", steps, losses);
    free(losses);
}

int main(void)
{
    const bool  brief = getenv("DRA_EXAMPLE_FAST") != NULL;
    static gpt  m = {.seed = 1};
    dra_device *cpu = NULL;
    dra_error   err = {0};
    char        report[512];
    size_t      parameters = 0;
    check(dra_device_create_cpu(NULL, &cpu, &err), &err);
    runnable train = make(cpu, &m, describe_training), decode = make(cpu, &m, describe_decoding);
    for (int i = 0; i < m.n; i++) parameters += m.w[i].count;
    printf("a byte-level GPT: %d layers, %d heads, width %d, %zu parameters, %d threads\n", L, H, C,
           parameters, dra_device_threads(cpu));
    dra_program_text(train.program, report, sizeof report);
    printf("a training step:\n%s\n", report);
    learn(&train, &decode, &m, brief ? 8 : 400);
    release(&train);
    release(&decode);
    for (int i = 0; i < m.n; i++) {
        free(m.w[i].p);
        free(m.w[i].zeros);
    }
    dra_device_destroy(cpu);
    return 0;
}
