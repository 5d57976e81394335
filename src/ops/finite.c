/* is_finite: true where x is neither infinite nor NaN. What guards of states and steps are made of,
 * with dra_select. No gradient: the result does not move. */
#include <math.h>

#include "ops/common.h"

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = (dra_type){DRA_BOOL, dra_type_of(g, n->in[0])->shape};
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

static void row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const real *x = ptr[1];
    uint8_t    *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = isfinite(x[i * step[1]]) != 0;
}

static void tile(const dra_call *c, int64_t i) { dra_pointwise_tile(c, i, row); }

const dra_op dra_op_is_finite = {
    .name = "is_finite", .n_in = 1, .n_out = 1, .infer = infer, .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_is_finite = {
    .base = {.op = "is_finite", .dtypes = DRA_REALS | DRA_BIT(DRA_BOOL)},
    .tiles = dra_pointwise_tiles,
    .tile = tile,
};

dra_value dra_is_finite(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_is_finite, 1, &x, NULL);
}
