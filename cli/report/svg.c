/* The parts of all drawings: text, numbers, scales, axes. */
#include "svg.h"

#include <math.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

/* Bytes of the UTF-8 letter at p; 0: it is malformed or a control sign. */
static size_t letter_bytes(const unsigned char *p)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3 : *p >> 3 == 30 ? 4 : 0;
    if (n < 2) return n;
    uint32_t c = *p & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (p[i] >> 6 != 2) return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    const bool wrong = c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ||
                       (c >= 0x80 && c < 0xa0) || (c & 0xfffe) == 0xfffe;
    return wrong ? 0 : n;
}

void svg_text_cut(FILE *out, const char *text, size_t most)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; *p; i++) {
        const size_t n = letter_bytes(p);
        if (i == most) {
            fputs("\u2026", out);
            return;
        }
        switch (*p) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        default:
            if (n == 0 || *p == 0x7f || (*p < 0x20 && *p != '\n' && *p != '\t'))
                fputs("\ufffd", out);
            else
                fwrite(p, 1, n, out);
        }
        p += n ? n : 1;
    }
}

void svg_text(FILE *out, const char *text) { svg_text_cut(out, text, SIZE_MAX); }

const char *svg_number(double x, char text[32])
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int                      i = 0;
    if (!isfinite(x)) return memcpy(text, "\u2013", sizeof "\u2013");
    if (fabs(x) >= 1e4)
        for (; fabs(x) >= 999.95 && i < 4; i++) x /= 1000;
    snprintf(text, 32, fabs(x) >= 1000 ? "%.0f%s" : "%.4g%s", x, units[i]);
    return text;
}

const char *svg_colour(size_t i, char text[32])
{
    snprintf(text, 32, "c%zu%s", i % SVG_COLOURS, i / SVG_COLOURS % 2 ? " again" : "");
    return text;
}

/* ---- scales ---------------------------------------------------------------------------------- */

double svg_at(const svg_scale *s, double x)
{
    const double p = s->log ? (log(x) - log(s->lo)) / (log(s->hi) - log(s->lo))
                            : (x - s->lo) / (s->hi - s->lo);
    return s->from + p * (s->to - s->from);
}

/* 1, 2 or 5 times a power of 10, so that about SVG_WANT of them fill the span. */
static double tick_step(const svg_scale *s)
{
    const double raw = (s->hi - s->lo) / SVG_WANT, ten = pow(10, floor(log10(raw)));
    const double step = ten * (raw <= 1.4 * ten   ? 1
                               : raw <= 2.8 * ten ? 2
                               : raw <= 7 * ten   ? 5
                                                  : 10);
    return s->whole ? fmax(1, step) : step;
}

static void fit_log(svg_scale *s, bool round)
{
    if (!round) return;
    s->lo = pow(10, floor(log10(s->lo) * 4 + 1e-9) / 4);
    s->hi = pow(10, ceil(log10(s->hi) * 4 - 1e-9) / 4);
}

void svg_scale_fit(svg_scale *s, bool round)
{
    if (!isfinite(s->lo) || !isfinite(s->hi)) s->lo = 0, s->hi = 1; /* no number at all */
    const double least = fmax(fabs(s->hi), fabs(s->lo)) * 1e-9;
    if (!(s->hi - s->lo > least)) { /* one number */
        const double half = s->lo != 0 ? 0.1 * fabs(s->lo) : 0.5;
        s->lo -= half;
        s->hi += half;
    }
    if (s->log) {
        fit_log(s, round);
        return;
    }
    for (int i = 0; round && i < 3; i++) { /* a wider range may need wider steps */
        const double step = tick_step(s);
        s->lo = step * floor(s->lo / step + 1e-9);
        s->hi = step * ceil(s->hi / step - 1e-9);
    }
}

/* Ticks at powers of ten and, if these are few, at 2 and 5 times them. */
static int log_ticks(const svg_scale *s, double ticks[SVG_TICKS])
{
    static const double more[] = {1, 2, 5};
    const double        decades = log10(s->hi) - log10(s->lo);
    const int           each = decades < 2.5 ? 3 : 1;
    const double        skip = decades > 8 ? ceil(decades / 6) : 1;
    int                 n = 0;
    for (double e = floor(log10(s->lo)); e <= log10(s->hi) + 1e-9; e += skip)
        for (int i = 0; i < each && n < SVG_TICKS; i++) {
            const double x = more[i] * pow(10, e);
            if (x >= s->lo * (1 - 1e-9) && x <= s->hi * (1 + 1e-9)) ticks[n++] = x;
        }
    return n;
}

int svg_ticks(const svg_scale *s, double ticks[SVG_TICKS])
{
    if (s->log) return log_ticks(s, ticks);
    const double step = tick_step(s);
    int          n = 0;
    for (double k = ceil(s->lo / step - 1e-9); k * step <= s->hi + 1e-9 * step && n < SVG_TICKS;
         k++)
        ticks[n++] = fabs(k) < 0.5 ? 0 : k * step;
    return n;
}

/* ---- figures --------------------------------------------------------------------------------- */

void svg_open(FILE *out, const char *title, const char *note, bool cut, double height,
              const char *more)
{
    fputs("<figure><figcaption><b>", out);
    svg_text(out, title);
    fputs("</b>", out);
    if (note) {
        fputs(" <span>", out);
        svg_text(out, note);
        fputs("</span>", out);
    }
    if (cut) fputs(" <span class=\"cut\">top cut off</span>", out);
    fprintf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"",
            SVG_WIDTH, height);
    svg_text(out, title);
    fprintf(out, "\"%s>\n", more);
}

void svg_close(FILE *out) { fputs("</svg></figure>\n", out); }

void svg_grid_x(FILE *out, const svg_scale *s, double y0, double y1)
{
    double    ticks[SVG_TICKS];
    char      number[32];
    const int n = svg_ticks(s, ticks);
    for (int i = 0; i < n; i++) {
        const double x = svg_at(s, ticks[i]);
        fprintf(out,
                "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
                "class=\"mid\">%s</text>\n",
                x, y0, y1, x, y1 + 15, svg_number(ticks[i], number));
    }
}

void svg_grid_y(FILE *out, const svg_scale *s, double x0, double x1)
{
    double    ticks[SVG_TICKS];
    char      number[32];
    const int n = svg_ticks(s, ticks);
    for (int i = 0; i < n; i++) {
        const double y = svg_at(s, ticks[i]);
        fprintf(out,
                "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
                "class=\"end\">%s</text>\n",
                x0, y, x1, x0 - 6, y + 4, svg_number(ticks[i], number));
    }
}
