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

/* Products of decays are chains: several vectors of channels walk side by side. `many` and `lanes`
 * are constants where these are called. */
enum { SIDE = 4 };

static ALWAYS_INLINE void walk_columns(const dra_fade_walk *w, int64_t i, int many, int lanes)
{
    vf e[SIDE];
    UNROLL
    for (int c = 0; c < many; c++) e[c] = vset(1);
    for (int64_t t = 0; t < w->n; t++) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE, left = w->F - at;
            UNROLL
            for (int j = 0; j < lanes; j++) {
                const dra_fade_lane *l = &w->lane[j];
                store_some(l->to + t * l->to_row + at, left,
                           e[c] * row_at(l->x, t, l->x_row, at, left));
            }
            e[c] = keep_normal(e[c] * row_at(w->d, t, w->d_row, at, left));
        }
    }
}

static ALWAYS_INLINE void walk_lanes(const dra_fade_walk *w, int lanes)
{
    int64_t i = 0;
    for (; i + SIDE * WIDE <= w->F; i += SIDE * WIDE) walk_columns(w, i, SIDE, lanes);
    for (; i + 2 * WIDE <= w->F; i += 2 * WIDE) walk_columns(w, i, 2, lanes);
    for (; i < w->F; i += WIDE) walk_columns(w, i, 1, lanes);
}

static void walk(const dra_fade_walk *w)
{
    if (w->lanes == 1)
        walk_lanes(w, 1);
    else
        walk_lanes(w, 2);
}

static ALWAYS_INLINE void back_columns(const dra_fade_walk *w, int64_t i, int many, int lanes)
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
            if (w->dl) put_row(w->dl + t * w->dl_row + at, left, !w->first_dl, sum[c]);
            UNROLL
            for (int j = 0; j < lanes; j++) {
                const dra_fade_lane *l = &w->lane[j];
                const vf             part = e[t][c] * row_at(l->raw, t, l->raw_row, at, left);
                put_row(l->to + t * l->to_row + at, left, !w->first, part);
                sum[c] = vfma(row_at(l->x, t, l->x_row, at, left), part, sum[c]);
            }
        }
    }
}

static ALWAYS_INLINE void back_lanes(const dra_fade_walk *w, int lanes)
{
    int64_t i = 0;
    for (; i + SIDE * WIDE <= w->F; i += SIDE * WIDE) back_columns(w, i, SIDE, lanes);
    for (; i + 2 * WIDE <= w->F; i += 2 * WIDE) back_columns(w, i, 2, lanes);
    for (; i < w->F; i += WIDE) back_columns(w, i, 1, lanes);
}

static void walk_back(const dra_fade_walk *w)
{
    if (w->lanes == 1)
        back_lanes(w, 1);
    else
        back_lanes(w, 2);
}

enum { FEW = DRA_FADE_FEW, KEYS = DRA_FADE_KEYS, READERS = DRA_FADE_READERS };

enum {
    FEW_PAIRS = FEW * (FEW - 1) / 2,
    FEW_SUMS = (READERS * KEYS * FEW_PAIRS + WIDE - 1) / WIDE * WIDE
};

/* The number of pair s < t. */
static inline int64_t pair_of(int64_t t, int64_t s) { return t * (t - 1) / 2 + s; }

/* Some channels of all sums: those of readers and keys come after each other. */
static ALWAYS_INLINE void add_few(const dra_fade_few *p, int64_t i, int readers, int keys, vf *sum)
{
    const int64_t left = p->F - i, pairs = pair_of(p->n, 0);
    vf            e[FEW], x[READERS];
    for (int64_t t = 0; t < p->n; t++) {
        const vf d = row_at(p->d, t, p->d_row, i, left);
        UNROLL
        for (int r = 0; r < readers; r++) x[r] = row_at(p->x[r], t, p->x_row[r], i, left);
        for (int64_t s = 0; s < t; s++) {
            vf *to = sum + pair_of(t, s);
            UNROLL
            for (int j = 0; j < keys; j++) {
                const vf z = e[s] * row_at(p->z[j], s, p->z_row[j], i, left);
                UNROLL
                for (int r = 0; r < readers; r++) {
                    vf *own = to + (r * keys + j) * pairs;
                    *own = vfma(x[r], z, *own);
                }
            }
            e[s] = keep_normal(e[s] * d);
        }
        e[t] = vset(1);
    }
}

static ALWAYS_INLINE void few_of(const dra_fade_few *p, int readers, int keys)
{
    const int64_t pairs = pair_of(p->n, 0), many = readers * keys * pairs;
    vf            sum[FEW_SUMS];
    dra_real      folded[FEW_SUMS];
    for (int64_t i = 0; i < (many + WIDE - 1) / WIDE * WIDE; i++) sum[i] = vset(0);
    for (int64_t i = 0; i < p->F; i += WIDE) add_few(p, i, readers, keys, sum);
    fold_sums_of(many, sum, folded);
    for (int r = 0; r < readers; r++)
        for (int j = 0; j < keys; j++)
            for (int64_t t = 0; t < p->n; t++)
                for (int64_t s = 0; s < t; s++)
                    p->A[r][j][t * DRA_CHUNK + s] = folded[(r * keys + j) * pairs + pair_of(t, s)];
}

static void few(const dra_fade_few *p)
{
    if (p->readers == 2 && p->keys == 2)
        few_of(p, 2, 2);
    else if (p->readers == 2)
        few_of(p, 2, 1);
    else if (p->keys == 2)
        few_of(p, 1, 2);
    else
        few_of(p, 1, 1);
}

typedef struct few_sums { /* of some channels: gradients of all writers, and of l */
    vf e[FEW], dl[FEW], dz[KEYS][FEW];
} few_sums;

/* What the readers of token t have to do with writers before it. */
static ALWAYS_INLINE void back_token(const dra_fade_few *p, int64_t i, int64_t t, int readers,
                                     int keys, few_sums *to)
{
    const int64_t left = p->F - i;
    const vf      d = row_at(p->d, t, p->d_row, i, left);
    vf            x[READERS], dx[READERS], through = vset(0);
    UNROLL
    for (int r = 0; r < readers; r++) {
        x[r] = row_at(p->x[r], t, p->x_row[r], i, left);
        dx[r] = vset(0);
    }
    for (int64_t s = 0; s < t; s++) {
        UNROLL
        for (int r = 0; r < readers; r++) {
            const vf seen = x[r] * to->e[s];
            vf       own = vset(0);
            UNROLL
            for (int j = 0; j < keys; j++) {
                const vf a = vset(p->A[r][j][t * DRA_CHUNK + s]);
                own = vfma(a, row_at(p->z[j], s, p->z_row[j], i, left), own);
                to->dz[j][s] = vfma(a, seen, to->dz[j][s]);
            }
            own = own * to->e[s];
            dx[r] = dx[r] + own;
            through = vfma(x[r], own, through);
        }
        if (s + 1 < t) to->dl[s + 1] = to->dl[s + 1] + through;
        to->e[s] = keep_normal(to->e[s] * d);
    }
    UNROLL
    for (int r = 0; r < readers; r++) put_row(p->dx[r] + t * p->dx_row[r] + i, left, true, dx[r]);
}

static ALWAYS_INLINE void few_back_of(const dra_fade_few *p, int readers, int keys)
{
    for (int64_t i = 0; i < p->F; i += WIDE) {
        const int64_t left = p->F - i;
        few_sums      sums;
        for (int64_t t = 0; t < p->n; t++) {
            back_token(p, i, t, readers, keys, &sums);
            sums.e[t] = vset(1);
            sums.dl[t] = vset(0);
            for (int j = 0; j < keys; j++) sums.dz[j][t] = vset(0);
        }
        for (int64_t t = 0; t < p->n; t++) {
            for (int j = 0; j < keys; j++)
                put_row(p->dz[j] + t * p->dz_row[j] + i, left, true, sums.dz[j][t]);
            if (p->dl) put_row(p->dl + t * p->dl_row + i, left, true, sums.dl[t]);
        }
    }
}

/* Gradients come of all readers and keys that there are: one of each, or two. */
static void few_back(const dra_fade_few *p)
{
    if (p->readers == 2)
        few_back_of(p, 2, 2);
    else
        few_back_of(p, 1, 1);
}

static ALWAYS_INLINE vf faded(const dra_fade_step *s, int64_t f, vf x)
{
    if (s->less[f] != -1) return vfma(vset(s->less[f]), x, x);
    return s->whole[f] == 0 ? vset(0) : vset(s->whole[f]) * x;
}

static ALWAYS_INLINE void step_columns(const dra_fade_step *s, int64_t i, int many)
{
    vf p[SIDE], v[SIDE], y[SIDE];
    UNROLL
    for (int c = 0; c < many; c++) {
        p[c] = y[c] = vset(0);
        v[c] = row_at(s->v, 0, 0, i + c * WIDE, s->E - i - c * WIDE);
    }
    for (int64_t f = 0; f < s->F && s->a; f++) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE;
            p[c] = vfma(vset(s->a[f]), row_at(s->S, f, s->E, at, s->E - at), p[c]);
        }
    }
    for (int64_t f = 0; f < s->F; f++) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE, left = s->E - at;
            const vf      old = row_at(s->S, f, s->E, at, left);
            vf            x = vfma(vset(s->k[f]), v[c], faded(s, f, old));
            if (s->c) x = vfma(vset(s->c[f]), p[c], x);
            store_some(s->S + f * s->E + at, left, x);
            y[c] = vfma(vset(s->q[f]), s->before ? old : x, y[c]);
        }
    }
    UNROLL
    for (int c = 0; c < many; c++) {
        const int64_t at = i + c * WIDE, left = s->E - at;
        if (s->before) y[c] = vfma(vset(s->bonus), v[c], y[c]);
        if (s->y) store_some(s->y + at, left, y[c]);
        if (s->p) store_some(s->p + at, left, p[c]);
    }
}

static void step(const dra_fade_step *s)
{
    int64_t i = 0;
    for (; i + SIDE * WIDE <= s->E; i += SIDE * WIDE) step_columns(s, i, SIDE);
    for (; i < s->E; i += WIDE) step_columns(s, i, 1);
}

const dra_fade_loops LEVEL_NAMED(dra_fade_loops) = {walk, walk_back, few, few_back, step};
