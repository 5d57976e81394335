/* Picking a token from logits x (V).
 *   bias         x_i = x_i + b_i
 *   penalty      x_i = x_i > 0 ? x_i / r : x_i r     for tokens seen before
 *   temperature  p_i ~ e^((x_i - max x) / tau)
 *   filters      top-k, top-p, top-a, min-p: what they drop has p = 0
 *   draw         the first i with p_1 + .. + p_i > u sum(p), 0 <= u < 1
 *   rank         the largest log p_i - log(-log u_i), 0 <= u_i < 1: several at a time, each drawn
 *                from what the ones before it have left
 * [Keskar et al. 2019, the penalty; Holtzman et al. 2020, top-p; Nguyen et al. 2024, min-p; Kool et
 * al. 2019, rank] */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/philox.h"
#include "run/sample.h"

typedef struct choice {
    double  z, p; /* x - max x, and its weight */
    int32_t id;
} choice;

struct dra_sampler {
    dra_sampler_config c;
    int64_t            V;
    choice            *at;     /* (V) */
    double            *bias;   /* (V); NULL: none */
    dra_real          *biased; /* (V): logits with it */
};

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status check(const char *name, double x, double most, dra_error *err)
{
    if (x >= 0 && x <= most) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "sampler: %s is %g, expected 0 to %g", name, x, most);
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
    s->biased = calloc((size_t)s->V, sizeof *s->biased);
    if (!s->bias || !s->biased) return false;
    for (int64_t i = 0; i < s->c.n_bias; i++) s->bias[s->c.bias[i].id] += s->c.bias[i].bias;
    return true;
}

dra_status dra_sampler_create(const dra_sampler_config *config, int64_t vocab, dra_sampler **out,
                              dra_error *err)
{
    *out = NULL;
    dra_status st = check("repetition_penalty", config->repetition_penalty, 1e6, err);
    if (st == DRA_OK) st = check("temperature", config->temperature, 1e6, err);
    if (st == DRA_OK) st = check("top_k", (double)config->top_k, INT32_MAX, err);
    if (st == DRA_OK) st = check("top_p", config->top_p, 1, err);
    if (st == DRA_OK) st = check("top_a", config->top_a, 1, err);
    if (st == DRA_OK) st = check("min_p", config->min_p, 1, err);
    if (st == DRA_OK) st = check("vocab - 1", (double)vocab - 1, INT32_MAX - 1, err);
    if (st == DRA_OK) st = check_bias(config, vocab, err);
    if (st != DRA_OK) return st;
    dra_sampler *s = calloc(1, sizeof *s);
    if (s) *s = (dra_sampler){*config, vocab, calloc((size_t)vocab, sizeof *s->at), NULL, NULL};
    if (!s || !s->at || !take_bias(s)) {
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
    free(s->biased);
    free(s);
}

/* ---- filters: each keeps the first of s->at and says how many -------------------------------- */

static bool before(const choice *a, const choice *b)
{
    return a->z > b->z || (a->z == b->z && a->id < b->id);
}

/* A heap of n choices whose first is the most likely, but for its place i. */
static void sink(choice *at, int64_t n, int64_t i)
{
    const choice moved = at[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&at[child + 1], &at[child])) child++;
        if (!before(&at[child], &moved)) break;
        at[i] = at[child];
    }
    at[i] = moved;
}

/* Takes the most likely choices out of a heap of n, one by one, as long as they are wanted: at the
 * end of the array they are lined up from the end. Sorting all of a vocabulary would cost more than
 * the few that are kept. Returns how many were taken. */
static int64_t take(choice *at, int64_t n, int64_t most, double sum)
{
    int64_t taken = 0;
    double  got = 0;
    for (int64_t i = n / 2; i-- > 0;) sink(at, n, i);
    while (taken < n) {
        const bool tie = taken > 0 && at[0].z == at[n - taken].z;
        if (most && taken >= most && !tie) break;
        if (!most && taken > 0 && got >= sum) break;
        const choice best = at[0];
        at[0] = at[n - taken - 1];
        at[n - taken - 1] = best;
        got += best.p;
        taken++;
        sink(at, n - taken, 0);
    }
    return taken;
}

/* The last `taken` of n, in the order they were taken, become the first. */
static void line_up(choice *at, int64_t n, int64_t taken)
{
    for (int64_t i = 0, j = n - 1; i < j; i++, j--) {
        const choice swap = at[i];
        at[i] = at[j];
        at[j] = swap;
        if (i + 1 >= taken) break;
    }
}

static int64_t keep_best(choice *at, int64_t n, int64_t most, double sum)
{
    const int64_t taken = take(at, n, most, sum);
    line_up(at, n, taken);
    return taken;
}

static double sum_of(const choice *at, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += at[i].p;
    return sum;
}

static int64_t keep_likely(choice *at, int64_t n, double least)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (at[i].p >= least) at[kept++] = at[i];
    return kept;
}

static int64_t filter(const dra_sampler *s, int64_t n)
{
    const dra_sampler_config *c = &s->c;
    if (c->top_k > 0 && c->top_k < n) n = keep_best(s->at, n, c->top_k, 0);
    if (c->top_p > 0 && c->top_p < 1) n = keep_best(s->at, n, 0, c->top_p * sum_of(s->at, n));
    if (c->top_a > 0) /* p / S >= a (1 / S)^2 */
        n = keep_likely(s->at, n, c->top_a / sum_of(s->at, n));
    return c->min_p > 0 ? keep_likely(s->at, n, c->min_p) : n; /* the largest p is e^0 */
}

/* ---- picking --------------------------------------------------------------------------------- */

static double penalised(const dra_sampler *s, const dra_real *logits, const bool *seen, int64_t i)
{
    const double x = (double)logits[i], r = s->c.repetition_penalty;
    if (!seen || !seen[i] || r == 0) return x;
    return x > 0 ? x / r : x * r;
}

/* The most likely token; -1: there is none. */
static int32_t find_best(const dra_sampler *s, const dra_real *logits, const bool *seen,
                         double *max)
{
    int32_t best = -1;
    *max = -INFINITY;
    for (int64_t i = 0; i < s->V; i++) {
        const double x = penalised(s, logits, seen, i);
        if (isnan(x) || x == INFINITY) return -1;
        if (!(x > *max)) continue;
        *max = x;
        best = (int32_t)i;
    }
    return best;
}

/* 0 <= u < 1 with 53 bits, for a place in a sequence; `which` tells apart several of one place. */
static double uniform(uint64_t seed, int64_t position, const uint32_t which[2])
{
    const uint64_t at = (uint64_t)position;
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), which[0], which[1]};
    uint32_t       bits[4];
    dra_philox(counter, seed, bits);
    return (double)(((uint64_t)bits[1] << 32 | bits[0]) >> 11) * 0x1p-53;
}

static int32_t draw(const choice *at, int64_t n, double u)
{
    const double goal = u * sum_of(at, n);
    double       got = 0;
    for (int64_t i = 0; i < n; i++)
        if ((got += at[i].p) > goal) return at[i].id;
    return at[n - 1].id; /* u sum(p) may round up to sum(p) */
}

/* Puts the tokens that may be drawn into s->at, with p after filters and temperature. */
static int64_t weigh(dra_sampler *s, const dra_real *logits, const bool *seen, double max)
{
    const double tau = s->c.temperature, first = s->c.filter_first ? 1 : tau;
    int64_t      n = 0;
    for (int64_t i = 0; i < s->V; i++) {
        const double z = penalised(s, logits, seen, i) - max, p = exp(z / first);
        if (p > 0) s->at[n++] = (choice){z, p, (int32_t)i};
    }
    n = filter(s, n);
    for (int64_t i = 0; i < n && first != tau; i++) s->at[i].p = exp(s->at[i].z / tau);
    return n;
}

int32_t dra_sampler_choose(dra_sampler *s, const dra_real *logits, const bool *seen,
                           uint64_t stream, int64_t position)
{
    const uint32_t only[2] = {0};
    double         max;
    const int32_t  best = find_best(s, logits, seen, &max);
    if (best < 0 || s->c.temperature == 0) return best;
    return draw(s->at, weigh(s, logits, seen, max), uniform(s->c.seed + stream, position, only));
}

bool dra_sampler_has_bias(const dra_sampler *s) { return s->bias; }

void dra_sampler_bias(const dra_sampler *s, const dra_real *x, const bool *allowed, dra_real *out)
{
    for (int64_t i = 0; i < s->V; i++) {
        const double b = s->bias ? s->bias[i] : 0;
        if ((allowed && !allowed[i]) || b == -INFINITY)
            out[i] = (dra_real)(isnan((double)x[i]) ? NAN : -INFINITY); /* NaN is still noticed */
        else
            out[i] = b == 0 ? x[i] : (dra_real)((double)x[i] + b);
    }
}

int32_t dra_sampler_pick(dra_sampler *s, const dra_real *logits, const bool *seen, uint64_t stream,
                         int64_t position)
{
    if (s->bias) dra_sampler_bias(s, logits, NULL, s->biased);
    return dra_sampler_choose(s, s->bias ? s->biased : logits, seen, stream, position);
}

double dra_sampler_logprob(const dra_sampler *s, const dra_real *logits, int32_t id)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < s->V; i++)
        if ((double)logits[i] > max) max = (double)logits[i];
    for (int64_t i = 0; i < s->V; i++) sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

void dra_sampler_penalise(const dra_sampler *s, const dra_real *x, const bool *seen, dra_real *out)
{
    for (int64_t i = 0; i < s->V; i++) out[i] = (dra_real)penalised(s, x, seen, i);
}

/* ---- ranking --------------------------------------------------------------------------------- */

/* Every token that can follow at all; returns how many, and the log of their sum. */
static int64_t weigh_all(dra_sampler *s, const dra_real *logits, const bool *seen, double max,
                         double *log_sum)
{
    double  sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s->V; i++) {
        const double z = penalised(s, logits, seen, i) - max;
        sum += exp(z);
        if (z > -INFINITY) s->at[n++] = (choice){z, z, (int32_t)i};
    }
    *log_sum = log(sum);
    return n;
}

/* z becomes what is ranked, p is the z of before. */
static void add_noise(dra_sampler *s, int64_t n, const dra_gumbel *noise)
{
    const uint64_t seed = s->c.seed + noise->stream;
    for (int64_t i = 0; i < n; i++) {
        choice        *at = &s->at[i];
        const uint32_t which[2] = {(uint32_t)at->id, noise->beam + 1}; /* 0, 0: of a draw */
        const double   u = uniform(seed, noise->position, which);      /* 0: -infinity, the last */
        at->p = at->z;
        at->z = at->z / s->c.temperature - log(-log(u));
    }
}

int64_t dra_sampler_rank(dra_sampler *s, const dra_real *logits, const bool *seen,
                         const dra_gumbel *noise, int64_t most, dra_ranked *out)
{
    double max, log_sum;
    if (find_best(s, logits, seen, &max) < 0) return -1;
    int64_t n = weigh_all(s, logits, seen, max, &log_sum);
    if (noise) {
        n = weigh(s, logits, seen, max);
        add_noise(s, n, noise);
    }
    if (most > n) most = n;
    keep_best(s->at, n, most, 0);
    for (int64_t i = 0; i < most; i++) out[i] = (dra_ranked){s->at[i].p - log_sum, s->at[i].id};
    return most;
}
