/* Orders: which of n things is at a place, computed from the place alone. */
#ifndef DRA_SRC_DATA_SHUFFLE_H
#define DRA_SRC_DATA_SHUFFLE_H

#include "dra/data.h"

/* Place g in the row of all epochs, each in its own order. -1: after the first epoch of an order
 * that is walked once. */
int64_t dra_order(uint64_t seed, int64_t n, bool once, int64_t g);

/* Checks and fills in the ends of a part: to = 0 is 1. */
dra_status dra_part_check(const char *what, double from, double *to, dra_error *err);

#endif
