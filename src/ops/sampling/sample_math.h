/* The arithmetic of sampling, the same bits on every device.
 *   x      a logit with bias, forbidden tokens -infinity; x = x > 0 ? x / r : x r for tokens seen
 *   z      x - max x
 *   p      e^(z / tau), by a polynomial of our own: libraries differ in the last bit
 *   w      p as a whole number, in units of 2^-shift: sums of them are exact, in whatever order
 * No product is fused with a sum: a GPU would, the CPU may not have it. */
#ifndef DRA_SRC_OPS_SAMPLING_SAMPLE_MATH_H
#define DRA_SRC_OPS_SAMPLING_SAMPLE_MATH_H

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "dra/ops.h"

DRA_BOTH static inline double dra_sample_mul(double a, double b)
{
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

DRA_BOTH static inline double dra_sample_add(double a, double b)
{
#ifdef __CUDA_ARCH__
    return __dadd_rn(a, b);
#else
    return a + b;
#endif
}

DRA_BOTH static inline uint64_t dra_sample_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

DRA_BOTH static inline double dra_sample_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- logits ---------------------------------------------------------------------------------- */

/* With bias b, where it is allowed. NaN stays NaN, so that it is noticed. */
DRA_BOTH static inline dra_real dra_sample_biased(dra_real x, dra_real b, bool allowed)
{
    const dra_real never = (dra_real)-INFINITY;
    if (allowed && b != never) return x + b;
    return x != x ? x : never;
}

DRA_BOTH static inline double dra_sample_penalised(double x, double r)
{
    return x > 0 ? x / r : dra_sample_mul(x, r);
}

/* ---- e^y, -708 <= y <= 0 --------------------------------------------------------------------- */

/* Tokens with z / tau below it cannot be drawn: e^ of it is not even the least double. */
#define DRA_SAMPLE_LEAST -745.1332191019412

/* sum r + term */
DRA_BOTH static inline double dra_sample_step(double sum, double r, double term)
{
    return dra_sample_add(dra_sample_mul(sum, r), term);
}

/* y = n ln 2 + r, e^y = 2^n e^r, |r| <= ln 2 / 2: the sum of r^k / k! up to k = 13. It has neither
 * branches nor loops, so that a compiler can do several at once. */
DRA_BOTH static inline double dra_sample_exp_near(double y)
{
    const double   round = 0x1.8p52; /* as a term it leaves no fraction */
    const double   by_ln2 = 0x1.71547652b82fep0, ln2_high = 0x1.62e42feep-1;
    const double   ln2_low = 0x1.a39ef35793c76p-33; /* n ln2_high is exact */
    const double   whole = dra_sample_step(y, by_ln2, round), n = whole - round;
    const uint64_t power = (dra_sample_bits(whole) - dra_sample_bits(round) + 1023) << 52;
    const double   r = dra_sample_step(n, -ln2_low, dra_sample_step(n, -ln2_high, y));
    double         sum = 1.0 / 6227020800;
    sum = dra_sample_step(sum, r, 1.0 / 479001600);
    sum = dra_sample_step(sum, r, 1.0 / 39916800);
    sum = dra_sample_step(sum, r, 1.0 / 3628800);
    sum = dra_sample_step(sum, r, 1.0 / 362880);
    sum = dra_sample_step(sum, r, 1.0 / 40320);
    sum = dra_sample_step(sum, r, 1.0 / 5040);
    sum = dra_sample_step(sum, r, 1.0 / 720);
    sum = dra_sample_step(sum, r, 1.0 / 120);
    sum = dra_sample_step(sum, r, 1.0 / 24);
    sum = dra_sample_step(sum, r, 1.0 / 6);
    sum = dra_sample_step(sum, r, 0.5);
    sum = dra_sample_step(sum, r, 1);
    sum = dra_sample_step(sum, r, 1);
    return sum * dra_sample_double(power);
}

/* What is below -708 counts as -708. */
DRA_BOTH static inline double dra_sample_clamp(double y) { return y > -708 ? y : -708; }
DRA_BOTH static inline double dra_sample_exp(double y)
{
    return dra_sample_exp_near(dra_sample_clamp(y));
}

/* ---- weights --------------------------------------------------------------------------------- */

/* 2^shift for V tokens, so that their sum stays below 2^63. */
DRA_BOTH static inline double dra_sample_unit(int64_t V)
{
    double unit = 0x1p51;
    for (int64_t most = (int64_t)1 << 11; most < V; most *= 2) unit /= 2;
    return unit;
}

/* p unit, rounded; p <= 1. The bits of 2^52 and a number are those of 2^52, and the number. */
DRA_BOTH static inline uint64_t dra_sample_weight(double p, double unit)
{
    const double base = 0x1p52;
    return dra_sample_bits(dra_sample_add(dra_sample_mul(p, unit), base)) - dra_sample_bits(base);
}

/* The least sum that is top_p of the total, or more; top_p < 1. */
DRA_BOTH static inline uint64_t dra_sample_share(double top_p, uint64_t total)
{
    return (uint64_t)ceil(dra_sample_mul(top_p, (double)total));
}

/* The least p that top_a keeps: p / S >= a (1 / S)^2, the largest p is 1. */
DRA_BOTH static inline double dra_sample_least(double top_a, uint64_t total, double unit)
{
    return top_a / ((double)total / unit);
}

/* -p y as what is weighed: sums of it by sums of p are the mean of -y, which is the entropy but for
 * ln S. p >= 0 >= y, so it is 1/e at most. */
DRA_BOTH static inline double dra_sample_surprise(double p, double y)
{
    return dra_sample_mul(p, 0 - y);
}

/* How far y is from the mean, as bits that are in the order of distances. */
DRA_BOTH static inline uint64_t dra_sample_distance(double y, uint64_t surprise, uint64_t total)
{
    return dra_sample_bits(fabs(y + (double)surprise / (double)total));
}

/* ---- draws ----------------------------------------------------------------------------------- */

/* 0 <= u < 1 with 53 bits, for a place in a sequence; `which` tells apart several of one place. */
DRA_BOTH static inline double dra_sample_uniform(uint64_t seed, int64_t position, uint32_t which,
                                                 uint32_t of)
{
    const uint64_t at = (uint64_t)position;
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), which, of};
    uint32_t       bits[4];
    dra_philox(counter, seed, bits);
    return (double)(((uint64_t)bits[1] << 32 | bits[0]) >> 11) * 0x1p-53;
}

/* The token that is drawn is the first with w_1 + .. + w_i >= this. */
DRA_BOTH static inline uint64_t dra_sample_goal(double u, uint64_t total)
{
    const uint64_t goal = (uint64_t)dra_sample_mul(u, (double)total);
    return goal < total ? goal + 1 : total; /* u total may round up to total */
}

#endif
