/* Lines of JSON: what is one, what is in it, what is none. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "report/jsonl.h"

static int read_line(const char *text, cli_member m[CLI_MEMBERS])
{
    static char line[1 << 14];
    snprintf(line, sizeof line, "%s", text);
    return cli_line_read(line, m);
}

static void reads_members(void **state)
{
    cli_member m[CLI_MEMBERS];
    assert_int_equal(read_line(" {\"step\": 12, \"loss\":-2.5e-1 ,\"x\":null,\"t\":\"a\"} \r", m),
                     4);
    assert_string_equal(m[0].key, "step");
    assert_true(m[0].kind == CLI_MEMBER_NUMBER && m[0].number == 12);
    assert_true(m[1].kind == CLI_MEMBER_NUMBER && m[1].number == -0.25);
    assert_true(m[2].kind == CLI_MEMBER_NUMBER && isnan(m[2].number));
    assert_int_equal(m[3].kind, CLI_MEMBER_TEXT);
    assert_string_equal(m[3].text, "a");
    assert_int_equal(read_line("{}", m), 0);
    assert_int_equal(read_line("{\"a\":1e999,\"b\":-1e301,\"c\":-1e299}", m), 3);
    assert_true(isnan(m[0].number) && isnan(m[1].number) && m[2].number == -1e299);
}

static void passes_over_what_is_nested(void **state)
{
    cli_member m[CLI_MEMBERS];
    assert_int_equal(read_line("{\"a\":{\"b\":[1,{},[],\"]}\"]},\"c\":true,\"d\":[ ],\"e\":7}", m),
                     4);
    assert_int_equal(m[0].kind, CLI_MEMBER_OTHER);
    assert_int_equal(m[1].kind, CLI_MEMBER_OTHER);
    assert_true(m[3].kind == CLI_MEMBER_NUMBER && m[3].number == 7);
}

static void undoes_escapes(void **state)
{
    cli_member m[CLI_MEMBERS];
    assert_int_equal(read_line("{\"\\u006bey\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", m), 1);
    assert_string_equal(m[0].key, "key");
    assert_string_equal(m[0].text, "\"\\/\b\f\n\r\t");
    read_line("{\"a\":\"\\u00e9\\u20AC\\ud83d\\ude00 \\ud83d \\udc00 \\u0000\"}", m);
    assert_string_equal(m[0].text, "\u00e9\u20ac\U0001f600 \ufffd \ufffd \ufffd");
}

static void refuses_what_is_no_object(void **state)
{
    static const char *const lines[] = {
        "",
        "1",
        "[]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,}",
        "{\"a\":1}}",
        "{\"a\":1} 2",
        "{a:1}",
        "{\"a\" 1}",
        "{\"a\":1 2}",
        "{\"a\":.5}",
        "{\"a\":1e}",
        "{\"a\":+1}",
        "{\"a\":nan}",
        "{\"a\":inf}",
        "{\"a\":0x10}",
        "{\"a\":1-2}",
        "{\"a\":\"}",
        "{\"a\":\"\\",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":[1}",
        "{\"a\":[1,]}",
        "{\"a\":{]}",
        "{\"a\":tru}",
        "{\"a\":nul",
    };
    cli_member m[CLI_MEMBERS];
    for (size_t i = 0; i < COUNT(lines); i++)
        if (read_line(lines[i], m) >= 0) fail_msg("taken for an object: %s", lines[i]);
}

/* Neither many members nor deep brackets do harm. */
static void keeps_within_bounds(void **state)
{
    static char line[1 << 14];
    cli_member  m[CLI_MEMBERS];
    size_t      n = (size_t)snprintf(line, sizeof line, "{\"k0\":0");
    for (int i = 1; i < 200; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, ",\"k%d\":%d", i, i);
    snprintf(line + n, sizeof line - n, "}");
    assert_int_equal(cli_line_read(line, m), CLI_MEMBERS);
    assert_string_equal(m[CLI_MEMBERS - 1].key, "k63");
    memset(line, '[', sizeof line - 1);
    memcpy(line, "{\"a\":", 5);
    assert_int_equal(cli_line_read(line, m), -1);
}

static int read_list(const char *text, const char **texts, int most)
{
    static char list[256];
    snprintf(list, sizeof list, "%s", text);
    return cli_list_read(list, texts, most);
}

static void reads_lists_of_texts(void **state)
{
    const char *x[2] = {NULL, NULL};
    assert_int_equal(read_list("[ \"a\\n\" , \"\\u00e9]\" ], \"more\": 1}", x, 2), 2);
    assert_string_equal(x[0], "a\n");
    assert_string_equal(x[1], "\xc3\xa9]");
    assert_int_equal(read_list("[]", x, 2), 0);
    assert_int_equal(read_list("[\"a\",\"b\",\"c\"]", x, 2), 3); /* of which two fit */
    assert_string_equal(x[1], "b");
    static const char *const others[] = {
        "", "\"a\"", "{}", "[", "[1]", "[\"a\",]", "[\"a\"", "[\"a\" ", "[\"a\" \"b\"]", "[\"a"};
    for (size_t i = 0; i < COUNT(others); i++)
        if (read_list(others[i], x, 2) >= 0) fail_msg("taken for a list: %s", others[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_members),       cmocka_unit_test(passes_over_what_is_nested),
        cmocka_unit_test(undoes_escapes),      cmocka_unit_test(refuses_what_is_no_object),
        cmocka_unit_test(keeps_within_bounds), cmocka_unit_test(reads_lists_of_texts),
    };
    return check_main("jsonl", NULL, 0, tests, COUNT(tests));
}
