/* Products of one row with quantised lines, straight from their blocks. Part of simd_gemm.h.
 *
 * More rows multiply panels that were packed (gemm_quant.h): numbers made once are used by all. */
#ifndef DRA_SRC_GEMM_QUANT_ROWS_H
#define DRA_SRC_GEMM_QUANT_ROWS_H

/* What is read next: lines that follow each other, in the order of memory. */
static ALWAYS_INLINE void fetch_chain(const char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

/* Two groups of LANES columns: one chain of sums would wait for itself. */
enum { QUANT_GROUPS = 2 };

static ALWAYS_INLINE void add_block(const float *a, const quant_block *b, dra_dtype type, vf *sum)
{
    UNROLL
    for (int n = 0; n < QUANT_BLOCK; n += 8) /* as far as unrolling goes */
        UNROLL
    for (int k = 0; k < 8 * QUANT_GROUPS; k++) {
        const int g = k % QUANT_GROUPS, e = n + k / QUANT_GROUPS;
        sum[g] = vfma(vset(a[e]), number_of(type, &b[g], e), sum[g]);
    }
}

/* QUANT_GROUPS times LANES columns, whole chains; elements of the row are contiguous. */
static ALWAYS_INLINE void multiply_blocks_of(product t, const operand *o, dra_dtype type)
{
    const int64_t line = o->line / QUANT_BLOCK * block_bytes(type);
    const int64_t chain = QUANT_BLOCKS * block_bytes(type), lines = QUANT_GROUPS * LANES;
    const char   *b = o->at, *next = b + lines * line;
    for (int64_t left = t.depth; left > 0; left -= DEPTH, t.add = true, b += chain) {
        quant_heads heads[QUANT_GROUPS];
        vf          sum[QUANT_GROUPS] = {vset(0), vset(0)};
        fetch_chain(next, lines * chain);
        next += lines * chain;
        UNROLL
        for (int g = 0; g < QUANT_GROUPS; g++)
            read_heads(type, b + g * LANES * line, line, &heads[g]);
        for (int k = 0; k < QUANT_BLOCKS; k++, t.a += QUANT_BLOCK) {
            quant_block block[QUANT_GROUPS];
            UNROLL
            for (int g = 0; g < QUANT_GROUPS; g++)
                read_block(type, b + g * LANES * line, line, &heads[g], k, &block[g]);
            add_block(t.a, block, type, sum);
        }
        store_row(&t, t.c, QUANT_GROUPS, sum);
    }
}

static void multiply_quantised(const product *t, const operand *b)
{
    switch (b->dtype) {
    case DRA_Q4_0: multiply_blocks_of(*t, b, DRA_Q4_0); break;
    case DRA_Q4_1: multiply_blocks_of(*t, b, DRA_Q4_1); break;
    case DRA_Q5_0: multiply_blocks_of(*t, b, DRA_Q5_0); break;
    case DRA_Q5_1: multiply_blocks_of(*t, b, DRA_Q5_1); break;
    default: multiply_blocks_of(*t, b, DRA_Q8_0); break;
    }
}

#endif
