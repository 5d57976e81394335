/* What the files of this layer share: a mixer taken apart, and the table of retrievals. */
#ifndef DRA_SRC_MEMORY_H
#define DRA_SRC_MEMORY_H

#include "base/error.h"
#include "base/shape.h"
#include "dra/memory.h"
#include "graph/op.h"

/* Of every size in a config: products of three of them stay below 2^63. */
enum { DRA_SIZE_MOST = 1 << 20 };

typedef struct dra_read_call { /* all (B, T, H, width) */
    const dra_memory_sizes *sizes;
    const dra_tokens       *tokens;
    bool                    rotary;
    dra_value               q, k, v;    /* as encoded */
    dra_value               key, value; /* items of the memory */
    dra_value               slot_q;     /* the query as slots are asked; pi_v: what they answer */
    dra_value               pi_v;       /* goes through, or none */
    const dra_value        *state;
} dra_read_call;

typedef struct dra_retrieval {
    const char *name;
    void (*declare)(const dra_memory_sizes *s, const char *prefix, dra_specs *state); /* or NULL */
    /* y (B, T, H, E) */
    dra_value (*read)(dra_graph *g, const dra_read_call *c, dra_value *state_out);
    bool over_time;   /* reads items of the past: positions mean something */
    bool from_memory; /* these are items of the memory */
    bool slots;       /* reads what the memory holds after each token, slot by slot */
    bool pooled;      /* y is (B, T, 1, E): one for all heads */
} dra_retrieval;

const dra_retrieval *dra_retrieval_find(const char *name);

/* For retrievals that keep items: K and V as states; queries over the items of the state and those
 * of this call, key and value. lse (B, H, T) may be NULL. */
void      dra_items_declare(const dra_memory_sizes *s, const char *prefix, dra_specs *state);
dra_value dra_read_items(dra_graph *g, const dra_read_call *c, dra_value key, dra_value value,
                         dra_value *lse, dra_value *state_out);

typedef struct dra_branch { /* one memory with its retrieval, inside a mixer */
    const dra_memory    *memory;
    const dra_retrieval *retrieval;
    dra_memory_config    config;
    dra_memory_sizes     sizes;
    const char          *prefix;                /* of its tensors */
    int                  params, states, reads; /* where its tensors start in the lists */
    int                  n_params, n_states;
    const dra_specs     *specs; /* of all states of the mixer */
} dra_branch;

/* Resolves the names of `config` and checks that they go together. */
dra_status dra_branch_open(dra_branch *b, const dra_mixer_config *mixer,
                           const dra_memory_config *config, dra_error *err);
void       dra_branch_declare(dra_branch *b, dra_specs *params, dra_specs *state);

/* Remember and retrieve: y (B, T, H, E), and the value side of the memory. */
dra_value dra_branch_build(dra_graph *g, const dra_branch *b, const dra_module_call *call,
                           bool rotary, dra_value x, const dra_value qkv[3], dra_value *memory,
                           dra_value *state_out);

/* The step of a memory scanned over time, with pads and resets. */
void dra_memory_scan(dra_graph *g, const dra_branch *b, const dra_memory_call *c,
                     dra_memory_result *r);

/* x (B, [T,] H, [S,] I) w (H, O, I)^T -> (..., O), for each head its own; S only behind T. */
dra_value dra_head_linear(dra_graph *g, dra_value x, dra_value w);

/* The first decay logit of unit j of n. */
double     dra_gamma_logit(const dra_memory_config *c, int64_t j, int64_t n);
dra_status dra_gamma_check(const dra_gamma_config *c, dra_error *err);

#endif
