/* What the files of this layer share: a mixer taken apart, and the table of retrievals. */
#ifndef DRA_SRC_MEMORY_H
#define DRA_SRC_MEMORY_H

#include "base/error.h"
#include "base/shape.h"
#include "dra/memory.h"
#include "graph/op.h"

/* Of every size in a config: products of three of them stay below 2^63. */
enum { DRA_SIZE_MOST = 1 << 20 };

typedef struct dra_read_drop { /* dropout of the weights of items */
    double      p;             /* 0: none */
    const char *name;
    dra_value   key, at; /* as in dra_module_call */
} dra_read_drop;

typedef enum dra_mixer_param {
#define DRA_MIXER_PARAM(handle, name, group) handle,
#include "memory/mixer_params.def"
#undef DRA_MIXER_PARAM
    DRA_MIXER_PARAMS,
    DRA_MU_MORE = DRA_MU_W, /* of each mix but the first three, in the order of dra_mix, */
    DRA_MU_1 = DRA_MU_Q_1,  /* and the maps of all                                       */
    DRA_MU_2 = DRA_MU_Q_2
} dra_mixer_param;

typedef struct dra_read_options { /* what a mixer has for softmax reads over items */
    const dra_mixer_config *config;
    const dra_value        *param;      /* by dra_mixer_param; none where it has none */
    dra_value               mem_k;      /* (K, m, D): learned keys, normalised, or none */
    dra_value               xl_k, xl_v; /* (B, M, K, D), (B, M, K, E): of Transformer-XL's memory */
    dra_value               level;      /* (B, T, H, 2) of tokens, or none */
    dra_channels           *channels;
} dra_read_options;

typedef struct dra_read_call { /* all (B, T, H, width) */
    const dra_memory_sizes *sizes;
    const dra_tokens       *tokens;
    const dra_read_options *options;
    dra_value               q, k, v;    /* as encoded */
    dra_value               key, value; /* items of the memory */
    dra_value               slot_q;     /* the query as slots, or items that are both key and   */
                                        /* value, are asked; what they answer goes              */
    dra_value        nu, pi_v;          /* through nu (H, E, E), then pi_v (E, E), or none      */
    dra_value        y, lse;            /* what slots answered, where they were asked already */
    dra_read_drop    drop;
    const dra_value *state;
    /* If not NULL: where to put the logits of items (B, H, T, rows), and what multiplies values. */
    dra_value *scores, *weights;
    dra_value *sums; /* likewise ln sum e^scores, (B, H, T), 0 where nothing is seen */
} dra_read_call;

typedef struct dra_retrieval {
    const char *name;
    void (*declare)(const dra_memory_sizes *s, const char *prefix, dra_specs *state); /* or NULL */
    /* y (B, T, H, E) */
    dra_value (*read)(dra_graph *g, const dra_read_call *c, dra_value *state_out);
    bool                   over_time;   /* reads items of the past: positions mean something */
    bool                   from_memory; /* these are items of the memory */
    bool                   slots;  /* reads what the memory holds after each token, slot by slot */
    bool                   pooled; /* y is (B, T, 1, E): one for all heads */
    const dra_part *const *parts;  /* options of a mixer that act on it, NULL at the end */
} dra_retrieval;

enum { DRA_RETRIEVALS = 8 };

const dra_retrieval *dra_retrieval_at(size_t i); /* i < DRA_RETRIEVALS */
const dra_retrieval *dra_retrieval_find(const char *name);
bool                 dra_memory_has(const dra_memory *m, const dra_part *part);
/* Whether a memory of the mixer reads items of the past: positions mean something, and its weights
 * are dropped out; whether one is read by a softmax at all, over items or slots. */
bool dra_mixer_reads_time(const dra_mixer_config *c);
bool dra_mixer_has_scores(const dra_mixer_config *c);

/* For retrievals that keep items: K and V as states; queries over the items of the state and those
 * of this call, key and value. lse (B, H, T) may be NULL. */
void      dra_items_declare(const dra_memory_sizes *s, const char *prefix, dra_specs *state);
dra_value dra_read_items(dra_graph *g, const dra_read_call *c, dra_value key, dra_value value,
                         dra_value *lse, dra_value *state_out);

/* Whether reads must see their scores as a whole (attention.c). */
bool dra_attention_holds_scores(const dra_attention_options *o);

/* ---- latents (latent.c): items (B, J, width) in place of keys and values --------------------- */

/* Whether few enough queries read them to do without keys and values. */
bool dra_latent_absorbs(const dra_read_call *c);
/* Keys (B, J, heads, D), with those of rope (B, J, rope, D), and values (B, J, heads, E). */
void dra_latent_expand(dra_graph *g, const dra_read_call *c, dra_value latent, dra_value rope,
                       dra_value *keys, dra_value *values);
/* Queries (B, T, heads, D), those without rotary, as latents are asked; what they answer,
 * (B, T, heads, width), as values. */
dra_value dra_latent_query(dra_graph *g, const dra_read_call *c, dra_value q);
dra_value dra_latent_value(dra_graph *g, const dra_read_call *c, dra_value y);

typedef struct dra_branch { /* one memory with its retrieval, inside a mixer */
    const dra_memory    *memory;
    const dra_retrieval *retrieval;
    dra_memory_config    config;
    dra_memory_sizes     sizes;
    const char          *prefix;                /* of its tensors */
    int                  params, states, reads; /* where its tensors start in the lists */
    int                  n_params, n_states;
    const dra_specs     *specs; /* of all states of the mixer */
    const dra_specs     *own;   /* of all its parameters      */
    uint32_t             aux;
    bool                 maps;  /* shows what it attends to */
    bool                 folds; /* kappa and nu map the query and what was read, not every item */
    double               attention_dropout; /* as in the mixer */
} dra_branch;

/* Resolves the names of `config` and checks that they go together. */
dra_status dra_branch_open(dra_branch *b, const dra_mixer_config *mixer,
                           const dra_memory_config *config, dra_error *err);
void       dra_branch_declare(dra_branch *b, dra_specs *params, dra_specs *state);

typedef struct dra_branch_result {
    dra_value y;      /* (B, T, H, E), pooled (B, T, 1, E) */
    dra_value memory; /* the value side of the memory after each token, (B, T, H, E) */
    dra_value aux[DRA_AUX_COUNT];
    dra_value map[DRA_SHOW_COUNT];
} dra_branch_result;

/* Remember and retrieve. */
dra_branch_result dra_branch_build(dra_graph *g, const dra_branch *b, const dra_module_call *call,
                                   const dra_read_options *options, const dra_seen *seen,
                                   const dra_value qkv[3], dra_value *state_out);

static inline const dra_spec *dra_branch_param(const dra_branch *b, int i) /* of its memory */
{
    return dra_specs_at(b->own, b->params + i);
}

static inline const dra_spec *dra_branch_state(const dra_branch *b, int i)
{
    return dra_specs_at(b->specs, b->states + i);
}

/* The state before the call: what came in, or its first value for B sequences. */
dra_value dra_branch_start(dra_graph *g, const dra_branch *b, int i, int64_t B, dra_value state);

/* The step of a memory scanned over time, with pads and resets. square: NULL, or where to put the
 * sums of squares of what each token changes of the states, and of the states after it, (B, T). */
void dra_memory_scan(dra_graph *g, const dra_branch *b, const dra_memory_call *c,
                     dra_memory_result *r, dra_value square[2]);

/* What a skipped token must not add: x (H, ...) or (B, T, H, ...) as (B, T, H, ...) of this rank, 0
 * where it stands; x itself where nothing is skipped. */
dra_value dra_memory_written(dra_graph *g, const dra_memory_call *c, dra_value x, int32_t rank);

/* x (B, [T,] H, [S,] I) w (H, O, I)^T -> (..., O), for each head its own; S only after T. */
dra_value dra_head_linear(dra_graph *g, dra_value x, dra_value w);

/* Adds a map (out, in), or one for each head (heads, out, in), that starts by picking the channels
 * from .. from + out - 1. */
void dra_identity_declare(dra_specs *params, const char *prefix, const char *name, dra_shape shape,
                          int64_t from, dra_param_group group);

/* The first ln(gamma), and decay logit, of unit j of n. */
double     dra_gamma_log(const dra_memory_config *c, int64_t j, int64_t n);
double     dra_gamma_logit(const dra_memory_config *c, int64_t j, int64_t n);
dra_status dra_gamma_check(const dra_gamma_config *c, dra_error *err);

/* ---- recurrent matrices (recurrent.c) -------------------------------------------------------- */

/* max(1, s) with s the largest singular value of each w (..., n, width): (..., 1, 1). */
dra_value dra_spectral(dra_graph *g, dra_value w);
/* The parameters of the memory as its step and chunk see them: recurrent ones normalised. `used`
 * has room for them all. */
void dra_recurrent_declare(const dra_branch *b, dra_specs *params);
void dra_recurrent_apply(dra_graph *g, const dra_branch *b, const dra_value *param,
                         dra_value *used);

/* ---- what a mixer shows (aux_loss.c, maps.c) ------------------------------------------------- */

bool dra_aux_has(const dra_branch *b, dra_aux_kind kind);
bool dra_aux_needs_trail(const dra_branch *b); /* it looks at the states after each token */

typedef struct dra_aux_losses { /* one memory in a call */
    const dra_branch *b;
    const dra_tokens *tokens;
    const dra_value  *param, *used;  /* as declared, and as its step sees them */
    const dra_value  *state, *trail; /* the start; the states after each token, or none where */
    dra_value         square[2];     /* there are sums of squares, see dra_memory_scan()      */
    dra_value         lse;   /* (B, H, T): of the scores of items, 0 where nothing is seen */
    dra_value         write; /* (B, T, H, S), 0 where nothing is written */
} dra_aux_losses;

/* Those of one memory, then those of all together. */
void dra_aux_branch(dra_graph *g, const dra_aux_losses *w, dra_value out[DRA_AUX_COUNT]);
void dra_aux_mixer(dra_graph *g, uint32_t aux, int n, const dra_branch *b,
                   const dra_branch_result *r, const dra_value *param,
                   dra_value out[DRA_AUX_COUNT]);

dra_value dra_join_heads(dra_graph *g, dra_value x); /* (B, T, H, E) -> (B, T, H E) */
/* Where a call reads the context of a mixer that stands alone: its input "context" (B, S, C). */
void dra_mixer_input_context(dra_graph *g, const dra_mixer *m, const dra_module_call *call,
                             dra_channels *channels);
/* What it shows as outputs. */
void dra_mixer_put_out(dra_graph *g, const dra_mixer *m, const dra_tokens *tokens,
                       const dra_mixer_result *r);

bool      dra_map_has(const dra_branch *b);
void      dra_map_attention(dra_graph *g, const dra_branch *b, const dra_read_call *c,
                            dra_value map[DRA_SHOW_COUNT]); /* and scores */
dra_value dra_map_occupancy(dra_graph *g, const dra_tokens *tokens, dra_value write);

#endif
