/* The optimizer: AdamW with bias correction and decoupled decay [Loshchilov & Hutter 2019], the
 * norm of all gradients, and the factor that clips them. One step, with d = s dp:
 *   m' = b1 m + (1-b1) d      v' = b2 v + (1-b2) d^2
 *   p' = p - rate (decay p + (m' / (1-b1^t)) / (sqrt(v' / (1-b2^t)) + eps)) */
#include <string.h>
#include <tgmath.h>

#include "ops/optimizer/adamw_loops.h"
#include "ops/common.h"

/* ---- norm and clipping ----------------------------------------------------------------------- */

dra_value dra_global_norm(dra_graph *g, int n, const dra_value *x)
{
    if (!dra_check_values(g, "global_norm", n, x)) return (dra_value){0};
    dra_value sum = n > 0 ? dra_sum_squares(g, x[0]) : dra_number(g, 0);
    for (int i = 1; i < n; i++) sum = dra_add(g, sum, dra_sum_squares(g, x[i]));
    return dra_stop_gradient(g, dra_sqrt(g, sum));
}

dra_value dra_clip_factor(dra_graph *g, dra_value norm, double limit)
{
    if (!dra_check_values(g, "clip_factor", 1, &norm)) return (dra_value){0};
    if (!(limit > 0)) {
        dra_build_fail(g, "clip_factor", DRA_ERR_VALUE, "limit %g, expected more than 0", limit);
        return (dra_value){0};
    }
    const dra_value ratio = dra_div(g, dra_number(g, limit), dra_affine(g, norm, 1, 1e-6));
    return dra_stop_gradient(g, dra_minimum(g, dra_number(g, 1), ratio));
}

/* ---- adamw (p, m, v, dp, rate, s, t) -> p', m', v' ------------------------------------------- */

enum { TILE = 16384 };

static dra_status infer_adamw(dra_graph *g, const dra_node *n, dra_type *out)
{
    static const char *const names[] = {"p", "m", "v", "dp", "rate", "s", "t"};
    const dra_shape         *shape = &dra_type_of(g, n->in[0])->shape;
    for (int i = 0; i < 7; i++) {
        const dra_status st = dra_expect_dtype(g, n, i, names[i], i == 6 ? DRA_I32 : DRA_REAL);
        const dra_shape *found = &dra_type_of(g, n->in[i])->shape;
        if (st != DRA_OK) return st;
        if (i < 4 && !dra_shape_equal(found, shape))
            return dra_op_fail(g, n, DRA_ERR_SHAPE, "p %s and %s %s differ",
                               dra_type_text(g, n->in[0]), names[i], dra_type_text(g, n->in[i]));
        if (i >= 4 && found->rank != 0)
            return dra_op_fail(g, n, DRA_ERR_SHAPE, "%s %s, expected a scalar", names[i],
                               dra_type_text(g, n->in[i]));
    }
    out[0] = out[1] = out[2] = *dra_type_of(g, n->in[0]);
    return DRA_OK;
}

/* The corrections are differences of nearly equal numbers: in double. */
static dra_adamw_step factors_of(const dra_call *c, int32_t t)
{
    const dra_adamw_config *a = c->attr;
    return (dra_adamw_step){.b1 = (real)a->beta1,
                            .new1 = (real)(1 - a->beta1),
                            .b2 = (real)a->beta2,
                            .new2 = (real)(1 - a->beta2),
                            .fix1 = (real)(1 / (1 - pow(a->beta1, (double)t))),
                            .fix2 = (real)(1 / (1 - pow(a->beta2, (double)t))),
                            .rate = *(const real *)c->in[4].data,
                            .s = *(const real *)c->in[5].data,
                            .eps = (real)a->eps,
                            .decay = (real)a->decay};
}

static real *find_part(const dra_tensor *t, int64_t from)
{
    return t->data ? (real *)t->data + from : NULL;
}

/* A step that is skipped: each output is what it replaces. */
static void keep_state(const dra_call *c, int64_t from, int64_t n)
{
    for (int k = 0; k < 3; k++)
        if (c->out[k].data && c->out[k].data != c->in[k].data)
            memcpy(find_part(&c->out[k], from), find_part(&c->in[k], from),
                   (size_t)n * sizeof(real));
}

static int64_t count_adamw_tiles(const dra_call *c)
{
    return dra_div_up(dra_shape_count(&c->in[0].shape), TILE);
}

const dra_adamw_loops *dra_adamw_loops_of(const dra_simd *simd)
{
    static const dra_adamw_loops *const by_level[] = DRA_BY_LEVEL(dra_adamw_loops);
    return by_level[simd->level];
}

/* Outputs may be the memory of their inputs: element i is read before it is written. */
static void run_adamw_tile(const dra_call *c, int64_t i)
{
    const int32_t t = *(const int32_t *)c->in[6].data;
    if (t < 1) {
        DRA_FAULT(c, i, DRA_FAULT_STEP, t);
        return;
    }
    const dra_adamw_step f = factors_of(c, t);
    const int64_t        from = i * TILE;
    const int64_t        n = dra_imin(dra_shape_count(&c->in[0].shape) - from, TILE);
    if (isnan(f.s)) {
        keep_state(c, from, n);
        return;
    }
    dra_adamw_loops_of(dra_simd_of(c))
        ->step(n, &f, find_part(&c->in[3], from), find_part(&c->in[0], from),
               find_part(&c->in[1], from), find_part(&c->in[2], from), find_part(&c->out[0], from),
               find_part(&c->out[1], from), find_part(&c->out[2], from));
}

static dra_cost cost_adamw(const dra_call *c)
{
    dra_cost cost = dra_pointwise_cost(c); /* for its bytes */
    cost.flops *= 16;
    return cost;
}

const dra_op dra_op_adamw = {.name = "adamw",
                             .n_in = 7,
                             .n_out = 3,
                             .attr_size = sizeof(dra_adamw_config),
                             .infer = infer_adamw,
                             .cost = cost_adamw};

const dra_cpu_kernel dra_cpu_adamw = {
    .base = {.op = "adamw",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_DENSE,
             .paired = true},
    .tiles = count_adamw_tiles,
    .tile = run_adamw_tile,
};

static bool check_config(dra_graph *g, const dra_adamw_config *a)
{
    if (dra_graph_failed(g)) return false;
    if (!a)
        dra_build_fail(g, "adamw", DRA_ERR_VALUE, "needs a config");
    else if (!(a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1))
        dra_build_fail(g, "adamw", DRA_ERR_VALUE, "betas %g and %g, expected 0 <= beta < 1",
                       a->beta1, a->beta2);
    else if (!(a->eps >= 0 && a->decay >= 0))
        dra_build_fail(g, "adamw", DRA_ERR_VALUE, "eps %g, decay %g: expected 0 or more", a->eps,
                       a->decay);
    return !dra_graph_failed(g);
}

dra_adamw_result dra_adamw(dra_graph *g, dra_value p, dra_value dp, dra_value m, dra_value v,
                           dra_value rate, dra_value s, dra_value t, const dra_adamw_config *config)
{
    const dra_value in[] = {p, m, v, dp, rate, s, t}; /* p, m, v in the order of the outputs */
    if (!check_config(g, config)) return (dra_adamw_result){0};
    const dra_node *n = dra_node_add(g, &dra_op_adamw, 7, in, config);
    return n ? (dra_adamw_result){n->out[0], n->out[1], n->out[2]} : (dra_adamw_result){0};
}
