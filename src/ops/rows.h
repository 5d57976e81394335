/* For kernels that work on whole rows of the last axis: tiles of as many rows as make about 16,384
 * elements, fixed by shape, never by threads. */
#ifndef DRA_SRC_OPS_ROWS_H
#define DRA_SRC_OPS_ROWS_H

#include "ops/common.h"

typedef struct dra_row_range {
    int64_t begin, end;
} dra_row_range;

static inline int64_t dra_rows_a_tile(const dra_tensor *t)
{
    return dra_imax(1, 16384 / dra_imax(1, dra_last(t)));
}

/* By the shape of input 0. */
static inline int64_t dra_row_tiles(const dra_call *c)
{
    return dra_div_up(dra_rows(&c->in[0]), dra_rows_a_tile(&c->in[0]));
}

static inline dra_row_range dra_tile_rows(const dra_call *c, int64_t tile)
{
    const int64_t n = dra_rows_a_tile(&c->in[0]), rows = dra_rows(&c->in[0]);
    return (dra_row_range){tile * n, dra_imin(rows, (tile + 1) * n)};
}

#endif
