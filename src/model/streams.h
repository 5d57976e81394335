/* Several residual streams, see streams.c. */
#ifndef DRA_SRC_MODEL_STREAMS_H
#define DRA_SRC_MODEL_STREAMS_H

#include "dra/stack.h"

enum { DRA_STREAM_PARAMS = 7, DRA_STREAMS_MOST = 64 };

typedef struct dra_streams { /* parameters of a sublayer by handle */
    int at[DRA_STREAM_PARAMS];
} dra_streams;

typedef struct dra_streams_rest { /* what is left when the core has its input */
    dra_value x;                  /* (B, T, S, C), mixed          */
    dra_value share;              /* (B, T, S, 1): of o, for each */
} dra_streams_rest;

/* Those of sublayer number `index`. */
void        dra_streams_declare(int64_t S, int64_t C, int64_t index, dra_specs *params);
dra_streams dra_streams_find(const dra_specs *params);
/* What the core reads of x (B, T, S, C): (B, T, C). */
dra_value dra_streams_read(dra_graph *g, const dra_streams *s, const dra_value *param, dra_value x,
                           dra_streams_rest *rest);
dra_value dra_streams_join(dra_graph *g, const dra_streams_rest *rest, dra_value o);
/* Copies of x (B, T, C) with offsets (S, C); the sum of streams, x itself where there is one. */
dra_value dra_streams_open(dra_graph *g, dra_value offsets, dra_value x);
dra_value dra_streams_close(dra_graph *g, dra_value x);

#endif
