/* Lines over steps or tokens. */
#include "svg.h"

#include <math.h>

enum { LEFT = SVG_LEFT, RIGHT = SVG_RIGHT, TOP = SVG_TOP, BOTTOM = SVG_BOTTOM, HEIGHT = 240 };

/* ---- lines ----------------------------------------------------------------------------------- */

typedef struct pen { /* writes a line, column by column */
    FILE            *out;
    const svg_scale *x, *y;
    const svg_line  *line;
    size_t           first, least, most, last; /* points of the current column */
    long             column;                   /* -1: none */
    size_t           written;                  /* points of the current piece */
} pen;

static void write_point(pen *p, size_t i)
{
    fprintf(p->out, "%s%.1f,%.1f", p->written++ ? " " : "", svg_at(p->x, p->line->x[i]),
            svg_at(p->y, p->line->y[i]));
}

/* Writes the first, least, most and last point of a column, each once and in their order. */
static void end_column(pen *p)
{
    const bool   fall = p->most < p->least;
    const size_t a = fall ? p->most : p->least, b = fall ? p->least : p->most;
    if (p->column < 0) return;
    write_point(p, p->first);
    if (a != p->first) write_point(p, a);
    if (b != a) write_point(p, b);
    if (p->last != b && p->last != p->first) write_point(p, p->last);
    p->column = -1;
}

static void begin_piece(pen *p)
{
    char colour[32];
    fprintf(p->out, "<polyline class=\"%s%s\" data-name=\"", svg_colour(p->line->colour, colour),
            p->line->faint ? " faint" : "");
    svg_text(p->out, p->line->name);
    fputs("\" points=\"", p->out);
    p->written = 0;
}

/* A piece of one point would be invisible, so it gets a second one next to it. */
static void end_piece(pen *p, size_t i)
{
    end_column(p);
    if (p->written == 1)
        fprintf(p->out, " %.1f,%.1f", svg_at(p->x, p->line->x[i]) + 0.8,
                svg_at(p->y, p->line->y[i]));
    fputs("\"/>\n", p->out);
}

static void write_line(pen *p)
{
    const svg_line *l = p->line;
    bool            open = false;
    p->column = -1;
    for (size_t i = 0; i < l->n; i++) {
        if (!isfinite(l->y[i])) {
            if (open) end_piece(p, i - 1);
            open = false;
            continue;
        }
        if (!open) begin_piece(p);
        open = true;
        const long column = (long)svg_at(p->x, l->x[i]);
        if (column != p->column) {
            end_column(p);
            p->column = column;
            p->first = p->least = p->most = i;
        }
        if (l->y[i] < l->y[p->least]) p->least = i;
        if (l->y[i] > l->y[p->most]) p->most = i;
        p->last = i;
    }
    if (open) end_piece(p, l->n - 1);
}

static void write_dots(pen *p, const char *x_name)
{
    enum { MOST = 400 };
    const svg_line *l = p->line;
    char            colour[32], step[32];
    const size_t    stride = l->n / MOST + 1;
    for (size_t i = 0; i < l->n; i += stride) {
        if (!isfinite(l->y[i])) continue;
        fprintf(p->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>",
                svg_colour(l->colour, colour), svg_at(p->x, l->x[i]), svg_at(p->y, l->y[i]));
        svg_text(p->out, l->name);
        fprintf(p->out, ", %s %s: %.6g</title></circle>\n", x_name, svg_number(l->x[i], step),
                l->y[i]);
    }
}

/* ---- the figure ------------------------------------------------------------------------------ */

void svg_lines_clip(FILE *out)
{
    fprintf(out,
            "<svg class=\"none\" width=\"0\" height=\"0\" aria-hidden=\"true\">"
            "<clipPath id=\"plot\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
            "</clipPath></svg>\n",
            LEFT, TOP - 2, RIGHT - LEFT + 4, BOTTOM - TOP + 4);
}

/* Describes a line in words: where it begins and ends, and its least number. */
static void describe_line(FILE *out, const svg_line *l, const char *x_name)
{
    char   at[32];
    size_t first = l->n, last = 0, least = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (!isfinite(l->y[i])) continue;
        if (first == l->n) first = least = i;
        if (l->y[i] < l->y[least]) least = i;
        last = i;
    }
    if (l->faint || first == l->n) return;
    svg_text(out, l->name);
    fprintf(out, "%s: %.4g at %s %s, ", l->dots ? ", evaluation" : "", l->y[first], x_name,
            svg_number(l->x[first], at));
    fprintf(out, "%.4g at %s", l->y[last], svg_number(l->x[last], at));
    fprintf(out, ", lowest %.4g at %s.\n", l->y[least], svg_number(l->x[least], at));
}

static void write_names(FILE *out, const char *x_name, const char *y_name)
{
    fprintf(out, "<text class=\"mid xname\" x=\"%d\" y=\"%d\">", (LEFT + RIGHT) / 2, HEIGHT - 5);
    svg_text(out, x_name);
    fputs("</text>\n", out);
    if (!y_name) return;
    fputs("<text x=\"2\" y=\"13\">", out);
    svg_text(out, y_name);
    fputs("</text>\n", out);
}

void svg_lines(FILE *out, const svg_chart *c)
{
    const char *x_name = c->x_name ? c->x_name : "step";
    svg_scale   x, y;
    char        more[240];
    const bool  cut = svg_lines_fit(c, &x, &y);
    snprintf(more, sizeof more,
             " class=\"lines%s%s\" data-x=\"%s\" "
             "data-scale=\"%.9g %.9g %d %d %.9g %.9g %d %d %d\"",
             c->robust ? " robust" : "", c->from_zero ? " zero" : "", x_name, x.lo, x.hi, LEFT,
             RIGHT, y.lo, y.hi, BOTTOM, TOP, y.log);
    svg_open(out, c->title, c->note, cut, HEIGHT, more);
    fputs("<desc>", out);
    for (size_t i = 0; i < c->n; i++) describe_line(out, &c->lines[i], x_name);
    fputs("</desc>\n<g class=\"drawn\">\n", out);
    svg_grid_x(out, &x, TOP, BOTTOM);
    svg_grid_y(out, &y, LEFT, RIGHT);
    write_names(out, x_name, c->y_name);
    fputs("<g clip-path=\"url(#plot)\">\n", out);
    for (size_t i = 0; i < c->n; i++) {
        pen p = {.out = out, .x = &x, .y = &y, .line = &c->lines[i]};
        if (c->lines[i].dots)
            write_dots(&p, x_name);
        else
            write_line(&p);
    }
    fputs("</g></g>\n", out);
    for (size_t i = 0; i < c->n; i++)
        if (!c->lines[i].is_mean) svg_lines_data(out, &c->lines[i]);
    svg_close(out);
}
