/* Recurrent cells over time: a new state that depends on all units of the old one, through gates.
 * What the cells share: the walk over time, the products with the weights, the sums of gradients,
 * the node and its gradient. A cell is a dra_cell_kind, the attribute of its two ops.
 *
 * The rows (b, h) of a batch do not know of each other, so a tile takes a few of them through all
 * time. Rows of all heads share weights, or every head has its own: a set of weights, its rows and
 * their groups of at most DRA_CELL_ROWS. Cells of any widths lie side by side in one call, for
 * the tiles' sake: one sequence of one cell is a tile or two. */
#ifndef DRA_SRC_OPS_CELL_H
#define DRA_SRC_OPS_CELL_H

#include "ops/recur.h"

enum { DRA_CELL_MOST = 4, DRA_CELL_STATES = 2 }; /* cells of a call, states of a cell */

typedef struct dra_cell_kind {
    const char   *name;
    const dra_op *op, *back_op;
    int           gates;  /* parts of D of x, w h and b */
    int           kept;   /* parts of D that the way back wants of each token */
    int           states; /* h, which all units of a row see, and c, which only its own unit sees */
    const char   *start[DRA_CELL_STATES]; /* what the builder calls the first ones */
    void (*forward)(const dra_simd *simd, const dra_cell_step *s);
    void (*back)(const dra_simd *simd, const dra_cell_back *s);
} dra_cell_kind;

/* Inputs: those of each cell, then mark (B, T). Outputs: those of DRA_CELL_MOST cells. What there
 * is of each state is last. */
enum {
    DRA_CELL_X,      /* (B, T, H, gates D) */
    DRA_CELL_W,      /* (gates D, D) or (H, gates D, D); only the gradient reads it */
    DRA_CELL_MIX,    /* (H, D): 1 - g = sigmoid(-beta) */
    DRA_CELL_PACKED, /* the same as the micro-kernels read it: (sets, blocks, D, gates, UNITS) */
    DRA_CELL_B,      /* (gates D) or (H, gates D) */
    DRA_CELL_BETA,   /* (H, D); only the gradient reads it */
    DRA_CELL_START   /* (B, H, D), each state */
};
enum {
    DRA_CELL_H,    /* (B, T, H, D) */
    DRA_CELL_KEPT, /* (B, T, H, kept D) */
    DRA_CELL_LAST  /* (B, H, D), each state */
};

int64_t  dra_cell_tiles(const dra_call *c);
size_t   dra_cell_scratch(const dra_call *c);
void     dra_cell_tile(const dra_call *c, int64_t i);
dra_cost dra_cell_cost(const dra_call *c);

/* The same for the way back: first tiles that walk, then tiles that add up, one for each set. */
enum {
    DRA_CELL_BACK_H, /* (B, T, H, D) */
    DRA_CELL_BACK_W, /* with columns of zeros up to a whole block of units */
    DRA_CELL_BACK_MIX,
    DRA_CELL_BACK_START, /* of h; a cell keeps what it needs of c */
    DRA_CELL_BACK_KEPT,
    DRA_CELL_BACK_DH,
    DRA_CELL_BACK_DLAST /* each state */
};
enum {
    DRA_CELL_DX,
    DRA_CELL_DW,
    DRA_CELL_DB,     /* (sets, gates D) */
    DRA_CELL_DSWING, /* (H, D): dbeta / g */
    DRA_CELL_DSTART  /* each state */
};

int64_t  dra_cell_back_stages(const dra_call *c);
int64_t  dra_cell_back_tiles(const dra_call *c);
size_t   dra_cell_back_scratch(const dra_call *c);
void     dra_cell_back_tile(const dra_call *c, int64_t i);
dra_cost dra_cell_back_cost(const dra_call *c);

/* ---- the node, see cell_node.c --------------------------------------------------------------- */

typedef struct dra_cell_parts { /* what a builder is given; b, beta and start may be none */
    dra_value x, w, b, beta, start[DRA_CELL_STATES];
} dra_cell_parts;

dra_status dra_cell_infer(dra_graph *g, const dra_node *n, dra_type *out);
dra_status dra_cell_back_infer(dra_graph *g, const dra_node *n, dra_type *out);
void       dra_cell_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx);

/* part: min(cells, DRA_CELL_MOST) of them. h[k] of cell k, and last[i][k] of each state; last[i]
 * may be NULL. All are the null value on a mistake. */
void dra_cell_build(dra_graph *g, const dra_cell_kind *kind, int cells, const dra_cell_parts *part,
                    dra_value mark, dra_value *h, dra_value *const *last);

/* ---- where a tile stands --------------------------------------------------------------------- */

typedef struct dra_cell_sizes {
    int64_t B, T, H, D, sets, groups; /* groups: of the rows of a set */
} dra_cell_sizes;

typedef struct dra_cell_place {
    dra_cell_sizes    size;
    const dra_tensor *in, *out; /* of its cell */
    int64_t           set, first, rows;
    int64_t           b[DRA_CELL_ROWS], h[DRA_CELL_ROWS]; /* of each row */
} dra_cell_place;

static inline int dra_cell_inputs(const dra_cell_kind *k) { return DRA_CELL_START + k->states; }
static inline int dra_cell_outputs(const dra_cell_kind *k) { return DRA_CELL_LAST + k->states; }
static inline int dra_cell_back_inputs(const dra_cell_kind *k)
{
    return DRA_CELL_BACK_DLAST + k->states;
}
static inline int dra_cell_back_outputs(const dra_cell_kind *k)
{
    return DRA_CELL_DSTART + k->states;
}

static inline int dra_cell_count(const dra_call *c, int inputs) { return (c->n_in - 1) / inputs; }

/* Of one cell; its first inputs are something (B, T, H, ...), the weights, and mix (H, D). */
static inline dra_cell_sizes dra_cell_sizes_of(const dra_tensor *in)
{
    const int64_t *dim = in[0].shape.dim;
    dra_cell_sizes n = {.B = dim[0], .T = dim[1], .H = dim[2], .D = dra_last(&in[2]), .sets = 1};
    int64_t        rows = n.B * n.H;
    if (in[1].shape.rank == 3) {
        n.sets = n.H;
        rows = n.B;
    }
    n.groups = n.D > 0 ? dra_div_up(rows, DRA_CELL_ROWS) : 0; /* else there is nothing to do */
    return n;
}

/* Tile i of all cells, one cell after the other; `inputs` and `outputs` of each. */
dra_cell_place dra_cell_place_at(const dra_call *c, int inputs, int outputs, int64_t i);

/* All tiles, and the width of the widest cell. */
int64_t dra_cell_all_tiles(const dra_call *c, int inputs);
int64_t dra_cell_widest(const dra_call *c, int inputs);

/* 2 gates D^2 for each row and token. */
double dra_cell_product_flops(const dra_call *c, int inputs);

#endif
