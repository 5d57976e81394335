/* wkv over a run of tokens, see wkv.c. */
#include "ops/recurrent/wkv_loops.h"

#include "device/simd_level.h"

#ifndef LEVEL_REF

#include "device/simd_math.h"
#include "ops/recurrent/recur_vector.h"

typedef struct weights {
    vf old, token;
} weights;

/* e^(a - q) and e^(b - q), q = max(a, b): one of the two is 1, the other e = e^-|a - b|. */
static inline weights share_weights(vf d, vf e) /* d = a - b */
{
    const vmask a_smaller = less(d, vset(0));
    return (weights){pick(a_smaller, e, vset(1)), pick(a_smaller, vset(1), e)};
}

static inline vf fade_by(vf d) { return v_exp(negative(absolute(d))); }

/* old a + token x */
static inline vf blend_token(weights m, vf a, vf x) { return vfma(m.old, a, m.token * x); }

typedef struct wkv_state {
    vf A, B, p;
} wkv_state;

static inline wkv_state wkv_load(const float *const *p, int64_t i, int64_t left)
{
    const vf zero = vset(0);
    return (wkv_state){load_some(p[0] + i, left, zero), load_some(p[1] + i, left, zero),
                       load_some(p[2] + i, left, zero)};
}

static inline wkv_state wkv_empty(void)
{
    return (wkv_state){vset(0), vset(0), vset(DRA_WKV_EMPTY)};
}

/* d = p + w - k, fade = e^-|d| */
static inline wkv_state wkv_next(wkv_state s, vf k, vf v, vf w, vf d, vf fade)
{
    const weights f = share_weights(d, fade);
    return (wkv_state){blend_token(f, s.A, v), blend_token(f, s.B, vset(1)), vmax(s.p + w, k)};
}

static void wkv_forward(const dra_wkv_run *run)
{
    const dra_wkv_run s = *run;
    const vf          zero = vset(0);
    for (int64_t i = 0; i < s.n; i += LANES) {
        const int64_t left = s.n - i;
        const vf      w = load_some(s.w + i, left, zero), u = load_some(s.u + i, left, zero);
        wkv_state     now = wkv_load((const float *const *)s.state, i, left);
        for (int64_t t = 0; t < s.T; t++) {
            const int32_t mark = mark_at(s.mark, t);
            vf            y = zero;
            fetch(s.k + t * s.k_row + i, way_on(i, s.n, s.T * s.k_row), 0);
            fetch(s.v + t * s.v_row + i, way_on(i, s.n, s.T * s.v_row), 0);
            if (s.y) fetch(s.y + t * s.y_row + i, way_on(i, s.n, s.T * s.y_row), 1);
            if (mark & DRA_MARK_RESET) now = wkv_empty();
            if (!(mark & DRA_MARK_PAD)) {
                const vf k = load_some(s.k + t * s.k_row + i, left, zero);
                const vf v = load_some(s.v + t * s.v_row + i, left, zero);
                const vf d = now.p + w - k;
                if (s.y) {
                    const vf      bonus = now.p - (u + k);
                    const weights e = share_weights(bonus, fade_by(bonus));
                    y = blend_token(e, now.A, v) / blend_token(e, now.B, vset(1));
                }
                now = wkv_next(now, k, v, w, d, fade_by(d));
            }
            if (s.y) store_some(s.y + t * s.y_row + i, left, y);
        }
        store_some(s.state[0] + i, left, now.A);
        store_some(s.state[1] + i, left, now.B);
        store_some(s.state[2] + i, left, now.p);
    }
}

/* What the backward pass needs of each token. */
typedef struct wkv_trace {
    wkv_state before[DRA_RUN];
    vf        fade[DRA_RUN];
} wkv_trace;

static inline void wkv_again(const dra_wkv_back_run *s, int64_t i, int64_t left, wkv_trace *trace)
{
    const vf  zero = vset(0), w = load_some(s->w + i, left, zero);
    wkv_state now = wkv_load(s->state, i, left);
    for (int64_t t = 0; t < s->T; t++) {
        const int32_t mark = mark_at(s->mark, t);
        fetch(s->k + t * s->k_row + i, way_on(i, s->n, -DRA_RUN * s->k_row), 0);
        fetch(s->v + t * s->v_row + i, way_on(i, s->n, -DRA_RUN * s->v_row), 0);
        if (mark & DRA_MARK_RESET) now = wkv_empty();
        trace->before[t] = now;
        if (mark & DRA_MARK_PAD) continue;
        const vf k = load_some(s->k + t * s->k_row + i, left, zero);
        const vf v = load_some(s->v + t * s->v_row + i, left, zero), d = now.p + w - k;
        trace->fade[t] = fade_by(d);
        now = wkv_next(now, k, v, w, d, trace->fade[t]);
    }
}

static void wkv_back(const dra_wkv_back_run *run)
{
    const dra_wkv_back_run s = *run;
    const vf               zero = vset(0);
    for (int64_t i = 0; i < s.n; i += LANES) {
        const int64_t left = s.n - i;
        const vf      w = load_some(s.w + i, left, zero), u = load_some(s.u + i, left, zero);
        vf            dA = load_some(s.dA + i, left, zero), dB = load_some(s.dB + i, left, zero);
        vf            dw = zero, du = zero;
        wkv_trace     trace;
        wkv_again(&s, i, left, &trace);
        for (int64_t t = s.T - 1; t >= 0; t--) {
            const int32_t mark = mark_at(s.mark, t);
            vf            dk = zero, dv = zero;
            fetch(s.dy + t * s.dy_row + i, way_on(i, s.n, -DRA_RUN * s.dy_row), 0);
            if (s.dk) fetch(s.dk + t * s.d_row + i, way_on(i, s.n, -DRA_RUN * s.d_row), 1);
            if (s.dv) fetch(s.dv + t * s.d_row + i, way_on(i, s.n, -DRA_RUN * s.d_row), 1);
            if (!(mark & DRA_MARK_PAD)) {
                const wkv_state now = trace.before[t];
                const vf        k = load_some(s.k + t * s.k_row + i, left, zero);
                const vf        v = load_some(s.v + t * s.v_row + i, left, zero);
                const vf        dy = load_some(s.dy + t * s.dy_row + i, left, zero);
                const vf        bonus = now.p - (u + k);
                const weights   e = share_weights(bonus, fade_by(bonus));
                const weights   f = share_weights(now.p + w - k, trace.fade[t]);
                const vf        share = 1 / blend_token(e, now.B, vset(1)), c = dy * share;
                const vf        y = blend_token(e, now.A, v) * share, far = v - y;
                const vf        own = c * e.token, kept = c * e.old;
                dv = vfma(f.token, dA, own);
                dk = vfma(f.token, vfma(dA, v, dB), vfma(own, far, zero));
                du = vfma(own, far, du);
                dw = vfma(f.old, vfma(now.A, dA, vfma(now.B, dB, zero)), dw);
                dA = vfma(f.old, dA, kept);
                dB = vfma(negative(kept), y, vfma(f.old, dB, zero));
            }
            if (s.dk) store_some(s.dk + t * s.d_row + i, left, dk);
            if (s.dv) store_some(s.dv + t * s.d_row + i, left, dv);
            if (mark & DRA_MARK_RESET) dA = dB = zero;
        }
        store_some(s.dA + i, left, dA);
        store_some(s.dB + i, left, dB);
        add_to(s.dw + i, left, dw);
        add_to(s.du + i, left, du);
    }
}

#else

static int32_t mark_at(const int32_t *mark, int64_t t) { return mark ? mark[t] : 0; }

typedef struct weights {
    dra_real old, token;
} weights;

/* e^(a - q) and e^(b - q), q = max(a, b): one of the two is 1, the other e^-|a - b|. */
static weights share_weights(dra_real d) /* a - b */
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
    const weights  f = share_weights(faded - k);
    return (wkv_state){f.old * s.A + f.token * v, f.old * s.B + f.token, faded > k ? faded : k};
}

static void wkv_forward(const dra_wkv_run *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        wkv_state now = {s->state[0][i], s->state[1][i], s->state[2][i]};
        for (int64_t t = 0; t < s->T; t++) {
            const int32_t mark = mark_at(s->mark, t);
            dra_real      y = 0;
            if (mark & DRA_MARK_RESET) now = wkv_empty;
            if (!(mark & DRA_MARK_PAD)) {
                const dra_real k = s->k[t * s->k_row + i], v = s->v[t * s->v_row + i];
                const weights  e = share_weights(now.p - (s->u[i] + k));
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
                const weights   e = share_weights(now.p - (s->u[i] + k)),
                              f = share_weights(now.p + s->w[i] - k);
                const dra_real share = 1 / (e.old * now.B + e.token);
                const dra_real c = s->dy[t * s->dy_row + i] * share;
                const dra_real far = v - (e.old * now.A + e.token * v) * share;
                const dra_real own = c * e.token, kept = c * e.old;
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

const dra_wkv_loops LEVEL_NAMED(dra_wkv_loops) = {.forward = wkv_forward, .back = wkv_back};
