/* Packing operands of the vector gemm. It multiplies packed elements: floats, or pairs of bf16,
 * elements k and k + 1, on levels that multiply pairs. They are made where operands are packed:
 * numbers stored in 16 bits widened, floats rounded to bf16 where the product asks for it.
 *
 * Both operands are lines along k: the rows of A, the columns of B. */
#ifndef DRA_SRC_GEMM_PACK_H
#define DRA_SRC_GEMM_PACK_H

#include "base/quant.h"
#include "device/simd.h"
#include "device/simd_vector.h"

#ifndef LEVEL_PAIRS /* vdot(), narrow() and join() of the level; never called without */
enum { LEVEL_PAIRS = false };
static inline vf vdot(vf a, vf b, vf sum) { return sum; }
static inline vf narrow(vf low, vf high) { return low; }
static inline vf join(vf low, vf high) { return low; }
#endif

enum { PANEL = 2 * LANES }; /* columns of a tile */

typedef enum form { FLOATS, ROUNDED, PAIRS } form; /* ROUNDED: floats that are bf16 */

typedef struct operand {
    const void *at;
    int64_t     line, k; /* steps from line to line and along it, in elements */
    dra_dtype   dtype;   /* bf16, f16, quantised, or else float */
    form        form;    /* of the packed elements to make */
    int64_t     first;   /* quantised: the element of the block `at` that is meant */
} operand;

/* Makes the compiler load again: what it keeps in registers would be spilled. */
#define COMPILER_BARRIER __asm__ volatile("" ::: "memory")

static inline bool is_half(dra_dtype t) { return t == DRA_BF16 || t == DRA_F16; }

static inline bool is_plain(const operand *o) /* its elements need no packing */
{
    return o->form == FLOATS && !is_half(o->dtype) && !dra_is_quantised(o->dtype);
}

static inline operand part_of(const operand *o, int64_t line, int64_t k)
{
    operand       p = *o;
    const int64_t size = is_half(o->dtype) ? 2 : 4, step = line * o->line + k * o->k;
    if (dra_is_quantised(o->dtype)) {
        p.first = (o->first + step) % (int64_t)dra_dtype_get(o->dtype)->block_elements;
        p.at = (const char *)o->at + dra_elements_bytes(o->dtype, o->first + step);
    } else {
        p.at = (const char *)o->at + step * size;
    }
    return p;
}

static inline int64_t packed_of(const operand *o, int64_t elements)
{
    return o->form == PAIRS ? (elements + 1) / 2 : elements;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static inline vf from_bf16(vh x) { return (vf)(__builtin_convertvector(x, vu) << 16); }

static inline vf round_to_bf16(vf x) /* to nearest even */
{
    const vu bits = (vu)x, up = bits + 0x7fffu + (bits >> 16 & 1u);
    return pick(not_a_number(x), (vf)((bits | 0x400000u) & 0xffff0000u), (vf)(up & 0xffff0000u));
}

/* n elements side by side, zeros from there on. */
static ALWAYS_INLINE vf read_some(dra_dtype t, const void *p, int64_t n)
{
    if (n <= 0) return vset(0);
    if (!is_half(t)) return load_some(p, n, vset(0));
    vh x = {0};
    if (n >= LANES)
        memcpy(&x, p, sizeof x);
    else
        memcpy(&x, p, (size_t)n * sizeof x[0]);
    return t == DRA_BF16 ? from_bf16(x) : from_f16(x);
}

static inline float read_one(dra_dtype t, const void *p, int64_t i)
{
    return t == DRA_BF16         ? dra_bf16_to_f32(((const uint16_t *)p)[i])
           : t == DRA_F16        ? dra_f16_to_f32(((const uint16_t *)p)[i])
           : dra_is_quantised(t) ? dra_dequantised(t, p, i)
                                 : ((const float *)p)[i];
}

static inline vf gather(const operand *o, int64_t n) /* one element of n lines */
{
    vf v = vset(0);
    for (int64_t i = 0; i < n && i < LANES; i++)
        v[i] = read_one(o->dtype, o->at, o->first + i * o->line);
    return v;
}

/* ---- along a line: elements k are contiguous ------------------------------------------------- */

/* LANES packed elements from n elements, zeros from there on. */
static ALWAYS_INLINE vf packed_at(dra_dtype t, form f, const void *p, int64_t n)
{
    const vf x = read_some(t, p, n);
    if (f == ROUNDED) return round_to_bf16(x);
    if (f == FLOATS) return x;
    return narrow(x, read_some(t, (const char *)p + LANES * (is_half(t) ? 2 : 4), n - LANES));
}

/* A line is packed in parts, one for each block of k: too short for the hardware prefetcher. So the
 * next part is fetched into the second cache meanwhile. */
static ALWAYS_INLINE void fetch_next(const char *p, int64_t part, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + part + i, 0, 2);
}

static ALWAYS_INLINE void along(dra_dtype t, form f, const char *p, int64_t n, float *to)
{
    const int64_t size = is_half(t) ? 2 : 4, each = f == PAIRS ? 2 * LANES : LANES;
    const int64_t all = n * size;
    for (; n >= each; n -= each, p += each * size, to += LANES) {
        store(to, packed_at(t, f, p, each));
        fetch_next(p, all, each * size);
    }
    if (n > 0) store_some(to, f == PAIRS ? (n + 1) / 2 : n, packed_at(t, f, p, n));
}

enum { DEQUANTISED = 256 }; /* elements of a line at a time; even, for pairs */

static void pack_along_quantised(const operand *o, int64_t n, float *to)
{
    float x[DEQUANTISED];
    for (int64_t k = 0; k < n; k += DEQUANTISED) {
        const int64_t some = n - k < DEQUANTISED ? n - k : DEQUANTISED;
        dra_dequantise(o->dtype, o->at, o->first + k, some, x);
        if (LEVEL_PAIRS && o->form == PAIRS)
            along(DRA_F32, PAIRS, (const char *)x, some, to + k / 2);
        else
            along(DRA_F32, o->form, (const char *)x, some, to + k);
    }
}

/* The n first elements of the first line, packed. */
static void pack_along(const operand *o, int64_t n, float *to)
{
    if (dra_is_quantised(o->dtype))
        pack_along_quantised(o, n, to);
    else if (is_half(o->dtype))
        along(o->dtype, o->form, o->at, n, to);
    else if (LEVEL_PAIRS && o->form == PAIRS)
        along(DRA_F32, PAIRS, o->at, n, to);
    else
        along(DRA_F32, o->form, o->at, n, to);
}

/* ---- across lines ---------------------------------------------------------------------------- */

/* The first packed element of up to LANES lines; `two`: there is a second element for a pair. */
static ALWAYS_INLINE vf across(const operand *o, dra_dtype t, form f, bool side_by_side,
                               int64_t lines, bool two)
{
    const operand next = part_of(o, 0, 1);
    vf            x = side_by_side ? read_some(t, o->at, lines) : gather(o, lines);
    if (f == PAIRS) {
        vf y = vset(0);
        if (two) y = side_by_side ? read_some(t, next.at, lines) : gather(&next, lines);
        x = join(x, y);
    }
    return f == ROUNDED ? round_to_bf16(x) : x;
}

static ALWAYS_INLINE void pack_across(const operand *o, dra_dtype t, form f, bool side_by_side,
                                      int64_t lines, int64_t depth, float *to, int64_t step,
                                      int64_t width)
{
    operand       at = *o;
    const int64_t each = f == PAIRS ? 2 : 1;
    for (int64_t k = 0; k < depth; k += each, to += step) {
        store_some(to, width, across(&at, t, f, side_by_side, lines, k + 1 < depth));
        at = part_of(&at, 0, each);
    }
}

/* to[w step + i] = packed element w of line i for i < width <= LANES, zeros for lines that are not
 * there. */
static void pack_lines(const operand *o, int64_t lines, int64_t depth, float *to, int64_t step,
                       int64_t width)
{
    if (o->line != 1 || dra_is_quantised(o->dtype))
        pack_across(o, o->dtype, o->form, false, lines, depth, to, step, width);
    else if (is_plain(o))
        pack_across(o, DRA_F32, FLOATS, true, lines, depth, to, step, width);
    else if (LEVEL_PAIRS && o->form == PAIRS && !is_half(o->dtype))
        pack_across(o, DRA_F32, PAIRS, true, lines, depth, to, step, width);
    else
        pack_across(o, o->dtype, o->form, true, lines, depth, to, step, width);
}

/* The first line packed, wherever its elements are. */
static void pack_line(const operand *o, int64_t n, float *to)
{
    if (o->k == 1)
        pack_along(o, n, to);
    else
        pack_lines(o, 1, n, to, 1, 1);
}

/* ---- transposing: lines whose elements are contiguous ---------------------------------------- */

/* to[w step + i] = packed element w of line i, for LANES lines: all that fill whole transpose
 * tiles. Returns how many elements of each line that were. */
static ALWAYS_INLINE int64_t transpose_tiles(const operand *o, dra_dtype t, form f, int64_t depth,
                                             float *to, int64_t step)
{
    const int64_t each = f == PAIRS ? 2 * LANES : LANES, size = is_half(t) ? 2 : 4;
    int64_t       k = 0;
    for (; k + each <= depth; k += each, to += LANES * step) {
        vf x[LANES];
        UNROLL
        for (int j = 0; j < LANES; j++) {
            const char *p = (const char *)o->at + (j * o->line + k) * size;
            x[j] = packed_at(t, f, p, each);
            fetch_next(p, depth * size, each * size);
        }
        transpose_tile(x);
        UNROLL
        for (int j = 0; j < LANES; j++) store(to + j * step, x[j]);
    }
    return k;
}

static int64_t transpose_lines(const operand *o, int64_t depth, float *to, int64_t step)
{
    if (is_plain(o)) return transpose_tiles(o, DRA_F32, FLOATS, depth, to, step);
    if (LEVEL_PAIRS && o->form == PAIRS && !is_half(o->dtype))
        return transpose_tiles(o, DRA_F32, PAIRS, depth, to, step);
    if (is_half(o->dtype)) return transpose_tiles(o, o->dtype, o->form, depth, to, step);
    return transpose_tiles(o, DRA_F32, o->form, depth, to, step);
}

/* to[w PANEL + i] = packed element w of line i, up to LANES lines. */
static void pack_some(const operand *o, int64_t lines, int64_t depth, float *to)
{
    const bool    whole = o->k == 1 && lines >= LANES;
    const int64_t done = whole ? transpose_lines(o, depth, to, PANEL) : 0;
    const operand rest = part_of(o, 0, done);
    pack_lines(&rest, lines, depth - done, to + packed_of(o, done) * PANEL, PANEL, LANES);
}

#include "device/gemm_quant.h"

/* The same of quantised lines along k, as floats first. */
static void pack_dequantised(const operand *o, int64_t lines, int64_t depth, float *to)
{
    float         x[LANES * DEQUANTISED];
    const operand floats = {x, DEQUANTISED, 1, DRA_F32, o->form, 0};
    const int64_t n = lines < LANES ? lines : LANES;
    for (int64_t k = 0; k < depth; k += DEQUANTISED) {
        const int64_t some = depth - k < DEQUANTISED ? depth - k : DEQUANTISED;
        for (int64_t i = 0; i < n; i++) {
            const operand line = part_of(o, i, k);
            dra_dequantise(o->dtype, line.at, line.first, some, x + i * DEQUANTISED);
        }
        pack_some(&floats, n, some, to + packed_of(o, k) * PANEL);
    }
}

/* `columns` lines of B side by side: panel[w PANEL + i], up to the next multiple of LANES. */
static void pack_panel(const operand *o, int64_t columns, int64_t depth, float *panel)
{
    for (int64_t j = 0; j < columns; j += LANES) {
        const operand part = part_of(o, j, 0);
        if (!dra_is_quantised(o->dtype) || o->k != 1)
            pack_some(&part, columns - j, depth, panel + j);
        else if (columns - j >= LANES && has_chains(&part, depth))
            pack_quantised(&part, depth, panel + j);
        else
            pack_dequantised(&part, columns - j, depth, panel + j);
    }
}

#endif
