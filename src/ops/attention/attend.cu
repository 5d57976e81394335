/* attend: y = softmax(s) v and lse, without holding the scores. Formulas in attend_tiled.c.
 *
 * A block takes a tile of queries through the blocks of keys that they see. Of each block of keys
 * it makes
 *   m' = max_j s_j,   l' = sum_j e^(s_j - m'),   y' = sum_j e^(s_j - m') v_j
 * and adds these to the same three of the blocks before, in order: with m'' = max(m, m')
 *   l = l e^(m - m'') + l' e^(m' - m''),   y = y e^(m - m'') + y' e^(m' - m'')
 * Where queries are few, blocks of keys are spread over the processors: a first launch keeps m', l'
 * and y' of each, a second one adds them up. Blocks of keys start at multiples of their size and
 * every sum has the same order in both forms, so the bits of a query's result depend neither on its
 * neighbours, nor on how the queries are cut, nor on J beyond what it sees.
 *
 * Heads that read the same keys share a tile where queries are few. Values wider than W are cut
 * into chunks, each of a block of its own, which computes the scores again. */
#include "ops/attention/attend_tile.cuh"

enum { CM = DRA_ATTEND_CM, COLS = DRA_ATTEND_COLS, THREADS = DRA_ATTEND_THREADS };
enum { PROCESSORS = 132, BLOCKS = 4 }; /* of an H200; for each, where keys are spread */

struct forward {
    float *y, *lse;
    float *m, *l, *part;         /* (B, H, T, blocks) twice, (B, H, T, blocks, E) */
    int    tiles, heads, chunks; /* of a key head; in a tile; of E */
    int    blocks, splits, each; /* blocks of keys; blocks of threads for them; keys' for each */
};

struct place { /* what a block of threads works on */
    int b, kv, g0, t0, e0, split;
};

__device__ static place place_of(const dra_attend_call &a, const forward &f, int rows, int W)
{
    const int tile = f.tiles - 1 - (int)(blockIdx.x % f.tiles); /* long ones first */
    int       rest = (int)(blockIdx.x / f.tiles);
    const int along = (a.T + rows - 1) / rows; /* tiles of a head */
    place     w;
    w.g0 = tile / along * f.heads;
    w.t0 = tile % along * rows;
    w.e0 = rest % f.chunks * W;
    rest /= f.chunks;
    w.split = rest % f.splits;
    rest /= f.splits;
    w.kv = rest % a.K;
    w.b = rest / a.K;
    return w;
}

/* Query r of the tile. */
__device__ static dra_attend_query query_of(const dra_attend_call &a, const forward &f,
                                            const place &w, int rows, int r)
{
    const int  per = a.T < rows ? a.T : rows, g = w.g0 + r / per, t = w.t0 + r % per;
    const bool there = r / per < f.heads && g < a.G && t < a.T;
    return dra_attend_query_at(a, w.b, there ? dra_attend_head(a, w.kv, g) : 0, there ? t : -1);
}

/* ---- one block of keys ----------------------------------------------------------------------- */

template <int RM, bool PLAIN>
__device__ static void weigh(const dra_attend_call &a, int b, const dra_attend_query *q,
                             const int *k_pos, int j0, bool all, float (&s)[RM][CM], float (&m)[RM],
                             float (&l)[RM])
{
    dra_attend_dice dice = {};
    float           slope;
    if (!PLAIN && a.drops) dice.open(a, b);
    DRA_UNROLL
    for (int i = 0; i < RM; i++) {
        const dra_attend_query &own = q[dra_attend_y() * RM + i];
        const int               x = dra_attend_x() * CM;
        m[i] = dra_join_max::none();
        DRA_UNROLL
        for (int j = 0; j < CM; j++) {
            s[i][j] = PLAIN && all
                          ? s[i][j] * a.scale
                          : dra_attend_logit<PLAIN>(a, b, own, j0 + x + j, PLAIN ? 0 : k_pos[x + j],
                                                    s[i][j], &slope);
            m[i] = dra_join_max::join(m[i], s[i][j]);
        }
        m[i] = dra_attend_row_join<dra_join_max>(m[i]);
        l[i] = 0;
        DRA_UNROLL
        for (int j = 0; j < CM; j++) l[i] += s[i][j] = expf(s[i][j] - m[i]);
        l[i] = dra_attend_row_join<dra_join_sum>(l[i]);
        if (PLAIN || !a.drops) continue;
        dice.query(own.head, own.q_pos);
        DRA_UNROLL
        for (int j = 0; j < CM; j++) s[i][j] *= dice.factor(a, k_pos[x + j]);
    }
}

/* ---- blocks of keys together ----------------------------------------------------------------- */

struct fades { /* of what is there, and of what comes */
    float old, now;
};

/* Takes l' and m' of a block in, in which something is seen. */
__device__ static fades merge(float &m, float &l, float block_m, float block_l)
{
    const float top = dra_join_max::join(m, block_m);
    const fades f = {expf(m - top), expf(block_m - top)};
    l = fmaf(block_l, f.now, l * f.old);
    m = top;
    return f;
}

__device__ static float merged(const fades &f, float y, float block_y)
{
    return fmaf(block_y, f.now, y * f.old);
}

__device__ static float lse_of(float m, float l) { return l != 0 ? m + logf(l) : 0; }

/* y of a query, and where its block's part is kept. */
__device__ static int64_t row_of(const dra_attend_call &a, int b, const dra_attend_query &q)
{
    return ((int64_t)b * a.H + q.head) * a.T + q.t;
}

template <typename S>
__device__ static void keep_part(const dra_attend_call &a, const forward &f, const place &w,
                                 const dra_attend_query *q, int block, const float (&m)[S::RM],
                                 const float (&l)[S::RM], const float (&y)[S::RM][S::WM])
{
    DRA_UNROLL
    for (int i = 0; i < S::RM; i++) {
        const dra_attend_query &own = q[dra_attend_y() * S::RM + i];
        if (own.t < 0) continue;
        const int64_t at = row_of(a, w.b, own) * f.blocks + block;
        if (dra_attend_x() == 0 && w.e0 == 0) f.m[at] = m[i], f.l[at] = l[i];
        if (f.y && !dra_attend_is_masked(m[i]))
            dra_attend_store<S::WM>(f.part + at * a.E, w.e0, a.E, y[i]);
    }
}

template <typename S> struct sums { /* of the queries of a thread */
    float m[S::RM], l[S::RM], y[S::RM][S::WM];

    __device__ void clear()
    {
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            m[i] = -INFINITY, l[i] = 0;
            DRA_UNROLL
            for (int c = 0; c < S::WM; c++) y[i][c] = 0;
        }
    }

    __device__ void take(const float (&more_m)[S::RM], const float (&more_l)[S::RM],
                         const float (&more_y)[S::RM][S::WM])
    {
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            if (dra_attend_is_masked(more_m[i])) continue; /* saw nothing there */
            const fades f = merge(m[i], l[i], more_m[i], more_l[i]);
            DRA_UNROLL
            for (int c = 0; c < S::WM; c++) y[i][c] = merged(f, y[i][c], more_y[i][c]);
        }
    }

    __device__ void store(const dra_attend_call &a, const forward &f, const place &w,
                          const dra_attend_query *q)
    {
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            const dra_attend_query &own = q[dra_attend_y() * S::RM + i];
            if (own.t < 0) continue;
            const int64_t row = row_of(a, w.b, own);
            if (f.lse && dra_attend_x() == 0 && w.e0 == 0) f.lse[row] = lse_of(m[i], l[i]);
            const float by = l[i] != 0 ? 1 / l[i] : 0; /* 0: saw nothing */
            DRA_UNROLL
            for (int c = 0; c < S::WM; c++) y[i][c] *= by;
            if (f.y) dra_attend_store<S::WM>(f.y + row * a.E, w.e0, a.E, y[i]);
        }
    }
};

/* ---- kernels --------------------------------------------------------------------------------- */

struct query_rows { /* of a tile, which may have several heads */
    const dra_attend_tensor *x;
    const dra_attend_query  *q;
    int                      b;
    static constexpr bool    bf16 = false;

    __device__ const void *operator()(int r, int64_t n) const
    {
        return q[r].t < 0 ? nullptr : dra_attend_at<float>(*x, b, q[r].head, q[r].t) + n;
    }
};

template <typename S> struct work { /* of a block of threads */
    dra_attend_operand<S::ROWS, S::W, false, query_rows> q;
    dra_attend_operand<COLS, S::W, true>                 k;
    dra_attend_operand<COLS, S::W, false>                v; /* a chunk of the values */
    dra_attend_seen                                      seen;
    int                                                 *k_pos;
    float                                               *p;
};

template <typename S>
__device__ static work<S> open_work(const dra_attend_call &a, const place &w,
                                    const dra_attend_query *q, int *k_pos, float *room)
{
    const dra_attend_seen seen = dra_attend_seen_of<S::ROWS>(a, q);
    float *const room_k = room + S::ROWS * S::STEP, *const room_v = room_k + COLS * S::STEP;
    const dra_attend_rows keys = dra_attend_keys_of(a, a.k, w.b, w.kv, seen.end, seen.first,
                                                    a.always);
    dra_attend_rows values = dra_attend_keys_of(a, a.v, w.b, w.kv, seen.end, seen.first, a.always);
    values.skip(w.e0 * a.v.stride[3]);
    return {{room, {&a.q, q, w.b}, a.D, a.q_by_four, a.q.stride[3]},
            {room_k, keys, a.D, a.k_by_four, a.k.stride[3]},
            {room_v, values, (int)dra_imin(S::W, a.E - w.e0), a.v_by_four, a.v.stride[3]},
            seen,
            k_pos,
            room_v + COLS * S::STEP};
}

/* m', l' and, if it is wanted, y' of the block of keys from j0 on. */
template <typename S, bool PLAIN>
__device__ static void read_block(const dra_attend_call &a, int b, const dra_attend_query *q,
                                  work<S> &k, int j0, bool wants_y, float (&m)[S::RM],
                                  float (&l)[S::RM], float (&y)[S::RM][S::WM])
{
    const bool all = j0 >= k.seen.most_lo && j0 + COLS <= k.seen.least_hi;
    float      s[S::RM][CM] = {};
    __syncthreads(); /* all are through with the rooms */
    if (!PLAIN)
        for (int c = (int)threadIdx.x; c < COLS; c += THREADS)
            k.k_pos[c] = j0 + c < a.J ? dra_attend_k_pos(a, b, j0 + c) : 0;
    k.k.row.first = k.v.row.first = j0;
    if (wants_y) k.v.open();
    dra_attend_product<S::RM, S::W>(s, k.q, k.k);
    weigh<S::RM, PLAIN>(a, b, q, k.k_pos, j0, all, s, m, l);
    if (!wants_y) return;
    dra_attend_put<S::RM>(k.p, s);
    __syncwarp();
    dra_attend_times<S::RM, S::W, false>(y, k.p, k.v.room);
}

template <typename S, bool PLAIN, bool SPLIT>
__global__ static void __launch_bounds__(THREADS, S::RESIDENT)
    attend_kernel(const dra_attend_call a, const forward f)
{
    const place                 w = place_of(a, f, S::ROWS, S::W);
    __shared__ dra_attend_query q[S::ROWS];
    __shared__ int              k_pos[COLS];
    DRA_SHARED(float, room);
    for (int r = (int)threadIdx.x; r < S::ROWS; r += THREADS) q[r] = query_of(a, f, w, S::ROWS, r);
    __syncthreads();
    work<S> k = open_work<S>(a, w, q, k_pos, room);
    sums<S> sum;
    sum.clear();
    k.q.open();
    const int from = SPLIT ? w.split * f.each : 0;
    const int to = SPLIT ? (int)dra_imin(from + f.each, f.blocks) : f.blocks;
    for (int block = from; block < to; block++) {
        float      m[S::RM], l[S::RM], y[S::RM][S::WM] = {};
        const int  j0 = block * COLS;
        const bool any = k.seen.any(a, j0, COLS);
        if (any) read_block<S, PLAIN>(a, w.b, q, k, j0, f.y, m, l, y);
        if constexpr (SPLIT) {
            DRA_UNROLL
            for (int i = 0; !any && i < S::RM; i++) m[i] = (float)DRA_MASKED, l[i] = 0;
            keep_part<S>(a, f, w, q, block, m, l, y);
        } else if (any) {
            sum.take(m, l, y);
        }
    }
    if (!SPLIT) sum.store(a, f, w, q);
}

/* y of row blockIdx.x: the parts of all blocks of keys, in their order. */
__global__ static void join_kernel(const forward f, int E)
{
    const int64_t row = blockIdx.x, at = row * f.blocks;
    for (int e = (int)threadIdx.x; e == 0 || (f.y && e < E); e += (int)blockDim.x) {
        float m = -INFINITY, l = 0, y = 0;
        for (int i = 0; i < f.blocks; i++) {
            if (dra_attend_is_masked(f.m[at + i])) continue;
            const fades by = merge(m, l, f.m[at + i], f.l[at + i]);
            if (f.y && e < E) y = merged(by, y, f.part[(at + i) * E + e]);
        }
        if (e == 0 && f.lse) f.lse[row] = lse_of(m, l);
        if (f.y && e < E) f.y[row * E + e] = y * (l != 0 ? 1 / l : 0);
    }
}

/* ---- launch ---------------------------------------------------------------------------------- */

/* Rows of a thread. Where keys are spread one is enough, and the rest of the tile is idle. */
#ifdef __CUDACC__
typedef dra_attend_tile<8, DRA_ATTEND_NARROW> narrow;
#else
typedef dra_attend_tile<2, DRA_ATTEND_NARROW> narrow;
#endif
typedef dra_attend_tile<4, DRA_ATTEND_WIDE>   wide;
typedef dra_attend_tile<1, DRA_ATTEND_NARROW> narrow_few;
typedef dra_attend_tile<1, DRA_ATTEND_WIDE>   wide_few;

static_assert((int)narrow_few::ROWS >= (int)DRA_ATTEND_SPREAD, "few queries are one tile");

static bool is_narrow(const dra_attend_call &a)
{
    return a.D <= DRA_ATTEND_NARROW && a.E <= DRA_ATTEND_NARROW;
}

static forward forward_of(const dra_attend_call &a, int rows, int W)
{
    forward   f = {};
    const int along = (int)dra_div_up(a.T, rows);
    f.heads = along == 1 ? (int)dra_imin(a.G, rows / a.T) : 1;
    f.tiles = (int)dra_div_up(a.G, f.heads) * along;
    f.chunks = (int)dra_imax(1, dra_div_up(a.E, W));
    f.blocks = (int)dra_div_up(a.J, COLS);
    f.splits = 1;
    f.each = f.blocks;
    if (!dra_attend_is_few(a)) return f;
    const int64_t most = dra_div_up(PROCESSORS * BLOCKS, (int64_t)a.B * a.K * f.chunks);
    f.each = (int)dra_imax(1, dra_div_up(f.blocks, most));
    f.splits = (int)dra_imax(1, dra_div_up(f.blocks, f.each));
    return f;
}

/* Numbers of m or of l, some more, so that what comes after them begins on 16 bytes. */
static int64_t padded(int64_t rows, int64_t blocks) { return dra_div_up(rows * blocks, 4) * 4; }

static size_t scratch(const dra_call *c)
{
    const dra_attend_call a = dra_attend_call_of(c);
    const int64_t         rows = (int64_t)a.B * a.H * a.T, blocks = dra_div_up(a.J, COLS);
    if (!dra_attend_is_few(a)) return 0;
    return (size_t)(2 * padded(rows, blocks) + rows * blocks * a.E) * sizeof(float);
}

template <typename S, bool PLAIN, bool SPLIT>
static void start(const dra_call *c, const dra_attend_call &a, const forward &f)
{
    const size_t   bytes = (size_t)((S::ROWS + 2 * COLS) * S::STEP + S::P) * sizeof(float);
    const unsigned grid = (unsigned)((int64_t)f.tiles * f.chunks * f.splits * a.B * a.K);
    cudaFuncSetAttribute(attend_kernel<S, PLAIN, SPLIT>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    DRA_LAUNCH(c, (attend_kernel<S, PLAIN, SPLIT>), grid, THREADS, bytes, a, f);
}

template <typename S, bool SPLIT>
static void launch_tiles(const dra_call *c, const dra_attend_call &a)
{
    forward       f = forward_of(a, S::ROWS, S::W);
    const int64_t rows = (int64_t)a.B * a.H * a.T;
    f.y = static_cast<float *>(c->out[0].data);
    f.lse = static_cast<float *>(c->out[1].data);
    f.m = static_cast<float *>(c->scratch);
    f.l = f.m + padded(rows, f.blocks);
    f.part = f.l + padded(rows, f.blocks);
    if (a.plain)
        start<S, true, SPLIT>(c, a, f);
    else
        start<S, false, SPLIT>(c, a, f);
    if (SPLIT) DRA_LAUNCH(c, join_kernel, (unsigned)rows, 64, 0, f, a.E);
}

static void launch(const dra_call *c)
{
    const dra_attend_call a = dra_attend_call_of(c);
    if (dra_attend_mma_fits(c, a))
        dra_attend_mma(c, a);
    else if (dra_attend_is_few(a) && is_narrow(a))
        launch_tiles<narrow_few, true>(c, a);
    else if (dra_attend_is_few(a))
        launch_tiles<wide_few, true>(c, a);
    else if (is_narrow(a))
        launch_tiles<narrow, false>(c, a);
    else
        launch_tiles<wide, false>(c, a);
}

const dra_cuda_kernel dra_cuda_attend = {
    {"attend", DRA_REALS | DRA_BIT(DRA_BF16) | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL), DRA_LAYOUT_ANY,
     0, false, scratch, nullptr, dra_attend_mma_rounds, nullptr, false},
    launch,
    false};
