/* dra/probe.h - probes: small tasks with a right answer, each testing one ability of a memory.
 *
 * Flow:    a dra_probe says which task, its length and its difficulty. Row `number` of its train
 *          or test split follows from the seed and that number alone. dra_probe_run trains a model
 *          on one split and scores it on the other.
 * Rows:    `length` tokens and their targets, -1 where nothing is asked. First come the facts to
 *          remember, then filler, then the question.
 * Splits:  a row's split is a hash of its own content without filler (one in eight is a test row).
 *          So no example is in both, whatever the seeds.
 * Threads: everything here may be called at the same time with other memory. */
#ifndef DRA_PROBE_H
#define DRA_PROBE_H

#include "dra/train.h"
DRA_BEGIN_C

/* ---- tasks ----------------------------------------------------------------------------------- */

typedef enum dra_split { DRA_SPLIT_TRAIN, DRA_SPLIT_TEST } dra_split;

enum { DRA_PROBE_VOCAB = 16384, DRA_PROBE_LENGTH = 1 << 20 }; /* at most */

/* Zero is the default of every field but depth. */
typedef struct dra_probe {
    const char *task;    /* a name of docs/probes.md: "copy", "recall", ...                      */
    int64_t     length;  /* T; 0: the task's own; more is filler, or a longer word               */
    int64_t     vocab;   /* tokens; 0: the task's own                                            */
    int64_t     symbols; /* copy, select: to be copied; needle: tokens of the fact, 0: 4         */
    int64_t     pairs;   /* recall, mqar, update: 0: 16                                          */
    int64_t     queries; /* recall, update: keys asked for, each once; 0: all                    */
    int64_t     digits;  /* addition: of each number; 0: 3                                       */
    int64_t     kinds;   /* parens: of brackets, 0: 2; modular: numbers, 0: 5; permute: what is
                            permuted, 0: 5; update: how often a key is written, 0: 2             */
    double      depth;   /* needle: where the fact stands, 0 first, 1 last; below 0: anywhere    */
    uint64_t    seed;
    const char *text;  /* needle: a text to hide the fact in, in place of filler; borrowed     */
    int64_t     bytes; /* of it */
} dra_probe;

/* The name of the i-th task; NULL beyond the last. */
DRA_API const char *dra_probe_task_at(size_t i);

/* Fills in defaults and refuses impossible settings by name, also options that the task does not
 * have. */
DRA_API dra_status dra_probe_complete(dra_probe *p, dra_error *err);

/* For a complete probe: ids and targets (length). Fails if hardly any example belongs to that
 * split, because there are too few. */
DRA_API dra_status dra_probe_row(const dra_probe *p, dra_split split, int64_t number, int32_t *ids,
                                 int32_t *targets, dra_error *err);

typedef struct dra_probe_score {
    int64_t answers, right;
} dra_probe_score;

/* Adds the score of `found` (B, length) against targets (B, length). */
DRA_API void dra_probe_score_add(const dra_probe *p, int64_t B, const int32_t *targets,
                                 const int32_t *found, dra_probe_score *score);

/* For a complete probe: the share of right answers by guessing among the possible tokens. */
DRA_API double dra_probe_chance(const dra_probe *p);

/* ---- training and testing -------------------------------------------------------------------- */

/* All is borrowed. These fields of `train` count: steps, batch, chunk, eval_every (0: a tenth of
 * the steps), those of the learning rate and the optimizer, smoothing, aux_loss, clamp_states,
 * recompute, precision, blend_* and seed. */
typedef struct dra_probe_config {
    const dra_probe        *probe;
    const dra_train_config *train;
    dra_device             *device;
    const dra_model        *model;
    dra_weights            *weights; /* initial weights; the trained ones afterwards */
    int64_t                 tests;   /* rows of the test split that are scored; 0: 256  */
    double                  until;   /* ends once this share of answers is right; 0: never */
    int                     lengths; /* in the end rows of these lengths are tested, too */
    const int64_t          *length;
} dra_probe_config;

enum { DRA_PROBE_PLACES = 64, DRA_PROBE_AGES = 21, DRA_PROBE_DEPTHS = 10, DRA_PROBE_TESTS = 16 };

typedef struct dra_probe_counts { /* targets that were asked for, and found */
    int64_t asked, right;
} dra_probe_counts;

/* Targets of a test, apart from which answer they are part of. */
typedef struct dra_probe_parts {
    dra_probe_counts
        place[DRA_PROBE_PLACES];          /* the i-th target of a row; the last one: all later */
    dra_probe_counts age[DRA_PROBE_AGES]; /* 2^i to 2^(i+1) - 1 tokens after what is asked for */
    dra_probe_counts depth[DRA_PROBE_DEPTHS]; /* it stood in this tenth of the row */
} dra_probe_parts;

typedef struct dra_probe_test { /* of rows of some length */
    int64_t         length;
    double          accuracy, loss, chance;
    int64_t         tests, answers;
    dra_probe_parts parts;
} dra_probe_test;

typedef struct dra_probe_result {
    int64_t         step, steps;
    double          loss, rate;  /* of the step */
    int64_t         tokens;      /* read so far by training */
    double          seconds;     /* likewise, without testing */
    bool            tested;      /* after this step */
    double          accuracy;    /* share of right answers in the last test; NaN: none yet */
    double          test_loss;   /* its mean over targets */
    int64_t         tests;       /* its rows */
    int64_t         answers;     /* in them */
    bool            reached;     /* `until` */
    size_t          state_bytes; /* of one row, after its last token */
    dra_probe_parts parts;       /* of the last test */
    int             lengths;     /* that were tested in the end */
    dra_probe_test  test[DRA_PROBE_TESTS]; /* of each of them */
} dra_probe_result;

/* After each step; false: stop here. */
typedef bool (*dra_on_probe)(void *user, const dra_probe_result *r);

/* fn may be NULL. Tests every eval_every steps and at the end. A loss that is not finite ends it
 * with an error. */
DRA_API dra_status dra_probe_run(const dra_probe_config *c, dra_on_probe fn, void *user,
                                 dra_probe_result *out, dra_error *err);

DRA_END_C
#endif
