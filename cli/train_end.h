/* What a run says about where it ends. */
#ifndef DRA_CLI_TRAIN_END_H
#define DRA_CLI_TRAIN_END_H

#include "train_progress.h"

/* What a resumed run does otherwise than it was planned; nothing: it does not. */
void cli_train_changes(const dra_trainer_plan *p, FILE *out);
/* After its last step: that it is done, ended early, or was stopped. */
void cli_train_end(const char *run, const cli_train_progress *w, const dra_trainer_plan *plan);

#endif
