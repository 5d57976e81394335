/* gru: gated recurrent units [Cho et al. 2014], the reset gate after the product as in PyTorch's
 * cell, and the new state mixed into the old one. With m = W_n h + b_n, h = h_{t-1}
 *   r = s(x_r + W_r h + b_r),  z = s(x_z + W_z h + b_z),  n = tanh(x_n + r m)
 *   h_t = h + (1-g) (c - h) for c = (1-z) n + z h, that is
 *   h_t = h + u (n - h),  u = (1-g) (1-z)
 * where 1-g = s(-beta) and 1-z = s(-..) are no differences. A mean of h and n in floating point
 * too: |h_t| <= 1 if |h| <= 1, as the rounding of n - h is too small to carry the sum past 1.
 * A reset before t takes 0 for h; a pad has h_t = h.
 *
 * Gradient, t = T-1..0, from d = dlast:
 *   d += dh_t,  e = u d,  q = e (h - n),  a_n = e (1-n^2),  a_z = q z,  a_r = a_n m r (1-r)
 *   dx_t = [a_r, a_z, a_n],  du = [a_r, a_z, r a_n],  d = d - e + W^T du
 *   dW += du h^T,  db += du,  dbeta += g q
 * and d = dstart at the end. A pad has only the first; a reset ends with d = 0. r, 1-z, n and m are
 * kept (4 D numbers a row and token, where a gradient is wanted): recomputing them would cost a
 * product and three transcendental functions on top of the two products of the gradient. */
#include "ops/recurrent/cell.h"

extern const dra_op dra_op_gru, dra_op_gru_back;

enum { GATES = 3, KEPT = 4, STATES = 1 };

static const dra_cell_kind kind = {
    .name = "gru",
    .op = &dra_op_gru,
    .back_op = &dra_op_gru_back,
    .start = {"start"},
    .attr = {.formula = DRA_CELL_GRU, .gates = GATES, .kept = KEPT, .states = STATES},
};

static void derive_gru(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dra_cell_gradient(g, &kind, n, dy, dx);
}

DRA_CELL_OPS(gru, STATES, derive_gru);

void dra_gru(dra_graph *g, int cells, const dra_gru_cell *cell, dra_value mark, dra_value *h,
             dra_value *last)
{
    dra_cell_parts part[DRA_CELL_MOST];
    for (int k = 0; k < cells && k < DRA_CELL_MOST; k++)
        part[k] = (dra_cell_parts){cell[k].x, cell[k].w, cell[k].b, cell[k].beta, {cell[k].start}};
    dra_cell_build(g, &kind, cells, part, mark, h, &last);
}
