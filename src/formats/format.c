/* Formats: config.json in the keys of others, and what only a file can tell. */
#include "formats/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/fail.h"
#include "formats/gguf/gguf.h"
#include "model/model.h"
#include "model/owned.h"
#include "formats/rwkv/rwkv.h"

const dra_format dra_format_dra = {.name = "dra"};

#define DRA_FORMAT_ROW(kind, table, name) &dra_format_##table,
static const dra_format *const formats[] = {
#include "dra/formats.def"
};
#undef DRA_FORMAT_ROW

#define DRA_FORMAT_ROW(kind, table, name) name,
static const char *const format_names[] = {
#include "dra/formats.def"
};
#undef DRA_FORMAT_ROW

enum { FORMATS = DRA_FORMAT_COUNT, SIZE_MOST = 1 << 20 };

const char *dra_format_name(dra_format_kind format)
{
    return (unsigned)format < FORMATS ? format_names[format] : NULL;
}

const dra_format *dra_format_of(const dra_model_config *c) { return formats[c->format]; }

const dra_format *dra_format_named(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    for (int i = 0; i < FORMATS; i++)
        if (type && strcmp(type, formats[i]->name) == 0 &&
            (!formats[i]->fits || formats[i]->fits(object)))
            return formats[i];
    return NULL;
}

/* Of a name that two formats have one says enough; a file alone has no model_type. */
void dra_format_names(char *text, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < FORMATS && n < size; i++)
        if (i != DRA_FORMAT_GGUF && i != DRA_FORMAT_FLA6)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", formats[i]->name);
}

/* ---- keys ------------------------------------------------------------------------------------ */

void dra_keys_refuse(dra_keys *k, const char *key, const char *expected)
{
    if (k->status != DRA_OK) return;
    const json_t *v = json_object_get(k->object, key);
    char         *is = dra_json_words(v, JSON_ENCODE_ANY | JSON_COMPACT);
    k->status = dra_fail(k->err, DRA_ERR_VALUE, "%.120s: %.60s is %.60s, expected %.160s", k->place,
                         key,
                         is  ? is
                         : v ? "..."
                             : "missing",
                         expected);
    free(is);
}

/* What a key says; NULL where it, or the older name, is not there or null. */
static const json_t *find_key(const dra_keys *k, const char *key, const char *old)
{
    const json_t *v = json_object_get(k->object, key);
    if (!v && old) v = json_object_get(k->object, old);
    return json_is_null(v) ? NULL : v;
}

int64_t dra_keys_int(dra_keys *k, const char *key, const char *old, int64_t fallback)
{
    const json_t *v = find_key(k, key, old);
    const double  x = json_number_value(v);
    if (!v) return fallback;
    if (json_is_number(v) && x == floor(x) && fabs(x) <= SIZE_MOST) return (int64_t)x;
    dra_keys_refuse(k, json_object_get(k->object, key) ? key : old, "a whole number up to 1048576");
    return fallback;
}

double dra_keys_real(dra_keys *k, const char *key, double fallback)
{
    const json_t *v = find_key(k, key, NULL);
    if (!v) return fallback;
    if (json_is_number(v) && json_number_value(v) >= 0 && json_number_value(v) < 1)
        return json_number_value(v);
    dra_keys_refuse(k, key, "a number from 0 to 1");
    return fallback;
}

double dra_keys_number(dra_keys *k, const char *key, double most, double fallback)
{
    const json_t *v = find_key(k, key, NULL);
    char          expected[48];
    if (!v) return fallback;
    if (json_is_number(v) && json_number_value(v) > 0 && json_number_value(v) <= most)
        return json_number_value(v);
    snprintf(expected, sizeof expected, "a number above 0, up to %g", most);
    dra_keys_refuse(k, key, expected);
    return fallback;
}

bool dra_keys_bool(dra_keys *k, const char *key, bool fallback)
{
    const json_t *v = find_key(k, key, NULL);
    if (!v) return fallback;
    if (!json_is_boolean(v)) dra_keys_refuse(k, key, "true or false");
    return json_is_true(v);
}

const char *dra_keys_text(dra_keys *k, const char *key, const char *fallback)
{
    const json_t *v = find_key(k, key, NULL);
    if (v && !json_is_string(v)) dra_keys_refuse(k, key, "a text");
    return json_is_string(v) ? json_string_value(v) : fallback;
}

void dra_keys_put(dra_keys *k, const char *key, json_t *value)
{
    const json_t *before = json_object_get(k->object, key);
    if (json_is_number(before) && json_number_value(before) == json_number_value(value) &&
        json_is_number(value)) { /* there already, perhaps spelled differently */
        json_decref(value);
        return;
    }
    dra_json_set(&k->json, k->object, key, value);
}

dra_mixer_config *dra_keys_mixers(dra_keys *k, dra_model_config *c, int n)
{
    dra_mixer_config *m = dra_config_mixers(c, n);
    if (!m) k->status = dra_fail(k->err, DRA_ERR_MEMORY, "%.120s: out of memory", k->place);
    return m;
}

void dra_keys_pattern(dra_keys *k, dra_model_config *c, int n, const int64_t *pattern)
{
    c->pattern = dra_arena_copy(c->own, pattern, (size_t)n * sizeof *pattern);
    c->n_pattern = c->pattern ? n : 0;
    if (!c->pattern)
        k->status = dra_fail(k->err, DRA_ERR_MEMORY, "%.120s: out of memory", k->place);
}

/* ---- configs --------------------------------------------------------------------------------- */

dra_status dra_format_read(const dra_format *f, const char *place, json_t *object,
                           dra_model_config *out, dra_error *err)
{
    dra_keys k = {.format = f, .place = place, .object = object, .err = err};
    dra_config_clear(out);
    for (int i = 0; i < FORMATS; i++)
        if (formats[i] == f) out->format = (dra_format_kind)i;
    f->read(&k, out);
    return k.status;
}

/* Both configs as dra says them: the first key that differs, or NULL. Of several stacks it is a key
 * of the one that differs: *a and *b become those. */
static const char *find_difference(const json_t **one, const json_t **other)
{
    const json_t *a = *one, *b = *other, *stacks = json_object_get(b, "stacks");
    const char   *key;
    json_t       *v;
    json_object_foreach(json_object_get(a, "stacks"), key, v)
    {
        const json_t *same = json_object_get(stacks, key);
        if (!same || json_equal(v, same)) continue;
        *one = v;
        *other = same;
        return find_difference(one, other);
    }
    json_object_foreach((json_t *)(uintptr_t)a, key,
                        v) if (!json_equal(v, json_object_get(b, key))) return key;
    json_object_foreach((json_t *)(uintptr_t)b, key, v) if (!json_object_get(a, key)) return key;
    return NULL;
}

/* The first key inside a key that differs: *one and *other become the objects it is in. */
static const char *inner_difference(const json_t **one, const json_t **other, const char *key)
{
    json_t     *a = json_object_get(*one, key), *b = json_object_get(*other, key), *v;
    const char *name, *found = NULL;
    if (!json_is_object(a) || !json_is_object(b)) return NULL;
    json_object_foreach(b, name, v) if (!json_object_get(a, name)) found = name;
    json_object_foreach(a, name, v) if (!json_equal(v, json_object_get(b, name)))
    {
        found = name;
        break;
    }
    if (!found) return NULL;
    *one = a;
    *other = b;
    return found;
}

/* Both values in as few digits as tell them apart. */
static void show_both(const json_t *x, const json_t *y, char **is, char **only)
{
    const size_t how = JSON_ENCODE_ANY | JSON_COMPACT;
    *is = dra_json_words(x, how | JSON_REAL_PRECISION(6));
    *only = dra_json_words(y, how | JSON_REAL_PRECISION(6));
    if (!*is || !*only || strcmp(*is, *only) != 0) return;
    free(*is);
    free(*only);
    *is = dra_json_words(x, how);
    *only = dra_json_words(y, how);
}

dra_status dra_config_compare(const char *place, const char *what, const dra_model_config *meant,
                              const dra_model_config *can, dra_error *err)
{
    dra_status    st = DRA_OK;
    json_t       *a = dra_model_config_object(meant), *b = dra_model_config_object(can);
    const json_t *one = a, *other = b;
    const char   *key = a && b ? find_difference(&one, &other) : NULL;
    const char   *inner = key ? inner_difference(&one, &other, key) : NULL;
    if (!a || !b) st = dra_fail(err, DRA_ERR_MEMORY, "%.120s: out of memory", place);
    if (key) {
        const json_t *x = json_object_get(one, inner ? inner : key);
        const json_t *y = json_object_get(other, inner ? inner : key);
        char         *is, *only;
        show_both(x, y, &is, &only);
        st = dra_fail(err, DRA_ERR_VALUE, "%.120s: %s cannot hold %s%s%s %.120s, only %.120s",
                      place, what, key, inner ? "." : "", inner ? inner : "",
                      is  ? is
                      : x ? "..."
                          : "by default",
                      only ? only
                      : y  ? "..."
                           : "the default");
        free(is);
        free(only);
    }
    json_decref(a);
    json_decref(b);
    return st;
}

bool dra_config_turn_rows(dra_model_config *c, bool halves)
{
    const int         n = c->mixers;
    dra_mixer_config *m = n > 0 ? dra_config_mixers(c, n) : NULL;
    for (int i = 0; m && i < n; i++)
        if (m[i].rotary) m[i].turn.halves = halves;
    return m || n <= 0;
}

/* Read back, it must be what was meant; else the format cannot express it. */
static dra_status check_words(const char *place, const dra_model_config *meant, json_t *object,
                              dra_error *err)
{
    const dra_format *f = dra_format_of(meant);
    dra_model_config *back;
    char              what[48];
    dra_status        st = dra_config_new(&back, err);
    int               first = 0; /* that rotates: all do it in one order */
    if (st == DRA_OK) st = dra_format_read(f, place, object, back, err);
    while (first < meant->mixers - 1 && !meant->mixer[first].rotary) first++;
    if (st == DRA_OK && f->ordered && !dra_config_turn_rows(back, meant->mixer[first].turn.halves))
        st = dra_fail(err, DRA_ERR_MEMORY, "%.120s: out of memory", place);
    snprintf(what, sizeof what, "%s %s folder", f->name[0] == 'x' ? "an" : "a", f->name);
    if (st == DRA_OK) st = dra_config_compare(place, what, meant, back, err);
    dra_model_config_destroy(back);
    return st;
}

dra_status dra_format_write(const char *place, const dra_model_config *c, json_t *object,
                            dra_error *err)
{
    const dra_format *f = dra_format_of(c);
    dra_keys          k = {.format = f, .place = place, .object = object, .err = err};
    dra_model_config  full = *c;
    dra_model_config_complete(&full);
    dra_keys_put(&k, "model_type", dra_json_text(&k.json, f->name));
    if (f->class_name && !json_object_get(object, "architectures")) {
        json_t *names = dra_json_array(&k.json);
        dra_json_append(&k.json, names, dra_json_text(&k.json, f->class_name));
        dra_keys_put(&k, "architectures", names);
    }
    f->write(&k, &full);
    if (k.status == DRA_OK) k.status = dra_json_check(&k.json, place, err);
    if (k.status == DRA_OK && k.json.not_finite)
        k.status = dra_fail_at(err, DRA_ERR_VALUE, place, "a number is not finite");
    return k.status == DRA_OK ? check_words(place, &full, object, err) : k.status;
}

/* Whether a folder of this class can hold it. */
static bool can_write(const dra_model_config *c, int kind)
{
    dra_json         j = {0};
    json_t          *object = dra_json_object(&j);
    dra_model_config as = *c;
    as.format = (dra_format_kind)kind;
    const bool can = object && formats[kind]->class_name &&
                     dra_format_write("", &as, object, NULL) == DRA_OK;
    json_decref(object);
    return can;
}

dra_format_kind dra_model_config_class(const dra_model_config *c)
{
    static const dra_format_kind kinds[] = {
        [4] = DRA_FORMAT_RWKV, [5] = DRA_FORMAT_RWKV5, DRA_FORMAT_RWKV6, DRA_FORMAT_RWKV7};
    const int version = dra_model_config_rwkv(c);
    if (version) return version == 6 && c->format == DRA_FORMAT_FLA6 ? c->format : kinds[version];
    if (can_write(c, (int)c->format)) return c->format;
    for (int i = 0; i < FORMATS; i++)
        if (!formats[i]->rwkv && can_write(c, i)) return (dra_format_kind)i;
    return DRA_FORMAT_DRA;
}

/* A copy without what writing the same config gives again, of which dra's own names know no xt.
 * torch_dtype follows the weights. */
static json_t *without_config(dra_json *j, const dra_format *f, const char *place, json_t *object)
{
    dra_model_config *c;
    json_t           *rest = dra_json_share(j, object), *written = dra_json_object(j), *v;
    const char       *key;
    dra_status        st = dra_config_new(&c, NULL);
    if (st == DRA_OK) st = dra_format_read(f, place, object, c, NULL);
    if (st == DRA_OK) {
        c->xt = (dra_xt_config){0};
        st = dra_format_write(place, c, written, NULL);
    }
    dra_model_config_destroy(c);
    if (st == DRA_ERR_MEMORY) j->failed = true;
    if (st == DRA_OK) {
        dra_json_delete(written, "model_type");
        json_object_foreach(written, key, v) if (json_equal(v, json_object_get(rest, key)))
            dra_json_delete(rest, key);
    }
    dra_json_delete(rest, "torch_dtype");
    json_decref(written);
    if (json_object_size(rest) > 1) return rest;
    json_decref(rest); /* nothing but model_type */
    return NULL;
}

json_t *dra_format_others(dra_json *j, const char *place, json_t *object)
{
    const dra_format *f = dra_format_named(object);
    if (f && f->read) return without_config(j, f, place, object);
    return json_incref(json_object_get(object, DRA_KEPT_KEYS));
}

/* ---- what the file knows --------------------------------------------------------------------- */

/* Of families: names with the prefix are those of a whole model, which stores its head; without it
 * they are those of a bare one, which has none. */
static bool wants_head(const dra_name_rules *rules, const char *name)
{
    return rules->format->family && strncmp(name, rules->prefix, strlen(rules->prefix)) == 0;
}

/* A head that should be tied but is stored and differs from the embedding: it is not tied. No head
 * at all: a bare model, whose head is then its embedding. */
static dra_status settle_head(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    const dra_name_rule *rule;
    const dra_spec       embedding = {.name = "embedding"};
    dra_name_rules       rules;
    dra_status           st = dra_name_rules_create(c, dra_dialect_of(s), &rules, err);
    if (st != DRA_OK) return st;
    const dra_tensor_source_entry *e = dra_format_find(&rules, s, &embedding, &rule);
    const dra_tensor_source_entry *head = dra_format_look(&rules, s, rules.head, 0);
    if (!head && c->tied == DRA_OFF && e && wants_head(&rules, e->info->name))
        st = dra_fail_at(err, DRA_ERR_FORMAT, s->path,
                         "%s is missing, though tie_word_embeddings is false", rules.head);
    if (!head) c->tied = DRA_ON;
    if (head && e && c->tied != DRA_OFF &&
        (head->info->bytes != e->info->bytes ||
         memcmp(head->info->data, e->info->data, e->info->bytes) != 0))
        c->tied = DRA_OFF;
    dra_name_rules_free(&rules);
    return st;
}

dra_status dra_format_settle(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    dra_status        st = DRA_OK;
    const dra_format *f = dra_format_of(c);
    /* Every layer has tensors: a false number must not make a model of a million layers. */
    for (const dra_model_config *i = c; i && st == DRA_OK; i = i->context_stack)
        if (!i->tied_layers && i->depth > (int64_t)s->count)
            st = dra_fail_at(err, DRA_ERR_VALUE, s->path,
                             "%zu tensors, expected those of %lld layers", s->count,
                             (long long)i->depth);
    if (st == DRA_OK && f->rwkv) st = dra_rwkv_settle(s, c, err);
    return st == DRA_OK && f->class_name ? settle_head(s, c, err) : st;
}
