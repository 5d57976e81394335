/* Views: chains of them against the same steps on dense arrays, then what they cost, what passes
 * the gradient, and what is refused. */
#include "ops/pointwise/pointwise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"

#define S(...)                                                                                     \
    {                                                                                              \
        COUNT(((int64_t[]){__VA_ARGS__})), { __VA_ARGS__ }                                         \
    }

typedef enum kind { RESHAPE = 1, PERMUTE, TRANSPOSE, SLICE, BROADCAST } kind;

typedef struct step {
    kind      kind;
    dra_shape shape;              /* reshape (one size may be -1), broadcast */
    int       axes[DRA_MAX_RANK]; /* permute; transpose: two; slice: one */
    int64_t   start, n;
} step;

typedef struct chain {
    step step[8];  /* ends with kind 0 */
    bool computed; /* a kernel reads the view; else the view itself goes out */
} chain;

static dra_value apply(dra_graph *g, const step *s, dra_value x)
{
    switch (s->kind) {
    case RESHAPE: return dra_reshape(g, x, s->shape);
    case PERMUTE: return dra_permute(g, x, s->axes);
    case TRANSPOSE: return dra_transpose(g, x, s->axes[0], s->axes[1]);
    case SLICE: return dra_slice(g, x, s->axes[0], s->start, s->n);
    case BROADCAST: return dra_broadcast(g, x, s->shape);
    }
    return x;
}

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const chain *c = a;
    out[0] = in[0];
    for (const step *s = c->step; s->kind; s++) out[0] = apply(g, s, out[0]);
    if (c->computed) out[0] = dra_affine(g, out[0], 2, 1);
}

/* ---- the same on dense arrays ---------------------------------------------------------------- */

static int64_t strides(const dra_shape *s, int64_t *stride)
{
    int64_t n = 1;
    for (int32_t i = s->rank - 1; i >= 0; i--) stride[i] = n, n *= s->dim[i];
    return n;
}

static dra_shape shape_after(const step *s, dra_shape x)
{
    dra_shape y = s->kind == RESHAPE || s->kind == BROADCAST ? s->shape : x;
    if (s->kind == RESHAPE) {
        int64_t rest = dra_shape_count(&x);
        for (int32_t i = 0; i < y.rank; i++) rest /= y.dim[i] > 0 ? y.dim[i] : 1;
        for (int32_t i = 0; i < y.rank; i++)
            if (y.dim[i] < 0) y.dim[i] = rest;
    }
    for (int32_t i = 0; s->kind == PERMUTE && i < x.rank; i++)
        y.dim[i] = x.dim[(s->axes[i] + x.rank) % x.rank];
    if (s->kind == TRANSPOSE) {
        const int p = (s->axes[0] + x.rank) % x.rank, q = (s->axes[1] + x.rank) % x.rank;
        y.dim[p] = x.dim[q], y.dim[q] = x.dim[p];
    }
    if (s->kind == SLICE) y.dim[(s->axes[0] + x.rank) % x.rank] = s->n;
    return y;
}

/* Which element of x the element of y at `index` is. */
static int64_t source(const step *s, const dra_shape *x, const dra_shape *y, const int64_t *index)
{
    int64_t own[DRA_MAX_RANK], stride[DRA_MAX_RANK], at = 0;
    if (s->kind == RESHAPE) {
        strides(y, stride);
        for (int32_t i = 0; i < y->rank; i++) at += index[i] * stride[i];
        return at;
    }
    strides(x, stride);
    for (int32_t i = 0; i < x->rank; i++) {
        own[i] = index[i + y->rank - x->rank];
        if (s->kind == BROADCAST && x->dim[i] == 1) own[i] = 0;
    }
    for (int32_t i = 0; s->kind == PERMUTE && i < x->rank; i++)
        own[(s->axes[i] + x->rank) % x->rank] = index[i];
    if (s->kind == TRANSPOSE) {
        const int p = (s->axes[0] + x->rank) % x->rank, q = (s->axes[1] + x->rank) % x->rank;
        own[p] = index[q], own[q] = index[p];
    }
    if (s->kind == SLICE) own[(s->axes[0] + x->rank) % x->rank] += s->start;
    for (int32_t i = 0; i < x->rank; i++) at += own[i] * stride[i];
    return at;
}

static double *dense_step(const step *s, const dra_shape *from, const double *x, dra_shape *to)
{
    *to = shape_after(s, *from);
    const int64_t n = dra_shape_count(to);
    double       *y = malloc(((size_t)n + 1) * sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < n; i++) {
        int64_t index[DRA_MAX_RANK], rest = i;
        for (int32_t a = to->rank - 1; a >= 0; a--)
            index[a] = rest % to->dim[a], rest /= to->dim[a];
        y[i] = x[source(s, from, to, index)];
    }
    return y;
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const chain *c = a;
    dra_shape    shape = in->shape;
    double      *x = malloc(((size_t)in->count + 1) * sizeof *x);
    assert_non_null(x);
    memcpy(x, in->at, (size_t)in->count * sizeof *x);
    for (const step *s = c->step; s->kind; s++) {
        dra_shape to;
        double   *y = dense_step(s, &shape, x, &to);
        free(x);
        x = y;
        shape = to;
    }
    assert_true(dra_shape_equal(&shape, &out->shape));
    for (int64_t i = 0; i < out->count; i++) out->at[i] = c->computed ? 2 * x[i] + 1 : x[i];
    free(x);
}

/* ---- chains written by hand ------------------------------------------------------------------ */

#define R(...)                                                                                     \
    {                                                                                              \
        RESHAPE, .shape = S(__VA_ARGS__)                                                           \
    }
#define SCALAR                                                                                     \
    {                                                                                              \
        RESHAPE, .shape = { 0 }                                                                    \
    }
#define P(...)                                                                                     \
    {                                                                                              \
        PERMUTE, .axes = { __VA_ARGS__ }                                                           \
    }
#define T(p, q)                                                                                    \
    {                                                                                              \
        TRANSPOSE, .axes = { p, q }                                                                \
    }
#define C(axis, first, count)                                                                      \
    {                                                                                              \
        SLICE, .axes = {axis}, .start = first, .n = count                                          \
    }
#define B(...)                                                                                     \
    {                                                                                              \
        BROADCAST, .shape = S(__VA_ARGS__)                                                         \
    }

static const chain by_hand[] = {
    {{R(6, 5)}},
    {{R(5, -1)}},
    {{R(-1)}},
    {{R(1, 2, 1, 15, 1)}, true},
    {{T(0, 1), R(30)}},
    {{T(0, 1), R(2, -1)}, true},
    {{C(0, 1, 3), R(18)}},
    {{C(1, 1, 4), R(20)}},            /* rows with gaps cannot be merged: a copy */
    {{C(1, 1, 4), R(5, 2, 2)}, true}, /* but can be cut */
    {{C(1, 5, 1), R(5)}, true},
    {{C(0, 4, 1), C(1, 2, 1), SCALAR}},
    {{C(0, 2, 0), R(0, 3, 2)}},
    {{C(1, 6, 0)}},
    {{T(-1, -2), T(0, 1)}},
    {{P(1, 0), R(3, 2, 5), P(2, 0, 1), R(-1, 2)}, true},
    {{R(5, 2, 3), P(-1, 0, -2)}, true},
    {{R(1, 5, 6), B(4, 5, 6)}},
    {{B(3, 5, 6), R(15, 6)}, true},
    {{B(2, 3, 5, 6), T(0, 3), C(0, 2, 3), R(3, -1)}},
    {{R(5, 1, 6), B(5, 4, 6), R(20, 6)}, true},
    {{R(5, 6, 1), B(5, 6, 7), C(2, 3, 2), T(1, 2)}, true},
    {{C(0, 0, 1), B(7, 6)}},
    {{R(5, 1, 2, 1, 3, 1), B(5, 2, 2, 2, 3, 2)}},
    {{R(5, 1, 2, 1, 3, 1), P(5, 4, 3, 2, 1, 0), R(3, 2, 5)}, true},
    {{R(1, 5, 1, 2, 3, 1), P(1, 3, 0, 5, 4, 2), C(0, 1, 3), C(1, 1, 1), C(4, 0, 2), R(-1)}},
    {{C(0, 1, 1), B(0, 6)}},
    {{C(0, 1, 1), B(0, 6), T(0, 1), R(0, 3, 2)}, true},
};

static const chain nothing[] = {{{R(0)}},       {{R(3, 0, 2)}, true},
                                {{T(0, 1)}},    {{C(1, 1, 2)}, true},
                                {{B(2, 0, 4)}}, {{P(1, 0), R(2, 2, -1)}, true}};
static const chain single[] = {{{SCALAR}},
                               {{R(1, 1, 1, 1, 1, 1), B(2, 1, 2, 1, 2, 1)}, true},
                               {{B(3, 5)}},
                               {{SCALAR, B(4)}, true}};

/* ---- chains by chance ------------------------------------------------------------------------ */

static int64_t below(uint64_t *seed, int64_t n)
{
    return (int64_t)(check_random(seed) * (double)n);
}

static step random_reshape(uint64_t *seed, int64_t count)
{
    step          s = {RESHAPE};
    const int32_t rank = (int32_t)below(seed, 6);
    for (int32_t i = 0; i < rank; i++) {
        int64_t d = 1 + below(seed, count < 6 ? count : 6);
        while (count % d) d--;
        s.shape.dim[s.shape.rank++] = d;
        count /= d;
    }
    if (count != 1 || below(seed, 2)) s.shape.dim[s.shape.rank++] = below(seed, 2) ? -1 : count;
    return s;
}

static step random_step(uint64_t *seed, const dra_shape *x)
{
    step      s = {.kind = (kind)(1 + below(seed, 5))};
    const int axis = x->rank ? (int)below(seed, x->rank) : 0;
    if (s.kind == RESHAPE || x->rank == 0) return random_reshape(seed, dra_shape_count(x));
    for (int i = 0; i < x->rank; i++) s.axes[i] = i;
    for (int i = x->rank - 1; s.kind == PERMUTE && i > 0; i--) {
        const int64_t k = below(seed, i + 1);
        const int     kept = s.axes[i];
        s.axes[i] = s.axes[k], s.axes[k] = kept;
    }
    if (s.kind == TRANSPOSE) s.axes[0] = axis - x->rank, s.axes[1] = (int)below(seed, x->rank);
    if (s.kind == SLICE) {
        s.axes[0] = axis;
        s.start = below(seed, x->dim[axis]);
        s.n = 1 + below(seed, x->dim[axis] - s.start);
    }
    if (s.kind == BROADCAST) {
        s.shape = *x;
        for (int i = 0; i < x->rank; i++)
            if (x->dim[i] == 1) s.shape.dim[i] = 1 + below(seed, 3);
        if (x->rank < DRA_MAX_RANK && below(seed, 2)) {
            memmove(s.shape.dim + 1, s.shape.dim, (size_t)x->rank * sizeof *s.shape.dim);
            s.shape.dim[0] = 1 + below(seed, 3);
            s.shape.rank++;
        }
    }
    return s;
}

static chain random_chain(uint64_t *seed, dra_shape shape)
{
    chain c = {.computed = below(seed, 2) != 0};
    for (int i = 0; i < 6; i++) {
        c.step[i] = random_step(seed, &shape);
        shape = shape_after(&c.step[i], shape);
    }
    return c;
}

enum { CHANCES = 100 };

static chain      by_chance[CHANCES];
static check_case cases[COUNT(by_hand) + COUNT(nothing) + COUNT(single) + CHANCES + 4];
static char       names[COUNT(cases)][32];
static size_t     n_cases;

static void add(const char *what, dra_shape shape, check_dtype dtype, const chain *c)
{
    snprintf(names[n_cases], sizeof names[0], "%s %zu", what, n_cases);
    cases[n_cases] = (check_case){names[n_cases], 1, {{shape, dtype}}, c};
    n_cases++;
}

static void fill(void)
{
    uint64_t seed = 11;
    for (size_t i = 0; i < COUNT(by_hand); i++) add("chain", (dra_shape)S(5, 6), 0, &by_hand[i]);
    for (size_t i = 0; i < COUNT(nothing); i++) add("nothing", (dra_shape)S(0, 4), 0, &nothing[i]);
    for (size_t i = 0; i < COUNT(single); i++) add("one element", (dra_shape)S(1), 0, &single[i]);
    for (size_t i = 0; i < CHANCES; i++) {
        const dra_shape from[] = {S(4, 6), S(2, 3, 4), S(12), S(2, 1, 3, 2, 1, 2)};
        by_chance[i] = random_chain(&seed, from[i % 4]);
        add("by chance", from[i % 4], 0, &by_chance[i]);
    }
    const check_dtype others[] = {CHECK_I32, CHECK_BOOL, CHECK_BF16, CHECK_F16};
    for (size_t i = 0; i < COUNT(others); i++)
        add("dtype", (dra_shape)S(5, 6), others[i], &by_hand[4]);
}

/* ---- what views cost ------------------------------------------------------------------------- */

static size_t steps_of(const chain *c, dra_shape shape)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", shape), y;
    build(g, c, &x, &y);
    dra_output(g, "y", y);
    check_program p = check_compile(g, 1);
    const size_t  steps = dra_program_memory(p.program).steps;
    check_free(&p);
    return steps;
}

static void cost_nothing(void **state)
{
    const dra_shape shape = S(5, 6);
    const struct {
        chain  c;
        size_t steps;
    } expected[] = {
        {{{R(6, 5)}}, 0},                      /* the caller's own memory */
        {{{C(0, 1, 2), R(3, 4)}}, 0},          /* dense inside it */
        {{{R(5, 2, 3), P(2, 0, 1)}, true}, 1}, /* the kernel reads strides */
        {{{C(1, 1, 4), R(5, 2, 2), T(0, 2)}, true}, 1},
        {{{R(5, 1, 6), B(5, 4, 6), R(20, 6)}, true}, 2}, /* copied: repeats do not merge */
        {{{T(0, 1), R(30)}, true}, 2},
        {{{T(0, 1)}}, 1}, /* outputs are dense */
        {{{T(0, 1), T(1, 0)}}, 0},
        {{{R(1, 5, 1, 6, 1), T(0, 2), R(30)}}, 0}, /* axes of size 1 do not matter */
    };
    for (size_t i = 0; i < COUNT(expected); i++)
        if (steps_of(&expected[i].c, shape) != expected[i].steps)
            fail_msg("chain %zu takes %zu steps, expected %zu", i, steps_of(&expected[i].c, shape),
                     expected[i].steps);
}

static void views_of_the_whole_are_the_value(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3));
    assert_int_equal(dra_reshape(g, x, DRA_SHAPE(2, 3)).id, x.id);
    assert_int_equal(dra_reshape(g, x, DRA_SHAPE(2, -1)).id, x.id);
    assert_int_equal(dra_slice(g, x, 1, 0, 3).id, x.id);
    assert_int_equal(dra_broadcast(g, x, DRA_SHAPE(2, 3)).id, x.id);
    dra_graph_destroy(g);
}

/* Nothing may be bound as nothing. */
static void sees_no_memory(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(0, 4));
    dra_output(g, "y", dra_affine(g, dra_slice(g, x, 1, 1, 2), 2, 0));
    dra_output(g, "z", dra_transpose(g, dra_slice(g, x, 1, 3, 1), 0, 1));
    check_program p = check_compile(g, 2);
    check_bind(&p, "x", NULL, 0);
    check_run(&p);
    check_free(&p);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void stops_the_gradient(void **state) /* y = x stop(x): dx = x, not 2 x */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3)), dx;
    dra_value  y = dra_mul(g, x, dra_stop_gradient(g, x)), sum = dra_sum_all(g, y);
    dra_gradient(g, 1, &sum, NULL, 1, &x, &dx);
    dra_output(g, "y", y);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {1, -2, 3};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("y", 3, check_result(&p, "y"), (double[]){1, 4, 9}, 0);
    check_close("dx", 3, check_result(&p, "dx"), (double[]){1, -2, 3}, 0);
    check_free(&p);
}

static void starts_at_a_stopped_value(void **state) /* ds is wanted, and dx is 0 */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2)), s = dra_stop_gradient(g, x);
    dra_value  both[] = {x, s}, dx[2], y = dra_sum_all(g, dra_square(g, s));
    dra_gradient(g, 1, &y, NULL, 2, both, dx);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "ds", dx[1]);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {3, 4};
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("dx", 2, check_result(&p, "dx"), (double[]){0, 0}, 0);
    check_close("ds", 2, check_result(&p, "ds"), (double[]){6, 8}, 0);
    check_free(&p);
}

static void goes_straight_through(void **state) /* y = sign(x); gradient as if y were s = 3 x */
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3)), s = dra_affine(g, x, 3, 0);
    dra_value y = dra_straight_through(g, dra_sign(g, x), s), up = check_real(g, "u", DRA_SHAPE(3));
    dra_value both[] = {x, s}, dx[2];
    dra_gradient(g, 1, &y, &up, 2, both, dx);
    dra_output(g, "y", y);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "ds", dx[1]);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {5, -2, 0}, upstream[] = {1, 2, 3};
    check_bind(&p, "x", data, sizeof data);
    check_bind(&p, "u", upstream, sizeof upstream);
    check_run(&p);
    check_close("y", 3, check_result(&p, "y"), (double[]){1, -1, 0}, 0);
    check_close("ds", 3, check_result(&p, "ds"), (double[]){1, 2, 3}, 0);
    check_close("dx", 3, check_result(&p, "dx"), (double[]){3, 6, 9}, 0);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuse(const step *s, dra_shape shape, dra_status code, const char *text)
{
    dra_graph *g = check_graph();
    assert_int_equal(apply(g, s, check_real(g, "x", shape)).id, 0);
    check_refused(g, code, text);
}

static void refuses_reshape(void **state)
{
    const dra_shape x = S(2, 3);
    refuse(&(step)R(7), x, DRA_ERR_SHAPE,
           "reshape: x " REAL " (2, 3) has 6 elements, (7) does not");
    refuse(&(step)SCALAR, x, DRA_ERR_SHAPE,
           "reshape: x " REAL " (2, 3) has 6 elements, () does not");
    refuse(&(step)R(-1, 4), x, DRA_ERR_SHAPE, "reshape: x " REAL " (2, 3) cannot be (-1, 4)");
    refuse(&(step)R(-1, -1), x, DRA_ERR_SHAPE, "reshape: x " REAL " (2, 3) cannot be (-1, -1)");
    refuse(&(step)R(-2, -3), x, DRA_ERR_SHAPE, "reshape: x " REAL " (2, 3) cannot be (-2, -3)");
    refuse(&(step)R(-1, 0), (dra_shape)S(0), DRA_ERR_SHAPE,
           "reshape: x " REAL " (0) cannot be (-1, 0)"); /* any number would do */
    refuse(&(step)R(INT64_MAX, 3), x, DRA_ERR_SHAPE,
           "reshape: x " REAL " (2, 3) cannot be (9223372036854775807, 3)");
    refuse(&(step){RESHAPE, .shape = {7, {0}}}, x, DRA_ERR_SHAPE,
           "reshape: rank 7, expected 0 to 6");
    refuse(&(step){RESHAPE, .shape = {-1, {0}}}, x, DRA_ERR_SHAPE,
           "reshape: rank -1, expected 0 to 6");
}

static void refuses_axes(void **state)
{
    const dra_shape x = S(2, 3);
    refuse(&(step)P(0, 0), x, DRA_ERR_SHAPE,
           "permute: x " REAL " (2, 3): axis 0 is outside or named twice");
    refuse(&(step)P(0, 2), x, DRA_ERR_SHAPE,
           "permute: x " REAL " (2, 3): axis 2 is outside or named twice");
    refuse(&(step)P(-3, 1), x, DRA_ERR_SHAPE,
           "permute: x " REAL " (2, 3): axis -1 is outside or named twice");
    refuse(&(step)T(0, 2), x, DRA_ERR_SHAPE, "transpose: x " REAL " (2, 3) has no axes 0 and 2");
    refuse(&(step)T(0, 0), (dra_shape){0}, DRA_ERR_SHAPE,
           "transpose: x " REAL " () has no axes 0 and 0");
}

static void refuses_slices(void **state)
{
    const dra_shape x = S(2, 3);
    refuse(&(step)C(2, 0, 1), x, DRA_ERR_SHAPE, "slice: x " REAL " (2, 3) has no such axis");
    refuse(&(step)C(1, 2, 2), x, DRA_ERR_SHAPE,
           "slice: x " REAL " (2, 3), axis 1: 2 elements from 2");
    refuse(&(step)C(0, -1, 1), x, DRA_ERR_SHAPE,
           "slice: x " REAL " (2, 3), axis 0: 1 elements from -1");
    refuse(&(step)C(0, 0, -1), x, DRA_ERR_SHAPE,
           "slice: x " REAL " (2, 3), axis 0: -1 elements from 0");
    refuse(&(step)C(0, 1, INT64_MAX), x, DRA_ERR_SHAPE,
           "slice: x " REAL " (2, 3), axis 0: 9223372036854775807 elements from 1");
}

static void refuses_broadcasts(void **state)
{
    const dra_shape x = S(2, 3);
    refuse(&(step)B(2, 4), x, DRA_ERR_SHAPE,
           "broadcast: x " REAL " (2, 3) cannot be seen as (2, 4)");
    refuse(&(step)B(3), x, DRA_ERR_SHAPE, "broadcast: x " REAL " (2, 3) cannot be seen as (3)");
    refuse(&(step)B(1, 3), x, DRA_ERR_SHAPE,
           "broadcast: x " REAL " (2, 3) cannot be seen as (1, 3)");
    refuse(&(step)B(-1, 2, 3), x, DRA_ERR_SHAPE, "broadcast: axis 0 has size -1");
    refuse(&(step)B(INT64_MAX / 4, 2, 3), x, DRA_ERR_MEMORY,
           "broadcast: size of (2305843009213693951, 2, 3) overflows");
    refuse(&(step){BROADCAST, .shape = {7, {0}}}, x, DRA_ERR_SHAPE,
           "broadcast: rank 7, expected 0 to 6");
}

static void refuses_null_and_surrogates(void **state)
{
    const step  steps[] = {R(1), P(0), T(0, 0), C(0, 0, 1), B(1)};
    const char *names_of[] = {"reshape", "permute", "transpose", "slice", "broadcast"};
    for (size_t i = 0; i < COUNT(steps); i++) {
        char       text[64];
        dra_graph *g = check_graph();
        snprintf(text, sizeof text, "%s: input 0 is the null value", names_of[i]);
        assert_int_equal(apply(g, &steps[i], (dra_value){0}).id, 0);
        check_refused(g, DRA_ERR_VALUE, text);
    }
    dra_graph *g = check_graph();
    assert_int_equal(dra_stop_gradient(g, (dra_value){0}).id, 0);
    check_refused(g, DRA_ERR_VALUE, "stop_gradient: input 0 is the null value");
    g = check_graph();
    dra_value x = check_real(g, "x", DRA_SHAPE(2)), y = check_real(g, "y", DRA_SHAPE(3));
    assert_int_equal(dra_straight_through(g, x, y).id, 0);
    check_refused(g, DRA_ERR_SHAPE,
                  "straight_through: inputs " REAL " (2) and " REAL " (3) differ");
    g = check_graph();
    assert_int_equal(dra_straight_through(g, dra_number(g, 1), dra_integer(g, 1)).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "straight_through: input 1 is i32 (), expected " REAL);
}

int main(void)
{
    fill();
    const check_spec        spec = {"views", 1, build, oracle, cases, n_cases};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_nothing),
        cmocka_unit_test(views_of_the_whole_are_the_value),
        cmocka_unit_test(sees_no_memory),
        cmocka_unit_test(stops_the_gradient),
        cmocka_unit_test(starts_at_a_stopped_value),
        cmocka_unit_test(goes_straight_through),
        cmocka_unit_test(refuses_reshape),
        cmocka_unit_test(refuses_axes),
        cmocka_unit_test(refuses_slices),
        cmocka_unit_test(refuses_broadcasts),
        cmocka_unit_test(refuses_null_and_surrogates),
    };
    return check_main("view", &spec, 1, tests, COUNT(tests));
}
