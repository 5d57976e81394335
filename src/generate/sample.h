/* What generators do with a sampler besides picking. */
#ifndef DRA_SRC_GENERATE_SAMPLE_H
#define DRA_SRC_GENERATE_SAMPLE_H

#include "ops/sampling/sample_row.h"
#include "dra/generate.h"

struct dra_sampler {
    dra_sampler_config c;
    int64_t            V;
    dra_choice        *at;     /* (V) */
    dra_real          *bias;   /* (V); NULL: none */
    int32_t           *met;    /* (V): of history.c, all 0 between calls; NULL: it has none */
    bool              *breaks; /* (V): tokens that no repetition goes across; NULL: none */
};

/* The bias of each token (vocab); NULL: there is none. */
const dra_real *dra_sampler_biases(const dra_sampler *s);
/* What dra_sampler_create() refuses. */
dra_status dra_sampler_check(const dra_sampler_config *c, int64_t vocab, dra_error *err);
/* Of what is no text from left to right: options that look at one are refused. */
dra_status dra_sampler_check_rows(const dra_sampler_config *c, dra_error *err);
/* What it does with a row, for the op `sample`; stream and position as for dra_sampler_pick(). */
dra_sample_row dra_sampler_row(const dra_sampler *s, uint64_t stream, int64_t position);
/* The logits (vocab) after the repetition penalty; out may be x. */
void dra_sampler_penalise(const dra_sampler *s, const dra_real *x, const bool *seen, dra_real *out);

/* ---- the text so far: history.c -------------------------------------------------------------- */

typedef struct dra_history {
    size_t         n_before; /* known tokens of the state it began from */
    const int32_t *before;
    size_t         n; /* those after them */
    const int32_t *ids;
    size_t         prompt; /* how many of these were not written */
} dra_history;

bool dra_sampler_open_history(dra_sampler *s); /* false: no memory */
/* Tokens of a tokenizer (NULL: none) that no repetition goes across, where it matters. */
dra_status dra_sampler_find_breaks(dra_sampler *s, const dra_tokenizer *t, dra_error *err);
/* Whether the text so far says something about the next token. */
bool dra_sampler_has_history(const dra_sampler *s);
/* Adds what it says to bias (V). Takes as long as the text, and no memory. */
void dra_sampler_add_history(const dra_sampler *s, const dra_history *text, dra_real *bias);

/* ---- ranks ----------------------------------------------------------------------------------- */

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
