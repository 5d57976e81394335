/* top_ids against a search for the largest that is left, of the first place. */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_top_ids(g, in[0], *(const int64_t *)a);
}

static int64_t next_largest(const double *x, int64_t C, const bool *taken)
{
    int64_t best = -1;
    for (int64_t i = 0; i < C; i++) {
        if (taken[i]) continue;
        if (best < 0 || x[i] > x[best] || (isnan(x[i]) && !isnan(x[best]))) best = i;
    }
    return best;
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in), k = *(const int64_t *)a, rows = check_rows(in);
    for (int64_t r = 0; r < rows; r++) {
        bool   *taken = calloc((size_t)C + 1, sizeof *taken);
        int64_t n = 0;
        for (int64_t j = 0; j < k; j++) taken[next_largest(in->at + r * C, C, taken)] = true;
        for (int64_t i = 0; i < C; i++)
            if (taken[i]) out->at[r * k + n++] = (double)i;
        free(taken);
    }
}

static const int64_t k[] = {1, 2, 5, 17, 8};
static const double  ties[] = {1, 3, 3, 2, 3, 0, 0, 0, 0, 0};
static const double  odd[] = {1, NAN, 3, -INFINITY, 2, NAN, 0, INFINITY, NAN, -1};

static const check_case cases[] = {
    {"largest", 1, {{{3, {2, 3, 17}}}}, &k[0], .no_grad = true},
    {"second", 1, {{{3, {2, 3, 17}}}}, &k[1], .no_grad = true},
    {"fifth", 1, {{{3, {2, 3, 17}}}}, &k[2], .no_grad = true},
    {"all", 1, {{{3, {2, 3, 17}}}}, &k[3], .no_grad = true},
    {"one value", 1, {{{1, {1}}}}, &k[0], .no_grad = true},
    {"no rows", 1, {{{2, {0, 8}}}}, &k[1], .no_grad = true},
    {"experts", 1, {{{2, {203, 64}}}}, &k[4], .no_grad = true},
    {"several tiles", 1, {{{2, {97, 513}}}}, &k[4], .no_grad = true},
    {"long rows", 1, {{{2, {3, 5001}}}}, &k[4], .no_grad = true},
    {"all equal", 1, {{{2, {9, 257}}, .lo = 0.5, .hi = 0.5}}, &k[4], .no_grad = true},
    {"ties", 1, {{{2, {2, 5}}, .values = ties}}, &k[1], .no_grad = true},
    {"NaN is the largest", 1, {{{2, {2, 5}}, .values = odd}}, &k[1], .no_grad = true},
    {"infinities", 1, {{{2, {2, 5}}, .values = odd}}, &k[2], .no_grad = true},
};

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_top_ids(g, check_real(g, "x", DRA_SHAPE(2, 3)), 4).id, 0);
    check_refused(g, DRA_ERR_VALUE, "top_ids: k = 4 of x " REAL " (2, 3), expected 1 to 3");
    g = check_graph();
    dra_top_ids(g, check_real(g, "x", DRA_SHAPE(2, 3)), 0);
    check_refused(g, DRA_ERR_VALUE, "top_ids: k = 0 of x " REAL " (2, 3), expected 1 to 3");
    g = check_graph();
    dra_top_ids(g, check_real(g, "x", (dra_shape){0}), 1);
    check_refused(g, DRA_ERR_SHAPE, "top_ids: x " REAL " () has no axis");
    g = check_graph();
    dra_top_ids(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)), 1);
    check_refused(g, DRA_ERR_DTYPE, "top_ids: x is i32, expected " REAL);
}

int main(void)
{
    const check_spec        specs[] = {{"top_ids", 1, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses)};
    return check_main("top_ids", specs, COUNT(specs), tests, COUNT(tests));
}
