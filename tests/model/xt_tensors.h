/* The tensors that a checkpoint of x-transformers holds, by the options of its config: names and
 * shapes as that library's state_dict has them. Element t of a parameter named s is
 *   base + 0.25 sin(sigma + 1.7 t + 0.013 t t),   sigma = sum (c + 1) byte_c(s)  mod 997,
 * computed in double and rounded to float32; the base is what the parameter starts with where that
 * is 1, the identity or a scale of queries and keys, and 0 elsewhere. */
#ifndef DRA_TESTS_MODEL_XT_TENSORS_H
#define DRA_TESTS_MODEL_XT_TENSORS_H

#include <jansson.h>
#include <math.h>

#include "fixtures.h"

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
    {"to_rotateable_k.weight", "attn_latent_rope_subheads", "RD", XT_ZERO},
    {"to_out.weight", "!attn_on_attn", "DQ", XT_ZERO},
    {"to_out.0.weight", "attn_on_attn", "OQ", XT_ZERO},
    {"to_v_gate.weight", "attn_gate_values", "QD", XT_ZERO},
    {"to_v_gate.bias", "attn_gate_values !newer", "Q", XT_ZERO},
    {"attend.head_attn_sink", "attn_head_learned_sink", "H", XT_ZERO},
    {"to_value_residual_mix.0.weight", "value_mix", "HD", XT_ZERO},
    {"to_value_residual_mix.0.bias", "value_mix", "H", XT_ZERO},
    {"data_dependent_alibi.to_forget_gates.0.weight", "attn_data_dependent_alibi", "HD", XT_ZERO},
    {"data_dependent_alibi.to_forget_gates.0.bias", "attn_data_dependent_alibi", "H", XT_ZERO},
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
                                         {"ff.1.gamma", "ff_post_act_ln", "F", XT_ONE},
                                         {"ff.2.weight", "!ff_post_act_ln", "DF", XT_ZERO},
                                         {"ff.2.bias", "!ff_post_act_ln !ff_no_bias", "D", XT_ZERO},
                                         {"ff.3.weight", "ff_post_act_ln", "DF", XT_ZERO},
                                         {"ff.3.bias", "ff_post_act_ln !ff_no_bias", "D", XT_ZERO},
                                         {0}};

static const xt_row xt_norm[] = {
    {"g", "use_scalenorm", "1", XT_ZERO},
    {"g", "use_rmsnorm", "D", XT_ZERO},
    {"gamma", "!use_scalenorm !use_rmsnorm !use_simple_rmsnorm", "D", XT_ZERO},
    {0}};

static const xt_row xt_residual[] = {{"1.gamma", "use_layerscale", "D", XT_ZERO},
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

static const xt_row xt_wrapper[] = {{"token_emb.emb.weight", "", "VD", XT_ZERO},
                                    {"pos_emb.emb.weight", "positions", "SD", XT_ZERO},
                                    {"post_emb_norm.gamma", "post_emb_norm", "D", XT_ONE},
                                    {"memory_tokens", "num_memory_tokens", "MD", XT_ZERO},
                                    {"to_logits.weight", "!tie_embedding", "VD", XT_ZERO},
                                    {0}};

/* ---- options --------------------------------------------------------------------------------- */

/* All options of a config in one object, and what follows from several of them. */
static inline json_t *xt_options(const json_t *config)
{
    json_t       *o = json_copy((json_t *)(uintptr_t)config);
    const json_t *abs = json_object_get(config, "use_abs_pos_emb");
    const char   *release = json_string_value(json_object_get(config, "release"));
    json_object_update(o, json_object_get(config, "attn_layers"));
    const bool rotary = json_is_true(json_object_get(o, "rotary_pos_emb")) ||
                        json_is_true(json_object_get(o, "rotary_xpos"));
    const bool post = json_is_false(json_object_get(o, "pre_norm")) ||
                      json_is_true(json_object_get(o, "resi_dual"));
    const bool learned = !json_is_false(abs) && !rotary &&
                         !json_is_true(json_object_get(o, "rel_pos_bias"));
    json_object_set_new(o, "rotary", json_boolean(rotary));
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
    case 'j': return xt_number(o, "attn_dim_latent_kv", D);
    case 'R': return d * xt_number(o, "attn_latent_rope_subheads", 0);
    case 'n': return d * (k - xt_number(o, "attn_latent_rope_subheads", 0));
    case 's': return xt_number(o, "num_residual_streams", 0);
    case 'a': return 1 + xt_number(o, "num_residual_streams", 0);
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

/* One letter for each that has parameters: a attention, f feed-forward. */
static inline void xt_layout(const json_t *o, char letters[XT_SUBLAYERS])
{
    const json_t *custom = json_object_get(o, "custom_layers");
    const char   *block = xt_on(o, "macaron") ? "faf" : "af";
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

static inline void xt_sublayer(fixture *f, const json_t *o, size_t i, char letter, size_t skip)
{
    char        start[64], inner[96];
    const char *norm = xt_on(o, "post_norm") ? "0.2." : "0.0.";
    snprintf(start, sizeof start, "attn_layers.layers.%zu.", i);
    snprintf(inner, sizeof inner, "%s%s", start, norm);
    xt_add(f, o, xt_norm, inner, skip);
    snprintf(inner, sizeof inner, "%s0.1.", start);
    if (xt_on(o, "sandwich_norm")) xt_add(f, o, xt_norm, inner, skip);
    snprintf(inner, sizeof inner, "%s1.%s%s%s", start, xt_on(o, "use_layerscale") ? "fn." : "",
             xt_shift(o, i) ? "fn." : "", letter == 'f' && xt_on(o, "macaron") ? "fn." : "");
    xt_add(f, o, letter == 'f' ? xt_feed_forward : xt_attention, inner, skip);
    xt_add(f, o, xt_residual, start, skip);
}

/* All tensors of a config. bare: numbers are made of names without that of the wrapper's stack. */
static inline void xt_tensors(fixture *f, const json_t *config, bool bare)
{
    json_t      *o = xt_options(config);
    const size_t skip = bare ? strlen("attn_layers.") : 0;
    char         letters[XT_SUBLAYERS];
    *f = (fixture){0};
    xt_layout(o, letters);
    xt_add(f, o, xt_wrapper, "", 0);
    for (size_t i = 0; letters[i]; i++) {
        const bool later = memchr(letters, 'a', i) != NULL; /* than the first attention */
        const bool mixes = xt_on(o, "add_value_residual") &&
                           !json_is_false(json_object_get(o, "learned_value_residual_mix"));
        json_object_set_new(o, "value_mix", json_boolean(later && mixes));
        xt_sublayer(f, o, i, letters[i], skip);
    }
    xt_add(f, o, xt_positions, "attn_layers.", skip);
    if (!xt_on(o, "post_norm") || xt_on(o, "resi_dual"))
        xt_add(f, o, xt_norm, "attn_layers.final_norm.", skip);
    json_decref(o);
}

#endif
