/* Products of few rows with quantised lines, straight from their blocks. Part of simd_gemm.h. */
#ifndef DRA_SRC_GEMM_QUANT_ROWS_H
#define DRA_SRC_GEMM_QUANT_ROWS_H

/* What is read next: lines that follow each other, in the order of memory. */
static ALWAYS_INLINE void fetch_chain(const char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

static ALWAYS_INLINE void add_block(const product *t, const quant_block *b, dra_dtype type,
                                    int rows, int groups, vf sum[2][SMALL_M])
{
    const float *a = t->a;
    UNROLL
    for (int n = 0; n < QUANT_BLOCK * groups; n += 16) /* as far as unrolling goes */
        UNROLL
    for (int k = n; k < n + 16; k++) {
        const int g = k % groups, e = k / groups;
        const vf  x = number_of(type, &b[g], e);
        UNROLL
        for (int i = 0; i < rows; i++)
            sum[g][i] = vfma(vset(a[i * t->a_row + e * t->a_col]), x, sum[g][i]);
    }
}

/* `groups` times LANES columns, whole chains. */
static ALWAYS_INLINE void multiply_blocks_of(product t, const operand *o, dra_dtype type, int rows,
                                             int groups)
{
    const int64_t line = o->line / QUANT_BLOCK * block_bytes(type);
    const int64_t chain = QUANT_BLOCKS * block_bytes(type), some = groups * LANES;
    const char   *b = o->at, *next = b + some * line;
    for (int64_t left = t.depth; left > 0; left -= DEPTH, t.add = true) {
        quant_heads heads[2];
        vf          sum[2][SMALL_M];
        fetch_chain(next, some * chain);
        next += some * chain;
        UNROLL
        for (int g = 0; g < groups; g++) {
            read_heads(type, b + g * LANES * line, line, &heads[g]);
            UNROLL
            for (int i = 0; i < rows; i++) sum[g][i] = vset(0);
        }
        for (int k = 0; k < QUANT_BLOCKS; k++, t.a += QUANT_BLOCK * t.a_col) {
            quant_block block[2];
            UNROLL
            for (int g = 0; g < groups; g++)
                read_block(type, b + g * LANES * line, line, &heads[g], k, &block[g]);
            add_block(&t, block, type, rows, groups, sum);
        }
        b += chain;
        UNROLL
        for (int i = 0; i < rows; i++)
            store_row(&t, t.c + i * t.c_row, groups, (const vf[]){sum[0][i], sum[groups - 1][i]});
    }
}

static ALWAYS_INLINE void multiply_quantised_rows(const product *t, const operand *b,
                                                  dra_dtype type, int64_t rows)
{
    switch (rows) {
    case 1: multiply_blocks_of(*t, b, type, 1, 2); break;
    case 2: multiply_blocks_of(*t, b, type, 2, 1); break;
    case 3: multiply_blocks_of(*t, b, type, 3, 1); break;
    case 4: multiply_blocks_of(*t, b, type, 4, 1); break;
    case 5: multiply_blocks_of(*t, b, type, SMALL_M < 5 ? 1 : 5, 1); break;
    case 6: multiply_blocks_of(*t, b, type, SMALL_M < 6 ? 1 : 6, 1); break;
    case 7: multiply_blocks_of(*t, b, type, SMALL_M < 7 ? 1 : 7, 1); break;
    default: multiply_blocks_of(*t, b, type, SMALL_M < 8 ? 1 : 8, 1); break;
    }
}

static int64_t quantised_width(int64_t rows) { return rows == 1 ? 2 * LANES : LANES; }

static void multiply_quantised(const product *t, const operand *b, int64_t rows)
{
    switch (b->dtype) {
    case DRA_Q4_0: multiply_quantised_rows(t, b, DRA_Q4_0, rows); break;
    case DRA_Q4_1: multiply_quantised_rows(t, b, DRA_Q4_1, rows); break;
    case DRA_Q5_0: multiply_quantised_rows(t, b, DRA_Q5_0, rows); break;
    case DRA_Q5_1: multiply_quantised_rows(t, b, DRA_Q5_1, rows); break;
    default: multiply_quantised_rows(t, b, DRA_Q8_0, rows); break;
    }
}

#endif
