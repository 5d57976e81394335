/* Safetensors: written and read again, read from bytes made by hand, copies and conversions. */
#include "folder.h"

#include <math.h>
#include <sys/stat.h>

#include "base/shape.h"
#include "sample.h"

static dra_tensors *opened(const char *path)
{
    dra_tensors *t = NULL;
    dra_error    err = {0};
    if (dra_tensors_open(path, &t, &err) != DRA_OK) fail_msg("%s", err.text);
    assert_non_null(t);
    return t;
}

static dra_tensors *written(const dra_tensor_item *items, size_t n, const dra_metadata_item *meta,
                            size_t n_meta)
{
    dra_error err = {0};
    if (dra_tensors_write(in_folder("w"), items, n, meta, n_meta, &err) != DRA_OK)
        fail_msg("%s", err.text);
    return opened(in_folder("w"));
}

static void check_read(const dra_tensors *t, const char *name, dra_dtype dtype, dra_shape shape,
                       void *to)
{
    dra_error err = {0};
    if (dra_tensors_read(t, name, dtype, shape, to, &err) != DRA_OK) fail_msg("%s", err.text);
}

/* ---- round trips ----------------------------------------------------------------------------- */

static const double   f64[] = {1.5, -0.0, 1e300, 0x1p-1074, INFINITY, 3.0000001};
static const float    f32[] = {1.5f, -0.0f, 1e30f, 0x1p-149f, INFINITY, 3.1f};
static const uint16_t half[] = {0x3c00, 0x8000, 0x7bff, 1, 0x7c00, 0x1234};
static const int32_t  i32[] = {0, -1, INT32_MAX, INT32_MIN, 7, 65536};
static const bool     flags[] = {true, false, true, true, false, false};

static void keeps_every_dtype(void **state)
{
    const dra_tensor_item items[] = {
        {"bool", DRA_BOOL, DRA_SHAPE(6), flags},
        {"f32", DRA_F32, DRA_SHAPE(2, 3), f32},
        {"i32", DRA_I32, DRA_SHAPE(1, 6, 1), i32},
        {"f64", DRA_F64, DRA_SHAPE(3, 2), f64},
        {"bf16", DRA_BF16, DRA_SHAPE(6), half},
        {"f16", DRA_F16, DRA_SHAPE(6), half},
        {"real", DRA_REAL, DRA_SHAPE(2, 3), (sizeof(dra_real) == 8 ? (const void *)f64 : f32)},
        {"six", DRA_F32, DRA_SHAPE(1, 2, 1, 3, 1, 1), f32},
    };
    dra_tensors *t = written(items, COUNT(items), NULL, 0);
    assert_int_equal(dra_tensors_count(t), COUNT(items));
    for (size_t i = 0; i < COUNT(items); i++) {
        unsigned char          copy[64];
        const dra_tensor_info *info = dra_tensors_find(t, items[i].name);
        const size_t           width = dra_dtype_bytes(items[i].dtype);
        assert_non_null(info);
        assert_string_equal(info->name, items[i].name);
        assert_int_equal(info->dtype, items[i].dtype);
        assert_true(dra_shape_equal(&info->shape, &items[i].shape));
        assert_int_equal(info->bytes, 6 * width);
        assert_int_equal((uintptr_t)info->data % width, 0);
        assert_memory_equal(info->data, items[i].data, info->bytes);
        memset(copy, '#', sizeof copy);
        check_read(t, items[i].name, items[i].dtype, items[i].shape, copy);
        assert_memory_equal(copy, items[i].data, info->bytes);
        assert_int_equal(copy[info->bytes], '#');
    }
    assert_string_equal(dra_tensors_find(t, "real")->dtype_name,
                        sizeof(dra_real) == 8 ? "F64" : "F32");
    dra_tensors_close(t);
}

static void keeps_empty_ones_and_scalars(void **state)
{
    const dra_tensor_item items[] = {
        {"scalar", DRA_F32, {0}, f32},
        {"none", DRA_F32, DRA_SHAPE(0), NULL},
        {"none2", DRA_F64, DRA_SHAPE(3, 0, 2)},
        {"byte", DRA_BOOL, {0}, flags},
        {"none3", DRA_BOOL, DRA_SHAPE(0, 0), f32},
    };
    dra_tensors *t = written(items, COUNT(items), NULL, 0);
    float        x = 0;
    check_read(t, "scalar", DRA_F32, (dra_shape){0}, &x);
    assert_true(x == f32[0]);
    for (size_t i = 0; i < COUNT(items); i++) {
        const dra_tensor_info *info = dra_tensors_find(t, items[i].name);
        assert_true(dra_shape_equal(&info->shape, &items[i].shape));
        assert_int_equal(info->bytes == 0, items[i].name[0] == 'n');
    }
    check_read(t, "none2", DRA_F64, DRA_SHAPE(3, 0, 2), NULL);
    dra_tensors_close(t);

    t = written(NULL, 0, NULL, 0);
    assert_int_equal(dra_tensors_count(t), 0);
    assert_null(dra_tensors_find(t, "a"));
    assert_null(dra_tensors_at(t, 0));
    dra_tensors_close(t);
}

static void keeps_many(void **state)
{
    enum { MANY = 1000 };
    static char      names[MANY][24];
    static float     values[MANY];
    dra_tensor_item *items = calloc(MANY, sizeof *items);
    assert_non_null(items);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "h.%d.weight", i * 7919 % MANY);
        values[i] = (float)i;
        items[i] = (dra_tensor_item){names[i], i % 3 ? DRA_F32 : DRA_BF16, {0}, &values[i]};
    }
    dra_tensors *t = written(items, MANY, NULL, 0);
    assert_int_equal(dra_tensors_count(t), MANY);
    for (int i = 0; i < MANY; i++) {
        const dra_tensor_info *info = dra_tensors_find(t, names[i]);
        assert_non_null(info);
        assert_memory_equal(info->data, &values[i], info->bytes);
        if (i)
            assert_true(dra_tensors_at(t, (size_t)i)->data >=
                        dra_tensors_at(t, (size_t)i - 1)->data);
    }
    assert_null(dra_tensors_at(t, MANY));
    assert_null(dra_tensors_find(t, "h.1000.weight"));
    assert_null(dra_tensors_find(t, ""));
    dra_tensors_close(t);
    free(items);
}

static void keeps_texts(void **state) /* other scripts, quotes, lines in metadata */
{
    const dra_tensor_item items[] = {
        {"\xc3\xa9t\xc3\xa9/\xe6\xb0\xb4\xf0\x9f\x98\x80", DRA_I32, DRA_SHAPE(2), i32},
        {"with \"quotes\" and \\", DRA_I32, DRA_SHAPE(2), i32 + 1},
        {"", DRA_I32, DRA_SHAPE(2), i32 + 2},
    };
    const dra_metadata_item meta[] = {
        {"format", "pt"}, {"text", "two\nlines\t\"and\" \xe6\xb0\xb4"}, {"", ""}, {"a", "b"}};
    dra_tensors *t = written(items, COUNT(items), meta, COUNT(meta));
    for (size_t i = 0; i < COUNT(items); i++)
        assert_memory_equal(dra_tensors_find(t, items[i].name)->data, items[i].data, 8);
    assert_int_equal(dra_tensors_count(t), COUNT(items));
    assert_int_equal(dra_tensors_metadata_count(t), COUNT(meta));
    for (size_t i = 0; i < COUNT(meta); i++) {
        assert_string_equal(dra_tensors_metadata(t, meta[i].key), meta[i].value);
        assert_string_equal(dra_tensors_metadata_at(t, i)->key, meta[i].key);
    }
    assert_null(dra_tensors_metadata(t, "none"));
    assert_null(dra_tensors_metadata_at(t, COUNT(meta)));
    dra_tensors_close(t);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* One tensor "a" in a file by hand. The header has an odd length, so that nothing is aligned. */
static dra_tensors *by_hand(const char *dtype, int count, const void *data, size_t bytes)
{
    char header[200];
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}", dtype, count,
             bytes);
    sample s = sample_of(header, strlen(header) | 1, bytes);
    if (strlen(header) % 2 == 0) s.at[8 + strlen(header)] = ' ';
    memcpy(s.at + s.n - bytes, data, bytes);
    dra_tensors *t = opened(put_file("h", s.at, s.n));
    free(s.at);
    assert_int_equal((uintptr_t)dra_tensors_at(t, 0)->data % 2, 1);
    return t;
}

static void converts_to_wider_floats(void **state)
{
    enum { N = 1000 }; /* several blocks and a rest */
    static uint16_t narrow[N];
    static float    single[N], f[N];
    static double   d[N];
    for (int i = 0; i < N; i++) {
        narrow[i] = (uint16_t)(i * 63);
        single[i] = dra_bf16_to_f32(narrow[i]) * 1.2345f;
    }
    const char *const types[] = {"BF16", "F16", "F32"};
    for (int k = 0; k < 3; k++) {
        const size_t width = k == 2 ? 4 : 2;
        dra_tensors *t = by_hand(types[k], N, k == 2 ? (const void *)single : narrow, N * width);
        check_read(t, "a", DRA_F32, DRA_SHAPE(N), f);
        check_read(t, "a", DRA_F64, DRA_SHAPE(N), d);
        for (int i = 0; i < N; i++) {
            const float x = k == 0   ? dra_bf16_to_f32(narrow[i])
                            : k == 1 ? dra_f16_to_f32(narrow[i])
                                     : single[i];
            if (isnan(x) ? !isnan(f[i]) || !isnan(d[i]) : f[i] != x || d[i] != (double)x)
                fail_msg("%s, element %d: %a and %a, expected %a", types[k], i, (double)f[i], d[i],
                         (double)x);
        }
        dra_tensors_close(t);
    }
}

static void rounds_double_to_float(void **state)
{
    const double x[] = {1 + 0x1p-24, 1 + 0x1.000001p-24, 1e300, -1e300, 0x1p-160, -0.0, NAN};
    const float  y[] = {1, 1 + 0x1p-23f, INFINITY, -INFINITY, 0, -0.0f};
    float        found[COUNT(x)];
    double       same[COUNT(x)];
    dra_tensors *t = by_hand("F64", COUNT(x), x, sizeof x);
    check_read(t, "a", DRA_F32, DRA_SHAPE(COUNT(x)), found);
    check_read(t, "a", DRA_F64, DRA_SHAPE(COUNT(x)), same);
    assert_memory_equal(found, y, sizeof y);
    assert_true(isnan(found[COUNT(y)]));
    assert_memory_equal(same, x, sizeof x);
    dra_tensors_close(t);
}

static void refuses_other_reads(void **state)
{
    const int32_t numbers[] = {1, 2};
    dra_error     err = {0};
    float         to[2] = {5, 6};
    dra_tensors  *t = by_hand("I32", 2, numbers, sizeof numbers);
    assert_int_equal(dra_tensors_read(t, "b", DRA_F32, DRA_SHAPE(2), to, &err), DRA_ERR_NAME);
    check_error(&err, DRA_ERR_NAME, "h", ": no tensor 'b'");
    dra_tensors_read(t, "a", DRA_I32, DRA_SHAPE(2, 1), to, &err);
    check_error(&err, DRA_ERR_SHAPE, "h", ": tensor 'a': shape (2), expected (2, 1)");
    dra_tensors_read(t, "a", DRA_F32, DRA_SHAPE(2), to, &err);
    check_error(&err, DRA_ERR_DTYPE, "h", ": tensor 'a': dtype I32, expected F32");
    assert_int_equal(dra_tensors_read(t, "a", DRA_I32, DRA_SHAPE(2), NULL, &err), DRA_ERR_VALUE);
    assert_int_equal(dra_tensors_read(t, NULL, DRA_I32, DRA_SHAPE(2), to, NULL), DRA_ERR_VALUE);
    assert_int_equal(dra_tensors_read(NULL, "a", DRA_I32, DRA_SHAPE(2), to, NULL), DRA_ERR_VALUE);
    assert_int_equal(dra_tensors_read(t, "a", DRA_DTYPE_COUNT, DRA_SHAPE(2), to, NULL),
                     DRA_ERR_VALUE);
    assert_true(to[0] == 5 && to[1] == 6);
    dra_tensors_close(t);

    t = by_hand("F32", 1, to, 4);
    dra_tensors_read(t, "a", DRA_BF16, DRA_SHAPE(1), to, &err);
    check_error(&err, DRA_ERR_DTYPE, "h", ": tensor 'a': dtype F32, expected BF16");
    dra_tensors_close(t);

    t = by_hand("BOOL", 4, "\1\0\2\1", 4);
    dra_tensors_read(t, "a", DRA_BOOL, DRA_SHAPE(4), to, &err);
    check_error(&err, DRA_ERR_FORMAT, "h", ": tensor 'a': element 2 is 2, expected 0 or 1");
    dra_tensors_close(t);
}

static void shows_types_it_cannot_read(void **state)
{
    const int64_t numbers[] = {1, 2};
    dra_error     err = {0};
    int32_t       to[2];
    dra_tensors  *t = by_hand("I64", 2, numbers, sizeof numbers);
    assert_int_equal(dra_tensors_at(t, 0)->dtype, DRA_DTYPE_COUNT);
    assert_string_equal(dra_tensors_at(t, 0)->dtype_name, "I64");
    assert_memory_equal(dra_tensors_at(t, 0)->data, numbers, sizeof numbers);
    dra_tensors_read(t, "a", DRA_I32, DRA_SHAPE(2), to, &err);
    check_error(&err, DRA_ERR_DTYPE, "h", ": tensor 'a': dtype I64, expected I32");
    dra_tensors_close(t);
}

/* ---- files that cannot be opened ------------------------------------------------------------- */

static void refused(const char *name, dra_status code, const char *rest)
{
    dra_tensors *t = (void *)folder;
    dra_error    err = {0};
    assert_int_equal(dra_tensors_open(in_folder(name), &t, &err), code);
    assert_null(t);
    check_error(&err, code, name, rest);
}

static void refuses_what_is_no_file(void **state)
{
    put_file("empty", "", 0);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
    refused("empty", DRA_ERR_FORMAT, ": has 0 bytes, safetensors have 8 or more");
    refused("none", DRA_ERR_FILE, ": cannot open it: No such file or directory");
    refused("sub", DRA_ERR_FILE, ": is a folder");
    refused("pipe", DRA_ERR_FILE, ": is not a regular file");
    assert_int_equal(dra_tensors_open(in_folder("none"), NULL, NULL), DRA_ERR_VALUE);
    dra_tensors *t = NULL;
    assert_int_equal(dra_tensors_open(NULL, &t, NULL), DRA_ERR_VALUE);
    assert_int_equal(dra_tensors_open(in_folder("none"), &t, NULL), DRA_ERR_FILE);
    dra_tensors_close(NULL);
    assert_int_equal(dra_tensors_count(NULL) + dra_tensors_metadata_count(NULL), 0);
    assert_null(dra_tensors_find(NULL, "a"));
}

static void keeps_what_is_open_when_replaced(void **state)
{
    const dra_tensor_item one = {"a", DRA_I32, DRA_SHAPE(6), i32};
    const dra_tensor_item two = {"b", DRA_F32, DRA_SHAPE(6), f32};
    dra_tensors          *first = written(&one, 1, NULL, 0), *second = written(&two, 1, NULL, 0);
    assert_memory_equal(dra_tensors_find(first, "a")->data, i32, sizeof i32);
    assert_memory_equal(dra_tensors_find(second, "b")->data, f32, sizeof f32);
    assert_null(dra_tensors_find(second, "a"));
    dra_tensors_close(first);
    dra_tensors_close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_every_dtype),
        cmocka_unit_test(keeps_empty_ones_and_scalars),
        cmocka_unit_test(keeps_many),
        cmocka_unit_test(keeps_texts),
        cmocka_unit_test(converts_to_wider_floats),
        cmocka_unit_test(rounds_double_to_float),
        cmocka_unit_test(refuses_other_reads),
        cmocka_unit_test(shows_types_it_cannot_read),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(keeps_what_is_open_when_replaced),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = check_main("safetensors", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) == 0 ? failed : 1;
}
