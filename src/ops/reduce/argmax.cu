/* argmax: where the first maximum of each row of the last axis stands; a NaN counts as the
 * maximum. */
#include "ops/reduce/reduce.cuh"

struct argmax_of {
    struct state {
        float   max;
        int32_t at; /* -1: of nothing */
    };
    static __device__ state none() { return {-INFINITY, -1}; }
    static __device__ state join(state a, state b)
    {
        if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
        const bool a_nan = a.max != a.max, b_nan = b.max != b.max;
        if (a_nan || b_nan ? a_nan == b_nan : a.max == b.max) return a.at < b.at ? a : b;
        return a_nan || a.max > b.max ? a : b;
    }
    static __device__ void take(state &s, float x, int64_t i) { s = join(s, {x, (int32_t)i}); }
    static __device__ void take(state &s, state x, int64_t) { s = join(s, x); }
    static __device__ void give(state s, int32_t *y) { *y = s.at; }
    static __device__ void give(state s, state *y) { *y = s; }
};

static uint32_t last_axis(const dra_call *c) { return 1u << (c->in[0].shape.rank - 1); }

static size_t scratch(const dra_call *c)
{
    const dra_reduction r = dra_reduction_of(&c->in[0], last_axis(c));
    return dra_reduction_scratch(&r, sizeof(argmax_of::state));
}

static void launch(const dra_call *c) { dra_reduce<argmax_of, float, int32_t>(c, last_axis(c)); }

const dra_cuda_kernel dra_cuda_argmax = {
    {"argmax", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ANY, 0, false, scratch, nullptr},
    launch,
    false};
