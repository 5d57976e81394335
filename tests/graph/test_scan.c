/* scan: against a loop in double, gradients by differences (double build), against the same steps
 * unrolled, memory O(T / border), ragged ends, reverse, integer carries, nesting. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the recurrence all tests use: h' = tanh(w h + x) , y = h' h + x ------------------------- */

typedef struct args {
    int64_t T, border;
    bool    reverse;
} args;

static void step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                 const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const dra_value h = dra_tanh(g, dra_add(g, dra_mul(g, constant[0], carry[0]), x[0]));
    carry_out[0] = h;
    y[0] = dra_add(g, dra_mul(g, h, carry[0]), x[0]);
}

static void build(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    const args *a = user;
    dra_scan(g,
             &(dra_scan_config){.length = a->T,
                                .carries = 1,
                                .xs = 1,
                                .constants = 1,
                                .ys = 1,
                                .carry = &in[0],
                                .x = &in[1],
                                .constant = &in[2],
                                .reverse = a->reverse,
                                .border = a->border,
                                .body = step},
             &out[0], &out[1]);
}

static void oracle(const void *user, const check_tensor *in, check_tensor *out)
{
    const args   *a = user;
    const int64_t C = in[0].count;
    memcpy(out[0].at, in[0].at, (size_t)C * sizeof(double));
    for (int64_t s = 0; s < a->T; s++) {
        const int64_t t = a->reverse ? a->T - 1 - s : s;
        for (int64_t c = 0; c < C; c++) {
            const double x = in[1].at[t * C + c], before = out[0].at[c];
            out[0].at[c] = tanh(in[2].at[c] * before + x);
            out[1].at[t * C + c] = out[0].at[c] * before + x;
        }
    }
}

static const args kinds[] = {
    {1, 0, false},    {2, 0, false}, {7, 0, false}, {16, 4, false}, {17, 4, false}, {17, 1, false},
    {17, 100, false}, {1, 0, true},  {10, 4, true}, {16, 4, true},  {0, 0, false},
};

#define CASE(i, title, steps)                                                                      \
    {                                                                                              \
        title, 3, {{{1, {3}}}, {{2, {steps, 3}}}, {{1, {3}}}}, &kinds[i]                           \
    }
static const check_case cases[] = {
    CASE(0, "one step", 1),
    CASE(1, "two steps", 2),
    CASE(2, "seven steps", 7),
    CASE(3, "whole segments", 16),
    CASE(4, "a short segment", 17),
    CASE(5, "a border each step", 17),
    CASE(6, "one segment", 17),
    CASE(7, "one step back", 1),
    CASE(8, "reverse, short segment", 10),
    CASE(9, "reverse, whole segments", 16),
    CASE(10, "no step", 0),
};

/* ---- the gradient of the gradient: the scan's gradient as the thing that is checked ---------- */

static void build_twice(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_value y[2], sum, dx[3];
    build(g, user, in, y);
    sum = dra_add(g, dra_sum_all(g, dra_square(g, y[1])), dra_sum_all(g, y[0]));
    dra_gradient(g, 1, &sum, NULL, 3, in, dx);
    for (int i = 0; i < 3; i++) out[i] = dx[i];
}

static void oracle_twice(const void *user, const check_tensor *in, check_tensor *out)
{
    const args   *a = user;
    const int64_t C = in[0].count, T = a->T;
    for (int64_t c = 0; c < C; c++) { /* by hand, one channel at a time */
        double h[64], dh = 1, dw = 0;
        h[0] = in[0].at[c];
        for (int64_t t = 0; t < T; t++) h[t + 1] = tanh(in[2].at[c] * h[t] + in[1].at[t * C + c]);
        for (int64_t t = T - 1; t >= 0; t--) {
            const double y = h[t + 1] * h[t] + in[1].at[t * C + c], dy = 2 * y;
            const double pre = (dh + dy * h[t]) * (1 - h[t + 1] * h[t + 1]);
            out[1].at[t * C + c] = pre + dy;
            dw += pre * h[t];
            dh = pre * in[2].at[c] + dy * h[t + 1];
        }
        out[0].at[c] = dh;
        out[2].at[c] = dw;
    }
}

static const check_case twice[] = {
    CASE(2, "seven steps", 7),
    CASE(3, "whole segments", 16),
    CASE(4, "a short segment", 17),
};

/* ---- several carries, an integer one among them, strided x ----------------------------------- */

static void step_count(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                       const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const dra_value n = dra_cast(g, carry[1], DRA_REAL);
    carry_out[0] = dra_add(g, carry[0], dra_mul(g, n, dra_sin(g, x[0])));
    carry_out[1] = dra_add(g, carry[1], dra_integer(g, 1));
    carry_out[2] = carry[0]; /* the value before: a carry handed on as it is */
    y[0] = carry_out[0];     /* one value as a carry and as a result */
    y[1] = dra_equal(g, carry[1], dra_integer(g, 2));
}

static void build_count(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    const dra_value carry[] = {in[0], dra_integer(g, 0), in[0]};
    const dra_value x = dra_transpose(g, in[1], 0, 1); /* (C, T) seen as (T, C): no copy */
    dra_value       last[3], y[2];
    dra_scan(g,
             &(dra_scan_config){.length = 5,
                                .carries = 3,
                                .xs = 1,
                                .ys = 2,
                                .carry = carry,
                                .x = &x,
                                .border = 2,
                                .body = step_count},
             last, y);
    out[0] = last[0], out[1] = last[1], out[2] = last[2], out[3] = y[0], out[4] = y[1];
}

static void oracle_count(const void *user, const check_tensor *in, check_tensor *out)
{
    const int64_t C = in[0].count;
    for (int64_t c = 0; c < C; c++) {
        double h = in[0].at[c], before = h;
        for (int64_t t = 0; t < 5; t++) {
            before = h;
            h += (double)t * sin(in[1].at[c * 5 + t]);
            out[3].at[t * C + c] = h;
            out[4].at[t] = t == 2;
        }
        out[0].at[c] = h;
        out[2].at[c] = before;
    }
    out[1].at[0] = 5;
}

static const check_case count_cases[] = {{"carries", 2, {{{1, {3}}}, {{2, {3, 5}}}}}};

/* ---- a scan in a scan ------------------------------------------------------------------------ */

static void inner_step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                       const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = dra_add(g, dra_mul(g, carry[0], constant[0]), x[0]);
}

static void outer_step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                       const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    dra_scan(g,
             &(dra_scan_config){.length = 3,
                                .carries = 1,
                                .xs = 1,
                                .constants = 1,
                                .carry = carry,
                                .x = x,
                                .constant = constant,
                                .body = inner_step},
             carry_out, NULL);
    carry_out[0] = dra_sin(g, carry_out[0]);
}

static void build_nested(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_scan(g,
             &(dra_scan_config){.length = 4,
                                .carries = 1,
                                .xs = 1,
                                .constants = 1,
                                .carry = &in[0],
                                .x = &in[1],
                                .constant = &in[2],
                                .body = outer_step},
             out, NULL);
}

static void oracle_nested(const void *user, const check_tensor *in, check_tensor *out)
{
    for (int64_t c = 0; c < 2; c++) {
        double h = in[0].at[c];
        for (int64_t t = 0; t < 4; t++) {
            for (int64_t s = 0; s < 3; s++) h = h * in[2].at[c] + in[1].at[(t * 3 + s) * 2 + c];
            h = sin(h);
        }
        out[0].at[c] = h;
    }
}

static const check_case nested_cases[] = {{"4 x 3", 3, {{{1, {2}}}, {{3, {4, 3, 2}}}, {{1, {2}}}}}};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of a program with gradients of a carry of C reals over T steps; results are scalars, so
 * nothing but kept carries grows with T. */
static size_t gradient_bytes(int64_t T, int64_t border, int64_t C)
{
    dra_graph *g = check_graph();
    const args a = {T, border, false};
    dra_value  x = dra_broadcast(g, check_real(g, "x", DRA_SHAPE(1, 1)), DRA_SHAPE(T, C));
    dra_value  in[] = {check_real(g, "h", DRA_SHAPE(C)), x, check_real(g, "w", DRA_SHAPE(C))};
    dra_value  out[2], dx[2], y;
    build(g, &a, in, out);
    y = dra_sum_all(g, out[0]);
    dra_gradient(g, 1, &y, NULL, 2, (dra_value[]){in[0], in[2]}, dx);
    dra_output(g, "dh", dra_sum_all(g, dx[0]));
    dra_output(g, "dw", dra_sum_all(g, dx[1]));
    dra_device  *d = check_device(1, "ref");
    dra_program *p = NULL;
    dra_error    err = {0};
    if (dra_compile(g, d, &p, &err) != DRA_OK) fail_msg("%s", err.text);
    const size_t bytes = dra_program_memory(p).activations;
    dra_program_destroy(p);
    dra_graph_destroy(g);
    return bytes;
}

static void keeps_memory_of_borders_only(void **state)
{
    const int64_t C = 1024;
    const size_t  carry = (size_t)C * sizeof(dra_real);
    /* border 64: T/64 kept carries, 64 inside a segment, a few temporaries */
    const size_t at_1k = gradient_bytes(1024, 64, C), at_4k = gradient_bytes(4096, 64, C);
    assert_true(at_1k < (16 + 64 + 64) * carry);
    assert_true(at_4k < (64 + 64 + 64) * carry);
    assert_true(at_4k - at_1k <= 49 * carry); /* 48 more borders, not 3072 more carries */
    /* the default border: O(sqrt T) */
    const size_t at_100 = gradient_bytes(100, 0, C), at_10k = gradient_bytes(10000, 0, C);
    assert_true(at_10k < 12 * at_100);
}

static void keeps_nothing_without_gradient(void **state)
{
    dra_graph *g = check_graph();
    dra_value  in[] = {check_real(g, "h", DRA_SHAPE(256)), check_real(g, "x", DRA_SHAPE(1000, 256)),
                       check_real(g, "w", DRA_SHAPE(256))};
    dra_value  out[2];
    const args a = {1000, 1, false};
    build(g, &a, in, out);
    dra_output(g, "h1", out[0]);
    dra_program *p = NULL;
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, NULL), DRA_OK);
    assert_true(dra_program_memory(p).activations < 16 * 256 * sizeof(dra_real));
    dra_program_destroy(p);
    dra_graph_destroy(g);
}

/* ---- against the same steps unrolled into nodes ---------------------------------------------- */

static void equals_unrolled_steps(void **state)
{
    enum { T = 6, C = 4 };
    dra_graph *g = check_graph();
    dra_value  h0 = check_real(g, "h", DRA_SHAPE(C)), x = check_real(g, "x", DRA_SHAPE(T, C));
    dra_value  w = check_real(g, "w", DRA_SHAPE(C)), in[] = {h0, x, w}, out[2], h = h0, loss[2];
    const args a = {T, 2, false};
    build(g, &a, in, out);
    loss[0] = dra_add(g, dra_sum_all(g, out[0]), dra_sum_all(g, dra_sin(g, out[1])));
    loss[1] = dra_number(g, 0);
    for (int64_t t = 0; t < T; t++) {
        dra_value xt = dra_reshape(g, dra_slice(g, x, 0, t, 1), DRA_SHAPE(C)), next, y;
        step(g, NULL, &h, &xt, &w, &next, &y);
        loss[1] = dra_add(g, loss[1], dra_sum_all(g, dra_sin(g, y)));
        h = next;
    }
    loss[1] = dra_add(g, loss[1], dra_sum_all(g, h));
    for (int k = 0; k < 2; k++) {
        dra_value dx[3];
        dra_gradient(g, 1, &loss[k], NULL, 3, in, dx);
        dra_output(g, k ? "dh unrolled" : "dh", dx[0]);
        dra_output(g, k ? "dx unrolled" : "dx", dx[1]);
        dra_output(g, k ? "dw unrolled" : "dw", dx[2]);
    }
    check_program p = check_compile(g, 2);
    dra_real      hv[C], xv[T * C], wv[C];
    uint64_t      seed = 3;
    for (int i = 0; i < C; i++) hv[i] = (dra_real)check_random(&seed), wv[i] = (dra_real)0.5;
    for (int i = 0; i < T * C; i++) xv[i] = (dra_real)(check_random(&seed) - 0.5);
    check_bind(&p, "h", hv, sizeof hv);
    check_bind(&p, "x", xv, sizeof xv);
    check_bind(&p, "w", wv, sizeof wv);
    check_run(&p);
    const char *names[][2] = {{"dh", "dh unrolled"}, {"dx", "dx unrolled"}, {"dw", "dw unrolled"}};
    for (int k = 0; k < 3; k++) {
        const int       n = k == 1 ? T * C : C;
        const dra_real *b = check_result(&p, names[k][1]);
        double          want[T * C];
        for (int i = 0; i < n; i++) want[i] = (double)b[i];
        check_close(names[k][0], n, check_result(&p, names[k][0]), want, 1e-6);
    }
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void wider(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                  const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = dra_pad(g, carry[0], 0, 0, 1, 0);
}

static void refuses_a_carry_that_changes(void **state)
{
    dra_graph *g = check_graph();
    dra_value  h = dra_input(g, "h", DRA_I32, DRA_SHAPE(3)), out;
    dra_scan(g, &(dra_scan_config){.length = 2, .carries = 1, .carry = &h, .body = wider}, &out,
             NULL);
    assert_int_equal(out.id, 0);
    check_refused(g, DRA_ERR_SHAPE, "scan: carry 0 starts as i32 (3), a step returns i32 (4)");
}

static void forgets(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                    const dra_value *constant, dra_value *carry_out, dra_value *y)
{}

static void refuses_a_body_that_returns_nothing(void **state)
{
    dra_graph *g = check_graph();
    dra_value  h = check_real(g, "h", DRA_SHAPE(3)), out;
    dra_scan(g, &(dra_scan_config){.length = 2, .carries = 1, .carry = &h, .body = forgets}, &out,
             NULL);
    check_refused(g, DRA_ERR_VALUE, "region result: input 0 is the null value");
}

static void captures(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                     const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = dra_add(g, carry[0], *(const dra_value *)user);
}

static void refuses_values_from_outside(void **state)
{
    dra_graph *g = check_graph();
    dra_value  h = check_real(g, "h", DRA_SHAPE(3)), out;
    dra_scan(
        g, &(dra_scan_config){.length = 2, .carries = 1, .carry = &h, .body = captures, .user = &h},
        &out, NULL);
    check_refused(g, DRA_ERR_VALUE,
                  "add: input 1 is a value of another graph (hand it to the "
                  "region as an input)");
}

static void refuses_another_length_of_x(void **state)
{
    dra_graph *g = check_graph();
    dra_value  h = dra_input(g, "h", DRA_I32, DRA_SHAPE(3)), out;
    dra_scan(g,
             &(dra_scan_config){
                 .length = 2, .carries = 1, .xs = 1, .carry = &h, .x = &h, .body = forgets},
             &out, NULL);
    check_refused(g, DRA_ERR_SHAPE, "scan: x 0 is i32 (3), expected (2, ...)");
}

int main(void)
{
    const check_spec specs[] = {
        {"scan", 2, build, oracle, cases, COUNT(cases)},
        {"scan gradient's gradient", 3, build_twice, oracle_twice, twice, COUNT(twice)},
        {"scan of mixed carries", 5, build_count, oracle_count, count_cases, COUNT(count_cases)},
        {"scan in a scan", 1, build_nested, oracle_nested, nested_cases, COUNT(nested_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_memory_of_borders_only),
        cmocka_unit_test(keeps_nothing_without_gradient),
        cmocka_unit_test(equals_unrolled_steps),
        cmocka_unit_test(refuses_a_carry_that_changes),
        cmocka_unit_test(refuses_a_body_that_returns_nothing),
        cmocka_unit_test(refuses_values_from_outside),
        cmocka_unit_test(refuses_another_length_of_x),
    };
    return check_main("scan", specs, COUNT(specs), tests, COUNT(tests));
}
