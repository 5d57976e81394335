/* The CPU device: plain memory, the thread pool, and the kernels it was created with. run_block.c
 * runs the instructions. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/cores.h"
#include "device/cpu_kernel.h"
#include "device/device.h"
#include "device/limits.h"
#include "device/pool.h"

enum { MAX_THREADS = 1024, GRAIN = 2000 };

typedef struct cpu_device {
    dra_device                   base;
    dra_pool                    *pool;
    dra_simd                     simd;    /* its level's */
    const dra_cpu_kernel *const *kernels; /* NULL after the last */
    double                       grain; /* nanoseconds of work that a thread is worth waking for */
} cpu_device;

static void *cpu_alloc(dra_device *d, size_t bytes) { return dra_pages_alloc(bytes); }
static void  cpu_free(dra_device *d, void *data, size_t bytes) { dra_pages_free(data, bytes); }

/* Large pieces are written by all threads, in the same shares as tiles, so that new pages are
 * placed in memory near the thread that will read them. */
enum { LARGE = 8 << 20, PIECE = 1 << 18 };

typedef struct writing {
    unsigned char       *to;
    const unsigned char *from; /* NULL: fills */
    size_t               bytes;
    dra_real             value;
} writing;

static void write_piece(void *user, int64_t i)
{
    const writing *w = user;
    const size_t   first = (size_t)i * PIECE, left = w->bytes - first;
    const size_t   n = left < PIECE ? left : PIECE;
    dra_real      *at = (void *)(w->to + first);
    if (w->from)
        memcpy(at, w->from + first, n);
    else
        for (size_t k = 0; k < n / sizeof *at; k++) at[k] = w->value;
}

static void write_all(dra_device *d, writing w)
{
    const int threads = w.bytes < LARGE ? 1 : 0;
    dra_pool_run(((cpu_device *)d)->pool, threads, (int64_t)((w.bytes + PIECE - 1) / PIECE),
                 write_piece, &w);
}

static dra_status cpu_copy(dra_device *d, void *to, const void *from, size_t bytes, dra_error *err)
{
    const uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if (bytes < LARGE || (a < b + bytes && b < a + bytes))
        memmove(to, from, bytes);
    else
        write_all(d, (writing){.to = to, .from = from, .bytes = bytes});
    return DRA_OK;
}

static dra_status cpu_upload(dra_device *d, const dra_send *list, size_t n, dra_error *err)
{
    for (size_t i = 0; i < n; i++)
        cpu_copy(d, dra_span_address(list[i].to), list[i].from, list[i].to.bytes, NULL);
    return DRA_OK;
}

static dra_status cpu_download(dra_device *d, const dra_fetch *list, size_t n, dra_error *err)
{
    for (size_t i = 0; i < n; i++)
        cpu_copy(d, list[i].to, dra_span_address(list[i].from), list[i].from.bytes, NULL);
    return DRA_OK;
}

static dra_status cpu_fill(dra_device *d, void *to, dra_real value, size_t count, dra_error *err)
{
    write_all(d, (writing){.to = to, .bytes = count * sizeof value, .value = value});
    return DRA_OK;
}

static const dra_kernel *cpu_find(const dra_device *d, const char *op)
{
    for (const dra_cpu_kernel *const *k = ((const cpu_device *)d)->kernels; *k; k++)
        if (strcmp((*k)->base.op, op) == 0) return &(*k)->base;
    return NULL;
}

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct job { /* one stage of all calls; call k has the tiles from its `before` on */
    int              n;
    dra_kernel_call *calls;
} job;

static const dra_cpu_kernel *kernel_of(const dra_kernel_call *k)
{
    return (const dra_cpu_kernel *)k->kernel;
}

static void run_tile(void *user, int64_t i)
{
    const job *j = user;
    int        k = 0;
    while (k + 1 < j->n && i >= j->calls[k + 1].call.before) k++;
    kernel_of(&j->calls[k])->tile(&j->calls[k].call, i - j->calls[k].call.before);
}

static int64_t stages_of(const dra_kernel_call *k)
{
    return kernel_of(k)->stages ? kernel_of(k)->stages(&k->call) : 1;
}

/* How many threads pay off for these calls: each should have more to do than waking it and
 * waiting for it takes. */
static int threads_for(const cpu_device *cpu, int n, const dra_kernel_call *calls)
{
    double work = 0;
    for (int i = 0; i < n; i++) {
        if (calls[i].call.work <= 0) return 0;
        work += calls[i].call.work;
    }
    const double threads = cpu->grain > 0 ? work / cpu->grain : 0;
    return threads >= cpu->base.threads || cpu->grain <= 0 ? 0 : threads < 1 ? 1 : (int)threads;
}

void dra_cpu_run_calls(dra_device *d, int n, dra_kernel_call *calls)
{
    const cpu_device *cpu = (const cpu_device *)d;
    const int         threads = threads_for(cpu, n, calls);
    const dra_fault  *fault = calls[0].call.fault;
    int64_t           stages = 0, of[DRA_GROUP];
    job               j = {n, calls};
    for (int i = 0; i < n; i++) {
        calls[i].call.context = &cpu->simd;
        calls[i].call.threads = cpu->base.threads;
        of[i] = stages_of(&calls[i]);
        stages = of[i] > stages ? of[i] : stages;
    }
    for (int64_t stage = 0; stage < stages && !atomic_load(&fault->kind); stage++) {
        int64_t tiles = 0;
        for (int i = 0; i < n; i++) {
            calls[i].call.stage = stage;
            calls[i].call.before = tiles;
            if (stage < of[i]) tiles += kernel_of(&calls[i])->tiles(&calls[i].call);
        }
        dra_pool_run(cpu->pool, threads, tiles, run_tile, &j);
    }
}

static dra_status cpu_run(dra_device *d, const dra_launch *l, int32_t block, dra_error *err)
{
    dra_walk(d, l, block, dra_cpu_run_calls);
    return DRA_OK;
}

static void cpu_destroy(dra_device *d)
{
    dra_arrays_close(d);
    dra_pool_destroy(((cpu_device *)d)->pool);
    free(d);
}

static const dra_device_table cpu_table = {.alloc = cpu_alloc,
                                           .free = cpu_free,
                                           .upload = cpu_upload,
                                           .download = cpu_download,
                                           .fill = cpu_fill,
                                           .copy = cpu_copy,
                                           .find = cpu_find,
                                           .run = cpu_run,
                                           .destroy = cpu_destroy,
                                           .limits = dra_cpu_limits,
                                           .borrows = true,
                                           .walks = true};

static const dra_simd *find_level(const char *name)
{
    for (const dra_simd *const *level = dra_simd_levels(); *level; level++)
        if (!name || !*name || strcmp((*level)->name, name) == 0) return *level;
    return NULL;
}

const char *dra_device_level_at(size_t i)
{
    size_t n = 0;
    while (dra_simd_levels()[n]) n++;
    return i < n ? dra_simd_levels()[i]->name : NULL;
}

/* A number from the environment, for comparisons; see docs/speed.md. */
static double read_setting(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtod(text, NULL) : otherwise;
}

dra_status dra_cpu_create(const dra_cpu_config *config, const dra_cpu_kernel *const *kernels,
                          dra_device **out, dra_error *err)
{
    *out = NULL;
    const int       wanted = config ? config->threads : 0;
    const int       threads = wanted ? wanted : dra_cores_count();
    const char     *level = config && config->level ? config->level : getenv("DRA_CPU");
    const dra_simd *simd = find_level(level);
    if (threads < 1 || threads > MAX_THREADS)
        return dra_fail(err, DRA_ERR_VALUE, "cpu device: %d threads, expected 1 to %d", threads,
                        MAX_THREADS);
    if (!simd)
        return dra_fail(err, DRA_ERR_VALUE, "cpu device: no level '%s' here; the best is '%s'",
                        level, dra_simd_levels()[0]->name);
    cpu_device *d = calloc(1, sizeof *d);
    if (!d) return dra_fail(err, DRA_ERR_MEMORY, "cpu device: out of memory");
    *d = (cpu_device){.base = {.table = &cpu_table, .level = simd->name, .threads = threads},
                      .pool = dra_pool_create(threads),
                      .simd = *simd,
                      .kernels = kernels,
                      .grain = read_setting("DRA_GRAIN", GRAIN)};
    d->simd.caches = dra_caches_find();
    if (read_setting("DRA_PACK", 1) == 0) d->simd.pack_depth = 0;
    d->base.context = &d->simd;
    d->base.groups = threads > 1 && read_setting("DRA_GROUPS", 1) != 0;
    dra_arrays_open(&d->base.arrays);
    if (!d->pool) {
        free(d);
        return dra_fail(err, DRA_ERR_MEMORY,
                        "cpu device: out of memory, or of threads: cannot start %d", threads);
    }
    *out = &d->base;
    return DRA_OK;
}

void dra_device_destroy(dra_device *device)
{
    if (device) device->table->destroy(device);
}

int dra_device_threads(const dra_device *device) { return device->threads; }

const char *dra_device_level(const dra_device *device) { return device->level; }
