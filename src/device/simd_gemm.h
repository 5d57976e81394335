/* The vector gemm: C (+)= A B. Part of simd_kernels.c.
 *
 * Each element of C is its own chain of multiply-adds over the packed elements of k
 * (gemm_pack.h), ascending, one chain per DEPTH of them, added up in order. Tiles only decide
 * which elements are computed side by side, so all paths below give the same bits, whatever M, N
 * and the strides are:
 *   - tiles of up to ROWS rows and 2 vectors of columns, held in registers;
 *   - B in panels of 2 vectors, packed when several row groups read them, or their elements are
 *     to be packed, or they have other strides;
 *   - few rows: B is read once, so it is read in place. */
#ifndef DRA_SRC_SIMD_GEMM_H
#define DRA_SRC_SIMD_GEMM_H

#include "device/gemm_pack.h"

enum {
    DEPTH = DRA_CHAIN, /* packed elements: a panel this deep stays in the first cache */
    BLOCK = 256,       /* rows of A that share a packed panel of B */
    GROUPS = (BLOCK + ROWS - 1) / ROWS,
    AHEAD = 16 /* rows of B fetched early */
};
_Static_assert(ROWS <= 8, "multiply_rows() knows tiles of 1 to 8 rows");

typedef struct product { /* of one tile or several side by side, packed */
    int64_t      depth;
    const float *a;
    int64_t      a_row, a_col;
    const float *b; /* columns contiguous */
    int64_t      b_row;
    float       *c;
    int64_t      c_row, columns;
    bool         add, pairs;
} product;

static inline void store_row(const product *t, float *c, int vectors, const vf *sum)
{
    UNROLL
    for (int j = 0; j < vectors; j++) {
        const int64_t left = t->columns - j * LANES;
        if (left <= 0) break;
        float *to = c + j * LANES;
        store_some(to, left, t->add ? load_some(to, left, vset(0)) + sum[j] : sum[j]);
    }
}

static ALWAYS_INLINE vf multiply_add(bool pairs, vf a, vf b, vf sum)
{
    return pairs ? vdot(a, b, sum) : vfma(a, b, sum);
}

/* rows x vectors is a constant where this is called: all sums live in registers. `ahead`: rows of
 * B to fetch early, where they are far apart and read once. */
static ALWAYS_INLINE void multiply(const product *t, int rows, int vectors, int ahead, bool pairs)
{
    vf           sum[8][8], column[8];
    const float *a = t->a, *b = t->b;
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) sum[i][j] = vset(0);
    }
    for (int64_t k = 0; k < t->depth; k++, a += t->a_col, b += t->b_row) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            column[j] = load(b + j * LANES);
            if (ahead) __builtin_prefetch(b + ahead * t->b_row + j * LANES);
        }
        UNROLL
        for (int i = 0; i < rows; i++) {
            const vf x = vset(a[i * t->a_row]);
            UNROLL
            for (int j = 0; j < vectors; j++)
                sum[i][j] = multiply_add(pairs, x, column[j], sum[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) store_row(t, t->c + i * t->c_row, vectors, sum[i]);
}

static ALWAYS_INLINE void multiply_some(const product *t, int64_t rows, int vectors, bool pairs)
{
    switch (rows) {
    case 1: multiply(t, 1, vectors, 0, pairs); break;
    case 2: multiply(t, 2, vectors, 0, pairs); break;
    case 3: multiply(t, 3, vectors, 0, pairs); break;
    case 4: multiply(t, 4, vectors, 0, pairs); break;
    case 5: multiply(t, 5, vectors, 0, pairs); break;
    case 6: multiply(t, 6, vectors, 0, pairs); break;
    case 7: multiply(t, ROWS < 7 ? 1 : 7, vectors, 0, pairs); break; /* not where ROWS is 6 */
    default: multiply(t, ROWS < 8 ? 1 : 8, vectors, 0, pairs); break;
    }
}

static void multiply_rows(const product *t, int64_t rows)
{
    const bool pairs = LEVEL_PAIRS && t->pairs, narrow_tile = t->columns <= LANES;
    if (pairs && narrow_tile)
        multiply_some(t, rows, 1, true);
    else if (pairs)
        multiply_some(t, rows, 2, true);
    else if (narrow_tile)
        multiply_some(t, rows, 1, false);
    else
        multiply_some(t, rows, 2, false);
}

#include "device/gemm_small_m.h"
#include "device/gemm_q8.h"
#include "device/gemm_tiles.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

typedef struct block { /* rows and depth of A at work, packed or in place */
    const dra_gemm *g;
    operand         A, B; /* from the first row, the first column and k on */
    int64_t         row, rows, column, end, k, depth, groups; /* depth: elements */
    const float    *a;
    int64_t         a_row, a_col, a_group; /* a_group: 0 where the groups are rows of A itself */
} block;

static inline int64_t group_start(const block *b, int64_t i) { return i * b->rows / b->groups; }

/* All groups of rows against one panel of B. */
static void multiply_panel(const block *b, product *t)
{
    float *const c = t->c;
    for (int64_t i = 0; i < b->groups; i++) {
        const int64_t first = group_start(b, i);
        t->a = b->a + (b->a_group ? i * b->a_group : first * b->a_row);
        t->c = c + first * t->c_row;
        multiply_rows(t, group_start(b, i + 1) - first);
    }
}

static void multiply_block(const block *b)
{
    const dra_gemm    *g = b->g;
    _Alignas(64) float panel[DEPTH * PANEL];
    for (int64_t column = b->column, done; column < b->end; column += done) {
        const operand from = part_of(&b->B, column - b->column, 0);
        product       t = {.depth = packed_of(&from, b->depth),
                           .a = b->a,
                           .a_row = b->a_row,
                           .a_col = b->a_col,
                           .b = from.at,
                           .b_row = from.k,
                           .c = g->c + b->row * g->c_row + column,
                           .c_row = g->c_row,
                           .columns = b->end - column,
                           .add = g->accumulate || b->k > 0,
                           .pairs = from.form == PAIRS};
        done = b->groups == 1 ? multiply_in_place(&t, &from, b->rows) : 0;
        if (done) continue;
        done = t.columns = t.columns < PANEL ? t.columns : PANEL;
        const bool there = is_plain(&from) && from.line == 1 && done == PANEL;
        if (!there || b->groups > 2) { /* packing pays from 3 groups on */
            pack_panel(&from, done, b->depth, panel);
            t.b = panel;
            t.b_row = PANEL;
        }
        multiply_panel(b, &t);
    }
}

/* Packs A line by line where lines are contiguous along k, else by groups of rows: panel[w][i]. */
static void pack_block(block *b, float *panel)
{
    if (b->A.k == 1) {
        for (int64_t i = 0; i < b->rows; i++) {
            const operand line = part_of(&b->A, i, 0);
            pack_along(&line, b->depth, panel + i * DEPTH);
        }
        b->a_row = DEPTH;
        b->a_col = 1;
    } else {
        for (int64_t i = 0; i < b->groups; i++) {
            const int64_t first = group_start(b, i), rows = group_start(b, i + 1) - first;
            for (int64_t j = 0; j < rows; j += LANES) {
                const operand some = part_of(&b->A, first + j, 0);
                pack_lines(&some, rows - j, b->depth, panel + i * ROWS * DEPTH + j, ROWS,
                           ROWS - j < LANES ? ROWS - j : LANES);
            }
        }
        b->a_row = 1;
        b->a_col = ROWS;
        b->a_group = ROWS * DEPTH;
    }
    b->a = panel;
}

static form form_of(const dra_gemm *g) { return !g->bf16 ? FLOATS : LEVEL_PAIRS ? PAIRS : ROUNDED; }

/* Some rows and columns of C over all k. */
static void multiply_blocks(const dra_gemm *g, const operand *A, const operand *B, int64_t row,
                            int64_t rows, int64_t column, int64_t end)
{
    _Alignas(64) float panel[GROUPS * ROWS * DEPTH];
    const int64_t      deep = A->form == PAIRS ? 2 * DEPTH : DEPTH;
    for (int64_t k = 0; k < g->K; k += deep) {
        block b = {.g = g, .row = row, .rows = rows, .column = column, .end = end, .k = k};
        b.A = part_of(A, row, k);
        b.B = part_of(B, column, k);
        b.depth = g->K - k < deep ? g->K - k : deep;
        b.groups = (rows + ROWS - 1) / ROWS;
        b.a = b.A.at;
        b.a_row = g->a_row;
        b.a_col = g->a_col;
        if (!is_plain(A) || (g->a_col != 1 && g->N > PANEL)) pack_block(&b, panel);
        multiply_block(&b);
    }
}

static void gemm(const dra_gemm *g)
{
    const form    f = form_of(g);
    const operand A = {g->a, g->a_row, g->a_col, g->a_type, f, 0};
    const operand B = {g->b, g->b_col, g->b_row, g->b_type, f, g->b_first};
    int64_t       first = 0; /* column */
    if (g->K == 0 && !g->accumulate)
        for (int64_t i = 0; i < g->M; i++)
            for (int64_t j = 0; j < g->N; j++) g->c[i * g->c_row + j] = 0;
    if (dra_gemm_rounds(g)) {
        multiply_q8(g);
        return;
    }
    if (LEVEL_TILES && g->bf16) {
        multiply_by_tiles(g, &A, &B);
        return;
    }
    if (can_stream(g, &B)) {
        multiply_streams(g, &A, &B);
        return;
    }
    if (g->M > 0 && g->M <= SMALL_M && can_transpose(&B, g->M, g->K)) {
        first = g->N / PANEL * PANEL;
        multiply_small_m(g, &A, &B, first);
    }
    /* Few rows: B comes from memory once, best in pieces that are large there. */
    const int64_t width = g->M > ROWS ? g->N : g->b_row == 1 ? PANEL : 8 * LANES;
    for (int64_t row = 0; row < g->M; row += BLOCK)
        for (int64_t column = first; column < g->N; column += width)
            multiply_blocks(g, &A, &B, row, g->M - row < BLOCK ? g->M - row : BLOCK, column,
                            g->N - column < width ? g->N : column + width);
}

#endif
