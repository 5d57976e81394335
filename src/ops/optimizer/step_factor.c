/* step_factor: what gradients are multiplied by before a step, decided on the device.
 *   min(1, clip / (norm + 1e-6)), or 1 without clip; in double, because norms are near their limit
 *   NaN where norm or a loss is not finite, or a fault was met: dra_adamw() then changes nothing */
#include <math.h>

#include "ops/common.h"

static dra_status infer_step_factor(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_step_factor_attr *a = n->attr;
    *out = (dra_type){DRA_REAL, {0}};
    if (!(a->clip >= 0))
        return dra_op_fail(g, n, DRA_ERR_VALUE, "clip %g, expected 0 or more", a->clip);
    if (dra_type_of(g, n->in[0])->shape.rank || dra_type_of(g, n->in[2])->shape.rank)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "norm %s, fault %s, expected scalars",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[2]));
    dra_status st = dra_expect_dtype(g, n, 0, "norm", DRA_REAL);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, 1, "losses", DRA_REAL);
    return st == DRA_OK ? dra_expect_dtype(g, n, 2, "fault", DRA_I32) : st;
}

static int64_t count_step_factor_tiles(const dra_call *c) { return 1; }

static void run_step_factor_tile(const dra_call *c, int64_t i)
{
    const dra_step_factor_attr *a = c->attr;
    const real                 *loss = c->in[1].data;
    const double                norm = (double)*(const real *)c->in[0].data;
    bool                        ok = isfinite(norm) && *(const int32_t *)c->in[2].data == 0;
    for (int64_t k = 0; k < dra_shape_count(&c->in[1].shape); k++) ok = ok && isfinite(loss[k]);
    const double factor = a->clip > 0 ? fmin(1, a->clip / (norm + 1e-6)) : 1;
    *(real *)c->out[0].data = (real)(ok ? factor : NAN);
}

const dra_op         dra_op_step_factor = {.name = "step_factor",
                                           .n_in = 3,
                                           .n_out = 1,
                                           .flags = DRA_OP_NO_GRAD,
                                           .attr_size = sizeof(dra_step_factor_attr),
                                           .infer = infer_step_factor};
const dra_cpu_kernel dra_cpu_step_factor = {.base = {.op = "step_factor",
                                                     .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
                                                     .layout = DRA_LAYOUT_DENSE},
                                            .tiles = count_step_factor_tiles,
                                            .tile = run_step_factor_tile};

dra_value dra_step_factor(dra_graph *g, dra_value norm, dra_value losses, dra_value fault,
                          double clip)
{
    const dra_value in[] = {norm, losses, fault};
    return dra_add_op(g, &dra_op_step_factor, 3, in, &(dra_step_factor_attr){clip});
}
