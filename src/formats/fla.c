/* Delta rules as flash-linear-attention has them, the gated one and the plain one: layers of it,
 * or of attention where `attn` says so, and gated feed-forwards.
 * [https://github.com/fla-org/flash-linear-attention, fla/models/gated_deltanet, delta_net] */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "formats/gated_delta.h"
#include "formats/rule_list.h"

typedef struct fla_kind {
    int64_t heads, depth;
    bool    gated; /* decays, and widths by head_dim; else widths are shares of the model's */
} fla_kind;

/* What is read has just one value. */
static void expect_text(dra_keys *k, const char *key, const char *only, const char *also)
{
    const char *is = dra_keys_text(k, key, only);
    if (strcmp(is, only) != 0 && strcmp(is, also) != 0) dra_keys_refuse(k, key, only);
}

static void expect_bool(dra_keys *k, const char *key, bool only)
{
    if (dra_keys_bool(k, key, only) != only) dra_keys_refuse(k, key, only ? "true" : "false");
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Of feed-forwards: two thirds of `hidden_ratio` times the model's, rounded up to 256. */
static int64_t read_inner(dra_keys *k, int64_t dim)
{
    const double  ratio = dra_keys_number(k, "hidden_ratio", 1e3, 4);
    const int64_t n = (int64_t)((double)dim * ratio * 2 / 3);
    return dra_keys_int(k, "intermediate_size", NULL, (n + 255) / 256 * 256);
}

static dra_value_gate read_gate(dra_keys *k, bool gated)
{
    static const char key[] = "output_gate_activation";
    const char       *act = dra_keys_text(k, key, "swish");
    const bool        swish = strcmp(act, "swish") == 0 || strcmp(act, "silu") == 0;
    if (!dra_keys_bool(k, "use_gate", gated)) return DRA_GATE_NONE;
    if (!swish && strcmp(act, "sigmoid") != 0) dra_keys_refuse(k, key, "swish, silu or sigmoid");
    return swish ? DRA_GATE_SILU : DRA_GATE_PLAIN;
}

static void read_widths(dra_keys *k, const fla_kind *f, const dra_model_config *c,
                        dra_mixer_config *m)
{
    const int64_t H = dra_keys_int(k, "num_heads", NULL, f->heads);
    const int64_t Hv = f->gated ? dra_keys_int(k, "num_v_heads", NULL, H) : H;
    const double  wide = dra_keys_number(k, "expand_v", 1e3, f->gated ? 2 : 1);
    if (H < 1) dra_keys_refuse(k, "num_heads", "1 or more");
    if (Hv < 1 || H < 1 || Hv % H) dra_keys_refuse(k, "num_v_heads", "a multiple of num_heads");
    if (k->status != DRA_OK) return;
    m->heads = Hv;
    m->key_heads = Hv == H ? 0 : H;
    m->key_dim = f->gated ? dra_keys_int(k, "head_dim", NULL, 256)
                          : llround((double)c->dim * dra_keys_number(k, "expand_k", 1e3, 1)) / H;
    m->value_dim = f->gated ? llround((double)m->key_dim * wide)
                            : llround((double)c->dim * wide) / H;
}

static void read_delta(dra_keys *k, const fla_kind *f, const dra_model_config *c,
                       dra_mixer_config *m)
{
    *m = (dra_mixer_config){.conv.width = dra_keys_int(k, "conv_size", NULL, 4),
                            .gate_values = read_gate(k, f->gated),
                            .out_norm = {DRA_OUT_NORM_BEFORE, .eps = c->norm_eps},
                            .a = {"delta", .delta = {.unit_eps = 1e-6, .scale_queries = true}}};
    read_widths(k, f, c, m);
    if (m->conv.width < 2 || m->conv.width > 8) dra_keys_refuse(k, "conv_size", "2 to 8");
    if (dra_keys_bool(k, "allow_neg_eigval", false)) m->a.delta.strength = 2;
    if (f->gated) {
        m->a.lambda.decay = DRA_DECAY_DATA;
        m->a.lambda.decay_form = DRA_FORM_SOFTPLUS;
    }
}

/* Layers of attention, as an object describes them. */
static void read_attention(dra_keys *k, dra_model_config *c, dra_mixer_config *m)
{
    dra_keys own = *k;
    own.object = json_object_get(k->object, "attn");
    c->heads = dra_keys_int(&own, "num_heads", NULL, 0);
    if (c->heads < 1 || c->dim % c->heads)
        dra_keys_refuse(&own, "num_heads", "a divisor of hidden_size");
    *m = (dra_mixer_config){.rotary = true, .turn = {.halves = true}};
    m->turn.base = dra_keys_number(&own, "rope_theta", 1e12, 1e4);
    m->kv_heads = dra_keys_int(&own, "num_kv_heads", NULL, c->heads);
    if (m->kv_heads < 1 || (c->heads > 0 && c->heads % m->kv_heads))
        dra_keys_refuse(&own, "num_kv_heads", "a divisor of num_heads");
    if (m->kv_heads == c->heads) m->kv_heads = 0;
    if (dra_keys_bool(&own, "qkv_bias", false)) m->biases = DRA_BIAS_QKV;
    expect_bool(&own, "qk_norm", false);
    m->a.window = dra_keys_int(&own, "window_size", NULL, 0);
    if (m->a.window > 0) m->a.retrieval = "window";
    k->status = own.status;
}

static bool lists_layer(const json_t *list, int64_t l)
{
    size_t        i;
    const json_t *v;
    json_array_foreach(list, i,
                       v) if (json_is_integer(v) && json_integer_value(v) == l) return true;
    return false;
}

static void read_fla(dra_keys *k, dra_model_config *c)
{
    const fla_kind  *f = k->format->family;
    const json_t    *attn = json_object_get(k->object, "attn");
    dra_mixer_config mixer[2];
    int64_t          pattern[DRA_SUBLAYERS_MOST];
    c->vocab = dra_keys_int(k, "vocab_size", NULL, 32000);
    c->dim = dra_keys_int(k, "hidden_size", NULL, 2048);
    c->depth = dra_keys_int(k, "num_hidden_layers", NULL, f->depth);
    c->context = dra_keys_int(k, "max_position_embeddings", NULL, 2048);
    c->norm_eps = dra_keys_real(k, "norm_eps", 1e-6);
    c->ff.dim = read_inner(k, c->dim);
    c->ff.kind = DRA_FF_SWIGLU;
    c->tied = dra_keys_bool(k, "tie_word_embeddings", false) ? DRA_ON : DRA_OFF;
    expect_text(k, "hidden_act", "swish", "silu");
    expect_bool(k, "use_short_conv", true);
    if (json_is_number(json_object_get(k->object, "attnres_block_size")))
        dra_keys_refuse(k, "attnres_block_size", "null");
    if (!f->gated) {
        expect_text(k, "qk_activation", "silu", "silu");
        expect_text(k, "qk_norm", "l2", "l2");
        expect_bool(k, "use_beta", true);
    }
    read_delta(k, f, c, &mixer[0]);
    c->heads = mixer[0].heads;
    if (attn && !json_is_null(attn) && !json_is_object(attn))
        dra_keys_refuse(k, "attn", "null or one object");
    const bool both = json_is_object(attn) && k->status == DRA_OK;
    if (both) read_attention(k, c, &mixer[1]);
    if (both && c->depth > DRA_SUBLAYERS_MOST)
        dra_keys_refuse(k, "num_hidden_layers", "256 or fewer, where layers differ");
    if (k->status != DRA_OK) return;
    dra_mixer_config *m = dra_keys_mixers(k, c, both ? 2 : 1);
    if (m) memcpy(m, mixer, (both ? 2 : 1) * sizeof *m);
    for (int64_t l = 0; both && l < c->depth; l++)
        pattern[l] = lists_layer(json_object_get(attn, "layers"), l);
    if (m && both) dra_keys_pattern(k, c, (int)c->depth, pattern);
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

static const dra_mixer_config *find_mixer(const dra_model_config *c, bool linear)
{
    for (int i = 0; i < c->mixers; i++)
        if (dra_linear_is(&c->mixer[i]) == linear) return &c->mixer[i];
    return NULL;
}

static void put_attention(dra_keys *k, const dra_model_config *c, const dra_mixer_config *m)
{
    dra_keys own = *k;
    json_t  *layers = dra_json_array(&k->json);
    for (int64_t l = 0; l < c->depth; l++)
        if (&c->mixer[c->n_pattern ? c->pattern[l] : l % c->mixers] == m)
            dra_json_append(&k->json, layers, dra_json_int(&k->json, l));
    if (!json_is_object(json_object_get(k->object, "attn")))
        dra_keys_put(k, "attn", dra_json_object(&k->json));
    own.object = json_object_get(k->object, "attn");
    own.json = k->json;
    dra_keys_put(&own, "layers", layers);
    put_int(&own, "num_heads", c->heads);
    put_int(&own, "num_kv_heads", m->kv_heads ? m->kv_heads : c->heads);
    put_real(&own, "rope_theta", m->turn.base > 0 ? m->turn.base : 1e4);
    dra_keys_put(&own, "qkv_bias", dra_json_bool(m->biases == DRA_BIAS_QKV));
    dra_keys_put(&own, "window_size",
                 m->a.window ? dra_json_int(&own.json, m->a.window) : json_null());
    k->json = own.json;
}

static void put_delta(dra_keys *k, const fla_kind *f, const dra_model_config *c,
                      const dra_mixer_config *m)
{
    const int64_t H = m->key_heads ? m->key_heads : m->heads;
    put_int(k, "num_heads", H);
    if (f->gated) {
        put_int(k, "num_v_heads", m->heads);
        put_int(k, "head_dim", m->key_dim);
        put_real(k, "expand_v", (double)m->value_dim / (double)m->key_dim);
    } else {
        put_real(k, "expand_k", (double)(m->key_dim * H) / (double)c->dim);
        put_real(k, "expand_v", (double)(m->value_dim * H) / (double)c->dim);
    }
    put_int(k, "conv_size", m->conv.width);
    dra_keys_put(k, "use_gate", dra_json_bool(m->gate_values != DRA_GATE_NONE));
    if (m->gate_values == DRA_GATE_PLAIN)
        dra_keys_put(k, "output_gate_activation", dra_json_text(&k->json, "sigmoid"));
    dra_keys_put(k, "allow_neg_eigval", dra_json_bool(m->a.delta.strength > 0));
}

static void write_fla(dra_keys *k, const dra_model_config *c)
{
    const fla_kind         *f = k->format->family;
    const dra_mixer_config *m = find_mixer(c, true), *attention = find_mixer(c, false);
    put_int(k, "vocab_size", c->vocab);
    put_int(k, "hidden_size", c->dim);
    put_int(k, "num_hidden_layers", c->depth);
    put_int(k, "max_position_embeddings", c->context);
    put_int(k, "intermediate_size", c->ff.dim);
    put_real(k, "norm_eps", c->norm_eps);
    dra_keys_put(k, "tie_word_embeddings", dra_json_bool(c->tied == DRA_ON));
    if (m) put_delta(k, f, c, m);
    if (attention) put_attention(k, c, attention);
    if (!attention) dra_json_delete(k->object, "attn");
}

/* ---- tensors --------------------------------------------------------------------------------- */

static dra_status make_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    static const char *const rules[][2] = {
        {"embedding", "embeddings.weight"},
        {"layers.*.mixer.norm_g", "layers.*.attn_norm.weight"},
        {"layers.*.mixer.W_q", "layers.*.attn.q_proj.weight"},
        {"layers.*.mixer.W_k", "layers.*.attn.k_proj.weight"},
        {"layers.*.mixer.W_v", "layers.*.attn.v_proj.weight"},
        {"layers.*.mixer.W_o", "layers.*.attn.o_proj.weight"},
        {"layers.*.mixer.b_q", "layers.*.attn.q_proj.bias"},
        {"layers.*.mixer.b_k", "layers.*.attn.k_proj.bias"},
        {"layers.*.mixer.b_v", "layers.*.attn.v_proj.bias"},
        {"layers.*.mixer.W_g", "layers.*.attn.g_proj.weight"},
        {"layers.*.mixer.W_b", "layers.*.attn.b_proj.weight"},
        {"layers.*.mixer.W_decay", "layers.*.attn.a_proj.weight"},
        {"layers.*.mixer.A_log", "layers.*.attn.A_log"},
        {"layers.*.mixer.dt_bias", "layers.*.attn.dt_bias"},
        {"layers.*.mixer.gain_out", "layers.*.attn.o_norm.weight"},
        {"layers.*.ff.norm_g", "layers.*.mlp_norm.weight"},
        {"layers.*.ff.W_gate", "layers.*.mlp.gate_proj.weight"},
        {"layers.*.ff.W_up", "layers.*.mlp.up_proj.weight"},
        {"layers.*.ff.W_down", "layers.*.mlp.down_proj.weight"},
        {"norm_g", "norm.weight"},
        {"head", "lm_head.weight"}};
    static const char *const convs[][2] = {
        {"layers.*.mixer.conv_q", "layers.*.attn.q_conv1d.weight"},
        {"layers.*.mixer.conv_k", "layers.*.attn.k_conv1d.weight"},
        {"layers.*.mixer.conv_v", "layers.*.attn.v_conv1d.weight"}};
    const dra_mixer_config *m = find_mixer(c, true);
    dra_rule_list           list;
    const dra_status        st = dra_rules_open(out, &list, err);
    for (size_t i = 0; i < sizeof rules / sizeof *rules && st == DRA_OK; i++)
        dra_rules_add(&list, rules[i][0], rules[i][1]);
    for (int i = 0; i < 3 && m && st == DRA_OK; i++)
        dra_rules_add(&list, convs[i][0], convs[i][1])->shape = DRA_SHAPE(
            i == 2 ? m->heads * m->value_dim
                   : (m->key_heads ? m->key_heads : m->heads) * m->key_dim,
            1, m->conv.width);
    return st;
}

#define FORMAT(symbol, type, class, ...)                                                           \
    const dra_format dra_format_##symbol = {.name = type,                                          \
                                            .prefix = "model.",                                    \
                                            .head = "lm_head.weight",                              \
                                            .make_rules = make_rules,                              \
                                            .class_name = class,                                   \
                                            .read = read_fla,                                      \
                                            .write = write_fla,                                    \
                                            .family = &(const fla_kind){__VA_ARGS__}}

FORMAT(gated_deltanet, "gated_deltanet", "GatedDeltaNetForCausalLM", 6, 21, true);
FORMAT(delta_net, "delta_net", "DeltaNetForCausalLM", 16, 24, false);
