/* CUDA on the host, for tests without a GPU: as much of the language and of its run time as
 * src/cuda uses. A block runs on one thread of the host, each of its CUDA threads until it waits
 * for others (see host.cc); blocks run one after the other, and everything is done when a launch
 * returns. So it shows wrong sums and indices, not races. */
#ifndef DRA_TESTS_CUDA_HOST_H
#define DRA_TESTS_CUDA_HOST_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct uint3 {
    unsigned x, y, z;
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

extern uint3 threadIdx, blockIdx;
extern dim3  blockDim, gridDim;
enum { warpSize = 32 };

/* ---- host.cc --------------------------------------------------------------------------------- */

void  cuda_host_launch(dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread);
void *cuda_host_shared(void); /* dynamic shared memory of the block that runs */
void  cuda_host_sync_block(void);
void  cuda_host_sync_warp(void);
/* All lanes of the warp hand in 8 bytes; gives those of `lane`. */
uint64_t cuda_host_exchange(uint64_t mine, int lane);
unsigned cuda_host_ballot(int yes);
int      cuda_host_least(int x); /* of all lanes */

static inline void __syncthreads(void) { cuda_host_sync_block(); }
static inline void __syncwarp(unsigned mask = ~0u) { cuda_host_sync_warp(); }

static inline int cuda_host_lane(void)
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % warpSize);
}

template <typename T> T cuda_host_shuffle(T x, int lane)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = cuda_host_exchange(bits, lane);
    memcpy(&x, &bits, sizeof x);
    return x;
}

template <typename T> T __shfl_sync(unsigned, T x, int lane, int width = 32)
{
    return cuda_host_shuffle(x, cuda_host_lane() / width * width + lane % width);
}
template <typename T> T __shfl_xor_sync(unsigned, T x, int by, int width = 32)
{
    return cuda_host_shuffle(x, cuda_host_lane() ^ by);
}
template <typename T> T __shfl_down_sync(unsigned, T x, int by, int width = 32)
{
    const int lane = cuda_host_lane();
    return cuda_host_shuffle(x, lane % width + by < width ? lane + by : lane);
}
template <typename T> T __shfl_up_sync(unsigned, T x, int by, int width = 32)
{
    const int lane = cuda_host_lane();
    return cuda_host_shuffle(x, lane % width >= by ? lane - by : lane);
}
static inline unsigned __ballot_sync(unsigned, int yes) { return cuda_host_ballot(yes); }
static inline int      __any_sync(unsigned, int yes) { return cuda_host_ballot(yes) != 0; }
static inline int      __all_sync(unsigned, int yes) { return cuda_host_ballot(!yes) == 0; }
static inline int      __reduce_min_sync(unsigned, int x) { return cuda_host_least(x); }
static inline int      __reduce_max_sync(unsigned, int x) { return ~cuda_host_least(~x); }
static inline int      __popc(unsigned x) { return __builtin_popcount(x); }
static inline int      __ffs(int x) { return __builtin_ffs(x); }

template <typename T> T atomicAdd(T *at, T by)
{
    const T old = *at;
    *at = old + by;
    return old;
}
template <typename T> T atomicExch(T *at, T to)
{
    const T old = *at;
    *at = to;
    return old;
}
template <typename T> T atomicCAS(T *at, T from, T to)
{
    const T old = *at;
    if (old == from) *at = to;
    return old;
}
template <typename T> T atomicMin(T *at, T by)
{
    const T old = *at;
    if (by < old) *at = by;
    return old;
}
template <typename T> T atomicMax(T *at, T by)
{
    const T old = *at;
    if (by > old) *at = by;
    return old;
}
static inline void __threadfence(void) {}

#define __expf expf
static inline float    rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double   rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float    __fdividef(float x, float y) { return x / y; }
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline float __uint_as_float(unsigned x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}
template <typename T> T __ldg(const T *at) { return *at; }

/* ---- run time -------------------------------------------------------------------------------- */

typedef int   cudaError_t;
typedef void *cudaStream_t;
enum {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101
};
#define CUDART_VERSION 13000
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};
enum { cudaStreamNonBlocking = 1 };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

struct cudaDeviceProp {
    char   name[256];
    size_t totalGlobalMem;
    int    multiProcessorCount, major, minor;
};

typedef void *cudaEvent_t;
typedef void *cudaMemPool_t;
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum cudaMemPoolAttr {
    cudaMemPoolAttrReleaseThreshold = 4,
    cudaMemPoolAttrReservedMemCurrent,
    cudaMemPoolAttrUsedMemCurrent = 7
};

cudaError_t               cudaMalloc(void **out, size_t bytes);
cudaError_t               cudaFree(void *data);
static inline cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t)
{
    return cudaMalloc(out, bytes);
}
static inline cudaError_t cudaFreeAsync(void *data, cudaStream_t) { return cudaFree(data); }
static inline cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes);
}
static inline cudaError_t cudaFreeHost(void *data) { return cudaFree(data); }
static inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int)
{
    *pool = nullptr;
    return cudaSuccess;
}
static inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}
static inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}
cudaError_t               cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t               cudaEventDestroy(cudaEvent_t event);
cudaError_t               cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t               cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
static inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);

static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = nullptr;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaGetLastError(void) { return cudaSuccess; }
static inline cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
static inline cudaError_t cudaMemGetInfo(size_t *rest, size_t *all)
{
    *rest = *all = (size_t)8 << 30;
    return cudaSuccess;
}
template <typename F> cudaError_t cudaFuncSetAttribute(F *, int, int) { return cudaSuccess; }
const char                       *cudaGetErrorString(cudaError_t error);

#endif
