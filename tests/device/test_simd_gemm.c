/* gemm of every level against loops in double: odd sizes, all strides, guard elements, and that a
 * row of the result keeps its bits whatever is computed beside it. */
#include "guarded.h"

#include <stdlib.h>

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

/* Every M and N from 1 on, A and B upright or on their sides, onto zeros or something: all parts
 * of one product, bit for bit. */
static void keeps_parts(const dra_simd *simd)
{
    enum { MOST_ROWS = 20, MOST_COLUMNS = 70 };
    const int64_t depths[] = {3, 33, 130};
    matrices     *m = new_matrices();
    matrices     *turned = new_matrices();
    dra_real     *whole = malloc(LARGEST * LEAD * sizeof *whole);
    assert_non_null(whole);
    for (int64_t i = 0; i < LARGEST; i++)
        for (int64_t j = 0; j < LARGEST; j++) {
            turned->a[1 + j * LEAD + i] = m->a[1 + i * LEAD + j];
            turned->b[3 + j * LEAD + i] = m->b[3 + i * LEAD + j];
        }
    for (size_t d = 0; d < COUNT(depths); d++) {
        for (int how = 0; how < 8; how++) { /* the first of each kind is the whole */
            const bool add = how / 4 % 2;
            for (int64_t size = 0; size <= MOST_ROWS * MOST_COLUMNS; size++) {
                const int64_t M = size ? 1 + (size - 1) / MOST_COLUMNS : MOST_ROWS;
                const int64_t N = size ? 1 + (size - 1) % MOST_COLUMNS : MOST_COLUMNS;
                if (size == 0 && how % 4) continue;
                dra_gemm g = make_gemm(m, M, N, depths[d], how % 4);
                if (how & 1) g.a = turned->a + 1;
                if (how & 2) g.b = turned->b + 3;
                g.accumulate = add;
                if (add) memcpy(g.c, m->start, (size_t)(M * LEAD) * sizeof *g.c);
                simd->gemm(&g);
                if (size == 0) memcpy(whole, g.c, MOST_ROWS * LEAD * sizeof *whole);
                for (int64_t i = 0; i < M; i++)
                    assert_memory_equal(g.c + i * LEAD, whole + i * LEAD,
                                        (size_t)N * sizeof *whole);
            }
        }
    }
    free(whole);
    free(turned);
    free(m);
}

static void parts_of_gemm_keep_bits(void **state) { for_each_level(keeps_parts); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm),
        cmocka_unit_test(gemm_of_repeated),
        cmocka_unit_test(rows_of_gemm_keep_their_bits),
        cmocka_unit_test(strides_of_gemm_keep_bits),
        cmocka_unit_test(parts_of_gemm_keep_bits),
    };
    return check_main("simd gemm", NULL, 0, tests, COUNT(tests));
}
