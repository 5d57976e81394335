/* Small charts of a terminal, as rows above a status line. */
#ifndef DRA_CLI_REPORT_PLOT_H
#define DRA_CLI_REPORT_PLOT_H

#include "options/status.h"

#include <stdint.h>

typedef struct cli_plot {
    const char   *title;
    const double *y; /* n of `all` numbers that there will be */
    size_t        n, all;
    const char   *unit; /* of a scale below the curve; NULL: there is none */
    int64_t       from, to;
} cli_plot;

enum { CLI_PLOTS = 2, CLI_PLOT_ROWS = 8 }; /* most curves; rows with the titles and a scale */

/* One curve or two side by side on one scale, as wide as the terminal, up to 128 columns each.
 * Heights start at 0; or at the least value, and then the first steep fall is cut off at its top. A
 * scale below is for one curve. */
void cli_plots(cli_status *s, int n, const cli_plot *plots, bool from_zero);

#endif
