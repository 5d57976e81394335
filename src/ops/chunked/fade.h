/* How what was written fades by channel inside a chunk. With decays d_t = e^(l_t) (F), 1 at a pad
 * and 0 at a reset, a reader x of token t sees of a writer z of token s < t
 *   A[t][s] = sum_f x_t (d_{s+1} .. d_{t-1}) z_s
 * and of the state before the chunk x_t (d_0 .. d_{t-1}); the state after it has of a writer
 * (d_{s+1} .. d_{n-1}) z_s. A reader that comes after the decay of its own token is x = d q.
 *
 * Neither the products nor their logarithms are ever divided or subtracted: decays have no bound
 * below, and what is left of e^(L_t) e^(-L_s) would overflow, or of L_t - L_s be rounded away. For
 * a border m between s < m <= t readers carry what lies after it, writers what lies before it: a
 * product of matrices for each of the borders of blocks of 32, 16 and 8 tokens; inside 8 tokens
 * pairs are taken one by one. Gradients go the same ways back; each term of dl_t has d_t in it. */
#ifndef DRA_SRC_OPS_CHUNKED_FADE_H
#define DRA_SRC_OPS_CHUNKED_FADE_H

#include "ops/chunked/chunk.h"
#include "ops/chunked/fade_loops.h"

typedef struct dra_fade {
    const dra_simd       *simd;
    const dra_fade_loops *loops;
    int64_t               n, F;
    real                 *d;                 /* (n, F) */
    real                 *whole, *less;      /* (F): d_0 .. d_{n-1}, and that minus 1 */
    real                 *readers, *writers; /* room of a border's, (n, F) each; of their pairs */
    real                 *pairs, *product;   /* and of what these give; free between calls */
} dra_fade;

/* Reals of room for one; opened once for a tile, made for every chunk. l (B, T, H, F), or NULL. */
int64_t dra_fade_room(int64_t F);
void    dra_fade_open(dra_fade *f, const dra_simd *simd, int64_t F, real *room);
void    dra_fade_make(dra_fade *f, const dra_chunk *k, const dra_tensor *l);

/* A state x (F, W), or its gradient, over the chunk; nothing where it has faded entirely. */
void dra_fade_state(const dra_fade *f, int64_t W, dra_matrix_block x);

/* What readers see of the state before the chunk, and what the one after it has of writers, of
 * `many` (1 or 2) kinds x[i] each: (many n, F) in `room`, one kind after the other. */
dra_matrix_block dra_fade_readers(const dra_fade *f, int many, const dra_matrix_block *x,
                                  real *room);
dra_matrix_block dra_fade_writers(const dra_fade *f, int many, const dra_matrix_block *z,
                                  real *room);

typedef struct dra_fade_sides { /* who reads and who wrote; 1 or 2 kinds of each */
    int              readers, keys;
    dra_matrix_block x[DRA_FADE_READERS], z[DRA_FADE_KEYS];
    real            *A[DRA_FADE_READERS][DRA_FADE_KEYS];
    dra_matrix_block dx[DRA_FADE_READERS], dz[DRA_FADE_KEYS], dl; /* gradients; dl.at may be NULL */
} dra_fade_sides;

/* A[i][j] of readers x[i] and writers z[j], below the diagonal; zeros above and on it as far as the
 * products of chunk.h read. The same bits, whoever else is there. */
void dra_fade_pairs(const dra_fade *f, const dra_fade_sides *s);

/* ---- gradients: as many readers as keys ------------------------------------------------------ */

/* raw (readers n, F) or (keys n, F): gradients of what readers() and writers() gave; dx and dz are
 * made, all else here is added, but writers_back() makes dl, too. */
void dra_fade_readers_back(const dra_fade *f, const dra_fade_sides *s, const real *raw);
void dra_fade_writers_back(const dra_fade *f, const dra_fade_sides *s, const real *raw);

/* A[i][j] now are gradients, whatever is there on and above the diagonal. */
void dra_fade_pairs_back(const dra_fade *f, const dra_fade_sides *s);

/* What l has through the state: S0 before the chunk, dS of the one after it, both (F, W). */
void dra_fade_state_back(const dra_fade *f, int64_t W, dra_matrix_block S0, dra_matrix_block dS,
                         dra_matrix_block dl);

#endif
