/* What every communicator must do, tried by all ranks of it: against plain loops. */
#ifndef DRA_TESTS_COMM_FUNCTIONS_H
#define DRA_TESTS_COMM_FUNCTIONS_H

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check.h"
#include "comm/comm.h"

enum { PART = 37, RANKS_MOST = 8, LEAVES_MOST = 13 }; /* reals; ranks and leaves that are tried */

/* ---- numbers of the host --------------------------------------------------------------------- */

static inline dra_status share_numbers(dra_comm *c, dra_error *err)
{
    const int  n = dra_comm_size(c), me = dra_comm_rank(c);
    int64_t    all[RANKS_MOST] = {0}, one = me == n - 1 ? 7 : 0, passed = me == 0 ? 5 : 0;
    dra_status st;
    all[me] = 10 + me;
    st = dra_comm_share(c, all, sizeof *all, err);
    for (int r = 0; r < n && st == DRA_OK; r++)
        if (all[r] != 10 + r) st = dra_fail(err, DRA_ERR_VALUE, "share");
    if (st == DRA_OK) st = dra_comm_spread(c, n - 1, &one, sizeof one, err);
    if (st == DRA_OK && one != 7) st = dra_fail(err, DRA_ERR_VALUE, "spread");
    if (st == DRA_OK) st = dra_comm_pass(c, 0, n - 1, &passed, sizeof passed, err);
    if (st == DRA_OK && me == n - 1 && passed != 5) st = dra_fail(err, DRA_ERR_VALUE, "pass");
    return st;
}

/* The last rank has failed, and all hear of it. */
static inline dra_status agree_on_one(dra_comm *c, dra_error *err)
{
    const int  last = dra_comm_size(c) - 1;
    char       expected[60];
    dra_error  own = {0};
    dra_status st = dra_comm_rank(c) < last ? DRA_OK
                                            : dra_fail(&own, DRA_ERR_FILE, "disk %d is full", last);
    st = dra_comm_agree(c, st, &own);
    snprintf(expected, sizeof expected, "rank %d: disk %d is full", last, last);
    if (st != DRA_ERR_FILE || strcmp(own.text, expected) != 0 || dra_comm_broken(c))
        return dra_fail(err, DRA_ERR_VALUE, "agree: %.300s", own.text);
    return dra_comm_agree(c, DRA_OK, err);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static inline dra_status put_numbers(dra_device *d, const void *x, size_t bytes, dra_array **out,
                                     dra_error *err)
{
    const dra_status st = dra_array_create(d, bytes, out, err);
    return st == DRA_OK ? dra_array_upload(dra_array_whole(*out), x, err) : st;
}

static inline dra_status expect_numbers(dra_span s, const dra_real *x, const char *what,
                                        dra_error *err)
{
    dra_real   found[PART * RANKS_MOST];
    dra_status st = dra_array_download(found, s, err);
    if (st == DRA_OK && memcmp(found, x, s.bytes) != 0)
        st = dra_fail(err, DRA_ERR_VALUE, "%s: other numbers", what);
    return st;
}

/* Number i of leaf k, of many sizes: their sum in another order has other bits. */
static inline dra_real leaf_number(int64_t k, int i)
{
    return (dra_real)(sin((double)k * 37 + i) * pow(10, (double)((k * 7 + i) % 9 - 4)));
}

/* The definition: left child plus right child. */
static inline void add_leaves(dra_leaves node, dra_real *to)
{
    dra_real right[PART];
    if (node.n == 1) {
        for (int i = 0; i < PART; i++) to[i] = leaf_number(node.first, i);
        return;
    }
    add_leaves(dra_tree_left(node), to);
    add_leaves(dra_tree_right(node), right);
    for (int i = 0; i < PART; i++) to[i] += right[i];
}

typedef struct summed { /* arrays of one rank */
    dra_device *device;
    dra_adder  *adder;
    dra_array  *node[DRA_TREE_COVER], *room, *all;
    dra_span    span[DRA_TREE_COVER];
    size_t      offset[RANKS_MOST + 1];
} summed;

static inline dra_status open_summed(summed *x, const dra_comm *c, int64_t leaves, dra_error *err)
{
    const int  n = dra_comm_size(c), me = dra_comm_rank(c);
    dra_leaves cover[DRA_TREE_COVER];
    const int  nodes = dra_tree_cover(leaves, dra_tree_share(leaves, me, n), cover);
    dra_real   sum[PART];
    for (int r = 0; r <= n; r++) x->offset[r] = (size_t)(PART * r / n) * sizeof(dra_real);
    dra_status st = check_cpu(&(dra_cpu_config){.threads = 1}, &x->device, err);
    if (st == DRA_OK) st = dra_adder_create(x->device, &x->adder, err);
    for (int i = 0; i < nodes && st == DRA_OK; i++) {
        add_leaves(cover[i], sum);
        st = put_numbers(x->device, sum, sizeof sum, &x->node[i], err);
        x->span[i] = dra_array_whole(x->node[i]);
    }
    const size_t room = dra_comm_reduce_room(c, leaves, x->offset);
    if (st == DRA_OK) st = dra_array_create(x->device, room, &x->room, err);
    return st == DRA_OK ? dra_array_create(x->device, sizeof sum, &x->all, err) : st;
}

static inline void close_summed(summed *x)
{
    for (int i = 0; i < DRA_TREE_COVER; i++) dra_array_destroy(x->node[i]);
    dra_array_destroy(x->room);
    dra_array_destroy(x->all);
    dra_adder_destroy(x->adder);
    dra_device_destroy(x->device);
}

/* Reduce scatter and all gather: the sum of a tree. */
static inline dra_status sum_leaves(dra_comm *c, int64_t leaves, dra_error *err)
{
    const int  me = dra_comm_rank(c);
    summed     x = {0};
    dra_real   expected[PART];
    dra_status st = open_summed(&x, c, leaves, err);
    dra_span   all = dra_array_whole(x.all);
    dra_span   part = dra_span_part(all, x.offset[me], x.offset[me + 1] - x.offset[me]);
    if (st == DRA_OK)
        st = dra_comm_reduce_scatter(c, leaves, x.span, x.offset, part, dra_array_whole(x.room),
                                     x.adder, err);
    if (st == DRA_OK) st = dra_comm_all_gather(c, all, x.offset, err);
    add_leaves((dra_leaves){0, leaves}, expected);
    if (st == DRA_OK) st = expect_numbers(all, expected, "sum", err);
    close_summed(&x);
    return st;
}

/* Every rank sends PART numbers to every rank, and one to the next. */
static inline dra_status move_between(dra_comm *c, dra_array *a, dra_array *b, const dra_real *in,
                                      dra_error *err)
{
    const int    n = dra_comm_size(c), me = dra_comm_rank(c);
    const int    after = (me + 1) % n, before = (me + n - 1) % n;
    const size_t each = PART * sizeof(dra_real), one = sizeof(dra_real);
    dra_span     to[RANKS_MOST], from[RANKS_MOST];
    for (int r = 0; r < n; r++) {
        to[r] = dra_span_part(dra_array_whole(b), (size_t)r * each, each);
        from[r] = dra_span_part(dra_array_whole(a), (size_t)r * each, each);
    }
    dra_status st = dra_comm_all_to_all(c, to, from, err);
    if (st == DRA_OK) st = expect_numbers(dra_array_whole(b), in, "all to all", err);
    if (st == DRA_OK)
        st = dra_comm_exchange(c, after, dra_span_part(from[me], 0, one), before,
                               dra_span_part(to[0], 0, one), err);
    const dra_real got = (dra_real)(1100 * before);
    return st == DRA_OK ? expect_numbers(dra_span_part(to[0], 0, one), &got, "exchange", err) : st;
}

static inline dra_status move_arrays(dra_comm *c, dra_error *err)
{
    const int    n = dra_comm_size(c), me = dra_comm_rank(c);
    const size_t bytes = (size_t)n * PART * sizeof(dra_real);
    dra_real     out[RANKS_MOST * PART], in[RANKS_MOST * PART];
    dra_device  *d = NULL;
    dra_array   *a = NULL, *b = NULL;
    for (int i = 0; i < n * PART; i++) {
        out[i] = (dra_real)(1000 * me + 100 * (i / PART) + i % PART);
        in[i] = (dra_real)(1000 * (i / PART) + 100 * me + i % PART);
    }
    dra_status st = check_cpu(&(dra_cpu_config){.threads = 1}, &d, err);
    if (st == DRA_OK) st = put_numbers(d, out, bytes, &a, err);
    if (st == DRA_OK) st = dra_array_create(d, bytes, &b, err);
    if (st == DRA_OK) st = move_between(c, a, b, in, err);
    dra_array_destroy(a);
    dra_array_destroy(b);
    dra_device_destroy(d);
    return st;
}

#endif
