/* Limits of the CPU: loops that do nothing but compute, or nothing but move memory. They go to
 * the device as kernels do, so they run on the same threads, cut into tiles the same way. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/shape.h"
#include "device/cpu_kernel.h"
#include "device/device.h"
#include "device/limits.h"
#include "device/simd_peak.h"

static double read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_cpu(const dra_device *d) { return d->table->limits == dra_cpu_limits; }

/* Seconds of a kernel without an op: `attr` is all it gets. */
static double run_once(dra_device *d, const dra_cpu_kernel *k, const void *attr)
{
    dra_fault       fault = {0};
    dra_kernel_call c = {&k->base, {.attr = attr, .fault = &fault}};
    const double    start = read_clock();
    dra_cpu_run_calls(d, 1, &c);
    return read_clock() - start;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

enum { ROUNDS = 100000, TILES_A_THREAD = 16 }; /* a tile is about half a millisecond */

typedef struct peak_job {
    const dra_peak *peak;
    int64_t         tiles;
} peak_job;

static int64_t peak_tiles(const dra_call *c) { return ((const peak_job *)c->attr)->tiles; }

static void peak_tile(const dra_call *c, int64_t i)
{
    volatile dra_real sink = ((const peak_job *)c->attr)->peak->run(ROUNDS);
    (void)sink;
}

/* A device has a level only if the processor has it, so its loop may run. */
static const dra_peak *peak_of(const char *level)
{
    const dra_peak *peak = strncmp(level, "avx512", 6) == 0 ? dra_peak_avx512()
                           : strcmp(level, "avx2") == 0     ? dra_peak_avx2()
                                                            : NULL;
    return peak ? peak : dra_peak_ref();
}

static double measure_burst(dra_device *device, const dra_peak *peak)
{
    static const dra_cpu_kernel kernel = {.tiles = peak_tiles, .tile = peak_tile};
    const peak_job              job = {peak, (int64_t)dra_device_threads(device) * TILES_A_THREAD};
    const double                work = (double)job.tiles * ROUNDS * (double)peak->flops;
    return work / run_once(device, &kernel, &job);
}

double dra_flops_measure(dra_device *device)
{
    return is_cpu(device) ? measure_burst(device, peak_of(dra_device_level(device))) : 0;
}

double dra_bf16_flops_measure(dra_device *device)
{
    const char     *level = dra_device_level(device);
    const dra_peak *peak = strcmp(level, "avx512bf16") == 0  ? dra_peak_avx512bf16()
                           : strcmp(level, "avx512amx") == 0 ? dra_peak_avx512amx()
                                                             : NULL;
    return peak && is_cpu(device) ? measure_burst(device, peak) : 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Arrays start a little apart in their pages: a load that only seems to follow a store to the same
 * address, because the lowest 12 bits agree, has to wait for it. And a page more: memory a large
 * power of two apart shares its banks (one read, three updates: 52 GB/s instead of 42). */
enum { BLOCK = DRA_PEAK_BLOCK, TILE = 256 * 1024, SKEW = 4096 + 2 * BLOCK + 64 };

struct dra_bandwidth {
    dra_device          *device;
    dra_bandwidth_config config;
    const dra_peak      *peak;
    size_t               bytes; /* of an array, in whole blocks */
    dra_array           *memory;
    unsigned char       *array[DRA_BANDWIDTH_ARRAYS]; /* reads, then updates, then writes */
};

static int64_t stream_tiles(const dra_call *c)
{
    return dra_div_up((int64_t)((const dra_bandwidth *)c->attr)->bytes, TILE);
}

static dra_peak_pass part_of(const dra_bandwidth *s, int64_t tile)
{
    const size_t from = (size_t)tile * TILE, left = s->bytes - from;
    return (dra_peak_pass){s->array,
                           s->config.reads,
                           s->config.updates,
                           s->config.writes,
                           from,
                           from + (left < TILE ? left : TILE)};
}

/* Also the first touch: pages are placed near the thread that computes, not all near the caller. */
static void clear_tile(const dra_call *c, int64_t i)
{
    const dra_peak_pass p = part_of(c->attr, i);
    for (int k = 0; k < p.reads + p.updates + p.writes; k++)
        memset(p.array[k] + p.from, 0, p.to - p.from);
}

static void plain_tile(const dra_call *c, int64_t i)
{
    const dra_peak_pass p = part_of(c->attr, i);
    ((const dra_bandwidth *)c->attr)->peak->plain(&p);
}

static void streaming_tile(const dra_call *c, int64_t i)
{
    const dra_peak_pass p = part_of(c->attr, i);
    ((const dra_bandwidth *)c->attr)->peak->streaming(&p);
}

double dra_bandwidth_bytes(const dra_bandwidth_config *config)
{
    return (double)(config->reads + config->writes + 2 * config->updates) * (double)config->bytes;
}

static dra_status check_config(const dra_bandwidth_config *c, dra_error *err)
{
    const int  most = DRA_BANDWIDTH_ARRAYS;
    const bool each = c->reads >= 0 && c->writes >= 0 && c->updates >= 0 && c->reads <= most &&
                      c->writes <= most && c->updates <= most;
    const int sum = each ? c->reads + c->writes + c->updates : 0;
    if (sum < 1 || sum > most)
        return dra_fail(err, DRA_ERR_VALUE,
                        "stream: %d reads, %d writes, %d updates, expected 1 to %d together",
                        c->reads, c->writes, c->updates, most);
    if (c->bytes < 1 || c->bytes > SIZE_MAX / 2 / DRA_BANDWIDTH_ARRAYS)
        return dra_fail(err, DRA_ERR_VALUE, "stream: arrays of %zu bytes", c->bytes);
    return DRA_OK;
}

dra_status dra_bandwidth_create(dra_device *device, const dra_bandwidth_config *config,
                                dra_bandwidth **out, dra_error *err)
{
    static const dra_cpu_kernel clear = {.tiles = stream_tiles, .tile = clear_tile};
    *out = NULL;
    const dra_status st = check_config(config, err);
    if (st != DRA_OK) return st;
    if (!is_cpu(device))
        return dra_fail(err, DRA_ERR_DEVICE, "stream: on the CPU only, this is '%s'",
                        dra_device_level(device));
    const int      arrays = config->reads + config->writes + config->updates;
    const size_t   bytes = (config->bytes + BLOCK - 1) / BLOCK * BLOCK;
    dra_bandwidth *s = calloc(1, sizeof *s);
    if (!s || dra_array_create(device, (bytes + SKEW) * (size_t)arrays, &s->memory, NULL)) {
        free(s);
        return dra_fail(err, DRA_ERR_MEMORY, "stream: cannot have %d arrays of %zu bytes", arrays,
                        config->bytes);
    }
    s->device = device;
    s->config = *config;
    s->peak = peak_of(dra_device_level(device));
    s->bytes = bytes;
    for (int k = 0; k < arrays; k++) s->array[k] = s->memory->data + (size_t)k * (bytes + SKEW);
    run_once(device, &clear, s);
    *out = s;
    return DRA_OK;
}

void dra_bandwidth_destroy(dra_bandwidth *s)
{
    if (!s) return;
    dra_array_destroy(s->memory);
    free(s);
}

double dra_bandwidth_pass(dra_bandwidth *s, bool streaming)
{
    static const dra_cpu_kernel kernels[] = {{.tiles = stream_tiles, .tile = plain_tile},
                                             {.tiles = stream_tiles, .tile = streaming_tile}};
    return run_once(s->device, &kernels[streaming], s);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static double median_flops(dra_device *d, double (*measure)(dra_device *), int repeats)
{
    double flops[DRA_LIMITS_REPEATS];
    measure(d); /* wakes the workers and the wide units of the processor */
    for (int i = 0; i < repeats; i++) flops[i] = measure(d);
    return dra_median(flops, repeats);
}

/* Bytes per second with plain and, where asked, with streaming stores. */
static dra_status median_bytes(dra_device *d, const dra_bandwidth_config *c, int repeats,
                               double *plain, double *streaming, dra_error *err)
{
    dra_bandwidth *s;
    double         seconds[2][DRA_LIMITS_REPEATS];
    dra_status     st = dra_bandwidth_create(d, c, &s, err);
    if (st != DRA_OK) return st;
    dra_bandwidth_pass(s, false);
    for (int i = 0; i < repeats; i++) {
        seconds[0][i] = dra_bandwidth_pass(s, false);
        if (streaming) seconds[1][i] = dra_bandwidth_pass(s, true);
    }
    *plain = dra_bandwidth_bytes(c) / dra_median(seconds[0], repeats);
    if (streaming) *streaming = dra_bandwidth_bytes(c) / dra_median(seconds[1], repeats);
    dra_bandwidth_destroy(s);
    return DRA_OK;
}

dra_status dra_cpu_limits(dra_device *device, int repeats, dra_limits *out, dra_error *err)
{
    const size_t               bytes = (size_t)256 << 20; /* far more than any cache on the way */
    const dra_bandwidth_config read = {.reads = 1, .bytes = bytes};
    const dra_bandwidth_config write = {.writes = 1, .bytes = bytes};
    const dra_bandwidth_config copy = {.reads = 1, .writes = 1, .bytes = bytes};
    const dra_caches           caches = ((const dra_simd *)device->context)->caches;
    memcpy(out->cache, (const double[]){(double)caches.l1, (double)caches.l2, (double)caches.l3},
           sizeof out->cache);
    out->flops = median_flops(device, dra_flops_measure, repeats);
    out->bf16_flops = median_flops(device, dra_bf16_flops_measure, repeats);
    dra_status st = median_bytes(device, &read, repeats, &out->read, NULL, err);
    if (st == DRA_OK)
        st = median_bytes(device, &write, repeats, &out->write, &out->streaming_write, err);
    if (st == DRA_OK)
        st = median_bytes(device, &copy, repeats, &out->copy, &out->streaming_copy, err);
    return st;
}

dra_status dra_limits_measure(dra_device *device, int repeats, dra_limits *out, dra_error *err)
{
    *out = (dra_limits){0};
    if (repeats < 1 || repeats > DRA_LIMITS_REPEATS)
        return dra_fail(err, DRA_ERR_VALUE, "limits: %d repeats, expected 1 to %d", repeats,
                        DRA_LIMITS_REPEATS);
    if (!device->table->limits)
        return dra_fail(err, DRA_ERR_DEVICE, "limits: the device '%s' does not measure its own",
                        dra_device_level(device));
    return device->table->limits(device, repeats, out, err);
}
