/* attend_back by tensor cores, in bf16 precision, see attend_mma.cu: q, k, v, dy, p and ds are
 * rounded to bf16. Formulas in ops/attend_back.c, order of the work as in attend_back.cu: one launch
 * by tiles of queries for dq, one by tiles of keys for dk and dv.
 *
 * A warp has 16 queries, or keys, of which it holds q and dy, or k and v, as fragments; the other
 * side comes through shared memory, N * 8 rows of it at a time. Of keys it computes s and dp
 * transposed, so that in both passes they come out of one product as the next one reads them. */
#include "cuda/attend_mma.h"

enum { WARPS = DRA_ATTEND_WARPS, THREADS = 32 * WARPS, ROWS = 16 * WARPS };
enum { OTHERS = DRA_ATTEND_KEYS }; /* on the other side, at a time in shared memory */

/* Columns that are at work at a time, in units of 8, and blocks that then have registers. */
template <int W> struct shape {
    enum { N = W == 64 ? 4 : 2, RESIDENT = W == 64 ? 3 : 2 };
};

struct backward {
    dra_attend_tensor dy, lse, delta; /* (B, H, T, E), (B, H, T), (B, H, T, 1) */
    float            *dq, *dk, *dv;
};

template <int N> struct queries {
    dra_attend_query q[N];
    float            lse[N], delta[N]; /* lse / ln 2; inf where there is no query: weights are 0 */
};

template <int N>
__device__ static void open_queries(const dra_attend_call &a, const backward &g, int b, int h,
                                    int t0, queries<N> *u)
{
    dra_attend_open_queries<N>(a, b, h, t0, u->q);
    for (int r = (int)threadIdx.x; r < N; r += THREADS) {
        const int t = t0 + r;
        u->lse[r] = t < a.T ? *dra_attend_at<float>(g.lse, b, h, t) / DRA_LN2 : INFINITY;
        u->delta[r] = t < a.T ? *dra_attend_at<float>(g.delta, b, h, t) : 0;
    }
}

/* From s = q.k and dp = dy.v of a query and a key to p and ds. */
__device__ static void pair(float c, bool sees, float lse, float delta, float &s, float &dp)
{
    s = sees ? dra_fast_exp2(fmaf(c, s, -lse)) : 0;
    dp = s == 0 ? 0 : s * (dp - delta);
}

/* A warp's rows of a result, W wide, times `by`; row(r): where row r goes, or NULL. */
template <int W, typename F>
__device__ static void store(const float (&y)[1][W / 8][4], float by, F row)
{
    DRA_UNROLL
    for (int half = 0; half < 2; half++) {
        float *to = row(dra_mma_g() + 8 * half);
        DRA_UNROLL
        for (int n = 0; to && n < W / 8; n++)
            *reinterpret_cast<float2 *>(to + 8 * n + 2 * dra_mma_t()) = make_float2(
                y[0][n][2 * half] * by, y[0][n][2 * half + 1] * by);
    }
}

/* ---- dq -------------------------------------------------------------------------------------- */

/* dq += ds k of N * 8 keys from `key` on, k and v their rows. */
template <int W, int N>
__device__ static void add_keys(float c, const queries<ROWS> &u, int own, bool all, int key,
                                const uint32_t (&q)[1][W / 16][4],
                                const uint32_t (&dy)[1][W / 16][4], const uint16_t *k,
                                const uint16_t *v, float (&dq)[1][W / 8][4])
{
    float    s[1][N][4] = {}, dp[1][N][4] = {};
    uint32_t ds[1][N / 2][4];
    dra_mma_dots<1, N, W>(s, q, k);
    dra_mma_dots<1, N, W>(dp, dy, v);
    DRA_UNROLL
    for (int i = 0; i < 4; i++) {
        const int               r = own + dra_mma_g() + i / 2 * 8;
        const dra_attend_query &at = u.q[r];
        DRA_UNROLL
        for (int n = 0; n < N; n++) {
            const int j = key + 8 * n + 2 * dra_mma_t() + i % 2;
            pair(c, all || (at.lo <= j && j < at.hi), u.lse[r], u.delta[r], s[0][n][i],
                 dp[0][n][i]);
        }
    }
    dra_mma_turn<1, N / 2>(ds, dp);
    dra_mma_times<1, N / 2, W>(dq, ds, k);
}

template <int W>
__global__ static void __launch_bounds__(THREADS, shape<W>::RESIDENT)
    query_kernel(const dra_attend_call a, const backward g)
{
    enum { N = shape<W>::N };
    const int   tiles = (a.T + ROWS - 1) / ROWS;
    const int   t0 = (tiles - 1 - (int)(blockIdx.x % tiles)) * ROWS; /* long ones first */
    const int   h = (int)(blockIdx.x / tiles) % a.H, b = (int)(blockIdx.x / tiles) / a.H;
    const int   kv = dra_attend_key_head(a, h), own = (int)threadIdx.x / 32 * 16;
    const float c = a.scale / DRA_LN2;
    __shared__ queries<ROWS> u;
    DRA_SHARED(uint16_t, room_k);
    uint16_t *const room_v = room_k + OTHERS * dra_mma_row<W>::STEP;
    open_queries<ROWS>(a, g, b, h, t0, &u);
    __syncthreads();
    const dra_attend_seen seen = dra_attend_seen_of<ROWS>(a, u.q);
    dra_attend_rows       rows_q = dra_attend_rows_of(a.q, b, h, a.T);
    dra_attend_rows       rows_dy = dra_attend_rows_of(g.dy, b, h, a.T);
    dra_attend_rows       rows_k = dra_attend_rows_of(a.k, b, kv, seen.end, seen.first);
    dra_attend_rows       rows_v = dra_attend_rows_of(a.v, b, kv, seen.end, seen.first);
    uint32_t              q[1][W / 16][4], dy[1][W / 16][4];
    float                 dq[1][W / 8][4] = {};
    rows_q.first = rows_dy.first = t0 + own;
    dra_mma_rows<W>(q[0], rows_q);
    dra_mma_rows<W>(dy[0], rows_dy);
    for (int j0 = seen.first / OTHERS * OTHERS; j0 < seen.end; j0 += OTHERS) {
        const bool all = j0 >= seen.most_lo && j0 + OTHERS <= seen.least_hi;
        rows_k.first = rows_v.first = j0;
        __syncthreads(); /* all are through with the rooms */
        dra_mma_fill<OTHERS, W, THREADS>(room_k, rows_k);
        dra_mma_fill<OTHERS, W, THREADS>(room_v, rows_v);
        __syncthreads();
        for (int n = 0; n < OTHERS; n += 8 * N)
            add_keys<W, N>(c, u, own, all, j0 + n, q, dy, room_k + n * dra_mma_row<W>::STEP,
                           room_v + n * dra_mma_row<W>::STEP, dq);
    }
    store<W>(dq, a.scale, [&](int r) {
        const int t = t0 + own + r;
        return t < a.T ? g.dq + (((int64_t)b * a.H + h) * a.T + t) * W : nullptr;
    });
}

/* ---- dk, dv ---------------------------------------------------------------------------------- */

/* dv += p^T dy and dk += ds^T q of N * 8 queries, from `first` of the tile on; key: of row 0. */
template <int W, int N>
__device__ static void
add_queries(float c, const queries<OTHERS> &u, int first, bool all, int key,
            const uint32_t (&k)[1][W / 16][4], const uint32_t (&v)[1][W / 16][4], const uint16_t *q,
            const uint16_t *dy, float (&dk)[1][W / 8][4], float (&dv)[1][W / 8][4])
{
    float    s[1][N][4] = {}, dp[1][N][4] = {};
    uint32_t p[1][N / 2][4];
    dra_mma_dots<1, N, W>(s, k, q);
    dra_mma_dots<1, N, W>(dp, v, dy);
    DRA_UNROLL
    for (int n = 0; n < N; n++) {
        DRA_UNROLL
        for (int i = 0; i < 4; i++) {
            const int               r = first + 8 * n + 2 * dra_mma_t() + i % 2;
            const int               j = key + dra_mma_g() + i / 2 * 8;
            const dra_attend_query &at = u.q[r];
            pair(c, all || (at.lo <= j && j < at.hi), u.lse[r], u.delta[r], s[0][n][i],
                 dp[0][n][i]);
        }
    }
    dra_mma_turn<1, N / 2>(p, s);
    dra_mma_times<1, N / 2, W>(dv, p, dy);
    dra_mma_turn<1, N / 2>(p, dp);
    dra_mma_times<1, N / 2, W>(dk, p, q);
}

template <int W>
__global__ static void __launch_bounds__(THREADS, shape<W>::RESIDENT)
    key_kernel(const dra_attend_call a, const backward g)
{
    enum { N = shape<W>::N };
    const int   tiles = (a.J + ROWS - 1) / ROWS, j0 = (int)(blockIdx.x % tiles) * ROWS;
    const int   kv = (int)(blockIdx.x / tiles) % a.K, b = (int)(blockIdx.x / tiles) / a.K;
    const int   own = (int)threadIdx.x / 32 * 16;
    const float c = a.scale / DRA_LN2;
    __shared__ queries<OTHERS> u;
    DRA_SHARED(uint16_t, room_q);
    uint16_t *const room_dy = room_q + OTHERS * dra_mma_row<W>::STEP;
    dra_attend_rows rows_k = dra_attend_rows_of(a.k, b, kv, a.J);
    dra_attend_rows rows_v = dra_attend_rows_of(a.v, b, kv, a.J);
    uint32_t        k[1][W / 16][4], v[1][W / 16][4];
    float           dk[1][W / 8][4] = {}, dv[1][W / 8][4] = {};
    rows_k.first = rows_v.first = j0 + own;
    dra_mma_rows<W>(k[0], rows_k);
    dra_mma_rows<W>(v[0], rows_v);
    for (int i = 0; i < a.G; i++) {
        const int       h = dra_attend_head(a, kv, i);
        dra_attend_rows rows_q = dra_attend_rows_of(a.q, b, h, a.T);
        dra_attend_rows rows_dy = dra_attend_rows_of(g.dy, b, h, a.T);
        for (int t0 = 0; t0 < a.T; t0 += OTHERS) {
            __syncthreads(); /* all are through with the rooms */
            open_queries<OTHERS>(a, g, b, h, t0, &u);
            __syncthreads();
            const dra_attend_seen seen = dra_attend_seen_of<OTHERS>(a, u.q);
            if (!seen.any(a, j0, ROWS)) continue;
            const bool all = j0 >= seen.most_lo && j0 + ROWS <= seen.least_hi;
            rows_q.first = rows_dy.first = t0;
            dra_mma_fill<OTHERS, W, THREADS>(room_q, rows_q);
            dra_mma_fill<OTHERS, W, THREADS>(room_dy, rows_dy);
            __syncthreads();
            for (int n = 0; n < OTHERS; n += 8 * N)
                add_queries<W, N>(c, u, n, all, j0 + own, k, v, room_q + n * dra_mma_row<W>::STEP,
                                  room_dy + n * dra_mma_row<W>::STEP, dk, dv);
        }
    }
    const auto row_of = [&](float *x, int r) {
        const int j = j0 + own + r;
        return x && j < a.J ? x + (((int64_t)b * a.K + kv) * a.J + j) * W : nullptr;
    };
    store<W>(dk, a.scale, [&](int r) { return row_of(g.dk, r); });
    store<W>(dv, 1, [&](int r) { return row_of(g.dv, r); });
}

/* ---- launch ---------------------------------------------------------------------------------- */

template <int W> static void start(const dra_call *c, const dra_attend_call &a, const backward &g)
{
    const int64_t q_tiles = a.B * a.H * dra_div_up(a.T, ROWS);
    const int64_t k_tiles = a.B * a.K * dra_div_up(a.J, ROWS);
    const size_t  bytes = 2 * OTHERS * dra_mma_row<W>::STEP * sizeof(uint16_t);
    if (g.dq && q_tiles) DRA_LAUNCH(c, query_kernel<W>, (unsigned)q_tiles, THREADS, bytes, a, g);
    if ((g.dk || g.dv) && k_tiles)
        DRA_LAUNCH(c, key_kernel<W>, (unsigned)k_tiles, THREADS, bytes, a, g);
}

void dra_attend_mma_back(const dra_call *c, const dra_attend_call &a)
{
    const dra_tensor *dy = &c->in[c->n_in - 3];
    backward          g = {};
    g.dy = dra_attend_tensor_of(dy);
    g.lse = dra_attend_tensor_of(dy + 1);
    g.delta = dra_attend_tensor_of(dy + 2);
    g.dq = static_cast<float *>(c->out[DRA_ATTEND_DQ].data);
    g.dk = static_cast<float *>(c->out[DRA_ATTEND_DK].data);
    g.dv = static_cast<float *>(c->out[DRA_ATTEND_DV].data);
    a.D == 64 ? start<64>(c, a, g) : start<128>(c, a, g);
}
