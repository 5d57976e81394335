/* What a training run shows: a progress line with an estimate of what is left, and a plot. */
#ifndef DRA_EXAMPLES_TERMINAL_H
#define DRA_EXAMPLES_TERMINAL_H

double terminal_seconds(void); /* a clock */

/* One line, rewritten on a terminal; elsewhere a line every `every` steps. step counts from 1. */
void terminal_progress(int step, int steps, int every, double loss, double tokens_per_second,
                       double started);

/* A plot of n values over 64 columns and 12 lines. */
void terminal_plot(const char *title, int n, const double *y);

#endif
