/* Pointwise ops of two inputs. Builders broadcast the inputs to one shape first (a view, no copy),
 * so the sum over broadcast axes in the gradient is the view's own rule. */
#include <tgmath.h>

#include "ops/common.h"

typedef struct binary_attr {
    real (*f)(real, real);
    int32_t (*integer)(int32_t, int32_t); /* NULL: reals only */
} binary_attr;

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const binary_attr *a = n->attr;
    const dra_type    *x = dra_type_of(g, n->in[0]), *y = dra_type_of(g, n->in[1]);
    *out = *x;
    if (x->dtype != y->dtype || !dra_shape_equal(&x->shape, &y->shape))
        return dra_op_fail(g, n, x->dtype != y->dtype ? DRA_ERR_DTYPE : DRA_ERR_SHAPE,
                           "a %s and b %s do not fit", dra_type_text(g, n->in[0]),
                           dra_type_text(g, n->in[1]));
    if (x->dtype == DRA_I32 && a->integer) return DRA_OK;
    return dra_expect_dtype(g, n, 0, "a", DRA_REAL);
}

/* The three that carry most of the work have loops of their own. */
static void add_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const real *a = ptr[1], *b = ptr[2];
    real       *y = ptr[0];
    if (step[1] == 1 && step[2] == 1)
        dra_simd_of(c)->add(n, a, b, y);
    else
        for (int64_t i = 0; i < n; i++) y[i] = a[i * step[1]] + b[i * step[2]];
}

static void sub_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const real *a = ptr[1], *b = ptr[2];
    real       *y = ptr[0];
    if (step[1] == 1 && step[2] == 1)
        dra_simd_of(c)->sub(n, a, b, y);
    else
        for (int64_t i = 0; i < n; i++) y[i] = a[i * step[1]] - b[i * step[2]];
}

static void mul_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const real *a = ptr[1], *b = ptr[2];
    real       *y = ptr[0];
    if (step[1] == 1 && step[2] == 1)
        dra_simd_of(c)->mul(n, a, b, y);
    else
        for (int64_t i = 0; i < n; i++) y[i] = a[i * step[1]] * b[i * step[2]];
}

static void real_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const binary_attr *k = c->attr;
    const real        *a = ptr[1], *b = ptr[2];
    real              *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = k->f(a[i * step[1]], b[i * step[2]]);
}

static void integer_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const binary_attr *k = c->attr;
    const int32_t     *a = ptr[1], *b = ptr[2];
    int32_t           *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = k->integer(a[i * step[1]], b[i * step[2]]);
}

static void run(const dra_call *c, int64_t i, dra_pointwise_row row)
{
    dra_pointwise_tile(c, i, c->out[0].dtype == DRA_I32 ? integer_row : row);
}

static void tile(const dra_call *c, int64_t i) { run(c, i, real_row); }
static void add_tile(const dra_call *c, int64_t i) { run(c, i, add_row); }
static void sub_tile(const dra_call *c, int64_t i) { run(c, i, sub_row); }
static void mul_tile(const dra_call *c, int64_t i) { run(c, i, mul_row); }

/* ---- formulas: reals, then i32 (which wraps) ------------------------------------------------- */

static real f_add(real a, real b) { return a + b; }
static real f_sub(real a, real b) { return a - b; }
static real f_mul(real a, real b) { return a * b; }
static real f_div(real a, real b) { return a / b; }
static real f_mod(real a, real b) /* exact, where a - b floor(a / b) rounds for large quotients */
{
    const real r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static real f_pow(real a, real b) { return pow(a, b); }
static real f_minimum(real a, real b) { return a <= b || isnan(a) ? a : b; }
static real f_maximum(real a, real b) { return a >= b || isnan(a) ? a : b; }

static int32_t i_add(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
static int32_t i_sub(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
static int32_t i_mul(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
static int32_t i_div(int32_t a, int32_t b) /* floor; 0 for b = 0 */
{
    if (b == 0) return 0;
    if (b == -1) return i_sub(0, a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static int32_t i_mod(int32_t a, int32_t b)
{
    if (b == 0 || b == -1) return 0;
    const int32_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int32_t i_minimum(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t i_maximum(int32_t a, int32_t b) { return a > b ? a : b; }

/* ---- gradient rules -------------------------------------------------------------------------- */

#define GRADIENT(name)                                                                             \
    static void name(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
#define A n->in[0]
#define B n->in[1]

GRADIENT(d_add) { dx[0] = dx[1] = dy[0]; }
GRADIENT(d_sub)
{
    dx[0] = dy[0];
    dx[1] = dra_neg(g, dy[0]);
}
GRADIENT(d_mul)
{
    dx[0] = dra_mul(g, dy[0], B);
    dx[1] = dra_mul(g, dy[0], A);
}
GRADIENT(d_div)
{
    dx[0] = dra_div(g, dy[0], B);
    dx[1] = dra_neg(g, dra_div(g, dra_mul(g, dy[0], n->out[0]), B));
}
GRADIENT(d_mod) { dx[0] = dy[0]; } /* the quotient is constant between jumps */
GRADIENT(d_pow) /* da = b a^(b-1) dy, 0 at b = 0, also for a = 0;  db = y ln a dy, 0 at a = 0 */
{
    const dra_value one = dra_number(g, 1), zero = dra_number(g, 0);
    const dra_value less = dra_select(g, dra_equal(g, B, zero), one, dra_sub(g, B, one));
    dx[0] = dra_mul(g, dra_mul(g, dy[0], B), dra_pow(g, A, less));
    const dra_value positive = dra_greater(g, A, zero);
    const dra_value ln = dra_log(g, dra_select(g, positive, A, one));
    dx[1] = dra_mul(g, dra_mul(g, dy[0], n->out[0]), ln);
}
/* The winner gets dy: a at a tie. */
static void to_winner(dra_graph *g, dra_value a_wins, const dra_value *dy, dra_value *dx)
{
    const dra_value zero = dra_number(g, 0);
    dx[0] = dra_select(g, a_wins, dy[0], zero);
    dx[1] = dra_select(g, a_wins, zero, dy[0]);
}
GRADIENT(d_minimum) { to_winner(g, dra_less_equal(g, A, B), dy, dx); }
GRADIENT(d_maximum) { to_winner(g, dra_greater_equal(g, A, B), dy, dx); }

/* ---- the table ------------------------------------------------------------------------------- */

#define ROW(op_name, tile_function)                                                                \
    const dra_op dra_op_##op_name = {                                                              \
        .name = #op_name,                                                                          \
        .n_in = 2,                                                                                 \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(binary_attr),                                                          \
        .infer = infer,                                                                            \
        .gradient = d_##op_name,                                                                   \
        .cost = dra_pointwise_cost,                                                                \
    };                                                                                             \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .in_place = 3},           \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = tile_function,                                                                     \
    };

ROW(add, add_tile)
ROW(sub, sub_tile)
ROW(mul, mul_tile)
ROW(div, tile)
ROW(mod, tile)
ROW(pow, tile)
ROW(minimum, tile)
ROW(maximum, tile)

/* ---- builders -------------------------------------------------------------------------------- */

static dra_value build(dra_graph *g, const dra_op *op, binary_attr f, dra_value a, dra_value b)
{
    dra_value in[] = {a, b};
    if (!dra_broadcast_pair(g, op->name, in)) return (dra_value){0};
    return dra_add_op(g, op, 2, in, &f);
}

dra_value dra_add(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_add, (binary_attr){f_add, i_add}, a, b);
}
dra_value dra_sub(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_sub, (binary_attr){f_sub, i_sub}, a, b);
}
dra_value dra_mul(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_mul, (binary_attr){f_mul, i_mul}, a, b);
}
dra_value dra_div(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_div, (binary_attr){f_div, i_div}, a, b);
}
dra_value dra_mod(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_mod, (binary_attr){f_mod, i_mod}, a, b);
}
dra_value dra_pow(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_pow, (binary_attr){f_pow, NULL}, a, b);
}
dra_value dra_minimum(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_minimum, (binary_attr){f_minimum, i_minimum}, a, b);
}
dra_value dra_maximum(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_maximum, (binary_attr){f_maximum, i_maximum}, a, b);
}

/* ---- affine: y = s x + t with numbers -------------------------------------------------------- */

typedef struct affine_attr {
    double s, t;
} affine_attr;

/* One call an element where x is strided: a fused multiply-add must not depend on the layout. */
static void affine_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const affine_attr *a = c->attr;
    const real         s = (real)a->s, t = (real)a->t, *x = ptr[1];
    real              *y = ptr[0];
    if (step[1] == 1)
        dra_simd_of(c)->affine(n, s, t, x, y);
    else
        for (int64_t i = 0; i < n; i++) dra_simd_of(c)->affine(1, s, t, x + i * step[1], y + i);
}

static void affine_tile(const dra_call *c, int64_t i) { dra_pointwise_tile(c, i, affine_row); }

GRADIENT(d_affine) { dx[0] = dra_affine(g, dy[0], ((const affine_attr *)n->attr)->s, 0); }

const dra_op dra_op_affine = {.name = "affine",
                              .n_in = 1,
                              .n_out = 1,
                              .attr_size = sizeof(affine_attr),
                              .infer = dra_infer_same,
                              .gradient = d_affine,
                              .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_affine = {
    .base = {.op = "affine", .dtypes = DRA_REALS, .in_place = 1},
    .tiles = dra_pointwise_tiles,
    .tile = affine_tile,
};

dra_value dra_affine(dra_graph *g, dra_value x, double s, double t)
{
    return dra_add_op(g, &dra_op_affine, 1, &x, &(affine_attr){s, t});
}
