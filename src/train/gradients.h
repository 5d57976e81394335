/* What computes gradients, inside: a session, the gradients themselves, and the numbers that its
 * programs put out. */
#ifndef DRA_SRC_TRAIN_GRADIENTS_H
#define DRA_SRC_TRAIN_GRADIENTS_H

#include "base/shape.h"
#include "dra/train.h"
#include "model/model.h"
#include "train/objective.h"
#include "sequence/module.h"

/* ---- a step without a host read: begin, add each microbatch, update, collect ----------------- */

/* Numbers that a program puts out for each chunk, a real each, but i32 for what was clamped. */
enum {
    DRA_METRIC_LOSS,
    DRA_METRIC_AUX,
    DRA_METRIC_CLAMPED = 1 + DRA_AUX_COUNT,
    DRA_METRIC_MEASURE,
    DRA_METRICS = DRA_METRIC_MEASURE + DRA_MEASURES
};

/* Gradients become 0, unless `add`; nothing is recorded yet. */
dra_status dra_gradients_begin(dra_gradients *l, bool add, dra_error *err);
/* Starts a microbatch, whose gradients are added. */
dra_status dra_gradients_add(dra_gradients *l, const dra_microbatch *microbatch, dra_error *err);
/* Starts the step of an optimizer on gradients, to be collected with them. */
dra_status dra_optimizer_start(dra_optimizer *o, dra_weights *w, dra_gradients *l, double rate,
                               int64_t step, dra_error *err);
/* Waits for all of it, once, and reads what the microbatches put out, one result for each, and the
 * norm of the gradients from an optimizer that was started on them (NULL: none was). */
dra_status dra_gradients_collect(dra_gradients *l, int n, dra_microbatch_result *out,
                                 dra_optimizer *o, double *norm, dra_error *err);
dra_span   dra_optimizer_norm(const dra_optimizer *o); /* a real */

/* Blocks of gradients, of which the first is that of dra_gradients_span(): at least n of them. */
dra_status dra_gradients_reserve(dra_gradients *l, int n, dra_error *err);
/* Microbatches add to this block from now on; `clear`: to zeros. */
dra_status dra_gradients_into(dra_gradients *l, int block, bool clear, dra_error *err);
dra_span   dra_gradients_block(const dra_gradients *l, int block);
/* Another rank has a loss that is not finite: the optimizer must change nothing. */
dra_status dra_gradients_spoil(dra_gradients *l, dra_error *err);

/* The gradient of parameter i; the null span: it is not trained. */
dra_span dra_gradients_span(const dra_gradients *l, int i);
/* Metrics of all chunks since dra_gradients_begin(): (rows, DRA_METRICS) reals. */
dra_span     dra_gradients_metrics(const dra_gradients *l, int64_t *rows);
dra_session *dra_gradients_session(const dra_gradients *l);

/* Offsets of trained parameters in a block of all of them, multiples of 64 bytes; SIZE_MAX: not
 * trained. Returns the bytes of the block; offset: one for each parameter. */
size_t dra_trained_offsets(const dra_specs *params, size_t *offset);

/* ---- inside ---------------------------------------------------------------------------------- */

typedef struct dra_gradients_names { /* numbers in the session */
    int              *param, *state;
    int              *sum;      /* of gradients, by parameter */
    int              *upstream; /* of gradients of states */
    dra_token_names   tokens;
    dra_context_names context;
    int               ids, random, at, given_at, share, part;
    int               targets; /* -1: the objective has none */
    int               metric[DRA_METRICS];
} dra_gradients_names;

typedef struct dra_metric_row { /* of metrics: what its numbers count for */
    int    microbatch;
    double targets, tokens; /* its part of those of its microbatch */
} dra_metric_row;

struct dra_gradients {
    dra_gradients_config      config;
    dra_module                module;
    const dra_objective      *objective;
    const dra_specs          *params, *state;
    dra_session              *session;
    dra_gradients_names       name;
    dra_array               **lent;         /* weights that are not in arrays of their own */
    dra_array               **block;        /* gradients of all parameters, one after the other */
    int                       blocks, into; /* how many, and where microbatches add them */
    size_t                   *offset; /* in it, in bytes; SIZE_MAX: the parameter is not trained */
    bool                      bound;
    dra_real                 *zeros; /* as many as the largest parameter that is not trained has */
    void                     *seen;  /* the gradients, where the host has to have a copy */
    size_t                    seen_room;
    bool                      fresh; /* the copy is of now */
    dra_array                *metrics;
    dra_metric_row           *rows; /* of metrics, since dra_gradients_begin() */
    int                       n_rows, rows_room, microbatches;
    int64_t                  *counts;                   /* targets that count, by microbatch */
    size_t                    chunk_bytes, carry_bytes; /* of states, by dra_gradients_bytes() */
    struct dra_gradients_key *key;                      /* of the last program */
    dra_extents               extents;
    dra_context_extents       context; /* of a microbatch that has one */
    int                       options; /* of the program being built */
    int32_t                  *starts;
};

typedef struct dra_gradients_key { /* what a program is compiled for */
    int64_t         B, T, inner;   /* tokens that are given, and those that layers see */
    int64_t         marks, max_event, kind, options;
    dra_context_key context;
    int64_t         rows[]; /* of each state */
} dra_gradients_key;

size_t dra_gradients_key_bytes(const dra_gradients *l);

enum { MARKED = 1, SKIPS = 2, HOLES = 4 };           /* marks of a key */
enum { CLAMP = 1, DROPOUT = 2, LOSS = 4, ONLY = 8 }; /* and its options; ONLY the loss */
enum {
    FRESH,   /* rows start from nothing; gradients                  */
    CARRIED, /* states come in and go out; gradients, not of states */
    THROUGH, /* states come in; gradients of all                    */
    FORWARD  /* states come in and go out; no loss                  */
};

/* The name of a metric in the graph, and that of a measure of the loss. */
const char *dra_metric_name(char text[DRA_NAME_TEXT], int metric);
const char *dra_measure_name(char text[DRA_NAME_TEXT], int measure);

/* A call as a model sees it that learns: with random numbers, also for its context. */
typedef struct dra_learning {
    dra_module_call call, context;
} dra_learning;
void dra_gradients_learning(dra_graph *g, const dra_gradients *l, const dra_module_call *call,
                            dra_learning *out);

/* The model with its loss as a module's own nodes; `self` is a dra_gradients. */
void dra_gradients_microbatch(dra_graph *g, const void *self, const dra_module_call *call,
                              dra_value *state_out);

/* Builds the program of a key: for dra_session_create(), `user` is a dra_gradients. */
void dra_gradients_build(dra_graph *g, void *user, const void *key, size_t bytes);

#endif
