/* Small charts of a terminal, as rows above a status line. */
#ifndef DRA_CLI_REPORT_PLOT_H
#define DRA_CLI_REPORT_PLOT_H

#include "options/status.h"

typedef struct cli_plot {
    const char   *title;
    const double *y; /* n of `all` numbers that there will be */
    size_t        n, all;
} cli_plot;

enum { CLI_PLOTS = 2, CLI_PLOT_ROWS = 7 }; /* most curves; rows with the titles */

/* One curve or two side by side on one scale, as wide as the terminal, up to 128 columns each.
 * The scale starts at 0; or at the least value, and then the first steep fall is cut off at its
 * top. */
void cli_plots(cli_status *s, int n, const cli_plot *plots, bool from_zero);

#endif
