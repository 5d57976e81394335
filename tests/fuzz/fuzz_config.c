/* Configs of models: dra's own, Hugging Face's, x-transformers'. What must hold:
 *   - a config as made is accepted;
 *   - any other is accepted, can be written and, where it is small, made into a model; or it is
 *     refused by one line. */
#include "dra/model.h"
#include "harness.h"
#include "own_config.h"
#include "model/presets.h"

enum { DEPTH = 16, SIZE = 512 }; /* of models that are made */

/* Options of x-transformers of which any may stand together. */
static void make_xt(fuzz_bytes *b)
{
    static const char *const top[] = {"\"emb_dim\": 12",        "\"emb_dropout\": 0.1",
                                      "\"l2norm_embed\": true", "\"post_emb_norm\": true",
                                      "\"release\": \"N\"",     "\"num_memory_tokens\": 2",
                                      "\"logits_dim\": null",   "\"max_mem_len\": 0"};
    static const char *const stack[] = {
        "\"use_rmsnorm\": true",      "\"ff_glu\": true",
        "\"ff_mult\": 2.5",           "\"ff_no_bias\": true",
        "\"attn_qk_norm\": true",     "\"attn_num_mem_kv\": 2",
        "\"attn_gate_values\": true", "\"rotary_pos_emb\": true",
        "\"shift_tokens\": [1, 0]",   "\"layer_dropout\": 0.2",
        "\"scale_residual\": true",   "\"alibi_pos_bias\": true",
        "\"cross_attend\": false",    "\"layers_execute_order\": [0, 1, 0]"};
    say(b, "{\"model_type\": \"x-transformers\", \"num_tokens\": 9, \"max_seq_len\": 8");
    for (size_t i = 0; i < COUNT(top); i++) {
        if (below(2)) continue;
        say(b, ", ");
        say(b, top[i]);
    }
    say(b, ", \"attn_layers\": {\"dim\": 16, \"heads\": 2, \"attn_dim_head\": 8, ");
    say(b, below(2) ? "\"type\": \"Decoder\", \"depth\": 1"
                    : "\"type\": \"Encoder\", \"custom_layers\": [\"a\", \"f\"]");
    for (size_t i = 0; i < COUNT(stack); i++) {
        if (below(2)) continue;
        say(b, ", ");
        say(b, stack[i]);
    }
    say(b, "}}");
}

static void make_hf(fuzz_bytes *b)
{
    static const char *const keys[] = {
        "vocab_size",        "n_positions",      "n_embd",
        "hidden_size",       "n_layer",          "n_head",
        "num_hidden_layers", "n_inner",          "n_ctx",
        "rescale_every",     "context_length",   "layer_norm_epsilon",
        "torch_dtype",       "use_cache",        "tie_word_embeddings",
        "resid_pdrop",       "bos_token_id",     "task_special",
        "summary_type",      "intermediate_size"};
    static const char *const values[] = {"1", "12.0", "null", "0", "4096"};
    say(b, below(2) ? "{\"model_type\": \"gpt2\"" : "{\"model_type\": \"rwkv\"");
    for (size_t i = 0; i < COUNT(keys); i++) {
        if (below(2)) continue;
        say(b, ", \"");
        say(b, keys[i]);
        say(b, "\": ");
        say(b, strstr(keys[i], "use") || strstr(keys[i], "tie")        ? "true"
               : strstr(keys[i], "epsilon") || strstr(keys[i], "drop") ? "0.001"
                                                                       : values[below(5)]);
    }
    say(b, "}");
}

/* Later versions of RWKV, with keys of which any may stand together. */
static void make_rwkv(fuzz_bytes *b)
{
    static const char *const heads[] = {
        "{\"model_type\": \"rwkv5\", \"head_size\": 8",
        "{\"model_type\": \"rwkv6\", \"head_size\": 8",
        "{\"model_type\": \"rwkv6\", \"num_heads\": 2, \"expand_k\": 0.5",
        "{\"model_type\": \"rwkv7\", \"head_dim\": 8"};
    static const char *const keys[] = {
        "\"layer_norm_epsilon\": 1e-5",  "\"head_size_divisor\": 4",   "\"rescale_every\": 3",
        "\"intermediate_size\": 24",     "\"norm_eps\": 1e-6",         "\"norm_first\": true",
        "\"tie_word_embeddings\": true", "\"gate_low_rank_dim\": 3",   "\"hidden_ratio\": 2.5",
        "\"proj_low_rank_dim\": 2",      "\"a_low_rank_dim\": null",   "\"value_dim\": [16, 16]",
        "\"v_low_rank_dim\": 2",         "\"decay_low_rank_dim\": 5",  "\"attn\": null",
        "\"hidden_act\": \"sqrelu\"",    "\"num_attention_heads\": 64"};
    say(b, heads[below(COUNT(heads))]);
    say(b, ", \"vocab_size\": 9, \"hidden_size\": 16, \"num_hidden_layers\": 2");
    for (size_t i = 0; i < COUNT(keys); i++) {
        if (below(2)) continue;
        say(b, ", ");
        say(b, keys[i]);
    }
    say(b, "}");
}

static void make_preset(fuzz_bytes *b)
{
    uint32_t n = 0;
    while (dra_presets[n].name) n++;
    say(b, dra_presets[below(n)].json);
}

static void make(fuzz_bytes *b)
{
    void (*const kinds[])(fuzz_bytes *) = {make_xt, make_hf, make_rwkv, make_preset};
    kinds[below(COUNT(kinds))](b);
}

static bool is_small(const dra_model_config *c)
{
    return c->depth <= DEPTH && c->vocab <= SIZE && c->dim <= SIZE && c->heads <= SIZE;
}

static void use(const dra_model_config *c)
{
    static char text[1 << 16];
    dra_model  *m = NULL;
    dra_error   err = {0};
    dra_model_config_text(c, text, sizeof text);
    if (!is_small(c)) return;
    if (dra_model_create(c, &m, &err) != DRA_OK) expect_line(&err, "");
    dra_model_destroy(m);
}

int harness(const uint8_t *data, size_t bytes)
{
    CHECK_CONFIG(c);
    dra_error        err = {0};
    char            *copy = exact_copy(data, bytes);
    const dra_status st = dra_model_config_parse("config", copy, bytes, &c, &err);
    free(copy);
    if (st == DRA_OK)
        use(c);
    else
        expect_line(&err, "config");
    return st == DRA_OK;
}

static const char *const words[] = {
    "{",           "}",        "[",          "]",      "\"",      ",",       ":",      "-",
    "0",           "1",        "1e9",        "0.5",    "null",    "true",    "false",  "\\u001b",
    "\"depth\":",  "\"dim\":", "\"mixer\":", "memory", "slots",   "gru",     "ema",    "moment",
    "\"heads\":",  "vocab",    "delta",      "stack",  "joint",   "pooled",  "time",   "window",
    "gamma",       "range",    "attn_",      "ff_",    "Encoder", "Decoder", "append", "99999999",
    "\"layers\":", "inputs",   "outputs",    "norm",   NULL};

const fuzz_subject fuzz_this = {.words = words, .make = make};
