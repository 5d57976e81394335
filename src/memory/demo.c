/* Attention as two demos have it; see dra_demo_kind. Both let tokens see what follows them.
 *   unmasked   y_t = softmax(q_t.K_j / sqrt(D)) V_j over all j = 1..T
 *   literal    m = m + (1 - gamma) (GRU(k_T of head h, m) - m)   for h = 1..H, one m for all heads
 *              y_t of head h = the same softmax over k_1..k_T and m after head h */
#include <stdlib.h>
#include <string.h>

#include "memory/cell.h"
#include "memory/memory.h"

static const char *const names[] = {"none", "literal", "unmasked"};

static dra_status check_literal(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    const char              *wrong = b->memory != dra_memory_find("gru")  ? "memory is not gru"
                                     : strcmp(c->retrieval, "joint") != 0 ? "retrieval is not joint"
                                     : c->window > 0                      ? "window is not 0"
                                     : c->joint != DRA_SLOTS_OWN          ? "joint is not own"
                                     : c->joined                          ? "the state is joined"
                                     : c->per_head                        ? "per_head is set"
                                                                          : NULL;
    if (!wrong) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "%s: demo literal is gru with retrieval joint, but %s",
                    b->memory->name, wrong);
}

dra_status dra_demo_check(const dra_branch *b, bool blend, dra_error *err)
{
    const dra_demo_kind demo = b->config.demo;
    if ((unsigned)demo > DRA_DEMO_UNMASKED)
        return dra_fail(err, DRA_ERR_VALUE, "%s: demo is %d, expected 0 to 2", b->memory->name,
                        (int)demo);
    if (demo && blend)
        return dra_fail(err, DRA_ERR_VALUE, "%s: demo %s has one memory, found a blend",
                        b->memory->name, names[demo]);
    if (demo && b->aux)
        return dra_fail(err, DRA_ERR_VALUE, "%s: demo %s is for reading, found add-ons of a loss",
                        b->memory->name, names[demo]);
    if (demo == DRA_DEMO_UNMASKED && strcmp(b->config.retrieval, "time") != 0)
        return dra_fail(err, DRA_ERR_VALUE, "%s: demo unmasked needs retrieval time, found %s",
                        b->memory->name, b->config.retrieval);
    return demo == DRA_DEMO_LITERAL ? check_literal(b, err) : DRA_OK;
}

/* One stream: the state after each head, (B, H, width). */
static dra_value through_heads(dra_graph *g, const dra_memory_call *c, int i, dra_value start,
                               dra_value *heads)
{
    const int64_t   T = dra_shape_of(g, c->x[i]).dim[1], H = c->sizes->H;
    const int64_t   W = c->sizes->stream[i].width;
    const dra_value x = dra_reshape(g, dra_slice(g, c->x[i], 1, T - 1, 1), DRA_SHAPE(-1, H, W));
    const dra_value rates = dra_sigmoid(g, dra_neg(g, dra_cell_betas(g, c, i)));
    dra_value       m = dra_slice(g, start, 1, H - 1, 1);
    for (int64_t h = 0; h < H; h++) {
        const dra_value new = dra_cell_gru(g, c, i, dra_slice(g, x, 1, h, 1), m);
        const dra_value rate = dra_slice(g, rates, 0, h, 1);
        heads[h] = m = dra_add(g, m, dra_mul(g, rate, dra_sub(g, new, m)));
    }
    return dra_concat(g, (int)H, heads, 1);
}

void dra_demo_remember(dra_graph *g, const dra_branch *b, const dra_memory_call *c,
                       dra_memory_result *r)
{
    const int64_t H = b->sizes.H;
    dra_value    *heads = calloc((size_t)H, sizeof *heads);
    if (!heads) dra_build_fail(g, "demo", DRA_ERR_MEMORY, "out of memory");
    for (int i = 0; i < 2 && !dra_graph_failed(g); i++) {
        const dra_shape all = dra_shape_of(g, c->x[i]); /* (B, T, H, width) */
        const dra_value start = dra_branch_start(g, b, i, all.dim[0], c->state[i]);
        const dra_value m = through_heads(g, c, i, start, heads);
        r->state[i] = m;
        r->item[i] = dra_broadcast(g, dra_reshape(g, m, DRA_SHAPE(all.dim[0], 1, H, all.dim[3])),
                                   all);
    }
    free(heads);
}

void dra_demo_rows(dra_graph *g, const dra_read_call *c, dra_value *lo, dra_value *hi)
{
    const dra_memory_config *config = c->sizes->config;
    const dra_token_items   *at = dra_tokens_items(c->tokens, config->window);
    const int64_t            T = c->tokens->T;
    const dra_shape          each = DRA_SHAPE(c->tokens->B, T);
    *hi = dra_broadcast(g, dra_slice(g, at->hi, 1, T - 1, 1), each);
    if (config->demo == DRA_DEMO_LITERAL)
        *lo = dra_broadcast(g, dra_slice(g, at->at, 1, 0, 1), each);
}
