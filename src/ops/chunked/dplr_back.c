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

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
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
    const dra_call      *c;
    const dra_dplr_attr *a;
    int64_t              F, E;
    dra_tensor           dy_all, dS_first;       /* columns of dy and of the output DS, or all */
    dra_tensor           o_all, after;           /* o, and dS after all chunks, in two stages */
    dra_matrix_block     dS;                     /* of the state after the chunk, then before it */
    real                *room;                   /* scratch: rows of a chunk, see below, a state */
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
static real *room(const walk *w, int which)
{
    const int64_t wide = which < ROOM_V ? which : ROOM_V, rest = which - wide;
    return w->room + DRA_DPLR_CHUNK * (wide * w->F + rest * w->E);
}

static int64_t room_size(int64_t F, int64_t E)
{
    const int64_t rows = ROOM_V * F + (ROOMS - ROOM_V) * E + PAIRS * DRA_CHUNK;
    return dra_div_up(DRA_DPLR_CHUNK * rows + dra_fade_room(F) + F * E, 16) * 16;
}

static void open_chunk(walk *w, const dra_chunk *k)
{
    const dra_call      *c = w->c;
    const dra_dplr_attr *a = w->a;
    dra_fade_make(&w->f, k, dra_chunk_option(c, a->l));
    w->q = dra_chunk_rows(k, &c->in[Q], room(w, ROOM_Q));
    w->s.x[0] = dra_dplr_readers(k, c, &w->f, w->q, room(w, ROOM_X));
    w->s.z[0] = dra_chunk_rows(k, &c->in[K], room(w, ROOM_K));
    w->from[0] = dra_chunk_rows(k, &w->dy_all, room(w, ROOM_DY));
    if (!a->a) return;
    w->s.z[1] = dra_chunk_rows(k, &c->in[a->c], room(w, ROOM_C));
    w->s.x[1] = dra_dplr_before(k, &c->in[a->a], room(w, ROOM_A));
    w->from[1] = dra_chunk_out(k, &w->o_all, room(w, ROOM_O));
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
    dra_dplr_diagonals(k, w->c, &w->f, w->q, &some, 0);
}

/* to = w(z) dS */
static void read_writes(const walk *w, const dra_chunk *k, dra_matrix_block z, dra_matrix_block to)
{
    const dra_matrix_block carried = dra_fade_writers(&w->f, 1, &z, room(w, ROOM_CARRIED));
    dra_matrix_block_multiply(k->simd, k->n, w->E, w->F, carried, w->dS, to, false);
}

/* o, from pairs with c. */
static void solve(walk *w, const dra_chunk *k)
{
    const dra_matrix_block N = {w->s.A[1][1], DRA_CHUNK, 1}, o = w->from[1];
    if (!w->a->a) return;
    read_writes(w, k, w->s.z[1], o);
    dra_chunk_above(k->simd, k->n, w->E, w->s.A[0][1], w->from[0], o, true);
    dra_delta_solve_back(k->simd, k->n, w->E, N, o);
}

/* dv, from pairs with k. */
static void values(const walk *w, const dra_chunk *k)
{
    if (!w->c->out[DV].data) return;
    const dra_matrix_block to = dra_chunk_out(k, &w->c->out[DV], NULL);
    read_writes(w, k, w->s.z[0], to);
    for (int i = 0; i < w->s.readers; i++)
        dra_chunk_above(k->simd, k->n, w->E, w->s.A[i][0], w->from[i], to, true);
}

/* What was written, the state before it, and where gradients go. */
static void open_writes(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_call *c = w->c;
    w->S0 = dra_chunk_matrix(&c->in[w->a->borders], k->b, k->h, i);
    w->w[0] = dra_chunk_rows(k, &c->in[V], room(w, ROOM_V));
    w->s.dx[0] = dra_chunk_out(k, &c->out[DQ], room(w, ROOM_DX));
    w->s.dz[0] = dra_chunk_out(k, &c->out[DK], room(w, ROOM_DK));
    if (w->a->a) {
        w->w[1] = dra_chunk_rows(k, &c->in[w->a->recalled], room(w, ROOM_P));
        w->s.dx[1] = dra_chunk_out(k, &c->out[DA], room(w, ROOM_DA));
        w->s.dz[1] = dra_chunk_out(k, &c->out[DC], room(w, ROOM_DC));
    }
    w->s.dl = (dra_matrix_block){0};
    if (w->a->l && c->out[DL].data) w->s.dl = dra_chunk_out(k, &c->out[DL], NULL);
}

/* raw gradients of what was carried: rows[i] of width E times the transposed state, all i. */
static const real *through_state(const walk *w, const dra_chunk *k, int many,
                                 const dra_matrix_block *rows, dra_matrix_block S)
{
    dra_matrix_block raw = {room(w, ROOM_CARRIED), w->F, 1};
    for (int i = 0; i < many; i++, raw.at += k->n * w->F)
        dra_matrix_block_multiply(k->simd, k->n, w->F, w->E, rows[i],
                                  dra_matrix_block_transposed(S), raw, false);
    return room(w, ROOM_CARRIED);
}

/* dx of readers, and their part of dz and dl. */
static void readers(walk *w, const dra_chunk *k)
{
    const dra_fade_sides *s = &w->s;
    dra_fade_readers_back(&w->f, s, through_state(w, k, s->readers, w->from, w->S0));
    for (int i = 0; i < s->readers; i++)
        for (int j = 0; j < s->keys; j++)
            dra_chunk_pairs(k->simd, k->n, w->E, w->from[i], w->w[j], s->A[i][j]);
    dra_fade_pairs_back(&w->f, s);
}

/* dq = d dx + g z, dl += x dx, dz += g q */
static void after_decay(const walk *w, const dra_chunk *k, dra_matrix_block dq)
{
    const dra_fade_sides *s = &w->s;
    dra_fade_own          p = dra_dplr_own(k, w->c, w->q, s, 0);
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
    const dra_tensor *out = &w->c->out[DU];
    const real       *u = dra_dplr_bonus(w->c, k->h);
    real *room = w->f.readers, *du = out->data ? dra_recur_at(out, k->b, k->h, i) : NULL;
    if (du) dra_recur_clear(w->F, du);
    dra_dplr_clear_resets(k, w->F, dq);
    for (int64_t t = 0; t < k->n; t++) {
        const real  g = w->s.A[0][0][t * DRA_CHUNK + t];
        const real *q = w->q.at + t * w->q.row, *key = w->s.z[0].at + t * w->s.z[0].row;
        simd->mul(w->F, u, key, room);
        simd->axpy(w->F, g, room, dq.at + t * dq.row);
        simd->mul(w->F, u, q, room);
        simd->axpy(w->F, g, room, w->s.dz[0].at + t * w->s.dz[0].row);
        simd->mul(w->F, key, q, room);
        if (du) simd->axpy(w->F, g, room, du);
    }
}

static void queries(walk *w, const dra_chunk *k, int64_t i)
{
    if (w->a->u)
        before_decay(w, k, i, w->s.dx[0]);
    else
        after_decay(w, k, w->s.dx[0]);
}

/* dz and dl of what goes to the state after the chunk: nothing is there before. */
static void writers(walk *w, const dra_chunk *k)
{
    dra_fade_writers_back(&w->f, &w->s, through_state(w, k, w->s.keys, w->w, w->dS));
}

/* All that follows from o and dS. */
static void back_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_tensor *out = w->c->out;
    open_writes(w, k, i);
    values(w, k);
    if (!out[DQ].data && !out[DK].data && !out[DA].data && !out[DC].data && !out[DU].data &&
        !w->s.dl.at)
        return;
    writers(w, k);
    readers(w, k);
    queries(w, k, i);
    if (w->a->a) dra_dplr_clear_resets(k, w->F, w->s.dx[1]);
    dra_fade_state_back(&w->f, w->E, w->S0, w->dS, w->s.dl);
    if (w->s.dl.at) dra_chunk_clear_pads(k, w->F, w->s.dl);
}

/* dS from after the chunk to before it. */
static void pass_state(walk *w, const dra_chunk *k)
{
    dra_matrix_block carried = dra_fade_readers(&w->f, w->s.readers, w->s.x, room(w, ROOM_CARRIED));
    dra_fade_state(&w->f, w->E, w->dS);
    for (int i = 0; i < w->s.readers; i++, carried.at += k->n * w->F)
        dra_matrix_block_multiply(k->simd, w->F, w->E, k->n, dra_matrix_block_transposed(carried),
                                  w->from[i], w->dS, true);
}

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages stages_of(const dra_call *c)
{
    const dra_dplr_attr *a = c->attr;
    const int64_t        T = c->in[Q].shape.dim[1], E = dra_last(&c->in[V]);
    const dra_chunk_work plain = {15, 8, 92}, corrected = {25, 15, 80};
    return dra_chunk_stages_of(c, dra_chunk_heads(c), dra_dplr_chunks(T), E,
                               a->a ? corrected : plain);
}

/* Rooms of the tiles; in two stages then dS after all chunks, and o. */
static size_t scratch(const dra_call *c)
{
    const dra_dplr_attr   *a = c->attr;
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    const int64_t          T = c->in[Q].shape.dim[1];
    const dra_chunk_stages s = stages_of(c);
    const int64_t          each = s.two ? s.chunks * F * E + (a->a ? T * E : 0) : 0; /* a head */
    return (size_t)(dra_chunk_most_tiles(&s) * room_size(F, E) + s.heads * each) * sizeof(real);
}

static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const int64_t *q = c->in[Q].shape.dim;
    *w = (walk){.c = c, .a = c->attr, .F = q[3], .E = dra_last(&c->in[V])};
    w->s.keys = w->a->c ? 2 : 1, w->s.readers = w->a->a ? 2 : 1;
    w->dy_all = c->in[w->a->dy], w->dS_first = c->out[DS];
    const int64_t size = room_size(w->F, w->E), square = DRA_DPLR_CHUNK * DRA_CHUNK;
    real         *rest = (real *)c->scratch + dra_chunk_most_tiles(s) * size;
    w->room = (real *)c->scratch + tile * size;
    for (int i = 0; i < PAIRS; i++) w->s.A[i / KEYS][i % KEYS] = room(w, ROOMS) + i * square;
    dra_fade_open(&w->f, dra_simd_of(c), w->F, room(w, ROOMS) + PAIRS * square);
    w->after = (dra_tensor){rest, DRA_REAL, DRA_SHAPE(q[0], q[2], s->chunks, w->F, w->E)};
    w->o_all = (dra_tensor){s->two ? rest + s->heads * s->chunks * w->F * w->E : NULL, DRA_REAL,
                            DRA_SHAPE(q[0], q[1], q[2], w->E)};
    dra_tensor_make_dense(&w->after);
    dra_tensor_make_dense(&w->o_all);
}

static dra_chunk chunk_at(const walk *w, int64_t head, int64_t i)
{
    const int64_t *dim = w->c->in[Q].shape.dim, T = dim[1], H = dim[2];
    return dra_chunk_cut(w->c, dra_chunk_option(w->c, w->a->mark), head / H, head % H, T,
                         i * DRA_DPLR_CHUNK, DRA_DPLR_CHUNK);
}

static void walk_head(const dra_call *c, const dra_chunk_stages *s, int64_t head)
{
    const int64_t H = c->in[Q].shape.dim[2];
    walk          w;
    open_walk(&w, c, s, head);
    real     *spare = w.f.d + dra_fade_room(w.F);
    dra_chunk k = {.simd = dra_simd_of(c), .b = head / H, .h = head % H};
    w.dS = (dra_matrix_block){.row = w.E, .col = 1};
    w.dS.at = dra_chunk_state(&k, dra_chunk_option(c, w.a->S), &c->out[DS], w.F * w.E, spare);
    for (int64_t i = s->chunks - 1; i >= 0; i--) {
        k = chunk_at(&w, head, i);
        open_chunk(&w, &k);
        make_pairs(&w, &k, 0, w.s.keys);
        solve(&w, &k);
        back_chunk(&w, &k, i);
        if (i > 0 || c->out[DS].data) pass_state(&w, &k);
    }
}

/* ---- in two stages --------------------------------------------------------------------------- */

/* dS goes to where that after chunk i is, or before the first. */
static void move_state(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_matrix_block dS = dra_chunk_matrix(i >= 0 ? &w->after : &w->dS_first, k->b, k->h, i);
    dra_matrix_block_copy(w->F, w->E, w->dS, dS);
    w->dS = dS;
}

/* Some columns of o, and of dS after all chunks and before the first. */
static void pass_states(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_chunk_span at = dra_chunk_block_at(s, tile);
    walk                 w;
    open_walk(&w, c, s, tile);
    w.E = at.end - at.first;
    w.dy_all = dra_chunk_columns(&w.dy_all, at.first, w.E);
    w.dS_first = dra_chunk_columns(&w.dS_first, at.first, w.E);
    w.o_all = dra_chunk_columns(&w.o_all, at.first, w.E);
    w.after = dra_chunk_columns(&w.after, at.first, w.E);
    dra_chunk k = chunk_at(&w, at.head, s->chunks - 1);
    w.dS = dra_chunk_matrix(dra_chunk_option(c, w.a->S), k.b, k.h, 0);
    if (w.dS.at) w.dS.at += at.first;
    move_state(&w, &k, s->chunks - 1);
    for (int64_t i = s->chunks - 1; i >= 0; i--) {
        k = chunk_at(&w, at.head, i);
        open_chunk(&w, &k);
        if (w.a->a) make_pairs(&w, &k, 1, 1);
        solve(&w, &k);
        if (i == 0 && !c->out[DS].data) break;
        move_state(&w, &k, i - 1);
        pass_state(&w, &k);
    }
}

static void back_run(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_chunk_span at = dra_chunk_run_at(s, tile);
    walk                 w;
    open_walk(&w, c, s, tile);
    for (int64_t i = at.end - 1; i >= at.first; i--) {
        const dra_chunk k = chunk_at(&w, at.head, i);
        w.dS = dra_chunk_matrix(&w.after, k.b, k.h, i);
        open_chunk(&w, &k);
        make_pairs(&w, &k, 0, 1);
        back_chunk(&w, &k, i);
    }
}

static int64_t stages(const dra_call *c) { return stages_of(c).two ? 2 : 1; }

static int64_t tiles(const dra_call *c)
{
    const dra_chunk_stages s = stages_of(c);
    return dra_chunk_stage_tiles(&s, c->stage == 0);
}

static void tile(const dra_call *c, int64_t i)
{
    const dra_chunk_stages s = stages_of(c);
    (!s.two ? walk_head : c->stage == 0 ? pass_states : back_run)(c, &s, i);
}

/* Twice what the forward op takes, and the pairs again. */
static dra_cost cost(const dra_call *c)
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
                                 .infer = infer,
                                 .cost = cost};

const dra_cpu_kernel dra_cpu_dplr_back = {
    .base = {.op = "dplr_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch},
    .tiles = tiles,
    .tile = tile,
    .stages = stages,
};
