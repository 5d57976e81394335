/* attend_back: the gradients of attend; formulas in attend_back.c.
 *
 * Two launches, each of which computes the scores again from q, k and lse. In the first one a block
 * has a tile of queries, goes through the keys they see and makes what belongs to queries: dq,
 * dslopes, dq_level, dbias and parts of ddistance. In the second one it has a tile of keys, goes
 * through the queries of all heads that read them and makes dk, dv and dk_level. So every number
 * has one writer, and sums have the order of the tiles. Where D or E is larger than W a block makes
 * one chunk of dq, or of dk and dv. */
#include "ops/attention/attend_distance.cuh"

enum { CM = DRA_ATTEND_CM, COLS = DRA_ATTEND_COLS, THREADS = DRA_ATTEND_THREADS };
enum { PROCESSORS = 132, MOST_PARTS = 8 };

struct backward {
    dra_attend_tensor dy, lse, delta; /* (B, H, T, E), (B, H, T), (B, H, T, 1) */
    bool              dy_by_four;
    float            *dq, *dslopes, *dbias, *ddistance, *dk, *dv, *dq_level, *dk_level;
    double           *part; /* (B, H, parts, N): of ddistance; NULL: not wanted */
    int               parts, chunks;
};

template <int N> struct queries { /* of a tile */
    dra_attend_query q[N];
    float            lse[N], delta[N];
};

/* A query that is not there has lse = inf, so that its weights are 0. */
template <int N>
__device__ static void open_queries(const dra_attend_call &a, const backward &g, int b, int h,
                                    int t0, queries<N> *u)
{
    for (int r = (int)threadIdx.x; r < N; r += THREADS) {
        const int t = t0 + r < a.T ? t0 + r : -1;
        u->q[r] = dra_attend_query_at(a, b, h, t);
        u->lse[r] = t < 0 ? INFINITY : *dra_attend_at<float>(g.lse, b, h, t);
        u->delta[r] = t < 0 ? 0 : *dra_attend_at<float>(g.delta, b, h, t);
    }
}

__device__ static void open_keys(const dra_attend_call &a, int b, int j0, int n, int *k_pos)
{
    for (int r = (int)threadIdx.x; r < n; r += THREADS)
        k_pos[r] = j0 + r < a.J ? dra_attend_k_pos(a, b, j0 + r) : 0;
}

struct pair { /* of a query and a key */
    float fp; /* what multiplies the value: weight and dropout */
    float ds; /* gradient of the logit, below a late cap */
    float da; /* gradient of q.k */
};

template <bool PLAIN>
__device__ static pair pair_of(const dra_attend_call &a, int b, const dra_attend_query &q,
                               float lse, float delta, int j, int k_pos, float dot, float dp,
                               float factor)
{
    float       slope;
    const float s = dra_attend_logit<PLAIN>(a, b, q, j, k_pos, dot, &slope), p = expf(s - lse);
    pair        x;
    x.ds = p == 0 ? 0 : p * (factor * dp - delta);
    x.fp = p * factor;
    x.da = x.ds * slope * a.scale;
    if (!PLAIN && a.late) x.ds *= slope;
    return x;
}

/* ---- ddistance ------------------------------------------------------------------------------- */

__global__ static void join_distances(const dra_attend_call a, const backward g)
{
    DRA_EACH(i, (int64_t)a.B * a.H * a.N)
    {
        const double *part = g.part + i / a.N * g.parts * a.N + i % a.N;
        double        sum = 0;
        for (int k = 0; k < g.parts; k++) sum += part[(int64_t)k * a.N];
        g.ddistance[i] = (float)sum;
    }
}

/* ---- what belongs to queries ----------------------------------------------------------------- */

template <typename S> struct query_sums { /* of the queries of a thread */
    float dq[S::RM][S::WM], dslopes[S::RM], dlevel[S::RM];

    __device__ void clear()
    {
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            dslopes[i] = dlevel[i] = 0;
            DRA_UNROLL
            for (int c = 0; c < S::WM; c++) dq[i][c] = 0;
        }
    }

    __device__ void store(const dra_attend_call &a, const backward &g, int b, int d0,
                          const dra_attend_query *q)
    {
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            const dra_attend_query &own = q[dra_attend_y() * S::RM + i];
            const int64_t           row = ((int64_t)b * a.H + own.head) * a.T + own.t;
            const float slopes = g.dslopes ? dra_attend_row_join<dra_join_sum>(dslopes[i]) : 0;
            const float level = g.dq_level ? dra_attend_row_join<dra_join_sum>(dlevel[i]) : 0;
            if (own.t < 0) continue;
            if (g.dq) dra_attend_store<S::WM>(g.dq + row * a.D, d0, a.D, dq[i]);
            if (d0 || dra_attend_x()) continue;
            if (g.dslopes) g.dslopes[row] = slopes;
            if (g.dq_level) g.dq_level[row] = level;
        }
    }
};

/* From s = q.k and dp = dy.v to ds and da; adds what rows of ds give. */
template <typename S, bool PLAIN>
__device__ static void query_pairs(const dra_attend_call &a, int b, const queries<S::ROWS> &u,
                                   const int *k_pos, int j0, query_sums<S> &sum,
                                   float (&s)[S::RM][CM], float (&dp)[S::RM][CM])
{
    dra_attend_dice dice = {};
    if (!PLAIN && a.drops) dice.open(a, b);
    DRA_UNROLL
    for (int i = 0; i < S::RM; i++) {
        const int               r = dra_attend_y() * S::RM + i, x = dra_attend_x() * CM;
        const dra_attend_query &q = u.q[r];
        if (!PLAIN && a.drops) dice.query(q.head, q.q_pos);
        DRA_UNROLL
        for (int j = 0; j < CM; j++) {
            const int   at = PLAIN ? 0 : k_pos[x + j];
            const float factor = !PLAIN && a.drops ? dice.factor(a, at) : 1;
            const pair  y = pair_of<PLAIN>(a, b, q, u.lse[r], u.delta[r], j0 + x + j, at, s[i][j],
                                          dp[i][j], factor);
            s[i][j] = j0 + x + j < a.always ? 0 : y.ds; /* those have no bias of any kind */
            dp[i][j] = y.da;
            if (PLAIN) continue;
            sum.dslopes[i] -= s[i][j] * dra_attend_far(q.q_pos, at);
            sum.dlevel[i] += s[i][j];
        }
    }
}

template <typename S>
__device__ static void store_bias(const dra_attend_call &a, const backward &g, int b,
                                  const dra_attend_query *q, int j0, const float (&ds)[S::RM][CM])
{
    DRA_UNROLL
    for (int i = 0; i < S::RM; i++) {
        const dra_attend_query &own = q[dra_attend_y() * S::RM + i];
        if (own.t < 0) continue;
        float *row = g.dbias + (((int64_t)b * a.H + own.head) * a.T + own.t) * a.J;
        for (int j = 0; j < CM; j++) {
            const int at = j0 + dra_attend_x() * CM + j;
            if (at < a.J) row[at] = ds[i][j];
        }
    }
}

template <typename S> struct query_work { /* of a block of threads */
    dra_attend_operand<S::ROWS, S::W, false> q, dy;
    dra_attend_operand<COLS, S::W, true>     k, v;
    dra_attend_seen                          seen;
    int                                     *k_pos;
    float                                   *p;
    double                                  *part; /* (N) of ddistance, or NULL */
    int                                      d0;   /* the first column of its chunk of dq */
};

template <typename S>
__device__ static query_work<S> open_query_work(const dra_attend_call &a, const backward &g, int b,
                                                int h, int t0, const queries<S::ROWS> &u,
                                                float *room)
{
    const int             kv = dra_attend_key_head(a, h);
    const dra_attend_seen seen = dra_attend_seen_of<S::ROWS>(a, u.q);
    dra_attend_rows       q = dra_attend_rows_of(a.q, b, h, a.T);
    dra_attend_rows       dy = dra_attend_rows_of(g.dy, b, h, a.T);
    const dra_attend_rows k = dra_attend_rows_of(a.k, b, kv, seen.end, seen.first, a.always);
    const dra_attend_rows v = dra_attend_rows_of(a.v, b, kv, seen.end, seen.first, a.always);
    float *const          room_dy = room + S::ROWS * S::STEP;
    float *const          room_k = room_dy + S::ROWS * S::STEP, *room_v = room_k + COLS * S::STEP;
    q.first = dy.first = t0;
    query_work<S> w = {{room, q, a.D, a.q_by_four, a.q.stride[3]},
                       {room_dy, dy, a.E, g.dy_by_four, g.dy.stride[3]},
                       {room_k, k, a.D, a.k_by_four, a.k.stride[3]},
                       {room_v, v, a.E, a.v_by_four, a.v.stride[3]},
                       seen};
    w.p = room_v + COLS * S::STEP;
    return w;
}

/* What the keys from j0 on give. */
template <typename S, bool PLAIN>
__device__ static void add_keys(const dra_attend_call &a, const backward &g, int b,
                                const queries<S::ROWS> &u, query_work<S> &w, int j0,
                                query_sums<S> &sum)
{
    float s[S::RM][CM] = {}, dp[S::RM][CM] = {};
    __syncthreads(); /* all are through with the rooms */
    if (!PLAIN) open_keys(a, b, j0, COLS, w.k_pos);
    w.k.row.first = w.v.row.first = j0;
    dra_attend_product<S::RM, S::W>(s, w.q, w.k);
    dra_attend_product<S::RM, S::W>(dp, w.dy, w.v);
    query_pairs<S, PLAIN>(a, b, u, w.k_pos, j0, sum, s, dp);
    if (!PLAIN && g.dbias && w.d0 == 0) store_bias<S>(a, g, b, u.q, j0, s);
    if (!PLAIN && w.part) {
        dra_attend_put<S::RM>(w.p, s);
        dra_attend_add_distances<S::ROWS>(a, u.q, w.k_pos, j0, w.p, w.part);
    }
    if (!g.dq) return;
    dra_attend_put<S::RM>(w.p, dp);
    if (!w.k.whole()) { /* the piece that is there is the last one */
        __syncthreads();
        w.k.load(w.d0);
        __syncthreads();
    }
    __syncwarp();
    dra_attend_times<S::RM, S::W, true>(sum.dq, w.p, w.k.room);
}

template <typename S, bool PLAIN>
__device__ static void query_tile(const dra_attend_call &a, const backward &g, int b, int h, int t0,
                                  int d0, double *part)
{
    __shared__ queries<S::ROWS> u;
    __shared__ int              k_pos[COLS];
    DRA_SHARED(float, room);
    __syncthreads(); /* all are through with the tile before */
    open_queries<S::ROWS>(a, g, b, h, t0, &u);
    __syncthreads();
    query_work<S> w = open_query_work<S>(a, g, b, h, t0, u, room);
    query_sums<S> sum;
    w.k_pos = k_pos;
    w.part = part;
    w.d0 = d0;
    sum.clear();
    w.q.open();
    w.dy.open();
    for (int j0 = 0; j0 < a.always || j0 < w.seen.end; j0 += COLS)
        if (w.seen.any(a, j0, COLS)) add_keys<S, PLAIN>(a, g, b, u, w, j0, sum);
    sum.store(a, g, b, d0, u.q);
}

/* A block has one tile of queries; for ddistance every parts-th of a head. */
template <typename S, bool PLAIN>
__global__ static void __launch_bounds__(THREADS, S::RESIDENT)
    query_kernel(const dra_attend_call a, const backward g)
{
    const int tiles = (a.T + S::ROWS - 1) / S::ROWS, starts = g.part ? g.parts : tiles;
    const int start = starts - 1 - (int)(blockIdx.x % starts); /* long ones first */
    const int rest = (int)(blockIdx.x / starts), d0 = rest % g.chunks * S::W;
    const int h = rest / g.chunks % a.H, b = rest / g.chunks / a.H;
    double   *part = nullptr;
    if (g.part && d0 == 0) {
        part = g.part + (((int64_t)b * a.H + h) * g.parts + start) * a.N;
        for (int n = (int)threadIdx.x; n < a.N; n += THREADS) part[n] = 0;
    }
    for (int tile = start; tile < tiles; tile += starts)
        query_tile<S, PLAIN>(a, g, b, h, tile * S::ROWS, d0, part);
}

/* ---- what belongs to keys -------------------------------------------------------------------- */

template <typename S> struct key_sums { /* of the keys of a thread */
    float dk[S::RM][S::WM], dv[S::RM][S::WM], dlevel[S::RM];

    __device__ void clear()
    {
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            dlevel[i] = 0;
            DRA_UNROLL
            for (int c = 0; c < S::WM; c++) dk[i][c] = dv[i][c] = 0;
        }
    }

    __device__ void store(const dra_attend_call &a, const backward &g, int b, int kv, int j0,
                          int first)
    {
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            const int     j = j0 + dra_attend_y() * S::RM + i;
            const int64_t row = ((int64_t)b * a.K + kv) * a.J + j;
            if (j >= a.J) continue;
            if (g.dk) dra_attend_store<S::WM>(g.dk + row * a.D, first, a.D, dk[i]);
            if (g.dv) dra_attend_store<S::WM>(g.dv + row * a.E, first, a.E, dv[i]);
        }
    }

    /* Of one head, whose queries are all in. */
    __device__ void store_level(const dra_attend_call &a, const backward &g, int b, int h, int j0)
    {
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            const int   j = j0 + dra_attend_y() * S::RM + i;
            const float level = dra_attend_row_join<dra_join_sum>(dlevel[i]);
            if (j < a.J && dra_attend_x() == 0)
                g.dk_level[((int64_t)b * a.H + h) * a.J + j] = level;
            dlevel[i] = 0;
        }
    }
};

/* From s = k.q and dp = v.dy to f p and da. */
template <typename S, bool PLAIN>
__device__ static void key_pairs(const dra_attend_call &a, int b, const queries<COLS> &u,
                                 const int *k_pos, int j0, key_sums<S> &sum, float (&s)[S::RM][CM],
                                 float (&dp)[S::RM][CM])
{
    dra_attend_dice dice = {};
    if (!PLAIN && a.drops) dice.open(a, b);
    DRA_UNROLL
    for (int c = 0; c < CM; c++) {
        const int               y = dra_attend_y() * S::RM, r = dra_attend_x() * CM + c;
        const dra_attend_query &q = u.q[r];
        if (!PLAIN && a.drops) dice.query(q.head, q.q_pos);
        DRA_UNROLL
        for (int i = 0; i < S::RM; i++) {
            const int   at = PLAIN ? 0 : k_pos[y + i], j = j0 + y + i;
            const float factor = !PLAIN && a.drops ? dice.factor(a, at) : 1;
            const pair  x = pair_of<PLAIN>(a, b, q, u.lse[r], u.delta[r], j, at, s[i][c], dp[i][c],
                                          factor);
            s[i][c] = x.fp;
            dp[i][c] = x.da;
            if (!PLAIN && j >= a.always) sum.dlevel[i] -= x.ds;
        }
    }
}

template <typename S> struct key_work { /* of a block of threads */
    dra_attend_operand<S::ROWS, S::W, false> k, v;
    dra_attend_operand<COLS, S::W, true>     q, dy;
    int                                     *k_pos;
    float                                   *p;
    int                                      j0, first; /* column of its chunks of dk and dv */
};

template <typename S>
__device__ static key_work<S> open_key_work(const dra_attend_call &a, const backward &g, int b,
                                            int kv, int j0, float *room)
{
    const dra_attend_rows none = {};
    dra_attend_rows       k = dra_attend_rows_of(a.k, b, kv, a.J);
    dra_attend_rows       v = dra_attend_rows_of(a.v, b, kv, a.J);
    float *const          room_v = room + S::ROWS * S::STEP;
    float *const          room_q = room_v + S::ROWS * S::STEP, *room_dy = room_q + COLS * S::STEP;
    k.first = v.first = j0;
    key_work<S> w = {{room, k, a.D, a.k_by_four, a.k.stride[3]},
                     {room_v, v, a.E, a.v_by_four, a.v.stride[3]},
                     {room_q, none, a.D, a.q_by_four, a.q.stride[3]},
                     {room_dy, none, a.E, g.dy_by_four, g.dy.stride[3]}};
    w.p = room_dy + COLS * S::STEP;
    w.j0 = j0;
    return w;
}

/* What the queries of u, from t0 on, give. */
template <typename S, bool PLAIN>
__device__ static void add_queries(const dra_attend_call &a, const backward &g, int b,
                                   const queries<COLS> &u, key_work<S> &w, int t0, key_sums<S> &sum)
{
    float s[S::RM][CM] = {}, dp[S::RM][CM] = {};
    w.q.row.first = w.dy.row.first = t0;
    dra_attend_product<S::RM, S::W>(s, w.k, w.q);
    dra_attend_product<S::RM, S::W>(dp, w.v, w.dy);
    key_pairs<S, PLAIN>(a, b, u, w.k_pos, w.j0, sum, s, dp);
    if (!w.q.whole() || !w.dy.whole()) { /* the piece that is there is the last one */
        __syncthreads();
        if (!w.q.whole() && w.first < a.D) w.q.load(w.first);
        if (!w.dy.whole() && w.first < a.E) w.dy.load(w.first);
        __syncthreads();
    }
    if (g.dv) {
        dra_attend_put<S::RM>(w.p, s);
        __syncwarp();
        dra_attend_times<S::RM, S::W, true>(sum.dv, w.p, w.dy.room);
        __syncwarp();
    }
    if (g.dk) {
        dra_attend_put<S::RM>(w.p, dp);
        __syncwarp();
        dra_attend_times<S::RM, S::W, true>(sum.dk, w.p, w.q.room);
    }
}

template <typename S, bool PLAIN>
__global__ static void __launch_bounds__(THREADS, S::RESIDENT)
    key_kernel(const dra_attend_call a, const backward g)
{
    const int  tiles = (a.J + S::ROWS - 1) / S::ROWS, j0 = (int)(blockIdx.x % tiles) * S::ROWS;
    const int  rest = (int)(blockIdx.x / tiles), kv = rest / g.chunks % a.K;
    const int  b = rest / g.chunks / a.K;
    __shared__ queries<COLS> u;
    __shared__ int           k_pos[S::ROWS];
    DRA_SHARED(float, room);
    key_work<S> w = open_key_work<S>(a, g, b, kv, j0, room);
    key_sums<S> sum;
    w.k_pos = k_pos;
    w.first = rest % g.chunks * S::W;
    sum.clear();
    w.k.open();
    w.v.open();
    if (!PLAIN) open_keys(a, b, j0, S::ROWS, k_pos);
    const dra_attend_span readers = dra_attend_readers(a, b, j0, S::ROWS);
    for (int i = 0; i < a.G; i++) {
        const int h = dra_attend_head(a, kv, i);
        w.q.row = dra_attend_rows_of(a.q, b, h, a.T);
        w.dy.row = dra_attend_rows_of(g.dy, b, h, a.T);
        for (int t0 = readers.first / COLS * COLS; t0 < readers.end; t0 += COLS) {
            __syncthreads(); /* all are through with the rooms */
            open_queries<COLS>(a, g, b, h, t0, &u);
            __syncthreads();
            if (dra_attend_seen_of<COLS>(a, u.q).any(a, j0, S::ROWS))
                add_queries<S, PLAIN>(a, g, b, u, w, t0, sum);
        }
        if (!PLAIN && g.dk_level && w.first == 0) sum.store_level(a, g, b, h, j0);
    }
    sum.store(a, g, b, kv, j0, w.first);
}

/* ---- launch ---------------------------------------------------------------------------------- */

typedef dra_attend_tile<4, DRA_ATTEND_NARROW> narrow;
typedef dra_attend_tile<4, DRA_ATTEND_WIDE>   wide;

/* Blocks that share the queries of a head, each with a sum of ddistance of its own. */
static int parts_of(const dra_attend_call &a)
{
    return (int)dra_imax(1, dra_imin(MOST_PARTS, PROCESSORS / dra_imax(1, (int64_t)a.B * a.H)));
}

static size_t scratch(const dra_call *c)
{
    const dra_attend_call a = dra_attend_call_of(c);
    return (size_t)((int64_t)a.B * a.H * a.N * parts_of(a)) * sizeof(double);
}

template <typename S> static size_t shared_bytes(void)
{
    return (size_t)((2 * S::ROWS + 2 * COLS) * S::STEP + S::P) * sizeof(float);
}

template <typename S, bool PLAIN>
static void start_queries(const dra_call *c, const dra_attend_call &a, backward g)
{
    const int64_t tiles = dra_div_up(a.T, S::ROWS), heads = (int64_t)a.B * a.H;
    const size_t  bytes = shared_bytes<S>();
    g.chunks = g.dq ? (int)dra_imax(1, dra_div_up(a.D, S::W)) : 1;
    const int64_t grid = heads * g.chunks * (g.part ? g.parts : tiles);
    if (g.dbias)
        cudaMemsetAsync(g.dbias, 0, (size_t)(heads * a.T * a.J) * sizeof(float),
                        dra_cuda_of(c)->stream);
    cudaFuncSetAttribute(query_kernel<S, PLAIN>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)bytes);
    if (grid) DRA_LAUNCH(c, (query_kernel<S, PLAIN>), (unsigned)grid, THREADS, bytes, a, g);
    if (g.part && heads)
        DRA_LAUNCH(c, join_distances, dra_grid(c, heads * a.N, DRA_THREADS), DRA_THREADS, 0, a, g);
}

template <typename S, bool PLAIN>
static void start_keys(const dra_call *c, const dra_attend_call &a, backward g)
{
    const int64_t width = dra_imax(g.dk ? a.D : 0, g.dv ? a.E : 0);
    const size_t  bytes = shared_bytes<S>();
    g.chunks = (int)dra_imax(1, dra_div_up(width, S::W));
    const int64_t grid = (int64_t)a.B * a.K * g.chunks * dra_div_up(a.J, S::ROWS);
    cudaFuncSetAttribute(key_kernel<S, PLAIN>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)bytes);
    if (grid) DRA_LAUNCH(c, (key_kernel<S, PLAIN>), (unsigned)grid, THREADS, bytes, a, g);
}

template <typename S, bool PLAIN>
static void start(const dra_call *c, const dra_attend_call &a, const backward &g)
{
    if (g.dq || g.dslopes || g.dbias || g.part || g.dq_level) start_queries<S, PLAIN>(c, a, g);
    if (g.dk || g.dv || g.dk_level) start_keys<S, PLAIN>(c, a, g);
}

static float *output(const dra_call *c, int i) { return static_cast<float *>(c->out[i].data); }

static void launch(const dra_call *c)
{
    const dra_attend_call a = dra_attend_call_of(c);
    const dra_tensor     *dy = &c->in[c->n_in - 3];
    backward              g = {};
    if (dra_attend_mma_fits(c, a)) {
        dra_attend_mma_back(c, a);
        return;
    }
    g.dy = dra_attend_tensor_of(dy);
    g.dy_by_four = dra_attend_by_four(dy);
    g.lse = dra_attend_tensor_of(dy + 1);
    g.delta = dra_attend_tensor_of(dy + 2);
    g.dq = output(c, DRA_ATTEND_DQ);
    g.dslopes = output(c, DRA_ATTEND_DSLOPES);
    g.dbias = output(c, DRA_ATTEND_DBIAS);
    g.ddistance = output(c, DRA_ATTEND_DDISTANCE);
    g.dk = output(c, DRA_ATTEND_DK);
    g.dv = output(c, DRA_ATTEND_DV);
    g.dq_level = output(c, DRA_ATTEND_DQ_LEVEL);
    g.dk_level = output(c, DRA_ATTEND_DK_LEVEL);
    g.part = g.ddistance && a.N ? static_cast<double *>(c->scratch) : nullptr;
    g.parts = parts_of(a);
    if (a.D <= DRA_ATTEND_NARROW && a.E <= DRA_ATTEND_NARROW)
        a.plain ? start<narrow, true>(c, a, g) : start<narrow, false>(c, a, g);
    else
        a.plain ? start<wide, true>(c, a, g) : start<wide, false>(c, a, g);
}

static uint32_t rounds(const dra_call *c)
{
    const int dy = c->n_in - 3;
    return dra_attend_mma_rounds(c) | (dra_attend_mma_rounds_input(c, dy) ? 1u << dy : 0);
}

static uint32_t narrows(const dra_call *c)
{
    const uint32_t all = 1u << DRA_ATTEND_DQ | 1u << DRA_ATTEND_DK | 1u << DRA_ATTEND_DV;
    return dra_attend_mma_fits(c, dra_attend_call_of(c)) ? all : 0;
}

/* Tensor cores' kernels write heads wherever they are wanted. */
static uint32_t writes_strides(const dra_call *c) { return narrows(c); }

const dra_cuda_kernel dra_cuda_attend_back = {
    {"attend_back", DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL), DRA_LAYOUT_ANY, 0, false,
     scratch, nullptr, rounds, narrows, false, nullptr, nullptr, false, writes_strides},
    launch,
    false};
