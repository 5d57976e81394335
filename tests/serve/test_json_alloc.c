/* JSON of requests: what is refused for want of memory is not called wrong, and what is too deep,
 * too large or wrong is called so, with the place. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "failing.h"
#include "serve/json.h"

static const char body[] = "{\"prompt\": \"a text of some length, so that a word has to grow\", "
                           "\"list\": [1, -2.5, true, null, \"\\u00e9\"], \"object\": {\"a\": {}}}";

/* Without any allocation there is no value and no reason; with all there is the right one. */
static void refused_memory_is_told(void **state)
{
    char    why[160];
    json_t *whole = serve_json_read(body, strlen(body), why), *x = NULL;
    long    n = 0;
    assert_non_null(whole);
    for (; !x; n++) {
        allocations_left = n;
        x = serve_json_read(body, strlen(body), why);
        allocations_left = -1;
        if (!x && why[0]) fail_msg("after %ld allocations: %s", n, why);
    }
    assert_in_range(n, 20, 200);
    assert_true(json_equal(x, whole));
    json_decref(x);
    json_decref(whole);
}

static void refuse(const char *text, size_t bytes, const char *expected)
{
    char    why[160];
    json_t *x = serve_json_read(text, bytes, why);
    if (x || !strstr(why, expected)) fail_msg("expected %s, found %s", expected, why);
}

static void accept(const char *text, size_t bytes)
{
    char    why[160];
    json_t *x = serve_json_read(text, bytes, why);
    if (!x) fail_msg("%s", why);
    json_decref(x);
}

static void bounds_hold(void **state)
{
    char text[2 * SERVE_JSON_DEPTH + 2];
    for (int n = SERVE_JSON_DEPTH; n <= SERVE_JSON_DEPTH + 1; n++) {
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        if (n == SERVE_JSON_DEPTH)
            accept(text, 2 * (size_t)n);
        else
            refuse(text, 2 * (size_t)n, "nested too deep at byte 32 of the body");
    }
    const size_t n = 2 * (size_t)SERVE_JSON_VALUES - 1; /* [0,0,...]: half of them, less one */
    char        *list = malloc(n + 2);
    assert_non_null(list);
    for (size_t i = 0; i < n + 2; i++) list[i] = i % 2 ? '0' : ',';
    list[0] = '[', list[n - 1] = ']';
    accept(list, n);
    list[n - 1] = ',', list[n] = '0', list[n + 1] = ']';
    refuse(list, n + 2, "too many values at byte");
    free(list);
    accept("\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[\"", 46); /* a text has no depth */
}

static void names_what_is_wrong(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {{"{\"a\": 1, \"a\": 2}", "duplicate"},
                 {"{\"a\": \"\xff\"}", "at byte 7"},
                 {"[1] 2", "end of file expected"},
                 {"[1e999]", "overflow"},
                 {"[99999999999999999999]", "too big"},
                 {"{\"\\u0000\": 1}", "NUL"},
                 {"[\"\\ud800\"]", "invalid Unicode"},
                 {"", "at byte 0"},
                 {"[01]", "at byte"},
                 {"[\"a\n\"]", "unexpected newline"}};
    for (size_t i = 0; i < COUNT(wrong); i++)
        refuse(wrong[i].text, strlen(wrong[i].text), wrong[i].why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_memory_is_told),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(names_what_is_wrong),
    };
    serve_json_begin();
    return check_main("json", NULL, 0, tests, COUNT(tests));
}
