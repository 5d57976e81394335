/* Vectors of 64-bit ARM processors: what simd_vector.h is written on. */
#ifndef DRA_SRC_SIMD_NEON_H
#define DRA_SRC_SIMD_NEON_H

#include <arm_neon.h>
#include <string.h>

enum { VBYTES = 16, LANES = VBYTES / 4, ROWS = 8 }; /* 16 sums in the 32 registers */

typedef float    vf __attribute__((vector_size(VBYTES)));
typedef uint32_t vu __attribute__((vector_size(VBYTES)));
typedef int32_t  vi __attribute__((vector_size(VBYTES)));
typedef vu       vmask;
typedef uint16_t vh __attribute__((vector_size(VBYTES / 2)));

static inline vf vfma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vsqrt(vf x) { return vsqrtq_f32(x); }

/* Both give NaN where one of the two is NaN. */
static inline vf vmin(vf a, vf b) { return vminq_f32(a, b); }
static inline vf vmax(vf a, vf b) { return vmaxq_f32(a, b); }
static inline vu umax(vu a, vu b) { return vmaxq_u32(a, b); }

static inline vu masked_xor(vu x, uint32_t mask, vu y) { return (x & mask) ^ y; }

/* sum + u[0] a[0] + ... + u[3] a[3] in each lane: bytes of u without, of a with sign. */
static inline vi dot4(vu u, vu a, vi sum)
{
    for (int i = 0; i < 4; i++) sum += (vi)(u >> 8 * i & 255u) * ((vi)(a << (24 - 8 * i)) >> 24);
    return sum;
}

static inline vmask less(vf a, vf b) { return vcltq_f32(a, b); }
static inline vf    pick(vmask m, vf yes, vf no) { return vbslq_f32(m, yes, no); }
static inline vmask not_a_number(vf x) { return vmvnq_u32(vceqq_f32(x, x)); }
static inline vmask either(vmask a, vmask b) { return a | b; }
static inline bool  any(vmask m) { return vmaxvq_u32(m) != 0; }
static inline vmask no_lane(void) { return vdupq_n_u32(0); }
static inline vmask first_lanes(int64_t n) /* n < LANES */
{
    return (vmask){0, 1, 2, 3} < vdupq_n_u32((uint32_t)n);
}

static inline vf load_part(const float *p, int64_t n, vf rest)
{
    memcpy(&rest, p, (size_t)n * sizeof *p);
    return rest;
}

static inline void store_part(float *p, int64_t n, vf v) { memcpy(p, &v, (size_t)n * sizeof *p); }

/* x 2^n, for whole n in -250..250: in two steps, as 2^n itself may be out of range. */
static inline vf vscale(vf x, vf n)
{
    const int32x4_t k = vcvtq_s32_f32(n), half = vshrq_n_s32(k, 1), one = vdupq_n_s32(127);
    const int32x4_t a = vshlq_n_s32(vaddq_s32(half, one), 23);
    const int32x4_t b = vshlq_n_s32(vaddq_s32(vsubq_s32(k, half), one), 23);
    return x * (vf)a * (vf)b;
}

static inline float fold_sum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }
static inline float fold_max(vf v) { return vmaxvq_f32(v); }

/* a0 b0 a1 b1 and a2 b2 a3 b3; a0 a1 b0 b1 and a2 a3 b2 b3. */
static inline vf zip_low(vf a, vf b) { return vzip1q_f32(a, b); }
static inline vf zip_high(vf a, vf b) { return vzip2q_f32(a, b); }
static inline vf pair_low(vf a, vf b) { return (vf){a[0], a[1], b[0], b[1]}; }
static inline vf pair_high(vf a, vf b) { return (vf){a[2], a[3], b[2], b[3]}; }

static inline void transpose_quarters(vf *x) {} /* there is one */

/* 16 bytes from p; there is one quarter. */
static inline vf load_quarters(const char *p, int64_t step)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline vf from_f16(vh x) { return vcvt_f32_f16((float16x4_t)x); }

#endif
