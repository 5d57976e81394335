/* Completion of the command line for shells, from the tables that parse. */
#ifndef DRA_CLI_OPTIONS_COMPLETE_H
#define DRA_CLI_OPTIONS_COMPLETE_H

#include "options.h"

void cli_complete_bash(FILE *out);
void cli_complete_zsh(FILE *out);

/* What an option's value may be: a file (or folder), a folder only, and these words. */
bool cli_takes_files(const cli_option *o);
bool cli_takes_folders(const cli_option *o);
/* Writes the words with blanks between them; returns how many there are. */
size_t cli_write_words(const cli_option *o, FILE *out);
/* The same of the keys of a config, as far as they go: "dim=", "mixer.b.". */
void cli_write_keys(FILE *out);

#endif
