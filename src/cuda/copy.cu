/* copy: y = x, dense. */
#include "cuda/cuda.h"

template <typename T> __global__ static void copy_kernel(dra_view x, T *y, int64_t n)
{
    DRA_EACH(i, n) y[i] = dra_data<const T>(x)[dra_offset(x, i)];
}

template <typename T> static void copy_as(const dra_call *c)
{
    const int64_t n = dra_shape_count(&c->out[0].shape);
    DRA_LAUNCH(c, copy_kernel<T>, dra_grid(c, n, DRA_THREADS), DRA_THREADS, 0,
               dra_view_of(&c->in[0]), static_cast<T *>(c->out[0].data), n);
}

static void launch(const dra_call *c)
{
    const size_t bytes = dra_dtype_bytes(c->out[0].dtype);
    if (c->in[0].data == c->out[0].data && dra_tensor_is_dense(&c->in[0])) return; /* donated */
    if (bytes == 4)
        copy_as<uint32_t>(c);
    else if (bytes == 1)
        copy_as<uint8_t>(c);
    else
        copy_as<uint16_t>(c);
}

const dra_cuda_kernel dra_cuda_copy = {
    {"copy", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr}, launch, false};
