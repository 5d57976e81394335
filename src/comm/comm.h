/* A communicator inside: six functions over bytes of device arrays, and the table of a library that
 * moves them.
 *
 *   rank, size      who this process is
 *   all to all      every rank has a span for every rank
 *   all gather      every rank has a part of an array, in the end all have all of it
 *   reduce scatter  every rank gets its part of a sum whose order is that of a tree (tree.h)
 *   exchange        point to point: one span out, one in
 *
 * Nothing is added by a library: sums are made here, in an order that does not depend on how many
 * ranks there are. */
#ifndef DRA_SRC_COMM_H
#define DRA_SRC_COMM_H

#include "comm/tree.h"
#include "dra/comm.h"

typedef struct dra_piece { /* bytes of the host */
    void  *data;
    size_t bytes;
} dra_piece;

/* What a library does, with memory of the host. Each returns when its memory may be used again; an
 * error means that the ranks cannot hear each other any more. */
typedef struct dra_comm_table {
    /* to, from (size): what comes from each rank, and what goes to it. */
    dra_status (*all_to_all)(void *self, const dra_piece *to, const dra_piece *from,
                             dra_error *err);
    /* offset (size + 1): rank r has bytes offset[r] .. offset[r + 1] of `all`, and gets the others.
     */
    dra_status (*all_gather)(void *self, unsigned char *all, const size_t *offset, dra_error *err);
    /* To a rank and from a rank; -1: none. */
    dra_status (*exchange)(void *self, int to, dra_piece out, int from, dra_piece in,
                           dra_error *err);
    void (*leave)(void *self, bool broken); /* all ranks, or this one, which ends the others */
} dra_comm_table;

struct dra_comm {
    const dra_comm_table *table;
    void                 *self;
    int                   rank, size;
    bool                  broken;
};

/* What a library that is loaded at run time gives: one table, `dra_comm_plugin_table`. */
typedef struct dra_comm_plugin {
    uint32_t    abi;
    const char *version; /* of dra */
    dra_status (*open)(dra_comm *out, dra_error *err);
    dra_status (*describe)(char *text, size_t size, dra_error *err);
} dra_comm_plugin;

#define DRA_COMM_ABI                                                                               \
    (uint32_t)(sizeof(dra_comm) + 131 * sizeof(dra_comm_table) + 257 * sizeof(dra_piece) +         \
               521 * sizeof(dra_error))

/* What this rank has met between two agreements, where the others count on it: it cannot go on with
 * them. Returns `st`. */
dra_status dra_comm_break(dra_comm *c, dra_status st);

/* The ranks run one version, or it is an error: for what has just been opened. */
dra_status dra_comm_check(dra_comm *c, dra_error *err);

/* ---- numbers of the host --------------------------------------------------------------------- */

/* all (size, each) bytes: every rank fills its own and gets the others. */
dra_status dra_comm_share(dra_comm *c, void *all, size_t each, dra_error *err);
/* Parts of other sizes: offset (size + 1) bytes in `all`. */
dra_status dra_comm_share_parts(dra_comm *c, void *all, const size_t *offset, dra_error *err);
/* All get what `from` has. */
dra_status dra_comm_spread(dra_comm *c, int from, void *data, size_t bytes, dra_error *err);

/* Bytes from one rank to another; the others do nothing. */
dra_status dra_comm_pass(dra_comm *c, int from, int to, void *data, size_t bytes, dra_error *err);

/* ---- arrays ---------------------------------------------------------------------------------- */

dra_status dra_comm_all_to_all(dra_comm *c, const dra_span *to, const dra_span *from,
                               dra_error *err);
dra_status dra_comm_all_gather(dra_comm *c, dra_span all, const size_t *offset, dra_error *err);
/* A null span where the rank is -1. */
dra_status dra_comm_exchange(dra_comm *c, int to, dra_span out, int from, dra_span in,
                             dra_error *err);

/* node: the nodes of dra_tree_cover() for the leaves of this rank, reals as many as offset[size]
 * has bytes; they are lost. `to`: bytes offset[rank] .. offset[rank + 1] of the sum over the tree.
 * `room`: at least dra_comm_reduce_room() bytes of the same device. */
dra_status dra_comm_reduce_scatter(dra_comm *c, int64_t leaves, const dra_span *node,
                                   const size_t *offset, dra_span to, dra_span room,
                                   dra_adder *adder, dra_error *err);
size_t     dra_comm_reduce_room(const dra_comm *c, int64_t leaves, const size_t *offset);

#endif
