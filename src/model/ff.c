/* The feed-forward half of a block: each token by itself, but for RWKV-4's channel mix, which also
 * sees the token before.
 *   norm before: x + ff(norm x)     norm after: norm(x + ff x) */
#include <math.h>

#include "model/model.h"

static bool mixes(const dra_model_config *c) { return c->ff.kind == DRA_FF_MIX; }

/* ---- tensors --------------------------------------------------------------------------------- */

static void add_matrix(dra_specs *params, const char *prefix, const char *name, int64_t out,
                       int64_t in, double std)
{
    dra_specs_add(
        params, prefix,
        &(dra_spec){name, DRA_SHAPE(out, in), DRA_FILL_NORMAL, .number = std, .product = true});
}

/* What is added to the stream starts small: 2 L parts of variance 1 / 2 L each. */
void dra_ff_declare(const dra_model_config *c, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    const int64_t C = c->dim, F = c->ff.dim;
    const double  in = 1 / sqrt((double)C), out = 1 / sqrt(2.0 * (double)(F * c->depth));
    if (c->ff.kind == DRA_FF_NONE) return;
    dra_model_norm_declare(c, prefix, params);
    add_matrix(params, prefix, "W_up", F, C, in);
    add_matrix(params, prefix, "W_down", C, F, out);
    if (c->ff.kind == DRA_FF_SWIGLU) add_matrix(params, prefix, "W_gate", F, C, in);
    if (mixes(c)) {
        add_matrix(params, prefix, "W_r", C, C, in);
        dra_specs_add(params, prefix, &(dra_spec){"mu_k", DRA_SHAPE(C), .number = 0.5});
        dra_specs_add(params, prefix, &(dra_spec){"mu_r", DRA_SHAPE(C), .number = 0.5});
        dra_specs_add(state, prefix, &(dra_spec){"x", DRA_SHAPE(C)});
    } else if (c->bias) {
        dra_specs_add(params, prefix, &(dra_spec){"b_up", DRA_SHAPE(F)});
        dra_specs_add(params, prefix, &(dra_spec){"b_down", DRA_SHAPE(C)});
    }
}

/* ---- the graph ------------------------------------------------------------------------------- */

enum { UP, DOWN, GATE }; /* after the norm; then biases */
enum { R = 2, MU_K, MU_R };

static const dra_value none;

static dra_value plain(dra_graph *g, const dra_model_config *c, const dra_value *w, dra_value x)
{
    static const dra_activation act[] = {[DRA_FF_GELU] = DRA_ACT_GELU_TANH,
                                         [DRA_FF_ERF] = DRA_ACT_GELU,
                                         [DRA_FF_RELU] = DRA_ACT_RELU,
                                         [DRA_FF_RELU2] = DRA_ACT_RELU2,
                                         [DRA_FF_SWIGLU] = DRA_ACT_SILU};
    const bool                  gated = c->ff.kind == DRA_FF_SWIGLU;
    const dra_value            *bias = w + 2 + gated;
    dra_value                   h = dra_linear(g, x, w[UP], c->bias ? bias[0] : none);
    if (gated)
        h = dra_mul(g, h, dra_silu(g, dra_linear(g, x, w[GATE], none)));
    else
        h = dra_activate(g, h, act[c->ff.kind]);
    return dra_linear(g, h, w[DOWN], c->bias ? bias[1] : none);
}

/* before + mu (x - before) */
static dra_value blend(dra_graph *g, dra_value mu, dra_value x, dra_value before)
{
    return dra_add(g, dra_mul(g, x, mu), dra_mul(g, before, dra_affine(g, mu, -1, 1)));
}

static dra_value channel_mix(dra_graph *g, const dra_module_call *call, const dra_value *w, int at,
                             dra_value x, dra_value *state_out)
{
    const dra_value before = dra_tokens_shift(g, &call->tokens, x, call->state[at], &state_out[at]);
    const dra_value k = dra_linear(g, blend(g, w[MU_K], x, before), w[UP], none);
    const dra_value r = dra_linear(g, blend(g, w[MU_R], x, before), w[R], none);
    return dra_mul(g, dra_sigmoid(g, r), dra_linear(g, dra_relu2(g, k), w[DOWN], none));
}

dra_value dra_ff_build(dra_graph *g, const dra_model_config *c, const dra_module_call *call,
                       int64_t l, const dra_part *at, dra_value x, dra_value *state_out)
{
    if (c->ff.kind == DRA_FF_NONE) return x;
    const bool       post = c->block.norm == DRA_PLACE_POST;
    const dra_value *norm = call->param + at->params;
    const dra_value *w = norm + 1 + (c->norm == DRA_MODEL_LAYER);
    const double     scale = call->learning ? 1 : dra_model_rescale(c, l);
    const double     eps = c->norm_eps * scale * scale;
    const dra_value  in = post ? x : dra_model_norm_build(g, c, norm, x, eps);
    const dra_value  y = mixes(c) ? channel_mix(g, call, w, at->states, in, state_out)
                                  : plain(g, c, w, in);
    x = dra_add(g, x, dra_module_dropout(g, call, "ff.dropout", c->dropout, y));
    return post ? dra_model_norm_build(g, c, norm, x, eps) : x;
}
