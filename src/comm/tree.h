/* The binary tree in whose order a step adds up: leaf k is microbatch k, and a node of n leaves has
 * a left child with the largest power of two below n and a right one with the rest. It depends on
 * the number of leaves alone. Ranks own consecutive leaves. */
#ifndef DRA_SRC_COMM_TREE_H
#define DRA_SRC_COMM_TREE_H

#include "dra/device.h"

typedef struct dra_leaves { /* leaves first .. first + n - 1; those of a node, or of a rank */
    int64_t first, n;
} dra_leaves;

enum { DRA_TREE_COVER = 128 }; /* nodes of a cover, at most */

dra_leaves dra_tree_left(dra_leaves node), dra_tree_right(dra_leaves node); /* n > 1 */
/* The leaves of a rank: as many as others have, or one more. */
dra_leaves dra_tree_share(int64_t leaves, int rank, int size);
/* The largest nodes inside the leaves `own`, from left to right; returns how many. */
int dra_tree_cover(int64_t leaves, dra_leaves own, dra_leaves out[DRA_TREE_COVER]);

typedef struct dra_adder dra_adder; /* sums of reals on a device */

dra_status dra_adder_create(dra_device *device, dra_adder **out, dra_error *err);
void       dra_adder_destroy(dra_adder *a); /* NULL is allowed */
/* to += from */
dra_status dra_adder_add(dra_adder *a, dra_span to, dra_span from, dra_error *err);

#endif
