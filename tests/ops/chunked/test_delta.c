/* The delta rule against its steps in double; parts of a sequence. */
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

/* ---- inputs q, k, v, b, then what `has` names, in the order l, S, m(ark) --------------------- */

static int place(const char *has, char letter) /* 0: none */
{
    const char *at = strchr(has, letter);
    return at ? 4 + (int)(at - has) : 0;
}

static dra_value option(const char *has, const dra_value *in, char letter)
{
    const int i = place(has, letter);
    return i ? in[i] : none;
}

static void build(dra_graph *g, const void *has, const dra_value *in, dra_value *out)
{
    const dra_delta_config m = {in[0],
                                in[1],
                                in[2],
                                in[3],
                                option(has, in, 'l'),
                                option(has, in, 'S'),
                                option(has, in, 'm')};
    out[0] = dra_delta(g, &m, &out[1]);
}

/* S (F, E) fades, takes what k does not recall of v, and is read by q. */
static void step(int64_t F, int64_t E, double *S, double decay, double b, const double *k,
                 const double *v, const double *q, double *y)
{
    for (int64_t i = 0; i < F * E; i++) S[i] *= decay;
    for (int64_t e = 0; e < E; e++) {
        double miss = v[e];
        for (int64_t f = 0; f < F; f++) miss -= S[f * E + e] * k[f];
        for (int64_t f = 0; f < F; f++) S[f * E + e] += k[f] * b * miss;
        for (int64_t f = 0; f < F; f++) y[e] += S[f * E + e] * q[f];
    }
}

static void oracle(const void *has, const check_tensor *in, check_tensor *out)
{
    const int64_t *q = in[0].shape.dim, B = q[0], T = q[1], H = q[2], F = q[3];
    const int64_t  E = in[2].shape.dim[3];
    const int      l = place(has, 'l'), S = place(has, 'S'), m = place(has, 'm');
    for (int64_t row = 0; row < B * H; row++) {
        double *now = out[1].at + row * F * E;
        for (int64_t i = 0; i < F * E; i++) now[i] = S ? in[S].at[row * F * E + i] : 0;
        for (int64_t t = 0; t < T; t++) {
            const int64_t token = row / H * T + t, at = token * H + row % H;
            const int     mark = m ? (int)in[m].at[token] : 0;
            const double  by = !l ? 0 : in[l].at[in[l].shape.rank == 1 ? row % H : at];
            if (mark & DRA_MARK_RESET) memset(now, 0, (size_t)(F * E) * sizeof *now);
            if (mark & DRA_MARK_PAD) continue;
            step(F, E, now, exp(by), in[3].at[at], in[1].at + at * F, in[2].at + at * E,
                 in[0].at + at * F, out[0].at + at * E);
        }
    }
}

/* clang-format off: |k| <= 1, else the state grows without bounds */
#define ROWS(B, T, H, W)                                                                           \
    {                                                                                              \
        {                                                                                          \
            4, { B, T, H, W }                                                                      \
        }                                                                                          \
    }
#define KEYS3(B, T, H)                                                                             \
    {                                                                                              \
        {4, {B, T, H, 3}}, .lo = -0.57, .hi = 0.57                                                 \
    }
#define STRENGTHS(B, T, H)                                                                         \
    {                                                                                              \
        {3, {B, T, H}}, .lo = 0.1, .hi = 0.9                                                       \
    }
#define EACH(H)                                                                                    \
    {                                                                                              \
        {1, {H}}, .lo = -1, .hi = 0                                                                \
    }
#define DECAYS(B, T, H)                                                                            \
    {                                                                                              \
        {3, {B, T, H}}, .lo = -0.5, .hi = 0                                                        \
    }
#define STRONG(B, T, H)                                                                            \
    {                                                                                              \
        {3, {B, T, H}}, .lo = -30, .hi = 0                                                         \
    }
#define MATRIX(B, H, F, E)                                                                         \
    {                                                                                              \
        {                                                                                          \
            4, { B, H, F, E }                                                                      \
        }                                                                                          \
    }
#define MARKS(B, T)                                                                                \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = 0, .hi = 3                                                   \
    }
/* clang-format on */

static const double bits[] = {0, 3, 1, 2, 0, 1, 0, 0, 4, -4}, far_out[] = {0, -1e30, -1000, -1e-9};
static const double no_decay[] = {0, 0}, extremes[] = {0, 1, 1, 0, 1, 1, 0, 0};

static const check_case cases[] = {
    {"one value",
     4,
     {ROWS(1, 1, 1, 1), ROWS(1, 1, 1, 1), ROWS(1, 1, 1, 1), STRENGTHS(1, 1, 1)},
     ""},
    {"no decay", 4, {ROWS(2, 7, 2, 3), KEYS3(2, 7, 2), ROWS(2, 7, 2, 5), STRENGTHS(2, 7, 2)}, ""},
    {"a decay for each head",
     5,
     {ROWS(2, 7, 2, 3), KEYS3(2, 7, 2), ROWS(2, 7, 2, 4), STRENGTHS(2, 7, 2), EACH(2)},
     "l"},
    {"from a state",
     6,
     {ROWS(2, 7, 2, 3), KEYS3(2, 7, 2), ROWS(2, 7, 2, 4), STRENGTHS(2, 7, 2), DECAYS(2, 7, 2),
      MATRIX(2, 2, 3, 4)},
     "lS"},
    {"one token from a state",
     6,
     {ROWS(2, 1, 2, 3), KEYS3(2, 1, 2), ROWS(2, 1, 2, 4), STRENGTHS(2, 1, 2), DECAYS(2, 1, 2),
      MATRIX(2, 2, 3, 4)},
     "lS"},
    {"marks",
     7,
     {ROWS(2, 17, 2, 3), KEYS3(2, 17, 2), ROWS(2, 17, 2, 4), STRENGTHS(2, 17, 2), DECAYS(2, 17, 2),
      MATRIX(2, 2, 3, 4), MARKS(2, 17)},
     "lSm"},
    {"marks, no decay",
     5,
     {ROWS(2, 17, 2, 3), KEYS3(2, 17, 2), ROWS(2, 17, 2, 4), STRENGTHS(2, 17, 2), MARKS(2, 17)},
     "m"},
    {"odd marks",
     7,
     {ROWS(2, 5, 2, 3),
      KEYS3(2, 5, 2),
      ROWS(2, 5, 2, 4),
      STRENGTHS(2, 5, 2),
      DECAYS(2, 5, 2),
      MATRIX(2, 2, 3, 4),
      {{2, {2, 5}}, CHECK_I32, .values = bits}},
     "lSm"},
    {"several chunks",
     6,
     {ROWS(1, 145, 2, 3), KEYS3(1, 145, 2), ROWS(1, 145, 2, 2), STRENGTHS(1, 145, 2),
      DECAYS(1, 145, 2), MATRIX(1, 2, 3, 2)},
     "lS"},
    {"several chunks, no decay",
     4,
     {ROWS(1, 131, 1, 3), KEYS3(1, 131, 1), ROWS(1, 131, 1, 2), STRENGTHS(1, 131, 1)},
     ""},
    {"chunks and columns",
     7,
     {ROWS(1, 200, 1, 3), KEYS3(1, 200, 1), ROWS(1, 200, 1, 50), STRENGTHS(1, 200, 1),
      DECAYS(1, 200, 1), MATRIX(1, 1, 3, 50), MARKS(1, 200)},
     "lSm"},
    {"chunks and marks",
     7,
     {ROWS(1, 130, 1, 3), KEYS3(1, 130, 1), ROWS(1, 130, 1, 2), STRENGTHS(1, 130, 1),
      DECAYS(1, 130, 1), MATRIX(1, 1, 3, 2), MARKS(1, 130)},
     "lSm"},
    {"wide",
     6,
     {ROWS(2, 128, 2, 64),
      {{4, {2, 128, 2, 64}}, .lo = -0.125, .hi = 0.125},
      ROWS(2, 128, 2, 65),
      STRENGTHS(2, 128, 2),
      EACH(2),
      MATRIX(2, 2, 64, 65)},
     "lS",
     .no_grad = true},
    {"rows of several tiles", /* of 64 columns; in fours */
     7,
     {ROWS(1, 67, 2, 132),
      {{4, {1, 67, 2, 132}}, .lo = -0.1, .hi = 0.1},
      ROWS(1, 67, 2, 72),
      STRENGTHS(1, 67, 2),
      DECAYS(1, 67, 2),
      MATRIX(1, 2, 132, 72),
      MARKS(1, 67)},
     "lSm"},
    {"rows of several tiles, no decay",
     5,
     {ROWS(2, 130, 1, 67),
      {{4, {2, 130, 1, 67}}, .lo = -0.12, .hi = 0.12},
      ROWS(2, 130, 1, 70),
      STRENGTHS(2, 130, 1),
      MATRIX(2, 1, 67, 70)},
     "S"},
    {"one token of several tiles",
     7,
     {ROWS(3, 1, 2, 70),
      {{4, {3, 1, 2, 70}}, .lo = -0.12, .hi = 0.12},
      ROWS(3, 1, 2, 130),
      STRENGTHS(3, 1, 2),
      DECAYS(3, 1, 2),
      MATRIX(3, 2, 70, 130),
      MARKS(3, 1)},
     "lSm"},
    {"strong decay",
     6,
     {ROWS(1, 70, 2, 3), KEYS3(1, 70, 2), ROWS(1, 70, 2, 2), STRENGTHS(1, 70, 2), STRONG(1, 70, 2),
      MATRIX(1, 2, 3, 2)},
     "lS"},
    {"decays far out",
     6,
     {ROWS(1, 2, 2, 3),
      KEYS3(1, 2, 2),
      ROWS(1, 2, 2, 2),
      STRENGTHS(1, 2, 2),
      {{3, {1, 2, 2}}, .values = far_out},
      MATRIX(1, 2, 3, 2)},
     "lS",
     .no_grad = true}, /* differences see nothing there */
    {"a decay of 0",
     6,
     {ROWS(1, 9, 2, 3),
      KEYS3(1, 9, 2),
      ROWS(1, 9, 2, 2),
      STRENGTHS(1, 9, 2),
      {{1, {2}}, .values = no_decay},
      MATRIX(1, 2, 3, 2)},
     "lS"},
    {"no strength and all of it",
     6,
     {ROWS(1, 4, 2, 3),
      KEYS3(1, 4, 2),
      ROWS(1, 4, 2, 2),
      {{3, {1, 4, 2}}, .values = extremes},
      DECAYS(1, 4, 2),
      MATRIX(1, 2, 3, 2)},
     "lS"},
    {"no tokens",
     6,
     {ROWS(2, 0, 2, 3), KEYS3(2, 0, 2), ROWS(2, 0, 2, 4), STRENGTHS(2, 0, 2), DECAYS(2, 0, 2),
      MATRIX(2, 2, 3, 4)},
     "lS"},
    {"no rows",
     6,
     {ROWS(0, 3, 2, 3), KEYS3(0, 3, 2), ROWS(0, 3, 2, 4), STRENGTHS(0, 3, 2), DECAYS(0, 3, 2),
      MATRIX(0, 2, 3, 4)},
     "lS"},
    {"no features",
     6,
     {ROWS(2, 3, 2, 0), ROWS(2, 3, 2, 0), ROWS(2, 3, 2, 4), STRENGTHS(2, 3, 2), DECAYS(2, 3, 2),
      MATRIX(2, 2, 0, 4)},
     "lS"},
    {"no values",
     6,
     {ROWS(2, 3, 2, 3), KEYS3(2, 3, 2), ROWS(2, 3, 2, 0), STRENGTHS(2, 3, 2), DECAYS(2, 3, 2),
      MATRIX(2, 2, 3, 0)},
     "lS"},
};

/* Only the last state is read. */
static void build_last(dra_graph *g, const void *has, const dra_value *in, dra_value *out)
{
    dra_value both[2];
    build(g, has, in, both);
    out[0] = both[1];
}

static void oracle_last(const void *has, const check_tensor *in, check_tensor *out)
{
    check_tensor both[] = {in[2], *out};
    both[0].at = calloc((size_t)in[2].count + 1, sizeof *both[0].at);
    oracle(has, in, both);
    free(both[0].at);
}

/* Resets so far from the end that decays have gradients. */
static const double few[2 * 70] = {[5] = 2, [6] = 1, [66] = 1, [73] = 3, [130] = 2, [136] = 1};

static const check_case last_cases[] = {
    {"marks",
     7,
     {ROWS(2, 70, 2, 3),
      KEYS3(2, 70, 2),
      ROWS(2, 70, 2, 2),
      STRENGTHS(2, 70, 2),
      DECAYS(2, 70, 2),
      MATRIX(2, 2, 3, 2),
      {{2, {2, 70}}, CHECK_I32, .values = few}},
     "lSm"},
};

/* ---- parts of a sequence --------------------------------------------------------------------- */

static void build_part(dra_graph *g, const dra_value *in, dra_value mark, const dra_value *from,
                       dra_value *y, dra_value *last)
{
    const dra_delta_config m = {in[0], dra_unit(g, in[1], 1e-12), in[2], in[3], in[4], from[0],
                                mark};
    *y = dra_delta(g, &m, &last[0]);
}

enum { B = 2, LONG = 150, H = 2, F = 9, E = 10 };

static const parts_spec spec = {5,
                                1,
                                {{{4, {B, LONG, H, F}}, -1, 1},
                                 {{4, {B, LONG, H, F}}, -1, 1},
                                 {{4, {B, LONG, H, E}}, -1, 1},
                                 {{3, {B, LONG, H}}, 0, 1},
                                 {{3, {B, LONG, H}}, -0.1, 0}},
                                {{{4, {B, H, F, E}}, -1, 1}},
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

/* A key written at full strength is recalled, whatever was there before. */
static void recalls_what_it_wrote(void **unused)
{
    enum { T = 70, W = 8 };
    static dra_real q[T * W], k[T * W], v[T * W], b[T];
    dra_graph      *g = check_graph();
    const dra_value x[] = {check_real(g, "q", DRA_SHAPE(1, T, 1, W)),
                           check_real(g, "k", DRA_SHAPE(1, T, 1, W)),
                           check_real(g, "v", DRA_SHAPE(1, T, 1, W))};
    const dra_value strength = check_real(g, "b", DRA_SHAPE(1, T, 1));
    dra_output(g, "y", dra_delta(g, &(dra_delta_config){x[0], x[1], x[2], strength}, NULL));
    check_program p = check_compile(g, 2);
    double        want[T * W];
    for (int i = 0; i < T * W; i++) {
        v[i] = (dra_real)(i * 37 % 11) - 5;
        q[i] = k[i] = i / W % W == i % W;
        want[i] = (double)v[i];
    }
    for (int t = 0; t < T; t++) b[t] = 1;
    check_bind(&p, "q", q, sizeof q);
    check_bind(&p, "k", k, sizeof k);
    check_bind(&p, "v", v, sizeof v);
    check_bind(&p, "b", b, sizeof b);
    check_run(&p);
    check_close("y", T * W, check_result(&p, "y"), want, PARTS_TOL);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refused(dra_shape k, dra_shape b, dra_shape S, const char *text)
{
    dra_graph             *g = check_graph();
    dra_value              last = {1};
    const dra_delta_config m = {.q = check_real(g, "q", DRA_SHAPE(2, 5, 3, 4)),
                                .k = check_real(g, "k", k),
                                .v = check_real(g, "v", DRA_SHAPE(2, 5, 3, 6)),
                                .b = check_real(g, "b", b),
                                .S = check_real(g, "S", S)};
    assert_int_equal(dra_delta(g, &m, &last).id, 0);
    assert_int_equal(last.id, 0);
    check_refused(g, DRA_ERR_SHAPE, text);
}

static void refuses_shapes(void **unused)
{
    const dra_shape k = DRA_SHAPE(2, 5, 3, 4), b = DRA_SHAPE(2, 5, 3), S = DRA_SHAPE(2, 3, 4, 6);
    refused(DRA_SHAPE(2, 5, 3, 5), b, S,
            "delta: k is " REAL " (2, 5, 3, 5), expected " REAL " (2, 5, 3, 4)");
    refused(k, DRA_SHAPE(2, 5), S, "delta: b is " REAL " (2, 5), expected " REAL " (2, 5, 3)");
    refused(k, b, DRA_SHAPE(2, 3, 6, 4),
            "delta: S is " REAL " (2, 3, 6, 4), expected " REAL " (2, 3, 4, 6)");
}

static void refuses_types(void **unused)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 4));
    const dra_value i = dra_input(g, "b", DRA_I32, DRA_SHAPE(2, 5, 3));
    dra_delta(g, &(dra_delta_config){x, x, x, i}, NULL);
    check_refused(g, DRA_ERR_DTYPE, "delta: b is i32 (2, 5, 3), expected " REAL " (2, 5, 3)");
}

int main(void)
{
    const check_spec specs[] = {
        {"delta", 2, build, oracle, cases, COUNT(cases)},
        {"delta, last alone", 1, build_last, oracle_last, last_cases, COUNT(last_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_out_equal),  cmocka_unit_test(later_tokens_change_nothing),
        cmocka_unit_test(recalls_what_it_wrote), cmocka_unit_test(refuses_shapes),
        cmocka_unit_test(refuses_types),
    };
    return check_main("delta", specs, COUNT(specs), tests, COUNT(tests));
}
