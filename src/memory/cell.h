/* What gru, lstm and slots with gru candidates share: weights W_i, W_h (gates W, W) and two biases
 * for each stream, one cell for all heads or one for each, and a gamma for all streams. */
#ifndef DRA_SRC_MEMORY_CELL_H
#define DRA_SRC_MEMORY_CELL_H

#include "memory/memory.h"

enum { DRA_W_IH, DRA_W_HH, DRA_B_IH, DRA_B_HH, DRA_CELL_PARAMS }; /* of a stream, in order */

/* A gamma per channel serves streams of one width only. */
dra_status dra_cell_check(const dra_memory_sizes *s, const char *name, dra_error *err);

/* The cell of stream i; the input bias of gate `keep` starts at 1, which favours keeping. */
void dra_cell_declare(const dra_memory_sizes *s, int i, int gates, int keep, const char *prefix,
                      dra_specs *params);
/* A state (H, width) called what_stream. */
void dra_cell_declare_state(const dra_memory_sizes *s, int i, const char *what, const char *prefix,
                            dra_specs *state);

/* W x + b for x (B, ..., H, width): `weight` and `bias` of the cell of stream i. */
dra_value dra_cell_linear(dra_graph *g, const dra_memory_call *c, int i, int weight, dra_value x);
/* W_i x + b_i + W_h h + b_h. */
dra_value dra_cell_gates(dra_graph *g, const dra_memory_call *c, int i, dra_value x, dra_value h);
/* A step of the GRU from h, its candidate; x (B, H, width), h (B, H, width) or (B, H, S, width). */
dra_value dra_cell_gru(dra_graph *g, const dra_memory_call *c, int i, dra_value x, dra_value h);

/* Decay logits of stream i as (H, width), which come after the cells of all streams. */
dra_value dra_cell_betas(dra_graph *g, const dra_memory_call *c, int i);
/* h + (1 - gamma) (new - h) */
dra_value dra_cell_mix(dra_graph *g, const dra_memory_call *c, int i, dra_value h, dra_value new);

#endif
