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

/* ---- back through a norm --------------------------------------------------------------------- */

typedef struct norm_rows {
    row x, dy, w, dx, dw, db;
} norm_rows;

static const dra_real c = (dra_real)0.3, rest = (dra_real)1e-3, r = (dra_real)1.7;

static dra_norm_row norm_fill(norm_rows *f, int64_t n, int offset, bool in_place)
{
    uint64_t seed = 71 + (uint64_t)n;
    row     *all[] = {&f->x, &f->dy, &f->w, &f->dx, &f->dw, &f->db};
    for (int i = 0; i < 6; i++) fill(all[i], n, (offset + i) % OFFSETS, -1, 1, &seed);
    return (dra_norm_row){.x = f->x.at,
                          .dy = f->dy.at,
                          .w = f->w.at,
                          .dx = in_place ? f->dy.at : f->dx.at,
                          .c = c,
                          .rest = rest,
                          .r = r};
}

static double norm_of(const norm_rows *f, int64_t i)
{
    return ((double)was(&f->x, i) - (double)c - (double)rest) * (double)r;
}

static void sums_once(const dra_simd *simd, int64_t n, int offset, dra_real first[2])
{
    static norm_rows   f;
    const dra_norm_row all = norm_fill(&f, n, offset, false);
    double             sum = 0, with_n = 0;
    dra_real           found[2];
    found[0] = simd->norm_sums(n, &all, f.dw.at, f.db.at, &found[1]);
    for (int64_t i = 0; i < n; i++) {
        const double dy = (double)f.dy.at[i], t = dy * (double)f.w.at[i], norm = norm_of(&f, i);
        near("dw", n, (double)f.dw.at[i], (double)was(&f.dw, i) + dy * norm, 8 * tiny);
        near("db", n, (double)f.db.at[i], (double)was(&f.db, i) + dy, 2 * tiny);
        sum += t;
        with_n += t * norm;
    }
    near("sum t", n, (double)found[0], sum, 2 * tiny * (double)n);
    near("sum t n", n, (double)found[1], with_n, 8 * tiny * (double)n);
    if (offset == 0) memcpy(first, found, sizeof found);
    assert_memory_equal(found, first, sizeof found);
    check_untouched(&f.x, true);
    check_untouched(&f.dy, true);
    check_untouched(&f.w, true);
    check_untouched(&f.dx, true);
    check_untouched(&f.dw, false);
    check_untouched(&f.db, false);
}

static void back_once(const dra_simd *simd, int64_t n, int offset, bool in_place)
{
    static norm_rows   f;
    const dra_norm_row all = norm_fill(&f, n, offset, in_place);
    const dra_real     mean = (dra_real)-0.2, slope = (dra_real)0.6;
    simd->norm_back(n, &all, mean, slope);
    for (int64_t i = 0; i < n; i++) {
        const double t = (double)was(&f.dy, i) * (double)f.w.at[i];
        const double want = (double)r * (t - (double)mean - (double)slope * norm_of(&f, i));
        dra_real     dy = was(&f.dy, i), alone;
        near("dx", n, (double)all.dx[i], want, 8 * tiny);
        const dra_norm_row one = {&f.x.at[i], &dy, &f.w.at[i], &alone, c, rest, r};
        simd->norm_back(1, &one, mean, slope);
        assert_memory_equal(&alone, &all.dx[i], sizeof alone);
    }
    check_untouched(&f.x, true);
    check_untouched(&f.dy, !in_place);
    check_untouched(&f.w, true);
    check_untouched(&f.dx, in_place);
}

static void goes_back(const dra_simd *simd)
{
    for (int64_t n = 0; n <= LONGEST + 1; n++) {
        const int64_t length = n <= LONGEST ? n : 1000;
        dra_real      first[2] = {0};
        for (int offset = 0; offset < OFFSETS; offset++) {
            sums_once(simd, length, offset, first);
            back_once(simd, length, offset, offset % 2 == 1);
        }
    }
}

static void norms_back(void **state) { for_each_level(goes_back); }

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_sum),
        cmocka_unit_test(log_sum_of_outliers),
        cmocka_unit_test(log_sum_without_numbers),
        cmocka_unit_test(norms_back),
        cmocka_unit_test(add_rows),
    };
    return check_main("simd_rows", NULL, 0, tests, COUNT(tests));
}
