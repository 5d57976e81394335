/* The kernels for products of few rows, for every way in which b may be stored: gemm_small_m.cu has
 * those of numbers, gemm_quant.cu those of quantised blocks.
 *
 * y (M, N) = a (M, K) b (K, N), M up to 8, as in decoding. They take as long as the weights b
 * take to come from memory, so b is read once, as it is stored, 16 bytes a thread (8 elements of
 * a block), with many loads under way; a stays in the caches. A block splits the sum over k among
 * its threads, each of which takes every n-th of them in rising order; the parts are joined in a
 * fixed order. In bf16 both factors are rounded in registers. More rows are more blocks: right,
 * but b is read again for every 8. */
#ifndef DRA_SRC_OPS_PRODUCTS_GEMM_SMALL_M_CUH
#define DRA_SRC_OPS_PRODUCTS_GEMM_SMALL_M_CUH

#include "ops/products/gemm.cuh"
#include "device/cuda/stored.cuh"

#ifdef __CUDACC__
enum { WARPS = 8 };
#else
enum { WARPS = 2 };
#endif
enum {
    MOST_ROWS = 8,
    COLUMNS = 4, /* of b that a warp takes at a time, where each is adjacent in memory */
    AHEAD = 4,   /* rows of b that a thread has under way, where those are */
    BLOCKS = 264 /* that keep memory busy: two for each multiprocessor of an H200 */
};

struct small_product {
    dra_cuda_gemm g;
    bool          a_whole, b_whole; /* 16 bytes can be read at a time */
    int           split;            /* warps that share columns; lanes that share a row of b */
};

template <bool BF16> __device__ static inline float factor(float x)
{
    return BF16 ? dra_as_bf16(x) : x;
}

/* SOME numbers from column k of a row of a on, or zeros. */
template <bool BF16, int SOME>
__device__ static void load_a(const small_product &p, int64_t row, int64_t k, float *v)
{
    const dra_cuda_gemm &g = p.g;
    const int64_t        at = row + k * g.a_column;
    if (p.a_whole && k + SOME <= g.K) {
        DRA_UNROLL
        for (int i = 0; i < SOME; i += 4)
            dra_load_some<4>(static_cast<const float *>(g.a) + at + i, v + i);
    } else {
        for (int i = 0; i < SOME; i++)
            v[i] = k + i < g.K ? dra_load(g.a, g.a_dtype, at + i * g.a_column) : 0;
    }
    DRA_UNROLL
    for (int i = 0; i < SOME; i++) v[i] = factor<BF16>(v[i]);
}

template <typename Stored, bool BF16>
__device__ static void widen_b(const typename Stored::raw &from, float *v)
{
    Stored::widen_some(from, v);
    if (!Stored::ROUND_EXACT)
        for (int i = 0; i < Stored::SOME; i++) v[i] = factor<BF16>(v[i]);
}

__device__ static void give(const dra_cuda_gemm &g, int64_t matrix, int64_t row, int64_t column,
                            float sum)
{
    const int64_t i = matrix * g.y_next + row * g.y_row + column;
    void         *at = dra_cuda_gemm_y(g, i);
    if (row >= g.M || column >= g.N) return;
    if (g.add) sum += *static_cast<float *>(at);
    if (g.bias) sum += dra_load(g.bias, g.bias_dtype, column);
    if (g.plus) sum += g.plus[i];
    dra_store_real<1>(at, g.y_bf16, 0, &sum);
}

/* for (matrix, first row : rows of this block) */
#define EACH_ROWS(g, ROWS, matrix, row)                                                            \
    for (int64_t matrix = blockIdx.z; matrix < (g).batch; matrix += gridDim.z)                     \
        for (int64_t row = (int64_t)blockIdx.y * ROWS; row < (g).M;                                \
             row += (int64_t)gridDim.y * ROWS)

/* ---- columns of b adjacent in memory: weights stored (out, in) ------------------------------- */

/* Products of ROWS rows with COLUMNS columns, over the k of this thread. */
template <typename Stored, bool BF16, int ROWS>
__device__ static void take_columns(const small_product &p, int64_t matrix, int64_t row,
                                    int64_t column, int part, float (*sum)[ROWS])
{
    enum { SOME = Stored::SOME };
    const dra_cuda_gemm &g = p.g;
    for (int64_t k = (part * 32 + (int)threadIdx.x % 32) * SOME; k < g.K;
         k += p.split * 32 * SOME) {
        typename Stored::raw from[COLUMNS];
        DRA_UNROLL
        for (int j = 0; j < COLUMNS; j++) {
            const int64_t n = dra_imin(column + j, g.N - 1);
            from[j] = Stored::fetch(g.b, g.b_dtype,
                                    matrix * g.b_next + n * g.b_column + k * g.b_row, g.b_row,
                                    g.K - k, p.b_whole && k + SOME <= g.K);
        }
        float w[COLUMNS][SOME];
        DRA_UNROLL
        for (int j = 0; j < COLUMNS; j++) widen_b<Stored, BF16>(from[j], w[j]);
        DRA_UNROLL
        for (int m = 0; m < ROWS; m++) {
            float x[SOME];
            load_a<BF16, SOME>(p, matrix * g.a_next + dra_imin(row + m, g.M - 1) * g.a_row, k, x);
            DRA_UNROLL
            for (int j = 0; j < COLUMNS; j++) DRA_UNROLL
            for (int i = 0; i < SOME; i++) sum[j][m] += x[i] * w[j][i];
        }
    }
}

template <typename Stored, bool BF16, int ROWS>
__global__ static void __launch_bounds__(WARPS * 32)
    columns_kernel(const __grid_constant__ small_product p)
{
    __shared__ float parts[WARPS][COLUMNS * ROWS];
    const int        warp = (int)threadIdx.x / 32, groups = WARPS / p.split;
    const int64_t    first = (int64_t)blockIdx.x * groups * COLUMNS;
    EACH_ROWS(p.g, ROWS, matrix, row)
    {
        float sum[COLUMNS][ROWS] = {};
        take_columns<Stored, BF16, ROWS>(p, matrix, row, first + warp / p.split * COLUMNS,
                                         warp % p.split, sum);
        __syncthreads(); /* parts may still be read from before */
        DRA_UNROLL
        for (int i = 0; i < COLUMNS * ROWS; i++) {
            const float all = dra_warp_join<dra_join_sum>(sum[i / ROWS][i % ROWS]);
            if (threadIdx.x % 32 == 0) parts[warp][i] = all;
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < groups * COLUMNS * ROWS; i += WARPS * 32) {
            const int group = i / (COLUMNS * ROWS), at = i % (COLUMNS * ROWS);
            float     all = 0;
            for (int k = 0; k < p.split; k++) all += parts[group * p.split + k][at];
            give(p.g, matrix, row + at % ROWS, first + group * COLUMNS + at / ROWS, all);
        }
    }
}

/* ---- rows of b adjacent in memory: weights stored (in, out), and any other order ------------- */

/* Products of ROWS rows with the columns of this thread, over its k. */
template <typename Stored, bool BF16, int ROWS>
__device__ static void take_rows(const small_product &p, int64_t matrix, int64_t row,
                                 int64_t column, float (*sum)[Stored::SOME])
{
    enum { SOME = Stored::SOME };
    const dra_cuda_gemm &g = p.g;
    const int64_t        b = matrix * g.b_next + column * g.b_column;
    const bool           whole = p.b_whole && column + SOME <= g.N;
    const int            parts = WARPS * 32 / p.split;
    for (int64_t k = (int)threadIdx.x / p.split; k < g.K; k += AHEAD * parts) {
        typename Stored::raw from[AHEAD];
        DRA_UNROLL
        for (int u = 0; u < AHEAD; u++)
            from[u] = Stored::fetch(g.b, g.b_dtype, b + dra_imin(k + u * parts, g.K - 1) * g.b_row,
                                    g.b_column, g.N - column, whole);
        DRA_UNROLL
        for (int u = 0; u < AHEAD; u++) {
            if (k + u * parts >= g.K) break;
            float w[SOME];
            widen_b<Stored, BF16>(from[u], w);
            DRA_UNROLL
            for (int m = 0; m < ROWS; m++) {
                const int64_t at = matrix * g.a_next + dra_imin(row + m, g.M - 1) * g.a_row;
                const float   x = dra_load(g.a, g.a_dtype, at + (k + u * parts) * g.a_column);
                DRA_UNROLL
                for (int i = 0; i < SOME; i++) sum[m][i] += factor<BF16>(x) * w[i];
            }
        }
    }
}

enum { MOST_LANES = 8 }; /* that share a row of b */

template <typename Stored, bool BF16, int ROWS>
__global__ static void __launch_bounds__(WARPS * 32)
    rows_kernel(const __grid_constant__ small_product p)
{
    enum { SOME = Stored::SOME };
    __shared__ float parts[WARPS][ROWS * MOST_LANES * SOME];
    const int        warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % p.split;
    const int        width = p.split * SOME; /* columns of the block */
    const int64_t    first = (int64_t)blockIdx.x * width;
    EACH_ROWS(p.g, ROWS, matrix, row)
    {
        float sum[ROWS][SOME] = {};
        if (first + lane * SOME < p.g.N)
            take_rows<Stored, BF16, ROWS>(p, matrix, row, first + lane * SOME, sum);
        __syncthreads(); /* parts may still be read from before */
        DRA_UNROLL
        for (int i = 0; i < ROWS * SOME; i++) {
            float all = sum[i / SOME][i % SOME];
            for (int by = p.split; by < 32; by *= 2) all += __shfl_xor_sync(~0u, all, by);
            if ((int)threadIdx.x % 32 < p.split)
                parts[warp][i / SOME * width + lane * SOME + i % SOME] = all;
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < ROWS * width; i += WARPS * 32) {
            float all = 0;
            for (int k = 0; k < WARPS; k++) all += parts[k][i];
            give(p.g, matrix, row + i / width, first + i % width, all);
        }
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

/* As many warps for a column as find work; the smallest power of two. */
static int split_columns(int64_t K, int some)
{
    int split = 1;
    while (split < WARPS && split * 32 * some < K) split *= 2;
    return split;
}

/* Lanes for a row: as few as it takes to have enough blocks, and two, for 32 bytes in a row. */
static int split_rows(int64_t N, int64_t batch, int some)
{
    int split = MOST_LANES;
    while (split > 2 && batch * dra_div_up(N, split * some) < BLOCKS) split /= 2;
    return split;
}

template <typename Stored, bool BF16, int ROWS, bool COLUMNWISE>
static void launch_rows(const dra_call *c, small_product p)
{
    const dra_cuda_gemm &g = p.g;
    p.split = COLUMNWISE ? split_columns(g.K, Stored::SOME)
                         : split_rows(g.N, g.batch, Stored::SOME);
    const int64_t width = COLUMNWISE ? WARPS / p.split * COLUMNS : p.split * Stored::SOME;
    const dim3    grid((unsigned)dra_div_up(g.N, width),
                       (unsigned)dra_imin(dra_div_up(g.M, (int64_t)ROWS), 65535),
                       (unsigned)dra_imin(g.batch, 65535));
    if constexpr (COLUMNWISE)
        DRA_LAUNCH(c, (columns_kernel<Stored, BF16, ROWS>), grid, WARPS * 32, 0, p);
    else
        DRA_LAUNCH(c, (rows_kernel<Stored, BF16, ROWS>), grid, WARPS * 32, 0, p);
}

template <typename Stored, bool BF16, bool COLUMNWISE>
static void launch_precise(const dra_call *c, const small_product &p)
{
    if (p.g.M == 1)
        launch_rows<Stored, BF16, 1, COLUMNWISE>(c, p);
    else if (p.g.M <= MOST_ROWS / 2)
        launch_rows<Stored, BF16, MOST_ROWS / 2, COLUMNWISE>(c, p);
    else
        launch_rows<Stored, BF16, MOST_ROWS, COLUMNWISE>(c, p);
}

/* COLUMNWISE: columns of b are adjacent in memory. */
template <typename Stored, bool COLUMNWISE>
static void launch_stored(const dra_call *c, const small_product &p)
{
    if (p.g.precision == DRA_PRECISION_BF16)
        launch_precise<Stored, true, COLUMNWISE>(c, p);
    else
        launch_precise<Stored, false, COLUMNWISE>(c, p);
}

/* Quantised b; columns: its columns are adjacent in memory. */
void dra_cuda_gemm_small_quant(const dra_call *c, const small_product &p, bool columns);

#endif
