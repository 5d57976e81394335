/* token_losses: the cross entropy of each row of logits x (..., V) with its target t (...).
 *   q_v = (1-s) [v = t] + s / V      loss = -sum_v q_v log softmax(x)_v = lse(x) - sum_v q_v x_v
 * 0 for rows whose target is the ignored one. Gradient: dx_v = dy (softmax(x)_v - q_v), by an op
 * of its own that needs only x and lse: softmax(x)_v = e^(x_v - lse); where the largest logit is
 * pulled, dx_v += dy l2wrap x_v at v = argmax(x), the gradient of l2wrap / 2 max(x)^2.
 * cross_entropy: the mean loss of the rows that count. */
#include <tgmath.h>

#include "ops/loss/cross_entropy.h"

enum { ROWS = 16 }; /* of a tile */

/* ---- one row --------------------------------------------------------------------------------- */

bool dra_row_valid(const dra_call *c, int64_t tile, int64_t row, int64_t V, int32_t target)
{
    if (dra_row_ignored(c->attr, target) || (target >= 0 && target < V)) return true;
    DRA_FAULT(c, tile, DRA_FAULT_TARGET, target, row, V - 1);
    return false;
}

/* Everything is taken relative to the maximum m, so that large logits cancel before they round. */
real dra_row_loss(const dra_call *c, int64_t V, const real *x, int32_t target, real *lse)
{
    const real s = (real)((const dra_cross_entropy_config *)c->attr)->smoothing;
    real       m;
    const real log_sum = dra_simd_of(c)->log_sum(V, x, &m);
    real       expected = x[target] - m;
    if (s != 0) expected = (1 - s) * expected + s * (dra_simd_of(c)->sum(V, x) / (real)V - m);
    *lse = m + log_sum;
    return log_sum - expected;
}

static int64_t find_largest(int64_t V, const real *x)
{
    int64_t top = 0;
    for (int64_t v = 1; v < V; v++)
        if (x[v] > x[top]) top = v;
    return top;
}

void dra_row_loss_back(const dra_call *c, int64_t V, const real *x, int32_t target, real lse,
                       real dy, real *dx)
{
    const dra_cross_entropy_config *a = c->attr;
    const real                      s = (real)a->smoothing;
    const int64_t                   top = a->l2wrap > 0 ? find_largest(V, x) : 0;
    const real                      pulled = a->l2wrap > 0 ? (real)a->l2wrap * x[top] : 0;
    dra_simd_of(c)->exp_sum(V, x, lse, dx);
    dra_simd_of(c)->scale(V, dy, dx);
    if (s != 0)
        for (int64_t v = 0; v < V; v++) dx[v] -= dy * s / (real)V;
    dx[target] -= dy * (1 - s);
    if (pulled != 0) dx[top] += dy * pulled;
}

/* ---- token_losses (x, target) -> losses, lse ------------------------------------------------- */

static dra_status check_rows(dra_graph *g, const dra_node *n, int target)
{
    dra_status st = dra_expect_dtype(g, n, 0, "logits", DRA_REAL);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, target, "target", DRA_I32);
    if (st != DRA_OK) return st;
    dra_shape rows = dra_type_of(g, n->in[0])->shape;
    rows.rank--;
    if (rows.rank >= 0 && dra_shape_equal(&rows, &dra_type_of(g, n->in[target])->shape))
        return DRA_OK;
    return dra_op_fail(g, n, DRA_ERR_SHAPE,
                       "logits %s, target %s: expected logits (..., V), target (...)",
                       dra_type_text(g, n->in[0]), dra_type_text(g, n->in[target]));
}

static dra_status losses_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_status st = check_rows(g, n, 1);
    out[0] = out[1] = (dra_type){DRA_REAL, dra_type_of(g, n->in[1])->shape};
    return st;
}

static int64_t losses_tiles(const dra_call *c) { return dra_div_up(dra_rows(&c->in[0]), ROWS); }

static int32_t target_at(const dra_tensor *t, int64_t row)
{
    return ((const int32_t *)t->data)[dra_offset_of(t, row)];
}

static void losses_tile(const dra_call *c, int64_t i)
{
    const int64_t V = dra_last(&c->in[0]), end = dra_imin(dra_rows(&c->in[0]), (i + 1) * ROWS);
    real         *losses = c->out[0].data, *lse = c->out[1].data;
    for (int64_t r = i * ROWS; r < end; r++) {
        const int32_t target = target_at(&c->in[1], r);
        real          loss = 0, row_lse = (real)INFINITY; /* ignored: softmax is 0 everywhere */
        if (!dra_row_valid(c, i, r, V, target)) return;
        if (!dra_row_ignored(c->attr, target))
            loss = dra_row_loss(c, V, dra_row(&c->in[0], r), target, &row_lse);
        if (losses) losses[r] = loss;
        if (lse) lse[r] = row_lse;
    }
}

static dra_cost losses_cost(const dra_call *c)
{
    dra_cost cost = dra_pointwise_cost(c);                       /* for its bytes */
    cost.flops = 4.0 * (double)dra_shape_count(&c->in[0].shape); /* max, minus, e^, plus */
    return cost;
}

/* ---- token_losses_back (x, lse, target, dy) -> dx -------------------------------------------- */

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    return check_rows(g, n, 2);
}

static void back_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *x = &c->in[0], *lse = &c->in[1], *dy = &c->in[3];
    const int64_t     V = dra_last(x), end = dra_imin(dra_rows(x), (i + 1) * ROWS);
    for (int64_t r = i * ROWS; r < end; r++) {
        const int32_t target = target_at(&c->in[2], r);
        real         *dx = dra_row(&c->out[0], r);
        if (!dra_row_valid(c, i, r, V, target)) return;
        if (dra_row_ignored(c->attr, target))
            for (int64_t v = 0; v < V; v++) dx[v] = 0;
        else
            dra_row_loss_back(c, V, dra_row(x, r), target,
                              ((const real *)lse->data)[dra_offset_of(lse, r)],
                              ((const real *)dy->data)[dra_offset_of(dy, r)], dx);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

extern const dra_op dra_op_token_losses_back;

static dra_value build_back(dra_graph *g, const dra_node *n, dra_value lse, dra_value target,
                            dra_value dy)
{
    const dra_value in[] = {n->in[0], lse, target, dy};
    return dra_add_op(g, &dra_op_token_losses_back, 4, in, n->attr);
}

/* (...) -> (..., 1), which broadcasts against logits. */
static dra_value make_column(dra_graph *g, dra_value x)
{
    dra_shape s = dra_shape_of(g, x);
    s.dim[s.rank++] = 1;
    return dra_reshape(g, x, s);
}

/* Without attention to targets; rows that do not count have lse = infinity, hence 0. */
static dra_value softmax_of(dra_graph *g, dra_value x, dra_value lse)
{
    return dra_exp(g, dra_sub(g, x, make_column(g, lse)));
}

static dra_value sum_columns(dra_graph *g, dra_value x)
{
    return dra_sum(g, x, (dra_axes){.n = 1, .axis = {-1}});
}

static void losses_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    if (dy[0].id) dx[0] = build_back(g, n, n->out[1], n->in[1], dy[0]);
    if (!dy[1].id) return; /* lse is used by second derivatives only */
    const dra_value more = dra_mul(g, make_column(g, dy[1]), softmax_of(g, n->in[0], n->out[1]));
    dx[0] = dx[0].id ? dra_add(g, dx[0], more) : more;
}

/* With u upstream: x u dy e^(x - lse), lse minus its sum, dy sum(u (e^(x - lse) - q)). */
static void back_gradient(dra_graph *g, const dra_node *n, const dra_value *u, dra_value *dx)
{
    const dra_value lse = n->in[1], target = n->in[2], dy = n->in[3];
    if (((const dra_cross_entropy_config *)n->attr)->l2wrap > 0) {
        dra_op_fail(g, n, DRA_ERR_GRAD, "has no second derivative with l2wrap");
        return;
    }
    const dra_value one = dra_broadcast(g, dra_number(g, 1), dra_shape_of(g, dy));
    dx[0] = dra_mul(g, dra_mul(g, u[0], make_column(g, dy)), softmax_of(g, n->in[0], lse));
    dx[1] = dra_neg(g, sum_columns(g, dx[0]));
    dx[3] = sum_columns(g, dra_mul(g, u[0], build_back(g, n, lse, target, one)));
}

const dra_op dra_op_token_losses = {.name = "token_losses",
                                    .n_in = 2,
                                    .n_out = 2,
                                    .attr_size = sizeof(dra_cross_entropy_config),
                                    .infer = losses_infer,
                                    .gradient = losses_gradient,
                                    .cost = losses_cost};

const dra_cpu_kernel dra_cpu_token_losses = {
    .base = {.op = "token_losses",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS},
    .tiles = losses_tiles,
    .tile = losses_tile,
};

const dra_op dra_op_token_losses_back = {.name = "token_losses_back",
                                         .n_in = 4,
                                         .n_out = 1,
                                         .attr_size = sizeof(dra_cross_entropy_config),
                                         .infer = back_infer,
                                         .gradient = back_gradient,
                                         .cost = losses_cost};

const dra_cpu_kernel dra_cpu_token_losses_back = {
    .base = {.op = "token_losses_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .in_place = 1},
    .tiles = losses_tiles,
    .tile = back_tile,
};

/* ---- builders -------------------------------------------------------------------------------- */

bool dra_loss_config(dra_graph *g, const char *op, const dra_cross_entropy_config *config,
                     dra_cross_entropy_config *out)
{
    if (dra_graph_failed(g)) return false;
    *out = config ? *config : (dra_cross_entropy_config){0};
    if (!(out->smoothing >= 0 && out->smoothing <= 1))
        dra_build_fail(g, op, DRA_ERR_VALUE, "smoothing %g, expected 0 to 1", out->smoothing);
    else if (!(out->l2wrap >= 0) || isinf(out->l2wrap))
        dra_build_fail(g, op, DRA_ERR_VALUE, "l2wrap %g, expected 0 or more", out->l2wrap);
    return !dra_graph_failed(g);
}

dra_value dra_token_losses(dra_graph *g, dra_value logits, dra_value target,
                           const dra_cross_entropy_config *config)
{
    const dra_value          in[] = {logits, target};
    dra_cross_entropy_config attr;
    if (!dra_loss_config(g, "token_losses", config, &attr)) return (dra_value){0};
    return dra_add_op(g, &dra_op_token_losses, 2, in, &attr);
}

/* Counted in integers, exact beyond the 2^24 of a float. */
static dra_value rows_that_count(dra_graph *g, dra_value target,
                                 const dra_cross_entropy_config *config)
{
    const dra_shape s = dra_shape_of(g, target);
    if (!config || !config->use_ignore)
        return dra_number(g, (double)dra_imax(1, dra_shape_count(&s)));
    const dra_value counts = dra_not_equal(g, target, dra_integer(g, config->ignore));
    return dra_cast(g, dra_maximum(g, dra_sum_all(g, counts), dra_integer(g, 1)), DRA_REAL);
}

dra_value dra_cross_entropy(dra_graph *g, dra_value logits, dra_value target,
                            const dra_cross_entropy_config *config)
{
    const dra_value losses = dra_token_losses(g, logits, target, config);
    if (dra_graph_failed(g)) return (dra_value){0};
    return dra_div(g, dra_sum_all(g, losses), rows_that_count(g, target, config));
}
