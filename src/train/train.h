/* A run taken apart, as the files that make it, run it and keep its folder see it: config, folder,
 * log, checkpoints, and the trainer itself. */
#ifndef DRA_SRC_TRAIN_TRAIN_H
#define DRA_SRC_TRAIN_TRAIN_H

#include <jansson.h>

#include "base/error.h"
#include "dra/train.h"
#include "file/json_make.h"
#include "file/sweep.h"
#include "train/sums.h"

/* ---- config ---------------------------------------------------------------------------------- */

const struct dra_field *dra_train_fields(void);
json_t *dra_train_config_json(const dra_train_config *c); /* what is not default; NULL: no memory */
dra_status dra_train_config_read(const char *place, const json_t *object, dra_train_config *out,
                                 dra_error *err);
/* Puts what `given` says over `saved`. Where it differs in what decides about results: an error, or
 * with `force` taken. */
dra_status           dra_train_config_merge(dra_train_config *saved, const dra_train_config *given,
                                            bool force, dra_error *err);
dra_optimizer_config dra_train_optimizer(const dra_train_config *c);

/* ---- folders --------------------------------------------------------------------------------- */

enum { DRA_PATH = 4096 };

/* "folder/name" by a format; an error where it is too long. */
dra_status dra_path(char path[DRA_PATH], dra_error *err, const char *format, ...) DRA_PRINTF(3, 4);
dra_status dra_folder_make(const char *path, dra_error *err); /* may be there already */
dra_status dra_folder_sync(const char *path, dra_error *err);
/* `to` becomes the file `from`, at once: a link to it, or a copy where there are no links. */
dra_status dra_file_share(const char *from, const char *to, dra_error *err);

/* ---- log.jsonl ------------------------------------------------------------------------------- */

typedef struct dra_runlog {
    const char *path;
    int         fd;
    dra_events *events; /* get the numbers of all lines; NULL: there are none */

    const dra_trainer *run; /* its folder must be in place for each line; NULL: of no run */
} dra_runlog;

/* Opens a log for appending; what was said after `step`, and what is no line, is cut off first. */
dra_status dra_runlog_open(const char *path, int64_t step, dra_runlog *out, dra_error *err);
bool       dra_runlog_is(const char *path); /* it is empty, or begins as a log does */
void       dra_runlog_close(dra_runlog *log);
/* One line, written at once; `line`, which the maker made, is taken over. It says how many of its
 * numbers are not finite, where there are any. */
dra_status dra_runlog_write(dra_runlog *log, dra_json *j, json_t *line, dra_error *err);
dra_status dra_runlog_sync(dra_runlog *log, dra_error *err);
/* One write at the end of a file. What did not fit is taken back, so that the file stays whole. */
dra_status dra_append_whole(int fd, const char *path, const void *data, size_t bytes,
                            dra_error *err);
dra_status dra_events_sync(dra_events *e, dra_error *err);
uint32_t   dra_crc32c(const void *data, size_t bytes);

/* ---- checkpoints ----------------------------------------------------------------------------- */

typedef struct dra_checkpoint { /* train.json: where a run stands */
    int64_t          step, tokens;
    int64_t          skipped, in_a_row; /* steps without a change: all, and up to here */
    double           best_loss;         /* NaN: none yet */
    int64_t          since_best;        /* evaluations since then; kept where early_stop counts */
    double           blend;             /* what a blend by schedule started from */
    double           seconds;
    uint64_t         model, data; /* fingerprints */
    bool             carried;     /* there are states */
    char             level[16];   /* of micro-kernels, which decides about last bits; "": unknown */
    bool             other;       /* not stored: the optimizer is another one now */
    dra_train_config train;
} dra_checkpoint;

typedef struct dra_saved { /* what is stored with it */
    dra_device      *device;
    const dra_model *model;
    dra_weights     *weights;
    dra_optimizer   *optimizer;
    dra_states      *states; /* NULL: none */

    const dra_trainer *run; /* its folder must be in place for each file; NULL: of no run */
} dra_saved;

/* Writes RUN/train/step-NNNNNNNN, whole or not at all. */
dra_status dra_checkpoint_save(const char *run, const dra_checkpoint *c, const dra_saved *s,
                               dra_error *err);
/* Steps of the checkpoints of a run, newest first, at most `room` of them; returns how many there
 * are; 0 also where there is no folder. -1: it cannot be read, errno says why. */
int dra_checkpoint_list(const char *run, int room, int64_t *steps);
/* Reads train.json and knows from then on that all files are what was written. */
dra_status dra_checkpoint_read(const char *run, int64_t step, dra_checkpoint *out, dra_error *err);
/* Moments go into s->optimizer; weights and states are made. */
dra_status dra_checkpoint_load(const char *run, const dra_checkpoint *c, dra_saved *s,
                               dra_error *err);
/* Leaves the newest `keep`; -1 takes all away. */
dra_status dra_checkpoint_prune(const char *run, int64_t keep, dra_error *err);
dra_status dra_checkpoint_path(const char *run, int64_t step, const char *name, char path[DRA_PATH],
                               dra_error *err);

/* ---- a run ----------------------------------------------------------------------------------- */

enum { DRA_SKIPPED_MOST = 3 }; /* steps in a row, before a run ends */

struct dra_trainer {
    dra_trainer_config c;
    dra_checkpoint     at;    /* where the run stands; at.train: the config, complete */
    int64_t            saved; /* the step of the newest checkpoint; -1: none */
    int64_t            steps_before, schedule_before; /* of dra_trainer_plan */
    int                home, lock; /* the folder, and train in it, which is locked; -1 */
    bool               is_run;     /* the folder was one before */
    char               log_path[DRA_PATH];
    dra_runlog         log;
    dra_weights       *weights;
    dra_gradients     *gradients;
    dra_optimizer     *optimizer;
    int                blend; /* the parameter of a blend by schedule; -1: there is none */

    double                *share;   /* of each microbatch in the targets of a step */
    dra_microbatch_result *results; /* likewise */

    int64_t      rows;   /* of a microbatch */
    dra_sums    *sums;   /* of their gradients */
    dra_leaves   own;    /* those of this rank */
    dra_states **states; /* of each microbatch of this rank, where they are carried */
    int          stage;  /* of the batches; -1: there are none yet */
    dra_batches *batches;
    dra_batch    batch; /* of the step */
    int64_t     *chunk; /* lengths of chunks */

    dra_real    *reference[2]; /* of pairs of texts: the data, and those to evaluate on */
    dra_batches *eval;         /* NULL: nothing to evaluate */
    dra_view     view;
    dra_reader  *reader; /* of evaluations on texts */
    dra_event    event;  /* the last one */
};

int64_t dra_trainer_tokens(const dra_trainer *t, int stage); /* of a row: at most */
int64_t dra_trainer_context(const dra_trainer *t);           /* the longest of all stages */
bool    dra_trainer_marked(const dra_trainer *t);            /* tokens carry marks */
/* Cuts T tokens into t->chunk; returns into how many, 0: they are read whole. */
int dra_trainer_chunks(dra_trainer *t, int64_t T);
/* It has ended before its last step: evaluations got no better. */
bool dra_trainer_stopped_early(const dra_trainer *t);
/* Makes t->batches those of a stage; a rank reads its own rows of texts. */
dra_status dra_trainer_open_stage(dra_trainer *t, int stage, dra_error *err);
/* The data must be what they were; where a new run starts, they are noted. */
dra_status dra_trainer_open_data(dra_trainer *t, dra_error *err);
dra_status dra_trainer_open_eval(dra_trainer *t, dra_error *err);
/* What pairs of texts are compared with; nothing for other objectives. */
dra_status dra_trainer_open_references(dra_trainer *t, dra_error *err);

/* ---- the folder ------------------------------------------------------------------------------ */

/* A run may be there. */
dra_status dra_trainer_check_folder(dra_trainer *t, dra_error *err);
/* The weights to start from do not lie there. */
dra_status dra_trainer_check_weights(const dra_trainer *t, dra_error *err);
/* The log is a new file, the run's own one, or one that force may replace. */
dra_status dra_trainer_check_log(const dra_trainer *t, dra_error *err);
/* Makes the folders, and keeps others out of them. One that was no run must still be none. */
dra_status dra_trainer_claim(dra_trainer *t, dra_error *err);
/* Opens the folders, which are made where they are missing, and locks them. */
dra_status dra_trainer_hold(dra_trainer *t, dra_error *err);
void       dra_trainer_leave(dra_trainer *t);
/* Whether another process has claimed the folder, which is then the error. */
dra_status dra_trainer_check_alone(const dra_trainer *t, dra_error *err);
/* Notes the settings; a new run leaves nothing of another model or run behind. */
dra_status dra_trainer_begin(const dra_trainer *t, dra_error *err);
/* The settings that were noted; where there are none, *out is left alone. */
dra_status dra_trainer_settings(const dra_trainer *t, dra_train_config *out, dra_error *err);
/* Writes what a model folder has besides weights, or an adapter's. */
dra_status dra_trainer_describe(const dra_trainer *t, const char *folder, dra_error *err);
/* How the weights of such a folder are called. */
const char *dra_trainer_weights_file(const dra_trainer *t);

/* ---- saving ---------------------------------------------------------------------------------- */

/* The weights of the newest checkpoint become those of the folder; older ones go. */
dra_status dra_trainer_publish(dra_trainer *t, dra_error *err);

#endif
