/* RWKV-4 as Hugging Face has it (RwkvForCausalLM).
 * [https://huggingface.co/docs/transformers/model_doc/rwkv] */
#include "formats/rwkv/rwkv.h"

/* ln_out has an eps of its own, which no key changes. */
static const double final_eps = 1e-5;

static void read_rwkv4(dra_keys *k, dra_model_config *c)
{
    const int64_t every = dra_keys_int(k, "rescale_every", NULL, 6);
    c->vocab = dra_keys_int(k, "vocab_size", NULL, 50277);
    c->dim = dra_keys_int(k, "hidden_size", NULL, 4096);
    c->depth = dra_keys_int(k, "num_hidden_layers", NULL, 32);
    c->heads = 1;
    c->key_dim = dra_keys_int(k, "attention_hidden_size", NULL, c->dim);
    c->ff.dim = dra_keys_int(k, "intermediate_size", NULL, 4 * c->dim);
    c->context = dra_keys_int(k, "context_length", "max_position_embeddings", 1024);
    c->norm_eps = dra_keys_real(k, "layer_norm_epsilon", 1e-5);
    c->final_eps = final_eps;
    c->rescale_every = every > 0 ? every : 0;
    c->tied = dra_keys_bool(k, "tie_word_embeddings", false) ? DRA_ON : DRA_OFF;
    dra_rwkv_layers(c, 4);
}

static void write_rwkv4(dra_keys *k, const dra_model_config *c)
{
    const dra_mixer_config *m = &c->mixer[0];
    const int64_t           heads = m->heads ? m->heads : c->heads;
    const int64_t           own = m->key_dim ? m->key_dim : c->key_dim;
    dra_keys_put(k, "vocab_size", dra_json_int(&k->json, c->vocab));
    dra_keys_put(k, "hidden_size", dra_json_int(&k->json, c->dim));
    dra_keys_put(k, "num_hidden_layers", dra_json_int(&k->json, c->depth));
    dra_keys_put(k, "attention_hidden_size", dra_json_int(&k->json, own ? own * heads : c->dim));
    dra_keys_put(k, "intermediate_size", dra_json_int(&k->json, c->ff.dim));
    dra_keys_put(k, "context_length", dra_json_int(&k->json, c->context));
    dra_keys_put(k, "layer_norm_epsilon", dra_json_real(&k->json, c->norm_eps));
    dra_keys_put(k, "rescale_every", dra_json_int(&k->json, c->rescale_every));
    dra_keys_put(k, "tie_word_embeddings", dra_json_bool(c->tied == DRA_ON));
}

const dra_format dra_format_rwkv = {.name = "rwkv",
                                    .rwkv = 4,
                                    .prefix = "rwkv.",
                                    .head = "head.weight",
                                    .make_rules = dra_rwkv_rules,
                                    .ignored = dra_rwkv_ignored,
                                    .class_name = "RwkvForCausalLM",
                                    .read = read_rwkv4,
                                    .write = write_rwkv4};
