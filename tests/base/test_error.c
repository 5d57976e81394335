/* Status names, error texts cut to size, the version. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static void names_every_status(void **state)
{
    const char *const names[] = {"ok",    "shape",    "dtype",  "value",  "name",
                                 "index", "gradient", "device", "memory", "bind",
                                 "file",  "format",   "busy"};
    assert_int_equal(COUNT(names), DRA_ERR_BUSY + 1);
    for (size_t i = 0; i < COUNT(names); i++)
        assert_string_equal(dra_status_name((dra_status)i), names[i]);
    assert_string_equal(dra_status_name((dra_status)(DRA_ERR_BUSY + 1)), "unknown");
    assert_string_equal(dra_status_name((dra_status)-1), "unknown");
    assert_string_equal(dra_status_name((dra_status)1000000), "unknown");
}

static void fills_an_error(void **state)
{
    dra_error err = {0};
    assert_int_equal(dra_fail(&err, DRA_ERR_SHAPE, "x has %d axes, expected %s", 3, "two"),
                     DRA_ERR_SHAPE);
    assert_int_equal(err.code, DRA_ERR_SHAPE);
    assert_string_equal(err.text, "x has 3 axes, expected two");
    assert_int_equal(dra_fail(&err, DRA_ERR_BIND, "%s", ""), DRA_ERR_BIND); /* the last one stays */
    assert_int_equal(err.code, DRA_ERR_BIND);
    assert_string_equal(err.text, "");
}

static void does_without_an_error(void **state)
{
    assert_int_equal(dra_fail(NULL, DRA_ERR_MEMORY, "%d", 7), DRA_ERR_MEMORY);
}

static void cuts_long_texts(void **state)
{
    for (size_t length = DRA_ERROR_TEXT - 3; length < DRA_ERROR_TEXT + 3; length++) {
        struct {
            dra_error     err;
            unsigned char after[16];
        } room;
        char *text = calloc(length + 1, 1);
        assert_non_null(text);
        memset(text, 'a', length);
        memset(&room, '#', sizeof room);
        dra_fail(&room.err, DRA_ERR_NAME, "%s", text);
        const size_t fits = length < DRA_ERROR_TEXT ? length : DRA_ERROR_TEXT - 1;
        assert_int_equal(strlen(room.err.text), fits);
        assert_memory_equal(room.err.text, text, fits);
        for (size_t i = 0; i < sizeof room.after; i++) assert_int_equal(room.after[i], '#');
        free(text);
    }
}

/* What is quoted may be anything, and may be cut inside a letter. */
static void texts_are_utf8(void **state)
{
    dra_error err = {0};
    char      text[DRA_ERROR_TEXT + 2];
    dra_fail(&err, DRA_ERR_NAME, "%s, %.1s", "\xff\xc3\xa9\xed\xa0\x80", "\xc3\xa9");
    assert_string_equal(err.text, "?\xc3\xa9???, ?");
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = i % 2 ? '\xa9' : '\xc3';
    text[sizeof text - 1] = 0;
    dra_fail(&err, DRA_ERR_NAME, "%s", text);
    assert_int_equal(strlen(err.text), DRA_ERROR_TEXT - 1);
    assert_string_equal(err.text + DRA_ERROR_TEXT - 4, "\xc3\xa9?");
}

/* The same through a graph: a name far too long still ends in one terminated line. */
static void cuts_texts_of_graphs(void **state)
{
    static char name[4096];
    dra_graph  *g = check_graph();
    memset(name, 'n', sizeof name - 1);
    dra_input(g, name, DRA_REAL, DRA_SHAPE(1));
    dra_input(g, name, DRA_REAL, DRA_SHAPE(1));
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_NAME);
    assert_true(strlen(dra_graph_error(g)->text) < DRA_ERROR_TEXT);
    assert_memory_equal(dra_graph_error(g)->text, "input: 'nnn", 11);
    dra_graph_destroy(g);
}

static void has_a_version(void **state)
{
    int  part[3] = {-1, -1, -1}, at = 0;
    char rest[64];
    snprintf(rest, sizeof rest, "%s", dra_version());
    for (char *p = rest, *end; at < 3; p = end + 1, at++) {
        part[at] = (int)strtol(p, &end, 10);
        assert_ptr_not_equal(p, end);
        assert_int_equal(*end, at < 2 ? '.' : 0);
    }
    for (int i = 0; i < 3; i++) assert_true(part[i] >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_every_status),    cmocka_unit_test(fills_an_error),
        cmocka_unit_test(does_without_an_error), cmocka_unit_test(cuts_long_texts),
        cmocka_unit_test(texts_are_utf8),        cmocka_unit_test(cuts_texts_of_graphs),
        cmocka_unit_test(has_a_version),
    };
    return check_main("error", NULL, 0, tests, COUNT(tests));
}
