/* What a run shows while it trains, and the signals that stop it. */
#ifndef DRA_CLI_TRAIN_WATCH_H
#define DRA_CLI_TRAIN_WATCH_H

#include "dra/train.h"

#include <stdio.h>

typedef struct cli_train_progress {
    FILE     *out;
    bool      terminal; /* one line that changes; else a line now and then */
    int64_t   log_every;
    dra_event last;
    int64_t   first; /* step of the first event */
    double    began; /* seconds of work then */
    bool      told;  /* how long it will take */
    bool      open;  /* the changing line is on the screen */
    /* Writes a sample; may be NULL. */
    void (*sample)(void *user, const dra_event *e);
    void *user;
} cli_train_progress;

/* SIGINT, SIGTERM and SIGHUP end a run after the step at hand; the second one ends the process. */
void cli_progress_signals(void);
bool cli_progress_stopped(void);
int  cli_progress_status(void); /* the exit status of what was stopped: 128 and the signal */

bool cli_progress_event(void *watch, const dra_event *e); /* a dra_on_event */
void cli_progress_break(cli_train_progress *w);           /* the changing line is done with */

/* What is to come: parameters, tokens, epochs, memory. */
void cli_progress_plan(const dra_trainer_plan *p, FILE *out);

#endif
