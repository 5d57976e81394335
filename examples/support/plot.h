/* Frames, marks and legends of a plot as SVG, readable on light and dark backgrounds. */
#ifndef DRA_EXAMPLES_PLOT_H
#define DRA_EXAMPLES_PLOT_H

#include <stdio.h>

/* Middle tones for curves; greys adapt to the reader's background. */
static const char *const style_sheet =
    "text{font:12px sans-serif;fill:#555}.title{font-weight:bold}path,rect{fill:none}"
    ".frame{stroke:#888}.grid{stroke:#888;stroke-opacity:.25}.target{stroke:#222;stroke-width:3}"
    ".c0,.c1,.c2,.c3{stroke-width:2}.c0{stroke:#9a8c7a}.c1{stroke:#d9822b}.c2{stroke:#2a9d8f}"
    ".c3{stroke:#8a6cff}"
    "@media(prefers-color-scheme:dark){text{fill:#bbb}.target{stroke:#eee}}";

typedef struct panel { /* x and y are given as logarithms (x of the right one as it is) */
    double left, x0, x1, y0, y1;
} panel;

enum { WIDTH = 360, HEIGHT = 300, TOP = 40 };

static double px(const panel *p, double x)
{
    return p->left + WIDTH * (x - p->x0) / (p->x1 - p->x0);
}
static double py(const panel *p, double y) { return TOP + HEIGHT * (p->y1 - y) / (p->y1 - p->y0); }

static void draw_frame(FILE *out, const panel *p, const char *title, const char *below)
{
    fprintf(out, "<rect x='%g' y='%d' width='%d' height='%d' class='frame'/>\n", p->left, TOP,
            WIDTH, HEIGHT);
    fprintf(out, "<text x='%g' y='24' class='title'>%s</text>\n", p->left, title);
    fprintf(out, "<text x='%g' y='%d' text-anchor='middle'>%s</text>\n", p->left + WIDTH / 2.0,
            TOP + HEIGHT + 40, below);
    for (double y = p->y0; y <= p->y1; y++) {
        fprintf(out, "<path d='M%g %.1fh%d' class='grid'/>\n", p->left, py(p, y), WIDTH);
        fprintf(out, "<text x='%g' y='%.1f' text-anchor='end'>", p->left - 6, py(p, y) + 4);
        fprintf(out, "10<tspan dy='-5' font-size='9'>%.0f</tspan></text>\n", y);
    }
}

static void draw_mark(FILE *out, const panel *p, double x, const char *text)
{
    fprintf(out, "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n", px(p, x),
            TOP + HEIGHT + 18, text);
    fprintf(out, "<path d='M%.1f %dv%d' class='grid'/>\n", px(p, x), TOP, HEIGHT);
}

static void draw_name(FILE *out, double x, double y, const char *style, const char *text)
{
    fprintf(out, "<path d='M%g %gh24' class='%s'/><text x='%g' y='%g'>%s</text>\n", x, y, style,
            x + 30, y + 4, text);
}

#endif
