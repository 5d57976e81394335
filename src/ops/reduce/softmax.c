/* softmax over the last axis:      y_c = e^(x_c - m) / sum_j e^(x_j - m),  m = max_j x_j
 * log_softmax over the last axis:  y_c = (x_c - m) - ln(sum_j e^(x_j - m))
 * m cancels out; it only keeps e^ finite. Entries at or below DRA_MASKED / 2 take no part: their
 * weight is exactly 0 and their logarithm DRA_MASKED; a row in which none does gives 0 and
 * DRA_MASKED throughout. No test is needed for them in the sum: next to a larger entry their
 * distance to m is at least 1e22, so that e^ is 0.
 * Gradients: softmax      dx = y (dy - sum(dy y)), one fused op: one pass instead of four
 *            log_softmax  dx = dy' - e^y sum(dy'), dy' = dy where an entry takes part, else 0. */
#include <tgmath.h>

#include "ops/rows.h"

#define LIMIT ((real)(DRA_MASKED / 2))

static dra_status infer_softmax(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    if (out->shape.rank == 0) return dra_op_fail(g, n, DRA_ERR_SHAPE, "x has no axis");
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

static dra_cost cost_softmax(const dra_call *c)
{
    dra_cost k = dra_pointwise_cost(c);
    k.flops *= 5; /* maximum, difference, e^, sum, product */
    return k;
}

/* ---- softmax --------------------------------------------------------------------------------- */

static void softmax_tile(const dra_call *c, int64_t tile)
{
    const int64_t       C = dra_last(&c->in[0]);
    const dra_row_range rows = dra_tile_rows(c, tile);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const real *x = dra_row(&c->in[0], row);
        real       *y = (real *)c->out[0].data + row * C;
        const real  m = dra_simd_of(c)->max(C, x);
        if (m <= LIMIT) {
            for (int64_t i = 0; i < C; i++) y[i] = 0;
        } else {
            const real sum = dra_simd_of(c)->exp_sum(C, x, m, y);
            dra_simd_of(c)->scale(C, 1 / sum, y);
        }
    }
}

/* (y, dy) -> dx */
static void back_tile(const dra_call *c, int64_t tile)
{
    const int64_t       C = dra_last(&c->in[0]);
    const dra_row_range rows = dra_tile_rows(c, tile);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const real *y = dra_row(&c->in[0], row), *dy = dra_row(&c->in[1], row);
        real       *dx = (real *)c->out[0].data + row * C;
        const real  mean = dra_simd_of(c)->dot(C, dy, y);
        for (int64_t i = 0; i < C; i++) dx[i] = y[i] * (dy[i] - mean);
    }
}

/* With upstream u: d_y = u (dy - m) - dy sum(u y), m = sum(dy y); linear and symmetric in dy. */
static void back_gradient(dra_graph *g, const dra_node *n, const dra_value *u, dra_value *dx)
{
    const dra_value y = n->in[0], dy = n->in[1], both[] = {y, u[0]};
    const dra_value m = dra_sum_last(g, dra_mul(g, dy, y));
    const dra_value s = dra_sum_last(g, dra_mul(g, u[0], y));
    dx[0] = dra_sub(g, dra_mul(g, u[0], dra_sub(g, dy, m)), dra_mul(g, dy, s));
    dx[1] = dra_add_op(g, n->op, 2, both, NULL);
}

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_status st = dra_infer_same(g, n, out);
    return st == DRA_OK && out->shape.rank == 0 ? dra_op_fail(g, n, DRA_ERR_SHAPE, "y has no axis")
                                                : st;
}

const dra_op dra_op_softmax_back = {.name = "softmax_back",
                                    .n_in = 2,
                                    .n_out = 1,
                                    .infer = back_infer,
                                    .gradient = back_gradient,
                                    .cost = cost_softmax};

const dra_cpu_kernel dra_cpu_softmax_back = {
    .base = {.op = "softmax_back",
             .dtypes = DRA_REALS,
             .layout = DRA_LAYOUT_ROWS,
             .in_place = 1 | 2},
    .tiles = dra_row_tiles,
    .tile = back_tile,
};

static void softmax_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_value in[] = {n->out[0], dy[0]}; /* y is kept, cheaper than e^x again */
    dx[0] = dra_add_op(g, &dra_op_softmax_back, 2, in, NULL);
}

const dra_op dra_op_softmax = {.name = "softmax",
                               .n_in = 1,
                               .n_out = 1,
                               .infer = infer_softmax,
                               .gradient = softmax_gradient,
                               .cost = cost_softmax};

const dra_cpu_kernel dra_cpu_softmax = {
    .base = {.op = "softmax", .dtypes = DRA_REALS, .layout = DRA_LAYOUT_ROWS, .in_place = 1},
    .tiles = dra_row_tiles,
    .tile = softmax_tile,
};

dra_value dra_softmax(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_softmax, 1, &x, NULL);
}

/* ---- log_softmax ----------------------------------------------------------------------------- */

/* ln(sum e^(x - m)), through a small buffer because y may be x's own memory. */
static real log_sum(const dra_simd *simd, int64_t C, const real *x, real m)
{
    enum { CHUNK = 256 };
    real part[CHUNK], sum = 0;
    for (int64_t i = 0; i < C; i += CHUNK)
        sum += simd->exp_sum(dra_imin(CHUNK, C - i), x + i, m, part);
    return log(sum);
}

static void log_softmax_tile(const dra_call *c, int64_t tile)
{
    const int64_t       C = dra_last(&c->in[0]);
    const dra_row_range rows = dra_tile_rows(c, tile);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const real *x = dra_row(&c->in[0], row);
        real       *y = (real *)c->out[0].data + row * C;
        const real  m = dra_simd_of(c)->max(C, x);
        const real  rest = m <= LIMIT ? 0 : log_sum(dra_simd_of(c), C, x, m);
        for (int64_t i = 0; i < C; i++) y[i] = x[i] <= LIMIT ? (real)DRA_MASKED : x[i] - m - rest;
    }
}

/* Which entries take part and the weights are both read from y, so that x need not be kept. (An
 * entry more than 5e29 below the largest counts as masked here; nothing depends on it.) */
static void log_softmax_gradient(dra_graph *g, const dra_node *n, const dra_value *dy,
                                 dra_value *dx)
{
    const dra_value y = n->out[0], limit = dra_number(g, DRA_MASKED / 2);
    const dra_value up = dra_select(g, dra_greater(g, y, limit), dy[0], dra_number(g, 0));
    dx[0] = dra_sub(g, up, dra_mul(g, dra_exp(g, y), dra_sum_last(g, up)));
}

const dra_op dra_op_log_softmax = {.name = "log_softmax",
                                   .n_in = 1,
                                   .n_out = 1,
                                   .infer = infer_softmax,
                                   .gradient = log_softmax_gradient,
                                   .cost = cost_softmax};

const dra_cpu_kernel dra_cpu_log_softmax = {
    .base = {.op = "log_softmax", .dtypes = DRA_REALS, .layout = DRA_LAYOUT_ROWS, .in_place = 1},
    .tiles = dra_row_tiles,
    .tile = log_softmax_tile,
};

dra_value dra_log_softmax(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_log_softmax, 1, &x, NULL);
}
