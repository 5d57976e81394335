/* Running sums and maxima along an axis: y_t = sum_(s <= t) x_s and y_t = max_(s <= t) x_s; in
 * reverse over s >= t. cummax also gives where the maximum stands: the first one met; a NaN counts
 * as the maximum.
 *
 * Gradients: a cumsum the other way round; dy added up where its maximum stands. */
#include <tgmath.h>

#include "ops/movement/lines.h"

/* What one tile works on: elements at[k] + t * step of each tensor, t running as asked for. */
typedef struct course {
    int64_t T, n;
    int64_t x_at[DRA_LINES], y_at[DRA_LINES], x_step, y_step;
    bool    reverse, adjacent;
} course;

static course make_course(const dra_call *c, int64_t tile)
{
    const dra_cumulate_attr *a = c->attr;
    const dra_tensor        *x = &c->in[0], *y = &c->out[0];
    const dra_lines          lines = dra_lines_of(&x->shape, a->axis, tile);
    course                   r = {.T = x->shape.dim[a->axis],
                                  .n = lines.n,
                                  .x_step = x->stride[a->axis],
                                  .y_step = y->stride[a->axis],
                                  .reverse = a->reverse};
    const bool               x_adjacent = dra_line_starts(x, a->axis, lines, r.x_at);
    const bool               y_adjacent = dra_line_starts(y, a->axis, lines, r.y_at);
    r.adjacent = x_adjacent && y_adjacent;
    return r;
}

static int64_t time_of(const course *r, int64_t step)
{
    return r->reverse ? r->T - 1 - step : step;
}

static int64_t count_cumulate_tiles(const dra_call *c)
{
    return dra_line_tiles(&c->in[0].shape, ((const dra_cumulate_attr *)c->attr)->axis);
}

/* ---- cumsum ---------------------------------------------------------------------------------- */

static dra_status cumsum_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    return out->dtype == DRA_I32 ? DRA_OK : dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

static void cumsum_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_cumulate_attr *a = n->attr;
    dx[0] = dra_cumsum(g, dy[0], a->axis, !a->reverse);
}

/* In double: later elements are often differences of sums over long stretches. */
static void sum_reals(const course *r, const real *x, real *y)
{
    double sum[DRA_LINES] = {0};
    for (int64_t s = 0; s < r->T; s++) {
        const int64_t t = time_of(r, s), x_t = t * r->x_step, y_t = t * r->y_step;
        if (r->adjacent) {
            const real *from = x + r->x_at[0] + x_t;
            real       *to = y + r->y_at[0] + y_t;
            for (int64_t k = 0; k < r->n; k++) to[k] = (real)(sum[k] += from[k]);
        } else {
            for (int64_t k = 0; k < r->n; k++)
                y[r->y_at[k] + y_t] = (real)(sum[k] += x[r->x_at[k] + x_t]);
        }
    }
}

static void sum_integers(const course *r, const uint32_t *x, uint32_t *y) /* wraps */
{
    uint32_t sum[DRA_LINES] = {0};
    for (int64_t s = 0; s < r->T; s++) {
        const int64_t t = time_of(r, s);
        for (int64_t k = 0; k < r->n; k++)
            y[r->y_at[k] + t * r->y_step] = sum[k] += x[r->x_at[k] + t * r->x_step];
    }
}

static void cumsum_tile(const dra_call *c, int64_t i)
{
    const course r = make_course(c, i);
    if (c->in[0].dtype == DRA_I32)
        sum_integers(&r, c->in[0].data, c->out[0].data);
    else
        sum_reals(&r, c->in[0].data, c->out[0].data);
}

const dra_op dra_op_cumsum = {.name = "cumsum",
                              .n_in = 1,
                              .n_out = 1,
                              .attr_size = sizeof(dra_cumulate_attr),
                              .infer = cumsum_infer,
                              .gradient = cumsum_gradient,
                              .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_cumsum = {
    .base = {.op = "cumsum", .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .in_place = 1},
    .tiles = count_cumulate_tiles,
    .tile = cumsum_tile,
};

dra_value dra_cumsum(dra_graph *g, dra_value x, int axis, bool reverse)
{
    const int at = dra_axis_find(g, "cumsum", x, axis);
    if (at < 0) return (dra_value){0};
    return dra_add_op(g, &dra_op_cumsum, 1, &x, &(dra_cumulate_attr){at, reverse});
}

/* ---- cummax ---------------------------------------------------------------------------------- */

static dra_status cummax_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_cumulate_attr *a = n->attr;
    out[0] = out[1] = *dra_type_of(g, n->in[0]);
    out[1].dtype = DRA_I32;
    if (out->shape.dim[a->axis] > INT32_MAX)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s: axis %d is longer than an i32 index",
                           dra_type_text(g, n->in[0]), (int)a->axis);
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

static void cummax_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_cumulate_attr *a = n->attr;
    const dra_value          zeros = dra_zeros(g, dra_type_of(g, n->in[0])->shape);
    dx[0] = dra_scatter_add(g, zeros, n->out[1], dy[0], a->axis);
}

static void cummax_tile(const dra_call *c, int64_t i)
{
    const course r = make_course(c, i);
    const real  *x = c->in[0].data;
    real        *y = c->out[0].data;
    int32_t     *index = c->out[1].data, where[DRA_LINES] = {0};
    real         best[DRA_LINES] = {0};
    for (int64_t s = 0; s < r.T; s++) {
        const int64_t t = time_of(&r, s);
        for (int64_t k = 0; k < r.n; k++) {
            const real v = x[r.x_at[k] + t * r.x_step];
            if (s == 0 || v > best[k] || (isnan(v) && !isnan(best[k]))) {
                best[k] = v;
                where[k] = (int32_t)t;
            }
            if (y) y[r.y_at[k] + t * r.y_step] = best[k];
            if (index) index[r.y_at[k] + t * r.y_step] = where[k];
        }
    }
}

const dra_op dra_op_cummax = {.name = "cummax",
                              .n_in = 1,
                              .n_out = 2,
                              .attr_size = sizeof(dra_cumulate_attr),
                              .infer = cummax_infer,
                              .gradient = cummax_gradient,
                              .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_cummax = {
    .base = {.op = "cummax", .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .in_place = 1},
    .tiles = count_cumulate_tiles,
    .tile = cummax_tile,
};

dra_value dra_cummax(dra_graph *g, dra_value x, int axis, bool reverse)
{
    const int at = dra_axis_find(g, "cummax", x, axis);
    if (at < 0) return (dra_value){0};
    return dra_add_op(g, &dra_op_cummax, 1, &x, &(dra_cumulate_attr){at, reverse});
}
