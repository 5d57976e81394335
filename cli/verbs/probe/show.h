/* What probes show: progress, a table, lines of JSON. */
#ifndef DRA_CLI_VERBS_PROBE_SHOW_H
#define DRA_CLI_VERBS_PROBE_SHOW_H

#include "sweep.h"
#include "options/status.h"

#include "dra/probe.h"

typedef struct cli_probe_run { /* one of them, as it was asked for */
    dra_probe        probe;    /* complete */
    dra_train_config train;
    int64_t          parameters;
} cli_probe_run;

/* The table: a column for each axis of a sweep that has several values, and what was measured. */
void cli_probe_head(const cli_sweep *s, FILE *out);
void cli_probe_row(const cli_sweep *s, int64_t run, const cli_probe_run *r,
                   const dra_probe_result *x, FILE *out);
void cli_probe_json(const cli_sweep *s, int64_t run, const cli_probe_run *r,
                    const dra_probe_result *x, FILE *out);

typedef struct cli_progress {
    cli_status       status;
    const cli_sweep *sweep;
    int64_t          run, runs;
    double           minutes;       /* after which a run ends; 0: never */
    double           began, before; /* when this run did; seconds of those that are done */
} cli_progress;

void cli_progress_start(cli_progress *p, int64_t run);
void cli_progress_end(cli_progress *p);
bool cli_progress_step(void *progress, const dra_probe_result *r); /* a dra_on_probe */

#endif
