/* Quantised lines of B (base/quant.h) as numbers. Part of gemm_pack.h.
 *
 * A line is along k, its blocks of 32 elements follow each other. Of LANES lines the words of a
 * block are transposed, as everywhere: lane i has what is line i's. Elements of 4 bits are eight to
 * a word, those of 8 bits four, and are taken out of it where they stand: u 2^s is converted, and
 * multiplied by d 2^-s. These products are exact, so an element is rounded as dra_dequantise()
 * rounds it, and sums have the bits of a product with dequantised numbers.
 *
 * Types of larger blocks, lines with other strides and chains that are not whole are dequantised
 * into floats first, which are then packed like others. */
#ifndef DRA_SRC_GEMM_QUANT_H
#define DRA_SRC_GEMM_QUANT_H

enum { QUANT_BLOCK = 32, QUANT_BLOCKS = DRA_CHAIN / QUANT_BLOCK, QUANT_WORDS = 8 };

typedef struct quant_heads { /* of the blocks of a chain of LANES lines, lane by lane */
    uint16_t d[QUANT_BLOCKS][LANES], m[QUANT_BLOCKS][LANES];
    uint32_t fifth[QUANT_BLOCKS][LANES];
} quant_heads;

typedef struct quant_block { /* one of each of LANES lines */
    vu word[QUANT_WORDS], fifth;
    vf d[4], m; /* d: times 2^-s for each of the places that an element has in a word */
} quant_block;

static ALWAYS_INLINE bool has_minimum(dra_dtype t) { return t == DRA_Q4_1 || t == DRA_Q5_1; }
static ALWAYS_INLINE bool has_fifth(dra_dtype t) { return t == DRA_Q5_0 || t == DRA_Q5_1; }

static ALWAYS_INLINE int64_t head_bytes(dra_dtype t)
{
    return (has_minimum(t) ? 4 : 2) + (has_fifth(t) ? 4 : 0);
}

static ALWAYS_INLINE int64_t block_bytes(dra_dtype t)
{
    return head_bytes(t) + (t == DRA_Q8_0 ? 32 : 16);
}

/* Scalars go through memory: other units do that, while vectors are at work. */
static ALWAYS_INLINE void read_heads(dra_dtype t, const char *b, int64_t line, quant_heads *c)
{
    for (int i = 0; i < LANES; i++, b += line) {
        UNROLL
        for (int k = 0; k < QUANT_BLOCKS; k++) {
            const char *p = b + k * block_bytes(t);
            memcpy(&c->d[k][i], p, sizeof c->d[k][i]);
            if (has_minimum(t)) memcpy(&c->m[k][i], p + 2, sizeof c->m[k][i]);
            if (has_fifth(t))
                memcpy(&c->fifth[k][i], p + (has_minimum(t) ? 4 : 2), sizeof c->fifth[k][i]);
        }
    }
    COMPILER_BARRIER;
}

static ALWAYS_INLINE vf halves_at(const uint16_t *p)
{
    vh x;
    memcpy(&x, p, sizeof x);
    return from_f16(x);
}

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

/* Block k of a chain at `b`. */
static ALWAYS_INLINE void read_block(dra_dtype t, const char *b, int64_t line, const quant_heads *c,
                                     int k, quant_block *out)
{
    const vf    d = halves_at(c->d[k]);
    const char *words = b + k * block_bytes(t) + head_bytes(t);
    if (has_fifth(t)) memcpy(&out->fifth, c->fifth[k], sizeof out->fifth);
    out->m = has_minimum(t)  ? halves_at(c->m[k])
             : t == DRA_Q8_0 ? d * -128
             : t == DRA_Q5_0 ? d * -16
                             : d * -8;
    UNROLL
    for (int i = 0; i < 4; i++) out->d[i] = has_fifth(t) ? d : d * (1.0f / (float)(1 << 8 * i));
    if (t == DRA_Q8_0) out->d[3] = d; /* shifted down: its highest bit is no sign */
    transpose_words(words, line, out->word);
    if (t != DRA_Q8_0) return;
    transpose_words(words + 16, line, out->word + 4);
    UNROLL
    for (int i = 0; i < QUANT_WORDS; i++) out->word[i] ^= 0x80808080u; /* u + 128 */
}

/* Element e of the block. */
static ALWAYS_INLINE vf number_of(dra_dtype t, const quant_block *b, int e)
{
    const int place = e % 4, s = 8 * place;
    const vu  word = b->word[(t == DRA_Q8_0 ? e : e % 16) / 4];
    vu        u;
    if (t == DRA_Q8_0)
        u = place == 3 ? word >> 24 : word & (0xffu << s);
    else if (has_fifth(t)) {
        const vu high = e < 4 ? b->fifth << (4 - e) : b->fifth >> (e - 4);
        u = (word >> (e < 16 ? s : s + 4) & 15u) | (high & 16u);
    } else
        u = (e < 16 ? word : word >> 4) & (15u << s);
    return vfma(__builtin_convertvector((vi)u, vf), b->d[place], b->m);
}

/* Whether LANES lines of this depth can be read by the above. */
static inline bool has_chains(const operand *o, int64_t depth)
{
    return o->dtype >= DRA_Q4_0 && o->dtype <= DRA_Q8_0 && o->form == FLOATS && o->k == 1 &&
           o->first == 0 && o->line % QUANT_BLOCK == 0 && depth % DRA_CHAIN == 0;
}

/* to[k PANEL + i] = element k of line i, LANES lines, whole chains. */
static ALWAYS_INLINE void pack_chains(const operand *o, dra_dtype type, int64_t depth, float *to)
{
    const int64_t line = o->line / QUANT_BLOCK * block_bytes(type);
    const char   *b = o->at;
    for (; depth > 0; depth -= DRA_CHAIN, b += QUANT_BLOCKS * block_bytes(type)) {
        quant_heads heads;
        read_heads(type, b, line, &heads);
        for (int k = 0; k < QUANT_BLOCKS; k++) {
            quant_block block;
            read_block(type, b, line, &heads, k, &block);
            UNROLL
            for (int half = 0; half < QUANT_BLOCK; half += 16) UNROLL
            for (int e = half; e < half + 16; e++, to += PANEL)
                store(to, number_of(type, &block, e));
        }
    }
}

static void pack_quantised(const operand *o, int64_t depth, float *to)
{
    switch (o->dtype) {
    case DRA_Q4_0: pack_chains(o, DRA_Q4_0, depth, to); break;
    case DRA_Q4_1: pack_chains(o, DRA_Q4_1, depth, to); break;
    case DRA_Q5_0: pack_chains(o, DRA_Q5_0, depth, to); break;
    case DRA_Q5_1: pack_chains(o, DRA_Q5_1, depth, to); break;
    default: pack_chains(o, DRA_Q8_0, depth, to); break;
    }
}

#endif
