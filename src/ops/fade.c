/* Decays by channel inside a chunk: see fade.h. */
#include "ops/fade.h"

#include <float.h>
#include <math.h>

static const real LEAST = sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN;

enum { FEW = DRA_FADE_FEW, KEYS = DRA_FADE_KEYS, HALF = DRA_CHUNK / 2 };

const dra_fade_loops *dra_fade_loops_of(const dra_simd *simd)
{
    static const dra_fade_loops *const by_level[] = DRA_BY_LEVEL(dra_fade_loops);
    return by_level[simd->level];
}

int64_t dra_fade_room(int64_t F)
{
    return (DRA_CHUNK + 2) * F + (1 + KEYS) * HALF * F + HALF * dra_imax(F, KEYS * HALF);
}

void dra_fade_open(dra_fade *f, const dra_simd *simd, int64_t F, real *room)
{
    *f = (dra_fade){.simd = simd, .loops = dra_fade_loops_of(simd), .F = F, .d = room};
    f->whole = f->d + DRA_CHUNK * F;
    f->less = f->whole + F;
    f->readers = f->less + F;
    f->writers = f->readers + HALF * F;
    f->product = f->writers + KEYS * HALF * F;
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
}

void dra_fade_make(dra_fade *f, const dra_chunk *k, const dra_tensor *l)
{
    f->n = k->n;
    dra_recur_clear(f->F, f->less);
    for (int64_t i = 0; i < f->F; i++) f->whole[i] = 1;
    for (int64_t t = 0; t < k->n; t++) {
        real *d = f->d + t * f->F;
        make_row(f, k->mark ? k->mark[t] : 0, l ? dra_recur_at(l, k->b, k->t + t, k->h) : NULL, d);
        f->simd->mul(f->F, f->whole, d, f->whole);
    }
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

/* Tokens first..first+n-1, readers in their order, writers in the other. */
static dra_fade_walk walk_of(const dra_fade *f, bool writers, int64_t first, int64_t n,
                             dra_matrix_block x)
{
    const int64_t start = writers ? first + n - 1 : first, sign = writers ? -1 : 1;
    return (dra_fade_walk){.n = n,
                           .F = f->F,
                           .d = f->d + start * f->F,
                           .d_row = sign * f->F,
                           .x = x.at + start * x.row,
                           .x_row = sign * x.row};
}

/* To n rows of width F. */
static void carry(const dra_fade *f, bool writers, int64_t first, int64_t n, dra_matrix_block x,
                  real *to)
{
    dra_fade_walk w = walk_of(f, writers, first, n, x);
    w.to = writers ? to + (n - 1) * f->F : to;
    w.to_row = writers ? -f->F : f->F;
    f->loops->walk(&w);
}

/* raw: n rows of width F or further apart. */
static void carry_back(const dra_fade *f, bool writers, int64_t first, int64_t n,
                       dra_matrix_block x, dra_matrix_block raw, dra_matrix_block dx,
                       dra_matrix_block dl, bool empty, bool empty_dl)
{
    const int64_t start = writers ? first + n - 1 : first, sign = writers ? -1 : 1;
    dra_fade_walk w = walk_of(f, writers, first, n, x);
    w.to = dx.at + start * dx.row, w.to_row = sign * dx.row;
    w.raw = writers ? raw.at + (n - 1) * raw.row : raw.at, w.raw_row = sign * raw.row;
    w.dl = dl.at ? dl.at + start * dl.row : NULL, w.dl_row = sign * dl.row;
    w.first = empty, w.first_dl = empty_dl;
    f->loops->walk_back(&w);
}

dra_matrix_block dra_fade_readers(const dra_fade *f, dra_matrix_block x, real *room)
{
    carry(f, false, 0, f->n, x, room);
    return (dra_matrix_block){room, f->F, 1};
}

dra_matrix_block dra_fade_writers(const dra_fade *f, dra_matrix_block z, real *room)
{
    carry(f, true, 0, f->n, z, room);
    return (dra_matrix_block){room, f->F, 1};
}

void dra_fade_readers_back(const dra_fade *f, dra_matrix_block x, dra_matrix_block raw,
                           dra_matrix_block dx, dra_matrix_block dl)
{
    carry_back(f, false, 0, f->n, x, raw, dx, dl, true, false);
}

void dra_fade_writers_back(const dra_fade *f, dra_matrix_block z, dra_matrix_block raw,
                           dra_matrix_block dz, dra_matrix_block dl, bool first)
{
    carry_back(f, true, 0, f->n, z, raw, dz, dl, true, first);
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

enum { BORDERS = DRA_CHUNK / FEW - 1 };

/* Those of n tokens; returns how many. They do not depend on what comes later. */
static int borders_of(int64_t n, border to[BORDERS])
{
    int many = 0;
    for (int64_t half = HALF; half >= FEW; half /= 2)
        for (int64_t m = half; m < n; m += 2 * half)
            to[many++] = (border){m - half, m, dra_imin(m + half, n)};
    return many;
}

static dra_fade_few few_of(const dra_fade *f, int64_t t, dra_matrix_block x, int keys,
                           const dra_matrix_block *z, real *const *A)
{
    dra_fade_few p = {.n = dra_imin(FEW, f->n - t),
                      .F = f->F,
                      .keys = keys,
                      .d = f->d + t * f->F,
                      .d_row = f->F,
                      .x = x.at + t * x.row,
                      .x_row = x.row};
    for (int j = 0; j < keys; j++) {
        p.z[j] = z[j].at + t * z[j].row, p.z_row[j] = z[j].row;
        p.A[j] = A[j] + t * DRA_CHUNK + t;
    }
    return p;
}

static void make_border(const dra_fade *f, border b, dra_matrix_block x, int keys,
                        const dra_matrix_block *z, real *const *A)
{
    const int64_t          R = b.end - b.m, W = b.m - b.first;
    const dra_matrix_block readers = {f->readers, f->F, 1}, writers = {f->writers, f->F, 1};
    const dra_matrix_block product = {f->product, keys * W, 1};
    carry(f, false, b.m, R, x, readers.at);
    for (int j = 0; j < keys; j++) carry(f, true, b.first, W, z[j], writers.at + j * W * f->F);
    dra_matrix_block_multiply(f->simd, R, keys * W, f->F, readers,
                              dra_matrix_block_transposed(writers), product, false);
    for (int j = 0; j < keys; j++)
        for (int64_t t = 0; t < R; t++)
            dra_recur_copy(W, product.at + t * product.row + j * W,
                           A[j] + (b.m + t) * DRA_CHUNK + b.first);
}

void dra_fade_pairs(const dra_fade *f, dra_matrix_block x, int keys, const dra_matrix_block *z,
                    real *const *A)
{
    border    b[BORDERS];
    const int many = borders_of(f->n, b);
    for (int i = 0; i < many; i++) make_border(f, b[i], x, keys, z, A);
    for (int64_t t = 0; t < f->n; t += FEW) {
        const dra_fade_few p = few_of(f, t, x, keys, z, A);
        f->loops->few(&p);
    }
    for (int j = 0; j < keys; j++)
        for (int64_t t = 0; t < f->n; t++) dra_chunk_clear_from(f->n, t, A[j]);
}

static void border_back(const dra_fade *f, border b, dra_matrix_block x, int keys,
                        const dra_matrix_block *z, real *const *dA, dra_matrix_block dx,
                        const dra_matrix_block *dz, dra_matrix_block dl)
{
    const int64_t          R = b.end - b.m, W = b.m - b.first;
    const dra_matrix_block readers = {f->readers, f->F, 1}, writers = {f->writers, f->F, 1};
    const dra_matrix_block product = {f->product, f->F, 1};
    for (int j = 0; j < keys; j++) {
        const dra_matrix_block part = {dA[j] + b.m * DRA_CHUNK + b.first, DRA_CHUNK, 1};
        carry(f, true, b.first, W, z[j], writers.at);
        dra_matrix_block_multiply(f->simd, R, f->F, W, part, writers, product, j > 0);
    }
    carry_back(f, false, b.m, R, x, product, dx, dl, false, false);
    carry(f, false, b.m, R, x, readers.at);
    for (int j = 0; j < keys; j++) {
        const dra_matrix_block part = {dA[j] + b.m * DRA_CHUNK + b.first, DRA_CHUNK, 1};
        dra_matrix_block_multiply(f->simd, W, f->F, R, dra_matrix_block_transposed(part), readers,
                                  product, false);
        carry_back(f, true, b.first, W, z[j], product, dz[j], dl, false, false);
    }
}

void dra_fade_pairs_back(const dra_fade *f, dra_matrix_block x, int keys, const dra_matrix_block *z,
                         real *const *dA, dra_matrix_block dx, const dra_matrix_block *dz,
                         dra_matrix_block dl)
{
    border    b[BORDERS];
    const int many = borders_of(f->n, b);
    for (int i = 0; i < many; i++) border_back(f, b[i], x, keys, z, dA, dx, dz, dl);
    for (int64_t t = 0; t < f->n; t += FEW) {
        dra_fade_few p = few_of(f, t, x, keys, z, dA);
        p.dx = dx.at + t * dx.row, p.dx_row = dx.row;
        p.dl = dl.at ? dl.at + t * dl.row : NULL, p.dl_row = dl.row;
        for (int j = 0; j < keys; j++) p.dz[j] = dz[j].at + t * dz[j].row, p.dz_row[j] = dz[j].row;
        f->loops->few_back(&p);
    }
}
