/* What the kernels of the CUDA device share: how one is launched, tensors as they see them, sums
 * over a block, faults. Compiled by nvcc, and for tests without a GPU by a C++ compiler on top of
 * tests/cuda_host; so launches are written DRA_LAUNCH(...), and dynamic shared memory
 * DRA_SHARED. */
#ifndef DRA_SRC_DEVICE_CUDA_CUDA_CUH
#define DRA_SRC_DEVICE_CUDA_CUDA_CUH

#include <cuda_runtime.h>

extern "C" {
#include "device/code.h"
#include "device/device.h"
#include "device/kernel.h"
#include "graph/pointwise.h"
#include "ops/attrs.h"
}

#ifdef __CUDACC__
/* kernel<<<..>>>(..) in the stream of the call. A kernel with commas in its name is put in
 * parentheses. */
#define DRA_LAUNCH(c, kernel, grid, block, shared, ...)                                            \
    kernel<<<grid, block, shared, dra_cuda_of(c)->stream>>>(__VA_ARGS__)
#define DRA_SHARED(type, name)                                                                     \
    extern __shared__ __align__(16) unsigned char dra_shared_bytes[];                              \
    type *const                                   name = reinterpret_cast<type *>(dra_shared_bytes)
#else
#define DRA_LAUNCH(c, kernel, grid, block, shared, ...)                                            \
    cuda_host_launch(grid, block, shared, [&] { kernel(__VA_ARGS__); })
#define DRA_SHARED(type, name) type *const name = static_cast<type *>(cuda_host_shared())
#endif

/* Of ops/products/gemm.cuh: handle and workspace of the library of products. */
struct dra_cuda_gemm_state;
struct dra_cuda_order; /* of kernels that are being captured, see order.cu */

/* What the device hands its kernels, dra_call.context. */
struct dra_cuda_context {
    cudaStream_t         stream;
    int                  processors; /* multiprocessors */
    dra_cuda_gemm_state *gemm;
    dra_cuda_order      *order;   /* NULL: kernels run one after the other */
    mutable const char  *failure; /* what a library says that could not start its kernel; or NULL */
};

static inline const dra_cuda_context *dra_cuda_of(const dra_call *c)
{
    return static_cast<const dra_cuda_context *>(c->context);
}

/* The kernel that is started next (there must be one) writes this memory of the device, which is
 * none of its operands: it waits for those that did so before. */
void dra_cuda_order_claim(const dra_cuda_context *c, const void *memory, size_t bytes);

/* A kernel of this device: launch() starts it, and returns. Called only where output 0 has
 * elements; a kernel that does something else besides says so in `empty`. */
struct dra_cuda_kernel {
    dra_kernel base; /* first: planning knows this part alone */
    void (*launch)(const dra_call *c);
    bool empty; /* launch it for outputs without elements too */
};

#define DRA_CUDA(op) extern const dra_cuda_kernel dra_cuda_##op;
#include "device/cuda/kernels.def"
#undef DRA_CUDA

/* ---- grids ----------------------------------------------------------------------------------- */

#ifdef __CUDACC__
enum { DRA_THREADS = 256 }; /* of a block, where nothing speaks for another number */
#else
enum { DRA_THREADS = 64 }; /* waiting for each other is slow on the host */
#endif

/* Blocks of `each` elements for n of them; a kernel goes on in steps of the grid where there are
 * more than are worth starting. */
static inline unsigned dra_grid(const dra_call *c, int64_t n, int64_t each)
{
    return (unsigned)dra_imax(1, dra_imin(dra_div_up(n, each), 16 * dra_cuda_of(c)->processors));
}

/* for (int64_t i : elements of this thread) of a grid of one axis */
#define DRA_EACH(i, n)                                                                             \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,                               \
                 i##_step = (int64_t)gridDim.x * blockDim.x;                                       \
         i < (n); i += i##_step)

/* ---- tensors --------------------------------------------------------------------------------- */

/* A tensor whose elements are asked for by their number in row-major order. Axes are merged where
 * they run on, the last one first; rank 0: dense. */
struct dra_view {
    void   *data;
    int32_t rank;
    int64_t dim[DRA_MAX_RANK], stride[DRA_MAX_RANK];
};

static inline dra_view dra_view_of(const dra_tensor *t)
{
    dra_view v = {};
    v.data = t->data;
    for (int32_t i = t->shape.rank - 1; i >= 0; i--) {
        const int64_t n = t->shape.dim[i], step = t->stride[i];
        if (n == 1) continue;
        const int32_t last = v.rank - 1;
        if (v.rank && v.stride[last] * v.dim[last] == step) {
            v.dim[last] *= n;
        } else {
            v.dim[v.rank] = n;
            v.stride[v.rank++] = step;
        }
    }
    if (v.rank == 1 && v.stride[0] == 1) v.rank = 0;
    if (v.rank == 0 && dra_shape_count(&t->shape) <= 1) v.rank = 0;
    return v;
}

__host__ __device__ static inline int64_t dra_offset(const dra_view &v, int64_t i)
{
    if (v.rank == 0) return i;
    int64_t offset = 0;
    for (int32_t k = 0; k < v.rank - 1; k++) {
        const int64_t rest = i / v.dim[k];
        offset += (i - rest * v.dim[k]) * v.stride[k];
        i = rest;
    }
    return offset + i * v.stride[v.rank - 1];
}

/* The same for the start of row number r, all axes but the last one. */
struct dra_rows_view {
    dra_view rows;
    int64_t  length, step; /* of a row, and between its elements */
};

static inline dra_rows_view dra_rows_of(const dra_tensor *t)
{
    dra_tensor lead = *t;
    const int  rank = t->shape.rank;
    if (rank) lead.shape.rank--;
    return {dra_view_of(&lead), dra_last(t), rank ? t->stride[rank - 1] : 1};
}

template <typename T> __device__ static inline T *dra_data(const dra_view &v)
{
    return static_cast<T *>(v.data);
}

/* ---- stored numbers -------------------------------------------------------------------------- */

__device__ static inline float dra_widen_bf16(uint16_t x)
{
    return __uint_as_float((unsigned)x << 16);
}

__device__ static inline uint16_t dra_round_bf16(float x) /* to nearest even; NaN stays NaN */
{
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

__device__ static inline float dra_widen_f16(uint16_t x)
{
    const unsigned sign = (unsigned)(x & 0x8000) << 16, magnitude = x & 0x7fffu;
    if (magnitude >= 0x7c00)
        return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x0400) return __uint_as_float(sign | ((magnitude << 13) + 0x38000000u));
    const float small = (float)magnitude * 0x1p-24f;
    return sign ? -small : small;
}

/* Element i of memory of any float dtype. */
__device__ static inline float dra_load(const void *data, dra_dtype dtype, int64_t i)
{
    return dtype == DRA_F32    ? static_cast<const float *>(data)[i]
           : dtype == DRA_BF16 ? dra_widen_bf16(static_cast<const uint16_t *>(data)[i])
                               : dra_widen_f16(static_cast<const uint16_t *>(data)[i]);
}

/* ---- sums over a block ----------------------------------------------------------------------- */

struct dra_join_sum {
    static __device__ float none() { return 0; }
    static __device__ float join(float a, float b) { return a + b; }
};
struct dra_join_max { /* NaN if one is */
    static __device__ float none() { return -INFINITY; }
    static __device__ float join(float a, float b) { return a > b || a != a ? a : b; }
};

template <typename How> __device__ static inline float dra_warp_join(float x)
{
    for (int by = 16; by; by /= 2) x = How::join(x, __shfl_xor_sync(~0u, x, by));
    return x;
}

/* The same number for all threads of the block, of up to 1024 threads in one axis, whole warps; in
 * an order fixed by their number. All threads must come. */
template <typename How> __device__ static inline float dra_block_join(float x)
{
    __shared__ float part[32];
    const unsigned   warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    x = dra_warp_join<How>(x);
    __syncthreads(); /* part may still be read from before */
    if (lane == 0) part[warp] = x;
    __syncthreads();
    return dra_warp_join<How>(lane < warps ? part[lane] : How::none());
}

__device__ static inline float dra_block_sum(float x) { return dra_block_join<dra_join_sum>(x); }
__device__ static inline float dra_block_max(float x) { return dra_block_join<dra_join_max>(x); }

/* ---- faults ---------------------------------------------------------------------------------- */

struct dra_fault_place {
    dra_fault  *record;
    const char *op;
    const void *call;
};

static inline dra_fault_place dra_fault_of(const dra_call *c) { return {c->fault, c->op, c->in}; }

/* Of all faults of a launch, the one with the lowest `tile`; of several launches, that of the first
 * instruction, in whatever order they run. */
__device__ static inline void dra_fault_raise(dra_fault_place f, int64_t tile, dra_fault_kind kind,
                                              int64_t a, int64_t b = 0, int64_t c = 0,
                                              int64_t d = 0)
{
    bool mine = false;
    while (!mine) {
        mine = atomicCAS(&f.record->lock, 0, 1) == 0;
        if (!mine) continue;
        volatile dra_fault *r = f.record;
        if (r->kind == DRA_FAULT_NONE || f.call < r->call ||
            (r->call == f.call && tile < r->tile)) {
            r->number[0] = a, r->number[1] = b, r->number[2] = c, r->number[3] = d;
            r->tile = tile;
            r->op = f.op;
            r->call = f.call;
            r->kind = kind;
        }
        __threadfence();
        atomicExch(&f.record->lock, 0);
    }
}

#endif
