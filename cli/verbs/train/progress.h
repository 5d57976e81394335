/* What a run shows while it trains, and the signals that stop it. */
#ifndef DRA_CLI_VERBS_TRAIN_PROGRESS_H
#define DRA_CLI_VERBS_TRAIN_PROGRESS_H

#include "options/status.h"

#include "dra/train.h"

enum { CLI_TRAIN_LABEL = 9 }; /* columns of what a line is about */

typedef struct cli_curve { /* losses of all steps, as means of `each` of them */
    size_t  n;
    int64_t each, in; /* `in` of the next one are added up in `sum` */
    double  sum, y[512];
} cli_curve; /* starts as {0} */

void cli_curve_add(cli_curve *c, double y);

typedef struct cli_train_progress {
    cli_status status;
    cli_curve  curve;
    int64_t    log_every;
    dra_event  last;
    double     lowest; /* loss of a step; NaN: none was finite */
    int64_t    first;  /* step of the first event */
    int64_t    past;   /* steps before it that the curve has */
    double     first_loss;
    double     began;       /* seconds of work then */
    bool       told;        /* how long it will take */
    bool       asks;        /* whether to go on, where that is long */
    bool       declined;    /* no */
    bool       stopped;     /* by a signal, and its answer is on the screen */
    double     minutes;     /* of work, after which it stops; 0: never */
    bool       eval_ruined; /* the last evaluation had no finite loss */
    /* Writes a sample; may be NULL. */
    void (*sample)(void *user, const dra_event *e);
    void *user;
} cli_train_progress;

/* SIGINT, SIGTERM and SIGHUP end a run after the step at hand; the second one ends the process. */
void cli_progress_signals(void);
/* The first one is answered at once where stderr is a terminal. */
void cli_progress_answer(void);
bool cli_progress_stopped(void);
int  cli_progress_status(void); /* the exit status of what was stopped: 128 and the signal */

void cli_progress_open(cli_train_progress *w, FILE *out);
/* Takes the losses of a log up to a step into the curve; without a log there are none. */
void cli_progress_past(cli_train_progress *w, const char *log, int64_t until);
/* At a terminal: which step is being computed, before there is anything to say about it. */
void cli_progress_first(cli_train_progress *w, int64_t step, int64_t steps);
bool cli_progress_event(void *watch, const dra_event *e); /* a dra_on_event */
void cli_progress_close(cli_train_progress *w); /* curve and line stay as they are in the end */

/* What is to come: parameters, tokens, epochs, memory. */
void cli_progress_plan(const dra_trainer_plan *p, FILE *out);
/* That a model made for a vocabulary of its own will read bytes. */
void cli_progress_bytes(const char *preset, int64_t vocab, FILE *out);
/* The last step's loss is far above the first one's. */
bool cli_progress_diverged(const cli_train_progress *w);
/* What was done: tokens, time, losses. */
void cli_progress_totals(const cli_train_progress *w, FILE *out);
/* Commands to go on with; `best`: an earlier model is better; `text`: there is a tokenizer. */
void cli_progress_next(const char *run, const dra_model *model, bool best, bool text, FILE *out);

#endif
