#include "comm/tree.h"

#include <stdlib.h>

#include "base/error.h"
#include "dra/ops.h"
#include "session/session.h"

/* ---- the tree -------------------------------------------------------------------------------- */

dra_leaves dra_tree_left(dra_leaves node)
{
    int64_t n = 1;
    while (2 * n < node.n) n *= 2;
    return (dra_leaves){node.first, n};
}

dra_leaves dra_tree_right(dra_leaves node)
{
    const int64_t left = dra_tree_left(node).n;
    return (dra_leaves){node.first + left, node.n - left};
}

dra_leaves dra_tree_share(int64_t leaves, int rank, int size)
{
    const int64_t each = leaves / size, more = leaves % size;
    const int64_t first = rank * each + (rank < more ? rank : more);
    return (dra_leaves){first, each + (rank < more)};
}

static int cover_node(dra_leaves node, dra_leaves own, dra_leaves *out, int n)
{
    const int64_t end = node.first + node.n, own_end = own.first + own.n;
    if (end <= own.first || node.first >= own_end) return n;
    if (node.first < own.first || end > own_end) {
        n = cover_node(dra_tree_left(node), own, out, n);
        return cover_node(dra_tree_right(node), own, out, n);
    }
    out[n] = node;
    return n + 1;
}

int dra_tree_cover(int64_t leaves, dra_leaves own, dra_leaves out[DRA_TREE_COVER])
{
    return cover_node((dra_leaves){0, leaves}, own, out, 0);
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct dra_adder {
    dra_session *session;
    int          to, from; /* names in it */
};

static void build_sum(dra_graph *g, void *user, const void *key, size_t bytes)
{
    const int64_t   n = *(const int64_t *)key;
    const dra_value to = dra_state(g, "to", DRA_REAL, DRA_SHAPE(n));
    const dra_value from = dra_state(g, "from", DRA_REAL, DRA_SHAPE(n));
    dra_donate(g, "sum", dra_add(g, to, from), to);
}

dra_status dra_adder_create(dra_device *device, dra_adder **out, dra_error *err)
{
    dra_adder *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a) return dra_fail(err, DRA_ERR_MEMORY, "ranks: out of memory");
    const dra_status st = dra_session_create(device, build_sum, a, &a->session, err);
    if (st != DRA_OK) {
        free(a);
        return st;
    }
    a->to = dra_session_name(a->session, "to");
    a->from = dra_session_name(a->session, "from");
    *out = a;
    return DRA_OK;
}

void dra_adder_destroy(dra_adder *a)
{
    if (!a) return;
    dra_session_destroy(a->session);
    free(a);
}

dra_status dra_adder_add(dra_adder *a, dra_span to, dra_span from, dra_error *err)
{
    const int64_t n = (int64_t)(to.bytes / sizeof(dra_real));
    if (n == 0) return DRA_OK;
    dra_status st = dra_session_select(a->session, &n, sizeof n, err);
    if (st == DRA_OK) st = dra_session_bind(a->session, a->to, to, err);
    if (st == DRA_OK) st = dra_session_bind(a->session, a->from, from, err);
    return st == DRA_OK ? dra_session_start(a->session, err) : st;
}
