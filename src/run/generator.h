/* A generator taken apart, as its two files see it: generator.c reads and picks tokens, generate.c
 * turns them into text and knows when to finish. */
#ifndef DRA_SRC_RUN_GENERATOR_H
#define DRA_SRC_RUN_GENERATOR_H

#include "run/text_stream.h"

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
    dra_real            *logits;     /* (rows, V): what follows the last token read */
    bool                *seen;       /* (rows, V): tokens read */
    int32_t             *ids, *mark; /* (rows) of a step */
};

/* One row that has picked nothing reads tokens; the others stay as they are. */
dra_status dra_generator_feed(dra_generator *g, int64_t row, size_t n, const int32_t *ids,
                              dra_error *err);
/* Reads what is picked in all rows. */
dra_status dra_generator_flush_pending(dra_generator *g, dra_error *err);
/* Picks the next token of every live row. */
dra_status dra_generator_pick(dra_generator *g, dra_error *err);
/* Whether a row can read n tokens besides the one it has picked. */
bool dra_generator_fits(const dra_generator *g, int64_t row, size_t n);

dra_status dra_snapshot_take(dra_generator *g, int64_t row, dra_error *err);
dra_status dra_snapshot_restore(dra_generator *g, int64_t row, dra_error *err);
void       dra_snapshot_drop(dra_snapshot *s);

#endif
