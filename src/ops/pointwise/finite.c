/* is_finite: true where x is neither infinite nor NaN. What guards of states and steps are made of,
 * with dra_select. No gradient: the result is piecewise constant. */
#include "ops/pointwise/pointwise.h"

static dra_status infer_finite(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = (dra_type){DRA_BOOL, dra_type_of(g, n->in[0])->shape};
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

const dra_op dra_op_is_finite = {.name = "is_finite",
                                 .n_in = 1,
                                 .n_out = 1,
                                 .flags = DRA_OP_POINTWISE,
                                 .attr_size = sizeof(dra_function_attr),
                                 .infer = infer_finite,
                                 .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_is_finite = {
    .base = {.op = "is_finite", .dtypes = DRA_REALS | DRA_BIT(DRA_BOOL)},
    .tiles = dra_pointwise_tiles,
    .tile = dra_function_tile,
};

dra_value dra_is_finite(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_is_finite, 1, &x, &(dra_function_attr){DRA_FUNCTION_IS_FINITE});
}
