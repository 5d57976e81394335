/* dra/ops.h - one documented builder per op.
 * Letters: B batch, T time, C channels, H heads, D key width, E value width, V vocabulary.
 * "real" is f32 (f64 in the double build). Axes count from 0; negative ones from the end.
 * A mistake (shape, dtype, axis, null handle) is kept as the graph's error and the null value is
 * returned. Every op on reals has a gradient unless its comment says otherwise. */
#ifndef DRA_OPS_H
#define DRA_OPS_H

#include "dra/graph.h"
#include "dra/sampler.def"
DRA_BEGIN_C

/* ---- the table of ops ------------------------------------------------------------------------ */

typedef struct dra_op_info {
    const char *name;
    int         inputs, outputs; /* -1: any number */
    bool        gradient, cpu;   /* has a gradient rule, has a CPU kernel */
} dra_op_info;

DRA_API size_t      dra_op_count(void);
DRA_API dra_op_info dra_op_at(size_t i); /* i < dra_op_count() */

/* ---- constants and views: no memory is moved ------------------------------------------------- */

DRA_API dra_value dra_number(dra_graph *g, double x);   /* real scalar */
DRA_API dra_value dra_integer(dra_graph *g, int32_t x); /* i32 scalar  */
DRA_API dra_value dra_arange(dra_graph *g, int64_t n);  /* i32 (n): 0, 1, ..., n-1 */

DRA_API dra_value dra_reshape(dra_graph *g, dra_value x, dra_shape shape); /* one size may be -1 */
DRA_API dra_value dra_permute(dra_graph *g, dra_value x, const int *axes); /* axes[rank] */
DRA_API dra_value dra_transpose(dra_graph *g, dra_value x, int a, int b);  /* swaps two axes */
/* Elements start, start+1, ..., start+n-1 along an axis. */
DRA_API dra_value dra_slice(dra_graph *g, dra_value x, int axis, int64_t start, int64_t n);
DRA_API dra_value dra_flip(dra_graph *g, dra_value x, int axis); /* backwards along an axis */
/* x seen with `shape`: missing leading axes and axes of size 1 are repeated. */
DRA_API dra_value dra_broadcast(dra_graph *g, dra_value x, dra_shape shape);
/* y = x; no gradient passes. */
DRA_API dra_value dra_stop_gradient(dra_graph *g, dra_value x);
/* y = x; the gradient goes to `surrogate` (same type) as if it were y. */
DRA_API dra_value dra_straight_through(dra_graph *g, dra_value x, dra_value surrogate);

/* ---- copies and conversions ------------------------------------------------------------------ */

DRA_API dra_value dra_copy(dra_graph *g, dra_value x); /* dense, memory of its own */
/* To another dtype. Floats round to nearest even; float to i32 truncates and saturates (NaN: 0);
 * to bool: x != 0. Gradient between floats only. */
DRA_API dra_value dra_cast(dra_graph *g, dra_value x, dra_dtype dtype);

/* ---- pointwise, one input -------------------------------------------------------------------- */

DRA_API dra_value dra_neg(dra_graph *g, dra_value x); /* also i32 */
DRA_API dra_value dra_abs(dra_graph *g, dra_value x); /* also i32; slope 0 at 0 */
DRA_API dra_value dra_sign(dra_graph *g, dra_value x);
DRA_API dra_value dra_exp(dra_graph *g, dra_value x);
DRA_API dra_value dra_expm1(dra_graph *g, dra_value x);
DRA_API dra_value dra_log(dra_graph *g, dra_value x);
DRA_API dra_value dra_log1p(dra_graph *g, dra_value x);
DRA_API dra_value dra_sqrt(dra_graph *g, dra_value x);
DRA_API dra_value dra_rsqrt(dra_graph *g, dra_value x); /* 1 / sqrt(x) */
DRA_API dra_value dra_square(dra_graph *g, dra_value x);
DRA_API dra_value dra_reciprocal(dra_graph *g, dra_value x);
DRA_API dra_value dra_sin(dra_graph *g, dra_value x);
DRA_API dra_value dra_cos(dra_graph *g, dra_value x);
DRA_API dra_value dra_tanh(dra_graph *g, dra_value x);
DRA_API dra_value dra_erf(dra_graph *g, dra_value x);
DRA_API dra_value dra_sigmoid(dra_graph *g, dra_value x);
DRA_API dra_value dra_log_sigmoid(dra_graph *g, dra_value x); /* -softplus(-x) */
DRA_API dra_value dra_softplus(dra_graph *g, dra_value x);    /* ln(1 + e^x), never overflows */
DRA_API dra_value dra_softsign(dra_graph *g, dra_value x);    /* x / (1 + |x|) */
DRA_API dra_value dra_relu(dra_graph *g, dra_value x);        /* slope 0 at 0 */
DRA_API dra_value dra_relu2(dra_graph *g, dra_value x);       /* max(x, 0)^2 */
DRA_API dra_value dra_gelu(dra_graph *g, dra_value x);        /* x/2 (1 + erf(x/sqrt 2)) */
DRA_API dra_value dra_gelu_tanh(dra_graph *g, dra_value x);   /* GPT-2's approximation */
DRA_API dra_value dra_silu(dra_graph *g, dra_value x);        /* x sigmoid(x) */
DRA_API dra_value dra_elu(dra_graph *g, dra_value x);         /* x > 0 ? x : e^x - 1 */
DRA_API dra_value dra_not(dra_graph *g, dra_value x);         /* bool */

/* ---- pointwise, two inputs of one dtype, shapes broadcast against each other ----------------- */

DRA_API dra_value dra_add(dra_graph *g, dra_value a, dra_value b); /* real, i32 */
DRA_API dra_value dra_sub(dra_graph *g, dra_value a, dra_value b); /* real, i32 */
DRA_API dra_value dra_mul(dra_graph *g, dra_value a, dra_value b); /* real, i32 */
DRA_API dra_value dra_div(dra_graph *g, dra_value a, dra_value b); /* real, i32 (floor) */
/* Remainder of the same sign as b, i32 and real; for i32 b = 0 gives 0. No gradient in b. */
DRA_API dra_value dra_mod(dra_graph *g, dra_value a, dra_value b);
DRA_API dra_value dra_pow(dra_graph *g, dra_value a, dra_value b); /* real, a >= 0 for db */
/* real, i32; at a tie the gradient goes to a; NaN if either is NaN. */
DRA_API dra_value dra_minimum(dra_graph *g, dra_value a, dra_value b);
DRA_API dra_value dra_maximum(dra_graph *g, dra_value a, dra_value b);
/* Comparisons of reals or i32, to bool. */
DRA_API dra_value dra_equal(dra_graph *g, dra_value a, dra_value b);
DRA_API dra_value dra_not_equal(dra_graph *g, dra_value a, dra_value b);
DRA_API dra_value dra_less(dra_graph *g, dra_value a, dra_value b);
DRA_API dra_value dra_less_equal(dra_graph *g, dra_value a, dra_value b);
DRA_API dra_value dra_greater(dra_graph *g, dra_value a, dra_value b);
DRA_API dra_value dra_greater_equal(dra_graph *g, dra_value a, dra_value b);
DRA_API dra_value dra_is_finite(dra_graph *g, dra_value x);        /* real to bool */
DRA_API dra_value dra_and(dra_graph *g, dra_value a, dra_value b); /* bool */
DRA_API dra_value dra_or(dra_graph *g, dra_value a, dra_value b);  /* bool */

/* where ? a : b; where is bool, all three broadcast; a and b of one dtype. */
DRA_API dra_value dra_select(dra_graph *g, dra_value where, dra_value a, dra_value b);
/* min(max(x, lo), hi); no gradient where x is outside. NaN stays NaN. */
DRA_API dra_value dra_clamp(dra_graph *g, dra_value x, double lo, double hi);
/* x, but 0 where it is not finite and at most `limit` in size; changed elements pass no gradient.
 * *count: how many were changed, an i32 scalar. For states, which are then safe to carry. */
DRA_API dra_value dra_bounded(dra_graph *g, dra_value x, double limit, dra_value *count);
/* The same for n > 0 values at once, in place; returns the common count of changes. */
DRA_API dra_value dra_clamp_states(dra_graph *g, int n, dra_value *x, double limit);
/* s x + t with constant s and t. */
DRA_API dra_value dra_affine(dra_graph *g, dra_value x, double s, double t);

/* ---- reductions ------------------------------------------------------------------------------ */

/* Over `n` axes; with `keep` they stay as size 1. An empty sum is 0; the mean, max and logsumexp of
 * nothing are refused. */
typedef struct dra_axes {
    int  n;
    int  axis[DRA_MAX_RANK];
    bool keep;
} dra_axes;

DRA_API dra_value dra_sum(dra_graph *g, dra_value x, dra_axes axes); /* also i32 and bool to i32 */
DRA_API dra_value dra_mean(dra_graph *g, dra_value x, dra_axes axes);
DRA_API dra_value dra_max(dra_graph *g, dra_value x, dra_axes axes); /* ties share the gradient */
DRA_API dra_value dra_logsumexp(dra_graph *g, dra_value x, dra_axes axes);
DRA_API dra_value dra_sum_last(dra_graph *g, dra_value x); /* last axis, kept as size 1 */
DRA_API dra_value dra_sum_all(dra_graph *g, dra_value x);  /* to a scalar */
/* Dot products of the rows of a and b, along the last axis, which is kept as size 1; they broadcast.
 */
DRA_API dra_value dra_vecdot(dra_graph *g, dra_value a, dra_value b);
/* Position of the first maximum along the last axis, i32, axis dropped. No gradient. */
DRA_API dra_value dra_argmax(dra_graph *g, dra_value x);
/* The k-th largest value of each row of the last axis, kept as size 1; 1 <= k <= size. The result
 * is a constant to the gradient. */
DRA_API dra_value dra_topk_threshold(dra_graph *g, dra_value x, int64_t k);

/* Where the k largest values of each row of the last axis are: i32 (..., k), rising. Of equal ones
 * the first count; a NaN is the largest; 1 <= k <= size. Constants to the gradient. */
DRA_API dra_value dra_top_ids(dra_graph *g, dra_value x, int64_t k);

/* Running sum / maximum along an axis; `reverse` runs from the end. i32 too for the sum. */
DRA_API dra_value dra_cumsum(dra_graph *g, dra_value x, int axis, bool reverse);
DRA_API dra_value dra_cummax(dra_graph *g, dra_value x, int axis, bool reverse);

/* ---- products -------------------------------------------------------------------------------- */

/* Both factors are real, or stored in bf16 or f16 at half the bytes and widened while they are
 * read. dra_set_precision() sets the precision of products. */

/* a (..., M, K)  b (..., K, N)  ->  (..., M, N); leading axes broadcast. For transposes pass
 * dra_transpose() of a or b: it costs nothing. */
DRA_API dra_value dra_matmul(dra_graph *g, dra_value a, dra_value b);
/* y = x w^T + b:  x (..., I)  w (O, I)  b (O) or none. */
DRA_API dra_value dra_linear(dra_graph *g, dra_value x, dra_value w, dra_value b);

/* Every group of rows (see dra_group_rows()) with a matrix of its own: y_s = W_e x_s for rows s of
 * group e.  x (S, I)  w (n O, I), the rows of W_0 first  ends (n)  ->  (S, O). A row has the same
 * bits whatever other rows there are, and the matrix of a group without rows is not read. */
DRA_API dra_value dra_grouped_linear(dra_graph *g, dra_value x, dra_value w, dra_value ends);
/* The sum of dy_s x_s^T over the rows of each group: dy (S, O)  x (S, I)  ->  (n O, I). */
DRA_API dra_value dra_grouped_outer(dra_graph *g, dra_value dy, dra_value x, dra_value ends);

/* ---- moving elements ------------------------------------------------------------------------- */

/* All dtypes; gradients for floats. */
DRA_API dra_value dra_concat(dra_graph *g, int n, const dra_value *x, int axis);
/* `before` and `after` new elements of value `fill` along an axis. */
DRA_API dra_value dra_pad(dra_graph *g, dra_value x, int axis, int64_t before, int64_t after,
                          double fill);
/* y[i] = x[i - by] along an axis, zeros where there is none; by may be negative. */
DRA_API dra_value dra_shift(dra_graph *g, dra_value x, int axis, int64_t by);
/* Each element n times in a row along an axis: a a b b c c. */
DRA_API dra_value dra_repeat(dra_graph *g, dra_value x, int axis, int64_t n);
/* y[.., i, ..] = x[.., index[.., i, ..], ..] along an axis; index is i32 of x's rank, its other
 * axes of x's sizes. An index outside 0..size-1 is an error of the run. */
DRA_API dra_value dra_gather(dra_graph *g, dra_value x, dra_value index, int axis);
/* y = x, then y[.., index[.., i, ..], ..] += src[.., i, ..]; src has the shape of index. */
DRA_API dra_value dra_scatter_add(dra_graph *g, dra_value x, dra_value index, dra_value src,
                                  int axis);
/* Rows of a table: table (V, C), ids i32 (...) -> (..., C). An id outside is an error of the run.
 * The table may be bf16 or f16; rows come out in its dtype. */
DRA_API dra_value dra_embedding(dra_graph *g, dra_value table, dra_value ids);
/* ids i32 (...) -> real (..., n): 1 at the id, else 0; an id outside 0..n-1 gives zeros only. */
DRA_API dra_value dra_one_hot(dra_graph *g, dra_value ids, int64_t n);
/* y = x with rows replaced: x (B, cap, ...), rows (B, T, ...), at i32 (B, T): y[b, at[b,t]] =
 * rows[b,t]; entries with at < 0 write nothing (padding), at >= cap is an error of the run. Within
 * one b no two entries may name one row. All dtypes. States grow by this: donate y to x's state,
 * and it is written in place. */
DRA_API dra_value dra_write_rows(dra_graph *g, dra_value x, dra_value rows, dra_value at);
/* Rows by group, as experts want them: row m of M goes to the k groups ids[m] (M, k), of n. All are
 * i32 constants. An id outside 0..n-1 is an error of the run. */
typedef struct dra_groups {
    dra_value order;  /* (M k): the rows of group 0, then of 1, ..: which of the places m k + j */
    dra_value source; /* (M k): the same as rows m                                              */
    dra_value place;  /* (M, k): where each place went                                          */
    dra_value ends;   /* (n): the first row after each group                                    */
} dra_groups;
DRA_API dra_groups dra_group_rows(dra_graph *g, dra_value ids, int64_t n);
/* y[s] = x[source[s]]: x (M, C) -> (M k, C). Its gradient is dra_group_sum(). */
DRA_API dra_value dra_group_take(dra_graph *g, dra_value x, dra_value source, dra_value place);
/* y[m] = sum over j = 0..k-1, in this order, of x[place[m, j]]: x (M k, C) -> (M, C). */
DRA_API dra_value dra_group_sum(dra_graph *g, dra_value x, dra_value source, dra_value place);
/* y[b, t] = x[b, at[b, t]], zeros where at < 0: x (B, cap, ...), at i32 (B, T) -> (B, T, ...). All
 * dtypes. Within one b no two entries may name one row, if a gradient is wanted. */
DRA_API dra_value dra_read_rows(dra_graph *g, dra_value x, dra_value at);

/* ---- norms, over the last axis --------------------------------------------------------------- */

/* (x - mean) / sqrt(var + eps) w + b, biased variance; w (C), b (C): either may be none. */
DRA_API dra_value dra_layer_norm(dra_graph *g, dra_value x, dra_value w, dra_value b, double eps);
/* x / sqrt(mean(x^2) + eps) w; w may be none. */
DRA_API dra_value dra_rms_norm(dra_graph *g, dra_value x, dra_value w, double eps);
/* x / sqrt(sum(x^2) + eps). */
DRA_API dra_value dra_unit(dra_graph *g, dra_value x, double eps);
/* x / max(sqrt(sum(x^2)), eps). */
DRA_API dra_value dra_unit_clamped(dra_graph *g, dra_value x, double eps);
/* dra_unit_clamped(x, eps) sqrt(C) w; w a scalar, or (C), or none. */
DRA_API dra_value dra_scale_norm(dra_graph *g, dra_value x, dra_value w, double eps);
/* Layer norm of each of `groups` equal parts of the last axis, then w and b (C) or none. */
DRA_API dra_value dra_group_norm(dra_graph *g, dra_value x, int64_t groups, dra_value w,
                                 dra_value b, double eps);

/* ---- softmax, over the last axis ------------------------------------------------------------- */

/* Entries at or below DRA_MASKED / 2 do not take part; a row without any that does gives 0. */
#define DRA_MASKED (-1e30)
DRA_API dra_value dra_softmax(dra_graph *g, dra_value x);
DRA_API dra_value dra_log_softmax(dra_graph *g, dra_value x);

/* a act(b) for the two halves [a, b] of the last axis. */
typedef enum dra_activation {
    DRA_ACT_NONE,
    DRA_ACT_SIGMOID,
    DRA_ACT_TANH,
    DRA_ACT_RELU,
    DRA_ACT_RELU2,
    DRA_ACT_GELU,
    DRA_ACT_GELU_TANH,
    DRA_ACT_SILU,
    DRA_ACT_ELU,
    DRA_ACT_SOFTPLUS,
    DRA_ACT_COUNT
} dra_activation;

DRA_API dra_value dra_activate(dra_graph *g, dra_value x, dra_activation act);
DRA_API dra_value dra_glu(dra_graph *g, dra_value x, dra_activation act);

/* ---- random numbers -------------------------------------------------------------------------- */

/* Philox 4x32-10, keyed by `key` i32 (4) = {seed low, seed high, step low, step high}, by the
 * scopes around and `name`, and by absolute position: element (b, t, rest) of shape (B, T, ...)
 * is drawn at row row[b] (i32 (B), or none: b) and time pos[b] + t (i32 (B), or none: t), so that
 * numbers do not depend on how a sequence is cut or batched. Rank 1 is (T) at row 0. */
typedef struct dra_random_config {
    const char *name; /* unique in its scope */
    dra_value   key, pos, row;
} dra_random_config;

DRA_API dra_value dra_random_uniform(dra_graph *g, dra_shape shape, const dra_random_config *c);
DRA_API dra_value dra_random_normal(dra_graph *g, dra_shape shape, const dra_random_config *c);
/* x / (1-p) with probability 1-p, else 0; 0 <= p < 1. Rank of x >= 1. */
DRA_API dra_value dra_dropout(dra_graph *g, dra_value x, double p, const dra_random_config *c);

/* ---- positions ------------------------------------------------------------------------------- */

/* How the frequencies f_c of a longer text follow from those of a shorter one, `original` long. */
typedef enum dra_rotary_scaling {
    DRA_SCALING_NONE,
    DRA_SCALING_LLAMA3, /* slow ones, of fewer than `low` turns, are divided by factor; fast ones,
                           of more than `high`, stay; between them a mixture */
    DRA_SCALING_YARN, /* the same by number of the pair, between those of `low` and `high` turns */
    DRA_SCALING_LONGROPE_SHORT, /* each pair is divided by its short factor, up to `original` */
    DRA_SCALING_LONGROPE_LONG,  /* by its long_factors, at any position */
    DRA_SCALING_COUNT
} dra_rotary_scaling;

typedef struct dra_rotary_config {
    double  base;     /* 0: 10000 */
    int64_t width;    /* channels that are rotated; 0: all; an odd one rotates one more */
    double  stretch;  /* angles are divided by it; 0: 1 */
    bool    halves;   /* pairs (c, c + ceil(width/2)) instead of (2c, 2c+1) */
    double xpos_base; /* 0: no xPos; else pairs are scaled by zeta_c^((pos - center) / xpos_base); a
                         position at which that is beyond e^80 is an error of the run */
    double xpos_center;
    bool   xpos_invert; /* keys: the reciprocal factor */

    dra_rotary_scaling scaling;
    double             factor;    /* of scaling; 0: 1 */
    double             low, high; /* turns over the original length; 0: 1, and 4, of yarn 32 */
    int64_t            original;  /* length in tokens */
    bool               exact;     /* yarn: the pairs of low and high are not rounded outwards */
    double             gain;      /* what is rotated is multiplied by it; 0: 1 */
    int64_t            limit; /* a position from here on is an error of the run; 0: there is none */

    const double *short_factors, *long_factors; /* of LongRoPE, one for each pair; borrowed */
    int           n_short, n_long;
} dra_rotary_config;

/* Rotates pair c of x[b, h, t] by pos[b, t] f_c, f_c = base^(-2c/width) / stretch where it is not
 * scaled, c < ceil(width/2).
 * x (B, H, T, D)   pos i32 (B, T)   zeta_c = (2c + 0.4 width) / (1.4 width) */
DRA_API dra_value dra_rotary(dra_graph *g, dra_value x, dra_value pos,
                             const dra_rotary_config *config); /* config may be NULL */

/* ---- losses ---------------------------------------------------------------------------------- */

typedef struct dra_cross_entropy_config {
    int32_t ignore; /* targets equal to it do not count; only with use_ignore */
    bool    use_ignore;
    double  smoothing; /* target = (1-s) one-hot + s / V */
    double  l2wrap; /* RWKV's L2Wrap: the gradient is that of loss + l2wrap / 2 max(logits)^2, which
                     * keeps logits small; the value of the loss does not include it and has no
                     * second derivative */
} dra_cross_entropy_config;

/* -log softmax(logits)[target] of each row, 0 for ignored ones: logits (..., V), target i32 (...).
 * A target outside 0..V-1 that is not ignored is an error of the run. config may be NULL. */
DRA_API dra_value dra_token_losses(dra_graph *g, dra_value logits, dra_value target,
                                   const dra_cross_entropy_config *config);
/* Their mean over the rows that count (0 if none does). */
DRA_API dra_value dra_cross_entropy(dra_graph *g, dra_value logits, dra_value target,
                                    const dra_cross_entropy_config *config);
/* The same from x (..., C) and the head w (V, C), logits = x w^T, without ever holding all logits:
 * blocks of tokens, whose forward pass also makes dx and dw. w may be stored in bf16 or f16. */
DRA_API dra_value dra_linear_cross_entropy(dra_graph *g, dra_value x, dra_value w, dra_value target,
                                           const dra_cross_entropy_config *config);

/* ---- attention ------------------------------------------------------------------------------- */

typedef enum dra_attend_path {
    DRA_ATTEND_AUTO,
    DRA_ATTEND_PLAIN,
    DRA_ATTEND_TILED,
    DRA_ATTEND_FEW
} dra_attend_path;
typedef enum dra_head_map { DRA_HEADS_DIV, DRA_HEADS_MOD, DRA_HEADS_COUNT } dra_head_map;

enum { DRA_ATTEND_PAGE = 64 }; /* keys */

typedef struct dra_attend_config {
    /* The keys that a query sees. Intervals are values: causal, windows, ragged, packed, prefixes
     * and cache lengths are all intervals of keys lo <= j < hi; only arbitrary masks are masks. */
    dra_value lo, hi; /* i32 (B, T); none: 0 and J */
    dra_value mask;   /* bool, broadcastable to (B, H, T, J); true = sees */
    int64_t   always; /* keys 0 .. always-1 are seen by every query, whatever lo, hi and mask say,
                         and get no bias, distance or slope; other keys keep their numbers */
    dra_value bias;   /* real, broadcastable to (B, H, T, J); added to the logits */
    dra_value slopes; /* real (H): ALiBi, adds -slope |q_pos - k_pos| */
    /* Biases by distance, real (H, N), or (1, N) for all heads: adds column
     * q_pos - k_pos + distance_zero, the first or last where that is outside. */
    dra_value distance;
    int64_t   distance_zero; /* column of distance 0, 0 to N-1 */
    dra_value q_pos;         /* i32 (B, T), for slopes, distance and dropout; none: J - T + t;
                                dropout of a part of a sequence (random->pos) needs it */
    dra_value k_pos;         /* i32 (B, J), likewise; none: j */

    /* Talking heads and residual attention, of the plain path. */
    dra_value previous;   /* real (B, H, T, J), `scores` of a layer before: added to the scaled
                             logits; what is masked there stays masked */
    dra_value mix_before; /* real (H, H): then s_h += sum_g mix_before[h, g] s_g, before biases and
                             masks */
    dra_value mix_after;  /* real (H, H): weights p_h = sum_g mix_after[h, g] p_g, after dropout */

    dra_value cope; /* real (P, D): contextual positions, added after masks: a key is as far
                             away as the sigmoids of the logits of it and of later ones add up to,
                             up to P - 1, and gets q.cope there, interpolated */
    /* Selective attention: from the logits that queries have for key lo + n, 0 < n < selective,
     * what the first head's logits for it were above 0 in queries before is subtracted, but not
     * for their own key hi - 1. Sums by n in two parts, as in dra_running_sum: taken (B,
     * selective, 2) before the first query, none: 0; *taken_last after the last one. taken_mark
     * i32 (B, T), or none: as there. Needs lo and hi; plain path only. */
    int64_t      selective;
    dra_value    taken, taken_mark, *taken_last; /* taken_last may be NULL */
    dra_head_map heads;   /* which of the K key heads query head h reads: h / (H/K), or h mod K */
    double       scale;   /* of q.k; 0: 1 / sqrt(D) */
    double       softcap; /* 0: none; else cap tanh(s / cap), before bias and masks */
    bool         softcap_late; /* after biases and scores of a layer before instead */
    /* Adds q_level_t - k_level_j, each part subtracted by itself, then their sum: sums so far, of
     * which only differences count (dra_running_sum). real (B, H, T, P), (B, H, J, P), both. */
    dra_value q_level, k_level;
    /* Keys and values of all rows of the batch in one memory, k (1, K, N, D) and v (1, K, N, E):
     * keys DRA_ATTEND_PAGE i and following of row b are rows pages[b, i] and following. i32 (B, J /
     * DRA_ATTEND_PAGE). A page of which something is seen lies within N. Tiled path only, without a
     * gradient. */
    dra_value pages;
    dra_value sink;    /* real (H): attention sinks, a learned logit in the denominator of each
                        * head's softmax; lse is without it */
    double    dropout; /* of the weights; needs `random` */
    const dra_random_config *random;

    int64_t         topk;          /* 0: all; else only logits >= the k-th largest */
    bool            topk_straight; /* gradient as if all counted */
    bool            hard;          /* one-hot of the largest; gradient of the softmax */
    bool            sigmoid;       /* weights are sigmoids of the logits, not a softmax */
    dra_attend_path path;
    dra_value      *scores; /* where to put the masked logits (B, H, T, J); plain path only */
    dra_value      *lse;    /* where to put their logsumexp (B, H, T), 0 where nothing is seen,
                             * by which two reads can be merged into one softmax; not on the
                             * plain path */
    /* Where to put the attention weights (B, H, T, J): after topk, hard and mix_after, but without
     * dropout; 0 where nothing is seen. Plain path only. */
    dra_value *weights;
} dra_attend_config;

/* y = softmax(q k^T scale + ...) v.
 * q (B, H, T, D)   k (B, K, J, D)   v (B, K, J, E)   ->   (B, H, T, E); K divides H.
 * k and v may be bf16, as caches keep them: the numbers are then those of full precision with the
 * same values, bit for bit on a CPU, without a gradient.
 * A query that sees nothing gives 0. The plain path stores the scores, the tiled path does not;
 * AUTO takes the tiled one unless topk, hard, scores, weights, previous, mix_before or mix_after
 * need the other. FEW is the fast one where T = 1 and keys are few, as slots; all are seen: of the
 * options it has heads, scale and lse. */
DRA_API dra_value dra_attend(dra_graph *g, dra_value q, dra_value k, dra_value v,
                             const dra_attend_config *config); /* config may be NULL */

/* lo, hi for causal attention to keys 0..pos+t, at most the last `window` of them (0: all).
 * pos i32 (B): where the queries start, or none: 0. */
DRA_API void dra_causal_interval(dra_graph *g, dra_value pos, int64_t B, int64_t T, int64_t window,
                                 dra_value *lo, dra_value *hi);

/* ---- recurrences over time ------------------------------------------------------------------- */

/* mark i32 (B, T), or none: bits of DRA_MARK_PAD and _RESET; none set: a plain token. Tokens are
 * taken in order t = 0..T-1: a reset first puts the state of its row back to its initial value,
 * then a pad leaves it as it is. */

/* Running means on M timescales: m_t = m_{t-1} + (1-g) (x_t - m_{t-1}), g = sigmoid(beta).
 *   x (B, T, N)   beta (M, N), M > 0   w (M, N) or none   start (B, M, N) or none: 0
 * Returns y (B, T, N) = sum_i w_i m_{t,i}, or without w every m (B, T, M, N); at a pad that of the
 * state as it stays. *last (B, M, N) is the state after the last token; last may be NULL. A
 * sequence in parts, each from the last state of the one before, gives the same bits. */
DRA_API dra_value dra_ema(dra_graph *g, dra_value x, dra_value beta, dra_value w, dra_value start,
                          dra_value mark, dra_value *last);

/* A causal convolution of each channel on its own: y_t = bias + sum_j w_j x_(t - W + 1 + j) over
 * the last W inputs of a sequence, W from 1 to 8, zeros before its first one.
 *   x (B, T, N)   w (N, W), the last tap that of the token itself   bias (N) or none
 *   start (B, W - 1, N) or none: the inputs before, oldest first
 * Returns y (B, T, N), 0 at a pad. *last (B, W - 1, N): the last inputs; last may be NULL. A
 * sequence in parts, each from the last inputs of the one before, gives the same bits. */
DRA_API dra_value dra_conv(dra_graph *g, dra_value x, dra_value w, dra_value bias, dra_value start,
                           dra_value mark, dra_value *last);

/* Sums of all tokens so far, in two parts whose sum they are, so that differences of sums are exact
 * over long stretches: the second is what the first rounds off.
 *   x (B, T, N)   start (B, N, 2) or none: 0   ->   y (B, T, N, 2), at a pad that of the one before
 * *last (B, N, 2): after the last token; last may be NULL. A sequence in parts gives the same bits.
 * The gradient is that of the first part. */
DRA_API dra_value dra_running_sum(dra_graph *g, dra_value x, dra_value start, dra_value mark,
                                  dra_value *last);

/* The wkv of RWKV-4, a mean of all v so far with weights e^k that fade by e^w a step; u is a bonus
 * of the token itself. The state is kept divided by e^p, p a running maximum of the exponents:
 *   y_t = (e^p A + e^(u+k) v) / (e^p B + e^(u+k)),  A = e^w A + e^k v,  B = e^w B + e^k
 *   k, v (B, T, C)   w, u (C), w < 0   start: A, B, p (B, C) each, or NULL: 0, 0, -1e30
 * Returns y (B, T, C), 0 at pads. last: A, B and p after the last token, or NULL. Parts of a
 * sequence give the same bits as the whole. Nothing depends on the choice of p, so all p are
 * constants to the gradient: A and B have theirs at fixed p, p has none. */
DRA_API dra_value dra_wkv(dra_graph *g, dra_value k, dra_value v, dra_value w, dra_value u,
                          const dra_value *start, dra_value mark, dra_value *last);

/* A GRU whose new state is mixed into the old one, h = h_{t-1}, g = sigmoid(beta):
 *   r = s(x_r + W_r h + b_r),  z = s(x_z + W_z h + b_z),  n = tanh(x_n + r (W_n h + b_n))
 *   c = (1-z) n + z h,  h_t = h + (1-g) (c - h)
 * One head of one batch row is a row of its own. At a reset the state is 0. |h_t| <= 1 if
 * |start| <= 1, also in floating point. */
typedef struct dra_gru_cell {
    dra_value x;     /* (B, T, H, 3D): W_i k + b_i of every token, made by one product */
    dra_value w;     /* (3D, D), or (H, 3D, D): one for each head */
    dra_value b;     /* (3D), or (H, 3D), or none: 0 */
    dra_value beta;  /* (H, D), or none: g = 0 */
    dra_value start; /* (B, H, D), or none: 0 */
} dra_gru_cell;

/* 1 to 4 cells of one B, T and H side by side. h[i] (B, T, H, D) of cell i, at a pad the state as
 * it stays; last[i] (B, H, D) after the last token, last may be NULL. A sequence in parts, each
 * from the last state of the one before, and a row of the batch alone give the same bits. */
DRA_API void dra_gru(dra_graph *g, int cells, const dra_gru_cell *cell, dra_value mark,
                     dra_value *h, dra_value *last);

/* Slots of a head, each with a state of its own, all fed the same x: as dra_gru() with
 *   h_t = h + u (c - h)
 * for each slot; |h_t| <= 1 if |start| <= 1 and 0 <= u <= 1. */
typedef struct dra_slot_gru_cell {
    dra_value x;     /* (B, T, H, 3D), as for dra_gru_cell; so are w and b */
    dra_value w, b;  /* b may be none */
    dra_value u;     /* (H, S), or (B, T, H, S): one for each token */
    dra_value start; /* (B, H, S, D), or none: 0 */
} dra_slot_gru_cell;

/* 1 to 4 cells of one B, T, H and S. h[i] (B, T, H, S, D), last[i] (B, H, S, D); last may be NULL.
 * Parts of a sequence and rows of a batch give the same bits. */
DRA_API void dra_slot_gru(dra_graph *g, int cells, const dra_slot_gru_cell *cell, dra_value mark,
                          dra_value *h, dra_value *last);

/* An LSTM whose output is mixed into the one before, h = h_{t-1}, c = c_{t-1}, g = sigmoid(beta):
 *   i, f, o = s(x + W h + b) and n = tanh(x + W h + b), each its D rows, in the order i, f, n, o
 *   c_t = f c + i n,  h_t = h + (1-g) (o tanh(c_t) - h)
 * Everything else as for dra_gru(); at a reset both states are 0, and only h_t has a bound. */
typedef struct dra_lstm_cell {
    dra_value x;                /* (B, T, H, 4D): W_i k + b_i of every token, made by one product */
    dra_value w;                /* (4D, D), or (H, 4D, D): one for each head */
    dra_value b;                /* (4D), or (H, 4D), or none: 0 */
    dra_value beta;             /* (H, D), or none: g = 0 */
    dra_value start_h, start_c; /* (B, H, D), or none: 0 */
} dra_lstm_cell;

/* h[i] (B, T, H, D), last_h[i] and last_c[i] (B, H, D); last_h and last_c may be NULL. */
DRA_API void dra_lstm(dra_graph *g, int cells, const dra_lstm_cell *cell, dra_value mark,
                      dra_value *h, dra_value *last_h, dra_value *last_c);

/* Sums of outer products that fade, read by queries:
 *   S_t = e^(l_t) S_{t-1} + k_t v_t^T,  z_t = e^(l_t) z_{t-1} + k_t,  y_t = S_t^T q_t
 * and where normalised, y_t is divided by q_t.z_t + eps, but by no less than `least`. A decay by
 * channel multiplies the rows of S: diag(e^(l_t)) S_{t-1}. With a bonus u, reading comes before
 * writing, and of the write of the token itself the bonus is seen (RWKV 5 and 6):
 *   y_t = (S_{t-1} + diag(u) k_t v_t^T)^T q_t
 * where nothing is normalised. */
typedef struct dra_moment_config {
    dra_value q, k;       /* (B, T, H, F) */
    dra_value v;          /* (B, T, H, E) */
    dra_value l;          /* ln of the decay, <= 0: (B, T, H), or (H), or none: 0; by channel:
                           * (B, T, H, F) or (H, F) */
    dra_value S, z;       /* the first state, (B, H, F, E) and (B, H, F), or none: 0 */
    dra_value mark;       /* or none */
    bool      normalise;  /* without it there is no z */
    double    eps, least; /* 0 or more */
    bool      jumps;      /* e^l may be tiny and the rest of S still matter, see running_top */
    dra_value u;          /* (H, F): bonus; or none */
} dra_moment_config;

/* y (B, T, H, E), 0 at pads. *S_last, *z_last: the state after the last token; each may be NULL.
 * A sequence in parts gives equal results, not the same bits. */
DRA_API dra_value dra_moment(dra_graph *g, const dra_moment_config *config, dra_value *S_last,
                             dra_value *z_last);

/* The delta rule writes only what the key does not recall yet:
 *   S' = e^(l_t) S_{t-1},  S_t = S' + k_t (b_t (v_t - S'^T k_t))^T,  y_t = S_t^T q_t
 * bounded for |k| = 1 and 0 < b < 1. A decay by channel multiplies the rows of S. With `recall` a
 * and `replace` c what is recalled and where it goes are free, and there is no b: a transition that
 * is diagonal plus rank one (RWKV 7: a of unit length, c = -a times a rate in 0..1),
 *   S_t = diag(e^(l_t)) S_{t-1} + c_t (S_{t-1}^T a_t)^T + k_t v_t^T,  y_t = S_t^T q_t */
typedef struct dra_delta_config {
    dra_value q, k;            /* (B, T, H, F) */
    dra_value v;               /* (B, T, H, E) */
    dra_value b;               /* (B, T, H): strength of the writes */
    dra_value l;               /* ln of the decay, as above */
    dra_value S;               /* the first state, (B, H, F, E), or none: 0 */
    dra_value mark;            /* or none */
    dra_value recall, replace; /* (B, T, H, F): a and c, in the place of b; or none */
} dra_delta_config;

/* y (B, T, H, E), 0 at pads. *S_last: the state after the last token; may be NULL. A sequence in
 * parts gives equal results, not the same bits. */
DRA_API dra_value dra_delta(dra_graph *g, const dra_delta_config *config, dra_value *S_last);

/* The running maximum of exponents under decay, by which sums of e^x are kept in range:
 *   mu_t = max(mu_{t-1} + l_t, top_t),  shift_t = (mu_{t-1} - mu_t) + l_t <= 0
 *   top (B, T, H)   l as above   start (B, H) or none: -1e30
 * Returns mu (B, T, H); *shift (B, T, H) is the decay of what is kept divided by e^mu; *last (B, H)
 * is mu after the last token; both may be NULL. A pad keeps mu, with shift 0; a reset takes -1e30
 * for mu_{t-1}. No gradient but that of l in shift: results must not depend on the choice of mu. */
DRA_API dra_value dra_running_top(dra_graph *g, dra_value top, dra_value l, dra_value start,
                                  dra_value mark, dra_value *shift, dra_value *last);

/* S slots for each head, drawn towards each token, and a softmax over them:
 *   P_t,i = e^(l_t,i) P_t-1,i + u_t,i k_t,   Q_t,i = e^(l_t,i) Q_t-1,i + u_t,i v_t
 *   y_t = sum_i a_t,i Q_t,i,   a_t = softmax_i(q_t.P_t,i / sqrt(D))
 * u is 1 - e^l for slots that stay in the convex hull of what was written; it is an input of its
 * own because it cannot be computed from l exactly, and has a gradient of its own. */
typedef enum dra_slots_read {
    DRA_READ_OWN,   /* each head's query over its own S slots */
    DRA_READ_ALL,   /* over those of all heads, H S of them */
    DRA_READ_POOLED /* one softmax over all pairs of a head's query and one of its own slots */
} dra_slots_read;

typedef struct dra_slots_config {
    dra_value      q, k; /* (B, T, H, D) */
    dra_value      v;    /* (B, T, H, E) */
    dra_value      l, u; /* (B, T, H, S) or (H, S), l <= 0, 0 <= u <= 1; l = -1e4: e^l is 0 */
    dra_value      P, Q; /* the first slots, (B, H, S, D) and (B, H, S, E), or none: 0 */
    dra_value      mark; /* or none */
    dra_slots_read read;
    dra_value     *lse;  /* ln of the softmax's denominator, (B, T, H), pooled (B, T, 1); or NULL */
    dra_value     *mean; /* of a head's slots Q_t, (B, T, H, E); or NULL */
} dra_slots_config;

/* y (B, T, H, E), pooled (B, T, 1, E); y, lse and mean are 0 at pads. *P_last, *Q_last: the slots
 * after the last token; each may be NULL. A sequence in parts gives the same bits, and equal
 * gradients. */
DRA_API dra_value dra_slots(dra_graph *g, const dra_slots_config *config, dra_value *P_last,
                            dra_value *Q_last);

/* ---- sampling -------------------------------------------------------------------------------- */

enum {
    DRA_SAMPLE_FILTER_FIRST = 1, /* filters see p of temperature 1 */
    DRA_SAMPLE_NOTHING = 2       /* no token is needed: the result is -1 */
};

/* How the next token of a row is chosen: the options of dra/sampler.def that act on a row. */
typedef struct dra_sample_row {
#define DRA_SAMPLE_FIELD(with, kind, type, name, ...) type name;
    DRA_SAMPLER_ROW_OPTIONS(DRA_SAMPLE_FIELD, )
#undef DRA_SAMPLE_FIELD
    uint64_t seed;
    int64_t  position; /* of the token in its sequence; it and the seed determine the random
                        * number */
    int64_t  options;
} dra_sample_row;

enum { DRA_SAMPLE_WORDS = sizeof(dra_sample_row) / sizeof(int32_t) };

typedef struct dra_sample_config { /* each may be null */
    dra_value bias;                /* real (V) or (B, V), added to the logits; -infinity: never */
    dra_value allowed;             /* bool (B, V): the others never */
    dra_value seen;                /* bool (B, V): what the repetition penalty is for */
} dra_sample_config;

/* A token for each row: logits real (B, V), rows i32 (B, DRA_SAMPLE_WORDS): the bytes of a
 * dra_sample_row each -> i32 (B), -1 where a logit is NaN or +infinity or all are -infinity. Equal
 * logits give equal tokens on every device. config NULL: no options. No gradient. */
DRA_API dra_value dra_sample_ids(dra_graph *g, dra_value logits, dra_value rows,
                                 const dra_sample_config *config);
/* Log-probabilities: logits real (B, V), ids i32 (B) -> real (B, 1 + most): that of ids[b], then
 * those of the `most` likeliest tokens, the largest first, equal ones by id. *top, if not NULL: i32
 * (B, 1 + most), whose they are. Tokens outside the vocabulary have NaN, as have all of a row in
 * which a logit is NaN or +infinity or all are -infinity; its likeliest are -1. No gradient. */
DRA_API dra_value dra_token_logprobs(dra_graph *g, dra_value logits, dra_value ids, int64_t most,
                                     dra_value *top);

/* ---- optimizer ------------------------------------------------------------------------------- */

/* sqrt of the sum of squares over all values: a real scalar. No gradient. */
DRA_API dra_value dra_global_norm(dra_graph *g, int n, const dra_value *x);
/* min(1, limit / (norm + 1e-6)), the factor that clips gradients. No gradient. */
DRA_API dra_value dra_clip_factor(dra_graph *g, dra_value norm, double limit);

/* The factor of gradients before a step: min(1, clip / (norm + 1e-6)), 1 where clip is 0; NaN where
 * norm or one of the losses is not finite or the i32 scalar `fault` is not 0, so that dra_adamw()
 * changes nothing. No gradient. */
DRA_API dra_value dra_step_factor(dra_graph *g, dra_value norm, dra_value losses, dra_value fault,
                                  double clip);

typedef struct dra_adamw_config {
    double beta1, beta2, eps, decay; /* of one group of parameters */
} dra_adamw_config;

/* One step: with gradient s dp, m' = b1 m + (1-b1) s dp, v' = b2 v + (1-b2) (s dp)^2,
 * p' = p - rate (decay p + (m'/(1-b1^t)) / (sqrt(v'/(1-b2^t)) + eps)).
 * rate, s: real scalars; t: i32 scalar, 1 for the first step. Where s is NaN nothing changes. No
 * gradient. Donate p', m', v' to be updated in place. */
typedef struct dra_adamw_result {
    dra_value p, m, v;
} dra_adamw_result;

DRA_API dra_adamw_result dra_adamw(dra_graph *g, dra_value p, dra_value dp, dra_value m,
                                   dra_value v, dra_value rate, dra_value s, dra_value t,
                                   const dra_adamw_config *config);

DRA_END_C
#endif
