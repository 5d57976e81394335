/* A tile of pairs, rows times columns, in the registers of a block of threads: what the f32 kernels
 * of attention are made of. Forward and for dq rows are queries and columns are keys; for dk and dv
 * it is the other way round.
 *
 * Thread (y, x) of RT x CT has rows y RM .. y RM + RM-1 and columns x CM .. x CM + CM-1. All
 * threads of a row of the tile are in one warp, so what they tell each other needs no wait of the
 * block. */
#ifndef DRA_SRC_OPS_ATTENTION_ATTEND_TILE_CUH
#define DRA_SRC_OPS_ATTENTION_ATTEND_TILE_CUH

#include "ops/attention/attend.cuh"

/* The host has few threads, which are slow there, and narrow tiles, so that the small tensors of
 * tests have several. */
#ifdef __CUDACC__
enum { DRA_ATTEND_RT = 16, DRA_ATTEND_CT = 16, DRA_ATTEND_NARROW = 64, DRA_ATTEND_WIDE = 128 };
#else
enum { DRA_ATTEND_RT = 4, DRA_ATTEND_CT = 4, DRA_ATTEND_NARROW = 16, DRA_ATTEND_WIDE = 32 };
#endif
enum {
    DRA_ATTEND_CM = 4,
    DRA_ATTEND_COLS = DRA_ATTEND_CM * DRA_ATTEND_CT,
    DRA_ATTEND_THREADS = DRA_ATTEND_RT * DRA_ATTEND_CT,
    DRA_ATTEND_P_STEP = DRA_ATTEND_COLS + 4 /* of a row of weights in shared memory */
};

/* W: width of a piece of the vectors that products are over, and of results. A row in shared
 * memory has 4 numbers more, so that 8 neighbours fall into all banks. */
template <int RM_, int W_> struct dra_attend_tile {
    enum {
        RM = RM_,
        W = W_,
        ROWS = RM * DRA_ATTEND_RT,
        STEP = W + 4,
        WM = W / DRA_ATTEND_CT, /* columns of a result that a thread has */
        P = ROWS * DRA_ATTEND_P_STEP,
        /* blocks that a processor has shared memory for, and should have registers for */
        RESIDENT = W > DRA_ATTEND_NARROW ? 1
                   : RM > 1              ? 2
                                         : 3
    };
};

__device__ static inline int dra_attend_y(void) { return (int)threadIdx.x / DRA_ATTEND_CT; }
__device__ static inline int dra_attend_x(void) { return (int)threadIdx.x % DRA_ATTEND_CT; }

/* Where column c of a tile is stored: those that neighbours read at a time are neighbours. */
__device__ static inline int dra_attend_place(int c)
{
    return c % DRA_ATTEND_CM * DRA_ATTEND_CT + c / DRA_ATTEND_CM;
}

/* Over all threads that have the same rows. */
template <typename How> __device__ static inline float dra_attend_row_join(float x)
{
    for (int by = DRA_ATTEND_CT / 2; by; by /= 2) x = How::join(x, __shfl_xor_sync(~0u, x, by));
    return x;
}

/* ---- loads ----------------------------------------------------------------------------------- */

__device__ static inline float dra_attend_widen(float x) { return x; }
__device__ static inline float dra_attend_widen(uint16_t x) { return dra_widen_bf16(x); }

__device__ static inline float4 dra_attend_four(const float *x)
{
    return *reinterpret_cast<const float4 *>(x);
}
__device__ static inline float4 dra_attend_four(const uint16_t *x)
{
    const uint2 v = *reinterpret_cast<const uint2 *>(x);
    return make_float4(dra_widen_bf16((uint16_t)v.x), dra_widen_bf16((uint16_t)(v.x >> 16)),
                       dra_widen_bf16((uint16_t)v.y), dra_widen_bf16((uint16_t)(v.y >> 16)));
}

/* Up to four numbers of a row; those from n on are zeros. */
template <typename T>
__device__ static inline float4 dra_attend_some(const void *row, int n, bool by_four, int64_t step)
{
    const T *from = static_cast<const T *>(row);
    if (by_four) return dra_attend_four(from);
    float4 x = make_float4(dra_attend_widen(from[0]), 0, 0, 0);
    if (n > 1) x.y = dra_attend_widen(from[step]);
    if (n > 2) x.z = dra_attend_widen(from[2 * step]);
    if (n > 3) x.w = dra_attend_widen(from[3 * step]);
    return x;
}

/* to (N, W + 4) = the first `width` numbers of N rows, as many more zeros as make it a multiple of
 * 4. row(r, c): where column c of row r is, or NULL: zeros. step: between neighbours of a row. */
template <int N, int W, bool PLACED, typename F>
__device__ static inline void dra_attend_load(float *to, int width, bool bf16, bool by_four,
                                              int64_t step, F row)
{
    DRA_UNROLL
    for (int i = (int)threadIdx.x; i < N * (W / 4); i += DRA_ATTEND_THREADS) {
        const int   r = i / (W / 4), c = i % (W / 4) * 4;
        const void *from = c < width ? row(r, c) : nullptr;
        float4      x = make_float4(0, 0, 0, 0);
        if (from && bf16)
            x = dra_attend_some<uint16_t>(from, width - c, by_four, step);
        else if (from)
            x = dra_attend_some<float>(from, width - c, by_four, step);
        float *at = to + (PLACED ? dra_attend_place(r) : r) * (W + 4) + c;
        if (c < width) *reinterpret_cast<float4 *>(at) = x;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* s += a b^T over `width` numbers, in their order: a (ROWS, W), b (COLS, W) by place. */
template <int RM, int W>
__device__ static inline void dra_attend_dots(float (&s)[RM][DRA_ATTEND_CM], const float *a,
                                              const float *b, int width)
{
    a += dra_attend_y() * RM * (W + 4);
    b += dra_attend_x() * (W + 4);
    DRA_UNROLL_BY(2)
    for (int d = 0; d < width; d += 4) {
        float4 y[DRA_ATTEND_CM];
        DRA_UNROLL
        for (int j = 0; j < DRA_ATTEND_CM; j++)
            y[j] = *reinterpret_cast<const float4 *>(b + j * DRA_ATTEND_CT * (W + 4) + d);
        DRA_UNROLL
        for (int i = 0; i < RM; i++) {
            const float4 x = *reinterpret_cast<const float4 *>(a + i * (W + 4) + d);
            DRA_UNROLL
            for (int j = 0; j < DRA_ATTEND_CM; j++)
                s[i][j] = fmaf(x.w, y[j].w,
                               fmaf(x.z, y[j].z, fmaf(x.y, y[j].y, fmaf(x.x, y[j].x, s[i][j]))));
        }
    }
}

/* y += p x over all columns of the tile, in their order: p (ROWS, COLS), x (COLS, W). The thread's
 * columns of y: 4 from 4 (m CT + x) on, for each m. */
template <int RM, int W, bool PLACED>
__device__ static inline void dra_attend_times(float (&y)[RM][W / DRA_ATTEND_CT], const float *p,
                                               const float *x)
{
    enum { WM = W / DRA_ATTEND_CT };
    p += dra_attend_y() * RM * DRA_ATTEND_P_STEP;
    x += dra_attend_x() * 4;
    for (int c = 0; c < DRA_ATTEND_COLS; c += 4) {
        float p4[RM][4];
        DRA_UNROLL
        for (int i = 0; i < RM; i++) dra_load_some<4>(p + i * DRA_ATTEND_P_STEP + c, p4[i]);
        DRA_UNROLL
        for (int u = 0; u < 4; u++) {
            const int row = PLACED ? dra_attend_place(c + u) : c + u;
            float     v[WM];
            DRA_UNROLL
            for (int m = 0; m < WM; m += 4)
                dra_load_some<4>(x + row * (W + 4) + m * DRA_ATTEND_CT, v + m);
            DRA_UNROLL
            for (int i = 0; i < RM; i++) {
                DRA_UNROLL
                for (int m = 0; m < WM; m++) y[i][m] = fmaf(p4[i][u], v[m], y[i][m]);
            }
        }
    }
}

/* The number of column m of a thread's. */
__device__ static inline int dra_attend_result_column(int m)
{
    return m / 4 * 4 * DRA_ATTEND_CT + dra_attend_x() * 4 + m % 4;
}

/* Puts the thread's rows of a tile of weights where dra_attend_times() reads them. */
template <int RM>
__device__ static inline void dra_attend_put(float *p, const float (&s)[RM][DRA_ATTEND_CM])
{
    DRA_UNROLL
    for (int i = 0; i < RM; i++)
        dra_store_some<4>(p + (dra_attend_y() * RM + i) * DRA_ATTEND_P_STEP + 4 * dra_attend_x(),
                          s[i]);
}

/* A thread's columns of a row of a result, of `width` numbers from `first` on. */
template <int WM>
__device__ static inline void dra_attend_store(float *row, int first, int width, const float *y)
{
    DRA_UNROLL
    for (int m = 0; m < WM; m += 4) {
        const int c = first + dra_attend_result_column(m);
        if (width % 4 == 0 && c < width) {
            dra_store_some<4>(row + c, y + m);
            continue;
        }
        for (int u = 0; u < 4; u++)
            if (c + u < width) row[c + u] = y[m + u];
    }
}

/* ---- an operand of products: rows of a tensor, in pieces ------------------------------------- */

/* N rows of up to W numbers in shared memory, of vectors that are `width` long. Where that is one
 * piece it is loaded once, by open(), and stays. */
template <int N, int W, bool PLACED, typename Rows = dra_attend_rows> struct dra_attend_operand {
    float  *room; /* (N, W + 4) */
    Rows    row;
    int     width;
    bool    by_four;
    int64_t step;

    __device__ int  piece(int d0) const { return (int)dra_imin(W, width - d0); }
    __device__ bool whole() const { return width <= W; }
    __device__ void load(int d0) const
    {
        dra_attend_load<N, W, PLACED>(room, piece(d0), row.bf16, by_four, step,
                                      [&](int r, int c) { return row(r, (d0 + c) * step); });
    }
    __device__ void open() const
    {
        if (whole()) load(0);
    }
};

/* s += a b^T, piece by piece; the room of b is free when all threads come, that of a holds its
 * whole vectors, if they fit. All threads are through with neither when it returns. */
template <int RM, int W, typename A, typename B>
__device__ static inline void dra_attend_product(float (&s)[RM][DRA_ATTEND_CM], const A &a,
                                                 const B &b)
{
    int d0 = 0;
    do {
        if (d0) __syncthreads();
        if (!a.whole()) a.load(d0);
        b.load(d0);
        __syncthreads();
        dra_attend_dots<RM, W>(s, a.room, b.room, a.piece(d0));
        d0 += W;
    } while (d0 < a.width);
}

#endif
