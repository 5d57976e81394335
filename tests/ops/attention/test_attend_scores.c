/* Attention with scores that are mixed between heads or come from a layer before: against the
 * formula in double, what stays masked, what is kept for the gradient. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the formula ----------------------------------------------------------------------------- */

typedef struct args { /* options by number of input; 0: none, since that is q */
    int          previous, before, after, bias, distance, hi;
    dra_head_map heads;
    double       softcap;
    bool         late;
    int64_t      topk, always;
} args;

static dra_value pick(const dra_value *in, int i) { return i ? in[i] : (dra_value){0}; }

static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args             *a = p;
    const dra_attend_config c = {.previous = pick(in, a->previous),
                                 .mix_before = pick(in, a->before),
                                 .mix_after = pick(in, a->after),
                                 .bias = pick(in, a->bias),
                                 .distance = pick(in, a->distance),
                                 .hi = pick(in, a->hi),
                                 .heads = a->heads,
                                 .softcap = a->softcap,
                                 .softcap_late = a->late,
                                 .topk = a->topk,
                                 .always = a->always};
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

static void build_scores(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args             *a = p;
    const dra_attend_config c = {.previous = pick(in, a->previous),
                                 .mix_before = pick(in, a->before),
                                 .bias = pick(in, a->bias),
                                 .scores = &out[1]};
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

typedef struct sizes {
    int64_t B, H, K, T, J, D, E;
} sizes;

static sizes sizes_of(const check_tensor *in)
{
    const int64_t *q = in[0].shape.dim, *v = in[2].shape.dim;
    return (sizes){q[0], q[1], v[1], q[2], v[2], q[3], v[3]};
}

static int64_t key_head(const args *a, const sizes *n, int64_t h)
{
    return a->heads == DRA_HEADS_DIV ? h / (n->H / n->K) : h % n->K;
}

/* s (H, J) of one query: q.k, softened, with the scores before. */
static void products(const args *a, const check_tensor *in, int64_t b, int64_t t, double *s)
{
    const sizes n = sizes_of(in);
    for (int64_t i = 0; i < n.H * n.J; i++) {
        const int64_t h = i / n.J, j = i % n.J;
        const double *q = in[0].at + ((b * n.H + h) * n.T + t) * n.D;
        const double *k = in[1].at + ((b * n.K + key_head(a, &n, h)) * n.J + j) * n.D;
        s[i] = 0;
        for (int64_t c = 0; c < n.D; c++) s[i] += q[c] * k[c] / sqrt((double)n.D);
        if (a->softcap > 0 && !a->late) s[i] = a->softcap * tanh(s[i] / a->softcap);
        if (a->previous) s[i] += in[a->previous].at[((b * n.H + h) * n.T + t) * n.J + j];
    }
}

/* x_h = (keep x_h) + sum_g by_hg x_g for x (H, J) */
static void mix(const check_tensor *by, bool keep, int64_t H, int64_t J, double *x)
{
    double *old = malloc((size_t)(H * J + 1) * sizeof *old);
    memcpy(old, x, (size_t)(H * J) * sizeof *old);
    for (int64_t i = 0; i < H * J; i++) {
        x[i] = keep ? old[i] : 0;
        for (int64_t g = 0; g < H; g++) x[i] += by->at[i / J * H + g] * old[g * J + i % J];
    }
    free(old);
}

static double added(const args *a, const check_tensor *in, int64_t t, int64_t h, int64_t j)
{
    const sizes n = sizes_of(in);
    double      x = a->bias ? in[a->bias].at[h * n.J + j] : 0;
    if (a->distance) {
        const int64_t N = in[a->distance].shape.dim[1], far = n.J - n.T + t - j;
        x += in[a->distance].at[h * N + (far < 0 ? 0 : far < N ? far : N - 1)];
    }
    return x;
}

static int larger_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* From the logits of one query and head to its weights. */
static void weigh(const args *a, int64_t J, double *s)
{
    double *sorted = malloc((size_t)J * sizeof *sorted), sum = 0;
    memcpy(sorted, s, (size_t)J * sizeof *sorted);
    qsort(sorted, (size_t)J, sizeof *sorted, larger_first);
    for (int64_t j = 0; j < J; j++) {
        if (a->topk && a->topk <= J && s[j] < sorted[a->topk - 1]) s[j] = -INFINITY;
        sum += s[j] > -INFINITY ? exp(s[j] - sorted[0]) : 0;
    }
    for (int64_t j = 0; j < J; j++) s[j] = s[j] > -INFINITY ? exp(s[j] - sorted[0]) / sum : 0;
    free(sorted);
}

static void oracle_query(const args *a, const check_tensor *in, int64_t b, int64_t t, double *s,
                         check_tensor *out, bool scores)
{
    const sizes n = sizes_of(in);
    products(a, in, b, t, s);
    if (a->before) mix(&in[a->before], true, n.H, n.J, s);
    for (int64_t i = 0; i < n.H * n.J; i++) {
        const int64_t h = i / n.J, j = i % n.J;
        if (j >= a->always) s[i] += added(a, in, t, h, j);
        if (a->late) s[i] = a->softcap * tanh(s[i] / a->softcap);
        if (j >= a->always && a->hi && j >= in[a->hi].at[b * n.T + t]) s[i] = -INFINITY;
        if (scores) out[1].at[((b * n.H + h) * n.T + t) * n.J + j] = s[i];
    }
    for (int64_t h = 0; h < n.H && n.J; h++) weigh(a, n.J, s + h * n.J);
    if (a->after) mix(&in[a->after], false, n.H, n.J, s);
    for (int64_t i = 0; i < n.H * n.J; i++) {
        const int64_t h = i / n.J;
        const double *v = in[2].at + ((b * n.K + key_head(a, &n, h)) * n.J + i % n.J) * n.E;
        double       *y = out->at + ((b * n.H + h) * n.T + t) * n.E;
        for (int64_t c = 0; c < n.E; c++) y[c] += s[i] * v[c];
    }
}

static void run_oracle(const args *a, const check_tensor *in, check_tensor *out, bool scores)
{
    const sizes n = sizes_of(in);
    double     *s = malloc((size_t)(n.H * n.J + 1) * sizeof *s);
    for (int64_t i = 0; i < n.B * n.T; i++) oracle_query(a, in, i / n.T, i % n.T, s, out, scores);
    free(s);
}

static void oracle(const void *p, const check_tensor *in, check_tensor *out)
{
    run_oracle(p, in, out, false);
}

static void oracle_scores(const void *p, const check_tensor *in, check_tensor *out)
{
    run_oracle(p, in, out, true);
}

/* clang-format off: it does not know that these are initialisers */
#define QKV(B, H, K, T, J, D, E)                                                                   \
    {{4, {B, H, T, D}}}, {{4, {B, K, J, D}}},                                                      \
    {                                                                                              \
        {                                                                                          \
            4, { B, K, J, E }                                                                      \
        }                                                                                          \
    }
#define HEADS(H)                                                                                   \
    {                                                                                              \
        {                                                                                          \
            2, { H, H }                                                                            \
        }                                                                                          \
    }
#define PAIRS(B, H, T, J)                                                                          \
    {                                                                                              \
        {                                                                                          \
            4, { B, H, T, J }                                                                      \
        }                                                                                          \
    }
#define ENDS(B, T, J)                                                                              \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = 1, .hi = J                                                   \
    }
/* clang-format on */

static const args all = {.previous = 3,
                         .before = 4,
                         .after = 5,
                         .bias = 6,
                         .distance = 7,
                         .hi = 8,
                         .heads = DRA_HEADS_MOD,
                         .softcap = 1.5,
                         .always = 2};
static const args all_late = {.previous = 3,
                              .before = 4,
                              .after = 5,
                              .bias = 6,
                              .distance = 7,
                              .hi = 8,
                              .softcap = 1.5,
                              .late = true,
                              .always = 2};
static const args all_topk = {.previous = 3,
                              .before = 4,
                              .after = 5,
                              .bias = 6,
                              .distance = 7,
                              .hi = 8,
                              .topk = 3,
                              .always = 2};

static const check_case cases[] = {
    {"previous", 4, {QKV(2, 3, 3, 5, 9, 7, 4), PAIRS(2, 3, 5, 9)}, &(args){.previous = 3}},
    {"previous, a late cap",
     4,
     {QKV(2, 3, 3, 5, 9, 7, 4), PAIRS(2, 3, 5, 9)},
     &(args){.previous = 3, .softcap = 0.8, .late = true}},
    {"mix before", 4, {QKV(2, 3, 3, 5, 9, 7, 4), HEADS(3)}, &(args){.before = 3}},
    {"mix after", 4, {QKV(2, 3, 3, 5, 9, 7, 4), HEADS(3)}, &(args){.after = 3}},
    {"mix both",
     5,
     {QKV(2, 3, 3, 5, 9, 7, 4), HEADS(3), HEADS(3)},
     &(args){.before = 3, .after = 4}},
    {"mix one head",
     5,
     {QKV(2, 1, 1, 5, 9, 7, 4), HEADS(1), HEADS(1)},
     &(args){.before = 3, .after = 4}},
    {"mix, no keys",
     5,
     {QKV(2, 3, 3, 5, 0, 7, 4), HEADS(3), HEADS(3)},
     &(args){.before = 3, .after = 4}},
    {"mix, no rows",
     5,
     {QKV(0, 3, 3, 5, 4, 7, 4), HEADS(3), HEADS(3)},
     &(args){.before = 3, .after = 4}},
    {"mix, shared keys",
     6,
     {QKV(2, 6, 2, 5, 9, 4, 3), HEADS(6), HEADS(6), ENDS(2, 5, 9)},
     &(args){.before = 3, .after = 4, .hi = 5}},
    {"mix, many pairs",
     5,
     {QKV(1, 2, 2, 40, 70, 3, 2), HEADS(2), HEADS(2)},
     &(args){.before = 3, .after = 4}},
    {"previous, mixed",
     5,
     {QKV(2, 3, 3, 5, 9, 7, 4), PAIRS(2, 3, 5, 9), HEADS(3)},
     &(args){.previous = 3, .before = 4}},
    {"everything",
     9,
     {QKV(2, 4, 2, 5, 9, 7, 4),
      PAIRS(2, 4, 5, 9),
      HEADS(4),
      HEADS(4),
      {{3, {4, 1, 9}}},
      {{2, {4, 6}}},
      ENDS(2, 5, 9)},
     &all},
    {"everything, top 3",
     9,
     {QKV(2, 4, 2, 5, 9, 7, 4),
      PAIRS(2, 4, 5, 9),
      HEADS(4),
      HEADS(4),
      {{3, {4, 1, 9}}},
      {{2, {4, 6}}},
      ENDS(2, 5, 9)},
     &all_topk},
    {"everything, a late cap",
     9,
     {QKV(2, 4, 2, 5, 9, 7, 4),
      PAIRS(2, 4, 5, 9),
      HEADS(4),
      HEADS(4),
      {{3, {4, 1, 9}}},
      {{2, {4, 6}}},
      ENDS(2, 5, 9)},
     &all_late},
};

static const check_case scores_cases[] = {
    {"scores of mixed",
     6,
     {QKV(2, 3, 3, 5, 9, 7, 4), PAIRS(2, 3, 5, 9), HEADS(3), {{3, {3, 1, 9}}}},
     &(args){.previous = 3, .before = 4, .bias = 5}},
};

/* ---- what is masked stays masked ------------------------------------------------------------- */

enum { H = 2, T = 3, J = 4, D = 2, LAYERS = 60, PAIRS_OF = H * T * J };

static void draw(uint64_t seed, int64_t n, dra_real *x)
{
    for (int64_t i = 0; i < n; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
}

/* A causal first layer, then layers that see everything but for what was masked; each adds a bias.
 * y and scores of the last, and the gradient of q. */
static check_program chain(bool mixed)
{
    dra_graph        *g = check_graph();
    const dra_value   q = check_real(g, "q", DRA_SHAPE(1, H, T, D));
    const dra_value   k = check_real(g, "k", DRA_SHAPE(1, H, J, D));
    const dra_value   bias = check_real(g, "bias", DRA_SHAPE(H, 1, J));
    const dra_value   heads = check_real(g, "heads", DRA_SHAPE(H, H));
    const dra_value   first = dra_reshape(g, dra_arange(g, T), DRA_SHAPE(1, T));
    dra_value         scores, y, dq;
    dra_attend_config c = {.scores = &scores, .bias = bias};
    c.hi = dra_add(g, first, dra_integer(g, J - T + 1));
    for (int i = 0; i < LAYERS; i++) {
        y = dra_attend(g, q, k, k, &c);
        c.hi = (dra_value){0};
        c.previous = scores;
        if (mixed) c.mix_before = heads;
    }
    dra_gradient(g, 1, &(dra_value){dra_sum_all(g, dra_square(g, y)).id}, NULL, 1, &q, &dq);
    dra_output(g, "y", y);
    dra_output(g, "scores", scores);
    dra_output(g, "dq", dq);
    return check_compile(g, 2);
}

static void masked_stays_masked(void **state)
{
    for (int mixed = 0; mixed < 2; mixed++) {
        dra_real q[H * T * D], k[H * J * D], bias[H * J];
        /* with the identity: what is mixed changes its sign and shrinks, 60 layers stay small */
        dra_real heads[] = {(dra_real)-0.75, (dra_real)-0.5, (dra_real)-0.5, (dra_real)-0.75};
        draw(1, H * T * D, q);
        draw(2, H * J * D, k);
        draw(3, H * J, bias);
        check_program p = chain(mixed);
        check_bind(&p, "q", q, sizeof q);
        check_bind(&p, "k", k, sizeof k);
        check_bind(&p, "bias", bias, sizeof bias);
        if (check_has_input(&p, "heads")) check_bind(&p, "heads", heads, sizeof heads);
        check_run(&p);
        const dra_real *s = check_result(&p, "scores");
        for (int i = 0; i < PAIRS_OF; i++) {
            const int t = i / J % T, j = i % J;
            if (j > t + J - T)
                assert_true(s[i] == (dra_real)DRA_MASKED);
            else
                assert_true(fabs((double)s[i]) < 1e3);
        }
        const dra_real *y = check_result(&p, "y"), *dq = check_result(&p, "dq");
        for (int i = 0; i < H * T * D; i++) assert_true(isfinite(y[i]) && isfinite(dq[i]));
        check_free(&p);
    }
}

/* A mixture that turns the sign of what is masked does not bring it back, in any head. */
static void mixing_does_not_unmask(void **state)
{
    dra_graph        *g = check_graph();
    dra_attend_config c = {.previous = check_real(g, "previous", DRA_SHAPE(1, H, T, J)),
                           .mix_before = check_real(g, "heads", DRA_SHAPE(H, H))};
    const dra_value   q = check_real(g, "q", DRA_SHAPE(1, H, T, D));
    const dra_value   k = check_real(g, "k", DRA_SHAPE(1, H, J, D));
    dra_value         scores;
    c.scores = &scores;
    dra_output(g, "y", dra_attend(g, q, k, k, &c));
    dra_output(g, "scores", scores);
    check_program p = check_compile(g, 1);
    dra_real      previous[PAIRS_OF], qs[H * T * D], ks[H * J * D], heads[] = {-9, -9, -9, -9};
    draw(1, H * T * D, qs);
    draw(2, H * J * D, ks);
    for (int i = 0; i < PAIRS_OF; i++) previous[i] = (dra_real)(i % 3 == 0 ? DRA_MASKED : 0.5);
    check_bind(&p, "q", qs, sizeof qs);
    check_bind(&p, "k", ks, sizeof ks);
    check_bind(&p, "previous", previous, sizeof previous);
    check_bind(&p, "heads", heads, sizeof heads);
    check_run(&p);
    const dra_real *s = check_result(&p, "scores"), *y = check_result(&p, "y");
    for (int i = 0; i < PAIRS_OF; i++)
        assert_true(i % 3 == 0 ? s[i] == (dra_real)DRA_MASKED : fabs((double)s[i]) < 100);
    for (int i = 0; i < H * T * D; i++) assert_true(isfinite(y[i]));
    check_free(&p);
}

/* ---- dropout before mixing ------------------------------------------------------------------- */

/* With v the unit matrix y is the weights: those with dropout, mixed, are those mixed after it. */
static void mixes_what_dropout_left(void **state)
{
    dra_graph        *g = check_graph();
    dra_random_config random = {"weights", dra_input(g, "key", DRA_I32, DRA_SHAPE(4)), {0}, {0}};
    dra_attend_config c = {.dropout = 0.4, .random = &random, .path = DRA_ATTEND_PLAIN};
    const dra_value   q = check_real(g, "q", DRA_SHAPE(1, H, T, D));
    const dra_value   k = check_real(g, "k", DRA_SHAPE(1, H, J, D));
    const dra_value   unit = dra_broadcast(g, dra_one_hot(g, dra_arange(g, J), J),
                                           DRA_SHAPE(1, H, J, J));
    dra_output(g, "dropped", dra_attend(g, q, k, unit, &c));
    c.mix_after = check_real(g, "heads", DRA_SHAPE(H, H));
    dra_output(g, "mixed", dra_attend(g, q, k, unit, &c));
    check_program p = check_compile(g, 1);
    dra_real      qs[H * T * D], ks[H * J * D], heads[H * H];
    int32_t       key[] = {1, 2, 3, 4};
    double        want[PAIRS_OF];
    draw(1, H * T * D, qs);
    draw(2, H * J * D, ks);
    draw(3, H * H, heads);
    check_bind(&p, "q", qs, sizeof qs);
    check_bind(&p, "k", ks, sizeof ks);
    check_bind(&p, "key", key, sizeof key);
    check_bind(&p, "heads", heads, sizeof heads);
    check_run(&p);
    const dra_real *dropped = check_result(&p, "dropped");
    for (int i = 0; i < PAIRS_OF; i++) {
        want[i] = 0;
        for (int h = 0; h < H; h++)
            want[i] += (double)heads[i / (T * J) * H + h] *
                       (double)dropped[h * T * J + i % (T * J)];
    }
    check_close("mixed", PAIRS_OF, check_result(&p, "mixed"), want, 1e-6);
    check_free(&p);
}

/* ---- what is kept for the gradient ----------------------------------------------------------- */

enum { KEPT_H = 4, KEPT_T = 64, KEPT_D = 2 };

typedef struct kept {
    const char *name;
    bool        causal, dropout, before, after, previous;
    int64_t     topk;
    bool        straight, hard;
    double      reals, bools; /* of each pair, that are alive between the passes */
} kept;

static size_t activations(const kept *o, int layers)
{
    dra_graph        *g = check_graph();
    const dra_value   heads = check_real(g, "heads", DRA_SHAPE(KEPT_H, KEPT_H));
    const dra_value   k = check_real(g, "k", DRA_SHAPE(1, KEPT_H, KEPT_T, KEPT_D));
    dra_random_config random = {"weights", dra_input(g, "key", DRA_I32, DRA_SHAPE(4)), {0}, {0}};
    dra_value         in[] = {check_real(g, "x", DRA_SHAPE(1, KEPT_H, KEPT_T, KEPT_D)), heads};
    dra_value         x = in[0], scores, dx[2];
    dra_attend_config c = {
        .path = DRA_ATTEND_PLAIN, .topk = o->topk, .topk_straight = o->straight, .hard = o->hard};
    if (o->dropout) c.dropout = 0.3, c.random = &random;
    if (o->before) c.mix_before = heads;
    if (o->after) c.mix_after = heads;
    if (o->previous) c.scores = &scores;
    if (o->causal) dra_causal_interval(g, (dra_value){0}, 1, KEPT_T, 0, &c.lo, &c.hi);
    for (int i = 0; i < layers; i++) {
        x = dra_attend(g, x, k, x, &c);
        if (o->previous) c.previous = scores;
    }
    x = dra_sum_all(g, dra_square(g, x));
    dra_gradient(g, 1, &x, NULL, 2, in, dx);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "dheads", dx[1]);
    dra_program *p = NULL;
    dra_error    err = {0};
    if (dra_compile(g, check_device(1, "ref"), &p, &err) != DRA_OK) fail_msg("%s", err.text);
    const size_t bytes = dra_program_memory(p).activations;
    dra_program_destroy(p);
    dra_graph_destroy(g);
    return bytes;
}

/* A layer more needs what it keeps: numbers of pairs, and little else. */
static void keeps_no_more_than_it_must(void **state)
{
    static const kept list[] = {
        {"plain", .reals = 1},
        {"causal", .causal = true, .reals = 1},
        {"dropout", .dropout = true, .reals = 1},
        {"top-k", .topk = 3, .reals = 1, .bools = 1},
        {"top-k, straight", .topk = 3, .straight = true, .reals = 2},
        {"hard", .hard = true, .reals = 2},
        {"mix before", .before = true, .reals = 1},
        {"mix after", .after = true, .reals = 1},
        {"mix both", .before = true, .after = true, .causal = true, .dropout = true, .reals = 1},
        {"previous", .previous = true, .causal = true, .reals = 1},
        {"previous, mixed", .previous = true, .before = true, .causal = true, .reals = 2,
         .bools = 1},
    };
    for (size_t i = 0; i < COUNT(list); i++) {
        const size_t more = (activations(&list[i], 8) - activations(&list[i], 4)) / 4;
        const double each = (double)more / (KEPT_H * KEPT_T * KEPT_T);
        const double most = list[i].reals * (double)sizeof(dra_real) + list[i].bools;
        const double rest = 0.5; /* a mask for all heads, q, k, v and y */
        if (!(each <= most + rest))
            fail_msg("%s: %.2f bytes of a pair, expected %.2f", list[i].name, each, most);
    }
}

/* A layer that is computed again has regions that are, too. */
static void mixed_body(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    (void)user;
    out[0] = dra_attend(g, in[0], in[1], in[1],
                        &(dra_attend_config){.mix_before = in[2], .mix_after = in[2]});
}

static void inside_a_recomputed_layer(void **state)
{
    enum { COUNT_Q = H * T * D, COUNT_K = H * J * D };
    dra_real q[COUNT_Q], k[COUNT_K], heads[H * H], dq[2][COUNT_Q], dheads[2][H * H];
    draw(1, COUNT_Q, q);
    draw(2, COUNT_K, k);
    draw(3, H * H, heads);
    for (int again = 0; again < 2; again++) {
        dra_graph      *g = check_graph();
        const dra_value in[] = {check_real(g, "q", DRA_SHAPE(1, H, T, D)),
                                check_real(g, "k", DRA_SHAPE(1, H, J, D)),
                                check_real(g, "heads", DRA_SHAPE(H, H))};
        dra_value       y, dx[3];
        if (again)
            dra_recompute(g, mixed_body, NULL, 3, in, 1, &y);
        else
            mixed_body(g, NULL, in, &y);
        y = dra_sum_all(g, dra_square(g, y));
        dra_gradient(g, 1, &y, NULL, 3, in, dx);
        dra_output(g, "dq", dx[0]);
        dra_output(g, "dheads", dx[2]);
        check_program p = check_compile(g, 2);
        check_bind(&p, "q", q, sizeof q);
        check_bind(&p, "k", k, sizeof k);
        check_bind(&p, "heads", heads, sizeof heads);
        check_run(&p);
        memcpy(dq[again], check_result(&p, "dq"), sizeof dq[again]);
        memcpy(dheads[again], check_result(&p, "dheads"), sizeof dheads[again]);
        check_free(&p);
    }
    assert_memory_equal(dq[0], dq[1], sizeof dq[0]);
    assert_memory_equal(dheads[0], dheads[1], sizeof dheads[0]);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void refuse(dra_shape shape, size_t offset, dra_attend_path path, dra_status code,
                   const char *text)
{
    dra_graph        *g = check_graph();
    dra_attend_config c = {.path = path};
    const dra_value   x = check_real(g, "x", DRA_SHAPE(2, 4, 3, 5));
    const dra_value   option = check_real(g, "option", shape);
    memcpy((char *)&c + offset, &option, sizeof option);
    assert_int_equal(dra_attend(g, x, x, x, &c).id, 0);
    check_refused(g, code, text);
}

#define REFUSE(option, shape, path, code, text)                                                    \
    refuse(shape, offsetof(dra_attend_config, option), path, code, text)

static void refuses(void **state)
{
    const dra_shape pairs = DRA_SHAPE(2, 4, 3, 3), heads = DRA_SHAPE(4, 4);
    REFUSE(previous, DRA_SHAPE(4, 3, 3), DRA_ATTEND_AUTO, DRA_ERR_SHAPE,
           "attend: previous is " REAL " (4, 3, 3), expected " REAL " (2, 4, 3, 3)");
    REFUSE(mix_before, DRA_SHAPE(4, 3), DRA_ATTEND_AUTO, DRA_ERR_SHAPE,
           "attend: mix_before is " REAL " (4, 3), expected " REAL " (4, 4)");
    REFUSE(mix_after, DRA_SHAPE(4), DRA_ATTEND_AUTO, DRA_ERR_SHAPE,
           "attend: mix_after is " REAL " (4), expected " REAL " (4, 4)");
    REFUSE(previous, pairs, DRA_ATTEND_TILED, DRA_ERR_VALUE,
           "attend: the tiled path has no previous");
    REFUSE(mix_before, heads, DRA_ATTEND_TILED, DRA_ERR_VALUE,
           "attend: the tiled path has no mix_before");
    REFUSE(mix_after, heads, DRA_ATTEND_FEW, DRA_ERR_VALUE,
           "attend: the few path has no mix_after");
    dra_graph        *g = check_graph();
    const dra_value   x = check_real(g, "x", DRA_SHAPE(2, 4, 3, 5));
    dra_value         lse;
    dra_attend_config c = {.lse = &lse, .mix_after = check_real(g, "heads", heads)};
    assert_int_equal(dra_attend(g, x, x, x, &c).id, 0);
    check_refused(g, DRA_ERR_VALUE, "attend: the plain path has no lse");
}

int main(void)
{
    const check_spec specs[] = {
        {"scores", 1, build, oracle, cases, COUNT(cases)},
        {"scores", 2, build_scores, oracle_scores, scores_cases, COUNT(scores_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_stays_masked),       cmocka_unit_test(mixing_does_not_unmask),
        cmocka_unit_test(mixes_what_dropout_left),   cmocka_unit_test(keeps_no_more_than_it_must),
        cmocka_unit_test(inside_a_recomputed_layer), cmocka_unit_test(refuses),
    };
    return check_main("attend scores", specs, COUNT(specs), tests, COUNT(tests));
}
