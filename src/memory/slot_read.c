/* Reading slots: softmax over a few items that change with every token.
 *   slots-own: each head's query over its own slots     slots-all: over those of all heads
 *   pooled: one softmax over all pairs (head's query, its own slot), y in R^E for all heads
 *   joint: the raw keys and values of the last N tokens and the slots, as one softmax
 * Slots come as (B, T, H, S, width); a memory of single items has one slot for each head. Or the
 * memory has asked them itself and gives what they answered. */
#include <math.h>

#include "memory/memory.h"
#include "memory/part.h"

/* Items (B, T, H, width) as slots (B T, H, S, width). */
static dra_value slots_of(dra_graph *g, dra_value x)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape s = dra_shape_of(g, x);
    const int64_t   S = s.rank == 5 ? s.dim[3] : 1;
    return dra_reshape(g, x, DRA_SHAPE(s.dim[0] * s.dim[1], s.dim[2], S, s.dim[s.rank - 1]));
}

/* What the slots gave, through their maps. */
static dra_value map_answer(dra_graph *g, const dra_read_call *c, dra_value y)
{
    if (c->nu.id) y = dra_head_linear(g, y, c->nu);
    return c->pi_v.id ? dra_linear(g, y, c->pi_v, (dra_value){0}) : y;
}

/* Every token is a row of a batch with one query for each head. y (B, T, H, E). */
static dra_value read_slots(dra_graph *g, const dra_read_call *c, bool all, dra_value *lse)
{
    const int64_t B = c->tokens->B, T = c->tokens->T, H = c->sizes->H, D = c->sizes->D;
    if (c->y.id) {
        if (lse) *lse = dra_reshape(g, c->lse, DRA_SHAPE(B, T, H, 1));
        return map_answer(g, c, c->y);
    }
    dra_value key = slots_of(g, c->key), value = slots_of(g, c->value);
    if (dra_graph_failed(g)) return (dra_value){0};
    if (all) {
        const int64_t S = dra_shape_of(g, key).dim[2];
        key = dra_reshape(g, key, DRA_SHAPE(B * T, 1, H * S, D));
        value = dra_reshape(g, value, DRA_SHAPE(B * T, 1, H * S, c->sizes->E));
    }
    const dra_value q = dra_reshape(g, c->slot_q, DRA_SHAPE(B * T, H, 1, D));
    const dra_value y = dra_attend(g, q, key, value,
                                   &(dra_attend_config){.path = DRA_ATTEND_FEW, .lse = lse});
    if (lse) *lse = dra_reshape(g, *lse, DRA_SHAPE(B, T, H, 1));
    return map_answer(g, c, dra_reshape(g, y, DRA_SHAPE(B, T, H, c->sizes->E)));
}

static dra_value read_own(dra_graph *g, const dra_read_call *c, dra_value *state_out)
{
    return read_slots(g, c, false, NULL);
}

static dra_value read_all(dra_graph *g, const dra_read_call *c, dra_value *state_out)
{
    return read_slots(g, c, true, NULL);
}

/* y (B, T, 1, E) */
static dra_value read_pooled(dra_graph *g, const dra_read_call *c, dra_value *state_out)
{
    if (c->y.id) return map_answer(g, c, c->y);
    const int64_t   B = c->tokens->B, T = c->tokens->T, H = c->sizes->H, D = c->sizes->D;
    const dra_value key = slots_of(g, c->key), value = slots_of(g, c->value);
    if (dra_graph_failed(g)) return (dra_value){0};
    const int64_t   S = dra_shape_of(g, key).dim[2];
    const dra_value q = dra_reshape(g, c->slot_q, DRA_SHAPE(B * T, H, 1, D));
    const dra_value s = dra_affine(g, dra_sum_last(g, dra_mul(g, q, key)), 1 / sqrt((double)D), 0);
    const dra_value a = dra_softmax(g, dra_reshape(g, s, DRA_SHAPE(B * T, 1, H * S)));
    const dra_value y = dra_matmul(g, a,
                                   dra_reshape(g, value, DRA_SHAPE(B * T, H * S, c->sizes->E)));
    return map_answer(g, c, dra_reshape(g, y, DRA_SHAPE(B, T, 1, c->sizes->E)));
}

/* The share of the slots is e^l2 / (e^l1 + e^l2) = sigmoid(l2 - l1). */
static dra_value read_joint(dra_graph *g, const dra_read_call *c, dra_value *state_out)
{
    dra_value       raw, own;
    const dra_value past = dra_read_items(g, c, c->k, c->v, &raw, state_out);
    const dra_value now = read_slots(g, c, c->sizes->config->joint == DRA_SLOTS_ALL, &own);
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_value l = dra_reshape(g, dra_transpose(g, raw, 1, 2), dra_shape_of(g, own));
    const dra_value share = dra_sigmoid(g, dra_sub(g, own, l));
    return dra_add(g, past, dra_mul(g, share, dra_sub(g, now, past)));
}

static const dra_part *const parts[] = {&dra_qk_norm_part, &dra_score_scale_part, NULL};
static const dra_part *const over_time[] = {&dra_qk_norm_part, &dra_score_scale_part,
                                            &dra_rotary_part, NULL};
const dra_retrieval          dra_retrieval_slots_own = {
             .name = "slots-own", .read = read_own, .slots = true, .parts = parts};
const dra_retrieval dra_retrieval_slots_all = {
    .name = "slots-all", .read = read_all, .slots = true, .parts = parts};
const dra_retrieval dra_retrieval_pooled = {
    .name = "pooled", .read = read_pooled, .slots = true, .pooled = true, .parts = parts};
const dra_retrieval dra_retrieval_joint = {.name = "joint",
                                           .declare = dra_items_declare,
                                           .read = read_joint,
                                           .over_time = true,
                                           .slots = true,
                                           .parts = over_time};
