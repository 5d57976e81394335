/* The formulas of pointwise functions on the GPU; see graph/pointwise.h. Those of the CPU are in
 * functions.c. */
#ifndef DRA_SRC_OPS_POINTWISE_FUNCTIONS_CUH
#define DRA_SRC_OPS_POINTWISE_FUNCTIONS_CUH

#include "device/cuda/rows.cuh" /* DRA_UNROLL */

/* A value of a program: a float, an i32, or what is stored in fewer bits, as it is. */
union dra_word {
    float    real;
    int32_t  integer;
    uint32_t bits;
};

/* 1 / x for x from 1 to 2, to the last bit but one. */
__device__ static inline float dra_invert(float x)
{
#ifdef __CUDACC__
    return __fdividef(1, x);
#else
    return 1 / x;
#endif
}

__device__ static inline float sigmoid_of(float x)
{
    const float e = expf(-fabsf(x)), part = dra_invert(1 + e); /* never overflows */
    return x >= 0 ? part : e * part;
}

__device__ static inline float softplus_of(float x)
{
    if (x == INFINITY) return x;
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x))) + (x - x); /* NaN stays */
}

/* Half of 1 + erf(x / sqrt 2), with all its digits in the tail. */
__device__ static inline float dra_gauss(float x)
{
    return 0.5f * erfcf(-0.70710678118654752f * x);
}

__device__ static inline float dra_gelu_inner(float x) /* sqrt(2 / pi) (x + 0.044715 x^3) */
{
    return 0.79788456080286536f * (x + 0.044715f * x * x * x);
}

__device__ static inline float gelu_of(float x) { return x * dra_gauss(x); }

__device__ static inline float gelu_slope_of(float x)
{
    return dra_gauss(x) + x * 0.39894228040143268f * expf(-0.5f * x * x);
}

__device__ static inline float gelu_tanh_of(float x)
{
    return x * sigmoid_of(2 * dra_gelu_inner(x));
}

__device__ static inline float gelu_tanh_slope_of(float x)
{
    /* (1 + tanh u) / 2 = sigmoid(2 u) keeps its digits where tanh u is near -1 */
    const float s = sigmoid_of(2 * dra_gelu_inner(x));
    const float slope = 0.79788456080286536f * (1 + 3 * 0.044715f * x * x);
    return s + x * 2 * s * (1 - s) * slope;
}

__device__ static inline float dra_mod(float a, float b)
{
    const float r = fmodf(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

__device__ static inline float silu_slope_of(float x)
{
    return sigmoid_of(x) * (1 + x * sigmoid_of(-x));
}

/* r = f(x, y) for W elements: one decision for all of them. */
#define DRA_ALL(f, formula)                                                                        \
    case DRA_FUNCTION_##f:                                                                         \
        DRA_UNROLL                                                                                 \
        for (int j = 0; j < W; j++) {                                                              \
            const float x = xs[j].real, y = ys[j].real;                                            \
            (void)y;                                                                               \
            r[j].real = formula;                                                                   \
        }                                                                                          \
        break;

template <int W>
__device__ static inline void dra_function_real(dra_function f, const dra_word *xs,
                                                const dra_word *ys, float a, float b, dra_word *r)
{
    switch (f) {
#define DRA_UNARY(vectors, NAME, name, formula) DRA_ALL(NAME, formula)
#include "device/functions.def"
#undef DRA_UNARY
        DRA_ALL(AFFINE, a * x + b)
        DRA_ALL(CLAMP, x < a ? a : x > b ? b : x)
        DRA_ALL(ADD, x + y)
        DRA_ALL(SUB, x - y)
        DRA_ALL(MUL, x * y)
        DRA_ALL(DIV, x / y)
        DRA_ALL(MOD, dra_mod(x, y))
        DRA_ALL(POW, powf(x, y))
        DRA_ALL(MINIMUM, x <= y || x != x ? x : y)
        DRA_ALL(MAXIMUM, x >= y || x != x ? x : y)
    default: break;
    }
}

#undef DRA_ALL

__device__ static inline int32_t dra_floor_div(int32_t a, int32_t b) /* 0 for b = 0 */
{
    if (b == 0) return 0;
    if (b == -1) return (int32_t)(0u - (uint32_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

__device__ static inline int32_t dra_floor_mod(int32_t a, int32_t b)
{
    if (b == 0 || b == -1) return 0;
    const int32_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

__device__ static inline int32_t dra_function_i32(dra_function f, int32_t x, int32_t y)
{
    const uint32_t a = (uint32_t)x, b = (uint32_t)y; /* sums wrap */
    switch (f) {
    case DRA_FUNCTION_NEG: return (int32_t)(0u - a);
    case DRA_FUNCTION_ABS: return (int32_t)(x < 0 ? 0u - a : a);
    case DRA_FUNCTION_ADD: return (int32_t)(a + b);
    case DRA_FUNCTION_SUB: return (int32_t)(a - b);
    case DRA_FUNCTION_MUL: return (int32_t)(a * b);
    case DRA_FUNCTION_DIV: return dra_floor_div(x, y);
    case DRA_FUNCTION_MOD: return dra_floor_mod(x, y);
    case DRA_FUNCTION_MINIMUM: return x < y ? x : y;
    case DRA_FUNCTION_MAXIMUM: return x > y ? x : y;
    default: return 0;
    }
}

template <typename T> __device__ static inline bool dra_compare(dra_function f, T x, T y)
{
    switch (f) {
    case DRA_FUNCTION_EQUAL: return x == y;
    case DRA_FUNCTION_NOT_EQUAL: return x != y;
    case DRA_FUNCTION_LESS: return x < y;
    case DRA_FUNCTION_LESS_EQUAL: return x <= y;
    case DRA_FUNCTION_GREATER: return x > y;
    default: return x >= y;
    }
}

/* What is no function of reals, which are the most. */
__device__ static inline dra_word dra_function_other(const dra_pointwise_step &s, dra_word x,
                                                     dra_word y, dra_word z)
{
    const bool integer = s.dtype == DRA_I32;
    dra_word   r;
    r.bits = 0;
    switch (s.function) {
    case DRA_FUNCTION_SELECT: return x.bits ? y : z;
    case DRA_FUNCTION_NOT: r.bits = !x.bits; break;
    case DRA_FUNCTION_AND: r.bits = x.bits && y.bits; break;
    case DRA_FUNCTION_OR: r.bits = x.bits || y.bits; break;
    case DRA_FUNCTION_IS_FINITE: r.bits = (x.bits & 0x7f800000u) != 0x7f800000u; break;
    case DRA_FUNCTION_EQUAL:
    case DRA_FUNCTION_NOT_EQUAL:
    case DRA_FUNCTION_LESS:
    case DRA_FUNCTION_LESS_EQUAL:
    case DRA_FUNCTION_GREATER:
    case DRA_FUNCTION_GREATER_EQUAL:
        r.bits = integer ? dra_compare(s.function, x.integer, y.integer)
                         : dra_compare(s.function, x.real, y.real);
        break;
    default: r.integer = dra_function_i32(s.function, x.integer, y.integer);
    }
    return r;
}

__device__ static inline bool dra_function_is_real(const dra_pointwise_step &s)
{
    switch (s.function) {
    case DRA_FUNCTION_SELECT:
    case DRA_FUNCTION_NOT:
    case DRA_FUNCTION_AND:
    case DRA_FUNCTION_OR:
    case DRA_FUNCTION_IS_FINITE:
    case DRA_FUNCTION_EQUAL:
    case DRA_FUNCTION_NOT_EQUAL:
    case DRA_FUNCTION_LESS:
    case DRA_FUNCTION_LESS_EQUAL:
    case DRA_FUNCTION_GREATER:
    case DRA_FUNCTION_GREATER_EQUAL: return false;
    default: return s.dtype != DRA_I32;
    }
}

/* Step s of a program for W elements of its operands. */
template <int W>
__device__ static inline void dra_function_apply(const dra_pointwise_step &s, const dra_word *x,
                                                 const dra_word *y, const dra_word *z, dra_word *r)
{
    if (dra_function_is_real(s)) {
        dra_function_real<W>(s.function, x, y, (float)s.a, (float)s.b, r);
        return;
    }
    DRA_UNROLL
    for (int j = 0; j < W; j++) r[j] = dra_function_other(s, x[j], y[j], z[j]);
}

#endif
