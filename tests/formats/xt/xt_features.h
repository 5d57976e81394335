/* The options of x-transformers one by one, for tests that hold for all of them. */
#ifndef DRA_TESTS_FORMATS_XT_XT_FEATURES_H
#define DRA_TESTS_FORMATS_XT_XT_FEATURES_H

#include "xt_recipe.h"

typedef enum xt_kind { XT_BOTH, XT_DECODERS, XT_ENCODERS } xt_kind;

typedef struct xt_feature {
    const char *name, *top, *stack;
    xt_kind     kind;
    bool        ordered;   /* it makes the order of tokens matter, besides learned positions */
    bool        no_depth;  /* the list says how deep it is */
    bool        sees_pads; /* padded tokens reach others */
} xt_feature;

static const xt_feature xt_features[] = {
    {"plain", "", ""},
    {"one table for both ends", ", 'tie_embedding': true", ""},
    {"F16 another width", ", 'emb_dim': 12", ""},
    {"F17 no positions", ", 'use_abs_pos_emb': false", ""},
    {"F18 length 1", ", 'l2norm_embed': true", ""},
    {"F19 norm of embeddings", ", 'post_emb_norm': true", ""},
    {"F20 memory tokens", ", 'num_memory_tokens': 3", ""},
    {"F22 scale norm", "", ", 'use_scalenorm': true"},
    {"F23 rms norm", "", ", 'use_rmsnorm': true"},
    {"F24 simple rms norm", "", ", 'use_simple_rmsnorm': true"},
    {"F26 glu", "", ", 'ff_glu': true"},
    {"F27 swish", "", ", 'ff_glu': true, 'ff_swish': true"},
    {"F28 relu squared", "", ", 'ff_relu_squared': true"},
    {"F29 no bias", "", ", 'ff_no_bias': true"},
    {"F30 norm after the activation", "", ", 'ff_post_act_ln': true"},
    {"F32 flash", "", ", 'attn_flash': true"},
    {"F33 learned keys", "", ", 'attn_num_mem_kv': 3"},
    {"F34 top-k", "", ", 'attn_sparse_topk': 2"},
    {"F35 top-k, straight", "",
     ", 'attn_sparse_topk': 3, 'attn_sparse_topk_straight_through': true"},
    {"F36 hard", "", ", 'attn_hard': true"},
    {"F37 talking heads", "", ", 'attn_pre_talking_heads': true, 'attn_post_talking_heads': true"},
    {"F38 one key head", "", ", 'attn_one_kv_head': true"},
    {"F39 grouped heads", "", ", 'attn_kv_heads': 2"},
    {"F40 attention on attention", "", ", 'attn_on_attn': true"},
    {"F41 gated values", "", ", 'attn_gate_values': true"},
    {"F42 head scale", "", ", 'attn_head_scale': true"},
    {"F43 cosine similarity", "", ", 'attn_qk_norm': true"},
    {"F44 in groups", "", ", 'attn_qk_norm': true, 'attn_qk_norm_groups': 2"},
    {"F46 with scales", "", ", 'attn_qk_norm': true, 'attn_qk_norm_dim_scale': true"},
    {"F47 residual attention", "", ", 'residual_attn': true"},
    {"F49 T5", "", ", 'rel_pos_bias': true", .ordered = true},
    {"F50 rotary", "", ", 'rotary_pos_emb': true", .ordered = true},
    {"F51 rotary, two heads", "", ", 'rotary_pos_emb': true, 'rotate_num_heads': 2",
     .ordered = true},
    {"F52 xPos", "", ", 'rotary_xpos': true, 'rotary_xpos_scale_base': 16", XT_DECODERS,
     .ordered = true},
    {"F54 dynamic bias", "", ", 'dynamic_pos_bias': true", .ordered = true},
    {"F55 dynamic bias, log", "",
     ", 'dynamic_pos_bias': true, 'dynamic_pos_bias_log_distance': true", .ordered = true},
    {"F56 alibi", "", ", 'alibi_pos_bias': true", .ordered = true},
    {"F57 alibi, three heads", "", ", 'alibi_pos_bias': true, 'alibi_num_heads': 3",
     .ordered = true},
    {"F58 post-norm", "", ", 'pre_norm': false"},
    {"F59 sandwich order", "", ", 'sandwich_coef': 1"},
    {"F60 tied", "", ", 'weight_tie_layers': true"},
    {"F60 an order", "", ", 'custom_layers': ['a', 'f', 'a'], 'layers_execute_order': [0, 1, 0, 2]",
     .no_depth = true},
    {"F61 macaron", "", ", 'macaron': true"},
    {"F62 gated residual", "", ", 'gate_residual': true"},
    {"F63 scaled residual", "", ", 'scale_residual': true"},
    {"F64 sandwich norm", "", ", 'sandwich_norm': true"},
    {"F65 ResiDual", "", ", 'resi_dual': true"},
    {"F66 ResiDual, scaled", "", ", 'resi_dual': true, 'resi_dual_scale': 0.1"},
    {"F67 token shift", "", ", 'shift_tokens': 1", .ordered = true, .sees_pads = true},
    {"F67 token shifts", "", ", 'shift_tokens': [1, 0, 2, 1]", .ordered = true, .sees_pads = true},
    {"F71 to F74 dropout, not learning", ", 'emb_dropout': 0.5",
     ", 'attn_dropout': 0.5, 'ff_dropout': 0.5, 'layer_dropout': 0.5"},
    {"memory tokens, talking heads, dynamic bias, shift, grouped heads", ", 'num_memory_tokens': 2",
     ", 'attn_pre_talking_heads': true, 'dynamic_pos_bias': true, 'shift_tokens': 1, "
     "'attn_kv_heads': 2",
     .ordered = true, .sees_pads = true},
    {"T5, residual attention, learned keys, top-k", "",
     ", 'rel_pos_bias': true, 'residual_attn': true, 'attn_num_mem_kv': 2, 'attn_sparse_topk': 4",
     .ordered = true},
};

static inline bool xt_has(const xt_feature *f, bool decoder)
{
    return f->kind == XT_BOTH || f->kind == (decoder ? XT_DECODERS : XT_ENCODERS);
}

static inline recipe xt_feature_open(const xt_feature *f, bool decoder)
{
    const char *shape = decoder ? XT_DECODER : XT_ENCODER;
    if (f->no_depth) shape = decoder ? XT_NO_DEPTH : "'type': 'Encoder', " XT_HEADS;
    return recipe_open(f->top, shape, f->stack);
}

/* As a test of each: rows of a group, named by what they test. */
static inline int xt_each_feature(const char *group, void (*test)(void **), bool decoders,
                                  bool encoders)
{
    static struct CMUnitTest tests[2 * COUNT(xt_features)];
    static xt_feature        kinds[2 * COUNT(xt_features)];
    static char              names[2 * COUNT(xt_features)][120];
    size_t                   n = 0;
    for (size_t i = 0; i < COUNT(xt_features); i++)
        for (int decoder = 0; decoder < 2; decoder++) {
            if (!(decoder ? decoders : encoders) || !xt_has(&xt_features[i], decoder)) continue;
            kinds[n] = xt_features[i];
            kinds[n].kind = decoder ? XT_DECODERS : XT_ENCODERS;
            snprintf(names[n], sizeof names[n], "%s: %s, %s", group, xt_features[i].name,
                     decoder ? "decoder" : "encoder");
            tests[n] = (struct CMUnitTest){names[n], test, NULL, NULL, &kinds[n]};
            n++;
        }
    return _cmocka_run_group_tests(group, tests, n, NULL, NULL);
}

#endif
