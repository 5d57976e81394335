/* The states of moment from chunk to chunk, S forwards and dS backwards: one recurrence,
 *   S = S_0 + fade S_0 + x^T (w o u),   z = z_0 + fade z_0 + x^T (w o r)
 * with x = k, u = v, w = last and r = 1; backwards x = q, u = dnum = dy / den, w = p, r = dden. A
 * block has a tile of S and walks over the chunks; the rows of the next chunk are on their way
 * while it adds those of this one. What it holds before each chunk, backwards after it, is kept. */
#ifndef DRA_SRC_CUDA_MOMENT_H
#define DRA_SRC_CUDA_MOMENT_H

#include "cuda/chunk.h"

struct dra_moment_walk {
    dra_chunks        z;
    dra_chunk_rows    x, u;
    const float      *part, *dden; /* (heads, T): 1 / den and dden of the gradient; NULL: 1 */
    dra_chunk_state   S, sums;     /* to begin with */
    dra_chunk_state   S_last, sums_last;
    dra_chunk_borders kept, sums_kept; /* or none */
    bool              normalised;
};

/* The tile of a state (F, E) or (F, 1) of a block, from row f and column e on. */
__device__ static inline float *dra_state_at(const dra_chunk_state &x, const dra_chunk_place &k,
                                             int f, int e)
{
    return x.at + k.b * x.b + k.h * x.h + f * x.f + e;
}

/* sums (DRA_TILE, in shared memory) = what is left of them + x^T weights; four lanes take a row. */
__device__ static inline void dra_moment_sums(const dra_chunk_decay &d, int n, int F,
                                              const float *x, const float *weights, float *sums)
{
    const int part = (int)threadIdx.x % 4;
    for (int first = 0; first < DRA_TILE; first += DRA_TILE_THREADS / 4) {
        const int f = first + (int)threadIdx.x / 4;
        float     sum = 0;
        for (int t = part; t < n && f < F; t += 4) sum += x[t * DRA_TILE_ROW + f] * weights[t];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (part == 0) sums[f] = dra_decay_state(d, sums[f]) + sum;
    }
}

/* What the rows of u and those of 1 are multiplied by. */
template <bool BACK>
__device__ static inline void dra_moment_factors(const dra_moment_walk &a, const dra_chunk_place &k,
                                                 const dra_chunk_decay &d, float *of_u,
                                                 float *of_one)
{
    const int64_t at = k.head * a.z.T + k.t;
    for (int t = (int)threadIdx.x; t < DRA_CHUNK; t += DRA_TILE_THREADS) {
        const float w = d.on[t] == 0 ? 0 : BACK ? d.p[t] : d.last[t];
        of_u[t] = w != 0 && a.part ? w * a.part[at + t] : w;
        of_one[t] = w != 0 && a.dden ? w * a.dden[at + t] : w;
    }
    __syncthreads();
}

template <bool BACK>
__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2)
    dra_moment_states(const dra_moment_walk a)
{
    DRA_SHARED(float, x);
    __shared__ dra_chunk_decay d;
    __shared__ float           of_u[DRA_CHUNK], of_one[DRA_CHUNK], sums[DRA_TILE];
    float *const               u = x + DRA_TILE_SIZE;
    const dra_chunks          &z = a.z;
    const int                  across = z.E > 0 ? dra_tiles(z.E) : 1;
    const int                  e = (int)(blockIdx.x % across) * DRA_TILE;
    const int                  f = (int)(blockIdx.x / across % dra_tiles(z.F)) * DRA_TILE;
    const int                  F = dra_tile_width(z.F, f), E = dra_tile_width(z.E, e);
    const bool                 summed = a.normalised && e == 0;
    const bool                 to_end = a.S_last.at || a.sums_last.at;
    dra_chunk_place            k = dra_chunk_at(z, blockIdx.x / across / dra_tiles(z.F), 0);
    dra_tile_sums              S;
    dra_tile_held              next_x, next_u;
    S.each([&](int i, int j, float &v) {
        v = a.S.at && i < F && j < E ? *dra_state_at(a.S, k, f + i, e + j) : 0;
    });
    for (int i = (int)threadIdx.x; i < DRA_TILE && summed; i += DRA_TILE_THREADS)
        sums[i] = a.sums.at && i < F ? *dra_state_at(a.sums, k, f + i, 0) : 0;
    for (int step = 0; step < z.chunks; step++) {
        const bool ends = step + 1 == z.chunks;
        k = dra_chunk_at(z, k.head, BACK ? z.chunks - 1 - step : step);
        if (step == 0) {
            next_x.fetch(dra_chunk_source(a.x, k, f));
            next_u.fetch(dra_chunk_source(a.u, k, e));
        }
        dra_decay_make(d, z, k);
        dra_moment_factors<BACK>(a, k, d, of_u, of_one);
        next_x.put(d.on, x);
        next_u.put(of_u, u);
        if (!ends) {
            const dra_chunk_place next = dra_chunk_at(z, k.head, BACK ? k.i - 1 : k.i + 1);
            next_x.fetch(dra_chunk_source(a.x, next, f));
            next_u.fetch(dra_chunk_source(a.u, next, e));
        }
        if (!BACK && dra_chunk_starts(z, k)) {
            S.clear();
            for (int i = (int)threadIdx.x; i < DRA_TILE; i += DRA_TILE_THREADS) sums[i] = 0;
        }
        __syncthreads();
        S.each([&](int i, int j, float v) {
            if (a.kept.at && i < F && j < E) *dra_border_at(a.kept, k, f + i, e + j) = v;
        });
        for (int i = (int)threadIdx.x; i < F && summed && a.sums_kept.at; i += DRA_TILE_THREADS)
            *dra_border_at(a.sums_kept, k, f + i) = sums[i];
        if (ends && !to_end) break;
        S.each([&](int, int, float &v) { v = dra_decay_state(d, v); });
        S.add<DRA_ATB>(F, E, k.n, x, u);
        __syncthreads(); /* sums were stored */
        if (summed) dra_moment_sums(d, k.n, F, x, of_one, sums);
        __syncthreads();
    }
    S.each([&](int i, int j, float v) {
        if (a.S_last.at && i < F && j < E) *dra_state_at(a.S_last, k, f + i, e + j) = v;
    });
    for (int i = (int)threadIdx.x; i < F && summed && a.sums_last.at; i += DRA_TILE_THREADS)
        *dra_state_at(a.sums_last, k, f + i, 0) = sums[i];
}

template <bool BACK>
static inline void dra_moment_walk_launch(const dra_call *c, const dra_moment_walk &a)
{
    const int64_t across = a.z.E > 0 ? dra_tiles(a.z.E) : 1;
    const int64_t blocks = a.z.heads * dra_tiles(a.z.F) * across;
    if (blocks > 0) DRA_LAUNCH_TILES(c, dra_moment_states<BACK>, blocks, 2, a);
}

#endif
