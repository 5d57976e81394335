/* Options of x-transformers as tables: their names, and where each is kept. */
#include <stddef.h>
#include <string.h>

#include "formats/xt/xt.h"

/* ---- what there is --------------------------------------------------------------------------- */

enum { MOST = 1 << 20, DEPTH_MOST = 1 << 12, POSITION_LAYERS = 8 };

#define AT(f) offsetof(dra_xt, f)
#define INT(option, f, lo, hi)                                                                     \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_INT, .offset = AT(f), .min = lo, .max = hi               \
    }
#define REAL(option, f, lo, hi)                                                                    \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_REAL, .offset = AT(f), .min = lo, .max = hi              \
    }
#define BOOL(option, f)                                                                            \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_BOOL, .offset = AT(f)                                    \
    }
#define SWITCH(option, f)                                                                          \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_SWITCH, .offset = AT(f)                                  \
    }
#define CHOICE(option, f, list)                                                                    \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_CHOICE, .offset = AT(f), .choices = list                 \
    }
#define LIST(option, k, f, count, hi)                                                              \
    {                                                                                              \
        .name = option, .kind = k, .offset = AT(f), .given = AT(count), .max = hi,                 \
        .most = DRA_SUBLAYERS_MOST                                                                 \
    }

const char *const        dra_xt_types[] = {"Decoder", "Encoder", "PrefixDecoder", NULL};
static const char *const letters[] = {"acf", NULL};

/* In the order in which they are written. */
static const dra_field stack_fields[] = {
    CHOICE("type", c.visible, dra_xt_types),
    INT("dim", c.dim, 1, MOST),
    INT("depth", c.depth, 1, DEPTH_MOST),
    INT("heads", c.heads, 1, MOST),
    BOOL("use_scalenorm", use_scalenorm),
    BOOL("use_rmsnorm", use_rmsnorm),
    BOOL("use_simple_rmsnorm", use_simple_rmsnorm),
    BOOL("reinject_input", c.reinject),
    BOOL("learned_reinject_input_gate", c.reinject_gate),
    BOOL("in_attn_cond", c.condition.add),
    BOOL("unet_skips", c.unet),
    BOOL("integrate_layers", integrate_layers),
    SWITCH("layer_integrate_use_softmax", layer_integrate_use_softmax),
    BOOL("pre_and_post_norm", c.block.post_norm),
    BOOL("use_dynamic_tanh", use_dynamic_tanh),
    REAL("dynamic_tanh_init_alpha", c.norm_alpha, 1e-6, 1e6),
    SWITCH("norm_add_unit_offset", norm_add_unit_offset),
    SWITCH("pre_norm", pre_norm),
    BOOL("sandwich_norm", c.block.branch_norm),
    BOOL("resi_dual", resi_dual),
    REAL("resi_dual_scale", c.block.dual_scale, 1e-6, 1),
    BOOL("gate_residual", gate_residual),
    BOOL("scale_residual", c.block.residual_scale),
    REAL("scale_residual_constant", c.block.residual_factor, 1e-6, 1e6),
    BOOL("macaron", macaron),
    INT("sandwich_coef", c.sandwich, 1, DEPTH_MOST),
    BOOL("weight_tie_layers", c.tied_layers),
    {.name = "custom_layers",
     .kind = DRA_FIELD_TEXT,
     .away = true,
     .offset = AT(custom_layers),
     .choices = letters,
     .most = DRA_SUBLAYERS_MOST + 1},
    LIST("layers_execute_order", DRA_FIELD_INTS, c.order, c.n_order, DRA_SUBLAYERS_MOST - 1),
    LIST("shift_tokens", DRA_FIELD_INTS, shift_tokens, n_shifts, MOST),
    LIST("layer_dropout", DRA_FIELD_REALS, layer_dropout, n_drops, 0.999),
    BOOL("cross_attend", cross_attend),
    BOOL("only_cross", only_cross),
    BOOL("residual_attn", mixer.attention.residual_scores),
    BOOL("cross_residual_attn", cross.attention.residual_scores),
    BOOL("rel_pos_bias", rel_pos_bias),
    INT("rel_pos_num_buckets", c.position.t5.buckets, 4, MOST),
    INT("rel_pos_max_distance", c.position.t5.max_distance, 1, MOST),
    BOOL("dynamic_pos_bias", dynamic_pos_bias),
    BOOL("dynamic_pos_bias_log_distance", c.position.dynamic.log),
    INT("dynamic_pos_bias_mlp_depth", c.position.dynamic.layers, 1, POSITION_LAYERS),
    BOOL("alibi_pos_bias", alibi_pos_bias),
    INT("alibi_num_heads", c.position.alibi.slopes, 1, MOST),
    BOOL("rotary_pos_emb", rotary_pos_emb),
    INT("rotary_emb_dim", rotary_emb_dim, 2, MOST),
    REAL("rotary_interpolation_factor", c.position.turn.stretch, 1, 1e6),
    BOOL("rotary_xpos", rotary_xpos),
    REAL("rotary_xpos_scale_base", c.position.turn.xpos_base, 1e-3, 1e12),
    INT("rotate_num_heads", c.position.heads, 1, MOST),
    SWITCH("disable_abs_pos_emb", disable_abs_pos_emb),
    BOOL("attn_flash", c.xt.flash),
    INT("attn_dim_head", attn_dim_head, 1, MOST),
    REAL("attn_dropout", c.attention_dropout, 0, 0.999),
    BOOL("attn_one_kv_head", attn_one_kv_head),
    INT("attn_kv_heads", mixer.kv_heads, 1, MOST),
    INT("attn_num_mem_kv", mixer.attention.mem_kv, 0, MOST),
    INT("attn_sparse_topk", mixer.attention.topk, 1, MOST),
    BOOL("attn_sparse_topk_straight_through", mixer.attention.topk_straight),
    BOOL("attn_hard", mixer.attention.hard),
    BOOL("attn_pre_talking_heads", mixer.attention.talk_before),
    BOOL("attn_post_talking_heads", mixer.attention.talk_after),
    BOOL("attn_on_attn", mixer.out_glu),
    BOOL("attn_gate_values", attn_gate_values),
    BOOL("attn_swiglu_values", attn_swiglu_values),
    BOOL("attn_gate_value_heads", mixer.head_gate),
    INT("attn_gate_values_rank", mixer.gate_rank, 1, MOST),
    BOOL("attn_gate_values_headwise", mixer.gate.heads),
    BOOL("attn_output_gate", mixer.gate.output),
    INT("attn_output_gate_rank", mixer.gate.output_rank, 1, MOST),
    BOOL("attn_output_gate_headwise", mixer.gate.output_heads),
    SWITCH("attn_low_rank_silu_gates", attn_low_rank_silu_gates),
    BOOL("attn_head_scale", mixer.head_scale),
    BOOL("attn_qk_norm", mixer.qk_norm),
    INT("attn_qk_norm_groups", mixer.qk_groups, 1, MOST),
    REAL("attn_qk_norm_scale", attn_qk_norm_scale, 1e-6, 1e6),
    BOOL("attn_qk_norm_dim_scale", attn_qk_norm_dim_scale),
    REAL("ff_mult", ff_mult, 1e-3, 1e6),
    BOOL("ff_glu", c.ff.gated),
    BOOL("ff_glu_mult_bias", c.ff.gate_scale),
    BOOL("ff_swish", ff_swish),
    BOOL("ff_relu_squared", ff_relu_squared),
    BOOL("ff_no_bias", ff_no_bias),
    BOOL("ff_post_act_ln", c.ff.act_norm),
    REAL("ff_dropout", c.ff.dropout, 0, 0.999),
    BOOL("attn_softclamp_logits", attn_softclamp_logits),
    REAL("attn_logit_softclamp_value", attn_logit_softclamp_value, 1e-3, 1e6),
    BOOL("attn_head_learned_sink", mixer.attention.sink),
    BOOL("attn_data_dependent_alibi", mixer.attention.forget),
    BOOL("attn_use_latent_kv", attn_use_latent_kv),
    INT("attn_dim_latent_kv", mixer.latent.kv, 1, MOST),
    BOOL("attn_use_latent_q", attn_use_latent_q),
    INT("attn_dim_latent_q", mixer.latent.q, 1, MOST),
    INT("attn_latent_rope_subheads", mixer.latent.rope, 1, MOST),
    BOOL("attn_l2_distance", mixer.attention.l2),
    BOOL("attn_laser", mixer.attention.laser),
    REAL("attn_laser_softclamp_value", mixer.attention.laser_cap, 1e-3, 80),
    INT("attn_max_attend_past", attn_max_attend_past, 1, MOST - 1),
    BOOL("attn_selective", attn_selective),
    BOOL("attn_use_cope", attn_use_cope),
    INT("attn_cope_max_pos", mixer.attention.cope, 1, MOST),
    BOOL("attn_sigmoid", mixer.attention.sigmoid),
    BOOL("attn_add_zero_kv", mixer.attention.zero_kv),
    BOOL("add_value_residual", add_value_residual),
    SWITCH("learned_value_residual_mix", learned_value_residual_mix),
    INT("num_residual_streams", c.block.streams, 1, 64),
    BOOL("use_layerscale", c.block.branch_scale),
    REAL("layerscale_init_value", c.block.branch_scale_start, -1e6, 1e6),
    BOOL("zero_init_branch_output", c.block.zero_out),
    BOOL("use_adaptive_layernorm", use_adaptive_layernorm),
    BOOL("use_adaptive_rmsnorm", use_adaptive_rmsnorm),
    BOOL("use_adaptive_layerscale", c.block.branch_gate),
    INT("dim_condition", c.condition.dim, 1, MOST),
    BOOL("adaptive_condition_mlp", adaptive_condition_mlp),
    INT("adaptive_condition_mlp_expansion", c.condition.expand, 1, 64),
    BOOL("softclamp_output", softclamp_output),
    REAL("softclamp_output_value", softclamp_output_value, 1e-3, 1e6),
    {0}};

#define STACK                                                                                      \
    {                                                                                              \
        .name = "attn_layers", .kind = DRA_FIELD_OBJECT, .fields = stack_fields                    \
    }

static const dra_field token_fields[] = {INT("num_tokens", c.vocab, 1, MOST),
                                         INT("max_seq_len", c.context, 1, MOST),
                                         INT("emb_dim", emb_dim, 1, MOST),
                                         REAL("emb_dropout", c.embed_dropout, 0, 0.999),
                                         BOOL("l2norm_embed", c.embed_unit),
                                         BOOL("post_emb_norm", post_emb_norm),
                                         INT("num_memory_tokens", c.memory_tokens, 0, MOST),
                                         SWITCH("use_abs_pos_emb", use_abs_pos_emb),
                                         BOOL("tie_embedding", tie_embedding),
                                         INT("max_mem_len", c.xl.memory, 0, MOST),
                                         INT("shift_mem_down", c.xl.down, 0, DRA_SUBLAYERS_MOST),
                                         BOOL("average_pool_embed", average_pool_embed),
                                         BOOL("use_cls_token", use_cls_token),
                                         INT("num_cls_tokens", num_cls_tokens, 1, MOST),
                                         INT("logits_dim", logits_dim, 1, MOST),
                                         BOOL("sigsoftmax_logits", c.head.sigsoftmax),
                                         BOOL("mixture_of_softmax", mixture_of_softmax),
                                         INT("mixture_of_softmax_k", c.head.mixture, 1, 1024),
                                         BOOL("recycling", recycling),
                                         INT("recycle_steps", c.recycle, 2, 64),
                                         STACK,
                                         {0}};

static const dra_field continuous_fields[] = {INT("dim_in", c.source.dim, 1, MOST),
                                              INT("dim_out", c.head.dim, 1, MOST),
                                              INT("max_seq_len", c.context, 1, MOST),
                                              REAL("emb_dropout", c.embed_dropout, 0, 0.999),
                                              BOOL("post_emb_norm", post_emb_norm),
                                              INT("num_memory_tokens", c.memory_tokens, 0, MOST),
                                              SWITCH("use_abs_pos_emb", use_abs_pos_emb),
                                              STACK,
                                              {0}};

static const dra_field xval_fields[] = {INT("num_tokens", c.vocab, 1, MOST),
                                        INT("numerical_token_id", c.source.number_token, 0, MOST),
                                        INT("max_seq_len", c.context, 1, MOST),
                                        REAL("emb_dropout", c.embed_dropout, 0, 0.999),
                                        INT("num_memory_tokens", c.memory_tokens, 0, MOST),
                                        SWITCH("use_abs_pos_emb", use_abs_pos_emb),
                                        BOOL("tie_embedding", tie_embedding),
                                        STACK,
                                        {0}};

static const dra_field image_fields[] = {INT("image_size", c.source.size, 1, MOST),
                                         INT("patch_size", c.source.patch, 1, MOST),
                                         INT("channels", c.source.channels, 1, MOST),
                                         INT("num_classes", c.head.dim, 1, MOST),
                                         REAL("emb_dropout", c.embed_dropout, 0, 0.999),
                                         BOOL("post_emb_norm", post_emb_norm),
                                         INT("num_register_tokens", c.memory_tokens, 0, MOST),
                                         STACK,
                                         {0}};

static const dra_field bare_fields[] = {STACK, {0}};

/* ---- wrappers -------------------------------------------------------------------------------- */

const char *const dra_xt_wrappers[] = {[DRA_XT_TOKENS] = "TransformerWrapper",
                                       [DRA_XT_CONTINUOUS] = "ContinuousTransformerWrapper",
                                       [DRA_XT_XVAL] = "XValTransformerWrapper",
                                       [DRA_XT_IMAGE] = "ViTransformerWrapper",
                                       [DRA_XT_DECODER] = "Decoder",
                                       [DRA_XT_ENCODER] = "Encoder",
                                       [DRA_XT_CROSS] = "CrossAttender",
                                       [DRA_XT_PAIR] = "XTransformer",
                                       [DRA_XT_LOSSES] = "AutoregressiveWrapper",
                                       "XLAutoregressiveWrapper",
                                       "ContinuousAutoregressiveWrapper",
                                       "XValAutoregressiveWrapper",
                                       "NonAutoregressiveWrapper",
                                       NULL};

static const char *const releases[] = {"E", "N", NULL};

/* What every config may begin with. */
const dra_field dra_xt_top_fields[] = {
    CHOICE("wrapper", wrapper, dra_xt_wrappers), CHOICE("release", c.xt.release, releases), {0}};

const dra_field *dra_xt_fields(dra_xt_wrapper wrapper)
{
    static const dra_field *const tables[] = {[DRA_XT_TOKENS] = token_fields,
                                              [DRA_XT_CONTINUOUS] = continuous_fields,
                                              [DRA_XT_XVAL] = xval_fields,
                                              [DRA_XT_IMAGE] = image_fields};
    return wrapper <= DRA_XT_IMAGE ? tables[wrapper] : bare_fields;
}

const dra_field *dra_xt_stack_fields(void) { return stack_fields; }

const char *const *dra_xt_needed(dra_xt_wrapper wrapper)
{
    static const char *const needed[][5] = {
        [DRA_XT_TOKENS] = {"num_tokens", "max_seq_len", "attn_layers"},
        [DRA_XT_CONTINUOUS] = {"max_seq_len", "attn_layers"},
        [DRA_XT_XVAL] = {"num_tokens", "max_seq_len", "numerical_token_id", "attn_layers"},
        [DRA_XT_IMAGE] = {"image_size", "patch_size", "attn_layers"}};
    static const char *const bare[] = {"attn_layers", NULL};
    return wrapper <= DRA_XT_IMAGE ? needed[wrapper] : bare;
}

bool dra_xt_is_known(const dra_field *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0) table++;
    return table->name != NULL;
}
