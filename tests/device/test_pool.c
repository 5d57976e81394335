/* The thread pool: every tile exactly once, whoever asks and however often. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "device/pool.h"

static const int     thread_counts[] = {1, 2, 7, 33};
static const int64_t tile_counts[] = {0, 1, 2, 3, 7, 8, 31, 33, 64, 100, 1000, 4097};

enum { MOST = 4097 };

typedef struct tally {
    atomic_int hit[MOST];
    atomic_int outside; /* tiles that do not exist */
    int64_t    tiles;
} tally;

static void count_tile(void *user, int64_t i)
{
    tally *t = user;
    if (i < 0 || i >= t->tiles)
        atomic_fetch_add(&t->outside, 1);
    else
        atomic_fetch_add_explicit(&t->hit[i], 1, memory_order_relaxed);
}

/* Tiles that were not hit exactly `times` times. */
static int64_t wrong_tiles(const tally *t, int times)
{
    int64_t wrong = atomic_load(&t->outside);
    for (int64_t i = 0; i < t->tiles; i++) wrong += atomic_load(&t->hit[i]) != times;
    return wrong;
}

static tally *new_tally(int64_t tiles)
{
    tally *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->tiles = tiles;
    return t;
}

static dra_pool *new_pool(int threads)
{
    dra_pool *p = dra_pool_create(threads);
    assert_non_null(p);
    assert_int_equal(dra_pool_threads(p), threads);
    return p;
}

static void runs_every_tile_once(void **state)
{
    for (size_t k = 0; k < COUNT(thread_counts); k++) {
        dra_pool *p = new_pool(thread_counts[k]);
        for (size_t i = 0; i < COUNT(tile_counts); i++) {
            tally *t = new_tally(tile_counts[i]);
            for (int run = 1; run <= 20; run++) {
                dra_pool_run(p, 0, t->tiles, count_tile, t);
                assert_int_equal(wrong_tiles(t, run), 0); /* all done when it returns */
            }
            free(t);
        }
        dra_pool_destroy(p);
    }
}

/* What tiles write without any lock is there for the caller, and for the tiles of the next job. */
static void add_one(void *user, int64_t i) { ((int64_t *)user)[i]++; }

static void shows_what_tiles_wrote(void **state)
{
    for (size_t k = 0; k < COUNT(thread_counts); k++) {
        dra_pool *p = new_pool(thread_counts[k]);
        int64_t   plain[97] = {0};
        for (int64_t run = 1; run <= 500; run++) {
            dra_pool_run(p, 0, 97, add_one, plain);
            for (int i = 0; i < 97; i++) assert_int_equal(plain[i], run);
        }
        dra_pool_destroy(p);
    }
}

/* ---- several callers ------------------------------------------------------------------------- */

typedef struct caller {
    dra_pool *pool;
    int64_t   tiles;
    int       runs;
    int64_t   wrong;
} caller;

static void *call_often(void *user)
{
    caller *c = user;
    tally  *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->tiles = c->tiles;
    c->wrong = 0;
    for (int run = 1; run <= c->runs; run++) {
        dra_pool_run(c->pool, 0, c->tiles, count_tile, t);
        c->wrong += wrong_tiles(t, run);
    }
    free(t);
    return NULL;
}

static void serves_several_callers_at_once(void **state)
{
    for (size_t k = 0; k < COUNT(thread_counts); k++) {
        enum { CALLERS = 5 };
        dra_pool *p = new_pool(thread_counts[k]);
        pthread_t thread[CALLERS];
        caller    c[CALLERS];
        for (int i = 0; i < CALLERS; i++) {
            c[i] = (caller){p, 3 + 20 * i, 200, -1};
            assert_int_equal(pthread_create(&thread[i], NULL, call_often, &c[i]), 0);
        }
        for (int i = 0; i < CALLERS; i++) pthread_join(thread[i], NULL);
        for (int i = 0; i < CALLERS; i++) assert_int_equal(c[i].wrong, 0);
        dra_pool_destroy(p);
    }
}

/* ---- pools inside tiles ---------------------------------------------------------------------- */

typedef struct nested {
    dra_pool *pool;
    tally    *inner; /* one a tile */
} nested;

static void run_inner(void *user, int64_t i)
{
    nested *n = user;
    dra_pool_run(n->pool, 0, n->inner[i].tiles, count_tile, &n->inner[i]);
}

/* A tile may use a second pool, and even its own: it then computes alone. */
static void runs_inside_a_tile(void **state)
{
    enum { OUTER = 12, INNER = 50 };
    for (int own = 0; own < 2; own++) {
        dra_pool *p = new_pool(3), *q = own ? p : new_pool(4);
        tally    *t = calloc(OUTER, sizeof *t);
        assert_non_null(t);
        for (int i = 0; i < OUTER; i++) t[i].tiles = INNER;
        for (int run = 1; run <= 10; run++) {
            dra_pool_run(p, 0, OUTER, run_inner, &(nested){q, t});
            for (int i = 0; i < OUTER; i++) assert_int_equal(wrong_tiles(&t[i], run), 0);
        }
        free(t);
        dra_pool_destroy(p);
        if (!own) dra_pool_destroy(q);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void comes_and_goes(void **state)
{
    tally *t = new_tally(10);
    int    runs = 0;
    for (int i = 0; i < 200; i++) {
        dra_pool *p = new_pool(1 + i % 5);
        for (int k = 0; k < i % 3; k++) { /* some are never used */
            dra_pool_run(p, 0, 10, count_tile, t);
            runs++;
        }
        dra_pool_destroy(p);
        assert_int_equal(wrong_tiles(t, runs), 0);
    }
    free(t);
    dra_pool_destroy(NULL);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void wakes_after_sleeping(void **state) /* workers sleep after a few thousand spins */
{
    dra_pool *p = new_pool(7);
    tally    *t = new_tally(100);
    for (int run = 1; run <= 15; run++) {
        pause_ms(run % 3 == 0 ? 30 : run % 3);
        dra_pool_run(p, 0, 100, count_tile, t);
        assert_int_equal(wrong_tiles(t, run), 0);
    }
    pause_ms(30);
    dra_pool_destroy(p); /* also while they sleep */
    free(t);
}

/* With one tile per thread that waits for all the others, the job ends only if they all work. */
typedef struct meeting {
    atomic_int arrived;
    int        expected;
} meeting;

static void meet(void *user, int64_t i)
{
    meeting *m = user;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->expected) pause_ms(1);
}

/* Who ran each tile: at most as many as were asked for, and they meet, so it is no fewer. */
typedef struct crowd {
    meeting   meeting;
    pthread_t who[64];
} crowd;

static void note_who(void *user, int64_t i)
{
    crowd *c = user;
    c->who[i] = pthread_self();
    if (i % 2 == 0) meet(&c->meeting, i);
}

static int different(const crowd *c, int tiles)
{
    int n = 0;
    for (int i = 0; i < tiles; i++) {
        int before = 0;
        while (before < i && !pthread_equal(c->who[before], c->who[i])) before++;
        n += before == i;
    }
    return n;
}

static void uses_no_more_than_asked_for(void **state)
{
    dra_pool *p = new_pool(7);
    for (int threads = 1; threads <= 7; threads++) {
        for (int run = 0; run < 20; run++) { /* tile 2 i begins the share of thread i */
            crowd c = {.meeting = {0, threads}};
            dra_pool_run(p, threads, 2 * threads, note_who, &c);
            assert_int_equal(different(&c, 2 * threads), threads);
        }
    }
    dra_pool_destroy(p);
}

static void uses_all_its_threads(void **state)
{
    for (size_t k = 0; k < COUNT(thread_counts); k++) {
        dra_pool *p = new_pool(thread_counts[k]);
        for (int run = 0; run < 2; run++) {
            pause_ms(run ? 20 : 0); /* awake, then asleep */
            dra_pool_run(p, 0, thread_counts[k], meet, &(meeting){0, thread_counts[k]});
        }
        dra_pool_destroy(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_every_tile_once),
        cmocka_unit_test(shows_what_tiles_wrote),
        cmocka_unit_test(serves_several_callers_at_once),
        cmocka_unit_test(runs_inside_a_tile),
        cmocka_unit_test(comes_and_goes),
        cmocka_unit_test(wakes_after_sleeping),
        cmocka_unit_test(uses_all_its_threads),
        cmocka_unit_test(uses_no_more_than_asked_for),
    };
    return check_main("pool", NULL, 0, tests, COUNT(tests));
}
