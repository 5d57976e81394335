/* matmul: y = a b for matrices in the last two axes, leading axes broadcast against each other.
 *   a (..., M, K)   b (..., K, N)   y (..., M, N)   y_mn = sum_k a_mk b_kn, 0 for K = 0
 * Gradient: da = dy b^T, db = a^T dy, summed over the leading axes along which a or b was repeated.
 * linear: y = x w^T + b, one matmul over all rows of x, to whose tiles b (N) is added while they
 * are in the cache: the node's third input.
 * An operand may be stored in bf16 or f16: it is widened while it is read, its gradient is real.
 * So is a b that is quantised, straight from its blocks where these lie along k.
 * With bf16 precision both are rounded to bf16 instead, and so are dy and they in the gradient. */
#include <assert.h>
#include <math.h>

#include "ops/products/matmul.h"

/* y in tiles: packing b pays by the rows of a tile, packing a by its columns; but there should be
 * some for each thread, as many for one as for the other. Few rows take as long as b takes to come
 * from memory: narrow tiles for all threads to end together, but pieces that are large there.
 *
 * Few rows and a large b whose columns are adjacent in memory: only whole rows of b are long enough
 * to come as fast as memory can give them. So a tile is one chain of k (DRA_CHAIN) over wide
 * columns; its sums go to scratch, and a second stage adds up the chains in their order, as a gemm
 * over all of k does: the bits are the same.
 *
 * In bf16 on tile registers packing takes longer than multiplying: where several tiles read a row
 * of a or a column of b, a first stage packs each once, into scratch. */
enum { ROWS = 256, COLUMNS = 384, NARROW = 128, MANY = 16, FEW = 8, SLIM = 32 };
enum { SMALL = 1 << 18 };            /* multiply-adds of a product that is not worth a choice */
enum { PACK = 64, WORTH = 1 << 22 }; /* lines of a tile that packs; multiply-adds worth a stage */
enum { WIDE = 4096, LARGE = 1 << 16, ADDED = 1024 }; /* ADDED: columns of a tile that adds */

/* ---- types ----------------------------------------------------------------------------------- */

/* The leading axes of a shape as a shape of their own. */
static dra_shape leading_axes(const dra_shape *s)
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

static dra_status infer_matmul(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape *a = &dra_type_of(g, n->in[0])->shape, *b = &dra_type_of(g, n->in[1])->shape;
    dra_status       st = dra_expect_factor(g, n->op->name, "a", n->in[0]);
    if (st == DRA_OK) st = dra_expect_weight(g, n->op->name, "b", n->in[1]);
    if (st != DRA_OK) return st;
    const char *a_text = dra_type_text(g, n->in[0]), *b_text = dra_type_text(g, n->in[1]);
    if (a->rank < 2 || b->rank < 2)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "a %s, b %s: expected two axes or more", a_text,
                           b_text);
    const int64_t M = a->dim[a->rank - 2], K = a->dim[a->rank - 1], N = b->dim[b->rank - 1];
    if (b->dim[b->rank - 2] != K)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "a %s, b %s: inner sizes %lld and %lld differ",
                           a_text, b_text, (long long)K, (long long)b->dim[b->rank - 2]);
    const dra_shape a_lead = leading_axes(a), b_lead = leading_axes(b);
    dra_shape       lead;
    if (!dra_broadcast_shapes(&a_lead, &b_lead, &lead))
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "a %s, b %s: leading axes do not broadcast", a_text,
                           b_text);
    *out = (dra_type){DRA_REAL, with_matrix(lead, M, N)};
    assert(n->n_in == 2 || dra_shape_equal(&dra_type_of(g, n->in[2])->shape, &DRA_SHAPE(N)));
    return DRA_OK;
}

/* ---- gradient -------------------------------------------------------------------------------- */

static dra_value turn_matrix(dra_graph *g, dra_value x) { return dra_transpose(g, x, -1, -2); }

/* Leading axes and rows as one axis: (..., M, K) -> (... M, K). */
static dra_value fold_rows(dra_graph *g, dra_value x)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape s = dra_shape_of(g, x);
    int64_t         rows = 1;
    for (int32_t i = 0; i + 1 < s.rank; i++) rows *= s.dim[i];
    return dra_reshape(g, x, DRA_SHAPE(rows, s.dim[s.rank - 1]));
}

static dra_value build_product(dra_graph *g, dra_value a, dra_value b, dra_matmul_attr attr)
{
    const dra_value in[] = {a, b};
    return dra_add_op(g, &dra_op_matmul, 2, in, &attr);
}

static void derive_matmul(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_matmul_attr *attr = n->attr;
    const dra_matmul_attr  plain = {false, attr->precision};
    const dra_shape        a_shape = dra_shape_of(g, n->in[0]), b_shape = dra_shape_of(g, n->in[1]);
    const dra_shape        b_lead = leading_axes(&b_shape);
    dra_value              a = n->in[0], up = dy[0];
    dx[0] = dra_unbroadcast(g, build_product(g, up, turn_matrix(g, n->in[1]), plain), a_shape);
    /* One b for all of a: the leading axes are rows of one product. */
    if (dra_shape_count(&b_lead) == 1) {
        a = fold_rows(g, a);
        up = fold_rows(g, up);
    }
    const dra_value db = attr->db_transposed
                             ? turn_matrix(g, build_product(g, turn_matrix(g, up), a, plain))
                             : build_product(g, turn_matrix(g, a), up, plain);
    dx[1] = dra_unbroadcast(g, db, b_shape);
    if (n->n_in == 3) dx[2] = dra_unbroadcast(g, dy[0], dra_shape_of(g, n->in[2]));
}

/* ---- kernel ---------------------------------------------------------------------------------- */

/* Multiply-adds for each element of k that a tile is worth, with those that packing takes as long
 * as. Micro-kernels compute 8 rows and 32 columns, those on tile registers 32 and 32, in a
 * fourth of the time. */
static double tile_cost(int64_t rows, int64_t columns, bool tiles)
{
    const int64_t side = tiles ? 32 : 8;
    const double  r = (double)(dra_div_up(rows, side) * side);
    const double  n = (double)(dra_div_up(columns, 32) * 32);
    return r * n / (tiles ? 4 : 1) + 12 * n + 4 * r;
}

static dra_tiling cut_product(int64_t M, int64_t N, int64_t rows, int64_t columns)
{
    return (dra_tiling){rows, columns, dra_div_up(M, rows), dra_div_up(N, columns)};
}

/* The thread with the most tiles, and a little for the last of them to end later than others. */
static double time_of(const dra_tiling *t, int64_t batch, int64_t M, int64_t N, int threads,
                      bool tiles)
{
    const int64_t all = batch * t->row_blocks * t->column_blocks;
    const double  each = tile_cost(dra_imin(M, t->rows), dra_imin(N, t->columns), tiles);
    return each * ((double)dra_div_up(all, threads) + 0.1);
}

/* A tile goes over k chain by chain: what it reads of a and all of its y should stay in the second
 * cache meanwhile, with some room for b. */
static bool check_matmul(const dra_call *c, int64_t rows, int64_t columns)
{
    const int64_t bytes = rows * (DRA_CHAIN + columns) * (int64_t)sizeof(real);
    return bytes <= dra_simd_of(c)->caches.l2 / 4 * 3;
}

dra_tiling dra_product_tiling(const dra_call *c, int64_t batch, int64_t M, int64_t N, int64_t K,
                              bool bf16)
{
    static const int64_t rows[] = {ROWS, 192, 128, 96, 64, 32},
                         columns[] = {COLUMNS, 256, 192, 128, 96, 64};
    const int some_rows = sizeof rows / sizeof *rows, some = sizeof columns / sizeof *columns;
    if (!c->context)
        return cut_product(M, N, ROWS, COLUMNS); /* for its cost, nothing depends on it */
    const bool many = c->threads > 1 && batch * M * N * K >= SMALL;
    const bool tiles = bf16 && dra_simd_of(c)->level == DRA_LEVEL_AVX512AMX;
    dra_tiling best = cut_product(M, N, rows[some_rows - 1], columns[some - 1]);
    double     least = INFINITY;
    for (int k = 0; k < some_rows * some && (many || least == INFINITY); k++) {
        const dra_tiling t = cut_product(M, N, rows[k / some], columns[k % some]);
        const double     time = time_of(&t, batch, M, N, c->threads, tiles);
        if (check_matmul(c, t.rows, t.columns) && time < least) least = time, best = t;
    }
    return best;
}

typedef struct sizes {
    int64_t M, N, K, batch, rows, row_blocks, column_blocks, columns;
    int64_t chains; /* of k, each a tile of its own; 0: a tile takes all of k */
    /* Floats of all lines of a and of b in a block of k, where they are packed first; else 0. */
    int64_t a_step, b_step, depth;
} sizes;

static bool by_chains(const dra_call *c, const sizes *s)
{
    const dra_matmul_attr *attr = c->attr;
    const dra_tensor      *b = &c->in[1];
    return s->M <= FEW && s->batch == 1 && s->K > DRA_CHAIN && s->K * s->N >= LARGE &&
           b->stride[b->shape.rank - 1] == 1 && attr->precision != DRA_PRECISION_BF16 &&
           !dra_is_quantised(b->dtype);
}

static int64_t packed_lines(int64_t n)
{
    return dra_div_up(n, DRA_PACKED_LINES) * DRA_PACKED_LINES;
}

static void choose_packing(const dra_call *c, sizes *s, bool bf16, const dra_tiling *t)
{
    const int64_t depth = c->context ? dra_simd_of(c)->pack_depth : 0;
    if (!bf16 || !depth || s->batch != 1 || t->row_blocks * t->column_blocks < 4 ||
        s->M * s->N * s->K < WORTH)
        return;
    s->depth = depth;
    s->a_step = packed_lines(s->M) * depth / 2;
    s->b_step = packed_lines(s->N) * depth / 2;
}

static sizes sizes_of(const dra_call *c)
{
    const dra_shape *y = &c->out[0].shape;
    const dra_shape  lead = leading_axes(y);
    sizes            s = {.M = y->dim[y->rank - 2],
                          .N = y->dim[y->rank - 1],
                          .K = dra_last(&c->in[0]),
                          .batch = dra_shape_count(&lead)};
    s.row_blocks = 1;
    s.rows = ROWS;
    if (by_chains(c, &s)) {
        s.chains = dra_div_up(s.K, DRA_CHAIN);
        s.columns = c->stage ? ADDED : WIDE;
    } else if (s.M <= FEW) {
        const bool many = s.batch * dra_div_up(s.N, COLUMNS) >= MANY;
        const bool along = c->in[1].stride[c->in[1].shape.rank - 1] != 1; /* columns run along k */
        const bool wide = many || !along;
        s.columns = wide ? NARROW : dra_is_quantised(c->in[1].dtype) ? 2 * SLIM : SLIM;
    } else {
        const dra_matmul_attr *attr = c->attr;
        const bool             bf16 = attr->precision == DRA_PRECISION_BF16;
        const dra_tiling       t = dra_product_tiling(c, s.batch, s.M, s.N, s.K, bf16);
        s.rows = t.rows, s.columns = t.columns, s.row_blocks = t.row_blocks;
        choose_packing(c, &s, bf16, &t);
    }
    s.column_blocks = dra_div_up(s.N, s.columns);
    return s;
}

int64_t dra_matmul_tiles(const dra_call *c)
{
    const sizes s = sizes_of(c);
    if (s.depth && !c->stage) return dra_div_up(s.M, PACK) + dra_div_up(s.N, PACK);
    return s.batch * s.row_blocks * s.column_blocks * (s.chains && !c->stage ? s.chains : 1);
}

int64_t dra_matmul_stages(const dra_call *c)
{
    const sizes s = sizes_of(c);
    return s.chains || s.depth ? 2 : 1;
}

size_t dra_matmul_scratch(const dra_call *c)
{
    const sizes s = sizes_of(c);
    if (s.depth) return (size_t)(dra_div_up(s.K, s.depth) * (s.a_step + s.b_step)) * sizeof(float);
    return (size_t)(s.chains * s.M * s.N) * sizeof(real);
}

/* The offset in x of matrix number i of y's leading axes; x's own may be fewer, or of size 1. */
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

/* To a tile of y that starts at this column. */
static void add_bias(const dra_call *c, const dra_gemm *m, int64_t column)
{
    const dra_tensor *b = &c->in[2];
    const real       *from = (const real *)b->data + column * b->stride[0];
    for (int64_t i = 0; i < m->M; i++) {
        real *y = m->c + i * m->c_row;
        if (b->stride[0] == 1)
            dra_simd_of(c)->add(m->N, y, from, y);
        else
            for (int64_t j = 0; j < m->N; j++) y[j] += from[j * b->stride[0]];
    }
}

/* Some rows and columns of y, over all of k. */
static dra_gemm gemm_of(const dra_call *c, const sizes *s, int64_t batch, int64_t row,
                        int64_t column)
{
    const dra_matmul_attr *attr = c->attr;
    const dra_tensor      *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    const int64_t *a_step = a->stride + a->shape.rank - 2, *b_step = b->stride + b->shape.rank - 2;
    dra_gemm       m = {.M = dra_imin(s->rows, s->M - row),
                        .N = dra_imin(s->columns, s->N - column),
                        .K = s->K,
                        .a_row = a_step[0],
                        .a_col = a_step[1],
                        .b_row = b_step[0],
                        .b_col = b_step[1],
                        .c = (real *)y->data + (batch * s->M + row) * s->N + column,
                        .c_row = s->N,
                        .bf16 = attr->precision == DRA_PRECISION_BF16,
                        .q8 = attr->precision == DRA_PRECISION_Q8,
                        .a_type = a->dtype,
                        .b_type = b->dtype};
    if (s->K > 0) { /* else a and b are empty and may have no memory */
        const int64_t a_at = matrix_offset(a, &y->shape, batch) + row * a_step[0];
        const int64_t b_at = matrix_offset(b, &y->shape, batch) + column * b_step[1];
        m.a = dra_element(a->data, a->dtype, a_at);
        m.b = dra_element(b->data, b->dtype, b_at);
        m.b_first = b_at % (int64_t)dra_dtype_get(b->dtype)->block_elements;
    }
    return m;
}

/* Chain number `chain` of all rows and some columns of y, to scratch (chains, M, N). */
static void multiply_chain(const dra_call *c, const sizes *s, int64_t chain, int64_t column)
{
    const int64_t k = chain * DRA_CHAIN;
    dra_gemm      m = gemm_of(c, s, 0, 0, column);
    m.K = dra_imin(DRA_CHAIN, s->K - k);
    m.a = dra_element(m.a, m.a_type, k * m.a_col);
    m.b = dra_element(m.b, m.b_type, k * m.b_row);
    m.c = (real *)c->scratch + chain * s->M * s->N + column;
    dra_simd_of(c)->gemm(&m);
}

static void add_chains(const dra_call *c, const sizes *s, const dra_gemm *m, int64_t column)
{
    for (int64_t i = 0; i < s->M; i++) {
        const real *sum = (const real *)c->scratch + i * s->N + column;
        real       *y = m->c + i * m->c_row;
        dra_simd_of(c)->add(m->N, sum, sum + s->M * s->N, y);
        for (int64_t chain = 2; chain < s->chains; chain++)
            dra_simd_of(c)->add(m->N, y, sum + chain * s->M * s->N, y);
    }
}

/* A line of a packed operand, in its first block of k; b follows a. */
static float *packed_at(const dra_call *c, const sizes *s, bool b, int64_t line)
{
    float *a = c->scratch;
    return (b ? a + dra_div_up(s->K, s->depth) * s->a_step : a) + line * s->depth / 2;
}

static void pack_lines(const dra_call *c, const sizes *s, int64_t i)
{
    const int64_t row = i * PACK, column = (i - dra_div_up(s->M, PACK)) * PACK;
    const bool    b = row >= s->M;
    dra_gemm      m = gemm_of(c, s, 0, b ? 0 : row, b ? column : 0);
    m.M = dra_imin(PACK, s->M - row);
    m.N = dra_imin(PACK, s->N - column);
    if (b)
        dra_simd_of(c)->pack_columns(&m, packed_at(c, s, true, column), s->b_step);
    else
        dra_simd_of(c)->pack_rows(&m, packed_at(c, s, false, row), s->a_step);
}

/* Neighbouring tiles share columns of b, usually the larger operand; of chains, they follow each
 * other in memory. */
bool dra_matmul_tile(const dra_call *c, int64_t i, dra_gemm *m)
{
    const sizes s = sizes_of(c);
    if (s.chains && !c->stage) {
        multiply_chain(c, &s, i % s.chains, i / s.chains * s.columns);
        return false;
    }
    if (s.depth && !c->stage) {
        pack_lines(c, &s, i);
        return false;
    }
    const int64_t row = i % s.row_blocks * s.rows;
    const int64_t column = i / s.row_blocks % s.column_blocks * s.columns;
    *m = gemm_of(c, &s, i / (s.row_blocks * s.column_blocks), row, column);
    if (s.depth) {
        m->a_packed = (dra_packed){packed_at(c, &s, false, row), s.a_step};
        m->b_packed = (dra_packed){packed_at(c, &s, true, column), s.b_step};
    }
    if (s.chains)
        add_chains(c, &s, m, column);
    else
        dra_simd_of(c)->gemm(m);
    if (c->n_in == 3) add_bias(c, m, column);
    return true;
}

static void run_matmul_tile(const dra_call *c, int64_t i)
{
    dra_gemm m;
    dra_matmul_tile(c, i, &m);
}

dra_cost dra_matmul_cost(const dra_call *c)
{
    const sizes s = sizes_of(c);
    dra_cost    cost = dra_pointwise_cost(c); /* for its bytes: every tensor moved once */
    cost.flops = 2.0 * (double)s.batch * (double)s.M * (double)s.N * (double)s.K;
    return cost;
}

const dra_op dra_op_matmul = {.name = "matmul",
                              .n_in = DRA_MANY,
                              .n_out = 1,
                              .attr_size = sizeof(dra_matmul_attr),
                              .infer = infer_matmul,
                              .gradient = derive_matmul,
                              .cost = dra_matmul_cost,
                              .then = &dra_op_matmul_then,
                              .several = &dra_op_matmuls};

const dra_cpu_kernel dra_cpu_matmul = {
    .base = {.op = "matmul", .dtypes = DRA_WEIGHTS, .scratch = dra_matmul_scratch},
    .tiles = dra_matmul_tiles,
    .tile = run_matmul_tile,
    .stages = dra_matmul_stages,
};

/* ---- builders -------------------------------------------------------------------------------- */

dra_value dra_matmul(dra_graph *g, dra_value a, dra_value b)
{
    return build_product(g, a, b, (dra_matmul_attr){false, dra_graph_precision(g)});
}

static bool check_linear(dra_graph *g, dra_value x, dra_value w, dra_value b)
{
    const dra_value in[] = {x, w, b};
    if (!dra_check_values(g, "linear", b.id ? 3 : 2, in)) return false;
    if (dra_expect_factor(g, "linear", "x", x) != DRA_OK ||
        dra_expect_weight(g, "linear", "w", w) != DRA_OK)
        return false;
    if (b.id && dra_type_of(g, b)->dtype != DRA_REAL) {
        dra_build_fail(g, "linear", DRA_ERR_DTYPE, "b is %s, expected %s",
                       dra_dtype_get(dra_type_of(g, b)->dtype)->name,
                       dra_dtype_get(DRA_REAL)->name);
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

/* x w^T + b + scale (x a^T) b^T: the matrix itself is never made, and neither is its gradient. */
static dra_value add_low_rank(dra_graph *g, dra_value x, const dra_factors *f, dra_value b)
{
    const dra_value none = {0}, y = dra_linear(g, x, f->w, b);
    const dra_value low = dra_linear(g, dra_linear(g, x, f->a, none), f->b, none);
    return dra_add(g, y, dra_affine(g, low, f->scale, 0));
}

dra_value dra_linear(dra_graph *g, dra_value x, dra_value w, dra_value b)
{
    if (!check_linear(g, x, w, b)) return (dra_value){0};
    if (dra_factors_of(g, w)) return add_low_rank(g, x, dra_factors_of(g, w), b);
    dra_shape shape = dra_shape_of(g, x); /* of y */
    shape.dim[shape.rank - 1] = dra_shape_of(g, w).dim[0];
    const dra_matmul_attr attr = {true, dra_graph_precision(g)};
    const dra_value       in[] = {fold_rows(g, x), turn_matrix(g, w), b};
    return dra_reshape(g, dra_add_op(g, &dra_op_matmul, b.id ? 3 : 2, in, &attr), shape);
}
