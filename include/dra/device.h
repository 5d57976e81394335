/* dra/device.h - where programs run, and the memory they run on.
 *
 * Memory:  every number that a program touches is in an array of its device. Three functions cross
 *          between the host and a device: upload, download, fill.
 * Threads: a device may be used by many threads at once. One of them at a time gets the worker
 *          threads; the others compute alone, with the same bits. One thread at a time uses an
 *          array. */
#ifndef DRA_DEVICE_H
#define DRA_DEVICE_H

#include "dra/base.h"
DRA_BEGIN_C

typedef struct dra_device dra_device; /* opaque */

typedef struct dra_cpu_config {
    int         threads; /* 0: one per processor */
    const char *level;   /* of micro-kernels: "ref", "avx2", "avx512"; NULL: the level that the
                          * environment variable DRA_CPU names, or the best available */
} dra_cpu_config;

/* Makes a CPU device with its thread pool. `config` may be NULL. On failure *out is NULL. */
DRA_API dra_status dra_device_create_cpu(const dra_cpu_config *config, dra_device **out,
                                         dra_error *err);
DRA_API void       dra_device_destroy(dra_device *device); /* NULL is allowed */

/* Makes a device by its name: "cpu", or "cuda" and "cuda:1" for a GPU, whose plugin libdra-cuda.so
 * is searched in the folders of the environment variable DRA_PLUGIN_PATH (with ':' between them),
 * beside this library, and where it is installed. NULL or "": the device that DRA_DEVICE names, or
 * the CPU. `config` is for the CPU. */
DRA_API dra_status dra_device_create(const char *name, const dra_cpu_config *config,
                                     dra_device **out, dra_error *err);

enum { DRA_DEVICE_NAME = 128, DRA_DEVICE_LEVEL = 32 };

typedef struct dra_device_info {
    char   name[DRA_DEVICE_NAME]; /* the maker's */
    char   level[DRA_DEVICE_LEVEL];
    size_t bytes, bytes_free; /* of memory */
    int    processors;
} dra_device_info;

/* The number of devices of a kind ("cuda"), and their descriptions. */
DRA_API dra_status dra_device_count(const char *kind, int *out, dra_error *err);
DRA_API dra_status dra_device_describe(const char *kind, int number, dra_device_info *out,
                                       dra_error *err);

/* Puts the device in turn with a stream of others (a cudaStream_t; NULL: the default one): what is
 * started on the device from now on waits for what is in the stream by now; with `back` the stream
 * waits for the device. The host waits for nothing. Devices without streams have no need of it. */
DRA_API dra_status dra_device_order(dra_device *device, void *stream, bool back, dra_error *err);

DRA_API int         dra_device_threads(const dra_device *device);
DRA_API const char *dra_device_level(const dra_device *device);

/* Names of the micro-kernel levels this build and processor have, best first, "ref" last; NULL
 * beyond. */
DRA_API const char *dra_device_level_at(size_t i);

/* ---- arrays ---------------------------------------------------------------------------------- */

typedef struct dra_array dra_array; /* opaque: memory of one device, which must outlive it */

/* Bytes of an array, for bindings, results and transfers. */
typedef struct dra_span {
    dra_array *array; /* NULL: none */
    size_t     offset, bytes;
} dra_span;

/* Memory that holds anything. On failure *out is NULL. */
DRA_API dra_status dra_array_create(dra_device *device, size_t bytes, dra_array **out,
                                    dra_error *err);
/* Memory of the caller, to be read: used where it is by a device that can, and must stay there
 * until the array is destroyed; copied by others. No program writes to it. */
DRA_API dra_status dra_array_borrow(dra_device *device, const void *data, size_t bytes,
                                    dra_array **out, dra_error *err);
/* Memory of the device that others have, such as tensors of PyTorch (on a GPU, of that GPU): read
 * and written where it is. It must stay there until the array is destroyed. */
DRA_API dra_status dra_array_wrap(dra_device *device, void *data, size_t bytes, dra_array **out,
                                  dra_error *err);
/* NULL is allowed. Using a span or a binding of a destroyed array is an error. */
DRA_API void dra_array_destroy(dra_array *a);

DRA_API dra_span dra_array_whole(dra_array *a);
/* Where a span is, in the memory of its device: the host's, or that of a GPU. NULL: nowhere. */
DRA_API void *dra_span_data(dra_span s);
/* Part of a span; the null span where it does not fit. */
DRA_API dra_span dra_span_part(dra_span s, size_t offset, size_t bytes);

/* Each moves all bytes of its span; host memory is free again, or filled, on return. A download
 * waits for what was started on the device. */
DRA_API dra_status dra_array_upload(dra_span to, const void *from, dra_error *err);
DRA_API dra_status dra_array_download(void *to, dra_span from, dra_error *err);
DRA_API dra_status dra_array_fill(dra_span to, dra_real value, dra_error *err); /* reals */
/* Spans of one size; they may overlap. From one device to another through the host. */
DRA_API dra_status dra_array_copy(dra_span to, dra_span from, dra_error *err);

DRA_END_C
#endif
