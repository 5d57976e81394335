/* Contrastive decoding: tokens that the expert finds likely and a weaker model does not.
 *   z = (1 + beta) expert - beta amateur  where expert >= max expert + ln alpha,  else -infinity
 * An amateur is a lane of the engine: it reads all that the expert reads and picks nothing.
 * [Li et al. 2023: Contrastive decoding; O'Brien and Lewis 2023, this form of it] */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "generate/engine.h"
#include "generate/sample.h"

void dra_contrast(int64_t V, const dra_real *expert, const dra_real *amateur, double alpha,
                  double beta, dra_real *z)
{
    double max = -INFINITY;
    for (int64_t i = 0; i < V; i++)
        if ((double)expert[i] > max) max = (double)expert[i];
    const double least = max + log(alpha);
    for (int64_t i = 0; i < V; i++) {
        const double x = (double)expert[i], y = (double)amateur[i];
        z[i] = x < least ? (dra_real)-INFINITY : (dra_real)((1 + beta) * x - beta * y);
    }
}

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status check_amateur(const dra_engine_config *c, int i, dra_error *err)
{
    const int64_t V = dra_model_config_of(c->model)->vocab;
    const int64_t own = dra_model_config_of(c->amateurs[i].model)->vocab;
    if (!dra_engine_can_run(c->amateurs[i].model))
        return dra_fail(err, DRA_ERR_VALUE,
                        "amateur %d: expected a model that reads and writes tokens from left to "
                        "right",
                        i + 1);
    if (own == V) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "amateur %d has a vocabulary of %lld tokens, the model of %lld", i + 1,
                    (long long)own, (long long)V);
}

dra_status dra_contrast_check(const dra_engine_config *c, dra_error *err)
{
    if (c->n_amateurs == 0) return DRA_OK;
    if (c->n_amateurs < 0 || !c->amateurs)
        return dra_fail(err, DRA_ERR_VALUE, "engine: %d amateurs and no list of them",
                        c->n_amateurs);
    if (!(c->alpha > 0 && c->alpha <= 1))
        return dra_fail(err, DRA_ERR_VALUE, "contrast: alpha is %g, expected above 0 and up to 1",
                        c->alpha);
    if (!(c->beta >= 0 && c->beta <= 1e6))
        return dra_fail(err, DRA_ERR_VALUE, "contrast: beta is %g, expected 0 to 1e6", c->beta);
    dra_status st = DRA_OK;
    for (int i = 0; i < c->n_amateurs && st == DRA_OK; i++) st = check_amateur(c, i, err);
    return st;
}

dra_status dra_contrast_check_sampler(const dra_engine *e, const dra_sampler_config *s,
                                      dra_error *err)
{
    const dra_sampler_option *filter = dra_sampler_find(s, DRA_SAMPLER_FILTER);
    if (e->lanes == 1 || !filter) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "%s and an amateur: contrast takes the place of filters",
                    filter->name);
}

/* ---- comparing ------------------------------------------------------------------------------- */

dra_status dra_contrast_with(dra_engine *e, const dra_sequence *s, const dra_real *x, dra_real *z,
                             dra_error *err)
{
    const dra_real *amateur;
    dra_status      st = DRA_OK;
    if (s->seen)
        dra_sampler_penalise(s->job->sampler, x, s->seen, z);
    else
        memmove(z, x, (size_t)e->V * sizeof *z);
    for (int i = 1; i < e->lanes && st == DRA_OK; i++) {
        st = dra_sequence_logits(e, s, i, &amateur, err);
        if (st == DRA_OK) dra_contrast(e->V, z, amateur, e->config.alpha, e->config.beta, z);
    }
    return st;
}
