/* Contrastive decoding: tokens that the expert finds likely and a weaker model does not.
 *   z = (1 + beta) expert - beta amateur  where expert >= max expert + ln alpha,  else -infinity
 * An amateur is a generator of its own, of the same rows, that reads all its expert reads and picks
 * nothing. [Li et al. 2023: Contrastive decoding; O'Brien and Lewis 2023, this form of it] */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/generator.h"

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

/* ---- making them ----------------------------------------------------------------------------- */

/* The name of a filter that a sampler has; NULL: it has none. */
static const char *filter_of(const dra_sampler_config *s)
{
    if (s->top_k > 0) return "top_k";
    if (s->top_p > 0 && s->top_p < 1) return "top_p";
    if (s->top_a > 0) return "top_a";
    return s->min_p > 0 ? "min_p" : NULL;
}

dra_status dra_contrast_check(const dra_generator_config *c, const dra_sampler_config *sampler,
                              dra_error *err)
{
    const char *filter = filter_of(sampler);
    if (c->n_amateurs == 0) return DRA_OK;
    if (c->n_amateurs < 0 || !c->amateurs)
        return dra_fail(err, DRA_ERR_VALUE, "generator: %d amateurs and no list of them",
                        c->n_amateurs);
    if (!(c->alpha > 0 && c->alpha <= 1))
        return dra_fail(err, DRA_ERR_VALUE, "generator: alpha is %g, expected above 0 and up to 1",
                        c->alpha);
    if (!(c->beta >= 0 && c->beta <= 1e6))
        return dra_fail(err, DRA_ERR_VALUE, "generator: beta is %g, expected 0 to 1e6", c->beta);
    if (filter)
        return dra_fail(err, DRA_ERR_VALUE,
                        "generator: %s and an amateur: contrast takes the place of filters",
                        filter);
    return DRA_OK;
}

static bool has_prefixes(const dra_model *m)
{
    return dra_model_config_of(m)->visible == DRA_VISIBLE_PREFIX;
}

static dra_status open_amateur(const dra_generator *g, int i, dra_generator **out, dra_error *err)
{
    const dra_amateur *a = &g->config.amateurs[i];
    const int64_t      V = dra_model_config_of(a->model)->vocab;
    dra_error          why = {0};
    if (V != g->V)
        return dra_fail(err, DRA_ERR_VALUE,
                        "generator: amateur %d has a vocabulary of %lld tokens, the model of %lld",
                        i + 1, (long long)V, (long long)g->V);
    const dra_generator_config c = {.model = a->model,
                                    .weights = a->weights,
                                    .device = g->config.device,
                                    .rows = g->config.rows,
                                    .state_limit = g->config.state_limit,
                                    .prefix = g->config.prefix && has_prefixes(a->model)};
    const dra_status           st = dra_generator_create(&c, out, &why);
    return st == DRA_OK ? st : dra_fail(err, st, "amateur %d: %s", i + 1, why.text);
}

dra_status dra_amateurs_create(dra_generator *g, dra_error *err)
{
    const int  n = g->config.n_amateurs;
    dra_status st = DRA_OK;
    if (n == 0) return DRA_OK;
    g->amateur = calloc((size_t)n, sizeof *g->amateur);
    g->contrasted = calloc((size_t)g->V, sizeof *g->contrasted);
    if (!g->amateur || !g->contrasted)
        return dra_fail(err, DRA_ERR_MEMORY, "generator: out of memory");
    for (int i = 0; i < n && st == DRA_OK; i++) st = open_amateur(g, i, &g->amateur[i], err);
    return st;
}

void dra_amateurs_destroy(dra_generator *g)
{
    for (int i = 0; g->amateur && i < g->config.n_amateurs; i++)
        dra_generator_destroy(g->amateur[i]);
    free(g->amateur);
    free(g->contrasted);
}

/* ---- reading and comparing ------------------------------------------------------------------- */

dra_status dra_amateurs_flush(dra_generator *g, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < g->config.n_amateurs && st == DRA_OK; i++) {
        for (int64_t b = 0; b < g->config.rows; b++) g->amateur[i]->row[b].next = g->row[b].next;
        st = dra_generator_flush_pending(g->amateur[i], err);
    }
    return st;
}

dra_status dra_generator_view(dra_generator *g, int64_t row, const dra_real **logits,
                              const bool **seen, dra_error *err)
{
    const bool *read = dra_picker_seen(g->picker, row);
    dra_status  st = DRA_OK;
    *seen = g->config.n_amateurs ? NULL : read;
    if (!g->config.n_amateurs) return DRA_OK;
    dra_sampler_penalise(g->sampler, *logits, read, g->contrasted);
    for (int i = 0; i < g->config.n_amateurs && st == DRA_OK; i++) {
        dra_real *amateur;
        st = dra_generator_see(g->amateur[i], row, &amateur, err);
        if (st == DRA_OK)
            dra_contrast(g->V, g->contrasted, amateur, g->config.alpha, g->config.beta,
                         g->contrasted);
    }
    *logits = g->contrasted;
    return st;
}
