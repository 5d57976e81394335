/* Runs of a study as processes, several at once. */
#ifndef DRA_CLI_VERBS_STUDY_PROCESS_H
#define DRA_CLI_VERBS_STUDY_PROCESS_H

#include "study.h"

#include <sys/types.h>

typedef struct cli_study_settings { /* what all runs have in common; borrowed */
    const char *folder, *corpus, *device;
    int64_t     threads;
} cli_study_settings;

typedef struct cli_study_process {
    cli_study_run run;
    size_t        block;
    pid_t         pid; /* 0: none */
    double        began;
} cli_study_process; /* starts as {0} */

/* Checks that the commands of a run are right: else misuse, which is said. Exit status. */
int cli_study_check(const cli_study_run *r, const cli_study_settings *c);

dra_status cli_study_start(const cli_study_run *r, size_t block, const cli_study_settings *c,
                           cli_study_process *out, dra_error *err);
void       cli_study_stop(const cli_study_process *p); /* as Ctrl-C does */

/* Looks whether it has ended. *stopped: it was stopped and has no result. `out` is filled in where
 * it ended and was not; `why` (DRA_ERROR_TEXT bytes) is room for out->failed. */
bool cli_study_ended(cli_study_process *p, const cli_study_settings *c, bool *stopped,
                     cli_study_outcome *out, char *why);

#endif
