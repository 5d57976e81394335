/* Pointwise ops of two inputs. Builders broadcast the inputs to one shape first (a view, no copy),
 * so the sum over broadcast axes in the gradient is the view's own rule. */
#include "ops/pointwise/pointwise.h"

static dra_status infer_binary(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_function_attr *a = n->attr;
    const dra_type          *x = dra_type_of(g, n->in[0]), *y = dra_type_of(g, n->in[1]);
    *out = *x;
    if (x->dtype != y->dtype || !dra_shape_equal(&x->shape, &y->shape))
        return dra_op_fail(g, n, x->dtype != y->dtype ? DRA_ERR_DTYPE : DRA_ERR_SHAPE,
                           "a %s and b %s do not fit", dra_type_text(g, n->in[0]),
                           dra_type_text(g, n->in[1]));
    if (x->dtype == DRA_I32 && dra_function_takes_i32(a->function)) return DRA_OK;
    return dra_expect_dtype(g, n, 0, "a", DRA_REAL);
}

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

#define ROW(op_name)                                                                               \
    const dra_op         dra_op_##op_name = {.name = #op_name,                                     \
                                             .n_in = 2,                                            \
                                             .n_out = 1,                                           \
                                             .flags = DRA_OP_POINTWISE,                            \
                                             .attr_size = sizeof(dra_function_attr),               \
                                             .infer = infer_binary,                                \
                                             .gradient = d_##op_name,                              \
                                             .cost = dra_pointwise_cost};                          \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .in_place = 3},           \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = dra_function_tile,                                                                 \
    };

ROW(add)
ROW(sub)
ROW(mul)
ROW(div)
ROW(mod)
ROW(pow)
ROW(minimum)
ROW(maximum)

/* ---- builders -------------------------------------------------------------------------------- */

static dra_value build_binary(dra_graph *g, const dra_op *op, dra_function f, dra_value a,
                              dra_value b)
{
    dra_value in[] = {a, b};
    if (!dra_broadcast_pair(g, op->name, in)) return (dra_value){0};
    return dra_add_op(g, op, 2, in, &(dra_function_attr){f});
}

dra_value dra_add(dra_graph *g, dra_value a, dra_value b)
{
    return build_binary(g, &dra_op_add, DRA_FUNCTION_ADD, a, b);
}
dra_value dra_sub(dra_graph *g, dra_value a, dra_value b)
{
    return build_binary(g, &dra_op_sub, DRA_FUNCTION_SUB, a, b);
}
dra_value dra_mul(dra_graph *g, dra_value a, dra_value b)
{
    return build_binary(g, &dra_op_mul, DRA_FUNCTION_MUL, a, b);
}
dra_value dra_div(dra_graph *g, dra_value a, dra_value b)
{
    return build_binary(g, &dra_op_div, DRA_FUNCTION_DIV, a, b);
}
dra_value dra_mod(dra_graph *g, dra_value a, dra_value b)
{
    return build_binary(g, &dra_op_mod, DRA_FUNCTION_MOD, a, b);
}
dra_value dra_pow(dra_graph *g, dra_value a, dra_value b)
{
    return build_binary(g, &dra_op_pow, DRA_FUNCTION_POW, a, b);
}
dra_value dra_minimum(dra_graph *g, dra_value a, dra_value b)
{
    return build_binary(g, &dra_op_minimum, DRA_FUNCTION_MINIMUM, a, b);
}
dra_value dra_maximum(dra_graph *g, dra_value a, dra_value b)
{
    return build_binary(g, &dra_op_maximum, DRA_FUNCTION_MAXIMUM, a, b);
}

/* ---- affine: y = s x + t with numbers -------------------------------------------------------- */

GRADIENT(d_affine) { dx[0] = dra_affine(g, dy[0], ((const dra_function_attr *)n->attr)->a, 0); }

const dra_op dra_op_affine = {.name = "affine",
                              .n_in = 1,
                              .n_out = 1,
                              .flags = DRA_OP_POINTWISE,
                              .attr_size = sizeof(dra_function_attr),
                              .infer = dra_infer_same,
                              .gradient = d_affine,
                              .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_affine = {
    .base = {.op = "affine", .dtypes = DRA_REALS, .in_place = 1},
    .tiles = dra_pointwise_tiles,
    .tile = dra_function_tile,
};

dra_value dra_affine(dra_graph *g, dra_value x, double s, double t)
{
    return dra_add_op(g, &dra_op_affine, 1, &x, &(dra_function_attr){DRA_FUNCTION_AFFINE, s, t});
}
