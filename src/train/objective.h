/* Objectives inside: the table of what can be learned. */
#ifndef DRA_SRC_TRAIN_OBJECTIVE_H
#define DRA_SRC_TRAIN_OBJECTIVE_H

#include "dra/train.h"
#include "train/losses.h"

enum { DRA_OBJECTIVE_INPUTS = 4 };

typedef enum dra_objective_axes {
    DRA_AXES_TOKENS,  /* (B, T)                                    */
    DRA_AXES_ROWS,    /* (B)                                       */
    DRA_AXES_VECTORS, /* (B, T, channels of the vectors it reads)  */
    DRA_AXES_OUTPUTS  /* (B, T, channels of those it puts out)     */
} dra_objective_axes;

typedef struct dra_objective_input {
    const char        *name; /* NULL: there are no more */
    dra_dtype          dtype;
    dra_objective_axes axes;
} dra_objective_input;

/* What people read: the mean of a measure of the loss, or the loss itself, as it is or made more
 * telling. */
typedef enum dra_measure_form {
    DRA_MEASURE_PLAIN,
    DRA_MEASURE_ROOT,
    DRA_MEASURE_EXP
} dra_measure_form;
typedef struct dra_measure {
    const char      *name; /* NULL: there are no more */
    dra_measure_form form;
    bool             of_loss; /* not a value of its own */
} dra_measure;

typedef struct dra_loss_config {
    const dra_model_config     *model;
    const dra_objective_config *objective; /* complete */
    dra_cross_entropy_config    entropy;
} dra_loss_config;

typedef struct dra_objective {
    const char *name;
    /* Inputs of the loss besides those of the model: the targets of a dra_microbatch, or its inputs
     * by their names. */
    dra_objective_input inputs[DRA_OBJECTIVE_INPUTS + 1];
    dra_measure         measures[DRA_MEASURES + 1];
    bool                shifts; /* of N tokens or vectors N - 1 are read, to predict the next */
    /* Fills in defaults; says what of a config or a model does not fit. */
    dra_status (*complete)(dra_objective_config *c, const dra_model *m, dra_error *err);
    /* Turns rows of tokens into its inputs, in place. */
    void (*make)(const dra_objective_config *c, const dra_model *m, const dra_objective_rows *r);
    /* The mean over what counts; `in`: its inputs in the order above. */
    dra_loss (*loss)(dra_graph *g, const dra_model_result *r, const dra_value *in,
                     const dra_loss_config *c);
} dra_objective;

/* Of masked. */
dra_status dra_masked_complete(dra_objective_config *c, const dra_model *m, dra_error *err);
void       dra_masked_make(const dra_objective_config *c, const dra_model *m,
                           const dra_objective_rows *r);
/* mask_token as a complete config has it: what the model says itself, or its last token. */
int64_t dra_mask_token(const dra_model_config *m, int64_t asked);
/* How much of a text is hidden at 0 <= u <= 1 of a schedule, linear unless it is cosine. */
double dra_mask_share(dra_mask_schedule schedule, double u);

/* The row of a kind; DRA_OBJECTIVE_OWN: of the model's own. */
const dra_objective *dra_objective_of(dra_objective_kind kind, const dra_model *m);
/* The shape of an input for B rows of T tokens. */
dra_shape dra_objective_shape(const dra_objective_input *in, const dra_model *m, int64_t B,
                              int64_t T);
/* A measure as people read it. */
double dra_measure_show(const dra_measure *m, double mean);

#endif
