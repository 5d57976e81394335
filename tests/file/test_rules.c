/* The rules of safetensors: each broken by hand, then all bytes cut and changed. */
#include "check.h"

#include "sample.h"

/* ---- one rule at a time ---------------------------------------------------------------------- */

/* With exactly this text or, where jansson words it, with this in its text. */
static void refuses(const unsigned char *bytes, size_t n, const char *text)
{
    dra_header h;
    dra_error  err = {0};
    assert_int_equal(dra_header_read("f", bytes, n, &h, &err), DRA_ERR_FORMAT);
    if (strncmp(text, "f: ", 3) == 0)
        assert_string_equal(err.text, text);
    else if (!strstr(err.text, text))
        fail_msg("'%s', expected '%s' in it", err.text, text);
}

static void refuses_wrong_lengths(void **state)
{
    const struct {
        uint64_t    length;
        size_t      bytes;
        const char *text;
    } cases[] = {
        {0, 0, "f: has 0 bytes, safetensors have 8 or more"},
        {0, 7, "f: has 7 bytes, safetensors have 8 or more"},
        {0, 8, "f: header is not '{' to '}' with nothing but spaces after it"},
        {1, 8, "f: header of 1 bytes, but only 0 follow: cut short?"},
        {9, 16, "f: header of 9 bytes, but only 8 follow: cut short?"},
        {100000000, 16, "f: header of 100000000 bytes, but only 8 follow: cut short?"},
        {100000001, 16,
         "f: header of 100000001 bytes, expected at most 100000000: not safetensors?"},
        {UINT64_MAX, 16,
         "f: header of 18446744073709551615 bytes, expected at most 100000000: not safetensors?"},
        {UINT64_MAX - 7, 16,
         "f: header of 18446744073709551608 bytes, expected at most 100000000: not safetensors?"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned char bytes[16] = {0};
        memcpy(bytes, &cases[i].length, sizeof cases[i].length);
        refuses(bytes, cases[i].bytes, cases[i].text);
    }
}

#define T(dtype, shape, begin, end)                                                                \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
#define FRAME "f: header is not '{' to '}' with nothing but spaces after it"

static const struct rule {
    const char *header;
    size_t      data;
    const char *text;
} rules[] = {
    /* the frame */
    {"", 0, FRAME},
    {" {}", 0, FRAME},
    {"[]", 0, FRAME},
    {"{", 0, FRAME},
    {"{}\n", 0, FRAME},
    {"{}\t ", 0, FRAME},
    {"{}x", 0, FRAME},
    {"\xef\xbb\xbf{}", 0, FRAME},
    {"{} {}", 0, "end of file expected"},
    {"{\"a\"}", 0, "':' expected"},
    {"{\"a\xff\":1}", 0, "unable to decode byte 0xff"},
    {"{\"a\\u0000\":1}", 0, "NUL byte in object key not supported"},
    {"{\"\\ud800\":1}", 0, "invalid Unicode '\\uD800'"},
    /* nesting and keys */
    {"{\"a\":{\"b\":{\"c\":{}}}}", 0, "f: JSON nests 4 deep, expected at most 3"},
    {"{\"a\":[[[[[[[[[[1]]]]]]]]]]}", 0, "f: JSON nests 11 deep, expected at most 3"},
    {"{\"a\":" T("U8", "[1]", 0, 1) ",\"a\":" T("U8", "[1]", 1, 2) "}", 2, "duplicate object key"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "duplicate object key"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"\\u0073hape\":[1],\"data_offsets\":[0,1]}}", 1,
     "duplicate object key"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "duplicate object key"},
    {"{\"__metadata__\":[]}", 0, "f: __metadata__ is not an object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "f: __metadata__ 'k' is not a text"},
    {"{\"__metadata__\":{\"k\":\"a\\u0000b\"}}", 0,
     "\\u0000 is not allowed without JSON_ALLOW_NUL"},
    /* members */
    {"{\"a\":1}", 0, "f: tensor 'a': is not an object"},
    {"{\"a\":null}", 0, "f: tensor 'a': is not an object"},
    {"{\"a\":{}}", 0, "f: tensor 'a': expected exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1,
     "f: tensor 'a': expected exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1,
     "f: tensor 'a': expected exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "f: tensor 'a': dtype is not a text"},
    {"{\"a\":" T("f32", "[1]", 0, 4) "}", 4, "f: tensor 'a': dtype 'f32' is unknown"},
    {"{\"a\":" T("F\\n3", "[1]", 0, 4) "}", 4, "f: tensor 'a': dtype 'F?3' is unknown"},
    {"{\"a\":" T("U8", "1", 0, 1) "}", 1, "f: tensor 'a': shape is not a list"},
    {"{\"a\":" T("U8", "[1.0]", 0, 1) "}", 1, "f: tensor 'a': axis 0 is not a natural number"},
    {"{\"a\":" T("U8", "[1,1e0]", 0, 1) "}", 1, "f: tensor 'a': axis 1 is not a natural number"},
    {"{\"a\":" T("U8", "[\"1\"]", 0, 1) "}", 1, "f: tensor 'a': axis 0 is not a natural number"},
    {"{\"a\":" T("U8", "[true]", 0, 1) "}", 1, "f: tensor 'a': axis 0 is not a natural number"},
    {"{\"a\":" T("U8", "[-1]", 0, 1) "}", 1, "f: JSON has a negative number"},
    {"{\"a\":" T("U8", "[-0]", 0, 0) "}", 0, "f: JSON has a negative number"},
    {"{\"a\":" T("U8", "[01]", 0, 1) "}", 1, "invalid token"},
    {"{\"a\":" T("U8", "[9223372036854775808]", 0, 1) "}", 1, "too big integer"},
    {"{\"a\":" T("U8", "[1,1,1,1,1,1,1]", 0, 1) "}", 1,
     "f: tensor 'a': has 7 axes, expected at most 6"},
    {"{\"a\\u0007\":" T("U8", "[1]", 0, 1) "}", 1,
     "f: tensor 'a?': its name has a control character"},
    {"{\"a\\u0085\":" T("U8", "[1]", 0, 1) "}", 1,
     "f: tensor 'a\?\?': its name has a control character"},
    /* sizes and places */
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
     "f: tensor 'a': data_offsets are not two natural numbers"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
     "f: tensor 'a': data_offsets are not two natural numbers"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{}}}", 1,
     "f: tensor 'a': data_offsets are not two natural numbers"},
    {"{\"a\":" T("U8", "[1]", 0, 1.0) "}", 1,
     "f: tensor 'a': data_offsets are not two natural numbers"},
    {"{\"a\":" T("F32", "[2]", 0, 4) "}", 4, "f: tensor 'a': has 4 bytes, expected 8 for F32 (2)"},
    {"{\"a\":" T("F32", "[]", 0, 0) "}", 0, "f: tensor 'a': has 0 bytes, expected 4 for F32 ()"},
    {"{\"a\":" T("F32", "[1]", 4, 0) "}", 4, "f: tensor 'a': data ends at 0, before its begin 4"},
    {"{\"a\":" T("F32", "[2]", 0, 8) "}", 4,
     "f: tensor 'a': data ends at 8, the file has 4 bytes of data"},
    {"{\"a\":" T("U8", "[4]", 9223372036854775803, 9223372036854775807) "}", 4,
     "f: tensor 'a': data ends at 9223372036854775807, the file has 4 bytes of data"},
    {"{\"a\":" T("F4", "[3]", 0, 1) "}", 1, "f: tensor 'a': F4 (3) does not fill whole bytes"},
    {"{\"a\":" T("U8", "[4294967296,4294967296]", 0, 0) "}", 0,
     "f: tensor 'a': shape (4294967296, 4294967296) is too large"},
    {"{\"a\":" T("F64", "[2305843009213693952]", 0, 0) "}", 0,
     "f: tensor 'a': shape (2305843009213693952) is too large"},
    {"{\"a\":" T("U8", "[0,4294967296,4294967296]", 0, 0) "}", 0, /* a 0 hides no overflow */
     "f: tensor 'a': shape (0, 4294967296, 4294967296) is too large"},
    /* the cover */
    {"{}", 1, "f: has 1 bytes of data, its tensors only 0"},
    {"{\"a\":" T("U8", "[2]", 0, 2) "}", 3, "f: has 3 bytes of data, its tensors only 2"},
    {"{\"a\":" T("U8", "[2]", 1, 3) "}", 3,
     "f: tensor 'a': data begins at 1, expected 0, where the last ends"},
    {"{\"a\":" T("U8", "[2]", 3, 5) ",\"b\":" T("U8", "[2]", 0, 2) "}", 5,
     "f: tensor 'a': data begins at 3, expected 2, where the last ends"},
    {"{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 1, 3) "}", 3,
     "f: tensor 'b': data begins at 1, expected 2, where the last ends"},
    {"{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 0, 2) "}", 2,
     "f: tensor 'b': data begins at 0, expected 2, where the last ends"},
    {"{\"a\":" T("U8", "[0]", 1, 1) ",\"b\":" T("U8", "[2]", 0, 2) "}", 2,
     "f: tensor 'a': data begins at 1, expected 2, where the last ends"},
};

static void refuses_each_broken_rule(void **state)
{
    for (size_t i = 0; i < COUNT(rules); i++) {
        sample s = sample_of(rules[i].header, strlen(rules[i].header), rules[i].data);
        refuses(s.at, s.n, rules[i].text);
        free(s.at);
    }
}

static void refuses_zero_bytes_as_padding(void **state) /* a known bad writer does this */
{
    sample s = sample_of("{}\0\0\0\0\0\0", 8, 0);
    refuses(s.at, s.n, FRAME);
    free(s.at);
}

static void refuses_deep_nesting(void **state) /* far deeper than a stack would bear */
{
    const size_t n = 10 * 1000 * 1000;
    char        *text = malloc(n);
    assert_non_null(text);
    memset(text, '[', n);
    memcpy(text, "{\"a\":", 5);
    text[n - 1] = '}';
    sample s = sample_of(text, n, 0);
    refuses(s.at, s.n, "f: JSON nests 9999995 deep, expected at most 3");
    free(s.at);
    free(text);
}

static void keeps_errors_short(void **state) /* long names leave room for what is wrong */
{
    enum { LONG = 3000 };
    char text[2 * LONG] = "{\"";
    for (int i = 0; i < LONG; i += 2) memcpy(text + 2 + i, "\xc3\xa9", 2); /* e with an accent */
    memcpy(text + 2 + LONG, "\":1}", 5);
    sample     s = sample_of(text, strlen(text), 0);
    dra_header h;
    dra_error  err = {0};
    assert_int_equal(dra_header_read("f", s.at, s.n, &h, &err), DRA_ERR_FORMAT);
    assert_true(strlen(err.text) < 200);
    assert_non_null(strstr(err.text, "\xc3\xa9...\xc3\xa9"));
    assert_non_null(strstr(err.text, "\xc3\xa9': is not an object"));
    free(s.at);
}

/* ---- accepted -------------------------------------------------------------------------------- */

static void accepts_what_is_allowed(void **state)
{
    static const struct rule allowed[] = {
        {"{}"},
        {"{}        "},
        {"{\n\t\r \"__metadata__\" : {} }"},
        {"{\"__metadata__\":{\"k\":\"a\\nb\"}}"},
        {"{\"a\":" T("U8", "[0]", 0, 0) ",\"b\":" T("U8", "[2,0,3]", 0, 0) "}"},
        {"{\"b\":" T("U8", "[2]", 3, 5) ",\"a\":" T("U8", "[3]", 0, 3) "}", 5},
        {"{\"a\":" T("U8", "[0]", 2, 2) ",\"b\":" T("U8", "[2]", 0, 2) "}", 2},
        {"{\"a\":" T("F4", "[2,3]", 0, 3) ",\"b\":" T("F6_E2M3", "[4]", 3, 6) "}", 6},
        {"{\"\":" T("I64", "[]", 0, 8) "}", 8},
        {"{\"a\":" T("BOOL", "[1,1,1,1,1,1]", 0, 1) "}", 1},
        {"{\"data_offsets\":" T("U8", "[1]", 0, 1) "}", 1},
    };
    for (size_t i = 0; i < COUNT(allowed); i++) {
        sample     s = sample_of(allowed[i].header, strlen(allowed[i].header), allowed[i].data);
        dra_header h;
        dra_error  err = {0};
        const bool ok = dra_header_read("f", s.at, s.n, &h, &err) == DRA_OK;

        if (!ok) fail_msg("%s: %s", allowed[i].header, err.text);
        if (ok) assert_null(sample_check(&h, s.at, s.n));
        dra_header_free(&h);
        free(s.at);
    }
}

/* ---- any bytes ------------------------------------------------------------------------------- */

static sample small(void)
{
    const char header[] = "{\"__metadata__\":{\"k\":\"v\"},\"w.a\":" T(
        "F32", "[2,1]", 0, 8) ",\"b\":" T("U8", "[0]", 8, 8) ",\"c\":" T("BF16", "[]", 8,
                                                                         10) "}    ";
    return sample_of(header, sizeof header - 1, 10);
}

static void tries(const unsigned char *bytes, size_t n, long *accepted)
{
    bool        ok = false;
    const char *broken = sample_try(bytes, n, &ok);
    if (broken) fail_msg("%s", broken);
    *accepted += ok;
}

static void survives_every_cut(void **state)
{
    sample s = small();
    long   accepted = 0;
    for (size_t n = 0; n < s.n; n++) tries(s.at, n, &accepted);
    assert_int_equal(accepted, 0);
    tries(s.at, s.n, &accepted);
    assert_int_equal(accepted, 1);
    free(s.at);
}

static void survives_every_changed_byte(void **state)
{
    sample s = small();
    long   accepted = 0;
    for (size_t i = 0; i < s.n; i++) {
        const unsigned char before = s.at[i];
        for (int value = 0; value < 256; value++) {
            s.at[i] = (unsigned char)value;
            tries(s.at, s.n, &accepted);
        }
        s.at[i] = before;
    }
    assert_true(accepted > 10 * 256); /* all values of data, many letters of names */
    free(s.at);
}

static void survives_several_changed_bytes(void **state)
{
    const char letters[] = "{}[]\",:\\0123456789eE+-. nulltrueFUBfI\x80\xff";
    sample     s = small(), copy = small();
    uint64_t   seed = 11;
    long       accepted = 0;
    for (int round = 0; round < 20000; round++) {
        memcpy(copy.at, s.at, s.n);
        const int changes = 2 + (int)(check_random(&seed) * 4);
        for (int i = 0; i < changes; i++) {
            const size_t at = (size_t)(check_random(&seed) * (double)s.n);
            const size_t c = (size_t)(check_random(&seed) * (double)sizeof letters);
            copy.at[at] = (unsigned char)letters[c];
        }
        tries(copy.at, copy.n, &accepted);
    }
    assert_true(accepted > 0);
    free(s.at);
    free(copy.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_wrong_lengths),
        cmocka_unit_test(refuses_each_broken_rule),
        cmocka_unit_test(refuses_zero_bytes_as_padding),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(keeps_errors_short),
        cmocka_unit_test(accepts_what_is_allowed),
        cmocka_unit_test(survives_every_cut),
        cmocka_unit_test(survives_every_changed_byte),
        cmocka_unit_test(survives_several_changed_bytes),
    };
    return check_main("rules", NULL, 0, tests, COUNT(tests));
}
