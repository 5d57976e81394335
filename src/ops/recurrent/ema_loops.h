/* An ema over runs of T tokens, T <= DRA_RUN, of n channels: see ema.c. */
#ifndef DRA_SRC_OPS_RECURRENT_EMA_LOOPS_H
#define DRA_SRC_OPS_RECURRENT_EMA_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

/* One timescale of an ema, see ema.c. Rows of x, y, .. are x_row, y_row, .. apart. */
typedef struct dra_ema_run {
    int64_t         n, T, x_row, y_row;
    const int32_t  *mark; /* DRA_MARK_ bits of each token, or NULL */
    const dra_real *x, *r;
    const dra_real *w;   /* NULL: 1 */
    dra_real       *m;   /* the state, from before the run to after it */
    dra_real       *y;   /* or NULL */
    bool            add; /* to y */
} dra_ema_run;

typedef struct dra_ema_back_run {
    int64_t         n, T, x_row, dy_row, dx_row;
    const int32_t  *mark;
    const dra_real *x, *r, *w, *m, *dy; /* m: the state before the run */
    dra_real       *dm;                 /* from after the run to before it */
    dra_real       *dr, *dw;            /* added to */
    dra_real       *dx;                 /* or NULL */
    bool            add;                /* to dx */
} dra_ema_back_run;

/* What a channel gives does not depend on the channels around it, nor on how runs are cut. */
typedef struct dra_ema_loops {
    void (*forward)(const dra_ema_run *s);
    void (*back)(const dra_ema_back_run *s);
} dra_ema_loops;

extern const dra_ema_loops DRA_LEVELS(dra_ema_loops);

/* Those of the level of these micro-kernels. */
const dra_ema_loops *dra_ema_loops_of(const dra_simd *simd);

#endif
