/* What both ways of slots share, see slots.h: where a tile stands, the softmax, the gates of a
 * chunk and products with slots. */
#include "ops/slots.h"

#include <math.h>

enum {
    CHUNK = DRA_SLOTS_CHUNK,
    BLOCK = DRA_SLOTS_BLOCK,
    SUMS = 16, /* in double at a time */
    FEW = 3,   /* tokens: under it slots are not worth being packed for a product */
};

/* ---- where a tile stands --------------------------------------------------------------------- */

dra_slots_sizes dra_slots_sizes_of(const dra_call *c)
{
    const dra_slots_attr *a = c->attr;
    const int64_t        *q = c->in[DRA_SLOTS_Q].shape.dim;
    const bool            own = a->read == DRA_READ_OWN;
    dra_slots_sizes       z = {.B = q[0], .T = q[1], .H = q[2], .D = q[3]};
    z.E = dra_last(&c->in[DRA_SLOTS_V]);
    z.S = dra_last(&c->in[DRA_SLOTS_L]);
    z.chunks = dra_div_up(z.T, CHUNK);
    z.owners = own ? 1 : z.H;
    z.readers = a->read == DRA_READ_ALL ? z.H : 1;
    z.tiles = own ? z.B * z.H : z.B;
    z.scale = (real)(z.D > 0 ? 1 / sqrt((double)z.D) : 0);
    return z;
}

dra_chunk dra_slots_chunk(const dra_call *c, const dra_slots_sizes *z, int64_t i, int64_t h,
                          int64_t number)
{
    const dra_slots_attr *a = c->attr;
    const int64_t         b = a->read == DRA_READ_OWN ? i / z->H : i;
    return dra_chunk_cut(c, dra_chunk_option(c, a->mark), b, h, z->T, number * CHUNK, CHUNK);
}

void dra_slots_fetch(const dra_slots_sizes *z, dra_chunk k, int64_t number, const dra_tensor *x)
{
    const int64_t W = dra_last(x), t = number * CHUNK, line = 64 / (int64_t)sizeof(real);
    if (!x->data || number < 0 || number >= z->chunks) return;
    for (int64_t r = t; r < dra_imin(t + CHUNK, z->T); r++)
        for (int64_t i = 0; i < W; i += line)
            __builtin_prefetch(dra_recur_at(x, k.b, r, k.h) + i, 0, 2);
}

void dra_slots_softmax(const dra_slots_sizes *z, const dra_chunk *k, const real *s, int64_t s_next,
                       real *a, int64_t a_next)
{
    const dra_simd *simd = k->simd;
    for (int64_t t = 0; t < k->n; t++, s += z->S, a += z->S) {
        real top = -(real)INFINITY, sum = 0;
        for (int64_t j = 0; j < z->owners; j++) {
            const real most = simd->max(z->S, s + j * s_next);
            top = most <= top ? top : most; /* NaN goes on */
        }
        for (int64_t j = 0; j < z->owners; j++)
            sum += simd->exp_sum(z->S, s + j * s_next, top, a + j * a_next);
        for (int64_t j = 0; j < z->owners; j++)
            simd->scale(z->S, dra_chunk_pad(k, t) ? 0 : 1 / sum, a + j * a_next);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int64_t blocks_of(int64_t n) { return dra_div_up(n, BLOCK); }

/* Rows of `far` before those of block a, if every block is whole. */
static int64_t far_rows(int64_t a) { return BLOCK * a * (a - 1) / 2; }

/* far (a BLOCK or n, S) of block a >= 1; `blocks` is the end. */
static real *far_of(const dra_slots_gates *g, const dra_slots_table *t, int64_t a)
{
    return t->far + far_rows(a) * g->S;
}

/* W_ts of two tokens of one block. */
static const real *near_of(const dra_slots_gates *g, const dra_slots_table *t, int64_t to,
                           int64_t from)
{
    return t->near + ((to - from) * g->n + from) * g->S;
}

const real *dra_slots_last(const dra_slots_gates *g, const dra_slots_table *t)
{
    return far_of(g, t, g->blocks);
}

int64_t dra_slots_gates_size(const dra_slots_sizes *z, bool back)
{
    const int64_t n = dra_imin(CHUNK, z->T), table = BLOCK * n + far_rows(blocks_of(n) + 1);
    return z->S * (3 * n + 1 + (back ? 2 : 1) * table);
}

/* near and far from the seeds in near[0], by products: W_ts = e^(l_t) W_(t-1)s. */
static void fill(const dra_simd *simd, const dra_slots_gates *g, const dra_slots_table *t)
{
    const int64_t n = g->n, S = g->S;
    for (int64_t m = 1; m < dra_imin(BLOCK, n); m++)
        simd->mul((n - m) * S, near_of(g, t, m - 1, 0), g->keep + m * S, t->near + m * n * S);
    for (int64_t a = 1; a <= g->blocks; a++) {
        const int64_t first = (a - 1) * BLOCK, last = dra_imin(a * BLOCK, n) - 1;
        real         *to = far_of(g, t, a);
        for (int64_t s = 0; s < first; s++)
            simd->mul(S, far_of(g, t, a - 1) + s * S, g->lead + last * S, to + s * S);
        for (int64_t s = first; s <= last; s++)
            dra_recur_copy(S, near_of(g, t, last, s), to + s * S);
    }
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* keep = l and near[0] = u of the tokens, as the marks have them; fade. */
static void read_rows(const dra_chunk *k, const dra_tensor *l, const dra_tensor *u,
                      const dra_slots_gates *g)
{
    const int64_t S = g->S;
    for (int64_t t = 0; t < g->n; t++) {
        const int32_t bits = k->mark ? k->mark[t] : 0;
        real         *lt = g->keep + t * S, *ut = g->write.near + t * S;
        if (bits & DRA_MARK_PAD) {
            dra_recur_clear(S, lt);
            dra_recur_clear(S, ut);
        } else {
            dra_recur_copy(S, dra_recur_at(l, k->b, k->t + t, k->h), lt);
            dra_recur_copy(S, dra_recur_at(u, k->b, k->t + t, k->h), ut);
        }
        for (int64_t i = 0; i < S && bits & DRA_MARK_RESET; i++) lt[i] = (real)DRA_CHUNK_RESET;
    }
    for (int64_t first = 0; first < S; first += SUMS) {
        const int64_t many = dra_imin(SUMS, S - first);
        double        sum[SUMS] = {0};
        for (int64_t t = 0; t < g->n; t++)
            for (int64_t i = 0; i < many; i++) sum[i] += (double)g->keep[t * S + first + i];
        for (int64_t i = 0; i < many; i++) g->fade[first + i] = (real)expm1(sum[i]);
    }
}

dra_slots_gates dra_slots_gates_at(const dra_slots_sizes *z, int64_t n, bool back, real *memory)
{
    dra_slots_gates g = {.n = n, .S = z->S, .blocks = blocks_of(n), .keep = memory};
    const int64_t   rows = n * g.S, far = far_rows(g.blocks + 1) * g.S;
    g.lead = g.keep + rows;
    g.p = g.lead + rows;
    g.fade = g.p + rows;
    g.write.near = g.fade + g.S;
    g.write.far = g.write.near + BLOCK * rows;
    if (back) g.carry.near = g.write.far + far;
    if (back) g.carry.far = g.carry.near + BLOCK * rows;
    return g;
}

void dra_slots_gates_fill(const dra_chunk *k, const dra_tensor *l, const dra_tensor *u,
                          const dra_slots_gates *g)
{
    const dra_simd *simd = k->simd;
    const int64_t   S = g->S, rows = g->n * S;
    read_rows(k, l, u, g);
    simd->exp_sum(rows, g->keep, 0, g->keep);
    dra_recur_copy(rows, g->keep, g->lead);
    dra_recur_copy(S, g->keep, g->p);
    for (int64_t t = 1; t < g->n; t++) {
        real *lead = g->lead + t * S, *p = g->p + t * S;
        if (t % BLOCK) simd->mul(S, lead, lead - S, lead);
        simd->mul(S, p - S, g->keep + t * S, p);
    }
    fill(simd, g, &g->write);
    if (!g->carry.near) return;
    for (int64_t i = 0; i < rows; i++) g->carry.near[i] = 1;
    fill(simd, g, &g->carry);
}

void dra_slots_decay(const dra_simd *simd, const dra_slots_gates *g, int64_t W, real *x)
{
    for (int64_t i = 0; i < g->S; i++) dra_chunk_fade(simd, W, g->fade[i], x + i * W);
}

/* ---- products with slots --------------------------------------------------------------------- */

void dra_slots_dots(const dra_simd *simd, const dra_slots_gates *g, int64_t W, dra_block x,
                    const real *P, real *to, bool add)
{
    const int64_t n = g->n, S = g->S;
    if (n >= FEW) {
        dra_block_multiply(simd, n, S, W, x, (dra_block){(real *)P, 1, W}, (dra_block){to, S, 1},
                           add);
        return;
    }
    for (int64_t i = 0; i < n * S; i++) {
        const real dot = simd->dot(W, x.at + i / S * x.row, P + i % S * W);
        to[i] = add ? to[i] + dot : dot;
    }
}

static int64_t block_rows(const dra_slots_gates *g, int64_t a)
{
    return dra_imin(BLOCK, g->n - a * BLOCK);
}

/* Rows of something (n, S) from block a on. */
static dra_block rows_of(const dra_slots_gates *g, const real *x, int64_t a)
{
    return (dra_block){(real *)x + a * BLOCK * g->S, g->S, 1};
}

/* Rows of a matrix over pairs from block a on. */
static dra_block pairs_of(const real *A, int64_t a)
{
    return (dra_block){(real *)A + a * BLOCK * DRA_CHUNK, DRA_CHUNK, 1};
}

static dra_block far_block(const dra_slots_gates *g, const dra_slots_table *t, int64_t a)
{
    return (dra_block){far_of(g, t, a), g->S, 1};
}

void dra_slots_weigh(const dra_simd *simd, const dra_slots_gates *g, const real *A, const real *x0,
                     real *room, real *out)
{
    const int64_t n = g->n, S = g->S, apart = dra_imin(BLOCK, n) * S;
    simd->mul(n * S, g->p, x0, out);
    for (int64_t a = 1; a < g->blocks; a++)
        dra_block_multiply(simd, block_rows(g, a), S, a * BLOCK, pairs_of(A, a),
                           far_block(g, &g->write, a), rows_of(g, room, a), false);
    simd->add_mul(n * S - apart, g->lead + apart, room + apart, out + apart);
    for (int64_t t = 0; t < n; t++)
        for (int64_t s = t / BLOCK * BLOCK; s <= t; s++)
            simd->axpy(S, A[t * DRA_CHUNK + s], near_of(g, &g->write, t, s), out + t * S);
}

void dra_slots_spread(const dra_simd *simd, const dra_slots_gates *g, const real *a, real *room,
                      real *M)
{
    const int64_t n = g->n, S = g->S;
    simd->mul(n * S, g->lead, a, room);
    for (int64_t i = 1; i < g->blocks; i++)
        dra_block_multiply(simd, block_rows(g, i), i * BLOCK, S, rows_of(g, room, i),
                           dra_block_turned(far_block(g, &g->write, i)), pairs_of(M, i), false);
    for (int64_t t = 0; t < n; t++) {
        real *to = M + t * DRA_CHUNK;
        for (int64_t s = t / BLOCK * BLOCK; s <= t; s++)
            to[s] = simd->dot(S, a + t * S, near_of(g, &g->write, t, s));
        dra_recur_clear(CHUNK - 1 - t, to + t + 1); /* it is read in steps of rows */
    }
}

/* du += D (a x + b y) */
static void add_pair(int64_t S, const real *restrict D, const real *restrict a, real x,
                     const real *restrict b, real y, real *restrict du)
{
    for (int64_t i = 0; i < S; i++) du[i] += D[i] * (a[i] * x + b[i] * y);
}

void dra_slots_gather(const dra_simd *simd, const dra_slots_gates *g, const real *a, const real *A,
                      const real *b, const real *B, real *room, real *du)
{
    const int64_t n = g->n, S = g->S;
    real         *lead_a = room, *lead_b = room + n * S, *sum = room + 2 * n * S;
    simd->mul(n * S, g->lead, a, lead_a);
    simd->mul(n * S, g->lead, b, lead_b);
    for (int64_t i = 1; i < g->blocks; i++) {
        const int64_t   rows = block_rows(g, i), before = i * BLOCK;
        const dra_block to = {sum, S, 1};
        dra_block_multiply(simd, before, S, rows, dra_block_turned(pairs_of(A, i)),
                           rows_of(g, lead_a, i), to, false);
        dra_block_multiply(simd, before, S, rows, dra_block_turned(pairs_of(B, i)),
                           rows_of(g, lead_b, i), to, true);
        simd->add_mul(before * S, far_of(g, &g->carry, i), sum, du);
    }
    for (int64_t t = 0; t < n; t++)
        for (int64_t s = t / BLOCK * BLOCK; s <= t; s++)
            add_pair(S, near_of(g, &g->carry, t, s), a + t * S, A[t * DRA_CHUNK + s], b + t * S,
                     B[t * DRA_CHUNK + s], du + s * S);
}
