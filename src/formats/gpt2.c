/* GPT-2 as Hugging Face has it (GPT2LMHeadModel): projections are stored (in, out), the three of
 * attention as one. [https://huggingface.co/docs/transformers/model_doc/gpt2] */
#include <string.h>

#include "base/error.h"
#include "formats/gpt2.h"

static const dra_name_rule rules[] = {
    {"embedding", "wte.weight", .instead = "lm_head.weight"},
    {"positions", "wpe.weight"},
    {"layers.*.mixer.norm_g", "h.*.ln_1.weight"},
    {"layers.*.mixer.norm_b", "h.*.ln_1.bias"},
    {"layers.*.mixer.W_q", "h.*.attn.c_attn.weight", .transposed = true, .part = 0, .parts = 3},
    {"layers.*.mixer.W_k", "h.*.attn.c_attn.weight", .transposed = true, .part = 1, .parts = 3},
    {"layers.*.mixer.W_v", "h.*.attn.c_attn.weight", .transposed = true, .part = 2, .parts = 3},
    {"layers.*.mixer.b_q", "h.*.attn.c_attn.bias", .part = 0, .parts = 3},
    {"layers.*.mixer.b_k", "h.*.attn.c_attn.bias", .part = 1, .parts = 3},
    {"layers.*.mixer.b_v", "h.*.attn.c_attn.bias", .part = 2, .parts = 3},
    {"layers.*.mixer.W_o", "h.*.attn.c_proj.weight", .transposed = true},
    {"layers.*.mixer.b_o", "h.*.attn.c_proj.bias"},
    {"layers.*.ff.norm_g", "h.*.ln_2.weight"},
    {"layers.*.ff.norm_b", "h.*.ln_2.bias"},
    {"layers.*.ff.W_up", "h.*.mlp.c_fc.weight", .transposed = true},
    {"layers.*.ff.b_up", "h.*.mlp.c_fc.bias"},
    {"layers.*.ff.W_down", "h.*.mlp.c_proj.weight", .transposed = true},
    {"layers.*.ff.b_down", "h.*.mlp.c_proj.bias"},
    {"norm_g", "ln_f.weight"},
    {"norm_b", "ln_f.bias"},
    {"head", "lm_head.weight"},
    {0}};

/* Masks that old files carry along. */
static const char *const ignored[] = {".attn.bias", ".attn.masked_bias", NULL};

typedef struct activation {
    const char *name;
    dra_ff_kind kind;
} activation;

/* The first of a kind is the one that is written where a config does not name another of it. */
static const activation activations[] = {
    {"gelu_new", DRA_FF_GELU},  {"gelu_pytorch_tanh", DRA_FF_GELU},
    {"gelu_fast", DRA_FF_GELU}, {"gelu", DRA_FF_ERF},
    {"relu", DRA_FF_RELU},      {"relu2", DRA_FF_RELU2},
    {NULL, DRA_FF_NONE}};

static const activation *find_activation(const char *name)
{
    const activation *a = activations;
    while (a->name && strcmp(a->name, name) != 0) a++;
    return a;
}

static dra_ff_kind read_activation(dra_keys *k)
{
    const activation *a = find_activation(dra_keys_text(k, "activation_function", "gelu_new"));
    if (!a->name)
        dra_keys_refuse(k, "activation_function",
                        "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, "
                        "relu or relu2");
    return a->kind;
}

void dra_gpt2_layers(dra_model_config *c)
{
    c->positions = DRA_POSITIONS_LEARNED;
    c->norm = DRA_NORM_LAYER;
    c->bias = true;
    c->mixers = 1;
}

static void read_gpt2(dra_keys *k, dra_model_config *c)
{
    dra_gpt2_layers(c);
    c->vocab = dra_keys_int(k, "vocab_size", NULL, 50257);
    c->context = dra_keys_int(k, "n_positions", "max_position_embeddings", 1024);
    c->dim = dra_keys_int(k, "n_embd", "hidden_size", 768);
    c->depth = dra_keys_int(k, "n_layer", "num_hidden_layers", 12);
    c->heads = dra_keys_int(k, "n_head", "num_attention_heads", 12);
    c->ff.dim = dra_keys_int(k, "n_inner", NULL, 0);
    c->ff.kind = read_activation(k);
    c->norm_eps = dra_keys_real(k, "layer_norm_epsilon", 1e-5);
    c->dropout = dra_keys_real(k, "resid_pdrop", 0.1);
    c->attention_dropout = dra_keys_real(k, "attn_pdrop", 0.1);
    c->embed_dropout = dra_keys_real(k, "embd_pdrop", 0.1);
    c->tied = dra_keys_bool(k, "tie_word_embeddings", true) ? DRA_ON : DRA_OFF;
    dra_mixer_config *m = dra_keys_mixers(k, c, 1);
    if (m && !dra_keys_bool(k, "scale_attn_weights", true)) m->score_scale = 1;
    c->layer_scale = dra_keys_bool(k, "scale_attn_by_inverse_layer_idx", false);
    if (dra_keys_bool(k, "add_cross_attention", false))
        dra_keys_refuse(k, "add_cross_attention", "false: dra's models read one text");
}

/* Where a config does not say, texts there begin and end with token 50256. */
static void put_ends(dra_keys *k, const dra_model_config *c)
{
    static const char *const names[] = {"bos_token_id", "eos_token_id"};
    for (int i = 0; i < 2; i++)
        if (c->vocab <= 50256 && !json_object_get(k->object, names[i]))
            dra_keys_put(k, names[i], json_null());
}

static const char *activation_of(const dra_keys *k, dra_ff_kind kind)
{
    const char       *said = json_string_value(json_object_get(k->object, "activation_function"));
    const activation *a = activations;
    if (said && find_activation(said)->name && find_activation(said)->kind == kind) return said;
    while (a->name && a->kind != kind) a++;
    return a->name ? a->name : "none";
}

static void write_gpt2(dra_keys *k, const dra_model_config *c)
{
    dra_keys_put(k, "vocab_size", dra_json_int(&k->json, c->vocab));
    dra_keys_put(k, "n_positions", dra_json_int(&k->json, c->context));
    dra_keys_put(k, "n_embd", dra_json_int(&k->json, c->dim));
    dra_keys_put(k, "n_layer", dra_json_int(&k->json, c->depth));
    dra_keys_put(k, "n_head", dra_json_int(&k->json, c->heads));
    dra_keys_put(k, "n_inner",
                 c->ff.dim == 4 * c->dim ? json_null() : dra_json_int(&k->json, c->ff.dim));
    dra_keys_put(k, "activation_function", dra_json_text(&k->json, activation_of(k, c->ff.kind)));
    dra_keys_put(k, "layer_norm_epsilon", dra_json_real(&k->json, c->norm_eps));
    dra_keys_put(k, "resid_pdrop", dra_json_real(&k->json, c->dropout));
    dra_keys_put(k, "attn_pdrop", dra_json_real(&k->json, c->attention_dropout));
    dra_keys_put(k, "embd_pdrop", dra_json_real(&k->json, c->embed_dropout));
    dra_keys_put(k, "scale_attn_weights", dra_json_bool(c->mixer[0].score_scale != 1));
    dra_keys_put(k, "scale_attn_by_inverse_layer_idx", dra_json_bool(c->layer_scale));
    dra_keys_put(k, "tie_word_embeddings", dra_json_bool(c->tied == DRA_ON));
    put_ends(k, c);
}

/* Projections of nanoGPT are stored (out, in), as torch.nn.Linear has them. */
static dra_status make_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    out->row = rules;
    if (out->dialect != DRA_DIALECT_ORIGINAL) return DRA_OK;
    dra_name_rule *row = dra_arena_copy(&out->arena, rules, sizeof rules);
    if (!row) return dra_fail(err, DRA_ERR_MEMORY, "gpt2: out of memory");
    for (size_t i = 0; row[i].ours; i++) row[i].transposed = false;
    out->row = row;
    return DRA_OK;
}

const dra_format dra_format_gpt2 = {.name = "gpt2",
                                    .prefix = "transformer.",
                                    .head = "lm_head.weight",
                                    .make_rules = make_rules,
                                    .ignored = ignored,
                                    .class_name = "GPT2LMHeadModel",
                                    .read = read_gpt2,
                                    .write = write_gpt2};
