/* The peak of products of bf16 on tiles. */
#include "device/simd_peak.h"

#ifdef __AMX_BF16__

#include <string.h>

#include "device/simd_avx512amx.h"

/* Four sums take turns, as in a product: (1, 0) times (1, 1), so that every element counts rounds
 * up to 2^24 / 16. */
static dra_real run_tiles(int64_t rounds)
{
    _Alignas(64) uint32_t one[TILE_SIDE][TILE_SIDE], both[TILE_SIDE][TILE_SIDE];
    _Alignas(64) float    sum[TILE_SIDE][TILE_SIDE];
    for (int i = 0; i < TILE_SIDE * TILE_SIDE; i++)
        one[i / TILE_SIDE][i % TILE_SIDE] = 0x3f80,
                               both[i / TILE_SIDE][i % TILE_SIDE] =
                                   0x3f803f80; /* 1 in bf16, and a pair of them */
    tiles_begin();
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    tile_load(4, one, TILE_BYTES);
    tile_load(5, both, TILE_BYTES);
    for (int64_t i = 0; i < rounds; i++) {
        tile_dot(0, 4, 5);
        tile_dot(1, 4, 5);
        tile_dot(2, 4, 5);
        tile_dot(3, 4, 5);
    }
    tile_store(0, sum, TILE_BYTES);
    tiles_end();
    return sum[0][0];
}

static const dra_peak peak = {.flops = 4 * 2 * TILE_SIDE * TILE_SIDE * 2 * TILE_SIDE,
                              .run = run_tiles};

#endif

const dra_peak *dra_peak_avx512amx(void)
{
#ifdef __AMX_BF16__
    return &peak;
#else
    return NULL;
#endif
}
