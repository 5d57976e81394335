/* Sums of microbatches. A node is added up in a block of gradients: its left child there, its right
 * child in the block above, then both. A right child that is one program adds to the left one in
 * place, which has the same bits: what it would be added to otherwise is 0. */
#include "train/sums.h"

#include <stdlib.h>

#include "base/error.h"
#include "device/array.h"
#include "train/gradients.h"

struct dra_sums {
    dra_gradients *l;
    int64_t        leaves;
    bool           whole;
    dra_comm      *comm;
    dra_adder     *adder;
    dra_leaves     own;
    dra_leaves     node[DRA_TREE_COVER]; /* of this rank; node k is in block k */
    int            nodes, blocks;
    size_t        *offset; /* (ranks + 1): parts of a block, by rank */
    dra_array     *room;   /* for nodes of other ranks */
};

static bool adds_in_place(const dra_sums *s, dra_leaves right) { return s->whole && right.n == 1; }

/* Blocks that a node is added up in. */
static int count_blocks(const dra_sums *s, dra_leaves node)
{
    if (node.n == 1) return 1;
    const dra_leaves right = dra_tree_right(node);
    const int        left = count_blocks(s, dra_tree_left(node));
    const int        more = adds_in_place(s, right) ? 1 : 1 + count_blocks(s, right);
    return left > more ? left : more;
}

/* Parts are as large as each other, in pieces of 64 bytes. */
static dra_status cut_block(dra_sums *s, dra_error *err)
{
    const int    n = dra_comm_size(s->comm);
    const size_t pieces = dra_gradients_block(s->l, 0).bytes / 64;
    s->offset = calloc((size_t)n + 1, sizeof *s->offset);
    if (!s->offset) return dra_fail(err, DRA_ERR_MEMORY, "gradients: out of memory");
    for (int r = 0; r <= n; r++) s->offset[r] = pieces * (size_t)r / (size_t)n * 64;
    return DRA_OK;
}

static dra_status reserve_memory(dra_sums *s, dra_error *err)
{
    for (int k = 0; k < s->nodes; k++) {
        const int blocks = k + count_blocks(s, s->node[k]);
        if (blocks > s->blocks) s->blocks = blocks;
    }
    dra_device *device = dra_span_device(dra_gradients_block(s->l, 0));
    dra_status  st = dra_gradients_reserve(s->l, s->blocks, err);
    if (st == DRA_OK) st = dra_adder_create(device, &s->adder, err);
    if (st != DRA_OK || dra_comm_size(s->comm) == 1) return st;
    st = cut_block(s, err);
    if (st != DRA_OK) return st;
    const size_t bytes = dra_comm_reduce_room(s->comm, s->leaves, s->offset);
    return dra_array_create(device, bytes, &s->room, err);
}

dra_status dra_sums_create(dra_gradients *l, int64_t leaves, bool whole, dra_comm *comm,
                           dra_sums **out, dra_error *err)
{
    dra_sums *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return dra_fail(err, DRA_ERR_MEMORY, "gradients: out of memory");
    *s = (dra_sums){.l = l, .leaves = leaves, .whole = whole, .comm = comm};
    s->own = dra_tree_share(leaves, dra_comm_rank(comm), dra_comm_size(comm));
    s->nodes = dra_tree_cover(leaves, s->own, s->node);
    const dra_status st = reserve_memory(s, err);
    if (st == DRA_OK)
        *out = s;
    else
        dra_sums_destroy(s);
    return st;
}

void dra_sums_destroy(dra_sums *s)
{
    if (!s) return;
    dra_adder_destroy(s->adder);
    dra_array_destroy(s->room);
    free(s->offset);
    free(s);
}

dra_leaves dra_sums_own(const dra_sums *s) { return s->own; }

size_t dra_sums_more(const dra_sums *s)
{
    const size_t each = dra_gradients_block(s->l, 0).bytes;
    return (size_t)(s->blocks - 1) * each + dra_array_whole(s->room).bytes;
}

/* ---- microbatches of this rank --------------------------------------------------------------- */

typedef struct caller {
    dra_on_leaf fn;
    void       *user;
} caller;

static dra_status add_leaf(dra_sums *s, const caller *c, int64_t leaf, int block, bool clear,
                           dra_error *err)
{
    const dra_status st = dra_gradients_into(s->l, block, clear, err);
    return st == DRA_OK ? c->fn(c->user, leaf, err) : st;
}

static dra_status sum_node(dra_sums *s, const caller *c, dra_leaves node, int block, dra_error *err)
{
    if (node.n == 1) return add_leaf(s, c, node.first, block, true, err);
    const dra_leaves right = dra_tree_right(node);
    dra_status       st = sum_node(s, c, dra_tree_left(node), block, err);
    if (st != DRA_OK) return st;
    if (adds_in_place(s, right)) return add_leaf(s, c, right.first, block, false, err);
    st = sum_node(s, c, right, block + 1, err);
    return st == DRA_OK ? dra_adder_add(s->adder, dra_gradients_block(s->l, block),
                                        dra_gradients_block(s->l, block + 1), err)
                        : st;
}

dra_status dra_sums_run(dra_sums *s, dra_on_leaf fn, void *user, dra_error *err)
{
    const caller c = {fn, user};
    dra_status   st = dra_gradients_begin(s->l, true, err);
    for (int k = 0; k < s->nodes && st == DRA_OK; k++) st = sum_node(s, &c, s->node[k], k, err);
    return st;
}

/* ---- those of all ---------------------------------------------------------------------------- */

dra_status dra_sums_join(dra_sums *s, dra_error *err)
{
    dra_span       node[DRA_TREE_COVER];
    const int      rank = dra_comm_rank(s->comm);
    const size_t   at = s->offset[rank], bytes = s->offset[rank + 1] - at;
    const dra_span all = dra_gradients_block(s->l, 0);
    for (int k = 0; k < s->nodes; k++) node[k] = dra_gradients_block(s->l, k);
    dra_status st = dra_comm_reduce_scatter(s->comm, s->leaves, node, s->offset,
                                            dra_span_part(all, at, bytes), dra_array_whole(s->room),
                                            s->adder, err);
    return st == DRA_OK ? dra_comm_all_gather(s->comm, all, s->offset, err) : st;
}
