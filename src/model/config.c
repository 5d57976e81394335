/* The config of a model as tables: what JSON may say, and which field it fills. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dra/model.h"
#include "file/fields.h"

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
static const char *const gates[] = {"default", "fixed", "routed", "gated", NULL};
static const char *const candidates[] = {"token", "gru", NULL};
static const char *const whose[] = {"own", "all", NULL};
static const char *const shifts[] = {"none", "half", "mix", NULL};
static const char *const blends[] = {"none", "number", "schedule", "learned", NULL};
static const char *const positions[] = {"none", "learned", NULL};
static const char *const norms[] = {"rms", "layer", NULL};
static const char *const places[] = {"pre", "post", NULL};
static const char *const inners[] = {"gelu", "erf", "relu", "relu2", "swiglu", "mix", "none", NULL};
static const char *const types[] = {"dra", NULL};

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

/* The fields of a memory, which lies at `at` in the struct that is read. */
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
        MEMORY_BOOL(at, tau_learned), MEMORY_BOOL(at, slot_decay), MEMORY_BOOL(at, pi)

static const dra_field memory_fields[] = {MEMORY_FIELDS(0), {0}};

static const dra_field mixer_fields[] = {INT(dra_mixer_config, heads),
                                         INT(dra_mixer_config, key_dim),
                                         INT(dra_mixer_config, value_dim),
                                         CHOICE(dra_mixer_config, shift, shifts),
                                         BOOL(dra_mixer_config, qk_norm),
                                         BOOL(dra_mixer_config, rotary),
                                         MEMORY_FIELDS(offsetof(dra_mixer_config, a)),
                                         CHOICE(dra_mixer_config, blend, blends),
                                         REAL(dra_mixer_config, blend_value, 0, 1),
                                         {.name = "b",
                                          .kind = DRA_FIELD_OBJECT,
                                          .offset = offsetof(dra_mixer_config, b),
                                          .fields = memory_fields},
                                         {0}};

static const dra_field block_fields[] = {CHOICE(dra_block_config, norm, places),
                                         BOOL(dra_block_config, memory_residual),
                                         BOOL(dra_block_config, project),
                                         {0}};

static const dra_field ff_fields[] = {
    CHOICE(dra_ff_config, kind, inners), INT(dra_ff_config, dim), {0}};

#define MODEL(f) offsetof(dra_model_config, f)
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
    REAL(dra_model_config, dropout, 0, 0.999),
    {.name = "block", .kind = DRA_FIELD_OBJECT, .offset = MODEL(block), .fields = block_fields},
    {.name = "ff", .kind = DRA_FIELD_OBJECT, .offset = MODEL(ff), .fields = ff_fields},
    {.name = "mixer",
     .kind = DRA_FIELD_LIST,
     .offset = MODEL(mixer),
     .fields = mixer_fields,
     .given = MODEL(mixers),
     .size = sizeof(dra_mixer_config),
     .most = DRA_MIXERS_MOST},
    {0}};

/* ---- JSON ------------------------------------------------------------------------------------ */

static dra_status check_type(const char *place, json_t *object, dra_error *err)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    if (!json_is_object(object))
        return dra_fail(err, DRA_ERR_FORMAT, "%.120s: JSON is no object", place);
    if (!type || strcmp(type, types[0]) != 0)
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: model_type is %.40s, expected dra", place,
                        type ? type : "missing");
    json_object_del(object, "model_type");
    return DRA_OK;
}

dra_status dra_model_config_parse(const char *place, const char *text, size_t bytes,
                                  dra_model_config *out, dra_error *err)
{
    json_t *object;
    *out = (dra_model_config){0};
    dra_status st = dra_json_parse(place, text, bytes, (dra_json_rules){.depth = 16}, &object, err);
    if (st == DRA_OK) st = check_type(place, object, err);
    if (st == DRA_OK) st = dra_fields_read(model_fields, place, object, out, err);
    json_decref(object);
    return st;
}

dra_status dra_model_config_set(dra_model_config *config, const char *name, const char *value,
                                dra_error *err)
{
    return dra_fields_set(model_fields, config, name, value, err);
}

size_t dra_model_config_text(const dra_model_config *config, char *text, size_t size)
{
    json_t *object = dra_fields_write(model_fields, config);
    json_t *all = json_pack("{s:s}", "model_type", types[0]);
    if (!all || json_object_update(all, object) != 0) {
        json_decref(object);
        json_decref(all);
        return 0;
    }
    char *dump = json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(object);
    json_decref(all);
    const size_t n = dump ? strlen(dump) : 0;
    if (size > 0) {
        const size_t take = n < size ? n : size - 1;
        if (take) memcpy(text, dump, take);
        text[take] = '\0';
    }
    free(dump);
    return n;
}
