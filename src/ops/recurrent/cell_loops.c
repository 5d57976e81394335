/* Steps of recurrent cells, forward and back: their gates, see gru.c and lstm.c; what is around
 * them is in cell_products.h. The plain forms are in cell_plain.h. */
#include "ops/recurrent/cell_loops.h"

#include "device/simd_level.h"

#ifdef LEVEL_REF
#include "ops/recurrent/cell_plain.h"
#else

#include "device/simd_math.h"
#include "ops/recurrent/cell_products.h"

/* 1 / (1 + e^-x), right to 2.5 units of the last place; 0 where e^-x overflows. */
static inline vf sigmoid_gate(vf x) { return 1 / (1 + v_exp(negative(x))); }

/* Prefetches the same place in the next token's row, which has `parts` parts of D. */
static ALWAYS_INLINE void fetch_token(const float *p, int64_t D, int64_t ahead, int parts,
                                      int write)
{
    UNROLL
    for (int i = 0; i < parts; i++) fetch(p + i * D, ahead * parts * D, write);
}

/* ---- gru ------------------------------------------------------------------------------------- */

static NEVER_INLINE void sum_3_gates(const dra_cell_step *s, int64_t unit, int64_t first,
                                     int64_t rows, vf (*u)[MOST_SUMS])
{
    sum_rows(s, unit, first, rows, BAND, 3, u);
}

static ALWAYS_INLINE void gru_gates(const dra_cell_step *s, int64_t unit, int64_t i, const vf *u)
{
    const int64_t D = s->D, left = D - unit;
    const vf      zero = vset(0), m = u[2];
    const float  *x = s->x[i] + unit;
    const vf      h = load_some(s->h[i] + unit, left, zero);
    const vf      r = sigmoid_gate(load_some(x, left, zero) + u[0]);
    const vf      fresh = sigmoid_gate(negative(load_some(x + D, left, zero) + u[1])); /* 1 - z */
    const vf      n = v_tanh(vfma(r, m, load_some(x + 2 * D, left, zero)));
    const vf      share = load_some(s->mix[i] + unit, left, zero) * fresh;
    store_some(s->to[i] + unit, left, vfma(share, n - h, h));
    fetch_token(x, D, s->ahead, 3, 0);
    fetch_token(s->to[i] + unit, D, s->ahead, 1, 1);
    if (!s->kept[i]) return;
    float *kept = s->kept[i] + unit;
    fetch_token(kept, D, s->ahead, 4, 1);
    store_some(kept, left, r);
    store_some(kept + D, left, fresh);
    store_some(kept + 2 * D, left, n);
    store_some(kept + 3 * D, left, m);
}

static NEVER_INLINE void gru_band(const dra_cell_step *s, int64_t unit, int64_t first, int64_t rows,
                                  const vf (*u)[MOST_SUMS])
{
    for (int64_t i = 0; i < rows; i++) gru_gates(s, unit, first + i, u[i]);
}

static void step_gru(const dra_cell_step *s) { each_band(s, BAND, sum_3_gates, gru_band); }

static ALWAYS_INLINE void gru_gates_back(const dra_cell_back *s, int64_t unit, int64_t i, vf *db)
{
    const int64_t D = s->D, left = D - unit;
    const vf      zero = vset(0);
    const float  *kept = s->kept[i] + unit;
    float        *d = s->d[i] + unit, *dx = s->dx[i] + unit, *du = s->du[i] + unit;
    float        *swing = s->swing[i] + unit;
    const vf      r = load_some(kept, left, zero), fresh = load_some(kept + D, left, zero);
    const vf      n = load_some(kept + 2 * D, left, zero), m = load_some(kept + 3 * D, left, zero);
    const vf      all = load_some(d, left, zero) + load_some(s->dy[i] + unit, left, zero);
    const vf      e = load_some(s->mix[i] + unit, left, zero) * fresh * all;
    const vf      q = e * (load_some(s->h[i] + unit, left, zero) - n);
    const vf      a_n = e * vfma(negative(n), n, vset(1)), b_n = r * a_n;
    const vf      a_z = q * (1 - fresh), a_r = m * (1 - r) * b_n;
    store_some(d, left, all - e);
    store_some(dx, left, a_r);
    store_some(dx + D, left, a_z);
    store_some(dx + 2 * D, left, a_n);
    store_some(du, left, a_r);
    store_some(du + D, left, a_z);
    store_some(du + 2 * D, left, b_n);
    store_some(swing, left, load_some(swing, left, zero) + q);
    db[0] += a_r;
    db[1] += a_z;
    db[2] += b_n;
}

static void step_gru_back(const dra_cell_back *s) { each_unit_back(s, 3, 4, gru_gates_back); }

/* ---- lstm ------------------------------------------------------------------------------------ */

static NEVER_INLINE void sum_4_gates(const dra_cell_step *s, int64_t unit, int64_t first,
                                     int64_t rows, vf (*u)[MOST_SUMS])
{
    sum_rows(s, unit, first, rows, BAND_4, 4, u);
}

static ALWAYS_INLINE void lstm_gates(const dra_cell_step *s, int64_t unit, int64_t row, const vf *u)
{
    const int64_t D = s->D, left = D - unit;
    const vf      zero = vset(0);
    const float  *x = s->x[row] + unit;
    float        *cell = s->c[row] + unit;
    const vf      h = load_some(s->h[row] + unit, left, zero), c = load_some(cell, left, zero);
    const vf      i = sigmoid_gate(load_some(x, left, zero) + u[0]);
    const vf      f = sigmoid_gate(load_some(x + D, left, zero) + u[1]);
    const vf      n = v_tanh(load_some(x + 2 * D, left, zero) + u[2]);
    const vf      o = sigmoid_gate(load_some(x + 3 * D, left, zero) + u[3]);
    const vf      fresh = vfma(f, c, i * n), tanh_c = v_tanh(fresh);
    const vf      mix = load_some(s->mix[row] + unit, left, zero);
    store_some(cell, left, fresh);
    store_some(s->to[row] + unit, left, vfma(mix, o * tanh_c - h, h));
    fetch_token(x, D, s->ahead, 4, 0);
    fetch_token(s->to[row] + unit, D, s->ahead, 1, 1);
    if (!s->kept[row]) return;
    float *kept = s->kept[row] + unit;
    fetch_token(kept, D, s->ahead, 6, 1);
    store_some(kept, left, i);
    store_some(kept + D, left, f);
    store_some(kept + 2 * D, left, n);
    store_some(kept + 3 * D, left, o);
    store_some(kept + 4 * D, left, tanh_c);
    store_some(kept + 5 * D, left, c);
}

static NEVER_INLINE void lstm_band(const dra_cell_step *s, int64_t unit, int64_t first,
                                   int64_t rows, const vf (*u)[MOST_SUMS])
{
    for (int64_t i = 0; i < rows; i++) lstm_gates(s, unit, first + i, u[i]);
}

static void step_lstm(const dra_cell_step *s) { each_band(s, BAND_4, sum_4_gates, lstm_band); }

static ALWAYS_INLINE void lstm_gates_back(const dra_cell_back *s, int64_t unit, int64_t row, vf *db)
{
    const int64_t D = s->D, left = D - unit;
    const vf      zero = vset(0), one = vset(1);
    const float  *kept = s->kept[row] + unit;
    float        *d = s->d[row] + unit, *dc = s->dc[row] + unit, *swing = s->swing[row] + unit;
    const vf      i = load_some(kept, left, zero), f = load_some(kept + D, left, zero);
    const vf      n = load_some(kept + 2 * D, left, zero), o = load_some(kept + 3 * D, left, zero);
    const vf tanh_c = load_some(kept + 4 * D, left, zero), c = load_some(kept + 5 * D, left, zero);
    const vf all = load_some(d, left, zero) + load_some(s->dy[row] + unit, left, zero);
    const vf e = load_some(s->mix[row] + unit, left, zero) * all;
    const vf q = e * (load_some(s->h[row] + unit, left, zero) - o * tanh_c);
    const vf p = vfma(e * o, vfma(negative(tanh_c), tanh_c, one), load_some(dc, left, zero));
    const vf a[] = {p * n * i * (1 - i), p * c * f * (1 - f), p * i * vfma(negative(n), n, one),
                    e * tanh_c * o * (1 - o)};
    store_some(d, left, all - e);
    store_some(dc, left, p * f);
    store_some(swing, left, load_some(swing, left, zero) + q);
    UNROLL
    for (int k = 0; k < 4; k++) {
        store_some(s->dx[row] + unit + k * D, left, a[k]);
        store_some(s->du[row] + unit + k * D, left, a[k]);
        db[k] += a[k];
    }
}

static void step_lstm_back(const dra_cell_back *s) { each_unit_back(s, 4, 6, lstm_gates_back); }

#endif

const dra_cell_loops LEVEL_NAMED(dra_cell_loops) = {
    .gru = step_gru, .gru_back = step_gru_back, .lstm = step_lstm, .lstm_back = step_lstm_back};
