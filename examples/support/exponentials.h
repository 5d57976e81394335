/* Fitting t^-a on the lags 1 .. T by sum_i w_i gamma_i^t with M half-lives spaced evenly in log2.
 * The weights minimise the sum of squared relative errors over lags that are spaced evenly in log t
 * (12 to an octave, all of the first ones), so that every octave counts the same. */
#ifndef DRA_EXAMPLES_EXPONENTIALS_H
#define DRA_EXAMPLES_EXPONENTIALS_H

#include <math.h>
#include <string.h>

enum { FIT_MOST = 16, FIT_LAGS = 256 };

typedef struct fit {
    double a, T;        /* of t^-a, 1 <= t <= T                   */
    int    M;           /* exponentials                           */
    int    positive;    /* weights are not negative               */
    double lo, hi;      /* log2 of the first and last half-life   */
    double w[FIT_MOST]; /* found                                  */
    double worst, rms;  /* relative errors at the lags            */
} fit;

/* ln(gamma_i); a single half-life is in the middle. */
static double fit_rate(const fit *f, int i)
{
    const double at = f->M > 1 ? (double)i / (f->M - 1) : 0.5;
    return -log(2) / exp2(f->lo + (f->hi - f->lo) * at);
}

static double fit_value(const fit *f, double t)
{
    double sum = 0;
    for (int i = 0; i < f->M; i++) sum += f->w[i] * exp(fit_rate(f, i) * t);
    return sum;
}

static int fit_lags(const fit *f, double t[FIT_LAGS])
{
    int n = 0;
    for (int i = 0; round(exp2(i / 12.0)) <= f->T && n < FIT_LAGS; i++)
        if (n == 0 || round(exp2(i / 12.0)) > t[n - 1]) t[n++] = round(exp2(i / 12.0));
    return n;
}

/* x = argmin |A x - b|: Gram and Schmidt over the columns, b the last of them. */
static void least_squares(int n, int m, double A[][FIT_LAGS], double *x)
{
    double R[FIT_MOST + 1][FIT_MOST + 1];
    for (int j = 0; j < m; j++) {
        double size = 0;
        for (int t = 0; t < n; t++) size += A[j][t] * A[j][t];
        for (int k = j + 1; k <= m; k++) {
            double dot = 0;
            for (int t = 0; t < n; t++) dot += A[j][t] * A[k][t];
            R[j][k] = dot / size;
            for (int t = 0; t < n; t++) A[k][t] -= R[j][k] * A[j][t];
        }
    }
    for (int j = m - 1; j >= 0; j--) {
        x[j] = R[j][m];
        for (int k = j + 1; k < m; k++) x[j] -= R[j][k] * x[k];
    }
}

/* Weights of the exponentials in `used`; the others are 0. */
static void solve(const fit *f, int n, const double *t, const int *used, double *w)
{
    static double A[FIT_MOST + 1][FIT_LAGS];
    double        x[FIT_MOST];
    int           m = 0;
    for (int i = 0; i <= f->M; i++) {
        if (i < f->M && !used[i]) continue;
        for (int k = 0; k < n; k++) /* over t^-a: relative errors */
            A[m][k] = i < f->M ? exp(fit_rate(f, i) * t[k]) * pow(t[k], f->a) : 1;
        m++;
    }
    least_squares(n, m - 1, A, x);
    for (int i = f->M - 1; i >= 0; i--) w[i] = used[i] ? x[--m - 1] : 0;
}

/* What is missing at each lag, relative to t^-a. */
static void residual(const fit *f, int n, const double *t, double *r)
{
    for (int k = 0; k < n; k++) r[k] = 1 - fit_value(f, t[k]) * pow(t[k], f->a);
}

/* The unused exponential that would lower the error most; -1: none would. */
static int most_wanted(const fit *f, int n, const double *t, const int *used)
{
    double r[FIT_LAGS], best = 1e-9;
    int    which = -1;
    residual(f, n, t, r);
    for (int i = 0; i < f->M; i++) {
        double slope = 0, size = 0;
        for (int k = 0; k < n && !used[i]; k++) {
            const double column = exp(fit_rate(f, i) * t[k]) * pow(t[k], f->a);
            slope += column * r[k];
            size += column * column;
        }
        if (!used[i] && slope / sqrt(size) > best) best = slope / sqrt(size), which = i;
    }
    return which;
}

/* From w towards the better s, as far as all stay positive; what reaches 0 is not used any more.
 * Returns whether s was reached. */
static int move(const fit *f, double *w, const double *s, int *used)
{
    double part = 1;
    int    hit = -1;
    for (int i = 0; i < f->M; i++)
        if (used[i] && s[i] <= 0 && w[i] / (w[i] - s[i]) < part)
            part = w[i] / (w[i] - s[i]), hit = i;
    for (int i = 0; i < f->M; i++) w[i] += part * (s[i] - w[i]);
    if (hit >= 0) used[hit] = 0, w[hit] = 0;
    return hit < 0;
}

static void fit_errors(fit *f, int n, const double *t)
{
    double r[FIT_LAGS], sum = 0;
    residual(f, n, t, r);
    f->worst = 0;
    for (int k = 0; k < n; k++) {
        f->worst = fmax(f->worst, fabs(r[k]));
        sum += r[k] * r[k];
    }
    f->rms = sqrt(sum / n);
}

/* All at once, or non-negative ones one after the other. [Lawson, Hanson 1974] */
static void fit_weights(fit *f)
{
    double    t[FIT_LAGS], s[FIT_MOST];
    int       used[FIT_MOST], which;
    const int n = fit_lags(f, t);
    memset(f->w, 0, sizeof f->w);
    for (int i = 0; i < f->M; i++) used[i] = !f->positive;
    if (!f->positive) solve(f, n, t, used, f->w);
    for (int tries = 0; f->positive && tries < 3 * FIT_MOST; tries++) {
        if ((which = most_wanted(f, n, t, used)) < 0) break;
        used[which] = 1;
        do solve(f, n, t, used, s);
        while (!move(f, f->w, s, used));
    }
    fit_errors(f, n, t);
}

/* The range of half-lives with the smallest largest error: steps of 1, 1/2, ... 1/16 in log2. */
static fit fit_power(double a, double T, int M, int positive)
{
    fit best = {.a = a, .T = T, .M = M, .positive = positive, .lo = 0, .hi = log2(T)};
    fit_weights(&best);
    for (double step = 1; step >= 1 / 16.0; step /= 2)
        for (int moved = 1; moved;) {
            moved = 0;
            for (int way = 0; way < 4; way++) {
                fit other = best;
                *(way < 2 ? &other.lo : &other.hi) += way % 2 ? step : -step;
                if (other.lo > other.hi) continue;
                fit_weights(&other);
                if (other.worst < best.worst) best = other, moved = 1;
            }
        }
    return best;
}

#endif
