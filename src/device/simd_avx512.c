/* The vector level of x86 processors with AVX-512 (F, BW, DQ, VL); the code is simd_vector.h. */
#include "device/simd.h"

#if defined(__AVX512F__) && !defined(DRA_REAL_DOUBLE)

#include <immintrin.h>

enum { VBYTES = 64, LANES = VBYTES / 4, ROWS = 8 }; /* 16 sums in registers: FMA latency hidden */

typedef float     vf __attribute__((vector_size(VBYTES)));
typedef __mmask16 vmask;

static inline vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vsqrt(vf x) { return _mm512_sqrt_ps(x); }

/* Both give b where one of the two is NaN. */
static inline vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }

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

/* Four floats of each of the rows 0, 4, 8 and 12. */
static inline vf load_quads(const float *p, int64_t row)
{
    const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                            _mm_loadu_ps(p + 4 * row), 1);
    const __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 8 * row)),
                                             _mm_loadu_ps(p + 12 * row), 1);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* Within each four: a0 b0 a1 b1 and a2 b2 a3 b3; a0 a1 b0 b1 and a2 a3 b2 b3. */
static inline vf zip_low(vf a, vf b) { return _mm512_unpacklo_ps(a, b); }
static inline vf zip_high(vf a, vf b) { return _mm512_unpackhi_ps(a, b); }
static inline vf pair_low(vf a, vf b) { return _mm512_shuffle_ps(a, b, 0x44); }
static inline vf pair_high(vf a, vf b) { return _mm512_shuffle_ps(a, b, 0xee); }

#include "device/simd_vector.h"

const dra_simd dra_simd_avx512 = VECTOR_TABLE("avx512");

#endif
