/* Which levels of micro-kernels this build and processor have. */
#include "device/simd.h"

#if defined(__x86_64__) && !defined(DRA_REAL_DOUBLE)

/* The compiler's check includes the operating system's: registers it does not save do not count. */
const dra_simd *const *dra_simd_levels(void)
{
    static const dra_simd *const levels[] = {&dra_simd_avx512bf16, &dra_simd_avx512, &dra_simd_avx2,
                                             &dra_simd_ref, NULL};
    /* A processor with AVX2 has F16C too. */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return levels + 3;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!wide) return levels + 2;
    return __builtin_cpu_supports("avx512bf16") ? levels : levels + 1;
}

#elif defined(__aarch64__) && !defined(DRA_REAL_DOUBLE)

const dra_simd *const *dra_simd_levels(void) /* every such processor has these vectors */
{
    static const dra_simd *const levels[] = {&dra_simd_neon, &dra_simd_ref, NULL};
    return levels;
}

#else

const dra_simd *const *dra_simd_levels(void)
{
    static const dra_simd *const levels[] = {&dra_simd_ref, NULL};
    return levels;
}

#endif
