/* Distances: the tables of T5 and ALiBi, written out. */
#include "check.h"

#include <math.h>

#include "memory/distance.h"

typedef struct row { /* from this distance on */
    int bucket, from;
} row;

/* Buckets before the first row are exact; each row reaches up to the next one. */
static void expect(const row *rows, size_t n, int last, bool causal, int sign, int offset)
{
    for (int far = 0; far <= 100000; far++) {
        int want = far;
        for (size_t i = 0; i < n; i++)
            if (far >= rows[i].from) want = rows[i].bucket;
        if (far == 0 && sign < 0) continue; /* is not in the future */
        const int got = dra_t5_bucket((int64_t)sign * far, 32, 128, causal);
        if (got != want + offset)
            fail_msg("distance %d: bucket %d, expected %d", sign * far, got, want + offset);
    }
    assert_int_equal(dra_t5_bucket((int64_t)sign * ((int64_t)1 << 60), 32, 128, causal),
                     last + offset);
}

static void causal_buckets(void **state)
{
    static const row rows[] = {{16, 16}, {17, 19}, {18, 21}, {19, 24}, {20, 27}, {21, 31},
                               {22, 35}, {23, 40}, {24, 46}, {25, 52}, {26, 59}, {27, 67},
                               {28, 77}, {29, 87}, {30, 99}, {31, 113}};
    expect(rows, COUNT(rows), 31, true, 1, 0);
    for (int far = 1; far < 200; far++) /* what comes later is as far as nothing */
        assert_int_equal(dra_t5_bucket(-far, 32, 128, true), 0);
}

static void buckets_of_both_sides(void **state)
{
    static const row rows[] = {{8, 8},   {9, 12},  {10, 16}, {11, 23},
                               {12, 32}, {13, 46}, {14, 64}, {15, 91}};
    expect(rows, COUNT(rows), 15, false, 1, 0);
    expect(rows, COUNT(rows), 15, false, -1, 16);
    assert_int_equal(dra_t5_bucket(-1, 32, 128, false), 17);
}

static void few_buckets(void **state)
{
    for (int64_t far = -50; far <= 50; far++) {
        assert_int_equal(dra_t5_bucket(far, 2, 128, false), far < 0 ? 1 : 0);
        for (int buckets = 2; buckets < 12; buckets++)
            for (int causal = 0; causal < 2; causal++) {
                const int at = dra_t5_bucket(far, buckets, buckets, causal);
                assert_true(at >= 0 && at < buckets);
            }
    }
}

static void expect_slopes(int heads, const double *log2_of_slope)
{
    for (int h = 0; h < heads; h++)
        assert_true(fabs(dra_alibi_slope(h, heads) - pow(2, log2_of_slope[h])) < 1e-15);
}

static void slopes(void **state)
{
    expect_slopes(1, (const double[]){-8});
    expect_slopes(2, (const double[]){-4, -8});
    expect_slopes(3, (const double[]){-4, -8, -2});
    expect_slopes(4, (const double[]){-2, -4, -6, -8});
    expect_slopes(6, (const double[]){-2, -4, -6, -8, -1, -3});
    expect_slopes(8, (const double[]){-1, -2, -3, -4, -5, -6, -7, -8});
    expect_slopes(12, (const double[]){-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_buckets),
        cmocka_unit_test(buckets_of_both_sides),
        cmocka_unit_test(few_buckets),
        cmocka_unit_test(slopes),
    };
    return check_main("distance", NULL, 0, tests, COUNT(tests));
}
