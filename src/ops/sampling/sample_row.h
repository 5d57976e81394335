/* Choosing the token of one row on the host: for the op, and for samplers that see the logits. */
#ifndef DRA_SRC_OPS_SAMPLING_SAMPLE_ROW_H
#define DRA_SRC_OPS_SAMPLING_SAMPLE_ROW_H

#include "ops/sampling/sample_math.h"

typedef struct dra_choice { /* a token that may be drawn */
    double  z, p;
    int32_t id;
    int32_t step; /* where sums are made over steps of z: which of them */
} dra_choice;

typedef struct dra_sample_from { /* what a row chooses from */
    int64_t         V;
    const dra_real *logits, *bias; /* (V); bias NULL: none */
    const bool     *allowed;       /* (V); NULL: all are */
    const bool     *seen;          /* (V); NULL: none are */
} dra_sample_from;

/* The most likely token, of equal ones the first, and its x; -1: there is none. */
int32_t dra_sample_best(const dra_sample_row *how, const dra_sample_from *from, double *max);
/* Puts the tokens that may be drawn into at (V), p after filters and temperature; returns how many.
 * In order where top-k or top-p has put them in order, else by id. */
int64_t dra_sample_weigh(const dra_sample_row *how, const dra_sample_from *from, double max,
                         dra_choice *at);
/* The token, or -1; at (V) is room to work in. */
int32_t dra_sample_choose(const dra_sample_row *how, const dra_sample_from *from, dra_choice *at);

/* The `most` likeliest of the logits as they are, 0 to V, in order, equal ones by id: at (most),
 * z = x - max. */
void dra_sample_top(const dra_sample_from *from, double max, int64_t most, dra_choice *at);

/* x of `n` tokens from `first` on, after bias and penalty. */
void dra_sample_fetch(const dra_sample_row *how, const dra_sample_from *from, int64_t first,
                      int64_t n, double *x);
/* The `most` largest z come first and in order, equal ones by id. */
void dra_choices_sort(dra_choice *at, int64_t n, int64_t most);

#endif
