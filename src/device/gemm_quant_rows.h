/* Products of one row with quantised lines, straight from their blocks. Part of simd_gemm.h.
 *
 * More rows multiply panels that were packed (gemm_quant.h): numbers made once are used by all. */
#ifndef DRA_SRC_GEMM_QUANT_ROWS_H
#define DRA_SRC_GEMM_QUANT_ROWS_H

/* Groups of LANES columns, whose chains of sums take turns: a multiply-add takes four cycles, and
 * two begin in each. Two groups where fewer columns are left. */
enum { QUANT_GROUPS = 4, QUANT_AGAIN = 4096 };

static ALWAYS_INLINE int chain_bytes(dra_dtype t)
{
    return is_large(t) ? block_bytes(t) / 2 : QUANT_BLOCKS * block_bytes(t);
}

/* What is read next, lines that follow each other, in the order of memory: little at a time, and
 * twice at a distance, since the processor drops what it has no room to remember. */
static ALWAYS_INLINE const char *fetch_lines(const char *next, int64_t bytes)
{
    UNROLL
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(next + i, 0, 2);
        __builtin_prefetch(next + QUANT_AGAIN + i, 0, 2);
    }
    return next + bytes;
}

/* The next chain, of which four words are transposed at a time while this one is multiplied: what
 * shuffles is idle then. Not of large blocks. */
typedef struct quant_ahead {
    const char  *at; /* of a group of lines */
    quant_chain *to;
    int64_t      line, words, word; /* the word of the group that is next */
    int          groups;            /* left */
} quant_ahead;

static ALWAYS_INLINE void read_ahead(quant_ahead *r)
{
    if (r->groups == 0) return;
    const int64_t at = r->word < r->words - 4 ? r->word : r->words - 4;
    transpose_words(r->at + 4 * at, r->line, r->to->word + at);
    r->word += 4;
    if (r->word < r->words) return;
    r->word = 0;
    r->at += LANES * r->line;
    r->to++;
    r->groups--;
}

/* sum[g] += 16 elements of the row times those of group g. The loop stays a loop: unrolled,
 * compilers prepare so much at once that the sums go through memory. */
static ALWAYS_INLINE const char *add_run(dra_dtype t, int k, int part, int groups, const float *a,
                                         const quant_chain *c, vf *sum, const char *next,
                                         quant_ahead *ahead)
{
    quant_run run[QUANT_GROUPS];
    UNROLL
    for (int g = 0; g < groups; g++) run[g] = read_run(t, &c[g], k, part);
    NO_UNROLL
    for (int64_t w = 0; w < QUANT_RUN / 4; w++, a += 4) {
        if (!is_large(t)) read_ahead(ahead);
        next = fetch_lines(next, groups * LANES * chain_bytes(t) / (DRA_CHAIN / 4));
        UNROLL
        for (int e = 0; e < 4; e++) {
            const vf y = vset(a[e]);
            UNROLL
            for (int g = 0; g < groups; g++)
                sum[g] = vfma(y, number_of(t, k, part, &run[g], &c[g], w, e), sum[g]);
        }
        UNROLL
        for (int g = 0; g < groups; g++)
            if (has_fifth(t)) run[g].fifth >>= 4;
    }
    return next;
}

/* The chain that is next is read: all of it, or where it was begun ahead the rest. */
static ALWAYS_INLINE void read_groups(dra_dtype t, const quant_lines *l, int groups, int64_t blocks,
                                      bool begun, quant_ahead *ahead, quant_chain *c)
{
    while (ahead->groups > 0) read_ahead(ahead);
    if (begun) return;
    NO_UNROLL
    for (int g = 0; g < groups; g++) read_chain(t, l, g * LANES, blocks, &c[g]);
}

static ALWAYS_INLINE int64_t blocks_of(int64_t left)
{
    return left < DEPTH ? left / QUANT_BLOCK : QUANT_BLOCKS;
}

/* Some groups of LANES columns, all of k; elements of the row are contiguous. */
static ALWAYS_INLINE void multiply_blocks_of(product t, const operand *o, dra_dtype type,
                                             int groups)
{
    quant_lines lines = lines_of(type, o);
    const char *next = lines.at + groups * LANES * lines.line;
    quant_chain two[2][QUANT_GROUPS];
    quant_ahead ahead = {0};
    int         turn = 0;
    for (int64_t left = t.depth; left > 0; left -= DEPTH, t.add = true, turn ^= 1) {
        const int64_t blocks = blocks_of(left);
        quant_chain  *c = two[turn];
        vf            sum[QUANT_GROUPS];
        read_groups(type, &lines, groups, blocks, left < t.depth && !is_large(type), &ahead, c);
        next_chain(type, &lines, blocks);
        if (left > DEPTH && !is_large(type))
            ahead = (quant_ahead){lines.at,   two[turn ^ 1],
                                  lines.line, blocks_of(left - DEPTH) * block_bytes(type) / 4,
                                  0,          groups};
        UNROLL
        for (int g = 0; g < groups; g++) sum[g] = vset(0);
        UNROLL
        for (int k = 0; k < QUANT_BLOCKS; k++, t.a += QUANT_BLOCK) {
            if (k >= blocks) break;
            next = add_run(type, k, 0, groups, t.a, c, sum, next, &ahead);
            next = add_run(type, k, 1, groups, t.a + QUANT_RUN, c, sum, next, &ahead);
        }
        store_row(&t, t.c, groups, sum);
    }
}

static ALWAYS_INLINE void multiply_groups(const product *t, const operand *b, dra_dtype type)
{
    if (t->columns == QUANT_GROUPS * LANES)
        multiply_blocks_of(*t, b, type, QUANT_GROUPS);
    else
        multiply_blocks_of(*t, b, type, 2);
}

static void multiply_quantised(const product *t, const operand *b)
{
    switch (b->dtype) {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    CASE_##vectors(NAME, multiply_groups(t, b, DRA_##NAME))
#include "base/quant.def"
#undef DRA_QUANT
    default: break;
    }
}

#endif
