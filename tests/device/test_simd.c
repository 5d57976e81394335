/* Every micro-kernel of every level but gemm and the maps against loops in double: odd lengths,
 * unaligned pointers, guard elements around what may be written, the promises about the order of
 * sums, and that a pointwise result depends on its element alone. */
#include "guarded.h"

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
    if (p + q == 0) *first = found; /* bits do not depend on where the rows are */
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
            x.at[(at + 1) % n] = (dra_real)NAN; /* next to an infinity too */
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

/* The same of s x, and for s = 1 the same bits. */
static void takes_scaled_exponentials(const dra_simd *simd)
{
    static row x, y, z;
    uint64_t   seed = 11;
    for (int64_t n = 0; n <= LONGEST; n++) {
        fill(&x, n, 1, -20, 1.25, &seed);
        fill(&y, n, 0, 0, 0, &seed);
        fill(&z, n, 2, 0, 0, &seed);
        const dra_real one = simd->exp_scaled(n, x.at, 1, (dra_real)1.25, y.at);
        assert_true(one == simd->exp_sum(n, x.at, (dra_real)1.25, z.at));
        assert_memory_equal(y.at, z.at, (size_t)n * sizeof *y.at);
        simd->exp_scaled(n, x.at, (dra_real)0.3, (dra_real)0.5, y.at);
        for (int64_t i = 0; i < n; i++) {
            const double want = exp((double)(dra_real)0.3 * (double)x.at[i] - 0.5);
            near("exp of s x", n, (double)y.at[i], want,
                 16 * tiny * want); /* of an argument to 6 */
        }
        check_untouched(&y, false);
    }
}

static void exp_scaled(void **state) { for_each_level(takes_scaled_exponentials); }

static void takes_exponentials(const dra_simd *simd)
{
    for (int64_t n = 0; n <= LONGEST + 1; n++)
        for (int how = 0; how < OFFSETS * OFFSETS; how++) {
            const int64_t length = n <= LONGEST ? n : 1000;
            exp_once(simd, length, how / OFFSETS, how % OFFSETS, false);
            exp_once(simd, length, how / OFFSETS, how % OFFSETS, true);
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

/* ---- rows of results ------------------------------------------------------------------------- */

/* One signature for all of them: y = f(x, z) with three further numbers. */
typedef struct pointwise {
    const char *name;
    void (*run)(const dra_simd *simd, int64_t n, const dra_real *x, const dra_real *z, dra_real *y);
    double (*f)(double x, double z);
    double size; /* of the terms: what a rounding is relative to */
} pointwise;

#define A ((dra_real)1.5)
#define B ((dra_real)-0.375)
#define C ((dra_real)0.1)

static void run_add(const dra_simd *simd, int64_t n, const dra_real *x, const dra_real *z,
                    dra_real *y)
{
    simd->add(n, x, z, y);
}

static void run_sub(const dra_simd *simd, int64_t n, const dra_real *x, const dra_real *z,
                    dra_real *y)
{
    simd->sub(n, x, z, y);
}

static void run_mul(const dra_simd *simd, int64_t n, const dra_real *x, const dra_real *z,
                    dra_real *y)
{
    simd->mul(n, x, z, y);
}

static void run_affine(const dra_simd *simd, int64_t n, const dra_real *x, const dra_real *z,
                       dra_real *y)
{
    simd->affine(n, A, C, x, y);
}

static void run_center(const dra_simd *simd, int64_t n, const dra_real *x, const dra_real *z,
                       dra_real *y)
{
    simd->center(n, x, B, C, A, y);
}

static void run_combine(const dra_simd *simd, int64_t n, const dra_real *x, const dra_real *z,
                        dra_real *y)
{
    simd->combine(n, A, x, B, z, C, y);
}

static double f_add(double x, double z) { return x + z; }
static double f_sub(double x, double z) { return x - z; }
static double f_mul(double x, double z) { return x * z; }
static double f_affine(double x, double z) { return (double)A * x + (double)C; }
static double f_center(double x, double z) { return (x - (double)B - (double)C) * (double)A; }
static double f_combine(double x, double z) { return (double)A * (x - (double)C - (double)B * z); }

static const pointwise pointwises[] = {
    {"add", run_add, f_add, 2},          {"sub", run_sub, f_sub, 2},
    {"mul", run_mul, f_mul, 1},          {"affine", run_affine, f_affine, 2},
    {"center", run_center, f_center, 3}, {"combine", run_combine, f_combine, 3},
};

/* y apart, or the memory of x or z; every element as if it were alone. */
static void pointwise_once(const dra_simd *simd, const pointwise *f, int64_t n, int p, int q,
                           int where)
{
    static row x, z, y;
    uint64_t   seed = 31 + (uint64_t)n;
    fill(&x, n, p, -1, 1, &seed);
    fill(&z, n, q, -1, 1, &seed);
    fill(&y, n, (p + q) % OFFSETS, 5, 6, &seed);
    row *to = where == 0 ? &y : where == 1 ? &x : &z;
    f->run(simd, n, x.at, z.at, to->at);
    for (int64_t i = 0; i < n; i++) {
        const dra_real a = was(&x, i), b = was(&z, i);
        dra_real       alone = 0;
        near(f->name, n, (double)to->at[i], f->f((double)a, (double)b), 2 * tiny * f->size);
        f->run(simd, 1, &a, &b, &alone);
        assert_memory_equal(&alone, &to->at[i], sizeof alone);
    }
    check_untouched(&x, where != 1);
    check_untouched(&z, where != 2);
    check_untouched(&y, where != 0);
}

static void works_on_rows(const dra_simd *simd)
{
    for (size_t i = 0; i < COUNT(pointwises); i++)
        for (int64_t n = 0; n <= LONGEST + 1; n++)
            for (int how = 0; how < 12; how++)
                pointwise_once(simd, &pointwises[i], n <= LONGEST ? n : 1000, how % OFFSETS,
                               how * 3 % OFFSETS, how % 3);
}

static void rows_of_results(void **state) { for_each_level(works_on_rows); }

static void moments_once(const dra_simd *simd, int64_t n, int offset, dra_real first[2])
{
    static row     x;
    uint64_t       seed = 41 + (uint64_t)n;
    double         want = 0, size = 0, squares = 0;
    const dra_real c = (dra_real)0.3;
    fill(&x, n, offset, -1, 1, &seed);
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)(dra_real)(x.at[i] - c); /* rounded there too */
        want += d, size += fabs(d), squares += d * d;
    }
    dra_real found[2];
    found[0] = simd->moments(n, x.at, c, &found[1]);
    near("moments", n, (double)found[0], want, 8 * tiny * size);
    near("squares", n, (double)found[1], squares, 8 * tiny * squares);
    if (offset == 0) memcpy(first, found, sizeof found);
    assert_memory_equal(found, first, sizeof found);
    check_untouched(&x, true);
}

static void takes_moments(const dra_simd *simd)
{
    for (int64_t n = 0; n <= LONGEST + 1; n++) {
        dra_real first[2] = {0};
        for (int p = 0; p < OFFSETS; p++) moments_once(simd, n <= LONGEST ? n : 1000, p, first);
    }
}

static void moments(void **state) { for_each_level(takes_moments); }

#undef A
#undef B
#undef C

/* The value of an element of exp_sum, axpy and scale is that of a row of one. */
static void ignores_places(const dra_simd *simd)
{
    static row x, y;
    uint64_t   seed = 61;
    for (int64_t n = 1; n <= LONGEST; n++) {
        fill(&x, n, (int)(n % OFFSETS), -30, 1, &seed);
        fill(&y, n, (int)(n / 2 % OFFSETS), -1, 1, &seed);
        simd->exp_sum(n, x.at, 1, y.at);
        for (int64_t i = 0; i < n; i++) {
            dra_real alone;
            assert_true(simd->exp_sum(1, &x.at[i], 1, &alone) == alone);
            assert_memory_equal(&alone, &y.at[i], sizeof alone);
        }
        memcpy(y.memory, y.before, sizeof y.memory);
        simd->axpy(n, (dra_real)0.3, x.at, y.at);
        for (int64_t i = 0; i < n; i++) {
            dra_real alone = was(&y, i);
            simd->axpy(1, (dra_real)0.3, &x.at[i], &alone);
            assert_memory_equal(&alone, &y.at[i], sizeof alone);
        }
    }
}

static void elements_keep_their_bits(void **state) { for_each_level(ignores_places); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dot_and_sum),
        cmocka_unit_test(max),
        cmocka_unit_test(exp_sum),
        cmocka_unit_test(exp_sum_far_out),
        cmocka_unit_test(exp_scaled),
        cmocka_unit_test(scale_and_axpy),
        cmocka_unit_test(rows_of_results),
        cmocka_unit_test(moments),
        cmocka_unit_test(elements_keep_their_bits),
    };
    return check_main("simd", NULL, 0, tests, COUNT(tests));
}
