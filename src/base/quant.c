/* Quantised blocks. d and m are f16; u is what is stored of an element, in 3 to 6 or 8 bits.
 *
 *            bytes of a block                      a number
 *   Q4_0     d  u[16]                              d (u - 8)
 *   Q4_1     d m  u[16]                            d u + m
 *   Q5_0     d  h[4]  u[16]                        d (u - 16)
 *   Q5_1     d m  h[4]  u[16]                      d u + m
 *   Q8_0     d  u[32], signed                      d u
 *   Q4_K     d m  s[12]  u[128]                    d s_g u - m t_g
 *   Q5_K     d m  s[12]  h[32]  u[128]             d s_g u - m t_g
 *   Q3_K     h[32]  u[64]  s[12]  d                d (s_g - 32) (u - 4)
 *   Q6_K     u[128]  h[64]  s[16], signed  d       d s_g (u - 32)
 *
 * Of 32 elements, u[j] has element j in its low half and j + 16 in its high half; bit e of h is
 * the fifth bit of element e. Q*_K have groups g of 32 (Q3_K and Q6_K: 16) elements of 256, with
 * scales s_g and minima t_g of 6 bits (Q6_K: scales of 8).
 * All products of d, s and u are exact in f32: a number is rounded at most once, by the sum.
 * [ggml, ggml-quants.c] */
#include "base/quant.h"
#include "base/quant_k.h"

#include <math.h>
#include <string.h>

typedef unsigned char byte;

enum { BLOCK = 32, GROUP = 32, HALF = 16 };

static float half_at(const byte *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return dra_f16_to_f32(x);
}

static uint32_t word_at(const byte *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static void put_half(byte *p, float x)
{
    const uint16_t half = dra_f32_to_f16(x);
    memcpy(p, &half, sizeof half);
}

/* ---- reading: 32 elements, group g of a block ------------------------------------------------ */

/* Elements of 4 bits, and perhaps a fifth. */
static void unpack_nibbles(const byte *u, uint32_t fifth, int *x)
{
    for (int e = 0; e < HALF; e++) {
        x[e] = (u[e] & 15) | (int)(fifth >> e & 1) << 4;
        x[e + HALF] = u[e] >> 4 | (int)(fifth >> (e + HALF) & 1) << 4;
    }
}

/* d (u - zero) */
static void read_around(const byte *u, uint32_t fifth, float d, int zero, float *to)
{
    int x[GROUP];
    unpack_nibbles(u, fifth, x);
    for (int e = 0; e < GROUP; e++) to[e] = d * (float)(x[e] - zero);
}

/* d u + m */
static void read_above(const byte *u, uint32_t fifth, float d, float m, float *to)
{
    int x[GROUP];
    unpack_nibbles(u, fifth, x);
    for (int e = 0; e < GROUP; e++) to[e] = d * (float)x[e] + m;
}

static void read_q4_0(const byte *b, int g, float *to) { read_around(b + 2, 0, half_at(b), 8, to); }

static void read_q4_1(const byte *b, int g, float *to)
{
    read_above(b + 4, 0, half_at(b), half_at(b + 2), to);
}

static void read_q5_0(const byte *b, int g, float *to)
{
    read_around(b + 6, word_at(b + 2), half_at(b), 16, to);
}

static void read_q5_1(const byte *b, int g, float *to)
{
    read_above(b + 8, word_at(b + 4), half_at(b), half_at(b + 2), to);
}

static void read_q8_0(const byte *b, int g, float *to)
{
    const float d = half_at(b);
    for (int e = 0; e < GROUP; e++) to[e] = d * (float)(int8_t)b[2 + e];
}

/* Scale and minimum of group g: 6 bits each, the upper two of the last four with the first. */
static float scale_and_minimum(const byte *b, int g, float *minimum)
{
    const byte *s = b + 4;
    const int   scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    const int   least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    *minimum = half_at(b + 2) * (float)least;
    return half_at(b) * (float)scale;
}

/* Scales in half bytes, those of the first eight groups low; their upper two bits are behind. */
static void read_q3_k(const byte *b, int g, float *to)
{
    const byte *h = b, *u = b + 32 + GROUP * (g / 4), *s = b + 96;
    const float d = half_at(b + 108);
    for (int e = 0; e < GROUP; e++) {
        const int i = 2 * g + e / 16, x = (u[e] >> 2 * (g % 4) & 3) | (h[e] >> g & 1) << 2;
        const int scale = (s[i % 8] >> 4 * (i / 8) & 15) | (s[8 + i % 4] >> 2 * (i / 4) & 3) << 4;
        to[e] = d * (float)(scale - 32) * (float)(x - 4);
    }
}

static void read_q4_k(const byte *b, int g, float *to)
{
    const byte *u = b + 16 + GROUP * (g / 2);
    float       minimum;
    const float scale = scale_and_minimum(b, g, &minimum);
    for (int e = 0; e < GROUP; e++) to[e] = scale * (float)(u[e] >> 4 * (g % 2) & 15) - minimum;
}

static void read_q5_k(const byte *b, int g, float *to)
{
    const byte *u = b + 48 + GROUP * (g / 2), *h = b + 16;
    float       minimum;
    const float scale = scale_and_minimum(b, g, &minimum);
    for (int e = 0; e < GROUP; e++) {
        const int x = (u[e] >> 4 * (g % 2) & 15) | (h[e] >> g & 1) << 4;
        to[e] = scale * (float)x - minimum;
    }
}

static void read_q6_k(const byte *b, int g, float *to)
{
    const int   j = g % 4;
    const byte *u = b + 64 * (g / 4) + GROUP * (j % 2), *h = b + 128 + GROUP * (g / 4);
    const float d = half_at(b + 208);
    for (int e = 0; e < GROUP; e++) {
        const int x = (u[e] >> 4 * (j / 2) & 15) | (h[e] >> 2 * j & 3) << 4;
        to[e] = d * (float)(int8_t)b[192 + 2 * g + e / 16] * (float)(x - 32);
    }
}

/* ---- writing: a block ------------------------------------------------------------------------ */

/* 0 of a scale whose inverse is no float: as f16 it is 0, too, and every number with it. */
static float invert_scale(float d) { return d != 0 && isfinite(1 / d) ? 1 / d : 0; }

/* The element of largest magnitude, the first of them, with its sign. */
static float find_farthest(const float *x)
{
    float most = 0;
    for (int e = 0; e < BLOCK; e++)
        if (fabsf(x[e]) > fabsf(most)) most = x[e];
    return most;
}

static float least_of(const float *x, float *range)
{
    float least = x[0], most = x[0];
    for (int e = 1; e < BLOCK; e++) {
        if (x[e] < least) least = x[e];
        if (x[e] > most) most = x[e];
    }
    *range = most - least;
    return least;
}

/* x cut to a whole number; numbers whose range is no float give any of them. */
static int at_most(float x, int most) { return x < (float)most ? (x > 0 ? (int)x : 0) : most; }

static void put_nibbles(const int *u, byte *to)
{
    for (int e = 0; e < HALF; e++) to[e] = (byte)((u[e] & 15) | (u[e + HALF] & 15) << 4);
}

static void put_fifth(const int *u, byte *to)
{
    uint32_t high = 0;
    for (int e = 0; e < BLOCK; e++) high |= (uint32_t)(u[e] >> 4 & 1) << e;
    memcpy(to, &high, sizeof high);
}

/* d (u - top), the farthest number being u = 0; returns d. */
static float around_zero(const float *x, int top, int *u)
{
    const float d = find_farthest(x) / (float)-top, id = invert_scale(d);
    for (int e = 0; e < BLOCK; e++) u[e] = at_most(x[e] * id + ((float)top + 0.5f), 2 * top - 1);
    return d;
}

/* d u + m; returns d. */
static float above_least(const float *x, int top, int *u, float *m)
{
    float range;
    *m = least_of(x, &range);
    const float d = range / (float)top, id = invert_scale(d);
    for (int e = 0; e < BLOCK; e++) u[e] = at_most((x[e] - *m) * id + 0.5f, top);
    return d;
}

static void write_q4_0(const float *x, byte *b)
{
    int u[BLOCK];
    put_half(b, around_zero(x, 8, u));
    put_nibbles(u, b + 2);
}

static void write_q4_1(const float *x, byte *b)
{
    int   u[BLOCK];
    float m;
    put_half(b, above_least(x, 15, u, &m));
    put_half(b + 2, m);
    put_nibbles(u, b + 4);
}

static void write_q5_0(const float *x, byte *b)
{
    int u[BLOCK];
    put_half(b, around_zero(x, 16, u));
    put_fifth(u, b + 2);
    put_nibbles(u, b + 6);
}

static void write_q5_1(const float *x, byte *b)
{
    int   u[BLOCK];
    float m;
    put_half(b, above_least(x, 31, u, &m));
    put_half(b + 2, m);
    put_fifth(u, b + 4);
    put_nibbles(u, b + 8);
}

static void write_q8_0(const float *x, byte *b)
{
    const float d = fabsf(find_farthest(x)) / 127, id = invert_scale(d);
    put_half(b, d);
    for (int e = 0; e < BLOCK; e++) b[2 + e] = (byte)(int8_t)roundf(x[e] * id);
}

static void write_q4_k(const float *x, byte *b) { dra_write_q4_k(x, b); }
static void write_q5_k(const float *x, byte *b) { dra_write_q5_k(x, b); }
static void write_q6_k(const float *x, byte *b) { dra_write_q6_k(x, b); }

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct quant {
    void (*read)(const byte *block, int g, float *to);
    void (*write)(const float *x, byte *block); /* NULL: read only */
} quant;

static const quant quants[DRA_DTYPE_COUNT] = {
#define WRITTEN(name) write_##name
#define READ(name) NULL
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    [DRA_##NAME] = {read_##name, writes(name)},
#include "base/quant.def"
#undef DRA_QUANT
};

/* The 32 elements that element i is one of. */
static void read_group(dra_dtype dtype, const void *blocks, int64_t i, float *to)
{
    const int64_t n = (int64_t)dra_dtype_get(dtype)->block_elements;
    quants[dtype].read((const byte *)blocks + dra_elements_bytes(dtype, i), (int)(i % n / GROUP),
                       to);
}

void dra_dequantise(dra_dtype dtype, const void *blocks, int64_t first, int64_t n, float *to)
{
    while (n > 0) {
        const int64_t skip = first % GROUP, some = dra_imin(GROUP - skip, n);
        float         x[GROUP];
        read_group(dtype, blocks, first, some == GROUP ? to : x);
        if (some < GROUP) memcpy(to, x + skip, (size_t)some * sizeof *to);
        first += some;
        n -= some;
        to += some;
    }
}

void dra_quantised_integers(dra_dtype dtype, const void *block, int *to)
{
    const byte *b = block;
    const int   head = dtype == DRA_Q4_1 || dtype == DRA_Q5_1 ? 4 : 2;
    const bool  five = dtype == DRA_Q5_0 || dtype == DRA_Q5_1;
    const int   zero = dtype == DRA_Q4_0 ? 8 : dtype == DRA_Q5_0 ? 16 : 0;
    if (dtype != DRA_Q8_0)
        unpack_nibbles(b + head + (five ? 4 : 0), five ? word_at(b + head) : 0, to);
    for (int e = 0; e < BLOCK; e++) to[e] = dtype == DRA_Q8_0 ? (int8_t)b[head + e] : to[e] - zero;
}

float dra_dequantised(dra_dtype dtype, const void *blocks, int64_t i)
{
    float x;
    dra_dequantise(dtype, blocks, i, 1, &x);
    return x;
}

bool dra_can_quantise(dra_dtype dtype) { return dra_dtype_get(dtype) && quants[dtype].write; }

void dra_quantise(dra_dtype dtype, const float *from, int64_t n, void *blocks)
{
    const int64_t block = (int64_t)dra_dtype_get(dtype)->block_elements;
    for (int64_t i = 0; i < n; i += block)
        quants[dtype].write(from + i, (byte *)blocks + dra_elements_bytes(dtype, i));
}
