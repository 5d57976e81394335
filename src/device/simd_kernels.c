/* The micro-kernels on vectors, compiled once for each level that has them. */
#include "device/simd.h"
#include "device/simd_level.h"
#include "device/simd_gemm.h"
#include "device/simd_math.h"

/* ---- sums ------------------------------------------------------------------------------------ */

static float simd_sum(int64_t n, const float *x) { return add_up(n, x, x, add_first); }

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

static float simd_moments(int64_t n, const float *x, float c, float *squares)
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

static float simd_max(int64_t n, const float *x)
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
static ALWAYS_INLINE void map_pairs(int64_t n, const float *x, const float *z, float *y,
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

static void simd_add(int64_t n, const float *a, const float *b, float *y)
{
    map_pairs(n, a, b, y, NULL, f_add);
}

static void simd_sub(int64_t n, const float *a, const float *b, float *y)
{
    map_pairs(n, a, b, y, NULL, f_sub);
}

static void simd_mul(int64_t n, const float *a, const float *b, float *y)
{
    map_pairs(n, a, b, y, NULL, f_mul);
}

static void simd_scale(int64_t n, float s, float *x) { map_pairs(n, x, x, x, &s, f_scale); }

static void simd_axpy(int64_t n, float s, const float *x, float *y)
{
    map_pairs(n, x, y, y, &s, f_axpy);
}

static void simd_affine(int64_t n, float s, float t, const float *x, float *y)
{
    map_pairs(n, x, x, y, (const float[]){s, t}, f_affine);
}

static void simd_center(int64_t n, const float *x, float c, float rest, float r, float *y)
{
    map_pairs(n, x, x, y, (const float[]){c, rest, r}, f_center);
}

static void simd_combine(int64_t n, float a, const float *x, float b, const float *z, float c,
                         float *y)
{
    map_pairs(n, x, z, y, (const float[]){a, b, c}, f_combine);
}

#include "device/simd_rows.h"

/* ---- maps ------------------------------------------------------------------------------------ */

static ALWAYS_INLINE void map_vectors(int64_t n, const float *x, float *y, vf (*f)(vf))
{
    for (int64_t i = 0; i < n; i += LANES)
        store_some(y + i, n - i, f(load_some(x + i, n - i, vset(1))));
}

/* Formulas that serve vectors are made of these. */
#define fabs absolute
#define sqrt vsqrt
#define MAP(name)                                                                                  \
    static void map_##name(int64_t n, const float *x, float *y) { map_vectors(n, x, y, v_##name); }
#define MAP_SHARED(name, formula)                                                                  \
    static inline vf v_##name(vf x) { return formula; }                                            \
    MAP(name)
#define MAP_OWN(name, formula) MAP(name)
#define MAP_NONE(name, formula)
#define DRA_UNARY(vectors, NAME, name, formula) MAP_##vectors(name, formula)
#include "device/functions.def"
#undef DRA_UNARY

#define ROW_SHARED(NAME, name) [DRA_MAP_##NAME] = map_##name,
#define ROW_OWN(NAME, name) [DRA_MAP_##NAME] = map_##name,
#define ROW_NONE(NAME, name)
#define DRA_UNARY(vectors, NAME, name, formula) ROW_##vectors(NAME, name)

const dra_simd LEVEL_NAMED(dra_simd) = {
    .name = LEVEL_TEXT,
    .level = LEVEL_NUMBER,
    .dot = dot,
    .sum = simd_sum,
    .max = simd_max,
    .exp_sum = exp_sum,
    .exp_scaled = exp_scaled,
    .scale = simd_scale,
    .axpy = simd_axpy,
    .add = simd_add,
    .sub = simd_sub,
    .mul = simd_mul,
    .add_rows = add_rows,
    .affine = simd_affine,
    .center = simd_center,
    .combine = simd_combine,
    .moments = simd_moments,
    .log_sum = log_sum,
    .softmax_rows = softmax_rows,
    .gemm = gemm,
    .pack_depth = PACK_DEPTH,
    .pack_rows = pack_rows_ahead,
    .pack_columns = pack_columns_ahead,
    .map =
        {
#include "device/functions.def"
        },
};
