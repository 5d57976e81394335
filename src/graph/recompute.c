/* recompute: out = body(in), inlined by the compiler like any other nodes, but one unit to the
 * gradient: its rule builds the body a second time, next to the gradients, so that nothing inside
 * has to live from the forward pass to the backward pass. */
#include "graph/graph.h"

#include <stdlib.h>

static dra_status infer_recompute(dra_graph *g, const dra_node *n, dra_type *out)
{
    for (int i = 0; i < n->n_out; i++) out[i] = *dra_body_output_type(n->body, i);
    return DRA_OK;
}

/* Splits off the pairs (y, dy) that have an upstream; returns how many. */
static int live_outputs(int n, const dra_value *y, const dra_value *dy, dra_value *y_live,
                        dra_value *dy_live)
{
    int live = 0;
    for (int i = 0; i < n; i++) {
        if (!dy[i].id) continue;
        y_live[live] = y[i];
        dy_live[live++] = dy[i];
    }
    return live;
}

static bool is_among(dra_value v, int n, const dra_value *list)
{
    for (int i = 0; i < n; i++)
        if (list[i].id == v.id) return true;
    return false;
}

/* The float inputs, by number, each value once (its gradient holds all its uses); how many. */
static int float_inputs(const dra_graph *g, int n, const dra_value *in, dra_value *x, int *which)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        if (!dra_is_float(g, in[i]) || is_among(in[i], found, x)) continue;
        x[found] = in[i];
        which[found++] = i;
    }
    return found;
}

static void derive_recompute(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const size_t room = (size_t)(3 * n->n_out + 2 * n->n_in);
    dra_value   *y = calloc(room, sizeof *y);
    int         *which = calloc((size_t)n->n_in + 1, sizeof *which);
    if (y && which) {
        dra_value   *y_live = y + n->n_out, *dy_live = y_live + n->n_out;
        dra_value   *x = dy_live + n->n_out, *d = x + n->n_in;
        const size_t first = dra_node_count(g);
        dra_inline(g, n->body, n->in, y);
        const int n_y = live_outputs(n->n_out, y, dy, y_live, dy_live);
        const int n_x = float_inputs(g, n->n_in, n->in, x, which);
        dra_gradient_since(g, first, n_y, y_live, dy_live, n_x, x, d);
        for (int i = 0; i < n_x; i++) dx[which[i]] = d[i];
    } else {
        dra_op_fail(g, n, DRA_ERR_MEMORY, "out of memory");
    }
    free(y);
    free(which);
}

const dra_op dra_op_recompute = {.name = "recompute",
                                 .n_in = DRA_MANY,
                                 .n_out = DRA_MANY,
                                 .flags = DRA_OP_REGION,
                                 .infer = infer_recompute,
                                 .gradient = derive_recompute};

void dra_recompute(dra_graph *g, dra_region_body body, void *user, int n_in, const dra_value *in,
                   int n_out, dra_value *out)
{
    const size_t    room = (size_t)(n_in + n_out) + 1;
    dra_type       *types = calloc(room, sizeof *types);
    dra_value      *inner = calloc(room, sizeof *inner);
    const dra_node *n = NULL;
    if (!types || !inner) {
        dra_build_fail(g, "recompute", DRA_ERR_MEMORY, "out of memory");
    } else if (dra_check_values(g, "recompute", n_in, in)) {
        for (int i = 0; i < n_in; i++) types[i] = *dra_type_of(g, in[i]);
        dra_graph *b = dra_body_create(g, n_in, types, inner);
        if (b) body(b, user, inner, inner + n_in);
        if (b && dra_body_return(g, b, n_out, inner + n_in))
            n = dra_region_add(g, &dra_op_recompute, n_in, in, NULL, b);
    }
    for (int i = 0; i < n_out; i++) out[i] = n ? n->out[i] : (dra_value){0}; /* may be `in` */
    free(types);
    free(inner);
}
