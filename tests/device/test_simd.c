/* Every micro-kernel of every level against loops in double: odd lengths, unaligned pointers,
 * guard elements around what may be written, and the promises about the order of sums. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

enum { LONGEST = 67, OFFSETS = 4, GUARD = 8, ROOM = GUARD + OFFSETS + 4099 + GUARD };

#ifdef DRA_REAL_DOUBLE
static const double tiny = 4e-16; /* one rounding, relative */
#else
static const double tiny = 2.4e-7;
#endif

typedef void (*level_test)(const dra_simd *simd);

static void for_each_level(level_test test)
{
    for (size_t l = 0; dra_device_level_at(l); l++)
        test(check_device(1, dra_device_level_at(l))->simd);
}

/* ---- rows in guarded memory ------------------------------------------------------------------ */

typedef struct row {
    dra_real  memory[ROOM], before[ROOM];
    dra_real *at;
    int64_t   n;
} row;

static void fill(row *r, int64_t n, int offset, double lo, double hi, uint64_t *seed)
{
    r->n = n;
    r->at = r->memory + GUARD + offset;
    for (int64_t i = 0; i < ROOM; i++) r->memory[i] = 12345;
    for (int64_t i = 0; i < n; i++) r->at[i] = (dra_real)(lo + (hi - lo) * check_random(seed));
    memcpy(r->before, r->memory, sizeof r->memory);
}

/* Nothing changed outside at[0..n), or nowhere at all. */
static void check_untouched(const row *r, bool inside_too)
{
    for (int64_t i = 0; i < ROOM; i++) {
        const bool inside = r->memory + i >= r->at && r->memory + i < r->at + r->n;
        if (inside && !inside_too) continue;
        if (memcmp(&r->memory[i], &r->before[i], sizeof(dra_real)) != 0)
            fail_msg("element %lld of %lld was written", (long long)(r->memory + i - r->at),
                     (long long)r->n);
    }
}

static dra_real was(const row *r, int64_t i) { return r->before[r->at - r->memory + i]; }

static void near(const char *what, int64_t n, double found, double want, double allowed)
{
    if (!(fabs(found - want) <= allowed))
        fail_msg("%s of %lld: %.17g, expected %.17g", what, (long long)n, found, want);
}

/* ---- dot, sum -------------------------------------------------------------------------------- */

static void dot_once(const dra_simd *simd, int64_t n, int p, int q, dra_real *first)
{
    static row a, b;
    uint64_t   seed = 7 + (uint64_t)n;
    double     want = 0, size = 0;
    fill(&a, n, p, -1, 1, &seed);
    fill(&b, n, q, -1, 1, &seed);
    for (int64_t i = 0; i < n; i++) {
        want += (double)a.at[i] * (double)b.at[i];
        size += fabs((double)a.at[i] * (double)b.at[i]);
    }
    const dra_real found = simd->dot(n, a.at, b.at);
    near("dot", n, (double)found, want, 8 * tiny * size);
    if (p + q == 0) *first = found; /* bits do not depend on where the rows lie */
    assert_memory_equal(&found, first, sizeof found);
    check_untouched(&a, true);
    check_untouched(&b, true);
}

static void sum_once(const dra_simd *simd, int64_t n, int offset, dra_real *first)
{
    static row x;
    uint64_t   seed = 8 + (uint64_t)n;
    double     want = 0, size = 0;
    fill(&x, n, offset, -1, 1, &seed);
    for (int64_t i = 0; i < n; i++) want += (double)x.at[i], size += fabs((double)x.at[i]);
    const dra_real found = simd->sum(n, x.at);
    near("sum", n, (double)found, want, 8 * tiny * size);
    if (offset == 0) *first = found;
    assert_memory_equal(&found, first, sizeof found);
    check_untouched(&x, true);
}

static void adds_up(const dra_simd *simd)
{
    for (int64_t n = 0; n <= LONGEST + 2; n++) {
        const int64_t length = n <= LONGEST ? n : n == LONGEST + 1 ? 1000 : 4099;
        dra_real      first_dot = 0, first_sum = 0;
        for (int p = 0; p < OFFSETS; p++) {
            for (int q = 0; q < OFFSETS; q++) dot_once(simd, length, p, q, &first_dot);
            sum_once(simd, length, p, &first_sum);
        }
    }
}

static void dot_and_sum(void **state) { for_each_level(adds_up); }

/* ---- max ------------------------------------------------------------------------------------- */

static void finds_maxima(const dra_simd *simd)
{
    static row x;
    uint64_t   seed = 9;
    assert_true(simd->max(0, x.memory) == -(dra_real)INFINITY);
    for (int64_t n = 1; n <= LONGEST; n++) {
        fill(&x, n, (int)(n % OFFSETS), -3, -1, &seed);
        for (int64_t at = 0; at < n; at++) { /* the largest, then a NaN, at every place */
            const dra_real kept = x.at[at];
            x.at[at] = (dra_real)-0.5;
            assert_true(simd->max(n, x.at) == (dra_real)-0.5);
            x.at[at] = (dra_real)INFINITY;
            assert_true(simd->max(n, x.at) == (dra_real)INFINITY);
            x.at[(at + 1) % n] = (dra_real)NAN; /* beside an infinity too */
            assert_true(isnan(simd->max(n, x.at)));
            memcpy(x.memory, x.before, sizeof x.memory);
            x.at[at] = (dra_real)NAN;
            assert_true(isnan(simd->max(n, x.at)));
            x.at[at] = kept;
        }
        check_untouched(&x, true);
        for (int64_t i = 0; i < n; i++) x.at[i] = -(dra_real)INFINITY;
        assert_true(simd->max(n, x.at) == -(dra_real)INFINITY);
    }
}

static void max(void **state) { for_each_level(finds_maxima); }

/* ---- exp_sum --------------------------------------------------------------------------------- */

static void exp_once(const dra_simd *simd, int64_t n, int p, int q, bool in_place)
{
    static row     x, y;
    uint64_t       seed = 10 + (uint64_t)n;
    double         sum = 0;
    const dra_real m = (dra_real)1.25;
    fill(&x, n, p, -20, 1.25, &seed);
    fill(&y, n, q, 0, 0, &seed);
    row           *to = in_place ? &x : &y;
    const dra_real found = simd->exp_sum(n, x.at, m, to->at);
    for (int64_t i = 0; i < n; i++) {
        const double want = exp((double)(was(&x, i) - m)); /* the difference is rounded first */
        near("exp", n, (double)to->at[i], want, 4 * tiny * want);
        sum += (double)to->at[i];
    }
    near("exp_sum", n, (double)found, sum, 8 * tiny * sum);
    check_untouched(&x, !in_place);
    check_untouched(&y, in_place);
}

static void takes_exponentials(const dra_simd *simd)
{
    for (int64_t n = 0; n <= LONGEST; n++)
        for (int p = 0; p < OFFSETS; p++)
            for (int q = 0; q < OFFSETS; q++) {
                exp_once(simd, n, p, q, false);
                exp_once(simd, n, p, q, true);
            }
}

static void exp_sum(void **state) { for_each_level(takes_exponentials); }

static void exponential_edges(const dra_simd *simd)
{
    for (int64_t n = 1; n <= 2 * 17; n++) {
        dra_real x[2 * 17], y[2 * 17];
        for (int64_t i = 0; i < n; i++) x[i] = i % 3 ? (dra_real)-1e30 : -(dra_real)INFINITY;
        assert_true(simd->exp_sum(n, x, 0, y) == 0); /* masked: exactly nothing */
        for (int64_t i = 0; i < n; i++) assert_true(y[i] == 0);
        for (int64_t i = 0; i < n; i++) x[i] = 3;
        assert_true(simd->exp_sum(n, x, 3, y) == (dra_real)n);
        for (int64_t i = 0; i < n; i++) assert_true(y[i] == 1);
        x[n / 2] = (dra_real)NAN;
        assert_true(isnan(simd->exp_sum(n, x, 3, y)));
        assert_true(isnan(y[n / 2]));
        x[n / 2] = 1000;
        assert_true(isinf(simd->exp_sum(n, x, 0, y)));
        assert_true(isinf(y[n / 2]));
    }
}

static void exp_sum_far_out(void **state) { for_each_level(exponential_edges); }

/* ---- scale, axpy ----------------------------------------------------------------------------- */

static void scale_once(const dra_simd *simd, int64_t n, int p, int q, dra_real s)
{
    static row x, y;
    uint64_t   seed = 11 + (uint64_t)n;
    fill(&x, n, p, -1, 1, &seed);
    fill(&y, n, q, -1, 1, &seed);
    simd->axpy(n, s, x.at, y.at);
    for (int64_t i = 0; i < n; i++) {
        const double want = (double)was(&y, i) + (double)s * (double)x.at[i];
        near("axpy", n, (double)y.at[i], want, 2 * tiny * (1 + fabs((double)s)));
    }
    check_untouched(&x, true);
    check_untouched(&y, false);
    simd->scale(n, s, x.at);
    for (int64_t i = 0; i < n; i++) {
        const dra_real want = was(&x, i) * s; /* one rounding: exact */
        assert_memory_equal(&x.at[i], &want, sizeof want);
    }
    check_untouched(&x, false);
}

static void scales(const dra_simd *simd)
{
    const dra_real s[] = {2, (dra_real)-0.37, 0, 1000};
    for (int64_t n = 0; n <= LONGEST; n++)
        for (int p = 0; p < OFFSETS; p++)
            for (int q = 0; q < OFFSETS; q++) scale_once(simd, n, p, q, s[(p + q) % 4]);
}

static void scale_and_axpy(void **state) { for_each_level(scales); }

/* ---- gemm ------------------------------------------------------------------------------------ */

static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 9, 17, 33, 131};

enum { LARGEST = 260, LEAD = LARGEST + 7 }; /* gaps between rows */

typedef struct matrices {
    dra_real a[LARGEST * LEAD], b[LARGEST * LEAD], c[LARGEST * LEAD + GUARD], start[LARGEST * LEAD];
} matrices;

static matrices *new_matrices(void)
{
    matrices *m = malloc(sizeof *m);
    uint64_t  seed = 21;
    assert_non_null(m);
    for (int64_t i = 0; i < LARGEST * LEAD; i++) {
        m->a[i] = (dra_real)(2 * check_random(&seed) - 1);
        m->b[i] = (dra_real)(2 * check_random(&seed) - 1);
        m->start[i] = (dra_real)(2 * check_random(&seed) - 1);
    }
    return m;
}

/* Bit 0: A stands on its side, bit 1: B does. Pointers are off any alignment. */
static dra_gemm make_gemm(matrices *m, int64_t M, int64_t N, int64_t K, int sides)
{
    dra_gemm g = {M, N, K, m->a + 1, LEAD, 1, m->b + 3, LEAD, 1, m->c + GUARD, LEAD, false};
    if (sides & 1) g.a_row = 1, g.a_col = LEAD;
    if (sides & 2) g.b_row = 1, g.b_col = LEAD;
    return g;
}

static void check_gemm(const dra_simd *simd, matrices *m, const dra_gemm *g)
{
    for (int64_t i = 0; i < LARGEST * LEAD; i++)
        m->c[GUARD + i] = g->accumulate ? m->start[i] : (dra_real)NAN;
    simd->gemm(g);
    for (int64_t i = 0; i < g->M + 1 && i < LARGEST; i++) {
        for (int64_t j = 0; j < g->N + 5; j++) {
            const dra_real found = m->c[GUARD + i * LEAD + j], old = m->start[i * LEAD + j];
            if (i >= g->M || j >= g->N) { /* beside C */
                if (g->accumulate ? found != old : !isnan(found))
                    fail_msg("gemm %lld %lld %lld wrote at %lld, %lld", (long long)g->M,
                             (long long)g->N, (long long)g->K, (long long)i, (long long)j);
                continue;
            }
            double want = g->accumulate ? (double)old : 0, size = fabs(want);
            for (int64_t k = 0; k < g->K; k++) {
                const double term = (double)g->a[i * g->a_row + k * g->a_col] *
                                    (double)g->b[k * g->b_row + j * g->b_col];
                want += term;
                size += fabs(term);
            }
            /* sums in blocks of 128: the error of one grows like its length, at worst */
            near("gemm, K", g->K, (double)found, want, 16 * tiny * size);
        }
    }
}

static void multiplies(const dra_simd *simd)
{
    matrices *m = new_matrices();
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t j = 0; j < COUNT(sizes); j++)
            for (size_t k = 0; k < COUNT(sizes); k++)
                for (int how = 0; how < 8; how++) {
                    dra_gemm g = make_gemm(m, sizes[i], sizes[j], sizes[k], how & 3);
                    g.accumulate = how & 4;
                    check_gemm(simd, m, &g);
                }
    for (int how = 0; how < 4; how++) { /* several blocks of columns and depth */
        dra_gemm g = make_gemm(m, 5, LARGEST, LARGEST - 3, how);
        check_gemm(simd, m, &g);
        g.accumulate = true;
        check_gemm(simd, m, &g);
    }
    free(m);
}

static void gemm(void **state) { for_each_level(multiplies); }

static void repeats(const dra_simd *simd) /* strides of 0: one row, column or number repeated */
{
    matrices *m = new_matrices();
    for (int which = 0; which < 16; which++) {
        dra_gemm g = make_gemm(m, 7, 19, 13, 0);
        if (which & 1) g.a_row = 0;
        if (which & 2) g.a_col = 0;
        if (which & 4) g.b_row = 0;
        if (which & 8) g.b_col = 0;
        check_gemm(simd, m, &g);
    }
    free(m);
}

static void gemm_of_repeated(void **state) { for_each_level(repeats); }

/* Bits of a row of C depend on K alone: not on M, N, strides, or where the row stands. */
static void keeps_rows(const dra_simd *simd)
{
    const int64_t depths[] = {1, 7, 64, 128, 129, 257};
    matrices     *m = new_matrices();
    dra_real     *whole = malloc(9 * LEAD * sizeof *whole);
    assert_non_null(whole);
    for (size_t d = 0; d < COUNT(depths); d++) {
        const int64_t K = depths[d], N = 150;
        dra_gemm      g = make_gemm(m, 9, N, K, 0);
        simd->gemm(&g);
        memcpy(whole, g.c, 9 * LEAD * sizeof *whole);
        for (int64_t M = 1; M <= 9; M++) {
            for (int64_t first = 0; first + M <= 9; first++) {
                dra_gemm part = make_gemm(m, M, N, K, 0);
                part.a += first * LEAD;
                simd->gemm(&part);
                for (int64_t i = 0; i < M; i++)
                    assert_memory_equal(part.c + i * LEAD, whole + (first + i) * LEAD,
                                        (size_t)N * sizeof *whole);
            }
        }
        for (int64_t n = 1; n < N; n += 1 + n / 3) { /* fewer columns, from another one on */
            dra_gemm part = make_gemm(m, 9, n, K, 0);
            part.b += N - n;
            simd->gemm(&part);
            for (int64_t i = 0; i < 9; i++)
                assert_memory_equal(part.c + i * LEAD, whole + i * LEAD + N - n,
                                    (size_t)n * sizeof *whole);
        }
    }
    free(whole);
    free(m);
}

static void rows_of_gemm_keep_their_bits(void **state) { for_each_level(keeps_rows); }

static void ignores_sides(const dra_simd *simd)
{
    matrices *m = new_matrices();
    dra_real *turned = malloc(LARGEST * LEAD * sizeof *turned);
    dra_real *first = malloc(LEAD * 9 * sizeof *first);
    assert_true(turned && first);
    for (int64_t i = 0; i < LARGEST; i++) /* column j of `turned` is row j of b */
        for (int64_t j = 0; j < LARGEST; j++) turned[j * LEAD + i] = m->b[3 + i * LEAD + j];
    dra_gemm g = make_gemm(m, 9, 150, 200, 0);
    simd->gemm(&g);
    memcpy(first, g.c, 9 * LEAD * sizeof *first);
    g.b = turned, g.b_row = 1, g.b_col = LEAD;
    simd->gemm(&g);
    for (int64_t i = 0; i < 9; i++)
        assert_memory_equal(g.c + i * LEAD, first + i * LEAD, 150 * sizeof *first);
    free(turned);
    free(first);
    free(m);
}

static void strides_of_gemm_keep_bits(void **state) { for_each_level(ignores_sides); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dot_and_sum),
        cmocka_unit_test(max),
        cmocka_unit_test(exp_sum),
        cmocka_unit_test(exp_sum_far_out),
        cmocka_unit_test(scale_and_axpy),
        cmocka_unit_test(gemm),
        cmocka_unit_test(gemm_of_repeated),
        cmocka_unit_test(rows_of_gemm_keep_their_bits),
        cmocka_unit_test(strides_of_gemm_keep_bits),
    };
    return check_main("simd", NULL, 0, tests, COUNT(tests));
}
