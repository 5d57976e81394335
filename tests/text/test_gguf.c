/* Tokenizers in GGUF: what is written reads as the same one; what cannot be said is refused. */
#include "file/folder.h"
#include "file/gguf.h"
#include "kinds.h"
#include "text/gguf.h"

/* The pairs of a file with this tokenizer. */
static dra_status make_pairs(const dra_tokenizer *t, dra_json *j, json_t **pairs, dra_error *err)
{
    *pairs = dra_json_object(j);
    dra_json_set(j, *pairs, "general.architecture", dra_json_text(j, "gpt2"));
    return dra_tokenizer_gguf_pairs(t, dra_tokenizer_size(t) + 3, j, *pairs, err);
}

static dra_tokenizer *write_and_read(json_t *pairs)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    if (dra_gguf_write(in_folder("f.gguf"), pairs, NULL, 0, &err) != DRA_OK)
        fail_msg("%s", err.text);
    if (dra_tokenizer_read_gguf(in_folder("f.gguf"), &t, &err) != DRA_OK) fail_msg("%s", err.text);
    return t;
}

static void reads_what_it_writes(void **state)
{
    static const struct {
        const char *kind, *model, *pre;
    } rows[] = {{"llama3", "gpt2", "llama-bpe"}, {"qwen2", "gpt2", "qwen2"},
                {"qwen35", "gpt2", "qwen35"},    {"digits", "gpt2", "smollm"},
                {"prepend", "llama", "default"}, {"replace", "llama", "default"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_tokenizer *t = open_kind(rows[i].kind), *again;
        dra_json       j = {0};
        json_t        *pairs;
        dra_error      err = {0};
        if (make_pairs(t, &j, &pairs, &err) != DRA_OK) fail_msg("%s: %s", rows[i].kind, err.text);
        const json_t *model = json_object_get(pairs, "tokenizer.ggml.model");
        const json_t *pre = json_object_get(pairs, "tokenizer.ggml.pre");
        assert_string_equal(json_string_value(model), rows[i].model);
        assert_string_equal(json_string_value(pre), rows[i].pre);
        again = write_and_read(pairs);
        check_kind(again, rows[i].kind);
        assert_int_equal(dra_tokenizer_end(again), dra_tokenizer_end(t));
        assert_int_equal(dra_tokenizer_begin(again), dra_tokenizer_begin(t));
        json_decref(pairs);
        dra_tokenizer_destroy(again);
        dra_tokenizer_destroy(t);
    }
}

/* Each row: a key of a file, another value, and what is then different or wrong. */
static void follows_its_keys(void **state)
{
    dra_tokenizer *t = open_kind("prepend"), *again;
    dra_json       j = {0};
    json_t        *pairs;
    assert_int_equal(make_pairs(t, &j, &pairs, NULL), DRA_OK);
    json_object_set_new(pairs, "tokenizer.ggml.add_space_prefix", json_false());
    json_object_set_new(pairs, "tokenizer.ggml.add_bos_token", json_false());
    json_object_set_new(pairs, "tokenizer.ggml.add_eos_token", json_true());
    again = write_and_read(pairs);
    assert_int_equal(dra_tokenizer_begin(again), -1);
    dra_ids ids = encode_as(again, "the the", 7, DRA_ENCODE_BEGIN | DRA_ENCODE_END);
    assert_int_equal(ids.data[ids.n - 1], dra_tokenizer_id(again, "</s>"));
    assert_int_not_equal(ids.data[0], dra_tokenizer_id(again, " the")); /* no space in front */
    assert_int_equal(ids.data[ids.n - 2], dra_tokenizer_id(again, " the"));
    dra_ids_free(&ids);
    dra_tokenizer_destroy(again);
    json_decref(pairs);
    dra_tokenizer_destroy(t);
}

/* Highest score first, of equal ones the leftmost, whatever two tokens spell it. */
static void merges_by_score(void **state)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a", "b", "ab", "ba", "aba"};
    static const double      scores[] = {0, 0, 0, -9, -9, -2, -1, -1};
    json_t                  *pairs = json_object(), *list = json_array(), *score = json_array();
    json_t                  *types = json_array();
    for (size_t i = 0; i < COUNT(tokens); i++) {
        json_array_append_new(list, json_string(tokens[i]));
        json_array_append_new(score, json_real(scores[i]));
        json_array_append_new(types, json_integer(i < 3 ? 3 : 1));
    }
    json_object_set_new(pairs, "general.architecture", json_string("llama"));
    json_object_set_new(pairs, "tokenizer.ggml.model", json_string("llama"));
    json_object_set_new(pairs, "tokenizer.ggml.tokens", list);
    json_object_set_new(pairs, "tokenizer.ggml.scores", score);
    json_object_set_new(pairs, "tokenizer.ggml.token_type", types);
    json_object_set_new(pairs, "tokenizer.ggml.add_space_prefix", json_false());
    dra_tokenizer *t = write_and_read(pairs);
    check_ids(t, "ab", "5");
    check_ids(t, "ba", "6");
    check_ids(t, "aba", "7"); /* ba first, then a and ba are aba */
    check_ids(t, "abab", "7 4");
    check_ids(t, "baba", "6 6");
    check_ids(t, "xa", "0 3");
    dra_tokenizer_destroy(t);
    json_decref(pairs);
}

static void refuses_what_it_does_not_know(void **state)
{
    static const struct {
        const char *kind, *key, *value, *words;
    } rows[] = {{"llama3", "tokenizer.ggml.pre", "\"tekken\"", "tokenizer.ggml.pre is tekken"},
                {"llama3", "tokenizer.ggml.model", "\"t5\"", "tokenizer.ggml.model is t5"},
                {"llama3", "tokenizer.ggml.bos_token_id", "999999", "bos_token_id is 999999"},
                {"prepend", "tokenizer.ggml.scores", "[]", "scores"},
                {"prepend", "tokenizer.ggml.unknown_token_id", "-7", "unknown_token_id"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_tokenizer *t = open_kind(rows[i].kind), *again = NULL;
        dra_json       j = {0};
        json_t        *pairs;
        dra_error      err = {0};
        assert_int_equal(make_pairs(t, &j, &pairs, NULL), DRA_OK);
        json_object_set_new(pairs, rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        assert_int_equal(dra_gguf_write(in_folder("f.gguf"), pairs, NULL, 0, NULL), DRA_OK);
        assert_int_equal(dra_tokenizer_read_gguf(in_folder("f.gguf"), &again, &err),
                         DRA_ERR_FORMAT);
        if (!strstr(err.text, rows[i].words)) fail_msg("%s", err.text);
        json_decref(pairs);
        dra_tokenizer_destroy(t);
    }
}

static void refuses_what_gguf_cannot_say(void **state)
{
    static const char *const rows[][2] = {{"unknown", "byte_fallback"},
                                          {"metaspace-first", "normalizer"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_tokenizer *t = open_kind(rows[i][0]);
        dra_json       j = {0};
        json_t        *pairs;
        dra_error      err = {0};
        assert_int_equal(make_pairs(t, &j, &pairs, &err), DRA_ERR_VALUE);
        if (!strstr(err.text, rows[i][1])) fail_msg("%s", err.text);
        json_decref(pairs);
        dra_tokenizer_destroy(t);
    }
}

/* Merges that leave out a way to make a token: scores would merge it. */
static void refuses_merges_that_are_not_of_scores(void **state)
{
    char          *text = NULL;
    size_t         bytes;
    dra_tokenizer *t = NULL;
    dra_json       j = {0};
    json_t        *pairs, *top;
    dra_error      err = {0};
    assert_int_equal(dra_file_read(KINDS "prepend/tokenizer.json", 1 << 24, &text, &bytes, NULL),
                     DRA_OK);
    top = json_loads(text, 0, NULL);
    free(text);
    json_array_remove(json_object_get(json_object_get(top, "model"), "merges"), 3);
    text = json_dumps(top, 0);
    json_decref(top);
    assert_int_equal(dra_tokenizer_read_json("f", text, strlen(text), &t, NULL), DRA_OK);
    assert_int_equal(make_pairs(t, &j, &pairs, &err), DRA_ERR_VALUE);
    if (!strstr(err.text, "merges")) fail_msg("%s", err.text);
    json_decref(pairs);
    free(text);
    dra_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_it_writes),
        cmocka_unit_test(follows_its_keys),
        cmocka_unit_test(merges_by_score),
        cmocka_unit_test(refuses_what_it_does_not_know),
        cmocka_unit_test(refuses_what_gguf_cannot_say),
        cmocka_unit_test(refuses_merges_that_are_not_of_scores),
    };
    if (folder_make(NULL) != 0) return 1;
    const int status = check_main("gguf", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) != 0 ? 1 : status;
}
