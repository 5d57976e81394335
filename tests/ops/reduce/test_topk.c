/* topk_threshold against sorting. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_topk_threshold(g, in[0], *(const int64_t *)a);
}

static int larger_first(const void *a, const void *b) /* NaN before all */
{
    const double x = *(const double *)a, y = *(const double *)b;
    if (isnan(x) || isnan(y)) return isnan(y) - isnan(x);
    return (x < y) - (x > y);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in);
    double       *row = calloc((size_t)C + 1, sizeof *row);
    for (int64_t r = 0; r < out->count; r++) {
        memcpy(row, in->at + r * C, (size_t)C * sizeof *row);
        qsort(row, (size_t)C, sizeof *row, larger_first);
        out->at[r] = row[*(const int64_t *)a - 1];
    }
    free(row);
}

static const int64_t k[] = {1, 2, 5, 17, 100};
static const double  ties[] = {1, 3, 3, 2, 3, 0, 0, 0, 0, 0};
static const double  odd[] = {1, NAN, 3, -INFINITY, 2, NAN, 0, INFINITY, NAN, -1};

static const check_case cases[] = {
    {"largest", 1, {{{3, {2, 3, 17}}}}, &k[0], .no_grad = true},
    {"second", 1, {{{3, {2, 3, 17}}}}, &k[1], .no_grad = true},
    {"fifth", 1, {{{3, {2, 3, 17}}}}, &k[2], .no_grad = true},
    {"smallest", 1, {{{3, {2, 3, 17}}}}, &k[3], .no_grad = true},
    {"one value", 1, {{{1, {1}}}}, &k[0], .no_grad = true},
    {"no rows", 1, {{{2, {0, 8}}}}, &k[1], .no_grad = true},
    {"several rows a tile", 1, {{{2, {203, 31}}}}, &k[2], .no_grad = true},
    {"long rows", 1, {{{2, {3, 5001}}}}, &k[4], .no_grad = true},
    {"all equal", 1, {{{2, {9, 257}}, .lo = 0.5, .hi = 0.5}}, &k[4], .no_grad = true},
    {"ties", 1, {{{2, {2, 5}}, .values = ties}}, &k[1], .no_grad = true},
    {"NaN is the largest", 1, {{{2, {2, 5}}, .values = odd}}, &k[1], .no_grad = true},
    {"infinities", 1, {{{2, {2, 5}}, .values = odd}}, &k[2], .no_grad = true},
};

/* x >= threshold keeps exactly k when there are no ties; the threshold stops the gradient. */
static void is_a_constant(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(1, 4)), dx = {0};
    dra_value  y = dra_sum_all(g, dra_mul(g, x, dra_topk_threshold(g, x, 2)));
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      in[] = {4, 1, 3, 2};
    const double  want[] = {3, 3, 3, 3}; /* of the product with a number, 3 */
    check_bind(&p, "x", in, sizeof in);
    check_run(&p);
    check_close("dx", 4, check_result(&p, "dx"), want, 1e-6);
    check_free(&p);
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_topk_threshold(g, check_real(g, "x", DRA_SHAPE(2, 3)), 4).id, 0);
    check_refused(g, DRA_ERR_VALUE, "topk_threshold: k = 4 of x " REAL " (2, 3), expected 1 to 3");

    g = check_graph();
    dra_topk_threshold(g, check_real(g, "x", DRA_SHAPE(2, 3)), 0);
    check_refused(g, DRA_ERR_VALUE, "topk_threshold: k = 0 of x " REAL " (2, 3), expected 1 to 3");

    g = check_graph();
    dra_topk_threshold(g, check_real(g, "x", (dra_shape){0}), 1);
    check_refused(g, DRA_ERR_SHAPE, "topk_threshold: x " REAL " () has no axis");

    g = check_graph();
    dra_topk_threshold(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)), 1);
    check_refused(g, DRA_ERR_DTYPE, "topk_threshold: x is i32, expected " REAL);

    g = check_graph();
    dra_topk_threshold(g, (dra_value){0}, 1);
    check_refused(g, DRA_ERR_VALUE, "topk_threshold: input 0 is the null value");
}

int main(void)
{
    const check_spec        specs[] = {{"topk", 1, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_a_constant), cmocka_unit_test(refuses)};
    return check_main("topk", specs, COUNT(specs), tests, COUNT(tests));
}
