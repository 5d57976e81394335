/* sum, sum_squares, max and logsumexp over any set of axes, see reduce.cuh. */
#include "ops/reduce/reduce.cuh"

/* ---- sums ------------------------------------------------------------------------------------ */

/* Reals are added in double: the GPU waits for memory anyway. Integers wrap. */
template <typename T, typename Result> struct sum_of {
    struct state {
        T sum;
    };
    static __device__ state none() { return {0}; }
    static __device__ void  take(state &s, float x, int64_t) { s.sum += x; }
    static __device__ void  take(state &s, uint32_t x, int64_t) { s.sum += x; }
    static __device__ void  take(state &s, uint8_t x, int64_t) { s.sum += x != 0; }
    static __device__ void  take(state &s, state x, int64_t) { s.sum += x.sum; }
    static __device__ state join(state a, state b) { return {a.sum + b.sum}; }
    static __device__ void  give(state s, Result *y) { *y = (Result)s.sum; }
    static __device__ void  give(state s, state *y) { *y = s; }
};

typedef sum_of<double, float>      sum_reals;
typedef sum_of<uint32_t, uint32_t> sum_integers;

struct sum_squares : sum_reals {
    static __device__ void take(state &s, float x, int64_t) { s.sum += (double)x * x; }
    static __device__ void take(state &s, state x, int64_t) { s.sum += x.sum; }
};

static uint32_t axes_of(const dra_call *c)
{
    return static_cast<const dra_reduce_attr *>(c->attr)->axes;
}

static void sum_launch(const dra_call *c)
{
    const dra_dtype dtype = c->in[0].dtype;
    if (dtype == DRA_F32)
        dra_reduce<sum_reals, float, float>(c, axes_of(c));
    else if (dtype == DRA_I32)
        dra_reduce<sum_integers, uint32_t, uint32_t>(c, axes_of(c));
    else
        dra_reduce<sum_integers, uint8_t, uint32_t>(c, axes_of(c));
}

static void sum_squares_launch(const dra_call *c)
{
    dra_reduce<sum_squares, float, float>(c, axes_of(c));
}

/* ---- max and logsumexp ----------------------------------------------------------------------- */

struct max_of {
    struct state {
        float max;
    };
    static __device__ state none() { return {-INFINITY}; }
    static __device__ void  take(state &s, float x, int64_t)
    {
        s.max = dra_join_max::join(s.max, x);
    }
    static __device__ void  take(state &s, state x, int64_t) { s = join(s, x); }
    static __device__ state join(state a, state b) { return {dra_join_max::join(a.max, b.max)}; }
    static __device__ void  give(state s, float *y) { *y = s.max; }
    static __device__ void  give(state s, state *y) { *y = s; }
};

static void max_launch(const dra_call *c) { dra_reduce<max_of, float, float>(c, axes_of(c)); }

/* sum = sum e^(x - max), in one pass. Where max is infinite or NaN it is the result, whatever the
 * sum is. */
struct logsumexp_of {
    struct state {
        float max, sum;
    };
    static __device__ state none() { return {-INFINITY, 0}; }
    static __device__ void  take(state &s, float x, int64_t)
    {
        if (x == -INFINITY) return;
        const float e = expf(-fabsf(x - s.max));
        s.sum = x > s.max ? s.sum * e + 1 : s.sum + e;
        s.max = dra_join_max::join(s.max, x);
    }
    static __device__ void  take(state &s, state x, int64_t) { s = join(s, x); }
    static __device__ state join(state a, state b)
    {
        const float max = dra_join_max::join(a.max, b.max);
        if (fabsf(max) == INFINITY) return {max, 0};
        return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
    }
    static __device__ void give(state s, float *y)
    {
        *y = fabsf(s.max) == INFINITY ? s.max : s.max + logf(s.sum);
    }
    static __device__ void give(state s, state *y) { *y = s; }
};

static void logsumexp_launch(const dra_call *c)
{
    dra_reduce<logsumexp_of, float, float>(c, axes_of(c));
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static size_t scratch(const dra_call *c) /* states have up to 8 bytes */
{
    const dra_reduction r = dra_reduction_of(&c->in[0], axes_of(c));
    return dra_reduction_scratch(&r, 8);
}

const dra_cuda_kernel dra_cuda_sum = {{"sum", DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL),
                                       DRA_LAYOUT_ANY, 0, false, scratch, nullptr},
                                      sum_launch,
                                      false};

const dra_cuda_kernel dra_cuda_sum_squares = {
    {"sum_squares", DRA_REALS, DRA_LAYOUT_ANY, 0, false, scratch, nullptr},
    sum_squares_launch,
    false};

const dra_cuda_kernel dra_cuda_max = {
    {"max", DRA_REALS, DRA_LAYOUT_ANY, 0, false, scratch, nullptr}, max_launch, false};

const dra_cuda_kernel dra_cuda_logsumexp = {
    {"logsumexp", DRA_REALS, DRA_LAYOUT_ANY, 0, false, scratch, nullptr}, logsumexp_launch, false};
