/* Lists of uploads: small and large ones, odd sizes, none; what is refused. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "device/array.h"

enum { MOST = 9 };
static const size_t sizes[] = {3,    (1 << 19) + 1, 0, 1 << 19, (9 << 20) + 12, (1 << 20), 5,
                               4096, (3 << 20) + 7};

static unsigned char *some_bytes(size_t n, uint64_t seed)
{
    unsigned char *x = malloc(n + 1);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (unsigned char)(256 * check_random(&seed));
    return x;
}

static void expect(dra_span span, const unsigned char *want)
{
    unsigned char *found = malloc(span.bytes + 1);
    assert_non_null(found);
    assert_int_equal(dra_array_download(found, span, NULL), DRA_OK);
    assert_true(memcmp(found, want, span.bytes) == 0);
    free(found);
}

/* Twice: the second list begins where the first one ended. */
static void lists_arrive(void **state)
{
    for (uint64_t round = 0; round < 2; round++) {
        dra_send       list[MOST];
        unsigned char *data[MOST];
        for (size_t i = 0; i < MOST; i++) {
            dra_array *a = NULL;
            data[i] = some_bytes(sizes[i], 10 * round + i);
            assert_int_equal(dra_array_create(check_device(1, "ref"), sizes[i], &a, NULL), DRA_OK);
            list[i] = (dra_send){dra_array_whole(a), data[i]};
        }
        assert_int_equal(dra_arrays_send(list, MOST - (size_t)round, NULL), DRA_OK);
        for (size_t i = 0; i < MOST; i++) {
            if (i < MOST - round) expect(list[i].to, data[i]);
            dra_array_destroy(list[i].to.array);
            free(data[i]);
        }
    }
}

static void loans_arrive(void **state)
{
    dra_loan       list[MOST];
    unsigned char *data[MOST];
    for (size_t i = 0; i < MOST; i++) {
        data[i] = some_bytes(sizes[i], i);
        list[i] = (dra_loan){data[i], sizes[i], NULL};
    }
    assert_int_equal(dra_arrays_borrow(check_device(1, "ref"), list, MOST, NULL), DRA_OK);
    for (size_t i = 0; i < MOST; i++) {
        expect(dra_array_whole(list[i].array), data[i]);
        dra_array_destroy(list[i].array);
        free(data[i]);
    }
}

static void refuses_a_list_as_a_whole(void **state)
{
    dra_real   x[2] = {1, 2};
    dra_error  err = {0};
    dra_loan   loans[] = {{x, sizeof x, NULL}, {NULL, 4, NULL}};
    dra_array *a = NULL;
    assert_int_equal(dra_arrays_borrow(check_device(1, "ref"), loans, 2, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "array: no memory to borrow");
    assert_true(!loans[0].array && !loans[1].array);
    assert_int_equal(dra_array_create(check_device(1, "ref"), sizeof x, &a, NULL), DRA_OK);
    assert_int_equal(dra_array_fill(dra_array_whole(a), 7, NULL), DRA_OK);
    const dra_send sends[] = {{dra_array_whole(a), x}, {{a, sizeof x, sizeof x}, x}};
    assert_int_equal(dra_arrays_send(sends, 2, &err), DRA_ERR_SHAPE);
    expect(dra_array_whole(a), (const unsigned char *)(dra_real[]){7, 7});
    assert_int_equal(dra_arrays_send(NULL, 0, &err), DRA_OK);
    dra_array_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_arrive),
        cmocka_unit_test(loans_arrive),
        cmocka_unit_test(refuses_a_list_as_a_whole),
    };
    return check_main("uploads", NULL, 0, tests, COUNT(tests));
}
