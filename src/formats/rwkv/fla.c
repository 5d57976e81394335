/* RWKV 6 and 7 as flash-linear-attention has them (RWKV6ForCausalLM, RWKV7ForCausalLM). The eps of
 * the head norm is norm_eps, of version 7 head_dim norm_eps: a folder made of an original
 * checkpoint gives slightly other numbers than that.
 * [https://github.com/fla-org/flash-linear-attention, fla/models/rwkv6, rwkv7] */
#include <math.h>
#include <string.h>

#include "formats/rwkv/rwkv.h"

/* ---- what both have -------------------------------------------------------------------------- */

static void refuse_others(dra_keys *k)
{
    const json_t *attn = json_object_get(k->object, "attn");
    if (attn && !json_is_null(attn)) dra_keys_refuse(k, "attn", "null: no layers of attention");
    if (strcmp(dra_keys_text(k, "hidden_act", "sqrelu"), "sqrelu") != 0)
        dra_keys_refuse(k, "hidden_act", "sqrelu");
    if (!dra_keys_bool(k, "norm_bias", true)) dra_keys_refuse(k, "norm_bias", "true");
}

static void read_common(dra_keys *k, dra_model_config *c, int version, double ratio)
{
    refuse_others(k);
    dra_rwkv_layers(c, version);
    ratio = dra_keys_number(k, "hidden_ratio", 1000, ratio);
    c->vocab = dra_keys_int(k, "vocab_size", NULL, 32000);
    c->dim = dra_keys_int(k, "hidden_size", NULL, 2048);
    c->depth = dra_keys_int(k, "num_hidden_layers", NULL, 24);
    c->ff.dim = dra_keys_int(k, "intermediate_size", NULL,
                             32 * (int64_t)ceil(ratio * (double)c->dim / 32));
    c->context = dra_keys_int(k, "max_position_embeddings", NULL, 2048);
    c->norm_eps = c->final_eps = dra_keys_real(k, "norm_eps", 1e-5);
    c->embed_norm = dra_keys_bool(k, "norm_first", true);
    c->tied = dra_keys_bool(k, "tie_word_embeddings", false) ? DRA_ON : DRA_OFF;
}

typedef struct sizes { /* of a head */
    int64_t heads, key, value;
} sizes;

static sizes sizes_of(const dra_model_config *c)
{
    const dra_mixer_config *m = &c->mixer[0];
    sizes s = {m->heads ? m->heads : c->heads, m->key_dim ? m->key_dim : c->key_dim,
               m->value_dim ? m->value_dim : c->value_dim};
    if (!s.key) s.key = c->dim / s.heads;
    if (!s.value) s.value = s.key;
    return s;
}

static void put_int(dra_keys *k, const char *key, int64_t n)
{
    dra_keys_put(k, key, dra_json_int(&k->json, n));
}

static void write_common(dra_keys *k, const dra_model_config *c)
{
    put_int(k, "vocab_size", c->vocab);
    put_int(k, "hidden_size", c->dim);
    put_int(k, "num_hidden_layers", c->depth);
    put_int(k, "intermediate_size", c->ff.dim);
    put_int(k, "max_position_embeddings", c->context);
    put_int(k, "num_heads", sizes_of(c).heads);
    dra_keys_put(k, "norm_eps", dra_json_real(&k->json, c->norm_eps));
    dra_keys_put(k, "norm_first", dra_json_bool(c->embed_norm));
    dra_keys_put(k, "tie_word_embeddings", dra_json_bool(c->tied == DRA_ON));
}

/* ---- version 6 ------------------------------------------------------------------------------- */

/* Channels of all heads together, of expand times dim. */
static int64_t read_expanded(dra_keys *k, const char *key, double fallback,
                             const dra_model_config *c)
{
    const double n = dra_keys_number(k, key, 1000, fallback) * (double)c->dim;
    if (n != floor(n) || n < 1 || n > 1 << 20 || (int64_t)n % c->heads)
        dra_keys_refuse(k, key, "a factor of hidden_size whose result num_heads divides");
    return n >= 1 && n <= 1 << 20 ? (int64_t)n : 1;
}

static void read_6(dra_keys *k, dra_model_config *c)
{
    read_common(k, c, 6, 3.5);
    c->heads = dra_keys_int(k, "num_heads", NULL, 4);
    if (c->heads < 1) dra_keys_refuse(k, "num_heads", "1 or more");
    if (c->heads < 1) c->heads = 1;
    c->key_dim = read_expanded(k, "expand_k", 0.5, c) / c->heads;
    c->value_dim = read_expanded(k, "expand_v", 1, c) / c->heads;
    dra_mixer_config *m = dra_keys_mixers(k, c, 1);
    if (!m) return;
    m->shift_rank = dra_keys_int(k, "proj_low_rank_dim", NULL, 32);
    m->a.lambda.decay_rank = dra_keys_int(k, "gate_low_rank_dim", NULL, 64);
    m->a.head_norm_eps = c->norm_eps;
}

static void write_6(dra_keys *k, const dra_model_config *c)
{
    const sizes s = sizes_of(c);
    write_common(k, c);
    dra_keys_put(k, "expand_k",
                 dra_json_real(&k->json, (double)(s.heads * s.key) / (double)c->dim));
    dra_keys_put(k, "expand_v",
                 dra_json_real(&k->json, (double)(s.heads * s.value) / (double)c->dim));
    put_int(k, "proj_low_rank_dim", c->mixer[0].shift_rank);
    put_int(k, "gate_low_rank_dim", c->mixer[0].a.lambda.decay_rank);
}

/* Two classes share the name rwkv6; without one of these keys it is the other. */
static bool fits_6(const json_t *object)
{
    static const char *const keys[] = {"proj_low_rank_dim", "gate_low_rank_dim", "expand_k",
                                       "hidden_ratio", "norm_first"};
    const char              *class_name = json_string_value(
                     json_array_get(json_object_get(object, "architectures"), 0));
    if (class_name) return strcmp(class_name, "RWKV6ForCausalLM") == 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(object, keys[i])) return true;
    return false;
}

/* ---- version 7 ------------------------------------------------------------------------------- */

/* One number for all layers, or a list of them. */
static void check_value_dim(dra_keys *k, const dra_model_config *c)
{
    const json_t *v = json_object_get(k->object, "value_dim"), *each;
    size_t        i;
    bool          right = !v || json_is_null(v) || json_integer_value(v) == c->dim;
    if (json_is_array(v)) {
        right = true;
        json_array_foreach(v, i, each) right = right && json_integer_value(each) == c->dim;
    }
    if (!right) dra_keys_refuse(k, "value_dim", "hidden_size in every layer");
}

static void read_7(dra_keys *k, dra_model_config *c)
{
    read_common(k, c, 7, 4);
    c->key_dim = dra_keys_int(k, "head_dim", NULL, 64);
    if (c->key_dim < 1 || c->dim % c->key_dim)
        dra_keys_refuse(k, "head_dim", "a divisor of hidden_size");
    if (c->key_dim < 1) c->key_dim = 1;
    c->heads = dra_keys_int(k, "num_heads", NULL, c->dim / c->key_dim);
    check_value_dim(k, c);
    dra_mixer_config *m = dra_keys_mixers(k, c, 1);
    if (!m) return;
    m->a.lambda.decay_rank = dra_keys_int(k, "decay_low_rank_dim", NULL, 64);
    m->a.delta.rate_rank = dra_keys_int(k, "a_low_rank_dim", NULL, 64);
    m->value_rank = dra_keys_int(k, "v_low_rank_dim", NULL, 16);
    m->gate_rank = dra_keys_int(k, "gate_low_rank_dim", NULL, 128);
    m->a.head_norm_eps = (double)c->key_dim * c->norm_eps;
}

static void write_7(dra_keys *k, const dra_model_config *c)
{
    const dra_mixer_config *m = &c->mixer[0];
    write_common(k, c);
    put_int(k, "head_dim", sizes_of(c).key);
    put_int(k, "decay_low_rank_dim", m->a.lambda.decay_rank);
    put_int(k, "a_low_rank_dim", m->a.delta.rate_rank);
    put_int(k, "v_low_rank_dim", m->value_rank);
    put_int(k, "gate_low_rank_dim", m->gate_rank);
}

const dra_format dra_format_fla6 = {.name = "rwkv6",
                                    .fits = fits_6,
                                    .rwkv = 6,
                                    .prefix = "model.",
                                    .head = "lm_head.weight",
                                    .make_rules = dra_rwkv_rules,
                                    .ignored = dra_rwkv_ignored,
                                    .class_name = "RWKV6ForCausalLM",
                                    .read = read_6,
                                    .write = write_6};

const dra_format dra_format_rwkv7 = {.name = "rwkv7",
                                     .rwkv = 7,
                                     .prefix = "model.",
                                     .head = "lm_head.weight",
                                     .make_rules = dra_rwkv_rules,
                                     .ignored = dra_rwkv_ignored,
                                     .class_name = "RWKV7ForCausalLM",
                                     .read = read_7,
                                     .write = write_7};
