/* Products of rows that stand by group (movement/group.c), each group with a matrix of its own:
 *   grouped_linear  y_s = W_e x_s, or W_e^T x_s transposed, for rows s of group e
 *                   x (S, I), w (n O, I) -> y (S, O); transposed x (S, O) -> y (S, I)
 *   grouped_outer   dw_e = sum over rows s of group e, in order, of dy_s x_s^T; 0 for an empty one
 *                   dy (S, O), x (S, I) -> (n O, I)
 * ends (n): the first row after each group. Gradients are these two again.
 *
 * A tile is some rows of one group and some columns: one product, of which a row has the same bits
 * whatever else is in its group. The matrix of a group without rows is never read. */
#include "ops/common.h"

enum { ROWS = 256, FEW = 16, COLUMNS = 256, NARROW = 64 };

extern const dra_op dra_op_grouped_linear, dra_op_grouped_outer;

/* ---- grouped_linear: (x, w, ends) ------------------------------------------------------------ */

enum { X, W, GROUPED_ENDS };

static dra_status infer_linear(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_grouped_attr *a = n->attr;
    const dra_shape *x = &dra_type_of(g, n->in[X])->shape, *w = &dra_type_of(g, n->in[W])->shape,
                    *ends = &dra_type_of(g, n->in[GROUPED_ENDS])->shape;
    dra_status st = dra_expect_factor(g, n->op->name, "x", n->in[X]);
    if (st == DRA_OK) st = dra_expect_weight(g, n->op->name, "w", n->in[W]);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, GROUPED_ENDS, "ends", DRA_I32);
    if (st != DRA_OK) return st;
    const bool ranks = x->rank == 2 && w->rank == 2 && ends->rank == 1 && ends->dim[0] > 0;
    const bool fits = ranks && w->dim[0] % ends->dim[0] == 0 &&
                      x->dim[1] == (a->transposed ? w->dim[0] / ends->dim[0] : w->dim[1]);
    if (!fits)
        return dra_op_fail(g, n, DRA_ERR_SHAPE,
                           "x %s, w %s, ends %s: expected x (S, %s), w (n O, I), ends (n)",
                           dra_type_text(g, n->in[X]), dra_type_text(g, n->in[W]),
                           dra_type_text(g, n->in[GROUPED_ENDS]), a->transposed ? "O" : "I");
    const int64_t N = a->transposed ? w->dim[1] : w->dim[0] / ends->dim[0];
    *out = (dra_type){DRA_REAL, DRA_SHAPE(x->dim[0], N)};
    return DRA_OK;
}

static int64_t count_of_groups(const dra_call *c) { return c->in[GROUPED_ENDS].shape.dim[0]; }

/* The first row after group e. Rows that there are none of are not touched, whatever ends says. */
static int64_t end_of(const dra_call *c, int64_t e, int64_t rows)
{
    const dra_tensor *ends = &c->in[GROUPED_ENDS];
    const int64_t     end = ((const int32_t *)ends->data)[e * ends->stride[0]];
    return dra_imax(0, dra_imin(end, rows));
}

/* As many blocks of rows as groups can be cut into at most: how full they are is known when tiles
 * run, not when they are counted. */
static int64_t most_blocks(const dra_call *c)
{
    const int64_t S = c->out[0].shape.dim[0];
    return dra_imin(count_of_groups(c), S) + S / ROWS;
}

/* Few rows take as long as weights take to come: all threads should take part. */
static int64_t columns_of_tile(const dra_call *c)
{
    return c->out[0].shape.dim[0] <= FEW ? NARROW : COLUMNS;
}

static int64_t count_linear_tiles(const dra_call *c)
{
    return most_blocks(c) * dra_div_up(dra_last(&c->out[0]), columns_of_tile(c));
}

typedef struct block { /* rows of one group */
    int64_t group, first, n;
} block;

/* Block number i; n = 0: there are fewer. */
static block find_block(const dra_call *c, int64_t i)
{
    const int64_t S = c->out[0].shape.dim[0];
    int64_t       begin = 0;
    for (int64_t e = 0; e < count_of_groups(c); e++) {
        const int64_t end = end_of(c, e, S), n = end - begin,
                      blocks = n > 0 ? dra_div_up(n, ROWS) : 0;
        if (i < blocks) return (block){e, begin + i * ROWS, dra_imin(ROWS, n - i * ROWS)};
        i -= blocks;
        begin = dra_imax(begin, end);
    }
    return (block){0};
}

/* Rows of some columns of y: what they are multiplied by begins at element `at` of w. */
static void run_linear_tile(const dra_call *c, int64_t i)
{
    const dra_grouped_attr *a = c->attr;
    const dra_tensor       *x = &c->in[X], *w = &c->in[W], *y = &c->out[0];
    const int64_t           columns = columns_of_tile(c), N = dra_last(y),
                  O = w->shape.dim[0] / count_of_groups(c);
    const block   b = find_block(c, i % most_blocks(c));
    const int64_t column = i / most_blocks(c) * columns, of_w = a->transposed ? 1 : 0;
    if (b.n == 0) return;
    dra_gemm m = {.M = b.n,
                  .N = dra_imin(columns, N - column),
                  .K = x->shape.dim[1],
                  .a_row = x->stride[0],
                  .a_col = x->stride[1],
                  .b_row = w->stride[1 - of_w],
                  .b_col = w->stride[of_w],
                  .c = (real *)y->data + b.first * N + column,
                  .c_row = N,
                  .bf16 = a->precision == DRA_PRECISION_BF16,
                  .q8 = a->precision == DRA_PRECISION_Q8,
                  .a_type = x->dtype,
                  .b_type = w->dtype};
    if (m.K > 0) {
        const int64_t at = b.group * O * w->stride[0] + column * w->stride[of_w];
        m.a = dra_element(x->data, x->dtype, b.first * x->stride[0]);
        m.b = dra_element(w->data, w->dtype, at);
        m.b_first = at % (int64_t)dra_dtype_get(w->dtype)->block_elements;
    }
    dra_simd_of(c)->gemm(&m);
}

static dra_value build_grouped(dra_graph *g, const dra_op *op, dra_value a, dra_value b,
                               dra_value ends, dra_grouped_attr attr)
{
    const dra_value in[] = {a, b, ends};
    return dra_add_op(g, op, 3, in, &attr);
}

static void derive_linear(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_grouped_attr *a = n->attr;
    const dra_grouped_attr  back = {!a->transposed, a->precision}, outer = {0, a->precision};
    const dra_value         ends = n->in[GROUPED_ENDS], x = n->in[X];
    dx[X] = build_grouped(g, &dra_op_grouped_linear, dy[0], n->in[W], ends, back);
    dx[W] = build_grouped(g, &dra_op_grouped_outer, a->transposed ? x : dy[0],
                          a->transposed ? dy[0] : x, ends, outer);
}

static dra_cost cost_linear(const dra_call *c)
{
    const double S = (double)c->out[0].shape.dim[0], N = (double)dra_last(&c->out[0]);
    return (dra_cost){2 * S * N * (double)dra_last(&c->in[X]), dra_call_bytes(c)};
}

const dra_op dra_op_grouped_linear = {.name = "grouped_linear",
                                      .n_in = 3,
                                      .n_out = 1,
                                      .attr_size = sizeof(dra_grouped_attr),
                                      .infer = infer_linear,
                                      .gradient = derive_linear,
                                      .cost = cost_linear};

const dra_cpu_kernel dra_cpu_grouped_linear = {
    .base = {.op = "grouped_linear", .dtypes = DRA_WEIGHTS | DRA_BIT(DRA_I32)},
    .tiles = count_linear_tiles,
    .tile = run_linear_tile,
};

/* ---- grouped_outer: (dy, x, ends) ------------------------------------------------------------ */

enum { DY, OUTER_X };

static dra_status infer_outer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape *dy = &dra_type_of(g, n->in[DY])->shape,
                    *x = &dra_type_of(g, n->in[OUTER_X])->shape,
                    *ends = &dra_type_of(g, n->in[GROUPED_ENDS])->shape;
    const bool ranks = dy->rank == 2 && x->rank == 2 && ends->rank == 1 && ends->dim[0] > 0;
    if (!ranks || dy->dim[0] != x->dim[0])
        return dra_op_fail(g, n, DRA_ERR_SHAPE,
                           "dy %s, x %s, ends %s: expected (S, O), (S, I), (n)",
                           dra_type_text(g, n->in[DY]), dra_type_text(g, n->in[OUTER_X]),
                           dra_type_text(g, n->in[GROUPED_ENDS]));
    *out = (dra_type){DRA_REAL, DRA_SHAPE(ends->dim[0] * dy->dim[1], x->dim[1])};
    dra_status st = dra_expect_dtype(g, n, DY, "dy", DRA_REAL);
    if (st == DRA_OK) st = dra_expect_factor(g, n->op->name, "x", n->in[OUTER_X]);
    return st == DRA_OK ? dra_expect_dtype(g, n, GROUPED_ENDS, "ends", DRA_I32) : st;
}

static int64_t outer_row_blocks(const dra_call *c)
{
    return dra_div_up(dra_last(&c->in[DY]), ROWS);
}

static int64_t outer_column_blocks(const dra_call *c)
{
    return dra_div_up(dra_last(&c->in[OUTER_X]), COLUMNS);
}

static int64_t count_outer_tiles(const dra_call *c)
{
    return count_of_groups(c) * outer_row_blocks(c) * outer_column_blocks(c);
}

static void clear_block(const dra_gemm *m)
{
    for (int64_t i = 0; i < m->M; i++)
        for (int64_t j = 0; j < m->N; j++) m->c[i * m->c_row + j] = 0;
}

static void run_outer_tile(const dra_call *c, int64_t i)
{
    const dra_grouped_attr *a = c->attr;
    const dra_tensor       *dy = &c->in[DY], *x = &c->in[OUTER_X];
    const int64_t           S = dy->shape.dim[0], O = dy->shape.dim[1], I = x->shape.dim[1];
    const int64_t           columns = outer_column_blocks(c), blocks = outer_row_blocks(c);
    const int64_t           e = i / (columns * blocks), row = i / columns % blocks * ROWS,
                  column = i % columns * COLUMNS;
    const int64_t begin = e > 0 ? end_of(c, e - 1, S) : 0, n = end_of(c, e, S) - begin;
    dra_gemm      m = {.M = dra_imin(ROWS, O - row),
                       .N = dra_imin(COLUMNS, I - column),
                       .K = n,
                       .a_row = dy->stride[1],
                       .a_col = dy->stride[0],
                       .b_row = x->stride[0],
                       .b_col = x->stride[1],
                       .c = (real *)c->out[0].data + (e * O + row) * I + column,
                       .c_row = I,
                       .bf16 = a->precision == DRA_PRECISION_BF16,
                       .a_type = dy->dtype,
                       .b_type = x->dtype};
    if (n <= 0) {
        clear_block(&m);
        return;
    }
    m.a = dra_element(dy->data, dy->dtype, begin * dy->stride[0] + row * dy->stride[1]);
    m.b = dra_element(x->data, x->dtype, begin * x->stride[0] + column * x->stride[1]);
    dra_simd_of(c)->gemm(&m);
}

static void derive_outer(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_grouped_attr *a = n->attr;
    const dra_grouped_attr  along = {0, a->precision}, across = {1, a->precision};
    const dra_value         ends = n->in[GROUPED_ENDS];
    dx[DY] = build_grouped(g, &dra_op_grouped_linear, n->in[OUTER_X], dy[0], ends, along);
    dx[OUTER_X] = build_grouped(g, &dra_op_grouped_linear, n->in[DY], dy[0], ends, across);
}

static dra_cost cost_outer(const dra_call *c)
{
    const double S = (double)c->in[DY].shape.dim[0], O = (double)dra_last(&c->in[DY]);
    return (dra_cost){2 * S * O * (double)dra_last(&c->in[OUTER_X]), dra_call_bytes(c)};
}

const dra_op dra_op_grouped_outer = {.name = "grouped_outer",
                                     .n_in = 3,
                                     .n_out = 1,
                                     .attr_size = sizeof(dra_grouped_attr),
                                     .infer = infer_outer,
                                     .gradient = derive_outer,
                                     .cost = cost_outer};

const dra_cpu_kernel dra_cpu_grouped_outer = {
    .base = {.op = "grouped_outer", .dtypes = DRA_FACTORS | DRA_BIT(DRA_I32)},
    .tiles = count_outer_tiles,
    .tile = run_outer_tile,
};

/* ---- builders -------------------------------------------------------------------------------- */

dra_value dra_grouped_linear(dra_graph *g, dra_value x, dra_value w, dra_value ends)
{
    const dra_grouped_attr a = {0, dra_graph_precision(g)};
    return build_grouped(g, &dra_op_grouped_linear, x, w, ends, a);
}

dra_value dra_grouped_outer(dra_graph *g, dra_value dy, dra_value x, dra_value ends)
{
    const dra_grouped_attr a = {0, dra_graph_precision(g)};
    return build_grouped(g, &dra_op_grouped_outer, dy, x, ends, a);
}
