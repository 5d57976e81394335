/* What ops that look for the k largest of a row share. */
#ifndef DRA_SRC_OPS_REDUCE_TOPK_H
#define DRA_SRC_OPS_REDUCE_TOPK_H

#include "ops/common.h"

/* Checks x and k, the attribute; out[0]: x with `last` in place of its last axis. */
dra_status dra_infer_top(dra_graph *g, const dra_node *n, dra_dtype dtype, int64_t last,
                         dra_type *out);

#endif
