/* Steps of recurrent cells, one token of some rows; the formulas are in gru.c and lstm.c. Every
 * array but w holds a row of D numbers, or several such parts, for each row. */
#ifndef DRA_SRC_OPS_RECURRENT_CELL_LOOPS_H
#define DRA_SRC_OPS_RECURRENT_CELL_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

typedef struct dra_cell_step {
    int64_t         rows, D;
    int64_t         ahead;            /* rows from here to those of the next token */
    const dra_real *w;                /* by blocks of units: (blocks, D, gates, DRA_CELL_UNITS) */
    const dra_real *b;                /* (gates, D) */
    const dra_real *x[DRA_CELL_ROWS]; /* (gates, D) */
    const dra_real *h[DRA_CELL_ROWS], *mix[DRA_CELL_ROWS]; /* the old state, 1 - g */
    dra_real       *to[DRA_CELL_ROWS];                     /* the new one; no row of h */
    dra_real       *c[DRA_CELL_ROWS];                      /* lstm: becomes the new one */
    dra_real       *kept[DRA_CELL_ROWS];                   /* what the gradient needs, or NULL */
} dra_cell_step;

typedef struct dra_cell_back {
    int64_t         rows, D, ahead;
    const dra_real *w; /* (gates D, D): rows w_row apart, readable up to whole blocks of units */
    int64_t         w_row;
    const dra_real *kept[DRA_CELL_ROWS], *h[DRA_CELL_ROWS], *mix[DRA_CELL_ROWS];
    const dra_real *dy[DRA_CELL_ROWS];
    dra_real       *d[DRA_CELL_ROWS];  /* of the new state, less dy; becomes that of the old one */
    dra_real       *dc[DRA_CELL_ROWS]; /* lstm: of the new c; becomes that of the old one */
    dra_real       *dx[DRA_CELL_ROWS], *du[DRA_CELL_ROWS]; /* (gates, D): of x and of w h + b */
    dra_real       *swing[DRA_CELL_ROWS];                  /* added to: dbeta / g */
    dra_real       *db;                                    /* (gates, D), added to: du of rows */
} dra_cell_back;

typedef struct dra_cell_loops { /* a row's results do not depend on the rows computed with it */
    void (*gru)(const dra_cell_step *s);
    void (*gru_back)(const dra_cell_back *s);
    void (*lstm)(const dra_cell_step *s);
    void (*lstm_back)(const dra_cell_back *s);
} dra_cell_loops;

extern const dra_cell_loops DRA_LEVELS(dra_cell_loops);

/* Those of the level of these micro-kernels. */
const dra_cell_loops *dra_cell_loops_of(const dra_simd *simd);

#endif
