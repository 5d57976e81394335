/* Ranges of charts of lines, and their numbers for the script. */
#include "svg.h"
#include "io/memory.h"

#include <math.h>
#include <stdlib.h>

/* ---- ranges ---------------------------------------------------------------------------------- */

static void widen_scale(svg_scale *s, double x)
{
    if (!isfinite(x)) return;
    if (!(x >= s->lo)) s->lo = x;
    if (!(x <= s->hi)) s->hi = x;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A quantile of a line's numbers; NaN: it has none. */
static double line_quantile(const svg_line *l, double part)
{
    double *y = cli_room(l->n + 1, sizeof *y), found = NAN;
    size_t  n = 0;
    for (size_t i = 0; y && i < l->n; i++)
        if (isfinite(l->y[i])) y[n++] = l->y[i];
    if (n) {
        qsort(y, n, sizeof *y, by_value);
        found = y[(size_t)(part * (double)(n - 1) + 0.5)];
    }
    free(y);
    return found;
}

/* The first part of training is far above the rest and would flatten it, so the range is that of
 * the lower 93 % of each line, unless this is most of the whole range. */
static bool cut_range(const svg_chart *c, svg_scale *y)
{
    enum { FEW = 20 }; /* with fewer points each one counts */
    svg_scale most = {.lo = y->lo, .hi = NAN};
    for (size_t i = 0; i < c->n; i++) {
        const svg_line *l = &c->lines[i];
        if (!l->faint) widen_scale(&most, line_quantile(l, l->n < FEW && !l->dots ? 1 : 0.93));
    }
    if (!(most.hi - most.lo < 0.6 * (y->hi - y->lo)) || !(most.hi > most.lo)) return false;
    y->hi = most.hi + 0.05 * (most.hi - most.lo);
    return true;
}

/* Positive numbers that are far apart are easier to see on a logarithmic scale. */
bool svg_lines_fit(const svg_chart *c, svg_scale *x, svg_scale *y)
{
    enum { FAR = 50 };
    *x = (svg_scale){NAN, NAN, SVG_LEFT, SVG_RIGHT, .whole = true};
    *y = (svg_scale){NAN, NAN, SVG_BOTTOM, SVG_TOP, .log = false};
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->lines[i].n; k++)
            if (isfinite(c->lines[i].y[k])) {
                widen_scale(x, c->lines[i].x[k]);
                widen_scale(y, c->lines[i].y[k]);
            }
    const bool cut = c->robust && cut_range(c, y);
    y->log = !c->from_zero && !c->robust && y->lo > 0 && y->hi > FAR * y->lo;
    if (c->from_zero) widen_scale(y, 0);
    x->log = c->x_log && x->lo > 0 && x->hi > x->lo;
    if (!x->log && x->lo > 0 && x->lo < 0.1 * x->hi) x->lo = 0; /* steps count from 1 */
    if (x->log) {                                               /* dots at the ends are whole */
        const double edge = pow(x->hi / x->lo, 0.04);
        x->lo /= edge;
        x->hi *= edge;
    }
    svg_scale_fit(x, false);
    svg_scale_fit(y, true);
    return cut;
}

/* ---- numbers --------------------------------------------------------------------------------- */

enum { GROUPS = 240 };

typedef enum measure { AT, MEAN, LEAST, MOST } measure;

/* A measure of a group of points; NaN: a gap. */
static double measure_group(const svg_line *l, size_t begin, size_t end, measure what)
{
    double sum = 0, least = NAN, most = NAN;
    size_t n = 0;
    for (size_t i = begin; i < end; i++) {
        if (!isfinite(l->y[i])) continue;
        sum += l->y[i];
        least = fmin(least, l->y[i]);
        most = fmax(most, l->y[i]);
        n++;
    }
    if (what == AT) return l->x[begin + (end - begin) / 2];
    return what == LEAST ? least : what == MOST ? most : n ? sum / (double)n : NAN;
}

static void write_measure(FILE *out, const svg_line *l, const char *name, measure what)
{
    const size_t groups = l->n < GROUPS ? l->n : GROUPS;
    fprintf(out, " data-%s=\"", name);
    for (size_t g = 0; g < groups; g++) {
        const double v = measure_group(l, g * l->n / groups, (g + 1) * l->n / groups, what);
        if (isfinite(v))
            fprintf(out, what == AT ? "%s%.9g" : "%s%.5g", g ? " " : "", v);
        else
            fputs(g ? " -" : "-", out);
    }
    fputs("\"", out);
}

/* Whether some group has more than one point. */
static bool is_spread(const svg_line *l)
{
    for (size_t i = 1; i < l->n; i++) {
        const bool same_group = i * GROUPS / l->n == (i - 1) * GROUPS / l->n;
        if (same_group && isfinite(l->y[i]) && l->y[i] != l->y[i - 1]) return true;
    }
    return false;
}

void svg_lines_data(FILE *out, const svg_line *l)
{
    char colour[32];
    fprintf(out, "<metadata class=\"%s\" data-run=\"%zu\" data-kind=\"%s\" data-name=\"",
            svg_colour(l->colour, colour), l->colour,
            l->dots    ? "dots"
            : l->faint ? "mean"
                       : "line");
    svg_text(out, l->name);
    fputs("\"", out);
    write_measure(out, l, "at", AT);
    write_measure(out, l, "y", MEAN);
    if (l->n > GROUPS && is_spread(l)) {
        write_measure(out, l, "lo", LEAST);
        write_measure(out, l, "hi", MOST);
    }
    fputs("/>\n", out);
}
