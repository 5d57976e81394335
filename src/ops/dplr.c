/* dplr: matrices that fade by channel and may be corrected by rank one, see dplr.h. [Peng et al.
 * 2024: RWKV-5 and 6; Yang et al. 2024: gated linear attention; Peng et al. 2025: RWKV-7]
 * The states before each chunk and what was recalled, p, are outputs, for the gradient
 * (dplr_back.c). A tile is one head of one row of the batch. */
#include <math.h>

#include "ops/dplr.h"

enum { Q = DRA_DPLR_Q, K = DRA_DPLR_K, V = DRA_DPLR_V };
enum {
    Y = DRA_DPLR_Y,
    LAST = DRA_DPLR_LAST,
    RECALLED = DRA_DPLR_RECALLED,
    BORDERS = DRA_DPLR_BORDERS
};

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_dplr_attr *a = n->attr;
    const int64_t       *q = dra_type_of(g, n->in[Q])->shape.dim;
    const int64_t        E = dra_type_of(g, n->in[V])->shape.dim[3];
    out[Y] = *dra_type_of(g, n->in[V]);
    out[LAST] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[2], q[3], E)};
    out[RECALLED] = (dra_type){DRA_REAL, a->a ? out[Y].shape : DRA_SHAPE(0)};
    out[BORDERS] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[2], dra_chunks(q[1]), q[3], E)};
    return DRA_OK;
}

/* ---- kernel ---------------------------------------------------------------------------------- */

/* Rows of token t of a head. */
static const real *row_of(const dra_call *c, int in, int64_t b, int64_t t, int64_t h)
{
    return in ? dra_recur_at(&c->in[in], b, t, h) : NULL;
}

static void tile(const dra_call *c, int64_t head)
{
    const dra_dplr_attr *a = c->attr;
    const dra_simd      *simd = dra_simd_of(c);
    const int64_t       *dim = c->in[Q].shape.dim, T = dim[1], H = dim[2], F = dim[3];
    const int64_t        E = dra_last(&c->in[V]), b = head / H, h = head % H;
    real                *room = (real *)c->scratch + head * (F + 1) * E, *p = room + F * E;
    const dra_chunk      k0 = {.simd = simd, .b = b, .h = h};
    real *S = dra_chunk_state(&k0, dra_chunk_option(c, a->S), &c->out[LAST], F * E, room);
    for (int64_t t = 0; t < T; t++) {
        const int32_t mark = dra_recur_mark(dra_chunk_option(c, a->mark), b, t);
        if (mark & DRA_MARK_RESET) dra_recur_clear(F * E, S);
        if (t % DRA_CHUNK == 0 && c->out[BORDERS].data)
            dra_recur_copy(F * E, S, dra_recur_at(&c->out[BORDERS], b, h, t / DRA_CHUNK));
        const real *q = dra_recur_at(&c->in[Q], b, t, h), *k = row_of(c, K, b, t, h),
                   *v = row_of(c, V, b, t, h), *l = row_of(c, a->l, b, t, h),
                   *ra = row_of(c, a->a, b, t, h), *rc = row_of(c, a->c, b, t, h);
        const real *u = a->u ? (real *)c->in[a->u].data + h * c->in[a->u].stride[0] : NULL;
        real       *y = c->out[Y].data ? dra_recur_at(&c->out[Y], b, t, h) : NULL;
        if (y) dra_recur_clear(E, y);
        dra_recur_clear(E, p);
        const bool pad = mark & DRA_MARK_PAD;
        for (int64_t f = 0; f < F && ra && !pad; f++) simd->axpy(E, ra[f], S + f * E, p);
        if (c->out[RECALLED].data && a->a)
            dra_recur_copy(E, p, dra_recur_at(&c->out[RECALLED], b, t, h));
        for (int64_t f = 0; f < F && !pad; f++) {
            if (u && y) simd->axpy(E, q[f], S + f * E, y);
            if (u && y) simd->axpy(E, q[f] * u[f] * k[f], v, y);
            if (l) simd->axpy(E, (real)expm1((double)l[f]), S + f * E, S + f * E);
            if (rc) simd->axpy(E, rc[f], p, S + f * E);
            simd->axpy(E, k[f], v, S + f * E);
            if (!u && y) simd->axpy(E, q[f], S + f * E, y);
        }
    }
}

static int64_t tiles(const dra_call *c) { return dra_chunk_heads(c); }

static size_t scratch(const dra_call *c)
{
    const int64_t F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    return (size_t)(dra_chunk_heads(c) * (F + 1) * E) * sizeof(real);
}

/* ---- the op ---------------------------------------------------------------------------------- */

static void gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_dplr_attr *a = n->attr;
    dra_dplr_attr        b = {0};
    dra_value            in[DRA_DPLR_OPTIONS + 9] = {n->in[Q], n->in[K], n->in[V]}, none = {0};
    int                  m = DRA_DPLR_OPTIONS;
    b.dy = dra_chunk_append(dra_recur_upstream(g, dy[Y], n->out[Y]), in, &m);
    b.borders = dra_chunk_append(n->out[BORDERS], in, &m);
    b.recalled = dra_chunk_append(a->a ? n->out[RECALLED] : none, in, &m);
    b.S = dra_chunk_append(dy[LAST], in, &m);
    b.l = dra_chunk_append(a->l ? n->in[a->l] : none, in, &m);
    b.u = dra_chunk_append(a->u ? n->in[a->u] : none, in, &m);
    b.a = dra_chunk_append(a->a ? n->in[a->a] : none, in, &m);
    b.c = dra_chunk_append(a->c ? n->in[a->c] : none, in, &m);
    b.mark = dra_chunk_append(a->mark ? n->in[a->mark] : none, in, &m);
    const dra_node *back = dra_node_add(g, &dra_op_dplr_back, m, in, &b);
    if (!back) return;
    for (int i = Q; i <= V; i++) dx[i] = back->out[i];
    if (a->l) dx[a->l] = back->out[DRA_DPLR_DL];
    if (a->u) dx[a->u] = dra_sum(g, back->out[DRA_DPLR_DU], (dra_axes){1, {0}, false});
    if (a->a) dx[a->a] = back->out[DRA_DPLR_DA];
    if (a->c) dx[a->c] = back->out[DRA_DPLR_DC];
    if (a->S) dx[a->S] = back->out[DRA_DPLR_DS];
}

/* Pairs of tokens s <= t inside chunks, for each of q k (and q c, a k, a c) a product over F; v and
 * p take two each over E; products of a token with F E numbers of the state. */
static dra_cost cost(const dra_call *c)
{
    const dra_dplr_attr *a = c->attr;
    const double         F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double         pairs = dra_chunk_pair_count(c), tokens = (double)dra_rows(&c->in[Q]);
    const double         many = a->a ? 4 : 1, states = a->a ? 4 : 2;
    return (dra_cost){2 * (pairs * many * (F + E) + tokens * states * F * E), dra_call_bytes(c)};
}

/* A tile reads its part of the first state into the last one before all else. */
static uint32_t takes(const void *attr, int out)
{
    const dra_dplr_attr *a = attr;
    return out == LAST && a->S ? 1u << a->S : 0;
}

const dra_op dra_op_dplr = {.name = "dplr",
                            .n_in = DRA_MANY,
                            .n_out = DRA_DPLR_OUTPUTS,
                            .attr_size = sizeof(dra_dplr_attr),
                            .infer = infer,
                            .gradient = gradient,
                            .cost = cost};

const dra_cpu_kernel dra_cpu_dplr = {
    .base = {.op = "dplr",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch,
             .takes = takes},
    .tiles = tiles,
    .tile = tile,
};

/* ---- builder --------------------------------------------------------------------------------- */

bool dra_dplr_by_channel(dra_graph *g, dra_value l)
{
    if (!l.id) return false;
    const int32_t rank = dra_shape_of(g, l).rank;
    return rank == 2 || rank == 4;
}

dra_value dra_dplr_at_pads(dra_graph *g, dra_value mark, dra_value x, double other)
{
    if (!mark.id || !x.id || dra_graph_failed(g)) return x;
    dra_shape       column = dra_shape_of(g, mark);
    const dra_value odd = dra_mod(g, mark, dra_integer(g, 2));
    const dra_value pad = dra_not_equal(g, odd, dra_integer(g, 0));
    while (column.rank < dra_shape_of(g, x).rank) column.dim[column.rank++] = 1;
    return dra_select(g, dra_reshape(g, pad, column), dra_number(g, other), x);
}

/* l (B, T, H) as (B, T, H, F). */
static dra_value widened(dra_graph *g, dra_value l, dra_shape q)
{
    if (!l.id || dra_shape_of(g, l).rank == 4) return l;
    const dra_shape column = DRA_SHAPE(q.dim[0], q.dim[1], q.dim[2], 1);
    return dra_broadcast(g, dra_reshape(g, l, column), q);
}

dra_value dra_dplr(dra_graph *g, const dra_dplr_inputs *x, dra_value *S_last)
{
    dra_dplr_attr a = {0};
    dra_value     in[DRA_DPLR_OPTIONS + 6] = {x->q, x->k, x->v};
    int           n = DRA_DPLR_OPTIONS;
    if (dra_graph_failed(g)) return (dra_value){0};
    a.l = dra_chunk_append(widened(g, x->l, dra_shape_of(g, x->q)), in, &n);
    a.u = dra_chunk_append(x->u, in, &n);
    a.a = dra_chunk_append(x->a, in, &n);
    a.c = dra_chunk_append(x->c, in, &n);
    a.S = dra_chunk_append(x->S, in, &n);
    a.mark = dra_chunk_append(x->mark, in, &n);
    const dra_node *node = dra_node_add(g, &dra_op_dplr, n, in, &a);
    if (node && S_last) *S_last = node->out[LAST];
    return node ? node->out[Y] : (dra_value){0};
}
