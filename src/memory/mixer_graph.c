/* The graph of a mixer: encode, then one branch (memory and retrieval) or a blend of two, then the
 * output.
 *   q, k, v = W x + b of x, or of x and the token before, split into heads, normalised
 *   y = W_o [heads] + b_o;  heads may be scaled and gated, y may be a sigmoid(b) of two halves */
#include <stdio.h>
#include <string.h>

#include "memory/mixer.h"

dra_value dra_mixing_param(const dra_mixing *b, dra_mixer_param p)
{
    return b->m->at[p] < 0 ? (dra_value){0} : b->call->param[b->m->at[p]];
}

/* ---- encode ---------------------------------------------------------------------------------- */

/* Each of `groups` equal parts of the last axis to length 1. */
static dra_value unit_parts(dra_graph *g, dra_value x, int64_t groups)
{
    if (groups < 2 || dra_graph_failed(g)) return dra_unit_clamped(g, x, 1e-12);
    const dra_shape s = dra_shape_of(g, x);
    dra_shape       split = s;
    split.dim[split.rank++] = s.dim[s.rank - 1] / groups;
    split.dim[s.rank - 1] = groups;
    return dra_reshape(g, dra_unit_clamped(g, dra_reshape(g, x, split), 1e-12), s);
}

/* x (..., heads, width); gain and bias (width) or (heads, width), or none. */
static dra_value normalise_heads(const dra_mixing *b, dra_value x, dra_value gain, dra_value bias,
                                 int64_t groups)
{
    dra_graph      *g = b->g;
    const dra_value none = {0};
    if (dra_graph_failed(g)) return none;
    const bool      shared = gain.id && dra_shape_of(g, gain).rank == 1;
    const dra_value own = shared ? gain : none;
    const double    eps = b->m->config.qkv_eps;
    switch (b->m->config.qkv_norm) {
    case DRA_QKV_RMS: x = dra_rms_norm(g, x, own, eps > 0 ? eps : 1e-6); break;
    case DRA_QKV_LAYER:
        x = dra_layer_norm(g, x, own, shared ? bias : none, eps > 0 ? eps : 1e-5);
        break;
    case DRA_QKV_UNIT: x = unit_parts(g, x, groups); break;
    case DRA_QKV_NORM_COUNT: break;
    }
    if (gain.id && (!shared || b->m->config.qkv_norm == DRA_QKV_UNIT)) x = dra_mul(g, x, gain);
    return bias.id && !shared ? dra_add(g, x, bias) : x;
}

/* The gains of q (i = 0) or k. */
static dra_value gain_of(const dra_mixing *b, int i)
{
    const dra_value gain = dra_mixing_param(b, DRA_GAIN_Q + i);
    return gain.id && b->m->config.qk_gain_offset ? dra_affine(b->g, gain, 1, 1) : gain;
}

/* q (i = 0) or k, (B, n, heads, D), of each head or as a whole. */
static dra_value normalise_key(const dra_mixing *b, int i, dra_value x)
{
    const dra_mixer_config *c = &b->m->config;
    if (dra_graph_failed(b->g)) return x;
    const dra_shape s = dra_shape_of(b->g, x);
    if (c->qk_whole) x = dra_join_heads(b->g, x);
    x = normalise_heads(b, x, gain_of(b, i), dra_mixing_param(b, DRA_BIAS_Q + i), c->qk_groups);
    return c->qk_whole ? dra_reshape(b->g, x, s) : x;
}

static void normalise_all(const dra_mixing *b, dra_value qkv[3])
{
    const dra_mixer_config *c = &b->m->config;
    for (int i = 0; i < 2 && c->qk_norm; i++)
        if (qkv[i].id) qkv[i] = normalise_key(b, i, qkv[i]);
    if (c->v_norm && qkv[2].id)
        qkv[2] = normalise_heads(b, qkv[2], dra_mixing_param(b, DRA_GAIN_V),
                                 dra_mixing_param(b, DRA_BIAS_V), 1);
}

/* q (i = 0), k or v of x (B, n, C), in heads. */
static dra_value project_heads(const dra_mixing *b, int i, dra_value x, int64_t n)
{
    const dra_mixer_config *c = &b->m->config;
    const int64_t           W = i == 2 ? c->value_dim : c->key_dim;
    const int64_t           H = i == 2 ? dra_mixer_kv_heads(c) : dra_mixer_key_heads(c, i);
    const dra_value         y = dra_linear(b->g, x, dra_mixing_param(b, DRA_W_Q + i),
                                           dra_mixing_param(b, DRA_B_Q + i));
    return dra_reshape(b->g, dra_conv_build(b, i, y), DRA_SHAPE(b->call->tokens.B, n, H, W));
}

/* In place of keys and values: those of rotary heads (B, T, rope, D), if there are any, and the
 * latents (B, T, 1, width). */
static void encode_latent(const dra_mixing *b, dra_value x, dra_value qkv[3])
{
    const dra_mixer_config *c = &b->m->config;
    const int64_t           B = b->call->tokens.B, T = b->call->tokens.T;
    const dra_value none = {0}, latent = dra_linear(b->g, x, dra_mixing_param(b, DRA_W_C), none);
    qkv[1] = qkv[2] = dra_reshape(b->g, latent, DRA_SHAPE(B, T, 1, c->latent.kv));
    if (c->latent.rope)
        qkv[1] = dra_reshape(b->g, dra_linear(b->g, x, dra_mixing_param(b, DRA_W_KR), none),
                             DRA_SHAPE(B, T, c->latent.rope, c->key_dim));
}

/* in: what each thing sees of x; its gate is of the answer. Returns what all else sees. */
static dra_seen encode_inputs(const dra_mixing *b, dra_value x, dra_value in[DRA_MIXES],
                              dra_value qkv[3])
{
    const dra_mixer_config *c = &b->m->config;
    const dra_tokens       *t = &b->call->tokens;
    dra_shift_build(b, x, in);
    const dra_value views = b->channels->value[DRA_CHANNEL_VIEWS];
    for (int i = 0; i < 2 && views.id && !dra_graph_failed(b->g); i++)
        in[i + 1] = dra_reshape(b->g, dra_slice(b->g, views, 2, i, 1), dra_shape_of(b->g, x));
    const dra_value seen = c->shift == DRA_SHIFT_HALF ? in[0] : x;
    const dra_value values = in[2];
    if (c->context) in[1] = in[2] = b->channels->value[DRA_CHANNEL_CONTEXT];
    if (c->latent.kv) encode_latent(b, in[1], qkv);
    if (c->latent.q) in[0] = dra_linear(b->g, in[0], dra_mixing_param(b, DRA_W_CQ), (dra_value){0});
    for (int i = 0; i < (c->latent.kv ? 1 : 3); i++) /* those of a context may be in the state */
        qkv[i] = in[i].id ? project_heads(b, i, in[i], i && c->context ? t->context : t->T)
                          : (dra_value){0};
    qkv[2] = dra_value_residual_build(b, seen, values, qkv[2]);
    normalise_all(b, qkv);
    return (dra_seen){.x = seen, .decay = in[DRA_MIX_DECAY], .rate = in[DRA_MIX_RATE]};
}

/* Keys and values of Transformer-XL's memory, where a segment starts. */
static void encode_memory(const dra_mixing *b, dra_value kv[2])
{
    const dra_token_segments *p = &b->call->tokens.segments;
    const dra_value           memory = b->channels->value[DRA_CHANNEL_XL];
    dra_value                 qkv[3] = {{0}};
    kv[0] = kv[1] = (dra_value){0};
    if (!p->seen || dra_graph_failed(b->g)) return;
    if (!memory.id) {
        dra_build_fail(b->g, "mixer", DRA_ERR_VALUE,
                       "the memory of Transformer-XL is kept by a sublayer, which is not there");
        return;
    }
    for (int i = 1; i < 3; i++) qkv[i] = project_heads(b, i, memory, p->seen);
    normalise_all(b, qkv);
    kv[0] = qkv[1], kv[1] = qkv[2];
}

/* q, k or v (B, T, K, W) as (B, T, H, W): what each head has. */
static dra_value repeat_heads(const dra_mixing *b, dra_value x)
{
    const dra_mixer_config *c = &b->m->config;
    if (dra_graph_failed(b->g)) return x;
    const dra_shape s = dra_shape_of(b->g, x);
    const int64_t   B = s.dim[0], T = s.dim[1], K = s.dim[2], W = s.dim[3], n = c->heads / K;
    const bool      div = c->kv_order == DRA_HEADS_DIV;
    x = dra_reshape(b->g, x, div ? DRA_SHAPE(B, T, K, 1, W) : DRA_SHAPE(B, T, 1, K, W));
    x = dra_broadcast(b->g, x, div ? DRA_SHAPE(B, T, K, n, W) : DRA_SHAPE(B, T, n, K, W));
    return dra_reshape(b->g, x, DRA_SHAPE(B, T, c->heads, W));
}

/* The sum of ln f of all tokens so far, (B, T, H, 2); skipped tokens leave no trace in it. */
static dra_value forget_levels(const dra_mixing *b, dra_value seen)
{
    dra_graph        *g = b->g;
    const dra_tokens *t = &b->call->tokens;
    const int         at = b->m->level;
    if (at < 0) return (dra_value){0};
    const dra_value z = dra_linear(g, seen, dra_mixing_param(b, DRA_W_F),
                                   dra_mixing_param(b, DRA_B_F));
    const dra_value f = dra_neg(g, dra_softplus(g, dra_neg(g, z)));
    const dra_value start = t->fresh ? (dra_value){0} : b->call->state[at];
    return dra_running_sum(g, f, start, t->writes, &b->state_out[at]);
}

/* ---- remember and retrieve ------------------------------------------------------------------- */

/* Learned keys, normalised as all keys are. */
static dra_value memory_keys(const dra_mixing *b)
{
    const dra_mixer_config *c = &b->m->config;
    dra_graph              *g = b->g;
    dra_value               k = dra_mixing_param(b, DRA_MEM_K), gain = gain_of(b, 1);
    if (!k.id || !c->qk_norm || dra_graph_failed(g)) return k;
    const bool heads = gain.id && c->qkv_gain == DRA_QKV_HEADS; /* (K, m, D) by (K, D) */
    if (heads) gain = dra_reshape(g, gain, DRA_SHAPE(dra_shape_of(g, gain).dim[0], 1, c->key_dim));
    return normalise_heads(b, k, gain, (dra_value){0}, c->attention.mem_whole ? 1 : c->qk_groups);
}

static dra_branch_result build_branch(const dra_mixing *b, int i, const dra_seen *seen,
                                      dra_value level, const dra_value qkv[3])
{
    const dra_mixer_config *c = &b->m->config;
    const dra_branch       *branch = &b->m->branch[i];
    dra_value               own[3] = {qkv[0], qkv[1], qkv[2]}, xl[2], params[DRA_MIXER_PARAMS];
    encode_memory(b, xl);
    const bool alone = c->kv_heads && branch->sizes.H != c->kv_heads;
    for (int k = 0; k < 3; k++)
        if (k < 2 && c->key_heads ? c->key_heads < c->heads : k && alone)
            own[k] = repeat_heads(b, qkv[k]);
    for (int p = 0; p < DRA_MIXER_PARAMS; p++) params[p] = dra_mixing_param(b, (dra_mixer_param)p);
    const dra_read_options options = {.config = c,
                                      .param = params,
                                      .mem_k = memory_keys(b),
                                      .xl_k = xl[0],
                                      .xl_v = xl[1],
                                      .level = level,
                                      .channels = b->channels};
    return dra_branch_build(b->g, branch, b->call, &options, seen, own, b->state_out);
}

/* a y_0 + (1-a) y_1; at 1 and 0 exactly the one, whatever is in the other. */
static dra_value blend_answers(const dra_mixing *b, const dra_value y[2])
{
    dra_graph              *g = b->g;
    const dra_mixer_config *c = &b->m->config;
    const dra_value         one = dra_number(g, 1), zero = dra_number(g, 0);
    dra_value               a = b->channels->value[DRA_CHANNEL_BLEND];
    if (c->blend == DRA_BLEND_NUMBER) {
        if (c->blend_value == 1 || c->blend_value == 0) return y[c->blend_value == 0];
        a = dra_number(g, c->blend_value);
    }
    if (c->blend == DRA_BLEND_LEARNED)
        a = dra_reshape(g, dra_sigmoid(g, dra_mixing_param(b, DRA_BLEND)), DRA_SHAPE(-1, 1));
    const dra_value mixed = dra_mix_two(g, a, y[0], y[1]);
    if (c->blend != DRA_BLEND_INPUT) return mixed;
    const dra_value first = dra_select(g, dra_equal(g, a, one), y[0], mixed);
    return dra_select(g, dra_equal(g, a, zero), y[1], first);
}

/* ---- the output ------------------------------------------------------------------------------ */

dra_value dra_join_heads(dra_graph *g, dra_value x)
{
    if (dra_graph_failed(g)) return x;
    const dra_shape s = dra_shape_of(g, x);
    return dra_reshape(g, x, DRA_SHAPE(s.dim[0], s.dim[1], s.dim[2] * s.dim[3]));
}

static dra_value output_heads(const dra_mixing *b, dra_value seen, dra_value heads)
{
    const dra_mixer_config *c = &b->m->config;
    dra_graph              *g = b->g;
    if (c->head_scale)
        heads = dra_mul(g, heads,
                        dra_reshape(g, dra_mixing_param(b, DRA_HEAD_SCALE), DRA_SHAPE(-1, 1)));
    if (c->head_gate) heads = dra_mul(g, heads, dra_head_gate_build(b, seen));
    dra_value y = dra_out_norm_build(b, DRA_OUT_NORM_BEFORE, dra_join_heads(g, heads));
    y = dra_gate_build(b, seen, y);
    y = dra_out_norm_build(b, DRA_OUT_NORM_AFTER, y);
    y = dra_linear(g, y, dra_mixing_param(b, DRA_W_O), dra_mixing_param(b, DRA_B_O));
    return c->out_glu ? dra_glu(g, y, DRA_ACT_SIGMOID) : y;
}

dra_mixer_result dra_mixer_build(dra_graph *g, const dra_mixer *m, const dra_module_call *call,
                                 dra_value x, dra_channels *channels, dra_value *state_out)
{
    dra_mixing        b = {g, m, call, channels, state_out};
    dra_mixer_result  r = {0};
    dra_value         qkv[3], y[2], in[DRA_MIXES];
    const dra_seen    seen = encode_inputs(&b, x, in, qkv);
    const dra_value   level = forget_levels(&b, seen.x);
    dra_branch_result part[2];
    for (int i = 0; i < m->branches; i++) {
        part[i] = build_branch(&b, i, &seen, level, qkv);
        y[i] = part[i].y;
        r.memory = part[i].memory; /* that of a blend is of its second */
        memcpy(r.map[i], part[i].map, sizeof r.map[i]);
    }
    dra_aux_mixer(g, m->config.aux, m->branches, m->branch, part, call->param, r.aux);
    if (m->branches == 2) y[0] = blend_answers(&b, y);
    r.y = output_heads(&b, in[DRA_MIX_GATE], y[0]);
    if (!m->config.gives_memory) r.memory = (dra_value){0};
    return r;
}

/* ---- as a module ----------------------------------------------------------------------------- */

const char *dra_show_name(dra_show_kind kind)
{
    static const char *const names[DRA_SHOW_COUNT] = {"attention", "write", "occupancy", "scores"};
    return (unsigned)kind < DRA_SHOW_COUNT ? names[kind] : NULL;
}

void dra_mixer_put_out(dra_graph *g, const dra_mixer *m, const dra_tokens *tokens,
                       const dra_mixer_result *r)
{
    char name[16];
    if (r->memory.id)
        dra_output(g, "memory", dra_tokens_zero_pads(g, tokens, dra_join_heads(g, r->memory)));
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (r->aux[k].id) dra_output(g, dra_aux_name(k), r->aux[k]);
    for (int i = 0; i < m->branches; i++)
        for (int k = 0; k < DRA_SHOW_COUNT; k++) {
            if (!r->map[i][k].id) continue;
            snprintf(name, sizeof name, "%s%s", m->branch[i].prefix, dra_show_name(k));
            dra_output(g, name, r->map[i][k]);
        }
}

void dra_mixer_input_context(dra_graph *g, const dra_mixer *m, const dra_module_call *call,
                             dra_channels *channels)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           W = c->context_dim ? c->context_dim : c->dim;
    if (!c->context || !call->context) return;
    const dra_tokens *t = &call->context->tokens;
    channels->value[DRA_CHANNEL_CONTEXT] = dra_context_take(
        g, call, dra_input(g, "context", DRA_REAL, DRA_SHAPE(t->B, t->given, W)));
}

void dra_mixer_build_module(dra_graph *g, const void *self, const dra_module_call *call,
                            dra_value *state_out)
{
    const dra_mixer  *m = self;
    const dra_tokens *t = &call->tokens;
    dra_channels      channels = {0};
    const dra_value   x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(t->B, t->T, m->config.dim));
    if (m->config.blend == DRA_BLEND_INPUT)
        channels.value[DRA_CHANNEL_BLEND] = dra_input(g, "blend", DRA_REAL, (dra_shape){0});
    dra_mixer_input_context(g, m, call, &channels);
    const dra_mixer_result r = dra_mixer_build(g, m, call, x, &channels, state_out);
    dra_output(g, "y", dra_tokens_zero_pads(g, t, r.y));
    dra_mixer_put_out(g, m, t, &r);
}
