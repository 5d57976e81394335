/* The states of moment from chunk to chunk, S forwards and dS backwards: one recurrence,
 *   S = S_0 + fade S_0 + x^T (w o u),   z = z_0 + fade z_0 + x^T (w o r)
 * with x = k, u = v, w = last and r = 1; backwards x = q, u = dnum = dy / den, w = p, r = dden. A
 * block has a tile of S and walks over the chunks; the rows of the next chunk are on their way
 * while it adds those of this one. What it holds before each chunk, backwards after it, is kept. */
#ifndef DRA_SRC_OPS_CHUNKED_MOMENT_CUH
#define DRA_SRC_OPS_CHUNKED_MOMENT_CUH

#include "ops/chunked/chunk.cuh"

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
    DRA_EACH_TOKEN(t)
    {
        const float w = d.on[t] == 0 ? 0 : BACK ? d.p[t] : d.last[t];
        of_u[t] = w != 0 && a.part ? w * a.part[at + t] : w;
        of_one[t] = w != 0 && a.dden ? w * a.dden[at + t] : w;
    }
    __syncthreads();
}

struct dra_moment_tile {      /* of a block */
    int           f, e, F, E; /* first row and column, how many */
    bool          summed;     /* z too */
    dra_tile_sums S;
    dra_tile_held x, u; /* rows on their way */

    __device__ void fetch(const dra_moment_walk &a, const dra_chunk_place &k)
    {
        x.fetch(dra_chunk_source(a.x, k, f));
        u.fetch(dra_chunk_source(a.u, k, e));
    }

    __device__ void load(const dra_moment_walk &a, const dra_chunk_place &k, float *sums)
    {
        S.each([&](int i, int j, float &v) {
            v = a.S.at && i < F && j < E ? *dra_state_at(a.S, k, f + i, e + j) : 0;
        });
        DRA_EACH_TOKEN(i)
        {
            sums[i] = summed && a.sums.at && i < F ? *dra_state_at(a.sums, k, f + i, 0) : 0;
        }
    }

    __device__ void clear(float *sums)
    {
        S.clear();
        DRA_EACH_TOKEN(i) sums[i] = 0;
    }

    __device__ void keep(const dra_moment_walk &a, const dra_chunk_place &k, const float *sums)
    {
        S.each([&](int i, int j, float v) {
            if (a.kept.at && i < F && j < E) *dra_border_at(a.kept, k, f + i, e + j) = v;
        });
        DRA_EACH_TOKEN(i)
        {
            if (summed && a.sums_kept.at && i < F) *dra_border_at(a.sums_kept, k, f + i) = sums[i];
        }
    }

    __device__ void store(const dra_moment_walk &a, const dra_chunk_place &k, const float *sums)
    {
        S.each([&](int i, int j, float v) {
            if (a.S_last.at && i < F && j < E) *dra_state_at(a.S_last, k, f + i, e + j) = v;
        });
        DRA_EACH_TOKEN(i)
        {
            if (summed && a.sums_last.at && i < F)
                *dra_state_at(a.sums_last, k, f + i, 0) = sums[i];
        }
    }
};

/* Its place: tiles of a head next to each other. Returns the head. */
__device__ static inline int64_t dra_moment_place(const dra_moment_walk &a, dra_moment_tile &s)
{
    const int across = a.z.E > 0 ? dra_tiles(a.z.E) : 1, down = dra_tiles(a.z.F);
    s.e = (int)(blockIdx.x % across) * DRA_TILE;
    s.f = (int)(blockIdx.x / across % down) * DRA_TILE;
    s.F = dra_tile_width(a.z.F, s.f);
    s.E = dra_tile_width(a.z.E, s.e);
    s.summed = a.normalised && s.e == 0;
    return blockIdx.x / across / down;
}

template <bool BACK>
__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2)
    dra_moment_states(const dra_moment_walk a)
{
    DRA_SHARED(float, x);
    __shared__ dra_chunk_decay d;
    __shared__ float           of_u[DRA_CHUNK], of_one[DRA_CHUNK], sums[DRA_TILE];
    float *const               u = x + DRA_TILE_SIZE;
    const bool                 to_end = a.S_last.at || a.sums_last.at;
    const int                  chunks = a.z.chunks;
    dra_moment_tile            s;
    dra_chunk_place            k = dra_chunk_at(a.z, dra_moment_place(a, s), BACK ? chunks - 1 : 0);
    s.load(a, k, sums);
    if (chunks > 0) s.fetch(a, k);
    for (int step = 0; step < chunks; step++) {
        const bool ends = step + 1 == chunks;
        k = dra_chunk_at(a.z, k.head, BACK ? chunks - 1 - step : step);
        dra_decay_make(d, a.z, k);
        dra_moment_factors<BACK>(a, k, d, of_u, of_one);
        s.x.put(d.on, x);
        s.u.put(of_u, u);
        if (!ends) s.fetch(a, dra_chunk_at(a.z, k.head, BACK ? k.i - 1 : k.i + 1));
        if (!BACK && dra_chunk_starts(a.z, k)) s.clear(sums);
        s.keep(a, k, sums);
        __syncthreads();
        if (ends && !to_end) break;
        s.S.each([&](int, int, float &v) { v = dra_decay_state(d, v); });
        s.S.add<DRA_ATB>(s.F, s.E, k.n, x, u);
        if (s.summed) dra_moment_sums(d, k.n, s.F, x, of_one, sums);
        __syncthreads();
    }
    s.store(a, k, sums);
}

template <bool BACK>
static inline void dra_moment_walk_launch(const dra_call *c, const dra_moment_walk &a)
{
    const int64_t across = a.z.E > 0 ? dra_tiles(a.z.E) : 1;
    const int64_t blocks = a.z.heads * dra_tiles(a.z.F) * across;
    if (blocks > 0) DRA_LAUNCH_TILES(c, dra_moment_states<BACK>, blocks, 2, a);
}

#endif
