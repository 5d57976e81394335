/* The tensors that a checkpoint of x-transformers holds, by the options of its config: names and
 * shapes as that library's state_dict has them. Element t of a parameter named s is
 *   base + 0.25 sin(sigma + 1.7 t + 0.013 t t),   sigma = sum (c + 1) byte_c(s)  mod 997,
 * computed in double and rounded to float32; the base is what the parameter starts with where that
 * is 1, the identity or a scale of queries and keys, and 0 elsewhere. */
#ifndef DRA_TESTS_FORMATS_XT_XT_TENSORS_H
#define DRA_TESTS_FORMATS_XT_XT_TENSORS_H

#include <jansson.h>
#include <math.h>

#include "model/fixtures.h"

typedef enum xt_base { XT_ZERO, XT_ONE, XT_EYE, XT_SCALE, XT_FREQUENCY, XT_XPOS } xt_base;

/* `when`: options that are on, with "!" off, all of them. A letter of `shape` is a size, as
 * xt_size() has it. */
typedef struct xt_row {
    const char *name, *when, *shape;
    xt_base     base;
} xt_row;

static const xt_row xt_attention[] = {
    {"to_q.weight", "", "Qi", XT_ZERO},
    {"to_k.weight", "", "nj", XT_ZERO},
    {"to_v.weight", "", "Uj", XT_ZERO},
    {"to_latent_q.weight", "attn_use_latent_q", "iD", XT_ZERO},
    {"to_latent_kv.weight", "attn_use_latent_kv", "jD", XT_ZERO},
    {"to_rotateable_k.weight", "attn_latent_rope_subheads", "LD", XT_ZERO},
    {"to_out.weight", "!attn_on_attn", "DQ", XT_ZERO},
    {"to_out.0.weight", "attn_on_attn", "OQ", XT_ZERO},
    {"to_v_gate.weight", "attn_gate_values !attn_gate_values_rank !attn_gate_values_headwise", "QD",
     XT_ZERO},
    {"to_v_gate.weight", "attn_gate_values_headwise", "HD", XT_ZERO},
    {"to_v_gate.down.weight", "attn_gate_values_rank", "wD", XT_ZERO},
    {"to_v_gate.up.weight", "attn_gate_values_rank", "Qw", XT_ZERO},
    {"to_output_gate.weight", "attn_output_gate !attn_output_gate_rank !attn_output_gate_headwise",
     "QQ", XT_ZERO},
    {"to_output_gate.weight", "attn_output_gate_headwise", "HQ", XT_ZERO},
    {"to_output_gate.down.weight", "attn_output_gate_rank", "yQ", XT_ZERO},
    {"to_output_gate.up.weight", "attn_output_gate_rank", "Qy", XT_ZERO},
    {"to_v_gate.bias", "attn_gate_values !newer", "Q", XT_ZERO},
    {"attend.head_attn_sink", "attn_head_learned_sink", "H", XT_ZERO},
    {"to_value_residual_mix.0.weight", "value_mix", "HD", XT_ZERO},
    {"to_value_residual_mix.0.bias", "value_mix", "H", XT_ZERO},
    {"data_dependent_alibi.to_forget_gates.0.weight", "attn_data_dependent_alibi", "HD", XT_ZERO},
    {"data_dependent_alibi.to_forget_gates.0.bias", "attn_data_dependent_alibi", "H", XT_ZERO},
    {"to_v_head_gate.weight", "attn_gate_value_heads", "HD", XT_ZERO},
    {"to_v_head_gate.bias", "attn_gate_value_heads", "H", XT_ZERO},
    {"attend.cope.pos_emb", "attn_use_cope", "Xd", XT_ZERO},
    {"mem_k", "attn_num_mem_kv", "kmd", XT_ZERO},
    {"mem_v", "attn_num_mem_kv", "kmd", XT_ZERO},
    {"head_scale_params", "attn_head_scale", "1H11", XT_ONE},
    {"qk_norm_q_scale", "attn_qk_norm_dim_scale", "H1d", XT_SCALE},
    {"qk_norm_k_scale", "attn_qk_norm_dim_scale", "k1d", XT_SCALE},
    {"attend.pre_softmax_talking_heads.weight", "attn_pre_talking_heads", "HH11", XT_EYE},
    {"attend.post_softmax_talking_heads.weight", "attn_post_talking_heads", "HH11", XT_EYE},
    {0}};

static const xt_row xt_feed_forward[] = {{"ff.0.0.weight", "!ff_glu", "FD", XT_ZERO},
                                         {"ff.0.0.bias", "!ff_glu !ff_no_bias", "F", XT_ZERO},
                                         {"ff.0.proj.weight", "ff_glu", "GD", XT_ZERO},
                                         {"ff.0.proj.bias", "ff_glu", "G", XT_ZERO},
                                         {"ff.0.mult_bias", "ff_glu_mult_bias", "F", XT_ZERO},
                                         {"ff.1.gamma", "ff_post_act_ln", "F", XT_ONE},
                                         {"ff.2.weight", "!ff_post_act_ln", "DF", XT_ZERO},
                                         {"ff.2.bias", "!ff_post_act_ln !ff_no_bias", "D", XT_ZERO},
                                         {"ff.3.weight", "ff_post_act_ln", "DF", XT_ZERO},
                                         {"ff.3.bias", "ff_post_act_ln !ff_no_bias", "D", XT_ZERO},
                                         {0}};

static const xt_row xt_norm[] = {
    {"g", "use_scalenorm", "1", XT_ZERO},
    {"g", "use_rmsnorm", "D", XT_ZERO},
    {"to_gamma.weight", "use_adaptive_layernorm", "Dc", XT_ZERO},
    {"to_gamma.weight", "use_adaptive_rmsnorm", "Dc", XT_ZERO},
    {"pre_tanh_scale", "use_dynamic_tanh", "", XT_ZERO},
    {"beta", "use_dynamic_tanh", "D", XT_ZERO},
    {"gamma",
     "!use_scalenorm !use_rmsnorm !use_simple_rmsnorm !use_adaptive_layernorm "
     "!use_adaptive_rmsnorm",
     "D", XT_ZERO},
    {0}};

static const xt_row xt_residual[] = {
    {"1.gamma", "use_layerscale", "D", XT_ZERO},
    {"1.to_gamma.weight", "use_adaptive_layerscale", "Dc", XT_ZERO},
    {"1.to_gamma.bias", "use_adaptive_layerscale", "D", XT_ZERO},
    {"2.norm.weight", "num_residual_streams", "D", XT_ONE},
    {"2.dynamic_alpha_fn", "num_residual_streams", "Da", XT_ZERO},
    {"2.dynamic_alpha_scale", "num_residual_streams", "", XT_ZERO},
    {"2.static_alpha", "num_residual_streams", "sa", XT_ZERO},
    {"2.dynamic_beta_fn", "num_residual_streams", "D", XT_ZERO},
    {"2.dynamic_beta_scale", "num_residual_streams", "", XT_ZERO},
    {"2.static_beta", "num_residual_streams", "s", XT_ONE},
    {"2.residual_scale", "scale_residual", "D", XT_ONE},
    {"2.gru.weight_ih", "gate_residual", "TD", XT_ZERO},
    {"2.gru.weight_hh", "gate_residual", "TD", XT_ZERO},
    {"2.gru.bias_ih", "gate_residual", "T", XT_ZERO},
    {"2.gru.bias_hh", "gate_residual", "T", XT_ZERO},
    {0}};

static const xt_row xt_positions[] = {
    {"stream_emb", "num_residual_streams", "sD", XT_ZERO},
    {"reinject_input_proj.weight", "reinject_input", "DD", XT_ZERO},
    {"learned_reinject_input_gate.weight", "learned_reinject_input_gate", "1D", XT_ZERO},
    {"adaptive_mlp.0.weight", "adaptive_condition_mlp", "co", XT_ZERO},
    {"rel_pos.relative_attention_bias.weight", "rel_pos_bias", "BH", XT_ZERO},
    {"rel_pos.mlp.0.0.weight", "dynamic_pos_bias", "P1", XT_ZERO},
    {"rel_pos.mlp.0.0.bias", "dynamic_pos_bias", "P", XT_ZERO},
    {"rel_pos.mlp.1.0.weight", "dynamic_pos_bias", "PP", XT_ZERO},
    {"rel_pos.mlp.1.0.bias", "dynamic_pos_bias", "P", XT_ZERO},
    {"rel_pos.mlp.2.weight", "dynamic_pos_bias", "HP", XT_ZERO},
    {"rel_pos.mlp.2.bias", "dynamic_pos_bias", "H", XT_ZERO},
    {"rotary_pos_emb.inv_freq", "rotary", "r", XT_FREQUENCY},
    {"rotary_pos_emb.scale", "rotary_xpos", "r", XT_XPOS},
    {0}};

static const xt_row xt_wrapper[] = {
    {"token_emb.emb.weight", "tokens", "VD", XT_ZERO},
    {"project_in.weight", "dim_in", "DI", XT_ZERO},
    {"pos_embedding", "image_size", "1gD", XT_ZERO},
    {"patch_to_embedding.0.gamma", "image_size", "p", XT_ONE},
    {"patch_to_embedding.1.weight", "image_size", "Dp", XT_ZERO},
    {"patch_to_embedding.1.bias", "image_size", "D", XT_ZERO},
    {"patch_to_embedding.2.gamma", "image_size", "D", XT_ONE},
    {"register_tokens", "num_register_tokens", "RD", XT_ZERO},
    {"pos_emb.emb.weight", "positions", "SD", XT_ZERO},
    {"post_emb_norm.gamma", "post_emb_norm", "D", XT_ONE},
    {"memory_tokens", "num_memory_tokens", "MD", XT_ZERO},
    {"cls_token", "use_cls_token", "1D", XT_ZERO},
    {"to_logits.weight", "tokens !tie_embedding !no_logits !logits_dim", "VD", XT_ZERO},
    {"to_logits.weight", "logits_dim", "lD", XT_ZERO},
    {"to_mixture.0.weight", "mixture_of_softmax", "KD", XT_ZERO},
    {"combine_mixture.weight", "mixture_of_softmax", "xD", XT_ZERO},
    {"recycled_proj.weight", "recycling", "DD", XT_ZERO},
    {"to_logits.bias", "xval !tie_embedding", "V", XT_ZERO},
    {"to_numerical_output.0.weight", "xval", "1D", XT_ZERO},
    {"to_numerical_output.0.bias", "xval", "1", XT_ZERO},
    {"project_out.weight", "dim_out", "ED", XT_ZERO},
    {"mlp_head.weight", "num_classes", "ND", XT_ZERO},
    {"mlp_head.bias", "num_classes", "N", XT_ZERO},
    {0}};

/* ---- options --------------------------------------------------------------------------------- */

/* All options of a config in one object, and what follows from several of them. */
static inline json_t *xt_options(const json_t *config)
{
    json_t       *o = json_copy((json_t *)(uintptr_t)config);
    const json_t *abs = json_object_get(config, "use_abs_pos_emb");
    const char   *release = json_string_value(json_object_get(config, "release"));
    const char   *wrapper = json_string_value(json_object_get(config, "wrapper"));
    const bool    xval = strcmp(wrapper, "XValTransformerWrapper") == 0;
    const bool    tokens = xval || strcmp(wrapper, "TransformerWrapper") == 0;
    json_object_update(o, json_object_get(config, "attn_layers"));
    const bool rotary = json_is_true(json_object_get(o, "rotary_pos_emb")) ||
                        json_is_true(json_object_get(o, "rotary_xpos"));
    const bool post = json_is_false(json_object_get(o, "pre_norm")) ||
                      json_is_true(json_object_get(o, "resi_dual"));
    const bool learned = json_object_get(config, "max_seq_len") && !json_is_false(abs) && !rotary &&
                         !json_is_true(json_object_get(o, "rel_pos_bias"));
    json_object_set_new(o, "rotary", json_boolean(rotary));
    json_object_set_new(o, "xval", json_boolean(xval));
    json_object_set_new(o, "tokens", json_boolean(tokens));
    json_object_set_new(o, "post_norm", json_boolean(post));
    json_object_set_new(o, "positions", json_boolean(learned));
    json_object_set_new(o, "newer", json_boolean(release && strcmp(release, "N") == 0));
    return o;
}

static inline int64_t xt_number(const json_t *o, const char *name, int64_t other)
{
    const json_t *v = json_object_get(o, name);
    return json_is_integer(v) ? json_integer_value(v) : other;
}

static inline bool xt_on(const json_t *o, const char *name)
{
    return json_is_true(json_object_get(o, name)) || xt_number(o, name, 0) != 0;
}

static inline bool xt_when(const json_t *o, const char *when)
{
    for (const char *at = when + strspn(when, " "); *at; at += strspn(at, " ")) {
        const bool   off = *at == '!';
        const size_t n = strcspn(at, " ");
        char         name[80];
        snprintf(name, sizeof name, "%.*s", (int)(n - off), at + off);
        if (xt_on(o, name) == off) return false;
        at += n;
    }
    return true;
}

/* Patches of an image in a row, and numbers in one of them. */
static inline int64_t xt_patches(const json_t *o)
{
    return xt_number(o, "image_size", 0) / xt_number(o, "patch_size", 1);
}

static inline int64_t xt_patch(const json_t *o)
{
    const int64_t p = xt_number(o, "patch_size", 0);
    return p * p * xt_number(o, "channels", 3);
}

static inline int64_t xt_size(const json_t *o, char letter)
{
    const int64_t D = xt_number(o, "dim", 0), H = xt_number(o, "heads", 8);
    const int64_t d = xt_number(o, "attn_dim_head", 64);
    const int64_t k = xt_on(o, "attn_one_kv_head") ? 1 : xt_number(o, "attn_kv_heads", H);
    switch (letter) {
    case 'D': return D;
    case 'O': return 2 * D;
    case 'T': return 3 * D;
    case 'P': return D / 4;
    case 'F': return 4 * D;
    case 'G': return 8 * D;
    case 'H': return H;
    case 'k': return k;
    case 'd': return d;
    case 'Q': return H * d;
    case 'U': return k * d;
    case 'm': return xt_number(o, "attn_num_mem_kv", 0);
    case 'r': return (d / 2 + 1) / 2;
    case 'B': return xt_number(o, "rel_pos_num_buckets", 32);
    case 'V': return xt_number(o, "num_tokens", 0);
    case 'S': return xt_number(o, "max_seq_len", 0);
    case 'i': return xt_number(o, "attn_dim_latent_q", D);
    case 'j': return xt_number(o, "attn_dim_latent_kv", xt_number(o, "kv_dim", D));
    case 'L': return d * xt_number(o, "attn_latent_rope_subheads", 0);
    case 'n': return d * (k - xt_number(o, "attn_latent_rope_subheads", 0));
    case 'K': return D * xt_number(o, "mixture_of_softmax_k", 4);
    case 'x': return xt_number(o, "mixture_of_softmax_k", 4);
    case 'u': return xt_number(o, "views", 1);
    case 'w': return xt_number(o, "attn_gate_values_rank", 0);
    case 'y': return xt_number(o, "attn_output_gate_rank", 0);
    case 'X': return xt_number(o, "attn_cope_max_pos", 16);
    case 's': return xt_number(o, "num_residual_streams", 0);
    case 'a': return 1 + xt_number(o, "num_residual_streams", 0);
    case 'I': return xt_number(o, "dim_in", 0);
    case 'E': return xt_number(o, "dim_out", 0);
    case 'N': return xt_number(o, "num_classes", 0);
    case 'R': return xt_number(o, "num_register_tokens", 0);
    case 'g': return xt_patches(o) * xt_patches(o);
    case 'p': return xt_patch(o);
    case 'o': return xt_number(o, "dim_condition", xt_number(o, "dim", 0));
    case 'c':
        return xt_number(o, "dim_condition", xt_number(o, "dim", 0)) *
               (xt_on(o, "adaptive_condition_mlp")
                    ? xt_number(o, "adaptive_condition_mlp_expansion", 4)
                    : 1);
    case 'l': return xt_number(o, "logits_dim", 0);
    case 'M': return xt_number(o, "num_memory_tokens", 0);
    default: return 1;
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static inline double xt_base_at(const json_t *o, xt_base base, const dra_shape *s, int64_t t)
{
    const double d = (double)xt_size(o, 'd');
    switch (base) {
    case XT_ONE: return 1;
    case XT_EYE: return t / s->dim[1] == t % s->dim[1];
    case XT_SCALE: return xt_on(o, "newer") ? pow(d, 0.25) : 1;
    default: return 0;
    }
}

/* Frequencies and growths of rotary positions are no parameters: they have values of their own. */
static inline double xt_value(const json_t *o, const xt_row *r, const char *name,
                              const dra_shape *s, int64_t t)
{
    const double width = (double)(xt_size(o, 'd') / 2), k = (double)t;
    int64_t      sigma = 0;
    if (r->base == XT_FREQUENCY) return pow(10000, -2 * k / width);
    if (r->base == XT_XPOS) return (2 * k + 0.4 * width) / (1.4 * width);
    for (int64_t c = 0; name[c]; c++) sigma += (c + 1) * (unsigned char)name[c];
    return xt_base_at(o, r->base, s, t) +
           0.25 * sin((double)(sigma % 997) + 1.7 * k + 0.013 * k * k);
}

/* Adds those rows of a table that the options ask for; `skip` bytes of the names' start do not
 * count for their numbers. */
static inline void xt_add(fixture *f, const json_t *o, const xt_row *rows, const char *prefix,
                          size_t skip)
{
    for (const xt_row *r = rows; r->name; r++) {
        if (!xt_when(o, r->when)) continue;
        const int k = f->n++;
        dra_shape shape = {.rank = (int32_t)strlen(r->shape)};
        assert_true(k < FIXTURE_MOST);
        for (int i = 0; i < shape.rank; i++) shape.dim[i] = xt_size(o, r->shape[i]);
        const int64_t count = dra_shape_count(&shape);
        dra_real     *data = calloc((size_t)count, sizeof *data);
        assert_non_null(data);
        snprintf(f->name[k], FIXTURE_NAME, "%s%s", prefix, r->name);
        const char *counts = f->name[k] + (strlen(f->name[k]) > skip ? skip : 0);
        for (int64_t t = 0; t < count; t++)
            data[t] = (dra_real)(float)xt_value(o, r, counts, &shape, t);
        f->item[k] = (dra_tensor_item){f->name[k], DRA_REAL, shape, data};
    }
}

/* ---- sublayers ------------------------------------------------------------------------------- */

enum { XT_SUBLAYERS = 64 };

static inline void xt_append(char *letters, const char *more)
{
    const size_t n = strlen(letters);
    snprintf(letters + n, XT_SUBLAYERS - n, "%s", more);
}

/* One block of sublayers. */
static inline const char *xt_block(const json_t *o)
{
    if (xt_on(o, "only_cross")) return xt_on(o, "macaron") ? "fcf" : "cf";
    if (xt_on(o, "cross_attend")) return xt_on(o, "macaron") ? "facf" : "acf";
    return xt_on(o, "macaron") ? "faf" : "af";
}

/* One letter for each that has parameters: a attention, c cross-attention, f feed-forward. */
static inline void xt_layout(const json_t *o, char letters[XT_SUBLAYERS])
{
    const json_t *custom = json_object_get(o, "custom_layers");
    const char   *block = xt_block(o);
    const int64_t depth = xt_on(o, "weight_tie_layers") ? 1 : xt_number(o, "depth", 0);
    const int64_t ends = xt_number(o, "sandwich_coef", 0);
    letters[0] = 0;
    for (size_t i = 0; i < json_array_size(custom); i++)
        xt_append(letters, json_string_value(json_array_get(custom, i)));
    for (int64_t i = 0; i < ends; i++) xt_append(letters, "a");
    for (int64_t i = ends; i < depth; i++) xt_append(letters, block);
    for (int64_t i = 0; i < ends; i++) xt_append(letters, "f");
}

/* By how much sublayer i shifts tokens. */
static inline int64_t xt_shift(const json_t *o, size_t i)
{
    const json_t *each = json_array_get(json_object_get(o, "shift_tokens"), i);
    return each ? json_integer_value(each) : xt_number(o, "shift_tokens", 0);
}

/* Options of cross-attention: its own take the place of those of attention. */
static inline json_t *xt_cross(const json_t *o)
{
    json_t     *own = json_copy((json_t *)(uintptr_t)o), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        if (strncmp(key, "cross_attn_", 11) == 0) json_object_set(own, key + 6, v);
    }
    json_object_set_new(own, "kv_dim",
                        json_integer(xt_number(o, "cross_attn_dim_context", xt_size(o, 'D'))));
    return own;
}

/* stack: what its names begin with. */
static inline void xt_sublayer(fixture *f, const json_t *o, size_t i, char letter,
                               const char *stack, size_t skip)
{
    char        start[96], inner[128];
    const char *norm = xt_on(o, "post_norm") ? "0.2." : "0.0.";
    json_t     *cross = xt_cross(o);
    snprintf(start, sizeof start, "%slayers.%zu.", stack, i);
    snprintf(inner, sizeof inner, "%s%s", start, norm);
    xt_add(f, o, xt_norm, inner, skip);
    snprintf(inner, sizeof inner, "%s0.1.", start);
    if (xt_on(o, "sandwich_norm")) xt_add(f, o, xt_norm, inner, skip);
    snprintf(inner, sizeof inner, "%s0.2.", start);
    if (xt_on(o, "pre_and_post_norm")) xt_add(f, o, xt_norm, inner, skip);
    snprintf(inner, sizeof inner, "%s1.%s%s%s", start,
             xt_on(o, "use_layerscale") || xt_on(o, "use_adaptive_layerscale") ? "fn." : "",
             xt_shift(o, i) ? "fn." : "", letter == 'f' && xt_on(o, "macaron") ? "fn." : "");
    xt_add(f, letter == 'c' ? cross : o, letter == 'f' ? xt_feed_forward : xt_attention, inner,
           skip);
    xt_add(f, o, xt_residual, start, skip);
    json_decref(cross);
}

/* Those of a wrapper around one stack; names of the stack begin with `stack`. */
static inline void xt_one(fixture *f, const json_t *config, const char *prefix, const char *stack,
                          size_t skip)
{
    json_t *o = xt_options(config);
    char    letters[XT_SUBLAYERS], norm[96];
    xt_layout(o, letters);
    xt_add(f, o, xt_wrapper, prefix, 0);
    for (size_t i = 0; letters[i]; i++) {
        const bool later = letters[i] == 'a' && memchr(letters, 'a', i); /* than the first one */
        const bool mixes = xt_on(o, "add_value_residual") &&
                           !json_is_false(json_object_get(o, "learned_value_residual_mix"));
        json_object_set_new(o, "value_mix", json_boolean(later && mixes));
        xt_sublayer(f, o, i, letters[i], stack, skip);
        static const xt_row integrate[] = {
            {"to_weights.0.g", "integrate_layers", "D", XT_ONE},
            {"to_weights.1.weight", "integrate_layers", "uD", XT_ZERO},
            {"to_weights.1.bias", "integrate_layers", "u", XT_ZERO},
            {0}};
        json_object_set_new(o, "views", json_integer((json_int_t)((later ? 3 : 1) * (i + 1))));
        snprintf(norm, sizeof norm, "%slayer_integrators.%zu.", stack, i);
        xt_add(f, o, integrate, norm, skip);
        static const xt_row combine[] = {{"combine.weight", "unet_skips", "DO", XT_ZERO}, {0}};
        snprintf(norm, sizeof norm, "%sskip_combines.%zu.", stack, i);
        if (i % 2 == 0 && i >= strlen(letters) / 2) xt_add(f, o, combine, norm, skip);
    }
    xt_add(f, o, xt_positions, stack, skip);
    snprintf(norm, sizeof norm, "%sfinal_norm.", stack);
    if ((!xt_on(o, "post_norm") || xt_on(o, "resi_dual")) && !xt_on(o, "pre_and_post_norm"))
        xt_add(f, o, xt_norm, norm, skip);
    json_decref(o);
}

/* All tensors of a config. bare: numbers are made of names without that of the wrapper's stack. */
static inline void xt_tensors(fixture *f, const json_t *config, bool bare)
{
    *f = (fixture){0};
    xt_one(f, config, "", "attn_layers.", bare ? strlen("attn_layers.") : 0);
}

/* ---- other wrappers -------------------------------------------------------------------------- */

/* One side of XTransformer as a config of its own. */
static inline json_t *xt_side(const json_t *config, const char *side)
{
    static const char *const outer[] = {"num_tokens", "max_seq_len", "emb_dropout",
                                        "num_memory_tokens", "use_abs_pos_emb"};
    json_t                  *stack = json_object(), *v;
    json_t *own = json_pack("{s:s, s:O}", "wrapper", "TransformerWrapper", "attn_layers", stack);
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)config, key, v)
    {
        bool wraps = false;
        if (strncmp(key, side, 4) != 0) continue;
        for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
            wraps = wraps || strcmp(key + 4, outer[i]) == 0;
        json_object_set(wraps ? own : stack, key + 4, v);
    }
    json_object_set(stack, "dim", json_object_get(config, "dim"));
    json_object_set(own, "release", json_object_get(config, "release"));
    if (strcmp(side, "dec_") == 0) json_object_set_new(stack, "cross_attend", json_true());
    if (strcmp(side, "enc_") == 0) json_object_set_new(own, "no_logits", json_true());
    json_decref(stack);
    return own;
}

/* A table that both sides share has the numbers of the encoder's name. */
static inline void xt_share(fixture *f)
{
    int from = -1, to = -1;
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->name[i], "encoder.token_emb.emb.weight") == 0) from = i;
        if (strcmp(f->name[i], "decoder.net.token_emb.emb.weight") == 0) to = i;
    }
    assert_true(from >= 0 && to >= 0);
    memcpy((void *)(uintptr_t)f->item[to].data, f->item[from].data,
           (size_t)dra_shape_count(&f->item[to].shape) * sizeof(dra_real));
}

static inline void xt_pair(fixture *f, const json_t *config)
{
    json_t       *encoder = xt_side(config, "enc_"), *decoder = xt_side(config, "dec_");
    const json_t *image = json_object_get(config, "src_prepend");
    xt_one(f, encoder, "encoder.", "encoder.attn_layers.", 0);
    xt_one(f, decoder, "decoder.net.", "decoder.net.attn_layers.", 0);
    if (json_is_true(json_object_get(config, "tie_token_emb"))) xt_share(f);
    if (json_is_object(image)) xt_one(f, image, "vit.", "vit.attn_layers.", 0);
    json_decref(encoder);
    json_decref(decoder);
}

/* A wrapper around one stack, or a stack by itself. */
static inline void xt_single(fixture *f, const json_t *config, const char *prefix)
{
    json_t     *own = json_copy((json_t *)(uintptr_t)config);
    const char *wrapper = json_string_value(json_object_get(config, "wrapper"));
    char        stack[64];
    snprintf(stack, sizeof stack, "%s%s", prefix,
             json_object_get(config, "attn_layers") ? "attn_layers." : "");
    if (strcmp(wrapper, "CrossAttender") == 0) json_object_set_new(own, "only_cross", json_true());
    xt_one(f, own, prefix, stack, 0);
    json_decref(own);
}

/* All tensors of any config, with their whole names but for "net." of a loss. */
static inline void xt_model_tensors(fixture *f, const json_t *config)
{
    const char   *wrapper = json_string_value(json_object_get(config, "wrapper"));
    const json_t *context = json_object_get(config, "context");
    *f = (fixture){0};
    if (json_object_get(config, "net")) {
        json_t *net = json_copy(json_object_get(config, "net"));
        json_object_set(net, "release", json_object_get(config, "release"));
        xt_model_tensors(f, net);
        json_decref(net);
    } else if (strcmp(wrapper, "XTransformer") == 0) {
        xt_pair(f, config);
    } else {
        xt_single(f, config, context ? "decoder." : "");
        if (context) xt_single(f, context, "encoder.");
    }
}

#endif
