/* Vectors of x86 processors with AVX2, FMA and F16C: what simd_vector.h is written on. */
#ifndef DRA_SRC_SIMD_AVX2_H
#define DRA_SRC_SIMD_AVX2_H

#include <immintrin.h>

enum { VBYTES = 32, LANES = VBYTES / 4, ROWS = 6 }; /* 12 sums in the 16 registers */

typedef float    vf __attribute__((vector_size(VBYTES)));
typedef uint32_t vu __attribute__((vector_size(VBYTES)));
typedef int32_t  vi __attribute__((vector_size(VBYTES)));
typedef vf       vmask;
typedef uint16_t vh __attribute__((vector_size(VBYTES / 2)));

static inline vf vfma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vsqrt(vf x) { return _mm256_sqrt_ps(x); }

/* Both give b where one of the two is NaN. */
static inline vf vmin(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vu umax(vu a, vu b) { return (vu)_mm256_max_epu32((__m256i)a, (__m256i)b); }

static inline vu masked_xor(vu x, uint32_t mask, vu y) { return (x & mask) ^ y; }

/* sum + u[0] a[0] + ... + u[3] a[3] in each lane: bytes of u without, of a with sign. */
static inline vi dot4(vu u, vu a, vi sum)
{
    const __m256i even = (__m256i)(u & 0x00ff00ffu), odd = _mm256_srli_epi16((__m256i)u, 8);
    const __m256i low = _mm256_srai_epi16(_mm256_slli_epi16((__m256i)a, 8), 8);
    const __m256i high = _mm256_srai_epi16((__m256i)a, 8);
    return sum + (vi)_mm256_madd_epi16(even, low) + (vi)_mm256_madd_epi16(odd, high);
}

static inline vmask less(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline vf    pick(vmask m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }
static inline vmask not_a_number(vf x) { return _mm256_cmp_ps(x, x, _CMP_UNORD_Q); }
static inline vmask either(vmask a, vmask b) { return _mm256_or_ps(a, b); }
static inline bool  any(vmask m) { return _mm256_movemask_ps(m) != 0; }
static inline vmask no_lane(void) { return _mm256_setzero_ps(); }

static inline vmask first_lanes(int64_t n) /* n < LANES */
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

static inline vf load_part(const float *p, int64_t n, vf rest)
{
    const vmask m = first_lanes(n);
    return pick(m, _mm256_maskload_ps(p, _mm256_castps_si256(m)), rest);
}

static inline void store_part(float *p, int64_t n, vf v)
{
    _mm256_maskstore_ps(p, _mm256_castps_si256(first_lanes(n)), v);
}

/* x 2^n, for whole n in -250..250: in two steps, as 2^n itself may be out of range. */
static inline vf vscale(vf x, vf n)
{
    const __m256i k = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(k, 1);
    const __m256i one = _mm256_set1_epi32(127);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, one), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(k, half), one), 23);
    return x * (vf)a * (vf)b;
}

static inline float fold_sum(vf v)
{
    const __m128 four = _mm256_castps256_ps128(v) + _mm256_extractf128_ps(v, 1);
    const __m128 two = four + _mm_movehl_ps(four, four);
    return two[0] + two[1];
}

static inline float fold_max(vf v)
{
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return two[0] > two[1] ? two[0] : two[1];
}

/* Within each four: a0 b0 a1 b1 and a2 b2 a3 b3; a0 a1 b0 b1 and a2 a3 b2 b3. */
static inline vf zip_low(vf a, vf b) { return _mm256_unpacklo_ps(a, b); }
static inline vf zip_high(vf a, vf b) { return _mm256_unpackhi_ps(a, b); }
static inline vf pair_low(vf a, vf b) { return _mm256_shuffle_ps(a, b, 0x44); }
static inline vf pair_high(vf a, vf b) { return _mm256_shuffle_ps(a, b, 0xee); }

/* The upper half of x[0] and the lower half of x[4] change places. */
static inline void transpose_quarters(vf *x)
{
    const vf a = x[0], b = x[4];
    x[0] = _mm256_permute2f128_ps(a, b, 0x20);
    x[4] = _mm256_permute2f128_ps(a, b, 0x31);
}

/* 16 bytes from p and p + step. */
static inline vf load_quarters(const char *p, int64_t step)
{
    const __m256i a = _mm256_castsi128_si256(_mm_loadu_si128((const void *)p));
    return (vf)_mm256_inserti128_si256(a, _mm_loadu_si128((const void *)(p + step)), 1);
}

static inline vf from_f16(vh x) { return _mm256_cvtph_ps((__m128i)x); }

#endif
