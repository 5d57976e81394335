/* is_finite: numbers of all sizes, infinities, NaN; and the guard it is for. */
#include "check.h"

#include <float.h>
#include <math.h>

static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_is_finite(g, in[0]);
    out[1] = dra_select(g, out[0], in[0], dra_number(g, 0)); /* what is not becomes 0 */
}

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < in->count; i++) {
        out[0].at[i] = isfinite(in->at[i]) != 0;
        out[1].at[i] = isfinite(in->at[i]) ? in->at[i] : 0;
    }
}

static const double specials[] = {0,   -0.0,    1,        -1,      INFINITY, -INFINITY,
                                  NAN, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-40,    2};

static const check_case cases[] = {
    {"numbers", 1, {{{3, {2, 3, 17}}}}},
    {"specials", 1, {{{2, {3, 4}}, .values = specials}}, .no_grad = true},
    {"one value", 1, {{{1, {1}}}}},
    {"nothing", 1, {{{2, {0, 8}}}}},
    {"several tiles", 1, {{{2, {130, 257}}}}},
};

static void refuses_integers(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_is_finite(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3))).id, 0);
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_DTYPE);
    dra_graph_destroy(g);
}

int main(void)
{
    const check_spec        specs[] = {{"is_finite", 2, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses_integers)};
    return check_main("finite", specs, COUNT(specs), tests, COUNT(tests));
}
