/* Norms, feed-forwards and sublayers taken apart, and the list of them that a model is. */
#ifndef DRA_SRC_MODEL_STACK_H
#define DRA_SRC_MODEL_STACK_H

#include "dra/model.h"

/* ---- norms (norm.c) -------------------------------------------------------------------------- */

typedef struct dra_norm { /* its parameters by handle */
    dra_norm_config config;
    int             gain, bias, alpha; /* -1: it has none */
} dra_norm;

/* Adds "<prefix>norm_g" and "<prefix>norm_b" as far as they are wanted. */
dra_norm  dra_norm_declare(const dra_norm_config *c, int64_t dim, const char *prefix,
                           dra_specs *params);
dra_value dra_norm_build(dra_graph *g, const dra_norm *n, const dra_value *param, dra_value x,
                         double eps);
/* Multiplies x (B, ..., C), which is normed, by gains that follow from the condition (B, width), if
 * it is a norm that has such. */
dra_value dra_norm_adapt(dra_graph *g, const dra_norm *n, const dra_value *param, dra_value x,
                         dra_value condition);
/* W c (+ b) for every token of x (B, ..., C). */
dra_value dra_condition_map(dra_graph *g, dra_value condition, dra_value W, dra_value b,
                            dra_value x);

/* ---- feed-forwards (ff.c) -------------------------------------------------------------------- */

typedef struct dra_ff dra_ff;

dra_status dra_ff_create(const dra_sublayer_config *c, dra_ff **out, dra_error *err);
void       dra_ff_destroy(dra_ff *f); /* NULL is allowed */
/* Its tensors; build is none: see below. */
const dra_module *dra_ff_module(const dra_ff *f);
/* *balance: the auxiliary loss of experts, where it is asked for. */
dra_value dra_ff_build(dra_graph *g, const dra_ff *f, const dra_module_call *call, dra_value x,
                       dra_value *state_out, dra_value *balance);
/* act(h), or h act(gate) of gated ones. */
dra_value dra_ff_activate(dra_graph *g, dra_ff_kind kind, dra_value h, dra_value gate);
bool      dra_ff_is_gated(const dra_ff_config *c);

/* ---- mixtures of experts (experts.c) --------------------------------------------------------- */

typedef struct dra_experts { /* parameters by handle; -1: there is none */
    int router, up, down, gate, shared_up, shared_down, shared_gate, share;
} dra_experts;

dra_status  dra_experts_check(const dra_sublayer_config *c, dra_error *err);
dra_experts dra_experts_declare(const dra_sublayer_config *c, dra_specs *params);
dra_value   dra_experts_build(dra_graph *g, const dra_experts *e, const dra_sublayer_config *c,
                              const dra_module_call *call, dra_value x, dra_value *balance);

/* ---- the list (stack.c) ---------------------------------------------------------------------- */

typedef struct dra_stack_entry { /* a sublayer with parameters of its own */
    dra_sublayer *sublayer;
    int           layer;  /* N in "layers.N.mixer." */
    int           params; /* where its parameters start in the list of the model */
} dra_stack_entry;

typedef struct dra_stack_step { /* a sublayer being executed */
    int entry;
    int layer;  /* N in the names of its states and in its scope */
    int states; /* where its states start in the list of the model */
} dra_stack_step;

typedef struct dra_stack {
    int              n_entries, n_steps;
    dra_stack_entry *entry;
    dra_stack_step  *step;
    int             *attention; /* steps that are attentions */
    int              n_attentions;
} dra_stack;

/* Makes all sublayers and declares their tensors. What a mixer is asked to show is asked only of
 * those that have it; an auxiliary loss that none has is refused. */
dra_status dra_stack_open(dra_stack *s, const dra_model_config *c, dra_error *err);
void       dra_stack_declare(dra_stack *s, dra_specs *params, dra_specs *state);
void       dra_stack_close(dra_stack *s);

static inline const dra_sublayer *dra_stack_at(const dra_stack *s, int step)
{
    return s->entry[s->step[step].entry].sublayer;
}

/* The first step after `step` that belongs to another layer. */
int dra_stack_layer_end(const dra_stack *s, int step);

/* ---- positions (position.c) ------------------------------------------------------------------ */

enum { DRA_POSITION_LAYERS = 8 };

typedef struct dra_positions { /* parameters by handle, of what is added to scores */
    int table;                 /* t5: -1: none */
    int W[DRA_POSITION_LAYERS + 1], b[DRA_POSITION_LAYERS + 1];
} dra_positions;

dra_status dra_positions_check(const dra_model_config *c, dra_error *err);
void       dra_positions_declare(dra_positions *p, const dra_model_config *c, dra_specs *params);
/* What the attention sublayers of a call add to scores by distance, as channels. rows: of keys. */
void dra_positions_build(dra_graph *g, const dra_positions *p, const dra_model_config *c,
                         const dra_value *param, int64_t rows, dra_channels *out);

#endif
