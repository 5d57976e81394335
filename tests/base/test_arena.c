/* The arena: alignment, zeros, addresses that stay, large and many pieces. */
#include "check.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"

static void aligns_every_piece(void **state)
{
    dra_arena a = {0};
    for (size_t size = 0; size < 300; size++) {
        unsigned char *p = dra_arena_alloc(&a, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        memset(p, 0xff, size);
    }
    dra_arena_free(&a);
}

static void gives_zeros(void **state) /* also where a block ends and the next begins */
{
    dra_arena a = {0};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 2000; i++) {
            const size_t   size = i * 37 % 501;
            unsigned char *p = dra_arena_alloc(&a, size);
            assert_non_null(p);
            for (size_t k = 0; k < size; k++) assert_int_equal(p[k], 0);
            memset(p, 0xa5, size);
        }
        dra_arena_free(&a); /* empty again, and usable */
        assert_null(a.last);
    }
}

/* No piece overlaps another, and none moves: each keeps what was written into it. */
static void keeps_pieces_in_place(void **state)
{
    enum { PIECES = 5000 };
    static unsigned char *piece[PIECES];
    dra_arena             a = {0};
    for (size_t i = 0; i < PIECES; i++) {
        piece[i] = dra_arena_alloc(&a, 1 + i % 97);
        assert_non_null(piece[i]);
        memset(piece[i], (int)(i % 251), 1 + i % 97);
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t k = 0; k < 1 + i % 97; k++) assert_int_equal(piece[i][k], i % 251);
    dra_arena_free(&a);
}

static void takes_large_pieces(void **state)
{
    const size_t sizes[] = {4096, 4097, 100, (size_t)5 << 20, 1, (size_t)1 << 20, 3};
    dra_arena    a = {0};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        unsigned char *p = dra_arena_alloc(&a, sizes[i]);
        assert_non_null(p);
        assert_int_equal(p[0], 0);
        assert_int_equal(p[sizes[i] - 1], 0);
        memset(p, 1, sizes[i]);
    }
    dra_arena_free(&a);
}

static void refuses_what_overflows(void **state)
{
    dra_arena a = {0};
    assert_null(dra_arena_alloc(&a, SIZE_MAX));
    assert_null(dra_arena_alloc(&a, SIZE_MAX - 8));
    assert_null(dra_arena_alloc(&a, SIZE_MAX / 2));
    assert_null(dra_arena_copy(&a, "", SIZE_MAX));
    assert_non_null(dra_arena_alloc(&a, 10)); /* still good */
    dra_arena_free(&a);
}

static void gives_nothing_an_address(void **state)
{
    dra_arena a = {0};
    void     *p = dra_arena_alloc(&a, 0), *q = dra_arena_alloc(&a, 0);
    assert_non_null(p);
    assert_non_null(q);
    assert_ptr_not_equal(p, q);
    assert_non_null(dra_arena_copy(&a, NULL, 0));
    dra_arena_free(&a);
}

static void copies(void **state)
{
    dra_arena a = {0};
    int32_t   from[] = {1, -2, 3};
    int32_t  *to = dra_arena_copy(&a, from, sizeof from);
    char      text[] = "name";
    char     *kept = dra_arena_text(&a, text), *empty = dra_arena_text(&a, "");
    from[0] = 9, text[0] = '?';
    assert_int_equal(to[0], 1);
    assert_int_equal(to[2], 3);
    assert_string_equal(kept, "name");
    assert_string_equal(empty, "");
    dra_arena_free(&a);
}

static void frees_an_empty_one(void **state)
{
    dra_arena a = {0};
    dra_arena_free(&a);
    dra_arena_free(&a);
    assert_null(a.last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligns_every_piece),
        cmocka_unit_test(gives_zeros),
        cmocka_unit_test(keeps_pieces_in_place),
        cmocka_unit_test(takes_large_pieces),
        cmocka_unit_test(refuses_what_overflows),
        cmocka_unit_test(gives_nothing_an_address),
        cmocka_unit_test(copies),
        cmocka_unit_test(frees_an_empty_one),
    };
    return check_main("arena", NULL, 0, tests, COUNT(tests));
}
