/* The test device: the CPU's kernels on memory that is not the host's. Its arrays are pages that
 * nobody may touch outside a run or a transfer, and before each block every address it is handed
 * must be in one of them: a pointer of the host given to a kernel is an error. What passes on it
 * needs only kernels to run on any other device.
 *
 * Tests get it from check_device() and check_cpu() when DRA_TEST_DEVICE is "apart". */
#ifndef DRA_TESTS_APART_H
#define DRA_TESTS_APART_H

#include "dra/device.h"

/* As dra_device_create_cpu(). */
dra_status apart_create(const dra_cpu_config *config, dra_device **out, dra_error *err);

#endif
