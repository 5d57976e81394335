/* gemm of every level against loops in double: odd sizes, all strides, all dtypes and precisions,
 * guard elements, and that a row of the result keeps its bits whatever is computed with it. */
#include "guarded.h"

#include <stdlib.h>

#include "quants.h"
#include "base/shape.h"
#include "ops/common.h"
#include "ops/products/matmul.h"

/* ---- levels ---------------------------------------------------------------------------------- */

/* The level on tiles that are emulated; NULL where its vectors are missing. */
static const dra_simd *emulated_tiles(void)
{
#ifdef TILES_EMULATED
    extern const dra_simd dra_simd_tiles_emulated;
    if (__builtin_cpu_supports("avx512bf16") && dra_simd_levels()[0]->level >= DRA_LEVEL_AVX512)
        return &dra_simd_tiles_emulated;
#endif
    return NULL;
}

static void for_each_gemm(level_test test)
{
    for_each_level(test);
    if (emulated_tiles()) test(emulated_tiles());
}

/* ---- gemm ------------------------------------------------------------------------------------ */

static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 9, 17, 33, 131};

enum { LARGEST = 260, LEAD = LARGEST + 7 }; /* gaps between rows */

typedef struct kind { /* of a product */
    dra_dtype a, b;
    bool      bf16;
} kind;

static const kind kinds[] = {
    {DRA_REAL, DRA_REAL},      {DRA_REAL, DRA_REAL, true}, {DRA_REAL, DRA_BF16},
    {DRA_REAL, DRA_F16},       {DRA_BF16, DRA_REAL},       {DRA_REAL, DRA_BF16, true},
    {DRA_F16, DRA_REAL, true}, {DRA_BF16, DRA_F16, true},  {DRA_BF16, DRA_BF16, true},
};

typedef struct matrix { /* the same numbers three times */
    dra_real real[LARGEST * LEAD];
    uint16_t bf16[LARGEST * LEAD], f16[LARGEST * LEAD];
} matrix;

typedef struct matrices {
    matrix   a, b;
    dra_real c[LARGEST * LEAD + GUARD], start[LARGEST * LEAD];
} matrices;

static const void *data_of(const matrix *x, dra_dtype t, int64_t i)
{
    return t == DRA_BF16  ? (const void *)(x->bf16 + i)
           : t == DRA_F16 ? (const void *)(x->f16 + i)
                          : (const void *)(x->real + i);
}

static const void *move(const void *data, dra_dtype t, int64_t i)
{
    return (const char *)data + i * (int64_t)dra_dtype_bytes(t);
}

/* What the product is to see of an element. */
static double seen(const void *data, dra_dtype t, bool bf16, int64_t i)
{
    const uint16_t *half = data;
    const double    x = t == DRA_BF16  ? (double)dra_bf16_to_f32(half[i])
                        : t == DRA_F16 ? (double)dra_f16_to_f32(half[i])
                                       : (double)((const dra_real *)data)[i];
    return bf16 ? (double)dra_bf16_to_f32(dra_f32_to_bf16(dra_round_to_odd(x))) : x;
}

static void set(matrix *x, int64_t i, dra_real value)
{
    x->real[i] = value;
    x->bf16[i] = dra_f32_to_bf16((float)value);
    x->f16[i] = dra_f32_to_f16((float)value);
}

static matrices *new_matrices(void)
{
    matrices *m = malloc(sizeof *m);
    uint64_t  seed = 21;
    assert_non_null(m);
    for (int64_t i = 0; i < LARGEST * LEAD; i++) {
        set(&m->a, i, (dra_real)(2 * check_random(&seed) - 1));
        set(&m->b, i, (dra_real)(2 * check_random(&seed) - 1));
        m->start[i] = (dra_real)(2 * check_random(&seed) - 1);
    }
    return m;
}

/* Bit 0: A stands on its side, bit 1: B does. Pointers are off any alignment. */
static dra_gemm make_gemm(matrices *m, const kind *k, int64_t M, int64_t N, int64_t K, int sides)
{
    dra_gemm g = {.M = M,
                  .N = N,
                  .K = K,
                  .a = data_of(&m->a, k->a, 1),
                  .a_row = LEAD,
                  .a_col = 1,
                  .b = data_of(&m->b, k->b, 3),
                  .b_row = LEAD,
                  .b_col = 1,
                  .c = m->c + GUARD,
                  .c_row = LEAD,
                  .bf16 = k->bf16,
                  .a_type = k->a,
                  .b_type = k->b};
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
            if (i >= g->M || j >= g->N) { /* outside C */
                if (g->accumulate ? found != old : !isnan(found))
                    fail_msg("gemm %lld %lld %lld wrote at %lld, %lld", (long long)g->M,
                             (long long)g->N, (long long)g->K, (long long)i, (long long)j);
                continue;
            }
            double want = g->accumulate ? (double)old : 0, size = fabs(want);
            for (int64_t k = 0; k < g->K; k++) {
                const double term = seen(g->a, g->a_type, g->bf16, i * g->a_row + k * g->a_col) *
                                    seen(g->b, g->b_type, g->bf16, k * g->b_row + j * g->b_col);
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
                    dra_gemm g = make_gemm(m, kinds, sizes[i], sizes[j], sizes[k], how & 3);
                    g.accumulate = how & 4;
                    check_gemm(simd, m, &g);
                }
    free(m);
}

static void multiplies_kinds(const dra_simd *simd)
{
    static const int64_t some[][3] = {{1, 1, 1},
                                      {2, 3, 1},
                                      {1, 33, 64},
                                      {1, 40, 35},
                                      {2, 64, 31},
                                      {3, 32, 131},
                                      {4, 67, 257},
                                      {5, 17, 3},
                                      {9, 33, 66},
                                      {20, 50, 7},
                                      {5, LARGEST, LARGEST - 3}};
    matrices            *m = new_matrices();
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t i = 0; i < COUNT(some); i++)
            for (int how = 0; how < 8; how++) {
                const int64_t *size = some[i];
                dra_gemm       g = make_gemm(m, &kinds[k], size[0], size[1], size[2], how & 3);
                g.accumulate = how & 4;
                check_gemm(simd, m, &g);
            }
    free(m);
}

static void gemm_of_kinds(void **state) { for_each_gemm(multiplies_kinds); }

static void gemm(void **state) { for_each_level(multiplies); }

static void repeats(const dra_simd *simd) /* strides of 0: one row, column or number repeated */
{
    matrices *m = new_matrices();
    for (int which = 0; which < 16 * (int)COUNT(kinds); which++) {
        dra_gemm g = make_gemm(m, &kinds[which / 16], 7, 19, 13, 0);
        if (which & 1) g.a_row = 0;
        if (which & 2) g.a_col = 0;
        if (which & 4) g.b_row = 0;
        if (which & 8) g.b_col = 0;
        check_gemm(simd, m, &g);
    }
    free(m);
}

static void gemm_of_repeated(void **state) { for_each_gemm(repeats); }

/* Bits of a row of C depend on K alone: not on M, N, strides, or where the row stands. */
static void keeps_rows_of(const dra_simd *simd, const kind *of)
{
    const int64_t depths[] = {1, 7, 64, 128, 129, 257};
    matrices     *m = new_matrices();
    dra_real     *whole = malloc(9 * LEAD * sizeof *whole);
    assert_non_null(whole);
    for (size_t d = 0; d < COUNT(depths); d++) {
        const int64_t K = depths[d], N = 150;
        dra_gemm      g = make_gemm(m, of, 9, N, K, 0);
        simd->gemm(&g);
        memcpy(whole, g.c, 9 * LEAD * sizeof *whole);
        for (int64_t M = 1; M <= 9; M++) {
            for (int64_t first = 0; first + M <= 9; first++) {
                dra_gemm part = make_gemm(m, of, M, N, K, 0);
                part.a = move(part.a, of->a, first * LEAD);
                simd->gemm(&part);
                for (int64_t i = 0; i < M; i++)
                    assert_memory_equal(part.c + i * LEAD, whole + (first + i) * LEAD,
                                        (size_t)N * sizeof *whole);
            }
        }
        for (int64_t n = 1; n < N; n += 1 + n / 3) { /* fewer columns, from another one on */
            dra_gemm part = make_gemm(m, of, 9, n, K, 0);
            part.b = move(part.b, of->b, N - n);
            simd->gemm(&part);
            for (int64_t i = 0; i < 9; i++)
                assert_memory_equal(part.c + i * LEAD, whole + i * LEAD + N - n,
                                    (size_t)n * sizeof *whole);
        }
    }
    free(whole);
    free(m);
}

static void keeps_rows(const dra_simd *simd)
{
    for (size_t i = 0; i < COUNT(kinds); i++) keeps_rows_of(simd, &kinds[i]);
}

static void rows_of_gemm_keep_their_bits(void **state) { for_each_gemm(keeps_rows); }

/* Every M and N from 1 on, A and B upright or on their sides, onto zeros or something: all parts
 * of one product, bit for bit. */
static void keeps_parts_of(const dra_simd *simd, const kind *of, matrices *m, matrices *transposed,
                           int64_t K)
{
    enum { MOST_ROWS = 20, MOST_COLUMNS = 70 };
    static dra_real whole[MOST_ROWS * LEAD];
    for (int how = 0; how < 8; how++) { /* the first of each kind is the whole */
        const bool add = how / 4 % 2;
        for (int64_t size = 0; size <= MOST_ROWS * MOST_COLUMNS; size++) {
            const int64_t M = size ? 1 + (size - 1) / MOST_COLUMNS : MOST_ROWS;
            const int64_t N = size ? 1 + (size - 1) % MOST_COLUMNS : MOST_COLUMNS;
            if (size == 0 && how % 4) continue;
            if (of != kinds && size % 11) continue; /* the others take long enough */
            dra_gemm g = make_gemm(m, of, M, N, K, how % 4);
            if (how & 1) g.a = data_of(&transposed->a, of->a, 1);
            if (how & 2) g.b = data_of(&transposed->b, of->b, 3);
            g.accumulate = add;
            if (add) memcpy(g.c, m->start, (size_t)(M * LEAD) * sizeof *g.c);
            simd->gemm(&g);
            if (size == 0) memcpy(whole, g.c, sizeof whole);
            for (int64_t i = 0; i < M; i++)
                assert_memory_equal(g.c + i * LEAD, whole + i * LEAD, (size_t)N * sizeof *whole);
        }
    }
}

static void keeps_parts(const dra_simd *simd)
{
    const int64_t depths[] = {3, 259, 130, 33};
    matrices     *m = new_matrices(), *transposed = new_matrices();
    for (int64_t i = 0; i < LARGEST; i++)
        for (int64_t j = 0; j < LARGEST; j++) {
            set(&transposed->a, 1 + j * LEAD + i, m->a.real[1 + i * LEAD + j]);
            set(&transposed->b, 3 + j * LEAD + i, m->b.real[3 + i * LEAD + j]);
        }
    for (size_t d = 0; d < COUNT(depths); d++)
        for (size_t k = 0; k < COUNT(kinds); k++)
            if (k == 0 || d % 2) keeps_parts_of(simd, &kinds[k], m, transposed, depths[d]);
    free(transposed);
    free(m);
}

/* Few rows of a large matrix whose rows follow each other without a gap: the same as among more. */
static void streams_of(const dra_simd *simd, const kind *of, matrices *m, int64_t N, int64_t K)
{
    enum { MOST_ROWS = 9, MOST_COLUMNS = 530 };
    static dra_real whole[MOST_ROWS * MOST_COLUMNS];
    for (int add = 0; add < 2; add++)
        for (int64_t M = MOST_ROWS; M > 0; M--) {
            dra_gemm g = make_gemm(m, of, M, N, K, 0);
            g.b_row = g.c_row = N;
            g.accumulate = add;
            if (add) memcpy(g.c, m->start, (size_t)(M * N) * sizeof *g.c);
            g.c[M * N] = 5; /* nothing is written after it */
            simd->gemm(&g);
            if (M == MOST_ROWS) memcpy(whole, g.c, sizeof whole);
            assert_memory_equal(g.c, whole, (size_t)(M * N) * sizeof *whole);
            assert_true(g.c[M * N] == 5);
        }
}

static void streams(const dra_simd *simd)
{
    static const int64_t sizes_of[][2] = {{128, 260}, {130, 257}, {257, 259}, {530, 129}};
    matrices            *m = new_matrices();
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t i = 0; i < COUNT(sizes_of); i++)
            streams_of(simd, &kinds[k], m, sizes_of[i][0], sizes_of[i][1]);
    free(m);
}

static void rows_of_a_large_matrix_keep_bits(void **state) { for_each_gemm(streams); }

static void parts_of_gemm_keep_bits(void **state) { for_each_gemm(keeps_parts); }

/* ---- packed ahead ---------------------------------------------------------------------------- */

typedef struct packing { /* of all of A, or of B */
    float  *memory;
    int64_t step;
} packing;

static packing pack(const dra_simd *simd, const dra_gemm *g, bool b)
{
    const int64_t lines = dra_div_up(b ? g->N : g->M, DRA_PACKED_LINES) * DRA_PACKED_LINES;
    const int64_t step = lines * simd->pack_depth / 2;
    const size_t  floats = (size_t)(dra_div_up(g->K, simd->pack_depth) * step);
    float        *memory = aligned_alloc(64, floats * sizeof *memory);
    assert_non_null(memory);
    memset(memory, 0xff, floats * sizeof *memory); /* NaN where nothing is packed */
    (b ? simd->pack_columns : simd->pack_rows)(g, memory, step);
    return (packing){memory, step};
}

/* Rows from `first` and columns from `column` on, of operands packed ahead: as without. */
static void packed_parts_of(const dra_simd *simd, matrices *m, const dra_gemm *whole,
                            const dra_real *expected, int64_t first, int64_t column)
{
    const packing a = pack(simd, whole, false), b = pack(simd, whole, true);
    const int64_t line = simd->pack_depth / 2;
    for (int which = 1; which < 4; which++) { /* A, B or both */
        dra_gemm g = *whole;
        g.M -= first, g.N -= column;
        g.a = move(g.a, g.a_type, first * g.a_row);
        g.b = move(g.b, g.b_type, column * g.b_col);
        g.c += first * g.c_row + column;
        if (which & 1) g.a_packed = (dra_packed){a.memory + first * line, a.step};
        if (which & 2) g.b_packed = (dra_packed){b.memory + column * line, b.step};
        memcpy(m->c + GUARD, m->start, sizeof m->start);
        simd->gemm(&g);
        for (int64_t i = 0; i < g.M; i++)
            assert_memory_equal(g.c + i * LEAD, expected + (first + i) * LEAD + column,
                                (size_t)g.N * sizeof *expected);
    }
    free(a.memory);
    free(b.memory);
}

static void multiplies_packed(const dra_simd *simd)
{
    static const int64_t some[][3] = {{33, 65, 97}, {260, 259, 200}, {64, 96, 192}, {40, 1, 5}};
    static dra_real      expected[LARGEST * LEAD];
    matrices            *m = new_matrices();
    for (size_t k = 0; k < COUNT(kinds) && simd->pack_depth; k++)
        for (int how = 0; how < 8 * (int)COUNT(some) && kinds[k].bf16; how++) {
            const int64_t *n = some[how / 8];
            dra_gemm       g = make_gemm(m, &kinds[k], n[0], n[1], n[2], how & 3);
            g.accumulate = how & 4;
            memcpy(m->c + GUARD, m->start, sizeof m->start);
            simd->gemm(&g);
            memcpy(expected, m->c + GUARD, sizeof expected);
            packed_parts_of(simd, m, &g, expected, 0, 0);
            if (n[0] > 32 && n[1] > 64) packed_parts_of(simd, m, &g, expected, 32, 64);
        }
    free(m);
}

static void packed_operands_keep_bits(void **state) { for_each_gemm(multiplies_packed); }

static dra_tensor tensor_of(const void *data, dra_dtype t, dra_shape shape, int64_t down,
                            int64_t along)
{
    return (dra_tensor){(void *)(uintptr_t)data, t, shape, {down, along}};
}

/* The kernel of matmul on such a level, stage by stage, tiles from last to first. */
static void runs_the_kernel(const dra_simd *simd)
{
    enum { M = 250, N = 230, K = 240 };
    static dra_real       y[M * N];
    const dra_matmul_attr attr = {false, DRA_PRECISION_BF16};
    matrices             *m = new_matrices();
    for (int how = 0; how < 4 && simd->pack_depth; how++) {
        dra_gemm         g = make_gemm(m, &kinds[1], M, N, K, how);
        dra_simd         table = *simd;
        const dra_tensor in[] = {tensor_of(g.a, DRA_REAL, DRA_SHAPE(M, K), g.a_row, g.a_col),
                                 tensor_of(g.b, DRA_REAL, DRA_SHAPE(K, N), g.b_row, g.b_col)};
        const dra_tensor out = tensor_of(y, DRA_REAL, DRA_SHAPE(M, N), N, 1);
        table.caches = (dra_caches){48 << 10, 2 << 20, 32 << 20};
        dra_call c = {.attr = &attr, .in = in, .out = &out, .n_in = 2, .n_out = 1};
        c.context = &table;
        c.threads = 16;
        c.scratch = aligned_alloc(64, (dra_matmul_scratch(&c) + 63) / 64 * 64);
        assert_int_equal(dra_matmul_stages(&c), 2);
        for (c.stage = 0; c.stage < 2; c.stage++)
            for (int64_t i = dra_matmul_tiles(&c); i-- > 0;) {
                dra_gemm part;
                assert_int_equal(dra_matmul_tile(&c, i, &part), c.stage == 1);
            }
        simd->gemm(&g);
        for (int64_t i = 0; i < M; i++)
            assert_memory_equal(y + i * N, g.c + i * LEAD, N * sizeof *y);
        free(c.scratch);
    }
    free(m);
}

static void the_kernel_packs_ahead(void **state) { for_each_gemm(runs_the_kernel); }

/* ---- quantised ------------------------------------------------------------------------------- */

enum { QN = 70, QK = 512 }; /* lines, elements of each */

typedef struct lines { /* a matrix of lines along k, quantised and as the numbers that it means */
    unsigned char blocks[QN * QK / 32 * 34];
    dra_real      number[QN * QK];
} lines;

static void set_lines(lines *l, dra_dtype t, uint64_t *seed)
{
    const int64_t n = QN * QK;
    check_quant_fill(t, n, seed, l->blocks);
    for (int64_t i = 0; i < n; i++) l->number[i] = (dra_real)dra_dequantised(t, l->blocks, i);
}

/* Lines along k, or on their sides. */
static dra_gemm times_lines(const matrices *m, const lines *l, dra_dtype t, bool along, bool bf16)
{
    return (dra_gemm){.a = m->a.real,
                      .a_row = QK,
                      .a_col = 1,
                      .b = dra_is_quantised(t) ? (const void *)l->blocks : l->number,
                      .b_row = along ? 1 : QK,
                      .b_col = along ? QK : 1,
                      .c = (dra_real *)(uintptr_t)m->c + GUARD,
                      .c_row = LEAD,
                      .b_type = t,
                      .bf16 = bf16};
}

/* Bit for bit what the product with its numbers is, for any part of it. */
static void same_as_numbers(const dra_simd *simd, matrices *m, const lines *l, dra_dtype t,
                            bool along, bool bf16)
{
    static const int64_t some[][4] = {
        /* M, N, K, first column */
        {1, 70, 512, 0},  {1, 64, 128, 3}, {2, 33, 256, 1}, {3, 32, 384, 0},  {4, 40, 512, 7},
        {5, 16, 128, 0},  {6, 48, 256, 2}, {7, 17, 512, 0}, {8, 70, 512, 0},  {9, 70, 512, 0},
        {20, 69, 160, 1}, {1, 70, 96, 0},  {2, 5, 32, 1},   {30, 64, 512, 6}, {1, 70, 192, 0},
        {1, 66, 320, 2},  {9, 40, 192, 1}};
    static dra_real whole[32 * LEAD];
    for (size_t i = 0; i < COUNT(some); i++) {
        const int64_t n = some[i][3] * (along ? QK : 1);
        dra_gemm      g = times_lines(m, l, DRA_REAL, along, bf16);
        g.M = some[i][0], g.N = some[i][1], g.K = along ? some[i][2] : some[i][2] % 64;
        g.b = l->number + n;
        simd->gemm(&g);
        memcpy(whole, g.c, sizeof whole);
        dra_gemm q = times_lines(m, l, t, along, bf16);
        q.M = g.M, q.N = g.N, q.K = g.K;
        q.b = l->blocks + dra_elements_bytes(t, n);
        q.b_first = n % (int64_t)dra_dtype_get(t)->block_elements;
        for (int64_t k = 0; k < 32 * LEAD; k++) q.c[k] = whole[k] == 0 ? 1 : whole[k];
        for (int64_t r = 0; r < g.M; r++)
            for (int64_t k = 0; k < g.N; k++) q.c[r * LEAD + k] = (dra_real)NAN;
        simd->gemm(&q);
        for (int64_t r = 0; r < g.M; r++)
            if (memcmp(q.c + r * LEAD, whole + r * LEAD, (size_t)g.N * sizeof *whole) != 0)
                fail_msg("%s %s: row %d of %lld x %lld x %lld%s%s", simd->name,
                         dra_dtype_get(t)->name, (int)r, (long long)g.M, (long long)g.N,
                         (long long)g.K, along ? "" : ", sideways", bf16 ? ", bf16" : "");
        assert_true(isfinite(q.c[g.N]) && isfinite(q.c[(g.M - 1) * LEAD + g.N]));
    }
}

static void multiplies_quantised(const dra_simd *simd)
{
    matrices *m = new_matrices();
    lines    *l = malloc(sizeof *l);
    uint64_t  seed = 5;
    assert_non_null(l);
    for (size_t i = 0; i < COUNT(check_quants); i++) {
        set_lines(l, check_quants[i].dtype, &seed);
        for (int how = 0; how < 4; how++)
            same_as_numbers(simd, m, l, check_quants[i].dtype, how & 1, how & 2);
    }
    free(l);
    free(m);
}

static void quantised_is_its_numbers(void **state) { for_each_gemm(multiplies_quantised); }

/* Tiles of the processor against emulated ones, which cut k and rows otherwise. */
static void tiles_are_as_emulated(void **state)
{
    const dra_simd *own = dra_simd_levels()[0], *emulated = emulated_tiles();
    matrices       *m, *other;
    if (own->level != DRA_LEVEL_AVX512AMX || !emulated) skip();
    m = new_matrices(), other = new_matrices();
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int how = 0; how < 8; how++)
            for (int64_t n = 1; n < LARGEST; n += 37) {
                dra_gemm g = make_gemm(m, &kinds[k], n, LARGEST - n, LARGEST - n / 2, how & 3);
                g.accumulate = how & 4;
                memcpy(m->c + GUARD, m->start, sizeof m->start);
                own->gemm(&g);
                memcpy(other->c + GUARD, m->c + GUARD, sizeof m->start);
                memcpy(m->c + GUARD, m->start, sizeof m->start);
                emulated->gemm(&g);
                assert_memory_equal(m->c + GUARD, other->c + GUARD, sizeof m->start);
            }
    free(m);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm),
        cmocka_unit_test(gemm_of_kinds),
        cmocka_unit_test(gemm_of_repeated),
        cmocka_unit_test(rows_of_gemm_keep_their_bits),
        cmocka_unit_test(parts_of_gemm_keep_bits),
        cmocka_unit_test(rows_of_a_large_matrix_keep_bits),
        cmocka_unit_test(packed_operands_keep_bits),
        cmocka_unit_test(the_kernel_packs_ahead),
        cmocka_unit_test(quantised_is_its_numbers),
        cmocka_unit_test(tiles_are_as_emulated),
    };
    return check_main("simd gemm", NULL, 0, tests, COUNT(tests));
}
