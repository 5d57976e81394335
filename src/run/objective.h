/* Objectives inside: the table of what can be learned from rows of tokens. */
#ifndef DRA_SRC_RUN_OBJECTIVE_H
#define DRA_SRC_RUN_OBJECTIVE_H

#include "dra/train.h"

enum { DRA_OBJECTIVE_INPUTS = 4 };

typedef struct dra_objective {
    const char *name;
    /* Inputs of the loss besides ids, i32 (B, T): arrays of a dra_microbatch by their names. */
    const char *inputs[DRA_OBJECTIVE_INPUTS + 1];
    /* Fills in defaults; says what of a config or a model does not fit. */
    dra_status (*complete)(dra_objective_config *c, const dra_model *m, dra_error *err);
    /* Turns rows of a feed into its inputs, in place. */
    void (*make)(const dra_objective_config *c, const dra_model *m, const dra_objective_rows *r);
    /* The mean over what counts, a scalar; `in`: its inputs in the order above. */
    dra_value (*loss)(dra_graph *g, const dra_model_result *r, const dra_value *in,
                      const dra_cross_entropy_config *c);
} dra_objective;

/* The row of a kind; DRA_OBJECTIVE_OWN: of the model's own. */
const dra_objective *dra_objective_of(dra_objective_kind kind, const dra_model *m);

#endif
