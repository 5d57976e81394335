/* bounded: y_i = x_i within +-limit, 0 where x_i is not finite, for any number of tensors, and a
 * count of what was changed in all of them. What is right already is not written in place. */
#include "device/cuda/cuda.cuh"

enum { TENSORS = 32 }; /* of one launch */

struct bounds {
    float        limit;
    int64_t      n[TENSORS];
    const float *x[TENSORS];
    float       *y[TENSORS];
};

/* A number without its sign, as an integer: sizes in order, then infinity, then NaN. */
__device__ static unsigned size_of(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__device__ static float bound(float x, float limit)
{
    return size_of(x) >= 0x7f800000u ? 0 : fminf(fmaxf(x, -limit), limit);
}

/* Whole numbers: any order will do. */
__device__ static void add_count(unsigned long long *count, unsigned mine)
{
    for (int by = 16; by; by /= 2) mine += __shfl_xor_sync(~0u, mine, by);
    if (threadIdx.x % 32 == 0 && mine) atomicAdd(count, (unsigned long long)mine);
}

__global__ static void bound_kernel(const bounds b, unsigned long long *count)
{
    const float   *x = b.x[blockIdx.y];
    float         *y = b.y[blockIdx.y];
    const unsigned most = size_of(b.limit);
    unsigned       outside = 0;
    DRA_EACH(i, b.n[blockIdx.y])
    {
        const float value = x[i];
        const bool  changes = size_of(value) > most;
        outside += changes;
        if (y && (changes || y != x)) y[i] = changes ? bound(value, b.limit) : value;
    }
    add_count(count, outside);
}

__global__ static void count_kernel(const unsigned long long *count, int32_t *to)
{
    *to = *count < INT32_MAX ? (int32_t)*count : INT32_MAX;
}

static size_t scratch(const dra_call *c) { return sizeof(unsigned long long); }

static void launch(const dra_call *c)
{
    unsigned long long *count = static_cast<unsigned long long *>(c->scratch);
    const double        limit = static_cast<const dra_bounded_attr *>(c->attr)->limit;
    bounds              b = {(float)limit, {}, {}, {}};
    int64_t             most = 0;
    cudaMemsetAsync(count, 0, sizeof *count, dra_cuda_of(c)->stream);
    for (int i = 0, k = 0; i < c->n_in; i++) {
        b.n[k] = dra_shape_count(&c->in[i].shape);
        b.x[k] = static_cast<const float *>(c->in[i].data);
        b.y[k] = static_cast<float *>(c->out[i].data);
        most = dra_imax(most, b.n[k++]);
        if (k < TENSORS && i < c->n_in - 1) continue;
        DRA_LAUNCH(c, bound_kernel, dim3(dra_grid(c, most, DRA_THREADS), (unsigned)k), DRA_THREADS,
                   0, b, count);
        k = 0, most = 0;
    }
    if (c->out[c->n_in].data)
        DRA_LAUNCH(c, count_kernel, 1, 1, 0, count, static_cast<int32_t *>(c->out[c->n_in].data));
}

const dra_cuda_kernel dra_cuda_bounded = {
    {"bounded", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, true, scratch, nullptr},
    launch,
    false};
