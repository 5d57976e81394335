/* What a run shows: a plan before it, a curve and a status line, how long it takes, totals. */
#include "progress.h"
#include "report/plot.h"
#include "options/term.h"
#include "options/units.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t stopping;
static const char *volatile stopping_text; /* what a terminal is told then */

static void on_signal(int number)
{
    const char *text = stopping_text;
    if (stopping) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stopping = number;
    if (text && write(STDERR_FILENO, text, strlen(text)) < 0) stopping_text = NULL;
}

void cli_progress_signals(void)
{
    struct sigaction before, a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGUSR1, &a, NULL); /* what mpirun passes on */
    /* A terminal that is closed; nohup has it ignored. */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
}

void cli_progress_answer(void)
{
    if (isatty(STDERR_FILENO))
        stopping_text = "\r\nstopping after this step; Ctrl-C again ends at once\r\n";
}

bool cli_progress_stopped(void) { return stopping != 0; }

int cli_progress_status(void) { return 128 + (int)stopping; }

/* ---- before ---------------------------------------------------------------------------------- */

enum { MANY = 100 }; /* times that a run may read its data without a word */

static const char *epochs_text(double epochs, char text[32])
{
    if (epochs >= MANY) return cli_whole_text(epochs, text);
    snprintf(text, 32, "%.3g", epochs);
    return text;
}

static void plan_steps(const dra_trainer_plan *p, FILE *out)
{
    const dra_train_config *c = &p->train;
    char                    rows[800] = "", tokens[24], epochs[32];
    for (int i = 0; i < c->stages; i++) {
        const size_t n = strlen(rows);
        snprintf(rows + n, sizeof rows - n, "%s%lld", i ? ", " : "",
                 (long long)c->stage[i].context);
        const size_t k = strlen(rows);
        if (i)
            snprintf(rows + k, sizeof rows - k, " (from step %lld on)",
                     (long long)c->stage[i].from + 1);
    }
    cli_fold(CLI_TRAIN_LABEL, out,
             "run      %lld steps of %lld x %s tokens: %s%s tokens, %s epochs", (long long)c->steps,
             (long long)c->batch, rows, p->data_examples ? "at most " : "",
             cli_count_text((double)p->run_tokens, tokens), epochs_text(p->epochs, epochs));
    if (p->epochs >= MANY)
        cli_fold(CLI_TRAIN_LABEL, out,
                 "warning  the data is read %s times over: expect the model to memorise it",
                 epochs_text(p->epochs, epochs));
    if (c->warmup > c->steps && p->first < c->steps)
        cli_fold(CLI_TRAIN_LABEL, out,
                 "warning  the warm-up of %lld steps is longer than the run: the learning rate "
                 "ends at %.3g of %.3g",
                 (long long)c->warmup, c->lr * (double)c->steps / (double)c->warmup, c->lr);
}

/* What is not the next token is said. */
static void plan_objective(const dra_train_config *c, FILE *out)
{
    const dra_objective_config *o = &c->objective;
    const long long             mask = o->mask_token < 0 ? 0 : o->mask_token;
    if (o->kind != DRA_OBJECTIVE_MASKED) return;
    if (o->mask_schedule)
        cli_fold(CLI_TRAIN_LABEL, out, "learn    a random share of each row, masked by token %lld",
                 mask);
    else
        cli_fold(CLI_TRAIN_LABEL, out, "learn    %g %% of the tokens, masked by token %lld",
                 100 * o->mask_share, mask);
}

/* Groups that learn alike, a line for each kind. */
static void plan_groups(const dra_trainer_plan *p, FILE *out)
{
    bool told[DRA_PARAM_GROUPS] = {false};
    for (int first = 1, lines = 0; first < DRA_PARAM_GROUPS; first++) {
        const dra_group_config *rule = &p->rule[first];
        char                    names[700] = "", rate[40] = "", decay[40] = "no decay", count[24];
        for (int k = first; k < DRA_PARAM_GROUPS; k++) {
            const size_t n = strlen(names);
            if (told[k] || !p->group[k]) continue;
            if (p->rule[k].lr != rule->lr || p->rule[k].wd != rule->wd) continue;
            snprintf(names + n, sizeof names - n, "%s%s %s", n ? ", " : "",
                     dra_param_group_name((dra_param_group)k),
                     cli_count_text((double)p->group[k], count));
            told[k] = true;
        }
        if (!names[0]) continue;
        if (rule->lr != 1) snprintf(rate, sizeof rate, "lr x %g, ", rule->lr);
        if (rule->wd > 0) snprintf(decay, sizeof decay, "decay %g", rule->wd);
        cli_fold(CLI_TRAIN_LABEL, out, "%s%s: %s%s", lines++ ? "         " : "groups   ", names,
                 rate, decay);
    }
}

static void plan_data(const dra_trainer_plan *p, FILE *out)
{
    char       a[24], b[24];
    const bool examples = p->data_examples > 0;
    cli_count_text((double)(examples ? p->data_examples : p->data_tokens), a);
    cli_count_text((double)(examples ? p->eval_examples : p->eval_tokens), b);
    cli_fold(CLI_TRAIN_LABEL, out, "data     %s %s%s%s%s", a, examples ? "examples" : "tokens",
             p->eval_tokens ? ", " : "", p->eval_tokens ? b : "",
             p->eval_tokens ? " for evaluation" : "");
}

void cli_progress_plan(const dra_trainer_plan *p, FILE *out)
{
    char         a[24], b[24], c[24], d[24], e[24];
    const size_t all = p->weights + p->gradients + p->moments + p->activations;
    cli_fold(CLI_TRAIN_LABEL, out, "model    %s parameters",
             cli_count_text((double)p->parameters, a));
    plan_groups(p, out);
    plan_data(p, out);
    plan_steps(p, out);
    plan_objective(&p->train, out);
    cli_fold(CLI_TRAIN_LABEL, out,
             "memory   %s: weights %s, gradients %s, moments %s, activations %s",
             cli_bytes_text(all, a), cli_bytes_text(p->weights, b), cli_bytes_text(p->gradients, c),
             cli_bytes_text(p->moments, d), cli_bytes_text(p->activations, e));
}

void cli_progress_bytes(const char *preset, int64_t vocab, FILE *out)
{
    cli_fold(CLI_TRAIN_LABEL, out,
             "note     %.40s is made for a vocabulary of %lld tokens; without --tokenizer it "
             "learns bytes ('dra tokenizer train' makes a tokenizer)",
             preset, (long long)vocab);
}

/* ---- the curve ------------------------------------------------------------------------------- */

/* When all places are taken, every two become one. */
void cli_curve_add(cli_curve *c, double y)
{
    enum { MOST = sizeof c->y / sizeof *c->y };
    if (!isfinite(y)) return;
    c->sum += y;
    if (++c->in < c->each) return;
    c->y[c->n++] = c->sum / (double)c->in;
    c->sum = 0;
    c->in = 0;
    if (c->n < MOST) return;
    c->n = MOST / 2;
    for (size_t i = 0; i < c->n; i++) c->y[i] = (c->y[2 * i] + c->y[2 * i + 1]) / 2;
    c->each = c->each ? 2 * c->each : 2;
}

/* What is done so far and, of a run with fewer steps than dots, what is to come. */
static cli_plot plot_of(const cli_train_progress *w)
{
    enum { WIDE = 132 }; /* dots */
    const cli_curve *c = &w->curve;
    const int64_t    steps = w->last.steps - w->first + 1 + w->past, from = w->last.steps - steps;
    const size_t     all = steps < WIDE ? (size_t)steps : WIDE, n = c->n < all ? all : c->n;
    return (cli_plot){.title = "loss",
                      .y = c->y,
                      .n = c->n,
                      .all = n,
                      .unit = "step",
                      .from = from,
                      .to = from + (int64_t)n * (c->each ? c->each : 1)};
}

/* Once there is something to see; the terminal keeps rows for other lines. */
static void draw_curve(cli_train_progress *w)
{
    enum { LEAST = 3, OTHERS = 6 }; /* numbers, rows */
    const cli_plot plot = plot_of(w);
    if (!w->status.terminal || plot.n < LEAST) return;
    if (cli_height(w->status.out) < CLI_PLOT_ROWS + OTHERS) return;
    cli_plots(&w->status, 1, &plot, false);
}

/* ---- during ---------------------------------------------------------------------------------- */

void cli_progress_open(cli_train_progress *w, FILE *out)
{
    cli_status_open(&w->status, out);
    w->lowest = NAN;
}

void cli_progress_first(cli_train_progress *w, int64_t step, int64_t steps)
{
    cli_status *s = &w->status;
    if (!s->terminal) return;
    cli_status_field(s, 0, "step %lld/%lld", (long long)step, (long long)steps);
    cli_status_show(s);
}

static void show_step(cli_train_progress *w, const dra_event *e)
{
    cli_status *s = &w->status;
    char        speed[24];
    draw_curve(w);
    cli_status_field(s, 0, "step %lld/%lld", (long long)e->step, (long long)e->steps);
    cli_status_field(s, 0, "loss %.4f", e->loss);
    for (int k = 0; k < DRA_MEASURES_MOST && e->measure_name[k]; k++)
        cli_status_field(s, 2, "%s %.4g", e->measure_name[k], e->measure[k]);
    cli_status_field(s, 4, "lr %.2e", e->rate);
    cli_status_field(s, 5, "norm %.2f", e->norm);
    cli_status_field(s, 3, "%s tokens/s", cli_count_text(e->tokens_per_second, speed));
    cli_status_left(s, 1);
    if (e->skipped) cli_status_field(s, 2, "%lld skipped", (long long)e->skipped);
    cli_status_show(s);
}

/* Reads y or n, and a newline for yes; a signal means no. What was typed before is no answer. */
static bool is_agreed(FILE *out)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char          line[80];
    tcflush(STDIN_FILENO, TCIFLUSH);
    fputs("         Continue? [Y/n] ", out);
    fflush(out);
    while (!stopping && poll(&in, 1, 200) <= 0) continue;
    if (!stopping && fgets(line, sizeof line, stdin))
        return line[strspn(line, " \t")] != 'n' && line[strspn(line, " \t")] != 'N';
    fputc('\n', out); /* nobody has typed one */
    return !stopping;
}

/* Once it can be known: after some steps, or when a few of them have taken long. */
static void tell_time(cli_train_progress *w, const dra_event *e)
{
    enum { STEPS = 5, SECONDS = 20, LONG = 3600 };
    const double left = cli_status_seconds_left(&w->status);
    char         text[24];
    if (w->told || left < 0) return;
    if (e->step < w->first + STEPS && e->seconds - w->began < SECONDS) return;
    w->told = true;
    cli_status_clear(&w->status);
    fprintf(w->status.out, "time     about %s\n", cli_time_text(left, text));
    if (!w->asks || left <= LONG) return;
    w->declined = !is_agreed(w->status.out);
    cli_status_restart(&w->status); /* the clock ran while somebody was thinking */
}

static void on_step(cli_train_progress *w, const dra_event *e)
{
    const bool ends = e->step == e->steps, lines = e->step % w->log_every == 0 || ends;
    const bool first = w->first == 0;
    if (first) w->first = e->step, w->began = e->seconds, w->first_loss = e->loss;
    cli_curve_add(&w->curve, e->loss);
    w->lowest = fmin(w->lowest, e->loss);
    const bool due = cli_status_at(&w->status, (double)e->step / (double)e->steps);
    tell_time(w, e);
    if (w->status.terminal ? due || first || ends : lines) show_step(w, e);
}

static void on_eval(cli_train_progress *w, const dra_event *e)
{
    char   measures[256] = "";
    size_t n = 0;
    w->eval_ruined = !isfinite(e->eval_loss);
    for (int k = 0; k < DRA_MEASURES_MOST && e->measure_name[k] && n < sizeof measures; k++)
        n += (size_t)snprintf(measures + n, sizeof measures - n, "  %s %.4g", e->measure_name[k],
                              e->eval_measure[k]);
    cli_status_clear(&w->status);
    cli_fold(2, w->status.out, "step %lld  evaluation loss %.4f%s%s", (long long)e->step,
             e->eval_loss, measures, e->eval_loss <= e->best_loss ? ", the best so far" : "");
}

void cli_progress_close(cli_train_progress *w)
{
    if (w->status.terminal && !w->status.open && w->first) show_step(w, &w->last);
    cli_status_leave(&w->status);
}

bool cli_progress_event(void *watch, const dra_event *e)
{
    cli_train_progress *w = watch;
    w->last = *e;
    if (stopping && !w->stopped) cli_status_forget(&w->status); /* a line was written below it */
    w->stopped = stopping;
    if (e->kind == DRA_EVENT_STEP) on_step(w, e);
    if (e->kind == DRA_EVENT_EVAL) on_eval(w, e);
    if (e->kind == DRA_EVENT_SAMPLE && w->sample) {
        cli_status_clear(&w->status);
        w->sample(w->user, e);
    }
    const bool over = w->minutes > 0 && e->seconds - w->began >= 60 * w->minutes;
    return !stopping && !w->declined && !over;
}

bool cli_progress_diverged(const cli_train_progress *w)
{
    const double from = w->first_loss, to = w->last.loss;
    return from > 0 && to > 2 * from;
}

/* ---- after ----------------------------------------------------------------------------------- */

void cli_progress_totals(const cli_train_progress *w, FILE *out)
{
    const dra_event *e = &w->last;
    const bool       evaluated = !isnan(e->best_loss);
    char             tokens[24], took[24], best[64];
    snprintf(best, sizeof best, evaluated ? "best evaluation loss %.4f" : "lowest of a step %.4f",
             evaluated ? e->best_loss : w->lowest);
    cli_fold(CLI_TRAIN_LABEL, out, "total    %s tokens in %s, loss %.4f, %s",
             cli_count_text((double)e->tokens, tokens), cli_time_text(e->seconds, took), e->loss,
             best);
    if (cli_progress_diverged(w))
        cli_fold(CLI_TRAIN_LABEL, out,
                 "warning  the loss rose from %.4g to %.4g: the run diverged (a smaller --lr or "
                 "--clip may help)",
                 w->first_loss, e->loss);
}

void cli_progress_next(const char *run, const dra_model *model, bool best, bool text, FILE *out)
{
    char                    folder[4096];
    const dra_model_config *c = dra_model_config_of(model);
    const bool writes = dra_model_config_is_language(c) && c->visible != DRA_VISIBLE_BIDIRECTIONAL;
    const bool translates = c->context_stack &&
                            c->context_stack->source.kind == DRA_SOURCE_TOKENS &&
                            c->head.kind == DRA_HEAD_TOKENS;
    snprintf(folder, sizeof folder, "%s%s", run, best ? "/best" : "");
    fputs("next:\n", out);
    if (text && writes)
        cli_line(out, "  dra generate --model %s --prompt \"Once upon a time\"", folder);
    else if (text && translates)
        cli_line(out, "  dra generate --model %s --source \"a text to translate\"", folder);
    else
        cli_line(out, "  dra info --model %s", folder);
    cli_line(out, "  dra report %s", run);
}
