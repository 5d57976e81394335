/* Runs blocks of CUDA threads on the host, see cuda_runtime.h.
 *
 * A fiber runs CUDA threads of the block one after the other. A thread that has to wait for others
 * keeps its fiber, and the next threads run on another one. So a kernel whose threads never wait
 * needs one fiber, and one that does needs as many as there are threads. Fibers are started by
 * makecontext() and switched by _longjmp(), which needs no call of the system. */
#undef _FORTIFY_SOURCE /* it does not let a jump leave the stack it is on */
#include "cuda_runtime.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

uint3 threadIdx, blockIdx;
dim3  blockDim, gridDim;

namespace {

enum { STACK = 128 << 10, LANES = 32, MOST_SHARED = 228 << 10 };

struct fiber {
    ucontext_t start;
    jmp_buf    at; /* where it waits */
    bool       started;
    void      *stack;
    uint3      thread; /* that runs on it */
    bool       done;   /* no thread is left for it */
};

struct barrier {
    unsigned live, arrived, round;
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one launch at a time */

std::vector<fiber *>         fibers; /* kept from launch to launch */
const std::function<void()> *body;
jmp_buf                      scheduler;
ucontext_t                   unused;
size_t                       current, used; /* of the fibers of this block */
unsigned                     next_thread, threads;
barrier                      block;
std::vector<barrier>         warps;
std::vector<uint64_t>        slots; /* by thread: what it hands in */
alignas(64) unsigned char shared[MOST_SHARED];

unsigned number_of(uint3 t) { return t.x + blockDim.x * (t.y + blockDim.y * t.z); }

uint3 thread_at(unsigned i)
{
    return {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
}

void yield_fiber(void)
{
    fiber *me = fibers[current];
    me->thread = threadIdx;
    if (!_setjmp(me->at)) _longjmp(scheduler, 1);
    threadIdx = me->thread;
}

void leave(barrier *b)
{
    b->live--;
    if (b->live && b->arrived == b->live) b->arrived = 0, b->round++;
}

void wait_for(barrier *b)
{
    const unsigned round = b->round;
    if (++b->arrived == b->live) {
        b->arrived = 0;
        b->round++;
        return;
    }
    while (b->round == round) yield_fiber();
}

void run_threads(void) /* what a fiber does */
{
    while (next_thread < threads) {
        const unsigned i = next_thread++;
        threadIdx = thread_at(i);
        (*body)();
        leave(&block);
        leave(&warps[i / LANES]);
    }
    fibers[current]->done = true;
    _longjmp(scheduler, 1);
}

void resume(fiber *f)
{
    if (_setjmp(scheduler)) return;
    if (f->started) _longjmp(f->at, 1);
    f->started = true;
    swapcontext(&unused, &f->start);
}

void start_fiber(void)
{
    if (used == fibers.size()) {
        fiber *f = new fiber;
        f->stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f->stack == MAP_FAILED) abort();
        fibers.push_back(f);
    }
    fiber *f = fibers[used++];
    f->done = f->started = false;
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = f->stack;
    f->start.uc_stack.ss_size = STACK;
    makecontext(&f->start, run_threads, 0);
}

void run_block(void)
{
    used = 0;
    next_thread = 0;
    block = {threads, 0, 0};
    warps.assign((threads + LANES - 1) / LANES, barrier{});
    for (unsigned i = 0; i < threads; i++) warps[i / LANES].live++;
    bool busy = true;
    while (busy) {
        busy = false;
        if (next_thread < threads) start_fiber();
        for (current = 0; current < used; current++) {
            if (fibers[current]->done) continue;
            busy = true;
            resume(fibers[current]);
            if (next_thread < threads && current + 1 == used) start_fiber();
        }
    }
}

} // namespace

void cuda_host_launch(dim3 grid, dim3 size, size_t bytes, const std::function<void()> &thread)
{
    threads = size.x * size.y * size.z;
    if (!threads || threads > 1024 || bytes > MOST_SHARED || !grid.x || !grid.y || !grid.z ||
        grid.y > 65535 || grid.z > 65535) {
        fprintf(stderr, "cuda_host: a launch of (%u, %u, %u) blocks of %u threads, %zu bytes\n",
                grid.x, grid.y, grid.z, threads, bytes);
        abort();
    }
    pthread_mutex_lock(&lock);
    body = &thread;
    gridDim = grid;
    blockDim = size;
    slots.assign(threads, 0);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = {x, y, z};
                memset(shared, 0xFF, bytes); /* nobody may rely on what is there */
                run_block();
            }
    pthread_mutex_unlock(&lock);
}

void *cuda_host_shared(void) { return shared; }

void cuda_host_sync_block(void) { wait_for(&block); }
void cuda_host_sync_warp(void) { wait_for(&warps[number_of(threadIdx) / LANES]); }

uint64_t cuda_host_exchange(uint64_t mine, int lane)
{
    const unsigned first = number_of(threadIdx) / LANES * LANES;
    slots[number_of(threadIdx)] = mine;
    cuda_host_sync_warp();
    const unsigned from = first + (unsigned)lane;
    const uint64_t got = from < threads ? slots[from] : 0;
    cuda_host_sync_warp();
    return got;
}

unsigned cuda_host_ballot(int yes)
{
    const unsigned first = number_of(threadIdx) / LANES * LANES;
    slots[number_of(threadIdx)] = yes != 0;
    cuda_host_sync_warp();
    unsigned bits = 0;
    for (unsigned i = 0; i < LANES && first + i < threads; i++)
        bits |= (unsigned)slots[first + i] << i;
    cuda_host_sync_warp();
    return bits;
}

int cuda_host_least(int x)
{
    const unsigned first = number_of(threadIdx) / LANES * LANES;
    slots[number_of(threadIdx)] = (uint64_t)(int64_t)x;
    cuda_host_sync_warp();
    int least = x;
    for (unsigned i = first; i < first + LANES && i < threads; i++)
        least = (int)slots[i] < least ? (int)slots[i] : least;
    cuda_host_sync_warp();
    return least;
}

/* ---- run time -------------------------------------------------------------------------------- */

/* Pages before and after every array are closed. It ends with a page, or less than 64 bytes before;
 * every second one begins with a page instead: what is read or written outside is found out, as on
 * a GPU, if it is far enough. */
static std::map<void *, std::pair<void *, size_t>> mapped; /* by array: its pages */
static pthread_mutex_t                             mapped_lock = PTHREAD_MUTEX_INITIALIZER;

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (bytes + 63) / 64 * 64;
    const size_t whole = (used + page - 1) / page * page;
    static std::atomic<unsigned> arrays;
    *out = nullptr;
    if (bytes > (size_t)8 << 30) return cudaErrorMemoryAllocation;
    void *map = mmap(nullptr, whole + 2 * page, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return cudaErrorMemoryAllocation;
    char *const first = static_cast<char *>(map) + page;
    mprotect(first, whole, PROT_READ | PROT_WRITE);
    *out = arrays++ % 2 == 0 ? first + whole - used : first;
    pthread_mutex_lock(&mapped_lock);
    mapped[*out] = {map, whole + 2 * page};
    pthread_mutex_unlock(&mapped_lock);
    return cudaSuccess;
}

cudaError_t cudaFree(void *data)
{
    pthread_mutex_lock(&mapped_lock);
    const auto at = mapped.find(data);
    if (at != mapped.end()) {
        munmap(at->second.first, at->second.second);
        mapped.erase(at);
    }
    pthread_mutex_unlock(&mapped_lock);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    if (bytes) memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t)
{
    if (bytes) memset(at, value, bytes);
    return cudaSuccess;
}

/* An event is the time at which it was recorded. */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    *out = calloc(1, sizeof(timespec));
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    clock_gettime(CLOCK_MONOTONIC, static_cast<timespec *>(event));
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    const timespec *a = static_cast<timespec *>(from), *b = static_cast<timespec *>(to);
    *ms = 1e3f * (float)(b->tv_sec - a->tv_sec) + 1e-6f * (float)(b->tv_nsec - a->tv_nsec);
    return cudaSuccess;
}

/* For tests of what is said where something is missing: DRA_CUDA_HOST_LACKS=driver, newer (a newer
 * driver), gpu, free (a GPU that nobody has), memory. */
static bool lacks(const char *what)
{
    const char *missing = getenv("DRA_CUDA_HOST_LACKS");
    return missing && strcmp(missing, what) == 0;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return lacks("driver") || lacks("newer") ? cudaErrorInsufficientDriver
           : lacks("gpu")                    ? cudaErrorNoDevice
                                             : cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = lacks("driver") ? 0 : lacks("newer") ? 11040 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int)
{
    return lacks("free")     ? cudaErrorDevicesUnavailable
           : lacks("memory") ? cudaErrorMemoryAllocation
                             : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device) return cudaErrorInvalidDevice;
    *p = cudaDeviceProp{};
    snprintf(p->name, sizeof p->name, "CUDA on the host, for tests");
    p->totalGlobalMem = (size_t)8 << 30;
    p->multiProcessorCount = 2;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess                 ? "no error"
           : error == cudaErrorMemoryAllocation ? "out of memory"
                                                : "invalid device ordinal";
}
