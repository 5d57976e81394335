/* Quantised lines of B (base/quant.h) as numbers. Part of gemm_pack.h.
 *
 * A line is along k. The bytes that hold a chain of LANES lines are transposed by words, so that
 * lane i has what is line i's (quant_chain), and read in runs of 16 elements. An element is moved
 * to bit s = 8 or 12 of its word and masked: u 2^s. The number is fma(u 2^s, d 2^-s, m), whose
 * product is exact, so it is rounded as dra_dequantise() rounds it, and sums have the bits of a
 * product with dequantised numbers.
 *
 * Where numbers are d (u - zero), bits above u are set to those of the float 2^23, which saves the
 * conversion: (2^23 + u 2^s) d 2^-s - (2^(23 - s) + zero) d is the same number, and as d has 11
 * bits nothing is rounded. Where the minimum is a number of its own, u is converted.
 *
 * Lines with other strides and parts of blocks are dequantised into floats first, which are then
 * packed like others. */
#ifndef DRA_SRC_GEMM_QUANT_H
#define DRA_SRC_GEMM_QUANT_H

enum {
    QUANT_BLOCK = 32, /* elements: a block, or a group of a block of 256 */
    QUANT_BLOCKS = DRA_CHAIN / QUANT_BLOCK,
    QUANT_RUN = 16, /* elements: a part of two of a block, in four words */
    QUANT_WORDS = 34
};

typedef struct quant_chain { /* of LANES lines */
    vu word[QUANT_WORDS];
} quant_chain;

typedef struct quant_run { /* what is constant in a run of LANES lines */
    vf d, m;
    vu fifth; /* bits, that of its first element lowest */
} quant_run;

static ALWAYS_INLINE bool is_large(dra_dtype t) /* blocks of two chains, with groups */
{
    return t == DRA_Q4_K || t == DRA_Q5_K || t == DRA_Q6_K;
}

static ALWAYS_INLINE bool has_minimum(dra_dtype t) { return t == DRA_Q4_1 || t == DRA_Q5_1; }
static ALWAYS_INLINE bool has_fifth(dra_dtype t) { return t == DRA_Q5_0 || t == DRA_Q5_1; }
static ALWAYS_INLINE bool has_bytes(dra_dtype t) { return t == DRA_Q8_0; } /* else half bytes */

static ALWAYS_INLINE int head_bytes(dra_dtype t)
{
    return (has_minimum(t) ? 4 : 2) + (has_fifth(t) ? 4 : 0);
}

static ALWAYS_INLINE int block_bytes(dra_dtype t)
{
    switch (t) {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    case DRA_##NAME:                                                                               \
        return bytes;
#include "base/quant.def"
#undef DRA_QUANT
    default: return 0;
    }
}

/* Blocks that the below unpacks; others are dequantised first. */
static inline bool has_vectors(dra_dtype t)
{
    enum { PLAIN = false, VECTORS = true };
    switch (t) {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    case DRA_##NAME:                                                                               \
        return vectors;
#include "base/quant.def"
#undef DRA_QUANT
    default: return false;
    }
}

/* A case for each of them. */
#define CASE_VECTORS(NAME, what)                                                                   \
    case DRA_##NAME:                                                                               \
        what;                                                                                      \
        break;
#define CASE_PLAIN(NAME, what)

static ALWAYS_INLINE int64_t line_bytes(dra_dtype t, int64_t elements)
{
    return elements / (is_large(t) ? 2 * DRA_CHAIN : QUANT_BLOCK) * block_bytes(t);
}

/* ---- bytes to words -------------------------------------------------------------------------- */

/* Four words of LANES lines, from `b` on. */
static ALWAYS_INLINE void transpose_words(const char *b, int64_t line, vu *word)
{
    vf x[4];
    UNROLL
    for (int i = 0; i < 4; i++) x[i] = load_quarters(b + i * line, 4 * line);
    const vf low01 = zip_low(x[0], x[1]), low23 = zip_low(x[2], x[3]);
    const vf high01 = zip_high(x[0], x[1]), high23 = zip_high(x[2], x[3]);
    word[0] = (vu)pair_low(low01, low23);
    word[1] = (vu)pair_high(low01, low23);
    word[2] = (vu)pair_low(high01, high23);
    word[3] = (vu)pair_high(high01, high23);
}

/* The last four perhaps twice. */
static ALWAYS_INLINE void read_words(const char *b, int64_t line, int64_t words, vu *to)
{
    for (int64_t i = 0; i < words; i += 4) {
        const int64_t at = i < words - 4 ? i : words - 4;
        transpose_words(b + 4 * at, line, to + at);
    }
}

#include "device/gemm_quant_k.h"

typedef struct quant_lines { /* where chains are read */
    const char *at;
    int64_t     line; /* bytes from line to line */
    int         half; /* of a large block */
} quant_lines;

static ALWAYS_INLINE quant_lines lines_of(dra_dtype t, const operand *o)
{
    return (quant_lines){o->at, line_bytes(t, o->line), (int)(o->first / DRA_CHAIN)};
}

/* The chain of LANES lines, an even number of blocks, from line `first` on. */
static ALWAYS_INLINE void read_chain(dra_dtype t, const quant_lines *l, int first, int64_t blocks,
                                     quant_chain *c)
{
    const char *b = l->at + first * l->line;
    if (is_large(t))
        read_large_chain(t, b, l->line, l->half, c);
    else
        read_words(b, l->line, blocks * block_bytes(t) / 4, c->word);
}

static ALWAYS_INLINE void next_chain(dra_dtype t, quant_lines *l, int64_t blocks)
{
    l->at += is_large(t) ? l->half * block_bytes(t) : blocks * block_bytes(t);
    l->half = is_large(t) ? 1 - l->half : 0;
}

/* ---- words to numbers ------------------------------------------------------------------------ */

enum { FLOAT_2_23 = 0x4b000000 };

static ALWAYS_INLINE vu all_lanes(uint32_t x) { return x + (vu){0}; }
static ALWAYS_INLINE vu shifted(vu x, int left) { return left >= 0 ? x << left : x >> -left; }

/* Which half of their bytes the elements of a part of block k are in. */
static ALWAYS_INLINE int upper_half(dra_dtype t, int k, int part)
{
    return has_bytes(t) ? 0 : t == DRA_Q6_K ? k / 2 : is_large(t) ? k % 2 : part;
}

/* The bit that elements are moved to. */
static ALWAYS_INLINE int place_of(dra_dtype t, int k, int part)
{
    return upper_half(t, k, part) ? 12 : 8;
}

/* The byte of a chain at which a part of block k begins. */
static ALWAYS_INLINE int run_byte(dra_dtype t, int k, int part)
{
    if (is_large(t)) return large_run_byte(t, k, part);
    return k * block_bytes(t) + head_bytes(t) + (has_bytes(t) ? QUANT_RUN * part : 0);
}

/* A word that begins at a byte, which is even. */
static ALWAYS_INLINE vu word_at(const quant_chain *c, int byte)
{
    const vu x = c->word[byte / 4];
    return byte % 4 ? x >> 16 | c->word[byte / 4 + 1] << 16 : x;
}

static ALWAYS_INLINE quant_run read_run(dra_dtype t, const quant_chain *c, int k, int part)
{
    const int   s = place_of(t, k, part), at = k * block_bytes(t);
    const float zero = t == DRA_Q8_0 ? 128 : t == DRA_Q5_0 ? 16 : 8;
    quant_run   run;
    if (is_large(t)) {
        run.d = large_scale(t, c, k, part, &run.m);
    } else {
        run.d = half_float(c->word[at / 4], at % 4);
        run.m = has_minimum(t) ? half_float(c->word[at / 4], true)
                               : run.d * -((float)(1 << (23 - s)) + zero);
    }
    run.d *= 1.0f / (float)(1 << s);
    if (has_fifth(t)) run.fifth = word_at(c, at + head_bytes(t) - 4) >> QUANT_RUN * part;
    return run;
}

/* Element e of word w of a run: where it is in the chain, which of its bits are elsewhere. */
static ALWAYS_INLINE vf number_of(dra_dtype t, int k, int part, const quant_run *run,
                                  const quant_chain *c, int64_t w, int e)
{
    const int      first = run_byte(t, k, part), byte = first % 4 + e, s = place_of(t, k, part);
    const uint32_t mask = has_bytes(t) ? 255u << s : 15u << s;
    const bool     convert = has_minimum(t) || is_large(t);
    vu             u = shifted(c->word[first / 4 + w + byte / 4], 8 - 8 * (byte % 4));
    if (convert)
        u &= mask;
    else
        u = masked_xor(u, mask, all_lanes(FLOAT_2_23 | (t == DRA_Q8_0 ? 128u << s : 0)));
    if (has_fifth(t)) u = masked_xor(shifted(run->fifth, s + 4 - e), 16u << s, u);
    if (t == DRA_Q5_K || t == DRA_Q6_K)
        u = masked_xor(shifted(c->word[LARGE_HIGH + 4 * part + w], s + 4 - 8 * e - high_bit(t, k)),
                       (t == DRA_Q5_K ? 16u : 48u) << s, u);
    return vfma(convert ? __builtin_convertvector((vi)u, vf) : (vf)u, run->d, run->m);
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* Whether LANES lines of this depth can be read by the above. */
static inline bool has_chains(const operand *o, int64_t depth)
{
    const int64_t chain = is_large(o->dtype) ? DRA_CHAIN : 2 * QUANT_BLOCK;
    const int64_t each = is_large(o->dtype) ? 2 * DRA_CHAIN : QUANT_BLOCK;
    return has_vectors(o->dtype) && o->form == FLOATS && o->k == 1 && o->first % DRA_CHAIN == 0 &&
           o->line % each == 0 && depth % chain == 0;
}

/* to[k PANEL + i] = element k of line i, LANES lines. */
static ALWAYS_INLINE void pack_run(dra_dtype t, int k, int part, const quant_chain *c, float *to)
{
    quant_run run = read_run(t, c, k, part);
    UNROLL
    for (int i = 0; i < QUANT_RUN; i++) {
        store(to + i * PANEL, number_of(t, k, part, &run, c, i / 4, i % 4));
        if (i % 4 == 3 && has_fifth(t)) run.fifth >>= 4;
    }
}

static ALWAYS_INLINE void pack_chains(const operand *o, dra_dtype t, int64_t depth, float *to)
{
    quant_lines lines = lines_of(t, o);
    for (; depth > 0; depth -= DRA_CHAIN, to += DRA_CHAIN * PANEL) {
        const int64_t blocks = depth < DRA_CHAIN ? depth / QUANT_BLOCK : QUANT_BLOCKS;
        quant_chain   c;
        read_chain(t, &lines, 0, blocks, &c);
        next_chain(t, &lines, blocks);
        UNROLL
        for (int k = 0; k < QUANT_BLOCKS; k++) {
            if (k >= blocks) break;
            pack_run(t, k, 0, &c, to + k * QUANT_BLOCK * PANEL);
            pack_run(t, k, 1, &c, to + (k * QUANT_BLOCK + QUANT_RUN) * PANEL);
        }
    }
}

static void pack_quantised(const operand *o, int64_t depth, float *to)
{
    switch (o->dtype) {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    CASE_##vectors(NAME, pack_chains(o, DRA_##NAME, depth, to))
#include "base/quant.def"
#undef DRA_QUANT
    default: break;
    }
}

#endif
