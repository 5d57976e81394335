/* Options of dra train that are read in parts. */
#ifndef DRA_CLI_VERBS_TRAIN_READ_H
#define DRA_CLI_VERBS_TRAIN_READ_H

#include "dra/train.h"

/* --context: "256" or "128:0,256:1000". */
bool cli_read_stages(const char *text, dra_train_config *c);
/* --aux-loss: "drift=0.1". Returns the exit status; misuse is said, in the name of a verb. */
int cli_read_aux_loss(const char *verb, const char *text, dra_train_config *c);
/* "decay:lr=2x,wd=0", of --group. The same. */
int cli_read_group(const char *verb, const char *text, dra_train_config *c);
/* "r=16,alpha=32,targets=q,v", of --lora. The same. */
int cli_read_lora(const char *verb, const char *text, dra_train_config *c);
/* What the args of dra train ask for can be, for a new run. The same. */
int cli_train_check(const void *args, const char *verb);

#endif
