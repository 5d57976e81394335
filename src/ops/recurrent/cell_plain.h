/* Steps of recurrent cells in plain C; formulas are in gru.c and lstm.c. Part of cell_loops.c. */
#ifndef DRA_SRC_OPS_RECURRENT_CELL_PLAIN_H
#define DRA_SRC_OPS_RECURRENT_CELL_PLAIN_H

#include <tgmath.h>

#include "ops/recurrent/cell_loops.h"

static dra_real sigmoid(dra_real x)
{
    const dra_real e = exp(-fabs(x)); /* never overflows */
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* b + w h of one row for a gate of one unit. */
static dra_real cell_sum(const dra_cell_step *s, int64_t i, int64_t unit, int64_t gates,
                         int64_t gate)
{
    const int64_t   block = unit / DRA_CELL_UNITS, step = gates * DRA_CELL_UNITS;
    const dra_real *w = s->w + (block * s->D * gates + gate) * DRA_CELL_UNITS;
    dra_real        sum = s->b[gate * s->D + unit];
    w += unit % DRA_CELL_UNITS;
    for (int64_t k = 0; k < s->D; k++) sum += s->h[i][k] * w[k * step];
    return sum;
}

static void gru_unit(const dra_cell_step *s, int64_t i, int64_t j)
{
    const int64_t   D = s->D;
    const dra_real *x = s->x[i] + j, h = s->h[i][j];
    const dra_real  r = sigmoid(x[0] + cell_sum(s, i, j, 3, 0));
    const dra_real  fresh = sigmoid(-(x[D] + cell_sum(s, i, j, 3, 1)));
    const dra_real  m = cell_sum(s, i, j, 3, 2), n = tanh(x[2 * D] + r * m);
    s->to[i][j] = h + s->mix[i][j] * fresh * (n - h);
    if (!s->kept[i]) return;
    s->kept[i][j] = r;
    s->kept[i][D + j] = fresh;
    s->kept[i][2 * D + j] = n;
    s->kept[i][3 * D + j] = m;
}

static void step_gru(const dra_cell_step *s)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->D; j++) gru_unit(s, i, j);
}

/* d += w^T du */
static void pass_back(const dra_cell_back *s, int64_t gates)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t k = 0; k < gates * s->D; k++)
            for (int64_t j = 0; j < s->D; j++) s->d[i][j] += s->du[i][k] * s->w[k * s->w_row + j];
}

static void gru_unit_back(const dra_cell_back *s, int64_t i, int64_t j)
{
    const int64_t   D = s->D;
    const dra_real *kept = s->kept[i] + j;
    const dra_real  r = kept[0], fresh = kept[D], n = kept[2 * D], m = kept[3 * D];
    const dra_real  all = s->d[i][j] + s->dy[i][j], e = s->mix[i][j] * fresh * all;
    const dra_real  q = e * (s->h[i][j] - n), a_n = e * (1 - n * n), b_n = r * a_n;
    const dra_real  a_z = q * (1 - fresh), a_r = m * (1 - r) * b_n;
    const dra_real  dx[] = {a_r, a_z, a_n}, du[] = {a_r, a_z, b_n};
    s->d[i][j] = all - e;
    s->swing[i][j] += q;
    for (int gate = 0; gate < 3; gate++) {
        s->dx[i][gate * D + j] = dx[gate];
        s->du[i][gate * D + j] = du[gate];
        s->db[gate * D + j] += du[gate];
    }
}

static void step_gru_back(const dra_cell_back *s)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->D; j++) gru_unit_back(s, i, j);
    pass_back(s, 3);
}

static void lstm_unit(const dra_cell_step *s, int64_t row, int64_t j)
{
    const int64_t   D = s->D;
    const dra_real *x = s->x[row] + j, h = s->h[row][j], c = s->c[row][j];
    const dra_real  i = sigmoid(x[0] + cell_sum(s, row, j, 4, 0));
    const dra_real  f = sigmoid(x[D] + cell_sum(s, row, j, 4, 1));
    const dra_real  n = tanh(x[2 * D] + cell_sum(s, row, j, 4, 2));
    const dra_real  o = sigmoid(x[3 * D] + cell_sum(s, row, j, 4, 3));
    const dra_real  fresh = f * c + i * n, tanh_c = tanh(fresh);
    const dra_real  kept[] = {i, f, n, o, tanh_c, c};
    s->c[row][j] = fresh;
    s->to[row][j] = h + s->mix[row][j] * (o * tanh_c - h);
    for (int k = 0; k < 6 && s->kept[row]; k++) s->kept[row][k * D + j] = kept[k];
}

static void step_lstm(const dra_cell_step *s)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->D; j++) lstm_unit(s, i, j);
}

static void lstm_unit_back(const dra_cell_back *s, int64_t row, int64_t j)
{
    const int64_t   D = s->D;
    const dra_real *kept = s->kept[row] + j;
    const dra_real  i = kept[0], f = kept[D], n = kept[2 * D], o = kept[3 * D];
    const dra_real  tanh_c = kept[4 * D], c = kept[5 * D];
    const dra_real  all = s->d[row][j] + s->dy[row][j], e = s->mix[row][j] * all;
    const dra_real  p = s->dc[row][j] + e * o * (1 - tanh_c * tanh_c);
    const dra_real  a[] = {p * n * i * (1 - i), p * c * f * (1 - f), p * i * (1 - n * n),
                           e * tanh_c * o * (1 - o)};
    s->d[row][j] = all - e;
    s->dc[row][j] = p * f;
    s->swing[row][j] += e * (s->h[row][j] - o * tanh_c);
    for (int gate = 0; gate < 4; gate++) {
        s->dx[row][gate * D + j] = s->du[row][gate * D + j] = a[gate];
        s->db[gate * D + j] += a[gate];
    }
}

static void step_lstm_back(const dra_cell_back *s)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->D; j++) lstm_unit_back(s, i, j);
    pass_back(s, 4);
}

#endif
