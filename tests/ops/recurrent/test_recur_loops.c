/* Recurrences over time on every level: against the plain ones, guard elements around what may be
 * written, and that a channel does not depend on those around it. The formulas themselves are
 * tested by test_ema.c and test_wkv.c. */
#include "device/guarded.h"
#include "ops/recurrent/ema_loops.h"
#include "ops/recurrent/wkv_loops.h"

enum { T = 7, GAP = 3, WIDEST = 70 }; /* rows are GAP elements further apart than they are long */

static const int32_t marks[T] = {0, 0, DRA_MARK_PAD, 0, DRA_MARK_RESET, 3, 0};

/* What the four of them read and write; w fits both as weights and as decays. */
typedef struct arrays {
    row x, v, dy, r, w, u, m, B, p; /* read, the last three also written */
    row y, dx, dv, dm, dB, dr, dw;
} arrays;

static void fill_all(arrays *a, int64_t n)
{
    uint64_t      seed = 20 + (uint64_t)n;
    const int64_t all = T * (n + GAP) - GAP;
    row          *wide[] = {&a->x, &a->v, &a->dy, &a->y, &a->dx, &a->dv};
    row          *narrow[] = {&a->u, &a->m, &a->p, &a->dm, &a->dB, &a->dr, &a->dw};
    for (size_t i = 0; i < COUNT(wide); i++) fill(wide[i], all, (int)i % OFFSETS, -1, 1, &seed);
    for (size_t i = 0; i < COUNT(narrow); i++) fill(narrow[i], n, (int)i % OFFSETS, -1, 1, &seed);
    fill(&a->r, n, 1, 0, 1, &seed);
    fill(&a->w, n, 2, -1, -0.1, &seed);
    fill(&a->B, n, 3, 1, 2, &seed);
}

/* Channels first..first+n-1. */
typedef void (*user)(const dra_simd *simd, arrays *a, int64_t step, int64_t first, int64_t n);

static void use_ema(const dra_simd *simd, arrays *a, int64_t step, int64_t first, int64_t n)
{
    dra_ema_loops_of(simd)->forward(&(dra_ema_run){.n = n,
                                                   .T = T,
                                                   .x_row = step,
                                                   .y_row = step,
                                                   .mark = marks,
                                                   .x = a->x.at + first,
                                                   .r = a->r.at + first,
                                                   .w = a->w.at + first,
                                                   .m = a->m.at + first,
                                                   .y = a->y.at + first,
                                                   .add = true});
}

static void use_ema_back(const dra_simd *simd, arrays *a, int64_t step, int64_t first, int64_t n)
{
    dra_ema_loops_of(simd)->back(&(dra_ema_back_run){.n = n,
                                                     .T = T,
                                                     .x_row = step,
                                                     .dy_row = step,
                                                     .dx_row = step,
                                                     .mark = marks,
                                                     .x = a->x.at + first,
                                                     .r = a->r.at + first,
                                                     .w = a->w.at + first,
                                                     .m = a->m.at + first,
                                                     .dy = a->dy.at + first,
                                                     .dm = a->dm.at + first,
                                                     .dr = a->dr.at + first,
                                                     .dw = a->dw.at + first,
                                                     .dx = a->dx.at + first});
}

static void use_wkv(const dra_simd *simd, arrays *a, int64_t step, int64_t first, int64_t n)
{
    dra_wkv_loops_of(simd)->forward(
        &(dra_wkv_run){.n = n,
                       .T = T,
                       .k_row = step,
                       .v_row = step,
                       .y_row = step,
                       .mark = marks,
                       .k = a->x.at + first,
                       .v = a->v.at + first,
                       .w = a->w.at + first,
                       .u = a->u.at + first,
                       .state = {a->m.at + first, a->B.at + first, a->p.at + first},
                       .y = a->y.at + first});
}

static void use_wkv_back(const dra_simd *simd, arrays *a, int64_t step, int64_t first, int64_t n)
{
    dra_wkv_loops_of(simd)->back(
        &(dra_wkv_back_run){.n = n,
                            .T = T,
                            .k_row = step,
                            .v_row = step,
                            .dy_row = step,
                            .d_row = step,
                            .mark = marks,
                            .k = a->x.at + first,
                            .v = a->v.at + first,
                            .w = a->w.at + first,
                            .u = a->u.at + first,
                            .state = {a->m.at + first, a->B.at + first, a->p.at + first},
                            .dy = a->dy.at + first,
                            .dk = a->dx.at + first,
                            .dv = a->dv.at + first,
                            .dA = a->dm.at + first,
                            .dB = a->dB.at + first,
                            .dw = a->dw.at + first,
                            .du = a->dr.at + first});
}

/* All elements near each other; those between the rows and around them untouched. */
static void compare(const char *what, const row *found, const row *want, int64_t n)
{
    const bool wide = want->n > n;
    for (int64_t i = 0; i < want->n; i++) {
        const bool   between = wide && i % (n + GAP) >= n;
        const double allowed = between ? 0 : 50 * tiny * fmax(1, fabs((double)want->at[i]));
        near(what, n, (double)found->at[i], (double)want->at[i], allowed);
        if (between) assert_true(found->at[i] == was(found, i));
    }
    check_untouched(found, false);
}

static void compare_all(const arrays *a, const arrays *b, int64_t n)
{
    const row *found[] = {&a->m,  &a->B,  &a->p,  &a->y,  &a->dx,
                          &a->dv, &a->dm, &a->dB, &a->dr, &a->dw};
    const row *want[] = {&b->m,  &b->B,  &b->p,  &b->y,  &b->dx,
                         &b->dv, &b->dm, &b->dB, &b->dr, &b->dw};
    const row *read[] = {&a->x, &a->v, &a->dy, &a->r, &a->w, &a->u};
    for (size_t i = 0; i < COUNT(found); i++) compare("recurrence", found[i], want[i], n);
    for (size_t i = 0; i < COUNT(read); i++) check_untouched(read[i], true);
}

static void walks(const dra_simd *simd)
{
    static const user users[] = {use_ema, use_ema_back, use_wkv, use_wkv_back};
    static arrays     a, b, whole;
    for (size_t k = 0; k < COUNT(users); k++)
        for (int64_t n = 1; n <= WIDEST; n += n < 35 ? 1 : 7) {
            fill_all(&a, n);
            fill_all(&b, n);
            users[k](simd, &a, n + GAP, 0, n);
            users[k](&dra_simd_ref, &b, n + GAP, 0, n);
            compare_all(&a, &b, n);
            whole = a;
            fill_all(&a, n);
            for (int64_t i = 0; i < n; i += 5)
                users[k](simd, &a, n + GAP, i, n - i < 5 ? n - i : 5);
            assert_memory_equal(&a.y.memory, &whole.y.memory, sizeof a.y.memory);
            assert_memory_equal(&a.dx.memory, &whole.dx.memory, sizeof a.dx.memory);
            assert_memory_equal(&a.dv.memory, &whole.dv.memory, sizeof a.dv.memory);
            assert_memory_equal(&a.m.memory, &whole.m.memory, sizeof a.m.memory);
            assert_memory_equal(&a.dm.memory, &whole.dm.memory, sizeof a.dm.memory);
            assert_memory_equal(&a.dr.memory, &whole.dr.memory, sizeof a.dr.memory);
        }
}

static void recurrences(void **state) { for_each_level(walks); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recurrences)};
    return check_main("recur_loops", NULL, 0, tests, COUNT(tests));
}
