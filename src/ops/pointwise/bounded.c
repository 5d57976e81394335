/* bounded: y_i = x_i within +-limit, 0 where x_i is not finite, for any number of tensors, and a
 * count of what was changed in all of them. Where y_i takes over the memory of x_i, which is the
 * rule, a pass that changes nothing writes nothing.
 * Gradient: dx = dy where y = x, else 0; NaN equals nothing. */
#include <math.h>
#include <string.h>

#include "ops/common.h"

enum { TILE = 16384 };

static dra_status infer_bounded(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_bounded_attr *a = n->attr;
    dra_status              st = DRA_OK;
    if (!(a->limit > 0) || isinf(a->limit))
        return dra_op_fail(g, n, DRA_ERR_VALUE, "limit is %g, expected more than 0", a->limit);
    for (int i = 0; i < n->n_in && st == DRA_OK; i++) {
        out[i] = *dra_type_of(g, n->in[i]);
        st = dra_expect_dtype(g, n, i, "x", DRA_REAL);
    }
    out[n->n_in] = (dra_type){DRA_I32, (dra_shape){0}};
    return st;
}

static void derive_bounded(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    for (int i = 0; i < n->n_in; i++)
        if (dy[i].id)
            dx[i] = dra_select(g, dra_equal(g, n->in[i], n->out[i]), dy[i], dra_number(g, 0));
}

/* Tiles run on over all tensors as if they were one, so that many small ones are few tiles. */
static int64_t count_parts(const dra_call *c)
{
    int64_t all = 0;
    for (int i = 0; i < c->n_in; i++) all += dra_shape_count(&c->in[i].shape);
    return dra_div_up(all, TILE);
}

/* First the tiles, each with a count of its own, then their sum. */
static int64_t count_bounded_stages(const dra_call *c) { return 2; }
static int64_t count_bounded_tiles(const dra_call *c) { return c->stage == 0 ? count_parts(c) : 1; }
static size_t  size_bounded_scratch(const dra_call *c)
{
    return (size_t)count_parts(c) * sizeof(int32_t);
}

static real bound_number(real x, real limit)
{
    return !isfinite(x) ? 0 : x < -limit ? -limit : x > limit ? limit : x;
}

#ifdef DRA_REAL_DOUBLE
typedef int64_t bits;
#else
typedef int32_t bits;
#endif

/* A number without its sign, as an integer: sizes in order, then infinity, then NaN. */
static bits size_of(real x)
{
    bits n;
    memcpy(&n, &x, sizeof n);
    return n & (bits)((uint64_t)-1 >> (65 - 8 * sizeof n));
}

/* Counts those outside, which usually is all that is needed: on integers a loop of a few
 * instructions for many numbers at once. */
static int32_t count_outside(int64_t n, const real *x, real limit)
{
    const bits most = size_of(limit);
    bits       count = 0;
    for (int64_t i = 0; i < n; i++) count += size_of(x[i]) > most;
    return (int32_t)count;
}

/* Elements from..end-1 of tensor i. */
static int32_t bound_part(const dra_call *c, int i, int64_t from, int64_t end)
{
    const real    limit = (real)((const dra_bounded_attr *)c->attr)->limit;
    const real   *x = c->in[i].data;
    real         *y = c->out[i].data;
    const int32_t changed = count_outside(end - from, x + from, limit);
    for (int64_t k = from; y && (changed || y != x) && k < end; k++)
        y[k] = bound_number(x[k], limit);
    return changed;
}

static void add_counts(const dra_call *c)
{
    const int32_t *count = c->scratch;
    int32_t       *to = c->out[c->n_in].data;
    int64_t        sum = 0;
    for (int64_t k = 0; k < count_parts(c); k++) sum += count[k];
    if (to) *to = (int32_t)dra_imin(sum, INT32_MAX);
}

static void run_bounded_tile(const dra_call *c, int64_t number)
{
    int64_t from = number * TILE, end = from + TILE; /* counted from the start of tensor i */
    int32_t count = 0;
    if (c->stage == 1) {
        add_counts(c);
        return;
    }
    for (int i = 0; i < c->n_in && end > 0; i++) {
        const int64_t n = dra_shape_count(&c->in[i].shape);
        if (from < n) count += bound_part(c, i, dra_imax(from, 0), dra_imin(end, n));
        from -= n;
        end -= n;
    }
    ((int32_t *)c->scratch)[number] = count;
}

const dra_op dra_op_bounded = {.name = "bounded",
                               .n_in = DRA_MANY,
                               .n_out = DRA_MANY,
                               .attr_size = sizeof(dra_bounded_attr),
                               .infer = infer_bounded,
                               .gradient = derive_bounded};

const dra_cpu_kernel dra_cpu_bounded = {
    .base = {.op = "bounded",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_DENSE,
             .paired = true,
             .scratch = size_bounded_scratch},
    .tiles = count_bounded_tiles,
    .tile = run_bounded_tile,
    .stages = count_bounded_stages,
};

dra_value dra_clamp_states(dra_graph *g, int n, dra_value *x, double limit)
{
    const dra_node *node = dra_node_add_many(g, &dra_op_bounded, n, x, n + 1,
                                             &(dra_bounded_attr){limit});
    for (int i = 0; i < n; i++) x[i] = node ? node->out[i] : (dra_value){0};
    return node ? node->out[n] : (dra_value){0};
}

dra_value dra_bounded(dra_graph *g, dra_value x, double limit, dra_value *count)
{
    *count = dra_clamp_states(g, 1, &x, limit);
    return x;
}
