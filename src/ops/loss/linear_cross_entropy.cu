/* linear_cross_entropy: the mean cross entropy of logits = x w^T with targets, and its gradients,
 * without ever holding all logits; see linear_cross_entropy.c.
 *   x (N, C)   w (V, C)   target (N)   ->   loss (), dx (N, C), dw (V, C) for upstream 1
 * Blocks of tokens go one after the other. Each makes its logits Z, turns each row into its loss
 * and dZ in one launch, in the place of Z, then makes dx = dZ w for its own rows and dw += dZ^T x.
 * In bf16, x and w are packed once for all blocks, and Z and dZ are stored as bf16. */
#include "ops/loss/cross_entropy.cuh"
#include "ops/products/gemm.cuh"
#include "device/cuda/stored.cuh"

/* Bytes of logits at a time, and what tokens of a block are a multiple of: enough for products that
 * fill the GPU, and for dw to be read and written few times. Fewer on the host, so that tests have
 * several blocks. */
#ifdef __CUDACC__
enum { LOGITS = 512 << 20, ROWS = 128 };
#else
enum { LOGITS = 16 << 10, ROWS = 16 };
#endif
enum { LINE = 64 };

/* ---- sizes and memory ------------------------------------------------------------------------ */

struct head {
    int64_t         N, C, V, line; /* line: of logits, V and some to begin rows on 16 bytes */
    int64_t         rows;          /* tokens of a block */
    dra_precision   precision;
    dra_cuda_matrix x, w; /* as given */
    /* scratch */
    int64_t *count;       /* rows that count */
    float   *losses;      /* (N) */
    void    *logits;      /* (rows, line): Z, then dZ, in f32 or bf16 */
    void    *x_at, *w_at; /* packed */
    size_t   bytes;
};

static bool in_bf16(const head *h) { return h->precision == DRA_PRECISION_BF16; }

static int64_t block_rows(int64_t N, int64_t line, int64_t bytes)
{
    const int64_t most = dra_imax(1, LOGITS / (bytes * line * ROWS)) * ROWS;
    if (N <= most) return dra_imax(1, N);
    return dra_div_up(dra_div_up(N, dra_div_up(N, most)), (int64_t)ROWS) * ROWS;
}

static void *take(const dra_call *c, head *h, size_t bytes)
{
    void *at = c->scratch ? static_cast<char *>(c->scratch) + h->bytes : nullptr;
    h->bytes += dra_div_up(bytes, (size_t)LINE) * LINE;
    return at;
}

static dra_cuda_matrix matrix_of(const dra_tensor *t)
{
    return {t->data, t->dtype, t->shape.dim[0], t->shape.dim[1], 1, t->stride[0], t->stride[1], 0};
}

static head head_of(const dra_call *c)
{
    head h = {};
    h.x = matrix_of(&c->in[0]);
    h.w = matrix_of(&c->in[1]);
    h.N = h.x.rows, h.C = h.x.columns, h.V = h.w.rows;
    h.precision = static_cast<const dra_linear_cross_entropy_attr *>(c->attr)->precision;
    h.line = dra_imax(8, dra_div_up(h.V, (int64_t)8) * 8);
    const int64_t bytes = in_bf16(&h) ? sizeof(uint16_t) : sizeof(float);
    h.rows = block_rows(h.N, h.line, bytes);
    h.count = static_cast<int64_t *>(take(c, &h, sizeof *h.count));
    h.losses = static_cast<float *>(take(c, &h, (size_t)h.N * sizeof *h.losses));
    h.logits = take(c, &h, (size_t)(h.rows * h.line * bytes));
    h.x_at = take(c, &h, dra_cuda_pack_bytes(&h.x, h.precision));
    h.w_at = take(c, &h, dra_cuda_pack_bytes(&h.w, h.precision));
    return h;
}

static size_t scratch(const dra_call *c) { return head_of(c).bytes; }

/* ---- rows ------------------------------------------------------------------------------------ */

struct rows_call {
    head                     h;
    const int32_t           *target;
    int64_t                  step;        /* of targets */
    int64_t                  first, rows; /* tokens of this block */
    bool                     wanted;      /* dZ */
    dra_cross_entropy_config k;
    dra_fault_place          fault;
    float                   *loss; /* the mean */
};

template <typename T> struct join_sum {
    static __device__ T none() { return 0; }
    static __device__ T join(T a, T b) { return a + b; }
};

typedef dra_block_team<DRA_LONG_THREADS> all_threads;

/* One block. */
__global__ static void count_kernel(const __grid_constant__ rows_call a)
{
    int64_t count = 0;
    DRA_UNROLL_BY(4)
    for (int64_t n = threadIdx.x; n < a.h.N; n += blockDim.x) {
        const dra_row_target t = dra_target_of(a.k, a.target[n * a.step], a.h.V);
        dra_target_check(a.fault, t, n, a.h.V);
        count += t.valid;
    }
    count = all_threads::join<join_sum<int64_t>>(count);
    if (threadIdx.x == 0) *a.h.count = count;
}

__device__ static void store_logit(float *z, float x) { *z = x; }
__device__ static void store_logit(uint16_t *z, float x) { *z = (uint16_t)dra_pair_bf16(x, 0); }

/* Logits after the last one, which no product writes, have no part in the softmax. */
template <typename T> __global__ static void pad_kernel(const __grid_constant__ rows_call a)
{
    const int64_t more = a.h.line - a.h.V;
    T            *z = static_cast<T *>(a.h.logits);
    DRA_EACH(i, a.h.rows * more) store_logit(z + i / more * a.h.line + a.h.V + i % more, -INFINITY);
}

/* Logits behind the last one stay -inf for the rows of the next block. */
template <int W, typename T>
__device__ static void store_dz(const rows_call &a, T *z, int64_t i, const float *v)
{
    if (i + W <= a.h.V)
        dra_store_real<W>(z, sizeof(T) == 2, i, v);
    else
        for (int j = 0; i + j < a.h.V; j++) store_logit(z + i + j, v[j]);
}

/* Losses of rows of Z; where a gradient is wanted, dZ. */
template <typename Team, int W, int HELD, typename T>
__device__ static void take_losses(const rows_call &a)
{
    const float scale = (float)(1.0 / (double)*a.h.count);
    DRA_EACH_ROW(Team, r, a.rows)
    {
        const int64_t        n = a.first + r;
        const dra_row_target t = dra_target_of(a.k, a.target[n * a.step], a.h.V);
        T                   *z = static_cast<T *>(a.h.logits) + r * a.h.line;
        float                loss = 0, lse = INFINITY;

        dra_team_row<Team, W, HELD, T> row;
        row.open(z, a.h.line);
        if (t.valid) loss = dra_row_loss(row, a.h.V, (float)a.k.smoothing, t.at, &lse);
        if (Team::rank() == 0) a.h.losses[n] = loss;
        if (!a.wanted) continue;
        if (Team::SIZE == 32) /* all have read the target's logit, before its place is taken */
            __syncwarp();
        else
            __syncthreads();
        dra_row_loss_back(row, a.h.V, a.k, t, lse, scale,
                          [&](int64_t i, const float *dx) { store_dz<W>(a, z, i, dx); });
    }
}

template <typename Team, int W, int HELD>
__global__ static void losses_kernel(const __grid_constant__ rows_call a)
{
    take_losses<Team, W, HELD, float>(a);
}

template <typename Team, int W, int HELD>
__global__ static void losses_bf16_kernel(const __grid_constant__ rows_call a)
{
    take_losses<Team, W, HELD, uint16_t>(a);
}

/* One block; sums in double, as on the CPU. */
__global__ static void mean_kernel(const __grid_constant__ rows_call a)
{
    double sum = 0;
    DRA_UNROLL_BY(8)
    for (int64_t n = threadIdx.x; n < a.h.N; n += blockDim.x) sum += (double)a.h.losses[n];
    sum = all_threads::join<join_sum<double>>(sum);
    if (threadIdx.x == 0) *a.loss = *a.h.count ? (float)(sum / (double)*a.h.count) : 0;
}

/* ---- products -------------------------------------------------------------------------------- */

static dra_cuda_matrix turn(dra_cuda_matrix m)
{
    return {m.data, m.dtype, m.columns, m.rows, m.batch, m.column, m.row, m.next};
}

static void multiply(const dra_call *c, const head *h, const dra_cuda_matrix &a,
                     const dra_cuda_matrix &b, void *y, bool y_bf16, int64_t y_row, bool add)
{
    dra_cuda_gemm g = {};
    g.M = a.rows, g.K = a.columns, g.N = b.columns;
    g.batch = 1;
    g.y = y;
    g.y_bf16 = y_bf16;
    g.y_row = y_row;
    g.add = add;
    g.precision = h->precision;
    dra_cuda_set_a(&g, &a);
    dra_cuda_set_b(&g, &b);
    dra_cuda_gemm_run(c, &g);
}

/* Long rows in bf16 are read 16 bytes a thread. */
static void launch_losses(const dra_call *c, const rows_call &a)
{
    typedef dra_block_team<DRA_LONG_THREADS> team;
    const unsigned                           rows = dra_grid(c, a.rows, 1);
    if (!in_bf16(&a.h))
        DRA_LAUNCH_ROWS(c, losses_kernel, a.rows, a.h.line, true, a);
    else if (a.h.line > DRA_THREADS * DRA_HELD_MANY)
        DRA_LAUNCH(c, (losses_bf16_kernel<team, 8, 0>), rows, DRA_LONG_THREADS, 0, a);
    else
        DRA_LAUNCH_ROWS(c, losses_bf16_kernel, a.rows, a.h.line, true, a);
}

/* Tokens `first` and on of the factors x and w. */
static void run_block(const dra_call *c, rows_call *a, const dra_cuda_matrix &all_x,
                      const dra_cuda_matrix &w)
{
    const head     *h = &a->h;
    float          *dx = static_cast<float *>(c->out[1].data);
    float          *dw = static_cast<float *>(c->out[2].data);
    dra_cuda_matrix x = all_x, dz = {};
    if (x.data)
        x.data = static_cast<const char *>(x.data) +
                 a->first * x.row * (int64_t)dra_dtype_bytes(x.dtype);
    x.rows = a->rows;
    multiply(c, h, x, turn(w), h->logits, in_bf16(h), h->line, false);
    launch_losses(c, *a);
    dz.data = h->logits;
    dz.dtype = in_bf16(h) ? DRA_BF16 : DRA_F32;
    dz.rows = a->rows, dz.columns = h->V, dz.batch = 1;
    dz.row = h->line, dz.column = 1;
    if (dx) multiply(c, h, dz, w, dx + a->first * h->C, false, h->C, false);
    if (dw) multiply(c, h, turn(dz), x, dw, false, h->C, a->first > 0);
}

static void launch_pad(const dra_call *c, const rows_call &a)
{
    const int64_t  count = a.h.rows * (a.h.line - a.h.V);
    const unsigned grid = dra_grid(c, count, DRA_THREADS);
    if (count == 0) return;
    if (in_bf16(&a.h))
        DRA_LAUNCH(c, pad_kernel<uint16_t>, grid, DRA_THREADS, 0, a);
    else
        DRA_LAUNCH(c, pad_kernel<float>, grid, DRA_THREADS, 0, a);
}

static void launch(const dra_call *c)
{
    rows_call   a = {};
    const head *h = &a.h;
    a.h = head_of(c);
    a.target = static_cast<const int32_t *>(c->in[2].data);
    a.step = c->in[2].stride[0];
    a.wanted = c->out[1].data || c->out[2].data;
    a.k = static_cast<const dra_linear_cross_entropy_attr *>(c->attr)->loss;
    a.fault = dra_fault_of(c);
    a.loss = static_cast<float *>(c->out[0].data);
    DRA_LAUNCH(c, count_kernel, 1, DRA_LONG_THREADS, 0, a);
    launch_pad(c, a);
    const dra_cuda_matrix x = dra_cuda_pack(c, &h->x, h->precision, h->x_at);
    const dra_cuda_matrix w = dra_cuda_pack(c, &h->w, h->precision, h->w_at);
    for (a.first = 0; a.first < h->N; a.first += h->rows) {
        a.rows = dra_imin(h->rows, h->N - a.first);
        run_block(c, &a, x, w);
    }
    if (h->N == 0 && c->out[2].data) /* no block has written dw */
        cudaMemsetAsync(c->out[2].data, 0, (size_t)(h->V * h->C) * sizeof(float),
                        dra_cuda_of(c)->stream);
    if (a.loss) DRA_LAUNCH(c, mean_kernel, 1, DRA_LONG_THREADS, 0, a);
}

enum { FACTORS = DRA_BIT(DRA_F32) | DRA_BIT(DRA_BF16) | DRA_BIT(DRA_F16) | DRA_QUANTISED };

static uint32_t rounds(const dra_call *c)
{
    const bool bf16 = static_cast<const dra_linear_cross_entropy_attr *>(c->attr)->precision ==
                      DRA_PRECISION_BF16;
    return bf16 && dra_even_lines(&c->in[0]);
}

const dra_cuda_kernel dra_cuda_linear_cross_entropy = {
    {"linear_cross_entropy", FACTORS | DRA_BIT(DRA_I32), DRA_LAYOUT_ANY, 0, false, scratch, nullptr,
     rounds, nullptr, true},
    launch,
    false};
