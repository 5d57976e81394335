/* How a run was started: a line of DIR/train/started.jsonl for each time, with the date, the
 * command and the machine. Nothing but a report reads it. */
#ifndef DRA_CLI_REPORT_STARTED_H
#define DRA_CLI_REPORT_STARTED_H

#include "dra/dra.h"

/* more: the run continues, its earlier lines stay. */
dra_status cli_started_note(const char *run, const dra_device *device, bool more, dra_error *err);

/* The command of its last line; false: it is not known, or too long for `size` bytes. */
bool cli_started_command(const char *run, char *text, size_t size);

#endif
