/* Activations by number, and gated linear units: y = a act(b) for the halves [a, b] of the last
 * axis. Both are made of other ops, whose gradients serve. [Dauphin et al. 2017; Shazeer 2020] */
#include "ops/common.h"

static dra_value check_input(dra_graph *g, dra_value x)
{
    return dra_check_values(g, "activate", 1, &x) ? x : (dra_value){0};
}

static dra_value (*const builders[DRA_ACT_COUNT])(dra_graph *g, dra_value x) = {
    [DRA_ACT_NONE] = check_input,        [DRA_ACT_SIGMOID] = dra_sigmoid, [DRA_ACT_TANH] = dra_tanh,
    [DRA_ACT_RELU] = dra_relu,           [DRA_ACT_RELU2] = dra_relu2,     [DRA_ACT_GELU] = dra_gelu,
    [DRA_ACT_GELU_TANH] = dra_gelu_tanh, [DRA_ACT_SILU] = dra_silu,       [DRA_ACT_ELU] = dra_elu,
    [DRA_ACT_SOFTPLUS] = dra_softplus,
};

dra_value dra_activate(dra_graph *g, dra_value x, dra_activation act)
{
    if ((unsigned)act < DRA_ACT_COUNT) return builders[act](g, x);
    dra_build_fail(g, "activate", DRA_ERR_VALUE, "no activation number %d", (int)act);
    return (dra_value){0};
}

dra_value dra_glu(dra_graph *g, dra_value x, dra_activation act)
{
    if (!dra_check_values(g, "glu", 1, &x)) return (dra_value){0};
    const dra_shape *s = &dra_type_of(g, x)->shape;
    if (s->rank == 0 || s->dim[s->rank - 1] % 2 != 0) {
        dra_build_fail(g, "glu", DRA_ERR_SHAPE, "x %s: the last axis is not two halves",
                       dra_type_text(g, x));
        return (dra_value){0};
    }
    const int64_t   half = s->dim[s->rank - 1] / 2;
    const dra_value a = dra_slice(g, x, -1, 0, half), b = dra_slice(g, x, -1, half, half);
    return dra_mul(g, a, dra_activate(g, b, act));
}
