/* What a run shows: a plan before it, a line of progress, how long it takes. */
#include "train_progress.h"
#include "units.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
    if (stopping) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stopping = number;
}

void cli_progress_signals(void)
{
    struct sigaction before, a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    /* A terminal that is closed; nohup has it ignored. */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
}

bool cli_progress_stopped(void) { return stopping != 0; }

int cli_progress_status(void) { return 128 + (int)stopping; }

/* ---- before ---------------------------------------------------------------------------------- */

static void write_stages(const dra_train_config *c, FILE *out)
{
    fprintf(out, "run      %lld steps of %lld x ", (long long)c->steps, (long long)c->batch);
    for (int i = 0; i < c->stages; i++) {
        fprintf(out, "%s%lld", i ? ", " : "", (long long)c->stage[i].context);
        if (i) fprintf(out, " (from step %lld on)", (long long)c->stage[i].from + 1);
    }
}

/* What is not the next token is said. */
static void write_objective(const dra_train_config *c, FILE *out)
{
    const dra_objective_config *o = &c->objective;
    const long long             mask = o->mask_token < 0 ? 0 : o->mask_token;
    if (o->kind != DRA_OBJECTIVE_MASKED) return;
    if (o->mask_schedule)
        fprintf(out, "learn    a random share of each row, masked by token %lld\n", mask);
    else
        fprintf(out, "learn    %g %% of the tokens, masked by token %lld\n", 100 * o->mask_share,
                mask);
}

void cli_progress_plan(const dra_trainer_plan *p, FILE *out)
{
    char         a[24], b[24], c[24], d[24], e[24];
    const size_t all = p->weights + p->gradients + p->moments + p->activations;
    fprintf(out, "model    %s parameters\n", cli_count_text((double)p->parameters, a));
    const bool examples = p->data_examples > 0;
    fprintf(out, "data     %s %s",
            cli_count_text((double)(examples ? p->data_examples : p->data_tokens), a),
            examples ? "examples" : "tokens");
    if (p->eval_tokens)
        fprintf(out, ", %s for evaluation",
                cli_count_text((double)(examples ? p->eval_examples : p->eval_tokens), a));
    fputc('\n', out);
    write_stages(&p->train, out);
    fprintf(out, " tokens: %s tokens, %.3g epochs\n", cli_count_text((double)p->run_tokens, a),
            p->epochs);
    write_objective(&p->train, out);
    fprintf(out, "memory   %s: weights %s, gradients %s, moments %s, activations %s\n",
            cli_bytes_text(all, a), cli_bytes_text(p->weights, b), cli_bytes_text(p->gradients, c),
            cli_bytes_text(p->moments, d), cli_bytes_text(p->activations, e));
    if (p->first) fprintf(out, "resume   after step %lld\n", (long long)p->first);
}

/* ---- during ---------------------------------------------------------------------------------- */

/* Seconds that are left, by the mean of the steps so far but the first, which also compiles. */
static double seconds_left(const cli_train_progress *w, const dra_event *e)
{
    const double per_step = (e->seconds - w->began) / (double)(e->step - w->first);
    return per_step * (double)(e->steps - e->step);
}

static void write_measures(const dra_event *e, const double *measure, FILE *out)
{
    for (int k = 0; k < DRA_MEASURES_MOST && e->measure_name[k]; k++)
        fprintf(out, "  %s %.4g", e->measure_name[k], measure[k]);
}

static void write_progress(cli_train_progress *w, const dra_event *e)
{
    char speed[24], left[24];
    fprintf(w->out, "%sstep %lld/%lld  loss %.4f", w->terminal ? "\r" : "", (long long)e->step,
            (long long)e->steps, e->loss);
    write_measures(e, e->measure, w->out);
    fprintf(w->out, "  lr %.2e  norm %.2f  %s tokens/s", e->rate, e->norm,
            cli_count_text(e->tokens_per_second, speed));
    if (e->step > w->first) fprintf(w->out, "  %s left", cli_time_text(seconds_left(w, e), left));
    if (e->skipped) fprintf(w->out, "  %lld skipped", (long long)e->skipped);
    fputs(w->terminal ? "\033[K" : "\n", w->out);
    w->open = w->terminal;
    fflush(w->out);
}

void cli_progress_break(cli_train_progress *w)
{
    if (w->open) fputc('\n', w->out);
    w->open = false;
}

static void tell_time(cli_train_progress *w, const dra_event *e)
{
    enum { STEPS = 5 };
    char left[24];
    if (w->told || e->step < w->first + STEPS) return;
    cli_progress_break(w);
    fprintf(w->out, "time     about %s\n", cli_time_text(seconds_left(w, e), left));
    w->told = true;
}

static void on_step(cli_train_progress *w, const dra_event *e)
{
    const bool lines = e->step % w->log_every == 0 || e->step == e->steps;
    if (w->first == 0) w->first = e->step, w->began = e->seconds;
    tell_time(w, e);
    if (w->terminal || lines) write_progress(w, e);
}

bool cli_progress_event(void *watch, const dra_event *e)
{
    cli_train_progress *w = watch;
    w->last = *e;
    if (e->kind == DRA_EVENT_STEP) on_step(w, e);
    if (e->kind == DRA_EVENT_EVAL) {
        cli_progress_break(w);
        fprintf(w->out, "step %lld  evaluation loss %.4f", (long long)e->step, e->eval_loss);
        write_measures(e, e->eval_measure, w->out);
        fprintf(w->out, "%s\n", e->eval_loss <= e->best_loss ? ", the best so far" : "");
    }
    if (e->kind == DRA_EVENT_SAMPLE && w->sample) {
        cli_progress_break(w);
        w->sample(w->user, e);
    }
    return !stopping;
}
