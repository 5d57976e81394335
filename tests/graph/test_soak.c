/* Endurance: a program that steps a donated state for a long time (10^6 steps with DRA_TEST_SOAK,
 * fewer otherwise): memory stays as it is, values stay bounded, the same start ends the same. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, C = 16, CACHE = 64 };

/* h' = tanh(W h + x), written into a ring of the last CACHE states, which attention reads. */
static check_program make_step(void)
{
    dra_graph *g = check_graph();
    dra_value  h = dra_state(g, "h", DRA_REAL, DRA_SHAPE(B, C)), lo, hi;
    dra_value  ring = dra_state(g, "ring", DRA_REAL, DRA_SHAPE(B, CACHE, C));
    dra_value  w = dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(C, C));
    dra_value  t = dra_input(g, "t", DRA_I32, DRA_SHAPE(B));
    dra_value  size = dra_integer(g, CACHE);
    dra_value  x = dra_sin(g, dra_reshape(g, dra_cast(g, t, DRA_REAL), DRA_SHAPE(B, 1)));
    dra_value  next = dra_tanh(g, dra_add(g, dra_linear(g, h, w, (dra_value){0}), x));
    dra_value  at = dra_reshape(g, dra_mod(g, t, size), DRA_SHAPE(B, 1));
    dra_value  kept = dra_write_rows(g, ring, dra_reshape(g, next, DRA_SHAPE(B, 1, C)), at);
    dra_value  items = dra_reshape(g, kept, DRA_SHAPE(B, 1, CACHE, C));
    lo = dra_broadcast(g, dra_integer(g, 0), DRA_SHAPE(B, 1));
    hi = dra_reshape(g, dra_minimum(g, dra_add(g, t, dra_integer(g, 1)), size), DRA_SHAPE(B, 1));
    dra_value y = dra_attend(g, dra_reshape(g, next, DRA_SHAPE(B, 1, 1, C)), items, items,
                             &(dra_attend_config){.lo = lo, .hi = hi});
    dra_donate(g, "h'", dra_affine(g, dra_add(g, next, dra_reshape(g, y, DRA_SHAPE(B, C))), 0.5, 0),
               h);
    dra_donate(g, "ring'", kept, ring);
    return check_compile(g, 2);
}

static long resident_kib(void)
{
    char  line[128];
    long  kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0) kib = strtol(line + 6, NULL, 10);
    if (f) fclose(f);
    return kib;
}

/* What a long run may add to resident memory; the thread sanitizer's shadow of it grows. */
#ifdef __SANITIZE_THREAD__
enum { MOST_KIB = 1 << 30 };
#else
enum { MOST_KIB = 1024 };
#endif

static void run_steps(int64_t steps, dra_real *h)
{
    static dra_real ring[B * CACHE * C], w[C * C];
    check_program   p = make_step();
    int32_t         t[B] = {0};
    uint64_t        seed = 11;
    long            before = 0;
    memset(ring, 0, sizeof ring);
    memset(h, 0, B * C * sizeof *h);
    for (int i = 0; i < C * C; i++) w[i] = (dra_real)(check_random(&seed) - 0.5);
    check_bind(&p, "h", h, B * C * sizeof *h);
    check_bind(&p, "ring", ring, sizeof ring);
    check_bind(&p, "w", w, sizeof w);
    check_bind(&p, "t", t, sizeof t);
    for (int64_t s = 0; s < steps; s++) {
        t[0] = (int32_t)s;
        t[1] = (int32_t)(s / 2);
        check_run(&p);
        if (s == steps / 10) before = resident_kib();
    }
    assert_true(resident_kib() - before < MOST_KIB); /* a step that leaks 16 bytes would show */
    for (int i = 0; i < B * C; i++) assert_true(fabs((double)h[i]) <= 1);
    check_free(&p);
}

static void steps_for_long(void **state)
{
    const int64_t   steps = getenv("DRA_TEST_SOAK") ? 1000000 : 2000;
    static dra_real first[B * C], second[B * C];
    run_steps(steps, first);
    run_steps(steps, second);
    assert_memory_equal(first, second, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_for_long)};
    return check_main("soak", NULL, 0, tests, COUNT(tests));
}
