/* Every key of dra's own config, over all memories and retrievals, those of a blend's second memory
 * over all that it can be, and those of cross-attention: one that is taken changes something. Made
 * from the field tables; tests/data/effects.json has values, what some keys need besides, and those
 * that change nothing in a model, with the reason. */
#include <jansson.h>

#include "dra/memory.h"
#include "effect.h"
#include "file/fields.h"
#include "formats/format.h"
#include "model/model.h"

static json_t *file;

typedef struct subject { /* a memory with a retrieval */
    char              name[60];
    const char       *prefix; /* what is tried has it where other subjects have "mixer." */
    bool              first;  /* the only one in which keys of other parts are tried */
    dra_model_config *c;
    effect_model      without;
    char              has[400];
    int               accepted, refused, seen[EFFECT_NOTHING + 1], explained, unexplained;
} subject;

/* ---- configs --------------------------------------------------------------------------------- */

#define SMALL "\"vocab\": 10, \"dim\": 16, \"depth\": 2, \"heads\": 4"

static void parse_subject(subject *s, const char *text)
{
    dra_error err = {0};
    if (dra_model_config_parse("config", text, strlen(text), &s->c, &err) != DRA_OK)
        fail_msg("%s", err.text);
}

static dra_model_config *copy_of(const dra_model_config *c)
{
    dra_model_config *copy;
    dra_error         err = {0};
    if (dra_model_config_copy(c, &copy, &err) != DRA_OK) fail_msg("%s", err.text);
    return copy;
}

/* The memory alone, or as the second of a blend with attention. */
static void open_subject(subject *s, const char *memory, const char *retrieval)
{
    char       text[400], keys[200];
    const bool window = strcmp(retrieval, "window") == 0, slots = strcmp(memory, "slots") == 0;
    const bool second = s->prefix != NULL;
    snprintf(keys, sizeof keys, "{\"memory\": \"%s\", \"retrieval\": \"%s\"%s}", memory, retrieval,
             window  ? ", \"window\": 5"
             : slots ? ", \"slots\": 2"
                     : "");
    snprintf(text, sizeof text,
             "{\"model_type\": \"dra\", " SMALL ", \"context\": 16, \"mixer\": %s%s%s}",
             second ? "{\"blend\": \"number\", \"blend_value\": 0.5, \"b\": " : "", keys,
             second ? "}" : "");
    snprintf(s->name, sizeof s->name, "%s%s %s", second ? "b " : "", memory, retrieval);
    parse_subject(s, text);
}

static void open_cross(subject *s)
{
    snprintf(s->name, sizeof s->name, "cross");
    parse_subject(s, "{\"model_type\": \"dra\", \"stacks\": {\"encoder\": {" SMALL
                     ", \"visible\": \"bidirectional\", \"head\": {\"kind\": \"none\"}}, "
                     "\"decoder\": {" SMALL ", \"context\": \"encoder\"}}}");
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

/* The name of a key in effects.json, which knows those of "mixer." alone. */
static const char *plain_name(const subject *s, const char *name, char *room, size_t size)
{
    const size_t n = s->prefix ? strlen(s->prefix) : 0;
    if (!n || strncmp(name, s->prefix, n) != 0) return name;
    snprintf(room, size, "mixer.%s", name + n);
    return room;
}

static const json_t *of_key(const subject *s, const char *part, const char *name)
{
    const json_t *list = json_object_get(file, part), *own = json_object_get(list, name);
    char          plain[100];
    return own ? own : json_object_get(list, plain_name(s, name, plain, sizeof plain));
}

/* keys: "name", or "name=value". */
static bool is_explained(const subject *s, const char *name, const char *value)
{
    const json_t *row;
    size_t        i;
    char          plain[100], both[120];
    name = plain_name(s, name, plain, sizeof plain);
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
    s->without = (effect_model){.c = copy_of(c), .device = check_device(1, "ref")};
    effect_make(&s->without);
    return s->without.model;
}

/* A key of effects.json where the subject has it. */
static const char *own_name(const subject *s, const char *key, char *room, size_t size)
{
    if (!s->prefix || strncmp(key, "mixer.", 6) != 0) return key;
    snprintf(room, size, "%s%s", s->prefix, key + 6);
    return room;
}

static void try_value(subject *s, const char *name, const char *value)
{
    char                          own[100];
    const json_t                 *needs = of_key(s, "has", name);
    CHECK_OWNED dra_model_config *c = copy_of(s->c);
    dra_error                     err = {0};
    char                          room[100], more[400] = "";
    const char                   *key;
    json_t                       *v;
    json_object_foreach((json_t *)(uintptr_t)needs, key, v)
    {
        const size_t n = strlen(more);
        snprintf(more + n, sizeof more - n, "%s=%s ", key, as_text(v, room, sizeof room));
        if (!set(c, own_name(s, key, own, sizeof own), room, &err))
            fail_msg("%s: %s", name, err.text);
    }
    if (!open_without(s, c, more)) {
        s->refused++;
        return;
    }
    effect_model with = {.c = copy_of(c), .device = check_device(1, "ref")};
    if (!set(with.c, name, value, &err)) fail_msg("%s=%s: %s", name, value, err.text);
    effect_make(&with);
    if (with.model)
        count(s, name, value, effect_of(&s->without, &with));
    else
        s->refused++;
    effect_close(&with);
}

static void try_key(subject *s, const char *name, const dra_field *f)
{
    char          room[200];
    const json_t *v = of_key(s, "values", name);
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

/* Keys of one table, whose names begin with the subject's prefix. */
static void try_table(subject *s, const dra_field *table)
{
    const dra_field *f;
    char             below[100], name[140];
    for (size_t i = 0; dra_fields_at(table, i, below, sizeof below, &f); i++) {
        if (f->fields || fits("memory|retrieval|b*|blend*", below)) continue;
        snprintf(name, sizeof name, "%s%s", s->prefix, below);
        try_key(s, name, f);
    }
}

typedef struct totals {
    int accepted, refused, explained, unexplained, seen[EFFECT_NOTHING + 1];
} totals;

static void end_subject(subject *s, totals *all)
{
    effect_close(&s->without);
    dra_model_config_destroy(s->c);
    print_message("# %-20s %3d accepted %3d refused\n", s->name, s->accepted, s->refused);
    all->accepted += s->accepted, all->refused += s->refused;
    all->explained += s->explained, all->unexplained += s->unexplained;
    for (int k = 0; k <= EFFECT_NOTHING; k++) all->seen[k] += s->seen[k];
}

static void end_subjects(const totals *all)
{
    print_message("# %d accepted, %d refused; they change", all->accepted, all->refused);
    for (int k = 0; k <= EFFECT_NOTHING; k++)
        print_message(" %s %d,", effect_names[k], all->seen[k]);
    print_message(" %d explained, %d unexplained\n", all->explained, all->unexplained);
    assert_int_equal(all->unexplained, 0);
}

static void keys_have_effects(void **state)
{
    totals all = {0};
    for (size_t i = 0; dra_memory_at(i); i++)
        for (const char *const *r = dra_memory_at(i)->retrievals; *r; r++) {
            subject s = {.first = i == 0 && r == dra_memory_at(i)->retrievals};
            open_subject(&s, dra_memory_at(i)->name, *r);
            try_all(&s);
            end_subject(&s, &all);
        }
    end_subjects(&all);
}

static const dra_field *table_of(const char *key)
{
    const dra_field *f;
    char             name[100];
    for (size_t i = 0; dra_fields_at(dra_model_fields(), i, name, sizeof name, &f); i++)
        if (strcmp(name, key) == 0) return f->fields;
    fail_msg("%s is no table", key);
    return NULL;
}

static void second_memories_have_effects(void **state)
{
    totals all = {0};
    for (size_t i = 0; dra_memory_at(i); i++)
        for (const char *const *r = dra_memory_at(i)->retrievals; *r; r++) {
            subject s = {.prefix = "mixer.b."};
            open_subject(&s, dra_memory_at(i)->name, *r);
            try_table(&s, table_of("mixer.b"));
            end_subject(&s, &all);
        }
    end_subjects(&all);
}

static void cross_has_effects(void **state)
{
    totals  all = {0};
    subject s = {.prefix = "cross."};
    open_cross(&s);
    try_table(&s, table_of("cross"));
    end_subject(&s, &all);
    end_subjects(&all);
}

/* Of a part that the model does not have. */
static void idle_parts_are_refused(void **state)
{
    static const struct {
        const char *key, *value, *text;
    } rows[] = {{"cross.heads", "2", "model: cross.heads without a context"},
                {"cross.memory", "gru", "model: cross.memory without a context"},
                {"mixer.b.slots", "4", "model: mixer.b.slots without a blend"},
                {"mixer.b.gamma.range", "[1, 3]", "model: mixer.b.gamma.range without a blend"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        subject   s = {0};
        dra_error err = {0};
        open_subject(&s, "append", "time");
        assert_true(set(s.c, rows[i].key, rows[i].value, &err));
        effect_model m = {.c = s.c};
        effect_make(&m);
        assert_string_equal(m.err.text, rows[i].text);
        effect_close(&m);
    }
}

int main(void)
{
    json_error_t            e;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_effects), cmocka_unit_test(second_memories_have_effects),
        cmocka_unit_test(cross_has_effects), cmocka_unit_test(idle_parts_are_refused)};
    file = json_load_file("tests/data/effects.json", 0, &e);
    const int failed = file ? check_main("effects", NULL, 0, tests, COUNT(tests)) : 1;
    json_decref(file);
    return failed;
}
