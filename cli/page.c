/* The page, its summary, its samples and its probes. */
#include "page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void page_section(FILE *out, const char *title)
{
    fputs("<section><h2>", out);
    svg_text(out, title);
    fputs("</h2>\n", out);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double page_sort(size_t n, double *x)
{
    if (n) qsort(x, n, sizeof *x, by_value);
    return n ? x[n / 2] : NAN;
}

static void write_key(FILE *out, size_t i)
{
    char colour[32];
    fprintf(out, "<span class=\"key %s\"></span>", svg_colour(i, colour));
}

/* ---- summary --------------------------------------------------------------------------------- */

/* "gru + append, 4 x 128, 4 heads". */
static void write_model(FILE *out, const dra_model *m)
{
    const dra_model_config *c = dra_model_config_of(m);
    for (int i = 0; i < c->mixers; i++) {
        const dra_mixer_config *x = &c->mixer[i];
        fputs(i ? " + " : "", out);
        svg_text(out, x->a.memory ? x->a.memory : x->a.own ? x->a.own->name : "append");
        if (x->blend == DRA_BLEND_NONE) continue;
        fputs("/", out);
        svg_text(out, x->b.memory ? x->b.memory : x->b.own ? x->b.own->name : "append");
    }
    fprintf(out, ", %lld × %lld, %lld head%s", (long long)c->depth, (long long)c->dim,
            (long long)c->heads, c->heads == 1 ? "" : "s");
}

static double last_of(const cli_record *r, const char *name)
{
    const cli_series *s = cli_record_series(r, name, false);
    size_t            n = s ? s->n : 0;
    while (n && !isfinite(s->y[n - 1])) n--;
    return n ? s->y[n - 1] : NAN;
}

static double least_of(const cli_record *r, const char *name)
{
    const cli_series *s = cli_record_series(r, name, false);
    double            least = NAN;
    for (size_t i = 0; s && i < s->n; i++) least = fmin(least, s->y[i]);
    return least;
}

/* The middle one, which neither a first step that compiles nor a pause moves. */
static double median_of(const cli_record *r, const char *name)
{
    const cli_series *s = cli_record_series(r, name, false);
    double           *y = s ? malloc(s->n * sizeof *y) : NULL;
    size_t            n = 0;
    if (!y) return NAN;
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->y[i])) y[n++] = s->y[i];
    const double middle = page_sort(n, y);
    free(y);
    return middle;
}

static double last_step(const cli_record *r)
{
    double last = NAN;
    for (size_t i = 0; i < r->n_series; i++)
        if (!r->series[i].tokens) last = fmax(last, r->series[i].x[r->series[i].n - 1]);
    return last;
}

static void write_loss(FILE *out, double x)
{
    if (isfinite(x))
        fprintf(out, "<td>%.4f</td>", x);
    else
        fputs("<td>–</td>", out);
}

static void write_time(FILE *out, double seconds)
{
    const long s = isfinite(seconds) && seconds >= 0 && seconds < 1e9 ? (long)(seconds + 0.5) : -1;
    if (s < 0)
        fputs("<td>–</td>", out);
    else
        fprintf(out, "<td>%ld:%02ld:%02ld</td>", s / 3600, s / 60 % 60, s % 60);
}

static void write_row(FILE *out, const cli_record *r, size_t i)
{
    char a[32], b[32], c[32], d[32], e[32];
    fputs("<tr><td>", out);
    write_key(out, i);
    svg_text(out, r->name);
    fputs("</td><td>", out);
    if (r->model)
        write_model(out, r->model);
    else
        fputs("–", out);
    const double parameters = r->model ? (double)dra_model_param_count(r->model) : NAN;
    fprintf(out, "</td><td>%s</td><td>%s</td><td>%s</td>", svg_number(parameters, a),
            svg_number(last_step(r), b), svg_number(last_of(r, "tokens"), c));
    write_loss(out, last_of(r, "loss"));
    write_loss(out, least_of(r, "loss"));
    write_loss(out, last_of(r, "eval_loss"));
    write_loss(out, least_of(r, "eval_loss"));
    fprintf(out, "<td>%s</td>", svg_number(median_of(r, "tokens_per_second"), d));
    write_time(out, last_of(r, "seconds"));
    fprintf(out, "<td>%s</td></tr>\n", svg_number(last_of(r, "skipped"), e));
}

/* A file of probes alone is no run. */
static bool is_run(const cli_record *r) { return r->model || r->n_series || !r->n_probes; }

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
    for (size_t i = 0; i < p->n; i++) any = any || is_run(&p->records[i]);
    if (any)
        fputs("<div class=\"scroll\"><table><tr><th>run</th><th>model</th><th>parameters</th>"
              "<th>steps</th><th>tokens</th><th>last loss</th><th>best loss</th>"
              "<th>last eval</th><th>best eval</th><th>tokens/s</th><th>time</th>"
              "<th>skipped</th></tr>\n",
              p->out);
    for (size_t i = 0; i < p->n; i++)
        if (is_run(&p->records[i])) write_row(p->out, &p->records[i], i);
    if (any) fputs("</table></div>\n", p->out);
    for (size_t i = 0; i < p->n; i++) write_notes(p->out, &p->records[i]);
}

/* ---- samples --------------------------------------------------------------------------------- */

static void write_samples(FILE *out, const cli_record *r, size_t colour)
{
    enum { SHOWN = 12 };
    char         step[32];
    const size_t n = r->n_samples, shown = n < SHOWN ? n : SHOWN;
    fputs("<div class=\"card\"><b>", out);
    write_key(out, colour);
    svg_text(out, r->name);
    fprintf(out, "</b> <span class=\"soft\">%zu of %zu, newest first</span>\n", shown, n);
    for (size_t i = 0; i < shown; i++) { /* evenly, from the last to the first */
        const size_t      k = shown > 1 ? (n - 1) * (shown - 1 - i) / (shown - 1) : 0;
        const cli_sample *s = &r->samples[k];
        fprintf(out, "<details%s><summary>step %s</summary><pre>", i ? "" : " open",
                svg_number(s->step, step));
        svg_text_cut(out, s->text, 4000);
        fputs("</pre></details>\n", out);
    }
    fputs("</div>\n", out);
}

void page_samples(const cli_page *p)
{
    bool open = false;
    for (size_t i = 0; i < p->n; i++) {
        if (!p->records[i].n_samples) continue;
        if (!open) page_section(p->out, "Samples");
        if (!open) fputs("<div class=\"cards\">\n", p->out);
        open = true;
        write_samples(p->out, &p->records[i], i);
    }
    if (open) fputs("</div></section>\n", p->out);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void write_legend(const cli_page *p)
{
    if (p->n < 2) return;
    fputs("<div class=\"legend\">", p->out);
    for (size_t i = 0; i < p->n; i++) {
        fputs("<span>", p->out);
        write_key(p->out, i);
        svg_text(p->out, p->records[i].name);
        fputs("</span>", p->out);
    }
    fputs("</div>\n", p->out);
}

void page_write(const cli_page *p)
{
    page_head(p->out, p->title);
    fputs("<h1>", p->out);
    svg_text(p->out, p->title);
    fputs("</h1>\n", p->out);
    page_summary(p);
    write_legend(p);
    page_curves(p);
    page_decays(p);
    page_maps(p);
    page_samples(p);
    page_probes(p);
    page_stream(p);
    fprintf(p->out, "<p class=\"soft\">dra %s</p>\n</main>\n", dra_version());
    page_script(p->out);
    fputs("</body></html>\n", p->out);
}
