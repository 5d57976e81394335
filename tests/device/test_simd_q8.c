/* Products whose activations are rounded to blocks of 8 bits, on every level: against sums in
 * double, that a row keeps its bits whatever is computed with it, and what falls back. */
#include "guarded.h"

#include "base/quant.h"
#include "base/shape.h"

static const dra_dtype types[] = {DRA_Q4_0, DRA_Q4_1, DRA_Q5_0, DRA_Q5_1, DRA_Q8_0};

enum { M = 70, N = 70, K = 544, LEAD = N + 7 };

static dra_real      a[M * K], sideways[K * M], c[M * LEAD], whole[M * LEAD];
static unsigned char blocks[N * K / 32 * 34];

static void set_weights(dra_dtype t, uint64_t *seed)
{
    static float w[N * K];
    for (int64_t i = 0; i < N * K; i++)
        w[i] = (float)(2 * check_random(seed) - 1) * (i / 32 % 3 == 2 ? 1e-4f : 1);
    dra_quantise(t, w, N * K, blocks);
}

/* `whole_numbers`: multiples of a power of two, 127 of them the largest, that rounding keeps. */
static void set_activations(bool whole_numbers, uint64_t *seed)
{
    for (int64_t i = 0; i < M * K; i++) {
        const double x = 2 * check_random(seed) - 1, unit = ldexp(1, (int)(i / 32 % 5) - 9);
        a[i] = (dra_real)(!whole_numbers ? x * unit
                          : i % 32 == 7  ? -127 * unit
                                         : rint(127 * x) * unit);
        sideways[i % K * M + i / K] = a[i];
    }
}

static dra_gemm product(dra_dtype t, int64_t rows, int64_t columns, int64_t depth)
{
    for (int64_t i = 0; i < M * LEAD; i++) c[i] = (dra_real)NAN;
    return (dra_gemm){.M = rows,
                      .N = columns,
                      .K = depth,
                      .a = a,
                      .a_row = K,
                      .a_col = 1,
                      .b = blocks,
                      .b_row = 1,
                      .b_col = K,
                      .c = c,
                      .c_row = LEAD,
                      .b_type = t,
                      .q8 = true};
}

/* 32 weights, which dra_dequantise() rounds to f32. */
static void weights_of(dra_dtype t, int64_t first, double *w)
{
    const unsigned char *b = blocks + dra_elements_bytes(t, first);
    const bool           minimum = t == DRA_Q4_1 || t == DRA_Q5_1;
    uint16_t             head[2];
    int                  u[32];
    memcpy(head, b, sizeof head);
    dra_quantised_integers(t, b, u);
    for (int e = 0; e < 32; e++) {
        const double least = minimum ? (double)dra_f16_to_f32(head[1]) : 0;
        w[e] = (double)dra_f16_to_f32(head[0]) * u[e] + least;
        assert_true((float)w[e] == dra_dequantised(t, blocks, first + e));
    }
}

/* Row i times column j in double; how far each activation may be rounded, times weights. */
static double exact(dra_dtype t, int64_t i, int64_t j, int64_t depth, double *size, double *lost)
{
    double sum = 0;
    *size = *lost = 0;
    for (int64_t k = 0; k < depth; k += 32) {
        double w[32], most = 0, weights = 0;
        weights_of(t, j * K + k, w);
        for (int e = 0; e < 32; e++) {
            const double x = (double)a[i * K + k + e];
            sum += x * w[e];
            *size += fabs(x * w[e]);
            most = fmax(most, fabs(x));
            weights += fabs(w[e]);
        }
        *lost += most / 127 * 0.501 * weights;
        *size += most * weights; /* Q*_1: of the minimum */
    }
    return sum;
}

static void expect_products(const dra_simd *simd, dra_dtype t, const dra_gemm *g, bool rounded)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < LEAD; j++) {
            double size, lost;
            if (i >= g->M || j >= g->N) {
                if (!isnan(c[i * LEAD + j])) fail_msg("%s wrote outside of c", simd->name);
                continue;
            }
            const double want = exact(t, i, j, g->K, &size, &lost), found = (double)c[i * LEAD + j];
            if (!(fabs(found - want) <= 8 * tiny * size + (rounded ? lost : 0)))
                fail_msg("%s %s, %d x %d x %d at %d, %d: %g, not %g", simd->name,
                         dra_dtype_get(t)->name, (int)g->M, (int)g->N, (int)g->K, (int)i, (int)j,
                         found, want);
        }
}

static void multiplies(const dra_simd *simd)
{
    static const int64_t sizes[][3] = {{1, 70, 544}, {3, 5, 32},   {70, 64, 128}, {8, 33, 96},
                                       {9, 16, 160}, {65, 17, 64}, {2, 1, 544}};
    uint64_t             seed = 3;
    for (size_t i = 0; i < COUNT(types); i++)
        for (int rounded = 0; rounded < 2; rounded++) {
            set_weights(types[i], &seed);
            set_activations(!rounded, &seed);
            for (size_t k = 0; k < COUNT(sizes); k++) {
                const dra_gemm g = product(types[i], sizes[k][0], sizes[k][1], sizes[k][2]);
                simd->gemm(&g);
                expect_products(simd, types[i], &g, rounded);
            }
        }
}

static void q8_is_its_sums(void **state) { for_each_level(multiplies); }

/* Any part of a product, with any strides of A, has the bits of the whole. */
static void keeps_bits(const dra_simd *simd)
{
    static const int64_t parts[][4] = {/* first row, rows, first column, columns */
                                       {0, 1, 0, 70}, {69, 1, 3, 64}, {5, 2, 69, 1}, {0, 8, 16, 32},
                                       {1, 9, 1, 33}, {3, 64, 5, 48}, {0, 70, 0, 16}};
    uint64_t             seed = 4;
    for (size_t i = 0; i < COUNT(types); i++) {
        set_weights(types[i], &seed);
        set_activations(false, &seed);
        dra_gemm g = product(types[i], M, N, K);
        simd->gemm(&g);
        memcpy(whole, c, sizeof whole);
        for (size_t p = 0; p < 2 * COUNT(parts); p++) {
            const int64_t *at = parts[p / 2];
            g = product(types[i], at[1], at[3], K);
            g.a = p % 2 ? sideways + at[0] : a + at[0] * K;
            if (p % 2) g.a_row = 1, g.a_col = M;
            g.b = blocks + dra_elements_bytes(types[i], at[2] * K);
            simd->gemm(&g);
            for (int64_t r = 0; r < at[1]; r++)
                assert_memory_equal(c + r * LEAD, whole + (at[0] + r) * LEAD + at[2],
                                    (size_t)at[3] * sizeof *c);
        }
    }
}

static void q8_rows_keep_bits(void **state) { for_each_level(keeps_bits); }

/* Chains are added to what is there; what cannot be rounded is multiplied as it is. */
static void special_cases(const dra_simd *simd)
{
    uint64_t seed = 6;
    set_weights(DRA_Q4_1, &seed);
    set_activations(false, &seed);
    dra_gemm g = product(DRA_Q4_1, 3, N, 128);
    simd->gemm(&g);
    memcpy(whole, c, sizeof whole);
    g.accumulate = true;
    simd->gemm(&g);
    for (int64_t j = 0; j < N; j++) assert_true(c[j] == 2 * whole[j]);

    g = product(DRA_Q4_1, 3, N, 80); /* not whole blocks */
    simd->gemm(&g);
    memcpy(whole, c, sizeof whole);
    g.q8 = false;
    simd->gemm(&g);
    assert_memory_equal(c, whole, (size_t)N * sizeof *c);

    a[K + 5] = (dra_real)INFINITY;
    for (int64_t k = 0; k < 32; k++) a[2 * K + k] = 0;
    g = product(DRA_Q4_1, 3, N, 64);
    simd->gemm(&g);
    for (int64_t j = 0; j < N; j++)
        assert_true(isfinite(c[j]) && isnan(c[LEAD + j]) && isfinite(c[2 * LEAD + j]));
}

static void q8_special_cases(void **state) { for_each_level(special_cases); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q8_is_its_sums),
        cmocka_unit_test(q8_rows_keep_bits),
        cmocka_unit_test(q8_special_cases),
    };
    return check_main("simd q8", NULL, 0, tests, COUNT(tests));
}
