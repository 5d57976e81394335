/* Loops on vectors of floats: one source for every width. A level gives the width and a handful of
 * helpers - vfma, vmin, vmax, umax, vsqrt, vscale, less, pick, load_part, ... - and this what can
 * be said in terms of them: whole and partial loads, sums, transposition.
 *
 * Ends of rows go through the same code as the rest, with lanes that are not there filled and not
 * stored: a pointwise result depends on its element alone. Sums have an order fixed by length. */
#ifndef DRA_SRC_SIMD_VECTOR_H
#define DRA_SRC_SIMD_VECTOR_H

#include <math.h>
#include <string.h>

#include "dra/base.h"

#if defined(LEVEL_AVX2)
#include "device/simd_avx2.h"
#elif defined(LEVEL_AVX512)
#include "device/simd_avx512.h"
#elif defined(LEVEL_AVX512BF16)
#include "device/simd_avx512bf16.h"
#elif defined(LEVEL_AVX512AMX)
#include "device/simd_avx512amx.h"
#elif defined(LEVEL_NEON)
#include "device/simd_neon.h"
#endif

/* Loops of constant length over arrays of vectors must disappear, or the arrays live in memory. */
#define UNROLL _Pragma("GCC unroll 16")
#define NO_UNROLL _Pragma("GCC unroll 1")
#define ALWAYS_INLINE inline __attribute__((always_inline))

static inline vf vset(float x) { return x - (vf){0}; } /* keeps the sign of -0 */

static inline vf load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, vf v) { memcpy(p, &v, sizeof v); }

/* The first n lanes if n < LANES, else all; `rest` in the others. */
static inline vf load_some(const float *p, int64_t n, vf rest)
{
    return n >= LANES ? load(p) : load_part(p, n, rest);
}

static inline void store_some(float *p, int64_t n, vf v)
{
    if (n >= LANES)
        store(p, v);
    else
        store_part(p, n, v);
}

/* to = x, or += x where it is to be added. */
static inline void add_some(float *to, int64_t left, bool add, vf x)
{
    store_some(to, left, add ? load_some(to, left, vset(0)) + x : x);
}

/* Into the second cache, by an address that may be outside the array or nonsense. */
static ALWAYS_INLINE void fetch(const float *p, int64_t elements, int write)
{
    const uintptr_t at = (uintptr_t)p + (uintptr_t)elements * sizeof *p;
    if (write)
        __builtin_prefetch((const void *)at, 1, 2);
    else
        __builtin_prefetch((const void *)at, 0, 2);
}

/* ---- sums ------------------------------------------------------------------------------------ */

enum { SUMS = 4 }; /* side by side, to hide the latency of an addition */

static inline float fold_sums(const vf s[SUMS]) { return fold_sum((s[0] + s[2]) + (s[1] + s[3])); }

/* `step` adds two vectors to a sum; missing lanes are zeros. */
static ALWAYS_INLINE float add_up(int64_t n, const float *a, const float *b,
                                  vf (*step)(vf sum, vf a, vf b))
{
    const vf zero = vset(0);
    vf       sum[SUMS] = {zero, zero, zero, zero};
    int64_t  i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
        UNROLL
        for (int j = 0; j < SUMS; j++)
            sum[j] = step(sum[j], load(a + i + j * LANES), load(b + i + j * LANES));
    }
    UNROLL
    for (int j = 0; j < SUMS; j++, i += LANES)
        if (i < n)
            sum[j] = step(sum[j], load_some(a + i, n - i, zero), load_some(b + i, n - i, zero));
    return fold_sums(sum);
}

static inline vf add_product(vf sum, vf a, vf b) { return vfma(a, b, sum); }
static inline vf add_first(vf sum, vf a, vf b) { return sum + a; }

static inline float dot(int64_t n, const float *a, const float *b)
{
    return add_up(n, a, b, add_product);
}

/* The next of SUMS sums: they take turns. */
static inline void add_in_turn(vf s[SUMS], vf x)
{
    const vf next = s[0] + x;
    s[0] = s[1], s[1] = s[2], s[2] = s[3], s[3] = next;
}

/* v, with zeros in the lanes from n on. */
static inline vf first_of(vf v, int64_t n)
{
    return n >= LANES ? v : pick(first_lanes(n), v, vset(0));
}

/* ---- transposition --------------------------------------------------------------------------- */

/* x[i][j] becomes x[j][i]. */
static ALWAYS_INLINE void transpose_tile(vf x[LANES])
{
    UNROLL
    for (int i = 0; i < LANES; i += 4) { /* quads within each quarter of a vector */
        const vf low01 = zip_low(x[i], x[i + 1]), low23 = zip_low(x[i + 2], x[i + 3]);
        const vf high01 = zip_high(x[i], x[i + 1]), high23 = zip_high(x[i + 2], x[i + 3]);
        x[i] = pair_low(low01, low23);
        x[i + 1] = pair_high(low01, low23);
        x[i + 2] = pair_low(high01, high23);
        x[i + 3] = pair_high(high01, high23);
    }
    UNROLL
    for (int i = 0; i < 4; i++) transpose_quarters(x + i); /* those of x[i], x[i + 4], ... */
}

#endif
