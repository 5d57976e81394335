/* Mixers written as plain loops in double, for one sequence: what the library must come to. Each is
 * the text of its source, not of the library: no fused forms, no running maxima, no caches. */
#ifndef DRA_TESTS_MEMORY_PLAIN_H
#define DRA_TESTS_MEMORY_PLAIN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/memory.h"

enum { PLAIN_PARAMS = 32 };

typedef struct plain {
    const dra_specs *specs; /* of the parameters */
    double          *param[PLAIN_PARAMS];
    int64_t          T, C, H, D; /* E = D */
    int64_t          window;     /* 0: all */
    const double    *x;          /* (T, C) */
    double          *y;          /* (T, C) */
} plain;

typedef void (*plain_mixer)(const plain *p);

static inline const double *plain_param(const plain *p, const char *name)
{
    const int i = dra_specs_find(p->specs, name);
    return i < 0 ? NULL : p->param[i];
}

static inline double *plain_zeros(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof *x);
    if (!x) abort();
    return x;
}

static inline double plain_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* y_j = sum_i w_ji x_i + b_j for n rows; b may be NULL. */
static inline void plain_linear(int64_t n, int64_t in, int64_t out, const double *w,
                                const double *b, const double *x, double *y)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < out; j++) {
            double sum = b ? b[j] : 0;
            for (int64_t i = 0; i < in; i++) sum += w[j * in + i] * x[r * in + i];
            y[r * out + j] = sum;
        }
}

/* q, k or v of all tokens, (T, H D). */
static inline double *plain_project(const plain *p, const char *w, const char *b)
{
    double *y = plain_zeros(p->T * p->H * p->D);
    plain_linear(p->T, p->C, p->H * p->D, plain_param(p, w), plain_param(p, b), p->x, y);
    return y;
}

/* y_t = W_o (heads of token t) */
static inline void plain_output(const plain *p, const double *heads)
{
    plain_linear(p->T, p->H * p->D, p->C, plain_param(p, "W_o"), plain_param(p, "b_o"), heads,
                 p->y);
}

/* softmax(q.K / sqrt(D)) V of one query over n items, (n, H D), head by head. */
static inline void plain_attend(const plain *p, const double *q, int64_t n, const double *K,
                                const double *V, double *y)
{
    const int64_t D = p->D, W = p->H * D;
    for (int64_t h = 0; h < p->H; h++) {
        double sum = 0;
        for (int64_t e = 0; e < D; e++) y[h * D + e] = 0;
        for (int64_t j = 0; j < n; j++) {
            double score = 0;
            for (int64_t d = 0; d < D; d++) score += q[h * D + d] * K[j * W + h * D + d];
            const double a = exp(score / sqrt((double)D));
            sum += a;
            for (int64_t e = 0; e < D; e++) y[h * D + e] += a * V[j * W + h * D + e];
        }
        for (int64_t e = 0; e < D; e++) y[h * D + e] /= sum;
    }
}

/* ---- softmax attention ----------------------------------------------------------------------- */

static inline void plain_softmax(const plain *p)
{
    const int64_t W = p->H * p->D;
    double       *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double       *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(p->T * W);
    for (int64_t t = 0; t < p->T; t++) {
        const int64_t first = p->window && t + 1 > p->window ? t + 1 - p->window : 0;
        plain_attend(p, q + t * W, t + 1 - first, k + first * W, v + first * W, y + t * W);
    }
    plain_output(p, y);
    free(q), free(k), free(v), free(y);
}

/* ---- a GRU cell, as PyTorch's GRUCell -------------------------------------------------------- */

/* h = gamma h + rate GRU(x, h), rate = 1 - gamma, one head, width D; `s` is "k" or "v". */
static inline void plain_cell(const plain *p, const char *s, double beta, const double *x,
                              double *h)
{
    const char *const what[] = {"W_ih", "b_ih", "W_hh", "b_hh"};
    const double     *w[4];
    const int64_t     D = p->D;
    const double      gamma = plain_sigmoid(beta), rate = plain_sigmoid(-beta);
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s_%s", s, what[i]);
        w[i] = plain_param(p, name);
    }
    double *gi = plain_zeros(3 * D), *gh = plain_zeros(3 * D);
    plain_linear(1, D, 3 * D, w[0], w[1], x, gi);
    plain_linear(1, D, 3 * D, w[2], w[3], h, gh);
    for (int64_t d = 0; d < D; d++) {
        const double r = plain_sigmoid(gi[d] + gh[d]);
        const double z = plain_sigmoid(gi[D + d] + gh[D + d]);
        const double n = tanh(gi[2 * D + d] + r * gh[2 * D + d]);
        h[d] = gamma * h[d] + rate * ((1 - z) * n + z * h[d]);
    }
    free(gi), free(gh);
}

/* The states after each token, (T, H D), of the stream x. */
static inline double *plain_states(const plain *p, const char *s, const double *x)
{
    const int64_t D = p->D, W = p->H * D;
    const double *beta = plain_param(p, "beta");
    double       *all = plain_zeros(p->T * W), *h = plain_zeros(W);
    for (int64_t t = 0; t < p->T; t++) {
        for (int64_t i = 0; i < p->H; i++) plain_cell(p, s, beta[i], x + t * W + i * D, h + i * D);
        memcpy(all + t * W, h, (size_t)W * sizeof *h);
    }
    free(h);
    return all;
}

/* Differentiable recurrent attention: keys and values smoothed by cells, then causal attention. */
static inline void plain_dra(const plain *p)
{
    const int64_t W = p->H * p->D;
    double       *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double       *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(p->T * W);
    double       *K = plain_states(p, "k", k), *V = plain_states(p, "v", v);
    for (int64_t t = 0; t < p->T; t++) plain_attend(p, q + t * W, t + 1, K, V, y + t * W);
    plain_output(p, y);
    free(q), free(k), free(v), free(y), free(K), free(V);
}

/* Attention with differentiable recurrence: called on growing prefixes, it appends the memory after
 * the last token to the raw keys and values; the last position is the output. */
static inline void plain_adr(const plain *p)
{
    const int64_t W = p->H * p->D;
    double       *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double       *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(p->T * W);
    double       *hk = plain_states(p, "k", k), *hv = plain_states(p, "v", v);
    double       *K = plain_zeros((p->T + 1) * W), *V = plain_zeros((p->T + 1) * W);
    const size_t  row = (size_t)W * sizeof *q;
    for (int64_t t = 0; t < p->T; t++) { /* the prefix of t + 1 tokens */
        memcpy(K, k, (size_t)(t + 1) * row);
        memcpy(V, v, (size_t)(t + 1) * row);
        memcpy(K + (t + 1) * W, hk + t * W, row);
        memcpy(V + (t + 1) * W, hv + t * W, row);
        plain_attend(p, q + t * W, t + 2, K, V, y + t * W);
    }
    plain_output(p, y);
    free(q), free(k), free(v), free(y), free(hk), free(hv), free(K), free(V);
}

/* The cells alone: the memory is the output. */
static inline void plain_gru(const plain *p)
{
    double *v = plain_project(p, "W_v", "b_v"), *h = plain_states(p, "v", v);
    plain_output(p, h);
    free(v), free(h);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* m = gamma m + (1 - gamma) x for each head, after each token, (T, H D). */
static inline double *plain_means(const plain *p, const double *beta, const double *x)
{
    const int64_t D = p->D, W = p->H * D;
    double       *m = plain_zeros(p->T * W);
    for (int64_t i = 0; i < p->T * W; i++) {
        const double b = beta[i % W / D], before = i < W ? 0 : m[i - W];
        m[i] = plain_sigmoid(b) * before + plain_sigmoid(-b) * x[i];
    }
    return m;
}

/* What one slot for each head holds of the stream x: cells, or the tokens themselves. */
static inline double *plain_slot(const plain *p, const char *s, const double *x)
{
    return plain_param(p, "k_W_ih") ? plain_states(p, s, x)
                                    : plain_means(p, plain_param(p, "beta"), x);
}

/* DRA-Slot: alpha_t = softmax(q_t H_K^T / sqrt(D)) over the slots of all heads, y_t = alpha_t H_V.
 * The heads of a token are the items of each query. */
static inline void plain_dra_slot(const plain *p)
{
    const int64_t D = p->D, H = p->H, W = H * D;
    double       *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double       *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(p->T * W);
    double       *K = plain_slot(p, "k", k), *V = plain_slot(p, "v", v);
    plain         one = *p;
    one.H = 1;
    for (int64_t i = 0; i < p->T * H; i++)
        plain_attend(&one, q + i * D, H, K + i / H * W, V + i / H * W, y + i * D);
    plain_output(p, y);
    free(q), free(k), free(v), free(y), free(K), free(V);
}

/* Pooled, one softmax over the heads: logits_h = q_h.K_h / sqrt(D), y_t = sum_h alpha_h V_h. */
static inline void plain_dra_pooled(const plain *p)
{
    const int64_t D = p->D, H = p->H, W = H * D;
    double       *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double       *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(p->T * D);
    double       *K = plain_slot(p, "k", k), *V = plain_slot(p, "v", v);
    for (int64_t t = 0; t < p->T; t++) {
        double sum = 0;
        for (int64_t h = 0; h < H; h++) {
            double logit = 0;
            for (int64_t i = t * W + h * D; i < t * W + h * D + D; i++) logit += q[i] * K[i];
            const double a = exp(logit / sqrt((double)D));
            sum += a;
            for (int64_t e = 0; e < D; e++) y[t * D + e] += a * V[t * W + h * D + e];
        }
        for (int64_t e = 0; e < D; e++) y[t * D + e] /= sum;
    }
    plain_linear(p->T, D, p->C, plain_param(p, "W_o"), plain_param(p, "b_o"), y, p->y);
    free(q), free(k), free(v), free(y), free(K), free(V);
}

/* ---- sums over all pairs of tokens ----------------------------------------------------------- */

/* The weight of a key to a query, D numbers each, `later` steps later. */
typedef double (*plain_weight)(const plain *p, int64_t h, const double *q, const double *k,
                               int64_t later);

/* y_t = sum_{j <= t} a_tj v_j, over sum_j a_tj + eps if normalised: O(T^2). */
static inline void plain_pairs(const plain *p, plain_weight weight, bool normalised)
{
    const int64_t D = p->D, W = p->H * D;
    double       *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double       *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(p->T * W);
    for (int64_t i = 0; i < p->T * p->H; i++) {
        const int64_t t = i / p->H, h = i % p->H;
        double        sum = 1e-6;
        for (int64_t j = 0; j <= t; j++) {
            const double a = weight(p, h, q + i * D, k + j * W + h * D, t - j);
            sum += a;
            for (int64_t e = 0; e < D; e++) y[i * D + e] += a * v[j * W + h * D + e];
        }
        for (int64_t e = 0; normalised && e < D; e++) y[i * D + e] /= sum;
    }
    plain_output(p, y);
    free(q), free(k), free(v), free(y);
}

static inline double plain_elu1(double x) { return x > 0 ? x + 1 : exp(x); }

static inline double plain_feature_weight(const plain *p, int64_t h, const double *q,
                                          const double *k, int64_t later)
{
    double sum = 0;
    for (int64_t d = 0; d < p->D; d++) sum += plain_elu1(q[d]) * plain_elu1(k[d]);
    return sum;
}

/* Linear attention: a_tj = f(q_t).f(k_j), f(x) = elu(x) + 1. */
static inline void plain_linear_attention(const plain *p)
{
    plain_pairs(p, plain_feature_weight, true);
}

static inline double plain_retention_weight(const plain *p, int64_t h, const double *q,
                                            const double *k, int64_t later)
{
    double sum = 0;
    for (int64_t d = 0; d < p->D; d++) sum += q[d] * k[d];
    return sum * pow(plain_sigmoid(plain_param(p, "beta")[h]), (double)later);
}

/* Retention: a_tj = gamma^(t-j) q_t.k_j. */
static inline void plain_retention(const plain *p)
{
    plain_pairs(p, plain_retention_weight, false);
}

/* ---- running means --------------------------------------------------------------------------- */

/* m = gamma m + (1 - gamma) v for each head; the memory is the output. Here and above 1 - gamma is
 * sigmoid(-beta): a difference would keep 12 digits of it at a half-life of 2^14. */
static inline void plain_ema(const plain *p)
{
    double *v = plain_project(p, "W_v", "b_v"), *m = plain_means(p, plain_param(p, "beta_v"), v);
    plain_output(p, m);
    free(v), free(m);
}

/* ---- shortconv ------------------------------------------------------------------------------- */

/* Each channel: the last products of key and value, each times its tap, times the query. */
static inline void plain_shortconv(const plain *p)
{
    enum { W = 3 };
    const int64_t N = p->H * p->D;
    const double *taps = plain_param(p, "taps");
    double       *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double       *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(p->T * N);
    for (int64_t t = 0; t < p->T; t++)
        for (int64_t c = 0; c < N; c++) {
            double sum = 0;
            for (int64_t i = 0; i < W && i <= t; i++)
                sum += taps[c * W + W - 1 - i] * k[(t - i) * N + c] * v[(t - i) * N + c];
            y[t * N + c] = q[t * N + c] * sum;
        }
    plain_output(p, y);
    free(q), free(k), free(v), free(y);
}

/* ---- wkv ------------------------------------------------------------------------------------- */

/* Per channel, the sums as they are written, no maxima:
 *   wkv_t = (sum_{i<t} e^(k_i + (t-1-i) w) v_i + e^(u + k_t) v_t) / (the same without v) */
static inline void plain_wkv(const plain *p)
{
    const int64_t W = p->H * p->D;
    const double *decay = plain_param(p, "time_decay"), *u = plain_param(p, "time_first");
    double       *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double       *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(p->T * W);
    for (int64_t c = 0; c < W; c++)
        for (int64_t t = 0; t < p->T; t++) {
            const double own = exp(u[c] + k[t * W + c]), w = -exp(decay[c]);
            double       num = own * v[t * W + c], den = own;
            for (int64_t i = 0; i < t; i++) {
                const double a = exp(k[i * W + c] + (double)(t - 1 - i) * w);
                num += a * v[i * W + c];
                den += a;
            }
            y[t * W + c] = plain_sigmoid(q[t * W + c]) * num / den;
        }
    plain_output(p, y);
    free(q), free(k), free(v), free(y);
}

#endif
