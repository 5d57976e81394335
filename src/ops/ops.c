/* The table of ops, made from ops.def: what `dra ops` lists, and the CPU device with its kernels.
 * */
#include <stdlib.h>
#include <string.h>

#include "device/cpu_kernel.h"
#include "device/plugin.h"
#include "graph/op.h"

#define DRA_OP(name)                                                                               \
    extern const dra_op         dra_op_##name;                                                     \
    extern const dra_cpu_kernel dra_cpu_##name;
#define DRA_OP_ONLY(name) extern const dra_op dra_op_##name;
#include "ops/ops.def"
#undef DRA_OP
#undef DRA_OP_ONLY

#define DRA_OP(name) &dra_cpu_##name,
#define DRA_OP_ONLY(name)
static const dra_cpu_kernel *const kernels[] = {
#include "ops/ops.def"
    NULL};
#undef DRA_OP
#undef DRA_OP_ONLY

#define DRA_OP(name) &dra_op_##name,
#define DRA_OP_ONLY(name) &dra_op_##name,
static const dra_op *const ops[] = {
#include "ops/ops.def"
};
#undef DRA_OP
#undef DRA_OP_ONLY

size_t dra_op_count(void) { return sizeof ops / sizeof *ops; }

dra_op_info dra_op_at(size_t i)
{
    const dra_op *op = ops[i];
    bool          cpu = (op->flags & (DRA_OP_VIEW | DRA_OP_REGION)) != 0; /* need no kernel */
    for (size_t k = 0; kernels[k]; k++) cpu = cpu || strcmp(kernels[k]->base.op, op->name) == 0;
    return (dra_op_info){op->name, op->n_in, op->n_out, op->gradient != NULL, cpu};
}

dra_status dra_device_create_cpu(const dra_cpu_config *config, dra_device **out, dra_error *err)
{
    return dra_cpu_create(config, kernels, out, err);
}

dra_status dra_device_create(const char *name, const dra_cpu_config *config, dra_device **out,
                             dra_error *err)
{
    if (!name || !*name) name = getenv("DRA_DEVICE");
    if (!name || !*name || strcmp(name, "cpu") == 0) return dra_device_create_cpu(config, out, err);
    return dra_plugin_create(name, out, err);
}
