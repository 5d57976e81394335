/* The pool: workers look a little for the next job, then sleep.
 *
 * Each thread has a seat with all it needs to know of a job, on cache lines of its own: the caller
 * writes them, one thread looks at them, and opening a job is one line to each worker. A worker
 * that the job is not worth is not touched at all. The gate of a seat is closed, open or busy: its
 * worker enters an open gate and closes it when no tile is left. The caller closes the gates that
 * are still open then and waits for those that are busy. So a worker that wakes late finds its gate
 * closed again and never delays a job.
 *
 * Each thread begins with a share of the tiles and takes them in order: tiles side by side often
 * read memory side by side, so what one fetches ahead is there for the next, and a thread finds in
 * its caches what it had of the last job. Then it helps with the shares of others. */
#include "device/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "device/cores.h"

enum { SPINS = 4000, SPINS_BEFORE_YIELD = 1000, PAGE = 4096 };
enum { STACK = 1 << 21, TOUCHED = 256 * 1024 }; /* of a worker, and what tiles use of it */
enum { MANY_CORES = 8 };
enum { LINES = 128 }; /* processors fetch cache lines in pairs */

typedef enum gate { CLOSED, OPEN, BUSY } gate;

typedef struct job {
    dra_pool_tile tile;
    void         *user;
    int64_t       tiles;
    int           threads;
    uint32_t      number;
} job;

typedef struct seat {
    _Alignas(LINES) atomic_int gate;
    job             job;
    _Atomic int64_t taken; /* of its share: the job's number, then how many tiles, 32 bits each */

    _Alignas(LINES) dra_pool *pool; /* from here on what is used to sleep */
    pthread_t       thread;
    atomic_bool     asleep;
    pthread_mutex_t sleep;
    pthread_cond_t  wake;
} seat;

struct dra_pool {
    seat           *seats;      /* the first is the caller's */
    int             n, workers; /* seats, and how many of them have a worker */
    int             spins;
    uint32_t        jobs;
    pthread_mutex_t owner; /* held by the thread whose job runs */
    _Alignas(LINES) atomic_int sleepers;
    atomic_bool stop;
};

static void relax_spin(int spins)
{
    if (spins >= SPINS_BEFORE_YIELD) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The share that begins in seat k: tiles share_start(k) .. share_start(k + 1) - 1. */
static int64_t share_start(const job *j, int k) { return k * j->tiles / j->threads; }

/* A share that the caller has not set yet has the number of another job, and is left alone. */
static void run_share(const job *j, seat *s, int k)
{
    const int64_t first = share_start(j, k), n = share_start(j, k + 1) - first;
    for (;;) {
        int64_t at = atomic_load_explicit(&s->taken, memory_order_relaxed);
        if (at >> 32 != (int64_t)j->number || (at & UINT32_MAX) >= n) return;
        at = atomic_fetch_add_explicit(&s->taken, 1, memory_order_relaxed);
        if (at >> 32 != (int64_t)j->number || (at & UINT32_MAX) >= n) return;
        j->tile(j->user, first + (at & UINT32_MAX));
    }
}

static void work_tiles(dra_pool *p, int own)
{
    const job j = p->seats[own].job;
    int       k = own;
    do {
        run_share(&j, &p->seats[k], k);
        k = k + 1 < j.threads ? k + 1 : 0;
    } while (k != own);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* The caller opens the gate, then asks for sleepers; a worker counts as one, then looks at its
 * gate. Both change the count, so one of them sees what the other did. */
static void sleep_until_open(seat *s)
{
    dra_pool *const p = s->pool;
    pthread_mutex_lock(&s->sleep);
    atomic_store(&s->asleep, true);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&s->gate) != OPEN && !atomic_load(&p->stop))
        pthread_cond_wait(&s->wake, &s->sleep);
    atomic_fetch_sub(&p->sleepers, 1);
    atomic_store(&s->asleep, false);
    pthread_mutex_unlock(&s->sleep);
}

/* Touches the stack, so that the first tile that a worker runs finds it in memory. */
static void touch_stack(void)
{
    volatile unsigned char room[TOUCHED];
    for (size_t i = 0; i < sizeof room; i += PAGE) room[i] = 0;
}

static void *run_worker(void *arg)
{
    seat *const     s = arg;
    dra_pool *const p = s->pool;
    touch_stack();
    while (!atomic_load(&p->stop)) {
        int open = OPEN;
        for (int i = 0; i < p->spins && atomic_load(&s->gate) != OPEN; i++) relax_spin(i);
        if (atomic_load(&s->gate) != OPEN) sleep_until_open(s);
        if (!atomic_compare_exchange_strong(&s->gate, &open, BUSY)) continue;
        work_tiles(p, (int)(s - p->seats));
        atomic_store_explicit(&s->gate, CLOSED, memory_order_release);
    }
    return NULL;
}

static void wake_workers(dra_pool *p, int threads)
{
    if (atomic_fetch_add(&p->sleepers, 0) == 0) return;
    for (int i = 1; i < threads; i++) {
        seat *s = &p->seats[i];
        if (!atomic_load(&s->asleep)) continue;
        pthread_mutex_lock(&s->sleep);
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->sleep);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void open_gates(dra_pool *p, const job *j)
{
    const int64_t none = (int64_t)((uint64_t)j->number << 32);
    for (int i = 0; i < j->threads; i++) {
        seat *s = &p->seats[i];
        s->job = *j;
        atomic_store_explicit(&s->taken, none, memory_order_relaxed);
        if (i) atomic_store_explicit(&s->gate, OPEN, memory_order_release);
    }
    wake_workers(p, j->threads);
}

static void close_gates(dra_pool *p, int threads)
{
    for (int i = 1; i < threads; i++) {
        seat *s = &p->seats[i];
        int   open = OPEN;
        if (atomic_load_explicit(&s->gate, memory_order_relaxed) == OPEN &&
            atomic_compare_exchange_strong(&s->gate, &open, CLOSED))
            continue;
        for (int k = 0; atomic_load_explicit(&s->gate, memory_order_acquire) != CLOSED; k++)
            relax_spin(p->spins ? k : SPINS_BEFORE_YIELD);
    }
}

void dra_pool_run(dra_pool *p, int threads, int64_t tiles, dra_pool_tile tile, void *user)
{
    const int all = p->workers + 1;
    int       n = threads > 0 && threads < all ? threads : all;
    if (tiles < n) n = (int)tiles;
    if (n <= 1 || tiles > INT32_MAX || pthread_mutex_trylock(&p->owner) != 0) {
        for (int64_t i = 0; i < tiles; i++) tile(user, i);
        return;
    }
    p->jobs = (p->jobs + 1) & INT32_MAX; /* so that numbers and counts stay positive together */
    const job j = {tile, user, tiles, n, p->jobs};
    open_gates(p, &j);
    work_tiles(p, 0);
    close_gates(p, n);
    pthread_mutex_unlock(&p->owner);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* A pool as large as what the process may use has a core for each thread: there, workers stay where
 * their caches are, and the first core is left to the caller. A smaller one may not be alone, and
 * on few cores one other process is enough to hold up a worker that cannot move. */
static bool pins_threads(int threads, int cores)
{
    const char *wish = getenv("DRA_PIN");
    return wish && *wish ? *wish != '0' : threads == cores && cores >= MANY_CORES;
}

/* With stacks of one size, whatever the system's default is. */
static bool start_workers(dra_pool *p, int n, bool pin)
{
    pthread_attr_t how;
    if (pthread_attr_init(&how) != 0) return false;
    bool well = pthread_attr_setstacksize(&how, STACK) == 0;
    for (int i = 1; i <= n && well; i++) {
        seat *s = &p->seats[i];
        well = pthread_create(&s->thread, &how, run_worker, s) == 0;
        p->workers += well;
        if (well && pin) dra_cores_pin(s->thread, i);
    }
    pthread_attr_destroy(&how);
    return well;
}

static seat *make_seats(dra_pool *p, int n)
{
    seat *seats = aligned_alloc(LINES, (size_t)n * sizeof *seats);
    for (int i = 0; seats && i < n; i++) {
        seats[i] = (seat){.pool = p};
        pthread_mutex_init(&seats[i].sleep, NULL);
        pthread_cond_init(&seats[i].wake, NULL);
    }
    return seats;
}

dra_pool *dra_pool_create(int threads)
{
    const int cores = dra_cores_count(), n = threads > 1 ? threads : 1;
    dra_pool *p = aligned_alloc(LINES, sizeof *p);
    if (!p) return NULL;
    *p = (dra_pool){.seats = make_seats(p, n), .n = n, .spins = n <= cores ? SPINS : 0};
    if (!p->seats) {
        free(p);
        return NULL;
    }
    pthread_mutex_init(&p->owner, NULL);
    if (start_workers(p, n - 1, pins_threads(n, cores))) return p;
    dra_pool_destroy(p);
    return NULL;
}

void dra_pool_destroy(dra_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    wake_workers(p, p->workers + 1);
    for (int i = 1; i <= p->workers; i++) pthread_join(p->seats[i].thread, NULL);
    for (int i = 0; i < p->n; i++) {
        pthread_cond_destroy(&p->seats[i].wake);
        pthread_mutex_destroy(&p->seats[i].sleep);
    }
    pthread_mutex_destroy(&p->owner);
    free(p->seats);
    free(p);
}

int dra_pool_threads(const dra_pool *p) { return p->workers + 1; }
