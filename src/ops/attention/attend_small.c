/* Attention over few keys, every query by itself, as slots are read:
 *   s_j = scale q.k_j,   p = softmax(s),   y = sum_j p_j v_j,   lse = ln sum_j e^(s_j)
 * One query and a handful of keys are too little for the blocks of attend_tile.c, which spend their
 * time on packing. Here a product is a dot or a row added to another, and nothing is packed.
 *
 * Gradient, with p from the stored lse and delta as in attend_back.c:
 *   ds_j = p_j (dy.v_j - delta),   dq = scale sum_j ds_j k_j
 *   dk_j = scale sum ds_j q,   dv_j = sum p_j dy       over the queries that read key j, in order
 * A tile takes all heads of some rows of the batch, so every output has one writer. */
#include "ops/attention/attend.h"

enum { WORK = 16384 }; /* numbers in the keys and values of a tile */

typedef struct few {
    dra_attend_sizes n;
    real             scale;
    real            *p, *ds; /* (J) each */
} few;

static int64_t rows_a_tile(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return dra_imax(1, WORK / dra_imax(1, n.K * n.J * (n.D + n.E)));
}

static int64_t count_attend_small_tiles(const dra_call *c)
{
    return dra_div_up(c->in[0].shape.dim[0], rows_a_tile(c));
}

static size_t size_attend_small_scratch(const dra_call *c)
{
    return (size_t)(count_attend_small_tiles(c) * 2 * dra_attend_sizes_of(c).J) * sizeof(real);
}

typedef struct query {
    int64_t b, h, t, kv;
    bool    first; /* of those that read its keys */
} query;

static query query_at(const dra_call *c, const dra_attend_sizes *n, int64_t b, int64_t h, int64_t t)
{
    const int64_t group = n->H / n->K;
    if (((const dra_attend_attr *)c->attr)->heads == DRA_HEADS_MOD)
        return (query){b, h, t, h % n->K, h < n->K && t == 0};
    return (query){b, h, t, h / group, h % group == 0 && t == 0};
}

/* Calls `take` for every query of a tile, in order. */
static void each_query(const dra_call *c, int64_t tile,
                       void (*take)(const dra_call *c, const few *f, query at))
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          rows = rows_a_tile(c), end = dra_imin(n.B, (tile + 1) * rows);
    real                  *own = (real *)c->scratch + tile * 2 * n.J;
    const few              f = {n, (real)((const dra_attend_attr *)c->attr)->scale, own, own + n.J};
    for (int64_t b = tile * rows; b < end; b++)
        for (int64_t h = 0; h < n.H; h++)
            for (int64_t t = 0; t < n.T; t++) take(c, &f, query_at(c, &n, b, h, t));
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Row (b, h, t); NULL of an output nobody reads. */
static real *row_of(const dra_tensor *x, int64_t b, int64_t h, int64_t t)
{
    real *data = x->data;
    return data ? data + b * x->stride[0] + h * x->stride[1] + t * x->stride[2] : NULL;
}

static real *own_row(const dra_tensor *x, query at) { return row_of(x, at.b, at.h, at.t); }

/* y (W) = a x, or += where it is not the first. */
static void put_row(const dra_call *c, bool first, int64_t W, real a, const real *x, real *y)
{
    if (first)
        dra_simd_of(c)->affine(W, a, 0, x, y);
    else
        dra_simd_of(c)->axpy(W, a, x, y);
}

/* y (W) = the sum of the query's rows of x (B, K, J, W), p_j of each. */
static void mix_rows(const dra_call *c, const dra_tensor *x, query at, const real *p, real *y)
{
    const real *from = row_of(x, at.b, at.kv, 0);
    for (int64_t j = 0; j < x->shape.dim[2]; j++)
        put_row(c, j == 0, x->shape.dim[3], p[j], from + j * x->stride[2], y);
}

/* s_j = scale x.(row j of y), y (B, K, J, W) */
static void dot_rows(const dra_call *c, const real *x, const dra_tensor *y, query at, real scale,
                     real *s)
{
    const real *row = row_of(y, at.b, at.kv, 0);
    for (int64_t j = 0; j < y->shape.dim[2]; j++)
        s[j] = scale * dra_simd_of(c)->dot(y->shape.dim[3], x, row + j * y->stride[2]);
}

/* ---- forward: (q, k, v) -> y, lse ------------------------------------------------------------ */

enum { Q, K, V };

static dra_status infer_attend_small(dra_graph *g, const dra_node *n, dra_type *out)
{
    const int64_t *q = dra_type_of(g, n->in[Q])->shape.dim;
    out[0] = (dra_type){DRA_REAL,
                        DRA_SHAPE(q[0], q[1], q[2], dra_type_of(g, n->in[V])->shape.dim[3])};
    out[1] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[1], q[2])};
    return DRA_OK;
}

static void read_keys(const dra_call *c, const few *f, query at)
{
    real *y = own_row(&c->out[0], at), *lse = own_row(&c->out[1], at);
    dot_rows(c, own_row(&c->in[Q], at), &c->in[K], at, f->scale, f->p);
    dra_simd_of(c)->softmax_rows(1, f->n.J, f->p, f->p, lse);
    if (y) mix_rows(c, &c->in[V], at, f->p, y);
}

static void run_attend_small_tile(const dra_call *c, int64_t i) { each_query(c, i, read_keys); }

/* ---- backward: (q, k, v, dy, lse, delta) -> dq, dk, dv --------------------------------------- */

enum { DY = V + 1, LSE, DELTA };
enum { DQ, DK, DV };

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    for (int i = DQ; i <= DV; i++) out[i] = *dra_type_of(g, n->in[i]);
    return DRA_OK;
}

/* out_j = w_j x for all keys of the query, or +=. */
static void spread_row(const dra_call *c, const dra_tensor *out, query at, const real *w,
                       const real *x)
{
    real *row = row_of(out, at.b, at.kv, 0);
    for (int64_t j = 0; row && j < out->shape.dim[2]; j++)
        put_row(c, at.first, out->shape.dim[3], w[j], x, row + j * out->stride[2]);
}

static void go_back(const dra_call *c, const few *f, query at)
{
    const real *q = own_row(&c->in[Q], at), *dy = own_row(&c->in[DY], at);
    const real  delta = *own_row(&c->in[DELTA], at);
    real       *dq = own_row(&c->out[DQ], at);
    dot_rows(c, q, &c->in[K], at, f->scale, f->p);
    dra_simd_of(c)->exp_sum(f->n.J, f->p, *own_row(&c->in[LSE], at), f->p);
    dot_rows(c, dy, &c->in[V], at, 1, f->ds);
    for (int64_t j = 0; j < f->n.J; j++) f->ds[j] = f->scale * (f->p[j] * (f->ds[j] - delta));
    if (dq) mix_rows(c, &c->in[K], at, f->ds, dq);
    spread_row(c, &c->out[DK], at, f->ds, q);
    spread_row(c, &c->out[DV], at, f->p, dy);
}

static void back_tile(const dra_call *c, int64_t i) { each_query(c, i, go_back); }

/* ---- the ops --------------------------------------------------------------------------------- */

extern const dra_op dra_op_attend_small_back;

static void derive_attend_small(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dra_value in[DELTA + 1];
    if (!dra_attend_upstream(g, n, dy, in)) return;
    const dra_node *back = dra_node_add(g, &dra_op_attend_small_back, DELTA + 1, in, n->attr);
    for (int i = DQ; back && i <= DV; i++) dx[i] = back->out[i];
}

static dra_cost cost_attend_small(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return dra_attend_cost(c, (c->n_out == 2 ? 2 : 5) * (double)(n.D + n.E));
}

const dra_op dra_op_attend_small = {.name = "attend_small",
                                    .n_in = 3,
                                    .n_out = 2,
                                    .attr_size = sizeof(dra_attend_attr),
                                    .infer = infer_attend_small,
                                    .gradient = derive_attend_small,
                                    .cost = cost_attend_small};

const dra_cpu_kernel dra_cpu_attend_small = {
    .base = {.op = "attend_small",
             .dtypes = DRA_REALS,
             .layout = DRA_LAYOUT_ROWS,
             .scratch = size_attend_small_scratch},
    .tiles = count_attend_small_tiles,
    .tile = run_attend_small_tile,
};

const dra_op dra_op_attend_small_back = {.name = "attend_small_back",
                                         .n_in = DELTA + 1,
                                         .n_out = DV + 1,
                                         .attr_size = sizeof(dra_attend_attr),
                                         .infer = back_infer,
                                         .cost = cost_attend_small};

const dra_cpu_kernel dra_cpu_attend_small_back = {
    .base = {.op = "attend_small_back",
             .dtypes = DRA_REALS,
             .layout = DRA_LAYOUT_ROWS,
             .scratch = size_attend_small_scratch},
    .tiles = count_attend_small_tiles,
    .tile = back_tile,
};

dra_value dra_attend_small(dra_graph *g, dra_value q, dra_value k, dra_value v,
                           const dra_attend_attr *a, dra_value *lse)
{
    const dra_value none[DRA_ATTEND_OPTIONS] = {{0}};
    dra_attend_attr own = *a;
    dra_value       in[DRA_ATTEND_INPUTS] = {q, k, v};
    const dra_node *node = dra_node_add(g, &dra_op_attend_small,
                                        dra_attend_append(none, 0, in, 3, &own), in, &own);
    if (lse) *lse = node ? node->out[1] : (dra_value){0};
    return node ? node->out[0] : (dra_value){0};
}
