/* ema: running means with M timescales for each stream.
 *   m_i' = m_i + (1 - gamma_i) (x - m_i),   item = sum_i w_i m_i',   w = softmax(mix)
 * gamma per head or per channel; own ones for keys and values unless shared.
 * State m_k, m_v (H, M, width). */
#include <stdio.h>
#include <string.h>

#include "file/field_rows.h"
#include "memory/memory.h"
#include "memory/part.h"

const dra_field dra_ema_fields[] = {
    INT(dra_ema_options, timescales, "1", "ema: averages at several speeds"), {0}};
const dra_part dra_ema_part = {offsetof(dra_memory_config, ema), {dra_ema_fields}};

static const dra_part *const parts[] = {&dra_ema_part, NULL};
static const char *const     retrievals[] = {"time",   "window", "slots-own", "slots-all",
                                             "pooled", "none",   "joint",     NULL};

static int64_t count_timescales(const dra_memory_sizes *s)
{
    return s->config->ema.timescales ? s->config->ema.timescales : 1;
}

static bool shares_gamma(const dra_memory_sizes *s)
{
    return s->config->gamma.share || s->streams == 1;
}

static dra_status check_ema(const dra_memory_sizes *s, dra_error *err)
{
    const dra_gamma_config *f = &s->config->gamma;
    if (s->streams == 2 && f->share && f->per == DRA_PER_CHANNEL && s->D != s->E)
        return dra_fail(err, DRA_ERR_VALUE,
                        "ema: a gamma per channel for keys and values needs equal widths, found "
                        "%lld and %lld",
                        (long long)s->D, (long long)s->E);
    return DRA_OK;
}

static const char *stream_name(char text[16], const char *what, const dra_memory_sizes *s, int i)
{
    snprintf(text, 16, "%s_%s", what, s->stream[i].name);
    return text;
}

/* Timescales are not mixed where each is a slot, nor where nobody reads keys. */
static bool mixes_timescales(const dra_memory_sizes *s, int i)
{
    const bool unread = i == 0 && s->streams == 2 && strcmp(s->config->retrieval, "none") == 0;
    return count_timescales(s) > 1 && !unread && !dra_retrieval_find(s->config->retrieval)->slots;
}

/* Where in the list of parameters: first the decays, then the mixing logits of each stream. */
static int beta_at(const dra_memory_sizes *s, int i) { return shares_gamma(s) ? 0 : i; }

static int mix_at(const dra_memory_sizes *s, int i)
{
    return (shares_gamma(s) ? 1 : s->streams) + (i && mixes_timescales(s, 0));
}

static void declare_ema(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                        dra_specs *state)
{
    const int64_t M = count_timescales(s);
    char          name[16];
    if (shares_gamma(s))
        dra_gamma_declare(s, prefix, "beta", M, s->stream[0].width, params);
    else
        for (int i = 0; i < s->streams; i++)
            dra_gamma_declare(s, prefix, stream_name(name, "beta", s, i), M, s->stream[i].width,
                              params);
    for (int i = 0; i < s->streams; i++)
        if (mixes_timescales(s, i))
            dra_specs_add(params, prefix,
                          &(dra_spec){.name = stream_name(name, "mix", s, i),
                                      .shape = DRA_SHAPE(s->H, M),
                                      .group = DRA_PARAM_OTHER});
    for (int i = 0; i < s->streams; i++)
        dra_specs_add(state, prefix,
                      &(dra_spec){.name = stream_name(name, "m", s, i),
                                  .shape = DRA_SHAPE(s->H, M, s->stream[i].width)});
}

/* Decay logits as (H, M, width). */
static dra_value read_betas(dra_graph *g, const dra_memory_call *c, int i)
{
    const dra_memory_sizes *s = c->sizes;
    const int64_t           W = s->stream[i].width, M = count_timescales(s);
    dra_value               beta = c->param[beta_at(s, i)];
    if (s->config->gamma.per == DRA_PER_HEAD) beta = dra_reshape(g, beta, DRA_SHAPE(s->H, M, 1));
    return dra_broadcast(g, beta, DRA_SHAPE(s->H, M, W));
}

/* The weights of the timescales, (H, M, 1). */
static dra_value mix_weights(dra_graph *g, const dra_memory_call *c, int i)
{
    const dra_value w = dra_softmax(g, c->param[mix_at(c->sizes, i)]);
    return dra_reshape(g, w, DRA_SHAPE(c->sizes->H, count_timescales(c->sizes), 1));
}

static void step_ema(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    for (int i = 0; i < s->streams; i++) {
        const int64_t   W = s->stream[i].width;
        const dra_value x = dra_reshape(g, c->x[i], DRA_SHAPE(-1, s->H, 1, W));
        const dra_value m = c->state[i], rate = dra_sigmoid(g, dra_neg(g, read_betas(g, c, i)));
        r->state[i] = dra_memory_keep(g, c, m, dra_add(g, m, dra_mul(g, rate, dra_sub(g, x, m))));
        r->item[i] = r->state[i]; /* (B, H, M, width): slots */
        if (mixes_timescales(s, i)) r->item[i] = dra_mul(g, mix_weights(g, c, i), r->item[i]);
        if (mixes_timescales(s, i) || count_timescales(s) == 1)
            r->item[i] = dra_sum(g, r->item[i], (dra_axes){1, {2}, false});
    }
}

/* (H, M, width) or (B, H, M, width) -> (M, H width) or (B, M, H width): channels last. */
static dra_value channels_last(dra_graph *g, dra_value x, const dra_memory_sizes *s, int i,
                               bool batch)
{
    const int64_t N = s->H * s->stream[i].width, M = count_timescales(s);
    x = dra_transpose(g, x, -3, -2);
    return dra_reshape(g, x, batch ? DRA_SHAPE(-1, M, N) : DRA_SHAPE(M, N));
}

static void chunk_ema(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    if (dra_graph_failed(g)) return;
    for (int i = 0; i < s->streams; i++) {
        const dra_shape shape = dra_shape_of(g, c->x[i]); /* (B, T, H, width) */
        const int64_t B = shape.dim[0], T = shape.dim[1], W = shape.dim[3], M = count_timescales(s);
        dra_value     start = c->state[i], w = {0}, last;
        if (start.id) start = channels_last(g, start, s, i, true);
        if (mixes_timescales(s, i) && !r->trail) {
            w = dra_broadcast(g, mix_weights(g, c, i), DRA_SHAPE(s->H, M, W));
            w = channels_last(g, w, s, i, false);
        }
        const dra_value x = dra_reshape(g, c->x[i], DRA_SHAPE(B, T, s->H * W));
        const dra_value beta = channels_last(g, read_betas(g, c, i), s, i, false);
        const dra_value m = dra_ema(g, x, beta, w, start, c->mark, &last);
        if (w.id || M == 1) r->item[i] = dra_reshape(g, m, shape);
        if (!w.id) { /* every timescale, (B, T, H, M, width) */
            const dra_value all = dra_reshape(g, m, DRA_SHAPE(B, T, M, s->H, W));
            const dra_value each = dra_transpose(g, all, 2, 3);
            if (r->trail) r->trail[i] = each;
            if (M > 1) r->item[i] = each;
            if (mixes_timescales(s, i))
                r->item[i] = dra_sum(g, dra_mul(g, mix_weights(g, c, i), each),
                                     (dra_axes){1, {3}, false});
        }
        last = dra_reshape(g, last, DRA_SHAPE(B, M, s->H, W));
        r->state[i] = dra_transpose(g, last, 1, 2);
    }
}

const dra_memory dra_memory_ema = {
    "ema",    retrievals, check_ema,      declare_ema,
    step_ema, chunk_ema,  .parts = parts, .chunks = DRA_CHUNK_SKIPS | DRA_CHUNK_TRAIL};
