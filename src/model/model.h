/* A model taken apart, as the files of this layer see it. */
#ifndef DRA_SRC_MODEL_H
#define DRA_SRC_MODEL_H

#include "base/arena.h"
#include "dra/model.h"
#include "model/stack.h"

struct dra_model {
    dra_model_config config; /* all filled in */
    dra_arena        arena;  /* what it points to */
    dra_specs       *params, *state;
    uint64_t         fingerprint;
    dra_stack        stack;
    dra_positions    distance;
    dra_norm         embed_norm, norm;
    bool             has_norm;
    /* Parameters by handle; -1: has none. */
    int      embedding, positions, memory_tokens, project_w, project_b, head, blend, streams;
    int      mixture; /* the first of two */
    int      reinject, reinject_gate;
    int      skips; /* the first of those of a U-Net */
    int      recycle;
    int      source_w, source_b, head_b, numbers_w, numbers_b, cls_token, condition_w;
    dra_norm patch_norm, patch_out_norm; /* of images: before and after the map */
    /* Models of other stacks, and where their parameters start in those of this one. */
    dra_model *context, *prepend;
    int        context_params, prepend_params;
};

/* ---- config (config.c) ----------------------------------------------------------------------- */

const struct dra_field *dra_model_fields(void); /* of dra's own config */
/* A key of a part that the model does not have, a blend's second memory or attention over a
 * context, by its dotted name; false: there is none. */
bool dra_model_idle_key(const dra_model_config *c, char *key, size_t size);

/* ---- sources (source.c): what a stack reads, as rows as wide as the embedding ---------------- */

dra_status dra_source_check(const dra_model_config *c, dra_error *err);
/* Tokens that a source of its own length has, an image or prepended vectors; 0: any number. */
int64_t dra_source_length(const dra_model_config *c);
int64_t dra_embed_width(const dra_model_config *c);
/* Of the vectors it reads, before its map. */
int64_t     dra_source_width(const dra_model_config *c);
const char *dra_source_name(const dra_source_config *s); /* of its input */
void        dra_source_declare(dra_model *m);
/* (B, n, width) of n tokens. ids: i32 (B, n), or real (B, n, width) in place of rows of the table;
 * none: its inputs are declared here, by their names. */
dra_value dra_source_build(dra_graph *g, const dra_model *m, const dra_module_call *call, int64_t n,
                           dra_value ids);

/* ---- heads (head.c) -------------------------------------------------------------------------- */

dra_status dra_head_check(const dra_model_config *c, dra_error *err);
void       dra_head_declare(dra_model *m);
/* Learned vectors before every text: memory tokens, then that of pool cls. */
int64_t dra_model_starts(const dra_model_config *c);
/* Of what layers make of a text, y (B, T, C): that of the vector of pool cls, (B, C). */
dra_value dra_head_cls(dra_graph *g, const dra_model *m, const dra_tokens *t, dra_value y);
/* Fills in what follows from r->hidden, and from r->pooled where that is there. */
void dra_head_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                    dra_model_result *r);
/* Whether logits are a product of its map and dra_head_input() alone. */
bool dra_head_is_linear(const dra_model_result *r);
/* What its map multiplies: hidden, scaled where logits are. */
dra_value dra_head_input(dra_graph *g, const dra_model_result *r, dra_value hidden);
/* What the head says of hidden (B, n, C), or of the mean (B, C): through its map, if it has one. */
dra_value dra_head_apply(dra_graph *g, const dra_model_result *r, dra_value hidden);

/* ---- conditions (condition.c) ---------------------------------------------------------------- */

/* Whether norms or branches have one; how wide it is for them, 0: there is none. */
bool       dra_condition_used(const dra_model_config *c);
int64_t    dra_condition_width(const dra_model_config *c);
dra_status dra_condition_check(const dra_model_config *c, dra_error *err);
void       dra_condition_declare(dra_model *m);
/* From the input "condition"; none: there is none. */
dra_value dra_condition_build(dra_graph *g, const dra_model *m, const dra_module_call *call);

/* ---- LoRA (lora.c) --------------------------------------------------------------------------- */

/* Adds the factors of the config to parameters that are all declared; only they are trained. */
dra_status dra_lora_declare(dra_model *m, dra_error *err);

/* ---- starts of states (start.c) -------------------------------------------------------------- */

/* Adds a parameter for every state of fixed size; only they are trained. */
dra_status dra_start_declare(dra_model *m, dra_error *err);

/* ---- compositions (compose.c) ---------------------------------------------------------------- */

/* Makes the models of other stacks, and declares their parameters after those of m. */
dra_status dra_compose_open(dra_model *m, dra_error *err);
void       dra_compose_declare(dra_model *m);
void       dra_compose_close(dra_model *m);

/* Of the values of all weights as they are used, dense and in the order of the parameters, and of
 * their names: however and wherever they are stored. Of weights that were loaded or drawn and not
 * edited since it is computed once; others are read each time. */
dra_status dra_weights_fingerprint(const dra_weights *w, uint64_t *out, dra_error *err);

/* Element k of weight i, wherever it is stored. */
dra_real dra_weights_number(const dra_weights *w, int i, size_t k);
/* Puts what is trained into arrays of a device, which programs may write to. They are the weights
 * from then on; after a program wrote to them, dra_weights_changed() says so. */
dra_status dra_weights_train(dra_weights *w, dra_device *device, dra_error *err);
void       dra_weights_changed(dra_weights *w);
/* Weight i there, dense; the null span: it is not. */
dra_span dra_weights_span(const dra_weights *w, int i, const dra_device *device);

/* Whether anything is dropped out when learning. */
bool dra_model_drops(const dra_model *m);

/* The norm of sublayers. */
dra_norm_config dra_model_norm(const dra_model_config *c);
/* By how much the stream is divided when layer l reads it. */
double dra_model_rescale(const dra_model_config *c, int64_t l);
/* Fills in what follows from the rest. */
void dra_model_config_complete(dra_model_config *c);

/* ---- layers of a stack: the steps first .. end - 1, which share a number --------------------- */

enum { DRA_LAYER_STEPS = DRA_SUBLAYER_KINDS }; /* one of each kind at most */

typedef struct dra_layer_result {
    dra_value        y;
    dra_value        branch; /* of its mixer, or of its last sublayer */
    dra_mixer_result mixer;  /* what its mixer shows */
    dra_mixer_result cross;  /* what its attention over the context shows */
    /* Of every step; not of a layer that is recomputed. */
    dra_value hidden[DRA_LAYER_STEPS], add[DRA_LAYER_STEPS];
} dra_layer_result;

/* The second keeps no intermediate values for the gradient but recomputes them. */
dra_layer_result dra_layer_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 int first, dra_value x, dra_channels *channels,
                                 dra_value *state_out);
dra_layer_result dra_layer_recompute(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                     int first, dra_value x, dra_channels *channels,
                                     dra_value *state_out);

#endif
