/* Bars and maps. */
#include "svg.h"

#include <math.h>

/* ---- bars ------------------------------------------------------------------------------------ */

enum { ROW = 34, BAR_LEFT = 4, BAR_RIGHT = 380 };

/* The label is above the bar, so that long ones are read on any screen. */
static void write_bar(FILE *out, const svg_scale *x, const svg_bar *bar, double y)
{
    enum { LETTERS = 58 };
    const double a = svg_at(x, 0), b = svg_at(x, bar->value);
    char         colour[32], number[32];
    fputs("<g><title>", out);
    svg_text(out, bar->label);
    fprintf(out, ": %.6g</title><text x=\"%d\" y=\"%.0f\">", bar->value, BAR_LEFT, y + 13);
    svg_text_cut(out, bar->label, LETTERS);
    fprintf(out,
            "</text><path class=\"grid\" d=\"M%d %.0fH%d\"/><rect class=\"%s\" x=\"%.1f\" "
            "y=\"%.0f\" width=\"%.1f\" height=\"11\" rx=\"2\"/><text x=\"%d\" y=\"%.0f\" "
            "class=\"strong\">%s</text></g>\n",
            BAR_LEFT, y + 24, BAR_RIGHT, svg_colour(bar->colour, colour), fmin(a, b), y + 18,
            fmax(fabs(b - a), 1), BAR_RIGHT + 8, y + 28, svg_number(bar->value, number));
}

void svg_bars(FILE *out, const char *title, const char *note, size_t n, const svg_bar *bars)
{
    svg_scale x = {0, 0, BAR_LEFT, BAR_RIGHT, false};
    bool      shares = true; /* all in 0..1: bars are parts of 1 */
    for (size_t i = 0; i < n; i++) {
        x.lo = fmin(x.lo, bars[i].value);
        x.hi = fmax(x.hi, bars[i].value);
        shares = shares && bars[i].value >= 0 && bars[i].value <= 1;
    }
    if (shares) x.hi = 1;
    svg_scale_fit(&x, false);
    svg_open(out, title, note, (double)(ROW * n + 6), "");
    for (size_t i = 0; i < n; i++) write_bar(out, &x, &bars[i], (double)(ROW * i));
    svg_close(out);
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* Cells of one level of darkness make one path; those near 0 are left out. */
static void write_level(FILE *out, const svg_map *m, int level, int levels)
{
    bool any = false;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->columns; c++) {
            const double v = m->value(m->user, r, c);
            if ((int)lrint(fmin(fmax(v, 0), 1) * levels) != level) continue;
            if (!any) {
                char colour[32];
                fprintf(out, "<path class=\"%s cell\" fill-opacity=\"%.2f\" d=\"",
                        svg_colour(m->colour, colour), (double)level / levels);
                any = true;
            }
            fprintf(out, "M%lld %lldh1v1h-1z", (long long)c, (long long)r);
        }
    if (any) fputs("\"/>\n", out);
}

void svg_heat(FILE *out, const svg_map *m)
{
    enum { LEVELS = 16, LEFT = 22, RIGHT = 432, TOP = 4, TALLEST = 410, LEAST = 9 };
    const double wide = (double)(RIGHT - LEFT) / (double)m->columns;
    /* Cells are squares where there is room, and flat where there are many rows. */
    double high = fmin(wide, (double)TALLEST / (double)m->rows);
    high = fmax(high, fmin((double)LEAST, 60.0 / (double)m->rows));
    const double bottom = TOP + high * (double)m->rows;
    svg_open(out, m->title, m->note, bottom + 24, "");
    fprintf(out,
            "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%.1f\"/>"
            "<text x=\"%d\" y=\"%.1f\" class=\"mid\">%s</text>"
            "<text class=\"mid\" transform=\"translate(14 %.1f) rotate(-90)\">%s</text>\n"
            "<g transform=\"translate(%d %d) scale(%.4f %.4f)\">\n",
            LEFT, TOP, RIGHT - LEFT, bottom - TOP, (LEFT + RIGHT) / 2, bottom + 17, m->columns_name,
            (TOP + bottom) / 2, m->rows_name, LEFT, TOP, wide, high);
    for (int level = 1; level <= LEVELS; level++) write_level(out, m, level, LEVELS);
    fputs("</g>", out);
    svg_close(out);
}
