/* The CPU's kernels: how they are cut into tiles, and the micro-kernels they are made of. A kernel
 * gets a tile number, never a thread number, and every output element has one writer, so results do
 * not depend on the number of threads. */
#ifndef DRA_SRC_CPU_KERNEL_H
#define DRA_SRC_CPU_KERNEL_H

#include "device/kernel.h"
#include "device/simd.h"
#include "dra/device.h"

/* A kernel runs stages() stages one after the other (NULL: one); the tiles of one stage run in
 * any order and at the same time. tiles() is asked again for each stage. */
typedef struct dra_cpu_kernel {
    dra_kernel base; /* first: planning knows this part alone */
    int64_t (*tiles)(const dra_call *c);
    void (*tile)(const dra_call *c, int64_t i);
    int64_t (*stages)(const dra_call *c);
} dra_cpu_kernel;

/* The micro-kernels of the device that runs this call. */
static inline const dra_simd *dra_simd_of(const dra_call *c) { return c->context; }

/* A CPU device with these kernels, NULL after the last; the table is borrowed. `config` as for
 * dra_device_create_cpu(), which is this with the kernels of src/ops. */
dra_status dra_cpu_create(const dra_cpu_config *config, const dra_cpu_kernel *const *kernels,
                          dra_device **out, dra_error *err);

#endif
