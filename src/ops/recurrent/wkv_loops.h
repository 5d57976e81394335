/* wkv over runs of T tokens, T <= DRA_RUN, of n channels: see wkv.c. */
#ifndef DRA_SRC_OPS_RECURRENT_WKV_LOOPS_H
#define DRA_SRC_OPS_RECURRENT_WKV_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

/* State: A, B, p. */
typedef struct dra_wkv_run {
    int64_t         n, T, k_row, v_row, y_row;
    const int32_t  *mark;
    const dra_real *k, *v, *w, *u;
    dra_real       *state[3]; /* from before the run to after it */
    dra_real       *y;        /* or NULL */
} dra_wkv_run;

typedef struct dra_wkv_back_run {
    int64_t         n, T, k_row, v_row, dy_row, d_row;
    const int32_t  *mark;
    const dra_real *k, *v, *w, *u, *state[3], *dy; /* the state before the run */
    dra_real       *dk, *dv;                       /* each may be NULL; rows d_row apart */
    dra_real       *dA, *dB;                       /* from after the run to before it */
    dra_real       *dw, *du;                       /* added to */
} dra_wkv_back_run;

/* What a channel gives does not depend on the channels around it, nor on how runs are cut. */
typedef struct dra_wkv_loops {
    void (*forward)(const dra_wkv_run *s);
    void (*back)(const dra_wkv_back_run *s);
} dra_wkv_loops;

extern const dra_wkv_loops DRA_LEVELS(dra_wkv_loops);

/* Those of the level of these micro-kernels. */
const dra_wkv_loops *dra_wkv_loops_of(const dra_simd *simd);

#endif
