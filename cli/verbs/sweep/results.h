/* What came of the runs of a sweep: read from their logs, as a table and as JSON. */
#ifndef DRA_CLI_VERBS_SWEEP_RESULTS_H
#define DRA_CLI_VERBS_SWEEP_RESULTS_H

#include "io/model.h"
#include "verbs/probe/sweep.h"

enum { CLI_SWEEP_NAME = 256, CLI_SWEEP_PATH = 4096 };

typedef struct cli_sweep_run {
    char    name[CLI_SWEEP_NAME]; /* of its folder in that of the sweep */
    char    folder[CLI_SWEEP_PATH];
    bool    failed;
    int64_t step;            /* the last one in its log */
    double  loss, eval_loss; /* the last one of training, the lowest of evaluations; NaN: none */
    double  seconds;
} cli_sweep_run;

typedef struct cli_sweep_results {
    const cli_sweep *sweep;
    int              seeds; /* the axis over which means are taken; -1: there is none */
    int64_t          n;
    cli_sweep_run   *runs;
} cli_sweep_results;

/* Reads the log of a run; what is not there stays NaN. */
void cli_sweep_run_read(cli_sweep_run *r);
/* A row for each setting, the lowest evaluation loss first. */
void cli_sweep_table(const cli_sweep_results *s, FILE *out);
/* The same as JSON; false: no memory. */
bool       cli_sweep_print_json(const cli_sweep_results *s, FILE *out);
dra_status cli_sweep_json(const cli_sweep_results *s, const char *path, dra_error *err);

#endif
