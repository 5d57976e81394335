/* matmul: y = a b for matrices in the last two axes, leading axes broadcast against each other.
 *   a (..., M, K)   b (..., K, N)   y (..., M, N)   y_mn = sum_k a_mk b_kn, 0 for K = 0
 * Gradient: da = dy b^T, db = a^T dy, summed over the leading axes along which a or b was repeated.
 * linear: y = x w^T + b, made of one matmul over all rows of x. */
#include "ops/common.h"

enum { ROWS = 256, COLUMNS = 128 }; /* of y in a tile: packing b pays by its rows */

typedef struct matmul_attr {
    bool db_as_turned; /* b is a transposed view: lay db out in the order of what b looks at */
} matmul_attr;

/* ---- types ----------------------------------------------------------------------------------- */

/* The leading axes of a shape as a shape of their own. */
static dra_shape leading(const dra_shape *s)
{
    dra_shape lead = *s;
    lead.rank -= 2;
    return lead;
}

static dra_shape with_matrix(dra_shape lead, int64_t rows, int64_t columns)
{
    lead.dim[lead.rank++] = rows;
    lead.dim[lead.rank++] = columns;
    return lead;
}

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape *a = &dra_type_of(g, n->in[0])->shape, *b = &dra_type_of(g, n->in[1])->shape;
    dra_status       st = dra_expect_dtype(g, n, 0, "a", DRA_REAL);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, 1, "b", DRA_REAL);
    if (st != DRA_OK) return st;
    const char *a_text = dra_type_text(g, n->in[0]), *b_text = dra_type_text(g, n->in[1]);
    if (a->rank < 2 || b->rank < 2)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "a %s, b %s: expected two axes or more", a_text,
                           b_text);
    const int64_t M = a->dim[a->rank - 2], K = a->dim[a->rank - 1], N = b->dim[b->rank - 1];
    if (b->dim[b->rank - 2] != K)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "a %s, b %s: inner sizes %lld and %lld differ",
                           a_text, b_text, (long long)K, (long long)b->dim[b->rank - 2]);
    const dra_shape a_lead = leading(a), b_lead = leading(b);
    dra_shape       lead;
    if (!dra_broadcast_shapes(&a_lead, &b_lead, &lead))
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "a %s, b %s: leading axes do not broadcast", a_text,
                           b_text);
    *out = (dra_type){DRA_REAL, with_matrix(lead, M, N)};
    return DRA_OK;
}

/* ---- gradient -------------------------------------------------------------------------------- */

static dra_value turn(dra_graph *g, dra_value x) { return dra_transpose(g, x, -1, -2); }

/* Leading axes and rows as one axis: (..., M, K) -> (... M, K). */
static dra_value fold_rows(dra_graph *g, dra_value x)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape s = dra_shape_of(g, x);
    int64_t         rows = 1;
    for (int32_t i = 0; i + 1 < s.rank; i++) rows *= s.dim[i];
    return dra_reshape(g, x, DRA_SHAPE(rows, s.dim[s.rank - 1]));
}

static void gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const matmul_attr *attr = n->attr;
    const dra_shape    a_shape = dra_shape_of(g, n->in[0]), b_shape = dra_shape_of(g, n->in[1]);
    const dra_shape    b_lead = leading(&b_shape);
    dra_value          a = n->in[0], up = dy[0];
    dx[0] = dra_unbroadcast(g, dra_matmul(g, up, turn(g, n->in[1])), a_shape);
    /* One b for all of a: the sum over leading axes is part of one product over all rows. */
    if (dra_shape_count(&b_lead) == 1) {
        a = fold_rows(g, a);
        up = fold_rows(g, up);
    }
    const dra_value db = attr->db_as_turned ? turn(g, dra_matmul(g, turn(g, up), a))
                                            : dra_matmul(g, turn(g, a), up);
    dx[1] = dra_unbroadcast(g, db, b_shape);
}

/* ---- kernel ---------------------------------------------------------------------------------- */

typedef struct sizes {
    int64_t M, N, K, batch, row_blocks, column_blocks;
} sizes;

static sizes sizes_of(const dra_call *c)
{
    const dra_shape *y = &c->out[0].shape;
    const dra_shape  lead = leading(y);
    sizes            s = {.M = y->dim[y->rank - 2],
                          .N = y->dim[y->rank - 1],
                          .K = dra_last(&c->in[0]),
                          .batch = dra_shape_count(&lead)};
    s.row_blocks = dra_div_up(s.M, ROWS);
    s.column_blocks = dra_div_up(s.N, COLUMNS);
    return s;
}

static int64_t tiles(const dra_call *c)
{
    const sizes s = sizes_of(c);
    return s.batch * s.row_blocks * s.column_blocks;
}

/* Where matrix number i of y's leading axes lies in x, whose own ones may be fewer or 1. */
static int64_t matrix_offset(const dra_tensor *x, const dra_shape *y, int64_t i)
{
    int64_t offset = 0;
    for (int32_t axis = y->rank - 3; axis >= 0; axis--) {
        const int32_t own = axis - (y->rank - x->shape.rank);
        const int64_t index = i % y->dim[axis];
        if (own >= 0 && x->shape.dim[own] != 1) offset += index * x->stride[own];
        i /= y->dim[axis];
    }
    return offset;
}

/* Neighbouring tiles share columns of b, usually the larger operand. */
static void tile(const dra_call *c, int64_t i)
{
    const sizes       s = sizes_of(c);
    const dra_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    const int64_t     row = i % s.row_blocks * ROWS;
    const int64_t     column = i / s.row_blocks % s.column_blocks * COLUMNS;
    const int64_t     batch = i / (s.row_blocks * s.column_blocks);
    const int64_t *a_step = a->stride + a->shape.rank - 2, *b_step = b->stride + b->shape.rank - 2;
    dra_gemm       m = {.M = dra_imin(ROWS, s.M - row),
                        .N = dra_imin(COLUMNS, s.N - column),
                        .K = s.K,
                        .a_row = a_step[0],
                        .a_col = a_step[1],
                        .b_row = b_step[0],
                        .b_col = b_step[1],
                        .c = (real *)y->data + (batch * s.M + row) * s.N + column,
                        .c_row = s.N};
    if (s.K > 0) { /* else a and b are empty and may have no memory */
        m.a = (const real *)a->data + matrix_offset(a, &y->shape, batch) + row * a_step[0];
        m.b = (const real *)b->data + matrix_offset(b, &y->shape, batch) + column * b_step[1];
    }
    c->simd->gemm(&m);
}

static dra_cost cost(const dra_call *c)
{
    const sizes s = sizes_of(c);
    dra_cost    cost = dra_pointwise_cost(c); /* for its bytes: every tensor moved once */
    cost.flops = 2.0 * (double)s.batch * (double)s.M * (double)s.N * (double)s.K;
    return cost;
}

const dra_op     dra_op_matmul = {.name = "matmul",
                                  .n_in = 2,
                                  .n_out = 1,
                                  .attr_size = sizeof(matmul_attr),
                                  .infer = infer,
                                  .gradient = gradient,
                                  .cost = cost};
const dra_kernel dra_cpu_matmul = {&dra_op_matmul, DRA_REALS, tiles, tile};

/* ---- builders -------------------------------------------------------------------------------- */

dra_value dra_matmul(dra_graph *g, dra_value a, dra_value b)
{
    const dra_value in[] = {a, b};
    return dra_add_op(g, &dra_op_matmul, 2, in, &(matmul_attr){false});
}

static bool check_linear(dra_graph *g, dra_value x, dra_value w, dra_value b)
{
    static const char *const names[] = {"x", "w", "b"};
    const dra_value          in[] = {x, w, b};
    if (!dra_check_values(g, "linear", b.id ? 3 : 2, in)) return false;
    for (int i = 0; i < (b.id ? 3 : 2); i++) {
        const dra_dtype found = dra_type_of(g, in[i])->dtype;
        if (found == DRA_REAL) continue;
        dra_build_fail(g, "linear", DRA_ERR_DTYPE, "%s is %s, expected %s", names[i],
                       dra_dtype_get(found)->name, dra_dtype_get(DRA_REAL)->name);
        return false;
    }
    const dra_shape *xs = &dra_type_of(g, x)->shape, *ws = &dra_type_of(g, w)->shape;
    if (xs->rank < 1 || ws->rank != 2 || xs->dim[xs->rank - 1] != ws->dim[1]) {
        dra_build_fail(g, "linear", DRA_ERR_SHAPE, "x %s, w %s: expected x (..., I), w (O, I)",
                       dra_type_text(g, x), dra_type_text(g, w));
        return false;
    }
    if (b.id && !dra_shape_equal(&dra_type_of(g, b)->shape, &DRA_SHAPE(ws->dim[0]))) {
        dra_build_fail(g, "linear", DRA_ERR_SHAPE, "w %s, b %s: expected w (O, I), b (O)",
                       dra_type_text(g, w), dra_type_text(g, b));
        return false;
    }
    return true;
}

dra_value dra_linear(dra_graph *g, dra_value x, dra_value w, dra_value b)
{
    if (!check_linear(g, x, w, b)) return (dra_value){0};
    dra_shape shape = dra_shape_of(g, x); /* of y */
    shape.dim[shape.rank - 1] = dra_shape_of(g, w).dim[0];
    const dra_value in[] = {fold_rows(g, x), turn(g, w)};
    const dra_value y = dra_add_op(g, &dra_op_matmul, 2, in, &(matmul_attr){true});
    if (b.id) return dra_reshape(g, dra_add(g, y, b), shape);
    return dra_reshape(g, y, shape);
}
