/* Quantised blocks, 8 elements at a time: the formulas of base/quant.c, which has the layouts. All
 * products are exact in f32, so a fused multiply-add gives the same bits. Blocks begin at even
 * addresses and are read two bytes at a time. */
#ifndef DRA_SRC_OPS_PRODUCTS_QUANT_CUH
#define DRA_SRC_OPS_PRODUCTS_QUANT_CUH

#include "device/cuda/stored.cuh"

typedef unsigned char dra_quant_byte;

enum { DRA_QUANT_SOME = 8 };

__device__ static inline unsigned dra_quant_pair(const dra_quant_byte *at)
{
    return __ldg(reinterpret_cast<const uint16_t *>(at));
}

__device__ static inline unsigned dra_quant_word(const dra_quant_byte *at)
{
    return dra_quant_pair(at) | dra_quant_pair(at + 2) << 16;
}

__device__ static inline float dra_quant_half(const dra_quant_byte *at)
{
    return dra_stored_f16::widen((uint16_t)dra_quant_pair(at));
}

/* 8 bytes, of each some bits. */
struct dra_quant_bytes {
    unsigned word[2];

    __device__ dra_quant_bytes(const dra_quant_byte *at, int shift, unsigned mask)
    {
        for (int i = 0; i < 2; i++)
            word[i] = dra_quant_word(at + 4 * i) >> shift & mask * 0x01010101u;
    }
    __device__ int operator[](int i) const { return (int)(word[i / 4] >> 8 * (i % 4) & 255); }
};

/* ---- blocks of 32: read() takes element e, a multiple of 8, and those after it --------------- */

/* 4 bits, element j in the low half of byte j and j + 16 in its high half. */
__device__ static inline dra_quant_bytes dra_quant_nibbles(const dra_quant_byte *u, int e)
{
    return dra_quant_bytes(u + e % 16, e / 16 * 4, 15);
}

struct dra_quant_q4_0 {
    enum { BLOCK = 32, BYTES = 18 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const dra_quant_bytes u = dra_quant_nibbles(b + 2, e);
        const float           d = dra_quant_half(b);
        DRA_UNROLL
        for (int i = 0; i < DRA_QUANT_SOME; i++) v[i] = d * (float)(u[i] - 8);
    }
};

struct dra_quant_q4_1 {
    enum { BLOCK = 32, BYTES = 20 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const dra_quant_bytes u = dra_quant_nibbles(b + 4, e);
        const float           d = dra_quant_half(b), m = dra_quant_half(b + 2);
        DRA_UNROLL
        for (int i = 0; i < DRA_QUANT_SOME; i++) v[i] = d * (float)u[i] + m;
    }
};

struct dra_quant_q5_0 {
    enum { BLOCK = 32, BYTES = 22 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const dra_quant_bytes u = dra_quant_nibbles(b + 6, e);
        const unsigned        fifth = dra_quant_word(b + 2) >> e;
        const float           d = dra_quant_half(b);
        DRA_UNROLL
        for (int i = 0; i < DRA_QUANT_SOME; i++)
            v[i] = d * (float)((u[i] | (int)(fifth >> i & 1) << 4) - 16);
    }
};

struct dra_quant_q5_1 {
    enum { BLOCK = 32, BYTES = 24 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const dra_quant_bytes u = dra_quant_nibbles(b + 8, e);
        const unsigned        fifth = dra_quant_word(b + 4) >> e;
        const float           d = dra_quant_half(b), m = dra_quant_half(b + 2);
        DRA_UNROLL
        for (int i = 0; i < DRA_QUANT_SOME; i++)
            v[i] = d * (float)(u[i] | (int)(fifth >> i & 1) << 4) + m;
    }
};

struct dra_quant_q8_0 {
    enum { BLOCK = 32, BYTES = 34 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const dra_quant_bytes u(b + 2 + e, 0, 255);
        const float           d = dra_quant_half(b);
        DRA_UNROLL
        for (int i = 0; i < DRA_QUANT_SOME; i++) v[i] = d * (float)(int8_t)u[i];
    }
};

/* ---- blocks of 256, in groups g of 32 -------------------------------------------------------- */

/* Scale and minimum of group g: 6 bits each, the upper two of the last four with the first. */
__device__ static inline float dra_quant_scale(const dra_quant_byte *b, int g, float *minimum)
{
    const dra_quant_byte *s = b + 4;
    const int             scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    const int             least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    *minimum = dra_quant_half(b + 2) * (float)least;
    return dra_quant_half(b) * (float)scale;
}

struct dra_quant_q3_k {
    enum { BLOCK = 256, BYTES = 110 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const int             g = e / 32, i = e / 16;
        const dra_quant_bytes u(b + 32 + 32 * (g / 4) + e % 32, 2 * (g % 4), 3);
        const dra_quant_bytes upper(b + e % 32, g, 1);
        const dra_quant_byte *s = b + 96;
        const int   scale = (s[i % 8] >> 4 * (i / 8) & 15) | (s[8 + i % 4] >> 2 * (i / 4) & 3) << 4;
        const float d = dra_quant_half(b + 108) * (float)(scale - 32);
        DRA_UNROLL
        for (int j = 0; j < DRA_QUANT_SOME; j++) v[j] = d * (float)((u[j] | upper[j] << 2) - 4);
    }
};

struct dra_quant_q4_k {
    enum { BLOCK = 256, BYTES = 144 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const int             g = e / 32;
        const dra_quant_bytes u(b + 16 + 32 * (g / 2) + e % 32, g % 2 * 4, 15);
        float                 minimum;
        const float           scale = dra_quant_scale(b, g, &minimum);
        DRA_UNROLL
        for (int i = 0; i < DRA_QUANT_SOME; i++) v[i] = scale * (float)u[i] - minimum;
    }
};

struct dra_quant_q5_k {
    enum { BLOCK = 256, BYTES = 176 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const int             g = e / 32;
        const dra_quant_bytes u(b + 48 + 32 * (g / 2) + e % 32, g % 2 * 4, 15);
        const dra_quant_bytes fifth(b + 16 + e % 32, g, 1);
        float                 minimum;
        const float           scale = dra_quant_scale(b, g, &minimum);
        DRA_UNROLL
        for (int i = 0; i < DRA_QUANT_SOME; i++)
            v[i] = scale * (float)(u[i] | fifth[i] << 4) - minimum;
    }
};

struct dra_quant_q6_k {
    enum { BLOCK = 256, BYTES = 210 };
    static __device__ void read(const dra_quant_byte *b, int e, float *v)
    {
        const int             g = e / 32, j = g % 4;
        const dra_quant_bytes u(b + 64 * (g / 4) + 32 * (j % 2) + e % 32, j / 2 * 4, 15);
        const dra_quant_bytes upper(b + 128 + 32 * (g / 4) + e % 32, 2 * j, 3);
        const float           d = dra_quant_half(b + 208) * (float)(int8_t)b[192 + e / 16];
        DRA_UNROLL
        for (int i = 0; i < DRA_QUANT_SOME; i++) v[i] = d * (float)((u[i] | upper[i] << 4) - 32);
    }
};

/* ---- as stored numbers ----------------------------------------------------------------------- */

#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    static_assert(dra_quant_##name::BLOCK == elements && dra_quant_##name::BYTES == bytes, "");
#include "base/quant.def"
#undef DRA_QUANT

/* Elements at, a multiple of 8, and those after it. */
template <typename Q>
__device__ static inline void dra_quant_read(const void *blocks, int64_t at, float *v)
{
    const int64_t block = at / Q::BLOCK;
    Q::read(static_cast<const dra_quant_byte *>(blocks) + block * Q::BYTES,
            (int)(at - block * Q::BLOCK), v);
}

/* n elements `step` apart, and zeros; whole: 8 adjacent ones, from a multiple of 8 on. */
template <typename Q>
__device__ static inline void dra_quant_fetch(const void *blocks, int64_t at, int64_t step,
                                              int64_t n, bool whole, float *v)
{
    if (whole) {
        dra_quant_read<Q>(blocks, at, v);
        return;
    }
    for (int i = 0; i < DRA_QUANT_SOME; i++) {
        const int64_t k = at + i * step;
        float         some[DRA_QUANT_SOME] = {};
        if (i < n) dra_quant_read<Q>(blocks, k - k % DRA_QUANT_SOME, some);
        v[i] = some[k % DRA_QUANT_SOME];
    }
}

struct dra_quant_numbers {
    float at[DRA_QUANT_SOME];
};

template <typename Q> struct dra_stored_quant {
    enum { SOME = DRA_QUANT_SOME, ROUND_EXACT = 0 };
    typedef dra_quant_numbers raw;
    static __device__ raw fetch(const void *blocks, dra_dtype, int64_t at, int64_t step, int64_t n,
                                bool whole)
    {
        raw x;
        dra_quant_fetch<Q>(blocks, at, step, n, whole, x.at);
        return x;
    }
    static __device__ void widen_some(const raw &from, float *to)
    {
        DRA_UNROLL
        for (int i = 0; i < SOME; i++) to[i] = from.at[i];
    }
};

/* Of any of these dtypes, which is looked at for every 8 elements. */
struct dra_stored_any_quant {
    enum { SOME = DRA_QUANT_SOME, ROUND_EXACT = 0 };
    typedef dra_quant_numbers raw;
    static __device__ raw     fetch(const void *blocks, dra_dtype dtype, int64_t at, int64_t step,
                                    int64_t n, bool whole)
    {
        raw x;
        switch (dtype) {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    case DRA_##NAME:                                                                               \
        dra_quant_fetch<dra_quant_##name>(blocks, at, step, n, whole, x.at);                       \
        break;
#include "base/quant.def"
#undef DRA_QUANT
        default: break;
        }
        return x;
    }
    static __device__ void widen_some(const raw &from, float *to)
    {
        DRA_UNROLL
        for (int i = 0; i < SOME; i++) to[i] = from.at[i];
    }
};

/* Whether lines of them, `step` elements apart, can all be read 8 elements at a time. */
static inline bool dra_quant_on_8(int64_t step) { return step % DRA_QUANT_SOME == 0; }

#endif
