/* Formats of data, recognised by their content: ids of nanoGPT, llm.c and NumPy, what is text, and
 * what is refused by its name. */
#include "formats.h"

#include "data/sniff.h"

/* ---- ids ------------------------------------------------------------------------------------- */

static void reads_nanoGPT(void **state)
{
    add_ids(&made, ids, N_IDS, 2);
    check_tokens(put_made("train.bin", &made), NULL, "tokens, 16 bits each (nanoGPT), 8 of them");
    check_tokens(put_made("train.dat", &made), "tokens-u16",
                 "tokens, 16 bits each (nanoGPT), 8 of them");
    check_no_file("train.dat", NULL, pairs, DRA_ERR_FORMAT,
                  ": is not text and has no known format; if it is meant, say what it is: "
                  "--data-format bytes, tokens-u16, ...");
    check_no_file("train.bin", NULL, bytes, DRA_ERR_INDEX,
                  ": token 1 is 256, expected an id from 0 to 255; it was taken for tokens, 16 "
                  "bits each (nanoGPT): if it is not, see --data-format");
    put_file("odd.bin", made.at, made.n - 1);
    check_no_file(
        "odd.bin", NULL, pairs, DRA_ERR_FORMAT,
        ": has 15 bytes, which are not ids of 2 bytes each; say what it is: --data-format "
        "bytes, tokens-u16, ...");
}

/* Every byte is below 128, every second one 0: valid UTF-8, but no text. */
static void reads_small_ids(void **state)
{
    int32_t small[600];
    for (int i = 0; i < 600; i++) small[i] = i * i % 65;
    add_ids(&made, small, 600, 2);
    dra_corpus *c = opened_path(bytes, put_made("char.bin", &made));
    check_ids(c, small, 600);
    dra_corpus_close(c);
    c = opened_path(bytes, put_file("few.bin", made.at + 20, 4));
    check_ids(c, small + 10, 2);
    dra_corpus_close(c);
}

static void asks_whether_ids_are_wide(void **state)
{
    int32_t wide[64];
    for (int i = 0; i < 64; i++) wide[i] = i * 1999 % 150000;
    add_ids(&made, wide, 64, 4);
    const char *path = put_made("wide.bin", &made);
    check_no_file("wide.bin", NULL, NULL, DRA_ERR_FORMAT,
                  ": every second number of 16 bits is nearly 0, so these may be ids of 32 bits: "
                  "say --data-format tokens-u32 or tokens-u16");
    dra_corpus *c = opened((dra_corpus_config){.n = 1, .paths = &path, .format = "tokens-u32"});
    check_ids(c, wide, 64);
    check_about(c, "tokens, 32 bits each, 64 of them");
    dra_corpus_close(c);
    c = opened((dra_corpus_config){.n = 1, .paths = &path, .format = "tokens-u16"});
    assert_int_equal(dra_corpus_tokens(c), 128);
    dra_corpus_close(c);
}

static void reads_llmc(void **state)
{
    add_llmc(&made, 20240520, 1, ids, N_IDS, 2);
    check_tokens(put_made("train.bin", &made), NULL, "tokens, 16 bits each (llm.c), 8 of them");
    check_tokens(put_made("any", &made), NULL, "tokens, 16 bits each (llm.c), 8 of them");
    check_tokens(put_made("any", &made), "llmc", "tokens, 16 bits each (llm.c), 8 of them");
}

/* Without a tokenizer it is known what separates documents. */
static void cuts_documents_of_llmc(void **state)
{
    const int32_t gpt2[] = {50256, 1, 2, 50256, 3, 50256, 4, 50256};
    const int32_t llama[] = {128000, 1, 2, 128000, 3, 4};
    add_llmc(&made, 20240520, 1, gpt2, 8, 2);
    dra_corpus *c = opened_path(NULL, put_made("gpt2.bin", &made));
    check_ids(c, gpt2, 8);
    check_starts(c, (int64_t[]){0, 4, 6}, 3);
    dra_corpus_close(c);
    made.n = 0;
    add_llmc(&made, 20240801, 7, llama, 6, 4);
    c = opened_path(NULL, put_made("llama.bin", &made));
    check_ids(c, llama, 6);
    check_starts(c, (int64_t[]){0, 3}, 2);
    check_about(c, "tokens, 32 bits each (llm.c), 6 of them");
    dra_corpus_close(c);
}

static void refuses_headers_of_llmc(void **state)
{
    static const struct {
        int32_t     magic, version;
        size_t      n;
        const char *text;
    } cases[] = {
        {20240520, 2, 1040, ": version 2 of llm.c's tokens with magic 20240520, expected 1"},
        {20240801, 1, 1040, ": version 1 of llm.c's tokens with magic 20240801, expected 7"},
        {20240520, 1, 1038, ": its header says 8 tokens of 2 bytes, found 14 bytes of them"},
        {20240520, 1, 1039, ": its header says 8 tokens of 2 bytes, found 15 bytes of them"},
        {20240801, 7, 1040, ": its header says 8 tokens of 4 bytes, found 16 bytes of them"},
        {20240520, 1, 1000, ": its header of llm.c is cut short: 1000 bytes, expected 1024"},
        {20240520, 1, 4, ": its header of llm.c is cut short: 4 bytes, expected 1024"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        made.n = 0;
        add_llmc(&made, cases[i].magic, cases[i].version, ids, N_IDS, 2);
        put_file("bad.bin", made.at, cases[i].n);
        check_no_file("bad.bin", NULL, pairs, DRA_ERR_FORMAT, cases[i].text);
    }
    put_text("text", "Some text.");
    check_no_file("text", "llmc", pairs, DRA_ERR_FORMAT,
                  ": is not a token file of llm.c: expected to start with 20240520 or 20240801");
    const int32_t large[] = {1, -5};
    made.n = 0;
    add_llmc(&made, 20240801, 7, large, 2, 4);
    put_made("large.bin", &made);
    check_no_file("large.bin", NULL, NULL, DRA_ERR_INDEX,
                  ": token 1 is 4294967291, expected an id from 0 to 2147483647");
}

static void reads_arrays(void **state)
{
    static const struct {
        const char *type;
        size_t      width;
    } types[] = {{"<i2", 2}, {"<u2", 2}, {"<i4", 4}, {"<u4", 4}, {"<i8", 8}, {"<u8", 8}};
    for (size_t i = 0; i < COUNT(types); i++) {
        made.n = 0;
        add_array(&made, types[i].type, "8,");
        for (int k = 0; k < N_IDS; k++) add_bytes(&made, &(int64_t){ids[k]}, types[i].width);
        const char *path = put_made("train.npy", &made);
        assert_false(dra_examples_are(1, &path));
        check_tokens(path, NULL, "tokens in an array of NumPy, 8 of them");
        check_tokens(put_made("any", &made), NULL, "tokens in an array of NumPy, 8 of them");
    }
}

/* Rows of ids are examples unless they are asked to be documents. */
static void reads_rows_as_documents(void **state)
{
    add_array(&made, "<u2", "2, 4");
    add_ids(&made, ids, N_IDS, 2);
    const char *path = put_made("train.npy", &made);
    assert_true(dra_examples_are(1, &path));
    dra_corpus *c = opened(
        (dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs, .format = "npy"});
    check_ids(c, ids, N_IDS);
    check_starts(c, (int64_t[]){0, 4}, 2);
    dra_corpus_close(c);
}

static void refuses_other_arrays(void **state)
{
    static const struct {
        const char *type, *shape;
        dra_status  code;
        const char *text;
    } cases[] = {
        {"<f4", "4,", DRA_ERR_DTYPE, ": dtype F32, expected integers"},
        {"|b1", "16,", DRA_ERR_DTYPE, ": dtype BOOL, expected integers"},
        {"<u2", "2, 2, 2", DRA_ERR_SHAPE, ": shape (2, 2, 2), expected (N) or (documents, N)"},
        {"<u2", "", DRA_ERR_FORMAT, ": its header says 2 bytes of numbers, found 16"},
        {"<u2", "9,", DRA_ERR_FORMAT, ": its header says 18 bytes of numbers, found 16"},
        {"<i2", "8,", DRA_ERR_INDEX, ": token 1 is -2, expected an id from 0 to 300"},
        {"|i1", "16,", DRA_ERR_INDEX, ": token 2 is -2, expected an id from 0 to 300"},
        {"<u4", "4,", DRA_ERR_INDEX, ": token 0 is 4294836231, expected an id from 0 to 300"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        made.n = 0;
        add_array(&made, cases[i].type, cases[i].shape);
        add_ids(&made, (int32_t[]){7, -2, 1, 1, 1, 1, 1, 1}, N_IDS, 2);
        put_made("bad.npy", &made);
        check_no_file("bad.npy", NULL, pairs, cases[i].code, cases[i].text);
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

#define TEXT(text) text, sizeof(text) - 1

static void knows_text(void **state)
{
    static const struct {
        const char *name, *text;
        size_t      n;
    } cases[] = {
        {"a.txt", TEXT("")},
        {"a.txt", TEXT("\0")},
        {"a.txt", TEXT("plain")},
        {"a.bin", TEXT("plain text, whatever its name")},
        {"a.bin", TEXT("")},
        {"a.txt", TEXT("caf\xc3\xa9 \xe6\xb0\xb4 \xf0\x9f\x98\x80\n")},
        {"latin1.txt", TEXT("caf\xe9, na\xefve, f\xfcr\r\n")},
        {"colour.log", TEXT("\033[31mred\033[0m and a bell\a\n")},
        {"nul.txt", TEXT("one\0two\0three\0four and so on\n")},
        {"PAR1.txt", TEXT("PAR1 is the first of them.")},
        {"BZh.txt", TEXT("BZh91AY&SY")},
        {"RIFF.txt", TEXT("RIFF....WAVE")},
        {"lines.txt", TEXT("{\"text\": \"a\"}\n{\"text\": \"b\"}\n")},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *path = put_file(cases[i].name, cases[i].text, cases[i].n);
        dra_sniffed found;
        dra_error   err = {0};
        if (dra_sniff(path, NULL, &found, &err) != DRA_OK) fail_msg("%s", err.text);
        assert_int_equal(found.kind, DRA_DATA_TEXT);
        assert_int_equal(found.packing, DRA_PACKED_NOT);
    }
}

/* A letter of several bytes may be cut by the end of the sample, not by that of the file. */
static void knows_text_that_is_long(void **state)
{
    static char text[DRA_SAMPLE + 8];
    dra_sniffed found;
    memset(text, 'x', sizeof text);
    memcpy(text + DRA_SAMPLE - 1, "\xc3\xa9", 2);
    text[5] = '\0';
    assert_int_equal(dra_sniff(put_file("long.txt", text, sizeof text), NULL, &found, NULL),
                     DRA_OK);
    assert_int_equal(dra_sniff(put_file("long.txt", text, DRA_SAMPLE), NULL, &found, NULL),
                     DRA_ERR_FORMAT);
}

static void refuses_noise(void **state)
{
    uint64_t    seed = 1;
    dra_sniffed found;
    for (int i = 0; i < 4096; i++) /* without a zero */
        add_bytes(&made, &(unsigned char){(unsigned char)(1 + check_random(&seed) * 255)}, 1);
    assert_int_equal(dra_sniff(put_made("noise", &made), NULL, &found, NULL), DRA_ERR_FORMAT);
    assert_int_equal(dra_sniff(put_made("noise", &made), "bytes", &found, NULL), DRA_OK);
    assert_int_equal(found.kind, DRA_DATA_TEXT);
}

static void knows_lines(void **state)
{
    static const char *const lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
    static const char *const names[] = {"a.jsonl", "a.ndjson", "a.json"};
    for (size_t i = 0; i < COUNT(names); i++) {
        dra_corpus *c = opened_path(bytes, put_text(names[i], lines));
        check_bytes(c, "ab", 2);
        check_starts(c, (int64_t[]){0, 1}, 2);
        dra_corpus_close(c);
    }
    const char *path = put_text("a.txt", lines);
    dra_corpus *c = opened(
        (dra_corpus_config){.n = 1, .paths = &path, .tokenizer = bytes, .format = "jsonl"});
    check_bytes(c, "ab", 2);
    dra_corpus_close(c);
    c = opened_path(bytes, put_text("one.json", "{\n\"text\": \"a\"}\n"));
    assert_int_equal(dra_corpus_tokens(c), 15);
    dra_corpus_close(c);
}

static void refuses_other_formats(void **state)
{
    put_text("a", "text");
    const char *path = in_folder("a");
    check_no_corpus((dra_corpus_config){.n = 1, .paths = &path, .format = "csv"}, DRA_ERR_VALUE,
                    NULL,
                    "data format 'csv', expected text, bytes, jsonl, safetensors, npy, tokens-u16, "
                    "tokens-u32 or llmc");
}

/* ---- what is refused by its name ------------------------------------------------------------- */

static void refuses_by_name(void **state)
{
    static const struct {
        size_t      at; /* zeros before */
        const char *magic;
        size_t      n;
        const char *text;
    } cases[] = {
        {0, "PAR1", 4, "is a Parquet file: write its texts as lines of JSON, such as with pandas"},
        {0, "ARROW1\0\0", 8, "is an Arrow file: write its texts as lines of JSON"},
        {0, "\xff\xff\xff\xff\x10\1\0\0\x10\0\0\0", 12, "is an Arrow stream: "},
        {0, "FEA1", 4, "is a Feather file: "},
        {0, "PK\3\4", 4, "is a zip archive (also .pt, .npz and .docx are such): extract it"},
        {0, "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.", 15, "is a checkpoint of PyTorch: "},
        {0, "%PDF-1.4", 8, "is a PDF: extract its text first"},
        {0, "SQLite format 3\0", 16, "is a SQLite database: "},
        {0, "\x89HDF\r\n\x1a\n", 8, "is an HDF5 file: save the ids by numpy.save (.npy)"},
        {257, "ustar", 5, "is a tar archive: extract it and give the files"},
        {0, "\xfd\x37zXZ\0", 6, "is compressed by xz: decompress it, or use gzip or zstd"},
        {0, "BZh91AY&SY", 10, "is compressed by bzip2: "},
        {0, "\x04\x22\x4d\x18", 4, "is compressed by lz4: "},
        {0, "\x89PNG\r\n\x1a\n", 8, "is a PNG image: expected text or tokens"},
        {0, "\xff\xd8\xff\xe0", 4, "is a JPEG image: "},
        {0, "GIF89a", 6, "is a GIF image: "},
        {0, "RIFF\1\1\1\1WEBP", 12, "is a WebP image: "},
        {0, "GGUF", 4, "is weights in GGUF: which are no data"},
        {0, "\xc6\xd7\x34\x01", 4, "is weights of llm.c: "},
        {0, "\xff\xfeh\0i\0", 6, "is text in UTF-16: convert it to UTF-8"},
        {0, "\xfe\xff\0h\0i", 6, "is text in UTF-16: "},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_corpus       *c = NULL;
        dra_error         err = {0};
        dra_corpus_config config = {.n = 1, .tokenizer = bytes};
        made.n = 0;
        for (size_t k = 0; k < cases[i].at; k++) add_bytes(&made, "", 1);
        add_bytes(&made, cases[i].magic, cases[i].n);
        for (int k = 0; k < 100; k++) add_bytes(&made, "\0\1\xff", 3);
        const char *path = put_made("any.bin", &made);
        config.paths = &path;
        assert_int_equal(dra_corpus_open(&config, NULL, NULL, &c, &err), DRA_ERR_FORMAT);
        if (!strstr(err.text, cases[i].text)) fail_msg("%s", err.text);
        assert_false(dra_corpus_is_tokens(1, &path, NULL));
        assert_int_equal(dra_corpus_look(1, &path, NULL, NULL), DRA_ERR_FORMAT);
        config.format = "bytes";
        dra_corpus_close(opened(config));
    }
    put_file("meta.pkl", "\x80\x04\x95\x05\0\0\0\0\0\0\0]\x94.", 14);
    check_no_file("meta.pkl", NULL, bytes, DRA_ERR_FORMAT,
                  ": is a pickle of Python: save the ids by numpy.save (.npy), or texts as .jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reads_nanoGPT, fresh),
        cmocka_unit_test_setup(reads_small_ids, fresh),
        cmocka_unit_test_setup(asks_whether_ids_are_wide, fresh),
        cmocka_unit_test_setup(reads_llmc, fresh),
        cmocka_unit_test_setup(cuts_documents_of_llmc, fresh),
        cmocka_unit_test_setup(refuses_headers_of_llmc, fresh),
        cmocka_unit_test_setup(reads_arrays, fresh),
        cmocka_unit_test_setup(reads_rows_as_documents, fresh),
        cmocka_unit_test_setup(refuses_other_arrays, fresh),
        cmocka_unit_test_setup(knows_text, fresh),
        cmocka_unit_test_setup(knows_text_that_is_long, fresh),
        cmocka_unit_test_setup(refuses_noise, fresh),
        cmocka_unit_test_setup(knows_lines, fresh),
        cmocka_unit_test_setup(refuses_other_formats, fresh),
        cmocka_unit_test_setup(refuses_by_name, fresh),
    };
    return cmocka_run_group_tests_name("formats", tests, make_all, remove_all);
}
