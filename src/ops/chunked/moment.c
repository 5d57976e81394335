/* moment: sums of outer products that fade, read by queries. [Katharopoulos et al. 2020; Sun et al.
 * 2023: RetNet; Yang et al. 2024: gated linear attention]
 *   S_t = e^(l_t) S_{t-1} + k_t v_t^T,  z_t = e^(l_t) z_{t-1} + k_t
 *   y_t = S_t^T q_t, where normalised divided by den_t = q_t.z_t + eps, at least `least`
 * A chunk of tokens at once, its first state S_0, with D, p, last and fade of chunk.h:
 *   A = (q k^T) o D,  num = A v + p o (q S_0),  den = A 1 + p o (q z_0) + eps
 *   S = S_0 + fade S_0 + k^T (last o v),  z = z_0 + fade z_0 + k^T last
 * where o multiplies by elements or rows. The states before each chunk are an output, for the
 * gradient (moment_back.c). A tile is one head of one row of the batch; in two stages (chunk.h)
 * first columns of these states, then y of some chunks. */
#include <math.h>

#include "ops/chunked/dplr.h"
#include "ops/chunked/moment.h"

enum { Q = DRA_MOMENT_Q, K = DRA_MOMENT_K, V = DRA_MOMENT_V };
enum { Y, S_LAST, Z_LAST, BORDERS, Z_BORDERS, OUTPUTS };

static dra_status infer_moment(dra_graph *g, const dra_node *n, dra_type *out)
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

/* ---- one chunk ------------------------------------------------------------------------------- */

typedef struct walk {
    dra_chunk_walk         base; /* its room: a chunk of v, q, k and v, a state */
    const dra_moment_attr *a;
    dra_tensor             values;  /* v, or columns of it */
    dra_matrix_block       q, k, v; /* of the chunk */
    dra_decay              d;
    real                   A[DRA_CHUNK * DRA_CHUNK];
} walk;

static void open_chunk(walk *w, const dra_chunk *k)
{
    const dra_call *c = w->base.c;
    real           *rows = w->base.room + DRA_CHUNK * w->base.E;
    w->q = dra_chunk_rows(k, &c->in[Q], rows);
    w->k = dra_chunk_rows(k, &c->in[K], rows + DRA_CHUNK * w->base.F);
    w->v = dra_chunk_rows(k, &w->values, rows + DRA_CHUNK * 2 * w->base.F);
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
}

static void read_outputs(walk *w, const dra_chunk *k)
{
    const dra_tensor *y = &w->base.c->out[Y];
    const dra_simd   *simd = k->simd;
    real              den[DRA_CHUNK];
    if (!y->data) return;
    const dra_matrix_block to = dra_chunk_out(k, y, NULL);
    dra_moment_weights(k, w->a, &w->d, w->base.F, w->q, w->k, w->base.z, w->A, den);
    dra_matrix_block_multiply(simd, k->n, w->base.E, w->base.F, w->q, w->base.S, to, false);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->base.E, w->d.p, to);
    dra_chunk_below(simd, k->n, w->base.E, w->A, w->v, to, true);
    for (int64_t t = 0; t < k->n && w->a->normalise; t++)
        simd->scale(w->base.E, 1 / den[t], to.at + t * to.row);
}

static void write_state(dra_chunk_walk *base, const dra_chunk *k)
{
    walk            *w = (walk *)base;
    const dra_simd  *simd = k->simd;
    dra_matrix_block v = w->v;
    if (!w->d.plain) {
        dra_decay_state(&w->d, simd, w->base.F, w->base.E, w->base.S);
        v = dra_matrix_block_scaled(simd, k->n, w->base.E, w->d.last, v, w->base.room);
    }
    dra_matrix_block_multiply(simd, w->base.F, w->base.E, k->n, dra_matrix_block_transposed(w->k),
                              v, w->base.S, true);
    if (!w->base.z) return;
    dra_decay_state(&w->d, simd, 1, w->base.F, (dra_matrix_block){w->base.z, w->base.F, 1});
    for (int64_t t = 0; t < k->n; t++)
        simd->axpy(w->base.F, w->d.last[t], w->k.at + t * w->k.row, w->base.z);
}

static void cut_columns(dra_chunk_walk *base, int64_t first)
{
    walk *w = (walk *)base;
    w->values = dra_chunk_columns(&w->values, first, base->E);
}

static void read_state(dra_chunk_walk *base, const dra_chunk *k, int64_t i)
{
    walk *w = (walk *)base;
    open_chunk(w, k);
    if (base->part != DRA_CHUNK_PASS) read_outputs(w, k);
}

static const dra_chunk_steps steps = {
    .tokens = DRA_CHUNK, .cut_columns = cut_columns, .read = read_state, .write = write_state};

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages plan_stages(const dra_call *c)
{
    const int64_t        T = c->in[Q].shape.dim[1], E = dra_last(&c->in[V]);
    const dra_chunk_work work = {45, 5, 65};
    return dra_chunk_stages_of(c, dra_chunk_heads(c), dra_chunks(T), E, work);
}

static int64_t row_numbers(int64_t F, int64_t E) { return DRA_CHUNK * 2 * (F + E); }

static int64_t room_size(int64_t F, int64_t E)
{
    return dra_div_up(F * E + F + row_numbers(F, E), 16) * 16;
}

/* Scratch of the tiles and, in two stages, the states before all chunks, unless they are an
 * output. */
static size_t scratch_size(const dra_call *c)
{
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    const dra_chunk_stages s = plan_stages(c);
    return dra_chunk_scratch(&s, room_size(F, E), s.chunks * F * (E + 1));
}

static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_moment_attr *a = c->attr;
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    w->base = (dra_chunk_walk){.F = F,
                               .E = E,
                               .mark = dra_chunk_option(c, a->mark),
                               .first = dra_chunk_option(c, a->S),
                               .z_first = dra_chunk_option(c, a->z),
                               .last = c->out[S_LAST],
                               .z_last = c->out[Z_LAST],
                               .borders = c->out[BORDERS],
                               .z_borders = c->out[Z_BORDERS],
                               .normalised = a->normalise};
    real *rest = dra_chunk_open(&w->base, c, s, room_size(F, E), tile);
    w->base.spare = w->base.room + row_numbers(F, E);
    if (s->two && !w->base.borders.data) w->base.borders.data = rest;
    if (s->two && !w->base.z_borders.data)
        w->base.z_borders.data = rest + s->heads * s->chunks * F * E;
    w->a = a, w->values = c->in[V];
    w->d.n = 0, w->d.jumps = a->jumps;
}

static int64_t count_stages(const dra_call *c) { return dra_chunk_stage_count(plan_stages(c)); }

static int64_t count_tiles(const dra_call *c) { return dra_chunk_tile_count(c, plan_stages(c)); }

static void walk_tile(const dra_call *c, int64_t tile)
{
    const dra_chunk_stages s = plan_stages(c);
    walk                   w;
    open_walk(&w, c, &s, tile);
    dra_chunk_walk_tile(&w.base, &steps, &s, tile);
}

/* ---- the op ---------------------------------------------------------------------------------- */

static void derive_moment(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
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
static dra_cost cost_moment(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double pairs = dra_chunk_pair_count(c, DRA_CHUNK), tokens = (double)dra_rows(&c->in[Q]);
    return (dra_cost){2 * (pairs * (F + E) + tokens * 2 * F * E), dra_call_bytes(c)};
}

/* A tile reads its part of the first state into the last one before all else. */
static uint32_t take_moment_inputs(const void *attr, int out)
{
    const dra_moment_attr *a = attr;
    const int              from = out == S_LAST ? a->S : out == Z_LAST ? a->z : 0;
    return from ? 1u << from : 0;
}

const dra_op dra_op_moment = {.name = "moment",
                              .n_in = DRA_MANY,
                              .n_out = OUTPUTS,
                              .attr_size = sizeof(dra_moment_attr),
                              .infer = infer_moment,
                              .gradient = derive_moment,
                              .cost = cost_moment};

const dra_cpu_kernel dra_cpu_moment = {
    .base = {.op = "moment",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch_size,
             .takes = take_moment_inputs},
    .tiles = count_tiles,
    .tile = walk_tile,
    .stages = count_stages,
};

/* ---- builder --------------------------------------------------------------------------------- */

static bool check_numbers(dra_graph *g, const dra_moment_config *m)
{
    if (!(m->eps >= 0 && m->least >= 0 && isfinite(m->eps) && isfinite(m->least)))
        dra_build_fail(g, "moment", DRA_ERR_VALUE, "eps is %g, least %g, expected 0 or more",
                       m->eps, m->least);
    else if (m->z.id && !m->normalise)
        dra_build_fail(g, "moment", DRA_ERR_VALUE, "z is given, but nothing is normalised");
    else if (m->u.id && m->normalise)
        dra_build_fail(g, "moment", DRA_ERR_VALUE, "u is given, which cannot be normalised");
    return !dra_graph_failed(g);
}

static bool check_moment(dra_graph *g, const dra_moment_config *m, dra_chunk_inputs *x)
{
    dra_value rest[2];
    int       n = 0;
    if (!dra_chunk_check(g, "moment", x) || !check_numbers(g, m)) return false;
    const int64_t *q = dra_type_of(g, m->q)->shape.dim, B = q[0], H = q[2], F = q[3];
    dra_chunk_append(m->z, rest, &n);
    dra_chunk_append(m->u, rest, &n);
    return (!n || dra_check_values(g, "moment", n, rest)) &&
           (!m->z.id || dra_recur_expect(g, "moment", "z", m->z, DRA_REAL, DRA_SHAPE(B, H, F))) &&
           (!m->u.id || dra_recur_expect(g, "moment", "u", m->u, DRA_REAL, DRA_SHAPE(H, F)));
}

static dra_value make_ones(dra_graph *g, dra_shape shape)
{
    return dra_broadcast(g, dra_number(g, 1), shape);
}

/* Where decays have channels, z is one more column of S, which is written with 1. */
static dra_value normalise_outputs(dra_graph *g, const dra_moment_config *m,
                                   const dra_dplr_inputs *x, dra_value *S_last, dra_value *z_last)
{
    const dra_shape q = dra_shape_of(g, x->q);
    const int64_t   B = q.dim[0], T = q.dim[1], H = q.dim[2], F = q.dim[3];
    const int64_t   E = dra_shape_of(g, x->v).dim[3];
    const dra_shape column = DRA_SHAPE(B, H, F, 1);
    const dra_value v[] = {x->v, make_ones(g, DRA_SHAPE(B, T, H, 1))};
    const dra_value S[] = {x->S.id ? x->S : dra_zeros(g, DRA_SHAPE(B, H, F, E)),
                           m->z.id ? dra_reshape(g, m->z, column) : dra_zeros(g, column)};
    dra_dplr_inputs wide = *x;
    dra_value       last = {0};
    wide.v = dra_concat(g, 2, v, 3);
    if (m->S.id || m->z.id) wide.S = dra_concat(g, 2, S, 3);
    const dra_value y = dra_dplr(g, &wide, &last);
    if (dra_graph_failed(g)) return y;
    if (S_last) *S_last = dra_slice(g, last, 3, 0, E);
    if (z_last) *z_last = dra_reshape(g, dra_slice(g, last, 3, E, 1), DRA_SHAPE(B, H, F));
    const dra_value sum = dra_affine(g, dra_slice(g, y, 3, E, 1), 1, m->eps);
    const dra_value den = m->least > 0 ? dra_maximum(g, dra_number(g, m->least), sum) : sum;
    return dra_div(g, dra_slice(g, y, 3, 0, E), dra_dplr_at_pads(g, x->mark, den, 1));
}

static dra_value by_channel(dra_graph *g, const dra_moment_config *m, dra_value l,
                            dra_value *S_last, dra_value *z_last)
{
    const dra_dplr_inputs x = {
        .q = m->q, .k = m->k, .v = m->v, .l = l, .u = m->u, .S = m->S, .mark = m->mark};
    return m->normalise ? normalise_outputs(g, m, &x, S_last, z_last) : dra_dplr(g, &x, S_last);
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
    if (!check_moment(g, m, &x)) return (dra_value){0};
    if (m->u.id || dra_dplr_by_channel(g, x.l)) return by_channel(g, m, x.l, S_last, z_last);
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
