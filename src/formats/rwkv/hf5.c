/* RWKV 5.2 and 6 as the classes have them that come with models of Hugging Face (Rwkv5ForCausalLM,
 * Rwkv6ForCausalLM): the originals' tensors under other names. Their configs name no rank: it is
 * what the tensors have. num_attention_heads says nothing.
 * [https://huggingface.co/RWKV/rwkv-5-world-1b5, rwkv-6-world-1b6] */
#include <math.h>
#include <string.h>

#include "formats/rwkv/rwkv.h"

static void read_rwkv5(dra_keys *k, dra_model_config *c, int version)
{
    const int64_t every = dra_keys_int(k, "rescale_every", NULL, 6);
    dra_rwkv_layers(c, version);
    c->vocab = dra_keys_int(k, "vocab_size", NULL, 65536);
    c->dim = dra_keys_int(k, "hidden_size", NULL, 768);
    c->depth = dra_keys_int(k, "num_hidden_layers", NULL, 24);
    c->key_dim = dra_keys_int(k, "head_size", NULL, 64);
    const int64_t all = dra_keys_int(k, "attention_hidden_size", NULL, c->dim);
    const double  divisor = dra_keys_number(k, "head_size_divisor", 1000, 8);
    if (c->key_dim < 1 || all % c->key_dim)
        dra_keys_refuse(k, "head_size", "a divisor of attention_hidden_size");
    c->heads = c->key_dim > 0 ? all / c->key_dim : 1;
    c->ff.dim = dra_keys_int(k, "intermediate_size", NULL, dra_rwkv_ff_dim(version, c->dim));
    c->context = dra_keys_int(k, "context_length", "max_position_embeddings", 1024);
    c->norm_eps = dra_keys_real(k, "layer_norm_epsilon", 1e-5);
    c->final_eps = 1e-5; /* of ln_out, which no key changes */
    c->rescale_every = every > 0 ? every : 0;
    c->tied = dra_keys_bool(k, "tie_word_embeddings", false) ? DRA_ON : DRA_OFF;
    dra_mixer_config *m = dra_keys_mixers(k, c, 1);
    if (!m) return;
    m->a.head_norm_eps = 1e-5 * divisor * divisor;
    if (version != 6) return;
    m->shift_rank = c->dim == 4096 ? 64 : 32;
    m->a.lambda.decay_rank = c->dim == 4096 ? 128 : 64;
}

static void write_rwkv5(dra_keys *k, const dra_model_config *c)
{
    const dra_mixer_config *m = &c->mixer[0];
    const int64_t           heads = m->heads ? m->heads : c->heads;
    const int64_t own = m->key_dim ? m->key_dim : c->key_dim ? c->key_dim : c->dim / heads;
    dra_keys_put(k, "vocab_size", dra_json_int(&k->json, c->vocab));
    dra_keys_put(k, "hidden_size", dra_json_int(&k->json, c->dim));
    dra_keys_put(k, "num_hidden_layers", dra_json_int(&k->json, c->depth));
    dra_keys_put(k, "attention_hidden_size", dra_json_int(&k->json, own * heads));
    dra_keys_put(k, "head_size", dra_json_int(&k->json, own));
    const double divisor = sqrt(m->a.head_norm_eps / 1e-5), whole = round(divisor);
    dra_keys_put(k, "head_size_divisor",
                 fabs(divisor - whole) < 1e-9 ? dra_json_int(&k->json, (int64_t)whole)
                                              : dra_json_real(&k->json, divisor));
    dra_keys_put(k, "intermediate_size", dra_json_int(&k->json, c->ff.dim));
    dra_keys_put(k, "context_length", dra_json_int(&k->json, c->context));
    dra_keys_put(k, "layer_norm_epsilon", dra_json_real(&k->json, c->norm_eps));
    dra_keys_put(k, "rescale_every", dra_json_int(&k->json, c->rescale_every));
    dra_keys_put(k, "tie_word_embeddings", dra_json_bool(c->tied == DRA_ON));
}

static bool fits_6(const json_t *object) { return !dra_format_fla6.fits(object); }

static void read_5(dra_keys *k, dra_model_config *c) { read_rwkv5(k, c, 5); }
static void read_6(dra_keys *k, dra_model_config *c) { read_rwkv5(k, c, 6); }

const dra_format dra_format_rwkv5 = {.name = "rwkv5",
                                     .rwkv = 5,
                                     .prefix = "rwkv.",
                                     .head = "head.weight",
                                     .make_rules = dra_rwkv_rules,
                                     .ignored = dra_rwkv_ignored,
                                     .class_name = "Rwkv5ForCausalLM",
                                     .read = read_5,
                                     .write = write_rwkv5};

const dra_format dra_format_rwkv6 = {.name = "rwkv6",
                                     .fits = fits_6,
                                     .rwkv = 6,
                                     .prefix = "rwkv.",
                                     .head = "head.weight",
                                     .make_rules = dra_rwkv_rules,
                                     .ignored = dra_rwkv_ignored,
                                     .class_name = "Rwkv6ForCausalLM",
                                     .read = read_6,
                                     .write = write_rwkv5};
