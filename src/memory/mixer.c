/* A mixer: encode, then one branch (memory and retrieval) or a blend of two, then the output.
 *   x' = norm(x), shifted;  q, k, v = W x' + b, split into heads, normalised
 *   y = W_o [heads] + b_o, 0 at pads;  residual: x + y + P h */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

struct dra_mixer {
    dra_mixer_config config;
    dra_specs       *params, *state;
    dra_module       module;
    int              branches;
    dra_branch       branch[2];
};

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status check_size(const char *name, int64_t n, int64_t least, dra_error *err)
{
    if (n >= least && n <= DRA_SIZE_MOST) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is %lld, expected %lld to %d", name,
                    (long long)n, (long long)least, DRA_SIZE_MOST);
}

static dra_status check_choice(const char *name, unsigned value, unsigned last, dra_error *err)
{
    if (value <= last) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is %d, expected 0 to %u", name, (int)value,
                    last);
}

static dra_status check_choices(const dra_mixer_config *c, dra_error *err)
{
    dra_status st = check_choice("shift", (unsigned)c->shift, DRA_SHIFT_MIX, err);
    if (st == DRA_OK) st = check_choice("blend", (unsigned)c->blend, DRA_BLEND_LEARNED, err);
    if (st == DRA_OK) st = check_choice("norm", (unsigned)c->norm, DRA_NORM_LAYER, err);
    if (st != DRA_OK) return st;
    return check_choice("residual", (unsigned)c->residual, DRA_RESIDUAL_POST, err);
}

/* Heads play no part in wkv: any number of them is one. */
static bool uses_heads(const dra_mixer_config *c)
{
    return c->blend != DRA_BLEND_NONE || !c->a.memory || strcmp(c->a.memory, "wkv") != 0;
}

static dra_status check_sizes(dra_mixer_config *c, dra_error *err)
{
    dra_status st = check_size("dim", c->dim, 1, err);
    if (st == DRA_OK) st = check_size("heads", c->heads, 1, err);
    if (st == DRA_OK) st = check_size("key_dim", c->key_dim, 0, err);
    if (st == DRA_OK) st = check_size("value_dim", c->value_dim, 0, err);
    if (st != DRA_OK) return st;
    if (!c->key_dim && c->dim % c->heads && !uses_heads(c)) c->heads = 1;
    if (!c->key_dim && c->dim % c->heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: %lld heads do not divide dim %lld",
                        (long long)c->heads, (long long)c->dim);
    if (!c->key_dim) c->key_dim = c->dim / c->heads;
    if (!c->value_dim) c->value_dim = c->key_dim;
    if (!(c->key_std >= 0) || isinf(c->key_std))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: key_std is %g, expected 0 or more", c->key_std);
    if (!(c->score_scale >= 0) || isinf(c->score_scale))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: score_scale is %g, expected 0 or more",
                        c->score_scale);
    if (!(c->attention_dropout >= 0 && c->attention_dropout < 1))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: attention_dropout is %g, expected 0 <= p < 1",
                        c->attention_dropout);
    if (c->rotary && c->key_dim % 2)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: rotary turns pairs of channels, key_dim is %lld",
                        (long long)c->key_dim);
    return DRA_OK;
}

static dra_status check_residual(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const dra_branch       *b = &m->branch[m->branches - 1];
    if (c->residual == DRA_RESIDUAL_POST && c->norm == DRA_NORM_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: a norm after the residual needs a norm");
    if (c->project && !c->memory_residual)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: project without memory_residual");
    if (!c->memory_residual) return DRA_OK;
    if (c->residual == DRA_RESIDUAL_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: memory_residual without a residual");
    if (strcmp(b->config.retrieval, "formula") == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: memory_residual needs a memory of items, found %s",
                        b->memory->name);
    if (!c->project && c->heads * c->value_dim != c->dim)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: memory_residual without project: %lld heads of %lld channels are "
                        "not dim %lld",
                        (long long)c->heads, (long long)c->value_dim, (long long)c->dim);
    return DRA_OK;
}

static dra_status check_blend(const dra_mixer_config *c, dra_error *err)
{
    if (c->blend == DRA_BLEND_NUMBER && !(c->blend_value >= 0 && c->blend_value <= 1))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: blend is %g, expected 0 <= a <= 1",
                        c->blend_value);
    if (c->blend == DRA_BLEND_NONE && (c->b.memory || c->b.own))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: a second memory without a blend");
    return DRA_OK;
}

static dra_status open_branches(dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    m->branches = c->blend == DRA_BLEND_NONE ? 1 : 2;
    for (int i = 0; i < m->branches; i++) {
        const dra_status st = dra_branch_open(&m->branch[i], c, i ? &c->b : &c->a, err);
        if (st != DRA_OK) return st;
        m->branch[i].prefix = m->branches == 1 ? "" : i ? "b." : "a.";
        if (c->rotary && !m->branch[i].retrieval->over_time)
            return dra_fail(err, DRA_ERR_VALUE,
                            "mixer: rotary needs a retrieval over time, found %s",
                            m->branch[i].config.retrieval);
    }
    if (m->branches == 2 && m->branch[0].retrieval->pooled != m->branch[1].retrieval->pooled)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: pooled blends only with pooled");
    return DRA_OK;
}

/* What is asked for must be there, in one memory at least. */
static dra_status check_shows(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const dra_branch       *a = &m->branch[0], *b = &m->branch[m->branches - 1];
    const bool              two = m->branches == 2;
    if (c->aux >> DRA_AUX_COUNT)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: aux is %#x, expected bits below %#x",
                        (unsigned)c->aux, 1u << DRA_AUX_COUNT);
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (c->aux >> k & 1 && !dra_aux_has(a, k) && !dra_aux_has(b, k))
            return dra_fail(err, DRA_ERR_VALUE,
                            "mixer: aux asks for %s, which %s%s%s does not have", dra_aux_name(k),
                            a->memory->name, two ? " with " : "", two ? b->memory->name : "");
    if (c->maps && !dra_map_has(a) && !dra_map_has(b))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: maps are of attention and slots, but retrieval is %s",
                        a->config.retrieval);
    return DRA_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void add(dra_specs *list, const char *name, dra_shape shape, dra_fill fill, double number)
{
    dra_specs_add(list, NULL,
                  &(dra_spec){.name = name, .shape = shape, .fill = fill, .number = number});
}

static void add_matrix(dra_specs *list, const char *name, int64_t rows, int64_t columns, double std)
{
    dra_specs_add(list, NULL,
                  &(dra_spec){name, DRA_SHAPE(rows, columns), DRA_FILL_NORMAL, .number = std,
                              .product = true});
}

/* Keys of normed x start with variance C key_std^2 and queries so that the logits have 1. */
static void declare_projections(const dra_mixer *m, dra_specs *p)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           C = c->dim, keys = c->heads * c->key_dim;
    const int64_t           values = c->heads * c->value_dim;
    const int64_t           read = m->branch[0].retrieval->pooled ? c->value_dim : values;
    const double            in = 1 / sqrt((double)C);
    const double            out = (c->out_gain > 0 ? c->out_gain : 1) / sqrt((double)read);
    const double            s = c->key_std;
    add_matrix(p, "W_q", keys, C, s > 0 ? 1 / ((double)C * s) : in);
    add_matrix(p, "W_k", keys, C, s > 0 ? s : in);
    add_matrix(p, "W_v", values, C, in);
    add_matrix(p, "W_o", C, read, out);
    if (!c->bias) return;
    add(p, "b_q", DRA_SHAPE(keys), DRA_FILL_CONST, 0);
    add(p, "b_k", DRA_SHAPE(keys), DRA_FILL_CONST, 0);
    add(p, "b_v", DRA_SHAPE(values), DRA_FILL_CONST, 0);
    add(p, "b_o", DRA_SHAPE(C), DRA_FILL_CONST, 0);
}

static void declare(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const dra_shape         C = DRA_SHAPE(c->dim), D = DRA_SHAPE(c->key_dim);
    dra_specs              *p = m->params;
    declare_projections(m, p);
    if (c->norm != DRA_NORM_NONE) add(p, "norm_g", C, DRA_FILL_CONST, 1);
    if (c->norm == DRA_NORM_LAYER) add(p, "norm_b", C, DRA_FILL_CONST, 0);
    if (c->qk_norm) add(p, "gain_q", D, DRA_FILL_CONST, 1);
    if (c->qk_norm) add(p, "gain_k", D, DRA_FILL_CONST, 1);
    if (c->v_norm) add(p, "gain_v", DRA_SHAPE(c->value_dim), DRA_FILL_CONST, 1);
    if (c->shift == DRA_SHIFT_MIX) {
        add(p, "mu_q", C, DRA_FILL_CONST, 0.5);
        add(p, "mu_k", C, DRA_FILL_CONST, 0.5);
        add(p, "mu_v", C, DRA_FILL_CONST, 0.5);
    }
    if (c->project)
        add(p, "P", DRA_SHAPE(c->dim, c->heads * c->value_dim), DRA_FILL_NORMAL,
            1 / sqrt((double)(c->heads * c->value_dim)));
    if (c->blend == DRA_BLEND_LEARNED)
        add(p, "blend", DRA_SHAPE(m->branch[0].retrieval->pooled ? 1 : c->heads), DRA_FILL_CONST,
            0);
    if (c->shift != DRA_SHIFT_NONE) add(m->state, "x", C, DRA_FILL_CONST, 0);
    for (int i = 0; i < m->branches; i++) dra_branch_declare(&m->branch[i], p, m->state);
}

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct building {
    dra_graph             *g;
    const dra_mixer       *m;
    const dra_module_call *call;
    dra_value             *state_out;
} building;

/* A parameter by name; the null value where the mixer has none. */
static dra_value param(const building *b, const char *name)
{
    const int i = dra_specs_find(b->m->params, name);
    return i < 0 ? (dra_value){0} : b->call->param[i];
}

/* norm(x / c; eps) = norm(x; c^2 eps) */
static dra_value normed(const building *b, dra_value x)
{
    const dra_mixer_config *m = &b->m->config;
    const double            c = m->rescale > 0 && !b->call->learning ? m->rescale : 1;
    const double            eps = (m->norm_eps > 0 ? m->norm_eps : 1e-5) * c * c;
    switch (m->norm) {
    case DRA_NORM_RMS: return dra_rms_norm(b->g, x, param(b, "norm_g"), eps);
    case DRA_NORM_LAYER:
        return dra_layer_norm(b->g, x, param(b, "norm_g"), param(b, "norm_b"), eps);
    default: return x;
    }
}

/* mu x + (1 - mu) before */
static dra_value mix(dra_graph *g, dra_value mu, dra_value x, dra_value before)
{
    const dra_value rest = dra_affine(g, mu, -1, 1);
    return dra_add(g, dra_mul(g, x, mu), dra_mul(g, before, rest));
}

/* What q, k and v are made of. */
static void shift(const building *b, dra_value x, dra_value out[3])
{
    static const char *const mu[] = {"mu_q", "mu_k", "mu_v"};
    dra_graph               *g = b->g;
    const int64_t            C = b->m->config.dim;
    out[0] = out[1] = out[2] = x;
    if (b->m->config.shift == DRA_SHIFT_NONE) return;
    const int       at = dra_specs_find(b->m->state, "x");
    const dra_value before = dra_tokens_shift(g, &b->call->tokens, x, b->call->state[at],
                                              &b->state_out[at]);
    if (b->m->config.shift == DRA_SHIFT_HALF) {
        const dra_value parts[] = {dra_slice(g, before, -1, 0, C / 2),
                                   dra_slice(g, x, -1, C / 2, C - C / 2)};
        out[0] = out[1] = out[2] = dra_concat(g, 2, parts, -1);
        return;
    }
    for (int i = 0; i < 3; i++) out[i] = mix(g, param(b, mu[i]), x, before);
}

/* Returns what gates see: x shifted by halves, or as it is. */
static dra_value encode(const building *b, dra_value x, dra_value qkv[3])
{
    const dra_mixer_config  *c = &b->m->config;
    const int64_t            B = b->call->tokens.B, T = b->call->tokens.T, H = c->heads;
    static const char *const weight[] = {"W_q", "W_k", "W_v"}, *const bias[] = {"b_q", "b_k",
                                                                                "b_v"};
    dra_value in[3];
    shift(b, x, in);
    for (int i = 0; i < 3; i++) {
        const int64_t   W = i == 2 ? c->value_dim : c->key_dim;
        const dra_value y = dra_linear(b->g, in[i], param(b, weight[i]), param(b, bias[i]));
        qkv[i] = dra_reshape(b->g, y, DRA_SHAPE(B, T, H, W));
    }
    if (c->qk_norm) {
        qkv[0] = dra_rms_norm(b->g, qkv[0], param(b, "gain_q"), 1e-6);
        qkv[1] = dra_rms_norm(b->g, qkv[1], param(b, "gain_k"), 1e-6);
    }
    if (c->v_norm) qkv[2] = dra_rms_norm(b->g, qkv[2], param(b, "gain_v"), 1e-6);
    return c->shift == DRA_SHIFT_HALF ? in[0] : x;
}

/* a y_0 + (1-a) y_1; at 1 and 0 exactly the one, whatever is in the other. */
static dra_value blend(const building *b, dra_value input, const dra_value y[2])
{
    dra_graph              *g = b->g;
    const dra_mixer_config *c = &b->m->config;
    dra_value               a = input, one = dra_number(g, 1), zero = dra_number(g, 0);
    if (c->blend == DRA_BLEND_NUMBER) {
        if (c->blend_value == 1 || c->blend_value == 0) return y[c->blend_value == 0];
        a = dra_number(g, c->blend_value);
    }
    if (c->blend == DRA_BLEND_LEARNED)
        a = dra_reshape(g, dra_sigmoid(g, param(b, "blend")), DRA_SHAPE(-1, 1));
    const dra_value mixed = mix(g, a, y[0], y[1]);
    if (c->blend != DRA_BLEND_INPUT) return mixed;
    const dra_value first = dra_select(g, dra_equal(g, a, one), y[0], mixed);
    return dra_select(g, dra_equal(g, a, zero), y[1], first);
}

static dra_value join_heads(dra_graph *g, dra_value x)
{
    if (dra_graph_failed(g)) return x;
    const dra_shape s = dra_shape_of(g, x);
    return dra_reshape(g, x, DRA_SHAPE(s.dim[0], s.dim[1], s.dim[2] * s.dim[3]));
}

static dra_value residual(const building *b, dra_value x, dra_value y, dra_value memory)
{
    const dra_mixer_config *c = &b->m->config;
    dra_graph              *g = b->g;
    if (c->residual == DRA_RESIDUAL_NONE) return y;
    y = dra_add(g, x, y);
    if (c->memory_residual) {
        dra_value h = join_heads(g, memory);
        if (c->project) h = dra_linear(g, h, param(b, "P"), (dra_value){0});
        y = dra_add(g, y, dra_tokens_zero_pads(g, &b->call->tokens, h));
    }
    return c->residual == DRA_RESIDUAL_POST ? normed(b, y) : y;
}

dra_mixer_result dra_mixer_build(dra_graph *g, const dra_mixer *m, const dra_module_call *call,
                                 dra_value x, dra_value a, dra_value *state_out)
{
    const building    b = {g, m, call, state_out};
    dra_mixer_result  r = {0};
    dra_value         qkv[3], y[2];
    const dra_value   seen = encode(&b, m->config.residual == DRA_RESIDUAL_POST ? x : normed(&b, x),
                                    qkv);
    dra_branch_result part[2];
    for (int i = 0; i < m->branches; i++) {
        part[i] = dra_branch_build(g, &m->branch[i], call, m->config.rotary, seen, qkv, state_out);
        y[i] = part[i].y;
        r.memory = part[i].memory; /* that of a blend is of its second */
        memcpy(r.map[i], part[i].map, sizeof r.map[i]);
    }
    dra_aux_mixer(g, m->config.aux, m->branches, m->branch, part, call->param, r.aux);
    if (m->branches == 2) y[0] = blend(&b, a, y);
    r.y = dra_linear(g, join_heads(g, y[0]), param(&b, "W_o"), param(&b, "b_o"));
    r.y = dra_module_dropout(g, call, "dropout", m->config.dropout, r.y);
    r.branch = dra_tokens_zero_pads(g, &call->tokens, r.y);
    r.y = residual(&b, x, r.branch, r.memory);
    if (!m->config.memory_residual) r.memory = (dra_value){0};
    return r;
}

/* ---- as a module ----------------------------------------------------------------------------- */

const char *dra_show_name(dra_show_kind kind)
{
    static const char *const names[DRA_SHOW_COUNT] = {"attention", "write", "occupancy"};
    return (unsigned)kind < DRA_SHOW_COUNT ? names[kind] : NULL;
}

static void put_out_shown(dra_graph *g, const dra_mixer *m, const dra_mixer_result *r)
{
    char name[16];
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (r->aux[k].id) dra_output(g, dra_aux_name(k), r->aux[k]);
    for (int i = 0; i < m->branches; i++)
        for (int k = 0; k < DRA_SHOW_COUNT; k++) {
            if (!r->map[i][k].id) continue;
            snprintf(name, sizeof name, "%s%s", m->branch[i].prefix, dra_show_name(k));
            dra_output(g, name, r->map[i][k]);
        }
}

static void build_module(dra_graph *g, const void *self, const dra_module_call *call,
                         dra_value *state_out)
{
    const dra_mixer *m = self;
    dra_value        a = {0};
    const dra_value  x = dra_input(g, "x", DRA_REAL,
                                   DRA_SHAPE(call->tokens.B, call->tokens.T, m->config.dim));
    if (m->config.blend == DRA_BLEND_INPUT) a = dra_input(g, "blend", DRA_REAL, (dra_shape){0});
    const dra_mixer_result r = dra_mixer_build(g, m, call, x, a, state_out);
    dra_output(g, "y", r.y);
    if (m->config.memory_residual)
        dra_output(g, "memory", dra_tokens_zero_pads(g, &call->tokens, join_heads(g, r.memory)));
    put_out_shown(g, m, &r);
}

dra_status dra_mixer_create(const dra_mixer_config *config, dra_mixer **out, dra_error *err)
{
    dra_mixer *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return dra_fail(err, DRA_ERR_MEMORY, "mixer: out of memory");
    m->config = *config;
    dra_status st = dra_specs_create(&m->params, err);
    if (st == DRA_OK) st = dra_specs_create(&m->state, err);
    if (st == DRA_OK) st = check_choices(&m->config, err);
    if (st == DRA_OK) st = check_sizes(&m->config, err);
    if (st == DRA_OK) st = check_blend(&m->config, err);
    if (st == DRA_OK) st = open_branches(m, err);
    if (st == DRA_OK) st = check_residual(m, err);
    if (st == DRA_OK) {
        declare(m);
        st = dra_specs_error(m->params, err);
    }
    if (st == DRA_OK) st = dra_specs_error(m->state, err);
    if (st == DRA_OK) st = check_shows(m, err);
    if (st == DRA_OK) {
        m->module = (dra_module){m->params, m->state, build_module, m};
        *out = m;
    } else {
        dra_mixer_destroy(m);
    }
    return st;
}

void dra_mixer_destroy(dra_mixer *m)
{
    if (!m) return;
    dra_specs_destroy(m->params);
    dra_specs_destroy(m->state);
    free(m);
}

const dra_module       *dra_mixer_module(const dra_mixer *m) { return &m->module; }
const dra_mixer_config *dra_mixer_config_of(const dra_mixer *m) { return &m->config; }

bool dra_mixer_mappable(const dra_mixer *m)
{
    return dra_map_has(&m->branch[0]) || dra_map_has(&m->branch[m->branches - 1]);
}

uint32_t dra_mixer_aux_losses(const dra_mixer *m)
{
    uint32_t bits = 0;
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        for (int i = 0; i < m->branches; i++)
            if (dra_aux_has(&m->branch[i], k)) bits |= 1u << k;
    return bits;
}
