/* The clock, and how times, counts and bytes are written in few letters. */
#ifndef DRA_CLI_OPTIONS_UNITS_H
#define DRA_CLI_OPTIONS_UNITS_H

#include <stddef.h>

double cli_now(void); /* seconds since some moment */

/* Each returns `text`. */
const char *cli_time_text(double seconds, char text[24]); /* "3:07", "2:03:07", "28 days" */
const char *cli_whole_text(double x, char text[32]);      /* "2,420" */
const char *cli_count_text(double x, char text[24]);      /* "12.3 k", "4.5 M" */
const char *cli_bytes_text(size_t bytes, char text[24]);  /* "39.2 MiB" */

#endif
