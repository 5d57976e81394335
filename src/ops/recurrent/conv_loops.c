/* A causal convolution over a run of tokens, see conv.c. The window of the last W - 1 inputs is in
 * registers; widths that models have are compiled for, so that it stays there. */
#include "ops/recurrent/conv_loops.h"

#include "device/simd_level.h"

#ifndef LEVEL_REF

#include "ops/recurrent/recur_vector.h"

#define INLINE static inline __attribute__((always_inline))

enum { TAPS = DRA_CONV_TAPS };

INLINE void load_rows(int64_t rows, const float *from, int64_t row, int64_t left, vf *to)
{
    for (int64_t k = 0; k < rows; k++) to[k] = load_some(from + k * row, left, vset(0));
}

INLINE void store_rows(int64_t rows, const vf *from, float *to, int64_t row, int64_t left)
{
    for (int64_t k = 0; k < rows; k++) store_some(to + k * row, left, from[k]);
}

INLINE void clear_rows(int64_t rows, vf *x)
{
    for (int64_t k = 0; k < rows; k++) x[k] = vset(0);
}

/* The window after an input x. */
INLINE void push_input(int64_t W, vf *h, vf x)
{
    for (int64_t k = 0; k + 2 < W; k++) h[k] = h[k + 1];
    if (W > 1) h[W - 2] = x;
}

INLINE void run_forward(const dra_conv_run *run, int64_t W)
{
    const dra_conv_run s = *run; /* a copy that no store can change */
    for (int64_t i = 0; i < s.n; i += LANES) {
        const int64_t left = s.n - i;
        const vf      bias = load_or(s.bias, i, left, vset(0));
        vf            w[TAPS], h[TAPS];
        load_rows(W, s.w + i, s.w_row, left, w);
        load_rows(W - 1, s.h + i, s.h_row, left, h);
        for (int64_t t = 0; t < s.T; t++) {
            const int32_t mark = mark_at(s.mark, t);
            const float  *x = s.x + t * s.x_row + i;
            float        *y = s.y ? s.y + t * s.y_row + i : NULL;
            vf            sum = vset(0);
            fetch(x, way_on(i, s.n, s.T * s.x_row), 0);
            if (y) fetch(y, way_on(i, s.n, s.T * s.y_row), 1);
            if (mark & DRA_MARK_RESET) clear_rows(W - 1, h);
            if (!(mark & DRA_MARK_PAD)) {
                const vf now = load_some(x, left, vset(0));
                sum = bias;
                for (int64_t k = 0; k + 1 < W; k++) sum = vfma(w[k], h[k], sum);
                sum = vfma(w[W - 1], now, sum);
                push_input(W, h, now);
            }
            if (y) store_some(y, left, sum);
        }
        store_rows(W - 1, h, s.h + i, s.h_row, left);
    }
}

/* dy of the tokens that follow, the next one first, from a token on whose own is d. */
INLINE void push_upstream(int64_t W, vf *next, vf d)
{
    for (int64_t k = W - 1; k > 0; k--) next[k] = next[k - 1];
    next[0] = d;
}

INLINE void run_back(const dra_conv_back_run *run, int64_t W)
{
    const dra_conv_back_run s = *run;
    for (int64_t i = 0; i < s.n; i += LANES) {
        const int64_t left = s.n - i;
        vf            w[TAPS], dh[TAPS], next[TAPS], dw[TAPS], dx[DRA_RUN];
        vf            db = load_some(s.db + i, left, vset(0));
        load_rows(W, s.w + i, s.w_row, left, w);
        load_rows(W, s.dw + i, s.dw_row, left, dw);
        load_rows(W - 1, s.dh + i, s.h_row, left, dh);
        load_rows(W - 1, s.dy_next + i, s.h_row, left, next);
        for (int64_t t = s.T - 1; t >= 0; t--) {
            const int32_t mark = mark_at(s.mark, t);
            const float  *x = s.x + t * s.x_row + i;
            const float  *dy = s.dy ? s.dy + t * s.dy_row + i : NULL;
            fetch(x, way_on(i, s.n, -DRA_RUN * s.x_row), 0);
            if (dy) fetch(dy, way_on(i, s.n, -DRA_RUN * s.dy_row), 0);
            dx[t] = vset(0);
            if (!(mark & DRA_MARK_PAD)) {
                const vf d = load_or(dy, 0, left, vset(0)), now = load_some(x, left, vset(0));
                push_upstream(W, next, d);
                for (int64_t k = 0; k < W; k++) dw[W - 1 - k] = vfma(now, next[k], dw[W - 1 - k]);
                db += d;
                dx[t] = vfma(w[W - 1], d, W > 1 ? dh[W - 2] : vset(0));
                for (int64_t k = W - 2; k >= 0; k--)
                    dh[k] = vfma(w[k], d, k > 0 ? dh[k - 1] : vset(0));
            }
            if (mark & DRA_MARK_RESET) {
                clear_rows(W - 1, dh);
                clear_rows(W - 1, next);
            }
        }
        if (s.dx)
            store_column(s.T, dx, s.dx + i, s.dx_row, left, false,
                         way_on(i, s.n, -DRA_RUN * s.dx_row));
        store_rows(W, dw, s.dw + i, s.dw_row, left);
        store_rows(W - 1, dh, s.dh + i, s.h_row, left);
        store_rows(W - 1, next, s.dy_next + i, s.h_row, left);
        store_some(s.db + i, left, db);
    }
}

static void conv_forward(const dra_conv_run *s)
{
    switch (s->W) {
    case 3: run_forward(s, 3); return;
    case 4: run_forward(s, 4); return;
    default: run_forward(s, s->W);
    }
}

static void conv_back(const dra_conv_back_run *s)
{
    switch (s->W) {
    case 3: run_back(s, 3); return;
    case 4: run_back(s, 4); return;
    default: run_back(s, s->W);
    }
}

#else

static int32_t mark_at(const int32_t *mark, int64_t t) { return mark ? mark[t] : 0; }

static void clear_column(int64_t rows, dra_real *x, int64_t row)
{
    for (int64_t k = 0; k < rows; k++) x[k * row] = 0;
}

static void push_input(int64_t W, dra_real *h, int64_t row, dra_real x)
{
    for (int64_t k = 0; k + 2 < W; k++) h[k * row] = h[(k + 1) * row];
    if (W > 1) h[(W - 2) * row] = x;
}

static void conv_forward(const dra_conv_run *s)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t t = 0; t < s->T; t++) {
            const int32_t mark = mark_at(s->mark, t);
            dra_real     *h = s->h + i, sum = 0;
            if (mark & DRA_MARK_RESET) clear_column(s->W - 1, h, s->h_row);
            if (!(mark & DRA_MARK_PAD)) {
                const dra_real now = s->x[t * s->x_row + i];
                sum = s->bias ? s->bias[i] : 0;
                for (int64_t k = 0; k + 1 < s->W; k++)
                    sum += s->w[k * s->w_row + i] * h[k * s->h_row];
                sum += s->w[(s->W - 1) * s->w_row + i] * now;
                push_input(s->W, h, s->h_row, now);
            }
            if (s->y) s->y[t * s->y_row + i] = sum;
        }
}

/* dy of the tokens that follow, the next one first, from a token on whose own is d. */
static void add_taps(const dra_conv_back_run *s, int64_t i, dra_real x, dra_real d)
{
    const int64_t W = s->W, row = s->h_row;
    dra_real     *next = s->dy_next + i, *dw = s->dw + i;
    dw[(W - 1) * s->dw_row] += x * d;
    for (int64_t k = 1; k < W; k++) dw[(W - 1 - k) * s->dw_row] += x * next[(k - 1) * row];
    for (int64_t k = W - 2; k > 0; k--) next[k * row] = next[(k - 1) * row];
    if (W > 1) next[0] = d;
    s->db[i] += d;
}

static dra_real add_inputs(const dra_conv_back_run *s, int64_t i, dra_real d)
{
    const int64_t  W = s->W, row = s->h_row;
    dra_real      *dh = s->dh + i;
    const dra_real dx = s->w[(W - 1) * s->w_row + i] * d + (W > 1 ? dh[(W - 2) * row] : 0);
    for (int64_t k = W - 2; k >= 0; k--)
        dh[k * row] = s->w[k * s->w_row + i] * d + (k > 0 ? dh[(k - 1) * row] : 0);
    return dx;
}

static void conv_back(const dra_conv_back_run *s)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t t = s->T - 1; t >= 0; t--) {
            const int32_t  mark = mark_at(s->mark, t);
            const dra_real d = s->dy ? s->dy[t * s->dy_row + i] : 0;
            dra_real       dx = 0;
            if (!(mark & DRA_MARK_PAD)) {
                add_taps(s, i, s->x[t * s->x_row + i], d);
                dx = add_inputs(s, i, d);
            }
            if (mark & DRA_MARK_RESET) {
                clear_column(s->W - 1, s->dh + i, s->h_row);
                clear_column(s->W - 1, s->dy_next + i, s->h_row);
            }
            if (s->dx) s->dx[t * s->dx_row + i] = dx;
        }
}

#endif

const dra_conv_loops LEVEL_NAMED(dra_conv_loops) = {.forward = conv_forward, .back = conv_back};
