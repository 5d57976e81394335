/* Schedules: the learning rate, a blend and the length of rows by step. */
#include <math.h>

#include "base/shape.h"
#include "train/train.h"

static double half_cosine(double p) { return (1 + cos(acos(-1) * p)) / 2; } /* 1 to 0 */

double dra_train_rate(const dra_train_config *c, int64_t step)
{
    const int64_t warmup = dra_imax(1, c->warmup); /* a warmup of one step is none */
    const double  lr = fmax(0, c->lr), least = fmax(0, c->min_lr);
    if (step < warmup) return lr * (double)step / (double)warmup;
    if (c->schedule == DRA_SCHEDULE_CONSTANT || step == warmup) return lr;
    const int64_t end = c->schedule_end ? c->schedule_end : c->steps;
    const int64_t held = c->schedule == DRA_SCHEDULE_WSD ? end - c->decay_steps : 0;
    const int64_t start = dra_imax(warmup, held);
    const double  p = fmax(0, fmin(1, (double)(step - start) / (double)dra_imax(1, end - start)));
    if (c->schedule == DRA_SCHEDULE_EXPONENTIAL && least > 0) return lr * pow(least / lr, p);
    return least + (lr - least) * (c->schedule == DRA_SCHEDULE_COSINE ? half_cosine(p) : 1 - p);
}

double dra_train_blend(const dra_train_config *c, double start, int64_t step)
{
    const double p = fmin(1, (double)(step - 1) / (double)c->blend_steps);
    if (p >= 1) return 0; /* exactly: then the other branch is read alone */
    return start * (c->blend_anneal == DRA_ANNEAL_COSINE ? half_cosine(p) : 1 - p);
}

int dra_train_stage(const dra_train_config *c, int64_t step)
{
    int i = 0;
    while (i + 1 < c->stages && step > c->stage[i + 1].from) i++;
    return i;
}
