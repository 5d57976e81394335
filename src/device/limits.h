/* Measuring what a device reaches: what its ways to do so share. */
#ifndef DRA_SRC_LIMITS_H
#define DRA_SRC_LIMITS_H

#include <stdlib.h>

#include "dra/bench.h"

static inline int dra_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of n numbers, which are sorted. */
static inline double dra_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, dra_ascending);
    return x[n / 2];
}

/* limits.c: those of the CPU, by loops on its own threads. */
dra_status dra_cpu_limits(dra_device *d, int repeats, dra_limits *out, dra_error *err);

#endif
