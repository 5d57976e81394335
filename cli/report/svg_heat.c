/* Heat maps: cells by the strength of their colour, labels of rows and columns, a bar of the
 * colours. The title of the rows is written above their labels, as in line charts. */
#include "svg.h"
#include "options/term.h"

#include <math.h>

enum { LEVELS = 16, LEFT = 46, RIGHT = 336, TOP = 24, LETTER = 12, TALLEST = 330 };
enum { COLUMNS = 4 }; /* width of a label; East Asian letters take two */

/* Cells of one level make one path; those near 0 are left out. */
static void write_level(FILE *out, const svg_map *m, int level)
{
    bool any = false;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->columns; c++) {
            const double v = m->value(m->user, r, c);
            if ((int)lrint(fmin(fmax(v, 0), 1) * LEVELS) != level) continue;
            if (!any) {
                char colour[32];
                fprintf(out, "<path class=\"%s cell\" fill-opacity=\"%.2f\" d=\"",
                        svg_colour(m->colour, colour), (double)level / LEVELS);
                any = true;
            }
            fprintf(out, "M%lld %lldh1v1h-1z", (long long)c, (long long)r);
        }
    if (any) fputs("\"/>\n", out);
}

static const char *label_of(const svg_map *m,
                            const char *(*label)(const void *, int64_t, char text[32]), int64_t i,
                            char text[32])
{
    if (label) return label(m->user, i, text);
    snprintf(text, 32, "%lld", (long long)i);
    return text;
}

/* How many letters of a label fit. */
static size_t letters_that_fit(const char *text)
{
    size_t letters = 0, columns = 0;
    while (*text) {
        char   one[8];
        size_t n = 1;
        while (n < 4 && (text[n] & 0xc0) == 0x80) n++;
        snprintf(one, sizeof one, "%.*s", (int)n, text);
        columns += cli_columns(one);
        if (columns > COLUMNS) break;
        letters++;
        text += n;
    }
    return letters;
}

static void write_label(FILE *out, const char *text)
{
    svg_text_cut(out, text, letters_that_fit(text));
    fputs("</text>", out);
}

/* Every how many rows a label has room. */
static int64_t stride_of(double size) { return size >= LETTER ? 1 : (int64_t)ceil(LETTER / size); }

static void write_labels(FILE *out, const svg_map *m, double wide, double high, double bottom)
{
    char text[32];
    for (int64_t r = 0; r < m->rows; r += stride_of(high)) {
        fprintf(out, "<text class=\"end token\" x=\"%d\" y=\"%.1f\">", LEFT - 4,
                TOP + high * ((double)r + 0.5) + 4);
        write_label(out, label_of(m, m->row_label, r, text));
    }
    for (int64_t c = 0; c < m->columns; c += stride_of(wide)) {
        fprintf(out, "<text class=\"end token\" transform=\"translate(%.1f %.1f) rotate(-90)\">",
                LEFT + wide * ((double)c + 0.5) + 4, bottom + 4);
        write_label(out, label_of(m, m->column_label, c, text));
    }
    fputs("\n", out);
}

/* The height of the labels of columns, which are written upwards. */
static double label_height(const svg_map *m)
{
    size_t most = 1;
    char   text[32];
    for (int64_t c = 0; c < m->columns; c++) {
        const size_t n = cli_columns(label_of(m, m->column_label, c, text));
        if (n > most) most = n;
    }
    return 8 * (double)(most < COLUMNS + 1 ? most : COLUMNS + 1) + 6;
}

static void write_names(FILE *out, const svg_map *m, double under)
{
    fprintf(out,
            "<text x=\"%d\" y=\"%.1f\" class=\"mid\">%s</text>"
            "<text x=\"2\" y=\"%d\">%s</text>\n",
            (LEFT + RIGHT) / 2, under + 12, m->columns_name, TOP - 10, m->rows_name);
}

/* Writes the bar of colours from 0 to 1, in the steps of the cells. */
static void write_colours(FILE *out, const svg_map *m, double y)
{
    enum { FROM = 190 };
    const double wide = (double)(RIGHT - FROM) / LEVELS;
    char         colour[32];
    fprintf(out, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%s</text>", FROM - 8, y + 10,
            m->bar_name);
    for (int i = 1; i <= LEVELS; i++)
        fprintf(out,
                "<rect class=\"%s\" fill-opacity=\"%.2f\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                "height=\"11\"/>",
                svg_colour(m->colour, colour), (double)i / LEVELS, FROM + wide * (i - 1), y, wide);
    fprintf(out,
            "<rect class=\"frame\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"11\"/>"
            "<text x=\"%d\" y=\"%.1f\">0</text><text class=\"mid\" x=\"%d\" y=\"%.1f\">%s</text>"
            "<text class=\"end\" x=\"%d\" y=\"%.1f\">1</text>\n",
            FROM, y, RIGHT - FROM, FROM, y + 25, (FROM + RIGHT) / 2, y + 25,
            m->root ? "0.25" : "0.5", RIGHT, y + 25);
}

/* Describes the map in words by its strongest cell. */
static void describe_map(FILE *out, const svg_map *m)
{
    int64_t row = 0, column = 0;
    char    a[32], b[32];
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->columns; c++)
            if (m->value(m->user, r, c) > m->value(m->user, row, column)) row = r, column = c;
    const double v = m->value(m->user, row, column);
    fprintf(out, "<desc>%lld rows (%s) and %lld columns (%s); the highest is %.2f, at row %lld (",
            (long long)m->rows, m->rows_name, (long long)m->columns, m->columns_name,
            m->root ? v * v : v, (long long)row);
    svg_text(out, label_of(m, m->row_label, row, a));
    fprintf(out, "), column %lld (", (long long)column);
    svg_text(out, label_of(m, m->column_label, column, b));
    fputs(")</desc>\n", out);
}

void svg_heat(FILE *out, const svg_map *m)
{
    const double wide = (double)(RIGHT - LEFT) / (double)m->columns;
    /* Rows are high enough for their labels if there are not too many. */
    const double high = fmin(fmax(wide, LETTER), fmin((double)TALLEST / (double)m->rows, 24));
    const double bottom = TOP + high * (double)m->rows;
    const double below = label_height(m);
    svg_open(out, m->title, m->note, false, bottom + below + 58, " class=\"map\"");
    describe_map(out, m);
    fprintf(out, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%.1f\"/>\n", LEFT,
            TOP, RIGHT - LEFT, bottom - TOP);
    fprintf(out, "<g transform=\"translate(%d %d) scale(%.4f %.4f)\">\n", LEFT, TOP, wide, high);
    for (int level = 1; level <= LEVELS; level++) write_level(out, m, level);
    fputs("</g>\n", out);
    write_labels(out, m, wide, high, bottom);
    write_names(out, m, bottom + below);
    write_colours(out, m, bottom + below + 26);
    svg_close(out);
}
