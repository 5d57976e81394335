/* write_rows: y = x, then y[b, at[b, t]] = rows[b, t]; at < 0 writes nothing.
 * x (B, cap, ...)   rows (B, T, ...)   at i32 (B, T)
 *
 * Stage 0 checks `at` and copies x, unless y has taken over its memory; stage 1 writes rows. So a
 * wrong index is found before a donated state is touched.
 * Gradients: drows = read_rows(dy, at), dx = dy with zeros in the written rows.
 * read_rows: y[b, t] = x[b, at[b, t]], zeros for at < 0. */
#include <string.h>

#include "base/hash.h"
#include "ops/common.h"

enum { WORK = 16384 }; /* elements a tile is worth */

extern const dra_cpu_kernel dra_cpu_copy; /* copies x as any tensor */

/* ---- what both ops share --------------------------------------------------------------------- */

/* wide (B, cap, ...), narrow (B, T, ...) with equal rows, at i32 (B, T). */
static bool rows_fit(const dra_shape *wide, const dra_shape *narrow, const dra_shape *at)
{
    bool fits = wide->rank >= 2 && wide->rank == narrow->rank && at->rank == 2 &&
                wide->dim[0] == narrow->dim[0] && at->dim[0] == narrow->dim[0] &&
                at->dim[1] == narrow->dim[1];
    for (int32_t i = 2; fits && i < wide->rank; i++) fits = wide->dim[i] == narrow->dim[i];
    return fits;
}

static int64_t row_size(const dra_tensor *t) /* elements of t[b, i] */
{
    int64_t n = 1;
    for (int32_t i = 2; i < t->shape.rank; i++) n *= t->shape.dim[i];
    return n;
}

static int64_t row_count(const dra_tensor *t) { return t->shape.dim[0] * t->shape.dim[1]; }

static int64_t rows_per_tile(const dra_tensor *t)
{
    return dra_imax(1, WORK / dra_imax(1, row_size(t)));
}

static int32_t at_of(const dra_tensor *at, int64_t b, int64_t t)
{
    return ((const int32_t *)at->data)[b * at->stride[0] + t * at->stride[1]];
}

/* to = x[b, i], dense. */
static void copy_row(unsigned char *to, const dra_tensor *x, int64_t b, int64_t i)
{
    const int64_t size = (int64_t)dra_dtype_bytes(x->dtype);
    dra_tensor    row = {.shape.rank = x->shape.rank - 2};
    for (int32_t d = 0; d < row.shape.rank; d++) {
        row.shape.dim[d] = x->shape.dim[d + 2];
        row.stride[d] = x->stride[d + 2];
    }
    if (dra_shape_count(&row.shape) == 0) return;
    const unsigned char *from = (const unsigned char *)x->data +
                                (b * x->stride[0] + i * x->stride[1]) * size;
    const int64_t n = dra_last(&row), step = n > 1 ? row.stride[row.shape.rank - 1] : 1;
    for (int64_t r = 0; r < dra_rows(&row); r++, to += n * size) {
        const unsigned char *piece = from + dra_row_offset(&row, r) * size;
        if (step == 1) memcpy(to, piece, (size_t)(n * size));
        for (int64_t k = 0; step != 1 && k < n; k++)
            memcpy(to + k * size, piece + k * step * size, (size_t)size);
    }
}

static void set_fault(const dra_call *c, int64_t tile, int64_t b, int64_t t, int32_t at,
                      int64_t cap)
{
    DRA_FAULT(c, tile, DRA_FAULT_ROW, b, t, at, cap);
}

/* ---- write_rows ------------------------------------------------------------------------------ */

static dra_status write_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *x = dra_type_of(g, n->in[0]), *rows = dra_type_of(g, n->in[1]);
    *out = *x;
    if (!rows_fit(&x->shape, &rows->shape, &dra_type_of(g, n->in[2])->shape))
        return dra_op_fail(g, n, DRA_ERR_SHAPE,
                           "x %s, rows %s, at %s: expected (B, cap, ...), (B, T, ...), (B, T)",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]),
                           dra_type_text(g, n->in[2]));
    if (x->dtype != rows->dtype)
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "x %s and rows %s are of two dtypes",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]));
    return dra_expect_dtype(g, n, 2, "at", DRA_I32);
}

/* The reader of dy first: then dx may be written over dy. */
static void write_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_value at = n->in[2];
    dx[1] = dra_read_rows(g, dy[0], at);
    dx[0] = dra_write_rows(g, dy[0], dra_zeros(g, dra_type_of(g, n->in[1])->shape), at);
}

/* Places of a table in which rows of one b are marked: a power of two, at least half empty. */
static int64_t count_places(const dra_call *c)
{
    int64_t n = 2;
    while (n < 2 * c->in[2].shape.dim[1]) n *= 2;
    return n;
}

static size_t write_scratch(const dra_call *c)
{
    const dra_shape *at = &c->in[2].shape;
    return at->dim[1] > 1 ? (size_t)(at->dim[0] * count_places(c)) * sizeof(int32_t) : 0;
}

/* No two entries of b name one row. */
static void check_twice(const dra_call *c, int64_t b)
{
    const dra_tensor *at = &c->in[2];
    const int64_t     n = count_places(c);
    int32_t          *mark = (int32_t *)c->scratch + b * n;
    for (int64_t i = 0; i < n; i++) mark[i] = -1;
    for (int64_t t = 0; t < at->shape.dim[1]; t++) {
        const int32_t row = at_of(at, b, t);
        if (row < 0) continue;
        int64_t i = (int64_t)dra_hash_number((uint32_t)row) & (n - 1);
        while (mark[i] >= 0 && mark[i] != row) i = (i + 1) & (n - 1);
        if (mark[i] == row) {
            DRA_FAULT(c, b, DRA_FAULT_TWICE, b, t, row);
            return;
        }
        mark[i] = row;
    }
}

/* Mostly rows are in ascending order, so that none occurs twice. */
static void check_batch(const dra_call *c, int64_t b)
{
    const dra_tensor *at = &c->in[2];
    const int64_t     cap = c->in[0].shape.dim[1];
    int32_t           last = -1;
    bool              ordered = true;
    for (int64_t t = 0; t < at->shape.dim[1]; t++) {
        const int32_t row = at_of(at, b, t);
        if (row < 0) continue;
        if (row >= cap) {
            set_fault(c, b, b, t, row, cap);
            return;
        }
        ordered = ordered && row > last;
        last = row;
    }
    if (!ordered) check_twice(c, b);
}

static int64_t write_stages(const dra_call *c) { return 2; }

static int64_t write_tiles(const dra_call *c)
{
    const dra_tensor *x = &c->in[0], *rows = &c->in[1];
    const int64_t     copies = x->data == c->out[0].data ? 0 : dra_pointwise_tiles(c);
    if (c->stage == 0) return x->shape.dim[0] + copies;
    return dra_div_up(row_count(rows), rows_per_tile(rows));
}

static void write_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *rows = &c->in[1], *y = &c->out[0];
    const int64_t     T = rows->shape.dim[1], B = rows->shape.dim[0], each = rows_per_tile(rows);
    const size_t      bytes = (size_t)row_size(rows) * dra_dtype_bytes(y->dtype);
    if (c->stage == 0 && i < B) {
        check_batch(c, i);
    } else if (c->stage == 0) {
        dra_call copy = *c;
        copy.n_in = 1;
        dra_cpu_copy.tile(&copy, i - B);
    } else {
        for (int64_t r = i * each; r < dra_imin(B * T, (i + 1) * each); r++) {
            const int64_t b = r / T, t = r % T, to = at_of(&c->in[2], b, t);
            if (to < 0) continue;
            copy_row((unsigned char *)y->data + (size_t)(b * y->shape.dim[1] + to) * bytes, rows, b,
                     t);
        }
    }
}

const dra_op dra_op_write_rows = {
    .name = "write_rows", .n_in = 3, .n_out = 1, .infer = write_infer, .gradient = write_gradient};

const dra_cpu_kernel dra_cpu_write_rows = {
    .base = {.op = "write_rows", .dtypes = DRA_ANY_DTYPE, .in_place = 1, .scratch = write_scratch},
    .tiles = write_tiles,
    .tile = write_tile,
    .stages = write_stages,
};

dra_value dra_write_rows(dra_graph *g, dra_value x, dra_value rows, dra_value at)
{
    const dra_value in[] = {x, rows, at};
    return dra_add_op(g, &dra_op_write_rows, 3, in, NULL);
}

/* ---- read_rows ------------------------------------------------------------------------------- */

static dra_status read_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape *x = &dra_type_of(g, n->in[0])->shape, *at = &dra_type_of(g, n->in[1])->shape;
    if (x->rank < 2 || at->rank != 2 || x->dim[0] != at->dim[0])
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s, at %s: expected (B, cap, ...), (B, T)",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]));
    *out = *dra_type_of(g, n->in[0]);
    out->shape.dim[1] = at->dim[1];
    return dra_expect_dtype(g, n, 1, "at", DRA_I32);
}

/* Its writes refuse a row that is named twice. */

static void read_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = dra_write_rows(g, dra_zeros(g, dra_type_of(g, n->in[0])->shape), dy[0], n->in[1]);
}

static int64_t read_tiles(const dra_call *c)
{
    return dra_div_up(row_count(&c->out[0]), rows_per_tile(&c->out[0]));
}

static void read_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *x = &c->in[0], *y = &c->out[0];
    const int64_t     T = y->shape.dim[1], each = rows_per_tile(y);
    const size_t      bytes = (size_t)row_size(y) * dra_dtype_bytes(y->dtype);
    for (int64_t r = i * each; r < dra_imin(row_count(y), (i + 1) * each); r++) {
        const int32_t  from = at_of(&c->in[1], r / T, r % T);
        unsigned char *to = (unsigned char *)y->data + (size_t)r * bytes;
        if (from >= x->shape.dim[1]) {
            set_fault(c, i, r / T, r % T, from, x->shape.dim[1]);
            return;
        }
        if (from >= 0)
            copy_row(to, x, r / T, from);
        else if (bytes)
            memset(to, 0, bytes); /* 0 is all bits 0 in every dtype */
    }
}

const dra_op dra_op_read_rows = {
    .name = "read_rows", .n_in = 2, .n_out = 1, .infer = read_infer, .gradient = read_gradient};

const dra_cpu_kernel dra_cpu_read_rows = {
    .base = {.op = "read_rows", .dtypes = DRA_ANY_DTYPE},
    .tiles = read_tiles,
    .tile = read_tile,
};

dra_value dra_read_rows(dra_graph *g, dra_value x, dra_value at)
{
    const dra_value in[] = {x, at};
    return dra_add_op(g, &dra_op_read_rows, 2, in, NULL);
}
