/* Numbers over steps, and over tokens that were read, those of all runs in one chart. */
#include "page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct curve {
    const char *name, *title, *note;
    const char *dots; /* the name of a second series, shown as points; NULL: none */
    bool        from_zero;
    bool        smooth; /* shown by its means, and faintly as it is */
    bool        events; /* shown only where it is not 0 all the time */
    bool        tokens; /* over tokens instead of steps */
} curve;

/* Names of the log that have a place and a title of their own. */
static const curve known[] = {
    {"loss", "Loss", "lines: training, dots: evaluation", "eval_loss", .smooth = true},
    {"accuracy", "Accuracy", "lines: training, dots: evaluation", "eval_accuracy",
     .from_zero = true, .smooth = true},
    {"error", "Error", "lines: training, dots: evaluation", "eval_error", .from_zero = true,
     .smooth = true},
    {"perplexity", "Perplexity", "lines: training, dots: evaluation", "eval_perplexity",
     .smooth = true},
    {"lr", "Learning rate", .from_zero = true},
    {"grad_norm", "Gradient norm", .smooth = true},
    {"tokens_per_second", "Tokens per second", .from_zero = true, .smooth = true},
    {"skipped", "Skipped steps", .from_zero = true, .events = true},
    {"guarded", "Clamped state entries", .from_zero = true, .events = true},
    {"blend", "Blend", .from_zero = true},
};

/* What has another place on the page, or is no curve. */
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

/* A mean of both sides, so that the line does not lag; weights halve within 0.7 % of the points:
 *     m_i = sum_j a^|i-j| y_j / sum_j a^|i-j|
 * Two passes add what is to the left and to the right. NULL: no memory. */
static double *smooth(const cli_series *s)
{
    const size_t n = s->n;
    const double a = exp2(-1 / fmax(1, 0.007 * (double)n));
    double      *y = malloc(2 * n * sizeof *y), *weights = y ? y + n : NULL, sum = 0, weight = 0;
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

/* The lines of one run; returns how many. *means: to be freed. */
static size_t collect_lines(const cli_record *r, size_t i, const curve *c, svg_line *lines,
                            double **means)
{
    enum { MANY = 50 }; /* fewer points need no mean */
    const cli_series *s = cli_record_series(r, c->name, c->tokens);
    const cli_series *d = c->dots ? cli_record_series(r, c->dots, c->tokens) : NULL;
    size_t            n = 0;
    if (s && c->smooth && s->n >= MANY) *means = smooth(s);
    if (s && *means) lines[n++] = (svg_line){r->name, s->n, s->x, s->y, i, .faint = true};
    if (s) lines[n++] = (svg_line){r->name, s->n, s->x, *means ? *means : s->y, i};
    if (d) lines[n++] = (svg_line){r->name, d->n, d->x, d->y, i, .dots = true};
    return n;
}

static void write_curve(const cli_page *p, const curve *c)
{
    svg_line *lines = calloc(3 * p->n, sizeof *lines);
    double  **means = calloc(p->n, sizeof *means);
    size_t    n = 0;
    bool      any = false;
    for (size_t i = 0; lines && means && i < p->n; i++) {
        const size_t more = collect_lines(&p->records[i], i, c, lines + n, &means[i]);
        any = any || (more && has_something(cli_record_series(&p->records[i], c->name, c->tokens),
                                            c->events));
        n += more;
    }
    if (any)
        svg_lines(p->out, &(svg_chart){c->title, c->note, n, lines, c->from_zero,
                                       c->tokens ? "token" : "step"});
    for (size_t i = 0; means && i < p->n; i++) free(means[i]);
    free(means);
    free(lines);
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

/* Those that have no place of their own, by the names the logs give them. */
static void write_others(const cli_page *p, bool tokens)
{
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_series; k++) {
            const cli_series *s = &p->records[i].series[k];
            if (s->tokens != tokens || (!tokens && is_known(s->name)) ||
                was_written(p, i, s->name, tokens))
                continue;
            write_curve(p, &(curve){s->name, s->name, .from_zero = tokens, .tokens = tokens});
        }
}

void page_curves(const cli_page *p)
{
    if (!has_series(p, false)) return;
    page_section(p->out, "Training");
    fputs("<div class=\"cards\">\n", p->out);
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
