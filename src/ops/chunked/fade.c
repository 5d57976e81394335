/* Decays by channel inside a chunk: see fade.h. */
#include "ops/chunked/fade.h"

#include <float.h>
#include <math.h>

static const real LEAST = sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN;

enum { FEW = DRA_FADE_FEW, HALF = DRA_DPLR_CHUNK / 2, BOTH = 2 * HALF };
_Static_assert(DRA_FADE_READERS <= 2 && DRA_FADE_KEYS <= 2, "lanes of a walk, halves of a room");

const dra_fade_loops *dra_fade_loops_of(const dra_simd *simd)
{
    static const dra_fade_loops *const by_level[] = DRA_BY_LEVEL(dra_fade_loops);
    return by_level[simd->level];
}

int64_t dra_fade_room(int64_t F) { return (DRA_DPLR_CHUNK + 2) * F + 3 * BOTH * F + BOTH * BOTH; }

void dra_fade_open(dra_fade *f, const dra_simd *simd, int64_t F, real *room)
{
    *f = (dra_fade){.simd = simd, .loops = dra_fade_loops_of(simd), .F = F, .d = room};
    f->whole = f->d + DRA_DPLR_CHUNK * F;
    f->less = f->whole + F;
    f->readers = f->less + F;
    f->writers = f->readers + BOTH * F;
    f->product = f->writers + BOTH * F;
    f->pairs = f->product + BOTH * F;
}

/* d_t, and l_t added to `less`. */
static void make_row(const dra_fade *f, int32_t mark, const real *l, real *d)
{
    for (int64_t i = 0; i < f->F && (!l || mark); i++) d[i] = 1;
    if (mark & DRA_MARK_RESET) {
        dra_recur_clear(f->F, d);
        for (int64_t i = 0; i < f->F; i++) f->less[i] = (real)DRA_CHUNK_RESET;
    } else if (l && !(mark & DRA_MARK_PAD)) {
        f->simd->exp_sum(f->F, l, 0, d);
        f->simd->add(f->F, f->less, l, f->less);
    }
    f->simd->mul(f->F, f->whole, d, f->whole);
}

static bool is_marked(const dra_chunk *k)
{
    for (int64_t t = 0; t < k->n && k->mark; t++)
        if (k->mark[t] & (DRA_MARK_RESET | DRA_MARK_PAD)) return true;
    return false;
}

/* The same for all rows at once: most chunks have no marks. */
static void make_rows(const dra_fade *f, const dra_chunk *k, const dra_tensor *l)
{
    const real *at = dra_recur_at(l, k->b, k->t, k->h);
    for (int64_t t = 0; t < k->n; t++)
        f->simd->exp_sum(f->F, at + t * l->stride[1], 0, f->d + t * f->F);
    f->loops->whole(k->n, f->F, f->d, at, l->stride[1], f->whole, f->less);
}

void dra_fade_make(dra_fade *f, const dra_chunk *k, const dra_tensor *l)
{
    const bool plain = l && !is_marked(k);
    f->n = k->n;
    dra_recur_clear(f->F, f->less);
    for (int64_t i = 0; i < f->F; i++) f->whole[i] = 1;
    if (plain) make_rows(f, k, l);
    for (int64_t t = 0; t < k->n && !plain; t++)
        make_row(f, k->mark ? k->mark[t] : 0, l ? dra_recur_at(l, k->b, k->t + t, k->h) : NULL,
                 f->d + t * f->F);
    for (int64_t i = 0; i < f->F; i++) {
        if (f->whole[i] < LEAST) f->whole[i] = 0;
        f->less[i] = (double)f->less[i] < DRA_STRONG_DECAY ? -1 : (real)expm1((double)f->less[i]);
    }
}

void dra_fade_state(const dra_fade *f, int64_t W, dra_matrix_block x)
{
    for (int64_t i = 0; i < f->F; i++) {
        real *row = x.at + i * x.row;
        if (f->whole[i] == 0)
            dra_recur_clear(W, row);
        else if (f->less[i] == -1) /* strong: what is left is a product */
            f->simd->scale(W, f->whole[i], row);
        else
            f->simd->axpy(W, f->less[i], row, row);
    }
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* Tokens first..first+n-1 of x[0..many-1], readers in their order, writers in the other. */
static dra_fade_walk walk_of(const dra_fade *f, bool writers, int64_t first, int64_t n, int many,
                             const dra_matrix_block *x)
{
    const int64_t start = writers ? first + n - 1 : first, sign = writers ? -1 : 1;
    dra_fade_walk w = {.n = n, .F = f->F, .lanes = many};
    w.d = f->d + start * f->F, w.d_row = sign * f->F;
    for (int i = 0; i < many; i++)
        w.lane[i].x = x[i].at + start * x[i].row, w.lane[i].x_row = sign * x[i].row;
    return w;
}

/* To many x n rows of width F. */
static dra_matrix_block carry_rows(const dra_fade *f, bool writers, int64_t first, int64_t n,
                                   int many, const dra_matrix_block *x, real *to)
{
    dra_fade_walk w = walk_of(f, writers, first, n, many, x);
    for (int i = 0; i < many; i++) {
        w.lane[i].to = to + (i * n + (writers ? n - 1 : 0)) * f->F;
        w.lane[i].to_row = writers ? -f->F : f->F;
    }
    f->loops->walk(&w);
    return (dra_matrix_block){to, f->F, 1};
}

/* raw: many x n rows of width F. made: the gradients of x and of l hold nothing yet. */
static void carry_back(const dra_fade *f, bool writers, int64_t first, int64_t n,
                       const dra_fade_sides *s, const real *raw, bool made, bool made_dl)
{
    const int64_t           start = writers ? first + n - 1 : first, sign = writers ? -1 : 1;
    const dra_matrix_block *dx = writers ? s->dz : s->dx;
    dra_fade_walk           w = walk_of(f, writers, first, n, writers ? s->keys : s->readers,
                              writers ? s->z : s->x);
    for (int i = 0; i < w.lanes; i++) {
        w.lane[i].to = dx[i].at + start * dx[i].row, w.lane[i].to_row = sign * dx[i].row;
        w.lane[i].raw = raw + (i * n + (writers ? n - 1 : 0)) * f->F;
        w.lane[i].raw_row = sign * f->F;
    }
    w.dl = s->dl.at ? s->dl.at + start * s->dl.row : NULL, w.dl_row = sign * s->dl.row;
    w.first = made, w.first_dl = made_dl;
    f->loops->walk_back(&w);
}

dra_matrix_block dra_fade_readers(const dra_fade *f, int many, const dra_matrix_block *x,
                                  real *room)
{
    return carry_rows(f, false, 0, f->n, many, x, room);
}

dra_matrix_block dra_fade_writers(const dra_fade *f, int many, const dra_matrix_block *z,
                                  real *room)
{
    return carry_rows(f, true, 0, f->n, many, z, room);
}

void dra_fade_readers_back(const dra_fade *f, const dra_fade_sides *s, const real *raw)
{
    carry_back(f, false, 0, f->n, s, raw, true, false);
}

void dra_fade_writers_back(const dra_fade *f, const dra_fade_sides *s, const real *raw)
{
    carry_back(f, true, 0, f->n, s, raw, true, true);
}

void dra_fade_state_back(const dra_fade *f, int64_t W, dra_matrix_block S0, dra_matrix_block dS,
                         dra_matrix_block dl)
{
    real *through = f->readers;
    if (!dl.at) return;
    for (int64_t i = 0; i < f->F; i++)
        through[i] = f->whole[i] == 0
                         ? 0
                         : f->whole[i] * f->simd->dot(W, S0.at + i * S0.row, dS.at + i * dS.row);
    for (int64_t t = 0; t < f->n; t++)
        f->simd->add(f->F, dl.at + t * dl.row, through, dl.at + t * dl.row);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

typedef struct border { /* writers first..m-1, readers m..end-1 */
    int64_t first, m, end;
} border;

enum { BORDERS = DRA_DPLR_CHUNK / FEW - 1 };

/* Those of n tokens; returns how many. They do not depend on later tokens. */
static int borders_of(int64_t n, border to[BORDERS])
{
    int many = 0;
    for (int64_t half = HALF; half >= FEW; half /= 2)
        for (int64_t m = half; m < n; m += 2 * half)
            to[many++] = (border){m - half, m, dra_imin(m + half, n)};
    return many;
}

static dra_fade_few few_of(const dra_fade *f, int64_t t, const dra_fade_sides *s)
{
    dra_fade_few p = {.n = dra_imin(FEW, f->n - t), .F = f->F, .d = f->d + t * f->F, .d_row = f->F};
    p.readers = s->readers, p.keys = s->keys;
    for (int i = 0; i < s->readers; i++) {
        p.x[i] = s->x[i].at + t * s->x[i].row, p.x_row[i] = s->x[i].row;
        for (int j = 0; j < s->keys; j++) p.A[i][j] = s->A[i][j] + t * DRA_CHUNK + t;
    }
    for (int j = 0; j < s->keys; j++)
        p.z[j] = s->z[j].at + t * s->z[j].row, p.z_row[j] = s->z[j].row;
    return p;
}

/* The pairs of a border as one matrix (readers R, keys W), and A: from it, or to it. */
static dra_matrix_block move_pairs(const dra_fade *f, border b, const dra_fade_sides *s, bool to_A)
{
    const int64_t R = b.end - b.m, W = b.m - b.first, row = s->keys * W;
    for (int i = 0; i < s->readers; i++)
        for (int j = 0; j < s->keys; j++)
            for (int64_t t = 0; t < R; t++) {
                real *at = f->pairs + (i * R + t) * row + j * W;
                real *A = s->A[i][j] + (b.m + t) * DRA_CHUNK + b.first;
                dra_recur_copy(W, to_A ? at : A, to_A ? A : at);
            }
    return (dra_matrix_block){f->pairs, row, 1};
}

static void make_border(const dra_fade *f, border b, const dra_fade_sides *s)
{
    const int64_t          R = b.end - b.m, W = b.m - b.first;
    const dra_matrix_block readers = carry_rows(f, false, b.m, R, s->readers, s->x, f->readers);
    const dra_matrix_block writers = carry_rows(f, true, b.first, W, s->keys, s->z, f->writers);
    const dra_matrix_block pairs = {f->pairs, s->keys * W, 1};
    dra_matrix_block_multiply(f->simd, s->readers * R, s->keys * W, f->F, readers,
                              dra_matrix_block_transposed(writers), pairs, false);
    move_pairs(f, b, s, true);
}

void dra_fade_pairs(const dra_fade *f, const dra_fade_sides *s)
{
    border    b[BORDERS];
    const int many = borders_of(f->n, b);
    for (int i = 0; i < many; i++) make_border(f, b[i], s);
    for (int64_t t = 0; t < f->n; t += FEW) {
        const dra_fade_few p = few_of(f, t, s);
        f->loops->few(&p);
    }
    for (int i = 0; i < s->readers; i++)
        for (int j = 0; j < s->keys; j++)
            for (int64_t t = 0; t < f->n; t++) dra_chunk_clear_from(f->n, t, s->A[i][j]);
}

static void border_back(const dra_fade *f, border b, const dra_fade_sides *s)
{
    const int64_t          R = b.end - b.m, W = b.m - b.first;
    const dra_matrix_block pairs = move_pairs(f, b, s, false), product = {f->product, f->F, 1};
    const dra_matrix_block writers = carry_rows(f, true, b.first, W, s->keys, s->z, f->writers);
    const dra_matrix_block readers = carry_rows(f, false, b.m, R, s->readers, s->x, f->readers);
    dra_matrix_block_multiply(f->simd, s->readers * R, f->F, s->keys * W, pairs, writers, product,
                              false);
    carry_back(f, false, b.m, R, s, product.at, false, false);
    dra_matrix_block_multiply(f->simd, s->keys * W, f->F, s->readers * R,
                              dra_matrix_block_transposed(pairs), readers, product, false);
    carry_back(f, true, b.first, W, s, product.at, false, false);
}

void dra_fade_pairs_back(const dra_fade *f, const dra_fade_sides *s)
{
    border    b[BORDERS];
    const int many = borders_of(f->n, b);
    for (int i = 0; i < many; i++) border_back(f, b[i], s);
    for (int64_t t = 0; t < f->n; t += FEW) {
        dra_fade_few p = few_of(f, t, s);
        p.dl = s->dl.at ? s->dl.at + t * s->dl.row : NULL, p.dl_row = s->dl.row;
        for (int i = 0; i < s->readers; i++)
            p.dx[i] = s->dx[i].at + t * s->dx[i].row, p.dx_row[i] = s->dx[i].row;
        for (int j = 0; j < s->keys; j++)
            p.dz[j] = s->dz[j].at + t * s->dz[j].row, p.dz_row[j] = s->dz[j].row;
        f->loops->few_back(&p);
    }
}
