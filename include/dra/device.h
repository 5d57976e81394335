/* dra/device.h - where programs run.
 * Threads: a device may be used by many threads at once. One of them at a time gets the worker
 *          threads; the others compute alone, with the same bits. */
#ifndef DRA_DEVICE_H
#define DRA_DEVICE_H

#include "dra/base.h"
DRA_BEGIN_C

typedef struct dra_device dra_device; /* opaque */

typedef struct dra_cpu_config {
    int         threads; /* 0: one per processor */
    const char *level;   /* of micro-kernels: "ref", "avx2", "avx512"; NULL: what the environment
                            variable DRA_CPU says, or the best there is */
} dra_cpu_config;

/* Makes a CPU device with its thread pool. `config` may be NULL. On failure *out is NULL. */
DRA_API dra_status dra_device_create_cpu(const dra_cpu_config *config, dra_device **out,
                                         dra_error *err);
DRA_API void       dra_device_destroy(dra_device *device); /* NULL is allowed */

DRA_API int         dra_device_threads(const dra_device *device);
DRA_API const char *dra_device_level(const dra_device *device);

/* Names of the micro-kernel levels this build and processor have, best first, "ref" last; NULL
 * beyond. */
DRA_API const char *dra_device_level_at(size_t i);

DRA_END_C
#endif
