/* Between the host and the GPU, all in the one stream.
 *
 * Small uploads (batches, positions) go through a ring of pinned memory: the host never waits for
 * what the GPU computes, unless it is a whole ring ahead. Large ones (weights from a mapped file)
 * go through pinned pieces, which several threads fill: one thread copies slower than the bus.
 * Downloads wait, once for a whole list. */
#include "cuda/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

static const size_t HALF = 4 << 20;   /* bytes of half the ring: the largest small transfer */
static const size_t PIECE = 4 << 20;  /* bytes of a piece */
static const size_t WORTH = 16 << 20; /* bytes that are worth another worker */

enum { WORKERS = 8, SLOTS = 2 }; /* pieces of a worker: one is filled, one under way */

struct dra_cuda_transfer {
    pthread_mutex_t lock;
    unsigned char  *ring; /* (2, HALF), pinned */
    size_t          at;   /* in the half that is being filled */
    int             half;
    cudaEvent_t     left[2]; /* what was copied from this half is on the GPU */
    unsigned char  *pieces;  /* (WORKERS, SLOTS, PIECE), pinned; NULL: not needed yet */
    cudaEvent_t     sent[WORKERS][SLOTS];
};

dra_status dra_cuda_transfer_open(dra_cuda_device *d, dra_error *err)
{
    dra_cuda_transfer *t = static_cast<dra_cuda_transfer *>(calloc(1, sizeof *t));
    if (!t) return dra_fail(err, DRA_ERR_MEMORY, "cuda device: out of memory");
    d->transfer = t;
    pthread_mutex_init(&t->lock, nullptr);
    void       *ring = nullptr;
    cudaError_t error = cudaMallocHost(&ring, 2 * HALF);
    t->ring = static_cast<unsigned char *>(ring);
    for (int i = 0; i < 2 && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&t->left[i], cudaEventDisableTiming);
    return dra_cuda_check(d, "pinned memory", error, err);
}

void dra_cuda_transfer_close(dra_cuda_device *d)
{
    dra_cuda_transfer *t = d->transfer;
    if (!t) return;
    for (int i = 0; i < 2; i++)
        if (t->left[i]) cudaEventDestroy(t->left[i]);
    for (int i = 0; i < WORKERS * SLOTS; i++)
        if (t->sent[i / SLOTS][i % SLOTS]) cudaEventDestroy(t->sent[i / SLOTS][i % SLOTS]);
    cudaFreeHost(t->ring);
    cudaFreeHost(t->pieces);
    pthread_mutex_destroy(&t->lock);
    free(t);
    d->transfer = nullptr;
}

/* ---- the ring -------------------------------------------------------------------------------- */

/* Pinned memory for up to HALF bytes, until as much again was taken. */
static cudaError_t take(dra_cuda_device *d, size_t bytes, unsigned char **out)
{
    dra_cuda_transfer *t = d->transfer;
    cudaError_t        error = cudaSuccess;
    if (t->at + bytes > HALF) {
        error = cudaEventRecord(t->left[t->half], d->context.stream);
        t->half = !t->half;
        t->at = 0;
        if (error == cudaSuccess) error = cudaEventSynchronize(t->left[t->half]);
    }
    *out = t->ring + (size_t)t->half * HALF + t->at;
    t->at += (bytes + 63) / 64 * 64;
    return error;
}

static cudaError_t upload_small(dra_cuda_device *d, void *to, const void *from, size_t bytes)
{
    unsigned char    *pinned;
    const cudaError_t error = take(d, bytes, &pinned);
    if (error != cudaSuccess) return error;
    memcpy(pinned, from, bytes);
    return cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, d->context.stream);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

struct upload {
    dra_cuda_device     *d;
    unsigned char       *to;
    const unsigned char *from;
    size_t               bytes;
    std::atomic<size_t>  next{0};
    std::atomic<int>     error{cudaSuccess};
};

struct worker {
    upload   *job;
    int       number;
    pthread_t thread;
};

/* Takes pieces as long as there are any. */
static void *send_pieces(void *user)
{
    const worker      *w = static_cast<const worker *>(user);
    upload            *u = w->job;
    dra_cuda_transfer *t = u->d->transfer;
    cudaError_t        error = cudaSetDevice(u->d->number);
    for (int slot = 0; error == cudaSuccess; slot = !slot) {
        const size_t at = u->next.fetch_add(PIECE);
        if (at >= u->bytes) break;
        const size_t   n = u->bytes - at < PIECE ? u->bytes - at : PIECE;
        unsigned char *pinned = t->pieces + ((size_t)w->number * SLOTS + (size_t)slot) * PIECE;
        error = cudaEventSynchronize(t->sent[w->number][slot]);
        if (error != cudaSuccess) break;
        memcpy(pinned, u->from + at, n);
        error = cudaMemcpyAsync(u->to + at, pinned, n, cudaMemcpyHostToDevice,
                                u->d->context.stream);
        if (error == cudaSuccess)
            error = cudaEventRecord(t->sent[w->number][slot], u->d->context.stream);
    }
    if (error != cudaSuccess) u->error = error;
    return nullptr;
}

static cudaError_t make_pieces(dra_cuda_transfer *t)
{
    void       *pieces = nullptr;
    cudaError_t error = cudaSuccess;
    if (t->pieces) return error;
    for (int i = 0; i < WORKERS * SLOTS && error == cudaSuccess; i++)
        if (!t->sent[i / SLOTS][i % SLOTS])
            error = cudaEventCreateWithFlags(&t->sent[i / SLOTS][i % SLOTS],
                                             cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaMallocHost(&pieces, WORKERS * SLOTS * PIECE);
    t->pieces = static_cast<unsigned char *>(pieces);
    return error;
}

static cudaError_t upload_large(dra_cuda_device *d, void *to, const void *from, size_t bytes)
{
    cudaError_t error = make_pieces(d->transfer);
    if (error != cudaSuccess) return error;
    upload job;
    job.d = d;
    job.to = static_cast<unsigned char *>(to);
    job.from = static_cast<const unsigned char *>(from);
    job.bytes = bytes;
    worker        w[WORKERS];
    const int64_t cores = dra_imax(1, sysconf(_SC_NPROCESSORS_ONLN));
    const int     n = (int)dra_imin(dra_imin(WORKERS, cores), 1 + (int64_t)(bytes / WORTH));
    int           started = 1; /* number 0 is this thread */
    w[0] = {&job, 0, pthread_self()};
    for (; started < n; started++) {
        w[started] = {&job, started, {}};
        if (pthread_create(&w[started].thread, nullptr, send_pieces, &w[started])) break;
    }
    send_pieces(&w[0]);
    for (int i = 1; i < started; i++) pthread_join(w[i].thread, nullptr);
    return static_cast<cudaError_t>(job.error.load());
}

/* ---- the device's functions ------------------------------------------------------------------ */

dra_status dra_cuda_upload(dra_device *base, void *to, const void *from, size_t bytes,
                           dra_error *err)
{
    dra_cuda_device *d = reinterpret_cast<dra_cuda_device *>(base);
    cudaSetDevice(d->number);
    pthread_mutex_lock(&d->transfer->lock);
    const cudaError_t error = bytes <= HALF ? upload_small(d, to, from, bytes)
                                            : upload_large(d, to, from, bytes);
    pthread_mutex_unlock(&d->transfer->lock);
    return dra_cuda_check(d, "upload", error, err);
}

/* Small ones through the ring as well: to pageable memory each of them would wait. */
static cudaError_t download(dra_cuda_device *d, const dra_fetch *list, size_t n)
{
    unsigned char *pinned = nullptr;
    size_t         small = 0;
    cudaError_t    error = cudaSuccess;
    for (size_t i = 0; i < n; i++) small += (list[i].from.bytes + 63) / 64 * 64;
    if (small > HALF) small = 0; /* all of them where they are wanted */
    if (small) error = take(d, small, &pinned);
    for (size_t i = 0, at = 0; i < n && error == cudaSuccess; i++) {
        const size_t bytes = list[i].from.bytes;
        if (bytes)
            error = cudaMemcpyAsync(small ? pinned + at : list[i].to,
                                    dra_span_address(list[i].from), bytes, cudaMemcpyDeviceToHost,
                                    d->context.stream);
        at += (bytes + 63) / 64 * 64;
    }
    if (error == cudaSuccess) error = cudaStreamSynchronize(d->context.stream);
    for (size_t i = 0, at = 0; i < n && small && error == cudaSuccess; i++) {
        if (list[i].from.bytes) memcpy(list[i].to, pinned + at, list[i].from.bytes);
        at += (list[i].from.bytes + 63) / 64 * 64;
    }
    return error;
}

dra_status dra_cuda_download(dra_device *base, const dra_fetch *list, size_t n, dra_error *err)
{
    dra_cuda_device *d = reinterpret_cast<dra_cuda_device *>(base);
    cudaSetDevice(d->number);
    pthread_mutex_lock(&d->transfer->lock);
    const cudaError_t error = download(d, list, n);
    pthread_mutex_unlock(&d->transfer->lock);
    return dra_cuda_check(d, "download", error, err);
}
