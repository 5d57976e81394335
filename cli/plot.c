/* Charts of dots: a letter of Braille is 2 dots wide and 4 high. */
#include "plot.h"
#include "units.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { COLUMNS = 30, ROWS = 6, WIDE = 2 * COLUMNS, HIGH = 4 * ROWS };

/* ---- the block ------------------------------------------------------------------------------- */

bool cli_screen_due(cli_screen *s)
{
    const double now = cli_now();
    if (!s->terminal || now - s->shown < 0.2) return false;
    s->shown = now;
    return true;
}

void cli_screen_back(cli_screen *s)
{
    if (s->lines) fprintf(s->out, "\033[%dA\r\033[J", s->lines);
    s->lines = 0;
}

void cli_screen_line(cli_screen *s, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(s->out, format, values);
    va_end(values);
    fputc('\n', s->out);
    if (s->terminal) s->lines++;
}

/* ---- curves ---------------------------------------------------------------------------------- */

typedef struct scale {
    double lo, hi;
} scale;

/* The mean of the numbers that belong to a column of dots; NaN: there are none yet. */
static double column_mean(const cli_plot *p, size_t column)
{
    const size_t from = column * p->all / WIDE;
    size_t       to = (column + 1) * p->all / WIDE;
    double       sum = 0;
    if (to <= from) to = from + 1;
    if (to > p->n) return NAN;
    for (size_t i = from; i < to; i++) sum += p->y[i];
    return sum / (double)(to - from);
}

static scale find_scale(const cli_plot plots[2], bool from_zero)
{
    enum { FALL = WIDE / 10 }; /* columns */
    scale      s = {NAN, NAN};
    const bool later = !from_zero && !isnan(column_mean(&plots[1], FALL));
    for (int k = 0; k < 2; k++)
        for (size_t c = later ? FALL / 2 : 0; c < WIDE; c++) {
            const double y = column_mean(&plots[k], c);
            s.lo = fmin(s.lo, y);
            s.hi = fmax(s.hi, y);
        }
    if (from_zero || isnan(s.lo)) s.lo = 0;
    if (!(s.hi > s.lo)) s.hi = s.lo + 1;
    return s;
}

static int height(const scale *s, double y)
{
    return (int)lrint(fmax(0, fmin(1, (y - s->lo) / (s->hi - s->lo))) * (HIGH - 1));
}

/* Sets a dot, counted from the bottom. */
static void set_dot(unsigned char cells[ROWS][COLUMNS], size_t x, int y)
{
    static const unsigned char bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int down = HIGH - 1 - y;
    cells[down / 4][x / 2] |= bits[down % 4][x % 2];
}

/* Neighbours are joined by a vertical line. */
static void draw_curve(const cli_plot *p, const scale *s, unsigned char cells[ROWS][COLUMNS])
{
    int before = -1;
    for (size_t c = 0; c < WIDE; c++) {
        const double mean = column_mean(p, c);
        if (isnan(mean)) continue;
        const int y = height(s, mean), step = y < before ? 1 : -1;
        set_dot(cells, c, y);
        for (int k = y; before >= 0 && k != before; k += step) set_dot(cells, c, k);
        before = y;
    }
}

/* U+2800 and the dots. */
static void put_cell(char *text, unsigned char dots)
{
    text[0] = (char)0xe2;
    text[1] = (char)(0xa0 | dots >> 6);
    text[2] = (char)(0x80 | (dots & 0x3f));
}

static void write_row(char text[3 * COLUMNS + 1], const unsigned char cells[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++) put_cell(text + 3 * i, cells[i]);
    text[3 * COLUMNS] = '\0';
}

static void write_label(char label[16], double x)
{
    snprintf(label, 16, x < 999.5 || x >= 1e6 ? "%.3g" : "%.0f", x);
}

void cli_plot_pair(cli_screen *s, const cli_plot plots[2], bool from_zero)
{
    unsigned char cells[2][ROWS][COLUMNS] = {{{0}}};
    const scale   y = find_scale(plots, from_zero);
    char          a[3 * COLUMNS + 1], b[3 * COLUMNS + 1], label[16];
    for (int k = 0; k < 2; k++) draw_curve(&plots[k], &y, cells[k]);
    cli_screen_line(s, "          %-*.*s   %-.*s", COLUMNS, COLUMNS, plots[0].title, COLUMNS,
                    plots[1].title);
    for (int row = 0; row < ROWS; row++) {
        label[0] = '\0';
        if (row == 0) write_label(label, y.hi);
        if (row == ROWS - 1) write_label(label, y.lo);
        write_row(a, cells[0][row]);
        write_row(b, cells[1][row]);
        cli_screen_line(s, "  %6s │%s  │%s", label, a, b);
    }
}
