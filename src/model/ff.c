/* Feed-forwards: each token by itself, but for RWKV's channel mix, which also sees the token
 * before.
 *   y = W_down drop(norm(act(W_up x + b_up))) + b_down
 *   gated: act(W_up x) becomes (W_up x + b_up) * act(W_gate x + b_gate)
 * Mixtures of experts are in experts.c. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "model/stack.h"
#include "file/field_rows.h"
#include "model/parts.h"

DRA_CHOICES(inners, DRA_FF_COUNT, "gelu", "erf", "relu", "relu2", "swiglu", "mix", "none", "silu");
DRA_CHOICES(ff_biases, DRA_FF_BIAS_COUNT, "default", "all", "none", "in");
const dra_field dra_ff_fields[] = {
    CHOICE(dra_ff_config, kind, inners, "activation of feed-forwards"),
    INT(dra_ff_config, dim, "4 dim; swiglu: 8/3 dim, up to a multiple of 64", "inner width"),
    BOOL(dra_ff_config, gated, "a gated linear unit; swiglu is one anyway"),
    CHOICE(dra_ff_config, bias, ff_biases, "which matrices have biases"),
    BOOL(dra_ff_config, act_norm, "a layer norm after the activation"),
    REAL(dra_ff_config, dropout, 0, 0.999, "0", "dropout of the inner values, when training"),
    BOOL(dra_ff_config, lerp, "mix: mu is the share of the token before"),
    BOOL(dra_ff_config, gate_scale, "gated: a learned factor of each channel of the product"),
    SWITCH(dra_ff_config, receptance, "true", "mix: multiply by a receptance gate"),
    OBJECT(dra_ff_config, experts, dra_expert_fields, "a mixture of experts"),
    {0},
};

/* In the order in which they are declared. */
enum { W_UP, W_DOWN, W_GATE, W_R, MU_K, MU_R, B_UP, B_DOWN, B_GATE, SCALE, PARAMS };

struct dra_ff {
    dra_sublayer_config config;
    dra_specs          *params, *state;
    int                 at[PARAMS]; /* -1: it has none */
    dra_norm            norm;       /* after the activation */
    dra_experts         experts;    /* where there are several */
    dra_module          module;
};

static bool is_mix(const dra_ff *f) { return f->config.ff.kind == DRA_FF_MIX; }
static bool has_receptance(const dra_ff *f) { return f->config.ff.receptance != DRA_OFF; }
static bool is_gated(const dra_ff *f) { return dra_ff_is_gated(&f->config.ff); }
static bool is_mixture(const dra_ff *f) { return f->config.ff.experts.count > 0; }

bool dra_ff_is_gated(const dra_ff_config *c) { return c->gated || c->kind == DRA_FF_SWIGLU; }

/* ---- tensors --------------------------------------------------------------------------------- */

static const char *const names[PARAMS] = {"W_up", "W_down", "W_gate", "W_r",    "mu_k",
                                          "mu_r", "b_up",   "b_down", "b_gate", "gate_scale"};

/* W_down and its bias, where nothing is added at first. */
static bool starts_silent(const dra_ff *f, int p)
{
    return f->config.block.zero_out && (p == W_DOWN || p == B_DOWN);
}

static void add_matrix(dra_ff *f, int p, int64_t out, int64_t in, double std)
{
    const bool uniform = f->config.mixer.init == DRA_INIT_UNIFORM;
    f->at[p] = dra_specs_count(f->params);
    dra_spec spec = {names[p], DRA_SHAPE(out, in), uniform ? DRA_FILL_UNIFORM : DRA_FILL_NORMAL,
                     .number = uniform ? 1 / sqrt((double)in) : std, .product = true};
    if (starts_silent(f, p)) spec.fill = DRA_FILL_CONST, spec.number = 0;
    dra_specs_add(f->params, NULL, &spec);
}

static void add_vector(dra_ff *f, int p, int64_t n, double number)
{
    f->at[p] = dra_specs_count(f->params);
    dra_specs_add(f->params, NULL,
                  &(dra_spec){names[p], DRA_SHAPE(n), .number = number, .group = DRA_PARAM_SHIFT});
}

/* in: the number of inputs of its matrix. */
static void add_bias(dra_ff *f, int p, int64_t n, int64_t in)
{
    const bool uniform = f->config.mixer.init == DRA_INIT_UNIFORM && !starts_silent(f, p);
    f->at[p] = dra_specs_count(f->params);
    dra_specs_add(f->params, NULL,
                  &(dra_spec){names[p], DRA_SHAPE(n), uniform ? DRA_FILL_UNIFORM : DRA_FILL_CONST,
                              .number = uniform ? 1 / sqrt((double)in) : 0,
                              .group = DRA_PARAM_BIAS});
}

static void declare_biases(dra_ff *f)
{
    const int64_t     C = f->config.mixer.dim, F = f->config.ff.dim;
    const dra_ff_bias b = f->config.ff.bias;
    const bool        model = b == DRA_FF_BIAS_MODEL && f->config.mixer.bias;
    if (model || b == DRA_FF_BIAS_ALL || b == DRA_FF_BIAS_IN) add_bias(f, B_UP, F, C);
    if (model || b == DRA_FF_BIAS_ALL) add_bias(f, B_DOWN, C, F);
    if (is_gated(f) && (b == DRA_FF_BIAS_ALL || b == DRA_FF_BIAS_IN)) add_bias(f, B_GATE, F, C);
}

/* What is added to the stream starts small: 2 L parts of variance 1 / 2 L each. */
static void declare_ff(dra_ff *f)
{
    const dra_sublayer_config *c = &f->config;
    const int64_t              C = c->mixer.dim, F = c->ff.dim;
    const double               in = 1 / sqrt((double)C);
    const double               out = 1 / sqrt(c->depth ? 2.0 * (double)(F * c->depth) : (double)F);
    const dra_norm_config      act = {.kind = c->ff.act_norm ? DRA_NORM_LAYER : DRA_NORM_NONE,
                                      .bias = DRA_OFF};
    for (int i = 0; i < PARAMS; i++) f->at[i] = -1;
    if (is_mixture(f)) {
        f->experts = dra_experts_declare(c, f->params);
        return;
    }
    add_matrix(f, W_UP, F, C, in);
    add_matrix(f, W_DOWN, C, F, out);
    if (is_gated(f)) add_matrix(f, W_GATE, F, C, in);
    if (is_mix(f)) {
        if (has_receptance(f)) add_matrix(f, W_R, C, C, in);
        add_vector(f, MU_K, C, 0.5);
        if (has_receptance(f)) add_vector(f, MU_R, C, 0.5);
        dra_specs_add(f->state, NULL, &(dra_spec){"x", DRA_SHAPE(C)});
    } else {
        declare_biases(f);
    }
    if (c->ff.gate_scale) add_vector(f, SCALE, F, 1);
    f->norm = dra_norm_declare(&act, F, "act_", f->params);
}

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status check_ff(const dra_sublayer_config *c, dra_error *err)
{
    const dra_ff_config *f = &c->ff;
    if (f->dim < 1 || f->dim > 1 << 20)
        return dra_fail(err, DRA_ERR_VALUE, "ff: dim is %lld, expected 1 to 1048576",
                        (long long)f->dim);
    if (f->kind == DRA_FF_NONE || (unsigned)f->kind > DRA_FF_SILU)
        return dra_fail(err, DRA_ERR_VALUE, "ff: kind is %d", (int)f->kind);
    if (f->kind == DRA_FF_MIX && (c->mixer.bias || f->gated || f->bias || f->act_norm))
        return dra_fail(err, DRA_ERR_VALUE, "ff: kind mix has no %s",
                        c->mixer.bias || f->bias ? "bias"
                        : f->gated               ? "gate"
                                                 : "act_norm");
    if (f->gate_scale && !f->gated && f->kind != DRA_FF_SWIGLU)
        return dra_fail(err, DRA_ERR_VALUE, "ff: gate_scale without gated");
    if (f->kind == DRA_FF_MIX && c->mixer.whole)
        return dra_fail(err, DRA_ERR_VALUE, "ff: kind mix looks back, but whole sees all");
    if (f->kind != DRA_FF_MIX && (f->lerp || f->receptance))
        return dra_fail(err, DRA_ERR_VALUE, "ff: %s is set, which only kind mix has",
                        f->lerp ? "lerp" : "receptance");
    if ((unsigned)f->receptance > DRA_OFF)
        return dra_fail(err, DRA_ERR_VALUE, "ff: receptance is %d, expected 0 to 2",
                        (int)f->receptance);
    if (!(f->dropout >= 0 && f->dropout < 1))
        return dra_fail(err, DRA_ERR_VALUE, "ff: dropout is %g, expected 0 <= p < 1", f->dropout);
    return dra_experts_check(c, err);
}

dra_status dra_ff_create(const dra_sublayer_config *c, dra_ff **out, dra_error *err)
{
    *out = NULL;
    dra_status st = check_ff(c, err);
    if (st != DRA_OK) return st;
    dra_ff *f = calloc(1, sizeof *f);
    if (!f) return dra_fail(err, DRA_ERR_MEMORY, "ff: out of memory");
    f->config = *c;
    st = dra_specs_create(&f->params, err);
    if (st == DRA_OK) st = dra_specs_create(&f->state, err);
    if (st == DRA_OK) {
        declare_ff(f);
        f->module = (dra_module){.params = f->params, .state = f->state};
        st = dra_specs_error(f->params, err);
    }
    if (st == DRA_OK)
        *out = f;
    else
        dra_ff_destroy(f);
    return st;
}

void dra_ff_destroy(dra_ff *f)
{
    if (!f) return;
    dra_specs_destroy(f->params);
    dra_specs_destroy(f->state);
    free(f);
}

const dra_module *dra_ff_module(const dra_ff *f) { return &f->module; }

/* ---- the graph ------------------------------------------------------------------------------- */

static dra_value ff_param(const dra_ff *f, const dra_module_call *call, int p)
{
    return f->at[p] < 0 ? (dra_value){0} : call->param[f->at[p]];
}

dra_value dra_ff_activate(dra_graph *g, dra_ff_kind kind, dra_value h, dra_value gate)
{
    static const dra_activation act[] = {
        [DRA_FF_GELU] = DRA_ACT_GELU_TANH, [DRA_FF_ERF] = DRA_ACT_GELU,
        [DRA_FF_RELU] = DRA_ACT_RELU,      [DRA_FF_RELU2] = DRA_ACT_RELU2,
        [DRA_FF_SWIGLU] = DRA_ACT_SILU,    [DRA_FF_SILU] = DRA_ACT_SILU};
    return gate.id ? dra_mul(g, h, dra_activate(g, gate, act[kind]))
                   : dra_activate(g, h, act[kind]);
}

static dra_value build_plain(dra_graph *g, const dra_ff *f, const dra_module_call *call,
                             dra_value x)
{
    dra_value gate = {0};
    dra_value h = dra_linear(g, x, ff_param(f, call, W_UP), ff_param(f, call, B_UP));
    if (is_gated(f)) gate = dra_linear(g, x, ff_param(f, call, W_GATE), ff_param(f, call, B_GATE));
    h = dra_ff_activate(g, f->config.ff.kind, h, gate);
    if (f->config.ff.gate_scale) h = dra_mul(g, h, ff_param(f, call, SCALE));
    h = dra_norm_build(g, &f->norm, call->param, h, 1e-5);
    h = dra_module_dropout(g, call, "ff.inner", f->config.ff.dropout, h);
    return dra_linear(g, h, ff_param(f, call, W_DOWN), ff_param(f, call, B_DOWN));
}

/* mu x + (1 - mu) before; with lerp x + mu (before - x) */
static dra_value mix_before(dra_graph *g, const dra_ff *f, dra_value mu, dra_value x,
                            dra_value before)
{
    if (f->config.ff.lerp) return dra_add(g, x, dra_mul(g, dra_sub(g, before, x), mu));
    return dra_add(g, dra_mul(g, x, mu), dra_mul(g, before, dra_affine(g, mu, -1, 1)));
}

static dra_value channel_mix(dra_graph *g, const dra_ff *f, const dra_module_call *call,
                             dra_value x, dra_value *state_out)
{
    const dra_value none = {0}, mu_k = ff_param(f, call, MU_K), mu_r = ff_param(f, call, MU_R);
    const dra_value before = dra_tokens_shift(g, &call->tokens, x, call->state[0], &state_out[0]);
    const dra_value k = dra_linear(g, mix_before(g, f, mu_k, x, before), ff_param(f, call, W_UP),
                                   none);
    if (!has_receptance(f)) return dra_linear(g, dra_relu2(g, k), ff_param(f, call, W_DOWN), none);
    const dra_value r = dra_linear(g, mix_before(g, f, mu_r, x, before), ff_param(f, call, W_R),
                                   none);
    return dra_mul(g, dra_sigmoid(g, r),
                   dra_linear(g, dra_relu2(g, k), ff_param(f, call, W_DOWN), none));
}

dra_value dra_ff_build(dra_graph *g, const dra_ff *f, const dra_module_call *call, dra_value x,
                       dra_value *state_out, dra_value *balance)
{
    if (is_mixture(f)) return dra_experts_build(g, &f->experts, &f->config, call, x, balance);
    return is_mix(f) ? channel_mix(g, f, call, x, state_out) : build_plain(g, f, call, x);
}
