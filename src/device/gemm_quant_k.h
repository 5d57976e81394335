/* Blocks of 256 elements, Q4_K, Q5_K and Q6_K. Part of gemm_quant.h.
 *
 * A chain is half a block: four groups of 32, or eight of 16 with scales of their own. Its words:
 *
 *            0              1             2             from 4 on   then
 *   Q4_K     d and m        four scales   four minima   u[64]
 *   Q5_K     d and m        four scales   four minima   h[32]       u[64]
 *   Q6_K     four scales    four scales   d, upper      h[32]       u[64] */
#ifndef DRA_SRC_GEMM_QUANT_K_H
#define DRA_SRC_GEMM_QUANT_K_H

enum { LARGE_HIGH = 4 }; /* the first word of h */

static ALWAYS_INLINE int large_elements(dra_dtype t) /* the first word of u */
{
    return t == DRA_Q4_K ? 4 : 12;
}

static ALWAYS_INLINE vf half_float(vu words, bool upper)
{
    return from_f16(__builtin_convertvector(upper ? words >> 16 : words & 0xffffu, vh));
}

/* Scales and minima of 6 bits; the upper two bits of the last four are with the first four. */
static ALWAYS_INLINE void read_scales(const char *b, int64_t line, int half, vu *to)
{
    vu x[4];
    transpose_words(b, line, x);
    to[0] = x[0];
    to[1] = half ? (x[3] & 0x0f0f0f0fu) | (x[1] >> 2 & 0x30303030u) : x[1] & 0x3f3f3f3fu;
    to[2] = half ? (x[3] >> 4 & 0x0f0f0f0fu) | (x[2] >> 2 & 0x30303030u) : x[2] & 0x3f3f3f3fu;
}

static ALWAYS_INLINE void read_large_chain(dra_dtype t, const char *b, int64_t line, int half,
                                           quant_chain *c)
{
    const int64_t u = t == DRA_Q4_K ? 16 : t == DRA_Q5_K ? 48 : 0;
    vu           *high = c->word + LARGE_HIGH;
    if (t == DRA_Q6_K) {
        vu s[4], d[4];
        transpose_words(b + 192, line, s);
        transpose_words(b + 194, line, d); /* up to the end of the block */
        c->word[0] = half ? s[2] : s[0];
        c->word[1] = half ? s[3] : s[1];
        c->word[2] = d[3];
        read_words(b + 128 + 32 * half, line, 8, high);
    } else {
        read_scales(b, line, half, c->word);
    }
    if (t == DRA_Q5_K) {
        read_words(b + 16, line, 8, high);
        for (int i = 0; i < 8; i++) high[i] >>= 4 * half;
    }
    read_words(b + u + 64 * half, line, 16, c->word + large_elements(t));
}

static ALWAYS_INLINE int large_run_byte(dra_dtype t, int k, int part)
{
    return 4 * large_elements(t) + 32 * (t == DRA_Q6_K ? k % 2 : k / 2) + 16 * part;
}

/* The lowest of the bits of h that belong to group k. */
static ALWAYS_INLINE int high_bit(dra_dtype t, int k) { return t == DRA_Q6_K ? 2 * k : k; }

/* Scale and, negative, what is subtracted: both exact. */
static ALWAYS_INLINE vf large_scale(dra_dtype t, const quant_chain *c, int k, int part, vf *minimum)
{
    const int i = t == DRA_Q6_K ? 2 * k + part : k;
    const vi  scale = t == DRA_Q6_K ? (vi)(c->word[i / 4] << (24 - 8 * (i % 4))) >> 24
                                    : (vi)(c->word[1] >> 8 * i & 255u);
    const vf  d = half_float(c->word[t == DRA_Q6_K ? 2 : 0], t == DRA_Q6_K) *
                 __builtin_convertvector(scale, vf);
    *minimum = t == DRA_Q6_K ? d * -32
                             : -half_float(c->word[0], true) *
                                   __builtin_convertvector((vi)(c->word[2] >> 8 * i & 255u), vf);
    return d;
}

#endif
