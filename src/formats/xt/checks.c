/* Options of x-transformers that contradict each other: refused with the names of both. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/xt/xt.h"

typedef struct checking {
    const dra_xt *x;
    const char   *place;
    const json_t *top, *stack;
    dra_error    *err;
} checking;

/* ---- by name --------------------------------------------------------------------------------- */

typedef struct pair {
    const char *a, *b;
} pair;

static const pair apart[] = {
    {"attn_flash", "attn_pre_talking_heads"},
    {"attn_flash", "attn_post_talking_heads"},
    {"attn_flash", "attn_sparse_topk"},
    {"attn_flash", "attn_hard"},
    {"attn_flash", "rel_pos_bias"},
    {"attn_flash", "dynamic_pos_bias"},
    {"attn_flash", "residual_attn"},
    {"attn_flash", "attn_softclamp_logits"},
    {"attn_flash", "attn_head_learned_sink"},
    {"residual_attn", "attn_head_learned_sink"}, /* there the sink's column stays among scores */
    {"attn_flash", "cross_residual_attn"},
    {"use_dynamic_tanh", "use_scalenorm"},
    {"use_dynamic_tanh", "use_rmsnorm"},
    {"use_dynamic_tanh", "use_simple_rmsnorm"},
    {"use_dynamic_tanh", "use_adaptive_layernorm"},
    {"use_dynamic_tanh", "use_adaptive_rmsnorm"},
    {"use_dynamic_tanh", "resi_dual"},
    {"use_scalenorm", "use_rmsnorm"},
    {"use_scalenorm", "use_simple_rmsnorm"},
    {"use_rmsnorm", "use_simple_rmsnorm"},
    {"use_adaptive_layernorm", "use_adaptive_rmsnorm"},
    {"use_adaptive_layernorm", "use_scalenorm"},
    {"use_adaptive_layernorm", "use_rmsnorm"},
    {"use_adaptive_layernorm", "use_simple_rmsnorm"},
    {"use_adaptive_rmsnorm", "use_scalenorm"},
    {"use_adaptive_rmsnorm", "use_rmsnorm"},
    {"use_adaptive_rmsnorm", "use_simple_rmsnorm"},
    {"use_adaptive_layerscale", "use_layerscale"},
    {"rel_pos_bias", "dynamic_pos_bias"},
    {"rel_pos_bias", "alibi_pos_bias"},
    {"dynamic_pos_bias", "alibi_pos_bias"},
    {"attn_one_kv_head", "attn_kv_heads"},
    {"attn_hard", "attn_sparse_topk"},
    {"attn_max_attend_past", "cross_attend"},
    {"attn_flash", "attn_selective"},
    {"attn_selective", "cross_attend"},
    {"attn_selective", "attn_max_attend_past"},
    {"attn_selective", "attn_use_latent_kv"},
    {"attn_selective", "attn_l2_distance"}, /* whose scores are never above 0 */
    {"attn_flash", "attn_use_cope"},
    {"attn_use_cope", "cross_attend"}, /* which there must see no later key */
    {"attn_flash", "attn_sigmoid"},
    {"attn_sigmoid", "attn_hard"},
    {"attn_sigmoid", "attn_sparse_topk"},
    {"attn_sigmoid", "attn_l2_distance"},
    {"attn_sigmoid", "attn_add_zero_kv"}, /* which changes nothing there */
    {"attn_sigmoid", "attn_head_learned_sink"},
    {"attn_l2_distance", "attn_hard"},
    {"attn_l2_distance", "attn_sparse_topk"},
    {"attn_l2_distance", "attn_add_zero_kv"}, /* which there is as far away as its query is long */
    {"attn_l2_distance", "attn_use_latent_kv"},
    {"weight_tie_layers", "custom_layers"},
    {"weight_tie_layers", "sandwich_coef"},
    {"weight_tie_layers", "layers_execute_order"},
    {"custom_layers", "depth"},
    {"custom_layers", "sandwich_coef"},
    {"resi_dual", "sandwich_norm"},
    {"rotary_xpos", "attn_num_mem_kv"}, /* there scores of learned keys depend on what follows */
    {"attn_use_latent_kv", "attn_laser"},
    {"attn_use_latent_kv", "attn_qk_norm"},
    {"attn_use_latent_kv", "attn_num_mem_kv"},
    {"attn_use_latent_kv", "add_value_residual"},
    {"attn_use_latent_kv", "attn_kv_heads"},
    {"attn_use_latent_kv", "attn_one_kv_head"},
    {"attn_use_latent_q", "add_value_residual"},
    {"attn_latent_rope_subheads", "rotate_num_heads"},
    {"attn_data_dependent_alibi", "rel_pos_bias"},
    {"attn_data_dependent_alibi", "alibi_pos_bias"},
    {"attn_data_dependent_alibi", "dynamic_pos_bias"},
    {"resi_dual", "softclamp_output"},
    {"only_cross", "sandwich_coef"},
    {"gate_residual", "scale_residual_constant"}, /* which GRUs there do not have */
    {"in_attn_cond", "reinject_input"},
    {"in_attn_cond", "use_adaptive_layernorm"}, /* dra has one condition */
    {"in_attn_cond", "use_adaptive_rmsnorm"},
    {"in_attn_cond", "use_adaptive_layerscale"},
    {"pre_and_post_norm", "resi_dual"},
    {"attn_gate_values_rank", "attn_gate_values_headwise"},
    {"attn_output_gate_rank", "attn_output_gate_headwise"},
    {"integrate_layers", "weight_tie_layers"},
    {"integrate_layers", "attn_output_gate"},
    {"integrate_layers", "layers_execute_order"},
    {"integrate_layers", "shift_tokens"},
    {"integrate_layers", "layer_dropout"}, /* which there leaves too few streams */
    {"integrate_layers", "resi_dual"},
    {"integrate_layers", "attn_gate_values"}, /* which there are gates of three inputs */
    {"integrate_layers", "attn_gate_value_heads"},
    {"integrate_layers", "attn_use_latent_kv"},
    {"integrate_layers", "attn_data_dependent_alibi"},
    {"unet_skips", "cross_attend"}, /* there are too few skips there */
    {"unet_skips", "macaron"},
    {"unet_skips", "custom_layers"},
    {"unet_skips", "layers_execute_order"},
    {"unet_skips", "weight_tie_layers"},
    {"unet_skips", "sandwich_coef"},
    {"unet_skips", "resi_dual"},
};

typedef struct need {
    const char *a, *b;
    double      neutral; /* as good as not said; 1: also true */
} need;

static const need needs[] = {
    {"attn_qk_norm_dim_scale", "attn_qk_norm", 0},
    {"attn_qk_norm_groups", "attn_qk_norm", 1},
    {"attn_qk_norm_scale", "attn_qk_norm", 10},
    {"attn_sparse_topk_straight_through", "attn_sparse_topk", 0},
    {"resi_dual_scale", "resi_dual", 1},
    {"rel_pos_num_buckets", "rel_pos_bias", 32},
    {"rel_pos_max_distance", "rel_pos_bias", 128},
    {"dynamic_pos_bias_log_distance", "dynamic_pos_bias", 0},
    {"dynamic_pos_bias_mlp_depth", "dynamic_pos_bias", 2},
    {"alibi_num_heads", "alibi_pos_bias", -1},
    {"rotary_emb_dim", "rotary_pos_emb", -1},
    {"rotate_num_heads", "rotary_pos_emb", -1},
    {"rotary_interpolation_factor", "rotary_pos_emb", 1},
    {"rotary_xpos_scale_base", "rotary_xpos", 512},
    {"attn_logit_softclamp_value", "attn_softclamp_logits", 50},
    {"softclamp_output_value", "softclamp_output", 30},
    {"ff_glu_mult_bias", "ff_glu", 0},
    {"attn_swiglu_values", "attn_gate_values", 0},
    {"attn_gate_values_rank", "attn_gate_values", -1},
    {"attn_gate_values_headwise", "attn_gate_values", 0},
    {"attn_output_gate_rank", "attn_output_gate", -1},
    {"attn_output_gate_headwise", "attn_output_gate", 0},
    {"dynamic_tanh_init_alpha", "use_dynamic_tanh", 1},
    {"attn_laser_softclamp_value", "attn_laser", 15},
    {"attn_cope_max_pos", "attn_use_cope", 16},
    {"layerscale_init_value", "use_layerscale", 0},
    {"adaptive_condition_mlp_expansion", "adaptive_condition_mlp", 4},
    {"attn_use_latent_kv", "attn_dim_latent_kv", 0},
    {"attn_use_latent_q", "attn_dim_latent_q", 0},
    {"attn_dim_latent_kv", "attn_use_latent_kv", 0},
    {"attn_dim_latent_q", "attn_use_latent_q", 0},
    {"attn_latent_rope_subheads", "attn_use_latent_kv", 0},
    {"only_cross", "cross_attend", 0},
    {"cross_residual_attn", "cross_attend", 0},
};

const char *dra_xt_need(const char *name)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (strcmp(needs[i].a, name) == 0) return needs[i].b;
    return NULL;
}

static bool is_on(const checking *k, const char *name)
{
    const json_t *v = json_object_get(k->stack, name);
    if (strcmp(name, "rotary_pos_emb") == 0 && k->x->rotary_xpos) return true;
    if (json_is_number(v)) return json_number_value(v) != 0;
    return json_is_true(v) || json_array_size(v) > 0 || json_is_string(v);
}

static bool is_said(const checking *k, const need *n)
{
    const json_t *v = json_object_get(k->stack, n->a);
    return is_on(k, n->a) && !(json_is_number(v) && json_number_value(v) == n->neutral);
}

/* ---- by number ------------------------------------------------------------------------------- */

static dra_status refuse_option(const checking *k, const char *format, ...) DRA_PRINTF(2, 3);

static dra_status refuse_option(const checking *k, const char *format, ...)
{
    char    text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dra_fail(k->err, DRA_ERR_VALUE, "%.120s: %s", k->place, text);
}

static dra_status check_heads(const checking *k)
{
    const dra_xt   *x = k->x;
    const int64_t   H = x->c.heads, d = x->attn_dim_head, g = x->mixer.qk_groups;
    const int64_t   K = x->attn_one_kv_head ? 1 : x->mixer.kv_heads > 0 ? x->mixer.kv_heads : H;
    const int64_t   R = x->c.position.heads, r = x->rotary_emb_dim;
    const long long h = H, w = d;
    if (K > H || H % K)
        return refuse_option(k, "heads is %lld, expected a multiple of attn_kv_heads, %lld", h,
                             (long long)K);
    if (g > 1 && (d % g || d / g <= 2))
        return refuse_option(
            k,
            "attn_dim_head is %lld, expected attn_qk_norm_groups, %lld, parts of more "
            "than 2",
            w, (long long)g);
    if (r > d)
        return refuse_option(k, "rotary_emb_dim is %lld, expected at most attn_dim_head, %lld",
                             (long long)r, w);
    if (R > H)
        return refuse_option(k, "rotate_num_heads is %lld, expected at most heads, %lld",
                             (long long)R, h);
    if (R && R < H && K < H)
        return refuse_option(k, "rotate_num_heads is %lld of %lld heads, which excludes %s",
                             (long long)R, h,
                             x->attn_one_kv_head ? "attn_one_kv_head" : "attn_kv_heads");
    if (x->mixer.latent.rope >= H)
        return refuse_option(k,
                             "attn_latent_rope_subheads is %lld, expected fewer than heads, %lld",
                             (long long)x->mixer.latent.rope, h);
    if (x->attn_use_latent_kv && !x->mixer.latent.rope && (x->rotary_pos_emb || x->rotary_xpos))
        return refuse_option(k, "attn_use_latent_kv with %s needs attn_latent_rope_subheads",
                             x->rotary_xpos ? "rotary_xpos" : "rotary_pos_emb");
    if (x->add_value_residual && x->learned_value_residual_mix != DRA_OFF && K < H)
        return refuse_option(k, "add_value_residual with a learned mix excludes %s",
                             x->attn_one_kv_head ? "attn_one_kv_head" : "attn_kv_heads");
    if (x->c.position.alibi.slopes > H)
        return refuse_option(k, "alibi_num_heads is %lld, expected at most heads, %lld",
                             (long long)x->c.position.alibi.slopes, h);
    return DRA_OK;
}

static dra_status check_positions(const checking *k)
{
    const dra_xt *x = k->x;
    const int64_t buckets = x->c.position.t5.buckets ? x->c.position.t5.buckets : 32;
    const int64_t far = x->c.position.t5.max_distance ? x->c.position.t5.max_distance : 128;
    const int64_t r = x->rotary_emb_dim ? x->rotary_emb_dim : x->attn_dim_head / 2;
    const bool    rotates = x->rotary_pos_emb || x->rotary_xpos;
    if (x->rel_pos_bias && buckets > far)
        return refuse_option(
            k, "rel_pos_num_buckets is %lld, expected at most rel_pos_max_distance, %lld",
            (long long)buckets, (long long)far);
    if (x->rotary_xpos && x->c.visible != DRA_VISIBLE_CAUSAL)
        return refuse_option(k, "rotary_xpos excludes type %s", dra_xt_types[x->c.visible]);
    if (rotates && (r < 1 || (r % 2 && r == x->attn_dim_head)))
        return refuse_option(k,
                             "rotary_emb_dim is %lld, expected channels in pairs of attn_dim_head, "
                             "%lld",
                             (long long)r, (long long)x->attn_dim_head);
    const char *causal = x->mixer.attention.forget ? "attn_data_dependent_alibi"
                         : x->attn_use_cope        ? "attn_use_cope"
                         : x->attn_selective       ? "attn_selective"
                         : x->attn_max_attend_past ? "attn_max_attend_past"
                                                   : NULL;
    if (causal && x->c.visible != DRA_VISIBLE_CAUSAL)
        return refuse_option(k, "%s excludes type %s", causal, dra_xt_types[x->c.visible]);
    if (x->dynamic_pos_bias && x->c.dim < 4)
        return refuse_option(k, "dynamic_pos_bias with dim %lld, expected 4 or more",
                             (long long)x->c.dim);
    return DRA_OK;
}

/* How many sublayers have parameters of their own. */
static int64_t count_sublayers(const dra_xt *x)
{
    const int64_t block = 2 + x->macaron + (x->cross_attend && !x->only_cross), k = x->c.sandwich;
    if (x->custom_layers[0]) return (int64_t)strlen(x->custom_layers);
    return x->c.tied_layers ? block : 2 * k + block * (x->c.depth - k);
}

static dra_status check_layout(const checking *k)
{
    const dra_xt *x = k->x;
    const char   *what = x->custom_layers[0] ? "custom_layers" : "depth";
    const bool    cross = strchr(x->custom_layers, 'c');
    if (x->custom_layers[0] && cross != x->cross_attend)
        return refuse_option(k, cross ? "custom_layers has c, which needs cross_attend"
                                      : "cross_attend needs c in custom_layers");
    if (x->c.sandwich > x->c.depth)
        return refuse_option(k, "sandwich_coef is %lld, expected at most depth, %lld",
                             (long long)x->c.sandwich, (long long)x->c.depth);
    const long long n = count_sublayers(x);
    if (x->n_shifts > 1 && x->n_shifts != n)
        return refuse_option(
            k,
            "shift_tokens has %d numbers, expected one for each of the %lld sublayers "
            "of %s",
            x->n_shifts, n, what);
    if (x->n_drops > 1 && x->n_drops != n)
        return refuse_option(k,
                             "layer_dropout has %d numbers, expected one for each of the %lld "
                             "sublayers of %s",
                             x->n_drops, n, what);
    for (int i = 0; i < x->c.n_order; i++)
        if (x->c.order[i] >= n)
            return refuse_option(
                k,
                "layers_execute_order has %lld, expected one of the %lld sublayers of "
                "%s",
                (long long)x->c.order[i], n, what);
    if (x->pre_norm == DRA_OFF && x->use_dynamic_tanh)
        return refuse_option(k, "use_dynamic_tanh needs pre_norm");
    if (x->pre_norm == DRA_OFF && (x->c.block.branch_norm || x->c.block.post_norm))
        return refuse_option(k, "%s needs pre_norm",
                             x->c.block.post_norm ? "pre_and_post_norm" : "sandwich_norm");
    return DRA_OK;
}

/* There, what stands in for the last norm without pre_norm takes no condition. */
static dra_status check_condition(const checking *k)
{
    const dra_xt *x = k->x;
    if ((x->use_adaptive_layernorm || x->use_adaptive_rmsnorm) && x->pre_norm == DRA_OFF)
        return refuse_option(k, "%s needs pre_norm",
                             x->use_adaptive_rmsnorm ? "use_adaptive_rmsnorm"
                                                     : "use_adaptive_layernorm");
    const bool used = x->use_adaptive_layernorm || x->use_adaptive_rmsnorm ||
                      x->c.block.branch_gate || x->c.condition.add;
    if (x->layer_integrate_use_softmax == DRA_OFF && !x->integrate_layers)
        return refuse_option(k, "layer_integrate_use_softmax needs integrate_layers");
    if (x->c.reinject_gate && !x->c.reinject && !x->c.condition.add)
        return refuse_option(k, "learned_reinject_input_gate needs reinject_input or in_attn_cond");
    if (!used && (x->adaptive_condition_mlp || x->c.condition.dim))
        return refuse_option(k,
                             "%s needs use_adaptive_layernorm, use_adaptive_rmsnorm or "
                             "use_adaptive_layerscale",
                             x->c.condition.dim ? "dim_condition" : "adaptive_condition_mlp");
    return DRA_OK;
}

/* Several streams take the place of other residuals; scale_residual has no effect there. */
static dra_status check_streams(const checking *k)
{
    const dra_xt *x = k->x;
    const char   *other = x->gate_residual ? "gate_residual"
                          : x->c.block.residual_factor > 0 && x->c.block.residual_factor != 1
                              ? "scale_residual_constant"
                          : x->c.unet                 ? "unet_skips"
                          : x->c.reinject             ? "reinject_input"
                          : x->c.condition.add        ? "in_attn_cond"
                          : x->c.block.residual_scale ? "scale_residual"
                          : x->resi_dual              ? "resi_dual"
                          : x->integrate_layers       ? "integrate_layers"
                          : x->c.block.post_norm      ? "pre_and_post_norm"
                                                      : NULL;
    if (x->c.block.streams > 1 && other)
        return refuse_option(k, "num_residual_streams is %lld, which excludes %s",
                             (long long)x->c.block.streams, other);
    return DRA_OK;
}

static dra_status check_image(const checking *k)
{
    const dra_xt *x = k->x;
    const bool    ordered = x->rel_pos_bias || x->dynamic_pos_bias || x->alibi_pos_bias ||
                         x->rotary_pos_emb || x->rotary_xpos || x->n_shifts;
    if (x->c.source.size % x->c.source.patch)
        return refuse_option(k, "image_size is %lld, expected a multiple of patch_size, %lld",
                             (long long)x->c.source.size, (long long)x->c.source.patch);
    if (x->c.visible != DRA_VISIBLE_BIDIRECTIONAL)
        return refuse_option(k, "attn_layers.type is %s, expected Encoder",
                             dra_xt_types[x->c.visible]);
    if (x->c.memory_tokens && ordered)
        return refuse_option(
            k, "num_register_tokens with positions of attention or shift_tokens: they "
               "come after the patches there, before them in dra");
    return DRA_OK;
}

/* There, tokens are shifted to both sides, which tells the next one; memory tokens count as
 * part of a prefix. */
static dra_status check_prefix(const checking *k)
{
    const dra_xt *x = k->x;
    if (x->c.visible != DRA_VISIBLE_PREFIX) return DRA_OK;
    if (x->n_shifts && !(x->n_shifts == 1 && !x->shift_tokens[0]))
        return refuse_option(k, "shift_tokens excludes type PrefixDecoder");
    if (x->c.memory_tokens)
        return refuse_option(k, "num_memory_tokens excludes type PrefixDecoder");
    return DRA_OK;
}

/* Options that only later releases have, and one that is broken in them: weights of a stream's
 * residuals are normalised over an axis of size 1. */
static dra_status check_release(const checking *k)
{
    if (k->x->c.block.streams > 1 && k->x->c.xt.release == DRA_XT_N)
        return refuse_option(k, "num_residual_streams needs release E");
    if (k->x->attn_swiglu_values && k->x->c.xt.release == DRA_XT_N)
        return refuse_option(k, "attn_swiglu_values needs release E");
    const dra_mixer_config *m = &k->x->mixer;
    const char             *gate = m->gate_rank     ? "attn_gate_values_rank"
                                   : m->gate.heads  ? "attn_gate_values_headwise"
                                   : m->gate.output ? "attn_output_gate"
                                                    : NULL;
    if (k->x->attn_low_rank_silu_gates && !m->gate_rank && !m->gate.output_rank)
        return refuse_option(k, "attn_low_rank_silu_gates needs attn_gate_values_rank or "
                                "attn_output_gate_rank");
    if (gate && k->x->c.xt.release != DRA_XT_N) return refuse_option(k, "%s needs release N", gate);
    if (k->x->c.block.post_norm && k->x->c.xt.release != DRA_XT_N)
        return refuse_option(k, "pre_and_post_norm needs release N");
    if (k->x->mixer.attention.sink && k->x->c.xt.release != DRA_XT_N)
        return refuse_option(k, "attn_head_learned_sink needs release N");
    return DRA_OK;
}

static dra_status check_pool(const checking *k)
{
    const dra_xt *x = k->x;
    const char   *pool = x->use_cls_token ? "use_cls_token" : "average_pool_embed";
    if (x->average_pool_embed && x->use_cls_token)
        return refuse_option(k, "average_pool_embed excludes use_cls_token");
    if (x->num_cls_tokens > 1 && !x->use_cls_token)
        return refuse_option(k, "num_cls_tokens needs use_cls_token");
    if (!x->average_pool_embed && !x->use_cls_token)
        return x->logits_dim && x->logits_dim != x->c.vocab
                   ? refuse_option(k,
                                   "logits_dim is %lld, expected num_tokens, %lld, unless with "
                                   "average_pool_embed or use_cls_token",
                                   (long long)x->logits_dim, (long long)x->c.vocab)
                   : DRA_OK;
    if (x->num_cls_tokens > 1)
        return refuse_option(k, "num_cls_tokens is %lld, expected 1", (long long)x->num_cls_tokens);
    if (x->tie_embedding) return refuse_option(k, "%s excludes tie_embedding", pool);
    if (x->c.xl.memory) return refuse_option(k, "%s excludes max_mem_len", pool);
    if (x->use_cls_token && x->c.visible != DRA_VISIBLE_BIDIRECTIONAL)
        return refuse_option(k,
                             "use_cls_token excludes type %s: its first token sees none after it",
                             dra_xt_types[x->c.visible]);
    return DRA_OK;
}

static dra_status check_wrapper(const checking *k)
{
    const dra_xt    *x = k->x;
    const dra_status st = check_pool(k);
    if (st != DRA_OK) return st;
    if (x->wrapper == DRA_XT_IMAGE) return check_image(k);
    if (x->wrapper == DRA_XT_XVAL && x->c.source.number_token >= x->c.vocab)
        return refuse_option(k, "numerical_token_id is %lld, expected less than num_tokens, %lld",
                             (long long)x->c.source.number_token, (long long)x->c.vocab);
    if (x->tie_embedding && x->emb_dim && x->emb_dim != x->c.dim)
        return refuse_option(k, "tie_embedding with emb_dim %lld, expected dim, %lld",
                             (long long)x->emb_dim, (long long)x->c.dim);
    const bool mixes = x->mixture_of_softmax || x->c.head.sigsoftmax;
    if ((x->average_pool_embed || x->use_cls_token) && mixes)
        return refuse_option(k, "%s excludes %s",
                             x->mixture_of_softmax ? "mixture_of_softmax" : "sigsoftmax_logits",
                             x->use_cls_token ? "use_cls_token" : "average_pool_embed");
    if (x->c.head.mixture > 0 && x->c.head.mixture != 4 && !x->mixture_of_softmax)
        return refuse_option(k, "mixture_of_softmax_k needs mixture_of_softmax");
    if (x->recycling != (x->c.recycle > 1))
        return refuse_option(k, "%s needs %s", x->recycling ? "recycling" : "recycle_steps",
                             x->recycling ? "recycle_steps" : "recycling");
    const char *once = x->c.unet                ? "attn_layers.unet_skips"
                       : x->c.block.streams > 1 ? "attn_layers.num_residual_streams"
                       : x->resi_dual           ? "attn_layers.resi_dual"
                       : x->c.xl.memory         ? "max_mem_len"
                                                : NULL;
    if (x->recycling && once) return refuse_option(k, "recycling excludes %s", once);
    if (x->c.xl.down && !x->c.xl.memory)
        return refuse_option(k, "shift_mem_down needs max_mem_len");
    if (x->c.xl.memory && x->cross_attend)
        return refuse_option(k, "max_mem_len excludes cross_attend");
    if (x->c.xl.memory && x->integrate_layers)
        return refuse_option(k, "max_mem_len excludes integrate_layers");
    if (x->c.xl.memory && (x->attn_max_attend_past || x->attn_selective))
        return refuse_option(k, "max_mem_len excludes %s",
                             x->attn_selective ? "attn_selective" : "attn_max_attend_past");
    if (x->c.xl.memory && x->c.memory_tokens)
        return refuse_option(k, "max_mem_len excludes num_memory_tokens");
    if (x->c.xl.memory && x->c.visible != DRA_VISIBLE_CAUSAL)
        return refuse_option(k, "max_mem_len excludes type %s", dra_xt_types[x->c.visible]);
    return DRA_OK;
}

dra_status dra_xt_check(const dra_xt *x, const char *place, const json_t *options, dra_error *err)
{
    const checking k = {x, place, options, json_object_get(options, "attn_layers"), err};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        if (is_on(&k, apart[i].a) && is_on(&k, apart[i].b))
            return refuse_option(&k, "%s excludes %s", apart[i].a, apart[i].b);
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (is_said(&k, &needs[i]) && !is_on(&k, needs[i].b))
            return refuse_option(&k, "%s needs %s", needs[i].a, needs[i].b);
    dra_status st = check_heads(&k);
    if (st == DRA_OK) st = check_positions(&k);
    if (st == DRA_OK) st = check_layout(&k);
    if (st == DRA_OK) st = check_prefix(&k);
    if (st == DRA_OK) st = check_release(&k);
    if (st == DRA_OK) st = check_streams(&k);
    if (st == DRA_OK) st = check_condition(&k);
    return st == DRA_OK ? check_wrapper(&k) : st;
}
