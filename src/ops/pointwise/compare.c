/* Comparisons to bool, and logic on bools. No gradients: their results are piecewise constant. */
#include "ops/pointwise/pointwise.h"

static dra_status infer_compare(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *a = dra_type_of(g, n->in[0]), *b = dra_type_of(g, n->in[1]);
    *out = (dra_type){DRA_BOOL, a->shape};
    if (a->dtype != b->dtype || (a->dtype != DRA_REAL && a->dtype != DRA_I32))
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "a %s and b %s, expected two of %s or i32",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]),
                           dra_dtype_get(DRA_REAL)->name);
    return DRA_OK;
}

#define ROW(op_name)                                                                               \
    const dra_op         dra_op_##op_name = {.name = #op_name,                                     \
                                             .n_in = 2,                                            \
                                             .n_out = 1,                                           \
                                             .flags = DRA_OP_POINTWISE,                            \
                                             .attr_size = sizeof(dra_function_attr),               \
                                             .infer = infer_compare,                               \
                                             .cost = dra_pointwise_cost};                          \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL)},      \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = dra_function_tile,                                                                 \
    };

ROW(equal)
ROW(not_equal)
ROW(less)
ROW(less_equal)
ROW(greater)
ROW(greater_equal)

static dra_value build_compare(dra_graph *g, const dra_op *op, dra_function f, dra_value a,
                               dra_value b)
{
    dra_value in[] = {a, b};
    if (!dra_broadcast_pair(g, op->name, in)) return (dra_value){0};
    return dra_add_op(g, op, 2, in, &(dra_function_attr){f});
}

dra_value dra_equal(dra_graph *g, dra_value a, dra_value b)
{
    return build_compare(g, &dra_op_equal, DRA_FUNCTION_EQUAL, a, b);
}
dra_value dra_not_equal(dra_graph *g, dra_value a, dra_value b)
{
    return build_compare(g, &dra_op_not_equal, DRA_FUNCTION_NOT_EQUAL, a, b);
}
dra_value dra_less(dra_graph *g, dra_value a, dra_value b)
{
    return build_compare(g, &dra_op_less, DRA_FUNCTION_LESS, a, b);
}
dra_value dra_less_equal(dra_graph *g, dra_value a, dra_value b)
{
    return build_compare(g, &dra_op_less_equal, DRA_FUNCTION_LESS_EQUAL, a, b);
}
dra_value dra_greater(dra_graph *g, dra_value a, dra_value b)
{
    return build_compare(g, &dra_op_greater, DRA_FUNCTION_GREATER, a, b);
}
dra_value dra_greater_equal(dra_graph *g, dra_value a, dra_value b)
{
    return build_compare(g, &dra_op_greater_equal, DRA_FUNCTION_GREATER_EQUAL, a, b);
}

/* ---- logic ----------------------------------------------------------------------------------- */

static dra_status logic_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    for (int i = 0; i < n->n_in; i++) {
        const dra_status st = dra_expect_dtype(g, n, i, i ? "b" : "a", DRA_BOOL);
        if (st != DRA_OK) return st;
    }
    return DRA_OK;
}

#define LOGIC(op_name, inputs)                                                                     \
    const dra_op         dra_op_##op_name = {.name = #op_name,                                     \
                                             .n_in = inputs,                                       \
                                             .n_out = 1,                                           \
                                             .flags = DRA_OP_POINTWISE,                            \
                                             .attr_size = sizeof(dra_function_attr),               \
                                             .infer = logic_infer,                                 \
                                             .cost = dra_pointwise_cost};                          \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = DRA_BIT(DRA_BOOL), .in_place = 1},                      \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = dra_function_tile,                                                                 \
    };

LOGIC(and, 2)
LOGIC(or, 2)
LOGIC(not, 1)

dra_value dra_and(dra_graph *g, dra_value a, dra_value b)
{
    return build_compare(g, &dra_op_and, DRA_FUNCTION_AND, a, b);
}

dra_value dra_or(dra_graph *g, dra_value a, dra_value b)
{
    return build_compare(g, &dra_op_or, DRA_FUNCTION_OR, a, b);
}

dra_value dra_not(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_not, 1, &x, &(dra_function_attr){DRA_FUNCTION_NOT});
}
