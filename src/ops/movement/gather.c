/* gather: y[.., i, ..] = x[.., index[.., i, ..], ..] along an axis.
 * scatter_add: y = x, then y[.., index[.., i, ..], ..] += src[.., i, ..].
 *
 * Gradients, each of the other kind: of gather dx = scatter_add(0, index, dy); of scatter_add
 * dx = dy and dsrc = gather(dy, index). */
#include <string.h>

#include "ops/movement/lines.h"

/* The index is i32 and has x's rank and, except along `axis`, x's sizes. */
static dra_status check_index(dra_graph *g, const dra_node *n)
{
    const dra_gather_attr *a = n->attr;
    const dra_shape *x = &dra_type_of(g, n->in[0])->shape, *i = &dra_type_of(g, n->in[1])->shape;
    bool             fits = x->rank == i->rank;
    for (int32_t d = 0; fits && d < x->rank; d++) fits = d == a->axis || x->dim[d] == i->dim[d];
    if (!fits)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s and index %s differ outside axis %d",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]), (int)a->axis);
    return dra_expect_dtype(g, n, 1, "index", DRA_I32);
}

static void set_fault(const dra_call *c, int64_t tile, int32_t index, int64_t size)
{
    DRA_FAULT(c, tile, DRA_FAULT_INDEX, index, ((const dra_gather_attr *)c->attr)->axis, size);
}

/* ---- gather ---------------------------------------------------------------------------------- */

static dra_status gather_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = (dra_type){dra_type_of(g, n->in[0])->dtype, dra_type_of(g, n->in[1])->shape};
    return check_index(g, n);
}

static void gather_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_gather_attr *a = n->attr;
    const dra_value        zeros = dra_zeros(g, dra_type_of(g, n->in[0])->shape);
    dx[0] = dra_scatter_add(g, zeros, n->in[1], dy[0], a->axis);
}

/* A pointwise walk over y, index and x, where x stands still along the axis: row functions find
 * the start of a line of x and add the index themselves. */
typedef struct gather_call {
    dra_call call; /* first: what row functions are handed */
    int64_t  tile, size, step;
} gather_call;

static void gather_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const gather_call   *k = (const gather_call *)c;
    const size_t         bytes = dra_dtype_bytes(c->out[0].dtype);
    unsigned char       *y = ptr[0];
    const unsigned char *x = ptr[1];
    const int32_t       *index = ptr[2];
    for (int64_t i = 0; i < n; i++) {
        const int32_t at = index[i * step[2]];
        if (at < 0 || at >= k->size) {
            set_fault(c, k->tile, at, k->size);
            return;
        }
        const unsigned char *from = x + (i * step[1] + at * k->step) * (int64_t)bytes;
        if (bytes == sizeof(real))
            memcpy(y + (size_t)i * bytes, from, sizeof(real)); /* one move */
        else
            memcpy(y + (size_t)i * bytes, from, bytes);
    }
}

static void gather_tile(const dra_call *c, int64_t i)
{
    const int   axis = ((const dra_gather_attr *)c->attr)->axis;
    dra_tensor  in[] = {c->in[0], c->in[1]};
    gather_call k = {*c, i, in[0].shape.dim[axis], in[0].stride[axis]};
    in[0].shape = in[1].shape;
    in[0].stride[axis] = 0;
    k.call.in = in;
    dra_pointwise_tile(&k.call, i, gather_row);
}

const dra_op dra_op_gather = {.name = "gather",
                              .n_in = 2,
                              .n_out = 1,
                              .attr_size = sizeof(dra_gather_attr),
                              .infer = gather_infer,
                              .gradient = gather_gradient};

const dra_cpu_kernel dra_cpu_gather = {
    .base = {.op = "gather", .dtypes = DRA_ANY_DTYPE},
    .tiles = dra_pointwise_tiles,
    .tile = gather_tile,
};

dra_value dra_gather(dra_graph *g, dra_value x, dra_value index, int axis)
{
    const dra_value in[] = {x, index};
    const int       at = dra_axis_find(g, "gather", x, axis);
    if (at < 0) return (dra_value){0};
    return dra_add_op(g, &dra_op_gather, 2, in, &(dra_gather_attr){at});
}

/* ---- scatter_add ----------------------------------------------------------------------------- */

static dra_status scatter_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *src = dra_type_of(g, n->in[2]);
    *out = *dra_type_of(g, n->in[0]);
    if (out->dtype != src->dtype || (out->dtype != DRA_REAL && out->dtype != DRA_I32))
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "x %s and src %s, expected two of %s or i32",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[2]),
                           dra_dtype_get(DRA_REAL)->name);
    if (!dra_shape_equal(&src->shape, &dra_type_of(g, n->in[1])->shape))
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "index %s and src %s differ",
                           dra_type_text(g, n->in[1]), dra_type_text(g, n->in[2]));
    return check_index(g, n);
}

static void scatter_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_gather_attr *a = n->attr;
    dx[0] = dy[0];
    dx[2] = dra_gather(g, dy[0], n->in[1], a->axis);
}

/* Lines have one writer, which adds in the order of index: the same bits however many threads. */
static int64_t scatter_tiles(const dra_call *c)
{
    return dra_line_tiles(&c->out[0].shape, ((const dra_gather_attr *)c->attr)->axis);
}

static void copy_lines(const dra_tensor *y, const int64_t *y_at, const dra_tensor *x,
                       const int64_t *x_at, int axis, int64_t n)
{
    if (y->data == x->data) return; /* in place */
    for (int64_t t = 0; t < y->shape.dim[axis]; t++) {
        const int64_t y_t = t * y->stride[axis], x_t = t * x->stride[axis];
        for (int64_t k = 0; k < n; k++) {
            if (y->dtype == DRA_I32)
                ((int32_t *)y->data)[y_at[k] + y_t] = ((const int32_t *)x->data)[x_at[k] + x_t];
            else
                ((real *)y->data)[y_at[k] + y_t] = ((const real *)x->data)[x_at[k] + x_t];
        }
    }
}

static void scatter_tile(const dra_call *c, int64_t i)
{
    const int         axis = ((const dra_gather_attr *)c->attr)->axis;
    const dra_tensor *y = &c->out[0], *index = &c->in[1], *src = &c->in[2];
    const dra_lines   lines = dra_lines_of(&y->shape, axis, i);
    int64_t           y_at[DRA_LINES], at[DRA_LINES], src_at[DRA_LINES];
    dra_line_starts(y, axis, lines, y_at);
    dra_line_starts(&c->in[0], axis, lines, at);
    copy_lines(y, y_at, &c->in[0], at, axis, lines.n);
    dra_line_starts(index, axis, lines, at);
    dra_line_starts(src, axis, lines, src_at);
    for (int64_t t = 0; t < index->shape.dim[axis]; t++) {
        for (int64_t k = 0; k < lines.n; k++) {
            const int32_t to = ((const int32_t *)index->data)[at[k] + t * index->stride[axis]];
            const int64_t from = src_at[k] + t * src->stride[axis];
            if (to < 0 || to >= y->shape.dim[axis]) {
                set_fault(c, i, to, y->shape.dim[axis]);
                return;
            }
            const int64_t sum = y_at[k] + to * y->stride[axis];
            if (y->dtype == DRA_I32)
                ((uint32_t *)y->data)[sum] += ((const uint32_t *)src->data)[from]; /* wraps */
            else
                ((real *)y->data)[sum] += ((const real *)src->data)[from];
        }
    }
}

const dra_op dra_op_scatter_add = {.name = "scatter_add",
                                   .n_in = 3,
                                   .n_out = 1,
                                   .attr_size = sizeof(dra_gather_attr),
                                   .infer = scatter_infer,
                                   .gradient = scatter_gradient};

const dra_cpu_kernel dra_cpu_scatter_add = {
    .base = {.op = "scatter_add", .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .in_place = 1},
    .tiles = scatter_tiles,
    .tile = scatter_tile,
};

dra_value dra_scatter_add(dra_graph *g, dra_value x, dra_value index, dra_value src, int axis)
{
    const dra_value in[] = {x, index, src};
    const int       at = dra_axis_find(g, "scatter_add", x, axis);
    if (at < 0) return (dra_value){0};
    return dra_add_op(g, &dra_op_scatter_add, 3, in, &(dra_gather_attr){at});
}
