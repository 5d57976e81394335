/* Placing in memory: the tree gives the offsets of a plain search by first fit. */
#include "check.h"

#include <stdlib.h>

#include "graph/place.h"

typedef struct life {
    size_t first, last, bytes, offset;
} life;

/* The lowest offset where nothing before it that is alive with it is met. */
static size_t plain(const life *all, size_t n)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n; i++) {
            const life *o = &all[i], *s = &all[n];
            const bool  together = o->first <= s->last && s->first <= o->last;
            if (!together || offset >= o->offset + o->bytes || o->offset >= offset + s->bytes)
                continue;
            offset = o->offset + o->bytes;
            moved = true;
        }
    }
    return offset;
}

static unsigned next(unsigned *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

static void compare(unsigned seed, size_t n, size_t moments, size_t longest, size_t sizes)
{
    dra_placing x;
    life       *all = calloc(n, sizeof *all);
    assert_non_null(all);
    assert_true(dra_placing_open(&x, moments));
    for (size_t i = 0; i < n; i++) {
        life *s = &all[i];
        s->first = next(&seed) % moments;
        s->last = s->first + next(&seed) % longest;
        if (s->last >= moments) s->last = moments - 1;
        s->bytes = 64 * (next(&seed) % sizes);
        assert_true(dra_placing_put(&x, s->first, s->last, s->bytes, &s->offset));
        assert_int_equal(s->offset, s->bytes ? plain(all, i) : 0);
    }
    dra_placing_close(&x);
    free(all);
}

static void equals_a_plain_search(void **state)
{
    for (unsigned seed = 1; seed <= 40; seed++) {
        compare(seed, 120, 1 + seed, 1 + seed % 7, 4);
        compare(seed, 120, 100, 100, 2 + seed);
        compare(seed, 60, 1, 1, 3);
    }
    compare(7, 1500, 1000, 40, 9);
    compare(8, 1500, 1024, 1024, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_a_plain_search)};
    return check_main("place", NULL, 0, tests, COUNT(tests));
}
