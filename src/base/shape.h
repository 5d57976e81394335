/* Shapes, element types and sizes checked for overflow. */
#ifndef DRA_SRC_SHAPE_H
#define DRA_SRC_SHAPE_H

#include <string.h>

#include "dra/base.h"

/* *out = a * b; false when it overflows. */
bool dra_mul_size(size_t a, size_t b, size_t *out);

size_t dra_dtype_bytes(dra_dtype dtype); /* of one element of a plain dtype, else of a block */

/* Of `n` elements, whole blocks of them; n may be an offset and negative. */
int64_t dra_elements_bytes(dra_dtype dtype, int64_t n);

static inline bool dra_is_quantised(dra_dtype dtype)
{
    return dtype >= DRA_Q4_0 && dtype < DRA_DTYPE_COUNT;
}

/* bf16 and f16 to and from f32, round to nearest even; NaN stays NaN. */
static inline float dra_bf16_to_f32(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float          f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t dra_f32_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t nan = bits >> 16 | 0x40u, rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

float    dra_f16_to_f32(uint16_t x);
uint16_t dra_f32_to_f16(float x);
/* From double on the way to a narrower float: rounded to odd, so that the second rounding to
 * nearest even sees on which side of a tie x was. */
float dra_round_to_odd(double x);

/* Small functions that kernels of a GPU call too. */
#ifdef __CUDACC__
#define DRA_BOTH __host__ __device__
#else
#define DRA_BOTH
#endif

DRA_BOTH static inline int64_t dra_imin(int64_t a, int64_t b) { return a < b ? a : b; }
DRA_BOTH static inline int64_t dra_imax(int64_t a, int64_t b) { return a > b ? a : b; }
DRA_BOTH static inline int64_t dra_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
