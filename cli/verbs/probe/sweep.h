/* Sweeps: options that have lists of values, and all the runs they make. */
#ifndef DRA_CLI_VERBS_PROBE_SWEEP_H
#define DRA_CLI_VERBS_PROBE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cli_axis {
    const char *name;
    bool        key;  /* of the model's config; else an option */
    int         with; /* the axis whose values it goes with, one by one; its own number: none */
    int64_t     count;
    char      **value; /* in memory of the axis */
} cli_axis;

enum { CLI_AXES = 40 };

typedef struct cli_sweep {
    int      n;
    cli_axis axis[CLI_AXES];
} cli_sweep; /* starts as {0} */

/* Values between commas; commas in brackets or quotes are part of one. Names are borrowed. false:
 * a value is empty, there are too many axes, or no memory, which is remembered (memory.h). */
bool cli_sweep_add(cli_sweep *s, const char *name, bool key, const char *list);
/* Values of the last axis go with those of the one before it, or of the one that that goes with.
 * false: there are not as many of them. */
bool cli_sweep_couple(cli_sweep *s);
void cli_sweep_free(cli_sweep *s);

int64_t     cli_sweep_runs(const cli_sweep *s); /* every value of an axis with all of the others */
const char *cli_sweep_value(const cli_sweep *s, int axis, int64_t run); /* the first is slowest */

#endif
