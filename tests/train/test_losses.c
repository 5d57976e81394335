/* Losses against their formulas in double; the harness adds gradients, threads and levels. */
#include <math.h>

#include "check.h"
#include "train/losses.h"

static double over(double sum, double n) { return n > 0 ? sum / n : 0; }

static void put(const dra_loss *l, int n, dra_value *out)
{
    out[0] = l->value;
    for (int i = 0; i < n; i++) out[1 + i] = l->measure[i];
}

/* -ln softmax(x)[k] with a share of the target on all classes alike. */
static double entropy(const double *x, int64_t V, int64_t k, double smoothing)
{
    double most = x[0], sum = 0, all = 0;
    for (int64_t i = 1; i < V; i++) most = fmax(most, x[i]);
    for (int64_t i = 0; i < V; i++) sum += exp(x[i] - most);
    for (int64_t i = 0; i < V; i++) all += most + log(sum) - x[i];
    return (1 - smoothing) * (most + log(sum) - x[k]) + smoothing * all / (double)V;
}

/* ---- classes --------------------------------------------------------------------------------- */

static void build_classes(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const double                   smoothing = args ? *(const double *)args : 0;
    const dra_cross_entropy_config c = {.ignore = -1, .use_ignore = true, .smoothing = smoothing};
    const dra_loss                 l = dra_loss_classes(g, in[0], in[1], &c);
    put(&l, 1, out);
}

static void classes(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t K = check_last(&in[0]);
    double        n = 0, hits = 0;
    for (int64_t b = 0; b < in[1].count; b++) {
        const double *x = in[0].at + b * K;
        const int64_t k = (int64_t)in[1].at[b];
        bool          best = true;
        if (k < 0) continue;
        for (int64_t i = 0; i < K; i++) best = best && x[i] <= x[k];
        out[0].at[0] += entropy(x, K, k, args ? *(const double *)args : 0);
        hits += best;
        n++;
    }
    out[0].at[0] = over(out[0].at[0], n);
    out[1].at[0] = over(hits, n);
}

static const double some[] = {2, -1, 0, 4, 1}, none[] = {-1, -1, -1, -1, -1}, zeros[8] = {0},
                    tenth = 0.1;
static const check_case class_cases[] = {
    {"all count", 2, {{{2, {7, 5}}}, {{1, {7}}, CHECK_I32, 0, 4}}, .tol = 1e-5},
    {"smoothed", 2, {{{2, {7, 5}}}, {{1, {7}}, CHECK_I32, 0, 4}}, .args = &tenth},
    {"one does not", 2, {{{2, {5, 5}}}, {{1, {5}}, CHECK_I32, .values = some}}},
    {"none does", 2, {{{2, {5, 5}}}, {{1, {5}}, CHECK_I32, .values = none}}},
    {"one class", 2, {{{2, {2, 1}}}, {{1, {2}}, CHECK_I32, .values = zeros}}},
};

/* ---- squares --------------------------------------------------------------------------------- */

static void build_squared(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_loss l = dra_loss_squared(g, in[0], in[1], in[2], args != NULL);
    put(&l, 1, out);
}

static void squared(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t D = check_last(&in[0]);
    double        sum = 0, n = 0;
    for (int64_t i = 0; i < in[0].count; i++) {
        const double d = in[0].at[i] - in[1].at[i];
        sum += in[2].at[i / D] * d * d;
    }
    for (int64_t i = 0; i < in[2].count; i++) n += in[2].at[i];
    out[0].at[0] = over(sum, n) / (args ? 1 : (double)D);
    out[1].at[0] = over(sum, n) / (double)D;
}

/* Weights of rows of 3 and 2 kept positions; each row alike: 1 / kept. */
static const double     kept[] = {1, 1, 1, 0, 1, 0, 1, 0};
static const double     alike[] = {1. / 3, 1. / 3, 1. / 3, 0, 0.5, 0, 0.5, 0};
static const check_case squared_cases[] = {
    {"kept",
     3,
     {{{3, {2, 4, 3}}}, {{3, {2, 4, 3}}}, {{2, {2, 4}}, .values = kept, .constant = true}}},
    {"rows alike",
     3,
     {{{3, {2, 4, 3}}}, {{3, {2, 4, 3}}}, {{2, {2, 4}}, .values = alike, .constant = true}},
     .args = &tenth},
    {"nothing",
     3,
     {{{3, {2, 4, 3}}}, {{3, {2, 4, 3}}}, {{2, {2, 4}}, .values = zeros, .constant = true}}},
};

/* ---- Gaussian -------------------------------------------------------------------------------- */

static void build_gaussian(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_loss l = dra_loss_gaussian(g, in[0], in[1], in[2]);
    put(&l, 1, out);
}

static void gaussian(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t D = check_last(&in[1]);
    double        sum = 0, squares = 0, n = 0;
    for (int64_t i = 0; i < in[1].count; i++) {
        const double d = in[1].at[i] - in[0].at[2 * i], v = fmax(exp(in[0].at[2 * i + 1]), 1e-6);
        sum += in[2].at[i / D] * (log(v) + d * d / v) / 2;
        squares += in[2].at[i / D] * d * d;
    }
    for (int64_t i = 0; i < in[2].count; i++) n += in[2].at[i];
    out[0].at[0] = over(sum, n) / (double)D;
    out[1].at[0] = over(squares, n) / (double)D;
}

static const double     narrow[] = {0.5, -20, -0.25, 1}; /* e^-20 is below the bound */
static const check_case gaussian_cases[] = {
    {"kept",
     3,
     {{{3, {2, 4, 6}}}, {{3, {2, 4, 3}}}, {{2, {2, 4}}, .values = kept, .constant = true}}},
    {"at the bound",
     3,
     {{{3, {1, 2, 2}}, .values = narrow},
      {{3, {1, 2, 1}}},
      {{2, {1, 2}}, .values = kept, .constant = true}},
     .no_grad = true},
};

/* ---- numbers --------------------------------------------------------------------------------- */

enum { TOKEN = 3 };

static void build_numbers(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_loss l = dra_loss_numbers(g, in[0], in[1], in[2], in[3], TOKEN, 0.5);
    put(&l, 2, out);
}

static void numbers(const void *args, const check_tensor *in, check_tensor *out)
{
    double losses = 0, squares = 0, n = 0, m = 0;
    for (int64_t i = 0; i < in[0].count; i++) {
        const double d = in[2].at[i] - in[3].at[i], target = in[1].at[i];
        losses += target >= 0 ? in[0].at[i] : 0;
        squares += target == TOKEN ? d * d : 0;
        n += target >= 0;
        m += target == TOKEN;
    }
    out[0].at[0] = over(losses + 0.5 * squares, n);
    out[1].at[0] = over(losses, n);
    out[2].at[0] = over(squares, m);
}

static const double     ids[] = {3, 1, -1, 3, 0, 2}, values[] = {0.5, NAN, NAN, -2, INFINITY, NAN};
static const double     plain[] = {0, 1, 2, -1, 4, 5};
static const check_case number_cases[] = {
    {"numbers are nothing elsewhere",
     4,
     {{{2, {2, 3}}, .lo = 0, .hi = 2},
      {{2, {2, 3}}, CHECK_I32, .values = ids},
      {{2, {2, 3}}},
      {{2, {2, 3}}, .values = values, .constant = true}}},
    {"none is a number",
     4,
     {{{2, {2, 3}}, .lo = 0, .hi = 2},
      {{2, {2, 3}}, CHECK_I32, .values = plain},
      {{2, {2, 3}}},
      {{2, {2, 3}}, .values = values, .constant = true}}},
};

/* ---- preferences ----------------------------------------------------------------------------- */

static const double beta = 0.7;

static void build_preference(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_loss l = dra_loss_preference(g, in[0], in[1], in[2], beta);
    put(&l, 1, out);
}

static double mean_row(const check_tensor *losses, const check_tensor *targets, int64_t b)
{
    const int64_t T = check_last(losses);
    double        sum = 0, n = 0;
    for (int64_t t = b * T; t < (b + 1) * T; t++) {
        sum -= targets->at[t] >= 0 ? losses->at[t] : 0;
        n += targets->at[t] >= 0;
    }
    return n > 0 ? sum / n : NAN;
}

static void preference(const void *args, const check_tensor *in, check_tensor *out)
{
    double sum = 0, won = 0, n = 0;
    for (int64_t b = 0; b < in[2].count; b += 2) {
        const double lead = mean_row(&in[0], &in[1], b) - mean_row(&in[0], &in[1], b + 1);
        const double gain = lead - (in[2].at[b] - in[2].at[b + 1]);
        if (isnan(gain)) continue;
        sum += log1p(exp(-beta * gain));
        won += gain > 0;
        n++;
    }
    out[0].at[0] = over(sum, n);
    out[1].at[0] = over(won, n);
}

static const double texts[] = {-1, 1,  2,  0,  1,  -1, /* a pair, then one of pads, then another */
                               -1, -1, -1, -1, -1, -1, -1, -1, 5, 1, 1, 1};
static const check_case preference_cases[] = {
    {"pairs",
     3,
     {{{2, {6, 3}}, .lo = 0, .hi = 3},
      {{2, {6, 3}}, CHECK_I32, .values = texts},
      {{1, {6}}, .lo = -3, .hi = -0.1}}},
};

static const check_spec specs[] = {
    {"classes", 2, build_classes, classes, class_cases, COUNT(class_cases)},
    {"squared", 2, build_squared, squared, squared_cases, COUNT(squared_cases)},
    {"gaussian", 2, build_gaussian, gaussian, gaussian_cases, COUNT(gaussian_cases)},
    {"numbers", 3, build_numbers, numbers, number_cases, COUNT(number_cases)},
    {"preference", 2, build_preference, preference, preference_cases, COUNT(preference_cases)},
};

int main(void) { return check_main("losses", specs, COUNT(specs), NULL, 0); }
