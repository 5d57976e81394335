/* The table of runs; on a narrow screen each row becomes a card. */
#include "page.h"
#include "io/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers of series ----------------------------------------------------------------------- */

double page_last(const cli_record *r, const char *name)
{
    const cli_series *s = cli_record_series(r, name, false);
    size_t            n = s ? s->n : 0;
    while (n && !isfinite(s->y[n - 1])) n--;
    return n ? s->y[n - 1] : NAN;
}

double page_end(const cli_record *r, const char *name)
{
    enum { MOST = 50 };
    const cli_series *s = cli_record_series(r, name, false);
    const size_t      n = s ? s->n : 0, tenth = n / 10 < MOST ? n / 10 : MOST;
    double            sum = 0;
    size_t            counted = 0;
    for (size_t i = n - (tenth ? tenth : n ? 1 : 0); i < n; i++)
        if (isfinite(s->y[i])) sum += s->y[i], counted++;
    return counted ? sum / (double)counted : page_last(r, name);
}

double page_least(const cli_record *r, const char *name)
{
    const cli_series *s = cli_record_series(r, name, false);
    double            least = NAN;
    for (size_t i = 0; s && i < s->n; i++) least = fmin(least, s->y[i]);
    return least;
}

/* The median, which neither a first step that compiles nor a pause changes. */
double page_median(const cli_record *r, const char *name)
{
    const cli_series *s = cli_record_series(r, name, false);
    double           *y = s ? cli_room(s->n, sizeof *y) : NULL;
    size_t            n = 0;
    if (!y) return NAN;
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->y[i])) y[n++] = s->y[i];
    const double middle = page_sort(n, y);
    free(y);
    return middle;
}

double page_last_step(const cli_record *r)
{
    double last = NAN;
    for (size_t i = 0; i < r->n_series; i++)
        if (!r->series[i].tokens) last = fmax(last, r->series[i].x[r->series[i].n - 1]);
    return last;
}

const char *page_time(double seconds, char text[32])
{
    const long s = isfinite(seconds) && seconds >= 0 && seconds < 1e9 ? (long)(seconds + 0.5) : -1;
    if (s < 0) return svg_number(NAN, text);
    snprintf(text, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return text;
}

bool page_is_run(const cli_record *r) { return r->model || r->n_series || !r->n_probes; }

/* ---- cells ----------------------------------------------------------------------------------- */

static const char *memory_name(const dra_memory_config *m)
{
    const char *name = m->own ? m->own->name : m->memory ? m->memory : "append";
    return strcmp(name, "append") == 0 ? "attention" : name;
}

/* "gru + attention, 4 x 128, 4 heads". */
static void write_model(FILE *out, const dra_model *m)
{
    const dra_model_config *c = dra_model_config_of(m);
    for (int i = 0; i < c->mixers; i++) {
        const dra_mixer_config *x = &c->mixer[i];
        fputs(i ? " + " : "", out);
        svg_text(out, memory_name(&x->a));
        if (x->blend == DRA_BLEND_NONE) continue;
        fputs("/", out);
        svg_text(out, memory_name(&x->b));
    }
    fprintf(out, ", %lld × %lld, %lld head%s", (long long)c->depth, (long long)c->dim,
            (long long)c->heads, c->heads == 1 ? "" : "s");
}

static void write_model_cell(FILE *out, const cli_record *r)
{
    fputs("<td data-label=\"model\">", out);
    if (r->model)
        write_model(out, r->model);
    else
        fputs("–", out);
    fputs("</td>", out);
}

static double param_count(const cli_record *r)
{
    return r->model ? (double)dra_model_param_count(r->model) : NAN;
}
static double last_tokens(const cli_record *r) { return page_last(r, "tokens"); }
static double last_loss(const cli_record *r) { return page_last(r, "loss"); }
static double mean_loss(const cli_record *r) { return page_end(r, "loss"); }
static double last_eval(const cli_record *r) { return page_last(r, "eval_loss"); }
static double best_eval(const cli_record *r) { return page_least(r, "eval_loss"); }
static double median_speed(const cli_record *r) { return page_median(r, "tokens_per_second"); }
static double last_seconds(const cli_record *r) { return page_last(r, "seconds"); }
static double last_skipped(const cli_record *r) { return page_last(r, "skipped"); }

static const char *loss_text(double x, char text[32])
{
    if (!isfinite(x)) return svg_number(x, text);
    snprintf(text, 32, "%.4f", x);
    return text;
}

typedef struct column {
    const char *name;
    double (*value)(const cli_record *r);
    const char *(*text)(double x, char text[32]);
    bool not_zero; /* left out if it is 0 in all runs */
} column;

static const column columns[] = {
    {"parameters", param_count, svg_number},
    {"steps", page_last_step, svg_number},
    {"tokens", last_tokens, svg_number},
    {"last loss", last_loss, loss_text},
    {"mean at end", mean_loss, loss_text},
    {"last eval", last_eval, loss_text},
    {"best eval", best_eval, loss_text},
    {"tokens/s", median_speed, svg_number},
    {"time", last_seconds, page_time},
    {"skipped", last_skipped, svg_number, .not_zero = true},
};

/* Whether a column is shown: not if it would be empty. */
static bool is_shown(const cli_page *p, const column *c)
{
    for (size_t i = 0; i < p->n; i++) {
        const double x = c->value(&p->records[i]);
        if (page_is_run(&p->records[i]) && isfinite(x) && !(c->not_zero && x == 0)) return true;
    }
    return false;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void write_row(const cli_page *p, size_t i)
{
    const cli_record *r = &p->records[i];
    char              text[32];
    fputs("<tr><td class=\"name\">", p->out);
    page_key(p->out, i);
    svg_text(p->out, r->name);
    fputs("</td>", p->out);
    write_model_cell(p->out, r);
    for (size_t k = 0; k < COUNT(columns); k++)
        if (is_shown(p, &columns[k]))
            fprintf(p->out, "<td data-label=\"%s\">%s</td>", columns[k].name,
                    columns[k].text(columns[k].value(r), text));
    fputs("</tr>\n", p->out);
}

static void write_notes(FILE *out, const cli_record *r)
{
    if (r->broken) {
        fputs("<p class=\"soft\">", out);
        svg_text(out, r->name);
        fprintf(out, ": %zu of %zu lines could not be read and %s left out</p>\n", r->broken,
                r->lines, r->broken == 1 ? "is" : "are");
    }
    if (r->note[0]) {
        fputs("<p class=\"soft\">", out);
        svg_text(out, r->note);
        fputs("</p>\n", out);
    }
}

void page_summary(const cli_page *p)
{
    bool any = false;
    for (size_t i = 0; i < p->n; i++) any = any || page_is_run(&p->records[i]);
    if (any) {
        fputs("<div class=\"scroll\"><table class=\"runs\"><tr><th>run</th><th>model</th>", p->out);
        for (size_t k = 0; k < COUNT(columns); k++)
            if (is_shown(p, &columns[k])) fprintf(p->out, "<th>%s</th>", columns[k].name);
        fputs("</tr>\n", p->out);
    }
    for (size_t i = 0; i < p->n; i++)
        if (page_is_run(&p->records[i])) write_row(p, i);
    if (any) fputs("</table></div>\n", p->out);
    for (size_t i = 0; i < p->n; i++) write_notes(p->out, &p->records[i]);
}
