/* What the terminal gets: colour where there is one, its width, errors, JSON text. */
#ifndef DRA_CLI_TERM_H
#define DRA_CLI_TERM_H

#include "dra/base.h"

#include <stdio.h>

bool cli_moves(FILE *out); /* a terminal whose cursor can be moved */

/* Escape sequences, or "" when `out` is not a terminal, NO_COLOR is set or TERM is dumb. */
const char *cli_bold(FILE *out);
const char *cli_green(FILE *out); /* bold, as the next one */
const char *cli_blue(FILE *out);
const char *cli_plain(FILE *out);

/* Columns of the terminal; 80 when `out` is none or does not say. */
size_t cli_width(FILE *out);

/* Says on stderr what the library reported. Returns the exit status, 1. */
int cli_fail(const dra_error *err);

/* Writes `text` as a JSON string, quotes included. `text` is UTF-8. */
void cli_json_text(const char *text, FILE *out);

/* The same without quotes, for a string that comes in parts. */
void cli_json_part(const char *text, size_t bytes, FILE *out);

/* x as a JSON number with at most `digits` digits; "null" where it is not finite, which JSON cannot
 * write. Every real number in JSON output passes through here. */
enum { CLI_NUMBER = 32 };
const char *cli_json_number(double x, int digits, char room[CLI_NUMBER]);

#endif
