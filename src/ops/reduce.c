/* Reductions over any set of axes. The kernel sees x as (kept axes, reduced axes), whatever the
 * strides. An output element is a sum of segments of SEGMENT elements in their own order, so large
 * reductions to few elements run in parallel: stage 0 reduces segments, stage 1 adds them up. */
#include "ops/common.h"

enum { SEGMENT = 4096, OUTPUTS = 64 }; /* elements a segment, output elements a tile */

typedef struct reduce_attr {
    uint32_t axes; /* bits */
    bool     keep;
} reduce_attr;

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const reduce_attr *a = n->attr;
    const dra_type    *x = dra_type_of(g, n->in[0]);
    *out = (dra_type){x->dtype == DRA_REAL ? DRA_REAL : DRA_I32, {0}};
    if (x->dtype != DRA_REAL && x->dtype != DRA_I32 && x->dtype != DRA_BOOL)
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "x is %s, expected %s, i32 or bool",
                           dra_type_text(g, n->in[0]), dra_dtype_get(DRA_REAL)->name);
    for (int32_t i = 0; i < x->shape.rank; i++) {
        const bool reduced = a->axes >> i & 1;
        if (reduced && !a->keep) continue;
        out->shape.dim[out->shape.rank++] = reduced ? 1 : x->shape.dim[i];
    }
    return DRA_OK;
}

/* x split into kept and reduced axes; both tensors share its data. */
typedef struct split {
    dra_tensor kept, reduced;
    int64_t    outputs, elements; /* of y; reduced into each */
    int64_t    segments;          /* per output element */
} split;

static split split_axes(const dra_call *c)
{
    const reduce_attr *a = c->attr;
    const dra_tensor  *x = &c->in[0];
    split              s = {0};
    for (int32_t i = 0; i < x->shape.rank; i++) {
        dra_tensor *t = a->axes >> i & 1 ? &s.reduced : &s.kept;
        t->stride[t->shape.rank] = x->stride[i];
        t->shape.dim[t->shape.rank++] = x->shape.dim[i];
    }
    s.outputs = dra_shape_count(&s.kept.shape);
    s.elements = dra_shape_count(&s.reduced.shape);
    s.segments = dra_imax(1, dra_div_up(s.elements, SEGMENT));
    return s;
}

/* Many outputs: one stage, OUTPUTS of them a tile. Few: a tile a segment, then the sums. */
static bool by_segment(const split *s) { return s->outputs < OUTPUTS && s->segments > 1; }

static int64_t stages(const dra_call *c)
{
    const split s = split_axes(c);
    return by_segment(&s) ? 2 : 1;
}

static int64_t tiles(const dra_call *c)
{
    const split s = split_axes(c);
    if (!by_segment(&s)) return dra_div_up(s.outputs, OUTPUTS);
    return c->stage == 0 ? s.outputs * s.segments : 1;
}

static size_t scratch(const dra_call *c)
{
    const split s = split_axes(c);
    return by_segment(&s) ? (size_t)(s.outputs * s.segments) * sizeof(real) : 0;
}

/* Sum of elements [from, to) of the reduced axes, starting at x. */
static real sum_real(const dra_call *c, const split *s, const real *x, int64_t from, int64_t to)
{
    const dra_tensor *r = &s->reduced;
    if (dra_tensor_is_dense(r)) return c->simd->sum(to - from, x + from);
    real sum = 0;
    for (int64_t i = from; i < to; i++) sum += x[dra_offset_of(r, i)];
    return sum;
}

static int32_t sum_int(const dra_call *c, const split *s, int64_t start)
{
    uint32_t sum = 0; /* wraps */
    for (int64_t i = 0; i < s->elements; i++) {
        const int64_t at = start + dra_offset_of(&s->reduced, i);
        sum += c->in[0].dtype == DRA_BOOL ? ((const uint8_t *)c->in[0].data)[at] != 0
                                          : ((const uint32_t *)c->in[0].data)[at];
    }
    return (int32_t)sum;
}

static real sum_segment(const dra_call *c, const split *s, int64_t output, int64_t segment)
{
    const real *x = (const real *)c->in[0].data + dra_offset_of(&s->kept, output);
    return sum_real(c, s, x, segment * SEGMENT, dra_imin(s->elements, (segment + 1) * SEGMENT));
}

static void sum_outputs(const dra_call *c, const split *s, int64_t from, int64_t to)
{
    for (int64_t o = from; o < to; o++) {
        if (c->in[0].dtype != DRA_REAL) {
            ((int32_t *)c->out[0].data)[o] = sum_int(c, s, dra_offset_of(&s->kept, o));
            continue;
        }
        real sum = 0;
        for (int64_t k = 0; k < s->segments; k++) sum += sum_segment(c, s, o, k);
        ((real *)c->out[0].data)[o] = sum;
    }
}

static void tile(const dra_call *c, int64_t i)
{
    const split s = split_axes(c);
    real       *partial = c->scratch, *y = c->out[0].data;
    if (!by_segment(&s) || c->in[0].dtype != DRA_REAL) {
        if (by_segment(&s) && (c->stage == 0 || i > 0)) return; /* integers: in the last stage */
        const int64_t from = by_segment(&s) ? 0 : i * OUTPUTS;
        sum_outputs(c, &s, from, dra_imin(s.outputs, from + OUTPUTS));
    } else if (c->stage == 0) {
        partial[i] = sum_segment(c, &s, i / s.segments, i % s.segments);
    } else {
        for (int64_t o = 0; o < s.outputs; o++) {
            y[o] = 0;
            for (int64_t k = 0; k < s.segments; k++) y[o] += partial[o * s.segments + k];
        }
    }
}

/* dy with the reduced axes back as size 1, seen with x's shape. */
static dra_value spread(dra_graph *g, const dra_node *n, dra_value dy)
{
    const reduce_attr *a = n->attr;
    const dra_shape    x = dra_type_of(g, n->in[0])->shape;
    dra_shape          kept = x;
    for (int32_t i = 0; i < x.rank; i++)
        if (a->axes >> i & 1) kept.dim[i] = 1;
    return dra_broadcast(g, dra_reshape(g, dy, kept), x);
}

static void sum_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = spread(g, n, dy[0]);
}

const dra_op     dra_op_sum = {.name = "sum",
                               .n_in = 1,
                               .n_out = 1,
                               .attr_size = sizeof(reduce_attr),
                               .infer = infer,
                               .gradient = sum_gradient};
const dra_kernel dra_cpu_sum = {&dra_op_sum, DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL),
                                tiles, tile, stages, scratch};

/* ---- builders ------------------------------------------------------------------------------------------- */

/* Axes as bits; false, with the error set, for an axis outside or named twice. */
static bool axes_of(dra_graph *g, const char *op, dra_value x, dra_axes axes, reduce_attr *out)
{
    if (!dra_check_values(g, op, 1, &x)) return false;
    *out = (reduce_attr){0, axes.keep};
    for (int i = 0; i < axes.n && i < DRA_MAX_RANK; i++) {
        const int at = dra_axis_of(axes.axis[i], dra_type_of(g, x)->shape.rank);
        if (at < 0 || out->axes >> at & 1) {
            dra_build_fail(g, op, DRA_ERR_SHAPE, "x %s: axis %d is outside or named twice",
                           dra_type_text(g, x), axes.axis[i]);
            return false;
        }
        out->axes |= 1u << at;
    }
    return true;
}

dra_value dra_sum(dra_graph *g, dra_value x, dra_axes axes)
{
    reduce_attr a;
    if (!axes_of(g, "sum", x, axes, &a)) return (dra_value){0};
    return dra_add_op(g, &dra_op_sum, 1, &x, &a);
}

dra_value dra_sum_last(dra_graph *g, dra_value x)
{
    return dra_sum(g, x, (dra_axes){1, {-1}, true});
}

dra_value dra_sum_all(dra_graph *g, dra_value x)
{
    if (!dra_check_values(g, "sum", 1, &x)) return (dra_value){0};
    const int32_t rank = dra_type_of(g, x)->shape.rank;
    return dra_add_op(g, &dra_op_sum, 1, &x, &(reduce_attr){(1u << rank) - 1, false});
}
