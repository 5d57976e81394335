/* The pool: workers spin a little for the next job, then sleep.
 *
 * A job is open or closed. `gate` counts the workers inside, with the CLOSED bit on top: a worker
 * enters only while the gate is open, the caller closes it when no tile is left and waits for the
 * count to fall to zero. A worker that wakes late finds the gate closed and goes back, so a
 * sleeping worker never delays a job.
 *
 * Each thread begins with a share of the tiles and takes them in order: tiles side by side often
 * read memory side by side, so what one fetches ahead is there for the next. Then it helps with the
 * shares of others. */
#include "device/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SPINS = 4000, SPINS_BEFORE_YIELD = 1000, PAGE = 4096 };
enum { STACK = 1 << 21, TOUCHED = 256 * 1024 }; /* of a worker, and what tiles use of it */
#define CLOSED (1u << 31)

typedef struct share { /* of the open job; written only while the gate is closed and empty */
    _Alignas(64) _Atomic int64_t next;
    int64_t   end;
    dra_pool *pool;
} share;

struct dra_pool {
    _Alignas(64) atomic_uint gate;
    _Alignas(64) atomic_uint epoch; /* counts jobs; workers wait for it to move */
    share          *shares;         /* the first is the caller's */
    dra_pool_tile   tile;           /* of the open job, as its shares are */
    void           *user;
    atomic_int      sleepers;
    atomic_bool     stop;
    pthread_mutex_t owner; /* held by the thread whose job runs */
    pthread_mutex_t sleep;
    pthread_cond_t  wake;
    int             workers;
    pthread_t       thread[];
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void work(share *own)
{
    dra_pool *const p = own->pool;
    share *const    end = p->shares + p->workers + 1;
    share          *s = own;
    do {
        for (;;) {
            const int64_t i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (i >= s->end) break;
            p->tile(p->user, i);
        }
        s = s + 1 < end ? s + 1 : p->shares;
    } while (s != own);
}

static void join_job(share *own)
{
    dra_pool *const p = own->pool;
    unsigned        gate = atomic_load(&p->gate);
    while (!(gate & CLOSED)) {
        if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) {
            work(own);
            atomic_fetch_sub_explicit(&p->gate, 1, memory_order_release);
            return;
        }
    }
}

static void sleep_until_moved(dra_pool *p, unsigned seen)
{
    pthread_mutex_lock(&p->sleep);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->epoch) == seen && !atomic_load(&p->stop))
        pthread_cond_wait(&p->wake, &p->sleep);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->sleep);
}

/* So that the first tile a worker runs, whenever that is, finds its stack in memory. */
static void touch_stack(void)
{
    volatile unsigned char room[TOUCHED];
    for (size_t i = 0; i < sizeof room; i += PAGE) room[i] = 0;
}

static void *worker(void *arg)
{
    share *const    own = arg;
    dra_pool *const p = own->pool;
    touch_stack();
    unsigned seen = 0;
    while (!atomic_load(&p->stop)) {
        for (int i = 0; i < SPINS && atomic_load(&p->epoch) == seen; i++) {
            if (i < SPINS_BEFORE_YIELD)
                relax();
            else
                sched_yield();
        }
        if (atomic_load(&p->epoch) == seen) sleep_until_moved(p, seen);
        seen = atomic_load(&p->epoch);
        join_job(own);
    }
    return NULL;
}

static void wake_workers(dra_pool *p)
{
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers) == 0) return;
    pthread_mutex_lock(&p->sleep);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->sleep);
}

static void deal(dra_pool *p, int64_t tiles)
{
    const int64_t threads = p->workers + 1;
    for (int64_t i = 0; i < threads; i++) {
        share *s = &p->shares[i];
        atomic_store_explicit(&s->next, i * tiles / threads, memory_order_relaxed);
        s->end = (i + 1) * tiles / threads;
    }
}

void dra_pool_run(dra_pool *p, int64_t tiles, dra_pool_tile tile, void *user)
{
    if (tiles <= 1 || p->workers == 0 || pthread_mutex_trylock(&p->owner) != 0) {
        for (int64_t i = 0; i < tiles; i++) tile(user, i);
        return;
    }
    deal(p, tiles);
    p->tile = tile;
    p->user = user;
    atomic_store(&p->gate, 0);
    wake_workers(p);
    work(p->shares);
    atomic_fetch_or(&p->gate, CLOSED);
    for (int i = 0; atomic_load_explicit(&p->gate, memory_order_acquire) != CLOSED; i++) {
        if (i < SPINS_BEFORE_YIELD)
            relax();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&p->owner);
}

/* With stacks of one size, whatever the system's default is. */
static bool start_workers(dra_pool *p, size_t n)
{
    pthread_attr_t how;
    if (pthread_attr_init(&how) != 0) return false;
    bool well = pthread_attr_setstacksize(&how, STACK) == 0;
    for (size_t i = 0; i < n && well; i++) {
        well = pthread_create(&p->thread[i], &how, worker, &p->shares[i + 1]) == 0;
        p->workers += well;
    }
    pthread_attr_destroy(&how);
    return well;
}

dra_pool *dra_pool_create(int threads)
{
    const size_t workers = threads > 1 ? (size_t)threads - 1 : 0;
    const size_t size = sizeof(dra_pool) + workers * sizeof(pthread_t);
    dra_pool    *p = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p) return NULL;
    *p = (dra_pool){.gate = CLOSED, .shares = aligned_alloc(64, (workers + 1) * sizeof(share))};
    if (!p->shares) {
        free(p);
        return NULL;
    }
    for (size_t i = 0; i <= workers; i++) p->shares[i] = (share){.pool = p};
    pthread_mutex_init(&p->owner, NULL);
    pthread_mutex_init(&p->sleep, NULL);
    pthread_cond_init(&p->wake, NULL);
    if (start_workers(p, workers)) return p;
    dra_pool_destroy(p);
    return NULL;
}

void dra_pool_destroy(dra_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    wake_workers(p);
    for (int i = 0; i < p->workers; i++) pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->sleep);
    pthread_mutex_destroy(&p->owner);
    free(p->shares);
    free(p);
}

int dra_pool_threads(const dra_pool *p) { return p->workers + 1; }
