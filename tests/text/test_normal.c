/* NFC: composed where there is a composed letter, broken bytes kept. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "check.h"
#include "text/letters.h"
#include "text/normal.h"

static dra_normal made;

static void check(const char *text, size_t n, const char *expected, size_t m)
{
    const char *out;
    size_t      bytes;
    assert_true(dra_normal_make(&made, text, n, &out, &bytes));
    assert_int_equal(bytes, m);
    assert_memory_equal(out, expected, m);
}

static void composes(void **state)
{
    static const char *const rows[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"cafe\xcc\x81!", "caf\xc3\xa9!"},
        {"e\xcc\x81"
         "e\xcc\x81",
         "\xc3\xa9\xc3\xa9"},
        {"a\xcc\x82\xcc\xa3", "\xe1\xba\xad"}, /* marks are sorted first */
        {"\xe2\x84\xab", "\xc3\x85"},          /* the Angstrom sign is a letter */
        {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"}, /* Hangul */
        {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"},             /* never composed */
        {"\xcc\x81"
         "a",
         "\xcc\x81"
         "a"},                              /* no letter in front of it */
        {"e\xff\xcc\x81", "e\xff\xcc\x81"}, /* not across what is broken */
        {"e\xcc", "e\xcc"},
        {"\xe6\xb0\xb4\x80"
         "e\xcc\x81",
         "\xe6\xb0\xb4\x80\xc3\xa9"},
        {"\xc3\xcc\x81", "\xc3\xcc\x81"},
        {"\xf0\x9f\x91\x8b\xff", "\xf0\x9f\x91\x8b\xff"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        check(rows[i][0], strlen(rows[i][0]), rows[i][1], strlen(rows[i][1]));
}

static void gives_the_text_itself_where_nothing_changes(void **state)
{
    const char *text = "na\xc3\xafve", *out;
    size_t      bytes;
    assert_true(dra_normal_make(&made, text, strlen(text), &out, &bytes));
    assert_ptr_equal(out, text);
}

/* Random letters, many of them marks, against the library that normalises a text as a whole. */
static void agrees_with_utf8proc(void **state)
{
    static const int32_t some[] = {'e',    'a',    0xe9,   0x1ea1, 0x1112,
                                   0x1161, 0x11ab, 0xac00, 0x212b, 0x958};
    uint64_t             seed = 3;
    for (int i = 0; i < 20000; i++) {
        char   text[96];
        size_t n = 0;
        for (int k = (int)(check_random(&seed) * 20); k; k--) {
            const double what = check_random(&seed);
            const int    at = (int)(check_random(&seed) * 0x70);
            n += dra_utf8_write(what < 0.5   ? some[at % (int)COUNT(some)]
                                : what < 0.9 ? 0x300 + at
                                             : 0x1e00 + at,
                                text + n);
        }
        utf8proc_uint8_t *expected = NULL;
        const ptrdiff_t   m = utf8proc_map((utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &expected,
                                           UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        assert_true(m >= 0);
        check(text, n, (char *)expected, (size_t)m);
        free(expected);
    }
}

/* A million marks after one letter: sorting them does not take quadratic time. */
static void sorts_many_marks(void **state)
{
    enum { MARKS = 1 << 20 };
    char  *text = malloc(1 + 2 * MARKS);
    size_t n = 1;
    assert_non_null(text);
    text[0] = 'q';
    for (int i = 0; i < MARKS; i++) n += dra_utf8_write(i % 2 ? 0x323 : 0x301, text + n);
    const char *out;
    size_t      bytes;
    assert_true(dra_normal_make(&made, text, n, &out, &bytes));
    assert_int_equal(bytes, n);
    assert_memory_equal(out, "q\xcc\xa3\xcc\xa3", 5);
    assert_memory_equal(out + n - 4, "\xcc\x81\xcc\x81", 4);
    free(text);
}

static int done(void **state)
{
    dra_normal_free(&made);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(composes),
        cmocka_unit_test(gives_the_text_itself_where_nothing_changes),
        cmocka_unit_test(agrees_with_utf8proc),
        cmocka_unit_test_teardown(sorts_many_marks, done),
    };
    return check_main("normal", NULL, 0, tests, COUNT(tests));
}
