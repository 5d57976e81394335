/* Vector loops of recurrent cells: products with the weights, and the walk over units and rows. The
 * gates are in cell_loops.c.
 *
 * Every sum of a product is a chain of FMAs over k, ascending, so a row's bits do not depend on the
 * rows computed with it. A step prefetches what the next token reads and writes: with the gates,
 * between products; backward, where all gates come first, during the product. */
#ifndef DRA_SRC_OPS_RECURRENT_CELL_PRODUCTS_H
#define DRA_SRC_OPS_RECURRENT_CELL_PRODUCTS_H

#include "device/simd_vector.h"
#include "ops/recurrent/cell_loops.h"

/* Rows at once: 3 sums of each and the weights fill the 16 or 32 registers. With 4 sums
 * of each, 3 rows fill 16; of 32, two halves of 8 rows do better than 6 and 2 (Zen 4, D 64: 64 and
 * 62 % of peak). */
enum { BAND = ROWS < 8 ? 4 : 8, BAND_4 = ROWS < 8 ? 3 : 4, MOST_SUMS = 4, LINE = 64 /* bytes */ };
_Static_assert((int)BAND <= (int)DRA_CELL_ROWS, "a band is part of a step");
_Static_assert((int)DRA_CELL_UNITS % LANES == 0, "a block of weights is whole vectors");

#define NEVER_INLINE __attribute__((noinline))

/* ---- memory of the next token, a line at a time, into the second cache ----------------------- */

typedef struct span {
    uintptr_t at, end; /* may be outside the arrays */
} span;

typedef struct spans {
    span now, waiting[4 * DRA_CELL_ROWS];
    int  n;
} spans;

/* What p[0..n) is for this token, of the next one. */
static inline void spans_add(spans *s, const float *p, int64_t n, int64_t ahead)
{
    const uintptr_t at = (uintptr_t)p + (uintptr_t)(ahead * n) * sizeof *p;
    s->waiting[s->n++] = (span){at, at + (uintptr_t)n * sizeof *p};
}

/* All at once they would stop everything else: there are hundreds, for some twenty buffers. Spread
 * over the product they cost little (backward at D 64 and T 4096, Zen 4: 57 % of peak without,
 * 67 % all at once, 76 % like this). */
static ALWAYS_INLINE void spans_fetch(spans *s, span *now)
{
    if (now->at >= now->end) {
        if (s->n == 0) return;
        *now = s->waiting[--s->n];
    }
    __builtin_prefetch((const void *)now->at, 0, 2);
    now->at += LINE;
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct factor { /* the weights: rows for each k, some vectors of each */
    const float *w;
    int64_t      K, row, apart;
} factor;

/* sum += x w; rows x vectors is a constant where this is called: all sums live in registers. */
static ALWAYS_INLINE void add_products(factor f, const float *const *x, int rows, int vectors,
                                       vf (*sum)[MOST_SUMS], spans *next)
{
    span now = next ? next->now : (span){0};
    for (int64_t k = 0; k < f.K; k++, f.w += f.row) {
        vf column[MOST_SUMS];
        UNROLL
        for (int j = 0; j < vectors; j++) column[j] = load(f.w + j * f.apart);
        if (next) spans_fetch(next, &now);
        UNROLL
        for (int i = 0; i < rows; i++) {
            const vf number = vset(x[i][k]);
            UNROLL
            for (int j = 0; j < vectors; j++) sum[i][j] = vfma(number, column[j], sum[i][j]);
        }
    }
    if (next) next->now = now;
}

/* u[i][gate] = b + w h for LANES units from `unit` on and rows from `first` on. */
static ALWAYS_INLINE void sum_gates(const dra_cell_step *s, int64_t unit, int64_t first, int rows,
                                    int gates, vf (*u)[MOST_SUMS])
{
    const int64_t whole = unit / DRA_CELL_UNITS * DRA_CELL_UNITS; /* units of blocks before */
    const float  *x[BAND];
    vf            sum[BAND][MOST_SUMS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        x[i] = s->h[first + i];
        UNROLL
        for (int j = 0; j < gates; j++)
            sum[i][j] = load_some(s->b + j * s->D + unit, s->D - unit, vset(0));
    }
    add_products((factor){.w = s->w + whole * gates * s->D + unit % DRA_CELL_UNITS,
                          .K = s->D,
                          .row = gates * DRA_CELL_UNITS,
                          .apart = DRA_CELL_UNITS},
                 x, rows, gates, sum, NULL);
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < gates; j++) u[i][j] = sum[i][j];
    }
}

/* The same for as many rows as there are, at most `band`. */
static ALWAYS_INLINE void sum_rows(const dra_cell_step *s, int64_t unit, int64_t first,
                                   int64_t rows, int band, int gates, vf (*u)[MOST_SUMS])
{
    switch (rows) {
    case 1: sum_gates(s, unit, first, 1, gates, u); break;
    case 2: sum_gates(s, unit, first, 2, gates, u); break;
    case 3: sum_gates(s, unit, first, band < 3 ? 1 : 3, gates, u); break;
    case 4: sum_gates(s, unit, first, band < 4 ? 1 : 4, gates, u); break;
    case 5: sum_gates(s, unit, first, band < 5 ? 1 : 5, gates, u); break;
    case 6: sum_gates(s, unit, first, band < 6 ? 1 : 6, gates, u); break;
    case 7: sum_gates(s, unit, first, band < 7 ? 1 : 7, gates, u); break;
    default: sum_gates(s, unit, first, band, gates, u); break;
    }
}

typedef void (*sum_function)(const dra_cell_step *s, int64_t unit, int64_t first, int64_t rows,
                             vf (*u)[MOST_SUMS]);
typedef void (*gates_function)(const dra_cell_step *s, int64_t unit, int64_t first, int64_t rows,
                               const vf (*u)[MOST_SUMS]);

/* Neither is to be inlined: sums and constants of the gates want the same registers. */
static ALWAYS_INLINE void each_band(const dra_cell_step *s, int band, sum_function products,
                                    gates_function gates)
{
    vf u[BAND][MOST_SUMS];
    for (int64_t unit = 0; unit < s->D; unit += LANES)
        for (int64_t first = 0; first < s->rows; first += band) {
            const int64_t left = s->rows - first, rows = left < band ? left : band;
            products(s, unit, first, rows, u);
            gates(s, unit, first, rows, (const vf(*)[MOST_SUMS])u);
        }
}

/* d += w^T du for some vectors of units from `unit` on. */
static ALWAYS_INLINE void pass_units(const dra_cell_back *s, int64_t unit, int64_t first, int rows,
                                     int vectors, int gates, spans *next)
{
    const float *x[BAND];
    vf           sum[BAND][MOST_SUMS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        x[i] = s->du[first + i];
        UNROLL
        for (int j = 0; j < vectors; j++) {
            const int64_t at = unit + j * LANES;
            sum[i][j] = load_some(s->d[first + i] + at, s->D - at, vset(0));
        }
    }
    add_products((factor){.w = s->w + unit, .K = gates * s->D, .row = s->w_row, .apart = LANES}, x,
                 rows, vectors, sum, next);
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            const int64_t at = unit + j * LANES;
            store_some(s->d[first + i] + at, s->D - at, sum[i][j]);
        }
    }
}

static ALWAYS_INLINE void pass_rows(const dra_cell_back *s, int64_t unit, int64_t first,
                                    int vectors, int gates, spans *next)
{
    switch (s->rows - first) {
    case 1: pass_units(s, unit, first, 1, vectors, gates, next); break;
    case 2: pass_units(s, unit, first, 2, vectors, gates, next); break;
    case 3: pass_units(s, unit, first, 3, vectors, gates, next); break;
    case 4: pass_units(s, unit, first, 4, vectors, gates, next); break;
    case 5: pass_units(s, unit, first, BAND < 5 ? BAND : 5, vectors, gates, next); break;
    case 6: pass_units(s, unit, first, BAND < 6 ? BAND : 6, vectors, gates, next); break;
    case 7: pass_units(s, unit, first, BAND < 7 ? BAND : 7, vectors, gates, next); break;
    default: pass_units(s, unit, first, BAND, vectors, gates, next); break;
    }
}

static NEVER_INLINE void pass_back(const dra_cell_back *s, int gates, spans *next)
{
    for (int64_t unit = 0; unit < s->D; unit += 2 * LANES)
        for (int64_t first = 0; first < s->rows; first += BAND)
            if (s->D - unit > LANES)
                pass_rows(s, unit, first, 2, gates, next);
            else
                pass_rows(s, unit, first, 1, gates, next);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* `gates_back` makes du and the rest of row i, LANES units of it, and adds du to db. */
static ALWAYS_INLINE void each_unit_back(const dra_cell_back *step, int gates, int kept,
                                         void (*gates_back)(const dra_cell_back *s, int64_t unit,
                                                            int64_t i, vf *db))
{
    const dra_cell_back s = *step; /* a copy that no store can change */
    spans               next = {.n = 0};
    for (int64_t unit = 0; unit < s.D; unit += LANES) {
        const int64_t left = s.D - unit;
        vf            db[MOST_SUMS];
        UNROLL
        for (int i = 0; i < gates; i++) db[i] = load_some(s.db + i * s.D + unit, left, vset(0));
        for (int64_t i = 0; i < s.rows; i++) gates_back(&s, unit, i, db);
        UNROLL
        for (int i = 0; i < gates; i++) store_some(s.db + i * s.D + unit, left, db[i]);
    }
    for (int64_t i = 0; i < s.rows; i++) {
        spans_add(&next, s.dx[i], gates * s.D, s.ahead);
        spans_add(&next, s.dy[i], s.D, s.ahead);
        spans_add(&next, s.h[i], s.D, s.ahead);
        spans_add(&next, s.kept[i], kept * s.D, s.ahead);
    }
    pass_back(&s, gates, &next);
}

#endif
