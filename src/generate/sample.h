/* What generators do with a sampler besides picking. */
#ifndef DRA_SRC_GENERATE_SAMPLE_H
#define DRA_SRC_GENERATE_SAMPLE_H

#include "dra/generate.h"

/* The logits (vocab) with the bias; tokens that are not allowed (NULL: all are) get -infinity. out
 * may be x. */
void dra_sampler_bias(const dra_sampler *s, const dra_real *x, const bool *allowed, dra_real *out);
/* The bias of each token (vocab); NULL: there is none. */
const dra_real *dra_sampler_biases(const dra_sampler *s);
/* What it does with a row, for the op `sample`; stream and position as for dra_sampler_pick(). */
dra_sample_row dra_sampler_row(const dra_sampler *s, uint64_t stream, int64_t position);
/* dra_sampler_pick() of logits that have their bias. */
int32_t dra_sampler_choose(dra_sampler *s, const dra_real *logits, const bool *seen,
                           uint64_t stream, int64_t position);
/* The log-probability of a token by the logits as they are. */
double dra_sampler_logprob(const dra_sampler *s, const dra_real *logits, int32_t id);

/* The logits (vocab) after the repetition penalty; out may be x. */
void dra_sampler_penalise(const dra_sampler *s, const dra_real *x, const bool *seen, dra_real *out);

typedef struct dra_ranked {
    double  log_prob; /* after the penalty, before temperature and filters */
    int32_t id;
} dra_ranked;

typedef struct dra_gumbel { /* what decides about the noise of a token, besides its id */
    uint64_t stream;        /* these two as for dra_sampler_pick() */
    int64_t  position;
    uint32_t beam;
} dra_gumbel;

/* Up to `most` tokens that may follow, the best first, of logits that have their bias. Without
 * noise (NULL) the most likely ones, equal ones by id; with noise filters and temperature apply and
 * the best are those for which x / temperature - log(-log u) is largest. Returns how many; -1 where
 * dra_sampler_pick() does. */
int64_t dra_sampler_rank(dra_sampler *s, const dra_real *logits, const bool *seen,
                         const dra_gumbel *noise, int64_t most, dra_ranked *out);

#endif
