/* The formulas of pointwise functions on the GPU; see graph/pointwise.h. Those of the CPU are in
 * ops/functions.c. */
#ifndef DRA_SRC_CUDA_FUNCTIONS_H
#define DRA_SRC_CUDA_FUNCTIONS_H

#include "cuda/cuda.h"

/* A value of a program: a float, an i32, or what is stored in fewer bits, as it is. */
union dra_word {
    float    real;
    int32_t  integer;
    uint32_t bits;
};

__device__ static inline float dra_sigmoid(float x)
{
    const float e = expf(-fabsf(x)); /* never overflows */
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

__device__ static inline float dra_softplus(float x)
{
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x))) + (x - x);
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

__device__ static inline float dra_gelu_tanh_slope(float x)
{
    /* (1 + tanh u) / 2 = sigmoid(2 u) keeps its digits where tanh u is near -1 */
    const float s = dra_sigmoid(2 * dra_gelu_inner(x));
    const float slope = 0.79788456080286536f * (1 + 3 * 0.044715f * x * x);
    return s + x * 2 * s * (1 - s) * slope;
}

__device__ static inline float dra_mod(float a, float b)
{
    const float r = fmodf(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

__device__ static inline float dra_function_real(dra_function f, float x, float y, float a, float b)
{
    switch (f) {
    case DRA_FUNCTION_NEG: return -x;
    case DRA_FUNCTION_ABS: return fabsf(x);
    case DRA_FUNCTION_SIGN: return x > 0 ? 1 : x < 0 ? -1 : x;
    case DRA_FUNCTION_EXP: return expf(x);
    case DRA_FUNCTION_EXPM1: return expm1f(x);
    case DRA_FUNCTION_LOG: return logf(x);
    case DRA_FUNCTION_LOG1P: return log1pf(x);
    case DRA_FUNCTION_SQRT: return sqrtf(x);
    case DRA_FUNCTION_RSQRT: return 1 / sqrtf(x);
    case DRA_FUNCTION_SQUARE: return x * x;
    case DRA_FUNCTION_RECIPROCAL: return 1 / x;
    case DRA_FUNCTION_SIN: return sinf(x);
    case DRA_FUNCTION_COS: return cosf(x);
    case DRA_FUNCTION_TANH: return tanhf(x);
    case DRA_FUNCTION_ERF: return erff(x);
    case DRA_FUNCTION_SIGMOID: return dra_sigmoid(x);
    case DRA_FUNCTION_SOFTPLUS: return x == INFINITY ? x : dra_softplus(x);
    case DRA_FUNCTION_LOG_SIGMOID: return x == -INFINITY ? x : -dra_softplus(-x);
    case DRA_FUNCTION_RELU: return x > 0 || x != x ? x : 0;
    case DRA_FUNCTION_RELU2: return x > 0 || x != x ? x * x : 0;
    case DRA_FUNCTION_ELU: return x > 0 ? x : expm1f(x);
    case DRA_FUNCTION_SILU: return x * dra_sigmoid(x);
    case DRA_FUNCTION_SILU_SLOPE: {
        const float s = dra_sigmoid(x);
        return s * (1 + x * dra_sigmoid(-x));
    }
    case DRA_FUNCTION_GELU: return x * dra_gauss(x);
    case DRA_FUNCTION_GELU_SLOPE:
        return dra_gauss(x) + x * 0.39894228040143268f * expf(-0.5f * x * x);
    case DRA_FUNCTION_GELU_TANH: return x * dra_sigmoid(2 * dra_gelu_inner(x));
    case DRA_FUNCTION_GELU_TANH_SLOPE: return dra_gelu_tanh_slope(x);
    case DRA_FUNCTION_AFFINE: return a * x + b;
    case DRA_FUNCTION_CLAMP: return x < a ? a : x > b ? b : x;
    case DRA_FUNCTION_ADD: return x + y;
    case DRA_FUNCTION_SUB: return x - y;
    case DRA_FUNCTION_MUL: return x * y;
    case DRA_FUNCTION_DIV: return x / y;
    case DRA_FUNCTION_MOD: return dra_mod(x, y);
    case DRA_FUNCTION_POW: return powf(x, y);
    case DRA_FUNCTION_MINIMUM: return x <= y || x != x ? x : y;
    case DRA_FUNCTION_MAXIMUM: return x >= y || x != x ? x : y;
    default: return 0;
    }
}

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

__device__ static inline dra_word dra_function_apply(const dra_pointwise_step &s, dra_word x,
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
    default:
        if (integer)
            r.integer = dra_function_i32(s.function, x.integer, y.integer);
        else
            r.real = dra_function_real(s.function, x.real, y.real, (float)s.a, (float)s.b);
    }
    return r;
}

#endif
