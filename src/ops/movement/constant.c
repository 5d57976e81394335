/* Numbers known when the graph is built. They depend on nothing, so the compiler puts them into
 * the prepare program; seen through dra_broadcast() they fill any shape without memory. */
#include "ops/common.h"

static dra_status constant_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_constant_attr *a = n->attr;
    *out = (dra_type){a->dtype, {0}};
    return DRA_OK;
}

static int64_t one_tile(const dra_call *c) { return 1; }

static void constant_tile(const dra_call *c, int64_t i)
{
    const dra_constant_attr *a = c->attr;
    if (a->dtype == DRA_I32)
        *(int32_t *)c->out[0].data = a->integer;
    else
        *(real *)c->out[0].data = (real)a->real;
}

const dra_op dra_op_constant = {.name = "constant",
                                .n_out = 1,
                                .attr_size = sizeof(dra_constant_attr),
                                .infer = constant_infer};

const dra_cpu_kernel dra_cpu_constant = {
    .base = {.op = "constant", .dtypes = DRA_REALS | DRA_BIT(DRA_I32)},
    .tiles = one_tile,
    .tile = constant_tile,
};

dra_value dra_number(dra_graph *g, double x)
{
    return dra_add_op(g, &dra_op_constant, 0, NULL, &(dra_constant_attr){DRA_REAL, x, 0});
}

dra_value dra_integer(dra_graph *g, int32_t x)
{
    return dra_add_op(g, &dra_op_constant, 0, NULL, &(dra_constant_attr){DRA_I32, 0, x});
}

/* ---- arange ---------------------------------------------------------------------------------- */

static dra_status arange_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_arange_attr *a = n->attr;
    *out = (dra_type){DRA_I32, {1, {a->n}}};
    if (a->n >= 0 && a->n <= INT32_MAX) return DRA_OK;
    return dra_op_fail(g, n, DRA_ERR_VALUE, "%lld numbers, expected 0 to %d", (long long)a->n,
                       INT32_MAX);
}

static void arange_tile(const dra_call *c, int64_t i)
{
    int32_t *y = c->out[0].data;
    for (int32_t k = 0; k < c->out[0].shape.dim[0]; k++) y[k] = k;
}

const dra_op dra_op_arange = {
    .name = "arange", .n_out = 1, .attr_size = sizeof(dra_arange_attr), .infer = arange_infer};

const dra_cpu_kernel dra_cpu_arange = {
    .base = {.op = "arange", .dtypes = DRA_BIT(DRA_I32)},
    .tiles = one_tile,
    .tile = arange_tile,
};

dra_value dra_arange(dra_graph *g, int64_t n)
{
    return dra_add_op(g, &dra_op_arange, 0, NULL, &(dra_arange_attr){n});
}
