/* Charts of dots: a letter of Braille is 2 dots wide and 4 high. */
#include "plot.h"
#include "options/term.h"

#include <math.h>
#include <string.h>

enum { MOST = 128, ROWS = CLI_PLOT_ROWS - 2, HIGH = 4 * ROWS }; /* columns; rows; dots */

/* ---- curves ---------------------------------------------------------------------------------- */

typedef struct scale {
    size_t wide; /* dots */
    double lo, hi;
} scale;

typedef unsigned char cells[ROWS][MOST];

/* The mean of the numbers in a column of dots; NaN: there are none yet. */
static double column_mean(const cli_plot *p, size_t wide, size_t column)
{
    const size_t from = column * p->all / wide;
    size_t       to = (column + 1) * p->all / wide;
    double       sum = 0;
    if (to <= from) to = from + 1;
    if (to > p->n) return NAN;
    for (size_t i = from; i < to; i++) sum += p->y[i];
    return sum / (double)(to - from);
}

static scale find_scale(int n, const cli_plot *plots, size_t wide, bool from_zero)
{
    const size_t fall = wide / 10; /* columns */
    const bool   later = !from_zero && !isnan(column_mean(&plots[n - 1], wide, fall));
    scale        s = {wide, NAN, NAN};
    for (int k = 0; k < n; k++)
        for (size_t c = later ? fall / 2 : 0; c < wide; c++) {
            const double y = column_mean(&plots[k], wide, c);
            s.lo = fmin(s.lo, y);
            s.hi = fmax(s.hi, y);
        }
    if (from_zero || isnan(s.lo)) s.lo = 0;
    if (!(s.hi > s.lo)) s.hi = s.lo + 1;
    return s;
}

static int dot_height(const scale *s, double y)
{
    return (int)lrint(fmax(0, fmin(1, (y - s->lo) / (s->hi - s->lo))) * (HIGH - 1));
}

/* Sets a dot, counted from the bottom. */
static void set_dot(cells to, size_t x, int y)
{
    static const unsigned char bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int down = HIGH - 1 - y;
    to[down / 4][x / 2] |= bits[down % 4][x % 2];
}

/* Draws a curve; neighbouring dots are joined by a vertical line. */
static void draw_curve(const cli_plot *p, const scale *s, cells to)
{
    int before = -1;
    for (size_t c = 0; c < s->wide; c++) {
        const double mean = column_mean(p, s->wide, c);
        if (!isfinite(mean)) continue;
        const int y = dot_height(s, mean), step = y < before ? 1 : -1;
        set_dot(to, c, y);
        for (int k = y; before >= 0 && k != before; k += step) set_dot(to, c, k);
        before = y;
    }
}

/* Writes a cell as UTF-8: U+2800 plus the dots. */
static void put_cell(char *text, unsigned char dots)
{
    text[0] = (char)0xe2;
    text[1] = (char)(0xa0 | dots >> 6);
    text[2] = (char)(0x80 | (dots & 0x3f));
}

static void write_row(char text[3 * MOST + 1], const unsigned char dots[MOST], size_t columns)
{
    for (size_t i = 0; i < columns; i++) put_cell(text + 3 * i, dots[i]);
    text[3 * columns] = '\0';
}

static void write_label(char label[16], double x)
{
    snprintf(label, 16, x < 999.5 || x >= 1e6 ? "%.3g" : "%.0f", x);
}

/* Columns of each curve: labels take 10, the line between two curves 3. */
static int columns_of(const cli_status *s, int n)
{
    const int columns = ((int)cli_width(s->out) - 14) / n - (n > 1 ? 3 : 0);
    return columns < 4 ? 4 : columns > MOST ? MOST : columns;
}

/* "0            step 250            500": both ends and, if there is room, the middle. */
static void write_scale(cli_status *s, const cli_plot *p, int columns)
{
    char      from[24], middle[60], to[24];
    const int a = snprintf(from, sizeof from, "%lld", (long long)p->from);
    const int m = snprintf(middle, sizeof middle, "%.20s %lld", p->unit,
                           (long long)(p->from + (p->to - p->from) / 2));
    const int b = snprintf(to, sizeof to, "%lld", (long long)p->to);
    const int left = (columns - m) / 2 - a, right = columns - a - left - m - b;
    if (left > 0 && right > 0)
        cli_status_row(s, "          %s%*s%s%*s%s", from, left, "", middle, right, "", to);
    else
        cli_status_row(s, "          %s%*s%s", from, columns - a - b, "", to);
}

void cli_plots(cli_status *s, int n, const cli_plot *plots, bool from_zero)
{
    cells       dots[CLI_PLOTS] = {{{0}}};
    const int   columns = columns_of(s, n);
    const scale y = find_scale(n, plots, 2 * (size_t)columns, from_zero);
    char        text[CLI_PLOTS][3 * MOST + 1], label[16];
    for (int k = 0; k < n; k++) draw_curve(&plots[k], &y, dots[k]);
    cli_status_row(s, "          %-*.*s%s%.*s", n > 1 ? columns : 0, columns, plots[0].title,
                   n > 1 ? "   " : "", columns, n > 1 ? plots[1].title : "");
    for (int row = 0; row < ROWS; row++) {
        label[0] = '\0';
        if (row == 0) write_label(label, y.hi);
        if (row == ROWS - 1) write_label(label, y.lo);
        for (int k = 0; k < n; k++) write_row(text[k], dots[k][row], (size_t)columns);
        cli_status_row(s, "  %6s │%s%s%s", label, text[0], n > 1 ? "  │" : "",
                       n > 1 ? text[1] : "");
    }
    if (n == 1 && plots[0].unit) write_scale(s, &plots[0], columns);
}
