/* The vector gemm: C (+)= A B. Part of simd_vector.h.
 *
 * Each element of C is its own chain of FMAs over k, ascending, one chain per DEPTH of k, and the
 * chains are added up in order. Tiles only decide which elements are computed side by side, so all
 * paths below give the same bits, whatever M, N and the strides are:
 *   - tiles of up to ROWS rows and 2 vectors of columns, held in registers;
 *   - B in panels of 2 vectors, packed when several row groups read them (or they lie otherwise);
 *   - few rows: B is read once, so it is read where it lies. */
#ifndef DRA_SRC_SIMD_GEMM_H
#define DRA_SRC_SIMD_GEMM_H

enum {
    PANEL = 2 * LANES, /* columns of a tile */
    DEPTH = 128,       /* a panel this deep stays in the first cache */
    BLOCK = 256,       /* rows of A that share a packed panel of B */
    GROUPS = (BLOCK + ROWS - 1) / ROWS,
    FEW = 4,      /* rows: B is turned in registers */
    STRETCH = 32, /* k at a time there */
    AHEAD = 16    /* rows of B fetched early */
};
_Static_assert(ROWS <= 8, "multiply_rows() knows tiles of 1 to 8 rows");

typedef struct product { /* of one tile or several side by side */
    int64_t      depth;
    const float *a;
    int64_t      a_row, a_col;
    const float *b; /* columns contiguous */
    int64_t      b_row;
    float       *c;
    int64_t      c_row, columns;
    bool         add;
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

/* rows x vectors is a constant where this is called: all sums live in registers. `ahead`: rows of
 * B to fetch early, where they are far apart and read once. */
static ALWAYS_INLINE void multiply(const product *t, int rows, int vectors, int ahead)
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
            for (int j = 0; j < vectors; j++) sum[i][j] = vfma(x, column[j], sum[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) store_row(t, t->c + i * t->c_row, vectors, sum[i]);
}

static void multiply_one_vector(const product *t, int64_t rows)
{
    switch (rows) {
    case 1: multiply(t, 1, 1, 0); break;
    case 2: multiply(t, 2, 1, 0); break;
    case 3: multiply(t, 3, 1, 0); break;
    case 4: multiply(t, 4, 1, 0); break;
    case 5: multiply(t, 5, 1, 0); break;
    case 6: multiply(t, 6, 1, 0); break;
    case 7: multiply(t, ROWS < 7 ? 1 : 7, 1, 0); break;
    default: multiply(t, ROWS < 8 ? 1 : 8, 1, 0); break;
    }
}

static void multiply_rows(const product *t, int64_t rows)
{
    if (t->columns <= LANES) {
        multiply_one_vector(t, rows);
        return;
    }
    switch (rows) {
    case 1: multiply(t, 1, 2, 0); break;
    case 2: multiply(t, 2, 2, 0); break;
    case 3: multiply(t, 3, 2, 0); break;
    case 4: multiply(t, 4, 2, 0); break;
    case 5: multiply(t, 5, 2, 0); break;
    case 6: multiply(t, 6, 2, 0); break;
    case 7: multiply(t, ROWS < 7 ? 1 : 7, 2, 0); break; /* not compiled where there are no such */
    default: multiply(t, ROWS < 8 ? 1 : 8, 2, 0); break;
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Rows k..k+3 of LANES columns whose elements are contiguous along k; `column` apart. */
static inline void turn_quads(const float *b, int64_t column, vf row[4])
{
    const vf x0 = load_quads(b, column), x1 = load_quads(b + column, column);
    const vf x2 = load_quads(b + 2 * column, column), x3 = load_quads(b + 3 * column, column);
    const vf low01 = zip_low(x0, x1), low23 = zip_low(x2, x3);
    const vf high01 = zip_high(x0, x1), high23 = zip_high(x2, x3);
    row[0] = pair_low(low01, low23);
    row[1] = pair_high(low01, low23);
    row[2] = pair_low(high01, high23);
    row[3] = pair_high(high01, high23);
}

static inline vf gather(const float *x, int64_t step, int64_t n) /* zeros from n on */
{
    vf v = vset(0);
    for (int64_t i = 0; i < n && i < LANES; i++) v[i] = x[i * step];
    return v;
}

/* One vector of columns: panel[k][0..LANES) = b[k][0..columns), zeros from there on. */
static void pack_columns(const float *b, int64_t b_row, int64_t b_col, int64_t columns,
                         int64_t depth, float *panel)
{
    int64_t k = 0;
    if (b_col == 1)
        for (; k < depth; k++) store(panel + k * PANEL, load_some(b + k * b_row, columns, vset(0)));
    if (b_row == 1 && columns >= LANES)
        for (; k + 4 <= depth; k += 4) {
            vf row[4];
            turn_quads(b + k, b_col, row);
            for (int i = 0; i < 4; i++) store(panel + (k + i) * PANEL, row[i]);
        }
    for (; k < depth; k++) store(panel + k * PANEL, gather(b + k * b_row, b_col, columns));
}

static void pack_panel(const float *b, int64_t b_row, int64_t b_col, int64_t columns, int64_t depth,
                       float *panel)
{
    pack_columns(b, b_row, b_col, columns, depth, panel);
    if (columns > LANES)
        pack_columns(b + LANES * b_col, b_row, b_col, columns - LANES, depth, panel + LANES);
}

/* A block of A whose rows are not contiguous, one group of rows after the other: panel[k][i]. */
static void pack_rows(const float *a, int64_t a_row, int64_t a_col, int64_t rows, int64_t depth,
                      float *panel)
{
    for (int64_t k = 0; k < depth; k++, a += a_col, panel += ROWS)
        if (a_row == 1 && rows == ROWS)
            memcpy(panel, a, ROWS * sizeof *a);
        else
            for (int64_t i = 0; i < rows; i++) panel[i] = a[i * a_row];
}

/* ---- few rows -------------------------------------------------------------------------------- */

/* A stretch of PANEL columns, each contiguous along k, side by side in the first cache: columns
 * that lie a multiple of 4096 bytes apart would drive each other out of it while being turned. */
static void copy_stretch(const float *b, int64_t column, int64_t depth, float *stretch)
{
    for (int j = 0; j < PANEL; j++, b += column, stretch += STRETCH)
        for (int64_t k = 0; k < depth; k += LANES) {
            store_some(stretch + k, depth - k, load_some(b + k, depth - k, vset(0)));
            if (k % 16 == 0) __builtin_prefetch(b + k + 2 * STRETCH); /* a line, once */
        }
}

/* sum += A's rows times a stretch of B, turned in registers; all but the last depth % 4. */
static ALWAYS_INLINE void add_stretch(const float *a, int64_t a_row, int64_t a_col, int64_t depth,
                                      const float *stretch, int rows, vf sum[FEW][2])
{
    for (int64_t k = 0; k + 4 <= depth; k += 4) {
        vf b[2][4];
        turn_quads(stretch + k, STRETCH, b[0]);
        turn_quads(stretch + LANES * STRETCH + k, STRETCH, b[1]);
        UNROLL
        for (int j = 0; j < 4; j++) {
            UNROLL
            for (int i = 0; i < rows; i++) {
                const vf x = vset(a[i * a_row + (k + j) * a_col]);
                sum[i][0] = vfma(x, b[0][j], sum[i][0]);
                sum[i][1] = vfma(x, b[1][j], sum[i][1]);
            }
        }
    }
}

/* PANEL columns, each contiguous along k and `column` apart, without a packed panel. */
static ALWAYS_INLINE void multiply_turned(const product *t, int64_t column, int rows)
{
    _Alignas(64) float stretch[PANEL * STRETCH];
    vf                 sum[FEW][2];
    UNROLL
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = vset(0);
    for (int64_t k = 0; k < t->depth; k += STRETCH) {
        const int64_t depth = t->depth - k < STRETCH ? t->depth - k : STRETCH;
        const float  *a = t->a + k * t->a_col;
        copy_stretch(t->b + k, column, depth, stretch);
        add_stretch(a, t->a_row, t->a_col, depth, stretch, rows, sum);
        for (int64_t j = depth / 4 * 4; j < depth; j++) {
            const vf low = gather(stretch + j, STRETCH, LANES);
            const vf high = gather(stretch + LANES * STRETCH + j, STRETCH, LANES);
            UNROLL
            for (int i = 0; i < rows; i++) {
                const vf x = vset(a[i * t->a_row + j * t->a_col]);
                sum[i][0] = vfma(x, low, sum[i][0]);
                sum[i][1] = vfma(x, high, sum[i][1]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) store_row(t, t->c + i * t->c_row, 2, sum[i]);
}

/* Multiplies some columns with B where it lies and returns how many; 0: B must be packed. */
static int64_t multiply_in_place(product *t, int64_t rows, int64_t b_col)
{
    const int64_t columns = t->columns;
    const int64_t wide = rows == 1 ? 8 * LANES : rows == 2 ? 4 * LANES : PANEL;
    const int64_t width = columns >= wide ? wide : columns >= PANEL ? PANEL : LANES;
    t->columns = width;
    if (b_col == 1 && columns >= width) {
        if (width == 8 * LANES)
            multiply(t, 1, 8, AHEAD);
        else if (width == 4 * LANES)
            multiply(t, 2, 4, AHEAD);
        else
            multiply_rows(t, rows);
        return width;
    }
    t->columns = PANEL;
    if (t->b_row == 1 && columns >= PANEL && rows <= FEW) {
        switch (rows) {
        case 1: multiply_turned(t, b_col, 1); break;
        case 2: multiply_turned(t, b_col, 2); break;
        case 3: multiply_turned(t, b_col, 3); break;
        default: multiply_turned(t, b_col, FEW); break;
        }
        return PANEL;
    }
    t->columns = columns < PANEL ? columns : PANEL;
    return 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

typedef struct block { /* rows and depth of A at work, packed or where they lie */
    const dra_gemm *g;
    int64_t         row, rows, column, end, k, depth, groups;
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
        const float *from = g->b + b->k * g->b_row + column * g->b_col;
        product      t = {.depth = b->depth,
                          .a = b->a,
                          .a_row = b->a_row,
                          .a_col = b->a_col,
                          .b = from,
                          .b_row = g->b_row,
                          .c = g->c + b->row * g->c_row + column,
                          .c_row = g->c_row,
                          .columns = b->end - column,
                          .add = g->accumulate || b->k > 0};
        done = b->groups == 1 ? multiply_in_place(&t, b->rows, g->b_col) : 0;
        if (done) continue;
        done = t.columns = t.columns < PANEL ? t.columns : PANEL;
        if (g->b_col != 1 || done < PANEL || b->groups > 2) { /* packing pays from 3 groups on */
            pack_panel(from, g->b_row, g->b_col, done, b->depth, panel);
            t.b = panel;
            t.b_row = PANEL;
        }
        multiply_panel(b, &t);
    }
}

static void pack_block(block *b, float *panel)
{
    for (int64_t i = 0; i < b->groups; i++) {
        const int64_t first = group_start(b, i);
        const int64_t there = b->g->M - b->row - first; /* rows of the next group do no harm */
        pack_rows(b->a + first * b->a_row, b->a_row, b->a_col, there < ROWS ? there : ROWS,
                  b->depth, panel + i * ROWS * DEPTH);
    }
    b->a = panel;
    b->a_row = 1;
    b->a_col = ROWS;
    b->a_group = ROWS * DEPTH;
}

/* Some rows and columns of C over all k. */
static void multiply_blocks(const dra_gemm *g, int64_t row, int64_t rows, int64_t column,
                            int64_t end)
{
    _Alignas(64) float panel[GROUPS * ROWS * DEPTH];
    for (int64_t k = 0; k < g->K; k += DEPTH) {
        block b = {.g = g, .row = row, .rows = rows, .column = column, .end = end, .k = k};
        b.depth = g->K - k < DEPTH ? g->K - k : DEPTH;
        b.groups = (rows + ROWS - 1) / ROWS;
        b.a = g->a + row * g->a_row + k * g->a_col;
        b.a_row = g->a_row;
        b.a_col = g->a_col;
        if (g->a_col != 1 && g->N > PANEL) pack_block(&b, panel);
        multiply_block(&b);
    }
}

static void gemm(const dra_gemm *g)
{
    if (g->K == 0 && !g->accumulate)
        for (int64_t i = 0; i < g->M; i++)
            for (int64_t j = 0; j < g->N; j++) g->c[i * g->c_row + j] = 0;
    /* Few rows: B comes from memory once, best in pieces that are large there. */
    const int64_t width = g->M > ROWS ? g->N : g->b_row == 1 ? PANEL : 8 * LANES;
    for (int64_t row = 0; row < g->M; row += BLOCK)
        for (int64_t column = 0; column < g->N; column += width)
            multiply_blocks(g, row, g->M - row < BLOCK ? g->M - row : BLOCK, column,
                            g->N - column < width ? g->N : column + width);
}

#endif
