/* lstm: long short-term memory [Hochreiter, Schmidhuber 1997], gates in PyTorch's order i, f, n, o
 * (its g is n here), and what the cell shows mixed into what it showed before. With h = h_{t-1},
 * c = c_{t-1}
 *   i, f, o = s(x + W h + b), each with its rows,  n = tanh(x_n + W_n h + b_n)
 *   c_t = f c + i n,  y = o tanh(c_t),  h_t = h + (1-g) (y - h)
 * where 1-g = s(-beta) is no difference. A mean of h and y in floating point too: |h_t| <= 1 if
 * |h| <= 1; c_t has no bound but |c| + 1. A reset before t takes 0 for h and c; a pad keeps both.
 *
 * Gradient, t = T-1..0, from d = dlast_h, p = dlast_c, with y' = tanh(c_t):
 *   d += dh_t,  e = (1-g) d,  q = e (h - y),  p += e o (1 - y'^2)
 *   a_i = p n i (1-i),  a_f = p c f (1-f),  a_n = p i (1-n^2),  a_o = e y' o (1-o)
 *   dx_t = du = [a_i, a_f, a_n, a_o],  d = d - e + W^T du,  p = p f
 *   dW += du h^T,  db += du,  dbeta += g q
 * and d = dstart_h, p = dstart_c at the end. A pad has only the first; a reset ends with d = p = 0.
 * i, f, n, o, y' and c are kept (6 D numbers a row and token, where a gradient is wanted). */
#include "ops/recurrent/cell.h"

extern const dra_op dra_op_lstm, dra_op_lstm_back;

enum { GATES = 4, KEPT = 6, STATES = 2 };

static const dra_cell_kind kind = {
    .name = "lstm",
    .op = &dra_op_lstm,
    .back_op = &dra_op_lstm_back,
    .start = {"start_h", "start_c"},
    .attr = {.formula = DRA_CELL_LSTM, .gates = GATES, .kept = KEPT, .states = STATES},
};

static void derive_lstm(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dra_cell_gradient(g, &kind, n, dy, dx);
}

DRA_CELL_OPS(lstm, STATES, derive_lstm);

void dra_lstm(dra_graph *g, int cells, const dra_lstm_cell *cell, dra_value mark, dra_value *h,
              dra_value *last_h, dra_value *last_c)
{
    dra_cell_parts part[DRA_CELL_MOST];
    for (int k = 0; k < cells && k < DRA_CELL_MOST; k++)
        part[k] = (dra_cell_parts){
            cell[k].x, cell[k].w, cell[k].b, cell[k].beta, {cell[k].start_h, cell[k].start_c}};
    dra_cell_build(g, &kind, cells, part, mark, h, (dra_value *const[]){last_h, last_c});
}
