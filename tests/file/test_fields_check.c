/* Structs that programs fill, against the tables that describe them. */
#include <math.h>
#include <stddef.h>

#include "check.h"
#include "file/field_rows.h"

typedef struct part {
    int64_t size;
    double  share;
    bool    loud;
    int     kind, turned;
} part;

static const char *const kinds[] = {"plain", "other", NULL};
static const dra_field   fields[] = {INT(part, size, "1", "a size"),
                                     REAL(part, share, 0.25, 2, "1", "a share"),
                                     BOOL(part, loud, "a flag"),
                                     CHOICE(part, kind, kinds, "a choice"),
                                     SWITCH(part, turned, "true", "a switch"),
                                     {0}};

static void what_is_said_is_found(void **state)
{
    const part rows[] = {
        {.size = 3, .kind = 1}, {.share = 1}, {.loud = true}, {.kind = 1}, {.turned = 2}};
    static const char *const keys[] = {"size", "share", "loud", "kind", "turned"};
    assert_null(dra_fields_said(fields, &(part){0}));
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_string_equal(dra_fields_said(fields, &rows[i]), keys[i]);
}

static void what_cannot_be_is_named(void **state)
{
    static const struct {
        part        is;
        const char *text;
    } rows[] = {
        {{.size = -1, .share = 1}, "it: size is -1, expected 0 to 1048576"},
        {{.size = (1 << 20) + 1, .share = 1}, "it: size is 1048577, expected 0 to 1048576"},
        {{.share = 0.125}, "it: share is 0.125, expected 0.25 to 2"},
        {{.share = NAN}, "it: share is nan, expected 0.25 to 2"},
        {{.share = 1, .kind = 2}, "it: kind is 2, expected 0 to 1"},
        {{.share = 1, .kind = -1}, "it: kind is -1, expected 0 to 1"},
        {{.share = 1, .turned = 3}, "it: turned is 3, expected 0 to 2"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_error err = {0};
        assert_int_equal(dra_fields_check(fields, "it", &rows[i].is, &err), DRA_ERR_VALUE);
        assert_string_equal(err.text, rows[i].text);
    }
    const part most = {1 << 20, 2, true, 1, 2};
    assert_int_equal(dra_fields_check(fields, "it", &most, NULL), DRA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_is_found),
        cmocka_unit_test(what_cannot_be_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
