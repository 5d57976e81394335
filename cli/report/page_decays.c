/* Half-lives of all decays of a run, layer below layer: in the newest checkpoint and in the
 * oldest. */
#include "page.h"
#include "io/memory.h"

#include <math.h>
#include <stdlib.h>

/* How finely decays are grouped; models with many heads get fewer, wider bands. */
typedef enum grain { BY_UNIT, BY_HEAD, BY_LAYER } grain;

typedef struct band { /* decays that share a line of the chart */
    dra_gamma_row like;
    size_t        n;
    double        lo, middle, hi, was; /* half-lives; was: the middle in the oldest checkpoint */
} band;

static bool in_band(grain g, const dra_gamma_row *a, const dra_gamma_row *b)
{
    if (a->layer != b->layer || a->by_data != b->by_data) return false;
    if (g == BY_LAYER) return true;
    if (a->head != b->head) return false;
    return g == BY_HEAD || (a->param == b->param && a->unit == b->unit);
}

/* Finds the bands of all rows, in their order; `bands` has room for one each. */
static size_t find_bands(grain g, const cli_decays *d, band *bands)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) {
        size_t k = 0;
        while (k < n && !in_band(g, &bands[k].like, &d->rows[i])) k++;
        if (k == n) bands[n++] = (band){.like = d->rows[i]};
    }
    return n;
}

/* The half-lives of a band; infinite ones are drawn at an edge. */
static size_t half_lives(grain g, const cli_decays *d, const dra_gamma_row *like, double *to)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        if (in_band(g, like, &d->rows[i])) to[n++] = fmin(fmax(d->rows[i].half_life, 1e-2), 1e8);
    return n;
}

static void measure_band(grain g, const cli_decays *now, const cli_decays *then, band *b,
                         double *room)
{
    b->n = half_lives(g, now, &b->like, room);
    b->middle = page_sort(b->n, room);
    b->lo = room[0];
    b->hi = room[b->n - 1];
    const size_t n = half_lives(g, then, &b->like, room);
    b->was = n ? page_sort(n, room) : b->middle;
}

/* ---- drawing --------------------------------------------------------------------------------- */

enum { LEFT = 52, RIGHT = 326, TOP = 8 };

static void write_name(FILE *out, const band *b)
{
    fprintf(out, "layer %d", b->like.layer);
    if (b->n == 1 || b->like.head >= 0) fprintf(out, ", head %lld", (long long)b->like.head);
    fputs(", ", out);
    svg_text(out, b->like.memory);
    fputs(" ", out);
    svg_text(out, b->like.param);
    if (b->like.unit >= 0) fprintf(out, " %lld", (long long)b->like.unit);
    fprintf(out, ": half-life %.4g", b->middle);
    if (b->n > 1) fprintf(out, " (%zu from %.4g to %.4g)", b->n, b->lo, b->hi);
    if (b->was != b->middle) fprintf(out, ", was %.4g", b->was);
    if (b->like.by_data) fputs("; depends on the token, this is at x = 0", out);
}

static void write_band(FILE *out, const svg_scale *x, const band *b, double y, double high,
                       const char *colour)
{
    const double at = svg_at(x, b->middle), was = svg_at(x, b->was);
    fputs("<g><title>", out);
    write_name(out, b);
    fputs("</title>", out);
    if (b->hi > b->lo)
        fprintf(out, "<path class=\"%s span\" d=\"M%.1f %.1fH%.1f\"/>", colour, svg_at(x, b->lo), y,
                svg_at(x, b->hi));
    if (fabs(was - at) > 0.5)
        fprintf(out, "<path class=\"%s moved\" d=\"M%.1f %.1fV%.1fM%.1f %.1fH%.1f\"/>", colour, was,
                y - 0.3 * high, y + 0.3 * high, was, y, at);
    fprintf(out, "<circle class=\"%s%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/></g>\n", colour,
            b->like.by_data ? " hollow" : "", at, y, fmin(3.4, fmax(1.8, 0.4 * high)));
}

static svg_scale find_scale(const band *bands, size_t n)
{
    svg_scale x = {bands[0].lo, bands[0].hi, LEFT, RIGHT, true};
    for (size_t i = 0; i < n; i++) {
        x.lo = fmin(x.lo, fmin(bands[i].lo, bands[i].was));
        x.hi = fmax(x.hi, fmax(bands[i].hi, bands[i].was));
    }
    const double margin = x.hi < 4 * x.lo ? 3 : 1.25; /* a few ticks, also for one number */
    x.lo /= margin;
    x.hi *= margin;
    svg_scale_fit(&x, true);
    return x;
}

static void write_bands(FILE *out, const cli_record *r, size_t i, const band *bands, size_t n)
{
    const cli_spectrum *now = &r->spectra[r->n_spectra - 1], *then = &r->spectra[0];
    const double    high = fmin(fmax(190.0 / (double)n, 3), 16), bottom = TOP + high * (double)n;
    const svg_scale x = find_scale(bands, n);
    char            note[120] = "by layer", colour[32];
    if (then != now)
        snprintf(note, sizeof note, "by layer; lines lead from step %lld to %lld",
                 (long long)then->step, (long long)now->step);
    svg_open(out, r->name, note, false, bottom + 40, "");
    fputs("<desc>", out);
    for (size_t k = 0; k < n; k++) {
        write_name(out, &bands[k]);
        fputs(".\n", out);
    }
    fprintf(out,
            "</desc>\n<text class=\"mid\" x=\"%d\" y=\"%.1f\">half-life (tokens)</text>"
            "<text class=\"mid\" transform=\"translate(12 %.1f) rotate(-90)\">layer</text>\n",
            (LEFT + RIGHT) / 2, bottom + 33, (TOP + bottom) / 2);
    svg_grid_x(out, &x, TOP, bottom);
    for (size_t k = 0; k < n; k++) {
        const double y = TOP + high * ((double)k + 0.5);
        if (k == 0 || bands[k].like.layer != bands[k - 1].like.layer)
            fprintf(out,
                    "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"end\" x=\"%d\" "
                    "y=\"%.1f\">%d</text>\n",
                    LEFT - 20, y - high / 2, RIGHT, LEFT - 8, y - high / 2 + 13,
                    bands[k].like.layer);
        write_band(out, &x, &bands[k], y, high, svg_colour(i, colour));
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void write_table(FILE *out, const cli_decays *d)
{
    const size_t n = dra_gammas_text(d->rows, d->n, NULL, 0);
    char        *text = cli_room(n + 1, 1);
    if (text) {
        dra_gammas_text(d->rows, d->n, text, n + 1);
        fputs("<details><summary>numbers</summary><div class=\"numbers\"><pre>", out);
        svg_text(out, text);
        fputs("</pre></div></details>\n", out);
    }
    free(text);
}

static void write_spectrum(FILE *out, const cli_record *r, size_t i)
{
    enum { MOST = 200 }; /* lines of a chart */
    const cli_decays *now = &r->spectra[r->n_spectra - 1].decays, *then = &r->spectra[0].decays;
    band             *bands = cli_room(now->n, sizeof *bands);
    double           *room = cli_room(now->n + then->n, sizeof *room);
    if (bands && room) {
        grain  g = BY_UNIT;
        size_t n = find_bands(g, now, bands);
        while (n > MOST && g != BY_LAYER) n = find_bands(++g, now, bands);
        for (size_t k = 0; k < n; k++) measure_band(g, now, then, &bands[k], room);
        write_bands(out, r, i, bands, n);
        fputs("</svg>", out);
        write_table(out, now);
        fputs("</figure>\n", out);
    }
    free(bands);
    free(room);
}

void page_decays(const cli_page *p)
{
    bool open = false;
    for (size_t i = 0; i < p->n; i++) {
        const cli_record *r = &p->records[i];
        if (!r->n_spectra || !r->spectra[r->n_spectra - 1].decays.n) continue;
        if (!open) page_section(p->out, "Half-lives of memory");
        if (!open) fputs("<div class=\"cards\">\n", p->out);
        open = true;
        write_spectrum(p->out, r, i);
    }
    if (open) fputs("</div></section>\n", p->out);
}
