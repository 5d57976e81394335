/* Decay: gamma = sigmoid(beta). Half-life: gamma^t = 1/2 after ln(1/2) / ln(gamma) steps.
 * Only ln(gamma) and 1 - gamma = sigmoid(-beta) are ever formed, neither from a rounded gamma. */
#include <math.h>
#include <stdlib.h>

#include "file/field_rows.h"
#include "memory/memory.h"
#include "memory/part.h"

DRA_CHOICES(per, DRA_PER_COUNT, "head", "channel");
DRA_CHOICES(starts, DRA_GAMMA_COUNT, "halflife", "efold", "const");

#define GAMMA(f) offsetof(dra_gamma_config, f)
const dra_field dra_gamma_fields[] = {
    CHOICE(dra_gamma_config, per, per,
           "what has a decay of its own: a head, or each of its channels"),
    {.name = "init",
     .kind = DRA_FIELD_CHOICE,
     .offset = GAMMA(start),
     .choices = starts,
     .about = "range is of half-lives, of times 1 / ln(1 / gamma), or all are value"},
    REAL(dra_gamma_config, value, 0, 1, "none", "gamma of all, with init const"),
    {.name = "range",
     .kind = DRA_FIELD_PAIR,
     .offset = GAMMA(range),
     .given = GAMMA(ranged),
     .unset = "by the retrieval",
     .about = "log2 of the shortest and the longest of them, in tokens"},
    {.name = "depth",
     .kind = DRA_FIELD_PAIR,
     .offset = GAMMA(depth),
     .unset = "[0, 0]",
     .about = "log2 of how much longer they are in the first and the last layer"},
    SWITCH(dra_gamma_config, learn, "true", "decays are trained"),
    BOOL(dra_gamma_config, share, "ema: keys and values have the same decays"),
    {0},
};

static const double LN2 = 0.69314718055994530942;

/* Of two, and small enough that beta is finite in float even for their sum. */
static bool are_exponents(const double x[2]) { return fabs(x[0]) <= 64 && fabs(x[1]) <= 64; }

dra_status dra_gamma_check(const dra_gamma_config *c, dra_error *err)
{
    if ((unsigned)c->per > DRA_PER_CHANNEL)
        return dra_fail(err, DRA_ERR_VALUE, "gamma.per is %d, expected 0 to 1", (int)c->per);
    if ((unsigned)c->start > DRA_GAMMA_CONST)
        return dra_fail(err, DRA_ERR_VALUE, "gamma.start is %d, expected 0 to 2", (int)c->start);
    if ((unsigned)c->learn > DRA_OFF)
        return dra_fail(err, DRA_ERR_VALUE, "gamma.learn is %d, expected 0 to 2", (int)c->learn);
    if (c->start == DRA_GAMMA_CONST && !(c->value > 0 && c->value < 1))
        return dra_fail(err, DRA_ERR_VALUE, "gamma.value is %g, expected 0 < gamma < 1", c->value);
    if (c->start != DRA_GAMMA_CONST && c->value != 0)
        return dra_fail(err, DRA_ERR_VALUE, "gamma.value is %g, but gamma.init is not const",
                        c->value);
    if (c->start == DRA_GAMMA_CONST && c->ranged)
        return dra_fail(err, DRA_ERR_VALUE, "gamma.range is set, but gamma.init is const");
    if (c->ranged && !are_exponents(c->range))
        return dra_fail(err, DRA_ERR_VALUE, "gamma.range is %g, %g, expected -64 to 64",
                        c->range[0], c->range[1]);
    if (c->ranged && c->range[0] > c->range[1])
        return dra_fail(err, DRA_ERR_VALUE, "gamma.range is %g, %g, expected the lower one first",
                        c->range[0], c->range[1]);
    if (!are_exponents(c->depth))
        return dra_fail(err, DRA_ERR_VALUE, "gamma.depth is %g, %g, expected -64 to 64",
                        c->depth[0], c->depth[1]);
    if (c->layer < 0 || c->layers < 0 || (c->layers > 0 && c->layer >= c->layers))
        return dra_fail(err, DRA_ERR_VALUE, "gamma.layer is %d of %d layers", c->layer, c->layers);
    return DRA_OK;
}

/* Value number j of n that are spaced evenly from lo to hi; the middle for one. */
static double spaced_value(const double range[2], int64_t j, int64_t n)
{
    if (n <= 1) return (range[0] + range[1]) / 2;
    return range[0] + (range[1] - range[0]) * (double)j / (double)(n - 1);
}

/* Where a retrieval reaches back by itself, slow units would hold nearly constant items. */
static void default_range(const dra_memory_config *c, double range[2])
{
    const bool past = dra_retrieval_find(c->retrieval)->from_memory;
    range[0] = c->gamma.start == DRA_GAMMA_EFOLD ? 0 : past ? -1 : 2;
    range[1] = c->gamma.start == DRA_GAMMA_EFOLD || !past ? 14 : 4;
}

double dra_gamma_log(const dra_memory_config *c, int64_t j, int64_t n)
{
    const dra_gamma_config *f = &c->gamma;
    double                  range[2] = {f->range[0], f->range[1]};
    const double            longer = f->layers > 1 ? spaced_value(f->depth, f->layer, f->layers)
                                                   : (f->layers == 1 ? f->depth[0] : 0);
    if (!f->ranged) default_range(c, range);
    const double steps = exp2(spaced_value(range, j, n));
    const double rate = f->start == DRA_GAMMA_CONST   ? -log(f->value)
                        : f->start == DRA_GAMMA_EFOLD ? 1 / steps
                                                      : LN2 / steps;
    return -rate / exp2(longer);
}

double dra_gamma_logit(const dra_memory_config *c, int64_t j, int64_t n)
{
    const double l = dra_gamma_log(c, j, n);
    return l - log(-expm1(l)); /* ln(gamma / (1 - gamma)) */
}

/* Unit i of head h takes number i H + h, so that every head spans the range. */
void dra_gamma_declare(const dra_memory_sizes *s, const char *prefix, const char *name, int64_t n,
                       int64_t width, dra_specs *params)
{
    const bool    channels = s->config->gamma.per == DRA_PER_CHANNEL;
    const int64_t units = n ? n : 1, each = channels ? width : 1;
    dra_spec      p = {.name = name, .fill = DRA_FILL_VALUES};
    double       *beta = calloc((size_t)(s->H * units * each) + 1, sizeof *beta);
    p.shape.dim[p.shape.rank++] = s->H;
    if (n) p.shape.dim[p.shape.rank++] = n;
    if (channels) p.shape.dim[p.shape.rank++] = width;
    p.values = beta;
    p.frozen = s->config->gamma.learn == DRA_OFF;
    p.decay = true;
    p.group = DRA_PARAM_DECAY;
    for (int64_t i = 0; beta && i < s->H * units * each; i++) {
        const int64_t h = i / each / units, unit = i / each % units;
        beta[i] = dra_gamma_logit(s->config, unit * s->H + h, s->H * units);
    }
    dra_specs_add(params, prefix, &p);
    free(beta);
}
