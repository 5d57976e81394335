/* tokenizer.json of Hugging Face's tokenizers, as far as dra does exactly what it asks for: BPE
 * over bytes, GPT-2's pieces, NFC or no normalisation. Tables say which keys there may be and which
 * values they may have; all else is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/fail.h"
#include "file/json.h"
#include "text/vocabulary.h"

/* ---- rules ----------------------------------------------------------------------------------- */

enum { /* what a value may be */
       NOTHING = 1,
       OFF = 2,
       ON = 4,
       EMPTY = 8,
       ZERO = 16,
       TEXT = 32,
       NUMBER = 64,
       LIST = 128,
       OBJECT = 256,
       NEEDED = 512 /* the key has to be there */
};

static const char *const words[] = {"null",   "false",          "true",   "\"\"",     "0",
                                    "a text", "a whole number", "a list", "an object"};

typedef struct rule {
    const char *key;
    unsigned    takes;
    const char *text; /* the only one it takes */
} rule;

static const rule top_rules[] = {{"version", TEXT, "1.0"},
                                 {"truncation", NOTHING},
                                 {"padding", NOTHING},
                                 {"added_tokens", LIST | NOTHING},
                                 {"normalizer", OBJECT | NOTHING},
                                 {"pre_tokenizer", OBJECT | NEEDED},
                                 {"post_processor", OBJECT | NOTHING},
                                 {"decoder", OBJECT | NEEDED},
                                 {"model", OBJECT | NEEDED},
                                 {0}};
static const rule model_rules[] = {{"type", TEXT | NEEDED, "BPE"},
                                   {"dropout", NOTHING | ZERO},
                                   {"unk_token", NOTHING | TEXT},
                                   {"continuing_subword_prefix", NOTHING | EMPTY},
                                   {"end_of_word_suffix", NOTHING | EMPTY},
                                   {"fuse_unk", ON | OFF},
                                   {"byte_fallback", ON | OFF},
                                   {"ignore_merges", OFF},
                                   {"vocab", OBJECT | NEEDED},
                                   {"merges", LIST | NEEDED},
                                   {0}};
static const rule normalizer_rules[] = {{"type", TEXT | NEEDED, "NFC"}, {0}};
static const rule pieces_rules[] = {{"type", TEXT | NEEDED, "ByteLevel"},
                                    {"add_prefix_space", ON | OFF | NEEDED},
                                    {"trim_offsets", ON | OFF},
                                    {"use_regex", ON},
                                    {0}};
/* Of what comes after the ids, offsets and the like, nothing is used. */
static const rule bytes_rules[] = {{"type", TEXT | NEEDED, "ByteLevel"},
                                   {"add_prefix_space", ON | OFF},
                                   {"trim_offsets", ON | OFF},
                                   {"use_regex", ON | OFF},
                                   {0}};
static const rule added_rules[] = {
    {"id", NUMBER | NEEDED},        {"content", TEXT | NEEDED},
    {"special", ON | OFF | NEEDED}, {"normalized", ON | OFF | NEEDED},
    {"single_word", OFF},           {"lstrip", ON | OFF},
    {"rstrip", ON | OFF},           {0}};

static unsigned kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL: return NOTHING;
    case JSON_FALSE: return OFF;
    case JSON_TRUE: return ON;
    case JSON_STRING: return TEXT | (json_string_length(value) ? 0 : EMPTY);
    case JSON_INTEGER: return NUMBER | (json_integer_value(value) ? 0 : ZERO);
    case JSON_REAL: return json_real_value(value) == 0 ? ZERO : 0;
    case JSON_ARRAY: return LIST;
    case JSON_OBJECT: return OBJECT;
    }
    return 0;
}

/* "BPE", or "null or a text". */
static void expectation(const rule *r, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    if (r->text) {
        snprintf(text, size, "\"%s\"", r->text);
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (r->takes >> i & 1 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " or " : "",
                                     words[i]);
}

/* The kind of a value that is not shown itself. */
static const char *kind_words(const json_t *value)
{
    return json_is_array(value) ? words[7] : json_is_object(value) ? words[8] : "another value";
}

static dra_status refuse(const dra_vocabulary *v, const char *place, const rule *r,
                         const json_t *value)
{
    char  what[160], room[DRA_BRIEF];
    char *found = value && !json_is_array(value) && !json_is_object(value)
                      ? dra_json_words(value, JSON_ENCODE_ANY | JSON_COMPACT)
                      : NULL;
    expectation(r, what, sizeof what);
    const dra_status status = dra_vocabulary_fail(v, "%s%s: expected %s, found %s", place, r->key,
                                                  what,
                                                  found   ? dra_brief(found, room)
                                                  : value ? kind_words(value)
                                                          : "nothing");
    free(found);
    return status;
}

/* Every key has a rule, every value keeps it. `place` is "" or ends with a dot. */
static dra_status check(const dra_vocabulary *v, const char *place, const json_t *object,
                        const rule *rules)
{
    const char *key;
    json_t     *value;
    char        room[DRA_BRIEF];
    for (const rule *r = rules; r->key; r++) {
        const json_t *found = json_object_get(object, r->key);
        if (!found && !(r->takes & NEEDED)) continue;
        if (!found || !(kind_of(found) & r->takes) ||
            (r->text && strcmp(json_string_value(found), r->text) != 0))
            return refuse(v, place, r, found);
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const rule *r = rules;
        while (r->key && strcmp(r->key, key) != 0) r++;
        if (!r->key)
            return dra_vocabulary_fail(v, "%s%s: no such key is known", place,
                                       dra_brief(key, room));
    }
    return DRA_OK;
}

static dra_status check_part(const dra_vocabulary *v, const json_t *top, const char *key,
                             const rule *rules)
{
    char          place[32];
    const json_t *part = json_object_get(top, key);
    snprintf(place, sizeof place, "%s.", key);
    return json_is_object(part) ? check(v, place, part, rules) : DRA_OK;
}

/* A template is taken if it puts nothing around the text. */
static dra_status check_post_processor(const dra_vocabulary *v, const json_t *top)
{
    const json_t *part = json_object_get(top, "post_processor");
    const json_t *type = json_object_get(part, "type"), *single = json_object_get(part, "single");
    if (!json_is_string(type) || strcmp(json_string_value(type), "TemplateProcessing") != 0)
        return check_part(v, top, "post_processor", bytes_rules);
    const json_t *sequence = json_object_get(json_array_get(single, 0), "Sequence");
    if (json_array_size(single) == 1 && sequence) return DRA_OK;
    return dra_vocabulary_fail(v, "post_processor.single: expected the text alone, without tokens "
                                  "around it");
}

/* ---- contents -------------------------------------------------------------------------------- */

static dra_status read_merge(dra_vocabulary *v, const json_t *item)
{
    const char   *text = json_string_value(item);
    const json_t *left = json_array_get(item, 0), *right = json_array_get(item, 1);
    if (json_array_size(item) == 2 && json_is_string(left) && json_is_string(right))
        return dra_vocabulary_merge(v, json_string_value(left), json_string_length(left),
                                    json_string_value(right), json_string_length(right));
    const char *space = text ? strchr(text, ' ') : NULL;
    if (!space || strchr(space + 1, ' '))
        return dra_vocabulary_fail(v, "merge %zu: expected two tokens", v->t->merges);
    return dra_vocabulary_merge(v, text, (size_t)(space - text), space + 1, strlen(space + 1));
}

static dra_status read_merges(dra_vocabulary *v, const json_t *merges)
{
    dra_status status = dra_vocabulary_merges(v, json_array_size(merges));
    for (size_t i = 0; i < json_array_size(merges) && status == DRA_OK; i++)
        status = read_merge(v, json_array_get(merges, i));
    return status;
}

/* Checks added tokens; *size is more than their ids. */
static dra_status check_added(const dra_vocabulary *v, const json_t *list, int64_t *size)
{
    static const rule range = {"id", NUMBER};
    char              place[48];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *id = json_object_get(item, "id");
        snprintf(place, sizeof place, "added_tokens[%zu]%s", i, json_is_object(item) ? "." : "");
        if (!json_is_object(item)) return refuse(v, place, &(rule){"", OBJECT}, item);
        const dra_status status = check(v, place, item, added_rules);
        if (status != DRA_OK) return status;
        if (json_integer_value(id) < 0 || json_integer_value(id) >= DRA_MOST_IDS)
            return refuse(v, place, &range, id);
        if (json_integer_value(id) >= *size) *size = json_integer_value(id) + 1;
    }
    return DRA_OK;
}

static dra_status read_added(dra_vocabulary *v, const json_t *list)
{
    dra_status status = dra_vocabulary_added(v, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list) && status == DRA_OK; i++) {
        const json_t *item = json_array_get(list, i), *text = json_object_get(item, "content");
        status = dra_vocabulary_add(
            v, (dra_added){.id = (int32_t)json_integer_value(json_object_get(item, "id")),
                           .text = json_string_value(text),
                           .bytes = json_string_length(text),
                           .special = json_is_true(json_object_get(item, "special")),
                           .normalized = json_is_true(json_object_get(item, "normalized")),
                           .left = json_is_true(json_object_get(item, "lstrip")),
                           .right = json_is_true(json_object_get(item, "rstrip"))});
    }
    if (status == DRA_OK) dra_vocabulary_sort_added(v);
    return status;
}

/* What stands for bytes without a token cannot be asked for, unless there are no such bytes. */
static dra_status check_unknown(const dra_vocabulary *v, const json_t *model)
{
    const bool    unk = json_is_string(json_object_get(model, "unk_token"));
    const bool    fallback = json_is_true(json_object_get(model, "byte_fallback"));
    bool          has[256] = {0};
    const int32_t size = unk || fallback ? v->t->size : 0;
    for (int32_t id = 0; id < size; id++) {
        const dra_token *k = &v->t->token[id];
        if (k->kind == DRA_TOKEN_BYTES && k->bytes == 1) has[(unsigned char)k->text[0]] = true;
    }
    for (int i = 0; i < 256 && (unk || fallback); i++)
        if (!has[i])
            return dra_vocabulary_fail(v,
                                       "model.%s: expected none, because the vocabulary has no "
                                       "token for the byte 0x%02x",
                                       unk ? "unk_token" : "byte_fallback", i);
    return DRA_OK;
}

static dra_status read_all(dra_vocabulary *v, const json_t *top)
{
    const json_t *model = json_object_get(top, "model"), *added;
    int64_t       size = 0;
    if (!json_is_object(top)) return dra_vocabulary_fail(v, "expected an object");
    dra_status status = check(v, "", top, top_rules);
    if (status == DRA_OK) status = check_part(v, top, "normalizer", normalizer_rules);
    if (status == DRA_OK) status = check_part(v, top, "pre_tokenizer", pieces_rules);
    if (status == DRA_OK) status = check_post_processor(v, top);
    if (status == DRA_OK) status = check_part(v, top, "decoder", bytes_rules);
    if (status == DRA_OK) status = check_part(v, top, "model", model_rules);
    added = json_object_get(top, "added_tokens");
    if (status == DRA_OK) status = check_added(v, added, &size);
    if (status != DRA_OK) return status;
    v->vocab = json_object_get(model, "vocab");
    v->t->nfc = json_is_object(json_object_get(top, "normalizer"));
    v->t->prefix_space = json_is_true(
        json_object_get(json_object_get(top, "pre_tokenizer"), "add_prefix_space"));
    status = dra_vocabulary_tokens(v, size);
    if (status == DRA_OK) status = read_added(v, added);
    if (status == DRA_OK) status = check_unknown(v, model);
    return status == DRA_OK ? read_merges(v, json_object_get(model, "merges")) : status;
}

dra_status dra_tokenizer_read_json(const char *path, const char *text, size_t bytes,
                                   dra_tokenizer **out, dra_error *err)
{
    dra_vocabulary v;
    json_t        *json = NULL;
    dra_status     status = dra_vocabulary_begin(&v, path, err);
    if (status == DRA_OK)
        status = dra_json_parse(path, text, bytes, (dra_json_rules){.depth = 16}, &json, err);
    if (status == DRA_OK) status = read_all(&v, json);
    status = dra_vocabulary_end(&v, status, out);
    json_decref(json);
    return status;
}
