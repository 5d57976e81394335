/* A model as a picture. Each stack is a column, from top to bottom: input, source, layers, head,
 * output. Repeated layers are in a frame with their count. */
#include "draw.h"

#include "report/svg.h"

#include <string.h>

enum {
    WIDE = 310, /* of a box */
    BOX = 46,
    GAP = 20,     /* between boxes: an arrow */
    BETWEEN = 76, /* columns */
    PAD = 14,     /* in a frame */
    LABEL = 24,   /* the head of a frame */
    PILL = 28,    /* an input or an output */
    MARGIN = 30,
    TOP = 84, /* where columns start; higher without names of stacks */
    TOP_ALONE = 56,
    PLACES = 600
};

typedef struct column {
    const outline_stack *stack;
    double               x, end;        /* the left side of boxes; the bottom */
    double               join;          /* y where a prepended input joins */
    double               source, head;  /* middles of boxes; 0: none */
    double               cross[PLACES]; /* middles of boxes of cross-attention */
    int                  crosses;
} column;

/* ---- pieces ---------------------------------------------------------------------------------- */

static const char style[] =
    "<style>\n"
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
    "fill:#1f2430}\n"
    ".h{font-size:17px;font-weight:650}.n{font-size:14px;font-weight:650}"
    ".t{font-size:13px;font-weight:600}.d{font-size:11.5px;fill:#5b6475}"
    ".c{font-size:12px;fill:#5b6475}.m{text-anchor:middle}.e{text-anchor:end}\n"
    ".a{stroke:#8a93a5;stroke-width:1.6;fill:none}.l{stroke:#7c5cbf;stroke-width:1.8;fill:none}"
    ".s{stroke:#8a93a5;stroke-width:1.4;stroke-dasharray:4 4;fill:none}\n"
    ".f{fill:#f5f6f9;stroke:#d3d8e2}.p{fill:#fff;stroke:#8a93a5}\n"
    "</style>\n"
    "<defs><marker id=\"g\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
    "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#8a93a5\"/></marker>"
    "<marker id=\"v\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" "
    "markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#7c5cbf\"/></marker>"
    "</defs>\n";

static void write_text(FILE *out, double x, double y, const char *class, const char *words,
                       size_t most)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    svg_text_cut(out, words, most);
    fputs("</text>\n", out);
}

static void draw_arrow(FILE *out, double x, double from, double to)
{
    fprintf(out, "<path class=\"a\" d=\"M%.1f %.1fV%.1f\" marker-end=\"url(#g)\"/>\n", x, from,
            to - 1);
}

static void draw_pill(FILE *out, double x, double y, const char *words)
{
    fprintf(out, "<rect class=\"p\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"14\"/>\n",
            x + 30, y, WIDE - 60, PILL);
    write_text(out, x + WIDE / 2.0, y + 18.5, "c m", words, 44);
}

static const char *count_text(int64_t n, char room[32])
{
    return n ? svg_number((double)n, room) : "";
}

static void draw_box(FILE *out, double x, double y, const outline_part *p)
{
    static const struct {
        const char *fill, *edge;
    } colours[OUTLINE_KINDS] = {
        [OUTLINE_SOURCE] = {"#e3eefc", "#3b7dd8"},    [OUTLINE_POSITIONS] = {"#eaf3f6", "#5b9aae"},
        [OUTLINE_START] = {"#eaf3f6", "#5b9aae"},     [OUTLINE_LAYERS] = {"#f5f6f9", "#d3d8e2"},
        [OUTLINE_ATTENTION] = {"#fdeeda", "#e08e2b"}, [OUTLINE_CROSS] = {"#eee7fa", "#7c5cbf"},
        [OUTLINE_FF] = {"#e4f4e6", "#4a9d5b"},        [OUTLINE_NORM] = {"#eceef2", "#8a93a5"},
        [OUTLINE_HEAD] = {"#fbe5ea", "#cf4a6b"}};
    char room[32];
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"7\" fill=\"%s\"/>"
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"5\" height=\"%d\" rx=\"2.5\" fill=\"%s\"/>\n",
            x, y, WIDE, BOX, colours[p->kind].fill, x, y, BOX, colours[p->kind].edge);
    write_text(out, x + 16, y + (p->detail[0] ? 19 : 27), "t", p->title, 30);
    write_text(out, x + WIDE - 14, y + (p->detail[0] ? 19 : 27), "c e", count_text(p->params, room),
               16);
    write_text(out, x + 16, y + 36, "d", p->detail, 48);
}

/* ---- a column -------------------------------------------------------------------------------- */

static void draw_frame(FILE *out, double x, double y, const outline_part *p)
{
    const double high = LABEL + p->n * BOX + (p->n - 1) * GAP + PAD;
    char         words[48], room[32];
    fprintf(out,
            "<rect class=\"f\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"12\"/>\n",
            x - PAD, y, WIDE + 2 * PAD, high);
    snprintf(words, sizeof words, "\u00d7 %lld", (long long)p->count);
    write_text(out, x + 2, y + 17, "t", words, 20);
    write_text(out, x + WIDE - 14, y + 17, "c e", count_text(p->params, room), 16);
}

/* Draws one part, or a frame and the parts in it; returns how many parts. y becomes its bottom. */
static int draw_part(FILE *out, column *c, const outline_part *p, double *y)
{
    const bool framed = p->kind == OUTLINE_LAYERS && p->count > 1;
    if (p->kind != OUTLINE_LAYERS) {
        draw_box(out, c->x, *y, p);
        if (p->kind == OUTLINE_SOURCE) c->source = *y + BOX / 2.0;
        if (p->kind == OUTLINE_HEAD) c->head = *y + BOX / 2.0;
        *y += BOX;
        return 1;
    }
    if (framed) draw_frame(out, c->x, *y, p);
    if (framed) *y += LABEL;
    for (int i = 1; i <= p->n; i++) {
        if (i > 1) draw_arrow(out, c->x + WIDE / 2.0, *y, *y + GAP);
        if (i > 1) *y += GAP;
        draw_box(out, c->x, *y, p + i);
        if (p[i].kind == OUTLINE_CROSS && c->crosses < PLACES)
            c->cross[c->crosses++] = *y + BOX / 2.0;
        *y += BOX;
    }
    if (framed) *y += PAD;
    return p->n + 1;
}

static void draw_column(FILE *out, column *c, double y, bool named)
{
    const outline_stack *s = c->stack;
    const double         middle = c->x + WIDE / 2.0;
    char                 room[32], words[64];
    if (named) {
        write_text(out, c->x, y - 14, "n", s->name, 32);
        snprintf(words, sizeof words, "%s parameters", svg_number((double)s->params, room));
        write_text(out, c->x + WIDE, y - 14, "c e", words, 40);
    }
    draw_pill(out, c->x, y, s->reads);
    y += PILL;
    for (int i = 0; i < s->n;) {
        const bool layers = s->part[i].kind == OUTLINE_LAYERS;
        draw_arrow(out, middle, y, y + GAP);
        if (layers && c->join == 0) c->join = y + 6;
        y += GAP;
        i += draw_part(out, c, &s->part[i], &y);
    }
    draw_arrow(out, middle, y, y + GAP);
    draw_pill(out, c->x, y + GAP, s->gives);
    c->end = y + GAP + PILL;
    if (c->join == 0) c->join = c->end - PILL - GAP + 6;
}

static double column_height(const outline_stack *s)
{
    double y = PILL + GAP + PILL;
    for (int i = 0; i < s->n; i++) {
        const outline_part *p = &s->part[i];
        y += GAP + BOX;
        if (p->kind != OUTLINE_LAYERS) continue;
        y += (p->n - 1) * (BOX + GAP) + (p->count > 1 ? LABEL + PAD : 0);
        i += p->n;
    }
    return y;
}

/* ---- arrows between columns ------------------------------------------------------------------ */

/* Draws a line from the end of a column, below all columns in between, to the left side of its
 * reader at y. */
static void draw_connection(FILE *out, const column *from, const column *to, double lane, double y,
                            double x)
{
    const double gap = to->x - BETWEEN / 2.0 - PAD / 2.0;
    fprintf(out,
            "<path class=\"l\" d=\"M%.1f %.1fV%.1fH%.1fV%.1fH%.1f\" marker-end=\"url(#v)\"/>\n",
            from->x + WIDE / 2.0, from->end, lane, gap, y, x - 1);
}

static void draw_connections(FILE *out, const outline *o, const column *c, double bottom)
{
    for (int i = 0; i < o->n - 1; i++) {
        const int    r = o->stack[i].reader;
        const bool   next = r == i + 1, context = strcmp(o->stack[i].role, "context of") == 0;
        const double lane = next ? c[i].end + 20 : bottom + 16 + 14 * i;
        write_text(out, c[i].x + WIDE / 2.0 + 10, lane - 5, "d", context ? "context" : "prepended",
                   16);
        if (!context) draw_connection(out, &c[i], &c[r], lane, c[r].join, c[r].x + WIDE / 2.0);
        for (int k = 0; k < c[r].crosses && context; k++)
            draw_connection(out, &c[i], &c[r], lane, c[r].cross[k], c[r].x);
        if (!context || !dra_model_config_of(o->stack[r].model)->source.shared) continue;
        fprintf(out, "<path class=\"s\" d=\"M%.1f %.1fH%.1f\"/>\n", c[i].x + WIDE, c[i].source,
                c[r].x);
        write_text(out, c[r].x - BETWEEN / 2.0, c[i].source - 6, "d m", "shared", 16);
    }
}

/* Draws the tie of a head that is the table of tokens. */
static void draw_tie(FILE *out, const column *c)
{
    const dra_model_config *m = dra_model_config_of(c->stack->model);
    if (m->head.kind != DRA_HEAD_TOKENS || m->tied != DRA_ON || c->head == 0) return;
    fprintf(out, "<path class=\"s\" d=\"M%.1f %.1fh%d V%.1fh-%d\"/>\n", c->x + WIDE, c->head,
            PAD + 12, c->source, PAD + 12);
}

/* ---- all of it ------------------------------------------------------------------------------- */

void draw_model(FILE *out, const outline *o, const char *title)
{
    column  c[OUTLINE_STACKS] = {0};
    double  high = 0;
    int64_t params = 0;
    char    words[64], room[32];
    for (int i = 0; i < o->n; i++) {
        c[i] = (column){.stack = &o->stack[i], .x = MARGIN + PAD + i * (WIDE + BETWEEN)};
        params += o->stack[i].params;
        if (column_height(&o->stack[i]) > high) high = column_height(&o->stack[i]);
    }
    const double top = o->n > 1 ? TOP : TOP_ALONE;
    const double wide = 2 * (MARGIN + PAD) + o->n * WIDE + (o->n - 1) * BETWEEN;
    const double bottom = top + high, all = bottom + (o->n > 1 ? 54 : 24);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n%s<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n",
            wide, all, wide, all, style);
    write_text(out, MARGIN, 32, "h", title, (size_t)(wide / 14));
    snprintf(words, sizeof words, "%s parameters", svg_number((double)params, room));
    write_text(out, wide - MARGIN, 32, "c e", words, 40);
    for (int i = 0; i < o->n; i++) draw_column(out, &c[i], top, o->n > 1);
    draw_connections(out, o, c, bottom);
    draw_tie(out, &c[o->n - 1]);
    fputs("</svg>\n", out);
}
