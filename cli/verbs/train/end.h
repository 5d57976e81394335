/* What a run says about where it ends. */
#ifndef DRA_CLI_VERBS_TRAIN_END_H
#define DRA_CLI_VERBS_TRAIN_END_H

#include "progress.h"

/* Where a resumed run goes on, and what it does otherwise than it was planned. */
void cli_train_changes(const dra_trainer_plan *p, FILE *out);

typedef struct cli_trained {
    const char      *run; /* its folder */
    const dra_model *model;
    bool             text; /* there is a tokenizer */
} cli_trained;

/* After its last step: what was done; that it is complete, ended early, or was stopped; commands to
 * go on with. */
void cli_train_end(const cli_trained *t, const cli_train_progress *w, const dra_trainer_plan *plan);
/* The same as one JSON object. */
void cli_train_json(const cli_trained *t, const cli_train_progress *w, const dra_trainer_plan *plan,
                    FILE *out);

#endif
