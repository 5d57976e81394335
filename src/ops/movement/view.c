/* Views: the memory of x seen with other sizes and strides.
 * Gradients: reshape back; permute back; a slice is padded with zeros; a broadcast is summed. */
#include "ops/common.h"

/* ---- reshape --------------------------------------------------------------------------------- */

static dra_status reshape_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_reshape_attr *a = n->attr;
    const dra_type         *x = dra_type_of(g, n->in[0]);
    *out = (dra_type){x->dtype, a->shape};
    if (dra_shape_count(&out->shape) != dra_shape_count(&x->shape)) {
        char text[160];
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s has %lld elements, %s does not",
                           dra_type_text(g, n->in[0]), (long long)dra_shape_count(&x->shape),
                           dra_shape_text(&a->shape, text, sizeof text));
    }
    return DRA_OK;
}

static void reshape_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = dra_reshape(g, dy[0], dra_type_of(g, n->in[0])->shape);
}

/* Groups of old and new axes with equal products correspond. Inside a group the old strides must
 * run on without a jump; the new axes then subdivide them. */
static bool reshape_view(const dra_node *n, const dra_tensor *in, dra_tensor *out, int64_t *start)
{
    int64_t dim[DRA_MAX_RANK], stride[DRA_MAX_RANK]; /* of x, without axes of size 1 */
    int     old_rank = 0, new_rank = out->shape.rank;
    *start = 0;
    dra_tensor_make_dense(out);
    if (dra_shape_count(&in->shape) == 0) return true;
    for (int32_t i = 0; i < in->shape.rank; i++) {
        if (in->shape.dim[i] == 1) continue;
        dim[old_rank] = in->shape.dim[i];
        stride[old_rank++] = in->stride[i];
    }
    for (int i = 0, o = 0; i < old_rank && o < new_rank;) {
        int     i_end = i + 1, o_end = o + 1;
        int64_t have = dim[i], want = out->shape.dim[o];
        while (have != want) {
            if (want < have)
                want *= out->shape.dim[o_end++];
            else
                have *= dim[i_end++];
        }
        for (int k = i; k + 1 < i_end; k++)
            if (stride[k] != dim[k + 1] * stride[k + 1]) return false;
        out->stride[o_end - 1] = stride[i_end - 1];
        for (int k = o_end - 1; k > o; k--) out->stride[k - 1] = out->stride[k] * out->shape.dim[k];
        i = i_end;
        o = o_end;
    }
    return true;
}

const dra_op dra_op_reshape = {.name = "reshape",
                               .n_in = 1,
                               .n_out = 1,
                               .flags = DRA_OP_VIEW,
                               .attr_size = sizeof(dra_reshape_attr),
                               .infer = reshape_infer,
                               .gradient = reshape_gradient,
                               .view = reshape_view};

/* One size may be -1: whatever is left. */
dra_value dra_reshape(dra_graph *g, dra_value x, dra_shape shape)
{
    if (!dra_check_values(g, "reshape", 1, &x)) return (dra_value){0};
    if (shape.rank < 0 || shape.rank > DRA_MAX_RANK) {
        dra_build_fail(g, "reshape", DRA_ERR_SHAPE, "rank %d, expected 0 to %d", (int)shape.rank,
                       DRA_MAX_RANK);
        return (dra_value){0};
    }
    const int64_t count = dra_shape_count(&dra_type_of(g, x)->shape);
    int32_t       open = -1;
    int64_t       rest = 1;
    for (int32_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == -1 && open < 0)
            open = i;
        else if (shape.dim[i] < 0 || (shape.dim[i] && rest > INT64_MAX / shape.dim[i]))
            rest = -1;
        else if (rest >= 0)
            rest *= shape.dim[i];
    }
    if (open >= 0 && rest > 0 && count % rest == 0) shape.dim[open] = count / rest;
    for (int32_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] >= 0 && rest >= 0) continue;
        char text[160];
        dra_build_fail(g, "reshape", DRA_ERR_SHAPE, "x %s cannot be %s", dra_type_text(g, x),
                       dra_shape_text(&shape, text, sizeof text));
        return (dra_value){0};
    }
    if (dra_shape_equal(&shape, &dra_type_of(g, x)->shape)) return x;
    return dra_add_op(g, &dra_op_reshape, 1, &x, &(dra_reshape_attr){shape});
}

/* ---- permute --------------------------------------------------------------------------------- */

static dra_status permute_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_permute_attr *a = n->attr;
    const dra_type         *x = dra_type_of(g, n->in[0]);
    unsigned                seen = 0;
    *out = *x;
    for (int32_t i = 0; i < x->shape.rank; i++) {
        if (a->axis[i] < 0 || a->axis[i] >= x->shape.rank || seen >> a->axis[i] & 1)
            return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s: axis %d is outside or named twice",
                               dra_type_text(g, n->in[0]), (int)a->axis[i]);
        seen |= 1u << a->axis[i];
        out->shape.dim[i] = x->shape.dim[a->axis[i]];
    }
    return DRA_OK;
}

static void permute_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_permute_attr *a = n->attr;
    int                     back[DRA_MAX_RANK] = {0};
    for (int32_t i = 0; i < dra_type_of(g, n->in[0])->shape.rank; i++) back[a->axis[i]] = i;
    dx[0] = dra_permute(g, dy[0], back);
}

static bool permute_view(const dra_node *n, const dra_tensor *in, dra_tensor *out, int64_t *start)
{
    const dra_permute_attr *a = n->attr;
    *start = 0;
    for (int32_t i = 0; i < out->shape.rank; i++) out->stride[i] = in->stride[a->axis[i]];
    return true;
}

const dra_op dra_op_permute = {.name = "permute",
                               .n_in = 1,
                               .n_out = 1,
                               .flags = DRA_OP_VIEW,
                               .attr_size = sizeof(dra_permute_attr),
                               .infer = permute_infer,
                               .gradient = permute_gradient,
                               .view = permute_view};

dra_value dra_permute(dra_graph *g, dra_value x, const int *axes)
{
    if (!dra_check_values(g, "permute", 1, &x)) return (dra_value){0};
    const int32_t    rank = dra_type_of(g, x)->shape.rank;
    dra_permute_attr a = {{0}};
    for (int32_t i = 0; i < rank; i++) a.axis[i] = axes[i] < 0 ? axes[i] + rank : axes[i];
    return dra_add_op(g, &dra_op_permute, 1, &x, &a);
}

dra_value dra_transpose(dra_graph *g, dra_value x, int a, int b)
{
    if (!dra_check_values(g, "transpose", 1, &x)) return (dra_value){0};
    const int32_t rank = dra_type_of(g, x)->shape.rank;
    const int     from = dra_axis_of(a, rank), to = dra_axis_of(b, rank);
    int           axes[DRA_MAX_RANK];
    if (from < 0 || to < 0) {
        dra_build_fail(g, "transpose", DRA_ERR_SHAPE, "x %s has no axes %d and %d",
                       dra_type_text(g, x), a, b);
        return (dra_value){0};
    }
    for (int32_t i = 0; i < rank; i++) axes[i] = i;
    axes[from] = to;
    axes[to] = from;
    return dra_permute(g, x, axes);
}

/* ---- slice ----------------------------------------------------------------------------------- */

static dra_status slice_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_slice_attr *a = n->attr;
    *out = *dra_type_of(g, n->in[0]);
    if (a->axis < 0 || a->axis >= out->shape.rank)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s has no such axis",
                           dra_type_text(g, n->in[0]));
    const int64_t size = out->shape.dim[a->axis];
    if (a->start < 0 || a->n < 0 || a->start > size || a->n > size - a->start)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s, axis %d: %lld elements from %lld",
                           dra_type_text(g, n->in[0]), (int)a->axis, (long long)a->n,
                           (long long)a->start);
    out->shape.dim[a->axis] = a->n;
    return DRA_OK;
}

static void slice_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_slice_attr *a = n->attr;
    const int64_t         size = dra_type_of(g, n->in[0])->shape.dim[a->axis];
    dx[0] = dra_pad(g, dy[0], a->axis, a->start, size - a->start - a->n, 0);
}

static bool slice_view(const dra_node *n, const dra_tensor *in, dra_tensor *out, int64_t *start)
{
    const dra_slice_attr *a = n->attr;
    for (int32_t i = 0; i < out->shape.rank; i++) out->stride[i] = in->stride[i];
    *start = a->start * in->stride[a->axis];
    return true;
}

const dra_op dra_op_slice = {.name = "slice",
                             .n_in = 1,
                             .n_out = 1,
                             .flags = DRA_OP_VIEW,
                             .attr_size = sizeof(dra_slice_attr),
                             .infer = slice_infer,
                             .gradient = slice_gradient,
                             .view = slice_view};

dra_value dra_slice(dra_graph *g, dra_value x, int axis, int64_t start, int64_t n)
{
    if (!dra_check_values(g, "slice", 1, &x)) return (dra_value){0};
    const dra_shape *s = &dra_type_of(g, x)->shape;
    const int        at = dra_axis_of(axis, s->rank);
    if (at >= 0 && start == 0 && n == s->dim[at]) return x;
    return dra_add_op(g, &dra_op_slice, 1, &x, &(dra_slice_attr){at, start, n});
}

/* ---- broadcast ------------------------------------------------------------------------------- */

static dra_status broadcast_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_broadcast_attr *a = n->attr;
    const dra_type           *x = dra_type_of(g, n->in[0]);
    dra_shape                 both;
    *out = (dra_type){x->dtype, a->shape};
    if (!dra_broadcast_shapes(&x->shape, &a->shape, &both) || !dra_shape_equal(&both, &a->shape)) {
        char text[160];
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s cannot be seen as %s",
                           dra_type_text(g, n->in[0]),
                           dra_shape_text(&a->shape, text, sizeof text));
    }
    return DRA_OK;
}

static void broadcast_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = dra_unbroadcast(g, dy[0], dra_type_of(g, n->in[0])->shape);
}

static bool broadcast_view(const dra_node *n, const dra_tensor *in, dra_tensor *out, int64_t *start)
{
    const int32_t lead = out->shape.rank - in->shape.rank;
    *start = 0;
    for (int32_t i = 0; i < out->shape.rank; i++) {
        const bool repeated = i < lead || in->shape.dim[i - lead] != out->shape.dim[i];
        out->stride[i] = repeated ? 0 : in->stride[i - lead];
    }
    return true;
}

const dra_op dra_op_broadcast = {.name = "broadcast",
                                 .n_in = 1,
                                 .n_out = 1,
                                 .flags = DRA_OP_VIEW,
                                 .attr_size = sizeof(dra_broadcast_attr),
                                 .infer = broadcast_infer,
                                 .gradient = broadcast_gradient,
                                 .view = broadcast_view};

dra_value dra_broadcast(dra_graph *g, dra_value x, dra_shape shape)
{
    if (!dra_check_values(g, "broadcast", 1, &x)) return (dra_value){0};
    if (shape.rank < 0 || shape.rank > DRA_MAX_RANK) {
        dra_build_fail(g, "broadcast", DRA_ERR_SHAPE, "rank %d, expected 0 to %d", (int)shape.rank,
                       DRA_MAX_RANK);
        return (dra_value){0};
    }
    if (dra_shape_equal(&shape, &dra_type_of(g, x)->shape)) return x;
    return dra_add_op(g, &dra_op_broadcast, 1, &x, &(dra_broadcast_attr){shape});
}

/* ---- what changes only the gradient ---------------------------------------------------------- */

static dra_status alias_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    return DRA_OK;
}

static bool alias_view(const dra_node *n, const dra_tensor *in, dra_tensor *out, int64_t *start)
{
    *start = 0;
    for (int32_t i = 0; i < out->shape.rank; i++) out->stride[i] = in->stride[i];
    return true;
}

const dra_op dra_op_stop_gradient = {.name = "stop_gradient",
                                     .n_in = 1,
                                     .n_out = 1,
                                     .flags = DRA_OP_VIEW | DRA_OP_NO_GRAD,
                                     .infer = alias_infer,
                                     .view = alias_view};

dra_value dra_stop_gradient(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_stop_gradient, 1, &x, NULL);
}

static void straight_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[1] = dy[0];
}

const dra_op dra_op_straight_through = {.name = "straight_through",
                                        .n_in = 2,
                                        .n_out = 1,
                                        .flags = DRA_OP_VIEW,
                                        .infer = dra_infer_same,
                                        .gradient = straight_gradient,
                                        .view = alias_view};

dra_value dra_straight_through(dra_graph *g, dra_value x, dra_value surrogate)
{
    const dra_value in[] = {x, surrogate};
    return dra_add_op(g, &dra_op_straight_through, 2, in, NULL);
}
