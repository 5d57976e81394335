/* Layer and RMS norm with gain and bias, in one pass each way:
 *   y = n w + b,  n = (x - mean) r            (mean = 0 for RMS, r as in norm.c)
 *   dx = r (t - [layer: mean(t)] - n mean(t n)),  t = dy w;   dw = sum dy n;   db = sum dy
 * The sums over rows go through one partial row for each tile, added in tile order. The gradient of
 * the gradient is that of the same thing composed of smaller ops. */
#include <string.h>

#include "ops/norm/norm.h"
#include "ops/norm/norm_loops.h"

enum { MEAN = 2 }; /* numbers that say the mean of a row: c and rest */

/* ---- forward: (x, w[, b]) -> y, r (..., 1), mean (..., 2) ------------------------------------ */

static dra_status infer_norm_gain(dra_graph *g, const dra_node *n, dra_type *out)
{
    for (int i = 0; i < 3; i++) out[i] = *dra_type_of(g, n->in[0]);
    out[1].shape.dim[out[1].shape.rank - 1] = 1;
    out[2].shape.dim[out[2].shape.rank - 1] = MEAN;
    return DRA_OK;
}

static void run_norm_gain_tile(const dra_call *c, int64_t i)
{
    const int64_t       C = dra_last(&c->in[0]);
    const dra_row_range rows = dra_tile_rows(c, i);
    const real         *w = c->in[1].data, *b = c->n_in > 2 ? c->in[2].data : NULL;
    real               *y = c->out[0].data, *r = c->out[1].data, *mean = c->out[2].data;
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const real       *x = dra_row(&c->in[0], row);
        const dra_moments m = dra_norm_moments(dra_simd_of(c), c->attr, C, x);
        if (r) r[row] = m.r;
        if (mean) mean[row * MEAN] = m.c, mean[row * MEAN + 1] = m.rest;
        if (!y) continue;
        dra_simd_of(c)->center(C, x, m.c, m.rest, m.r, y + row * C);
        dra_simd_of(c)->mul(C, y + row * C, w, y + row * C);
        if (b) dra_simd_of(c)->add(C, y + row * C, b, y + row * C);
    }
}

/* ---- backward: (x, w, r, mean, dy) -> dx, dw, db --------------------------------------------- */

enum { X, W, R, MEANS, DY };

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    out[0] = *dra_type_of(g, n->in[X]);
    out[1] = out[2] = *dra_type_of(g, n->in[W]);
    return DRA_OK;
}

/* More rows a tile than elsewhere: each tile costs two rows of scratch. */
static int64_t rows_a_tile(const dra_call *c) { return dra_imax(64, 65536 / dra_last(&c->in[X])); }

static int64_t row_tiles(const dra_call *c)
{
    return dra_div_up(dra_rows(&c->in[X]), rows_a_tile(c));
}

static int64_t back_stages(const dra_call *c) { return 2; }

static int64_t back_tiles(const dra_call *c) { return c->stage == 0 ? row_tiles(c) : 1; }

static size_t back_scratch(const dra_call *c)
{
    return (size_t)(2 * row_tiles(c) * dra_last(&c->in[X])) * sizeof(real);
}

/* dw and db: this tile's sums. */
static void back_row(const dra_call *c, int64_t row, real *dw, real *db)
{
    const int64_t         C = dra_last(&c->in[X]);
    const real           *mean = dra_row(&c->in[MEANS], row);
    const dra_norm_row    f = {.x = dra_row(&c->in[X], row),
                               .dy = dra_row(&c->in[DY], row),
                               .w = c->in[W].data,
                               .dx = c->out[0].data ? (real *)c->out[0].data + row * C : NULL,
                               .c = mean[0],
                               .rest = mean[1],
                               .r = *dra_row(&c->in[R], row)};
    const dra_norm_loops *loops = dra_norm_loops_of(dra_simd_of(c));
    real                  with_n;
    const real            sum = loops->sums(C, &f, dw, db, &with_n);
    const bool            layer = ((const dra_norm_attr *)c->attr)->kind == DRA_ROW_NORM_LAYER;
    if (f.dx) loops->back(C, &f, layer ? sum / (real)C : 0, with_n / (real)C);
}

static void back_tile(const dra_call *c, int64_t i)
{
    const int64_t C = dra_last(&c->in[X]), tiles = row_tiles(c), rows = rows_a_tile(c);
    real         *scratch = c->scratch; /* for each tile: dw, db */
    if (c->stage == 0) {
        real *dw = scratch + 2 * i * C, *db = dw + C;
        memset(dw, 0, 2 * (size_t)C * sizeof *dw);
        for (int64_t row = i * rows; row < dra_imin(dra_rows(&c->in[X]), (i + 1) * rows); row++)
            back_row(c, row, dw, db);
        return;
    }
    for (int k = 0; k < 2; k++) {
        real *sum = c->out[1 + k].data;
        if (!sum) continue;
        memset(sum, 0, (size_t)C * sizeof *sum);
        for (int64_t t = 0; t < tiles; t++)
            dra_simd_of(c)->add(C, sum, scratch + (2 * t + k) * C, sum);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

extern const dra_op dra_op_norm_gain_back;

static void derive_norm_gain(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_value in[] = {n->in[0], n->in[1], n->out[1], n->out[2], dy[0]};
    if (!dy[0].id) return;
    const dra_node *back = dra_node_add(g, &dra_op_norm_gain_back, 5, in, n->attr);
    for (int i = 0; back && i < n->n_in; i++) dx[i] = back->out[i];
}

/* Builds the same gradients from small ops and differentiates those; r and mean are computed
 * from x. */
static void back_gradient(dra_graph *g, const dra_node *n, const dra_value *u, dra_value *dx)
{
    const size_t    first = dra_node_count(g);
    const dra_value in[] = {dra_copy(g, n->in[X]), dra_copy(g, n->in[W]), dra_copy(g, n->in[DY])};
    const dra_value y = dra_mul(g, dra_norm(g, n->attr, in[0]), in[1]);
    dra_value       d[3], live[3], up[3], second[3];
    int             n_live = 0;
    dra_gradient_since(g, first, 1, &y, &in[2], 2, in, d);
    d[2] = dra_unbroadcast(g, in[2], dra_shape_of(g, n->in[W]));
    for (int i = 0; i < 3; i++)
        if (u[i].id) live[n_live] = d[i], up[n_live++] = u[i];
    dra_gradient_since(g, first, n_live, live, up, 3, in, second);
    dx[X] = second[0], dx[W] = second[1], dx[DY] = second[2];
}

static dra_cost cost_norm_gain(const dra_call *c)
{
    dra_cost k = dra_pointwise_cost(c); /* for its bytes */
    k.flops *= c->n_in == 5 ? 10 : 8;
    return k;
}

const dra_norm_loops *dra_norm_loops_of(const dra_simd *simd)
{
    static const dra_norm_loops *const by_level[] = DRA_BY_LEVEL(dra_norm_loops);
    return by_level[simd->level];
}

const dra_op dra_op_norm_gain = {.name = "norm_gain",
                                 .n_in = DRA_MANY,
                                 .n_out = 3,
                                 .flags = DRA_OP_CHEAP,
                                 .attr_size = sizeof(dra_norm_attr),
                                 .infer = infer_norm_gain,
                                 .gradient = derive_norm_gain,
                                 .cost = cost_norm_gain};

const dra_cpu_kernel dra_cpu_norm_gain = {
    .base = {.op = "norm_gain", .dtypes = DRA_REALS, .layout = DRA_LAYOUT_ROWS},
    .tiles = dra_row_tiles,
    .tile = run_norm_gain_tile,
};

const dra_op dra_op_norm_gain_back = {.name = "norm_gain_back",
                                      .n_in = 5,
                                      .n_out = 3,
                                      .attr_size = sizeof(dra_norm_attr),
                                      .infer = back_infer,
                                      .gradient = back_gradient,
                                      .cost = cost_norm_gain};

const dra_cpu_kernel dra_cpu_norm_gain_back = {
    .base = {.op = "norm_gain_back",
             .dtypes = DRA_REALS,
             .layout = DRA_LAYOUT_ROWS,
             .in_place = 1u << DY,
             .scratch = back_scratch},
    .tiles = back_tiles,
    .tile = back_tile,
    .stages = back_stages,
};

dra_value dra_norm_gain(dra_graph *g, const dra_norm_attr *a, dra_value x, dra_value w, dra_value b)
{
    const dra_value in[] = {x, w, b};
    return dra_add_op(g, &dra_op_norm_gain, b.id ? 3 : 2, in, a);
}
