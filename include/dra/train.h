/* dra/train.h - learning: the loss of a model on a batch, its gradients, the optimizer.
 *
 * Flow:    a dra_learner runs lessons: tokens with targets go in, the loss comes out, gradients are
 *          added up in its own memory. A dra_optimizer takes them and changes the weights.
 * State:   rows start anew, or go on from a dra_states. A lesson may be read in chunks: the gradient
 *          then runs back through the borders of the chunks and equals that of the whole, at the
 *          memory of one chunk.
 * Threads: one thread at a time uses a learner or an optimizer. */
#ifndef DRA_TRAIN_H
#define DRA_TRAIN_H

#include "dra/model.h"
DRA_BEGIN_C

/* ---- lessons --------------------------------------------------------------------------------- */

typedef struct dra_learner dra_learner; /* opaque: programs by shape, and the gradients */

typedef struct dra_learner_config {
    const dra_model *model; /* borrowed, as is the device */
    dra_device      *device;
    dra_precision    precision; /* of products */
    bool             recompute; /* keep only what goes into each layer, compute the rest again */
    double           smoothing; /* of targets */
} dra_learner_config;

DRA_API dra_status dra_learner_create(const dra_learner_config *config, dra_learner **out,
                                      dra_error *err);
DRA_API void       dra_learner_destroy(dra_learner *l); /* NULL is allowed */
/* Weights must outlive the learner or be bound anew. Call it also after changing them in place. */
DRA_API dra_status dra_learner_bind(dra_learner *l, const dra_weights *w, dra_error *err);

typedef struct dra_lesson {
    int64_t        B, T;
    const int32_t *ids, *targets; /* (B, T); target -1: does not count */
    const int32_t *mark;          /* (B, T) or NULL */
    dra_states    *states;        /* go on from here, and stay where the lesson ends; NULL: anew */
    int            chunks;        /* read in chunks of these lengths, which add up to T; 0: whole */
    const int64_t *chunk;
    /* Gradients are those of share * (mean loss): a batch in several lessons gives each its part of
     * the targets that count. 0: 1. */
    double   share;
    bool     add;        /* to the gradients that are there; else they start anew */
    uint64_t seed, step; /* of dropout */
} dra_lesson;

typedef struct dra_lesson_result {
    double  loss;  /* mean over the targets that count; 0 if none does */
    int64_t count; /* of these */
} dra_lesson_result;

DRA_API dra_status dra_learner_run(dra_learner *l, const dra_lesson *lesson, dra_lesson_result *out,
                                   dra_error *err);
/* The gradient of parameter i, dense; zeros for what is not trained. */
DRA_API const dra_real *dra_learner_gradient(const dra_learner *l, int i);
/* Bytes a lesson of this shape needs beside weights and gradients; compiles it. */
DRA_API dra_status dra_learner_bytes(dra_learner *l, int64_t B, int64_t T, bool marked,
                                     bool carried, size_t *bytes, dra_error *err);

/* ---- the optimizer --------------------------------------------------------------------------- */

typedef struct dra_optimizer_config {
    double beta1, beta2, eps; /* 0: 0.9, 0.95, 1e-8                             */
    double decay;             /* of matrices of projections only                */
    double clip;              /* of the norm of all gradients; 0: none          */
} dra_optimizer_config;

typedef struct dra_optimizer dra_optimizer; /* opaque: AdamW with its two moments */

DRA_API dra_status dra_optimizer_create(const dra_optimizer_config *config, const dra_model *model,
                                        dra_device *device, dra_optimizer **out, dra_error *err);
DRA_API void       dra_optimizer_destroy(dra_optimizer *o); /* NULL is allowed */

/* One step with the gradients of the learner; step counts from 1. *norm: of the gradients before
 * clipping. Where it is not finite, weights and moments stay as they are. The learner sees the new
 * weights. */
DRA_API dra_status dra_optimizer_step(dra_optimizer *o, dra_weights *w, dra_learner *l, double rate,
                                      int64_t step, double *norm, dra_error *err);
/* Moments m (which = 0) and v (1) of parameter i, to save and to load; NULL: it is not trained. */
DRA_API dra_real *dra_optimizer_moment(dra_optimizer *o, int i, int which);

DRA_END_C
#endif
