/* bounded: y = x within +-limit, 0 where x is not finite, and a count of what was changed. Where it
 * takes over the memory of x, which is the rule, a pass that changes nothing writes nothing.
 * Gradient: dx = dy where y = x, else 0; NaN equals nothing. */
#include <math.h>
#include <string.h>

#include "ops/common.h"

typedef struct bounded_attr {
    double limit;
} bounded_attr;

enum { TILE = 16384 };

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const bounded_attr *a = n->attr;
    out[0] = *dra_type_of(g, n->in[0]);
    out[1] = (dra_type){DRA_I32, (dra_shape){0}};
    if (!(a->limit > 0) || isinf(a->limit))
        return dra_op_fail(g, n, DRA_ERR_VALUE, "limit is %g, expected more than 0", a->limit);
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

static void gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    if (!dy[0].id) return;
    dx[0] = dra_select(g, dra_equal(g, n->in[0], n->out[0]), dy[0], dra_number(g, 0));
}

static int64_t parts(const dra_call *c)
{
    return dra_div_up(dra_shape_count(&c->in[0].shape), TILE);
}

/* First the tiles, each with a count of its own, then their sum. */
static int64_t stages(const dra_call *c) { return 2; }
static int64_t tiles(const dra_call *c) { return c->stage == 0 ? parts(c) : 1; }
static size_t  scratch(const dra_call *c) { return (size_t)parts(c) * sizeof(int32_t); }

static real bounded(real x, real limit)
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

/* How many lie outside: usually all that has to be known, and as integers a loop of a few
 * instructions for many numbers at once. */
static int32_t outside(int64_t n, const real *x, real limit)
{
    const bits most = size_of(limit);
    bits       count = 0;
    for (int64_t i = 0; i < n; i++) count += size_of(x[i]) > most;
    return (int32_t)count;
}

static void tile(const dra_call *c, int64_t i)
{
    int32_t            *count = c->scratch;
    const bounded_attr *a = c->attr;
    if (c->stage == 1) {
        int64_t sum = 0;
        for (int64_t k = 0; k < parts(c); k++) sum += count[k];
        if (c->out[1].data) *(int32_t *)c->out[1].data = (int32_t)dra_imin(sum, INT32_MAX);
        return;
    }
    const int64_t from = i * TILE, n = dra_imin(dra_shape_count(&c->in[0].shape) - from, TILE);
    const real   *x = (const real *)c->in[0].data + from;
    real         *y = c->out[0].data ? (real *)c->out[0].data + from : NULL;
    count[i] = outside(n, x, (real)a->limit);
    for (int64_t k = 0; y && (count[i] || y != x) && k < n; k++)
        y[k] = bounded(x[k], (real)a->limit);
}

const dra_op dra_op_bounded = {.name = "bounded",
                               .n_in = 1,
                               .n_out = 2,
                               .attr_size = sizeof(bounded_attr),
                               .infer = infer,
                               .gradient = gradient};

const dra_cpu_kernel dra_cpu_bounded = {
    .base = {.op = "bounded",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_DENSE,
             .in_place = 1,
             .scratch = scratch},
    .tiles = tiles,
    .tile = tile,
    .stages = stages,
};

dra_value dra_bounded(dra_graph *g, dra_value x, double limit, dra_value *count)
{
    const dra_node *n = dra_node_add(g, &dra_op_bounded, 1, &x, &(bounded_attr){limit});
    *count = n ? n->out[1] : (dra_value){0};
    return n ? n->out[0] : (dra_value){0};
}
