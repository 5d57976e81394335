/* Recurrent cells as nodes: types, gradient, checks, weights as kernels read them. See cell.h. */
#include <math.h>

#include "ops/recurrent/cell.h"

/* ---- types ----------------------------------------------------------------------------------- */

static int cells_of(const dra_node *n, int inputs) { return (n->n_in - 1) / inputs; }

dra_status dra_cell_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_cell_attr *a = n->attr;
    const int            inputs = dra_cell_inputs(a), cells = cells_of(n, inputs);
    for (int i = 0; i < n->n_out; i++) out[i] = (dra_type){DRA_REAL, DRA_SHAPE(0)};
    for (int k = 0; k < cells; k++, out += dra_cell_outputs(a)) {
        const dra_value *in = n->in + k * inputs;
        dra_shape        rows = dra_type_of(g, in[DRA_CELL_X])->shape;
        const int64_t    D = rows.dim[3] / a->gates;
        rows.dim[2] *= dra_cell_slots(a);
        rows.dim[3] = D;
        out[DRA_CELL_H].shape = rows;
        rows.dim[3] = a->kept * D;
        out[DRA_CELL_KEPT].shape = rows;
        for (int i = 0; i < a->states; i++)
            out[DRA_CELL_LAST + i].shape = dra_type_of(g, in[DRA_CELL_START + i])->shape;
    }
    return DRA_OK;
}

dra_status dra_cell_back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_cell_attr *a = n->attr;
    const int            inputs = dra_cell_back_inputs(a), cells = cells_of(n, inputs);
    for (int i = 0; i < n->n_out; i++) out[i] = (dra_type){DRA_REAL, DRA_SHAPE(0)};
    for (int k = 0; k < cells; k++, out += dra_cell_back_outputs(a)) {
        const dra_value *in = n->in + k * inputs;
        dra_shape        w = dra_type_of(g, in[DRA_CELL_BACK_W])->shape;
        dra_shape        rows = dra_type_of(g, in[DRA_CELL_BACK_H])->shape;
        w.dim[w.rank - 1] = rows.dim[3];
        rows.dim[2] = rows.dim[2] / dra_cell_slots(a) * dra_cell_slot_parts(a);
        rows.dim[3] *= a->gates;
        out[DRA_CELL_DX].shape = rows;
        out[DRA_CELL_DW].shape = w;
        out[DRA_CELL_DB].shape = w;
        out[DRA_CELL_DB].shape.rank--;
        out[DRA_CELL_DSWING].shape = dra_type_of(g, in[DRA_CELL_BACK_MIX])->shape;
        for (int i = 0; i < a->states; i++)
            out[DRA_CELL_DSTART + i].shape = dra_type_of(g, in[DRA_CELL_BACK_START])->shape;
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

static dra_value find_upstream(dra_graph *g, dra_value dy, dra_value y)
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

/* Inputs of the gradient's node for one cell: those of the cell, its outputs and their
 * gradients. */
static void back_inputs(dra_graph *g, const dra_cell_attr *a, const dra_value *in,
                        const dra_value *out, const dra_value *dy, dra_value *to)
{
    to[DRA_CELL_BACK_H] = out[DRA_CELL_H];
    to[DRA_CELL_BACK_W] = whole_blocks(g, in[DRA_CELL_W]);
    to[DRA_CELL_BACK_MIX] = in[DRA_CELL_MIX];
    to[DRA_CELL_BACK_START] = in[DRA_CELL_START];
    to[DRA_CELL_BACK_KEPT] = out[DRA_CELL_KEPT];
    to[DRA_CELL_BACK_DH] = find_upstream(g, dy[DRA_CELL_H], out[DRA_CELL_H]);
    for (int i = 0; i < a->states; i++)
        to[DRA_CELL_BACK_DLAST + i] = find_upstream(g, dy[DRA_CELL_LAST + i],
                                                    out[DRA_CELL_LAST + i]);
}

/* (B, T, H parts, gates D) to (B, T, H, gates D). */
static dra_value add_parts(dra_graph *g, const dra_cell_attr *a, dra_value dx)
{
    const int64_t   parts = dra_cell_slot_parts(a);
    const dra_shape s = dra_shape_of(g, dx);
    if (parts == 1) return dx;
    dx = dra_reshape(g, dx, DRA_SHAPE(s.dim[0], s.dim[1], s.dim[2] / parts, parts, s.dim[3]));
    return dra_sum(g, dx, (dra_axes){1, {3}, false});
}

/* Of beta, or of u. No tile is there to fill it in where states have no units: none, which is 0. */
static dra_value mix_grad(dra_graph *g, const dra_cell_attr *a, const dra_value *in,
                          const dra_value *d)
{
    if (!a->slots) return dra_mul(g, dra_sigmoid(g, in[DRA_CELL_BETA]), d[DRA_CELL_DSWING]);
    return dra_shape_of(g, in[DRA_CELL_X]).dim[3] > 0 ? d[DRA_CELL_DSWING] : (dra_value){0};
}

void dra_cell_gradient(dra_graph *g, const dra_cell_kind *kind, const dra_node *n,
                       const dra_value *dy, dra_value *dx)
{
    const dra_cell_attr *a = n->attr;
    const int            inputs = dra_cell_inputs(a), cells = cells_of(n, inputs);
    const int            outputs = dra_cell_outputs(a), back = dra_cell_back_inputs(a);
    dra_value            given[DRA_CELL_MOST * (DRA_CELL_BACK_DLAST + DRA_CELL_STATES) + 1];
    for (int k = 0; k < cells; k++)
        back_inputs(g, a, n->in + k * inputs, n->out + k * outputs, dy + k * outputs,
                    given + k * back);
    given[cells * back] = n->in[n->n_in - 1];
    const dra_node *made = dra_node_add(g, kind->back_op, cells * back + 1, given, a);
    for (int k = 0; made && k < cells; k++, dx += inputs) {
        const dra_value *d = made->out + k * dra_cell_back_outputs(a);
        const dra_value *in = n->in + k * inputs;
        const dra_shape  b = dra_shape_of(g, in[DRA_CELL_B]);
        dx[DRA_CELL_X] = add_parts(g, a, d[DRA_CELL_DX]);
        dx[DRA_CELL_W] = d[DRA_CELL_DW];
        dx[DRA_CELL_B] = dra_unbroadcast(g, d[DRA_CELL_DB], b);
        dx[DRA_CELL_BETA] = mix_grad(g, a, in, d);
        for (int i = 0; i < a->states; i++) dx[DRA_CELL_START + i] = d[DRA_CELL_DSTART + i];
    }
}

/* ---- builder --------------------------------------------------------------------------------- */

/* (gates D, D) or (H, gates D, D) to (sets, blocks, D, gates, UNITS), zeros for missing units. What
 * depends on parameters alone is made once, so steps of one token find it made. */
static dra_value pack_gates(dra_graph *g, dra_value w, int64_t gates, int64_t D)
{
    const dra_shape s = dra_shape_of(g, w);
    const int64_t   sets = s.rank == 3 ? s.dim[0] : 1, blocks = dra_div_up(D, DRA_CELL_UNITS);
    const dra_value each = dra_reshape(g, w, DRA_SHAPE(sets, gates, D, D));
    const dra_value whole = dra_pad(g, each, 2, 0, blocks * DRA_CELL_UNITS - D, 0);
    const dra_value split = dra_reshape(g, whole,
                                        DRA_SHAPE(sets, gates, blocks, DRA_CELL_UNITS, D));
    return dra_copy(g, dra_permute(g, split, (const int[]){0, 2, 4, 1, 3}));
}

/* Refuses a part that is given with neither `shape` nor `other` (of rank -1: there is no other). */
static bool check_part(dra_graph *g, const dra_cell_kind *kind, int cell, const char *name,
                       dra_value v, dra_shape shape, dra_shape other)
{
    if (!v.id) return true;
    const dra_type *t = dra_type_of(g, v);
    const bool      fits = dra_shape_equal(&t->shape, &shape) || dra_shape_equal(&t->shape, &other);
    char            text[2][64];
    if (t->dtype == DRA_REAL && fits) return true;
    dra_shape_text(&shape, text[0], sizeof text[0]);
    if (other.rank >= 0) dra_shape_text(&other, text[1], sizeof text[1]);
    dra_build_fail(g, kind->name, t->dtype == DRA_REAL ? DRA_ERR_SHAPE : DRA_ERR_DTYPE,
                   "cell %d: %s is %s, expected %s %s%s%s", cell, name, dra_type_text(g, v),
                   dra_dtype_get(DRA_REAL)->name, text[0], other.rank >= 0 ? " or " : "",
                   other.rank >= 0 ? text[1] : "");
    return false;
}

/* x of cell k must be (B, T, H, gates D), with the sizes of cell 0 but for D. */
static bool check_x(dra_graph *g, const dra_cell_kind *kind, int k, dra_value x,
                    const dra_shape *first)
{
    const dra_type *t = dra_type_of(g, x);
    const int64_t  *dim = t->shape.dim;
    if (t->dtype != DRA_REAL || t->shape.rank != 4 || dim[3] % kind->attr.gates != 0)
        dra_build_fail(g, kind->name, t->dtype == DRA_REAL ? DRA_ERR_SHAPE : DRA_ERR_DTYPE,
                       "cell %d: x is %s, expected %s (B, T, H, %dD)", k, dra_type_text(g, x),
                       dra_dtype_get(DRA_REAL)->name, kind->attr.gates);
    else if (dim[0] != first->dim[0] || dim[1] != first->dim[1] || dim[2] != first->dim[2])
        dra_build_fail(g, kind->name, DRA_ERR_SHAPE,
                       "cell %d: x is %s, expected the B, T and H of cell 0: %lld, %lld, %lld", k,
                       dra_type_text(g, x), (long long)first->dim[0], (long long)first->dim[1],
                       (long long)first->dim[2]);
    return !dra_graph_failed(g);
}

/* What a cell says of its mixing, and its first states. */
static bool check_states(dra_graph *g, const dra_cell_kind *kind, int k, const dra_cell_parts *p,
                         const int64_t *x)
{
    const dra_shape none = {.rank = -1};
    const int64_t   B = x[0], T = x[1], H = x[2], S = kind->attr.slots, D = x[3] / kind->attr.gates;
    const dra_shape state = S ? DRA_SHAPE(B, H, S, D) : DRA_SHAPE(B, H, D);
    bool fits = S ? check_part(g, kind, k, "u", p->beta, DRA_SHAPE(H, S), DRA_SHAPE(B, T, H, S))
                  : check_part(g, kind, k, "beta", p->beta, DRA_SHAPE(H, D), none);
    for (int i = 0; fits && i < kind->attr.states; i++)
        fits = check_part(g, kind, k, kind->start[i], p->start[i], state, none);
    return fits;
}

static bool check_cell(dra_graph *g, const dra_cell_kind *kind, int k, const dra_cell_parts *p,
                       const dra_shape *first)
{
    dra_value given[4 + DRA_CELL_STATES] = {p->x, p->w};
    int       n = 2;
    if (p->b.id) given[n++] = p->b;
    if (p->beta.id || kind->attr.slots) given[n++] = p->beta;
    for (int i = 0; i < kind->attr.states; i++)
        if (p->start[i].id) given[n++] = p->start[i];
    if (!dra_check_values(g, kind->name, n, given) || !check_x(g, kind, k, p->x, first))
        return false;
    const int64_t *dim = dra_type_of(g, p->x)->shape.dim;
    const int64_t  H = dim[2], D = dim[3] / kind->attr.gates, G = dim[3];
    return check_part(g, kind, k, "w", p->w, DRA_SHAPE(G, D), DRA_SHAPE(H, G, D)) &&
           check_part(g, kind, k, "b", p->b, DRA_SHAPE(G), DRA_SHAPE(H, G)) &&
           check_states(g, kind, k, p, dim);
}

/* beta (H, D) and its 1 - g, or u for every token, twice. */
static void mix_inputs(dra_graph *g, const dra_cell_kind *kind, dra_value beta, const int64_t *x,
                       dra_value *in)
{
    const int64_t B = x[0], T = x[1], H = x[2], S = kind->attr.slots, D = x[3] / kind->attr.gates;
    if (!S) {
        in[DRA_CELL_BETA] = beta.id ? beta : rows_of(g, -INFINITY, DRA_SHAPE(H, D));
        in[DRA_CELL_MIX] = dra_sigmoid(g, dra_neg(g, in[DRA_CELL_BETA]));
    } else if (dra_shape_of(g, beta).rank == 2) {
        const dra_value row = dra_reshape(g, beta, DRA_SHAPE(H * S));
        in[DRA_CELL_BETA] = in[DRA_CELL_MIX] = dra_broadcast(g, row, DRA_SHAPE(B, T, H * S));
    } else {
        in[DRA_CELL_BETA] = in[DRA_CELL_MIX] = dra_reshape(g, beta, DRA_SHAPE(B, T, H * S));
    }
}

static void cell_inputs(dra_graph *g, const dra_cell_kind *kind, const dra_cell_parts *p,
                        dra_value *in)
{
    const dra_shape x = dra_shape_of(g, p->x);
    const int64_t   B = x.dim[0], H = x.dim[2], G = x.dim[3], D = G / kind->attr.gates;
    const bool      own_b = p->b.id && dra_type_of(g, p->b)->shape.rank == 2;
    in[DRA_CELL_X] = p->x;
    in[DRA_CELL_W] = own_b ? dra_broadcast(g, p->w, DRA_SHAPE(H, G, D)) : p->w;
    in[DRA_CELL_PACKED] = pack_gates(g, in[DRA_CELL_W], kind->attr.gates, D);
    in[DRA_CELL_B] = p->b.id ? p->b : rows_of(g, 0, DRA_SHAPE(G));
    mix_inputs(g, kind, p->beta, x.dim, in);
    for (int i = 0; i < kind->attr.states; i++) {
        const dra_shape state = DRA_SHAPE(B, H * dra_cell_slots(&kind->attr), D);
        const dra_value start = p->start[i];
        in[DRA_CELL_START + i] = start.id ? start : rows_of(g, 0, state);
        if (kind->attr.slots && start.id) in[DRA_CELL_START + i] = dra_reshape(g, start, state);
    }
}

/* All cells, one after the other, then the marks. */
static bool all_inputs(dra_graph *g, const dra_cell_kind *kind, int cells,
                       const dra_cell_parts *part, dra_value mark, dra_value *in)
{
    if (cells < 1 || cells > DRA_CELL_MOST)
        dra_build_fail(g, kind->name, DRA_ERR_VALUE, "%d cells, expected 1 to %d", cells,
                       DRA_CELL_MOST);
    if (dra_graph_failed(g) || !dra_check_values(g, kind->name, 1, &part[0].x)) return false;
    const dra_shape x = dra_shape_of(g, part[0].x), tokens = DRA_SHAPE(x.dim[0], x.dim[1]);
    for (int k = 0; k < cells; k++, in += dra_cell_inputs(&kind->attr)) {
        if (!check_cell(g, kind, k, &part[k], &x)) return false;
        cell_inputs(g, kind, &part[k], in);
    }
    if (!mark.id) mark = dra_broadcast(g, dra_integer(g, 0), tokens);
    *in = mark;
    return dra_check_values(g, kind->name, 1, in) &&
           dra_recur_expect(g, kind->name, "mark", mark, DRA_I32, tokens);
}

/* States (..., H S, D) as (..., H, S, D). */
static dra_value split_heads(dra_graph *g, const dra_cell_kind *kind, dra_value x)
{
    if (!kind->attr.slots) return x;
    dra_shape s = dra_shape_of(g, x);
    s.dim[s.rank] = s.dim[s.rank - 1];
    s.dim[s.rank - 1] = kind->attr.slots;
    s.dim[s.rank - 2] /= kind->attr.slots;
    s.rank++;
    return dra_reshape(g, x, s);
}

void dra_cell_build(dra_graph *g, const dra_cell_kind *kind, int cells, const dra_cell_parts *part,
                    dra_value mark, dra_value *h, dra_value *const *last)
{
    const int       inputs = dra_cell_inputs(&kind->attr);
    dra_value       in[DRA_CELL_MOST * (DRA_CELL_START + DRA_CELL_STATES) + 1];
    const dra_node *n = NULL;
    if (all_inputs(g, kind, cells, part, mark, in))
        n = dra_node_add(g, kind->op, cells * inputs + 1, in, &kind->attr);
    for (int k = 0; k < cells; k++) {
        const dra_value *out = n ? n->out + k * dra_cell_outputs(&kind->attr) : NULL;
        h[k] = n ? split_heads(g, kind, out[DRA_CELL_H]) : (dra_value){0};
        for (int i = 0; i < kind->attr.states; i++)
            if (last[i])
                last[i][k] = n ? split_heads(g, kind, out[DRA_CELL_LAST + i]) : (dra_value){0};
    }
}
