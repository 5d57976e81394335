/* The maps of every level against the same formulas in double: millions of points of all sizes,
 * the largest error printed in units of the last place and held against what is promised, then
 * special values, and that a result depends on its element alone. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/simd.h"

#ifdef DRA_REAL_DOUBLE

static void nothing_to_try(void **state) { skip(); } /* the reference has no maps */

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_to_try)};
    return check_main("simd maps", NULL, 0, tests, COUNT(tests));
}

#else

/* ---- the formulas; `size` is what errors are measured by: terms may cancel in the result ----- */

typedef struct exact {
    double y, size;
} exact;

static exact plain(double y) { return (exact){y, fabs(y)}; }

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double below(double x) { return erfc(-x * 0.70710678118654752440) / 2; } /* P(X < x) */
static double gelu_u(double x) { return 1.59576912160573071176 * (x + 0.044715 * x * x * x); }

static exact e_neg(double x) { return plain(-x); }
static exact e_abs(double x) { return plain(fabs(x)); }
static exact e_exp(double x) { return plain(exp(x)); }
static exact e_log(double x) { return plain(log(x)); }
static exact e_sqrt(double x) { return plain(sqrt(x)); }
static exact e_rsqrt(double x) { return plain(1 / sqrt(x)); }
static exact e_square(double x) { return plain(x * x); }
static exact e_reciprocal(double x) { return plain(1 / x); }
static exact e_tanh(double x) { return plain(tanh(x)); }
static exact e_erf(double x) { return plain(erf(x)); }
static exact e_sigmoid(double x) { return plain(sigmoid(x)); }
static exact e_softplus(double x) { return plain((x > 0 ? x : 0) + log1p(exp(-fabs(x)))); }
static exact e_log_sigmoid(double x) { return plain(-e_softplus(-x).y); }
static exact e_relu(double x) { return plain(x < 0 ? 0 : x); }
static exact e_relu2(double x) { return plain(x < 0 ? 0 : x * x); }
static exact e_elu(double x) { return plain(x > 0 ? x : expm1(x)); }
static exact e_silu(double x) { return plain(x * sigmoid(x)); }
static exact e_gelu(double x) { return plain(x * below(x)); }
static exact e_gelu_tanh(double x) { return plain(x * sigmoid(gelu_u(x))); }

static exact two_terms(double a, double b) { return (exact){a + b, fmax(fabs(a), fabs(b))}; }

static exact e_silu_slope(double x) { return two_terms(sigmoid(x), x * sigmoid(x) * sigmoid(-x)); }

static exact e_gelu_slope(double x)
{
    return two_terms(below(x), x * exp(-x * x / 2) * 0.39894228040143267794);
}

static exact e_gelu_tanh_slope(double x)
{
    const double u = gelu_u(x), slope = 1.59576912160573071176 * (1 + 3 * 0.044715 * x * x);
    return two_terms(sigmoid(u), x * sigmoid(u) * sigmoid(-u) * slope);
}

typedef struct function {
    const char      *name;
    dra_pointwise_fn map;
    exact (*f)(double);
    double limit; /* promised, in units of the last place; 0.5: correctly rounded */
    double range; /* half of the points are spread evenly over it, half are anywhere */
    double least; /* sizes below count as this: factors inside are subnormal there */
} function;

static const function functions[] = {
    {"neg", DRA_MAP_NEG, e_neg, 0, 8, 0},
    {"abs", DRA_MAP_ABS, e_abs, 0, 8, 0},
    {"exp", DRA_MAP_EXP, e_exp, 2, 104, 0},
    {"log", DRA_MAP_LOG, e_log, 2, 3, 0},
    {"sqrt", DRA_MAP_SQRT, e_sqrt, 0.5, 8, 0},
    {"rsqrt", DRA_MAP_RSQRT, e_rsqrt, 2, 8, 0},
    {"square", DRA_MAP_SQUARE, e_square, 0.5, 8, 0},
    {"reciprocal", DRA_MAP_RECIPROCAL, e_reciprocal, 0.5, 8, 0},
    {"tanh", DRA_MAP_TANH, e_tanh, 2, 10, 0},
    {"erf", DRA_MAP_ERF, e_erf, 4, 5, 0},
    {"sigmoid", DRA_MAP_SIGMOID, e_sigmoid, 2, 20, 0},
    {"softplus", DRA_MAP_SOFTPLUS, e_softplus, 4, 20, 0},
    {"log_sigmoid", DRA_MAP_LOG_SIGMOID, e_log_sigmoid, 4, 20, 0},
    {"relu", DRA_MAP_RELU, e_relu, 0, 8, 0},
    {"relu2", DRA_MAP_RELU2, e_relu2, 0.5, 8, 0},
    {"elu", DRA_MAP_ELU, e_elu, 2, 10, 0},
    {"silu", DRA_MAP_SILU, e_silu, 4, 20, 1e-36},
    {"silu_slope", DRA_MAP_SILU_SLOPE, e_silu_slope, 4, 20, 1e-36},
    {"gelu", DRA_MAP_GELU, e_gelu, 4, 14, 1e-36},
    {"gelu_slope", DRA_MAP_GELU_SLOPE, e_gelu_slope, 4, 14, 1e-36},
    {"gelu_tanh", DRA_MAP_GELU_TANH, e_gelu_tanh, 4, 12, 1e-36},
    {"gelu_tanh_slope", DRA_MAP_GELU_TANH_SLOPE, e_gelu_tanh_slope, 6, 12, 1e-36},
};

/* ---- errors ---------------------------------------------------------------------------------- */

static double last_place(double size) /* the step between floats there */
{
    int e;
    frexp(fmax(size, FLT_MIN), &e);
    return ldexp(1, e - FLT_MANT_DIG);
}

/* The error of `found`, or infinity where the kind of number is wrong. */
static double error_of(const function *f, float x, float found)
{
    const exact want = f->f((double)x);
    if (isnan(want.y)) return isnan(found) || isinf(x) ? 0 : HUGE_VAL; /* inf 0, a limit exists */
    if (isinf((float)want.y)) { /* as a float: the largest one is near enough */
        const double top = want.y > 0 ? FLT_MAX : -(double)FLT_MAX;
        if (isinf(want.y) || fabs(want.y) > 1.000001 * (double)FLT_MAX)
            return (float)want.y == found ? 0 : HUGE_VAL;
        return isinf(found) && (found > 0) == (top > 0) ? 0 : (double)found == top ? 0.5 : HUGE_VAL;
    }
    if (!isfinite(found))
        return isinf(found) && fabs(want.y) > 0.999999 * (double)FLT_MAX ? 1 : HUGE_VAL;
    return fabs((double)found - want.y) / last_place(fmax(want.size, f->least));
}

enum { CHUNK = 1 << 12 };

/* Per function and level. Sanitizers are thirty times slower and look for something else. */
static int64_t points(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 1 << 17;
#endif
    return getenv("DRA_TEST_FULL") ? 1 << 26 : 1 << 21;
}

/* Point i of n: even ones step through all floats by their bits, odd ones are in the range. */
static float point(const function *f, int64_t i, int64_t n)
{
    if (i % 2) return (float)(f->range * (2 * (double)i / (double)n - 1));
    const uint32_t bits = (uint32_t)((double)i / (double)n * 0x1p32);
    float          x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static const float specials[] = {
    0.0f,        -0.0f,      INFINITY, -INFINITY, NAN,        1.0f,        -1.0f,      FLT_MAX,
    -FLT_MAX,    FLT_MIN,    -FLT_MIN, 0x1p-149f, -0x1p-149f, 0x1.8p-130f, 0x1p-126f,  0.75f,
    -0.75f,      0.749999f,  15.0f,    -15.0f,    16.0f,      -16.0f,      88.72283f,  88.72284f,
    -87.3365f,   -87.337f,   -103.97f, -103.98f,  -104.5f,    -150.0f,     -151.0f,    130.0f,
    1e30f,       -1e30f,     0.41421f, 0.41422f,  0.7071067f, 0.70710677f, 1.4142135f, 1.4142137f,
    0.99999994f, 1.0000001f, -14.2f,   -13.0f,    -10.2f,     -9.5f,       2.4e-7f,    -2.4e-7f};

typedef struct worst {
    double error;
    float  x, y;
} worst;

static void see(const function *f, int64_t n, const float *x, const float *y, worst *w)
{
    for (int64_t i = 0; i < n; i++) {
        const double error = error_of(f, x[i], y[i]);
        if (!(error <= w->error)) *w = (worst){error, x[i], y[i]};
    }
}

static worst measure(const function *f, const dra_simd *simd)
{
    static float  x[CHUNK], y[CHUNK];
    worst         w = {0};
    const int64_t n = points();
    for (int64_t i = 0; i < n; i += CHUNK) {
        for (int64_t j = 0; j < CHUNK; j++) x[j] = point(f, i + j, n);
        simd->map[f->map](CHUNK, x, y);
        see(f, CHUNK, x, y, &w);
    }
    simd->map[f->map](COUNT(specials), specials, y);
    see(f, COUNT(specials), specials, y, &w);
    return w;
}

static void keeps_promised_errors(void **state)
{
    bool fine = true;
    for (size_t l = 0; dra_simd_levels()[l]; l++) {
        const dra_simd *simd = dra_simd_levels()[l];
        for (size_t i = 0; i < COUNT(functions); i++) {
            const function *f = &functions[i];
            if (!simd->map[f->map]) continue;
            const worst w = measure(f, simd);
            printf("# %s %s: %.2f ulp (promised %g), at %a\n", f->name, simd->name, w.error,
                   f->limit, (double)w.x);
            if (!(w.error <= f->limit)) {
                printf("# too much: %s(%.9g) = %.9g, expected %.9g\n", f->name, (double)w.x,
                       (double)w.y, f->f((double)w.x).y);
                fine = false;
            }
        }
    }
    assert_true(fine);
}

/* ---- values that must be exact --------------------------------------------------------------- */

static float at(const dra_simd *simd, dra_pointwise_fn map, float x)
{
    float y = 0;
    simd->map[map](1, &x, &y);
    return y;
}

static void check_exact(const dra_simd *simd)
{
    const dra_pointwise_fn odd[] = {DRA_MAP_NEG, DRA_MAP_TANH,
                                    DRA_MAP_ERF}; /* keep or turn the sign of 0 */
    for (size_t i = 0; i < COUNT(odd); i++) {
        assert_true(!signbit(at(simd, odd[i], -0.0f)) == (i == 0));
        assert_true(!signbit(at(simd, odd[i], 0.0f)) == (i != 0));
    }
    assert_true(at(simd, DRA_MAP_EXP, 0) == 1);
    assert_true(at(simd, DRA_MAP_EXP, -0.0f) == 1);
    assert_true(at(simd, DRA_MAP_EXP, -INFINITY) == 0);
    assert_true(at(simd, DRA_MAP_EXP, -104.0f) == 0);
    assert_true(at(simd, DRA_MAP_EXP, -103.9f) > 0); /* the smallest float */
    assert_true(at(simd, DRA_MAP_EXP, INFINITY) == INFINITY);
    assert_true(at(simd, DRA_MAP_LOG, 1) == 0);
    assert_true(at(simd, DRA_MAP_LOG, 0) == -INFINITY);
    assert_true(at(simd, DRA_MAP_LOG, -0.0f) == -INFINITY);
    assert_true(isnan(at(simd, DRA_MAP_LOG, -INFINITY)));
    assert_true(at(simd, DRA_MAP_TANH, INFINITY) == 1);
    assert_true(at(simd, DRA_MAP_ERF, -INFINITY) == -1);
    assert_true(at(simd, DRA_MAP_SIGMOID, 0) == 0.5f);
    assert_true(at(simd, DRA_MAP_SIGMOID, -INFINITY) == 0);
    assert_true(at(simd, DRA_MAP_SIGMOID, INFINITY) == 1);
    assert_true(at(simd, DRA_MAP_SOFTPLUS, -INFINITY) == 0);
    assert_true(at(simd, DRA_MAP_ELU, -INFINITY) == -1);
    assert_true(at(simd, DRA_MAP_RELU, -INFINITY) == 0);
    for (int map = 0; map < DRA_MAP_COUNT; map++)
        if (simd->map[map]) assert_true(isnan(at(simd, (dra_pointwise_fn)map, NAN)));
}

static void has_exact_values(void **state)
{
    for (size_t l = 0; dra_simd_levels()[l]; l++)
        if (dra_simd_levels()[l]->map[DRA_MAP_EXP]) check_exact(dra_simd_levels()[l]);
}

/* ---- place and length ------------------------------------------------------------------------ */

enum { LONGEST = 67, OFFSETS = 4, GUARD = 8, ROOM = LONGEST + OFFSETS + 2 * GUARD };

/* All lengths and offsets, in place too, against one element at a time; nothing else written. */
static void check_places(const dra_simd *simd, dra_pointwise_fn map, uint64_t *seed)
{
    float x[ROOM], want[ROOM], y[ROOM];
    for (int i = 0; i < ROOM; i++) {
        x[i] = i % 7 ? (float)(24 * check_random(seed) - 12) : specials[i % (int)COUNT(specials)];
        want[i] = at(simd, map, x[i]);
    }
    for (int n = 0; n <= LONGEST; n++)
        for (int how = 0; how < 2 * OFFSETS; how++) {
            const int from = GUARD + how / 2, to = how % 2 ? from : GUARD + (how + n) % OFFSETS;
            memcpy(y, x, sizeof y);
            simd->map[map](n, how % 2 ? y + from : x + from, y + to);
            assert_memory_equal(y, x, (size_t)to * sizeof *y);
            assert_memory_equal(y + to, want + from, (size_t)n * sizeof *y);
            assert_memory_equal(y + to + n, x + to + n, (size_t)(ROOM - to - n) * sizeof *y);
        }
}

static void depends_on_the_element_alone(void **state)
{
    uint64_t seed = 5;
    for (size_t l = 0; dra_simd_levels()[l]; l++)
        for (int map = 0; map < DRA_MAP_COUNT; map++)
            if (dra_simd_levels()[l]->map[map])
                check_places(dra_simd_levels()[l], (dra_pointwise_fn)map, &seed);
}

/* Levels other than the reference have what functions.def says. */
static void fast_levels_have_all_maps(void **state)
{
    enum { SHARED = 1, OWN = 1, NONE = 0 };
#define DRA_UNARY(vectors, NAME, name, formula) [DRA_MAP_##NAME] = vectors,
    static const int has[DRA_MAP_COUNT] = {
#include "device/functions.def"
    };
#undef DRA_UNARY
    for (size_t l = 0; dra_simd_levels()[l + 1]; l++)
        for (int map = 0; map < DRA_MAP_COUNT; map++)
            assert_int_equal(dra_simd_levels()[l]->map[map] != NULL, has[map]);
}

/* What has a formula of its own is measured; a shared one rounds as it says. */
static void own_formulas_are_measured(void **state)
{
    enum { SHARED = 0, OWN = 1, NONE = 0 };
#define DRA_UNARY(vectors, NAME, name, formula) [DRA_MAP_##NAME] = vectors,
    int own[DRA_MAP_COUNT] = {
#include "device/functions.def"
    };
#undef DRA_UNARY
    for (size_t i = 0; i < COUNT(functions); i++) own[functions[i].map] = 0;
    for (int map = 0; map < DRA_MAP_COUNT; map++) assert_int_equal(own[map], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_promised_errors),        cmocka_unit_test(has_exact_values),
        cmocka_unit_test(depends_on_the_element_alone), cmocka_unit_test(fast_levels_have_all_maps),
        cmocka_unit_test(own_formulas_are_measured),
    };
    return check_main("simd maps", NULL, 0, tests, COUNT(tests));
}

#endif
