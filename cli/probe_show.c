/* What probes show. */
#include "probe_show.h"
#include "term.h"
#include "train_progress.h"
#include "units.h"
#include "value.h"

#include <string.h>

/* ---- the table ------------------------------------------------------------------------------- */

/* Tasks and models are always shown; others only where they differ. */
static bool shown(const cli_sweep *s, int axis)
{
    const cli_axis *a = &s->axis[axis];
    return a < s->axis + 2 || a->count > 1;
}

static int width(const cli_axis *a)
{
    size_t n = strlen(a->name);
    for (int64_t i = 0; i < a->count; i++)
        if (strlen(a->value[i]) > n) n = strlen(a->value[i]);
    return (int)n;
}

void cli_probe_head(const cli_sweep *s, FILE *out)
{
    for (int i = 0; i < s->n; i++)
        if (shown(s, i)) fprintf(out, "%-*s  ", width(&s->axis[i]), s->axis[i].name);
    fprintf(out, "%8s  %8s  %8s  %8s  %8s  %10s  %11s\n", "accuracy", "loss", "steps", "seconds",
            "tokens/s", "parameters", "state bytes");
    fflush(out);
}

static double speed(const dra_probe_result *x)
{
    return x->seconds > 0 ? (double)x->tokens / x->seconds : 0;
}

void cli_probe_row(const cli_sweep *s, int64_t run, const cli_probe_run *r,
                   const dra_probe_result *x, FILE *out)
{
    for (int i = 0; i < s->n; i++)
        if (shown(s, i)) fprintf(out, "%-*s  ", width(&s->axis[i]), cli_sweep_value(s, i, run));
    fprintf(out, "%6.2f %%  %8.4f  %8lld  %8.1f  %8.0f  %10lld  %11zu\n", 100 * x->accuracy,
            x->test_loss, (long long)x->step, x->seconds, speed(x), (long long)r->parameters,
            x->state_bytes);
    fflush(out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Numbers as they are, the rest as text. */
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
    fprintf(out, ", \"answers\": %lld, \"tests\": %lld, \"reached\": %s", (long long)x->answers,
            (long long)x->tests, x->reached ? "true" : "false");
    write_real("test_loss", x->test_loss, out);
    write_real("loss", x->loss, out);
    fprintf(out, ", \"seconds\": %.3f, \"tokens\": %lld", x->seconds, (long long)x->tokens);
    write_real("tokens_per_second", speed(x), out);
    fprintf(out, ", \"parameters\": %lld, \"state_bytes\": %zu}\n", (long long)r->parameters,
            x->state_bytes);
    fflush(out);
}

/* ---- progress -------------------------------------------------------------------------------- */

void cli_progress_start(cli_progress *p, int64_t run)
{
    p->run = run;
    p->began = cli_now();
}

void cli_progress_end(cli_progress *p)
{
    if (p->terminal) fputs("\r\033[K", p->out);
    p->before += cli_now() - p->began;
}

/* Runs that are to come take as long as those that are done, or if none is, as this one. */
static void write_left(const cli_progress *p, const dra_probe_result *r)
{
    const double took = cli_now() - p->began, whole = took / (double)r->step * (double)r->steps;
    const double others = p->run ? p->before / (double)p->run : whole;
    char         text[24];
    fprintf(p->out, "  %s left", cli_time_text(whole - took, text));
    if (p->runs > 1)
        fprintf(p->out, ", %s in all",
                cli_time_text(whole - took + others * (double)(p->runs - p->run - 1), text));
}

bool cli_progress_step(void *progress, const dra_probe_result *r)
{
    const cli_progress *p = progress;
    if (!p->terminal && !r->tested) return !cli_progress_stopped();
    fprintf(p->out, "%s%lld/%lld ", p->terminal ? "\r" : "", (long long)p->run + 1,
            (long long)p->runs);
    for (int i = 0; i < p->sweep->n; i++)
        if (shown(p->sweep, i)) fprintf(p->out, " %s", cli_sweep_value(p->sweep, i, p->run));
    fprintf(p->out, "  step %lld/%lld  loss %.4f", (long long)r->step, (long long)r->steps,
            r->loss);
    if (r->tests) fprintf(p->out, "  accuracy %.2f %%", 100 * r->accuracy);
    write_left(p, r);
    fputs(p->terminal ? "\033[K" : "\n", p->out);
    fflush(p->out);
    return !cli_progress_stopped();
}
