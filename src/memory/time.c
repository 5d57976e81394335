/* time: softmax over all items so far; window: over the last N, the token's own included.
 *   y_t = sum_j a_tj V_j,  a_tj ~ exp(q_t.K_j / sqrt(D)), or another scale
 * The items are the state: K (n, H, D), V (n, H, E), rotated by their positions where there is
 * rotary. */
#include "memory/memory.h"

enum { K, V };

static int64_t limit(const dra_memory_sizes *s) { return s->config->window; }

void dra_items_declare(const dra_memory_sizes *s, const char *prefix, dra_specs *state)
{
    dra_specs_add(state, prefix,
                  &(dra_spec){"K", DRA_SHAPE(s->H, s->D), .items = true, .limit = limit(s)});
    dra_specs_add(state, prefix,
                  &(dra_spec){"V", DRA_SHAPE(s->H, s->E), .items = true, .limit = limit(s)});
}

static dra_value swap_heads(dra_graph *g, dra_value x) { return dra_transpose(g, x, 1, 2); }

/* x (B, T, H, D) rotated by position. */
static dra_value rotate(dra_graph *g, const dra_read_call *c, dra_value x)
{
    if (!c->rotary) return x;
    return swap_heads(g, dra_rotary(g, swap_heads(g, x), c->tokens->pos, NULL));
}

/* The items of the state, then those of this call, (B, rows, H, width). */
static dra_value append(dra_graph *g, const dra_read_call *c, int i, dra_value items,
                        dra_value *state_out)
{
    const dra_token_items *at = dra_tokens_items(c->tokens, limit(c->sizes));
    if (dra_graph_failed(g) || !at) return (dra_value){0};
    if (c->tokens->fresh && !c->tokens->mark.id) return items;
    dra_value before = c->state[i];
    if (c->tokens->fresh) before = dra_broadcast(g, dra_number(g, 0), dra_shape_of(g, items));
    return state_out[i] = dra_write_rows(g, before, items, at->at);
}

/* Weights are dropped out by the place of the query and the number of the item, so that it does not
 * matter where a text is cut. */
static dra_value drop_items(dra_graph *g, const dra_read_call *c, const dra_token_items *at,
                            dra_attend_config config, dra_value q, dra_value k, dra_value v)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_read_drop    *d = &c->drop;
    const dra_random_config random = {.name = d->name, .key = d->key};
    const int64_t           T = c->tokens->T, J = dra_shape_of(g, k).dim[2];
    config.dropout = d->p;
    config.random = &random;
    config.q_pos = dra_add(g, dra_arange(g, T), dra_reshape(g, d->at, DRA_SHAPE(-1, 1)));
    config.k_pos = dra_add(g, dra_arange(g, J), at->base);
    return dra_attend(g, q, k, v, &config);
}

dra_value dra_read_items(dra_graph *g, const dra_read_call *c, dra_value key, dra_value value,
                         dra_value *lse, dra_value *state_out)
{
    const dra_value        keys = append(g, c, K, rotate(g, c, key), state_out);
    const dra_value        values = append(g, c, V, value, state_out);
    const dra_token_items *at = dra_tokens_items(c->tokens, limit(c->sizes));
    if (dra_graph_failed(g)) return (dra_value){0};
    dra_value lo = at->lo, hi = at->hi;
    if (c->sizes->config->demo) dra_demo_rows(g, c, &lo, &hi);
    const dra_attend_config config = {.lo = lo, .hi = hi, .lse = lse, .scale = c->scale};
    const dra_attend_config plain = {.lo = lo, .hi = hi, .scores = c->scores, .scale = c->scale};
    const dra_value         q = swap_heads(g, rotate(g, c, c->q)), k = swap_heads(g, keys);
    const dra_value         v = swap_heads(g, values);
    if (c->scores) dra_attend(g, q, k, v, &plain); /* for its scores alone */
    return swap_heads(g, c->drop.p > 0 ? drop_items(g, c, at, config, q, k, v)
                                       : dra_attend(g, q, k, v, &config));
}

static dra_value read_time(dra_graph *g, const dra_read_call *c, dra_value *state_out)
{
    return dra_read_items(g, c, c->key, c->value, NULL, state_out);
}

const dra_retrieval dra_retrieval_time = {.name = "time",
                                          .declare = dra_items_declare,
                                          .read = read_time,
                                          .over_time = true,
                                          .from_memory = true};
const dra_retrieval dra_retrieval_window = {.name = "window",
                                            .declare = dra_items_declare,
                                            .read = read_time,
                                            .over_time = true,
                                            .from_memory = true};
