/* A device is a table of functions and a table of kernels. */
#ifndef DRA_SRC_DEVICE_H
#define DRA_SRC_DEVICE_H

#include "device/kernel.h"
#include "dra/device.h"

typedef struct dra_device_table {
    void *(*alloc)(dra_device *d, size_t bytes); /* aligned to 64 bytes; NULL when out of memory */
    void (*free)(dra_device *d, void *data);
    void (*copy)(dra_device *d, void *to, const void *from, size_t bytes);
    const dra_kernel *(*find)(const dra_device *d, const char *op); /* by name; NULL: none */
    void (*run)(dra_device *d, const dra_kernel *k, dra_call *c);
    int32_t (*read_flag)(dra_device *d, const int32_t *flag); /* waits for what writes it */
    void (*destroy)(dra_device *d);
} dra_device_table;

struct dra_device {
    const dra_device_table *table;
    const char             *level; /* what it computes with, and on how many: for description */
    int                     threads;
};

#endif
