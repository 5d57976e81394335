/* What op files share. */
#include "ops/common.h"

#include <math.h>
#include <string.h>

/* ---- pointwise ------------------------------------------------------------------------------- */

typedef struct walk { /* all tensors of a call with axes merged where every tensor allows it */
    int     tensors, rank;
    int64_t dim[DRA_MAX_RANK];
    int64_t stride[DRA_POINTWISE_MAX][DRA_MAX_RANK];
} walk;

static const dra_tensor *tensor_at(const dra_call *c, int k)
{
    return k < c->n_out ? &c->out[k] : &c->in[k - c->n_out];
}

static bool can_merge(const dra_call *c, const walk *w, int32_t axis)
{
    for (int k = 0; k < w->tensors; k++)
        if (tensor_at(c, k)->stride[axis] != w->stride[k][0] * w->dim[0]) return false;
    return true;
}

/* Axes are collected from the last to the first, so w->dim[0] is the innermost. */
static walk make_walk(const dra_call *c)
{
    const dra_shape *s = &c->out[0].shape;
    walk             w = {.tensors = c->n_out + c->n_in, .rank = 0};
    for (int32_t axis = s->rank - 1; axis >= 0; axis--) {
        if (s->dim[axis] == 1) continue;
        if (w.rank == 1 && can_merge(c, &w, axis)) {
            w.dim[0] *= s->dim[axis];
            continue;
        }
        w.dim[w.rank] = s->dim[axis];
        for (int k = 0; k < w.tensors; k++) w.stride[k][w.rank] = tensor_at(c, k)->stride[axis];
        w.rank++;
    }
    if (w.rank == 0) {
        w.rank = 1;
        w.dim[0] = 1;
    }
    return w;
}

int64_t dra_pointwise_tiles(const dra_call *c)
{
    return dra_div_up(dra_shape_count(&c->out[0].shape), DRA_POINTWISE_TILE);
}

void dra_pointwise_tile(const dra_call *c, int64_t i, dra_pointwise_row row)
{
    const walk    w = make_walk(c);
    const int64_t total = dra_shape_count(&c->out[0].shape);
    const int64_t end = dra_imin(total, (i + 1) * DRA_POINTWISE_TILE);
    int64_t       step[DRA_POINTWISE_MAX];
    for (int k = 0; k < w.tensors; k++) step[k] = w.stride[k][0];
    for (int64_t at = i * DRA_POINTWISE_TILE; at < end;) {
        int64_t       rest = at / w.dim[0];
        const int64_t inner = at % w.dim[0], n = dra_imin(w.dim[0] - inner, end - at);
        int64_t       offset[DRA_POINTWISE_MAX];
        void         *ptr[DRA_POINTWISE_MAX];
        for (int k = 0; k < w.tensors; k++) offset[k] = inner * step[k];
        for (int axis = 1; axis < w.rank; axis++) {
            const int64_t index = rest % w.dim[axis];
            rest /= w.dim[axis];
            for (int k = 0; k < w.tensors; k++) offset[k] += index * w.stride[k][axis];
        }
        for (int k = 0; k < w.tensors; k++) {
            const dra_tensor *t = tensor_at(c, k);
            ptr[k] = (unsigned char *)t->data + offset[k] * (int64_t)dra_dtype_bytes(t->dtype);
        }
        row(c, n, ptr, step);
        at += n;
    }
}

dra_cost dra_pointwise_cost(const dra_call *c)
{
    return (dra_cost){(double)dra_shape_count(&c->out[0].shape), dra_call_bytes(c)};
}

/* ---- shapes ---------------------------------------------------------------------------------- */

int dra_axis_of(int axis, int32_t rank)
{
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? axis : -1;
}

dra_status dra_infer_same(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    for (int i = 0; i < n->n_in; i++) {
        const dra_type *t = dra_type_of(g, n->in[i]);
        if (t->dtype != DRA_REAL)
            return dra_op_fail(g, n, DRA_ERR_DTYPE, "input %d is %s, expected %s", i,
                               dra_type_text(g, n->in[i]), dra_dtype_get(DRA_REAL)->name);
        if (!dra_shape_equal(&t->shape, &out->shape))
            return dra_op_fail(g, n, DRA_ERR_SHAPE, "inputs %s and %s differ",
                               dra_type_text(g, n->in[0]), dra_type_text(g, n->in[i]));
    }
    return DRA_OK;
}

dra_status dra_expect_factor(dra_graph *g, const char *op, const char *name, dra_value v)
{
    const dra_dtype found = dra_type_of(g, v)->dtype;
    if (DRA_BIT(found) & DRA_FACTORS) return DRA_OK;
    return dra_build_fail(g, op, DRA_ERR_DTYPE, "%s is %s, expected %s, bf16 or f16", name,
                          dra_dtype_get(found)->name, dra_dtype_get(DRA_REAL)->name);
}

dra_status dra_expect_weight(dra_graph *g, const char *op, const char *name, dra_value v)
{
    return dra_is_quantised(dra_type_of(g, v)->dtype) ? DRA_OK : dra_expect_factor(g, op, name, v);
}

bool dra_broadcast_shapes(const dra_shape *a, const dra_shape *b, dra_shape *out)
{
    *out = (dra_shape){.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int32_t i = 0; i < out->rank; i++) { /* from the last axis */
        const int64_t x = i < a->rank ? a->dim[a->rank - 1 - i] : 1;
        const int64_t y = i < b->rank ? b->dim[b->rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        out->dim[out->rank - 1 - i] = x == 1 ? y : x;
    }
    return true;
}

bool dra_broadcast_pair(dra_graph *g, const char *op, dra_value *pair)
{
    dra_shape shape;
    if (!dra_check_values(g, op, 2, pair)) return false;
    if (!dra_broadcast_shapes(&dra_type_of(g, pair[0])->shape, &dra_type_of(g, pair[1])->shape,
                              &shape)) {
        dra_build_fail(g, op, DRA_ERR_SHAPE, "%s and %s do not broadcast",
                       dra_type_text(g, pair[0]), dra_type_text(g, pair[1]));
        return false;
    }
    for (int i = 0; i < 2; i++) pair[i] = dra_broadcast(g, pair[i], shape);
    return true;
}

dra_value dra_zeros(dra_graph *g, dra_shape shape)
{
    return dra_broadcast(g, dra_number(g, 0), shape);
}

dra_value dra_unbroadcast(dra_graph *g, dra_value dy, dra_shape shape)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape from = dra_shape_of(g, dy);
    dra_axes        axes = {.keep = true};
    const int32_t   lead = from.rank - shape.rank;
    for (int32_t i = 0; i < from.rank; i++)
        if (i < lead || (shape.dim[i - lead] == 1 && from.dim[i] != 1)) axes.axis[axes.n++] = i;
    if (axes.n) dy = dra_sum(g, dy, axes);
    return dra_reshape(g, dy, shape);
}

const void *dra_element(const void *data, dra_dtype dtype, int64_t offset)
{
    return (const unsigned char *)data + dra_elements_bytes(dtype, offset);
}

int64_t dra_offset_of(const dra_tensor *t, int64_t i)
{
    int64_t offset = 0;
    for (int32_t a = t->shape.rank - 1; a >= 0; a--) {
        offset += i % t->shape.dim[a] * t->stride[a];
        i /= t->shape.dim[a];
    }
    return offset;
}

/* ---- numbers to any dtype -------------------------------------------------------------------- */

static int32_t to_i32(double x)
{
    if (isnan(x)) return 0;
    if (x >= 2147483647.0) return INT32_MAX;
    if (x <= -2147483648.0) return INT32_MIN;
    return (int32_t)x;
}

void dra_store_number(dra_dtype t, void *p, double x)
{
    switch (t) {
    case DRA_F32: *(float *)p = (float)x; break;
    case DRA_F64: *(double *)p = x; break;
    case DRA_BF16: *(uint16_t *)p = dra_f32_to_bf16(dra_round_to_odd(x)); break;
    case DRA_F16: *(uint16_t *)p = dra_f32_to_f16(dra_round_to_odd(x)); break;
    case DRA_I32: *(int32_t *)p = to_i32(x); break;
    case DRA_BOOL: *(uint8_t *)p = x != 0; break;
    default: break; /* quantised elements have no address */
    }
}
