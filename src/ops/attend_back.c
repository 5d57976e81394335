/* Gradients of tiled attention. With p from the stored lse, the factors f of dropout,
 * dp_tj = f_tj dy_t.v_j and delta_t = dy_t.y_t = sum_j p_tj dp_tj:
 *   ds_tj = p_tj (dp_tj - delta_t)             also the gradient of bias
 *   dq_t = sum_j da_tj k_j,  dk_j = sum_t da_tj q_t,  dv_j = sum_t f_tj p_tj dy_t
 *   dslope_h = -sum_tj ds_tj |q_pos_t - k_pos_j|
 * where da = scale (1 - tanh^2) ds undoes scale and soft cap. One op gathers what belongs to a
 * query, another what belongs to a key, so every output has one writer.
 * Inputs: those of attend, then dy (B, H, T, E), lse (B, H, T) and delta (B, H, T, 1). */
#include <string.h>

#include "ops/attend.h"

enum { ROWS = DRA_ATTEND_ROWS, KEYS = DRA_ATTEND_KEYS };

typedef struct work {
    real s[ROWS * KEYS];    /* scores, then weights p, then f p */
    real ds[ROWS * KEYS];   /* dp, then ds */
    real bend[ROWS * KEYS]; /* slope of the soft cap */
} work;

static const dra_tensor *upstream(const dra_call *c) { return &c->in[c->n_in - 3]; }

/* The first query of the block in something (B, H, T, ...). */
static const real *queries(const dra_attend_block *t, const dra_tensor *x)
{
    return (const real *)x->data + t->b * x->stride[0] + t->h * x->stride[1] + t->t0 * x->stride[2];
}

static real per_query(const dra_attend_block *t, const dra_tensor *x, int64_t r)
{
    return queries(t, x)[r * x->stride[2]];
}

/* w->ds = dy.v */
static void weight_gradients(const dra_attend_block *t, int64_t j0, work *w)
{
    const dra_tensor *dy = upstream(t->c), *v = &t->c->in[2];
    t->c->simd->gemm(&(dra_gemm){
        .M = t->rows,
        .N = dra_imin(KEYS, t->size.J - j0),
        .K = t->size.E,
        .a = queries(t, dy),
        .a_row = dy->stride[2],
        .a_col = dy->stride[3],
        .b = (const real *)v->data + t->b * v->stride[0] + t->kv * v->stride[1] + j0 * v->stride[2],
        .b_row = v->stride[3],
        .b_col = v->stride[2],
        .c = w->ds,
        .c_row = KEYS,
    });
}

/* w->s = f p and w->ds for the keys from j0 on; both 0 where nothing is seen, whatever is there. */
static void open_block(const dra_attend_block *t, int64_t j0, work *w)
{
    const dra_tensor *lse = upstream(t->c) + 1, *delta = upstream(t->c) + 2;
    const int64_t     n = dra_imin(KEYS, t->size.J - j0);
    int32_t           k_pos[KEYS];
    real              factor[KEYS];
    dra_attend_scores(t, j0, w->s, w->bend);
    weight_gradients(t, j0, w);
    if (t->a->dropout > 0) dra_attend_k_pos(t->c, t->b, j0, n, k_pos);
    for (int64_t j = 0; j < KEYS; j++) factor[j] = 1;
    for (int64_t r = 0; r < t->rows; r++) {
        real      *p = w->s + r * KEYS, *ds = w->ds + r * KEYS;
        const real sum = per_query(t, delta, r);
        t->c->simd->exp_sum(KEYS, p, per_query(t, lse, r), p);
        if (t->a->dropout > 0) dra_attend_drop_row(&t->drop, t->q_pos[r], n, k_pos, factor);
        for (int64_t j = 0; j < KEYS; j++) {
            ds[j] = p[j] == 0 ? 0 : p[j] * (factor[j] * ds[j] - sum);
            p[j] *= factor[j];
        }
    }
}

/* ds becomes da. */
static void undo_scale(const dra_attend_block *t, work *w)
{
    const int64_t n = t->rows * KEYS;
    if (t->a->softcap > 0)
        for (int64_t i = 0; i < n; i++)
            if (w->ds[i] != 0) w->ds[i] *= w->bend[i]; /* bend is set only where it is seen */
    t->c->simd->scale(n, (real)t->a->scale, w->ds);
}

/* ---- what belongs to a query: dq, distance (B, H, T) = -sum_j ds |q_pos - k_pos|, dbias ------ */

static dra_status q_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape q = dra_type_of(g, n->in[0])->shape;
    const int64_t   J = dra_type_of(g, n->in[1])->shape.dim[2];
    out[0] = (dra_type){DRA_REAL, q};
    out[1] = (dra_type){DRA_REAL, DRA_SHAPE(q.dim[0], q.dim[1], q.dim[2])};
    out[2] = (dra_type){DRA_REAL, DRA_SHAPE(q.dim[0], q.dim[1], q.dim[2], J)};
    return DRA_OK;
}

static int64_t q_tiles(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return n.B * n.H * dra_div_up(n.T, ROWS);
}

static void add_distances(const dra_attend_block *t, int64_t j0, const work *w, real *out)
{
    const int64_t n = dra_imin(KEYS, t->size.J - j0);
    int32_t       k_pos[KEYS];
    dra_attend_k_pos(t->c, t->b, j0, n, k_pos);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t j = 0; j < n; j++) {
            const int64_t far = (int64_t)t->q_pos[r] - k_pos[j];
            out[r] -= w->ds[r * KEYS + j] * (real)(far < 0 ? -far : far);
        }
}

static void store_bias(const dra_attend_block *t, int64_t j0, const work *w, real *out)
{
    const int64_t n = dra_imin(KEYS, t->size.J - j0);
    for (int64_t r = 0; r < t->rows; r++)
        memcpy(out + r * t->size.J + j0, w->ds + r * KEYS, (size_t)n * sizeof *out);
}

/* Where the rows of a tile start in an output of `width` numbers a query; set to 0. */
static real *clear(const dra_tensor *out, const dra_attend_block *t, int64_t width)
{
    real *at = out->data;
    if (!at) return NULL;
    at += ((t->b * t->size.H + t->h) * t->size.T + t->t0) * width;
    memset(at, 0, (size_t)(t->rows * width) * sizeof *at);
    return at;
}

static void q_tile(const dra_call *c, int64_t i)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          blocks = dra_div_up(n.T, ROWS), row = i / blocks;
    const dra_attend_block t = dra_attend_open(c, row / n.H, row % n.H, i % blocks * ROWS);
    real                  *dq = clear(&c->out[0], &t, n.D), *far = clear(&c->out[1], &t, 1);
    real                  *dbias = clear(&c->out[2], &t, n.J);
    work                   w;
    for (int64_t j0 = t.first / KEYS * KEYS; j0 < t.end; j0 += KEYS) {
        if (!dra_attend_sees(&t, j0)) continue;
        open_block(&t, j0, &w);
        if (far) add_distances(&t, j0, &w, far);
        if (dbias) store_bias(&t, j0, &w, dbias);
        if (!dq) continue;
        undo_scale(&t, &w);
        dra_attend_times(&t, w.ds, &c->in[1], j0, dq);
    }
}

static dra_cost q_cost(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return dra_attend_cost(c, 2 * (double)((c->out[0].data ? 2 : 1) * n.D + n.E));
}

const dra_op     dra_op_attend_back_q = {.name = "attend_back_q",
                                         .n_in = DRA_MANY,
                                         .n_out = 3,
                                         .attr_size = sizeof(dra_attend_attr),
                                         .infer = q_infer,
                                         .cost = q_cost};
const dra_kernel dra_cpu_attend_back_q = {
    &dra_op_attend_back_q, DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL), q_tiles, q_tile};

/* ---- what belongs to a key: dk, dv ----------------------------------------------------------- */

static dra_status kv_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    out[0] = *dra_type_of(g, n->in[1]);
    out[1] = *dra_type_of(g, n->in[2]);
    return DRA_OK;
}

static int64_t kv_tiles(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return n.B * n.K * dra_div_up(n.J, KEYS);
}

/* out (keys, W) += p^T (keys, rows) x (rows, W), x the rows of the queries. */
static void gather(const dra_attend_block *t, int64_t keys, const real *p, const dra_tensor *x,
                   real *out)
{
    const int64_t W = x->shape.dim[3];
    t->c->simd->gemm(&(dra_gemm){
        .M = keys,
        .N = W,
        .K = t->rows,
        .a = p,
        .a_row = 1,
        .a_col = KEYS,
        .b = queries(t, x),
        .b_row = x->stride[2],
        .b_col = x->stride[3],
        .c = out,
        .c_row = W,
        .accumulate = true,
    });
}

static void kv_tile(const dra_call *c, int64_t i)
{
    const dra_attend_attr *a = c->attr;
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          blocks = dra_div_up(n.J, KEYS), row = i / blocks, j0 = i % blocks * KEYS;
    const int64_t          keys = dra_imin(KEYS, n.J - j0), kv = row % n.K, group = n.H / n.K;
    real                  *dk = c->out[0].data, *dv = c->out[1].data;
    work                   w;
    if (dk) dk = memset(dk + (row * n.J + j0) * n.D, 0, (size_t)(keys * n.D) * sizeof *dk);
    if (dv) dv = memset(dv + (row * n.J + j0) * n.E, 0, (size_t)(keys * n.E) * sizeof *dv);
    for (int64_t k = 0; k < group; k++) {
        const int64_t h = a->heads == DRA_HEADS_DIV ? kv * group + k : kv + k * n.K;
        for (int64_t t0 = 0; t0 < n.T; t0 += ROWS) {
            const dra_attend_block t = dra_attend_open(c, row / n.K, h, t0);
            if (!dra_attend_sees(&t, j0)) continue;
            open_block(&t, j0, &w);
            if (dv) gather(&t, keys, w.s, upstream(c), dv);
            if (!dk) continue;
            undo_scale(&t, &w);
            gather(&t, keys, w.ds, &c->in[0], dk);
        }
    }
}

static dra_cost kv_cost(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          k = (c->out[0].data ? 2 : 1) * n.D, v = (c->out[1].data ? 2 : 1) * n.E;
    return dra_attend_cost(c, 2 * (double)(k + v));
}

const dra_op     dra_op_attend_back_kv = {.name = "attend_back_kv",
                                          .n_in = DRA_MANY,
                                          .n_out = 2,
                                          .attr_size = sizeof(dra_attend_attr),
                                          .infer = kv_infer,
                                          .cost = kv_cost};
const dra_kernel dra_cpu_attend_back_kv = {
    &dra_op_attend_back_kv, DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL), kv_tiles, kv_tile};
