/* slot_gru: S slots of a head, each drawn towards the candidate of a gru that starts from what the
 * slot holds. All see the same x; with h = h_{t-1} of the slot, and r, z, n, m as in gru.c,
 *   h_t = h + u (c - h) for c = (1-z) n + z h, that is h_t = h + u (1-z) (n - h)
 * where u is a number for each slot, or for each slot and token. For 0 <= u <= 1 a mean of h and n
 * in floating point too, so |h_t| <= 1 if |h| <= 1.
 *
 * The gradient is that of gru with u for its 1-g, and with d the sum of all that comes to h_t
 *   dx_t = sum over slots of [a_r, a_z, a_n],   du_t = sum_j d_j (1-z)_j (n - h)_j
 * which does not divide by u: it may be 0, where a token writes elsewhere. */
#include "ops/recurrent/cell.h"

extern const dra_op dra_op_slot_gru, dra_op_slot_gru_back;

enum { GATES = 3, KEPT = 4, STATES = 1 };

static const dra_cell_kind kind = {
    .name = "slot_gru",
    .op = &dra_op_slot_gru,
    .back_op = &dra_op_slot_gru_back,
    .start = {"start"},
    .attr = {.formula = DRA_CELL_GRU, .gates = GATES, .kept = KEPT, .states = STATES, .slots = 1},
};

static void derive_slot_gru(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dra_cell_gradient(g, &kind, n, dy, dx);
}

DRA_CELL_OPS(slot_gru, STATES, derive_slot_gru);

/* S, the last axis of u; 0 on a mistake. */
static int64_t slots_of(dra_graph *g, dra_value u)
{
    if (dra_graph_failed(g) || !dra_check_values(g, kind.name, 1, &u)) return 0;
    const dra_shape s = dra_type_of(g, u)->shape;
    if (s.rank > 0 && s.dim[s.rank - 1] > 0) return s.dim[s.rank - 1];
    dra_build_fail(g, kind.name, DRA_ERR_SHAPE,
                   "cell 0: u is %s, expected (H, S) or (B, T, H, S) with S > 0",
                   dra_type_text(g, u));
    return 0;
}

void dra_slot_gru(dra_graph *g, int cells, const dra_slot_gru_cell *cell, dra_value mark,
                  dra_value *h, dra_value *last)
{
    dra_cell_kind  slots = kind;
    dra_cell_parts part[DRA_CELL_MOST];
    for (int k = 0; k < cells && k < DRA_CELL_MOST; k++)
        part[k] = (dra_cell_parts){cell[k].x, cell[k].w, cell[k].b, cell[k].u, {cell[k].start}};
    if (cells > 0 && cells <= DRA_CELL_MOST) slots.attr.slots = slots_of(g, cell[0].u);
    dra_cell_build(g, &slots, cells, part, mark, h, &last);
}
