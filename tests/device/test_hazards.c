/* Who waits for whom, against all pairs: random nodes that read and write random memory. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device/hazards.h"

enum { NODES = 300, TOUCHES = 4, SPACE = 64 };

typedef struct touch {
    uintptr_t begin, end;
    bool      writes;
} touch;

typedef struct plan {
    touch  touches[NODES][TOUCHES];
    int    n[NODES];
    bool   before[NODES][NODES]; /* [i][k]: i waits for k, perhaps by way of others */
    bool   direct[NODES][NODES];
    size_t edges;
} plan;

static uint32_t seed;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void draw_node(plan *p, int i, uint32_t space)
{
    p->n[i] = 1 + (int)draw(TOUCHES);
    for (int k = 0; k < p->n[i]; k++) {
        const uintptr_t begin = draw(space);
        p->touches[i][k] = (touch){begin, begin + 1 + draw(6), draw(3) == 0};
    }
    if (draw(100) == 0) p->touches[i][0] = (touch){0, UINTPTR_MAX, true};
}

static bool nodes_conflict(const plan *p, int i, int k)
{
    for (int a = 0; a < p->n[i]; a++)
        for (int b = 0; b < p->n[k]; b++) {
            const touch *x = &p->touches[i][a], *y = &p->touches[k][b];
            if (x->begin < y->end && y->begin < x->end && (x->writes || y->writes)) return true;
        }
    return false;
}

static void add_node(dra_hazards *h, plan *p, int i)
{
    const size_t *wait;
    dra_hazards_begin(h);
    for (int k = 0; k < p->n[i]; k++)
        dra_hazards_touch(h, p->touches[i][k].begin, p->touches[i][k].end, p->touches[i][k].writes);
    const size_t n = dra_hazards_waits(h, &wait);
    for (size_t k = 0; k < n; k++) {
        assert_true(wait[k] < (size_t)i && (k == 0 || wait[k - 1] < wait[k]));
        p->direct[i][wait[k]] = p->before[i][wait[k]] = true;
        for (int e = 0; e < i; e++) p->before[i][e] |= p->before[wait[k]][e];
    }
    p->edges += n;
    assert_true(dra_hazards_end(h));
}

/* Who is waited for directly is not waited for by another one that is, and there is a reason. */
static void expect_needed(const plan *p, int i, int k)
{
    for (int e = 0; e < i; e++) assert_false(p->direct[i][e] && p->before[e][k]);
    assert_true(nodes_conflict(p, i, k));
}

static void waits_are_conflicts(void **state)
{
    for (uint32_t number = 1; number < 40; number++) {
        plan        *p = calloc(1, sizeof *p);
        dra_hazards *h = dra_hazards_open();
        seed = number;
        assert_non_null(p);
        assert_non_null(h);
        for (int i = 0; i < NODES; i++) {
            draw_node(p, i, number % 2 ? SPACE : 16 * SPACE);
            add_node(h, p, i);
            for (int k = 0; k < i; k++) {
                if (nodes_conflict(p, i, k)) assert_true(p->before[i][k]);
                if (p->direct[i][k]) expect_needed(p, i, k);
            }
        }
        assert_true(p->edges < 4 * NODES);
        dra_hazards_close(h);
        free(p);
    }
}

/* One that begins and does not end never was there. */
static void a_node_is_dropped(void **state)
{
    dra_hazards  *h = dra_hazards_open();
    const size_t *wait;
    assert_non_null(h);
    dra_hazards_begin(h);
    assert_false(dra_hazards_touch(h, 0, 8, true));
    assert_true(dra_hazards_end(h));
    dra_hazards_begin(h);
    assert_true(dra_hazards_touch(h, 0, 8, true));
    assert_false(dra_hazards_touch(h, 4, 6, true));
    dra_hazards_begin(h);
    assert_false(dra_hazards_touch(h, 8, 9, false));
    assert_false(dra_hazards_touch(h, 3, 3, false));
    assert_int_equal(dra_hazards_waits(h, &wait), 0);
    assert_true(dra_hazards_touch(h, 7, 9, false));
    assert_int_equal(dra_hazards_waits(h, &wait), 1);
    assert_int_equal(wait[0], 0);
    assert_true(dra_hazards_end(h));
    dra_hazards_close(h);
}

/* Further back than it is known who waits for whom: nothing is left out that is needed. */
static void far_back(void **state)
{
    enum { MANY = 10000 };
    dra_hazards  *h = dra_hazards_open();
    const size_t *wait;
    assert_non_null(h);
    for (uintptr_t i = 0; i < MANY; i++) {
        dra_hazards_begin(h);
        dra_hazards_touch(h, i, i + 1, true);
        if (i) dra_hazards_touch(h, i - 1, i, false);
        assert_int_equal(dra_hazards_waits(h, &wait), i > 0);
        assert_true(dra_hazards_end(h));
    }
    dra_hazards_begin(h);
    dra_hazards_touch(h, 0, 1, false);
    dra_hazards_touch(h, MANY - 1, MANY, false);
    dra_hazards_touch(h, MANY - 100, MANY - 99, false);
    assert_int_equal(dra_hazards_waits(h, &wait), 2);
    assert_int_equal(wait[0], 0);
    assert_int_equal(wait[1], MANY - 1);
    dra_hazards_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_are_conflicts),
        cmocka_unit_test(a_node_is_dropped),
        cmocka_unit_test(far_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
