/* top_ids: the places of the k largest elements of each row of the last axis, in rising order. Of
 * equal ones the first count; a NaN is the largest. Constants to the gradient.
 *
 * A row is walked once: the best so far stand in the output by value, then they are put into the
 * order of their places. */
#include <math.h>

#include "ops/reduce/topk.h"

enum { WORK = 16384 }; /* elements a tile is worth */

static dra_status infer_top_ids(dra_graph *g, const dra_node *n, dra_type *out)
{
    return dra_infer_top(g, n, DRA_I32, ((const dra_topk_attr *)n->attr)->k, out);
}

static int64_t rows_of_tile(const dra_call *c)
{
    return dra_imax(1, WORK / dra_imax(1, dra_last(&c->in[0])));
}

static int64_t count_tiles(const dra_call *c)
{
    return dra_div_up(dra_rows(&c->in[0]), rows_of_tile(c));
}

static bool is_larger(real a, real b) { return a > b || (isnan(a) && !isnan(b)); }

static void choose_largest(int64_t n, const real *x, int64_t step, int64_t k, int32_t *ids)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = found < k ? found++ : k;
        if (at == k && !is_larger(x[i * step], x[ids[k - 1] * step])) continue;
        if (at == k) at = k - 1;
        for (; at > 0 && is_larger(x[i * step], x[ids[at - 1] * step]); at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
}

static void sort_ids(int64_t n, int32_t *ids)
{
    for (int64_t i = 1; i < n; i++) {
        const int32_t id = ids[i];
        int64_t       at = i;
        for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

static void run_top_ids_tile(const dra_call *c, int64_t i)
{
    const dra_tensor *x = &c->in[0];
    const int64_t     k = ((const dra_topk_attr *)c->attr)->k, each = rows_of_tile(c);
    const int64_t     rows = dra_rows(x), step = x->stride[x->shape.rank - 1];
    for (int64_t r = i * each; r < dra_imin(rows, (i + 1) * each); r++) {
        int32_t *ids = (int32_t *)c->out[0].data + r * k;
        choose_largest(dra_last(x), dra_row(x, r), step, k, ids);
        sort_ids(k, ids);
    }
}

const dra_op dra_op_top_ids = {.name = "top_ids",
                               .n_in = 1,
                               .n_out = 1,
                               .flags = DRA_OP_NO_GRAD,
                               .attr_size = sizeof(dra_topk_attr),
                               .infer = infer_top_ids};

const dra_cpu_kernel dra_cpu_top_ids = {
    .base = {.op = "top_ids", .dtypes = DRA_REALS | DRA_BIT(DRA_I32)},
    .tiles = count_tiles,
    .tile = run_top_ids_tile,
};

dra_value dra_top_ids(dra_graph *g, dra_value x, int64_t k)
{
    return dra_add_op(g, &dra_op_top_ids, 1, &x, &(dra_topk_attr){k});
}
