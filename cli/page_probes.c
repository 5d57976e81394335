/* Rows of probes as bars, a chart for each probe. A bar is called by what tells it from others. */
#include "page.h"

#include <stdlib.h>
#include <string.h>

enum { LABEL = 160 };

static bool is_same(const cli_member *a, const cli_member *b)
{
    if (strcmp(a->key, b->key) != 0 || a->kind != b->kind) return false;
    return a->kind == CLI_MEMBER_TEXT ? strcmp(a->text, b->text) == 0 : a->number == b->number;
}

/* Whether all rows of the probe say the same here. */
static bool is_common(const cli_page *p, const char *name, const cli_member *m)
{
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_probes; k++) {
            const cli_probe *row = &p->records[i].probes[k];
            bool             found = strcmp(row->name, name) != 0;
            for (int j = 0; j < row->n_tried && !found; j++) found = is_same(&row->tried[j], m);
            if (!found) return false;
        }
    return true;
}

/* All it says, where it is the only one. */
static void write_label(const cli_page *p, const cli_probe *row, bool all, char label[LABEL])
{
    size_t used = 0;
    label[0] = '\0';
    for (int i = 0; i < row->n_tried && used < LABEL; i++) {
        const cli_member *m = &row->tried[i];
        const char       *comma = used ? ", " : "";
        if (!all && is_common(p, row->name, m)) continue;
        const int n = m->kind == CLI_MEMBER_TEXT
                          ? snprintf(label + used, LABEL - used, "%s%s", comma, m->text)
                          : snprintf(label + used, LABEL - used, "%s%s %.6g", comma, m->key,
                                     m->number);
        used += n > 0 ? (size_t)n : 0;
    }
}

static size_t count_rows(const cli_page *p, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_probes; k++)
            n += strcmp(p->records[i].probes[k].name, name) == 0;
    return n;
}

/* All rows of one probe, of all records. */
static size_t collect(const cli_page *p, const char *name, svg_bar *bars, char (*labels)[LABEL])
{
    const bool alone = count_rows(p, name) == 1;
    size_t     n = 0;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_probes; k++) {
            const cli_probe *row = &p->records[i].probes[k];
            if (strcmp(row->name, name) != 0) continue;
            write_label(p, row, alone, labels[n]);
            bars[n] = (svg_bar){labels[n], row->value.number, i};
            n++;
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
    svg_bar *bars = calloc(all + 1, sizeof *bars);
    char(*labels)[LABEL] = calloc(all + 1, sizeof *labels);
    if (all && bars && labels) {
        page_section(p->out, "Probes");
        fputs("<div class=\"cards\">\n", p->out);
        for (size_t i = 0; i < p->n; i++)
            for (size_t k = 0; k < p->records[i].n_probes; k++) {
                const cli_probe *row = &p->records[i].probes[k];
                if (!is_first(p, i, k)) continue;
                const size_t n = collect(p, row->name, bars, labels);
                svg_bars(p->out, row->name, row->value.key, n, bars);
            }
        fputs("</div></section>\n", p->out);
    }
    free(labels);
    free(bars);
}
