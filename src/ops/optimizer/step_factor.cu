/* step_factor: what gradients are multiplied by before a step; NaN: nothing is to change. See
 * step_factor.c. */
#include "device/cuda/cuda.cuh"

__device__ static bool is_finite(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

__global__ static void factor_kernel(const float *norm, const float *loss, int64_t losses,
                                     const int32_t *fault, double clip, float *y)
{
    float bad = !is_finite(*norm) || *fault != 0;
    for (int64_t i = threadIdx.x; i < losses; i += blockDim.x) bad += !is_finite(loss[i]);
    bad = dra_block_sum(bad);
    if (threadIdx.x) return;
    const double factor = clip > 0 ? fmin(1.0, clip / ((double)*norm + 1e-6)) : 1;
    *y = bad > 0 ? NAN : (float)factor;
}

static void launch(const dra_call *c)
{
    const dra_step_factor_attr *a = static_cast<const dra_step_factor_attr *>(c->attr);
    DRA_LAUNCH(c, factor_kernel, 1, DRA_THREADS, 0, static_cast<const float *>(c->in[0].data),
               static_cast<const float *>(c->in[1].data), dra_shape_count(&c->in[1].shape),
               static_cast<const int32_t *>(c->in[2].data), a->clip,
               static_cast<float *>(c->out[0].data));
}

const dra_cuda_kernel dra_cuda_step_factor = {
    {"step_factor", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, false, nullptr, nullptr},
    launch,
    false};
