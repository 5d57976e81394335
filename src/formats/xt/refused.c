/* Options of x-transformers that dra does not have. They are known, so that an error can say why
 * they are refused; with the value they have by default they ask for nothing. */
#include <string.h>

#include "formats/xt/xt.h"

typedef struct group {
    const char        *why;
    const char *const *names; /* one that ends in "*" stands for all that begin so */
} group;

static const char *const cross[] = {"attn_dim_context", NULL};
static const char *const forgetting[] = {"mask_prob", NULL};
static const char *const losses[] = {
    "ignore_index", "pad_value",   "equal_loss_weight_batch",   "numerical_loss_weight",
    "loss_fn",      "use_l1_loss", "cross_attn_tokens_dropout", NULL};
static const char *const types[] = {"causal", NULL};
static const char *const models[] = {"enc_*",
                                     "dec_*",
                                     "encoder",
                                     "decoder",
                                     "tie_token_emb",
                                     "image_size",
                                     "patch_size",
                                     "num_classes",
                                     "num_register_tokens",
                                     "dim_in",
                                     "dim_out",
                                     "numerical_token_id",
                                     "channels",
                                     "net",
                                     "context",
                                     "src_prepend",
                                     NULL};
static const char *const later[] = {"add_continuous_pred_head",
                                    "attn_aggregated_residuals",
                                    "attn_cog_signed",
                                    "attn_flash_pack_seq",
                                    "attn_gumbel_softmax*",
                                    "attn_k_rmsnorm",
                                    "attn_orthog_projected_values",
                                    "attn_pool",
                                    "attn_qk_rmsnorm",
                                    "attn_sublayer_dropout",
                                    "attn_use_rel_proj_pos_bias",
                                    "attn_value_rmsnorm",
                                    "ff_custom_activation",
                                    "ff_deep_embed",
                                    "ff_softclamp_*",
                                    "ff_solu",
                                    "ff_sublayer_dropout",
                                    "layer_schedule",
                                    "looped",
                                    "mv_split_residual",
                                    "num_attn_pool_queries",
                                    "orthog_residual",
                                    "polar_pos_emb",
                                    "repeat_blocks",
                                    "use_derf",
                                    NULL};
static const char *const code[] = {"attn_custom_attn_fn", "attn_hybrid_*", "rel_pos_kwargs",
                                   "residual_fn_kwargs",  "attn_onnxable", NULL};
static const char *const shapes[] = {"embed_num_tokens",
                                     "num_output_heads",
                                     "return_only_embed",
                                     "squeeze_out_last_dim",
                                     "attn_dim_out",
                                     "ff_dim_out",
                                     "memory_tokens_interspersed_every",
                                     NULL};
static const char *const missing[] = {
    "attn_cope_talking_heads",     "attn_cope_soft_onehot_pos",
    "attn_data_dependent_alibi_*", "attn_pre_scale_post_talking_heads",
    "attn_value_dim_head",         "attn_zero_init_output",
    "ff_zero_init_output",         "dynamic_pos_bias_norm",
    "emb_frac_gradient",           "par_ratio",
    "rotary_base_rescale_factor",  "scaled_sinu_pos_emb",
    "qkv_receive_diff_residuals",  NULL};
static const char *const recycling[] = {"train_max_recycle_steps", NULL};
static const char *const idle[] = {"pre_norm_has_final_norm", NULL};
static const char *const z_loss[] = {"add_attn_z_loss", "attn_z_loss_weight", NULL};

static const group groups[] = {
    {"the width of a context is cross_attn_dim_context", cross},
    {"it is an option of training, dra train --forgetful-mask P", forgetting},
    {"it belongs to the loss around a model, not to the model", losses},
    {"it follows from type", types},
    {"it belongs to another wrapper", models},
    {"it is of releases after 2.1.37", later},
    {"its value is code, or it changes no number", code},
    {"it changes what calls take or give, not what a stack computes", shapes},
    {"dra does not have it yet, see docs/x-transformers.md", missing},
    {"dra trains with as many steps as it reads with, recycle_steps", recycling},
    {"it does nothing there", idle},
    {"it is an option of training, dra train --aux-loss z_loss=W", z_loss},
};

/* Defaults other than false, 0 and null. */
static const struct {
    const char *name;
    double      value; /* 1: also true */
} defaults[] = {
    {"ignore_index", -100},         {"numerical_loss_weight", 1},
    {"num_output_heads", 1},        {"emb_frac_gradient", 1},
    {"attn_z_loss_weight", 1e-4},   {"num_attn_pool_queries", 1},
    {"train_max_recycle_steps", 4}, {"rotary_base_rescale_factor", 1},
    {"pre_norm_has_final_norm", 1}, {"layer_integrate_use_softmax", 1},
};

static double default_of(const char *name)
{
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (strcmp(name, defaults[i].name) == 0) return defaults[i].value;
    return 0;
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++) {
        const size_t n = strlen(*names) - 1;
        if (strcmp(name, *names) == 0) return true;
        if ((*names)[n] == '*' && strncmp(name, *names, n) == 0) return true;
    }
    return false;
}

const char *dra_xt_refusal(const char *name, const json_t *value, bool *neutral)
{
    const double is = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    const bool   plain = json_is_boolean(value) || json_is_number(value);
    *neutral = false;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (!is_one_of(name, groups[i].names)) continue;
        *neutral = plain && is == default_of(name);
        return groups[i].why;
    }
    return NULL;
}

bool dra_xt_other_class(const char *name)
{
    static const char *const classes[] = {"MultiInputTransformerWrapper",
                                          "CrossAttender",
                                          "PrefixDecoder",
                                          "AttentionLayers",
                                          "TransformerBlock",
                                          "AttentionPool",
                                          NULL};
    return is_one_of(name, classes);
}
