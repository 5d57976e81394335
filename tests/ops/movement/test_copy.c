/* copy and cast: all pairs of dtypes, rounding to nearest even, saturation. */
#include "ops/pointwise/pointwise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"

#define S(...)                                                                                     \
    {                                                                                              \
        COUNT(((int64_t[]){__VA_ARGS__})), { __VA_ARGS__ }                                         \
    }

/* ---- copy ------------------------------------------------------------------------------------ */

static void build_copy(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_copy(g, in[0]);
}

static void oracle_copy(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++) out->at[i] = in->at[i];
}

static const double     odd[] = {NAN, INFINITY, -INFINITY, -0.0, 1e-40};
static const check_case copy_cases[] = {
    {"odd width", 1, {{S(2, 3, 17)}}},
    {"scalar", 1, {{{0}}}},
    {"nothing", 1, {{S(3, 0, 2)}}},
    {"rank 6", 1, {{S(2, 1, 3, 2, 2, 2)}}},
    {"several tiles", 1, {{S(130, 257)}}},
    {"special values", 1, {{S(5), .values = odd}}, .no_grad = true},
    {"i32", 1, {{S(3, 5), CHECK_I32, .lo = -1e9, .hi = 1e9}}},
    {"bool", 1, {{S(3, 5), CHECK_BOOL}}},
    {"bf16", 1, {{S(3, 5), CHECK_BF16}}},
    {"f16", 1, {{S(3, 5), CHECK_F16}}},
};

/* Axes 1 and 3 change places. */
static void build_across(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_copy(g, dra_transpose(g, in[0], 1, -1));
}

static void oracle_across(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t *dim = in->shape.dim, A = dim[1], M = dim[2], Z = dim[3];
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t x = i % A, m = i / A % M, z = i / A / M % Z, b = i / A / M / Z;
        out->at[i] = in->at[((b * A + x) * M + m) * Z + z];
    }
}

static const check_case across_cases[] = {
    {"squares", 1, {{S(2, 64, 1, 32)}}},
    {"parts of squares", 1, {{S(2, 37, 3, 45)}}},
    {"narrow", 1, {{S(2, 5, 3, 45)}}},
    {"bf16", 1, {{S(2, 37, 3, 45), CHECK_BF16}}},
    {"bool", 1, {{S(2, 37, 3, 45), CHECK_BOOL}}},
};

/* ---- cast: an oracle that rounds by arithmetic, not by bits ---------------------------------- */

typedef struct format {
    int    digits;   /* significant bits */
    int    smallest; /* exponent of the smallest subnormal */
    double largest;
} format;

static const format bf16 = {8, -133, 0x1.fep127}, f16 = {11, -24, 65504};
static const format f32 = {24, -149, 0x1.fffffep127};

static double round_to(const format *f, double x)
{
    int exponent;
    if (isnan(x) || isinf(x) || x == 0) return x;
    frexp(x, &exponent); /* |x| < 2^exponent */
    const int    unit = exponent - f->digits > f->smallest ? exponent - f->digits : f->smallest;
    const double y = ldexp(nearbyint(ldexp(x, -unit)), unit);
    return fabs(y) > f->largest ? copysign(INFINITY, x) : y;
}

static double converted(dra_dtype to, double x)
{
    switch (to) {
    case DRA_F32: return round_to(&f32, x);
    case DRA_F64: return x;
    case DRA_BF16: return round_to(&bf16, x);
    case DRA_F16: return round_to(&f16, x);
    case DRA_I32: return isnan(x) ? 0 : fmin(fmax(trunc(x), INT32_MIN), INT32_MAX);
    case DRA_BOOL: return x != 0;
    default: break;
    }
    return 0;
}

static void build_cast(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_cast(g, in[0], *(const dra_dtype *)a);
}

static void oracle_cast(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->at[i] = converted(*(const dra_dtype *)a, in->at[i]);
}

static const dra_dtype   targets[] = {DRA_REAL, DRA_F32, DRA_BF16, DRA_F16, DRA_I32, DRA_BOOL};
static const char *const target_names[] = {"real", "f32", "bf16", "f16", "i32", "bool"};

static const double real_values[] = {
    0,          -0.0,         0.9,           -0.9,          2.5,          -2.5,
    2147483520, 2147483648.0, -2147483648.0, -2147483904.0, 1e30,         -1e30,
    NAN,        INFINITY,     -INFINITY,     65504,         65519,        65520,
    65536,      3.4e38,       0x1p-24,       0x1p-25,       0x1.8p-25,    0x1p-26,
    1e-40,      0x1.01p0,     0x1.03p0,      0x1.010002p0,  1.0 + 0x1p-11};
/* The last ones are so close to a tie that a detour through f32 would decide it wrongly. */
static const double i32_values[] = {0,        1,        -1,        255,       257,
                                    65519,    65521,    INT32_MAX, INT32_MIN, 16842751,
                                    16842752, 16842753, -16842753, 33685505,  2139095039};
static const double bool_values[] = {0, 1};
static const double half_values[] = {0, -0.0, 1.5, -2.75, 300, NAN, INFINITY, -INFINITY, 1e-7, 6e4};

static const struct {
    const char   *name;
    check_dtype   dtype;
    int64_t       n;
    const double *values;
} sources[] = {
    {"real", CHECK_REAL, COUNT(real_values), real_values},
    {"i32", CHECK_I32, COUNT(i32_values), i32_values},
    {"bool", CHECK_BOOL, COUNT(bool_values), bool_values},
    {"bf16", CHECK_BF16, COUNT(half_values), half_values},
    {"f16", CHECK_F16, COUNT(half_values), half_values},
};

enum { SHAPES = 4 }; /* the special values, odd rows, nothing, several tiles */
static check_case cast_cases[COUNT(sources) * COUNT(targets) * SHAPES];
static char       cast_names[COUNT(sources) * COUNT(targets) * SHAPES][64];

static void fill_casts(void)
{
    static const char *const kinds[] = {"special values", "odd rows", "nothing", "several tiles"};
    static const dra_shape   shapes[] = {{0}, S(2, 3, 17), S(0, 3), S(130, 257)};
    for (size_t n = 0; n < COUNT(cast_cases); n++) {
        const size_t kind = n % SHAPES, to = n / SHAPES % COUNT(targets);
        const size_t from = n / SHAPES / COUNT(targets);
        check_input  in = {shapes[kind], sources[from].dtype, .lo = -700, .hi = 700};
        if (kind == 0) in.shape = (dra_shape){1, {sources[from].n}};
        if (kind == 0) in.values = sources[from].values;
        snprintf(cast_names[n], sizeof cast_names[n], "%s to %s, %s", sources[from].name,
                 target_names[to], kinds[kind]);
        cast_cases[n] = (check_case){cast_names[n], 1, {in}, &targets[to], .no_grad = true};
        cast_cases[n].tol = 1e-16; /* exact; 0 would mean the usual */
    }
}

/* ---- every pattern of the half-width floats -------------------------------------------------- */

enum { ALL = 65536 };

static void cast_all(dra_dtype from, dra_dtype to, int64_t n, void *x, size_t bytes,
                     check_program *p)
{
    dra_graph *g = check_graph();
    dra_output(g, "y", dra_cast(g, dra_input(g, "x", from, (dra_shape){1, {n}}), to));
    *p = check_compile(g, 2);
    check_bind(p, "x", x, bytes);
    check_run(p);
}

static bool is_nan(dra_dtype t, unsigned bits)
{
    return t == DRA_F16 ? (bits & 0x7fff) > 0x7c00 : (bits & 0x7fff) > 0x7f80;
}

static void round_trip(dra_dtype half)
{
    uint16_t *x = malloc(ALL * sizeof *x);
    dra_real *wide = malloc(ALL * sizeof *wide);
    assert_true(x && wide);
    for (unsigned i = 0; i < ALL; i++) x[i] = (uint16_t)i;
    check_program p, q;
    cast_all(half, DRA_REAL, ALL, x, ALL * sizeof *x, &p);
    memcpy(wide, check_result(&p, "y"), ALL * sizeof *wide);
    cast_all(DRA_REAL, half, ALL, wide, ALL * sizeof *wide, &q);
    const uint16_t *back = check_result_of(&q, "y");
    for (unsigned i = 0; i < ALL; i++) {
        if (is_nan(half, i) != !!isnan(wide[i]) || is_nan(half, i) != is_nan(half, back[i]))
            fail_msg("%04x: NaN becomes %04x", i, back[i]);
        if (!is_nan(half, i) && back[i] != i)
            fail_msg("%04x becomes %g and %04x", i, (double)wide[i], back[i]);
    }
    check_free(&p);
    check_free(&q);
    free(x);
    free(wide);
}

static void f16_comes_back(void **state) { round_trip(DRA_F16); }
static void bf16_comes_back(void **state) { round_trip(DRA_BF16); }

#ifdef DRA_REAL_DOUBLE
static double next(double x, double to) { return nextafter(x, to); }
#else
static float next(float x, float to) { return nextafterf(x, to); }
#endif

/* Halfway between neighbours goes to the even one; a step away from it goes to the nearer one. */
static void rounds_between(dra_dtype half, unsigned infinity)
{
    const format *f = half == DRA_F16 ? &f16 : &bf16;
    const int64_t n = 6 * (int64_t)infinity;
    dra_real     *x = malloc((size_t)n * sizeof *x), *at = x;
    assert_non_null(x);
    for (unsigned i = 0; i < infinity; i++) {
        const double   lo = half == DRA_F16 ? (double)dra_f16_to_f32((uint16_t)i)
                                            : (double)dra_bf16_to_f32((uint16_t)i);
        const double   hi = i + 1 < infinity ? half == DRA_F16
                                                   ? (double)dra_f16_to_f32((uint16_t)(i + 1))
                                                   : (double)dra_bf16_to_f32((uint16_t)(i + 1))
                                             : ldexp(1, half == DRA_F16 ? 16 : 128);
        const dra_real middle = (dra_real)(lo + (hi - lo) / 2);
        const dra_real near[] = {middle, next(middle, 0), next(middle, (dra_real)INFINITY)};
        for (int k = 0; k < 3; k++) *at++ = near[k], *at++ = -near[k];
    }
    check_program p;
    cast_all(DRA_REAL, half, n, x, (size_t)n * sizeof *x, &p);
    const uint16_t *y = check_result_of(&p, "y");
    for (int64_t i = 0; i < n; i++) {
        const double want = round_to(f, (double)x[i]);
        const double found = (double)(half == DRA_F16 ? dra_f16_to_f32(y[i])
                                                      : dra_bf16_to_f32(y[i]));
        if (found != want || !signbit(found) != !signbit(x[i]))
            fail_msg("%a becomes %a, expected %a", (double)x[i], found, want);
    }
    check_free(&p);
    free(x);
}

static void f16_rounds_to_nearest_even(void **state) { rounds_between(DRA_F16, 0x7c00); }
static void bf16_rounds_to_nearest_even(void **state) { rounds_between(DRA_BF16, 0x7f80); }

/* ---- gradients ------------------------------------------------------------------------------- */

static void gradient_through(dra_dtype between, const double *want)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3)), up = check_real(g, "up", DRA_SHAPE(3)), dx;
    dra_value  y = dra_cast(g, dra_cast(g, x, between), DRA_REAL);
    dra_gradient(g, 1, &y, &up, 1, &x, &dx);
    dra_output(g, "dx", dx);
    check_program p = check_compile(g, 1);
    dra_real      data[] = {1, 2, 3}, upstream[] = {(dra_real)0.1, (dra_real)-7.3, (dra_real)1e-9};
    check_bind(&p, "x", data, sizeof data);
    check_bind(&p, "up", upstream, sizeof upstream);
    check_run(&p);
    for (int i = 0; i < 3; i++)
        assert_true(check_result(&p, "dx")[i] == (want ? (dra_real)want[i] : upstream[i]));
    check_free(&p);
}

static void gradients_pass_between_floats(void **state)
{
    gradient_through(DRA_BF16, NULL); /* not rounded on the way: bit for bit the upstream */
    gradient_through(DRA_F16, NULL);
    gradient_through(DRA_F32, NULL);
}

static void gradients_end_at_integers(void **state)
{
    const double zeros[3] = {0};
    gradient_through(DRA_I32, zeros);
    gradient_through(DRA_BOOL, zeros);
}

static void gradients_of_narrow_inputs_are_real(void **state)
{
    dra_graph *g = check_graph();
    dra_value  w = dra_parameter(g, "w", DRA_BF16, DRA_SHAPE(2)), dw;
    dra_value  y = dra_sum_all(g, dra_square(g, dra_cast(g, w, DRA_REAL)));
    dra_gradient(g, 1, &y, NULL, 1, &w, &dw);
    assert_int_equal(dra_dtype_of(g, dw), DRA_REAL);
    dra_output(g, "dw", dw);
    check_program p = check_compile(g, 1);
    uint16_t      data[] = {0x4040, 0xc000}; /* 3, -2 */
    check_bind(&p, "w", data, sizeof data);
    check_run(&p);
    check_close("dw", 2, check_result(&p, "dw"), (double[]){6, -4}, 0);
    check_free(&p);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void casting_to_its_own_dtype_is_nothing(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2));
    assert_int_equal(dra_cast(g, x, DRA_REAL).id, x.id);
    dra_graph_destroy(g);
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_cast(g, dra_number(g, 1), (dra_dtype)99).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "cast: no dtype number 99");
    g = check_graph();
    assert_int_equal(dra_cast(g, dra_number(g, 1), (dra_dtype)-1).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "cast: no dtype number -1");
    g = check_graph();
    assert_int_equal(dra_cast(g, (dra_value){0}, DRA_I32).id, 0);
    check_refused(g, DRA_ERR_VALUE, "cast: input 0 is the null value");
    g = check_graph();
    assert_int_equal(dra_copy(g, (dra_value){0}).id, 0);
    check_refused(g, DRA_ERR_VALUE, "copy: input 0 is the null value");
#ifndef DRA_REAL_DOUBLE
    g = check_graph();
    assert_int_equal(dra_cast(g, dra_number(g, 1), DRA_F64).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "cast: f64 needs the double build");
#endif
}

int main(void)
{
    fill_casts();
    const check_spec specs[] = {
        {"copy", 1, build_copy, oracle_copy, copy_cases, COUNT(copy_cases)},
        {"transposed copy", 1, build_across, oracle_across, across_cases, COUNT(across_cases)},
        {"cast", 1, build_cast, oracle_cast, cast_cases, COUNT(cast_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_comes_back),
        cmocka_unit_test(bf16_comes_back),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(gradients_pass_between_floats),
        cmocka_unit_test(gradients_end_at_integers),
        cmocka_unit_test(gradients_of_narrow_inputs_are_real),
        cmocka_unit_test(casting_to_its_own_dtype_is_nothing),
        cmocka_unit_test(refuses),
    };
    return check_main("copy", specs, COUNT(specs), tests, COUNT(tests));
}
