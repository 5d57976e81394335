/* topk_threshold: the k-th largest value of each row of the last axis, so that x >= y keeps k of
 * them (more at ties). A NaN counts as the largest. A constant to the gradient.
 *
 * A row's k largest so far stand in a heap, the smallest of them on top: most elements of a long
 * row cost one comparison with it. */
#include <tgmath.h>

#include "ops/reduce/topk.h"

enum { TILES = 64 }; /* at most: each has a heap of its own */

dra_status dra_infer_top(dra_graph *g, const dra_node *n, dra_dtype dtype, int64_t last,
                         dra_type *out)
{
    const dra_topk_attr *a = n->attr;
    *out = (dra_type){dtype, dra_type_of(g, n->in[0])->shape};
    if (out->shape.rank == 0)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s has no axis", dra_type_text(g, n->in[0]));
    int64_t *axis = &out->shape.dim[out->shape.rank - 1];
    if (a->k < 1 || a->k > *axis)
        return dra_op_fail(g, n, DRA_ERR_VALUE, "k = %lld of x %s, expected 1 to %lld",
                           (long long)a->k, dra_type_text(g, n->in[0]), (long long)*axis);
    *axis = last;
    return dra_expect_dtype(g, n, 0, "x", DRA_REAL);
}

static dra_status infer_topk(dra_graph *g, const dra_node *n, dra_type *out)
{
    return dra_infer_top(g, n, dra_type_of(g, n->in[0])->dtype, 1, out);
}

static int64_t count_topk_tiles(const dra_call *c) { return dra_imin(TILES, dra_rows(&c->in[0])); }

static size_t size_topk_scratch(const dra_call *c)
{
    return (size_t)(count_topk_tiles(c) * ((const dra_topk_attr *)c->attr)->k) * sizeof(real);
}

static bool is_below(real a, real b) { return a < b || (isnan(b) && !isnan(a)); }

/* Puts v on top of the heap's first n places and lets it sink to its own. */
static void sink_number(real *heap, int64_t at, int64_t n, real v)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_below(heap[child + 1], heap[child])) child++;
        if (!is_below(heap[child], v)) break;
        heap[at] = heap[child];
    }
    heap[at] = v;
}

static real kth_largest(int64_t n, const real *x, int64_t step, int64_t k, real *heap)
{
    for (int64_t i = 0; i < k; i++) heap[i] = x[i * step];
    for (int64_t i = k / 2; i-- > 0;) sink_number(heap, i, k, heap[i]);
    for (int64_t i = k; i < n; i++)
        if (is_below(heap[0], x[i * step])) sink_number(heap, 0, k, x[i * step]);
    return heap[0];
}

static void run_topk_tile(const dra_call *c, int64_t i)
{
    const int64_t     k = ((const dra_topk_attr *)c->attr)->k, n = count_topk_tiles(c);
    const dra_tensor *x = &c->in[0];
    const int64_t     rows = dra_rows(x), each = dra_div_up(rows, n);
    real             *y = c->out[0].data, *heap = (real *)c->scratch + i * k;
    for (int64_t r = i * each; r < dra_imin(rows, (i + 1) * each); r++)
        y[r] = kth_largest(dra_last(x), dra_row(x, r), x->stride[x->shape.rank - 1], k, heap);
}

const dra_op dra_op_topk_threshold = {.name = "topk_threshold",
                                      .n_in = 1,
                                      .n_out = 1,
                                      .flags = DRA_OP_NO_GRAD,
                                      .attr_size = sizeof(dra_topk_attr),
                                      .infer = infer_topk};

const dra_cpu_kernel dra_cpu_topk_threshold = {
    .base = {.op = "topk_threshold", .dtypes = DRA_REALS, .scratch = size_topk_scratch},
    .tiles = count_topk_tiles,
    .tile = run_topk_tile,
};

dra_value dra_topk_threshold(dra_graph *g, dra_value x, int64_t k)
{
    return dra_add_op(g, &dra_op_topk_threshold, 1, &x, &(dra_topk_attr){k});
}
