/* Products of activations in blocks of 8 bits with quantised lines. Part of simd_gemm.h.
 *
 * A block of 32 activations is d q, d = max |x| / 127, q rounded to nearest. Sums over a block are
 * sums of integers, which are exact; four blocks, a chain, are then added in order by
 *
 *   sum = fma(d_a d_b, sum of q (u - zero), sum),  and where there is a minimum m
 *   sum = fma(m, d_a (sum of q), sum)
 *
 * and the chains in theirs: an element of C depends on its row and its column alone. */
#ifndef DRA_SRC_GEMM_Q8_H
#define DRA_SRC_GEMM_Q8_H

#include <float.h>

/* Activations at a time, which stay in the first caches: a row of up to as many blocks, or several
 * rows of fewer. */
enum { Q8_BLOCKS = 1024, Q8_ROWS = 64, Q8_FEW = 8 };

typedef struct q8_block { /* 32 activations */
    int8_t  q[QUANT_BLOCK];
    int32_t sum;         /* of q */
    float   d, weighted; /* d sum */
} q8_block;

typedef struct q8_lines { /* a chain of LANES lines: unsigned bytes, four in a word */
    vu word[QUANT_BLOCKS][QUANT_BLOCK / 4];
    vf d[QUANT_BLOCKS], m[QUANT_BLOCKS];
} q8_lines;

/* ---- activations ----------------------------------------------------------------------------- */

/* Where a number is not finite, d is not a number. */
static void round_block(const float *x, q8_block *to)
{
    enum { PARTS = QUANT_BLOCK / LANES };
    const vf nearest = vset(12582912); /* 3 2^22: adding it leaves no fraction */
    vf       v[PARTS], most = vset(0), not_finite = vset(0);
    int32_t  q[QUANT_BLOCK];
    UNROLL
    for (int i = 0; i < PARTS; i++) {
        v[i] = load(x + i * LANES);
        most = vmax(vmax(v[i], -v[i]), most);
        not_finite += v[i] * 0;
    }
    to->d = fold_max(most) / 127 + fold_sum(not_finite);
    const vf inverse = vset(to->d >= FLT_MIN ? 1 / to->d : 0);
    UNROLL
    for (int i = 0; i < PARTS; i++) {
        const vi n = __builtin_convertvector((v[i] * inverse + nearest) - nearest, vi);
        memcpy(q + i * LANES, &n, sizeof n);
    }
    to->sum = 0;
    for (int e = 0; e < QUANT_BLOCK; e++) {
        to->q[e] = (int8_t)q[e];
        to->sum += q[e];
    }
    to->weighted = to->d * (float)to->sum;
}

/* `blocks` of a row, which needs not be contiguous. */
static void round_row(const float *x, int64_t step, int64_t blocks, q8_block *to)
{
    float near[QUANT_BLOCK];
    for (int64_t k = 0; k < blocks; k++, to++) {
        for (int e = 0; e < QUANT_BLOCK && step != 1; e++)
            near[e] = x[(k * QUANT_BLOCK + e) * step];
        round_block(step != 1 ? near : x + k * QUANT_BLOCK, to);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The bits from 4 w on, each at the fifth place of a byte. */
static ALWAYS_INLINE vu spread_fifth(vu fifth, int w)
{
    return ((fifth >> 4 * w & 15u) * 0x00204081u & 0x01010101u) << 4;
}

static ALWAYS_INLINE void read_bytes(dra_dtype t, const quant_chain *c, int k, q8_lines *to)
{
    const int at = k * block_bytes(t), first = at + head_bytes(t);
    const vu  fifth = has_fifth(t) ? word_at(c, first - 4) : (vu){0};
    to->d[k] = half_float(c->word[at / 4], at % 4);
    if (has_minimum(t)) to->m[k] = half_float(c->word[at / 4], true);
    UNROLL
    for (int w = 0; w < QUANT_BLOCK / 4; w++) {
        const vu x = word_at(c, first + 4 * (has_bytes(t) ? w : w % 4));
        to->word[k][w] = has_bytes(t) ? x ^ 0x80808080u : (w < 4 ? x : x >> 4) & 0x0f0f0f0fu;
        if (has_fifth(t)) to->word[k][w] |= spread_fifth(fifth, w);
    }
}

/* Up to LANES lines and some blocks: what is not there is zero, and read from a copy. */
static ALWAYS_INLINE void read_q8_lines(dra_dtype t, const quant_lines *l, int64_t lines,
                                        int64_t blocks, q8_lines *to)
{
    char        copy[LANES * QUANT_BLOCKS * 34];
    quant_chain c;
    if (lines < LANES || blocks % 2 != 0) {
        const quant_lines whole = {copy, QUANT_BLOCKS * block_bytes(t), 0};
        memset(copy, 0, sizeof copy);
        for (int64_t i = 0; i < lines && i < LANES; i++)
            memcpy(copy + i * whole.line, l->at + i * l->line, (size_t)(blocks * block_bytes(t)));
        read_chain(t, &whole, 0, QUANT_BLOCKS, &c);
    } else {
        read_chain(t, l, 0, blocks, &c);
    }
    UNROLL
    for (int k = 0; k < QUANT_BLOCKS; k++)
        if (k < blocks) read_bytes(t, &c, k, to);
}

/* ---- products -------------------------------------------------------------------------------- */

static ALWAYS_INLINE int zero_of(dra_dtype t)
{
    return t == DRA_Q8_0 ? 128 : t == DRA_Q5_0 ? 16 : t == DRA_Q4_0 ? 8 : 0;
}

/* `next`: what is fetched meanwhile, LANES lines as long; NULL: nothing. */
static ALWAYS_INLINE vf chain_of_blocks(dra_dtype t, const q8_block *a, const q8_lines *b,
                                        int64_t blocks, const char *next)
{
    vf sum = vset(0);
    for (int64_t k = 0; k < blocks; k++) {
        vi whole = (vi){0} - zero_of(t) * a[k].sum;
        if (next) next = fetch_lines(next, LANES * block_bytes(t));
        UNROLL
        for (int w = 0; w < QUANT_BLOCK / 4; w++) {
            uint32_t four;
            memcpy(&four, a[k].q + 4 * w, sizeof four);
            whole = dot4(b->word[k][w], all_lanes(four), whole);
        }
        sum = vfma(vset(a[k].d) * b->d[k], __builtin_convertvector(whole, vf), sum);
        if (has_minimum(t)) sum = vfma(b->m[k], vset(a[k].weighted), sum);
    }
    return sum;
}

typedef struct q8_rows { /* of A, some blocks of each */
    const q8_block *at;
    int64_t         n, step, first, blocks; /* first: the number of the first block */
    float          *c;
} q8_rows;

/* Rows times LANES columns. Few rows: lines come from memory, and the next are fetched. */
static ALWAYS_INLINE void multiply_q8_lines(dra_dtype t, const dra_gemm *g, const q8_rows *a,
                                            quant_lines l, int64_t column)
{
    const char *next = l.at + LANES * l.line;
    for (int64_t k = 0; k < a->blocks; k += QUANT_BLOCKS) {
        const int64_t some = a->blocks - k < QUANT_BLOCKS ? a->blocks - k : QUANT_BLOCKS;
        const bool    add = g->accumulate || a->first + k > 0;
        q8_lines      b;
        read_q8_lines(t, &l, g->N - column, some, &b);
        next_chain(t, &l, some);
        for (int64_t i = 0; i < a->n; i++) {
            const char *fetch = i == 0 && a->n <= Q8_FEW ? next : NULL;
            add_some(a->c + i * g->c_row + column, g->N - column, add,
                     chain_of_blocks(t, a->at + i * a->step + k, &b, some, fetch));
        }
        next += LANES * chain_bytes(t);
    }
}

static ALWAYS_INLINE void multiply_q8_of(dra_dtype t, const dra_gemm *g)
{
    q8_block      a[Q8_BLOCKS];
    const int64_t all = g->K / QUANT_BLOCK, line = line_bytes(t, g->b_col);
    const int64_t most = g->M < Q8_ROWS ? g->M : Q8_ROWS;
    const int64_t deep = Q8_BLOCKS / most / QUANT_BLOCKS * QUANT_BLOCKS; /* whole chains */
    for (int64_t row = 0; row < g->M; row += most)
        for (int64_t k = 0; k < all; k += deep) {
            const q8_rows rows = {a, g->M - row < most ? g->M - row : most, deep,
                                  k, all - k < deep ? all - k : deep,       g->c + row * g->c_row};
            const float  *x = (const float *)g->a + row * g->a_row + k * QUANT_BLOCK * g->a_col;
            for (int64_t i = 0; i < rows.n; i++)
                round_row(x + i * g->a_row, g->a_col, rows.blocks, a + i * deep);
            for (int64_t column = 0; column < g->N; column += LANES) {
                const char *b = (const char *)g->b + column * line + k * block_bytes(t);
                multiply_q8_lines(t, g, &rows, (quant_lines){b, line, 0}, column);
            }
        }
}

static void multiply_q8(const dra_gemm *g)
{
    switch (g->b_type) {
    case DRA_Q4_0: multiply_q8_of(DRA_Q4_0, g); break;
    case DRA_Q4_1: multiply_q8_of(DRA_Q4_1, g); break;
    case DRA_Q5_0: multiply_q8_of(DRA_Q5_0, g); break;
    case DRA_Q5_1: multiply_q8_of(DRA_Q5_1, g); break;
    default: multiply_q8_of(DRA_Q8_0, g); break;
    }
}

#endif
