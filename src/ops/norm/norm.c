/* Norms over the last axis, all of them one op:
 *   y = (x - c) r       c = mean(x) for layer, else 0
 *   layer         r = 1 / sqrt(mean((x - c)^2) + eps)
 *   rms           r = 1 / sqrt(mean(x^2) + eps)
 *   unit          r = 1 / sqrt(sum(x^2) + eps)
 *   unit_clamped  r = 1 / max(sqrt(sum(x^2)), eps)
 * Gain and bias of layer and RMS norm are in norm_gain.c. The gradient is one fused op that
 * needs no x: dx = r (dy - [layer: mean(dy)] - y k sum(dy y)), k = 1/C for layer and rms, 1 for the
 * unit kinds, 0 where the clamp holds. */
#include <tgmath.h>

#include "ops/norm/norm.h"

/* ---- shape rules ----------------------------------------------------------------------------- */

static dra_status check_x(dra_graph *g, const char *name, dra_value x)
{
    const dra_type *t = dra_type_of(g, x);
    if (t->dtype != DRA_REAL)
        return dra_build_fail(g, name, DRA_ERR_DTYPE, "x is %s, expected %s", dra_type_text(g, x),
                              dra_dtype_get(DRA_REAL)->name);
    if (t->shape.rank == 0) return dra_build_fail(g, name, DRA_ERR_SHAPE, "x has no axis");
    if (t->shape.dim[t->shape.rank - 1] == 0)
        return dra_build_fail(g, name, DRA_ERR_SHAPE, "x %s: the last axis is empty",
                              dra_type_text(g, x));
    return DRA_OK;
}

/* y like x, r (..., 1). */
static dra_status norm_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_status st = check_x(g, n->op->name, n->in[0]);
    if (st != DRA_OK) return st;
    out[0] = out[1] = *dra_type_of(g, n->in[0]);
    out[1].shape.dim[out[1].shape.rank - 1] = 1;
    return DRA_OK;
}

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_status st = check_x(g, n->op->name, n->in[0]);
    if (st != DRA_OK) return st;
    const dra_type *r = dra_type_of(g, n->in[1]), *dy = dra_type_of(g, n->in[2]);
    dra_type        want = *out = *dra_type_of(g, n->in[0]);
    want.shape.dim[want.shape.rank - 1] = 1;
    if (r->dtype != DRA_REAL || dy->dtype != DRA_REAL || !dra_shape_equal(&r->shape, &want.shape) ||
        !dra_shape_equal(&dy->shape, &out->shape))
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "y %s, r %s and dy %s do not fit",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]),
                           dra_type_text(g, n->in[2]));
    return DRA_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* c is the rounded mean; the mean of x - c is what rounding lost, which matters where the mean is
 * large compared with the differences from it. */
static dra_moments layer_moments(const dra_simd *simd, int64_t C, const real *x)
{
    dra_moments m = {.c = simd->sum(C, x) / (real)C};
    const real  sum = simd->moments(C, x, m.c, &m.squares);
    m.rest = sum / (real)C;
    m.squares -= sum * m.rest;
    if (m.squares < 0) m.squares = 0; /* by rounding, in a constant row */
    return m;
}

static real norm_factor(const dra_norm_attr *a, int64_t C, real squares)
{
    const real eps = (real)a->eps;
    switch (a->kind) {
    case DRA_ROW_NORM_LAYER:
    case DRA_ROW_NORM_RMS: return 1 / sqrt(squares / (real)C + eps);
    case DRA_ROW_NORM_UNIT: return 1 / sqrt(squares + eps);
    case DRA_ROW_NORM_UNIT_CLAMPED: break;
    }
    const real length = sqrt(squares);
    return 1 / (length <= eps ? eps : length); /* NaN stays */
}

dra_moments dra_norm_moments(const dra_simd *simd, const dra_norm_attr *a, int64_t C, const real *x)
{
    dra_moments m = {0};
    if (a->kind == DRA_ROW_NORM_LAYER)
        m = layer_moments(simd, C, x);
    else
        m.squares = simd->dot(C, x, x);
    m.r = norm_factor(a, C, m.squares);
    return m;
}

static void norm_tile(const dra_call *call, int64_t tile)
{
    const dra_norm_attr *a = call->attr;
    const int64_t        C = dra_last(&call->in[0]);
    const dra_row_range  rows = dra_tile_rows(call, tile);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const real       *x = dra_row(&call->in[0], row);
        const dra_moments m = dra_norm_moments(dra_simd_of(call), a, C, x);
        if (call->out[1].data) ((real *)call->out[1].data)[row] = m.r;
        if (!call->out[0].data) continue;
        dra_simd_of(call)->center(C, x, m.c, m.rest, m.r, (real *)call->out[0].data + row * C);
    }
}

/* The factor r of rows in which the clamp holds. */
static real clamp_of(const dra_norm_attr *a)
{
    return a->kind == DRA_ROW_NORM_UNIT_CLAMPED ? 1 / (real)a->eps : (real)INFINITY;
}

static real back_weight(const dra_norm_attr *a, int64_t C)
{
    return a->kind == DRA_ROW_NORM_LAYER || a->kind == DRA_ROW_NORM_RMS ? 1 / (real)C : 1;
}

static void back_tile(const dra_call *call, int64_t tile)
{
    const dra_norm_attr *a = call->attr;
    const int64_t        C = dra_last(&call->in[0]);
    const real           clamp = clamp_of(a), k = back_weight(a, C);
    const dra_row_range  rows = dra_tile_rows(call, tile);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const real *y = dra_row(&call->in[0], row), *dy = dra_row(&call->in[2], row);
        const real  r = *dra_row(&call->in[1], row);
        const real  mean = a->kind == DRA_ROW_NORM_LAYER ? dra_simd_of(call)->sum(C, dy) / (real)C
                                                         : 0;
        const real  s = r == clamp ? 0 : k * dra_simd_of(call)->dot(C, dy, y);
        dra_simd_of(call)->combine(C, r, dy, s, y, mean, (real *)call->out[0].data + row * C);
    }
}

static dra_cost norm_cost(const dra_call *c)
{
    dra_cost cost = dra_pointwise_cost(c);
    cost.flops *= 6; /* two sums, a square, a difference, a product */
    return cost;
}

/* ---- gradients ------------------------------------------------------------------------------- */

extern const dra_op dra_op_norm_back;

static dra_value build_back(dra_graph *g, dra_value y, dra_value r, dra_value dy,
                            const dra_norm_attr *a)
{
    const dra_value in[] = {y, r, dy};
    return dra_add_op(g, &dra_op_norm_back, 3, in, a);
}

/* -k v, where rows that are clamped have k = 0. v (..., 1) or like y. */
static dra_value times_minus_k(dra_graph *g, const dra_norm_attr *a, int64_t C, dra_value r,
                               dra_value v)
{
    const dra_value scaled = dra_affine(g, v, -(double)back_weight(a, C), 0);
    if (a->kind != DRA_ROW_NORM_UNIT_CLAMPED) return scaled;
    const dra_value clamp = dra_number(g, (double)clamp_of(a)), zero = dra_number(g, 0);
    return dra_select(g, dra_equal(g, r, clamp), zero, scaled);
}

static int64_t width_of(const dra_graph *g, dra_value x)
{
    const dra_shape *s = &dra_type_of(g, x)->shape;
    return s->dim[s->rank - 1];
}

/* dr/dx = -k r^2 y is needed only where the gradient itself is differentiated. */
static void norm_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_norm_attr *a = n->attr;
    const dra_value      y = n->out[0], r = n->out[1];
    if (dy[0].id) dx[0] = build_back(g, y, r, dy[0], a);
    if (!dy[1].id) return;
    const dra_value slope = dra_mul(g, dy[1], dra_square(g, r));
    const dra_value more = dra_mul(g, y, times_minus_k(g, a, width_of(g, y), r, slope));
    dx[0] = dx[0].id ? dra_add(g, dx[0], more) : more;
}

/* With upstream u: the rule is linear and symmetric in dy; d_y = -k r (u sum(dy y) + dy sum(u y));
 * d_r = sum(u dx) / r. */
static void back_gradient(dra_graph *g, const dra_node *n, const dra_value *u, dra_value *dx)
{
    const dra_norm_attr *a = n->attr;
    const dra_value      y = n->in[0], r = n->in[1], dy = n->in[2];
    const dra_value      dy_y = dra_sum_last(g, dra_mul(g, dy, y));
    const dra_value      u_y = dra_sum_last(g, dra_mul(g, u[0], y));
    const dra_value      both = dra_add(g, dra_mul(g, u[0], dy_y), dra_mul(g, dy, u_y));
    dx[0] = dra_mul(g, both, times_minus_k(g, a, width_of(g, y), r, r));
    dx[1] = dra_div(g, dra_sum_last(g, dra_mul(g, u[0], n->out[0])), r);
    dx[2] = build_back(g, y, r, u[0], a);
}

const dra_op dra_op_norm = {.name = "norm",
                            .n_in = 1,
                            .n_out = 2,
                            .flags = DRA_OP_CHEAP,
                            .attr_size = sizeof(dra_norm_attr),
                            .infer = norm_infer,
                            .gradient = norm_gradient,
                            .cost = norm_cost};

const dra_cpu_kernel dra_cpu_norm = {
    .base = {.op = "norm", .dtypes = DRA_REALS, .layout = DRA_LAYOUT_ROWS, .in_place = 1},
    .tiles = dra_row_tiles,
    .tile = norm_tile,
};

const dra_op dra_op_norm_back = {.name = "norm_back",
                                 .n_in = 3,
                                 .n_out = 1,
                                 .attr_size = sizeof(dra_norm_attr),
                                 .infer = back_infer,
                                 .gradient = back_gradient,
                                 .cost = norm_cost};

const dra_cpu_kernel dra_cpu_norm_back = {
    .base = {.op = "norm_back",
             .dtypes = DRA_REALS,
             .layout = DRA_LAYOUT_ROWS,
             .in_place = 1 | 4}, /* y, dy */
    .tiles = dra_row_tiles,
    .tile = back_tile,
};

/* ---- builders -------------------------------------------------------------------------------- */

/* x as check_x says, eps >= 0. `name` is the builder's own, so that errors name what was called. */
static bool check_norm(dra_graph *g, const char *name, dra_value x, double eps)
{
    if (!dra_check_values(g, name, 1, &x) || check_x(g, name, x) != DRA_OK) return false;
    if (eps >= 0 && isfinite(eps)) return true;
    dra_build_fail(g, name, DRA_ERR_VALUE, "eps %g, expected 0 or more", eps);
    return false;
}

/* A gain or bias: none, or (C) like the last axis of x. */
static bool fits_vector(dra_graph *g, const char *name, const char *what, dra_value x, dra_value v)
{
    if (!v.id) return true;
    if (!dra_check_values(g, name, 1, &v)) return false;
    const dra_type *t = dra_type_of(g, v);
    const int64_t   C = width_of(g, x);
    if (t->dtype == DRA_REAL && t->shape.rank == 1 && t->shape.dim[0] == C) return true;
    dra_build_fail(g, name, t->dtype == DRA_REAL ? DRA_ERR_SHAPE : DRA_ERR_DTYPE,
                   "x %s, %s %s: expected %s (%lld)", dra_type_text(g, x), what,
                   dra_type_text(g, v), dra_dtype_get(DRA_REAL)->name, (long long)C);
    return false;
}

dra_value dra_norm(dra_graph *g, const dra_norm_attr *a, dra_value x)
{
    return dra_add_op(g, &dra_op_norm, 1, &x, a);
}

static dra_value build_norm(dra_graph *g, dra_row_norm kind, dra_value x, double eps)
{
    return dra_add_op(g, &dra_op_norm, 1, &x, &(dra_norm_attr){kind, eps});
}

static dra_value gain_and_bias(dra_graph *g, dra_value y, dra_value w, dra_value b)
{
    if (w.id) y = dra_mul(g, y, w);
    if (b.id) y = dra_add(g, y, b);
    return y;
}

dra_value dra_layer_norm(dra_graph *g, dra_value x, dra_value w, dra_value b, double eps)
{
    const char *name = "layer_norm";
    if (!check_norm(g, name, x, eps) || !fits_vector(g, name, "w", x, w) ||
        !fits_vector(g, name, "b", x, b))
        return (dra_value){0};
    if (w.id) return dra_norm_gain(g, &(dra_norm_attr){DRA_ROW_NORM_LAYER, eps}, x, w, b);
    return gain_and_bias(g, build_norm(g, DRA_ROW_NORM_LAYER, x, eps), w, b);
}

dra_value dra_rms_norm(dra_graph *g, dra_value x, dra_value w, double eps)
{
    const char *name = "rms_norm";
    if (!check_norm(g, name, x, eps) || !fits_vector(g, name, "w", x, w)) return (dra_value){0};
    if (w.id)
        return dra_norm_gain(g, &(dra_norm_attr){DRA_ROW_NORM_RMS, eps}, x, w, (dra_value){0});
    return build_norm(g, DRA_ROW_NORM_RMS, x, eps);
}

dra_value dra_unit(dra_graph *g, dra_value x, double eps)
{
    return check_norm(g, "unit", x, eps) ? build_norm(g, DRA_ROW_NORM_UNIT, x, eps)
                                         : (dra_value){0};
}

dra_value dra_unit_clamped(dra_graph *g, dra_value x, double eps)
{
    return check_norm(g, "unit_clamped", x, eps) ? build_norm(g, DRA_ROW_NORM_UNIT_CLAMPED, x, eps)
                                                 : (dra_value){0};
}

dra_value dra_scale_norm(dra_graph *g, dra_value x, dra_value w, double eps)
{
    const char *name = "scale_norm";
    if (!check_norm(g, name, x, eps)) return (dra_value){0};
    const bool scalar = w.id && dra_check_values(g, name, 1, &w) &&
                        dra_type_of(g, w)->dtype == DRA_REAL && dra_type_of(g, w)->shape.rank == 0;
    if (!scalar && !fits_vector(g, name, "w", x, w)) return (dra_value){0};
    const dra_value root = dra_number(g, sqrt((double)width_of(g, x)));
    const dra_value gain = w.id ? dra_mul(g, w, root) : root;
    return dra_mul(g, build_norm(g, DRA_ROW_NORM_UNIT_CLAMPED, x, eps), gain);
}

dra_value dra_group_norm(dra_graph *g, dra_value x, int64_t groups, dra_value w, dra_value b,
                         double eps)
{
    const char *name = "group_norm";
    if (!check_norm(g, name, x, eps) || !fits_vector(g, name, "w", x, w) ||
        !fits_vector(g, name, "b", x, b))
        return (dra_value){0};
    const dra_shape shape = dra_type_of(g, x)->shape;
    const int64_t   C = width_of(g, x);
    if (groups < 1 || C % groups != 0) {
        dra_build_fail(g, name, DRA_ERR_SHAPE, "x %s: %lld groups do not divide %lld channels",
                       dra_type_text(g, x), (long long)groups, (long long)C);
        return (dra_value){0};
    }
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < shape.rank; i++) rows *= shape.dim[i];
    const dra_value parts = dra_reshape(g, x, DRA_SHAPE(rows, groups, C / groups));
    const dra_value y = dra_reshape(g, build_norm(g, DRA_ROW_NORM_LAYER, parts, eps), shape);
    return gain_and_bias(g, y, w, b);
}
