/* What the two cross entropies share: one row of logits to its loss and to its gradient. */
#ifndef DRA_SRC_OPS_LOSS_CROSS_ENTROPY_H
#define DRA_SRC_OPS_LOSS_CROSS_ENTROPY_H

#include "ops/common.h"

static inline bool dra_row_ignored(const dra_cross_entropy_config *a, int32_t target)
{
    return a->use_ignore && target == a->ignore;
}

/* False, with the fault set, when a row that counts has a target outside 0..V-1. */
bool dra_row_valid(const dra_call *c, int64_t tile, int64_t row, int64_t V, int32_t target);

/* The loss of a row that counts; *lse is the logarithm of the sum of e^x. */
real dra_row_loss(const dra_call *c, int64_t V, const real *x, int32_t target, real *lse);

/* dx = dy (softmax(x) - target distribution), and dy l2wrap max(x) more at the first largest; dx
 * may be x. */
void dra_row_loss_back(const dra_call *c, int64_t V, const real *x, int32_t target, real lse,
                       real dy, real *dx);

/* The config, or the default for NULL, into *out; false, with the error set, when it is wrong. */
bool dra_loss_config(dra_graph *g, const char *op, const dra_cross_entropy_config *config,
                     dra_cross_entropy_config *out);

#endif
