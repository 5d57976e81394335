/* Tokenizers as files: opened, saved, the same again; questions about tokens. */
#include "file/folder.h"
#include "small.h"

static void write_file(const char *name, const char *text)
{
    assert_int_equal(dra_file_write(in_folder(name), text, strlen(text), NULL), DRA_OK);
}

static void save(const dra_tokenizer *t, const char *name)
{
    dra_error err = {0};
    if (dra_tokenizer_save(t, in_folder(name), &err) != DRA_OK) fail_msg("%s", err.text);
}

static void refused(const char *path, dra_status code, const char *text)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    assert_int_equal(dra_tokenizer_open(path, &t, &err), code);
    assert_null(t);
    assert_string_equal(err.text, text);
}

/* The same tokens under the same ids, and the same fingerprint. */
static void check_same(const dra_tokenizer *a, const dra_tokenizer *b)
{
    assert_int_equal(dra_tokenizer_size(a), dra_tokenizer_size(b));
    assert_int_equal(dra_tokenizer_end(a), dra_tokenizer_end(b));
    for (int32_t i = 0; i < dra_tokenizer_size(a); i++) {
        size_t      n, m;
        const char *x = dra_tokenizer_piece(a, i, &n), *y = dra_tokenizer_piece(b, i, &m);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n);
        assert_int_equal(dra_tokenizer_is_special(a, i), dra_tokenizer_is_special(b, i));
    }
    assert_true(dra_tokenizer_fingerprint(a) == dra_tokenizer_fingerprint(b));
}

/* Saved, opened and saved again: the same bytes. */
static void check_saved(const dra_tokenizer *t)
{
    char  *first, *second;
    size_t n, m;
    save(t, "one.json");
    dra_tokenizer *again = open_tokenizer(in_folder("one.json"));
    save(again, "two.json");
    check_same(t, again);
    assert_int_equal(dra_tokenizer_is_bytes(t), dra_tokenizer_is_bytes(again));
    assert_int_equal(dra_file_read(in_folder("one.json"), 1 << 24, &first, &n, NULL), DRA_OK);
    assert_int_equal(dra_file_read(in_folder("two.json"), 1 << 24, &second, &m, NULL), DRA_OK);
    assert_int_equal(n, m);
    assert_memory_equal(first, second, n);
    free(first);
    free(second);
    dra_tokenizer_destroy(again);
}

static void saves_what_it_opened(void **state)
{
    dra_tokenizer *t = small_tokenizer();
    check_saved(t);
    dra_tokenizer_destroy(t);
    t = make_tiny((tiny){
        .pre_tokenizer = "\"add_prefix_space\": true",
        .normalizer = "{\"type\": \"NFC\"}",
        .vocab = "\"a\": 0, \"b\": 7, \"a b\": 3, \"ab\": 4, \"\\u00ff\": 5, \"\\\"\": 2",
        .added =
            "{\"id\": 9, \"content\": \"\\n\\\"\\u6c34\", \"special\": true, \"normalized\": true, "
            "\"lstrip\": true, \"rstrip\": true}"});
    check_saved(t);
    dra_tokenizer_destroy(t);
}

static void saves_bytes(void **state)
{
    dra_tokenizer *t = NULL;
    assert_int_equal(dra_tokenizer_bytes(&t, NULL), DRA_OK);
    assert_true(dra_tokenizer_is_bytes(t));
    assert_int_equal(dra_tokenizer_size(t), 256);
    assert_int_equal(dra_tokenizer_end(t), -1);
    assert_int_equal(dra_tokenizer_id(t, "a"), 'a');
    check_saved(t);
    dra_tokenizer_destroy(t);
}

static const char some_vocab[] =
    "{\"a\": 0, \"#version\": 6, \"b\": 1, \"ab\": 2, \"<|endoftext|>\": 5,"
    "\"#\": 3, \"!\": 7, \"#!\": 4}";

static void opens_pairs(void **state)
{
    static const char *const merges[] = {"#version: 0.2\na b\n# !\n", "a b\r\n# !",
                                         "\na b\n\n# !\n\n"};
    clean(state);
    write_file("vocab.json", some_vocab);
    for (size_t i = 0; i < COUNT(merges); i++) {
        write_file("merges.txt", merges[i]);
        dra_tokenizer *t = open_tokenizer(folder);
        check_ids(t, "ab<|endoftext|>#!", "2 5 4");
        assert_int_equal(dra_tokenizer_size(t), 8);
        assert_int_equal(dra_tokenizer_end(t), 5);
        assert_true(dra_tokenizer_is_special(t, 5));
        check_saved(t);
        dra_tokenizer_destroy(t);
    }
    clean(state);
    write_file("encoder.json", some_vocab);
    write_file("vocab.bpe", merges[0]);
    dra_tokenizer_destroy(open_tokenizer(folder));
}

static void prefers_tokenizer_json(void **state)
{
    clean(state);
    write_file("vocab.json", some_vocab);
    write_file("merges.txt", "a b");
    dra_tokenizer *t = NULL;
    assert_int_equal(dra_tokenizer_bytes(&t, NULL), DRA_OK);
    save(t, "tokenizer.json");
    dra_tokenizer_destroy(t);
    t = open_tokenizer(folder);
    assert_true(dra_tokenizer_is_bytes(t));
    dra_tokenizer_destroy(t);
}

static void says_what_is_missing(void **state)
{
    char text[1024];
    clean(state);
    snprintf(text, sizeof text,
             "%s: no tokenizer in this folder: expected tokenizer.json, or vocab.json and "
             "merges.txt, or encoder.json and vocab.bpe, or rwkv_vocab_v20230424.txt",
             folder);
    refused(folder, DRA_ERR_FILE, text);
    write_file("vocab.json", some_vocab); /* alone */
    refused(folder, DRA_ERR_FILE, text);
    snprintf(text, sizeof text, "%s: cannot open it: No such file or directory", in_folder("x"));
    refused(in_folder("x"), DRA_ERR_FILE, text);
    refused(NULL, DRA_ERR_VALUE, "tokenizer_open: no path or result");
}

static void not_of_folder(const char *path, int64_t vocab, dra_status code, const char *text)
{
    dra_tokenizer *t = (dra_tokenizer *)&code; /* becomes NULL */
    dra_error      err = {0};
    assert_int_equal(dra_tokenizer_open_folder(path, vocab, &t, &err), code);
    assert_null(t);
    assert_string_equal(err.text, text);
}

/* Of a model with the files of a tokenizer, without them, and without a folder. */
static void opens_that_of_a_model(void **state)
{
    static const struct {
        const char *path;
        int64_t     vocab;
        bool        bytes;
    } rows[] = {{"tests/data/bpe", 0, false},
                {"tests/data/bpe", 924, false},
                {"tests/data/bpe", 1000, false},
                {"tests/data", 256, true},
                {"tests/data", 0, true},
                {NULL, 256, true},
                {NULL, 0, true}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_tokenizer *t = NULL;
        dra_error      err = {0};
        if (dra_tokenizer_open_folder(rows[i].path, rows[i].vocab, &t, &err) != DRA_OK)
            fail_msg("%s", err.text);
        assert_int_equal(dra_tokenizer_is_bytes(t), rows[i].bytes);
        assert_int_equal(dra_tokenizer_size(t), rows[i].bytes ? 256 : 924);
        dra_tokenizer_destroy(t);
    }
    not_of_folder("tests/data", 300, DRA_ERR_VALUE,
                  "tests/data: no tokenizer files, and 300 tokens are not bytes");
    not_of_folder(NULL, 300, DRA_ERR_VALUE, "no tokenizer files, and 300 tokens are not bytes");
    not_of_folder("tests/data/bpe", 923, DRA_ERR_VALUE,
                  "tests/data/bpe: its tokenizer has 924 tokens, the model only 923");
    clean(state);
    write_file("tokenizer.json", "{");
    dra_tokenizer *t = NULL;
    assert_int_equal(dra_tokenizer_open_folder(folder, 256, &t, NULL), DRA_ERR_FORMAT);
    assert_null(t);
    assert_int_equal(dra_tokenizer_open_folder(folder, 256, NULL, NULL), DRA_ERR_VALUE);
}

static void refuses_bad_pairs(void **state)
{
    static const struct {
        const char *vocab, *merges, *file, *text;
    } rows[] = {
        {"[]", "", "vocab.json", "expected an object, tokens to ids"},
        {"{\"a\": 0, \"a\": 1}", "", "vocab.json",
         "JSON, line 1, column 12: duplicate object key near '\"a\"'"},
        {"{\"a\": {}}", "", "vocab.json", "JSON nests 2 deep, expected at most 1"},
        {some_vocab, "a", "merges.txt", "line 1: expected two tokens and a space"},
        {some_vocab, "a b\na b c", "merges.txt", "line 2: expected two tokens and a space"},
        {some_vocab, "a b\na x", "merges.txt", "merge 1: 'x' is not in the vocabulary"},
        {some_vocab, "b a", "merges.txt", "merge 0: 'ba' is not in the vocabulary"},
        {some_vocab, "a b\n# !\na b", "merges.txt", "merge 2 is merge 0 again"},
        {some_vocab, " b", "merges.txt", "merge 0: '' is not in the vocabulary"},
    };
    clean(state);
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[1024];
        write_file("vocab.json", rows[i].vocab);
        write_file("merges.txt", rows[i].merges);
        snprintf(text, sizeof text, "%s: %s", in_folder(rows[i].file), rows[i].text);
        refused(folder, DRA_ERR_FORMAT, text);
    }
}

static void tells_tokenizers_apart(void **state)
{
    const tiny kinds[] = {
        {0},
        {.normalizer = "{\"type\": \"NFC\"}"},
        {.pre_tokenizer = "\"add_prefix_space\": true"},
        {.merges = ""},
        {.vocab = "\"a\": 1, \"b\": 0, \"\\u0120\": 2, \"ab\": 3"},
        {.added = "{\"id\": 3, \"content\": \"ab\", \"special\": true, \"normalized\": false}"},
        {.added = "{\"id\": 3, \"content\": \"ab\", \"special\": false, \"normalized\": false}"},
        {.added = "{\"id\": 4, \"content\": \"ab \", \"special\": false, \"normalized\": false}"},
    };
    uint64_t seen[COUNT(kinds)];
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dra_tokenizer *t = make_tiny(kinds[i]);
        seen[i] = dra_tokenizer_fingerprint(t);
        for (size_t k = 0; k < i; k++) assert_true(seen[k] != seen[i]);
        dra_tokenizer_destroy(t);
    }
}

static void answers_about_tokens(void **state)
{
    dra_tokenizer *t = make_tiny((tiny){.vocab = "\"a\": 0, \"b\": 1, \"\\u0120b\": 4, \"ab\": 3"});
    size_t         n;
    assert_int_equal(dra_tokenizer_size(t), 5);
    assert_int_equal(dra_tokenizer_end(t), -1);
    assert_int_equal(dra_tokenizer_id(t, " b"), 4);
    assert_int_equal(dra_tokenizer_id(t, "ab"), 3);
    assert_int_equal(dra_tokenizer_id(t, "ba"), -1);
    assert_int_equal(dra_tokenizer_id(t, ""), -1);
    assert_memory_equal(dra_tokenizer_piece(t, 4, &n), " b", 2);
    assert_int_equal(n, 2);
    const int32_t none[] = {2, 5, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < COUNT(none); i++) {
        assert_null(dra_tokenizer_piece(t, none[i], &n));
        assert_int_equal(n, 0);
        assert_false(dra_tokenizer_is_special(t, none[i]));
    }
    dra_tokenizer_destroy(t);
    dra_tokenizer_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saves_what_it_opened), cmocka_unit_test(saves_bytes),
        cmocka_unit_test(opens_pairs),          cmocka_unit_test(prefers_tokenizer_json),
        cmocka_unit_test(says_what_is_missing), cmocka_unit_test(opens_that_of_a_model),
        cmocka_unit_test(refuses_bad_pairs),    cmocka_unit_test(tells_tokenizers_apart),
        cmocka_unit_test(answers_about_tokens),
    };
    if (folder_make(NULL) != 0) return 1;
    const int status = check_main("tokenizer", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) != 0 ? 1 : status;
}
