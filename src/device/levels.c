/* Which levels of micro-kernels this build and processor have. */
#include "device/simd.h"

#if defined(__x86_64__) && !defined(DRA_REAL_DOUBLE)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tile registers are large, so Linux gives them to a process only when it asks. */
static bool has_tiles(void)
{
    enum { TILES_OF_BF16 = 1 << 22, TILES = 1 << 24, REQUEST = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d & TILES) || !(d & TILES_OF_BF16)) return false;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

/* Where Intel's processors multiply pairs of bf16 in vectors, they do so at half the rate of
 * floats: AMX is what they have it for. */
static bool pairs_are_slow(void)
{
    unsigned   a, b, c, d;
    const bool known = __get_cpuid(0, &a, &b, &c, &d);
    return known && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
           d == signature_INTEL_edx;
}

/* The compiler's check includes the operating system: registers that it does not save do not
 * count. */
const dra_simd *const *dra_simd_levels(void)
{
    static const dra_simd *const levels[] = {&dra_simd_avx512amx, &dra_simd_avx512bf16,
                                             &dra_simd_avx512,    &dra_simd_avx2,
                                             &dra_simd_ref,       NULL};
    /* A processor with AVX2 has F16C too. */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return levels + 4;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!wide) return levels + 3;
    if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni"))
        return levels + 2;
    return has_tiles() ? levels : pairs_are_slow() ? levels + 2 : levels + 1;
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
