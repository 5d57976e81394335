/* argmax: where the first maximum of each row of the last axis stands; a NaN counts as the
 * maximum. No gradient. */
#include <tgmath.h>

#include "ops/common.h"

enum { WORK = 16384 }; /* elements of x a tile is worth */

static dra_status infer_argmax(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape *x = &dra_type_of(g, n->in[0])->shape;
    *out = (dra_type){DRA_I32, *x};
    if (x->rank == 0 || x->dim[x->rank - 1] < 1 || x->dim[x->rank - 1] > INT32_MAX)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s, expected a last axis of 1 to %d elements",
                           dra_type_text(g, n->in[0]), INT32_MAX);
    out->shape.rank--;
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

static int64_t rows_per_tile(const dra_call *c) { return dra_imax(1, WORK / dra_last(&c->in[0])); }

static int64_t count_argmax_tiles(const dra_call *c)
{
    return dra_div_up(dra_rows(&c->in[0]), rows_per_tile(c));
}

static int32_t first_max(int64_t n, const real *x, int64_t step)
{
    int64_t best = 0;
    real    top = x[0];
    for (int64_t i = 1; i < n; i++) {
        if (x[i * step] <= top) continue;
        if (isnan(top)) break; /* nothing is below it */
        best = i;              /* larger, or the first NaN */
        top = x[i * step];
    }
    return (int32_t)best;
}

static void run_argmax_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *x = &c->in[0];
    const int64_t     each = rows_per_tile(c), end = dra_imin(dra_rows(x), (i + 1) * each);
    int32_t          *y = c->out[0].data;
    for (int64_t r = i * each; r < end; r++)
        y[r] = first_max(dra_last(x), dra_row(x, r), x->stride[x->shape.rank - 1]);
}

const dra_op dra_op_argmax = {
    .name = "argmax", .n_in = 1, .n_out = 1, .flags = DRA_OP_NO_GRAD, .infer = infer_argmax};

const dra_cpu_kernel dra_cpu_argmax = {
    .base = {.op = "argmax", .dtypes = DRA_REALS | DRA_BIT(DRA_I32)},
    .tiles = count_argmax_tiles,
    .tile = run_argmax_tile,
};

dra_value dra_argmax(dra_graph *g, dra_value x)
{
    return dra_add_op(g, &dra_op_argmax, 1, &x, NULL);
}
