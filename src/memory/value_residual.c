/* Values of a mixer mixed with those of the first one, v = v_1 + a (v - v_1) [Zhou et al. 2024]. */
#include <math.h>

#include "file/field_rows.h"
#include "memory/mixer.h"
#include "memory/part.h"

DRA_CHOICES(value_residuals, DRA_VALUES_COUNT, "none", "half", "learned", "channel");

const dra_field dra_value_residual_fields[] = {
    CHOICE(dra_mixer_config, value_residual, value_residuals,
           "mix in the values of the first mixer that says so"),
    {0}};
const dra_field dra_value_residual_late_fields[] = {
    INT(dra_mixer_config, value_rank, "a full matrix", "value_residual channel: its rank"), {0}};

dra_status dra_value_residual_check(const dra_mixer_config *c, dra_error *err)
{
    const bool shared = c->kv_heads && c->kv_heads < c->heads;
    if (c->value_residual == DRA_VALUES_LEARNED && shared)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: value_residual learned needs %lld kv_heads, one for each head, "
                        "found %lld",
                        (long long)c->heads, (long long)c->kv_heads);
    if (c->value_rank && c->value_residual == DRA_VALUES_OWN) /* half: the first of a stack */
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: value_rank is %lld, but only value_residual channel has one",
                        (long long)c->value_rank);
    return DRA_OK;
}

void dra_value_residual_declare(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           all = dra_mixer_kv_heads(c) * c->value_dim;
    if (c->value_residual == DRA_VALUES_LEARNED) {
        dra_mixer_add_matrix(m, DRA_W_MIX, c->heads, c->dim, 1 / sqrt((double)c->dim));
        dra_mixer_add_bias(m, DRA_B_MIX, c->heads, c->dim, 0);
    }
    if (c->value_residual != DRA_VALUES_CHANNEL) return;
    if (c->value_rank) {
        dra_mixer_add_constant(m, DRA_W_MIX_1, DRA_SHAPE(c->value_rank, c->dim), 0);
        dra_mixer_add(m, DRA_W_MIX_2, DRA_SHAPE(all, c->value_rank), DRA_FILL_UNIFORM, 0.01);
    } else {
        dra_mixer_add_constant(m, DRA_W_MIX, DRA_SHAPE(all, c->dim), 0);
    }
    dra_mixer_add_constant(m, DRA_B_MIX, DRA_SHAPE(all), 0);
}

/* How much of the first mixer's values each channel takes, (B, T, K, E); x: what values see. */
static dra_value first_share(const dra_mixing *b, dra_value x)
{
    dra_graph      *g = b->g;
    const dra_value none = {0}, one = dra_mixing_param(b, DRA_W_MIX),
                    w = dra_mixing_param(b, DRA_W_MIX_1);
    if (w.id) x = dra_linear(g, x, w, none);
    x = dra_linear(g, x, w.id ? dra_mixing_param(b, DRA_W_MIX_2) : one,
                   dra_mixing_param(b, DRA_B_MIX));
    return dra_reshape(g, dra_sigmoid(g, x),
                       DRA_SHAPE(b->call->tokens.B, b->call->tokens.T, -1, b->m->config.value_dim));
}

dra_value dra_value_residual_build(const dra_mixing *b, dra_value seen, dra_value x, dra_value v)
{
    dra_graph        *g = b->g;
    const dra_channel at = b->m->config.context ? DRA_CHANNEL_CROSS_VALUES : DRA_CHANNEL_VALUES;
    dra_value        *first = &b->channels->value[at], share = dra_number(g, 0.5);
    if (b->m->config.value_residual == DRA_VALUES_OWN || dra_graph_failed(g)) return v;
    if (!first->id) return *first = v;
    if (b->m->config.value_residual == DRA_VALUES_CHANNEL)
        return dra_add(g, v, dra_mul(g, first_share(b, x), dra_sub(g, *first, v)));
    if (b->m->config.value_residual == DRA_VALUES_LEARNED) {
        share = dra_sigmoid(
            g, dra_linear(g, seen, dra_mixing_param(b, DRA_W_MIX), dra_mixing_param(b, DRA_B_MIX)));
        share = dra_reshape(g, share, DRA_SHAPE(b->call->tokens.B, b->call->tokens.T, -1, 1));
    }
    return dra_add(g, *first, dra_mul(g, share, dra_sub(g, v, *first)));
}
