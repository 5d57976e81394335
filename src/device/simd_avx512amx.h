/* AVX-512 and AMX: registers that are tiles of 16 rows of 64 bytes, and products of tiles of bf16.
 *   tile_dot(c, a, b)   c (16, 16) += a (16, 16 pairs) b (16 pairs, 16)
 * Sums of even and of odd elements of k are two chains from zero; then both are added to each
 * other, and to c. Subnormal numbers count as zero. [Intel, Architecture Instruction Set
 * Extensions, TDPBF16PS]
 *
 * With TILES_EMULATED the same in plain C, for processors without it. */
#ifndef DRA_SRC_SIMD_AVX512AMX_H
#define DRA_SRC_SIMD_AVX512AMX_H

#include "device/simd_avx512bf16.h"

#define LEVEL_TILES true

enum { TILE_SIDE = 16, TILE_BYTES = 64 };

#ifdef TILES_EMULATED

static _Thread_local vu tile_emulated[8][TILE_SIDE];

static inline void tile_load(int t, const void *p, int64_t stride)
{
    for (int i = 0; i < TILE_SIDE; i++)
        memcpy(&tile_emulated[t][i], (const char *)p + i * stride, TILE_BYTES);
}

static inline void tile_store(int t, void *p, int64_t stride)
{
    for (int i = 0; i < TILE_SIDE; i++)
        memcpy((char *)p + i * stride, &tile_emulated[t][i], TILE_BYTES);
}

static inline void tile_zero(int t) { memset(tile_emulated[t], 0, sizeof tile_emulated[t]); }

static inline vf tile_flushed(vf x) /* subnormal numbers become zeros of their sign */
{
    const vu bits = (vu)x;
    return (vf)(bits & ~(((bits & 0x7f800000u) == 0u) & 0x7fffffffu));
}

/* Even elements of row i of a (shift 16) or odd ones (0), times those of b. */
static inline vf tile_chain(int a, int b, int i, int shift)
{
    vf sum = {0};
    for (int k = 0; k < TILE_SIDE; k++) {
        const vu x = (vu){0} + tile_emulated[a][i][k], y = tile_emulated[b][k];
        sum = tile_flushed(vfma(tile_flushed((vf)(x << shift & 0xffff0000u)),
                                tile_flushed((vf)(y << shift & 0xffff0000u)), sum));
    }
    return sum;
}

static inline void tile_dot(int c, int a, int b)
{
    for (int i = 0; i < TILE_SIDE; i++) {
        const vf both = tile_flushed(tile_chain(a, b, i, 16) + tile_chain(a, b, i, 0));
        tile_emulated[c][i] = (vu)tile_flushed(tile_flushed((vf)tile_emulated[c][i]) + both);
    }
}

static inline void tiles_begin(void) {}
static inline void tiles_end(void) {}

#else

#define tile_load(t, p, stride) _tile_loadd(t, p, (size_t)(stride))
#define tile_store(t, p, stride) _tile_stored(t, p, (size_t)(stride))
#define tile_zero(t) _tile_zero(t)
#define tile_dot(c, a, b) _tile_dpbf16ps(c, a, b)

/* All eight tiles whole. Outside of a product there are none: a thread that is interrupted has less
 * to be saved. */
static inline void tiles_begin(void)
{
    _Alignas(64) struct {
        uint8_t  palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t  rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 8; i++) shape.bytes[i] = TILE_BYTES, shape.rows[i] = TILE_SIDE;
    _tile_loadconfig(&shape);
}

static inline void tiles_end(void) { _tile_release(); }

#endif
#endif
