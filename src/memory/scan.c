/* The step of a memory over time: what a fused chunk must equal, and what a memory without one
 * gets for free. A reset puts the state back before the token, a pad keeps it. */
#include <stdlib.h>

#include "memory/memory.h"

typedef struct steps { /* what the body of the scan needs to know */
    const dra_branch *b;
    int               codes;
    bool              marked;
} steps;

static const dra_spec *state_spec(const dra_branch *b, int i)
{
    return dra_specs_at(b->specs, b->states + i);
}

/* where ? a : b for a bool (B) and states (B, ...); a may be a scalar. */
static dra_value choose(dra_graph *g, dra_value where, dra_value a, dra_value b)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    dra_shape column = dra_shape_of(g, b);
    for (int32_t i = 1; i < column.rank; i++) column.dim[i] = 1;
    return dra_select(g, dra_reshape(g, where, column), a, b);
}

static void body(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                 const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const steps            *u = user;
    const dra_branch       *b = u->b;
    const dra_memory_sizes *s = &b->sizes;
    dra_memory_result       r = {.state = carry_out};
    dra_value              *before = calloc((size_t)b->n_states + 1, sizeof *before);
    if (!before) {
        dra_build_fail(g, b->memory->name, DRA_ERR_MEMORY, "out of memory");
        return;
    }
    const dra_value mark = x[1 + s->streams + u->codes];
    for (int i = 0; i < b->n_states; i++) {
        before[i] = carry[i];
        if (!u->marked) continue;
        const dra_value two = dra_integer(g, DRA_MARK_RESET);
        const dra_value reset = dra_greater_equal(g, mark, two);
        before[i] = choose(g, reset, dra_number(g, state_spec(b, i)->number), carry[i]);
    }
    dra_memory_call c = {.sizes = s, .q = x[0], .param = constant, .state = before};
    for (int i = 0; i < s->streams; i++) c.x[i] = x[1 + i];
    for (int i = 0; i < u->codes; i++) c.code[i] = x[1 + s->streams + i];
    b->memory->step(g, &c, &r);
    for (int i = 0; u->marked && i < b->n_states; i++) {
        const dra_value odd = dra_mod(g, mark, dra_integer(g, 2));
        carry_out[i] = choose(g, dra_equal(g, odd, dra_integer(g, 1)), before[i], carry_out[i]);
    }
    for (int i = 0; i < s->streams; i++) y[i] = r.item[i];
    free(before);
}

/* (B, T, ...) -> (T, B, ...) and back. */
static dra_value over_time(dra_graph *g, dra_value x) { return dra_transpose(g, x, 0, 1); }

void dra_memory_scan(dra_graph *g, const dra_branch *b, const dra_memory_call *c,
                     dra_memory_result *r)
{
    const dra_memory_sizes *s = &b->sizes;
    const int               n = b->n_states;
    if (dra_graph_failed(g)) return;
    const dra_shape shape = dra_shape_of(g, c->q);
    dra_value      *carry = calloc((size_t)n + 1, sizeof *carry), x[4 + DRA_CODES], y[2];
    for (int i = 0; carry && i < n; i++) {
        dra_shape start = state_spec(b, i)->shape;
        for (int32_t k = start.rank++; k > 0; k--) start.dim[k] = start.dim[k - 1];
        start.dim[0] = shape.dim[0];
        carry[i] = c->state[i].id
                       ? c->state[i]
                       : dra_broadcast(g, dra_number(g, state_spec(b, i)->number), start);
    }
    x[0] = over_time(g, c->q);
    for (int i = 0; i < s->streams; i++) x[1 + i] = over_time(g, c->x[i]);
    for (int i = 0; i < c->codes; i++) x[1 + s->streams + i] = over_time(g, c->code[i]);
    if (c->mark.id) x[1 + s->streams + c->codes] = over_time(g, c->mark);
    steps                 user = {b, c->codes, c->mark.id != 0};
    const dra_scan_config config = {.length = shape.dim[1],
                                    .carries = n,
                                    .xs = 1 + s->streams + c->codes + user.marked,
                                    .constants = b->n_params,
                                    .ys = s->streams,
                                    .carry = carry,
                                    .x = x,
                                    .constant = c->param,
                                    .body = body,
                                    .user = &user};
    if (carry) dra_scan(g, &config, r->state, y);
    for (int i = 0; carry && i < s->streams; i++) r->item[i] = over_time(g, y[i]);
    free(carry);
}
