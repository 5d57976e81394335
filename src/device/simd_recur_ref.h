/* Recurrences over time in plain C, one channel after the other. Part of simd_ref.c. */
#ifndef DRA_SRC_SIMD_RECUR_REF_H
#define DRA_SRC_SIMD_RECUR_REF_H

static int32_t mark_at(const int32_t *mark, int64_t t) { return mark ? mark[t] : 0; }

/* ---- ema: see src/ops/ema.c ------------------------------------------------------------------ */

static dra_real toward(dra_real m, dra_real r, dra_real x) { return m + r * (x - m); }

static void ema(const dra_ema_run *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        dra_real m = s->m[i];
        for (int64_t t = 0; t < s->T; t++) {
            const int32_t mark = mark_at(s->mark, t);
            if (mark & DRA_MARK_RESET) m = 0;
            if (!(mark & DRA_MARK_PAD)) m = toward(m, s->r[i], s->x[t * s->x_row + i]);
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
            m[t + 1] = mark & DRA_MARK_PAD ? old : toward(old, r, s->x[t * s->x_row + i]);
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

/* ---- wkv: see src/ops/wkv.c ------------------------------------------------------------------ */

typedef struct weights {
    dra_real old, token;
} weights;

/* e^(a - q) and e^(b - q), q = max(a, b): one of the two is 1, the other e^-|a - b|. */
static weights weigh(dra_real d) /* a - b */
{
    const dra_real e = exponential(d < 0 ? d : -d);
    return d < 0 ? (weights){e, 1} : (weights){1, e};
}

typedef struct wkv_state {
    dra_real A, B, p;
} wkv_state;

static const wkv_state wkv_empty = {0, 0, DRA_WKV_EMPTY};

static wkv_state wkv_next(wkv_state s, dra_real k, dra_real v, dra_real w)
{
    const dra_real faded = s.p + w;
    const weights  f = weigh(faded - k);
    return (wkv_state){f.old * s.A + f.token * v, f.old * s.B + f.token, faded > k ? faded : k};
}

static void wkv(const dra_wkv_run *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        wkv_state now = {s->state[0][i], s->state[1][i], s->state[2][i]};
        for (int64_t t = 0; t < s->T; t++) {
            const int32_t mark = mark_at(s->mark, t);
            dra_real      y = 0;
            if (mark & DRA_MARK_RESET) now = wkv_empty;
            if (!(mark & DRA_MARK_PAD)) {
                const dra_real k = s->k[t * s->k_row + i], v = s->v[t * s->v_row + i];
                const weights  e = weigh(now.p - (s->u[i] + k));
                y = (e.old * now.A + e.token * v) / (e.old * now.B + e.token);
                now = wkv_next(now, k, v, s->w[i]);
            }
            if (s->y) s->y[t * s->y_row + i] = y;
        }
        s->state[0][i] = now.A, s->state[1][i] = now.B, s->state[2][i] = now.p;
    }
}

static void wkv_again(const dra_wkv_back_run *s, int64_t i, wkv_state *before)
{
    wkv_state now = {s->state[0][i], s->state[1][i], s->state[2][i]};
    for (int64_t t = 0; t < s->T; t++) {
        const int32_t mark = mark_at(s->mark, t);
        if (mark & DRA_MARK_RESET) now = wkv_empty;
        before[t] = now;
        if (!(mark & DRA_MARK_PAD))
            now = wkv_next(now, s->k[t * s->k_row + i], s->v[t * s->v_row + i], s->w[i]);
    }
}

static void wkv_back(const dra_wkv_back_run *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        wkv_state before[DRA_RUN];
        dra_real  dA = s->dA[i], dB = s->dB[i], dw = 0, du = 0;
        wkv_again(s, i, before);
        for (int64_t t = s->T - 1; t >= 0; t--) {
            const int32_t mark = mark_at(s->mark, t);
            dra_real      dk = 0, dv = 0;
            if (!(mark & DRA_MARK_PAD)) {
                const dra_real  k = s->k[t * s->k_row + i], v = s->v[t * s->v_row + i];
                const wkv_state now = before[t];
                const weights   e = weigh(now.p - (s->u[i] + k)), f = weigh(now.p + s->w[i] - k);
                const dra_real  share = 1 / (e.old * now.B + e.token);
                const dra_real  c = s->dy[t * s->dy_row + i] * share;
                const dra_real  far = v - (e.old * now.A + e.token * v) * share;
                const dra_real  own = c * e.token, kept = c * e.old;
                dv = own + f.token * dA;
                dk = own * far + f.token * (dA * v + dB);
                du += own * far;
                dw += f.old * (now.A * dA + now.B * dB);
                dA = f.old * dA + kept;
                dB = f.old * dB - kept * (v - far);
            }
            if (s->dk) s->dk[t * s->d_row + i] = dk;
            if (s->dv) s->dv[t * s->d_row + i] = dv;
            if (mark & DRA_MARK_RESET) dA = dB = 0;
        }
        s->dA[i] = dA, s->dB[i] = dB;
        s->dw[i] += dw, s->du[i] += du;
    }
}

#endif
