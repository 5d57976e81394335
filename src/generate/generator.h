/* A generator, as its files see it: generator.c, and state_file.c for its files. */
#ifndef DRA_SRC_GENERATE_GENERATOR_H
#define DRA_SRC_GENERATE_GENERATOR_H

#include "generate/engine.h"
#include "sequence/states.h"

typedef struct dra_generator_row {
    dra_generator     *of;
    dra_saved         *state;  /* what it has read; NULL: nothing */
    dra_grammar_state *place;  /* of a grammar: how far the text has come; NULL: it begins */
    bool               seeded; /* it draws with a seed of its own */
    uint64_t           seed;

    uint64_t     job; /* that runs */
    bool         running;
    bool         ended; /* a text is to be handed out */
    dra_error    error; /* why its job failed */
    dra_finish   finish;
    dra_ids      ids;      /* written by this call of dra_generate */
    int64_t      top;      /* log-probabilities besides each token's own; 0: none at all */
    dra_logprob *logprobs; /* (ids.n, 1 + top) */
    size_t       logprob_room;
    dra_beam    *beams; /* (n_beams) */
    int64_t      n_beams;
} dra_generator_row;

struct dra_generator {
    dra_generator_config       config;
    int64_t                    V;
    dra_engine                *engine;
    dra_generator_row         *row;  /* (rows) */
    const dra_generate_config *call; /* that is going on */
    int64_t                    drafted, accepted;
};

/* All rows, each of which must have read something; to be released by dra_context_free(). */
dra_status dra_generator_keep_all(dra_generator *g, dra_context *out, dra_error *err);
/* The rows become the sequences of a context of one, or of as many; after an error they stay. */
dra_status dra_generator_adopt_all(dra_generator *g, const dra_context *c, dra_error *err);

#endif
