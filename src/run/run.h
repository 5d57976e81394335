/* What the files of this layer share. */
#ifndef DRA_SRC_RUN_H
#define DRA_SRC_RUN_H

#include "dra/train.h"

/* ---- a step without a host read in between: begin, add each microbatch, update, collect -------- */

/* Numbers that a program puts out for each chunk, a real each (the last is an i32). */
enum { DRA_METRIC_LOSS, DRA_METRIC_AUX, DRA_METRIC_CLAMPED = 1 + DRA_AUX_COUNT, DRA_METRICS };

/* Gradients become 0, unless `add`; nothing is recorded yet. */
dra_status dra_gradients_begin(dra_gradients *l, bool add, dra_error *err);
/* Starts a microbatch, whose gradients are added. */
dra_status dra_gradients_add(dra_gradients *l, const dra_microbatch *lesson, dra_error *err);
/* Waits for all of them and reads what they put out, one result for each. */
dra_status dra_gradients_collect(dra_gradients *l, int n, dra_microbatch_result *out,
                                 dra_error *err);

/* Starts the step of an optimizer on the gradients of a learner, to be collected after that one. */
dra_status dra_optimizer_start(dra_optimizer *o, dra_weights *w, dra_gradients *l, double rate,
                               int64_t step, dra_error *err);
dra_status dra_optimizer_collect(dra_optimizer *o, double *norm, dra_error *err);

/* The gradient of parameter i; the null span: it is not trained. */
dra_span dra_gradients_span(const dra_gradients *l, int i);
/* Metrics of all chunks since dra_gradients_begin(): (rows, DRA_METRICS) reals. */
dra_span     dra_gradients_metrics(const dra_gradients *l, int64_t *rows);
dra_session *dra_gradients_session(const dra_gradients *l);

/* Where the tensors of trained parameters are in a block of all of them, on 64 bytes each; SIZE_MAX:
 * not trained. Returns the bytes of the block; offset: one for each parameter. */
size_t dra_trained_offsets(const dra_specs *params, size_t *offset);

#endif
