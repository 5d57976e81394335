/* What the terminal gets: colour where there is one, its width, errors, JSON text. */
#ifndef DRA_CLI_OPTIONS_TERM_H
#define DRA_CLI_OPTIONS_TERM_H

#include "dra/base.h"

#include <stdarg.h>
#include <stdio.h>

bool cli_moves(FILE *out); /* a terminal whose cursor can be moved */

/* Escape sequences, or "" when `out` is not a terminal, NO_COLOR is set or TERM is dumb. */
const char *cli_bold(FILE *out);
const char *cli_green(FILE *out); /* bold, as the next one */
const char *cli_blue(FILE *out);
const char *cli_plain(FILE *out);

/* Columns of the terminal; 80 when `out` is none or does not say. */
size_t cli_width(FILE *out);
size_t cli_height(FILE *out); /* its rows; 24 where it does not say */

/* Columns that UTF-8 takes on a terminal: letters of East Asia and pictures take two. */
size_t cli_columns(const char *text);
/* Writes as much of a text as fits in `width` columns, with ? for what cannot be shown (see
 * dra_letter). Returns the columns. */
size_t cli_put(const char *text, size_t width, FILE *out);
/* Writes one line, with its newline. Names, paths and values from files and flags are in it, so it
 * passes dra_make_shown(). Every message is written here. */
void cli_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_line_v(FILE *out, const char *format, va_list values);
/* The same of a text that is part of a line, cut where it is too long. Returns `room`. */
enum { CLI_CLEAN = 256 };
const char *cli_clean(const char *text, char room[CLI_CLEAN]);
/* Writes words in lines that fit the terminal, and a newline. The first line continues at column
 * `at`, the others start at `indent`. */
void cli_wrap(const char *text, size_t length, size_t at, size_t indent, FILE *out);
/* The same of a whole line at a terminal; elsewhere the line as it is. */
void cli_fold(size_t indent, FILE *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What an error number means, in words of our own where there is no memory. */
const char *cli_reason(int number);
/* Says on stderr what the library reported. Returns the exit status, 1. */
int cli_fail(const dra_error *err);

/* Writes `text` as a JSON string, quotes included. `text` is UTF-8. What cannot be shown is written
 * as \u and a number. */
void cli_json_text(const char *text, FILE *out);

/* The same without quotes, for a string that comes in parts. */
void cli_json_part(const char *text, size_t bytes, FILE *out);

/* x as a JSON number with at most `digits` digits; "null" where it is not finite, which JSON cannot
 * write. Every real number in JSON output passes through here. */
enum { CLI_NUMBER = 32 };
const char *cli_json_number(double x, int digits, char room[CLI_NUMBER]);
/* The same with as few digits as read back as x: 0.1. */
const char *cli_json_shortest(double x, char room[CLI_NUMBER]);

#endif
