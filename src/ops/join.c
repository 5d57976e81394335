/* concat: tensors one after the other along an axis. pad: new elements before and after.
 * Both see tensors as (outer, axis, inner) and move runs of rows; their gradients are slices. */
#include <string.h>

#include "ops/common.h"

enum { ROWS_PER_TILE = 64 }; /* rows of the axis written by one tile */

typedef struct join_attr {
    int32_t axis;
    int64_t before, after; /* pad */
    double  fill;
} join_attr;

/* y[.., start + i, ..] = x[.., i, ..] for all rows i of x. Rows are cut into tiles by y's shape. */
static void copy_part(const dra_tensor *y, const dra_tensor *x, int axis, int64_t start,
                      int64_t from, int64_t to)
{
    const int64_t size = (int64_t)dra_dtype_bytes(y->dtype), n = x->shape.dim[axis];
    int64_t       inner = 1;
    dra_tensor    one = *x; /* one row of the axis: the axes behind it */
    for (int32_t a = axis + 1; a < x->shape.rank; a++) inner *= x->shape.dim[a];
    one.shape.rank = x->shape.rank - axis - 1;
    for (int32_t a = 0; a < one.shape.rank; a++) {
        one.shape.dim[a] = x->shape.dim[axis + 1 + a];
        one.stride[a] = x->stride[axis + 1 + a];
    }
    const bool dense = dra_tensor_is_dense(&one);
    for (int64_t r = from; r < to; r++) { /* r counts (outer, row of y) */
        const int64_t row = r % y->shape.dim[axis] - start;
        if (row < 0 || row >= n) continue;
        int64_t outer = r / y->shape.dim[axis], offset = row * x->stride[axis];
        for (int32_t a = axis - 1; a >= 0; a--) {
            offset += outer % x->shape.dim[a] * x->stride[a];
            outer /= x->shape.dim[a];
        }
        unsigned char       *to_row = (unsigned char *)y->data + r * inner * size;
        const unsigned char *from_row = (const unsigned char *)x->data + offset * size;
        if (dense) memcpy(to_row, from_row, (size_t)(inner * size));
        for (int64_t i = 0; !dense && i < inner; i++)
            memcpy(to_row + i * size, from_row + dra_offset_of(&one, i) * size, (size_t)size);
    }
}

/* (outer, axis) rows of y; tiles hold a fixed number of them. */
static int64_t axis_rows(const dra_tensor *y, int axis)
{
    int64_t n = 1;
    for (int32_t a = 0; a <= axis; a++) n *= y->shape.dim[a];
    return dra_shape_count(&y->shape) ? n : 0;
}

static int64_t tiles(const dra_call *c)
{
    const join_attr *a = c->attr;
    return dra_div_up(axis_rows(&c->out[0], a->axis), ROWS_PER_TILE);
}

/* ---- concat ---------------------------------------------------------------------------------- */

static dra_status concat_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const join_attr *a = n->attr;
    *out = *dra_type_of(g, n->in[0]);
    if (a->axis < 0 || a->axis >= out->shape.rank)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s has no such axis",
                           dra_type_text(g, n->in[0]));
    for (int i = 1; i < n->n_in; i++) {
        const dra_type *t = dra_type_of(g, n->in[i]);
        bool            fits = t->shape.rank == out->shape.rank;
        if (t->dtype != out->dtype)
            return dra_op_fail(g, n, DRA_ERR_DTYPE, "%s and %s are of two dtypes",
                               dra_type_text(g, n->in[0]), dra_type_text(g, n->in[i]));
        for (int32_t d = 0; fits && d < t->shape.rank; d++)
            fits = d == a->axis || t->shape.dim[d] == out->shape.dim[d];
        if (!fits)
            return dra_op_fail(g, n, DRA_ERR_SHAPE, "%s and %s differ beside axis %d",
                               dra_type_text(g, n->in[0]), dra_type_text(g, n->in[i]),
                               (int)a->axis);
        if (t->shape.dim[a->axis] > INT64_MAX - out->shape.dim[a->axis])
            return dra_op_fail(g, n, DRA_ERR_MEMORY, "size overflows");
        out->shape.dim[a->axis] += t->shape.dim[a->axis];
    }
    return DRA_OK;
}

static void concat_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const join_attr *a = n->attr;
    int64_t          start = 0;
    for (int i = 0; i < n->n_in; i++) {
        const int64_t size = dra_type_of(g, n->in[i])->shape.dim[a->axis];
        dx[i] = dra_slice(g, dy[0], a->axis, start, size);
        start += size;
    }
}

static void concat_tile(const dra_call *c, int64_t i)
{
    const join_attr *a = c->attr;
    const int64_t    end = axis_rows(&c->out[0], a->axis);
    int64_t          start = 0;
    for (int k = 0; k < c->n_in; k++) {
        copy_part(&c->out[0], &c->in[k], a->axis, start, i * ROWS_PER_TILE,
                  dra_imin(end, (i + 1) * ROWS_PER_TILE));
        start += c->in[k].shape.dim[a->axis];
    }
}

const dra_op     dra_op_concat = {.name = "concat",
                                  .n_in = DRA_MANY,
                                  .n_out = 1,
                                  .attr_size = sizeof(join_attr),
                                  .infer = concat_infer,
                                  .gradient = concat_gradient};
const dra_kernel dra_cpu_concat = {&dra_op_concat, DRA_ANY_DTYPE, tiles, concat_tile};

dra_value dra_concat(dra_graph *g, int n, const dra_value *x, int axis)
{
    if (n < 1) {
        dra_build_fail(g, "concat", DRA_ERR_VALUE, "of %d values", n);
        return (dra_value){0};
    }
    if (!dra_check_values(g, "concat", n, x)) return (dra_value){0};
    const int at = dra_axis_of(axis, dra_type_of(g, x[0])->shape.rank);
    if (n == 1 && at >= 0) return x[0];
    return dra_add_op(g, &dra_op_concat, n, x, &(join_attr){.axis = at});
}

/* ---- pad ------------------------------------------------------------------------------------- */

static dra_status pad_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const join_attr *a = n->attr;
    *out = *dra_type_of(g, n->in[0]);
    if (a->axis < 0 || a->axis >= out->shape.rank)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s has no such axis",
                           dra_type_text(g, n->in[0]));
    if (a->before < 0 || a->after < 0 || a->before > INT64_MAX / 4 || a->after > INT64_MAX / 4 ||
        out->shape.dim[a->axis] > INT64_MAX / 4)
        return dra_op_fail(g, n, DRA_ERR_VALUE, "%lld before and %lld after", (long long)a->before,
                           (long long)a->after);
    out->shape.dim[a->axis] += a->before + a->after;
    return DRA_OK;
}

static void pad_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const join_attr *a = n->attr;
    dx[0] = dra_slice(g, dy[0], a->axis, a->before, dra_type_of(g, n->in[0])->shape.dim[a->axis]);
}

static void pad_tile(const dra_call *c, int64_t i)
{
    const join_attr  *a = c->attr;
    const dra_tensor *y = &c->out[0];
    const int64_t     rows = axis_rows(y, a->axis), size = (int64_t)dra_dtype_bytes(y->dtype);
    const int64_t     from = i * ROWS_PER_TILE, to = dra_imin(rows, from + ROWS_PER_TILE);
    const int64_t     inner = dra_shape_count(&y->shape) / rows;
    for (int64_t r = from; r < to; r++) {
        const int64_t  row = r % y->shape.dim[a->axis] - a->before;
        unsigned char *at = (unsigned char *)y->data + r * inner * size;
        if (row >= 0 && row < c->in[0].shape.dim[a->axis]) continue;
        for (int64_t k = 0; k < inner; k++) dra_store_number(y->dtype, at + k * size, a->fill);
    }
    copy_part(y, &c->in[0], a->axis, a->before, from, to);
}

const dra_op     dra_op_pad = {.name = "pad",
                               .n_in = 1,
                               .n_out = 1,
                               .attr_size = sizeof(join_attr),
                               .infer = pad_infer,
                               .gradient = pad_gradient};
const dra_kernel dra_cpu_pad = {&dra_op_pad, DRA_ANY_DTYPE, tiles, pad_tile};

dra_value dra_pad(dra_graph *g, dra_value x, int axis, int64_t before, int64_t after, double fill)
{
    if (!dra_check_values(g, "pad", 1, &x)) return (dra_value){0};
    const int at = dra_axis_of(axis, dra_type_of(g, x)->shape.rank);
    if (at >= 0 && before == 0 && after == 0) return x;
    return dra_add_op(g, &dra_op_pad, 1, &x, &(join_attr){at, before, after, fill});
}
