/* A mixer: its config checked, its tensors declared. mixer_graph.c builds it. */
#include "memory/mixer.h"
#include "memory/part.h"

#include <math.h>
#include <stdlib.h>

/* ---- tensors --------------------------------------------------------------------------------- */

static const struct {
    const char     *name;
    dra_param_group group;
} tensors[DRA_MIXER_PARAMS] = {
#define DRA_MIXER_PARAM(handle, name, group) [handle] = {name, group},
#include "memory/mixer_params.def"
#undef DRA_MIXER_PARAM
};

void dra_mixer_add(dra_mixer *m, dra_mixer_param p, dra_shape shape, dra_fill fill, double number)
{
    m->at[p] = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){.name = tensors[p].name,
                              .shape = shape,
                              .fill = fill,
                              .number = number,
                              .group = tensors[p].group});
}

void dra_mixer_add_constant(dra_mixer *m, dra_mixer_param p, dra_shape shape, double number)
{
    dra_mixer_add(m, p, shape, DRA_FILL_CONST, number);
}

void dra_mixer_add_matrix(dra_mixer *m, dra_mixer_param p, int64_t rows, int64_t columns,
                          double std)
{
    const bool uniform = m->config.init == DRA_INIT_UNIFORM;
    m->at[p] = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){tensors[p].name, DRA_SHAPE(rows, columns),
                              uniform ? DRA_FILL_UNIFORM : DRA_FILL_NORMAL,
                              .number = uniform ? 1 / sqrt((double)columns) : std, .product = true,
                              .group = tensors[p].group});
}

void dra_mixer_add_bias(dra_mixer *m, dra_mixer_param p, int64_t n, int64_t columns, double number)
{
    if (m->config.init == DRA_INIT_UNIFORM)
        dra_mixer_add(m, p, DRA_SHAPE(n), DRA_FILL_UNIFORM, 1 / sqrt((double)columns));
    else
        dra_mixer_add_constant(m, p, DRA_SHAPE(n), number);
}

/* Starts as the identity. */
static void add_identity(dra_mixer *m, dra_mixer_param p, int64_t n)
{
    m->at[p] = dra_specs_count(m->params);
    dra_identity_declare(m->params, NULL, tensors[p].name, DRA_SHAPE(n, n), 0, tensors[p].group);
}

static void add_output(dra_mixer *m, int64_t rows, int64_t columns, double std)
{
    if (!m->config.zero_out) {
        dra_mixer_add_matrix(m, DRA_W_O, rows, columns, std);
        return;
    }
    m->at[DRA_W_O] = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){tensors[DRA_W_O].name, DRA_SHAPE(rows, columns), .product = true,
                              .group = tensors[DRA_W_O].group});
}

int64_t dra_mixer_kv_heads(const dra_mixer_config *c)
{
    return c->kv_heads ? c->kv_heads : c->heads;
}

int64_t dra_mixer_key_heads(const dra_mixer_config *c, int i)
{
    if (c->key_heads) return c->key_heads;
    return i ? dra_mixer_kv_heads(c) : c->heads;
}

int64_t dra_mixer_answer_width(const dra_mixer *m)
{
    return (m->branch[0].retrieval->pooled ? 1 : m->config.heads) * m->config.value_dim;
}

/* Keys of normed x start with variance C key_std^2 and queries so that the logits have 1. */
static void declare_projections(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           C = c->dim, read = dra_mixer_answer_width(m);
    const int64_t           queries = dra_mixer_key_heads(c, 0) * c->key_dim;
    const int64_t           keys = (dra_mixer_key_heads(c, 1) - c->latent.rope) * c->key_dim;
    const int64_t           values = dra_mixer_kv_heads(c) * c->value_dim;
    const int64_t           from_q = c->latent.q ? c->latent.q : C;
    const int64_t           from = c->latent.kv                   ? c->latent.kv
                                   : c->context && c->context_dim ? c->context_dim
                                                                  : C;
    const double            in = 1 / sqrt((double)from);
    const double            out = (c->out_gain > 0 ? c->out_gain : 1) / sqrt((double)read);
    const double            s = c->key_std;
    dra_mixer_add_matrix(m, DRA_W_Q, queries, from_q,
                         (c->query_gain > 0 ? c->query_gain : 1) *
                             (s > 0 ? 1 / ((double)from_q * s) : 1 / sqrt((double)from_q)));
    dra_mixer_add_matrix(m, DRA_W_K, keys, from, s > 0 ? s : in);
    dra_mixer_add_matrix(m, DRA_W_V, values, from, in);
    add_output(m, c->out_glu ? 2 * C : C, read, out);
    if (!dra_mixer_has_bias(c)) return;
    dra_mixer_add_constant(m, DRA_B_Q, DRA_SHAPE(queries), 0);
    dra_mixer_add_constant(m, DRA_B_K, DRA_SHAPE(keys), 0);
    dra_mixer_add_constant(m, DRA_B_V, DRA_SHAPE(values), 0);
    if (c->biases == DRA_BIAS_QKV) return;
    dra_mixer_add_constant(m, DRA_B_O, DRA_SHAPE(c->out_glu ? 2 * C : C), 0);
}

/* Gains of q and k for a head's channels, for each head's, or for those of all heads as one. */
static dra_shape gain_shape(const dra_mixer_config *c, int64_t heads)
{
    if (c->qk_whole) return DRA_SHAPE(heads * c->key_dim);
    return c->qkv_gain == DRA_QKV_HEADS ? DRA_SHAPE(heads, c->key_dim) : DRA_SHAPE(c->key_dim);
}

static void declare_norms(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    if (c->qk_norm && c->qkv_gain != DRA_QKV_NONE) {
        const double start = (c->qk_gain_start > 0 ? c->qk_gain_start : 1) - c->qk_gain_offset;
        dra_mixer_add_constant(m, DRA_GAIN_Q, gain_shape(c, c->heads), start);
        dra_mixer_add_constant(m, DRA_GAIN_K, gain_shape(c, dra_mixer_kv_heads(c)), start);
    }
    if (c->v_norm) dra_mixer_add_constant(m, DRA_GAIN_V, DRA_SHAPE(c->value_dim), 1);
}

/* After all that earlier configs had, so that their lists are as they were. */
static void declare_options(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           H = c->heads, K = dra_mixer_kv_heads(c), n = c->attention.mem_kv;
    if (c->qkv_norm == DRA_QKV_LAYER && c->qk_norm && c->qkv_gain != DRA_QKV_NONE) {
        dra_mixer_add_constant(m, DRA_BIAS_Q, gain_shape(c, H), 0);
        dra_mixer_add_constant(m, DRA_BIAS_K, gain_shape(c, K), 0);
    }
    if (c->qkv_norm == DRA_QKV_LAYER && c->v_norm)
        dra_mixer_add_constant(m, DRA_BIAS_V, DRA_SHAPE(c->value_dim), 0);
    if (n) dra_mixer_add(m, DRA_MEM_K, DRA_SHAPE(K, n, c->key_dim), DRA_FILL_NORMAL, 1);
    if (n) dra_mixer_add(m, DRA_MEM_V, DRA_SHAPE(K, n, c->value_dim), DRA_FILL_NORMAL, 1);
    if (c->attention.talk_before) add_identity(m, DRA_TALK_BEFORE, H);
    if (c->attention.talk_after) add_identity(m, DRA_TALK_AFTER, H);
    if (c->head_scale)
        dra_mixer_add_constant(m, DRA_HEAD_SCALE,
                               DRA_SHAPE(dra_mixer_answer_width(m) / c->value_dim), 1);
    if (c->attention.sink) dra_mixer_add_constant(m, DRA_SINK, DRA_SHAPE(H), 0);
    dra_value_residual_declare(m);
    const double in = 1 / sqrt((double)c->dim);
    if (c->latent.kv) dra_mixer_add_matrix(m, DRA_W_C, c->latent.kv, c->dim, in);
    if (c->latent.q) dra_mixer_add_matrix(m, DRA_W_CQ, c->latent.q, c->dim, in);
    if (c->latent.rope) dra_mixer_add_matrix(m, DRA_W_KR, c->latent.rope * c->key_dim, c->dim, in);
    if (c->attention.forget) {
        dra_mixer_add_matrix(m, DRA_W_F, H, c->dim, 1 / sqrt((double)c->dim));
        dra_mixer_add_constant(m, DRA_B_F, DRA_SHAPE(H), 5);
    }
    if (c->attention.cope)
        dra_mixer_add_constant(m, DRA_COPE, DRA_SHAPE(c->attention.cope, c->key_dim), 0);
    dra_gate_declare(m);
}

/* The sum of ln f so far, in two parts. It falls without end and only its differences count, as of
 * a running maximum: it is not clamped. */
static void declare_level(dra_mixer *m)
{
    m->level = m->config.attention.forget ? dra_specs_count(m->state) : -1;
    if (m->level < 0) return;
    dra_specs_add(m->state, NULL,
                  &(dra_spec){"level", DRA_SHAPE(m->config.heads, 2), .maximum = true});
}

static void declare_params(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    for (int i = 0; i < DRA_MIXER_PARAMS; i++) m->at[i] = -1;
    declare_projections(m);
    declare_norms(m);
    dra_shift_declare(m);
    if (c->blend == DRA_BLEND_LEARNED)
        dra_mixer_add_constant(m, DRA_BLEND, DRA_SHAPE(dra_mixer_answer_width(m) / c->value_dim),
                               0);
    declare_options(m);
    dra_out_norm_declare(m);
    dra_shift_declare_others(m);
    declare_level(m);
    dra_conv_declare(m);
    for (int i = 0; i < m->branches; i++) dra_branch_declare(&m->branch[i], m->params, m->state);
}

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status open_branches(dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    m->branches = c->blend == DRA_BLEND_NONE ? 1 : 2;
    for (int i = 0; i < m->branches; i++) {
        const dra_status st = dra_branch_open(&m->branch[i], c, i ? &c->b : &c->a, err);
        if (st != DRA_OK) return st;
        (i ? &m->config.b : &m->config.a)->head_norm = m->branch[i].config.head_norm;
        m->branch[i].prefix = m->branches == 1 ? "" : i ? "b." : "a.";
    }
    return dra_mixer_check_branches(m, err);
}

dra_status dra_mixer_create(const dra_mixer_config *config, dra_mixer **out, dra_error *err)
{
    dra_mixer *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return dra_fail(err, DRA_ERR_MEMORY, "mixer: out of memory");
    m->config = *config;
    dra_status st = dra_specs_create(&m->params, err);
    if (st == DRA_OK) st = dra_specs_create(&m->state, err);
    if (st == DRA_OK) st = dra_mixer_check(&m->config, err);
    if (st == DRA_OK) st = open_branches(m, err);
    if (st == DRA_OK) {
        declare_params(m);
        st = dra_specs_error(m->params, err);
    }
    if (st == DRA_OK) st = dra_specs_error(m->state, err);
    if (st == DRA_OK) st = dra_mixer_check_gammas(m, err);
    if (st == DRA_OK) st = dra_mixer_check_shows(m, err);
    if (st == DRA_OK) {
        m->module = (dra_module){.params = m->params,
                                 .state = m->state,
                                 .build = dra_mixer_build_module,
                                 .self = m,
                                 .prefix = m->config.prefix,
                                 .context = m->config.context,
                                 .segment = m->config.xl_segment,
                                 .memory = m->config.xl_memory};
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
