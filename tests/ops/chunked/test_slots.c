/* slots against their steps in double; parts of a sequence; causality; what is refused. */
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

/* ---- the steps ------------------------------------------------------------------------------- */

typedef struct args { /* inputs q, k, v, l, u, then those named here by their number; 0: none */
    dra_slots_read read;
    int            P, Q, mark;
} args;

static dra_value option(const dra_value *in, int i) { return i ? in[i] : none; }

static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args            *a = p;
    const dra_slots_config c = {in[0],
                                in[1],
                                in[2],
                                in[3],
                                in[4],
                                option(in, a->P),
                                option(in, a->Q),
                                option(in, a->mark),
                                a->read,
                                &out[3],
                                &out[4]};
    out[0] = dra_slots(g, &c, &out[1], &out[2]);
}

/* Some of it alone, the rest unread. */
static void build_y(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_value all[5];
    build(g, p, in, all);
    out[0] = all[0];
}

static void build_last(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_value all[5];
    build(g, p, in, all);
    out[0] = all[1];
    out[1] = all[2];
}

static void build_beside(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_value all[5];
    build(g, p, in, all);
    out[0] = all[3];
    out[1] = all[4];
}

typedef struct sizes {
    int64_t B, T, H, D, E, S;
} sizes;

static sizes sizes_of(const check_tensor *in)
{
    const int64_t *q = in[0].shape.dim;
    return (sizes){q[0], q[1], q[2], q[3], check_last(&in[2]), check_last(&in[3])};
}

static double gate(const check_tensor *x, sizes n, int64_t token, int64_t h, int64_t i)
{
    return x->at[((x->shape.rank == 2 ? 0 : token * n.H) + h) * n.S + i];
}

/* The slots of all heads of one row of the batch: P (H, S, D), Q (H, S, E). */
static void write_token(const check_tensor *in, sizes n, int64_t token, double *P, double *Q)
{
    for (int64_t s = 0; s < n.H * n.S; s++) {
        const int64_t h = s / n.S, at = token * n.H + h;
        const double  keep = exp(gate(&in[3], n, token, h, s % n.S));
        const double  u = gate(&in[4], n, token, h, s % n.S);
        for (int64_t d = 0; d < n.D; d++)
            P[s * n.D + d] = keep * P[s * n.D + d] + u * in[1].at[at * n.D + d];
        for (int64_t e = 0; e < n.E; e++)
            Q[s * n.E + e] = keep * Q[s * n.E + e] + u * in[2].at[at * n.E + e];
    }
}

/* y (E) += the read of slots first..first+count-1, and its lse; slot s by the query of head `head`,
 * or of its own one if that is -1. */
static void read_slots(const check_tensor *in, sizes n, int64_t token, int64_t head, int64_t first,
                       int64_t count, const double *P, const double *Q, double *y, double *lse)
{
    double *logit = calloc((size_t)count + 1, sizeof *logit), top = -INFINITY, sum = 0;
    for (int64_t s = 0; s < count; s++) {
        const int64_t h = head < 0 ? (first + s) / n.S : head;
        const double *q = in[0].at + (token * n.H + h) * n.D;
        for (int64_t d = 0; d < n.D; d++) logit[s] += q[d] * P[(first + s) * n.D + d];
        if (n.D > 0) logit[s] /= sqrt((double)n.D);
        top = fmax(top, logit[s]);
    }
    for (int64_t s = 0; s < count; s++) sum += exp(logit[s] - top);
    for (int64_t s = 0; s < count; s++)
        for (int64_t e = 0; e < n.E; e++)
            y[e] += exp(logit[s] - top) / sum * Q[(first + s) * n.E + e];
    *lse = count > 0 ? top + log(sum) : 0;
    free(logit);
}

typedef struct results {
    double *y, *P_last, *Q_last, *lse, *mean;
} results;

static void read_token(const args *a, const check_tensor *in, sizes n, int64_t token,
                       const double *P, const double *Q, const results *r)
{
    if (a->read == DRA_READ_POOLED)
        read_slots(in, n, token, -1, 0, n.H * n.S, P, Q, r->y + token * n.E, r->lse + token);
    for (int64_t h = 0; h < n.H; h++) {
        const bool    own = a->read == DRA_READ_OWN;
        const int64_t at = token * n.H + h;
        if (a->read != DRA_READ_POOLED)
            read_slots(in, n, token, h, own ? h * n.S : 0, own ? n.S : n.H * n.S, P, Q,
                       r->y + at * n.E, r->lse + at);
        for (int64_t i = 0; i < n.S * n.E; i++)
            r->mean[at * n.E + i % n.E] += Q[h * n.S * n.E + i] / (double)n.S;
    }
}

static void walk(const args *a, const check_tensor *in, const results *r)
{
    const sizes  n = sizes_of(in);
    const size_t p = (size_t)(n.H * n.S * n.D), q = (size_t)(n.H * n.S * n.E);
    for (int64_t b = 0; b < n.B; b++) {
        double *P = r->P_last + b * (int64_t)p, *Q = r->Q_last + b * (int64_t)q;
        if (a->P) memcpy(P, in[a->P].at + b * (int64_t)p, p * sizeof *P);
        if (a->Q) memcpy(Q, in[a->Q].at + b * (int64_t)q, q * sizeof *Q);
        for (int64_t t = b * n.T; t < (b + 1) * n.T; t++) {
            const int bits = a->mark ? (int)in[a->mark].at[t] : 0;
            if (bits & DRA_MARK_RESET) memset(P, 0, p * sizeof *P);
            if (bits & DRA_MARK_RESET) memset(Q, 0, q * sizeof *Q);
            if (bits & DRA_MARK_PAD) continue;
            write_token(in, n, t, P, Q);
            read_token(a, in, n, t, P, Q, r);
        }
    }
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    walk(a, in, &(results){out[0].at, out[1].at, out[2].at, out[3].at, out[4].at});
}

/* Into memory of its own what the case does not look at. */
static void walk_some(const args *a, const check_tensor *in, results r)
{
    const sizes  n = sizes_of(in);
    const size_t slots = (size_t)(n.B * n.H * n.S), tokens = (size_t)(n.B * n.T * n.H);
    double      *y = calloc(tokens * (size_t)n.E + 1, sizeof *y);
    double      *lse = calloc(tokens + 1, sizeof *lse);
    double      *mean = calloc(tokens * (size_t)n.E + 1, sizeof *mean);
    double      *P = calloc(slots * (size_t)n.D + 1, sizeof *P);
    double      *Q = calloc(slots * (size_t)n.E + 1, sizeof *Q);
    walk(a, in,
         &(results){r.y ? r.y : y, r.P_last ? r.P_last : P, r.Q_last ? r.Q_last : Q,
                    r.lse ? r.lse : lse, r.mean ? r.mean : mean});
    free(y);
    free(lse);
    free(mean);
    free(P);
    free(Q);
}

static void oracle_y(const void *a, const check_tensor *in, check_tensor *out)
{
    walk_some(a, in, (results){.y = out[0].at});
}

static void oracle_last(const void *a, const check_tensor *in, check_tensor *out)
{
    walk_some(a, in, (results){.P_last = out[0].at, .Q_last = out[1].at});
}

static void oracle_beside(const void *a, const check_tensor *in, check_tensor *out)
{
    walk_some(a, in, (results){.lse = out[0].at, .mean = out[1].at});
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* clang-format off */
#define TOKENS(B, T, H, W) {{4, {B, T, H, W}}}
#define LOGS(B, T, H, S)   {{4, {B, T, H, S}}, .lo = -2, .hi = -0.01}
#define WRITES(B, T, H, S) {{4, {B, T, H, S}}, .lo = 0, .hi = 1}
#define SLOTS(B, H, S, W)  {{4, {B, H, S, W}}}
#define MARKS(B, T)        {{2, {B, T}}, CHECK_I32, .lo = 0, .hi = 3}
#define ALL(B, T, H, D, E, S) TOKENS(B, T, H, D), TOKENS(B, T, H, D), TOKENS(B, T, H, E), \
                              LOGS(B, T, H, S), WRITES(B, T, H, S)
#define FROM(B, T, H, D, E, S) ALL(B, T, H, D, E, S), SLOTS(B, H, S, D), SLOTS(B, H, S, E)
#define FIXED(B, T, H, D, E, S) TOKENS(B, T, H, D), TOKENS(B, T, H, D), TOKENS(B, T, H, E), \
                              {{2, {H, S}}, .lo = -1, .hi = -0.01}, {{2, {H, S}}, .lo = 0, .hi = 1}
/* clang-format on */

static const args   own = {0}, all = {DRA_READ_ALL, 0}, pooled = {DRA_READ_POOLED, 0};
static const args   own_from = {DRA_READ_OWN, 5, 6, 0}, all_from = {DRA_READ_ALL, 5, 6, 0};
static const args   pooled_from = {DRA_READ_POOLED, 5, 6, 0}, own_Q = {DRA_READ_OWN, 0, 5, 0};
static const args   own_marked = {DRA_READ_OWN, 5, 6, 7}, all_marked = {DRA_READ_ALL, 5, 6, 7};
static const args   pooled_marked = {DRA_READ_POOLED, 5, 6, 7};
static const double pads[] = {1, 1, 1, 1, 1, 1}, resets[] = {2, 3, 2, 0, 2, 2};
static const double hard_l[] = {-1e4, 0, 0, -1e4, -1e4, -1e4, 0, 0, -0.5, -90, -1e4, 0};
static const double hard_u[] = {1, 0, 0, 1, 1, 1, 0, 0, 0.5, 1, 1, 1};

static const check_case cases[] = {
    {"one value", 5, {ALL(1, 1, 1, 1, 1, 1)}, &own},
    {"own", 5, {ALL(2, 5, 2, 3, 4, 3)}, &own},
    {"all", 5, {ALL(2, 5, 2, 3, 4, 3)}, &all},
    {"pooled", 5, {ALL(2, 5, 2, 3, 4, 3)}, &pooled},
    {"own, from slots", 7, {FROM(2, 5, 2, 3, 4, 3)}, &own_from},
    {"all, from slots", 7, {FROM(2, 5, 3, 3, 4, 2)}, &all_from},
    {"pooled, from slots", 7, {FROM(2, 5, 3, 3, 4, 2)}, &pooled_from},
    {"from values alone", 6, {ALL(1, 5, 2, 3, 4, 3), SLOTS(1, 2, 3, 4)}, &own_Q},
    {"own, marks", 8, {FROM(3, 11, 2, 3, 2, 3), MARKS(3, 11)}, &own_marked},
    {"all, marks", 8, {FROM(3, 11, 2, 3, 2, 3), MARKS(3, 11)}, &all_marked},
    {"pooled, marks", 8, {FROM(3, 11, 2, 3, 2, 3), MARKS(3, 11)}, &pooled_marked},
    {"all pads",
     8,
     {FROM(2, 3, 2, 3, 2, 3), {{2, {2, 3}}, CHECK_I32, .values = pads}},
     &own_marked},
    {"resets",
     8,
     {FROM(2, 3, 2, 3, 2, 3), {{2, {2, 3}}, CHECK_I32, .values = resets}},
     &all_marked},
    {"fixed gates", 5, {FIXED(2, 19, 2, 3, 2, 3)}, &own},
    {"fixed gates, all", 5, {FIXED(2, 11, 2, 3, 2, 3)}, &all},
    {"gates of 0 and 1",
     7,
     {TOKENS(1, 6, 1, 3),
      TOKENS(1, 6, 1, 3),
      TOKENS(1, 6, 1, 2),
      {{4, {1, 6, 1, 2}}, .values = hard_l},
      {{4, {1, 6, 1, 2}}, .values = hard_u},
      SLOTS(1, 1, 2, 3),
      SLOTS(1, 1, 2, 2)},
     &own_from},
    {"sharp",
     5,
     {{{4, {1, 9, 2, 4}}, .lo = -60, .hi = 60},
      TOKENS(1, 9, 2, 4),
      TOKENS(1, 9, 2, 3),
      LOGS(1, 9, 2, 3),
      WRITES(1, 9, 2, 3)},
     &own,
     .grad_tol = 1e-6}, /* differences of a sharp softmax */
    {"one slot", 7, {FROM(2, 9, 2, 3, 4, 1)}, &own_from},
    {"one slot, all", 7, {FROM(2, 9, 2, 3, 4, 1)}, &all_from},
    {"16 slots", 7, {FROM(1, 18, 1, 5, 4, 16)}, &own_from},
    {"17 slots", 7, {FROM(1, 10, 1, 5, 4, 17)}, &own_from},
    {"17 slots, pooled", 7, {FROM(1, 3, 2, 5, 4, 17)}, &pooled_from},
    {"whole chunks", 7, {FROM(1, 128, 1, 2, 3, 2)}, &own_from},
    {"several chunks", 8, {FROM(2, 71, 1, 2, 3, 2), MARKS(2, 71)}, &own_marked},
    {"several chunks, all", 8, {FROM(1, 67, 2, 2, 1, 2), MARKS(1, 67)}, &all_marked},
    {"several chunks, pooled", 7, {FROM(1, 67, 2, 2, 1, 2)}, &pooled_from},
    {"chunks and columns", 8, {FROM(1, 200, 1, 33, 20, 3), MARKS(1, 200)}, &own_marked},
    {"chunks and columns, all", 8, {FROM(1, 130, 2, 20, 33, 2), MARKS(1, 130)}, &all_marked},
    {"chunks and columns, pooled", 7, {FROM(1, 130, 2, 20, 33, 2)}, &pooled_from},
    {"wide", 8, {FROM(2, 131, 2, 33, 20, 16), MARKS(2, 131)}, &own_marked, .no_grad = true},
    {"wide, all", 7, {FROM(1, 70, 3, 33, 20, 16)}, &all_from, .no_grad = true},
    {"wide, pooled", 7, {FROM(1, 70, 3, 33, 20, 16)}, &pooled_from, .no_grad = true},
    {"wide rows", 8, {FROM(1, 67, 2, 132, 68, 18), MARKS(1, 67)}, &own_marked},
    {"wide rows, all", 7, {FROM(1, 5, 2, 50, 130, 17)}, &all_from},
    {"no tokens", 7, {FROM(2, 0, 2, 3, 4, 3)}, &own_from},
    {"no rows", 7, {FROM(0, 3, 2, 3, 4, 3)}, &all_from},
    {"no heads", 7, {FROM(2, 3, 0, 3, 4, 3)}, &own_from},
    {"no heads, pooled", 7, {FROM(2, 3, 0, 3, 4, 3)}, &pooled_from},
    {"no keys", 7, {FROM(2, 3, 2, 0, 4, 3)}, &own_from},
    {"no values", 7, {FROM(2, 3, 2, 3, 0, 3)}, &own_from},
};

static const check_case few_cases[] = {
    {"own", 8, {FROM(2, 71, 2, 3, 2, 3), MARKS(2, 71)}, &own_marked},
    {"all", 7, {FROM(2, 5, 2, 3, 2, 3)}, &all_from},
    {"pooled", 7, {FROM(2, 5, 2, 3, 2, 3)}, &pooled_from},
};

/* ---- parts of a sequence --------------------------------------------------------------------- */

static void build_part(dra_graph *g, dra_slots_read read, const dra_value *in, dra_value mark,
                       const dra_value *state, dra_value *y, dra_value *last)
{
    const dra_slots_config c = {in[0], in[1], in[2], in[3], in[4], state[0], state[1], mark, read};
    *y = dra_slots(g, &c, &last[0], &last[1]);
}

static void own_part(dra_graph *g, const dra_value *in, dra_value mark, const dra_value *state,
                     dra_value *y, dra_value *last)
{
    build_part(g, DRA_READ_OWN, in, mark, state, y, last);
}

static void all_part(dra_graph *g, const dra_value *in, dra_value mark, const dra_value *state,
                     dra_value *y, dra_value *last)
{
    build_part(g, DRA_READ_ALL, in, mark, state, y, last);
}

static void pooled_part(dra_graph *g, const dra_value *in, dra_value mark, const dra_value *state,
                        dra_value *y, dra_value *last)
{
    build_part(g, DRA_READ_POOLED, in, mark, state, y, last);
}

enum { B = 2, T = 83, H = 2, D = 20, E = 17, S = 5 };

static parts_spec spec = {
    5,
    2,
    {{{4, {B, T, H, D}}, -1, 1},
     {{4, {B, T, H, D}}, -1, 1},
     {{4, {B, T, H, E}}, -1, 1},
     {{4, {B, T, H, S}}, -2, 0},
     {{4, {B, T, H, S}}, 0, 1}},
    {{{4, {B, H, S, D}}, -1, 1}, {{4, {B, H, S, E}}, -1, 1}},
    own_part,
};

static void parts_give_equal_results(void **unused)
{
    const int lengths[] = {1, 2, 17, 40, T - 1};
    spec.build = own_part;
    parts_equal(&spec, lengths, COUNT(lengths));
    spec.build = all_part;
    parts_equal(&spec, lengths + 1, COUNT(lengths) - 1);
    spec.build = pooled_part;
    parts_equal(&spec, lengths + 1, COUNT(lengths) - 1);
}

/* y and the last slots, however the tokens are cut. */
static void same_bits(int64_t size)
{
    parts_result whole = parts_run(&spec, T, -1), parts = parts_run(&spec, size, -1);
    for (int i = 0; i <= spec.n_state; i++)
        assert_memory_equal(whole.at[i], parts.at[i], (size_t)whole.count[i] * sizeof *whole.at[i]);
    parts_free(&whole);
    parts_free(&parts);
}

static void parts_give_the_same_bits(void **unused)
{
    const int64_t lengths[] = {1, 7, 40, 64};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        spec.build = own_part;
        same_bits(lengths[i]);
        spec.build = all_part;
        same_bits(lengths[i]);
        spec.build = pooled_part;
        same_bits(lengths[i]);
    }
}

/* What comes later changes no bit of what was before. */
static void tokens_do_not_look_ahead(void **unused)
{
    const int64_t at[] = {1, 7, 13, 50, 63, 65, T - 1};
    for (size_t i = 0; i < COUNT(at); i++) {
        spec.build = own_part;
        parts_causal(&spec, at[i]);
        spec.build = all_part;
        parts_causal(&spec, at[i]);
        spec.build = pooled_part;
        parts_causal(&spec, at[i]);
    }
}

/* ---- long lives ------------------------------------------------------------------------------ */

/* Half-lives of 2^14 tokens: sums that fade so slowly show every rounding of the gate. */
static void keeps_long_lives(void **unused)
{
    enum { LONG = 6000, W = 3 };
    static dra_real  x[LONG * W];
    double           P[W] = {0};
    uint64_t         seed = 5;
    const double     l = log(0.5) / 16384, u = -expm1(l);
    dra_graph       *g = check_graph();
    dra_value        last, in = check_real(g, "x", DRA_SHAPE(1, LONG, 1, W));
    const dra_value  gate_l = dra_number(g, l), gate_u = dra_number(g, u);
    dra_slots_config c = {.q = in,
                          .k = in,
                          .v = in,
                          .l = dra_broadcast(g, gate_l, DRA_SHAPE(1, 1)),
                          .u = dra_broadcast(g, gate_u, DRA_SHAPE(1, 1))};
    dra_slots(g, &c, NULL, &last);
    dra_output(g, "last", last);
    check_program p = check_compile(g, 1);
    for (int i = 0; i < LONG * W; i++) {
        x[i] = (dra_real)check_random(&seed);
        P[i % W] += u * ((double)x[i] - P[i % W]);
    }
    check_bind(&p, "x", x, sizeof x);
    check_run(&p);
    check_close("last", W, check_result(&p, "last"), P, PARTS_TOL);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

typedef struct sketch { /* shapes; rank -1: none */
    dra_shape      q, k, v, l, u, P, Q, mark;
    dra_slots_read read;
} sketch;

static const dra_shape no = {.rank = -1};

static dra_value sketched(dra_graph *g, const char *name, dra_shape shape)
{
    return shape.rank < 0 ? none : check_real(g, name, shape);
}

static void refused(const sketch *s, dra_status code, const char *text)
{
    dra_graph             *g = check_graph();
    dra_value              P = {1}, Q = {1}, lse = {1}, mean = {1};
    const dra_slots_config c = {
        sketched(g, "q", s->q),
        sketched(g, "k", s->k),
        sketched(g, "v", s->v),
        sketched(g, "l", s->l),
        sketched(g, "u", s->u),
        sketched(g, "P", s->P),
        sketched(g, "Q", s->Q),
        s->mark.rank < 0 ? none : dra_input(g, "mark", DRA_I32, s->mark),
        s->read,
        &lse,
        &mean,
    };
    assert_int_equal(dra_slots(g, &c, &P, &Q).id, 0);
    assert_true(!P.id && !Q.id && !lse.id && !mean.id);
    check_refused(g, code, text);
}

static void refuses_shapes(void **unused)
{
    const sketch good = {{4, {2, 5, 3, 4}},
                         {4, {2, 5, 3, 4}},
                         {4, {2, 5, 3, 6}},
                         {2, {3, 7}},
                         {2, {3, 7}},
                         no,
                         no,
                         no,
                         DRA_READ_OWN};
    sketch       s = good;
    s.q = DRA_SHAPE(2, 5, 3, 5);
    refused(&s, DRA_ERR_SHAPE, "slots: q is " REAL " (2, 5, 3, 5), expected " REAL " (2, 5, 3, 4)");
    s = good;
    s.k = DRA_SHAPE(5, 3, 4);
    refused(&s, DRA_ERR_SHAPE,
            "slots: k is " REAL " (5, 3, 4), v " REAL " (2, 5, 3, 6), l " REAL
            " (3, 7), expected (B, T, H, D), (B, T, H, E) and S > 0 slots");
    s = good;
    s.v = DRA_SHAPE(2, 5, 4, 6);
    refused(&s, DRA_ERR_SHAPE, "slots: v is " REAL " (2, 5, 4, 6), expected " REAL " (2, 5, 3, 6)");
    s = good;
    s.l = DRA_SHAPE(3, 0);
    refused(&s, DRA_ERR_SHAPE,
            "slots: k is " REAL " (2, 5, 3, 4), v " REAL " (2, 5, 3, 6), l " REAL
            " (3, 0), expected (B, T, H, D), (B, T, H, E) and S > 0 slots");
    s.l = DRA_SHAPE(2, 7);
    refused(&s, DRA_ERR_SHAPE, "slots: l is " REAL " (2, 7), expected " REAL " (3, 7)");
    s.l = DRA_SHAPE(2, 5, 7);
    refused(&s, DRA_ERR_SHAPE, "slots: l is " REAL " (2, 5, 7), expected " REAL " (2, 5, 3, 7)");
    s = good;
    s.u = DRA_SHAPE(2, 5, 3, 6);
    refused(&s, DRA_ERR_SHAPE, "slots: u is " REAL " (2, 5, 3, 6), expected " REAL " (2, 5, 3, 7)");
    s = good;
    s.P = DRA_SHAPE(2, 3, 7, 6);
    refused(&s, DRA_ERR_SHAPE, "slots: P is " REAL " (2, 3, 7, 6), expected " REAL " (2, 3, 7, 4)");
    s = good;
    s.Q = DRA_SHAPE(2, 3, 7, 4);
    refused(&s, DRA_ERR_SHAPE, "slots: Q is " REAL " (2, 3, 7, 4), expected " REAL " (2, 3, 7, 6)");
    s = good;
    s.mark = DRA_SHAPE(5, 2);
    refused(&s, DRA_ERR_SHAPE, "slots: mark is i32 (5, 2), expected i32 (2, 5)");
}

static void refuses_values(void **unused)
{
    dra_graph       *g = check_graph();
    dra_value        x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 4));
    dra_slots_config c = {x, x, x, x, dra_input(g, "u", DRA_I32, DRA_SHAPE(2, 5, 3, 4))};
    dra_slots(g, &c, NULL, NULL);
    check_refused(g, DRA_ERR_DTYPE, "slots: u is i32 (2, 5, 3, 4), expected " REAL " (2, 5, 3, 4)");

    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 4));
    c = (dra_slots_config){x, x, x, x, x, .read = (dra_slots_read)3};
    dra_slots(g, &c, NULL, NULL);
    check_refused(g, DRA_ERR_VALUE, "slots: read is 3, expected own, all or pooled");

    g = check_graph();
    c = (dra_slots_config){check_real(g, "x", DRA_SHAPE(2, 5, 3, 4))};
    assert_int_equal(dra_slots(g, &c, NULL, NULL).id, 0);
    assert_int_equal(dra_graph_error(g)->code, DRA_ERR_VALUE);
    dra_graph_destroy(g);
}

int main(void)
{
    const check_spec specs[] = {
        {"slots", 5, build, oracle, cases, COUNT(cases)},
        {"slots, y alone", 1, build_y, oracle_y, few_cases, COUNT(few_cases)},
        {"slots, last alone", 2, build_last, oracle_last, few_cases, COUNT(few_cases)},
        {"slots, lse and mean alone", 2, build_beside, oracle_beside, few_cases, COUNT(few_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_equal_results), cmocka_unit_test(parts_give_the_same_bits),
        cmocka_unit_test(tokens_do_not_look_ahead), cmocka_unit_test(keeps_long_lives),
        cmocka_unit_test(refuses_shapes),           cmocka_unit_test(refuses_values)};
    return check_main("slots", specs, COUNT(specs), tests, COUNT(tests));
}
