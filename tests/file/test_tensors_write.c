/* Writing safetensors: the exact bytes, what is refused, and texts in errors. */
#include "folder.h"

#include "file/fail.h"
#include "file/format.h"
#include "file/json.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

static const char header[] = /* what follows from the items below */
    "{\"__metadata__\":{\"k\":\"v\"},"
    "\"z\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
    "\"a\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[8,12]},"
    "\"b\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[12,20]},"
    "\"h\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[20,22]}}";

static void writes_exactly_this(void **state)
{
    const int32_t           numbers[] = {1, 2};
    const double            wide = 0.5;
    const uint16_t          half = 0x3c00;
    const dra_tensor_item   items[] = {{"h", DRA_F16, {0}, &half},
                                       {"b", DRA_I32, DRA_SHAPE(2), numbers},
                                       {"a", DRA_I32, DRA_SHAPE(1, 1), numbers},
                                       {"z", DRA_F64, DRA_SHAPE(1), &wide}};
    const dra_metadata_item meta[] = {{"k", "v"}};
    char                    expected[256 + 22];
    memset(expected, ' ', sizeof expected);
    memcpy(expected, &(uint64_t){248}, 8);
    memcpy(expected + 8, header, sizeof header - 1);
    assert_in_range(sizeof header - 1, 248 - 63, 248);
    memcpy(expected + 256, &wide, 8);
    memcpy(expected + 264, numbers, 4);
    memcpy(expected + 268, numbers, 8);
    memcpy(expected + 276, &half, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dra_tensors_write(in_folder("f"), items, 4, meta, 1, NULL), DRA_OK);
        check_file("f", expected, sizeof expected);
    }
}

static void aligns_data(void **state) /* whatever the length of the header */
{
    char name[80] = "";
    for (int i = 0; i < 70; i++) {
        const dra_tensor_item item = {name, DRA_F32, {0}, &(float){1}};
        dra_tensors          *t = NULL;
        name[i] = 'n';
        assert_int_equal(dra_tensors_write(in_folder("f"), &item, 1, NULL, 0, NULL), DRA_OK);
        assert_int_equal(dra_tensors_open(in_folder("f"), &t, NULL), DRA_OK);
        assert_int_equal((uintptr_t)dra_tensors_at(t, 0)->data % 64, 0);
        dra_tensors_close(t);
    }
}

static void refuses_wrong_items(void **state)
{
    const float x[4] = {1};
    const struct {
        dra_tensor_item item;
        dra_status      code;
        const char     *rest;
    } cases[] = {
        {{NULL, DRA_F32, {0}, x}, DRA_ERR_NAME, ": a tensor without a name"},
        {{"__metadata__", DRA_F32, {0}, x},
         DRA_ERR_NAME,
         ": '__metadata__' cannot be a tensor's name"},
        {{"a\nb", DRA_F32, {0}, x}, DRA_ERR_NAME, ": 'a?b' cannot be a tensor's name"},
        {{"\xff", DRA_F32, {0}, x}, DRA_ERR_NAME, ": '?' is not UTF-8"},
        {{"twice", DRA_BF16, {0}, x}, DRA_ERR_NAME, ": 'twice' is there twice"},
        {{"a", (dra_dtype)99, {0}, x}, DRA_ERR_DTYPE, ": tensor 'a': no dtype has number 99"},
        {{"a", DRA_F32, {7}, x}, DRA_ERR_SHAPE, ": tensor 'a': has 7 axes, expected 0 to 6"},
        {{"a", DRA_F32, {-1}, x}, DRA_ERR_SHAPE, ": tensor 'a': has -1 axes, expected 0 to 6"},
        {{"a", DRA_F32, DRA_SHAPE(-1), x},
         DRA_ERR_SHAPE,
         ": tensor 'a': shape (-1) is negative or too large"},
        {{"a", DRA_F32, DRA_SHAPE(INT64_MAX), x},
         DRA_ERR_SHAPE,
         ": tensor 'a': shape (9223372036854775807) is negative or too large"},
        {{"a", DRA_F32, DRA_SHAPE(0, INT64_MAX, 3), x}, /* as reading: a 0 hides no overflow */
         DRA_ERR_SHAPE,
         ": tensor 'a': shape (0, 9223372036854775807, 3) is negative or too large"},
        {{"a", DRA_F32, DRA_SHAPE(1), NULL}, DRA_ERR_VALUE, ": tensor 'a': has no data"},
        {{"a", DRA_BOOL, DRA_SHAPE(4), "\1\0\3\1"},
         DRA_ERR_VALUE,
         ": tensor 'a': element 2 is 3, expected 0 or 1"},
    };
    put_file("f", "old", 3);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const dra_tensor_item items[] = {{"twice", DRA_F32, {0}, x}, cases[i].item};
        dra_error             err = {0};
        assert_int_equal(dra_tensors_write(in_folder("f"), items, 2, NULL, 0, &err), cases[i].code);
        check_error(&err, cases[i].code, "f", cases[i].rest);
    }
    check_file("f", "old", 3);
    assert_int_equal(folder_files(false), 1);
}

/* Quantised tensors are bytes to others, and what the metadata says to us. */
static void quantised_tensors_come_back(void **state)
{
    static unsigned char  blocks[2 * 2 * 34] = {0, 0x3c, 7}; /* d = 1, the first number 7 */
    const dra_tensor_item item = {"q", DRA_Q8_0, DRA_SHAPE(2, 64), blocks};
    const dra_tensor_item cut = {"q", DRA_Q8_0, DRA_SHAPE(64, 2), blocks};
    dra_tensors          *t;
    dra_error             err = {0};
    float                 x[128];
    assert_int_equal(dra_tensors_write(in_folder("f"), &item, 1, NULL, 0, &err), DRA_OK);
    assert_int_equal(dra_tensors_open(in_folder("f"), &t, &err), DRA_OK);
    const dra_tensor_info *q = dra_tensors_find(t, "q");
    assert_int_equal(q->dtype, DRA_Q8_0);
    assert_true(dra_shape_equal(&q->shape, &item.shape));
    assert_memory_equal(q->data, blocks, sizeof blocks);
    assert_int_equal(dra_tensors_read(t, "q", DRA_F32, item.shape, x, &err), DRA_OK);
    assert_true(x[0] == 7 && x[127] == 0);
    dra_tensors_close(t);
    assert_int_equal(dra_tensors_write(in_folder("f"), &cut, 1, NULL, 0, &err), DRA_ERR_SHAPE);
    assert_non_null(strstr(err.text, "last axis of (64, 2), expected a multiple of 32: q8_0"));
}

static void refuses_false_notes(void **state)
{
    static const struct {
        const char *key, *value, *text;
    } rows[] = {{"quantised:q", "Q9_9", "is quantised as 'Q9_9', which is unknown"},
                {"quantised:r", "Q8_0", "but there is no such tensor"},
                {"quantised:q", "Q8_0", "I32, expected U8 with a multiple of 34 bytes"}};
    const int32_t         numbers[2] = {0};
    const dra_tensor_item item = {"q", DRA_I32, DRA_SHAPE(2), numbers};
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dra_metadata_item note = {rows[i].key, rows[i].value};
        dra_tensors            *t;
        dra_error               err = {0};
        assert_int_equal(dra_tensors_write(in_folder("f"), &item, 1, &note, 1, &err), DRA_OK);
        assert_int_equal(dra_tensors_open(in_folder("f"), &t, &err), DRA_ERR_FORMAT);
        if (!strstr(err.text, rows[i].text)) fail_msg("%s", err.text);
    }
}

static void refuses_wrong_metadata(void **state)
{
    const struct {
        dra_metadata_item item;
        dra_status        code;
        const char       *rest;
    } cases[] = {
        {{"k", NULL}, DRA_ERR_VALUE, ": metadata 1 has no key or no value"},
        {{NULL, "v"}, DRA_ERR_VALUE, ": metadata 1 has no key or no value"},
        {{"twice", "v"}, DRA_ERR_NAME, ": 'twice' is there twice"},
        {{"k", "\x80"}, DRA_ERR_NAME, ": '?' is not UTF-8"},
        {{"\x80", "v"}, DRA_ERR_NAME, ": '?' is not UTF-8"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const dra_metadata_item meta[] = {{"twice", "1"}, cases[i].item};
        dra_error               err = {0};
        assert_int_equal(dra_tensors_write(in_folder("f"), NULL, 0, meta, 2, &err), cases[i].code);
        check_error(&err, cases[i].code, "f", cases[i].rest);
    }
    assert_int_equal(dra_tensors_write(NULL, NULL, 0, NULL, 0, NULL), DRA_ERR_VALUE);
    assert_int_equal(dra_tensors_write(in_folder("f"), NULL, 1, NULL, 0, NULL), DRA_ERR_VALUE);
    assert_int_equal(dra_tensors_write(in_folder("f"), NULL, 0, NULL, 1, NULL), DRA_ERR_VALUE);
    assert_int_equal(folder_files(false), 0);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void knows_utf8(void **state) /* as jansson, for all leads with two bytes after, some more */
{
    const unsigned char some[] = {0, 'a', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    for (unsigned i = 1; i < 65536 * COUNT(some) * COUNT(some); i++) {
        const unsigned rest = i >> 16;
        const char text[] = {(char)(i & 255), (char)(i >> 8 & 255), (char)some[rest % COUNT(some)],
                             (char)some[rest / COUNT(some)], 0};
        json_t    *string = json_string(text);
        if (dra_is_utf8(text) != (string != NULL)) fail_msg("text %x", i);
        json_decref(string);
    }
}

static void shortens_texts(void **state)
{
    char room[DRA_BRIEF], text[1000];
    assert_string_equal(dra_brief("", room), "");
    assert_string_equal(dra_brief("a\tb\x7f\xc2\x9b\xc3\xa9", room), "a?b??\?\xc3\xa9");
    assert_string_equal(dra_brief("\xff\xc3\xa9\xc3(\xe2\x82", room), "?\xc3\xa9?(??");
    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, 'x', sizeof text);
        text[n] = 0;
        const size_t length = strlen(dra_brief(text, room));
        assert_int_equal(length, n < DRA_BRIEF ? n : DRA_BRIEF - 1);
    }
    for (int byte = 0x80; byte < 0x100; byte++) {
        memset(text, byte, sizeof text);
        text[sizeof text - 1] = 0;
        assert_true(dra_is_utf8(dra_brief(text, room)));
        assert_in_range(strlen(room), 100, DRA_BRIEF - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(writes_exactly_this, clean),
        cmocka_unit_test_setup(aligns_data, clean),
        cmocka_unit_test_setup(refuses_wrong_items, clean),
        cmocka_unit_test_setup(refuses_wrong_metadata, clean),
        cmocka_unit_test_setup(quantised_tensors_come_back, clean),
        cmocka_unit_test_setup(refuses_false_notes, clean),
        cmocka_unit_test_setup(shortens_texts, clean),
        cmocka_unit_test_setup(knows_utf8, clean),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = check_main("tensors_write", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) == 0 ? failed : 1;
}
