/* The CUDA device: memory of a GPU, one stream, and blocks of instructions walked or replayed. */
#include "device/cuda/device.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dra_cuda_kernel *const kernels[] = {
#define DRA_CUDA(op) &dra_cuda_##op,
#include "device/cuda/kernels.def"
#undef DRA_CUDA
};

dra_status dra_cuda_check(dra_cuda_device *d, const char *what, cudaError_t error, dra_error *err)
{
    if (error == cudaSuccess && !d->broken) return DRA_OK;
    if (error != cudaSuccess && error != cudaErrorMemoryAllocation) d->broken = true;
    return dra_fail(err, DRA_ERR_DEVICE, "cuda:%d: %s: %s", d->number, what,
                    error != cudaSuccess ? cudaGetErrorString(error)
                                         : "the device failed before; start again");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static dra_cuda_device *cuda_of(dra_device *d) { return reinterpret_cast<dra_cuda_device *>(d); }

/* Memory is taken from a pool in the order of the stream, so that neither waits for the GPU. */
static void *cuda_alloc(dra_device *base, size_t bytes)
{
    dra_cuda_device *d = cuda_of(base);
    void            *data = nullptr;
    cudaSetDevice(d->number);
    if (cudaMallocAsync(&data, bytes ? bytes : 1, d->context.stream) == cudaSuccess) return data;
    cudaGetLastError(); /* a full memory is no failure of the device */
    return nullptr;
}

static void cuda_free(dra_device *base, void *data, size_t bytes)
{
    dra_cuda_device *d = cuda_of(base);
    cudaSetDevice(d->number);
    cudaFreeAsync(data, d->context.stream);
}

/* What is given back stays with the process, for the next array. */
static cudaError_t open_pool(int number)
{
    cudaMemPool_t pool;
    uint64_t      keep = UINT64_MAX;
    cudaError_t   error = cudaDeviceGetDefaultMemPool(&pool, number);
    if (error == cudaSuccess)
        error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
    return error;
}

static size_t cuda_available(dra_device *base)
{
    dra_cuda_device *d = cuda_of(base);
    cudaMemPool_t    pool;
    size_t           rest = 0, all = 0;
    uint64_t         kept = 0, used = 0;
    cudaSetDevice(d->number);
    if (cudaMemGetInfo(&rest, &all) != cudaSuccess ||
        cudaDeviceGetDefaultMemPool(&pool, d->number) != cudaSuccess)
        return 0;
    cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &kept);
    cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
    return rest + (size_t)(kept - used);
}

__global__ static void fill_kernel(float *to, float value, int64_t n)
{
    DRA_EACH(i, n) to[i] = value;
}

static dra_status cuda_fill(dra_device *base, void *to, dra_real value, size_t count,
                            dra_error *err)
{
    dra_cuda_device *d = cuda_of(base);
    dra_call         call = {};
    const dra_call  *c = &call;
    if (!count) return DRA_OK;
    cudaSetDevice(d->number);
    call.context = &d->context;
    DRA_LAUNCH(c, fill_kernel, dra_grid(c, (int64_t)count, DRA_THREADS), DRA_THREADS, 0,
               static_cast<float *>(to), value, (int64_t)count);
    return dra_cuda_check(d, "fill", cudaPeekAtLastError(), err);
}

/* Pieces that do not overlap with where they go, from the end that is overwritten last. */
static dra_status cuda_copy(dra_device *base, void *to, const void *from, size_t bytes,
                            dra_error *err)
{
    dra_cuda_device     *d = cuda_of(base);
    unsigned char       *y = static_cast<unsigned char *>(to);
    const unsigned char *x = static_cast<const unsigned char *>(from);
    const size_t         apart = (size_t)(y > x ? y - x : x - y);
    const size_t         piece = apart && apart < bytes ? apart : bytes;
    dra_status           st = DRA_OK;
    cudaSetDevice(d->number);
    for (size_t done = 0; apart && done < bytes && st == DRA_OK; done += piece) {
        const size_t n = piece < bytes - done ? piece : bytes - done;
        const size_t at = y > x ? bytes - done - n : done;
        st = dra_cuda_check(
            d, "copy",
            cudaMemcpyAsync(y + at, x + at, n, cudaMemcpyDeviceToDevice, d->context.stream), err);
    }
    return st;
}

static dra_status cuda_order(dra_device *base, void *stream, bool back, dra_error *err)
{
    dra_cuda_device   *d = cuda_of(base);
    const cudaStream_t other = static_cast<cudaStream_t>(stream);
    cudaEvent_t        event = nullptr;
    cudaSetDevice(d->number);
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventRecord(event, back ? d->context.stream : other);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(back ? other : d->context.stream, event, 0);
    if (event) cudaEventDestroy(event); /* once nobody waits for it any more */
    return dra_cuda_check(d, "order of streams", error, err);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const dra_kernel *cuda_find(const dra_device *d, const char *op)
{
    for (const dra_cuda_kernel *k : kernels)
        if (strcmp(k->base.op, op) == 0) return &k->base;
    return nullptr;
}

static void cuda_destroy(dra_device *base)
{
    dra_cuda_device *d = cuda_of(base);
    dra_arrays_close(base);
    cudaSetDevice(d->number);
    dra_cuda_graphs_close(d);
    dra_cuda_scans_forget(d, nullptr);
    dra_cuda_gemm_close(d->context.gemm);
    dra_cuda_transfer_close(d);
    dra_cuda_profile_close(d);
    if (d->context.stream) cudaStreamDestroy(d->context.stream);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static const dra_device_table cuda_table = {
    cuda_alloc, cuda_free,    dra_cuda_upload, dra_cuda_download, cuda_fill,      cuda_copy,
    cuda_find,  dra_cuda_run, dra_cuda_forget, cuda_destroy,      cuda_available, dra_cuda_limits,
    false,      false,        cuda_order};

/* Why there is no device, in words of somebody who has to mend it. */
static dra_status no_device(const char *device, cudaError_t error, dra_error *err)
{
    int driver = 0, needed = CUDART_VERSION;
    if (error == cudaErrorInsufficientDriver) cudaDriverGetVersion(&driver);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return dra_fail(err, DRA_ERR_DEVICE, "%s: no NVIDIA driver is installed", device);
    if (error == cudaErrorInsufficientDriver)
        return dra_fail(err, DRA_ERR_DEVICE,
                        "%s: the driver is for CUDA %d.%d, the plugin needs %d.%d or newer", device,
                        driver / 1000, driver % 1000 / 10, needed / 1000, needed % 1000 / 10);
    if (error == cudaErrorNoDevice)
        return dra_fail(err, DRA_ERR_DEVICE, "%s: there is no NVIDIA GPU", device);
    if (error == cudaErrorDevicesUnavailable)
        return dra_fail(err, DRA_ERR_DEVICE, "%s: the GPU is busy: another process has it", device);
    if (error == cudaErrorMemoryAllocation)
        return dra_fail(err, DRA_ERR_DEVICE, "%s: too little memory is free on the GPU", device);
    return dra_fail(err, DRA_ERR_DEVICE, "%s: %s", device, cudaGetErrorString(error));
}

static dra_status no_number(int number, cudaError_t error, dra_error *err)
{
    char device[24];
    snprintf(device, sizeof device, "cuda:%d", number);
    return no_device(device, error, err);
}

static dra_status cuda_create(int number, dra_device **out, dra_error *err)
{
    *out = nullptr;
    int         n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess) return no_number(number, error, err);
    if (number >= n)
        return dra_fail(err, DRA_ERR_DEVICE, "cuda:%d: GPUs are numbered from 0 to %d here", number,
                        n - 1);
    cudaDeviceProp   about;
    dra_cuda_device *d = static_cast<dra_cuda_device *>(calloc(1, sizeof *d));
    if (!d) return dra_fail(err, DRA_ERR_MEMORY, "cuda device: out of memory");
    d->number = number;
    d->base.table = &cuda_table;
    d->base.threads = 1;
    d->base.level = d->level;
    d->scans = dra_cuda_scans_wish(getenv("DRA_CUDA_SCAN"));
    dra_arrays_open(&d->base.arrays);
    pthread_mutex_init(&d->lock, nullptr);
    error = cudaSetDevice(number);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&about, number);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&d->context.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = open_pool(number);
    dra_status st = error == cudaSuccess ? DRA_OK : no_number(number, error, err);
    if (st == DRA_OK) {
        snprintf(d->level, sizeof d->level, "cuda sm_%d%d", about.major, about.minor);
        d->context.processors = about.multiProcessorCount;
        st = dra_cuda_gemm_open(&d->context.gemm, err);
    }
    if (st == DRA_OK) st = dra_cuda_transfer_open(d, err);
    if (st == DRA_OK)
        *out = &d->base;
    else
        cuda_destroy(&d->base);
    return st;
}

static int cuda_count(dra_error *err)
{
    int               n = 0;
    const cudaError_t error = cudaGetDeviceCount(&n);
    if (error == cudaSuccess) return n;
    no_device("cuda", error, err);
    return -1;
}

static dra_status cuda_describe(int number, dra_device_info *out, dra_error *err)
{
    cudaDeviceProp about;
    size_t         rest = 0, all = 0;
    cudaError_t    error = cudaSetDevice(number);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&about, number);
    if (error == cudaSuccess) error = cudaMemGetInfo(&rest, &all);
    if (error != cudaSuccess) return no_number(number, error, err);
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, about.name);
    snprintf(out->level, sizeof out->level, "cuda sm_%d%d", about.major, about.minor);
    out->bytes = all;
    out->bytes_free = rest;
    out->processors = about.multiProcessorCount;
    return DRA_OK;
}

extern "C" __attribute__((visibility("default"))) const dra_plugin dra_plugin_table = {
    DRA_PLUGIN_ABI, DRA_VERSION_TEXT, cuda_create, cuda_count, cuda_describe};
