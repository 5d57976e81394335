/* The Llama family in GGUF, its settings. An architecture is a row: which folders it is like, and
 * what the keys of GGUF leave unsaid. Names and orders of tensors are in llama_names.c.
 * [https://github.com/ggml-org/llama.cpp, conversion/, src/models/] */
#include "formats/gguf/llama.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/fail.h"
#include "formats/gguf/recurrent.h"
#include "model/owned.h"
#include "ops/attention/rotary.h"

enum {
    KEY = 80,
    LAYERS_27B = 62 /* of Gemma 3 27B, whose scores have a scale of their own */
};

static const char WINDOW[] = "attention.sliding_window",
                  PATTERN[] = "attention.sliding_window_pattern", SCALE[] = "attention.scale",
                  LOCAL_BASE[] = "rope.freq_base_swa", SCALING[] = "rope.scaling.type",
                  ORIGINAL[] = "rope.scaling.original_context_length",
                  GAIN[] = "rope.scaling.attn_factor", REACH[] = "dra.rope.reach",
                  SHORT[] = "dra.rope.short_factors", LONG[] = "dra.rope.long_factors";

/* ---- which it is ----------------------------------------------------------------------------- */

const dra_mixer_config *dra_gguf_rotated(const dra_model_config *c)
{
    const dra_mixer_config *first = NULL;
    for (int i = 0; i < c->mixers; i++) {
        if (!c->mixer[i].rotary) continue;
        if (!c->mixer[i].a.window) return &c->mixer[i];
        if (!first) first = &c->mixer[i];
    }
    return first;
}

static bool is_gemma3(const dra_model_config *c) { return c->norm_offset; }

static bool is_olmo2(const dra_model_config *c) { return c->block.norm == DRA_PLACE_NONE; }

static bool is_granite(const dra_model_config *c)
{
    return c->embed_scale > 0 || c->logit_scale > 0 || c->block.branch_factor > 0 ||
           c->mixer[0].score_scale > 0;
}

static bool is_phi3(const dra_model_config *c)
{
    const dra_rotary_config *t = &dra_gguf_rotated(c)->turn;
    return dra_rotary_is_longrope(t) || t->width;
}

/* llama.cpp divides weights by their sum there, always. */
static bool is_qwen3moe(const dra_model_config *c)
{
    const dra_experts_config *e = &c->ff.experts;
    return c->mixer[0].qk_norm && e->count && e->normalise && !e->shared;
}

static bool is_qwen3(const dra_model_config *c) { return c->mixer[0].qk_norm; }

static bool is_qwen2(const dra_model_config *c) { return c->mixer[0].biases == DRA_BIAS_QKV; }

static bool is_smollm3(const dra_model_config *c)
{
    for (int i = 0; i < c->mixers; i++)
        if (!c->mixer[i].rotary) return true;
    return false;
}

static bool is_llama(const dra_model_config *c) { return true; }

/* The first that fits; what it cannot say is found when keys are read back. */
static const dra_gguf_llama kinds[] = {
    {"gemma3", &dra_format_gemma3, false, 6, is_gemma3},
    {"olmo2", &dra_format_olmo3, false, 4, is_olmo2},
    {"granite", &dra_format_granite, true, 0, is_granite},
    {"phi3", &dra_format_phi3, false, 0, is_phi3},
    {"qwen3moe", &dra_format_qwen3_moe, false, 0, is_qwen3moe},
    {"qwen3", &dra_format_qwen3, false, 0, is_qwen3},
    {"qwen2", &dra_format_qwen2, false, 0, is_qwen2},
    {"smollm3", &dra_format_smollm3, true, 0, is_smollm3},
    {"llama", &dra_format_llama, true, 0, is_llama},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static bool is_family(const dra_model_config *c)
{
    const bool gelu = c->ff.kind == DRA_FF_GELU && c->ff.gated && c->norm_offset;
    return c->norm == DRA_NORM_RMS && (c->ff.kind == DRA_FF_SWIGLU || gelu) &&
           dra_gguf_rotated(c) && c->positions == DRA_POSITIONS_NONE && !dra_gguf_find_linear(c);
}

const dra_gguf_llama *dra_gguf_llama_of(const dra_model_config *c)
{
    int i = 0;
    if (!is_family(c)) return NULL;
    while (!kinds[i].is(c)) i++;
    return &kinds[i];
}

const char *dra_gguf_llama_name(const dra_model_config *c)
{
    const dra_gguf_llama *kind = dra_gguf_llama_of(c);
    return kind ? kind->name : NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct pairs { /* keys that begin with the name of the architecture */
    dra_keys             *k;
    const dra_gguf_llama *kind;
    const dra_llama      *as;
    char                  key[KEY];
} pairs;

static pairs open_pairs(dra_keys *k)
{
    const char *name = dra_keys_text(k, "general.architecture", "llama");
    int         i = 0;
    while (i < KINDS - 1 && strcmp(kinds[i].name, name) != 0) i++;
    return (pairs){.k = k, .kind = &kinds[i], .as = kinds[i].as->family};
}

static const char *llama_key(pairs *p, const char *rest)
{
    snprintf(p->key, KEY, "%s.%s", p->kind->name, rest);
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
    const int64_t turns = read_int(p, "rope.dimension_count", D);
    if (turns != D && (!(p->as->partial > 0) || turns < 2 || turns % 2 || turns > D))
        dra_keys_refuse(p->k, llama_key(p, "rope.dimension_count"),
                        p->as->partial > 0 ? "an even number of channels of a head"
                                           : "all channels of a head");
    if (turns != D || p->as->fused) m->turn.width = turns; /* which tells phi3 from llama */
    m->kv_heads = read_int(p, "attention.head_count_kv", c->heads);
    if (m->kv_heads < 1 || c->heads % m->kv_heads)
        dra_keys_refuse(p->k, llama_key(p, "attention.head_count_kv"), "a divisor of head_count");
    if (m->kv_heads == c->heads) m->kv_heads = 0;
}

/* Of others the factors are tensors alone: see dra_gguf_llama_settle(). */
static void read_longrope(pairs *p, const dra_model_config *c, dra_rotary_config *t)
{
    const char *reach = dra_keys_text(p->k, REACH, "short");
    const bool  is_long = strcmp(reach, "long") == 0;
    t->scaling = is_long ? DRA_SCALING_LONGROPE_LONG : DRA_SCALING_LONGROPE_SHORT;
    t->original = read_int(p, ORIGINAL, c->context);
    t->gain = read_real(p, GAIN, 1);
    if (!is_long && strcmp(reach, "short") != 0) dra_keys_refuse(p->k, REACH, "short or long");
    if (!json_object_get(p->k->object, SHORT)) return;
    t->short_factors = dra_llama_read_factors(p->k, SHORT, c, t, &t->n_short);
    t->long_factors = dra_llama_read_factors(p->k, LONG, c, t, &t->n_long);
}

/* Files of dra say Llama 3.1's numbers, which others do not, see dra_gguf_llama_settle(). */
static void read_rope(pairs *p, const dra_model_config *c, dra_rotary_config *t)
{
    const char *type = dra_keys_text(p->k, llama_key(p, SCALING), "none");
    t->halves = !p->kind->neighbours;
    t->base = read_real(p, "rope.freq_base", 1e4);
    if (strcmp(type, "linear") == 0) {
        t->stretch = read_real(p, "rope.scaling.factor", 1);
    } else if (strcmp(type, "yarn") == 0) {
        t->scaling = DRA_SCALING_YARN;
        t->factor = read_real(p, "rope.scaling.factor", 1);
        t->original = read_int(p, ORIGINAL, c->context);
        t->low = read_real(p, "rope.scaling.yarn_beta_slow", 1);
        t->high = read_real(p, "rope.scaling.yarn_beta_fast", 32);
        t->gain = t->factor > 1 ? 0.1 * log(t->factor) + 1 : 1;
    } else if (strcmp(type, "longrope") == 0) {
        read_longrope(p, c, t);
    } else if (strcmp(type, "none") != 0) {
        dra_keys_refuse(p->k, llama_key(p, SCALING), "none, linear, yarn or longrope");
    }
    if (!json_object_get(p->k->object, "dra.rope.original")) return;
    t->scaling = DRA_SCALING_LLAMA3;
    t->original = dra_keys_int(p->k, "dra.rope.original", NULL, 0);
    t->factor = dra_keys_number(p->k, "dra.rope.factor", 1e6, 1);
    t->low = dra_keys_number(p->k, "dra.rope.low", 1e6, 1);
    t->high = dra_keys_number(p->k, "dra.rope.high", 1e6, 4);
}

static double default_scale(const dra_model_config *c)
{
    const int64_t D = c->key_dim ? c->key_dim : c->dim / c->heads;
    return 1 / sqrt((double)(c->depth == LAYERS_27B ? c->dim / c->heads : D));
}

/* 1 / sqrt(n) as it was before it became a float. */
static double mend_scale(double x)
{
    const double n = round(1 / (x * x));
    return fabs(x * sqrt(n) - 1) < 1e-6 ? 1 / sqrt(n) : x;
}

static void read_options(pairs *p, dra_model_config *c, dra_mixer_config *m)
{
    const dra_llama *f = p->as;
    m->biases = f->qkv_bias ? DRA_BIAS_QKV : DRA_BIAS_MODEL;
    if (dra_keys_bool(p->k, "dra.attention_bias", false)) m->biases = DRA_BIAS_ALL;
    if (dra_keys_bool(p->k, "dra.mlp_bias", false)) c->ff.bias = DRA_FF_BIAS_ALL;
    m->qk_norm = f->qk_norm != DRA_LLAMA_NO_NORM;
    m->qk_whole = f->qk_norm == DRA_LLAMA_NORM_ALL;
    m->qkv_eps = m->qk_norm ? c->norm_eps : 0;
    m->qk_gain_offset = c->norm_offset = f->offset;
    c->block.norm = f->norms == DRA_NORMS_BRANCH ? DRA_PLACE_NONE : DRA_PLACE_PRE;
    c->block.branch_norm = f->norms != DRA_NORMS_PRE;
    c->ff.kind = f->gemma ? DRA_FF_GELU : DRA_FF_SWIGLU;
    c->ff.gated = f->gemma;
    if (f->gemma) c->embed_scale = sqrt((double)c->dim);
    if (f->granite) c->embed_scale = read_real(p, "embedding_scale", 1);
    if (f->granite) c->block.branch_factor = read_real(p, "residual_scale", 1);
    if (f->granite) c->logit_scale = 1 / read_real(p, "logit_scale", 1);
    if (f->granite || f->gemma) m->score_scale = read_real(p, SCALE, default_scale(c));
    if (f->gemma) m->score_scale = mend_scale(m->score_scale);
}

/* Which layers see only a window: a list, or all but every n-th. */
static bool has_window(pairs *p, int64_t l)
{
    const json_t *v = json_object_get(p->k->object, llama_key(p, PATTERN));
    const json_t *own = json_array_get(v, (size_t)l);
    if (json_is_array(v) && !json_is_boolean(own) && !json_is_integer(own))
        dra_keys_refuse(p->k, llama_key(p, PATTERN), "a number, or true or false for each layer");
    if (json_is_array(v)) return json_is_true(own) || json_integer_value(own) != 0;
    const int64_t every = read_int(p, PATTERN, p->kind->every);
    return every < 1 || (l + 1) % every != 0;
}

/* Layers with a window rotate as others do, or by a base of their own without scaling. */
static dra_rotary_config turn_in_window(pairs *p, const dra_rotary_config *t)
{
    const double      own = p->as->local_theta > 0 ? p->as->local_theta : t->base;
    dra_rotary_config plain = {.halves = t->halves, .base = read_real(p, LOCAL_BASE, own)};
    return p->as->two_ropes ? plain : *t;
}

static void read_layers(pairs *p, const dra_mixer_config *m, dra_model_config *c)
{
    const int64_t   W = read_int(p, WINDOW, 0), every = p->as->rope_every;
    dra_llama_kinds kinds_of_layers = {0};
    for (int64_t l = 0; l < c->depth && p->k->status == DRA_OK; l++) {
        const bool        rope = every < 1 || (l + 1) % every != 0;
        const bool        window = W > 0 && has_window(p, l);
        dra_mixer_config *own = dra_llama_add_layer(&kinds_of_layers, l, window + 2 * rope);
        if (!own) continue;
        *own = *m;
        own->rotary = rope;
        if (!rope) own->turn = (dra_rotary_config){0};
        if (rope && window) own->turn = turn_in_window(p, &m->turn);
        if (window) own->a.retrieval = "window", own->a.window = W;
    }
    dra_llama_put_kinds(p->k, &kinds_of_layers, llama_key(p, "block_count"), c);
}

static void read_experts(pairs *p, dra_model_config *c)
{
    dra_experts_config *e = &c->ff.experts;
    const int64_t       n = read_int(p, "expert_count", 0);
    const bool          has = p->as->experts != DRA_EXPERTS_NONE;
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

void dra_gguf_read_llama(dra_keys *k, dra_model_config *c)
{
    pairs            p = open_pairs(k);
    dra_mixer_config m = {.rotary = true};
    read_sizes(&p, c, &m);
    if (k->status != DRA_OK) return;
    read_rope(&p, c, &m.turn);
    read_experts(&p, c);
    if (json_real_value(json_object_get(k->object, llama_key(&p, "final_logit_softcapping"))) > 0)
        dra_keys_refuse(k, llama_key(&p, "final_logit_softcapping"),
                        "0: capped logits are not read");
    read_options(&p, c, &m);
    read_layers(&p, &m, c);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_int(pairs *p, const char *rest, int64_t n)
{
    dra_keys_put(p->k, llama_key(p, rest), dra_json_int(&p->k->json, n));
}

static void put_real(pairs *p, const char *rest, double x)
{
    dra_keys_put(p->k, llama_key(p, rest), dra_json_real(&p->k->json, x));
}

static void put_text(pairs *p, const char *rest, const char *text)
{
    dra_keys_put(p->k, llama_key(p, rest), dra_json_text(&p->k->json, text));
}

static void put_rope(pairs *p, const dra_rotary_config *t)
{
    dra_json *j = &p->k->json;
    put_real(p, "rope.freq_base", t->base > 0 ? t->base : 1e4);
    if (t->stretch > 0 && t->stretch != 1) {
        put_text(p, SCALING, "linear");
        put_real(p, "rope.scaling.factor", t->stretch);
    }
    if (t->scaling == DRA_SCALING_YARN) {
        put_text(p, SCALING, "yarn");
        put_real(p, "rope.scaling.factor", t->factor);
        put_int(p, ORIGINAL, t->original);
        put_real(p, "rope.scaling.yarn_beta_slow", t->low);
        put_real(p, "rope.scaling.yarn_beta_fast", t->high);
    }
    if (dra_rotary_is_longrope(t)) {
        put_text(p, SCALING, "longrope");
        put_int(p, ORIGINAL, t->original);
        put_real(p, GAIN, t->gain > 0 ? t->gain : 1);
        if (t->scaling == DRA_SCALING_LONGROPE_LONG)
            dra_keys_put(p->k, REACH, dra_json_text(j, "long"));
        dra_keys_put(p->k, SHORT, dra_llama_factors(j, t->short_factors, t->n_short));
        dra_keys_put(p->k, LONG, dra_llama_factors(j, t->long_factors, t->n_long));
    }
    if (t->scaling != DRA_SCALING_LLAMA3) return;
    dra_keys_put(p->k, "dra.rope.original", dra_json_int(j, t->original));
    dra_keys_put(p->k, "dra.rope.factor", dra_json_real(j, t->factor));
    dra_keys_put(p->k, "dra.rope.low", dra_json_real(j, t->low));
    dra_keys_put(p->k, "dra.rope.high", dra_json_real(j, t->high));
}

static const dra_mixer_config *mixer_of(const dra_model_config *c, int64_t l)
{
    return &c->mixer[c->n_pattern ? c->pattern[l] : l % c->mixers];
}

/* As a number where every n-th layer has no window, which is all that llama.cpp reads. */
static void put_pattern(pairs *p, const dra_model_config *c)
{
    int64_t every = 1;
    bool    regular = true;
    while (every < c->depth && mixer_of(c, every - 1)->a.window) every++;
    if (mixer_of(c, every - 1)->a.window) every = 0;
    for (int64_t l = 0; l < c->depth; l++)
        regular = regular && (mixer_of(c, l)->a.window > 0) == (!every || (l + 1) % every != 0);
    if (regular && every == p->kind->every) return;
    if (regular) {
        put_int(p, PATTERN, every);
        return;
    }
    json_t *list = dra_json_array(&p->k->json);
    for (int64_t l = 0; l < c->depth; l++)
        dra_json_append(&p->k->json, list, dra_json_bool(mixer_of(c, l)->a.window > 0));
    dra_keys_put(p->k, llama_key(p, PATTERN), list);
}

static void put_windows(pairs *p, const dra_model_config *c)
{
    const dra_mixer_config *m = NULL;
    for (int i = 0; i < c->mixers && !m; i++)
        if (c->mixer[i].a.window) m = &c->mixer[i];
    if (!m) return;
    put_int(p, WINDOW, m->a.window);
    put_pattern(p, c);
    if (p->as->two_ropes) put_real(p, LOCAL_BASE, m->turn.base > 0 ? m->turn.base : 1e4);
}

static void put_factors(pairs *p, const dra_model_config *c, const dra_mixer_config *m)
{
    const double scale = m->score_scale > 0 ? m->score_scale : default_scale(c);
    if (p->as->granite) {
        put_real(p, "embedding_scale", c->embed_scale > 0 ? c->embed_scale : 1);
        put_real(p, "residual_scale", c->block.branch_factor > 0 ? c->block.branch_factor : 1);
        put_real(p, "logit_scale", c->logit_scale > 0 ? dra_llama_inverse(c->logit_scale) : 1);
    }
    if (p->as->granite || (p->as->gemma && scale != default_scale(c))) put_real(p, SCALE, scale);
}

void dra_gguf_write_llama(dra_keys *k, const dra_model_config *c)
{
    const dra_mixer_config *m = dra_gguf_rotated(c);
    const int64_t           D = c->key_dim ? c->key_dim : c->dim / c->heads;
    pairs                   p = open_pairs(k);
    put_int(&p, "context_length", c->context);
    put_int(&p, "embedding_length", c->dim);
    put_int(&p, "block_count", c->depth);
    put_int(&p, "feed_forward_length", c->ff.dim);
    put_int(&p, "attention.head_count", c->heads);
    put_int(&p, "attention.head_count_kv", m->kv_heads ? m->kv_heads : c->heads);
    put_int(&p, "attention.key_length", D);
    put_int(&p, "attention.value_length", D);
    put_real(&p, "attention.layer_norm_rms_epsilon", c->norm_eps);
    put_int(&p, "rope.dimension_count", m->turn.width ? m->turn.width : D);
    put_int(&p, "vocab_size", c->vocab);
    put_rope(&p, &m->turn);
    put_factors(&p, c, m);
    put_windows(&p, c);
    if (c->ff.experts.count) {
        put_int(&p, "expert_count", c->ff.experts.count);
        put_int(&p, "expert_used_count", c->ff.experts.top);
        put_int(&p, "expert_feed_forward_length", c->ff.dim);
    }
    if (m->biases == DRA_BIAS_ALL) dra_keys_put(k, "dra.attention_bias", dra_json_bool(true));
    if (c->ff.bias == DRA_FF_BIAS_ALL) dra_keys_put(k, "dra.mlp_bias", dra_json_bool(true));
}
