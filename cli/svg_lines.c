/* Lines over steps or tokens. */
#include "svg.h"

#include <math.h>

enum { LEFT = 52, RIGHT = 420, TOP = 10, BOTTOM = 204, HEIGHT = 232 };

/* ---- ranges ---------------------------------------------------------------------------------- */

static void widen(svg_scale *s, double x)
{
    if (!isfinite(x)) return;
    if (!(x >= s->lo)) s->lo = x;
    if (!(x <= s->hi)) s->hi = x;
}

/* Numbers that are all positive and far apart are seen better by their logarithms. */
static void find_scales(const svg_chart *c, svg_scale *x, svg_scale *y)
{
    enum { FAR = 50 };
    *x = (svg_scale){NAN, NAN, LEFT, RIGHT, false};
    *y = (svg_scale){NAN, NAN, BOTTOM, TOP, false};
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->lines[i].n; k++)
            if (isfinite(c->lines[i].y[k])) {
                widen(x, c->lines[i].x[k]);
                widen(y, c->lines[i].y[k]);
            }
    y->log = !c->from_zero && y->lo > 0 && y->hi > FAR * y->lo;
    if (c->from_zero) widen(y, 0);
    if (x->lo > 0 && x->lo < 0.1 * x->hi) x->lo = 0; /* steps count from 1 */
    svg_scale_fit(x, false);
    svg_scale_fit(y, true);
}

/* ---- lines ----------------------------------------------------------------------------------- */

typedef struct pen { /* writes a line, column by column */
    FILE            *out;
    const svg_scale *x, *y;
    const svg_line  *line;
    size_t           first, least, most, last; /* points of the column at hand */
    long             column;                   /* -1: none */
    size_t           written;                  /* points of the piece at hand */
} pen;

static void write_point(pen *p, size_t i)
{
    fprintf(p->out, "%s%.1f,%.1f", p->written++ ? " " : "", svg_at(p->x, p->line->x[i]),
            svg_at(p->y, p->line->y[i]));
}

/* Writes the points of a column that matter, each once and in their order. */
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

/* A piece of one point would not be seen: it gets a second one next to it. */
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

static void write_dots(pen *p)
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
        fprintf(p->out, ", step %s: %.6g</title></circle>\n", svg_number(l->x[i], step), l->y[i]);
    }
}

void svg_lines(FILE *out, const svg_chart *c)
{
    svg_scale x, y;
    char      more[200];
    find_scales(c, &x, &y);
    snprintf(more, sizeof more,
             " class=\"lines\" data-x=\"%s\" data-scale=\"%.9g %.9g %d %d %.9g %.9g %d %d %d\"",
             c->x_name ? c->x_name : "step", x.lo, x.hi, LEFT, RIGHT, y.lo, y.hi, BOTTOM, TOP,
             y.log);
    svg_open(out, c->title, c->note, HEIGHT, more);
    svg_grid_x(out, &x, TOP, BOTTOM);
    svg_grid_y(out, &y, LEFT, RIGHT);
    for (size_t i = 0; i < c->n; i++) {
        pen p = {.out = out, .x = &x, .y = &y, .line = &c->lines[i]};
        if (c->lines[i].dots)
            write_dots(&p);
        else
            write_line(&p);
    }
    svg_close(out);
}
