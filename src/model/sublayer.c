/* A sublayer: a core, and the norms, the shift and the residual around it.
 *   u = shift(norm(x));  o = core(u);  x = norm(residual(norm(o), x)) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "memory/memory.h"
#include "model/streams.h"
#include "model/token_shift.h"
#include "model/stack.h"
#include "model/xl.h"
#include "file/field_rows.h"
#include "model/integrate.h"
#include "model/parts.h"

DRA_CHOICES(places, DRA_PLACE_COUNT, "pre", "post", "dual", "none");
DRA_CHOICES(joins, DRA_JOIN_NONE, "add", "gru");
DRA_CHOICES(integrations, DRA_INTEGRATE_COUNT, "none", "softmax", "relu");
const dra_field dra_block_fields[] = {
    CHOICE(dra_block_config, norm, places,
           "where the norm stands: before a sublayer, after it, or both ways"),
    BOOL(dra_block_config, memory_residual, "add the values of the memory to the stream"),
    BOOL(dra_block_config, project, "memory_residual: through a learned matrix"),
    BOOL(dra_block_config, branch_norm, "normalise what a sublayer adds, too"),
    CHOICE(dra_block_config, residual, joins,
           "add what a sublayer gives, or let a GRU cell take it in"),
    BOOL(dra_block_config, residual_scale, "a learned factor of the stream for each channel"),
    REAL(dra_block_config, residual_factor, 0, 1e6, "1", "residual add: factor of the stream"),
    REAL(dra_block_config, dual_scale, 0, 1, "1", "norm dual: factor of its sum"),
    BOOL(dra_block_config, macaron, "feed-forwards add half"),
    INT(dra_block_config, shift, "0", "channels in shift + 1 parts, part i from i tokens before"),
    REAL(dra_block_config, drop, 0, 0.999, "0",
         "share of training steps in which a sublayer is left out"),
    BOOL(dra_block_config, branch_scale,
         "a learned factor of what a sublayer adds, for each channel"),
    REAL(dra_block_config, branch_scale_start, -1e6, 1e6, "0", "first value of these factors"),
    BOOL(dra_block_config, branch_scale_offset, "these factors are stored as factor - 1"),
    BOOL(dra_block_config, zero_out, "output matrices start as 0"),
    INT(dra_block_config, streams, "1", "residual streams (hyper-connections)"),
    BOOL(dra_block_config, branch_gate,
         "multiply what a sublayer adds by a gate made of the condition"),
    REAL(dra_block_config, branch_factor, 0, 1e6, "1", "factor of what a sublayer adds"),
    CHOICE(dra_block_config, integrate, integrations,
           "sublayers read a learned mixture of the streams before all of them so far"),
    BOOL(dra_block_config, post_norm, "norm pre: normalise the stream after a sublayer, too"),
    {0},
};

/* Parameters of a sublayer itself. */
enum { P, SCALE, W_I, W_H, B_I, B_H, BRANCH, GATE_W, GATE_B, OWN };

struct dra_sublayer {
    dra_sublayer_config config;
    dra_mixer          *mixer; /* one of these two is the core */
    dra_ff             *ff;
    dra_specs          *params, *state;
    int                *core; /* where parameter i of the core is in params */
    dra_norm            norm, branch, post;
    int                 at[OWN]; /* -1: it has none */
    dra_token_shift     shift;
    int                 xl; /* the state with Transformer-XL's memory; -1: it has none */
    dra_streams         streams;
    dra_integrate       integrate;
    dra_module          module;
};

static bool is_mixer(const dra_sublayer *s) { return s->config.kind != DRA_SUBLAYER_FF; }

/* Names of what is drawn: each unique in a layer, which has one sublayer of each kind. */
static const char *const drops[] = {[DRA_SUBLAYER_MIXER] = "mixer.drop",
                                    [DRA_SUBLAYER_FF] = "ff.drop",
                                    [DRA_SUBLAYER_CROSS] = "cross.drop"};
static const char *const dropouts[] = {[DRA_SUBLAYER_MIXER] = "dropout",
                                       [DRA_SUBLAYER_FF] = "ff.dropout",
                                       [DRA_SUBLAYER_CROSS] = "cross.dropout"};

static bool has_streams(const dra_sublayer_config *c) { return c->block.streams > 1; }

static const dra_module *core_of(const dra_sublayer *s)
{
    return is_mixer(s) ? dra_mixer_module(s->mixer) : dra_ff_module(s->ff);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status check_choices(const dra_sublayer_config *c, dra_error *err)
{
    const struct {
        const char *name;
        int         value, last;
    } choices[] = {{"norm: kind", (int)c->norm.kind, DRA_NORM_NONE},
                   {"norm: gain", (int)c->norm.gain, DRA_GAIN_CONDITION},
                   {"norm: bias", (int)c->norm.bias, DRA_OFF},
                   {"block: norm", (int)c->block.norm, DRA_PLACE_NONE},
                   {"block: residual", (int)c->block.residual, DRA_JOIN_NONE},
                   {"kind", (int)c->kind, DRA_SUBLAYER_CROSS}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].value < 0 || choices[i].value > choices[i].last)
            return dra_fail(err, DRA_ERR_VALUE, "%s is %d, expected 0 to %d", choices[i].name,
                            choices[i].value, choices[i].last);
    return DRA_OK;
}

static dra_status check_residual(const dra_sublayer_config *c, dra_error *err)
{
    const dra_block_config *b = &c->block;
    const dra_mixer_config *m = &c->mixer;
    const bool              post = b->norm == DRA_PLACE_POST || b->norm == DRA_PLACE_DUAL;
    if (post && c->norm.kind == DRA_NORM_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: a norm after the residual needs a norm");
    if (b->branch_norm && post)
        return dra_fail(err, DRA_ERR_VALUE, "block: branch_norm needs norm pre or none");
    if (!(b->branch_factor >= 0) || isinf(b->branch_factor))
        return dra_fail(err, DRA_ERR_VALUE, "block: branch_factor is %g, expected 0 or more",
                        b->branch_factor);
    if (b->residual_factor > 0 && (b->residual != DRA_JOIN_ADD || b->streams > 1))
        return dra_fail(err, DRA_ERR_VALUE,
                        "block: residual_factor needs residual add, one stream");
    if (b->post_norm && (b->norm != DRA_PLACE_PRE || b->streams > 1))
        return dra_fail(err, DRA_ERR_VALUE, "block: post_norm needs norm pre, one stream");
    const char *other = b->streams > 1              ? "streams"
                        : b->norm == DRA_PLACE_DUAL ? "norm dual"
                        : b->shift                  ? "shift"
                        : m->xl_memory              ? "xl_memory"
                        : m->shift                  ? "mixer.shift"
                        : m->latent.kv              ? "mixer.latent_kv"
                                                    : NULL;
    if (b->integrate && other)
        return dra_fail(err, DRA_ERR_VALUE, "block: integrate and %s exclude each other", other);
    if (b->dual_scale > 0 && b->norm != DRA_PLACE_DUAL)
        return dra_fail(err, DRA_ERR_VALUE, "block: dual_scale without norm dual");
    if (b->shift < 0 || (m->whole ? 2 : 1) * b->shift >= c->mixer.dim)
        return dra_fail(err, DRA_ERR_VALUE, "block: shift is %lld, but there are %lld channels",
                        (long long)b->shift, (long long)m->dim);
    if (!(b->drop >= 0 && b->drop < 1))
        return dra_fail(err, DRA_ERR_VALUE, "block: drop is %g, expected 0 <= p < 1", b->drop);
    if (!isfinite(b->branch_scale_start))
        return dra_fail(err, DRA_ERR_VALUE, "block: branch_scale_start is %g, expected a number",
                        b->branch_scale_start);
    if ((b->branch_scale_start != 0 || b->branch_scale_offset) && !b->branch_scale)
        return dra_fail(err, DRA_ERR_VALUE, "block: %s without branch_scale",
                        b->branch_scale_offset ? "branch_scale_offset" : "branch_scale_start");
    if (b->project && !b->memory_residual)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: project without memory_residual");
    if (b->memory_residual && b->residual == DRA_JOIN_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: memory_residual without a residual");
    return DRA_OK;
}

static dra_status check_condition(const dra_sublayer_config *c, dra_error *err)
{
    const bool gain = c->norm.gain == DRA_GAIN_CONDITION;
    if ((gain || c->block.branch_gate) && c->norm.condition < 1)
        return dra_fail(err, DRA_ERR_VALUE, "%s needs a condition",
                        gain ? "norm: gain condition" : "block: branch_gate");
    if (c->block.branch_gate && c->block.branch_scale)
        return dra_fail(err, DRA_ERR_VALUE,
                        "block: branch_gate and branch_scale exclude each other");
    return DRA_OK;
}

static dra_status check_streams(const dra_sublayer_config *c, dra_error *err)
{
    const dra_block_config *b = &c->block;
    const char             *other = b->residual != DRA_JOIN_ADD ? "another residual than add"
                                    : b->residual_scale         ? "residual_scale"
                                    : b->memory_residual        ? "memory_residual"
                                    : b->norm == DRA_PLACE_DUAL ? "norm dual"
                                    : c->mixer.xl_memory        ? "xl_memory"
                                    : c->rescale > 0 && c->rescale != 1 ? "rescale_every"
                                                                        : NULL;
    if (b->streams < 0 || b->streams > DRA_STREAMS_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "block: streams is %lld, expected 0 to %d",
                        (long long)b->streams, DRA_STREAMS_MOST);
    if (has_streams(c) && other)
        return dra_fail(err, DRA_ERR_VALUE, "block: streams and %s exclude each other", other);
    return DRA_OK;
}

/* The memory's values as they are fit the stream. */
static dra_status check_memory(const dra_sublayer *s, dra_error *err)
{
    if (!s->config.block.memory_residual || !is_mixer(s) || s->config.block.project) return DRA_OK;
    const dra_mixer_config *c = dra_mixer_config_of(s->mixer);
    if (c->heads * c->value_dim == c->dim) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "mixer: memory_residual without project: %lld heads of %lld channels are "
                    "not dim %lld",
                    (long long)c->heads, (long long)c->value_dim, (long long)c->dim);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The order in lists is older than sublayers: sums over all gradients and fingerprints of states
 * follow it. A mixer has its norm after its projections and P after its gains and shares. */
static int rank_of(bool mixer, const char *name)
{
    static const char *const ranks[][8] = {
        {"W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o"},
        {"norm_a", "norm_g", "norm_b"},
        {"gain_q", "gain_k", "gain_v", "mu_q", "mu_k", "mu_v"},
        {"P"},
    };
    const int n = (int)(sizeof ranks / sizeof *ranks);
    if (!mixer) return strncmp(name, "norm_", 5) != 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 8 && ranks[i][k]; k++)
            if (strcmp(ranks[i][k], name) == 0) return i;
    return n;
}

/* Parameters of the core and of what is around it as one list. Those of the core are first found
 * among equals. */
static dra_status merge_params(dra_sublayer *s, const dra_specs *around, dra_error *err)
{
    const dra_specs *core = core_of(s)->params;
    const int        n = dra_specs_count(core);
    s->core = calloc((size_t)n + 1, sizeof *s->core);
    if (!s->core) return dra_fail(err, DRA_ERR_MEMORY, "sublayer: out of memory");
    for (int rank = 0; rank < 5; rank++) {
        for (int i = 0; i < n; i++) {
            if (rank_of(is_mixer(s), dra_specs_at(core, i)->name) != rank) continue;
            s->core[i] = dra_specs_count(s->params);
            dra_specs_add(s->params, NULL, dra_specs_at(core, i));
        }
        for (int i = 0; i < dra_specs_count(around); i++)
            if (rank_of(is_mixer(s), dra_specs_at(around, i)->name) == rank)
                dra_specs_add(s->params, NULL, dra_specs_at(around, i));
    }
    return dra_specs_error(s->params, err);
}

static const char *const names[OWN] = {
    "P",       "residual_scale", "gru_W_i",       "gru_W_h",      "gru_b_i",
    "gru_b_h", "branch_scale",   "branch_gate_W", "branch_gate_b"};

/* Norms are declared where they will be found by name, see handles(). */
static void declare_around(const dra_sublayer *s, dra_specs *params)
{
    const dra_block_config *b = &s->config.block;
    const dra_mixer_config *m = &s->config.mixer;
    const int64_t           C = m->dim, H = is_mixer(s) ? dra_mixer_config_of(s->mixer)->heads : 0;
    const int64_t           E = is_mixer(s) ? dra_mixer_config_of(s->mixer)->value_dim : 0;
    const double            in = 1 / sqrt((double)C);
    if (b->norm != DRA_PLACE_NONE) dra_norm_declare(&s->config.norm, C, NULL, params);
    if (b->branch_norm) dra_norm_declare(&s->config.norm, C, "branch_", params);
    if (b->post_norm) dra_norm_declare(&s->config.norm, C, "post_", params);
    dra_integrate_declare(&s->config, params);
    if (b->project && is_mixer(s))
        dra_specs_add(params, NULL,
                      &(dra_spec){names[P], DRA_SHAPE(C, H * E), DRA_FILL_NORMAL,
                                  .number = 1 / sqrt((double)(H * E)), .group = DRA_PARAM_MAP});
    if (b->residual_scale)
        dra_specs_add(params, NULL, &(dra_spec){names[SCALE], DRA_SHAPE(C), .number = 1});
    if (b->branch_scale)
        dra_specs_add(
            params, NULL,
            &(dra_spec){names[BRANCH], DRA_SHAPE(C),
                        .number = b->branch_scale_start - (b->branch_scale_offset ? 1 : 0)});
    if (b->branch_gate) {
        dra_specs_add(params, NULL,
                      &(dra_spec){names[GATE_W], DRA_SHAPE(C, s->config.norm.condition),
                                  .product = true, .group = DRA_PARAM_CONDITION});
        dra_specs_add(
            params, NULL,
            &(dra_spec){names[GATE_B], DRA_SHAPE(C), .number = -2, .group = DRA_PARAM_BIAS});
    }
    if (has_streams(&s->config)) dra_streams_declare(b->streams, C, s->config.index, params);
    if (b->residual != DRA_JOIN_GRU) return;
    for (int i = W_I; i <= W_H; i++)
        dra_specs_add(params, NULL,
                      &(dra_spec){names[i], DRA_SHAPE(3 * C, C), DRA_FILL_UNIFORM, .number = in,
                                  .product = true});
    for (int i = B_I; i <= B_H; i++)
        dra_specs_add(params, NULL,
                      &(dra_spec){names[i], DRA_SHAPE(3 * C), DRA_FILL_UNIFORM, .number = in,
                                  .group = DRA_PARAM_BIAS});
}

static void find_handles(dra_sublayer *s)
{
    const dra_specs *p = s->params;
    const bool       adapts = s->config.norm.gain == DRA_GAIN_CONDITION;
    s->norm = (dra_norm){s->config.norm, dra_specs_find(p, adapts ? "norm_W" : "norm_g"),
                         dra_specs_find(p, "norm_b"), dra_specs_find(p, "norm_a")};
    s->branch = (dra_norm){s->config.norm,
                           dra_specs_find(p, adapts ? "branch_norm_W" : "branch_norm_g"),
                           dra_specs_find(p, "branch_norm_b"), dra_specs_find(p, "branch_norm_a")};
    s->post = (dra_norm){s->config.norm, dra_specs_find(p, adapts ? "post_norm_W" : "post_norm_g"),
                         dra_specs_find(p, "post_norm_b"), dra_specs_find(p, "post_norm_a")};
    s->integrate = dra_integrate_find(p);
    for (int i = 0; i < OWN; i++) s->at[i] = dra_specs_find(p, names[i]);
    s->streams = dra_streams_find(p);
}

static dra_status declare_sublayer(dra_sublayer *s, dra_error *err)
{
    const dra_specs *core = core_of(s)->state;
    dra_specs       *around;
    dra_status       st = dra_specs_create(&around, err);
    if (st != DRA_OK) return st;
    declare_around(s, around);
    st = dra_specs_error(around, err);
    if (st == DRA_OK) st = merge_params(s, around, err);
    dra_specs_destroy(around);
    if (st != DRA_OK) return st;
    find_handles(s);
    for (int i = 0; i < dra_specs_count(core); i++)
        dra_specs_add(s->state, NULL, dra_specs_at(core, i));
    s->shift = dra_token_shift_declare(s->config.block.shift, s->config.mixer.dim,
                                       s->config.mixer.whole, is_mixer(s), s->state);
    s->xl = dra_xl_declare(&s->config, s->state);
    return dra_specs_error(s->state, err);
}

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct building {
    dra_graph             *g;
    const dra_sublayer    *s;
    const dra_module_call *call;
    dra_channels          *channels;
    dra_value             *state_out;
} building;

static dra_value block_param(const building *b, int p)
{
    return b->s->at[p] < 0 ? (dra_value){0} : b->call->param[b->s->at[p]];
}

/* norm(x / c; eps) = norm(x; c^2 eps) */
static dra_value build_norm(const building *b, const dra_norm *n, dra_value x)
{
    const double rescale = b->s->config.rescale;
    const double c = rescale > 0 && !b->call->learning ? rescale : 1;
    const double eps = n->config.eps > 0 ? n->config.eps : 1e-5;
    return dra_norm_adapt(b->g, n, b->call->param,
                          dra_norm_build(b->g, n, b->call->param, x, eps * c * c),
                          b->channels->value[DRA_CHANNEL_CONDITION]);
}

/* What the core adds, as far as the condition lets it through. */
static dra_value gate_branch(const building *b, dra_value o)
{
    const dra_value c = b->channels->value[DRA_CHANNEL_CONDITION];
    if (!b->s->config.block.branch_gate) return o;
    return dra_mul(b->g, o,
                   dra_sigmoid(b->g, dra_condition_map(b->g, c, block_param(b, GATE_W),
                                                       block_param(b, GATE_B), o)));
}

/* `room` has place for the parameters of the core. */
static dra_value build_core(const building *b, dra_value u, dra_value *room, dra_sublayer_result *r)
{
    const dra_sublayer *s = b->s;
    dra_module_call     own = *b->call;
    for (int i = 0; i < dra_specs_count(core_of(s)->params); i++)
        room[i] = b->call->param[s->core[i]];
    own.param = room;
    if (!is_mixer(s))
        return dra_ff_build(b->g, s->ff, &own, u, b->state_out, &r->mixer.aux[DRA_AUX_BALANCE]);
    r->mixer = dra_mixer_build(b->g, s->mixer, &own, u, b->channels, b->state_out);
    return r->mixer.y;
}

/* The new state of a GRU with input o and state r. */
static dra_value gru_residual(const building *b, dra_value o, dra_value r)
{
    dra_graph      *g = b->g;
    const int64_t   C = b->s->config.mixer.dim;
    const dra_value i = dra_linear(g, o, block_param(b, W_I), block_param(b, B_I));
    const dra_value h = dra_linear(g, r, block_param(b, W_H), block_param(b, B_H));
    const dra_value both = dra_add(g, dra_slice(g, i, -1, 0, 2 * C), dra_slice(g, h, -1, 0, 2 * C));
    const dra_value gates = dra_sigmoid(g, both);
    const dra_value reset = dra_slice(g, gates, -1, 0, C), z = dra_slice(g, gates, -1, C, C);
    const dra_value more = dra_mul(g, reset, dra_slice(g, h, -1, 2 * C, C));
    const dra_value n = dra_tanh(g, dra_add(g, dra_slice(g, i, -1, 2 * C, C), more));
    return dra_add(g, n, dra_mul(g, z, dra_sub(g, r, n)));
}

static dra_value join_residual(const building *b, dra_value o, dra_value r, dra_value memory)
{
    const dra_block_config *c = &b->s->config.block;
    dra_graph              *g = b->g;
    if (c->residual == DRA_JOIN_NONE) return o;
    if (c->residual_scale) r = dra_mul(g, r, block_param(b, SCALE));
    if (c->residual_factor > 0) r = dra_affine(g, r, c->residual_factor, 0);
    dra_value x = c->residual == DRA_JOIN_GRU ? gru_residual(b, o, r) : dra_add(g, r, o);
    if (memory.id) {
        dra_value h = dra_join_heads(g, memory);
        if (c->project) h = dra_linear(g, h, block_param(b, P), (dra_value){0});
        x = dra_add(g, x, dra_tokens_zero_pads(g, &b->call->tokens, h));
    }
    return x;
}

/* Adds o to the second stream of ResiDual, which starts as the first. */
static void add_dual(const building *b, dra_value o, dra_value r)
{
    const double scale = b->s->config.block.dual_scale > 0 ? b->s->config.block.dual_scale : 1;
    dra_value   *dual = &b->channels->value[DRA_CHANNEL_DUAL];
    if (b->s->config.block.norm != DRA_PLACE_DUAL) return;
    if (!dual->id) *dual = scale == 1 ? r : dra_affine(b->g, r, scale, 0);
    *dual = dra_add(b->g, *dual, scale == 1 ? o : dra_affine(b->g, o, scale, 0));
}

/* x, or r where the sublayer is left out: one draw for the whole batch and all parts of a text. */
static dra_value drop_branch(const building *b, dra_value x, dra_value r)
{
    const double p = b->s->config.block.drop;
    dra_graph   *g = b->g;
    if (!(p > 0) || !b->call->random.id) return x;
    const dra_random_config c = {.name = drops[b->s->config.kind], .key = b->call->random};
    const dra_value         draw = dra_random_uniform(g, DRA_SHAPE(1), &c);
    const dra_value         keep = dra_greater_equal(g, draw, dra_number(g, p));
    return dra_select(g, dra_reshape(g, keep, DRA_SHAPE(1, 1, 1)), x, r);
}

/* The stream, or a mixture, with what is injected, normed. */
static dra_value prepare_input(const building *b, dra_value x, dra_value more)
{
    if (more.id) x = dra_add(b->g, x, more);
    return b->s->config.block.norm == DRA_PLACE_PRE ? build_norm(b, &b->s->norm, x) : x;
}

/* What the core reads; keys and values may have inputs of their own. */
static dra_value read_stream(const building *b, dra_value x)
{
    dra_value *views = &b->channels->value[DRA_CHANNEL_VIEWS];
    dra_value  more = b->channels->value[DRA_CHANNEL_INJECT];
    x = dra_integrate_build(b->g, &b->s->integrate, &b->s->config, b->call->param, x, b->channels);
    const dra_value u = prepare_input(b, x, more);
    if (!views->id || dra_graph_failed(b->g)) return u;
    if (more.id) {
        const dra_shape s = dra_shape_of(b->g, more);
        more = dra_reshape(b->g, more, DRA_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2]));
    }
    *views = prepare_input(b, *views, more);
    return u;
}

static dra_value build_branch(const building *b, dra_value x, dra_value *room,
                              dra_sublayer_result *r)
{
    const dra_sublayer_config *c = &b->s->config;
    dra_graph                 *g = b->g;
    const bool                 mixer = is_mixer(b->s);
    const int                  at = dra_specs_count(core_of(b->s)->state);
    dra_value                  u = read_stream(b, x);
    u = dra_token_shift_build(g, &b->s->shift, b->call, u, at, b->state_out);
    dra_value o = build_core(b, u, room, r);
    o = dra_module_dropout(g, b->call, dropouts[c->kind], c->dropout, o);
    if (c->block.macaron && !mixer) o = dra_affine(g, o, 0.5, 0);
    if (c->block.branch_scale)
        o = dra_mul(g, o,
                    dra_affine(g, block_param(b, BRANCH), 1, c->block.branch_scale_offset ? 1 : 0));
    o = gate_branch(b, o);
    if (c->block.branch_norm) o = build_norm(b, &b->s->branch, o);
    if (c->block.branch_factor > 0) o = dra_affine(g, o, c->block.branch_factor, 0);
    return mixer ? dra_tokens_zero_pads(g, &b->call->tokens, o) : o;
}

/* Transformer-XL: keeps what comes in for later segments, also where the sublayer is left out, and
 * hands on what is kept of earlier ones, normed as x is. Nothing of it is shifted. */
static void read_memory(const building *b, dra_value x)
{
    const dra_sublayer *s = b->s;
    const bool          pre = s->config.block.norm == DRA_PLACE_PRE;
    if (s->xl < 0 || b->call->tokens.fresh) return;
    const dra_value memory = dra_xl_memory(b->g, &b->call->tokens, b->call->state[s->xl], x,
                                           &b->state_out[s->xl]);
    b->channels->value[DRA_CHANNEL_XL] = memory.id && pre ? build_norm(b, &s->norm, memory)
                                                          : memory;
}

dra_sublayer_result dra_sublayer_build(dra_graph *g, const dra_sublayer *s,
                                       const dra_module_call *call, dra_value x,
                                       dra_channels *channels, dra_value *state_out)
{
    const building b = {g, s, call, channels, state_out};
    const bool     post = s->config.block.norm == DRA_PLACE_POST ||
                      s->config.block.norm == DRA_PLACE_DUAL;
    dra_sublayer_result r = {0};
    dra_streams_rest    rest;
    const bool          several = has_streams(&s->config);
    dra_value *room = calloc((size_t)dra_specs_count(core_of(s)->params) + 1, sizeof *room);
    if (room) {
        read_memory(&b, x);
        r.branch = build_branch(
            &b, several ? dra_streams_read(g, &s->streams, call->param, x, &rest) : x, room, &r);
        add_dual(&b, r.branch, x);
        r.y = several ? dra_streams_join(g, &rest, r.branch)
                      : join_residual(&b, r.branch, x,
                                      s->config.block.memory_residual ? r.mixer.memory
                                                                      : (dra_value){0});
        if (post) r.y = build_norm(&b, &s->norm, r.y);
        if (s->config.block.post_norm) r.y = build_norm(&b, &s->post, r.y);
        r.y = drop_branch(&b, r.y, x);
        channels->value[DRA_CHANNEL_XL] = channels->value[DRA_CHANNEL_VIEWS] = (dra_value){0};
    } else {
        dra_build_fail(g, "sublayer", DRA_ERR_MEMORY, "out of memory");
    }
    free(room);
    return r;
}

/* ---- as a module, making one ----------------------------------------------------------------- */

/* The call with the memory of Transformer-XL as it is for this call; `room` for the states. */
static dra_module_call turn_memory(dra_graph *g, const dra_sublayer *s, const dra_module_call *call,
                                   dra_value *room)
{
    dra_module_call own = *call;
    const int       n = dra_specs_count(s->state);
    if (s->xl < 0 || call->tokens.fresh) return own;
    for (int i = 0; i < n; i++) room[i] = call->state[i];
    room[s->xl] = dra_xl_turn(g, &call->tokens, room[s->xl], room[s->xl]);
    own.state = room;
    return own;
}

static void build_module(dra_graph *g, const void *self, const dra_module_call *call,
                         dra_value *state_out)
{
    const dra_sublayer *s = self;
    const dra_tokens   *t = &call->tokens;
    dra_channels        channels = {0};
    const int64_t       C = s->config.mixer.dim, S = s->config.block.streams;
    dra_value          *room = calloc((size_t)dra_specs_count(s->state) + 1, sizeof *room);
    if (!room) {
        dra_build_fail(g, "sublayer", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    const dra_value x = dra_input(g, "x", DRA_REAL,
                                  S > 1 ? DRA_SHAPE(t->B, t->T, S, C) : DRA_SHAPE(t->B, t->T, C));
    if (is_mixer(s) && s->config.mixer.blend == DRA_BLEND_INPUT)
        channels.value[DRA_CHANNEL_BLEND] = dra_input(g, "blend", DRA_REAL, (dra_shape){0});
    if (is_mixer(s)) dra_mixer_input_context(g, s->mixer, call, &channels);
    if (s->config.norm.condition)
        channels.value[DRA_CHANNEL_CONDITION] = dra_input(
            g, "condition", DRA_REAL, DRA_SHAPE(t->B, s->config.norm.condition));
    const dra_module_call     own = turn_memory(g, s, call, room);
    const dra_sublayer_result r = dra_sublayer_build(g, s, &own, x, &channels, state_out);
    dra_output(g, "y", r.y);
    if (is_mixer(s)) dra_mixer_put_out(g, s->mixer, t, &r.mixer);
    free(room);
}

static dra_status create_parts(dra_sublayer *s, dra_error *err)
{
    dra_status st = dra_specs_create(&s->params, err);
    if (st == DRA_OK) st = dra_specs_create(&s->state, err);
    if (st == DRA_OK) st = check_choices(&s->config, err);
    if (st == DRA_OK) st = check_residual(&s->config, err);
    s->config.mixer.context = s->config.kind == DRA_SUBLAYER_CROSS;
    if (st == DRA_OK) st = check_streams(&s->config, err);
    if (st == DRA_OK) st = check_condition(&s->config, err);
    if (s->config.block.memory_residual) s->config.mixer.gives_memory = true;
    if (s->config.block.zero_out) s->config.mixer.zero_out = true;
    if (st == DRA_OK)
        st = is_mixer(s) ? dra_mixer_create(&s->config.mixer, &s->mixer, err)
                         : dra_ff_create(&s->config, &s->ff, err);
    if (st == DRA_OK) st = check_memory(s, err);
    if (st == DRA_OK) st = declare_sublayer(s, err);
    return st;
}

dra_status dra_sublayer_create(const dra_sublayer_config *config, dra_sublayer **out,
                               dra_error *err)
{
    dra_sublayer *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return dra_fail(err, DRA_ERR_MEMORY, "sublayer: out of memory");
    s->config = *config;
    const dra_status st = create_parts(s, err);
    if (st != DRA_OK) {
        dra_sublayer_destroy(s);
        return st;
    }
    s->module = (dra_module){.params = s->params,
                             .state = s->state,
                             .build = build_module,
                             .self = s,
                             .prefix = s->config.mixer.prefix,
                             .context = is_mixer(s) && s->config.mixer.context,
                             .segment = s->xl < 0 ? 0 : s->config.mixer.xl_segment,
                             .memory = s->xl < 0 ? 0 : s->config.mixer.xl_memory};
    *out = s;
    return DRA_OK;
}

void dra_sublayer_destroy(dra_sublayer *s)
{
    if (!s) return;
    dra_mixer_destroy(s->mixer);
    dra_ff_destroy(s->ff);
    dra_specs_destroy(s->params);
    dra_specs_destroy(s->state);
    free(s->core);
    free(s);
}

const dra_module          *dra_sublayer_module(const dra_sublayer *s) { return &s->module; }
const dra_sublayer_config *dra_sublayer_config_of(const dra_sublayer *s) { return &s->config; }
const dra_mixer           *dra_sublayer_mixer(const dra_sublayer *s) { return s->mixer; }
int                        dra_sublayer_xl(const dra_sublayer *s) { return s->xl; }
