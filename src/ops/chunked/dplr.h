/* Matrices that fade by channel and may be corrected by rank one (the transition is diagonal plus
 * low rank): what moments and delta rules become where their decays have channels.
 *   p_t = S_{t-1}^T a_t,   S_t = diag(e^(l_t)) S_{t-1} + c_t p_t^T + k_t v_t^T,   y_t = S_t^T q_t
 * and with a bonus u reading comes before writing,
 *   y_t = (S_{t-1} + diag(u) k_t v_t^T)^T q_t */
#ifndef DRA_SRC_OPS_CHUNKED_DPLR_H
#define DRA_SRC_OPS_CHUNKED_DPLR_H

#include "ops/chunked/fade.h"

typedef struct dra_dplr_inputs {
    dra_value q, k; /* (B, T, H, F) */
    dra_value v;    /* (B, T, H, E) */
    dra_value l;    /* (H), (B, T, H), (H, F) or (B, T, H, F), or none: 0 */
    dra_value u;    /* (H, F), or none */
    dra_value a, c; /* (B, T, H, F), both or none */
    dra_value S;    /* (B, H, F, E), or none */
    dra_value mark; /* (B, T), or none */
} dra_dplr_inputs;

/* y; *S_last may be NULL. All but l was checked. */
dra_value dra_dplr(dra_graph *g, const dra_dplr_inputs *x, dra_value *S_last);

/* Whether decays l, which may be none, have channels. */
bool dra_dplr_by_channel(dra_graph *g, dra_value l);

/* x (B, T, ..), and `other` (a number) at pads. */
dra_value dra_dplr_at_pads(dra_graph *g, dra_value mark, dra_value x, double other);

static inline int64_t dra_dplr_chunks(int64_t T) { return dra_div_up(T, DRA_DPLR_CHUNK); }

/* ---- what the forward and the backward op share ---------------------------------------------- */

/* The chunk's rows of x (B, T, H, F) as readers of what was before their tokens: with zeros for
 * pads and for resets, after which nothing is, in `room` (n, F) if there are any. */
dra_matrix_block dra_dplr_before(const dra_chunk *k, const dra_tensor *x, real *room);

/* q as readers, with u as those above, without it after the decay: d q in `room`. */
dra_matrix_block dra_dplr_readers(const dra_chunk *k, const dra_call *c, const dra_fade *f,
                                  dra_matrix_block q, real *room);

/* q and the writes of its own tokens, whose pairs are those of a reader. */
dra_fade_own dra_dplr_own(const dra_chunk *k, const dra_call *c, dra_matrix_block q,
                          const dra_fade_sides *s, int reader);

/* The diagonals of A of a reader, what q_t sees of the writes of its own token. */
void dra_dplr_diagonals(const dra_chunk *k, const dra_call *c, const dra_fade *f,
                        dra_matrix_block q, const dra_fade_sides *s, int reader);

/* Zeros in the rows of resets, of width W: what is cut off has no gradient. */
void dra_dplr_clear_resets(const dra_chunk *k, int64_t W, dra_matrix_block m);

/* The bonus of a head, or NULL. */
const real *dra_dplr_bonus(const dra_call *c, int64_t h);

extern const dra_op dra_op_dplr_back;

#endif
