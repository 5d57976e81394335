/* AVX-512 with instructions that multiply pairs of bf16 and add them to floats. Such a sum takes
 * subnormal numbers for zero. */
#ifndef DRA_SRC_SIMD_AVX512BF16_H
#define DRA_SRC_SIMD_AVX512BF16_H

#include "device/simd_avx512.h"

#define LEVEL_PAIRS true

static inline vf vdot(vf a, vf b, vf sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* Pairs of neighbours in 32 floats. */
static inline vf narrow(vf low, vf high) { return (vf)_mm512_cvtne2ps_pbh(high, low); }

/* Pairs of low[i] and high[i]. */
static inline vf join(vf low, vf high)
{
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9,
                                           24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1,
                                           16, 0);
    return (vf)_mm512_permutexvar_epi16(order, both);
}

#endif
