/* Products with few rows of A: B is read once, so it is read in place. Part of simd_gemm.h.
 *
 * Lines of B along k in memory are transposed in registers, in tiles of LANES packed elements of
 * LANES lines: each cache line is read whole and at once, even if lines are a multiple of 4096
 * bytes apart and would evict each other from the first cache. Numbers of 16 bits are transposed as
 * they are, two in a lane, and widened afterwards. */
#ifndef DRA_SRC_GEMM_SMALL_M_H
#define DRA_SRC_GEMM_SMALL_M_H

/* Rows, whose sums stay in registers together with a transpose tile; packed elements of them at a
 * time. */
enum { SMALL_M = LANES < 16 ? 4 : 8, CHUNK = 64 * DEPTH / SMALL_M };

static ALWAYS_INLINE bool two_in_one(dra_dtype t, form f) { return is_half(t) || f == PAIRS; }

static ALWAYS_INLINE vf half_of(dra_dtype t, vf both, bool odd)
{
    const vu bits = (vu)both;
    if (t == DRA_BF16) return (vf)(odd ? bits & 0xffff0000u : bits << 16);
    return from_f16(__builtin_convertvector(odd ? bits >> 16 : bits & 0xffffu, vh));
}

/* What is fetched into the second cache while a tile is transposed: as many bytes from `at` on,
 * every `step` bytes. Twice, at a distance: the processor drops what it has no room to remember. */
typedef struct upcoming {
    const char *at;
    int64_t     step, again;
} upcoming;

static ALWAYS_INLINE void fetch_twice(upcoming next, int64_t bytes)
{
    UNROLL
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(next.at + i, 0, 2);
        __builtin_prefetch(next.at + next.again + i, 0, 2);
    }
}

/* Elements of a line in a transpose tile. */
static ALWAYS_INLINE int64_t tile_side(dra_dtype type, form f)
{
    return two_in_one(type, f) ? 2 * LANES : LANES;
}

/* sum[i] += row i of A times LANES packed elements of LANES lines of B. */
static ALWAYS_INLINE void add_tile(const product *t, const char *b, int64_t line, upcoming next,
                                   dra_dtype type, form f, int rows, vf *sum)
{
    vf            x[LANES];
    const float  *a = t->a;
    const int64_t bytes = tile_side(type, f) * (is_half(type) ? 2 : 4);
    UNROLL
    for (int j = 0; j < LANES; j++, b += line, next.at += next.step) {
        x[j] = is_half(type) ? load((const void *)b) : packed_at(type, f, b, 2 * LANES);
        fetch_twice(next, bytes);
    }
    transpose_tile(x);
    UNROLL
    for (int w = 0; w < LANES; w++, a += t->a_col) {
        const bool widen = is_half(type) && f != PAIRS;
        const vf   first = widen ? half_of(type, x[w], false) : x[w];
        UNROLL
        for (int i = 0; i < rows; i++)
            sum[i] = multiply_add(f == PAIRS, vset(a[i * t->a_row]), first, sum[i]);
        if (!widen) continue;
        a += t->a_col;
        UNROLL
        for (int i = 0; i < rows; i++)
            sum[i] = vfma(vset(a[i * t->a_row]), half_of(type, x[w], true), sum[i]);
    }
}

/* Transpose tiles at once. Two have twice the chains at work, which a row alone needs if vectors
 * are narrow or numbers are widened. With one, half as many lines are read at a time, which the
 * processor sees coming: 10 % faster from memory. */
static ALWAYS_INLINE int tiles_at_once(dra_dtype type, int64_t rows)
{
    return LANES < 16 || (is_half(type) && rows == 1) ? 2 : 1;
}

/* Some tiles of columns, t->depth elements: one chain per DEPTH packed elements, as everywhere. The
 * next lines are fetched in the order they are used or, where they are contiguous, in that of
 * memory, which the hardware prefetcher follows: from memory a row is then multiplied 10 to 15 %
 * faster. */
static ALWAYS_INLINE void multiply_transposed(product t, operand b, dra_dtype type, form f,
                                              int rows)
{
    _Alignas(64) float panel[2 * LANES * PANEL];
    const int          side_by_side = tiles_at_once(type, rows);
    const int64_t      each = tile_side(type, f), size = is_half(type) ? 2 : 4;
    const int64_t      chain = f == PAIRS ? 2 * DEPTH : DEPTH;
    const int64_t      line = b.line * size, tile = LANES * each * size;
    const bool         close = line == t.depth * size;
    upcoming           next = {(const char *)b.at + side_by_side * LANES * line, line, 0};
    if (close) next = (upcoming){next.at, each * size, 8 * tile};
    for (int64_t left = t.depth, end; left > 0; left = end, t.add = true) {
        vf sum[2][SMALL_M];
        end = left > chain ? left - chain : 0;
        UNROLL
        for (int i = 0; i < rows; i++) sum[0][i] = sum[1][i] = vset(0);
        for (; left - end >= each; left -= each) {
            UNROLL
            for (int s = 0; s < side_by_side; s++) {
                upcoming then = next;
                then.at += s * LANES * next.step;
                add_tile(&t, (const char *)b.at + s * LANES * line, line, then, type, f, rows,
                         sum[s]);
                COMPILER_BARRIER;
            }
            next.at += close ? side_by_side * tile : each * size;
            t.a += (f == PAIRS ? each / 2 : each) * t.a_col;
            b = part_of(&b, 0, each);
        }
        if (left > end) pack_panel(&b, side_by_side * LANES, left - end, panel);
        for (int64_t w = 0; w < packed_of(&b, left - end); w++, t.a += t.a_col) {
            UNROLL
            for (int i = 0; i < side_by_side * rows; i++) {
                const int s = i / rows, r = i % rows;
                sum[s][r] = multiply_add(f == PAIRS, vset(t.a[r * t.a_row]),
                                         load(panel + w * PANEL + s * LANES), sum[s][r]);
            }
        }
        UNROLL
        for (int i = 0; i < rows; i++)
            store_row(&t, t.c + i * t.c_row, side_by_side, (const vf[]){sum[0][i], sum[1][i]});
    }
}

static ALWAYS_INLINE void multiply_transposed_rows(const product *t, const operand *b,
                                                   dra_dtype type, form f, int64_t rows)
{
    switch (rows) {
    case 1: multiply_transposed(*t, *b, type, f, 1); break;
    case 2: multiply_transposed(*t, *b, type, f, 2); break;
    case 3: multiply_transposed(*t, *b, type, f, 3); break;
    case 4: multiply_transposed(*t, *b, type, f, 4); break;
    case 5:
        multiply_transposed(*t, *b, type, f, SMALL_M < 5 ? 1 : 5);
        break; /* not where SMALL_M is 4 */
    case 6: multiply_transposed(*t, *b, type, f, SMALL_M < 6 ? 1 : 6); break;
    case 7: multiply_transposed(*t, *b, type, f, SMALL_M < 7 ? 1 : 7); break;
    default: multiply_transposed(*t, *b, type, f, SMALL_M < 8 ? 1 : 8); break;
    }
}

#include "device/gemm_quant_rows.h"

static void multiply_lines(const product *t, const operand *b, int64_t rows)
{
    if (dra_is_quantised(b->dtype))
        multiply_quantised(t, b);
    else if (LEVEL_PAIRS && b->form == PAIRS && b->dtype == DRA_BF16)
        multiply_transposed_rows(t, b, DRA_BF16, PAIRS, rows);
    else if (LEVEL_PAIRS && b->form == PAIRS)
        multiply_transposed_rows(t, b, DRA_F32, PAIRS, rows);
    else if (b->dtype == DRA_BF16) /* rounding changes nothing here */
        multiply_transposed_rows(t, b, DRA_BF16, FLOATS, rows);
    else if (b->dtype == DRA_F16)
        multiply_transposed_rows(t, b, DRA_F16, FLOATS, rows);
    else
        multiply_transposed_rows(t, b, DRA_F32, FLOATS, rows);
}

/* Is there a way above for these lines? Else they are packed. */
static bool can_transpose(const operand *b, int64_t rows, int64_t depth)
{
    if (dra_is_quantised(b->dtype)) return rows == 1 && has_chains(b, depth);
    if (b->k != 1) return false;
    return b->dtype == DRA_BF16 || (is_half(b->dtype) ? b->form == FLOATS : b->form != ROUNDED);
}

/* Few rows, some PANELs of columns. */
static void multiply_small_m(const dra_gemm *g, const operand *A, const operand *B, int64_t columns)
{
    const int64_t      width = dra_is_quantised(B->dtype) ? QUANT_GROUPS * LANES
                                                          : tiles_at_once(B->dtype, g->M) * LANES;
    _Alignas(64) float rows[SMALL_M * CHUNK];
    const bool         there = is_plain(A) && (A->k == 1 || !dra_is_quantised(B->dtype));
    const int64_t      deep = there ? g->K : A->form == PAIRS ? 2 * CHUNK : CHUNK;
    for (int64_t k = 0; k < g->K; k += deep) {
        product       t = {.depth = g->K - k < deep ? g->K - k : deep,
                           .a_row = A->line,
                           .a_col = A->k,
                           .c_row = g->c_row,
                           .add = g->accumulate || k > 0};
        const operand a = part_of(A, 0, k);
        t.a = a.at;
        if (!there) {
            t.a = rows;
            t.a_row = CHUNK;
            t.a_col = 1;
            for (int64_t i = 0; i < g->M; i++) {
                const operand row = part_of(&a, i, 0);
                pack_line(&row, t.depth, rows + i * CHUNK);
            }
        }
        for (int64_t j = 0; j < columns; j += t.columns) {
            const operand b = part_of(B, j, k);
            t.columns = columns - j < width ? PANEL : width;
            t.c = g->c + j;
            multiply_lines(&t, &b, g->M);
        }
    }
}

/* ---- columns side by side: rows of B are streams --------------------------------------------- */

/* Sums of a chain, which stay in the first cache; rows of B at a time, and the bytes by which each
 * is fetched ahead; columns of a row that is short; elements of a B that comes from memory. */
enum { CHAIN_SUMS = 4096, STREAMS = 16, FETCH = 512, SHORT = 1024, LARGE = 1 << 15 };

/* sums (rows, width) += some columns of A times as many rows of B, or = for the first of a chain;
 * whole vectors only. */
static ALWAYS_INLINE void add_streams(const product *t, const char *b, int64_t step, dra_dtype type,
                                      int rows, int streams, bool first, float *sums, int64_t width)
{
    for (int64_t j = 0; j + LANES <= t->columns; j += LANES) {
        vf sum[8];
        UNROLL
        for (int i = 0; i < rows; i++) sum[i] = first ? vset(0) : load(sums + i * width + j);
        UNROLL
        for (int s = 0; s < streams; s++) {
            const char *at = b + s * step + j * (is_half(type) ? 2 : 4);
            if (streams > 1) __builtin_prefetch(at + FETCH, 0, 2);
            const vf x = read_some(type, at, LANES);
            UNROLL
            for (int i = 0; i < rows; i++) sum[i] = vfma(vset(t->a[i * DEPTH + s]), x, sum[i]);
        }
        UNROLL
        for (int i = 0; i < rows; i++) store(sums + i * width + j, sum[i]);
    }
}

/* The columns after the last whole vector, one row of A after the other. */
static void stream_rest(const product *t, const operand *B, int64_t rows, float *sums,
                        int64_t width)
{
    const int64_t done = t->columns / LANES * LANES, left = t->columns - done;
    for (int64_t i = 0; i < rows && left > 0; i++) {
        vf sum = vset(0);
        for (int64_t k = 0; k < t->depth; k++)
            sum = vfma(vset(t->a[i * DEPTH + k]), read_some(B->dtype, part_of(B, done, k).at, left),
                       sum);
        store(sums + i * width + done, sum);
    }
}

/* One chain. Where rows of B are contiguous, one row after the other: memory is read in its order,
 * as fast as it can be, and the sums of a row of A are loaded and stored meanwhile. Where there is
 * a gap after each, which the prefetcher does not follow, or where there are too many sums to go
 * through for each row, many rows of B at a time: three quarters of that speed. */
static ALWAYS_INLINE void stream_chain(product t, const operand *B, dra_dtype type, int rows,
                                       float *sums, int64_t width)
{
    const int64_t step = B->k * (is_half(type) ? 2 : 4);
    const bool    close = rows == 1 && B->k == t.columns && t.columns <= SHORT;
    const int     many = rows > 4 ? STREAMS / 2 : STREAMS; /* else it is too much code */
    const char   *b = B->at;
    bool          first = true;
    for (; t.depth >= many && !close; t.depth -= many, first = false) {
        add_streams(&t, b, step, type, rows, many, first, sums, width);
        b += many * step;
        t.a += many;
    }
    for (; t.depth > 0; t.depth--, b += step, t.a++, first = false)
        add_streams(&t, b, step, type, rows, 1, first, sums, width);
}

static ALWAYS_INLINE void stream_rows(const product *t, const operand *b, dra_dtype type,
                                      int64_t rows, float *sums, int64_t width)
{
    switch (rows) {
    case 1: stream_chain(*t, b, type, 1, sums, width); break;
    case 2: stream_chain(*t, b, type, 2, sums, width); break;
    case 3: stream_chain(*t, b, type, 3, sums, width); break;
    case 4: stream_chain(*t, b, type, 4, sums, width); break;
    case 5: stream_chain(*t, b, type, 5, sums, width); break;
    case 6: stream_chain(*t, b, type, 6, sums, width); break;
    case 7: stream_chain(*t, b, type, ROWS < 7 ? 1 : 7, sums, width); break;
    default: stream_chain(*t, b, type, ROWS < 8 ? 1 : 8, sums, width); break;
    }
}

/* One chain of some columns, added to c. */
static void multiply_chain(const product *t, const operand *b, int64_t rows, float *sums,
                           int64_t width)
{
    if (b->dtype == DRA_BF16)
        stream_rows(t, b, DRA_BF16, rows, sums, width);
    else if (b->dtype == DRA_F16)
        stream_rows(t, b, DRA_F16, rows, sums, width);
    else
        stream_rows(t, b, DRA_F32, rows, sums, width);
    stream_rest(t, b, rows, sums, width);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < t->columns; j += LANES) {
            const vf      sum = load(sums + i * width + j);
            const int64_t left = t->columns - j;
            float        *to = t->c + i * t->c_row + j;
            store_some(to, left, t->add ? load_some(to, left, vset(0)) + sum : sum);
        }
}

/* Few rows, and a B whose rows are contiguous: large, or of halves, which else are packed. */
static bool can_stream(const dra_gemm *g, const operand *b)
{
    return g->M > 0 && g->M <= ROWS && b->line == 1 && b->form == FLOATS &&
           !dra_is_quantised(b->dtype) && (g->K * g->N >= LARGE || is_half(b->dtype));
}

static void multiply_streams(const dra_gemm *g, const operand *A, const operand *B)
{
    _Alignas(64) float sums[CHAIN_SUMS], rows[ROWS * DEPTH];
    const int64_t      width = CHAIN_SUMS / g->M / LANES * LANES;
    for (int64_t column = 0; column < g->N; column += width)
        for (int64_t k = 0; k < g->K; k += DEPTH) {
            const operand a = part_of(A, 0, k), b = part_of(B, column, k);
            product       t = {.depth = g->K - k < DEPTH ? g->K - k : DEPTH,
                               .a = rows,
                               .c = g->c + column,
                               .c_row = g->c_row,
                               .columns = g->N - column < width ? g->N - column : width,
                               .add = g->accumulate || k > 0};
            for (int64_t i = 0; i < g->M; i++) {
                const operand row = part_of(&a, i, 0);
                pack_line(&row, t.depth, rows + i * DEPTH);
            }
            multiply_chain(&t, &b, g->M, sums, width);
        }
}

/* Multiplies some columns with B in place and returns how many; 0: B must be packed. */
static int64_t multiply_in_place(product *t, const operand *b, int64_t rows)
{
    const int64_t columns = t->columns;
    const int64_t widest = rows == 1 ? 8 * LANES : rows == 2 ? 4 * LANES : PANEL;
    int64_t       width = widest;
    while (width > LANES && columns < width) width /= 2;
    if (!is_plain(b) || b->line != 1 || columns < width) return 0;
    t->columns = width;
    if (width == 8 * LANES)
        multiply(t, 1, 8, AHEAD, false);
    else if (width == 4 * LANES && rows == 1)
        multiply(t, 1, 4, AHEAD, false);
    else if (width == 4 * LANES)
        multiply(t, 2, 4, AHEAD, false);
    else
        multiply_rows(t, rows);
    return width;
}

#endif
