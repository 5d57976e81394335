/* constant: one number. arange: 0, 1, .. n - 1. */
#include "device/cuda/cuda.cuh"

__global__ static void constant_kernel(dra_constant_attr a, void *y)
{
    if (a.dtype == DRA_I32)
        *static_cast<int32_t *>(y) = a.integer;
    else
        *static_cast<float *>(y) = (float)a.real;
}

static void constant_launch(const dra_call *c)
{
    DRA_LAUNCH(c, constant_kernel, 1, 1, 0, *static_cast<const dra_constant_attr *>(c->attr),
               c->out[0].data);
}

const dra_cuda_kernel dra_cuda_constant = {
    {"constant", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr},
    constant_launch,
    false};

__global__ static void arange_kernel(int32_t *y, int64_t n) { DRA_EACH(i, n) y[i] = (int32_t)i; }

static void arange_launch(const dra_call *c)
{
    const int64_t n = dra_shape_count(&c->out[0].shape);
    DRA_LAUNCH(c, arange_kernel, dra_grid(c, n, DRA_THREADS), DRA_THREADS, 0,
               static_cast<int32_t *>(c->out[0].data), n);
}

const dra_cuda_kernel dra_cuda_arange = {
    {"arange", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr}, arange_launch, false};
