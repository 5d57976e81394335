/* Between the host and the GPU, all in the one stream.
 *
 * Small uploads (batches, positions) go through a ring of pinned memory: the host never waits for
 * what the GPU computes, unless it is a whole ring ahead. Large ones (weights from a mapped file)
 * go through pinned pieces, which several threads fill: one thread copies slower than the bus. The
 * threads stay, since a tensor of some MiB takes little longer than starting one.
 * Downloads wait, once for a whole list. */
#include "cuda/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

static const size_t HALF = 4 << 20;  /* bytes of half the ring: the most that is downloaded by it */
static const size_t SMALL = 1 << 19; /* bytes of the largest small upload */
static const size_t PIECE = 1 << 20; /* bytes of a piece, at most */

enum {
    WORKERS = 8,
    SLOTS = 4,         /* pieces of a worker: one is filled, the others are under way */
    PATIENCE = 1 << 14 /* looks for the next upload before a worker sleeps, some 100 us */
};

struct worker {
    dra_cuda_device *d;
    unsigned char   *pieces; /* (SLOTS, PIECE), pinned */
    cudaEvent_t      sent[SLOTS];
    int              slot; /* the next one */
    pthread_t        thread;
};

/* A large upload, whose pieces workers take one by one. */
struct upload {
    unsigned char       *to;
    const unsigned char *from;
    size_t               bytes, piece;
    std::atomic<size_t>  next;
    std::atomic<int>     error;
};

struct dra_cuda_transfer {
    pthread_mutex_t lock; /* one transfer at a time */
    unsigned char  *ring; /* (2, HALF), pinned */
    size_t          at;   /* in the half that is being filled */
    int             half;
    cudaEvent_t     left[2]; /* what was copied from this half is on the GPU */

    unsigned char *pieces; /* of all workers; NULL: not needed yet */
    worker         crew[WORKERS];
    int            started; /* of them; the first is whoever uploads */
    upload         job;
    /* Whether workers may take pieces of the job, how many do, and when they sleep. */
    pthread_mutex_t       door;
    pthread_cond_t        opened, left_all;
    bool                  open;
    int                   inside;
    std::atomic<unsigned> jobs; /* so far */
    std::atomic<bool>     over;
};

dra_status dra_cuda_transfer_open(dra_cuda_device *d, dra_error *err)
{
    dra_cuda_transfer *t = static_cast<dra_cuda_transfer *>(calloc(1, sizeof *t));
    if (!t) return dra_fail(err, DRA_ERR_MEMORY, "cuda device: out of memory");
    d->transfer = t;
    pthread_mutex_init(&t->lock, nullptr);
    pthread_mutex_init(&t->door, nullptr);
    pthread_cond_init(&t->opened, nullptr);
    pthread_cond_init(&t->left_all, nullptr);
    void       *ring = nullptr;
    cudaError_t error = cudaMallocHost(&ring, 2 * HALF);
    t->ring = static_cast<unsigned char *>(ring);
    for (int i = 0; i < 2 && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&t->left[i], cudaEventDisableTiming);
    return dra_cuda_check(d, "pinned memory", error, err);
}

static void dismiss(dra_cuda_transfer *t)
{
    pthread_mutex_lock(&t->door);
    t->over = true;
    t->jobs++;
    pthread_cond_broadcast(&t->opened);
    pthread_mutex_unlock(&t->door);
    for (int i = 1; i < t->started; i++) pthread_join(t->crew[i].thread, nullptr);
    for (int i = 0; i < WORKERS * SLOTS; i++)
        if (t->crew[i / SLOTS].sent[i % SLOTS])
            cudaEventDestroy(t->crew[i / SLOTS].sent[i % SLOTS]);
    cudaFreeHost(t->pieces);
}

void dra_cuda_transfer_close(dra_cuda_device *d)
{
    dra_cuda_transfer *t = d->transfer;
    if (!t) return;
    dismiss(t);
    for (int i = 0; i < 2; i++)
        if (t->left[i]) cudaEventDestroy(t->left[i]);
    cudaFreeHost(t->ring);
    pthread_cond_destroy(&t->left_all);
    pthread_cond_destroy(&t->opened);
    pthread_mutex_destroy(&t->door);
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

static cudaError_t send_piece(worker *w, unsigned char *to, const unsigned char *from, size_t bytes)
{
    unsigned char *pinned = w->pieces + (size_t)w->slot * PIECE;
    cudaEvent_t    sent = w->sent[w->slot];
    cudaStream_t   stream = w->d->context.stream;
    w->slot = (w->slot + 1) % SLOTS;
    cudaError_t error = cudaEventSynchronize(sent);
    if (error != cudaSuccess) return error;
    memcpy(pinned, from, bytes);
    error = cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, stream);
    return error == cudaSuccess ? cudaEventRecord(sent, stream) : error;
}

/* Takes pieces as long as there are any. */
static void send_pieces(worker *w)
{
    upload     *u = &w->d->transfer->job;
    cudaError_t error = cudaSuccess;
    while (error == cudaSuccess) {
        const size_t at = u->next.fetch_add(u->piece);
        if (at >= u->bytes) return;
        const size_t n = u->bytes - at < u->piece ? u->bytes - at : u->piece;
        error = send_piece(w, u->to + at, u->from + at, n);
    }
    u->error = error;
}

/* Waits for a job after the one numbered `known`, awake for a while. */
static bool enter(dra_cuda_transfer *t, unsigned *known)
{
    for (int i = 0; i < PATIENCE && t->jobs == *known; i++)
        ;
    pthread_mutex_lock(&t->door);
    while (t->jobs == *known && !t->over) pthread_cond_wait(&t->opened, &t->door);
    *known = t->jobs;
    t->inside += t->open;
    const bool entered = t->open;
    pthread_mutex_unlock(&t->door);
    return entered;
}

static void *work(void *user)
{
    worker            *w = static_cast<worker *>(user);
    dra_cuda_transfer *t = w->d->transfer;
    unsigned           known = 0;
    cudaSetDevice(w->d->number);
    while (!t->over) {
        if (!enter(t, &known)) continue;
        send_pieces(w);
        pthread_mutex_lock(&t->door);
        if (--t->inside == 0) pthread_cond_signal(&t->left_all);
        pthread_mutex_unlock(&t->door);
    }
    return nullptr;
}

/* Pieces and threads, at the first large upload. */
static cudaError_t gather_crew(dra_cuda_device *d)
{
    dra_cuda_transfer *t = d->transfer;
    void              *pieces = nullptr;
    const int64_t      cores = dra_imax(1, sysconf(_SC_NPROCESSORS_ONLN));
    const int          most = (int)dra_imin(WORKERS, cores);
    cudaError_t        error = cudaSuccess;
    if (t->started > 0) return error;
    for (int i = 0; i < most * SLOTS && error == cudaSuccess; i++)
        if (!t->crew[i / SLOTS].sent[i % SLOTS])
            error = cudaEventCreateWithFlags(&t->crew[i / SLOTS].sent[i % SLOTS],
                                             cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaMallocHost(&pieces, (size_t)most * SLOTS * PIECE);
    if (error != cudaSuccess) return error;
    t->pieces = static_cast<unsigned char *>(pieces);
    for (int i = 0; i < most; i++) {
        t->crew[i].d = d;
        t->crew[i].pieces = t->pieces + (size_t)i * SLOTS * PIECE;
    }
    for (t->started = 1; t->started < most; t->started++)
        if (pthread_create(&t->crew[t->started].thread, nullptr, work, &t->crew[t->started])) break;
    return error;
}

/* Whole pages, two or more pieces for each worker: they end at about the same time. */
static size_t piece_of(const dra_cuda_transfer *t, size_t bytes)
{
    const size_t page = 4096, half = bytes / (2 * (size_t)t->started);
    const size_t pages = (half + page - 1) / page * page;
    return pages < PIECE ? pages : PIECE;
}

static cudaError_t upload_large(dra_cuda_device *d, void *to, const void *from, size_t bytes)
{
    dra_cuda_transfer *t = d->transfer;
    const cudaError_t  error = gather_crew(d);
    if (error != cudaSuccess) return error;
    pthread_mutex_lock(&t->door);
    t->job.to = static_cast<unsigned char *>(to);
    t->job.from = static_cast<const unsigned char *>(from);
    t->job.bytes = bytes;
    t->job.piece = piece_of(t, bytes);
    t->job.next = 0;
    t->job.error = cudaSuccess;
    t->open = true;
    t->jobs++;
    pthread_cond_broadcast(&t->opened);
    pthread_mutex_unlock(&t->door);
    send_pieces(&t->crew[0]);
    pthread_mutex_lock(&t->door);
    t->open = false; /* who is late finds nothing */
    while (t->inside > 0) pthread_cond_wait(&t->left_all, &t->door);
    pthread_mutex_unlock(&t->door);
    return static_cast<cudaError_t>(t->job.error.load());
}

/* ---- the device's functions ------------------------------------------------------------------ */

dra_status dra_cuda_upload(dra_device *base, void *to, const void *from, size_t bytes,
                           dra_error *err)
{
    dra_cuda_device *d = reinterpret_cast<dra_cuda_device *>(base);
    cudaSetDevice(d->number);
    pthread_mutex_lock(&d->transfer->lock);
    const cudaError_t error = bytes <= SMALL ? upload_small(d, to, from, bytes)
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
