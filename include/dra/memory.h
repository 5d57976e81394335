/* dra/memory.h - sequence mixers: encode, remember, retrieve.
 *
 * A mixer turns x (B, T, C) into y (B, T, C):
 *   encode    q, k, v = projections of x, split into H heads
 *   remember  a memory turns the streams k and v into streams of items by a causal recurrence
 *   retrieve  a query reads items: a softmax over time or a window, or the memory's own formula
 * Memories and retrievals are tables: a user's own memory is one more table, see dra_memory.
 * Names of parameters and states are those of docs/memories.md.
 * Threads: a mixer is read-only once created. */
#ifndef DRA_MEMORY_H
#define DRA_MEMORY_H

#include "dra/sequence.h"
DRA_BEGIN_C

typedef enum dra_switch { DRA_DEFAULT, DRA_ON, DRA_OFF } dra_switch;

/* ---- decay: gamma = sigmoid(beta), always in (0, 1) ------------------------------------------ */

typedef enum dra_gamma_per { DRA_PER_HEAD, DRA_PER_CHANNEL, DRA_PER_COUNT } dra_gamma_per;
typedef enum dra_gamma_start {
    DRA_GAMMA_HALFLIFE, /* half-lives 2^lo .. 2^hi, spaced evenly in log2 over heads and units */
    DRA_GAMMA_EFOLD,    /* the same for the time 1 / ln(1/gamma)                               */
    DRA_GAMMA_CONST,    /* `value` for all                                                     */
    DRA_GAMMA_COUNT
} dra_gamma_start;

typedef struct dra_gamma_config {
    dra_gamma_per   per;
    dra_gamma_start start;
    double          value;    /* in (0, 1), for DRA_GAMMA_CONST                             */
    bool            ranged;   /* `range` is given; else it follows from the retrieval       */
    double          range[2]; /* lo, hi: log2 of steps                                      */
    double          depth[2]; /* half-lives of layer l of L are 2^(lo + (hi-lo) l/(L-1)) longer */
    int             layer, layers;
    dra_switch      learn; /* default on */
    bool            share; /* ema: keys and values have one */
} dra_gamma_config;

/* ---- one memory with its retrieval ----------------------------------------------------------- */

typedef struct dra_memory dra_memory;
typedef struct dra_part   dra_part; /* opaque: a struct of options, and what describes it */

typedef enum dra_phi_kind {
    DRA_PHI_ELU1, /* elu(x) + 1                                        */
    DRA_PHI_RELU,
    DRA_PHI_EXP,
    DRA_PHI_FAVOR, /* random features whose products stand for e^(q.k) */
    DRA_PHI_IDENTITY,
    DRA_PHI_COUNT
} dra_phi_kind;
typedef enum dra_decay_kind {
    DRA_DECAY_NONE,
    DRA_DECAY_FIXED,
    DRA_DECAY_DATA,
    DRA_DECAY_COUNT
} dra_decay_kind;
/* ln(lambda) of what is learned, z: a parameter, or W x and a bias. */
typedef enum dra_decay_form {
    DRA_FORM_SIGMOID,  /* ln sigmoid(z), by data over 16: slow at first */
    DRA_FORM_EXP,      /* -e^z, as RWKV 4 to 6 have it                  */
    DRA_FORM_BOUNDED,  /* -e^(-1/2) sigmoid(z), as RWKV-7: lambda > 0.545 */
    DRA_FORM_SOFTPLUS, /* -e^A_log softplus(z), of heads by data: its rate is softplus(z) */
    DRA_FORM_COUNT
} dra_decay_form;
/* What a token reads of itself: (q.(u k)) v, u for each head or each channel of a key. */
typedef enum dra_bonus_kind {
    DRA_BONUS_NONE,
    DRA_BONUS_HEAD,
    DRA_BONUS_CHANNEL,
    DRA_BONUS_COUNT
} dra_bonus_kind;
typedef enum dra_transition_kind {
    DRA_TRANSITION_STRENGTH, /* S lambda (I - b k k^T): the delta rule                     */
    DRA_TRANSITION_DIAGONAL, /* diag(lambda) - (a kk) kk^T: what is recalled by kk, its own key, is
                                taken off at a rate a of each channel (RWKV-7)             */
    DRA_TRANSITION_COUNT
} dra_transition_kind;
typedef enum dra_gate_kind {
    DRA_GATE_DEFAULT, /* fixed for one slot, routed for several            */
    DRA_GATE_FIXED,
    DRA_GATE_ROUTED, /* slots compete for each write                       */
    DRA_GATE_GATED,
    DRA_GATE_COUNT
} dra_gate_kind;
typedef enum dra_candidate_kind {
    DRA_CANDIDATE_TOKEN,
    DRA_CANDIDATE_GRU,
    DRA_CANDIDATE_COUNT
} dra_candidate_kind;
typedef enum dra_slots_kind { DRA_SLOTS_OWN, DRA_SLOTS_ALL, DRA_SLOTS_COUNT } dra_slots_kind;
typedef enum dra_recurrent_kind {
    DRA_RECURRENT_PLAIN,        /* W_h as it is                                                 */
    DRA_RECURRENT_SPECTRAL,     /* W_h / max(1, its largest singular value)                     */
    DRA_RECURRENT_WEIGHT,       /* rows g w / |w| with lengths g of their own, from 1 / sqrt(3) */
    DRA_RECURRENT_SPECTRAL_ALL, /* spectral, and the same of W_i, which takes x in          */
    DRA_RECURRENT_COUNT
} dra_recurrent_kind;

typedef enum dra_item_norm {
    DRA_ITEM_RMS,  /* x / sqrt(mean x^2 + 1e-6) gain                      */
    DRA_ITEM_LAYER /* (x - mean) / sqrt(variance + 1e-5) gain + bias      */
} dra_item_norm;

/* Options that only some memories have, see dra_memory.parts; others refuse them. */
typedef struct dra_ema_options {
    int64_t timescales; /* M of them; 0: 1 */
} dra_ema_options;

typedef struct dra_ssm_options {
    int64_t modes; /* N of each channel; 0: 4 */
} dra_ssm_options;

typedef struct dra_cell_options { /* of gru, lstm, and slots with candidate gru */
    bool               per_head;  /* a cell for each head */
    dra_recurrent_kind recurrent; /* what is done to their matrices W_h */
} dra_cell_options;

typedef struct dra_slots_options {
    int64_t            count; /* S for each head; 0: 1. JSON: "slots" */
    dra_gate_kind      gate;
    dra_candidate_kind candidate;
    double             tau; /* of routed gates; 0: 4 */
    bool               tau_learned, slot_decay;
} dra_slots_options;

typedef struct dra_moment_options {
    dra_phi_kind phi;
    int64_t      features;  /* of favor; 0: 2 D */
    dra_switch   normalise; /* default: on but for identity */
    bool         skip;      /* adds D v of a token's own value, D learned for each head, 1 first */
} dra_moment_options;

typedef struct dra_lambda_options { /* of moment and delta: what their matrix keeps */
    dra_decay_kind decay;
    dra_decay_form decay_form;
    int64_t        decay_rank;  /* by data: z = b + W_2 tanh(W_1 x) through this many; 0: W x */
    dra_bonus_kind bonus;       /* moment: a token is read before it is written, and with u as it
                                  is; delta: per channel, added after the head norm */
    bool           bonus_exp;   /* moment: u is e^ of what is learned */
    bool           rate_values; /* moment: values are times the rate of decay_form softplus */
    double         rate_least, rate_most; /* softplus: the rate is kept within; 0: 0, infinity */
} dra_lambda_options;

typedef struct dra_delta_options {
    dra_transition_kind transition;
    int64_t             rate_rank; /* diagonal: a = sigmoid(b + W_2 W_1 x); 0: W x */
    /* Of the delta rule itself: b is sigmoid(W_b x) times this, 0: 1; the epsilon of keys and
     * queries of unit length, 0: 1e-12; queries over sqrt(D). */
    double strength, unit_eps;
    bool   scale_queries;
} dra_delta_options;

typedef struct dra_shortconv_options {
    int64_t taps; /* tokens that it sees, 2 to 8; 0: 3 */
} dra_shortconv_options;

enum { DRA_OPTIONS_BYTES = 128 }; /* the most that options of a program's own memory have */

typedef struct dra_memory_config {
    const char       *memory;    /* "append", "ema", "ssm", "gru", "lstm", "moment", "delta", "wkv",
                                    "slots", "shortconv"; NULL: append                      */
    const dra_memory *own;       /* a user's own table instead                              */
    const char       *retrieval; /* "time", "window", "slots-own", "slots-all", "pooled", "none",
                                    "joint", "formula"; NULL: the memory's first            */
    int64_t           window;    /* items a query sees; 0: all                              */
    dra_gamma_config  gamma;
    bool              joined;    /* one state for keys and values: m = Psi(m, g(k, v))      */
    int64_t           dim;       /* its width R, with learned maps; 0: D + E, plain halves  */
    dra_switch        head_norm; /* normalise each head's output; default: on for moment without
                                    normalise                                               */
    dra_slots_kind    joint;     /* which slots a joint retrieval reads                     */
    bool              steps;     /* run the step over time, not the fused form: the oracle  */
    bool              norm;      /* items and slots normalised as they are read, with gains */

    dra_ema_options       ema;
    dra_ssm_options       ssm;
    dra_cell_options      cell;
    dra_moment_options    moment;
    dra_lambda_options    lambda;
    dra_delta_options     delta;
    dra_shortconv_options shortconv;
    dra_slots_options     slots;
    bool pi; /* slots, of any memory read slot by slot, are read through learned maps
                              pi_k (D, D), pi_v (E, E), which start as the identity           */

    /* Items are read through learned maps of each head, key = kappa m_k and value = nu m_v, which
     * start as the identity. Not with dim, which brings its own. */
    bool          maps;
    dra_item_norm norm_kind;     /* of norm */
    double        head_norm_eps; /* 0: 1e-5 */

    uint64_t options[DRA_OPTIONS_BYTES / 8]; /* of `own`, see dra_memory_set_options() */
} dra_memory_config;

/* ---- a mixer --------------------------------------------------------------------------------- */

/* Of softmax reads over items, retrieval time or window; others refuse them. */
typedef struct dra_attention_options {
    int64_t mem_kv;          /* learned keys and values that every query sees besides */
    bool    mem_whole;       /* unit: their keys are normalised as a whole, not in groups */
    int64_t topk;            /* of the scores only those >= the k-th largest count; 0: all */
    bool    topk_straight;   /* gradient as if all counted */
    bool    hard;            /* only the largest counts; gradient of the softmax */
    bool    talk_before;     /* heads mix their scores */
    bool    talk_after;      /* heads mix their weights */
    bool    residual_scores; /* adds the scores of the attention sublayer before */
    double  softcap;         /* scores s become cap tanh(s / cap); 0: no cap */
    bool    softcap_late;    /* softcap acts after biases by distance and earlier scores */
    bool    sink; /* a learned logit for each head joins the softmax, its weight is lost */
    /* Forgetting attention [Lin et al. 2025]: scores of item j for token i get the sum of ln f over
     * tokens after j up to i, f = sigmoid(W_f x + b_f) for each head; b_f starts at 5: it keeps. */
    bool forget;
    bool l2; /* scores are -|q - k|^2 in place of q.k [Kim, Papamakarios, Mnih 2021] */
    /* Values are e^(c tanh(v / c)) with c = laser_cap, what is read the logarithm of their mean
     * [Duvvuri and Dhillon 2024]. */
    bool   laser;
    double laser_cap; /* 0: 15 */
    /* Contextual positions [Golovneva et al. 2024]: so many learned vectors that queries are
     * multiplied with; which one a key gets is counted by sigmoids of the scores. 0: none. */
    int64_t cope;
    /* Selective attention [Leviathan et al. 2024]: scores above 0 of the first head are taken from
     * those that later queries have for the same item, of the first so many items of a text but the
     * very first. 0: none. */
    int64_t selective;
    bool    sigmoid; /* weights are sigmoids of the scores, no softmax [Ramapuram et al. 2024] */
    bool
        mean_unseen; /* a query that sees nothing reads the mean of all values so far, also of those
                         that were not written, not 0; causal */
    bool zero_kv;    /* a key and a value of zeros that every query sees [Miller 2023] */
} dra_attention_options;

/* Multi-latent attention, of memory append: keys and values are made of c = W_c x, of width kv,
 * which the state keeps instead; keys of the last `rope` heads are made of x and alone may rotate.
 * Queries are made of W_cq x of width q. 0: none of it. JSON: "latent_kv", ... */
typedef struct dra_latent_options {
    int64_t kv, q, rope;
} dra_latent_options;

/* A convolution of queries, keys and values, each channel by itself, then SiLU. Memories moment and
 * delta. JSON: "conv", "conv_bias". */
typedef struct dra_conv_options {
    int64_t width; /* tokens that it sees, 2 to 8; 0: none */
    bool    bias;
} dra_conv_options;

/* An RMS norm of what heads answer. JSON: "out_norm", "out_norm_groups", ... */
typedef enum dra_out_norm_place {
    DRA_OUT_NORM_NONE,
    DRA_OUT_NORM_BEFORE, /* the gate */
    DRA_OUT_NORM_AFTER,
    DRA_OUT_NORM_COUNT
} dra_out_norm_place;

typedef struct dra_out_norm_options {
    dra_out_norm_place place;
    int64_t            groups; /* of channels, each normed by itself; 0: heads */
    bool               gains;  /* of all channels; else groups share those of one */
    double             eps;    /* 0: 1e-5 */
} dra_out_norm_options;

/* Which share the token before has in what q, k, v, decays, rates and gates see of x. */
typedef enum dra_shift_kind {
    DRA_SHIFT_NONE,
    DRA_SHIFT_HALF, /* half of the channels are its                                            */
    DRA_SHIFT_MIX,  /* q, k, v, gates silu and rank: mu x + (1 - mu) before; all else sees x    */
    DRA_SHIFT_LERP, /* each: x + mu (before - x)                                               */
    DRA_SHIFT_DATA, /* each: the same with mu + B tanh(A (x + mu_x (before - x))), of shift_rank */
    DRA_SHIFT_COUNT
} dra_shift_kind;

typedef enum dra_blend_kind {
    DRA_BLEND_NONE,
    DRA_BLEND_NUMBER,  /* a is `blend_value`                       */
    DRA_BLEND_INPUT,   /* a is the input "blend", a real scalar    */
    DRA_BLEND_LEARNED, /* a is learned, one for each head           */
    DRA_BLEND_COUNT
} dra_blend_kind;

/* How q, k and v are normalised, each head's channels by themselves. */
typedef enum dra_qkv_norm {
    DRA_QKV_RMS,
    DRA_QKV_LAYER,
    DRA_QKV_UNIT, /* to length 1: scores are cosines */
    DRA_QKV_NORM_COUNT
} dra_qkv_norm;
typedef enum dra_qkv_gain {
    DRA_QKV_SHARED, /* (D): all heads have the same gains */
    DRA_QKV_HEADS,  /* (H, D)                             */
    DRA_QKV_NONE,
    DRA_QKV_GAIN_COUNT
} dra_qkv_gain;
typedef enum dra_value_gate {
    DRA_GATE_NONE,
    DRA_GATE_BIASED,      /* heads * sigmoid(W x + b), b starts at 10: open */
    DRA_GATE_PLAIN,       /* without b: half open at first                   */
    DRA_GATE_SILU,        /* heads * silu(W x)                               */
    DRA_GATE_RANK,        /* heads * W_2 sigmoid(W_1 x), of gate_rank        */
    DRA_GATE_SILU_BIASED, /* heads * silu(W x + b), W 0 and b 10 at first  */
    DRA_VALUE_GATE_COUNT
} dra_value_gate;
/* Hybrid gated attention: with gate_values plain, or without gates of x, heads are multiplied by
 * sigmoid(W x + W' heads). Maps are of low rank, W_2 silu(W_1 .), where they have one. */
typedef struct dra_gate_options {
    bool    heads;  /* gate_values plain: one number for each head, not for each channel */
    bool    linear; /* low rank: W_2 W_1, without silu */
    bool    output; /* there is W', of the heads as they are read */
    bool    output_heads;
    int64_t output_rank; /* of W'; 0: one matrix */
} dra_gate_options;
/* What a mixer does with the values of the first one, v = v_1 + a (v - v_1) [Zhou et al. 2024]. */
typedef enum dra_value_residual {
    DRA_VALUES_OWN,     /* nothing: it has its own                                */
    DRA_VALUES_HALF,    /* a is 1/2                                               */
    DRA_VALUES_LEARNED, /* a = sigmoid(W_mix x + b_mix), one for each head       */
    DRA_VALUES_CHANNEL, /* 1 - a = sigmoid(b + W_2 W_1 x), of value_rank, for each channel; x as
                           values see it. The first mixer has no such parameters (RWKV-7) */
    DRA_VALUES_COUNT
} dra_value_residual;
typedef enum dra_init_kind {
    DRA_INIT_NORMAL,  /* normal, 1 / sqrt(inputs), smaller where it writes to the stream */
    DRA_INIT_UNIFORM, /* matrices and biases uniform within 1 / sqrt(inputs), as PyTorch */
    DRA_INIT_COUNT
} dra_init_kind;

/* Which of the four projections have biases. */
typedef enum dra_mixer_bias {
    DRA_BIAS_MODEL, /* all, or none: as `bias` says */
    DRA_BIAS_ALL,
    DRA_BIAS_NO,
    DRA_BIAS_QKV, /* those of queries, keys and values, not that of the output */
    DRA_BIAS_COUNT
} dra_mixer_bias;

/* Which norms the sublayers of its layer have. */
typedef enum dra_layer_norms {
    DRA_LAYER_NORMS_MODEL,  /* as the block of the model says */
    DRA_LAYER_NORMS_PRE,    /* of what they read */
    DRA_LAYER_NORMS_BRANCH, /* of what they add */
    DRA_LAYER_NORMS_COUNT
} dra_layer_norms;

typedef struct dra_mixer_config {
    int64_t           dim, heads;         /* C, H                                  */
    int64_t           key_dim, value_dim; /* D, E for each head; 0: C / H, and D   */
    bool              bias;               /* of the four projections               */
    dra_shift_kind    shift;              /* mixes the token before into x         */
    bool              qk_norm;            /* q and k normalised over D, with gains */
    bool              v_norm;             /* v normalised over E, with a gain      */
    bool              rotary;             /* rotates queries and items by position */
    double            score_scale;        /* of q.k over items; 0: 1 / sqrt(D)     */
    dra_memory_config a;                  /* the memory                            */

    /* Blend: y = a y_A + (1-a) y_B of two memories that share the projections. */
    dra_blend_kind    blend;
    double            blend_value;
    dra_memory_config b;

    /* W_k starts normal with it, W_q with 1 / (C key_std), so that the logits of normed x start
     * with variance 1; 0: 1 / sqrt(C). */
    double   key_std;
    double   out_gain;          /* W_o starts normal with this over sqrt(its inputs); 0: 1 */
    double   attention_dropout; /* of weights over items, when learning */
    uint32_t aux;               /* bits 1 << dra_aux_kind: what to measure for the loss */
    bool     maps;              /* puts out what was attended to and written              */
    bool     blend_given;       /* a model's schedule starts at blend_value though it is 0 */
    bool     gives_memory;      /* the result has h, the memory's values of all heads     */
    bool     bf16_items;        /* attention keeps its items in bf16: not for learning    */

    dra_attention_options attention;
    dra_latent_options    latent;

    /* ---- heads, what is made of them, and what they see */
    int64_t           kv_heads;      /* K heads of keys and values, a divisor of H; 0: H */
    dra_head_map      kv_order;      /* query head h reads head h / (H/K) of them, or h mod K */
    dra_qkv_norm      qkv_norm;      /* how qk_norm and v_norm do it */
    dra_qkv_gain      qkv_gain;      /* of q and k */
    double            qk_gain_start; /* 0: 1 */
    int64_t           qk_groups;     /* unit: of each of these parts of a head's channels; 0: 1 */
    bool              head_scale;    /* a factor for each head's output */
    bool              head_gate;     /* heads are multiplied by sigmoid(W x + b), one for each; open
                                        at first: W is 0, b 10 [Bondarenko et al. 2023] */
    dra_value_gate    gate_values;   /* heads are multiplied by a gate made of x */
    bool              out_glu;       /* W_o gives 2 C: a sigmoid(b) (attention on attention) */
    bool              whole;         /* a query sees later tokens too: for encoders */
    bool              prefix;        /* it does so within the prefix of a sequence  */
    int64_t           rotary_heads;  /* only the last ones are rotated; 0: all */
    dra_rotary_config turn;          /* how; what reads items chooses xpos_center and xpos_invert */
    dra_init_kind     init;
    bool              context; /* keys and values are those of the context, not of tokens: memory
                                   append, retrieval time; what a query sees has no positions     */
    int64_t           context_dim; /* its width; 0: dim */
    /* Transformer-XL: segments of this many tokens, each of which sees this many rows of memory: of
     * what the sublayer was fed before. Memory append, retrieval time; 0: none. */
    int64_t            xl_segment, xl_memory;
    dra_value_residual value_residual; /* the first mixer that has it hands its values on */
    bool               zero_out;       /* W_o and its bias start as 0 */

    int64_t shift_rank, gate_rank, value_rank; /* of low-rank maps; value_rank 0: one matrix */

    dra_mixer_bias biases;
    bool           qk_whole;       /* qk_norm is over the channels of all heads at once */
    bool           qk_gain_offset; /* gains of q and k are stored as gain - 1 */
    double         qkv_eps;        /* of qkv_norm rms and layer; 0: 1e-6 and 1e-5 */
    double         query_gain;     /* W_q starts normal, this many times as large; 0: 1 */

    /* Heads of queries and keys, of memories moment and delta, a divisor of H: head h of values has
     * those of h / (H / key_heads); 0: H. */
    int64_t              key_heads;
    dra_conv_options     conv;
    dra_out_norm_options out_norm;
    dra_layer_norms      norms;
    dra_gate_options     gate;
} dra_mixer_config;

/* Add-ons of a loss: scalars with a gradient, each a mean, so that a weight keeps its meaning. m is
 * the state of the memory after each token, without running maxima. Means are over numbers of the
 * state, real tokens and the batch, or gammas, pairs of them, heads, matrices; in a blend over the
 * memories that have it. */
typedef enum dra_aux_kind {
    DRA_AUX_DRIFT,     /* "drift":     (m_t - m_{t-1})^2                                    */
    DRA_AUX_BUDGET,    /* "budget":    gamma                                                */
    DRA_AUX_DIVERSITY, /* "diversity": -(gamma_i - gamma_j)^2, i < j                        */
    DRA_AUX_SIZE,      /* "size":      m_t^2                                                */
    DRA_AUX_ENTROPY,   /* "entropy":   ln S - the entropy of the mean write weight of slots */
    DRA_AUX_ATTENTION, /* "z_loss":    (ln sum e^scores)^2, summed over heads, of what a query
                           reads of items [Zoph et al. 2022]                              */
    DRA_AUX_SPECTRAL,  /* "spectral":  max(0, s - 1)^2, s the largest singular value of W_h */
    DRA_AUX_BALANCE, /* "balance":   n sum_e f_e p_e, f the share of tokens that have expert e, p the
                          mean p of the router [Fedus et al. 2022: Switch Transformers]; of
                          feed-forwards, not of mixers                                     */
    DRA_AUX_COUNT
} dra_aux_kind;

DRA_API const char *dra_aux_name(dra_aux_kind kind);

/* What a mixer can show, 0 at pads. Rows are the learned keys (mem_kv), then the items of the state
 * and of the call; with joint the slots follow. Attention is what multiplies the values: after
 * top-k, hard choices and talking heads, but as if nothing were dropped out. */
typedef enum dra_show_kind {
    DRA_SHOW_ATTENTION, /* "attention": (B, H, T, rows), slots (B, H, T, S), of all (B, H, T, H S);
                           of pooled one softmax over (H, S) for each token                   */
    DRA_SHOW_WRITE,     /* "write":     (B, T, H, S), the weight of each write of slots        */
    DRA_SHOW_OCCUPANCY, /* "occupancy": (B, T, H, S), the share of a slot that was written since
                           the call, or a reset in it, began                                  */
    DRA_SHOW_SCORES,    /* "scores":    shaped as attention, the logits of its softmax, with those
                           of the layer before (residual_scores), heads mixed and biases added;
                           DRA_MASKED where nothing is seen and at pads                       */
    DRA_SHOW_COUNT
} dra_show_kind;

typedef struct dra_mixer dra_mixer; /* opaque */

/* Strings and tables of `config` are borrowed until dra_mixer_destroy. Impossible choices are
 * refused here, by name. */
DRA_API dra_status dra_mixer_create(const dra_mixer_config *config, dra_mixer **out,
                                    dra_error *err);
DRA_API void       dra_mixer_destroy(dra_mixer *m); /* NULL is allowed */

/* The mixer as a module: input "x" (B, T, C), outputs "y", 0 at pads, with gives_memory "memory"
 * (B, T, H E), 0 at pads, and by their names what is watched and the maps, those of a blend with
 * the prefixes "a." and "b.". Borrowed from m. */
DRA_API const dra_module       *dra_mixer_module(const dra_mixer *m);
DRA_API const dra_mixer_config *dra_mixer_config_of(const dra_mixer *m);
/* Bits of dra_aux_kind that its memories have; whether there are maps. */
DRA_API uint32_t    dra_mixer_aux_losses(const dra_mixer *m);
DRA_API bool        dra_mixer_mappable(const dra_mixer *m);
DRA_API const char *dra_show_name(dra_show_kind kind);

/* Side channels: values that sublayers hand on to later ones, by name. */
typedef enum dra_channel {
    DRA_CHANNEL_BLEND,    /* "blend": real scalar, for DRA_BLEND_INPUT                          */
    DRA_CHANNEL_SCORES,   /* "scores": (B, H, T, rows) of the attention before, residual_scores */
    DRA_CHANNEL_DISTANCE, /* "distance": (H, N): added to scores by distance                    */
    DRA_CHANNEL_SLOPES,   /* "slopes": (H): times -distance, added to scores (ALiBi)            */
    DRA_CHANNEL_DUAL,     /* "dual": (B, T, C), the sum of what sublayers add (ResiDual)        */
    DRA_CHANNEL_CONTEXT,  /* "context": (B, S, width) where a call reads it: items of the context */
    DRA_CHANNEL_CROSS_SCORES, /* "cross_scores": as scores, of attention over the context */
    DRA_CHANNEL_XL, /* "xl": (B, M, C): the memory of a sublayer, normed; where a segment starts */
    DRA_CHANNEL_VALUES,       /* "values": (B, T, K, E), v of the first mixer, value_residual */
    DRA_CHANNEL_CONDITION,    /* "condition": (B, width), of norms and branches */
    DRA_CHANNEL_INJECT,       /* "inject": (B, T, C) or (B, 1, C), added to what a sublayer reads */
    DRA_CHANNEL_CROSS_VALUES, /* "cross_values": (B, S, K, E), as values, of the context */
    DRA_CHANNEL_STREAMS, /* "streams": (B, T, n, C), what came into each sublayer, integrate  */
    DRA_CHANNEL_VIEWS,   /* "views": (B, T, 2, C), what keys and values are made of in place of x */
    DRA_CHANNELS
} dra_channel;

typedef struct dra_channels {
    dra_value value[DRA_CHANNELS]; /* none: nothing was handed on */
    int64_t   distance_zero;       /* the column of `distance` for distance 0 */
} dra_channels;

typedef struct dra_mixer_result {
    dra_value y;                      /* (B, T, C) */
    dra_value memory;                 /* (B, T, H, E): values after each token, with gives_memory */
    dra_value aux[DRA_AUX_COUNT];     /* scalars; none where not asked for      */
    dra_value map[2][DRA_SHOW_COUNT]; /* of each memory; none where it has none */
} dra_mixer_result;

/* The mixer as part of a larger graph: x (B, T, C). channels: read, and written for later ones. */
DRA_API dra_mixer_result dra_mixer_build(dra_graph *g, const dra_mixer *m,
                                         const dra_module_call *call, dra_value x,
                                         dra_channels *channels, dra_value *state_out);

/* ---- memories as tables ---------------------------------------------------------------------- */

typedef struct dra_stream { /* what a memory is fed: keys, values, or both joined */
    const char *name;       /* "k", "v" or "m"; its tensors are named by it */
    int64_t     width;
} dra_stream;

typedef struct dra_memory_sizes {
    int64_t                  C, H, D, E;
    int64_t                  Q; /* heads of queries: H, but where they share keys and values */
    int                      streams;
    dra_stream               stream[2];
    bool                     shows_items; /* memory_residual reads the items, too */
    bool                     gives_items; /* a chunk must give its slots, not read them itself */
    bool                     whole;       /* a text is read as a whole: no items are kept */
    bool                     context;     /* items are those of the context */
    int64_t                  segment, memory; /* Transformer-XL: tables of these rows, not items */
    const dra_memory_config *config;
    bool                     levels;    /* items have levels (mixer option forget) */
    bool                     mean;      /* sums of values are kept (mixer option mean_unseen) */
    int64_t                  selective; /* rows of sums of selective attention; 0: there is none */
    const void              *options;   /* of a program's own memory: its struct */
    int64_t latent, rope; /* latent.kv and latent.rope of the mixer: what items are instead */
    int64_t joined;       /* width of items that are both key and value, through kappa and nu */
    bool    bf16_items;   /* what attention keeps of tokens is rounded to bf16 */
} dra_memory_sizes;

enum { DRA_CODES = 4 };

typedef struct dra_seen {  /* what codes are made of */
    dra_value x;           /* (B, T, C) */
    dra_value decay, rate; /* the same, or as the mixer's shift mixes it for these */
    dra_value k;           /* (B, T, H, D) */
} dra_seen;

/* One token, or a chunk of T tokens; then there is an axis T after B. */
typedef struct dra_memory_call {
    const dra_memory_sizes *sizes;
    dra_value               q;               /* (B, H, D)                                         */
    dra_value               x[2];            /* (B, H, width) of each stream                      */
    dra_value               code[DRA_CODES]; /* (B, ...): what the memory's code() made of x  */
    int                     codes;
    const dra_value        *param, *state; /* in the order they were declared; state (B, ...) */
    dra_value               mark;  /* chunk: i32 (B, T) or none; skipped tokens count as pads  */
    dra_value               skip;  /* bool (B), chunk (B, T), or none: tokens not to be written */
    dra_value               reads; /* chunk: as mark, but skipped tokens are plain ones         */
} dra_memory_call;

typedef struct dra_memory_result {
    dra_value  item[2]; /* (B, H, width) of each stream, or slots (B, H, S, width) where these are
                           read; with retrieval "formula" item[1] is y, item[0] is not read */
    dra_value *state;   /* the new state, in the order declared */
    dra_value  y;       /* a chunk that has read its slots itself: (B, T, heads, E); item[1] then is
                           their mean (B, T, H, E), if items are shown */
    dra_value  lse;     /* of the softmax of that read, (B, T, heads); only "joint" asks for it */
    dra_value *trail;   /* if given: where a chunk puts its states of each token, (B, T, ...) */
} dra_memory_result;

/* One option of a program's own memory: a member of its struct of options, and a key of mixers in
 * JSON and --set. 0 is the default of every option. */
typedef enum dra_option_kind {
    DRA_OPTION_INT,    /* int64_t                            */
    DRA_OPTION_REAL,   /* double                             */
    DRA_OPTION_BOOL,   /* bool                               */
    DRA_OPTION_CHOICE, /* int: the number of one of `choices` */
    DRA_OPTION_COUNT
} dra_option_kind;

typedef struct dra_memory_option {
    const char        *name; /* that no key of mixers has */
    dra_option_kind    kind;
    size_t             offset;   /* in the struct */
    double             min, max; /* of numbers, both included */
    const char *const *choices;  /* NULL at the end */
    const char        *unset; /* what a number that is not given is, such as "4": 0 cannot be asked
                                    for then. NULL: 0 */
} dra_memory_option;

/* The step defines a memory: the new state and the items from the old state and one token. Where
 * there is no chunk function, the library scans the step over time and does pads and resets. */
struct dra_memory {
    const char        *name;
    const char *const *retrievals; /* legal ones, NULL at the end; the first is the default */
    dra_status (*check)(const dra_memory_sizes *s, dra_error *err); /* may be NULL */
    void (*declare)(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state);
    void (*step)(dra_graph *g, const dra_memory_call *c, dra_memory_result *r);
    void (*chunk)(dra_graph *g, const dra_memory_call *c, dra_memory_result *r); /* may be NULL */
    /* What else a step wants of x, made for all tokens at once: gates, strengths. Returns how many
     * values (B, T, ...) it made, DRA_CODES at most. May be NULL. */
    int (*code)(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                const dra_seen *seen, dra_value *code);
    uint32_t               chunks; /* bits of what its chunk function does, see below */
    const dra_part *const *parts;  /* options that it has, NULL at the end; NULL: none */
    /* Whether the chunk function serves this configuration; NULL: always. */
    bool (*fuses)(const dra_memory_sizes *s);
    /* The weight of each write, (B, T, H, S) or for all tokens (H, S). NULL: it has no slots. */
    dra_value (*writes)(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                        const dra_value *code);
    /* What is added to what was read, after the head norm: (B, T, H, E). c: of a chunk. May be
     * NULL, and give none. */
    dra_value (*late)(dra_graph *g, const dra_memory_call *c);
    /* Options of a program's own memory, which its functions find in dra_memory_sizes.options: a
     * struct of this many bytes, DRA_OPTIONS_BYTES at most, and its members; the last is {0}. */
    size_t                   options_size;
    const dra_memory_option *options;
};

/* What chunk functions do; without it the steps run where it is asked for. */
enum {
    DRA_CHUNK_SKIPS = 1, /* skipped tokens leave the state and see it */
    DRA_CHUNK_TRAIL = 2, /* fills the trail                           */
    /* Chunks are blocks of 64 tokens from the start of a call, see dra_model_cut(). */
    DRA_CHUNK_BLOCKS = 4
};

DRA_API const dra_memory *dra_memory_at(size_t i); /* NULL beyond the last */
DRA_API const dra_memory *dra_memory_find(const char *name);
enum { DRA_MEMORIES_MOST = 32 };
/* The memories of shared objects, which stay loaded: see DRA_MEMORY_PLUGIN() in dra/abi.h. `own`
 * gets them, NULL after the last, as dra_model_config_parse_own() wants them. */
DRA_API dra_status dra_memories_load(size_t n, const char *const *path,
                                     const dra_memory *own[DRA_MEMORIES_MOST + 1], dra_error *err);
/* Copies a struct of options to a config whose `own` is set; more than DRA_OPTIONS_BYTES are left
 * out, and refused when a mixer is made. */
DRA_API void dra_memory_set_options(dra_memory_config *c, const void *options);

/* For steps whose items or y are made of the new state: `old` where the token is not to be written.
 * (Items that are states, and steps that read before they write, need nothing.) */
DRA_API dra_value dra_memory_keep(dra_graph *g, const dra_memory_call *c, dra_value old,
                                  dra_value new_state);

/* Adds the parameter `name` of decay logits (H, n) or (H, n, width), n units per head; n = 0: (H)
 * or (H, width). For memories that have a gamma. */
DRA_API void dra_gamma_declare(const dra_memory_sizes *s, const char *prefix, const char *name,
                               int64_t n, int64_t width, dra_specs *params);

/* ---- looking inside -------------------------------------------------------------------------- */

/* Here `params` are the values of a mixer's parameters, in the order of its module's list. In a
 * blend a kernel is that of the second memory. See docs/inspection.md. */

typedef struct dra_gamma_row { /* one decay */
    int         layer;         /* as the config says */
    const char *memory, *param;
    int64_t     head, unit, channel; /* -1: it has none. unit: a timescale, a mode or a slot */
    double      gamma, half_life;    /* steps until a weight has halved: ln(1/2) / ln(gamma) */
    bool        by_data;             /* every token has its own; this one is of x = 0 */
} dra_gamma_row;

/* All decays of a mixer; params may be NULL: those it starts with, for which no other parameter is
 * drawn. *count: how many there are; at most `size` are written. Names live as long as the library,
 * that of a user's own memory as long as its table. */
DRA_API dra_status dra_mixer_gammas(const dra_mixer_config *config, const dra_real *const *params,
                                    size_t size, dra_gamma_row *rows, size_t *count,
                                    dra_error *err);
/* Rows as a table, channels summarised as shortest / median / longest. As snprintf. */
DRA_API size_t dra_gammas_text(const dra_gamma_row *rows, size_t n, char *text, size_t size);

/* out (H, lags): the weight of a token n steps back in what the memory holds now: how much the
 * memory's values move on average if all values of that token move by one. By formula; refused
 * where the weights depend on what was read. */
DRA_API dra_status dra_mixer_kernel(const dra_mixer_config *config, const dra_real *const *params,
                                    int64_t lags, double *out, dra_error *err);

typedef struct dra_kernel_input { /* what the memory is fed, token by token */
    int64_t         T;            /* as many as there are lags, or more                   */
    const dra_real *x;            /* (T, C), seen by gates; NULL: 0                       */
    const dra_real *k;            /* (T, H, D), also the queries; NULL: 1                 */
    const dra_real *v;            /* (T, H, E), around which is measured; NULL: 0         */
} dra_kernel_input;

/* The same for every memory, by its gradient around an input, from the initial state. Of a memory
 * that reads itself it is what the last key reads, relative to what the last token wrote. */
DRA_API dra_status dra_mixer_kernel_measured(dra_device *device, const dra_mixer_config *config,
                                             const dra_real *const  *params,
                                             const dra_kernel_input *around, int64_t lags,
                                             double *out, dra_error *err);

DRA_END_C
#endif
