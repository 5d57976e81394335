/* ema: running means on M timescales, for every channel on its own. With r = 1 - g = sigmoid(-beta)
 *   m_t = m_{t-1} + r (x_t - m_{t-1}),   y_t = sum_i w_i m_{t,i}, or every m
 * A reset before t takes 0 for m_{t-1}; a pad has m_t = m_{t-1}.
 *
 * Gradient, t = T-1..0, from dm = dlast:
 *   dm += w dy_t,  dw += dy_t m_t,  dr += dm (x_t - m_{t-1}),  dx_t = sum_i r dm,  dm -= r dm
 * and dm = dstart at the end. A pad has only the first two; a reset ends with dm = 0. */
#include "ops/recurrent/ema_loops.h"
#include "ops/recurrent/recur.h"

enum { BLOCK = DRA_RECUR_BLOCK };

static const int32_t *mark_of(const dra_call *c, const dra_recur_tile *at, int64_t t)
{
    const dra_ema_attr *a = c->attr;
    return dra_recur_marks(a->marked ? &c->in[c->n_in - 1] : NULL, at, t);
}

/* Row `i` of something (M, N), at the tile's channels. */
static real *scale_row(const dra_tensor *x, const dra_recur_tile *at, int64_t i)
{
    return dra_recur_at(x, i, at->first, 0);
}

/* y_t, or m_{t,i} where y holds every m. */
static real *y_row(const dra_call *c, const dra_tensor *y, const dra_recur_tile *at, int64_t t,
                   int64_t i)
{
    const dra_ema_attr *a = c->attr;
    return a->weighted ? dra_recur_at(y, at->b, t, at->first)
                       : dra_recur_at(y, at->b, t, i) + at->first;
}

static int64_t count_scales(const dra_call *c) { return c->in[1].shape.dim[0]; }

const dra_ema_loops *dra_ema_loops_of(const dra_simd *simd)
{
    static const dra_ema_loops *const by_level[] = DRA_BY_LEVEL(dra_ema_loops);
    return by_level[simd->level];
}

/* ---- forward: (x, r, start[, w][, mark]) -> y, last, the states before each run -------------- */

enum { X, RATE, START, W };
enum { Y, LAST, BORDERS };

static dra_status infer_ema(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_ema_attr *a = n->attr;
    const int64_t      *x = dra_type_of(g, n->in[X])->shape.dim;
    const int64_t       B = x[0], T = x[1], M = dra_type_of(g, n->in[RATE])->shape.dim[0], N = x[2];
    out[Y] = (dra_type){DRA_REAL, a->weighted ? DRA_SHAPE(B, T, N) : DRA_SHAPE(B, T, M, N)};
    out[LAST] = (dra_type){DRA_REAL, DRA_SHAPE(B, M, N)};
    out[BORDERS] = (dra_type){DRA_REAL, DRA_SHAPE(B, dra_recur_runs(T), M, N)};
    return DRA_OK;
}

static size_t size_ema_scratch(const dra_call *c)
{
    return (size_t)(dra_recur_tiles(c) * count_scales(c) * BLOCK) * sizeof(real);
}

/* Tokens t..t+T-1 on timescale i, m its state. */
static void run_ema_tokens(const dra_call *c, const dra_recur_tile *at, int64_t t, int64_t T,
                           int64_t i, real *m)
{
    const dra_ema_attr *a = c->attr;
    dra_ema_loops_of(dra_simd_of(c))
        ->forward(&(dra_ema_run){
            .n = at->n,
            .T = T,
            .x_row = c->in[X].stride[1],
            .y_row = c->out[Y].stride[1],
            .mark = mark_of(c, at, t),
            .x = dra_recur_at(&c->in[X], at->b, t, at->first),
            .r = scale_row(&c->in[RATE], at, i),
            .w = a->weighted ? scale_row(&c->in[W], at, i) : NULL,
            .m = m,
            .y = c->out[Y].data ? y_row(c, &c->out[Y], at, t, i) : NULL,
            .add = a->weighted && i > 0,
        });
}

static void run_ema_tile(const dra_call *c, int64_t number)
{
    const dra_recur_tile at = dra_recur_tile_at(c, number);
    const dra_tensor    *borders = &c->out[BORDERS];
    const int64_t        T = c->in[X].shape.dim[1], M = count_scales(c);
    real                *m = (real *)c->scratch + number * M * BLOCK;
    for (int64_t i = 0; i < M; i++)
        dra_recur_copy(at.n, dra_recur_at(&c->in[START], at.b, i, at.first), m + i * BLOCK);
    for (int64_t t = 0; t < T; t += DRA_RUN)
        for (int64_t i = 0; i < M; i++) {
            if (borders->data)
                dra_recur_copy(at.n, m + i * BLOCK,
                               dra_recur_at(borders, at.b, t / DRA_RUN, i) + at.first);
            run_ema_tokens(c, &at, t, dra_imin(DRA_RUN, T - t), i, m + i * BLOCK);
        }
    for (int64_t i = 0; i < M && c->out[LAST].data; i++)
        dra_recur_copy(at.n, m + i * BLOCK, dra_recur_at(&c->out[LAST], at.b, i, at.first));
}

/* ---- backward: (x, r, borders, dy, dlast[, w][, mark]) -> dx, dr, dw, dstart ----------------- */

enum { BACK_BORDERS = 2, DY, DLAST, BACK_W };
enum { DX, DRATE, DW, DSTART };

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    out[DX] = *dra_type_of(g, n->in[X]);
    out[DRATE] = out[DW] = *dra_type_of(g, n->in[RATE]);
    out[DSTART] = *dra_type_of(g, n->in[DLAST]);
    return DRA_OK;
}

/* Scratch: dm, dr and dw of each row of the batch, (B, M, N) each. */
static int64_t part_size(const dra_call *c)
{
    const int64_t *dim = c->in[DLAST].shape.dim;
    return dim[0] * dim[1] * dim[2];
}

static real *find_part(const dra_call *c, int k, const dra_recur_tile *at, int64_t i)
{
    const int64_t *dim = c->in[DLAST].shape.dim;
    return (real *)c->scratch + k * part_size(c) + (at->b * dim[1] + i) * dim[2] + at->first;
}

static size_t back_scratch(const dra_call *c) { return (size_t)(3 * part_size(c)) * sizeof(real); }

static int64_t back_stages(const dra_call *c) { return 2; }

static int64_t back_tiles(const dra_call *c) { return c->stage == 0 ? dra_recur_tiles(c) : 1; }

/* Run number `run` on timescale i. */
static void back_run(const dra_call *c, const dra_recur_tile *at, int64_t run, int64_t i)
{
    const dra_ema_attr *a = c->attr;
    const int64_t       t = run * DRA_RUN;
    dra_ema_loops_of(dra_simd_of(c))
        ->back(&(dra_ema_back_run){
            .n = at->n,
            .T = dra_imin(DRA_RUN, c->in[X].shape.dim[1] - t),
            .x_row = c->in[X].stride[1],
            .dy_row = c->in[DY].stride[1],
            .dx_row = c->out[DX].stride[1],
            .mark = mark_of(c, at, t),
            .x = dra_recur_at(&c->in[X], at->b, t, at->first),
            .r = scale_row(&c->in[RATE], at, i),
            .w = a->weighted ? scale_row(&c->in[BACK_W], at, i) : NULL,
            .m = dra_recur_at(&c->in[BACK_BORDERS], at->b, run, i) + at->first,
            .dy = y_row(c, &c->in[DY], at, t, i),
            .dm = find_part(c, 0, at, i),
            .dr = find_part(c, 1, at, i),
            .dw = find_part(c, 2, at, i),
            .dx = c->out[DX].data ? dra_recur_at(&c->out[DX], at->b, t, at->first) : NULL,
            .add = i > 0,
        });
}

/* The rows of the batch are added up in their order. */
static void back_sum(const dra_call *c)
{
    const int64_t B = c->in[X].shape.dim[0], n = count_scales(c) * c->in[X].shape.dim[2];
    const real   *parts = c->scratch;
    dra_recur_sum(c, B, n, parts + part_size(c), c->out[DRATE].data);
    dra_recur_sum(c, B, n, parts + 2 * part_size(c), c->out[DW].data);
}

static void back_row(const dra_call *c, int64_t number)
{
    const dra_recur_tile at = dra_recur_tile_at(c, number);
    const int64_t        M = count_scales(c);
    for (int64_t i = 0; i < M; i++) {
        dra_recur_copy(at.n, dra_recur_at(&c->in[DLAST], at.b, i, at.first),
                       find_part(c, 0, &at, i));
        for (int k = 1; k < 3; k++) dra_recur_clear(at.n, find_part(c, k, &at, i));
    }
    for (int64_t k = dra_recur_runs(c->in[X].shape.dim[1]) - 1; k >= 0; k--)
        for (int64_t i = 0; i < M; i++) back_run(c, &at, k, i);
    for (int64_t i = 0; i < M && c->out[DSTART].data; i++)
        dra_recur_copy(at.n, find_part(c, 0, &at, i),
                       dra_recur_at(&c->out[DSTART], at.b, i, at.first));
}

static void back_tile(const dra_call *c, int64_t number)
{
    if (c->stage == 0)
        back_row(c, number);
    else
        back_sum(c);
}

/* ---- the ops --------------------------------------------------------------------------------- */

extern const dra_op dra_op_ema, dra_op_ema_back;

static void derive_ema(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_ema_attr *a = n->attr;
    dra_value           in[7] = {n->in[X], n->in[RATE], n->out[BORDERS]};
    in[DY] = dra_recur_upstream(g, dy[Y], n->out[Y]);
    in[DLAST] = dra_recur_upstream(g, dy[LAST], n->out[LAST]);
    for (int i = W; i < n->n_in; i++) in[BACK_W + i - W] = n->in[i];
    const dra_node *back = dra_node_add(g, &dra_op_ema_back, BACK_W + n->n_in - W, in, a);
    if (!back) return;
    dx[X] = back->out[DX], dx[RATE] = back->out[DRATE], dx[START] = back->out[DSTART];
    if (a->weighted) dx[W] = back->out[DW];
}

/* For each token and timescale: an update and a product; backward the update again and six more. */
static dra_cost cost_ema(const dra_call *c)
{
    const double steps = (double)dra_rows(&c->in[X]) *
                         (double)(dra_last(&c->in[X]) * count_scales(c));
    return (dra_cost){steps * (c->n_out == 3 ? 5 : 15), dra_call_bytes(c)};
}

const dra_op dra_op_ema = {.name = "ema",
                           .n_in = DRA_MANY,
                           .n_out = 3,
                           .attr_size = sizeof(dra_ema_attr),
                           .infer = infer_ema,
                           .gradient = derive_ema,
                           .cost = cost_ema};

const dra_cpu_kernel dra_cpu_ema = {
    .base = {.op = "ema",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = size_ema_scratch},
    .tiles = dra_recur_tiles,
    .tile = run_ema_tile,
};

const dra_op dra_op_ema_back = {.name = "ema_back",
                                .n_in = DRA_MANY,
                                .n_out = 4,
                                .attr_size = sizeof(dra_ema_attr),
                                .infer = back_infer,
                                .cost = cost_ema};

const dra_cpu_kernel dra_cpu_ema_back = {
    .base = {.op = "ema_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = back_scratch},
    .tiles = back_tiles,
    .tile = back_tile,
    .stages = back_stages,
};

static bool check_ema(dra_graph *g, dra_value x, dra_value beta, dra_value w, dra_value start,
                      dra_value mark)
{
    const dra_type *tx = dra_type_of(g, x), *tb = dra_type_of(g, beta);
    const int64_t   B = tx->shape.dim[0], T = tx->shape.dim[1], N = tx->shape.dim[2];
    const int64_t   M = tb->shape.dim[0];
    if (tx->shape.rank != 3 || tb->shape.rank != 2 || M == 0) {
        dra_build_fail(g, "ema", DRA_ERR_SHAPE,
                       "x is %s, beta %s, expected (B, T, N) and (M, N), M > 0",
                       dra_type_text(g, x), dra_type_text(g, beta));
        return false;
    }
    return dra_recur_expect(g, "ema", "x", x, DRA_REAL, tx->shape) &&
           dra_recur_expect(g, "ema", "beta", beta, DRA_REAL, DRA_SHAPE(M, N)) &&
           (!w.id || dra_recur_expect(g, "ema", "w", w, DRA_REAL, DRA_SHAPE(M, N))) &&
           (!start.id ||
            dra_recur_expect(g, "ema", "start", start, DRA_REAL, DRA_SHAPE(B, M, N))) &&
           (!mark.id || dra_recur_expect(g, "ema", "mark", mark, DRA_I32, DRA_SHAPE(B, T)));
}

dra_value dra_ema(dra_graph *g, dra_value x, dra_value beta, dra_value w, dra_value start,
                  dra_value mark, dra_value *last)
{
    const dra_ema_attr a = {w.id != 0, mark.id != 0};
    const dra_value    options[] = {start, w, mark};
    dra_value          in[5] = {x, beta};
    int                n = 2;
    if (last) *last = (dra_value){0};
    for (int i = 0; i < 3; i++)
        if (options[i].id) in[n++] = options[i];
    if (!dra_check_values(g, "ema", n, in) || !check_ema(g, x, beta, w, start, mark))
        return (dra_value){0};
    const dra_shape *sx = &dra_type_of(g, x)->shape, *sb = &dra_type_of(g, beta)->shape;
    if (!start.id) start = dra_zeros(g, DRA_SHAPE(sx->dim[0], sb->dim[0], sx->dim[2]));
    in[RATE] = dra_sigmoid(g, dra_neg(g, beta)); /* 1 - g without a subtraction */
    in[START] = start, n = W;
    if (w.id) in[n++] = w;
    if (mark.id) in[n++] = mark;
    const dra_node *ema = dra_node_add(g, &dra_op_ema, n, in, &a);
    if (ema && last) *last = ema->out[LAST];
    return ema ? ema->out[Y] : (dra_value){0};
}
