/* running_sum: the sum of a row so far, in two parts, for every channel on its own.
 *   y_t = y_{t-1} + x_t,  y = y[0] + y[1]: a number, and what it rounds off
 * A reset before t takes 0 for y_{t-1}; a pad has y_t = y_{t-1}.
 * Differences of sums over long stretches are what it is for: of sums near 1e4, floats would leave
 * an error of 1e-3, two of them leave one of 1e-8. Every step starts from the two parts, so that
 * parts of a sequence give the same bits as the whole.
 *
 * Gradient, t = T-1..0, from s = dlast: s += dy_t, dx_t = s, 0 at a pad; a reset ends with s = 0.
 * It is that of y[0]: the other part only says how that was rounded. */
#include "ops/recurrent/recur.h"

static const dra_tensor *mark_of(const dra_call *c)
{
    return ((const dra_running_sum_attr *)c->attr)->marked ? &c->in[c->n_in - 1] : NULL;
}

static int64_t count_running_sum_tiles(const dra_call *c)
{
    return c->in[0].shape.dim[0] * c->in[0].shape.dim[2];
}

/* ---- forward: (x, start[, mark]) -> y, last -------------------------------------------------- */

enum { X, START };
enum { Y, LAST };

static dra_status infer_running_sum(dra_graph *g, const dra_node *n, dra_type *out)
{
    const int64_t *x = dra_type_of(g, n->in[X])->shape.dim;
    out[Y] = (dra_type){DRA_REAL, DRA_SHAPE(x[0], x[1], x[2], 2)};
    out[LAST] = (dra_type){DRA_REAL, DRA_SHAPE(x[0], x[2], 2)};
    return DRA_OK;
}

/* Two floats make a double without loss, which is rounded to two floats again; of doubles the
 * second part stays 0. */
static void add_exactly(real x, real sum[2])
{
    const double d = (double)sum[0] + (double)sum[1] + (double)x;
    sum[0] = (real)d;
    sum[1] = (real)(d - (double)sum[0]);
}

static void run_running_sum_tile(const dra_call *c, int64_t i)
{
    const int64_t T = c->in[X].shape.dim[1], N = c->in[X].shape.dim[2], b = i / N, k = i % N;
    const real   *start = dra_recur_at(&c->in[START], b, k, 0);
    real          sum[2] = {start[0], start[1]};
    for (int64_t t = 0; t < T; t++) {
        const int32_t mark = dra_recur_mark(mark_of(c), b, t);
        if (mark & DRA_MARK_RESET) sum[0] = sum[1] = 0;
        if (!(mark & DRA_MARK_PAD)) add_exactly(*dra_recur_at(&c->in[X], b, t, k), sum);
        if (c->out[Y].data) dra_recur_copy(2, sum, dra_recur_at(&c->out[Y], b, t, k));
    }
    if (c->out[LAST].data) dra_recur_copy(2, sum, dra_recur_at(&c->out[LAST], b, k, 0));
}

/* ---- backward: (dy (B, T, N), dlast (B, N)[, mark]) -> dx, dstart (B, N) --------------------- */

enum { DY, DLAST };
enum { DX, DSTART };

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    out[DX] = *dra_type_of(g, n->in[DY]);
    out[DSTART] = *dra_type_of(g, n->in[DLAST]);
    return DRA_OK;
}

static void back_tile(const dra_call *c, int64_t i)
{
    const int64_t T = c->in[DY].shape.dim[1], N = c->in[DY].shape.dim[2], b = i / N, k = i % N;
    double        sum = (double)*dra_recur_at(&c->in[DLAST], b, k, 0);
    for (int64_t t = T - 1; t >= 0; t--) {
        const int32_t mark = dra_recur_mark(mark_of(c), b, t);
        sum += (double)*dra_recur_at(&c->in[DY], b, t, k);
        if (c->out[DX].data)
            *dra_recur_at(&c->out[DX], b, t, k) = mark & DRA_MARK_PAD ? 0 : (real)sum;
        if (mark & DRA_MARK_RESET) sum = 0;
    }
    if (c->out[DSTART].data) *dra_recur_at(&c->out[DSTART], b, k, 0) = (real)sum;
}

/* ---- the ops --------------------------------------------------------------------------------- */

extern const dra_op dra_op_running_sum, dra_op_running_sum_back;

/* The first part of an upstream (..., 2), without that axis. */
static dra_value first_part(dra_graph *g, dra_value dy, dra_value y)
{
    const dra_value both = dra_recur_upstream(g, dy, y);
    if (dra_graph_failed(g)) return both;
    dra_shape s = dra_shape_of(g, both);
    s.rank--;
    return dra_reshape(g, dra_slice(g, both, -1, 0, 1), s);
}

static void derive_running_sum(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_running_sum_attr *a = n->attr;
    dra_value in[3] = {first_part(g, dy[Y], n->out[Y]), first_part(g, dy[LAST], n->out[LAST])};
    if (a->marked) in[2] = n->in[2];
    const dra_node *back = dra_node_add(g, &dra_op_running_sum_back, 2 + a->marked, in, a);
    if (!back) return;
    const dra_shape s = dra_shape_of(g, back->out[DSTART]);
    dx[X] = back->out[DX];
    dx[START] = dra_broadcast(g,
                              dra_reshape(g, back->out[DSTART], DRA_SHAPE(s.dim[0], s.dim[1], 1)),
                              DRA_SHAPE(s.dim[0], s.dim[1], 2));
}

const dra_op dra_op_running_sum = {.name = "running_sum",
                                   .n_in = DRA_MANY,
                                   .n_out = 2,
                                   .attr_size = sizeof(dra_running_sum_attr),
                                   .infer = infer_running_sum,
                                   .gradient = derive_running_sum,
                                   .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_running_sum = {
    .base = {.op = "running_sum",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS},
    .tiles = count_running_sum_tiles,
    .tile = run_running_sum_tile,
};

const dra_op dra_op_running_sum_back = {.name = "running_sum_back",
                                        .n_in = DRA_MANY,
                                        .n_out = 2,
                                        .attr_size = sizeof(dra_running_sum_attr),
                                        .infer = back_infer,
                                        .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_running_sum_back = {
    .base = {.op = "running_sum_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS},
    .tiles = count_running_sum_tiles,
    .tile = back_tile,
};

static bool check_running_sum(dra_graph *g, dra_value x, dra_value start, dra_value mark)
{
    const dra_shape s = dra_shape_of(g, x);
    if (s.rank != 3) {
        dra_build_fail(g, "running_sum", DRA_ERR_SHAPE, "x is %s, expected (B, T, N)",
                       dra_type_text(g, x));
        return false;
    }
    return dra_recur_expect(g, "running_sum", "x", x, DRA_REAL, s) &&
           (!start.id || dra_recur_expect(g, "running_sum", "start", start, DRA_REAL,
                                          DRA_SHAPE(s.dim[0], s.dim[2], 2))) &&
           (!mark.id || dra_recur_expect(g, "running_sum", "mark", mark, DRA_I32,
                                         DRA_SHAPE(s.dim[0], s.dim[1])));
}

dra_value dra_running_sum(dra_graph *g, dra_value x, dra_value start, dra_value mark,
                          dra_value *last)
{
    const dra_running_sum_attr a = {mark.id != 0};
    const dra_value            options[] = {start, mark};
    dra_value                  in[3] = {x};
    int                        n = 1;
    if (last) *last = (dra_value){0};
    for (int i = 0; i < 2; i++)
        if (options[i].id) in[n++] = options[i];
    if (!dra_check_values(g, "running_sum", n, in) || !check_running_sum(g, x, start, mark))
        return (dra_value){0};
    const int64_t *dim = dra_type_of(g, x)->shape.dim;
    in[START] = start.id ? start : dra_zeros(g, DRA_SHAPE(dim[0], dim[2], 2));
    in[2] = mark;
    const dra_node *node = dra_node_add(g, &dra_op_running_sum, 2 + a.marked, in, &a);
    if (node && last) *last = node->out[LAST];
    return node ? node->out[Y] : (dra_value){0};
}
