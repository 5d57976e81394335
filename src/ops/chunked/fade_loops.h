/* Decays by channel inside a chunk, see fade.h: walks over rows of F channels, along which the
 * decays multiply. No factor exceeds 1; what is below the smallest normal number becomes 0. */
#ifndef DRA_SRC_OPS_CHUNKED_FADE_LOOPS_H
#define DRA_SRC_OPS_CHUNKED_FADE_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

/* Tokens taken pair by pair; kinds of keys, and of readers: those that are there go side by side,
 * because the decays, which are half of the work, are the same for them. */
enum { DRA_FADE_FEW = 8, DRA_FADE_KEYS = 2, DRA_FADE_READERS = 2 };

typedef struct dra_fade_lane { /* one of those that walk side by side */
    const dra_real *x;
    int64_t         x_row;
    dra_real       *to; /* forward: e_i x_i; backward: is added e_i raw_i */
    int64_t         to_row;
    const dra_real *raw; /* backward only */
    int64_t         raw_row;
} dra_fade_lane;

/* Row i of n in the order of the walk, rows may be at negative distances: what lies between row 0
 * and row i has the decay e_i = d_0 .. d_{i-1}. */
typedef struct dra_fade_walk {
    int64_t         n, F;
    const dra_real *d;
    int64_t         d_row;
    int             lanes; /* 1 or 2 */
    dra_fade_lane   lane[2];
    dra_real       *dl; /* backward: is added to row i what the rows j > i of all lanes have of
                         * x_j e_j raw_j; or NULL */
    int64_t         dl_row;
    bool            first, first_dl; /* backward: to, dl hold nothing yet */
} dra_fade_walk;

/* Pairs of up to DRA_FADE_FEW tokens s < t, with e_ts = d_{s+1} .. d_{t-1}:
 *   A[i][j][t][s] = sum_f x_i,t e_ts z_j,s             rows of A are DRA_CHUNK apart
 * and backward, A then the gradients of these:
 *   dx_i,t += sum_js A[i][j][t][s] e_ts z_j,s          dz_j,s += sum_it A[i][j][t][s] e_ts x_i,t
 *   dl_m += what pairs s < m < t have of x_i,t A[i][j][t][s] e_ts z_j,s */
typedef struct dra_fade_few {
    int64_t         n, F;
    int             readers, keys;
    const dra_real *d, *x[DRA_FADE_READERS], *z[DRA_FADE_KEYS];
    int64_t         d_row, x_row[DRA_FADE_READERS], z_row[DRA_FADE_KEYS];
    dra_real       *A[DRA_FADE_READERS][DRA_FADE_KEYS];
    dra_real       *dx[DRA_FADE_READERS], *dz[DRA_FADE_KEYS], *dl; /* backward only; dl or NULL */
    int64_t         dx_row[DRA_FADE_READERS], dz_row[DRA_FADE_KEYS], dl_row;
} dra_fade_few;

/* One token of dplr.h, a state S (F, E) from before it to after it in two passes at most. Row f
 * fades to S + less S, or where less is -1 to whole S, of which nothing is left where that is 0. */
typedef struct dra_fade_step {
    int64_t         F, E;
    dra_real       *S;
    const dra_real *q, *k, *v, *whole, *less;
    const dra_real *a, *c;  /* or NULL */
    bool            before; /* y is read before the token is written; bonus: q.(u k) */
    dra_real        bonus;
    dra_real       *p, *y; /* p: NULL without a; y: or NULL */
} dra_fade_step;

/* n tokens and their own writes: the diagonals of pairs, rows of which are DRA_CHUNK apart,
 *   A[j][t][t] = q_t.z_j,t, or q_t.(u z_j,t)
 * and backward, A then the gradients g of these, to_t that of x = d q and then that of q,
 *   to_t = d_t to_t + sum_j g_j z_j,t      dz_j,t += g_j q_t      dl_t += x_t to_t */
typedef struct dra_fade_own {
    int64_t         n, F;
    int             keys;
    const dra_real *q, *z[DRA_FADE_KEYS], *u; /* u: or NULL */
    int64_t         q_row, z_row[DRA_FADE_KEYS];
    dra_real       *A[DRA_FADE_KEYS];
    const dra_real *d, *x; /* backward only, as are these; rows of d and x are F apart */
    dra_real       *to, *dz[DRA_FADE_KEYS], *dl; /* dl: or NULL */
    int64_t         to_row, dz_row[DRA_FADE_KEYS], dl_row;
} dra_fade_own;

typedef struct dra_fade_loops {
    /* whole = d_0 .. d_{n-1}, less = l_0 + .. + l_{n-1}, all (F); rows of d are F apart. */
    void (*whole)(int64_t n, int64_t F, const dra_real *d, const dra_real *l, int64_t l_row,
                  dra_real *whole, dra_real *less);
    /* to_t = d_t q_t, rows of d and `to` F apart. */
    void (*decayed)(int64_t n, int64_t F, const dra_real *d, const dra_real *q, int64_t q_row,
                    dra_real *to);
    void (*own)(const dra_fade_own *p);
    void (*own_back)(const dra_fade_own *p);
    void (*walk)(const dra_fade_walk *w);
    void (*walk_back)(const dra_fade_walk *w);
    void (*few)(const dra_fade_few *p);
    void (*few_back)(const dra_fade_few *p);
    void (*step)(const dra_fade_step *s);
} dra_fade_loops;

extern const dra_fade_loops DRA_LEVELS(dra_fade_loops);

/* Those of the level of these micro-kernels. */
const dra_fade_loops *dra_fade_loops_of(const dra_simd *simd);

#endif
