/* Recurrences over time: part of simd_vector.h. One vector of channels after the other walks over
 * all tokens of a run with its state in registers; a run is short enough for the rows it passes to
 * stay in the cache until the last vector has come. Products and sums are put together by vfma()
 * alone, so that a result depends on its channel alone, however a row is cut. */
#ifndef DRA_SRC_SIMD_RECUR_H
#define DRA_SRC_SIMD_RECUR_H

static inline int32_t mark_at(const int32_t *mark, int64_t t) { return mark ? mark[t] : 0; }

/* n lanes of p as vector, zeros where there are none, or all `otherwise` without p. */
static inline vf load_or(const float *p, int64_t i, int64_t left, vf otherwise)
{
    return p ? load_some(p + i, left, vset(0)) : otherwise;
}

/* Where the walk comes COLUMNS_AHEAD vectors later, seen from channel i: in this run, or in the one
 * that lies `step` elements further. The processor does not foresee a walk down columns: without
 * this the way back through an ema takes 14 ms, with it 8 (8 x 4096 x 384, Zen 4). */
enum { COLUMNS_AHEAD = 2 };

static inline int64_t way_on(int64_t i, int64_t n, int64_t step)
{
    const int64_t later = i + COLUMNS_AHEAD * LANES, end = (n + LANES - 1) / LANES * LANES;
    return later < end ? later - i : step + later - end - i;
}

/* The results of a run, one vector of each row. On the way back they wait until all is read, and
 * nothing is read twice: rows a page apart share one place of the first cache, where those of
 * several arrays drive each other out (ema of 1024 channels: 40 ms, so 27; Zen 4). */
static inline void store_column(int64_t T, const vf *x, float *to, int64_t row, int64_t left,
                                bool add, int64_t next)
{
    for (int64_t t = T - 1; t >= 0; t--) {
        float *y = to + t * row;
        fetch(y, next, 1);
        store_some(y, left, add ? load_some(y, left, vset(0)) + x[t] : x[t]);
    }
}

static inline void add_to(float *sum, int64_t left, vf x)
{
    store_some(sum, left, load_some(sum, left, vset(0)) + x);
}

/* ---- ema: see src/ops/ema.c ------------------------------------------------------------------ */

static inline vf toward(vf m, vf r, vf x) { return vfma(r, x - m, m); }

static void ema(const dra_ema_run *run)
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
                m = toward(m, r, load_some(s.x + t * s.x_row + i, left, zero));
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

/* ---- wkv: see src/ops/wkv.c ------------------------------------------------------------------ */

typedef struct weights {
    vf old, token;
} weights;

/* e^(a - q) and e^(b - q), q = max(a, b): one of the two is 1, the other e = e^-|a - b|. */
static inline weights share_out(vf d, vf e) /* d = a - b */
{
    const vmask behind = less(d, vset(0));
    return (weights){pick(behind, e, vset(1)), pick(behind, vset(1), e)};
}

static inline vf fading(vf d) { return v_exp(negative(absolute(d))); }

/* old a + token x */
static inline vf blend(weights m, vf a, vf x) { return vfma(m.old, a, m.token * x); }

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
    const weights f = share_out(d, fade);
    return (wkv_state){blend(f, s.A, v), blend(f, s.B, vset(1)), vmax(s.p + w, k)};
}

static void wkv(const dra_wkv_run *run)
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
                    const weights e = share_out(bonus, fading(bonus));
                    y = blend(e, now.A, v) / blend(e, now.B, vset(1));
                }
                now = wkv_next(now, k, v, w, d, fading(d));
            }
            if (s.y) store_some(s.y + t * s.y_row + i, left, y);
        }
        store_some(s.state[0] + i, left, now.A);
        store_some(s.state[1] + i, left, now.B);
        store_some(s.state[2] + i, left, now.p);
    }
}

/* What the way back needs of each token. */
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
        trace->fade[t] = fading(d);
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
                const weights   e = share_out(bonus, fading(bonus));
                const weights   f = share_out(now.p + w - k, trace.fade[t]);
                const vf        share = 1 / blend(e, now.B, vset(1)), c = dy * share;
                const vf        y = blend(e, now.A, v) * share, far = v - y;
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

#endif
