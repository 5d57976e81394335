/* conv: a causal convolution of every channel on its own, over the last W inputs of its sequence.
 *   y_t = bias + sum_j w_j x_(t - W + 1 + j),   j = 0..W-1 in this order, w_(W-1) that of x_t
 * The state is the last W - 1 inputs, oldest first, zeros before the text. A reset before t makes
 * them zeros; a pad is no input: y_t = 0, and the state stays.
 *
 * Gradient, t = T-1..0, from dh = dlast of the state after t:
 *   dx_t = dh_(W-2) + w_(W-1) dy_t,   dh_j = dh_(j-1) + w_j dy_t (dh_-1 = 0)
 * and dh = dstart at the end; a reset makes it 0. dw_(W-1-k) is the sum over all inputs of x_t
 * times dy of the k-th token after it, which the same walk has in a window of its own. Inputs of
 * `start` are such tokens, too, with dy = 0. So nothing has to be kept but x. */
#include "ops/recurrent/conv_loops.h"
#include "ops/recurrent/recur.h"

enum { BLOCK = DRA_RECUR_BLOCK };

const dra_conv_loops *dra_conv_loops_of(const dra_simd *simd)
{
    static const dra_conv_loops *const by_level[] = DRA_BY_LEVEL(dra_conv_loops);
    return by_level[simd->level];
}

static const int32_t *mark_of(const dra_call *c, const dra_recur_tile *at, int64_t t)
{
    const dra_conv_attr *a = c->attr;
    return dra_recur_marks(a->marked ? &c->in[c->n_in - 1] : NULL, at, t);
}

static int64_t count_taps(const dra_call *c) { return c->in[1].shape.dim[0]; }

/* Row j of something (B, rows, N), or of (rows, N) with b = 0, at the tile's channels. */
static real *window_row(const dra_tensor *x, const dra_recur_tile *at, int64_t j)
{
    return dra_recur_at(x, at->b, j, at->first);
}

static real *taps_at(const dra_tensor *w, const dra_recur_tile *at)
{
    return dra_recur_at(w, 0, at->first, 0);
}

/* ---- forward: (x, w, start[, bias][, mark]) -> y, last --------------------------------------- */

enum { X, W, START, BIAS };
enum { Y, LAST };

static dra_status infer_conv(dra_graph *g, const dra_node *n, dra_type *out)
{
    out[Y] = *dra_type_of(g, n->in[X]);
    out[LAST] = *dra_type_of(g, n->in[START]);
    return DRA_OK;
}

/* Windows of a tile, whose rows are a block wide: backward there are two. */
enum { WINDOW = DRA_CONV_TAPS * BLOCK };

static size_t size_window(const dra_call *c)
{
    return (size_t)(dra_recur_tiles(c) * WINDOW) * sizeof(real);
}

static real *find_window(const dra_call *c, int64_t number)
{
    return (real *)c->scratch + number * WINDOW;
}

static real *open_window(const dra_call *c, const dra_tensor *start, const dra_recur_tile *at,
                         int64_t number)
{
    real *h = find_window(c, number);
    for (int64_t j = 0; j + 1 < count_taps(c); j++)
        dra_recur_copy(at->n, window_row(start, at, j), h + j * BLOCK);
    return h;
}

static void close_window(const dra_call *c, const dra_tensor *last, const dra_recur_tile *at,
                         const real *h)
{
    for (int64_t j = 0; j + 1 < count_taps(c) && last->data; j++)
        dra_recur_copy(at->n, h + j * BLOCK, window_row(last, at, j));
}

static void run_conv_tile(const dra_call *c, int64_t number)
{
    const dra_conv_attr *a = c->attr;
    const dra_recur_tile at = dra_recur_tile_at(c, number);
    const dra_tensor    *x = &c->in[X], *y = &c->out[Y];
    const int64_t        T = x->shape.dim[1];
    real                *h = open_window(c, &c->in[START], &at, number);
    for (int64_t t = 0; t < T; t += DRA_RUN)
        dra_conv_loops_of(dra_simd_of(c))
            ->forward(&(dra_conv_run){
                .n = at.n,
                .T = dra_imin(DRA_RUN, T - t),
                .W = count_taps(c),
                .x_row = x->stride[1],
                .y_row = y->stride[1],
                .w_row = c->in[W].stride[0],
                .h_row = BLOCK,
                .mark = mark_of(c, &at, t),
                .x = dra_recur_at(x, at.b, t, at.first),
                .w = taps_at(&c->in[W], &at),
                .bias = a->biased ? (const real *)c->in[BIAS].data + at.first : NULL,
                .h = h,
                .y = y->data ? dra_recur_at(y, at.b, t, at.first) : NULL,
            });
    close_window(c, &c->out[LAST], &at, h);
}

/* ---- backward: (x, w, start, dy, dlast[, mark]) -> dx, dw, dbias, dstart --------------------- */

enum { DY = 3, DLAST };
enum { DX, DW, DBIAS, DSTART };

static dra_status infer_back(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *x = dra_type_of(g, n->in[X]);
    out[DX] = *x;
    out[DW] = *dra_type_of(g, n->in[W]);
    out[DBIAS] = (dra_type){DRA_REAL, DRA_SHAPE(x->shape.dim[2])};
    out[DSTART] = *dra_type_of(g, n->in[START]);
    return DRA_OK;
}

/* After the windows, two for each tile, dw and dbias of each row of the batch: (B, W + 1, N). */
static int64_t size_part(const dra_call *c) { return (count_taps(c) + 1) * dra_last(&c->in[X]); }

static real *parts_of(const dra_call *c)
{
    return (real *)c->scratch + 2 * dra_recur_tiles(c) * WINDOW;
}

static size_t size_back_scratch(const dra_call *c)
{
    return 2 * size_window(c) + (size_t)(c->in[X].shape.dim[0] * size_part(c)) * sizeof(real);
}

static int64_t count_back_stages(const dra_call *c) { return 2; }

static int64_t count_back_tiles(const dra_call *c)
{
    return c->stage == 0 ? dra_recur_tiles(c) : 1;
}

/* The parts of a run of a tile's row that do not depend on the run. */
static dra_conv_back_run open_back(const dra_call *c, const dra_recur_tile *at, int64_t number)
{
    const int64_t     tiles = dra_recur_tiles(c), N = dra_last(&c->in[X]), taps = count_taps(c);
    dra_conv_back_run run = {
        .n = at->n,
        .W = taps,
        .x_row = c->in[X].stride[1],
        .dy_row = c->in[DY].stride[1],
        .dx_row = c->out[DX].stride[1],
        .w_row = c->in[W].stride[0],
        .h_row = BLOCK,
        .w = taps_at(&c->in[W], at),
        .dh = open_window(c, &c->in[DLAST], at, number),
        .dy_next = find_window(c, tiles + number),
        .dw = parts_of(c) + at->b * size_part(c) + at->first,
        .dw_row = N,
    };
    run.db = run.dw + taps * N;
    for (int64_t j = 0; j + 1 < taps; j++) dra_recur_clear(at->n, run.dy_next + j * BLOCK);
    for (int64_t j = 0; j <= taps; j++) dra_recur_clear(at->n, run.dw + j * N);
    return run;
}

/* Whether a token has seen inputs before the first one. After a reset none has: then these may be
 * anything, even NaN. */
static bool sees_start(const dra_conv_back_run *run)
{
    for (int64_t j = 0; j + 1 < run->W; j++)
        for (int64_t i = 0; i < run->n; i++)
            if (run->dy_next[j * run->h_row + i] != 0) return true;
    return false;
}

static void walk_start(const dra_call *c, const dra_recur_tile *at, dra_conv_back_run *run)
{
    if (!sees_start(run)) return;
    run->T = run->W - 1;
    run->mark = NULL;
    run->x = window_row(&c->in[START], at, 0);
    run->x_row = c->in[START].stride[1];
    run->dy = NULL;
    run->dx = NULL;
    dra_conv_loops_of(dra_simd_of(c))->back(run);
}

static void walk_back(const dra_call *c, int64_t number)
{
    const dra_recur_tile at = dra_recur_tile_at(c, number);
    const dra_tensor    *dx = &c->out[DX];
    const int64_t        T = c->in[X].shape.dim[1];
    dra_conv_back_run    run = open_back(c, &at, number);
    for (int64_t k = dra_recur_runs(T) - 1; k >= 0; k--) {
        const int64_t t = k * DRA_RUN;
        run.T = dra_imin(DRA_RUN, T - t);
        run.mark = mark_of(c, &at, t);
        run.x = dra_recur_at(&c->in[X], at.b, t, at.first);
        run.dy = dra_recur_at(&c->in[DY], at.b, t, at.first);
        run.dx = dx->data ? dra_recur_at(dx, at.b, t, at.first) : NULL;
        dra_conv_loops_of(dra_simd_of(c))->back(&run);
    }
    close_window(c, &c->out[DSTART], &at, run.dh);
    walk_start(c, &at, &run);
}

/* The rows of the batch are added up in their order. */
static void sum_part(const dra_call *c, const real *part, int64_t n, real *out)
{
    if (!out) return;
    dra_recur_clear(n, out);
    for (int64_t b = 0; b < c->in[X].shape.dim[0]; b++)
        dra_simd_of(c)->add(n, out, part + b * size_part(c), out);
}

static void run_back_tile(const dra_call *c, int64_t number)
{
    const int64_t taps = count_taps(c) * dra_last(&c->in[X]);
    if (c->stage == 0) {
        walk_back(c, number);
        return;
    }
    sum_part(c, parts_of(c), taps, c->out[DW].data);
    sum_part(c, parts_of(c) + taps, dra_last(&c->in[X]), c->out[DBIAS].data);
}

/* ---- the ops --------------------------------------------------------------------------------- */

extern const dra_op dra_op_conv, dra_op_conv_back;

static void derive_conv(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_conv_attr *a = n->attr;
    const int            mark = BIAS + a->biased;
    dra_value            in[6] = {n->in[X], n->in[W], n->in[START]};
    in[DY] = dra_recur_upstream(g, dy[Y], n->out[Y]);
    in[DLAST] = dra_recur_upstream(g, dy[LAST], n->out[LAST]);
    if (a->marked) in[DLAST + 1] = n->in[mark];
    const dra_node *back = dra_node_add(g, &dra_op_conv_back, DLAST + 1 + a->marked, in, a);
    if (!back) return;
    dx[X] = back->out[DX], dx[W] = back->out[DW], dx[START] = back->out[DSTART];
    if (a->biased) dx[BIAS] = back->out[DBIAS];
}

/* A product and a sum for each tap; backward twice as many. */
static dra_cost cost_conv(const dra_call *c)
{
    const double taps = (double)dra_rows(&c->in[X]) * (double)(dra_last(&c->in[X]) * count_taps(c));
    return (dra_cost){taps * (c->n_out == 2 ? 2 : 4), dra_call_bytes(c)};
}

const dra_op dra_op_conv = {.name = "conv",
                            .n_in = DRA_MANY,
                            .n_out = 2,
                            .attr_size = sizeof(dra_conv_attr),
                            .infer = infer_conv,
                            .gradient = derive_conv,
                            .cost = cost_conv};

const dra_cpu_kernel dra_cpu_conv = {
    .base = {.op = "conv",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = size_window},
    .tiles = dra_recur_tiles,
    .tile = run_conv_tile,
};

const dra_op dra_op_conv_back = {.name = "conv_back",
                                 .n_in = DRA_MANY,
                                 .n_out = 4,
                                 .attr_size = sizeof(dra_conv_attr),
                                 .infer = infer_back,
                                 .cost = cost_conv};

const dra_cpu_kernel dra_cpu_conv_back = {
    .base = {.op = "conv_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = size_back_scratch},
    .tiles = count_back_tiles,
    .tile = run_back_tile,
    .stages = count_back_stages,
};

static bool check_conv(dra_graph *g, dra_value x, dra_value w, dra_value bias, dra_value start,
                       dra_value mark)
{
    const dra_type *tx = dra_type_of(g, x), *tw = dra_type_of(g, w);
    const int64_t   B = tx->shape.dim[0], T = tx->shape.dim[1], N = tx->shape.dim[2];
    const int64_t   taps = tw->shape.dim[1];
    if (tx->shape.rank != 3 || tw->shape.rank != 2 || taps < 1 || taps > DRA_CONV_TAPS) {
        dra_build_fail(g, "conv", DRA_ERR_SHAPE,
                       "x is %s, w %s, expected (B, T, N) and (N, W), W from 1 to %d",
                       dra_type_text(g, x), dra_type_text(g, w), DRA_CONV_TAPS);
        return false;
    }
    return dra_recur_expect(g, "conv", "x", x, DRA_REAL, tx->shape) &&
           dra_recur_expect(g, "conv", "w", w, DRA_REAL, DRA_SHAPE(N, taps)) &&
           (!bias.id || dra_recur_expect(g, "conv", "bias", bias, DRA_REAL, DRA_SHAPE(N))) &&
           (!start.id ||
            dra_recur_expect(g, "conv", "start", start, DRA_REAL, DRA_SHAPE(B, taps - 1, N))) &&
           (!mark.id || dra_recur_expect(g, "conv", "mark", mark, DRA_I32, DRA_SHAPE(B, T)));
}

dra_value dra_conv(dra_graph *g, dra_value x, dra_value w, dra_value bias, dra_value start,
                   dra_value mark, dra_value *last)
{
    const dra_conv_attr a = {bias.id != 0, mark.id != 0};
    const dra_value     options[] = {start, bias, mark};
    dra_value           in[5] = {x, w};
    int                 n = 2;
    if (last) *last = (dra_value){0};
    for (int i = 0; i < 3; i++)
        if (options[i].id) in[n++] = options[i];
    if (!dra_check_values(g, "conv", n, in) || !check_conv(g, x, w, bias, start, mark))
        return (dra_value){0};
    const dra_shape *sx = &dra_type_of(g, x)->shape;
    const int64_t    taps = dra_type_of(g, w)->shape.dim[1];
    if (!start.id) start = dra_zeros(g, DRA_SHAPE(sx->dim[0], taps - 1, sx->dim[2]));
    in[W] = dra_transpose(g, w, 0, 1); /* a row of every tap, in the order of channels */
    in[START] = start, n = BIAS;
    if (bias.id) in[n++] = bias;
    if (mark.id) in[n++] = mark;
    const dra_node *conv = dra_node_add(g, &dra_op_conv, n, in, &a);
    if (conv && last) *last = conv->out[LAST];
    return conv ? conv->out[Y] : (dra_value){0};
}
