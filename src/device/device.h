/* A device is a table of functions, a table of kernels, and the arrays that live on it. */
#ifndef DRA_SRC_DEVICE_H
#define DRA_SRC_DEVICE_H

#include <pthread.h>

#include "device/array.h"
#include "device/code.h"
#include "dra/bench.h"
#include "dra/device.h"

typedef struct dra_device_table {
    void *(*alloc)(dra_device *d, size_t bytes); /* aligned to 64 bytes; NULL when out of memory */
    void (*free)(dra_device *d, void *data, size_t bytes);
    /* Each waits for its turn after what was started; host memory is free again on return. */
    dra_status (*upload)(dra_device *d, const dra_send *list, size_t n, dra_error *err);
    dra_status (*download)(dra_device *d, const dra_fetch *list, size_t n, dra_error *err);
    dra_status (*fill)(dra_device *d, void *to, dra_real value, size_t count, dra_error *err);
    dra_status (*copy)(dra_device *d, void *to, const void *from, size_t bytes, dra_error *err);
    const dra_kernel *(*find)(const dra_device *d, const char *op); /* by name; NULL: none */
    /* Starts a block, after what was started before. What goes wrong inside is a fault. */
    dra_status (*run)(dra_device *d, const dra_launch *l, int32_t block, dra_error *err);
    void (*forget)(dra_device *d, const dra_launch *l); /* is gone soon; NULL: nothing is kept */
    void (*destroy)(dra_device *d);
    size_t (*available)(dra_device *d); /* bytes that alloc() may still have; NULL: unknown */
    /* Measures what it reaches, each the median of 1 to DRA_LIMITS_REPEATS; NULL: nobody knows. */
    dra_status (*limits)(dra_device *d, int repeats, dra_limits *out, dra_error *err);
    bool borrows; /* kernels read the host's memory where it is */
    bool walks;   /* runs take a dra_time_slice */
    /* See dra_device_order(); NULL: it has no streams. */
    dra_status (*order)(dra_device *d, void *stream, bool back, dra_error *err);
} dra_device_table;

enum { DRA_ARRAYS_GONE = 64 }; /* handles of destroyed arrays that are still known as such */

typedef struct dra_arrays { /* all arrays of a device */
    pthread_mutex_t lock;
    dra_array      *live;
    dra_array      *gone[DRA_ARRAYS_GONE];
    size_t          next_gone;
    uint64_t        made;
} dra_arrays;

struct dra_device {
    const dra_device_table *table;
    const char             *level; /* what it computes with, and on how many: for description */
    int                     threads;
    const void             *context; /* what its kernels are handed, when planning too; or NULL */
    bool                    groups;  /* runs independent instructions at the same time */
    int64_t                 waits;   /* how often the host waited for what was started */
    dra_arrays              arrays;
};

struct dra_array {
    dra_device    *device; /* NULL: it is gone */
    unsigned char *data;
    size_t         bytes;
    bool           borrowed;  /* memory of others */
    bool           read_only; /* no program may write to it */
    uint64_t       serial;    /* of no other array of its device; 0: it is gone */
    dra_array     *next, *before;
};

void dra_arrays_open(dra_arrays *a);
/* Arrays that are still there lose their memory; their owners may destroy them later. */
void dra_arrays_close(dra_device *d);

static inline unsigned char *dra_span_address(dra_span s)
{
    return s.array ? s.array->data + s.offset : NULL;
}

#endif
