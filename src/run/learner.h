/* What a learner is inside: programs by key, their buffers, the gradients. */
#ifndef DRA_SRC_RUN_LEARNER_H
#define DRA_SRC_RUN_LEARNER_H

#include "base/shape.h"
#include "model/model.h"
#include "run/run.h"
#include "sequence/module.h"

typedef struct running { /* a program with its buffers */
    const dra_program *program;
    dra_buffers       *buffers;
} running;

struct dra_learner {
    dra_learner_config config;
    dra_module         module;
    const dra_specs   *params, *state;
    const dra_weights *weights;
    dra_programs      *programs;
    running           *at;
    size_t             n;
    dra_real         **gradient; /* of each parameter; NULL: it is not trained */
    dra_real          *zeros;    /* as many as the largest parameter that is not trained has */
    dra_shape         *key;
    dra_extents        extents;
    int                options; /* of the program being built */
    int32_t            random[4], *starts;
};

/* What a program is made for: dims of the first shape of its key; then the rows of each state. */
enum { KEY_B, KEY_T, KEY_MARKS, KEY_KIND, KEY_ADD, KEY_OPTIONS };
enum { MARKED = 1, SKIPS = 2 };  /* of KEY_MARKS   */
enum { GUARD = 1, DROPOUT = 2 }; /* of KEY_OPTIONS */
enum {
    FRESH,   /* rows start anew; gradients                          */
    CARRIED, /* states come in and go out; gradients, not of states */
    THROUGH, /* states come in and go out; gradients of all         */
    FORWARD  /* states come in and go out                           */
};

/* The model with its loss as a module's own nodes; `self` is the learner. */
void dra_learner_lesson(dra_graph *g, const void *self, const dra_module_call *call,
                        dra_value *state_out);

/* Builds the program of a key: for dra_programs_create(), `user` is the learner. */
void dra_learner_build(dra_graph *g, void *user, const dra_shape *key, size_t n_key);

#endif
