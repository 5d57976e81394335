/* Layer and RMS norm with gain and bias; formulas in norm_gain.c.
 *
 * The gradient reads x and dy once. A team takes one row after the other, writes dx,
 * and holds its columns of dw and db in registers from row to row; the teams of a block join in
 * their order, and a second launch adds up the blocks. Rows that do not fit into registers are read
 * once for the sums over rows, by columns, and once more for dx. */
#include "ops/norm/norm.cuh"

enum { MEAN = 2 }; /* numbers that say the mean of a row: c and rest */

/* ---- (x, w[, b]) -> y, r (..., 1), mean (..., 2) --------------------------------------------- */

struct gain_call {
    dra_rows_view x;
    const float  *w, *b;
    void         *y; /* floats or bf16 */
    bool          y_bf16;
    float        *r, *mean;
    int64_t       rows, n;
    dra_row_norm  kind;
    float         eps;
};

template <typename Team, int W, int HELD> __global__ static void gain_kernel(const gain_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        dra_team_row<Team, W, HELD> row;
        row.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.n);
        const dra_norm_moments m = dra_norm_row(row, a.kind, a.eps);
        if (Team::rank() == 0 && a.r) a.r[r] = m.r;
        if (Team::rank() == 0 && a.mean) a.mean[r * MEAN] = m.c, a.mean[r * MEAN + 1] = m.rest;
        if (!a.y) continue;
        row.each([&](int64_t i, const float *v) {
            float y[W], w[W], b[W] = {0};
            dra_load_some<W>(a.w + i, w);
            if (a.b) dra_load_some<W>(a.b + i, b);
            DRA_UNROLL
            for (int j = 0; j < W; j++) y[j] = (v[j] - m.c - m.rest) * m.r * w[j] + b[j];
            dra_store_real<W>(a.y, a.y_bf16, r * a.n + i, y);
        });
    }
}

static void gain_launch(const dra_call *c)
{
    const dra_norm_attr *k = static_cast<const dra_norm_attr *>(c->attr);
    gain_call            a = {};
    bool by_four = !c->out[0].data || dra_rows_by_four(&c->out[0]); /* r and mean may be all */
    for (int i = 0; i < c->n_in; i++) by_four = by_four && dra_rows_by_four(&c->in[i]);
    a.x = dra_rows_of(&c->in[0]);
    a.w = static_cast<const float *>(c->in[1].data);
    a.b = c->n_in > 2 ? static_cast<const float *>(c->in[2].data) : nullptr;
    a.y = c->out[0].data;
    a.y_bf16 = c->out[0].dtype == DRA_BF16;
    a.r = static_cast<float *>(c->out[1].data);
    a.mean = static_cast<float *>(c->out[2].data);
    a.n = a.x.length;
    a.rows = dra_shape_count(&c->in[0].shape) / a.n;
    a.kind = k->kind;
    a.eps = (float)k->eps;
    DRA_LAUNCH_ROWS(c, gain_kernel, a.rows, a.n, by_four, a);
}

const dra_cuda_kernel dra_cuda_norm_gain = {{"norm_gain", DRA_REALS, DRA_LAYOUT_ROWS, 0, false,
                                             nullptr, nullptr, nullptr, dra_narrows_first, false},
                                            gain_launch,
                                            false};

/* ---- (x, w, r, mean, dy[, plus]) -> dx [+ plus], dw, db [, dx once more in bf16] ------------- */

enum { X, IN_W, R, MEANS, DY, PLUS };
enum { DX, DW, DB, DX_ROUNDED };

/* Threads hold x, dy, dw and db, so there are fewer of them than elsewhere. */
#ifdef __CUDACC__
enum {
    WARPS = 4,
    HELD_FEW = 8,
    HELD_SOME = 16,
    HELD_MANY = 24,
    HELD_MOST = 32,
    LONG_BLOCKS = 64,
    JOIN_WARPS = 32
};
#else
enum {
    WARPS = 2,
    HELD_FEW = 4,
    HELD_SOME = 8,
    HELD_MANY = 12,
    HELD_MOST = 16,
    LONG_BLOCKS = 3,
    JOIN_WARPS = 2
};
#endif
/* Blocks of warps that a multiprocessor has registers for. */
static constexpr int resident(int held) { return held > HELD_MANY ? 2 : 3; }

struct back_call {
    dra_rows_view x, dy, mean;
    dra_view      r;
    const float  *w, *plus;   /* plus: or NULL */
    float        *dx, *part;  /* part: (blocks, 2, n), what each adds to dw and db; or NULL */
    uint16_t     *dx_rounded; /* or NULL */
    int64_t       rows, n, blocks;
    bool          layer;
};

__device__ static dra_norm_moments moments_of(const back_call &a, int64_t row)
{
    const float *mean = dra_data<const float>(a.mean.rows) + dra_offset(a.mean.rows, row);
    return {mean[0], mean[1], dra_data<const float>(a.r)[dra_offset(a.r, row)]};
}

/* dx of one row, of which x, as n = (x - c - rest) r, and dy, as t = dy w, are held or read. */
template <typename Team, int W, int HELD>
__device__ static void back_row(const back_call &a, int64_t r, dra_team_row<Team, W, HELD> &x,
                                dra_team_row<Team, W, HELD> &dy, const dra_norm_moments &m)
{
    const auto terms = [&](int64_t i, const float *v, const float *u, float *n, float *t) {
        float w[W];
        dra_load_some<W>(a.w + i, w);
        DRA_UNROLL
        for (int j = 0; j < W; j++) n[j] = (v[j] - m.c - m.rest) * m.r, t[j] = u[j] * w[j];
    };
    float sum = 0, with_n = 0;
    x.each_with(dy, [&](int64_t i, float *v, float *u) {
        float n[W], t[W];
        terms(i, v, u, n, t);
        for (int j = 0; j < W; j++) sum += t[j], with_n += t[j] * n[j];
    });
    const float mean = a.layer ? dra_team_sum<Team>(sum) / (float)a.n : 0;
    const float slope = dra_team_sum<Team>(with_n) / (float)a.n;
    if (!a.dx) return;
    x.each_with(dy, [&](int64_t i, float *v, float *u) {
        float n[W], t[W];
        terms(i, v, u, n, t);
        DRA_UNROLL
        for (int j = 0; j < W; j++) t[j] = m.r * (t[j] - mean - slope * n[j]);
        if (a.plus) {
            dra_load_some<W>(a.plus + r * a.n + i, n);
            DRA_UNROLL
            for (int j = 0; j < W; j++) t[j] += n[j];
        }
        dra_store_some<W>(a.dx + r * a.n + i, t);
        if (a.dx_rounded) dra_store_real<W>(a.dx_rounded, true, r * a.n + i, t);
    });
}

/* Adds what the threads hold of dw and db, team by team, into the block's part. */
template <typename Team, int W, int HELD>
__device__ static void join_teams(const back_call &a, const float *dw, const float *db)
{
    float *to_dw = a.part + 2 * (int64_t)blockIdx.x * a.n, *to_db = to_dw + a.n;
    for (int team = 0; team < Team::teams(); team++) {
        if (Team::team() == team) {
            DRA_UNROLL
            for (int k = 0; k < HELD; k++) {
                const int i = dra_team_row<Team, W, HELD>::at(k / W) + k % W;
                if (i >= (int)a.n) continue;
                to_dw[i] = dw[k] + (team ? to_dw[i] : 0);
                to_db[i] = db[k] + (team ? to_db[i] : 0);
            }
        }
        __syncthreads();
    }
}

template <typename Team, int W, int HELD>
__global__ static void __launch_bounds__(Team::SIZE == 32 ? 32 * WARPS : Team::SIZE,
                                         Team::SIZE == 32 ? resident(HELD) : 1)
    back_kernel(const back_call a)
{
    float dw[HELD] = {0}, db[HELD] = {0};
    DRA_EACH_ROW(Team, r, a.rows)
    {
        const dra_norm_moments      m = moments_of(a, r);
        dra_team_row<Team, W, HELD> x, dy;
        x.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.n);
        dy.open(dra_data<const float>(a.dy.rows) + dra_offset(a.dy.rows, r), a.n);
        DRA_UNROLL
        for (int k = 0; k < HELD; k++) {
            if (x.at(k / W) >= (int)a.n) continue;
            dw[k] += dy.held[k] * ((x.held[k] - m.c - m.rest) * m.r);
            db[k] += dy.held[k];
        }
        back_row(a, r, x, dy, m);
    }
    if (a.part) join_teams<Team, W, HELD>(a, dw, db);
}

/* The same for long rows: dx by rows, dw and db by columns. */
template <typename Team, int W, int HELD> __global__ static void long_dx_kernel(const back_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        dra_team_row<Team, W, HELD> x, dy;
        x.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.n);
        dy.open(dra_data<const float>(a.dy.rows) + dra_offset(a.dy.rows, r), a.n);
        back_row(a, r, x, dy, moments_of(a, r));
    }
}

__global__ static void long_sums_kernel(const back_call a) /* (columns, blocks of rows) */
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float         dw = 0, db = 0;
    if (i >= a.n) return;
    for (int64_t r = blockIdx.y; r < a.rows; r += a.blocks) {
        const dra_norm_moments m = moments_of(a, r);
        const float            x = (dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r))[i];
        const float dy = (dra_data<const float>(a.dy.rows) + dra_offset(a.dy.rows, r))[i];
        dw += dy * ((x - m.c - m.rest) * m.r);
        db += dy;
    }
    a.part[2 * (int64_t)blockIdx.y * a.n + i] = dw;
    a.part[(2 * (int64_t)blockIdx.y + 1) * a.n + i] = db;
}

/* Column i of dw and db: the parts of all blocks, by the warps of a block in turns. */
__global__ static void join_kernel(const float *part, int64_t blocks, int64_t n, float *dw,
                                   float *db)
{
    const int         lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t     i = (int64_t)blockIdx.x * 32 + lane;
    __shared__ double sum[JOIN_WARPS * 32];
    double            own = 0;
    DRA_UNROLL_BY(4)
    for (int64_t b = warp; i < 2 * n && b < blocks; b += JOIN_WARPS)
        own += (double)part[2 * b * n + i];
    sum[threadIdx.x] = own;
    __syncthreads();
    if (warp > 0 || i >= 2 * n) return;
    double all = 0;
    for (int k = 0; k < JOIN_WARPS; k++) all += sum[k * 32 + lane];
    float *to = i < n ? dw : db;
    if (to) to[i < n ? i : i - n] = (float)all;
}

/* ---- launches of the gradient ---------------------------------------------------------------- */

enum { PROCESSORS = 132 }; /* of an H200: blocks for each, filled once */

static bool is_short(int64_t n) { return n <= 32 * HELD_MOST; }
static bool is_long(int64_t n) { return n > (int64_t)DRA_THREADS * HELD_MOST; }

/* Blocks that have a part of dw and db each, by shape alone. */
static int64_t blocks_of(int64_t rows, int64_t n)
{
    if (is_long(n)) return dra_imin(LONG_BLOCKS, dra_div_up(rows, 8));
    const int64_t most = PROCESSORS * resident((int)dra_div_up(n, 32));
    return dra_imin(most, dra_div_up(rows, is_short(n) ? 4 * WARPS : 4));
}

static size_t back_scratch(const dra_call *c)
{
    const int64_t n = dra_last(&c->in[X]);
    const int64_t rows = dra_shape_count(&c->in[X].shape) / n;
    return (size_t)(2 * blocks_of(rows, n) * n) * sizeof(float);
}

#define LAUNCH_BACK(Team, threads, held)                                                           \
    do {                                                                                           \
        if (by_four)                                                                               \
            DRA_LAUNCH(c, (back_kernel<Team, 4, held>), (unsigned)a.blocks, threads, 0, a);        \
        else                                                                                       \
            DRA_LAUNCH(c, (back_kernel<Team, 1, held>), (unsigned)a.blocks, threads, 0, a);        \
    } while (0)

static void launch_rows(const dra_call *c, const back_call &a, bool by_four)
{
    if (a.n <= 32 * HELD_FEW)
        LAUNCH_BACK(dra_warp_team, 32 * WARPS, HELD_FEW);
    else if (a.n <= 32 * HELD_MANY)
        LAUNCH_BACK(dra_warp_team, 32 * WARPS, HELD_MANY);
    else if (is_short(a.n))
        LAUNCH_BACK(dra_warp_team, 32 * WARPS, HELD_MOST);
    else if (a.n <= (int64_t)DRA_THREADS * HELD_FEW)
        LAUNCH_BACK(dra_block_team<DRA_THREADS>, DRA_THREADS, HELD_FEW);
    else if (a.n <= (int64_t)DRA_THREADS * HELD_SOME)
        LAUNCH_BACK(dra_block_team<DRA_THREADS>, DRA_THREADS, HELD_SOME);
    else
        LAUNCH_BACK(dra_block_team<DRA_THREADS>, DRA_THREADS, HELD_MOST);
}

static void launch_long(const dra_call *c, const back_call &a, bool by_four)
{
    const dim3 grid((unsigned)dra_div_up(a.n, DRA_THREADS), (unsigned)a.blocks);
    if (a.part)
        DRA_LAUNCH(c, long_sums_kernel, grid, DRA_THREADS, 0, a); /* dx may take dy's memory */
    if (a.dx)
        DRA_LAUNCH_TEAM(c, long_dx_kernel, dra_block_team<DRA_LONG_THREADS>, 0, a.rows, by_four,
                        DRA_LONG_THREADS, 1, a);
}

static void back_launch(const dra_call *c)
{
    float *dw = static_cast<float *>(c->out[DW].data), *db = static_cast<float *>(c->out[DB].data);
    back_call  a = {};
    const bool adds = c->n_in > PLUS, repeats = c->n_out > DX_ROUNDED;
    const bool by_four = dra_rows_by_four(&c->in[X]) && dra_rows_by_four(&c->in[IN_W]) &&
                         dra_rows_by_four(&c->in[DY]) &&
                         (!adds || dra_rows_by_four(&c->in[PLUS])) &&
                         (!repeats || dra_rows_by_four(&c->out[DX_ROUNDED])) &&
                         (!c->out[DX].data || dra_rows_by_four(&c->out[DX]));
    a.x = dra_rows_of(&c->in[X]);
    a.dy = dra_rows_of(&c->in[DY]);
    a.mean = dra_rows_of(&c->in[MEANS]);
    a.r = dra_view_of(&c->in[R]);
    a.w = static_cast<const float *>(c->in[IN_W].data);
    a.plus = adds ? static_cast<const float *>(c->in[PLUS].data) : nullptr;
    a.dx = static_cast<float *>(c->out[DX].data);
    a.dx_rounded = repeats ? static_cast<uint16_t *>(c->out[DX_ROUNDED].data) : nullptr;
    a.part = dw || db ? static_cast<float *>(c->scratch) : nullptr;
    a.n = a.x.length;
    a.rows = dra_shape_count(&c->in[X].shape) / a.n;
    a.blocks = blocks_of(a.rows, a.n);
    a.layer = static_cast<const dra_norm_attr *>(c->attr)->kind == DRA_ROW_NORM_LAYER;
    if (a.rows && is_long(a.n)) launch_long(c, a, by_four);
    if (a.rows && !is_long(a.n)) launch_rows(c, a, by_four);
    if (dw || db)
        DRA_LAUNCH(c, join_kernel, (unsigned)dra_div_up(2 * a.n, 32), JOIN_WARPS * 32, 0,
                   static_cast<const float *>(c->scratch), a.blocks, a.n, dw, db);
}

const dra_cuda_kernel dra_cuda_norm_gain_back = {
    {"norm_gain_back", DRA_REALS, DRA_LAYOUT_ROWS, 1u << DY | 1u << PLUS, false, back_scratch,
     nullptr, nullptr, nullptr, false, nullptr, nullptr, false, nullptr, true, true},
    back_launch,
    false};
