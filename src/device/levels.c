/* Which levels of micro-kernels this build and processor have. */
#include "device/simd.h"

const dra_simd *const *dra_simd_levels(void)
{
    static const dra_simd *const levels[] = {&dra_simd_ref, NULL};
    return levels;
}
