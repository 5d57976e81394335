/* What a library of a device that is loaded at run time gives: one table, `dra_plugin_table`. It is
 * built from the same sources as the library that loads it, which `abi` and `version` check. */
#ifndef DRA_SRC_PLUGIN_H
#define DRA_SRC_PLUGIN_H

#include "device/device.h"

/* Changes with the structs that both sides see. */
#define DRA_PLUGIN_ABI                                                                             \
    (uint32_t)(sizeof(dra_device) + 131 * sizeof(dra_device_table) + 257 * sizeof(dra_kernel) +    \
               521 * sizeof(dra_call) + 1031 * sizeof(dra_launch) + 2053 * sizeof(dra_instr) +     \
               4099 * sizeof(dra_region) + 8209 * sizeof(dra_fault) + 16411 * sizeof(dra_real) +   \
               32771 * sizeof(dra_limits))

typedef struct dra_plugin {
    uint32_t    abi;
    const char *version;
    dra_status (*create)(int number, dra_device **out, dra_error *err);
    int (*count)(dra_error *err); /* devices that are there; -1: an error */
    dra_status (*describe)(int number, dra_device_info *out, dra_error *err);
} dra_plugin;

/* Loads libdra-KIND.so from where plugins are; a library that was loaded stays. `what` begins an
 * error. */
dra_status dra_plugin_open(const char *what, const char *kind, void **out, dra_error *err);

/* The device of a name, "cuda:1", by its library. */
dra_status dra_plugin_create(const char *name, dra_device **out, dra_error *err);

#endif
