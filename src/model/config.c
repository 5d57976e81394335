/* The config of a model as tables: what JSON may say, and which field it fills. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dra/model.h"
#include "file/fail.h"
#include "file/fields.h"
#include "model/compose.h"
#include "model/format.h"
#include "model/model.h"

/* ---- names ----------------------------------------------------------------------------------- */

#define DRA_MEMORY(name) #name,
static const char *const memories[] = {
#include "memory/memory.def"
    NULL};
#undef DRA_MEMORY
static const char *const retrievals[] = {"time", "window", "slots-own", "slots-all", "pooled",
                                         "none", "joint",  "formula",   NULL};
static const char *const per[] = {"head", "channel", NULL};
static const char *const starts[] = {"halflife", "efold", "const", NULL};
static const char *const phis[] = {"elu1", "relu", "exp", "favor", "identity", NULL};
static const char *const decays[] = {"none", "fixed", "data", NULL};
static const char *const decay_forms[] = {"sigmoid", "exp", "bounded", NULL};
static const char *const bonuses[] = {"none", "head", "channel", NULL};
static const char *const transitions[] = {"strength", "diagonal", NULL};
static const char *const gates[] = {"default", "fixed", "routed", "gated", NULL};
static const char *const candidates[] = {"token", "gru", NULL};
static const char *const recurrents[] = {"plain", "spectral", "weight", NULL};
static const char *const whose[] = {"own", "all", NULL};
static const char *const shifts[] = {"none", "half", "mix", "lerp", "data", NULL};
static const char *const blends[] = {"none", "number", "schedule", "learned", NULL};
static const char *const positions[] = {"none", "learned", NULL};
static const char *const norms[] = {"rms", "layer", "unit", NULL};
static const char *const gains[] = {"channel", "scalar", "none", "condition", NULL};
static const char *const places[] = {"pre", "post", "dual", NULL};
static const char *const joins[] = {"add", "gru", NULL};
static const char *const inners[] = {"gelu", "erf",  "relu", "relu2", "swiglu",
                                     "mix",  "none", "silu", NULL};
static const char *const ff_biases[] = {"default", "all", "none", "in", NULL};
static const char *const head_maps[] = {"div", "mod", NULL};
static const char *const qkv_norms[] = {"rms", "layer", "unit", NULL};
static const char *const qkv_gains[] = {"shared", "heads", "none", NULL};
static const char *const value_gates[] = {"none", "biased", "plain", "silu", "low-rank", NULL};
static const char *const value_residuals[] = {"none", "half", "learned", "channel", NULL};
static const char *const rotates[] = {"none", "rotary", "xpos", NULL};
static const char *const distances[] = {"none", "t5", "dynamic", "alibi", NULL};
static const char *const visibles[] = {"causal", "whole", "prefix", NULL};
static const char *const embed_norms[] = {"same", "layer", NULL};
static const char *const inits[] = {"normal", "uniform", NULL};
static const char *const letters[] = {"afc", NULL};
static const char *const source_kinds[] = {"tokens", "vectors", "image", NULL};
static const char *const head_kinds[] = {"tokens", "classes", "vectors", "none", NULL};
static const char *const name_letters[] = {"abcdefghijklmnopqrstuvwxyz_0123456789", NULL};

/* ---- tables ---------------------------------------------------------------------------------- */

enum { MOST = 1 << 20 }; /* of every size */

#define INT(s, f)                                                                                  \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_INT, .offset = offsetof(s, f), .max = MOST                   \
    }
#define REAL(s, f, lo, hi)                                                                         \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_REAL, .offset = offsetof(s, f), .min = lo, .max = hi         \
    }
#define BOOL(s, f)                                                                                 \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_BOOL, .offset = offsetof(s, f)                               \
    }
#define SWITCH(s, f)                                                                               \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_SWITCH, .offset = offsetof(s, f)                             \
    }
#define CHOICE(s, f, list)                                                                         \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_CHOICE, .offset = offsetof(s, f), .choices = list            \
    }

#define GAMMA(f) offsetof(dra_gamma_config, f)
static const dra_field gamma_fields[] = {
    CHOICE(dra_gamma_config, per, per),
    {.name = "init", .kind = DRA_FIELD_CHOICE, .offset = GAMMA(start), .choices = starts},
    REAL(dra_gamma_config, value, 0, 1),
    {.name = "range", .kind = DRA_FIELD_PAIR, .offset = GAMMA(range), .given = GAMMA(ranged)},
    {.name = "depth", .kind = DRA_FIELD_PAIR, .offset = GAMMA(depth)},
    SWITCH(dra_gamma_config, learn),
    BOOL(dra_gamma_config, share),
    {0}};

/* The fields of a memory, which is at `at` in the struct that is read. */
#define MEMORY_INT(at, f)                                                                          \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_INT, .offset = at + offsetof(dra_memory_config, f),          \
        .max = MOST                                                                                \
    }
#define MEMORY_BOOL(at, f)                                                                         \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_BOOL, .offset = at + offsetof(dra_memory_config, f)          \
    }
#define MEMORY_CHOICE(at, f, k, list)                                                              \
    {                                                                                              \
        .name = #f, .kind = k, .offset = at + offsetof(dra_memory_config, f), .choices = list      \
    }
#define MEMORY_FIELDS(at)                                                                          \
    MEMORY_CHOICE(at, memory, DRA_FIELD_NAME, memories),                                           \
        MEMORY_CHOICE(at, retrieval, DRA_FIELD_NAME, retrievals), MEMORY_INT(at, window),          \
        {.name = "gamma",                                                                          \
         .kind = DRA_FIELD_OBJECT,                                                                 \
         .offset = at + offsetof(dra_memory_config, gamma),                                        \
         .fields = gamma_fields},                                                                  \
        MEMORY_BOOL(at, joined), MEMORY_INT(at, dim),                                              \
        MEMORY_CHOICE(at, head_norm, DRA_FIELD_SWITCH, NULL),                                      \
        MEMORY_CHOICE(at, joint, DRA_FIELD_CHOICE, whose), MEMORY_BOOL(at, steps),                 \
        MEMORY_INT(at, timescales), MEMORY_INT(at, modes), MEMORY_BOOL(at, per_head),              \
        MEMORY_CHOICE(at, phi, DRA_FIELD_CHOICE, phis), MEMORY_INT(at, features),                  \
        MEMORY_CHOICE(at, normalise, DRA_FIELD_SWITCH, NULL),                                      \
        MEMORY_CHOICE(at, decay, DRA_FIELD_CHOICE, decays), MEMORY_INT(at, slots),                 \
        MEMORY_CHOICE(at, gate, DRA_FIELD_CHOICE, gates),                                          \
        MEMORY_CHOICE(at, candidate, DRA_FIELD_CHOICE, candidates),                                \
        {.name = "tau",                                                                            \
         .kind = DRA_FIELD_REAL,                                                                   \
         .offset = at + offsetof(dra_memory_config, tau),                                          \
         .max = 1e6},                                                                              \
        MEMORY_BOOL(at, tau_learned), MEMORY_BOOL(at, slot_decay), MEMORY_BOOL(at, pi),            \
        MEMORY_BOOL(at, norm), MEMORY_CHOICE(at, recurrent, DRA_FIELD_CHOICE, recurrents),         \
        MEMORY_BOOL(at, maps), MEMORY_CHOICE(at, norm_kind, DRA_FIELD_CHOICE, norms),              \
        MEMORY_CHOICE(at, decay_form, DRA_FIELD_CHOICE, decay_forms), MEMORY_INT(at, decay_rank),  \
        MEMORY_CHOICE(at, bonus, DRA_FIELD_CHOICE, bonuses), MEMORY_BOOL(at, bonus_exp),           \
        MEMORY_CHOICE(at, transition, DRA_FIELD_CHOICE, transitions), MEMORY_INT(at, rate_rank),   \
    {                                                                                              \
        .name = "head_norm_eps", .kind = DRA_FIELD_REAL,                                           \
        .offset = at + offsetof(dra_memory_config, head_norm_eps), .max = 1                        \
    }

static const dra_field memory_fields[] = {MEMORY_FIELDS(0), {0}};

static const dra_field mixer_fields[] = {INT(dra_mixer_config, heads),
                                         INT(dra_mixer_config, key_dim),
                                         INT(dra_mixer_config, value_dim),
                                         CHOICE(dra_mixer_config, shift, shifts),
                                         BOOL(dra_mixer_config, qk_norm),
                                         BOOL(dra_mixer_config, v_norm),
                                         REAL(dra_mixer_config, key_std, 0, 1e6),
                                         BOOL(dra_mixer_config, rotary),
                                         REAL(dra_mixer_config, score_scale, 0, 1e6),
                                         MEMORY_FIELDS(offsetof(dra_mixer_config, a)),
                                         CHOICE(dra_mixer_config, blend, blends),
                                         {.name = "blend_value",
                                          .kind = DRA_FIELD_REAL,
                                          .offset = offsetof(dra_mixer_config, blend_value),
                                          .max = 1,
                                          .given = offsetof(dra_mixer_config, blend_given)},
                                         {.name = "b",
                                          .kind = DRA_FIELD_OBJECT,
                                          .offset = offsetof(dra_mixer_config, b),
                                          .fields = memory_fields},
                                         INT(dra_mixer_config, kv_heads),
                                         CHOICE(dra_mixer_config, kv_order, head_maps),
                                         CHOICE(dra_mixer_config, qkv_norm, qkv_norms),
                                         CHOICE(dra_mixer_config, qkv_gain, qkv_gains),
                                         REAL(dra_mixer_config, qk_gain_start, 0, 1e6),
                                         INT(dra_mixer_config, qk_groups),
                                         INT(dra_mixer_config, mem_kv),
                                         BOOL(dra_mixer_config, mem_whole),
                                         INT(dra_mixer_config, topk),
                                         BOOL(dra_mixer_config, topk_straight),
                                         BOOL(dra_mixer_config, hard),
                                         BOOL(dra_mixer_config, talk_before),
                                         BOOL(dra_mixer_config, talk_after),
                                         BOOL(dra_mixer_config, residual_scores),
                                         REAL(dra_mixer_config, softcap, 0, 1e6),
                                         BOOL(dra_mixer_config, head_scale),
                                         CHOICE(dra_mixer_config, gate_values, value_gates),
                                         BOOL(dra_mixer_config, out_glu),
                                         INT(dra_mixer_config, context_dim),
                                         BOOL(dra_mixer_config, softcap_late),
                                         BOOL(dra_mixer_config, sink),
                                         CHOICE(dra_mixer_config, value_residual, value_residuals),
                                         BOOL(dra_mixer_config, forget),
                                         INT(dra_mixer_config, latent_kv),
                                         INT(dra_mixer_config, latent_q),
                                         INT(dra_mixer_config, latent_rope),
                                         INT(dra_mixer_config, shift_rank),
                                         INT(dra_mixer_config, gate_rank),
                                         INT(dra_mixer_config, value_rank),
                                         {0}};

static const dra_field block_fields[] = {CHOICE(dra_block_config, norm, places),
                                         BOOL(dra_block_config, memory_residual),
                                         BOOL(dra_block_config, project),
                                         BOOL(dra_block_config, branch_norm),
                                         CHOICE(dra_block_config, residual, joins),
                                         BOOL(dra_block_config, residual_scale),
                                         REAL(dra_block_config, dual_scale, 0, 1),
                                         BOOL(dra_block_config, macaron),
                                         INT(dra_block_config, shift),
                                         REAL(dra_block_config, drop, 0, 0.999),
                                         BOOL(dra_block_config, branch_scale),
                                         REAL(dra_block_config, branch_scale_start, -1e6, 1e6),
                                         BOOL(dra_block_config, branch_scale_offset),
                                         BOOL(dra_block_config, zero_out),
                                         INT(dra_block_config, streams),
                                         BOOL(dra_block_config, branch_gate),
                                         {0}};

static const dra_field ff_fields[] = {CHOICE(dra_ff_config, kind, inners),
                                      INT(dra_ff_config, dim),
                                      BOOL(dra_ff_config, gated),
                                      CHOICE(dra_ff_config, bias, ff_biases),
                                      BOOL(dra_ff_config, act_norm),
                                      REAL(dra_ff_config, dropout, 0, 0.999),
                                      BOOL(dra_ff_config, lerp),
                                      SWITCH(dra_ff_config, receptance),
                                      {0}};

static const dra_field position_fields[] = {CHOICE(dra_position_config, rotate, rotates),
                                            INT(dra_position_config, width),
                                            INT(dra_position_config, heads),
                                            REAL(dra_position_config, base, 0, 1e12),
                                            REAL(dra_position_config, xpos_base, 0, 1e12),
                                            CHOICE(dra_position_config, distance, distances),
                                            INT(dra_position_config, buckets),
                                            INT(dra_position_config, max_distance),
                                            REAL(dra_position_config, distance_scale, 0, 1e6),
                                            INT(dra_position_config, layers),
                                            BOOL(dra_position_config, log),
                                            INT(dra_position_config, slopes),
                                            REAL(dra_position_config, scale, 0, 1e6),
                                            {0}};

static const dra_field source_fields[] = {CHOICE(dra_source_config, kind, source_kinds),
                                          {.name = "input",
                                           .kind = DRA_FIELD_TEXT,
                                           .offset = offsetof(dra_source_config, input),
                                           .choices = name_letters,
                                           .most = DRA_STACK_NAME},
                                          INT(dra_source_config, dim),
                                          INT(dra_source_config, length),
                                          INT(dra_source_config, size),
                                          INT(dra_source_config, patch),
                                          INT(dra_source_config, channels),
                                          BOOL(dra_source_config, numbers),
                                          INT(dra_source_config, number_token),
                                          BOOL(dra_source_config, shared),
                                          {0}};

static const char *const pools[] = {"mean", "cls", "last", NULL};
static const dra_field   head_fields[] = {CHOICE(dra_head_config, kind, head_kinds),
                                          INT(dra_head_config, dim),
                                          BOOL(dra_head_config, bias),
                                          BOOL(dra_head_config, numbers),
                                          CHOICE(dra_head_config, pool, pools),
                                          BOOL(dra_head_config, no_bias),
                                          {0}};
static const dra_field   condition_fields[] = {
      INT(dra_condition_config, dim), INT(dra_condition_config, expand), {0}};
static const dra_field xl_fields[] = {INT(dra_xl_config, memory), INT(dra_xl_config, down), {0}};

#define MODEL(f) offsetof(dra_model_config, f)
#define NUMBERS(f, count, k, hi)                                                                   \
    {                                                                                              \
        .name = #f, .kind = k, .offset = MODEL(f), .given = MODEL(count), .max = hi,               \
        .most = DRA_SUBLAYERS_MOST                                                                 \
    }
static const dra_field model_fields[] = {
    INT(dra_model_config, vocab),
    INT(dra_model_config, dim),
    INT(dra_model_config, depth),
    INT(dra_model_config, heads),
    INT(dra_model_config, key_dim),
    INT(dra_model_config, value_dim),
    INT(dra_model_config, context),
    CHOICE(dra_model_config, positions, positions),
    CHOICE(dra_model_config, norm, norms),
    BOOL(dra_model_config, bias),
    SWITCH(dra_model_config, tied),
    BOOL(dra_model_config, embed_norm),
    REAL(dra_model_config, norm_eps, 0, 1),
    REAL(dra_model_config, final_eps, 0, 1),
    INT(dra_model_config, rescale_every),
    BOOL(dra_model_config, layer_scale),
    REAL(dra_model_config, dropout, 0, 0.999),
    REAL(dra_model_config, attention_dropout, 0, 0.999),
    REAL(dra_model_config, embed_dropout, 0, 0.999),
    {.name = "block", .kind = DRA_FIELD_OBJECT, .offset = MODEL(block), .fields = block_fields},
    {.name = "ff", .kind = DRA_FIELD_OBJECT, .offset = MODEL(ff), .fields = ff_fields},
    {.name = "mixer",
     .kind = DRA_FIELD_LIST,
     .offset = MODEL(mixer),
     .fields = mixer_fields,
     .given = MODEL(mixers),
     .size = sizeof(dra_mixer_config),
     .most = DRA_MIXERS_MOST},
    CHOICE(dra_model_config, norm_gain, gains),
    SWITCH(dra_model_config, norm_bias),
    BOOL(dra_model_config, norm_offset),
    {.name = "layout",
     .kind = DRA_FIELD_TEXT,
     .offset = MODEL(layout),
     .choices = letters,
     .most = DRA_SUBLAYERS_MOST + 1},
    INT(dra_model_config, sandwich),
    BOOL(dra_model_config, tied_layers),
    NUMBERS(order, n_order, DRA_FIELD_INTS, DRA_SUBLAYERS_MOST - 1),
    NUMBERS(shifts, n_shifts, DRA_FIELD_INTS, MOST),
    NUMBERS(drops, n_drops, DRA_FIELD_REALS, 0.999),
    CHOICE(dra_model_config, visible, visibles),
    {.name = "position",
     .kind = DRA_FIELD_OBJECT,
     .offset = MODEL(position),
     .fields = position_fields},
    INT(dra_model_config, embed_dim),
    BOOL(dra_model_config, embed_unit),
    CHOICE(dra_model_config, embed_norm_kind, embed_norms),
    INT(dra_model_config, memory_tokens),
    CHOICE(dra_model_config, init, inits),
    {.name = "source", .kind = DRA_FIELD_OBJECT, .offset = MODEL(source), .fields = source_fields},
    {.name = "head", .kind = DRA_FIELD_OBJECT, .offset = MODEL(head), .fields = head_fields},
    {.name = "cross", .kind = DRA_FIELD_OBJECT, .offset = MODEL(cross), .fields = mixer_fields},
    {.name = "xl", .kind = DRA_FIELD_OBJECT, .offset = MODEL(xl), .fields = xl_fields},
    REAL(dra_model_config, output_softcap, 0, 1e6),
    {.name = "condition",
     .kind = DRA_FIELD_OBJECT,
     .offset = MODEL(condition),
     .fields = condition_fields},
    {0}};

const dra_field *dra_model_config_fields(void) { return model_fields; }

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The format that model_type names; NULL: none, see the error. */
static const dra_format *format_of(const char *place, json_t *object, dra_error *err)
{
    const char       *type = json_string_value(json_object_get(object, "model_type"));
    const dra_format *f = dra_format_named(object);
    if (!json_is_object(object)) {
        dra_fail(err, DRA_ERR_FORMAT, "%.120s: JSON is no object", place);
        return NULL;
    }
    if (f) return f;
    dra_fail(err, DRA_ERR_VALUE,
             "%.120s: model_type is %.40s, expected dra, gpt2, rwkv or x-transformers", place,
             type ? type : "missing");
    return NULL;
}

/* Of dra's own config, what is no field. */
static dra_status drop_others(const char *place, json_t *object, dra_error *err)
{
    const json_t *kept = json_object_get(object, DRA_KEPT_KEYS);
    if (kept && !json_is_object(kept))
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: " DRA_KEPT_KEYS " is no object", place);
    dra_json_delete(object, DRA_KEPT_KEYS);
    dra_json_delete(object, "model_type");
    return DRA_OK;
}

static dra_status read_fields(const char *place, json_t *object, dra_model_config *out,
                              dra_error *err)
{
    return dra_fields_read(model_fields, place, object, out, err);
}

/* dra's own config: one stack, or several. */
static dra_status read_own(const char *place, json_t *object, dra_model_config *out, dra_error *err)
{
    const json_t *stacks = json_object_get(object, "stacks");
    if (!stacks) return read_fields(place, object, out, err);
    if (json_object_size(object) > 1)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: stacks: expected no other key but model_type next to it", place);
    return dra_stacks_read(place, stacks, read_fields, out, err);
}

dra_status dra_model_config_parse(const char *place, const char *text, size_t bytes,
                                  dra_model_config *out, dra_error *err)
{
    json_t   *object;
    dra_error why = {0};
    *out = (dra_model_config){0};
    dra_status st = dra_json_parse(place, text, bytes, (dra_json_rules){.depth = 16}, &object, err);
    if (st != DRA_OK) return st;
    const dra_format *f = format_of(place, object, &why);
    if (!f) {
        st = dra_fail(err, why.code, "%s", why.text);
    } else if (f->read) {
        st = dra_format_read(f, place, object, out, err);
    } else {
        st = drop_others(place, object, err);
        if (st == DRA_OK) st = read_own(place, object, out, err);
    }
    json_decref(object);
    return st;
}

dra_status dra_model_config_set(dra_model_config *config, const char *name, const char *value,
                                dra_error *err)
{
    const dra_model_config **others[] = {&config->context_stack, &config->prepend_stack};
    for (int i = 0; i < 2; i++) {
        const size_t n = *others[i] ? strlen((*others[i])->name) : 0;
        if (!n || strncmp(name, (*others[i])->name, n) != 0 || name[n] != '.') continue;
        dra_model_config        other = **others[i];
        const dra_status        st = dra_model_config_set(&other, name + n + 1, value, err);
        const dra_model_config *same = st == DRA_OK ? dra_config_keep(&other) : NULL;
        if (st == DRA_OK && !same) return dra_fail(err, DRA_ERR_MEMORY, "config: out of memory");
        if (same) *others[i] = same;
        return st;
    }
    return dra_fields_set(model_fields, config, name, value, err);
}

/* A mixer alone names itself and says what it otherwise takes from the model. Heads play no
 * part in wkv, only all their channels do. */
static void spell_out(const dra_model_config *c, dra_mixer_config *m)
{
    if (!m->a.memory) m->a.memory = memories[0];
    const dra_memory *memory = dra_memory_find(m->a.memory);
    if (!m->a.retrieval && memory) m->a.retrieval = memory->retrievals[0];
    if (!m->heads) m->heads = c->heads;
    const bool wkv = strcmp(m->a.memory, "wkv") == 0;
    if (wkv && !m->key_dim && !c->key_dim && c->dim % m->heads) m->heads = 1;
    if (!m->key_dim) m->key_dim = c->key_dim ? c->key_dim : c->dim / m->heads;
    if (!m->value_dim) m->value_dim = c->value_dim ? c->value_dim : m->key_dim;
    if (!wkv) return;
    m->key_dim = m->value_dim = m->key_dim * m->heads;
    m->heads = 1;
}

/* The config as JSON in dra's own names. That a blend's value was given is said of schedules alone:
 * any other is 0 by default. */
static json_t *write_fields(dra_json *j, const dra_model_config *c)
{
    dra_model_config same = *c;
    for (int i = 0; i < same.mixers; i++)
        if (same.mixer[i].blend != DRA_BLEND_INPUT) same.mixer[i].blend_given = false;
    return dra_fields_write(j, model_fields, &same);
}

/* The same with everything filled in. */
static json_t *write_all(dra_json *j, const dra_model_config *c)
{
    dra_model_config full = *c;
    dra_model_config_complete(&full);
    for (int i = 0; i < full.mixers; i++) spell_out(&full, &full.mixer[i]);
    if (full.context_stack) spell_out(&full, &full.cross);
    full.heads = full.key_dim = full.value_dim = 0;
    return write_fields(j, &full);
}

json_t *dra_model_config_object(const dra_model_config *c)
{
    dra_json j = {0};
    json_t  *object = dra_has_stacks(c) ? dra_stacks_write(&j, c, write_all) : write_all(&j, c);
    return dra_json_whole(&j, object);
}

static dra_status write_own(dra_json *j, const char *place, const dra_model_config *c,
                            json_t *object, dra_error *err)
{
    json_t *fields = dra_has_stacks(c) ? dra_stacks_write(j, c, write_fields) : write_fields(j, c);
    dra_json_set(j, object, "model_type", dra_json_text(j, "dra"));
    dra_json_update(j, object, fields);
    json_decref(fields);
    if (j->not_finite) return dra_fail_at(err, DRA_ERR_VALUE, place, "a number is not finite");
    return dra_json_check(j, place, err);
}

char *dra_model_config_dump(const char *place, const dra_model_config *c, json_t *object,
                            dra_error *err)
{
    dra_json   j = {.failed = !object};
    char      *text = NULL;
    dra_status st = dra_json_check(&j, place, err);
    if (st == DRA_OK)
        st = dra_format_of(c)->read ? dra_format_write(place, c, object, err)
                                    : write_own(&j, place, c, object, err);
    if (st == DRA_OK)
        dra_json_dump(&j, object, JSON_INDENT(2) | JSON_REAL_PRECISION(17), place, &text, NULL,
                      err);
    return text;
}

size_t dra_model_config_text(const dra_model_config *config, char *text, size_t size)
{
    dra_json     j = {0};
    json_t      *object = dra_json_object(&j);
    char        *dump = dra_model_config_dump("config", config, object, NULL);
    const size_t n = dump ? strlen(dump) : 0;
    json_decref(object);
    if (size > 0) {
        const size_t take = n < size ? n : size - 1;
        if (take) memcpy(text, dump, take);
        text[take] = '\0';
    }
    free(dump);
    return n;
}
