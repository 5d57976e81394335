/* Small charts of a terminal, and a block of lines that changes in place. */
#ifndef DRA_CLI_PLOT_H
#define DRA_CLI_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct cli_screen {
    FILE  *out;
    bool   terminal; /* blocks change in place; else there are none */
    int    lines;    /* of the block on the screen */
    double shown;    /* when, in seconds */
} cli_screen;

/* Whether it is time for the next block: there is a terminal, and the last one is old enough. */
bool cli_screen_due(cli_screen *s);
/* Goes back to the first line of the block, which is to be written again, or is done with. */
void cli_screen_back(cli_screen *s);
/* Writes a line of a block. */
void cli_screen_line(cli_screen *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct cli_plot {
    const char   *title;
    const double *y; /* n of `all` numbers that there will be */
    size_t        n, all;
} cli_plot;

/* Two curves side by side on one scale, as lines of a block of at most 79 columns. The scale
 * starts at 0; or at the least value, and then the first steep fall is cut off at its top. */
void cli_plot_pair(cli_screen *s, const cli_plot plots[2], bool from_zero);

#endif
