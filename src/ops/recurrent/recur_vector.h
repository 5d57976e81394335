/* What vector loops of recurrences over time share. One vector of channels after the other walks
 * over all tokens of a run with its state in registers; a run is short enough for the rows it
 * passes to stay in the cache until the last vector has come. Products and sums are put together by
 * vfma() alone, so that a result depends on its channel alone, however a row is cut. */
#ifndef DRA_SRC_OPS_RECURRENT_RECUR_VECTOR_H
#define DRA_SRC_OPS_RECURRENT_RECUR_VECTOR_H

#include "device/simd_vector.h"

static inline int32_t mark_at(const int32_t *mark, int64_t t) { return mark ? mark[t] : 0; }

/* n lanes of p as vector, zeros where there are none, or all `otherwise` without p. */
static inline vf load_or(const float *p, int64_t i, int64_t left, vf otherwise)
{
    return p ? load_some(p + i, left, vset(0)) : otherwise;
}

/* Where the walk comes COLUMNS_AHEAD vectors later, seen from channel i: in this run, or in the one
 * `step` elements further on. The processor does not predict a walk down columns: without this the
 * backward pass of an ema takes 14 ms, with it 8 (8 x 4096 x 384, Zen 4). */
enum { COLUMNS_AHEAD = 2 };

static inline int64_t way_on(int64_t i, int64_t n, int64_t step)
{
    const int64_t later = i + COLUMNS_AHEAD * LANES, end = (n + LANES - 1) / LANES * LANES;
    return later < end ? later - i : step + later - end - i;
}

/* The results of a run, one vector of each row. In the backward pass they wait until all is
 * read, and nothing is read twice: rows a page apart share one set of the first cache, where those
 * of several arrays evict each other (ema of 1024 channels: 40 ms, this way 27; Zen 4). */
static inline void store_column(int64_t T, const vf *x, float *to, int64_t row, int64_t left,
                                bool add, int64_t next)
{
    for (int64_t t = T - 1; t >= 0; t--) {
        float *y = to + t * row;
        fetch(y, next, 1);
        store_some(y, left, add ? load_some(y, left, vset(0)) + x[t] : x[t]);
    }
}

static inline void add_to(float *sum, int64_t left, vf x)
{
    store_some(sum, left, load_some(sum, left, vset(0)) + x);
}

#endif
