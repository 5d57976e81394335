/* A mixer: its config checked, its tensors declared. mixer_graph.c builds it. */
#include "memory/mixer.h"

#include <math.h>
#include <stdlib.h>

/* ---- tensors --------------------------------------------------------------------------------- */

static const char *const names[DRA_MIXER_PARAMS] = {
    [DRA_W_Q] = "W_q",
    [DRA_W_K] = "W_k",
    [DRA_W_V] = "W_v",
    [DRA_W_O] = "W_o",
    [DRA_B_Q] = "b_q",
    [DRA_B_K] = "b_k",
    [DRA_B_V] = "b_v",
    [DRA_B_O] = "b_o",
    [DRA_GAIN_Q] = "gain_q",
    [DRA_GAIN_K] = "gain_k",
    [DRA_GAIN_V] = "gain_v",
    [DRA_MU_Q] = "mu_q",
    [DRA_MU_K] = "mu_k",
    [DRA_MU_V] = "mu_v",
    [DRA_BLEND] = "blend",
    [DRA_BIAS_Q] = "bias_q",
    [DRA_BIAS_K] = "bias_k",
    [DRA_BIAS_V] = "bias_v",
    [DRA_MEM_K] = "mem_k",
    [DRA_MEM_V] = "mem_v",
    [DRA_TALK_BEFORE] = "talk_before",
    [DRA_TALK_AFTER] = "talk_after",
    [DRA_HEAD_SCALE] = "head_scale",
    [DRA_W_G] = "W_g",
    [DRA_B_G] = "b_g",
    [DRA_SINK] = "sink",
    [DRA_W_MIX] = "W_mix",
    [DRA_B_MIX] = "b_mix",
    [DRA_W_F] = "W_f",
    [DRA_B_F] = "b_f",
    [DRA_W_C] = "W_c",
    [DRA_W_CQ] = "W_cq",
    [DRA_W_KR] = "W_kr",
    [DRA_W_G_1] = "W_g_1",
    [DRA_W_G_2] = "W_g_2",
    [DRA_W_MIX_1] = "W_mix_1",
    [DRA_W_MIX_2] = "W_mix_2",
    [DRA_MU_X] = "mu_x",
    [DRA_MU_MORE] = "mu_w",
    [DRA_MU_MORE + 1] = "mu_a",
    [DRA_MU_MORE + 2] = "mu_g",
    [DRA_MU_1] = "mu_q_1",
    [DRA_MU_1 + 1] = "mu_k_1",
    [DRA_MU_1 + 2] = "mu_v_1",
    [DRA_MU_1 + 3] = "mu_w_1",
    [DRA_MU_1 + 4] = "mu_a_1",
    [DRA_MU_1 + 5] = "mu_g_1",
    [DRA_MU_2] = "mu_q_2",
    [DRA_MU_2 + 1] = "mu_k_2",
    [DRA_MU_2 + 2] = "mu_v_2",
    [DRA_MU_2 + 3] = "mu_w_2",
    [DRA_MU_2 + 4] = "mu_a_2",
    [DRA_MU_2 + 5] = "mu_g_2",
};

static void add(dra_mixer *m, dra_mixer_param p, dra_shape shape, dra_fill fill, double number)
{
    m->at[p] = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){.name = names[p], .shape = shape, .fill = fill, .number = number});
}

static void add_constant(dra_mixer *m, dra_mixer_param p, dra_shape shape, double number)
{
    add(m, p, shape, DRA_FILL_CONST, number);
}

static void add_matrix(dra_mixer *m, dra_mixer_param p, int64_t rows, int64_t columns, double std)
{
    const bool uniform = m->config.init == DRA_INIT_UNIFORM;
    m->at[p] = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){names[p], DRA_SHAPE(rows, columns),
                              uniform ? DRA_FILL_UNIFORM : DRA_FILL_NORMAL,
                              .number = uniform ? 1 / sqrt((double)columns) : std,
                              .product = true});
}

/* The bias (n) of a matrix (n, columns): drawn as that is where both are uniform, else a number. */
static void add_bias(dra_mixer *m, dra_mixer_param p, int64_t n, int64_t columns, double number)
{
    if (m->config.init == DRA_INIT_UNIFORM)
        add(m, p, DRA_SHAPE(n), DRA_FILL_UNIFORM, 1 / sqrt((double)columns));
    else
        add_constant(m, p, DRA_SHAPE(n), number);
}

/* Starts as the identity. */
static void add_identity(dra_mixer *m, dra_mixer_param p, int64_t n)
{
    m->at[p] = dra_specs_count(m->params);
    dra_identity_declare(m->params, NULL, names[p], DRA_SHAPE(n, n), 0);
}

static void add_output(dra_mixer *m, int64_t rows, int64_t columns, double std)
{
    if (!m->config.zero_out) {
        add_matrix(m, DRA_W_O, rows, columns, std);
        return;
    }
    m->at[DRA_W_O] = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){names[DRA_W_O], DRA_SHAPE(rows, columns), .product = true});
}

static int64_t kv_heads(const dra_mixer_config *c) { return c->kv_heads ? c->kv_heads : c->heads; }

/* Channels of what the memories answer, all heads together. */
static int64_t answer_width(const dra_mixer *m)
{
    return (m->branch[0].retrieval->pooled ? 1 : m->config.heads) * m->config.value_dim;
}

/* Keys of normed x start with variance C key_std^2 and queries so that the logits have 1. */
static void declare_projections(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           C = c->dim, queries = c->heads * c->key_dim, read = answer_width(m);
    const int64_t           keys = (kv_heads(c) - c->latent_rope) * c->key_dim;
    const int64_t           values = kv_heads(c) * c->value_dim;
    const int64_t           from_q = c->latent_q ? c->latent_q : C;
    const int64_t           from = c->latent_kv                   ? c->latent_kv
                                   : c->context && c->context_dim ? c->context_dim
                                                                  : C;
    const double            in = 1 / sqrt((double)from);
    const double            out = (c->out_gain > 0 ? c->out_gain : 1) / sqrt((double)read);
    const double            s = c->key_std;
    add_matrix(m, DRA_W_Q, queries, from_q,
               s > 0 ? 1 / ((double)from_q * s) : 1 / sqrt((double)from_q));
    add_matrix(m, DRA_W_K, keys, from, s > 0 ? s : in);
    add_matrix(m, DRA_W_V, values, from, in);
    add_output(m, c->out_glu ? 2 * C : C, read, out);
    if (!c->bias) return;
    add_constant(m, DRA_B_Q, DRA_SHAPE(queries), 0);
    add_constant(m, DRA_B_K, DRA_SHAPE(keys), 0);
    add_constant(m, DRA_B_V, DRA_SHAPE(values), 0);
    add_constant(m, DRA_B_O, DRA_SHAPE(c->out_glu ? 2 * C : C), 0);
}

/* Gains of q and k for a head's channels, or for each head's. */
static dra_shape gain_shape(const dra_mixer_config *c, int64_t heads)
{
    return c->qkv_gain == DRA_QKV_HEADS ? DRA_SHAPE(heads, c->key_dim) : DRA_SHAPE(c->key_dim);
}

static void declare_norms(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    if (c->qk_norm && c->qkv_gain != DRA_QKV_NONE) {
        const double start = c->qk_gain_start > 0 ? c->qk_gain_start : 1;
        add_constant(m, DRA_GAIN_Q, gain_shape(c, c->heads), start);
        add_constant(m, DRA_GAIN_K, gain_shape(c, kv_heads(c)), start);
    }
    if (c->v_norm) add_constant(m, DRA_GAIN_V, DRA_SHAPE(c->value_dim), 1);
}

static void declare_gate(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           all = answer_width(m);
    switch (c->gate_values) {
    case DRA_GATE_NONE: break;
    case DRA_GATE_SILU: add_matrix(m, DRA_W_G, all, c->dim, 1 / sqrt((double)c->dim)); break;
    case DRA_GATE_RANK:
        add(m, DRA_W_G_1, DRA_SHAPE(c->gate_rank, c->dim), DRA_FILL_NORMAL,
            1 / sqrt((double)c->dim));
        add(m, DRA_W_G_2, DRA_SHAPE(all, c->gate_rank), DRA_FILL_NORMAL,
            1 / sqrt((double)c->gate_rank));
        break;
    default: add_constant(m, DRA_W_G, DRA_SHAPE(all, c->dim), 0);
    }
    if (c->gate_values == DRA_GATE_BIASED) add_constant(m, DRA_B_G, DRA_SHAPE(all), 10);
}

/* The share of the first mixer's values. */
static void declare_mix(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           all = kv_heads(c) * c->value_dim;
    if (c->value_residual == DRA_VALUES_LEARNED) {
        add_matrix(m, DRA_W_MIX, c->heads, c->dim, 1 / sqrt((double)c->dim));
        add_bias(m, DRA_B_MIX, c->heads, c->dim, 0);
    }
    if (c->value_residual != DRA_VALUES_CHANNEL) return;
    if (c->value_rank) {
        add_constant(m, DRA_W_MIX_1, DRA_SHAPE(c->value_rank, c->dim), 0);
        add(m, DRA_W_MIX_2, DRA_SHAPE(all, c->value_rank), DRA_FILL_UNIFORM, 0.01);
    } else {
        add_constant(m, DRA_W_MIX, DRA_SHAPE(all, c->dim), 0);
    }
    add_constant(m, DRA_B_MIX, DRA_SHAPE(all), 0);
}

/* Which of the mixes the mixer has use for. Of shift mix, which is older than most of them, only
 * gates that are younger have one. */
static bool has_mix(const dra_mixer *m, int mix)
{
    bool decay = false, rate = false;
    if (m->config.shift == DRA_SHIFT_MIX && mix >= DRA_MIX_DECAY)
        return mix == DRA_MIX_GATE && m->config.gate_values >= DRA_GATE_SILU;
    for (int i = 0; i < m->branches; i++) {
        decay = decay || m->branch[i].config.decay == DRA_DECAY_DATA;
        rate = rate || m->branch[i].memory->options & DRA_OPTION_TRANSITION;
    }
    return mix == DRA_MIX_DECAY  ? decay
           : mix == DRA_MIX_RATE ? rate
           : mix == DRA_MIX_GATE ? m->config.gate_values != DRA_GATE_NONE
                                 : true;
}

static void declare_mixes(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    for (int i = DRA_MIX_DECAY; i < DRA_MIXES; i++)
        if (has_mix(m, i)) add_constant(m, dra_mix_mu(i), DRA_SHAPE(c->dim), 0.5);
    if (c->shift != DRA_SHIFT_DATA) return;
    add_constant(m, DRA_MU_X, DRA_SHAPE(c->dim), 0.5);
    for (int i = 0; i < DRA_MIXES; i++) {
        if (!has_mix(m, i)) continue;
        add_constant(m, DRA_MU_1 + i, DRA_SHAPE(c->shift_rank, c->dim), 0);
        add(m, DRA_MU_2 + i, DRA_SHAPE(c->dim, c->shift_rank), DRA_FILL_UNIFORM, 0.01);
    }
}

/* After all that earlier configs had, so that their lists are as they were. */
static void declare_options(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           H = c->heads, K = kv_heads(c), n = c->mem_kv;
    if (c->qkv_norm == DRA_QKV_LAYER && c->qk_norm && c->qkv_gain != DRA_QKV_NONE) {
        add_constant(m, DRA_BIAS_Q, gain_shape(c, H), 0);
        add_constant(m, DRA_BIAS_K, gain_shape(c, K), 0);
    }
    if (c->qkv_norm == DRA_QKV_LAYER && c->v_norm)
        add_constant(m, DRA_BIAS_V, DRA_SHAPE(c->value_dim), 0);
    if (n) add(m, DRA_MEM_K, DRA_SHAPE(K, n, c->key_dim), DRA_FILL_NORMAL, 1);
    if (n) add(m, DRA_MEM_V, DRA_SHAPE(K, n, c->value_dim), DRA_FILL_NORMAL, 1);
    if (c->talk_before) add_identity(m, DRA_TALK_BEFORE, H);
    if (c->talk_after) add_identity(m, DRA_TALK_AFTER, H);
    if (c->head_scale)
        add_constant(m, DRA_HEAD_SCALE, DRA_SHAPE(answer_width(m) / c->value_dim), 1);
    if (c->sink) add_constant(m, DRA_SINK, DRA_SHAPE(H), 0);
    declare_mix(m);
    const double in = 1 / sqrt((double)c->dim);
    if (c->latent_kv) add_matrix(m, DRA_W_C, c->latent_kv, c->dim, in);
    if (c->latent_q) add_matrix(m, DRA_W_CQ, c->latent_q, c->dim, in);
    if (c->latent_rope) add_matrix(m, DRA_W_KR, c->latent_rope * c->key_dim, c->dim, in);
    if (c->forget) {
        add_matrix(m, DRA_W_F, H, c->dim, 1 / sqrt((double)c->dim));
        add_constant(m, DRA_B_F, DRA_SHAPE(H), 5);
    }
    declare_gate(m);
}

/* The sum of ln f so far, in two parts. It falls without end and only its differences count, as of
 * a running maximum: it is not clamped. */
static void declare_level(dra_mixer *m)
{
    m->level = m->config.forget ? dra_specs_count(m->state) : -1;
    if (m->level < 0) return;
    dra_specs_add(m->state, NULL,
                  &(dra_spec){"level", DRA_SHAPE(m->config.heads, 2), .maximum = true});
}

static void declare(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const dra_shape         C = DRA_SHAPE(c->dim);
    for (int i = 0; i < DRA_MIXER_PARAMS; i++) m->at[i] = -1;
    declare_projections(m);
    declare_norms(m);
    if (c->shift >= DRA_SHIFT_MIX)
        for (int i = DRA_MU_Q; i <= DRA_MU_V; i++) add_constant(m, i, C, 0.5);
    if (c->blend == DRA_BLEND_LEARNED)
        add_constant(m, DRA_BLEND, DRA_SHAPE(answer_width(m) / c->value_dim), 0);
    declare_options(m);
    if (c->shift >= DRA_SHIFT_MIX) declare_mixes(m);
    m->shift = c->shift != DRA_SHIFT_NONE ? dra_specs_count(m->state) : -1;
    if (m->shift >= 0) dra_specs_add(m->state, NULL, &(dra_spec){"x", C});
    declare_level(m);
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
        declare(m);
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
