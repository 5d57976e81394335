/* The step of a memory over time: what a fused chunk must equal, and what a memory without one
 * gets for free. A reset puts the state back before the token, a pad keeps it. */
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

typedef struct steps { /* what the body of the scan needs to know */
    const dra_branch *b;
    int               codes;
    bool              marked, skips, squares;
} steps;

/* where ? a : b for a bool (B) and states (B, ...); a may be a scalar. */
static dra_value choose_state(dra_graph *g, dra_value where, dra_value a, dra_value b)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    dra_shape column = dra_shape_of(g, b);
    for (int32_t i = 1; i < column.rank; i++) column.dim[i] = 1;
    return dra_select(g, dra_reshape(g, where, column), a, b);
}

dra_value dra_memory_keep(dra_graph *g, const dra_memory_call *c, dra_value old,
                          dra_value new_state)
{
    return c->skip.id ? choose_state(g, c->skip, old, new_state) : new_state;
}

dra_value dra_memory_written(dra_graph *g, const dra_memory_call *c, dra_value x, int32_t rank)
{
    if (!c->skip.id || !x.id || dra_graph_failed(g)) return x;
    dra_shape column = dra_shape_of(g, c->skip);
    while (column.rank < rank) column.dim[column.rank++] = 1;
    return dra_select(g, dra_reshape(g, c->skip, column), dra_number(g, 0), x);
}

/* A pad keeps the state; so does a skipped token, whose items that are states do, too. */
static void keep_at_pads(dra_graph *g, const steps *u, dra_value mark, const dra_value *before,
                         dra_value *state, dra_value *item)
{
    const dra_value odd = dra_mod(g, mark, dra_integer(g, 2));
    const dra_value pad = dra_equal(g, odd, dra_integer(g, 1));
    for (int i = 0; i < u->b->n_states; i++) {
        const dra_value new = state[i];
        state[i] = choose_state(g, pad, before[i], new);
        for (int k = 0; k < u->b->sizes.streams && u->skips; k++)
            if (item[k].id == new.id) item[k] = state[i];
    }
}

/* A step that was written by a user may have left an item out. */
static void check_items(dra_graph *g, const dra_branch *b, const dra_value *item)
{
    for (int i = 0; i < b->sizes.streams && !dra_graph_failed(g); i++)
        if (!item[i].id)
            dra_build_fail(g, b->memory->name, DRA_ERR_VALUE, "the step sets no item[%d]", i);
}

/* The squares of what a token changed, then of what is there now, summed over the states: (B). */
static void sum_squares(dra_graph *g, const dra_branch *b, const dra_value *before,
                        const dra_value *state, dra_value square[2])
{
    for (int i = 0; i < b->n_states && !dra_graph_failed(g); i++) {
        const dra_value m[2] = {dra_sub(g, state[i], before[i]), state[i]};
        if (dra_branch_state(b, i)->maximum) continue;
        for (int k = 0; k < 2 && !dra_graph_failed(g); k++) {
            const dra_value row = dra_reshape(g, m[k], DRA_SHAPE(dra_shape_of(g, m[k]).dim[0], -1));
            const dra_value sum = dra_sum(g, dra_square(g, row), (dra_axes){1, {1}, false});
            square[k] = square[k].id ? dra_add(g, square[k], sum) : sum;
        }
    }
}

static void step_body(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
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
        before[i] = choose_state(g, reset, dra_number(g, dra_branch_state(b, i)->number), carry[i]);
    }
    dra_memory_call c = {.sizes = s, .q = x[0], .param = constant, .state = before};
    for (int i = 0; i < s->streams; i++) c.x[i] = x[1 + i];
    for (int i = 0; i < u->codes; i++) c.code[i] = x[1 + s->streams + i];
    if (u->skips) c.skip = x[2 + s->streams + u->codes];
    const bool formula = strcmp(b->config.retrieval, "formula") == 0;
    if (formula) r.item[0] = c.x[0]; /* y is all that is read then */
    b->memory->step(g, &c, &r);
    check_items(g, b, r.item);
    if (u->marked) keep_at_pads(g, u, mark, before, carry_out, r.item);
    for (int i = 0; i < s->streams; i++) y[i] = r.item[i];
    if (u->squares) {
        y[s->streams] = y[s->streams + 1] = (dra_value){0};
        sum_squares(g, b, before, carry_out, y + s->streams);
    }
    free(before);
}

/* (B, T, ...) -> (T, B, ...) and back. */
static dra_value over_time(dra_graph *g, dra_value x) { return dra_transpose(g, x, 0, 1); }

void dra_memory_scan(dra_graph *g, const dra_branch *b, const dra_memory_call *c,
                     dra_memory_result *r, dra_value square[2])
{
    const dra_memory_sizes *s = &b->sizes;
    const int               n = b->n_states;
    if (dra_graph_failed(g)) return;
    const dra_shape shape = dra_shape_of(g, c->q);
    dra_value      *carry = calloc((size_t)n + 1, sizeof *carry);
    dra_value       x[5 + DRA_CODES], y[4] = {{0}};
    for (int i = 0; carry && i < n; i++)
        carry[i] = dra_branch_start(g, b, i, shape.dim[0], c->state[i]);
    x[0] = over_time(g, c->q);
    for (int i = 0; i < s->streams; i++) x[1 + i] = over_time(g, c->x[i]);
    for (int i = 0; i < c->codes; i++) x[1 + s->streams + i] = over_time(g, c->code[i]);
    if (c->mark.id) x[1 + s->streams + c->codes] = over_time(g, c->mark);
    if (c->skip.id) x[2 + s->streams + c->codes] = over_time(g, c->skip);
    steps                 user = {b, c->codes, c->mark.id != 0, c->skip.id != 0, square != NULL};
    const dra_scan_config config = {.length = shape.dim[1],
                                    .carries = n,
                                    .xs = 1 + s->streams + c->codes + user.marked + user.skips,
                                    .constants = b->n_params,
                                    .ys = s->streams + (square ? 2 : 0),
                                    .carry = carry,
                                    .x = x,
                                    .constant = c->param,
                                    .body = step_body,
                                    .user = &user};
    if (carry) dra_scan(g, &config, r->state, y);
    for (int i = 0; carry && i < s->streams; i++) r->item[i] = over_time(g, y[i]);
    for (int i = 0; carry && square && i < 2; i++) square[i] = over_time(g, y[s->streams + i]);
    free(carry);
}
