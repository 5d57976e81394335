/* The verifier: checks a finished graph again, node by node, and trusts nothing. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

static dra_status check_counts(const dra_node *n, dra_error *err, size_t i)
{
    const bool in_ok = n->op->n_in == DRA_MANY || n->op->n_in == n->n_in;
    const bool out_ok = n->op->n_out == DRA_MANY || n->op->n_out == n->n_out;
    if (in_ok && out_ok) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "verify: node %zu (%s) has %d inputs and %d outputs", i,
                    n->op->name, n->n_in, n->n_out);
}

/* Inputs exist and come from before; outputs say where they come from. */
static dra_status check_links(const dra_graph *g, size_t i, dra_error *err)
{
    const dra_node *n = dra_node_at(g, i);
    for (int j = 0; j < n->n_in; j++) {
        if (dra_owns(g, n->in[j])) {
            const dra_value_info *v = dra_info(g, n->in[j]);
            if (v->role != DRA_ROLE_NODE || v->node < i) continue;
        }
        return dra_fail(err, DRA_ERR_VALUE, "verify: node %zu (%s): input %d is not made before it",
                        i, n->op->name, j);
    }
    for (int j = 0; j < n->n_out; j++) {
        const dra_value_info *v = dra_owns(g, n->out[j]) ? dra_info(g, n->out[j]) : NULL;
        if (v && v->role == DRA_ROLE_NODE && v->node == i && v->output == (uint32_t)j) continue;
        return dra_fail(err, DRA_ERR_VALUE, "verify: node %zu (%s): output %d is not its own", i,
                        n->op->name, j);
    }
    return DRA_OK;
}

static dra_status check_types(const dra_graph *g, size_t i, dra_error *err)
{
    const dra_node *n = dra_node_at(g, i);
    dra_graph       trial = *g; /* a shape rule only reads the graph and sets its error */
    dra_type       *types = calloc((size_t)n->n_out + 1, sizeof *types);
    dra_status      st = DRA_OK;
    if (!types) return dra_fail(err, DRA_ERR_MEMORY, "verify: out of memory");
    if (n->op->infer(&trial, n, types) != DRA_OK)
        st = dra_fail(err, DRA_ERR_SHAPE, "verify: node %zu: %s", i, trial.error.text);
    for (int j = 0; j < n->n_out && st == DRA_OK; j++) {
        const dra_type *t = dra_type_of(g, n->out[j]);
        if (t->dtype != types[j].dtype || !dra_shape_equal(&t->shape, &types[j].shape))
            st = dra_fail(err, DRA_ERR_SHAPE, "verify: node %zu (%s): output %d has another type",
                          i, n->op->name, j);
    }
    free(types);
    return st;
}

static dra_value base_of(const dra_graph *g, dra_value v);

/* A recompute that hands on an input, or a view of one, is a view too: it is inlined. The input's
 * number, or -1. */
static int handed_on(const dra_node *n, uint32_t output)
{
    const dra_value base = base_of(n->body, dra_output_at(n->body, output)->value);
    const bool      input = dra_info(n->body, base)->role != DRA_ROLE_NODE;
    return input ? (int)dra_index(base) - 1 : -1; /* inputs are the first values of a body */
}

/* The value whose memory `v` is a view of. */
static dra_value base_of(const dra_graph *g, dra_value v)
{
    for (;;) {
        const dra_value_info *info = dra_info(g, v);
        if (info->role != DRA_ROLE_NODE) return v;
        const dra_node *n = dra_node_at(g, info->node);
        const int       from = n->op->flags & DRA_OP_VIEW   ? 0
                               : n->op == &dra_op_recompute ? handed_on(n, info->output)
                                                            : -1;
        if (from < 0) return v;
        v = n->in[from];
    }
}

static bool *find_used(const dra_graph *g)
{
    bool *used = calloc(dra_value_count(g), sizeof *used);
    for (size_t i = 0; used && i < g->outputs.n; i++)
        used[dra_index(dra_output_at(g, i)->value)] = true;
    if (used) dra_mark_used(g, used);
    return used;
}

/* The readers of the memory of each value, collected once for all donations. */
typedef struct readers {
    bool   *used;
    size_t *last;    /* the last live node that reads it, plus 1 */
    size_t *outputs; /* how many results are in its memory */
} readers;

static void readers_close(readers *r)
{
    free(r->used);
    free(r->last);
    free(r->outputs);
}

static bool is_live(const dra_node *n, const bool *used)
{
    bool live = false;
    for (int j = 0; j < n->n_out; j++) live = live || used[dra_index(n->out[j])];
    return live && !(n->op->flags & DRA_OP_VIEW);
}

static bool readers_open(readers *r, const dra_graph *g)
{
    r->used = find_used(g);
    r->last = calloc(dra_value_count(g), sizeof *r->last);
    r->outputs = calloc(dra_value_count(g), sizeof *r->outputs);
    if (!r->used || !r->last || !r->outputs) return false;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const dra_node *n = dra_node_at(g, i);
        if (!is_live(n, r->used)) continue;
        for (int j = 0; j < n->n_in; j++) r->last[dra_index(base_of(g, n->in[j]))] = i + 1;
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        r->outputs[dra_index(base_of(g, dra_output_at(g, i)->value))]++;
    return true;
}

/* No node may read a state after the node that computes the value which takes it over. */
static dra_status check_donation(const dra_graph *g, const dra_output_info *o, const readers *r,
                                 dra_error *err)
{
    const dra_value made = base_of(g, o->value);
    const uint32_t  donor = dra_index(o->donor);
    const char     *state = dra_info(g, o->donor)->name;
    const size_t    writer = dra_info(g, made)->role == DRA_ROLE_NODE ? dra_info(g, made)->node
                                                                      : g->nodes.n;
    for (size_t i = writer + 1; i < r->last[donor]; i++) {
        const dra_node *n = dra_node_at(g, i);
        if (!is_live(n, r->used)) continue;
        for (int j = 0; j < n->n_in; j++)
            if (base_of(g, n->in[j]).id == o->donor.id)
                return dra_fail(err, DRA_ERR_VALUE,
                                "donate: node %zu (%s) reads '%s' after node %zu (%s) gave its "
                                "memory to '%s'",
                                i, n->op->name, state, writer, dra_node_at(g, writer)->op->name,
                                o->name);
    }
    const size_t own = made.id == o->donor.id;
    if (r->outputs[donor] <= own || o->value.id == o->donor.id) /* given to itself it stays */
        return DRA_OK;
    for (size_t i = 0; i < g->outputs.n; i++) {
        const dra_output_info *other = dra_output_at(g, i);
        if (other != o && base_of(g, other->value).id == o->donor.id)
            return dra_fail(
                err, DRA_ERR_VALUE,
                "donate: output '%s' is the old value of '%s', whose memory goes to '%s'",
                other->name, state, o->name);
    }
    return DRA_OK;
}

dra_status dra_graph_verify(const dra_graph *g, dra_error *err)
{
    if (dra_graph_failed(g)) {
        if (err) *err = g->error;
        return g->error.code;
    }
    dra_status st = DRA_OK;
    for (size_t i = 0; i < g->nodes.n && st == DRA_OK; i++) {
        const dra_node *n = dra_node_at(g, i);
        st = check_counts(n, err, i);
        if (st == DRA_OK) st = check_links(g, i, err);
        if (st == DRA_OK && n->body) st = dra_graph_verify(n->body, err);
        if (st == DRA_OK) st = check_types(g, i, err);
    }
    readers r = {0};
    if (st == DRA_OK && !readers_open(&r, g))
        st = dra_fail(err, DRA_ERR_MEMORY, "verify: out of memory");
    for (size_t i = 0; i < g->outputs.n && st == DRA_OK; i++)
        if (dra_output_at(g, i)->donor.id) st = check_donation(g, dra_output_at(g, i), &r, err);
    readers_close(&r);
    return st;
}
