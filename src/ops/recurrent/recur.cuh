/* What recurrences over time share on the GPU. A thread has one channel of one row of the batch and
 * walks over time with its state in registers, a run of DRA_RUN tokens after the other; neighbours
 * have neighbouring channels. There may be few threads, so nothing waits for memory: what a token
 * reads is loaded into the registers of the token DRA_RUN steps before it, as soon as that is done.
 *
 * A result depends on its channel alone and not on how a sequence is cut: products and sums are put
 * together by fmaf() alone. */
#ifndef DRA_SRC_OPS_RECURRENT_RECUR_CUH
#define DRA_SRC_OPS_RECURRENT_RECUR_CUH

#include "device/cuda/rows.cuh"

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

/* (B, rows, N) or (rows, N) as a thread sees it. */
struct dra_channel_rows {
    float  *data; /* NULL: an output that nobody reads */
    int64_t batch, row;

    __device__ float *at(dra_channel c, int64_t i) const
    {
        return data + c.b * batch + i * row + c.n;
    }
};

static inline dra_channel_rows dra_channel_rows_of(const dra_tensor *x)
{
    const bool batch = x->shape.rank == 3;
    return {static_cast<float *>(x->data), batch ? x->stride[0] : 0, x->stride[batch ? 1 : 0]};
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

/* Of the tokens of a run, a bit each. Those after the last token are pads. */
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

__device__ static inline int dra_run_tokens(int64_t t, int64_t T) /* of a run that starts at t */
{
    return t < 0 ? 0 : (int)dra_imax(0, dra_imin(DRA_RUN, T - t));
}

/* x_t, x_t+1, .. of a whole run, 0 after the end. */
__device__ static inline void dra_run_load(const float *x, int64_t row, int64_t t, int64_t T,
                                           float *held)
{
    const int n = dra_run_tokens(t, T);
    DRA_UNROLL
    for (int i = 0; i < DRA_RUN; i++) held[i] = i < n ? x[(t + i) * row] : 0;
}

/* The run that comes next, token by token: each takes the place of a token that is done. */
struct dra_ahead {
    const float *at;
    int64_t      step;
    int          n; /* 0: there is none */

    /* Token i, in the order of the walk. */
    __device__ void load(int i, float *held)
    {
        *held = i < n ? *at : 0;
        at += step;
    }
};

/* The run that starts at token t, for a walk on and for a walk back. */
__device__ static inline dra_ahead dra_ahead_at(const float *x, int64_t row, int64_t t, int64_t T)
{
    return {x + t * row, row, dra_run_tokens(t, T)};
}

__device__ static inline dra_ahead dra_behind_at(const float *x, int64_t row, int64_t t, int64_t T)
{
    return {x + (t + DRA_RUN - 1) * row, -row, dra_run_tokens(t, T)};
}

/* ---- sums over rows of the batch, recur.cu --------------------------------------------------- */

/* A tensor of these sizes and strides in scratch memory. */
static inline dra_tensor dra_scratch_tensor(void *data, int rank, const int64_t *dim,
                                            const int64_t *stride)
{
    dra_tensor t = {};
    t.data = data;
    t.dtype = DRA_F32;
    t.shape.rank = rank;
    for (int i = 0; i < rank; i++) t.shape.dim[i] = dim[i], t.stride[i] = stride[i];
    return t;
}

/* out = the sum of x over an axis, dense; nothing if out is NULL. And the bytes of scratch that it
 * needs on the way. */
void   dra_recur_sum(const dra_call *c, const dra_tensor *x, int axis, void *scratch, void *out);
size_t dra_recur_sum_scratch(const dra_tensor *x, int axis);

#endif
