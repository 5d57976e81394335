/* The Llama family as Hugging Face has it: pre-norm blocks of RMS norms, rotated attention and a
 * gated feed-forward. A family is a row of what it does otherwise than Llama; all share the names
 * of tensors. [https://huggingface.co/docs/transformers/model_doc/llama]
 * What layers see (windows) and how they rotate is in llama_layers.c. */
#include "formats/llama.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "formats/gated_delta.h"
#include "formats/lfm2.h"
#include "formats/llama_experts.h"
#include "model/model.h"

/* ---- tensors --------------------------------------------------------------------------------- */

enum { COMMON = 18, NORMS_MOST = 4 };

static const dra_name_rule common[COMMON] = {
    {"embedding", "embed_tokens.weight", .instead = "lm_head.weight"},
    {"layers.*.mixer.W_q", "layers.*.self_attn.q_proj.weight"},
    {"layers.*.mixer.W_k", "layers.*.self_attn.k_proj.weight"},
    {"layers.*.mixer.W_v", "layers.*.self_attn.v_proj.weight"},
    {"layers.*.mixer.W_o", "layers.*.self_attn.o_proj.weight"},
    {"layers.*.mixer.b_q", "layers.*.self_attn.q_proj.bias"},
    {"layers.*.mixer.b_k", "layers.*.self_attn.k_proj.bias"},
    {"layers.*.mixer.b_v", "layers.*.self_attn.v_proj.bias"},
    {"layers.*.mixer.b_o", "layers.*.self_attn.o_proj.bias"},
    {"layers.*.mixer.gain_q", "layers.*.self_attn.q_norm.weight"},
    {"layers.*.mixer.gain_k", "layers.*.self_attn.k_norm.weight"},
    {"layers.*.ff.W_up", "layers.*.mlp.up_proj.weight"},
    {"layers.*.ff.W_gate", "layers.*.mlp.gate_proj.weight"},
    {"layers.*.ff.W_down", "layers.*.mlp.down_proj.weight"},
    {"layers.*.ff.b_up", "layers.*.mlp.up_proj.bias"},
    {"layers.*.ff.b_gate", "layers.*.mlp.gate_proj.bias"},
    {"layers.*.ff.b_down", "layers.*.mlp.down_proj.bias"},
    {"norm_g", "norm.weight"}};

static const dra_name_rule head[] = {{"head", "lm_head.weight"}, {0}};

static const dra_name_rule norms[][NORMS_MOST] = {
    [DRA_NORMS_PRE] = {{"layers.*.mixer.norm_g", "layers.*.input_layernorm.weight"},
                       {"layers.*.ff.norm_g", "layers.*.post_attention_layernorm.weight"}},
    [DRA_NORMS_BRANCH] = {{"layers.*.mixer.branch_norm_g",
                           "layers.*.post_attention_layernorm.weight"},
                          {"layers.*.ff.branch_norm_g",
                           "layers.*.post_feedforward_layernorm.weight"}},
    [DRA_NORMS_BOTH] = {
        {"layers.*.mixer.norm_g", "layers.*.input_layernorm.weight"},
        {"layers.*.mixer.branch_norm_g", "layers.*.post_attention_layernorm.weight"},
        {"layers.*.ff.norm_g", "layers.*.pre_feedforward_layernorm.weight"},
        {"layers.*.ff.branch_norm_g", "layers.*.post_feedforward_layernorm.weight"}}};

/* Old files hold the frequencies. */
static const char *const ignored[] = {".rotary_emb.inv_freq", NULL};

/* What reads pictures, and what guesses several tokens at once. */
static const char *const skipped[] = {"mtp.", "model.visual.", "visual.", NULL};

void dra_llama_add_fused(const dra_model_config *c, const char *qkv, const char *two,
                         dra_rule_list *list)
{
    static const char *const attention[] = {"layers.*.mixer.W_q", "layers.*.mixer.W_k",
                                            "layers.*.mixer.W_v"};
    static const char *const gated[] = {"layers.*.ff.W_gate", "layers.*.ff.W_up"};
    const int64_t            D = c->key_dim ? c->key_dim : c->dim / c->heads;
    const int64_t            K = D * (c->mixer[0].kv_heads ? c->mixer[0].kv_heads : c->heads);
    const int64_t            rows[] = {D * c->heads, K, K}, inner[] = {c->ff.dim, c->ff.dim};
    dra_rules_add_parts(list, qkv, 3, attention, rows, 1, 0);
    dra_rules_add_parts(list, two, 2, gated, inner, 1, 0);
}

static dra_status make_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    const dra_llama     *f = out->format->family;
    const dra_name_rule *own = norms[f->norms];
    dra_rule_list        list;
    const dra_status     st = dra_rules_open(out, &list, err);
    if (st != DRA_OK) return st;
    dra_llama_expert_rules(c, f, &list);
    if (f->linear) dra_gated_delta_rules(c, f, &list);
    if (f->fused)
        dra_llama_add_fused(c, "layers.*.self_attn.qkv_proj.weight",
                            "layers.*.mlp.gate_up_proj.weight", &list);
    dra_name_rule *row = list.row + list.n;
    for (int i = 0; i < COMMON; i++) *row++ = common[i];
    for (int i = 0; i < NORMS_MOST && own[i].ours; i++) *row++ = own[i];
    memcpy(row, head, sizeof head);
    if (out->format->ordered) dra_llama_order_rows(c, DRA_ROWS_HALVES, list.row);
    return DRA_OK;
}

/* ---- config ---------------------------------------------------------------------------------- */

static const char TIE[] = "tie_embedding"; /* of LFM2; it counts before tie_word_embeddings */

/* Keys of models that have more than this file describes. */
static void refuse_others(dra_keys *k, const dra_llama *f)
{
    const struct {
        const char *key, *expected;
    } others[] = {
        {"quantization_config", "none: load the unquantised folder, or a GGUF file"},
        {"vision_config", "none: only models of text are read"},
        {"text_config", "none: save its language model as a folder of its own"},
        {f->experts ? "" : "num_experts", "none: mixtures of experts are not of this family"},
        {f->experts ? "" : "num_local_experts", "none: mixtures of experts are not of this family"},
        {"final_logit_softcapping", "none: capped logits are not read"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const json_t *v = json_object_get(k->object, others[i].key);
        if (v && !json_is_null(v) && !json_is_false(v))
            dra_keys_refuse(k, others[i].key, others[i].expected);
    }
}

static bool has_key(const dra_keys *k, const char *key)
{
    const json_t *v = json_object_get(k->object, key);
    return v && !json_is_null(v);
}

/* Of feed-forwards that all tokens have. */
static const char *inner_key(const dra_llama *f)
{
    return f->linear == DRA_LINEAR_GRANITE ? "shared_intermediate_size" : "intermediate_size";
}

static bool is_lfm2(const dra_llama *f) { return f->linear == DRA_LINEAR_LFM2; }

static const char *eps_key(const dra_llama *f) { return is_lfm2(f) ? "norm_eps" : "rms_norm_eps"; }

static void read_sizes(dra_keys *k, const dra_llama *f, dra_model_config *c)
{
    c->vocab = dra_keys_int(k, "vocab_size", NULL, f->vocab);
    c->dim = dra_keys_int(k, "hidden_size", NULL, f->dim);
    c->ff.dim = is_lfm2(f) ? dra_lfm2_inner(k, f->inner)
                           : dra_keys_int(k, inner_key(f), NULL, f->inner);
    c->depth = dra_keys_int(k, "num_hidden_layers", NULL, f->depth);
    c->heads = dra_keys_int(k, "num_attention_heads", NULL, f->heads);
    c->context = dra_keys_int(k, "max_position_embeddings", NULL, f->context);
    if (c->heads < 1) dra_keys_refuse(k, "num_attention_heads", "1 or more");
    if (c->depth < 1) dra_keys_refuse(k, "num_hidden_layers", "1 or more");
    c->norm_eps = dra_keys_real(k, eps_key(f), f->eps > 0 ? f->eps : 1e-6);
    c->attention_dropout = dra_keys_real(k, "attention_dropout", 0);
    c->tied = dra_keys_bool(k, "tie_word_embeddings", f->tied) ? DRA_ON : DRA_OFF;
    if (is_lfm2(f)) c->tied = dra_keys_bool(k, TIE, c->tied == DRA_ON) ? DRA_ON : DRA_OFF;
}

/* The activation, as the key names it. */
static const struct {
    const char *name;
    dra_ff_kind kind;
} activations[] = {
    {"silu", DRA_FF_SWIGLU},   {"swish", DRA_FF_SWIGLU}, {"gelu_pytorch_tanh", DRA_FF_GELU},
    {"gelu_new", DRA_FF_GELU}, {"gelu", DRA_FF_ERF},     {"relu", DRA_FF_RELU},
    {"relu2", DRA_FF_RELU2}};

enum { ACTIVATIONS = sizeof activations / sizeof *activations };

static const char *activation_key(const dra_llama *f)
{
    return f->gemma ? "hidden_activation" : "hidden_act";
}

static void read_ff(dra_keys *k, const dra_llama *f, dra_model_config *c)
{
    const char *key = activation_key(f);
    const char *name = dra_keys_text(k, key, f->gemma ? "gelu_pytorch_tanh" : "silu");
    int         i = 0;
    while (i < ACTIVATIONS && strcmp(activations[i].name, name) != 0) i++;
    if (i == ACTIVATIONS)
        dra_keys_refuse(k, key, "silu, gelu_pytorch_tanh, gelu_new, gelu, relu or relu2");
    else
        c->ff.kind = activations[i].kind;
    c->ff.gated = c->ff.kind != DRA_FF_SWIGLU;
    if (f->mlp_bias && dra_keys_bool(k, "mlp_bias", false)) c->ff.bias = DRA_FF_BIAS_ALL;
}

/* What all mixers of the model have. */
static void read_mixer(dra_keys *k, const dra_llama *f, dra_model_config *c, dra_mixer_config *m)
{
    static const char key[] = "num_key_value_heads";
    const bool        null = json_is_null(json_object_get(k->object, key));
    m->kv_heads = dra_keys_int(k, key, NULL, f->kv_heads && !null ? f->kv_heads : c->heads);
    if (m->kv_heads < 1 || (c->heads > 0 && c->heads % m->kv_heads))
        dra_keys_refuse(k, key, "a divisor of num_attention_heads");
    if (m->kv_heads == c->heads) m->kv_heads = 0;
    c->key_dim = dra_keys_int(k, "head_dim", NULL, f->head_dim);
    if (c->heads > 0 && c->key_dim * c->heads == c->dim) c->key_dim = 0;
    m->biases = f->qkv_bias ? DRA_BIAS_QKV : DRA_BIAS_MODEL;
    if (f->attention_bias && dra_keys_bool(k, "attention_bias", false)) m->biases = DRA_BIAS_ALL;
    m->qk_norm = f->qk_norm != DRA_LLAMA_NO_NORM;
    m->qk_whole = f->qk_norm == DRA_LLAMA_NORM_ALL;
    m->qkv_eps = m->qk_norm ? c->norm_eps : 0;
    m->qk_gain_offset = f->offset;
    if (f->gated) m->gate_values = DRA_GATE_PLAIN;
}

/* Constant factors. */
static void read_factors(dra_keys *k, const dra_llama *f, dra_model_config *c, dra_mixer_config *m)
{
    if (f->gemma) {
        const double D = dra_keys_number(k, "query_pre_attn_scalar", 1e9, 256);
        m->score_scale = 1 / sqrt(D);
        m->attention.softcap = dra_keys_number(k, "attn_logit_softcapping", 1e6, 0);
        c->embed_scale = sqrt((double)c->dim);
        if (dra_keys_bool(k, "use_bidirectional_attention", false))
            dra_keys_refuse(k, "use_bidirectional_attention", "false");
    }
    c->norm_offset = f->offset;
    if (!f->granite) return;
    c->embed_scale = dra_keys_number(k, "embedding_multiplier", 1e6, 1);
    c->block.branch_factor = dra_keys_number(k, "residual_multiplier", 1e6, 1);
    c->logit_scale = 1 / dra_keys_number(k, "logits_scaling", 1e6, 1);
    m->score_scale = dra_keys_number(k, "attention_multiplier", 1e6, 1);
}

static void read_llama(dra_keys *k, dra_model_config *c)
{
    const dra_llama *f = k->format->family;
    dra_mixer_config m = {.rotary = true};
    refuse_others(k, f);
    read_sizes(k, f, c);
    read_ff(k, f, c);
    dra_llama_read_experts(k, f, c);
    read_mixer(k, f, c, &m);
    read_factors(k, f, c, &m);
    c->block.norm = f->norms == DRA_NORMS_BRANCH ? DRA_PLACE_NONE : DRA_PLACE_PRE;
    c->block.branch_norm = f->norms != DRA_NORMS_PRE;
    if (k->status == DRA_OK) dra_llama_read_layers(k, f, &m, c);
}

/* ---- back ------------------------------------------------------------------------------------ */

static void put_int(dra_keys *k, const char *key, int64_t n)
{
    dra_keys_put(k, key, dra_json_int(&k->json, n));
}

static void put_real(dra_keys *k, const char *key, double x)
{
    dra_keys_put(k, key, dra_json_real(&k->json, x));
}

static void put_activation(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    const char *said = json_string_value(json_object_get(k->object, activation_key(f)));
    int         first = ACTIVATIONS;
    for (int i = ACTIVATIONS - 1; i >= 0; i--) {
        if (activations[i].kind != c->ff.kind) continue;
        if (said && strcmp(said, activations[i].name) == 0) return;
        first = i;
    }
    const char *name = first < ACTIVATIONS ? activations[first].name : "none";
    dra_keys_put(k, activation_key(f), dra_json_text(&k->json, name));
}

double dra_llama_inverse(double x)
{
    const double near[] = {1 / x, nextafter(1 / x, 0), nextafter(1 / x, INFINITY)};
    for (int i = 0; i < 3; i++)
        if (1 / near[i] == x) return near[i];
    return 1 / x;
}

/* Where a key says 1 / x^n of what is meant, already, it stays as it is. */
static void put_inverse(dra_keys *k, const char *key, double x, int power)
{
    const double said = json_number_value(json_object_get(k->object, key));
    if (said > 0 && 1 / (power == 2 ? sqrt(said) : said) == x) return;
    if (power == 2)
        put_int(k, key, (int64_t)round(1 / (x * x)));
    else
        put_real(k, key, dra_llama_inverse(x));
}

/* The first mixer of attention; NULL: there is none. */
static const dra_mixer_config *attention_of(const dra_model_config *c)
{
    for (int i = 0; i < c->mixers; i++)
        if (!dra_linear_is(&c->mixer[i])) return &c->mixer[i];
    return NULL;
}

static double or_one(double x) { return x > 0 ? x : 1; }

static void put_factors(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    const dra_mixer_config *m = attention_of(c) ? attention_of(c) : &c->mixer[0];
    const int64_t           D = c->key_dim ? c->key_dim : c->dim / c->heads;
    const double            scale = m->score_scale > 0 ? m->score_scale : 1 / sqrt((double)D);
    if (f->gemma) {
        put_inverse(k, "query_pre_attn_scalar", scale, 2);
        dra_keys_put(k, "attn_logit_softcapping",
                     m->attention.softcap > 0 ? dra_json_real(&k->json, m->attention.softcap)
                                              : json_null());
    }
    if (!f->granite) return;
    put_real(k, "embedding_multiplier", or_one(c->embed_scale));
    put_real(k, "residual_multiplier", or_one(c->block.branch_factor));
    put_real(k, "attention_multiplier", scale);
    put_inverse(k, "logits_scaling", or_one(c->logit_scale), 1);
}

static void write_llama(dra_keys *k, const dra_model_config *c)
{
    const dra_llama        *f = k->format->family;
    const dra_mixer_config *m = attention_of(c);
    const int64_t           D = c->key_dim ? c->key_dim : c->dim / c->heads;
    put_int(k, "vocab_size", c->vocab);
    put_int(k, "hidden_size", c->dim);
    if (is_lfm2(f))
        dra_lfm2_put_inner(k, c->ff.dim, f->inner);
    else if (!f->experts)
        put_int(k, inner_key(f), c->ff.dim);
    put_int(k, "num_hidden_layers", c->depth);
    put_int(k, "num_attention_heads", c->heads);
    put_int(k, "num_key_value_heads", m && m->kv_heads ? m->kv_heads : c->heads);
    put_int(k, "max_position_embeddings", c->context);
    if (f->head_dim || c->key_dim || has_key(k, "head_dim")) put_int(k, "head_dim", D);
    if (!is_lfm2(f)) put_activation(k, f, c);
    put_real(k, eps_key(f), c->norm_eps);
    put_real(k, "attention_dropout", c->attention_dropout);
    dra_keys_put(k, "tie_word_embeddings", dra_json_bool(c->tied == DRA_ON));
    if (is_lfm2(f)) dra_json_delete(k->object, TIE);
    if (f->attention_bias)
        dra_keys_put(k, "attention_bias", dra_json_bool(m && m->biases == DRA_BIAS_ALL));
    if (f->mlp_bias) dra_keys_put(k, "mlp_bias", dra_json_bool(c->ff.bias == DRA_FF_BIAS_ALL));
    put_factors(k, f, c);
    if (f->linear) dra_gated_delta_write(k, f, c);
    dra_llama_write_experts(k, f, c);
    dra_llama_write_layers(k, f, c);
}

/* ---- families: what is not said is as Llama has it ------------------------------------------- */

#define FAMILY_OF(order, symbol, type, class, ...)                                                 \
    const dra_format dra_format_##symbol = {.name = type,                                          \
                                            .prefix = "model.",                                    \
                                            .head = "lm_head.weight",                              \
                                            .make_rules = make_rules,                              \
                                            .ignored = ignored,                                    \
                                            .skipped = skipped,                                    \
                                            .class_name = class,                                   \
                                            .read = read_llama,                                    \
                                            .write = write_llama,                                  \
                                            .ordered = order,                                      \
                                            .family = &(const dra_llama){__VA_ARGS__}}

#define FAMILY(...) FAMILY_OF(true, __VA_ARGS__)
/* Whose rows are the files' alone: some rows of theirs do not rotate. */
#define HYBRID(...) FAMILY_OF(false, __VA_ARGS__)

FAMILY(llama, "llama", "LlamaForCausalLM", .vocab = 32000, .dim = 4096, .inner = 11008, .depth = 32,
       .heads = 32, .context = 2048, .theta = 1e4, .attention_bias = true, .mlp_bias = true);

FAMILY(qwen2, "qwen2", "Qwen2ForCausalLM", .vocab = 151936, .dim = 4096, .inner = 22016,
       .depth = 32, .heads = 32, .kv_heads = 32, .context = 32768, .theta = 1e4, .qkv_bias = true,
       .windows = DRA_WINDOWS_LATE, .window = 4096);

FAMILY(qwen3, "qwen3", "Qwen3ForCausalLM", .vocab = 151936, .dim = 4096, .inner = 22016,
       .depth = 32, .heads = 32, .kv_heads = 32, .head_dim = 128, .context = 32768, .theta = 1e4,
       .attention_bias = true, .qk_norm = DRA_LLAMA_NORM_HEAD, .windows = DRA_WINDOWS_LATE,
       .window = 4096);

FAMILY(qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM", .vocab = 151936, .dim = 2048, .inner = 6144,
       .depth = 24, .heads = 32, .kv_heads = 4, .context = 32768, .theta = 1e4,
       .attention_bias = true, .qk_norm = DRA_LLAMA_NORM_HEAD, .windows = DRA_WINDOWS_ASKED,
       .window = 4096, .experts = DRA_EXPERTS_QWEN, .n_experts = 128, .top = 8, .moe_inner = 768,
       .normalise_key = true);

FAMILY(smollm3, "smollm3", "SmolLM3ForCausalLM", .vocab = 128256, .dim = 2048, .inner = 11008,
       .depth = 36, .heads = 16, .kv_heads = 4, .context = 32768, .theta = 2e6, .tied = true,
       .attention_bias = true, .mlp_bias = true, .windows = DRA_WINDOWS_NO_ROPE, .rope_every = 4);

FAMILY(granite, "granite", "GraniteForCausalLM", .vocab = 32000, .dim = 4096, .inner = 11008,
       .depth = 32, .heads = 32, .context = 2048, .theta = 1e4, .attention_bias = true,
       .mlp_bias = true, .granite = true);

FAMILY(olmo2, "olmo2", "Olmo2ForCausalLM", .vocab = 50304, .dim = 4096, .inner = 11008, .depth = 32,
       .heads = 32, .context = 2048, .theta = 1e4, .eps = 1e-5, .attention_bias = true,
       .norms = DRA_NORMS_BRANCH, .qk_norm = DRA_LLAMA_NORM_ALL);

FAMILY(olmo3, "olmo3", "Olmo3ForCausalLM", .vocab = 50304, .dim = 4096, .inner = 11008, .depth = 32,
       .heads = 32, .context = 2048, .theta = 5e5, .eps = 1e-5, .attention_bias = true,
       .norms = DRA_NORMS_BRANCH, .qk_norm = DRA_LLAMA_NORM_ALL, .windows = DRA_WINDOWS_MOST,
       .window = 4096, .every = 4, .two_ropes = true);

FAMILY(gemma3, "gemma3_text", "Gemma3ForCausalLM", .vocab = 262208, .dim = 2304, .inner = 9216,
       .depth = 26, .heads = 8, .kv_heads = 4, .head_dim = 256, .context = 131072, .theta = 1e6,
       .local_theta = 1e4, .tied = true, .attention_bias = true, .gemma = true, .offset = true,
       .norms = DRA_NORMS_BOTH, .qk_norm = DRA_LLAMA_NORM_HEAD, .windows = DRA_WINDOWS_MOST,
       .window = 4096, .every = 6, .two_ropes = true);

FAMILY(mistral, "mistral", "MistralForCausalLM", .vocab = 32000, .dim = 4096, .inner = 14336,
       .depth = 32, .heads = 32, .kv_heads = 8, .context = 131072, .theta = 1e4,
       .windows = DRA_WINDOWS_ALL, .window = 4096);

FAMILY(phi3, "phi3", "Phi3ForCausalLM", .vocab = 32064, .dim = 3072, .inner = 8192, .depth = 32,
       .heads = 32, .context = 4096, .theta = 1e4, .eps = 1e-5, .fused = true, .partial = 1,
       .original = 4096, .windows = DRA_WINDOWS_ALL);

#define QWEN_LINEAR(kind)                                                                          \
    .linear = kind, .gated = true, .offset = true, .partial = 0.25,                                \
    .qk_norm = DRA_LLAMA_NORM_HEAD, .theta = 1e4, .head_dim = 256, .context = 32768, .heads = 16,  \
    .attention_bias = true

HYBRID(qwen3_next, "qwen3_next", "Qwen3NextForCausalLM", .vocab = 151936, .dim = 2048,
       .inner = 5632, .depth = 48, .kv_heads = 2, .experts = DRA_EXPERTS_QWEN, .n_experts = 512,
       .top = 10, .moe_inner = 512, .shared = 512, .normalise = true, .normalise_key = true,
       QWEN_LINEAR(DRA_LINEAR_QWEN3_NEXT));

#define QWEN3_5                                                                                    \
    .vocab = 248320, .dim = 4096, .inner = 12288, .depth = 32, .kv_heads = 4,                      \
    QWEN_LINEAR(DRA_LINEAR_QWEN3_5)

HYBRID(qwen3_5, "qwen3_5_text", "Qwen3_5ForCausalLM", QWEN3_5);

#define QWEN3_5_MOE                                                                                \
    .vocab = 248320, .dim = 2048, .inner = 5632, .depth = 40, .kv_heads = 2,                       \
    .experts = DRA_EXPERTS_QWEN, .n_experts = 256, .top = 8, .moe_inner = 512, .shared = 512,      \
    QWEN_LINEAR(DRA_LINEAR_QWEN3_5)

HYBRID(qwen3_5_moe, "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", QWEN3_5_MOE);

HYBRID(olmo_hybrid, "olmo_hybrid", "OlmoHybridForCausalLM", .vocab = 100352, .dim = 3840,
       .inner = 11008, .depth = 32, .heads = 30, .context = 65536, .theta = 1e4, .no_theta = true,
       .attention_bias = true, .norms = DRA_NORMS_BRANCH, .qk_norm = DRA_LLAMA_NORM_ALL,
       .linear = DRA_LINEAR_OLMO);

HYBRID(granite_hybrid, "granitemoehybrid", "GraniteMoeHybridForCausalLM", .vocab = 32000,
       .dim = 4096, .inner = 1024, .depth = 32, .heads = 32, .context = 2048, .theta = 1e4,
       .attention_bias = true, .granite = true, .linear = DRA_LINEAR_GRANITE,
       .experts = DRA_EXPERTS_GRANITE, .n_experts = 8, .top = 2);

HYBRID(lfm2, "lfm2", "Lfm2ForCausalLM", .vocab = 65536, .dim = 2560, .inner = 12288, .depth = 32,
       .heads = 32, .kv_heads = 8, .context = 128000, .theta = 1e6, .eps = 1e-5, .tied = true,
       .qk_norm = DRA_LLAMA_NORM_HEAD, .linear = DRA_LINEAR_LFM2);

/* ---- Qwen3.5 as published: its text part in a config of its own, beside that of pictures ----- */

static const char TEXT[] = "text_config", TIED[] = "tie_word_embeddings";

static dra_keys text_keys(const dra_keys *k, json_t *object)
{
    dra_keys inner = *k;
    inner.object = object;
    return inner;
}

static void read_text(dra_keys *k, dra_model_config *c)
{
    json_t *object = json_object_get(k->object, TEXT);
    if (!json_is_object(object)) {
        dra_keys_refuse(k, TEXT, "an object: the config of the text part");
        return;
    }
    dra_keys inner = text_keys(k, object);
    read_llama(&inner, c);
    k->status = inner.status;
    if (!json_object_get(object, TIED)) c->tied = dra_keys_bool(k, TIED, false) ? DRA_ON : DRA_OFF;
}

/* The model_type of the text part is that of the whole and "_text". */
static const char *text_type(const dra_keys *k)
{
    return ((const dra_llama *)k->format->family)->experts ? "qwen3_5_moe_text" : "qwen3_5_text";
}

static void write_text(dra_keys *k, const dra_model_config *c)
{
    if (!json_is_object(json_object_get(k->object, TEXT)))
        dra_keys_put(k, TEXT, dra_json_object(&k->json));
    dra_keys inner = text_keys(k, json_object_get(k->object, TEXT));
    if (!inner.object) return;
    dra_keys_put(&inner, "model_type", dra_json_text(&inner.json, text_type(k)));
    write_llama(&inner, c);
    k->json = inner.json;
    k->status = inner.status;
    dra_keys_put(k, TIED, dra_json_bool(c->tied == DRA_ON));
}

#define WHOLE(symbol, type, class, ...)                                                            \
    const dra_format dra_format_##symbol = {.name = type,                                          \
                                            .prefix = "model.language_model.",                     \
                                            .wrapped = "model.",                                   \
                                            .head = "lm_head.weight",                              \
                                            .make_rules = make_rules,                              \
                                            .ignored = ignored,                                    \
                                            .skipped = skipped,                                    \
                                            .class_name = class,                                   \
                                            .read = read_text,                                     \
                                            .write = write_text,                                   \
                                            .family = &(const dra_llama){__VA_ARGS__}}

WHOLE(qwen3_5_whole, "qwen3_5", "Qwen3_5ForConditionalGeneration", QWEN3_5);
WHOLE(qwen3_5_moe_whole, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", QWEN3_5_MOE);
