/* Optimizers as rows of a table: what each keeps for a parameter and how it updates one. What all
 * share (the norm of gradients, clipping, skipped steps, decay, checkpoints) is in optimizer.c. */
#ifndef DRA_SRC_TRAIN_OPTIMIZER_H
#define DRA_SRC_TRAIN_OPTIMIZER_H

#include "dra/train.h"

enum { DRA_OPTIMIZER_STATES = 2 }; /* of a parameter, at most: m and v */

typedef struct dra_update { /* of one parameter: values of the graph, replaced by the new ones */
    const dra_optimizer_config *config; /* complete */
    dra_shape                   shape;
    double                      decay;
    dra_value                   p, gradient;
    dra_value                   state[DRA_OPTIMIZER_STATES];
    dra_value                   rate, factor, step; /* factor: of gradients; NaN: change nothing */
} dra_update;

typedef struct dra_optimizer_row {
    const char          *name;
    int                  states;   /* that it keeps; without momentum one less */
    dra_optimizer_config defaults; /* of numbers; 0: it has no use for this one */
    bool                 nesterov; /* can be asked for */
    void (*update)(dra_graph *g, dra_update *u);
    /* It is for matrices of hidden layers; other parameters are updated by row `others`. */
    bool               hidden;
    dra_optimizer_kind others;
} dra_optimizer_row;

const dra_optimizer_row *dra_optimizer_row_of(dra_optimizer_kind kind);
/* The row that updates a parameter. */
const dra_optimizer_row *dra_optimizer_rule(const dra_optimizer_config *c, const dra_spec *s);
/* States of a parameter. */
int dra_optimizer_states(const dra_optimizer_config *c, const dra_spec *s);
/* Whether matrices of this group are those of hidden layers. */
bool dra_group_is_hidden(dra_param_group group);
/* Refuses numbers that are none, and groups that the model has nothing of. */
dra_status dra_groups_check(const char *what, const dra_optimizer_config *c, const dra_model *m,
                            dra_error *err);
/* Fills in defaults and refuses what the optimizer has no use for; `what` begins an error. */
dra_status dra_optimizer_complete(const char *what, dra_optimizer_config *c, dra_error *err);

/* What a state is called in files: "m", "v". */
const char *dra_optimizer_state_name(int which);

#endif
