/* Two demos that no model which can be trained computes, as their tokens see what follows them.
 * "Attention with differentiable recurrence" as its first demo has it:
 *   08_gpt2_adr [MODEL.safetensors OUT.safetensors ID...]
 *
 *   m = decay m + (1-decay) GRU(k_T of head j, m)     one m for all heads, one after the other
 *   y_t = softmax over k_1..k_T and m_j, past and future, of q_t.k / sqrt(d)
 *
 * m is made of the last token only and carries over to the next call, whatever text that is. So
 * reading in parts is not reading whole, and tokens see what follows them: there is nothing to
 * learn from, and this is an example, not a model. The library's form is the preset `adr`: a memory
 * for each head, written by every token, seen from there on. Here the same call is made twice, and
 * differs.
 *
 * And recurrent attention without a causal mask:
 *
 *   m_t = decay m_{t-1} + (1-decay) GRU(k_t of head j, m_{t-1})       for keys, the same for values
 *   y_t = softmax over m_1..m_T, past and future, of q_t.m / sqrt(d)
 *
 * The library's form is the preset `dra-gru`, where a token sees m_1..m_t. Here another last token
 * changes what the first one reads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dra/dra.h"

enum { MOST = 64, WEIGHTS = 200 };

static dra_error err;

static void must(dra_status st)
{
    if (st == DRA_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

typedef struct weight {
    char      name[64];
    size_t    count;
    dra_real *data;
} weight;

typedef struct demo {
    dra_graph   *g;
    dra_tensors *file;             /* or NULL: weights follow a formula */
    int64_t      T, V, C, D, H, L; /* tokens, vocabulary, channels, of a head, heads, blocks */
    bool         unmasked;         /* the second demo */
    double       decay;
    weight       w[WEIGHTS];
    int          n;
} demo;

/* ---- weights, by the demo's names ------------------------------------------------------------ */

static dra_value param(demo *d, const char *name, const char *part, dra_shape shape)
{
    weight *w = &d->w[d->n++];
    snprintf(w->name, sizeof w->name, "%s%s", name, part);
    w->count = (size_t)dra_shape_count(&shape);
    w->data = malloc(w->count * sizeof *w->data);
    for (size_t i = 0; i < w->count; i++)
        w->data[i] = (dra_real)((strstr(name, "ln_") && strcmp(part, ".weight") == 0) +
                                0.3 * sin(1.7 * d->n + 0.9 * (double)i + 0.05 * (double)(i * i)));
    if (d->file) must(dra_tensors_read(d->file, w->name, DRA_REAL, shape, w->data, &err));
    return dra_parameter(d->g, w->name, DRA_REAL, shape);
}

static dra_value linear(demo *d, const char *name, int64_t out, int64_t in, dra_value x)
{
    const dra_value w = param(d, name, ".weight", DRA_SHAPE(out, in));
    return dra_linear(d->g, x, w, param(d, name, ".bias", DRA_SHAPE(out)));
}

static dra_value norm(demo *d, const char *name, dra_value x)
{
    const dra_value w = param(d, name, ".weight", DRA_SHAPE(d->C));
    return dra_layer_norm(d->g, x, w, param(d, name, ".bias", DRA_SHAPE(d->C)), 1e-5);
}

/* ---- the model ------------------------------------------------------------------------------- */

/* (1-z) tanh(x_n + r u_n) + z h, gates in PyTorch's order r, z, n. x, h (1, D) */
static dra_value gru(const demo *d, const dra_value w[4], dra_value x, dra_value h)
{
    dra_graph      *g = d->g;
    const int64_t   D = d->D;
    const dra_value a = dra_linear(g, x, w[0], w[2]), u = dra_linear(g, h, w[1], w[3]);
    const dra_value both = dra_add(g, a, u);
    const dra_value r = dra_sigmoid(g, dra_slice(g, both, -1, 0, D));
    const dra_value z = dra_sigmoid(g, dra_slice(g, both, -1, D, D));
    const dra_value n = dra_tanh(
        g, dra_add(g, dra_slice(g, a, -1, 2 * D, D), dra_mul(g, r, dra_slice(g, u, -1, 2 * D, D))));
    return dra_add(g, n, dra_mul(g, z, dra_sub(g, h, n)));
}

/* x (1, H, T, D) with the memory of each head after its tokens, (1, H, T + 1, D). */
static dra_value remember_last(demo *d, int l, char which, const dra_value w[4], dra_value x)
{
    dra_graph *g = d->g;
    char       name[48];
    dra_value  heads[MOST];
    snprintf(name, sizeof name, "memory.%d.%c", l, which);
    const dra_value before = dra_state(g, name, DRA_REAL, DRA_SHAPE(1, d->D));
    dra_value       m = before;
    for (int64_t j = 0; j < d->H; j++) {
        const dra_value last = dra_slice(g, dra_slice(g, x, 1, j, 1), 2, d->T - 1, 1);
        const dra_value new = gru(d, w, dra_reshape(g, last, DRA_SHAPE(1, d->D)), m);
        m = dra_add(g, dra_affine(g, m, d->decay, 0), dra_affine(g, new, 1 - d->decay, 0));
        heads[j] = dra_reshape(g, m, DRA_SHAPE(1, 1, 1, d->D));
    }
    snprintf(name, sizeof name, "next.%d.%c", l, which);
    dra_donate(g, name, m, before);
    const dra_value both[] = {x, dra_concat(g, (int)d->H, heads, 1)};
    return dra_concat(g, 2, both, 2);
}

/* The memory of each head after each token of x, (1, H, T, D) as x. */
static dra_value remember_all(const demo *d, const dra_value w[4], dra_value x)
{
    dra_graph         *g = d->g;
    const double       beta = log(d->decay / (1 - d->decay));
    const dra_value    none = {0};
    const dra_gru_cell cell = {
        .x = dra_linear(g, dra_transpose(g, x, 1, 2), w[0], w[2]),
        .w = w[1],
        .b = w[3],
        .beta = dra_broadcast(g, dra_number(g, beta), DRA_SHAPE(d->H, d->D))};
    dra_value m;
    dra_gru(g, 1, &cell, none, &m, NULL);
    return dra_transpose(g, m, 1, 2);
}

static dra_value remember_heads(demo *d, int l, char which, dra_value x)
{
    char name[48];
    snprintf(name, sizeof name, "blocks.%d.attn.%c_mem.gru", l, which);
    const dra_value w[] = {param(d, name, ".weight_ih", DRA_SHAPE(3 * d->D, d->D)),
                           param(d, name, ".weight_hh", DRA_SHAPE(3 * d->D, d->D)),
                           param(d, name, ".bias_ih", DRA_SHAPE(3 * d->D)),
                           param(d, name, ".bias_hh", DRA_SHAPE(3 * d->D))};
    return d->unmasked ? remember_all(d, w, x) : remember_last(d, l, which, w, x);
}

static dra_value project(demo *d, int l, char which, dra_value x) /* (1, T, C) -> (1, H, T, D) */
{
    char name[48];
    snprintf(name, sizeof name, "blocks.%d.attn.%c_proj", l, which);
    x = dra_reshape(d->g, linear(d, name, d->C, d->C, x), DRA_SHAPE(1, d->T, d->H, d->D));
    return dra_transpose(d->g, x, 1, 2);
}

static dra_value block(demo *d, int l, dra_value x)
{
    dra_graph *g = d->g;
    char       name[5][48];
    for (int i = 0; i < 5; i++)
        snprintf(name[i], sizeof name[i], "blocks.%d.%s", l,
                 (const char *[]){"ln_1", "attn.out_proj", "ln_2", "mlp.0", "mlp.2"}[i]);
    const dra_value h = norm(d, name[0], x), q = project(d, l, 'q', h);
    const dra_value k = remember_heads(d, l, 'k', project(d, l, 'k', h));
    const dra_value v = remember_heads(d, l, 'v', project(d, l, 'v', h));
    dra_value       y = dra_transpose(g, dra_attend(g, q, k, v, NULL), 1, 2);
    y = dra_reshape(g, y, DRA_SHAPE(1, d->T, d->C));
    x = dra_add(g, x, linear(d, name[1], d->C, d->C, y));
    y = dra_gelu(g, linear(d, name[3], 4 * d->C, d->C, norm(d, name[2], x)));
    return dra_add(g, x, linear(d, name[4], d->C, 4 * d->C, y));
}

static void build(demo *d)
{
    const dra_value table = param(d, "embed", ".weight", DRA_SHAPE(d->V, d->C));
    const dra_value places = param(d, "pos_embed", ".weight", DRA_SHAPE(MOST, d->C));
    const dra_value ids = dra_input(d->g, "ids", DRA_I32, DRA_SHAPE(1, d->T));
    dra_value       x = dra_add(d->g, dra_embedding(d->g, table, ids),
                                dra_slice(d->g, places, 0, 0, d->T));
    for (int l = 0; l < d->L; l++) x = block(d, l, x);
    const dra_value hidden = norm(d, "ln_f", x), none = {0};
    const dra_value head = param(d, "lm_head", ".weight", DRA_SHAPE(d->V, d->C));
    dra_output(d->g, "logits", dra_linear(d->g, hidden, head, none));
}

/* ---- running it ------------------------------------------------------------------------------ */

/* Sizes from the file: of the embedding, of a cell, as many blocks as there are. */
static void open_file(demo *d, const char *path)
{
    char name[48];
    must(dra_tensors_open(path, &d->file, &err));
    const dra_tensor_info *table = dra_tensors_find(d->file, "embed.weight");
    const dra_tensor_info *w = dra_tensors_find(d->file, "blocks.0.attn.k_mem.gru.weight_hh");
    if (!table || !w) exit(1);
    d->V = table->shape.dim[0], d->C = table->shape.dim[1], d->D = w->shape.dim[1];
    for (d->L = 0; d->L < MOST; d->L++) {
        snprintf(name, sizeof name, "blocks.%d.ln_1.weight", (int)d->L);
        if (!dra_tensors_find(d->file, name)) break;
    }
}

/* Logits (2, T, V) of two calls with tokens (2, T). */
static void call_twice(demo *d, const int32_t *ids, dra_real *logits)
{
    dra_device  *device;
    dra_program *program;
    dra_buffers *b;
    dra_real    *memory = calloc((size_t)(2 * d->L * d->D), sizeof *memory);
    char         name[32];
    must(dra_device_create_cpu(NULL, &device, &err));
    must(dra_compile(d->g, device, &program, &err));
    must(dra_buffers_create(program, &b, &err));
    for (int i = 0; i < d->n; i++)
        must(dra_put(b, d->w[i].name, d->w[i].data, d->w[i].count * sizeof *memory, &err));
    for (int i = 0; i < 2 * d->L && !d->unmasked; i++) {
        snprintf(name, sizeof name, "memory.%d.%c", i / 2, "kv"[i % 2]);
        must(dra_put(b, name, memory + i * d->D, (size_t)d->D * sizeof *memory, &err));
    }
    for (int call = 0; call < 2; call++) {
        const size_t count = (size_t)(d->T * d->V);
        must(dra_put(b, "ids", ids + call * d->T, (size_t)d->T * sizeof *ids, &err));
        must(dra_run(b, &err));
        must(dra_get(b, "logits", logits + (size_t)call * count, count * sizeof *logits, &err));
    }
    free(memory);
    dra_buffers_destroy(b), dra_program_destroy(program), dra_device_destroy(device);
}

/* Logits (2, T, V), to be freed. */
static dra_real *compute(demo *d, const int32_t *ids)
{
    dra_real *logits = calloc((size_t)(2 * d->T * d->V), sizeof *logits);
    d->n = 0;
    must(dra_graph_create(&d->g, &err));
    build(d);
    call_twice(d, ids, logits);
    for (int i = 0; i < d->n; i++) free(d->w[i].data);
    dra_graph_destroy(d->g);
    return logits;
}

/* The largest difference of the first n logits of both calls. */
static double difference(const demo *d, const dra_real *logits, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)(logits[i] - logits[d->T * d->V + i])));
    return most;
}

static int run_literal(int argc, char **argv)
{
    static demo d = {.T = 8, .V = 13, .C = 16, .D = 8, .L = 2, .decay = 0.97};
    int32_t     ids[2 * MOST] = {3, 1, 4, 1, 5, 9, 2, 6};
    if (argc > 3) open_file(&d, argv[1]);
    if (argc > 3) d.T = argc - 3 < MOST ? argc - 3 : MOST;
    for (int i = 0; i < d.T && argc > 3; i++) ids[i] = (int32_t)strtol(argv[3 + i], NULL, 10);
    memcpy(ids + d.T, ids, (size_t)d.T * sizeof *ids);
    d.H = d.C / d.D;
    dra_real    *logits = compute(&d, ids);
    const double most = difference(&d, logits, d.T * d.V);
    printf("the same call twice: logits differ by %.3g, because the memory carried over\n", most);
    const dra_tensor_item item = {"logits", DRA_REAL, DRA_SHAPE(2, d.T, d.V), logits};
    if (argc > 3) must(dra_tensors_write(argv[2], &item, 1, NULL, 0, &err));
    free(logits), dra_tensors_close(d.file);
    return most > 0;
}

static int run_unmasked(void)
{
    static demo d = {
        .T = 8, .V = 13, .C = 16, .D = 8, .H = 2, .L = 2, .unmasked = true, .decay = 0.9};
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5, 9, 2, 7};
    dra_real            *logits = compute(&d, ids);
    const double         most = difference(&d, logits, d.V);
    printf("another last token: the first one's logits differ by %.3g, without a mask\n", most);
    free(logits);
    return most > 0;
}

int main(int argc, char **argv) { return !(run_literal(argc, argv) && run_unmasked()); }
