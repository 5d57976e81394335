/* The gradient of moments. A chunk at once, from the last to the first, with the symbols of
 * moment.c; dS and dz are the gradients of the state after the chunk and become those of the one
 * before it. A is made again, S_0 and z_0 were kept.
 *   dnum = dy / den,  dden = -(dy.y) / den, or 0 where den is `least`; else dnum = dy, dden = 0
 *   X  = (dnum v^T + dden 1^T) o D
 *   dq = X k + p o (dnum S_0^T + dden z_0^T)
 *   dk = X^T q + last o (v dS^T + 1 dz^T)
 *   dv = A^T dnum + last o (k dS)
 *   dl_j = <S, dS> + <z, dz> + sum_{t >= j} (q_t.dq_t - k_t.dk_t)
 *   dS = dS + fade dS + q^T (p o dnum),  dz = dz + fade dz + q^T (p o dden)
 * <S, dS> + <z, dz> = e^(L_n-1) (<S_0, dS> + <z_0, dz>) + the sum of k_t.(second part of dk_t), so
 * the last state is not needed. */
#include "ops/moment.h"

enum { Q = DRA_MOMENT_Q, K = DRA_MOMENT_K, V = DRA_MOMENT_V };
enum {
    DQ = DRA_MOMENT_DQ,
    DK = DRA_MOMENT_DK,
    DV = DRA_MOMENT_DV,
    DL = DRA_MOMENT_DL,
    DS = DRA_MOMENT_DS,
    DZ = DRA_MOMENT_DZ
};

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_moment_attr *a = n->attr;
    const int64_t         *q = dra_type_of(g, n->in[Q])->shape.dim;
    const int64_t          E = dra_type_of(g, n->in[V])->shape.dim[3];
    for (int i = DQ; i <= DV; i++) out[i] = *dra_type_of(g, n->in[i]);
    out[DL] = (dra_type){DRA_REAL, a->l ? DRA_SHAPE(q[0], q[1], q[2]) : DRA_SHAPE(0)};
    out[DS] = (dra_type){DRA_REAL, DRA_SHAPE(q[0], q[2], q[3], E)};
    out[DZ] = (dra_type){DRA_REAL, a->normalise ? DRA_SHAPE(q[0], q[2], q[3]) : DRA_SHAPE(0)};
    return DRA_OK;
}

/* ---- one chunk ------------------------------------------------------------------------------- */

typedef struct walk {
    const dra_call        *c;
    const dra_moment_attr *a;
    int64_t                F, E;
    real                  *dS, *dz;           /* of the state after the chunk, then before it */
    real                  *room;              /* scratch: rows of a chunk, see below */
    dra_matrix_block       q, k, v, dnum, S0; /* of the chunk */
    real                  *z0;
    dra_decay              d;
    real                   A[DRA_CHUNK * DRA_CHUNK]; /* then X */
    real                   den[DRA_CHUNK], dden[DRA_CHUNK];
    double                 dL[DRA_CHUNK], through; /* of dl */
    bool                   decay;                  /* is dl wanted? */
} walk;

enum { ROOM_Q, ROOM_K, ROOM_SPARE, ROOM_V, ROOM_DY, ROOM_DNUM };

/* Rows of a chunk in scratch: three of width F, then three of width E. */
static real *room(const walk *w, int which)
{
    const int64_t wide = which < ROOM_V ? which : ROOM_V, rest = which - wide;
    return w->room + DRA_CHUNK * (wide * w->F + rest * w->E);
}

static int64_t scratch_of(int64_t F, int64_t E)
{
    return dra_div_up(F * E + F + DRA_CHUNK * 3 * (F + E), 16) * 16;
}

static void open_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_call   *c = w->c;
    const dra_tensor *S0 = &c->in[w->a->borders], *z0 = dra_chunk_option(c, w->a->z_borders);
    w->q = dra_chunk_rows(k, &c->in[Q], room(w, ROOM_Q));
    w->k = dra_chunk_rows(k, &c->in[K], room(w, ROOM_K));
    w->v = dra_chunk_rows(k, &c->in[V], room(w, ROOM_V));
    w->dnum = dra_chunk_rows(k, &c->in[w->a->dy], room(w, ROOM_DY));
    w->S0 = (dra_matrix_block){dra_recur_at(S0, k->b, k->h, i), S0->stride[3], 1};
    w->z0 = z0 ? dra_recur_at(z0, k->b, k->h, i) : NULL;
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
    dra_moment_weights(k, w->a, &w->d, w->F, w->q, w->k, w->z0, w->A, w->den);
}

/* dnum and dden from dy. */
static void divide(walk *w, const dra_chunk *k)
{
    const dra_tensor      *y = dra_chunk_option(w->c, w->a->y);
    const dra_matrix_block dy = w->dnum;
    real                   part[DRA_CHUNK];
    if (!y) return;
    for (int64_t t = 0; t < k->n; t++) {
        const real *row = dra_recur_at(y, k->b, k->t + t, k->h);
        const bool  least = w->a->least > 0 && w->den[t] <= (real)w->a->least;
        part[t] = 1 / w->den[t];
        w->dden[t] = least ? 0 : -k->simd->dot(w->E, dy.at + t * dy.row, row) * part[t];
    }
    w->dnum = dra_matrix_block_scaled(k->simd, k->n, w->E, part, dy, room(w, ROOM_DNUM));
}

static void values(walk *w, const dra_chunk *k)
{
    const dra_matrix_block dS = {w->dS, w->E, 1}, to = dra_chunk_out(k, &w->c->out[DV], NULL);
    dra_matrix_block_multiply(k->simd, k->n, w->E, w->F, w->k, dS, to, false);
    if (!w->d.plain) dra_matrix_block_scale(k->simd, k->n, w->E, w->d.last, to);
    dra_chunk_above(k->simd, k->n, w->E, w->A, w->dnum, to, true);
}

static void queries(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block to = dra_chunk_out(k, &w->c->out[DQ], room(w, ROOM_SPARE));
    dra_matrix_block_multiply(simd, k->n, w->F, w->E, w->dnum, dra_matrix_block_transposed(w->S0),
                              to, false);
    for (int64_t t = 0; t < k->n && w->z0; t++)
        simd->axpy(w->F, w->dden[t], w->z0, to.at + t * to.row);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->F, w->d.p, to);
    dra_chunk_below(simd, k->n, w->F, w->A, w->k, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->F, 1, w->q, to, w->dL);
}

static void keys(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block dS = {w->dS, w->E, 1};
    const dra_matrix_block to = dra_chunk_out(k, &w->c->out[DK], room(w, ROOM_SPARE));
    double                 parts[DRA_CHUNK] = {0}; /* k_t.(second part of dk_t) */
    dra_matrix_block_multiply(simd, k->n, w->F, w->E, w->v, dra_matrix_block_transposed(dS), to,
                              false);
    for (int64_t t = 0; t < k->n && w->z0; t++)
        simd->add(w->F, to.at + t * to.row, w->dz, to.at + t * to.row);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->F, w->d.last, to);
    if (w->decay) dra_chunk_add_dots(k, w->F, 1, w->k, to, parts);
    dra_chunk_above(simd, k->n, w->F, w->A, w->q, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->F, -1, w->k, to, w->dL);
    for (int64_t t = 0; t < k->n; t++) w->through += parts[t];
    dra_chunk_clear_pads(k, w->F, to);
}

/* The part of <S, dS> + <z, dz> that comes from before the chunk. */
static double through_state(const walk *w, const dra_chunk *k)
{
    const dra_matrix_block z0 = {w->z0, w->F, 1};
    double                 sum = dra_chunk_through(k, &w->d, w->F, w->E, w->S0, w->dS);
    if (w->z0) sum += dra_chunk_through(k, &w->d, 1, w->F, z0, w->dz);
    return sum;
}

/* dS and dz from after the chunk to before it. */
static void pass_state(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block dS = {w->dS, w->E, 1};
    dra_matrix_block       dnum = w->dnum;
    if (!w->d.plain) {
        dra_decay_state(&w->d, simd, w->F * w->E, w->dS);
        dnum = dra_matrix_block_scaled(simd, k->n, w->E, w->d.p, dnum, room(w, ROOM_DNUM));
    }
    dra_matrix_block_multiply(simd, w->F, w->E, k->n, dra_matrix_block_transposed(w->q), dnum, dS,
                              true);
    if (!w->z0) return;
    dra_decay_state(&w->d, simd, w->F, w->dz);
    for (int64_t t = 0; t < k->n; t++)
        simd->axpy(w->F, w->d.p[t] * w->dden[t], w->q.at + t * w->q.row, w->dz);
}

static void back_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_tensor *out = w->c->out;
    open_chunk(w, k, i);
    divide(w, k);
    memset(w->dL, 0, sizeof w->dL);
    w->through = w->decay ? through_state(w, k) : 0;
    if (out[DV].data) values(w, k);
    if (out[DQ].data || out[DK].data || w->decay) {
        dra_chunk_pairs(k->simd, k->n, w->E, w->dnum, w->v, w->A);
        dra_decay_apply(&w->d, k->simd, w->z0 ? w->dden : NULL, w->A);
        queries(w, k);
        keys(w, k);
    }
    if (w->decay) dra_chunk_decay_back(k, &out[DL], w->through, w->dL);
    if (i > 0 || out[DS].data || (w->z0 && out[DZ].data)) pass_state(w, k);
}

/* ---- kernel ---------------------------------------------------------------------------------- */

static size_t scratch(const dra_call *c)
{
    return (size_t)(dra_chunk_tiles(c) * scratch_of(dra_last(&c->in[Q]), dra_last(&c->in[V]))) *
           sizeof(real);
}

static void tile(const dra_call *c, int64_t number)
{
    const dra_moment_attr *a = c->attr;
    const int64_t         *dim = c->in[Q].shape.dim, T = dim[1], H = dim[2];
    walk                   w;
    w.c = c, w.a = a, w.F = dim[3], w.E = dra_last(&c->in[V]), w.d.n = 0;
    w.d.jumps = a->jumps;
    w.decay = a->l && c->out[DL].data;
    w.room = (real *)c->scratch + number * scratch_of(w.F, w.E);
    real     *spare = w.room + DRA_CHUNK * 3 * (w.F + w.E);
    dra_chunk k = {.simd = dra_simd_of(c), .b = number / H, .h = number % H};
    w.dS = dra_chunk_state(&k, dra_chunk_option(c, a->S), &c->out[DS], w.F * w.E, spare);
    w.dz = dra_chunk_state(&k, dra_chunk_option(c, a->z), &c->out[DZ], w.F, spare + w.F * w.E);
    for (int64_t i = dra_chunks(T) - 1; i >= 0; i--) {
        k = dra_chunk_at(c, dra_chunk_option(c, a->mark), k.b, k.h, T, i);
        back_chunk(&w, &k, i);
    }
}

/* A again and X, one product each for dq, dk and dv over the pairs; four products of a token with
 * F E numbers of a state. */
static dra_cost cost(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double pairs = dra_chunk_pair_count(c), tokens = (double)dra_rows(&c->in[Q]);
    return (dra_cost){2 * (pairs * (3 * F + 2 * E) + tokens * 4 * F * E), dra_call_bytes(c)};
}

const dra_op dra_op_moment_back = {.name = "moment_back",
                                   .n_in = DRA_MANY,
                                   .n_out = DRA_MOMENT_BACK_OUTPUTS,
                                   .attr_size = sizeof(dra_moment_attr),
                                   .infer = infer,
                                   .cost = cost};

const dra_cpu_kernel dra_cpu_moment_back = {
    .base = {.op = "moment_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch},
    .tiles = dra_chunk_tiles,
    .tile = tile,
};
