/* A short convolution of a mixer's queries, keys and values: each channel by itself over the last
 * W tokens, then SiLU. State conv_q, conv_k, conv_v: the W - 1 inputs before, oldest first.
 *   y_t = silu(b + sum_j w_j x_(t - W + 1 + j)),   zeros before the text, over resets and pads
 * By definition inputs are found by shifting W - 1 times; the op has the last ones at hand. */
#include <math.h>
#include <stdio.h>

#include "file/field_rows.h"
#include "memory/mixer.h"
#include "memory/part.h"

enum { TAPS_MOST = 8 };

const dra_field dra_conv_fields[] = {
    {.name = "conv",
     .kind = DRA_FIELD_INT,
     .offset = offsetof(dra_conv_options, width),
     .max = TAPS_MOST,
     .unset = "none",
     .about = "moment, delta: queries, keys and values see this many tokens, by a convolution"},
    {.name = "conv_bias",
     .kind = DRA_FIELD_BOOL,
     .unset = "false",
     .offset = offsetof(dra_conv_options, bias),
     .about = "conv: with biases"},
    {0}};

dra_status dra_conv_check(const dra_mixer_config *c, dra_error *err)
{
    if (c->conv.width == 1)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: conv is 1, expected 2 to %d", TAPS_MOST);
    if (c->conv.bias && !c->conv.width)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: conv_bias is set, but there is no conv");
    return DRA_OK;
}

static int64_t count_channels(const dra_mixer_config *c, int i)
{
    const int64_t values = dra_mixer_kv_heads(c) * c->value_dim;
    return i == 2 ? values : dra_mixer_key_heads(c, i) * c->key_dim;
}

void dra_conv_declare(dra_mixer *m)
{
    static const char *const names[] = {"conv_q", "conv_k", "conv_v"};
    const dra_mixer_config  *c = &m->config;
    const int64_t            W = c->conv.width;
    m->conv = W ? dra_specs_count(m->state) : -1;
    for (int i = 0; i < 3 && W; i++) {
        const int64_t n = count_channels(c, i);
        dra_mixer_add(m, DRA_CONV_Q + i, DRA_SHAPE(n, W), DRA_FILL_UNIFORM, 1 / sqrt((double)W));
        dra_specs_add(m->state, NULL, &(dra_spec){names[i], DRA_SHAPE(W - 1, n)});
    }
    for (int i = 0; i < 3 && c->conv.bias; i++)
        dra_mixer_add_constant(m, DRA_CONV_B_Q + i, DRA_SHAPE(count_channels(c, i)), 0);
}

/* The same by its definition: input k is x of k tokens before. */
static dra_value shift_and_sum(const dra_mixing *b, dra_value x, dra_value w, dra_value bias,
                               dra_value before, dra_value *after)
{
    dra_graph    *g = b->g;
    const int64_t W = b->m->config.conv.width;
    dra_value     input[TAPS_MOST] = {x}, last[TAPS_MOST], y = bias;
    for (int64_t k = 1; k < W; k++) {
        const dra_value own = before.id ? dra_slice(g, before, 1, W - 1 - k, 1) : before;
        input[k] = dra_tokens_shift(g, &b->call->tokens, input[k - 1], own, &last[W - 1 - k]);
    }
    for (int64_t j = 0; j < W; j++) {
        const dra_value tap = dra_reshape(g, dra_slice(g, w, 1, j, 1), DRA_SHAPE(-1));
        const dra_value term = dra_mul(g, input[W - 1 - j], tap);
        y = y.id ? dra_add(g, y, term) : term;
    }
    for (int64_t k = 0; k + 1 < W && !dra_graph_failed(g); k++)
        last[k] = dra_reshape(g, last[k], DRA_SHAPE(b->call->tokens.B, 1, -1));
    *after = dra_concat(g, (int)(W - 1), last, 1);
    return y;
}

dra_value dra_conv_build(const dra_mixing *b, int i, dra_value x)
{
    dra_graph        *g = b->g;
    const dra_tokens *t = &b->call->tokens;
    const int         at = b->m->conv + i;
    const dra_value   w = dra_mixing_param(b, DRA_CONV_Q + i);
    const dra_value   bias = dra_mixing_param(b, DRA_CONV_B_Q + i);
    if (b->m->conv < 0) return x;
    const dra_value start = b->call->state[at];
    dra_value      *last = &b->state_out[at];
    return dra_silu(g, b->m->config.a.steps ? shift_and_sum(b, x, w, bias, start, last)
                                            : dra_conv(g, x, w, bias, start, t->mark, last));
}
