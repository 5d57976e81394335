/* What a run that is resumed had shown before: its curve begins where the run began. */
#include "report/record.h"
#include "progress.h"

#include <math.h>

/* A log has one line for several steps, may begin later than the run did, and ends before the step
 * that was saved last where the run was stopped between two lines. */
void cli_progress_past(cli_train_progress *w, const char *log, int64_t until)
{
    cli_record        r = {0};
    dra_error         err = {0};
    const cli_series *s = NULL;
    if (cli_record_read(log, &r, &err) == DRA_OK) s = cli_record_series(&r, "loss", false);
    const double  each = (double)(w->log_every > 0 ? w->log_every : 1);
    const double  gap = s && s->n > 1 ? s->x[1] - s->x[0] : each;
    const int64_t from = s ? (int64_t)fmax(0, s->x[0] - gap) : 0;
    int64_t       at = from;
    size_t        i = 0;
    for (; s && i < s->n && s->x[i] <= (double)until; i++)
        for (; at < (int64_t)s->x[i]; at++) cli_curve_add(&w->curve, s->y[i]);
    if (i > 0 && (double)(until - at) < gap)
        for (; at < until; at++) cli_curve_add(&w->curve, s->y[i - 1]);
    w->past = at - from;
    cli_record_free(&r);
}
