/* GGUF: the settings of a model are pairs of its file, read and written like a config.json with
 * these keys. An architecture is a row: its name, its rules, its keys. */
#include "formats/gguf/gguf.h"

#include <stdio.h>
#include <string.h>

#include "file/fail.h"
#include "formats/rwkv/rwkv.h"

typedef struct architecture {
    const char *name;
    dra_status (*rules)(const dra_model_config *c, dra_name_rules *out, dra_error *err);
    void (*read)(dra_keys *k, dra_model_config *c);
    void (*write)(dra_keys *k, const dra_model_config *c);
    /* This config is one of it; NULL: dra_gguf_llama_name() says so. */
    bool (*is)(const dra_model_config *c);
} architecture;

/* ---- gpt2 ------------------------------------------------------------------------------------ */

/* As in Hugging Face's files, but projections are stored (out, in). */
static const dra_name_rule gpt2_rules[] = {
    {"embedding", "token_embd.weight"},
    {"positions", "position_embd.weight"},
    {"layers.*.mixer.norm_g", "blk.*.attn_norm.weight"},
    {"layers.*.mixer.norm_b", "blk.*.attn_norm.bias"},
    {"layers.*.mixer.W_q", "blk.*.attn_qkv.weight", .part = 0, .parts = 3},
    {"layers.*.mixer.W_k", "blk.*.attn_qkv.weight", .part = 1, .parts = 3},
    {"layers.*.mixer.W_v", "blk.*.attn_qkv.weight", .part = 2, .parts = 3},
    {"layers.*.mixer.b_q", "blk.*.attn_qkv.bias", .part = 0, .parts = 3},
    {"layers.*.mixer.b_k", "blk.*.attn_qkv.bias", .part = 1, .parts = 3},
    {"layers.*.mixer.b_v", "blk.*.attn_qkv.bias", .part = 2, .parts = 3},
    {"layers.*.mixer.W_o", "blk.*.attn_output.weight"},
    {"layers.*.mixer.b_o", "blk.*.attn_output.bias"},
    {"layers.*.ff.norm_g", "blk.*.ffn_norm.weight"},
    {"layers.*.ff.norm_b", "blk.*.ffn_norm.bias"},
    {"layers.*.ff.W_up", "blk.*.ffn_up.weight"},
    {"layers.*.ff.b_up", "blk.*.ffn_up.bias"},
    {"layers.*.ff.W_down", "blk.*.ffn_down.weight"},
    {"layers.*.ff.b_down", "blk.*.ffn_down.bias"},
    {"norm_g", "output_norm.weight"},
    {"norm_b", "output_norm.bias"},
    {"head", "output.weight"},
    {0}};

static dra_status make_gpt2(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    out->row = gpt2_rules;
    return DRA_OK;
}

static void read_gpt2(dra_keys *k, dra_model_config *c)
{
    c->context = dra_keys_int(k, "gpt2.context_length", NULL, 0);
    c->dim = dra_keys_int(k, "gpt2.embedding_length", NULL, 0);
    c->depth = dra_keys_int(k, "gpt2.block_count", NULL, 0);
    c->ff.dim = dra_keys_int(k, "gpt2.feed_forward_length", NULL, 4 * c->dim);
    c->heads = dra_keys_int(k, "gpt2.attention.head_count", NULL, 0);
    c->norm_eps = dra_keys_real(k, "gpt2.attention.layer_norm_epsilon", 1e-5);
    c->vocab = dra_keys_int(k, "gpt2.vocab_size", NULL, 0);
    c->ff.kind = DRA_FF_GELU;
    c->positions = DRA_POSITIONS_LEARNED;
    c->norm = DRA_NORM_LAYER;
    c->bias = true;
    c->mixers = 1;
}

static void write_gpt2(dra_keys *k, const dra_model_config *c)
{
    dra_keys_put(k, "gpt2.context_length", dra_json_int(&k->json, c->context));
    dra_keys_put(k, "gpt2.embedding_length", dra_json_int(&k->json, c->dim));
    dra_keys_put(k, "gpt2.block_count", dra_json_int(&k->json, c->depth));
    dra_keys_put(k, "gpt2.feed_forward_length", dra_json_int(&k->json, c->ff.dim));
    dra_keys_put(k, "gpt2.attention.head_count", dra_json_int(&k->json, c->heads));
    dra_keys_put(k, "gpt2.attention.layer_norm_epsilon", dra_json_real(&k->json, c->norm_eps));
    dra_keys_put(k, "gpt2.vocab_size", dra_json_int(&k->json, c->vocab));
}

/* What it has that GPT-2 has not is found when the keys are read back. */
static bool is_gpt2(const dra_model_config *c) { return true; }
static bool is_rwkv6(const dra_model_config *c) { return dra_model_config_rwkv(c) == 6; }
static bool is_rwkv7(const dra_model_config *c) { return dra_model_config_rwkv(c) == 7; }

/* ---- all of them ----------------------------------------------------------------------------- */

#define LLAMA(name)                                                                                \
    {                                                                                              \
        name, dra_gguf_llama_rules, dra_gguf_read_llama, dra_gguf_write_llama                      \
    }

/* The last takes what none before it is. */
static const architecture architectures[] = {
    {"rwkv6", dra_rwkv_rules, dra_gguf_read_rwkv6, dra_gguf_write_rwkv, is_rwkv6},
    {"rwkv7", dra_rwkv_rules, dra_gguf_read_rwkv7, dra_gguf_write_rwkv, is_rwkv7},
    {"qwen35", dra_gguf_recurrent_rules, dra_gguf_read_qwen35, dra_gguf_write_recurrent,
     dra_gguf_is_qwen35},
    {"mamba2", dra_gguf_recurrent_rules, dra_gguf_read_mamba2, dra_gguf_write_recurrent,
     dra_gguf_is_mamba2},
    {"granitehybrid", dra_gguf_recurrent_rules, dra_gguf_read_granite_hybrid,
     dra_gguf_write_recurrent, dra_gguf_is_granite_hybrid},
    {"lfm2", dra_gguf_recurrent_rules, dra_gguf_read_lfm2, dra_gguf_write_recurrent,
     dra_gguf_is_lfm2},
    LLAMA("llama"),
    LLAMA("qwen2"),
    LLAMA("qwen3"),
    LLAMA("qwen3moe"),
    LLAMA("smollm3"),
    LLAMA("granite"),
    LLAMA("olmo2"),
    LLAMA("gemma3"),
    LLAMA("phi3"),
    {"gpt2", make_gpt2, read_gpt2, write_gpt2, is_gpt2}};

enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static const char ARCHITECTURE_KEY[] = "general.architecture", TIED_KEY[] = "dra.tied";
static const char HEAD[] = "output.weight", EMBEDDING[] = "token_embd.weight";

static const architecture *architecture_of(const dra_model_config *c)
{
    const char *llama = dra_gguf_llama_name(c);
    int         i = 0;
    for (; i < ARCHITECTURES - 1; i++) {
        const architecture *a = &architectures[i];
        if (a->is ? a->is(c) : llama && strcmp(a->name, llama) == 0) break;
    }
    return &architectures[i];
}

static void read_gguf(dra_keys *k, dra_model_config *c)
{
    const char *name = dra_keys_text(k, ARCHITECTURE_KEY, "");
    for (int i = 0; i < ARCHITECTURES; i++)
        if (strcmp(architectures[i].name, name) == 0) {
            architectures[i].read(k, c);
            c->tied = dra_keys_bool(k, TIED_KEY, true) ? DRA_ON : DRA_OFF;
            return;
        }
    dra_keys_refuse(
        k, ARCHITECTURE_KEY,
        "gpt2, llama, qwen2, qwen3, qwen3moe, smollm3, granite, olmo2, gemma3, phi3, rwkv6, "
        "rwkv7, qwen35, mamba2, granitehybrid or lfm2");
}

/* What keys of GPT-2 have no words for at all: other versions of RWKV, other memories. Smaller
 * differences are named when the keys are read back. */
static void refuse_others(dra_keys *k, const dra_model_config *c)
{
    const int   version = dra_model_config_rwkv(c);
    const char *memory = NULL; /* the first that is not attention */
    char        name[16];
    for (int i = 0; i < c->mixers && (!memory || strcmp(memory, "append") == 0); i++)
        memory = c->mixer[i].a.memory;
    snprintf(name, sizeof name, "rwkv%d", version);
    if (version == 0 && (!memory || strcmp(memory, "append") == 0)) return;
    k->status = dra_fail_at(k->err, DRA_ERR_VALUE, k->place,
                            "%s%s has no GGUF form, only gpt2, rwkv6 and rwkv7, "
                            "qwen3_5, mamba2, granitemoehybrid, lfm2, and those of the Llama "
                            "family have one",
                            version ? "architecture " : "a model whose memory is ",
                            version ? name : memory);
}

/* The file has no key for a head of its own: its tensor is there, or not. */
static void write_gguf(dra_keys *k, const dra_model_config *c)
{
    const architecture *a = architecture_of(c);
    if (a->is == is_gpt2) refuse_others(k, c);
    if (k->status != DRA_OK) return;
    dra_keys_put(k, ARCHITECTURE_KEY, dra_json_text(&k->json, a->name));
    dra_keys_put(k, "general.type", dra_json_text(&k->json, "model"));
    a->write(k, c);
    if (c->tied != DRA_ON) dra_keys_put(k, TIED_KEY, dra_json_bool(false));
}

static dra_status make_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    return architecture_of(c)->rules(c, out, err);
}

/* Layer 0 of RWKV 7 mixes no values; what is there in their place is not read. */
static const char *const ignored[] = {"blk.0.time_mix_v0.weight", "blk.0.time_mix_v1.weight",
                                      "blk.0.time_mix_v2.weight", NULL};

const dra_format dra_format_gguf = {.name = "gguf",
                                    .prefix = "",
                                    .head = HEAD,
                                    .make_rules = make_rules,
                                    .ordered = true,
                                    .ignored = ignored,
                                    .read = read_gguf,
                                    .write = write_gguf};

dra_status dra_gguf_config(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, EMBEDDING);
    dra_status st = dra_format_read(&dra_format_gguf, s->path, s->gguf.pairs, c, err);
    if (st != DRA_OK) return st;
    if (!e || e->info->shape.rank != 2)
        return dra_fail_at(err, DRA_ERR_NAME, s->path, "no tensor '%s' of two axes", EMBEDDING);
    c->vocab = e->info->shape.dim[0];
    c->tied = dra_tensor_source_find(s, HEAD) ? DRA_OFF : DRA_ON;
    if (c->vocab < 1 || c->dim < 1 || c->depth < 1 || c->heads < 1 || c->context < 1)
        return dra_fail_at(err, DRA_ERR_VALUE, s->path,
                           "%lld tokens, width %lld, %lld layers, %lld heads, %lld positions, "
                           "expected 1 or more of each",
                           (long long)c->vocab, (long long)c->dim, (long long)c->depth,
                           (long long)c->heads, (long long)c->context);
    st = dra_gguf_llama_settle(s, c, err);
    if (st == DRA_OK) st = dra_gguf_recurrent_settle(s, c, err);
    return st == DRA_OK ? dra_format_settle(s, c, err) : st;
}
