/* Reading a matrix memory: y of a chunk from the state before it and its writes,
 *   y = A u + p o (q S_0),  A = (q k^T) o D
 * of moment with u = v and, where normalised, divided by den = A 1 + p o (q z_0) + eps; of delta
 * with u = b o w. All chunks at once, a block for each and DRA_TILE columns of y. And a step: one
 * token, the state and what is read of it in one go. */
#ifndef DRA_SRC_OPS_CHUNKED_CHUNK_READ_CUH
#define DRA_SRC_OPS_CHUNKED_CHUNK_READ_CUH

#include "ops/chunked/chunk.cuh"

struct dra_read_call {
    dra_chunks        z;
    dra_chunk_rows    q, k, u, y;
    dra_chunk_rows    b;       /* strengths of u, or none */
    dra_chunk_borders S, sums; /* before each chunk: S_0 and, where normalised, z_0 */
    float             eps, least;
    bool              normalised;
};

/* A += q k^T, y += q S_0 and den += q z_0, over all features. The first rows are on their way while
 * decays are made. */
template <bool NORMALISED>
__device__ static inline void dra_read_features(const dra_read_call &a, const dra_chunk_block &at,
                                                dra_chunk_decay &d, float *tile, dra_tile_sums &A,
                                                dra_tile_sums &y, float *den)
{
    const dra_chunk_place &k = at.k;
    float *const keys = tile + DRA_TILE_SIZE, *const S = keys + DRA_TILE_SIZE;
    for (int f = 0; f < a.z.F || f == 0; f += DRA_TILE) {
        const int     F = dra_tile_width(a.z.F, f);
        dra_tile_held q, key, state;
        q.fetch(dra_chunk_source(a.q, k, f));
        key.fetch(dra_chunk_source(a.k, k, f));
        state.fetch(dra_border_source(a.z, a.S, k, f, at.first));
        if (f == 0) dra_decay_make(d, a.z, k);
        q.put(d.on, tile);
        key.put(d.on, keys);
        state.put(S);
        __syncthreads();
        A.add<DRA_ABT>(k.n, k.n, F, tile, keys);
        y.add<DRA_AB>(k.n, dra_tile_width(a.z.E, at.first), F, tile, S);
        if (NORMALISED) dra_tile_dots(k.n, F, 1, tile, dra_border_at(a.sums, k, f), 0, den);
        __syncthreads();
    }
}

template <bool NORMALISED>
__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2) dra_read_kernel(const dra_read_call a)
{
    DRA_SHARED(float, tile);
    __shared__ dra_chunk_decay d;
    __shared__ float           strength[DRA_CHUNK], den[DRA_CHUNK];
    const dra_chunk_block      at = dra_chunk_block_at(a.z, dra_tiles(a.z.E));
    const dra_chunk_place     &k = at.k;
    float *const               u = tile + DRA_TILE_SIZE;
    dra_tile_sums              A, y;
    A.clear();
    y.clear();
    DRA_EACH_TOKEN(t) den[t] = 0;
    dra_read_features<NORMALISED>(a, at, d, tile, A, y, den);
    y.each([&](int t, int, float &v) { v *= d.p[t]; });
    dra_chunk_strengths(a.b, k, d, strength);
    dra_tile_load(u, dra_chunk_source(a.u, k, at.first), strength);
    dra_chunk_fade(A, d, k.n, tile);
    y.add<DRA_AB>(k.n, dra_tile_width(a.z.E, at.first), k.n, tile, u);
    if (NORMALISED) dra_moment_divisor(d, k.n, a.eps, a.least, tile, den);
    y.each([&](int t, int j, float v) {
        if (t < k.n && at.first + j < a.z.E)
            *dra_chunk_row(a.y, k, t, at.first + j) = NORMALISED ? v / den[t] : v;
    });
}

static inline void dra_read_launch(const dra_call *c, const dra_read_call &a)
{
    const int64_t blocks = a.z.heads * a.z.chunks * dra_tiles(a.z.E);
    if (!a.y.at || blocks == 0) return;
    if (a.normalised)
        DRA_LAUNCH_TILES(c, dra_read_kernel<true>, blocks, 3, a);
    else
        DRA_LAUNCH_TILES(c, dra_read_kernel<false>, blocks, 3, a);
}

/* ---- one token ------------------------------------------------------------------------------- */

/* With S' = e^l S, the write u = v, of delta b (v - S'^T k): y = S'^T q + (q.k) u. A block for each
 * head, DRA_TILE columns at a time, its threads for one and a share of the rows. What may be read
 * again is read again: S_last may be where S was. */
struct dra_step_call {
    dra_chunks        z;
    dra_chunk_rows    q, k, v, b, y, miss; /* miss: v - S'^T k of delta, or none */
    dra_chunk_state   S, S_last;
    dra_chunk_state   sums, sums_last; /* z of moment */
    dra_chunk_borders borders, sums_borders;
    float             eps, least;
    bool              normalised;
};

struct dra_step_parts {
    float recalled, read, product, sum; /* S'^T k and S'^T q of a column, q.k, z'.q */
};

/* A number of a state that is not there is 0; nor is one before a reset. */
__device__ static inline float dra_step_number(const dra_chunk_state &x, const dra_chunk_place &k,
                                               bool starts, int f, int e)
{
    return x.at && !starts ? x.at[k.b * x.b + k.h * x.h + f * x.f + e] : 0;
}

__device__ static inline void dra_step_store(const dra_chunk_state &x, const dra_chunk_place &k,
                                             int f, int e, float v)
{
    if (x.at) x.at[k.b * x.b + k.h * x.h + f * x.f + e] = v;
}

/* Sums over the rows, for every thread of the column. */
__device__ static inline dra_step_parts
dra_step_sums(const dra_step_call &a, const dra_chunk_place &k, const dra_chunk_decay &d, int e)
{
    __shared__ dra_step_parts part[DRA_TILE_THREADS];
    const bool                starts = dra_chunk_starts(a.z, k);
    dra_step_parts            own = {}, all = {};
    for (int f = (int)threadIdx.x / DRA_TILE; f < a.z.F && d.on[0] != 0;
         f += DRA_TILE_THREADS / DRA_TILE) {
        const float q = *dra_chunk_row(a.q, k, 0, f), key = *dra_chunk_row(a.k, k, 0, f);
        const float S = e < a.z.E ? dra_decay_state(d, dra_step_number(a.S, k, starts, f, e)) : 0;
        own.recalled += S * key;
        own.read += S * q;
        own.product += q * key;
        if (a.normalised)
            own.sum += q * dra_decay_state(d, dra_step_number(a.sums, k, starts, f, 0));
    }
    __syncthreads(); /* part may still be read from before */
    part[threadIdx.x] = own;
    __syncthreads();
    for (int i = (int)threadIdx.x % DRA_TILE; i < DRA_TILE_THREADS; i += DRA_TILE) {
        all.recalled += part[i].recalled, all.read += part[i].read;
        all.product += part[i].product, all.sum += part[i].sum;
    }
    return all;
}

/* y of a column, and what is written there. */
template <bool DELTA>
__device__ static inline float dra_step_read(const dra_step_call &a, const dra_chunk_place &k,
                                             const dra_step_parts &x, bool pad, int e)
{
    const float v = pad ? 0 : *dra_chunk_row(a.v, k, 0, e);
    const float miss = DELTA ? v - x.recalled : v;
    const float u = DELTA && !pad ? *dra_chunk_row(a.b, k, 0) * miss : miss;
    const float sum = x.sum + x.product + a.eps, den = pad ? 1 : sum < a.least ? a.least : sum;
    const float y = x.read + x.product * u;
    if (threadIdx.x < DRA_TILE) {
        if (a.y.at) *dra_chunk_row(a.y, k, 0, e) = a.normalised ? y / den : y;
        if (a.miss.at) *dra_chunk_row(a.miss, k, 0, e) = miss;
    }
    return u;
}

template <bool DELTA> __global__ static void dra_step_kernel(const dra_step_call a)
{
    __shared__ dra_chunk_decay d;
    const dra_chunk_place      k = dra_chunk_at(a.z, blockIdx.x, 0);
    const bool                 starts = dra_chunk_starts(a.z, k);
    const int                  groups = DRA_TILE_THREADS / DRA_TILE;
    dra_decay_make(d, a.z, k);
    const bool pad = d.on[0] == 0;
    for (int first = 0; first < a.z.E || first == 0; first += DRA_TILE) {
        const int            e = first + (int)threadIdx.x % DRA_TILE;
        const dra_step_parts x = dra_step_sums(a, k, d, e);
        if (e >= a.z.E) continue;
        const float u = dra_step_read<DELTA>(a, k, x, pad, e);
        for (int f = (int)threadIdx.x / DRA_TILE; f < a.z.F; f += groups) {
            const float S = dra_step_number(a.S, k, starts, f, e);
            if (a.borders.at) *dra_border_at(a.borders, k, f, e) = S;
            dra_step_store(a.S_last, k, f, e,
                           dra_decay_state(d, S) + (pad ? 0 : *dra_chunk_row(a.k, k, 0, f) * u));
        }
    }
    __syncthreads();
    for (int f = (int)threadIdx.x; f < a.z.F && a.normalised; f += DRA_TILE_THREADS) {
        const float sum = dra_step_number(a.sums, k, starts, f, 0);
        if (a.sums_borders.at) *dra_border_at(a.sums_borders, k, f) = sum;
        dra_step_store(a.sums_last, k, f, 0,
                       dra_decay_state(d, sum) + (pad ? 0 : *dra_chunk_row(a.k, k, 0, f)));
    }
}

#endif
