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
    dra_tensor             dy, dS_first;      /* columns of dy and of the output DS, or all */
    dra_tensor             after, z_after;    /* dS and dz after all chunks, in stages */
    dra_matrix_block       dS;                /* of the state after the chunk, then before it */
    real                  *dz;                /* NULL: not followed */
    real                  *parts;             /* 1 / den, dden: (heads, chunks, 2, DRA_CHUNK) */
    real                  *room;              /* scratch: rows of a chunk, see below, a state */
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
static real *room(const walk *w, int which)
{
    const int64_t wide = which < ROOM_V ? which : ROOM_V, rest = which - wide;
    return w->room + DRA_CHUNK * (wide * w->F + rest * w->E);
}

static void open_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_call   *c = w->c;
    const dra_tensor *z0 = dra_chunk_option(c, w->a->z_borders);
    w->q = dra_chunk_rows(k, &c->in[Q], room(w, ROOM_Q));
    w->k = dra_chunk_rows(k, &c->in[K], room(w, ROOM_K));
    w->dnum = dra_chunk_rows(k, &w->dy, room(w, ROOM_DY));
    w->S0 = dra_chunk_matrix(&c->in[w->a->borders], k->b, k->h, i);
    w->z0 = z0 ? dra_recur_at(z0, k->b, k->h, i) : NULL;
    dra_chunk_decay(k, dra_chunk_option(c, w->a->l), &w->d);
}

/* A, 1 / den and dden. */
static void weigh(walk *w, const dra_chunk *k)
{
    const dra_tensor      *y = dra_chunk_option(w->c, w->a->y);
    const dra_matrix_block dy = w->dnum;
    real                   den[DRA_CHUNK];
    dra_moment_weights(k, w->a, &w->d, w->F, w->q, w->k, w->z0, w->A, den);
    for (int64_t t = 0; t < k->n && y; t++) {
        const real *row = dra_recur_at(y, k->b, k->t + t, k->h);
        const bool  least = w->a->least > 0 && den[t] <= (real)w->a->least;
        w->part[t] = 1 / den[t];
        w->dden[t] = least ? 0 : -k->simd->dot(w->E, dy.at + t * dy.row, row) * w->part[t];
    }
}

/* dnum from dy. */
static void divide(walk *w, const dra_chunk *k)
{
    if (w->a->y)
        w->dnum = dra_matrix_block_scaled(k->simd, k->n, w->E, w->part, w->dnum,
                                          room(w, ROOM_DNUM));
}

static void values(walk *w, const dra_chunk *k)
{
    const dra_matrix_block to = dra_chunk_out(k, &w->c->out[DV], NULL);
    dra_matrix_block_multiply(k->simd, k->n, w->E, w->F, w->k, w->dS, to, false);
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
    const dra_matrix_block to = dra_chunk_out(k, &w->c->out[DK], room(w, ROOM_SPARE));
    double                 parts[DRA_CHUNK] = {0}; /* k_t.(second part of dk_t) */
    dra_matrix_block_multiply(simd, k->n, w->F, w->E, w->v, dra_matrix_block_transposed(w->dS), to,
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
    const dra_matrix_block z0 = {w->z0, w->F, 1}, dz = {w->dz, w->F, 1};
    double                 sum = dra_chunk_through(k, &w->d, w->F, w->E, w->S0, w->dS);
    if (w->z0) sum += dra_chunk_through(k, &w->d, 1, w->F, z0, dz);
    return sum;
}

/* dS and dz from after the chunk to before it. */
static void pass_state(walk *w, const dra_chunk *k)
{
    const dra_simd  *simd = k->simd;
    dra_matrix_block dnum = w->dnum;
    if (!w->d.plain) {
        dra_decay_state(&w->d, simd, w->F, w->E, w->dS);
        dnum = dra_matrix_block_scaled(simd, k->n, w->E, w->d.p, dnum, room(w, ROOM_DNUM));
    }
    dra_matrix_block_multiply(simd, w->F, w->E, k->n, dra_matrix_block_transposed(w->q), dnum,
                              w->dS, true);
    if (!w->dz) return;
    dra_decay_state(&w->d, simd, 1, w->F, (dra_matrix_block){w->dz, w->F, 1});
    for (int64_t t = 0; t < k->n; t++)
        simd->axpy(w->F, w->d.p[t] * w->dden[t], w->q.at + t * w->q.row, w->dz);
}

/* All that is in chunk i. */
static void back_chunk(walk *w, const dra_chunk *k, int64_t i)
{
    const dra_tensor *out = w->c->out;
    open_chunk(w, k, i);
    w->v = dra_chunk_rows(k, &w->c->in[V], room(w, ROOM_V));
    weigh(w, k);
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
}

/* ---- kernel ---------------------------------------------------------------------------------- */

static dra_chunk_stages stages_of(const dra_call *c)
{
    const dra_moment_attr *a = c->attr;
    const int64_t          T = c->in[Q].shape.dim[1], E = dra_last(&c->in[V]);
    const dra_chunk_work   work = {20, 4, a->normalise ? 105 : 95};
    return dra_chunk_stages_of(c, dra_chunk_heads(c), dra_chunks(T), E, work);
}

static int64_t room_size(int64_t F, int64_t E)
{
    return dra_div_up(F * E + F + DRA_CHUNK * 3 * (F + E), 16) * 16;
}

/* Rooms of the tiles; in stages then what passes from one to the next. */
static size_t scratch(const dra_call *c)
{
    const int64_t          F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    const dra_chunk_stages s = stages_of(c);
    const int64_t          each = s.two ? F * (E + 1) + 2 * DRA_CHUNK : 0; /* for a chunk */
    const int64_t          rooms = dra_chunk_most_tiles(&s) * room_size(F, E);
    return (size_t)(rooms + s.heads * s.chunks * each) * sizeof(real);
}

static void open_walk(walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_moment_attr *a = c->attr;
    const int64_t         *q = c->in[Q].shape.dim, all = s->heads * s->chunks;
    w->c = c, w->a = a, w->F = q[3], w->E = dra_last(&c->in[V]);
    w->dy = c->in[a->dy], w->dS_first = c->out[DS];
    w->d.n = 0, w->d.jumps = a->jumps;
    w->decay = a->l && c->out[DL].data;
    const int64_t size = room_size(w->F, w->E);
    real         *rest = (real *)c->scratch + dra_chunk_most_tiles(s) * size;
    w->room = (real *)c->scratch + tile * size;
    if (!s->two) return;
    w->after = (dra_tensor){rest, DRA_REAL, DRA_SHAPE(q[0], q[2], s->chunks, w->F, w->E)};
    w->z_after = (dra_tensor){rest + all * w->F * w->E, DRA_REAL,
                              DRA_SHAPE(q[0], q[2], s->chunks, w->F)};
    w->parts = rest + all * w->F * (w->E + 1);
    dra_tensor_make_dense(&w->after);
    dra_tensor_make_dense(&w->z_after);
}

static dra_chunk chunk_at(const walk *w, int64_t head, int64_t i)
{
    const int64_t *dim = w->c->in[Q].shape.dim, T = dim[1], H = dim[2];
    return dra_chunk_at(w->c, dra_chunk_option(w->c, w->a->mark), head / H, head % H, T, i);
}

/* Are the gradients of the first state wanted? */
static bool wants_first(const dra_call *c)
{
    const dra_moment_attr *a = c->attr;
    return c->out[DS].data || (a->normalise && c->out[DZ].data);
}

static void walk_head(const dra_call *c, const dra_chunk_stages *s, int64_t head)
{
    const dra_moment_attr *a = c->attr;
    const int64_t          H = c->in[Q].shape.dim[2];
    walk                   w;
    open_walk(&w, c, s, head);
    real     *spare = room(&w, ROOMS), *dz = spare + w.F * w.E;
    dra_chunk k = {.simd = dra_simd_of(c), .b = head / H, .h = head % H};
    w.dS = (dra_matrix_block){.row = w.E, .col = 1};
    w.dS.at = dra_chunk_state(&k, dra_chunk_option(c, a->S), &c->out[DS], w.F * w.E, spare);
    dz = dra_chunk_state(&k, dra_chunk_option(c, a->z), &c->out[DZ], w.F, dz);
    w.dz = a->normalise ? dz : NULL;
    for (int64_t i = s->chunks - 1; i >= 0; i--) {
        k = chunk_at(&w, head, i);
        back_chunk(&w, &k, i);
        if (i > 0 || wants_first(c)) pass_state(&w, &k);
    }
}

/* ---- in stages ------------------------------------------------------------------------------- */

static real *parts_of(const walk *w, const dra_chunk_stages *s, int64_t head, int64_t i)
{
    return w->parts + (head * s->chunks + i) * 2 * DRA_CHUNK;
}

/* 1 / den and dden of some chunks. */
static void weigh_run(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_chunk_span at = dra_chunk_run_at(s, tile);
    walk                 w;
    open_walk(&w, c, s, tile);
    for (int64_t i = at.first; i < at.end; i++) {
        const dra_chunk k = chunk_at(&w, at.head, i);
        real           *to = parts_of(&w, s, at.head, i);
        open_chunk(&w, &k, i);
        weigh(&w, &k);
        dra_recur_copy(k.n, w.part, to);
        dra_recur_copy(k.n, w.dden, to + DRA_CHUNK);
    }
}

/* dS and dz go to where those after chunk i are, or before the first. */
static void move_state(walk *w, const dra_chunk *k, int64_t i)
{
    const bool        kept = i >= 0;
    const dra_tensor *z_to = kept ? &w->z_after : &w->c->out[DZ];
    dra_matrix_block  dS = dra_chunk_matrix(kept ? &w->after : &w->dS_first, k->b, k->h, i);
    real             *dz = room(w, ROOMS);
    if (!dS.at) dS = (dra_matrix_block){dz + w->F, w->E, 1};
    dra_matrix_block_copy(w->F, w->E, w->dS, dS);
    w->dS = dS;
    if (!w->dz) return;
    if (z_to->data) dz = dra_recur_at(z_to, k->b, k->h, kept ? i : 0);
    dra_recur_copy(w->F, w->dz, dz);
    w->dz = dz;
}

/* Some columns of dS after all chunks and before the first; with the first of them dz. */
static void pass_states(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_moment_attr *a = c->attr;
    const dra_chunk_span   at = dra_chunk_block_at(s, tile);
    walk                   w;
    open_walk(&w, c, s, tile);
    w.E = at.end - at.first;
    w.dy = dra_chunk_columns(&w.dy, at.first, w.E);
    w.dS_first = dra_chunk_columns(&w.dS_first, at.first, w.E);
    w.after = dra_chunk_columns(&w.after, at.first, w.E);
    dra_chunk k = chunk_at(&w, at.head, s->chunks - 1);
    w.dS = dra_chunk_matrix(dra_chunk_option(c, a->S), k.b, k.h, 0);
    if (w.dS.at) w.dS.at += at.first;
    w.dz = a->normalise && at.first == 0 ? w.room : NULL;
    if (w.dz) dra_chunk_load(&k, dra_chunk_option(c, a->z), w.F, w.dz);
    move_state(&w, &k, s->chunks - 1);
    for (int64_t i = s->chunks - 1; i > 0 || (i == 0 && wants_first(c)); i--) {
        const real *parts = parts_of(&w, s, at.head, i);
        k = chunk_at(&w, at.head, i);
        open_chunk(&w, &k, i);
        if (a->y) dra_recur_copy(k.n, parts, w.part);
        if (a->y) dra_recur_copy(k.n, parts + DRA_CHUNK, w.dden);
        divide(&w, &k);
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
        w.dz = w.a->normalise ? dra_recur_at(&w.z_after, k.b, k.h, i) : NULL;
        back_chunk(&w, &k, i);
    }
}

enum { WEIGH, PASS, BACK };

/* Nothing is to be weighed where nothing is normalised. */
static int64_t stage_of(const dra_call *c)
{
    const dra_moment_attr *a = c->attr;
    return c->stage + (a->normalise ? WEIGH : PASS);
}

static int64_t stages(const dra_call *c)
{
    const dra_moment_attr *a = c->attr;
    return stages_of(c).two ? 2 + a->normalise : 1;
}

static int64_t tiles(const dra_call *c)
{
    const dra_chunk_stages s = stages_of(c);
    return dra_chunk_stage_tiles(&s, stage_of(c) == PASS);
}

static void tile(const dra_call *c, int64_t i)
{
    static void (*const by_stage[])(const dra_call *, const dra_chunk_stages *,
                                    int64_t) = {weigh_run, pass_states, back_run};
    const dra_chunk_stages s = stages_of(c);
    (s.two ? by_stage[stage_of(c)] : walk_head)(c, &s, i);
}

/* A again and X, one product each for dq, dk and dv over the pairs; four products of a token with
 * F E numbers of a state. */
static dra_cost cost(const dra_call *c)
{
    const double F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double pairs = dra_chunk_pair_count(c, DRA_CHUNK), tokens = (double)dra_rows(&c->in[Q]);
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
    .tiles = tiles,
    .tile = tile,
    .stages = stages,
};
