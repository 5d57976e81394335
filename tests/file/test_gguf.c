/* GGUF: what is read of a file, and that damaged ones are refused by a line. */
#include "folder.h"

#include "file/gguf.h"

static unsigned char file_bytes[1 << 17];
static size_t        file_size;

static void load(void)
{
    FILE *f = fopen("tests/data/gguf/gpt2-Q4_0.gguf", "rb");
    assert_non_null(f);
    file_size = fread(file_bytes, 1, sizeof file_bytes, f);
    fclose(f);
}

static void reads_pairs_and_tensors(void **state)
{
    dra_gguf  g;
    dra_error err = {0};
    load();
    assert_true(dra_gguf_is(file_bytes, file_size));
    assert_int_equal(dra_gguf_read("x", file_bytes, file_size, &g, &err), DRA_OK);
    assert_int_equal(g.header.count, 28);
    assert_string_equal(json_string_value(json_object_get(g.pairs, "general.architecture")),
                        "gpt2");
    assert_int_equal(json_integer_value(json_object_get(g.pairs, "gpt2.context_length")), 64);
    assert_true(json_real_value(json_object_get(g.pairs, "gpt2.attention.layer_norm_epsilon")) ==
                1e-5);
    assert_int_equal(json_array_size(json_object_get(g.pairs, "tokenizer.ggml.tokens")), 300);
    for (size_t i = 0; i < g.header.count; i++)
        if (strcmp(g.header.tensor[i].name, "blk.1.attn_qkv.weight") == 0) {
            assert_int_equal(g.header.tensor[i].dtype, DRA_Q4_0);
            assert_true(dra_shape_equal(&g.header.tensor[i].shape, &DRA_SHAPE(96, 32)));
            assert_int_equal(g.header.tensor[i].bytes, 96 * 18);
        }
    dra_gguf_free(&g);
}

/* Read, or refused by one line; never anything else. */
static void tries(size_t bytes)
{
    dra_gguf       g;
    dra_error      err = {0};
    unsigned char *copy = malloc(bytes + 1); /* so that sanitizers see its end */
    assert_non_null(copy);
    memcpy(copy, file_bytes, bytes);
    const dra_status st = dra_gguf_read("x", copy, bytes, &g, &err);
    if (st == DRA_OK)
        dra_gguf_free(&g);
    else if (strncmp(err.text, "x: ", 3) != 0 || strchr(err.text, '\n'))
        fail_msg("'%s'", err.text);
    free(copy);
}

static void cut_short(void **state)
{
    load();
    for (size_t n = 0; n < file_size; n += n < 10000 ? 1 : 97) tries(n);
}

static void damaged(void **state)
{
    load();
    for (size_t i = 0; i < 10000 && i < file_size; i++) {
        static const unsigned char masks[] = {1, 0x80, 0xff};
        for (size_t k = 0; k < COUNT(masks); k++) {
            file_bytes[i] ^= masks[k];
            tries(file_size);
            file_bytes[i] ^= masks[k];
        }
    }
}

static void refuses(size_t at, uint32_t value, const char *text)
{
    dra_gguf  g;
    dra_error err = {0};
    uint32_t  old;
    memcpy(&old, file_bytes + at, sizeof old);
    memcpy(file_bytes + at, &value, sizeof value);
    assert_int_not_equal(dra_gguf_read("x", file_bytes, file_size, &g, &err), DRA_OK);
    assert_string_equal(err.text, text);
    memcpy(file_bytes + at, &old, sizeof old);
}

static void names_what_is_wrong(void **state)
{
    load();
    refuses(4, 1, "x: byte 8: the version of GGUF is 1, expected 2 or 3");
    refuses(4, 0x03000000,
            "x: byte 8: the version of GGUF is 50331648, expected 3 in little-endian order");
    refuses(8, 1u << 30,
            "x: byte 24: the number of tensors is 1073741824, expected no more than the file has "
            "room for");
    refuses(24, 0x7fffffff,
            "x: byte 32: the length of a text is 2147483647, expected one that is "
            "in the file");
}

static void writes_what_it_reads(void **state)
{
    static const float    x[64] = {1, 2, 3};
    static unsigned char  q[2 * 34];
    const dra_tensor_item items[] = {{"a", DRA_F32, DRA_SHAPE(3), x},
                                     {"b.weight", DRA_Q8_0, DRA_SHAPE(2, 32), q}};
    json_t   *pairs = json_pack("{s:s, s:i, s:f, s:b, s:[s,s], s:[i,i,i]}", "general.architecture",
                                "x", "x.n", 7, "x.e", 0.25, "x.y", 1, "tokenizer.t", "p", "q",
                                "tokenizer.n", -1, 2, 3);
    dra_error err = {0};
    dra_gguf  g;
    char     *text = NULL;
    size_t    bytes = 0;
    const char *path = in_folder("w.gguf");
    assert_non_null(pairs);
    assert_int_equal(dra_gguf_write(path, pairs, items, 2, &err), DRA_OK);
    assert_int_equal(dra_file_read(path, 1 << 20, &text, &bytes, &err), DRA_OK);
    if (dra_gguf_read(path, (const unsigned char *)text, bytes, &g, &err) != DRA_OK)
        fail_msg("%s", err.text);
    assert_true(json_equal(g.pairs, pairs));
    assert_int_equal(g.header.count, 2);
    assert_memory_equal(g.header.tensor[0].data, x, 12);
    assert_int_equal(g.header.tensor[1].bytes, 68);
    assert_int_equal(bytes % DRA_GGUF_ALIGNMENT, 0);
    dra_gguf_free(&g);
    json_decref(pairs);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_pairs_and_tensors),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(damaged),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test_setup_teardown(writes_what_it_reads, folder_make, folder_remove),
    };
    return check_main("gguf", NULL, 0, tests, COUNT(tests));
}
