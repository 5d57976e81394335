/* What a run takes of the disk, and what is free there. */
#ifndef DRA_CLI_VERBS_TRAIN_DISK_H
#define DRA_CLI_VERBS_TRAIN_DISK_H

#include "dra/train.h"

/* Refuses a run whose checkpoints cannot fit, before anything of it is written. `sure`: not by an
 * error, but by a warning. */
dra_status cli_disk_check(const char *run, const dra_model *model, const dra_train_config *c,
                          bool sure, dra_error *err);
/* The line of the plan: at most so much is written. */
void cli_disk_plan(const char *run, const dra_trainer_plan *p, FILE *out);

#endif
