/* Values from text: strict numbers, so that nothing a user typed is dropped or guessed. */
#ifndef DRA_CLI_OPTIONS_VALUE_H
#define DRA_CLI_OPTIONS_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal only, the whole text, no blanks; false when it is not a number or does not fit.
 * Reals are finite: "nan" and "inf" are refused. */
bool cli_read_int(const char *text, int64_t *out);
bool cli_read_real(const char *text, double *out);
bool cli_read_bool(const char *text, bool *out); /* on off true false yes no 1 0 */

/* Puts `text` between quotes, on one line and of bounded length, for an error. Returns `out`. */
const char *cli_quote(const char *text, char *out, size_t size);

#endif
