/* The vector level of x86 processors with AVX-512; the code is simd_vector.h. */
#include "device/simd.h"

#if defined(__AVX512F__) && !defined(DRA_REAL_DOUBLE)

#include "device/simd_avx512.h"
#include "device/simd_vector.h"

const dra_simd dra_simd_avx512 = VECTOR_TABLE("avx512");

#endif
