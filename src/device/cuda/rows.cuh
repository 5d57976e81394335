/* For kernels that work on whole rows of the last axis. A row is the work of a team of threads: a
 * warp where rows are short, so that nobody waits for a block, and a block where they are long.
 * Each thread keeps its elements of the row in registers where they fit, so that memory is read
 * once; of longer rows they are read again. */
#ifndef DRA_SRC_DEVICE_CUDA_ROWS_CUH
#define DRA_SRC_DEVICE_CUDA_ROWS_CUH

#include "device/cuda/cuda.cuh"

#ifdef __CUDACC__
#define DRA_PRAGMA(text) _Pragma(#text)
#define DRA_UNROLL_BY(n) DRA_PRAGMA(unroll n)
#define DRA_UNROLL DRA_PRAGMA(unroll)
#else
#define DRA_UNROLL_BY(n)
#define DRA_UNROLL
#endif

/* ---- states of several words among the lanes of a warp --------------------------------------- */

/* x with `exchange` applied to each of its words. */
template <typename T, typename F> __device__ static inline T dra_by_words(T x, F exchange)
{
    uint32_t word[sizeof(T) / 4];
    memcpy(word, &x, sizeof x);
    DRA_UNROLL
    for (unsigned i = 0; i < sizeof(T) / 4; i++) word[i] = exchange(word[i]);
    memcpy(&x, word, sizeof x);
    return x;
}

template <typename T> __device__ static inline T dra_shuffle_xor(T x, int by)
{
    return dra_by_words(x, [=](uint32_t w) { return __shfl_xor_sync(~0u, w, by); });
}

template <typename T> __device__ static inline T dra_shuffle_up(T x, int by)
{
    return dra_by_words(x, [=](uint32_t w) { return __shfl_up_sync(~0u, w, by); });
}

template <typename T> __device__ static inline T dra_shuffle_from(T x, int lane)
{
    return dra_by_words(x, [=](uint32_t w) { return __shfl_sync(~0u, w, lane); });
}

/* ---- teams ----------------------------------------------------------------------------------- */

struct dra_join_least {
    static __device__ int64_t none() { return INT64_MAX; }
    static __device__ int64_t join(int64_t a, int64_t b) { return a < b ? a : b; }
};

template <typename How, typename T> __device__ static inline T dra_warp_join_of(T x)
{
    for (int by = 16; by; by /= 2) x = How::join(x, dra_shuffle_xor(x, by));
    return x;
}

struct dra_warp_team {
    enum { SIZE = 32 };
    static __device__ int rank() { return (int)(threadIdx.x % 32); }
    static __device__ int teams() { return (int)(blockDim.x / 32); } /* of the block */
    static __device__ int team() { return (int)(threadIdx.x / 32); }
    /* The same for all threads of the team, in an order fixed by their number. */
    template <typename How, typename T> static __device__ T join(T x)
    {
        return dra_warp_join_of<How>(x);
    }
};

template <int THREADS> struct dra_block_team {
    enum { SIZE = THREADS };
    static __device__ int                                   rank() { return (int)threadIdx.x; }
    static __device__ int                                   teams() { return 1; }
    static __device__ int                                   team() { return 0; }
    template <typename How, typename T> static __device__ T join(T x)
    {
        __shared__ T   part[32];
        const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        x = dra_warp_join_of<How>(x);
        __syncthreads(); /* part may still be read from before */
        if (lane == 0) part[warp] = x;
        __syncthreads();
        return dra_warp_join_of<How>(lane < THREADS / 32 ? part[lane] : How::none());
    }
};

template <typename Team> __device__ static inline float dra_team_sum(float x)
{
    return Team::template join<dra_join_sum>(x);
}
template <typename Team> __device__ static inline float dra_team_max(float x)
{
    return Team::template join<dra_join_max>(x);
}

/* for (int64_t row : rows of this team) */
#define DRA_EACH_ROW(Team, row, rows)                                                              \
    for (int64_t row = (int64_t)blockIdx.x * Team::teams() + Team::team(); row < (rows);           \
         row += (int64_t)gridDim.x * Team::teams())

/* ---- elements of a row ----------------------------------------------------------------------- */

template <int W> __device__ static inline void dra_load_some(const float *from, float *to)
{
    if (W == 4) {
        const float4 v = *reinterpret_cast<const float4 *>(from);
        to[0] = v.x, to[W / 2 - (W > 2)] = v.y, to[W / 2] = v.z, to[W - 1] = v.w;
    } else {
        to[0] = *from;
    }
}

template <int W> __device__ static inline void dra_store_some(float *to, const float *v)
{
    if (W == 4)
        *reinterpret_cast<float4 *>(to) = make_float4(v[0], v[W / 2 - (W > 2)], v[W / 2], v[W - 1]);
    else
        *to = v[0];
}

template <int W> __device__ static inline void dra_load_some(const uint16_t *from, float *to)
{
    if (W == 8) {
        const uint4    v = *reinterpret_cast<const uint4 *>(from);
        const unsigned word[4] = {v.x, v.y, v.z, v.w};
        DRA_UNROLL
        for (int i = 0; i < W; i++) to[i] = dra_widen_bf16((uint16_t)(word[i / 2] >> i % 2 * 16));
    } else if (W == 4) {
        const uint2 v = *reinterpret_cast<const uint2 *>(from);
        to[0] = dra_widen_bf16((uint16_t)v.x);
        to[W / 2 - (W > 2)] = dra_widen_bf16((uint16_t)(v.x >> 16));
        to[W / 2] = dra_widen_bf16((uint16_t)v.y);
        to[W - 1] = dra_widen_bf16((uint16_t)(v.y >> 16));
    } else {
        to[0] = dra_widen_bf16(*from);
    }
}

/* The row x of n elements. W: neighbours that a thread takes at once, 1, 4 or, in bf16, 8. HELD: how many
 * elements of a thread are in registers; 0: none. From: as they are stored, uint16_t: in bf16. */
template <typename Team, int W, int HELD, typename From = float> struct dra_team_row {
    enum { AHEAD = 4 }; /* of a row that is not held: loads that are under way */
    const From *x;
    int64_t     n;
    float       held[HELD ? HELD : 1];

    __device__ void open(const From *from, int64_t length)
    {
        x = from;
        n = length;
        DRA_UNROLL
        for (int k = 0; k < HELD / W; k++)
            if (at(k) < (int)n) dra_load_some<W>(x + at(k), held + k * W);
    }

    static __device__ int at(int k) { return (k * Team::SIZE + Team::rank()) * W; }

    /* f(i, v) for elements v[0] .. v[W-1], from number i on, and for all of this thread's. What f
     * writes to v stays there, if it is held. */
    template <typename F> __device__ void each(F f)
    {
        if constexpr (HELD > 0) {
            DRA_UNROLL
            for (int k = 0; k < HELD / W; k++)
                if (at(k) < (int)n) f(at(k), held + k * W);
        } else {
            int64_t i = at(0);
            for (; i + (AHEAD - 1) * Team::SIZE * W < n; i += AHEAD * Team::SIZE * W) {
                float v[AHEAD][W]; /* f may write to the row, so all are loaded before */
                DRA_UNROLL
                for (int k = 0; k < AHEAD; k++) dra_load_some<W>(x + i + k * Team::SIZE * W, v[k]);
                DRA_UNROLL
                for (int k = 0; k < AHEAD; k++) f(i + k * Team::SIZE * W, v[k]);
            }
            for (; i < n; i += Team::SIZE * W) {
                float v[W];
                dra_load_some<W>(x + i, v);
                f(i, v);
            }
        }
    }

    /* The element at one place. */
    __device__ float pick(int64_t i) const
    {
        float v[1];
        dra_load_some<1>(x + i, v);
        return v[0];
    }

    /* each() with another row: f(i, v, w). */
    template <typename F> __device__ void each_with(dra_team_row &other, F f)
    {
        if constexpr (HELD > 0) {
            DRA_UNROLL
            for (int k = 0; k < HELD / W; k++)
                if (at(k) < (int)n) f(at(k), held + k * W, other.held + k * W);
        } else {
            DRA_UNROLL_BY(4)
            for (int64_t i = at(0); i < n; i += Team::SIZE * W) {
                float v[W], w[W];
                dra_load_some<W>(x + i, v);
                dra_load_some<W>(other.x + i, w);
                f(i, v, w);
            }
        }
    }
};

/* ---- launches -------------------------------------------------------------------------------- */

/* Elements that a thread holds: where rows are short few, for more warps at a time. The host has
 * fewer, so that the small tensors of tests meet every case. */
#ifdef __CUDACC__
enum { DRA_HELD_FEW = 8, DRA_HELD_MANY = 32, DRA_LONG_THREADS = 512 };
#else
enum { DRA_HELD_FEW = 4, DRA_HELD_MANY = 8, DRA_LONG_THREADS = 64 };
#endif

/* Whether rows of t can be read and written four elements at a time. */
static inline bool dra_rows_by_four(const dra_tensor *t)
{
    bool fit = t->data && (uintptr_t)t->data % 16 == 0 && dra_last(t) % 4 == 0;
    for (int32_t i = 0; i + 1 < t->shape.rank; i++) fit = fit && t->stride[i] % 4 == 0;
    return fit;
}

/* Launches kernel<Team, W, HELD> over `rows` rows of n elements; by_four: W is 4. */
#define DRA_LAUNCH_ROWS(c, kernel, rows, n, by_four, ...)                                          \
    do {                                                                                           \
        if ((n) <= 32 * DRA_HELD_FEW)                                                              \
            DRA_LAUNCH_TEAM(c, kernel, dra_warp_team, DRA_HELD_FEW, rows, by_four, DRA_THREADS,    \
                            DRA_THREADS / 32, __VA_ARGS__);                                        \
        else if ((n) <= 32 * DRA_HELD_MANY)                                                        \
            DRA_LAUNCH_TEAM(c, kernel, dra_warp_team, DRA_HELD_MANY, rows, by_four, DRA_THREADS,   \
                            DRA_THREADS / 32, __VA_ARGS__);                                        \
        else if ((n) <= DRA_THREADS * DRA_HELD_MANY)                                               \
            DRA_LAUNCH_TEAM(c, kernel, dra_block_team<DRA_THREADS>, DRA_HELD_MANY, rows, by_four,  \
                            DRA_THREADS, 1, __VA_ARGS__);                                          \
        else                                                                                       \
            DRA_LAUNCH_TEAM(c, kernel, dra_block_team<DRA_LONG_THREADS>, 0, rows, by_four,         \
                            DRA_LONG_THREADS, 1, __VA_ARGS__);                                     \
    } while (0)

#define DRA_LAUNCH_TEAM(c, kernel, Team, HELD, rows, by_four, threads, each, ...)                  \
    do {                                                                                           \
        if (by_four)                                                                               \
            DRA_LAUNCH(c, (kernel<Team, 4, HELD>), dra_grid(c, rows, each), threads, 0,            \
                       __VA_ARGS__);                                                               \
        else                                                                                       \
            DRA_LAUNCH(c, (kernel<Team, 1, HELD>), dra_grid(c, rows, each), threads, 0,            \
                       __VA_ARGS__);                                                               \
    } while (0)

/* ---- sums of e^x ----------------------------------------------------------------------------- */

__device__ static inline float dra_fast_exp2(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* e^x. Of numbers that are stored in bf16 as fast as can be: they are no more exact than that. */
template <typename From> __device__ static inline float dra_exp_of(float x)
{
    return sizeof(From) == 2 ? dra_fast_exp2(x * 1.44269504088896341f) : expf(x);
}

struct dra_exp_sum {
    float max, sum; /* sum e^(x - max); 0 where all are -inf; NaN if one is NaN or +inf */
};

/* e^(x - max) of W elements added to s, which is rescaled where the maximum grows. */
template <int W, typename From>
__device__ static inline void dra_exp_take(dra_exp_sum &s, const float *v)
{
    float top = s.max;
    DRA_UNROLL
    for (int j = 0; j < W; j++) top = dra_join_max::join(top, v[j]);
    if (top == -INFINITY) return;
    if (top != s.max) s.sum *= dra_exp_of<From>(s.max - top);
    s.max = top;
    DRA_UNROLL
    for (int j = 0; j < W; j++) s.sum += dra_exp_of<From>(v[j] - top);
}

/* Of a whole row, for all threads of the team; one pass where it is not held. */
template <typename Team, int W, int HELD, typename From>
__device__ static inline dra_exp_sum dra_row_exp_sum(dra_team_row<Team, W, HELD, From> &row)
{
    dra_exp_sum own = {-INFINITY, 0};
    if (HELD)
        row.each([&](int64_t, const float *v) {
            for (int j = 0; j < W; j++) own.max = dra_join_max::join(own.max, v[j]);
        });
    else
        row.each([&](int64_t, const float *v) { dra_exp_take<W, From>(own, v); });
    const float max = dra_team_max<Team>(own.max), shift = max == -INFINITY ? 0 : max;
    if (HELD)
        row.each([&](int64_t, const float *v) {
            for (int j = 0; j < W; j++) own.sum += dra_exp_of<From>(v[j] - shift);
        });
    else
        own.sum *= dra_exp_of<From>(own.max - shift);
    return {max, dra_team_sum<Team>(own.sum)};
}

#endif
