/* Orders without a table: permutations, that depend on seed and epoch and prefer nothing. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "dra/data.h"

static void check_permutation(uint64_t seed, int64_t epoch, int64_t n)
{
    char *seen = calloc(1, (size_t)n);
    assert_non_null(seen);
    for (int64_t i = 0; i < n; i++) {
        const int64_t x = dra_shuffle(seed, epoch, n, i);
        if (x < 0 || x >= n || seen[x]) fail_msg("n %lld: place %lld", (long long)n, (long long)i);
        seen[x] = 1;
    }
    free(seen);
}

static void is_a_permutation(void **state)
{
    const int64_t large[] = {1000, 1024, 4095, 4096, 4097, 16385, 65536, 100003};
    for (int64_t n = 1; n <= 300; n++)
        for (uint64_t seed = 0; seed < 3; seed++) check_permutation(seed, (int64_t)seed * 7, n);
    for (size_t i = 0; i < COUNT(large); i++) check_permutation(~(uint64_t)i, 1, large[i]);
}

static void depends_on_seed_and_epoch(void **state)
{
    enum { N = 1000 };
    int same_seed = 0, same_epoch = 0, high_seed = 0, fixed = 0;
    for (int64_t i = 0; i < N; i++) {
        const int64_t x = dra_shuffle(5, 2, N, i);
        assert_int_equal(x, dra_shuffle(5, 2, N, i));
        same_seed += x == dra_shuffle(6, 2, N, i);
        same_epoch += x == dra_shuffle(5, 3, N, i);
        high_seed += x == dra_shuffle(5 | (uint64_t)1 << 40, 2, N, i);
        fixed += x == i;
    }
    /* 1 each is expected; 10 happens once in a million */
    assert_in_range(same_seed, 0, 9);
    assert_in_range(same_epoch, 0, 9);
    assert_in_range(high_seed, 0, 9);
    assert_in_range(fixed, 0, 9);
}

/* All 24 orders of four things, 100 times each on average: the standard deviation is 10. */
static void prefers_no_order(void **state)
{
    int count[256] = {0}, orders = 0;
    for (uint64_t seed = 0; seed < 2400; seed++) {
        int order = 0;
        for (int64_t i = 0; i < 4; i++) order = order * 4 + (int)dra_shuffle(seed, 0, 4, i);
        count[order]++;
    }
    for (int i = 0; i < 256; i++) {
        if (count[i]) assert_in_range(count[i], 50, 150);
        orders += count[i] > 0;
    }
    assert_int_equal(orders, 24);
}

/* Neighbours do not stay neighbours, and every place is as likely as any other. */
static void prefers_no_place(void **state)
{
    enum { N = 10, TRIES = 10000 };
    int first[N] = {0}, next = 0;
    for (uint64_t seed = 0; seed < TRIES; seed++) {
        const int64_t x = dra_shuffle(seed, 4, N, 0);
        first[x]++;
        next += dra_shuffle(seed, 4, N, 1) == x + 1;
    }
    for (int i = 0; i < N; i++) assert_in_range(first[i], 850, 1150); /* sd 30 */
    assert_in_range(next, 850, 1150);                                 /* 9 of 90 pairs */
}

static void takes_any_size(void **state)
{
    const int64_t sizes[] = {((int64_t)1 << 40) + 1, (int64_t)1 << 62, INT64_MAX};
    for (size_t s = 0; s < COUNT(sizes); s++) {
        int64_t before = -1;
        for (int64_t i = 0; i < 100; i++) {
            const int64_t x = dra_shuffle(1, INT64_MAX, sizes[s], i ? sizes[s] - i : 0);
            assert_true(x >= 0 && x < sizes[s] && x != before);
            before = x;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_a_permutation), cmocka_unit_test(depends_on_seed_and_epoch),
        cmocka_unit_test(prefers_no_order), cmocka_unit_test(prefers_no_place),
        cmocka_unit_test(takes_any_size),
    };
    return cmocka_run_group_tests_name("shuffle", tests, NULL, NULL);
}
