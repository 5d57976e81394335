/* Mamba-2 as Hugging Face has it: each layer is one mixer, a matrix memory whose decay and writes
 * have one rate, read by C, written by B, with a convolution before and a gated norm after it.
 * [Dao, Gu 2024; transformers, models/mamba2] */
#include "formats/mamba2.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

static const char   LIMIT[] = "time_step_limit";
static const double NO_LIMIT = 1e30; /* or more */

/* ---- the mixer ------------------------------------------------------------------------------- */

/* A limit of rates; 0: none. Infinity is a large number here, or an object around its name. */
static double limit_of(const json_t *x)
{
    const double number = json_number_value(x);
    return number > 0 && number < NO_LIMIT ? number : 0;
}

static void read_limits(dra_keys *k, dra_lambda_options *o)
{
    const json_t *both = json_object_get(k->object, LIMIT);
    if (!both || json_is_null(both)) return;
    if (json_array_size(both) != 2 || json_is_string(json_array_get(both, 1)) ||
        !json_is_number(json_array_get(both, 0)) || json_number_value(json_array_get(both, 0)) < 0)
        dra_keys_refuse(k, LIMIT, "two numbers from 0 on, of which the second may be Infinity");
    o->rate_least = limit_of(json_array_get(both, 0));
    o->rate_most = limit_of(json_array_get(both, 1));
    if (o->rate_most > 0 && o->rate_most < o->rate_least)
        dra_keys_refuse(k, LIMIT, "the lower one first");
}

void dra_mamba2_mixer(dra_keys *k, const dra_mamba2_sizes *s, double eps, dra_mixer_config *m)
{
    if (s->W < 2 || s->W > 8) dra_keys_refuse(k, s->names[DRA_MAMBA2_W], "2 to 8");
    if (s->H < 1 || s->P < 1 || s->N < 1)
        dra_keys_refuse(k,
                        s->names[s->H < 1   ? DRA_MAMBA2_H
                                 : s->P < 1 ? DRA_MAMBA2_P
                                            : DRA_MAMBA2_N],
                        "1 or more");
    if (s->G < 1 || s->H % s->G)
        dra_keys_refuse(k, s->names[DRA_MAMBA2_G], "a divisor of the number of heads");
    *m = (dra_mixer_config){
        .heads = s->H,
        .key_heads = s->G == s->H ? 0 : s->G,
        .key_dim = s->N,
        .value_dim = s->P,
        .conv = {s->W, s->conv_bias},
        .gate_values = DRA_GATE_SILU,
        .out_norm = {DRA_OUT_NORM_AFTER, s->G, .gains = true, .eps = eps},
        .a = {"moment", .moment = {DRA_PHI_IDENTITY, .skip = true}, .lambda.decay = DRA_DECAY_DATA,
              .lambda.decay_form = DRA_FORM_SOFTPLUS, .lambda.rate_values = true}};
    read_limits(k, &m->a.lambda);
}

void dra_mamba2_put_limits(dra_keys *k, const dra_mixer_config *m)
{
    const dra_lambda_options *o = &m->a.lambda;
    if (!(o->rate_least > 0) && !(o->rate_most > 0)) {
        dra_json_delete(k->object, LIMIT);
        return;
    }
    json_t *both = dra_json_array(&k->json);
    dra_json_append(&k->json, both, dra_json_real(&k->json, o->rate_least));
    dra_json_append(&k->json, both,
                    dra_json_real(&k->json, o->rate_most > 0 ? o->rate_most : NO_LIMIT));
    dra_keys_put(k, LIMIT, both);
}

/* Rows of the first product: the gate, x, B, C, rates; of the convolution those from x to C. */
void dra_mamba2_rules(const dra_mixer_config *m, const char *in_proj, const char *conv,
                      const char *conv_bias, dra_rule_list *list)
{
    static const char *const rows[] = {"layers.*.mixer.W_g", "layers.*.mixer.W_v",
                                       "layers.*.mixer.W_k", "layers.*.mixer.W_q",
                                       "layers.*.mixer.W_decay"};
    static const char *const taps[] = {"layers.*.mixer.conv_v", "layers.*.mixer.conv_k",
                                       "layers.*.mixer.conv_q"};
    static const char *const biases[] = {"layers.*.mixer.conv_b_v", "layers.*.mixer.conv_b_k",
                                         "layers.*.mixer.conv_b_q"};
    const int64_t            GN = (m->key_heads ? m->key_heads : m->heads) * m->key_dim;
    const int64_t            I = m->heads * m->value_dim, n[] = {I, I, GN, GN, m->heads};
    dra_rules_add_parts(list, in_proj, 5, rows, n, 1, 0);
    dra_rules_add_parts(list, conv, 3, taps, n + 1, 1, m->conv.width);
    dra_rules_add_parts(list, conv_bias, 3, biases, n + 1, 1, 0);
}

/* ---- the family ------------------------------------------------------------------------------ */

static dra_status make_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    static const char *const rules[][3] = {
        {"embedding", "embeddings.weight", "embedding.weight"},
        {"layers.*.mixer.norm_g", "layers.*.norm.weight"},
        {"layers.*.mixer.A_log", "layers.*.mixer.A_log"},
        {"layers.*.mixer.dt_bias", "layers.*.mixer.dt_bias"},
        {"layers.*.mixer.D", "layers.*.mixer.D"},
        {"layers.*.mixer.gain_out", "layers.*.mixer.norm.weight"},
        {"layers.*.mixer.W_o", "layers.*.mixer.out_proj.weight"},
        {"norm_g", "norm_f.weight"},
        {"head", "lm_head.weight"}};
    dra_rule_list    list;
    const dra_status st = dra_rules_open(out, &list, err);
    if (st != DRA_OK) return st;
    dra_mamba2_rules(&c->mixer[0], "layers.*.mixer.in_proj.weight", "layers.*.mixer.conv1d.weight",
                     "layers.*.mixer.conv1d.bias", &list);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        dra_rules_add(&list, rules[i][0], rules[i][1])->instead = rules[i][2];
    return DRA_OK;
}

enum { CONTEXT = 2048 }; /* no key says it: what the released ones were trained on */

static void read_mamba2(dra_keys *k, dra_model_config *c)
{
    const dra_mamba2_sizes s = {
        .H = dra_keys_int(k, "num_heads", NULL, 128),
        .P = dra_keys_int(k, "head_dim", NULL, 64),
        .N = dra_keys_int(k, "state_size", NULL, 128),
        .G = dra_keys_int(k, "n_groups", NULL, 8),
        .W = dra_keys_int(k, "conv_kernel", NULL, 4),
        .conv_bias = dra_keys_bool(k, "use_conv_bias", true),
        .names = {"num_heads", "head_dim", "state_size", "n_groups", "conv_kernel"}};
    const char *act = dra_keys_text(k, "hidden_act", "silu");
    c->vocab = dra_keys_int(k, "vocab_size", NULL, 32768);
    c->dim = dra_keys_int(k, "hidden_size", NULL, 4096);
    c->depth = dra_keys_int(k, "num_hidden_layers", NULL, 64);
    c->context = dra_keys_int(k, "max_position_embeddings", NULL, CONTEXT);
    c->norm_eps = dra_keys_real(k, "layer_norm_epsilon", 1e-5);
    c->tied = dra_keys_bool(k, "tie_word_embeddings", false) ? DRA_ON : DRA_OFF;
    c->ff.kind = DRA_FF_NONE;
    c->heads = s.H;
    dra_mixer_config *m = dra_keys_mixers(k, c, 1);
    if (!m) return;
    dra_mamba2_mixer(k, &s, c->norm_eps, m);
    if (s.H * s.P != c->dim * dra_keys_int(k, "expand", NULL, 2))
        dra_keys_refuse(k, "expand", "num_heads head_dim / hidden_size");
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        dra_keys_refuse(k, "hidden_act", "silu");
    if (dra_keys_bool(k, "use_bias", false)) dra_keys_refuse(k, "use_bias", "false");
}

static void write_mamba2(dra_keys *k, const dra_model_config *c)
{
    const dra_mixer_config *m = &c->mixer[0];
    const struct {
        const char *key;
        int64_t     n;
    } sizes[] = {{"vocab_size", c->vocab},
                 {"hidden_size", c->dim},
                 {"num_hidden_layers", c->depth},
                 {"num_heads", m->heads},
                 {"head_dim", m->value_dim},
                 {"state_size", m->key_dim},
                 {"n_groups", m->key_heads ? m->key_heads : m->heads},
                 {"conv_kernel", m->conv.width},
                 {"expand", m->heads * m->value_dim / c->dim}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        dra_keys_put(k, sizes[i].key, dra_json_int(&k->json, sizes[i].n));
    if (c->context != CONTEXT || json_object_get(k->object, "max_position_embeddings"))
        dra_keys_put(k, "max_position_embeddings", dra_json_int(&k->json, c->context));
    dra_keys_put(k, "use_conv_bias", dra_json_bool(m->conv.bias));
    dra_keys_put(k, "layer_norm_epsilon", dra_json_real(&k->json, c->norm_eps));
    dra_keys_put(k, "tie_word_embeddings", dra_json_bool(c->tied == DRA_ON));
    dra_mamba2_put_limits(k, m);
}

const dra_format dra_format_mamba2 = {.name = "mamba2",
                                      .prefix = "backbone.",
                                      .head = "lm_head.weight",
                                      .make_rules = make_rules,
                                      .class_name = "Mamba2ForCausalLM",
                                      .read = read_mamba2,
                                      .write = write_mamba2};
