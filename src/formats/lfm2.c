/* Liquid's LFM2 among the Llama family: layers of a gated short convolution, or of attention, all
 * with norms and feed-forwards under names of their own.
 * [https://huggingface.co/docs/transformers/model_doc/lfm2] */
#include "formats/lfm2.h"

#include <string.h>

static const char TAPS[] = "conv_L_cache", ADJUSTS[] = "block_auto_adjust_ff_dim",
                  OLDER[] = "block_ff_dim", INNER[] = "intermediate_size";

/* ---- config ---------------------------------------------------------------------------------- */

/* A width of which two thirds are meant, rounded up. */
int64_t dra_lfm2_inner(dra_keys *k, int64_t fallback)
{
    const int64_t n = dra_keys_int(k, OLDER, INNER, fallback);
    const int64_t unit = dra_keys_int(k, "block_multiple_of", NULL, 256);
    const double  by = dra_keys_number(k, "block_ffn_dim_multiplier", 1e3, 1);
    if (!dra_keys_bool(k, ADJUSTS, true)) return n;
    if (unit < 1) dra_keys_refuse(k, "block_multiple_of", "1 or more");
    const int64_t least = (int64_t)(by * (double)(2 * n / 3));
    return unit < 1 ? n : unit * ((least + unit - 1) / unit);
}

/* What a config says already stays as it is. */
void dra_lfm2_put_inner(dra_keys *k, int64_t n, int64_t fallback)
{
    dra_keys said = {.place = k->place, .object = k->object};
    if (dra_lfm2_inner(&said, fallback) == n && said.status == DRA_OK) return;
    dra_json_delete(k->object, OLDER);
    dra_keys_put(k, INNER, dra_json_int(&k->json, n));
    dra_keys_put(k, ADJUSTS, dra_json_bool(false));
}

bool dra_lfm2_has_conv(dra_keys *k, int64_t l)
{
    static const char key[] = "full_attn_idxs";
    const json_t     *list = json_object_get(k->object, key), *v;
    size_t            i;
    if (!list || json_is_null(list)) return false;
    if (!json_is_array(list)) dra_keys_refuse(k, key, "a list of numbers of layers");
    json_array_foreach(list, i,
                       v) if (json_is_integer(v) && json_integer_value(v) == l) return false;
    return true;
}

void dra_lfm2_read(dra_keys *k, const dra_model_config *c, dra_mixer_config *m)
{
    const int64_t W = dra_keys_int(k, TAPS, NULL, 3);
    if (W < 2 || W > 8) dra_keys_refuse(k, TAPS, "2 to 8");
    if (dra_keys_bool(k, "conv_bias", false)) dra_keys_refuse(k, "conv_bias", "false");
    *m = (dra_mixer_config){.heads = 1,
                            .key_dim = c->dim,
                            .value_dim = c->dim,
                            .a = {"shortconv", .shortconv.taps = W}};
}

void dra_lfm2_write(dra_keys *k, const dra_mixer_config *m)
{
    const int64_t W = m->a.shortconv.taps;
    dra_keys_put(k, TAPS, dra_json_int(&k->json, W ? W : 3));
    dra_keys_put(k, "conv_bias", dra_json_bool(false));
}

/* ---- tensors --------------------------------------------------------------------------------- */

void dra_lfm2_rules(dra_rule_list *list)
{
    static const char *const rules[][2] = {
        {"layers.*.mixer.norm_g", "layers.*.operator_norm.weight"},
        {"layers.*.ff.norm_g", "layers.*.ffn_norm.weight"},
        {"layers.*.ff.W_gate", "layers.*.feed_forward.w1.weight"},
        {"layers.*.ff.W_up", "layers.*.feed_forward.w3.weight"},
        {"layers.*.ff.W_down", "layers.*.feed_forward.w2.weight"},
        {"layers.*.mixer.W_o", "layers.*.self_attn.out_proj.weight"},
        {"layers.*.mixer.gain_q", "layers.*.self_attn.q_layernorm.weight"},
        {"layers.*.mixer.gain_k", "layers.*.self_attn.k_layernorm.weight"},
        {"norm_g", "embedding_norm.weight"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        dra_rules_add(list, rules[i][0], rules[i][1]);
}

/* Rows of the first product: what gates values, what reads, values. */
void dra_lfm2_conv_rules(const dra_mixer_config *m, dra_rule_list *list)
{
    static const char *const rows[] = {"layers.*.mixer.W_k", "layers.*.mixer.W_q",
                                       "layers.*.mixer.W_v"};
    const int64_t            W = m->a.shortconv.taps ? m->a.shortconv.taps : 3;
    for (int i = 0; i < 3; i++) {
        dra_name_rule *r = dra_rules_add(list, rows[i], "layers.*.conv.in_proj.weight");
        r->part = i, r->parts = 3;
    }
    dra_rules_add(list, "layers.*.mixer.taps", "layers.*.conv.conv.weight")->shape = DRA_SHAPE(
        m->key_dim, 1, W);
    dra_rules_add(list, "layers.*.mixer.W_o", "layers.*.conv.out_proj.weight");
}
