/* Rows of probes as bars: a chart for each task, grouped by length, one colour for each model. */
#include "page.h"
#include "io/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 160 };

typedef char label[LABEL];

typedef struct chart { /* all rows of one probe, of all records */
    const cli_page    *p;
    const char        *name;
    size_t             n;
    const cli_probe  **rows;
    size_t            *record;
    svg_bar           *bars;
    label             *labels, *groups, *about;
    size_t             n_models;
    const cli_member **models; /* models that are not runs on the page, in their order */
} chart;

/* ---- what is said about a row ---------------------------------------------------------------- */

static const cli_member *find_tried(const cli_probe *row, const char *key)
{
    for (int i = 0; i < row->n_tried; i++)
        if (strcmp(row->tried[i].key, key) == 0) return &row->tried[i];
    return NULL;
}

static bool is_same(const cli_member *a, const cli_member *b)
{
    if (!a || !b || a->kind != b->kind) return false;
    return a->kind == CLI_MEMBER_TEXT ? strcmp(a->text, b->text) == 0 : a->number == b->number;
}

/* Whether all rows of the chart have this value. */
static bool is_common(const chart *c, const cli_member *m)
{
    for (size_t i = 0; i < c->n; i++)
        if (!is_same(find_tried(c->rows[i], m->key), m)) return false;
    return true;
}

/* The number that rows are grouped by: a length, or how many tokens ago something was told. */
static const cli_member *group_of(const cli_probe *row)
{
    const cli_member *m = find_tried(row, "length");
    return m ? m : find_tried(row, "tokens");
}

static void append_label(label to, const char *comma, const cli_member *m)
{
    const size_t used = strlen(to);
    comma = used ? comma : "";
    if (m->kind == CLI_MEMBER_TEXT)
        snprintf(to + used, LABEL - used, "%s%s", comma, m->text);
    else
        snprintf(to + used, LABEL - used, "%s%s %.6g", comma, m->key, m->number);
}

/* Labels a row by the options in which rows differ, or by all of them if there is one row. */
static void write_label(const chart *c, size_t i)
{
    const cli_probe  *row = c->rows[i];
    const cli_member *group = group_of(row);
    for (int k = 0; k < row->n_tried; k++) {
        const cli_member *m = &row->tried[k];
        if (c->n > 1 && is_common(c, m)) continue;
        append_label(c->about[i], ", ", m);
        if (m != group) append_label(c->labels[i], ", ", m);
    }
    if (!c->labels[i][0]) snprintf(c->labels[i], LABEL, "%s", c->p->records[c->record[i]].name);
    if (!c->about[i][0]) snprintf(c->about[i], LABEL, "%s", c->labels[i]);
    if (!group) return;
    if (group->kind == CLI_MEMBER_TEXT) snprintf(c->groups[i], LABEL, "%s ", group->key);
    append_label(c->groups[i], "", group);
}

/* ---- chance and counts ----------------------------------------------------------------------- */

static bool is_share(const cli_probe *row)
{
    return strcmp(row->value.key, "accuracy") == 0 && row->value.number >= 0 &&
           row->value.number <= 1;
}

/* The chance level of the chart, if its rows agree within 2 %. */
static double find_chance(const chart *c)
{
    double lo = NAN, hi = NAN;
    for (size_t i = 0; i < c->n; i++) {
        const double x = c->rows[i]->chance;
        if (!isfinite(x)) return NAN;
        lo = fmin(lo, x);
        hi = fmax(hi, x);
    }
    return hi - lo <= 0.02 && hi <= 1 && lo >= 0 ? (lo + hi) / 2 : NAN;
}

/* Wilson's interval, 95 %: with p of n right and z = 1.96 it is
 *     (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n) */
static void find_interval(svg_bar *b)
{
    const double z = 1.959964, n = b->count, p = b->value, d = 1 + z * z / n;
    if (!(n >= 1)) return;
    const double middle = (p + z * z / (2 * n)) / d;
    const double half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d;
    b->lo = fmax(middle - half, 0);
    b->hi = fmin(middle + half, 1);
}

/* ---- colours and order ----------------------------------------------------------------------- */

/* The run that a row is about; n: it names a model that is not on the page. */
static size_t run_of(const cli_page *p, size_t record, const cli_member *model)
{
    size_t i = 0;
    if (!model || model->kind != CLI_MEMBER_TEXT) return record;
    while (i < p->n && strcmp(p->records[i].name, model->text) != 0) i++;
    return i;
}

static size_t place_of(const chart *c, const cli_member *model)
{
    size_t i = 0;
    while (i < c->n_models && !is_same(c->models[i], model)) i++;
    return i;
}

static void find_models(chart *c)
{
    for (size_t i = 0; i < c->p->n; i++)
        for (size_t k = 0; k < c->p->records[i].n_probes; k++) {
            const cli_member *m = find_tried(&c->p->records[i].probes[k], "model");
            if (run_of(c->p, i, m) == c->p->n && place_of(c, m) == c->n_models)
                c->models[c->n_models++] = m;
        }
}

/* A model has the colour of its run; other models have colours after those of the runs. */
static size_t colour_of(const chart *c, size_t record, const cli_probe *row)
{
    const cli_member *model = find_tried(row, "model");
    const size_t      run = run_of(c->p, record, model);
    size_t            runs = 0;
    if (run < c->p->n) return run;
    for (size_t i = 0; i < c->p->n; i++) runs += page_is_run(&c->p->records[i]);
    return runs + place_of(c, model);
}

/* The order of rows: groups stay together in the order of their first row; numbers ascend. */
static bool comes_after(const cli_probe *a, const cli_probe *b)
{
    const cli_member *x = group_of(a), *y = group_of(b);
    if (!x || !y || x->kind != CLI_MEMBER_NUMBER || y->kind != CLI_MEMBER_NUMBER) return false;
    return x->number > y->number;
}

static void move_row(chart *c, size_t from, size_t to)
{
    for (; from > to; from--) {
        const cli_probe *row = c->rows[from];
        const size_t     record = c->record[from];
        c->rows[from] = c->rows[from - 1];
        c->record[from] = c->record[from - 1];
        c->rows[from - 1] = row;
        c->record[from - 1] = record;
    }
}

static void sort_rows(chart *c)
{
    for (size_t i = 1; i < c->n; i++) {
        size_t to = i;
        while (to > 0 && comes_after(c->rows[to - 1], c->rows[i])) to--;
        for (size_t k = 0; to == i && k + 1 < i; k++) /* texts: behind the last row of the group */
            if (is_same(group_of(c->rows[k]), group_of(c->rows[i])) &&
                !is_same(group_of(c->rows[k + 1]), group_of(c->rows[i])))
                to = k + 1;
        move_row(c, i, to);
    }
}

/* ---- charts ---------------------------------------------------------------------------------- */

static void collect_rows(chart *c)
{
    c->n = 0;
    for (size_t i = 0; i < c->p->n; i++)
        for (size_t k = 0; k < c->p->records[i].n_probes; k++) {
            const cli_probe *row = &c->p->records[i].probes[k];
            if (strcmp(row->name, c->name) != 0) continue;
            c->rows[c->n] = row;
            c->record[c->n++] = i;
        }
    sort_rows(c);
}

static void write_chart(chart *c)
{
    bool shares = true, counted = false;
    collect_rows(c);
    for (size_t i = 0; i < c->n; i++) {
        c->labels[i][0] = c->groups[i][0] = c->about[i][0] = '\0';
        write_label(c, i);
        shares = shares && is_share(c->rows[i]);
    }
    for (size_t i = 0; i < c->n; i++) {
        const cli_probe *row = c->rows[i];
        c->bars[i] = (svg_bar){c->labels[i],
                               c->groups[i],
                               c->about[i],
                               row->value.number,
                               shares ? row->count : NAN,
                               NAN,
                               NAN,
                               colour_of(c, c->record[i], row)};
        if (shares) find_interval(&c->bars[i]);
        counted = counted || isfinite(c->bars[i].lo);
    }
    svg_bars(c->p->out, &(svg_bar_chart){.title = c->name,
                                         .note = counted ? "with 95 % intervals" : NULL,
                                         .n = c->n,
                                         .bars = c->bars,
                                         .chance = shares ? find_chance(c) : NAN,
                                         .shares = shares,
                                         .x_name = c->rows[0]->value.key});
}

static bool is_first(const cli_page *p, size_t record, size_t row)
{
    const char *name = p->records[record].probes[row].name;
    for (size_t i = 0; i <= record; i++)
        for (size_t k = 0; k < (i < record ? p->records[i].n_probes : row); k++)
            if (strcmp(p->records[i].probes[k].name, name) == 0) return false;
    return true;
}

static void write_charts(chart *c)
{
    const cli_page *p = c->p;
    page_section(p->out, "Probes");
    fputs("<div class=\"cards\">\n", p->out);
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].n_probes; k++) {
            if (!is_first(p, i, k)) continue;
            c->name = p->records[i].probes[k].name;
            write_chart(c);
        }
    fputs("</div></section>\n", p->out);
}

void page_probes(const cli_page *p)
{
    size_t all = 0;
    for (size_t i = 0; i < p->n; i++) all += p->records[i].n_probes;
    if (!all) return;
    chart c = {.p = p,
               .rows = cli_room(all, sizeof *c.rows),
               .record = cli_room(all, sizeof *c.record),
               .bars = cli_room(all, sizeof *c.bars),
               .models = cli_room(all, sizeof *c.models),
               .labels = cli_room(3 * all, sizeof *c.labels)};
    c.groups = c.labels ? c.labels + all : NULL;
    c.about = c.labels ? c.labels + 2 * all : NULL;
    if (c.rows && c.record && c.bars && c.models && c.labels) {
        find_models(&c);
        write_charts(&c);
    }
    free((void *)c.rows);
    free((void *)c.models);
    free(c.record);
    free(c.bars);
    free(c.labels);
}
