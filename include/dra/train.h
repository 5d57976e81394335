/* dra/train.h - learning: the loss of a model on a batch, its gradients, the optimizer.
 *
 * Flow:    a dra_gradients runs microbatches: tokens with targets go in, the loss comes out,
 *          gradients are accumulated in its own memory. A dra_optimizer updates the weights by
 *          them.
 * State:   rows start fresh, or continue from a dra_states. A microbatch may be read in chunks: the
 *          gradient then passes through the borders of the chunks and equals that of the whole,
 *          with the memory of one chunk.
 * Threads: one thread at a time uses a dra_gradients or an optimizer. */
#ifndef DRA_TRAIN_H
#define DRA_TRAIN_H

#include "dra/comm.h"
#include "dra/data.h"
#include "dra/model.h"
DRA_BEGIN_C

/* ---- objectives: what a model learns from rows of tokens ------------------------------------- */

typedef enum dra_objective_kind {
    DRA_OBJECTIVE_OWN,      /* the model's own: next for a causal model, masked for an encoder */
    DRA_OBJECTIVE_NEXT,     /* every token predicts the next one; not for encoders */
    DRA_OBJECTIVE_MASKED,   /* some tokens are hidden and predicted from all others; for encoders */
    DRA_OBJECTIVE_CLASSES,  /* a label of the whole text or image: heads of classes          */
    DRA_OBJECTIVE_SQUARED,  /* every vector predicts the next one: the squared error         */
    DRA_OBJECTIVE_GAUSSIAN, /* the same by its mean and the logarithm of its variance, in turns */
    DRA_OBJECTIVE_XVAL,     /* next tokens, and next numbers where these are number tokens   */
    DRA_OBJECTIVE_DPO,      /* the first of two texts is preferred, relative to the initial model */
    DRA_OBJECTIVE_COUNT
} dra_objective_kind;

/* How many tokens of a row `masked` hides: the same share of all rows, or a random one for each
 * row, distributed as when a text is unmasked step by step (dra_unmask), u uniform in 0 to 1. */
typedef enum dra_mask_schedule {
    DRA_MASK_CONSTANT, /* mask_share          */
    DRA_MASK_LINEAR,   /* share 1 - u         */
    DRA_MASK_COSINE,   /* share cos(u pi / 2) */
    DRA_MASK_COUNT
} dra_mask_schedule;

typedef struct dra_objective_config {
    dra_objective_kind kind;
    /* For masked: the share of tokens that are predicted (0: 0.15). 80 % of them read the mask
     * token instead, 10 % a random one, 10 % themselves. mask_token 0: the model's own (mask_id of
     * x-transformers), else the last of the vocabulary; below 0: token 0. */
    double  mask_share;
    int64_t mask_token;
    bool    equal_rows; /* for squared: all rows count equally, and errors of a vector are added */
    double  number_weight; /* of xval: of squared errors of numbers; 0: 1, below 0: 0 */
    double  beta;          /* of dpo; 0: 0.1, below 0: 0 */
    /* For masked, in place of mask_share: exactly ceil(share n) of the n tokens of a row that are
     * not pads are hidden, and all of these read the mask token. */
    dra_mask_schedule mask_schedule;
} dra_objective_config;

/* Fills in defaults and refuses, by name, what the model cannot learn. */
DRA_API dra_status  dra_objective_complete(dra_objective_config *c, const dra_model *m,
                                           dra_error *err);
DRA_API const char *dra_objective_name(dra_objective_kind kind, const dra_model *m);

typedef struct dra_objective_rows { /* (B, T) as dra_feed_batch() gives them */
    int64_t        B, T;
    int32_t       *ids, *targets;
    const int32_t *mark;
    uint64_t       seed;
    int64_t        step, row; /* row b is number row + b of this step */
} dra_objective_rows;

/* Turns ids and targets into those of a complete config. Random numbers follow from seed, step, row
 * and position alone. To measure: seed DRA_EVAL_SEED, step 0, rows counted through all batches, so
 * that results of one text can be compared. */
DRA_API void dra_objective_make(const dra_objective_config *c, const dra_model *m,
                                const dra_objective_rows *rows);
enum { DRA_EVAL_SEED = 0x6576616c };

/* Measures shown besides the loss, by number: "accuracy", "error", "perplexity"; NULL: no more. */
enum { DRA_MEASURES_MOST = 2 };
DRA_API const char *dra_objective_measure(dra_objective_kind kind, const dra_model *m, int i);
/* Turns a mean loss and the means of a dra_microbatch_result into these measures, in place. */
DRA_API void dra_objective_show(dra_objective_kind kind, const dra_model *m, double loss,
                                double *measure);

/* ---- batches: what a model reads and learns from in a step ----------------------------------- */

typedef struct dra_batches dra_batches; /* opaque: of texts, or of examples by their names */

typedef struct dra_batches_config { /* all is borrowed */
    const dra_model     *model;
    dra_objective_config objective; /* complete */
    const dra_corpus    *corpus;    /* texts, or */
    const dra_examples  *examples;  /* with the inputs of the model and of the objective */
    int64_t              B, T;      /* for examples T is the most that is read of a row; 0: all */
    uint64_t             seed;
    double               from, to;     /* as of a feed */
    bool                 carry, cross; /* of texts */
    bool                 once;         /* to measure: one epoch, always with the same random
                                        * numbers */
    double               state_dropout, forgetful_mask; /* as of a dra_train_config */
    dra_progress         progress; /* of dra_batches_evaluate(), in batches; may be NULL */
    void                *user;     /* of progress */
} dra_batches_config;

enum { DRA_BATCH_INPUTS = 8 };

/* Tokens that a stack prepends to a text count in T, also for the context: then ids are an input of
 * their own, for the text alone. */
typedef struct dra_batch {
    int64_t          B, T;
    int32_t         *ids, *targets, *mark; /* (B, T); ids, targets: NULL where there are none */
    int              n_inputs;             /* further ones, (B, ...) each */
    dra_named        input[DRA_BATCH_INPUTS];
    dra_context_text context; /* T 0: none */
    double          *counts;  /* (B): how much of every row counts, see share */
    double           total;   /* of these */
    int64_t          tokens;  /* that are read */
    bool             marked;  /* marks are needed */
} dra_batch;

/* Checks all examples: an error names what is missing, misshapen, not finite or out of range. On
 * failure *out is NULL. */
DRA_API dra_status dra_batches_create(const dra_batches_config *c, dra_batches **out,
                                      dra_error *err);
DRA_API void       dra_batches_destroy(dra_batches *b); /* NULL is allowed */
/* Batch i, from 0 on; random numbers follow from `step`. Its arrays belong to `b`. */
DRA_API dra_status dra_batches_read(dra_batches *b, int64_t i, int64_t step, dra_batch *out,
                                    dra_error *err);
DRA_API int64_t    dra_batches_steps(const dra_batches *b);    /* of an epoch */
DRA_API int64_t    dra_batches_longest(const dra_batches *b);  /* T of any batch is at most this */
DRA_API int64_t    dra_batches_tokens(const dra_batches *b);   /* of the part; examples: rows T */
DRA_API int64_t    dra_batches_examples(const dra_batches *b); /* of the part; 0: it is a text */
DRA_API bool       dra_batches_marked(const dra_batches *b);   /* marks are needed */
DRA_API uint64_t   dra_batches_fingerprint(const dra_batches *b);

/* ---- gradients ------------------------------------------------------------------------------- */

typedef struct dra_gradients dra_gradients; /* opaque: programs by shape, and the gradients */

typedef struct dra_gradients_config {
    const dra_model   *model; /* borrowed, as is the device */
    dra_device        *device;
    dra_precision      precision; /* of products */
    bool               recompute; /* keep only the inputs of layers, recompute the rest */
    double             smoothing; /* of targets */
    double             l2wrap;    /* see dra_cross_entropy_config; RWKV-4's trainer has 1e-4 */
    dra_objective_kind objective; /* whose loss is built */
    /* Weights of auxiliary losses, which the model measures (`aux` of its config), by
     * dra_aux_kind. */
    double aux_loss[DRA_AUX_COUNT];
    /* Further settings of the objective, complete; its kind is ignored. */
    dra_objective_config terms;
} dra_gradients_config;

DRA_API dra_status dra_gradients_create(const dra_gradients_config *config, dra_gradients **out,
                                        dra_error *err);
DRA_API void       dra_gradients_destroy(dra_gradients *l); /* NULL is allowed */
/* Weights must outlive `l` or be replaced by another bind. Call it also after changing them in
 * place. */
DRA_API dra_status dra_gradients_bind(dra_gradients *l, const dra_weights *w, dra_error *err);

typedef struct dra_microbatch {
    int64_t        B, T;
    const int32_t *ids, *targets; /* (B, T); target -1: does not count */
    const int32_t *mark;          /* (B, T) or NULL */
    dra_states    *states;        /* continue from these, which then advance; NULL: fresh rows   */
    int            chunks;        /* read in chunks of these lengths, which add up to T; 0: whole */
    const int64_t *chunk;
    /* Gradients are those of share * (mean loss): if a batch has several microbatches, each has its
     * share of the targets that count. 0: 1. If no target counts, gradients are 0. */
    double   share;
    bool     add;        /* to the existing gradients; else they start at 0 */
    uint64_t seed, step; /* of dropout */
    bool     no_dropout;
    bool     clamp; /* holds states within bounds, see DRA_STATE_LIMIT */
    /* Further inputs of sources and of the objective by name, (B, ...) each, such as "x", "img",
     * "src", "labels"; ids and targets are NULL if the model and the objective have none; then
     * every token counts that is not a pad. Not in chunks. */
    int                     n_inputs;
    const dra_named        *inputs;
    const dra_context_text *context; /* of a model with a context: its text; fresh whole rows */
    /* To measure: no gradients, dropout, smoothing or l2wrap; with `add`, gradients stay as they
     * are. Whole rows only. */
    bool only_loss;
} dra_microbatch;

typedef struct dra_microbatch_result {
    double  loss;                       /* mean over the targets that count; 0 if none does */
    int64_t count;                      /* of these */
    double  aux[DRA_AUX_COUNT];         /* auxiliary losses; NaN: not measured */
    int64_t clamped;                    /* numbers of states that were clamped */
    double  measure[DRA_MEASURES_MOST]; /* values of the objective's own measures; else 0 */
} dra_microbatch_result;

DRA_API dra_status dra_gradients_run(dra_gradients *l, const dra_microbatch *microbatch,
                                     dra_microbatch_result *out, dra_error *err);
/* The gradient of parameter i as the host sees it, dense, valid until the next run; zeros for what
 * is not trained. NULL: out of memory. */
DRA_API const dra_real *dra_gradients_of(dra_gradients *l, int i);

/* Bytes of the device that microbatches of this shape, and of those asked about before, need
 * besides weights and gradients; compiles their programs. Looks only at B, T, chunks, clamp and
 * no_dropout, at the marks of each row's first token, and at how long a context is and whether it
 * has marks. Of start vectors (dra_module), those of one sequence in each row are counted, or in
 * each chunk of it if there are marks. */
DRA_API dra_status dra_gradients_bytes(dra_gradients *l, const dra_microbatch *microbatch,
                                       bool carried, size_t *bytes, dra_error *err);

/* Makes rows first .. first + n - 1 of a batch a microbatch and leaves its other settings as they
 * are; returns how much of them counts. `room` keeps its arrays. */
typedef struct dra_batch_part {
    dra_named        input[DRA_BATCH_INPUTS];
    dra_context_text context;
} dra_batch_part;

DRA_API double dra_batch_cut(const dra_batch *b, int64_t first, int64_t n, dra_batch_part *room,
                             dra_microbatch *out);

/* Measures all batches of an epoch, each fresh, with the weights that are bound to `l`, whose
 * gradients stay as they are. It is an error if no target counts. */
typedef struct dra_evaluation {
    double  loss, measure[DRA_MEASURES_MOST]; /* as people read them */
    double  count;                            /* of what counts */
    int64_t tokens;
} dra_evaluation;

DRA_API dra_status dra_batches_evaluate(dra_batches *b, dra_gradients *l, dra_evaluation *out,
                                        dra_error *err);

/* ---- the optimizer --------------------------------------------------------------------------- */

/* docs/training.md has their formulas. */
typedef enum dra_optimizer_kind {
    DRA_OPTIMIZER_ADAMW,
    DRA_OPTIMIZER_SGD,
    DRA_OPTIMIZER_LION,
    /* For matrices of hidden layers (groups matrix and low_rank); all other parameters: adamw. */
    DRA_OPTIMIZER_MUON,
    DRA_OPTIMIZER_COUNT
} dra_optimizer_kind;

DRA_API const char *dra_optimizer_name(dra_optimizer_kind kind); /* NULL: there is no such */

/* Of the parameters of a group (dra_param_group). */
typedef struct dra_group_config {
    double lr; /* learning rate, as a multiple of the common one */
    double wd; /* their weight decay */
} dra_group_config;

/* Numbers of parameters that are trained, by dra_param_group. */
DRA_API void dra_model_groups(const dra_model *m, int64_t count[DRA_PARAM_GROUPS]);

/* 0 means the default; a number below 0 means 0. */
typedef struct dra_optimizer_config {
    double beta1, beta2, eps; /* 0: 0.9, 0.95 (lion: 0.99), 1e-8                */
    double decay;             /* of groups that decay: matrix, map, head        */
    double clip;              /* of the norm of all gradients; 0: none          */
    bool   rwkv_rates;        /* time_decay learns twice, time_first three times as fast */
    int    rwkv_stage;        /* 2: both and time_mix learn five times as fast; needs rwkv_rates */
    dra_optimizer_kind kind;
    double             momentum;                /* of sgd, 0: 0.9, and muon, 0: 0.95 */
    bool               nesterov;                /* of sgd; muon always looks ahead */
    double             muon_rate;               /* of its matrices, in rates; 0: 20 */
    dra_group_config   group[DRA_PARAM_GROUPS]; /* what is not 0 replaces a group's own */
} dra_optimizer_config;

/* The learning rate of a group's parameters, as a multiple of `rate` and without muon_rate, and
 * their weight decay. */
DRA_API dra_group_config dra_optimizer_group(const dra_optimizer_config *c, const dra_model *m,
                                             dra_param_group group);

typedef struct dra_optimizer dra_optimizer; /* opaque: what it keeps for each parameter */

DRA_API dra_status dra_optimizer_create(const dra_optimizer_config *config, const dra_model *model,
                                        dra_device *device, dra_optimizer **out, dra_error *err);
DRA_API void       dra_optimizer_destroy(dra_optimizer *o); /* NULL is allowed */

/* One step with the gradients of `l`; step counts from 1. *norm: of the gradients before
 * clipping. If it is not finite, weights and moments stay as they are. `l` uses the new weights
 * from then on. */
DRA_API dra_status dra_optimizer_step(dra_optimizer *o, dra_weights *w, dra_gradients *l,
                                      double rate, int64_t step, double *norm, dra_error *err);
/* States m (which = 0) and v (1) of parameter i, to save and to load; the null span if it has none:
 * it is not trained, or its optimizer has one only. */
DRA_API dra_span dra_optimizer_moment(const dra_optimizer *o, int i, int which);
DRA_API size_t   dra_optimizer_bytes(const dra_optimizer *o); /* of all of them */

/* ---- runs: what a run does ------------------------------------------------------------------- */

/* Of the learning rate, after a linear warm-up. */
typedef enum dra_schedule_kind {
    DRA_SCHEDULE_COSINE,
    DRA_SCHEDULE_LINEAR,
    DRA_SCHEDULE_CONSTANT,
    DRA_SCHEDULE_EXPONENTIAL, /* exponential, as in RWKV-4's trainer; linear if it ends at 0 */
    DRA_SCHEDULE_WSD, /* warm-up, stable, decay: constant, then linear over the last steps */
    DRA_SCHEDULE_COUNT
} dra_schedule_kind;
typedef enum dra_anneal_kind {
    DRA_ANNEAL_LINEAR,
    DRA_ANNEAL_COSINE,
    DRA_ANNEAL_COUNT
} dra_anneal_kind;

typedef struct dra_stage { /* rows have `context` tokens once `from` steps are done */
    int64_t context, from;
} dra_stage;

enum { DRA_STAGES_MOST = 16 };

/* Zero means the default of every field; a number below 0 means 0: no decay, no clipping, no
 * warm-up, never. JSON has the same names; there 0 is 0, and a missing key is the default. */
typedef struct dra_train_config {
    int64_t           steps;      /* 0: 1000 */
    int64_t           batch;      /* rows of a step; 0: 8 */
    int64_t           accumulate; /* microbatches of a step, for less memory; 0: 1 */
    int               stages;     /* of the context length; 0: one, the model's own context */
    dra_stage         stage[DRA_STAGES_MOST];
    double            lr;     /* 0: 0.001 */
    double            min_lr; /* at the last step; 0: lr / 10 */
    int64_t           warmup; /* steps until lr is reached; 0: 4 % of them */
    dra_schedule_kind schedule;
    int64_t           schedule_end; /* the step from which on the rate is min_lr; 0: the last one */
    int64_t decay_steps; /* for wsd: the last steps, in which it falls; 0: a fifth of them */
    /* As of dra_optimizer_config. JSON: "optimizer": "muon". */
    dra_optimizer_kind optimizer;
    double             momentum;
    bool               nesterov;
    double             muon_rate;
    double             beta1, beta2, eps;
    double             weight_decay; /* 0: 0.01 */
    double             clip;         /* 0: 1 */
    /* As of dra_optimizer_config. JSON: "group": {"decay": {"lr": 2, "wd": 0}}. */
    dra_group_config group[DRA_PARAM_GROUPS];
    bool             rwkv_rates; /* as in dra_optimizer_config */
    int64_t          rwkv_stage; /* the same; 0: 1 */
    double           smoothing;  /* of targets */
    double           l2wrap;     /* as in dra_gradients_config */
    /* JSON: "objective": "masked", "mask_share": 0.15, "mask_token": 256, or "mask_schedule":
     * "cosine". A causal model's own objective is left out of a complete config. */
    dra_objective_config objective;
    /* Weights of auxiliary losses, by dra_aux_kind; the model must be created to measure them.
     * JSON: "aux_loss": {"drift": 0.1}. */
    double  aux_loss[DRA_AUX_COUNT];
    bool    clamp_states;  /* clamps carried states in all steps */
    int64_t clamp_steps;   /* in the first N steps only; 0: 2000 */
    double  state_dropout; /* the share of tokens that are read, but not written */
    /* The same with an exact count in a row, see dra_marks_forget(): forgetful causal masking. */
    double          forgetful_mask;
    bool            recompute;
    dra_precision   precision;
    bool            carry;       /* rows continue where they stopped, with their state */
    int64_t         chunk;       /* tokens of a chunk; gradients run back through all of them */
    bool            cross;       /* documents are one text */
    double          split;       /* the last part of the data is for evaluation; 0: none */
    int64_t         blend_steps; /* until a scheduled blend is 0; 0: half of them */
    dra_anneal_kind blend_anneal;
    int64_t         seed;
    int64_t         log_every;    /* steps; 0: 10 */
    int64_t         eval_every;   /* 0: a tenth of the steps */
    int64_t         save_every;   /* 0: 500; below 0: only at the end */
    int64_t         sample_every; /* 0: never */
    int64_t         keep;         /* checkpoints; 0: 2 */
    int64_t         early_stop;   /* ends after N evaluations without a better one; 0: does not */
    /* The run writes an adapter instead of weights; the model must be one of dra_run_model(). JSON:
     * "lora": {"rank": 16, "alpha": 32, "targets": "q,v"}. */
    dra_lora_config lora;
} dra_train_config;

DRA_API dra_status dra_train_config_parse(const char *place, const char *text, size_t bytes,
                                          dra_train_config *out, dra_error *err);
/* As JSON, what is not default; as snprintf. 0: out of memory. */
DRA_API size_t dra_train_config_text(const dra_train_config *c, char *text, size_t size);
/* Fills in defaults and refuses impossible settings by name. */
DRA_API dra_status dra_train_config_complete(dra_train_config *c, const dra_model *model,
                                             dra_error *err);

/* Of a complete config; steps count from 1.
 *   rate     warm-up: lr step / warmup; then down to min_lr at schedule_end, or the last step
 *   blend    of a start a: a (1 - p) or a (1 + cos pi p) / 2, p = min(1, (step - 1) / blend_steps)
 *   stage    the number of the one that step belongs to */
DRA_API double dra_train_rate(const dra_train_config *c, int64_t step);
DRA_API double dra_train_blend(const dra_train_config *c, double start, int64_t step);
DRA_API int    dra_train_stage(const dra_train_config *c, int64_t step);

/* ---- runs: one of them ----------------------------------------------------------------------- */

/* A run has a folder: the model (config.json, model.safetensors, tokenizer.json) as last saved;
 * best/, a model folder; log.jsonl; train/ with checkpoints, folders that are complete or not
 * there. A run that is killed at any moment continues from its last checkpoint, bit for bit as if
 * it had not been killed. docs/training.md has the details. */
typedef struct dra_trainer dra_trainer; /* opaque */

typedef struct dra_trainer_config { /* all is borrowed until dra_trainer_destroy */
    const char             *folder; /* made where there is none */
    const dra_train_config *train;  /* for a resumed run, fields that are not zero must be as
                                     * before, except that steps may be more */
    dra_device             *device;
    const dra_model        *model;
    const char             *weights;     /* to start from, as dra_weights_load(); NULL: drawn */
    const dra_corpus       *data;        /* or examples, see below */
    const dra_corpus       *eval_data;   /* NULL: the split, or none */
    const dra_tokenizer    *tokenizer;   /* is kept in the folder; NULL or bytes: is not */
    const char             *log;         /* NULL: log.jsonl in the folder */
    bool                    tensorboard; /* also write its numbers as dra_events in the folder */
    bool                    resume;      /* from the newest checkpoint; with none, from the start */
    bool                    force;     /* overwrite a run, or resume with other data or settings */
    bool                    skip_hash; /* of `weights`, as in dra_weights_config */
    const dra_examples     *examples, *eval_examples; /* instead of data and eval_data */
    dra_comm               *comm; /* trains with others; NULL: alone. All see the folder; rank 0
                                   * alone writes and samples */
} dra_trainer_config;

/* The step of the newest checkpoint of a run; -1: it has none, or the folder holds no run; 0 where
 * the folder cannot be read: there may be one. */
DRA_API int64_t dra_trainer_saved(const char *folder);

/* Checks that a run can be resumed from its folder alone; the error says what is missing. */
DRA_API dra_status dra_run_resumable(const char *folder, dra_error *err);

/* The level of micro-kernels (dra_device_level) that the newest checkpoint of a run was computed
 * at: a run that is resumed there keeps all its bits. false: there is none, or it is not known. */
DRA_API bool dra_run_level(const char *folder, char *level, size_t size);

/* The objective of the run in a folder; all zero: there is no run, or it has the default. */
DRA_API dra_status dra_run_objective(const char *folder, dra_objective_config *out, dra_error *err);

/* The model of a run: `config`, made to measure what the settings add to the loss, those of `train`
 * and, where a run in the folder is resumed, its own. A run that is resumed must be of this model;
 * with `force` it may be of another whose tensors have the same names and shapes. With lora in the
 * settings it learns by factors, added to the weights at `base`, or to those that the adapter in
 * the folder names. */
typedef struct dra_run_model_config {
    const char             *folder;
    const dra_model_config *model;
    const dra_train_config *train;
    bool                    resume, force;
    const char             *base; /* where dra_trainer_config.weights are; or NULL */
} dra_run_model_config;

DRA_API dra_status dra_run_model(const dra_run_model_config *c, dra_model **out, dra_error *err);

/* On failure *out is NULL. It is an error if another process trains in the folder. A run that
 * cannot start, for lack of memory too, leaves no folder. */
DRA_API dra_status dra_trainer_create(const dra_trainer_config *c, dra_trainer **out,
                                      dra_error *err);
DRA_API void       dra_trainer_destroy(dra_trainer *t); /* NULL is allowed */

/* ---- states to start from -------------------------------------------------------------------- */

typedef struct dra_tune_event { /* after a step; step 0: before the first */
    int64_t step, steps;
    double  loss;       /* of the step */
    double  eval_loss;  /* of what is held out; NaN: not measured at this step */
    double  rate, norm; /* of the step */
} dra_tune_event;

typedef struct dra_tune_config { /* all is borrowed */
    dra_device       *device;
    const dra_model  *model; /* as it was trained */
    const char       *weights;
    bool              skip_hash;
    const dra_corpus *data;
    const dra_train_config
                     *train; /* steps, batch, context, rate, clip, split, seed, recompute, ... */
    const dra_states *from;  /* of the model, one row; NULL: its own initial state */
    bool (*event)(void *user, const dra_tune_event *e); /* false: stop here; may be NULL */
    void *user;
} dra_tune_config;

/* Learns the state that texts are read from, and nothing else: rows of `data` start from it, their
 * gradient goes to it. Settings that are 0 are 300 steps, a rate of 0.02 and a split of 0.1, the
 * others as ever. *out: that state of one row which has read nothing, for dra_context_save(). Refused where no memory has a state of fixed size. */
DRA_API dra_status dra_tune_state(const dra_tune_config *c, dra_states **out, dra_error *err);

/* ---- runs: what is to come ------------------------------------------------------------------- */

typedef struct dra_trainer_plan { /* what is to come */
    dra_train_config train;       /* complete */
    int64_t          first;       /* the step it starts after: 0, or that of a checkpoint */
    int64_t          parameters, data_tokens, eval_tokens;
    int64_t          run_tokens; /* all steps read; at most INT64_MAX */
    double           epochs;
    size_t           weights, gradients, moments, activations; /* bytes */
    int64_t          data_examples, eval_examples;             /* 0: the data are texts */
    /* For a resumed run: where it and its schedule ended before these were changed. */
    int64_t steps_before, schedule_before; /* 0: is as it was */
    bool    stopped_early;                 /* it has ended before its last step, see early_stop */
    /* By dra_param_group: trained numbers, and how the optimizer treats them. */
    int64_t          group[DRA_PARAM_GROUPS];
    dra_group_config rule[DRA_PARAM_GROUPS];
} dra_trainer_plan;

/* Compiles the programs of all stages to know their size. */
DRA_API dra_status dra_trainer_look(dra_trainer *t, dra_trainer_plan *out, dra_error *err);

typedef enum dra_event_kind {
    DRA_EVENT_STEP,   /* each step                     */
    DRA_EVENT_EVAL,   /* a loss was measured           */
    DRA_EVENT_SAMPLE, /* it is time to write some text */
    DRA_EVENT_SAVE    /* a checkpoint is there         */
} dra_event_kind;

typedef struct dra_event {
    dra_event_kind kind;
    int64_t        step, steps;
    double         loss, rate, norm;     /* of the step; norm NaN: of a loss that is not finite */
    double         blend;                /* NaN: the model has none */
    double         eval_loss, best_loss; /* of the last evaluation and of all; NaN: none */
    int64_t        tokens;               /* of all steps so far */
    double         seconds;              /* of all work so far, including evaluations and samples */
    double         tokens_per_second;    /* of this step */
    int64_t        skipped;              /* steps so far with a loss or gradient not finite */
    double         aux[DRA_AUX_COUNT];   /* auxiliary losses of the step, unweighted */
    int64_t        clamped;              /* numbers of states that were clamped in the step */
    /* Measures by dra_objective_measure(): of the step and of the last evaluation. */
    double measure[DRA_MEASURES_MOST], eval_measure[DRA_MEASURES_MOST];
    /* Their names; NULL: no more. None for tokens of a text, where the loss is enough. */
    const char *measure_name[DRA_MEASURES_MOST];
    bool        stopped_early; /* the run ends here: evaluations got no better, see early_stop */
} dra_event;

/* false: stop here. The run is saved. */
typedef bool (*dra_on_event)(void *user, const dra_event *e);

/* Trains until the last step, or until told to stop; then saves. Steps whose loss or gradients are
 * not finite change nothing. Three in a row, or the last step, end the run with an error; it is
 * saved then, too. fn may be NULL. */
DRA_API dra_status dra_trainer_run(dra_trainer *t, dra_on_event fn, void *user, dra_error *err);
/* One step and its evaluation, samples and checkpoints, for a caller that does other work in
 * between. *more: false where dra_trainer_run() would end. */
DRA_API dra_status dra_trainer_step(dra_trainer *t, dra_on_event fn, void *user, bool *more,
                                    dra_error *err);
/* A checkpoint of what was done so far, for a caller that stops between two steps. */
DRA_API dra_status dra_trainer_save(dra_trainer *t, dra_error *err);
/* The mean loss of the evaluation data with the current weights; DRA_ERR_VALUE: there are no such
 * data. */
DRA_API dra_status         dra_trainer_evaluate(dra_trainer *t, double *loss, dra_error *err);
DRA_API const dra_weights *dra_trainer_weights(const dra_trainer *t);
/* Whether the path of the run's folder still leads to the folder that it has claimed. If it was
 * moved or replaced, that is the error: nothing may be written there any more. A trainer checks
 * this before it writes anything. */
DRA_API dra_status dra_trainer_here(const dra_trainer *t, dra_error *err);
/* Puts a text into the log: {"step": ..., key: text}. */
DRA_API dra_status dra_trainer_note(dra_trainer *t, const char *key, const char *text,
                                    dra_error *err);

/* ---- event files ----------------------------------------------------------------------------- */

/* Numbers over steps in the format of TensorBoard: FOLDER/events.out.tfevents.*, a new file each
 * time. Readers drop what earlier files say about steps after `step`. */
typedef struct dra_events dra_events; /* opaque */

typedef struct dra_scalar {
    const char *tag;
    double      value;
} dra_scalar;

/* On failure *out is NULL. */
DRA_API dra_status dra_events_create(const char *folder, int64_t step, dra_events **out,
                                     dra_error *err);
DRA_API void       dra_events_close(dra_events *e); /* NULL is allowed */
/* All scalars of a step as one record, written at once. */
DRA_API dra_status dra_events_write(dra_events *e, int64_t step, size_t n,
                                    const dra_scalar *scalars, dra_error *err);

DRA_END_C
#endif
