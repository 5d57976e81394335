/* What options of x-transformers mean as a config of dra, and backwards. F01 to F80 are the
 * features of docs/x-transformers.md. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"
#include "model/owned.h"
#include "formats/xt/xt.h"

enum {
    DIM_HEAD = 64,
    BUCKETS = 32,
    MAX_DISTANCE = 128,
    POSITION_LAYERS = 2,
    XPOS_BASE = 512,
    CONDITION_EXPANSION = 4,
    COPE_MAX = 16,
    SELECTIVE = 4096, /* items of a stack by itself, which says no max_seq_len */
    SOFTMAXES = 4
};
static const double qk_scale = 10, logit_cap = 50, output_cap = 30, laser_cap = 15;

static double value_or(double said, double otherwise) { return said > 0 ? said : otherwise; }

static void drop_default(int64_t *field, int64_t value)
{
    if (*field == value) *field = 0;
}

/* ---- what follows from a config -------------------------------------------------------------- */

dra_xt_sizes dra_xt_mixer_sizes(const dra_model_config *c, const dra_mixer_config *m)
{
    const int64_t H = m->heads ? m->heads : c->heads, own = m->key_dim;
    const int64_t d = own ? own : c->key_dim ? c->key_dim : H > 0 ? c->dim / H : 0;
    return (dra_xt_sizes){H, m->kv_heads ? m->kv_heads : H, d};
}

dra_xt_sizes dra_xt_sizes_of(const dra_model_config *c)
{
    return dra_xt_mixer_sizes(c, &c->mixer[0]);
}

int64_t dra_xt_rotary(const dra_model_config *c)
{
    const dra_position_config *p = &c->position;
    if (p->rotate == DRA_ROTATE_NONE) return 0;
    return p->turn.width ? p->turn.width : dra_xt_sizes_of(c).d;
}

void dra_xt_join(dra_xt *x)
{
    x->c.mixers = 1;
    x->c.mixer = &x->mixer;
    x->c.cross = &x->cross;
    if (!x->c.layout) x->c.layout = "";
    if (!x->custom_layers) x->custom_layers = "";
}

/* ---- the wrapper (F16 to F20) ---------------------------------------------------------------- */

/* Rotations and T5's bias take the place of the table; ALiBi and the dynamic bias do not (F17). */
static bool replaces_table(const dra_position_config *p)
{
    return p->rotate != DRA_ROTATE_NONE || p->distance == DRA_DISTANCE_T5;
}

/* One row of logits for a text: of its mean, or of a learned token before it. */
static void settle_pool(dra_xt *x)
{
    dra_head_config *h = &x->c.head;
    if (!x->average_pool_embed && !x->use_cls_token) return;
    h->kind = DRA_HEAD_CLASSES;
    h->dim = x->logits_dim ? x->logits_dim : x->c.vocab;
    h->pool = x->use_cls_token ? DRA_POOL_CLS : DRA_POOL_MEAN;
    h->no_bias = true;
}

static void tell_pool(dra_xt *x)
{
    const dra_head_config *h = &x->c.head;
    if (x->wrapper != DRA_XT_TOKENS || h->kind != DRA_HEAD_CLASSES) return;
    x->average_pool_embed = h->pool == DRA_POOL_MEAN;
    x->use_cls_token = h->pool == DRA_POOL_CLS;
    x->logits_dim = h->dim == x->c.vocab ? 0 : h->dim;
}

/* What a stack reads and what is made of it (F06, F10, F11, F14). */
static void settle_ends(dra_xt *x)
{
    dra_model_config *c = &x->c;
    switch ((dra_xt_wrapper)x->wrapper) {
    case DRA_XT_CONTINUOUS:
        c->source.kind = DRA_SOURCE_VECTORS;
        c->head.kind = DRA_HEAD_VECTORS;
        break;
    case DRA_XT_XVAL:
        c->source.numbers = c->head.numbers = true;
        c->head.bias = !x->tie_embedding;
        break;
    case DRA_XT_IMAGE:
        c->source.kind = DRA_SOURCE_IMAGE;
        c->head.kind = DRA_HEAD_CLASSES;
        c->context = (c->source.size / c->source.patch) * (c->source.size / c->source.patch);
        break;
    case DRA_XT_DECODER:
    case DRA_XT_ENCODER:
    case DRA_XT_CROSS:
        c->source.kind = DRA_SOURCE_VECTORS;
        c->head.kind = DRA_HEAD_NONE;
        x->use_abs_pos_emb = DRA_OFF;
        break;
    default: settle_pool(x); break;
    }
}

static void settle_wrapper(dra_xt *x)
{
    dra_model_config *c = &x->c;
    const bool        image = x->wrapper == DRA_XT_IMAGE; /* its table is there in any case */
    const bool        without = x->disable_abs_pos_emb ? x->disable_abs_pos_emb == DRA_ON
                                                       : replaces_table(&c->position);
    const int64_t     width = x->emb_dim ? x->emb_dim : c->dim;
    c->embed_dim = width == c->dim ? 0 : width;
    c->embed_norm = x->post_emb_norm;
    c->embed_norm_kind = x->post_emb_norm ? DRA_EMBED_NORM_LAYER : DRA_EMBED_NORM_SAME;
    c->tied = x->tie_embedding ? DRA_ON : DRA_OFF;
    if (!x->mixture_of_softmax) c->head.mixture = 0;
    if (x->mixture_of_softmax && !c->head.mixture) c->head.mixture = SOFTMAXES;
    if (!image && (x->use_abs_pos_emb == DRA_OFF || without)) return;
    c->positions = DRA_POSITIONS_LEARNED;
    if (!c->embed_unit && !image) c->position.scale = 1 / sqrt((double)width);
}

static void tell_wrapper(dra_xt *x)
{
    const dra_model_config *c = &x->c;
    const bool              table = c->positions == DRA_POSITIONS_LEARNED;
    x->emb_dim = c->embed_dim == c->dim ? 0 : c->embed_dim;
    x->post_emb_norm = c->embed_norm;
    x->tie_embedding = c->tied != DRA_OFF;
    x->mixture_of_softmax = c->head.mixture > 0;
    x->recycling = c->recycle > 1;
    drop_default(&x->c.head.mixture, SOFTMAXES);
    tell_pool(x);
    if (c->source.kind == DRA_SOURCE_IMAGE) {
        if (x->c.source.channels == 3) x->c.source.channels = 0;
        return;
    }
    if (table && replaces_table(&c->position)) x->disable_abs_pos_emb = DRA_OFF;
    if (!table && !replaces_table(&c->position)) x->use_abs_pos_emb = DRA_OFF;
}

/* ---- norms (F21 to F24) ---------------------------------------------------------------------- */

static void settle_norm(dra_xt *x)
{
    dra_model_config *c = &x->c;
    const bool        unit = x->use_scalenorm || x->use_rmsnorm || x->use_simple_rmsnorm ||
                      x->use_adaptive_rmsnorm;
    const bool adapts = x->use_adaptive_layernorm || x->use_adaptive_rmsnorm;
    c->norm = x->use_dynamic_tanh ? DRA_NORM_TANH : unit ? DRA_NORM_UNIT : DRA_NORM_LAYER;
    c->norm_gain = adapts                  ? DRA_GAIN_CONDITION
                   : x->use_scalenorm      ? DRA_GAIN_SCALAR
                   : x->use_simple_rmsnorm ? DRA_GAIN_NONE
                                           : DRA_GAIN_CHANNEL;
    c->norm_bias = unit || x->use_dynamic_tanh ? DRA_DEFAULT : DRA_OFF;
    if (!x->use_dynamic_tanh || c->norm_alpha == 1) c->norm_alpha = 0;
    c->norm_offset = x->norm_add_unit_offset != DRA_OFF && !x->use_simple_rmsnorm && !adapts;
}

static void tell_norm(dra_xt *x)
{
    const dra_model_config *c = &x->c;
    const bool              unit = c->norm == DRA_NORM_UNIT;
    x->use_dynamic_tanh = c->norm == DRA_NORM_TANH;
    x->use_scalenorm = unit && c->norm_gain == DRA_GAIN_SCALAR;
    x->use_rmsnorm = unit && c->norm_gain == DRA_GAIN_CHANNEL;
    x->use_simple_rmsnorm = unit && c->norm_gain == DRA_GAIN_NONE;
    const bool adapts = c->norm_gain == DRA_GAIN_CONDITION;
    x->use_adaptive_rmsnorm = unit && adapts;
    x->use_adaptive_layernorm = !unit && adapts;
    if (!c->norm_offset && !x->use_simple_rmsnorm && !adapts) x->norm_add_unit_offset = DRA_OFF;
}

/* ---- feed-forwards (F25 to F30) -------------------------------------------------------------- */

static void settle_ff(dra_xt *x)
{
    dra_ff_config *f = &x->c.ff;
    f->kind = x->ff_relu_squared ? DRA_FF_RELU2 : x->ff_swish ? DRA_FF_SILU : DRA_FF_ERF;
    f->bias = !x->ff_no_bias ? DRA_FF_BIAS_ALL : f->gated ? DRA_FF_BIAS_IN : DRA_FF_BIAS_NO;
    f->dim = (int64_t)((double)x->c.dim * x->ff_mult); /* 0: four times dim, too */
}

/* The multiple with the fewest digits of which that many whole channels are left. */
static double width_multiple(int64_t inner, int64_t dim)
{
    const double exact = (double)inner / (double)dim;
    for (double unit = 1; unit < 1e15; unit *= 10) {
        const double m = ceil(exact * unit) / unit;
        if ((int64_t)((double)dim * m) == inner) return m;
    }
    return nextafter(exact, INFINITY);
}

static void tell_ff(dra_xt *x)
{
    const dra_ff_config *f = &x->c.ff;
    x->ff_relu_squared = f->kind == DRA_FF_RELU2;
    x->ff_swish = f->kind == DRA_FF_SILU;
    x->ff_no_bias = f->bias == DRA_FF_BIAS_IN || f->bias == DRA_FF_BIAS_NO;
    if (f->dim && x->c.dim > 0 && f->dim != 4 * x->c.dim)
        x->ff_mult = width_multiple(f->dim, x->c.dim);
}

/* ---- attention (F33 to F47) ------------------------------------------------------------------ */

static void settle_qk_norm(dra_xt *x, dra_mixer_config *m)
{
    const bool newer = x->c.xt.release == DRA_XT_N && x->attn_qk_norm_dim_scale;
    if (!m->qk_norm || m->qk_groups == 1) m->qk_groups = 0;
    if (!m->qk_norm) return;
    m->qkv_norm = DRA_QKV_UNIT;
    m->qkv_gain = x->attn_qk_norm_dim_scale ? DRA_QKV_HEADS : DRA_QKV_NONE;
    if (newer) /* the product of both gains starts at sqrt(d), which 1 / sqrt(d) undoes */
        m->qk_gain_start = pow((double)x->attn_dim_head, 0.25);
    else
        m->score_scale = value_or(x->attn_qk_norm_scale, qk_scale);
    m->attention.mem_whole = x->c.xt.release == DRA_XT_E && m->attention.mem_kv && m->qk_groups;
}

void dra_xt_settle_attention(dra_xt *x)
{
    dra_mixer_config *m = &x->mixer;
    x->c.key_dim = x->c.value_dim = x->attn_dim_head;
    if (x->attn_one_kv_head) m->kv_heads = 1;
    if (m->kv_heads == x->c.heads) m->kv_heads = 0;
    if (m->kv_heads) m->kv_order = DRA_HEADS_MOD;
    if (x->attn_gate_values)
        m->gate_values = x->attn_swiglu_values         ? DRA_GATE_SILU_BIASED
                         : x->c.xt.release == DRA_XT_E ? DRA_GATE_BIASED
                                                       : DRA_GATE_PLAIN;
    m->attention.softcap_late = x->attn_softclamp_logits;
    if (x->attn_softclamp_logits)
        m->attention.softcap = value_or(x->attn_logit_softclamp_value, logit_cap);
    if (x->attn_max_attend_past) { /* of the past: a token sees itself, too */
        m->a.retrieval = "window";
        m->a.window = x->attn_max_attend_past + 1;
    }
    m->gate.linear = x->attn_low_rank_silu_gates == DRA_OFF;
    if (x->attn_selective) m->attention.selective = x->c.context ? x->c.context : SELECTIVE;
    if (!x->attn_use_cope) m->attention.cope = 0;
    if (x->attn_use_cope && !m->attention.cope) m->attention.cope = COPE_MAX;
    if (!m->attention.laser || m->attention.laser_cap == laser_cap) m->attention.laser_cap = 0;
    settle_qk_norm(x, m);
}

/* Options that a release gives another meaning say which it is. */
static dra_xt_release release_of(const dra_mixer_config *m, dra_xt_release said)
{
    const bool gains = m->qk_norm && m->qkv_gain == DRA_QKV_HEADS;
    const bool groups = m->qk_norm && m->attention.mem_kv && m->qk_groups > 1;
    if (m->attention.sink || m->gate.output || m->gate_values == DRA_GATE_PLAIN ||
        (gains && m->qk_gain_start > 0) || (groups && !m->attention.mem_whole))
        return DRA_XT_N;
    const bool biased = m->gate_values == DRA_GATE_BIASED || m->gate_values == DRA_GATE_SILU_BIASED;
    return biased || gains || groups ? DRA_XT_E : said;
}

void dra_xt_tell_attention(dra_xt *x)
{
    dra_mixer_config  *m = &x->mixer;
    const dra_xt_sizes s = dra_xt_sizes_of(&x->c);
    x->c.xt.release = release_of(m, x->c.xt.release);
    x->c.heads = s.H;
    x->attn_dim_head = s.d == DIM_HEAD ? 0 : s.d;
    x->attn_gate_values = m->gate_values != DRA_GATE_NONE;
    x->attn_swiglu_values = m->gate_values == DRA_GATE_SILU_BIASED;
    x->attn_one_kv_head = s.K == 1 && s.H > 1;
    if (s.K == s.H || s.K == 1) m->kv_heads = 0;
    if (m->qk_groups == 1) m->qk_groups = 0;
    x->attn_qk_norm_dim_scale = m->qk_norm && m->qkv_gain == DRA_QKV_HEADS;
    if (m->qk_norm && m->score_scale != qk_scale) x->attn_qk_norm_scale = m->score_scale;
    x->attn_softclamp_logits = m->attention.softcap > 0;
    if (m->attention.softcap > 0 && m->attention.softcap != logit_cap)
        x->attn_logit_softclamp_value = m->attention.softcap;
    x->attn_max_attend_past = m->a.window > 1 ? m->a.window - 1 : 0;
    if (m->gate.linear) x->attn_low_rank_silu_gates = DRA_OFF;
    x->attn_selective = m->attention.selective > 0;
    x->attn_use_cope = m->attention.cope > 0;
    if (m->attention.cope == COPE_MAX) m->attention.cope = 0;
    x->attn_use_latent_kv = m->latent.kv > 0;
    x->attn_use_latent_q = m->latent.q > 0;
}

/* ---- positions (F49 to F57) ------------------------------------------------------------------ */

static void settle_rotation(dra_xt *x)
{
    dra_position_config *p = &x->c.position;
    const int64_t        r = x->rotary_emb_dim ? x->rotary_emb_dim : x->attn_dim_head / 2;
    p->rotate = x->rotary_xpos      ? DRA_ROTATE_XPOS
                : x->rotary_pos_emb ? DRA_ROTATE_ROTARY
                                    : DRA_ROTATE_NONE;
    if (p->rotate != DRA_ROTATE_XPOS) p->turn.xpos_base = 0;
    if (p->rotate == DRA_ROTATE_NONE || p->heads == x->c.heads) p->heads = 0;
    if (p->rotate == DRA_ROTATE_NONE || p->turn.stretch == 1) p->turn.stretch = 0;
    if (p->rotate == DRA_ROTATE_NONE) return;
    p->turn.width = r;
}

/* What is said as it is by default, or was filled in. */
static void drop_usual_positions(dra_position_config *p)
{
    drop_default(&p->t5.buckets, BUCKETS);
    drop_default(&p->t5.max_distance, MAX_DISTANCE);
    drop_default(&p->dynamic.layers, POSITION_LAYERS);
    if (p->turn.xpos_base == XPOS_BASE) p->turn.xpos_base = 0;
}

static void settle_positions(dra_xt *x)
{
    dra_position_config *p = &x->c.position;
    settle_rotation(x);
    p->distance = x->rel_pos_bias       ? DRA_DISTANCE_T5
                  : x->dynamic_pos_bias ? DRA_DISTANCE_DYNAMIC
                  : x->alibi_pos_bias   ? DRA_DISTANCE_ALIBI
                                        : DRA_DISTANCE_NONE;
    if (x->rel_pos_bias)
        p->t5.scale = sqrt((double)x->attn_dim_head);
    else
        p->t5.buckets = p->t5.max_distance = 0; /* defaults that were said */
    if (!x->dynamic_pos_bias) p->dynamic.layers = 0;
    if (!x->alibi_pos_bias || p->alibi.slopes == x->c.heads) p->alibi.slopes = 0;
    drop_usual_positions(p);
}

static void tell_positions(dra_xt *x)
{
    dra_position_config *p = &x->c.position;
    const dra_xt_sizes   s = dra_xt_sizes_of(&x->c);
    const int64_t        r = dra_xt_rotary(&x->c);
    x->rel_pos_bias = p->distance == DRA_DISTANCE_T5;
    x->dynamic_pos_bias = p->distance == DRA_DISTANCE_DYNAMIC;
    x->alibi_pos_bias = p->distance == DRA_DISTANCE_ALIBI;
    x->rotary_pos_emb = p->rotate == DRA_ROTATE_ROTARY;
    x->rotary_xpos = p->rotate == DRA_ROTATE_XPOS;
    x->rotary_emb_dim = r == s.d / 2 ? 0 : r;
    drop_default(&p->heads, s.H);
    drop_default(&p->alibi.slopes, s.H);
    drop_usual_positions(p);
}

/* ---- layout and residuals (F58 to F67, F72) -------------------------------------------------- */

/* One block, in the order of sublayers (F08, F10, F61). */
static const char *block_of(const dra_xt *x)
{
    if (x->only_cross) return x->macaron ? "fcf" : "cf";
    if (x->cross_attend) return x->macaron ? "facf" : "acf";
    return x->macaron ? "faf" : "af";
}

static void settle_layout(dra_xt *x)
{
    dra_model_config *c = &x->c;
    const bool        usual = !x->custom_layers[0] && !x->macaron && !x->only_cross;
    const char       *block = x->custom_layers[0] ? x->custom_layers : usual ? "" : block_of(x);
    c->layout = block;
    if (x->custom_layers[0]) c->depth = 1;
    c->block.macaron = x->macaron;
    c->block.norm = x->resi_dual             ? DRA_PLACE_DUAL
                    : x->pre_norm == DRA_OFF ? DRA_PLACE_POST
                                             : DRA_PLACE_PRE;
    if (!x->resi_dual || c->block.dual_scale == 1) c->block.dual_scale = 0;
    if (c->block.residual_factor == 1) c->block.residual_factor = 0;
    c->block.residual = x->gate_residual ? DRA_JOIN_GRU : DRA_JOIN_ADD;
    if (x->integrate_layers)
        c->block.integrate = x->layer_integrate_use_softmax == DRA_OFF ? DRA_INTEGRATE_RELU
                                                                       : DRA_INTEGRATE_SOFTMAX;
    if (x->n_shifts == 1) c->block.shift = x->shift_tokens[0];
    if (x->n_drops == 1) c->block.drop = x->layer_dropout[0];
    c->n_shifts = x->n_shifts > 1 ? x->n_shifts : 0;
    c->n_drops = x->n_drops > 1 ? x->n_drops : 0;
    c->shifts = x->shift_tokens;
    c->drops = x->layer_dropout;
}

static void tell_layout(dra_xt *x)
{
    dra_model_config *c = &x->c;
    x->macaron = c->block.macaron;
    x->cross_attend = c->context_stack != NULL;
    x->only_cross = strcmp(c->layout, x->macaron ? "fcf" : "cf") == 0;
    if (c->layout[0] && strcmp(c->layout, block_of(x)) != 0) {
        x->custom_layers = c->layout;
        c->depth = 0; /* the list says all */
    }
    x->resi_dual = c->block.norm == DRA_PLACE_DUAL;
    x->pre_norm = c->block.norm == DRA_PLACE_POST ? DRA_OFF : DRA_DEFAULT;
    x->integrate_layers = c->block.integrate != DRA_INTEGRATE_NONE;
    if (c->block.integrate == DRA_INTEGRATE_RELU) x->layer_integrate_use_softmax = DRA_OFF;
    if (c->block.post_norm) c->xt.release = DRA_XT_N;
    if (c->block.dual_scale == 1) c->block.dual_scale = 0;
    x->gate_residual = c->block.residual == DRA_JOIN_GRU;
    x->n_shifts = c->n_shifts ? c->n_shifts : c->block.shift > 0;
    x->n_drops = c->n_drops ? c->n_drops : c->block.drop > 0;
    x->shift_tokens = c->n_shifts ? c->shifts : &c->block.shift;
    x->layer_dropout = c->n_drops ? c->drops : &c->block.drop;
}

/* ---- beyond the README ----------------------------------------------------------------------- */

static void settle_more(dra_xt *x)
{
    dra_mixer_config *m = &x->mixer;
    x->c.block.branch_scale_offset = x->c.block.branch_scale && x->norm_add_unit_offset != DRA_OFF;
    if (x->c.block.streams == 1) x->c.block.streams = 0;
    if (!x->adaptive_condition_mlp)
        x->c.condition.expand = 0;
    else if (!x->c.condition.expand)
        x->c.condition.expand = CONDITION_EXPANSION;
    if (dra_condition_used(&x->c) && !x->c.condition.dim) x->c.condition.dim = x->c.dim;
    if (x->add_value_residual)
        m->value_residual = x->learned_value_residual_mix == DRA_OFF ? DRA_VALUES_HALF
                                                                     : DRA_VALUES_LEARNED;
    if (x->softclamp_output) x->c.output_softcap = value_or(x->softclamp_output_value, output_cap);
}

static void tell_more(dra_xt *x)
{
    const dra_mixer_config *m = &x->mixer;
    if (x->c.block.branch_scale && !x->c.block.branch_scale_offset)
        x->norm_add_unit_offset = DRA_OFF;
    x->adaptive_condition_mlp = x->c.condition.expand > 0;
    drop_default(&x->c.condition.expand, CONDITION_EXPANSION);
    drop_default(&x->c.condition.dim, x->c.dim);
    x->add_value_residual = m->value_residual != DRA_VALUES_OWN;
    if (m->value_residual == DRA_VALUES_HALF) x->learned_value_residual_mix = DRA_OFF;
    x->softclamp_output = x->c.output_softcap > 0;
    if (x->softclamp_output && x->c.output_softcap != output_cap)
        x->softclamp_output_value = x->c.output_softcap;
}

/* ---- the format ------------------------------------------------------------------------------ */

void dra_xt_settle(dra_xt *x)
{
    x->c.init = DRA_INIT_UNIFORM;
    settle_norm(x);
    settle_ff(x);
    dra_xt_settle_attention(x);
    settle_positions(x);
    settle_layout(x);
    settle_ends(x);
    settle_wrapper(x);
    settle_more(x);
}

void dra_xt_tell(dra_xt *x)
{
    const dra_model_config *from = x->c.context_stack;
    x->dim_context = from && from->dim != x->c.dim ? from->dim : 0;
    tell_norm(x);
    tell_ff(x);
    tell_wrapper(x);
    tell_positions(x);
    dra_xt_tell_attention(x);
    if (from) x->c.xt.release = release_of(&x->cross, x->c.xt.release);
    tell_layout(x);
    tell_more(x);
}

static void read_xt(dra_keys *k, dra_model_config *c)
{
    const dra_format_kind format = c->format;
    if (k->status == DRA_OK) k->status = dra_xt_read(k->place, k->object, c, k->err);
    c->format = format;
}

/* Whether two configs are the same in dra's own names; *j fails where there is no memory to see. */
static bool is_same(dra_json *j, const dra_model_config *c, const dra_model_config *other)
{
    json_t *a = dra_model_config_object(c), *b = dra_model_config_object(other);
    if (!a || !b) j->failed = true;
    const bool same = a && b && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

/* Whether `options`, together with those of `more` that it does not say, mean this config. Then
 * they become part of it. more: NULL: nothing. */
static bool means_config(dra_json *j, json_t *options, json_t *more, const dra_model_config *c)
{
    dra_model_config *other = NULL;
    json_t           *all = dra_json_share(j, options);
    if (more) dra_json_update_missing(j, all, more);
    if (j->failed) {
        json_decref(all);
        return false;
    }
    dra_status st = dra_config_new(&other, NULL);
    if (st == DRA_OK) st = dra_format_read(&dra_format_xt, "", all, other, NULL);
    if (st == DRA_ERR_MEMORY) j->failed = true;
    const bool same = st == DRA_OK && other->xt.loss == c->xt.loss &&
                      other->xt.mask_id == c->xt.mask_id && is_same(j, c, other);
    dra_model_config_destroy(other);
    if (same) dra_json_update(j, options, all);
    json_decref(all);
    return same;
}

/* A config that says the same already stays as it is: options may be spelled in several ways. */
static void write_xt(dra_keys *k, const dra_model_config *c)
{
    json_t *type = json_incref(json_object_get(k->object, "model_type"));
    json_t *options = dra_xt_write(&k->json, c);
    if (!means_config(&k->json, k->object, options, c) &&
        !means_config(&k->json, k->object, NULL, c)) {
        json_object_clear(k->object);
        dra_json_set_shared(&k->json, k->object, "model_type", type);
        dra_json_update(&k->json, k->object, options);
    }
    json_decref(type);
    json_decref(options);
}

/* A wrapper for the loss puts "net." in front of all names. */
const dra_format dra_format_xt = {.name = "x-transformers",
                                  .prefix = "",
                                  .head = "to_logits.weight",
                                  .wrapped = "net.",
                                  .make_rules = dra_xt_rules,
                                  .read = read_xt,
                                  .write = write_xt,
                                  .set = dra_xt_set};
