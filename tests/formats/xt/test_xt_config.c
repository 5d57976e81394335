/* Options of x-transformers: what each means in dra's config, that it is written as it was read,
 * and what is refused, by name. */
#include <jansson.h>
#include <math.h>

#include "model/fixtures.h"
#include "xt_text.h"

static json_t *json_of(const char *text)
{
    json_error_t why;
    json_t      *v = json_loads(text, 0, &why);
    if (!v) fail_msg("%s: %s", text, why.text);
    return v;
}

/* The config as JSON, in the names of a format; to be released. */
static json_t *dump(const dra_model_config *from, dra_format_kind format)
{
    static char      text[20000];
    dra_model_config c = *from;
    c.format = format;
    const size_t n = dra_model_config_text(&c, text, sizeof text);
    assert_true(n > 0 && n < sizeof text);
    return json_of(text);
}

/* All that `part` says, `whole` says, too; null: it says nothing. */
static bool is_part(const json_t *part, const json_t *whole)
{
    const char *key;
    json_t     *v;
    if (!json_is_object(part)) {
        if (json_is_number(part) && json_is_number(whole))
            return fabs(json_number_value(part) - json_number_value(whole)) <
                   1e-5 * (1 + fabs(json_number_value(part)));
        return json_equal(part, whole);
    }
    json_object_foreach((json_t *)(uintptr_t)part, key, v)
    {
        const json_t *other = json_object_get(whole, key);
        if (json_is_null(v) ? other != NULL : !is_part(v, other)) return false;
    }
    return true;
}

/* ---- both ways ------------------------------------------------------------------------------- */

typedef struct meaning {
    const char *top, *shape, *stack; /* options */
    const char *dra;                 /* what the config has then, among other things */
} meaning;

static const meaning meanings[] = {
    /* F01, F03, F16, F21, F25: a plain decoder */
    {"", XT_DECODER, "",
     "{'vocab': 10, 'context': 8, 'dim': 16, 'depth': 2, 'heads': 4, 'key_dim': 8, 'value_dim': 8, "
     "'positions': 'learned', 'position': {'scale': 0.25}, 'norm': 'layer', 'norm_bias': false, "
     "'norm_offset': true, 'norm_gain': null, 'tied': false, 'bias': null, 'visible': null, "
     "'init': 'uniform', 'ff': {'kind': 'erf', 'dim': null, 'bias': 'all', 'gated': null}, "
     "'block': null, 'layout': null, 'embed_norm': null}"},
    /* F02 */
    {"", XT_ENCODER, "", "{'visible': 'bidirectional'}"},
    {"", "'type': 'Decoder', 'dim': 16, 'depth': 2, 'heads': 2", "",
     "{'heads': 2, 'key_dim': 64, 'value_dim': 64}"},
    {", 'emb_dim': 4", XT_DECODER, "", "{'embed_dim': 4, 'position': {'scale': 0.5}}"},
    {", 'use_abs_pos_emb': false", XT_DECODER, "", "{'positions': null, 'position': null}"},
    {", 'l2norm_embed': true", XT_DECODER, "",
     "{'embed_unit': true, 'positions': 'learned', 'position': null}"},
    {", 'post_emb_norm': true", XT_DECODER, "", "{'embed_norm': true, 'embed_norm_kind': 'layer'}"},
    {", 'num_memory_tokens': 3", XT_DECODER, "", "{'memory_tokens': 3}"},
    {", 'max_mem_len': 6, 'shift_mem_down': 1", XT_DECODER, "", "{'xl': {'memory': 6, 'down': 1}}"},
    {", 'emb_dropout': 0.25, 'tie_embedding': true", XT_DECODER, "",
     "{'embed_dropout': 0.25, 'tied': true}"},
    /* F22 to F24 */
    {"", XT_DECODER, ", 'use_scalenorm': true",
     "{'norm': 'unit', 'norm_gain': 'scalar', 'norm_offset': true}"},
    {"", XT_DECODER, ", 'use_rmsnorm': true",
     "{'norm': 'unit', 'norm_gain': null, 'norm_offset': true}"},
    {"", XT_DECODER, ", 'use_simple_rmsnorm': true",
     "{'norm': 'unit', 'norm_gain': 'none', 'norm_offset': null}"},
    {"", XT_DECODER, ", 'norm_add_unit_offset': false", "{'norm': 'layer', 'norm_offset': null}"},
    /* F26 to F30 */
    {"", XT_DECODER, ", 'ff_glu': true",
     "{'ff': {'kind': 'erf', 'gated': true, 'bias': 'all', 'dim': null}}"},
    {"", XT_DECODER, ", 'ff_swish': true", "{'ff': {'kind': 'silu', 'gated': null}}"},
    {"", XT_DECODER, ", 'ff_relu_squared': true", "{'ff': {'kind': 'relu2'}}"},
    {"", XT_DECODER, ", 'ff_no_bias': true", "{'ff': {'bias': 'none'}}"},
    {"", XT_DECODER, ", 'ff_no_bias': true, 'ff_glu': true, 'ff_swish': true",
     "{'ff': {'bias': 'in', 'gated': true, 'kind': 'silu'}}"},
    {"", XT_DECODER, ", 'ff_post_act_ln': true, 'ff_dropout': 0.125, 'ff_mult': 2",
     "{'ff': {'act_norm': true, 'dropout': 0.125, 'dim': 32}}"},
    /* F32 to F42 */
    {"", XT_DECODER, ", 'attn_flash': true, 'attn_dropout': 0.5", "{'attention_dropout': 0.5}"},
    {"", XT_DECODER, ", 'attn_num_mem_kv': 3", "{'mixer': {'mem_kv': 3, 'mem_whole': null}}"},
    {"", XT_DECODER, ", 'attn_sparse_topk': 2, 'attn_sparse_topk_straight_through': true",
     "{'mixer': {'topk': 2, 'topk_straight': true}}"},
    {"", XT_DECODER, ", 'attn_hard': true", "{'mixer': {'hard': true}}"},
    {"", XT_DECODER, ", 'attn_pre_talking_heads': true, 'attn_post_talking_heads': true",
     "{'mixer': {'talk_before': true, 'talk_after': true}}"},
    {"", XT_DECODER, ", 'attn_one_kv_head': true", "{'mixer': {'kv_heads': 1, 'kv_order': 'mod'}}"},
    {"", XT_DECODER, ", 'attn_kv_heads': 2", "{'mixer': {'kv_heads': 2, 'kv_order': 'mod'}}"},
    {"", XT_ENCODER, ", 'attn_on_attn': true", "{'mixer': {'out_glu': true}}"},
    {"", XT_ENCODER, ", 'attn_gate_values': true", "{'mixer': {'gate_values': 'biased'}}"},
    {", 'release': 'N'", XT_ENCODER, ", 'attn_gate_values': true",
     "{'mixer': {'gate_values': 'plain'}}"},
    {"", XT_DECODER, ", 'attn_head_scale': true", "{'mixer': {'head_scale': true}}"},
    /* F43 to F47 */
    {"", XT_DECODER, ", 'attn_qk_norm': true",
     "{'mixer': {'qk_norm': true, 'qkv_norm': 'unit', 'qkv_gain': 'none', 'score_scale': 10}}"},
    {"", XT_DECODER, ", 'attn_qk_norm': true, 'attn_qk_norm_groups': 2, 'attn_qk_norm_scale': 4",
     "{'mixer': {'qk_groups': 2, 'score_scale': 4}}"},
    {"", XT_DECODER, ", 'attn_qk_norm': true, 'attn_qk_norm_dim_scale': true",
     "{'mixer': {'qkv_gain': 'heads', 'score_scale': 10, 'qk_gain_start': null}}"},
    {", 'release': 'N'", XT_DECODER, ", 'attn_qk_norm': true, 'attn_qk_norm_dim_scale': true",
     "{'mixer': {'qkv_gain': 'heads', 'score_scale': null, 'qk_gain_start': 1.6817928}}"},
    {"", XT_DECODER, ", 'attn_qk_norm': true, 'attn_qk_norm_groups': 2, 'attn_num_mem_kv': 3",
     "{'mixer': {'mem_whole': true}}"},
    {", 'release': 'N'", XT_DECODER,
     ", 'attn_qk_norm': true, 'attn_qk_norm_groups': 2, 'attn_num_mem_kv': 3",
     "{'mixer': {'mem_whole': null}}"},
    {"", XT_DECODER, ", 'residual_attn': true", "{'mixer': {'residual_scores': true}}"},
    /* F49 to F57; the first three have no table of positions */
    {"", XT_DECODER, ", 'rel_pos_bias': true",
     "{'positions': null, 'position': {'distance': 't5', 'distance_scale': 2.8284271}}"},
    {"", XT_ENCODER, ", 'rel_pos_bias': true, 'rel_pos_num_buckets': 8, 'rel_pos_max_distance': 20",
     "{'position': {'buckets': 8, 'max_distance': 20}}"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true",
     "{'positions': null, 'position': {'rotate': 'rotary', 'width': 4, 'base': null}}"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true, 'rotary_emb_dim': 5, 'rotate_num_heads': 2",
     "{'position': {'rotate': 'rotary', 'width': 5, 'heads': 2}}"},
    {"", XT_DECODER, ", 'rotary_xpos': true, 'rotary_xpos_scale_base': 16",
     "{'position': {'rotate': 'xpos', 'width': 4, 'xpos_base': 16}}"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true, 'disable_abs_pos_emb': false",
     "{'positions': 'learned', 'position': {'rotate': 'rotary', 'scale': 0.25}}"},
    {"", XT_DECODER,
     ", 'dynamic_pos_bias': true, 'dynamic_pos_bias_log_distance': true, "
     "'dynamic_pos_bias_mlp_depth': 3",
     "{'positions': 'learned', 'position': {'distance': 'dynamic', 'log': true, 'layers': 3}}"},
    {"", XT_ENCODER, ", 'alibi_pos_bias': true, 'alibi_num_heads': 3",
     "{'positions': 'learned', 'position': {'distance': 'alibi', 'slopes': 3}}"},
    /* F58 to F67, F72 */
    {"", XT_ENCODER, ", 'pre_norm': false", "{'block': {'norm': 'post'}}"},
    {"", XT_DECODER, ", 'sandwich_norm': true", "{'block': {'branch_norm': true}}"},
    {"", XT_DECODER, ", 'resi_dual': true, 'resi_dual_scale': 0.5",
     "{'block': {'norm': 'dual', 'dual_scale': 0.5}}"},
    {"", XT_DECODER, ", 'gate_residual': true, 'scale_residual': true",
     "{'block': {'residual': 'gru', 'residual_scale': true}}"},
    {"", XT_DECODER, ", 'macaron': true", "{'layout': 'faf', 'block': {'macaron': true}}"},
    {"", XT_ENCODER, ", 'sandwich_coef': 1", "{'sandwich': 1}"},
    {"", XT_ENCODER, ", 'weight_tie_layers': true", "{'tied_layers': true}"},
    {"", XT_NO_DEPTH, ", 'custom_layers': ['a', 'f', 'f']", "{'layout': 'aff', 'depth': 1}"},
    {"", XT_NO_DEPTH,
     ", 'custom_layers': ['a', 'f', 'a', 'f'], 'layers_execute_order': [0, 1, 0, 1, 2, 3, 2, 3]",
     "{'layout': 'afaf', 'depth': 1, 'order': [0, 1, 0, 1, 2, 3, 2, 3]}"},
    {"", XT_DECODER, ", 'shift_tokens': 1, 'layer_dropout': 0.25",
     "{'block': {'shift': 1, 'drop': 0.25}}"},
    {"", XT_DECODER, ", 'shift_tokens': [1, 0, 2, 1], 'layer_dropout': [0, 0.5, 0.25, 0]",
     "{'shifts': [1, 0, 2, 1], 'block': null}"},
    /* beyond the README */
    {"", XT_DECODER, ", 'attn_softclamp_logits': true",
     "{'mixer': {'softcap': 50, 'softcap_late': true}}"},
    {"", XT_ENCODER, ", 'attn_softclamp_logits': true, 'attn_logit_softclamp_value': 20",
     "{'mixer': {'softcap': 20, 'softcap_late': true}}"},
    {", 'release': 'N'", XT_ENCODER, ", 'attn_head_learned_sink': true",
     "{'mixer': {'sink': true}}"},
    {"", XT_DECODER, ", 'attn_add_zero_kv': true", "{'mixer': {'zero_kv': true}}"},
    {"", XT_ENCODER, ", 'attn_l2_distance': true", "{'mixer': {'l2': true}}"},
    {"", XT_ENCODER, ", 'attn_sigmoid': true", "{'mixer': {'sigmoid': true}}"},
    {"", XT_DECODER, ", 'attn_laser': true", "{'mixer': {'laser': true, 'laser_cap': null}}"},
    {"", XT_DECODER, ", 'attn_laser': true, 'attn_laser_softclamp_value': 4",
     "{'mixer': {'laser_cap': 4}}"},
    {"", XT_DECODER, ", 'attn_use_cope': true", "{'mixer': {'cope': 16}}"},
    {"", XT_DECODER, ", 'attn_use_cope': true, 'attn_cope_max_pos': 5", "{'mixer': {'cope': 5}}"},
    {"", XT_DECODER, ", 'attn_selective': true", "{'mixer': {'selective': 8}}"},
    {"", XT_DECODER, ", 'integrate_layers': true", "{'block': {'integrate': 'softmax'}}"},
    {"", XT_ENCODER, ", 'integrate_layers': true, 'layer_integrate_use_softmax': false",
     "{'block': {'integrate': 'relu'}}"},
    {", 'recycling': true, 'recycle_steps': 3", XT_DECODER, "", "{'recycle': 3}"},
    {"", XT_DECODER, ", 'attn_max_attend_past': 4",
     "{'mixer': {'retrieval': 'window', 'window': 5}}"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true, 'rotary_interpolation_factor': 2",
     "{'position': {'rotate': 'rotary', 'stretch': 2}}"},
    {"", XT_DECODER, ", 'use_dynamic_tanh': true, 'dynamic_tanh_init_alpha': 0.5",
     "{'norm': 'tanh', 'norm_alpha': 0.5, 'norm_offset': true}"},
    {"", XT_DECODER, ", 'unet_skips': true", "{'unet': true}"},
    {"", XT_DECODER, ", 'reinject_input': true, 'learned_reinject_input_gate': true",
     "{'reinject': true, 'reinject_gate': true}"},
    {"", XT_DECODER, ", 'in_attn_cond': true", "{'condition': {'add': true}}"},
    {", 'sigsoftmax_logits': true, 'mixture_of_softmax': true", XT_DECODER, "",
     "{'head': {'sigsoftmax': true, 'mixture': 4}}"},
    {"", XT_ENCODER, ", 'num_residual_streams': 4", "{'block': {'streams': 4}}"},
    {"", XT_DECODER, ", 'use_layerscale': true",
     "{'block': {'branch_scale': true, 'branch_scale_offset': true}}"},
    {"", XT_DECODER, ", 'use_layerscale': true, 'norm_add_unit_offset': false",
     "{'block': {'branch_scale': true, 'branch_scale_offset': null}}"},
    {"", XT_DECODER, ", 'use_layerscale': true, 'layerscale_init_value': 0.5",
     "{'block': {'branch_scale': true, 'branch_scale_start': 0.5}}"},
    {"", XT_ENCODER, ", 'zero_init_branch_output': true", "{'block': {'zero_out': true}}"},
    {"", XT_ENCODER, ", 'attn_use_latent_kv': true, 'attn_dim_latent_kv': 5",
     "{'mixer': {'latent_kv': 5}}"},
    {"", XT_DECODER,
     ", 'attn_use_latent_kv': true, 'attn_dim_latent_kv': 5, 'attn_use_latent_q': true, "
     "'attn_dim_latent_q': 6, 'attn_latent_rope_subheads': 2, 'rotary_pos_emb': true",
     "{'mixer': {'latent_kv': 5, 'latent_q': 6, 'latent_rope': 2}}"},
    {"", XT_DECODER, ", 'attn_data_dependent_alibi': true", "{'mixer': {'forget': true}}"},
    {"", XT_DECODER, ", 'use_adaptive_layernorm': true",
     "{'norm': 'layer', 'norm_gain': 'condition', 'norm_offset': null, 'condition': {'dim': 16}}"},
    {"", XT_ENCODER, ", 'use_adaptive_rmsnorm': true, 'dim_condition': 5",
     "{'norm': 'unit', 'norm_gain': 'condition', 'condition': {'dim': 5, 'expand': null}}"},
    {"", XT_DECODER,
     ", 'use_adaptive_layerscale': true, 'dim_condition': 5, 'adaptive_condition_mlp': true",
     "{'block': {'branch_gate': true}, 'condition': {'dim': 5, 'expand': 4}}"},
    {", 'average_pool_embed': true", XT_ENCODER, "",
     "{'head': {'kind': 'classes', 'dim': 10, 'no_bias': true}}"},
    {", 'use_cls_token': true, 'logits_dim': 5", XT_ENCODER, "",
     "{'head': {'kind': 'classes', 'dim': 5, 'pool': 'cls', 'no_bias': true}}"},
    {"", "'type': 'PrefixDecoder', 'dim': 16, 'depth': 2, 'heads': 2", ", 'rotary_pos_emb': true",
     "{'visible': 'prefix', 'position': {'rotate': 'rotary'}}"},
    {"", XT_ENCODER, ", 'add_value_residual': true", "{'mixer': {'value_residual': 'learned'}}"},
    {"", XT_DECODER, ", 'add_value_residual': true, 'learned_value_residual_mix': false",
     "{'mixer': {'value_residual': 'half'}}"},
    {"", XT_DECODER, ", 'softclamp_output': true", "{'output_softcap': 30}"},
    {"", XT_DECODER, ", 'softclamp_output': true, 'softclamp_output_value': 7",
     "{'output_softcap': 7}"},
};

static void options_mean_what_they_say(void **unused)
{
    for (size_t i = 0; i < COUNT(meanings); i++) {
        const meaning *m = &meanings[i];
        char           text[XT_TEXT], part[XT_TEXT];
        CHECK_CONFIG(c);
        dra_error err = {0};
        xt_config_of(m->top, m->shape, m->stack, text);
        expect_ok(xt_parse(text, &c, &err), &err);
        assert_int_equal(c->format, DRA_FORMAT_XT);
        snprintf(part, sizeof part, "%s", m->dra);
        xt_quotes(part);
        json_t *expected = json_of(part), *is = dump(c, DRA_FORMAT_DRA);
        if (!is_part(expected, is)) {
            char *found = json_dumps(is, 0);
            fail_msg("%s: expected %s in %s", text, part, found);
        }
        json_decref(expected);
        json_decref(is);
    }
}

static void written_as_they_were_read(void **unused)
{
    for (size_t i = 0; i < COUNT(meanings); i++) {
        const meaning *m = &meanings[i];
        char           text[XT_TEXT];
        CHECK_CONFIG(c);
        dra_error err = {0};
        xt_config_of(m->top, m->shape, m->stack, text);
        expect_ok(xt_parse(text, &c, &err), &err);
        json_t *before = json_of(text), *after = dump(c, DRA_FORMAT_XT);
        if (!json_equal(before, after)) {
            char *found = json_dumps(after, 0);
            fail_msg("%s became %s", text, found);
        }
        json_decref(before);
        json_decref(after);
    }
}

/* A config of dra's own with the same meaning becomes the same options. */
static void the_same_by_way_of_dra(void **unused)
{
    for (size_t i = 0; i < COUNT(meanings); i++) {
        const meaning *m = &meanings[i];
        char           text[XT_TEXT], own[20000];
        CHECK_CONFIG(c);
        CHECK_CONFIG(back);
        dra_error err = {0};
        if (strstr(m->stack, "attn_flash")) continue; /* says nothing about the model */
        xt_config_of(m->top, m->shape, m->stack, text);
        expect_ok(xt_parse(text, &c, &err), &err);
        c->format = DRA_FORMAT_DRA;
        dra_model_config_text(c, own, sizeof own);
        expect_ok(xt_parse(own, &back, &err), &err);
        json_t *before = json_of(text), *after = dump(back, DRA_FORMAT_XT);
        if (!json_equal(before, after)) fail_msg("%s became %s", text, json_dumps(after, 0));
        json_decref(before);
        json_decref(after);
    }
}

/* ---- other ways to say the same -------------------------------------------------------------- */

static const struct {
    const char *top, *stack;
} plain_ones[] = {
    {", 'emb_dim': null, 'tie_embedding': null", ", 'attn_kv_heads': null"},
    {", 'emb_dim': 16, 'num_memory_tokens': 0", ", 'attn_kv_heads': 4, 'attn_num_mem_kv': 0"},
    {", 'release': 'E', 'use_abs_pos_emb': true", ", 'pre_norm': true, 'ff_mult': 4.0"},
    {", 'max_mem_len': 0, 'shift_mem_down': 0", ", 'cross_attend': false, 'attn_selective': false"},
    {", 'emb_frac_gradient': 1.0", ", 'num_residual_streams': 1, 'pre_norm_has_final_norm': true"},
    {"", ", 'rel_pos_num_buckets': 32, 'attn_qk_norm_scale': 10, 'attn_qk_norm_groups': 1"},
    {"", ", 'shift_tokens': 0, 'layer_dropout': 0.0, 'attn_flash': false"},
    {"", ", 'shift_tokens': [0], 'rotary_xpos_scale_base': 512"},
    {"", ", 'learned_value_residual_mix': true, 'use_layerscale': false"},
    {"", ", 'layerscale_init_value': 0.0, 'zero_init_branch_output': false"},
    {", 'num_cls_tokens': 1, 'use_cls_token': false, 'logits_dim': 10", ""},
    {"", ", 'attn_logit_softclamp_value': 50.0, 'softclamp_output_value': 30"},
};

static void defaults_may_be_said(void **unused)
{
    char text[XT_TEXT];
    CHECK_CONFIG(c);
    CHECK_CONFIG(plain);
    dra_error err = {0};
    expect_ok(xt_parse(xt_config_of("", XT_DECODER, "", text), &plain, &err), &err);
    json_t *expected = dump(plain, DRA_FORMAT_XT);
    for (size_t i = 0; i < COUNT(plain_ones); i++) {
        xt_config_of(plain_ones[i].top, XT_DECODER, plain_ones[i].stack, text);
        check_drop_config(&c);
        expect_ok(xt_parse(text, &c, &err), &err);
        json_t *is = dump(c, DRA_FORMAT_XT);
        if (!json_equal(is, expected)) fail_msg("%s became %s", text, json_dumps(is, 0));
        json_decref(is);
    }
    json_decref(expected);
}

/* Options that belong to another one, which is said, too. */
static const struct {
    const char *with, *more;
} plain_ones_of[] = {
    {", 'rel_pos_bias': true", ", 'rel_pos_num_buckets': 32, 'rel_pos_max_distance': 128"},
    {", 'dynamic_pos_bias': true", ", 'dynamic_pos_bias_mlp_depth': 2"},
    {", 'rotary_xpos': true", ", 'rotary_xpos_scale_base': 512"},
};

static void defaults_of_options_may_be_said(void **unused)
{
    char plain[XT_TEXT], said[XT_TEXT], stack[200];
    for (size_t i = 0; i < COUNT(plain_ones_of); i++) {
        CHECK_CONFIG(a);
        CHECK_CONFIG(b);
        dra_error err = {0};
        snprintf(stack, sizeof stack, "%s%s", plain_ones_of[i].with, plain_ones_of[i].more);
        xt_config_of("", XT_DECODER, plain_ones_of[i].with, plain);
        xt_config_of("", XT_DECODER, stack, said);
        expect_ok(xt_parse(plain, &a, &err), &err);
        expect_ok(xt_parse(said, &b, &err), &err);
        json_t *expected = dump(a, DRA_FORMAT_XT), *is = dump(b, DRA_FORMAT_XT);
        if (!json_equal(is, expected)) fail_msg("%s became %s", said, json_dumps(is, 0));
        json_decref(is);
        json_decref(expected);
    }
}

static char *saved_config(const char *name)
{
    static char text[8000];
    FILE       *f = fopen(in_folder(name), "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* A folder's config keeps its spelling as long as it says the same. */
static void a_folder_keeps_its_spelling(void **unused)
{
    char text[XT_TEXT];
    CHECK_CONFIG(c);
    dra_error err = {0};
    xt_config_of(", 'release': 'N', 'num_memory_tokens': 0", XT_DECODER,
                 ", 'attn_kv_heads': 1, 'attn_flash': true, 'rotary_pos_emb': true, "
                 "'rotary_emb_dim': 4, 'shift_tokens': [1, 1, 1, 1]",
                 text);
    fixture_folder("spelling", text);
    json_t *before = json_of(text);
    expect_ok(dra_folder_config(in_folder("spelling"), &c, &err), &err);
    assert_true(c->xt.release == DRA_XT_N && c->xt.flash);
    expect_ok(dra_folder_save_config(in_folder("spelling"), c, &err), &err);
    json_t *same = json_of(saved_config("spelling/config.json"));
    assert_true(json_equal(before, same));
    /* By way of dra's own, where only what it cannot say is kept. */
    c->format = DRA_FORMAT_DRA;
    expect_ok(dra_folder_save_config_like(in_folder("own"), c, in_folder("spelling"), &err), &err);
    check_drop_config(&c);
    expect_ok(dra_folder_config(in_folder("own"), &c, &err), &err);
    assert_int_equal(c->format, DRA_FORMAT_DRA);
    c->format = DRA_FORMAT_XT;
    expect_ok(dra_folder_save_config_like(in_folder("again"), c, in_folder("own"), &err), &err);
    json_t *again = json_of(saved_config("again/config.json"));
    if (!json_equal(before, again)) fail_msg("%s", json_dumps(again, 0));
    /* Another config takes its place. */
    c->vocab = 11;
    check_mixers(c)->attention.mem_kv = 2;
    expect_ok(dra_folder_save_config(in_folder("again"), c, &err), &err);
    json_t *other = json_of(saved_config("again/config.json"));
    assert_int_equal(json_integer_value(json_object_get(other, "num_tokens")), 11);
    assert_non_null(json_object_get(json_object_get(other, "attn_layers"), "attn_num_mem_kv"));
    json_decref(before);
    json_decref(same);
    json_decref(again);
    json_decref(other);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static const struct {
    const char *top, *shape, *stack, *error; /* what its text has after the place */
} refusals[] = {
    /* unknown names */
    {", 'num_memory_token': 1", XT_DECODER, "",
     "num_memory_token is not a key; did you mean num_memory_tokens?"},
    {"", XT_DECODER, ", 'attn_flsh': true",
     "attn_layers.attn_flsh is not a key; did you mean attn_flash?"},
    {"", XT_DECODER, ", 'ff_glue': true", "attn_layers.ff_glue is not a key; did you mean ff_glu?"},
    {"", XT_DECODER, ", 'gamma': true", "attn_layers.gamma is not a key"},
    {", 'attn_flash': true", XT_DECODER, "", "attn_flash belongs into attn_layers"},
    {"", XT_DECODER, ", 'post_emb_norm': true",
     "attn_layers.post_emb_norm belongs next to attn_layers"},
    /* missing, wrong kinds */
    {"", "'dim': 16, 'depth': 2", "", "attn_layers.type is missing"},
    {"", "'type': 'Decoder', 'depth': 2", "", "attn_layers.dim is missing"},
    {"", "'type': 'Decoder', 'dim': 16", "",
     "attn_layers.depth is missing, and so is custom_layers"},
    {"", "'type': 'Decodr', 'dim': 16, 'depth': 2", "",
     "attn_layers.type is \"Decodr\", expected one of Decoder, Encoder"},
    {", 'release': 'M'", XT_DECODER, "", "release is \"M\", expected one of E, N"},
    {"", XT_DECODER, ", 'attn_flash': 1", "attn_layers.attn_flash is 1, expected true or false"},
    {"", XT_DECODER, ", 'shift_tokens': 'x'", "attn_layers.shift_tokens is \"x\", expected a list"},
    {"", XT_DECODER, ", 'sandwich_coef': 0",
     "attn_layers.sandwich_coef is 0, expected a whole number from 1"},
    {"", XT_NO_DEPTH, ", 'custom_layers': ['a', 'c', 'f']",
     "custom_layers has c, which needs cross_attend"},
    {"", XT_NO_DEPTH, ", 'custom_layers': ['a', 'x', 'f']",
     "attn_layers.custom_layers is \"axf\", expected a text"},
    {"", XT_NO_DEPTH, ", 'custom_layers': ['a', 'f'], 'cross_attend': true",
     "cross_attend needs c in custom_layers"},
    /* what dra does not have */
    {"", XT_DECODER, ", 'attn_dim_context': 8",
     "attn_layers.attn_dim_context is not supported: the width of a context is "
     "cross_attn_dim_context"},
    {"", XT_DECODER, ", 'rotary_xpos': true, 'attn_num_mem_kv': 2",
     "rotary_xpos excludes attn_num_mem_kv"},
    {", 'shift_mem_down': 1", XT_DECODER, "", "shift_mem_down needs max_mem_len"},
    {", 'max_mem_len': 6, 'num_memory_tokens': 2", XT_DECODER, "",
     "max_mem_len excludes num_memory_tokens"},
    {", 'max_mem_len': 6", XT_DECODER, ", 'cross_attend': true",
     "max_mem_len excludes cross_attend"},
    {", 'num_cls_tokens': 2", XT_DECODER, "", "num_cls_tokens needs use_cls_token"},
    {", 'max_mem_len': 6", XT_ENCODER, "", "max_mem_len excludes type Encoder"},
    {", 'mask_prob': 0.1", XT_DECODER, "",
     "mask_prob is not supported: it is an option of training, dra train --forgetful-mask P"},
    {"", XT_DECODER, ", 'causal': true",
     "attn_layers.causal is not supported: it follows from type"},
    {"", XT_ENCODER, ", 'attn_selective': true", "attn_selective excludes type Encoder"},
    {"", XT_DECODER, ", 'attn_output_gate': true", "attn_output_gate needs release N"},
    {", 'release': 'N'", XT_DECODER, ", 'attn_gate_values_rank': 3",
     "attn_gate_values_rank needs attn_gate_values"},
    {", 'release': 'N'", XT_DECODER,
     ", 'attn_output_gate': true, 'attn_low_rank_silu_gates': false",
     "attn_low_rank_silu_gates needs attn_gate_values_rank or attn_output_gate_rank"},
    {"", XT_DECODER, ", 'pre_and_post_norm': true", "pre_and_post_norm needs release N"},
    {"", XT_DECODER, ", 'integrate_layers': true, 'shift_tokens': 1",
     "integrate_layers excludes shift_tokens"},
    {"", XT_DECODER, ", 'layer_integrate_use_softmax': false",
     "layer_integrate_use_softmax needs integrate_layers"},
    {", 'recycling': true", XT_DECODER, "", "recycling needs recycle_steps"},
    {", 'recycle_steps': 2", XT_DECODER, "", "recycle_steps needs recycling"},
    {", 'recycling': true, 'recycle_steps': 2", XT_DECODER, ", 'unet_skips': true",
     "recycling excludes attn_layers.unet_skips"},
    {"", XT_DECODER, ", 'attn_selective': true, 'attn_l2_distance': true",
     "attn_selective excludes attn_l2_distance"},
    {", 'max_mem_len': 6", XT_DECODER, ", 'attn_selective': true",
     "max_mem_len excludes attn_selective"},
    {"", XT_DECODER, ", 'use_derf': true",
     "attn_layers.use_derf is not supported: it is of releases after 2.1.37"},
    {"", XT_ENCODER, ", 'attn_use_cope': true", "attn_use_cope excludes type Encoder"},
    {"", XT_DECODER, ", 'attn_sigmoid': true, 'attn_add_zero_kv': true",
     "attn_sigmoid excludes attn_add_zero_kv"},
    {"", XT_DECODER, ", 'attn_laser_softclamp_value': 4",
     "attn_laser_softclamp_value needs attn_laser"},
    {"", XT_DECODER, ", 'use_dynamic_tanh': true, 'pre_norm': false",
     "use_dynamic_tanh needs pre_norm"},
    {"", XT_DECODER, ", 'unet_skips': true, 'macaron': true", "unet_skips excludes macaron"},
    {"", XT_ENCODER, ", 'attn_max_attend_past': 2", "attn_max_attend_past excludes type Encoder"},
    {", 'mixture_of_softmax_k': 2", XT_DECODER, "",
     "mixture_of_softmax_k needs mixture_of_softmax"},
    {"", XT_DECODER, ", 'qkv_receive_diff_residuals': true",
     "attn_layers.qkv_receive_diff_residuals is not supported"},
    {", 'enc_depth': 2", XT_DECODER, "",
     "enc_depth is not supported: it belongs to another wrapper"},
    {"", "'type': 'CrossAttender', 'dim': 16, 'depth': 2", "",
     "type CrossAttender is not supported yet, expected Decoder, Encoder or PrefixDecoder"},
    {", 'use_cls_token': true", XT_DECODER, "",
     "use_cls_token excludes type Decoder: its first token sees none after it"},
    {", 'use_cls_token': true, 'average_pool_embed': true", XT_ENCODER, "",
     "average_pool_embed excludes use_cls_token"},
    {", 'use_cls_token': true, 'tie_embedding': true", XT_ENCODER, "",
     "use_cls_token excludes tie_embedding"},
    {", 'use_cls_token': true, 'num_cls_tokens': 2", XT_ENCODER, "",
     "num_cls_tokens is 2, expected 1"},
    {", 'logits_dim': 5", XT_DECODER, "",
     "logits_dim is 5, expected num_tokens, 10, unless with average_pool_embed or use_cls_token"},
    {", 'average_pool_embed': true, 'max_mem_len': 4", XT_DECODER, "",
     "average_pool_embed excludes max_mem_len"},
    {"", XT_DECODER, ", 'use_adaptive_layernorm': true, 'use_rmsnorm': true",
     "use_adaptive_layernorm excludes use_rmsnorm"},
    {"", XT_DECODER, ", 'use_adaptive_layernorm': true, 'use_adaptive_rmsnorm': true",
     "use_adaptive_layernorm excludes use_adaptive_rmsnorm"},
    {"", XT_DECODER, ", 'use_adaptive_layerscale': true, 'use_layerscale': true",
     "use_adaptive_layerscale excludes use_layerscale"},
    {"", XT_DECODER, ", 'use_adaptive_rmsnorm': true, 'pre_norm': false",
     "use_adaptive_rmsnorm needs pre_norm"},
    {"", XT_DECODER, ", 'dim_condition': 4",
     "dim_condition needs use_adaptive_layernorm, use_adaptive_rmsnorm or use_adaptive_layerscale"},
    {"", XT_DECODER, ", 'use_adaptive_rmsnorm': true, 'adaptive_condition_mlp_expansion': 2",
     "adaptive_condition_mlp_expansion needs adaptive_condition_mlp"},
    {"", "'type': 'PrefixDecoder', 'dim': 16, 'depth': 2", ", 'shift_tokens': 1",
     "shift_tokens excludes type PrefixDecoder"},
    {", 'num_memory_tokens': 2", "'type': 'PrefixDecoder', 'dim': 16, 'depth': 2", "",
     "num_memory_tokens excludes type PrefixDecoder"},
    {"", "'type': 'PrefixDecoder', 'dim': 16, 'depth': 2", ", 'rotary_xpos': true",
     "rotary_xpos excludes type PrefixDecoder"},
    {", 'max_mem_len': 4", "'type': 'PrefixDecoder', 'dim': 16, 'depth': 2", "",
     "max_mem_len excludes type PrefixDecoder"},
    {"", "'type': 'PrefixDecoder', 'dim': 16, 'depth': 2", ", 'attn_data_dependent_alibi': true",
     "attn_data_dependent_alibi excludes type PrefixDecoder"},
    /* pairs */
    {"", XT_DECODER, ", 'attn_flash': true, 'attn_pre_talking_heads': true",
     "attn_flash excludes attn_pre_talking_heads"},
    {"", XT_DECODER, ", 'attn_flash': true, 'attn_post_talking_heads': true",
     "attn_flash excludes attn_post_talking_heads"},
    {"", XT_DECODER, ", 'attn_flash': true, 'attn_sparse_topk': 2",
     "attn_flash excludes attn_sparse_topk"},
    {"", XT_DECODER, ", 'attn_flash': true, 'attn_hard': true", "attn_flash excludes attn_hard"},
    {"", XT_DECODER, ", 'attn_flash': true, 'rel_pos_bias': true",
     "attn_flash excludes rel_pos_bias"},
    {"", XT_DECODER, ", 'attn_flash': true, 'dynamic_pos_bias': true",
     "attn_flash excludes dynamic_pos_bias"},
    {"", XT_DECODER, ", 'attn_flash': true, 'residual_attn': true",
     "attn_flash excludes residual_attn"},
    {"", XT_DECODER, ", 'attn_flash': true, 'attn_softclamp_logits': true",
     "attn_flash excludes attn_softclamp_logits"},
    {", 'release': 'N'", XT_DECODER, ", 'attn_flash': true, 'attn_head_learned_sink': true",
     "attn_flash excludes attn_head_learned_sink"},
    {", 'release': 'N'", XT_DECODER, ", 'residual_attn': true, 'attn_head_learned_sink': true",
     "residual_attn excludes attn_head_learned_sink"},
    {"", XT_DECODER, ", 'add_value_residual': true, 'attn_kv_heads': 2",
     "add_value_residual with a learned mix excludes attn_kv_heads"},
    {"", XT_DECODER, ", 'attn_use_latent_kv': true", "attn_use_latent_kv needs attn_dim_latent_kv"},
    {"", XT_DECODER, ", 'attn_dim_latent_q': 4", "attn_dim_latent_q needs attn_use_latent_q"},
    {"", XT_DECODER, ", 'attn_latent_rope_subheads': 2",
     "attn_latent_rope_subheads needs attn_use_latent_kv"},
    {"", XT_DECODER,
     ", 'attn_use_latent_kv': true, 'attn_dim_latent_kv': 5, 'attn_latent_rope_subheads': 4",
     "attn_latent_rope_subheads is 4, expected fewer than heads, 4"},
    {"", XT_DECODER,
     ", 'attn_use_latent_kv': true, 'attn_dim_latent_kv': 5, 'rotary_pos_emb': true",
     "attn_use_latent_kv with rotary_pos_emb needs attn_latent_rope_subheads"},
    {"", XT_DECODER, ", 'attn_use_latent_kv': true, 'attn_dim_latent_kv': 5, 'attn_qk_norm': true",
     "attn_use_latent_kv excludes attn_qk_norm"},
    {"", XT_DECODER, ", 'attn_use_latent_kv': true, 'attn_dim_latent_kv': 5, 'attn_num_mem_kv': 1",
     "attn_use_latent_kv excludes attn_num_mem_kv"},
    {"", XT_ENCODER, ", 'attn_data_dependent_alibi': true",
     "attn_data_dependent_alibi excludes type Encoder"},
    {"", XT_DECODER, ", 'attn_data_dependent_alibi': true, 'rel_pos_bias': true",
     "attn_data_dependent_alibi excludes rel_pos_bias"},
    {"", XT_DECODER, ", 'attn_data_dependent_alibi': true, 'alibi_pos_bias': true",
     "attn_data_dependent_alibi excludes alibi_pos_bias"},
    {"", XT_DECODER, ", 'attn_data_dependent_alibi': true, 'dynamic_pos_bias': true",
     "attn_data_dependent_alibi excludes dynamic_pos_bias"},
    {"", XT_DECODER, ", 'attn_data_dependent_alibi_per_row': true",
     "attn_layers.attn_data_dependent_alibi_per_row is not supported"},
    {"", XT_DECODER, ", 'attn_head_learned_sink': true", "attn_head_learned_sink needs release N"},
    {"", XT_DECODER, ", 'resi_dual': true, 'softclamp_output': true",
     "resi_dual excludes softclamp_output"},
    {"", XT_DECODER, ", 'attn_logit_softclamp_value': 20",
     "attn_logit_softclamp_value needs attn_softclamp_logits"},
    {"", XT_DECODER, ", 'num_residual_streams': 2, 'gate_residual': true",
     "num_residual_streams is 2, which excludes gate_residual"},
    {"", XT_DECODER, ", 'num_residual_streams': 2, 'scale_residual': true",
     "num_residual_streams is 2, which excludes scale_residual"},
    {"", XT_DECODER, ", 'num_residual_streams': 2, 'resi_dual': true",
     "num_residual_streams is 2, which excludes resi_dual"},
    {", 'release': 'N'", XT_DECODER, ", 'num_residual_streams': 2",
     "num_residual_streams needs release E"},
    {"", XT_DECODER, ", 'layerscale_init_value': 0.5",
     "layerscale_init_value needs use_layerscale"},
    {"", XT_DECODER, ", 'softclamp_output_value': 20",
     "softclamp_output_value needs softclamp_output"},
    {"", XT_DECODER, ", 'use_rmsnorm': true, 'use_scalenorm': true",
     "use_scalenorm excludes use_rmsnorm"},
    {"", XT_DECODER, ", 'use_simple_rmsnorm': true, 'use_scalenorm': true",
     "use_scalenorm excludes use_simple_rmsnorm"},
    {"", XT_DECODER, ", 'use_rmsnorm': true, 'use_simple_rmsnorm': true",
     "use_rmsnorm excludes use_simple_rmsnorm"},
    {"", XT_DECODER, ", 'rel_pos_bias': true, 'dynamic_pos_bias': true",
     "rel_pos_bias excludes dynamic_pos_bias"},
    {"", XT_DECODER, ", 'rel_pos_bias': true, 'alibi_pos_bias': true",
     "rel_pos_bias excludes alibi_pos_bias"},
    {"", XT_DECODER, ", 'alibi_pos_bias': true, 'dynamic_pos_bias': true",
     "dynamic_pos_bias excludes alibi_pos_bias"},
    {"", XT_DECODER, ", 'attn_one_kv_head': true, 'attn_kv_heads': 2",
     "attn_one_kv_head excludes attn_kv_heads"},
    {"", XT_DECODER, ", 'attn_hard': true, 'attn_sparse_topk': 2",
     "attn_hard excludes attn_sparse_topk"},
    {"", XT_DECODER, ", 'weight_tie_layers': true, 'sandwich_coef': 1",
     "weight_tie_layers excludes sandwich_coef"},
    {"", XT_DECODER, ", 'weight_tie_layers': true, 'layers_execute_order': [0, 1]",
     "weight_tie_layers excludes layers_execute_order"},
    {"", XT_NO_DEPTH, ", 'weight_tie_layers': true, 'custom_layers': ['a', 'f']",
     "weight_tie_layers excludes custom_layers"},
    {"", XT_DECODER, ", 'custom_layers': ['a', 'f']", "custom_layers excludes depth"},
    {"", XT_NO_DEPTH, ", 'custom_layers': ['a', 'f'], 'sandwich_coef': 1",
     "custom_layers excludes sandwich_coef"},
    {"", XT_DECODER, ", 'resi_dual': true, 'sandwich_norm': true",
     "resi_dual excludes sandwich_norm"},
    {"", XT_DECODER, ", 'pre_norm': false, 'sandwich_norm': true", "sandwich_norm needs pre_norm"},
    {"", XT_ENCODER, ", 'rotary_xpos': true", "rotary_xpos excludes type Encoder"},
    {"", XT_DECODER, ", 'attn_qk_norm_dim_scale': true",
     "attn_qk_norm_dim_scale needs attn_qk_norm"},
    {"", XT_DECODER, ", 'attn_qk_norm_groups': 2", "attn_qk_norm_groups needs attn_qk_norm"},
    {"", XT_DECODER, ", 'attn_qk_norm_scale': 2", "attn_qk_norm_scale needs attn_qk_norm"},
    {"", XT_DECODER, ", 'attn_sparse_topk_straight_through': true",
     "attn_sparse_topk_straight_through needs attn_sparse_topk"},
    {"", XT_DECODER, ", 'resi_dual_scale': 0.5", "resi_dual_scale needs resi_dual"},
    {"", XT_DECODER, ", 'rel_pos_num_buckets': 16", "rel_pos_num_buckets needs rel_pos_bias"},
    {"", XT_DECODER, ", 'rel_pos_max_distance': 64", "rel_pos_max_distance needs rel_pos_bias"},
    {"", XT_DECODER, ", 'dynamic_pos_bias_log_distance': true",
     "dynamic_pos_bias_log_distance needs dynamic_pos_bias"},
    {"", XT_DECODER, ", 'dynamic_pos_bias_mlp_depth': 3",
     "dynamic_pos_bias_mlp_depth needs dynamic_pos_bias"},
    {"", XT_DECODER, ", 'alibi_num_heads': 3", "alibi_num_heads needs alibi_pos_bias"},
    {"", XT_DECODER, ", 'rotary_emb_dim': 4", "rotary_emb_dim needs rotary_pos_emb"},
    {"", XT_DECODER, ", 'rotate_num_heads': 2", "rotate_num_heads needs rotary_pos_emb"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true, 'rotary_xpos_scale_base': 2",
     "rotary_xpos_scale_base needs rotary_xpos"},
    /* numbers */
    {"", XT_DECODER, ", 'attn_kv_heads': 3", "heads is 4, expected a multiple of attn_kv_heads, 3"},
    {"", XT_DECODER, ", 'attn_kv_heads': 8", "heads is 4, expected a multiple of attn_kv_heads, 8"},
    {"", XT_DECODER, ", 'attn_qk_norm': true, 'attn_qk_norm_groups': 3",
     "attn_dim_head is 8, expected attn_qk_norm_groups, 3, parts"},
    {"", XT_DECODER, ", 'attn_qk_norm': true, 'attn_qk_norm_groups': 4",
     "attn_dim_head is 8, expected attn_qk_norm_groups, 4, parts of more than 2"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true, 'rotary_emb_dim': 10",
     "rotary_emb_dim is 10, expected at most attn_dim_head, 8"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true, 'rotate_num_heads': 5",
     "rotate_num_heads is 5, expected at most heads, 4"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true, 'rotate_num_heads': 2, 'attn_kv_heads': 2",
     "rotate_num_heads is 2 of 4 heads, which excludes attn_kv_heads"},
    {"", XT_DECODER, ", 'rotary_pos_emb': true, 'rotate_num_heads': 2, 'attn_one_kv_head': true",
     "rotate_num_heads is 2 of 4 heads, which excludes attn_one_kv_head"},
    {"", XT_DECODER, ", 'alibi_pos_bias': true, 'alibi_num_heads': 5",
     "alibi_num_heads is 5, expected at most heads, 4"},
    {"", XT_DECODER, ", 'rel_pos_bias': true, 'rel_pos_num_buckets': 256",
     "rel_pos_num_buckets is 256, expected at most rel_pos_max_distance, 128"},
    {"", XT_DECODER, ", 'sandwich_coef': 3", "sandwich_coef is 3, expected at most depth, 2"},
    {"", XT_DECODER, ", 'shift_tokens': [1, 0, 1]",
     "shift_tokens has 3 numbers, expected one for each of the 4 sublayers of depth"},
    {"", XT_DECODER, ", 'layer_dropout': [0.1, 0]",
     "layer_dropout has 2 numbers, expected one for each of the 4 sublayers of depth"},
    {"", XT_NO_DEPTH, ", 'custom_layers': ['a', 'f'], 'layers_execute_order': [0, 2]",
     "layers_execute_order has 2, expected one of the 2 sublayers of custom_layers"},
    /* cross-attention */
    {"", XT_DECODER, ", 'cross_attn_flash': true", "cross_attn_flash needs cross_attend"},
    {"", XT_DECODER, ", 'cross_residual_attn': true", "cross_residual_attn needs cross_attend"},
    {"", XT_DECODER, ", 'only_cross': true", "only_cross needs cross_attend"},
    {"", XT_DECODER, ", 'cross_attend': true, 'only_cross': true, 'sandwich_coef': 1",
     "only_cross excludes sandwich_coef"},
    {"", XT_DECODER, ", 'cross_attend': true, 'attn_flash': true, 'cross_residual_attn': true",
     "attn_flash excludes cross_residual_attn"},
    {"", XT_DECODER, ", 'cross_attend': true, 'cross_attn_flsh': true",
     "attn_layers.cross_attn_flsh is not a key"},
    {"", XT_DECODER, ", 'cross_attend': true, 'cross_attn_onnxable': true",
     "attn_layers.cross_attn_onnxable is not supported: its value is code"},
    {"", XT_DECODER, ", 'cross_attend': true, 'cross_attn_dropout': 0.5",
     "attn_layers.cross_attn_dropout is not supported: dra has one dropout"},
    {"", XT_DECODER, ", 'cross_attend': true, 'cross_attn_dim_context': 'x'",
     "attn_layers.cross_attn_dim_context: expected a whole number"},
    {"", XT_DECODER, ", 'cross_attend': true, 'attn_hard': true, 'cross_attn_sparse_topk': 2",
     "attn_hard excludes attn_sparse_topk"},
    {", 'context': {'wrapper': 'Encoder', 'dim': 16, 'depth': 1}", XT_DECODER, "",
     "context needs cross_attend"},
    {", 'context': {'wrapper': 'Decoder', 'dim': 16, 'depth': 1}", XT_DECODER,
     ", 'cross_attend': true",
     "context: expected ViTransformerWrapper, ContinuousTransformerWrapper or Encoder, an Encoder "
     "without dim_out"},
    {", 'context': {'wrapper': 'ViTransformerWrapper', 'image_size': 4, 'patch_size': 2, "
     "'attn_layers': {'type': 'Encoder', 'dim': 8, 'depth': 1}}",
     XT_DECODER, ", 'cross_attend': true",
     "context: dim is 8, expected 16, or cross_attn_dim_context of that"},
    {", 'context': {'wrapper': 'ViTransformerWrapper', 'image_size': 4, 'patch_size': 2, "
     "'attn_layers': {'type': 'Encoder', 'dim': 16, 'depth': 1, 'ff_glue': true}}",
     XT_DECODER, ", 'cross_attend': true", "context.attn_layers.ff_glue is not a key"},
    {", 'emb_dim': 8, 'tie_embedding': true", XT_DECODER, "",
     "tie_embedding with emb_dim 8, expected dim, 16"},
};

static void contradictions_are_named(void **unused)
{
    for (size_t i = 0; i < COUNT(refusals); i++) {
        char text[XT_TEXT];
        CHECK_CONFIG(c);
        dra_error err = {0};
        xt_config_of(refusals[i].top, refusals[i].shape, refusals[i].stack, text);
        if (xt_parse(text, &c, &err) == DRA_OK) fail_msg("%s is accepted", text);
        assert_int_equal(err.code, DRA_ERR_VALUE);
        if (strncmp(err.text, "config: ", 8) != 0 ||
            strncmp(err.text + 8, refusals[i].error, strlen(refusals[i].error)) != 0)
            fail_msg("%s: %s, expected %s", text, err.text, refusals[i].error);
    }
}

static void other_wrappers_are_named(void **unused)
{
    static const char *const names[] = {"PrefixDecoder", "MultiInputTransformerWrapper"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char text[XT_TEXT], expected[200];
        CHECK_CONFIG(c);
        dra_error err = {0};
        snprintf(text, sizeof text, "{\"model_type\": \"x-transformers\", \"wrapper\": \"%s\"}",
                 names[i]);
        snprintf(expected, sizeof expected,
                 "config: wrapper %s is not supported yet, expected TransformerWrapper", names[i]);
        assert_int_equal(xt_parse(text, &c, &err), DRA_ERR_VALUE);
        assert_string_equal(err.text, expected);
    }
}

/* Names of x-transformers come first, then dra's own; both keep what was set before. */
static void keys_are_set_by_their_names(void **unused)
{
    char text[XT_TEXT];
    CHECK_CONFIG(c);
    CHECK_CONFIG(same);
    dra_error err = {0};
    expect_ok(xt_parse(xt_config_of("", XT_DECODER, "", text), &c, &err), &err);
    expect_ok(dra_model_config_set(c, "attn_layers.depth", "3", &err), &err);
    expect_ok(dra_model_config_set(c, "ff_glu", "true", &err), &err);
    expect_ok(dra_model_config_set(c, "num_tokens", "12", &err), &err);
    expect_ok(dra_model_config_set(c, "dim", "24", &err), &err);
    expect_ok(dra_model_config_set(c, "ff.dropout", "0.5", &err), &err);
    expect_ok(dra_model_config_set(c, "shift_tokens", "[1, 0, 0, 0, 0, 0]", &err), &err);
    expect_ok(xt_parse(xt_config_of("",
                                    "'type': 'Decoder', 'dim': 24, 'depth': 3, 'heads': 4, "
                                    "'attn_dim_head': 8",
                                    ", 'ff_glu': true, 'ff_dropout': 0.5, 'shift_tokens': [1, 0, "
                                    "0, 0, 0, 0]",
                                    text),
                       &same, &err),
              &err);
    same->vocab = 12;
    json_t *a = dump(c, DRA_FORMAT_DRA), *b = dump(same, DRA_FORMAT_DRA);
    if (!json_equal(a, b)) fail_msg("%s, expected %s", json_dumps(a, 0), json_dumps(b, 0));
    json_decref(a);
    json_decref(b);
    assert_int_equal(dra_model_config_set(c, "depth", "0", &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "attn_layers.depth"));
    assert_int_not_equal(dra_model_config_set(c, "dept", "3", &err), DRA_OK);
}

/* What the format cannot hold is found by reading it back. */
static void what_it_cannot_say(void **unused)
{
    char text[XT_TEXT];
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(xt_parse(xt_config_of("", XT_DECODER, "", text), &c, &err), &err);
    check_mixers(c)->a.memory = "delta";
    assert_int_equal(dra_folder_save_config(in_folder("cannot"), c, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "an x-transformers folder cannot hold mixer"));
    check_mixers(c)->a.memory = NULL;
    c->dropout = 0.1;
    assert_int_equal(dra_folder_save_config(in_folder("cannot"), c, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "cannot hold dropout"));
}

/* Cut off anywhere, and with any byte changed: refused in one line, or read. */
static void damaged_configs(void **unused)
{
    for (size_t i = 0; i < COUNT(meanings); i += 3) {
        char text[XT_TEXT], bad[XT_TEXT];
        CHECK_CONFIG(c);
        const meaning *m = &meanings[i];
        const size_t   n = strlen(xt_config_of(m->top, m->shape, m->stack, text));
        for (size_t at = 0; at < n; at++) {
            static const char marks[] = "0-\"{],x.";
            dra_error         err = {0};
            check_drop_config(&c);
            assert_int_not_equal(dra_model_config_parse("config", text, at, &c, &err), DRA_OK);
            for (size_t k = 0; k < sizeof marks - 1; k++) {
                memcpy(bad, text, n + 1);
                bad[at] = marks[k];
                err = (dra_error){0};
                check_drop_config(&c);
                if (xt_parse(bad, &c, &err) == DRA_OK) continue;
                assert_true(strncmp(err.text, "config", 6) == 0 && !strchr(err.text, '\n'));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_mean_what_they_say),
        cmocka_unit_test(written_as_they_were_read),
        cmocka_unit_test(the_same_by_way_of_dra),
        cmocka_unit_test(defaults_may_be_said),
        cmocka_unit_test(defaults_of_options_may_be_said),
        cmocka_unit_test(a_folder_keeps_its_spelling),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(other_wrappers_are_named),
        cmocka_unit_test(keys_are_set_by_their_names),
        cmocka_unit_test(what_it_cannot_say),
        cmocka_unit_test(damaged_configs),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("xt_config", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
