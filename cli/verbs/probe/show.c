/* Rows and progress of probes, as text and as JSON. */
#include "show.h"
#include "io/memory.h"
#include "options/term.h"
#include "verbs/train/progress.h"
#include "options/units.h"
#include "options/value.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- the table ------------------------------------------------------------------------------- */

/* Whether an axis is shown: tasks and models always, others if they have several values. */
static bool is_shown(const cli_sweep *s, int axis)
{
    const cli_axis *a = &s->axis[axis];
    return a < s->axis + 2 || a->count > 1;
}

static int width_of(const cli_axis *a)
{
    size_t n = strlen(a->name);
    for (int64_t i = 0; i < a->count; i++)
        if (strlen(a->value[i]) > n) n = strlen(a->value[i]);
    return (int)n;
}

typedef struct column {
    const char *name;
    int         width, rank; /* on a narrow terminal the highest rank goes first */
} column;

static const column columns[] = {{"accuracy", 8, 0},    {"chance", 7, 2},      {"loss", 8, 4},
                                 {"steps", 8, 1},       {"seconds", 8, 3},     {"tokens/s", 8, 6},
                                 {"parameters", 10, 7}, {"state bytes", 11, 5}};

enum { COLUMNS = sizeof columns / sizeof *columns };

/* The highest rank of columns that there is room for. */
static int most_rank(const cli_sweep *s, FILE *out)
{
    size_t width = 0;
    int    rank = COLUMNS;
    if (!isatty(fileno(out))) return rank;
    for (int i = 0; i < s->n; i++) width += is_shown(s, i) ? (size_t)width_of(&s->axis[i]) + 2 : 0;
    for (int i = 0; i < COLUMNS; i++) width += (size_t)columns[i].width + (i ? 2 : 0);
    for (; rank > 0 && width > cli_width(out); rank--)
        for (int i = 0; i < COLUMNS; i++)
            if (columns[i].rank == rank - 1) width -= (size_t)columns[i].width + 2;
    return rank - 1;
}

/* Writes the measurements, a text for each column. */
static void write_columns(const cli_sweep *s, const char *const text[COLUMNS], FILE *out)
{
    const int rank = most_rank(s, out);
    for (int i = 0; i < COLUMNS; i++)
        if (columns[i].rank <= rank)
            fprintf(out, "%s%*s", i ? "  " : "", columns[i].width, text[i]);
    fputc('\n', out);
    fflush(out);
}

void cli_probe_head(const cli_sweep *s, FILE *out)
{
    const char *names[COLUMNS];
    char        name[CLI_CLEAN];
    for (int i = 0; i < COLUMNS; i++) names[i] = columns[i].name;
    for (int i = 0; i < s->n; i++)
        if (is_shown(s, i))
            fprintf(out, "%-*s  ", width_of(&s->axis[i]), cli_clean(s->axis[i].name, name));
    write_columns(s, names, out);
}

static double tokens_per_second(const dra_probe_result *x)
{
    return x->seconds > 0 ? (double)x->tokens / x->seconds : 0;
}

void cli_probe_row(const cli_sweep *s, int64_t run, const cli_probe_run *r,
                   const dra_probe_result *x, FILE *out)
{
    char        room[COLUMNS][32], value[CLI_CLEAN];
    const char *text[COLUMNS];
    for (int i = 0; i < s->n; i++)
        if (is_shown(s, i))
            fprintf(out, "%-*s  ", width_of(&s->axis[i]),
                    cli_clean(cli_sweep_value(s, i, run), value));
    snprintf(room[0], sizeof room[0], "%.2f %%", 100 * x->accuracy);
    snprintf(room[1], sizeof room[1], "%.2f %%", 100 * dra_probe_chance(&r->probe));
    snprintf(room[2], sizeof room[2], "%.4f", x->test_loss);
    snprintf(room[3], sizeof room[3], "%lld", (long long)x->step);
    snprintf(room[4], sizeof room[4], "%.1f", x->seconds);
    snprintf(room[5], sizeof room[5], "%.0f", tokens_per_second(x));
    snprintf(room[6], sizeof room[6], "%lld", (long long)r->parameters);
    snprintf(room[7], sizeof room[7], "%zu", x->state_bytes);
    for (int i = 0; i < COLUMNS; i++) text[i] = room[i];
    write_columns(s, text, out);
    for (int i = 0; i < x->lengths; i++)
        fprintf(out, "  length %lld: %.2f %%, loss %.4f\n", (long long)x->test[i].length,
                100 * x->test[i].accuracy, x->test[i].loss);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Writes numbers as they are, other values as text. */
static void write_value(const char *value, FILE *out)
{
    char   room[CLI_NUMBER];
    double x;
    if (cli_read_real(value, &x))
        fputs(cli_json_number(x, 9, room), out);
    else
        cli_json_text(value, out);
}

/* Keys of the config get the prefix "set.", because probes have a depth and a vocab as well. */
static void write_settings(const cli_sweep *s, int64_t run, FILE *out)
{
    char name[160];
    for (int i = 0; i < s->n; i++) {
        const bool half_life = strcmp(s->axis[i].name, "half-life") == 0;
        if (!s->axis[i].key && !half_life) continue;
        snprintf(name, sizeof name, "%s%s", half_life ? "" : "set.",
                 half_life ? "half_life" : s->axis[i].name);
        fputs(", ", out);
        cli_json_text(name, out);
        fputs(": ", out);
        write_value(cli_sweep_value(s, i, run), out);
    }
}

static void write_real(const char *name, double x, FILE *out)
{
    char room[CLI_NUMBER];
    fprintf(out, ", \"%s\": %s", name, cli_json_number(x, 6, room));
}

static void write_options(const dra_probe *p, FILE *out)
{
    const struct {
        const char *name;
        int64_t     x;
    } numbers[] = {{"length", p->length}, {"vocab", p->vocab},     {"symbols", p->symbols},
                   {"pairs", p->pairs},   {"queries", p->queries}, {"digits", p->digits},
                   {"kinds", p->kinds}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].x) fprintf(out, ", \"%s\": %lld", numbers[i].name, (long long)numbers[i].x);
    if (strcmp(p->task, "needle") == 0) write_real("depth", p->depth, out);
}

/* "by_age": [{"age": 4, "accuracy": 0.5, "targets": 12}, ...]: those that were asked for. Ages are
 * powers of two, depths tenths. */
static void write_counts(const char *list, const char *name, const dra_probe_counts *c, int n,
                         double (*value)(int i), FILE *out)
{
    const char *between = "";
    char        room[2][CLI_NUMBER];
    fprintf(out, ", \"%s\": [", list);
    for (int i = 0; i < n; i++) {
        if (!c[i].asked) continue;
        fprintf(out, "%s{\"%s\": %s, \"accuracy\": %s, \"targets\": %lld}", between, name,
                cli_json_number(value(i), 6, room[0]),
                cli_json_number((double)c[i].right / (double)c[i].asked, 6, room[1]),
                (long long)c[i].asked);
        between = ", ";
    }
    fputc(']', out);
}

static double place_value(int i) { return i + 1; }
static double age_value(int i) { return ldexp(1, i); }
static double depth_value(int i) { return (double)i / DRA_PROBE_DEPTHS; }

static void write_parts(const dra_probe_parts *p, FILE *out)
{
    write_counts("by_answer", "answer", p->place, DRA_PROBE_PLACES, place_value, out);
    write_counts("by_age", "age", p->age, DRA_PROBE_AGES, age_value, out);
    write_counts("by_depth", "depth", p->depth, DRA_PROBE_DEPTHS, depth_value, out);
}

/* What rows of another length came to, as a line of its own. */
static void write_test(const cli_sweep *s, int64_t run, const cli_probe_run *r,
                       const dra_probe_test *t, FILE *out)
{
    dra_probe p = r->probe;
    p.length = t->length;
    fputs("{\"probe\": ", out);
    cli_json_text(p.task, out);
    fputs(", \"model\": ", out);
    cli_json_text(cli_sweep_value(s, 1, run), out);
    write_settings(s, run, out);
    write_options(&p, out);
    fprintf(out, ", \"trained_length\": %lld", (long long)r->probe.length);
    write_real("lr", r->train.lr, out);
    fprintf(out, ", \"seed\": %lld", (long long)r->train.seed);
    write_real("accuracy", t->accuracy, out);
    write_real("chance", t->chance, out);
    fprintf(out, ", \"answers\": %lld, \"tests\": %lld", (long long)t->answers,
            (long long)t->tests);
    write_real("test_loss", t->loss, out);
    write_parts(&t->parts, out);
    fputs("}\n", out);
}

void cli_probe_json(const cli_sweep *s, int64_t run, const cli_probe_run *r,
                    const dra_probe_result *x, FILE *out)
{
    fputs("{\"probe\": ", out);
    cli_json_text(r->probe.task, out);
    fputs(", \"model\": ", out);
    cli_json_text(cli_sweep_value(s, 1, run), out);
    write_settings(s, run, out);
    write_options(&r->probe, out);
    fprintf(out, ", \"batch\": %lld", (long long)r->train.batch);
    write_real("lr", r->train.lr, out);
    fprintf(out, ", \"seed\": %lld, \"steps\": %lld", (long long)r->train.seed, (long long)x->step);
    write_real("accuracy", x->accuracy, out);
    write_real("chance", dra_probe_chance(&r->probe), out);
    fprintf(out, ", \"answers\": %lld, \"tests\": %lld, \"reached\": %s", (long long)x->answers,
            (long long)x->tests, x->reached ? "true" : "false");
    write_real("test_loss", x->test_loss, out);
    write_real("loss", x->loss, out);
    if (!isfinite(x->test_loss)) fputs(", \"not_finite\": 1", out);
    fprintf(out, ", \"seconds\": %.3f, \"tokens\": %lld", x->seconds, (long long)x->tokens);
    write_real("tokens_per_second", tokens_per_second(x), out);
    fprintf(out, ", \"parameters\": %lld, \"state_bytes\": %zu, \"peak_bytes\": %lld",
            (long long)r->parameters, x->state_bytes, (long long)cli_peak_bytes());
    write_parts(&x->parts, out);
    fputs("}\n", out);
    for (int i = 0; i < x->lengths; i++) write_test(s, run, r, &x->test[i], out);
    fflush(out);
}

/* ---- progress -------------------------------------------------------------------------------- */

void cli_progress_start(cli_progress *p, int64_t run)
{
    p->run = run;
    p->began = cli_now();
    cli_status_restart(&p->status);
}

void cli_progress_end(cli_progress *p)
{
    cli_status_clear(&p->status);
    p->before += cli_now() - p->began;
}

/* Estimates the time left: each run takes as long as those that are done, or, before that, as this
 * one. */
static void add_left(cli_progress *p)
{
    const double left = cli_status_seconds_left(&p->status), took = cli_now() - p->began;
    const double others = p->run ? p->before / (double)p->run : took + left;
    char         text[24];
    cli_status_left(&p->status, 1);
    if (p->runs > 1 && left >= 0)
        cli_status_field(&p->status, 2, "%s left of all runs",
                         cli_time_text(left + others * (double)(p->runs - p->run - 1), text));
}

/* Adds the values of this run, the most important ones first. */
static void add_values(cli_progress *p)
{
    for (int i = 0; i < p->sweep->n; i++)
        if (is_shown(p->sweep, i))
            cli_status_field(&p->status, i < 2 ? 3 : 5, "%s", cli_sweep_value(p->sweep, i, p->run));
}

bool cli_progress_step(void *progress, const dra_probe_result *r)
{
    cli_progress *p = progress;
    cli_status   *s = &p->status;
    const bool    due = cli_status_at(s, (double)r->step / (double)r->steps);
    const bool    over = p->minutes > 0 && cli_now() - p->began >= 60 * p->minutes;
    if (!(s->terminal ? due : r->tested)) return !cli_progress_stopped() && !over;
    if (p->runs > 1)
        cli_status_field(s, 0, "run %lld/%lld", (long long)p->run + 1, (long long)p->runs);
    add_values(p);
    cli_status_field(s, 0, "step %lld/%lld", (long long)r->step, (long long)r->steps);
    cli_status_field(s, 4, "loss %.4f", r->loss);
    if (r->tests) cli_status_field(s, 2, "accuracy %.2f %%", 100 * r->accuracy);
    add_left(p);
    cli_status_show(s);
    return !cli_progress_stopped() && !over;
}
