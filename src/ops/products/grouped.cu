/* Products of rows by group, see grouped.c. A block of threads computes tiles of the result, each
 * of one group: SIDE x SIDE threads with EACH x EACH sums a thread, over DEPTH of the sum at a time
 * from shared memory. Few rows, as in decoding: a warp has an element of the result, so that
 * matrices are read once. The order of a sum is that of k; over a warp it is fixed by the lanes. */
#include "ops/products/quant.cuh"

#ifdef __CUDACC__
enum { SIDE = 16 };
#else
enum { SIDE = 8 };
#endif
enum { EACH = 4, TILE = SIDE * EACH, DEPTH = 16, GROUP_THREADS = SIDE * SIDE, FEW = 64 };

struct factor_view { /* a matrix: element (i, k) at first + i outer + k inner */
    const void *data;
    dra_dtype   dtype;
    int64_t     first, outer, inner;
};

struct grouped_call {
    const int32_t *ends;
    int64_t        n, ends_step, S; /* groups; all rows */
    factor_view    a, b;            /* of group 0 */
    int64_t        M, N, K;         /* of a product; M of outer alone, K of linear alone */
    int64_t        b_next;          /* linear: from the matrix of a group to the next */
    bool           bf16;
    float         *y;
};

struct group_range {
    int64_t group, first, end;
};

__device__ static int64_t end_of(const grouped_call &g, int64_t e)
{
    const int64_t end = g.ends[e * g.ends_step];
    return end < 0 ? 0 : end > g.S ? g.S : end;
}

/* One of any float dtype, or of quantised blocks. */
template <bool QUANT> __device__ static float number_at(const factor_view &f, int64_t i, int64_t k)
{
    const int64_t at = f.first + i * f.outer + k * f.inner;
    if (!QUANT) return dra_load(f.data, f.dtype, at);
    return dra_stored_any_quant::fetch(f.data, f.dtype, at, 1, 1, false).at[0];
}

template <bool QUANT>
__device__ static float factor_at(const factor_view &f, bool bf16, int64_t i, int64_t k)
{
    const float x = number_at<QUANT>(f, i, k);
    return bf16 ? dra_as_bf16(x) : x;
}

/* y (M, N), rows N apart in all, from row and column on: a (M, K) b (N, K)^T. */
template <bool QUANT>
__device__ static void multiply_tile(const grouped_call &g, const factor_view &a,
                                     const factor_view &b, int64_t M, int64_t K, int64_t row,
                                     int64_t column, float *y)
{
    __shared__ float some_a[DEPTH][TILE + 1], some_b[DEPTH][TILE + 1];
    const int        r = (int)threadIdx.x / SIDE, c = (int)threadIdx.x % SIDE;
    float            sum[EACH][EACH] = {};
    for (int64_t k = 0; k < K; k += DEPTH) {
        for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += GROUP_THREADS) {
            const int64_t at = k + i % DEPTH, line = i / DEPTH;
            const bool    in_a = at < K && row + line < M, in_b = at < K && column + line < g.N;
            some_a[i % DEPTH][line] = in_a ? factor_at<false>(a, g.bf16, row + line, at) : 0;
            some_b[i % DEPTH][line] = in_b ? factor_at<QUANT>(b, g.bf16, column + line, at) : 0;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; d++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    sum[i][j] += some_a[d][r + SIDE * i] * some_b[d][c + SIDE * j];
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const int64_t to_row = row + r + SIDE * i, to = column + c + SIDE * j;
            if (to_row < M && to < g.N) y[to_row * g.N + to] = sum[i][j];
        }
}

/* ---- grouped_linear -------------------------------------------------------------------------- */

/* Rows of block number i of TILE rows, none of which holds two groups; first = end: there is none.
 */
__device__ static group_range find_rows(const grouped_call &g, int64_t i)
{
    int64_t begin = 0;
    for (int64_t e = 0; e < g.n; e++) {
        const int64_t end = end_of(g, e),
                      blocks = end > begin ? (end - begin + TILE - 1) / TILE : 0;
        if (i < blocks) return {e, begin + i * TILE, end};
        i -= blocks;
        if (end > begin) begin = end;
    }
    return {0, 0, 0};
}

template <bool QUANT> __global__ static void linear_kernel(const grouped_call g, int64_t blocks)
{
    const int64_t columns = (g.N + TILE - 1) / TILE;
    for (int64_t i = blockIdx.x; i < blocks * columns; i += gridDim.x) {
        const group_range rows = find_rows(g, i / columns);
        factor_view       a = g.a, b = g.b;
        if (rows.first >= rows.end) continue;
        a.first += rows.first * a.outer;
        b.first += rows.group * g.b_next;
        multiply_tile<QUANT>(g, a, b, dra_imin(TILE, rows.end - rows.first), g.K, 0,
                             i % columns * TILE, g.y + rows.first * g.N);
    }
}

__device__ static int64_t group_of(const grouped_call &g, int64_t s)
{
    int64_t e = 0;
    while (e + 1 < g.n && end_of(g, e) <= s) e++;
    return e;
}

template <bool QUANT> __global__ static void few_kernel(const grouped_call g)
{
    const int lane = (int)threadIdx.x % 32;
    DRA_EACH_ROW(dra_warp_team, i, g.S * g.N)
    {
        const int64_t s = i / g.N, column = i - s * g.N;
        factor_view   b = g.b;
        b.first += group_of(g, s) * g.b_next;
        float sum = 0;
        for (int64_t k = lane; k < g.K; k += 32)
            sum += factor_at<false>(g.a, g.bf16, s, k) * factor_at<QUANT>(b, g.bf16, column, k);
        sum = dra_team_sum<dra_warp_team>(sum);
        if (lane == 0) g.y[i] = sum;
    }
}

static grouped_call call_of(const dra_call *c)
{
    const dra_grouped_attr *a = static_cast<const dra_grouped_attr *>(c->attr);
    grouped_call            g = {};
    g.ends = static_cast<const int32_t *>(c->in[2].data);
    g.n = c->in[2].shape.dim[0];
    g.ends_step = c->in[2].stride[0];
    g.S = c->in[0].shape.dim[0];
    g.bf16 = a->precision == DRA_PRECISION_BF16;
    g.y = static_cast<float *>(c->out[0].data);
    g.N = dra_last(&c->out[0]);
    return g;
}

template <bool QUANT> static void launch_as(const dra_call *c, const grouped_call &g)
{
    const int64_t blocks = dra_imin(g.n, g.S) + g.S / TILE;
    if (g.S <= FEW)
        DRA_LAUNCH(c, few_kernel<QUANT>, dra_grid(c, g.S * g.N, DRA_THREADS / 32), DRA_THREADS, 0,
                   g);
    else
        DRA_LAUNCH(c, linear_kernel<QUANT>, dra_grid(c, blocks * dra_div_up(g.N, TILE), 1),
                   GROUP_THREADS, 0, g, blocks);
}

static void linear_launch(const dra_call *c)
{
    const dra_tensor *x = &c->in[0], *w = &c->in[1];
    const bool        transposed = static_cast<const dra_grouped_attr *>(c->attr)->transposed != 0;
    grouped_call      g = call_of(c);
    g.K = x->shape.dim[1];
    g.a = {x->data, x->dtype, 0, x->stride[0], x->stride[1]};
    g.b = {w->data, w->dtype, 0, w->stride[transposed], w->stride[!transposed]};
    g.b_next = w->shape.dim[0] / g.n * w->stride[0];
    if (dra_is_quantised(w->dtype))
        launch_as<true>(c, g);
    else
        launch_as<false>(c, g);
}

const dra_cuda_kernel dra_cuda_grouped_linear = {
    {"grouped_linear", DRA_ANY_DTYPE | DRA_QUANTISED, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr},
    linear_launch,
    false};

/* ---- grouped_outer --------------------------------------------------------------------------- */

__global__ static void outer_kernel(const grouped_call g)
{
    const int64_t rows = (g.M + TILE - 1) / TILE, columns = (g.N + TILE - 1) / TILE;
    for (int64_t i = blockIdx.x; i < g.n * rows * columns; i += gridDim.x) {
        const int64_t e = i / (rows * columns), begin = e > 0 ? end_of(g, e - 1) : 0;
        factor_view   a = g.a, b = g.b;
        a.first += begin * a.inner;
        b.first += begin * b.inner;
        multiply_tile<false>(g, a, b, g.M, end_of(g, e) - begin, i / columns % rows * TILE,
                             i % columns * TILE, g.y + e * g.M * g.N);
    }
}

static void outer_launch(const dra_call *c)
{
    const dra_tensor *dy = &c->in[0], *x = &c->in[1];
    grouped_call      g = call_of(c);
    g.M = dy->shape.dim[1];
    g.a = {dy->data, dy->dtype, 0, dy->stride[1], dy->stride[0]};
    g.b = {x->data, x->dtype, 0, x->stride[1], x->stride[0]};
    DRA_LAUNCH(c, outer_kernel, dra_grid(c, g.n * dra_div_up(g.M, TILE) * dra_div_up(g.N, TILE), 1),
               GROUP_THREADS, 0, g);
}

const dra_cuda_kernel dra_cuda_grouped_outer = {
    {"grouped_outer", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr},
    outer_launch,
    false};
