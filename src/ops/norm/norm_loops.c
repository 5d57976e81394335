/* The loops of norm_gain's gradient over one row, see norm_gain.c. */
#include "ops/norm/norm_loops.h"

#include "device/simd_level.h"

#ifndef LEVEL_REF

typedef struct norm_terms { /* n = (x - c - rest) r and t = dy w */
    vf n, t, dy;
} norm_terms;

/* The same place of the next row is fetched in both passes: the processor drops what it is too busy
 * for. Rows of 4096 bytes are a page each, where its own guesses start again: 72 % of a loop that
 * only moves these arrays without this, 105 % with it (Zen 4; 768 columns: 96, 112). */
static ALWAYS_INLINE norm_terms norm_at(const dra_norm_row *row, int64_t i, int64_t n)
{
    const vf x = load_some(row->x + i, n - i, vset(0)), dy = load_some(row->dy + i, n - i, vset(0));
    const vf w = load_some(row->w + i, n - i, vset(0));
    fetch(row->x, i + n, 0);
    fetch(row->dy, i + n, 0);
    fetch(row->dx, i + n, 1);
    return (norm_terms){(x - vset(row->c) - vset(row->rest)) * vset(row->r), dy * w, dy};
}

static float sum_terms(int64_t n, const dra_norm_row *row, float *dw, float *db, float *with_n)
{
    const dra_norm_row f = *row; /* a copy that no store can change */
    const vf           zero = vset(0);
    vf first[SUMS] = {zero, zero, zero, zero}, second[SUMS] = {zero, zero, zero, zero};
    for (int64_t i = 0; i < n; i += LANES) {
        const norm_terms e = norm_at(&f, i, n);
        store_some(dw + i, n - i, vfma(e.dy, e.n, load_some(dw + i, n - i, zero)));
        store_some(db + i, n - i, e.dy + load_some(db + i, n - i, zero));
        add_in_turn(first, e.t);
        add_in_turn(second, vfma(e.t, e.n, zero));
    }
    *with_n = fold_sums(second);
    return fold_sums(first);
}

static void write_dx(int64_t n, const dra_norm_row *row, float mean, float slope)
{
    const dra_norm_row f = *row;
    for (int64_t i = 0; i < n; i += LANES) {
        const norm_terms e = norm_at(&f, i, n);
        store_some(f.dx + i, n - i, vset(f.r) * vfma(vset(-slope), e.n, e.t - vset(mean)));
    }
}

#else

static dra_real sum_terms(int64_t n, const dra_norm_row *row, dra_real *dw, dra_real *db,
                          dra_real *with_n)
{
    dra_real first[LANES] = {0}, second[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        const dra_real dy = row->dy[i], t = dy * row->w[i];
        const dra_real norm = (row->x[i] - row->c - row->rest) * row->r;
        dw[i] += dy * norm;
        db[i] += dy;
        first[i % LANES] += t;
        second[i % LANES] += t * norm;
    }
    *with_n = fold(second);
    return fold(first);
}

static void write_dx(int64_t n, const dra_norm_row *row, dra_real mean, dra_real slope)
{
    for (int64_t i = 0; i < n; i++) {
        const dra_real norm = (row->x[i] - row->c - row->rest) * row->r;
        row->dx[i] = row->r * (row->dy[i] * row->w[i] - mean - slope * norm);
    }
}

#endif

const dra_norm_loops LEVEL_NAMED(dra_norm_loops) = {.sums = sum_terms, .back = write_dx};
