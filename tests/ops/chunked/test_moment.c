/* Moments against their steps in double; parts of a sequence. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/recurrent/parts.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none;

/* ---- moment: inputs q, k, v, then what `has` names, in the order l, S, z, m(ark) ------------- */

typedef struct args {
    const char *has;
    bool        normalise;
    double      eps, least;
    bool        jumps;
} args;

static int place(const char *has, char letter) /* 0: none */
{
    const char *at = strchr(has, letter);
    return at ? 3 + (int)(at - has) : 0;
}

static dra_value option(const args *a, const dra_value *in, char letter)
{
    const int i = place(a->has, letter);
    return i ? in[i] : none;
}

static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args             *a = p;
    dra_value               z;
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
                                 .jumps = a->jumps};
    out[0] = dra_moment(g, &m, &out[1], &z);
    if (a->normalise)
        out[2] = z;
    else
        assert_int_equal(z.id, 0);
}

typedef struct state { /* of one head of one row of the batch; z is column E of S */
    int64_t F, E;
    double *S;
} state;

static void step(const state *s, double decay, const double *k, const double *v)
{
    for (int64_t f = 0; f < s->F; f++)
        for (int64_t e = 0; e <= s->E; e++) {
            double *at = s->S + f * (s->E + 1) + e;
            *at = decay * *at + k[f] * (e < s->E ? v[e] : 1);
        }
}

static double read(const state *s, const double *q, int64_t e)
{
    double sum = 0;
    for (int64_t f = 0; f < s->F; f++) sum += q[f] * s->S[f * (s->E + 1) + e];
    return sum;
}

static void oracle_token(const args *a, const check_tensor *in, const state *s, int64_t b,
                         int64_t token, int64_t head, int bits, double *y)
{
    const int64_t H = in[0].shape.dim[2], F = s->F, E = s->E, row = token * H + head;
    const int     l = place(a->has, 'l');
    double        decay = 1;
    if (l) decay = exp(in[l].at[in[l].shape.rank == 1 ? head : row]);
    if (bits & DRA_MARK_RESET) memset(s->S, 0, (size_t)(F * (E + 1)) * sizeof *s->S);
    if (bits & DRA_MARK_PAD) return;
    step(s, decay, in[1].at + row * F, in[2].at + row * E);
    const double sum = read(s, in[0].at + row * F, E) + a->eps;
    for (int64_t e = 0; e < E; e++) {
        y[row * E + e] = read(s, in[0].at + row * F, e);
        if (a->normalise) y[row * E + e] /= sum < a->least ? a->least : sum;
    }
}

static void oracle(const void *p, const check_tensor *in, check_tensor *out)
{
    const args    *a = p;
    const int64_t *q = in[0].shape.dim, B = q[0], T = q[1], H = q[2];
    const int      S = place(a->has, 'S'), z = place(a->has, 'z'), m = place(a->has, 'm');
    state          s = {q[3], in[2].shape.dim[3], NULL};
    const int64_t  wide = s.E + 1;
    s.S = malloc((size_t)(s.F * wide + 1) * sizeof *s.S);
    for (int64_t row = 0; row < B * H; row++) {
        const int64_t b = row / H, f0 = row * s.F;
        for (int64_t i = 0; i < s.F * wide; i++) {
            const int64_t f = f0 + i / wide, e = i % wide;
            s.S[i] = e == s.E ? (z ? in[z].at[f] : 0) : S ? in[S].at[f * s.E + e] : 0;
        }
        for (int64_t t = 0; t < T; t++)
            oracle_token(a, in, &s, b, b * T + t, row % H, m ? (int)in[m].at[b * T + t] : 0,
                         out[0].at);
        for (int64_t i = 0; i < s.F * wide; i++) {
            const int64_t f = f0 + i / wide, e = i % wide;
            if (e < s.E) out[1].at[f * s.E + e] = s.S[i];
            if (e == s.E && a->normalise) out[2].at[f] = s.S[i];
        }
    }
    free(s.S);
}

/* clang-format off */
#define ROWS(B, T, H, W)     {{4, {B, T, H, W}}}
#define FEATURES(B, T, H, F) {{4, {B, T, H, F}}, .lo = 0.1, .hi = 1} /* their sums are far from 0 */
#define EACH(H)              {{1, {H}}, .lo = -1, .hi = 0}
#define DECAYS(B, T, H)      {{3, {B, T, H}}, .lo = -1, .hi = 0}
#define STRONG(B, T, H)      {{3, {B, T, H}}, .lo = -30, .hi = 0}
#define MATRIX(B, H, F, E)   {{4, {B, H, F, E}}}
#define SUM(B, H, F)         {{3, {B, H, F}}, .lo = 0.1, .hi = 1}
#define MARKS(B, T)          {{2, {B, T}}, CHECK_I32, .lo = 0, .hi = 3}
/* clang-format on */

static const args   plain = {""}, faded = {"l"}, fed = {"lS"}, all = {"lSm"}, marked = {"m"};
static const double far_out[] = {0, -1e30, -1000, -1e-9}, bits[] = {0, 3, 1, 2, 0, 1, 0, 0, 4, -4};
static const double no_decay[] = {0, 0}, slow[] = {-4e-5};

static const check_case plain_cases[] = {
    {"one value", 3, {ROWS(1, 1, 1, 1), ROWS(1, 1, 1, 1), ROWS(1, 1, 1, 1)}, &plain},
    {"no decay", 3, {ROWS(2, 7, 3, 5), ROWS(2, 7, 3, 5), ROWS(2, 7, 3, 4)}, &plain},
    {"a decay for each head",
     4,
     {ROWS(2, 7, 3, 5), ROWS(2, 7, 3, 5), ROWS(2, 7, 3, 4), EACH(3)},
     &faded},
    {"decays", 4, {ROWS(2, 7, 3, 5), ROWS(2, 7, 3, 5), ROWS(2, 7, 3, 4), DECAYS(2, 7, 3)}, &faded},
    {"from a state",
     5,
     {ROWS(2, 7, 3, 5), ROWS(2, 7, 3, 5), ROWS(2, 7, 3, 4), DECAYS(2, 7, 3), MATRIX(2, 3, 5, 4)},
     &fed},
    {"one token from a state",
     5,
     {ROWS(2, 1, 3, 5), ROWS(2, 1, 3, 5), ROWS(2, 1, 3, 4), DECAYS(2, 1, 3), MATRIX(2, 3, 5, 4)},
     &fed},
    {"marks",
     6,
     {ROWS(2, 17, 2, 3), ROWS(2, 17, 2, 3), ROWS(2, 17, 2, 4), DECAYS(2, 17, 2), MATRIX(2, 2, 3, 4),
      MARKS(2, 17)},
     &all},
    {"marks, no decay",
     4,
     {ROWS(2, 17, 2, 3), ROWS(2, 17, 2, 3), ROWS(2, 17, 2, 4), MARKS(2, 17)},
     &marked},
    {"odd marks",
     6,
     {ROWS(2, 5, 2, 3),
      ROWS(2, 5, 2, 3),
      ROWS(2, 5, 2, 4),
      DECAYS(2, 5, 2),
      MATRIX(2, 2, 3, 4),
      {{2, {2, 5}}, CHECK_I32, .values = bits}},
     &all},
    {"several chunks",
     5,
     {ROWS(1, 145, 2, 3), ROWS(1, 145, 2, 3), ROWS(1, 145, 2, 2), DECAYS(1, 145, 2),
      MATRIX(1, 2, 3, 2)},
     &fed},
    {"several chunks, no decay",
     3,
     {ROWS(1, 131, 1, 2), ROWS(1, 131, 1, 2), ROWS(1, 131, 1, 3)},
     &plain},
    {"chunks and marks",
     6,
     {ROWS(1, 130, 1, 2), ROWS(1, 130, 1, 2), ROWS(1, 130, 1, 3), DECAYS(1, 130, 1),
      MATRIX(1, 1, 2, 3), MARKS(1, 130)},
     &all},
    {"chunks and columns",
     6,
     {ROWS(1, 200, 1, 3), ROWS(1, 200, 1, 3), ROWS(1, 200, 1, 50), DECAYS(1, 200, 1),
      MATRIX(1, 1, 3, 50), MARKS(1, 200)},
     &all},
    {"wide",
     5,
     {ROWS(2, 128, 3, 64), ROWS(2, 128, 3, 64), ROWS(2, 128, 3, 65), EACH(3), MATRIX(2, 3, 64, 65)},
     &fed,
     .no_grad = true},
    {"rows of several tiles", /* of 64 columns; in fours */
     6,
     {ROWS(1, 67, 2, 132), ROWS(1, 67, 2, 132), ROWS(1, 67, 2, 72), DECAYS(1, 67, 2),
      MATRIX(1, 2, 132, 72), MARKS(1, 67)},
     &all},
    {"strong decay",
     5,
     {ROWS(1, 70, 2, 3), ROWS(1, 70, 2, 3), ROWS(1, 70, 2, 2), STRONG(1, 70, 2),
      MATRIX(1, 2, 3, 2)},
     &fed},
    {"decays far out",
     5,
     {ROWS(1, 2, 2, 3),
      ROWS(1, 2, 2, 3),
      ROWS(1, 2, 2, 2),
      {{3, {1, 2, 2}}, .values = far_out},
      MATRIX(1, 2, 3, 2)},
     &fed,
     .no_grad = true}, /* differences see nothing there */
    {"a decay of 0",
     5,
     {ROWS(1, 9, 2, 3),
      ROWS(1, 9, 2, 3),
      ROWS(1, 9, 2, 2),
      {{1, {2}}, .values = no_decay},
      MATRIX(1, 2, 3, 2)},
     &fed},
    {"a long memory", /* half-life about 17000 tokens */
     4,
     {ROWS(1, 20000, 1, 2),
      FEATURES(1, 20000, 1, 2),
      ROWS(1, 20000, 1, 2),
      {{1, {1}}, .values = slow}},
     &faded,
     .no_grad = true}, /* 80000 numbers, each a run */
    {"far-out values",
     5,
     {{{4, {2, 70, 1, 3}}, .lo = -1e6, .hi = 1e6},
      {{4, {2, 70, 1, 3}}, .lo = -1e-6, .hi = 1e-6},
      {{4, {2, 70, 1, 3}}, .lo = -1e9, .hi = 1e9},
      DECAYS(2, 70, 1),
      MATRIX(2, 1, 3, 3)},
     &fed,
     .no_grad = true}, /* one step of differences does not fit all of these */
    {"no tokens",
     5,
     {ROWS(2, 0, 3, 5), ROWS(2, 0, 3, 5), ROWS(2, 0, 3, 4), DECAYS(2, 0, 3), MATRIX(2, 3, 5, 4)},
     &fed},
    {"no rows",
     5,
     {ROWS(0, 3, 3, 5), ROWS(0, 3, 3, 5), ROWS(0, 3, 3, 4), DECAYS(0, 3, 3), MATRIX(0, 3, 5, 4)},
     &fed},
    {"no heads", 4, {ROWS(2, 3, 0, 5), ROWS(2, 3, 0, 5), ROWS(2, 3, 0, 4), EACH(0)}, &faded},
    {"no features",
     5,
     {ROWS(2, 3, 3, 0), ROWS(2, 3, 3, 0), ROWS(2, 3, 3, 4), DECAYS(2, 3, 3), MATRIX(2, 3, 0, 4)},
     &fed},
    {"no values",
     5,
     {ROWS(2, 3, 3, 5), ROWS(2, 3, 3, 5), ROWS(2, 3, 3, 0), DECAYS(2, 3, 3), MATRIX(2, 3, 5, 0)},
     &fed},
};

static const args mean = {"", true, 1e-6}, mean_faded = {"l", true, 1e-6},
                  mean_all = {"lSzm", true, 0.01}, mean_fed = {"lSz", true, .least = 1e-30},
                  mean_half = {"lS", true, 0.1}, clamped = {"lSz", true, .least = 1},
                  mean_marked = {"m", true};

static const check_case mean_cases[] = {
    {"one value", 3, {FEATURES(1, 1, 1, 1), FEATURES(1, 1, 1, 1), ROWS(1, 1, 1, 1)}, &mean},
    {"no decay", 3, {FEATURES(2, 7, 3, 5), FEATURES(2, 7, 3, 5), ROWS(2, 7, 3, 4)}, &mean},
    {"a decay for each head",
     4,
     {FEATURES(2, 7, 3, 5), FEATURES(2, 7, 3, 5), ROWS(2, 7, 3, 4), EACH(3)},
     &mean_faded},
    {"from S alone",
     5,
     {FEATURES(2, 7, 3, 5), FEATURES(2, 7, 3, 5), ROWS(2, 7, 3, 4), DECAYS(2, 7, 3),
      MATRIX(2, 3, 5, 4)},
     &mean_half},
    {"one token from a state",
     6,
     {FEATURES(2, 1, 3, 5), FEATURES(2, 1, 3, 5), ROWS(2, 1, 3, 4), DECAYS(2, 1, 3),
      MATRIX(2, 3, 5, 4), SUM(2, 3, 5)},
     &mean_fed},
    {"marks",
     7,
     {FEATURES(2, 17, 2, 3), FEATURES(2, 17, 2, 3), ROWS(2, 17, 2, 4), DECAYS(2, 17, 2),
      MATRIX(2, 2, 3, 4), SUM(2, 2, 3), MARKS(2, 17)},
     &mean_all},
    {"marks, nothing under the sum",
     4,
     {FEATURES(2, 9, 2, 3), FEATURES(2, 9, 2, 3), ROWS(2, 9, 2, 4), MARKS(2, 9)},
     &mean_marked},
    {"several chunks",
     6,
     {FEATURES(1, 145, 1, 3), FEATURES(1, 145, 1, 3), ROWS(1, 145, 1, 2), DECAYS(1, 145, 1),
      MATRIX(1, 1, 3, 2), SUM(1, 1, 3)},
     &mean_fed},
    {"chunks and columns",
     7,
     {FEATURES(1, 200, 1, 3), FEATURES(1, 200, 1, 3), ROWS(1, 200, 1, 50), DECAYS(1, 200, 1),
      MATRIX(1, 1, 3, 50), SUM(1, 1, 3), MARKS(1, 200)},
     &mean_all},
    {"sums that are too small",
     6,
     {FEATURES(2, 70, 1, 2), FEATURES(2, 70, 1, 2), ROWS(2, 70, 1, 3), STRONG(2, 70, 1),
      MATRIX(2, 1, 2, 3), SUM(2, 1, 2)},
     &clamped},
    {"wide",
     6,
     {FEATURES(2, 130, 2, 65), FEATURES(2, 130, 2, 65), ROWS(2, 130, 2, 64), DECAYS(2, 130, 2),
      MATRIX(2, 2, 65, 64), SUM(2, 2, 65)},
     &mean_fed,
     .no_grad = true},
    {"rows of several tiles",
     7,
     {FEATURES(2, 66, 1, 67), FEATURES(2, 66, 1, 67), ROWS(2, 66, 1, 130), DECAYS(2, 66, 1),
      MATRIX(2, 1, 67, 130), SUM(2, 1, 67), MARKS(2, 66)},
     &mean_all},
    {"one token of several tiles",
     7,
     {FEATURES(3, 1, 2, 70), FEATURES(3, 1, 2, 70), ROWS(3, 1, 2, 130), DECAYS(3, 1, 2),
      MATRIX(3, 2, 70, 130), SUM(3, 2, 70), MARKS(3, 1)},
     &mean_all},
    {"no tokens",
     6,
     {FEATURES(2, 0, 3, 5), FEATURES(2, 0, 3, 5), ROWS(2, 0, 3, 4), DECAYS(2, 0, 3),
      MATRIX(2, 3, 5, 4), SUM(2, 3, 5)},
     &mean_fed},
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

/* One token that writes nothing: all of the last state is what is left of the first. */
static const args   jumping = {"lS", .jumps = true};
static const double nothing[4] = {0}, strong[] = {-0.69, -0.71, -17, -30, -80};

#define FADING(at)                                                                                 \
    {                                                                                              \
        "a state under strong decay, " #at, 5,                                                     \
            {ROWS(1, 1, 1, 4),                                                                     \
             {{4, {1, 1, 1, 4}}, .values = nothing},                                               \
             ROWS(1, 1, 1, 3),                                                                     \
             {{1, {1}}, .values = strong + at},                                                    \
             MATRIX(1, 1, 4, 3)},                                                                  \
            &jumping                                                                               \
    }

static const check_case last_cases[] = {
    FADING(0),
    FADING(1),
    FADING(2),
    FADING(3),
    FADING(4),
    {"marks",
     6,
     {ROWS(2, 70, 2, 3), ROWS(2, 70, 2, 3), ROWS(2, 70, 2, 2), DECAYS(2, 70, 2), MATRIX(2, 2, 3, 2),
      MARKS(2, 70)},
     &all},
};

/* ---- parts of a sequence --------------------------------------------------------------------- */

static void build_part(dra_graph *g, const dra_value *in, dra_value mark, const dra_value *from,
                       dra_value *y, dra_value *last)
{
    *y = dra_moment(g,
                    &(dra_moment_config){.q = in[0],
                                         .k = in[1],
                                         .v = in[2],
                                         .l = in[3],
                                         .S = from[0],
                                         .z = from[1],
                                         .mark = mark,
                                         .normalise = true,
                                         .eps = 1e-6},
                    &last[0], &last[1]);
}

enum { B = 2, LONG = 150, H = 2, F = 9, E = 10 };

static const parts_spec spec = {4,
                                2,
                                {{{4, {B, LONG, H, F}}, 0.1, 1},
                                 {{4, {B, LONG, H, F}}, 0.1, 1},
                                 {{4, {B, LONG, H, E}}, -1, 1},
                                 {{3, {B, LONG, H}}, -0.1, 0}},
                                {{{4, {B, H, F, E}}, -1, 1}, {{3, {B, H, F}}, 0.1, 1}},
                                build_part};

static void parts_come_out_equal(void **unused)
{
    static const int sizes[] = {1, 2, 17, 64, 65, LONG - 1};
    parts_equal(&spec, sizes, COUNT(sizes));
}

static void later_tokens_change_nothing(void **unused)
{
    static const int at[] = {1, 15, 63, 64, 100, 149};
    for (size_t i = 0; i < COUNT(at); i++) parts_causal(&spec, at[i]);
}

/* Pads may hold anything; so may what a reset cuts off. */
static void pads_may_hold_anything(void **unused)
{
    enum { T = 3 };
    dra_real   q[T] = {1, NAN, 2}, k[T] = {1, INFINITY, 3}, v[T] = {5, NAN, 7};
    int32_t    mark[T] = {0, 1, 0};
    dra_graph *g = check_graph();
    dra_value  x[] = {check_real(g, "q", DRA_SHAPE(1, T, 1, 1)),
                      check_real(g, "k", DRA_SHAPE(1, T, 1, 1)),
                      check_real(g, "v", DRA_SHAPE(1, T, 1, 1))};
    dra_value  marks = dra_input(g, "mark", DRA_I32, DRA_SHAPE(1, T)), dx[3];
    dra_value  y = dra_moment(g, &(dra_moment_config){x[0], x[1], x[2], .mark = marks}, NULL, NULL);
    dra_value  dy = dra_input(g, "dy", DRA_REAL, DRA_SHAPE(1, T, 1, 1));
    dra_gradient(g, 1, &y, &dy, 3, x, dx);
    dra_output(g, "y", y);
    for (int i = 0; i < 3; i++) dra_output(g, ((const char *[]){"dq", "dk", "dv"})[i], dx[i]);
    check_program p = check_compile(g, 1);
    check_bind(&p, "q", q, sizeof q);
    check_bind(&p, "k", k, sizeof k);
    check_bind(&p, "v", v, sizeof v);
    check_bind(&p, "dy", v, sizeof v);
    check_bind(&p, "mark", mark, sizeof mark);
    check_run(&p);
    check_close("y", T, check_result(&p, "y"), (const double[]){5, 0, 2 * (5 + 21)}, 1e-6);
    check_close("dq", T, check_result(&p, "dq"), (const double[]){25, 0, 7 * (5 + 21)}, 1e-6);
    check_close("dk", T, check_result(&p, "dk"), (const double[]){25 + 14 * 5, 0, 14 * 7}, 1e-6);
    check_close("dv", T, check_result(&p, "dv"), (const double[]){5 + 14, 0, 14 * 3}, 1e-6);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static dra_value real_of(dra_graph *g, const char *name, dra_shape shape)
{
    return shape.rank < 0 ? none : check_real(g, name, shape);
}

typedef struct sketch { /* rank -1: none */
    dra_shape q, k, v, l, S, z, mark;
    bool      normalise;
} sketch;

static void refused(const sketch *s, dra_status code, const char *text)
{
    dra_graph              *g = check_graph();
    dra_value               S = {1}, z = {1};
    const dra_moment_config m = {.q = real_of(g, "q", s->q),
                                 .k = real_of(g, "k", s->k),
                                 .v = real_of(g, "v", s->v),
                                 .l = real_of(g, "l", s->l),
                                 .S = real_of(g, "S", s->S),
                                 .z = real_of(g, "z", s->z),
                                 .mark = s->mark.rank < 0 ? none
                                                          : dra_input(g, "mark", DRA_I32, s->mark),
                                 .normalise = s->normalise};
    assert_int_equal(dra_moment(g, &m, &S, &z).id, 0);
    assert_true(!S.id && !z.id);
    check_refused(g, code, text);
}

static const dra_shape no = {.rank = -1};

static void refuses_shapes(void **unused)
{
    const sketch good = {
        {4, {2, 5, 3, 4}}, {4, {2, 5, 3, 4}}, {4, {2, 5, 3, 6}}, no, no, no, no, true};
    sketch s = good;
    s.q = DRA_SHAPE(5, 3, 4);
    refused(&s, DRA_ERR_SHAPE,
            "moment: q is " REAL " (5, 3, 4), v " REAL
            " (2, 5, 3, 6), expected (B, T, H, F) and (B, T, H, E)");
    s = good;
    s.k = DRA_SHAPE(2, 5, 3, 5);
    refused(&s, DRA_ERR_SHAPE,
            "moment: k is " REAL " (2, 5, 3, 5), expected " REAL " (2, 5, 3, 4)");
    s = good;
    s.v = DRA_SHAPE(2, 4, 3, 6);
    refused(&s, DRA_ERR_SHAPE,
            "moment: v is " REAL " (2, 4, 3, 6), expected " REAL " (2, 5, 3, 6)");
    s = good;
    s.l = DRA_SHAPE(2);
    refused(&s, DRA_ERR_SHAPE, "moment: l is " REAL " (2), expected " REAL " (3)");
    s.l = DRA_SHAPE(2, 5);
    refused(&s, DRA_ERR_SHAPE,
            "moment: l is " REAL " (2, 5), expected " REAL " (3, 4)"); /* by channel */
    s = good;
    s.S = DRA_SHAPE(2, 3, 6, 4);
    refused(&s, DRA_ERR_SHAPE,
            "moment: S is " REAL " (2, 3, 6, 4), expected " REAL " (2, 3, 4, 6)");
    s = good;
    s.z = DRA_SHAPE(2, 3);
    refused(&s, DRA_ERR_SHAPE, "moment: z is " REAL " (2, 3), expected " REAL " (2, 3, 4)");
    s.z = DRA_SHAPE(2, 3, 4), s.normalise = false;
    refused(&s, DRA_ERR_VALUE, "moment: z is given, but nothing is normalised");
    s = good;
    s.mark = DRA_SHAPE(5, 2);
    refused(&s, DRA_ERR_SHAPE, "moment: mark is i32 (5, 2), expected i32 (2, 5)");
}

static void refuses_numbers_and_types(void **unused)
{
    dra_graph        *g = check_graph();
    const dra_value   x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 4));
    dra_moment_config m = {x, x, x, .normalise = true, .eps = -1};
    dra_moment(g, &m, NULL, NULL);
    check_refused(g, DRA_ERR_VALUE, "moment: eps is -1, least 0, expected 0 or more");
    g = check_graph();
    const dra_value i = dra_input(g, "x", DRA_I32, DRA_SHAPE(2, 5, 3, 4));
    dra_moment(g, &(dra_moment_config){i, i, i}, NULL, NULL);
    check_refused(g, DRA_ERR_DTYPE,
                  "moment: q is i32 (2, 5, 3, 4), expected " REAL " (2, 5, 3, 4)");
}

int main(void)
{
    const check_spec specs[] = {
        {"moment", 2, build, oracle, plain_cases, COUNT(plain_cases)},
        {"moment, normalised", 3, build, oracle, mean_cases, COUNT(mean_cases)},
        {"moment, last alone", 1, build_last, oracle_last, last_cases, COUNT(last_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_out_equal),      cmocka_unit_test(later_tokens_change_nothing),
        cmocka_unit_test(pads_may_hold_anything),    cmocka_unit_test(refuses_shapes),
        cmocka_unit_test(refuses_numbers_and_types),
    };
    return check_main("moment", specs, COUNT(specs), tests, COUNT(tests));
}
