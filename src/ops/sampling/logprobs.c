/* token_logprobs: how likely a token of each row is, and the k most likely ones.
 *   logits x (B, V)   ids i32 (B)   ->   logprobs (B, 1 + k), top i32 (B, 1 + k)
 *   log p_i = x_i - max x - ln(sum e^(x - max x))
 * First that of ids[b], NaN where it is none, then the largest in order, equal ones by id. A row
 * with NaN or +infinity, or with -infinity alone, has no probabilities: NaN and -1. No gradient. */
#include "ops/common.h"
#include "device/simd.h"
#include "ops/sampling/sample_row.h"

enum { TILES = 16 }; /* at most: each has room for the choices of a row */

/* ---- shape rule ------------------------------------------------------------------------------ */

static dra_status infer_logprobs(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_logprobs_attr *a = n->attr;
    const dra_shape         *x = &dra_type_of(g, n->in[0])->shape;
    dra_status               st = dra_expect_dtype(g, n, 0, "logits", DRA_REAL);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, 1, "ids", DRA_I32);
    if (st != DRA_OK) return st;
    if (x->rank != 2 || x->dim[1] < 1 || x->dim[1] > INT32_MAX)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "logits %s, expected (B, V), V 1 to %d",
                           dra_type_text(g, n->in[0]), INT32_MAX);
    if (!dra_shape_equal(&dra_type_of(g, n->in[1])->shape, &DRA_SHAPE(x->dim[0])))
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "ids %s of logits %s, expected (B)",
                           dra_type_text(g, n->in[1]), dra_type_text(g, n->in[0]));
    if (a->most < 0 || a->most > x->dim[1])
        return dra_op_fail(g, n, DRA_ERR_VALUE, "the %lld most likely of %lld tokens",
                           (long long)a->most, (long long)x->dim[1]);
    out[0] = (dra_type){DRA_REAL, DRA_SHAPE(x->dim[0], 1 + a->most)};
    out[1] = (dra_type){DRA_I32, DRA_SHAPE(x->dim[0], 1 + a->most)};
    return DRA_OK;
}

/* ---- kernel ---------------------------------------------------------------------------------- */

static int64_t most_of(const dra_call *c) { return ((const dra_logprobs_attr *)c->attr)->most; }

static int64_t count_logprob_tiles(const dra_call *c)
{
    return dra_imin(TILES, c->in[0].shape.dim[0]);
}

static size_t size_logprob_scratch(const dra_call *c)
{
    return (size_t)(count_logprob_tiles(c) * (1 + most_of(c))) * sizeof(dra_choice);
}

/* Row b; at (1 + k) is room to work in. */
static void find_logprobs(const dra_call *c, int64_t b, dra_choice *at)
{
    const int64_t         V = c->in[0].shape.dim[1], k = most_of(c);
    const dra_sample_from from = {.V = V, .logits = (const real *)c->in[0].data + b * V};
    const int32_t         id = ((const int32_t *)c->in[1].data)[b];
    real                 *logprob = c->out[0].data, max;
    int32_t              *top = c->out[1].data;
    const double          log_sum = (double)dra_simd_of(c)->log_sum(V, from.logits, &max);
    const bool            there = isfinite(max), known = id >= 0 && id < V && there;
    dra_sample_top(&from, (double)max, there ? k : 0, at + 1);
    at[0] = (dra_choice){known ? (double)from.logits[id] - (double)max : NAN, 0, id, 0};
    for (int64_t i = 0; i <= k; i++) {
        if (i && !there) at[i] = (dra_choice){NAN, 0, -1, 0};
        if (logprob) logprob[b * (1 + k) + i] = (real)(at[i].z - log_sum);
        if (top) top[b * (1 + k) + i] = at[i].id;
    }
}

static void run_logprob_tile(const dra_call *c, int64_t i)
{
    dra_choice *at = (dra_choice *)c->scratch + i * (1 + most_of(c));
    for (int64_t b = i; b < c->in[0].shape.dim[0]; b += count_logprob_tiles(c))
        find_logprobs(c, b, at);
}

const dra_op dra_op_token_logprobs = {.name = "token_logprobs",
                                      .n_in = 2,
                                      .n_out = 2,
                                      .flags = DRA_OP_NO_GRAD,
                                      .attr_size = sizeof(dra_logprobs_attr),
                                      .infer = infer_logprobs};

const dra_cpu_kernel dra_cpu_token_logprobs = {
    .base = {.op = "token_logprobs",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_DENSE,
             .scratch = size_logprob_scratch},
    .tiles = count_logprob_tiles,
    .tile = run_logprob_tile,
};

/* ---- builder --------------------------------------------------------------------------------- */

dra_value dra_token_logprobs(dra_graph *g, dra_value logits, dra_value ids, int64_t most,
                             dra_value *top)
{
    const dra_value         in[] = {logits, ids};
    const dra_logprobs_attr a = {most};
    const dra_node         *node = dra_node_add(g, &dra_op_token_logprobs, 2, in, &a);
    if (top) *top = node ? node->out[1] : (dra_value){0};
    return node ? node->out[0] : (dra_value){0};
}
