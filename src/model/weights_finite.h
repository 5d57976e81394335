#ifndef DRA_SRC_MODEL_WEIGHTS_FINITE_H
#define DRA_SRC_MODEL_WEIGHTS_FINITE_H

#include "dra/sequence.h"

/* How many of a weight's n numbers, stored as `f` says, are NaN or infinite. Of one that is a part
 * of a tensor, those of all parts, said by the first. */
int64_t dra_count_not_finite(const dra_param_layout *f, const void *data, int64_t n);

#endif
