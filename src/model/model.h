/* A model taken apart, as the files of this layer see it. */
#ifndef DRA_SRC_MODEL_H
#define DRA_SRC_MODEL_H

#include "dra/model.h"

/* Where the tensors of one part of the model are in the lists of the whole. */
typedef struct dra_part {
    int params, states;
} dra_part;

typedef struct dra_layer {
    dra_mixer *mixer;
    dra_part   mix, ff, end;
} dra_layer;

struct dra_model {
    dra_model_config config; /* all filled in */
    dra_specs       *params, *state;
    dra_layer       *layer;
    int              embedding, positions, embed_norm, norm, head, blend; /* -1: has none */
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

/* norm (gain and, of layer norms, bias) as the next parameters of a list. */
void      dra_model_norm_declare(const dra_model_config *c, const char *prefix, dra_specs *params);
dra_value dra_model_norm_build(dra_graph *g, const dra_model_config *c, const dra_value *param,
                               dra_value x, double eps);
/* By how much the stream is divided when layer l reads it. */
double dra_model_rescale(const dra_model_config *c, int64_t l);
/* Fills in what follows from the rest. */
void dra_model_config_complete(dra_model_config *c);

/* One block: y and what its mixer shows besides; the second keeps no intermediate values for the
 * gradient but recomputes them. */
dra_mixer_result dra_layer_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 int64_t l, dra_value x, dra_value *state_out);
dra_mixer_result dra_layer_recompute(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                     int64_t l, dra_value x, dra_value *state_out);

/* The feed-forward half of a block, residual and norm included. */
void      dra_ff_declare(const dra_model_config *c, const char *prefix, dra_specs *params,
                         dra_specs *state);
dra_value dra_ff_build(dra_graph *g, const dra_model_config *c, const dra_module_call *call,
                       int64_t l, const dra_part *at, dra_value x, dra_value *state_out);

#endif
