/* dplr: matrices that fade by channel and may be corrected by rank one, see dplr.h. [Peng et al.
 * 2024: RWKV-5 and 6; Yang et al. 2024: gated linear attention; Peng et al. 2025: RWKV-7]
 * A chunk of tokens at once, its first state S_0. x reads before the decay of its token: x = q with
 * u, else x = d q; A_xz are pairs of fade.h, of which A_xk and A_xc have a diagonal, q_t.z_t or
 * q_t.(u z_t); r() and w() carry readers and writers to the borders of the chunk.
 *   p = A_ac p + A_ak v + r(a) S_0          solved from the first row to the last
 *   y = A_xc p + A_xk v + r(x) S_0          S = d_0 .. d_{n-1} S_0 + w(c)^T p + w(k)^T v
 * The states before each chunk and p are outputs, for the gradient (dplr_back.c). A tile is one
 * head of one row of the batch; in two stages (chunk.h) first columns of these, then y of some
 * chunks. */
#include "ops/chunked/delta.h"
#include "ops/chunked/dplr.h"

enum { Q = DRA_DPLR_Q, K = DRA_DPLR_K, V = DRA_DPLR_V };
enum {
    Y = DRA_DPLR_Y,
    LAST = DRA_DPLR_LAST,
    RECALLED = DRA_DPLR_RECALLED,
    BORDERS = DRA_DPLR_BORDERS
};

static dra_status infer_dplr(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_dplr_attr *a = n->attr;
    const int64_t       *q = dra_type_of(g, n->in[Q])->shape.dim;
    const int64_t        E = dra_type_of(g, n->in[V])->shape.dim[3];
    out[Y] = *dra_type_of(g, n->in[V]);
    out[LAST] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[2], q[3], E)};
    out[RECALLED] = (dra_type){DRA_REAL, a->a ? out[Y].shape : DRA_SHAPE(0)};
    out[BORDERS] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[2], dra_dplr_chunks(q[1]), q[3], E)};
    return DRA_OK;
}

/* ---- readers --------------------------------------------------------------------------------- */

const real *dra_dplr_bonus(const dra_call *c, int64_t h)
{
    const dra_dplr_attr *a = c->attr;
    return a->u ? (const real *)c->in[a->u].data + h * c->in[a->u].stride[0] : NULL;
}

static bool has_reset(const dra_chunk *k)
{
    for (int64_t t = 0; t < k->n && k->mark; t++)
        if (k->mark[t] & DRA_MARK_RESET) return true;
    return false;
}

void dra_dplr_clear_resets(const dra_chunk *k, int64_t W, dra_matrix_block m)
{
    for (int64_t t = 0; t < k->n && k->mark; t++)
        if (k->mark[t] & DRA_MARK_RESET) dra_recur_clear(W, m.at + t * m.row);
}

static dra_matrix_block without_resets(const dra_chunk *k, int64_t F, dra_matrix_block x,
                                       real *room)
{
    const dra_matrix_block own = {room, F, 1};
    if (!has_reset(k)) return x;
    dra_matrix_block_copy(k->n, F, x, own);
    dra_dplr_clear_resets(k, F, own);
    return own;
}

dra_matrix_block dra_dplr_before(const dra_chunk *k, const dra_tensor *x, real *room)
{
    return without_resets(k, dra_last(x), dra_chunk_rows(k, x, room), room);
}

dra_matrix_block dra_dplr_readers(const dra_chunk *k, const dra_call *c, const dra_fade *f,
                                  dra_matrix_block q, real *room)
{
    const dra_dplr_attr *a = c->attr;
    if (a->u) return without_resets(k, f->F, q, room);
    f->loops->decayed(k->n, f->F, f->d, q.at, q.row, room);
    return (dra_matrix_block){room, f->F, 1};
}

dra_fade_own dra_dplr_own(const dra_chunk *k, const dra_call *c, dra_matrix_block q,
                          const dra_fade_sides *s, int reader)
{
    dra_fade_own p = {.n = k->n, .F = dra_last(&c->in[Q]), .keys = s->keys};
    p.q = q.at, p.q_row = q.row, p.u = dra_dplr_bonus(c, k->h);
    for (int j = 0; j < s->keys; j++) {
        p.z[j] = s->z[j].at, p.z_row[j] = s->z[j].row;
        p.A[j] = s->A[reader][j];
    }
    return p;
}

void dra_dplr_diagonals(const dra_chunk *k, const dra_call *c, const dra_fade *f,
                        dra_matrix_block q, const dra_fade_sides *s, int reader)
{
    const dra_fade_own p = dra_dplr_own(k, c, q, s, reader);
    f->loops->own(&p);
}

/* ---- one chunk ------------------------------------------------------------------------------- */

typedef struct walk {
    dra_chunk_walk       base;
    const dra_dplr_attr *a;
    dra_tensor           values, recalls;     /* v and p, or columns of them */
    dra_matrix_block     q, w[DRA_FADE_KEYS]; /* of the chunk; w: what keys write, v and p */
    dra_fade_sides       s;                   /* readers a, x, one of them or both; keys k, c */
    real                *carried;             /* r() of the readers */
    dra_fade             f;
} walk;

enum { ROOM_Q, ROOM_K, ROOM_C, ROOM_A, ROOM_X, ROOM_CARRIED, ROOM_MORE, ROOM_V, ROOM_P, ROOMS };
enum { PAIRS = DRA_FADE_READERS * DRA_FADE_KEYS };

/* Rows of a chunk in scratch: some of width F (carried ones of two kinds), then two of width E;
 * then pairs, decays, a state. */
static real *find_room(const walk *w, int which)
{
    const int64_t wide = which < ROOM_V ? which : ROOM_V, rest = which - wide;
    return w->base.room + DRA_DPLR_CHUNK * (wide * w->base.F + rest * w->base.E);
}

static int64_t room_size(int64_t F, int64_t E)
{
    const int64_t rows = ROOM_V * F + (ROOMS - ROOM_V) * E + PAIRS * DRA_CHUNK;
    return dra_div_up(DRA_DPLR_CHUNK * rows + dra_fade_room(F) + F * E, 16) * 16;
}

static void open_chunk(walk *w, const dra_chunk *k)
{
    const dra_call *c = w->base.c;
    w->q = dra_chunk_rows(k, &c->in[Q], find_room(w, ROOM_Q));
    w->s.z[0] = dra_chunk_rows(k, &c->in[K], find_room(w, ROOM_K));
    w->w[0] = dra_chunk_rows(k, &w->values, find_room(w, ROOM_V));
    if (w->a->c) {
        w->s.z[1] = dra_chunk_rows(k, &c->in[w->a->c], find_room(w, ROOM_C));
        w->w[1] = dra_chunk_out(k, &w->recalls, find_room(w, ROOM_P));
    }
    dra_fade_make(&w->f, k, dra_chunk_option(c, w->a->l));
}

/* The readers, their pairs with the writers, and what they see of a state: a, if p is wanted,
 * then q, if y is. */
static void open_readers(walk *w, const dra_chunk *k, bool p, bool y)
{
    const dra_call *c = w->base.c;
    dra_fade_sides *s = &w->s;
    s->readers = 0;
    if (p && w->a->a)
        s->x[s->readers++] = dra_dplr_before(k, &c->in[w->a->a], find_room(w, ROOM_A));
    if (y && c->out[Y].data)
        s->x[s->readers++] = dra_dplr_readers(k, c, &w->f, w->q, find_room(w, ROOM_X));
    if (s->readers == 0) return;
    w->carried = dra_fade_readers(&w->f, s->readers, s->x, find_room(w, ROOM_CARRIED)).at;
    dra_fade_pairs(&w->f, s);
}

/* to = r(x) S_0 of reader i. */
static void recall_state(const walk *w, const dra_chunk *k, int i, dra_matrix_block to)
{
    const dra_matrix_block carried = {w->carried + i * k->n * w->base.F, w->base.F, 1};
    dra_matrix_block_multiply(k->simd, k->n, w->base.E, w->base.F, carried, w->base.S, to, false);
}

/* p */
static void solve_recalls(walk *w, const dra_chunk *k)
{
    const dra_matrix_block N = {w->s.A[0][1], DRA_CHUNK, 1};
    if (!w->a->a) return;
    recall_state(w, k, 0, w->w[1]);
    dra_chunk_below(k->simd, k->n, w->base.E, w->s.A[0][0], w->w[0], w->w[1], true);
    dra_delta_solve(k->simd, k->n, w->base.E, N, w->w[1]);
}

static void read_outputs(walk *w, const dra_chunk *k)
{
    const dra_tensor *y = &w->base.c->out[Y];
    const int         i = w->s.readers - 1;
    if (!y->data) return;
    const dra_matrix_block to = dra_chunk_out(k, y, NULL),
                           own = {find_room(w, ROOM_P), w->base.E, 1};
    if (w->a->c && w->w[1].at == to.at) { /* p has waited in the place of y */
        dra_matrix_block_copy(k->n, w->base.E, to, own);
        w->w[1] = own;
    }
    recall_state(w, k, i, to);
    dra_dplr_diagonals(k, w->base.c, &w->f, w->q, &w->s, i);
    for (int j = 0; j < w->s.keys; j++)
        dra_chunk_below(k->simd, k->n, w->base.E, w->s.A[i][j], w->w[j], to, true);
}

static bool is_token(const walk *w) { return w->base.c->in[Q].shape.dim[1] == 1; }

static void write_state(dra_chunk_walk *base, const dra_chunk *k)
{
    walk *w = (walk *)base;
    if (is_token(w)) return; /* take_token() has written it */
    dra_matrix_block carried = dra_fade_writers(&w->f, w->s.keys, w->s.z,
                                                find_room(w, ROOM_CARRIED));
    dra_fade_state(&w->f, w->base.E, w->base.S);
    for (int j = 0; j < w->s.keys; j++, carried.at += k->n * w->base.F)
        dra_matrix_block_multiply(k->simd, w->base.F, w->base.E, k->n,
                                  dra_matrix_block_transposed(carried), w->w[j], w->base.S, true);
}

/* A token alone, as generation has them, without matrices over pairs. */
static void take_token(walk *w, const dra_chunk *k)
{
    const dra_call      *c = w->base.c;
    const dra_dplr_attr *a = w->a;
    dra_fade_step s = {.F = w->base.F, .E = w->base.E, .S = w->base.S.at, .before = a->u != 0};
    s.q = w->q.at, s.k = w->s.z[0].at, s.v = w->w[0].at;
    s.whole = w->f.whole, s.less = w->f.less;
    if (c->out[Y].data) s.y = dra_chunk_out(k, &c->out[Y], NULL).at;
    if (a->a) {
        s.a = dra_chunk_rows(k, &c->in[a->a], find_room(w, ROOM_X)).at;
        s.c = w->s.z[1].at, s.p = w->w[1].at;
    }
    dra_dplr_diagonals(k, c, &w->f, w->q, &w->s, 0);
    s.bonus = *w->s.A[0][0];
    w->f.loops->step(&s);
}

static void cut_columns(dra_chunk_walk *base, int64_t first)
{
    walk *w = (walk *)base;
    w->values = dra_chunk_columns(&w->values, first, base->E);
    if (w->a->a) w->recalls = dra_chunk_columns(&w->recalls, first, base->E);
}

static void read_state(dra_chunk_walk *base, const dra_chunk *k, int64_t i)
{
    const bool passes = base->part != DRA_CHUNK_INSIDE, reads = base->part != DRA_CHUNK_PASS;
    walk      *w = (walk *)base;
    open_chunk(w, k);
    if (is_token(w)) {
        take_token(w, k);
        return;
    }
    open_readers(w, k, passes, reads);
    if (passes) solve_recalls(w, k);
    if (reads) read_outputs(w, k);
}

static const dra_chunk_steps steps = {
    .tokens = DRA_DPLR_CHUNK, .cut_columns = cut_columns, .read = read_state, .write = write_state};

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages plan_stages(const dra_call *c)
{
    const dra_dplr_attr *a = c->attr;
    const int64_t        T = c->in[Q].shape.dim[1], E = dra_last(&c->in[V]);
    const dra_chunk_work plain = {35, 10, 70}, corrected = {45, 20, 50};
    return dra_chunk_stages_of(c, dra_chunk_heads(c), dra_dplr_chunks(T), E,
                               a->a ? corrected : plain);
}

/* Scratch of the tiles and, in two stages, the states before all chunks, unless they are an
 * output. */
static size_t scratch_size(const dra_call *c)
{
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    const dra_chunk_stages s = plan_stages(c);
    return dra_chunk_scratch(&s, room_size(F, E), s.chunks * F * E);
}

/* Where p is no output, it is kept in the memory of y between the stages. */
static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_dplr_attr *a = c->attr;
    const int64_t        F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    w->base = (dra_chunk_walk){.F = F,
                               .E = E,
                               .mark = dra_chunk_option(c, a->mark),
                               .first = dra_chunk_option(c, a->S),
                               .last = c->out[LAST],
                               .borders = c->out[BORDERS]};
    real *rest = dra_chunk_open(&w->base, c, s, room_size(F, E), tile);
    if (s->two && !w->base.borders.data) w->base.borders.data = rest;
    w->a = a, w->s.keys = a->c ? 2 : 1, w->values = c->in[V];
    w->recalls = c->out[s->two && !c->out[RECALLED].data ? Y : RECALLED];
    real *pairs = find_room(w, ROOMS), *decays = pairs + PAIRS * DRA_DPLR_CHUNK * DRA_CHUNK;
    for (int i = 0; i < PAIRS; i++)
        w->s.A[i / DRA_FADE_KEYS][i % DRA_FADE_KEYS] = pairs + i * DRA_DPLR_CHUNK * DRA_CHUNK;
    dra_fade_open(&w->f, dra_simd_of(c), F, decays);
    w->base.spare = decays + dra_fade_room(F);
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

static void derive_dplr(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
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
    if (a->u) dx[a->u] = dra_sum(g, back->out[DRA_DPLR_DU], (dra_axes){2, {0, 2}, false});
    if (a->a) dx[a->a] = back->out[DRA_DPLR_DA];
    if (a->c) dx[a->c] = back->out[DRA_DPLR_DC];
    if (a->S) dx[a->S] = back->out[DRA_DPLR_DS];
}

/* Pairs of tokens s <= t inside chunks, for each of q k (and q c, a k, a c) a product over F; v and
 * p take two each over E; products of a token with F E numbers of the state. */
static dra_cost cost_dplr(const dra_call *c)
{
    const dra_dplr_attr *a = c->attr;
    const double         F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double         pairs = dra_chunk_pair_count(c, DRA_DPLR_CHUNK);
    const double         tokens = (double)dra_rows(&c->in[Q]);
    const double         many = a->a ? 4 : 1, states = a->a ? 4 : 2;
    return (dra_cost){2 * (pairs * many * (F + E) + tokens * states * F * E), dra_call_bytes(c)};
}

/* A tile reads its part of the first state into the last one before all else. */
static uint32_t take_dplr_inputs(const void *attr, int out)
{
    const dra_dplr_attr *a = attr;
    return out == LAST && a->S ? 1u << a->S : 0;
}

const dra_op dra_op_dplr = {.name = "dplr",
                            .n_in = DRA_MANY,
                            .n_out = DRA_DPLR_OUTPUTS,
                            .attr_size = sizeof(dra_dplr_attr),
                            .infer = infer_dplr,
                            .gradient = derive_dplr,
                            .cost = cost_dplr};

const dra_cpu_kernel dra_cpu_dplr = {
    .base = {.op = "dplr",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch_size,
             .takes = take_dplr_inputs},
    .tiles = count_tiles,
    .tile = walk_tile,
    .stages = count_stages,
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
static dra_value widen_decay(dra_graph *g, dra_value l, dra_shape q)
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
    a.l = dra_chunk_append(widen_decay(g, x->l, dra_shape_of(g, x->q)), in, &n);
    a.u = dra_chunk_append(x->u, in, &n);
    a.a = dra_chunk_append(x->a, in, &n);
    a.c = dra_chunk_append(x->c, in, &n);
    a.S = dra_chunk_append(x->S, in, &n);
    a.mark = dra_chunk_append(x->mark, in, &n);
    const dra_node *node = dra_node_add(g, &dra_op_dplr, n, in, &a);
    if (node && S_last) *S_last = node->out[LAST];
    return node ? node->out[Y] : (dra_value){0};
}
