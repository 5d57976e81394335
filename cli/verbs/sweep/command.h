/* The command of a run in a sweep: the words that dra train gets. */
#ifndef DRA_CLI_VERBS_SWEEP_COMMAND_H
#define DRA_CLI_VERBS_SWEEP_COMMAND_H

#include "results.h"

typedef struct cli_command {
    int    n;
    char **word;
    int    given; /* words that all runs share, borrowed; the others are its own */
    char  *said;  /* all that decides about results, as one text */
} cli_command;    /* starts as {0} */

typedef struct cli_command_words { /* what all commands have in common */
    const cli_list *rest;
    int64_t         threads;
} cli_command_words;

/* The option of dra train that a key names, with dashes or as JSON has it; NULL: none. */
const cli_option *cli_sweep_option(const char *key);
/* lr=0.003_mixer.memory=delta_seed=1: what differs between runs, in letters that are safe in a
 * path. */
void cli_sweep_name(const cli_sweep *s, int64_t run, char name[CLI_SWEEP_NAME]);

/* false: no memory. */
bool cli_command_make(const cli_command_words *a, const cli_sweep *s, int64_t run,
                      const char *folder, cli_command *c);
void cli_command_free(cli_command *c);
/* Its options are right: else misuse, which is said. Returns the exit status. */
int cli_command_check(const cli_command *c);
/* The model of its run can be made. */
dra_status cli_command_model(const cli_command *c, dra_error *err);
int        cli_command_run(const cli_command *c); /* trains; returns the exit status */

/* DIR/done.jsonl of a sweep has a line for each run that is done by some command. */
bool cli_sweep_is_done(const char *sweep, const cli_sweep_run *r, const cli_command *c);
int  cli_sweep_done(const char *sweep, const cli_sweep_run *r, const cli_command *c);

#endif
