/* The micro-kernels on vectors, compiled once for each level that has them. */
#include "device/simd.h"
#include "device/simd_level.h"
#include "device/simd_gemm.h"
#include "device/simd_math.h"

/* ---- sums ------------------------------------------------------------------------------------ */

static float sum(int64_t n, const float *x) { return add_up(n, x, x, add_first); }

static ALWAYS_INLINE float exp_scaled(int64_t n, const float *x, float scaled, float m, float *y)
{
    const vf zero = vset(0), shift = vset(-m), times = vset(scaled);
    vf       s[SUMS] = {zero, zero, zero, zero};
    for (int64_t i = 0; i < n; i += LANES) {
        const vf at = vfma(load_some(x + i, n - i, zero), times, shift);
        const vf e = first_of(v_exp(at), n - i);
        store_some(y + i, n - i, e);
        add_in_turn(s, e);
    }
    return fold_sums(s);
}

static float exp_sum(int64_t n, const float *x, float m, float *y)
{
    return exp_scaled(n, x, 1, m, y);
}

static float moments(int64_t n, const float *x, float c, float *squares)
{
    const vf zero = vset(0), middle = vset(c);
    vf       first[SUMS] = {zero, zero, zero, zero}, second[SUMS] = {zero, zero, zero, zero};
    for (int64_t i = 0; i < n; i += LANES) {
        const vf d = first_of(load_some(x + i, n - i, middle) - middle, n - i);
        add_in_turn(first, d);
        add_in_turn(second, vfma(d, d, zero));
    }
    *squares = fold_sums(second);
    return fold_sums(first);
}

static float max(int64_t n, const float *x)
{
    const vf least = vset(-INFINITY);
    vf       m[2] = {least, least};
    vmask    bad = no_lane(); /* comparisons lose NaN, so it is looked for separately */
    for (int64_t i = 0; i < n; i += 2 * LANES) {
        const vf a = load_some(x + i, n - i, least);
        const vf b = n - i > LANES ? load_some(x + i + LANES, n - i - LANES, least) : least;
        bad = either(bad, either(not_a_number(a), not_a_number(b)));
        m[0] = vmax(a, m[0]);
        m[1] = vmax(b, m[1]);
    }
    return any(bad) ? NAN : fold_max(vmax(m[0], m[1]));
}

/* ---- rows of results ------------------------------------------------------------------------- */

/* y = f(x, z) with some further numbers; y may be x or z. */
static ALWAYS_INLINE void each(int64_t n, const float *x, const float *z, float *y,
                               const float *with, vf (*f)(vf x, vf z, const float *with))
{
    for (int64_t i = 0; i < n; i += LANES) {
        const vf a = load_some(x + i, n - i, vset(0)), b = load_some(z + i, n - i, vset(0));
        store_some(y + i, n - i, f(a, b, with));
    }
}

static inline vf f_add(vf x, vf z, const float *with) { return x + z; }
static inline vf f_sub(vf x, vf z, const float *with) { return x - z; }
static inline vf f_mul(vf x, vf z, const float *with) { return x * z; }
static inline vf f_scale(vf x, vf z, const float *with) { return x * vset(with[0]); }
static inline vf f_axpy(vf x, vf z, const float *with) { return vfma(vset(with[0]), x, z); }
static inline vf f_affine(vf x, vf z, const float *with)
{
    return vfma(vset(with[0]), x, vset(with[1]));
}
static inline vf f_center(vf x, vf z, const float *with)
{
    return (x - vset(with[0]) - vset(with[1])) * vset(with[2]);
}
static inline vf f_combine(vf x, vf z, const float *with)
{
    return vset(with[0]) * vfma(vset(-with[1]), z, x - vset(with[2]));
}

static void add(int64_t n, const float *a, const float *b, float *y)
{
    each(n, a, b, y, NULL, f_add);
}

static void sub(int64_t n, const float *a, const float *b, float *y)
{
    each(n, a, b, y, NULL, f_sub);
}

static void mul(int64_t n, const float *a, const float *b, float *y)
{
    each(n, a, b, y, NULL, f_mul);
}

static void scale(int64_t n, float s, float *x) { each(n, x, x, x, &s, f_scale); }

static void axpy(int64_t n, float s, const float *x, float *y) { each(n, x, y, y, &s, f_axpy); }

static void affine(int64_t n, float s, float t, const float *x, float *y)
{
    each(n, x, x, y, (const float[]){s, t}, f_affine);
}

static void center(int64_t n, const float *x, float c, float rest, float r, float *y)
{
    each(n, x, x, y, (const float[]){c, rest, r}, f_center);
}

static void combine(int64_t n, float a, const float *x, float b, const float *z, float c, float *y)
{
    each(n, x, z, y, (const float[]){a, b, c}, f_combine);
}

#include "device/simd_rows.h"

/* ---- maps ------------------------------------------------------------------------------------ */

static ALWAYS_INLINE void map(int64_t n, const float *x, float *y, vf (*f)(vf))
{
    for (int64_t i = 0; i < n; i += LANES)
        store_some(y + i, n - i, f(load_some(x + i, n - i, vset(1))));
}

static void map_neg(int64_t n, const float *x, float *y) { map(n, x, y, negative); }
static void map_abs(int64_t n, const float *x, float *y) { map(n, x, y, absolute); }
static void map_exp(int64_t n, const float *x, float *y) { map(n, x, y, v_exp); }
static void map_log(int64_t n, const float *x, float *y) { map(n, x, y, v_log); }
static void map_sqrt(int64_t n, const float *x, float *y) { map(n, x, y, vsqrt); }
static void map_rsqrt(int64_t n, const float *x, float *y) { map(n, x, y, v_rsqrt); }
static void map_square(int64_t n, const float *x, float *y) { map(n, x, y, v_square); }
static void map_reciprocal(int64_t n, const float *x, float *y) { map(n, x, y, v_reciprocal); }
static void map_tanh(int64_t n, const float *x, float *y) { map(n, x, y, v_tanh); }
static void map_erf(int64_t n, const float *x, float *y) { map(n, x, y, v_erf); }
static void map_sigmoid(int64_t n, const float *x, float *y) { map(n, x, y, v_sigmoid); }
static void map_softplus(int64_t n, const float *x, float *y) { map(n, x, y, v_softplus); }
static void map_log_sigmoid(int64_t n, const float *x, float *y) { map(n, x, y, v_log_sigmoid); }
static void map_relu(int64_t n, const float *x, float *y) { map(n, x, y, v_relu); }
static void map_relu2(int64_t n, const float *x, float *y) { map(n, x, y, v_relu2); }
static void map_elu(int64_t n, const float *x, float *y) { map(n, x, y, v_elu); }
static void map_silu(int64_t n, const float *x, float *y) { map(n, x, y, v_silu); }
static void map_silu_slope(int64_t n, const float *x, float *y) { map(n, x, y, v_silu_slope); }
static void map_gelu(int64_t n, const float *x, float *y) { map(n, x, y, v_gelu); }
static void map_gelu_slope(int64_t n, const float *x, float *y) { map(n, x, y, v_gelu_slope); }
static void map_gelu_tanh(int64_t n, const float *x, float *y) { map(n, x, y, v_gelu_tanh); }
static void map_gelu_tanh_slope(int64_t n, const float *x, float *y)
{
    map(n, x, y, v_gelu_tanh_slope);
}

const dra_simd LEVEL_NAMED(dra_simd) = {
    .name = LEVEL_TEXT,
    .level = LEVEL_NUMBER,
    .dot = dot,
    .sum = sum,
    .max = max,
    .exp_sum = exp_sum,
    .exp_scaled = exp_scaled,
    .scale = scale,
    .axpy = axpy,
    .add = add,
    .sub = sub,
    .mul = mul,
    .add_rows = add_rows,
    .affine = affine,
    .center = center,
    .combine = combine,
    .moments = moments,
    .log_sum = log_sum,
    .softmax_rows = softmax_rows,
    .gemm = gemm,
    .pack_depth = PACK_DEPTH,
    .pack_rows = pack_rows_ahead,
    .pack_columns = pack_columns_ahead,
    .map = {[DRA_MAP_NEG] = map_neg,
            [DRA_MAP_ABS] = map_abs,
            [DRA_MAP_EXP] = map_exp,
            [DRA_MAP_LOG] = map_log,
            [DRA_MAP_SQRT] = map_sqrt,
            [DRA_MAP_RSQRT] = map_rsqrt,
            [DRA_MAP_SQUARE] = map_square,
            [DRA_MAP_RECIPROCAL] = map_reciprocal,
            [DRA_MAP_TANH] = map_tanh,
            [DRA_MAP_ERF] = map_erf,
            [DRA_MAP_SIGMOID] = map_sigmoid,
            [DRA_MAP_SOFTPLUS] = map_softplus,
            [DRA_MAP_LOG_SIGMOID] = map_log_sigmoid,
            [DRA_MAP_RELU] = map_relu,
            [DRA_MAP_RELU2] = map_relu2,
            [DRA_MAP_ELU] = map_elu,
            [DRA_MAP_SILU] = map_silu,
            [DRA_MAP_SILU_SLOPE] = map_silu_slope,
            [DRA_MAP_GELU] = map_gelu,
            [DRA_MAP_GELU_SLOPE] = map_gelu_slope,
            [DRA_MAP_GELU_TANH] = map_gelu_tanh,
            [DRA_MAP_GELU_TANH_SLOPE] = map_gelu_tanh_slope},
};
