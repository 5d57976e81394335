/* The gradient of the delta rule. A chunk at once, from the last to the first, with the symbols of
 * delta.c; dS is the gradient of the state after the chunk and becomes that of the one before it.
 * A and G are made again, w and S_0 were kept, u = b o w.
 *   du = G^T dy + last o (k dS)
 *   x  = du - A^T (b o x), solved backwards: the gradient of what token t was to write, v - ..
 *   m  = -b o x,   M = (m u^T) o D below the diagonal,   X = (dy u^T) o D
 *   dv = -m,   db_t = x_t.w_t
 *   dq = X k + p o (dy S_0^T)
 *   dk = [M k + p o (m S_0^T)] + [X^T q + M^T k + last o (u dS^T)]
 *   dl_j = <S, dS> + sum_{t >= j} (q_t.dq_t + k_t.(first part of dk_t - second part))
 *   dS = dS + fade dS + q^T (p o dy) + k^T (p o m)
 * <S, dS> = e^(L_n-1) <S_0, dS> + sum_t last_t u_t.(k dS)_t, so the last state is not needed. In
 * two stages (chunk.h) first columns of x and of dS after all chunks, then all else. */
#include "ops/chunked/delta.h"

enum {
    Q = DRA_DELTA_BACK_Q,
    K = DRA_DELTA_BACK_K,
    B = DRA_DELTA_BACK_B,
    MISS = DRA_DELTA_BACK_MISS,
    BORDERS = DRA_DELTA_BACK_BORDERS,
    DY = DRA_DELTA_BACK_DY
};
enum {
    DQ = DRA_DELTA_DQ,
    DK = DRA_DELTA_DK,
    DV = DRA_DELTA_DV,
    DB = DRA_DELTA_DB,
    DL = DRA_DELTA_DL,
    DS = DRA_DELTA_DS
};

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_delta_attr *a = n->attr;
    const int64_t        *q = dra_type_of(g, n->in[Q])->shape.dim;
    const int64_t         E = dra_type_of(g, n->in[MISS])->shape.dim[3];
    const dra_shape       tokens = DRA_SHAPE(q[0], q[1], q[2]);
    out[DQ] = out[DK] = *dra_type_of(g, n->in[Q]);
    out[DV] = *dra_type_of(g, n->in[MISS]);
    out[DB] = (dra_type){DRA_REAL, tokens};
    out[DL] = (dra_type){DRA_REAL, a->l ? tokens : DRA_SHAPE(0)};
    out[DS] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[2], q[3], E)};
    return DRA_OK;
}

/* ---- one chunk ------------------------------------------------------------------------------- */

typedef struct walk {
    const dra_call       *c;
    const dra_delta_attr *a;
    int64_t               F, E;
    dra_tensor            dy_all, dS_first; /* columns of dy and of the output DS, or all */
    dra_tensor            x_all, after;     /* x, and dS after all chunks, in two stages */
    dra_matrix_block      dS;               /* of the state after the chunk, then before it */
    real                 *room;             /* scratch: rows of a chunk, see below, a state */
    dra_matrix_block      q, k, dy, miss, u, x, m, S0; /* of the chunk */
    dra_decay             d;
    real                  b[DRA_CHUNK];
    real                  A[DRA_CHUNK * DRA_CHUNK], G[DRA_CHUNK * DRA_CHUNK]; /* then M and X */
    double                dL[DRA_CHUNK], through;                             /* of dl */
    bool                  decay;                                              /* is dl wanted? */
} walk;

enum { ROOM_Q, ROOM_K, ROOM_SPARE, ROOM_DY, ROOM_MISS, ROOM_U, ROOM_X, ROOM_M, ROOMS };

/* Rows of a chunk in scratch: three of width F, then five of width E; then a state. */
static real *room(const walk *w, int which)
{
    const int64_t wide = which < ROOM_DY ? which : ROOM_DY, rest = which - wide;
    return w->room + DRA_CHUNK * (wide * w->F + rest * w->E);
}

static void open_chunk(walk *w, const dra_chunk *k)
{
    const dra_call *c = w->c;
    w->q = dra_chunk_rows(k, &c->in[Q], room(w, ROOM_Q));
    w->k = dra_chunk_rows(k, &c->in[K], room(w, ROOM_K));
    w->dy = dra_chunk_rows(k, &w->dy_all, room(w, ROOM_DY));
    w->x = dra_chunk_out(k, &w->x_all, room(w, ROOM_X));
    dra_delta_strengths(k, &c->in[B], w->b);
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
}

/* What was written, and the state before it. */
static void open_writes(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_call *c = w->c;
    w->miss = dra_chunk_rows(k, &c->in[MISS], room(w, ROOM_MISS));
    w->u = dra_matrix_block_scaled(k->simd, k->n, w->E, w->b, w->miss, room(w, ROOM_U));
    w->S0 = dra_chunk_matrix(&c->in[BORDERS], k->b, k->h, i);
}

/* to = last o (k dS) */
static void read_writes(const walk *w, const dra_chunk *k, dra_matrix_block to)
{
    dra_matrix_block_multiply(k->simd, k->n, w->E, w->F, w->k, w->dS, to, false);
    if (!w->d.plain) dra_matrix_block_scale(k->simd, k->n, w->E, w->d.last, to);
}

/* <S, dS>; read: last o (k dS). */
static double through_state(const walk *w, const dra_chunk *k, dra_matrix_block read)
{
    double sum = dra_chunk_through(k, &w->d, w->F, w->E, w->S0, w->dS);
    for (int64_t t = 0; t < k->n; t++)
        sum += (double)k->simd->dot(w->E, w->u.at + t * w->u.row, read.at + t * read.row);
    return sum;
}

/* x, from last o (k dS) in its place. */
static void solve(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block N = {w->A, DRA_CHUNK, 1};
    dra_chunk_pairs(simd, k->n, w->F, w->q, w->k, w->G);
    dra_decay_apply(&w->d, simd, NULL, w->G);
    dra_chunk_above(simd, k->n, w->E, w->G, w->dy, w->x, true);
    dra_delta_overlaps(k, &w->d, w->F, w->k, w->k, w->A);
    for (int64_t t = 0; t < k->n; t++) simd->scale(t, -w->b[t], w->A + t * DRA_CHUNK);
    dra_delta_solve_back(simd, k->n, w->E, N, w->x);
}

/* m */
static void weigh(walk *w, const dra_chunk *k)
{
    real minus[DRA_CHUNK];
    for (int64_t t = 0; t < k->n; t++) minus[t] = -w->b[t];
    w->m = dra_matrix_block_scaled(k->simd, k->n, w->E, minus, w->x, room(w, ROOM_M));
}

/* M and X in the places of A and G. */
static void pair_gradients(walk *w, const dra_chunk *k)
{
    dra_delta_overlaps(k, &w->d, w->E, w->m, w->u, w->A);
    dra_chunk_pairs(k->simd, k->n, w->E, w->dy, w->u, w->G);
    dra_decay_apply(&w->d, k->simd, NULL, w->G);
}

/* dv and db. */
static void values(const walk *w, const dra_chunk *k)
{
    const dra_tensor *dv = &w->c->out[DV], *db = &w->c->out[DB];
    for (int64_t t = 0; t < k->n; t++) {
        const real *x = w->x.at + t * w->x.row, *miss = w->miss.at + t * w->miss.row;
        if (dv->data) k->simd->affine(w->E, w->b[t], 0, x, dra_recur_at(dv, k->b, k->t + t, k->h));
        if (db->data) *dra_recur_at(db, k->b, k->t + t, k->h) = k->simd->dot(w->E, x, miss);
    }
}

static void queries(walk *w, const dra_chunk *k)
{
    const dra_matrix_block to = dra_chunk_out(k, &w->c->out[DQ], room(w, ROOM_SPARE));
    dra_matrix_block_multiply(k->simd, k->n, w->F, w->E, w->dy, dra_matrix_block_transposed(w->S0),
                              to, false);
    if (!w->d.plain) dra_matrix_block_scale(k->simd, k->n, w->F, w->d.p, to);
    dra_chunk_below(k->simd, k->n, w->F, w->G, w->k, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->F, 1, w->q, to, w->dL);
}

/* The rows of u become last o u: nothing else reads them afterwards. */
static void keys(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block to = dra_chunk_out(k, &w->c->out[DK], room(w, ROOM_SPARE));
    dra_matrix_block_multiply(simd, k->n, w->F, w->E, w->m, dra_matrix_block_transposed(w->S0), to,
                              false);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->F, w->d.p, to);
    dra_chunk_below(simd, k->n, w->F, w->A, w->k, to, true);
    /* Twice, as the sum of both parts takes it away once. */
    if (w->decay) dra_chunk_add_dots(k, w->F, 2, w->k, to, w->dL);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->E, w->d.last, w->u);
    dra_matrix_block_multiply(simd, k->n, w->F, w->E, w->u, dra_matrix_block_transposed(w->dS), to,
                              true);
    dra_chunk_above(simd, k->n, w->F, w->G, w->q, to, true);
    dra_chunk_above(simd, k->n, w->F, w->A, w->k, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->F, -1, w->k, to, w->dL);
    dra_chunk_clear_pads(k, w->F, to);
}

/* dS from after the chunk to before it. */
static void pass_state(walk *w, const dra_chunk *k)
{
    const dra_simd  *simd = k->simd;
    dra_matrix_block dy = w->dy;
    if (!w->d.plain) {
        dra_decay_state(&w->d, simd, w->F, w->E, w->dS);
        dy = dra_matrix_block_scaled(simd, k->n, w->E, w->d.p, dy, room(w, ROOM_DY));
        dra_matrix_block_scale(simd, k->n, w->E, w->d.p, w->m);
    }
    dra_matrix_block_multiply(simd, w->F, w->E, k->n, dra_matrix_block_transposed(w->q), dy, w->dS,
                              true);
    dra_matrix_block_multiply(simd, w->F, w->E, k->n, dra_matrix_block_transposed(w->k), w->m,
                              w->dS, true);
}

/* All that follows from x. */
static void back_chunk(walk *w, const dra_chunk *k)
{
    const dra_tensor *out = w->c->out;
    memset(w->dL, 0, sizeof w->dL);
    values(w, k);
    if (out[DQ].data || out[DK].data || w->decay) {
        pair_gradients(w, k);
        queries(w, k);
        keys(w, k);
    }
    if (w->decay) dra_chunk_decay_back(k, &out[DL], w->through, w->dL);
}

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages stages_of(const dra_call *c)
{
    const int64_t        T = c->in[Q].shape.dim[1], E = dra_last(&c->in[MISS]);
    const dra_chunk_work work = {40, 12, 70};
    return dra_chunk_stages_of(c, dra_chunk_heads(c), dra_chunks(T), E, work);
}

static int64_t room_size(int64_t F, int64_t E)
{
    const int64_t rows = ROOM_DY * F + (ROOMS - ROOM_DY) * E;
    return dra_div_up(F * E + DRA_CHUNK * rows, 16) * 16;
}

/* Rooms of the tiles; in two stages then dS after all chunks, and x. */
static size_t scratch(const dra_call *c)
{
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[MISS]);
    const int64_t          T = c->in[Q].shape.dim[1];
    const dra_chunk_stages s = stages_of(c);
    const int64_t          each = s.two ? s.chunks * F * E + T * E : 0; /* for a head */
    return (size_t)(dra_chunk_most_tiles(&s) * room_size(F, E) + s.heads * each) * sizeof(real);
}

static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const int64_t *q = c->in[Q].shape.dim;
    w->c = c, w->a = c->attr, w->F = q[3], w->E = dra_last(&c->in[MISS]);
    w->dy_all = c->in[DY], w->dS_first = c->out[DS];
    w->d.n = 0, w->d.jumps = false;
    w->decay = w->a->l && c->out[DL].data;
    const int64_t size = room_size(w->F, w->E);
    real         *rest = (real *)c->scratch + dra_chunk_most_tiles(s) * size;
    w->room = (real *)c->scratch + tile * size;
    w->after = (dra_tensor){rest, DRA_REAL, DRA_SHAPE(q[0], q[2], s->chunks, w->F, w->E)};
    w->x_all = (dra_tensor){s->two ? rest + s->heads * s->chunks * w->F * w->E : NULL, DRA_REAL,
                            DRA_SHAPE(q[0], q[1], q[2], w->E)};
    dra_tensor_make_dense(&w->after);
    dra_tensor_make_dense(&w->x_all);
}

static dra_chunk chunk_at(const walk *w, int64_t head, int64_t i)
{
    const int64_t *dim = w->c->in[Q].shape.dim, T = dim[1], H = dim[2];
    return dra_chunk_at(w->c, dra_chunk_option(w->c, w->a->mark), head / H, head % H, T, i);
}

static void walk_head(const dra_call *c, const dra_chunk_stages *s, int64_t head)
{
    const int64_t H = c->in[Q].shape.dim[2];
    walk          w;
    open_walk(&w, c, s, head);
    real     *spare = room(&w, ROOMS);
    dra_chunk k = {.simd = dra_simd_of(c), .b = head / H, .h = head % H};
    w.dS = (dra_matrix_block){.row = w.E, .col = 1};
    w.dS.at = dra_chunk_state(&k, dra_chunk_option(c, w.a->S), &c->out[DS], w.F * w.E, spare);
    for (int64_t i = s->chunks - 1; i >= 0; i--) {
        k = chunk_at(&w, head, i);
        open_chunk(&w, &k);
        open_writes(&w, &k, i);
        read_writes(&w, &k, w.x);
        w.through = w.decay ? through_state(&w, &k, w.x) : 0;
        solve(&w, &k);
        weigh(&w, &k);
        back_chunk(&w, &k);
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

/* Some columns of x, and of dS after all chunks and before the first. */
static void pass_states(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_chunk_span at = dra_chunk_block_at(s, tile);
    walk                 w;
    open_walk(&w, c, s, tile);
    w.E = at.end - at.first;
    w.dy_all = dra_chunk_columns(&w.dy_all, at.first, w.E);
    w.dS_first = dra_chunk_columns(&w.dS_first, at.first, w.E);
    w.x_all = dra_chunk_columns(&w.x_all, at.first, w.E);
    w.after = dra_chunk_columns(&w.after, at.first, w.E);
    dra_chunk k = chunk_at(&w, at.head, s->chunks - 1);
    w.dS = dra_chunk_matrix(dra_chunk_option(c, w.a->S), k.b, k.h, 0);
    if (w.dS.at) w.dS.at += at.first;
    move_state(&w, &k, s->chunks - 1);
    for (int64_t i = s->chunks - 1; i >= 0; i--) {
        k = chunk_at(&w, at.head, i);
        open_chunk(&w, &k);
        read_writes(&w, &k, w.x);
        solve(&w, &k);
        if (i == 0 && !c->out[DS].data) break;
        weigh(&w, &k);
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
        const dra_chunk        k = chunk_at(&w, at.head, i);
        const dra_matrix_block read = {room(&w, ROOM_X), w.E, 1};
        w.dS = dra_chunk_matrix(&w.after, k.b, k.h, i);
        open_chunk(&w, &k);
        open_writes(&w, &k, i);
        if (w.decay) read_writes(&w, &k, read);
        w.through = w.decay ? through_state(&w, &k, read) : 0;
        weigh(&w, &k);
        back_chunk(&w, &k);
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

/* Over pairs of tokens six products of width F (A, G, one for dq, three for dk) and four of width E
 * (G^T dy, the solution, M, X); six of a token with F E numbers of a state. */
static dra_cost cost(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[MISS]);
    const double pairs = dra_chunk_pair_count(c, DRA_CHUNK), tokens = (double)dra_rows(&c->in[Q]);
    return (dra_cost){2 * (pairs * (6 * F + 4 * E) + tokens * 6 * F * E), dra_call_bytes(c)};
}

const dra_op dra_op_delta_back = {.name = "delta_back",
                                  .n_in = DRA_MANY,
                                  .n_out = DRA_DELTA_BACK_OUTPUTS,
                                  .attr_size = sizeof(dra_delta_attr),
                                  .infer = infer,
                                  .cost = cost};

const dra_cpu_kernel dra_cpu_delta_back = {
    .base = {.op = "delta_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch},
    .tiles = tiles,
    .tile = tile,
    .stages = stages,
};
