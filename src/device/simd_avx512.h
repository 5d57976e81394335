/* Vectors of x86 processors with AVX-512 (F, BW, DQ, VL): what simd_vector.h is written on.
 * Products are in simd_gemm.h, one source for all levels. */
#ifndef DRA_SRC_SIMD_AVX512_H
#define DRA_SRC_SIMD_AVX512_H

#include <immintrin.h>

enum { VBYTES = 64, LANES = VBYTES / 4, ROWS = 8 }; /* 16 sums in registers: FMA latency hidden */

typedef float     vf __attribute__((vector_size(VBYTES)));
typedef uint32_t  vu __attribute__((vector_size(VBYTES)));
typedef int32_t   vi __attribute__((vector_size(VBYTES)));
typedef __mmask16 vmask;
typedef uint16_t  vh __attribute__((vector_size(VBYTES / 2)));

static inline vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vsqrt(vf x) { return _mm512_sqrt_ps(x); }

/* Both give b where one of the two is NaN. */
static inline vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vu umax(vu a, vu b) { return (vu)_mm512_max_epu32((__m512i)a, (__m512i)b); }

/* (x & mask) ^ y, over x: compilers choose y, which they have to copy first. */
static inline vu masked_xor(vu x, uint32_t mask, vu y)
{
    const __m512i m = _mm512_set1_epi32((int)mask);
    return (vu)_mm512_ternarylogic_epi32((__m512i)x, m, (__m512i)y, 0x6a);
}

/* sum + u[0] a[0] + ... + u[3] a[3] in each lane: bytes of u without, of a with sign. */
static inline vi dot4(vu u, vu a, vi sum)
{
#ifdef __AVX512VNNI__
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)u, (__m512i)a);
#else
    const __m512i even = (__m512i)(u & 0x00ff00ffu), odd = _mm512_srli_epi16((__m512i)u, 8);
    const __m512i low = _mm512_srai_epi16(_mm512_slli_epi16((__m512i)a, 8), 8);
    const __m512i high = _mm512_srai_epi16((__m512i)a, 8);
    return sum + (vi)_mm512_madd_epi16(even, low) + (vi)_mm512_madd_epi16(odd, high);
#endif
}

static inline vmask less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline vf    pick(vmask m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
static inline vmask not_a_number(vf x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
static inline vmask either(vmask a, vmask b) { return (vmask)(a | b); }
static inline bool  any(vmask m) { return m != 0; }
static inline vmask no_lane(void) { return 0; }
static inline vmask first_lanes(int64_t n) { return (vmask)((1u << n) - 1); } /* n < LANES */

static inline vf load_part(const float *p, int64_t n, vf rest)
{
    return _mm512_mask_loadu_ps(rest, first_lanes(n), p);
}

static inline void store_part(float *p, int64_t n, vf v)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

static inline vf vscale(vf x, vf n) { return _mm512_scalef_ps(x, n); } /* x 2^n */

static inline float fold_sum(vf v) { return _mm512_reduce_add_ps(v); }
static inline float fold_max(vf v) { return _mm512_reduce_max_ps(v); }

/* Within each four: a0 b0 a1 b1 and a2 b2 a3 b3; a0 a1 b0 b1 and a2 a3 b2 b3. */
static inline vf zip_low(vf a, vf b) { return _mm512_unpacklo_ps(a, b); }
static inline vf zip_high(vf a, vf b) { return _mm512_unpackhi_ps(a, b); }
static inline vf pair_low(vf a, vf b) { return _mm512_shuffle_ps(a, b, 0x44); }
static inline vf pair_high(vf a, vf b) { return _mm512_shuffle_ps(a, b, 0xee); }

/* Quarter i of x[4 j] and quarter j of x[4 i] change places. */
static inline void transpose_quarters(vf *x)
{
    const vf a = _mm512_shuffle_f32x4(x[0], x[4], 0x88), b = _mm512_shuffle_f32x4(x[0], x[4], 0xdd);
    const vf c = _mm512_shuffle_f32x4(x[8], x[12], 0x88);
    const vf d = _mm512_shuffle_f32x4(x[8], x[12], 0xdd);
    x[0] = _mm512_shuffle_f32x4(a, c, 0x88);
    x[4] = _mm512_shuffle_f32x4(b, d, 0x88);
    x[8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    x[12] = _mm512_shuffle_f32x4(b, d, 0xdd);
}

/* 16 bytes from p, p + step, p + 2 step and p + 3 step. */
static inline vf load_quarters(const char *p, int64_t step)
{
    const __m512i a = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    const __m512i b = _mm512_inserti32x4(a, _mm_loadu_si128((const void *)(p + step)), 1);
    const __m512i c = _mm512_inserti32x4(b, _mm_loadu_si128((const void *)(p + 2 * step)), 2);
    return (vf)_mm512_inserti32x4(c, _mm_loadu_si128((const void *)(p + 3 * step)), 3);
}

static inline vf from_f16(vh x) { return _mm512_cvtph_ps((__m256i)x); }

#endif
