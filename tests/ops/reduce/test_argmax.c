/* argmax against a plain search. */
#include "check.h"

#include <math.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_argmax(g, in[0]);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in);
    for (int64_t r = 0; r < out->count; r++) {
        const double *x = in->at + r * C;
        int64_t       best = 0;
        for (int64_t i = C - 1; i >= 0; i--)
            if (x[i] >= x[best]) best = i; /* from the end, so that the first one stays */
        for (int64_t i = C - 1; i >= 0; i--)
            if (isnan(x[i])) best = i;
        out->at[r] = (double)best;
    }
}

static const double ties[] = {1, 3, 3, 2, 0, 0, 0, 0, -2, -1, -1, -3};
static const double nans[] = {1, NAN, 3, NAN, NAN, 0, 5, 1, INFINITY, 2, NAN, 1};
static const double infinite[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -1e30,
                                  -INFINITY, INFINITY,  INFINITY,  0,         -INFINITY, INFINITY};

static const check_case cases[] = {
    {"odd width", 1, {{{3, {2, 3, 17}}}}},
    {"one row", 1, {{{1, {33}}}}},
    {"one value", 1, {{{1, {1}}}}},
    {"size 1", 1, {{{2, {5, 1}}}}},
    {"no rows", 1, {{{2, {0, 8}}}}},
    {"several tiles", 1, {{{2, {130, 257}}}}},
    {"long rows", 1, {{{2, {3, 20001}}}}},
    {"ties", 1, {{{2, {3, 4}}, .values = ties}}},
    {"NaN is the maximum", 1, {{{2, {3, 4}}, .values = nans}}},
    {"infinities", 1, {{{2, {3, 4}}, .values = infinite}}},
    {"rank 6", 1, {{{6, {2, 1, 2, 3, 1, 5}}}}},
};

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_argmax(g, check_real(g, "x", (dra_shape){0})).id, 0);
    check_refused(g, DRA_ERR_SHAPE,
                  "argmax: x " REAL " (), expected a last axis of 1 to 2147483647 elements");

    g = check_graph();
    dra_argmax(g, check_real(g, "x", DRA_SHAPE(3, 0)));
    check_refused(g, DRA_ERR_SHAPE,
                  "argmax: x " REAL " (3, 0), expected a last axis of 1 to 2147483647 elements");

    g = check_graph();
    dra_argmax(g, check_real(g, "x", DRA_SHAPE(2147483648)));
    check_refused(g, DRA_ERR_SHAPE,
                  "argmax: x " REAL
                  " (2147483648), expected a last axis of 1 to 2147483647 elements");

    g = check_graph();
    dra_argmax(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)));
    check_refused(g, DRA_ERR_DTYPE, "argmax: x is i32, expected " REAL);

    g = check_graph();
    dra_argmax(g, (dra_value){0});
    check_refused(g, DRA_ERR_VALUE, "argmax: input 0 is the null value");
}

int main(void)
{
    const check_spec        specs[] = {{"argmax", 1, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses)};
    return check_main("argmax", specs, COUNT(specs), tests, COUNT(tests));
}
