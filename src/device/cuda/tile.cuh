/* Tiles: matrices of DRA_TILE rows and columns in shared memory and in registers, and their
 * products. A block has DRA_TILE_THREADS threads. Tiles are always filled, with zeros around what
 * they hold. */
#ifndef DRA_SRC_DEVICE_CUDA_TILE_CUH
#define DRA_SRC_DEVICE_CUDA_TILE_CUH

#include "device/cuda/rows.cuh"

#ifdef __CUDACC__
enum { DRA_TILE_THREADS = 256 };
#else
enum { DRA_TILE_THREADS = DRA_THREADS };
#endif

/* Rows of a tile are 4 numbers further apart than they are long: 8 rows meet all banks. */
enum { DRA_TILE = DRA_CHUNK, DRA_TILE_ROW = DRA_TILE + 4, DRA_TILE_SIZE = DRA_TILE * DRA_TILE_ROW };
enum { DRA_TILE_HELD = DRA_TILE * DRA_TILE / DRA_TILE_THREADS }; /* numbers of a thread */

__host__ __device__ static inline int dra_tiles(int n) { return (n + DRA_TILE - 1) / DRA_TILE; }

/* Columns of the tile from number `first` on, of n. */
__device__ static inline int dra_tile_width(int n, int first)
{
    return n - first < DRA_TILE ? n - first : (int)DRA_TILE;
}

/* Launches kernel with `tiles` tiles of shared memory. */
#define DRA_LAUNCH_TILES(c, kernel, blocks, tiles, ...)                                            \
    do {                                                                                           \
        const int dra_tile_bytes = (tiles)*DRA_TILE_SIZE * (int)sizeof(float);                     \
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dra_tile_bytes); \
        DRA_LAUNCH(c, kernel, (unsigned)(blocks), DRA_TILE_THREADS, dra_tile_bytes, __VA_ARGS__);  \
    } while (0)

/* ---- tiles ----------------------------------------------------------------------------------- */

struct dra_tile_source { /* of `rows` rows of `columns` numbers, a part that fits into a tile */
    const float *at;
    int64_t      row; /* from one to the next */
    int          rows, columns;
    bool         by_four; /* on 16 bytes, rows and columns multiples of 4 */
};

/* On the way to a tile: what a thread has of it. */
struct dra_tile_held {
    float v[DRA_TILE_HELD];

    static __device__ int row(int k) { return (k * DRA_TILE_THREADS + (int)threadIdx.x) / 16; }
    static __device__ int column() { return (int)threadIdx.x % 16 * 4; }

    __device__ void fetch(const dra_tile_source &from)
    {
        const int c = column();
        DRA_UNROLL
        for (int k = 0; k < DRA_TILE_HELD / 4; k++) {
            const int    r = row(k), left = r < from.rows ? from.columns - c : 0;
            const float *at = from.at + r * from.row + c;
            if (from.by_four && left > 0)
                dra_load_some<4>(at, v + 4 * k);
            else
                for (int j = 0; j < 4; j++) v[4 * k + j] = j < left ? at[j] : 0;
        }
    }

    /* Row r times factor[r]; 0 where that is 0, be the row NaN. */
    __device__ void put(const float *factor, float *tile) const
    {
        DRA_UNROLL
        for (int k = 0; k < DRA_TILE_HELD / 4; k++) {
            const float f = factor[row(k)];
            float       x[4];
            DRA_UNROLL
            for (int j = 0; j < 4; j++) x[j] = f != 0 ? f * v[4 * k + j] : 0;
            dra_store_some<4>(tile + row(k) * DRA_TILE_ROW + column(), x);
        }
    }

    __device__ void put(float *tile) const
    {
        DRA_UNROLL
        for (int k = 0; k < DRA_TILE_HELD / 4; k++)
            dra_store_some<4>(tile + row(k) * DRA_TILE_ROW + column(), v + 4 * k);
    }
};

/* tile = the rows, each times its factor if that is there; zeros around them. */
__device__ static inline void dra_tile_load(float *tile, const dra_tile_source &from,
                                            const float *factor = nullptr)
{
    dra_tile_held held;
    held.fetch(from);
    if (factor)
        held.put(factor, tile);
    else
        held.put(tile);
}

/* The first rows and columns of a tile, to rows that are `row` apart. */
__device__ static inline void dra_tile_store(const float *tile, int rows, int columns, float *to,
                                             int64_t row)
{
    for (int i = (int)threadIdx.x; i < rows * DRA_TILE; i += DRA_TILE_THREADS) {
        const int r = i / DRA_TILE, c = i % DRA_TILE;
        if (c < columns) to[r * row + c] = tile[r * DRA_TILE_ROW + c];
    }
}

/* to[r] += sign a_r.b_r for rows r < n of width W; rows of a tile and of b, which are b_row apart.
 * Four lanes take a row. */
__device__ static inline void dra_tile_dots(int n, int W, float sign, const float *a,
                                            const float *b, int b_row, float *to)
{
    const int part = (int)threadIdx.x % 4;
    for (int first = 0; first < DRA_TILE; first += DRA_TILE_THREADS / 4) {
        const int r = first + (int)threadIdx.x / 4;
        float     sum = 0;
        for (int c = part; c < W && r < n; c += 4)
            sum += a[r * DRA_TILE_ROW + c] * b[r * b_row + c];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (part == 0 && r < n) to[r] += sign * sum;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

enum dra_tile_product {
    DRA_AB,  /* sum_k a[i][k] b[k][j] */
    DRA_ABT, /* sum_k a[i][k] b[j][k] */
    DRA_ATB  /* sum_k a[k][i] b[k][j] */
};

template <dra_tile_product HOW>
__device__ static inline float dra_tile_a(const float *a, int i, int k)
{
    return HOW == DRA_ATB ? a[k * DRA_TILE_ROW + i] : a[i * DRA_TILE_ROW + k];
}

template <dra_tile_product HOW>
__device__ static inline float dra_tile_b(const float *b, int k, int j)
{
    return HOW == DRA_ABT ? b[j * DRA_TILE_ROW + k] : b[k * DRA_TILE_ROW + j];
}

#ifdef __CUDACC__
enum { DRA_TILE_GROUPS = 4 };
#else
enum { DRA_TILE_GROUPS = 8 };
#endif

/* A tile in registers. On the GPU a warp has 32 rows and 16 columns, in parts (2, 2) of 16 rows and
 * 8 columns, of which a lane has columns 2 (lane % 4) and the next, of rows lane / 4 and lane / 4 +
 * 8: what its tensor cores give. On the host a thread has a square. */
struct dra_tile_sums {
    float v[DRA_TILE_HELD];

#ifdef __CUDACC__
    static __device__ int first_row() { return (int)(threadIdx.x / 32 % 2 * 32); }
    static __device__ int first_column() { return (int)(threadIdx.x / 64 * 16); }
    static __device__ int row(int k)
    {
        return first_row() + k / 8 * 16 + k % 4 / 2 * 8 + (int)(threadIdx.x % 32 / 4);
    }
    static __device__ int column(int k)
    {
        return first_column() + k / 4 % 2 * 8 + (int)(threadIdx.x % 4 * 2) + k % 2;
    }
#else
    static int row(int k) { return (int)threadIdx.x / 8 * 8 + k / 8; }
    static int column(int k) { return (int)threadIdx.x % 8 * 8 + k % 8; }
#endif

    __device__ void clear()
    {
        DRA_UNROLL
        for (int k = 0; k < DRA_TILE_HELD; k++) v[k] = 0;
    }

    /* f(i, j, number) for each number of this thread. */
    template <typename F> __device__ void each(F f)
    {
        DRA_UNROLL
        for (int k = 0; k < DRA_TILE_HELD; k++) f(row(k), column(k), v[k]);
    }

    /* Adds (M, N) numbers of a product over K. Tiles hold zeros where K ends inside 8. */
    template <dra_tile_product HOW>
    __device__ void add(int M, int N, int K, const float *a, const float *b);

    /* part[i][r] = the part of row r times row r of a tile that is in the i-th of DRA_TILE_GROUPS
     * groups of columns. */
    __device__ void dots(const float *b, float *part) const;
};

#ifdef __CUDACC__

/* x = hi + lo, both with the 11 bits that a factor of the tensor cores has; what is left is below
 * 2^-22 x. Infinity becomes NaN. */
struct dra_tf32 {
    uint32_t hi, lo;
};

__device__ static inline dra_tf32 dra_split(float x)
{
    const uint32_t hi = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    return {hi, __float_as_uint(x - __uint_as_float(hi)) + 0x1000u};
}

/* c (16, 8) += a (16, 8) b (8, 8) of a warp. */
__device__ static inline void dra_mma(float *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Eight steps k of a product. One of floats is three of the tensor cores: hi lo + lo hi + hi hi. */
template <dra_tile_product HOW>
__device__ static inline void dra_tile_steps(int k, const float *a, const float *b, float *sum)
{
    const int i = dra_tile_sums::first_row() + (int)(threadIdx.x % 32 / 4);
    const int j = dra_tile_sums::first_column() + (int)(threadIdx.x % 32 / 4);
    uint32_t  a_hi[2][4], a_lo[2][4], b_hi[2][2], b_lo[2][2];
    k += (int)threadIdx.x % 4;
    DRA_UNROLL
    for (int x = 0; x < 8; x++) {
        const dra_tf32 s = dra_split(
            dra_tile_a<HOW>(a, i + x / 4 * 16 + x % 2 * 8, k + x % 4 / 2 * 4));
        a_hi[x / 4][x % 4] = s.hi, a_lo[x / 4][x % 4] = s.lo;
    }
    DRA_UNROLL
    for (int x = 0; x < 4; x++) {
        const dra_tf32 s = dra_split(dra_tile_b<HOW>(b, k + x % 2 * 4, j + x / 2 * 8));
        b_hi[x / 2][x % 2] = s.hi, b_lo[x / 2][x % 2] = s.lo;
    }
    DRA_UNROLL
    for (int x = 0; x < 4; x++) {
        dra_mma(sum + 4 * x, a_hi[x / 2], b_lo[x % 2]);
        dra_mma(sum + 4 * x, a_lo[x / 2], b_hi[x % 2]);
        dra_mma(sum + 4 * x, a_hi[x / 2], b_hi[x % 2]);
    }
}

/* Tensor cores add by cutting digits off: each product has sums of its own, added once. */
template <dra_tile_product HOW>
__device__ inline void dra_tile_sums::add(int M, int N, int K, const float *a, const float *b)
{
    float sum[DRA_TILE_HELD] = {};
    if (first_row() >= M || first_column() >= N) return;
    DRA_UNROLL_BY(2)
    for (int k = 0; k < K; k += 8) dra_tile_steps<HOW>(k, a, b, sum);
    DRA_UNROLL
    for (int x = 0; x < DRA_TILE_HELD; x++) v[x] += sum[x];
}

__device__ inline void dra_tile_sums::dots(const float *b, float *part) const
{
    float sum[4] = {};
    DRA_UNROLL
    for (int k = 0; k < DRA_TILE_HELD; k++)
        sum[k / 8 * 2 + k % 4 / 2] += v[k] * b[row(k) * DRA_TILE_ROW + column(k)];
    DRA_UNROLL
    for (int k = 0; k < 4; k++) {
        sum[k] += __shfl_xor_sync(~0u, sum[k], 1);
        sum[k] += __shfl_xor_sync(~0u, sum[k], 2);
        if (threadIdx.x % 4 == 0) part[threadIdx.x / 64 * DRA_TILE + row(0) + k * 8] = sum[k];
    }
}

#else

template <dra_tile_product HOW>
void dra_tile_sums::add(int M, int N, int K, const float *a, const float *b)
{
    for (int x = 0; x < DRA_TILE_HELD; x++) {
        float sum = 0;
        if (row(x) >= M || column(x) >= N) continue;
        for (int k = 0; k < K; k++)
            sum += dra_tile_a<HOW>(a, row(x), k) * dra_tile_b<HOW>(b, k, column(x));
        v[x] += sum;
    }
}

inline void dra_tile_sums::dots(const float *b, float *part) const
{
    for (int r = 0; r < 8; r++) {
        float sum = 0;
        for (int x = 8 * r; x < 8 * r + 8; x++) sum += v[x] * b[row(x) * DRA_TILE_ROW + column(x)];
        part[threadIdx.x % 8 * DRA_TILE + row(8 * r)] = sum;
    }
}

#endif

/* to[r] += sign (row r of sum).(row r of a tile); part has DRA_TILE_GROUPS rows. All wait. */
__device__ static inline void dra_tile_add_dots(dra_tile_sums &sum, const float *b, float sign,
                                                float *part, float *to)
{
    sum.dots(b, part);
    __syncthreads();
    for (int r = (int)threadIdx.x; r < DRA_TILE; r += DRA_TILE_THREADS) {
        float all = 0;
        for (int i = 0; i < DRA_TILE_GROUPS; i++) all += part[i * DRA_TILE + r];
        to[r] += sign * all;
    }
    __syncthreads();
}

#endif
