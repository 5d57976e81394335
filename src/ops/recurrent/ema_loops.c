/* An ema over a run of tokens, see ema.c. */
#include "ops/recurrent/ema_loops.h"

#include "device/simd_level.h"

#ifndef LEVEL_REF

#include "ops/recurrent/recur_vector.h"

static inline vf move_toward(vf m, vf r, vf x) { return vfma(r, x - m, m); }

static void ema_forward(const dra_ema_run *run)
{
    const dra_ema_run s = *run; /* a copy that no store can change */
    const vf          zero = vset(0);
    for (int64_t i = 0; i < s.n; i += LANES) {
        const int64_t left = s.n - i;
        const vf      r = load_some(s.r + i, left, zero), w = load_or(s.w, i, left, vset(1));
        vf            m = load_some(s.m + i, left, zero);
        for (int64_t t = 0; t < s.T; t++) {
            const int32_t mark = mark_at(s.mark, t);
            float        *y = s.y ? s.y + t * s.y_row + i : NULL;
            fetch(s.x + t * s.x_row + i, way_on(i, s.n, s.T * s.x_row), 0);
            if (y) fetch(y, way_on(i, s.n, s.T * s.y_row), 1);
            if (mark & DRA_MARK_RESET) m = zero;
            if (!(mark & DRA_MARK_PAD))
                m = move_toward(m, r, load_some(s.x + t * s.x_row + i, left, zero));
            if (y) store_some(y, left, vfma(w, m, s.add ? load_some(y, left, zero) : zero));
        }
        store_some(s.m + i, left, m);
    }
}

static void ema_back(const dra_ema_back_run *run)
{
    const dra_ema_back_run s = *run;
    const vf               zero = vset(0);
    for (int64_t i = 0; i < s.n; i += LANES) {
        const int64_t left = s.n - i;
        const vf      r = load_some(s.r + i, left, zero), w = load_or(s.w, i, left, vset(1));
        vf            dm = load_some(s.dm + i, left, zero), dr = zero, dw = zero;
        vf            m[DRA_RUN + 1]; /* before each token, and after the last */
        vf            way[DRA_RUN];   /* x less the state before it, then what becomes of x */
        m[0] = load_some(s.m + i, left, zero);
        for (int64_t t = 0; t < s.T; t++) {
            const int32_t mark = mark_at(s.mark, t);
            const vf      old = mark & DRA_MARK_RESET ? zero : m[t];
            const bool    pad = mark & DRA_MARK_PAD;
            fetch(s.x + t * s.x_row + i, way_on(i, s.n, -DRA_RUN * s.x_row), 0);
            way[t] = load_some(s.x + t * s.x_row + i, left, zero) - old;
            m[t + 1] = pad ? old : vfma(r, way[t], old);
        }
        for (int64_t t = s.T - 1; t >= 0; t--) {
            const int32_t mark = mark_at(s.mark, t);
            const vf      dy = load_some(s.dy + t * s.dy_row + i, left, zero);
            vf            own = zero; /* of x */
            fetch(s.dy + t * s.dy_row + i, way_on(i, s.n, -DRA_RUN * s.dy_row), 0);
            dm = vfma(w, dy, dm);
            dw = vfma(dy, m[t + 1], dw);
            if (!(mark & DRA_MARK_PAD)) {
                own = vfma(r, dm, zero);
                dr = vfma(dm, way[t], dr);
                dm = dm - own;
            }
            way[t] = own;
            if (mark & DRA_MARK_RESET) dm = zero;
        }
        if (s.dx)
            store_column(s.T, way, s.dx + i, s.dx_row, left, s.add,
                         way_on(i, s.n, -DRA_RUN * s.dx_row));
        store_some(s.dm + i, left, dm);
        add_to(s.dr + i, left, dr);
        add_to(s.dw + i, left, dw);
    }
}

#else

static int32_t mark_at(const int32_t *mark, int64_t t) { return mark ? mark[t] : 0; }

static dra_real move_toward(dra_real m, dra_real r, dra_real x) { return m + r * (x - m); }

static void ema_forward(const dra_ema_run *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        dra_real m = s->m[i];
        for (int64_t t = 0; t < s->T; t++) {
            const int32_t mark = mark_at(s->mark, t);
            if (mark & DRA_MARK_RESET) m = 0;
            if (!(mark & DRA_MARK_PAD)) m = move_toward(m, s->r[i], s->x[t * s->x_row + i]);
            if (!s->y) continue;
            dra_real      *y = s->y + t * s->y_row + i;
            const dra_real part = s->w ? s->w[i] * m : m;
            *y = s->add ? *y + part : part;
        }
        s->m[i] = m;
    }
}

static void ema_back(const dra_ema_back_run *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        const dra_real r = s->r[i], w = s->w ? s->w[i] : 1;
        dra_real       dm = s->dm[i], dr = 0, dw = 0;
        dra_real       m[DRA_RUN + 1] = {s->m[i]}; /* before each token, and after the last */
        for (int64_t t = 0; t < s->T; t++) {
            const int32_t  mark = mark_at(s->mark, t);
            const dra_real old = mark & DRA_MARK_RESET ? 0 : m[t];
            m[t + 1] = mark & DRA_MARK_PAD ? old : move_toward(old, r, s->x[t * s->x_row + i]);
        }
        for (int64_t t = s->T - 1; t >= 0; t--) {
            const int32_t  mark = mark_at(s->mark, t);
            const dra_real old = mark & DRA_MARK_RESET ? 0 : m[t], dy = s->dy[t * s->dy_row + i];
            dra_real      *dx = s->dx ? s->dx + t * s->dx_row + i : NULL, own = 0;
            dm += w * dy;
            dw += dy * m[t + 1];
            if (!(mark & DRA_MARK_PAD)) {
                own = r * dm;
                dr += dm * (s->x[t * s->x_row + i] - old);
                dm -= own;
            }
            if (dx) *dx = s->add ? *dx + own : own;
            if (mark & DRA_MARK_RESET) dm = 0;
        }
        s->dm[i] = dm;
        s->dr[i] += dr;
        s->dw[i] += dw;
    }
}

#endif

const dra_ema_loops LEVEL_NAMED(dra_ema_loops) = {.forward = ema_forward, .back = ema_back};
