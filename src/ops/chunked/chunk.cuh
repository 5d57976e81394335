/* What memories share that go through time in chunks of DRA_CHUNK tokens, see chunk.cuh: states
 * from chunk to chunk, one after the other, then all chunks at once, one block each. Everything is
 * products of tiles in shared memory, DRA_TILE rows by DRA_TILE columns; longer rows, F of keys and
 * E of values, take several tiles. A block has DRA_TILE_THREADS threads and at most four tiles, 70
 * KiB. Tokens, heads and rows of the batch are limited by memory alone: fewer than 2^31 chunks. */
#ifndef DRA_SRC_OPS_CHUNKED_CHUNK_CUH
#define DRA_SRC_OPS_CHUNKED_CHUNK_CUH

#include <float.h>

#include "device/cuda/tile.cuh"

/* ---- chunks of a call ------------------------------------------------------------------------ */

struct dra_chunk_rows { /* (B, T, H, W), or (B, T, H): W = 1 */
    float  *at;         /* NULL: there is none */
    int64_t b, t, h;    /* strides */
    int     W;
    bool    by_four;
};

static inline dra_chunk_rows dra_chunk_rows_of(const dra_tensor *x)
{
    if (!x || !x->data) return {};
    return {static_cast<float *>(x->data),
            x->stride[0],
            x->stride[1],
            x->stride[2],
            x->shape.rank == 4 ? (int)x->shape.dim[3] : 1,
            x->shape.rank == 4 && dra_rows_by_four(x)};
}

struct dra_chunk_state { /* (B, H, F, E), or (B, H, F): E = 1 */
    float  *at;          /* NULL: zeros */
    int64_t b, h, f;     /* strides */
};

static inline dra_chunk_state dra_chunk_state_of(const dra_tensor *x)
{
    if (!x || !x->data) return {};
    return {static_cast<float *>(x->data), x->stride[0], x->stride[1], x->stride[2]};
}

struct dra_chunk_borders { /* (B, H, chunks, F, E), or (B, H, chunks, F): E = 1 */
    float  *at;            /* NULL: there are none */
    int64_t b, h, i, f;    /* strides */
    bool    by_four;
};

static inline dra_chunk_borders dra_chunk_borders_of(const dra_tensor *x)
{
    if (!x || !x->data) return {};
    return {static_cast<float *>(x->data),
            x->stride[0],
            x->stride[1],
            x->stride[2],
            x->stride[3],
            x->shape.rank == 5 && dra_rows_by_four(x)};
}

struct dra_chunks {             /* what all kernels of a call know */
    int64_t        T, H, heads; /* heads: of all rows of the batch */
    int            chunks, F, E;
    const int32_t *mark; /* of each token, or NULL */
    int64_t        mark_row;
    dra_chunk_rows l;     /* W = 1, or none */
    bool           jumps; /* see dra_decay in chunk.cuh */
};

/* Of q (B, T, H, F) and v (B, T, H, E); l and mark are inputs of that number, 0: none. */
static inline dra_chunks dra_chunks_of(const dra_call *c, const dra_tensor *q, const dra_tensor *v,
                                       int l, int mark, bool jumps)
{
    const int64_t *dim = q->shape.dim;
    dra_chunks     z = {};
    z.T = dim[1], z.H = dim[2], z.heads = dim[0] * dim[2];
    z.chunks = (int)dra_div_up(dim[1], DRA_CHUNK);
    z.F = (int)dim[3], z.E = (int)dra_last(v);
    z.mark = mark ? static_cast<const int32_t *>(c->in[mark].data) : nullptr;
    z.mark_row = mark ? c->in[mark].stride[0] : 0;
    z.l = dra_chunk_rows_of(l ? &c->in[l] : nullptr);
    z.jumps = jumps;
    return z;
}

/* Borders in scratch memory, dense: of width E or, for sums of keys, 1. */
static inline dra_chunk_borders dra_chunk_borders_in(const dra_chunks &z, float *at, int64_t E)
{
    const int64_t one = z.F * E, head = z.chunks * one;
    return {at, z.H * head, head, one, E, E % 4 == 0};
}

/* The same for rows of tokens, (heads, T, W). */
static inline dra_chunk_rows dra_chunk_rows_in(const dra_chunks &z, float *at, int W)
{
    return {at, z.H * z.T * W, W, z.T * W, W, W % 4 == 0 && (uintptr_t)at % 16 == 0};
}

struct dra_chunk_place { /* tokens t..t+n-1 of head h of row b of the batch: chunk i */
    int64_t head, b, h, t;
    int     i, n;
};

__device__ static inline dra_chunk_place dra_chunk_at(const dra_chunks &z, int64_t head, int i)
{
    dra_chunk_place k = {head, head / z.H, head % z.H, (int64_t)i * DRA_CHUNK, i, DRA_CHUNK};
    if (z.T - k.t < DRA_CHUNK) k.n = (int)(z.T - k.t);
    return k;
}

struct dra_chunk_block { /* a block has a chunk and DRA_TILE columns, from `first` on */
    dra_chunk_place k;
    int             tile, first;
};

__device__ static inline dra_chunk_block dra_chunk_block_at(const dra_chunks &z, int tiles)
{
    const int64_t number = blockIdx.x / tiles;
    const int     tile = (int)(blockIdx.x % tiles);
    return {dra_chunk_at(z, number / z.chunks, (int)(number % z.chunks)), tile, tile * DRA_TILE};
}

/* for (int t : tokens of a chunk that are this thread's) */
#define DRA_EACH_TOKEN(t) for (int t = (int)threadIdx.x; t < DRA_CHUNK; t += DRA_TILE_THREADS)

__device__ static inline int dra_chunk_mark(const dra_chunks &z, const dra_chunk_place &k, int t)
{
    return z.mark ? z.mark[k.b * z.mark_row + k.t + t] : 0;
}

/* Whether a sequence starts with the chunk: what the state held before does not matter then. */
__device__ static inline bool dra_chunk_starts(const dra_chunks &z, const dra_chunk_place &k)
{
    return dra_chunk_mark(z, k, 0) & DRA_MARK_RESET;
}

/* Row t of the chunk, from column `first` on. */
__device__ static inline float *dra_chunk_row(const dra_chunk_rows &x, const dra_chunk_place &k,
                                              int t, int first = 0)
{
    return x.at + k.b * x.b + (k.t + t) * x.t + k.h * x.h + first;
}

__device__ static inline dra_tile_source dra_chunk_source(const dra_chunk_rows  &x,
                                                          const dra_chunk_place &k, int first)
{
    return {dra_chunk_row(x, k, 0, first), x.t, k.n, dra_tile_width(x.W, first), x.by_four};
}

/* The state of (b, h) at chunk i, from row f and column e on. */
__device__ static inline float *dra_border_at(const dra_chunk_borders &x, const dra_chunk_place &k,
                                              int f = 0, int e = 0)
{
    return x.at + k.b * x.b + k.h * x.h + k.i * x.i + f * x.f + e;
}

__device__ static inline dra_tile_source dra_border_source(const dra_chunks        &z,
                                                           const dra_chunk_borders &x,
                                                           const dra_chunk_place &k, int f, int e)
{
    return {dra_border_at(x, k, f, e), x.f, dra_tile_width(z.F, f), dra_tile_width(z.E, e),
            x.by_four};
}

/* ---- decay ----------------------------------------------------------------------------------- */

/* dra_decay of chunk.cuh, in shared memory. A logarithm below that of a reset keeps nothing
 * either, and counts as one: sums of L then keep their digits. */
struct dra_chunk_decay {
    double L[DRA_CHUNK]; /* l_0 + .. + l_t */
    float  p[DRA_CHUNK], last[DRA_CHUNK];
    float  on[DRA_CHUNK]; /* 0 at pads and after the last token, else 1 */
    float  fade, kept;    /* kept: p of the last token */
    bool   strong;
};

__device__ static inline float dra_decay_exp(double L)
{
    const float x = expf((float)L);
    return x < FLT_MIN ? 0 : x; /* NaN stays NaN */
}

/* D[t][s] */
__device__ static inline float dra_decay_between(const dra_chunk_decay &d, int t, int s)
{
    return s <= t ? dra_decay_exp(d.L[t] - d.L[s]) : 0;
}

__device__ static inline double dra_decay_log(const dra_chunks &z, const dra_chunk_place &k, int t)
{
    const int mark = t < k.n ? dra_chunk_mark(z, k, t) : DRA_MARK_PAD;
    if (mark & DRA_MARK_RESET) return DRA_CHUNK_RESET;
    if (mark & DRA_MARK_PAD || !z.l.at) return 0;
    const double l = *dra_chunk_row(z.l, k, t);
    return l < DRA_CHUNK_RESET ? DRA_CHUNK_RESET : l;
}

/* All threads come, before and after. */
__device__ static inline void dra_decay_make(dra_chunk_decay &d, const dra_chunks &z,
                                             const dra_chunk_place &k)
{
    const int lane = (int)threadIdx.x;
    if (lane < 32) { /* two tokens a lane */
        const double one = dra_decay_log(z, k, 2 * lane), two = dra_decay_log(z, k, 2 * lane + 1);
        double       sum = one + two;
        for (int by = 1; by < 32; by *= 2) {
            const double before = __shfl_up_sync(~0u, sum, by);
            if (lane >= by) sum += before;
        }
        d.L[2 * lane] = sum - two;
        d.L[2 * lane + 1] = sum;
    }
    __syncthreads();
    const double all = d.L[k.n - 1];
    DRA_EACH_TOKEN(t)
    {
        d.p[t] = dra_decay_exp(d.L[t]);
        d.last[t] = dra_decay_exp(all - d.L[t]);
        d.on[t] = t < k.n && !(dra_chunk_mark(z, k, t) & DRA_MARK_PAD);
    }
    if (lane == 0) {
        d.fade = (float)expm1(all);
        d.kept = dra_decay_exp(all);
        d.strong = z.jumps && all < DRA_STRONG_DECAY;
    }
    __syncthreads();
}

/* What is left of a number x of a state after the chunk; nothing of NaN where nothing is left. */
__device__ static inline float dra_decay_state(const dra_chunk_decay &d, float x)
{
    if (d.strong) return d.kept == 0 ? 0 : d.kept * x;
    return d.fade == -1 ? 0 : x + d.fade * x;
}

/* ---- parts of kernels ------------------------------------------------------------------------ */

/* Strengths of the chunk's writes, 0 at pads. All threads wait. */
__device__ static inline void dra_chunk_strengths(const dra_chunk_rows &b, const dra_chunk_place &k,
                                                  const dra_chunk_decay &d, float *to)
{
    DRA_EACH_TOKEN(t) to[t] = d.on[t] == 0 ? 0 : b.at ? *dra_chunk_row(b, k, t) : 1;
    __syncthreads();
}

/* sum o D in a tile, and nothing above the diagonal; all threads wait for it. */
__device__ static inline void dra_chunk_fade(dra_tile_sums &sum, const dra_chunk_decay &d, int n,
                                             float *tile)
{
    sum.each([&](int t, int s, float v) {
        tile[t * DRA_TILE_ROW + s] = t < n && s <= t ? v * dra_decay_between(d, t, s) : 0;
    });
    __syncthreads();
}

/* What y is divided by: den (n), from A and p o (q z_0), which it holds; 1 at pads. */
__device__ static inline void dra_moment_divisor(const dra_chunk_decay &d, int n, float eps,
                                                 float least, const float *A, float *den)
{
    DRA_EACH_TOKEN(t) den[t] *= d.p[t];
    __syncthreads();
    dra_tile_dots(n, n, 1, A, d.on, 0, den);
    __syncthreads();
    DRA_EACH_TOKEN(t)
    {
        const float sum = den[t] + eps;
        den[t] = d.on[t] == 0 ? 1 : sum < least ? least : sum;
    }
    __syncthreads();
}

#endif
