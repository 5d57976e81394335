/* dra/bench.h - what the machine allows: the peak of arithmetic and of memory, measured on the
 * device itself, so that a kernel can be compared with the limit it is bound by in the same run.
 * Threads: a device measures for one caller at a time; two at once share the processor and the
 *          numbers mean nothing. */
#ifndef DRA_BENCH_H
#define DRA_BENCH_H

#include "dra/base.h"
#include "dra/device.h"
DRA_BEGIN_C

/* ---- arithmetic of the CPU ------------------------------------------------------------------- */

/* One burst of multiply-adds of dra_real at the device's level, about 10 ms: operations per second,
 * two for each multiply-add. 0: it is not the CPU. */
DRA_API double dra_flops_measure(dra_device *device);
/* The same of products of bf16 that are added to floats; 0 at levels without such instructions. */
DRA_API double dra_bf16_flops_measure(dra_device *device);

/* ---- its memory ------------------------------------------------------------------------------ */

typedef struct dra_bandwidth dra_bandwidth; /* opaque: arrays of equal size to read and write */

enum { DRA_BANDWIDTH_ARRAYS = 16 }; /* at most, of all kinds together */

typedef struct dra_bandwidth_config {
    int    reads, writes, updates; /* arrays only read, only written, read and written in place */
    size_t bytes;                  /* of one array; rounded up to blocks of 512 */
} dra_bandwidth_config;

/* Borrows the device, which must be the CPU, until dra_bandwidth_destroy(). On failure *out is
 * NULL. */
DRA_API dra_status dra_bandwidth_create(dra_device *device, const dra_bandwidth_config *config,
                                        dra_bandwidth **out, dra_error *err);
DRA_API void       dra_bandwidth_destroy(dra_bandwidth *s); /* NULL is allowed */

/* Passes over all arrays once, a few cache lines of each at a time, and returns the seconds.
 * `streaming`: stores pass by the cache, on processors that have such. Arrays that fit in a cache
 * stay there from pass to pass. */
DRA_API double dra_bandwidth_pass(dra_bandwidth *s, bool streaming);

/* What a pass moves: reads + writes + 2 updates arrays. */
DRA_API double dra_bandwidth_bytes(const dra_bandwidth_config *config);

/* ---- limits of any device -------------------------------------------------------------------- */

typedef struct dra_limits { /* per second, all of the device together; 0: it has no such */
    /* Two for each multiply-add. CPU: loops in registers; GPU: large products of matrices. */
    double flops, tf32_flops, bf16_flops;
    /* Bytes, arrays far larger than its caches; a copy moves each byte twice. */
    double read, write, copy;
    double streaming_write, streaming_copy; /* by stores that pass by the caches of a CPU */
    double upload, download; /* bytes between a GPU and memory of the host that stays in place */
    double mapped;   /* bytes of a mapped file in the host's memory to a GPU, as weights go up */
    double touched;  /* the same where all pages of the map were read before */
    double cache[3]; /* not per second: bytes of a CPU's caches, as blocks are cut by them */
} dra_limits;

enum { DRA_LIMITS_REPEATS = 1000 }; /* at most */

/* Each the median of `repeats` (at least 1) timings. Needs 512 MiB while it runs, of a GPU 2 GiB if
 * they are there, and for `mapped` a temporary file of 1 GiB. */
DRA_API dra_status dra_limits_measure(dra_device *device, int repeats, dra_limits *out,
                                      dra_error *err);

DRA_END_C
#endif
