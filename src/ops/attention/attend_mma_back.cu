/* attend_back by tensor cores, in bf16 precision, see attend_mma.cu: q, k, v, dy, p and ds are
 * rounded to bf16. Formulas in attend_back.c, order of the work as in attend_back.cu: one
 * launch by tiles of queries for dq, one by tiles of keys for dk and dv.
 *
 * A warp has 16 queries, or keys, of which it holds q and dy, or k and v, as fragments; the other
 * side comes through shared memory, N * 8 rows of it at a time. Of keys it computes s and dp
 * transposed, so that in both passes they come out of one product as the next one reads them. */
#include "ops/attention/attend_mma.cuh"

enum { WARPS = DRA_ATTEND_WARPS, THREADS = 32 * WARPS, ROWS = 16 * WARPS };
enum { OTHERS = DRA_ATTEND_KEYS }; /* on the other side, at a time in shared memory */

/* Columns that are at work at a time, in units of 8, and blocks that then have registers. */
template <int W> struct shape {
    enum { N = W == 64 ? 4 : 2, RESIDENT = W == 64 ? 3 : 2 };
};

struct result { /* (B, H, T, W), rows adjacent; NULL: not wanted */
    void   *data;
    bool    bf16;
    int64_t stride[3];
};

/* Elements of two tiles of the other side in shared memory. */
template <int W> static constexpr int PAIR = 2 * OTHERS *dra_mma_row<W>::STEP;

struct backward {
    dra_attend_tensor dy, lse, delta; /* (B, H, T, E), (B, H, T), (B, H, T, 1) */
    bool              dy_by_four;
    result            dq, dk, dv;
};

/* lse / ln 2. Where there is no query all is 0: then q, dy and with them all gradients are 0. */
struct alignas(8) query {
    float lse, delta;
    int   lo, hi, t; /* as in dra_attend_query */
};

__device__ static query query_at(const dra_attend_call &a, const backward &g, int b, int h, int t)
{
    if (t >= a.T) return {0, 0, 0, 0, -1};
    const dra_attend_query q = dra_attend_query_at(a, b, h, t);
    const float            lse = *dra_attend_at<float>(g.lse, b, h, t);
    return {lse / DRA_LN2, *dra_attend_at<float>(g.delta, b, h, t), q.lo, q.hi, t};
}

/* From s = q.k, -inf where the key is not seen, and dp = dy.v to p and ds. */
__device__ static void pair(float c, float lse, float delta, float &s, float &dp)
{
    s = dra_fast_exp2(fmaf(c, s, -lse));
    dp = s == 0 ? 0 : s * (dp - delta);
}

/* What is not seen becomes -inf. query(n, i), key(n, i): of number i of the lane in unit n. */
template <int N, typename Q, typename K>
__device__ static void hide(float (&s)[1][N][4], Q query, K key)
{
    DRA_UNROLL
    for (int n = 0; n < N; n++) {
        DRA_UNROLL
        for (int i = 0; i < 4; i++) {
            const int lo = query(n, i).lo, hi = query(n, i).hi, j = key(n, i);
            s[0][n][i] = (lo <= j) & (j < hi) ? s[0][n][i] : -INFINITY;
        }
    }
}

/* A warp's 16 rows of head h of a result, W wide, times `by`, from row `first` on, of `rows`
 * that there are. */
template <int W>
__device__ static void store(const float (&y)[1][W / 8][4], float by, const result &to, int b,
                             int h, int first, int rows)
{
    const int64_t head = b * to.stride[0] + h * to.stride[1];
    DRA_UNROLL
    for (int half = 0; half < 2; half++) {
        const int     r = first + dra_mma_g() + 8 * half;
        const int64_t at = head + r * to.stride[2] + 2 * dra_mma_t();
        DRA_UNROLL
        for (int n = 0; to.data && r < rows && n < W / 8; n++) {
            const float x = y[0][n][2 * half] * by, z = y[0][n][2 * half + 1] * by;
            if (to.bf16)
                *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(to.data) + at +
                                              8 * n) = dra_pack_bf16(x, z);
            else
                *reinterpret_cast<float2 *>(static_cast<float *>(to.data) + at +
                                            8 * n) = make_float2(x, z);
        }
    }
}

/* ---- dq -------------------------------------------------------------------------------------- */

/* dq += ds k of N * 8 keys from `key` on, k and v their rows; u: the lane's two queries. */
template <int W, int N>
__device__ static void add_keys(float c, const query (&u)[2], bool all, int key,
                                const uint32_t (&q)[1][W / 16][4],
                                const uint32_t (&dy)[1][W / 16][4], const uint16_t *k,
                                const uint16_t *v, float (&dq)[1][W / 8][4])
{
    float      s[1][N][4] = {}, dp[1][N][4] = {};
    uint32_t   ds[1][N / 2][4];
    const auto row = [&](int, int i) -> const query & { return u[i / 2]; };
    const auto column = [&](int n, int i) { return key + 8 * n + 2 * dra_mma_t() + i % 2; };
    dra_mma_dots<1, N, W>(s, q, k);
    dra_mma_dots<1, N, W>(dp, dy, v);
    if (!all) hide(s, row, column);
    DRA_UNROLL
    for (int n = 0; n < N; n++) {
        DRA_UNROLL
        for (int i = 0; i < 4; i++)
            pair(c, row(n, i).lse, row(n, i).delta, s[0][n][i], dp[0][n][i]);
    }
    dra_mma_turn<1, N / 2>(ds, dp);
    dra_mma_times<1, N / 2, W>(dq, ds, k);
}

template <int W>
__global__ static void __launch_bounds__(THREADS, shape<W>::RESIDENT)
    query_kernel(const dra_attend_call a, const backward g)
{
    enum { N = shape<W>::N };
    const int        tiles = (a.T + ROWS - 1) / ROWS;
    const int        t0 = (tiles - 1 - (int)(blockIdx.x % tiles)) * ROWS; /* long ones first */
    const int        h = (int)(blockIdx.x / tiles) % a.H, b = (int)(blockIdx.x / tiles) / a.H;
    const int        kv = dra_attend_key_head(a, h), own = (int)threadIdx.x / 32 * 16;
    const float      c = a.scale / DRA_LN2;
    __shared__ query u[ROWS];
    DRA_SHARED(uint16_t, room); /* two, in turns: keys, then values */
    for (int r = (int)threadIdx.x; r < ROWS; r += THREADS) u[r] = query_at(a, g, b, h, t0 + r);
    __syncthreads();
    const query           mine[2] = {u[own + dra_mma_g()], u[own + dra_mma_g() + 8]};
    const dra_attend_seen seen = dra_attend_seen_of<ROWS>(a, u);
    dra_attend_source     from_q = dra_attend_source_of(a.q, a.q_by_four, b, h, a.T);
    dra_attend_source     from_dy = dra_attend_source_of(g.dy, g.dy_by_four, b, h, a.T);
    dra_attend_source from_k = dra_attend_source_of(a.k, a.k_by_four, b, kv, seen.end, seen.first);
    dra_attend_source from_v = dra_attend_source_of(a.v, a.v_by_four, b, kv, seen.end, seen.first);
    uint32_t          q[1][W / 16][4], dy[1][W / 16][4];
    float             dq[1][W / 8][4] = {};
    from_q.rows.first = from_dy.rows.first = t0 + own;
    dra_mma_rows<W>(q[0], from_q);
    dra_mma_rows<W>(dy[0], from_dy);
    const auto fill = [&](int j) { /* keys j .. j + OTHERS-1 */
                                   uint16_t *const to = room + j / OTHERS % 2 * PAIR<W>;
                                   from_k.rows.first = from_v.rows.first = j;
                                   if (j < seen.end) dra_mma_fill<OTHERS, W, THREADS>(to, from_k);
                                   if (j < seen.end)
                                       dra_mma_fill<OTHERS, W, THREADS>(to + PAIR<W> / 2, from_v);
    };
    fill(seen.first / OTHERS * OTHERS);
    for (int j0 = seen.first / OTHERS * OTHERS; j0 < seen.end; j0 += OTHERS) {
        const bool            all = j0 >= seen.most_lo && j0 + OTHERS <= seen.least_hi;
        const uint16_t *const k = room + j0 / OTHERS % 2 * PAIR<W>, *const v = k + PAIR<W> / 2;
        dra_mma_wait();
        __syncthreads(); /* these are there, and all are through with the others */
        fill(j0 + OTHERS);
        for (int n = 0; n < OTHERS; n += 8 * N)
            add_keys<W, N>(c, mine, all, j0 + n, q, dy, k + n * dra_mma_row<W>::STEP,
                           v + n * dra_mma_row<W>::STEP, dq);
    }
    store<W>(dq, a.scale, g.dq, b, h, t0 + own, a.T);
}

/* ---- dk, dv ---------------------------------------------------------------------------------- */

/* dv += p^T dy and dk += ds^T q of N * 8 queries u; key: of row 0. */
template <int W, int N>
__device__ static void
add_queries(float c, const query *u, bool all, int key, const uint32_t (&k)[1][W / 16][4],
            const uint32_t (&v)[1][W / 16][4], const uint16_t *q, const uint16_t *dy,
            float (&dk)[1][W / 8][4], float (&dv)[1][W / 8][4])
{
    float      s[1][N][4] = {}, dp[1][N][4] = {};
    uint32_t   p[1][N / 2][4];
    const auto row = [&](int, int i) { return key + dra_mma_g() + i / 2 * 8; };
    const auto column = [&](int n, int i) -> const query & {
        return u[8 * n + 2 * dra_mma_t() + i % 2];
    };
    dra_mma_dots<1, N, W>(s, k, q);
    dra_mma_dots<1, N, W>(dp, v, dy);
    if (!all) hide(s, column, row);
    DRA_UNROLL
    for (int n = 0; n < N; n++) {
        DRA_UNROLL
        for (int i = 0; i < 4; i++)
            pair(c, column(n, i).lse, column(n, i).delta, s[0][n][i], dp[0][n][i]);
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
    const int        tiles = (a.J + ROWS - 1) / ROWS, j0 = (int)(blockIdx.x % tiles) * ROWS;
    const int        kv = (int)(blockIdx.x / tiles) % a.K, b = (int)(blockIdx.x / tiles) / a.K;
    const int        own = (int)threadIdx.x / 32 * 16;
    const float      c = a.scale / DRA_LN2;
    __shared__ query u[2][OTHERS];
    DRA_SHARED(uint16_t, room); /* two, in turns: q, then dy */
    dra_attend_source from_k = dra_attend_source_of(a.k, a.k_by_four, b, kv, a.J);
    dra_attend_source from_v = dra_attend_source_of(a.v, a.v_by_four, b, kv, a.J);
    uint32_t          k[1][W / 16][4], v[1][W / 16][4];
    float             dk[1][W / 8][4] = {}, dv[1][W / 8][4] = {};
    from_k.rows.first = from_v.rows.first = j0 + own;
    dra_mma_rows<W>(k[0], from_k);
    dra_mma_rows<W>(v[0], from_v);
    const dra_attend_span readers = dra_attend_readers(a, b, j0, ROWS);
    const int             first = readers.first / OTHERS * OTHERS;
    const int  each = readers.end > first ? (readers.end - first + OTHERS - 1) / OTHERS : 0;
    const int  all_tiles = each * a.G; /* of queries: those of one head after the other */
    query      next = {}; /* of the tile that is being copied: it is stored when all have gone on */
    const auto fill = [&](int i) {
        if (i >= all_tiles) return;
        const int         h = dra_attend_head(a, kv, i / each), t0 = first + i % each * OTHERS;
        uint16_t *const   to = room + i % 2 * PAIR<W>;
        dra_attend_source q = dra_attend_source_of(a.q, a.q_by_four, b, h, a.T);
        dra_attend_source dy = dra_attend_source_of(g.dy, g.dy_by_four, b, h, a.T);
        q.rows.first = dy.rows.first = t0;
        dra_mma_fill<OTHERS, W, THREADS>(to, q);
        dra_mma_fill<OTHERS, W, THREADS>(to + PAIR<W> / 2, dy);
        if (threadIdx.x < OTHERS) next = query_at(a, g, b, h, t0 + (int)threadIdx.x);
    };
    const auto keep = [&](int i) {
        if (threadIdx.x < OTHERS) u[i % 2][threadIdx.x] = next;
    };
    fill(0);
    keep(0);
    for (int i = 0; i < all_tiles; i++) {
        const uint16_t *const q = room + i % 2 * PAIR<W>, *const dy = q + PAIR<W> / 2;
        dra_mma_wait();
        __syncthreads(); /* these are there, and all are through with the others */
        fill(i + 1);
        const dra_attend_seen seen = dra_attend_seen_of<OTHERS>(a, u[i % 2]);
        const bool            all = j0 >= seen.most_lo && j0 + ROWS <= seen.least_hi;
        for (int n = 0; n < OTHERS && seen.any(a, j0, ROWS); n += 8 * N)
            add_queries<W, N>(c, u[i % 2] + n, all, j0 + own, k, v, q + n * dra_mma_row<W>::STEP,
                              dy + n * dra_mma_row<W>::STEP, dk, dv);
        keep(i + 1);
    }
    store<W>(dk, a.scale, g.dk, b, kv, j0 + own, a.J);
    store<W>(dv, 1, g.dv, b, kv, j0 + own, a.J);
}

/* ---- launch ---------------------------------------------------------------------------------- */

template <int W> static void start(const dra_call *c, const dra_attend_call &a, const backward &g)
{
    const int64_t q_tiles = a.B * a.H * dra_div_up(a.T, ROWS);
    const int64_t k_tiles = a.B * a.K * dra_div_up(a.J, ROWS);
    const size_t  bytes = 2 * PAIR<W> * sizeof(uint16_t);
    cudaFuncSetAttribute(query_kernel<W>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    cudaFuncSetAttribute(key_kernel<W>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (g.dq.data && q_tiles)
        DRA_LAUNCH(c, query_kernel<W>, (unsigned)q_tiles, THREADS, bytes, a, g);
    if ((g.dk.data || g.dv.data) && k_tiles)
        DRA_LAUNCH(c, key_kernel<W>, (unsigned)k_tiles, THREADS, bytes, a, g);
}

static result result_of(const dra_call *c, int i)
{
    const dra_tensor *y = &c->out[i];
    return {y->data, y->dtype == DRA_BF16, {y->stride[0], y->stride[1], y->stride[2]}};
}

void dra_attend_mma_back(const dra_call *c, const dra_attend_call &a)
{
    const dra_tensor *dy = &c->in[c->n_in - 3];
    backward          g = {};
    g.dy = dra_attend_tensor_of(dy);
    g.lse = dra_attend_tensor_of(dy + 1);
    g.delta = dra_attend_tensor_of(dy + 2);
    g.dy_by_four = dra_attend_by_four(dy);
    g.dq = result_of(c, DRA_ATTEND_DQ);
    g.dk = result_of(c, DRA_ATTEND_DK);
    g.dv = result_of(c, DRA_ATTEND_DV);
    a.D == 64 ? start<64>(c, a, g) : start<128>(c, a, g);
}
