/* What distances between a query and a key are worth: the buckets of T5, the slopes of ALiBi. Plain
 * functions; tables of them go to dra_attend() as `distance` and `slopes`. */
#ifndef DRA_SRC_MEMORY_DISTANCE_H
#define DRA_SRC_MEMORY_DISTANCE_H

#include <stdbool.h>
#include <stdint.h>

/* The bucket, 0 to buckets-1, of the distance n = position of the query - that of the key. Near
 * ones have one each, far ones share them by the logarithm, up to max_distance >= buckets > 1.
 * Causal ones have all buckets for the past; otherwise later keys have the second half. */
int dra_t5_bucket(int64_t n, int buckets, int max_distance, bool causal);

/* What head h of `heads` subtracts for each unit of distance. */
double dra_alibi_slope(int h, int heads);

#endif
