/* Decays by channel inside a chunk, see fade.h: walks over rows of F channels, along which the
 * decays multiply. No factor exceeds 1; what is below the smallest normal number becomes 0. */
#ifndef DRA_SRC_OPS_FADE_LOOPS_H
#define DRA_SRC_OPS_FADE_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

enum { DRA_FADE_FEW = 8, DRA_FADE_KEYS = 2 }; /* tokens taken pair by pair; kinds of keys */

/* Row i of n in the order of the walk, rows may be at negative distances: what lies between row 0
 * and row i has the decay e_i = d_0 .. d_{i-1}. */
typedef struct dra_fade_walk {
    int64_t         n, F;
    const dra_real *d, *x;
    int64_t         d_row, x_row;
    dra_real       *to; /* forward: e_i x_i; backward: is added e_i raw_i */
    int64_t         to_row;
    const dra_real *raw; /* backward only, as are these: */
    int64_t         raw_row;
    dra_real       *dl; /* is added to row i what the rows j > i have of x_j e_j raw_j; or NULL */
    int64_t         dl_row;
    bool            first, first_dl; /* to, dl hold nothing yet */
} dra_fade_walk;

/* Pairs of up to DRA_FADE_FEW tokens s < t, with e_ts = d_{s+1} .. d_{t-1}:
 *   A[j][t][s] = sum_f x_t e_ts z_j,s           rows of A are DRA_CHUNK apart
 * and backward, A then the gradients of these:
 *   dx_t += sum_js A[j][t][s] e_ts z_j,s        dz_j,s += sum_t A[j][t][s] e_ts x_t
 *   dl_i += what pairs s < i < t have of x_t A[j][t][s] e_ts z_j,s */
typedef struct dra_fade_few {
    int64_t         n, F;
    int             keys;
    const dra_real *d, *x, *z[DRA_FADE_KEYS];
    int64_t         d_row, x_row, z_row[DRA_FADE_KEYS];
    dra_real       *A[DRA_FADE_KEYS];
    dra_real       *dx, *dz[DRA_FADE_KEYS], *dl; /* backward only; dl or NULL */
    int64_t         dx_row, dz_row[DRA_FADE_KEYS], dl_row;
} dra_fade_few;

typedef struct dra_fade_loops {
    void (*walk)(const dra_fade_walk *w);
    void (*walk_back)(const dra_fade_walk *w);
    void (*few)(const dra_fade_few *p);
    void (*few_back)(const dra_fade_few *p);
} dra_fade_loops;

extern const dra_fade_loops DRA_LEVELS(dra_fade_loops);

/* Those of the level of these micro-kernels. */
const dra_fade_loops *dra_fade_loops_of(const dra_simd *simd);

#endif
