/* The Llama family: what its members do otherwise, and their layers. */
#ifndef DRA_SRC_FORMATS_LLAMA_H
#define DRA_SRC_FORMATS_LLAMA_H

#include "formats/format.h"
#include "formats/rule_list.h"

/* Which norms a sublayer has. */
typedef enum dra_llama_norms {
    DRA_NORMS_PRE,    /* of what it reads     */
    DRA_NORMS_BRANCH, /* of what it adds      */
    DRA_NORMS_BOTH
} dra_llama_norms;

typedef enum dra_llama_qk_norm {
    DRA_LLAMA_NO_NORM,
    DRA_LLAMA_NORM_HEAD, /* of each head's channels          */
    DRA_LLAMA_NORM_ALL   /* of those of all heads at once    */
} dra_llama_qk_norm;

/* Which layers see only a window, where no layer_types say it. */
typedef enum dra_llama_windows {
    DRA_WINDOWS_NEVER,
    DRA_WINDOWS_ASKED,   /* all, with use_sliding_window                                    */
    DRA_WINDOWS_ALL,     /* all, unless sliding_window is null                              */
    DRA_WINDOWS_LATE,    /* with use_sliding_window, from layer max_window_layers on        */
    DRA_WINDOWS_NO_ROPE, /* with use_sliding_window, those that do not rotate               */
    DRA_WINDOWS_MOST     /* all but every n-th                                              */
} dra_llama_windows;

/* How layers of gated DeltaNet or Mamba-2 (linear_attention) store what they have. */
typedef enum dra_llama_linear {
    DRA_LINEAR_NONE,
    DRA_LINEAR_QWEN3_5,    /* q, k, v in one tensor, all else in its own               */
    DRA_LINEAR_QWEN3_NEXT, /* head by head of keys: q, k, v, gate; strength, rate      */
    DRA_LINEAR_OLMO,       /* all apart; keys fall back to those of attention          */
    DRA_LINEAR_GRANITE,    /* they are of Mamba-2                                      */
    DRA_LINEAR_LFM2        /* they are short convolutions                              */
} dra_llama_linear;

/* How experts are stored. */
typedef enum dra_llama_experts {
    DRA_EXPERTS_NONE,
    DRA_EXPERTS_QWEN,   /* a tensor for each matrix */
    DRA_EXPERTS_GRANITE /* gate and up of all experts in one, and what all tokens have */
} dra_llama_experts;

typedef struct dra_llama {
    int64_t vocab, dim, inner, depth, heads, context; /* where keys are missing, as all here */
    int64_t kv_heads;                                 /* 0: as many as heads                 */
    int64_t head_dim;                                 /* 0: dim / heads                      */
    double  theta, local_theta;                       /* local: of layers with a window      */
    double  eps;                                      /* 0: 1e-6                             */
    bool    tied;
    bool    qkv_bias;       /* queries, keys and values have biases            */
    bool    attention_bias; /* there is this key                               */
    bool    mlp_bias;       /* there is this key                               */
    bool    granite;        /* there are its four factors                      */
    bool    gemma;          /* gains are stored less 1, its own scales         */

    bool   offset;   /* gains of norms and of q and k are stored less 1 */
    bool   gated;    /* heads of attention are gated, with rows of W_q  */
    bool   no_theta; /* without rope_theta nothing rotates              */
    bool   fused;    /* W_q, W_k and W_v are one tensor, W_gate and W_up another */
    double partial;  /* partial_rotary_factor; 0: none                  */

    int64_t original; /* original_max_position_embeddings, at the top; 0: max_position_embeddings */
    dra_llama_experts experts;
    int64_t           n_experts, top, moe_inner;
    int64_t           shared;                   /* width of the one that all tokens have; 0: none */
    bool              normalise, normalise_key; /* their weights; and whether there is this key  */

    dra_llama_linear  linear;
    dra_llama_norms   norms;
    dra_llama_qk_norm qk_norm;
    dra_llama_windows windows;
    int64_t           window;     /* 0: null                                   */
    int64_t           every;      /* of DRA_WINDOWS_MOST                       */
    int64_t           rope_every; /* every n-th layer does not rotate; 0: all rotate */
    bool              two_ropes;  /* layers with and without a window rotate in their own way */
} dra_llama;

/* The mixers of the layers, each a copy of `m` with its window and rotation (llama_layers.c). */
void dra_llama_read_layers(dra_keys *k, const dra_llama *f, const dra_mixer_config *m,
                           dra_model_config *c);
void dra_llama_write_layers(dra_keys *k, const dra_llama *f, const dra_model_config *c);

/* Kinds of layers, each of which becomes a mixer in the order of the first layers. */
enum { DRA_LLAMA_KINDS = 8 };
typedef struct dra_llama_kinds {
    dra_mixer_config mixer[DRA_LLAMA_KINDS];
    int64_t          pattern[DRA_SUBLAYERS_MOST];
    int              number[DRA_LLAMA_KINDS]; /* of a kind's mixer, from 1; 0: no layer is of it */
    int              mixers;
    bool             many; /* there are more layers than a pattern has */
} dra_llama_kinds;

/* Layer l is of a kind; the mixer to fill in, if it is the first of it, else NULL. */
dra_mixer_config *dra_llama_add_layer(dra_llama_kinds *a, int64_t l, int kind);
/* Puts them into the config; `key` says how many layers there are. */
void dra_llama_put_kinds(dra_keys *k, const dra_llama_kinds *a, const char *key,
                         dra_model_config *c);

/* LongRoPE's factors, a number above 0 for each pair that rotates, in the memory of the config. */
const double *dra_llama_read_factors(dra_keys *k, const char *key, const dra_model_config *c,
                                     const dra_rotary_config *t, int *n);
json_t       *dra_llama_factors(dra_json *j, const double *x, int n);

/* The number whose inverse is x: 1 / x, or the one next to it. */
double dra_llama_inverse(double x);

/* Queries, keys and values, and the two of a gated feed-forward, are one tensor each. */
void dra_llama_add_fused(const dra_model_config *c, const char *qkv, const char *two,
                         dra_rule_list *list);

/* Lets rules of queries and keys put their rows into the order of the file, where the config has
 * another one. */
void dra_llama_order_rows(const dra_model_config *c, dra_row_order file, dra_name_rule *row);

#endif
