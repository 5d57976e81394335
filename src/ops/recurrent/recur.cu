/* Sums that recurrences over time leave to the end, see recur.cuh. */
#include "ops/recurrent/recur.cuh"

#include "ops/reduce/reduce.cuh"

struct sum_of {
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

size_t dra_recur_sum_scratch(const dra_tensor *x, int axis)
{
    const dra_reduction r = dra_reduction_of(x, 1u << axis);
    return dra_reduction_scratch(&r, sizeof(sum_of::state));
}

void dra_recur_sum(const dra_call *c, const dra_tensor *x, int axis, void *scratch, void *out)
{
    if (out && dra_reduction_of(x, 1u << axis).outputs > 0)
        dra_reduce_tensor<sum_of, float, float>(c, x, 1u << axis, scratch,
                                                static_cast<float *>(out));
}
