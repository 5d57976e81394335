/* The clock and quantiles, for programs that time something: tests/ and bench/. */
#ifndef DRA_TESTS_TIMING_H
#define DRA_TESTS_TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double now(void) /* seconds */
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int timing_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts x; the number that a share q of them is below, 0 of none. */
static inline double quantile(double *x, size_t n, double q)
{
    const size_t i = (size_t)(q * (double)n);
    qsort(x, n, sizeof *x, timing_order);
    return n ? x[i < n ? i : n - 1] : 0;
}

#endif
