/* Matrices that fade by channel and may be corrected by rank one (the transition is diagonal plus
 * low rank): what moments and delta rules become where their decays have channels.
 *   p_t = S_{t-1}^T a_t,   S_t = diag(e^(l_t)) S_{t-1} + c_t p_t^T + k_t v_t^T,   y_t = S_t^T q_t
 * and with a bonus u reading comes before writing,
 *   y_t = (S_{t-1} + diag(u) k_t v_t^T)^T q_t */
#ifndef DRA_SRC_OPS_DPLR_H
#define DRA_SRC_OPS_DPLR_H

#include "ops/chunk.h"

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

extern const dra_op dra_op_dplr_back;

#endif
