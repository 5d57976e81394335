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
 * the last state is not needed. In stages (chunk.h): 1 / den and dden of all chunks, where
 * normalised; columns of dS after all chunks; all else. */
#include "ops/chunked/moment.h"

enum { Q = DRA_MOMENT_Q, K = DRA_MOMENT_K, V = DRA_MOMENT_V };
enum {
    DQ = DRA_MOMENT_DQ,
    DK = DRA_MOMENT_DK,
    DV = DRA_MOMENT_DV,
    DL = DRA_MOMENT_DL,
    DS = DRA_MOMENT_DS,
    DZ = DRA_MOMENT_DZ
};

static dra_status infer_moment_back(dra_graph *g, const dra_node *n, dra_type *out)
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
    dra_chunk_walk         base; /* its S, z: dS, dz of after the chunk, then before it */
    const dra_moment_attr *a;
    dra_tensor             dy;                /* columns of it, or all */
    dra_tensor             parts;             /* 1 / den, dden: (B, H, chunks, 2, DRA_CHUNK) */
    dra_matrix_block       q, k, v, dnum, S0; /* of the chunk */
    real                  *z0;
    dra_decay              d;
    real                   A[DRA_CHUNK * DRA_CHUNK];         /* then X */
    real                   part[DRA_CHUNK], dden[DRA_CHUNK]; /* part: 1 / den */
    double                 dL[DRA_CHUNK], through;           /* of dl */
    bool                   decay;                            /* is dl wanted? */
} walk;

enum { ROOM_Q, ROOM_K, ROOM_SPARE, ROOM_V, ROOM_DY, ROOM_DNUM, ROOMS };

/* Rows of a chunk in scratch: three of width F, then three of width E; then a state. */
static real *find_room(const walk *w, int which)
{
    const int64_t wide = which < ROOM_V ? which : ROOM_V, rest = which - wide;
    return w->base.room + DRA_CHUNK * (wide * w->base.F + rest * w->base.E);
}

static void open_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_call   *c = w->base.c;
    const dra_tensor *z0 = dra_chunk_option(c, w->a->z_borders);
    w->q = dra_chunk_rows(k, &c->in[Q], find_room(w, ROOM_Q));
    w->k = dra_chunk_rows(k, &c->in[K], find_room(w, ROOM_K));
    w->dnum = dra_chunk_rows(k, &w->dy, find_room(w, ROOM_DY));
    w->S0 = dra_chunk_matrix(&c->in[w->a->borders], k->b, k->h, i);
    w->z0 = z0 ? dra_recur_at(z0, k->b, k->h, i) : NULL;
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
}

/* A, 1 / den and dden. */
static void weigh_chunk(walk *w, const dra_chunk *k)
{
    const dra_tensor      *y = dra_chunk_option(w->base.c, w->a->y);
    const dra_matrix_block dy = w->dnum;
    real                   den[DRA_CHUNK];
    dra_moment_weights(k, w->a, &w->d, w->base.F, w->q, w->k, w->z0, w->A, den);
    for (int64_t t = 0; t < k->n && y; t++) {
        const real *row = dra_recur_at(y, k->b, k->t + t, k->h);
        const bool  least = w->a->least > 0 && den[t] <= (real)w->a->least;
        w->part[t] = 1 / den[t];
        w->dden[t] = least ? 0 : -k->simd->dot(w->base.E, dy.at + t * dy.row, row) * w->part[t];
    }
}

/* dnum from dy. */
static void divide_upstream(walk *w, const dra_chunk *k)
{
    if (w->a->y)
        w->dnum = dra_matrix_block_scaled(k->simd, k->n, w->base.E, w->part, w->dnum,
                                          find_room(w, ROOM_DNUM));
}

static void return_values(walk *w, const dra_chunk *k)
{
    const dra_matrix_block to = dra_chunk_out(k, &w->base.c->out[DV], NULL);
    dra_matrix_block_multiply(k->simd, k->n, w->base.E, w->base.F, w->k, w->base.S, to, false);
    if (!w->d.plain) dra_matrix_block_scale(k->simd, k->n, w->base.E, w->d.last, to);
    dra_chunk_above(k->simd, k->n, w->base.E, w->A, w->dnum, to, true);
}

static void return_queries(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block to = dra_chunk_out(k, &w->base.c->out[DQ], find_room(w, ROOM_SPARE));
    dra_matrix_block_multiply(simd, k->n, w->base.F, w->base.E, w->dnum,
                              dra_matrix_block_transposed(w->S0), to, false);
    for (int64_t t = 0; t < k->n && w->z0; t++)
        simd->axpy(w->base.F, w->dden[t], w->z0, to.at + t * to.row);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->base.F, w->d.p, to);
    dra_chunk_below(simd, k->n, w->base.F, w->A, w->k, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->base.F, 1, w->q, to, w->dL);
}

static void return_keys(walk *w, const dra_chunk *k)
{
    const dra_simd        *simd = k->simd;
    const dra_matrix_block to = dra_chunk_out(k, &w->base.c->out[DK], find_room(w, ROOM_SPARE));
    double                 parts[DRA_CHUNK] = {0}; /* k_t.(second part of dk_t) */
    dra_matrix_block_multiply(simd, k->n, w->base.F, w->base.E, w->v,
                              dra_matrix_block_transposed(w->base.S), to, false);
    for (int64_t t = 0; t < k->n && w->z0; t++)
        simd->add(w->base.F, to.at + t * to.row, w->base.z, to.at + t * to.row);
    if (!w->d.plain) dra_matrix_block_scale(simd, k->n, w->base.F, w->d.last, to);
    if (w->decay) dra_chunk_add_dots(k, w->base.F, 1, w->k, to, parts);
    dra_chunk_above(simd, k->n, w->base.F, w->A, w->q, to, true);
    if (w->decay) dra_chunk_add_dots(k, w->base.F, -1, w->k, to, w->dL);
    for (int64_t t = 0; t < k->n; t++) w->through += parts[t];
    dra_chunk_clear_pads(k, w->base.F, to);
}

/* The part of <S, dS> + <z, dz> due to tokens before the chunk. */
static double through_state(const walk *w, const dra_chunk *k)
{
    const dra_matrix_block z0 = {w->z0, w->base.F, 1}, dz = {w->base.z, w->base.F, 1};
    double sum = dra_chunk_through(k, &w->d, w->base.F, w->base.E, w->S0, w->base.S);
    if (w->z0) sum += dra_chunk_through(k, &w->d, 1, w->base.F, z0, dz);
    return sum;
}

/* dS and dz from after the chunk to before it. */
static void write_state(dra_chunk_walk *base, const dra_chunk *k)
{
    walk            *w = (walk *)base;
    const dra_simd  *simd = k->simd;
    dra_matrix_block dnum = w->dnum;
    if (!w->d.plain) {
        dra_decay_state(&w->d, simd, w->base.F, w->base.E, w->base.S);
        dnum = dra_matrix_block_scaled(simd, k->n, w->base.E, w->d.p, dnum,
                                       find_room(w, ROOM_DNUM));
    }
    dra_matrix_block_multiply(simd, w->base.F, w->base.E, k->n, dra_matrix_block_transposed(w->q),
                              dnum, w->base.S, true);
    if (!w->base.z) return;
    dra_decay_state(&w->d, simd, 1, w->base.F, (dra_matrix_block){w->base.z, w->base.F, 1});
    for (int64_t t = 0; t < k->n; t++)
        simd->axpy(w->base.F, w->d.p[t] * w->dden[t], w->q.at + t * w->q.row, w->base.z);
}

/* All that is in the chunk. */
static void back_chunk(walk *w, const dra_chunk *k)
{
    const dra_tensor *out = w->base.c->out;
    w->v = dra_chunk_rows(k, &w->base.c->in[V], find_room(w, ROOM_V));
    weigh_chunk(w, k);
    divide_upstream(w, k);
    memset(w->dL, 0, sizeof w->dL);
    w->through = w->decay ? through_state(w, k) : 0;
    if (out[DV].data) return_values(w, k);
    if (out[DQ].data || out[DK].data || w->decay) {
        dra_chunk_pairs(k->simd, k->n, w->base.E, w->dnum, w->v, w->A);
        dra_decay_apply(&w->d, k->simd, w->z0 ? w->dden : NULL, w->A);
        return_queries(w, k);
        return_keys(w, k);
    }
    if (w->decay) dra_chunk_decay_back(k, &out[DL], w->through, w->dL);
}

/* 1 / den and dden of chunk i, from one stage to the next. */
static void store_weights(const walk *w, const dra_chunk *k, int64_t i)
{
    real *to = dra_recur_at(&w->parts, k->b, k->h, i);
    dra_recur_copy(k->n, w->part, to);
    dra_recur_copy(k->n, w->dden, to + DRA_CHUNK);
}

static void load_weights(walk *w, const dra_chunk *k, int64_t i)
{
    const real *from = dra_recur_at(&w->parts, k->b, k->h, i);
    dra_recur_copy(k->n, from, w->part);
    dra_recur_copy(k->n, from + DRA_CHUNK, w->dden);
}

static void cut_columns(dra_chunk_walk *base, int64_t first)
{
    walk *w = (walk *)base;
    w->dy = dra_chunk_columns(&w->dy, first, base->E);
}

static void read_state(dra_chunk_walk *base, const dra_chunk *k, int64_t i)
{
    walk *w = (walk *)base;
    open_chunk(w, k, i);
    if (base->part == DRA_CHUNK_WEIGH) {
        weigh_chunk(w, k);
        store_weights(w, k, i);
    } else if (base->part == DRA_CHUNK_PASS) {
        if (w->a->y) load_weights(w, k, i);
        divide_upstream(w, k);
    } else {
        back_chunk(w, k);
    }
}

static const dra_chunk_steps steps = {.back = true,
                                      .tokens = DRA_CHUNK,
                                      .cut_columns = cut_columns,
                                      .read = read_state,
                                      .write = write_state};

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages plan_stages(const dra_call *c)
{
    const dra_moment_attr *a = c->attr;
    const int64_t          T = c->in[Q].shape.dim[1], E = dra_last(&c->in[V]);
    const dra_chunk_work   work = {20, 4, a->normalise ? 105 : 95, a->normalise};
    return dra_chunk_stages_of(c, dra_chunk_heads(c), dra_chunks(T), E, work);
}

static int64_t room_size(int64_t F, int64_t E)
{
    return dra_div_up(F * E + F + DRA_CHUNK * 3 * (F + E), 16) * 16;
}

/* Scratch of the tiles and, in stages, what one passes to the next. */
static size_t scratch_size(const dra_call *c)
{
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    const dra_chunk_stages s = plan_stages(c);
    return dra_chunk_scratch(&s, room_size(F, E), s.chunks * (F * (E + 1) + 2 * DRA_CHUNK));
}

static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_moment_attr *a = c->attr;
    const int64_t *q = c->in[Q].shape.dim, B = q[0], H = q[2], F = q[3], E = dra_last(&c->in[V]);
    w->base = (dra_chunk_walk){.F = F,
                               .E = E,
                               .mark = dra_chunk_option(c, a->mark),
                               .first = dra_chunk_option(c, a->S),
                               .z_first = dra_chunk_option(c, a->z),
                               .last = c->out[DS],
                               .normalised = a->normalise};
    real *rest = dra_chunk_open(&w->base, c, s, room_size(F, E), tile);
    w->base.spare = find_room(w, ROOMS);
    if (a->normalise) w->base.z_last = c->out[DZ];
    w->base.borders = dra_chunk_between(s, &rest, DRA_SHAPE(B, H, s->chunks, F, E));
    w->base.z_borders = dra_chunk_between(s, &rest, DRA_SHAPE(B, H, s->chunks, F));
    w->parts = dra_chunk_between(s, &rest, DRA_SHAPE(B, H, s->chunks, 2, DRA_CHUNK));
    w->a = a, w->dy = c->in[a->dy];
    w->d.n = 0, w->d.jumps = a->jumps;
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

/* A again and X, one product each for dq, dk and dv over the pairs; four products of a token with
 * F E numbers of a state. */
static dra_cost cost_moment_back(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double pairs = dra_chunk_pair_count(c, DRA_CHUNK), tokens = (double)dra_rows(&c->in[Q]);
    return (dra_cost){2 * (pairs * (3 * F + 2 * E) + tokens * 4 * F * E), dra_call_bytes(c)};
}

const dra_op dra_op_moment_back = {.name = "moment_back",
                                   .n_in = DRA_MANY,
                                   .n_out = DRA_MOMENT_BACK_OUTPUTS,
                                   .attr_size = sizeof(dra_moment_attr),
                                   .infer = infer_moment_back,
                                   .cost = cost_moment_back};

const dra_cpu_kernel dra_cpu_moment_back = {
    .base = {.op = "moment_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch_size},
    .tiles = count_tiles,
    .tile = walk_tile,
    .stages = count_stages,
};
