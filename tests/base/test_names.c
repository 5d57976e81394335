/* Tables of names. */
#include "check.h"

#include <stdio.h>

#include "base/names.h"

static void finds_what_was_added(void **state)
{
    enum { N = 5000 };
    static char text[N][24];
    dra_names   t = {0};
    assert_int_equal(dra_names_find(&t, "none"), -1);
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "layers.%d.w", i);
        assert_int_equal(dra_names_find(&t, text[i]), -1);
        assert_true(dra_names_add(&t, text[i], 3 * i));
    }
    for (int i = 0; i < N; i++) assert_int_equal(dra_names_find(&t, text[i]), 3 * i);
    assert_int_equal(t.n, N);
    assert_true(dra_names_add(&t, "layers.7.w", 1)); /* the first number stays */
    assert_int_equal(dra_names_find(&t, "layers.7.w"), 21);
    assert_int_equal(t.n, N);
    assert_true(dra_names_add(&t, "", 9));
    assert_int_equal(dra_names_find(&t, ""), 9);
    dra_names_free(&t);
    assert_int_equal(dra_names_find(&t, ""), -1);
    dra_names_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_was_added)};
    return check_main("names", NULL, 0, tests, COUNT(tests));
}
