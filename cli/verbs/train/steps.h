/* Settings of a run that follow from its model and its data: steps of --epochs, samples. */
#ifndef DRA_CLI_VERBS_TRAIN_STEPS_H
#define DRA_CLI_VERBS_TRAIN_STEPS_H

#include "dra/train.h"

typedef struct cli_train_data { /* all is borrowed */
    const dra_model     *model;
    const dra_corpus    *data; /* or */
    const dra_examples  *examples;
    bool                 evaluated; /* by data of their own: the split is not taken off */
    const dra_tokenizer *tokenizer; /* NULL: there is none */
} cli_train_data;

/* Sets the steps that read the data `epochs` times, the last one perhaps in part. */
dra_status cli_train_epochs(const cli_train_data *d, double epochs, dra_train_config *c,
                            dra_error *err);
/* Where nothing was said: about four samples in a run, of a model that writes text. */
void cli_train_samples(const cli_train_data *d, dra_train_config *c);

#endif
