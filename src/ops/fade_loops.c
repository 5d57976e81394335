/* Walks along decays by channel, see fade_loops.h. One source for all levels: in plain C a vector
 * is one number. */
#include "ops/fade_loops.h"

#include <float.h>

#include "device/simd_level.h"

#ifdef LEVEL_REF

typedef dra_real vf;
enum { WIDE = 1 }; /* channels of a vector */
#define UNROLL
#define ALWAYS_INLINE inline

static vf   vset(double x) { return (vf)x; }
static vf   vfma(vf a, vf b, vf c) { return a * b + c; }
static vf   load_some(const dra_real *p, int64_t left, vf rest) { return *p; }
static void store_some(dra_real *p, int64_t left, vf v) { *p = v; }

static void fold_sums_of(int64_t n, const vf *sum, dra_real *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = sum[i];
}

static vf keep_normal(vf x)
{
    return x < (sizeof(vf) == sizeof(float) ? (vf)FLT_MIN : (vf)DBL_MIN) ? 0 : x;
}

#else

enum { WIDE = LANES };

/* The sums of the lanes of n vectors, WIDE of them at once; there is room for whole ones. */
static inline void fold_sums_of(int64_t n, vf *sum, float *to)
{
    for (int64_t i = 0; i < n; i += WIDE) {
        vf *x = sum + i;
        transpose_tile(x);
        for (int half = WIDE / 2; half > 0; half /= 2)
            for (int j = 0; j < half; j++) x[j] = x[j] + x[j + half];
        store(to + i, x[0]);
    }
}

static inline vf keep_normal(vf x) { return pick(less(x, vset(FLT_MIN)), vset(0), x); }

#endif

static inline vf row_at(const dra_real *p, int64_t row, int64_t step, int64_t i, int64_t left)
{
    return load_some(p + row * step + i, left, vset(0));
}

static inline void put_row(dra_real *p, int64_t left, bool add, vf x)
{
    store_some(p, left, add ? load_some(p, left, vset(0)) + x : x);
}

/* Products of decays are chains: several vectors of channels walk side by side. `many` is a
 * constant where it is called. */
enum { SIDE = 4 };

static ALWAYS_INLINE void walk_columns(const dra_fade_walk *w, int64_t i, int many)
{
    vf e[SIDE];
    UNROLL
    for (int c = 0; c < many; c++) e[c] = vset(1);
    for (int64_t t = 0; t < w->n; t++) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE, left = w->F - at;
            store_some(w->to + t * w->to_row + at, left,
                       e[c] * row_at(w->x, t, w->x_row, at, left));
            e[c] = keep_normal(e[c] * row_at(w->d, t, w->d_row, at, left));
        }
    }
}

static void walk(const dra_fade_walk *w)
{
    int64_t i = 0;
    for (; i + SIDE * WIDE <= w->F; i += SIDE * WIDE) walk_columns(w, i, SIDE);
    for (; i < w->F; i += WIDE) walk_columns(w, i, 1);
}

static ALWAYS_INLINE void back_columns(const dra_fade_walk *w, int64_t i, int many)
{
    vf e[DRA_CHUNK + 1][SIDE], sum[SIDE];
    UNROLL
    for (int c = 0; c < many; c++) e[0][c] = vset(1), sum[c] = vset(0);
    for (int64_t t = 0; t < w->n; t++) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE, left = w->F - at;
            e[t + 1][c] = keep_normal(e[t][c] * row_at(w->d, t, w->d_row, at, left));
        }
    }
    for (int64_t t = w->n - 1; t >= 0; t--) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE, left = w->F - at;
            const vf      part = e[t][c] * row_at(w->raw, t, w->raw_row, at, left);
            put_row(w->to + t * w->to_row + at, left, !w->first, part);
            if (!w->dl) continue;
            put_row(w->dl + t * w->dl_row + at, left, !w->first_dl, sum[c]);
            sum[c] = vfma(row_at(w->x, t, w->x_row, at, left), part, sum[c]);
        }
    }
}

static void walk_back(const dra_fade_walk *w)
{
    int64_t i = 0;
    for (; i + SIDE * WIDE <= w->F; i += SIDE * WIDE) back_columns(w, i, SIDE);
    for (; i < w->F; i += WIDE) back_columns(w, i, 1);
}

enum { FEW = DRA_FADE_FEW, KEYS = DRA_FADE_KEYS };

enum { FEW_PAIRS = FEW * (FEW - 1) / 2, FEW_SUMS = (KEYS * FEW_PAIRS + WIDE - 1) / WIDE * WIDE };

/* The number of pair s < t. */
static inline int64_t pair_of(int64_t t, int64_t s) { return t * (t - 1) / 2 + s; }

static void few(const dra_fade_few *p)
{
    const int64_t pairs = pair_of(p->n, 0);
    vf            sum[FEW_SUMS];
    dra_real      folded[FEW_SUMS];
    for (int i = 0; i < FEW_SUMS; i++) sum[i] = vset(0);
    for (int64_t i = 0; i < p->F; i += WIDE) {
        const int64_t left = p->F - i;
        vf            e[FEW];
        for (int64_t t = 0; t < p->n; t++) {
            const vf x = row_at(p->x, t, p->x_row, i, left), d = row_at(p->d, t, p->d_row, i, left);
            for (int64_t s = 0; s < t; s++) {
                const vf seen = x * e[s];
                for (int j = 0; j < p->keys; j++) {
                    vf *to = &sum[j * pairs + pair_of(t, s)];
                    *to = vfma(seen, row_at(p->z[j], s, p->z_row[j], i, left), *to);
                }
                e[s] = keep_normal(e[s] * d);
            }
            e[t] = vset(1);
        }
    }
    fold_sums_of(p->keys * pairs, sum, folded);
    for (int j = 0; j < p->keys; j++)
        for (int64_t t = 0; t < p->n; t++)
            for (int64_t s = 0; s < t; s++)
                p->A[j][t * DRA_CHUNK + s] = folded[j * pairs + pair_of(t, s)];
}

static void few_back(const dra_fade_few *p)
{
    for (int64_t i = 0; i < p->F; i += WIDE) {
        const int64_t left = p->F - i;
        vf            e[FEW], dl[FEW], dz[KEYS][FEW];
        for (int64_t t = 0; t < p->n; t++) {
            const vf x = row_at(p->x, t, p->x_row, i, left), d = row_at(p->d, t, p->d_row, i, left);
            vf       dx = vset(0), through = vset(0);
            for (int64_t s = 0; s < t; s++) {
                const vf seen = x * e[s];
                vf       own = vset(0);
                for (int j = 0; j < p->keys; j++) {
                    const vf a = vset(p->A[j][t * DRA_CHUNK + s]);
                    own = vfma(a, row_at(p->z[j], s, p->z_row[j], i, left), own);
                    dz[j][s] = vfma(a, seen, dz[j][s]);
                }
                own = own * e[s];
                dx = dx + own;
                through = vfma(x, own, through);
                if (s + 1 < t) dl[s + 1] = dl[s + 1] + through;
                e[s] = keep_normal(e[s] * d);
            }
            e[t] = vset(1);
            dl[t] = vset(0);
            for (int j = 0; j < p->keys; j++) dz[j][t] = vset(0);
            put_row(p->dx + t * p->dx_row + i, left, true, dx);
        }
        for (int64_t t = 0; t < p->n; t++) {
            for (int j = 0; j < p->keys; j++)
                put_row(p->dz[j] + t * p->dz_row[j] + i, left, true, dz[j][t]);
            if (p->dl) put_row(p->dl + t * p->dl_row + i, left, true, dl[t]);
        }
    }
}

const dra_fade_loops LEVEL_NAMED(dra_fade_loops) = {walk, walk_back, few, few_back};
