/* Scans that a device runs in pieces of several steps (device/cuda/scan.cu): lengths around a
 * piece, borders inside and across pieces, rows that are not next to each other, scans and conds
 * inside of each other, many values. The CPU runs the same tests step by step. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { P = 16, C = 3, B = 2 }; /* steps of a piece, see main() */

/* ---- against the same steps unrolled into nodes ---------------------------------------------- */

typedef enum layout { PLAIN, ACROSS, BACKWARDS, EQUAL, PART, LAYOUTS } layout;

typedef struct args {
    int64_t T, border;
    bool    reverse;
    layout  layout;
} args;

/* h' = tanh(w h + x), y = h' h + x. The second x is never read. */
static void step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                 const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const dra_value h = dra_tanh(g, dra_add(g, dra_mul(g, constant[0], carry[0]), x[0]));
    carry_out[0] = h;
    y[0] = dra_add(g, dra_mul(g, h, carry[0]), x[0]);
    y[1] = dra_neg(g, y[0]); /* an output that nobody reads */
}

static dra_shape stored(const args *a)
{
    switch (a->layout) {
    case ACROSS: return DRA_SHAPE(B, a->T, C);
    case EQUAL: return DRA_SHAPE(1, B, C);
    case PART: return DRA_SHAPE(a->T + 3, B, C + 2);
    default: return DRA_SHAPE(a->T, B, C);
    }
}

static dra_value as_rows(dra_graph *g, const args *a, dra_value x) /* (T, B, C) */
{
    switch (a->layout) {
    case ACROSS: return dra_transpose(g, x, 0, 1);
    case BACKWARDS: return dra_flip(g, x, 0);
    case EQUAL: return dra_broadcast(g, x, DRA_SHAPE(a->T, B, C));
    case PART: return dra_slice(g, dra_slice(g, x, 0, 2, a->T), 2, 1, C);
    default: return x;
    }
}

static dra_value row(dra_graph *g, dra_value x, int64_t t)
{
    return dra_reshape(g, dra_slice(g, x, 0, t, 1), DRA_SHAPE(B, C));
}

/* sum(h) + sum(u sin(y)): the gradient of u is sin(y), so rows have to be in their places. */
static dra_value scanned(dra_graph *g, const args *a, dra_value h, dra_value x, dra_value w,
                         dra_value u)
{
    const dra_value xs[] = {x, u};
    dra_value       last, y[2];
    dra_scan(g,
             &(dra_scan_config){.length = a->T,
                                .carries = 1,
                                .xs = 2,
                                .constants = 1,
                                .ys = 2,
                                .carry = &h,
                                .x = xs,
                                .constant = &w,
                                .reverse = a->reverse,
                                .border = a->border,
                                .body = step},
             &last, y);
    return dra_add(g, dra_sum_all(g, last), dra_sum_all(g, dra_mul(g, u, dra_sin(g, y[0]))));
}

static dra_value unrolled(dra_graph *g, const args *a, dra_value h, dra_value x, dra_value w,
                          dra_value u)
{
    dra_value sum = dra_number(g, 0), next, y[2];
    for (int64_t s = 0; s < a->T; s++) {
        const int64_t   t = a->reverse ? a->T - 1 - s : s;
        const dra_value xs[] = {row(g, x, t), row(g, u, t)};
        step(g, NULL, &h, xs, &w, &next, y);
        sum = dra_add(g, sum, dra_sum_all(g, dra_mul(g, xs[1], dra_sin(g, y[0]))));
        h = next;
    }
    return dra_add(g, sum, dra_sum_all(g, h));
}

enum { INPUTS = 4 };
static const char *const inputs[INPUTS] = {"h", "x", "w", "u"};

static check_program both(const args *a, int64_t count[INPUTS])
{
    dra_graph      *g = check_graph();
    const dra_shape shape[INPUTS] = {DRA_SHAPE(B, C), stored(a), DRA_SHAPE(C),
                                     DRA_SHAPE(a->T, B, C)};
    dra_value       in[INPUTS], d[INPUTS], loss;
    char            name[32];
    for (int i = 0; i < INPUTS; i++) {
        in[i] = check_real(g, inputs[i], shape[i]);
        count[i] = dra_shape_count(&shape[i]);
    }
    for (int k = 0; k < 2; k++) {
        const dra_value x = as_rows(g, a, in[1]);
        loss = (k ? unrolled : scanned)(g, a, in[0], x, in[2], in[3]);
        dra_gradient(g, 1, &loss, NULL, INPUTS, in, d);
        for (int i = 0; i < INPUTS; i++) {
            snprintf(name, sizeof name, "d%s%s", inputs[i], k ? " unrolled" : "");
            dra_output(g, name, d[i]);
        }
    }
    return check_compile(g, 2);
}

/* Three runs: a device may walk a program, capture it and replay it. */
static void compare(const args *a)
{
    int64_t       count[INPUTS];
    check_program p = both(a, count);
    dra_real     *value[INPUTS];
    uint64_t      seed = 5;
    for (int i = 0; i < INPUTS; i++) {
        value[i] = calloc((size_t)count[i], sizeof *value[i]);
        check_bind(&p, inputs[i], value[i], (size_t)count[i] * sizeof *value[i]);
    }
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < INPUTS; i++)
            for (int64_t k = 0; k < count[i]; k++)
                value[i][k] = (dra_real)(check_random(&seed) - 0.5);
        check_run(&p);
        for (int i = 0; i < INPUTS; i++) {
            char    name[2][32];
            double *want = calloc((size_t)count[i], sizeof *want);
            snprintf(name[0], sizeof name[0], "d%s", inputs[i]);
            snprintf(name[1], sizeof name[1], "d%s unrolled", inputs[i]);
            const dra_real *b = check_result(&p, name[1]);
            for (int64_t k = 0; k < count[i]; k++) want[k] = (double)b[k];
            /* dw is a sum over all steps, in another order */
            check_close(name[0], count[i], check_result(&p, name[0]), want, 1e-5);
            free(want);
        }
    }
    check_free(&p);
    for (int i = 0; i < INPUTS; i++) free(value[i]);
}

static void lengths(void **state)
{
    static const int64_t length[] = {1, P - 1, P, P + 1, 2 * P, 3 * P + 5};
    for (size_t i = 0; i < COUNT(length); i++)
        for (int reverse = 0; reverse < 2; reverse++) compare(&(args){length[i], 0, reverse});
}

static void borders(void **state)
{
    static const int64_t border[] = {1, 3, 4, P - 1, P, P + 2, 2 * P, 1000};
    for (size_t i = 0; i < COUNT(border); i++)
        for (int reverse = 0; reverse < 2; reverse++)
            compare(&(args){3 * P + 5, border[i], reverse});
}

static void layouts(void **state)
{
    for (layout l = PLAIN; l < LAYOUTS; l++)
        for (int reverse = 0; reverse < 2; reverse++) compare(&(args){2 * P + 3, 5, reverse, l});
}

/* Its gradient is a scan over segments, with scans over their steps inside: all have pieces. */
static void pieces_in_pieces(void **state)
{
    compare(&(args){2 * P * (P + 1) + 7, P + 1, false});
    compare(&(args){2 * P * (P + 1) + 7, P + 1, true, ACROSS});
}

/* ---- against loops: scans and conds inside of each other ------------------------------------- */

enum { OUTER = 2 * P + 1, INNER = P + 3 };

static void inner_step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                       const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = dra_add(g, dra_mul(g, carry[0], constant[0]), x[0]);
    y[0] = carry_out[0];
}

static void outer_step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                       const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    dra_value last;
    dra_scan(g,
             &(dra_scan_config){.length = INNER,
                                .carries = 1,
                                .xs = 1,
                                .constants = 1,
                                .ys = 1,
                                .carry = carry,
                                .x = x,
                                .constant = constant,
                                .reverse = true,
                                .body = inner_step},
             &last, y);
    carry_out[0] = dra_sin(g, last);
}

static void build_nested(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_scan(g,
             &(dra_scan_config){.length = OUTER,
                                .carries = 1,
                                .xs = 1,
                                .constants = 1,
                                .ys = 1,
                                .carry = &in[0],
                                .x = &in[1],
                                .constant = &in[2],
                                .body = outer_step},
             &out[0], &out[1]);
}

static void oracle_nested(const void *user, const check_tensor *in, check_tensor *out)
{
    for (int64_t c = 0; c < C; c++) {
        double h = in[0].at[c];
        for (int64_t t = 0; t < OUTER; t++) {
            for (int64_t s = INNER - 1; s >= 0; s--) {
                const int64_t at = (t * INNER + s) * C + c;
                h = h * in[2].at[c] + in[1].at[at];
                out[1].at[at] = h;
            }
            h = sin(h);
        }
        out[0].at[c] = h;
    }
}

static void bend(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    out[0] = dra_tanh(g, dra_add(g, in[0], in[1]));
}

static void step_with_cond(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                           const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const dra_value in[] = {carry[0], x[0]};
    dra_cond(g, x[1], bend, NULL, 2, in, 1, carry, carry_out);
    y[0] = dra_mul(g, carry_out[0], x[0]);
}

static void scan_with_cond(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    dra_scan(g,
             &(dra_scan_config){.length = OUTER,
                                .carries = 1,
                                .xs = 2,
                                .ys = 1,
                                .carry = &in[0],
                                .x = &in[1],
                                .body = step_with_cond},
             &out[0], &out[1]);
}

/* A scan in a cond, with a cond in each step. */
static void build_cond(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_cond(g, in[3], scan_with_cond, NULL, 3, in, 2, in, out);
}

static void oracle_cond(const void *user, const check_tensor *in, check_tensor *out)
{
    const bool runs = in[3].at[0] != 0;
    for (int64_t c = 0; c < C; c++) {
        double h = in[0].at[c];
        for (int64_t t = 0; t < OUTER; t++) {
            const double x = in[1].at[t * C + c];
            if (runs && in[2].at[t] != 0) h = tanh(h + x);
            out[1].at[t * C + c] = runs ? h * x : x;
        }
        out[0].at[c] = h;
    }
}

/* ---- many values, and none ------------------------------------------------------------------- */

enum { MANY = 9 }; /* more than one launch copies */

static void many_steps(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                       const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    for (int i = 0; i < MANY; i++) {
        carry_out[i] = dra_add(g, carry[(i + 1) % MANY], x[i]);
        y[i] = dra_mul(g, carry[i], x[i]);
    }
}

static void build_many(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_value carry[MANY], x[MANY], last[MANY], y[MANY];
    for (int i = 0; i < MANY; i++) {
        carry[i] = dra_mul(g, in[0], dra_number(g, i + 1));
        x[i] = dra_mul(g, in[1], dra_number(g, i - 4));
    }
    dra_scan(g,
             &(dra_scan_config){.length = OUTER,
                                .carries = MANY,
                                .xs = MANY,
                                .ys = MANY,
                                .carry = carry,
                                .x = x,
                                .body = many_steps},
             last, y);
    out[0] = last[0], out[1] = last[MANY - 1], out[2] = y[2], out[3] = y[MANY - 1];
}

static void oracle_many(const void *user, const check_tensor *in, check_tensor *out)
{
    for (int64_t c = 0; c < C; c++) {
        double h[MANY], next[MANY];
        for (int i = 0; i < MANY; i++) h[i] = in[0].at[c] * (i + 1);
        for (int64_t t = 0; t < OUTER; t++) {
            const double x = in[1].at[t * C + c];
            for (int i = 0; i < MANY; i++) next[i] = h[(i + 1) % MANY] + x * (i - 4);
            out[2].at[t * C + c] = h[2] * x * (2 - 4);
            out[3].at[t * C + c] = h[MANY - 1] * x * (MANY - 5);
            memcpy(h, next, sizeof h);
        }
        out[0].at[c] = h[0];
        out[1].at[c] = h[MANY - 1];
    }
}

static void alone(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                  const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = dra_sin(g, dra_add(g, carry[0], dra_number(g, 0.5)));
}

/* Neither x nor y; an odd number of pieces and a rest. */
static void build_alone(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    dra_scan(g,
             &(dra_scan_config){
                 .length = 3 * P + 1, .carries = 1, .carry = &in[0], .border = 7, .body = alone},
             &out[0], NULL);
}

static void oracle_alone(const void *user, const check_tensor *in, check_tensor *out)
{
    for (int64_t c = 0; c < C; c++) {
        double h = in[0].at[c];
        for (int t = 0; t < 3 * P + 1; t++) h = sin(h + 0.5);
        out[0].at[c] = h;
    }
}

static const double on[] = {1}, off[] = {0};

static const check_case nested_cases[] = {
    {"two loops", 3, {{{1, {C}}}, {{3, {OUTER, INNER, C}}}, {{1, {C}}}}}};
static const check_case cond_cases[] = {
    {"on",
     4,
     {{{1, {C}}},
      {{2, {OUTER, C}}},
      {{1, {OUTER}}, CHECK_I32, .lo = 0, .hi = 1},
      {{0}, CHECK_I32, .values = on}}},
    {"off",
     4,
     {{{1, {C}}},
      {{2, {OUTER, C}}},
      {{1, {OUTER}}, CHECK_I32, .lo = 0, .hi = 1},
      {{0}, CHECK_I32, .values = off}}},
};
static const check_case many_cases[] = {{"nine of each", 2, {{{1, {C}}}, {{2, {OUTER, C}}}}}};
static const check_case alone_cases[] = {{"a carry alone", 1, {{{1, {C}}}}}};

int main(void)
{
    const check_spec specs[] = {
        {"scan in a scan", 2, build_nested, oracle_nested, nested_cases, COUNT(nested_cases)},
        {"scan and cond", 2, build_cond, oracle_cond, cond_cases, COUNT(cond_cases)},
        {"many values", 4, build_many, oracle_many, many_cases, COUNT(many_cases)},
        {"no rows", 1, build_alone, oracle_alone, alone_cases, COUNT(alone_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(borders),
        cmocka_unit_test(layouts),
        cmocka_unit_test(pieces_in_pieces),
    };
    setenv("DRA_CUDA_SCAN", "16", 0); /* P, unless somebody tries another */
    return check_main("scan pieces", specs, COUNT(specs), tests, COUNT(tests));
}
