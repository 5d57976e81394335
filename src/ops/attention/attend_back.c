/* Gradients of tiled attention. With p from the stored lse, the factors f of dropout,
 * dp_tj = f_tj dy_t.v_j and delta_t = dy_t.y_t = sum_j p_tj dp_tj:
 *   ds_tj = p_tj (dp_tj - delta_t)             also the gradient of bias
 *   dq_t = sum_j da_tj k_j,  dk_j = sum_t da_tj q_t,  dv_j = sum_t f_tj p_tj dy_t
 *   dq_level_t = sum_j ds_tj,  dk_level_j = -sum_t ds_tj
 *   dslope_h = -sum_tj ds_tj |q_pos_t - k_pos_j|,  ddistance_hn = sum of ds_tj at distance n
 * where da = scale (1 - tanh^2) ds undoes scale and soft cap; a late cap comes off before biases
 * get theirs. One op makes them all, so that p and dp are computed once.
 *
 * Blocks of queries t and of keys j: dq_t is a sum over j, ascending, dk_j and dv_j over t. A tile
 * takes all queries that read one key head, so every output has one writer. Where that leaves
 * threads idle, blocks with the same t + j are a stage: none of them writes what another does, and
 * all sums keep their order, so the bits are the same.
 * Inputs: those of attend, then dy (B, H, T, E), lse (B, H, T) and delta (B, H, T, 1). */
#include <string.h>

#include "ops/attention/attend.h"

enum { ROWS = DRA_ATTEND_ROWS, KEYS = DRA_ATTEND_KEYS };

enum {
    DQ = DRA_ATTEND_DQ,
    DSLOPES = DRA_ATTEND_DSLOPES,
    DBIAS = DRA_ATTEND_DBIAS,
    DDISTANCE = DRA_ATTEND_DDISTANCE,
    DK = DRA_ATTEND_DK,
    DV = DRA_ATTEND_DV,
    DQ_LEVEL = DRA_ATTEND_DQ_LEVEL,
    DK_LEVEL = DRA_ATTEND_DK_LEVEL
};

typedef struct work {
    real    s[ROWS * KEYS];    /* scores, then weights p, then f p */
    real    ds[ROWS * KEYS];   /* dp, then ds */
    real    dcap[ROWS * KEYS]; /* derivative of the soft cap */
    double *sum;               /* (N): ddistance of a head, or NULL */
} work;

static const dra_tensor *find_upstream(const dra_call *c) { return &c->in[c->n_in - 3]; }

/* The first query of the block in something (B, H, T, ...). */
static const real *find_queries(const dra_attend_block *t, const dra_tensor *x)
{
    return (const real *)x->data + t->b * x->stride[0] + t->h * x->stride[1] + t->t0 * x->stride[2];
}

static real per_query(const dra_attend_block *t, const dra_tensor *x, int64_t r)
{
    return find_queries(t, x)[r * x->stride[2]];
}

/* w->ds = dy.v */
static void weight_gradients(const dra_attend_block *t, int64_t j0, work *w)
{
    const dra_tensor     *dy = find_upstream(t->c), *v = &t->c->in[2];
    const dra_attend_keys k = dra_attend_seen(t, j0);
    const int64_t         key = j0 + k.first;
    dra_simd_of(t->c)->gemm(&(dra_gemm){
        .M = t->rows,
        .N = k.n,
        .K = t->size.E,
        .a = find_queries(t, dy),
        .a_row = dy->stride[2],
        .a_col = dy->stride[3],
        .b = (const real *)v->data + t->b * v->stride[0] + t->kv * v->stride[1] +
             key * v->stride[2],
        .b_row = v->stride[3],
        .b_col = v->stride[2],
        .c = w->ds + k.first,
        .c_row = KEYS,
    });
}

/* w->s = f p and w->ds for the keys from j0 on; both 0 where nothing is seen, whatever is there. */
static void open_block(const dra_attend_block *t, int64_t j0, work *w)
{
    const dra_tensor *lse = find_upstream(t->c) + 1, *delta = find_upstream(t->c) + 2;
    const int64_t     n = dra_imin(KEYS, t->size.J - j0);
    int32_t           k_pos[KEYS];
    real              factor[KEYS];
    dra_attend_scores(t, j0, w->s, w->dcap);
    weight_gradients(t, j0, w);
    if (t->a->dropout > 0) dra_attend_k_pos(t->c, t->b, j0, n, k_pos);
    for (int64_t j = 0; j < KEYS; j++) factor[j] = 1;
    for (int64_t r = 0; r < t->rows; r++) {
        real      *p = w->s + r * KEYS, *ds = w->ds + r * KEYS;
        const real sum = per_query(t, delta, r);
        dra_simd_of(t->c)->exp_scaled(KEYS, p, t->factor, per_query(t, lse, r), p);
        if (t->a->dropout > 0) dra_attend_drop_row(&t->drop, t->q_pos[r], n, k_pos, factor);
        for (int64_t j = 0; j < KEYS; j++) {
            ds[j] = p[j] == 0 ? 0 : p[j] * (factor[j] * ds[j] - sum);
            p[j] *= factor[j];
        }
    }
}

static void undo_cap(const dra_attend_block *t, work *w)
{
    for (int64_t i = 0; i < t->rows * KEYS; i++)
        if (w->ds[i] != 0) w->ds[i] *= w->dcap[i]; /* dcap is set only where it is seen */
}

/* ds becomes da. */
static void undo_scale(const dra_attend_block *t, work *w)
{
    if (t->a->softcap > 0 && !t->a->late) undo_cap(t, w);
    dra_simd_of(t->c)->scale(t->rows * KEYS, (real)t->a->scale, w->ds);
}

/* ---- outputs --------------------------------------------------------------------------------- */

static int64_t columns_of(const dra_call *c) /* N, 0 without a table by distance */
{
    const dra_tensor *table = dra_attend_option(c, DRA_ATTEND_DISTANCE);
    return table ? table->shape.dim[1] : 0;
}

static dra_status infer_attend_back(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_attend_attr *a = n->attr;
    const dra_type        *q = dra_type_of(g, n->in[0]), *k = dra_type_of(g, n->in[1]);
    const int64_t         *dim = q->shape.dim;
    const int32_t          at = a->at[DRA_ATTEND_DISTANCE];
    const int64_t          N = at < 0 ? 0 : dra_type_of(g, n->in[at])->shape.dim[1];
    out[DQ] = *q;
    out[DSLOPES] = (dra_type){DRA_REAL, DRA_SHAPE(dim[0], dim[1], dim[2])};
    out[DBIAS] = (dra_type){DRA_REAL, DRA_SHAPE(dim[0], dim[1], dim[2], k->shape.dim[2])};
    out[DDISTANCE] = (dra_type){DRA_REAL, DRA_SHAPE(dim[0], dim[1], N)};
    out[DK] = *k;
    out[DV] = *dra_type_of(g, n->in[2]);
    out[DQ_LEVEL] = out[DSLOPES];
    out[DK_LEVEL] = (dra_type){DRA_REAL, DRA_SHAPE(dim[0], dim[1], k->shape.dim[2])};
    return DRA_OK;
}

/* How many of the keys from j0 on have no bias of any kind: those that all see. */
static int64_t count_unbiased(const dra_attend_block *t, int64_t j0)
{
    return dra_imax(0, dra_imin(t->a->always - j0, KEYS));
}

/* out (rows) -= sum_j ds |q_pos - k_pos| */
static void add_slopes(const dra_attend_block *t, int64_t j0, const work *w, real *out)
{
    const int64_t n = dra_imin(KEYS, t->size.J - j0);
    int32_t       k_pos[KEYS];
    dra_attend_k_pos(t->c, t->b, j0, n, k_pos);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t j = count_unbiased(t, j0); j < n; j++) {
            const int64_t far = (int64_t)t->q_pos[r] - k_pos[j];
            out[r] -= w->ds[r * KEYS + j] * (real)(far < 0 ? -far : far);
        }
}

static double sum_of(int64_t n, const real *x)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

/* sum += ds (n) of one query by distance. In double: a column at the end of the table may take in
 * millions. */
static void add_distances(const dra_attend_block *t, int32_t q_pos, int64_t n, const int32_t *k_pos,
                          const real *ds, double *sum)
{
    if (!t->counted) {
        for (int64_t j = 0; j < n; j++)
            sum[dra_attend_column(t->a, t->distance, q_pos, k_pos[j])] += (double)ds[j];
        return;
    }
    const dra_attend_columns at = dra_attend_columns_of(t->a, t->distance, q_pos, k_pos[0], n);
    sum[t->distance->shape.dim[1] - 1] += sum_of(at.far, ds);
    for (int64_t j = at.far; j < at.near; j++) sum[at.first - j] += (double)ds[j];
    sum[0] += sum_of(n - at.near, ds + at.near);
}

static void add_distance_block(const dra_attend_block *t, int64_t j0, work *w)
{
    const int64_t from = count_unbiased(t, j0), n = dra_imin(KEYS, t->size.J - j0) - from;
    int32_t       k_pos[KEYS];
    if (n <= 0) return;
    dra_attend_k_pos(t->c, t->b, j0 + from, n, k_pos);
    for (int64_t r = 0; r < t->rows; r++)
        add_distances(t, t->q_pos[r], n, k_pos, w->ds + r * KEYS + from, w->sum);
}

/* dq (rows) += sum_j ds, dk (keys) -= sum_t ds; either may be NULL. */
static void add_levels(const dra_attend_block *t, int64_t j0, const work *w, real *dq, real *dk)
{
    const int64_t n = dra_imin(KEYS, t->size.J - j0);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t j = count_unbiased(t, j0); j < n; j++) {
            if (dq) dq[r] += w->ds[r * KEYS + j];
            if (dk) dk[j] -= w->ds[r * KEYS + j];
        }
}

static void store_bias(const dra_attend_block *t, int64_t j0, const work *w, real *out)
{
    const int64_t from = count_unbiased(t, j0), n = dra_imin(KEYS, t->size.J - j0) - from;
    for (int64_t r = 0; n > 0 && r < t->rows; r++)
        memcpy(out + r * t->size.J + j0 + from, w->ds + r * KEYS + from, (size_t)n * sizeof *out);
}

/* out (keys, W) += p^T (keys, rows) x (rows, W), x the rows of the queries. */
static void gather_keys(const dra_attend_block *t, int64_t j0, const real *p, const dra_tensor *x,
                        real *out)
{
    const dra_attend_keys k = dra_attend_seen(t, j0);
    const int64_t         W = x->shape.dim[3];
    dra_simd_of(t->c)->gemm(&(dra_gemm){
        .M = k.n,
        .N = W,
        .K = t->rows,
        .a = p + k.first,
        .a_row = 1,
        .a_col = KEYS,
        .b = find_queries(t, x),
        .b_row = x->stride[2],
        .b_col = x->stride[3],
        .c = out + k.first * W,
        .c_row = W,
        .accumulate = true,
    });
}

/* ---- kernel ---------------------------------------------------------------------------------- */

/* Row `row` of an output that has `width` numbers for each, or NULL. */
static real *row_of(const dra_call *c, int output, int64_t row, int64_t width)
{
    real *data = c->out[output].data;
    return data ? data + row * width : NULL;
}

static void clear_numbers(real *at, int64_t n)
{
    if (at) memset(at, 0, (size_t)n * sizeof *at);
}

/* One block of queries against one block of keys. */
static void add_block(const dra_attend_block *t, int64_t j0, work *w)
{
    const dra_call        *c = t->c;
    const dra_attend_sizes n = t->size;
    const int64_t          query = (t->b * n.H + t->h) * n.T + t->t0;
    const int64_t          key = (t->b * n.K + t->kv) * n.J + j0;
    real *dslopes = row_of(c, DSLOPES, query, 1), *dbias = row_of(c, DBIAS, query, n.J);
    real *dq = row_of(c, DQ, query, n.D), *dk = row_of(c, DK, key, n.D);
    real *dv = row_of(c, DV, key, n.E), *dq_level = row_of(c, DQ_LEVEL, query, 1);
    real *dk_level = row_of(c, DK_LEVEL, (t->b * n.H + t->h) * n.J + j0, 1);
    open_block(t, j0, w);
    if (t->a->late) undo_cap(t, w);
    if (dslopes) add_slopes(t, j0, w, dslopes);
    if (w->sum) add_distance_block(t, j0, w);
    if (dq_level || dk_level) add_levels(t, j0, w, dq_level, dk_level);
    if (dbias) store_bias(t, j0, w, dbias);
    if (dv) gather_keys(t, j0, w->s, find_upstream(c), dv);
    if (!dq && !dk) return;
    undo_scale(t, w);
    if (dq) dra_attend_times(t, w->ds, &c->in[1], j0, true, dq);
    if (dk) gather_keys(t, j0, w->ds, &c->in[0], dk);
}

/* ---- a key head after the other -------------------------------------------------------------- */

static void clear_head(const dra_call *c, int64_t b, int64_t h)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          query = (b * n.H + h) * n.T;
    clear_numbers(row_of(c, DQ, query, n.D), n.T * n.D);
    clear_numbers(row_of(c, DSLOPES, query, 1), n.T);
    clear_numbers(row_of(c, DQ_LEVEL, query, 1), n.T);
    clear_numbers(row_of(c, DK_LEVEL, (b * n.H + h) * n.J, 1), n.J);
    clear_numbers(row_of(c, DBIAS, query, n.J), n.T * n.J);
}

/* Query head number k of those that read a key head. */
static int64_t head_of(const dra_call *c, int64_t kv, int64_t k)
{
    const dra_attend_attr *a = c->attr;
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return a->heads == DRA_HEADS_DIV ? kv * (n.H / n.K) + k : kv + k * n.K;
}

static void clear_key_head(const dra_call *c, int64_t i)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    clear_numbers(row_of(c, DK, i * n.J, n.D), n.J * n.D);
    clear_numbers(row_of(c, DV, i * n.J, n.E), n.J * n.E);
    for (int64_t k = 0; k < n.H / n.K; k++) clear_head(c, i / n.K, head_of(c, i % n.K, k));
}

/* Keys outside, queries inside: a block of dk and dv stays in the cache; a query still takes its
 * keys in ascending order. */
static void add_head(const dra_call *c, int64_t b, int64_t h, work *w)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    for (int64_t i = 0; w->sum && i < columns_of(c); i++) w->sum[i] = 0;
    for (int64_t j0 = 0; j0 < n.J; j0 += KEYS)
        for (int64_t t0 = 0; t0 < n.T; t0 += ROWS) {
            const dra_attend_block t = dra_attend_open(c, b, h, t0);
            if (dra_attend_sees(&t, j0)) add_block(&t, j0, w);
        }
    real *ddistance = row_of(c, DDISTANCE, b * n.H + h, columns_of(c));
    for (int64_t i = 0; w->sum && i < columns_of(c); i++) ddistance[i] = (real)w->sum[i];
}

static void add_key_head(const dra_call *c, int64_t i)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    work                   w;
    w.sum = c->out[DDISTANCE].data ? (double *)c->scratch + i * columns_of(c) : NULL;
    clear_key_head(c, i);
    for (int64_t k = 0; k < n.H / n.K; k++) add_head(c, i / n.K, head_of(c, i % n.K, k), &w);
}

static size_t size_attend_back_scratch(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return (size_t)(n.B * n.K * columns_of(c)) * sizeof(double);
}

/* ---- by diagonals ---------------------------------------------------------------------------- */

typedef struct diagonal { /* blocks t + j = number, of the k-th query head of every key head */
    int64_t k, number, first, n; /* j = first, ... */
} diagonal;

enum { ENOUGH = 4 }; /* key heads for each thread */

static bool by_diagonals(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return c->threads > 1 && n.B * n.K < ENOUGH * c->threads && !c->out[DDISTANCE].data &&
           n.T > ROWS && n.J > KEYS;
}

static int64_t count_diagonals(const dra_attend_sizes *n)
{
    return dra_div_up(n->T, ROWS) + dra_div_up(n->J, KEYS) - 1;
}

static diagonal diagonal_of(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          each = count_diagonals(&n), at = c->stage - 1;
    diagonal               d = {.k = at / each, .number = at % each};
    d.first = dra_imax(0, d.number - dra_div_up(n.T, ROWS) + 1);
    d.n = dra_imin(d.number, dra_div_up(n.J, KEYS) - 1) - d.first + 1;
    return d;
}

static void add_diagonal_block(const dra_call *c, int64_t i)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const diagonal         d = diagonal_of(c);
    const int64_t          head = i / d.n, j = d.first + i % d.n, t0 = (d.number - j) * ROWS;
    const int64_t          h = head_of(c, head % n.K, d.k);
    const dra_attend_block t = dra_attend_open(c, head / n.K, h, t0);
    work                   w;
    w.sum = NULL;
    if (dra_attend_sees(&t, j * KEYS)) add_block(&t, j * KEYS, &w);
}

static int64_t count_attend_back_stages(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return by_diagonals(c) ? 1 + n.H / n.K * count_diagonals(&n) : 1;
}

static int64_t count_attend_back_tiles(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return n.B * n.K * (c->stage ? diagonal_of(c).n : 1);
}

static void run_attend_back_tile(const dra_call *c, int64_t i)
{
    if (c->stage)
        add_diagonal_block(c, i);
    else if (by_diagonals(c))
        clear_key_head(c, i);
    else
        add_key_head(c, i);
}

/* Two products to have p and dp again, one for each of dq, dk and dv. */
static dra_cost cost_attend_back(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          d = 1 + (c->out[DQ].data != NULL) + (c->out[DK].data != NULL);
    const int64_t          e = 1 + (c->out[DV].data != NULL);
    return dra_attend_cost(c, 2 * (double)(d * n.D + e * n.E));
}

const dra_op dra_op_attend_back = {.name = "attend_back",
                                   .n_in = DRA_MANY,
                                   .n_out = DRA_ATTEND_BACK_OUTPUTS,
                                   .attr_size = sizeof(dra_attend_attr),
                                   .infer = infer_attend_back,
                                   .cost = cost_attend_back};

const dra_cpu_kernel dra_cpu_attend_back = {
    .base = {.op = "attend_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL),
             .scratch = size_attend_back_scratch},
    .tiles = count_attend_back_tiles,
    .tile = run_attend_back_tile,
    .stages = count_attend_back_stages,
};
