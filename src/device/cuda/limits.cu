/* What the GPU reaches: large products of matrices, passes over its memory, copies from and to the
 * host. Each is started several times between two events. */
#include "device/cuda/device.cuh"
#include "device/cuda/rows.cuh"

#include <stdio.h>
#include <sys/mman.h>

extern "C" {
#include "base/philox.h"
#include "device/limits.h"
}

#ifdef __CUDACC__
static const int64_t EDGE = 8192;              /* of the matrices, as far as memory goes */
static const size_t  ARRAY = (size_t)1 << 30;  /* bytes to pass over, likewise */
static const size_t  PINNED = (size_t)1 << 28; /* bytes to copy from and to the host */
static const size_t  MAPPED = (size_t)1 << 30; /* bytes of a file to send up */
static const size_t  TENSOR = (size_t)9 << 20; /* of it each: 768 x 3072 floats */
enum { RUNS = 4 };                             /* between two events */
#else
static const int64_t EDGE = 32;
static const size_t  ARRAY = 1 << 18, PINNED = 1 << 18, MAPPED = 1 << 18;
static const size_t  TENSOR = 1 << 16;
enum { RUNS = 1 };
#endif
enum { LIST = 28 }; /* tensors at a time, 252 MiB: as models are bound */

struct meter {
    dra_cuda_device *d;
    int              repeats;
    cudaEvent_t      before, after;
    dra_cuda_context context; /* the device's */
    dra_call         call;    /* what kernels and products are started with */
    dra_status       status;
    dra_error       *err;
};

static void check(meter *m, const char *what, cudaError_t error)
{
    if (m->status == DRA_OK) m->status = dra_cuda_check(m->d, what, error, m->err);
}

/* How much of `amount` a second, by the median of the timings; 0 after a failure. Each timing is of
 * `runs`, `ready` comes before it. */
template <typename Ready, typename Start>
static double rate(meter *m, const char *what, double amount, int runs, Ready ready, Start start)
{
    double       seconds[DRA_LIMITS_REPEATS];
    cudaStream_t stream = m->d->context.stream;
    for (int i = -1; i < m->repeats && m->status == DRA_OK; i++) { /* the first one warms up */
        float ms = 0;
        ready();
        check(m, what, cudaEventRecord(m->before, stream));
        for (int k = 0; k < runs; k++) start();
        check(m, what, cudaPeekAtLastError());
        check(m, what, cudaEventRecord(m->after, stream));
        check(m, what, cudaEventSynchronize(m->after));
        check(m, what, cudaEventElapsedTime(&ms, m->before, m->after));
        if (m->status == DRA_OK && m->context.failure)
            m->status = dra_fail(m->err, DRA_ERR_DEVICE, "cuda:%d: %s: %s", m->d->number, what,
                                 m->context.failure);
        if (i >= 0) seconds[i] = 1e-3 * (double)ms / runs;
    }
    return m->status == DRA_OK ? amount / dra_median(seconds, m->repeats) : 0;
}

template <typename Start> static double rate(meter *m, const char *what, double amount, Start start)
{
    return rate(
        m, what, amount, RUNS, [] {}, start);
}

static unsigned char *take(meter *m, size_t bytes)
{
    return static_cast<unsigned char *>(m->d->base.table->alloc(&m->d->base, bytes));
}

static void give_back(meter *m, unsigned char *memory, size_t bytes)
{
    if (memory) m->d->base.table->free(&m->d->base, memory, bytes);
}

static void no_memory(meter *m)
{
    m->status = dra_fail(m->err, DRA_ERR_MEMORY, "cuda:%d: limits: out of memory", m->d->number);
}

/* ---- products -------------------------------------------------------------------------------- */

__device__ static void put(float *x, float value) { *x = value; }
__device__ static void put(uint16_t *x, float value) { *x = dra_round_bf16(value); }

/* Numbers from -1 to 1: products of zeros take less power, and a GPU is then faster. */
template <typename T> __global__ static void draw_kernel(T *x, int64_t n)
{
    DRA_EACH(i, n / 4)
    {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0, 0};
        uint32_t       word[4];
        dra_philox(counter, 0, word);
        for (int k = 0; k < 4; k++) put(x + 4 * i + k, (float)(int32_t)word[k] * 0x1p-31f);
    }
}

/* FLOP/s of y = a b^T; a, b: (edge, edge) of T, one after the other. */
template <typename T>
static double products(meter *m, int64_t edge, T *a, dra_dtype dtype, dra_precision precision,
                       float *y)
{
    const dra_call *c = &m->call;
    const int64_t   n = edge * edge;
    dra_cuda_gemm   g = {};
    g.M = g.N = g.K = edge;
    g.batch = 1;
    g.a = a;
    g.b = a + n;
    g.a_dtype = g.b_dtype = dtype;
    g.a_row = g.b_column = g.y_row = edge;
    g.a_column = g.b_row = 1;
    g.y = y;
    g.precision = precision;
    DRA_LAUNCH(c, draw_kernel<T>, dra_grid(c, n / 2, DRA_THREADS), DRA_THREADS, 0, a, 2 * n);
    return rate(m, "products", 2.0 * (double)n * (double)edge, [&] { dra_cuda_gemm_run(c, &g); });
}

static void measure_products(meter *m, dra_limits *out)
{
    int64_t        edge = EDGE;
    unsigned char *memory = take(m, (size_t)(edge * edge) * 3 * sizeof(float));
    while (!memory && edge > EDGE / 8) {
        edge /= 2;
        memory = take(m, (size_t)(edge * edge) * 3 * sizeof(float));
    }
    if (!memory) return no_memory(m);
    float *y = reinterpret_cast<float *>(memory), *a = y + edge * edge;
    out->flops = products(m, edge, a, DRA_F32, DRA_PRECISION_FULL, y);
    out->tf32_flops = products(m, edge, a, DRA_F32, DRA_PRECISION_TF32, y);
    out->bf16_flops = products(m, edge, reinterpret_cast<uint16_t *>(a), DRA_BF16,
                               DRA_PRECISION_BF16, y);
    give_back(m, memory, (size_t)(edge * edge) * 3 * sizeof(float));
}

/* ---- memory ---------------------------------------------------------------------------------- */

__global__ static void read_kernel(const float4 *x, int64_t n, float *y)
{
    float sum = 0;
    DRA_UNROLL_BY(4)
    DRA_EACH(i, n)
    {
        const float4 v = x[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    sum = dra_block_sum(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

__global__ static void write_kernel(float4 *y, int64_t n)
{
    DRA_UNROLL_BY(4)
    DRA_EACH(i, n) y[i] = make_float4(1, 2, 3, 4);
}

__global__ static void copy_kernel(const float4 *x, float4 *y, int64_t n)
{
    DRA_UNROLL_BY(4)
    DRA_EACH(i, n) y[i] = x[i];
}

static void pass_over(meter *m, dra_limits *out, float4 *x, float4 *y, int64_t n)
{
    const dra_call *c = &m->call;
    const unsigned  grid = dra_grid(c, n, DRA_THREADS);
    const double    bytes = (double)n * sizeof *x;
    float          *sums = reinterpret_cast<float *>(y);
    DRA_LAUNCH(c, draw_kernel<float>, grid, DRA_THREADS, 0, reinterpret_cast<float *>(x), 4 * n);
    out->read = rate(m, "read", bytes,
                     [&] { DRA_LAUNCH(c, read_kernel, grid, DRA_THREADS, 0, x, n, sums); });
    out->write = rate(m, "write", bytes,
                      [&] { DRA_LAUNCH(c, write_kernel, grid, DRA_THREADS, 0, y, n); });
    out->copy = rate(m, "copy", 2 * bytes,
                     [&] { DRA_LAUNCH(c, copy_kernel, grid, DRA_THREADS, 0, x, y, n); });
}

static void copy_host(meter *m, dra_limits *out, void *x, size_t bytes)
{
    cudaStream_t stream = m->d->context.stream;
    void        *pinned = nullptr;
    check(m, "pinned memory", cudaMallocHost(&pinned, bytes));
    out->upload = rate(m, "upload", (double)bytes, [&] {
        check(m, "upload", cudaMemcpyAsync(x, pinned, bytes, cudaMemcpyHostToDevice, stream));
    });
    out->download = rate(m, "download", (double)bytes, [&] {
        check(m, "download", cudaMemcpyAsync(pinned, x, bytes, cudaMemcpyDeviceToHost, stream));
    });
    cudaFreeHost(pinned);
}

/* A temporary file of so many bytes, just written, so that its pages are in memory; NULL: there is
 * no room for it. */
static FILE *make_file(size_t bytes)
{
    static const unsigned char block[1 << 16] = {1};
    FILE                      *f = tmpfile();
    bool                       whole = f != nullptr;
    for (size_t at = 0; at < bytes && whole; at += sizeof block)
        whole = fwrite(block, sizeof block, 1, f) == 1;
    if (f && (!whole || fflush(f))) {
        fclose(f);
        f = nullptr;
    }
    return f;
}

/* As weights go up: lists of tensors. */
static void send_map(meter *m, dra_array *to, const unsigned char *map)
{
    dra_send list[LIST];
    for (size_t at = 0; at < to->bytes && m->status == DRA_OK;) {
        size_t n = 0;
        for (; n < LIST && at < to->bytes; n++) {
            const size_t bytes = to->bytes - at < TENSOR ? to->bytes - at : TENSOR;
            list[n] = {{to, at, bytes}, map + at};
            at += bytes;
        }
        m->status = dra_cuda_upload(&m->d->base, list, n, m->err);
    }
}

static void touch(const unsigned char *map, size_t bytes)
{
    volatile unsigned char seen = 0;
    for (size_t at = 0; at < bytes; at += 4096) seen = seen + map[at];
}

/* Tensors of a mapped file, each time from a new map, of which no page was touched, or all were. */
static double send_file(meter *m, FILE *f, void *x, size_t bytes, bool touched)
{
    void     *map = MAP_FAILED;
    dra_array to = {};
    to.data = static_cast<unsigned char *>(x), to.bytes = bytes;
    const double reached = rate(
        m, "upload of a file", (double)bytes, 1,
        [&] {
            if (map != MAP_FAILED) munmap(map, bytes);
            map = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fileno(f), 0);
            if (map == MAP_FAILED) return no_memory(m);
            if (touched) touch(static_cast<unsigned char *>(map), bytes);
        },
        [&] { send_map(m, &to, static_cast<unsigned char *>(map)); });
    if (map != MAP_FAILED) munmap(map, bytes);
    return reached;
}

static void send_files(meter *m, dra_limits *out, void *x, size_t bytes)
{
    FILE *f = make_file(bytes);
    if (!f) return;
    out->mapped = send_file(m, f, x, bytes, false);
    if (m->status == DRA_OK) out->touched = send_file(m, f, x, bytes, true);
    fclose(f);
}

static void measure_memory(meter *m, dra_limits *out)
{
    size_t         bytes = ARRAY;
    unsigned char *memory = take(m, 2 * bytes);
    while (!memory && bytes > ARRAY / 16) {
        bytes /= 2;
        memory = take(m, 2 * bytes);
    }
    if (!memory) return no_memory(m);
    float4 *x = reinterpret_cast<float4 *>(memory);
    float4 *y = reinterpret_cast<float4 *>(memory + bytes);
    pass_over(m, out, x, y, (int64_t)(bytes / sizeof *x));
    copy_host(m, out, x, bytes < PINNED ? bytes : PINNED);
    if (m->status == DRA_OK) send_files(m, out, x, bytes < MAPPED ? bytes : MAPPED);
    give_back(m, memory, 2 * bytes);
}

dra_status dra_cuda_limits(dra_device *base, int repeats, dra_limits *out, dra_error *err)
{
    meter m = {};
    m.d = reinterpret_cast<dra_cuda_device *>(base);
    m.repeats = repeats;
    m.err = err;
    m.context = m.d->context;
    m.call.context = &m.context;
    cudaSetDevice(m.d->number);
    check(&m, "limits", cudaEventCreateWithFlags(&m.before, cudaEventDefault));
    check(&m, "limits", cudaEventCreateWithFlags(&m.after, cudaEventDefault));
    if (m.status == DRA_OK) measure_products(&m, out);
    if (m.status == DRA_OK) measure_memory(&m, out);
    if (m.before) cudaEventDestroy(m.before);
    if (m.after) cudaEventDestroy(m.after);
    return m.status;
}
