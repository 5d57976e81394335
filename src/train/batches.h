/* Batches inside: rows of texts from a feed, or of examples by their names. */
#ifndef DRA_SRC_TRAIN_BATCHES_H
#define DRA_SRC_TRAIN_BATCHES_H

#include "train/objective.h"

typedef struct dra_example_stream {  /* what a stack reads of examples */
    const dra_model_config *of;      /* the stack */
    const char             *name;    /* the input of the graph */
    const char             *tensor;  /* the tensor of the examples */
    const char             *other;   /* of rows 1, 3, ..., where these are pairs; NULL: the same */
    const char             *mask;    /* the tensor that says which are there; NULL: none */
    int64_t                 N;       /* tokens or vectors of an example */
    int64_t                 most;    /* of these are read */
    int64_t                 numbers; /* of each of them: 1 of ids; of an image, of all of it */
    int32_t                *ids;     /* (B, N), as read; of tokens */
    dra_real               *x;       /* (B, N, numbers); of vectors and images */
    int32_t                *there;   /* (B, N): the mask, as read */
    int64_t                *length;  /* (B): up to the last that is there */
    int32_t                *ids_out; /* (B, T) */
    dra_real               *x_out;   /* (B, T, numbers) */
    int32_t                *mark;    /* (B, T) */
} dra_example_stream;

typedef struct dra_example_before { /* what comes before a text; stream.of NULL: nothing does */
    dra_example_stream stream;
    int32_t           *mark, *targets; /* (B, P + T): those of both */
} dra_example_before;

struct dra_batches {
    dra_batches_config   c;
    const dra_objective *objective;
    dra_feed            *feed;
    dra_examples        *examples;
    uint64_t             fingerprint; /* of examples, which takes a look at all of them */
    int64_t              longest;     /* T */
    int64_t              first, n;    /* rows of a text that are read */
    int64_t             *rows;        /* of examples */
    int32_t             *ids, *targets, *mark;
    double              *counts;
    dra_example_stream   main, context;          /* context.of NULL: there is none */
    dra_example_before   before, before_context; /* of each of these */
    int32_t             *labels;
    dra_real            *y, *weights, *nums, *nums_out, *numbers;
    int32_t             *prompt;        /* (B, N): of pairs; NULL: all counts */
    int32_t             *prefix;        /* (B): of models with prefixes; NULL: they have none */
    dra_real            *condition;     /* (B, width); NULL: the model has none */
    dra_real            *reference;     /* (B): of pairs */
    const dra_real      *all_reference; /* (examples, 2), borrowed; NULL: zeros */
};

/* Texts: only these rows are read from now on; of the others nothing counts. */
void dra_batches_take_part(dra_batches *b, int64_t first, int64_t n);
bool dra_batches_reads_part(const dra_batches *b);

/* Mean log probabilities of pairs of texts by weights as they are: (examples, 2), to be freed. */
dra_status dra_reference_make(dra_device *device, const dra_weights *w, const dra_batches_config *c,
                              dra_real **out, dra_error *err);

/* Finds the tensors that the model and the objective need, and looks at all their numbers. */
dra_status dra_batches_open_examples(dra_batches *b, dra_error *err);
/* Reads b->rows of a stream; *T: how long they have to be. */
dra_status dra_batches_stream(dra_batches *b, dra_example_stream *s, int64_t shift, int64_t *T,
                              dra_error *err);
/* The first T of its rows, marked; and as an input of a batch. */
void dra_batches_put_stream(const dra_batches *b, dra_example_stream *s, int64_t shift, int64_t T);
void dra_batches_add_stream(const dra_batches *b, const dra_example_stream *s, int64_t T,
                            dra_batch *q);
/* Their numbers, after the stream `main`: finite where a token is a number. */
dra_status dra_batches_numbers(const dra_batches *b, dra_error *err);
/* Where a row has no token, 0 is read and nothing learned, whatever an objective has hidden. */
void       dra_batches_leave_gaps(const dra_batches *b, dra_batch *q);
dra_status dra_batches_read_examples(dra_batches *b, int64_t i, dra_batch *out, dra_error *err);

/* What is prepended to a text (batches_prepend.c): its memory, once its stream is open; its input;
 * and then a batch, or the context of one, becomes P tokens longer. */
dra_status dra_batches_room_before(dra_batches *b, dra_example_before *p,
                                   const dra_example_stream *text, dra_error *err);
dra_status dra_batches_read_before(dra_batches *b, dra_example_before *p, dra_batch *q,
                                   dra_error *err);
void       dra_batches_join_context(const dra_batches *b, dra_batch *q);
void       dra_batches_join_text(const dra_batches *b, dra_batch *q);

#endif
