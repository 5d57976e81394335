/* Chunks of tokens: see chunk.h. */
#include "ops/chunked/chunk.h"

#include <float.h>
#include <math.h>

/* ---- decay ----------------------------------------------------------------------------------- */

static double decay_of(int64_t t, const real *l, int64_t step, const int32_t *mark)
{
    if (mark && mark[t] & DRA_MARK_RESET) return DRA_CHUNK_RESET;
    return l && !(mark && mark[t] & DRA_MARK_PAD) ? (double)l[t * step] : 0;
}

/* Rows come from the one above, D[t][s] = e^(l_t) D[t-1][s], in double: one exponential a token.
 * Numbers under the smallest normal one would slow down every product they take part in. */
static void make_rows(dra_decay *d)
{
    const double least = sizeof(real) == sizeof(float) ? FLT_MIN : DBL_MIN;
    double       row[DRA_CHUNK + 1] = {1}, sum = 0; /* p, then a row of D */
    d->plain = true;
    for (int64_t t = 0; t < d->n; t++) {
        const double keep = exp(d->l[t]);
        for (int64_t s = 0; s <= t; s++) row[s] = row[s] * keep < least ? 0 : row[s] * keep;
        row[t + 1] = 1;
        sum += d->l[t];
        d->plain = d->plain && d->l[t] == 0;
        d->p[t] = (real)row[0];
        for (int64_t s = 0; s <= t; s++) d->D[t][s] = (real)row[s + 1];
        dra_recur_clear(DRA_CHUNK - 1 - t, d->D[t] + t + 1);
    }
    d->strong = d->jumps && sum < DRA_STRONG_DECAY;
    d->fade = (real)expm1(sum);
    d->last = d->D[d->n - 1];
}

void dra_decay_make(dra_decay *d, int64_t n, const real *l, int64_t step, const int32_t *mark)
{
    bool same = n == d->n;
    for (int64_t t = 0; t < n; t++) {
        const double now = decay_of(t, l, step, mark);
        same = same && now == d->l[t];
        d->l[t] = now;
    }
    d->n = n;
    if (!same) make_rows(d);
}

/* ---- products -------------------------------------------------------------------------------- */

enum { STEP = 16 }; /* rows of a lower triangle at a time: 5/8 of the whole square is computed */

static int64_t step_end(int64_t first, int64_t n) { return dra_imin(first + STEP, n); }

static dra_matrix_block from_row(dra_matrix_block m, int64_t i)
{
    return (dra_matrix_block){m.at + i * m.row, m.row, m.col};
}

void dra_decay_apply(const dra_decay *d, const dra_simd *simd, const real *plus, real *A)
{
    for (int64_t t = 0; t < d->n; t++, A += DRA_CHUNK) {
        const int64_t end = step_end(t / STEP * STEP, d->n);
        if (plus) simd->affine(t + 1, 1, plus[t], A, A);
        if (!d->plain) simd->mul(t + 1, A, d->D[t], A);
        for (int64_t s = t + 1; s < end; s++) A[s] = 0;
    }
}

static void fade_numbers(const dra_decay *d, const dra_simd *simd, int64_t n, real *x)
{
    const real kept = d->p[d->n - 1];
    if (d->strong ? kept == 0 : d->fade == -1)
        dra_recur_clear(n, x);
    else if (d->strong)
        simd->scale(n, kept, x);
    else
        simd->axpy(n, d->fade, x, x);
}

void dra_decay_state(const dra_decay *d, const dra_simd *simd, int64_t rows, int64_t W,
                     dra_matrix_block x)
{
    const bool dense = x.row == W;
    for (int64_t i = 0; i < (dense ? 1 : rows); i++)
        fade_numbers(d, simd, dense ? rows * W : W, x.at + i * x.row);
}

void dra_matrix_block_copy(int64_t rows, int64_t W, dra_matrix_block from, dra_matrix_block to)
{
    if (from.at == to.at) return;
    for (int64_t i = 0; i < rows; i++)
        if (from.at)
            dra_recur_copy(W, from.at + i * from.row, to.at + i * to.row);
        else
            dra_recur_clear(W, to.at + i * to.row);
}

void dra_matrix_block_multiply(const dra_simd *simd, int64_t M, int64_t N, int64_t K,
                               dra_matrix_block a, dra_matrix_block b, dra_matrix_block c, bool add)
{
    simd->gemm(&(dra_gemm){.M = M,
                           .N = N,
                           .K = K,
                           .a = a.at,
                           .a_row = a.row,
                           .a_col = K == 1 ? 1 : a.col, /* one column needs no packing */
                           .b = b.at,
                           .b_row = b.row,
                           .b_col = b.col,
                           .c = c.at,
                           .c_row = c.row,
                           .accumulate = add});
}

void dra_matrix_block_scale(const dra_simd *simd, int64_t n, int64_t W, const real *s,
                            dra_matrix_block m)
{
    for (int64_t t = 0; t < n; t++) simd->scale(W, s[t], m.at + t * m.row);
}

dra_matrix_block dra_matrix_block_scaled(const dra_simd *simd, int64_t n, int64_t W, const real *s,
                                         dra_matrix_block m, real *room)
{
    for (int64_t t = 0; t < n; t++) simd->affine(W, s[t], 0, m.at + t * m.row, room + t * W);
    return (dra_matrix_block){room, W, 1};
}

void dra_chunk_pairs(const dra_simd *simd, int64_t n, int64_t W, dra_matrix_block a,
                     dra_matrix_block b, real *A)
{
    const dra_matrix_block to = {A, DRA_CHUNK, 1};
    if (n == 1) *A = simd->dot(W, a.at, b.at); /* a step: packing b would cost more than the sum */
    for (int64_t t = 0; t < n && n > 1; t += STEP) {
        const int64_t end = step_end(t, n);
        dra_matrix_block_multiply(simd, end - t, end, W, from_row(a, t),
                                  dra_matrix_block_transposed(b), from_row(to, t), false);
    }
}

void dra_chunk_below(const dra_simd *simd, int64_t n, int64_t W, real *A, dra_matrix_block x,
                     dra_matrix_block to, bool add)
{
    const dra_matrix_block from = {A, DRA_CHUNK, 1};
    for (int64_t t = 0; t < n; t += STEP) {
        const int64_t end = step_end(t, n);
        dra_matrix_block_multiply(simd, end - t, W, end, from_row(from, t), x, from_row(to, t),
                                  add);
    }
}

void dra_chunk_above(const dra_simd *simd, int64_t n, int64_t W, real *A, dra_matrix_block x,
                     dra_matrix_block to, bool add)
{
    for (int64_t s = 0; s < n; s += STEP) {
        const dra_matrix_block from = {A + s * DRA_CHUNK + s, 1,
                                       DRA_CHUNK}; /* tokens s.. see s.. */
        dra_matrix_block_multiply(simd, step_end(s, n) - s, W, n - s, from, from_row(x, s),
                                  from_row(to, s), add);
    }
}

void dra_chunk_clear_from(int64_t n, int64_t t, real *A)
{
    const int64_t end = step_end(t / STEP * STEP, n);
    dra_recur_clear(end - t, A + t * DRA_CHUNK + t);
}

/* ---- chunks of a call ------------------------------------------------------------------------ */

int64_t dra_chunk_heads(const dra_call *c) { return c->in[0].shape.dim[0] * c->in[0].shape.dim[2]; }

double dra_chunk_pair_count(const dra_call *c, int64_t chunk)
{
    const int64_t T = c->in[0].shape.dim[1], rest = T % chunk;
    const int64_t pairs = T / chunk * chunk * (chunk + 1) + rest * (rest + 1);
    return (double)dra_chunk_heads(c) * (double)pairs / 2;
}

dra_chunk dra_chunk_cut(const dra_call *c, const dra_tensor *mark, int64_t b, int64_t h, int64_t T,
                        int64_t t, int64_t most)
{
    dra_chunk k = {dra_simd_of(c), b, h, t, dra_imin(most, T - t)};
    k.mark = mark ? (const int32_t *)mark->data + b * mark->stride[0] + t : NULL;
    for (int64_t j = 0; j < k.n; j++) k.padded = k.padded || dra_chunk_pad(&k, j);
    return k;
}

dra_matrix_block dra_chunk_rows(const dra_chunk *k, const dra_tensor *x, real *room)
{
    const dra_matrix_block there = {dra_recur_at(x, k->b, k->t, k->h), x->stride[1], 1};
    const int64_t          W = x->shape.dim[3];
    const dra_matrix_block own = {room, W, 1};
    if (!k->padded) return there;
    for (int64_t t = 0; t < k->n; t++) dra_recur_copy(W, there.at + t * there.row, room + t * W);
    dra_chunk_clear_pads(k, W, own);
    return own;
}

dra_matrix_block dra_chunk_out(const dra_chunk *k, const dra_tensor *x, real *spare)
{
    if (!x->data) return (dra_matrix_block){spare, x->shape.dim[3], 1};
    return (dra_matrix_block){dra_recur_at(x, k->b, k->t, k->h), x->stride[1], 1};
}

dra_tensor dra_chunk_columns(const dra_tensor *x, int64_t first, int64_t n)
{
    dra_tensor y = *x;
    y.shape.dim[y.shape.rank - 1] = n;
    if (y.data) y.data = (real *)y.data + first;
    return y;
}

void dra_chunk_clear_pads(const dra_chunk *k, int64_t W, dra_matrix_block m)
{
    for (int64_t t = 0; t < k->n && k->padded; t++)
        if (dra_chunk_pad(k, t)) dra_recur_clear(W, m.at + t * m.row);
}

void dra_chunk_decay(const dra_chunk *k, const dra_tensor *l, dra_decay *d)
{
    dra_decay_make(d, k->n, l ? dra_recur_at(l, k->b, k->t, k->h) : NULL, l ? l->stride[1] : 0,
                   k->mark);
}

void dra_chunk_add_dots(const dra_chunk *k, int64_t W, double sign, dra_matrix_block a,
                        dra_matrix_block b, double *sum)
{
    for (int64_t t = 0; t < k->n; t++)
        sum[t] += sign * (double)k->simd->dot(W, a.at + t * a.row, b.at + t * b.row);
}

double dra_chunk_through(const dra_chunk *k, const dra_decay *d, int64_t F, int64_t E,
                         dra_matrix_block S0, dra_matrix_block dS)
{
    double sum = 0;
    for (int64_t f = 0; f < F; f++)
        sum += (double)k->simd->dot(E, S0.at + f * S0.row, dS.at + f * dS.row);
    return (double)d->p[k->n - 1] * sum;
}

void dra_chunk_decay_back(const dra_chunk *k, const dra_tensor *dl, double through,
                          const double *dL)
{
    double sum = through;
    for (int64_t t = k->n - 1; t >= 0; t--) {
        const bool free = k->mark && k->mark[t] & (DRA_MARK_PAD | DRA_MARK_RESET);
        sum += dL[t];
        *dra_recur_at(dl, k->b, k->t + t, k->h) = free ? 0 : (real)sum;
    }
}

/* ---- states ---------------------------------------------------------------------------------- */

void dra_chunk_load(const dra_chunk *k, const dra_tensor *x, int64_t count, real *to)
{
    if (!x) {
        dra_recur_clear(count, to);
        return;
    }
    const real *from = dra_recur_at(x, k->b, k->h, 0);
    if (from == to) return; /* the last state took over the memory of the first */
    const int64_t rows = x->shape.rank == 4 ? x->shape.dim[2] : 1, W = dra_last(x);
    if (rows == 1 || x->stride[2] == W)
        dra_recur_copy(count, from, to);
    else
        for (int64_t f = 0; f < rows; f++) dra_recur_copy(W, from + f * x->stride[2], to + f * W);
}

void dra_chunk_store(const dra_chunk *k, const dra_tensor *x, int64_t count, const real *from)
{
    if (x->data) dra_recur_copy(count, from, dra_recur_at(x, k->b, k->h, 0));
}

dra_matrix_block dra_chunk_matrix(const dra_tensor *x, int64_t b, int64_t h, int64_t i)
{
    if (!x || !x->data) return (dra_matrix_block){0};
    const bool several = x->shape.rank == 5;
    return (dra_matrix_block){dra_recur_at(x, b, h, several ? i : 0), x->stride[2 + several], 1};
}

/* ---- stages ---------------------------------------------------------------------------------- */

enum {
    FEW_THREADS = 2, /* have tiles enough, and no more memory than a pass needs */
    ENOUGH = 4       /* tiles for each thread */
};

/* The time for heads that are cut into `parts` each, of some units, and take `work` and `repeated`
 * for each part. */
static double time_of(const dra_chunk_stages *s, int64_t threads, int64_t units, int64_t parts,
                      int64_t work, int64_t repeated)
{
    const double longest = (double)dra_div_up(units, parts) / (double)dra_imax(units, 1);
    return (double)dra_div_up(s->heads * parts, threads) *
           ((double)work * longest + (double)repeated);
}

/* Of how many parts they end soonest. */
static int64_t cut_heads(const dra_chunk_stages *s, int64_t threads, int64_t units, int64_t work,
                         int64_t repeated, double *least)
{
    const int64_t most = dra_imin(dra_div_up(ENOUGH * threads, s->heads), units);
    int64_t       best = 1;
    *least = time_of(s, threads, units, 1, work, repeated);
    for (int64_t parts = 2; parts <= most; parts++) {
        const double time = time_of(s, threads, units, parts, work, repeated);
        if (time >= *least) continue;
        *least = time;
        best = parts;
    }
    return best;
}

dra_chunk_stages dra_chunk_stages_of(const dra_call *c, int64_t heads, int64_t chunks,
                                     int64_t columns, dra_chunk_work work)
{
    const int64_t    threads = c->threads;
    dra_chunk_stages s = {
        .weighs = work.weighs, .heads = heads, .chunks = chunks, .columns = columns};
    double between, inside;
    if (threads <= FEW_THREADS || chunks < 2 || heads == 0 || heads >= ENOUGH * threads) return s;
    s.blocks = cut_heads(&s, threads, dra_div_up(columns, DRA_CHUNK_COLUMNS), work.between,
                         work.repeated, &between);
    s.runs = cut_heads(&s, threads, chunks, work.inside, 0, &inside);
    s.two = 1.1 * (between + inside) < 100 * (double)dra_div_up(heads, threads);
    return s;
}

dra_chunk_part dra_chunk_part_of(const dra_call *c, const dra_chunk_stages *s)
{
    if (!s->two) return DRA_CHUNK_WHOLE;
    return (dra_chunk_part)(c->stage + (s->weighs ? DRA_CHUNK_WEIGH : DRA_CHUNK_PASS));
}

int64_t dra_chunk_stage_count(dra_chunk_stages s) { return s.two ? 2 + s.weighs : 1; }

int64_t dra_chunk_tile_count(const dra_call *c, dra_chunk_stages s)
{
    const dra_chunk_part part = dra_chunk_part_of(c, &s);
    if (part == DRA_CHUNK_WHOLE) return s.heads;
    return s.heads * (part == DRA_CHUNK_PASS ? s.blocks : s.runs);
}

int64_t dra_chunk_most_tiles(const dra_chunk_stages *s)
{
    return s->heads * (s->two ? dra_imax(s->blocks, s->runs) : 1);
}

dra_chunk_span dra_chunk_block_at(const dra_chunk_stages *s, int64_t i)
{
    const int64_t vectors = dra_div_up(s->columns, DRA_CHUNK_COLUMNS), j = i % s->blocks;
    return (dra_chunk_span){
        i / s->blocks, j * vectors / s->blocks * DRA_CHUNK_COLUMNS,
        dra_imin((j + 1) * vectors / s->blocks * DRA_CHUNK_COLUMNS, s->columns)};
}

dra_chunk_span dra_chunk_run_at(const dra_chunk_stages *s, int64_t i)
{
    const int64_t j = i % s->runs;
    return (dra_chunk_span){i / s->runs, j * s->chunks / s->runs, (j + 1) * s->chunks / s->runs};
}

/* ---- the walk of matrices -------------------------------------------------------------------- */

size_t dra_chunk_scratch(const dra_chunk_stages *s, int64_t room, int64_t each)
{
    const int64_t rest = s->two ? s->heads * each : 0;
    return (size_t)(dra_chunk_most_tiles(s) * room + rest) * sizeof(real);
}

real *dra_chunk_open(dra_chunk_walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t room,
                     int64_t tile)
{
    w->c = c;
    w->part = dra_chunk_part_of(c, s);
    w->room = (real *)c->scratch + tile * room;
    return (real *)c->scratch + dra_chunk_most_tiles(s) * room;
}

dra_tensor dra_chunk_between(const dra_chunk_stages *s, real **rest, dra_shape shape)
{
    dra_tensor x = {s->two ? *rest : NULL, DRA_REAL, shape};
    dra_tensor_make_dense(&x);
    if (s->two) *rest += dra_shape_count(&shape);
    return x;
}

static dra_chunk chunk_at(const dra_chunk_walk *w, const dra_chunk_steps *steps, int64_t head,
                          int64_t i)
{
    const int64_t *dim = w->c->in[0].shape.dim, T = dim[1], H = dim[2];
    return dra_chunk_cut(w->c, w->mark, head / H, head % H, T, i * steps->tokens, steps->tokens);
}

/* Before a chunk that starts a sequence there is nothing. */
static void forget_state(const dra_chunk_walk *w, const dra_chunk *k)
{
    const dra_matrix_block nothing = {0};
    if (!dra_chunk_starts(k)) return;
    dra_matrix_block_copy(w->F, w->E, nothing, w->S);
    if (w->z) dra_recur_clear(w->F, w->z);
}

/* The state that the walk begins with, in its place: that of the last one, or a spare one. */
static void load_state(dra_chunk_walk *w, const dra_chunk *k)
{
    const dra_tensor *last = &w->last, *z_last = &w->z_last;
    real             *z = w->spare + w->F * w->E;
    w->S = (dra_matrix_block){last->data ? dra_recur_at(last, k->b, k->h, 0) : w->spare, w->E, 1};
    dra_chunk_load(k, w->first, w->F * w->E, w->S.at);
    if (!w->normalised) return;
    w->z = z_last->data ? dra_recur_at(z_last, k->b, k->h, 0) : z;
    dra_chunk_load(k, w->z_first, w->F, w->z);
}

/* A copy of what chunk i is met with. */
static void keep_state(const dra_chunk_walk *w, const dra_chunk *k, int64_t i)
{
    const dra_matrix_block to = dra_chunk_matrix(&w->borders, k->b, k->h, i);
    if (to.at) dra_recur_copy(w->F * w->E, w->S.at, to.at);
    if (w->z && w->z_borders.data)
        dra_recur_copy(w->F, w->z, dra_recur_at(&w->z_borders, k->b, k->h, i));
}

/* Stores the state as that of chunk i or, where there is no such chunk, as the last one. */
static void move_state(dra_chunk_walk *w, const dra_chunk *k, const dra_chunk_stages *s, int64_t i)
{
    const bool        kept = i >= 0 && i < s->chunks;
    const dra_tensor *z_to = kept ? &w->z_borders : &w->z_last;
    dra_matrix_block  S = dra_chunk_matrix(kept ? &w->borders : &w->last, k->b, k->h, i);
    real             *z = w->spare + w->F * w->E;
    if (!S.at) S = (dra_matrix_block){w->spare, w->E, 1};
    dra_matrix_block_copy(w->F, w->E, w->S, S);
    w->S = S;
    if (!w->z) return;
    if (z_to->data) z = dra_recur_at(z_to, k->b, k->h, kept ? i : 0);
    dra_recur_copy(w->F, w->z, z);
    w->z = z;
}

/* Some columns; with the first of them z. The state begins in the place of the first chunk's. */
static void begin_columns(dra_chunk_walk *w, const dra_chunk_steps *steps,
                          const dra_chunk_stages *s, const dra_chunk *k, int64_t i,
                          dra_chunk_span at)
{
    w->E = at.end - at.first;
    w->last = dra_chunk_columns(&w->last, at.first, w->E);
    w->borders = dra_chunk_columns(&w->borders, at.first, w->E);
    steps->cut_columns(w, at.first);
    w->S = dra_chunk_matrix(w->first, k->b, k->h, 0);
    if (w->S.at) w->S.at += at.first;
    w->z = w->normalised && at.first == 0 ? w->room : NULL;
    if (w->z) dra_chunk_load(k, w->z_first, w->F, w->z);
    move_state(w, k, s, i);
}

/* All chunks of a head, one after the other: all columns and what is read, or some columns of the
 * states between them. */
static void walk_chunks(dra_chunk_walk *w, const dra_chunk_steps *steps, const dra_chunk_stages *s,
                        dra_chunk_span at)
{
    const int64_t way = steps->back ? -1 : 1, first = steps->back ? s->chunks - 1 : 0;
    const bool    last = w->last.data || w->z_last.data;
    dra_chunk     k = chunk_at(w, steps, at.head, dra_imax(first, 0));
    if (s->two)
        begin_columns(w, steps, s, &k, first, at);
    else
        load_state(w, &k);
    for (int64_t j = 0; j < s->chunks; j++) {
        const int64_t i = first + way * j;
        k = chunk_at(w, steps, at.head, i);
        if (!steps->back) forget_state(w, &k);
        if (!s->two) keep_state(w, &k, i);
        steps->read(w, &k, i);
        if (!last && j + 1 == s->chunks) break;
        if (s->two) move_state(w, &k, s, i + way);
        steps->write(w, &k);
    }
}

/* Some chunks, whose states are known. */
static void walk_run(dra_chunk_walk *w, const dra_chunk_steps *steps, dra_chunk_span at)
{
    for (int64_t i = at.first; i < at.end; i++) {
        const dra_chunk k = chunk_at(w, steps, at.head, i);
        w->S = dra_chunk_matrix(&w->borders, k.b, k.h, i);
        w->z = w->normalised ? dra_recur_at(&w->z_borders, k.b, k.h, i) : NULL;
        steps->read(w, &k, i);
    }
}

void dra_chunk_walk_tile(dra_chunk_walk *w, const dra_chunk_steps *steps, const dra_chunk_stages *s,
                         int64_t tile)
{
    if (w->part == DRA_CHUNK_WHOLE)
        walk_chunks(w, steps, s, (dra_chunk_span){.head = tile});
    else if (w->part == DRA_CHUNK_PASS)
        walk_chunks(w, steps, s, dra_chunk_block_at(s, tile));
    else
        walk_run(w, steps, dra_chunk_run_at(s, tile));
}

/* ---- inputs ---------------------------------------------------------------------------------- */

int dra_chunk_append(dra_value v, dra_value *in, int *n)
{
    if (!v.id) return 0;
    in[*n] = v;
    return (*n)++;
}

bool dra_chunk_check_decay(dra_graph *g, const char *op, dra_shape tokens, dra_value *l)
{
    const bool      each = dra_type_of(g, *l)->shape.rank == 1;
    const dra_shape heads = DRA_SHAPE(tokens.dim[2]);
    if (!dra_recur_expect(g, op, "l", *l, DRA_REAL, each ? heads : tokens)) return false;
    *l = dra_broadcast(g, *l, tokens);
    return l->id != 0;
}

/* q: (B, T, H, F) */
static bool check_channels(dra_graph *g, const char *op, dra_shape q, dra_value *l)
{
    const int32_t   rank = dra_type_of(g, *l)->shape.rank;
    const dra_shape each = DRA_SHAPE(q.dim[2], q.dim[3]),
                    tokens = DRA_SHAPE(q.dim[0], q.dim[1], q.dim[2]);
    if (rank != 2 && rank != 4) return dra_chunk_check_decay(g, op, tokens, l);
    if (!dra_recur_expect(g, op, "l", *l, DRA_REAL, rank == 2 ? each : q)) return false;
    *l = dra_broadcast(g, *l, q);
    return l->id != 0;
}

bool dra_chunk_check(dra_graph *g, const char *op, dra_chunk_inputs *x)
{
    dra_value given[6];
    int       n = 0;
    given[n++] = x->q, given[n++] = x->k, given[n++] = x->v;
    dra_chunk_append(x->l, given, &n);
    dra_chunk_append(x->S, given, &n);
    dra_chunk_append(x->mark, given, &n);
    if (!dra_check_values(g, op, n, given)) return false;
    const dra_shape q = dra_type_of(g, x->q)->shape, v = dra_type_of(g, x->v)->shape;
    const int64_t   B = q.dim[0], T = q.dim[1], H = q.dim[2], F = q.dim[3], E = v.dim[3];
    if (q.rank != 4 || v.rank != 4) {
        dra_build_fail(g, op, DRA_ERR_SHAPE,
                       "q is %s, v %s, expected (B, T, H, F) and (B, T, H, E)",
                       dra_type_text(g, x->q), dra_type_text(g, x->v));
        return false;
    }
    return dra_recur_expect(g, op, "q", x->q, DRA_REAL, q) &&
           dra_recur_expect(g, op, "k", x->k, DRA_REAL, q) &&
           dra_recur_expect(g, op, "v", x->v, DRA_REAL, DRA_SHAPE(B, T, H, E)) &&
           (!x->l.id || check_channels(g, op, q, &x->l)) &&
           (!x->S.id || dra_recur_expect(g, op, "S", x->S, DRA_REAL, DRA_SHAPE(B, H, F, E))) &&
           (!x->mark.id || dra_recur_expect(g, op, "mark", x->mark, DRA_I32, DRA_SHAPE(B, T)));
}
