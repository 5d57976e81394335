/* The CPU device: plain memory, the thread pool, the kernels of src/ops. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "device/pool.h"

enum { MAX_THREADS = 1024, ALIGN = 64 };

typedef struct cpu_device {
    dra_device base;
    dra_pool  *pool;
} cpu_device;

static const dra_simd *const levels[] = {&dra_simd_ref};
static const char *const     level_names[] = {"ref", NULL};

const char *const *dra_device_levels(void) { return level_names; }

static void *cpu_alloc(dra_device *d, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGN) return NULL;
    return aligned_alloc(ALIGN, bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN);
}

static void cpu_free(dra_device *d, void *data) { free(data); }

static void cpu_copy(dra_device *d, void *to, const void *from, size_t bytes)
{
    if (bytes) memmove(to, from, bytes);
}

static const dra_kernel *cpu_find(const dra_device *d, const struct dra_op *op)
{
    for (const dra_kernel *const *k = dra_cpu_kernels; *k; k++)
        if ((*k)->op == op) return *k;
    return NULL;
}

typedef struct job {
    const dra_kernel *kernel;
    const dra_call   *call;
} job;

static void run_tile(void *user, int64_t i)
{
    const job *j = user;
    j->kernel->tile(j->call, i);
}

static void cpu_run(dra_device *d, const dra_kernel *k, dra_call *c)
{
    const int64_t stages = k->stages ? k->stages(c) : 1;
    job           j = {k, c};
    for (c->stage = 0; c->stage < stages && !atomic_load(&c->fault->set); c->stage++)
        dra_pool_run(((cpu_device *)d)->pool, k->tiles(c), run_tile, &j);
}

static int32_t cpu_read_flag(dra_device *d, const int32_t *flag) { return *flag; }

static void cpu_destroy(dra_device *d)
{
    dra_pool_destroy(((cpu_device *)d)->pool);
    free(d);
}

static const dra_device_table cpu_table = {cpu_alloc, cpu_free,      cpu_copy,   cpu_find,
                                           cpu_run,   cpu_read_flag, cpu_destroy};

static const dra_simd *find_level(const char *name)
{
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!name || !*name || strcmp(levels[i]->name, name) == 0) return levels[i];
    return NULL;
}

dra_status dra_device_create_cpu(const dra_cpu_config *config, dra_device **out, dra_error *err)
{
    *out = NULL;
    const long      processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int       wanted = config ? config->threads : 0;
    const int       threads = wanted ? wanted : processors > 0 ? (int)processors : 1;
    const dra_simd *simd = find_level(config ? config->level : NULL);
    if (threads < 1 || threads > MAX_THREADS)
        return dra_fail(err, DRA_ERR_VALUE, "cpu device: %d threads, expected 1 to %d", threads,
                        MAX_THREADS);
    if (!simd)
        return dra_fail(err, DRA_ERR_VALUE, "cpu device: no level '%s'; this build has 'ref'",
                        config->level);
    cpu_device *d = calloc(1, sizeof *d);
    if (!d) return dra_fail(err, DRA_ERR_MEMORY, "cpu device: out of memory");
    d->base = (dra_device){&cpu_table, simd};
    d->pool = dra_pool_create(threads);
    if (!d->pool) {
        free(d);
        return dra_fail(err, DRA_ERR_DEVICE, "cpu device: cannot start %d threads", threads);
    }
    *out = &d->base;
    return DRA_OK;
}

void dra_device_destroy(dra_device *device)
{
    if (device) device->table->destroy(device);
}

int dra_device_threads(const dra_device *device)
{
    return dra_pool_threads(((const cpu_device *)device)->pool);
}

const char *dra_device_level(const dra_device *device) { return device->simd->name; }
