/* The micro-kernels: few loops that make everything fast. The table is filled with plain C first
 * and overlaid at device creation by what the processor has. Row lengths are any; pointers need
 * no alignment. */
#ifndef DRA_SRC_SIMD_H
#define DRA_SRC_SIMD_H

#include "dra/base.h"

/* Each element of c is a chain of multiply-adds for every so many words of k, and the sum of these
 * chains in their order, whatever else is computed: so k can be cut between chains. A word is an
 * element or, with bf16, a pair where a level multiplies pairs. */
enum { DRA_CHAIN = 128 };

/* C (M, N) (+)= A (M, K) B (K, N), any strides in A and B, rows of C contiguous. The order of the
 * sum over K depends on K and the precision alone, so a row of C does not depend on M or N. */
typedef struct dra_gemm {
    int64_t     M, N, K;
    const void *a;
    int64_t     a_row, a_col;
    const void *b;
    int64_t     b_row, b_col;
    dra_real   *c;
    int64_t     c_row;
    bool        accumulate;
    bool        bf16;           /* both operands are rounded to bf16, sums stay real */
    dra_dtype   a_type, b_type; /* bf16, f16, or else (also 0) real */
} dra_gemm;

/* Pointwise functions a level may have as one fast pass; the formulas are those of
 * src/ops/unary.c. A result depends on its element alone, never on its place in the row. */
typedef enum dra_map {
    DRA_MAP_NONE,
    DRA_MAP_NEG,
    DRA_MAP_ABS,
    DRA_MAP_EXP,
    DRA_MAP_LOG,
    DRA_MAP_SQRT,
    DRA_MAP_RSQRT,
    DRA_MAP_SQUARE,
    DRA_MAP_RECIPROCAL,
    DRA_MAP_TANH,
    DRA_MAP_ERF,
    DRA_MAP_SIGMOID,
    DRA_MAP_SOFTPLUS,
    DRA_MAP_LOG_SIGMOID,
    DRA_MAP_RELU,
    DRA_MAP_RELU2,
    DRA_MAP_ELU,
    DRA_MAP_SILU,
    DRA_MAP_SILU_SLOPE,
    DRA_MAP_GELU,
    DRA_MAP_GELU_SLOPE,
    DRA_MAP_GELU_TANH,
    DRA_MAP_GELU_TANH_SLOPE,
    DRA_MAP_COUNT
} dra_map;

/* Steps of a recurrent cell, one token of some rows; the formulas are those of src/ops/gru.c
 * and lstm.c. Every array but w holds a row of D numbers, or several such parts, for each row. */
enum { DRA_CELL_ROWS = 8, DRA_CELL_UNITS = 16 };

typedef struct dra_cell_step {
    int64_t         rows, D;
    int64_t         ahead;            /* the next token's rows lie so many rows further */
    const dra_real *w;                /* by blocks of units: (blocks, D, gates, DRA_CELL_UNITS) */
    const dra_real *b;                /* (gates, D) */
    const dra_real *x[DRA_CELL_ROWS]; /* (gates, D) */
    const dra_real *h[DRA_CELL_ROWS], *mix[DRA_CELL_ROWS]; /* the old state, 1 - g */
    dra_real       *to[DRA_CELL_ROWS];                     /* the new one; no row of h */
    dra_real       *c[DRA_CELL_ROWS];                      /* lstm: becomes the new one */
    dra_real       *kept[DRA_CELL_ROWS];                   /* what the way back needs, or NULL */
} dra_cell_step;

typedef struct dra_cell_back {
    int64_t         rows, D, ahead;
    const dra_real *w; /* (gates D, D): rows w_row apart, readable up to whole blocks of units */
    int64_t         w_row;
    const dra_real *kept[DRA_CELL_ROWS], *h[DRA_CELL_ROWS], *mix[DRA_CELL_ROWS];
    const dra_real *dy[DRA_CELL_ROWS];
    dra_real       *d[DRA_CELL_ROWS];  /* of the new state, less dy; becomes that of the old one */
    dra_real       *dc[DRA_CELL_ROWS]; /* lstm: of the new c; becomes that of the old one */
    dra_real       *dx[DRA_CELL_ROWS], *du[DRA_CELL_ROWS]; /* (gates, D): of x and of w h + b */
    dra_real       *swing[DRA_CELL_ROWS];                  /* added to: dbeta / g */
    dra_real       *db;                                    /* (gates, D), added to: du of rows */
} dra_cell_back;

typedef struct dra_adamw_step { /* see src/ops/adamw.c */
    dra_real b1, new1, b2, new2, fix1, fix2, rate, s, eps, decay;
} dra_adamw_step;

typedef struct dra_norm_row { /* n = (x - c - rest) r and t = dy w, see src/ops/norm_gain.c */
    const dra_real *x, *dy, *w;
    dra_real       *dx; /* may be dy; NULL where it is not wanted */
    dra_real        c, rest, r;
} dra_norm_row;

/* ---- recurrences over time: runs of T tokens, T <= DRA_RUN, of n channels -------------------- */

enum { DRA_RUN = 32 };
#define DRA_WKV_EMPTY ((dra_real)-1e30) /* p of an empty state: -infinity would make NaN */

/* One timescale of an ema, see src/ops/ema.c. Rows of x, y, .. lie x_row, y_row, .. apart. */
typedef struct dra_ema_run {
    int64_t         n, T, x_row, y_row;
    const int32_t  *mark; /* DRA_MARK_ bits of each token, or NULL */
    const dra_real *x, *r;
    const dra_real *w;   /* NULL: 1 */
    dra_real       *m;   /* the state, from before the run to after it */
    dra_real       *y;   /* or NULL */
    bool            add; /* to y */
} dra_ema_run;

typedef struct dra_ema_back_run {
    int64_t         n, T, x_row, dy_row, dx_row;
    const int32_t  *mark;
    const dra_real *x, *r, *w, *m, *dy; /* m: the state before the run */
    dra_real       *dm;                 /* from after the run to before it */
    dra_real       *dr, *dw;            /* added to */
    dra_real       *dx;                 /* or NULL */
    bool            add;                /* to dx */
} dra_ema_back_run;

/* See src/ops/wkv.c; state: A, B, p. */
typedef struct dra_wkv_run {
    int64_t         n, T, k_row, v_row, y_row;
    const int32_t  *mark;
    const dra_real *k, *v, *w, *u;
    dra_real       *state[3]; /* from before the run to after it */
    dra_real       *y;        /* or NULL */
} dra_wkv_run;

typedef struct dra_wkv_back_run {
    int64_t         n, T, k_row, v_row, dy_row, d_row;
    const int32_t  *mark;
    const dra_real *k, *v, *w, *u, *state[3], *dy; /* the state before the run */
    dra_real       *dk, *dv;                       /* each may be NULL; rows d_row apart */
    dra_real       *dA, *dB;                       /* from after the run to before it */
    dra_real       *dw, *du;                       /* added to */
} dra_wkv_back_run;

/* ---- slots: see src/ops/slots.h -------------------------------------------------------------- */

typedef struct dra_slots_part { /* of each token: weights (S) and a row (W), one of them made */
    dra_real *w;
    int64_t   w_row;
    dra_real *x;
    int64_t   x_row;
    bool      add; /* to what is made */
} dra_slots_part;

/* Slots m (S, W) taken over n tokens: each fades, takes the writes, is read. Backwards from the
 * last token, where before token t the fading of token t + 1 comes: fade and mark have n + 1 rows.
 * A reset clears the slots in the place of fading; a pad writes nothing and reads 0. */
typedef struct dra_slots_run {
    int64_t               n, S, W;
    int64_t               ahead; /* the rows wanted next lie so many tokens further */
    bool                  back;
    const int32_t        *mark; /* DRA_MARK_ bits of each token, or NULL */
    const dra_real       *fade; /* (n, S): m += fade m */
    const dra_real       *from; /* m before the run */
    dra_real             *to;   /* after it, may be `from`; or NULL */
    const dra_slots_part *write, *read;
    int64_t               writes, reads;
} dra_slots_run;

typedef struct dra_softmax_bend { /* d, that of a = softmax(s), becomes scale ds; rows of n */
    int64_t         rows, n;
    const dra_real *s, *a;
    const dra_real *dlse; /* of ln sum e^s, one for each row, or NULL */
    dra_real        scale;
    dra_real       *d, *grow; /* grow = ds s + a d */
    bool            add;      /* to grow */
} dra_softmax_bend;

typedef struct dra_simd {
    const char *name;
    dra_real (*dot)(int64_t n, const dra_real *a, const dra_real *b);
    dra_real (*sum)(int64_t n, const dra_real *x);
    dra_real (*max)(int64_t n, const dra_real *x); /* -INFINITY for n = 0; NaN if any is NaN */
    /* y = e^(x - m), returns the sum; y may be x; exactly 0 for arguments far below. An element of
     * y depends on x - m alone. */
    dra_real (*exp_sum)(int64_t n, const dra_real *x, dra_real m, dra_real *y);
    /* The same of s x; exp_sum() is the one with s = 1, bit for bit. */
    dra_real (*exp_scaled)(int64_t n, const dra_real *x, dra_real s, dra_real m, dra_real *y);
    void (*scale)(int64_t n, dra_real s, dra_real *x);                   /* x *= s   */
    void (*axpy)(int64_t n, dra_real s, const dra_real *x, dra_real *y); /* y += s x */

    /* Rows of results; y may be any of the inputs. */
    void (*add)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    void (*sub)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    void (*mul)(int64_t n, const dra_real *a, const dra_real *b, dra_real *y);
    /* y += every row of x (rows, n), one after the other; rows lie `row` apart. */
    void (*add_rows)(int64_t rows, int64_t n, const dra_real *x, int64_t row, dra_real *y);
    void (*affine)(int64_t n, dra_real s, dra_real t, const dra_real *x, dra_real *y); /* s x + t */
    void (*center)(int64_t n, const dra_real *x, dra_real c, dra_real rest, dra_real r,
                   dra_real *y); /* ((x - c) - rest) r */
    void (*combine)(int64_t n, dra_real a, const dra_real *x, dra_real b, const dra_real *z,
                    dra_real c, dra_real *y); /* a (x - c - b z) */
    /* Sum of x - c, and of its squares. */
    dra_real (*moments)(int64_t n, const dra_real *x, dra_real c, dra_real *squares);
    /* ln sum e^(x - m), m the largest element: 0 or more, NaN if m is not finite. */
    dra_real (*log_sum)(int64_t n, const dra_real *x, dra_real *m);
    /* dw += dy n and db += dy; returns sum t, and in *with_n sum t n. */
    dra_real (*norm_sums)(int64_t n, const dra_norm_row *row, dra_real *dw, dra_real *db,
                          dra_real *with_n);
    void (*norm_back)(int64_t n, const dra_norm_row *row, dra_real mean,
                      dra_real slope); /* dx = r (t - mean - slope n) */
    /* p, m, v become p', m', v'; an output may be NULL or the memory of its input. */
    void (*adamw)(int64_t n, const dra_adamw_step *f, const dra_real *dp, const dra_real *p,
                  const dra_real *m, const dra_real *v, dra_real *p_out, dra_real *m_out,
                  dra_real *v_out);

    /* What a channel gives does not depend on the channels beside it, nor on how runs are cut. */
    void (*ema)(const dra_ema_run *s);
    void (*ema_back)(const dra_ema_back_run *s);
    void (*wkv)(const dra_wkv_run *s);
    void (*wkv_back)(const dra_wkv_back_run *s);

    /* m_i += sum w_i x over the writes; reads: w_i = m_i.x, or x = sum_i w_i m_i. What a token
     * gives does not depend on how runs are cut. */
    void (*slots_dots)(const dra_slots_run *s);
    void (*slots_mix)(const dra_slots_run *s);
    /* Rows of n > 0, a may be s; lse = ln sum e^s, or NULL. */
    void (*softmax_rows)(int64_t rows, int64_t n, const dra_real *s, dra_real *a, dra_real *lse);
    void (*softmax_bend)(const dra_softmax_bend *s);

    /* NULL: the op's own scalar formula serves. */
    void (*map[DRA_MAP_COUNT])(int64_t n, const dra_real *x, dra_real *y);
    /* A row's results do not depend on the rows beside it. */
    void (*gru)(const dra_cell_step *s);
    void (*gru_back)(const dra_cell_back *s);
    void (*lstm)(const dra_cell_step *s);
    void (*lstm_back)(const dra_cell_back *s);
    void (*gemm)(const dra_gemm *g);
} dra_simd;

extern const dra_simd dra_simd_ref;
extern const dra_simd dra_simd_avx2, dra_simd_avx512, dra_simd_avx512bf16; /* x86-64 */
extern const dra_simd dra_simd_neon;                                       /* 64-bit ARM */

/* The levels this build and processor have, best first, the reference last; NULL at the end.
 * Levels other than the reference exist for float alone. */
const dra_simd *const *dra_simd_levels(void);

#endif
