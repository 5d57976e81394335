/* What a rotation turns by: shared by the kernels of all devices. */
#ifndef DRA_SRC_OPS_ATTENTION_ROTARY_H
#define DRA_SRC_OPS_ATTENTION_ROTARY_H

#include <math.h>

#include "ops/attrs.h"

#define DRA_TWO_PI 6.28318530717958647692

/* The pair that makes `turns` turns over the original length, as a real number. */
static inline double dra_rotary_pair_of(const dra_rotary_config *k, double turns)
{
    return (double)k->width * log((double)k->original / (turns * DRA_TWO_PI)) / (2 * log(k->base));
}

/* The share of pair c that is divided by the factor. [Peng et al. 2023, appendix A] */
static inline double dra_rotary_yarn(const dra_rotary_config *k, int64_t c)
{
    double first = dra_rotary_pair_of(k, k->high), last = dra_rotary_pair_of(k, k->low);
    if (!k->exact) first = floor(first), last = ceil(last);
    first = fmax(first, 0);
    last = fmin(last, (double)k->width - 1);
    if (first == last) last += 0.001;
    return fmin(fmax(((double)c - first) / (last - first), 0), 1);
}

/* The same by how many turns a pair makes. */
static inline double dra_rotary_llama3(const dra_rotary_config *k, double speed)
{
    const double turns = (double)k->original * speed / DRA_TWO_PI;
    return fmin(fmax((k->high - turns) / (k->high - k->low), 0), 1);
}

/* The factors of each pair that LongRoPE divides by. [Ding et al. 2024] */
static inline const double *dra_rotary_factors(const dra_rotary_config *k, int *n)
{
    const bool is_long = k->scaling == DRA_SCALING_LONGROPE_LONG;
    *n = is_long ? k->n_long : k->n_short;
    return is_long ? k->long_factors : k->short_factors;
}

static inline bool dra_rotary_is_longrope(const dra_rotary_config *k)
{
    return k->scaling == DRA_SCALING_LONGROPE_SHORT || k->scaling == DRA_SCALING_LONGROPE_LONG;
}

/* Radians a position of pair c, before LongRoPE; all defaults are filled in. */
static inline double dra_rotary_speed(const dra_rotary_config *k, int64_t c)
{
    const double f = pow(k->base, -2 * (double)c / (double)k->width) / k->stretch;
    double       share = 0;
    if (k->scaling == DRA_SCALING_LLAMA3) share = dra_rotary_llama3(k, f);
    if (k->scaling == DRA_SCALING_YARN) share = dra_rotary_yarn(k, c);
    return f * (share / k->factor + 1 - share);
}

static inline double dra_rotary_attr_speed(const dra_rotary_attr *a, int64_t c)
{
    const double f = a->sign * dra_rotary_speed(&a->k, c);
    return dra_rotary_is_longrope(&a->k) ? f / a->divide[c] : f;
}

#endif
