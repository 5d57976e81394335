/* ssm: a diagonal linear state space per channel with N modes, for each stream.
 *   s_n' = a_n s_n + b_n x,   item = sum_n c_n s_n' + d x,   a_n = sigmoid(beta_n)
 * beta, b, c (H, N, width), d (H, width). State s_k (H, N, D), s_v (H, N, E).
 * [Gu et al. 2022: S4D] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "file/field_rows.h"
#include "memory/memory.h"
#include "memory/part.h"

const dra_field dra_ssm_fields[] = {INT(dra_ssm_options, modes, "4", "ssm: modes of each channel"),
                                    {0}};
const dra_part  dra_ssm_part = {offsetof(dra_memory_config, ssm), {dra_ssm_fields}};

static const dra_part *const parts[] = {&dra_ssm_part, NULL};
static const char *const     retrievals[] = {"time",   "window", "slots-own", "slots-all",
                                             "pooled", "none",   "joint",     NULL};

enum { BETA, WRITE, READ, SKIP, PARAMS }; /* beta, b, c, d of a stream */

static int64_t count_modes(const dra_memory_sizes *s)
{
    return s->config->ssm.modes ? s->config->ssm.modes : 4;
}

static dra_status check_ssm(const dra_memory_sizes *s, dra_error *err)
{
    if (s->config->gamma.per)
        return dra_fail(err, DRA_ERR_VALUE, "ssm: gamma is per mode, found per channel");
    if (count_modes(s) > 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "ssm: modes is %lld, expected 1 or more",
                    (long long)count_modes(s));
}

/* Half-lives spaced over the modes; each mode starts as a running mean, all weigh the same. */
static void declare_stream(const dra_memory_sizes *s, int i, const char *prefix, dra_specs *params)
{
    const int64_t   N = count_modes(s), W = s->stream[i].width, n = s->H * N * W;
    const dra_shape all = DRA_SHAPE(s->H, N, W);
    double         *beta = calloc(2 * (size_t)n + 1, sizeof *beta), *write = beta ? beta + n : NULL;
    char            name[4][16];
    const char     *what[PARAMS] = {"beta", "b", "c", "d"};
    for (int k = 0; k < PARAMS; k++)
        snprintf(name[k], sizeof name[k], "ssm_%s_%s", what[k], s->stream[i].name);
    for (int64_t k = 0; beta && k < n; k++) {
        beta[k] = dra_gamma_logit(s->config, k / W % N, N);
        write[k] = 1 / (1 + exp(beta[k])); /* 1 - a */
    }
    dra_specs_add(params, prefix,
                  &(dra_spec){name[BETA], all, DRA_FILL_VALUES, .values = beta, .decay = true,
                              .group = DRA_PARAM_DECAY,
                              .frozen = s->config->gamma.learn == DRA_OFF});
    dra_specs_add(
        params, prefix,
        &(dra_spec){name[WRITE], all, DRA_FILL_VALUES, .values = write, .group = DRA_PARAM_OTHER});
    dra_specs_add(params, prefix,
                  &(dra_spec){name[READ], all, .number = 1 / (double)N, .group = DRA_PARAM_OTHER});
    dra_specs_add(
        params, prefix,
        &(dra_spec){name[SKIP], DRA_SHAPE(s->H, W), .number = 1, .group = DRA_PARAM_OTHER});
    free(beta);
}

static void declare_ssm(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                        dra_specs *state)
{
    char name[8];
    for (int i = 0; i < s->streams; i++) declare_stream(s, i, prefix, params);
    for (int i = 0; i < s->streams; i++) {
        snprintf(name, sizeof name, "s_%s", s->stream[i].name);
        dra_specs_add(state, prefix,
                      &(dra_spec){name, DRA_SHAPE(s->H, count_modes(s), s->stream[i].width)});
    }
}

static void step_ssm(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    for (int i = 0; i < c->sizes->streams; i++) {
        const dra_value *p = c->param + i * PARAMS, s = c->state[i];
        const dra_value  fade = dra_sigmoid(g, dra_neg(g, p[BETA])); /* 1 - a */
        const dra_value  x = dra_reshape(g, c->x[i],
                                         DRA_SHAPE(-1, c->sizes->H, 1, c->sizes->stream[i].width));
        const dra_value  kept = dra_sub(g, s, dra_mul(g, fade, s));
        const dra_value  now = dra_memory_keep(g, c, s, dra_add(g, kept, dra_mul(g, p[WRITE], x)));
        const dra_value  sum = dra_sum(g, dra_mul(g, p[READ], now), (dra_axes){1, {2}, false});
        r->state[i] = now;
        r->item[i] = dra_add(g, sum, dra_mul(g, p[SKIP], c->x[i]));
    }
}

/* As running means of b x / (1 - a), each mode a timescale of channels of its own. */
static void chunk_ssm(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    if (dra_graph_failed(g)) return;
    for (int i = 0; i < c->sizes->streams; i++) {
        const dra_value *p = c->param + i * PARAMS;
        const dra_shape  sx = dra_shape_of(g, c->x[i]); /* (B, T, H, width) */
        const int64_t    B = sx.dim[0], T = sx.dim[1], H = sx.dim[2], W = sx.dim[3];
        const int64_t    N = count_modes(c->sizes), all = H * N * W;
        const dra_value  fade = dra_sigmoid(g, dra_neg(g, p[BETA]));
        const dra_value  x = dra_reshape(g, c->x[i], DRA_SHAPE(B, T, H, 1, W));
        const dra_value  in = dra_mul(g, x, dra_div(g, p[WRITE], fade));
        const dra_value  beta = dra_reshape(g, p[BETA], DRA_SHAPE(1, all));
        dra_value        start = c->state[i], last;
        if (start.id) start = dra_reshape(g, start, DRA_SHAPE(B, 1, all));
        dra_value s = dra_ema(g, dra_reshape(g, in, DRA_SHAPE(B, T, all)), beta, (dra_value){0},
                              start, c->mark, &last);
        s = dra_reshape(g, s, DRA_SHAPE(B, T, H, N, W));
        if (r->trail) r->trail[i] = s;
        s = dra_mul(g, s, p[READ]);
        r->state[i] = dra_reshape(g, last, DRA_SHAPE(B, H, N, W));
        r->item[i] = dra_add(g, dra_sum(g, s, (dra_axes){1, {3}, false}),
                             dra_mul(g, p[SKIP], c->x[i]));
    }
}

const dra_memory dra_memory_ssm = {
    "ssm",    retrievals, check_ssm,      declare_ssm,
    step_ssm, chunk_ssm,  .parts = parts, .chunks = DRA_CHUNK_SKIPS | DRA_CHUNK_TRAIL};
