/* All verbs, in the order help shows them. */
#ifndef DRA_CLI_VERBS_VERBS_H
#define DRA_CLI_VERBS_VERBS_H

#include "options/options.h"

const cli_verb *cli_verb_at(size_t i); /* NULL beyond the last */
const cli_verb *cli_verb_find(const char *name);

/* Parses its words, those after its name, and runs it. Returns the exit status. */
int cli_verb_run(const cli_verb *verb, int argc, char *const *argv);

/* Says on stderr that there is no such verb, and which may be meant. Returns the exit status, 2. */
int cli_verb_unknown(const char *name);

#endif
