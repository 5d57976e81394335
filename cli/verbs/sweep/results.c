/* The results of a sweep's runs. */
#include "results.h"
#include "options/term.h"
#include "report/jsonl.h"
#include "io/memory.h"
#include "options/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- logs ------------------------------------------------------------------------------------ */

static void read_line(cli_sweep_run *r, char *line)
{
    cli_member m[CLI_MEMBERS];
    const int  n = cli_line_read(line, m);
    for (int i = 0; i < n; i++) {
        const double x = m[i].number;
        if (m[i].kind != CLI_MEMBER_NUMBER) continue;
        if (strcmp(m[i].key, "step") == 0) r->step = (int64_t)x;
        if (strcmp(m[i].key, "loss") == 0) r->loss = x;
        if (strcmp(m[i].key, "seconds") == 0) r->seconds = x;
        if (strcmp(m[i].key, "eval_loss") == 0 && !(x >= r->eval_loss)) r->eval_loss = x;
    }
}

void cli_sweep_run_read(cli_sweep_run *r)
{
    enum { LOG_MOST = 1 << 30 };
    char   path[CLI_SWEEP_PATH], *text = NULL;
    size_t bytes = 0;
    r->step = 0;
    r->loss = r->eval_loss = r->seconds = NAN;
    if (!cli_path(r->folder, "log.jsonl", path, sizeof path)) return;
    cli_memory_note(dra_file_read(path, LOG_MOST, &text, &bytes, NULL));
    if (!text) return;
    for (char *at = text, *end = text + bytes; at < end;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end; /* there is a 0 */
        *stop = '\0';
        read_line(r, at);
        at = stop + 1;
    }
    free(text);
}

/* ---- means over seeds ------------------------------------------------------------------------ */

typedef struct group { /* runs that differ in their seed only */
    int64_t first, n;  /* runs, and those of them that count */
    double  mean, spread, lowest;
    int64_t best; /* the run with the lowest */
} group;

static int64_t seeds_of(const cli_sweep_results *s)
{
    return s->seeds < 0 ? 1 : s->sweep->axis[s->seeds].count;
}

/* Whether runs are compared by losses of evaluation; otherwise by those of training. */
static bool are_evaluated(const cli_sweep_results *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (isfinite(s->runs[i].eval_loss)) return true;
    return false;
}

static double run_loss(const cli_sweep_run *r, bool evaluated)
{
    if (r->failed) return NAN;
    return evaluated ? r->eval_loss : r->loss;
}

/* The spread is the sample standard deviation; NaN for one run. */
static group summarise_group(const cli_sweep_results *s, int64_t first, bool evaluated)
{
    group  g = {.first = first, .mean = NAN, .spread = NAN, .lowest = NAN, .best = -1};
    double sum = 0, squares = 0;
    for (int64_t i = first; i < first + seeds_of(s); i++) {
        const double x = run_loss(&s->runs[i], evaluated);
        if (!isfinite(x)) continue;
        g.n++;
        sum += x;
        if (!(x >= g.lowest)) g.lowest = x, g.best = i;
    }
    if (g.n > 0) g.mean = sum / (double)g.n;
    for (int64_t i = first; i < first + seeds_of(s); i++) {
        const double x = run_loss(&s->runs[i], evaluated);
        if (isfinite(x)) squares += (x - g.mean) * (x - g.mean);
    }
    if (g.n > 1) g.spread = sqrt(squares / (double)(g.n - 1));
    return g;
}

/* The lowest mean first, groups without one last. */
static int compare_groups(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (isfinite(x->mean) && isfinite(y->mean) && x->mean != y->mean)
        return x->mean < y->mean ? -1 : 1;
    if (isfinite(x->mean) != isfinite(y->mean)) return isfinite(x->mean) ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static group *summarise_all(const cli_sweep_results *s, int64_t *n)
{
    *n = s->n / seeds_of(s);
    group *all = cli_room((size_t)*n + 1, sizeof *all);
    if (!all) return NULL;
    for (int64_t i = 0; i < *n; i++) all[i] = summarise_group(s, i * seeds_of(s), are_evaluated(s));
    qsort(all, (size_t)*n, sizeof *all, compare_groups);
    return all;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Whether an axis is shown: it has several values and is not the seeds, over which means are
 * taken. */
static bool is_shown(const cli_sweep_results *s, int axis)
{
    return axis != s->seeds && s->sweep->axis[axis].count > 1;
}

static int axis_width(const cli_axis *a)
{
    size_t n = strlen(a->name);
    for (int64_t i = 0; i < a->count; i++)
        if (strlen(a->value[i]) > n) n = strlen(a->value[i]);
    return (int)n;
}

static void write_number(double x, FILE *out)
{
    if (isfinite(x))
        fprintf(out, "%10.4f  ", x);
    else
        fprintf(out, "%10s  ", "-");
}

static void write_row(const cli_sweep_results *s, const group *g, FILE *out)
{
    char room[CLI_CLEAN];
    for (int i = 0; i < s->sweep->n; i++)
        if (is_shown(s, i))
            fprintf(out, "%-*s  ", axis_width(&s->sweep->axis[i]),
                    cli_clean(cli_sweep_value(s->sweep, i, g->first), room));
    write_number(g->mean, out);
    if (s->seeds >= 0) {
        write_number(g->spread, out);
        write_number(g->lowest, out);
        fprintf(out, "%4lld  ", (long long)g->n);
    }
    cli_line(out, "%s", g->best < 0 ? "failed" : s->runs[g->best].name);
}

void cli_sweep_table(const cli_sweep_results *s, FILE *out)
{
    char    room[CLI_CLEAN];
    int64_t n;
    group  *all = summarise_all(s, &n);
    for (int i = 0; i < s->sweep->n; i++)
        if (is_shown(s, i))
            fprintf(out, "%-*s  ", axis_width(&s->sweep->axis[i]),
                    cli_clean(s->sweep->axis[i].name, room));
    fprintf(out, "%10s  ", are_evaluated(s) ? "evaluation" : "loss");
    if (s->seeds >= 0) fprintf(out, "%10s  %10s  %4s  ", "spread", "lowest", "runs");
    fprintf(out, "%s\n", s->seeds >= 0 ? "best run" : "run");
    for (int64_t i = 0; all && i < n; i++) write_row(s, &all[i], out);
    fflush(out);
    free(all);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_member(const char *name, double x, FILE *out)
{
    char room[CLI_NUMBER];
    fprintf(out, ", \"%s\": %s", name, cli_json_number(x, 9, room));
}

/* Writes numbers as they are, other values as text. */
static void write_settings(const cli_sweep_results *s, int64_t run, bool seed, FILE *out)
{
    const char *between = "";
    char        room[CLI_NUMBER];
    double      x;
    fputs("\"settings\": {", out);
    for (int i = 0; i < s->sweep->n; i++) {
        const char *value = cli_sweep_value(s->sweep, i, run);
        if (i == s->seeds && !seed) continue;
        fputs(between, out);
        cli_json_text(s->sweep->axis[i].name, out);
        fputs(": ", out);
        if (cli_read_real(value, &x))
            fputs(cli_json_shortest(x, room), out);
        else
            cli_json_text(value, out);
        between = ", ";
    }
    fputc('}', out);
}

static void write_run(const cli_sweep_results *s, int64_t i, FILE *out)
{
    const cli_sweep_run *r = &s->runs[i];
    fputs("    {\"name\": ", out);
    cli_json_text(r->name, out);
    fputs(", ", out);
    write_settings(s, i, true, out);
    fprintf(out, ", \"failed\": %s, \"steps\": %lld", r->failed ? "true" : "false",
            (long long)r->step);
    write_member("loss", r->loss, out);
    write_member("eval_loss", r->eval_loss, out);
    write_member("seconds", r->seconds, out);
    if (r->step > 0 && !isfinite(r->loss)) fputs(", \"not_finite\": 1", out);
    fprintf(out, "}%s\n", i + 1 < s->n ? "," : "");
}

static void write_json(const cli_sweep_results *s, const group *all, int64_t n, FILE *out)
{
    fprintf(out, "{\n  \"measure\": \"%s\",\n  \"table\": [\n",
            are_evaluated(s) ? "eval_loss" : "loss");
    for (int64_t i = 0; i < n; i++) {
        fputs("    {", out);
        write_settings(s, all[i].first, false, out);
        write_member("mean", all[i].mean, out);
        write_member("spread", all[i].spread, out);
        write_member("lowest", all[i].lowest, out);
        fprintf(out, ", \"runs\": %lld}%s\n", (long long)all[i].n, i + 1 < n ? "," : "");
    }
    fputs("  ],\n  \"runs\": [\n", out);
    for (int64_t i = 0; i < s->n; i++) write_run(s, i, out);
    fputs("  ]\n}\n", out);
}

bool cli_sweep_print_json(const cli_sweep_results *s, FILE *out)
{
    int64_t n;
    group  *all = summarise_all(s, &n);
    if (all) write_json(s, all, n, out);
    free(all);
    return all != NULL;
}

dra_status cli_sweep_json(const cli_sweep_results *s, const char *path, dra_error *err)
{
    char      *text = NULL;
    size_t     bytes = 0;
    int64_t    n;
    dra_status st = cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    group     *all = summarise_all(s, &n);
    FILE      *out = all ? dra_stream_memory(&text, &bytes) : NULL;
    if (out) {
        write_json(s, all, n, out);
        const bool whole = !ferror(out);
        if (fclose(out) == 0 && whole) st = dra_file_write(path, text, bytes, err);
    }
    free(text);
    free(all);
    return st;
}
