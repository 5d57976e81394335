/* The tokenizers of tests/data/tokenizers, one in the layout of each family of models, with texts,
 * the ids they have in Hugging Face's tokenizers and what those decode to. Made by
 * `tests/parity/text_kinds.py tests/data/tokenizers`. */
#ifndef DRA_TESTS_TEXT_KINDS_H
#define DRA_TESTS_TEXT_KINDS_H

#include "small.h"

#define KINDS "tests/data/tokenizers/"

static const char *const kinds[] = {
    "llama3",  "qwen2",           "qwen35",          "digits",  "prepend",
    "replace", "metaspace-first", "metaspace-never", "unknown", "metaspace-always-split"};

static inline dra_tokenizer *open_kind(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, KINDS "%s", name);
    return open_tokenizer(path);
}

typedef struct kind_case {
    const char *text, *back;
    size_t      bytes;
    dra_ids     ids;
} kind_case;

/* The i-th case; false: there are no more. Its ids are to be freed. */
static inline bool read_case(const json_t *cases, size_t i, kind_case *c)
{
    const json_t *o = json_array_get(cases, i), *text = json_object_get(o, "text");
    const json_t *ids = json_object_get(o, "ids");
    if (!o) return false;
    *c = (kind_case){.text = json_string_value(text),
                     .bytes = json_string_length(text),
                     .back = json_string_value(json_object_get(o, "back"))};
    c->ids.n = json_array_size(ids);
    c->ids.data = calloc(c->ids.n + 1, sizeof *c->ids.data);
    assert_non_null(c->ids.data);
    for (size_t k = 0; k < c->ids.n; k++)
        c->ids.data[k] = (int32_t)json_integer_value(json_array_get(ids, k));
    return true;
}

static inline json_t *open_cases(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, KINDS "%s/cases.json", name);
    json_t *cases = json_load_file(path, 0, NULL);
    assert_true(json_array_size(cases) > 50);
    return cases;
}

static inline dra_ids encode_as(const dra_tokenizer *t, const char *text, size_t bytes,
                                unsigned how)
{
    dra_ids   ids = {0};
    dra_error err = {0};
    if (dra_encode_as(t, text, bytes, how, &ids, &err) != DRA_OK) fail_msg("%s", err.text);
    return ids;
}

static inline void check_same(const dra_ids *found, const dra_ids *expected, const char *text)
{
    if (found->n != expected->n ||
        (found->n && memcmp(found->data, expected->data, found->n * sizeof *found->data) != 0))
        fail_msg("other ids of '%s'", text);
}

/* All texts have the ids of the file. */
static inline void check_kind(const dra_tokenizer *t, const char *name)
{
    json_t   *cases = open_cases(name);
    kind_case c;
    for (size_t i = 0; read_case(cases, i, &c); i++) {
        dra_ids ids = encode_as(t, c.text, c.bytes, DRA_ENCODE_BEGIN | DRA_ENCODE_END);
        check_same(&ids, &c.ids, c.text);
        dra_ids_free(&ids);
        dra_ids_free(&c.ids);
    }
    json_decref(cases);
}

#endif
