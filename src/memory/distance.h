#ifndef DRA_SRC_MEMORY_DISTANCE_H
#define DRA_SRC_MEMORY_DISTANCE_H
#include <stdbool.h>
#include <stdint.h>
int    dra_t5_bucket(int64_t n, int buckets, int max_distance, bool causal);
double dra_alibi_slope(int h, int heads);
#endif
