/* The peak of AVX-512. */
#ifdef __AVX512F__
#define PEAK_BYTES 64
#endif
#include "device/simd_peak.h"

const dra_peak *dra_peak_avx512(void)
{
#ifdef PEAK_BYTES
    return &peak_of_level;
#else
    return NULL;
#endif
}
