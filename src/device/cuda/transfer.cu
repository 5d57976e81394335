/* Between the host and the GPU, all in the one stream.
 *
 * Small uploads (batches, positions) go through a ring of pinned memory: the host never waits for
 * what the GPU computes, unless it is a whole ring ahead. Large ones (weights from a mapped file)
 * go through pinned pieces, which several threads fill, since one thread copies slower than the
 * bus; whoever uploads sends them in their order, since calls of CUDA from several threads wait for
 * each other. The bus has nothing to do until the first pieces are filled, so all tensors of a list
 * are one row of pieces: this is waited for once, not for each of them. The threads stay: a tensor
 * of some MiB takes little longer than starting one.
 * Downloads wait, once for a whole list. */
#include "device/cuda/device.cuh"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

static const size_t HALF = 4 << 20;  /* bytes of half the ring: the most that is downloaded by it */
static const size_t SMALL = 1 << 19; /* bytes of the largest small upload */
static const size_t PIECE = 1 << 19, LEAST = 1 << 18; /* bytes of a piece, at most and at least */

enum {
    WORKERS = 12,
    SLOTS = 32,        /* pieces that are being filled or under way */
    PATIENCE = 1 << 14 /* looks before a thread sleeps or lets others run, some 10 us */
};

struct span {
    unsigned char       *to;
    const unsigned char *from;
    size_t               bytes;
    uint64_t             first; /* of its pieces */
};

/* A list of large uploads. Pieces are numbered through all lists; number n is in slot n % SLOTS. */
struct upload {
    span    *spans;
    size_t   n, piece;
    uint64_t first, end;

    span at(uint64_t number) const /* what piece `number` is of, by halves */
    {
        size_t low = 0, high = n;
        while (high - low > 1) {
            const size_t middle = (low + high) / 2;
            *(spans[middle].first <= number ? &low : &high) = middle;
        }
        const span   s = spans[low];
        const size_t skip = (size_t)(number - s.first) * piece, rest = s.bytes - skip;
        return {s.to + skip, s.from + skip, rest < piece ? rest : piece, number};
    }
};

struct dra_cuda_transfer {
    pthread_mutex_t lock; /* one transfer at a time */
    unsigned char  *ring; /* (2, HALF), pinned */
    size_t          at;   /* in the half that is being filled */
    int             half;
    cudaEvent_t     left[2]; /* what was copied from this half is on the GPU */

    unsigned char        *slots; /* (SLOTS, PIECE), pinned; NULL: not needed yet */
    cudaEvent_t           sent[SLOTS];
    upload                job;
    std::atomic<uint64_t> next;          /* the next piece to fill */
    std::atomic<uint64_t> allowed;       /* pieces below it have a free slot */
    std::atomic<uint64_t> filled[SLOTS]; /* 1 + the piece it holds */

    /* Whether workers may fill pieces of the job, how many do, and when they sleep. */
    pthread_t             worker[WORKERS];
    int                   workers;
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
    for (int i = 0; i < t->workers; i++) pthread_join(t->worker[i], nullptr);
    for (int i = 0; i < SLOTS; i++)
        if (t->sent[i]) cudaEventDestroy(t->sent[i]);
    cudaFreeHost(t->slots);
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

/* ---- pieces: threads that fill them ---------------------------------------------------------- */

/* Lets others run after a while. */
struct patience {
    int looks;

    void wait()
    {
        if (++looks > PATIENCE) sched_yield();
    }
};

/* Fills the next piece, once its slot is free; false: all are taken. */
static bool fill_piece(dra_cuda_transfer *t)
{
    const upload  *u = &t->job;
    const uint64_t n = t->next.fetch_add(1);
    if (n >= u->end) return false;
    for (patience p = {}; t->allowed <= n;) p.wait();
    const span s = u->at(n);
    memcpy(t->slots + n % SLOTS * PIECE, s.from, s.bytes);
    t->filled[n % SLOTS] = n + 1;
    return true;
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
    dra_cuda_transfer *t = static_cast<dra_cuda_transfer *>(user);
    unsigned           known = 0;
    while (!t->over) {
        if (!enter(t, &known)) continue;
        while (fill_piece(t))
            ;
        pthread_mutex_lock(&t->door);
        if (--t->inside == 0) pthread_cond_signal(&t->left_all);
        pthread_mutex_unlock(&t->door);
    }
    return nullptr;
}

/* Slots and threads, at the first large upload. */
static cudaError_t open_slots(dra_cuda_transfer *t)
{
    void         *slots = nullptr;
    cudaError_t   error = cudaSuccess;
    const int64_t most = dra_imin(WORKERS, sysconf(_SC_NPROCESSORS_ONLN) - 1);
    if (t->slots) return error;
    for (int i = 0; i < SLOTS && error == cudaSuccess; i++)
        if (!t->sent[i]) error = cudaEventCreateWithFlags(&t->sent[i], cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaMallocHost(&slots, SLOTS * PIECE);
    if (error != cudaSuccess) return error;
    t->slots = static_cast<unsigned char *>(slots);
    for (; t->workers < most; t->workers++)
        if (pthread_create(&t->worker[t->workers], nullptr, work, t)) break;
    return error;
}

/* ---- pieces: who sends them ------------------------------------------------------------------ */

/* Lets workers fill slots for piece n and half of all slots ahead, once the GPU has read them: the
 * other half is what it still has to do. */
static cudaError_t allow(dra_cuda_transfer *t, uint64_t n)
{
    cudaError_t    error = cudaSuccess;
    const uint64_t ahead = n + SLOTS / 2, last = ahead < t->job.end ? ahead : t->job.end - 1;
    while (t->allowed <= last && error == cudaSuccess) {
        error = cudaEventSynchronize(t->sent[t->allowed % SLOTS]);
        if (error == cudaSuccess) t->allowed++;
    }
    return error;
}

static cudaError_t send_piece(dra_cuda_device *d, uint64_t n)
{
    dra_cuda_transfer *t = d->transfer;
    cudaError_t        error = allow(t, n);
    if (error != cudaSuccess) return error;
    for (patience p = {}; t->filled[n % SLOTS] != n + 1;)
        if (t->workers == 0)
            fill_piece(t);
        else
            p.wait();
    const span s = t->job.at(n);
    error = cudaMemcpyAsync(s.to, t->slots + n % SLOTS * PIECE, s.bytes, cudaMemcpyHostToDevice,
                            d->context.stream);
    return error == cudaSuccess ? cudaEventRecord(t->sent[n % SLOTS], d->context.stream) : error;
}

/* Two pieces for each worker, or more: they end at about the same time. Whole pages. */
static size_t piece_of(const dra_cuda_transfer *t, size_t bytes)
{
    const size_t page = 4096, share = bytes / (2 * (size_t)dra_imax(1, t->workers));
    const size_t pages = (share + page - 1) / page * page;
    return pages < LEAST ? LEAST : pages < PIECE ? pages : PIECE;
}

/* The large ones of a list. */
static cudaError_t open_job(dra_cuda_transfer *t, const dra_send *list, size_t n, size_t bytes)
{
    const uint64_t first = t->job.end;
    upload u = {static_cast<span *>(calloc(n, sizeof *u.spans)), 0, piece_of(t, bytes), first,
                first};
    if (!u.spans) return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < n; i++) {
        const dra_span to = list[i].to;
        if (to.bytes <= SMALL) continue;
        u.spans[u.n++] = {dra_span_address(to), static_cast<const unsigned char *>(list[i].from),
                          to.bytes, u.end};
        u.end += (to.bytes + u.piece - 1) / u.piece;
    }
    pthread_mutex_lock(&t->door);
    t->job = u;
    t->next = first;
    t->open = true;
    t->jobs++;
    pthread_cond_broadcast(&t->opened);
    pthread_mutex_unlock(&t->door);
    return cudaSuccess;
}

static void close_job(dra_cuda_transfer *t, cudaError_t error)
{
    t->next = t->job.end; /* after a failure nobody waits for a slot */
    t->allowed = error == cudaSuccess ? t->allowed.load() : t->job.end;
    pthread_mutex_lock(&t->door);
    t->open = false; /* who is late finds nothing */
    while (t->inside > 0) pthread_cond_wait(&t->left_all, &t->door);
    pthread_mutex_unlock(&t->door);
    free(t->job.spans);
    t->job.spans = nullptr;
}

static cudaError_t upload_large(dra_cuda_device *d, const dra_send *list, size_t n, size_t bytes)
{
    dra_cuda_transfer *t = d->transfer;
    cudaError_t        error = open_slots(t);
    if (error == cudaSuccess) error = open_job(t, list, n, bytes);
    if (error != cudaSuccess) return error;
    for (uint64_t k = t->job.first; k < t->job.end && error == cudaSuccess; k++)
        error = send_piece(d, k);
    close_job(t, error);
    return error;
}

/* ---- the device's functions ------------------------------------------------------------------ */

static cudaError_t upload_all(dra_cuda_device *d, const dra_send *list, size_t n)
{
    cudaError_t error = cudaSuccess;
    size_t      large = 0;
    for (size_t i = 0; i < n && error == cudaSuccess; i++) {
        const size_t bytes = list[i].to.bytes;
        if (bytes > SMALL)
            large += bytes;
        else if (bytes)
            error = upload_small(d, dra_span_address(list[i].to), list[i].from, bytes);
    }
    return error == cudaSuccess && large ? upload_large(d, list, n, large) : error;
}

dra_status dra_cuda_upload(dra_device *base, const dra_send *list, size_t n, dra_error *err)
{
    dra_cuda_device *d = reinterpret_cast<dra_cuda_device *>(base);
    cudaSetDevice(d->number);
    pthread_mutex_lock(&d->transfer->lock);
    const cudaError_t error = upload_all(d, list, n);
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
