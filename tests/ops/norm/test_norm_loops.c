/* The loops of a gradient through norm_gain, at every level, against loops in double: odd lengths,
 * unaligned pointers, guard elements. */
#include "device/guarded.h"
#include "ops/norm/norm_loops.h"

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
    found[0] = dra_norm_loops_of(simd)->sums(n, &all, f.dw.at, f.db.at, &found[1]);
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
    dra_norm_loops_of(simd)->back(n, &all, mean, slope);
    for (int64_t i = 0; i < n; i++) {
        const double t = (double)was(&f.dy, i) * (double)f.w.at[i];
        const double want = (double)r * (t - (double)mean - (double)slope * norm_of(&f, i));
        dra_real     dy = was(&f.dy, i), alone;
        near("dx", n, (double)all.dx[i], want, 8 * tiny);
        const dra_norm_row one = {&f.x.at[i], &dy, &f.w.at[i], &alone, c, rest, r};
        dra_norm_loops_of(simd)->back(1, &one, mean, slope);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms_back)};
    return check_main("norm_loops", NULL, 0, tests, COUNT(tests));
}
