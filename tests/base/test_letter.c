/* What a text starts with, and texts made fit to be shown. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static void knows_letters(void **state)
{
    const struct {
        const char *text;
        dra_letter  kind;
        size_t      used;
    } cases[] = {
        {"", DRA_LETTER_CUT, 0},
        {"a", DRA_LETTER_PLAIN, 1},
        {" ", DRA_LETTER_PLAIN, 1},
        {"\n", DRA_LETTER_CONTROL, 1},
        {"\033[", DRA_LETTER_CONTROL, 1},
        {"\x7f", DRA_LETTER_CONTROL, 1},
        {"\xc2\x80", DRA_LETTER_CONTROL, 2},
        {"\xc2\x9f", DRA_LETTER_CONTROL, 2},
        {"\xc2\xa0", DRA_LETTER_PLAIN, 2},
        {"\xe2\x80\xa7", DRA_LETTER_PLAIN, 3},  /* U+2027 */
        {"\xe2\x80\xa8", DRA_LETTER_LAYOUT, 3}, /* U+2028 */
        {"\xe2\x80\xae", DRA_LETTER_LAYOUT, 3},
        {"\xe2\x80\xaf", DRA_LETTER_PLAIN, 3},
        {"\xe2\x81\xa5", DRA_LETTER_PLAIN, 3},
        {"\xe2\x81\xa6", DRA_LETTER_LAYOUT, 3}, /* U+2066 */
        {"\xe2\x81\xa9", DRA_LETTER_LAYOUT, 3},
        {"\xe2\x81\xaa", DRA_LETTER_PLAIN, 3},
        {"\xf0\x9f\x98\x80", DRA_LETTER_PLAIN, 4},
        {"\xf0\x9f\x98", DRA_LETTER_CUT, 3},
        {"\xe2", DRA_LETTER_CUT, 1},
        {"\x9b", DRA_LETTER_NONE, 1},
        {"\xff", DRA_LETTER_NONE, 1},
        {"\xe2(", DRA_LETTER_NONE, 1},
        {"\xed\xa0\x80", DRA_LETTER_NONE, 1}, /* half a pair */
        {"\xc0\x80", DRA_LETTER_NONE, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t used = 99;
        assert_int_equal(dra_letter_of(cases[i].text, strlen(cases[i].text), &used), cases[i].kind);
        assert_int_equal(used, cases[i].used);
    }
    size_t used;
    assert_int_equal(dra_letter_of("\0", 1, &used), DRA_LETTER_CONTROL);
}

static void makes_texts_one_clean_line(void **state)
{
    char text[64];
    snprintf(text, sizeof text, "%s", "a\033[1m\r\nb\xc2\x9b\xe2\x80\xae\xff\xc3\xa9\x7f\xe2\x82");
    dra_make_shown(text);
    assert_string_equal(text, "a?[1m??b??????\xc3\xa9???");
    dra_error err = {0};
    dra_fail(&err, DRA_ERR_NAME, "no key %s", "x\ny\033]0;t\a");
    assert_string_equal(err.text, "no key x?y?]0;t?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(knows_letters),
                                       cmocka_unit_test(makes_texts_one_clean_line)};
    return check_main("letter", NULL, 0, tests, COUNT(tests));
}
