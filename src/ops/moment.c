/* moment: sums of outer products that fade, read by queries. [Katharopoulos et al. 2020; Sun et al.
 * 2023: RetNet; Yang et al. 2024: gated linear attention]
 *   S_t = e^(l_t) S_{t-1} + k_t v_t^T,  z_t = e^(l_t) z_{t-1} + k_t
 *   y_t = S_t^T q_t, where normalised divided by den_t = q_t.z_t + eps, at least `least`
 * A chunk of tokens at once, its first state S_0, with D, p, last and fade of chunk.h:
 *   A = (q k^T) o D,  num = A v + p o (q S_0),  den = A 1 + p o (q z_0) + eps
 *   S = S_0 + fade S_0 + k^T (last o v),  z = z_0 + fade z_0 + k^T last
 * where o multiplies by elements or rows. A tile is one head of one row of the batch. The states
 * before each chunk are an output, for the gradient (moment_back.c). */
#include <math.h>

#include "ops/moment.h"

enum { Q = DRA_MOMENT_Q, K = DRA_MOMENT_K, V = DRA_MOMENT_V };
enum { Y, S_LAST, Z_LAST, BORDERS, Z_BORDERS, OUTPUTS };

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_moment_attr *a = n->attr;
    const int64_t         *q = dra_type_of(g, n->in[Q])->shape.dim;
    const int64_t          B = q[0], H = q[2], F = q[3], chunks = dra_chunks(q[1]);
    const int64_t          E = dra_type_of(g, n->in[V])->shape.dim[3];
    const dra_shape        no = DRA_SHAPE(0);
    out[Y] = *dra_type_of(g, n->in[V]);
    out[S_LAST] = (dra_type){DRA_REAL, DRA_SHAPE(B, H, F, E)};
    out[Z_LAST] = (dra_type){DRA_REAL, a->normalise ? DRA_SHAPE(B, H, F) : no};
    out[BORDERS] = (dra_type){DRA_REAL, DRA_SHAPE(B, H, chunks, F, E)};
    out[Z_BORDERS] = (dra_type){DRA_REAL, a->normalise ? DRA_SHAPE(B, H, chunks, F) : no};
    return DRA_OK;
}

void dra_moment_weights(const dra_chunk *k, const dra_moment_attr *a, const dra_decay *d, int64_t F,
                        dra_matrix_block q, dra_matrix_block keys, const real *z, real *A,
                        real *den)
{
    dra_chunk_pairs(k->simd, k->n, F, q, keys, A);
    dra_decay_apply(d, k->simd, NULL, A);
    for (int64_t t = 0; t < k->n && a->normalise; t++) {
        const real old = d->p[t] * k->simd->dot(F, q.at + t * q.row, z);
        const real sum = k->simd->sum(t + 1, A + t * DRA_CHUNK) + old + (real)a->eps;
        den[t] = dra_chunk_pad(k, t) ? 1 : sum < (real)a->least ? (real)a->least : sum;
    }
}

/* ---- kernel ---------------------------------------------------------------------------------- */

typedef struct walk {
    const dra_call        *c;
    const dra_moment_attr *a;
    int64_t                F, E;
    real                  *S, *z;   /* the state */
    real                  *room;    /* scratch: a chunk of v, q, k and v */
    dra_matrix_block       q, k, v; /* of the chunk */
    dra_decay              d;
    real                   A[DRA_CHUNK * DRA_CHUNK];
} walk;

static int64_t scratch_of(int64_t F, int64_t E)
{
    return dra_div_up(F * E + F + DRA_CHUNK * 2 * (F + E), 16) * 16;
}

static size_t scratch(const dra_call *c)
{
    return (size_t)(dra_chunk_tiles(c) * scratch_of(dra_last(&c->in[Q]), dra_last(&c->in[V]))) *
           sizeof(real);
}

static void open_chunk(walk *w, const dra_chunk *k)
{
    const dra_call *c = w->c;
    real           *rows = w->room + DRA_CHUNK * w->E;
    w->q = dra_chunk_rows(k, &c->in[Q], rows);
    w->k = dra_chunk_rows(k, &c->in[K], rows + DRA_CHUNK * w->F);
    w->v = dra_chunk_rows(k, &c->in[V], rows + DRA_CHUNK * 2 * w->F);
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
}

static void retrieve(walk *w, const dra_chunk *k)
{
    const dra_tensor      *y = &w->c->out[Y];
    const dra_simd        *simd = k->simd;
    const dra_matrix_block S = {w->S, w->E, 1};
    real                   den[DRA_CHUNK];
    if (!y->data) return;
    const dra_matrix_block to = dra_chunk_out(k, y, NULL);
    dra_moment_weights(k, w->a, &w->d, w->F, w->q, w->k, w->z, w->A, den);
    dra_matrix_block_multiply(simd, k->n, w->E, w->F, w->q, S, to, false);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->E, w->d.p, to);
    dra_chunk_below(simd, k->n, w->E, w->A, w->v, to, true);
    for (int64_t t = 0; t < k->n && w->a->normalise; t++)
        simd->scale(w->E, 1 / den[t], to.at + t * to.row);
}

static void remember(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block S = {w->S, w->E, 1};
    dra_matrix_block       v = w->v;
    if (!w->d.plain) {
        dra_decay_state(&w->d, simd, w->F * w->E, w->S);
        v = dra_matrix_block_scaled(simd, k->n, w->E, w->d.last, v, w->room);
    }
    dra_matrix_block_multiply(simd, w->F, w->E, k->n, dra_matrix_block_transposed(w->k), v, S,
                              true);
    if (!w->a->normalise) return;
    dra_decay_state(&w->d, simd, w->F, w->z);
    for (int64_t t = 0; t < k->n; t++) simd->axpy(w->F, w->d.last[t], w->k.at + t * w->k.row, w->z);
}

/* The state before chunk i. */
static void keep(const walk *w, const dra_chunk *k, int64_t i)
{
    const dra_tensor *S = &w->c->out[BORDERS], *z = &w->c->out[Z_BORDERS];
    if (S->data) dra_recur_copy(w->F * w->E, w->S, dra_recur_at(S, k->b, k->h, i));
    if (z->data && w->a->normalise) dra_recur_copy(w->F, w->z, dra_recur_at(z, k->b, k->h, i));
}

static void tile(const dra_call *c, int64_t number)
{
    const dra_moment_attr *a = c->attr;
    const int64_t         *dim = c->in[Q].shape.dim, T = dim[1], H = dim[2];
    walk                   w;
    w.c = c, w.a = a, w.F = dim[3], w.E = dra_last(&c->in[V]), w.d.n = 0;
    w.d.jumps = a->jumps;
    w.room = (real *)c->scratch + number * scratch_of(w.F, w.E);
    real     *spare = w.room + DRA_CHUNK * 2 * (w.F + w.E);
    dra_chunk k = {.simd = dra_simd_of(c), .b = number / H, .h = number % H};
    w.S = dra_chunk_state(&k, dra_chunk_option(c, a->S), &c->out[S_LAST], w.F * w.E, spare);
    w.z = dra_chunk_state(&k, dra_chunk_option(c, a->z), &c->out[Z_LAST], w.F, spare + w.F * w.E);
    const bool last = c->out[S_LAST].data || c->out[Z_LAST].data;
    for (int64_t i = 0; i < dra_chunks(T); i++) {
        k = dra_chunk_at(c, dra_chunk_option(c, a->mark), k.b, k.h, T, i);
        open_chunk(&w, &k);
        if (dra_chunk_starts(&k)) dra_recur_clear(w.F * w.E, w.S);
        if (dra_chunk_starts(&k) && a->normalise) dra_recur_clear(w.F, w.z);
        keep(&w, &k, i);
        retrieve(&w, &k);
        if (last || i + 1 < dra_chunks(T)) remember(&w, &k);
    }
}

/* ---- the op ---------------------------------------------------------------------------------- */

static void gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_moment_attr *a = n->attr;
    dra_moment_attr        b = {
               .eps = a->eps, .least = a->least, .normalise = a->normalise, .jumps = a->jumps};
    dra_value in[DRA_MOMENT_OPTIONS + 8] = {n->in[Q], n->in[K], n->in[V]}, none = {0};
    int       m = DRA_MOMENT_OPTIONS;
    b.dy = dra_chunk_append(dra_recur_upstream(g, dy[Y], n->out[Y]), in, &m);
    b.borders = dra_chunk_append(n->out[BORDERS], in, &m);
    b.z_borders = dra_chunk_append(a->normalise ? n->out[Z_BORDERS] : none, in, &m);
    b.y = dra_chunk_append(a->normalise ? n->out[Y] : none, in, &m);
    b.S = dra_chunk_append(dy[S_LAST], in, &m);
    b.z = dra_chunk_append(dy[Z_LAST], in, &m);
    b.l = dra_chunk_append(a->l ? n->in[a->l] : none, in, &m);
    b.mark = dra_chunk_append(a->mark ? n->in[a->mark] : none, in, &m);
    const dra_node *back = dra_node_add(g, &dra_op_moment_back, m, in, &b);
    if (!back) return;
    for (int i = Q; i <= V; i++) dx[i] = back->out[i];
    if (a->l) dx[a->l] = back->out[DRA_MOMENT_DL];
    if (a->S) dx[a->S] = back->out[DRA_MOMENT_DS];
    if (a->z) dx[a->z] = back->out[DRA_MOMENT_DZ];
}

/* Pairs of tokens s <= t inside chunks: one product over F and one over E; two products of a token
 * with F E numbers of the state. */
static dra_cost cost(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double pairs = dra_chunk_pair_count(c), tokens = (double)dra_rows(&c->in[Q]);
    return (dra_cost){2 * (pairs * (F + E) + tokens * 2 * F * E), dra_call_bytes(c)};
}

/* A tile reads its part of the first state into the last one before all else. */
static uint32_t takes(const void *attr, int out)
{
    const dra_moment_attr *a = attr;
    const int              from = out == S_LAST ? a->S : out == Z_LAST ? a->z : 0;
    return from ? 1u << from : 0;
}

const dra_op dra_op_moment = {.name = "moment",
                              .n_in = DRA_MANY,
                              .n_out = OUTPUTS,
                              .attr_size = sizeof(dra_moment_attr),
                              .infer = infer,
                              .gradient = gradient,
                              .cost = cost};

const dra_cpu_kernel dra_cpu_moment = {
    .base = {.op = "moment",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch,
             .takes = takes},
    .tiles = dra_chunk_tiles,
    .tile = tile,
};

/* ---- builder --------------------------------------------------------------------------------- */

static bool fits(dra_graph *g, const dra_moment_config *m, dra_chunk_inputs *x)
{
    if (!dra_chunk_check(g, "moment", x)) return false;
    const int64_t *q = dra_type_of(g, m->q)->shape.dim;
    if (!(m->eps >= 0 && m->least >= 0 && isfinite(m->eps) && isfinite(m->least)))
        dra_build_fail(g, "moment", DRA_ERR_VALUE, "eps is %g, least %g, expected 0 or more",
                       m->eps, m->least);
    else if (m->z.id && !m->normalise)
        dra_build_fail(g, "moment", DRA_ERR_VALUE, "z is given, but nothing is normalised");
    if (dra_graph_failed(g)) return false;
    return !m->z.id ||
           (dra_check_values(g, "moment", 1, &m->z) &&
            dra_recur_expect(g, "moment", "z", m->z, DRA_REAL, DRA_SHAPE(q[0], q[2], q[3])));
}

dra_value dra_moment(dra_graph *g, const dra_moment_config *m, dra_value *S_last, dra_value *z_last)
{
    dra_chunk_inputs x = {m->q, m->k, m->v, m->l, m->S, m->mark};
    dra_moment_attr  a = {
         .eps = m->eps, .least = m->least, .normalise = m->normalise, .jumps = m->jumps};
    dra_value in[DRA_MOMENT_OPTIONS + 4] = {m->q, m->k, m->v};
    int       n = DRA_MOMENT_OPTIONS;
    if (S_last) *S_last = (dra_value){0};
    if (z_last) *z_last = (dra_value){0};
    if (!fits(g, m, &x)) return (dra_value){0};
    a.l = dra_chunk_append(x.l, in, &n);
    a.S = dra_chunk_append(m->S, in, &n);
    a.z = dra_chunk_append(m->z, in, &n);
    a.mark = dra_chunk_append(m->mark, in, &n);
    const dra_node *node = dra_node_add(g, &dra_op_moment, n, in, &a);
    if (!node) return (dra_value){0};
    if (S_last) *S_last = node->out[S_LAST];
    if (z_last && m->normalise) *z_last = node->out[Z_LAST];
    return node->out[Y];
}
