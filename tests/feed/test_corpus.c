/* Corpora: what files become, wherever their tokens are kept, and what is refused. */
#include "corpora.h"

static dra_tokenizer *bytes, *pairs, *wide; /* wide: ids that need 32 bits */

static int make_all(void **state)
{
    if (folder_make(state) != 0) return -1;
    bytes = bytes_tokenizer();
    pairs = pairs_tokenizer(300);
    wide = pairs_tokenizer(70000);
    return 0;
}

static int remove_all(void **state)
{
    dra_tokenizer_destroy(bytes);
    dra_tokenizer_destroy(pairs);
    dra_tokenizer_destroy(wide);
    return folder_remove(state);
}

/* Whether a file with this name is mapped into this process. */
static bool is_mapped(const char *name)
{
    char  line[1024];
    bool  found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) found = found || strstr(line, name);
    fclose(f);
    return found;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void maps_a_text_of_bytes(void **state)
{
    const char  text[] = "one\0two\xff\xfe\r\n\xc3"; /* NUL, no UTF-8, half a letter */
    const char *path = put_file("odd-bytes.txt", text, sizeof text - 1);
    check_no_corpus((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = bytes}, DRA_ERR_FORMAT,
                    "odd-bytes.txt",
                    ": is not text and has no known format; if it is meant, say what it is: "
                    "--data-format bytes, tokens-u16, ...");
    dra_corpus *c = opened_bytes(bytes, path);
    assert_true(is_mapped("odd-bytes.txt"));
    check_bytes(c, text, sizeof text - 1);
    check_starts(c, (int64_t[]){0}, 1);
    assert_int_equal(dra_corpus_bytes(c), sizeof text - 1);
    assert_int_equal(dra_corpus_largest(c), 255);
    dra_corpus_close(c);
    assert_false(is_mapped("odd-bytes.txt"));
}

static void reads_files_in_order(void **state)
{
    const char *paths[] = {put_text("b.txt", "xy"), put_text("empty.txt", ""),
                           put_text("a.txt", "z"), put_text("b.txt", "xy")};
    dra_corpus *c = opened((dra_corpus_config){.n = 4, .paths = paths, .tokenizer = bytes});
    check_bytes(c, "xyzxy", 5);
    check_starts(c, (int64_t[]){0, 2, 3}, 3);
    assert_int_equal(dra_corpus_bytes(c), 5);
    dra_corpus_close(c);
}

static void reads_a_folder_by_name(void **state)
{
    clean(state);
    put_text("b", "2");
    put_text("B", "1");
    put_text("c.jsonl", "{\"text\": \"3\"}");
    put_text(".hidden", "no");
    put_text("kept.tokens", "no");
    put_text("b.77-0.tmp", "no");
    mkdir(in_folder("a"), 0700);
    dra_corpus *c = opened_path(bytes, folder);
    check_bytes(c, "123", 3);
    check_starts(c, (int64_t[]){0, 1, 2}, 3);
    dra_corpus_close(c);
    clean(state);
}

static void cuts_a_text_at_separators(void **state)
{
    static const struct {
        const char *separator, *text, *tokens;
        int64_t     n, starts[3];
    } cases[] = {
        {"---", "ab\n---\nc\n", "ab\nc\n", 2, {0, 3}},
        {"---", "---\nab\n---\n---\nc---\n----\n---", "ab\nc---\n----\n", 2, {0, 3}},
        {"---", "ab\r\n---\r\nc", "ab\r\nc", 2, {0, 4}},
        {"---", "none", "none", 1, {0}},
        {"", "a\n\nb\n\n\nc", "a\nb\nc", 3, {0, 2, 4}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *path = put_text("cut.txt", cases[i].text);
        dra_corpus *c = opened((dra_corpus_config){
            .n = 1, .paths = &path, .tokenizer = bytes, .separator = cases[i].separator});
        check_bytes(c, cases[i].tokens, strlen(cases[i].tokens));
        check_starts(c, cases[i].starts, cases[i].n);
        assert_int_equal(dra_corpus_bytes(c), strlen(cases[i].tokens));
        dra_corpus_close(c);
    }
}

static void ends_documents(void **state)
{
    const char       *path = put_text("end.txt", "the\n--\na th\n");
    dra_corpus_config config = {.n = 1, .paths = &path, .tokenizer = pairs, .separator = "--"};
    dra_corpus       *c = opened(config);
    check_ids(c, (int32_t[]){257, '\n', 300, 'a', ' ', 256, '\n', 300}, 8);
    check_starts(c, (int64_t[]){0, 3}, 2);
    assert_int_equal(dra_corpus_bytes(c), 9);
    assert_int_equal(dra_corpus_largest(c), 300);
    dra_corpus_close(c);
    config.no_end = true;
    c = opened(config);
    check_ids(c, (int32_t[]){257, '\n', 'a', ' ', 256, '\n'}, 6);
    check_starts(c, (int64_t[]){0, 2}, 2);
    dra_corpus_close(c);
    config.tokenizer = wide;
    config.no_end = false;
    c = opened(config);
    check_ids(c, (int32_t[]){257, '\n', 70000, 'a', ' ', 256, '\n', 70000}, 8);
    dra_corpus_close(c);
}

/* A text is encoded in pieces of a million bytes: the ids are those of the whole. */
static void encodes_in_pieces(void **state)
{
    const size_t n = 3500000;
    char        *text = malloc(n);
    uint64_t     seed = 1;
    dra_ids      ids = {0};
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) text[i] = "the he th\n"[(int)(check_random(&seed) * 10)];
    memset(text + 100000, 't', 2500000); /* a word longer than a piece */
    const char *path = put_file("long.txt", text, n);
    assert_int_equal(dra_encode(pairs, text, n, &ids, NULL), DRA_OK);
    dra_corpus *c = opened(
        (dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs, .no_end = true});
    check_ids(c, ids.data, (int64_t)ids.n);
    assert_int_equal(dra_corpus_bytes(c), n);
    dra_corpus_close(c);
    dra_ids_free(&ids);
    free(text);
}

/* With tokenizers that put a token in front of texts and a space, maybe: once for each document,
 * not for each piece of one. */
static void begins_documents(void **state)
{
    enum { BYTES = 2500000 };
    static const char *const kinds[] = {"llama3", "prepend", "metaspace-first"};
    static const char        line[] = "\n--\n", more[] = "the end";
    char                    *text = malloc(BYTES + sizeof line + sizeof more);
    uint64_t                 seed = 1;
    assert_non_null(text);
    for (size_t i = 0; i < BYTES; i++) text[i] = "the he th.1"[(int)(check_random(&seed) * 11)];
    memcpy(text + BYTES, line, sizeof line - 1);
    memcpy(text + BYTES + sizeof line - 1, more, sizeof more);
    const char *path = put_text("begins.txt", text);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        char           name[128];
        dra_tokenizer *t = NULL;
        dra_ids        ids = {0};
        snprintf(name, sizeof name, "tests/data/tokenizers/%s", kinds[i]);
        assert_int_equal(dra_tokenizer_open(name, &t, NULL), DRA_OK);
        dra_corpus *c = opened((dra_corpus_config){
            .n = 1, .paths = &path, .tokenizer = t, .separator = "--", .no_end = true});
        assert_int_equal(dra_encode_as(t, text, BYTES + 1, DRA_ENCODE_BEGIN, &ids, NULL), DRA_OK);
        const int64_t first = (int64_t)ids.n;
        assert_int_equal(dra_encode_as(t, more, sizeof more - 1, DRA_ENCODE_BEGIN, &ids, NULL),
                         DRA_OK);
        assert_int_equal(ids.data[0], dra_tokenizer_begin(t));
        assert_int_equal(ids.data[first], dra_tokenizer_begin(t));
        check_ids(c, ids.data, (int64_t)ids.n);
        check_starts(c, (int64_t[]){0, first}, 2);
        dra_corpus_close(c);
        dra_ids_free(&ids);
        dra_tokenizer_destroy(t);
    }
    free(text);
}

static void names_what_cannot_be_encoded(void **state)
{
    dra_tokenizer *t = pairs_without(7, 300);
    const char    *path = put_text("bell.txt", "ab\n--\nring \a\n");
    dra_corpus    *c = NULL;
    dra_error      err = {0};
    char           place[700];
    assert_int_equal(
        dra_corpus_open(
            &(dra_corpus_config){.n = 1, .paths = &path, .tokenizer = t, .separator = "--"}, NULL,
            NULL, &c, &err),
        DRA_ERR_VALUE);
    assert_null(c);
    snprintf(place, sizeof place, "%s: document at byte 6: ", path);
    assert_memory_equal(err.text, place, strlen(place));
    dra_tokenizer_destroy(t);
}

/* ---- lines of JSON --------------------------------------------------------------------------- */

static void reads_lines_of_json(void **state)
{
    const char *path = put_text("d.jsonl", "\xef\xbb\xbf{\"text\": \"a\\nb\", \"n\": [1, {}]}\n"
                                           "\n  \r\n"
                                           "{\"n\":1e9,\"text\":\"\\u00e9\\u0000\"}\r\n"
                                           "{\"text\": \"\"}\n"
                                           "{\"text\": \"c\"}");
    dra_corpus *c = opened_path(bytes, path);
    check_bytes(c, "a\nb\xc3\xa9\0c", 7);
    check_starts(c, (int64_t[]){0, 3, 6}, 3);
    assert_int_equal(dra_corpus_bytes(c), 7);
    dra_corpus_close(c);
    path = put_text("k.jsonl", "{\"text\": 1, \"body\": \"x\"}\n");
    c = opened((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs, .text_key = "body"});
    check_ids(c, (int32_t[]){'x', 300}, 2);
    dra_corpus_close(c);
}

static void refuses_broken_lines(void **state)
{
    static const struct {
        const char *text;
        dra_status  code;
        const char *error;
    } cases[] = {
        {"{\"text\": \"a\"}\n{\"text\": \"b\"\n", DRA_ERR_FORMAT,
         ":2: JSON, column 0: '}' expected near end of file"},
        {"\n\nx\n", DRA_ERR_FORMAT, ":3: JSON, column 1: '[' or '{' expected near 'x'"},
        {"{\"text\": \"a\"} {}\n", DRA_ERR_FORMAT,
         ":1: JSON, column 15: end of file expected near '{'"},
        {"[\"text\"]\n", DRA_ERR_FORMAT, ":1: no object, expected {\"text\": ...}"},
        {"{\"txt\": \"a\"}\n", DRA_ERR_FORMAT, ":1: no 'text', expected a text"},
        {"{\"text\": null}\n", DRA_ERR_FORMAT, ":1: another kind of 'text', expected a text"},
        {"{\"text\": \"a\", \"text\": \"b\"}\n", DRA_ERR_FORMAT,
         ":1: JSON, column 20: duplicate object key near '\"text\"'"},
        {"{\"text\": \"\xff\"}\n", DRA_ERR_FORMAT,
         ":1: JSON, column 10: unable to decode byte 0xff near '\"'"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *path = put_text("bad.jsonl", cases[i].text);
        check_no_corpus((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = bytes},
                        cases[i].code, "bad.jsonl", cases[i].error);
    }
}

/* ---- ids ------------------------------------------------------------------------------------- */

/* A safetensors file with ids and perhaps starts, its header and data written by hand. */
static const char *put_ids(const char *type, const void *ids, size_t width, size_t n,
                           const char *start_type, const void *starts, size_t start_width,
                           size_t n_starts)
{
    char           file[1024];
    const size_t   size = n * width, more = n_starts * start_width;
    const uint64_t header = (uint64_t)snprintf(
        file + 8, sizeof file - 8,
        "{\"ids\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}", type, n, size);
    uint64_t all = header;
    if (start_type)
        all += (uint64_t)snprintf(
            file + 8 + all, sizeof file - 8 - all,
            ",\"starts\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}", start_type,
            n_starts, size, size + more);
    file[8 + all++] = '}';
    memcpy(file, &all, 8);
    memcpy(file + 8 + all, ids, size);
    if (starts) memcpy(file + 8 + all + size, starts, more);
    return put_file("ids.safetensors", file, 8 + all + size + more);
}

static const uint8_t  u8[] = {1, 255, 0, 7, 7};
static const uint16_t u16[] = {1, 255, 0, 7, 7};
static const int32_t  i32[] = {1, 255, 0, 7, 7};
static const int64_t  i64[] = {1, 255, 0, 7, 7};
static const int64_t  starts64[] = {0, 2};
static const int32_t  starts32[] = {0, 2};

static void takes_ids_of_any_width(void **state)
{
    static const struct {
        const char *type;
        const void *ids;
        size_t      width;
    } cases[] = {{"U8", u8, 1}, {"U16", u16, 2}, {"I32", i32, 4}, {"I64", i64, 8}};
    uint64_t fingerprint = 0;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const bool  small = i % 2;
        const char *path = put_ids(cases[i].type, cases[i].ids, cases[i].width, 5,
                                   small ? "I32" : "I64", small ? starts32 : (const void *)starts64,
                                   small ? 4 : 8, 2);
        dra_corpus *c = opened_path(NULL, path);
        check_ids(c, i32, 5);
        check_starts(c, starts64, 2);
        assert_int_equal(dra_corpus_bytes(c), -1);
        assert_int_equal(dra_corpus_largest(c), 255);
        if (i) assert_true(dra_corpus_fingerprint(c) == fingerprint);
        fingerprint = dra_corpus_fingerprint(c);
        dra_corpus_close(c);
    }
    dra_corpus *c = opened_path(bytes, put_ids("U16", u16, 2, 5, NULL, NULL, 0, 0));
    check_starts(c, (int64_t[]){0}, 1);
    assert_true(dra_corpus_fingerprint(c) != fingerprint); /* other documents */
    dra_corpus_close(c);
}

static void check_no_ids(const char *path, const dra_tokenizer *t, dra_status code,
                         const char *text)
{
    check_no_corpus((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = t}, code,
                    "ids.safetensors", text);
}

static void refuses_other_ids(void **state)
{
    check_no_ids(put_ids("F32", i32, 4, 5, NULL, NULL, 0, 0), NULL, DRA_ERR_DTYPE,
                 ": tensor 'ids': dtype F32, expected U8, U16, I32 or I64");
    check_no_ids(put_ids("BOOL", u8, 1, 5, NULL, NULL, 0, 0), NULL, DRA_ERR_DTYPE,
                 ": tensor 'ids': dtype BOOL, expected U8, U16, I32 or I64");
    check_no_ids(put_ids("I32", (int32_t[]){4, -2}, 4, 2, NULL, NULL, 0, 0), NULL, DRA_ERR_INDEX,
                 ": token 1 is -2, expected an id from 0 to 2147483647");
    check_no_ids(put_ids("I64", (int64_t[]){4, (int64_t)1 << 33}, 8, 2, NULL, NULL, 0, 0), NULL,
                 DRA_ERR_INDEX, ": token 1 is 8589934592, expected an id from 0 to 2147483647");
    check_no_ids(put_ids("U16", (uint16_t[]){255, 256}, 2, 2, NULL, NULL, 0, 0), bytes,
                 DRA_ERR_INDEX, ": token 1 is 256, expected an id from 0 to 255");
    check_no_ids(put_ids("U8", u8, 1, 0, NULL, NULL, 0, 0), NULL, DRA_ERR_VALUE,
                 ": no tokens in it, expected at least one");
    check_no_ids(put_ids("U8", u8, 1, 5, "U8", u8, 1, 1), NULL, DRA_ERR_DTYPE,
                 ": tensor 'starts': dtype U8, expected I32 or I64");
    check_no_ids(put_ids("U8", u8, 1, 5, "I32", (int32_t[]){1, 2}, 4, 2), NULL, DRA_ERR_FORMAT,
                 ": document 0 starts at token 1, expected 0");
    check_no_ids(put_ids("U8", u8, 1, 5, "I32", (int32_t[]){0, 5}, 4, 2), NULL, DRA_ERR_FORMAT,
                 ": document 1 starts at token 5, expected 1 to 4");
    check_no_ids(put_ids("U8", u8, 1, 5, "I32", (int32_t[]){0, 3, 3}, 4, 3), NULL, DRA_ERR_FORMAT,
                 ": document 2 starts at token 3, expected 4 to 4");
    check_no_ids(put_ids("U8", u8, 1, 5, "I64", starts64, 8, 0), NULL, DRA_ERR_FORMAT,
                 ": 5 tokens but no documents in 'starts'");
}

static void refuses_other_tensors(void **state)
{
    const char           *path = in_folder("ids.safetensors");
    const dra_tensor_item two = {"ids", DRA_I32, DRA_SHAPE(1, 5), i32};
    const dra_tensor_item other = {"idz", DRA_I32, DRA_SHAPE(5), i32};
    assert_int_equal(dra_tensors_write(path, &two, 1, NULL, 0, NULL), DRA_OK);
    check_no_ids(path, NULL, DRA_ERR_SHAPE, ": tensor 'ids': shape (1, 5), expected (N)");
    assert_int_equal(dra_tensors_write(path, &other, 1, NULL, 0, NULL), DRA_OK);
    check_no_ids(path, NULL, DRA_ERR_NAME, ": no tensor 'ids'");
}

/* ---- the same tokens, other files ------------------------------------------------------------ */

static void has_one_fingerprint(void **state)
{
    const char *two[] = {put_text("one.txt", "ab\n"), put_text("two.txt", "c")};
    const char *cut = put_text("cut.txt", "ab\n--\nc");
    const char *lines = put_text("l.jsonl", "{\"text\":\"ab\\n\"}\n{\"text\":\"c\"}\n");
    const char *ids = put_ids("I32", (int32_t[]){'a', 'b', '\n', 'c'}, 4, 4, "I32",
                              (int32_t[]){0, 3}, 4, 2);
    dra_corpus *c[] = {
        opened((dra_corpus_config){.n = 2, .paths = two, .tokenizer = bytes}),
        opened((dra_corpus_config){.n = 1, .paths = &cut, .tokenizer = bytes, .separator = "--"}),
        opened_path(bytes, lines), opened_path(NULL, ids), opened_path(bytes, cut)};
    for (int i = 1; i < 4; i++)
        assert_true(dra_corpus_fingerprint(c[i]) == dra_corpus_fingerprint(c[0]));
    assert_true(dra_corpus_fingerprint(c[4]) != dra_corpus_fingerprint(c[0]));
    for (int i = 0; i < 5; i++) dra_corpus_close(c[i]);
}

typedef struct told {
    int64_t done, total;
    int     calls;
} told;

static void hear(void *user, int64_t done, int64_t total)
{
    told *t = user;
    assert_true(done >= t->done && done <= total && (t->calls == 0 || total == t->total));
    *t = (told){done, total, t->calls + 1};
}

static void tells_its_progress(void **state)
{
    const size_t n = 3000000;
    char        *text = malloc(n);
    told         t = {0};
    dra_corpus  *c = NULL;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) text[i] = "the "[i % 4];
    const char *paths[] = {put_text("s.txt", "abc"), put_file("long.txt", text, n)};
    assert_int_equal(
        dra_corpus_open(&(dra_corpus_config){.n = 2, .paths = paths, .tokenizer = pairs}, hear, &t,
                        &c, NULL),
        DRA_OK);
    assert_true(t.calls >= 4);
    assert_int_equal(t.done, n + 3);
    assert_int_equal(t.total, n + 3);
    dra_corpus_close(c);
    free(text);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void knows_what_needs_a_tokenizer(void **state)
{
    char        ids[512], text[512], all[512];
    const char *paths[] = {ids, text}, *one = all;
    clean(state);
    snprintf(all, sizeof all, "%s", folder);
    snprintf(ids, sizeof ids, "%s", put_text("ids.safetensors", "never opened"));
    assert_true(dra_corpus_is_tokens(0, NULL, NULL));
    assert_true(dra_corpus_is_tokens(1, paths, NULL));
    assert_true(dra_corpus_is_tokens(1, &one, NULL));
    snprintf(text, sizeof text, "%s", put_text("text.txt", "text"));
    assert_false(dra_corpus_is_tokens(2, paths, NULL));
    assert_false(dra_corpus_is_tokens(1, &one, NULL));
    one = "nowhere";
    assert_false(dra_corpus_is_tokens(1, &one, NULL));
}

static void refuses_bad_paths(void **state)
{
    clean(state);
    const char *paths[] = {in_folder("none.txt"), put_text("a.txt.gz", "x"), put_text("empty", "")};
    check_no_corpus((dra_corpus_config){.n = 1, .paths = paths, .tokenizer = bytes}, DRA_ERR_FILE,
                    "none.txt", ": cannot open it: No such file or directory");
    check_no_corpus((dra_corpus_config){.n = 1, .paths = paths + 1, .tokenizer = bytes},
                    DRA_ERR_FORMAT, "a.txt.gz",
                    ": is named as if compressed by gzip, but does not start so; if it is plain, "
                    "rename it or say --data-format");
    check_no_corpus((dra_corpus_config){.n = 1, .paths = paths + 2, .tokenizer = bytes},
                    DRA_ERR_VALUE, "empty", ": no tokens in it, expected at least one");
    check_no_corpus((dra_corpus_config){.n = 1, .paths = paths + 2}, DRA_ERR_VALUE, "empty",
                    ": is text, which needs a tokenizer");
    check_no_corpus((dra_corpus_config){.n = 1, .paths = &(const char *){NULL}}, DRA_ERR_VALUE,
                    NULL, "corpus_open: path 0 of 1 is NULL");
    check_no_corpus((dra_corpus_config){0}, DRA_ERR_VALUE, NULL,
                    "corpus_open: no paths, expected at least one");
    mkdir(in_folder("bare"), 0700);
    paths[0] = in_folder("bare");
    check_no_corpus((dra_corpus_config){.n = 1, .paths = paths, .tokenizer = bytes}, DRA_ERR_FILE,
                    "bare", ": has no files");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_a_text_of_bytes),   cmocka_unit_test(reads_files_in_order),
        cmocka_unit_test(reads_a_folder_by_name), cmocka_unit_test(cuts_a_text_at_separators),
        cmocka_unit_test(ends_documents),         cmocka_unit_test(encodes_in_pieces),
        cmocka_unit_test(begins_documents),       cmocka_unit_test(names_what_cannot_be_encoded),
        cmocka_unit_test(reads_lines_of_json),    cmocka_unit_test(refuses_broken_lines),
        cmocka_unit_test(takes_ids_of_any_width), cmocka_unit_test(refuses_other_ids),
        cmocka_unit_test(refuses_other_tensors),  cmocka_unit_test(has_one_fingerprint),
        cmocka_unit_test(tells_its_progress),     cmocka_unit_test(knows_what_needs_a_tokenizer),
        cmocka_unit_test(refuses_bad_paths),
    };
    return cmocka_run_group_tests_name("corpus", tests, make_all, remove_all);
}
