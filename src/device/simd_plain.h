/* What the plain forms of loops share. Sums run in LANES partial sums, an order fixed by the
 * length, which the compiler can vectorise without reordering anything. */
#ifndef DRA_SRC_SIMD_PLAIN_H
#define DRA_SRC_SIMD_PLAIN_H

#include <string.h>
#include <tgmath.h>

#include "dra/base.h"

enum { LANES = 16 };

static inline dra_real fold(const dra_real *lane)
{
    dra_real s[LANES];
    memcpy(s, lane, sizeof s);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
}

static inline dra_real dot(int64_t n, const dra_real *a, const dra_real *b)
{
    dra_real lane[LANES] = {0};
    int64_t  i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; i++, j++) lane[j] += a[i] * b[i];
    return fold(lane);
}

static inline dra_real exponential(dra_real x)
{
#ifdef DRA_REAL_DOUBLE
    return exp(x);
#else
    return expf(x);
#endif
}

static inline void axpy(int64_t n, dra_real s, const dra_real *x, dra_real *y)
{
    for (int64_t i = 0; i < n; i++) y[i] += s * x[i];
}

#endif
