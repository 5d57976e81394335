/* A program and a library that were not made for each other are told apart. */
#include "dra/abi.h"

#include <stdio.h>
#include <string.h>

#include "check.h"

#define BYTES(type) , sizeof(type)
static const size_t sizes[] = {sizeof(dra_real) DRA_ABI_STRUCTS(BYTES)};
enum { N = sizeof sizes / sizeof *sizes };

static void refused(int32_t version, size_t n, const size_t *bytes, const char *text)
{
    dra_error err = {0};
    assert_int_equal(dra_abi_compare(version, n, bytes, &err), DRA_ERR_VALUE);
    if (!strstr(err.text, text)) fail_msg("expected %s, found %s", text, err.text);
    assert_int_equal(dra_abi_compare(version, n, bytes, NULL), DRA_ERR_VALUE);
}

static void versions_agree(void **state)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", DRA_VERSION_MAJOR, DRA_VERSION_MINOR,
             DRA_VERSION_PATCH);
    assert_string_equal(dra_version(), text);
    assert_string_equal(DRA_VERSION_TEXT, text);
    assert_int_equal(DRA_VERSION_NUMBER / 1000000, DRA_VERSION_MAJOR);
    assert_int_equal(DRA_VERSION_NUMBER / 1000 % 1000, DRA_VERSION_MINOR);
    assert_int_equal(DRA_VERSION_NUMBER % 1000, DRA_VERSION_PATCH);
}

static void accepts_its_own_headers(void **state)
{
    dra_error err = {0};
    assert_int_equal(dra_abi_check(&err), DRA_OK);
    assert_int_equal(dra_abi_check(NULL), DRA_OK);
}

/* An earlier patch may know fewer structs. */
static void accepts_fewer_structs(void **state)
{
    assert_int_equal(dra_abi_compare(DRA_VERSION_NUMBER, N - 1, sizes, NULL), DRA_OK);
}

static void names_what_differs(void **state)
{
    static const char *const names[] = {"dra_dtype_info has", "dra_shape has", "dra_guess has"};
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t bytes[N];
        memcpy(bytes, sizes, sizeof bytes);
        bytes[2 + i] += 8;
        refused(DRA_VERSION_NUMBER, N, bytes, names[i]);
    }
    size_t bytes[N];
    memcpy(bytes, sizes, sizeof bytes);
    bytes[0] = 12 - sizeof(dra_real);
    refused(DRA_VERSION_NUMBER, N, bytes, "dra_real has");
}

/* Nothing is written to an error that may be smaller. */
static void another_error_stays_as_it_is(void **state)
{
    size_t bytes[N];
    memcpy(bytes, sizes, sizeof bytes);
    bytes[1]--;
    dra_error err = {.text = "as before"};
    assert_int_equal(dra_abi_compare(DRA_VERSION_NUMBER, N, bytes, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "as before");
}

static void refuses_other_versions(void **state)
{
    refused(DRA_VERSION_NUMBER + 1000, N, sizes, "the library is " DRA_VERSION_TEXT);
    refused(DRA_VERSION_NUMBER - 1000, N, sizes, "the library is " DRA_VERSION_TEXT);
    refused(DRA_VERSION_NUMBER + 1, N, sizes, "the library is " DRA_VERSION_TEXT);
    refused(12034056, N, sizes, "compiled for dra 12.34.56,");
    size_t more[N + 1] = {0};
    memcpy(more, sizes, sizeof sizes);
    refused(DRA_VERSION_NUMBER, N + 1, more, "the library is " DRA_VERSION_TEXT);
    refused(DRA_VERSION_NUMBER, 0, NULL, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_agree),         cmocka_unit_test(accepts_its_own_headers),
        cmocka_unit_test(accepts_fewer_structs),  cmocka_unit_test(names_what_differs),
        cmocka_unit_test(refuses_other_versions), cmocka_unit_test(another_error_stays_as_it_is),
    };
    return check_main("abi", NULL, 0, tests, COUNT(tests));
}
