/* RWKV-4 as Hugging Face has it (RwkvForCausalLM), and by the names of its original checkpoints,
 * which rwkv.cpp has kept. The receptance is what reads: q.
 * [https://huggingface.co/docs/transformers/model_doc/rwkv] */
#include <string.h>

#include "model/format.h"

static const dra_name_rule rules[] = {
    {"embedding", "embeddings.weight", "emb.weight"},
    {"embed_norm_g", "blocks.0.pre_ln.weight", "blocks.0.ln0.weight"},
    {"embed_norm_b", "blocks.0.pre_ln.bias", "blocks.0.ln0.bias"},
    {"layers.*.mixer.norm_g", "blocks.*.ln1.weight"},
    {"layers.*.mixer.norm_b", "blocks.*.ln1.bias"},
    {"layers.*.mixer.time_decay", "blocks.*.attention.time_decay", "blocks.*.att.time_decay",
     .decay = true},
    {"layers.*.mixer.time_first", "blocks.*.attention.time_first", "blocks.*.att.time_first"},
    {"layers.*.mixer.mu_k", "blocks.*.attention.time_mix_key", "blocks.*.att.time_mix_k",
     .ones = 2},
    {"layers.*.mixer.mu_v", "blocks.*.attention.time_mix_value", "blocks.*.att.time_mix_v",
     .ones = 2},
    {"layers.*.mixer.mu_q", "blocks.*.attention.time_mix_receptance", "blocks.*.att.time_mix_r",
     .ones = 2},
    {"layers.*.mixer.W_k", "blocks.*.attention.key.weight", "blocks.*.att.key.weight"},
    {"layers.*.mixer.W_v", "blocks.*.attention.value.weight", "blocks.*.att.value.weight"},
    {"layers.*.mixer.W_q", "blocks.*.attention.receptance.weight",
     "blocks.*.att.receptance.weight"},
    {"layers.*.mixer.W_o", "blocks.*.attention.output.weight", "blocks.*.att.output.weight"},
    {"layers.*.ff.norm_g", "blocks.*.ln2.weight"},
    {"layers.*.ff.norm_b", "blocks.*.ln2.bias"},
    {"layers.*.ff.mu_k", "blocks.*.feed_forward.time_mix_key", "blocks.*.ffn.time_mix_k",
     .ones = 2},
    {"layers.*.ff.mu_r", "blocks.*.feed_forward.time_mix_receptance", "blocks.*.ffn.time_mix_r",
     .ones = 2},
    {"layers.*.ff.W_up", "blocks.*.feed_forward.key.weight", "blocks.*.ffn.key.weight"},
    {"layers.*.ff.W_r", "blocks.*.feed_forward.receptance.weight",
     "blocks.*.ffn.receptance.weight"},
    {"layers.*.ff.W_down", "blocks.*.feed_forward.value.weight", "blocks.*.ffn.value.weight"},
    {"norm_g", "ln_out.weight"},
    {"norm_b", "ln_out.bias"},
    {"head", "head.weight"},
    {0}};

static const char *const ignored[] = {NULL};

/* ln_out has an eps of its own, which no key changes. */
static const double final_eps = 1e-5;

static void read(dra_keys *k, dra_model_config *c)
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
    c->norm = DRA_NORM_LAYER;
    c->embed_norm = true;
    c->ff.kind = DRA_FF_MIX;
    c->mixers = 1;
    c->mixer[0] = (dra_mixer_config){.shift = DRA_SHIFT_MIX, .a.memory = "wkv"};
}

static void write(dra_keys *k, const dra_model_config *c)
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
                                    .prefix = "rwkv.",
                                    .head = "head.weight",
                                    .rules = rules,
                                    .ignored = ignored,
                                    .class_name = "RwkvForCausalLM",
                                    .read = read,
                                    .write = write};
