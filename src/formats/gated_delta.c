/* Layers of gated DeltaNet among those of the Llama family: q, k and v by a short convolution, the
 * delta rule with decays by softplus, a norm of heads and a gate. [Yang et al. 2025; transformers,
 * models/qwen3_5, models/qwen3_next, models/olmo_hybrid] */
#include "formats/gated_delta.h"
#include "formats/lfm2.h"
#include "formats/mamba2.h"

#include <string.h>

#include "base/error.h"

bool dra_linear_is(const dra_mixer_config *m)
{
    static const char *const memories[] = {"delta", "moment", "shortconv"};
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (m->a.memory && strcmp(m->a.memory, memories[i]) == 0) return true;
    return false;
}

static const dra_mixer_config *find_mixer(const dra_model_config *c, bool linear)
{
    for (int i = 0; i < c->mixers; i++)
        if (dra_linear_is(&c->mixer[i]) == linear) return &c->mixer[i];
    return NULL;
}

/* ---- config ---------------------------------------------------------------------------------- */

typedef struct widths { /* of a layer */
    int64_t Hk, Hv, D, E, W;
} widths;

static int64_t read_size(dra_keys *k, const char *key, int64_t fallback)
{
    const int64_t n = dra_keys_int(k, key, NULL, fallback);
    if (n < 1) dra_keys_refuse(k, key, "1 or more");
    return n < 1 ? 1 : n;
}

static widths read_widths(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    const bool olmo = f->linear == DRA_LINEAR_OLMO;
    widths     w;
    w.Hk = read_size(k, "linear_num_key_heads", olmo ? c->heads : 16);
    w.Hv = read_size(k, "linear_num_value_heads", olmo ? c->heads : 32);
    w.D = read_size(k, "linear_key_head_dim", olmo ? 3 * c->dim / (4 * w.Hk) : 128);
    w.E = read_size(k, "linear_value_head_dim", olmo ? 2 * w.D : 128);
    w.W = read_size(k, "linear_conv_kernel_dim", 4);
    if (w.Hv % w.Hk)
        dra_keys_refuse(k, "linear_num_value_heads", "a multiple of linear_num_key_heads");
    if (w.W < 2 || w.W > 8) dra_keys_refuse(k, "linear_conv_kernel_dim", "2 to 8");
    return w;
}

static void read_mamba(dra_keys *k, const dra_model_config *c, dra_mixer_config *m)
{
    static const char head[] = "mamba_d_head";
    const json_t     *width = json_object_get(k->object, head);
    const bool        derived = !width || json_is_string(width); /* "auto" */
    dra_mamba2_sizes  s = {
         .H = dra_keys_int(k, "mamba_n_heads", NULL, 128),
         .N = dra_keys_int(k, "mamba_d_state", NULL, 256),
         .G = dra_keys_int(k, "mamba_n_groups", NULL, 1),
         .W = dra_keys_int(k, "mamba_d_conv", NULL, 4),
         .conv_bias = dra_keys_bool(k, "mamba_conv_bias", true),
         .names = {"mamba_n_heads", head, "mamba_d_state", "mamba_n_groups", "mamba_d_conv"}};
    const int64_t all = c->dim * dra_keys_int(k, "mamba_expand", NULL, 2);
    s.P = derived && s.H > 0 ? all / s.H : dra_keys_int(k, head, NULL, 64);
    if (s.H * s.P != all)
        dra_keys_refuse(k, "mamba_expand", "mamba_n_heads mamba_d_head / hidden_size");
    if (s.G != 1) dra_keys_refuse(k, "mamba_n_groups", "1");
    if (dra_keys_bool(k, "mamba_proj_bias", false)) dra_keys_refuse(k, "mamba_proj_bias", "false");
    dra_mamba2_mixer(k, &s, c->norm_eps, m);
}

void dra_gated_delta_read(dra_keys *k, const dra_llama *f, const dra_model_config *c,
                          dra_mixer_config *m)
{
    if (c->ff.kind != DRA_FF_SWIGLU) dra_keys_refuse(k, "hidden_act", "silu");
    if (f->linear == DRA_LINEAR_GRANITE) {
        read_mamba(k, c, m);
        return;
    }
    if (f->linear == DRA_LINEAR_LFM2) {
        dra_lfm2_read(k, c, m);
        return;
    }
    const widths w = read_widths(k, f, c);
    const bool   olmo = f->linear == DRA_LINEAR_OLMO;
    *m = (dra_mixer_config){.heads = w.Hv,
                            .key_heads = w.Hk == w.Hv ? 0 : w.Hk,
                            .key_dim = w.D,
                            .value_dim = w.E,
                            .conv.width = w.W,
                            .gate_values = DRA_GATE_SILU,
                            .out_norm = {DRA_OUT_NORM_BEFORE, .eps = olmo ? 1e-5 : c->norm_eps},
                            .a = {"delta", .lambda.decay = DRA_DECAY_DATA,
                                  .lambda.decay_form = DRA_FORM_SOFTPLUS,
                                  .delta = {.unit_eps = 1e-6, .scale_queries = true}}};
    if (olmo && dra_keys_bool(k, "linear_allow_neg_eigval", true)) m->a.delta.strength = 2;
    if (olmo) m->norms = DRA_LAYER_NORMS_PRE;
}

static void write_mamba(dra_keys *k, const dra_model_config *c, const dra_mixer_config *m)
{
    const struct {
        const char *key;
        int64_t     n;
    } sizes[] = {
        {"mamba_n_heads", m->heads},     {"mamba_d_head", m->value_dim},
        {"mamba_d_state", m->key_dim},   {"mamba_n_groups", m->key_heads ? m->key_heads : m->heads},
        {"mamba_d_conv", m->conv.width}, {"mamba_expand", m->heads * m->value_dim / c->dim}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        dra_keys_put(k, sizes[i].key, dra_json_int(&k->json, sizes[i].n));
    dra_keys_put(k, "mamba_conv_bias", dra_json_bool(m->conv.bias));
    dra_mamba2_put_limits(k, m);
}

void dra_gated_delta_write(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    const dra_mixer_config *m = find_mixer(c, true);
    if (m && f->linear == DRA_LINEAR_GRANITE) write_mamba(k, c, m);
    if (m && f->linear == DRA_LINEAR_LFM2) dra_lfm2_write(k, m);
    if (!m || f->linear >= DRA_LINEAR_GRANITE) return;
    const struct {
        const char *key;
        int64_t     n;
    } sizes[] = {{"linear_num_key_heads", m->key_heads ? m->key_heads : m->heads},
                 {"linear_num_value_heads", m->heads},
                 {"linear_key_head_dim", m->key_dim},
                 {"linear_value_head_dim", m->value_dim},
                 {"linear_conv_kernel_dim", m->conv.width}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        dra_keys_put(k, sizes[i].key, dra_json_int(&k->json, sizes[i].n));
    if (f->linear == DRA_LINEAR_OLMO)
        dra_keys_put(k, "linear_allow_neg_eigval", dra_json_bool(m->a.delta.strength > 0));
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const char *const projected[] = {"layers.*.mixer.W_q", "layers.*.mixer.W_k",
                                        "layers.*.mixer.W_v", "layers.*.mixer.W_g"};
static const char *const convolved[] = {"layers.*.mixer.conv_q", "layers.*.mixer.conv_k",
                                        "layers.*.mixer.conv_v"};

static void add_qwen(dra_rule_list *a, const dra_mixer_config *m, bool next)
{
    static const char *const small[] = {"layers.*.mixer.W_b", "layers.*.mixer.W_decay"};
    const int64_t            Hk = m->key_heads ? m->key_heads : m->heads, r = m->heads / Hk;
    const int64_t            D = m->key_dim, E = m->value_dim;
    const int64_t            rows[] = {Hk * D, Hk * D, m->heads * E}, turn[] = {D, D, r * E, r * E};
    const int64_t            each[] = {r, r};
    if (next) {
        dra_rules_add_parts(a, "layers.*.linear_attn.in_proj_qkvz.weight", 4, projected, turn, Hk,
                            0);
        dra_rules_add_parts(a, "layers.*.linear_attn.in_proj_ba.weight", 2, small, each, Hk, 0);
    } else {
        dra_rules_add_parts(a, "layers.*.linear_attn.in_proj_qkv.weight", 3, projected, rows, 1, 0);
        dra_rules_add(a, projected[3], "layers.*.linear_attn.in_proj_z.weight");
        dra_rules_add(a, small[0], "layers.*.linear_attn.in_proj_b.weight");
        dra_rules_add(a, small[1], "layers.*.linear_attn.in_proj_a.weight");
    }
    dra_rules_add_parts(a, "layers.*.linear_attn.conv1d.weight", 3, convolved, rows, 1,
                        m->conv.width);
    dra_rules_add(a, "layers.*.mixer.gain_out", "layers.*.linear_attn.norm.weight");
    dra_rules_add(a, "layers.*.mixer.W_o", "layers.*.linear_attn.out_proj.weight");
}

/* Files have the convolutions apart and norms under names of their own. */
static void add_olmo(dra_rule_list *a, const dra_mixer_config *m)
{
    static const char *const rules[][3] = {
        {"layers.*.mixer.W_q", "layers.*.linear_attn.q_proj.weight"},
        {"layers.*.mixer.W_k", "layers.*.linear_attn.k_proj.weight"},
        {"layers.*.mixer.W_v", "layers.*.linear_attn.v_proj.weight"},
        {"layers.*.mixer.W_g", "layers.*.linear_attn.g_proj.weight"},
        {"layers.*.mixer.W_b", "layers.*.linear_attn.b_proj.weight"},
        {"layers.*.mixer.W_decay", "layers.*.linear_attn.a_proj.weight"},
        {"layers.*.mixer.conv_q", "layers.*.linear_attn.q_conv1d.weight"},
        {"layers.*.mixer.conv_k", "layers.*.linear_attn.k_conv1d.weight"},
        {"layers.*.mixer.conv_v", "layers.*.linear_attn.v_conv1d.weight"},
        {"layers.*.mixer.gain_out", "layers.*.linear_attn.o_norm.weight"},
        {"layers.*.mixer.W_o", "layers.*.linear_attn.o_proj.weight"},
        {"layers.*.mixer.norm_g", "layers.*.attention_layer_norm.weight",
         "layers.*.input_layernorm.weight"},
        {"layers.*.ff.norm_g", "layers.*.feedforward_layer_norm.weight",
         "layers.*.post_attention_layernorm.weight"}};
    const int64_t keys = (m->key_heads ? m->key_heads : m->heads) * m->key_dim;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        dra_name_rule *r = dra_rules_add(a, rules[i][0], rules[i][1]);
        r->instead = rules[i][2];
        if (!strstr(rules[i][0], "conv_")) continue;
        const bool values = strstr(rules[i][0], "conv_v") != NULL;
        r->shape = DRA_SHAPE(values ? m->heads * m->value_dim : keys, 1, m->conv.width);
    }
}

static void add_granite(dra_rule_list *a, const dra_mixer_config *m)
{
    dra_mamba2_rules(m, "layers.*.mamba.in_proj.weight", "layers.*.mamba.conv1d.weight",
                     "layers.*.mamba.conv1d.bias", a);
    dra_rules_add(a, "layers.*.mixer.A_log", "layers.*.mamba.A_log");
    dra_rules_add(a, "layers.*.mixer.dt_bias", "layers.*.mamba.dt_bias");
    dra_rules_add(a, "layers.*.mixer.D", "layers.*.mamba.D");
    dra_rules_add(a, "layers.*.mixer.gain_out", "layers.*.mamba.norm.weight");
    dra_rules_add(a, "layers.*.mixer.W_o", "layers.*.mamba.out_proj.weight");
}

/* Which layers are of gated DeltaNet or Mamba-2. */
static const int64_t *list_layers(const dra_model_config *c, dra_arena *arena)
{
    int64_t *delta = dra_arena_alloc(arena, (size_t)c->depth * sizeof *delta);
    for (int64_t l = 0; l < c->depth && delta; l++) {
        const int64_t i = c->n_pattern ? c->pattern[l] : l % c->mixers;
        delta[l] = dra_linear_is(&c->mixer[i]);
    }
    return delta;
}

void dra_gated_delta_rules(const dra_model_config *c, const dra_llama *f, dra_rule_list *a)
{
    static const char *const gated[] = {"layers.*.mixer.W_q", "layers.*.mixer.W_g"};
    static const char *const halves[] = {"layers.*.ff.W_gate", "layers.*.ff.W_up"};
    const dra_mixer_config  *m = find_mixer(c, true);
    const int64_t            D = c->key_dim ? c->key_dim : c->dim / c->heads, each[] = {D, D};
    a->mixers = list_layers(c, &a->out->arena);
    if (f->gated)
        dra_rules_add_parts(a, "layers.*.self_attn.q_proj.weight", 2, gated, each, c->heads, 0);
    if (f->linear == DRA_LINEAR_OLMO) /* transformers renames it with those of the others */
        dra_rules_add(a, "layers.*.mixer.branch_norm_g", "layers.*.post_attention_layernorm.weight")
            ->instead = "layers.*.feedforward_layer_norm.weight";
    a->mixer = 1;
    if (m && f->linear == DRA_LINEAR_LFM2) dra_lfm2_conv_rules(m, a);
    if (m && f->linear == DRA_LINEAR_OLMO) add_olmo(a, m);
    if (m && f->linear <= DRA_LINEAR_QWEN3_NEXT) add_qwen(a, m, f->linear == DRA_LINEAR_QWEN3_NEXT);
    if (m && f->linear == DRA_LINEAR_GRANITE) add_granite(a, m);
    dra_rules_add(a, "layers.*.mixer.A_log", "layers.*.linear_attn.A_log");
    dra_rules_add(a, "layers.*.mixer.dt_bias", "layers.*.linear_attn.dt_bias");
    a->mixers = NULL;
    if (f->linear == DRA_LINEAR_LFM2) dra_lfm2_rules(a);
    if (f->linear != DRA_LINEAR_GRANITE) return;
    const int64_t inner[] = {c->ff.dim, c->ff.dim};
    dra_rules_add_parts(a, "layers.*.shared_mlp.input_linear.weight", 2, halves, inner, 1, 0);
    dra_rules_add(a, "layers.*.ff.W_down", "layers.*.shared_mlp.output_linear.weight");
}
