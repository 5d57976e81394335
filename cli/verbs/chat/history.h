/* Lines that were typed, kept in a file from one time to the next: one a line, oldest first. */
#ifndef DRA_CLI_VERBS_CHAT_HISTORY_H
#define DRA_CLI_VERBS_CHAT_HISTORY_H

#include "dra/base.h"

/* Where they are kept if nobody says otherwise: below $XDG_STATE_HOME, else ~/.local/state. false:
 * there is no such place. */
bool cli_history_path(char *path, size_t size);

typedef void (*cli_history_line)(void *user, const char *line);

/* Calls `fn` for the newest lines of a file, oldest first. A file that is not there has none; one
 * that has become long is cut. */
dra_status cli_history_read(const char *path, cli_history_line fn, void *user, dra_error *err);

/* Adds a line at once, so that a killed process loses none and two processes mix lines, not bytes.
 * Makes folders that are missing; what it makes is for its owner only. Where the home folder itself
 * is missing, nothing is kept. */
dra_status cli_history_add(const char *path, const char *line, dra_error *err);

#endif
