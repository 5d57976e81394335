/* Curves over steps and over tokens read, of all runs in one chart. */
#include "page.h"
#include "io/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct curve {
    const char *name, *title, *unit; /* unit: the title of the y axis */
    const char *dots;                /* a second series, shown as points; NULL: none */
    bool        from_zero;
    bool        smooth; /* shown smoothed, and faintly as it is */
    bool        robust; /* shown without the few points far above the rest */
    bool        events; /* shown only if it is not always 0 */
    bool        tokens; /* over tokens instead of steps */
} curve;

/* Series of the log that have a chart and a title of their own. */
static const curve known[] = {
    {"loss", "Loss", "loss", "eval_loss", .smooth = true, .robust = true},
    {"accuracy", "Accuracy", "share of right answers", "eval_accuracy", .from_zero = true,
     .smooth = true},
    {"error", "Error", "error", "eval_error", .from_zero = true, .smooth = true},
    {"perplexity", "Perplexity", "perplexity", "eval_perplexity", .smooth = true, .robust = true},
    {"lr", "Learning rate", "learning rate", .from_zero = true},
    {"grad_norm", "Gradient norm", "norm of all gradients", .smooth = true},
    {"tokens_per_second", "Tokens per second", "tokens/s", .from_zero = true, .smooth = true},
    {"skipped", "Skipped steps", "steps so far", .from_zero = true, .events = true},
    {"clamped", "Clamped state entries", "entries so far", .from_zero = true, .events = true},
    {"blend", "Blend", "share of the first memory", .from_zero = true},
};

/* Series that are elsewhere on the page, or are not curves. */
static const char *const elsewhere[] = {"eval_loss",     "best_loss",  "tokens",         "seconds",
                                        "eval_accuracy", "eval_error", "eval_perplexity"};

static bool is_known(const char *name)
{
    for (size_t i = 0; i < COUNT(known); i++)
        if (strcmp(known[i].name, name) == 0) return true;
    for (size_t i = 0; i < COUNT(elsewhere); i++)
        if (strcmp(elsewhere[i], name) == 0) return true;
    return false;
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* A two-sided mean, so that the line does not lag; weights halve within 0.7 % of the points:
 *     m_i = sum_j a^|i-j| y_j / sum_j a^|i-j|
 * Two passes sum the points to the left and to the right. NULL: no memory. */
static double *smooth_series(const cli_series *s)
{
    const size_t n = s->n;
    const double a = exp2(-1 / fmax(1, 0.007 * (double)n));
    double      *y = cli_room(2 * n, sizeof *y), *weights = y ? y + n : NULL, sum = 0, weight = 0;
    for (size_t i = 0; y && i < n; i++) {
        const bool good = isfinite(s->y[i]);
        y[i] = sum = a * sum + (good ? s->y[i] : 0);
        weights[i] = weight = a * weight + good;
    }
    sum = weight = 0;
    for (size_t i = n; y && i-- > 0;) {
        const bool good = isfinite(s->y[i]);
        y[i] = good ? (y[i] + a * sum) / (weights[i] + a * weight) : NAN;
        sum = a * sum + (good ? s->y[i] : 0);
        weight = a * weight + good;
    }
    return y;
}

static bool has_something(const cli_series *s, bool not_zero)
{
    for (size_t i = 0; s && i < s->n; i++)
        if (isfinite(s->y[i]) && !(not_zero && s->y[i] == 0)) return true;
    return false;
}

/* ---- charts ---------------------------------------------------------------------------------- */

typedef struct drawing { /* lines of one chart and what they borrow */
    svg_line *lines;
    size_t    n;
    double  **owned; /* two for each record */
    bool      any, dots;
    double    scale; /* factor of all numbers */
} drawing;

/* The points in the unit of the chart; NULL: no memory. */
static double *scale_series(const cli_series *s, double scale)
{
    double *y = cli_room(s->n, sizeof *y);
    for (size_t i = 0; y && i < s->n; i++) y[i] = s->y[i] * scale;
    return y;
}

/* The lines of one run. */
static void collect_lines(const cli_record *r, size_t i, const curve *c, drawing *d)
{
    enum { MANY = 50 }; /* fewer points need no mean */
    const cli_series *s = cli_record_series(r, c->name, c->tokens);
    const cli_series *e = c->dots ? cli_record_series(r, c->dots, c->tokens) : NULL;
    double          **own = &d->owned[2 * i], *y = s ? s->y : NULL;
    if (s && c->smooth && s->n >= MANY) own[0] = smooth_series(s);
    if (s && d->scale != 1) y = own[1] = scale_series(s, d->scale);
    if (s && own[0]) d->lines[d->n++] = (svg_line){r->name, s->n, s->x, s->y, i, .faint = true};
    if (s && y)
        d->lines[d->n++] = (svg_line){
            r->name, s->n, s->x, own[0] ? own[0] : y, i, .is_mean = own[0] != NULL};
    if (e) d->lines[d->n++] = (svg_line){r->name, e->n, e->x, e->y, i, .dots = true};
    d->dots = d->dots || e;
    d->any = d->any || has_something(s, c->events);
}

/* The unit of a curve: bytes may become KiB, MiB or GiB. */
static const char *unit_of(const cli_page *p, const curve *c, double *scale)
{
    double most = 0;
    *scale = 1;
    if (!strstr(c->name, "bytes")) return c->unit;
    for (size_t i = 0; i < p->n; i++) {
        const cli_series *s = cli_record_series(&p->records[i], c->name, c->tokens);
        for (size_t k = 0; s && k < s->n; k++) most = fmax(most, s->y[k]);
    }
    const int power = most >= 1 << 30 ? 3 : most >= 1 << 20 ? 2 : most >= 1 << 10 ? 1 : 0;
    *scale = 1 / pow(1024, power);
    return (const char *const[]){"bytes", "KiB", "MiB", "GiB"}[power];
}

/* The unit of losses: nats, unless a run minimises something other than cross entropy. */
static const char *unit_of_loss(const cli_page *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const cli_record *r = &p->records[i];
        if (!r->n_series) continue;
        if (!r->model || dra_model_config_of(r->model)->head.kind) return "loss";
        for (size_t k = 0; k < r->settings.n; k++)
            if (strncmp(r->settings.all[k].key, "objective", 9) == 0) return "loss";
    }
    return "loss (nats per token)";
}

static void write_curve(const cli_page *p, const curve *c)
{
    drawing     d = {cli_room(3 * p->n, sizeof *d.lines), 0, cli_room(2 * p->n, sizeof *d.owned)};
    const char *unit = unit_of(p, c, &d.scale);
    if (strcmp(c->name, "loss") == 0 && !c->tokens) unit = unit_of_loss(p);
    for (size_t i = 0; d.lines && d.owned && i < p->n; i++) collect_lines(&p->records[i], i, c, &d);
    if (d.any)
        svg_lines(p->out, &(svg_chart){.title = c->title,
                                       .note = d.dots ? "lines: training, dots: evaluation" : NULL,
                                       .n = d.n,
                                       .lines = d.lines,
                                       .from_zero = c->from_zero,
                                       .robust = c->robust,
                                       .x_name = c->tokens ? "token" : "step",
                                       .y_name = unit});
    for (size_t i = 0; d.owned && i < 2 * p->n; i++) free(d.owned[i]);
    free(d.owned);
    free(d.lines);
}

/* Whether a record before this one has had the name already. */
static bool was_written(const cli_page *p, size_t record, const char *name, bool tokens)
{
    for (size_t i = 0; i < record; i++)
        if (cli_record_series(&p->records[i], name, tokens)) return true;
    return false;
}

static bool has_series(const cli_page *p, bool tokens)
{
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_series; k++)
            if (p->records[i].series[k].tokens == tokens) return true;
    return false;
}

/* Writes the other series, by their names in the log. */
static void write_others(const cli_page *p, bool tokens)
{
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_series; k++) {
            const cli_series *s = &p->records[i].series[k];
            if (s->tokens != tokens || (!tokens && is_known(s->name)) ||
                was_written(p, i, s->name, tokens))
                continue;
            write_curve(p,
                        &(curve){s->name, s->name, s->name, .from_zero = tokens, .tokens = tokens});
        }
}

/* ---- what the script needs ------------------------------------------------------------------- */

static void write_clock_row(FILE *out, const cli_series *s, const char *name, bool x)
{
    enum { MOST = 200 };
    const size_t n = s->n < MOST ? s->n : MOST;
    fprintf(out, " data-%s=\"", name);
    for (size_t i = 0; i < n; i++) { /* evenly spaced, including the first and the last */
        const size_t k = n > 1 ? i * (s->n - 1) / (n - 1) : 0;
        const double v = x ? s->x[k] : s->y[k];
        fprintf(out, "%s%.9g", i ? " " : "", isfinite(v) ? v : 0);
    }
    fputs("\"", out);
}

/* Writes tokens and seconds of each step, so that curves can be drawn over them. */
static void write_clocks(const cli_page *p)
{
    static const char *const names[] = {"tokens", "seconds"};
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < COUNT(names); k++) {
            const cli_series *s = cli_record_series(&p->records[i], names[k], false);
            if (!s) continue;
            fprintf(p->out, "<i class=\"clock\" hidden data-run=\"%zu\" data-of=\"%s\"", i,
                    names[k]);
            write_clock_row(p->out, s, "step", true);
            write_clock_row(p->out, s, "value", false);
            fputs("></i>\n", p->out);
        }
}

void page_curves(const cli_page *p)
{
    if (!has_series(p, false)) return;
    page_section(p->out, "Training");
    write_clocks(p);
    /* The first chart, the loss, is the wide one. */
    fputs("<div class=\"tools\" hidden></div>\n<div class=\"cards curves\">\n", p->out);
    for (size_t i = 0; i < COUNT(known); i++) write_curve(p, &known[i]);
    write_others(p, false);
    fputs("</div></section>\n", p->out);
}

void page_stream(const cli_page *p)
{
    if (!has_series(p, true)) return;
    page_section(p->out, "Reading a long text");
    fputs("<div class=\"cards\">\n", p->out);
    write_others(p, true);
    fputs("</div></section>\n", p->out);
}
