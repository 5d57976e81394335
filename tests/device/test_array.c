/* Arrays: what crosses between host and device, and what is refused. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dra_device *device(void) { return check_device(1, "ref"); }

static dra_array *make(size_t bytes)
{
    dra_error  err = {0};
    dra_array *a = NULL;
    if (dra_array_create(device(), bytes, &a, &err) != DRA_OK) fail_msg("%s", err.text);
    return a;
}

static void refused(dra_status found, dra_status code, const dra_error *err, const char *text)
{
    assert_int_equal(found, code);
    assert_string_equal(err->text, text);
}

static void numbers_come_back(void **state)
{
    const dra_real x[4] = {1, 2, 3, 4};
    dra_real       y[4] = {0};
    dra_array     *a = make(sizeof x), *b = make(sizeof x);
    assert_int_equal(dra_array_upload(dra_array_whole(a), x, NULL), DRA_OK);
    assert_int_equal(dra_array_copy(dra_array_whole(b), dra_array_whole(a), NULL), DRA_OK);
    assert_int_equal(dra_array_download(y, dra_array_whole(b), NULL), DRA_OK);
    assert_memory_equal(x, y, sizeof x);
    const dra_span middle = dra_span_part(dra_array_whole(b), sizeof *x, 2 * sizeof *x);
    assert_int_equal(dra_array_fill(middle, 7, NULL), DRA_OK);
    assert_int_equal(dra_array_download(y, dra_array_whole(b), NULL), DRA_OK);
    assert_memory_equal(y, ((dra_real[]){1, 7, 7, 4}), sizeof y);
    dra_array_destroy(a);
    dra_array_destroy(b);
    dra_array_destroy(NULL);
}

/* One up in the same array: as memmove. */
static void copies_may_overlap(void **state)
{
    const dra_real x[5] = {1, 2, 3, 4, 5};
    dra_real       y[5];
    dra_array     *a = make(sizeof x);
    const dra_span all = dra_array_whole(a);
    assert_int_equal(dra_array_upload(all, x, NULL), DRA_OK);
    assert_int_equal(dra_array_copy(dra_span_part(all, sizeof *x, 4 * sizeof *x),
                                    dra_span_part(all, 0, 4 * sizeof *x), NULL),
                     DRA_OK);
    assert_int_equal(dra_array_download(y, all, NULL), DRA_OK);
    assert_memory_equal(y, ((dra_real[]){1, 1, 2, 3, 4}), sizeof y);
    dra_array_destroy(a);
}

static void copies_from_device_to_device(void **state)
{
    const dra_real x = 5;
    dra_real       y = 0;
    dra_device    *other = NULL;
    dra_array     *a = make(sizeof x), *b = NULL;
    assert_int_equal(check_cpu(&(dra_cpu_config){.threads = 1}, &other, NULL), DRA_OK);
    assert_int_equal(dra_array_create(other, sizeof y, &b, NULL), DRA_OK);
    assert_int_equal(dra_array_upload(dra_array_whole(a), &x, NULL), DRA_OK);
    assert_int_equal(dra_array_copy(dra_array_whole(b), dra_array_whole(a), NULL), DRA_OK);
    assert_int_equal(dra_array_download(&y, dra_array_whole(b), NULL), DRA_OK);
    assert_true(y == 5);
    dra_array_destroy(a);
    dra_array_destroy(b);
    dra_device_destroy(other);
}

static void refuses_what_does_not_fit(void **state)
{
    dra_real       x[4] = {0};
    dra_error      err = {0};
    dra_array     *a = make(sizeof x);
    const dra_span all = dra_array_whole(a), far = {a, 8, sizeof x};
    char           text[120];
    snprintf(text, sizeof text, "upload: 'to' wants bytes 8 to %zu of an array of %zu",
             8 + sizeof x, sizeof x);
    refused(dra_array_upload(far, x, &err), DRA_ERR_SHAPE, &err, text);
    assert_null(dra_span_part(all, 8, sizeof x).array);
    assert_null(dra_span_part(all, sizeof x + 1, 0).array);
    refused(dra_array_download(x, (dra_span){0}, &err), DRA_ERR_VALUE, &err,
            "download: 'from' gets no memory");
    snprintf(text, sizeof text, "copy: 4 bytes into %zu", sizeof x);
    refused(dra_array_copy(all, dra_span_part(all, 0, 4), &err), DRA_ERR_SHAPE, &err, text);
    dra_array *b = a;
    assert_int_equal(dra_array_create(device(), SIZE_MAX / 4, &b, &err), DRA_ERR_MEMORY);
    assert_null(b);
    assert_int_equal(dra_array_create(NULL, 4, &b, &err), DRA_ERR_VALUE);
    assert_int_equal(dra_array_borrow(device(), NULL, 4, &b, &err), DRA_ERR_VALUE);
    dra_array_destroy(a);
}

/* y = 2 x; the state s becomes y. */
static check_program program(void)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(2));
    const dra_value y = dra_affine(g, x, 2, 0);
    dra_donate(g, "s1", y, dra_state(g, "s", DRA_REAL, DRA_SHAPE(2)));
    return check_compile(g, 1);
}

static void refuses_wrong_bindings(void **state)
{
    check_program  p = program();
    const dra_real x[2] = {1, 2};
    dra_error      err = {0};
    dra_device    *other = NULL;
    dra_array     *far = NULL, *lent = NULL, *s = make(sizeof x);
    const char    *level = getenv("DRA_CPU") ? getenv("DRA_CPU") : dra_device_level_at(0);
    dra_device    *own = check_device(1, level);
    assert_int_equal(check_cpu(&(dra_cpu_config){.threads = 1}, &other, NULL), DRA_OK);
    assert_int_equal(dra_array_create(other, sizeof x, &far, NULL), DRA_OK);
    assert_int_equal(dra_array_borrow(own, x, sizeof x, &lent, NULL), DRA_OK);
    refused(dra_bind(p.buffers, "x", dra_array_whole(far), &err), DRA_ERR_DEVICE, &err,
            "bind: the array of 'x' is of another device");
    refused(dra_bind(p.buffers, "s", dra_array_whole(lent), &err), DRA_ERR_VALUE, &err,
            "bind: 's' is written to, but its array is borrowed");
    assert_int_equal(dra_bind(p.buffers, "x", dra_array_whole(lent), &err), DRA_OK);
    assert_int_equal(dra_put(p.buffers, "s", x, sizeof x, &err), DRA_OK);
    assert_int_equal(dra_run(p.buffers, &err), DRA_OK);
    dra_array_destroy(lent); /* still bound */
    refused(dra_run(p.buffers, &err), DRA_ERR_BIND, &err, "run: the array of 'x' is gone");
    refused(dra_bind(p.buffers, "x", (dra_span){lent, 0, sizeof x}, &err), DRA_ERR_VALUE, &err,
            "bind: the array of 'x' is gone");
    check_free(&p);
    dra_array_destroy(far);
    dra_array_destroy(s);
    dra_device_destroy(other);
}

/* An array may be destroyed after its device: its memory went with that. */
static void outlives_its_device(void **state)
{
    dra_device *other = NULL;
    dra_array  *a = NULL;
    dra_error   err = {0};
    assert_int_equal(check_cpu(&(dra_cpu_config){.threads = 1}, &other, NULL), DRA_OK);
    assert_int_equal(dra_array_create(other, 8, &a, NULL), DRA_OK);
    dra_device_destroy(other);
    refused(dra_array_fill((dra_span){a, 0, 8}, 0, &err), DRA_ERR_VALUE, &err,
            "fill: the array of 'to' is gone");
    dra_array_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(copies_may_overlap),
        cmocka_unit_test(copies_from_device_to_device),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(refuses_wrong_bindings),
        cmocka_unit_test(outlives_its_device),
    };
    return check_main("array", NULL, 0, tests, COUNT(tests));
}
