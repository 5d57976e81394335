/* embedding: y[.., c] = table[ids[..], c], rows of a table. one_hot: y[.., j] = (ids[..] == j).
 *
 * Gradient of the table: embedding_back, dtable[v, c] = sum over all places with id v of dy[.., c].
 * A tile owns some rows of the table and goes through all ids in their order, so every row has one
 * writer and its sum one order. */
#include <string.h>

#include "base/quant.h"
#include "ops/common.h"

enum {
    WORK = 16384,    /* elements a tile is worth */
    BACK_TILES = 256 /* at most: each reads all ids */
};

static dra_status expect_ids(dra_graph *g, const dra_node *n, int i)
{
    if (dra_type_of(g, n->in[i])->shape.rank == DRA_MAX_RANK)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "ids %s, expected at most rank %d",
                           dra_type_text(g, n->in[i]), DRA_MAX_RANK - 1);
    return dra_expect_dtype(g, n, i, "ids", DRA_I32);
}

static int64_t rows_per_tile(int64_t C) { return dra_imax(1, WORK / dra_imax(1, C)); }

static int64_t row_tiles(const dra_call *c)
{
    return dra_div_up(dra_rows(&c->out[0]), rows_per_tile(dra_last(&c->out[0])));
}

/* ---- embedding ------------------------------------------------------------------------------- */

static dra_status infer_embedding(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *table = dra_type_of(g, n->in[0]);
    const bool      quantised = dra_is_quantised(table->dtype);
    *out = (dra_type){quantised ? DRA_REAL : table->dtype, dra_type_of(g, n->in[1])->shape};
    if (table->shape.rank != 2)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "table %s, expected (V, C)",
                           dra_type_text(g, n->in[0]));
    if (!dra_is_float(g, n->in[0]))
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "table is %s, expected a float",
                           dra_type_text(g, n->in[0]));
    const dra_status st = expect_ids(g, n, 1);
    if (st == DRA_OK) out->shape.dim[out->shape.rank++] = table->shape.dim[1];
    return st;
}

/* Real numbers of a row whose elements are `step` apart. */
static void dequantise_row(real *to, const dra_tensor *table, int64_t row)
{
    enum { SOME = 256 };
    const int64_t C = table->shape.dim[1], step = table->stride[1];
    float         x[SOME];
    for (int64_t i = 0; i < C; i += step == 1 ? SOME : 1) {
        const int64_t n = step == 1 ? dra_imin(SOME, C - i) : 1;
        dra_dequantise(table->dtype, table->data, row * table->stride[0] + i * step, n, x);
        for (int64_t k = 0; k < n; k++) to[i + k] = (real)x[k];
    }
}

static void copy_row(void *to, const dra_tensor *table, int64_t row)
{
    if (dra_is_quantised(table->dtype)) {
        dequantise_row(to, table, row);
        return;
    }
    const size_t         size = dra_dtype_bytes(table->dtype);
    const int64_t        C = table->shape.dim[1], step = table->stride[1];
    const unsigned char *from = (const unsigned char *)table->data +
                                row * table->stride[0] * (int64_t)size;
    if (step == 1) {
        memcpy(to, from, (size_t)C * size);
        return;
    }
    for (int64_t i = 0; i < C; i++)
        memcpy((unsigned char *)to + (size_t)i * size, from + i * step * (int64_t)size, size);
}

static void run_embedding_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *table = &c->in[0], *ids = &c->in[1], *y = &c->out[0];
    const int64_t     C = dra_last(y), each = rows_per_tile(C);
    const int64_t     end = dra_imin(dra_rows(y), (i + 1) * each);
    const size_t      bytes = (size_t)C * dra_dtype_bytes(y->dtype);
    for (int64_t r = i * each; r < end; r++) {
        const int32_t id = ((const int32_t *)ids->data)[dra_offset_of(ids, r)];
        if (id < 0 || id >= table->shape.dim[0]) {
            DRA_FAULT(c, i, DRA_FAULT_ID, id, table->shape.dim[0]);
            return;
        }
        if (bytes) copy_row((unsigned char *)y->data + (size_t)r * bytes, table, id);
    }
}

static dra_value embedding_back(dra_graph *g, dra_value ids, dra_value dy, int64_t V);

static void derive_embedding(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = embedding_back(g, n->in[1], dy[0], dra_type_of(g, n->in[0])->shape.dim[0]);
}

const dra_op dra_op_embedding = {.name = "embedding",
                                 .n_in = 2,
                                 .n_out = 1,
                                 .infer = infer_embedding,
                                 .gradient = derive_embedding};

const dra_cpu_kernel dra_cpu_embedding = {
    .base = {.op = "embedding", .dtypes = DRA_WEIGHTS | DRA_BIT(DRA_I32)},
    .tiles = row_tiles,
    .tile = run_embedding_tile,
};

dra_value dra_embedding(dra_graph *g, dra_value table, dra_value ids)
{
    const dra_value in[] = {table, ids};
    return dra_add_op(g, &dra_op_embedding, 2, in, NULL);
}

/* ---- embedding_back -------------------------------------------------------------------------- */

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_embedding_back_attr *a = n->attr;
    const dra_shape               *dy = &dra_type_of(g, n->in[1])->shape;
    *out = (dra_type){DRA_REAL, DRA_SHAPE(a->V, dy->dim[dy->rank - 1])};
    return dra_expect_dtype(g, n, 1, "dy", DRA_REAL);
}

static int64_t back_tiles(const dra_call *c)
{
    const dra_shape *s = &c->out[0].shape;
    const int64_t    tiles = dra_div_up(s->dim[0], rows_per_tile(s->dim[1]));
    return dra_shape_count(s) ? dra_imin(BACK_TILES, tiles) : 0;
}

static void back_tile(const dra_call *c, int64_t i)
{
    const int64_t  V = c->out[0].shape.dim[0], C = c->out[0].shape.dim[1];
    const int64_t  each = dra_div_up(V, back_tiles(c)), N = dra_rows(&c->in[1]);
    const int64_t  from = i * each, to = dra_imin(V, from + each);
    const int32_t *ids = c->in[0].data;
    const real    *dy = c->in[1].data;
    real          *dtable = c->out[0].data;
    for (int64_t k = from * C; k < to * C; k++) dtable[k] = 0;
    for (int64_t r = 0; r < N; r++)
        if (ids[r] >= from && ids[r] < to)
            dra_simd_of(c)->axpy(C, 1, dy + r * C, dtable + ids[r] * C);
}

static void back_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[1] = dra_embedding(g, dy[0], n->in[0]);
}

const dra_op dra_op_embedding_back = {.name = "embedding_back",
                                      .n_in = 2,
                                      .n_out = 1,
                                      .attr_size = sizeof(dra_embedding_back_attr),
                                      .infer = back_infer,
                                      .gradient = back_gradient};

const dra_cpu_kernel dra_cpu_embedding_back = {
    .base = {.op = "embedding_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_DENSE},
    .tiles = back_tiles,
    .tile = back_tile,
};

static dra_value embedding_back(dra_graph *g, dra_value ids, dra_value dy, int64_t V)
{
    const dra_value in[] = {ids, dy};
    return dra_add_op(g, &dra_op_embedding_back, 2, in, &(dra_embedding_back_attr){V});
}

/* ---- one_hot --------------------------------------------------------------------------------- */

static dra_status one_hot_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_one_hot_attr *a = n->attr;
    *out = (dra_type){DRA_REAL, dra_type_of(g, n->in[0])->shape};
    if (a->n < 0)
        return dra_op_fail(g, n, DRA_ERR_VALUE, "n = %lld, expected 0 or more", (long long)a->n);
    const dra_status st = expect_ids(g, n, 0);
    if (st == DRA_OK) out->shape.dim[out->shape.rank++] = a->n;
    return st;
}

static void one_hot_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *ids = &c->in[0], *y = &c->out[0];
    const int64_t     n = dra_last(y), each = rows_per_tile(n);
    const int64_t     end = dra_imin(dra_rows(y), (i + 1) * each);
    for (int64_t r = i * each; r < end; r++) {
        const int32_t id = ((const int32_t *)ids->data)[dra_offset_of(ids, r)];
        real         *row = dra_row(y, r);
        for (int64_t k = 0; k < n; k++) row[k] = k == id;
    }
}

const dra_op dra_op_one_hot = {.name = "one_hot",
                               .n_in = 1,
                               .n_out = 1,
                               .flags = DRA_OP_NO_GRAD,
                               .attr_size = sizeof(dra_one_hot_attr),
                               .infer = one_hot_infer};

const dra_cpu_kernel dra_cpu_one_hot = {
    .base = {.op = "one_hot", .dtypes = DRA_REALS | DRA_BIT(DRA_I32)},
    .tiles = row_tiles,
    .tile = one_hot_tile,
};

dra_value dra_one_hot(dra_graph *g, dra_value ids, int64_t n)
{
    return dra_add_op(g, &dra_op_one_hot, 1, &ids, &(dra_one_hot_attr){n});
}
