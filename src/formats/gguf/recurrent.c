/* Recurrent families in GGUF: qwen35, mamba2, granitehybrid, lfm2. Each has the settings and the
 * tensors of a family of folders under other names, so its keys are put into those words, or taken
 * from them, and its rules are those of the folder renamed. What is stored otherwise:
 *   A is -e^A_log; gains that folders store less 1 are whole; of granitehybrid rows of queries and
 *   keys stand pair by pair, though they do not rotate; of qwen35 heads of values stand so that
 *   those of keys repeat as a whole: head g r + j, of key g, is number j Hk + g.
 * [https://github.com/ggml-org/llama.cpp, conversion/qwen.py, mamba.py, granite.py, lfm2.py] */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/fail.h"
#include "formats/gated_delta.h"
#include "formats/gguf/recurrent.h"

enum { KEY = 80 };

static const char FULL[] = "full_attention", KV_HEADS[] = "attention.head_count_kv",
                  CONV_BIAS[] = "dra.conv_bias"; /* of others tensors say it */

#define SHARED                                                                                     \
    {"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"},            \
        {"block_count", "num_hidden_layers"},                                                      \
    {                                                                                              \
        "vocab_size", "vocab_size"                                                                 \
    }

static const dra_gguf_pair qwen35_pairs[] = {SHARED,
                                             {"feed_forward_length", "intermediate_size"},
                                             {"attention.head_count", "num_attention_heads"},
                                             {"attention.head_count_kv", "num_key_value_heads"},
                                             {"attention.key_length", "head_dim"},
                                             {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                             {"rope.freq_base", "rope_theta"},
                                             {"full_attention_interval", "full_attention_interval"},
                                             {"ssm.conv_kernel", "linear_conv_kernel_dim"},
                                             {"ssm.state_size", "linear_key_head_dim"},
                                             {"ssm.group_count", "linear_num_key_heads"},
                                             {"ssm.time_step_rank", "linear_num_value_heads"},
                                             {"expert_count", "num_experts"},
                                             {0}};

static const dra_gguf_pair mamba2_pairs[] = {
    SHARED,
    {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
    {"ssm.conv_kernel", "conv_kernel"},
    {"ssm.state_size", "state_size"},
    {"ssm.group_count", "n_groups"},
    {"ssm.time_step_rank", "num_heads"},
    {0}};

static const dra_gguf_pair granite_pairs[] = {
    SHARED,
    {"feed_forward_length", "shared_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.scale", "attention_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
    {"rope.freq_base", "rope_theta"},
    {"ssm.conv_kernel", "mamba_d_conv"},
    {"ssm.state_size", "mamba_d_state"},
    {"ssm.group_count", "mamba_n_groups"},
    {"ssm.time_step_rank", "mamba_n_heads"},
    {"expert_count", "num_local_experts"},
    {0}};

static const dra_gguf_pair lfm2_pairs[] = {SHARED,
                                           {"feed_forward_length", "intermediate_size"},
                                           {"attention.head_count", "num_attention_heads"},
                                           {"attention.layer_norm_rms_epsilon", "norm_eps"},
                                           {"rope.freq_base", "rope_theta"},
                                           {"shortconv.l_cache", "conv_L_cache"},
                                           {0}};

static const dra_gguf_family qwen35 = {DRA_GGUF_QWEN35, "qwen35",           &dra_format_qwen3_5,
                                       qwen35_pairs,    "linear_attention", false};
static const dra_gguf_family mamba2 = {DRA_GGUF_MAMBA2, "mamba2", &dra_format_mamba2,
                                       mamba2_pairs,    NULL,     false};
static const dra_gguf_family granite = {DRA_GGUF_GRANITE,           "granitehybrid",
                                        &dra_format_granite_hybrid, granite_pairs,
                                        "linear_attention",         true};
static const dra_gguf_family lfm2 = {DRA_GGUF_LFM2, "lfm2", &dra_format_lfm2,
                                     lfm2_pairs,    "conv", true};

/* ---- which it is ----------------------------------------------------------------------------- */

const dra_mixer_config *dra_gguf_find_linear(const dra_model_config *c)
{
    for (int i = 0; i < c->mixers; i++)
        if (dra_linear_is(&c->mixer[i])) return &c->mixer[i];
    return NULL;
}

/* NULL: it is none. Smaller differences are found when keys are read back. */
const dra_gguf_family *dra_gguf_family_of(const dra_model_config *c)
{
    const dra_mixer_config *m = dra_gguf_find_linear(c);
    if (c->ff.experts.count) return NULL;
    if (!m || c->norm != DRA_NORM_RMS || c->positions != DRA_POSITIONS_NONE) return NULL;
    if (strcmp(m->a.memory, "shortconv") == 0) return c->ff.kind == DRA_FF_SWIGLU ? &lfm2 : NULL;
    if (m->a.lambda.decay_form != DRA_FORM_SOFTPLUS) return NULL;
    if (strcmp(m->a.memory, "delta") == 0) return c->norm_offset ? &qwen35 : NULL;
    return c->ff.kind == DRA_FF_NONE ? &mamba2 : &granite;
}

bool dra_gguf_is_qwen35(const dra_model_config *c) { return dra_gguf_family_of(c) == &qwen35; }
bool dra_gguf_is_mamba2(const dra_model_config *c) { return dra_gguf_family_of(c) == &mamba2; }
bool dra_gguf_is_granite_hybrid(const dra_model_config *c)
{
    return dra_gguf_family_of(c) == &granite;
}
bool dra_gguf_is_lfm2(const dra_model_config *c) { return dra_gguf_family_of(c) == &lfm2; }

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct translation {
    dra_keys              *k; /* of GGUF */
    const dra_gguf_family *f;
    json_t                *folder; /* config.json of a folder */
    char                   key[KEY];
} translation;

static const char *gguf_key(translation *t, const char *rest)
{
    snprintf(t->key, KEY, "%s.%s", t->f->name, rest);
    return t->key;
}

static const json_t *find_value(translation *t, const char *rest)
{
    return json_object_get(t->k->object, gguf_key(t, rest));
}

static int64_t read_int(translation *t, const char *rest, int64_t fallback)
{
    return dra_keys_int(t->k, gguf_key(t, rest), NULL, fallback);
}

/* A number that has to be there. */
static int64_t read_needed(translation *t, const char *rest)
{
    const int64_t n = read_int(t, rest, 0);
    if (n < 1) dra_keys_refuse(t->k, gguf_key(t, rest), "1 or more");
    return n < 1 ? 1 : n;
}

static void say_int(translation *t, const char *key, int64_t n)
{
    dra_json_set(&t->k->json, t->folder, key, dra_json_int(&t->k->json, n));
}

static void say_real(translation *t, const char *key, double x)
{
    dra_json_set(&t->k->json, t->folder, key, dra_json_real(&t->k->json, x));
}

/* What a list has for layer l; a number is that of all. */
static int64_t number_at(const json_t *list, int64_t l)
{
    const json_t *own = json_is_array(list) ? json_array_get(list, (size_t)l) : list;
    return json_is_true(own) ? 1 : json_integer_value(own);
}

/* Layers by the list that says which of them are recurrent, or have no heads of keys. */
static void read_types(translation *t)
{
    const char   *rest = t->f->counts ? KV_HEADS : "attention.recurrent_layers";
    const json_t *list = find_value(t, rest);
    const int64_t depth = read_needed(t, "block_count") - read_int(t, "nextn_predict_layers", 0);
    dra_json     *j = &t->k->json;
    int64_t       most = 0;
    say_int(t, "num_hidden_layers", depth);
    if (json_is_array(list) && (int64_t)json_array_size(list) < depth)
        dra_keys_refuse(t->k, gguf_key(t, rest), "a list with a number for each block");
    if (!list || t->k->status != DRA_OK || depth > DRA_SUBLAYERS_MOST) return;
    json_t *types = dra_json_array(j);
    for (int64_t l = 0; l < depth; l++) {
        const int64_t n = number_at(list, l);
        const bool    attention = t->f->counts == (n > 0);
        if (n > most) most = n;
        dra_json_append(j, types, dra_json_text(j, attention ? FULL : t->f->linear));
    }
    dra_json_set(j, t->folder, "layer_types", types);
    if (t->f->counts && most) say_int(t, "num_key_value_heads", most);
}

static void read_qwen35(translation *t)
{
    const int64_t Hv = read_needed(t, "ssm.time_step_rank"), all = read_needed(t, "ssm.inner_size");
    const int64_t D = read_needed(t, "attention.key_length");
    const int64_t turns = read_int(t, "rope.dimension_count", D);
    if (all % Hv)
        dra_keys_refuse(t->k, gguf_key(t, "ssm.inner_size"), "a multiple of ssm.time_step_rank");
    if (read_int(t, "attention.value_length", D) != D)
        dra_keys_refuse(t->k, gguf_key(t, "attention.value_length"), "attention.key_length");
    say_int(t, "linear_value_head_dim", all / Hv);
    say_real(t, "partial_rotary_factor",
             turns < D ? ((double)turns + 0.25) / (double)D : 1); /* rounded down there */
}

static void read_granite(translation *t)
{
    const int64_t C = read_needed(t, "embedding_length"), all = read_needed(t, "ssm.inner_size");
    const int64_t D = read_int(t, "attention.key_length",
                               C / read_needed(t, "attention.head_count"));
    if (!find_value(t, "attention.scale") && D > 0)
        say_real(t, "attention_multiplier", 1 / sqrt((double)D));
    if (!find_value(t, "expert_count")) say_int(t, "num_local_experts", 0);
    say_int(t, "mamba_expand", all / C);
    dra_json_set(&t->k->json, t->folder, "mamba_conv_bias",
                 dra_json_bool(dra_keys_bool(t->k, CONV_BIAS, true)));
    if (dra_keys_bool(t->k, gguf_key(t, "rope.scaling.finetuned"), true))
        dra_json_set(&t->k->json, t->folder, "position_embedding_type",
                     dra_json_text(&t->k->json, "rope"));
}

static void read_mamba2(translation *t)
{
    const int64_t C = read_needed(t, "embedding_length"), all = read_needed(t, "ssm.inner_size");
    say_int(t, "head_dim", all / read_needed(t, "ssm.time_step_rank"));
    say_int(t, "expand", all / C);
}

static void read_family(dra_keys *k, dra_model_config *c, const dra_gguf_family *f)
{
    static const char scaling[] = "rope.scaling.type";
    char              place[200];
    translation       t = {.k = k, .f = f, .folder = dra_json_object(&k->json)};
    for (const dra_gguf_pair *p = f->pairs; p->rest; p++) {
        const json_t *v = find_value(&t, p->rest);
        if (v) dra_json_set(&k->json, t.folder, p->key, json_incref((json_t *)(uintptr_t)v));
    }
    if (read_int(&t, "expert_count", 0))
        dra_keys_refuse(k, gguf_key(&t, "expert_count"), "0: only qwen3moe is read with experts");
    if (strcmp(dra_keys_text(k, gguf_key(&t, scaling), "none"), "none") != 0)
        dra_keys_refuse(k, gguf_key(&t, scaling), "none");
    if (f->linear) read_types(&t);
    if (f == &qwen35) read_qwen35(&t);
    if (f == &granite) read_granite(&t);
    if (f == &mamba2) read_mamba2(&t);
    if (f == &lfm2)
        dra_json_set(&k->json, t.folder, "block_auto_adjust_ff_dim", dra_json_bool(false));
    snprintf(place, sizeof place, "%.120s: as %s", k->place, f->as->name);
    dra_keys inner = {.format = f->as, .place = place, .object = t.folder, .err = k->err};
    if (k->status == DRA_OK) k->status = dra_json_check(&k->json, k->place, k->err);
    if (k->status == DRA_OK) {
        f->as->read(&inner, c);
        k->status = inner.status;
    }
    json_decref(t.folder);
}

void dra_gguf_read_qwen35(dra_keys *k, dra_model_config *c) { read_family(k, c, &qwen35); }
void dra_gguf_read_mamba2(dra_keys *k, dra_model_config *c) { read_family(k, c, &mamba2); }
void dra_gguf_read_granite_hybrid(dra_keys *k, dra_model_config *c) { read_family(k, c, &granite); }
void dra_gguf_read_lfm2(dra_keys *k, dra_model_config *c) { read_family(k, c, &lfm2); }

/* ---- writing --------------------------------------------------------------------------------- */

static void put_value(translation *t, const char *rest, json_t *v)
{
    dra_keys_put(t->k, gguf_key(t, rest), v);
}

static void put_int(translation *t, const char *rest, int64_t n)
{
    put_value(t, rest, dra_json_int(&t->k->json, n));
}

static bool is_linear(const dra_model_config *c, int64_t l)
{
    return dra_linear_is(&c->mixer[c->n_pattern ? c->pattern[l] : l % c->mixers]);
}

/* So many heads of keys in layers of attention, else none. */
static void put_counts(translation *t, const dra_model_config *c)
{
    const int64_t n = json_integer_value(json_object_get(t->folder, "num_key_value_heads"));
    json_t       *list = dra_json_array(&t->k->json);
    for (int64_t l = 0; l < c->depth; l++)
        dra_json_append(&t->k->json, list, dra_json_int(&t->k->json, is_linear(c, l) ? 0 : n));
    put_value(t, KV_HEADS, list);
}

/* Every n-th layer is one of attention, or a list says which. */
static void put_layers(translation *t, const dra_model_config *c)
{
    int64_t every = 1;
    bool    regular = true;
    while (every < c->depth && is_linear(c, every - 1)) every++;
    if (is_linear(c, every - 1)) every = c->depth + 1; /* there is none */
    for (int64_t l = 0; l < c->depth; l++)
        regular = regular && is_linear(c, l) == ((l + 1) % every != 0);
    put_int(t, "full_attention_interval", regular ? every : 4);
    if (regular) return;
    json_t *list = dra_json_array(&t->k->json);
    for (int64_t l = 0; l < c->depth; l++)
        dra_json_append(&t->k->json, list, dra_json_int(&t->k->json, is_linear(c, l)));
    put_value(t, "attention.recurrent_layers", list);
}

/* llama.cpp has one width for keys and values. */
static void put_qwen35(translation *t, const dra_model_config *c)
{
    static const int        sections[] = {11, 11, 10, 0}; /* of text all turn alike */
    const dra_mixer_config *m = dra_gguf_find_linear(c), *turns = NULL;
    const int64_t           D = c->key_dim ? c->key_dim : c->dim / c->heads;
    json_t                 *list = dra_json_array(&t->k->json);
    for (int i = 0; i < c->mixers && !turns; i++)
        if (c->mixer[i].rotary) turns = &c->mixer[i];
    if (m->key_dim != m->value_dim && t->k->status == DRA_OK)
        t->k->status = dra_fail_at(t->k->err, DRA_ERR_VALUE, t->k->place,
                                   "keys of %lld and values of %lld channels have no GGUF form, "
                                   "which has one width for both",
                                   (long long)m->key_dim, (long long)m->value_dim);
    put_layers(t, c);
    put_int(t, "attention.value_length", D);
    put_int(t, "ssm.inner_size", m->heads * m->value_dim);
    put_int(t, "rope.dimension_count", turns && turns->turn.width ? turns->turn.width : D);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        dra_json_append(&t->k->json, list, dra_json_int(&t->k->json, sections[i]));
    put_value(t, "rope.dimension_sections", list);
}

static void put_granite(translation *t, const dra_model_config *c)
{
    const dra_mixer_config *m = dra_gguf_find_linear(c);
    bool                    turns = false;
    for (int i = 0; i < c->mixers; i++) turns = turns || c->mixer[i].rotary;
    put_int(t, "ssm.inner_size", m->heads * m->value_dim);
    put_value(t, "rope.scaling.finetuned", dra_json_bool(turns));
    if (!m->conv.bias) dra_keys_put(t->k, CONV_BIAS, dra_json_bool(false));
}

/* Numbers that mean nothing here have to be there all the same. */
static void put_mamba2(translation *t, const dra_model_config *c)
{
    const dra_mixer_config *m = dra_gguf_find_linear(c);
    put_int(t, "ssm.inner_size", m->heads * m->value_dim);
    put_int(t, "attention.head_count", 0);
    put_int(t, "feed_forward_length", 0);
    if (!m->conv.bias && t->k->status == DRA_OK)
        t->k->status = dra_fail_at(t->k->err, DRA_ERR_VALUE, t->k->place,
                                   "a convolution without biases (conv_bias) has no GGUF form");
}

void dra_gguf_write_recurrent(dra_keys *k, const dra_model_config *c)
{
    translation t = {.k = k, .f = dra_gguf_family_of(c), .folder = dra_json_object(&k->json)};
    dra_keys    inner = {.format = t.f->as, .place = k->place, .object = t.folder, .err = k->err};
    t.f->as->write(&inner, c);
    k->status = inner.status;
    if (k->status == DRA_OK) k->status = dra_json_check(&inner.json, k->place, k->err);
    const json_t *rope = json_object_get(t.folder, "rope_parameters");
    for (const dra_gguf_pair *p = t.f->pairs; p->rest; p++) {
        const json_t *v = json_object_get(t.folder, p->key);
        if (!v) v = json_object_get(rope, p->key);
        if (json_is_number(v)) put_value(&t, p->rest, json_incref((json_t *)(uintptr_t)v));
    }
    put_int(&t, "context_length", c->context); /* of some a folder does not say it */
    put_int(&t, "vocab_size", c->vocab);
    if (t.f->counts) put_counts(&t, c);
    if (t.f == &qwen35) put_qwen35(&t, c);
    if (t.f == &granite) put_granite(&t, c);
    if (t.f == &mamba2) put_mamba2(&t, c);
    json_decref(t.folder);
}
