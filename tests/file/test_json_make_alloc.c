/* The maker of JSON, and reading: a failure stays with the maker until the text is asked for, and
 * want of memory is never said to be the text's. */
#include "folder.h"

#include <math.h>
#include <stdlib.h>

#include "failing.h"
#include "file/json.h"
#include "file/json_make.h"

static const char all[] = "{\"name\":\"a text\",\"n\":12,\"list\":[0.5,null,true],"
                          "\"part\":{\"deep\":[[1],{}]},\"none\":null}";

static json_t *make(dra_json *j)
{
    json_t *root = dra_json_object(j), *list = dra_json_array(j), *part = dra_json_object(j);
    json_t *deep = dra_json_array(j), *one = dra_json_array(j);
    dra_json_set(j, root, "name", dra_json_text(j, "a text"));
    dra_json_set(j, root, "n", dra_json_int(j, 12));
    dra_json_append(j, list, dra_json_real(j, 0.5));
    dra_json_append(j, list, dra_json_real(j, NAN));
    dra_json_append(j, list, dra_json_bool(true));
    dra_json_set(j, root, "list", list);
    dra_json_append(j, one, dra_json_int(j, 1));
    dra_json_append(j, deep, one);
    dra_json_append(j, deep, dra_json_object(j));
    dra_json_set(j, part, "deep", deep);
    dra_json_set(j, root, "part", part);
    dra_json_set(j, root, "none", dra_json_real(j, -INFINITY));
    return root;
}

/* The same by copies. */
static json_t *copy(dra_json *j)
{
    json_t *from = make(j), *deep = dra_json_copy(j, from), *root = dra_json_object(j);
    json_t *shared = dra_json_share(j, deep);
    dra_json_set(j, root, "name", dra_json_text_of(j, "a text, longer", 6));
    dra_json_update_missing(j, root, shared);
    dra_json_update(j, root, deep);
    json_decref(from);
    json_decref(deep);
    json_decref(shared);
    return root;
}

static dra_status dump(json_t *(*maker)(dra_json *), char **text, dra_error *err)
{
    dra_json         j = {0};
    json_t          *root = maker(&j);
    size_t           bytes = 0;
    const dra_status st = dra_json_dump(&j, root, JSON_COMPACT, "x.json", text, &bytes, err);
    json_decref(root);
    if (st == DRA_OK) assert_int_equal(bytes, strlen(*text));
    return st;
}

/* With every allocation failing once: an error, or the whole text. */
static void fails_each_allocation(json_t *(*maker)(dra_json *))
{
    long n = 0;
    for (;; n++) {
        dra_error err = {0};
        char     *text;
        allocations_left = n;
        const dra_status st = dump(maker, &text, &err);
        allocations_left = -1;
        if (st == DRA_OK) assert_string_equal(text, all);
        free(text);
        if (st == DRA_OK) break;
        assert_null(text);
        assert_int_equal(st, DRA_ERR_MEMORY);
        assert_non_null(strstr(err.text, "x.json: out of memory"));
    }
    assert_true(n > 20);
}

static void making(void **state) { fails_each_allocation(make); }
static void copying(void **state) { fails_each_allocation(copy); }

/* One allocation fails, all others succeed: it is remembered all the same. */
static void sticking(void **state)
{
    dra_json  j = {0};
    dra_error err = {0};
    json_t   *root = dra_json_object(&j);
    char     *text;
    allocations_left = 0;
    dra_json_set(&j, root, "lost", dra_json_text(&j, "x"));
    allocations_left = -1;
    dra_json_set(&j, root, "kept", dra_json_text(&j, "y"));
    assert_int_equal(json_object_size(root), 1);
    assert_int_equal(dra_json_dump(&j, root, 0, "x.json", &text, NULL, &err), DRA_ERR_MEMORY);
    assert_null(text);
    assert_int_equal(dra_json_check(&j, "x.json", &err), DRA_ERR_MEMORY);
    assert_null(dra_json_whole(&j, root)); /* and gives it back */
}

static void counting(void **state)
{
    dra_json j = {0};
    json_t  *root = make(&j);
    assert_int_equal(j.not_finite, 2);
    assert_int_equal(dra_json_check(&j, "x.json", NULL), DRA_OK);
    assert_ptr_equal(dra_json_whole(&j, root), root);
    json_decref(root);
}

/* A text or key that is not UTF-8 is no want of memory. */
static void refusing(void **state)
{
    for (int key = 0; key < 2; key++) {
        dra_json  j = {0};
        dra_error err = {0};
        json_t   *root = dra_json_object(&j);
        dra_json_set(&j, root, key ? "\xff" : "x", dra_json_text(&j, key ? "x" : "\xff"));
        assert_int_equal(dra_json_check(&j, "x.json", &err), DRA_ERR_FORMAT);
        assert_string_equal(err.text, "x.json: a text for its JSON is not UTF-8");
        json_decref(root);
    }
}

static void showing(void **state)
{
    dra_json j = {0};
    json_t  *list = dra_json_array(&j);
    dra_json_append(&j, list, dra_json_int(&j, 3));
    char *text = dra_json_words(list, JSON_COMPACT);
    assert_string_equal(text, "[3]");
    free(text);
    assert_null(dra_json_words(NULL, 0));
    allocations_left = 0;
    text = dra_json_words(list, JSON_COMPACT);
    allocations_left = -1;
    assert_null(text);
    json_decref(list);
}

/* Texts of all lengths, escapes, numbers: each in a buffer of its own. */
static void parsing(void **state)
{
    static const char text[] =
        "{\"a long name of a member\": \"and a text that is long, too \\u00e9 "
        "\\n\", \"x\": [1.5e3, -2, true, {\"y\": [null]}], \"z\": 12345678}";
    long n = 0;
    for (;; n++) {
        dra_error err = {0};
        json_t   *out;
        allocations_left = n;
        const dra_status st = dra_json_parse("x.json", text, strlen(text),
                                             (dra_json_rules){.depth = 8}, &out, &err);
        allocations_left = -1;
        json_decref(out);
        if (st == DRA_OK) break;
        assert_null(out);
        if (st != DRA_ERR_MEMORY || !strstr(err.text, "x.json: out of memory"))
            fail_msg("allocation %ld: %s", n, err.text);
    }
    assert_true(n > 20);
}

/* Wrong texts are wrong after a failure, too. */
static void parsing_wrong(void **state)
{
    dra_error err = {0};
    json_t   *out;
    assert_int_equal(
        dra_json_parse("x.json", "{\"a\": nan}", 10, (dra_json_rules){.depth = 8}, &out, &err),
        DRA_ERR_FORMAT);
    assert_non_null(strstr(err.text, "x.json: JSON, line 1, column"));
    assert_null(out);
}

static long once_at, asked;

static void *fails_once(size_t n)
{
    if (++asked != once_at) return malloc(n);
    errno = ENOMEM;
    return NULL;
}

static dra_status parse_failing(const char *text, long at, dra_error *err)
{
    json_t *out;
    once_at = at;
    asked = 0;
    json_set_alloc_funcs(fails_once, free);
    const dra_status st = dra_json_parse("x.json", text, strlen(text), (dra_json_rules){.depth = 8},
                                         &out, err);
    json_set_alloc_funcs(__wrap_malloc, free);
    assert_null(out);
    return st;
}

/* And while memory fails, at any allocation alone: as without, or want of memory. */
static void parsing_wrong_failing(void **state)
{
    static const char *const texts[] = {
        "{\"a member with a long name\": \"and a long text\", \"a\": [1, 2.5], \"b\": nan}",
        "{\"a member with a long name\": 1, \"a member with a long name\": 1}",
        "{\"a\": truetruetruetruet}",
        "{\"a\": 1111111111111111.}",
        "{\"a\": 1} {}",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        dra_error expected = {0};
        assert_int_equal(parse_failing(texts[i], 0, &expected), DRA_ERR_FORMAT);
        const long n = asked;
        assert_true(n > 5);
        for (long at = 1; at <= n; at++) {
            dra_error        err = {0};
            const dra_status st = parse_failing(texts[i], at, &err);
            if (st == DRA_ERR_MEMORY ? !strstr(err.text, "x.json: out of memory")
                                     : strcmp(err.text, expected.text) != 0)
                fail_msg("text %zu, allocation %ld: %s", i, at, err.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making),
        cmocka_unit_test(copying),
        cmocka_unit_test(sticking),
        cmocka_unit_test(counting),
        cmocka_unit_test(refusing),
        cmocka_unit_test(showing),
        cmocka_unit_test(parsing),
        cmocka_unit_test(parsing_wrong),
        cmocka_unit_test(parsing_wrong_failing),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    return check_main("JSON that is made", NULL, 0, tests, COUNT(tests));
}
