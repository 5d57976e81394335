/* flip: y[i] = x[n - 1 - i] along an axis: a view that walks backwards. Its gradient is a flip. */
#include "ops/common.h"

static dra_status infer_flip(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_flip_attr *a = n->attr;
    *out = *dra_type_of(g, n->in[0]);
    if (a->axis >= 0) return DRA_OK;
    return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s has no such axis", dra_type_text(g, n->in[0]));
}

static void derive_flip(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = dra_flip(g, dy[0], ((const dra_flip_attr *)n->attr)->axis);
}

static bool view_flipped(const dra_node *n, const dra_tensor *in, dra_tensor *out, int64_t *start)
{
    const int32_t axis = ((const dra_flip_attr *)n->attr)->axis;
    for (int32_t i = 0; i < out->shape.rank; i++) out->stride[i] = in->stride[i];
    out->stride[axis] = -in->stride[axis];
    *start = in->shape.dim[axis] > 0 ? (in->shape.dim[axis] - 1) * in->stride[axis] : 0;
    return true;
}

const dra_op dra_op_flip = {.name = "flip",
                            .n_in = 1,
                            .n_out = 1,
                            .flags = DRA_OP_VIEW,
                            .attr_size = sizeof(dra_flip_attr),
                            .infer = infer_flip,
                            .gradient = derive_flip,
                            .view = view_flipped};

dra_value dra_flip(dra_graph *g, dra_value x, int axis)
{
    if (!dra_check_values(g, "flip", 1, &x)) return (dra_value){0};
    const int at = dra_axis_of(axis, dra_type_of(g, x)->shape.rank);
    return dra_add_op(g, &dra_op_flip, 1, &x, &(dra_flip_attr){at});
}
