/* Ranks, whatever moves their bytes: agreement, numbers of the host, arrays, sums. */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/array.h"

int dra_comm_rank(const dra_comm *c) { return c ? c->rank : 0; }

int dra_comm_size(const dra_comm *c) { return c ? c->size : 1; }

bool dra_comm_broken(const dra_comm *c) { return c && c->broken; }

void dra_comm_destroy(dra_comm *c)
{
    if (!c) return;
    c->table->leave(c->self, c->broken);
    free(c);
}

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "ranks: out of memory");
}

dra_status dra_comm_break(dra_comm *c, dra_status st)
{
    if (c && st != DRA_OK) c->broken = true;
    return st;
}

static dra_status fail_broken(dra_error *err)
{
    return dra_fail(err, DRA_ERR_DEVICE, "ranks: the others cannot be heard any more");
}

/* ---- numbers of the host --------------------------------------------------------------------- */

dra_status dra_comm_share_parts(dra_comm *c, void *all, const size_t *offset, dra_error *err)
{
    if (!c) return DRA_OK;
    if (c->broken) return fail_broken(err);
    return dra_comm_break(c, c->table->all_gather(c->self, all, offset, err));
}

dra_status dra_comm_share(dra_comm *c, void *all, size_t each, dra_error *err)
{
    const size_t n = (size_t)dra_comm_size(c);
    size_t      *offset = calloc(n + 1, sizeof *offset);
    if (!offset) return dra_comm_break(c, out_of_memory(err));
    for (size_t r = 0; r <= n; r++) offset[r] = r * each;
    const dra_status st = dra_comm_share_parts(c, all, offset, err);
    free(offset);
    return st;
}

dra_status dra_comm_spread(dra_comm *c, int from, void *data, size_t bytes, dra_error *err)
{
    const size_t n = (size_t)dra_comm_size(c);
    size_t      *offset = calloc(n + 1, sizeof *offset);
    if (!offset) return dra_comm_break(c, out_of_memory(err));
    for (size_t r = 0; r <= n; r++) offset[r] = (int)r > from ? bytes : 0;
    const dra_status st = dra_comm_share_parts(c, data, offset, err);
    free(offset);
    return st;
}

dra_status dra_comm_pass(dra_comm *c, int from, int to, void *data, size_t bytes, dra_error *err)
{
    const dra_piece all = {data, bytes}, none = {0};
    const bool      gives = c->rank == from, takes = c->rank == to;
    if (from == to || (!gives && !takes)) return DRA_OK;
    if (c->broken) return fail_broken(err);
    return dra_comm_break(c, c->table->exchange(c->self, gives ? to : -1, gives ? all : none,
                                                takes ? from : -1, takes ? all : none, err));
}

/* ---- agreement ------------------------------------------------------------------------------- */

typedef struct finding { /* what a rank has met */
    int32_t   status;
    dra_error error;
} finding;

dra_status dra_comm_agree(dra_comm *c, dra_status st, dra_error *err)
{
    const int n = dra_comm_size(c);
    if (!c) return st;
    if (c->broken) return st == DRA_OK ? fail_broken(err) : st;
    finding *all = calloc((size_t)n, sizeof *all);
    if (!all) return dra_comm_break(c, out_of_memory(err));
    all[c->rank].status = st;
    if (st != DRA_OK && err) all[c->rank].error = *err;
    dra_status met = dra_comm_share(c, all, sizeof *all, err);
    for (int r = 0; r < n && met == DRA_OK; r++) {
        if (all[r].status == DRA_OK) continue;
        all[r].error.text[sizeof all[r].error.text - 1] = '\0';
        met = r == 0
                  ? dra_fail(err, (dra_status)all[r].status, "%s", all[r].error.text)
                  : dra_fail(err, (dra_status)all[r].status, "rank %d: %s", r, all[r].error.text);
    }
    free(all);
    return met;
}

/* As the first bytes of a record that may become longer: these are compared by all versions. */
typedef struct version {
    char text[24];
} version;

dra_status dra_comm_check(dra_comm *c, dra_error *err)
{
    version *all = calloc((size_t)c->size, sizeof *all);
    if (!all) return dra_comm_break(c, out_of_memory(err));
    snprintf(all[c->rank].text, sizeof all->text, "%s", DRA_VERSION_TEXT);
    dra_status st = dra_comm_share(c, all, sizeof *all, err);
    for (int r = 1; r < c->size && st == DRA_OK; r++) {
        all[r].text[sizeof all->text - 1] = all[0].text[sizeof all->text - 1] = '\0';
        if (strcmp(all[r].text, all[0].text) != 0)
            st = dra_fail(err, DRA_ERR_VALUE, "rank %d: runs dra %s, expected that of rank 0, %s",
                          r, all[r].text, all[0].text);
    }
    free(all);
    return st;
}

/* ---- arrays: where kernels see the host's memory, as they are; else through the host --------- */

static bool is_staged(dra_span s) { return s.array && s.bytes && !dra_span_on_host(s); }

/* The bytes of a span for a library: `read` says whether they are wanted. */
static dra_status open_piece(dra_span s, bool read, dra_piece *out, dra_error *err)
{
    *out = (dra_piece){s.array ? dra_span_on_host(s) : NULL, s.bytes};
    if (!is_staged(s)) return DRA_OK;
    out->data = malloc(s.bytes);
    if (!out->data) return out_of_memory(err);
    return read ? dra_array_download(out->data, s, err) : DRA_OK;
}

static dra_status close_piece(dra_span s, bool write, dra_piece *p, dra_status st, dra_error *err)
{
    if (!is_staged(s)) return st;
    if (st == DRA_OK && write) st = dra_array_upload(s, p->data, err);
    free(p->data);
    return st;
}

dra_status dra_comm_all_to_all(dra_comm *c, const dra_span *to, const dra_span *from,
                               dra_error *err)
{
    const int  n = dra_comm_size(c);
    dra_piece *in = calloc(2 * (size_t)n, sizeof *in), *out = in + n;
    dra_status st = in ? DRA_OK : out_of_memory(err);
    for (int r = 0; r < n && st == DRA_OK; r++) {
        st = open_piece(to[r], false, &in[r], err);
        if (st == DRA_OK) st = open_piece(from[r], true, &out[r], err);
    }
    if (st == DRA_OK && c->broken) st = fail_broken(err);
    if (st == DRA_OK) st = dra_comm_break(c, c->table->all_to_all(c->self, in, out, err));
    for (int r = 0; r < n && in; r++) {
        st = close_piece(to[r], true, &in[r], st, err);
        st = close_piece(from[r], false, &out[r], st, err);
    }
    free(in);
    return dra_comm_break(c, st);
}

dra_status dra_comm_all_gather(dra_comm *c, dra_span all, const size_t *offset, dra_error *err)
{
    dra_piece  p;
    dra_status st = open_piece(all, true, &p, err);
    if (st == DRA_OK) st = dra_comm_share_parts(c, p.data, offset, err);
    return dra_comm_break(c, close_piece(all, true, &p, st, err));
}

dra_status dra_comm_exchange(dra_comm *c, int to, dra_span out, int from, dra_span in,
                             dra_error *err)
{
    dra_piece  p = {0}, q = {0};
    dra_status st = open_piece(out, true, &p, err);
    if (st == DRA_OK) st = open_piece(in, false, &q, err);
    if (st == DRA_OK && c->broken) st = fail_broken(err);
    if (st == DRA_OK) st = dra_comm_break(c, c->table->exchange(c->self, to, p, from, q, err));
    st = close_piece(out, false, &p, st, err);
    return dra_comm_break(c, close_piece(in, true, &q, st, err));
}

/* ---- sums in the order of a tree ------------------------------------------------------------- */

typedef struct scatter {
    dra_comm     *c;
    dra_adder    *adder;
    int64_t       leaves;
    const size_t *offset;
    size_t        bytes; /* of the part of this rank */
    dra_span      room;  /* nodes of all ranks, as far as that part goes, from left to right */
    dra_leaves   *node;
    int           nodes;
} scatter;

static int cover_rank(const scatter *s, int rank, dra_leaves *out)
{
    return dra_tree_cover(s->leaves, dra_tree_share(s->leaves, rank, s->c->size), out);
}

/* What is sent to a rank is the same part of each node, so it goes node by node: round k moves the
 * k-th node of every rank, where it has that many. */
static dra_status move_round(const scatter *s, int k, const dra_span *own, int n_own,
                             const int *before, const int *count, dra_span *to, dra_span *from,
                             dra_error *err)
{
    for (int r = 0; r < s->c->size; r++) {
        const size_t bytes = s->offset[r + 1] - s->offset[r];
        to[r] = from[r] = (dra_span){0};
        if (k < count[r])
            to[r] = dra_span_part(s->room, (size_t)(before[r] + k) * s->bytes, s->bytes);
        if (k < n_own) from[r] = dra_span_part(own[k], s->offset[r], bytes);
    }
    return dra_comm_all_to_all(s->c, to, from, err);
}

static dra_status move_nodes(scatter *s, const dra_span *own, dra_error *err)
{
    const int  n = s->c->size;
    int       *before = calloc(2 * (size_t)n, sizeof *before), *count = before + n;
    dra_span  *to = calloc(2 * (size_t)n, sizeof *to), *from = to + n;
    dra_status st = before && to ? DRA_OK : out_of_memory(err);
    int        most = 0;
    s->nodes = 0;
    for (int r = 0; r < n && st == DRA_OK; r++) {
        before[r] = s->nodes;
        count[r] = cover_rank(s, r, s->node + s->nodes);
        s->nodes += count[r];
        if (count[r] > most) most = count[r];
    }
    for (int k = 0; k < most && st == DRA_OK; k++)
        st = move_round(s, k, own, count[s->c->rank], before, count, to, from, err);
    free(before);
    free(to);
    return st;
}

/* Adds up a node; *at: where its sum is, the place of its first leaf. `next`: the first place that
 * is not taken yet. */
static dra_status add_node(const scatter *s, dra_leaves node, int *next, dra_span *at,
                           dra_error *err)
{
    const dra_leaves here = s->node[*next];
    if (here.first == node.first && here.n == node.n) {
        *at = dra_span_part(s->room, (size_t)(*next)++ * s->bytes, s->bytes);
        return DRA_OK;
    }
    dra_span   right;
    dra_status st = add_node(s, dra_tree_left(node), next, at, err);
    if (st == DRA_OK) st = add_node(s, dra_tree_right(node), next, &right, err);
    return st == DRA_OK ? dra_adder_add(s->adder, *at, right, err) : st;
}

/* Nodes of all ranks, of which each covers its leaves by the fewest. */
static int count_nodes(const dra_comm *c, int64_t leaves)
{
    dra_leaves cover[DRA_TREE_COVER];
    int        n = 0;
    for (int r = 0; r < c->size; r++)
        n += dra_tree_cover(leaves, dra_tree_share(leaves, r, c->size), cover);
    return n;
}

size_t dra_comm_reduce_room(const dra_comm *c, int64_t leaves, const size_t *offset)
{
    return (size_t)count_nodes(c, leaves) * (offset[c->rank + 1] - offset[c->rank]);
}

dra_status dra_comm_reduce_scatter(dra_comm *c, int64_t leaves, const dra_span *node,
                                   const size_t *offset, dra_span to, dra_span room,
                                   dra_adder *adder, dra_error *err)
{
    scatter    s = {.c = c,
                    .adder = adder,
                    .leaves = leaves,
                    .offset = offset,
                    .bytes = offset[c->rank + 1] - offset[c->rank],
                    .room = room,
                    .node = calloc((size_t)count_nodes(c, leaves), sizeof *s.node)};
    int        next = 0;
    dra_span   sum;
    dra_status st = s.node ? move_nodes(&s, node, err) : dra_comm_break(c, out_of_memory(err));
    if (st == DRA_OK) st = add_node(&s, (dra_leaves){0, leaves}, &next, &sum, err);
    if (st == DRA_OK && s.bytes) st = dra_array_copy(to, sum, err);
    free(s.node);
    return st;
}
