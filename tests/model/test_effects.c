/* Every key of dra's own config, over all memories and retrievals: one that is taken changes
 * something. Made from the field tables; tests/data/effects.json has values, what some keys need
 * besides, and those that change nothing in a model, with the reason. */
#include <jansson.h>

#include "dra/memory.h"
#include "effect.h"
#include "file/fields.h"
#include "formats/format.h"
#include "model/model.h"

static json_t *file;

typedef struct subject { /* a memory with a retrieval */
    char             name[60];
    bool             first; /* the only one in which keys of other parts are tried */
    dra_model_config c;
    effect_model     without;
    char             has[400];
    int              accepted, refused, seen[EFFECT_NOTHING + 1], explained, unexplained;
} subject;

/* ---- configs --------------------------------------------------------------------------------- */

static void open_subject(subject *s, const char *memory, const char *retrieval)
{
    char         text[400];
    dra_error    err = {0};
    const bool   window = strcmp(retrieval, "window") == 0, slots = strcmp(memory, "slots") == 0;
    const size_t n = (size_t)snprintf(
        text, sizeof text,
        "{\"model_type\": \"dra\", \"vocab\": 10, \"dim\": 16, \"depth\": 2, \"heads\": 4, "
        "\"context\": 16, \"mixer\": {\"memory\": \"%s\", \"retrieval\": \"%s\"%s}}",
        memory, retrieval,
        window  ? ", \"window\": 5"
        : slots ? ", \"slots\": 2"
                : "");
    snprintf(s->name, sizeof s->name, "%s %s", memory, retrieval);
    if (dra_model_config_parse("config", text, n, &s->c, &err) != DRA_OK) fail_msg("%s", err.text);
}

/* As a text that fields are set from; "": a list or a struct. */
static const char *as_text(const json_t *v, char *room, size_t size)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    assert_non_null(text);
    snprintf(room, size, "%s", json_is_string(v) ? json_string_value(v) : text);
    free(text);
    return room;
}

static bool set(dra_model_config *c, const char *name, const char *value, dra_error *err)
{
    return dra_model_config_set(c, name, value, err) == DRA_OK;
}

/* ---- one key --------------------------------------------------------------------------------- */

static bool fits(const char *list, const char *name)
{
    for (const char *at = list; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t n = strcspn(at, "|*");
        if (strncmp(at, name, n) == 0 && (at[n] == '*' || name[n] == 0)) return true;
    }
    return false;
}

/* keys: "name", or "name=value". */
static bool is_explained(const subject *s, const char *name, const char *value)
{
    const json_t *row;
    size_t        i;
    char          both[120];
    snprintf(both, sizeof both, "%s=%s", name, value);
    json_array_foreach(json_object_get(file, "explained"), i, row)
    {
        const char *keys = json_string_value(json_object_get(row, "keys"));
        if (fits(json_string_value(json_object_get(row, "subjects")), s->name) &&
            (fits(keys, name) || fits(keys, both)))
            return true;
    }
    return false;
}

static void count(subject *s, const char *name, const char *value, effect_kind what)
{
    s->accepted++;
    s->seen[what]++;
    if (what != EFFECT_NOTHING) return;
    if (is_explained(s, name, value)) {
        s->explained++;
        return;
    }
    s->unexplained++;
    print_error("%s: %s=%s changes nothing\n", s->name, name, value);
}

/* The model without the key: `more` is what the key needs. */
static bool open_without(subject *s, const dra_model_config *c, const char *more)
{
    if (s->without.model && strcmp(s->has, more) == 0) return true;
    effect_close(&s->without);
    snprintf(s->has, sizeof s->has, "%s", more);
    s->without = (effect_model){.c = *c, .device = check_device(1, "ref")};
    effect_make(&s->without);
    return s->without.model;
}

static void try_value(subject *s, const char *name, const char *value)
{
    const json_t    *needs = json_object_get(json_object_get(file, "has"), name);
    dra_model_config c = s->c;
    dra_error        err = {0};
    char             room[100], more[400] = "";
    const char      *key;
    json_t          *v;
    json_object_foreach((json_t *)(uintptr_t)needs, key, v)
    {
        const size_t n = strlen(more);
        snprintf(more + n, sizeof more - n, "%s=%s ", key, as_text(v, room, sizeof room));
        if (!set(&c, key, room, &err)) fail_msg("%s: %s", name, err.text);
    }
    if (!open_without(s, &c, more)) {
        s->refused++;
        return;
    }
    effect_model with = {.c = c, .device = check_device(1, "ref")};
    if (!set(&with.c, name, value, &err)) fail_msg("%s=%s: %s", name, value, err.text);
    effect_make(&with);
    if (with.model)
        count(s, name, value, effect_of(&s->without, &with));
    else
        s->refused++;
    effect_close(&with);
}

static void try_key(subject *s, const char *name, const dra_field *f)
{
    const json_t *v = json_object_get(json_object_get(file, "values"), name);
    char          room[200];
    if (v) {
        try_value(s, name, as_text(v, room, sizeof room));
        return;
    }
    switch (f->kind) {
    case DRA_FIELD_BOOL: try_value(s, name, "true"); break;
    case DRA_FIELD_SWITCH:
        try_value(s, name, "true");
        try_value(s, name, "false");
        break;
    case DRA_FIELD_CHOICE:
        for (int i = 1; f->choices[i]; i++) try_value(s, name, f->choices[i]);
        break;
    case DRA_FIELD_INT: try_value(s, name, "2"); break;
    case DRA_FIELD_REAL: try_value(s, name, f->max == 1 || f->max < 1 ? "0.3" : "1.5"); break;
    default: fail_msg("%s has no value in effects.json", name);
    }
}

/* ---- all keys -------------------------------------------------------------------------------- */

/* What memories and retrievals have to do with. */
static bool is_of_reading(const char *name)
{
    return fits("mixer.*|position.*|visible|xl.*|attention_dropout|layer_scale|key_dim|value_dim|"
                "bias|block.memory_residual|block.project",
                name);
}

static void try_all(subject *s)
{
    const dra_field *f;
    char             name[100];
    for (size_t i = 0; dra_fields_at(dra_model_fields(), i, name, sizeof name, &f); i++) {
        if (f->fields || (fits("mixer.memory|mixer.retrieval|mixer.b*|cross*|vocab", name) &&
                          !fits("mixer.blend*|mixer.bonus*", name)))
            continue;
        if (s->first || is_of_reading(name)) try_key(s, name, f);
    }
}

static void keys_have_effects(void **state)
{
    int accepted = 0, refused = 0, explained = 0, unexplained = 0, seen[EFFECT_NOTHING + 1] = {0};
    for (size_t i = 0; dra_memory_at(i); i++)
        for (const char *const *r = dra_memory_at(i)->retrievals; *r; r++) {
            subject s = {.first = i == 0 && r == dra_memory_at(i)->retrievals};
            open_subject(&s, dra_memory_at(i)->name, *r);
            try_all(&s);
            effect_close(&s.without);
            print_message("# %-20s %3d accepted %3d refused\n", s.name, s.accepted, s.refused);
            accepted += s.accepted, refused += s.refused;
            explained += s.explained, unexplained += s.unexplained;
            for (int k = 0; k <= EFFECT_NOTHING; k++) seen[k] += s.seen[k];
        }
    print_message("# %d accepted, %d refused; they change", accepted, refused);
    for (int k = 0; k <= EFFECT_NOTHING; k++) print_message(" %s %d,", effect_names[k], seen[k]);
    print_message(" %d explained, %d unexplained\n", explained, unexplained);
    assert_int_equal(unexplained, 0);
}

int main(void)
{
    json_error_t            e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_have_effects)};
    file = json_load_file("tests/data/effects.json", 0, &e);
    const int failed = file ? check_main("effects", NULL, 0, tests, COUNT(tests)) : 1;
    json_decref(file);
    return failed;
}
