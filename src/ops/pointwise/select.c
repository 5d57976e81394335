/* select: y = where ? a : b, each gradient where its side was taken.
 * clamp: y = min(max(x, lo), hi), no gradient where x is outside. */
#include "ops/pointwise/pointwise.h"

static dra_status select_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *a = dra_type_of(g, n->in[1]), *b = dra_type_of(g, n->in[2]);
    *out = *a;
    if (a->dtype != b->dtype)
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "a %s and b %s are of two dtypes",
                           dra_type_text(g, n->in[1]), dra_type_text(g, n->in[2]));
    return dra_expect_dtype(g, n, 0, "where", DRA_BOOL);
}

static void select_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    if (!dra_is_float(g, n->in[1])) return;
    const dra_value zero = dra_number(g, 0);
    dx[1] = dra_select(g, n->in[0], dy[0], zero);
    dx[2] = dra_select(g, n->in[0], zero, dy[0]);
}

const dra_op dra_op_select = {.name = "select",
                              .n_in = 3,
                              .n_out = 1,
                              .flags = DRA_OP_POINTWISE,
                              .attr_size = sizeof(dra_function_attr),
                              .infer = select_infer,
                              .gradient = select_gradient,
                              .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_select = {
    .base = {.op = "select", .dtypes = DRA_ANY_DTYPE, .in_place = 2 | 4},
    .tiles = dra_pointwise_tiles,
    .tile = dra_function_tile,
};

dra_value dra_select(dra_graph *g, dra_value where, dra_value a, dra_value b)
{
    const dra_value given[] = {where, a, b};
    dra_value       values[] = {a, b}, in[] = {where, a};
    if (!dra_check_values(g, "select", 3, given)) return (dra_value){0};
    if (!dra_broadcast_pair(g, "select", values)) return (dra_value){0};
    in[1] = values[0];
    if (!dra_broadcast_pair(g, "select", in)) return (dra_value){0};
    const dra_shape shape = dra_type_of(g, in[0])->shape;
    const dra_value all[] = {in[0], in[1], dra_broadcast(g, values[1], shape)};
    return dra_add_op(g, &dra_op_select, 3, all, &(dra_function_attr){DRA_FUNCTION_SELECT});
}

/* ---- clamp ----------------------------------------------------------------------------------- */

static dra_status clamp_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_function_attr *a = n->attr;
    if (!(a->a <= a->b))
        return dra_op_fail(g, n, DRA_ERR_VALUE, "lo %g is not at most hi %g", a->a, a->b);
    return dra_infer_same(g, n, out);
}

static void clamp_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_function_attr *a = n->attr;
    const dra_value          x = n->in[0];
    const dra_value          inside = dra_and(g, dra_greater_equal(g, x, dra_number(g, a->a)),
                                              dra_less_equal(g, x, dra_number(g, a->b)));
    dx[0] = dra_select(g, inside, dy[0], dra_number(g, 0));
}

const dra_op dra_op_clamp = {.name = "clamp",
                             .n_in = 1,
                             .n_out = 1,
                             .flags = DRA_OP_POINTWISE,
                             .attr_size = sizeof(dra_function_attr),
                             .infer = clamp_infer,
                             .gradient = clamp_gradient,
                             .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_clamp = {
    .base = {.op = "clamp", .dtypes = DRA_REALS, .in_place = 1},
    .tiles = dra_pointwise_tiles,
    .tile = dra_function_tile,
};

dra_value dra_clamp(dra_graph *g, dra_value x, double lo, double hi)
{
    return dra_add_op(g, &dra_op_clamp, 1, &x, &(dra_function_attr){DRA_FUNCTION_CLAMP, lo, hi});
}
