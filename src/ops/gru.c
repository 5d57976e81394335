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
 * kept (4 D numbers a row and token, where a gradient is wanted): making them again would cost a
 * product and three transcendental functions beside the two products of the gradient. */
#include <math.h>

#include "ops/cell.h"

enum { GATES = 3, KEPT = 4 };

static void forward(const dra_simd *simd, const dra_cell_step *s) { simd->gru(s); }
static void back(const dra_simd *simd, const dra_cell_back *s) { simd->gru_back(s); }

static const dra_cell_kind kind = {GATES, KEPT, forward, back};

/* ---- types ----------------------------------------------------------------------------------- */

static int cells_of(const dra_node *n, int inputs) { return (n->n_in - 1) / inputs; }

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const int cells = cells_of(n, DRA_CELL_INPUTS);
    for (int i = 0; i < n->n_out; i++) out[i] = (dra_type){DRA_REAL, DRA_SHAPE(0)};
    for (int k = 0; k < cells; k++, out += DRA_CELL_OUTPUTS) {
        const dra_value *in = n->in + k * DRA_CELL_INPUTS;
        dra_shape        rows = dra_type_of(g, in[DRA_CELL_X])->shape;
        const int64_t    D = rows.dim[3] / GATES;
        rows.dim[3] = D;
        out[DRA_CELL_H].shape = rows;
        out[DRA_CELL_LAST].shape = dra_type_of(g, in[DRA_CELL_START])->shape;
        rows.dim[3] = KEPT * D;
        out[DRA_CELL_KEPT].shape = rows;
    }
    return DRA_OK;
}

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const int cells = cells_of(n, DRA_CELL_BACK_INPUTS);
    for (int i = 0; i < n->n_out; i++) out[i] = (dra_type){DRA_REAL, DRA_SHAPE(0)};
    for (int k = 0; k < cells; k++, out += DRA_CELL_BACK_OUTPUTS) {
        const dra_value *in = n->in + k * DRA_CELL_BACK_INPUTS;
        dra_shape        w = dra_type_of(g, in[DRA_CELL_BACK_W])->shape;
        dra_shape        rows = dra_type_of(g, in[DRA_CELL_BACK_H])->shape;
        w.dim[w.rank - 1] = rows.dim[3];
        rows.dim[3] *= GATES;
        out[DRA_CELL_DX].shape = rows;
        out[DRA_CELL_DW].shape = w;
        out[DRA_CELL_DB].shape = w;
        out[DRA_CELL_DB].shape.rank--;
        out[DRA_CELL_DSWING].shape = dra_type_of(g, in[DRA_CELL_BACK_MIX])->shape;
        out[DRA_CELL_DSTART].shape = dra_type_of(g, in[DRA_CELL_BACK_START])->shape;
    }
    return DRA_OK;
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* x everywhere in a shape: a row of its own, seen many times over. */
static dra_value rows_of(dra_graph *g, double x, dra_shape shape)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape row = DRA_SHAPE(shape.dim[shape.rank - 1]);
    return dra_broadcast(g, dra_copy(g, dra_broadcast(g, dra_number(g, x), row)), shape);
}

static dra_value upstream(dra_graph *g, dra_value dy, dra_value y)
{
    return dy.id ? dy : rows_of(g, 0, dra_shape_of(g, y));
}

/* w with columns of zeros, up to a whole block of units; what depends on parameters alone is made
 * once, not with every run. */
static dra_value whole_blocks(dra_graph *g, dra_value w)
{
    const dra_shape s = dra_shape_of(g, w);
    const int64_t   D = s.dim[s.rank - 1], blocks = dra_div_up(D, DRA_CELL_UNITS);
    return dra_pad(g, w, s.rank - 1, 0, blocks * DRA_CELL_UNITS - D, 0);
}

extern const dra_op dra_op_gru_back;

static void gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const int cells = cells_of(n, DRA_CELL_INPUTS);
    dra_value given[DRA_CELL_MOST * DRA_CELL_BACK_INPUTS + 1], *to = given;
    for (int k = 0; k < cells; k++, to += DRA_CELL_BACK_INPUTS) {
        const dra_value *in = n->in + k * DRA_CELL_INPUTS, *out = n->out + k * DRA_CELL_OUTPUTS;
        const dra_value *up = dy + k * DRA_CELL_OUTPUTS;
        to[DRA_CELL_BACK_H] = out[DRA_CELL_H];
        to[DRA_CELL_BACK_W] = whole_blocks(g, in[DRA_CELL_W]);
        to[DRA_CELL_BACK_MIX] = in[DRA_CELL_MIX];
        to[DRA_CELL_BACK_START] = in[DRA_CELL_START];
        to[DRA_CELL_BACK_KEPT] = out[DRA_CELL_KEPT];
        to[DRA_CELL_BACK_DH] = upstream(g, up[DRA_CELL_H], out[DRA_CELL_H]);
        to[DRA_CELL_BACK_DLAST] = upstream(g, up[DRA_CELL_LAST], out[DRA_CELL_LAST]);
    }
    *to = n->in[n->n_in - 1];
    const dra_node *made = dra_node_add(g, &dra_op_gru_back, cells * DRA_CELL_BACK_INPUTS + 1,
                                        given, NULL);
    for (int k = 0; made && k < cells; k++, dx += DRA_CELL_INPUTS) {
        const dra_value *d = made->out + k * DRA_CELL_BACK_OUTPUTS;
        const dra_value *in = n->in + k * DRA_CELL_INPUTS;
        const dra_shape  b = dra_shape_of(g, in[DRA_CELL_B]);
        dx[DRA_CELL_X] = d[DRA_CELL_DX];
        dx[DRA_CELL_W] = d[DRA_CELL_DW];
        dx[DRA_CELL_B] = dra_unbroadcast(g, d[DRA_CELL_DB], b);
        dx[DRA_CELL_BETA] = dra_mul(g, dra_sigmoid(g, in[DRA_CELL_BETA]), d[DRA_CELL_DSWING]);
        dx[DRA_CELL_START] = d[DRA_CELL_DSTART];
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void     tile(const dra_call *c, int64_t i) { dra_cell_tile(c, &kind, i); }
static dra_cost cost(const dra_call *c) { return dra_cell_cost(c, &kind); }

const dra_op     dra_op_gru = {.name = "gru",
                               .n_in = DRA_MANY,
                               .n_out = DRA_CELL_MOST * DRA_CELL_OUTPUTS,
                               .layout = DRA_LAYOUT_ROWS,
                               .infer = infer,
                               .gradient = gradient,
                               .cost = cost};
const dra_kernel dra_cpu_gru = {
    &dra_op_gru, DRA_REALS | DRA_BIT(DRA_I32), dra_cell_tiles, tile, NULL, dra_cell_scratch};

static void     back_tile(const dra_call *c, int64_t i) { dra_cell_back_tile(c, &kind, i); }
static size_t   back_scratch(const dra_call *c) { return dra_cell_back_scratch(c, &kind); }
static dra_cost back_cost(const dra_call *c) { return dra_cell_back_cost(c, &kind); }

const dra_op     dra_op_gru_back = {.name = "gru_back",
                                    .n_in = DRA_MANY,
                                    .n_out = DRA_CELL_MOST * DRA_CELL_BACK_OUTPUTS,
                                    .layout = DRA_LAYOUT_ROWS,
                                    .infer = back_infer,
                                    .cost = back_cost};
const dra_kernel dra_cpu_gru_back = {&dra_op_gru_back,     DRA_REALS | DRA_BIT(DRA_I32),
                                     dra_cell_back_tiles,  back_tile,
                                     dra_cell_back_stages, back_scratch};

/* ---- builder --------------------------------------------------------------------------------- */

/* (gates D, D) or (H, gates D, D) to (sets, blocks, D, gates, UNITS), zeros for missing units. What
 * depends on parameters alone is made once, so steps of one token find it made. */
static dra_value pack(dra_graph *g, dra_value w, int64_t D)
{
    const dra_shape s = dra_shape_of(g, w);
    const int64_t   sets = s.rank == 3 ? s.dim[0] : 1, blocks = dra_div_up(D, DRA_CELL_UNITS);
    const dra_value gates = dra_reshape(g, w, DRA_SHAPE(sets, GATES, D, D));
    const dra_value whole = dra_pad(g, gates, 2, 0, blocks * DRA_CELL_UNITS - D, 0);
    const dra_value split = dra_reshape(g, whole,
                                        DRA_SHAPE(sets, GATES, blocks, DRA_CELL_UNITS, D));
    return dra_copy(g, dra_permute(g, split, (const int[]){0, 2, 4, 1, 3}));
}

/* Refuses a part of a cell that is neither `shape` nor `other` (of rank -1: there is no other). */
static bool check_part(dra_graph *g, int cell, const char *name, dra_value v, dra_shape shape,
                       dra_shape other)
{
    const dra_type *t = dra_type_of(g, v);
    const bool      fits = dra_shape_equal(&t->shape, &shape) || dra_shape_equal(&t->shape, &other);
    char            text[2][64];
    if (t->dtype == DRA_REAL && fits) return true;
    dra_shape_text(&shape, text[0], sizeof text[0]);
    if (other.rank >= 0) dra_shape_text(&other, text[1], sizeof text[1]);
    dra_build_fail(g, "gru", t->dtype == DRA_REAL ? DRA_ERR_SHAPE : DRA_ERR_DTYPE,
                   "cell %d: %s is %s, expected %s %s%s%s", cell, name, dra_type_text(g, v),
                   dra_dtype_get(DRA_REAL)->name, text[0], other.rank >= 0 ? " or " : "",
                   other.rank >= 0 ? text[1] : "");
    return false;
}

/* x of cell k must be (B, T, H, 3D), with the sizes of cell 0 but for D. */
static bool check_x(dra_graph *g, int k, dra_value x, const dra_shape *first)
{
    const dra_type *t = dra_type_of(g, x);
    const int64_t  *dim = t->shape.dim;
    if (t->dtype != DRA_REAL || t->shape.rank != 4 || dim[3] % GATES != 0)
        dra_build_fail(g, "gru", t->dtype == DRA_REAL ? DRA_ERR_SHAPE : DRA_ERR_DTYPE,
                       "cell %d: x is %s, expected %s (B, T, H, 3D)", k, dra_type_text(g, x),
                       dra_dtype_get(DRA_REAL)->name);
    else if (dim[0] != first->dim[0] || dim[1] != first->dim[1] || dim[2] != first->dim[2])
        dra_build_fail(g, "gru", DRA_ERR_SHAPE,
                       "cell %d: x is %s, expected the B, T and H of cell 0: %lld, %lld, %lld", k,
                       dra_type_text(g, x), (long long)first->dim[0], (long long)first->dim[1],
                       (long long)first->dim[2]);
    return !dra_graph_failed(g);
}

static bool check_cell(dra_graph *g, int k, const dra_gru_cell *cell, const dra_shape *first)
{
    const dra_shape none = {.rank = -1};
    dra_value       given[5] = {cell->x, cell->w};
    int             n = 2;
    if (cell->b.id) given[n++] = cell->b;
    if (cell->beta.id) given[n++] = cell->beta;
    if (cell->start.id) given[n++] = cell->start;
    if (!dra_check_values(g, "gru", n, given) || !check_x(g, k, cell->x, first)) return false;
    const int64_t *dim = dra_type_of(g, cell->x)->shape.dim;
    const int64_t  B = dim[0], H = dim[2], D = dim[3] / GATES, G = dim[3];
    return check_part(g, k, "w", cell->w, DRA_SHAPE(G, D), DRA_SHAPE(H, G, D)) &&
           (!cell->b.id || check_part(g, k, "b", cell->b, DRA_SHAPE(G), DRA_SHAPE(H, G))) &&
           (!cell->beta.id || check_part(g, k, "beta", cell->beta, DRA_SHAPE(H, D), none)) &&
           (!cell->start.id || check_part(g, k, "start", cell->start, DRA_SHAPE(B, H, D), none));
}

static void cell_inputs(dra_graph *g, const dra_gru_cell *cell, dra_value *in)
{
    const dra_shape x = dra_shape_of(g, cell->x);
    const int64_t   B = x.dim[0], H = x.dim[2], D = x.dim[3] / GATES;
    const bool      own_b = cell->b.id && dra_type_of(g, cell->b)->shape.rank == 2;
    in[DRA_CELL_X] = cell->x;
    in[DRA_CELL_W] = own_b ? dra_broadcast(g, cell->w, DRA_SHAPE(H, GATES * D, D)) : cell->w;
    in[DRA_CELL_PACKED] = pack(g, in[DRA_CELL_W], D);
    in[DRA_CELL_B] = cell->b.id ? cell->b : rows_of(g, 0, DRA_SHAPE(GATES * D));
    in[DRA_CELL_BETA] = cell->beta.id ? cell->beta : rows_of(g, -INFINITY, DRA_SHAPE(H, D));
    in[DRA_CELL_MIX] = dra_sigmoid(g, dra_neg(g, in[DRA_CELL_BETA]));
    in[DRA_CELL_START] = cell->start.id ? cell->start : rows_of(g, 0, DRA_SHAPE(B, H, D));
}

void dra_gru(dra_graph *g, int cells, const dra_gru_cell *cell, dra_value mark, dra_value *h,
             dra_value *last)
{
    dra_value in[DRA_CELL_MOST * DRA_CELL_INPUTS + 1], *to = in;
    for (int k = 0; k < cells; k++) {
        h[k] = (dra_value){0};
        if (last) last[k] = (dra_value){0};
    }
    if (cells < 1 || cells > DRA_CELL_MOST) {
        dra_build_fail(g, "gru", DRA_ERR_VALUE, "%d cells, expected 1 to %d", cells, DRA_CELL_MOST);
        return;
    }
    if (!dra_check_values(g, "gru", 1, &cell[0].x)) return;
    const dra_shape x = dra_shape_of(g, cell[0].x);
    for (int k = 0; k < cells; k++, to += DRA_CELL_INPUTS) {
        if (!check_cell(g, k, &cell[k], &x)) return;
        cell_inputs(g, &cell[k], to);
    }
    const dra_shape tokens = DRA_SHAPE(x.dim[0], x.dim[1]);
    if (!mark.id) mark = dra_broadcast(g, dra_integer(g, 0), tokens);
    if (!dra_check_values(g, "gru", 1, &mark) ||
        !dra_recur_expect(g, "gru", "mark", mark, DRA_I32, tokens))
        return;
    *to = mark;
    const dra_node *n = dra_node_add(g, &dra_op_gru, cells * DRA_CELL_INPUTS + 1, in, NULL);
    for (int k = 0; n && k < cells; k++) {
        h[k] = n->out[k * DRA_CELL_OUTPUTS + DRA_CELL_H];
        if (last) last[k] = n->out[k * DRA_CELL_OUTPUTS + DRA_CELL_LAST];
    }
}
