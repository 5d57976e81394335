/* Walks along decays by channel, see fade_loops.h. One source for all levels: in plain C a vector
 * is one number. */
#include "ops/fade_loops.h"

#include <float.h>

#include "device/simd_level.h"

#ifdef LEVEL_REF

typedef dra_real vf;
enum { WIDE = 1 }; /* channels side by side */

static vf   vset(double x) { return (vf)x; }
static vf   vfma(vf a, vf b, vf c) { return a * b + c; }
static vf   load_some(const dra_real *p, int64_t left, vf rest) { return *p; }
static void store_some(dra_real *p, int64_t left, vf v) { *p = v; }
static vf   fold_sum(vf v) { return v; }

static vf keep_normal(vf x)
{
    return x < (sizeof(vf) == sizeof(float) ? (vf)FLT_MIN : (vf)DBL_MIN) ? 0 : x;
}

#else

enum { WIDE = LANES };

static inline vf keep_normal(vf x) { return pick(less(x, vset(FLT_MIN)), vset(0), x); }

#endif

static inline vf at(const dra_real *p, int64_t row, int64_t step, int64_t i, int64_t left)
{
    return load_some(p + row * step + i, left, vset(0));
}

static inline void add_at(dra_real *p, int64_t left, vf x)
{
    store_some(p, left, load_some(p, left, vset(0)) + x);
}

static void walk(const dra_fade_walk *w)
{
    for (int64_t i = 0; i < w->F; i += WIDE) {
        const int64_t left = w->F - i;
        vf            e = vset(1);
        for (int64_t t = 0; t < w->n; t++) {
            store_some(w->to + t * w->to_row + i, left, e * at(w->x, t, w->x_row, i, left));
            e = keep_normal(e * at(w->d, t, w->d_row, i, left));
        }
        if (w->whole) store_some(w->whole + i, left, e);
    }
}

static void walk_back(const dra_fade_walk *w)
{
    for (int64_t i = 0; i < w->F; i += WIDE) {
        const int64_t left = w->F - i;
        vf            e[DRA_CHUNK], sum = vset(0);
        e[0] = vset(1);
        for (int64_t t = 1; t < w->n; t++)
            e[t] = keep_normal(e[t - 1] * at(w->d, t - 1, w->d_row, i, left));
        for (int64_t t = w->n - 1; t >= 0; t--) {
            const vf part = e[t] * at(w->raw, t, w->raw_row, i, left);
            add_at(w->to + t * w->to_row + i, left, part);
            if (!w->dl) continue;
            add_at(w->dl + t * w->dl_row + i, left, sum);
            sum = vfma(at(w->x, t, w->x_row, i, left), part, sum);
        }
    }
}

enum { FEW = DRA_FADE_FEW, KEYS = DRA_FADE_KEYS };

static void few(const dra_fade_few *p)
{
    vf sum[KEYS][FEW][FEW];
    for (int j = 0; j < p->keys; j++)
        for (int64_t t = 0; t < p->n; t++)
            for (int64_t s = 0; s < t; s++) sum[j][t][s] = vset(0);
    for (int64_t i = 0; i < p->F; i += WIDE) {
        const int64_t left = p->F - i;
        vf            e[FEW];
        for (int64_t t = 0; t < p->n; t++) {
            const vf x = at(p->x, t, p->x_row, i, left), d = at(p->d, t, p->d_row, i, left);
            for (int64_t s = 0; s < t; s++) {
                const vf seen = x * e[s];
                for (int j = 0; j < p->keys; j++)
                    sum[j][t][s] = vfma(seen, at(p->z[j], s, p->z_row[j], i, left), sum[j][t][s]);
                e[s] = keep_normal(e[s] * d);
            }
            e[t] = vset(1);
        }
    }
    for (int j = 0; j < p->keys; j++)
        for (int64_t t = 0; t < p->n; t++)
            for (int64_t s = 0; s < t; s++) p->A[j][t * DRA_CHUNK + s] = fold_sum(sum[j][t][s]);
}

static void few_back(const dra_fade_few *p)
{
    for (int64_t i = 0; i < p->F; i += WIDE) {
        const int64_t left = p->F - i;
        vf            e[FEW], dl[FEW], dz[KEYS][FEW];
        for (int64_t t = 0; t < p->n; t++) {
            const vf x = at(p->x, t, p->x_row, i, left), d = at(p->d, t, p->d_row, i, left);
            vf       dx = vset(0), through = vset(0);
            for (int64_t s = 0; s < t; s++) {
                const vf seen = x * e[s];
                vf       own = vset(0);
                for (int j = 0; j < p->keys; j++) {
                    const vf a = vset(p->A[j][t * DRA_CHUNK + s]);
                    own = vfma(a, at(p->z[j], s, p->z_row[j], i, left), own);
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
            add_at(p->dx + t * p->dx_row + i, left, dx);
        }
        for (int64_t t = 0; t < p->n; t++) {
            for (int j = 0; j < p->keys; j++)
                add_at(p->dz[j] + t * p->dz_row[j] + i, left, dz[j][t]);
            if (p->dl) add_at(p->dl + t * p->dl_row + i, left, dl[t]);
        }
    }
}

const dra_fade_loops LEVEL_NAMED(dra_fade_loops) = {walk, walk_back, few, few_back};
