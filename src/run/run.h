/* What the files of this layer share. */
#ifndef DRA_SRC_RUN_H
#define DRA_SRC_RUN_H

#include "dra/train.h"

/* ---- a step without a host read in between: begin, add each microbatch, update, collect -------- */

/* Numbers that a program puts out for each chunk, a real each (the last is an i32). */
enum { DRA_METRIC_LOSS, DRA_METRIC_WATCH, DRA_METRIC_GUARDED = 1 + DRA_WATCH_COUNT, DRA_METRICS };

/* Gradients become 0, unless `add`; nothing is recorded yet. */
dra_status dra_learner_begin(dra_learner *l, bool add, dra_error *err);
/* Starts a microbatch, whose gradients are added. */
dra_status dra_learner_add(dra_learner *l, const dra_lesson *lesson, dra_error *err);
/* Waits for all of them and reads what they put out, one result for each. */
dra_status dra_learner_collect(dra_learner *l, int n, dra_lesson_result *out, dra_error *err);

/* Starts the step of an optimizer on the gradients of a learner, to be collected after that one. */
dra_status dra_optimizer_start(dra_optimizer *o, dra_weights *w, dra_learner *l, double rate,
                               int64_t step, dra_error *err);
dra_status dra_optimizer_collect(dra_optimizer *o, double *norm, dra_error *err);

/* The gradient of parameter i; the null span: it is not trained. */
dra_span dra_learner_gradient_span(const dra_learner *l, int i);
/* Metrics of all chunks since dra_learner_begin(): (rows, DRA_METRICS) reals. */
dra_span     dra_learner_metrics(const dra_learner *l, int64_t *rows);
dra_session *dra_learner_session(const dra_learner *l);

/* Where the tensors of trained parameters are in a block of all of them, on 64 bytes each; SIZE_MAX:
 * not trained. Returns the bytes of the block; offset: one for each parameter. */
size_t dra_trained_offsets(const dra_specs *params, size_t *offset);

#endif
