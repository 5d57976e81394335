/* The attributes of ops: plain data that a kernel of any device can read, and the numbers of the
 * inputs and outputs of those ops that have many. Ops without a struct here have no attributes, or
 * a config of include/dra/ops.h (adamw, token_losses and its gradient), or what compiling looks at:
 * dra_join_attr of concat and pad (graph/op.h), functions of elements (graph/pointwise.h). */
#ifndef DRA_SRC_OPS_ATTRS_H
#define DRA_SRC_OPS_ATTRS_H

#include "base/shape.h"
#include "dra/ops.h"

/* ---- constants, views, moving elements ------------------------------------------------------- */

typedef struct dra_constant_attr {
    dra_dtype dtype;
    double    real;
    int32_t   integer;
} dra_constant_attr;

typedef struct dra_arange_attr {
    int64_t n;
} dra_arange_attr;

typedef struct dra_reshape_attr {
    dra_shape shape;
} dra_reshape_attr;

typedef struct dra_permute_attr {
    int32_t axis[DRA_MAX_RANK]; /* axis i of y is axis[i] of x */
} dra_permute_attr;

typedef struct dra_slice_attr {
    int32_t axis;
    int64_t start, n;
} dra_slice_attr;

typedef struct dra_flip_attr {
    int32_t axis;
} dra_flip_attr;

typedef struct dra_broadcast_attr {
    dra_shape shape;
} dra_broadcast_attr;

typedef struct dra_cast_attr {
    dra_dtype dtype;
} dra_cast_attr;

typedef struct dra_gather_attr { /* gather, scatter_add */
    int32_t axis;
} dra_gather_attr;

typedef struct dra_embedding_back_attr {
    int64_t V;
} dra_embedding_back_attr;

typedef struct dra_one_hot_attr {
    int64_t n;
} dra_one_hot_attr;

typedef struct dra_group_attr { /* group_rows */
    int64_t groups;
} dra_group_attr;

typedef struct dra_bounded_attr {
    double limit;
} dra_bounded_attr;

/* ---- reductions, products, norms, losses ----------------------------------------------------- */

typedef struct dra_reduce_attr { /* sum, sum_squares, max, logsumexp */
    uint32_t axes;               /* bits */
    bool     keep;
} dra_reduce_attr;

typedef struct dra_topk_attr { /* topk_threshold, top_ids */
    int64_t k;
} dra_topk_attr;

typedef struct dra_cumulate_attr { /* cumsum, cummax */
    int32_t axis;
    bool    reverse;
} dra_cumulate_attr;

/* Without padding: products are fused where their attributes are the same bytes. */
typedef struct dra_matmul_attr {
    int32_t db_transposed; /* b is a transposed view: lay db out in the order of what b looks at */
    dra_precision precision; /* of the product and its gradients */
} dra_matmul_attr;

typedef struct dra_grouped_attr { /* grouped_linear, grouped_outer */
    int32_t       transposed;     /* W^T x */
    dra_precision precision;
} dra_grouped_attr;

typedef enum dra_row_norm {
    DRA_ROW_NORM_LAYER,
    DRA_ROW_NORM_RMS,
    DRA_ROW_NORM_UNIT,
    DRA_ROW_NORM_UNIT_CLAMPED
} dra_row_norm;

typedef struct dra_norm_attr { /* norm, norm_gain and their gradients */
    dra_row_norm kind;
    double       eps;
} dra_norm_attr;

typedef struct dra_linear_cross_entropy_attr {
    dra_cross_entropy_config loss; /* first: kernels of losses read it as their attribute */
    dra_precision            precision;
} dra_linear_cross_entropy_attr;

/* ---- random numbers and positions ------------------------------------------------------------ */

typedef struct dra_random_attr { /* random, dropout */
    dra_shape shape;             /* of random; dropout has the shape of x */
    uint64_t  path;
    double    p; /* of dropout */
    bool      normal;
    bool      has_pos, has_row; /* inputs after the key */
} dra_random_attr;

enum { DRA_ROTARY_FACTORS = 128 };

typedef struct dra_rotary_attr {
    dra_rotary_config k;                          /* defaults filled in; without lists */
    double            sign;                       /* of the angles: 1, or -1 in the gradient */
    double            divide[DRA_ROTARY_FACTORS]; /* of LongRoPE: what pairs are divided by */
} dra_rotary_attr;

/* ---- attention ------------------------------------------------------------------------------- */

/* Inputs an attention node may have after q, k and v. */
typedef enum dra_attend_input {
    DRA_ATTEND_LO,
    DRA_ATTEND_HI,
    DRA_ATTEND_MASK, /* (B, H, T, J), as bias */
    DRA_ATTEND_BIAS,
    DRA_ATTEND_DISTANCE, /* (H, N) */
    DRA_ATTEND_SLOPES,   /* (H) */
    DRA_ATTEND_Q_POS,    /* (B, T) */
    DRA_ATTEND_K_POS,    /* (B, J) */
    DRA_ATTEND_KEY,      /* (4) */
    DRA_ATTEND_ROW,      /* (B) */
    DRA_ATTEND_Q_LEVEL,  /* (B, H, T, P) */
    DRA_ATTEND_K_LEVEL,  /* (B, H, J, P) */
    DRA_ATTEND_PAGES,    /* (B, J / DRA_ATTEND_PAGE) */
    DRA_ATTEND_OPTIONS
} dra_attend_input;

enum { DRA_ATTEND_INPUTS = 3 + DRA_ATTEND_OPTIONS };

typedef struct dra_attend_attr { /* attend, attend_small, their gradients, attend_factors */
    int64_t      B, H, T, J;
    double       scale, softcap, dropout;
    int64_t      always;        /* keys that all see */
    int64_t      distance_zero; /* column of distance 0 */
    uint64_t     path;          /* of the random numbers */
    dra_head_map heads;
    /* BF16: a device may round q, k, v, weights and their gradients to bf16 for its products, as
     * CUDA does; the CPU computes in full precision whatever it says. */
    dra_precision precision;
    bool          late;                   /* the soft cap is that of q.k with all biases */
    int32_t       at[DRA_ATTEND_OPTIONS]; /* which input of the node it is; -1: none */
} dra_attend_attr;

/* Outputs of the gradient of attend. */
enum {
    DRA_ATTEND_DQ,
    DRA_ATTEND_DSLOPES,   /* (B, H, T) */
    DRA_ATTEND_DBIAS,     /* (B, H, T, J) */
    DRA_ATTEND_DDISTANCE, /* (B, H, N) */
    DRA_ATTEND_DK,
    DRA_ATTEND_DV,
    DRA_ATTEND_DQ_LEVEL, /* (B, H, T) */
    DRA_ATTEND_DK_LEVEL, /* (B, H, J) */
    DRA_ATTEND_BACK_OUTPUTS
};

/* ---- recurrences over time ------------------------------------------------------------------- */

/* Tokens of a run: ema and wkv also give the state before each run, for their gradients. */
enum { DRA_RUN = 32 };

/* p of an empty state of wkv, and the running maximum of nothing: -infinity would make NaN. */
#define DRA_WKV_EMPTY ((dra_real)-1e30)

typedef struct dra_ema_attr {
    bool weighted, marked; /* w and mark are there, in this order the last inputs */
} dra_ema_attr;

enum { DRA_CONV_TAPS = 8 }; /* of a conv, at most */

typedef struct dra_conv_attr {
    bool biased, marked; /* bias and mark are there, in this order the last inputs */
} dra_conv_attr;

typedef struct dra_running_sum_attr {
    bool marked; /* mark is the last input */
} dra_running_sum_attr;

typedef struct dra_running_top_attr { /* places among the inputs; 0: it is not there */
    int l, mark;
} dra_running_top_attr;

/* Recurrent cells, see cell.h: gru, slot_gru, lstm and their gradients. */
typedef enum dra_cell_formula { DRA_CELL_GRU, DRA_CELL_LSTM } dra_cell_formula;

typedef struct dra_cell_attr {
    dra_cell_formula formula;
    int              gates;  /* parts of D of x, w h and b */
    int              kept;   /* parts of D that the gradient wants of each token */
    int              states; /* h, which all units of a row see, and c, which only its own sees */
    int64_t          slots;  /* S, each mixed by a number for each token; 0: one state, by (H, D) */
} dra_cell_attr;

enum { DRA_CELL_MOST = 4, DRA_CELL_STATES = 2 }; /* cells of a call, states of a cell */

/* Rows of a group, which shape the gradient of x; units of a block of packed weights. */
enum { DRA_CELL_ROWS = 8, DRA_CELL_UNITS = 16 };

/* Inputs: those of each cell, then mark (B, T). Outputs: those of DRA_CELL_MOST cells. What there
 * is of each state is last. */
enum {
    DRA_CELL_X,      /* (B, T, H, gates D) */
    DRA_CELL_W,      /* (gates D, D) or (H, gates D, D); only the gradient reads it */
    DRA_CELL_MIX,    /* (H, D): 1 - g = sigmoid(-beta); of slots (B, T, H S): u */
    DRA_CELL_PACKED, /* the same as the micro-kernels read it: (sets, blocks, D, gates, UNITS) */
    DRA_CELL_B,      /* (gates D) or (H, gates D) */
    DRA_CELL_BETA,   /* (H, D), or u again; only the gradient reads it */
    DRA_CELL_START   /* (B, H S, D), each state; S = 1 without slots */
};
enum {
    DRA_CELL_H,    /* (B, T, H S, D) */
    DRA_CELL_KEPT, /* (B, T, H S, kept D) */
    DRA_CELL_LAST  /* (B, H S, D), each state */
};

/* The same for the gradient. */
enum {
    DRA_CELL_BACK_H, /* (B, T, H S, D) */
    DRA_CELL_BACK_W, /* with columns of zeros up to a whole block of units */
    DRA_CELL_BACK_MIX,
    DRA_CELL_BACK_START, /* of h; a cell keeps what it needs of c */
    DRA_CELL_BACK_KEPT,
    DRA_CELL_BACK_DH,
    DRA_CELL_BACK_DLAST /* each state */
};
enum {
    DRA_CELL_DX, /* (B, T, H parts, gates D) */
    DRA_CELL_DW,
    DRA_CELL_DB,     /* (sets, gates D) */
    DRA_CELL_DSWING, /* (H, D): dbeta / g; of slots (B, T, H S): du */
    DRA_CELL_DSTART  /* each state */
};

/* Tokens of a chunk of moment, delta and slots (ops/chunked/chunk.h), and of dplr, where pairs of
 * tokens cost more: they give the state before each chunk, for their gradients. */
enum { DRA_CHUNK = 64, DRA_SLOTS_CHUNK = 64, DRA_DPLR_CHUNK = 32 };

#define DRA_CHUNK_RESET (-1e4)  /* the logarithm of a reset: e^-10000 is 0 in any type */
#define DRA_STRONG_DECAY (-0.7) /* below this logarithm (about 1/2) what is left is a product */

/* moment and its gradient. */
enum { DRA_MOMENT_Q, DRA_MOMENT_K, DRA_MOMENT_V, DRA_MOMENT_OPTIONS };
/* Outputs of the gradient. */
enum {
    DRA_MOMENT_DQ,
    DRA_MOMENT_DK,
    DRA_MOMENT_DV,
    DRA_MOMENT_DL,
    DRA_MOMENT_DS,
    DRA_MOMENT_DZ,
    DRA_MOMENT_BACK_OUTPUTS
};

typedef struct dra_moment_attr { /* places among the inputs; 0: it is not there */
    double eps, least;
    bool   normalise, jumps;
    int    l, mark;
    int    S, z;                      /* the first state; backward: gradients of the last one */
    int    dy, y, borders, z_borders; /* backward only */
} dra_moment_attr;

/* delta and its gradient. */
typedef struct dra_delta_attr { /* places among the inputs; 0: it is not there */
    int l, mark;
    int S; /* the first state; backward: the gradient of the last one */
} dra_delta_attr;

/* Inputs of the gradient before its options. */
enum {
    DRA_DELTA_BACK_Q,
    DRA_DELTA_BACK_K,
    DRA_DELTA_BACK_B,
    DRA_DELTA_BACK_MISS,
    DRA_DELTA_BACK_BORDERS,
    DRA_DELTA_BACK_DY,
    DRA_DELTA_BACK_OPTIONS
};
/* And its outputs. */
enum {
    DRA_DELTA_DQ,
    DRA_DELTA_DK,
    DRA_DELTA_DV,
    DRA_DELTA_DB,
    DRA_DELTA_DL,
    DRA_DELTA_DS,
    DRA_DELTA_BACK_OUTPUTS
};

/* dplr and its gradient: moments and delta rules that fade by channel (ops/chunked/dplr.h). */
enum { DRA_DPLR_Q, DRA_DPLR_K, DRA_DPLR_V, DRA_DPLR_OPTIONS };
/* Outputs, and those of the gradient. */
enum { DRA_DPLR_Y, DRA_DPLR_LAST, DRA_DPLR_RECALLED, DRA_DPLR_BORDERS, DRA_DPLR_OUTPUTS };
enum {
    DRA_DPLR_DQ,
    DRA_DPLR_DK,
    DRA_DPLR_DV,
    DRA_DPLR_DL,
    DRA_DPLR_DU,
    DRA_DPLR_DA,
    DRA_DPLR_DC,
    DRA_DPLR_DS,
    DRA_DPLR_BACK_OUTPUTS
};

typedef struct dra_dplr_attr { /* places among the inputs; 0: it is not there */
    int l, u, a, c, mark;
    int S;                     /* the first state; backward: the gradient of the last one */
    int dy, recalled, borders; /* backward only */
} dra_dplr_attr;

/* slots and its gradient. */
typedef struct dra_slots_attr {
    dra_slots_read read;
    int            keys, values, mark; /* which inputs they are; 0: none */
    int            dlse, dmean;        /* the same, of the gradient */
} dra_slots_attr;

/* Inputs, forward and backward; backward then has those of the second list, and options. */
enum {
    DRA_SLOTS_Q, /* (B, T, H, D) */
    DRA_SLOTS_K,
    DRA_SLOTS_V, /* (B, T, H, E) */
    DRA_SLOTS_L, /* (B, T, H, S) */
    DRA_SLOTS_U,
    DRA_SLOTS_INPUTS
};
enum {
    DRA_SLOTS_P_BORDERS = DRA_SLOTS_INPUTS, /* (B, H, chunks + 1, S, D): before each, at the end */
    DRA_SLOTS_Q_BORDERS,
    DRA_SLOTS_LOGITS, /* (B, readers, T, slots that each reads) */
    DRA_SLOTS_DY,
    DRA_SLOTS_DP, /* of the last slots */
    DRA_SLOTS_DQ,
    DRA_SLOTS_BACK_INPUTS
};
enum { DRA_SLOTS_BACK_OUTPUTS = DRA_SLOTS_INPUTS + 2 }; /* of the inputs, then dP and dQ */

/* ---- sampling -------------------------------------------------------------------------------- */

typedef struct dra_sample_attr {
    int bias, allowed, seen; /* which inputs they are; 0: none */
} dra_sample_attr;

enum { DRA_SAMPLE_LOGITS, DRA_SAMPLE_ROWS, DRA_SAMPLE_INPUTS }; /* then options */

typedef struct dra_logprobs_attr {
    int64_t most;
} dra_logprobs_attr;

/* ---- optimizer ------------------------------------------------------------------------------- */

typedef struct dra_step_factor_attr {
    double clip;
} dra_step_factor_attr;

#endif
