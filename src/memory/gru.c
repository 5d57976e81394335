/* gru: a GRU cell for each stream whose new state is mixed into the old by gamma.
 *   r = s(W_ir x + b_ir + W_hr h + b_hr)   z = s(W_iz x + b_iz + W_hz h + b_hz)
 *   n = tanh(W_in x + b_in + r (W_hn h + b_hn))   c = (1-z) n + z h
 *   h' = h + (1 - gamma) (c - h),  item = h'
 * One cell for all heads, or one for each; one gamma for all streams, per head or per channel.
 * State h_k, h_v (H, width). [Cho et al. 2014] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "memory/memory.h"

static const char *const retrievals[] = {"time", "window", "none", "joint", NULL};

enum { W_IH, W_HH, B_IH, B_HH, CELL }; /* the parameters of a cell, in order; then beta */

static dra_status check(const dra_memory_sizes *s, dra_error *err)
{
    if (s->streams == 2 && s->config->gamma.per == DRA_PER_CHANNEL && s->D != s->E)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gru: a gamma per channel for keys and values needs equal widths, found "
                        "%lld and %lld",
                        (long long)s->D, (long long)s->E);
    return DRA_OK;
}

static dra_spec with_heads(const dra_memory_sizes *s, dra_spec p)
{
    if (!s->config->per_head) return p;
    for (int32_t i = p.shape.rank++; i > 0; i--) p.shape.dim[i] = p.shape.dim[i - 1];
    p.shape.dim[0] = s->H;
    return p;
}

/* The bias of z starts at 1, which favours keeping the state; the others at 0. */
static void declare_biases(const dra_memory_sizes *s, const char *prefix, const char *stream,
                           int64_t W, dra_specs *params)
{
    const int64_t cells = s->config->per_head ? s->H : 1;
    double       *b = calloc((size_t)(cells * 3 * W) + 1, sizeof *b);
    char          name[16];
    for (int64_t i = 0; b && i < cells * 3 * W; i++) b[i] = i / W % 3 == 1;
    dra_spec p = {.name = name, .shape = DRA_SHAPE(3 * W), .fill = DRA_FILL_VALUES, .values = b};
    snprintf(name, sizeof name, "%s_b_ih", stream);
    dra_specs_add(params, prefix, &(dra_spec[]){with_heads(s, p)}[0]);
    p.fill = DRA_FILL_CONST;
    snprintf(name, sizeof name, "%s_b_hh", stream);
    dra_specs_add(params, prefix, &(dra_spec[]){with_heads(s, p)}[0]);
    free(b);
}

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    char name[16];
    for (int i = 0; i < s->streams; i++) {
        const int64_t     W = s->stream[i].width;
        const char *const weight[] = {"W_ih", "W_hh"};
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s_%s", s->stream[i].name, weight[k]);
            const dra_spec p = with_heads(s, (dra_spec){.name = name,
                                                        .shape = DRA_SHAPE(3 * W, W),
                                                        .fill = DRA_FILL_UNIFORM,
                                                        .number = 1 / sqrt((double)W)});
            dra_specs_add(params, prefix, &p);
        }
        declare_biases(s, prefix, s->stream[i].name, W, params);
    }
    dra_gamma_declare(s, prefix, "beta", 0, s->stream[0].width, params);
    for (int i = 0; i < s->streams; i++) {
        snprintf(name, sizeof name, "h_%s", s->stream[i].name);
        dra_specs_add(state, prefix,
                      &(dra_spec){.name = name, .shape = DRA_SHAPE(s->H, s->stream[i].width)});
    }
}

/* Decay logits as (H, width). */
static dra_value betas(dra_graph *g, const dra_memory_call *c, int i)
{
    const dra_memory_sizes *s = c->sizes;
    dra_value               beta = c->param[s->streams * CELL];
    if (s->config->gamma.per == DRA_PER_HEAD) beta = dra_reshape(g, beta, DRA_SHAPE(s->H, 1));
    return dra_broadcast(g, beta, DRA_SHAPE(s->H, s->stream[i].width));
}

/* W x + b for x (B, H, width) or (B, T, H, width). */
static dra_value project(dra_graph *g, const dra_memory_call *c, dra_value x, dra_value w,
                         dra_value b)
{
    if (!c->sizes->config->per_head) return dra_linear(g, x, w, b);
    return dra_add(g, dra_head_linear(g, x, w), b);
}

static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *out)
{
    for (int i = 0; i < c->sizes->streams; i++) {
        const int64_t    W = c->sizes->stream[i].width;
        const dra_value *p = c->param + i * CELL, h = c->state[i];
        const dra_value  x = project(g, c, c->x[i], p[W_IH], p[B_IH]);
        const dra_value  u = project(g, c, h, p[W_HH], p[B_HH]);
        const dra_value  both = dra_add(g, x, u);
        const dra_value  r = dra_sigmoid(g, dra_slice(g, both, -1, 0, W));
        const dra_value  z = dra_sigmoid(g, dra_slice(g, both, -1, W, W));
        const dra_value  m = dra_mul(g, r, dra_slice(g, u, -1, 2 * W, W));
        const dra_value  n = dra_tanh(g, dra_add(g, dra_slice(g, x, -1, 2 * W, W), m));
        const dra_value  cell = dra_add(g, n, dra_mul(g, z, dra_sub(g, h, n)));
        const dra_value  rate = dra_sigmoid(g, dra_neg(g, betas(g, c, i)));
        out->item[i] = dra_add(g, h, dra_mul(g, rate, dra_sub(g, cell, h)));
        out->state[i] = out->item[i];
    }
}

static void chunk(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    dra_gru_cell cell[2];
    dra_value    last[2];
    for (int i = 0; i < c->sizes->streams; i++) {
        const dra_value *p = c->param + i * CELL;
        cell[i] = (dra_gru_cell){.x = project(g, c, c->x[i], p[W_IH], p[B_IH]),
                                 .w = p[W_HH],
                                 .b = p[B_HH],
                                 .beta = betas(g, c, i),
                                 .start = c->state[i]};
    }
    dra_gru(g, c->sizes->streams, cell, c->mark, r->item, last);
    for (int i = 0; i < c->sizes->streams; i++) r->state[i] = last[i];
}

const dra_memory dra_memory_gru = {"gru", retrievals, check, declare, step, chunk};
