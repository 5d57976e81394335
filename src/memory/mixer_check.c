/* The config of a mixer as a table: which choices are possible, and which go together. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/field_rows.h"
#include "memory/mixer.h"
#include "memory/part.h"
#include "memory/turn.h"

/* ---- the table ------------------------------------------------------------------------------- */

DRA_CHOICES(blends, DRA_BLEND_COUNT, "none", "number", "schedule", "learned");
DRA_CHOICES(head_maps, DRA_HEADS_COUNT, "div", "mod");
DRA_CHOICES(qkv_norms, DRA_QKV_NORM_COUNT, "rms", "layer", "unit");
DRA_CHOICES(qkv_gains, DRA_QKV_GAIN_COUNT, "shared", "heads", "none");
DRA_CHOICES(layer_norms, DRA_LAYER_NORMS_COUNT, "model", "pre", "branch");
DRA_CHOICES(biases, DRA_BIAS_COUNT, "default", "all", "none", "qkv");

/* What acts on a retrieval that has it alone. */
static const dra_field qk_norm_fields[] = {
    BOOL(dra_mixer_config, qk_norm, "normalise queries and keys"), {0}};
const dra_part         dra_qk_norm_part = {0, {qk_norm_fields}};
static const dra_field rotary_fields[] = {
    BOOL(dra_mixer_config, rotary, "rotate queries and items by position"), {0}};
const dra_part         dra_rotary_part = {0, {rotary_fields}};
static const dra_field score_scale_fields[] = {
    REAL(dra_mixer_config, score_scale, 0, 1e6, "1 / sqrt(key_dim)", "factor of all scores"), {0}};
const dra_part dra_score_scale_part = {0, {score_scale_fields}};

#define PART(part, table)                                                                          \
    {                                                                                              \
        .name = "", .kind = DRA_FIELD_INLINE, .offset = offsetof(dra_mixer_config, part),          \
        .fields = table                                                                            \
    }
#define PART_OF_ALL(table)                                                                         \
    {                                                                                              \
        .name = "", .kind = DRA_FIELD_INLINE, .fields = table                                      \
    }

const dra_field dra_mixer_fields[] = {
    INT(dra_mixer_config, heads, "the model's", "heads of this mixer"),
    INT(dra_mixer_config, key_dim, "dim / heads", "width of a head's queries and keys"),
    INT(dra_mixer_config, value_dim, "key_dim", "width of a head's values"),
    PART_OF_ALL(dra_shift_fields),
    PART_OF_ALL(qk_norm_fields),
    BOOL(dra_mixer_config, v_norm, "normalise values"),
    REAL(dra_mixer_config, key_std, 0, 1e6, "1 / sqrt(dim)",
         "standard deviation of the initial key matrix"),
    PART_OF_ALL(rotary_fields),
    PART_OF_ALL(score_scale_fields),
    PART(a, dra_memory_fields),
    CHOICE(dra_mixer_config, blend, blends,
           "add a second memory, mixer.b, with this kind of weight"),
    {.name = "blend_value",
     .kind = DRA_FIELD_REAL,
     .offset = offsetof(dra_mixer_config, blend_value),
     .max = 1,
     .given = offsetof(dra_mixer_config, blend_given),
     .unset = "0; of a schedule 0.7",
     .about = "weight of the first memory"},
    {.name = "b",
     .kind = DRA_FIELD_OBJECT,
     .offset = offsetof(dra_mixer_config, b),
     .fields = dra_memory_fields,
     .about = "the second memory of a blend, with keys as mixer's: mixer.b.memory, ..."},
    INT(dra_mixer_config, kv_heads, "heads",
        "heads of keys and values, shared by those of queries"),
    CHOICE(dra_mixer_config, kv_order, head_maps,
           "kv_heads: query head h reads head h / (H/K), or h mod K"),
    CHOICE(dra_mixer_config, qkv_norm, qkv_norms, "how qk_norm and v_norm do it"),
    CHOICE(dra_mixer_config, qkv_gain, qkv_gains,
           "gains of qk_norm: shared by heads, one set for each, none"),
    REAL(dra_mixer_config, qk_gain_start, 0, 1e6, "1", "first value of these gains"),
    INT(dra_mixer_config, qk_groups, "1",
        "qkv_norm unit: parts of a head that are normalised by themselves"),
    PART(attention, dra_attention_fields),
    PART_OF_ALL(dra_gate_fields),
    INT(dra_mixer_config, context_dim, "dim", "cross: width of the context"),
    PART(attention, dra_attention_late_fields),
    PART_OF_ALL(dra_value_residual_fields),
    PART(attention, dra_attention_last_fields),
    PART(latent, dra_latent_fields),
    PART_OF_ALL(dra_shift_late_fields),
    PART_OF_ALL(dra_gate_late_fields),
    PART_OF_ALL(dra_value_residual_late_fields),
    {.name = "bias",
     .kind = DRA_FIELD_CHOICE,
     .offset = offsetof(dra_mixer_config, biases),
     .choices = biases,
     .about = "which projections have biases; default: as the model's"},
    BOOL(dra_mixer_config, qk_whole, "qk_norm: of the channels of all heads at once"),
    BOOL(dra_mixer_config, qk_gain_offset, "qk_norm: gains are stored as gain - 1"),
    REAL(dra_mixer_config, qkv_eps, 0, 1, "1e-6; of layer 1e-5", "epsilon of qk_norm and v_norm"),
    OBJECT(dra_mixer_config, turn, dra_turn_fields, NULL),
    REAL(dra_mixer_config, query_gain, 0, 1e6, "1",
         "the initial query matrix is this many times as large"),
    INT(dra_mixer_config, key_heads, "heads",
        "moment, delta: heads of queries and keys, each shared by neighbours"),
    PART(conv, dra_conv_fields),
    PART(out_norm, dra_out_norm_fields),
    CHOICE(dra_mixer_config, norms, layer_norms,
           "which norms the sublayers of its layer have: as block says, or others"),
    {0},
};

/* ---- numbers and choices --------------------------------------------------------------------- */

static dra_status check_size(const char *name, int64_t n, int64_t least, dra_error *err)
{
    if (n >= least && n <= DRA_SIZE_MOST) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is %lld, expected %lld to %d", name,
                    (long long)n, (long long)least, DRA_SIZE_MOST);
}

/* What JSON does not say, and what has to be there. */
static dra_status check_sizes(const dra_mixer_config *c, dra_error *err)
{
    const struct {
        const char *name;
        int64_t     n, least;
    } sizes[] = {{"dim", c->dim, 1},
                 {"heads", c->heads, 1},
                 {"turn.width", c->turn.width, 0},
                 {"rotary_heads", c->rotary_heads, 0},
                 {"xl_segment", c->xl_segment, c->xl_memory > 0},
                 {"xl_memory", c->xl_memory, c->xl_segment > 0}};
    dra_status st = DRA_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && st == DRA_OK; i++)
        st = check_size(sizes[i].name, sizes[i].n, sizes[i].least, err);
    return st;
}

/* Numbers and choices of all tables but those of its memories, which check theirs. */
static dra_status check_fields(const dra_mixer_config *c, dra_error *err)
{
    static const dra_part own = {0, {dra_mixer_fields}};
    static const dra_part latent = {offsetof(dra_mixer_config, latent), {dra_latent_fields}};
    static const dra_part shift = {0, {dra_shift_fields, dra_shift_late_fields}};
    static const dra_part gate = {0, {dra_gate_fields, dra_gate_late_fields}};
    static const dra_part values = {0, {dra_value_residual_fields, dra_value_residual_late_fields}};
    static const dra_part conv = {offsetof(dra_mixer_config, conv), {dra_conv_fields}};
    static const dra_part norm = {offsetof(dra_mixer_config, out_norm), {dra_out_norm_fields}};
    const dra_part *const parts[] = {&own,
                                     &shift,
                                     &gate,
                                     &values,
                                     &dra_qk_norm_part,
                                     &dra_score_scale_part,
                                     &latent,
                                     &conv,
                                     &norm,
                                     &dra_attention_part};
    dra_status            st = DRA_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && st == DRA_OK; i++)
        st = dra_parts_check_ranges("mixer", parts[i], c, err);
    return st;
}

static dra_status check_others(const dra_mixer_config *c, dra_error *err)
{
    const struct {
        const char *name;
        double      x;
    } reals[] = {{"turn.base", c->turn.base},
                 {"turn.stretch", c->turn.stretch},
                 {"turn.xpos_base", c->turn.xpos_base}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!(reals[i].x >= 0) || isinf(reals[i].x))
            return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is %g, expected 0 or more",
                            reals[i].name, reals[i].x);
    if (!(c->attention_dropout >= 0 && c->attention_dropout < 1))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: attention_dropout is %g, expected 0 <= p < 1",
                        c->attention_dropout);
    if ((unsigned)c->init >= DRA_INIT_COUNT)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: init is %d, expected 0 to %d", (int)c->init,
                        DRA_INIT_COUNT - 1);
    return DRA_OK;
}

/* Heads play no part in wkv: any number of them is one. */
static bool uses_heads(const dra_mixer_config *c)
{
    return c->blend != DRA_BLEND_NONE || !c->a.memory || strcmp(c->a.memory, "wkv") != 0;
}

static dra_status fill_widths(dra_mixer_config *c, dra_error *err)
{
    if (!c->key_dim && c->dim % c->heads && !uses_heads(c)) c->heads = 1;
    if (!c->key_dim && c->dim % c->heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: %lld heads do not divide dim %lld",
                        (long long)c->heads, (long long)c->dim);
    if (!c->key_dim) c->key_dim = c->dim / c->heads;
    if (!c->value_dim) c->value_dim = c->key_dim;
    if (c->kv_heads && c->heads % c->kv_heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: kv_heads %lld do not divide %lld heads",
                        (long long)c->kv_heads, (long long)c->heads);
    if (c->key_heads && c->heads % c->key_heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: key_heads %lld do not divide %lld heads",
                        (long long)c->key_heads, (long long)c->heads);
    if (c->key_heads && c->kv_heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: key_heads and kv_heads exclude each other");
    return DRA_OK;
}

static dra_status check_rotary(const dra_mixer_config *c, dra_error *err)
{
    const int64_t width = c->turn.width ? (c->turn.width + 1) / 2 * 2 : c->key_dim;
    const char   *said = dra_fields_said(dra_turn_fields, &c->turn);
    if (!c->rotary && (said || c->rotary_heads))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: %s%s without rotary", said ? "turn." : "",
                        said ? said : "rotary_heads");
    if (c->rotary && !c->turn.width && c->key_dim % 2)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: rotary turns pairs of channels, key_dim is %lld",
                        (long long)c->key_dim);
    if (width > c->key_dim)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: turn.width is %lld, but key_dim %lld",
                        (long long)c->turn.width, (long long)c->key_dim);
    if (c->rotary_heads > c->heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: rotary_heads is %lld of %lld heads",
                        (long long)c->rotary_heads, (long long)c->heads);
    if (c->rotary_heads && c->rotary_heads < c->heads && c->kv_heads && c->kv_heads < c->heads)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: rotary_heads %lld of %lld needs as many kv_heads, found %lld",
                        (long long)c->rotary_heads, (long long)c->heads, (long long)c->kv_heads);
    if (c->turn.xpos_base > 0 && (c->whole || c->prefix))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: turn.xpos_base needs causal attention, not %s",
                        c->whole ? "whole" : "prefix");
    return dra_turn_check(&c->turn, c->key_dim, err);
}

static dra_status check_qk_norm(const dra_mixer_config *c, dra_error *err)
{
    const bool  unit = c->qkv_norm == DRA_QKV_UNIT;
    const char *said = c->qk_groups                    ? "qk_groups"
                       : c->qkv_gain != DRA_QKV_SHARED ? "qkv_gain"
                       : c->qk_whole                   ? "qk_whole"
                       : c->qk_gain_offset             ? "qk_gain_offset"
                                                       : NULL;
    const char *other = unit                           ? "qkv_norm unit"
                        : c->qkv_gain == DRA_QKV_HEADS ? "qkv_gain heads"
                        : c->attention.mem_kv          ? "mem_kv"
                        : c->xl_memory                 ? "xl_memory"
                                                       : NULL;
    if (!c->qk_norm && said) return dra_fail(err, DRA_ERR_VALUE, "mixer: %s without qk_norm", said);
    if (c->qk_whole && other)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: qk_whole and %s exclude each other", other);
    if (c->qk_gain_offset && c->qkv_gain == DRA_QKV_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: qk_gain_offset without gains");
    if (c->qkv_eps > 0 && (unit || (!c->qk_norm && !c->v_norm)))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: qkv_eps needs qk_norm or v_norm, not unit");
    if (!c->qk_norm && !c->v_norm && c->qkv_norm != DRA_QKV_RMS)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: qkv_norm without qk_norm or v_norm");
    if (c->qk_groups && !unit)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: qk_groups without qkv_norm unit");
    if (c->qk_groups && (c->key_dim % c->qk_groups || c->key_dim / c->qk_groups < 2))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: qk_groups %lld do not divide key_dim %lld into two or more",
                        (long long)c->qk_groups, (long long)c->key_dim);
    return DRA_OK;
}

static dra_status check_blend(const dra_mixer_config *c, dra_error *err)
{
    if (c->blend == DRA_BLEND_NONE && c->blend_value != 0)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: blend_value is %g without a blend",
                        c->blend_value);
    if (c->blend == DRA_BLEND_NONE && (c->b.memory || c->b.own))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: a second memory without a blend");
    return DRA_OK;
}

dra_status dra_mixer_check(dra_mixer_config *c, dra_error *err)
{
    dra_status st = check_sizes(c, err);
    if (st == DRA_OK) st = check_fields(c, err);
    if (st == DRA_OK) st = fill_widths(c, err);
    if (st == DRA_OK) st = check_others(c, err);
    if (st == DRA_OK) st = check_rotary(c, err);
    if (st == DRA_OK) st = check_qk_norm(c, err);
    if (st == DRA_OK) st = dra_attention_check(c, err);
    if (st == DRA_OK) st = dra_latent_check(c, err);
    if (st == DRA_OK) st = dra_shift_check(c, err);
    if (st == DRA_OK) st = dra_gate_check(c, err);
    if (st == DRA_OK) st = dra_value_residual_check(c, err);
    if (st == DRA_OK) st = dra_conv_check(c, err);
    if (st == DRA_OK) st = dra_out_norm_check(c, err);
    return st == DRA_OK ? check_blend(c, err) : st;
}

/* ---- with memories and retrievals ------------------------------------------------------------ */

/* Whether a memory of the mixer is read so that the part acts; keys of a joined state are. */
static bool part_acts(const dra_mixer *m, const dra_part *part)
{
    bool some = false;
    for (int i = 0; i < m->branches; i++)
        some = some || dra_parts_have(m->branch[i].retrieval->parts, part) ||
               (part == &dra_qk_norm_part && m->branch[i].config.joined);
    return some;
}

/* Options of what retrievals read: both memories of a blend have to be read so, or one of them. */
static dra_status check_parts(const dra_mixer *m, dra_error *err)
{
    static const dra_part *const both[] = {&dra_attention_part, NULL};
    static const dra_part *const one[] = {&dra_qk_norm_part, &dra_rotary_part,
                                          &dra_score_scale_part, NULL};
    const dra_part              *mine[sizeof one / sizeof *one] = {NULL};
    dra_choice                   choices[DRA_RETRIEVALS + 1] = {0};
    char                         what[60];
    dra_status                   st = DRA_OK;
    for (size_t i = 0; i < DRA_RETRIEVALS; i++)
        choices[i] = (dra_choice){dra_retrieval_at(i)->name, dra_retrieval_at(i)->parts};
    for (int i = m->branches - 1; i >= 0 && st == DRA_OK; i--) {
        snprintf(what, sizeof what, "retrieval %s", m->branch[i].retrieval->name);
        st = dra_parts_check(what, both, m->branch[i].retrieval->parts, choices, &m->config, err);
    }
    for (int i = 0, n = 0; one[i]; i++)
        if (part_acts(m, one[i])) mine[n++] = one[i];
    return st == DRA_OK ? dra_parts_check(what, one, mine, choices, &m->config, err) : st;
}

static dra_status check_reads(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    for (int i = 0; i < m->branches; i++) {
        const dra_branch *b = &m->branch[i];
        if ((c->whole || c->prefix) &&
            (strcmp(b->memory->name, "append") != 0 || strcmp(b->retrieval->name, "time") != 0))
            return dra_fail(err, DRA_ERR_VALUE,
                            "mixer: %s needs memory append with retrieval time, found %s with %s",
                            c->whole ? "whole" : "prefix", b->memory->name, b->retrieval->name);
    }
    if (c->attention_dropout > 0 && !dra_mixer_reads_time(c))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: attention_dropout needs a retrieval over time, found %s",
                        m->branch[0].retrieval->name);
    if (c->prefix && c->xl_memory)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: prefix and xl_memory exclude each other");
    if (c->whole && c->shift != DRA_SHIFT_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: shift looks back, but whole sees all");
    return dra_latent_check_branch(&m->branch[0], c, err);
}

/* Contexts and Transformer-XL's memory (`who`) are read by plain attention alone, which may take up
 * to `most` of the first mixer's values. */
static dra_status check_plain(const dra_mixer *m, const char *who, dra_value_residual most,
                              dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const dra_branch       *b = &m->branch[0];
    const char             *other = m->branches == 2             ? "blend"
                                    : c->shift != DRA_SHIFT_NONE ? "shift"
                                    : c->attention.forget        ? "forget"
                                    : c->latent.kv               ? "latent_kv"
                                    : c->value_residual > most   ? "value_residual"
                                    : b->config.norm             ? "norm"
                                    : b->config.maps             ? "maps"
                                                                 : NULL;
    if (strcmp(b->memory->name, "append") != 0 || strcmp(b->retrieval->name, "time") != 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: %s needs memory append with retrieval time, found %s with %s", who,
                        b->memory->name, b->retrieval->name);
    if (!other) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "mixer: %s and %s exclude each other", who, other);
}

static dra_status check_context(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const char             *other = c->rotary         ? "rotary"
                                    : c->xl_memory    ? "xl_memory"
                                    : c->gives_memory ? "memory_residual"
                                                      : NULL;
    if (!c->context && c->context_dim)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: context_dim without context");
    if (!c->context) return DRA_OK;
    if (other)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: a context and %s exclude each other", other);
    return check_plain(m, "a context", DRA_VALUES_HALF, err);
}

static dra_status check_xl(const dra_mixer *m, dra_error *err)
{
    if (!m->config.xl_memory) return DRA_OK;
    if (m->config.whole)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: xl_memory and whole exclude each other");
    return check_plain(m, "xl_memory", DRA_VALUES_OWN, err);
}

static dra_status check_memory(const dra_mixer *m, dra_error *err)
{
    const dra_branch *b = &m->branch[m->branches - 1];
    if (m->config.gives_memory && strcmp(b->config.retrieval, "formula") == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: memory_residual needs a memory of items, found %s",
                        b->memory->name);
    if (m->config.gives_memory && m->config.kv_heads)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: memory_residual and kv_heads exclude each other");
    return DRA_OK;
}

/* Memories of matrices alone have heads of keys of their own, and convolutions. */
static dra_status check_matrices(const dra_mixer *m, dra_error *err)
{
    const char *said = m->config.conv.width ? "conv" : m->config.key_heads ? "key_heads" : NULL;
    for (int i = 0; i < m->branches && said; i++)
        if (!dra_memory_has(m->branch[i].memory, &dra_lambda_part))
            return dra_fail(err, DRA_ERR_VALUE,
                            "mixer: %s is set, which only moment and delta have, found %s", said,
                            m->branch[i].memory->name);
    return dra_out_norm_check_width(m, err);
}

static bool has_decay(const dra_branch *b)
{
    bool has = b->config.lambda.decay != DRA_DECAY_NONE;
    for (int i = 0; i < b->n_params; i++) has = has || dra_branch_param(b, i)->decay;
    return has;
}

dra_status dra_mixer_check_gammas(const dra_mixer *m, dra_error *err)
{
    for (int i = 0; i < m->branches; i++) {
        const dra_branch *b = &m->branch[i];
        const char       *key = dra_fields_said(dra_gamma_fields, &b->config.gamma);
        if (key && !has_decay(b))
            return dra_fail(err, DRA_ERR_VALUE, "%s: gamma.%s is set, but it has no gamma",
                            b->memory->name, key);
    }
    return DRA_OK;
}

dra_status dra_mixer_check_shows(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const dra_branch       *a = &m->branch[0], *b = &m->branch[m->branches - 1];
    const bool              two = m->branches == 2;
    if (c->aux >> DRA_AUX_COUNT)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: aux is %#x, expected bits below %#x",
                        (unsigned)c->aux, 1u << DRA_AUX_COUNT);
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (c->aux >> k & 1 && !dra_aux_has(a, k) && !dra_aux_has(b, k))
            return dra_fail(err, DRA_ERR_VALUE,
                            "mixer: aux asks for %s, which %s%s%s does not have", dra_aux_name(k),
                            a->memory->name, two ? " with " : "", two ? b->memory->name : "");
    if (c->maps && !dra_map_has(a) && !dra_map_has(b))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: maps are of attention and slots, but retrieval is %s",
                        a->config.retrieval);
    return DRA_OK;
}

dra_status dra_mixer_check_branches(const dra_mixer *m, dra_error *err)
{
    dra_status st = check_parts(m, err);
    if (st == DRA_OK) st = check_reads(m, err);
    if (st == DRA_OK) st = check_context(m, err);
    if (st == DRA_OK) st = check_xl(m, err);
    if (st != DRA_OK) return st;
    if (m->branches == 2 && m->branch[0].retrieval->pooled != m->branch[1].retrieval->pooled)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: pooled blends only with pooled");
    st = check_matrices(m, err);
    return st == DRA_OK ? check_memory(m, err) : st;
}
