/* The peak of products of bf16 in AVX-512: pairs of them, added to floats. */
#include "device/simd_peak.h"

#ifdef __AVX512BF16__

#include <immintrin.h>

/* As peak_run() of simd_peak.h: pairs (1, 0) times (1, 1), so that every lane counts rounds. */
static dra_real run_pairs(int64_t rounds)
{
    enum { CHAINS = 12 };
    volatile int  one = 0x3f80, both = 0x3f803f80; /* 1 in bf16, and a pair of them */
    const __m512i a = _mm512_set1_epi32(one), b = _mm512_set1_epi32(both);
    __m512        x[CHAINS], sum = _mm512_setzero_ps();
    for (int k = 0; k < CHAINS; k++) x[k] = _mm512_setzero_ps();
    for (int64_t i = 0; i < rounds; i++)
        for (int k = 0; k < CHAINS; k++) x[k] = _mm512_dpbf16_ps(x[k], (__m512bh)a, (__m512bh)b);
    for (int k = 0; k < CHAINS; k++) sum = _mm512_add_ps(sum, x[k]);
    return (dra_real)_mm512_reduce_add_ps(sum);
}

static const dra_peak peak = {.flops = 2 * 2 * 12 * 16, .run = run_pairs};

#endif

const dra_peak *dra_peak_avx512bf16(void)
{
#ifdef __AVX512BF16__
    return &peak;
#else
    return NULL;
#endif
}
