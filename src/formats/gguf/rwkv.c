/* RWKV 6 and 7 in GGUF: keys; formats/rwkv/names.c has the tensors. The eps of the head norm is
 * 64e-5 there, which no key changes, and all channels of the heads together are as wide as the
 * model.
 * [https://github.com/ggml-org/llama.cpp, convert_hf_to_gguf.py, src/models/rwkv7.cpp] */
#include <stdio.h>
#include <string.h>

#include "base/shape.h"
#include "formats/gguf/gguf.h"
#include "formats/rwkv/rwkv.h"

enum { KEY = 64, CONTEXT = 1 << 20 };

/* The key of an architecture. */
static const char *rwkv_key(char room[KEY], int version, const char *name)
{
    snprintf(room, KEY, "rwkv%d.%s", version, name);
    return room;
}

typedef struct rank { /* of low-rank factors, a number of the config */
    int         version;
    const char *name;
    size_t      mixer; /* offset in dra_mixer_config */
} rank;

static const rank ranks[] = {
    {6, "time_mix_extra_dim", offsetof(dra_mixer_config, shift_rank)},
    {6, "time_decay_extra_dim", offsetof(dra_mixer_config, a.lambda.decay_rank)},
    {7, "attention.decay_lora_rank", offsetof(dra_mixer_config, a.lambda.decay_rank)},
    {7, "attention.iclr_lora_rank", offsetof(dra_mixer_config, a.delta.rate_rank)},
    {7, "attention.value_residual_mix_lora_rank", offsetof(dra_mixer_config, value_rank)},
    {7, "attention.gate_lora_rank", offsetof(dra_mixer_config, gate_rank)}};

enum { RANKS = sizeof ranks / sizeof *ranks };

/* ---- reading --------------------------------------------------------------------------------- */

/* A number that has to be there. */
static int64_t read_needed(dra_keys *k, int version, const char *name)
{
    char          room[KEY];
    const int64_t n = dra_keys_int(k, rwkv_key(room, version, name), NULL, 0);
    if (n < 1) dra_keys_refuse(k, room, "1 or more");
    return n < 1 ? 1 : n;
}

static int64_t read_number(dra_keys *k, int version, const char *name, int64_t fallback)
{
    char room[KEY];
    return dra_keys_int(k, rwkv_key(room, version, name), NULL, fallback);
}

static void read_rwkv(dra_keys *k, dra_model_config *c, int version)
{
    char room[KEY];
    dra_rwkv_layers(c, version);
    c->vocab = read_number(k, version, "vocab_size", 0);
    c->context = read_number(k, version, "context_length", CONTEXT);
    c->dim = read_needed(k, version, "embedding_length");
    c->depth = read_needed(k, version, "block_count");
    c->ff.dim = read_needed(k, version, "feed_forward_length");
    c->key_dim = read_needed(k, version, "wkv.head_size");
    if (c->dim % c->key_dim)
        dra_keys_refuse(k, rwkv_key(room, version, "wkv.head_size"),
                        "a divisor of embedding_length");
    c->heads = c->dim / c->key_dim;
    rwkv_key(room, version, "attention.layer_norm_epsilon");
    c->norm_eps = c->final_eps = dra_keys_real(k, room, 1e-5);
    if (read_number(k, version, "token_shift_count", 2) != 2)
        dra_keys_refuse(k, rwkv_key(room, version, "token_shift_count"), "2");
    const int64_t every = read_number(k, version, "rescale_every_n_layers", 0);
    c->rescale_every = every > 0 ? every : 0;
    dra_mixer_config *m = dra_keys_mixers(k, c, 1);
    for (int i = 0; m && i < RANKS; i++) {
        if (ranks[i].version != version) continue;
        const int64_t n = read_needed(k, version, ranks[i].name);
        memcpy((char *)m + ranks[i].mixer, &n, sizeof n);
    }
}

void dra_gguf_read_rwkv6(dra_keys *k, dra_model_config *c) { read_rwkv(k, c, 6); }
void dra_gguf_read_rwkv7(dra_keys *k, dra_model_config *c) { read_rwkv(k, c, 7); }

/* ---- writing --------------------------------------------------------------------------------- */

static void put_number(dra_keys *k, int version, const char *name, int64_t n)
{
    char room[KEY];
    dra_keys_put(k, rwkv_key(room, version, name), dra_json_int(&k->json, n));
}

/* head_count 0 is what llama.cpp takes for "no attention". */
void dra_gguf_write_rwkv(dra_keys *k, const dra_model_config *c)
{
    const dra_mixer_config *m = &c->mixer[0];
    const int               version = dra_model_config_rwkv(c);
    const int64_t           heads = m->heads ? m->heads : c->heads;
    const int64_t           own = m->key_dim ? m->key_dim : c->key_dim;
    char                    room[KEY];
    put_number(k, version, "context_length", c->context);
    put_number(k, version, "embedding_length", c->dim);
    put_number(k, version, "block_count", c->depth);
    rwkv_key(room, version, "attention.layer_norm_epsilon");
    dra_keys_put(k, room, dra_json_real(&k->json, c->norm_eps));
    put_number(k, version, "wkv.head_size", own ? own : c->dim / heads);
    put_number(k, version, "feed_forward_length", c->ff.dim);
    put_number(k, version, "attention.head_count", 0);
    if (version == 6) put_number(k, version, "rescale_every_n_layers", c->rescale_every);
    put_number(k, version, "vocab_size", c->vocab);
    for (int i = 0; i < RANKS; i++) {
        int64_t n;
        memcpy(&n, (const char *)m + ranks[i].mixer, sizeof n);
        if (ranks[i].version == version) put_number(k, version, ranks[i].name, n);
    }
}

/* Factors of decays and of version 6's mixes always; other factors where the rest is quantised. */
bool dra_gguf_stays_f32(const char *name, dra_dtype wanted)
{
    static const char *const always[] = {".time_mix_w1.", ".time_mix_w2.",    ".time_mix_decay_w",
                                         ".ssm_conv1d.",  ".shortconv.conv.", ".ffn_gate_inp."};
    static const char *const factors[] = {".time_mix_a1.", ".time_mix_a2.", ".time_mix_v1.",
                                          ".time_mix_v2.", ".time_mix_g1.", ".time_mix_g2."};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (strstr(name, always[i])) return true;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (dra_is_quantised(wanted) && strstr(name, factors[i])) return true;
    return false;
}
