/* Recurrent cells over time: a new state that depends on all units of the old one, through gates.
 * What the cells share: the walk over time, the products with the weights, the sums of gradients,
 * the node and its gradient. A cell is a dra_cell_kind, whose dra_cell_attr is the attribute of its
 * two ops.
 *
 * The rows (b, h) of a batch do not know of each other, so a tile takes a few of them through all
 * time. Rows of all heads share weights, or every head has its own: a set of weights, its rows and
 * their groups of at most DRA_CELL_ROWS. Cells of any widths share one call, to
 * have enough tiles: one sequence of one cell is a tile or two. Forward, where groups are too few
 * for the threads, a tile is a cut of a group: no row's bits depend on the others.
 *
 * A head has one state, or S of them that see the same x: slots, each a row (b, h S + slot). They
 * are cut into parts that fit into a group, and a group takes whole parts: the sum over a part's
 * rows of what comes back to x has one writer. */
#ifndef DRA_SRC_OPS_RECURRENT_CELL_H
#define DRA_SRC_OPS_RECURRENT_CELL_H

#include "ops/recurrent/cell_loops.h"
#include "ops/recurrent/recur.h"

typedef struct dra_cell_kind { /* what its builder and its gradient need to know */
    const char   *name;
    const dra_op *op, *back_op;
    const char   *start[DRA_CELL_STATES]; /* what the builder calls the first states */
    dra_cell_attr attr;
} dra_cell_kind;

int64_t  dra_cell_tiles(const dra_call *c);
size_t   dra_cell_scratch(const dra_call *c);
void     dra_cell_tile(const dra_call *c, int64_t i);
dra_cost dra_cell_cost(const dra_call *c);

/* The same, backward: first tiles that walk, then tiles that add up, one for each set. Where tiles
 * are too few for the threads, the sums over time come between them. */
int64_t  dra_cell_back_stages(const dra_call *c);
int64_t  dra_cell_back_tiles(const dra_call *c);
size_t   dra_cell_back_scratch(const dra_call *c);
void     dra_cell_back_tile(const dra_call *c, int64_t i);
dra_cost dra_cell_back_cost(const dra_call *c);

/* ---- the node, see cell_node.c --------------------------------------------------------------- */

typedef struct dra_cell_parts { /* what a builder is given; b, beta and start may be none */
    dra_value x, w, b;
    dra_value beta; /* of slots: u, which may not */
    dra_value start[DRA_CELL_STATES];
} dra_cell_parts;

dra_status dra_cell_infer(dra_graph *g, const dra_node *n, dra_type *out);
dra_status dra_cell_back_infer(dra_graph *g, const dra_node *n, dra_type *out);
void       dra_cell_gradient(dra_graph *g, const dra_cell_kind *kind, const dra_node *n,
                             const dra_value *dy, dra_value *dx);

/* part: min(cells, DRA_CELL_MOST) of them. h[k] of cell k, and last[i][k] of each state; last[i]
 * may be NULL. All are the null value on a mistake. */
void dra_cell_build(dra_graph *g, const dra_cell_kind *kind, int cells, const dra_cell_parts *part,
                    dra_value mark, dra_value *h, dra_value *const *last);

/* ---- where a tile stands --------------------------------------------------------------------- */

typedef struct dra_cell_sizes {
    int64_t B, T, H, S, D;
    int64_t sets, parts, groups; /* parts of the slots of a head, groups of the parts of a set */
} dra_cell_sizes;

typedef struct dra_cell_place {
    dra_cell_sizes    size;
    const dra_tensor *in, *out; /* of its cell */
    int64_t           set, rows;
    /* Of each row: row of the batch, state of a token (h S + slot), part (h parts + part). */
    int64_t b[DRA_CELL_ROWS], h[DRA_CELL_ROWS], part[DRA_CELL_ROWS];
} dra_cell_place;

static inline int64_t dra_cell_slots(const dra_cell_attr *a) { return a->slots ? a->slots : 1; }
static inline int64_t dra_cell_slot_parts(const dra_cell_attr *a)
{
    return dra_div_up(dra_cell_slots(a), DRA_CELL_ROWS);
}

static inline int dra_cell_inputs(const dra_cell_attr *a) { return DRA_CELL_START + a->states; }
static inline int dra_cell_outputs(const dra_cell_attr *a) { return DRA_CELL_LAST + a->states; }
static inline int dra_cell_back_inputs(const dra_cell_attr *a)
{
    return DRA_CELL_BACK_DLAST + a->states;
}
static inline int dra_cell_back_outputs(const dra_cell_attr *a)
{
    return DRA_CELL_DSTART + a->states;
}

static inline int dra_cell_count(const dra_call *c, int inputs) { return (c->n_in - 1) / inputs; }

/* Parts of all heads and batch rows of a set. */
static inline int64_t dra_cell_set_parts(const dra_cell_sizes *n)
{
    return n->sets > 0 ? n->B * (n->H / n->sets) * n->parts : 0;
}

/* Of one cell; its first inputs are something (B, T, ...), the weights, and mix. */
static inline dra_cell_sizes dra_cell_sizes_of(const dra_cell_attr *a, const dra_tensor *in)
{
    const dra_shape *w = &in[1].shape, *mix = &in[2].shape;
    const int64_t    S = dra_cell_slots(a), parts = dra_cell_slot_parts(a);
    dra_cell_sizes   n = {.B = in[0].shape.dim[0], .T = in[0].shape.dim[1], .S = S, .parts = parts};
    n.H = a->slots ? mix->dim[2] / S : mix->dim[0];
    n.D = w->dim[w->rank - 2] / a->gates;
    n.sets = w->rank == 3 ? n.H : 1;
    const int64_t most = DRA_CELL_ROWS / dra_div_up(S, parts);         /* parts of a group */
    n.groups = n.D > 0 ? dra_div_up(dra_cell_set_parts(&n), most) : 0; /* else nothing is to do */
    return n;
}

/* What row r mixes in at token t: D numbers, in `room` (rows, D) where all are the same. */
static inline const real *dra_cell_mix_of(const dra_cell_place *p, const dra_tensor *mix, int64_t t,
                                          int64_t r, real *room)
{
    if (mix->shape.rank == 2) return dra_recur_at(mix, p->h[r], 0, 0);
    const int64_t D = p->size.D;
    const real    u = *dra_recur_at(mix, p->b[r], t, p->h[r]);
    for (int64_t j = 0; j < D; j++) room[r * D + j] = u;
    return room + r * D;
}

/* Tile i of all cells, one cell after the other; `inputs` and `outputs` of each. A group is a tile,
 * or cut into `cuts` of them, of which some may have no rows. */
dra_cell_place dra_cell_place_at(const dra_call *c, int inputs, int outputs, int64_t cuts,
                                 int64_t i);

/* Groups of all cells, rows of the largest, and the width of the widest cell. */
int64_t dra_cell_all_groups(const dra_call *c, int inputs);
int64_t dra_cell_most_rows(const dra_call *c, int inputs);
int64_t dra_cell_widest(const dra_call *c, int inputs);

/* 2 gates D^2 for each row and token. */
double dra_cell_product_flops(const dra_call *c, int inputs);

/* The op of a kind of cell and that of its gradient, `rule`, with their kernels. */
#define DRA_CELL_OPS(cell, states, rule)                                                           \
    const dra_op dra_op_##cell = {                                                                 \
        .name = #cell,                                                                             \
        .n_in = DRA_MANY,                                                                          \
        .n_out = DRA_CELL_MOST * (DRA_CELL_LAST + (states)),                                       \
        .attr_size = sizeof(dra_cell_attr),                                                        \
        .infer = dra_cell_infer,                                                                   \
        .gradient = rule,                                                                          \
        .cost = dra_cell_cost,                                                                     \
    };                                                                                             \
    const dra_op dra_op_##cell##_back = {                                                          \
        .name = #cell "_back",                                                                     \
        .n_in = DRA_MANY,                                                                          \
        .n_out = DRA_CELL_MOST * (DRA_CELL_DSTART + (states)),                                     \
        .attr_size = sizeof(dra_cell_attr),                                                        \
        .infer = dra_cell_back_infer,                                                              \
        .cost = dra_cell_back_cost,                                                                \
    };                                                                                             \
    const dra_cpu_kernel dra_cpu_##cell = {                                                        \
        .base = {.op = #cell,                                                                      \
                 .dtypes = DRA_REALS | DRA_BIT(DRA_I32),                                           \
                 .layout = DRA_LAYOUT_ROWS,                                                        \
                 .scratch = dra_cell_scratch},                                                     \
        .tiles = dra_cell_tiles,                                                                   \
        .tile = dra_cell_tile,                                                                     \
    };                                                                                             \
    const dra_cpu_kernel dra_cpu_##cell##_back = {                                                 \
        .base = {.op = #cell "_back",                                                              \
                 .dtypes = DRA_REALS | DRA_BIT(DRA_I32),                                           \
                 .layout = DRA_LAYOUT_ROWS,                                                        \
                 .scratch = dra_cell_back_scratch},                                                \
        .tiles = dra_cell_back_tiles,                                                              \
        .tile = dra_cell_back_tile,                                                                \
        .stages = dra_cell_back_stages,                                                            \
    }

#endif
