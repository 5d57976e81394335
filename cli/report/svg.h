/* Drawings of a page, as SVG: lines over steps, bars, maps, half-lives. Colours are classes c0, c1,
 * ... of the page's style. A chart is 340 wide, so that its text can be read on a phone; the page
 * scales it. */
#ifndef DRA_CLI_REPORT_SVG_H
#define DRA_CLI_REPORT_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SVG_WIDTH = 340, SVG_COLOURS = 8 };

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
    bool   log, whole; /* whole: its numbers count something, and so do its ticks */
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
    bool          is_mean;     /* of a faint line, which has its numbers */
} svg_line;

typedef struct svg_chart {
    const char     *title, *note; /* note: NULL for none */
    size_t          n;
    const svg_line *lines;
    bool            from_zero; /* the y axis is to show 0 */
    bool            robust;    /* it need not show the few numbers that are far above the rest */
    bool            x_log;     /* the x axis is logarithmic, where its numbers are above 0 */
    const char     *x_name;    /* what x counts; NULL: step */
    const char     *y_name;    /* the title of the y axis, with its unit; NULL: none */
} svg_chart;

enum { SVG_LEFT = 54, SVG_RIGHT = 322, SVG_TOP = 24, SVG_BOTTOM = 204 }; /* of where lines are */

/* What lines refer to, once for a page: lines end at the edges of the chart. */
void svg_lines_clip(FILE *out);
/* A figure. However many points there are, a column of it shows four at most: the first, least,
 * greatest and last. */
void svg_lines(FILE *out, const svg_chart *c);
/* The ranges of its axes; whether some of its numbers are beyond the range of y. */
bool svg_lines_fit(const svg_chart *c, svg_scale *x, svg_scale *y);
/* The numbers of a line for the script of the page: x, means, and least and greatest ones, of at
 * most 240 groups of points. */
void svg_lines_data(FILE *out, const svg_line *line);

typedef struct svg_bar {
    const char *label, *group; /* group: written above the first bar of each */
    const char *about;         /* the text of the bar in words */
    double      value;
    double      count, lo, hi; /* how many were counted, and an interval; NaN: not known */
    size_t      colour;
} svg_bar;

typedef struct svg_bar_chart {
    const char    *title, *note;
    size_t         n;
    const svg_bar *bars;
    double         chance; /* what a guess gets; NaN: not known */
    bool           shares; /* values are parts of 1, shown as percentages */
    const char    *x_name;
} svg_bar_chart;

void svg_bars(FILE *out, const svg_bar_chart *c);

typedef struct svg_map { /* value(row, column) in 0..1 */
    const char *title, *note, *rows_name, *columns_name;
    int64_t     rows, columns;
    double (*value)(const void *user, int64_t row, int64_t column);
    /* Labels of rows and columns; NULL: numbers. Each returns `text` or a text of its own. */
    const char *(*row_label)(const void *user, int64_t row, char text[32]);
    const char *(*column_label)(const void *user, int64_t column, char text[32]);
    const void *user;
    const char *bar_name; /* what a colour stands for */
    bool        root;     /* colours stand for the squares of values */
    size_t      colour;
} svg_map;

void svg_heat(FILE *out, const svg_map *m);

/* ---- parts of figures ------------------------------------------------------------------------ */

/* `cut`: the caption says that the top is cut off; `more`: attributes of the drawing. */
void svg_open(FILE *out, const char *title, const char *note, bool cut, double height,
              const char *more);
void svg_close(FILE *out);
/* A line of the grid with its number: of x at the bottom `y1`, of y at the left. */
void svg_grid_x(FILE *out, const svg_scale *s, double y0, double y1);
void svg_grid_y(FILE *out, const svg_scale *s, double x0, double x1);

#endif
