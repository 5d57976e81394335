/* Comparisons to bool, and logic on bools. No gradients: their results do not move. */
#include "ops/common.h"

typedef struct compare_attr {
    bool (*real)(real, real);
    bool (*integer)(int32_t, int32_t);
} compare_attr;

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *a = dra_type_of(g, n->in[0]), *b = dra_type_of(g, n->in[1]);
    *out = (dra_type){DRA_BOOL, a->shape};
    if (a->dtype != b->dtype || (a->dtype != DRA_REAL && a->dtype != DRA_I32))
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "a %s and b %s, expected two of %s or i32",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]),
                           dra_dtype_get(DRA_REAL)->name);
    return DRA_OK;
}

static void real_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const compare_attr *k = c->attr;
    const real         *a = ptr[1], *b = ptr[2];
    uint8_t            *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = k->real(a[i * step[1]], b[i * step[2]]);
}

static void integer_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const compare_attr *k = c->attr;
    const int32_t      *a = ptr[1], *b = ptr[2];
    uint8_t            *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = k->integer(a[i * step[1]], b[i * step[2]]);
}

static void tile(const dra_call *c, int64_t i)
{
    dra_pointwise_tile(c, i, c->in[0].dtype == DRA_I32 ? integer_row : real_row);
}

static bool r_equal(real a, real b) { return a == b; }
static bool r_not_equal(real a, real b) { return a != b; }
static bool r_less(real a, real b) { return a < b; }
static bool r_less_equal(real a, real b) { return a <= b; }
static bool r_greater(real a, real b) { return a > b; }
static bool r_greater_equal(real a, real b) { return a >= b; }
static bool i_equal(int32_t a, int32_t b) { return a == b; }
static bool i_not_equal(int32_t a, int32_t b) { return a != b; }
static bool i_less(int32_t a, int32_t b) { return a < b; }
static bool i_less_equal(int32_t a, int32_t b) { return a <= b; }
static bool i_greater(int32_t a, int32_t b) { return a > b; }
static bool i_greater_equal(int32_t a, int32_t b) { return a >= b; }

#define ROW(op_name)                                                                               \
    const dra_op dra_op_##op_name = {                                                              \
        .name = #op_name,                                                                          \
        .n_in = 2,                                                                                 \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(compare_attr),                                                         \
        .infer = infer,                                                                            \
        .cost = dra_pointwise_cost,                                                                \
    };                                                                                             \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name,                                                                   \
                 .dtypes = DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL),                       \
                 .in_place = 1},                                                                   \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = tile,                                                                              \
    };

ROW(equal)
ROW(not_equal)
ROW(less)
ROW(less_equal)
ROW(greater)
ROW(greater_equal)

static dra_value build(dra_graph *g, const dra_op *op, compare_attr f, dra_value a, dra_value b)
{
    dra_value in[] = {a, b};
    if (!dra_broadcast_pair(g, op->name, in)) return (dra_value){0};
    return dra_add_op(g, op, 2, in, &f);
}

dra_value dra_equal(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_equal, (compare_attr){r_equal, i_equal}, a, b);
}
dra_value dra_not_equal(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_not_equal, (compare_attr){r_not_equal, i_not_equal}, a, b);
}
dra_value dra_less(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_less, (compare_attr){r_less, i_less}, a, b);
}
dra_value dra_less_equal(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_less_equal, (compare_attr){r_less_equal, i_less_equal}, a, b);
}
dra_value dra_greater(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_greater, (compare_attr){r_greater, i_greater}, a, b);
}
dra_value dra_greater_equal(dra_graph *g, dra_value a, dra_value b)
{
    return build(g, &dra_op_greater_equal, (compare_attr){r_greater_equal, i_greater_equal}, a, b);
}

/* ---- logic ----------------------------------------------------------------------------------- */

static dra_status logic_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    for (int i = 0; i < n->n_in; i++) {
        const dra_status st = dra_expect_dtype(g, n, i, i ? "b" : "a", DRA_BOOL);
        if (st != DRA_OK) return st;
    }
    return DRA_OK;
}

static void and_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const uint8_t *a = ptr[1], *b = ptr[2];
    uint8_t       *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = a[i * step[1]] && b[i * step[2]];
}

static void or_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const uint8_t *a = ptr[1], *b = ptr[2];
    uint8_t       *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = a[i * step[1]] || b[i * step[2]];
}

static void not_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const uint8_t *x = ptr[1];
    uint8_t       *y = ptr[0];
    for (int64_t i = 0; i < n; i++) y[i] = !x[i * step[1]];
}

static void and_tile(const dra_call *c, int64_t i) { dra_pointwise_tile(c, i, and_row); }
static void or_tile(const dra_call *c, int64_t i) { dra_pointwise_tile(c, i, or_row); }
static void not_tile(const dra_call *c, int64_t i) { dra_pointwise_tile(c, i, not_row); }

#define LOGIC(op_name, inputs)                                                                     \
    const dra_op dra_op_##op_name = {                                                              \
        .name = #op_name,                                                                          \
        .n_in = inputs,                                                                            \
        .n_out = 1,                                                                                \
        .infer = logic_infer,                                                                      \
        .cost = dra_pointwise_cost,                                                                \
    };                                                                                             \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = DRA_BIT(DRA_BOOL), .in_place = 1},                      \
        .tiles = dra_pointwise_tiles,                                                              \
        .tile = op_name##_tile,                                                                    \
    };

LOGIC(and, 2)
LOGIC(or, 2)
LOGIC(not, 1)

dra_value dra_and(dra_graph *g, dra_value a, dra_value b)
{
    dra_value in[] = {a, b};
    return dra_broadcast_pair(g, "and", in) ? dra_add_op(g, &dra_op_and, 2, in, NULL)
                                            : (dra_value){0};
}

dra_value dra_or(dra_graph *g, dra_value a, dra_value b)
{
    dra_value in[] = {a, b};
    return dra_broadcast_pair(g, "or", in) ? dra_add_op(g, &dra_op_or, 2, in, NULL)
                                           : (dra_value){0};
}

dra_value dra_not(dra_graph *g, dra_value x) { return dra_add_op(g, &dra_op_not, 1, &x, NULL); }
