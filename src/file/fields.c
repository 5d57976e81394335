/* Structs described by tables: from JSON, from "name=value", to JSON. */
#include "file/fields.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { PATH_TEXT = 120 };

typedef struct reading {
    const char   *place;
    char          path[PATH_TEXT]; /* dotted, of the object being read */
    dra_field_own own;
    dra_arena    *memory;
    dra_error    *err;
} reading;

static dra_status read_object(reading *r, const dra_field *table, const json_t *object, char *to);

/* ---- errors: "config.json: mixer.gamma.init is 3, expected ..." ------------------------------ */

static dra_status fail_field(const reading *r, const char *name, const char *text)
{
    return dra_fail(r->err, DRA_ERR_VALUE, "%.120s: %s%s%.60s %s", r->place, r->path,
                    r->path[0] ? "." : "", name, text);
}

static dra_status expect_value(const reading *r, const char *name, const json_t *v,
                               const char *what)
{
    char  text[400];
    char *is = dra_json_words(v, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(text, sizeof text, "is %.40s%s, expected %s", is ? is : "?",
             is && strlen(is) > 40 ? "..." : "", what);
    free(is);
    return fail_field(r, name, text);
}

static dra_status fail_memory(const reading *r)
{
    return dra_fail(r->err, DRA_ERR_MEMORY, "%.120s: out of memory", r->place);
}

/* ---- where fields are ------------------------------------------------------------------------ */

/* NULL: nowhere. */
static const char *place_of(const dra_field *f, const char *base)
{
    const char *at = base + f->offset;
    return f->away ? *(const char *const *)(const void *)at : at;
}

static int count_of(const dra_field *f, const char *base)
{
    return f->kind == DRA_FIELD_LIST ? *(const int *)(const void *)(base + f->given) : 1;
}

/* Field i of what a program has brought to the struct at `base`; false: there is none. */
static bool own_field(const dra_field *f, const char *base, size_t i, dra_field *out)
{
    const void *own = *(const void *const *)(const void *)(base + f->given);
    return own && f->row(own, i, out);
}

/* Names of this table, and of those whose keys stand in it. */
static void try_names(dra_guess *guess, const dra_field *table, const char *base)
{
    dra_field own;
    for (const dra_field *f = table; f->name; f++)
        if (f->kind == DRA_FIELD_INLINE)
            try_names(guess, f->fields, base + f->offset);
        else if (f->kind == DRA_FIELD_OWN)
            for (size_t i = 0; own_field(f, base, i, &own); i++) dra_guess_try(guess, own.name);
        else
            dra_guess_try(guess, f->name);
}

/* A key of that name in one of the objects below, or what other programs call it. */
static bool find_below(const dra_field *table, const char *name, char dotted[PATH_TEXT])
{
    const dra_field *f;
    for (size_t i = 0; dra_fields_at(table, i, dotted, PATH_TEXT, &f); i++) {
        const char *last = strrchr(dotted, '.');
        dra_guess   guess = {.typed = name};
        if (!last) continue;
        if (strcmp(last + 1, name) == 0) return true;
        dra_guess_try(&guess, dotted);
        if (guess.best && guess.wrong <= DRA_GUESS_MEANT) return true;
    }
    return false;
}

static dra_status refuse_key(const reading *r, const dra_field *table, const char *name,
                             const char *base)
{
    char      text[200] = "is not a key";
    dra_guess guess = {.typed = name};
    char      nested[PATH_TEXT];
    try_names(&guess, table, base);
    const bool meant = guess.best && guess.wrong <= DRA_GUESS_MEANT;
    if (!meant && !r->path[0] && find_below(table, name, nested)) guess.best = nested;
    if (guess.best) snprintf(text, sizeof text, "is not a key; did you mean %s?", guess.best);
    return fail_field(r, name, text);
}

/* ---- one field ------------------------------------------------------------------------------- */

bool dra_field_zero_is_unset(const dra_field *f)
{
    static const char *const same[] = {"0", "none", "never", "required"};
    if (f->zero || f->given || !f->unset) return false;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (strcmp(f->unset, same[i]) == 0) return false;
    return true;
}

/* A 0 must not silently become another number. */
static dra_status refuse_zero(const reading *r, const dra_field *f)
{
    char text[200];
    snprintf(text, sizeof text, "is 0, which stands for the default (%.100s); leave it out",
             f->unset);
    return fail_field(r, f->name, text);
}

static dra_status read_number(reading *r, const dra_field *f, const json_t *v, char *to, char *base)
{
    char         range[80];
    const bool   whole = f->kind == DRA_FIELD_INT, ranged = f->min < f->max;
    const bool   above = f->min == 0 && dra_field_zero_is_unset(f);
    const char  *from = above && !whole ? "above" : "from";
    const double least = above && whole ? 1 : f->min;
    snprintf(range, sizeof range, ranged ? "%s %s %.10g to %.10g" : "%s",
             whole ? "a whole number" : "a number", from, least, f->max);
    if (whole ? !json_is_integer(v) : !json_is_number(v)) return expect_value(r, f->name, v, range);
    const double x = json_number_value(v);
    const bool   zero = f->zero && x == 0;
    if (ranged && !(x >= f->min && x <= f->max)) return expect_value(r, f->name, v, range);
    if (x == 0 && dra_field_zero_is_unset(f)) return refuse_zero(r, f);
    if (whole)
        *(int64_t *)(void *)to = zero ? -1 : json_integer_value(v);
    else
        *(double *)(void *)to = zero ? -1 : x;
    if (f->given) *(bool *)(base + f->given) = true;
    return DRA_OK;
}

static const char *name_of(const void *own) { return *(const char *const *)own; }

/* Something of the program's own; *is: that is what the value names. */
static dra_status read_own(reading *r, const dra_field *f, const json_t *v, char *base, bool *is)
{
    static const char prefix[] = "own:";
    char              text[200];
    const char       *name = json_is_string(v) ? json_string_value(v) : "";
    *is = f->kind == DRA_FIELD_NAME && f->given && strncmp(name, prefix, sizeof prefix - 1) == 0;
    if (f->kind == DRA_FIELD_NAME && f->given) *(const void **)(void *)(base + f->given) = NULL;
    if (!*is) return DRA_OK;
    for (dra_field_own own = r->own; own && *own; own++) {
        if (strcmp(name + sizeof prefix - 1, name_of(*own)) != 0) continue;
        *(const void **)(void *)(base + f->given) = *own;
        return DRA_OK;
    }
    snprintf(text, sizeof text, "is %.60s, which only the program that made it has", name);
    return fail_field(r, f->name, text);
}

static dra_status read_choice(reading *r, const dra_field *f, const json_t *v, char *to, char *base)
{
    char             text[260];
    size_t           at = 0;
    const char      *word = json_string_value(v);
    dra_guess        guess = {.typed = word ? word : ""};
    bool             own;
    const dra_status st = read_own(r, f, v, base, &own);
    if (own) return st;
    if (word && f->also && strcmp(word, f->also) == 0) word = f->choices[0];
    for (int i = 0; f->choices[i]; i++) {
        if (word && strcmp(word, f->choices[i]) == 0) {
            if (f->kind == DRA_FIELD_CHOICE)
                *(int *)(void *)to = i;
            else
                *(const char **)(void *)to = f->choices[i];
            return DRA_OK;
        }
        const int n = snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "one of ",
                               f->choices[i]);
        if (n > 0 && at + (size_t)n < sizeof text) at += (size_t)n;
        dra_guess_try(&guess, f->choices[i]);
    }
    if (f->also) dra_guess_try(&guess, f->also);
    if (guess.best) snprintf(text + at, sizeof text - at, "; did you mean %s?", guess.best);
    return expect_value(r, f->name, v, text);
}

static dra_status read_flag(reading *r, const dra_field *f, const json_t *v, char *to)
{
    if (!json_is_boolean(v)) return expect_value(r, f->name, v, "true or false");
    if (f->kind == DRA_FIELD_BOOL)
        *(bool *)to = json_is_true(v);
    else
        *(int *)(void *)to = json_is_true(v) ? 1 : 2;
    return DRA_OK;
}

static dra_status read_pair(reading *r, const dra_field *f, const json_t *v, char *to, char *base)
{
    const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_number(a) || !json_is_number(b))
        return expect_value(r, f->name, v, "a list of two numbers");
    ((double *)(void *)to)[0] = json_number_value(a);
    ((double *)(void *)to)[1] = json_number_value(b);
    if (f->given) *(bool *)(base + f->given) = true;
    return DRA_OK;
}

static dra_status read_numbers(reading *r, const dra_field *f, const json_t *v, char *to,
                               char *base)
{
    const bool   whole = f->kind == DRA_FIELD_INTS;
    const size_t n = json_array_size(v);
    char         what[100];
    snprintf(what, sizeof what, "a list of at most %d %s from %.10g to %.10g", f->most,
             whole ? "whole numbers" : "numbers", f->min, f->max);
    const bool listed = json_is_array(v) && n <= (size_t)f->most;
    void      *list = listed ? dra_arena_alloc(r->memory, n * sizeof(int64_t)) : NULL;
    bool       fits = listed;
    if (listed && !list) return fail_memory(r);
    for (size_t i = 0; i < n && fits; i++) {
        const json_t *x = json_array_get(v, i);
        const double  number = json_number_value(x);
        fits = (whole ? json_is_integer(x) : json_is_number(x)) && number >= f->min &&
               number <= f->max;
        if (fits && whole) ((int64_t *)list)[i] = json_integer_value(x);
        if (fits && !whole) ((double *)list)[i] = number;
    }
    if (!fits) return expect_value(r, f->name, v, what);
    *(const void **)(void *)to = list;
    *(int *)(void *)(base + f->given) = (int)n;
    return DRA_OK;
}

static dra_status read_text(reading *r, const dra_field *f, const json_t *v, char *to)
{
    const char *text = json_string_value(v);
    char        what[100];
    snprintf(what, sizeof what, "a text of at most %d of the letters %s", f->most - 1,
             f->choices[0]);
    if (!text || strlen(text) >= (size_t)f->most || strspn(text, f->choices[0]) != strlen(text))
        return expect_value(r, f->name, v, what);
    memcpy(to, text, strlen(text) + 1);
    return DRA_OK;
}

/* Reads the object under `name`, below the present path. */
static dra_status descend_into(reading *r, const char *name, const dra_field *table,
                               const json_t *v, char *to)
{
    const size_t at = strlen(r->path);
    if (!json_is_object(v)) return expect_value(r, name, v, "an object");
    snprintf(r->path + at, sizeof r->path - at, "%s%.40s", at ? "." : "", name);
    const dra_status st = read_object(r, table, v, to);
    r->path[at] = '\0';
    return st;
}

/* "0" to "most - 1", or -1. */
static int number_of(const char *key, int most)
{
    char     *end;
    const int i = key[0] >= '0' && key[0] <= '9' ? (int)strtol(key, &end, 10) : -1;
    return i >= 0 && i < most && *end == '\0' ? i : -1;
}

static dra_status read_list(reading *r, const dra_field *f, const json_t *v, char *to, char *base)
{
    int *const  count = (int *)(void *)(base + f->given);
    const int   have = *count ? *count : 1;
    char        name[PATH_TEXT], what[60];
    const char *key;
    json_t     *item;
    dra_status  st = DRA_OK;
    if (json_is_array(v)) {
        const size_t n = json_array_size(v);
        snprintf(what, sizeof what, "an object or a list of 1 to %d", f->most);
        if (n < 1 || n > (size_t)f->most) return expect_value(r, f->name, v, what);
        memset(to, 0, f->size * n);
        for (size_t i = 0; i < n && st == DRA_OK; i++) {
            snprintf(name, sizeof name, "%.40s.%zu", f->name, i);
            st = descend_into(r, name, f->fields, json_array_get(v, i), to + i * f->size);
        }
        if (st == DRA_OK) *count = (int)n;
        return st;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, item)
    {
        const int i = number_of(key, have);
        if (i < 0) break;
        snprintf(name, sizeof name, "%.40s.%d", f->name, i);
        return descend_into(r, name, f->fields, item, to + (size_t)i * f->size);
    }
    for (int i = 0; i < have && st == DRA_OK; i++)
        st = descend_into(r, f->name, f->fields, v, to + (size_t)i * f->size);
    if (st == DRA_OK) *count = have;
    return st;
}

static dra_status read_at(reading *r, const dra_field *f, const json_t *v, char *to, char *base)
{
    switch (f->kind) {
    case DRA_FIELD_INT:
    case DRA_FIELD_REAL: return read_number(r, f, v, to, base);
    case DRA_FIELD_BOOL:
    case DRA_FIELD_SWITCH: return read_flag(r, f, v, to);
    case DRA_FIELD_CHOICE:
    case DRA_FIELD_NAME: return read_choice(r, f, v, to, base);
    case DRA_FIELD_PAIR: return read_pair(r, f, v, to, base);
    case DRA_FIELD_INLINE:
    case DRA_FIELD_OWN: break; /* are never found */
    case DRA_FIELD_OBJECT: return descend_into(r, f->name, f->fields, v, to);
    case DRA_FIELD_LIST: return read_list(r, f, v, to, base);
    case DRA_FIELD_INTS:
    case DRA_FIELD_REALS: return read_numbers(r, f, v, to, base);
    case DRA_FIELD_TEXT: return read_text(r, f, v, to);
    }
    return DRA_OK;
}

/* Bytes that the value of a field away takes; one that does not fit is refused by who reads it. */
static size_t bytes_away(const dra_field *f, const json_t *v, size_t have)
{
    const size_t n = json_array_size(v);
    if (f->kind == DRA_FIELD_TEXT) return json_string_length(v) + 1;
    return f->size * (n > have && n <= (size_t)f->most ? n : have);
}

/* What lies away is read into a copy, which then takes its place. */
static dra_status read_away(reading *r, const dra_field *f, const json_t *v, char *base)
{
    const char  *before = place_of(f, base);
    const int    count = count_of(f, base);
    const size_t have = count > 0 ? (size_t)count : 1;
    char        *to = dra_arena_alloc(r->memory, bytes_away(f, v, have));
    if (!to) return fail_memory(r);
    if (before && f->kind != DRA_FIELD_TEXT) memcpy(to, before, f->size * have);
    const dra_status st = read_at(r, f, v, to, base);
    if (st == DRA_OK) *(const void **)(void *)(base + f->offset) = to;
    return st;
}

static dra_status read_field(reading *r, const dra_field *f, const json_t *v, char *base)
{
    return f->away ? read_away(r, f, v, base) : read_at(r, f, v, base + f->offset, base);
}

/* The field with this key; what it is an offset from becomes `base`. One of a program's own is told
 * in `own`. NULL: there is none. */
static const dra_field *find_field(const dra_field *table, const char *key, char **base,
                                   dra_field *own)
{
    for (const dra_field *f = table; f->name; f++) {
        char            *inner = *base + f->offset;
        const dra_field *found = NULL;
        if (f->kind == DRA_FIELD_INLINE) found = find_field(f->fields, key, &inner, own);
        for (size_t i = 0; f->kind == DRA_FIELD_OWN && !found && own_field(f, *base, i, own); i++)
            if (strcmp(own->name, key) == 0) found = own;
        if (found) {
            *base = inner;
            return found;
        }
        if (*key && strcmp(f->name, key) == 0) return f;
    }
    return NULL;
}

/* What a program brings is read before its fields are, wherever its key stands; with another one,
 * the fields of the one before are forgotten. */
static dra_status read_brought(reading *r, const dra_field *table, const json_t *object, char *to)
{
    const dra_field *own = NULL, *name = NULL;
    dra_status       st = DRA_OK;
    for (const dra_field *f = table; f->name && st == DRA_OK; f++) {
        if (f->kind == DRA_FIELD_INLINE) st = read_brought(r, f->fields, object, to + f->offset);
        if (f->kind == DRA_FIELD_OWN) own = f;
    }
    for (const dra_field *f = table; own && f->name; f++)
        if (f->kind == DRA_FIELD_NAME && f->given == own->given) name = f;
    const json_t *v = name ? json_object_get(object, name->name) : NULL;
    if (!v || st != DRA_OK) return st;
    const void *before = *(const void **)(void *)(to + own->given);
    st = read_choice(r, name, v, to + name->offset, to);
    if (*(const void **)(void *)(to + own->given) != before) memset(to + own->offset, 0, own->size);
    return st;
}

static dra_status read_object(reading *r, const dra_field *table, const json_t *object, char *to)
{
    const char *key;
    json_t     *v;
    dra_field   own;
    dra_status  st = read_brought(r, table, object, to);
    if (st != DRA_OK) return st;
    json_object_foreach((json_t *)(uintptr_t)object, key, v)
    {
        char            *base = to;
        const dra_field *f = find_field(table, key, &base, &own);
        st = f ? read_field(r, f, v, base) : refuse_key(r, table, key, to);
        if (st != DRA_OK) return st;
    }
    return DRA_OK;
}

dra_status dra_fields_read(const dra_field *table, const char *place, const json_t *object,
                           void *to, dra_error *err)
{
    return dra_fields_read_own(table, place, object, NULL, NULL, to, err);
}

dra_status dra_fields_read_own(const dra_field *table, const char *place, const json_t *object,
                               dra_field_own own, dra_arena *memory, void *to, dra_error *err)
{
    reading r = {.place = place, .own = own, .memory = memory, .err = err};
    if (!json_is_object(object))
        return dra_fail(err, DRA_ERR_FORMAT, "%.120s: JSON is no object", place);
    return read_object(&r, table, object, to);
}

/* ---- one field by name ----------------------------------------------------------------------- */

/* {"gamma": {"range": value}} of "gamma.range". */
static json_t *nest_value(dra_json *j, const char *name, json_t *value)
{
    char   key[PATH_TEXT];
    size_t end = strlen(name);
    for (;;) {
        size_t start = end;
        while (start > 0 && name[start - 1] != '.') start--;
        snprintf(key, sizeof key, "%.*s", (int)(end - start), name + start);
        json_t *outer = dra_json_object(j);
        dra_json_set(j, outer, key, value);
        value = outer;
        if (start == 0) return value;
        end = start - 1;
    }
}

dra_status dra_fields_set(const dra_field *table, void *to, const char *name, const char *text,
                          dra_error *err)
{
    return dra_fields_set_own(table, to, NULL, NULL, name, text, err);
}

dra_status dra_fields_set_own(const dra_field *table, void *to, dra_field_own own,
                              dra_arena *memory, const char *name, const char *text, dra_error *err)
{
    dra_json     j = {0};
    json_error_t found;
    json_t      *value;
    dra_status   st = dra_json_load(text, strlen(text), JSON_DECODE_ANY | JSON_REJECT_DUPLICATES,
                                    &value, &found);
    if (st == DRA_ERR_FORMAT) value = dra_json_text(&j, text);
    if (j.no_text) return dra_fail(err, DRA_ERR_VALUE, "%.60s: the value is not UTF-8 text", name);
    json_t *object = nest_value(&j, name, value);
    st = dra_json_check(&j, name, err);
    if (st == DRA_OK) st = dra_fields_read_own(table, "setting", object, own, memory, to, err);
    json_decref(object);
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *write_list(dra_json *j, const dra_field *f, const char *from, int n)
{
    if (n == 1) return dra_fields_write(j, f->fields, from);
    json_t *list = dra_json_array(j);
    for (int i = 0; i < n; i++)
        dra_json_append(j, list, dra_fields_write(j, f->fields, from + (size_t)i * f->size));
    return list;
}

static json_t *write_numbers(dra_json *j, const dra_field *f, const char *from, int n)
{
    json_t *list = n ? dra_json_array(j) : NULL;
    for (int i = 0; i < n; i++)
        dra_json_append(j, list,
                        f->kind == DRA_FIELD_INTS
                            ? dra_json_int(j, ((const int64_t *)(const void *)from)[i])
                            : dra_json_real(j, ((const double *)(const void *)from)[i]));
    return list;
}

static json_t *write_pair(dra_json *j, const double pair[2])
{
    json_t *list = dra_json_array(j);
    for (int i = 0; i < 2; i++) dra_json_append(j, list, dra_json_real(j, pair[i]));
    return list;
}

static json_t *write_name(dra_json *j, const dra_field *f, const char *base)
{
    const char *name = *(const char *const *)(const void *)(base + f->offset);
    const void *own = f->given ? *(const void *const *)(const void *)(base + f->given) : NULL;
    char        text[512];
    if (!own || !name_of(own)) return name ? dra_json_text(j, name) : NULL;
    snprintf(text, sizeof text, "own:%s", name_of(own));
    return dra_json_text(j, text);
}

/* NULL: it has its default. */
static json_t *write_field(dra_json *j, const dra_field *f, const char *base)
{
    const char   *from = place_of(f, base);
    const double *pair = (const double *)(const void *)from;
    const bool    told = f->given && (f->kind == DRA_FIELD_REAL || f->kind == DRA_FIELD_PAIR);
    const bool    given = told && *(const bool *)(base + f->given);
    const int     number = f->kind == DRA_FIELD_SWITCH || f->kind == DRA_FIELD_CHOICE
                               ? *(const int *)(const void *)from
                               : 0;
    if (!from) return NULL;
    switch (f->kind) {
    case DRA_FIELD_INT: {
        const int64_t n = *(const int64_t *)(const void *)from;
        return n ? dra_json_int(j, f->zero && n < 0 ? 0 : n) : NULL;
    }
    case DRA_FIELD_REAL:
        if (pair[0] == 0 && !given) return NULL;
        return dra_json_real(j, f->zero && pair[0] < 0 ? 0 : pair[0]);
    case DRA_FIELD_BOOL: return *(const bool *)from ? dra_json_bool(true) : NULL;
    case DRA_FIELD_SWITCH: return number ? dra_json_bool(number == 1) : NULL;
    case DRA_FIELD_CHOICE: return number ? dra_json_text(j, f->choices[number]) : NULL;
    case DRA_FIELD_NAME: return write_name(j, f, base);
    case DRA_FIELD_PAIR:
        if (f->given ? !given : pair[0] == 0 && pair[1] == 0) return NULL;
        return write_pair(j, pair);
    case DRA_FIELD_INLINE:
    case DRA_FIELD_OWN: break; /* are no keys */
    case DRA_FIELD_OBJECT: {
        json_t *object = dra_fields_write(j, f->fields, from);
        if (json_object_size(object) > 0) return object;
        json_decref(object);
        return NULL;
    }
    case DRA_FIELD_LIST: {
        const int n = *(const int *)(const void *)(base + f->given);
        return n ? write_list(j, f, from, n) : NULL;
    }
    case DRA_FIELD_INTS:
    case DRA_FIELD_REALS:
        return write_numbers(j, f, *(const char *const *)(const void *)from,
                             *(const int *)(const void *)(base + f->given));
    case DRA_FIELD_TEXT: return *from ? dra_json_text(j, from) : NULL;
    }
    return NULL;
}

static void write_key(dra_json *j, json_t *object, const dra_field *f, const char *from)
{
    json_t *v = write_field(j, f, from);
    if (v) dra_json_set(j, object, f->name, v);
}

static void write_into(dra_json *j, json_t *object, const dra_field *table, const char *from)
{
    dra_field own;
    for (const dra_field *f = table; f->name; f++)
        if (f->kind == DRA_FIELD_INLINE)
            write_into(j, object, f->fields, from + f->offset);
        else if (f->kind == DRA_FIELD_OWN)
            for (size_t i = 0; own_field(f, from, i, &own); i++)
                write_key(j, object, &own, from + f->offset);
        else
            write_key(j, object, f, from);
}

json_t *dra_fields_write(dra_json *j, const dra_field *table, const void *from)
{
    json_t *object = dra_json_object(j);
    write_into(j, object, table, from);
    return object;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* `i` counts down to 0 at the field that is looked for; `name` holds the path above the table. */
static const dra_field *next_field(const dra_field *table, size_t *i, char *name, size_t size)
{
    const size_t above = strlen(name);
    for (const dra_field *f = table; f->name; f++) {
        snprintf(name + above, size - above, "%s%s", above && *f->name ? "." : "", f->name);
        const dra_field *found = f->fields && !f->about ? next_field(f->fields, i, name, size)
                                                        : NULL;
        if (found) return found;
        if ((!f->fields || f->about) && f->kind != DRA_FIELD_OWN && (*i)-- == 0) return f;
        name[above] = '\0';
    }
    return NULL;
}

bool dra_fields_at(const dra_field *table, size_t i, char *name, size_t size,
                   const dra_field **field)
{
    name[0] = '\0';
    *field = next_field(table, &i, name, size);
    return *field != NULL;
}

/* ---- one of them in two structs -------------------------------------------------------------- */

static size_t size_of(const dra_field *f)
{
    switch (f->kind) {
    case DRA_FIELD_BOOL: return sizeof(bool);
    case DRA_FIELD_SWITCH:
    case DRA_FIELD_CHOICE: return sizeof(int);
    case DRA_FIELD_NAME: return sizeof(const char *);
    case DRA_FIELD_PAIR: return sizeof(double[2]);
    case DRA_FIELD_INTS:
    case DRA_FIELD_REALS: return sizeof(const void *);
    case DRA_FIELD_TEXT: return f->away ? sizeof(const char *) : (size_t)f->most;
    case DRA_FIELD_OWN: return f->size;
    case DRA_FIELD_OBJECT:
    case DRA_FIELD_INLINE:
    case DRA_FIELD_LIST: return 0;
    case DRA_FIELD_INT:
    case DRA_FIELD_REAL: break;
    }
    return sizeof(int64_t);
}

/* Of what stands at `given` and goes with the field; that of OWN is its name's. */
static size_t size_of_given(const dra_field *f)
{
    switch (f->given ? f->kind : DRA_FIELD_OWN) {
    case DRA_FIELD_OWN: return 0;
    case DRA_FIELD_NAME: return sizeof(const void *);
    case DRA_FIELD_INTS:
    case DRA_FIELD_REALS: return sizeof(int);
    default: return sizeof(bool);
    }
}

static void take_bytes(char *to, const char *from, size_t n)
{
    if (from)
        memcpy(to, from, n);
    else
        memset(to, 0, n);
}

static void copy_field(const dra_field *f, char *to, const char *from)
{
    take_bytes(to + f->offset, from ? from + f->offset : NULL, size_of(f));
    take_bytes(to + f->given, from ? from + f->given : NULL, size_of_given(f));
}

static bool has_bytes(const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at[i]) return true;
    return false;
}

static bool differs_from(const dra_field *f, const char *in)
{
    const char *text = f->kind == DRA_FIELD_TEXT ? place_of(f, in) : NULL;
    if (f->kind == DRA_FIELD_TEXT) return text && *text;
    if (f->kind == DRA_FIELD_INTS || f->kind == DRA_FIELD_REALS)
        return *(const int *)(const void *)(in + f->given) > 0;
    return has_bytes(in + f->offset, size_of(f)) || has_bytes(in + f->given, size_of_given(f));
}

static bool visit_fields(const dra_field *table, const char *name, char *to, const char *from);

/* One of them; of a struct the field that `below` names in it, or all of them where that is "". */
static bool visit_field(const dra_field *f, const char *below, char *own, const char *other)
{
    bool any = false;
    if (!f->fields) {
        if (own) copy_field(f, own, other);
        return other && differs_from(f, other);
    }
    const int   count = count_of(f, own ? own : other);
    char       *to = own ? (char *)(uintptr_t)place_of(f, own) : NULL;
    const char *from = other ? place_of(f, other) : NULL;
    for (int i = 0; i < count && (to || from); i++) {
        const size_t at = (size_t)i * f->size;
        any |= visit_fields(f->fields, below, to ? to + at : NULL, from ? from + at : NULL);
    }
    return any;
}

static bool visit_all_fields(const dra_field *table, char *to, const char *from)
{
    bool any = false;
    for (const dra_field *f = table; f->name; f++) any |= visit_field(f, "", to, from);
    return any;
}

/* Copies where there is `to`. Whether one of the fields differs from its default in `from`. */
static bool visit_fields(const dra_field *table, const char *name, char *to, const char *from)
{
    char         part[PATH_TEXT];
    const size_t n = strcspn(name, ".");
    if (!n) return visit_all_fields(table, to, from);
    snprintf(part, sizeof part, "%.*s", (int)n, name);
    dra_field        brought;
    const char      *where = to ? to : from;
    char            *base = (char *)(uintptr_t)where;
    const dra_field *f = find_field(table, part, &base, &brought);
    if (!f) return false;
    const ptrdiff_t in = base - where; /* of what stands in line */
    return visit_field(f, name + n + (name[n] == '.'), to ? to + in : NULL,
                       from ? from + in : NULL);
}

bool dra_fields_has(const dra_field *table, const char *name, const void *in)
{
    return visit_fields(table, name, NULL, in);
}

void dra_fields_copy(const dra_field *table, const char *name, void *to, const void *from)
{
    visit_fields(table, name, to, from);
}

/* ---- what lies away -------------------------------------------------------------------------- */

static size_t bytes_of(const dra_field *f, const void *at, int count)
{
    if (f->kind == DRA_FIELD_TEXT) return (at ? strlen(at) : 0) + 1;
    return (size_t)count * (f->away ? f->size : sizeof(int64_t));
}

static dra_status bring_field(const dra_field *f, char *base, dra_arena *memory, dra_error *err)
{
    const void **at = (const void **)(void *)(base + f->offset);
    const bool   list = f->kind == DRA_FIELD_LIST, numbers = !f->away;
    const int    said = list || numbers ? *(const int *)(const void *)(base + f->given) : 1;
    const int    n = list && !said ? 1 : said; /* one that was not counted */
    if ((list || numbers) && (said < 0 || said > f->most))
        return dra_fail(err, DRA_ERR_VALUE, "%s: %d are said, expected 0 to %d", f->name, said,
                        f->most);
    if (!*at && said > (f->away ? 1 : 0))
        return dra_fail(err, DRA_ERR_VALUE, "%s: %d are said, but there are none", f->name, said);
    const size_t bytes = bytes_of(f, *at, n);
    void        *copy = dra_arena_alloc(memory, bytes);
    if (!copy) return dra_fail(err, DRA_ERR_MEMORY, "%s: out of memory", f->name);
    if (*at) memcpy(copy, *at, bytes);
    *at = copy;
    return DRA_OK;
}

dra_status dra_fields_bring(const dra_field *table, void *in, dra_arena *memory, dra_error *err)
{
    dra_status st = DRA_OK;
    for (const dra_field *f = table; f->name && st == DRA_OK; f++) {
        if (f->away || f->kind == DRA_FIELD_INTS || f->kind == DRA_FIELD_REALS)
            st = bring_field(f, in, memory, err);
        char     *own = f->fields ? (char *)(uintptr_t)place_of(f, in) : NULL;
        const int n = own ? count_of(f, in) : 0;
        for (int i = 0; i < (n ? n : own != NULL) && st == DRA_OK; i++)
            st = dra_fields_bring(f->fields, own + (size_t)i * f->size, memory, err);
    }
    return st;
}
