/* Products of bf16 on tile registers. Part of simd_gemm.h.
 *
 * Each element of C is one chain over k: C, or zero, then for every 32 elements of k, ascending,
 * what tile_dot() adds; the last of them filled up with zeros. So it depends on k alone, and not
 * on how rows, columns and k are cut into blocks here.
 *
 * x are lines that become rows of tiles, y those that become columns: A and B, or for few rows of A
 * the other way round, since B then needs no transposing. A product of two numbers and its chain
 * are the same both ways. */
#ifndef DRA_SRC_GEMM_TILES_H
#define DRA_SRC_GEMM_TILES_H

#ifndef LEVEL_TILES
enum { LEVEL_TILES = false, PACK_DEPTH = 0 };
static void multiply_by_tiles(const dra_gemm *g, const operand *A, const operand *B) {}
static void pack_rows_ahead(const dra_gemm *g, float *to, int64_t step) {}
static void pack_columns_ahead(const dra_gemm *g, float *to, int64_t step) {}
#else

enum {
#ifdef TILES_EMULATED /* small, so that tests have several blocks */
    TILE_DEPTH = 48,
    TILE_ROWS = 64,
#else
    TILE_DEPTH = 256, /* packed elements: a panel of y this deep is in the first cache */
    TILE_ROWS = 256,  /* lines of x that share a packed panel of y: in the second */
#endif
    PAIR = 2 * TILE_SIDE,
    PACK_DEPTH = 2 * TILE_DEPTH
};
_Static_assert((int)PANEL == (int)PAIR, "a panel is as wide as two tiles");
_Static_assert((int)PANEL == (int)DRA_PACKED_LINES, "parts of packed operands are whole panels");

typedef struct tiles { /* a product as it is cut, and what is packed of it */
    operand      x, y;
    int64_t      rows, columns, K; /* rows: lines of x */
    float       *c;
    int64_t      c_row, c_column; /* steps from row to row of x, and from column to column */
    bool         add;
    float *const packed_x; /* (TILE_ROWS, TILE_DEPTH) */
    float *const packed_y; /* (TILE_DEPTH, PANEL)     */
    dra_packed   x_ahead, y_ahead;
} tiles;

/* ---- packing --------------------------------------------------------------------------------- */

static inline int64_t whole_tiles(int64_t packed)
{
    return (packed + TILE_SIDE - 1) / TILE_SIDE * TILE_SIDE;
}

/* 16 packed elements of 16 lines whose elements are not contiguous: read across, transposed. */
static void pack_crosswise(const operand *o, int64_t lines, int64_t depth, float *to)
{
    vf                 x[LANES];
    _Alignas(64) float across_lines[TILE_SIDE * LANES];
    memset(across_lines, 0, sizeof across_lines);
    pack_lines(o, lines, depth, across_lines, LANES, LANES);
    UNROLL
    for (int w = 0; w < LANES; w++) x[w] = load(across_lines + w * LANES);
    transpose_tile(x);
    UNROLL
    for (int i = 0; i < LANES; i++) store(to + i * TILE_DEPTH, x[i]);
}

/* Lines of x as rows of packed elements, TILE_DEPTH apart, filled up with zeros to whole tiles. */
static void pack_rows(const operand *x, int64_t rows, int64_t depth, float *to)
{
    const int64_t packed = packed_of(x, depth), whole = whole_tiles(packed);
    for (int64_t i = 0; i < rows && x->k == 1; i++) {
        const operand line = part_of(x, i, 0);
        store(to + i * TILE_DEPTH + whole - TILE_SIDE, vset(0));
        pack_along(&line, depth, to + i * TILE_DEPTH);
    }
    for (int64_t i = 0; i < rows && x->k != 1; i += LANES)
        for (int64_t w = 0; w < packed; w += TILE_SIDE) {
            const operand part = part_of(x, i, 2 * w);
            const int64_t left = depth - 2 * w < 2 * TILE_SIDE ? depth - 2 * w : 2 * TILE_SIDE;
            pack_crosswise(&part, rows - i, left, to + i * TILE_DEPTH + w);
        }
}

static void pack_columns(const operand *y, int64_t columns, int64_t depth, float *panel)
{
    const int64_t packed = packed_of(y, depth);
    pack_panel(y, columns, depth, panel);
    memset(panel + packed * PANEL, 0,
           (size_t)(whole_tiles(packed) - packed) * PANEL * sizeof *panel);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* c (32, 32), or its first half of rows or columns, (+)= x y over `depth` packed elements. */
static ALWAYS_INLINE void multiply_pair(const float *x, const float *y, int64_t depth, float *c,
                                        int64_t c_row, bool add, bool low, bool right)
{
    const int64_t step = c_row * (int64_t)sizeof *c, x_step = TILE_DEPTH * sizeof *x,
                  y_step = PANEL * sizeof *y;
    float *const below = c + TILE_SIDE * c_row;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    if (add) tile_load(0, c, step);
    if (add && right) tile_load(1, c + TILE_SIDE, step);
    if (add && low) tile_load(2, below, step);
    if (add && low && right) tile_load(3, below + TILE_SIDE, step);
    for (int64_t w = 0; w < depth; w += TILE_SIDE) {
        tile_load(4, x + w, x_step);
        tile_load(6, y + w * PANEL, y_step);
        tile_dot(0, 4, 6);
        if (right) {
            tile_load(7, y + w * PANEL + TILE_SIDE, y_step);
            tile_dot(1, 4, 7);
        }
        if (low) {
            tile_load(5, x + TILE_SIDE * TILE_DEPTH + w, x_step);
            tile_dot(2, 5, 6);
        }
        if (low && right) tile_dot(3, 5, 7);
    }
    tile_store(0, c, step);
    if (right) tile_store(1, c + TILE_SIDE, step);
    if (low) tile_store(2, below, step);
    if (low && right) tile_store(3, below + TILE_SIDE, step);
}

static void multiply_part(const float *x, const float *y, int64_t depth, float *c, int64_t c_row,
                          bool add, int64_t rows, int64_t columns)
{
    const bool low = rows > TILE_SIDE, right = columns > TILE_SIDE;
    if (low && right)
        multiply_pair(x, y, depth, c, c_row, add, true, true);
    else if (low)
        multiply_pair(x, y, depth, c, c_row, add, true, false);
    else if (right)
        multiply_pair(x, y, depth, c, c_row, add, false, true);
    else
        multiply_pair(x, y, depth, c, c_row, add, false, false);
}

/* A part that does not fill its tiles, or whose rows are not those of C: by way of a copy. */
static void multiply_edge(const tiles *t, const float *x, const float *y, int64_t depth, float *c,
                          bool add, int64_t rows, int64_t columns)
{
    _Alignas(64) float copy[PAIR * PAIR];
    memset(copy, 0, sizeof copy);
    for (int64_t i = 0; i < rows && add; i++)
        for (int64_t j = 0; j < columns; j++)
            copy[i * PAIR + j] = c[i * t->c_row + j * t->c_column];
    multiply_part(x, y, depth, copy, PAIR, add, rows, columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            c[i * t->c_row + j * t->c_column] = copy[i * PAIR + j];
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

/* A line in an operand that was packed ahead, a panel where its first column is. */
static const float *ahead_at(const dra_packed *p, int64_t line, int64_t k)
{
    return p->at + k / PACK_DEPTH * p->step + line * TILE_DEPTH;
}

static const float *rows_at(const tiles *t, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const operand part = part_of(&t->x, row, k);
    if (t->x_ahead.at) return ahead_at(&t->x_ahead, row, k);
    pack_rows(&part, rows, depth, t->packed_x);
    return t->packed_x;
}

static const float *panel_at(const tiles *t, int64_t column, int64_t columns, int64_t k,
                             int64_t depth)
{
    const operand part = part_of(&t->y, column, k);
    if (t->y_ahead.at) return ahead_at(&t->y_ahead, column, k);
    pack_columns(&part, columns, depth, t->packed_y);
    return t->packed_y;
}

/* Some lines of x against all columns, over elements k .. k + depth - 1. */
static void multiply_tile_block(const tiles *t, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const bool         add = t->add || k > 0;
    const int64_t      whole = whole_tiles(packed_of(&t->y, depth));
    const float *const packed = rows_at(t, row, rows, k, depth);
    for (int64_t column = 0; column < t->columns; column += PANEL) {
        const int64_t columns = at_most(t->columns - column, PANEL);
        const float  *y = panel_at(t, column, columns, k, depth);
        for (int64_t i = 0; i < rows; i += PAIR) {
            const int64_t n = at_most(rows - i, PAIR);
            const float  *x = packed + i * TILE_DEPTH;
            float        *c = t->c + (row + i) * t->c_row + column * t->c_column;
            if (t->c_column == 1 && n % TILE_SIDE == 0 && columns % TILE_SIDE == 0)
                multiply_part(x, y, whole, c, t->c_row, add, n, columns);
            else
                multiply_edge(t, x, y, whole, c, add, n, columns);
        }
    }
}

static void pack_rows_ahead(const dra_gemm *g, float *to, int64_t step)
{
    const operand A = {g->a, g->a_row, g->a_col, g->a_type, PAIRS};
    for (int64_t k = 0; k < g->K; k += PACK_DEPTH, to += step) {
        const operand part = part_of(&A, 0, k);
        pack_rows(&part, g->M, at_most(g->K - k, PACK_DEPTH), to);
    }
}

static void pack_columns_ahead(const dra_gemm *g, float *to, int64_t step)
{
    const operand B = {g->b, g->b_col, g->b_row, g->b_type, PAIRS};
    for (int64_t k = 0; k < g->K; k += PACK_DEPTH, to += step)
        for (int64_t column = 0; column < g->N; column += PANEL) {
            const operand part = part_of(&B, column, k);
            pack_columns(&part, at_most(g->N - column, PANEL), at_most(g->K - k, PACK_DEPTH),
                         to + column * TILE_DEPTH);
        }
}

static void multiply_by_tiles(const dra_gemm *g, const operand *A, const operand *B)
{
    _Alignas(64) float x[TILE_ROWS * TILE_DEPTH], y[TILE_DEPTH * PANEL];
    const tiles straight = {*A, *B, g->M,        g->N,       g->K, g->c, g->c_row, 1, g->accumulate,
                            x,  y,  g->a_packed, g->b_packed};
    const tiles swapped = {*B, *A, g->N, g->M, g->K, g->c, 1, g->c_row, g->accumulate,
                           x,  y,  {0},  {0}};
    const bool  ahead = g->a_packed.at || g->b_packed.at;
    const tiles *t = g->M <= TILE_SIDE && B->k == 1 && !ahead ? &swapped : &straight;
    tiles_begin();
    for (int64_t row = 0; row < t->rows; row += TILE_ROWS)
        for (int64_t k = 0; k < t->K; k += PACK_DEPTH)
            multiply_tile_block(t, row, at_most(t->rows - row, TILE_ROWS), k,
                                at_most(t->K - k, PACK_DEPTH));
    tiles_end();
}

#endif
#endif
