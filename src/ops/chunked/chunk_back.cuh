/* Gradients of matrix memories, all chunks at once: dq, dk and what dl is summed from. With the
 * symbols of moment_back.c and delta_back.c, u for v of moment, g for dnum and dy, S_0 the
 * state before the chunk and dS the gradient of the one after it:
 *   X  = (g u^T + dden 1^T) o D,   M = (m u^T) o D below the diagonal, of delta alone
 *   dq = X k + p o (g S_0^T + dden z_0^T)
 *   dk = [M k + p o (m S_0^T)] + [X^T q + M^T k + last o (u dS^T + 1 dz^T)]
 *   dL_t = q_t.dq_t + k_t.(first part of dk_t - second part)
 *   through = e^(L_n-1) (<S_0, dS> + <z_0, dz>) + sum_t last_t k_t.(u dS^T + 1 dz^T)_t
 *   dl_j = through + sum_{t >= j} dL_t
 * A block has a chunk and DRA_TILE columns of dq and dk. dL and through are sums over these,
 * made by a last kernel. */
#ifndef DRA_SRC_OPS_CHUNKED_CHUNK_BACK_CUH
#define DRA_SRC_OPS_CHUNKED_CHUNK_BACK_CUH

#include "ops/chunked/chunk.cuh"

struct dra_back_call {
    dra_chunks        z;
    dra_chunk_rows    q, k, u, g, x; /* x: of delta, m = -b o x */
    dra_chunk_rows    b;             /* of delta: u = b o (rows of u) */
    const float      *part, *dden;   /* (heads, T): g = part o (rows of g), or NULL: 1 and 0 */
    dra_chunk_borders S, dS;
    dra_chunk_borders sums, dsums; /* z_0 and dz, where there is dden */
    dra_chunk_rows    dq, dk;
    float *dL, *through; /* (tiles of F, heads, T), (tiles of F, heads, chunks), or NULL */
};

/* The sum of products of this thread's numbers of a tile and those on their way to it. */
__device__ static inline float dra_tile_product_sum(const dra_tile_held &held, const float *tile)
{
    float sum = 0;
    DRA_UNROLL
    for (int k = 0; k < DRA_TILE_HELD; k++)
        sum += held.v[k] * tile[dra_tile_held::row(k / 4) * DRA_TILE_ROW + held.column() + k % 4];
    return sum;
}

struct dra_back_factors { /* of rows, in shared memory */
    float g[DRA_CHUNK], dden[DRA_CHUNK], u[DRA_CHUNK], m[DRA_CHUNK];
};

__device__ static inline void dra_back_factors_make(const dra_back_call   &a,
                                                    const dra_chunk_place &k,
                                                    const dra_chunk_decay &d, dra_back_factors &to)
{
    const int64_t at = k.head * a.z.T + k.t;
    DRA_EACH_TOKEN(t)
    {
        const bool  on = d.on[t] != 0;
        const float b = on && a.b.at ? *dra_chunk_row(a.b, k, t) : 1;
        to.g[t] = !on ? 0 : a.part ? a.part[at + t] : 1;
        to.dden[t] = on && a.dden ? a.dden[at + t] : 0;
        to.u[t] = on ? b : 0;
        to.m[t] = on ? -b : 0;
    }
    __syncthreads();
}

/* What a block adds up over the columns of values. */
struct dra_back_sums {
    dra_tile_sums X, M, dq, dk, old; /* old: the part of dk by what was before */
    float         through;           /* of this thread */
};

/* Of DRA_TILE columns of values, from e on. Their rows are on their way while `make` is done. */
template <bool DELTA, typename F>
__device__ static inline void dra_back_values(const dra_back_call &a, const dra_chunk_place &k,
                                              const dra_back_factors &by, int f, int e, float *tile,
                                              dra_back_sums &s, F make)
{
    const int    rows = dra_tile_width(a.z.F, f), E = dra_tile_width(a.z.E, e);
    float *const u = tile + DRA_TILE_SIZE, *const S = u + DRA_TILE_SIZE;
    dra_tile_held one, two, three;
    one.fetch(dra_chunk_source(a.g, k, e));
    two.fetch(dra_chunk_source(a.u, k, e));
    three.fetch(dra_border_source(a.z, a.S, k, f, e));
    make();
    one.put(by.g, tile);
    two.put(by.u, u);
    three.put(S);
    __syncthreads();
    s.X.add<DRA_ABT>(k.n, k.n, E, tile, u);
    s.dq.add<DRA_ABT>(k.n, rows, E, tile, S);
    if (DELTA) {
        __syncthreads();
        dra_tile_load(tile, dra_chunk_source(a.x, k, e), by.m);
        __syncthreads();
        s.M.add<DRA_ABT>(k.n, k.n, E, tile, u);
        s.old.add<DRA_ABT>(k.n, rows, E, tile, S);
    }
    three.fetch(dra_border_source(a.z, a.dS, k, f, e));
    s.through += dra_tile_product_sum(three, S);
    __syncthreads();
    three.put(S);
    __syncthreads();
    s.dk.add<DRA_ABT>(k.n, rows, E, u, S);
    __syncthreads();
}

/* (sum + plus) o D in a tile, without the diagonal if STRICT. */
template <bool STRICT>
__device__ static inline void dra_back_fade(dra_tile_sums &sum, const dra_chunk_decay &d, int n,
                                            const float *plus, float *tile)
{
    sum.each([&](int t, int s, float v) {
        const bool there = t < n && (STRICT ? s < t : s <= t);
        tile[t * DRA_TILE_ROW + s] = there ? (v + plus[t]) * dra_decay_between(d, t, s) : 0;
    });
}

/* Rows of an output, unless nobody reads it; 0 at pads. */
__device__ static inline void dra_back_store(dra_tile_sums &sum, const dra_chunk_rows &to,
                                             const dra_chunk_place &k, const dra_chunk_decay &d,
                                             int first)
{
    if (!to.at) return;
    sum.each([&](int t, int j, float v) {
        if (t < k.n && first + j < to.W) *dra_chunk_row(to, k, t, first + j) = d.on[t] != 0 ? v : 0;
    });
}

struct dra_back_shared {
    dra_chunk_decay  d;
    dra_back_factors by;
    float            dL[DRA_CHUNK], within[DRA_CHUNK], part[DRA_TILE_GROUPS * DRA_TILE];
};

/* What comes through the states: p o (g S_0^T + dden z_0^T), p o (m S_0^T), last o (u dS^T + 1
 * dz^T), and the sum of z_0 dz. */
__device__ static inline void dra_back_states(const dra_back_call &a, const dra_chunk_place &k,
                                              const dra_back_shared &shared, int f, int F,
                                              dra_back_sums &s)
{
    const dra_chunk_decay &d = shared.d;
    const float           *sums = a.dden ? dra_border_at(a.sums, k, f) : nullptr;
    const float           *dsums = a.dden ? dra_border_at(a.dsums, k, f) : nullptr;
    s.dq.each([&](int t, int j, float &v) {
        v = d.p[t] * (sums && j < F ? v + shared.by.dden[t] * sums[j] : v);
    });
    s.old.each([&](int t, int, float &v) { v *= d.p[t]; });
    s.dk.each([&](int t, int j, float &v) { v = d.last[t] * (dsums && j < F ? v + dsums[j] : v); });
    for (int j = (int)threadIdx.x; j < F && sums; j += DRA_TILE_THREADS)
        s.through += sums[j] * dsums[j];
}

/* Through pairs of tokens: dq, both parts of dk, and dL. Tiles X, k, q and M. */
template <bool DELTA>
__device__ static inline void dra_back_pairs(const dra_back_call &a, const dra_chunk_place &k,
                                             dra_back_shared &shared, int F, const float *X,
                                             dra_back_sums &s)
{
    const float *const keys = X + DRA_TILE_SIZE, *const queries = keys + DRA_TILE_SIZE;
    const float *const M = queries + DRA_TILE_SIZE;
    const auto add_dots = [&](dra_tile_sums &sum, const float *rows, float sign, float *to) {
        if (a.dL) dra_tile_add_dots(sum, rows, sign, shared.part, to);
    };
    s.dq.add<DRA_AB>(k.n, F, k.n, X, keys);
    add_dots(s.dq, queries, 1, shared.dL);
    add_dots(s.dk, keys, 1, shared.within);
    s.dk.add<DRA_ATB>(k.n, F, k.n, X, queries);
    if (DELTA) {
        s.old.add<DRA_AB>(k.n, F, k.n, M, keys);
        s.dk.add<DRA_ATB>(k.n, F, k.n, M, keys);
        add_dots(s.old, keys, 1, shared.dL);
    }
    add_dots(s.dk, keys, -1, shared.dL);
    for (int i = 0; i < DRA_TILE_HELD && DELTA; i++) s.dk.v[i] += s.old.v[i];
}

/* dL and `through` of this block's columns. */
__device__ static inline void dra_back_decay(const dra_back_call &a, const dra_chunk_block &at,
                                             const dra_back_shared &shared, float through)
{
    const dra_chunk_place &k = at.k;
    through *= shared.d.kept;
    for (int t = (int)threadIdx.x; t < k.n; t += DRA_TILE_THREADS) {
        a.dL[(at.tile * a.z.heads + k.head) * a.z.T + k.t + t] = shared.dL[t];
        through += shared.within[t];
    }
    through = dra_block_sum(through);
    if (threadIdx.x == 0) a.through[(at.tile * a.z.heads + k.head) * a.z.chunks + k.i] = through;
}

template <bool DELTA>
__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2) dra_back_kernel(const dra_back_call a)
{
    DRA_SHARED(float, X);
    __shared__ dra_back_shared shared;
    float *const keys = X + DRA_TILE_SIZE, *const queries = keys + DRA_TILE_SIZE;
    const dra_chunk_block  at = dra_chunk_block_at(a.z, dra_tiles(a.z.F));
    const dra_chunk_place &k = at.k;
    const int              F = dra_tile_width(a.z.F, at.first);
    dra_back_sums          s;
    s.X.clear(), s.M.clear(), s.dq.clear(), s.dk.clear(), s.old.clear();
    s.through = 0;
    DRA_EACH_TOKEN(t) shared.dL[t] = shared.within[t] = 0;
    for (int e = 0; e < a.z.E || e == 0; e += DRA_TILE)
        dra_back_values<DELTA>(a, k, shared.by, at.first, e, X, s, [&] {
            if (e > 0) return;
            dra_decay_make(shared.d, a.z, k);
            dra_back_factors_make(a, k, shared.d, shared.by);
        });
    dra_back_fade<false>(s.X, shared.d, k.n, shared.by.dden, X);
    if (DELTA) dra_back_fade<true>(s.M, shared.d, k.n, shared.by.dden, queries + DRA_TILE_SIZE);
    dra_tile_load(keys, dra_chunk_source(a.k, k, at.first), shared.d.on);
    dra_tile_load(queries, dra_chunk_source(a.q, k, at.first), shared.d.on);
    dra_back_states(a, k, shared, at.first, F, s);
    __syncthreads();
    dra_back_pairs<DELTA>(a, k, shared, F, X, s);
    dra_back_store(s.dq, a.dq, k, shared.d, at.first);
    dra_back_store(s.dk, a.dk, k, shared.d, at.first);
    if (a.dL) dra_back_decay(a, at, shared, s.through);
}

template <bool DELTA> static void dra_back_launch(const dra_call *c, const dra_back_call &a)
{
    const int64_t blocks = a.z.heads * a.z.chunks * dra_tiles(a.z.F);
    if (blocks == 0 || !(a.dq.at || a.dk.at || a.dL)) return;
    DRA_LAUNCH_TILES(c, dra_back_kernel<DELTA>, blocks, DELTA ? 4 : 3, a);
}

/* ---- dl -------------------------------------------------------------------------------------- */

/* The sum over tiles of part[tile][i], of count each. */
__device__ static inline double dra_decay_part(const float *part, int tiles, int64_t count,
                                               int64_t i)
{
    double sum = 0;
    for (int tile = 0; tile < tiles; tile++) sum += (double)part[tile * count + i];
    return sum;
}

/* A warp has a chunk, a lane two tokens, from the last one back; pads and resets have none. */
__global__ static void dra_decay_back_kernel(const dra_chunks z, const float *dL,
                                             const float *through, dra_chunk_rows dl)
{
    const dra_chunk_place k = dra_chunk_block_at(z, 1).k;
    const int             lane = (int)threadIdx.x, tiles = dra_tiles(z.F);
    const int             later = k.n - 1 - 2 * lane;
    double                own[2] = {}, sum;
    for (int i = 0; i < 2; i++)
        if (later >= i)
            own[i] = dra_decay_part(dL, tiles, z.heads * z.T, k.head * z.T + k.t + later - i);
    sum = own[0] + own[1];
    for (int by = 1; by < 32; by *= 2) {
        const double before = __shfl_up_sync(~0u, sum, by);
        if (lane >= by) sum += before;
    }
    sum += dra_decay_part(through, tiles, z.heads * z.chunks, blockIdx.x);
    for (int i = 0; i < 2; i++) {
        if (later < i) continue;
        const int mark = dra_chunk_mark(z, k, later - i);
        *dra_chunk_row(dl, k, later - i) = mark & (DRA_MARK_PAD | DRA_MARK_RESET)
                                               ? 0
                                               : (float)(i ? sum : sum - own[1]);
    }
}

static inline void dra_decay_back_launch(const dra_call *c, const dra_back_call &a,
                                         const dra_chunk_rows &dl)
{
    const int64_t blocks = a.z.heads * a.z.chunks;
    if (dl.at && blocks > 0)
        DRA_LAUNCH(c, dra_decay_back_kernel, (unsigned)blocks, 32, 0, a.z, a.dL, a.through, dl);
}

#endif
