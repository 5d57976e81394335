/* Functions of one vector, by range reduction and polynomials fitted for the smallest largest
 * error; the errors of all of them are measured by tests/device/test_simd.c. Where a product must
 * stay a product, or become an FMA, for the result to be right, vfma() says so: contraction by the
 * compiler is welcome elsewhere. */
#ifndef DRA_SRC_SIMD_MATH_H
#define DRA_SRC_SIMD_MATH_H

#include "device/simd_vector.h"

static inline vf negative(vf x) { return (vf)((vi)x ^ (vi)vset(-0.0f)); }
static inline vf absolute(vf x) { return (vf)((vi)x & ~(vi)vset(-0.0f)); }
static inline vf with_sign_of(vf x, vf sign) /* x >= 0 */
{
    return (vf)((vi)x | ((vi)sign & (vi)vset(-0.0f)));
}

/* c[0] + c[1] x + ... */
static inline vf polynomial(vf x, int n, const float *c)
{
    vf y = vset(c[n - 1]);
    UNROLL
    for (int i = n - 2; i >= 0; i--) y = vfma(y, x, vset(c[i]));
    return y;
}

/* ---- exponentials ---------------------------------------------------------------------------- */

typedef struct power { /* e^x = 2^n (1 + p) */
    vf n, p;
} power;

/* Of x + rest, |rest| much smaller: x = n ln 2 + r, then p = r + r^2 q(r) for |r| <= ln 2 / 2.
 * Limits beyond which nothing changes keep n in the range of vscale(). */
static inline power split_pair(vf x, vf rest)
{
    static const float q[] = {0.49999997f, 0.166665435f, 0.0416672006f, 0.00836658012f,
                              0.00138825097f};
    const vf           to_whole = vset(0x1.8p23f); /* adding it rounds to a whole number */
    x = vmax(vset(-150), vmin(vset(130), x));
    const vf n = vfma(x, vset(1.44269502f), to_whole) - to_whole;
    const vf most = vfma(n, vset(-0.693145752f), x); /* exact: the constant has 15 bits */
    const vf r = most + vfma(n, vset(-1.42860682e-06f), rest);
    return (power){n, vfma(r * r, polynomial(r, 5, q), r)};
}

static inline power split(vf x) { return split_pair(x, vset(0)); }

static inline vf value_of(power e) { return vscale(1 + e.p, e.n); }

static inline vf times_power(vf x, power e) { return vscale(vfma(x, e.p, x), e.n); } /* x e^.. */

static inline vf v_exp(vf x) { return value_of(split(x)); }

/* e^x - 1 for x <= 0, exact to rounding near 0 too. */
static inline vf expm1_below(vf x)
{
    const power e = split(x);
    const vf    two = vscale(vset(1), e.n);
    return vfma(two, e.p, two - 1);
}

static inline vf v_elu(vf x) { return pick(less(vset(0), x), x, expm1_below(vmin(vset(0), x))); }

/* top / (1 + e) for 0 <= e <= 1, with what the sum and the quotient lose in rounding taken back;
 * the line is near enough to -1 / (1 + e) for that. */
static inline vf share(vf top, vf e)
{
    const vf whole = 1 + e, lost = e - (whole - 1), q = top / whole;
    const vf excess = vfma(q, lost, vfma(q, whole, negative(top)));
    return vfma(excess, vfma(vset(0.5f), whole, vset(-1.457f)), q);
}

static inline vf v_tanh(vf x) /* x + x^3 p(x^2), or 1 - 2 E / (1 + E) with E = e^(-2|x|) */
{
    static const float p[] = {-0.333332807f, 0.133314416f, -0.0537397154f, 0.0206390861f,
                              -0.00570498686f};
    const vf           t = absolute(x), square = x * x, e = v_exp(-2 * t);
    const vf           near = vfma(t * square, polynomial(square, 5, p), t);
    return with_sign_of(pick(less(t, vset(0.625f)), near, 1 - share(2 * e, e)), x);
}

/* ---- logarithms ------------------------------------------------------------------------------ */

/* log(1 + f) = f - f^2/2 + f^3 p(f) for sqrt(1/2) <= 1 + f <= sqrt(2), plus k ln 2. */
static inline vf log_of_parts(vf f, vf k)
{
    static const float p[] = {0.333333313f, -0.250008225f, 0.200012341f, -0.166232988f,
                              0.142015532f, -0.131605819f, 0.127633274f, -0.07635656f};
    const vf           square = f * f;
    vf                 y = vfma(square * f, polynomial(f, 8, p), k * vset(1.42860682e-06f));
    y = vfma(square, vset(-0.5f), y);
    return vfma(k, vset(0.693145752f), f + y);
}

static inline vf v_log(vf x)
{
    const vmask below_normal = less(x, vset(0x1p-126f));
    const vf    big = pick(below_normal, x * 0x1p24f, x);
    const vu    bits = (vu)big, least = (vu)vset(0x1.6a09e6p-1f); /* sqrt(1/2) */
    const vi    k = (vi)(bits - least) >> 23;                     /* big = 2^k (1 + f) */
    const vf    f = (vf)(bits - ((vu)k << 23)) - 1;
    const vf    whole = __builtin_convertvector(k, vf) - pick(below_normal, vset(24), vset(0));
    const vf    outside = pick(less(x, vset(0)), vset(NAN), vset(-INFINITY));
    const vf    y = pick(less(vset(0), x), log_of_parts(f, whole), outside);
    return pick(less(x, vset(INFINITY)), y, x); /* infinity and NaN stay */
}

/* log(1 + e) for 0 <= e <= 1; the half of 1 + e where that is nearer to 1. */
static inline vf log1p_up_to_1(vf e)
{
    const vmask near = less(e, vset(0.41421356f));
    return log_of_parts(pick(near, e, (e - 1) * 0.5f), pick(near, vset(0), vset(1)));
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
static inline vf v_softplus(vf x)
{
    return vmax(vset(0), x) + log1p_up_to_1(v_exp(negative(absolute(x))));
}

static inline vf v_log_sigmoid(vf x) { return negative(v_softplus(negative(x))); }

/* ---- sigmoid forms --------------------------------------------------------------------------- */

typedef struct halves { /* the sigmoid and one minus it, both without cancellation */
    vf s, c;
} halves;

static inline halves sigmoid_of_pair(vf x, vf rest)
{
    const vmask below = less(x, vset(0));
    const power e = split_pair(negative(absolute(x)), pick(below, rest, negative(rest)));
    const vf    large = share(vset(1), value_of(e)), small = times_power(large, e);
    return (halves){pick(below, small, large), pick(below, large, small)};
}

static inline vf v_sigmoid(vf x) { return sigmoid_of_pair(x, vset(0)).s; }

static inline vf v_silu(vf x) { return x * v_sigmoid(x); }

static inline vf v_silu_slope(vf x)
{
    const halves h = sigmoid_of_pair(x, vset(0));
    return vfma(x * h.c, h.s, h.s);
}

/* 2 sqrt(2/pi) (x + 0.044715 x^3) as a sum of two, as its exponential is wanted: the rounding of
 * a large argument would show there. Factors of this size decide alone, so x is limited first. */
static inline void gelu_argument(vf x, vf *high, vf *low)
{
    const vf a = vset(1.59576917f), b = vset(0.0713548139f), zero = vset(0);
    const vf square = vfma(x, x, zero), square_low = vfma(x, x, negative(square));
    const vf cube = vfma(b, square, zero), cube_low = vfma(b, square, negative(cube));
    const vf sum = a + cube, part = sum - a;
    const vf sum_low = (a - (sum - part)) + (cube - part);
    const vf constants = vfma(square, vset(2.39883247e-09f), vset(-4.53406805e-08f));
    const vf rest = vfma(b, square_low, sum_low + cube_low) + constants;
    *high = vfma(x, sum, zero);
    *low = vfma(x, rest, vfma(x, sum, negative(*high)));
}

static inline vf limited(vf x, float most) { return vmax(vset(-most), vmin(vset(most), x)); }

static inline vf v_gelu_tanh(vf x) /* (1 + tanh u) / 2 = sigmoid(2 u) */
{
    vf u, rest;
    gelu_argument(limited(x, 16), &u, &rest);
    return x * sigmoid_of_pair(u, rest).s;
}

static inline vf v_gelu_tanh_slope(vf x) /* s (1 + x (1 - s) u'), s = sigmoid(u) */
{
    const vf z = limited(x, 16);
    vf       u, rest;
    gelu_argument(z, &u, &rest);
    const halves h = sigmoid_of_pair(u, rest);
    const vf     slope = vfma(z * z, z * 0.142709628f, u); /* x u', as u = a x + b x^3 */
    return vfma(slope * h.c, h.s, h.s);
}

/* ---- forms of the normal distribution -------------------------------------------------------- */

/* P(X > t) = e^(-t^2/2) s(t) for t >= 0, where (t + 2.5) s(t) hardly changes: a polynomial in
 * (t - 2.5) / (t + 2.5). The square goes into the exponential as a sum of two: its rounding would
 * show there. */
typedef struct tail {
    power bell;   /* e^(-t^2/2) */
    vf    s, low; /* s(t) is their sum */
} tail;

static inline tail normal_tail(vf t)
{
    static const float c[] = {0.706656635f,     -0.433692008f,   0.131986976f,   0.00923587568f,
                              -0.0163861848f,   -0.00160083105f, 0.00252393121f, 0.000684413186f,
                              -0.000311621407f, -0.000157701797f};
    const vf           half = vset(-0.5f) * t, square = vfma(half, t, vset(0));
    const vf           whole = t + 2.5f, lost = t - (whole - 2.5f), r = 1 / whole;
    const vmask        small = less(t, vset(2.5f)); /* the variable: two forms, as r is rounded */
    const vf           z = vfma(pick(small, 2 * t, vset(-5)), r, pick(small, vset(-1), vset(1)));
    const vf           g = polynomial(z, 10, c), q = g * r;
    const vf           missing = vfma(whole, negative(q), g) - lost * q;
    return (tail){split_pair(square, vfma(half, t, negative(square))), q, missing * r};
}

static inline vf within(vf t) { return vmin(vset(15), t); } /* the bell is 0 from there on */

static inline vf v_erf(vf x)
{
    static const float c[] = {0.128379166f,   -0.3761262f,    0.112833768f,
                              -0.0268346239f, 0.00511434535f, -0.000674951298f};
    const vf           t = absolute(x), square = x * x;
    const tail         far = normal_tail(within(t * 1.41421354f));
    const vf           y = with_sign_of(1 - times_power(2 * far.s, far.bell), x);
    return pick(less(t, vset(0.75f)), vfma(x, polynomial(square, 6, c), x), y);
}

static inline vf v_gelu(vf x) /* x P(X < x) = max(x, 0) - |x| P(X > |x|) */
{
    const vf   t = within(absolute(x));
    const tail far = normal_tail(t);
    return vmax(vset(0), x) - times_power(vfma(t, far.s, t * far.low), far.bell);
}

static inline vf v_gelu_slope(vf x) /* P(X < x) + x e^(-x^2/2) / sqrt(2 pi) */
{
    const vf   t = within(absolute(x));
    const tail far = normal_tail(t);
    const vf   below = times_power(vfma(t, vset(-0.398942292f), far.s + far.low), far.bell);
    return pick(less(x, vset(0)), below, 1 - below);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static inline vf v_relu(vf x) { return vmax(vset(0), x); }
static inline vf v_relu2(vf x) { return v_relu(x) * v_relu(x); }

#endif
