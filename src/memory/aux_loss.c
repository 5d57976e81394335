/* Add-ons of a loss, measured while a mixer runs; see dra_aux_kind.
 *   drift      mean (m_t - m_{t-1})^2: at the first token against the start, at a reset against the
 *              initial state          size   mean m_t^2
 *   budget     mean gamma             diversity   -mean over i < j of (gamma_i - gamma_j)^2
 *   entropy    mean over heads of ln S + sum_i p_i ln p_i, p the mean write weight, of sum 1
 *   spectral   mean over W_h of max(0, s - 1)^2
 *   z_loss     mean over tokens of the sum over heads of (ln sum_j e^(s_j))^2
 * Of feed-forwards: balance, see model/experts.c. */
#include <math.h>
#include <string.h>

#include "memory/memory.h"

static const char *const names[DRA_AUX_COUNT] = {"drift",   "budget", "diversity", "size",
                                                 "entropy", "z_loss", "spectral",  "balance"};

const char *dra_aux_name(dra_aux_kind kind)
{
    return (unsigned)kind < DRA_AUX_COUNT ? names[kind] : NULL;
}

static bool wants_loss(const dra_branch *b, dra_aux_kind kind) { return b->aux >> kind & 1; }

/* ---- what a memory has ----------------------------------------------------------------------- */

static bool has_state(const dra_branch *b)
{
    for (int i = 0; i < b->n_states; i++)
        if (!dra_branch_state(b, i)->maximum) return true;
    return false;
}

bool dra_aux_has(const dra_branch *b, dra_aux_kind kind)
{
    bool decay = false, recurrent = false;
    for (int i = 0; i < b->n_params; i++) {
        decay = decay || dra_branch_param(b, i)->decay;
        recurrent = recurrent || dra_branch_param(b, i)->recurrent;
    }
    switch (kind) {
    case DRA_AUX_DRIFT:
    case DRA_AUX_SIZE: return has_state(b);
    case DRA_AUX_BUDGET:
    case DRA_AUX_DIVERSITY: return decay;
    case DRA_AUX_ENTROPY: return b->memory->writes != NULL;
    case DRA_AUX_ATTENTION: return b->retrieval->over_time && b->retrieval->from_memory;
    case DRA_AUX_SPECTRAL: return recurrent;
    default: return false;
    }
}

bool dra_aux_needs_trail(const dra_branch *b)
{
    return (wants_loss(b, DRA_AUX_DRIFT) || wants_loss(b, DRA_AUX_SIZE)) && has_state(b);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* where (B, ...) with as many axes as x has. */
static dra_value spread_mask(dra_graph *g, dra_value where, dra_value x)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    dra_shape s = dra_shape_of(g, where);
    while (s.rank < dra_shape_of(g, x).rank) s.dim[s.rank++] = 1;
    return dra_reshape(g, where, s);
}

static dra_value is_reset(dra_graph *g, const dra_tokens *tokens) /* bool (B, T) */
{
    return dra_greater_equal(g, tokens->writes, dra_integer(g, DRA_MARK_RESET));
}

/* The state before each token, (B, T, ...). A pad keeps it, so the token before is the one. */
static dra_value before_each(dra_graph *g, const dra_aux_losses *w, int i)
{
    const int64_t   T = w->tokens->T;
    const dra_value start = dra_branch_start(g, w->b, i, w->tokens->B, w->state[i]);
    if (dra_graph_failed(g)) return (dra_value){0};
    dra_shape first = dra_shape_of(g, w->trail[i]);
    first.dim[1] = 1;
    const dra_value parts[] = {dra_reshape(g, start, first),
                               dra_slice(g, w->trail[i], 1, 0, T - 1)};
    const dra_value all = dra_concat(g, 2, parts, 1);
    if (!w->tokens->mark.id) return all;
    const dra_value initial = dra_number(g, dra_branch_state(w->b, i)->number);
    return dra_select(g, spread_mask(g, is_reset(g, w->tokens), all), initial, all);
}

/* How many tokens are not padding, at least 1. */
static dra_value real_tokens(dra_graph *g, const dra_tokens *tokens)
{
    const dra_value ones = dra_broadcast(g, dra_number(g, 1), DRA_SHAPE(tokens->B, tokens->T));
    const dra_value n = dra_sum_all(g, dra_tokens_zero_pads(g, tokens, ones));
    return dra_maximum(g, n, dra_number(g, 1));
}

/* Sums of squares of states over all that is no padding, or of what tokens change of them. */
static dra_value sum_trail(dra_graph *g, const dra_aux_losses *w, bool change)
{
    dra_value sum = dra_number(g, 0);
    for (int i = 0; i < w->b->n_states; i++) {
        dra_value m = w->trail[i];
        if (dra_branch_state(w->b, i)->maximum) continue;
        if (change) m = dra_sub(g, m, before_each(g, w, i));
        m = dra_tokens_zero_pads(g, w->tokens, m);
        sum = dra_add(g, sum, dra_sum_all(g, dra_square(g, m)));
    }
    return sum;
}

/* The mean square of the states, or of their changes. */
static dra_value mean_square(dra_graph *g, const dra_aux_losses *w, bool change)
{
    int64_t n = 0;
    for (int i = 0; i < w->b->n_states; i++) {
        const dra_spec *p = dra_branch_state(w->b, i);
        if (!p->maximum) n += dra_shape_count(&p->shape);
    }
    const dra_value each = w->square[change ? 0 : 1];
    const dra_value sum = each.id ? dra_sum_all(g, dra_tokens_zero_pads(g, w->tokens, each))
                                  : sum_trail(g, w, change);
    return dra_div(g, dra_affine(g, sum, 1 / (double)dra_imax(n, 1), 0), real_tokens(g, w->tokens));
}

/* ---- writes, matrices ------------------------------------------------------------------------ */

/* ln S + sum p ln p of the mean weight of writes to each slot, over heads. */
static dra_value entropy_loss(dra_graph *g, const dra_aux_losses *w)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const double    S = (double)dra_shape_of(g, w->write).dim[3];
    const dra_value least = dra_number(g, 1e-30); /* p ln p goes to 0 with p */
    const dra_value sum = dra_sum(g, w->write, (dra_axes){2, {0, 1}, false}); /* (H, S) */
    const dra_value p = dra_div(g, sum, dra_maximum(g, dra_sum_last(g, sum), least));
    const dra_value plogp = dra_mul(g, p, dra_log(g, dra_maximum(g, p, least)));
    return dra_mean(g, dra_affine(g, dra_sum_last(g, plogp), 1, log(S)),
                    (dra_axes){2, {0, 1}, false});
}

/* Of the matrices before they are divided by s, where they are. */
static dra_value spectral_loss(dra_graph *g, const dra_aux_losses *w, const dra_value *param)
{
    dra_value sum = dra_number(g, 0);
    int64_t   n = 0;
    for (int i = 0; i < w->b->n_params; i++) {
        const dra_spec *p = dra_branch_param(w->b, i);
        if (!p->recurrent) continue;
        const dra_value above = dra_affine(g, dra_spectral(g, param[i]), 1, -1);
        sum = dra_add(g, sum, dra_sum_all(g, dra_square(g, above)));
        n += p->shape.rank > 2 ? p->shape.dim[0] : 1;
    }
    return dra_affine(g, sum, 1 / (double)dra_imax(n, 1), 0);
}

static dra_value attention_loss(dra_graph *g, const dra_aux_losses *w)
{
    const dra_value each = dra_transpose(g, dra_square(g, w->lse), 1, 2); /* (B, T, H) */
    return dra_div(g, dra_sum_all(g, dra_tokens_zero_pads(g, w->tokens, each)),
                   real_tokens(g, w->tokens));
}

void dra_aux_branch(dra_graph *g, const dra_aux_losses *w, dra_value out[DRA_AUX_COUNT])
{
    const dra_branch *b = w->b;
    const bool        weighed = b->config.cell.recurrent == DRA_RECURRENT_WEIGHT;
    for (int k = 0; k < DRA_AUX_COUNT; k++) {
        if (!wants_loss(b, k) || !dra_aux_has(b, k)) continue;
        if (k == DRA_AUX_DRIFT || k == DRA_AUX_SIZE) out[k] = mean_square(g, w, k == DRA_AUX_DRIFT);
        if (k == DRA_AUX_ATTENTION) out[k] = attention_loss(g, w);
        if (k == DRA_AUX_ENTROPY) out[k] = entropy_loss(g, w);
        if (k == DRA_AUX_SPECTRAL) out[k] = spectral_loss(g, w, weighed ? w->used : w->param);
    }
}

/* ---- gammas, and the mixer as a whole -------------------------------------------------------- */

/* Sums of gamma and gamma^2 over all decays of the mixer; returns how many there are. */
static int64_t sum_gammas(dra_graph *g, int n, const dra_branch *b, const dra_value *param,
                          dra_value sum[2])
{
    int64_t count = 0;
    sum[0] = sum[1] = dra_number(g, 0);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < b[k].n_params; i++) {
            const dra_spec *p = dra_branch_param(&b[k], i);
            if (!p->decay) continue;
            const dra_value gamma = dra_sigmoid(g, param[b[k].params + i]);
            sum[0] = dra_add(g, sum[0], dra_sum_all(g, gamma));
            sum[1] = dra_add(g, sum[1], dra_sum_all(g, dra_square(g, gamma)));
            count += dra_shape_count(&p->shape);
        }
    return count;
}

/* sum_{i<j} (a_i - a_j)^2 = n sum a^2 - (sum a)^2 */
static dra_value spread_of(dra_graph *g, const dra_value sum[2], int64_t n)
{
    const double    pairs = (double)n * (double)(n - 1) / 2;
    const dra_value all = dra_sub(g, dra_affine(g, sum[1], (double)n, 0), dra_square(g, sum[0]));
    return dra_affine(g, all, n > 1 ? -1 / pairs : 0, 0);
}

/* The mean over the memories that have it. */
static dra_value mean_of(dra_graph *g, int kind, int n, const dra_branch_result *r)
{
    dra_value sum = {0};
    int       count = 0;
    for (int k = 0; k < n; k++) {
        if (!r[k].aux[kind].id) continue;
        sum = count++ ? dra_add(g, sum, r[k].aux[kind]) : r[k].aux[kind];
    }
    return count > 1 ? dra_affine(g, sum, 1 / (double)count, 0) : sum;
}

void dra_aux_mixer(dra_graph *g, uint32_t aux, int n, const dra_branch *b,
                   const dra_branch_result *r, const dra_value *param, dra_value out[DRA_AUX_COUNT])
{
    const uint32_t gammas = 1u << DRA_AUX_BUDGET | 1u << DRA_AUX_DIVERSITY;
    dra_value      sum[2];
    for (int k = 0; k < DRA_AUX_COUNT; k++) out[k] = mean_of(g, k, n, r);
    if (!(aux & gammas)) return;
    const int64_t count = sum_gammas(g, n, b, param, sum);
    if (aux >> DRA_AUX_BUDGET & 1)
        out[DRA_AUX_BUDGET] = dra_affine(g, sum[0], 1 / (double)dra_imax(count, 1), 0);
    if (aux >> DRA_AUX_DIVERSITY & 1) out[DRA_AUX_DIVERSITY] = spread_of(g, sum, count);
}
