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
 * <S, dS> = e^(L_n-1) <S_0, dS> + sum_t last_t u_t.(k dS)_t, so the last state is not needed. */
#include "ops/delta.h"

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
    real                 *dS;   /* of the state after the chunk, then before it */
    real                 *room; /* scratch: rows of a chunk, see below */
    dra_matrix_block      q, k, dy, miss, u, x, m, S0; /* of the chunk */
    dra_decay             d;
    real                  b[DRA_CHUNK];
    real                  A[DRA_CHUNK * DRA_CHUNK], G[DRA_CHUNK * DRA_CHUNK]; /* then M and X */
    double                dL[DRA_CHUNK], through;                             /* of dl */
    bool                  decay;                                              /* is dl wanted? */
} walk;

enum { ROOM_Q, ROOM_K, ROOM_SPARE, ROOM_DY, ROOM_MISS, ROOM_U, ROOM_X, ROOM_M, ROOMS };

/* Rows of a chunk in scratch: three of width F, then five of width E. */
static real *room(const walk *w, int which)
{
    const int64_t wide = which < ROOM_DY ? which : ROOM_DY, rest = which - wide;
    return w->room + DRA_CHUNK * (wide * w->F + rest * w->E);
}

static int64_t scratch_of(int64_t F, int64_t E)
{
    const int64_t rows = ROOM_DY * F + (ROOMS - ROOM_DY) * E;
    return dra_div_up(F * E + DRA_CHUNK * rows, 16) * 16;
}

static void open_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_call   *c = w->c;
    const dra_tensor *S0 = &c->in[BORDERS];
    w->q = dra_chunk_rows(k, &c->in[Q], room(w, ROOM_Q));
    w->k = dra_chunk_rows(k, &c->in[K], room(w, ROOM_K));
    w->dy = dra_chunk_rows(k, &c->in[DY], room(w, ROOM_DY));
    w->miss = dra_chunk_rows(k, &c->in[MISS], room(w, ROOM_MISS));
    w->S0 = (dra_matrix_block){dra_recur_at(S0, k->b, k->h, i), S0->stride[3], 1};
    dra_delta_strengths(k, &c->in[B], w->b);
    w->u = dra_matrix_block_scaled(k->simd, k->n, w->E, w->b, w->miss, room(w, ROOM_U));
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
}

/* x and m, and of `through` what was written in the chunk. */
static void misses(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block dS = {w->dS, w->E, 1}, N = {w->A, DRA_CHUNK, 1};
    real                   minus[DRA_CHUNK];
    w->x = (dra_matrix_block){room(w, ROOM_X), w->E, 1};
    dra_matrix_block_multiply(simd, k->n, w->E, w->F, w->k, dS, w->x, false);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->E, w->d.last, w->x);
    for (int64_t t = 0; t < k->n && w->decay; t++)
        w->through += (double)simd->dot(w->E, w->u.at + t * w->u.row, w->x.at + t * w->x.row);
    dra_chunk_pairs(simd, k->n, w->F, w->q, w->k, w->G);
    dra_decay_apply(&w->d, simd, NULL, w->G);
    dra_chunk_above(simd, k->n, w->E, w->G, w->dy, w->x, true);
    dra_delta_overlaps(k, &w->d, w->F, w->k, w->k, w->A);
    for (int64_t t = 0; t < k->n; t++) {
        minus[t] = -w->b[t];
        simd->scale(t, minus[t], w->A + t * DRA_CHUNK);
    }
    dra_delta_solve_back(simd, k->n, w->E, N, w->x);
    w->m = dra_matrix_block_scaled(simd, k->n, w->E, minus, w->x, room(w, ROOM_M));
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
        const real *x = w->x.at + t * w->E, *miss = w->miss.at + t * w->miss.row;
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
    const dra_matrix_block dS = {w->dS, w->E, 1};
    const dra_matrix_block to = dra_chunk_out(k, &w->c->out[DK], room(w, ROOM_SPARE));
    dra_matrix_block_multiply(simd, k->n, w->F, w->E, w->m, dra_matrix_block_transposed(w->S0), to,
                              false);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->F, w->d.p, to);
    dra_chunk_below(simd, k->n, w->F, w->A, w->k, to, true);
    /* Twice, as the sum of both parts takes it away once. */
    if (w->decay) dra_chunk_add_dots(k, w->F, 2, w->k, to, w->dL);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->E, w->d.last, w->u);
    dra_matrix_block_multiply(simd, k->n, w->F, w->E, w->u, dra_matrix_block_transposed(dS), to,
                              true);
    dra_chunk_above(simd, k->n, w->F, w->G, w->q, to, true);
    dra_chunk_above(simd, k->n, w->F, w->A, w->k, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->F, -1, w->k, to, w->dL);
    dra_chunk_clear_pads(k, w->F, to);
}

/* dS from after the chunk to before it. */
static void pass_state(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block dS = {w->dS, w->E, 1};
    dra_matrix_block       dy = w->dy;
    if (!w->d.plain) {
        dra_decay_state(&w->d, simd, w->F, w->E, dS);
        dy = dra_matrix_block_scaled(simd, k->n, w->E, w->d.p, dy, room(w, ROOM_DY));
        dra_matrix_block_scale(simd, k->n, w->E, w->d.p, w->m);
    }
    dra_matrix_block_multiply(simd, w->F, w->E, k->n, dra_matrix_block_transposed(w->q), dy, dS,
                              true);
    dra_matrix_block_multiply(simd, w->F, w->E, k->n, dra_matrix_block_transposed(w->k), w->m, dS,
                              true);
}

static void back_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_tensor      *out = w->c->out;
    const dra_matrix_block dS = {w->dS, w->E, 1};
    open_chunk(w, k, i);
    memset(w->dL, 0, sizeof w->dL);
    w->through = w->decay ? dra_chunk_through(k, &w->d, w->F, w->E, w->S0, dS) : 0;
    misses(w, k);
    values(w, k);
    if (out[DQ].data || out[DK].data || w->decay) {
        pair_gradients(w, k);
        queries(w, k);
        keys(w, k);
    }
    if (w->decay) dra_chunk_decay_back(k, &out[DL], w->through, w->dL);
    if (i > 0 || out[DS].data) pass_state(w, k);
}

/* ---- kernel ---------------------------------------------------------------------------------- */

static size_t scratch(const dra_call *c)
{
    const int64_t each = scratch_of(dra_last(&c->in[Q]), dra_last(&c->in[MISS]));
    return (size_t)(dra_chunk_heads(c) * each) * sizeof(real);
}

static void tile(const dra_call *c, int64_t number)
{
    const dra_delta_attr *a = c->attr;
    const int64_t        *dim = c->in[Q].shape.dim, T = dim[1], H = dim[2];
    walk                  w;
    w.c = c, w.a = a, w.F = dim[3], w.E = dra_last(&c->in[MISS]), w.d.n = 0;
    w.d.jumps = false;
    w.decay = a->l && c->out[DL].data;
    w.room = (real *)c->scratch + number * scratch_of(w.F, w.E);
    dra_chunk k = {.simd = dra_simd_of(c), .b = number / H, .h = number % H};
    w.dS = dra_chunk_state(&k, dra_chunk_option(c, a->S), &c->out[DS], w.F * w.E, room(&w, ROOMS));
    for (int64_t i = dra_chunks(T) - 1; i >= 0; i--) {
        k = dra_chunk_at(c, dra_chunk_option(c, a->mark), k.b, k.h, T, i);
        back_chunk(&w, &k, i);
    }
}

/* Over pairs of tokens six products of width F (A, G, one for dq, three for dk) and four of width E
 * (G^T dy, the solution, M, X); six of a token with F E numbers of a state. */
static dra_cost cost(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[MISS]);
    const double pairs = dra_chunk_pair_count(c), tokens = (double)dra_rows(&c->in[Q]);
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
    .tiles = dra_chunk_heads,
    .tile = tile,
};
