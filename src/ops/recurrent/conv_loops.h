/* A causal convolution over runs of T tokens, T <= DRA_RUN, of n channels: see conv.c. */
#ifndef DRA_SRC_OPS_RECURRENT_CONV_LOOPS_H
#define DRA_SRC_OPS_RECURRENT_CONV_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

/* Rows of x, y, .. are x_row, y_row, .. apart; there are W of w and W - 1 of a window. */
typedef struct dra_conv_run {
    int64_t         n, T, W, x_row, y_row, w_row, h_row;
    const int32_t  *mark; /* DRA_MARK_ bits of each token, or NULL */
    const dra_real *x, *w;
    const dra_real *bias; /* or NULL */
    dra_real       *h;    /* the inputs before the run, oldest first; then those after it */
    dra_real       *y;    /* or NULL */
} dra_conv_run;

/* The gradient of a run, which is walked through from its end. */
typedef struct dra_conv_back_run {
    int64_t         n, T, W, x_row, dy_row, dx_row, w_row, h_row;
    const int32_t  *mark;
    const dra_real *x, *w;
    const dra_real *dy;      /* or NULL: zeros */
    dra_real       *dh;      /* of the inputs after the run; then of those before it */
    dra_real       *dy_next; /* of the W - 1 tokens after the run, next first; then from its own */
    dra_real       *dx;      /* or NULL */
    dra_real       *dw, *db; /* added to; rows of dw are dw_row apart */
    int64_t         dw_row;
} dra_conv_back_run;

/* What a channel gives does not depend on the channels around it, nor on how runs are cut. */
typedef struct dra_conv_loops {
    void (*forward)(const dra_conv_run *s);
    void (*back)(const dra_conv_back_run *s);
} dra_conv_loops;

extern const dra_conv_loops DRA_LEVELS(dra_conv_loops);

/* Those of the level of these micro-kernels. */
const dra_conv_loops *dra_conv_loops_of(const dra_simd *simd);

#endif
