/* Picking a token from logits x (V): bias, penalty, temperature, filters and draw are those of the
 * op `sample`, see ops/sampling/sample_row.c. Ranking is for searches:
 *   rank  the largest log p_i - log(-log u_i), 0 <= u_i < 1: several at a time, each drawn from
 *         what the ones before it have left
 * [Keskar et al. 2019, the penalty; Holtzman et al. 2020, top-p; Nguyen et al. 2024, min-p; Kool et
 * al. 2019, rank] */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "ops/sampling/sample_row.h"
#include "generate/sample.h"

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status check_options(const dra_sampler_config *c, dra_error *err)
{
    size_t                    n;
    const dra_sampler_option *o = dra_sampler_options(&n);
    for (const dra_sampler_option *end = o + n; o < end; o++) {
        const double x = dra_sampler_get(c, o);
        if (x != 0 && !(x >= o->least && x <= o->most))
            return dra_fail(err, DRA_ERR_VALUE, "sampler: %s is %g, expected %g to %g", o->name, x,
                            o->least, o->most);
    }
    return DRA_OK;
}

dra_status dra_sampler_check_rows(const dra_sampler_config *c, dra_error *err)
{
    const dra_sampler_option *o = dra_sampler_find(c, DRA_SAMPLER_TEXT);
    if (!o) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "sampler: %s looks at a text, and here is none", o->name);
}

static dra_status check_vocab(int64_t vocab, dra_error *err)
{
    if (vocab >= 1 && vocab <= INT32_MAX) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "sampler: a vocabulary of %lld, expected 1 to %d",
                    (long long)vocab, INT32_MAX);
}

static dra_status check_bias(const dra_sampler_config *c, int64_t vocab, dra_error *err)
{
    for (int64_t i = 0; i < c->n_bias; i++) {
        const dra_token_bias *b = &c->bias[i];
        if (b->id < 0 || b->id >= vocab)
            return dra_fail(err, DRA_ERR_INDEX, "sampler: bias of token %d, expected 0 to %lld",
                            b->id, (long long)vocab - 1);
        if (!(b->bias <= 1e6 && (b->bias >= -1e6 || b->bias == -INFINITY)))
            return dra_fail(err, DRA_ERR_VALUE,
                            "sampler: bias of token %d is %g, expected -1e6 to 1e6, or -inf", b->id,
                            b->bias);
    }
    return DRA_OK;
}

static bool take_bias(dra_sampler *s)
{
    if (s->c.n_bias <= 0) return true;
    s->bias = calloc((size_t)s->V, sizeof *s->bias);
    double *sum = calloc((size_t)s->V, sizeof *sum);
    for (int64_t i = 0; sum && i < s->c.n_bias; i++) sum[s->c.bias[i].id] += s->c.bias[i].bias;
    for (int64_t i = 0; s->bias && sum && i < s->V; i++) s->bias[i] = (dra_real)sum[i];
    free(sum);
    return s->bias && sum;
}

dra_status dra_sampler_check(const dra_sampler_config *c, int64_t vocab, dra_error *err)
{
    dra_status st = check_options(c, err);
    if (st == DRA_OK) st = check_vocab(vocab, err);
    return st == DRA_OK ? check_bias(c, vocab, err) : st;
}

dra_status dra_sampler_create(const dra_sampler_config *config, int64_t vocab, dra_sampler **out,
                              dra_error *err)
{
    *out = NULL;
    const dra_status st = dra_sampler_check(config, vocab, err);
    if (st != DRA_OK) return st;
    dra_sampler *s = calloc(1, sizeof *s);
    if (s) *s = (dra_sampler){.c = *config, .V = vocab, .at = calloc((size_t)vocab, sizeof *s->at)};
    if (!s || !s->at || !take_bias(s) || !dra_sampler_open_history(s)) {
        dra_sampler_destroy(s);
        return dra_fail(err, DRA_ERR_MEMORY, "sampler: out of memory");
    }
    *out = s;
    return DRA_OK;
}

void dra_sampler_destroy(dra_sampler *s)
{
    if (!s) return;
    free(s->at);
    free(s->bias);
    free(s->met);
    free(s->breaks);
    free(s);
}

/* ---- picking --------------------------------------------------------------------------------- */

dra_sample_row dra_sampler_row(const dra_sampler *s, uint64_t stream, int64_t position)
{
    const dra_sampler_config *c = &s->c;
#define ROW_FIELD(with, kind, type, name, ...) .name = c->name,
    return (dra_sample_row){DRA_SAMPLER_ROW_OPTIONS(ROW_FIELD, ) /* and what is of this token */
                                .seed = c->seed + stream,
                            .position = position,
                            .options = c->filter_first ? DRA_SAMPLE_FILTER_FIRST : 0};
#undef ROW_FIELD
}

int32_t dra_sampler_pick(dra_sampler *s, const dra_real *logits, const bool *seen, uint64_t stream,
                         int64_t position)
{
    const dra_sample_row  how = dra_sampler_row(s, stream, position);
    const dra_sample_from from = {s->V, logits, s->bias, NULL, seen};
    return dra_sample_choose(&how, &from, s->at);
}

const dra_real *dra_sampler_biases(const dra_sampler *s) { return s->bias; }

void dra_sampler_penalise(const dra_sampler *s, const dra_real *x, const bool *seen, dra_real *out)
{
    const double r = s->c.repetition_penalty;
    for (int64_t i = 0; i < s->V; i++)
        out[i] = seen[i] && r != 0 ? (dra_real)dra_sample_penalised((double)x[i], r) : x[i];
}

/* ---- ranking --------------------------------------------------------------------------------- */

/* Every token that can follow at all; returns how many, and the log of their sum. */
static int64_t weigh_all(dra_sampler *s, const dra_sample_row *how, const dra_sample_from *from,
                         double max, double *log_sum)
{
    double  sum = 0, x;
    int64_t n = 0;
    for (int64_t i = 0; i < s->V; i++) {
        dra_sample_fetch(how, from, i, 1, &x);
        const double z = x - max;
        sum += exp(z);
        if (z > -INFINITY) s->at[n++] = (dra_choice){z, z, (int32_t)i};
    }
    *log_sum = log(sum);
    return n;
}

/* z becomes what is ranked, p is the z of before. */
static void add_noise(dra_sampler *s, int64_t n, const dra_gumbel *noise)
{
    const uint64_t seed = s->c.seed + noise->stream;
    for (int64_t i = 0; i < n; i++) {
        dra_choice  *at = &s->at[i]; /* which of 0, 0 is the draw; u = 0: -infinity, the last */
        const double u = dra_sample_uniform(seed, noise->position, (uint32_t)at->id,
                                            noise->beam + 1);
        at->p = at->z;
        at->z = at->z / s->c.temperature - log(-log(u));
    }
}

int64_t dra_sampler_rank(dra_sampler *s, const dra_real *logits, const bool *seen,
                         const dra_gumbel *noise, int64_t most, dra_ranked *out)
{
    const dra_sample_row  how = dra_sampler_row(s, 0, 0);
    const dra_sample_from from = {s->V, logits, NULL, NULL, seen};
    double                max, log_sum;
    if (dra_sample_best(&how, &from, &max) < 0) return -1;
    int64_t n = weigh_all(s, &how, &from, max, &log_sum);
    if (noise) {
        n = dra_sample_weigh(&how, &from, max, s->at);
        add_noise(s, n, noise);
    }
    if (most > n) most = n;
    dra_choices_sort(s->at, n, most);
    for (int64_t i = 0; i < most; i++) out[i] = (dra_ranked){s->at[i].p - log_sum, s->at[i].id};
    return most;
}
