/* Letters: UTF-8 forwards and backwards, kinds, the byte alphabet. */
#include <string.h>

#include "check.h"
#include "file/format.h"
#include "text/letters.h"

static void reads_every_letter(void **state)
{
    for (int32_t code = 0; code < 0x110000; code++) {
        char    text[8] = "";
        int32_t found;
        if (code >= 0xd800 && code < 0xe000) continue; /* halves of pairs */
        const size_t n = dra_utf8_write(code, text);
        assert_int_equal(dra_utf8(text, sizeof text, &found), n);
        assert_int_equal(found, code);
        assert_int_equal(dra_utf8_before(text, n, &found), 0);
        assert_int_equal(found, code);
        for (size_t k = 1; k < n; k++) {
            assert_int_equal(dra_utf8(text, k, &found), k);
            assert_int_equal(found, DRA_OPEN);
        }
    }
}

/* All leads with all seconds, and some thirds: valid is what is_utf8 calls so. */
static void knows_what_is_broken(void **state)
{
    static const unsigned char thirds[] = {'a', 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    for (int lead = 0x80; lead < 256; lead++)
        for (int second = 1; second < 256; second++)
            for (size_t k = 0; k < COUNT(thirds); k++) {
                const char   text[] = {(char)lead, (char)second, (char)thirds[k], (char)0x80, 0};
                char         part[5] = "";
                int32_t      code;
                const size_t n = dra_utf8(text, 4, &code);
                assert_in_range(n, 1, 4);
                memcpy(part, text, n);
                assert_int_equal(code >= 0, dra_is_utf8(part));
                assert_int_not_equal(code, DRA_OPEN);
            }
}

/* One for each longest part that a letter could have started with. [Unicode, table 3-8] */
static void takes_the_longest_broken_part(void **state)
{
    static const struct {
        const char *text;
        size_t      n;
    } rows[] = {{"\x80", 1},
                {"\xc0\x80", 1},
                {"\xc2"
                 "a",
                 1},
                {"\xe2\x98"
                 "a",
                 2},
                {"\xe0\x80\x80", 1},
                {"\xed\xa0\x80", 1},
                {"\xf0\x9f\x98.", 3},
                {"\xf0\x80\x80\x80", 1},
                {"\xf4\x90\x80\x80", 1},
                {"\xf5\x80\x80\x80", 1},
                {"\xff", 1}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        int32_t code;
        assert_int_equal(dra_utf8(rows[i].text, strlen(rows[i].text), &code), rows[i].n);
        assert_int_equal(code, DRA_BROKEN);
    }
}

/* Backwards, letters and broken bytes come out as they do forwards. */
static void walks_back_as_it_walks_on(void **state)
{
    static const char text[] =
        "a\xc3\xa9\x80\xe6\xb0\xb4\xe2\x82 \xf0\x9f\x91\x8b\xf0\x9f\x91!\xff";
    size_t starts[32], n = 0;
    for (size_t at = 0; at < sizeof text - 1;) {
        int32_t      code;
        const size_t bytes = dra_utf8(text + at, sizeof text - 1 - at, &code);
        for (size_t k = 0; k < (code < 0 ? bytes : 1); k++) starts[n++] = at + k;
        at += bytes;
    }
    for (size_t at = sizeof text - 1; at;) {
        int32_t code;
        at = dra_utf8_before(text, at, &code);
        assert_int_equal(at, starts[--n]);
    }
    assert_int_equal(n, 0);
}

static void knows_kinds(void **state)
{
    static const int32_t of[][12] = {
        {'L', 'a', 'Z', 0xe9, 0x6c34, 0x1c5, 0x2b0, 0x5d0, 0x10400},
        {'N', '0', '9', 0xbd, 0x2167, 0x663, 0x3007},
        {'S', ' ', '\t', '\n', 0xb, 0xc, '\r', 0x85, 0xa0, 0x2003, 0x3000, 0x2029},
        {'O', '!', '_', 0x1f, 0x7f, 0x301, 0x200b, 0xfeff, 0x1f44b, 0xe000, 0x10ffff, DRA_BROKEN},
    };
    for (size_t i = 0; i < COUNT(of); i++)
        for (size_t k = 1; k < COUNT(of[i]) && of[i][k]; k++)
            assert_int_equal(dra_kind_of(of[i][k]), of[i][0]);
}

static void spells_every_byte(void **state)
{
    dra_alphabet a;
    char         bytes[256], spelled[2 * 256 + 1], back[2 * 256];
    dra_alphabet_make(&a);
    for (int i = 0; i < 256; i++) bytes[i] = (char)i;
    const size_t n = dra_alphabet_write(&a, bytes, 256, spelled);
    assert_int_equal(n, strlen(spelled));
    assert_int_equal(dra_alphabet_read(&a, spelled, back), 256);
    assert_memory_equal(back, bytes, 256);
    assert_int_equal(a.letter['\n'], 0x10a);
    assert_int_equal(a.letter[' '], 0x120);
    assert_int_equal(a.letter[0x7f], 0x121);
    assert_int_equal(a.letter[0xa0], 0x142);
    assert_int_equal(a.letter[0xad], 0x143);
    assert_int_equal(a.letter[0xff], 0xff);
}

static void refuses_letters_outside_the_alphabet(void **state)
{
    static const char *const texts[] = {" ", "a b", "\n", "\xc2\xad", "\xc5\x84", "\xe6\xb0\xb4"};
    dra_alphabet             a;
    char                     out[8];
    dra_alphabet_make(&a);
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_int_equal(dra_alphabet_read(&a, texts[i], out), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_letter),
        cmocka_unit_test(knows_what_is_broken),
        cmocka_unit_test(takes_the_longest_broken_part),
        cmocka_unit_test(walks_back_as_it_walks_on),
        cmocka_unit_test(knows_kinds),
        cmocka_unit_test(spells_every_byte),
        cmocka_unit_test(refuses_letters_outside_the_alphabet),
    };
    return check_main("letters", NULL, 0, tests, COUNT(tests));
}
