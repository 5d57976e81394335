/* Transformer-XL [Dai et al. 2019]: what an attention sublayer was fed in earlier segments. */
#ifndef DRA_SRC_MODEL_XL_H
#define DRA_SRC_MODEL_XL_H

#include "model/model.h"

dra_status dra_xl_check(const dra_model_config *c, dra_error *err);
/* The same once the stack is there. */
dra_status dra_xl_check_stack(const dra_model *m, dra_error *err);
/* Adds the state "X" of a sublayer and returns its number; -1: it has none. */
int dra_xl_declare(const dra_sublayer_config *c, dra_specs *state);
/* That of a sublayer; -1: it has none. */
int dra_sublayer_xl(const dra_sublayer *s);

/* A table X as a call finds it, where `from` is the one whose rows its memory comes from. */
dra_value dra_xl_turn(dra_graph *g, const dra_tokens *tokens, dra_value table, dra_value from);
/* The states of a model for a call: tables X at the start of a segment, all at once since they read
 * each other. `room` for all; returns what to use. */
const dra_value *dra_xl_turn_all(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 dra_value *room);
/* Writes x (B, T, C) into such a table; returns what is seen of its memory (B, seen, C) where
 * a segment starts, else none. */
dra_value dra_xl_memory(dra_graph *g, const dra_tokens *tokens, dra_value table, dra_value x,
                        dra_value *state_out);

#endif
