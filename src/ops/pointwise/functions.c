/* The formulas of pointwise functions on the CPU, a table by function; see graph/pointwise.h. */
#include <string.h>
#include <tgmath.h>

#include "ops/pointwise/pointwise.h"

/* ---- of one real ----------------------------------------------------------------------------- */

#define ROOT_HALF ((real)0.70710678118654752440)
#define ONE_BY_ROOT_2PI ((real)0.39894228040143267794)
#define ROOT_2_BY_PI ((real)0.79788456080286535588)
#define GELU_CUBE ((real)0.044715)

static real sigmoid_of(real x)
{
    const real e = exp(-fabs(x)); /* never overflows */
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

static real softplus_of(real x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }

static real silu_slope_of(real x)
{
    const real s = sigmoid_of(x);
    return s * (1 + x * (1 - s));
}

static real gelu_of(real x) { return x * (1 + erf(x * ROOT_HALF)) / 2; }

static real gelu_slope_of(real x)
{
    return (1 + erf(x * ROOT_HALF)) / 2 + x * ONE_BY_ROOT_2PI * exp(-x * x / 2);
}

static real gelu_tanh_of(real x)
{
    return x * (1 + tanh(ROOT_2_BY_PI * (x + GELU_CUBE * x * x * x))) / 2;
}

static real gelu_tanh_slope_of(real x)
{
    const real t = tanh(ROOT_2_BY_PI * (x + GELU_CUBE * x * x * x));
    const real du = ROOT_2_BY_PI * (1 + 3 * GELU_CUBE * x * x);
    return (1 + t) / 2 + x * (1 - t * t) * du / 2;
}

#define DRA_UNARY(vectors, NAME, name, formula)                                                    \
    static real f_##name(real x) { return formula; }
#include "device/functions.def"
#undef DRA_UNARY

static int32_t neg_i32(int32_t x) { return (int32_t)(0u - (uint32_t)x); } /* wraps */
static int32_t abs_i32(int32_t x) { return x < 0 ? neg_i32(x) : x; }

/* ---- of two: reals, then i32 (which wraps) --------------------------------------------------- */

static real f_div(real a, real b) { return a / b; }
static real f_mod(real a, real b) /* exact, where a - b floor(a / b) rounds for large quotients */
{
    const real r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static real f_pow(real a, real b) { return pow(a, b); }
static real f_minimum(real a, real b) { return a <= b || isnan(a) ? a : b; }
static real f_maximum(real a, real b) { return a >= b || isnan(a) ? a : b; }

static int32_t i_add(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
static int32_t i_sub(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
static int32_t i_mul(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
static int32_t i_div(int32_t a, int32_t b) /* floor; 0 for b = 0 */
{
    if (b == 0) return 0;
    if (b == -1) return i_sub(0, a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static int32_t i_mod(int32_t a, int32_t b)
{
    if (b == 0 || b == -1) return 0;
    const int32_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int32_t i_minimum(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t i_maximum(int32_t a, int32_t b) { return a > b ? a : b; }

static bool r_equal(real a, real b) { return a == b; }
static bool r_not_equal(real a, real b) { return a != b; }
static bool r_less(real a, real b) { return a < b; }
static bool r_less_equal(real a, real b) { return a <= b; }
static bool r_greater(real a, real b) { return a > b; }
static bool r_greater_equal(real a, real b) { return a >= b; }
static bool i_equal(int32_t a, int32_t b) { return a == b; }
static bool i_not_equal(int32_t a, int32_t b) { return a != b; }
static bool i_less(int32_t a, int32_t b) { return a < b; }
static bool i_less_equal(int32_t a, int32_t b) { return a <= b; }
static bool i_greater(int32_t a, int32_t b) { return a > b; }
static bool i_greater_equal(int32_t a, int32_t b) { return a >= b; }

/* ---- rows that are loops of their own -------------------------------------------------------- */

typedef void (*row)(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                    const void *const *x, void *y);

static void add_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                    const void *const *x, void *y)
{
    simd->add(n, x[0], x[1], y);
}

static void sub_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                    const void *const *x, void *y)
{
    simd->sub(n, x[0], x[1], y);
}

static void mul_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                    const void *const *x, void *y)
{
    simd->mul(n, x[0], x[1], y);
}

static void affine_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                       const void *const *x, void *y)
{
    simd->affine(n, (real)s->a, (real)s->b, x[0], y);
}

static void clamp_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                      const void *const *x, void *y)
{
    const real lo = (real)s->a, hi = (real)s->b, *from = x[0];
    real      *to = y;
    for (int64_t i = 0; i < n; i++) to[i] = from[i] < lo ? lo : from[i] > hi ? hi : from[i];
}

static void is_finite_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                          const void *const *x, void *y)
{
    const real *from = x[0];
    uint8_t    *to = y;
    for (int64_t i = 0; i < n; i++) to[i] = isfinite(from[i]) != 0;
}

static void not_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                    const void *const *x, void *y)
{
    const uint8_t *from = x[0];
    uint8_t       *to = y;
    for (int64_t i = 0; i < n; i++) to[i] = !from[i];
}

static void and_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                    const void *const *x, void *y)
{
    const uint8_t *a = x[0], *b = x[1];
    uint8_t       *to = y;
    for (int64_t i = 0; i < n; i++) to[i] = a[i] && b[i];
}

static void or_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                   const void *const *x, void *y)
{
    const uint8_t *a = x[0], *b = x[1];
    uint8_t       *to = y;
    for (int64_t i = 0; i < n; i++) to[i] = a[i] || b[i];
}

static void select_row(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                       const void *const *x, void *y)
{
    const size_t         size = dra_dtype_bytes(s->dtype);
    const uint8_t       *where = x[0];
    const unsigned char *a = x[1], *b = x[2];
    if (s->dtype == DRA_REAL) { /* the common case, as a plain loop */
        real *to = y;
        for (int64_t i = 0; i < n; i++)
            to[i] = where[i] ? ((const real *)x[1])[i] : ((const real *)x[2])[i];
        return;
    }
    for (size_t i = 0; i < (size_t)n; i++)
        memmove((unsigned char *)y + i * size, (where[i] ? a : b) + i * size, size);
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct formula { /* one of the first four, and one of the last three where i32 is taken */
    row row;
    real (*one)(real);
    real (*two)(real, real);
    bool (*test)(real, real);
    int32_t (*one_i32)(int32_t);
    int32_t (*two_i32)(int32_t, int32_t);
    bool (*test_i32)(int32_t, int32_t);
} formula;

static const formula formulas[DRA_FUNCTION_COUNT] = {
#define DRA_UNARY(vectors, NAME, name, formula) [DRA_FUNCTION_##NAME].one = f_##name,
#include "device/functions.def"
#undef DRA_UNARY
    [DRA_FUNCTION_NEG].one_i32 = neg_i32,
    [DRA_FUNCTION_ABS].one_i32 = abs_i32,
    [DRA_FUNCTION_AFFINE] = {.row = affine_row},
    [DRA_FUNCTION_CLAMP] = {.row = clamp_row},
    [DRA_FUNCTION_IS_FINITE] = {.row = is_finite_row},
    [DRA_FUNCTION_NOT] = {.row = not_row},
    [DRA_FUNCTION_ADD] = {.row = add_row, .two_i32 = i_add},
    [DRA_FUNCTION_SUB] = {.row = sub_row, .two_i32 = i_sub},
    [DRA_FUNCTION_MUL] = {.row = mul_row, .two_i32 = i_mul},
    [DRA_FUNCTION_DIV] = {.two = f_div, .two_i32 = i_div},
    [DRA_FUNCTION_MOD] = {.two = f_mod, .two_i32 = i_mod},
    [DRA_FUNCTION_POW] = {.two = f_pow},
    [DRA_FUNCTION_MINIMUM] = {.two = f_minimum, .two_i32 = i_minimum},
    [DRA_FUNCTION_MAXIMUM] = {.two = f_maximum, .two_i32 = i_maximum},
    [DRA_FUNCTION_EQUAL] = {.test = r_equal, .test_i32 = i_equal},
    [DRA_FUNCTION_NOT_EQUAL] = {.test = r_not_equal, .test_i32 = i_not_equal},
    [DRA_FUNCTION_LESS] = {.test = r_less, .test_i32 = i_less},
    [DRA_FUNCTION_LESS_EQUAL] = {.test = r_less_equal, .test_i32 = i_less_equal},
    [DRA_FUNCTION_GREATER] = {.test = r_greater, .test_i32 = i_greater},
    [DRA_FUNCTION_GREATER_EQUAL] = {.test = r_greater_equal, .test_i32 = i_greater_equal},
    [DRA_FUNCTION_AND] = {.row = and_row},
    [DRA_FUNCTION_OR] = {.row = or_row},
    [DRA_FUNCTION_SELECT] = {.row = select_row},
};

bool dra_function_takes_i32(dra_function f)
{
    return formulas[f].one_i32 || formulas[f].two_i32 || formulas[f].test_i32;
}

/* Functions of one real come first in both enums, see functions.def. */
_Static_assert((int)DRA_FUNCTION_AFFINE == (int)DRA_MAP_COUNT, "maps go by function");

static void real_rows(const dra_simd *simd, dra_function function, int64_t n, const void *const *x,
                      void *y)
{
    const formula *f = &formulas[function];
    const real    *a = x[0], *b = x[1];
    if (f->one && simd->map[function])
        simd->map[function](n, a, y);
    else if (f->one)
        for (int64_t i = 0; i < n; i++) ((real *)y)[i] = f->one(a[i]);
    else if (f->two)
        for (int64_t i = 0; i < n; i++) ((real *)y)[i] = f->two(a[i], b[i]);
    else
        for (int64_t i = 0; i < n; i++) ((uint8_t *)y)[i] = f->test(a[i], b[i]);
}

static void i32_rows(const formula *f, int64_t n, const void *const *x, void *y)
{
    const int32_t *a = x[0], *b = x[1];
    if (f->one_i32)
        for (int64_t i = 0; i < n; i++) ((int32_t *)y)[i] = f->one_i32(a[i]);
    else if (f->two_i32)
        for (int64_t i = 0; i < n; i++) ((int32_t *)y)[i] = f->two_i32(a[i], b[i]);
    else
        for (int64_t i = 0; i < n; i++) ((uint8_t *)y)[i] = f->test_i32(a[i], b[i]);
}

void dra_function_run(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                      const void *const *x, void *y)
{
    const formula *f = &formulas[s->function];
    if (s->dtype == DRA_I32 && dra_function_takes_i32(s->function))
        i32_rows(f, n, x, y);
    else if (f->row)
        f->row(simd, s, n, x, y);
    else
        real_rows(simd, s->function, n, x, y);
}
