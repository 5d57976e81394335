/* What a run says about where it ends. */
#include "end.h"
#include "io/memory.h"
#include "options/options.h"
#include "options/term.h"

#include <math.h>

void cli_train_changes(const dra_trainer_plan *p, FILE *out)
{
    const dra_train_config *c = &p->train;
    const long long         end = (long long)(c->schedule_end ? c->schedule_end : c->steps);
    if (p->first) cli_line(out, "resume   after step %lld", (long long)p->first);
    if (p->steps_before)
        fprintf(out, "extended from %lld to %lld steps; ", (long long)p->steps_before,
                (long long)c->steps);
    else if (p->schedule_before)
        fputs("changed  ", out);
    else
        return;
    if (c->schedule == DRA_SCHEDULE_CONSTANT)
        fputs("the learning rate is constant\n", out);
    else if (!p->schedule_before)
        fprintf(out, "the schedule of the learning rate ends at step %lld as before\n", end);
    else if (c->schedule_end)
        fprintf(out, "the schedule of the learning rate ends at step %lld, before at %lld\n", end,
                (long long)p->schedule_before);
    else
        fprintf(out,
                "the schedule of the learning rate is stretched to the new end (--schedule-end "
                "%lld keeps it)\n",
                (long long)p->schedule_before);
}

static void write_early(const char *run, const dra_train_config *c, int64_t step)
{
    cli_line(stderr,
             "%s stopped early at step %lld: %lld evaluations without a better one; the best model "
             "is in its folder best (--resume --early-stop 0 continues)",
             run, (long long)step, (long long)c->early_stop);
}

void cli_train_end(const cli_trained *t, const cli_train_progress *w, const dra_trainer_plan *plan)
{
    const int64_t steps = plan->train.steps;
    if (plan->first >= steps) {
        cli_line(stderr, "%s has all its %lld steps", t->run, (long long)steps);
        return;
    }
    if (!plan->stopped_early) cli_progress_totals(w, stderr);
    if (plan->stopped_early || w->last.stopped_early) {
        write_early(t->run, &plan->train, plan->stopped_early ? plan->first : w->last.step);
    } else if (w->last.step < steps) {
        cli_line(stderr, "stopped and saved at step %lld; resume with: dra train --resume --out %s",
                 (long long)w->last.step, t->run);
    } else {
        cli_line(stderr, "%s: the model is in %s%s", cli_progress_diverged(w) ? "ended" : "done",
                 t->run,
                 w->last.best_loss == w->last.best_loss ? ", the best one in its folder best" : "");
        cli_progress_next(t->run, t->model, w->last.best_loss < w->last.eval_loss,
                          t->text && !cli_progress_diverged(w), stderr);
        cli_line(stderr, "  dra train --resume --out %s --steps %lld", t->run,
                 (long long)(2 * steps));
    }
}

void cli_train_json(const cli_trained *t, const cli_train_progress *w, const dra_trainer_plan *plan,
                    FILE *out)
{
    const bool  ran = plan->first < plan->train.steps && !plan->stopped_early;
    const char *names[] = {"loss", "eval_loss", "best_eval_loss", "tokens", "seconds"};
    double      x[COUNT(names)] = {w->last.loss, w->last.eval_loss, w->last.best_loss,
                                   (double)w->last.tokens, w->last.seconds};
    char        room[CLI_NUMBER];
    fputs("{\"run\": ", out);
    cli_json_text(t->run, out);
    fprintf(out, ", \"steps\": %lld, \"of\": %lld, \"stopped_early\": %s",
            (long long)(ran ? w->last.step : plan->first), (long long)plan->train.steps,
            plan->stopped_early || w->last.stopped_early ? "true" : "false");
    for (size_t i = 0; i < COUNT(names); i++)
        fprintf(out, ", \"%s\": %s", names[i], cli_json_number(ran ? x[i] : NAN, 9, room));
    fprintf(out, ", \"peak_bytes\": %lld}\n", (long long)cli_peak_bytes());
}
