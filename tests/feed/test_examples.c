/* Examples: rows by name, in an order of their own, of any dtype and shape. */
#include "file/folder.h"

#include <math.h>

#include "dra/data.h"

enum { N = 7 };

static dra_examples *opened(dra_examples_config c)
{
    dra_examples *e = NULL;
    dra_error     err = {0};
    c.path = in_folder("e.safetensors");
    if (dra_examples_open(&c, &e, &err) != DRA_OK) fail_msg("%s", err.text);
    return e;
}

/* ids (N, 3): 10 i + j; x (N): i / 2; mask (N, 1, 2); half (N): i in bf16; none (N, 0). */
static void write_sample(void)
{
    int32_t  ids[N][3];
    float    x[N];
    bool     mask[N][1][2];
    uint16_t half[N];
    for (int i = 0; i < N; i++) {
        const float f = (float)i;
        uint32_t    bits;
        for (int j = 0; j < 3; j++) ids[i][j] = 10 * i + j - 20;
        x[i] = f / 2;
        mask[i][0][0] = i % 2, mask[i][0][1] = i > 3;
        memcpy(&bits, &f, sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
    }
    const dra_tensor_item items[] = {
        {"ids", DRA_I32, DRA_SHAPE(N, 3), ids},       {"x", DRA_F32, DRA_SHAPE(N), x},
        {"mask", DRA_BOOL, DRA_SHAPE(N, 1, 2), mask}, {"half", DRA_BF16, DRA_SHAPE(N), half},
        {"none", DRA_F32, DRA_SHAPE(N, 0), NULL},
    };
    dra_error err = {0};
    if (dra_tensors_write(in_folder("e.safetensors"), items, COUNT(items), NULL, 0, &err) != DRA_OK)
        fail_msg("%s", err.text);
}

static void reads_rows_by_name(void **state)
{
    const int64_t rows[4] = {5, 0, -1, 5};
    int32_t       ids[4][3], mask_i[4][2];
    double        x[4], half[4];
    float         narrow[4];
    bool          mask[4][2];
    dra_error     err = {0};
    write_sample();
    dra_examples *e = opened((dra_examples_config){.B = 2});
    assert_int_equal(dra_examples_inputs(e), 5);
    assert_int_equal(dra_examples_find(e, "ids")->shape.rank, 1);
    assert_int_equal(dra_examples_find(e, "ids")->shape.dim[0], 3);
    assert_int_equal(dra_examples_find(e, "ids")->dtype, DRA_I32);
    assert_int_equal(dra_examples_find(e, "mask")->dtype, DRA_BOOL);
    assert_int_equal(dra_examples_find(e, "half")->dtype, DRA_REAL);
    assert_string_equal(dra_examples_find(e, "half")->dtype_name, "BF16");
    assert_int_equal(dra_examples_find(e, "x")->shape.rank, 0);
    assert_null(dra_examples_find(e, "y"));
    assert_non_null(dra_examples_at(e, 4));
    assert_null(dra_examples_at(e, 5));
    assert_int_equal(dra_examples_read(e, "ids", 4, rows, DRA_I32, ids, &err), DRA_OK);
    assert_int_equal(dra_examples_read(e, "x", 4, rows, DRA_F64, x, &err), DRA_OK);
    assert_int_equal(dra_examples_read(e, "x", 4, rows, DRA_F32, narrow, &err), DRA_OK);
    assert_int_equal(dra_examples_read(e, "half", 4, rows, DRA_F64, half, &err), DRA_OK);
    assert_int_equal(dra_examples_read(e, "mask", 4, rows, DRA_BOOL, mask, &err), DRA_OK);
    assert_int_equal(dra_examples_read(e, "mask", 4, rows, DRA_I32, mask_i, &err), DRA_OK);
    assert_int_equal(dra_examples_read(e, "none", 4, rows, DRA_F32, NULL, &err), DRA_OK);
    for (int b = 0; b < 4; b++) {
        const int i = (int)rows[b];
        for (int j = 0; j < 3; j++) assert_int_equal(ids[b][j], i < 0 ? 0 : 10 * i + j - 20);
        assert_true(x[b] == (i < 0 ? 0 : i / 2.0) && narrow[b] == (float)x[b]);
        assert_true(half[b] == (i < 0 ? 0 : i));
        assert_int_equal(mask[b][0], i > 0 && i % 2);
        assert_int_equal(mask[b][1], i > 3);
        for (int j = 0; j < 2; j++) assert_int_equal(mask_i[b][j], mask[b][j]);
    }
    dra_examples_close(e);
}

static void draws_every_example_once(void **state)
{
    int64_t rows[3];
    int     seen[N] = {0};
    write_sample();
    dra_examples *e = opened((dra_examples_config){.B = 3, .seed = 4});
    assert_int_equal(dra_examples_count(e), N);
    assert_int_equal(dra_examples_steps(e), 3);
    for (int64_t step = 0; step < N; step++) { /* three epochs */
        dra_examples_rows(e, step, rows);
        for (int64_t b = 0; b < 3; b++) {
            const int64_t g = step * 3 + b;
            assert_int_equal(rows[b], dra_shuffle(4, g / N, N, g % N));
            seen[rows[b]]++;
        }
    }
    for (int i = 0; i < N; i++) assert_int_equal(seen[i], 3);
    dra_examples_close(e);
    e = opened((dra_examples_config){.B = 3, .from = 0.5, .once = true}); /* examples 3 .. 6 */
    memset(seen, 0, sizeof seen);
    assert_int_equal(dra_examples_count(e), 4);
    for (int64_t step = 0; step < 2; step++) {
        dra_examples_rows(e, step, rows);
        for (int64_t b = 0; b < 3; b++) {
            assert_int_equal(rows[b] < 0, step * 3 + b >= 4);
            if (rows[b] >= 0) seen[rows[b]]++;
        }
    }
    for (int i = 0; i < N; i++) assert_int_equal(seen[i], i >= 3);
    dra_examples_close(e);
}

/* I64, as other libraries write integers, with a header made by hand. */
static void reads_wide_integers(void **state)
{
    char          file[256];
    const int64_t data[2][2] = {{1, -100}, {INT32_MIN, (int64_t)1 << 31}}, rows[] = {0, 1};
    int32_t       ids[4];
    dra_error     err = {0};
    const size_t  n = (size_t)snprintf(
         file + 8, sizeof file - 8,
         "{\"ids\":{\"dtype\":\"I64\",\"shape\":[2,2],\"data_offsets\":[0,32]}}");
    memcpy(file, &(uint64_t){n}, 8);
    memcpy(file + 8 + n, data, sizeof data);
    put_file("e.safetensors", file, 8 + n + sizeof data);
    dra_examples *e = opened((dra_examples_config){.B = 1});
    assert_int_equal(dra_examples_find(e, "ids")->dtype, DRA_I32);
    assert_int_equal(dra_examples_read(e, "ids", 1, rows, DRA_I32, ids, &err), DRA_OK);
    assert_true(ids[0] == 1 && ids[1] == -100);
    assert_int_equal(dra_examples_read(e, "ids", 2, rows, DRA_I32, ids, &err), DRA_ERR_FORMAT);
    check_error(&err, DRA_ERR_FORMAT, "e.safetensors",
                ": tensor 'ids', example 1: element 1 is 2147483648, expected one that fits into "
                "32 bits");
    assert_int_equal(dra_examples_read(e, "ids", 1, rows, DRA_F32, ids, &err), DRA_ERR_DTYPE);
    check_error(&err, DRA_ERR_DTYPE, "e.safetensors", ": tensor 'ids': dtype I64, expected F32");
    dra_examples_close(e);
}

static void check_no_examples(dra_examples_config c, dra_status code, const char *name,
                              const char *text)
{
    dra_examples *e = (dra_examples *)&c;
    dra_error     err = {0};
    assert_int_equal(dra_examples_open(&c, &e, &err), code);
    assert_null(e);
    if (name)
        check_error(&err, code, name, text);
    else
        assert_string_equal(err.text, text);
}

static void write_two(dra_shape a, dra_shape b)
{
    const float           zeros[8] = {0};
    const dra_tensor_item items[] = {{"a", DRA_F32, a, zeros}, {"b", DRA_F32, b, zeros}};
    assert_int_equal(dra_tensors_write(in_folder("two"), items, 2, NULL, 0, NULL), DRA_OK);
}

static void refuses_what_are_no_examples(void **state)
{
    const dra_examples_config c = {.path = in_folder("two"), .B = 1};
    check_no_examples((dra_examples_config){.B = 1}, DRA_ERR_VALUE, NULL, "examples_open: no path");
    check_no_examples((dra_examples_config){.path = c.path}, DRA_ERR_VALUE, NULL,
                      "examples_open: B 0, expected 1 to 2^31 - 1");
    check_no_examples((dra_examples_config){.path = c.path, .B = 1, .from = 2}, DRA_ERR_VALUE, NULL,
                      "examples_open: part from 2 to 1, expected 0 <= from < to <= 1");
    check_no_examples(c, DRA_ERR_FILE, "two", ": cannot open it: No such file or directory");
    write_two(DRA_SHAPE(2, 2), DRA_SHAPE(3));
    check_no_examples(c, DRA_ERR_SHAPE, "two",
                      ": tensor 'b': shape (3), expected 2 examples as in 'a'");
    write_two(DRA_SHAPE(2, 2), (dra_shape){0});
    check_no_examples(c, DRA_ERR_SHAPE, "two",
                      ": tensor 'b': shape (), expected an axis of examples");
    write_two(DRA_SHAPE(0, 2), DRA_SHAPE(0));
    check_no_examples(c, DRA_ERR_VALUE, "two", ": 0 examples, none of them from 0 to 1");
    put_file("two", "\2\0\0\0\0\0\0\0{}", 10);
    check_no_examples(c, DRA_ERR_VALUE, "two", ": 0 examples, none of them from 0 to 1");
    dra_examples_close(NULL);
}

static void refuses_rows_that_are_not_there(void **state)
{
    dra_error err = {0};
    int32_t   to[3];
    write_sample();
    dra_examples *e = opened((dra_examples_config){.B = 1});
    assert_int_equal(dra_examples_read(e, "idz", 1, &(int64_t){0}, DRA_I32, to, &err),
                     DRA_ERR_NAME);
    check_error(&err, DRA_ERR_NAME, "e.safetensors", ": no tensor 'idz'");
    assert_int_equal(dra_examples_read(e, "ids", 1, &(int64_t){N}, DRA_I32, to, &err),
                     DRA_ERR_INDEX);
    check_error(&err, DRA_ERR_INDEX, "e.safetensors", ": no example 7, there are 7");
    assert_int_equal(dra_examples_read(e, "x", 1, &(int64_t){0}, DRA_I32, to, &err), DRA_ERR_DTYPE);
    check_error(&err, DRA_ERR_DTYPE, "e.safetensors", ": tensor 'x': dtype F32, expected integers");
    dra_examples_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_rows_by_name),
        cmocka_unit_test(draws_every_example_once),
        cmocka_unit_test(reads_wide_integers),
        cmocka_unit_test(refuses_what_are_no_examples),
        cmocka_unit_test(refuses_rows_that_are_not_there),
    };
    return cmocka_run_group_tests_name("examples", tests, folder_make, folder_remove);
}
