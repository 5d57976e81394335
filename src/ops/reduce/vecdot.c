/* vecdot: the dot products of rows, y_r = sum_i a_ri b_ri over the last axis, which stays as size
 * 1. Added up as by `sum`, but the products are not stored.
 * Gradients: da = dy b, db = dy a. */
#include "ops/rows.h"

enum {
    LINE = 4096, /* products added up at a time, as in reduce.c */
    SHORT = 8    /* fewer are added one after the other */
};

static dra_status infer_vecdot(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_status st = dra_infer_same(g, n, out);
    if (st != DRA_OK) return st;
    if (out->shape.rank == 0) return dra_op_fail(g, n, DRA_ERR_SHAPE, "a and b have no axis");
    out->shape.dim[out->shape.rank - 1] = 1;
    return DRA_OK;
}

static real add_products(const dra_simd *simd, int64_t n, const real *a, const real *b)
{
    real product[LINE], y = 0;
    for (int64_t i = 0; i < n; i++) product[i] = a[i] * b[i];
    if (n >= SHORT) return simd->sum(n, product);
    for (int64_t i = 0; i < n; i++) y += product[i];
    return y;
}

static real dot_row(const dra_simd *simd, int64_t n, const real *a, const real *b)
{
    real y = 0;
    for (int64_t i = 0; i < n; i += LINE)
        y += add_products(simd, dra_imin(LINE, n - i), a + i, b + i);
    return y;
}

static void run_vecdot_tile(const dra_call *c, int64_t tile)
{
    const dra_row_range rows = dra_tile_rows(c, tile);
    real               *y = c->out[0].data;
    for (int64_t r = rows.begin; r < rows.end; r++)
        y[r] = dot_row(dra_simd_of(c), dra_last(&c->in[0]), dra_row(&c->in[0], r),
                       dra_row(&c->in[1], r));
}

static void derive_vecdot(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = dra_mul(g, dy[0], n->in[1]);
    dx[1] = dra_mul(g, dy[0], n->in[0]);
}

static dra_cost vecdot_cost(const dra_call *c)
{
    return (dra_cost){2 * (double)dra_shape_count(&c->in[0].shape), dra_call_bytes(c)};
}

const dra_op dra_op_vecdot = {.name = "vecdot",
                              .n_in = 2,
                              .n_out = 1,
                              .flags = DRA_OP_CHEAP,
                              .infer = infer_vecdot,
                              .gradient = derive_vecdot,
                              .cost = vecdot_cost};

const dra_cpu_kernel dra_cpu_vecdot = {
    .base = {.op = "vecdot", .dtypes = DRA_REALS, .layout = DRA_LAYOUT_ROWS},
    .tiles = dra_row_tiles,
    .tile = run_vecdot_tile,
};

dra_value dra_vecdot(dra_graph *g, dra_value a, dra_value b)
{
    dra_value pair[2] = {a, b};
    if (!dra_check_values(g, "vecdot", 2, pair) || !dra_broadcast_pair(g, "vecdot", pair))
        return (dra_value){0};
    return dra_add_op(g, &dra_op_vecdot, 2, pair, NULL);
}
