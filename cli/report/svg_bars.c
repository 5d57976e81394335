/* Bars in groups, with what a guess gets and how sure a share is. */
#include "svg.h"

#include <math.h>
#include <string.h>

enum { LEFT = 4, RIGHT = 266, ROW = 33, GROUP = 24, TOP = 6, LETTERS = 42 };

static double right_of(const svg_scale *x, double v)
{
    return svg_at(x, fmin(fmax(v, x->lo), x->hi));
}

static const char *value_text(const svg_bar_chart *c, double v, char text[32])
{
    if (!c->shares) return svg_number(v, text);
    snprintf(text, 32, "%.1f %%", 100 * v);
    return text;
}

static void write_about(FILE *out, const svg_bar_chart *c, const svg_bar *b)
{
    char v[32], lo[32], hi[32];
    svg_text(out, b->about);
    fprintf(out, ": %s", value_text(c, b->value, v));
    if (isfinite(b->lo))
        fprintf(out, ", 95 %% interval %s to %s", value_text(c, b->lo, lo),
                value_text(c, b->hi, hi));
    if (isfinite(b->count)) fprintf(out, ", n = %.0f", b->count);
}

/* The label is above the bar, so that long ones are read on any screen. */
static void write_bar(FILE *out, const svg_bar_chart *c, const svg_scale *x, const svg_bar *b,
                      double y)
{
    const double from = svg_at(x, 0), to = svg_at(x, b->value);
    char         colour[32], number[32];
    fputs("<g><title>", out);
    write_about(out, c, b);
    fprintf(out, "</title><text x=\"%d\" y=\"%.0f\">", LEFT, y + 12);
    svg_text_cut(out, b->label, LETTERS);
    fprintf(out, "</text>");
    if (isfinite(b->count))
        fprintf(out, "<text class=\"end\" x=\"%d\" y=\"%.0f\">n = %s</text>", SVG_WIDTH - 2, y + 12,
                svg_number(b->count, number));
    fprintf(out,
            "<path class=\"grid\" d=\"M%d %.1fH%d\"/><rect class=\"%s\" x=\"%.1f\" y=\"%.0f\" "
            "width=\"%.1f\" height=\"11\" rx=\"2\"/>",
            LEFT, y + 22.5, RIGHT, svg_colour(b->colour, colour), fmin(from, to), y + 17,
            fmax(fabs(to - from), 1));
    if (isfinite(c->chance))
        fprintf(out, "<path class=\"chance\" d=\"M%.1f %.1fv17\"/>", right_of(x, c->chance),
                y + 14);
    if (isfinite(b->lo))
        fprintf(out, "<path class=\"whisker\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f %.1fv6\"/>",
                right_of(x, b->lo), y + 22.5, right_of(x, b->hi), right_of(x, b->lo), y + 19.5,
                right_of(x, b->hi), y + 19.5);
    fprintf(out, "<text x=\"%d\" y=\"%.0f\" class=\"strong end\">%s</text></g>\n", SVG_WIDTH - 2,
            y + 27, value_text(c, b->value, number));
}

static svg_scale find_scale(const svg_bar_chart *c)
{
    svg_scale x = {0, 0, LEFT, RIGHT, false};
    for (size_t i = 0; i < c->n; i++) {
        x.lo = fmin(x.lo, c->bars[i].value);
        x.hi = fmax(x.hi, c->bars[i].value);
    }
    if (c->shares) x.hi = 1;
    svg_scale_fit(&x, !c->shares);
    return x;
}

static bool begins_group(const svg_bar_chart *c, size_t i)
{
    const svg_bar *b = &c->bars[i];
    return b->group[0] && (i == 0 || strcmp(b[-1].group, b->group) != 0);
}

static void write_axis(FILE *out, const svg_bar_chart *c, const svg_scale *x, double bottom)
{
    double    ticks[SVG_TICKS];
    char      number[32];
    const int n = svg_ticks(x, ticks);
    for (int i = 0; i < n; i++) {
        if (c->shares)
            snprintf(number, sizeof number, "%.0f%s", 100 * ticks[i], i == n - 1 ? " %" : "");
        else
            svg_number(ticks[i], number);
        fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.0f\">%s</text>", i ? "mid" : "",
                svg_at(x, ticks[i]), bottom + 15, number);
    }
    fprintf(out, "<text class=\"mid\" x=\"%d\" y=\"%.0f\">", (LEFT + RIGHT) / 2, bottom + 32);
    svg_text(out, c->x_name);
    fputs("</text>\n", out);
}

static void write_chance(FILE *out, const svg_bar_chart *c, double y)
{
    char number[32];
    fprintf(out,
            "<path class=\"chance\" d=\"M%d %.1fh18\"/><text x=\"%d\" y=\"%.0f\">chance: ", LEFT, y,
            LEFT + 24, y + 4);
    fprintf(out, "%s</text>\n", value_text(c, c->chance, number));
}

void svg_bars(FILE *out, const svg_bar_chart *c)
{
    const svg_scale x = find_scale(c);
    double          bottom = TOP, y = TOP;
    for (size_t i = 0; i < c->n; i++) bottom += ROW + (begins_group(c, i) ? GROUP : 0);
    svg_open(out, c->title, c->note, false, bottom + (isfinite(c->chance) ? 54 : 38),
             " class=\"bars\"");
    fputs("<desc>", out);
    for (size_t i = 0; i < c->n; i++) {
        write_about(out, c, &c->bars[i]);
        fputs(".\n", out);
    }
    fputs("</desc>\n", out);
    for (size_t i = 0; i < c->n; i++, y += ROW) {
        if (begins_group(c, i)) {
            fprintf(out, "<text class=\"strong bold\" x=\"%d\" y=\"%.0f\">", LEFT, y + 16);
            svg_text_cut(out, c->bars[i].group, LETTERS);
            fputs("</text>\n", out);
            y += GROUP;
        }
        write_bar(out, c, &x, &c->bars[i], y);
    }
    write_axis(out, c, &x, bottom);
    if (isfinite(c->chance)) write_chance(out, c, bottom + 46);
    svg_close(out);
}
