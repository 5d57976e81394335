/* linear against sums written out, the layouts of its weights and bias, the products it takes. */
#include "check.h"

#include <string.h>

#include "base/shape.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const bool with_bias = true; /* the argument of cases that have one */

static void build_linear(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_value none = {0};
    out[0] = dra_linear(g, in[0], in[1], args ? in[2] : none);
}

static void oracle_linear(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t O = in[1].shape.dim[0], I = in[1].shape.dim[1];
    for (int64_t i = 0; i < out->count; i++) {
        out->at[i] = args ? in[2].at[i % O] : 0;
        for (int64_t k = 0; k < I; k++)
            out->at[i] += in[0].at[i / O * I + k] * in[1].at[i % O * I + k];
    }
}

static const check_case linear_cases[] = {
    {"with bias", 3, {{{3, {2, 3, 5}}}, {{2, {7, 5}}}, {{1, {7}}}}, &with_bias},
    {"without bias", 2, {{{3, {2, 3, 5}}}, {{2, {7, 5}}}}, NULL},
    {"a vector", 3, {{{1, {5}}}, {{2, {7, 5}}}, {{1, {7}}}}, &with_bias},
    {"one value", 3, {{{2, {1, 1}}}, {{2, {1, 1}}}, {{1, {1}}}}, &with_bias},
    {"no rows", 3, {{{3, {2, 0, 5}}}, {{2, {7, 5}}}, {{1, {7}}}}, &with_bias},
    {"no input", 3, {{{2, {3, 0}}}, {{2, {7, 0}}}, {{1, {7}}}}, &with_bias},
    {"no output", 3, {{{2, {3, 5}}}, {{2, {0, 5}}}, {{1, {0}}}}, &with_bias},
    {"several tiles", 3, {{{3, {2, 40, 130}}}, {{2, {150, 130}}}, {{1, {150}}}}, &with_bias},
};

/* ---- promises -------------------------------------------------------------------------------- */

enum { K = 300, N = 250, MOST = 9 }; /* w is large enough to be cut along k */

static void fill(dra_real *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
}

/* y = x w^T + b for w stored as (O, I), or as (I, O), the middle one of three in a tensor. */
static void linear_of(bool of_three, int threads, int64_t M, dra_dtype dtype, dra_real *x, void *w,
                      dra_real *bias, dra_real *y)
{
    dra_graph   *g = check_graph();
    const size_t size = dra_dtype_bytes(dtype);
    dra_value    v = dra_parameter(g, "w", dtype, of_three ? DRA_SHAPE(K, 3 * N) : DRA_SHAPE(N, K));
    if (of_three) v = dra_slice(g, dra_transpose(g, v, 0, 1), 0, N, N);
    dra_output(
        g, "y",
        dra_linear(g, check_real(g, "x", DRA_SHAPE(M, K)), v, check_real(g, "b", DRA_SHAPE(N))));
    check_program p = check_compile(g, threads);
    check_bind(&p, "x", x, (size_t)M * K * sizeof *x);
    check_bind(&p, "w", w, (size_t)K * N * size * (of_three ? 3 : 1));
    check_bind(&p, "b", bias, N * sizeof *bias);
    check_run(&p);
    memcpy(y, check_result(&p, "y"), (size_t)M * N * sizeof *y);
    check_free(&p);
}

/* The same numbers give the same bits in any layout, for any number of rows and threads. */
static void bits_do_not_depend_on_the_layout_of_weights(void **state)
{
    static const dra_dtype dtypes[] = {DRA_REAL, DRA_BF16, DRA_F16};
    static const int64_t   counts[] = {1, 2, 8, 9};
    static const int       threads[] = {1, 2, 7};
    static dra_real        x[9 * K], bias[N], along[9 * N], across[9 * N];
    static unsigned char   w[N * K * sizeof(dra_real)], three[3 * N * K * sizeof(dra_real)];
    fill(x, 9 * K, 1);
    fill(bias, N, 2);
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        const size_t size = dra_dtype_bytes(dtypes[d]);
        uint64_t     seed = 3;
        for (size_t n = 0; n < N; n++)
            for (size_t k = 0; k < K; k++) {
                const float    f = (float)(2 * check_random(&seed) - 1);
                const dra_real r = (dra_real)f;
                const uint16_t h = d == 1 ? dra_f32_to_bf16(f) : dra_f32_to_f16(f);
                memcpy(w + (n * K + k) * size, d ? (const void *)&h : &r, size);
                memcpy(three + (k * 3 * N + N + n) * size, d ? (const void *)&h : &r, size);
            }
        for (size_t i = 0; i < COUNT(counts); i++)
            for (size_t t = 0; t < COUNT(threads); t++) {
                linear_of(false, threads[t], counts[i], dtypes[d], x, w, bias, along);
                linear_of(true, threads[t], counts[i], dtypes[d], x, three, bias, across);
                check_reals(across, along, (size_t)(counts[i] * N) * sizeof *along);
            }
    }
}

/* A bias that is one number, and one in every third place of memory. */
static void bias_may_have_any_stride(void **state)
{
    enum { ROWS = 20, I = 6, O = 5 };
    dra_real   x[ROWS * I], w[O * I], spread[O * 3];
    dra_graph *g = check_graph();
    dra_value  v[] = {check_real(g, "x", DRA_SHAPE(ROWS, I)), check_real(g, "w", DRA_SHAPE(O, I))};
    dra_value  all = dra_transpose(g, check_real(g, "b", DRA_SHAPE(O, 3)), 0, 1);
    dra_value  bias[] = {dra_broadcast(g, dra_number(g, 0.5), DRA_SHAPE(O)),
                         dra_reshape(g, dra_slice(g, all, 0, 1, 1), DRA_SHAPE(O))};
    dra_output(g, "none", dra_linear(g, v[0], v[1], (dra_value){0}));
    dra_output(g, "number", dra_linear(g, v[0], v[1], bias[0]));
    dra_output(g, "spread", dra_linear(g, v[0], v[1], bias[1]));
    check_program p = check_compile(g, 1);
    fill(x, ROWS * I, 6);
    fill(w, O * I, 7);
    fill(spread, O * 3, 8);
    check_bind(&p, "x", x, sizeof x);
    check_bind(&p, "w", w, sizeof w);
    check_bind(&p, "b", spread, sizeof spread);
    check_run(&p);
    const dra_real *none = check_result(&p, "none");
    double          number[ROWS * O], third[ROWS * O];
    for (int i = 0; i < ROWS * O; i++) {
        number[i] = (double)none[i] + 0.5;
        third[i] = (double)none[i] + (double)spread[i % O * 3 + 1];
    }
    check_close("number", ROWS * O, check_result(&p, "number"), number, 1e-5);
    check_close("spread", ROWS * O, check_result(&p, "spread"), third, 1e-5);
    check_free(&p);
}

static double in_bf16(double x)
{
    return (double)dra_bf16_to_f32(dra_f32_to_bf16(dra_round_to_odd(x)));
}

/* Several products of one x are one instruction, which must not mix up what they share. */
static void several_products_of_one_x(void **state)
{
    enum { ROWS = 21, I = 40, MOST_OUT = 24 };
    static const int64_t     widths[] = {16, 5, MOST_OUT};
    static const char *const names[] = {"w0", "w1", "w2", "y0", "y1", "y2"};
    static dra_real          x[ROWS * I], w[3][MOST_OUT * I];
    dra_graph               *g = check_graph();
    dra_value                v = check_real(g, "x", DRA_SHAPE(ROWS, I));
    dra_set_precision(g, DRA_PRECISION_BF16);
    for (int k = 0; k < 3; k++)
        dra_output(
            g, names[3 + k],
            dra_linear(g, v, check_real(g, names[k], DRA_SHAPE(widths[k], I)), (dra_value){0}));
    check_program p = check_compile(g, 2);
    fill(x, ROWS * I, 11);
    check_bind(&p, "x", x, sizeof x);
    for (int k = 0; k < 3; k++) {
        fill(w[k], widths[k] * I, 12 + (uint64_t)k);
        check_bind(&p, names[k], w[k], (size_t)(widths[k] * I) * sizeof **w);
    }
    assert_int_equal(dra_program_memory(p.program).steps, 1);
    check_run(&p);
    for (int k = 0; k < 3; k++) {
        double want[ROWS * MOST_OUT] = {0};
        for (int64_t i = 0; i < ROWS * widths[k]; i++)
            for (int64_t j = 0; j < I; j++)
                want[i] += in_bf16((double)x[i / widths[k] * I + j]) *
                           in_bf16((double)w[k][i % widths[k] * I + j]);
        check_close(names[3 + k], ROWS * widths[k], check_result(&p, names[3 + k]), want, 1e-5);
    }
    check_free(&p);
}

/* The gradient of a stored factor is real, and of its shape. */
static void stored_factors_have_real_gradients(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(1, 2)), dw;
    dra_value  w = dra_parameter(g, "w", DRA_BF16, DRA_SHAPE(3, 2));
    dra_value  loss = dra_sum_all(g, dra_linear(g, x, w, (dra_value){0}));
    dra_gradient(g, 1, &loss, NULL, 1, &w, &dw);
    assert_int_equal(dra_dtype_of(g, dw), DRA_REAL);
    dra_output(g, "dw", dw);
    check_program p = check_compile(g, 1);
    dra_real      x_data[] = {2, 3};
    uint16_t      w_data[6] = {0};
    check_bind(&p, "x", x_data, sizeof x_data);
    check_bind(&p, "w", w_data, sizeof w_data);
    check_run(&p);
    for (int i = 0; i < 6; i++) assert_true(check_result(&p, "dw")[i] == x_data[i % 2]);
    check_free(&p);
}

/* Forward, dx and dw: three products of 2 rows O I flops, nothing summed or copied afterwards. */
static void check_three_products(bool linear)
{
    enum { B = 3, T = 4, I = 5, O = 6 };
    const dra_shape w_shape = linear ? DRA_SHAPE(O, I) : DRA_SHAPE(I, O);
    dra_graph      *g = check_graph();
    dra_value       x[] = {check_real(g, "x", DRA_SHAPE(B, T, I)), check_real(g, "w", w_shape)};
    dra_value y = linear ? dra_linear(g, x[0], x[1], (dra_value){0}) : dra_matmul(g, x[0], x[1]);
    dra_value up = check_real(g, "up", DRA_SHAPE(B, T, O)), dx[2];
    dra_gradient(g, 1, &y, &up, 2, x, dx);
    dra_output(g, "y", y);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "dw", dx[1]);
    check_program   p = check_compile(g, 1);
    static dra_real x_data[B * T * I], w_data[O * I], up_data[B * T * O];
    check_bind(&p, "x", x_data, sizeof x_data);
    check_bind(&p, "w", w_data, sizeof w_data);
    check_bind(&p, "up", up_data, sizeof up_data);
    dra_profile_enable(p.buffers, true);
    check_run(&p);
    dra_profile_row rows[4];
    assert_int_equal(dra_profile_read(p.buffers, rows, COUNT(rows)), 1);
    assert_string_equal(rows[0].op, "matmul");
    assert_int_equal(rows[0].calls, 3);
    assert_true(rows[0].flops == 3.0 * 2 * B * T * I * O);
    check_free(&p);
}

static void linear_takes_one_product_each_way(void **state) { check_three_products(true); }
static void one_b_for_all_takes_one_product(void **state) { check_three_products(false); }

static void linear_refuses(void **state)
{
    const dra_value none = {0};
    dra_graph      *g = check_graph();
    dra_linear(g, check_real(g, "x", DRA_SHAPE(4, 8)), check_real(g, "w", DRA_SHAPE(8, 3)), none);
    check_refused(g, DRA_ERR_SHAPE,
                  "linear: x " REAL " (4, 8), w " REAL " (8, 3): expected x (..., I), w (O, I)");
    g = check_graph();
    dra_linear(g, check_real(g, "x", (dra_shape){0}), check_real(g, "w", DRA_SHAPE(8, 1)), none);
    check_refused(g, DRA_ERR_SHAPE,
                  "linear: x " REAL " (), w " REAL " (8, 1): expected x (..., I), w (O, I)");
    g = check_graph();
    dra_linear(g, check_real(g, "x", DRA_SHAPE(4, 8)), check_real(g, "w", DRA_SHAPE(3, 8)),
               check_real(g, "b", DRA_SHAPE(8)));
    check_refused(g, DRA_ERR_SHAPE,
                  "linear: w " REAL " (3, 8), b " REAL " (8): expected w (O, I), b (O)");
    g = check_graph();
    dra_linear(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(4, 8)), check_real(g, "w", DRA_SHAPE(3, 8)),
               none);
    check_refused(g, DRA_ERR_DTYPE, "linear: x is i32, expected " REAL ", bf16 or f16");
    g = check_graph();
    dra_linear(g, check_real(g, "x", DRA_SHAPE(4, 8)), check_real(g, "w", DRA_SHAPE(3, 8)),
               dra_input(g, "b", DRA_BF16, DRA_SHAPE(3)));
    check_refused(g, DRA_ERR_DTYPE, "linear: b is bf16, expected " REAL);
    g = check_graph();
    dra_linear(g, check_real(g, "x", DRA_SHAPE(4, 8)), none, none);
    check_refused(g, DRA_ERR_VALUE, "linear: input 1 is the null value");
}

int main(void)
{
    const check_spec spec = {"linear",           1, build_linear, oracle_linear, linear_cases,
                             COUNT(linear_cases)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_layout_of_weights),
        cmocka_unit_test(bias_may_have_any_stride),
        cmocka_unit_test(several_products_of_one_x),
        cmocka_unit_test(stored_factors_have_real_gradients),
        cmocka_unit_test(linear_takes_one_product_each_way),
        cmocka_unit_test(one_b_for_all_takes_one_product),
        cmocka_unit_test(linear_refuses),
    };
    return check_main("linear", &spec, 1, tests, COUNT(tests));
}
