/* concat: tensors one after the other along an axis. pad: new elements before and after.
 * Both fill the output part by part, each a pointwise copy of a tensor, or of one number seen with
 * strides 0, into a slice of the output. Their gradients are slices. */
#include "ops/common.h"

/* ---- parts ----------------------------------------------------------------------------------- */

typedef struct part {
    dra_tensor to, from; /* a slice of the output; what it gets */
} part;

/* Rows [start, start + n) of the axis of y. */
static dra_tensor rows_of(const dra_tensor *y, int axis, int64_t start, int64_t n)
{
    dra_tensor t = *y;
    t.shape.dim[axis] = n;
    if (t.data)
        t.data = (unsigned char *)y->data +
                 start * y->stride[axis] * (int64_t)dra_dtype_bytes(y->dtype);
    return t;
}

static dra_call part_call(const dra_call *c, const part *p)
{
    dra_call call = *c;
    call.out = &p->to;
    call.in = &p->from;
    call.n_out = call.n_in = 1;
    return call;
}

typedef part (*part_at)(const dra_call *c, int k, void *number);

static int64_t count_tiles(const dra_call *c, int parts, part_at at)
{
    int64_t tiles = 0;
    for (int k = 0; k < parts; k++) {
        const part     p = at(c, k, NULL);
        const dra_call call = part_call(c, &p);
        tiles += dra_pointwise_tiles(&call);
    }
    return tiles;
}

/* Tile i of all parts, counted one part after the other. */
static void run_tile(const dra_call *c, int parts, part_at at, int64_t i)
{
    double number; /* room for a fill of any dtype */
    for (int k = 0; k < parts; k++) {
        const part     p = at(c, k, &number);
        const dra_call call = part_call(c, &p);
        const int64_t  tiles = dra_pointwise_tiles(&call);
        if (i < tiles) {
            dra_pointwise_tile(&call, i, dra_copy_row);
            return;
        }
        i -= tiles;
    }
}

/* ---- concat ---------------------------------------------------------------------------------- */

static dra_status concat_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_join_attr *a = n->attr;
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
            return dra_op_fail(g, n, DRA_ERR_SHAPE, "%s and %s differ outside axis %d",
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
    const dra_join_attr *a = n->attr;
    int64_t              start = 0;
    for (int i = 0; i < n->n_in; i++) {
        const int64_t size = dra_type_of(g, n->in[i])->shape.dim[a->axis];
        dx[i] = dra_slice(g, dy[0], a->axis, start, size);
        start += size;
    }
}

static part concat_part(const dra_call *c, int k, void *number)
{
    const dra_join_attr *a = c->attr;
    int64_t              start = 0;
    for (int i = 0; i < k; i++) start += c->in[i].shape.dim[a->axis];
    return (part){rows_of(&c->out[0], a->axis, start, c->in[k].shape.dim[a->axis]), c->in[k]};
}

static int64_t concat_tiles(const dra_call *c) { return count_tiles(c, c->n_in, concat_part); }

static void concat_tile(const dra_call *c, int64_t i) { run_tile(c, c->n_in, concat_part, i); }

const dra_op dra_op_concat = {.name = "concat",
                              .n_in = DRA_MANY,
                              .n_out = 1,
                              .attr_size = sizeof(dra_join_attr),
                              .infer = concat_infer,
                              .gradient = concat_gradient};

const dra_cpu_kernel dra_cpu_concat = {
    .base = {.op = "concat", .dtypes = DRA_ANY_DTYPE},
    .tiles = concat_tiles,
    .tile = concat_tile,
};

dra_value dra_concat(dra_graph *g, int n, const dra_value *x, int axis)
{
    if (n < 1) {
        dra_build_fail(g, "concat", DRA_ERR_VALUE, "of %d values", n);
        return (dra_value){0};
    }
    if (!dra_check_values(g, "concat", n, x)) return (dra_value){0};
    const int at = dra_axis_of(axis, dra_type_of(g, x[0])->shape.rank);
    if (n == 1 && at >= 0) return x[0];
    return dra_add_op(g, &dra_op_concat, n, x, &(dra_join_attr){.axis = at});
}

/* ---- pad ------------------------------------------------------------------------------------- */

static dra_status pad_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_join_attr *a = n->attr;
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
    const dra_join_attr *a = n->attr;
    dx[0] = dra_slice(g, dy[0], a->axis, a->before, dra_type_of(g, n->in[0])->shape.dim[a->axis]);
}

/* x, what comes before it, what comes after it. */
enum { PAD_PARTS = 3 };

static part pad_part(const dra_call *c, int k, void *number)
{
    const dra_join_attr *a = c->attr;
    const int64_t        n = c->in[0].shape.dim[a->axis];
    if (k == 0) return (part){rows_of(&c->out[0], a->axis, a->before, n), c->in[0]};
    part p = {.to = rows_of(&c->out[0], a->axis, k == 1 ? 0 : a->before + n,
                            k == 1 ? a->before : a->after)};
    p.from = p.to;
    p.from.data = number;
    for (int32_t i = 0; i < p.from.shape.rank; i++) p.from.stride[i] = 0;
    if (number) dra_store_number(p.from.dtype, number, a->fill);
    return p;
}

static int64_t pad_tiles(const dra_call *c) { return count_tiles(c, PAD_PARTS, pad_part); }

static void pad_tile(const dra_call *c, int64_t i) { run_tile(c, PAD_PARTS, pad_part, i); }

const dra_op dra_op_pad = {.name = "pad",
                           .n_in = 1,
                           .n_out = 1,
                           .attr_size = sizeof(dra_join_attr),
                           .infer = pad_infer,
                           .gradient = pad_gradient};

const dra_cpu_kernel dra_cpu_pad = {
    .base = {.op = "pad", .dtypes = DRA_ANY_DTYPE},
    .tiles = pad_tiles,
    .tile = pad_tile,
};

dra_value dra_pad(dra_graph *g, dra_value x, int axis, int64_t before, int64_t after, double fill)
{
    if (!dra_check_values(g, "pad", 1, &x)) return (dra_value){0};
    const int at = dra_axis_of(axis, dra_type_of(g, x)->shape.rank);
    if (at >= 0 && before == 0 && after == 0) return x;
    return dra_add_op(g, &dra_op_pad, 1, &x, &(dra_join_attr){at, before, after, fill});
}
