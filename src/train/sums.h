/* The gradient of a step: those of its microbatches, added up in the order of a tree that depends
 * on their number alone (comm/tree.h), by one rank or by several. */
#ifndef DRA_SRC_TRAIN_SUMS_H
#define DRA_SRC_TRAIN_SUMS_H

#include "comm/comm.h"
#include "dra/train.h"

typedef struct dra_sums dra_sums;

/* Adds microbatch `leaf` to the gradients. */
typedef dra_status (*dra_on_leaf)(void *user, int64_t leaf, dra_error *err);

/* whole: a microbatch is one program, which may then add to another microbatch in place. The
 * gradients and the ranks (NULL: there is one) are borrowed. */
dra_status dra_sums_create(dra_gradients *l, int64_t leaves, bool whole, dra_comm *comm,
                           dra_sums **out, dra_error *err);
void       dra_sums_destroy(dra_sums *s);    /* NULL is allowed */
dra_leaves dra_sums_own(const dra_sums *s);  /* microbatches of this rank */
size_t     dra_sums_more(const dra_sums *s); /* bytes that it needs besides the gradients */

/* Adds up the microbatches of this rank, and then those of all. */
dra_status dra_sums_run(dra_sums *s, dra_on_leaf fn, void *user, dra_error *err);
dra_status dra_sums_join(dra_sums *s, dra_error *err);

#endif
