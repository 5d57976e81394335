/* tokenizer.json of Hugging Face's tokenizers, as far as dra does exactly what it asks for: BPE
 * over bytes or characters. Here are its model and its tokens; read_layout.c has the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/fail.h"
#include "text/read_layout.h"

enum { /* short names for the tables */
       NOTHING = DRA_RULE_NULL,
       TEXT = DRA_RULE_TEXT,
       LIST = DRA_RULE_LIST,
       OBJECT = DRA_RULE_OBJECT,
       BOOL = DRA_RULE_BOOL,
       NEEDED = DRA_RULE_NEEDED
};

static const dra_rule top_rules[] = {{"version", TEXT, "1.0"},
                                     {"truncation", NOTHING, NULL},
                                     {"padding", NOTHING, NULL},
                                     {"added_tokens", LIST | NOTHING, NULL},
                                     {"normalizer", OBJECT | NOTHING, NULL},
                                     {"pre_tokenizer", OBJECT | NOTHING | NEEDED, NULL},
                                     {"post_processor", OBJECT | NOTHING, NULL},
                                     {"decoder", OBJECT | NEEDED, NULL},
                                     {"model", OBJECT | NEEDED, NULL},
                                     {0}};
static const dra_rule model_rules[] = {
    {"type", TEXT | NEEDED, "BPE"},
    {"dropout", NOTHING | DRA_RULE_ZERO, NULL},
    {"unk_token", NOTHING | TEXT, NULL},
    {"continuing_subword_prefix", NOTHING | DRA_RULE_EMPTY, NULL},
    {"end_of_word_suffix", NOTHING | DRA_RULE_EMPTY, NULL},
    {"fuse_unk", BOOL, NULL},
    {"byte_fallback", BOOL, NULL},
    {"ignore_merges", BOOL, NULL},
    {"vocab", OBJECT | NEEDED, NULL},
    {"merges", LIST | NEEDED, NULL},
    {0}};
static const dra_rule added_rules[] = {{"id", DRA_RULE_NUMBER | NEEDED, NULL},
                                       {"content", TEXT | NEEDED, NULL},
                                       {"special", BOOL | NEEDED, NULL},
                                       {"normalized", BOOL | NEEDED, NULL},
                                       {"single_word", DRA_RULE_OFF, NULL},
                                       {"lstrip", BOOL, NULL},
                                       {"rstrip", BOOL, NULL},
                                       {0}};

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
    static const dra_rule range = {"id", DRA_RULE_NUMBER, NULL};
    char                  place[48];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *id = json_object_get(item, "id");
        snprintf(place, sizeof place, "added_tokens[%zu]%s", i, json_is_object(item) ? "." : "");
        if (!json_is_object(item))
            return dra_rules_refuse(v, place, &(dra_rule){"", DRA_RULE_OBJECT, NULL}, item);
        const dra_status status = dra_rules_check(v, place, item, added_rules);
        if (status != DRA_OK) return status;
        if (json_integer_value(id) < 0 || json_integer_value(id) >= DRA_MOST_IDS)
            return dra_rules_refuse(v, place, &range, id);
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
static dra_status check_unknown(const dra_vocabulary *v, bool unk)
{
    bool has[256] = {0};
    for (int32_t id = 0; id < v->t->size; id++) {
        const dra_token *k = &v->t->token[id];
        if (k->kind == DRA_TOKEN_BYTES && k->bytes == 1) has[(unsigned char)k->text[0]] = true;
    }
    for (int i = 0; i < 256; i++)
        if (!has[i])
            return dra_vocabulary_fail(v,
                                       "model.%s: expected none, because the vocabulary has no "
                                       "token for the byte 0x%02x",
                                       unk ? "unk_token" : "byte_fallback", i);
    return DRA_OK;
}

/* The token of characters without one. */
static dra_status read_unknown(dra_vocabulary *v, const json_t *model)
{
    const char   *unk = json_string_value(json_object_get(model, "unk_token"));
    const json_t *id = unk ? json_object_get(v->vocab, unk) : NULL;
    char          room[DRA_BRIEF];
    if (v->t->how.split) return unk || v->t->how.fallback ? check_unknown(v, unk) : DRA_OK;
    if (unk && !id)
        return dra_vocabulary_fail(v, "model.unk_token: '%s' is not in the vocabulary",
                                   dra_brief(unk, room));
    if (id) v->t->how.unknown = (int32_t)json_integer_value(id);
    return DRA_OK;
}

static dra_status check_model(const dra_vocabulary *v, const json_t *model)
{
    dra_status st = dra_rules_check(v, "model.", model, model_rules);
    v->t->how.whole = json_is_true(json_object_get(model, "ignore_merges"));
    v->t->how.fallback = json_is_true(json_object_get(model, "byte_fallback"));
    v->t->how.fuse = json_is_true(json_object_get(model, "fuse_unk"));
    if (st == DRA_OK && v->t->how.whole && !v->t->how.split)
        st = dra_vocabulary_fail(v, "model.ignore_merges: expected false without a pattern in "
                                    "pre_tokenizer, found true");
    if (st == DRA_OK && v->t->how.fallback && !v->t->how.split && !v->t->how.has_bytes)
        st = dra_vocabulary_fail(v, "decoder: expected ByteFallback, because the model has "
                                    "byte_fallback");
    return st;
}

static dra_status read_all(dra_vocabulary *v, const json_t *top)
{
    const json_t *model = json_object_get(top, "model"), *added;
    int64_t       size = 0;
    if (!json_is_object(top)) return dra_vocabulary_fail(v, "expected an object");
    dra_status status = dra_rules_check(v, "", top, top_rules);
    if (status == DRA_OK) status = dra_layout_read(v, top);
    if (status == DRA_OK) status = check_model(v, model);
    added = json_object_get(top, "added_tokens");
    if (status == DRA_OK) status = check_added(v, added, &size);
    if (status != DRA_OK) return status;
    v->vocab = json_object_get(model, "vocab");
    status = dra_vocabulary_tokens(v, size);
    if (status == DRA_OK) status = read_added(v, added);
    if (status == DRA_OK) status = read_unknown(v, model);
    if (status == DRA_OK) status = dra_layout_read_around(v, top);
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
