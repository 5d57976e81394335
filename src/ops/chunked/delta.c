/* delta: writes only what the key does not recall yet. [Schlag et al. 2021; Yang et al. 2024:
 * Parallelizing linear transformers with the delta rule over sequence length]
 *   S' = e^(l_t) S_{t-1},  w_t = v_t - S'^T k_t,  S_t = S' + k_t (b_t w_t)^T,  y_t = S_t^T q_t
 * A chunk of tokens at once, its first state S_0, with D, p, last and fade of chunk.h and o, which
 * multiplies by elements or rows: what token t misses depends on the writes of the chunk before it,
 *   w = v - p o (k S_0) - A (b o w),  A = (k k^T) o D below the diagonal
 * solved forwards. Row by row this repeats the sums of the recurrence, bounded for |k| = 1 and
 * 0 < b < 1; no inverse is formed. With the writes u = b o w
 *   y = G u + p o (q S_0),  G = (q k^T) o D,   S = S_0 + fade S_0 + k^T (last o u)
 * w and the states before each chunk are outputs, for the gradient (delta_back.c), which reads w in
 * the place of v. A tile is one head of one row of the batch; in two stages (chunk.h) first columns
 * of these, then y of some chunks. */
#include "ops/chunked/delta.h"
#include "ops/chunked/dplr.h"

enum { Q, K, V, B, OPTIONS };
enum { Y, LAST, MISS, BORDERS, OUTPUTS };

static dra_status infer_delta(dra_graph *g, const dra_node *n, dra_type *out)
{
    const int64_t *q = dra_type_of(g, n->in[Q])->shape.dim;
    const int64_t  E = dra_type_of(g, n->in[V])->shape.dim[3];
    out[Y] = out[MISS] = *dra_type_of(g, n->in[V]);
    out[LAST] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[2], q[3], E)};
    out[BORDERS] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[2], dra_chunks(q[1]), q[3], E)};
    return DRA_OK;
}

void dra_delta_strengths(const dra_chunk *k, const dra_tensor *b, real *to)
{
    for (int64_t t = 0; t < k->n; t++)
        to[t] = dra_chunk_pad(k, t) ? 0 : *dra_recur_at(b, k->b, k->t + t, k->h);
}

void dra_delta_overlaps(const dra_chunk *k, const dra_decay *d, int64_t W, dra_matrix_block a,
                        dra_matrix_block b, real *A)
{
    dra_chunk_pairs(k->simd, k->n, W, a, b, A);
    dra_decay_apply(d, k->simd, NULL, A);
    for (int64_t t = 0; t < k->n; t++) A[t * DRA_CHUNK + t] = 0;
}

/* ---- solutions: halves, and what one adds to the other: nearly all is products --------------- */

enum { FEW = 4 }; /* rows solved one by one */

static dra_matrix_block part_of(dra_matrix_block m, int64_t row, int64_t col)
{
    return (dra_matrix_block){m.at + row * m.row + col * m.col, m.row, m.col};
}

void dra_delta_solve(const dra_simd *simd, int64_t n, int64_t E, dra_matrix_block N,
                     dra_matrix_block x)
{
    const int64_t          half = n / 2;
    const dra_matrix_block rest = part_of(x, half, 0);
    for (int64_t t = 1; t < n && n <= FEW; t++)
        for (int64_t s = 0; s < t; s++)
            simd->axpy(E, N.at[t * N.row + s], x.at + s * x.row, x.at + t * x.row);
    if (n <= FEW) return;
    dra_delta_solve(simd, half, E, N, x);
    dra_matrix_block_multiply(simd, n - half, E, half, part_of(N, half, 0), x, rest, true);
    dra_delta_solve(simd, n - half, E, part_of(N, half, half), rest);
}

void dra_delta_solve_back(const dra_simd *simd, int64_t n, int64_t E, dra_matrix_block N,
                          dra_matrix_block x)
{
    const int64_t          half = n / 2;
    const dra_matrix_block rest = part_of(x, half, 0),
                           left = dra_matrix_block_transposed(part_of(N, half, 0));
    for (int64_t t = n - 1; t > 0 && n <= FEW; t--)
        for (int64_t s = 0; s < t; s++)
            simd->axpy(E, N.at[t * N.row + s], x.at + t * x.row, x.at + s * x.row);
    if (n <= FEW) return;
    dra_delta_solve_back(simd, n - half, E, part_of(N, half, half), rest);
    dra_matrix_block_multiply(simd, half, E, n - half, left, rest, x, true);
    dra_delta_solve_back(simd, half, E, N, x);
}

/* ---- one chunk ------------------------------------------------------------------------------- */

typedef struct walk {
    dra_chunk_walk        base;
    const dra_delta_attr *a;
    dra_tensor            values, misses;        /* v and w, or columns of them */
    dra_matrix_block      q, k, v, miss, writes; /* of the chunk */
    dra_decay             d;
    real                  b[DRA_CHUNK], A[DRA_CHUNK * DRA_CHUNK]; /* A, then G */
} walk;

/* Rows of a chunk in scratch: two of width F, then three of width E; then a state. */
static int64_t row_numbers(int64_t F, int64_t E) { return DRA_CHUNK * (2 * F + 3 * E); }

static int64_t room_size(int64_t F, int64_t E)
{
    return dra_div_up(F * E + row_numbers(F, E), 16) * 16;
}

static void open_chunk(walk *w, const dra_chunk *k)
{
    const dra_call *c = w->base.c;
    real           *wide = w->base.room + DRA_CHUNK * 2 * w->base.F;
    w->q = dra_chunk_rows(k, &c->in[Q], w->base.room);
    w->k = dra_chunk_rows(k, &c->in[K], w->base.room + DRA_CHUNK * w->base.F);
    w->v = dra_chunk_rows(k, &w->values, wide);
    w->miss = dra_chunk_out(k, &w->misses, wide + DRA_CHUNK * w->base.E);
    w->writes = (dra_matrix_block){wide + DRA_CHUNK * 2 * w->base.E, w->base.E, 1};
    dra_delta_strengths(k, &c->in[B], w->b);
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
}

/* w */
static void find_misses(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block N = {w->A, DRA_CHUNK, 1};
    real                   minus[DRA_CHUNK];
    for (int64_t t = 0; t < k->n; t++) minus[t] = -w->b[t];
    dra_delta_overlaps(k, &w->d, w->base.F, w->k, w->k, w->A);
    for (int64_t t = 0; t < k->n; t++)
        simd->mul(t, w->A + t * DRA_CHUNK, minus, w->A + t * DRA_CHUNK);
    dra_matrix_block_multiply(simd, k->n, w->base.E, w->base.F, w->k, w->base.S, w->miss, false);
    for (int64_t t = 0; t < k->n; t++) {
        real *row = w->miss.at + t * w->miss.row;
        simd->combine(w->base.E, 1, w->v.at + t * w->v.row, w->d.p[t], row, 0, row);
    }
    dra_delta_solve(simd, k->n, w->base.E, N, w->miss);
}

/* u */
static void weigh_writes(const walk *w, const dra_chunk *k)
{
    dra_matrix_block_scaled(k->simd, k->n, w->base.E, w->b, w->miss, w->writes.at);
}

static void read_outputs(walk *w, const dra_chunk *k)
{
    const dra_tensor *y = &w->base.c->out[Y];
    if (!y->data) return;
    const dra_matrix_block to = dra_chunk_out(k, y, NULL);
    dra_chunk_pairs(k->simd, k->n, w->base.F, w->q, w->k, w->A);
    dra_decay_apply(&w->d, k->simd, NULL, w->A);
    dra_matrix_block_multiply(k->simd, k->n, w->base.E, w->base.F, w->q, w->base.S, to, false);
    if (!w->d.plain) dra_matrix_block_scale(k->simd, k->n, w->base.E, w->d.p, to);
    dra_chunk_below(k->simd, k->n, w->base.E, w->A, w->writes, to, true);
}

static void write_state(dra_chunk_walk *base, const dra_chunk *k)
{
    walk *w = (walk *)base;
    if (!w->d.plain) {
        dra_decay_state(&w->d, k->simd, w->base.F, w->base.E, w->base.S);
        dra_matrix_block_scale(k->simd, k->n, w->base.E, w->d.last, w->writes);
    }
    dra_matrix_block_multiply(k->simd, w->base.F, w->base.E, k->n,
                              dra_matrix_block_transposed(w->k), w->writes, w->base.S, true);
}

static void cut_columns(dra_chunk_walk *base, int64_t first)
{
    walk *w = (walk *)base;
    w->values = dra_chunk_columns(&w->values, first, base->E);
    w->misses = dra_chunk_columns(&w->misses, first, base->E);
}

static void read_state(dra_chunk_walk *base, const dra_chunk *k, int64_t i)
{
    walk *w = (walk *)base;
    open_chunk(w, k);
    if (base->part != DRA_CHUNK_INSIDE) find_misses(w, k);
    weigh_writes(w, k);
    if (base->part != DRA_CHUNK_PASS) read_outputs(w, k);
}

static const dra_chunk_steps steps = {
    .tokens = DRA_CHUNK, .cut_columns = cut_columns, .read = read_state, .write = write_state};

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages plan_stages(const dra_call *c)
{
    const int64_t        T = c->in[Q].shape.dim[1], E = dra_last(&c->in[V]);
    const dra_chunk_work work = {50, 15, 50};
    return dra_chunk_stages_of(c, dra_chunk_heads(c), dra_chunks(T), E, work);
}

/* Scratch of the tiles and, in two stages, the states before all chunks, unless they are an
 * output. */
static size_t scratch_size(const dra_call *c)
{
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    const dra_chunk_stages s = plan_stages(c);
    return dra_chunk_scratch(&s, room_size(F, E), s.chunks * F * E);
}

/* Where w is no output, it is kept in the memory of y between the stages. */
static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_delta_attr *a = c->attr;
    const int64_t         F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    w->base = (dra_chunk_walk){.F = F,
                               .E = E,
                               .mark = dra_chunk_option(c, a->mark),
                               .first = dra_chunk_option(c, a->S),
                               .last = c->out[LAST],
                               .borders = c->out[BORDERS]};
    real *rest = dra_chunk_open(&w->base, c, s, room_size(F, E), tile);
    w->base.spare = w->base.room + row_numbers(F, E);
    if (s->two && !w->base.borders.data) w->base.borders.data = rest;
    w->a = a, w->values = c->in[V];
    w->misses = c->out[s->two && !c->out[MISS].data ? Y : MISS];
    w->d.n = 0, w->d.jumps = false;
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

static void derive_delta(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_delta_attr *a = n->attr;
    dra_delta_attr        b;
    dra_value             in[DRA_DELTA_BACK_OPTIONS + 3], none = {0};
    int                   m = DRA_DELTA_BACK_OPTIONS;
    in[DRA_DELTA_BACK_Q] = n->in[Q];
    in[DRA_DELTA_BACK_K] = n->in[K];
    in[DRA_DELTA_BACK_B] = n->in[B];
    in[DRA_DELTA_BACK_MISS] = n->out[MISS];
    in[DRA_DELTA_BACK_BORDERS] = n->out[BORDERS];
    in[DRA_DELTA_BACK_DY] = dra_recur_upstream(g, dy[Y], n->out[Y]);
    b.S = dra_chunk_append(dy[LAST], in, &m);
    b.l = dra_chunk_append(a->l ? n->in[a->l] : none, in, &m);
    b.mark = dra_chunk_append(a->mark ? n->in[a->mark] : none, in, &m);
    const dra_node *back = dra_node_add(g, &dra_op_delta_back, m, in, &b);
    if (!back) return;
    for (int i = Q; i <= B; i++) dx[i] = back->out[i];
    if (a->l) dx[a->l] = back->out[DRA_DELTA_DL];
    if (a->S) dx[a->S] = back->out[DRA_DELTA_DS];
}

/* Pairs of tokens s <= t inside chunks: A and G over F, the solution and G u over E; three products
 * of a token with F E numbers of the state. */
static dra_cost cost_delta(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double pairs = dra_chunk_pair_count(c, DRA_CHUNK), tokens = (double)dra_rows(&c->in[Q]);
    return (dra_cost){2 * (pairs * 2 * (F + E) + tokens * 3 * F * E), dra_call_bytes(c)};
}

/* A tile reads its part of the first state into the last one before all else. */
static uint32_t take_delta_inputs(const void *attr, int out)
{
    const dra_delta_attr *a = attr;
    return out == LAST && a->S ? 1u << a->S : 0;
}

const dra_op dra_op_delta = {.name = "delta",
                             .n_in = DRA_MANY,
                             .n_out = OUTPUTS,
                             .attr_size = sizeof(dra_delta_attr),
                             .infer = infer_delta,
                             .gradient = derive_delta,
                             .cost = cost_delta};

const dra_cpu_kernel dra_cpu_delta = {
    .base = {.op = "delta",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch_size,
             .takes = take_delta_inputs},
    .tiles = count_tiles,
    .tile = walk_tile,
    .stages = count_stages,
};

/* ---- builder --------------------------------------------------------------------------------- */

static bool check_delta(dra_graph *g, const dra_delta_config *m, dra_chunk_inputs *x)
{
    const bool      free = m->recall.id || m->replace.id;
    const dra_value rest[] = {m->recall, m->replace};
    if (!dra_chunk_check(g, "delta", x)) return false;
    const dra_shape q = dra_type_of(g, m->q)->shape;
    if (free && m->b.id)
        dra_build_fail(g, "delta", DRA_ERR_VALUE, "b is given, which recall and replace exclude");
    else if (free && !(m->recall.id && m->replace.id))
        dra_build_fail(g, "delta", DRA_ERR_VALUE, "%s is given, expected %s as well",
                       m->recall.id ? "recall" : "replace", m->recall.id ? "replace" : "recall");
    if (dra_graph_failed(g) || !dra_check_values(g, "delta", free ? 2 : 1, free ? rest : &m->b))
        return false;
    if (free)
        return dra_recur_expect(g, "delta", "recall", m->recall, DRA_REAL, q) &&
               dra_recur_expect(g, "delta", "replace", m->replace, DRA_REAL, q);
    return dra_recur_expect(g, "delta", "b", m->b, DRA_REAL,
                            DRA_SHAPE(q.dim[0], q.dim[1], q.dim[2]));
}

/* (B, T, H) times x (B, T, H, ..) */
static dra_value scale_rows(dra_graph *g, dra_value b, dra_value x)
{
    const dra_shape s = dra_shape_of(g, b);
    return dra_mul(g, dra_reshape(g, b, DRA_SHAPE(s.dim[0], s.dim[1], s.dim[2], 1)), x);
}

/* The delta rule with decays by channel recalls by a = e^l o k and replaces by c = -b k. Pads may
 * hold anything: what is computed of them is not to reach a gradient. */
static dra_value by_channel(dra_graph *g, const dra_delta_config *m, dra_value l, dra_value *S_last)
{
    dra_dplr_inputs x = {.q = m->q,
                         .k = m->k,
                         .v = m->v,
                         .l = l,
                         .a = m->recall,
                         .c = m->replace,
                         .S = m->S,
                         .mark = m->mark};
    if (!m->recall.id) {
        const dra_value b = dra_dplr_at_pads(g, m->mark, m->b, 0);
        x.k = dra_dplr_at_pads(g, m->mark, m->k, 0);
        x.a = dra_mul(g, dra_exp(g, dra_dplr_at_pads(g, m->mark, l, 0)), x.k);
        x.c = dra_neg(g, scale_rows(g, b, x.k));
        x.v = scale_rows(g, b, dra_dplr_at_pads(g, m->mark, m->v, 0));
    }
    return dra_dplr(g, &x, S_last);
}

dra_value dra_delta(dra_graph *g, const dra_delta_config *m, dra_value *S_last)
{
    dra_chunk_inputs x = {m->q, m->k, m->v, m->l, m->S, m->mark};
    dra_value        in[OPTIONS + 3] = {m->q, m->k, m->v, m->b};
    int              n = OPTIONS;
    if (S_last) *S_last = (dra_value){0};
    if (!check_delta(g, m, &x)) return (dra_value){0};
    if (m->recall.id || dra_dplr_by_channel(g, x.l)) return by_channel(g, m, x.l, S_last);
    dra_delta_attr a;
    a.l = dra_chunk_append(x.l, in, &n);
    a.S = dra_chunk_append(m->S, in, &n);
    a.mark = dra_chunk_append(m->mark, in, &n);
    const dra_node *node = dra_node_add(g, &dra_op_delta, n, in, &a);
    if (node && S_last) *S_last = node->out[LAST];
    return node ? node->out[Y] : (dra_value){0};
}
