/* The config of a model as tables: what JSON may say, and which field it fills. */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dra/model.h"
#include "file/fail.h"
#include "file/field_rows.h"
#include "memory/part.h"
#include "model/compose.h"
#include "formats/format.h"
#include "model/model.h"
#include "model/owned.h"
#include "model/parts.h"

/* ---- names ----------------------------------------------------------------------------------- */

DRA_CHOICES(positions, DRA_POSITIONS_COUNT, "none", "learned");
DRA_CHOICES(norms, DRA_NORM_NONE, "rms", "layer", "unit", "tanh");
DRA_CHOICES(gains, DRA_GAIN_COUNT, "channel", "scalar", "none", "condition");
DRA_CHOICES(visibles, DRA_VISIBLE_COUNT, "causal", "bidirectional", "prefix");
DRA_CHOICES(embed_norms, DRA_EMBED_NORM_COUNT, "same", "layer");
DRA_CHOICES(inits, DRA_INIT_COUNT, "normal", "uniform");
static const char *const letters[] = {"afc", NULL};

/* ---- tables ---------------------------------------------------------------------------------- */

#define MODEL(f) offsetof(dra_model_config, f)
#define NUMBERS(f, count, k, hi, start, text)                                                      \
    {                                                                                              \
        .name = #f, .kind = k, .offset = MODEL(f), .given = MODEL(count), .max = hi,               \
        .most = DRA_SUBLAYERS_MOST, .unset = start, .about = text                                  \
    }
static const dra_field model_fields[] = {
    INT(dra_model_config, vocab, "required", "tokens that the model knows"),
    INT(dra_model_config, dim, "required", "width of the stream"),
    INT(dra_model_config, depth, "required", "blocks"),
    INT(dra_model_config, heads, "1", "heads of attention"),
    INT(dra_model_config, key_dim, "dim / heads", "width of a head's queries and keys"),
    INT(dra_model_config, value_dim, "key_dim", "width of a head's values"),
    INT(dra_model_config, context, "256",
        "learned positions; tokens of a training row; with xl, of a segment"),
    CHOICE(dra_model_config, positions, positions,
           "learned positions that are added to the embedding"),
    CHOICE(dra_model_config, norm, norms, "kind of all norms"),
    BOOL(dra_model_config, bias, "biases in all projections"),
    SWITCH(dra_model_config, tied, "true", "the head shares the embedding"),
    BOOL(dra_model_config, embed_norm, "a norm after the embedding"),
    REAL(dra_model_config, norm_eps, 0, 1, "1e-5", "epsilon of norms"),
    REAL(dra_model_config, final_eps, 0, 1, "norm_eps", "epsilon of the last norm"),
    INT(dra_model_config, rescale_every, "never",
        "when reading, halve the stream every this many layers"),
    BOOL(dra_model_config, layer_scale, "divide the scores of layer l by l + 1"),
    REAL(dra_model_config, dropout, 0, 0.999, "0", "dropout of what sublayers add, when training"),
    REAL(dra_model_config, attention_dropout, 0, 0.999, "0",
         "dropout of attention weights, when training"),
    REAL(dra_model_config, embed_dropout, 0, 0.999, "0", "dropout of embeddings, when training"),
    {.name = "block", .kind = DRA_FIELD_OBJECT, .offset = MODEL(block), .fields = dra_block_fields},
    {.name = "ff", .kind = DRA_FIELD_OBJECT, .offset = MODEL(ff), .fields = dra_ff_fields},
    {.name = "mixer",
     .kind = DRA_FIELD_LIST,
     .away = true,
     .offset = MODEL(mixer),
     .fields = dra_mixer_fields,
     .given = MODEL(mixers),
     .size = sizeof(dra_mixer_config),
     .most = DRA_MIXERS_MOST},
    CHOICE(dra_model_config, norm_gain, gains,
           "gains of norms: for each channel, one for all, none, made of the condition"),
    SWITCH(dra_model_config, norm_bias, "true", "layer norms have biases"),
    BOOL(dra_model_config, norm_offset, "gains are stored as gain - 1"),
    BOOL(dra_model_config, reinject, "every sublayer reads W x0, too, of what was embedded"),
    BOOL(dra_model_config, reinject_gate, "reinject, condition.add: times sigmoid(w x0)"),
    {.name = "recycle",
     .kind = DRA_FIELD_INT,
     .offset = MODEL(recycle),
     .min = 2,
     .max = 64,
     .unset = "once",
     .about = "how often all layers run, each time on what they put out the time before, too"},
    BOOL(dra_model_config, unet,
         "layers of the latter half read the input of those of the first, too, last ones first"),
    REAL(dra_model_config, norm_alpha, 0, 1e6, "1", "norm tanh: first factor of its argument"),
    {.name = "layout",
     .kind = DRA_FIELD_TEXT,
     .away = true,
     .offset = MODEL(layout),
     .choices = letters,
     .most = DRA_SUBLAYERS_MOST + 1,
     .unset = "af; with a context acf",
     .about = "sublayers of a block: a attention, c attention over a context, f feed-forward"},
    INT(dra_model_config, sandwich, "0", "the first feed-forwards, this many, move to the end"),
    BOOL(dra_model_config, tied_layers, "one block of parameters, run depth times"),
    NUMBERS(order, n_order, DRA_FIELD_INTS, DRA_SUBLAYERS_MOST - 1, "all in order",
            "which sublayers run, from 0, in this order; repeats are allowed"),
    NUMBERS(shifts, n_shifts, DRA_FIELD_INTS, MOST, "block.shift", "block.shift of each sublayer"),
    NUMBERS(drops, n_drops, DRA_FIELD_REALS, 0.999, "block.drop", "block.drop of each sublayer"),
    CHOICE(dra_model_config, visible, visibles,
           "what a token sees: those before it, the whole text, a prefix and those before"),
    {.name = "position",
     .kind = DRA_FIELD_OBJECT,
     .offset = MODEL(position),
     .fields = dra_position_fields},
    INT(dra_model_config, embed_dim, "dim", "width of the embedding, which is mapped to dim"),
    BOOL(dra_model_config, embed_unit, "rows of the embedding have length 1"),
    CHOICE(dra_model_config, embed_norm_kind, embed_norms,
           "embed_norm: as the other norms, or a layer norm"),
    INT(dra_model_config, memory_tokens, "0", "learned vectors that every text begins with"),
    CHOICE(dra_model_config, init, inits, "initial matrices: normal, or uniform as in PyTorch"),
    {.name = "source",
     .kind = DRA_FIELD_OBJECT,
     .offset = MODEL(source),
     .fields = dra_source_fields},
    {.name = "head", .kind = DRA_FIELD_OBJECT, .offset = MODEL(head), .fields = dra_head_fields},
    {.name = "cross",
     .kind = DRA_FIELD_OBJECT,
     .away = true,
     .size = sizeof(dra_mixer_config),
     .offset = MODEL(cross),
     .fields = dra_mixer_fields,
     .about = "attention over a context, with keys as mixer's: cross.heads, ..."},
    {.name = "xl", .kind = DRA_FIELD_OBJECT, .offset = MODEL(xl), .fields = dra_xl_fields},
    REAL(dra_model_config, output_softcap, 0, 1e6, "none",
         "what the layers put out becomes c tanh(x / c)"),
    {.name = "condition",
     .kind = DRA_FIELD_OBJECT,
     .offset = MODEL(condition),
     .fields = dra_condition_fields},
    NUMBERS(pattern, n_pattern, DRA_FIELD_INTS, DRA_MIXERS_MOST - 1, "in turn",
            "which mixer of the list each attention sublayer has, from 0"),
    REAL(dra_model_config, embed_scale, 0, 1e6, "1", "factor of what is embedded"),
    REAL(dra_model_config, logit_scale, 0, 1e6, "1", "factor of logits"),
    {0},
};

const dra_field *dra_model_fields(void) { return model_fields; }

/* The first field that is set, with what stands before it. */
static bool find_set(const dra_field *table, const void *in, const char *before, char *key,
                     size_t size)
{
    const dra_field *f;
    char             name[100];
    for (size_t i = 0; dra_fields_at(table, i, name, sizeof name, &f); i++) {
        if (f->fields || !dra_fields_has(table, name, in)) continue;
        snprintf(key, size, "%s%s", before, name);
        return true;
    }
    return false;
}

bool dra_model_idle_key(const dra_model_config *c, char *key, size_t size)
{
    for (int i = 0; i < c->mixers; i++)
        if (c->mixer[i].blend == DRA_BLEND_NONE &&
            find_set(dra_memory_fields, &c->mixer[i].b, "mixer.b.", key, size))
            return true;
    return !c->context_stack && find_set(dra_mixer_fields, c->cross, "cross.", key, size);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The format that model_type names; NULL: none, see the error. */
static const dra_format *format_of(const char *place, json_t *object, dra_error *err)
{
    const char       *type = json_string_value(json_object_get(object, "model_type"));
    const dra_format *f = dra_format_named(object);
    char              names[340];
    if (!json_is_object(object)) {
        dra_fail(err, DRA_ERR_FORMAT, "%.120s: JSON is no object", place);
        return NULL;
    }
    if (f) return f;
    dra_format_names(names, sizeof names);
    dra_fail(err, DRA_ERR_VALUE, "%.120s: model_type is %.40s, expected one of %s", place,
             type ? type : "missing", names);
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

/* A dra_memory begins with its name, as what a dra_field_own lists does. */
static dra_status read_fields(const char *place, json_t *object, const dra_memory *const *own,
                              dra_model_config *out, dra_error *err)
{
    static_assert(offsetof(dra_memory, name) == 0, "a dra_field_own");
    return dra_fields_read_own(model_fields, place, object, (dra_field_own)own, out->own, out, err);
}

/* dra's own config: one stack, or several. */
static dra_status read_own(const char *place, json_t *object, const dra_memory *const *own,
                           dra_model_config *out, dra_error *err)
{
    const json_t *stacks = json_object_get(object, "stacks");
    if (!stacks) return read_fields(place, object, own, out, err);
    if (json_object_size(object) > 1)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: stacks: expected no other key but model_type next to it", place);
    return dra_stacks_read(place, stacks, read_fields, own, out, err);
}

/* A config of any format. */
static dra_status read_any(const char *place, json_t *object, const dra_memory *const *own,
                           dra_model_config *out, dra_error *err)
{
    dra_error         why = {0};
    const dra_format *f = format_of(place, object, &why);
    if (!f) return dra_fail(err, why.code, "%s", why.text);
    if (f->read) return dra_format_read(f, place, object, out, err);
    const dra_status st = drop_others(place, object, err);
    return st == DRA_OK ? read_own(place, object, own, out, err) : st;
}

dra_status dra_model_config_parse(const char *place, const char *text, size_t bytes,
                                  dra_model_config **out, dra_error *err)
{
    return dra_model_config_parse_own(place, text, bytes, NULL, out, err);
}

dra_status dra_model_config_parse_own(const char *place, const char *text, size_t bytes,
                                      const dra_memory *const *own, dra_model_config **out,
                                      dra_error *err)
{
    json_t    *object = NULL;
    dra_status st = dra_config_new(out, err);
    if (st == DRA_OK)
        st = dra_json_parse(place, text, bytes, (dra_json_rules){.depth = 16, .infinity = true},
                            &object, err);
    if (st == DRA_OK) st = read_any(place, object, own, *out, err);
    json_decref(object);
    return dra_config_end(st, out);
}

dra_status dra_model_config_set(dra_model_config *config, const char *name, const char *value,
                                dra_error *err)
{
    return dra_model_config_set_own(config, NULL, name, value, err);
}

dra_status dra_model_config_set_own(dra_model_config *config, const dra_memory *const *own,
                                    const char *name, const char *value, dra_error *err)
{
    const dra_model_config **others[] = {&config->context_stack, &config->prepend_stack};
    const dra_format        *format = dra_format_of(config);
    dra_model_config        *other;
    dra_status               by_format, st = dra_config_check_own(config, err);
    if (st == DRA_OK && format->set && format->set(config, name, value, &by_format, err))
        return by_format;
    for (int i = 0; i < 2 && st == DRA_OK; i++) {
        const size_t n = *others[i] ? strlen((*others[i])->name) : 0;
        if (!n || strncmp(name, (*others[i])->name, n) != 0 || name[n] != '.') continue;
        st = dra_config_edit_stack(config, others[i], &other, err);
        return st == DRA_OK ? dra_model_config_set_own(other, own, name + n + 1, value, err) : st;
    }
    if (st != DRA_OK) return st;
    return dra_fields_set_own(model_fields, config, (dra_field_own)own, config->own, name, value,
                              err);
}

static void name_value(const dra_field *f, char *text, size_t size)
{
    static const char *const by_kind[] = {
        [DRA_FIELD_INT] = "N",           [DRA_FIELD_REAL] = "X",
        [DRA_FIELD_BOOL] = "true|false", [DRA_FIELD_SWITCH] = "true|false",
        [DRA_FIELD_PAIR] = "[X,X]",      [DRA_FIELD_INTS] = "[N,...]",
        [DRA_FIELD_REALS] = "[X,...]",   [DRA_FIELD_TEXT] = "TEXT"};
    const bool chosen = f->kind == DRA_FIELD_CHOICE || f->kind == DRA_FIELD_NAME;
    size_t     n = 0;
    snprintf(text, size, "%s", f->fields || chosen ? "" : by_kind[f->kind]);
    for (int i = 0; chosen && f->choices[i] && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? "|" : "", f->choices[i]);
}

bool dra_config_key_at(size_t i, dra_config_key *out)
{
    const dra_field *f;
    *out = (dra_config_key){0};
    if (!dra_fields_at(model_fields, i, out->name, sizeof out->name, &f)) return false;
    name_value(f, out->value, sizeof out->value);
    out->unset = f->unset || f->fields ? f->unset : f->choices[0];
    out->about = f->about;
    return true;
}

/* A mixer alone names itself and says what it otherwise takes from the model. Heads play no
 * part in wkv, only all their channels do. */
static void spell_out(const dra_model_config *c, dra_mixer_config *m)
{
    if (!m->a.memory) m->a.memory = dra_memory_at(0)->name;
    const dra_memory *memory = m->a.own ? m->a.own : dra_memory_find(m->a.memory);
    if (!m->a.retrieval && memory) m->a.retrieval = memory->retrievals[0];
    if (!m->heads) m->heads = c->heads;
    const bool wkv = !m->a.own && strcmp(m->a.memory, "wkv") == 0;
    if (wkv && !m->key_dim && !c->key_dim && c->dim % m->heads) m->heads = 1;
    if (!m->key_dim) m->key_dim = c->key_dim ? c->key_dim : c->dim / m->heads;
    if (!m->value_dim) m->value_dim = c->value_dim ? c->value_dim : m->key_dim;
    if (!wkv) return;
    m->key_dim = m->value_dim = m->key_dim * m->heads;
    m->heads = 1;
}

/* Copies the mixers of c, for it to have these. */
static void take_mixers(dra_model_config *c, dra_mixer_config mixer[DRA_MIXERS_MOST])
{
    if (c->mixers > DRA_MIXERS_MOST) c->mixers = DRA_MIXERS_MOST;
    if (!c->mixer) c->mixers = 0;
    for (int i = 0; i < c->mixers; i++) mixer[i] = c->mixer[i];
    c->mixer = mixer;
}

/* The config as JSON in dra's own names. That a blend's value was given is said of schedules alone:
 * any other is 0 by default. */
static json_t *write_fields(dra_json *j, const dra_model_config *c)
{
    dra_mixer_config mixer[DRA_MIXERS_MOST];
    dra_model_config same = *c;
    take_mixers(&same, mixer);
    for (int i = 0; i < same.mixers; i++)
        if (mixer[i].blend != DRA_BLEND_INPUT) mixer[i].blend_given = false;
    return dra_fields_write(j, model_fields, &same);
}

/* The same with everything filled in. */
static json_t *write_all(dra_json *j, const dra_model_config *c)
{
    dra_mixer_config mixer[DRA_MIXERS_MOST], cross;
    dra_model_config full = *c;
    dra_model_config_complete(&full);
    take_mixers(&full, mixer);
    for (int i = 0; i < full.mixers; i++) spell_out(&full, &mixer[i]);
    cross = *full.cross;
    full.cross = &cross;
    if (full.context_stack) spell_out(&full, &cross);
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
