/* linear_cross_entropy: the mean cross entropy of logits = x w^T with targets, and its gradients,
 * without ever holding all logits.
 *   x (N, C)   w (V, C)   target (N)   ->   loss (), dx (N, C), dw (V, C) for upstream 1
 * Blocks of tokens go one after the other; each makes its logits Z (block, V), turns them into
 *   dZ = (softmax(Z) - q) / rows that count      (q as in cross_entropy.c)
 * in place, then dx = dZ w for its own rows and dw += dZ^T x. The gradient is linear in the
 * upstream dy, a scalar, so the gradient rule only scales dx and dw by it. */
#include <string.h>

#include "ops/loss/cross_entropy.h"
#include "ops/products/matmul.h"

enum {
    BLOCK = 256,              /* tokens at a time, */
    LOGITS_BYTES = 128 << 20, /* or twice as many, if their logits take no more than this */
    LOSS_ROWS = 16            /* of a tile of losses */
};

/* For each block w is read twice, and dw is read and written: few blocks take less time, and have
 * more rows for threads to share. No sum depends on where blocks end. */
static int64_t block_tokens(int64_t V)
{
    return V <= LOGITS_BYTES / (2 * BLOCK * (int64_t)sizeof(real)) ? 2 * BLOCK : BLOCK;
}

static dra_status infer_linear_cross_entropy(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape *x = &dra_type_of(g, n->in[0])->shape, *w = &dra_type_of(g, n->in[1])->shape;
    const dra_shape *target = &dra_type_of(g, n->in[2])->shape;
    dra_status       st = dra_expect_dtype(g, n, 0, "x", DRA_REAL);
    size_t           bytes;
    if (st == DRA_OK) st = dra_expect_weight(g, n->op->name, "w", n->in[1]);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, 2, "target", DRA_I32);
    if (st != DRA_OK) return st;
    if (x->rank != 2 || w->rank != 2 || x->dim[1] != w->dim[1])
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s, w %s: expected x (..., C), w (V, C)",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]));
    if (!dra_shape_equal(target, &DRA_SHAPE(x->dim[0])))
        return dra_op_fail(g, n, DRA_ERR_SHAPE,
                           "x %s, target %s: expected x (..., C), target (...)",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[2]));
    if (!dra_type_bytes(DRA_REAL, &DRA_SHAPE(BLOCK, w->dim[0]), &bytes))
        return dra_op_fail(g, n, DRA_ERR_MEMORY, "w %s: %d rows of logits overflow",
                           dra_type_text(g, n->in[1]), BLOCK);
    out[0] = (dra_type){DRA_REAL, {0}};
    out[1] = (dra_type){DRA_REAL, *x};
    out[2] = (dra_type){DRA_REAL, *w};
    return DRA_OK;
}

static void derive_linear_cross_entropy(dra_graph *g, const dra_node *n, const dra_value *dy,
                                        dra_value *dx)
{
    if (dy[1].id || dy[2].id) {
        dra_op_fail(g, n, DRA_ERR_GRAD,
                    "has no second derivative; use cross_entropy(linear(x, w))");
        return;
    }
    dx[0] = dra_mul(g, n->out[1], dy[0]);
    dx[1] = dra_mul(g, n->out[2], dy[0]);
}

/* ---- stages: count, then three for each block, then the mean --------------------------------- */

typedef enum part { COUNT_ROWS, LOGITS, LOSSES, GRADIENTS, MEAN } part;

typedef struct work {
    int64_t  N, C, V, blocks;
    part     part;
    int64_t  first, rows; /* tokens of this stage's block */
    int64_t *count;       /* rows that count */
    real    *losses;      /* (N) */
    real    *logits;      /* (rows, V) of this block */
} work;

enum { HEAD = 64 }; /* bytes before the losses: the count, alone in its line */

static work work_of(const dra_call *c)
{
    work w = {.N = c->in[0].shape.dim[0], .C = c->in[0].shape.dim[1], .V = c->in[1].shape.dim[0]};
    const int64_t block = block_tokens(w.V);
    w.blocks = dra_div_up(w.N, block);
    w.part = c->stage == 0             ? COUNT_ROWS
             : c->stage > 3 * w.blocks ? MEAN
                                       : LOGITS + (part)((c->stage - 1) % 3);
    w.first = (c->stage - 1) / 3 * block;
    w.rows = dra_imin(block, w.N - w.first);
    w.count = c->scratch;
    w.losses = (void *)((unsigned char *)c->scratch + HEAD);
    w.logits = w.losses + w.N;
    return w;
}

static int64_t count_linear_cross_entropy_stages(const dra_call *c)
{
    return 2 + 3 * dra_div_up(c->in[0].shape.dim[0], block_tokens(c->in[1].shape.dim[0]));
}

static size_t size_linear_cross_entropy_scratch(const dra_call *c)
{
    const int64_t N = c->in[0].shape.dim[0], V = c->in[1].shape.dim[0];
    return HEAD + ((size_t)N + (size_t)dra_imin(N, block_tokens(V)) * (size_t)V) * sizeof(real);
}

static bool in_bf16(const dra_call *c)
{
    return ((const dra_linear_cross_entropy_attr *)c->attr)->precision == DRA_PRECISION_BF16;
}

static dra_tiling tiling_of(const dra_call *c, int64_t M, int64_t N, int64_t K)
{
    return dra_product_tiling(c, 1, M, N, K, in_bf16(c));
}

static int64_t product_tiles(const dra_call *c, int64_t M, int64_t N, int64_t K)
{
    const dra_tiling t = tiling_of(c, M, N, K);
    return t.row_blocks * t.column_blocks;
}

static int64_t dx_tiles(const dra_call *c, const work *w)
{
    return c->out[1].data ? product_tiles(c, w->rows, w->C, w->V) : 0;
}

static int64_t count_linear_cross_entropy_tiles(const dra_call *c)
{
    const work w = work_of(c);
    switch (w.part) {
    case COUNT_ROWS: return 1;
    case LOGITS: return product_tiles(c, w.rows, w.V, w.C);
    case LOSSES: return dra_div_up(w.rows, LOSS_ROWS);
    case GRADIENTS:
        return dx_tiles(c, &w) + (c->out[2].data ? product_tiles(c, w.V, w.C, w.rows) : 0);
    case MEAN: break;
    }
    return 1;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

static int32_t target_at(const dra_call *c, int64_t n)
{
    return ((const int32_t *)c->in[2].data)[n * c->in[2].stride[0]];
}

static void count_rows(const dra_call *c, const work *w)
{
    *w->count = 0;
    for (int64_t n = 0; n < w->N; n++) {
        const int32_t target = target_at(c, n);
        if (!dra_row_valid(c, 0, n, w->V, target)) return;
        *w->count += !dra_row_ignored(c->attr, target);
    }
    if (w->N == 0 && c->out[2].data) /* no block will write dw */
        memset(c->out[2].data, 0, (size_t)w->V * (size_t)w->C * sizeof(real));
}

/* Cuts tile i of the product out of m: whole operands in, one block of rows and columns left. */
static void run_product(const dra_call *c, dra_gemm m, int64_t i)
{
    const dra_tiling t = tiling_of(c, m.M, m.N, m.K);
    const int64_t    row = i % t.row_blocks * t.rows, column = i / t.row_blocks * t.columns;
    m.M = dra_imin(t.rows, m.M - row);
    m.N = dra_imin(t.columns, m.N - column);
    m.c += row * m.c_row + column;
    if (m.K > 0) { /* else a and b may have no memory */
        m.a = dra_element(m.a, m.a_type, row * m.a_row);
        m.b = dra_element(m.b, m.b_type, column * m.b_col);
        m.b_first = column * m.b_col % (int64_t)dra_dtype_get(m.b_type)->block_elements;
    }
    m.bf16 = in_bf16(c);
    m.q8 = ((const dra_linear_cross_entropy_attr *)c->attr)->precision == DRA_PRECISION_Q8;
    dra_simd_of(c)->gemm(&m);
}

static const real *block_of_x(const dra_call *c, const work *w)
{
    return (const real *)c->in[0].data + w->first * c->in[0].stride[0];
}

/* Z = x w^T */
static dra_gemm logits_product(const dra_call *c, const work *w)
{
    const int64_t *x_step = c->in[0].stride, *w_step = c->in[1].stride;
    return (dra_gemm){.M = w->rows,
                      .N = w->V,
                      .K = w->C,
                      .a = block_of_x(c, w),
                      .a_row = x_step[0],
                      .a_col = x_step[1],
                      .b = c->in[1].data,
                      .b_row = w_step[1],
                      .b_col = w_step[0],
                      .c = w->logits,
                      .c_row = w->V,
                      .a_type = DRA_REAL,
                      .b_type = c->in[1].dtype};
}

/* dx = dZ w */
static dra_gemm dx_product(const dra_call *c, const work *w)
{
    return (dra_gemm){.M = w->rows,
                      .N = w->C,
                      .K = w->V,
                      .a = w->logits,
                      .a_row = w->V,
                      .a_col = 1,
                      .b = c->in[1].data,
                      .b_row = c->in[1].stride[0],
                      .b_col = c->in[1].stride[1],
                      .c = (real *)c->out[1].data + w->first * w->C,
                      .c_row = w->C,
                      .a_type = DRA_REAL,
                      .b_type = c->in[1].dtype};
}

/* dw += dZ^T x */
static dra_gemm dw_product(const dra_call *c, const work *w)
{
    return (dra_gemm){.M = w->V,
                      .N = w->C,
                      .K = w->rows,
                      .a = w->logits,
                      .a_row = 1,
                      .a_col = w->V,
                      .b = block_of_x(c, w),
                      .b_row = c->in[0].stride[0],
                      .b_col = c->in[0].stride[1],
                      .c = c->out[2].data,
                      .c_row = w->C,
                      .accumulate = w->first > 0,
                      .a_type = DRA_REAL,
                      .b_type = DRA_REAL};
}

/* Losses of rows of Z; where a gradient is wanted, dZ takes their place. */
static void write_losses(const dra_call *c, const work *w, int64_t i)
{
    const bool wanted = c->out[1].data || c->out[2].data;
    for (int64_t r = i * LOSS_ROWS; r < dra_imin(w->rows, (i + 1) * LOSS_ROWS); r++) {
        const int32_t target = target_at(c, w->first + r);
        real         *z = w->logits + r * w->V, lse, *loss = &w->losses[w->first + r];
        if (dra_row_ignored(c->attr, target)) {
            *loss = 0;
            for (int64_t v = 0; wanted && v < w->V; v++) z[v] = 0;
            continue;
        }
        *loss = dra_row_loss(c, w->V, z, target, &lse);
        if (wanted) dra_row_loss_back(c, w->V, z, target, lse, (real)(1.0 / (double)*w->count), z);
    }
}

static void write_mean(const dra_call *c, const work *w)
{
    double sum = 0;
    for (int64_t n = 0; n < w->N; n++) sum += (double)w->losses[n];
    if (c->out[0].data) *(real *)c->out[0].data = *w->count ? (real)(sum / (double)*w->count) : 0;
}

static void run_linear_cross_entropy_tile(const dra_call *c, int64_t i)
{
    const work w = work_of(c);
    switch (w.part) {
    case COUNT_ROWS: count_rows(c, &w); break;
    case LOGITS: run_product(c, logits_product(c, &w), i); break;
    case LOSSES: write_losses(c, &w, i); break;
    case GRADIENTS:
        if (i < dx_tiles(c, &w))
            run_product(c, dx_product(c, &w), i);
        else
            run_product(c, dw_product(c, &w), i - dx_tiles(c, &w));
        break;
    case MEAN: write_mean(c, &w); break;
    }
}

static dra_cost cost_linear_cross_entropy(const dra_call *c)
{
    const work   w = work_of(c);
    const double product = 2.0 * (double)w.N * (double)w.V * (double)w.C;
    const double x = (double)w.N * (double)w.C * sizeof(real);
    const double elements = (double)w.V * (double)w.C;
    const double head = (double)dra_elements_bytes(c->in[1].dtype, w.V * w.C);
    const bool   dx = c->out[1].data != NULL, dw = c->out[2].data != NULL;
    return (dra_cost){.flops = product * (1 + dx + dw),
                      .bytes = x * (1 + dx) + head + elements * dw * sizeof(real)};
}

const dra_op dra_op_linear_cross_entropy = {.name = "linear_cross_entropy",
                                            .n_in = 3,
                                            .n_out = 3,
                                            .attr_size = sizeof(dra_linear_cross_entropy_attr),
                                            .infer = infer_linear_cross_entropy,
                                            .gradient = derive_linear_cross_entropy,
                                            .cost = cost_linear_cross_entropy};

const dra_cpu_kernel dra_cpu_linear_cross_entropy = {
    .base = {.op = "linear_cross_entropy",
             .dtypes = DRA_WEIGHTS | DRA_BIT(DRA_I32),
             .scratch = size_linear_cross_entropy_scratch},
    .tiles = count_linear_cross_entropy_tiles,
    .tile = run_linear_cross_entropy_tile,
    .stages = count_linear_cross_entropy_stages,
};

/* ---- builder --------------------------------------------------------------------------------- */

dra_value dra_linear_cross_entropy(dra_graph *g, dra_value x, dra_value w, dra_value target,
                                   const dra_cross_entropy_config *config)
{
    const char *const             name = dra_op_linear_cross_entropy.name;
    const dra_value               given[] = {x, w, target};
    dra_linear_cross_entropy_attr attr = {.precision = dra_graph_precision(g)};
    if (!dra_check_values(g, name, 3, given) || !dra_loss_config(g, name, config, &attr.loss))
        return (dra_value){0};
    dra_shape  rows = dra_shape_of(g, x);
    const bool fits = --rows.rank >= 0 && dra_shape_equal(&rows, &dra_type_of(g, target)->shape);
    if (!fits) {
        dra_build_fail(g, name, DRA_ERR_SHAPE, "x %s, target %s: expected x (..., C), target (...)",
                       dra_type_text(g, x), dra_type_text(g, target));
        return (dra_value){0};
    }
    const int64_t   N = dra_shape_count(&rows), C = dra_shape_of(g, x).dim[rows.rank];
    const dra_value in[] = {dra_reshape(g, x, DRA_SHAPE(N, C)), w,
                            dra_reshape(g, target, DRA_SHAPE(N))};
    return dra_add_op(g, &dra_op_linear_cross_entropy, 3, in, &attr);
}
