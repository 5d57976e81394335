/* Walks along decays by channel, see fade_loops.h. One source for all levels: in plain C a vector
 * is one number. */
#include "ops/chunked/fade_loops.h"

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
 * are constants where these are called, and so is `left`, the channels of a vector that are there,
 * but for the last; what is walked comes by value, or all of it would be read again after each
 * store. */
enum { SIDE = 4 };

static ALWAYS_INLINE void walk_columns(const dra_fade_walk w, int64_t i, int many, int lanes,
                                       int64_t left)
{
    vf e[SIDE];
    UNROLL
    for (int c = 0; c < many; c++) e[c] = vset(1);
    for (int64_t t = 0; t < w.n; t++) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE;
            UNROLL
            for (int j = 0; j < lanes; j++) {
                const dra_fade_lane l = w.lane[j];
                store_some(l.to + t * l.to_row + at, left,
                           e[c] * row_at(l.x, t, l.x_row, at, left));
            }
            e[c] = keep_normal(e[c] * row_at(w.d, t, w.d_row, at, left));
        }
    }
}

static ALWAYS_INLINE void walk_lanes(const dra_fade_walk *w, int lanes)
{
    int64_t i = 0;
    for (; i + SIDE * WIDE <= w->F; i += SIDE * WIDE) walk_columns(*w, i, SIDE, lanes, WIDE);
    for (; i + 2 * WIDE <= w->F; i += 2 * WIDE) walk_columns(*w, i, 2, lanes, WIDE);
    for (; i < w->F; i += WIDE) walk_columns(*w, i, 1, lanes, w->F - i);
}

static void walk_channels(const dra_fade_walk *w)
{
    if (w->lanes == 1)
        walk_lanes(w, 1);
    else
        walk_lanes(w, 2);
}

static ALWAYS_INLINE void back_columns(const dra_fade_walk w, int64_t i, int many, int lanes,
                                       int64_t left)
{
    vf e[DRA_DPLR_CHUNK + 1][SIDE], sum[SIDE];
    UNROLL
    for (int c = 0; c < many; c++) e[0][c] = vset(1), sum[c] = vset(0);
    for (int64_t t = 0; t < w.n; t++) {
        UNROLL
        for (int c = 0; c < many; c++)
            e[t + 1][c] = keep_normal(e[t][c] * row_at(w.d, t, w.d_row, i + c * WIDE, left));
    }
    for (int64_t t = w.n - 1; t >= 0; t--) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE;
            if (w.dl) put_row(w.dl + t * w.dl_row + at, left, !w.first_dl, sum[c]);
            UNROLL
            for (int j = 0; j < lanes; j++) {
                const dra_fade_lane l = w.lane[j];
                const vf            part = e[t][c] * row_at(l.raw, t, l.raw_row, at, left);
                put_row(l.to + t * l.to_row + at, left, !w.first, part);
                sum[c] = vfma(row_at(l.x, t, l.x_row, at, left), part, sum[c]);
            }
        }
    }
}

static ALWAYS_INLINE void back_lanes(const dra_fade_walk *w, int lanes)
{
    int64_t i = 0;
    for (; i + SIDE * WIDE <= w->F; i += SIDE * WIDE) back_columns(*w, i, SIDE, lanes, WIDE);
    for (; i + 2 * WIDE <= w->F; i += 2 * WIDE) back_columns(*w, i, 2, lanes, WIDE);
    for (; i < w->F; i += WIDE) back_columns(*w, i, 1, lanes, w->F - i);
}

static void walk_channels_back(const dra_fade_walk *w)
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

/* `many` vectors of channels of all sums: those of readers and keys come after each other. */
static ALWAYS_INLINE void add_few(const dra_fade_few p, int64_t i, int many, int readers, int keys,
                                  int64_t left, vf *sum)
{
    const int64_t pairs = pair_of(p.n, 0);
    vf            e[FEW][2], d[2], x[READERS][2];
    for (int64_t t = 0; t < p.n; t++) {
        UNROLL
        for (int c = 0; c < many; c++) {
            const int64_t at = i + c * WIDE;
            d[c] = row_at(p.d, t, p.d_row, at, left);
            UNROLL
            for (int r = 0; r < readers; r++) x[r][c] = row_at(p.x[r], t, p.x_row[r], at, left);
        }
        for (int64_t s = 0; s < t; s++) {
            vf *to = sum + pair_of(t, s), own[READERS][KEYS];
            UNROLL
            for (int r = 0; r < readers; r++) {
                UNROLL
                for (int j = 0; j < keys; j++) own[r][j] = i ? to[(r * keys + j) * pairs] : vset(0);
            }
            UNROLL
            for (int c = 0; c < many; c++) {
                UNROLL
                for (int j = 0; j < keys; j++) {
                    const vf z = e[s][c] * row_at(p.z[j], s, p.z_row[j], i + c * WIDE, left);
                    UNROLL
                    for (int r = 0; r < readers; r++) own[r][j] = vfma(x[r][c], z, own[r][j]);
                }
                e[s][c] = keep_normal(e[s][c] * d[c]);
            }
            UNROLL
            for (int r = 0; r < readers; r++) {
                UNROLL
                for (int j = 0; j < keys; j++) to[(r * keys + j) * pairs] = own[r][j];
            }
        }
        UNROLL
        for (int c = 0; c < many; c++) e[t][c] = vset(1);
    }
}

static ALWAYS_INLINE void sum_few_of(const dra_fade_few *p, int readers, int keys)
{
    const int64_t pairs = pair_of(p->n, 0), many = readers * keys * pairs;
    vf            sum[FEW_SUMS];
    dra_real      folded[FEW_SUMS];
    int64_t       i = 0;
    /* The first channels make the sums; without any these are 0. */
    for (int64_t k = p->F > 0 ? many : 0; k < (many + WIDE - 1) / WIDE * WIDE; k++)
        sum[k] = vset(0);
    for (; i + 2 * WIDE <= p->F; i += 2 * WIDE) add_few(*p, i, 2, readers, keys, WIDE, sum);
    for (; i < p->F; i += WIDE) add_few(*p, i, 1, readers, keys, p->F - i, sum);
    fold_sums_of(many, sum, folded);
    for (int r = 0; r < readers; r++)
        for (int j = 0; j < keys; j++)
            for (int64_t t = 0; t < p->n; t++)
                for (int64_t s = 0; s < t; s++)
                    p->A[r][j][t * DRA_CHUNK + s] = folded[(r * keys + j) * pairs + pair_of(t, s)];
}

static void sum_few(const dra_fade_few *p)
{
    if (p->readers == 2 && p->keys == 2)
        sum_few_of(p, 2, 2);
    else if (p->readers == 2)
        sum_few_of(p, 2, 1);
    else if (p->keys == 2)
        sum_few_of(p, 1, 2);
    else
        sum_few_of(p, 1, 1);
}

typedef struct few_sums { /* of some channels: gradients of all writers, and of l */
    vf e[FEW], dl[FEW], dz[KEYS][FEW];
} few_sums;

/* Pairs of the readers of token t with the writers before it. */
static ALWAYS_INLINE void back_token(const dra_fade_few p, int64_t i, int64_t left, int64_t t,
                                     int readers, int keys, few_sums *to)
{
    const vf d = row_at(p.d, t, p.d_row, i, left);
    vf       x[READERS], dx[READERS], through = vset(0);
    UNROLL
    for (int r = 0; r < readers; r++) {
        x[r] = row_at(p.x[r], t, p.x_row[r], i, left);
        dx[r] = vset(0);
    }
    for (int64_t s = 0; s < t; s++) {
        UNROLL
        for (int r = 0; r < readers; r++) {
            const vf seen = x[r] * to->e[s];
            vf       own = vset(0);
            UNROLL
            for (int j = 0; j < keys; j++) {
                const vf a = vset(p.A[r][j][t * DRA_CHUNK + s]);
                own = vfma(a, row_at(p.z[j], s, p.z_row[j], i, left), own);
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
    for (int r = 0; r < readers; r++) put_row(p.dx[r] + t * p.dx_row[r] + i, left, true, dx[r]);
}

static ALWAYS_INLINE void back_few(const dra_fade_few p, int64_t i, int readers, int keys,
                                   int64_t left)
{
    few_sums sums;
    for (int64_t t = 0; t < p.n; t++) {
        back_token(p, i, left, t, readers, keys, &sums);
        sums.e[t] = vset(1);
        sums.dl[t] = vset(0);
        UNROLL
        for (int j = 0; j < keys; j++) sums.dz[j][t] = vset(0);
    }
    for (int64_t t = 0; t < p.n; t++) {
        UNROLL
        for (int j = 0; j < keys; j++)
            put_row(p.dz[j] + t * p.dz_row[j] + i, left, true, sums.dz[j][t]);
        if (p.dl) put_row(p.dl + t * p.dl_row + i, left, true, sums.dl[t]);
    }
}

static ALWAYS_INLINE void sum_few_back_of(const dra_fade_few *p, int readers, int keys)
{
    int64_t i = 0;
    for (; i + WIDE <= p->F; i += WIDE) back_few(*p, i, readers, keys, WIDE);
    if (i < p->F) back_few(*p, i, readers, keys, p->F - i);
}

/* Gradients come from all readers and keys: one of each, or two. */
static void sum_few_back(const dra_fade_few *p)
{
    if (p->readers == 2)
        sum_few_back_of(p, 2, 2);
    else
        sum_few_back_of(p, 1, 1);
}

/* ---- a token and its own write, and decays --------------------------------------------------- */

static void fold_decays(int64_t n, int64_t F, const dra_real *d, const dra_real *l, int64_t l_row,
                        dra_real *all, dra_real *less)
{
    for (int64_t i = 0; i < F; i += WIDE) {
        const int64_t left = F - i;
        vf            product = vset(1), sum = vset(0);
        for (int64_t t = 0; t < n; t++) {
            product = product * row_at(d, t, F, i, left);
            sum = sum + row_at(l, t, l_row, i, left);
        }
        store_some(all + i, left, product);
        store_some(less + i, left, sum);
    }
}

static void scale_rows(int64_t n, int64_t F, const dra_real *d, const dra_real *q, int64_t q_row,
                       dra_real *to)
{
    for (int64_t t = 0; t < n; t++)
        for (int64_t i = 0; i < F; i += WIDE)
            store_some(to + t * F + i, F - i,
                       row_at(q, t, q_row, i, F - i) * row_at(d, t, F, i, F - i));
}

enum { OWN_SUMS = (KEYS * DRA_DPLR_CHUNK + WIDE - 1) / WIDE * WIDE };

static ALWAYS_INLINE vf own_part(const dra_fade_own *p, int64_t i, int64_t t, int j, int64_t left,
                                 vf sum)
{
    vf q = row_at(p->q, t, p->q_row, i, left);
    if (p->u) q = q * row_at(p->u, 0, 0, i, left);
    return vfma(q, row_at(p->z[j], t, p->z_row[j], i, left), sum);
}

static void dot_own(const dra_fade_own *p)
{
    const int64_t many = p->keys * p->n;
    vf            sum[OWN_SUMS];
    dra_real      folded[OWN_SUMS];
    for (int64_t i = many; i < (many + WIDE - 1) / WIDE * WIDE; i++) sum[i] = vset(0);
    for (int j = 0; j < p->keys; j++)
        for (int64_t t = 0; t < p->n; t++) {
            vf      all = vset(0);
            int64_t i = 0;
            for (; i + WIDE <= p->F; i += WIDE) all = own_part(p, i, t, j, WIDE, all);
            if (i < p->F) all = own_part(p, i, t, j, p->F - i, all);
            sum[j * p->n + t] = all;
        }
    fold_sums_of(many, sum, folded);
    for (int j = 0; j < p->keys; j++)
        for (int64_t t = 0; t < p->n; t++) p->A[j][t * DRA_CHUNK + t] = folded[j * p->n + t];
}

static ALWAYS_INLINE void own_back_columns(const dra_fade_own p, int64_t i, int keys, int64_t left)
{
    for (int64_t t = 0; t < p.n; t++) {
        const vf q = row_at(p.q, t, p.q_row, i, left), dx = row_at(p.to, t, p.to_row, i, left);
        vf       dq = row_at(p.d, t, p.F, i, left) * dx;
        if (p.dl) put_row(p.dl + t * p.dl_row + i, left, true, row_at(p.x, t, p.F, i, left) * dx);
        UNROLL
        for (int j = 0; j < keys; j++) {
            const vf g = vset(p.A[j][t * DRA_CHUNK + t]);
            dq = vfma(g, row_at(p.z[j], t, p.z_row[j], i, left), dq);
            put_row(p.dz[j] + t * p.dz_row[j] + i, left, true, g * q);
        }
        store_some(p.to + t * p.to_row + i, left, dq);
    }
}

static ALWAYS_INLINE void dot_own_back_of(const dra_fade_own *p, int keys)
{
    int64_t i = 0;
    for (; i + WIDE <= p->F; i += WIDE) own_back_columns(*p, i, keys, WIDE);
    if (i < p->F) own_back_columns(*p, i, keys, p->F - i);
}

static void dot_own_back(const dra_fade_own *p)
{
    if (p->keys == 1)
        dot_own_back_of(p, 1);
    else
        dot_own_back_of(p, 2);
}

/* ---- a token alone --------------------------------------------------------------------------- */

static ALWAYS_INLINE vf fade_value(const dra_fade_step *s, int64_t f, vf x)
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
            vf            x = vfma(vset(s->k[f]), v[c], fade_value(s, f, old));
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

static void step_state(const dra_fade_step *s)
{
    int64_t i = 0;
    for (; i + SIDE * WIDE <= s->E; i += SIDE * WIDE) step_columns(s, i, SIDE);
    for (; i < s->E; i += WIDE) step_columns(s, i, 1);
}

const dra_fade_loops LEVEL_NAMED(dra_fade_loops) = {fold_decays,  scale_rows,    dot_own,
                                                    dot_own_back, walk_channels, walk_channels_back,
                                                    sum_few,      sum_few_back,  step_state};
