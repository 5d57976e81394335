/* Progress line and plot in plain characters. */
#include "support/terminal.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 64, HEIGHT = 12 };

double terminal_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void terminal_progress(int step, int steps, int every, double loss, double tokens_per_second,
                       double started)
{
    const bool   live = isatty(STDOUT_FILENO);
    const double left = (terminal_seconds() - started) / step * (steps - step);
    if (!live && step % every != 0 && step != steps) return;
    printf("%sstep %4d/%d   loss %.3f   %5.0f tokens/s   %d:%02d left%s", live ? "\r" : "", step,
           steps, loss, tokens_per_second, (int)left / 60, (int)left % 60, live ? "   " : "\n");
    fflush(stdout);
}

/* The mean of the values that fall into column c. */
static double column_mean(int n, const double *y, int c)
{
    int    from = c * n / WIDTH, to = (c + 1) * n / WIDTH;
    double sum = 0;
    if (to <= from) to = from + 1;
    for (int i = from; i < to; i++) sum += y[i < n ? i : n - 1];
    return sum / (to - from);
}

void terminal_plot(const char *title, int n, const double *y)
{
    double at[WIDTH], lo, hi;
    if (n < 1) return;
    for (int c = 0; c < WIDTH; c++) at[c] = column_mean(n, y, c);
    lo = hi = at[0];
    for (int c = 0; c < WIDTH; c++) {
        if (at[c] < lo) lo = at[c];
        if (at[c] > hi) hi = at[c];
    }
    const double step = hi > lo ? (hi - lo) / (HEIGHT - 1) : 1;
    printf("\n%s\n", title);
    for (int line = HEIGHT - 1; line >= 0; line--) {
        if (line % 3 == 2)
            printf("%7.2f |", lo + line * step);
        else
            printf("        |");
        for (int c = 0; c < WIDTH; c++)
            putchar((int)((at[c] - lo) / step + 0.5) == line ? '*' : ' ');
        putchar('\n');
    }
    printf("        +");
    for (int c = 0; c < WIDTH; c++) putchar('-');
    printf("\n         1%*d steps\n\n", WIDTH - 1, n);
}
