/* A run taken apart, as the files that make it and run it see it. */
#ifndef DRA_SRC_RUN_TRAINER_H
#define DRA_SRC_RUN_TRAINER_H

#include "run/runs.h"

enum { DRA_SKIPPED_MOST = 3 }; /* steps in a row, before a run ends */

struct dra_trainer {
    dra_trainer_config c;
    dra_checkpoint     at;    /* where the run stands; at.train: the config, complete */
    int64_t            saved; /* the step of the newest checkpoint; -1: none */
    int                lock;
    bool               is_run; /* the folder was one before */
    char               log_path[DRA_PATH];
    dra_runlog         log;
    dra_weights       *weights;
    dra_gradients     *learner;
    dra_optimizer     *optimizer;
    int                blend; /* the parameter of a blend by schedule; -1: there is none */

    double                *share;   /* of each lesson in the targets of a step */
    dra_microbatch_result *results; /* likewise */

    int64_t      rows;   /* of a lesson */
    dra_states **states; /* of each lesson, where they are carried */
    int          stage;  /* of the feed; -1: there is none yet */
    dra_feed    *feed;
    int32_t     *ids, *targets, *mark; /* (batch, longest context); ids owns all */
    int64_t     *chunk;                /* lengths of chunks */

    dra_feed   *eval; /* NULL: nothing to evaluate */
    dra_view    view;
    dra_reader *reader; /* of evaluations */
    dra_event   event;  /* the last one */
};

int64_t dra_trainer_context(const dra_trainer *t); /* the longest of all stages */
bool    dra_trainer_marked(const dra_trainer *t);  /* tokens carry marks */
/* Cuts T tokens into t->chunk; returns into how many, 0: they are read whole. */
int dra_trainer_chunks(dra_trainer *t, int64_t T);
/* Makes t->feed that of a stage. */
dra_status dra_trainer_open_stage(dra_trainer *t, int stage, dra_error *err);

/* ---- the folder ------------------------------------------------------------------------------ */

/* A run may be there. */
dra_status dra_trainer_check_folder(dra_trainer *t, dra_error *err);
/* The weights to start from do not lie there. */
dra_status dra_trainer_check_weights(const dra_trainer *t, dra_error *err);
/* The log is a new file, the run's own one, or one that force may replace. */
dra_status dra_trainer_check_log(const dra_trainer *t, dra_error *err);
/* Makes the folders, and keeps others out of them. One that was no run must still be none. */
dra_status dra_trainer_claim(dra_trainer *t, dra_error *err);
/* Notes the settings; a new run leaves nothing of another model or run behind. */
dra_status dra_trainer_begin(const dra_trainer *t, dra_error *err);
/* The settings that were noted. */
dra_status dra_trainer_settings(const dra_trainer *t, dra_train_config *out, dra_error *err);
/* Writes what a model folder has beside weights. */
dra_status dra_trainer_describe(const dra_trainer *t, const char *folder, dra_error *err);

/* ---- saving ---------------------------------------------------------------------------------- */

dra_status dra_trainer_save(dra_trainer *t, dra_error *err);
/* The weights of the newest checkpoint become those of the folder. */
dra_status dra_trainer_publish(dra_trainer *t, dra_error *err);

#endif
