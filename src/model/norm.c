/* Norms over channels: kind, gain and bias are choices. */
#include "graph/op.h"
#include "model/stack.h"

#include <stdio.h>

static double first_alpha(const dra_norm_config *c) { return c->alpha > 0 ? c->alpha : 1; }

dra_norm dra_norm_declare(const dra_norm_config *c, int64_t dim, const char *prefix,
                          dra_specs *params)
{
    dra_norm        n = {*c, -1, -1, -1};
    const dra_shape wide = DRA_SHAPE(dim), one = DRA_SHAPE(1);
    const bool      biased = c->kind == DRA_NORM_LAYER || c->kind == DRA_NORM_TANH;
    if (c->kind == DRA_NORM_TANH) {
        n.alpha = dra_specs_count(params);
        dra_specs_add(params, prefix,
                      &(dra_spec){"norm_a", one, .number = c->offset ? 0 : first_alpha(c),
                                  .group = DRA_PARAM_NORM});
    }
    if (c->kind == DRA_NORM_NONE || c->gain == DRA_GAIN_NONE) return n;
    n.gain = dra_specs_count(params);
    if (c->gain == DRA_GAIN_CONDITION) {
        dra_specs_add(params, prefix,
                      &(dra_spec){"norm_W", DRA_SHAPE(dim, c->condition), .product = true,
                                  .group = DRA_PARAM_CONDITION});
        return n;
    }
    dra_specs_add(params, prefix,
                  &(dra_spec){"norm_g", c->gain == DRA_GAIN_SCALAR ? one : wide,
                              .number = c->offset ? 0 : 1, .group = DRA_PARAM_NORM});
    if (!biased || c->bias == DRA_OFF) return n;
    n.bias = dra_specs_count(params);
    dra_specs_add(params, prefix, &(dra_spec){"norm_b", wide, .group = DRA_PARAM_NORM});
    return n;
}

/* tanh(a x) g + b */
static dra_value squash_values(dra_graph *g, const dra_norm *n, const dra_value *param, dra_value x,
                               dra_value gain, dra_value bias)
{
    dra_value a = param[n->alpha];
    if (n->config.offset) a = dra_affine(g, a, 1, first_alpha(&n->config));
    x = dra_tanh(g, dra_mul(g, x, a));
    if (gain.id) x = dra_mul(g, x, gain);
    return bias.id ? dra_add(g, x, bias) : x;
}

dra_value dra_norm_build(dra_graph *g, const dra_norm *n, const dra_value *param, dra_value x,
                         double eps)
{
    const bool      adapts = n->config.gain == DRA_GAIN_CONDITION;
    const dra_value none = {0}, bias = n->bias < 0 ? none : param[n->bias];
    dra_value       gain = n->gain < 0 || adapts ? none : param[n->gain], own = gain;
    if (gain.id && n->config.offset) gain = own = dra_affine(g, gain, 1, 1);
    if (n->config.gain == DRA_GAIN_SCALAR) own = none;
    switch (n->config.kind) {
    case DRA_NORM_RMS: x = dra_rms_norm(g, x, own, eps); break;
    case DRA_NORM_LAYER: x = dra_layer_norm(g, x, own, bias, eps); break;
    case DRA_NORM_UNIT: x = dra_scale_norm(g, x, own, 1e-12); break;
    case DRA_NORM_TANH: return squash_values(g, n, param, x, gain, bias);
    case DRA_NORM_NONE: return x;
    }
    return gain.id && !own.id ? dra_mul(g, x, gain) : x;
}

dra_value dra_condition_map(dra_graph *g, dra_value condition, dra_value W, dra_value b,
                            dra_value x)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    dra_shape       one = dra_shape_of(g, x);
    const dra_value y = dra_linear(g, condition, W, b);
    for (int32_t i = 1; i + 1 < one.rank; i++) one.dim[i] = 1;
    return dra_reshape(g, y, one);
}

dra_value dra_norm_adapt(dra_graph *g, const dra_norm *n, const dra_value *param, dra_value x,
                         dra_value condition)
{
    const dra_value none = {0};
    if (n->config.gain != DRA_GAIN_CONDITION || n->gain < 0) return x;
    const dra_value gain = dra_condition_map(g, condition, param[n->gain], none, x);
    return dra_mul(g, x, dra_affine(g, gain, 1, 1));
}
