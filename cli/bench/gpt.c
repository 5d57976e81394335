/* A GPT-2-shaped training step: learned positions, layer norm, causal attention, GELU, a head that
 * shares the table, clipped AdamW, everything updated in place. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { V = 50304, WEIGHTS = 256 };

typedef struct gpt {
    bench_work *w;
    int64_t     layers, heads, width, time, batch;
    dra_value   lo, hi;
    dra_value   weight[WEIGHTS];
    char        name[WEIGHTS][40];
    int         weights;
    double      parameters;
} gpt;

static dra_value add_weight(gpt *m, const char *part, int64_t layer, dra_shape shape, double lo,
                            double hi)
{
    const int i = m->weights++;
    snprintf(m->name[i], sizeof m->name[i], "%s %d", part, (int)layer);
    m->weight[i] = bench_value(m->w, dra_parameter, m->name[i], DRA_REAL, shape, lo, hi);
    m->parameters += (double)dra_shape_count(&shape);
    return m->weight[i];
}

static dra_value build_linear(gpt *m, const char *part, int64_t layer, dra_value x, int64_t in,
                              int64_t out)
{
    char bias[24];
    snprintf(bias, sizeof bias, "%s bias", part);
    const dra_value w = add_weight(m, part, layer, DRA_SHAPE(out, in), -0.035, 0.035);
    return dra_linear(m->w->graph, x, w, add_weight(m, bias, layer, DRA_SHAPE(out), 0, 0));
}

static dra_value build_norm(gpt *m, const char *part, int64_t layer, dra_value x)
{
    char bias[24];
    snprintf(bias, sizeof bias, "%s bias", part);
    const dra_value w = add_weight(m, part, layer, DRA_SHAPE(m->width), 1, 1);
    return dra_layer_norm(m->w->graph, x, w, add_weight(m, bias, layer, DRA_SHAPE(m->width), 0, 0),
                          1e-5);
}

static dra_value part_of(gpt *m, dra_value qkv, int64_t part) /* (B, T, 3 C) -> (B, H, T, D) */
{
    dra_graph      *g = m->w->graph;
    const dra_value x = dra_slice(g, qkv, 2, part * m->width, m->width);
    const dra_shape s = DRA_SHAPE(m->batch, m->time, m->heads, m->width / m->heads);
    return dra_transpose(g, dra_reshape(g, x, s), 1, 2);
}

static dra_value build_attention(gpt *m, int64_t layer, dra_value x)
{
    dra_graph              *g = m->w->graph;
    const dra_value         qkv = build_linear(m, "qkv", layer, x, m->width, 3 * m->width);
    const dra_attend_config config = {.lo = m->lo, .hi = m->hi};
    const dra_value         q = part_of(m, qkv, 0), k = part_of(m, qkv, 1), v = part_of(m, qkv, 2);
    const dra_value         y = dra_transpose(g, dra_attend(g, q, k, v, &config), 1, 2);
    return build_linear(m, "out", layer, dra_reshape(g, y, DRA_SHAPE(m->batch, m->time, m->width)),
                        m->width, m->width);
}

static dra_value build_mlp(gpt *m, int64_t layer, dra_value x)
{
    x = build_linear(m, "up", layer, x, m->width, 4 * m->width);
    return build_linear(m, "down", layer, dra_gelu_tanh(m->w->graph, x), 4 * m->width, m->width);
}

static dra_value build_loss(gpt *m)
{
    dra_graph      *g = m->w->graph;
    const dra_shape tokens = DRA_SHAPE(m->batch, m->time);
    const dra_value ids = bench_value(m->w, dra_input, "ids", DRA_I32, tokens, 0, V);
    const dra_value target = bench_value(m->w, dra_input, "target", DRA_I32, tokens, 0, V);
    const dra_value table = add_weight(m, "table", 0, DRA_SHAPE(V, m->width), -0.035, 0.035);
    const dra_value places = add_weight(m, "places", 0, DRA_SHAPE(m->time, m->width), -0.02, 0.02);
    dra_value       x = dra_add(g, dra_embedding(g, table, ids), places);
    dra_causal_interval(g, (dra_value){0}, m->batch, m->time, 0, &m->lo, &m->hi);
    for (int64_t l = 0; l < m->layers; l++) {
        x = dra_add(g, x, build_attention(m, l, build_norm(m, "norm1", l, x)));
        x = dra_add(g, x, build_mlp(m, l, build_norm(m, "norm2", l, x)));
    }
    return dra_linear_cross_entropy(g, build_norm(m, "norm", 0, x), table, target, NULL);
}

static void update_weights(gpt *m, dra_value loss)
{
    static const dra_adamw_config config = {0.9, 0.95, 1e-8, 0.1};
    dra_graph                    *g = m->w->graph;
    dra_value                     dp[WEIGHTS];
    char                          name[56];
    const dra_value rate = bench_value(m->w, dra_input, "rate", DRA_REAL, (dra_shape){0}, 1e-4,
                                       1e-4);
    const dra_value step = bench_value(m->w, dra_input, "step", DRA_I32, (dra_shape){0}, 100, 100);
    dra_gradient(g, 1, &loss, NULL, m->weights, m->weight, dp);
    const dra_value clip = dra_clip_factor(g, dra_global_norm(g, m->weights, dp), 1);
    for (int i = 0; i < m->weights; i++) {
        const dra_shape shape = dra_shape_of(g, m->weight[i]);
        snprintf(name, sizeof name, "%s m", m->name[i]);
        const dra_value m1 = bench_value(m->w, dra_state, name, DRA_REAL, shape, 0, 0);
        snprintf(name, sizeof name, "%s v", m->name[i]);
        const dra_value        v1 = bench_value(m->w, dra_state, name, DRA_REAL, shape, 0, 0);
        const dra_adamw_result r = dra_adamw(g, m->weight[i], dp[i], m1, v1, rate, clip, step,
                                             &config);
        snprintf(name, sizeof name, "%s p", m->name[i]);
        dra_donate(g, name, r.p, m->weight[i]);
        snprintf(name, sizeof name, "%s new m", m->name[i]);
        dra_donate(g, name, r.m, m1);
        snprintf(name, sizeof name, "%s new v", m->name[i]);
        dra_donate(g, name, r.v, v1);
    }
}

void bench_gpt(bench_work *w, const int64_t *size)
{
    gpt *m = calloc(1, sizeof *m);
    if (!m) return; /* a graph without outputs is refused when it is compiled */
    *m = (gpt){w, size[0], size[1], size[2], size[3], size[4]};
    const dra_value loss = build_loss(m);
    dra_output(w->graph, "loss", loss);
    update_weights(m, loss);
    w->units = (double)(m->batch * m->time);
    w->unit = "token";
    w->flops = w->units * (6 * m->parameters + 12 * (double)(m->layers * m->time * m->width));
    free(m);
}
