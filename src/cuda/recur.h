/* What recurrences over time share on the GPU. A thread has one channel of one row of the batch and
 * walks over time with its state in registers, a run of DRA_RUN tokens after the other; neighbours
 * have neighbouring channels. There may be few threads, so nothing waits for memory: what a token
 * reads is loaded into the registers of the token DRA_RUN steps before it, as soon as that is done.
 *
 * A result depends on its channel alone and not on how a sequence is cut: products and sums are put
 * together by fmaf() alone. */
#ifndef DRA_SRC_CUDA_RECUR_H
#define DRA_SRC_CUDA_RECUR_H

#include "cuda/reduce.h"

enum { DRA_RECUR_THREADS = 64 }; /* few, so that they spread over all multiprocessors */

static_assert(DRA_RUN == 32, "a lane of a warp for each token of a run");

/* ---- channels -------------------------------------------------------------------------------- */

struct dra_channel {
    int64_t b, n;
    bool    live; /* else it only reads, the last channel there is */
};

static inline unsigned dra_channel_grid(int64_t B, int64_t N)
{
    return (unsigned)(B * dra_div_up(N, DRA_RECUR_THREADS));
}

__device__ static inline dra_channel dra_channel_here(int64_t N)
{
    const int64_t blocks = dra_div_up(N, DRA_RECUR_THREADS), b = blockIdx.x / blocks;
    const int64_t n = (blockIdx.x - b * blocks) * DRA_RECUR_THREADS + threadIdx.x;
    return {b, dra_imin(n, N - 1), n < N};
}

/* (B, T, N) as a thread sees it: element t * row of its channel. */
struct dra_course {
    float  *data; /* NULL: an output that nobody reads */
    int64_t batch, row;
};

static inline dra_course dra_course_of(const dra_tensor *x)
{
    return {static_cast<float *>(x->data), x->stride[0], x->stride[1]};
}

__device__ static inline float *dra_course_at(const dra_course &x, dra_channel at)
{
    return x.data ? x.data + at.b * x.batch + at.n : nullptr;
}

/* ---- marks ----------------------------------------------------------------------------------- */

struct dra_marks { /* (B, T) */
    const int32_t *data;
    int64_t        batch, row;
};

static inline dra_marks dra_marks_of(const dra_tensor *mark) /* NULL: plain tokens */
{
    if (!mark) return {};
    return {static_cast<const int32_t *>(mark->data), mark->stride[0], mark->stride[1]};
}

__device__ static inline int32_t dra_mark_at(const dra_marks &mark, int64_t b, int64_t t)
{
    return mark.data ? mark.data[b * mark.batch + t * mark.row] : 0;
}

/* Of the tokens of a run, a bit each. Those behind the last token are pads. */
struct dra_run_marks {
    uint32_t pad, reset;
    int      n; /* tokens */

    __device__ bool is_pad(int t) const { return pad >> t & 1; }
    __device__ bool is_reset(int t) const { return reset >> t & 1; }
};

/* All threads of a warp must come; they have the same b. */
__device__ static inline dra_run_marks dra_run_marks_at(const dra_marks &mark, int64_t b, int64_t t,
                                                        int64_t T)
{
    const int     n = (int)dra_imin(DRA_RUN, T - t), lane = (int)threadIdx.x % 32;
    const int32_t bits = lane < n ? dra_mark_at(mark, b, t + lane) : DRA_MARK_PAD;
    return {__ballot_sync(~0u, bits & DRA_MARK_PAD), __ballot_sync(~0u, bits & DRA_MARK_RESET), n};
}

/* ---- tokens in registers --------------------------------------------------------------------- */

struct dra_ahead { /* what a run is followed by, on the way the walk goes; n 0: by nothing */
    const float *at;
    int64_t      row;
    int          n;

    /* Token t of the next run takes the place of token t of this one. */
    __device__ void load(int t, float *x) const { *x = t < n ? at[t * row] : 0; }

    __device__ void load_all(float *x) const
    {
        DRA_UNROLL
        for (int t = 0; t < DRA_RUN; t++) load(t, x + t);
    }
};

/* The run that starts at token t; T: the end. */
__device__ static inline dra_ahead dra_ahead_at(const float *x, int64_t row, int64_t t, int64_t T)
{
    return {x + t * row, row, t < 0 ? 0 : (int)dra_imax(0, dra_imin(DRA_RUN, T - t))};
}

/* ---- sums over rows of the batch ------------------------------------------------------------- */

struct dra_recur_sums {
    struct state {
        float sum;
    };
    static __device__ state none() { return {0}; }
    static __device__ void  take(state &s, float x, int64_t) { s.sum += x; }
    static __device__ void  take(state &s, state x, int64_t) { s.sum += x.sum; }
    static __device__ state join(state a, state b) { return {a.sum + b.sum}; }
    static __device__ void  give(state s, float *y) { *y = s.sum; }
    static __device__ void  give(state s, state *y) { *y = s; }
};

/* A tensor of these sizes and strides in scratch memory. */
static inline dra_tensor dra_scratch_tensor(float *data, int rank, const int64_t *dim,
                                            const int64_t *stride)
{
    dra_tensor t = {};
    t.data = data;
    t.dtype = DRA_F32;
    t.shape.rank = rank;
    for (int i = 0; i < rank; i++) t.shape.dim[i] = dim[i], t.stride[i] = stride[i];
    return t;
}

/* Bytes that adding up x over an axis needs on the way; then the sum itself, nothing if out is
 * NULL. */
static inline size_t dra_recur_sum_scratch(const dra_tensor *x, int axis)
{
    const dra_reduction r = dra_reduction_of(x, 1u << axis);
    return dra_reduction_scratch(&r, sizeof(float));
}

static inline void dra_recur_sum(const dra_call *c, const dra_tensor *x, int axis, void *scratch,
                                 void *out)
{
    if (out && dra_reduction_of(x, 1u << axis).outputs > 0)
        dra_reduce_tensor<dra_recur_sums, float, float>(c, x, 1u << axis, scratch,
                                                        static_cast<float *>(out));
}

#endif
