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

static dra_status infer_delta_back(dra_graph *g, const dra_node *n, dra_type *out)
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
    dra_chunk_walk        base; /* its S: dS of the state after the chunk, then before it */
    const dra_delta_attr *a;
    dra_tensor            dy_all, x_all; /* columns of dy, and of x in two stages, or all */
    dra_matrix_block      q, k, dy, miss, u, x, m, S0; /* of the chunk */
    dra_decay             d;
    real                  b[DRA_CHUNK];
    real                  A[DRA_CHUNK * DRA_CHUNK], G[DRA_CHUNK * DRA_CHUNK]; /* then M and X */
    double                dL[DRA_CHUNK], through;                             /* of dl */
    bool                  decay;                                              /* is dl wanted? */
} walk;

enum { ROOM_Q, ROOM_K, ROOM_SPARE, ROOM_DY, ROOM_MISS, ROOM_U, ROOM_X, ROOM_M, ROOMS };

/* Rows of a chunk in scratch: three of width F, then five of width E; then a state. */
static real *find_room(const walk *w, int which)
{
    const int64_t wide = which < ROOM_DY ? which : ROOM_DY, rest = which - wide;
    return w->base.room + DRA_CHUNK * (wide * w->base.F + rest * w->base.E);
}

static void open_chunk(walk *w, const dra_chunk *k)
{
    const dra_call *c = w->base.c;
    w->q = dra_chunk_rows(k, &c->in[Q], find_room(w, ROOM_Q));
    w->k = dra_chunk_rows(k, &c->in[K], find_room(w, ROOM_K));
    w->dy = dra_chunk_rows(k, &w->dy_all, find_room(w, ROOM_DY));
    w->x = dra_chunk_out(k, &w->x_all, find_room(w, ROOM_X));
    dra_delta_strengths(k, &c->in[B], w->b);
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
}

/* What was written, and the state before it. */
static void open_writes(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_call *c = w->base.c;
    w->miss = dra_chunk_rows(k, &c->in[MISS], find_room(w, ROOM_MISS));
    w->u = dra_matrix_block_scaled(k->simd, k->n, w->base.E, w->b, w->miss, find_room(w, ROOM_U));
    w->S0 = dra_chunk_matrix(&c->in[BORDERS], k->b, k->h, i);
}

/* to = last o (k dS) */
static void read_writes(const walk *w, const dra_chunk *k, dra_matrix_block to)
{
    dra_matrix_block_multiply(k->simd, k->n, w->base.E, w->base.F, w->k, w->base.S, to, false);
    if (!w->d.plain) dra_matrix_block_scale(k->simd, k->n, w->base.E, w->d.last, to);
}

/* <S, dS>; read: last o (k dS). */
static double through_state(const walk *w, const dra_chunk *k, dra_matrix_block read)
{
    double sum = dra_chunk_through(k, &w->d, w->base.F, w->base.E, w->S0, w->base.S);
    for (int64_t t = 0; t < k->n; t++)
        sum += (double)k->simd->dot(w->base.E, w->u.at + t * w->u.row, read.at + t * read.row);
    return sum;
}

/* x, from last o (k dS) in its place. */
static void solve_writes(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block N = {w->A, DRA_CHUNK, 1};
    dra_chunk_pairs(simd, k->n, w->base.F, w->q, w->k, w->G);
    dra_decay_apply(&w->d, simd, NULL, w->G);
    dra_chunk_above(simd, k->n, w->base.E, w->G, w->dy, w->x, true);
    dra_delta_overlaps(k, &w->d, w->base.F, w->k, w->k, w->A);
    for (int64_t t = 0; t < k->n; t++) simd->scale(t, -w->b[t], w->A + t * DRA_CHUNK);
    dra_delta_solve_back(simd, k->n, w->base.E, N, w->x);
}

/* m */
static void weigh_misses(walk *w, const dra_chunk *k)
{
    real minus[DRA_CHUNK];
    for (int64_t t = 0; t < k->n; t++) minus[t] = -w->b[t];
    w->m = dra_matrix_block_scaled(k->simd, k->n, w->base.E, minus, w->x, find_room(w, ROOM_M));
}

/* M and X in the places of A and G. */
static void pair_gradients(walk *w, const dra_chunk *k)
{
    dra_delta_overlaps(k, &w->d, w->base.E, w->m, w->u, w->A);
    dra_chunk_pairs(k->simd, k->n, w->base.E, w->dy, w->u, w->G);
    dra_decay_apply(&w->d, k->simd, NULL, w->G);
}

/* dv and db. */
static void return_values(const walk *w, const dra_chunk *k)
{
    const dra_tensor *dv = &w->base.c->out[DV], *db = &w->base.c->out[DB];
    for (int64_t t = 0; t < k->n; t++) {
        const real *x = w->x.at + t * w->x.row, *miss = w->miss.at + t * w->miss.row;
        if (dv->data)
            k->simd->affine(w->base.E, w->b[t], 0, x, dra_recur_at(dv, k->b, k->t + t, k->h));
        if (db->data) *dra_recur_at(db, k->b, k->t + t, k->h) = k->simd->dot(w->base.E, x, miss);
    }
}

static void return_queries(walk *w, const dra_chunk *k)
{
    const dra_matrix_block to = dra_chunk_out(k, &w->base.c->out[DQ], find_room(w, ROOM_SPARE));
    dra_matrix_block_multiply(k->simd, k->n, w->base.F, w->base.E, w->dy,
                              dra_matrix_block_transposed(w->S0), to, false);
    if (!w->d.plain) dra_matrix_block_scale(k->simd, k->n, w->base.F, w->d.p, to);
    dra_chunk_below(k->simd, k->n, w->base.F, w->G, w->k, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->base.F, 1, w->q, to, w->dL);
}

/* The rows of u become last o u: nothing else reads them afterwards. */
static void return_keys(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block to = dra_chunk_out(k, &w->base.c->out[DK], find_room(w, ROOM_SPARE));
    dra_matrix_block_multiply(simd, k->n, w->base.F, w->base.E, w->m,
                              dra_matrix_block_transposed(w->S0), to, false);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->base.F, w->d.p, to);
    dra_chunk_below(simd, k->n, w->base.F, w->A, w->k, to, true);
    /* Twice, as the sum of both parts takes it away once. */
    if (w->decay) dra_chunk_add_dots(k, w->base.F, 2, w->k, to, w->dL);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->base.E, w->d.last, w->u);
    dra_matrix_block_multiply(simd, k->n, w->base.F, w->base.E, w->u,
                              dra_matrix_block_transposed(w->base.S), to, true);
    dra_chunk_above(simd, k->n, w->base.F, w->G, w->q, to, true);
    dra_chunk_above(simd, k->n, w->base.F, w->A, w->k, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->base.F, -1, w->k, to, w->dL);
    dra_chunk_clear_pads(k, w->base.F, to);
}

/* dS from after the chunk to before it. */
static void write_state(dra_chunk_walk *base, const dra_chunk *k)
{
    walk            *w = (walk *)base;
    const dra_simd  *simd = k->simd;
    dra_matrix_block dy = w->dy;
    if (!w->d.plain) {
        dra_decay_state(&w->d, simd, w->base.F, w->base.E, w->base.S);
        dy = dra_matrix_block_scaled(simd, k->n, w->base.E, w->d.p, dy, find_room(w, ROOM_DY));
        dra_matrix_block_scale(simd, k->n, w->base.E, w->d.p, w->m);
    }
    dra_matrix_block_multiply(simd, w->base.F, w->base.E, k->n, dra_matrix_block_transposed(w->q),
                              dy, w->base.S, true);
    dra_matrix_block_multiply(simd, w->base.F, w->base.E, k->n, dra_matrix_block_transposed(w->k),
                              w->m, w->base.S, true);
}

/* All that follows from x. */
static void back_chunk(walk *w, const dra_chunk *k)
{
    const dra_tensor *out = w->base.c->out;
    memset(w->dL, 0, sizeof w->dL);
    return_values(w, k);
    if (out[DQ].data || out[DK].data || w->decay) {
        pair_gradients(w, k);
        return_queries(w, k);
        return_keys(w, k);
    }
    if (w->decay) dra_chunk_decay_back(k, &out[DL], w->through, w->dL);
}

static void cut_columns(dra_chunk_walk *base, int64_t first)
{
    walk *w = (walk *)base;
    w->dy_all = dra_chunk_columns(&w->dy_all, first, base->E);
    w->x_all = dra_chunk_columns(&w->x_all, first, base->E);
}

/* Inside a run x is known, and its scratch holds what is read of dS. */
static void read_state(dra_chunk_walk *base, const dra_chunk *k, int64_t i)
{
    walk      *w = (walk *)base;
    const bool passes = base->part != DRA_CHUNK_INSIDE, returns = base->part != DRA_CHUNK_PASS;
    open_chunk(w, k);
    const dra_matrix_block read = passes ? w->x
                                         : (dra_matrix_block){find_room(w, ROOM_X), base->E, 1};
    if (returns) open_writes(w, k, i);
    if (passes || w->decay) read_writes(w, k, read);
    w->through = returns && w->decay ? through_state(w, k, read) : 0;
    if (passes) solve_writes(w, k);
    weigh_misses(w, k);
    if (returns) back_chunk(w, k);
}

static const dra_chunk_steps steps = {.back = true,
                                      .tokens = DRA_CHUNK,
                                      .cut_columns = cut_columns,
                                      .read = read_state,
                                      .write = write_state};

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages plan_stages(const dra_call *c)
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
static size_t scratch_size(const dra_call *c)
{
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[MISS]);
    const int64_t          T = c->in[Q].shape.dim[1];
    const dra_chunk_stages s = plan_stages(c);
    return dra_chunk_scratch(&s, room_size(F, E), s.chunks * F * E + T * E);
}

static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_delta_attr *a = c->attr;
    const int64_t        *q = c->in[Q].shape.dim, F = q[3], E = dra_last(&c->in[MISS]);
    w->base = (dra_chunk_walk){.F = F,
                               .E = E,
                               .mark = dra_chunk_option(c, a->mark),
                               .first = dra_chunk_option(c, a->S),
                               .last = c->out[DS]};
    real *rest = dra_chunk_open(&w->base, c, s, room_size(F, E), tile);
    w->base.spare = find_room(w, ROOMS);
    w->base.borders = dra_chunk_between(s, &rest, DRA_SHAPE(q[0], q[2], s->chunks, F, E));
    w->x_all = dra_chunk_between(s, &rest, DRA_SHAPE(q[0], q[1], q[2], E));
    w->a = a, w->dy_all = c->in[DY];
    w->d.n = 0, w->d.jumps = false;
    w->decay = a->l && c->out[DL].data;
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

/* Over pairs of tokens six products of width F (A, G, one for dq, three for dk) and four of width E
 * (G^T dy, the solution, M, X); six of a token with F E numbers of a state. */
static dra_cost cost_delta_back(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[MISS]);
    const double pairs = dra_chunk_pair_count(c, DRA_CHUNK), tokens = (double)dra_rows(&c->in[Q]);
    return (dra_cost){2 * (pairs * (6 * F + 4 * E) + tokens * 6 * F * E), dra_call_bytes(c)};
}

const dra_op dra_op_delta_back = {.name = "delta_back",
                                  .n_in = DRA_MANY,
                                  .n_out = DRA_DELTA_BACK_OUTPUTS,
                                  .attr_size = sizeof(dra_delta_attr),
                                  .infer = infer_delta_back,
                                  .cost = cost_delta_back};

const dra_cpu_kernel dra_cpu_delta_back = {
    .base = {.op = "delta_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch_size},
    .tiles = count_tiles,
    .tile = walk_tile,
    .stages = count_stages,
};
