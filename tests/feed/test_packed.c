/* Data compressed by gzip or zstd: what is inside, damaged streams, kept tokens. */
#include "formats.h"

typedef void (*pack)(file_bytes *, const void *, size_t);

static const pack packs[] = {add_gzip, add_zstd};

static const struct {
    const char *name, *end, *about, *lines, *ids;
} packed[] = {
    {"gzip", "gz", "text, gzip", "lines of JSON, gzip",
     "tokens, 16 bits each (nanoGPT), gzip, 8 of them"},
    {"zstd", "zst", "text, zstd", "lines of JSON, zstd",
     "tokens, 16 bits each (nanoGPT), zstd, 8 of them"},
};

static const char *put_packed(size_t how, const char *stem, const void *data, size_t n)
{
    char name[64];
    made.n = 0;
    packs[how](&made, data, n);
    snprintf(name, sizeof name, "%s.%s", stem, packed[how].end);
    return put_made(name, &made);
}

static void reads_compressed_text(void **state)
{
    const char *text = "the\n--\na th\n";
    for (size_t how = 0; how < 2; how++) {
        const char *path = put_packed(how, "a.txt", text, strlen(text));
        assert_false(dra_corpus_is_tokens(1, &path, NULL));
        dra_corpus *c = opened_path(bytes, path);
        check_bytes(c, text, strlen(text));
        check_about(c, packed[how].about);
        dra_corpus_close(c);
        c = opened(
            (dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs, .separator = "--"});
        check_ids(c, (int32_t[]){257, '\n', 300, 'a', ' ', 256, '\n', 300}, 8);
        check_starts(c, (int64_t[]){0, 3}, 2);
        dra_corpus_close(c);
        const char *lines = "{\"text\": \"th\"}\n{\"text\": \"b\"}\n";
        c = opened_path(pairs, put_packed(how, "a.jsonl", lines, strlen(lines)));
        check_ids(c, (int32_t[]){256, 300, 'b', 300}, 4);
        check_about(c, packed[how].lines);
        dra_corpus_close(c);
    }
}

static void reads_compressed_ids(void **state)
{
    add_ids(&inner, ids, N_IDS, 2);
    for (size_t how = 0; how < 2; how++)
        check_tokens(put_packed(how, "train.bin", inner.at, inner.n), NULL, packed[how].ids);
}

/* Streams in a row are one; text of many blocks. */
static void reads_long_streams(void **state)
{
    enum { MANY = 1000000 };
    char *text = malloc(2 * MANY);
    assert_non_null(text);
    for (int i = 0; i < 2 * MANY; i++) text[i] = "the he th\n"[i % 97 % 10];
    for (size_t how = 0; how < 2; how++) {
        made.n = 0;
        packs[how](&made, text, MANY);
        packs[how](&made, text + MANY, 0);
        packs[how](&made, text + MANY, MANY);
        dra_corpus *c = opened_path(bytes, put_made("long.txt", &made));
        check_bytes(c, text, 2 * MANY);
        dra_corpus_close(c);
    }
    free(text);
}

static void tells_progress(void *user, int64_t done, int64_t total)
{
    int64_t *before = user;
    assert_true(done >= *before && done <= total);
    *before = done;
}

static void tells_its_progress(void **state)
{
    enum { MANY = 3000000 };
    char *text = malloc(MANY);
    assert_non_null(text);
    for (int i = 0; i < MANY; i++) text[i] = "the he th\n"[i % 97 % 10];
    const char *path = put_packed(0, "long.txt", text, MANY);
    int64_t     done = 0;
    dra_corpus *c = NULL;
    assert_int_equal(
        dra_corpus_open(&(dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs},
                        tells_progress, &done, &c, NULL),
        DRA_OK);
    assert_int_equal(done, made.n);
    dra_corpus_close(c);
    free(text);
}

/* Kept tokens are those of the text that was compressed, and there is no second reading. */
static void keeps_tokens(void **state)
{
    const char *text = "the thin";
    mkdir(in_folder("kept"), 0700);
    for (size_t i = 0; i < 2; i++) {
        const char             *path = put_packed(0, "a.txt", text, strlen(text));
        const dra_corpus_config config = {
            .n = 1, .paths = &path, .tokenizer = i ? pairs : bytes, .cache = in_folder("kept")};
        dra_corpus    *c = opened(config);
        const uint64_t first = dra_corpus_fingerprint(c);
        dra_corpus_close(c);
        c = opened(config);
        assert_true(dra_corpus_fingerprint(c) == first);
        if (!i) check_bytes(c, text, strlen(text));
        dra_corpus_close(c);
    }
    char           name[300];
    int            kept = 0;
    DIR           *d = opendir(in_folder("kept"));
    struct dirent *e;
    assert_non_null(d);
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "kept/%s", e->d_name);
        kept += unlink(in_folder(name)) == 0;
    }
    closedir(d);
    assert_int_equal(kept, 2);
}

/* Cut anywhere, the file is refused; so is one with a changed byte of its data or its checksum. */
static void refuses_damaged_streams(void **state)
{
    char text[3000], name[32], expected[128];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i * i % 23);
    for (size_t how = 0; how < 2; how++) {
        put_packed(how, "good.txt", text, sizeof text);
        inner = made;
        snprintf(name, sizeof name, "bad.txt.%s", packed[how].end);
        for (size_t n = 4; n < inner.n; n++) {
            put_file(name, inner.at, n);
            snprintf(expected, sizeof expected,
                     ": ends after %zu bytes, in the middle of its %s stream", n, packed[how].name);
            check_no_file(name, NULL, bytes, DRA_ERR_FORMAT, expected);
        }
        inner.at[inner.n - 10] ^= 4;
        put_made(name, &inner);
        const char *path = in_folder(name);
        dra_corpus *c = NULL;
        dra_error   err = {0};
        if (how) continue; /* no checksum unless asked for */
        assert_int_equal(
            dra_corpus_open(&(dra_corpus_config){.n = 1, .paths = &path, .tokenizer = bytes}, NULL,
                            NULL, &c, &err),
            DRA_ERR_FORMAT);
        assert_non_null(strstr(err.text, ": its gzip stream is damaged at byte "));
    }
    put_packed(0, "more.txt", text, sizeof text);
    const size_t n = made.n;
    add_bytes(&made, "trailing", 8);
    put_made("more.txt.gz", &made);
    snprintf(expected, sizeof expected,
             ": its gzip stream is damaged at byte %zu: incorrect header check", n + 2);
    check_no_file("more.txt.gz", NULL, bytes, DRA_ERR_FORMAT, expected);
}

static void looks_inside(void **state)
{
    char tensors[64] = {0};
    memcpy(tensors, &(uint64_t){16}, 8);
    memcpy(tensors + 8, "{\"ids\": {}}     ", 16);
    put_packed(0, "a.pdf", "%PDF-1.4 and so on", 18);
    check_no_file("a.pdf.gz", NULL, bytes, DRA_ERR_FORMAT, ": is a PDF: extract its text first");
    put_packed(1, "a", "\0\1\2\3\4\5\6\xff", 8);
    check_no_file("a.zst", NULL, bytes, DRA_ERR_FORMAT,
                  ": is not text and has no known format; if it is meant, say what it is: "
                  "--data-format bytes, tokens-u16, ...");
    put_packed(0, "a.safetensors", tensors, sizeof tensors);
    check_no_file("a.safetensors.gz", NULL, bytes, DRA_ERR_FORMAT,
                  ": holds safetensors: decompress them first");
    const char *path = put_packed(0, "a.txt", "text", 4);
    for (int i = 0; i < 2; i++) {
        dra_corpus *c = opened((dra_corpus_config){
            .n = 1, .paths = &path, .tokenizer = bytes, .format = i ? "text" : "bytes"});
        check_bytes(c, "text", 4);
        dra_corpus_close(c);
    }
}

static void trains_tokenizers(void **state)
{
    const char          *text = "the the the the then there";
    const char          *path = put_packed(0, "a.txt", text, strlen(text));
    dra_tokenizer       *t = NULL;
    dra_tokenizer_config c = {.n = 1, .paths = &path, .size = 258};
    dra_error            err = {0};
    assert_int_equal(dra_tokenizer_train(&c, NULL, NULL, &t, NULL), DRA_OK);
    assert_int_equal(dra_tokenizer_size(t), 258);
    dra_tokenizer_destroy(t);
    made.n = 0;
    add_ids(&made, ids, N_IDS, 2);
    path = put_made("train.bin", &made);
    assert_int_equal(dra_tokenizer_train(&c, NULL, NULL, &t, &err), DRA_ERR_FORMAT);
    assert_non_null(
        strstr(err.text, ": holds tokens, 16 bits each (nanoGPT), expected text or .jsonl"));
    int fd = 0;
    assert_int_equal(dra_data_text(path, NULL, &fd, &err), DRA_ERR_FORMAT);
    assert_int_equal(fd, -1);
    path = put_packed(1, "a.txt", text, strlen(text));
    char found[64] = {0};
    assert_int_equal(dra_data_text(path, NULL, &fd, &err), DRA_OK);
    assert_int_equal(read(fd, found, sizeof found), strlen(text));
    assert_string_equal(found, text);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reads_compressed_text, fresh),
        cmocka_unit_test_setup(reads_compressed_ids, fresh),
        cmocka_unit_test_setup(reads_long_streams, fresh),
        cmocka_unit_test_setup(tells_its_progress, fresh),
        cmocka_unit_test_setup(keeps_tokens, fresh),
        cmocka_unit_test_setup(refuses_damaged_streams, fresh),
        cmocka_unit_test_setup(looks_inside, fresh),
        cmocka_unit_test_setup(trains_tokenizers, fresh),
    };
    return cmocka_run_group_tests_name("packed", tests, make_all, remove_all);
}
