/* The Llama family in GGUF. Of `llama` and `smollm3` rows of queries and keys stand pair by pair:
 * models that are read rotate neighbours, and rules bring the rows of others into this order. A
 * scaling as Llama 3.1 has it is a tensor there, what each frequency is divided by.
 * [https://github.com/ggml-org/llama.cpp, conversion/llama.py, src/llama-model.cpp] */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "file/fail.h"
#include "formats/gguf/recurrent.h"
#include "formats/llama.h"
#include "model/owned.h"
#include "ops/attention/rotary.h"

enum { KEY = 80, NO_ROPE = 4 /* every so many-th layer of smollm3 does not rotate */ };

static const char FREQUENCIES[] = "rope_freqs.weight";

static const dra_name_rule rules[] = {{"embedding", "token_embd.weight"},
                                      {"layers.*.mixer.norm_g", "blk.*.attn_norm.weight"},
                                      {"layers.*.mixer.W_q", "blk.*.attn_q.weight"},
                                      {"layers.*.mixer.W_k", "blk.*.attn_k.weight"},
                                      {"layers.*.mixer.W_v", "blk.*.attn_v.weight"},
                                      {"layers.*.mixer.W_o", "blk.*.attn_output.weight"},
                                      {"layers.*.mixer.b_q", "blk.*.attn_q.bias"},
                                      {"layers.*.mixer.b_k", "blk.*.attn_k.bias"},
                                      {"layers.*.mixer.b_v", "blk.*.attn_v.bias"},
                                      {"layers.*.mixer.b_o", "blk.*.attn_output.bias"},
                                      {"layers.*.mixer.gain_q", "blk.*.attn_q_norm.weight"},
                                      {"layers.*.mixer.gain_k", "blk.*.attn_k_norm.weight"},
                                      {"layers.*.ff.norm_g", "blk.*.ffn_norm.weight"},
                                      {"layers.*.ff.W_router", "blk.*.ffn_gate_inp.weight"},
                                      {"layers.*.ff.W_gate", "blk.*.ffn_gate.weight"},
                                      {"layers.*.ff.W_up", "blk.*.ffn_up.weight"},
                                      {"layers.*.ff.W_down", "blk.*.ffn_down.weight"},
                                      {"layers.*.ff.b_gate", "blk.*.ffn_gate.bias"},
                                      {"layers.*.ff.b_up", "blk.*.ffn_up.bias"},
                                      {"layers.*.ff.b_down", "blk.*.ffn_down.bias"},
                                      {"norm_g", "output_norm.weight"},
                                      {"head", "output.weight"},
                                      {0}};

/* ---- which it is ----------------------------------------------------------------------------- */

static const dra_mixer_config *first_rotated(const dra_model_config *c)
{
    for (int i = 0; i < c->mixers; i++)
        if (c->mixer[i].rotary) return &c->mixer[i];
    return NULL;
}

static bool is_family(const dra_model_config *c)
{
    return c->norm == DRA_NORM_RMS && c->ff.kind == DRA_FF_SWIGLU && first_rotated(c) &&
           c->positions == DRA_POSITIONS_NONE && !dra_gguf_find_linear(c);
}

bool dra_gguf_is_qwen3(const dra_model_config *c)
{
    return is_family(c) && c->mixer[0].qk_norm && !c->ff.experts.count;
}
/* llama.cpp divides weights by their sum there, always. */
bool dra_gguf_is_qwen3moe(const dra_model_config *c)
{
    const dra_experts_config *e = &c->ff.experts;
    return is_family(c) && c->mixer[0].qk_norm && e->count && e->normalise && !e->shared;
}
bool dra_gguf_is_qwen2(const dra_model_config *c)
{
    return is_family(c) && c->mixer[0].biases == DRA_BIAS_QKV;
}
bool dra_gguf_is_smollm3(const dra_model_config *c) { return is_family(c) && c->mixers > 1; }
bool dra_gguf_is_llama(const dra_model_config *c) { return is_family(c); }

static bool is_qwen(const char *name) { return name[0] == 'q'; }

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct pairs { /* keys that begin with the name of the architecture */
    dra_keys   *k;
    const char *name;
    char        key[KEY];
} pairs;

static const char *llama_key(pairs *p, const char *rest)
{
    snprintf(p->key, KEY, "%s.%s", p->name, rest);
    return p->key;
}

static int64_t read_int(pairs *p, const char *rest, int64_t fallback)
{
    return dra_keys_int(p->k, llama_key(p, rest), NULL, fallback);
}

static double read_real(pairs *p, const char *rest, double fallback)
{
    return dra_keys_number(p->k, llama_key(p, rest), 1e12, fallback);
}

static void read_sizes(pairs *p, dra_model_config *c, dra_mixer_config *m)
{
    c->context = read_int(p, "context_length", 0);
    c->dim = read_int(p, "embedding_length", 0);
    c->depth = read_int(p, "block_count", 0);
    c->ff.dim = read_int(p, "feed_forward_length", 0);
    c->heads = read_int(p, "attention.head_count", 0);
    c->vocab = read_int(p, "vocab_size", 0);
    c->norm_eps = dra_keys_real(p->k, llama_key(p, "attention.layer_norm_rms_epsilon"), 1e-6);
    if (c->heads < 1) dra_keys_refuse(p->k, llama_key(p, "attention.head_count"), "1 or more");
    if (c->depth < 1) dra_keys_refuse(p->k, llama_key(p, "block_count"), "1 or more");
    if (p->k->status != DRA_OK) return;
    const int64_t D = read_int(p, "attention.key_length", c->dim / c->heads);
    if (D * c->heads != c->dim) c->key_dim = D;
    if (read_int(p, "attention.value_length", D) != D)
        dra_keys_refuse(p->k, llama_key(p, "attention.value_length"), "attention.key_length");
    if (read_int(p, "rope.dimension_count", D) != D)
        dra_keys_refuse(p->k, llama_key(p, "rope.dimension_count"), "all channels of a head");
    m->kv_heads = read_int(p, "attention.head_count_kv", c->heads);
    if (m->kv_heads < 1 || c->heads % m->kv_heads)
        dra_keys_refuse(p->k, llama_key(p, "attention.head_count_kv"), "a divisor of head_count");
    if (m->kv_heads == c->heads) m->kv_heads = 0;
}

/* Files of dra say Llama 3.1's numbers, which others do not, see dra_gguf_llama_settle(). */
static void read_rope(pairs *p, const dra_model_config *c, dra_rotary_config *t)
{
    const char *type = dra_keys_text(p->k, llama_key(p, "rope.scaling.type"), "none");
    t->halves = is_qwen(p->name);
    t->base = read_real(p, "rope.freq_base", 1e4);
    if (strcmp(type, "linear") == 0) {
        t->stretch = read_real(p, "rope.scaling.factor", 1);
    } else if (strcmp(type, "yarn") == 0) {
        t->scaling = DRA_SCALING_YARN;
        t->factor = read_real(p, "rope.scaling.factor", 1);
        t->original = read_int(p, "rope.scaling.original_context_length", c->context);
        t->low = read_real(p, "rope.scaling.yarn_beta_slow", 1);
        t->high = read_real(p, "rope.scaling.yarn_beta_fast", 32);
        t->gain = t->factor > 1 ? 0.1 * log(t->factor) + 1 : 1;
    } else if (strcmp(type, "none") != 0) {
        dra_keys_refuse(p->k, llama_key(p, "rope.scaling.type"), "none, linear or yarn");
    }
    if (!json_object_get(p->k->object, "dra.rope.original")) return;
    t->scaling = DRA_SCALING_LLAMA3;
    t->original = dra_keys_int(p->k, "dra.rope.original", NULL, 0);
    t->factor = dra_keys_number(p->k, "dra.rope.factor", 1e6, 1);
    t->low = dra_keys_number(p->k, "dra.rope.low", 1e6, 1);
    t->high = dra_keys_number(p->k, "dra.rope.high", 1e6, 4);
}

/* Some layers do not rotate. */
static void put_second(pairs *p, dra_model_config *c, dra_mixer_config *own)
{
    int64_t pattern[DRA_SUBLAYERS_MOST];
    own[1] = own[0];
    own[1].rotary = false;
    own[1].turn = (dra_rotary_config){0};
    if (c->depth > DRA_SUBLAYERS_MOST)
        dra_keys_refuse(p->k, llama_key(p, "block_count"), "256 or fewer");
    for (int l = 0; l < c->depth && l < DRA_SUBLAYERS_MOST; l++)
        pattern[l] = (l + 1) % NO_ROPE == 0;
    if (p->k->status == DRA_OK) dra_keys_pattern(p->k, c, (int)c->depth, pattern);
}

static void read_experts(pairs *p, dra_model_config *c)
{
    dra_experts_config *e = &c->ff.experts;
    const int64_t       n = read_int(p, "expert_count", 0);
    const bool          has = strcmp(p->name, "qwen3moe") == 0;
    if (n && !has)
        dra_keys_refuse(p->k, llama_key(p, "expert_count"),
                        "0: only qwen3moe is read with experts");
    if (!has) return;
    e->count = n;
    e->top = read_int(p, "expert_used_count", 0);
    e->normalise = true;
    c->ff.dim = read_int(p, "expert_feed_forward_length", c->ff.dim);
    if (n < 1) dra_keys_refuse(p->k, llama_key(p, "expert_count"), "1 or more");
    if (e->top < 1 || e->top > n)
        dra_keys_refuse(p->k, llama_key(p, "expert_used_count"), "1 up to expert_count");
}

static void read_llama(dra_keys *k, dra_model_config *c, const char *name)
{
    pairs            p = {.k = k, .name = name};
    dra_mixer_config m = {.rotary = true};
    read_sizes(&p, c, &m);
    if (k->status != DRA_OK) return;
    read_rope(&p, c, &m.turn);
    if (read_int(&p, "attention.sliding_window", 0))
        dra_keys_refuse(k, llama_key(&p, "attention.sliding_window"),
                        "0: windows of GGUF are not read");
    read_experts(&p, c);
    m.biases = strcmp(name, "qwen2") == 0 ? DRA_BIAS_QKV : DRA_BIAS_MODEL;
    if (dra_keys_bool(k, "dra.attention_bias", false)) m.biases = DRA_BIAS_ALL;
    if (dra_keys_bool(k, "dra.mlp_bias", false)) c->ff.bias = DRA_FF_BIAS_ALL;
    m.qk_norm = strncmp(name, "qwen3", 5) == 0;
    m.qkv_eps = m.qk_norm ? c->norm_eps : 0;
    c->ff.kind = DRA_FF_SWIGLU;
    const bool        two = strcmp(name, "smollm3") == 0 && c->depth >= NO_ROPE;
    dra_mixer_config *own = dra_keys_mixers(k, c, two ? 2 : 1);
    if (!own) return;
    own[0] = m;
    if (two) put_second(&p, c, own);
}

void dra_gguf_read_llama(dra_keys *k, dra_model_config *c) { read_llama(k, c, "llama"); }
void dra_gguf_read_qwen2(dra_keys *k, dra_model_config *c) { read_llama(k, c, "qwen2"); }
void dra_gguf_read_qwen3(dra_keys *k, dra_model_config *c) { read_llama(k, c, "qwen3"); }
void dra_gguf_read_qwen3moe(dra_keys *k, dra_model_config *c) { read_llama(k, c, "qwen3moe"); }
void dra_gguf_read_smollm3(dra_keys *k, dra_model_config *c) { read_llama(k, c, "smollm3"); }

/* ---- writing --------------------------------------------------------------------------------- */

static void put_int(pairs *p, const char *rest, int64_t n)
{
    dra_keys_put(p->k, llama_key(p, rest), dra_json_int(&p->k->json, n));
}

static void put_real(pairs *p, const char *rest, double x)
{
    dra_keys_put(p->k, llama_key(p, rest), dra_json_real(&p->k->json, x));
}

static void put_rope(pairs *p, const dra_rotary_config *t)
{
    dra_json *j = &p->k->json;
    put_real(p, "rope.freq_base", t->base > 0 ? t->base : 1e4);
    if (t->stretch > 0 && t->stretch != 1) {
        dra_keys_put(p->k, llama_key(p, "rope.scaling.type"), dra_json_text(j, "linear"));
        put_real(p, "rope.scaling.factor", t->stretch);
    }
    if (t->scaling == DRA_SCALING_YARN) {
        dra_keys_put(p->k, llama_key(p, "rope.scaling.type"), dra_json_text(j, "yarn"));
        put_real(p, "rope.scaling.factor", t->factor);
        put_int(p, "rope.scaling.original_context_length", t->original);
        put_real(p, "rope.scaling.yarn_beta_slow", t->low);
        put_real(p, "rope.scaling.yarn_beta_fast", t->high);
    }
    if (t->scaling != DRA_SCALING_LLAMA3) return;
    dra_keys_put(p->k, "dra.rope.original", dra_json_int(j, t->original));
    dra_keys_put(p->k, "dra.rope.factor", dra_json_real(j, t->factor));
    dra_keys_put(p->k, "dra.rope.low", dra_json_real(j, t->low));
    dra_keys_put(p->k, "dra.rope.high", dra_json_real(j, t->high));
}

void dra_gguf_write_llama(dra_keys *k, const dra_model_config *c)
{
    const dra_mixer_config *m = first_rotated(c);
    const int64_t           D = c->key_dim ? c->key_dim : c->dim / c->heads;
    pairs                   p = {.k = k, .name = dra_keys_text(k, "general.architecture", "llama")};
    put_int(&p, "context_length", c->context);
    put_int(&p, "embedding_length", c->dim);
    put_int(&p, "block_count", c->depth);
    put_int(&p, "feed_forward_length", c->ff.dim);
    put_int(&p, "attention.head_count", c->heads);
    put_int(&p, "attention.head_count_kv", m->kv_heads ? m->kv_heads : c->heads);
    put_int(&p, "attention.key_length", D);
    put_int(&p, "attention.value_length", D);
    put_real(&p, "attention.layer_norm_rms_epsilon", c->norm_eps);
    put_int(&p, "rope.dimension_count", D);
    put_int(&p, "vocab_size", c->vocab);
    put_rope(&p, &m->turn);
    if (c->ff.experts.count) {
        put_int(&p, "expert_count", c->ff.experts.count);
        put_int(&p, "expert_used_count", c->ff.experts.top);
        put_int(&p, "expert_feed_forward_length", c->ff.dim);
    }
    if (m->biases == DRA_BIAS_ALL) dra_keys_put(k, "dra.attention_bias", dra_json_bool(true));
    if (c->ff.bias == DRA_FF_BIAS_ALL) dra_keys_put(k, "dra.mlp_bias", dra_json_bool(true));
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* All defaults filled in, as the op has it. */
static dra_rotary_config full_turn(const dra_model_config *c)
{
    dra_rotary_config t = first_rotated(c)->turn;
    t.width = c->key_dim ? c->key_dim : c->dim / c->heads;
    if (!(t.base > 0)) t.base = 1e4;
    if (!(t.stretch > 0)) t.stretch = 1;
    return t;
}

static double plain_speed(const dra_rotary_config *t, int64_t pair)
{
    dra_rotary_config plain = *t;
    plain.scaling = DRA_SCALING_NONE;
    plain.factor = 1;
    return dra_rotary_speed(&plain, pair);
}

static dra_status add_frequencies(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    const dra_rotary_config t = full_turn(c);
    const int64_t           n = t.width / 2;
    if (t.scaling != DRA_SCALING_LLAMA3) return DRA_OK;
    dra_real *data = dra_arena_alloc(&out->arena, (size_t)n * sizeof *data);
    if (!data) return dra_fail(err, DRA_ERR_MEMORY, "gguf: out of memory");
    for (int64_t i = 0; i < n; i++)
        data[i] = (dra_real)(plain_speed(&t, i) / dra_rotary_speed(&t, i));
    out->constant[out->constants++] = (dra_constant){FREQUENCIES, n, data};
    return DRA_OK;
}

/* Matrices of experts are in one tensor, an axis of them in front. */
static void name_experts(const dra_model_config *c, dra_name_rule *row)
{
    static const char *const names[][2] = {{"layers.*.ff.W_gate", "blk.*.ffn_gate_exps.weight"},
                                           {"layers.*.ff.W_up", "blk.*.ffn_up_exps.weight"},
                                           {"layers.*.ff.W_down", "blk.*.ffn_down_exps.weight"}};
    const int64_t            n = c->ff.experts.count, F = c->ff.dim, C = c->dim;
    for (; row->ours && n; row++)
        for (int i = 0; i < 3; i++) {
            if (strcmp(row->ours, names[i][0]) != 0) continue;
            row->theirs = names[i][1];
            row->shape = i == 2 ? DRA_SHAPE(n, C, F) : DRA_SHAPE(n, F, C);
        }
}

dra_status dra_gguf_llama_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    dra_name_rule *row = dra_arena_copy(&out->arena, rules, sizeof rules);
    if (!row) return dra_fail(err, DRA_ERR_MEMORY, "gguf: out of memory");
    const bool qwen = dra_gguf_is_qwen2(c) || dra_gguf_is_qwen3(c) || dra_gguf_is_qwen3moe(c);
    name_experts(c, row);
    dra_llama_order_rows(c, qwen ? DRA_ROWS_HALVES : DRA_ROWS_NEIGHBOURS, row);
    out->row = row;
    return add_frequencies(c, out, err);
}

/* ---- what only tensors say ------------------------------------------------------------------- */

static bool has_tensor(const dra_tensor_source *s, const char *name)
{
    return dra_tensor_source_find(s, name) != NULL;
}

/* Of Llama 3.1's scaling a file has what frequencies f are divided by: 1 of fast ones, factor of
 * slow ones, and between them 1 / (s / factor + 1 - s), where s is linear in f. With low 1 two of
 * these give high and the original length: s = (high - f original / 2 pi) / (high - 1). */
static dra_status infer_llama3(const dra_tensor_info *t, dra_rotary_config *turn, double factor)
{
    double  f[2] = {0}, s[2] = {0}, x;
    int64_t n = 0;
    for (int64_t i = 0; i < t->shape.dim[0]; i++) {
        if (!dra_tensor_copy(t, (size_t)i, 1, DRA_F64, &x)) return DRA_ERR_DTYPE;
        if (x < 1.0001 || x > factor * 0.9999) continue;
        const int at = n++ ? 1 : 0; /* the first and the last */
        f[at] = plain_speed(turn, i);
        s[at] = (1 - 1 / x) / (1 - 1 / factor);
    }
    const double slope = n > 1 ? (s[1] - s[0]) / (f[0] - f[1]) : 0, top = s[0] + slope * f[0];
    turn->scaling = DRA_SCALING_LLAMA3;
    turn->factor = factor;
    turn->low = 1;
    turn->high = n > 1 && top > 1 ? round(top / (top - 1) * 4096) / 4096 : 4;
    turn->original = n > 1 ? (int64_t)round(slope * DRA_TWO_PI * (turn->high - 1)) : 8192;
    return DRA_OK;
}

static dra_status settle_frequencies(const dra_tensor_source *s, dra_model_config *c,
                                     dra_error *err)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, FREQUENCIES);
    dra_rotary_config              t = full_turn(c);
    double                         factor = 0, x;
    if (!e || t.scaling) return DRA_OK;
    t.factor = 1;
    const dra_tensor_info *info = e->info;
    const bool             fits = info->shape.rank == 1 && info->shape.dim[0] == t.width / 2;
    for (int64_t i = 0; fits && i < t.width / 2; i++)
        if (dra_tensor_copy(info, (size_t)i, 1, DRA_F64, &x)) factor = fmax(factor, x);
    if (!fits || !(factor >= 1) || infer_llama3(info, &t, factor) != DRA_OK || t.original < 1)
        return dra_fail_at(err, DRA_ERR_VALUE, s->path,
                           "tensor '%s': expected %lld factors as Llama 3.1 has them", FREQUENCIES,
                           (long long)(t.width / 2));
    t.width = 0;
    if (factor == 1) return DRA_OK;
    dra_mixer_config *m = dra_config_mixers(c, c->mixers);
    if (!m) return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
    for (int i = 0; i < c->mixers; i++)
        if (m[i].rotary) m[i].turn = t;
    return DRA_OK;
}

dra_status dra_gguf_llama_settle(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    if (!is_family(c)) return DRA_OK;
    const bool qwen = first_rotated(c)->turn.halves;
    const bool output = has_tensor(s, "blk.0.attn_output.bias");
    if (has_tensor(s, "blk.0.attn_q.bias") && !output && !qwen)
        return dra_fail_at(err, DRA_ERR_NAME, s->path,
                           "tensor 'blk.0.attn_q.bias' without 'blk.0.attn_output.bias', expected "
                           "both or none where rows of queries stand pair by pair");
    dra_mixer_config *m = dra_config_mixers(c, c->mixers);
    if (!m) return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
    for (int i = 0; i < c->mixers; i++)
        m[i].biases = output                               ? DRA_BIAS_ALL
                      : has_tensor(s, "blk.0.attn_q.bias") ? DRA_BIAS_QKV
                                                           : DRA_BIAS_MODEL;
    c->ff.bias = has_tensor(s, "blk.0.ffn_up.bias") ? DRA_FF_BIAS_ALL : DRA_FF_BIAS_MODEL;
    return settle_frequencies(s, c, err);
}
