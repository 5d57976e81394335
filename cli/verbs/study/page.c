/* The page of a study: verdicts, a table for each block, and figures with their data. */
#include "study.h"
#include "report/page.h"
#include "io/memory.h"
#include "options/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 120, LINES_MOST = 64, POINTS = 256 };

typedef struct page { /* what all parts of it need */
    FILE                  *out;
    const cli_study       *s;
    const cli_study_lines *l;
    size_t                 block;
} page;

static const cli_study_block *block_of(const page *p) { return &p->s->blocks[p->block]; }

/* ---- tables ---------------------------------------------------------------------------------- */

static void write_number(FILE *out, const char *label, const char *format, double x)
{
    fprintf(out, "<td data-label=\"%s\">", label);
    if (isfinite(x))
        fprintf(out, format, x);
    else
        fputs("-", out);
    fputs("</td>", out);
}

static void write_verdict(const page *p, const json_t *claim)
{
    cli_study_verdict v;
    const char       *text = json_string_value(json_object_get(claim, "text"));
    cli_study_judge(p->s, p->l, claim, &v);
    fprintf(p->out, "<tr><td class=\"name\">%lld. ",
            (long long)json_integer_value(json_object_get(claim, "claim")));
    svg_text(p->out, text ? text : "");
    fputs("</td><td data-label=\"compared\">", p->out);
    svg_text(p->out, v.of_name[0] ? v.of_name : "-");
    fprintf(p->out, " %s ", json_string_value(json_object_get(claim, "rule")));
    svg_text(p->out, v.against_name[0] ? v.against_name : "-");
    fputs("</td>", p->out);
    write_number(p->out, "of", "%.4g", v.of);
    write_number(p->out, "against", "%.4g", v.against);
    write_number(p->out, "pooled spread", "%.2g", v.spread);
    write_number(p->out, "margin", "%.3g", json_number_value(json_object_get(claim, "margin")));
    fprintf(p->out, "<td data-label=\"verdict\"><b>%s</b></td></tr>\n", v.word);
}

static void write_verdicts(const page *p)
{
    size_t  i;
    json_t *claim;
    if (!json_array_size(p->s->claims)) return;
    page_section(p->out, "Verdicts");
    fputs("<div class=\"scroll\"><table class=\"runs\"><tr><th>claim</th><th>compared</th>"
          "<th>of</th><th>against</th><th>pooled spread</th><th>margin</th><th>verdict</th></tr>\n",
          p->out);
    json_array_foreach(p->s->claims, i, claim) write_verdict(p, claim);
    fputs(
        "</table></div>\n<p class=\"soft\">above: better by more than the margin and twice the "
        "spread over seeds; at least: not worse by more than the margin. Anything else is open.</p>\n"
        "</section>\n",
        p->out);
}

/* The number of a group's results, of the run with the first seed at the best rate; NaN. */
static double result_of(const page *p, const cli_study_group *g, const char *name);

static void write_window(const page *p, const cli_study_group *g)
{
    const cli_study_block *b = block_of(p);
    fputs("<td data-label=\"best\">", p->out);
    svg_text(p->out, b->tune >= 0 ? b->over.axis[b->tune].value[g->best] : "-");
    fputs("</td><td data-label=\"window\">", p->out);
    if (isfinite(g->low) && g->high > g->low)
        fprintf(p->out, "%g to %g", g->low, g->high);
    else
        fputs("-", p->out);
    fputs("</td>", p->out);
}

static void write_group(const page *p, const cli_study_group *g, size_t i)
{
    char name[NAME], text[32];
    cli_study_group_name(block_of(p), g, name, sizeof name);
    fputs("<tr><td class=\"name\">", p->out);
    page_key(p->out, i);
    svg_text(p->out, name);
    fprintf(p->out, "</td><td data-label=\"seeds\">%lld of %lld</td>", (long long)g->n,
            (long long)g->wanted);
    write_number(p->out, "mean", "%.4g", g->mean);
    write_number(p->out, "spread", "%.2g", g->spread);
    write_number(p->out, "&plusmn; 95 %", "%.2g", g->half);
    write_window(p, g);
    fprintf(p->out, "<td data-label=\"parameters\">%s</td>",
            svg_number(result_of(p, g, "parameters"), text));
    fprintf(p->out, "<td data-label=\"state bytes\">%s</td></tr>\n",
            svg_number(result_of(p, g, "state_bytes"), text));
}

static void write_table(const page *p, size_t n, const cli_study_group *groups)
{
    fputs("<div class=\"scroll\"><table class=\"runs\"><tr><th>model</th><th>seeds</th><th>",
          p->out);
    svg_text(p->out, block_of(p)->score);
    fputs(
        "</th><th>spread</th><th>&plusmn; 95 %</th><th>best</th><th>window</th><th>parameters</th>"
        "<th>state bytes</th></tr>\n",
        p->out);
    for (size_t i = 0; i < n; i++) write_group(p, &groups[i], i);
    fputs("</table></div>\n", p->out);
}

/* ---- figures --------------------------------------------------------------------------------- */

typedef struct curve { /* of one name: points with their spread */
    char   name[NAME];
    size_t colour, n;
    double x[POINTS], y[POINTS], low[POINTS], high[POINTS];
} curve;

static void write_data(FILE *out, const svg_chart *c, size_t n, const curve *curves)
{
    fputs("<details><summary>data</summary><div class=\"wide\"><table><tr><th>of</th><th>", out);
    svg_text(out, c->x_name);
    fputs("</th><th>", out);
    svg_text(out, c->y_name);
    fputs("</th><th>from</th><th>to</th></tr>\n", out);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < curves[i].n; k++) {
            fputs("<tr><td>", out);
            svg_text(out, curves[i].name);
            fprintf(out, "</td><td>%.6g</td><td>%.6g</td>", curves[i].x[k], curves[i].y[k]);
            write_number(out, "from", "%.6g", curves[i].low[k]);
            write_number(out, "to", "%.6g", curves[i].high[k]);
            fputs("</tr>\n", out);
        }
    fputs("</table></div></details>\n", out);
}

static void write_legend(FILE *out, size_t n, const curve *curves)
{
    fputs("<p class=\"soft\">", out);
    for (size_t i = 0; i < n; i++) {
        page_key(out, curves[i].colour);
        svg_text(out, curves[i].name);
        fputs(" &ensp; ", out);
    }
    fputs("</p>\n", out);
}

/* A line with dots for each curve, and faint ones at the ends of its intervals. */
static void write_figure(const page *p, svg_chart c, size_t n, const curve *curves, bool joined)
{
    svg_line lines[4 * LINES_MOST];
    size_t   used = 0;
    bool     bands = false;
    for (size_t i = 0; i < n && i < LINES_MOST; i++) {
        const curve *v = &curves[i];
        svg_line     line = {.name = v->name, .n = v->n, .x = v->x, .y = v->y, .colour = v->colour};
        for (size_t k = 0; k < v->n; k++) bands = bands || isfinite(v->low[k]);
        if (joined) lines[used++] = line;
        line.dots = true;
        lines[used++] = line;
        line.dots = false;
        line.faint = true;
        line.y = v->low;
        if (joined) lines[used++] = line;
        line.y = v->high;
        if (joined) lines[used++] = line;
    }
    c.n = used;
    c.lines = lines;
    if (!used) return;
    if (bands && joined) c.note = "faint: 95 % intervals over seeds";
    fputs("<div class=\"card\">", p->out);
    svg_lines(p->out, &c);
    write_legend(p->out, n, curves);
    write_data(p->out, &c, n, curves);
    fputs("</div>\n", p->out);
}

static curve *find_curve(curve *all, size_t *n, const char *name, size_t colour)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(all[i].name, name) == 0) return &all[i];
    if (*n == LINES_MOST) return NULL;
    all[*n] = (curve){.colour = colour};
    snprintf(all[*n].name, NAME, "%s", name);
    return &all[(*n)++];
}

static void add_point(curve *c, double x, double y, double half)
{
    if (!c || c->n == POINTS || !isfinite(x) || !isfinite(y)) return;
    size_t at = c->n++;
    for (; at > 0 && c->x[at - 1] > x; at--) { /* by x */
        c->x[at] = c->x[at - 1];
        c->y[at] = c->y[at - 1];
        c->low[at] = c->low[at - 1];
        c->high[at] = c->high[at - 1];
    }
    c->x[at] = x;
    c->y[at] = y;
    c->low[at] = y - half;
    c->high[at] = y + half;
}

/* ---- results of runs ------------------------------------------------------------------------- */

/* The line of the run with the first seed at the best rate; NULL: there is none. */
static const json_t *line_of(const page *p, const cli_study_group *g)
{
    const cli_study_block *b = block_of(p);
    cli_study_run          r;
    cli_study_line         line;
    for (int64_t k = 0; k < cli_sweep_runs(&b->over); k++) {
        char            own[NAME], name[NAME];
        cli_study_group other = {.first = k};
        cli_study_group_name(b, &other, own, sizeof own);
        cli_study_group_name(b, g, name, sizeof name);
        const bool seed = b->seed < 0 || strcmp(cli_sweep_value(&b->over, b->seed, k),
                                                b->over.axis[b->seed].value[0]) == 0;
        const bool rate = b->tune < 0 || strcmp(cli_sweep_value(&b->over, b->tune, k),
                                                b->over.axis[b->tune].value[g->best]) == 0;
        if (seed && rate && strcmp(own, name) == 0 && cli_study_run_at(p->s, p->block, k, &r) &&
            cli_study_line_of(p->l, &r, &line))
            return line.json;
    }
    return NULL;
}

static double number_at(const json_t *x, const char *name)
{
    const json_t *found = json_object_get(x, name);
    return json_is_number(found) ? json_number_value(found) : NAN;
}

static double result_of(const page *p, const cli_study_group *g, const char *name)
{
    const json_t *results = json_object_get(line_of(p, g), "results");
    size_t        i;
    json_t       *x;
    json_array_foreach(results, i, x) if (isfinite(number_at(x, name))) return number_at(x, name);
    return number_at(line_of(p, g), name);
}

/* ---- what is drawn --------------------------------------------------------------------------- */

/* The axis with the most numbers that is neither seed nor tuned; -1: none has two. */
static int find_axis(const cli_study_block *b)
{
    int    found = -1;
    double x;
    for (int i = 0; i < b->over.n; i++) {
        bool numbers = i != b->seed && i != b->tune && i != b->model && b->over.axis[i].count > 1;
        for (int64_t k = 0; numbers && k < b->over.axis[i].count; k++)
            numbers = cli_read_real(b->over.axis[i].value[k], &x);
        if (numbers && (found < 0 || b->over.axis[i].count > b->over.axis[found].count)) found = i;
    }
    return found;
}

/* A group's name without one of its axes. */
static void name_without(const cli_study_block *b, const cli_study_group *g, int axis, char *text)
{
    size_t used = 0;
    snprintf(text, NAME, "all");
    for (int i = 0; i < b->over.n && used < NAME; i++)
        if (i != axis && i != b->seed && i != b->tune &&
            (b->over.axis[i].count > 1 || i == b->model))
            used += (size_t)snprintf(text + used, NAME - used, "%s%s%s%s", used ? ", " : "",
                                     i == b->model ? "" : b->over.axis[i].name,
                                     i == b->model ? "" : "=",
                                     cli_sweep_value(&b->over, i, g->first));
}

static void draw_axis(const page *p, size_t n, const cli_study_group *groups, curve *room)
{
    const cli_study_block *b = block_of(p);
    const int              axis = find_axis(b);
    size_t                 used = 0;
    double                 x;
    char                   name[NAME];
    if (axis < 0) return;
    for (size_t i = 0; i < n; i++) {
        name_without(b, &groups[i], axis, name);
        if (cli_read_real(cli_sweep_value(&b->over, axis, groups[i].first), &x))
            add_point(find_curve(room, &used, name, used), x, groups[i].mean, groups[i].half);
    }
    write_figure(p,
                 (svg_chart){.title = "By what is varied",
                             .x_name = b->over.axis[axis].name,
                             .y_name = b->score,
                             .x_log = true},
                 used, room, true);
}

static void draw_rates(const page *p, size_t n, const cli_study_group *groups, curve *room)
{
    const cli_study_block *b = block_of(p);
    size_t                 used = 0;
    double                 x;
    cli_study_run          r;
    cli_study_line         line;
    char                   own[NAME], name[NAME];
    if (b->tune < 0) return;
    for (size_t i = 0; i < n; i++) {
        cli_study_group_name(b, &groups[i], name, sizeof name);
        for (int64_t k = 0; k < cli_sweep_runs(&b->over); k++) {
            cli_study_group_name(b, &(cli_study_group){.first = k}, own, sizeof own);
            const bool first = b->seed < 0 || strcmp(cli_sweep_value(&b->over, b->seed, k),
                                                     b->over.axis[b->seed].value[0]) == 0;
            if (first && strcmp(own, name) == 0 && cli_study_run_at(p->s, p->block, k, &r) &&
                cli_study_line_of(p->l, &r, &line) &&
                cli_read_real(cli_sweep_value(&b->over, b->tune, k), &x))
                add_point(find_curve(room, &used, name, i), x, line.score, NAN);
        }
    }
    write_figure(p,
                 (svg_chart){.title = "By learning rate, first seed",
                             .x_name = b->over.axis[b->tune].name,
                             .y_name = b->score,
                             .x_log = true},
                 used, room, true);
}

/* Objects of the results that have both numbers: accuracy by length, loss by position. */
static void draw_results(const page *p, size_t n, const cli_study_group *groups, curve *room,
                         const char *x_name, const char *y_name, const char *list,
                         const char *title)
{
    size_t used = 0, most = 0, k, m;
    char   name[NAME];
    for (size_t i = 0; i < n; i++) {
        const json_t *results = json_object_get(line_of(p, &groups[i]), "results");
        json_t       *x, *inner;
        cli_study_group_name(block_of(p), &groups[i], name, sizeof name);
        curve *c = find_curve(room, &used, name, i);
        json_array_foreach(results, k, x)
        {
            if (!list) add_point(c, number_at(x, x_name), number_at(x, y_name), NAN);
            json_array_foreach(list ? json_object_get(x, list) : NULL, m, inner)
                add_point(c, number_at(inner, x_name), number_at(inner, y_name), NAN);
        }
        if (c && c->n > most) most = c->n;
    }
    if (most > 1)
        write_figure(p,
                     (svg_chart){.title = title, .x_name = x_name, .y_name = y_name, .x_log = true},
                     used, room, true);
}

static void draw_pareto(const page *p, size_t n, const cli_study_group *groups, curve *room)
{
    size_t used = 0;
    char   name[NAME];
    for (size_t i = 0; i < n; i++) {
        const double bytes = result_of(p, &groups[i], "state_bytes");
        cli_study_group_name(block_of(p), &groups[i], name, sizeof name);
        if (isfinite(bytes))
            add_point(find_curve(room, &used, name, i), bytes, groups[i].mean, groups[i].half);
    }
    if (used > 1)
        write_figure(p,
                     (svg_chart){.title = "By bytes of state",
                                 .x_name = "state bytes",
                                 .y_name = block_of(p)->score,
                                 .x_log = true},
                     used, room, false);
}

static void draw_bars(const page *p, size_t n, const cli_study_group *groups)
{
    bool     counted = false;
    svg_bar *bars = cli_room(n + 1, sizeof *bars);
    char(*names)[NAME] = cli_room(n + 1, sizeof *names);
    for (size_t i = 0; bars && names && i < n; i++) {
        cli_study_group_name(block_of(p), &groups[i], names[i], NAME);
        bars[i] = (svg_bar){.label = names[i],
                            .group = "",
                            .about = names[i],
                            .value = groups[i].mean,
                            .count = NAN,
                            .lo = fmax(0, groups[i].mean - groups[i].half),
                            .hi = groups[i].mean + groups[i].half,
                            .colour = i};
        if (!isfinite(groups[i].half)) bars[i].lo = bars[i].hi = NAN;
        counted = counted || isfinite(groups[i].half);
    }
    if (bars && names)
        svg_bars(p->out, &(svg_bar_chart){.title = block_of(p)->score,
                                          .note = counted ? "with 95 % intervals over seeds" : NULL,
                                          .n = n,
                                          .bars = bars,
                                          .chance = NAN,
                                          .x_name = block_of(p)->score});
    free(bars);
    free(names);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void write_figures(const page *p, size_t n, const cli_study_group *groups)
{
    curve *room = cli_room(LINES_MOST, sizeof *room);
    fputs("<div class=\"cards\" style=\"margin-top:14px\">\n", p->out);
    draw_bars(p, n, groups);
    if (room) {
        draw_axis(p, n, groups, room);
        draw_results(p, n, groups, room, "length", block_of(p)->score, NULL, "By length");
        draw_results(p, n, groups, room, "age", "accuracy", "by_age", "By age of what is asked");
        draw_results(p, n, groups, room, "position", "loss", "by_position", "Loss by position");
        draw_rates(p, n, groups, room);
        draw_pareto(p, n, groups, room);
    }
    fputs("</div>\n", p->out);
    free(room);
}

/* What the file says of the block. */
static void write_about(const page *p)
{
    json_t *blocks = json_object_get(p->s->root, "blocks"), *x;
    size_t  i;
    json_array_foreach(blocks, i, x)
    {
        const char *name = json_string_value(json_object_get(x, "name"));
        const char *about = json_string_value(json_object_get(x, "about"));
        if (!name || !about || strcmp(name, block_of(p)->name) != 0) continue;
        fputs("<p>", p->out);
        svg_text(p->out, about);
        fputs("</p>\n", p->out);
    }
}

static void write_block(const page *p)
{
    const int64_t    all = cli_study_groups(block_of(p));
    cli_study_group *groups = cli_room((size_t)all + 1, sizeof *groups);
    size_t           n = 0;
    for (int64_t i = 0; groups && i < all; i++) {
        cli_study_group_at(p->s, p->block, p->l, i, &groups[n]);
        if (groups[n].best >= 0 && groups[n].n) n++;
    }
    if (n) {
        page_section(p->out, block_of(p)->name);
        write_about(p);
        write_table(p, n, groups);
        write_figures(p, n, groups);
        fputs("</section>\n", p->out);
    }
    free(groups);
}

static void write_page(page p)
{
    const char *about = json_string_value(json_object_get(p.s->root, "about"));
    char        title[160];
    snprintf(title, sizeof title, "study %s, scale %s", p.s->name, p.s->scale_name);
    page_head(p.out, title);
    fputs("<h1>", p.out);
    svg_text(p.out, title);
    fputs("</h1>\n<p class=\"finding\">", p.out);
    svg_text(p.out, about ? about : "");
    fprintf(p.out,
            "</p>\n<p class=\"soft\">%zu runs are done. Every run has a line in "
            "<a href=\"lines.jsonl\">lines.jsonl</a>.</p>\n",
            json_object_size(p.l->by_name));
    write_verdicts(&p);
    for (p.block = 0; p.block < p.s->n_blocks; p.block++) write_block(&p);
    fprintf(p.out, "<p class=\"soft\">dra %s</p>\n</main></body></html>\n", dra_version());
}

dra_status cli_study_page(const cli_study *s, const cli_study_lines *l, const char *path,
                          dra_error *err)
{
    char      *text = NULL;
    size_t     bytes = 0;
    dra_status st = cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory for the page", path);
    FILE      *out = dra_stream_memory(&text, &bytes);
    if (!out) return st;
    write_page((page){.out = out, .s = s, .l = l});
    const bool whole = !cli_memory_lacked();
    if (fclose(out) == 0 && whole) st = dra_file_write(path, text, bytes, err);
    free(text);
    return st;
}
