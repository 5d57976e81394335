/* Micro-kernels for whole rows, in as few passes as their formulas allow. Part of
 * simd_kernels.c. */
#ifndef DRA_SRC_SIMD_ROWS_H
#define DRA_SRC_SIMD_ROWS_H

/* `together` rows, a constant; the next ones are prefetched. Several rows at once are several
 * streams of memory: one row at a time makes 18 GB/s, 8 make 28 (Zen 4). */
static ALWAYS_INLINE void add_some_rows(int together, int64_t n, const float *x, int64_t row,
                                        float *y)
{
    for (int64_t i = 0; i < n; i += LANES) {
        vf sum = load_some(y + i, n - i, vset(0));
        UNROLL
        for (int r = 0; r < together; r++) {
            sum = sum + load_some(x + r * row + i, n - i, vset(0));
            fetch(x + r * row + i, together * row, 0);
        }
        store_some(y + i, n - i, sum);
    }
}

static void add_rows(int64_t rows, int64_t n, const float *x, int64_t row, float *y)
{
    enum { TOGETHER = 8 };
    int64_t r = 0;
    for (; r + TOGETHER <= rows; r += TOGETHER) add_some_rows(TOGETHER, n, x + r * row, row, y);
    for (; r < rows; r++) add_some_rows(1, n, x + r * row, row, y);
}

/* ---- ln sum e^x ------------------------------------------------------------------------------ */

enum { STRIP = 2048 }; /* elements added up before their sum goes to the others */

/* The plain way, for rows that are too large, too far apart or not numbers. */
static float log_sum_far(int64_t n, const float *x, float *m)
{
    float part[STRIP], s = 0;
    *m = simd_max(n, x);
    for (int64_t i = 0; i < n; i += STRIP)
        s += exp_sum(n - i < STRIP ? n - i : STRIP, x + i, *m, part);
    return logf(s);
}

#define LOG2E 1.44269502f /* as a float; 1.4e-8 of itself too small, as if x - m were */
#define WHOLE 0x1.8p23f   /* adding it rounds to a whole number, which the last bits then hold */

/* 2^(a log2(e) - k) for whole k, shift = WHOLE - k: the exponent splits into whole + f, |f| <= 1/2;
 * the power of f is a polynomial, within 1.7e-7 (on average -2e-8), and `whole`, which stays above
 * -126, is added to its exponent. */
static ALWAYS_INLINE vf power_of(vf a, vf shift, vf *whole)
{
    static const float p[] = {
        1, 0.693146944f, 0.240222365f, 0.0555073433f, 0.00967155304f, 0.00132646738f};
    *whole = vfma(a, vset(LOG2E), shift);
    const vf f = vfma(a, vset(LOG2E), shift - *whole);
    return (vf)((vu)polynomial(f, 6, p) + ((vu)*whole << 23));
}

typedef struct strip_state {
    vf high; /* the largest elements */
    vu bits; /* the largest WHOLE + whole; none is negative, so NaN of both signs exceeds them */
} strip_state;

/* Adds up 2^(x log2(e) - k). Elements too far below are clamped to where they vanish in a sum of
 * 1/2 or more, as are lanes that are not there. */
static float sum_powers(int64_t n, const float *x, float k, strip_state *seen)
{
    const vf shift = vset(WHOLE - k), least = vset((k - 120) / LOG2E), zero = vset(0);
    vf       s[SUMS] = {zero, zero, zero, zero}, whole;
    vf       high = seen->high;
    vu       bits = seen->bits;
    for (int64_t i = 0; i < n; i += LANES) {
        const vf a = vmax(least, load_some(x + i, n - i, least));
        add_in_turn(s, power_of(a, shift, &whole));
        high = vmax(a, high);
        bits = umax(bits, (vu)whole);
    }
    *seen = (strip_state){high, bits};
    return fold_sums(s);
}

/* One pass. k stands for the largest element until that is known, and is taken from the first
 * strip. The sum is divided by the power of the largest element as it was added: so it is never
 * below 1, and exactly 1 where all others vanish. */
static float log_sum(int64_t n, const float *x, float *m)
{
    const float near = 0x1p20f, room = 100; /* 2^room and a sum of such powers are floats */
    const float first = simd_max(n < STRIP ? n : STRIP, x);
    if (!(fabsf(first) < near)) return log_sum_far(n, x, m);
    const float k = rintf(first * LOG2E);
    strip_state seen = {vset(first), {0}};
    float       s = 0;
    vf          whole;
    for (int64_t i = 0; i < n; i += STRIP)
        s += sum_powers(n - i < STRIP ? n - i : STRIP, x + i, k, &seen);
    for (int j = 0; j < LANES; j++)
        if (!(((vf)seen.bits)[j] <= WHOLE + room)) return log_sum_far(n, x, m);
    *m = fold_max(seen.high);
    return logf(s / power_of(vset(*m), vset(WHOLE - k), &whole)[0]);
}

#undef LOG2E
#undef WHOLE

/* ---- softmax of short rows ------------------------------------------------------------------- */

/* A row that fills one vector at most stays in it. */
static ALWAYS_INLINE float softmax_short(int64_t n, const float *s, float *a, float *top)
{
    const vf x = load_some(s, n, vset(-INFINITY));
    *top = fold_max(x); /* forgets NaN, the sum does not */
    const vf    e = first_of(v_exp(x - vset(*top)), n);
    const float total = fold_sum(e);
    store_some(a, n, e * vset(1 / total));
    return total;
}

static void softmax_rows(int64_t rows, int64_t n, const float *s, float *a, float *lse)
{
    for (int64_t r = 0; r < rows; r++, s += n, a += n) {
        float top, total;
        if (n <= LANES) {
            total = softmax_short(n, s, a, &top);
        } else {
            top = simd_max(n, s);
            total = exp_sum(n, s, top, a);
            simd_scale(n, 1 / total, a);
        }
        if (lse) lse[r] = top + logf(total);
    }
}

#endif
