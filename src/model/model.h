/* A model taken apart, as the files of this layer see it. */
#ifndef DRA_SRC_MODEL_H
#define DRA_SRC_MODEL_H

#include "dra/model.h"
#include "model/stack.h"

struct dra_model {
    dra_model_config config; /* all filled in */
    dra_specs       *params, *state;
    dra_stack        stack;
    dra_positions    distance;
    dra_norm         embed_norm, norm;
    bool             has_norm;
    /* Parameters by handle; -1: has none. */
    int embedding, positions, memory_tokens, project_w, project_b, head, blend, streams;
};

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

enum { DRA_LAYER_STEPS = 2 }; /* one of each kind at most */

typedef struct dra_layer_result {
    dra_value        y;
    dra_value        branch; /* of its mixer, or of its last sublayer */
    dra_mixer_result mixer;  /* what its mixer shows */
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
