/* The micro-kernels that take a whole row in one or two passes, at every level, against loops in
 * double: odd lengths, unaligned pointers, guard elements, and rows far from the usual. */
#include "guarded.h"

/* ---- log_sum --------------------------------------------------------------------------------- */

/* Within three roundings of a sum of which the largest term is about 1, and of its logarithm. */
static void log_sum_is_right(const dra_simd *simd, int64_t n, const dra_real *x)
{
    dra_real m = (dra_real)NAN;
    double   sum = 0, largest = -INFINITY;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, (double)x[i]);
    const double found = (double)simd->log_sum(n, x, &m);
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)m);
    near("log_sum", n, found, log(sum), 3 * tiny * (1 + log((double)n)));
    assert_true((double)m == largest && found >= 0);
}

static void takes_logs_of_sums(const dra_simd *simd)
{
    static const double shifts[] = {0, 100, -3000, 1e5, -1e7, 1e12};
    static row          x;
    for (int64_t length = 1; length <= LONGEST + 2; length++) {
        const int64_t n = length <= LONGEST ? length : length == LONGEST + 1 ? 2049 : 4099;
        for (size_t s = 0; s < COUNT(shifts); s++) {
            dra_real first[2] = {0}, found[2];
            for (int offset = 0; offset < OFFSETS; offset++) {
                uint64_t seed = 12 + (uint64_t)n;
                fill(&x, n, offset, shifts[s] - 15, shifts[s] + 15, &seed);
                log_sum_is_right(simd, n, x.at);
                check_untouched(&x, true);
                found[0] = simd->log_sum(n, x.at, &found[1]);
                if (offset == 0) memcpy(first, found, sizeof first);
                assert_memory_equal(found, first, sizeof first);
            }
        }
    }
}

static void log_sum(void **state) { for_each_level(takes_logs_of_sums); }

/* One element stands out, up or down, in the first 2048 or later. */
static void finds_the_largest(const dra_simd *simd)
{
    static const double  others[] = {0, -1e30, -INFINITY};
    static const double  outliers[] = {5, 60, 80, 200, 3e6, -30, -200};
    static const int64_t places[] = {0, 17, 2047, 2048, 4098};
    static row           x;
    uint64_t             seed = 13;
    for (size_t o = 0; o < COUNT(others); o++)
        for (size_t k = 0; k < COUNT(outliers); k++)
            for (size_t p = 0; p < COUNT(places); p++) {
                fill(&x, 4099, 1, -1, 1, &seed);
                for (int64_t i = 0; i < 4099 && o > 0; i++) x.at[i] = (dra_real)others[o];
                x.at[places[p]] = (dra_real)outliers[k];
                log_sum_is_right(simd, 4099, x.at);
            }
}

static void log_sum_of_outliers(void **state) { for_each_level(finds_the_largest); }

static void keeps_what_is_no_number(const dra_simd *simd)
{
    static const int64_t lengths[] = {1, 16, 33, 2049, 4099};
    const dra_real       bad[] = {(dra_real)NAN, -(dra_real)NAN, (dra_real)INFINITY};
    static row           x;
    dra_real             m;
    uint64_t             seed = 14;
    for (size_t l = 0; l < COUNT(lengths); l++)
        for (size_t b = 0; b < COUNT(bad); b++)
            for (int64_t at = 0; at < lengths[l]; at += at < 64 || at > 4000 ? 1 : 61) {
                fill(&x, lengths[l], 0, -1, 1, &seed);
                x.at[at] = bad[b];
                assert_true(isnan(simd->log_sum(lengths[l], x.at, &m)));
            }
    for (int64_t i = 0; i < 33; i++) x.at[i] = -(dra_real)INFINITY;
    assert_true(isnan(simd->log_sum(33, x.at, &m)));
}

static void log_sum_without_numbers(void **state) { for_each_level(keeps_what_is_no_number); }

/* ---- add_rows -------------------------------------------------------------------------------- */

/* The bits are those of one row after the other. */
static void adds_rows(const dra_simd *simd)
{
    enum { APART = LONGEST + 3 };
    static row x, y;
    uint64_t   seed = 15;
    for (int64_t n = 0; n <= LONGEST; n++)
        for (int64_t rows = 0; rows <= 19; rows++) {
            dra_real want[LONGEST];
            fill(&x, rows * APART, (int)(n % OFFSETS), -1, 1, &seed);
            fill(&y, n, (int)(rows % OFFSETS), -1, 1, &seed);
            for (int64_t i = 0; i < n; i++) want[i] = y.at[i];
            for (int64_t k = 0; k < rows; k++)
                for (int64_t i = 0; i < n; i++) want[i] += x.at[k * APART + i];
            simd->add_rows(rows, n, x.at, APART, y.at);
            assert_memory_equal(y.at, want, (size_t)n * sizeof *want);
            check_untouched(&x, true);
            check_untouched(&y, false);
        }
}

static void add_rows(void **state) { for_each_level(adds_rows); }

/* ---- softmax of short rows ------------------------------------------------------------------- */

enum { ROWS = 5 };

static void softmax_once(const dra_simd *simd, int64_t n)
{
    static row s, a, lse;
    uint64_t   seed = 9 + (uint64_t)n;
    fill(&s, ROWS * n, 1, -5, 5, &seed);
    fill(&a, ROWS * n, 2, 0, 1, &seed);
    fill(&lse, ROWS, 1, 0, 1, &seed);
    simd->softmax_rows(ROWS, n, s.at, a.at, lse.at);
    for (int64_t r = 0; r < ROWS; r++) {
        const dra_real *x = s.at + r * n;
        double          top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) top = fmax(top, (double)x[i]);
        for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - top);
        near("lse", n, (double)lse.at[r], top + log(sum), 8 * tiny);
        for (int64_t i = 0; i < n; i++)
            near("softmax", n, (double)a.at[r * n + i], exp((double)x[i] - top) / sum, 4 * tiny);
    }
    check_untouched(&s, true);
    check_untouched(&a, false);
    check_untouched(&lse, false);
}

static void takes_softmax(const dra_simd *simd)
{
    dra_real far[3] = {-3000, 0, 3000}, bad[3] = {0, NAN, 1}, a[3], lse;
    for (int64_t n = 1; n <= LONGEST; n++) softmax_once(simd, n);
    simd->softmax_rows(1, 3, far, a, &lse);
    assert_true(a[0] == 0 && a[1] == 0 && a[2] == 1 && lse == 3000);
    simd->softmax_rows(1, 3, bad, bad, &lse);
    assert_true(isnan(bad[0]) && isnan(bad[1]) && isnan(bad[2]) && isnan(lse));
}

static void softmax_rows(void **state) { for_each_level(takes_softmax); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_sum),
        cmocka_unit_test(log_sum_of_outliers),
        cmocka_unit_test(log_sum_without_numbers),
        cmocka_unit_test(softmax_rows),
        cmocka_unit_test(add_rows),
    };
    return check_main("simd_rows", NULL, 0, tests, COUNT(tests));
}
