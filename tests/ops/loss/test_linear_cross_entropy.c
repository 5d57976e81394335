/* The fused head against its formula in double, and against cross_entropy(linear(x, w)). */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#define TOLERANCE 1e-12
#else
#define REAL "f32"
#define TOLERANCE 1e-5
#endif

static const dra_cross_entropy_config ignoring = {.ignore = 2, .use_ignore = true};
static const dra_cross_entropy_config smooth = {.smoothing = 0.1};
static const dra_cross_entropy_config both = {.ignore = 2, .use_ignore = true, .smoothing = 0.3};

static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_linear_cross_entropy(g, in[0], in[1], in[2], args);
}

static double row_loss(const dra_cross_entropy_config *k, int64_t C, int64_t V, const double *x,
                       const double *w, int target)
{
    double *z = calloc((size_t)V + 1, sizeof *z), m = -INFINITY, sum = 0, loss = 0;
    for (int64_t i = 0; i < V * C; i++) z[i / C] += x[i % C] * w[i];
    for (int64_t v = 0; v < V; v++) m = fmax(m, z[v]);
    for (int64_t v = 0; v < V; v++) sum += exp(z[v] - m);
    for (int64_t v = 0; v < V; v++) {
        const double q = (v == target ? 1 - k->smoothing : 0) + k->smoothing / (double)V;
        loss -= q * (z[v] - m - log(sum));
    }
    free(z);
    return loss;
}

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    static const dra_cross_entropy_config usual = {0};
    const dra_cross_entropy_config       *k = args ? args : &usual;
    const int64_t                         V = in[1].shape.dim[0], C = in[1].shape.dim[1];
    double                                count = 0;
    for (int64_t n = 0; n < in[2].count; n++) {
        const int target = (int)in[2].at[n];
        if (k->use_ignore && target == k->ignore) continue;
        out->at[0] += row_loss(k, C, V, in[0].at + n * C, in[1].at, target);
        count++;
    }
    out->at[0] /= fmax(count, 1);
}

/* Targets are 0..3 unless said otherwise. */
#define TARGET(...)                                                                                \
    {                                                                                              \
        {__VA_ARGS__}, CHECK_I32                                                                   \
    }

static const double all_ignored[] = {2, 2, 2, 2};

static const check_case cases[] = {
    {"odd sizes", 3, {{{3, {2, 3, 5}}}, {{2, {7, 5}}}, TARGET(2, {2, 3})}, NULL},
    {"one row", 3, {{{1, {5}}}, {{2, {7, 5}}}, TARGET(0)}, NULL},
    {"one value",
     3,
     {{{2, {1, 1}}}, {{2, {1, 1}}}, {{1, {1}}, CHECK_I32, .values = (const double[]){0}}},
     NULL},
    {"no rows", 3, {{{2, {0, 5}}}, {{2, {7, 5}}}, TARGET(1, {0})}, NULL},
    {"no rows, ignoring", 3, {{{2, {0, 5}}}, {{2, {7, 5}}}, TARGET(1, {0})}, &ignoring},
    {"no channels", 3, {{{2, {300, 0}}}, {{2, {7, 0}}}, TARGET(1, {300})}, NULL},
    {"one block", 3, {{{2, {512, 3}}}, {{2, {5, 3}}}, TARGET(1, {512})}, NULL},
    {"several blocks", 3, {{{2, {1100, 3}}}, {{2, {5, 3}}}, TARGET(1, {1100})}, &both},
    {"several tiles",
     3,
     {{{2, {70, 130}}}, {{2, {133, 130}}}, {{1, {70}}, CHECK_I32, .lo = 1, .hi = 132}},
     NULL},
    {"saturated",
     3,
     {{{2, {20, 5}}, .lo = -20, .hi = 20}, {{2, {7, 5}}, .lo = -20, .hi = 20}, TARGET(1, {20})},
     NULL},
    {"ignoring", 3, {{{2, {20, 5}}}, {{2, {7, 5}}}, TARGET(1, {20})}, &ignoring},
    {"ignoring all",
     3,
     {{{2, {4, 5}}}, {{2, {7, 5}}}, {{1, {4}}, CHECK_I32, .values = all_ignored}},
     &ignoring},
    {"no class, all ignored",
     3,
     {{{2, {4, 5}}}, {{2, {0, 5}}}, {{1, {4}}, CHECK_I32, .values = all_ignored}},
     &ignoring},
    {"smooth", 3, {{{2, {20, 5}}}, {{2, {7, 5}}}, TARGET(1, {20})}, &smooth},
    {"smooth and ignoring", 3, {{{3, {5, 4, 5}}}, {{2, {7, 5}}}, TARGET(2, {5, 4})}, &both},
};

/* ---- the same as the composition ------------------------------------------------------------- */

enum { N = 301, C = 19, V = 37 };

typedef dra_value (*head)(dra_graph *g, dra_value x, dra_value w, dra_value target,
                          const dra_cross_entropy_config *config);

static dra_value composed(dra_graph *g, dra_value x, dra_value w, dra_value target,
                          const dra_cross_entropy_config *config)
{
    return dra_cross_entropy(g, dra_linear(g, x, w, (dra_value){0}), target, config);
}

/* With what pulls the largest logit in full: its mean over rows, all of which count. */
static dra_value pulled(dra_graph *g, dra_value x, dra_value w, dra_value target,
                        const dra_cross_entropy_config *config)
{
    const dra_value z = dra_linear(g, x, w, (dra_value){0});
    const dra_value top = dra_max(g, z, (dra_axes){.n = 1, .axis = {-1}});
    const dra_value loss = dra_cross_entropy(g, z, target, NULL);
    return dra_add(g, loss,
                   dra_affine(g, dra_sum_all(g, dra_square(g, top)), config->l2wrap / 2 / N, 0));
}

static dra_real x_data[N * C], w_data[V * C];
static uint16_t w_half[V * C]; /* in bf16 */
static int32_t  target_data[N];

/* loss, dx, dw of 1.7 times the loss; w of a given dtype, products of a given precision */
static check_program run_head_in(head h, const dra_cross_entropy_config *config, dra_dtype dtype,
                                 dra_precision precision)
{
    dra_graph *g = check_graph();
    dra_value  x[] = {check_real(g, "x", DRA_SHAPE(7, N / 7, C)),
                      dra_input(g, "w", dtype, DRA_SHAPE(V, C))};
    dra_set_precision(g, precision);
    dra_value loss = h(g, x[0], x[1], dra_input(g, "t", DRA_I32, DRA_SHAPE(7, N / 7)), config);
    dra_value y = dra_affine(g, loss, 1.7, 0), dx[2];
    dra_gradient(g, 1, &y, NULL, 2, x, dx);
    dra_output(g, "loss", loss);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "dw", dx[1]);
    check_program p = check_compile(g, 2);
    check_bind(&p, "x", x_data, sizeof x_data);
    if (dtype == DRA_REAL)
        check_bind(&p, "w", w_data, sizeof w_data);
    else
        check_bind(&p, "w", w_half, sizeof w_half);
    check_bind(&p, "t", target_data, sizeof target_data);
    check_run(&p);
    return p;
}

static check_program run_head(head h, const dra_cross_entropy_config *config)
{
    return run_head_in(h, config, DRA_REAL, DRA_PRECISION_FULL);
}

static void fill_inputs(int32_t classes)
{
    uint64_t seed = 3;
    for (int i = 0; i < N * C; i++) x_data[i] = (dra_real)(2 * check_random(&seed) - 1);
    for (int i = 0; i < V * C; i++) w_data[i] = (dra_real)(2 * check_random(&seed) - 1);
    for (int i = 0; i < V * C; i++) w_half[i] = dra_f32_to_bf16((float)w_data[i]);
    for (int i = 0; i < N; i++) target_data[i] = (int32_t)(check_random(&seed) * classes);
}

static void compare_within(check_program *fused, check_program *plain, const char *name, int64_t n,
                           double tolerance)
{
    const dra_real *want = check_result(plain, name);
    double         *wide = calloc((size_t)n, sizeof *wide);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)want[i];
    check_close(name, n, check_result(fused, name), wide, tolerance);
    free(wide);
}

static void compare(check_program *fused, check_program *plain, const char *name, int64_t n)
{
    compare_within(fused, plain, name, n, TOLERANCE);
}

static void equals_the_composition(void **state)
{
    const dra_cross_entropy_config *configs[] = {NULL, &ignoring, &smooth, &both};
    for (size_t i = 0; i < COUNT(configs); i++) {
        fill_inputs(i % 2 ? 5 : V); /* of 5 classes, every fifth row is ignored */
        check_program fused = run_head(dra_linear_cross_entropy, configs[i]);
        check_program plain = run_head(composed, configs[i]);
        compare(&fused, &plain, "loss", 1);
        compare(&fused, &plain, "dx", N * C);
        compare(&fused, &plain, "dw", V * C);
        check_free(&fused);
        check_free(&plain);
    }
}

/* Both losses have the gradient of loss + l2wrap / 2 mean(max^2), and show the loss alone. */
static void pulls_at_the_largest_logit(void **state)
{
    const dra_cross_entropy_config pulling = {.l2wrap = 0.3};
    fill_inputs(V);
    check_program fused = run_head(dra_linear_cross_entropy, &pulling);
    check_program rows = run_head(composed, &pulling), none = run_head(composed, NULL);
    check_program full = run_head(pulled, &pulling);
    compare(&fused, &none, "loss", 1);
    compare(&rows, &none, "loss", 1);
    compare(&fused, &full, "dx", N * C);
    compare(&fused, &full, "dw", V * C);
    compare(&rows, &full, "dx", N * C);
    compare(&rows, &full, "dw", V * C);
    assert_true(*(const dra_real *)check_result(&full, "loss") >
                *(const dra_real *)check_result(&none, "loss"));
    check_free(&fused);
    check_free(&rows);
    check_free(&none);
    check_free(&full);
}

/* In bf16, and with a head stored in bf16. The fused head rounds dZ before it is scaled by 1.7, the
 * composition afterwards: terms of the gradients differ by up to 2^-8 of themselves. A GPU also
 * stores logits in bf16. */
static void has_both_precisions(void **state)
{
    fill_inputs(V);
    check_program full = run_head(dra_linear_cross_entropy, NULL);
    for (int i = 0; i < 3; i++) {
        const dra_dtype     dtype = i ? DRA_BF16 : DRA_REAL;
        const dra_precision precision = i == 1 ? DRA_PRECISION_FULL : DRA_PRECISION_BF16;
        check_program       fused = run_head_in(dra_linear_cross_entropy, NULL, dtype, precision);
        check_program       plain = run_head_in(composed, NULL, dtype, precision);
        compare_within(&fused, &plain, "loss", 1, i != 1 && check_cuda() ? 4e-3 : TOLERANCE);
        compare_within(&fused, &plain, "dx", N * C, i == 1 ? TOLERANCE : 1e-2);
        compare_within(&fused, &plain, "dw", V * C, i == 1 ? TOLERANCE : 1e-2);
        assert_true(*check_result(&fused, "loss") != *check_result(&full, "loss"));
        compare_within(&fused, &full, "dw", V * C, 2e-2); /* 2^-8 in each factor */
        check_free(&fused);
        check_free(&plain);
    }
    check_free(&full);
}

static void nothing_counts(void **state)
{
    fill_inputs(5);
    for (int i = 0; i < N; i++) target_data[i] = ignoring.ignore;
    check_program p = run_head(dra_linear_cross_entropy, &ignoring);
    assert_true(*check_result(&p, "loss") == 0);
    for (int i = 0; i < N * C; i++) assert_true(check_result(&p, "dx")[i] == 0);
    for (int i = 0; i < V * C; i++) assert_true(check_result(&p, "dw")[i] == 0);
    check_free(&p);
}

/* ---- promises -------------------------------------------------------------------------------- */

static dra_memory_report memory_of(head h, int64_t tokens, int64_t classes)
{
    dra_graph *g = check_graph();
    dra_value  x[] = {check_real(g, "x", DRA_SHAPE(tokens, 4)),
                      check_real(g, "w", DRA_SHAPE(classes, 4))};
    dra_value  loss = h(g, x[0], x[1], dra_input(g, "t", DRA_I32, DRA_SHAPE(tokens)), NULL), dx[2];
    dra_gradient(g, 1, &loss, NULL, 2, x, dx);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "dw", dx[1]);
    dra_program *p = NULL;
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, NULL), DRA_OK);
    const dra_memory_report report = dra_program_memory(p);
    dra_program_destroy(p);
    dra_graph_destroy(g);
    return report;
}

/* A GPU, which likes large products, takes a fixed number of bytes of them at a time. */
static void never_holds_all_logits(void **state)
{
    const struct {
        int64_t tokens, classes;
        bool    cuda;
    } sizes[] = {{16384, 1001, false}, {65536, 50257, true}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const int64_t tokens = sizes[i].tokens, classes = sizes[i].classes;
        const size_t  all = (size_t)(tokens * classes) * sizeof(dra_real);
        if (check_cuda() && !sizes[i].cuda) continue;
        assert_true(memory_of(composed, tokens, classes).activations >= all);
        assert_true(memory_of(dra_linear_cross_entropy, tokens, classes).activations < all / 20);
    }
}

/* One product for the loss alone, three with both gradients. */
static double flops_of(bool dx_wanted, bool dw_wanted)
{
    dra_graph *g = check_graph();
    dra_value  x[] = {check_real(g, "x", DRA_SHAPE(N, C)), check_real(g, "w", DRA_SHAPE(V, C))};
    dra_value  t = dra_input(g, "t", DRA_I32, DRA_SHAPE(N)), dx[2];
    dra_value  loss = dra_linear_cross_entropy(g, x[0], x[1], t, NULL);
    dra_gradient(g, 1, &loss, NULL, 2, x, dx);
    dra_output(g, "loss", loss);
    if (dx_wanted) dra_output(g, "dx", dx[0]);
    if (dw_wanted) dra_output(g, "dw", dx[1]);
    check_program p = check_compile(g, 1);
    check_bind(&p, "x", x_data, sizeof x_data);
    check_bind(&p, "w", w_data, sizeof w_data);
    check_bind(&p, "t", target_data, sizeof target_data);
    dra_profile_enable(p.buffers, true);
    check_run(&p);
    dra_profile_row rows[8];
    double          flops = 0;
    const size_t    n = dra_profile_read(p.buffers, rows, COUNT(rows));
    for (size_t i = 0; i < n && i < COUNT(rows); i++)
        if (strcmp(rows[i].op, "linear_cross_entropy") == 0) flops = rows[i].flops;
    check_free(&p);
    return flops;
}

static void skips_gradients_nobody_reads(void **state)
{
    fill_inputs(V);
    assert_true(flops_of(false, false) == 2.0 * N * V * C);
    assert_true(flops_of(true, false) == 4.0 * N * V * C);
    assert_true(flops_of(false, true) == 4.0 * N * V * C);
    assert_true(flops_of(true, true) == 6.0 * N * V * C);
}

/* Tokens and channels far apart in memory: x is the transpose of a slice. */
static void takes_any_strides(void **state)
{
    enum { ROWS = 5, WIDTH = 3, CLASSES = 4 };
    const int32_t target[ROWS] = {3, 0, 2, 1, 3};
    dra_real      wide[(WIDTH + 2) * ROWS], w[CLASSES * WIDTH];
    dra_graph    *g = check_graph();
    dra_value     all = check_real(g, "x", DRA_SHAPE(WIDTH + 2, ROWS));
    dra_value     x = dra_transpose(g, dra_slice(g, all, 0, 1, WIDTH), 0, 1);
    dra_value     head_w = check_real(g, "w", DRA_SHAPE(CLASSES, WIDTH));
    dra_value     t = dra_input(g, "t", DRA_I32, DRA_SHAPE(ROWS));
    dra_output(g, "fused", dra_linear_cross_entropy(g, x, head_w, t, NULL));
    dra_output(g, "plain", composed(g, x, head_w, t, NULL));
    uint64_t seed = 9;
    for (size_t i = 0; i < COUNT(wide); i++) wide[i] = (dra_real)check_random(&seed);
    for (size_t i = 0; i < COUNT(w); i++) w[i] = (dra_real)check_random(&seed);
    int32_t       bound[ROWS];
    check_program p = check_compile(g, 1);
    memcpy(bound, target, sizeof bound);
    check_bind(&p, "x", wide, sizeof wide);
    check_bind(&p, "w", w, sizeof w);
    check_bind(&p, "t", bound, sizeof bound);
    check_run(&p);
    const double want = (double)*check_result(&p, "plain");
    check_close("loss", 1, check_result(&p, "fused"), &want, TOLERANCE);
    check_free(&p);
}

static void names_a_wrong_target(void **state)
{
    dra_error  err = {0};
    dra_graph *g = check_graph();
    fill_inputs(V);
    dra_output(g, "y",
               dra_linear_cross_entropy(g, check_real(g, "x", DRA_SHAPE(N, C)),
                                        check_real(g, "w", DRA_SHAPE(V, C)),
                                        dra_input(g, "t", DRA_I32, DRA_SHAPE(N)), NULL));
    check_program p = check_compile(g, 2);
    check_bind(&p, "x", x_data, sizeof x_data);
    check_bind(&p, "w", w_data, sizeof w_data);
    check_bind(&p, "t", target_data, sizeof target_data);
    target_data[270] = target_data[290] = V;
    assert_int_equal(check_try(&p, &err), DRA_ERR_INDEX);
    assert_string_equal(err.text, "linear_cross_entropy: target 37 of row 270, expected 0 to 36");
    target_data[270] = target_data[290] = 0;
    check_run(&p);
    check_free(&p);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    dra_linear_cross_entropy(g, check_real(g, "x", DRA_SHAPE(2, 4, 8)),
                             check_real(g, "w", DRA_SHAPE(8, 3)),
                             dra_input(g, "t", DRA_I32, DRA_SHAPE(2, 4)), NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "linear_cross_entropy: x " REAL " (8, 8), w " REAL
                  " (8, 3): expected x (..., C), w (V, C)");
    g = check_graph();
    dra_linear_cross_entropy(g, check_real(g, "x", DRA_SHAPE(2, 4, 8)),
                             check_real(g, "w", DRA_SHAPE(3, 8)),
                             dra_input(g, "t", DRA_I32, DRA_SHAPE(8)), NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "linear_cross_entropy: x " REAL
                  " (2, 4, 8), target i32 (8): expected x (..., C), target (...)");
    g = check_graph();
    dra_linear_cross_entropy(g, check_real(g, "x", DRA_SHAPE(4, 8)),
                             check_real(g, "w", DRA_SHAPE(3, 8)), check_real(g, "t", DRA_SHAPE(4)),
                             NULL);
    check_refused(g, DRA_ERR_DTYPE, "linear_cross_entropy: target is " REAL ", expected i32");
    g = check_graph();
    dra_linear_cross_entropy(g, check_real(g, "x", DRA_SHAPE(4, 8)),
                             dra_input(g, "w", DRA_I32, DRA_SHAPE(3, 8)),
                             dra_input(g, "t", DRA_I32, DRA_SHAPE(4)), NULL);
    check_refused(g, DRA_ERR_DTYPE,
                  "linear_cross_entropy: w is i32, expected " REAL ", bf16 or f16");
    g = check_graph();
    dra_linear_cross_entropy(g, check_real(g, "x", DRA_SHAPE(4, 8)), (dra_value){0},
                             dra_input(g, "t", DRA_I32, DRA_SHAPE(4)), NULL);
    check_refused(g, DRA_ERR_VALUE, "linear_cross_entropy: input 1 is the null value");
    g = check_graph();
    dra_linear_cross_entropy(
        g, check_real(g, "x", DRA_SHAPE(4, 8)), check_real(g, "w", DRA_SHAPE(3, 8)),
        dra_input(g, "t", DRA_I32, DRA_SHAPE(4)), &(dra_cross_entropy_config){.smoothing = -1});
    check_refused(g, DRA_ERR_VALUE, "linear_cross_entropy: smoothing -1, expected 0 to 1");
    g = check_graph();
    dra_linear_cross_entropy(g, check_real(g, "x", DRA_SHAPE(4, 0)),
                             check_real(g, "w", DRA_SHAPE(INT64_MAX / 64, 0)),
                             dra_input(g, "t", DRA_I32, DRA_SHAPE(4)), NULL);
    check_refused(g, DRA_ERR_MEMORY,
                  "linear_cross_entropy: w " REAL
                  " (144115188075855871, 0): 256 rows of logits overflow");
}

static void refuses_a_second_derivative(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(4, 8)), dx, sum, again;
    dra_value  y = dra_linear_cross_entropy(g, x, check_real(g, "w", DRA_SHAPE(3, 8)),
                                            dra_input(g, "t", DRA_I32, DRA_SHAPE(4)), NULL);
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    sum = dra_sum_all(g, dx);
    dra_gradient(g, 1, &sum, NULL, 1, &x, &again);
    check_refused(
        g, DRA_ERR_GRAD,
        "linear_cross_entropy: has no second derivative; use cross_entropy(linear(x, w))");
}

int main(void)
{
    const check_spec        specs[] = {{"loss", 1, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_composition),
        cmocka_unit_test(pulls_at_the_largest_logit),
        cmocka_unit_test(has_both_precisions),
        cmocka_unit_test(nothing_counts),
        cmocka_unit_test(never_holds_all_logits),
        cmocka_unit_test(skips_gradients_nobody_reads),
        cmocka_unit_test(takes_any_strides),
        cmocka_unit_test(names_a_wrong_target),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_a_second_derivative),
    };
    return check_main("linear_cross_entropy", specs, COUNT(specs), tests, COUNT(tests));
}
