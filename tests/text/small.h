/* Tokenizers for tests: the small one of tests/data/bpe, made by `tests/parity/text.py --fixture`,
 * a part of that of RWKV World in tests/data/world, made by `tests/parity/world.py --fixture`, tiny
 * ones written in a test, and real ones where there are some (shared.h). */
#ifndef DRA_TESTS_TEXT_SMALL_H
#define DRA_TESTS_TEXT_SMALL_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "shared.h"
#include "text/tokenizer.h"

static inline dra_tokenizer *open_tokenizer(const char *path)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    if (dra_tokenizer_open(path, &t, &err) != DRA_OK) fail_msg("%s", err.text);
    return t;
}

static inline dra_tokenizer *small_tokenizer(void) { return open_tokenizer("tests/data/bpe"); }

/* A tokenizer of the shared data, "" for the folder itself; skips the test without its file. */
static inline dra_tokenizer *real_tokenizer(const char *name, const char *needs)
{
    char  path[1024];
    FILE *f = shared_file(needs);
    if (!f) skip();
    fclose(f);
    snprintf(path, sizeof path, "%s/%s", shared_data(), name);
    return open_tokenizer(path);
}

/* An added token that is not special. */
#define ADDED(id, text, normalized, more)                                                          \
    "{\"id\": " #id ", \"content\": \"" text                                                       \
    "\", \"special\": false, \"normalized\": " #normalized more "}"

/* tokenizer.json with these parts; *out NULL: refused. */
typedef struct tiny {
    const char *normalizer, *pre_tokenizer, *added, *vocab, *merges; /* NULL: the usual ones */
} tiny;

static inline dra_status read_tiny(tiny p, dra_tokenizer **out, dra_error *err)
{
    char      text[4096];
    const int n = snprintf(
        text, sizeof text,
        "{\"added_tokens\": [%s], \"normalizer\": %s, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
        "%s}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": "
        "{%s}, \"merges\": [%s]}}",
        p.added ? p.added : "", p.normalizer ? p.normalizer : "null",
        p.pre_tokenizer ? p.pre_tokenizer : "\"add_prefix_space\": false",
        p.vocab ? p.vocab : "\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"ab\": 3",
        p.merges ? p.merges : "\"a b\"");
    assert_in_range(n, 1, sizeof text - 1);
    return dra_tokenizer_read_json("f", text, (size_t)n, out, err);
}

static inline dra_tokenizer *make_tiny(tiny p)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    if (read_tiny(p, &t, &err) != DRA_OK) fail_msg("%s", err.text);
    return t;
}

static inline dra_ids encode_bytes(const dra_tokenizer *t, const char *text, size_t bytes)
{
    dra_ids   ids = {0};
    dra_error err = {0};
    if (dra_encode(t, text, bytes, &ids, &err) != DRA_OK) fail_msg("%s", err.text);
    return ids;
}

/* The ids as text, "1 2 3". */
static inline void check_ids(const dra_tokenizer *t, const char *text, const char *expected)
{
    char    found[1024] = "";
    size_t  n = 0;
    dra_ids ids = encode_bytes(t, text, strlen(text));
    for (size_t i = 0; i < ids.n && n < sizeof found - 16; i++)
        n += (size_t)snprintf(found + n, sizeof found - n, i ? " %d" : "%d", ids.data[i]);
    dra_ids_free(&ids);
    assert_string_equal(found, expected);
}

/* Texts with the ids that the original gives them: [{"text": ..., "ids": [...]}, ...]. */
static inline void check_cases(const dra_tokenizer *t, const char *path)
{
    json_t *cases = json_load_file(path, 0, NULL);
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *text = json_object_get(c, "text");
        const json_t *expected = json_object_get(c, "ids");
        dra_ids       ids = encode_bytes(t, json_string_value(text), json_string_length(text));
        assert_int_equal(ids.n, json_array_size(expected));
        for (size_t k = 0; k < ids.n; k++)
            assert_int_equal(ids.data[k], json_integer_value(json_array_get(expected, k)));
        dra_ids_free(&ids);
    }
    json_decref(cases);
}

/* The bytes of all tokens are the text. */
static inline void check_bytes(const dra_tokenizer *t, const dra_ids *ids, const char *text,
                               size_t bytes)
{
    size_t at = 0, n;
    for (size_t i = 0; i < ids->n; i++, at += n) {
        const char *piece = dra_tokenizer_piece(t, ids->data[i], &n);
        assert_non_null(piece);
        assert_true(n <= bytes - at);
        assert_memory_equal(piece, text + at, n);
    }
    assert_int_equal(at, bytes);
}

#endif
