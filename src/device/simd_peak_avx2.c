/* The peak of AVX2 with FMA. */
#if defined(__AVX2__) && defined(__FMA__)
#define PEAK_BYTES 32
#endif
#include "device/simd_peak.h"

const dra_peak *dra_peak_avx2(void)
{
#ifdef PEAK_BYTES
    return &peak_of_level;
#else
    return NULL;
#endif
}
