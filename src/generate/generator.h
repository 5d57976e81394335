/* A generator taken apart, as its files see it: generator.c reads tokens, contrast.c has the
 * amateurs, constrain.c knows which tokens may follow and picks one, generate.c turns tokens into
 * text and knows when to finish, beam.c searches. */
#ifndef DRA_SRC_GENERATE_GENERATOR_H
#define DRA_SRC_GENERATE_GENERATOR_H

#include "generate/grammar/grammar.h"
#include "generate/picker.h"
#include "generate/sample.h"
#include "generate/text_stream.h"

typedef struct dra_snapshot { /* of a row, to go back to */
    dra_context kept;         /* one sequence; states NULL: there is none */
    size_t      ids;          /* how many tokens it had written */
} dra_snapshot;

typedef struct dra_row {
    bool            begun; /* it has read something: its logits are there */
    int32_t         next;  /* picked and not yet read; -1: none */
    bool            live;  /* not finished */
    dra_finish      finish;
    dra_ids         ids;   /* written by this call of dra_generate */
    size_t          bytes; /* of their text */
    dra_text_stream outlet;
    dra_snapshot    back;
    bool            open;   /* writing, or finished and not yet handed out */
    int64_t         most;   /* tokens to write; 0: as many as there is room for */
    int64_t         top;    /* log-probabilities besides each token's own; 0: none at all */
    bool            seeded; /* it draws with a seed of its own */
    uint64_t        seed;
    dra_logprob    *logprobs; /* (ids.n, 1 + top) */
    size_t          logprob_room;
    /* Of a grammar: how far the text has come, and had when this call of dra_generate began. */
    dra_grammar_state *place, *origin;
} dra_row;

struct dra_generator {
    dra_generator_config config;
    int64_t              V;
    dra_view             view;
    dra_reader          *reader;
    dra_sampler         *sampler;
    dra_states          *states;
    dra_states          *one; /* for reading with one row of several; NULL: there is but one */
    dra_row             *row;
    dra_picker          *picker; /* logits that follow the last token read, and tokens read */
    dra_sample_row      *how;    /* (rows) of a step, as these */
    int32_t             *ids, *mark;
    dra_generator      **amateur;    /* config.n_amateurs, of the same rows */
    dra_real            *contrasted; /* (V); NULL: no amateurs */
    dra_generator       *wide;       /* rows for the beams of a search; NULL: none yet */
    int64_t              clamped;    /* by others before it */
    dra_constraint      *constraint; /* NULL: no grammar */
    bool                *allowed;    /* (rows, V): by the grammar */
    dra_real            *offered;    /* (V): logits with bias and grammar */
};

/* One row that has picked nothing reads tokens; the others stay as they are. */
dra_status dra_generator_feed(dra_generator *g, int64_t row, size_t n, const int32_t *ids,
                              dra_error *err);
/* Starts to read what is picked in all rows. What goes wrong inside shows where logits are looked
 * at, or something is picked. */
dra_status dra_generator_flush_pending(dra_generator *g, dra_error *err);
/* Picks the next token of every live row, or finishes it where its grammar ends. */
dra_status dra_generator_pick(dra_generator *g, const dra_generate_config *c, dra_error *err);
/* What is added to the sampler's seed for a row. */
uint64_t dra_generator_stream(const dra_generator *g, int64_t row);
/* Row `to` becomes as row `from` of `other`, which may be another generator of the same models. */
dra_status dra_generator_take(dra_generator *g, int64_t to, const dra_generator *other,
                              int64_t from, dra_error *err);
/* Logits and tokens of a row, whose state is already there, become those of a sequence. */
dra_status dra_generator_adopt(dra_generator *g, int64_t row, const dra_context *c, int64_t from,
                               dra_error *err);
/* The logits of a row, and after them those of the rows after it, as the host sees them, until
 * something is read. */
dra_status dra_generator_see(dra_generator *g, int64_t row, dra_real **out, dra_error *err);
/* Whether a row can read n tokens besides the one it has picked. */
bool dra_generator_fits(const dra_generator *g, int64_t row, size_t n);

/* ---- amateurs: contrast.c -------------------------------------------------------------------- */

/* What the config says about contrast, and whether a sampler goes with it. */
dra_status dra_contrast_check(const dra_generator_config *c, const dra_sampler_config *sampler,
                              dra_error *err);
dra_status dra_amateurs_create(dra_generator *g, dra_error *err);
void       dra_amateurs_destroy(dra_generator *g);
/* Amateurs read what is picked, as the generator does. */
dra_status dra_amateurs_flush(dra_generator *g, dra_error *err);
/* What the sampler sees of a row whose logits are *logits: contrasted logits and, in *seen, the
 * tokens its penalty is for. Good until the next call. */
dra_status dra_generator_view(dra_generator *g, int64_t row, const dra_real **logits,
                              const bool **seen, dra_error *err);

/* ---- tokens that may follow: constrain.c ----------------------------------------------------- */

dra_status dra_generator_constrain(dra_generator *g, dra_error *err); /* as the config says */
void       dra_generator_unconstrain(dra_generator *g);
void       dra_row_begin_text(dra_row *r); /* its grammar is at the beginning */
dra_status dra_row_set_place(dra_row *r, const dra_grammar_state *s, dra_error *err);
/* A token is appended to the text of a row. */
dra_status dra_generator_advance(dra_generator *g, int64_t row, int32_t id, dra_error *err);
/* Whether the text of a row is complete, and nothing can follow. */
dra_status dra_generator_must_end(dra_generator *g, int64_t row, bool *must, dra_error *err);

typedef struct dra_offer { /* as dra_generator_view() gives it */
    const dra_real *logits;
    const bool     *seen;
    bool            ended; /* no token may follow: the text ends here, and there are no logits */
} dra_offer;

/* Which tokens the grammar of a row allows, in its part of g->allowed; *ended: none, and the text
 * may end here. */
dra_status dra_generator_allow(dra_generator *g, const dra_generate_config *c, int64_t row,
                               bool *ended, dra_error *err);
dra_status dra_generator_offer(dra_generator *g, const dra_generate_config *c, int64_t row,
                               dra_offer *out, dra_error *err);
/* Why nothing could be picked of an offer. `what` begins the error. */
dra_status dra_generator_refuse(dra_generator *g, const char *what, int64_t row, dra_error *err);
/* Notes the log-probabilities of the last token of a row, which is not read yet; not picked: none
 * are known. top 0: nothing. */
dra_status dra_generator_log(dra_generator *g, int64_t row, int64_t top, bool picked,
                             dra_error *err);

/* ---- going back ------------------------------------------------------------------------------ */

dra_status dra_snapshot_take(dra_generator *g, int64_t row, dra_error *err);
dra_status dra_snapshot_restore(dra_generator *g, int64_t row, dra_error *err);
void       dra_snapshot_drop(dra_snapshot *s);

/* ---- text: generate.c ------------------------------------------------------------------------ */

dra_status dra_ids_add(dra_ids *ids, int32_t id, dra_error *err);
/* The bytes a token gives: none, if it is special or there is no text. */
const char *dra_generator_piece(const dra_generator *g, int32_t id, size_t *bytes);
/* Whether a token ends a text. */
bool dra_generate_ends(const dra_generator *g, const dra_generate_config *c, int32_t id);
/* Whether all rows have read something to continue from. */
dra_status dra_generator_begun(const dra_generator *g, dra_error *err);

/* "the text has N tokens, ...": more than there are positions for, after `before` of them. */
dra_status dra_fail_positions(int64_t n, int64_t before, int64_t positions, dra_error *err);

#endif
