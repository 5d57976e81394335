/* Rows by group, for mixtures of experts: every row m of x goes to k of n groups.
 *   group_rows  ids (M, k) -> order (M k): which of the M k places the rows of group 0, 1, .. come
 *               from, places in their order; source = order / k, the row; place (M, k): where each
 *               place went; ends (n): the first row after each group.
 *   group_take  y_s = x_source(s)                      x (M, C) -> y (S, C)
 *   group_sum   y_m = sum_j x_place(m, j), j in order  x (S, C) -> y (M, C)
 * group_take and group_sum are the gradients of each other. */
#include <string.h>

#include "ops/common.h"

/* ---- group_rows ------------------------------------------------------------------------------ */

enum { ORDER, SOURCE, PLACE, ENDS, GROUP_OUTPUTS };

static dra_status infer_group_rows(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_group_attr *a = n->attr;
    const dra_shape      *ids = &dra_type_of(g, n->in[0])->shape;
    if (ids->rank != 2 || ids->dim[1] < 1)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "ids %s, expected (M, k), k at least 1",
                           dra_type_text(g, n->in[0]));
    if (ids->dim[0] > INT32_MAX / ids->dim[1])
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "ids %s, expected fewer than 2^31",
                           dra_type_text(g, n->in[0]));
    if (a->groups < 1)
        return dra_op_fail(g, n, DRA_ERR_VALUE, "n = %lld, expected 1 or more",
                           (long long)a->groups);
    const dra_shape all = DRA_SHAPE(ids->dim[0] * ids->dim[1]);
    out[ORDER] = out[SOURCE] = (dra_type){DRA_I32, all};
    out[PLACE] = (dra_type){DRA_I32, *ids};
    out[ENDS] = (dra_type){DRA_I32, DRA_SHAPE(a->groups)};
    return dra_expect_dtype(g, n, 0, "ids", DRA_I32);
}

static int64_t count_one_tile(const dra_call *c) { return 1; }

static size_t size_group_scratch(const dra_call *c)
{
    return (size_t)((const dra_group_attr *)c->attr)->groups * sizeof(int32_t);
}

/* Where each group begins, in `next`; false: an id is none of them. */
static bool count_groups(const dra_call *c, int64_t n, int32_t *next)
{
    const dra_tensor *ids = &c->in[0];
    const int64_t     S = dra_shape_count(&ids->shape);
    int32_t           begin = 0;
    memset(next, 0, (size_t)n * sizeof *next);
    for (int64_t i = 0; i < S; i++) {
        const int32_t id = ((const int32_t *)ids->data)[i];
        if (id < 0 || id >= n) {
            DRA_FAULT(c, 0, DRA_FAULT_INDEX, id, 1, n);
            return false;
        }
        next[id]++;
    }
    for (int64_t e = 0; e < n; e++) {
        const int32_t count = next[e];
        next[e] = begin;
        begin += count;
    }
    return true;
}

static void run_group_rows(const dra_call *c, int64_t i)
{
    const dra_tensor *ids = &c->in[0];
    const int64_t     n = ((const dra_group_attr *)c->attr)->groups, k = ids->shape.dim[1];
    const int64_t     S = dra_shape_count(&ids->shape);
    int32_t          *next = c->scratch, *order = c->out[ORDER].data, *source = c->out[SOURCE].data,
            *place = c->out[PLACE].data, *ends = c->out[ENDS].data;
    if (!count_groups(c, n, next)) return;
    for (int64_t s = 0; s < S; s++) {
        const int32_t to = next[((const int32_t *)ids->data)[s]]++;
        if (order) order[to] = (int32_t)s;
        if (source) source[to] = (int32_t)(s / k);
        if (place) place[s] = to;
    }
    if (ends) memcpy(ends, next, (size_t)n * sizeof *ends);
}

const dra_op dra_op_group_rows = {.name = "group_rows",
                                  .n_in = 1,
                                  .n_out = GROUP_OUTPUTS,
                                  .flags = DRA_OP_NO_GRAD,
                                  .attr_size = sizeof(dra_group_attr),
                                  .infer = infer_group_rows};

const dra_cpu_kernel dra_cpu_group_rows = {
    .base = {.op = "group_rows",
             .dtypes = DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_DENSE,
             .scratch = size_group_scratch},
    .tiles = count_one_tile,
    .tile = run_group_rows,
};

dra_groups dra_group_rows(dra_graph *g, dra_value ids, int64_t n)
{
    const dra_node *r = dra_node_add(g, &dra_op_group_rows, 1, &ids, &(dra_group_attr){n});
    if (!r) return (dra_groups){{0}};
    return (dra_groups){r->out[ORDER], r->out[SOURCE], r->out[PLACE], r->out[ENDS]};
}

/* ---- group_take, group_sum: (x, source, place) ----------------------------------------------- */

enum { WORK = 16384 }; /* elements a tile is worth */

extern const dra_op dra_op_group_take, dra_op_group_sum;

static dra_status infer_moved(dra_graph *g, const dra_node *n, dra_type *out)
{
    const bool       sums = n->op == &dra_op_group_sum;
    const dra_shape *x = &dra_type_of(g, n->in[0])->shape,
                    *source = &dra_type_of(g, n->in[1])->shape,
                    *place = &dra_type_of(g, n->in[2])->shape;
    const bool ranks = x->rank == 2 && source->rank == 1 && place->rank == 2;
    if (!ranks || source->dim[0] != place->dim[0] * place->dim[1] ||
        x->dim[0] != (sums ? source : place)->dim[0])
        return dra_op_fail(g, n, DRA_ERR_SHAPE,
                           "x %s, source %s, place %s: expected (%s, C), (M k) "
                           "and (M, k)",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]),
                           dra_type_text(g, n->in[2]), sums ? "M k" : "M");
    *out = (dra_type){DRA_REAL, DRA_SHAPE((sums ? place : source)->dim[0], x->dim[1])};
    dra_status st = dra_expect_dtype(g, n, 0, "x", DRA_REAL);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, 1, "source", DRA_I32);
    return st == DRA_OK ? dra_expect_dtype(g, n, 2, "place", DRA_I32) : st;
}

static int64_t rows_of_tile(const dra_call *c)
{
    return dra_imax(1, WORK / dra_imax(1, dra_last(&c->out[0])));
}

static int64_t count_row_tiles(const dra_call *c)
{
    return dra_div_up(dra_rows(&c->out[0]), rows_of_tile(c));
}

/* Row number r of x; NULL, and a fault: there is none. */
static const real *find_row(const dra_call *c, int64_t tile, int32_t r)
{
    const dra_tensor *x = &c->in[0];
    if (r >= 0 && r < x->shape.dim[0]) return dra_row(x, r);
    DRA_FAULT(c, tile, DRA_FAULT_INDEX, r, 0, x->shape.dim[0]);
    return NULL;
}

static void run_take_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *y = &c->out[0];
    const int64_t     C = dra_last(y), each = rows_of_tile(c),
                  end = dra_imin(dra_rows(y), (i + 1) * each);
    for (int64_t s = i * each; s < end; s++) {
        const real *from = find_row(c, i, ((const int32_t *)c->in[1].data)[s]);
        if (!from) return;
        memcpy((real *)y->data + s * C, from, (size_t)C * sizeof *from);
    }
}

static void run_sum_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *y = &c->out[0];
    const int64_t     C = dra_last(y), k = c->in[2].shape.dim[1], each = rows_of_tile(c);
    const int64_t     end = dra_imin(dra_rows(y), (i + 1) * each);
    for (int64_t m = i * each; m < end; m++) {
        real *to = (real *)y->data + m * C;
        for (int64_t j = 0; j < k; j++) {
            const real *from = find_row(c, i, ((const int32_t *)c->in[2].data)[m * k + j]);
            if (!from) return;
            if (j)
                dra_simd_of(c)->add(C, to, from, to);
            else
                memcpy(to, from, (size_t)C * sizeof *from);
        }
        for (int64_t n = 0; n < C && k == 0; n++) to[n] = 0;
    }
}

static void derive_take(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = dra_group_sum(g, dy[0], n->in[1], n->in[2]);
}

static void derive_sum(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = dra_group_take(g, dy[0], n->in[1], n->in[2]);
}

const dra_op dra_op_group_take = {
    .name = "group_take", .n_in = 3, .n_out = 1, .infer = infer_moved, .gradient = derive_take};

const dra_cpu_kernel dra_cpu_group_take = {
    .base = {.op = "group_take",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_DENSE},
    .tiles = count_row_tiles,
    .tile = run_take_tile,
};

const dra_op dra_op_group_sum = {
    .name = "group_sum", .n_in = 3, .n_out = 1, .infer = infer_moved, .gradient = derive_sum};

const dra_cpu_kernel dra_cpu_group_sum = {
    .base = {.op = "group_sum", .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .layout = DRA_LAYOUT_DENSE},
    .tiles = count_row_tiles,
    .tile = run_sum_tile,
};

static dra_value move_rows(dra_graph *g, const dra_op *op, dra_value x, dra_value source,
                           dra_value place)
{
    const dra_value in[] = {x, source, place};
    return dra_add_op(g, op, 3, in, NULL);
}

dra_value dra_group_take(dra_graph *g, dra_value x, dra_value source, dra_value place)
{
    return move_rows(g, &dra_op_group_take, x, source, place);
}

dra_value dra_group_sum(dra_graph *g, dra_value x, dra_value source, dra_value place)
{
    return move_rows(g, &dra_op_group_sum, x, source, place);
}
