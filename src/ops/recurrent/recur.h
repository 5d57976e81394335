/* What recurrences over time share. A tile is one row of the batch and a block of channels; it
 * walks over time in runs of DRA_RUN tokens.
 *
 * The forward op also gives the state before every run; its gradient walks over the runs from the
 * last to the first and makes the states inside each again from there. */
#ifndef DRA_SRC_OPS_RECURRENT_RECUR_H
#define DRA_SRC_OPS_RECURRENT_RECUR_H

#include <string.h>

#include "ops/common.h"

enum { DRA_RECUR_BLOCK = 512 }; /* channels of a tile at most */

typedef struct dra_recur_tile {
    int64_t b, first, n; /* row of the batch; channels first..first+n-1 */
} dra_recur_tile;

static inline int64_t dra_recur_runs(int64_t T) { return dra_div_up(T, DRA_RUN); }

/* Channels of a tile: long pieces of memory come in 5 to 10 % faster, but a batch of few rows has
 * too few tiles then. Input 0 is (B, T, channels). */
static inline int64_t dra_recur_width(const dra_call *c)
{
    return c->in[0].shape.dim[0] < 4 ? DRA_RECUR_BLOCK / 4 : DRA_RECUR_BLOCK;
}

static inline int64_t dra_recur_tiles(const dra_call *c)
{
    const int64_t *dim = c->in[0].shape.dim;
    return dim[0] * dra_div_up(dim[2], dra_recur_width(c));
}

static inline dra_recur_tile dra_recur_tile_at(const dra_call *c, int64_t i)
{
    const int64_t N = c->in[0].shape.dim[2], width = dra_recur_width(c);
    const int64_t blocks = dra_div_up(N, width), first = i % blocks * width;
    return (dra_recur_tile){i / blocks, first, dra_imin(width, N - first)};
}

/* Element x[i, j, k, 0..]. */
static inline real *dra_recur_at(const dra_tensor *x, int64_t i, int64_t j, int64_t k)
{
    return (real *)x->data + i * x->stride[0] + j * x->stride[1] + k * x->stride[2];
}

/* The bits of token t; `mark` may be NULL. */
static inline int32_t dra_recur_mark(const dra_tensor *mark, int64_t b, int64_t t)
{
    return mark ? ((const int32_t *)mark->data)[b * mark->stride[0] + t * mark->stride[1]] : 0;
}

/* The marks of the tile's tokens from t on; NULL without any. */
static inline const int32_t *dra_recur_marks(const dra_tensor *mark, const dra_recur_tile *at,
                                             int64_t t)
{
    return mark ? (const int32_t *)mark->data + at->b * mark->stride[0] + t : NULL;
}

static inline void dra_recur_copy(int64_t n, const real *from, real *to)
{
    memcpy(to, from, (size_t)n * sizeof *to);
}

static inline void dra_recur_clear(int64_t n, real *to) { memset(to, 0, (size_t)n * sizeof *to); }

/* out (n) = the sum of `rows` rows of n, in order; nothing if out is NULL. */
static inline void dra_recur_sum(const dra_call *c, int64_t rows, int64_t n, const real *x,
                                 real *out)
{
    if (!out) return;
    dra_recur_clear(n, out);
    for (int64_t r = 0; r < rows; r++) dra_simd_of(c)->add(n, out, x + r * n, out);
}

/* Refuses a value (called `name`) that is not of this type. */
bool dra_recur_expect(dra_graph *g, const char *op, const char *name, dra_value v, dra_dtype dtype,
                      dra_shape shape);

/* dy, or zeros like x where nothing came back. */
dra_value dra_recur_upstream(dra_graph *g, dra_value dy, dra_value x);

#endif
