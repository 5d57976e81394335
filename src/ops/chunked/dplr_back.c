/* The gradient of dplr. A chunk at once, from the last to the first, with the symbols of dplr.c; dS
 * is the gradient of the state after the chunk and becomes that of the one before it. The pairs A
 * are made again, p and S_0 were kept.
 *   o  = A_ac^T o + A_xc^T dy + w(c) dS        solved backwards: the gradient of p before c's share
 *   dv = A_ak^T o + A_xk^T dy + w(k) dS
 *   dA_xz = dy (v or p)^T,  dA_az = o (v or p)^T,  dr(x) = dy S_0^T,  dr(a) = o S_0^T
 *   dw(k) = v dS^T,  dw(c) = p dS^T            from which fade.h makes dx, da, dk, dc and dl
 *   dS = d_0 .. d_{n-1} dS + r(x)^T dy + r(a)^T o
 * The diagonals g_t = dy_t.v_t, dy_t.p_t go to q_t, z_t and u by themselves; x = d q without u. In
 * two stages (chunk.h) first columns of o and of dS after all chunks, then all else. */
#include "ops/chunked/delta.h"
#include "ops/chunked/dplr.h"

enum { Q = DRA_DPLR_Q, K = DRA_DPLR_K, V = DRA_DPLR_V };
enum {
    DQ = DRA_DPLR_DQ,
    DK = DRA_DPLR_DK,
    DV = DRA_DPLR_DV,
    DL = DRA_DPLR_DL,
    DU = DRA_DPLR_DU,
    DA = DRA_DPLR_DA,
    DC = DRA_DPLR_DC,
    DS = DRA_DPLR_DS
};

static dra_status infer_dplr_back(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_dplr_attr *a = n->attr;
    const dra_type      *q = dra_type_of(g, n->in[Q]), *v = dra_type_of(g, n->in[V]);
    const int64_t       *dim = q->shape.dim;
    const dra_type       no = {DRA_REAL, DRA_SHAPE(0)};
    out[DQ] = out[DK] = *q;
    out[DV] = *v;
    out[DL] = a->l ? *q : no;
    out[DU] = a->u
                  ? (dra_type){DRA_REAL, DRA_SHAPE(dim[0], dim[2], dra_dplr_chunks(dim[1]), dim[3])}
                  : no;
    out[DA] = out[DC] = a->a ? *q : no;
    out[DS] = (dra_type){DRA_REAL, DRA_SHAPE(dim[0], dim[2], dim[3], v->shape.dim[3])};
    return DRA_OK;
}

/* ---- one chunk ------------------------------------------------------------------------------- */

enum { KEYS = DRA_FADE_KEYS, READERS = DRA_FADE_READERS };

typedef struct walk {
    dra_chunk_walk       base; /* its S: dS of the state after the chunk, then before it */
    const dra_dplr_attr *a;
    dra_tensor           dy_all, o_all;          /* columns of dy, and of o in two stages, or all */
    dra_matrix_block     q, S0;                  /* of the chunk */
    dra_matrix_block     from[READERS], w[KEYS]; /* dy, o; v, p */
    dra_fade_sides       s;                      /* readers x, a; keys k, c; A are A or dA */
    dra_fade             f;
} walk;

enum {
    ROOM_Q,
    ROOM_K,
    ROOM_C,
    ROOM_A,
    ROOM_X,
    ROOM_CARRIED, /* of two kinds */
    ROOM_MORE,
    ROOM_DX,
    ROOM_DA,
    ROOM_DK,
    ROOM_DC,
    ROOM_V,
    ROOM_P,
    ROOM_DY,
    ROOM_O,
    ROOMS
};
enum { PAIRS = READERS * KEYS };

/* Rows of a chunk in scratch: some of width F, then of width E; then pairs, decays, a state. */
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
    const dra_call      *c = w->base.c;
    const dra_dplr_attr *a = w->a;
    dra_fade_make(&w->f, k, dra_chunk_option(c, a->l));
    w->q = dra_chunk_rows(k, &c->in[Q], find_room(w, ROOM_Q));
    w->s.x[0] = dra_dplr_readers(k, c, &w->f, w->q, find_room(w, ROOM_X));
    w->s.z[0] = dra_chunk_rows(k, &c->in[K], find_room(w, ROOM_K));
    w->from[0] = dra_chunk_rows(k, &w->dy_all, find_room(w, ROOM_DY));
    if (!a->a) return;
    w->s.z[1] = dra_chunk_rows(k, &c->in[a->c], find_room(w, ROOM_C));
    w->s.x[1] = dra_dplr_before(k, &c->in[a->a], find_room(w, ROOM_A));
    w->from[1] = dra_chunk_out(k, &w->o_all, find_room(w, ROOM_O));
}

/* Pairs with writers first..first+n-1. */
static void make_pairs(walk *w, const dra_chunk *k, int first, int n)
{
    dra_fade_sides some = w->s;
    some.keys = n;
    for (int j = 0; j < n; j++) {
        some.z[j] = w->s.z[first + j];
        for (int i = 0; i < some.readers; i++) some.A[i][j] = w->s.A[i][first + j];
    }
    dra_fade_pairs(&w->f, &some);
    dra_dplr_diagonals(k, w->base.c, &w->f, w->q, &some, 0);
}

/* to = w(z) dS */
static void read_writes(const walk *w, const dra_chunk *k, dra_matrix_block z, dra_matrix_block to)
{
    const dra_matrix_block carried = dra_fade_writers(&w->f, 1, &z, find_room(w, ROOM_CARRIED));
    dra_matrix_block_multiply(k->simd, k->n, w->base.E, w->base.F, carried, w->base.S, to, false);
}

/* o, from pairs with c. */
static void solve_recalls(walk *w, const dra_chunk *k)
{
    const dra_matrix_block N = {w->s.A[1][1], DRA_CHUNK, 1}, o = w->from[1];
    if (!w->a->a) return;
    read_writes(w, k, w->s.z[1], o);
    dra_chunk_above(k->simd, k->n, w->base.E, w->s.A[0][1], w->from[0], o, true);
    dra_delta_solve_back(k->simd, k->n, w->base.E, N, o);
}

/* dv, from pairs with k. */
static void return_values(const walk *w, const dra_chunk *k)
{
    if (!w->base.c->out[DV].data) return;
    const dra_matrix_block to = dra_chunk_out(k, &w->base.c->out[DV], NULL);
    read_writes(w, k, w->s.z[0], to);
    for (int i = 0; i < w->s.readers; i++)
        dra_chunk_above(k->simd, k->n, w->base.E, w->s.A[i][0], w->from[i], to, true);
}

/* What was written, the state before it, and where gradients go. */
static void open_writes(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_call *c = w->base.c;
    w->S0 = dra_chunk_matrix(&c->in[w->a->borders], k->b, k->h, i);
    w->w[0] = dra_chunk_rows(k, &c->in[V], find_room(w, ROOM_V));
    w->s.dx[0] = dra_chunk_out(k, &c->out[DQ], find_room(w, ROOM_DX));
    w->s.dz[0] = dra_chunk_out(k, &c->out[DK], find_room(w, ROOM_DK));
    if (w->a->a) {
        w->w[1] = dra_chunk_rows(k, &c->in[w->a->recalled], find_room(w, ROOM_P));
        w->s.dx[1] = dra_chunk_out(k, &c->out[DA], find_room(w, ROOM_DA));
        w->s.dz[1] = dra_chunk_out(k, &c->out[DC], find_room(w, ROOM_DC));
    }
    w->s.dl = (dra_matrix_block){0};
    if (w->a->l && c->out[DL].data) w->s.dl = dra_chunk_out(k, &c->out[DL], NULL);
}

/* raw gradients of what was carried: rows[i] of width E times the transposed state, all i. */
static const real *through_state(const walk *w, const dra_chunk *k, int many,
                                 const dra_matrix_block *rows, dra_matrix_block S)
{
    dra_matrix_block raw = {find_room(w, ROOM_CARRIED), w->base.F, 1};
    for (int i = 0; i < many; i++, raw.at += k->n * w->base.F)
        dra_matrix_block_multiply(k->simd, k->n, w->base.F, w->base.E, rows[i],
                                  dra_matrix_block_transposed(S), raw, false);
    return find_room(w, ROOM_CARRIED);
}

/* dx of readers, and their part of dz and dl. */
static void return_readers(walk *w, const dra_chunk *k)
{
    const dra_fade_sides *s = &w->s;
    dra_fade_readers_back(&w->f, s, through_state(w, k, s->readers, w->from, w->S0));
    for (int i = 0; i < s->readers; i++)
        for (int j = 0; j < s->keys; j++)
            dra_chunk_pairs(k->simd, k->n, w->base.E, w->from[i], w->w[j], s->A[i][j]);
    dra_fade_pairs_back(&w->f, s);
}

/* dq = d dx + g z, dl += x dx, dz += g q */
static void after_decay(const walk *w, const dra_chunk *k, dra_matrix_block dq)
{
    const dra_fade_sides *s = &w->s;
    dra_fade_own          p = dra_dplr_own(k, w->base.c, w->q, s, 0);
    p.d = w->f.d, p.x = s->x[0].at;
    p.to = dq.at, p.to_row = dq.row;
    p.dl = s->dl.at, p.dl_row = s->dl.row;
    for (int j = 0; j < s->keys; j++) p.dz[j] = s->dz[j].at, p.dz_row[j] = s->dz[j].row;
    w->f.loops->own_back(&p);
}

/* dq = dx + g u k, dk += g u q, du = sum_t g q k */
static void before_decay(const walk *w, const dra_chunk *k, int64_t i, dra_matrix_block dq)
{
    const dra_simd   *simd = k->simd;
    const dra_tensor *out = &w->base.c->out[DU];
    const real       *u = dra_dplr_bonus(w->base.c, k->h);
    real *room = w->f.readers, *du = out->data ? dra_recur_at(out, k->b, k->h, i) : NULL;
    if (du) dra_recur_clear(w->base.F, du);
    dra_dplr_clear_resets(k, w->base.F, dq);
    for (int64_t t = 0; t < k->n; t++) {
        const real  g = w->s.A[0][0][t * DRA_CHUNK + t];
        const real *q = w->q.at + t * w->q.row, *key = w->s.z[0].at + t * w->s.z[0].row;
        simd->mul(w->base.F, u, key, room);
        simd->axpy(w->base.F, g, room, dq.at + t * dq.row);
        simd->mul(w->base.F, u, q, room);
        simd->axpy(w->base.F, g, room, w->s.dz[0].at + t * w->s.dz[0].row);
        simd->mul(w->base.F, key, q, room);
        if (du) simd->axpy(w->base.F, g, room, du);
    }
}

static void return_queries(walk *w, const dra_chunk *k, int64_t i)
{
    if (w->a->u)
        before_decay(w, k, i, w->s.dx[0]);
    else
        after_decay(w, k, w->s.dx[0]);
}

/* dz and dl of what reaches the state after the chunk; written, not added. */
static void return_writers(walk *w, const dra_chunk *k)
{
    dra_fade_writers_back(&w->f, &w->s, through_state(w, k, w->s.keys, w->w, w->base.S));
}

/* All that follows from o and dS. */
static void back_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_tensor *out = w->base.c->out;
    open_writes(w, k, i);
    return_values(w, k);
    if (!out[DQ].data && !out[DK].data && !out[DA].data && !out[DC].data && !out[DU].data &&
        !w->s.dl.at)
        return;
    return_writers(w, k);
    return_readers(w, k);
    return_queries(w, k, i);
    if (w->a->a) dra_dplr_clear_resets(k, w->base.F, w->s.dx[1]);
    dra_fade_state_back(&w->f, w->base.E, w->S0, w->base.S, w->s.dl);
    if (w->s.dl.at) dra_chunk_clear_pads(k, w->base.F, w->s.dl);
}

/* dS from after the chunk to before it. */
static void write_state(dra_chunk_walk *base, const dra_chunk *k)
{
    walk            *w = (walk *)base;
    dra_matrix_block carried = dra_fade_readers(&w->f, w->s.readers, w->s.x,
                                                find_room(w, ROOM_CARRIED));
    dra_fade_state(&w->f, w->base.E, w->base.S);
    for (int i = 0; i < w->s.readers; i++, carried.at += k->n * w->base.F)
        dra_matrix_block_multiply(k->simd, w->base.F, w->base.E, k->n,
                                  dra_matrix_block_transposed(carried), w->from[i], w->base.S,
                                  true);
}

static void cut_columns(dra_chunk_walk *base, int64_t first)
{
    walk *w = (walk *)base;
    w->dy_all = dra_chunk_columns(&w->dy_all, first, base->E);
    w->o_all = dra_chunk_columns(&w->o_all, first, base->E);
}

/* Pairs with k are for dv alone, those with c for o. */
static void read_state(dra_chunk_walk *base, const dra_chunk *k, int64_t i)
{
    walk      *w = (walk *)base;
    const bool passes = base->part != DRA_CHUNK_INSIDE, returns = base->part != DRA_CHUNK_PASS;
    const int  first = returns ? 0 : 1, end = passes ? w->s.keys : 1;
    open_chunk(w, k);
    if (first < end) make_pairs(w, k, first, end - first);
    if (passes) solve_recalls(w, k);
    if (returns) back_chunk(w, k, i);
}

static const dra_chunk_steps steps = {.back = true,
                                      .tokens = DRA_DPLR_CHUNK,
                                      .cut_columns = cut_columns,
                                      .read = read_state,
                                      .write = write_state};

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages plan_stages(const dra_call *c)
{
    const dra_dplr_attr *a = c->attr;
    const int64_t        T = c->in[Q].shape.dim[1], E = dra_last(&c->in[V]);
    const dra_chunk_work plain = {15, 8, 92}, corrected = {25, 15, 80};
    return dra_chunk_stages_of(c, dra_chunk_heads(c), dra_dplr_chunks(T), E,
                               a->a ? corrected : plain);
}

/* Rooms of the tiles; in two stages then dS after all chunks, and o. */
static size_t scratch_size(const dra_call *c)
{
    const dra_dplr_attr   *a = c->attr;
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    const int64_t          T = c->in[Q].shape.dim[1];
    const dra_chunk_stages s = plan_stages(c);
    return dra_chunk_scratch(&s, room_size(F, E), s.chunks * F * E + (a->a ? T * E : 0));
}

static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_dplr_attr *a = c->attr;
    const int64_t       *q = c->in[Q].shape.dim, F = q[3], E = dra_last(&c->in[V]);
    const int64_t        square = DRA_DPLR_CHUNK * DRA_CHUNK;
    *w = (walk){.base = {.F = F,
                         .E = E,
                         .mark = dra_chunk_option(c, a->mark),
                         .first = dra_chunk_option(c, a->S),
                         .last = c->out[DS]},
                .a = a,
                .dy_all = c->in[a->dy]};
    real *rest = dra_chunk_open(&w->base, c, s, room_size(F, E), tile),
         *pairs = find_room(w, ROOMS);
    w->base.borders = dra_chunk_between(s, &rest, DRA_SHAPE(q[0], q[2], s->chunks, F, E));
    w->o_all = dra_chunk_between(s, &rest, DRA_SHAPE(q[0], q[1], q[2], E));
    w->s.keys = a->c ? 2 : 1, w->s.readers = a->a ? 2 : 1;
    for (int i = 0; i < PAIRS; i++) w->s.A[i / KEYS][i % KEYS] = pairs + i * square;
    dra_fade_open(&w->f, dra_simd_of(c), F, pairs + PAIRS * square);
    w->base.spare = w->f.d + dra_fade_room(F);
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

/* Twice what the forward op takes, and the pairs again. */
static dra_cost cost_dplr_back(const dra_call *c)
{
    const dra_dplr_attr *a = c->attr;
    const double         F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double         pairs = dra_chunk_pair_count(c, DRA_DPLR_CHUNK);
    const double         tokens = (double)dra_rows(&c->in[Q]);
    const double         many = a->a ? 4 : 1, states = a->a ? 8 : 4;
    return (dra_cost){2 * (pairs * many * (3 * F + 2 * E) + tokens * states * F * E),
                      dra_call_bytes(c)};
}

const dra_op dra_op_dplr_back = {.name = "dplr_back",
                                 .n_in = DRA_MANY,
                                 .n_out = DRA_DPLR_BACK_OUTPUTS,
                                 .attr_size = sizeof(dra_dplr_attr),
                                 .infer = infer_dplr_back,
                                 .cost = cost_dplr_back};

const dra_cpu_kernel dra_cpu_dplr_back = {
    .base = {.op = "dplr_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch_size},
    .tiles = count_tiles,
    .tile = walk_tile,
    .stages = count_stages,
};
