/* Reductions: x seen as (kept axes, reduced axes), whatever the strides. A block for each output;
 * its threads take elements in turns and join in an order fixed by their number. */
#include "cuda/cuda.h"

static void split_axes(const dra_call *c, dra_tensor *kept, dra_tensor *reduced)
{
    const dra_reduce_attr *a = static_cast<const dra_reduce_attr *>(c->attr);
    const dra_tensor      *x = &c->in[0];
    *kept = *reduced = {};
    kept->data = reduced->data = x->data;
    for (int32_t i = 0; i < x->shape.rank; i++) {
        dra_tensor *t = a->axes >> i & 1 ? reduced : kept;
        t->shape.dim[t->shape.rank] = x->shape.dim[i];
        t->stride[t->shape.rank++] = x->stride[i];
    }
}

template <typename T> __device__ static T block_sum(T x);
template <> __device__ float              block_sum(float x) { return dra_block_sum(x); }
template <> __device__ int32_t            block_sum(int32_t x)
{
    __shared__ int32_t sum;
    __syncthreads();
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x); /* whole numbers: any order will do */
    __syncthreads();
    return sum;
}

template <typename From, typename To>
__global__ static void sum_kernel(dra_view kept, dra_view reduced, int64_t outputs, int64_t n,
                                  To *y)
{
    for (int64_t k = blockIdx.x; k < outputs; k += gridDim.x) {
        const From *x = dra_data<const From>(kept) + dra_offset(kept, k);
        To          sum = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += (To)x[dra_offset(reduced, i)];
        sum = block_sum<To>(sum);
        if (threadIdx.x == 0) y[k] = sum;
    }
}

template <typename From, typename To> static void sum_as(const dra_call *c)
{
    dra_tensor kept, reduced;
    split_axes(c, &kept, &reduced);
    const int64_t outputs = dra_shape_count(&kept.shape), n = dra_shape_count(&reduced.shape);
    DRA_LAUNCH(c, (sum_kernel<From, To>), dra_grid(c, outputs, 1), DRA_THREADS, 0,
               dra_view_of(&kept), dra_view_of(&reduced), outputs, n,
               static_cast<To *>(c->out[0].data));
}

static void sum_launch(const dra_call *c)
{
    const dra_dtype dtype = c->in[0].dtype;
    if (dtype == DRA_F32)
        sum_as<float, float>(c);
    else if (dtype == DRA_I32)
        sum_as<int32_t, int32_t>(c);
    else
        sum_as<uint8_t, int32_t>(c);
}

const dra_cuda_kernel dra_cuda_sum = {{"sum", DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL),
                                       DRA_LAYOUT_ANY, 0, false, nullptr, nullptr},
                                      sum_launch,
                                      false};
