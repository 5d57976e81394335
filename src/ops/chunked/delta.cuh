/* What the delta rule and its gradient share. What a chunk misses depends on the state before it,
 * w = v - p o (k S_0) - A (b o w), and is linear in it: with N = -A o b and both solved for all
 * chunks at once, before the states are known,
 *   U = v + N U,  W = -p o k + N W:   w = U + W S_0,   S = S_0 + fade S_0 + k^T (last o b o w)
 * Backwards the same from the last row to the first, with N = -b o A:
 *   U = G^T dy + N^T U,  W = last o k + N^T W:   x = U + W dS
 *   dS = dS + fade dS + q^T (p o dy) + k^T (-p o b o x)
 * Rows of U and W are bounded as w is, for |k| <= 1 and 0 <= b <= 1. */
#ifndef DRA_SRC_OPS_CHUNKED_DELTA_CUH
#define DRA_SRC_OPS_CHUNKED_DELTA_CUH

#include "ops/chunked/chunk.cuh"

/* ---- substitution ---------------------------------------------------------------------------- */

enum { DRA_SOLVE_GROUPS = DRA_TILE_THREADS / DRA_TILE, DRA_SOLVE_ROWS = 4 };
enum { DRA_SOLVE_HELD = DRA_TILE / DRA_SOLVE_ROWS / DRA_SOLVE_GROUPS }; /* parts of a thread */

/* Four numbers of N: what rows 4 to .. 4 to + 3 take of row `from`, as they are substituted. */
template <bool BACK>
__device__ static inline void dra_solve_weights(const float *N, int from, int to, float *w)
{
    float v[4];
    if (BACK)
        dra_load_some<4>(N + (DRA_TILE - 1 - from) * DRA_TILE_ROW + DRA_TILE - 4 - 4 * to, v);
    else
        dra_load_some<4>(N + from * DRA_TILE_ROW + 4 * to, v);
    DRA_UNROLL
    for (int i = 0; i < 4; i++) w[i] = BACK ? v[3 - i] : v[i];
}

/* x = x + N x in a tile of which n rows are there, from the first row to the last, N given as
 * N[s][t], its transpose; BACK: x = x + N^T x from the last to the first, N as N[t][s]. A thread
 * has a column of x and every DRA_SOLVE_GROUPS-th part of four rows: those who have the next part
 * finish it, all others take it. */
template <bool BACK> __device__ static inline void dra_tile_solve(int n, const float *N, float *x)
{
    const int  j = (int)threadIdx.x % DRA_TILE, group = (int)threadIdx.x / DRA_TILE;
    float      own[DRA_SOLVE_HELD][4], w[4];
    const auto row = [&](int r) { return x + (BACK ? DRA_TILE - 1 - r : r) * DRA_TILE_ROW + j; };
    DRA_UNROLL
    for (int h = 0; h < DRA_SOLVE_HELD; h++)
        for (int i = 0; i < 4; i++) own[h][i] = *row(4 * (h * DRA_SOLVE_GROUPS + group) + i);
    DRA_UNROLL
    for (int part = 0; part < DRA_TILE / 4; part++) {
        const int held = part / DRA_SOLVE_GROUPS;
        const int first = BACK ? DRA_TILE - 4 - 4 * part : 4 * part; /* row of the tile */
        if (first >= n) continue;
        if (part % DRA_SOLVE_GROUPS == group) {
            DRA_UNROLL
            for (int s = 0; s < 4; s++) {
                dra_solve_weights<BACK>(N, 4 * part + s, part, w);
                *row(4 * part + s) = own[held][s];
                DRA_UNROLL
                for (int i = s + 1; i < 4; i++) own[held][i] += w[i] * own[held][s];
            }
        }
        __syncthreads();
        DRA_UNROLL
        for (int h = held; h < DRA_SOLVE_HELD; h++) {
            const int to = h * DRA_SOLVE_GROUPS + group;
            for (int s = 0; s < 4 && to > part; s++) {
                const float v = *row(4 * part + s);
                dra_solve_weights<BACK>(N, 4 * part + s, to, w);
                DRA_UNROLL
                for (int i = 0; i < 4; i++) own[h][i] += w[i] * v;
            }
        }
    }
    __syncthreads();
}

/* ---- U and W --------------------------------------------------------------------------------- */

struct dra_delta_system {
    dra_chunks     z;
    dra_chunk_rows k, b, v; /* v: dy of the gradient */
    dra_chunk_rows q;       /* of the gradient alone */
    dra_chunk_rows U, W;
};

/* Rows (n, X.W) of a tile to those of the chunk, from column `first` on. */
__device__ static inline void dra_delta_store(const dra_chunk_rows &X, const dra_chunk_place &k,
                                              int first, const float *tile)
{
    dra_tile_store(tile, k.n, dra_tile_width(X.W, first), dra_chunk_row(X, k, 0, first), X.t);
}

/* N as dra_tile_solve takes it, and of the gradient G = (q k^T) o D, in tiles. All wait. */
template <bool BACK>
__device__ static inline void dra_delta_pairs(const dra_delta_system &a, const dra_chunk_place &k,
                                              const dra_chunk_decay &d, const float *b, float *N,
                                              float *spare, float *G)
{
    dra_tile_sums A, pairs;
    A.clear();
    pairs.clear();
    for (int f = 0; f < a.z.F; f += DRA_TILE) {
        const int F = dra_tile_width(a.z.F, f);
        dra_tile_load(N, dra_chunk_source(a.k, k, f), d.on);
        if (BACK) dra_tile_load(spare, dra_chunk_source(a.q, k, f), d.on);
        __syncthreads();
        A.add<DRA_ABT>(k.n, k.n, F, N, N);
        if (BACK) pairs.add<DRA_ABT>(k.n, k.n, F, spare, N);
        __syncthreads();
    }
    A.each([&](int t, int s, float v) {
        const float by = BACK ? b[t] : b[s];
        N[BACK ? t * DRA_TILE_ROW + s : s * DRA_TILE_ROW + t] = s < t && t < k.n
                                                                    ? -v * by *
                                                                          dra_decay_between(d, t, s)
                                                                    : 0;
    });
    if (BACK) dra_chunk_fade(pairs, d, k.n, G);
    __syncthreads();
}

/* A block for each chunk. */
template <bool BACK>
__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2)
    dra_delta_solve(const dra_delta_system a)
{
    DRA_SHARED(float, N);
    __shared__ dra_chunk_decay d;
    __shared__ float           b[DRA_CHUNK], factor[DRA_CHUNK];
    float *const x = N + DRA_TILE_SIZE, *const G = x + DRA_TILE_SIZE;
    const dra_chunks     &z = a.z;
    const int64_t         number = blockIdx.x;
    const dra_chunk_place k = dra_chunk_at(z, number / z.chunks, (int)(number % z.chunks));
    dra_decay_make(d, z, k);
    dra_chunk_strengths(a.b, k, d, b);
    DRA_EACH_TOKEN(t)
    factor[t] = d.on[t] == 0 ? 0 : BACK ? d.last[t] : -d.p[t];
    dra_delta_pairs<BACK>(a, k, d, b, N, x, G);
    for (int f = 0; f < z.F; f += DRA_TILE) {
        dra_tile_load(x, dra_chunk_source(a.k, k, f), factor);
        __syncthreads();
        dra_tile_solve<BACK>(k.n, N, x);
        dra_delta_store(a.W, k, f, x);
        __syncthreads();
    }
    for (int e = 0; e < z.E; e += DRA_TILE) {
        dra_tile_load(x, dra_chunk_source(a.v, k, e), d.on);
        __syncthreads();
        if (BACK) {
            dra_tile_sums sum;
            sum.clear();
            sum.add<DRA_ATB>(k.n, dra_tile_width(z.E, e), k.n, G, x);
            __syncthreads();
            sum.each([&](int t, int j, float v) { x[t * DRA_TILE_ROW + j] = t < k.n ? v : 0; });
            __syncthreads();
        }
        dra_tile_solve<BACK>(k.n, N, x);
        dra_delta_store(a.U, k, e, x);
        __syncthreads();
    }
}

template <bool BACK>
static inline void dra_delta_solve_launch(const dra_call *c, const dra_delta_system &a)
{
    const int64_t blocks = a.z.heads * a.z.chunks;
    if (blocks > 0) DRA_LAUNCH_TILES(c, dra_delta_solve<BACK>, blocks, BACK ? 3 : 2, a);
}

/* ---- states ---------------------------------------------------------------------------------- */

struct dra_delta_walk {
    dra_chunks        z;
    dra_chunk_rows    k, b, U, W;
    dra_chunk_rows    out;    /* w or x, may be U; or none */
    dra_chunk_state   S;      /* to begin with */
    dra_chunk_state   S_last; /* or none */
    dra_chunk_borders kept;   /* before each chunk, BACK: after it */
};

struct dra_delta_place { /* where the state before step i is kept, after the last one S_last */
    float  *at;          /* NULL: nowhere */
    int64_t f;           /* from row to row */
};

template <bool BACK>
__device__ static inline dra_delta_place dra_delta_at(const dra_delta_walk &a, int64_t head,
                                                      int step, int e)
{
    const int       chunks = a.z.chunks;
    dra_chunk_place k = dra_chunk_at(a.z, head, BACK ? chunks - 1 - step : step);
    if (step < chunks) return {dra_border_at(a.kept, k, 0, e), a.kept.f};
    if (!a.S_last.at) return {};
    return {a.S_last.at + k.b * a.S_last.b + k.h * a.S_last.h + e, a.S_last.f};
}

/* Whether the state before step i is empty whatever came before. */
template <bool BACK>
__device__ static inline bool dra_delta_starts(const dra_delta_walk &a, int64_t head, int step)
{
    return !BACK && step < a.z.chunks && dra_chunk_starts(a.z, dra_chunk_at(a.z, head, step));
}

/* The first state, (F, E) columns from e on. All wait. */
template <bool BACK>
__device__ static inline void dra_delta_begin(const dra_delta_walk &a, int64_t head, int e)
{
    const dra_delta_place to = dra_delta_at<BACK>(a, head, 0, e);
    const bool            empty = !a.S.at || dra_delta_starts<BACK>(a, head, 0);
    const int             E = dra_tile_width(a.z.E, e);
    const float          *from = a.S.at + head / a.z.H * a.S.b + head % a.z.H * a.S.h + e;
    for (int64_t i = threadIdx.x; i < (int64_t)a.z.F * DRA_TILE && to.at; i += DRA_TILE_THREADS) {
        const int f = (int)(i / DRA_TILE), j = (int)(i % DRA_TILE);
        if (j < E) to.at[f * to.f + j] = empty ? 0 : from[f * a.S.f + j];
    }
    __syncthreads();
}

/* What a block has in shared memory: tiles, and what it knows of a chunk. */
struct dra_delta_shared {
    dra_chunk_decay d;
    float           b[DRA_CHUNK], factor[DRA_CHUNK]; /* factor: of w, in what is written */
};

struct dra_delta_tiles {
    float *W, *u, *S, *keys;
};

/* A tile of the state, from row f on. */
__device__ static inline dra_tile_source dra_delta_state(const dra_chunks &z, dra_delta_place from,
                                                         int f, int E)
{
    return {from.at + f * from.f, from.f, dra_tile_width(z.F, f), E, false};
}

/* w = U + W S to where it goes, and w times its factor in the place of U. All wait. */
template <bool SEVERAL>
__device__ static inline void
dra_delta_misses(const dra_delta_walk &a, const dra_chunk_place &k, const dra_delta_tiles &tile,
                 const dra_delta_shared &shared, dra_delta_place from, int e)
{
    const int     E = dra_tile_width(a.z.E, e);
    dra_tile_sums w;
    w.clear();
    for (int f = 0; f < a.z.F; f += DRA_TILE) {
        if (SEVERAL) {
            dra_tile_load(tile.W, dra_chunk_source(a.W, k, f));
            dra_tile_load(tile.S, dra_delta_state(a.z, from, f, E));
            __syncthreads();
        }
        w.add<DRA_AB>(k.n, E, dra_tile_width(a.z.F, f), tile.W, tile.S);
        if (SEVERAL) __syncthreads();
    }
    w.each([&](int t, int j, float v) {
        float *const u = tile.u + t * DRA_TILE_ROW + j;
        v += *u;
        if (a.out.at && t < k.n && j < E) *dra_chunk_row(a.out, k, t, e + j) = v;
        *u = t < k.n ? shared.factor[t] * v : 0;
    });
    __syncthreads();
}

/* The state after the chunk, nothing if it is emptied there; BACK: what is at its place already is
 * q^T (p o dy), and added. All wait. */
template <bool BACK, bool SEVERAL>
__device__ static inline void dra_delta_update(const dra_delta_walk &a, const dra_chunk_place &k,
                                               const dra_delta_tiles  &tile,
                                               const dra_delta_shared &shared, dra_delta_place from,
                                               dra_delta_place to, bool emptied, int e)
{
    const int E = dra_tile_width(a.z.E, e);
    for (int f = 0; f < a.z.F; f += DRA_TILE) {
        const int     F = dra_tile_width(a.z.F, f);
        dra_tile_sums sum;
        if (SEVERAL) {
            dra_tile_load(tile.keys, dra_chunk_source(a.k, k, f), shared.d.on);
            dra_tile_load(tile.S, dra_delta_state(a.z, from, f, E));
            __syncthreads();
        }
        sum.each([&](int i, int j, float &v) {
            v = dra_decay_state(shared.d, tile.S[i * DRA_TILE_ROW + j]);
            if (BACK && i < F && j < E) v += to.at[(f + i) * to.f + j];
        });
        sum.add<DRA_ATB>(F, E, k.n, tile.keys, tile.u);
        __syncthreads();
        sum.each([&](int i, int j, float v) {
            if (emptied) v = 0;
            tile.S[i * DRA_TILE_ROW + j] = v;
            if (i < F && j < E) to.at[(f + i) * to.f + j] = v;
        });
        __syncthreads();
    }
}

struct dra_delta_rows { /* of a chunk, on their way */
    dra_tile_held W, U, keys;

    template <bool SEVERAL>
    __device__ void fetch(const dra_delta_walk &a, const dra_chunk_place &k, int e)
    {
        if (!SEVERAL) W.fetch(dra_chunk_source(a.W, k, 0));
        if (!SEVERAL) keys.fetch(dra_chunk_source(a.k, k, 0));
        U.fetch(dra_chunk_source(a.U, k, e));
    }

    template <bool SEVERAL>
    __device__ void put(const dra_delta_tiles &tile, const dra_chunk_decay &d) const
    {
        if (!SEVERAL) W.put(tile.W);
        if (!SEVERAL) keys.put(d.on, tile.keys);
        U.put(tile.u);
    }
};

/* A block has all rows and DRA_TILE columns of S and walks over the chunks. Rows of the next chunk
 * are on their way while it works on this one, if F fits into a tile; else S stays where it is kept
 * and passes through a tile, with the rows that meet it. */
template <bool BACK, bool SEVERAL>
__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2)
    dra_delta_states(const dra_delta_walk a)
{
    DRA_SHARED(float, room);
    __shared__ dra_delta_shared shared;
    const dra_delta_tiles       tile = {room, room + DRA_TILE_SIZE, room + 2 * DRA_TILE_SIZE,
                                        room + 3 * DRA_TILE_SIZE};
    const int                   chunks = a.z.chunks;
    const int64_t               head = blockIdx.x / dra_tiles(a.z.E);
    const int                   e = (int)(blockIdx.x % dra_tiles(a.z.E)) * DRA_TILE;
    dra_delta_rows              next;
    dra_delta_begin<BACK>(a, head, e);
    for (int step = 0; step < chunks; step++) {
        const dra_chunk_place k = dra_chunk_at(a.z, head, BACK ? chunks - 1 - step : step);
        const dra_delta_place from = dra_delta_at<BACK>(a, head, step, e);
        const dra_delta_place to = dra_delta_at<BACK>(a, head, step + 1, e);
        if (step == 0) next.template fetch<SEVERAL>(a, k, e);
        if (step == 0 && !SEVERAL)
            dra_tile_load(tile.S, dra_delta_state(a.z, from, 0, dra_tile_width(a.z.E, e)));
        dra_decay_make(shared.d, a.z, k);
        dra_chunk_strengths(a.b, k, shared.d, shared.b);
        DRA_EACH_TOKEN(t)
        {
            shared.factor[t] = shared.b[t] * (BACK ? -shared.d.p[t] : shared.d.last[t]);
        }
        next.template put<SEVERAL>(tile, shared.d);
        if (step + 1 < chunks)
            next.template fetch<SEVERAL>(a, dra_chunk_at(a.z, head, BACK ? k.i - 1 : k.i + 1), e);
        __syncthreads();
        dra_delta_misses<SEVERAL>(a, k, tile, shared, from, e);
        if (!to.at) break; /* nobody reads the last state */
        dra_delta_update<BACK, SEVERAL>(a, k, tile, shared, from, to,
                                        dra_delta_starts<BACK>(a, head, step + 1), e);
    }
}

template <bool BACK>
static inline void dra_delta_walk_launch(const dra_call *c, const dra_delta_walk &a)
{
    const int64_t blocks = a.z.heads * dra_tiles(a.z.E);
    if (blocks == 0) return;
    if (a.z.F <= DRA_TILE)
        DRA_LAUNCH_TILES(c, (dra_delta_states<BACK, false>), blocks, 4, a);
    else
        DRA_LAUNCH_TILES(c, (dra_delta_states<BACK, true>), blocks, 4, a);
}

#endif
