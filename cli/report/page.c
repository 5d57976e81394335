/* The page, and its samples. */
#include "page.h"

#include <math.h>
#include <stdlib.h>

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

void page_key(FILE *out, size_t i)
{
    char colour[32];
    fprintf(out, "<span class=\"key %s\"></span>", svg_colour(i, colour));
}

/* ---- samples --------------------------------------------------------------------------------- */

static void write_samples(FILE *out, const cli_record *r, size_t colour)
{
    enum { SHOWN = 12 };
    char         step[32];
    const size_t n = r->n_samples, shown = n < SHOWN ? n : SHOWN;
    fputs("<div class=\"card\"><b>", out);
    page_key(out, colour);
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
        page_key(p->out, i);
        svg_text(p->out, p->records[i].name);
        fputs("</span>", p->out);
    }
    fputs("</div>\n", p->out);
}

static void write_lead(const cli_page *p)
{
    for (const char *const *text = p->lead; text && *text; text++) {
        fputs("<p class=\"finding\">", p->out);
        svg_text(p->out, *text);
        fputs("</p>\n", p->out);
    }
}

void page_write(const cli_page *p)
{
    page_head(p->out, p->title);
    fputs("<h1>", p->out);
    svg_text(p->out, p->title);
    fputs("</h1>\n", p->out);
    write_lead(p);
    page_finding(p);
    page_facts(p);
    page_summary(p);
    write_legend(p);
    page_curves(p);
    fputs("<div class=\"pair\">\n", p->out); /* few cards each: next to each other */
    page_probes(p);
    page_stream(p);
    page_decays(p);
    fputs("</div>\n", p->out);
    page_maps(p);
    page_samples(p);
    page_settings(p);
    fprintf(p->out, "<p class=\"soft\">dra %s</p>\n</main>\n", dra_version());
    page_script_write(p->out);
    fputs("</body></html>\n", p->out);
}
