/* Numbers as they are stored, 16 bytes of them at a time: f32, bf16, f16. fetch() takes SOME of
 * them from element `at` on, see dra_fetch_some(), widen_some() makes floats of what it took. */
#ifndef DRA_SRC_DEVICE_CUDA_STORED_CUH
#define DRA_SRC_DEVICE_CUDA_STORED_CUH

#include "device/cuda/rows.cuh"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/* x rounded to bf16, as a float. */
__device__ static inline float dra_as_bf16(float x)
{
#ifdef __CUDACC__
    return __bfloat162float(__float2bfloat16_rn(x));
#else
    return dra_widen_bf16(dra_round_bf16(x));
#endif
}

/* Two of them next to each other, the first one in the lower bits. */
__device__ static inline unsigned dra_pair_bf16(float x, float y)
{
#ifdef __CUDACC__
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    unsigned             bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
#else
    return (unsigned)dra_round_bf16(y) << 16 | dra_round_bf16(x);
#endif
}

template <typename S>
__device__ static inline float4 dra_fetch_some(const typename S::type *at, int64_t step, int64_t n,
                                               bool whole);

struct dra_stored_f32 {
    typedef float  type;
    typedef float4 raw;
    enum { SOME = 4, ROUND_EXACT = 0 }; /* numbers in 16 bytes; whether bf16 holds all of them */
    static __device__ raw fetch(const void *data, dra_dtype, int64_t at, int64_t step, int64_t n,
                                bool whole)
    {
        return dra_fetch_some<dra_stored_f32>(static_cast<const type *>(data) + at, step, n, whole);
    }
    static __device__ float widen(float x) { return x; }
    static __device__ void  widen_some(const float4 &from, float *to)
    {
        to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
    }
};

/* What the two kinds of 16 bits share: words of two, the first one in the lower bits. */
template <typename Half> struct dra_stored_half {
    typedef uint16_t type;
    typedef float4   raw;
    enum { SOME = 8 };
    static __device__ raw fetch(const void *data, dra_dtype, int64_t at, int64_t step, int64_t n,
                                bool whole)
    {
        return dra_fetch_some<Half>(static_cast<const type *>(data) + at, step, n, whole);
    }
    static __device__ void widen_some(const float4 &from, float *to)
    {
        const float word[4] = {from.x, from.y, from.z, from.w};
        DRA_UNROLL
        for (int i = 0; i < 4; i++) {
            const unsigned bits = __float_as_uint(word[i]);
            to[2 * i] = Half::widen((uint16_t)bits);
            to[2 * i + 1] = Half::widen((uint16_t)(bits >> 16));
        }
    }
};

struct dra_stored_bf16 : dra_stored_half<dra_stored_bf16> {
    enum { ROUND_EXACT = 1 };
    static __device__ float widen(uint16_t x) { return dra_widen_bf16(x); }
};

struct dra_stored_f16 : dra_stored_half<dra_stored_f16> {
    enum { ROUND_EXACT = 0 };
    static __device__ float widen(uint16_t x)
    {
#ifdef __CUDACC__
        return __half2float(__ushort_as_half(x));
#else
        return dra_widen_f16(x);
#endif
    }
};

/* 16 bytes of numbers: whole, adjacent and on 16 bytes in memory, or else the first n of them,
 * `step` apart, and zeros. */
template <typename S>
__device__ static inline float4 dra_fetch_some(const typename S::type *at, int64_t step, int64_t n,
                                               bool whole)
{
    if (whole) return __ldg(reinterpret_cast<const float4 *>(at));
    alignas(16) typename S::type some[S::SOME];
    DRA_UNROLL
    for (int i = 0; i < S::SOME; i++) some[i] = i < n ? at[i * step] : (typename S::type)0;
    float4 v;
    memcpy(&v, some, sizeof v);
    return v;
}

/* W results, 1, 4 or 8, from element `at` on: floats, or rounded to bf16. */
template <int W>
__device__ static inline void dra_store_real(void *to, bool bf16, int64_t at, const float *v)
{
    if constexpr (W == 8) {
        if (!bf16) {
            dra_store_real<4>(to, false, at, v);
            dra_store_real<4>(to, false, at + 4, v + 4);
            return;
        }
        *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(to) + at) = make_uint4(
            dra_pair_bf16(v[0], v[1]), dra_pair_bf16(v[2], v[3]), dra_pair_bf16(v[4], v[5]),
            dra_pair_bf16(v[6], v[7]));
    } else if (!bf16) {
        dra_store_some<W>(static_cast<float *>(to) + at, v);
    } else if constexpr (W == 4) {
        *reinterpret_cast<uint2 *>(static_cast<uint16_t *>(to) + at) = make_uint2(
            dra_pair_bf16(v[0], v[1]), dra_pair_bf16(v[2], v[3]));
    } else {
        static_cast<uint16_t *>(to)[at] = (uint16_t)dra_pair_bf16(v[0], 0);
    }
}

/* For `narrows` of a kernel that stores its first output so. */
static inline uint32_t dra_narrows_first(const dra_call *) { return 1; }

/* Whether a matrix of floats would be read as it is, if it were stored in bf16: see gemm_run.cu. */
static inline bool dra_even_lines(const dra_tensor *t)
{
    const int32_t last = t->shape.rank - 1;
    bool          even = last > 0 && t->dtype == DRA_F32;
    int           adjacent = 0;
    for (int32_t i = 0; i <= last; i++) {
        const bool one = i >= last - 1 && t->stride[i] == 1 && !adjacent;
        adjacent += one;
        even = even && (one || t->stride[i] % 8 == 0);
    }
    return even && adjacent == 1;
}

/* Whether rows of numbers of this size, `step` elements apart, all start on 16 bytes. */
static inline bool dra_on_16(const void *data, size_t bytes, int64_t step)
{
    return (uintptr_t)data % 16 == 0 && step * (int64_t)bytes % 16 == 0;
}

#endif
