/* Where examples come from: shards, arrays of NumPy, texts; and what is refused of them. */
#include "file/folder.h"

#include <math.h>

#include "dra/data.h"
#include "arrays.h"

static dra_examples *opened(dra_examples_config c)
{
    dra_examples *e = NULL;
    dra_error     err = {0};
    if (!c.B) c.B = 1;
    if (dra_examples_open(&c, &e, &err) != DRA_OK) fail_msg("%s", err.text);
    return e;
}

static void refused(dra_examples_config c, dra_status code, const char *name, const char *rest)
{
    dra_examples *e = (dra_examples *)&c;
    dra_error     err = {0};
    if (!c.B) c.B = 1;
    assert_int_equal(dra_examples_open(&c, &e, &err), code);
    assert_null(e);
    check_error(&err, code, name, rest);
}

static void put_array(const char *name, const char *descr, const char *shape, const void *data,
                      size_t bytes)
{
    array_bytes b = {.n = 0};
    array_make(&b, 1, descr, shape, data, bytes);
    put_file(name, b.at, b.n);
}

/* ---- arrays of NumPy ------------------------------------------------------------------------- */

static void reads_every_type_of_array(void **state)
{
    static const struct {
        const char *descr;
        size_t      width;
        double      expected[2];
    } types[] = {{"<f2", 2, {1, -2}},   {"<f4", 4, {1.5, -2}}, {"<f8", 8, {0.1, -2}},
                 {"|i1", 1, {1, -2}},   {"<i2", 2, {1, -2}},   {"<i4", 4, {1, -2}},
                 {"<i8", 8, {1, -100}}, {"|u1", 1, {1, 254}},  {"<u2", 2, {1, 65534}},
                 {"|b1", 1, {0, 1}}};
    const uint16_t half[] = {0x3c00, 0xc000};
    const float    f4[] = {1.5f, -2};
    const double   f8[] = {0.1, -2};
    const int8_t   i1[] = {1, -2};
    const int16_t  i2[] = {1, -2};
    const int32_t  i4[] = {1, -2};
    const int64_t  i8[] = {1, -100};
    const uint8_t  u1[] = {1, 254}, b1[] = {0, 1};
    const uint16_t u2[] = {1, 65534};
    const void    *data[] = {half, f4, f8, i1, i2, i4, i8, u1, u2, b1};
    const int64_t  rows[] = {0, 1};
    for (size_t i = 0; i < COUNT(types); i++)
        for (int major = 1; major <= 2; major++) {
            array_bytes b = {.n = 0};
            double      x[2];
            int32_t     n[2];
            array_make(&b, major, types[i].descr, "(2,)", data[i], 2 * types[i].width);
            put_file("x.npy", b.at, b.n);
            dra_examples *e = opened((dra_examples_config){.path = in_folder("x.npy")});
            assert_int_equal(dra_examples_count(e), 2);
            if (types[i].descr[1] == 'f') {
                assert_int_equal(dra_examples_read(e, "x", 2, rows, DRA_F64, x, NULL), DRA_OK);
            } else {
                assert_int_equal(dra_examples_read(e, "x", 2, rows, DRA_I32, n, NULL), DRA_OK);
                x[0] = n[0], x[1] = n[1];
            }
            for (int k = 0; k < 2; k++) assert_true(x[k] == types[i].expected[k]);
            dra_examples_close(e);
        }
}

static const float   image[3][2] = {{1, 2}, {3, 4}, {5, 6}};
static const int64_t labels[3] = {7, 8, 9};

static void check_pair(dra_examples *e, int64_t n)
{
    int32_t found[6];
    float   x[6][2];
    int64_t rows[6];
    for (int64_t i = 0; i < n; i++) rows[i] = i;
    assert_int_equal(dra_examples_count(e), n);
    assert_int_equal(dra_examples_inputs(e), 2);
    assert_int_equal(dra_examples_read(e, "labels", n, rows, DRA_I32, found, NULL), DRA_OK);
    assert_int_equal(dra_examples_read(e, "img", n, rows, DRA_F32, x, NULL), DRA_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(found[i], labels[i % 3]);
        assert_memory_equal(x[i], image[i % 3], sizeof x[i]);
    }
    dra_examples_close(e);
}

static void reads_arrays_of_a_list_a_folder_an_archive(void **state)
{
    const char *list[] = {in_folder("img.npy"), in_folder("labels.npy")};
    array_bytes a = {.n = 0}, b = {.n = 0}, zip = {.n = 0};
    array_make(&a, 1, "<f4", "(3, 2)", image, sizeof image);
    array_make(&b, 2, "<i8", "(3,)", labels, sizeof labels);
    archive_make(&zip, (const char *const[]){"img.npy", "labels.npy"},
                 (const array_bytes *const[]){&a, &b});
    put_file("img.npy", a.at, a.n);
    put_file("labels.npy", b.at, b.n);
    check_pair(opened((dra_examples_config){.n_paths = 2, .paths = list}), 3);
    check_pair(opened((dra_examples_config){.path = folder}), 3);
    unlink(list[0]), unlink(list[1]);
    put_file("1.npz", zip.at, zip.n);
    check_pair(opened((dra_examples_config){.path = in_folder("1.npz")}), 3);
    put_file("2.npz", zip.at, zip.n);
    check_pair(opened((dra_examples_config){.path = folder}), 6);
}

static void refuses_other_arrays(void **state)
{
    static const struct {
        const char *descr, *shape, *text;
        size_t      bytes;
        dra_status  code;
    } cases[] = {
        {">f4", "(2,)",
         ": dtype '>f4', expected one of f2 f4 f8 i1 i2 i4 i8 u1 u2 bool, little-endian", 8,
         DRA_ERR_DTYPE},
        {"<c8", "(1,)",
         ": dtype '<c8', expected one of f2 f4 f8 i1 i2 i4 i8 u1 u2 bool, little-endian", 8,
         DRA_ERR_DTYPE},
        {"<f4", "(2,)", ": its header says 8 bytes of numbers, found 7", 7, DRA_ERR_FORMAT},
        {"<f4", "(2,)", ": its header says 8 bytes of numbers, found 9", 9, DRA_ERR_FORMAT},
        {"<f4", "()", ": tensor 'x': shape (), expected an axis of examples", 4, DRA_ERR_SHAPE},
        {"<f4", "(4294967296, 4294967296)", ": its shape is too large", 8, DRA_ERR_SHAPE},
        {"<f4", "(2)", ": its header is damaged, or says more than descr, fortran_order and shape",
         8, DRA_ERR_FORMAT},
        {"<f4", "(99999999999999999999,)",
         ": its header is damaged, or says more than descr, fortran_order and shape", 8,
         DRA_ERR_FORMAT},
    };
    const float               zeros[4] = {0};
    const dra_examples_config c = {.path = in_folder("x.npy")};
    for (size_t i = 0; i < COUNT(cases); i++) {
        put_array("x.npy", cases[i].descr, cases[i].shape, zeros, cases[i].bytes);
        refused(c, cases[i].code, "x.npy", cases[i].text);
    }
    array_bytes b = {.n = 0};
    array_make(&b, 1, "<f4", "(2,)", zeros, 8);
    memcpy(strstr((char *)b.at + 10, "False"), "True ", 5);
    put_file("x.npy", b.at, b.n);
    refused(c, DRA_ERR_FORMAT, "x.npy",
            ": is in Fortran order, expected C order (numpy.ascontiguousarray)");
    b.at[6] = 3;
    put_file("x.npy", b.at, b.n);
    refused(c, DRA_ERR_FORMAT, "x.npy", ": version 3.0 of NumPy's format, expected 1.0 or 2.0");
    put_file("x.npy", "text", 4);
    refused(c, DRA_ERR_FORMAT, "x.npy", ": is not an array of NumPy (.npy)");
    put_file("x.npz", "text", 4);
    refused((dra_examples_config){.path = in_folder("x.npz")}, DRA_ERR_FORMAT, "x.npz",
            ": is not an archive of NumPy (.npz)");
}

/* Whatever is cut off or changed: refused by one line that names the file, or read. */
static void survives_damage(void **state)
{
    array_bytes a = {.n = 0}, b = {.n = 0}, zip = {.n = 0};
    array_make(&a, 1, "<f4", "(3, 2)", image, sizeof image);
    array_make(&b, 2, "<i8", "(3,)", labels, sizeof labels);
    archive_make(&zip, (const char *const[]){"img.npy", "labels.npy"},
                 (const array_bytes *const[]){&a, &b});
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < 2 * (kind ? zip.n : a.n); i++) {
            array_bytes               x = kind ? zip : a;
            const dra_examples_config c = {.path = in_folder(kind ? "x.npz" : "x.npy"), .B = 2};
            dra_examples             *e = NULL;
            dra_error                 err = {0};
            if (i % 2)
                x.at[i / 2] ^= (unsigned char)(1u << i / 2 % 8);
            else
                x.n = i / 2;
            put_file(kind ? "x.npz" : "x.npy", x.at, x.n);
            if (dra_examples_open(&c, &e, &err) == DRA_OK) {
                assert_true(i % 2);
                dra_examples_fingerprint(e);
            } else {
                assert_int_equal(strncmp(err.text, c.path, strlen(c.path)), 0);
                assert_null(strchr(err.text, '\n'));
            }
            dra_examples_close(e);
        }
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void write_shard(const char *name, int64_t first, int64_t n, int64_t width, bool more)
{
    float   x[16];
    int32_t label[8] = {0};
    for (int64_t i = 0; i < n * width; i++) x[i] = (float)(first * width + i);
    for (int64_t i = 0; i < n; i++) label[i] = (int32_t)(first + i);
    const dra_tensor_item items[] = {{"x", DRA_F32, DRA_SHAPE(n, width), x},
                                     {"labels", DRA_I32, DRA_SHAPE(n), label},
                                     {"z", DRA_I32, DRA_SHAPE(n), label}};
    assert_int_equal(dra_tensors_write(in_folder(name), items, more ? 3 : 2, NULL, 0, NULL),
                     DRA_OK);
}

static void joins_shards_by_name(void **state)
{
    const int64_t rows[] = {0, 1, 2, 3, 4};
    int32_t       label[5];
    float         x[5][2];
    write_shard("b.safetensors", 2, 0, 2, false);
    write_shard("a.safetensors", 0, 2, 2, false);
    write_shard("c.safetensors", 2, 3, 2, false);
    put_file("README", "text", 4);
    dra_examples *e = opened((dra_examples_config){.path = folder});
    assert_int_equal(dra_examples_count(e), 5);
    assert_int_equal(dra_examples_read(e, "labels", 5, rows, DRA_I32, label, NULL), DRA_OK);
    assert_int_equal(dra_examples_read(e, "x", 5, rows, DRA_F32, x, NULL), DRA_OK);
    for (int i = 0; i < 5; i++)
        assert_true(label[i] == i && x[i][0] == (float)(2 * i) && x[i][1] == (float)(2 * i + 1));
    /* However they are cut, they are the same. */
    const uint64_t found = dra_examples_fingerprint(e);
    dra_examples_close(e);
    folder_files(true);
    write_shard("a.safetensors", 0, 5, 2, false);
    e = opened((dra_examples_config){.path = folder});
    assert_true(dra_examples_fingerprint(e) == found);
    dra_examples_close(e);
    write_shard("a.safetensors", 1, 5, 2, false);
    e = opened((dra_examples_config){.path = folder});
    assert_true(dra_examples_fingerprint(e) != found);
    dra_examples_close(e);
}

static void refuses_shards_that_differ(void **state)
{
    char text[800];
    write_shard("a.safetensors", 0, 2, 2, false);
    write_shard("b.safetensors", 0, 2, 3, false);
    snprintf(text, sizeof text, ": tensor 'x': F32 (2, 3), expected F32 (2, 2) as in %s",
             in_folder("a.safetensors"));
    refused((dra_examples_config){.path = folder}, DRA_ERR_SHAPE, "b.safetensors", text);
    write_shard("b.safetensors", 0, 2, 2, true);
    refused((dra_examples_config){.path = folder}, DRA_ERR_NAME, "b.safetensors",
            ": tensor 'z', which the first file does not have");
    write_shard("a.safetensors", 0, 2, 2, true);
    write_shard("b.safetensors", 0, 2, 2, false);
    snprintf(text, sizeof text, ": no tensor 'z', which %s has", in_folder("a.safetensors"));
    refused((dra_examples_config){.path = folder}, DRA_ERR_NAME, "b.safetensors", text);
    put_array("c.npy", "<f4", "(2,)", (float[2]){0}, 8);
    refused((dra_examples_config){.path = folder}, DRA_ERR_VALUE, "a.safetensors",
            ": files of single arrays (.npy) and of whole examples in one list, expected either "
            "kind");
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void names_the_first_wrong_number(void **state)
{
    float     x[4][3] = {{0}};
    int64_t   label[4] = {0, -100, 9, 10};
    dra_error err = {0};
    x[2][1] = NAN, x[3][0] = INFINITY;
    put_array("x.npy", "<f4", "(4, 3)", x, sizeof x);
    put_array("labels.npy", "<i8", "(4,)", label, sizeof label);
    dra_examples *e = opened((dra_examples_config){.path = folder});
    assert_int_equal(dra_examples_check_floats(e, "x", &err), DRA_ERR_FORMAT);
    check_error(&err, DRA_ERR_FORMAT, "x.npy",
                ": tensor 'x', example 2: element 1 is nan, expected a finite number");
    assert_int_equal(dra_examples_check_integers(e, "labels", 0, 10, true, &err), DRA_OK);
    assert_int_equal(dra_examples_check_integers(e, "labels", 0, 9, true, &err), DRA_ERR_FORMAT);
    check_error(&err, DRA_ERR_FORMAT, "labels.npy",
                ": tensor 'labels', example 3: element 0 is 10, expected 0 to 9, or -100 where "
                "there is none");
    assert_int_equal(dra_examples_check_integers(e, "labels", 0, 10, false, &err), DRA_ERR_FORMAT);
    check_error(&err, DRA_ERR_FORMAT, "labels.npy",
                ": tensor 'labels', example 1: element 0 is -100, expected 0 to 10");
    assert_int_equal(dra_examples_check_floats(e, "labels", &err), DRA_ERR_DTYPE);
    assert_int_equal(dra_examples_check_integers(e, "y", 0, 9, false, &err), DRA_ERR_NAME);
    dra_examples_close(e);
}

/* Pixels are stored as bytes and learned from as numbers. What a float might round is refused. */
static void small_integers_are_real(void **state)
{
    const uint8_t pixel[2][3] = {{0, 7, 255}, {16, 1, 2}};
    const int16_t level[2] = {-300, 32767};
    const bool    flag[2] = {true, false};
    const int32_t wide[2] = {1, 2};
    const int64_t rows[] = {1, -1, 0};
    float         x[3][3];
    double        d[3];
    dra_error     err = {0};
    put_array("img.npy", "|u1", "(2, 3)", pixel, sizeof pixel);
    put_array("level.npy", "<i2", "(2,)", level, sizeof level);
    put_array("flag.npy", "|b1", "(2,)", flag, sizeof flag);
    put_array("wide.npy", "<i4", "(2,)", wide, sizeof wide);
    dra_examples *e = opened((dra_examples_config){.path = folder});
    assert_int_equal(dra_examples_check_floats(e, "img", &err), DRA_OK);
    assert_int_equal(dra_examples_read(e, "img", 3, rows, DRA_F32, x, &err), DRA_OK);
    assert_int_equal(dra_examples_read(e, "level", 3, rows, DRA_F64, d, &err), DRA_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(x[0][i] == pixel[1][i] && x[1][i] == 0 && x[2][i] == pixel[0][i]);
        assert_true(d[i] == (i == 1 ? 0 : level[i == 0]));
    }
    assert_true(dra_examples_find(e, "img")->real && dra_examples_find(e, "level")->real);
    assert_int_equal(dra_examples_read(e, "flag", 3, rows, DRA_F64, d, &err), DRA_ERR_DTYPE);
    assert_int_equal(dra_examples_read(e, "wide", 3, rows, DRA_F64, d, &err), DRA_ERR_DTYPE);
    dra_examples_close(e);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void reads_pairs_of_texts(void **state)
{
    static const char text[] =
        "{\"src\": \"abc\", \"de\": \"x\"}\n\n{\"de\": \"yz\", \"src\": \"a\"}";
    dra_tokenizer *bytes = NULL;
    int32_t        src[3][3], tgt[2][2];
    dra_error      err = {0};
    assert_int_equal(dra_tokenizer_bytes(&bytes, NULL), DRA_OK);
    const dra_example_text texts[] = {{"src", NULL, bytes, false}, {"tgt", "de", bytes, true}};
    put_file("p.jsonl", text, strlen(text));
    dra_examples_config c = {.path = in_folder("p.jsonl"), .n_texts = 2, .texts = texts};
    dra_examples       *e = opened(c), *half = NULL;
    assert_int_equal(dra_examples_find(e, "src")->shape.dim[0], 3);
    assert_int_equal(dra_examples_find(e, "tgt")->shape.dim[0], 2);
    assert_int_equal(dra_examples_read(e, "src", 3, (int64_t[]){0, 1, -1}, DRA_I32, src, NULL),
                     DRA_OK);
    assert_int_equal(dra_examples_read(e, "tgt", 2, (int64_t[]){1, 0}, DRA_I32, tgt, NULL), DRA_OK);
    const int32_t pad = DRA_EXAMPLE_PAD;
    assert_memory_equal(src, ((int32_t[]){'a', 'b', 'c', 'a', pad, pad, 0, 0, 0}), sizeof src);
    assert_memory_equal(tgt, ((int32_t[]){'y', 'z', 'x', pad}), sizeof tgt);
    assert_int_equal(dra_examples_check_integers(e, "src", 0, 'c', false, &err), DRA_OK);
    assert_int_equal(dra_examples_check_integers(e, "src", 0, 'b', false, &err), DRA_ERR_FORMAT);
    assert_int_equal(
        dra_examples_share(e, &(dra_examples_config){.B = 1, .from = 0.5}, &half, &err), DRA_OK);
    assert_int_equal(dra_examples_count(half), 1);
    assert_true(dra_examples_fingerprint(half) != dra_examples_fingerprint(e));
    dra_examples_close(half);
    dra_examples_close(e);
    put_file("p.jsonl", "{\"src\": \"\", \"de\": \"x\"}", 22);
    refused(c, DRA_ERR_FORMAT, "p.jsonl", ":1: 'src' is an empty text");
    put_file("p.jsonl", "{\"src\": \"a\", \"de\": 1}\n", 22);
    refused(c, DRA_ERR_FORMAT, "p.jsonl", ":1: another kind of 'de', expected a text");
    put_file("p.jsonl", "\n", 1);
    refused(c, DRA_ERR_VALUE, "p.jsonl", ": 0 examples, none of them from 0 to 1");
    c.n_texts = 0;
    refused(c, DRA_ERR_VALUE, "p.jsonl", ": lines of JSON, but no text of them is asked");
    dra_tokenizer_destroy(bytes);
}

/* ---- or a corpus ----------------------------------------------------------------------------- */

static void tells_examples_from_a_corpus(void **state)
{
    const int32_t         ids[4] = {0};
    const dra_tensor_item one[] = {{"ids", DRA_I32, DRA_SHAPE(4), ids}},
                          two[] = {{"ids", DRA_I32, DRA_SHAPE(2, 2), ids}};
    const char *path = in_folder("i.safetensors"), *text = put_file("a.txt", "abc", 3);
    assert_int_equal(dra_tensors_write(path, one, 1, NULL, 0, NULL), DRA_OK);
    assert_false(dra_examples_are(1, &path));
    assert_int_equal(dra_tensors_write(path, two, 1, NULL, 0, NULL), DRA_OK);
    assert_true(dra_examples_are(1, &path));
    assert_false(dra_examples_are(1, &text));
    assert_false(dra_examples_are(0, NULL));
    path = folder;
    assert_true(dra_examples_are(1, &path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reads_every_type_of_array, clean),
        cmocka_unit_test_setup(reads_arrays_of_a_list_a_folder_an_archive, clean),
        cmocka_unit_test_setup(refuses_other_arrays, clean),
        cmocka_unit_test_setup(survives_damage, clean),
        cmocka_unit_test_setup(joins_shards_by_name, clean),
        cmocka_unit_test_setup(refuses_shards_that_differ, clean),
        cmocka_unit_test_setup(names_the_first_wrong_number, clean),
        cmocka_unit_test_setup(small_integers_are_real, clean),
        cmocka_unit_test_setup(reads_pairs_of_texts, clean),
        cmocka_unit_test_setup(tells_examples_from_a_corpus, clean),
    };
    return cmocka_run_group_tests_name("example files", tests, folder_make, folder_remove);
}
