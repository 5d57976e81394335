/* Gradients by rules that build nodes: walk the nodes backwards, ask each op for the gradients of
 * its inputs, add up over uses. The gradient of a float value is real whatever its own dtype.
 * Gradients of adjacent slices, such as q, k and v of one product, are joined instead of padded and
 * added. */
#include "graph/fuse.h"
#include "graph/graph.h"

#include <stdlib.h>

typedef struct walk {
    dra_graph *g;
    size_t     first, last; /* nodes looked at: first <= i < last */
    size_t     values;      /* how many values there were at the start */
    bool      *depends;     /* by value: depends on one of the x */
    dra_value *dv;          /* by value: the gradient so far */
} walk;

static bool depends_on_x(const walk *w, dra_value v)
{
    return dra_index(v) < w->values && w->depends[dra_index(v)];
}

/* An x may be the result of an op without a gradient: the walk stops there. */
static bool leads_to_x(const walk *w, const dra_node *n)
{
    bool any = false;
    for (int i = 0; i < n->n_in; i++) any = any || depends_on_x(w, n->in[i]);
    return any && !(n->op->flags & DRA_OP_NO_GRAD);
}

/* Whether a value carries a gradient: a float that depends on x, unless its op stops gradients. */
static void mark_dependants(walk *w)
{
    for (size_t i = w->first; i < w->last; i++) {
        const dra_node *n = dra_node_at(w->g, i);
        if (!leads_to_x(w, n)) continue;
        for (int j = 0; j < n->n_out; j++)
            if (dra_is_float(w->g, n->out[j])) w->depends[dra_index(n->out[j])] = true;
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

enum { PARTS = 16 }; /* of a concat, at most */

typedef struct range { /* 0 except for some rows along an axis: the gradient of a slice */
    int       axis, n;
    int64_t   before, rows;
    dra_value x[PARTS]; /* those rows, one after the other */
} range;

static const dra_node *maker_of(const dra_graph *g, dra_value v)
{
    const dra_value_info *i = dra_info(g, v);
    return i->role == DRA_ROLE_NODE ? dra_node_at(g, i->node) : NULL;
}

static bool range_of(const dra_graph *g, dra_value v, range *r)
{
    const dra_node *n = maker_of(g, v);
    if (!n || n->op != &dra_op_pad) return false;
    const dra_join_attr *a = n->attr;
    *r = (range){a->axis, 1, a->before, dra_type_of(g, n->in[0])->shape.dim[a->axis], {n->in[0]}};
    const dra_node *inner = maker_of(g, n->in[0]);
    if (!inner || inner->op != &dra_op_concat || inner->n_in > PARTS ||
        ((const dra_join_attr *)inner->attr)->axis != a->axis)
        return a->fill == 0;
    r->n = inner->n_in;
    for (int i = 0; i < inner->n_in; i++) r->x[i] = inner->in[i];
    return a->fill == 0;
}

/* The sum of two adjacent ones, without more zeros than needed. */
static dra_value join_ranges(dra_graph *g, const range *a, const range *b, int64_t size)
{
    dra_value x[2 * PARTS];
    for (int i = 0; i < a->n; i++) x[i] = a->x[i];
    for (int i = 0; i < b->n; i++) x[a->n + i] = b->x[i];
    const dra_value all = dra_concat(g, a->n + b->n, x, a->axis);
    const int64_t   end = b->before + b->rows;
    if (a->before == 0 && end == size) return all;
    return dra_pad(g, all, a->axis, a->before, size - end, 0);
}

static dra_value add_up(dra_graph *g, dra_value sum, dra_value dv)
{
    range a, b;
    if (!dra_graph_failed(g) && range_of(g, sum, &a) && range_of(g, dv, &b) && a.axis == b.axis &&
        a.n + b.n <= PARTS) {
        const int64_t size = dra_type_of(g, sum)->shape.dim[a.axis];
        if (a.before + a.rows == b.before) return join_ranges(g, &a, &b, size);
        if (b.before + b.rows == a.before) return join_ranges(g, &b, &a, size);
    }
    return dra_add(g, sum, dv);
}

static void add_gradient(walk *w, dra_value v, dra_value dv)
{
    if (!dv.id || !depends_on_x(w, v)) return;
    dra_value *sum = &w->dv[dra_index(v)];
    *sum = sum->id ? add_up(w->g, *sum, dv) : dv;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static void step_back(walk *w, const dra_node *n)
{
    if (!leads_to_x(w, n)) return;
    dra_value *dy = calloc((size_t)(n->n_out + n->n_in), sizeof *dy);
    bool       any = false;
    if (!dy) {
        dra_build_fail(w->g, "gradient", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    for (int i = 0; i < n->n_out; i++) {
        if (depends_on_x(w, n->out[i])) dy[i] = w->dv[dra_index(n->out[i])];
        any = any || dy[i].id;
    }
    if (any && !n->op->gradient)
        dra_build_fail(w->g, "gradient", DRA_ERR_GRAD, "op '%s' has none", n->op->name);
    if (any && n->op->gradient) {
        dra_value *dx = dy + n->n_out;
        n->op->gradient(w->g, n, dy, dx);
        for (int i = 0; i < n->n_in; i++) add_gradient(w, n->in[i], dx[i]);
    }
    free(dy);
}

static dra_value zeros_like(dra_graph *g, dra_value x)
{
    return dra_broadcast(g, dra_number(g, 0), dra_type_of(g, x)->shape);
}

static bool check_upstream(dra_graph *g, dra_value y, dra_value dy)
{
    const dra_type *t = dra_type_of(g, y);
    if (!dra_is_float(g, y)) {
        dra_build_fail(g, "gradient", DRA_ERR_GRAD, "y is %s; only floats have one",
                       dra_type_text(g, y));
    } else if (!dy.id && dra_shape_count(&t->shape) != 1) {
        dra_build_fail(g, "gradient", DRA_ERR_SHAPE, "y %s has several elements and no upstream",
                       dra_type_text(g, y));
    } else if (dy.id &&
               (!dra_check_values(g, "gradient", 1, &dy) || dra_type_of(g, dy)->dtype != DRA_REAL ||
                !dra_shape_equal(&dra_type_of(g, dy)->shape, &t->shape))) {
        if (!dra_graph_failed(g))
            dra_build_fail(g, "gradient", DRA_ERR_SHAPE, "y %s, its upstream %s",
                           dra_type_text(g, y), dra_type_text(g, dy));
    }
    return !dra_graph_failed(g);
}

static bool check_arguments(dra_graph *g, int n_y, const dra_value *y, const dra_value *dy, int n_x,
                            const dra_value *x)
{
    if (!dra_check_values(g, "gradient", n_y, y) || !dra_check_values(g, "gradient", n_x, x))
        return false;
    for (int i = 0; i < n_y; i++)
        if (!check_upstream(g, y[i], dy ? dy[i] : (dra_value){0})) return false;
    for (int i = 0; i < n_x; i++) {
        if (dra_is_float(g, x[i])) continue;
        dra_build_fail(g, "gradient", DRA_ERR_GRAD, "x %d is %s; only floats have one", i,
                       dra_type_text(g, x[i]));
        return false;
    }
    return true;
}

static void start_walk(walk *w, int n_y, const dra_value *y, const dra_value *dy)
{
    for (int i = 0; i < n_y; i++) {
        dra_value up = dy ? dy[i] : (dra_value){0};
        if (!up.id) up = dra_broadcast(w->g, dra_number(w->g, 1), dra_type_of(w->g, y[i])->shape);
        add_gradient(w, y[i], up);
    }
}

void dra_gradient_since(dra_graph *g, size_t first, int n_y, const dra_value *y,
                        const dra_value *dy, int n_x, const dra_value *x, dra_value *dx)
{
    for (int i = 0; i < n_x; i++) dx[i] = (dra_value){0};
    if (!check_arguments(g, n_y, y, dy, n_x, x)) return;
    walk w = {g, first, g->nodes.n, dra_value_count(g), NULL, NULL};
    w.depends = calloc(w.values, sizeof *w.depends);
    w.dv = calloc(w.values, sizeof *w.dv);
    if (w.depends && w.dv) {
        for (int i = 0; i < n_x; i++) w.depends[dra_index(x[i])] = true;
        mark_dependants(&w);
        start_walk(&w, n_y, y, dy);
        for (size_t i = w.last; i-- > first && !dra_graph_failed(g);)
            step_back(&w, dra_node_at(g, i));
        for (int i = 0; i < n_x && !dra_graph_failed(g); i++) {
            dx[i] = w.dv[dra_index(x[i])];
            if (!dx[i].id) dx[i] = zeros_like(g, x[i]);
        }
    } else {
        dra_build_fail(g, "gradient", DRA_ERR_MEMORY, "out of memory");
    }
    free(w.depends);
    free(w.dv);
}

void dra_gradient(dra_graph *g, int n_y, const dra_value *y, const dra_value *dy, int n_x,
                  const dra_value *x, dra_value *dx)
{
    dra_gradient_since(g, 0, n_y, y, dy, n_x, x, dx);
}
