/* Drawings of a page, as SVG: lines over steps, bars, maps, half-lives. Colours are classes c0, c1,
 * ... of the page's style. A chart is 440 wide; the page scales it. */
#ifndef DRA_CLI_SVG_H
#define DRA_CLI_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SVG_WIDTH = 440, SVG_COLOURS = 8 };

/* Text that may be anything: markup, control characters and bytes that are no UTF-8 do no harm. */
void svg_text(FILE *out, const char *text);
/* The same, cut to a number of letters. */
void svg_text_cut(FILE *out, const char *text, size_t most);

/* "12.5k", "0.0003": few digits. Returns `text`. */
const char *svg_number(double x, char text[32]);

/* The classes of colour i: beyond SVG_COLOURS the same ones come again, dashed. */
const char *svg_colour(size_t i, char text[32]);

/* ---- scales ---------------------------------------------------------------------------------- */

typedef struct svg_scale { /* maps numbers lo..hi to from..to */
    double lo, hi, from, to;
    bool   log;
} svg_scale;

double svg_at(const svg_scale *s, double x);
/* Widens lo..hi to the next ticks, if `round`, and never to nothing. */
void svg_scale_fit(svg_scale *s, bool round);

enum { SVG_TICKS = 16, SVG_WANT = 5 };
/* Round numbers in lo..hi, about SVG_WANT of them. */
int svg_ticks(const svg_scale *s, double ticks[SVG_TICKS]);

/* ---- charts ---------------------------------------------------------------------------------- */

typedef struct svg_line {
    const char   *name;
    size_t        n;
    const double *x, *y; /* gaps where y is not finite */
    size_t        colour;
    bool          faint, dots; /* dots: points with a text, joined by nothing */
} svg_line;

typedef struct svg_chart {
    const char     *title, *note; /* note: NULL for none */
    size_t          n;
    const svg_line *lines;
    bool            from_zero; /* the y axis is to show 0 */
    const char     *x_name;    /* what x counts; NULL: step */
} svg_chart;

/* A figure. However many points there are, a column of it shows four at most: the first, least,
 * greatest and last. */
void svg_lines(FILE *out, const svg_chart *c);

typedef struct svg_bar {
    const char *label;
    double      value;
    size_t      colour;
} svg_bar;

void svg_bars(FILE *out, const char *title, const char *note, size_t n, const svg_bar *bars);

typedef struct svg_map { /* value(row, column) in 0..1 */
    const char *title, *note, *rows_name, *columns_name;
    int64_t     rows, columns;
    double (*value)(const void *user, int64_t row, int64_t column);
    const void *user;
    size_t      colour;
} svg_map;

void svg_heat(FILE *out, const svg_map *m);

/* ---- parts of figures ------------------------------------------------------------------------ */

void svg_open(FILE *out, const char *title, const char *note, double height, const char *more);
void svg_close(FILE *out);
/* A line of the grid with its number: of x at the bottom `y1`, of y at the left. */
void svg_grid_x(FILE *out, const svg_scale *s, double y0, double y1);
void svg_grid_y(FILE *out, const svg_scale *s, double x0, double x1);

#endif
