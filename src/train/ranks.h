/* What the ranks of a run tell each other. Rank 0 alone writes; all of them take the same steps. */
#ifndef DRA_SRC_TRAIN_RANKS_H
#define DRA_SRC_TRAIN_RANKS_H

#include "comm/comm.h"
#include "train/train.h"

bool dra_trainer_writes(const dra_trainer *t); /* it is rank 0, or alone */

/* All stand where rank 0 does: `st` is what finding that place has come to. */
dra_status dra_ranks_settle(dra_trainer *t, dra_status st, dra_error *err);
/* All have the same model, settings, data and level of kernels. */
dra_status dra_ranks_compare(dra_trainer *t, dra_status st, dra_error *err);
/* All have the same weights. */
dra_status dra_ranks_check_weights(dra_trainer *t, dra_status st, dra_error *err);
/* t->batch: what counts of rows that other ranks have read. */
dra_status dra_ranks_count(dra_trainer *t, dra_status st, dra_error *err);
/* t->results: those of all microbatches. Gradients: their sums over all. */
dra_status dra_ranks_join(dra_trainer *t, dra_status st, dra_error *err);
/* After a step: what rank 0 has measured, and whether any rank is to stop. */
dra_status dra_ranks_finish(dra_trainer *t, bool *stop, dra_status st, dra_error *err);
/* Rows of carried states, which other ranks have, into those of rank 0: `all`, else NULL. */
dra_status dra_ranks_gather_states(const dra_trainer *t, dra_states *all, dra_error *err);

#endif
