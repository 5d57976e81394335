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

dra_value dra_token_shift_build(dra_graph *g, const dra_token_shift *s, const dra_module_call *call,
                                dra_value x, int at, dra_value *state_out)
{
    if (!s->by || dra_graph_failed(g)) return x;
    return look_back(g, s, call, x, at, state_out);
}
