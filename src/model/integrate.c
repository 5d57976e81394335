/* Layer-integrated memory: a sublayer reads a mixture of the streams before it and before all
 * earlier sublayers, by weights that it makes of its own,
 *   y_v = sum_l w_vl x_l,  w_v = softmax or relu of W_v u + b_v,  u = x sqrt(C) / |x| g
 * Queries, keys and values of attention, but of the first, are three mixtures. No token sees
 * another one here. [Gerasimov et al. 2025: You do not fully utilize Transformer's representation
 * capacity] */
#include "model/integrate.h"

#include <math.h>

#include "graph/op.h"

enum { VIEWS = 3 };

static int64_t count_views(const dra_sublayer_config *c) { return c->views ? VIEWS : 1; }

void dra_integrate_declare(const dra_sublayer_config *c, dra_specs *params)
{
    const int64_t C = c->mixer.dim, n = count_views(c) * (c->index + 1);
    const double  std = 1 / sqrt((double)C);
    const bool    uniform = c->mixer.init == DRA_INIT_UNIFORM;
    if (!c->block.integrate) return;
    dra_specs_add(params, NULL,
                  &(dra_spec){"integrate_g", DRA_SHAPE(C), .number = 1, .group = DRA_PARAM_NORM});
    dra_specs_add(params, NULL,
                  &(dra_spec){"integrate_W", DRA_SHAPE(n, C),
                              uniform ? DRA_FILL_UNIFORM : DRA_FILL_NORMAL, .number = std,
                              .product = true, .group = DRA_PARAM_MATRIX});
    dra_specs_add(params, NULL, &(dra_spec){"integrate_b", DRA_SHAPE(n), .group = DRA_PARAM_BIAS});
}

dra_integrate dra_integrate_find(const dra_specs *params)
{
    return (dra_integrate){dra_specs_find(params, "integrate_g"),
                           dra_specs_find(params, "integrate_W"),
                           dra_specs_find(params, "integrate_b")};
}

/* The streams so far, (B, T, index + 1, C), with x as the last. */
static dra_value add_stream(dra_graph *g, const dra_sublayer_config *c, dra_value x,
                            dra_channels *channels)
{
    dra_value *all = &channels->value[DRA_CHANNEL_STREAMS];
    dra_shape  s = dra_shape_of(g, x);
    s.dim[3] = s.dim[2], s.dim[2] = 1, s.rank = 4;
    const dra_value both[] = {*all, dra_reshape(g, x, s)};
    const int64_t   before = all->id ? dra_shape_of(g, *all).dim[2] : 0;
    if (before != c->index)
        dra_build_fail(g, "sublayer", DRA_ERR_VALUE,
                       "integrate: %lld streams before sublayer %lld, expected one for each",
                       (long long)before, (long long)c->index);
    return *all = all->id ? dra_concat(g, 2, both, 2) : both[1];
}

static dra_value take_view(dra_graph *g, dra_value mixed, int64_t first, int64_t n)
{
    if (dra_graph_failed(g)) return mixed;
    const dra_shape s = dra_shape_of(g, mixed);
    mixed = dra_slice(g, mixed, 2, first, n);
    return n > 1 ? mixed : dra_reshape(g, mixed, DRA_SHAPE(s.dim[0], s.dim[1], s.dim[3]));
}

dra_value dra_integrate_build(dra_graph *g, const dra_integrate *s, const dra_sublayer_config *c,
                              const dra_value *param, dra_value x, dra_channels *channels)
{
    if (!c->block.integrate || dra_graph_failed(g)) return x;
    const dra_shape at = dra_shape_of(g, x);
    const dra_value all = add_stream(g, c, x, channels);
    const dra_value unit = dra_affine(g, dra_unit_clamped(g, x, 1e-12), sqrt((double)at.dim[2]), 0);
    dra_value       w = dra_linear(g, dra_mul(g, unit, param[s->gain]), param[s->W], param[s->b]);
    w = dra_reshape(g, w, DRA_SHAPE(at.dim[0], at.dim[1], count_views(c), c->index + 1));
    w = c->block.integrate == DRA_INTEGRATE_RELU ? dra_relu(g, w) : dra_softmax(g, w);
    const dra_value mixed = dra_matmul(g, w, all);
    if (c->views) channels->value[DRA_CHANNEL_VIEWS] = take_view(g, mixed, 1, VIEWS - 1);
    return take_view(g, mixed, 0, 1);
}
