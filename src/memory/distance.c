/* Distances. T5: with m = n_b / 2 exact buckets of n_b,
 *   bucket(n) = n for n < m, else min(n_b - 1, m + trunc(ln(n/m) / ln(max/m) (n_b - m)))
 * computed in float, also where dra_real is double: at n = 16, 32 and 64 of 16 buckets the term is
 * whole, and models were trained with the side on which float puts it. [Raffel et al. 2020]
 * ALiBi: 2^(-8 (h+1) / H) for H a power of two; otherwise those of the power p below, then every
 * other one of 2p. [Press et al. 2021] */
#include "memory/distance.h"

#include <math.h>

static int far_bucket(int64_t n, int buckets, int max_distance)
{
    const int exact = buckets / 2;
    if (n < exact) return (int)n;
    if (exact == 0 || max_distance <= exact) return buckets - 1;
    const float span = (float)log((double)max_distance / exact);
    const float share = logf((float)n / (float)exact) / span;
    const int   at = exact + (int)(share * (float)(buckets - exact));
    return at < buckets ? at : buckets - 1;
}

int dra_t5_bucket(int64_t n, int buckets, int max_distance, bool causal)
{
    if (causal) return far_bucket(n > 0 ? n : 0, buckets, max_distance);
    const int half = buckets / 2;
    return n < 0 ? half + far_bucket(-n, half, max_distance) : far_bucket(n, half, max_distance);
}

double dra_alibi_slope(int h, int heads)
{
    int below = 1; /* the largest power of two up to heads */
    while (below <= heads / 2) below *= 2;
    if (h < below) return exp2(-8.0 * (h + 1) / below);
    return exp2(-4.0 * (2 * (h - below) + 1) / below);
}
