/* dra/stack.h - sublayers: a core with the norms, shift and residual around it.
 *
 *   u = shift(norm(x));  o = core(u);  x = norm(residual(norm(o), x))
 * where each norm, the shift and the kind of residual are choices, see docs/stacks.md. A core is a
 * mixer (dra/memory.h) or a feed-forward. Models are lists of sublayers (dra/model.h).
 * Threads: a sublayer is read-only once created. */
#ifndef DRA_STACK_H
#define DRA_STACK_H

#include "dra/memory.h"
DRA_BEGIN_C

/* ---- norms, over channels -------------------------------------------------------------------- */

typedef enum dra_norm_kind {
    DRA_NORM_RMS,   /* x / sqrt(mean x^2 + eps) g             */
    DRA_NORM_LAYER, /* (x - mean) / sqrt(variance + eps) g + b */
    DRA_NORM_UNIT,  /* x / max(|x|, 1e-12) sqrt(C) g           */
    DRA_NORM_TANH,  /* tanh(a x) g + b, a one learned number [Zhu et al. 2025] */
    DRA_NORM_NONE
} dra_norm_kind;
typedef enum dra_gain_kind {
    DRA_GAIN_CHANNEL,
    DRA_GAIN_SCALAR,
    DRA_GAIN_NONE,
    DRA_GAIN_CONDITION, /* 1 + W c, of a vector c for each text; W starts as 0 */
    DRA_GAIN_COUNT
} dra_gain_kind;

typedef struct dra_norm_config {
    dra_norm_kind kind;
    dra_gain_kind gain;      /* g for each channel, one for all, or 1 */
    dra_switch    bias;      /* b of layer and tanh; default on       */
    bool          offset;    /* what is stored and trained is g - 1, and a less its first value */
    double        eps;       /* 0: 1e-5                               */
    int64_t       condition; /* how wide c is, of gains and of branches; 0: there is none */
    double        alpha;     /* of tanh: the first value of a; 0: 1   */
} dra_norm_config;

/* ---- feed-forwards --------------------------------------------------------------------------- */

typedef enum dra_ff_kind {
    DRA_FF_GELU,   /* W_down gelu_tanh(W_up x), as GPT-2                                   */
    DRA_FF_ERF,    /* the same with the exact gelu                                         */
    DRA_FF_RELU,   /* with relu                                                            */
    DRA_FF_RELU2,  /* with its square                                                      */
    DRA_FF_SWIGLU, /* W_down (W_up x * silu(W_gate x))                                     */
    DRA_FF_MIX,    /* RWKV's channel mix: sigmoid(W_r x_r) * W_down relu2(W_up x_k)        */
    DRA_FF_NONE,
    DRA_FF_SILU, /* W_down silu(W_up x) */
    DRA_FF_COUNT
} dra_ff_kind;
typedef enum dra_ff_bias {
    DRA_FF_BIAS_MODEL, /* as the model's projections, but none of a gate */
    DRA_FF_BIAS_ALL,
    DRA_FF_BIAS_NO,
    DRA_FF_BIAS_IN, /* of W_up and W_gate, not of W_down */
    DRA_FF_BIAS_COUNT
} dra_ff_bias;

/* A mixture of experts: a router chooses for each token, p = softmax(W_router x) over all of them,
 * the `top` largest, ties by number; y = sum of p_e expert_e(x), in the order of numbers, (+ the
 * shared expert). Experts are feed-forwards of the kind and the width of the config, without biases.
 */
typedef struct dra_experts_config {
    int64_t count;       /* 0: one feed-forward for all tokens */
    int64_t top;         /* experts that a token has           */
    int64_t shared;      /* inner width of an expert that all tokens have; 0: none */
    bool    normalise;   /* their p are divided by their sum   */
    bool    shared_gate; /* what that adds is multiplied by sigmoid(w x)           */
} dra_experts_config;

typedef struct dra_ff_config {
    dra_ff_kind kind;
    dra_ff_bias bias;
    int64_t     dim;      /* inner width; 0: 4 C, of swiglu 8/3 C up to a multiple of 64    */
    double      dropout;  /* of what W_down reads, when learning                            */
    bool        gated;    /* W_down (W_up x * act(W_gate x)) of gelu, erf, relu, relu2, silu */
    bool        act_norm; /* a layer norm with gains, without bias, after the activation    */
    bool        lerp;     /* mix: x_k is x + mu (before - x), not mu x + (1 - mu) before (RWKV-6) */
    bool        gate_scale; /* gated: the product is multiplied by a learned factor per channel  */
    dra_switch  receptance; /* mix: default on; off: W_down relu2(W_up x_k) alone (RWKV-7)       */
    dra_experts_config experts;
} dra_ff_config;

/* ---- what stands around a core --------------------------------------------------------------- */

typedef enum dra_place_kind {
    DRA_PLACE_PRE,  /* norm before the core              */
    DRA_PLACE_POST, /* norm after the residual           */
    DRA_PLACE_DUAL, /* as post; the sum of all o is normalised and added at the end (ResiDual) */
    DRA_PLACE_NONE, /* none of the stream; what the core adds may be normed, see branch_norm */
    DRA_PLACE_COUNT
} dra_place_kind;
typedef enum dra_join_kind {
    DRA_JOIN_ADD,
    DRA_JOIN_GRU, /* a GRU cell with input o and state r */
    DRA_JOIN_NONE /* x = o; only of a sublayer by itself */
} dra_join_kind;

/* How a sublayer weighs the streams before it and all earlier ones. */
typedef enum dra_integrate_kind {
    DRA_INTEGRATE_NONE, /* it reads the one before it */
    DRA_INTEGRATE_SOFTMAX,
    DRA_INTEGRATE_RELU,
    DRA_INTEGRATE_COUNT
} dra_integrate_kind;

typedef struct dra_block_config {
    dra_place_kind norm;
    bool           memory_residual; /* adds the memory's values (ADR's Law 5) */
    bool           project;         /* through a learned map                  */
    bool           branch_norm;     /* normalises what the core adds, too (sandwich norm) */
    dra_join_kind  residual;
    bool           residual_scale;  /* the stream is multiplied by a learned factor per channel */
    double         residual_factor; /* of the stream, add; 0: 1 [Wang et al. 2022: DeepNet] */
    double         dual_scale;      /* of dual's sum; 0: 1                                      */
    bool           macaron;         /* feed-forwards add half                                   */
    int64_t        shift; /* channels in shift + 1 parts, part i from i tokens before; whole: parts
                             from `shift` tokens after to as many before, 2 shift + 1            */
    double         drop;  /* the probability that the sublayer is left out, when learning        */
    bool           branch_scale;        /* what the core adds is multiplied by learned factors */
    double         branch_scale_start;  /* which start as this (LayerScale) */
    bool           branch_scale_offset; /* and are stored as factor - 1 */
    int64_t        streams; /* residual streams, between which sublayers choose (hyper-connections);
                               0: 1 */
    bool           zero_out; /* W_o and W_down, and their biases, start as 0: nothing is added */
    bool   branch_gate;   /* what the core adds is multiplied by sigmoid(W c + b), c the condition
                                   of the text; W starts as 0, b as -2 (as DiT's adaLN-Zero) */
    double branch_factor; /* what the core adds is multiplied by it; 0: 1 */
    dra_integrate_kind integrate; /* it reads a mixture of all streams so far (LIMe) */
    bool               post_norm; /* norm pre: the stream is normalised after the residual, too */
} dra_block_config;

typedef enum dra_sublayer_kind {
    DRA_SUBLAYER_MIXER,
    DRA_SUBLAYER_FF,
    DRA_SUBLAYER_CROSS, /* a mixer over the context */
    DRA_SUBLAYER_KINDS
} dra_sublayer_kind;

typedef struct dra_sublayer_config {
    dra_sublayer_kind kind;
    dra_norm_config   norm;
    dra_block_config  block;
    double            rescale; /* reading: x counts as divided by it, see dra_model_config; 0: 1 */
    double            dropout; /* of o, when learning */
    dra_mixer_config  mixer;   /* of either kind: dim, bias, init, whole; of mixers all */
    dra_ff_config     ff;
    int64_t           depth; /* W_down starts smaller by sqrt(2 depth); 0: 1 / 2 */
    int64_t           index; /* its number: of several streams it first reads number index mod S */
    bool              views; /* integrate, of a mixer: keys and values have mixtures of their own */
} dra_sublayer_config;

typedef struct dra_sublayer dra_sublayer; /* opaque */

/* Impossible choices are refused here, by name. */
DRA_API dra_status dra_sublayer_create(const dra_sublayer_config *config, dra_sublayer **out,
                                       dra_error *err);
DRA_API void       dra_sublayer_destroy(dra_sublayer *s); /* NULL is allowed */

/* As a module: input "x" (B, T, C), of several streams (B, T, S, C), with a condition also
 * "condition" (B, width); outputs "y", and those of a mixer. */
DRA_API const dra_module          *dra_sublayer_module(const dra_sublayer *s);
DRA_API const dra_sublayer_config *dra_sublayer_config_of(const dra_sublayer *s);
DRA_API const dra_mixer           *dra_sublayer_mixer(const dra_sublayer *s); /* or NULL */

typedef struct dra_sublayer_result {
    dra_value        y;      /* (B, T, C): the stream after it; several: (B, T, S, C) */
    dra_value        branch; /* (B, T, C): o, what it adds; a mixer's is 0 at pads */
    dra_mixer_result mixer;  /* what a mixer shows; of feed-forwards auxiliary losses alone */
} dra_sublayer_result;

/* As part of a larger graph. */
DRA_API dra_sublayer_result dra_sublayer_build(dra_graph *g, const dra_sublayer *s,
                                               const dra_module_call *call, dra_value x,
                                               dra_channels *channels, dra_value *state_out);

DRA_END_C
#endif
