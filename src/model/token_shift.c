/* Token shift: channels in parts, each from another token.
 *   causal: part i comes from i tokens before, i = 0 .. by
 *   whole:  parts from `by` tokens after to `by` tokens before
 * State k holds what all parts >= k saw last after k - 1 shifts: a part is shifted once for every
 * token it looks back, each time from the state of the call before. */
#include "model/token_shift.h"

#include <stdio.h>

#include "base/shape.h"
#include "graph/op.h"

dra_token_shift dra_token_shift_declare(int64_t by, int64_t dim, bool whole, bool masks,
                                        dra_specs *state)
{
    const dra_token_shift s = {by, dim / ((whole ? 2 : 1) * by + 1), whole, masks};
    char                  name[32];
    for (int64_t k = 1; k <= by && !whole; k++) {
        snprintf(name, sizeof name, "shift.%lld", (long long)k);
        dra_specs_add(state, NULL, &(dra_spec){name, DRA_SHAPE((by - k + 1) * s.width)});
    }
    return s;
}

static dra_value look_back(dra_graph *g, const dra_token_shift *s, const dra_module_call *call,
                           dra_value x, int at, dra_value *state_out)
{
    const int64_t w = s->width, C = dra_shape_of(g, x).dim[2];
    dra_value     moving = dra_slice(g, x, -1, w, s->by * w);
    dra_value     y = dra_slice(g, x, -1, 0, w);
    for (int64_t k = 1; k <= s->by; k++) {
        const int i = at + (int)k - 1;
        moving = dra_tokens_shift(g, &call->tokens, moving, call->state[i], &state_out[i]);
        const dra_value parts[] = {y, dra_slice(g, moving, -1, 0, w)};
        y = dra_concat(g, 2, parts, -1);
        moving = dra_slice(g, moving, -1, w, (s->by - k) * w);
    }
    const int64_t   used = (s->by + 1) * w;
    const dra_value all[] = {y, dra_slice(g, x, -1, used, C - used)};
    return used < C ? dra_concat(g, 2, all, -1) : y;
}

/* Whether token t and the one `by` before it (below 0: after it) are of one text: (B, T, 1). */
static dra_value same_text(dra_graph *g, const dra_tokens *t, int64_t by)
{
    const dra_value back = dra_sub(g, t->pos, dra_shift(g, t->pos, 1, by));
    const dra_value is = by > 0 ? dra_greater_equal(g, t->pos, dra_integer(g, (int32_t)by))
                                : dra_equal(g, back, dra_integer(g, (int32_t)by));
    return dra_reshape(g, is, DRA_SHAPE(t->B, t->T, 1));
}

static dra_value look_around(dra_graph *g, const dra_token_shift *s, const dra_tokens *t,
                             dra_value x)
{
    const int64_t w = s->width, C = dra_shape_of(g, x).dim[2], used = (2 * s->by + 1) * w;
    dra_value     y = {0};
    for (int64_t by = -s->by; by <= s->by; by++) {
        dra_value part = dra_slice(g, x, -1, (by + s->by) * w, w);
        if (by && s->masks) part = dra_tokens_zero_pads(g, t, part);
        if (by) part = dra_shift(g, part, 1, by);
        if (by && t->mark.id) part = dra_select(g, same_text(g, t, by), part, dra_number(g, 0));
        const dra_value both[] = {y, part};
        y = y.id ? dra_concat(g, 2, both, -1) : part;
    }
    const dra_value all[] = {y, dra_slice(g, x, -1, used, C - used)};
    return used < C ? dra_concat(g, 2, all, -1) : y;
}

dra_value dra_token_shift_build(dra_graph *g, const dra_token_shift *s, const dra_module_call *call,
                                dra_value x, int at, dra_value *state_out)
{
    if (!s->by || dra_graph_failed(g)) return x;
    return s->whole ? look_around(g, s, &call->tokens, x) : look_back(g, s, call, x, at, state_out);
}
