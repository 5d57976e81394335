/* Numbers of logs over steps, those of all runs in one chart, and bars of probes. */
#include "page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names of the log that have a place and a title of their own. */
static const struct {
    const char *name, *title;
    bool        from_zero;
} known[] = {
    {"lr", "Learning rate", true},
    {"grad_norm", "Gradient norm", false},
    {"tokens_per_second", "Tokens per second", true},
    {"skipped", "Skipped steps", true},
    {"blend", "Blend", true},
};

/* What has another place on the page, or is no curve. */
static const char *const elsewhere[] = {"loss", "eval_loss", "best_loss", "tokens", "seconds"};

static bool is_known(const char *name)
{
    for (size_t i = 0; i < COUNT(known); i++)
        if (strcmp(known[i].name, name) == 0) return true;
    for (size_t i = 0; i < COUNT(elsewhere); i++)
        if (strcmp(elsewhere[i], name) == 0) return true;
    return false;
}

/* ---- loss ------------------------------------------------------------------------------------ */

/* A running mean in which a point has half its weight after 2 % of them:
 *     m_i = sum_j a^(i-j) y_j / sum_j a^(i-j).   NaN: no memory is left for it. */
static double *smooth(const cli_series *s)
{
    const double a = exp2(-1 / fmax(1, 0.02 * (double)s->n));
    double       sum = 0, weight = 0;
    double      *y = malloc(s->n * sizeof *y);
    for (size_t i = 0; y && i < s->n; i++) {
        sum *= a;
        weight *= a;
        if (isfinite(s->y[i])) sum += s->y[i], weight += 1;
        y[i] = isfinite(s->y[i]) ? sum / weight : NAN;
    }
    return y;
}

static void write_loss(const cli_page *p)
{
    enum { SMOOTHED = 50 }; /* shorter ones are shown as they are */
    svg_line *lines = calloc(3 * p->n, sizeof *lines);
    double  **own = calloc(p->n, sizeof *own);
    size_t    n = 0;
    for (size_t i = 0; lines && own && i < p->n; i++) {
        const cli_record *r = &p->records[i];
        const cli_series *s = cli_record_series(r, "loss"), *e = cli_record_series(r, "eval_loss");
        if (s && s->n >= SMOOTHED) own[i] = smooth(s);
        if (s && own[i]) lines[n++] = (svg_line){r->name, s->n, s->x, s->y, i, .faint = true};
        if (s) lines[n++] = (svg_line){r->name, s->n, s->x, own[i] ? own[i] : s->y, i};
        if (e) lines[n++] = (svg_line){r->name, e->n, e->x, e->y, i, .dots = true};
    }
    const svg_chart c = {"Loss", "lines: training, dots: evaluation", n, lines};
    if (n) svg_lines(p->out, &c);
    for (size_t i = 0; own && i < p->n; i++) free(own[i]);
    free(own);
    free(lines);
}

/* ---- others ---------------------------------------------------------------------------------- */

static bool has_something(const cli_series *s, bool not_zero)
{
    for (size_t i = 0; s && i < s->n; i++)
        if (isfinite(s->y[i]) && !(not_zero && s->y[i] == 0)) return true;
    return false;
}

static void write_curve(const cli_page *p, const char *name, const char *title, bool from_zero)
{
    const bool not_zero = strcmp(name, "skipped") == 0; /* no curve of steps never skipped */
    svg_line  *lines = calloc(p->n, sizeof *lines);
    size_t     n = 0;
    bool       any = false;
    for (size_t i = 0; lines && i < p->n; i++) {
        const cli_record *r = &p->records[i];
        const cli_series *s = cli_record_series(r, name);
        any = any || has_something(s, not_zero);
        if (s) lines[n++] = (svg_line){r->name, s->n, s->x, s->y, i};
    }
    const svg_chart c = {title, NULL, n, lines, from_zero};
    if (any) svg_lines(p->out, &c);
    free(lines);
}

/* Whether a record before this one has had the name already. */
static bool was_written(const cli_page *p, size_t record, const char *name)
{
    for (size_t i = 0; i < record; i++)
        if (cli_record_series(&p->records[i], name)) return true;
    return false;
}

void page_curves(const cli_page *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) n += p->records[i].n_series;
    if (!n) return;
    page_section(p->out, "Training");
    fputs("<div class=\"cards\">\n", p->out);
    write_loss(p);
    for (size_t i = 0; i < COUNT(known); i++)
        write_curve(p, known[i].name, known[i].title, known[i].from_zero);
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_series; k++) {
            const char *name = p->records[i].series[k].name;
            if (!is_known(name) && !was_written(p, i, name)) write_curve(p, name, name, false);
        }
    fputs("</div></section>\n", p->out);
}

/* ---- probes ---------------------------------------------------------------------------------- */

/* All rows of one probe, of all records. */
static size_t collect(const cli_page *p, const char *name, svg_bar *bars)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_probes; k++) {
            const cli_probe *row = &p->records[i].probes[k];
            if (strcmp(row->name, name) == 0) bars[n++] = (svg_bar){row->label, row->value, i};
        }
    return n;
}

static bool is_first(const cli_page *p, size_t record, size_t row)
{
    const char *name = p->records[record].probes[row].name;
    for (size_t i = 0; i <= record; i++)
        for (size_t k = 0; k < (i < record ? p->records[i].n_probes : row); k++)
            if (strcmp(p->records[i].probes[k].name, name) == 0) return false;
    return true;
}

void page_probes(const cli_page *p)
{
    size_t all = 0;
    for (size_t i = 0; i < p->n; i++) all += p->records[i].n_probes;
    svg_bar *bars = all ? calloc(all, sizeof *bars) : NULL;
    if (!bars) return;
    page_section(p->out, "Probes");
    fputs("<div class=\"cards\">\n", p->out);
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_probes; k++) {
            const cli_probe *row = &p->records[i].probes[k];
            if (!is_first(p, i, k)) continue;
            svg_bars(p->out, row->name, row->value_name, collect(p, row->name, bars), bars);
        }
    fputs("</div></section>\n", p->out);
    free(bars);
}
