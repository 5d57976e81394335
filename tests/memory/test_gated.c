/* Gated DeltaNet and Mamba-2 written as plain loops in double, and where others go wrong: each case
 * is a pitfall (G: of gated DeltaNet, M: of Mamba-2), in a text longer than a chunk. */
#include "plain.h"
#include "subject.h"

enum { T = 70, C = 8 };

#ifdef DRA_REAL_DOUBLE
static const double NEAR = 1e-11;
#else
static const double NEAR = 5e-5; /* 70 tokens of a state that others are added to */
#endif

/* ---- the loops ------------------------------------------------------------------------------- */

typedef struct layer {
    const subject          *s;
    const dra_mixer_config *c;
    const int32_t          *mark;
    int64_t                 Hk, H, D, E;
} layer;

static double number(const layer *l, const char *name, int64_t i)
{
    const int at = dra_specs_find(l->s->t.module->params, name);
    return at < 0 ? 0 : (double)l->s->param[at][i];
}

/* n rows of W x of a token. */
static void map_token(const layer *l, const char *w, int64_t t, int64_t n, double *y)
{
    for (int64_t j = 0; j < n; j++) {
        y[j] = 0;
        for (int64_t i = 0; i < C; i++)
            y[j] += number(l, w, j * C + i) * (double)l->s->x[t * C + i];
    }
}

/* silu of the convolution of W x; the window begins where the text does, and after resets. */
static double *convolve(const layer *l, const char *w, const char *taps, const char *bias,
                        int64_t n)
{
    const int64_t W = l->c->conv.width;
    double       *all = plain_zeros(T * n), *y = plain_zeros(T * n);
    for (int64_t t = 0; t < T; t++) map_token(l, w, t, n, all + t * n);
    for (int64_t t = 0, from = 0; t < T; t++) {
        if (l->mark && l->mark[t] & DRA_MARK_RESET) from = t;
        for (int64_t j = 0; j < n; j++) {
            double sum = number(l, bias, j);
            for (int64_t k = 0; k < W && t - k >= from; k++)
                sum += number(l, taps, j * W + W - 1 - k) * all[(t - k) * n + j];
            y[t * n + j] = sum * plain_sigmoid(sum);
        }
    }
    free(all);
    return y;
}

/* To length 1, with an epsilon inside the root. */
static void make_unit(const layer *l, double *x, bool query)
{
    double       sum = l->c->a.delta.unit_eps;
    const double by = query && l->c->a.delta.scale_queries ? sqrt((double)l->D) : 1;
    for (int64_t i = 0; i < l->D; i++) sum += x[i] * x[i];
    for (int64_t i = 0; i < l->D; i++) x[i] /= sqrt(sum) * by;
}

typedef struct token { /* of a head */
    double *q, *k, *v, *S, *y;
    double  b, rate, A;
} token;

static void step_delta(const layer *l, const token *t)
{
    for (int64_t e = 0; e < l->E; e++) {
        double found = 0;
        for (int64_t d = 0; d < l->D; d++) found += t->S[d * l->E + e] * t->k[d];
        for (int64_t d = 0; d < l->D; d++) t->S[d * l->E + e] += t->k[d] * t->b * (t->v[e] - found);
    }
}

static void step_head(const layer *l, const token *t, double skip)
{
    const bool delta = strcmp(l->c->a.memory, "delta") == 0;
    for (int64_t i = 0; i < l->D * l->E; i++) t->S[i] *= exp(-t->rate * t->A);
    if (delta) step_delta(l, t);
    for (int64_t d = 0; d < l->D && !delta; d++)
        for (int64_t e = 0; e < l->E; e++) t->S[d * l->E + e] += t->rate * t->k[d] * t->v[e];
    for (int64_t e = 0; e < l->E; e++) {
        t->y[e] = skip * t->v[e];
        for (int64_t d = 0; d < l->D; d++) t->y[e] += t->S[d * l->E + e] * t->q[d];
    }
}

static double rate_of(const layer *l, double z)
{
    const dra_lambda_options *o = &l->c->a.lambda;
    double                    rate = z > 30 ? z : log1p(exp(z));
    if (o->rate_least > 0) rate = fmax(rate, o->rate_least);
    return o->rate_most > 0 ? fmin(rate, o->rate_most) : rate;
}

static void norm_groups(const layer *l, double *y)
{
    const int64_t all = l->H * l->E, G = l->c->out_norm.groups ? l->c->out_norm.groups : l->H;
    const int64_t n = all / G;
    for (int64_t g = 0; g < G; g++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += y[g * n + i] * y[g * n + i];
        for (int64_t i = 0; i < n; i++)
            y[g * n + i] *= number(l, "gain_out", l->c->out_norm.gains ? g * n + i : i) /
                            sqrt(sum / (double)n + l->c->out_norm.eps);
    }
}

/* Norm and gate in their order, then the output. */
static void put_token(const layer *l, int64_t t, double *y, double *out)
{
    const int64_t all = l->H * l->E;
    double       *z = plain_zeros(all);
    map_token(l, "W_g", t, all, z);
    if (l->c->out_norm.place == DRA_OUT_NORM_BEFORE) norm_groups(l, y);
    for (int64_t i = 0; i < all; i++) y[i] *= z[i] * plain_sigmoid(z[i]);
    if (l->c->out_norm.place == DRA_OUT_NORM_AFTER) norm_groups(l, y);
    for (int64_t j = 0; j < C; j++) {
        out[t * C + j] = 0;
        for (int64_t i = 0; i < all; i++) out[t * C + j] += number(l, "W_o", j * all + i) * y[i];
    }
    free(z);
}

static double *run_loops(const layer *l)
{
    const int64_t keys = l->Hk * l->D, all = l->H * l->E, r = l->H / l->Hk;
    const bool    delta = strcmp(l->c->a.memory, "delta") == 0;
    double       *q = convolve(l, "W_q", "conv_q", "conv_b_q", keys);
    double       *k = convolve(l, "W_k", "conv_k", "conv_b_k", keys);
    double       *v = convolve(l, "W_v", "conv_v", "conv_b_v", all);
    double       *S = plain_zeros(l->H * l->D * l->E), *y = plain_zeros(all);
    double       *out = plain_zeros(T * C), *z = plain_zeros(l->H), *b = plain_zeros(l->H);
    for (int64_t t = 0; t < T; t++) {
        for (int64_t h = 0; h < l->Hk && delta; h++) {
            make_unit(l, q + t * keys + h * l->D, true);
            make_unit(l, k + t * keys + h * l->D, false);
        }
        if (l->mark && l->mark[t] & DRA_MARK_RESET)
            memset(S, 0, (size_t)(l->H * l->D * l->E) * sizeof *S);
        map_token(l, "W_decay", t, l->H, z);
        if (delta) map_token(l, "W_b", t, l->H, b);
        for (int64_t h = 0; h < l->H; h++) {
            const double most = l->c->a.delta.strength > 0 ? l->c->a.delta.strength : 1;
            const token  one = {.q = q + t * keys + h / r * l->D,
                                .k = k + t * keys + h / r * l->D,
                                .v = v + t * all + h * l->E,
                                .S = S + h * l->D * l->E,
                                .y = y + h * l->E,
                                .b = most * plain_sigmoid(b[h]),
                                .rate = rate_of(l, z[h] + number(l, "dt_bias", h)),
                                .A = exp(number(l, "A_log", h))};
            step_head(l, &one, number(l, "D", h));
        }
        put_token(l, t, y, out);
    }
    free(q), free(k), free(v), free(S), free(y), free(z), free(b);
    return out;
}

/* ---- cases ----------------------------------------------------------------------------------- */

#define DELTA                                                                                      \
    .dim = C, .heads = 4, .key_heads = 2, .key_dim = 3, .value_dim = 5, .conv.width = 4,           \
    .gate_values = DRA_GATE_SILU, .out_norm = {DRA_OUT_NORM_BEFORE, .eps = 1e-6}
#define SOFTPLUS .lambda.decay = DRA_DECAY_DATA, .lambda.decay_form = DRA_FORM_SOFTPLUS
#define MAMBA                                                                                      \
    .dim = C, .heads = 4, .key_dim = 3, .value_dim = 5, .conv = {4, .bias = true},                 \
    .gate_values = DRA_GATE_SILU
#define SSD SOFTPLUS, .lambda.rate_values = true, .moment = {DRA_PHI_IDENTITY, .skip = true}

typedef struct pitfall {
    const char      *name;
    dra_mixer_config config;
    const char      *param; /* set to `value` everywhere */
    double           value;
    bool             resets; /* at tokens 2, 31 and 66 */
} pitfall;

static const pitfall pitfalls[] = {
    {"G1: short keys, epsilon inside the root",
     {DELTA, .a = {"delta", SOFTPLUS, .delta = {.unit_eps = 1e-2, .scale_queries = true}}},
     "W_k",
     0.02},
    {"G2, G5: strengths, decays and gates see no convolution; heads share keys by neighbours",
     {DELTA, .a = {"delta", SOFTPLUS, .delta = {.unit_eps = 1e-6, .scale_queries = true}}}},
    {"G3: norm, then gate; the gain is plain, not 1 + w",
     {DELTA, .a = {"delta", SOFTPLUS, .delta = {.unit_eps = 1e-6, .scale_queries = true}}},
     "gain_out",
     -3},
    {"G8, M3: decays of e^-300",
     {DELTA, .a = {"delta", SOFTPLUS, .delta = {.unit_eps = 1e-6, .scale_queries = true}}},
     "A_log",
     6},
    {"G9: strengths up to 2",
     {DELTA,
      .a = {"delta", SOFTPLUS, .delta = {.strength = 2, .unit_eps = 1e-6, .scale_queries = true}}},
     "W_b",
     1},
    {"G6, G10: resets cut the convolution, too",
     {DELTA, .a = {"delta", SOFTPLUS, .delta = {.unit_eps = 1e-6, .scale_queries = true}}},
     .resets = true},
    {"M1: each of two groups is normed by itself, after the gate",
     {MAMBA, .key_heads = 2, .out_norm = {DRA_OUT_NORM_AFTER, 2, .gains = true, .eps = 1e-5},
      .a = {"moment", SSD}}},
    {"M2: limits of rates",
     {MAMBA, .key_heads = 1, .out_norm = {DRA_OUT_NORM_AFTER, 1, .gains = true, .eps = 1e-5},
      .a = {"moment", SSD, .lambda.rate_least = 0.3, .lambda.rate_most = 0.6}}},
    {"M3: rates times e^A_log below -80, whose decay is 0",
     {MAMBA, .key_heads = 1, .out_norm = {DRA_OUT_NORM_AFTER, 1, .gains = true, .eps = 1e-5},
      .a = {"moment", SSD}},
     "A_log",
     6},
    {"M4: softplus of large numbers",
     {MAMBA, .key_heads = 1, .out_norm = {DRA_OUT_NORM_AFTER, 1, .gains = true, .eps = 1e-5},
      .a = {"moment", SSD}},
     "dt_bias",
     95},
    {"M6: packed texts",
     {MAMBA, .key_heads = 4, .out_norm = {DRA_OUT_NORM_AFTER, 4, .gains = true, .eps = 1e-5},
      .a = {"moment", SSD}},
     .resets = true},
};

static void expect_loops(const pitfall *p, subject *s, const char *how)
{
    outcome      out;
    const layer  l = {.s = s,
                      .c = &p->config,
                      .mark = s->t.mark,
                      .Hk = p->config.key_heads,
                      .H = p->config.heads,
                      .D = p->config.key_dim,
                      .E = p->config.value_dim};
    double      *want = run_loops(&l);
    dra_real     y[T * C];
    const double steps = how[0] == 's';
    int64_t      chunk[T];
    for (int64_t i = 0; i < T; i++) chunk[i] = 1, y[i] = 0;
    for (int64_t i = 0; i < T * C; i++) y[i] = (dra_real)want[i];
    s->t.param = s->param;
    trial_run(&s->t, steps ? T : 0, chunk, &out);
    const double d = relative_difference(T * C, out.y, y, 0);
    if (!(d <= NEAR)) fail_msg("%s, %s: differs by %g", p->name, how, d);
    outcome_free(&s->t, &out);
    free(want);
}

static void comes_to_its_loops(void **state)
{
    int32_t mark[T] = {0};
    mark[2] = mark[31] = mark[66] = DRA_MARK_RESET;
    for (size_t i = 0; i < COUNT(pitfalls); i++) {
        const pitfall *p = &pitfalls[i];
        subject        s = open_subject(&p->config, 1, T);
        dra_error      err = {0};
        dra_states_destroy(s.start);
        expect_ok(dra_states_create(s.t.device, s.t.module->state, 1, &s.start, &err), &err);
        s.t.start = s.start;
        if (p->param) set(&s, p->param, p->value);
        if (p->resets) s.t.mark = mark;
        expect_loops(p, &s, "whole");
        expect_loops(p, &s, "step by step");
        close_subject(&s);
    }
}

/* ---- what must not happen -------------------------------------------------------------------- */

/* G1: keys and queries of pads, and of weights that are 0, have a gradient that is a number. */
static void zeros_have_gradients(void **state)
{
    subject s = open_subject(&pitfalls[1].config, 1, T);
    outcome out;
    set(&s, "W_k", 0);
    set(&s, "W_q", 0);
    run(&s, &out);
    for (int i = 0; i < params_of(&s); i++)
        for (int64_t k = 0; k < dra_shape_count(&param_spec(&s, i)->shape); k++)
            assert_true(isfinite((double)out.dparam[i][k]));
    outcome_free(&s.t, &out);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_to_its_loops),
        cmocka_unit_test(zeros_have_gradients),
    };
    return check_main("gated", NULL, 0, tests, COUNT(tests));
}
