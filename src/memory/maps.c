/* What a mixer shows of itself: attention weights and how full slots are, made of small plain ops,
 * apart from the fused ones that make y. */
#include <math.h>
#include <string.h>

#include "memory/memory.h"

bool dra_map_has(const dra_branch *b)
{
    return b->retrieval->over_time || b->retrieval->slots || b->memory->writes;
}

/* Logits of the slots as their retrieval reads them: (B, T, H, S), of all heads (B, T, H, H S). */
static dra_value slot_scores(dra_graph *g, const dra_read_call *c, bool all)
{
    const int64_t B = c->tokens->B, T = c->tokens->T, H = c->sizes->H, D = c->sizes->D;
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape s = dra_shape_of(g, c->key);
    const int64_t   S = s.rank == 5 ? s.dim[3] : 1, heads = all ? 1 : H;
    const dra_value q = dra_reshape(g, c->slot_q, DRA_SHAPE(B, T, heads, H / heads, D));
    const dra_value key = dra_reshape(g, c->key, DRA_SHAPE(B, T, heads, H / heads * S, D));
    const dra_value y = dra_matmul(g, q, dra_transpose(g, key, -2, -1));
    return dra_affine(g, dra_reshape(g, y, DRA_SHAPE(B, T, H, H / heads * S)), 1 / sqrt((double)D),
                      0);
}

/* As (B, H, T, ...), this number at pads. */
static dra_value show_map(dra_graph *g, const dra_read_call *c, dra_value a, double at_pads)
{
    return dra_transpose(g, dra_tokens_fill_pads(g, c->tokens, a, at_pads), 1, 2);
}

/* Of one softmax over all that is read. Heads of pooled share one. */
static dra_value softmax_of(dra_graph *g, const dra_retrieval *how, dra_value scores)
{
    if (!how->pooled || dra_graph_failed(g)) return dra_softmax(g, scores);
    const dra_shape s = dra_shape_of(g, scores);
    scores = dra_reshape(g, scores, DRA_SHAPE(s.dim[0], s.dim[1], s.dim[2] * s.dim[3]));
    return dra_reshape(g, dra_softmax(g, scores), s);
}

/* Items alone show what really multiplies their values: weights may be chosen and mixed. */
void dra_map_attention(dra_graph *g, const dra_branch *b, const dra_read_call *c,
                       dra_value map[DRA_SHOW_COUNT])
{
    const dra_retrieval *how = b->retrieval;
    const bool all = strcmp(how->name, "slots-all") == 0 || b->config.joint == DRA_SLOTS_ALL;
    dra_value  parts[2];
    int        n = 0;
    if (dra_graph_failed(g) || (!how->over_time && !how->slots)) return;
    if (how->over_time) parts[n++] = dra_transpose(g, *c->scores, 1, 2);
    if (how->slots) parts[n++] = slot_scores(g, c, all);
    const dra_value scores = n > 1 ? dra_concat(g, n, parts, -1) : parts[0];
    const dra_value weights = how->slots ? softmax_of(g, how, scores)
                                         : dra_transpose(g, *c->weights, 1, 2);
    map[DRA_SHOW_SCORES] = show_map(g, c, scores, DRA_MASKED);
    map[DRA_SHOW_ATTENTION] = show_map(g, c, weights, 0);
}

/* o = 1 - (1 - o) (1 - u), from 0 at a reset. */
static void fill_occupancy(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                           const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const bool *marked = user;
    dra_value   o = carry[0];
    if (*marked) {
        const dra_value reset = dra_greater_equal(g, x[1], dra_integer(g, DRA_MARK_RESET));
        o = dra_select(g, dra_reshape(g, reset, DRA_SHAPE(-1, 1, 1)), dra_number(g, 0), o);
    }
    carry_out[0] = y[0] = dra_add(g, o, dra_mul(g, x[0], dra_affine(g, o, -1, 1)));
}

dra_value dra_map_occupancy(dra_graph *g, const dra_tokens *tokens, dra_value write)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape s = dra_shape_of(g, write); /* (B, T, H, S) */
    const dra_value x[] = {dra_transpose(g, write, 0, 1),
                           tokens->mark.id ? dra_transpose(g, tokens->writes, 0, 1)
                                           : (dra_value){0}};
    const dra_value empty = dra_broadcast(g, dra_number(g, 0),
                                          DRA_SHAPE(s.dim[0], s.dim[2], s.dim[3]));
    bool            marked = tokens->mark.id != 0;
    dra_value       last, y;
    dra_scan(g,
             &(dra_scan_config){.length = s.dim[1],
                                .carries = 1,
                                .xs = 1 + marked,
                                .ys = 1,
                                .carry = &empty,
                                .x = x,
                                .body = fill_occupancy,
                                .user = &marked},
             &last, &y);
    return dra_tokens_zero_pads(g, tokens, dra_transpose(g, y, 0, 1));
}
