/* Moments and delta rules that fade by channel, against their steps in double; parts of a
 * sequence. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/recurrent/parts.h"

static const dra_value none;

/* ---- inputs q, k, v, then what `has` names: l, u, a, c, b, S, z, m(ark) ---------------------- */

typedef struct args {
    const char *has;
    bool        delta, normalise;
    double      eps, least;
} args;

static int place(const args *a, char letter) /* 0: none */
{
    const char *at = strchr(a->has, letter);
    return at ? 3 + (int)(at - a->has) : 0;
}

static dra_value option(const args *a, const dra_value *in, char letter)
{
    const int i = place(a, letter);
    return i ? in[i] : none;
}

static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args             *a = p;
    const dra_delta_config  d = {.q = in[0],
                                 .k = in[1],
                                 .v = in[2],
                                 .b = option(a, in, 'b'),
                                 .l = option(a, in, 'l'),
                                 .S = option(a, in, 'S'),
                                 .mark = option(a, in, 'm'),
                                 .recall = option(a, in, 'a'),
                                 .replace = option(a, in, 'c')};
    const dra_moment_config m = {.q = in[0],
                                 .k = in[1],
                                 .v = in[2],
                                 .l = option(a, in, 'l'),
                                 .S = option(a, in, 'S'),
                                 .z = option(a, in, 'z'),
                                 .mark = option(a, in, 'm'),
                                 .normalise = a->normalise,
                                 .eps = a->eps,
                                 .least = a->least,
                                 .u = option(a, in, 'u')};
    dra_value               z = none;
    out[0] = a->delta ? dra_delta(g, &d, &out[1]) : dra_moment(g, &m, &out[1], &z);
    if (a->normalise) out[2] = z;
}

/* The decay of channel f: l is (H), (B, T, H), (H, F) or (B, T, H, F). */
static double decay_of(const check_tensor *l, int64_t h, int64_t row, int64_t F, int64_t f)
{
    const int32_t rank = l->shape.rank;
    const int64_t at = rank <= 2 ? h : row;
    return exp(l->at[rank == 2 || rank == 4 ? at * F + f : at]);
}

typedef struct token { /* rows of it; b: the strength, or 1 */
    const double *q, *k, *v, *a, *c, *u;
    double       *decay, b;
    int64_t       F, E, wide; /* S is (F, wide) */
    bool          delta;
} token;

/* Column e of S: v is 1 beyond E. Returns what is read. */
static double step(const token *x, double *S, int64_t e)
{
    const double v = e < x->E ? x->v[e] : 1;
    double       recalled = 0, y = 0;
    for (int64_t f = 0; f < x->F; f++) {
        const double s = S[f * x->wide + e];
        recalled += x->a ? x->a[f] * s : x->delta ? x->k[f] * x->decay[f] * s : 0;
        if (x->u) y += x->q[f] * (s + x->u[f] * x->k[f] * v);
    }
    for (int64_t f = 0; f < x->F; f++) {
        double      *s = &S[f * x->wide + e];
        const double other = x->c ? x->c[f] * recalled : -x->b * x->k[f] * recalled;
        *s = x->decay[f] * *s + other + x->b * x->k[f] * v;
        if (!x->u) y += x->q[f] * *s;
    }
    return y;
}

static void oracle_token(const args *a, const check_tensor *in, int64_t row, int64_t h, double *S,
                         double *y)
{
    const int64_t F = in[0].shape.dim[3], E = in[2].shape.dim[3];
    const int     l = place(a, 'l'), u = place(a, 'u'), ra = place(a, 'a'), b = place(a, 'b');
    double       *decay = malloc((size_t)(F + 1) * sizeof *decay), sum = 1;
    token         x = {.q = in[0].at + row * F,
                       .k = in[1].at + row * F,
                       .v = in[2].at + row * E,
                       .a = ra ? in[ra].at + row * F : NULL,
                       .c = ra ? in[place(a, 'c')].at + row * F : NULL,
                       .u = u ? in[u].at + h * F : NULL,
                       .decay = decay,
                       .b = b ? in[b].at[row] : 1,
                       .F = F,
                       .E = E,
                       .wide = E + 1,
                       .delta = a->delta};
    for (int64_t f = 0; f < F; f++) decay[f] = l ? decay_of(&in[l], h, row, F, f) : 1;
    if (a->normalise) sum = fmax(step(&x, S, E) + a->eps, a->least);
    for (int64_t e = 0; e < E; e++) y[row * E + e] = step(&x, S, e) / sum;
    free(decay);
}

static void oracle(const void *p, const check_tensor *in, check_tensor *out)
{
    const args    *a = p;
    const int64_t *q = in[0].shape.dim, B = q[0], T = q[1], H = q[2], F = q[3];
    const int64_t  E = in[2].shape.dim[3], wide = E + 1;
    const int      S0 = place(a, 'S'), z = place(a, 'z'), m = place(a, 'm');
    double        *S = malloc((size_t)(F * wide + 1) * sizeof *S);
    for (int64_t row = 0; row < B * H; row++) {
        for (int64_t i = 0; i < F * wide; i++) {
            const int64_t f = row * F + i / wide, e = i % wide;
            S[i] = e == E ? (z ? in[z].at[f] : 0) : S0 ? in[S0].at[f * E + e] : 0;
        }
        for (int64_t t = 0; t < T; t++) {
            const int64_t at = row / H * T + t;
            const int     mark = m ? (int)in[m].at[at] : 0;
            if (mark & DRA_MARK_RESET) memset(S, 0, (size_t)(F * wide) * sizeof *S);
            if (!(mark & DRA_MARK_PAD))
                oracle_token(a, in, at * H + row % H, row % H, S, out[0].at);
        }
        for (int64_t i = 0; i < F * wide; i++) {
            const int64_t f = row * F + i / wide, e = i % wide;
            if (e < E) out[1].at[f * E + e] = S[i];
            if (e == E && a->normalise) out[2].at[f] = S[i];
        }
    }
    free(S);
}

/* clang-format off: with |a| |c| small enough the state stays bounded */
#define ROWS(B, T, H, W)                                                                           \
    {                                                                                              \
        {                                                                                          \
            4, { B, T, H, W }                                                                      \
        }                                                                                          \
    }
#define SMALL(B, T, H, W)                                                                          \
    {                                                                                              \
        {4, {B, T, H, W}}, .lo = -0.5, .hi = 0.5                                                   \
    }
#define FEATURES(B, T, H, F)                                                                       \
    {                                                                                              \
        {4, {B, T, H, F}}, .lo = 0.1, .hi = 1                                                      \
    } /* their sums are far from 0 */
#define STRENGTHS(B, T, H)                                                                         \
    {                                                                                              \
        {3, {B, T, H}}, .lo = 0.1, .hi = 0.9                                                       \
    }
#define HEADS(H)                                                                                   \
    {                                                                                              \
        {1, {H}}, .lo = -1, .hi = 0                                                                \
    }
#define TOKENS(B, T, H)                                                                            \
    {                                                                                              \
        {3, {B, T, H}}, .lo = -1, .hi = 0                                                          \
    }
#define EACH(H, F)                                                                                 \
    {                                                                                              \
        {2, {H, F}}, .lo = -1, .hi = 0                                                             \
    }
#define DECAYS(B, T, H, F)                                                                         \
    {                                                                                              \
        {4, {B, T, H, F}}, .lo = -1, .hi = 0                                                       \
    }
#define STRONG(B, T, H, F)                                                                         \
    {                                                                                              \
        {4, {B, T, H, F}}, .lo = -30, .hi = 0                                                      \
    }
#define BONUS(H, F)                                                                                \
    {                                                                                              \
        {                                                                                          \
            2, { H, F }                                                                            \
        }                                                                                          \
    }
#define MATRIX(B, H, F, E)                                                                         \
    {                                                                                              \
        {                                                                                          \
            4, { B, H, F, E }                                                                      \
        }                                                                                          \
    }
#define SUM(B, H, F)                                                                               \
    {                                                                                              \
        {3, {B, H, F}}, .lo = 0.1, .hi = 1                                                         \
    }
#define MARKS(B, T)                                                                                \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = 0, .hi = 3                                                   \
    }
#define FEW(B, T)                                                                                  \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .values = few                                                      \
    }
#define QKV(B, T, H, F, E) ROWS(B, T, H, F), ROWS(B, T, H, F), ROWS(B, T, H, E)
#define RANK1(B, T, H, F) SMALL(B, T, H, F), SMALL(B, T, H, F)
/* clang-format on */

static const double far_out[] = {0, -1e30, -1000, -1e-9, -400, -1e-4, -30, -87.4};
static const double slow[] = {-4e-5, 0}, odd[] = {0, 3, 1, 2, 0, 1, 0, 0, 4, -4};
/* Resets and pads in chunks of some tokens, so that decays have gradients. */
static const double few[400] = {
    [5] = 2, [6] = 1, [40] = 3, [66] = 1, [100] = 2, [128] = 2, [133] = 1, [190] = 2};

static const args l_only = {"l"}, fed = {"lS"}, all = {"lSm"}, bonus = {"u"}, bonus_l = {"lu"},
                  bonus_all = {"luSm"};

static const check_case moment_cases[] = {
    {"one value", 4, {QKV(1, 1, 1, 1, 1), DECAYS(1, 1, 1, 1)}, &l_only},
    {"a decay for each channel", 4, {QKV(2, 7, 3, 5, 4), EACH(3, 5)}, &l_only},
    {"from a state", 5, {QKV(2, 7, 3, 5, 4), DECAYS(2, 7, 3, 5), MATRIX(2, 3, 5, 4)}, &fed},
    {"marks",
     6,
     {QKV(2, 17, 2, 3, 4), DECAYS(2, 17, 2, 3), MATRIX(2, 2, 3, 4), MARKS(2, 17)},
     &all},
    {"odd marks",
     6,
     {QKV(2, 5, 2, 3, 4),
      DECAYS(2, 5, 2, 3),
      MATRIX(2, 2, 3, 4),
      {{2, {2, 5}}, CHECK_I32, .values = odd}},
     &all},
    {"several chunks", 5, {QKV(1, 145, 2, 3, 2), DECAYS(1, 145, 2, 3), MATRIX(1, 2, 3, 2)}, &fed},
    {"chunks and marks",
     6,
     {QKV(1, 200, 1, 3, 2), DECAYS(1, 200, 1, 3), MATRIX(1, 1, 3, 2), FEW(1, 200)},
     &all},
    {"strong decay", 5, {QKV(1, 70, 2, 3, 2), STRONG(1, 70, 2, 3), MATRIX(1, 2, 3, 2)}, &fed},
    {"decays far out",
     5,
     {QKV(1, 2, 2, 2, 2), {{4, {1, 2, 2, 2}}, .values = far_out}, MATRIX(1, 2, 2, 2)},
     &fed,
     .no_grad = true}, /* differences see nothing there */
    {"a long memory",  /* half-life about 17000 tokens */
     4,
     {ROWS(1, 20000, 1, 2),
      FEATURES(1, 20000, 1, 2),
      ROWS(1, 20000, 1, 2),
      {{2, {1, 2}}, .values = slow}},
     &l_only,
     .no_grad = true}, /* 80000 numbers, each a run */
    {"wide",
     5,
     {QKV(2, 130, 2, 65, 64), DECAYS(2, 130, 2, 65), MATRIX(2, 2, 65, 64)},
     &fed,
     .no_grad = true},
    {"bonus", 4, {QKV(2, 7, 3, 5, 4), BONUS(3, 5)}, &bonus},
    {"bonus, one token", 4, {QKV(2, 1, 3, 5, 4), BONUS(3, 5)}, &bonus},
    {"bonus and a decay for each head", 5, {QKV(2, 9, 3, 5, 4), HEADS(3), BONUS(3, 5)}, &bonus_l},
    {"bonus and a decay for each token",
     5,
     {QKV(2, 9, 3, 5, 4), TOKENS(2, 9, 3), BONUS(3, 5)},
     &bonus_l},
    {"bonus and a decay for each channel",
     5,
     {QKV(2, 9, 3, 5, 4), EACH(3, 5), BONUS(3, 5)},
     &bonus_l},
    {"bonus, marks",
     7,
     {QKV(2, 17, 2, 3, 4), DECAYS(2, 17, 2, 3), BONUS(2, 3), MATRIX(2, 2, 3, 4), MARKS(2, 17)},
     &bonus_all},
    {"bonus, chunks and marks",
     7,
     {QKV(1, 200, 1, 3, 2), DECAYS(1, 200, 1, 3), BONUS(1, 3), MATRIX(1, 1, 3, 2), FEW(1, 200)},
     &bonus_all},
    {"bonus, chunks and columns",
     7,
     {QKV(1, 150, 1, 3, 50), DECAYS(1, 150, 1, 3), BONUS(1, 3), MATRIX(1, 1, 3, 50), MARKS(1, 150)},
     &bonus_all},
    {"bonus, rows of several tiles",
     7,
     {QKV(1, 67, 2, 132, 72), DECAYS(1, 67, 2, 132), BONUS(2, 132), MATRIX(1, 2, 132, 72),
      FEW(1, 67)},
     &bonus_all},
    {"bonus, strong decay",
     7,
     {QKV(1, 70, 2, 3, 2), STRONG(1, 70, 2, 3), BONUS(2, 3), MATRIX(1, 2, 3, 2), FEW(1, 70)},
     &bonus_all},
    {"no tokens", 5, {QKV(2, 0, 3, 5, 4), DECAYS(2, 0, 3, 5), MATRIX(2, 3, 5, 4)}, &fed},
    {"no rows",
     7,
     {QKV(0, 3, 3, 5, 4), DECAYS(0, 3, 3, 5), BONUS(3, 5), MATRIX(0, 3, 5, 4), MARKS(0, 3)},
     &bonus_all},
    {"no heads", 4, {QKV(2, 3, 0, 5, 4), EACH(0, 5)}, &l_only},
    {"no features", 5, {QKV(2, 3, 3, 0, 4), DECAYS(2, 3, 3, 0), MATRIX(2, 3, 0, 4)}, &fed},
    {"no values", 5, {QKV(2, 3, 3, 5, 0), DECAYS(2, 3, 3, 5), MATRIX(2, 3, 5, 0)}, &fed},
};

static const args mean = {"l", .normalise = true, .eps = 1e-6},
                  mean_all = {"lSzm", .normalise = true, .eps = 0.01},
                  mean_zero = {"lm", .normalise = true},
                  mean_half = {"lz", .normalise = true, .eps = 0.1},
                  clamped = {"lSz", .normalise = true, .least = 1};

static const check_case mean_cases[] = {
    {"a decay for each channel",
     4,
     {FEATURES(2, 7, 3, 5), FEATURES(2, 7, 3, 5), ROWS(2, 7, 3, 4), EACH(3, 5)},
     &mean},
    {"from z alone",
     5,
     {FEATURES(2, 7, 3, 5), FEATURES(2, 7, 3, 5), ROWS(2, 7, 3, 4), DECAYS(2, 7, 3, 5),
      SUM(2, 3, 5)},
     &mean_half},
    {"marks",
     7,
     {FEATURES(2, 17, 2, 3), FEATURES(2, 17, 2, 3), ROWS(2, 17, 2, 4), DECAYS(2, 17, 2, 3),
      MATRIX(2, 2, 3, 4), SUM(2, 2, 3), MARKS(2, 17)},
     &mean_all},
    {"marks, nothing under the sum",
     5,
     {FEATURES(2, 9, 2, 3), FEATURES(2, 9, 2, 3), ROWS(2, 9, 2, 4), DECAYS(2, 9, 2, 3),
      MARKS(2, 9)},
     &mean_zero},
    {"sums that are too small",
     6,
     {FEATURES(2, 70, 1, 2), FEATURES(2, 70, 1, 2), ROWS(2, 70, 1, 3), STRONG(2, 70, 1, 2),
      MATRIX(2, 1, 2, 3), SUM(2, 1, 2)},
     &clamped},
};

static const args rank1 = {"ac", true}, rank1_l = {"lac", true}, rank1_fed = {"lacS", true},
                  rank1_all = {"lacSm", true}, rule = {"lbSm", true};

static const check_case delta_cases[] = {
    {"one value", 6, {QKV(1, 1, 1, 1, 1), DECAYS(1, 1, 1, 1), RANK1(1, 1, 1, 1)}, &rank1_l},
    {"no decay", 5, {QKV(2, 7, 3, 4, 3), RANK1(2, 7, 3, 4)}, &rank1},
    {"a decay for each head", 6, {QKV(2, 7, 3, 4, 3), HEADS(3), RANK1(2, 7, 3, 4)}, &rank1_l},
    {"a decay for each token",
     6,
     {QKV(2, 7, 3, 4, 3), TOKENS(2, 7, 3), RANK1(2, 7, 3, 4)},
     &rank1_l},
    {"a decay for each channel", 6, {QKV(2, 7, 3, 4, 3), EACH(3, 4), RANK1(2, 7, 3, 4)}, &rank1_l},
    {"from a state",
     7,
     {QKV(2, 7, 3, 4, 3), DECAYS(2, 7, 3, 4), RANK1(2, 7, 3, 4), MATRIX(2, 3, 4, 3)},
     &rank1_fed},
    {"one token from a state",
     7,
     {QKV(2, 1, 3, 4, 3), DECAYS(2, 1, 3, 4), RANK1(2, 1, 3, 4), MATRIX(2, 3, 4, 3)},
     &rank1_fed},
    {"marks",
     8,
     {QKV(2, 17, 2, 3, 4), DECAYS(2, 17, 2, 3), RANK1(2, 17, 2, 3), MATRIX(2, 2, 3, 4),
      MARKS(2, 17)},
     &rank1_all},
    {"odd marks",
     8,
     {QKV(2, 5, 2, 3, 4),
      DECAYS(2, 5, 2, 3),
      RANK1(2, 5, 2, 3),
      MATRIX(2, 2, 3, 4),
      {{2, {2, 5}}, CHECK_I32, .values = odd}},
     &rank1_all},
    {"several chunks",
     7,
     {QKV(1, 145, 2, 3, 2), DECAYS(1, 145, 2, 3), RANK1(1, 145, 2, 3), MATRIX(1, 2, 3, 2)},
     &rank1_fed},
    {"chunks and marks",
     8,
     {QKV(1, 200, 1, 3, 2), DECAYS(1, 200, 1, 3), RANK1(1, 200, 1, 3), MATRIX(1, 1, 3, 2),
      FEW(1, 200)},
     &rank1_all},
    {"chunks and columns",
     8,
     {QKV(1, 150, 1, 3, 50), DECAYS(1, 150, 1, 3), RANK1(1, 150, 1, 3), MATRIX(1, 1, 3, 50),
      MARKS(1, 150)},
     &rank1_all},
    {"wide",
     7,
     {QKV(2, 130, 2, 64, 65),
      DECAYS(2, 130, 2, 64),
      {{4, {2, 130, 2, 64}}, .lo = -0.1, .hi = 0.1},
      {{4, {2, 130, 2, 64}}, .lo = -0.1, .hi = 0.1},
      MATRIX(2, 2, 64, 65)},
     &rank1_fed,
     .no_grad = true},
    {"rows of several tiles",
     8,
     {QKV(1, 67, 2, 132, 72),
      DECAYS(1, 67, 2, 132),
      {{4, {1, 67, 2, 132}}, .lo = -0.1, .hi = 0.1},
      {{4, {1, 67, 2, 132}}, .lo = -0.1, .hi = 0.1},
      MATRIX(1, 2, 132, 72),
      FEW(1, 67)},
     &rank1_all},
    {"strong decay",
     8,
     {QKV(1, 70, 2, 3, 2), STRONG(1, 70, 2, 3), RANK1(1, 70, 2, 3), MATRIX(1, 2, 3, 2), FEW(1, 70)},
     &rank1_all},
    {"the rule",
     7,
     {ROWS(2, 17, 2, 3), SMALL(2, 17, 2, 3), ROWS(2, 17, 2, 4), DECAYS(2, 17, 2, 3),
      STRENGTHS(2, 17, 2), MATRIX(2, 2, 3, 4), MARKS(2, 17)},
     &rule},
    {"the rule, a decay for each channel",
     7,
     {ROWS(1, 70, 2, 3), SMALL(1, 70, 2, 3), ROWS(1, 70, 2, 2), EACH(2, 3), STRENGTHS(1, 70, 2),
      MATRIX(1, 2, 3, 2), FEW(1, 70)},
     &rule},
    {"no tokens",
     7,
     {QKV(2, 0, 3, 4, 3), DECAYS(2, 0, 3, 4), RANK1(2, 0, 3, 4), MATRIX(2, 3, 4, 3)},
     &rank1_fed},
    {"no rows",
     7,
     {QKV(0, 3, 3, 4, 3), DECAYS(0, 3, 3, 4), RANK1(0, 3, 3, 4), MATRIX(0, 3, 4, 3)},
     &rank1_fed},
    {"no features",
     7,
     {QKV(2, 3, 3, 0, 3), DECAYS(2, 3, 3, 0), RANK1(2, 3, 3, 0), MATRIX(2, 3, 0, 3)},
     &rank1_fed},
    {"no values",
     7,
     {QKV(2, 3, 3, 4, 0), DECAYS(2, 3, 3, 4), RANK1(2, 3, 3, 4), MATRIX(2, 3, 4, 0)},
     &rank1_fed},
};

/* Only the last state is read. */
static void build_last(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_value each[3];
    build(g, p, in, each);
    out[0] = each[1];
}

static void oracle_last(const void *p, const check_tensor *in, check_tensor *out)
{
    check_tensor both[] = {in[2], *out};
    both[0].at = calloc((size_t)in[2].count + 1, sizeof *both[0].at);
    oracle(p, in, both);
    free(both[0].at);
}

static const check_case last_cases[] = {
    {"bonus",
     7,
     {QKV(1, 70, 2, 3, 2), DECAYS(1, 70, 2, 3), BONUS(2, 3), MATRIX(1, 2, 3, 2), FEW(1, 70)},
     &bonus_all},
    {"rank one",
     8,
     {QKV(1, 70, 2, 3, 2), DECAYS(1, 70, 2, 3), RANK1(1, 70, 2, 3), MATRIX(1, 2, 3, 2), FEW(1, 70)},
     &rank1_all},
};

/* ---- parts of a sequence --------------------------------------------------------------------- */

static void build_bonus(dra_graph *g, const dra_value *in, dra_value mark, const dra_value *from,
                        dra_value *y, dra_value *last)
{
    const dra_shape         s = dra_shape_of(g, in[0]);
    const dra_value         u = dra_broadcast(g, dra_number(g, 0.5), DRA_SHAPE(s.dim[2], s.dim[3]));
    const dra_moment_config m = {
        .q = in[0], .k = in[1], .v = in[2], .l = in[3], .S = from[0], .mark = mark, .u = u};
    *y = dra_moment(g, &m, &last[0], NULL);
}

/* As RWKV 7 has it: a of unit length, c = -a times a rate. */
static void build_rank1(dra_graph *g, const dra_value *in, dra_value mark, const dra_value *from,
                        dra_value *y, dra_value *last)
{
    const dra_value        a = dra_neg(g, dra_unit(g, in[4], 1e-12));
    const dra_delta_config m = {.q = in[0],
                                .k = in[1],
                                .v = in[2],
                                .l = in[3],
                                .S = from[0],
                                .mark = mark,
                                .recall = a,
                                .replace = dra_affine(g, a, -0.5, 0)};
    *y = dra_delta(g, &m, &last[0]);
}

enum { B = 2, LONG = 150, H = 2, F = 9, E = 10 };

/* clang-format off */
#define PART(last) {{4, {B, LONG, H, last}}, -1, 1}
static const parts_spec specs_of_parts[] = {
    {4, 1, {PART(F), PART(F), PART(E), {{4, {B, LONG, H, F}}, -0.3, 0}},
     {{{4, {B, H, F, E}}, -1, 1}}, build_bonus},
    {5, 1, {PART(F), PART(F), PART(E), {{4, {B, LONG, H, F}}, -0.3, 0}, PART(F)},
     {{{4, {B, H, F, E}}, -1, 1}}, build_rank1},
};
/* clang-format on */

static void parts_come_out_equal(void **unused)
{
    static const int sizes[] = {1, 2, 17, 64, 65, LONG - 1};
    for (size_t i = 0; i < COUNT(specs_of_parts); i++)
        parts_equal(&specs_of_parts[i], sizes, COUNT(sizes));
}

static void later_tokens_change_nothing(void **unused)
{
    static const int at[] = {1, 7, 8, 15, 63, 64, 100, 149};
    for (size_t i = 0; i < COUNT(at); i++)
        for (size_t k = 0; k < COUNT(specs_of_parts); k++) parts_causal(&specs_of_parts[k], at[i]);
}

int main(void)
{
    const check_spec specs[] = {
        {"moment", 2, build, oracle, moment_cases, COUNT(moment_cases)},
        {"moment, normalised", 3, build, oracle, mean_cases, COUNT(mean_cases)},
        {"delta", 2, build, oracle, delta_cases, COUNT(delta_cases)},
        {"last alone", 1, build_last, oracle_last, last_cases, COUNT(last_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_out_equal),
        cmocka_unit_test(later_tokens_change_nothing),
    };
    return check_main("dplr", specs, COUNT(specs), tests, COUNT(tests));
}
