/* gru against its formulas in double, and what it refuses. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none;

/* ---- one cell or two: inputs x, w, then what `has` names, in this order; mark is the last ---- */

typedef struct parts {
    int         cells;
    const char *has[2]; /* letters: b, beta as g, start as s */
    bool        mark;
} parts;

typedef struct part { /* where the inputs of a cell are; -1: there is none */
    int x, w, b, beta, start;
} part;

static int place(const char *has, char letter, int *next)
{
    return strchr(has, letter) ? (*next)++ : -1;
}

static part part_at(const parts *p, int cell)
{
    int  next = 0;
    part at = {0};
    for (int k = 0; k <= cell; k++) {
        at.x = next++;
        at.w = next++;
        at.b = place(p->has[k], 'b', &next);
        at.beta = place(p->has[k], 'g', &next);
        at.start = place(p->has[k], 's', &next);
    }
    return at;
}

static int inputs_of(const parts *p)
{
    const part at = part_at(p, p->cells - 1);
    int        most = at.w;
    if (at.b > most) most = at.b;
    if (at.beta > most) most = at.beta;
    return (at.start > most ? at.start : most) + 1;
}

static dra_value or_none(const dra_value *in, int i) { return i < 0 ? none : in[i]; }

/* h of every cell, then last of every cell. */
static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const parts *p = args;
    dra_gru_cell cell[2];
    for (int k = 0; k < p->cells; k++) {
        const part at = part_at(p, k);
        cell[k] = (dra_gru_cell){in[at.x], in[at.w], or_none(in, at.b), or_none(in, at.beta),
                                 or_none(in, at.start)};
    }
    dra_gru(g, p->cells, cell, p->mark ? in[inputs_of(p)] : none, out, out + p->cells);
}

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

/* b + w h for gate `gate` of unit j. */
static double sum_of(const check_tensor *w, const check_tensor *b, int64_t D, int64_t head,
                     int gate, int64_t j, const double *h)
{
    const int64_t row = gate * D + j;
    const double *from = w->at + (w->shape.rank == 3 ? head * 3 * D * D : 0) + row * D;
    double        sum = b ? b->at[(b->shape.rank == 2 ? head * 3 * D : 0) + row] : 0;
    for (int64_t k = 0; k < D; k++) sum += from[k] * h[k];
    return sum;
}

static void oracle_token(const check_tensor *in, const part *at, int64_t head, const double *x,
                         int64_t D, double *h)
{
    const check_tensor *w = &in[at->w], *b = at->b < 0 ? NULL : &in[at->b];
    double             *old = malloc((size_t)D * sizeof *old);
    memcpy(old, h, (size_t)D * sizeof *old);
    for (int64_t j = 0; j < D; j++) {
        const double r = sigmoid(x[j] + sum_of(w, b, D, head, 0, j, old));
        const double z = sigmoid(x[D + j] + sum_of(w, b, D, head, 1, j, old));
        const double n = tanh(x[2 * D + j] + r * sum_of(w, b, D, head, 2, j, old));
        const double mix = at->beta < 0 ? 1 : sigmoid(-in[at->beta].at[head * D + j]);
        h[j] = old[j] + mix * ((1 - z) * n + z * old[j] - old[j]);
    }
    free(old);
}

static void oracle_cell(const check_tensor *in, const part *at, const check_tensor *mark,
                        check_tensor *all, check_tensor *last)
{
    const int64_t *dim = in[at->x].shape.dim, B = dim[0], T = dim[1], H = dim[2], D = dim[3] / 3;
    double        *h = calloc((size_t)D + 1, sizeof *h);
    for (int64_t row = 0; row < B * H; row++) {
        for (int64_t j = 0; j < D; j++) h[j] = at->start < 0 ? 0 : in[at->start].at[row * D + j];
        for (int64_t t = 0; t < T; t++) {
            const int64_t b = row / H, head = row % H, token = (b * T + t) * H + head;
            const int     bits = mark ? (int)mark->at[b * T + t] : 0;
            if (bits & DRA_MARK_RESET) memset(h, 0, (size_t)D * sizeof *h);
            if (!(bits & DRA_MARK_PAD))
                oracle_token(in, at, head, in[at->x].at + token * 3 * D, D, h);
            memcpy(all->at + token * D, h, (size_t)D * sizeof *h);
        }
        memcpy(last->at + row * D, h, (size_t)D * sizeof *h);
    }
    free(h);
}

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    const parts *p = args;
    for (int k = 0; k < p->cells; k++) {
        const part at = part_at(p, k);
        oracle_cell(in, &at, p->mark ? &in[inputs_of(p)] : NULL, &out[k], &out[p->cells + k]);
    }
}

static const parts plain = {1, {""}, false}, marked = {1, {"gs"}, true};
static const parts whole = {1, {"bgs"}, true}, fed = {1, {"bgs"}, false};
static const parts two = {2, {"", ""}, false}, two_full = {2, {"bg", "bs"}, true};

/* clang-format off */
#define X(b, t, h, d)   {{4, {b, t, h, 3 * (d)}}}
#define W(d)            {{2, {3 * (d), d}}}
#define EACH(h, d)      {{3, {h, 3 * (d), d}}} /* weights of its own for each head */
#define BIAS(d)         {{1, {3 * (d)}}}
#define EACH_BIAS(h, d) {{2, {h, 3 * (d)}}}
#define BETA(h, d)      {{2, {h, d}}, CHECK_REAL, -3, 3}
#define START(b, h, d)  {{3, {b, h, d}}}
#define MARK(b, t)      {{2, {b, t}}, CHECK_I32}
/* clang-format on */

static const double all_pads[] = {1, 1, 1, 1, 1, 1}, all_resets[] = {2, 2, 2, 2, 2, 2};
static const double late[] = {0, 0, 3, 0, 1, 2};

static const check_case one_cases[] = {
    {"plain", 2, {X(2, 4, 3, 5), W(5)}, &plain},
    {"one unit", 6, {X(1, 3, 1, 1), W(1), BIAS(1), BETA(1, 1), START(1, 1, 1), MARK(1, 3)}, &whole},
    {"all parts",
     6,
     {X(2, 5, 2, 3), W(3), BIAS(3), BETA(2, 3), START(2, 2, 3), MARK(2, 5)},
     &whole},
    {"own weights",
     6,
     {X(3, 4, 2, 3), EACH(2, 3), EACH_BIAS(2, 3), BETA(2, 3), START(3, 2, 3), MARK(3, 4)},
     &whole},
    {"own weights, one b",
     6,
     {X(2, 3, 3, 2), EACH(3, 2), BIAS(2), BETA(3, 2), START(2, 3, 2), MARK(2, 3)},
     &whole},
    {"own b, one w",
     6,
     {X(2, 3, 3, 2), W(2), EACH_BIAS(3, 2), BETA(3, 2), START(2, 3, 2), MARK(2, 3)},
     &whole},
    {"no tokens", 5, {X(2, 0, 2, 3), W(3), BIAS(3), BETA(2, 3), START(2, 2, 3)}, &fed},
    {"no rows", 5, {X(0, 3, 2, 3), W(3), BIAS(3), BETA(2, 3), START(0, 2, 3)}, &fed},
    {"no heads", 5, {X(2, 3, 0, 3), EACH(0, 3), BIAS(3), BETA(0, 3), START(2, 0, 3)}, &fed},
    {"no units", 5, {X(2, 3, 2, 0), W(0), BIAS(0), BETA(2, 0), START(2, 2, 0)}, &fed},
    {"pads",
     5,
     {X(2, 3, 2, 2),
      W(2),
      BETA(2, 2),
      START(2, 2, 2),
      {{2, {2, 3}}, CHECK_I32, .values = all_pads}},
     &marked},
    {"resets",
     5,
     {X(2, 3, 2, 2),
      W(2),
      BETA(2, 2),
      START(2, 2, 2),
      {{2, {2, 3}}, CHECK_I32, .values = all_resets}},
     &marked},
    {"a reset at a pad",
     5,
     {X(1, 6, 2, 2), W(2), BETA(2, 2), START(1, 2, 2), {{2, {1, 6}}, CHECK_I32, .values = late}},
     &marked},
    {"a vector and one", 2, {X(1, 2, 2, 17), W(17)}, &plain},
    {"several groups", 5, {X(5, 2, 4, 3), W(3), BETA(4, 3), START(5, 4, 3), MARK(5, 2)}, &marked},
    {"groups of own weights",
     5,
     {X(11, 2, 2, 2), EACH(2, 2), BETA(2, 2), START(11, 2, 2), MARK(11, 2)},
     &marked},
    {"several segments",
     5,
     {X(2, 45, 4, 2), W(2), BETA(4, 2), START(2, 4, 2), MARK(2, 45)},
     &marked},
    {"a segment of one row", 2, {X(1, 131, 1, 2), W(2)}, &plain},
    {"wide",
     5,
     {X(2, 3, 1, 40), W(40), BETA(1, 40), START(2, 1, 40), MARK(2, 3)},
     &marked,
     .no_grad = true},
    {"saturated",
     2,
     {{{4, {2, 5, 2, 9}}, CHECK_REAL, -60, 60}, {{2, {9, 3}}, CHECK_REAL, -20, 20}},
     &plain},
};

static const check_case two_cases[] = {
    {"two", 4, {X(2, 3, 2, 4), W(4), X(2, 3, 2, 4), W(4)}, &two},
    {"two widths", 4, {X(2, 3, 2, 2), W(2), X(2, 3, 2, 5), EACH(2, 5)}, &two},
    {"two, all parts",
     9,
     {X(3, 3, 3, 3), EACH(3, 3), BIAS(3), BETA(3, 3), X(3, 3, 3, 2), W(2), BIAS(2), START(3, 3, 2),
      MARK(3, 3)},
     &two_full},
    {"two of no rows", 4, {X(0, 3, 2, 2), W(2), X(0, 3, 2, 5), EACH(2, 5)}, &two},
};

/* ---- refused --------------------------------------------------------------------------------- */

typedef struct sketch { /* shapes of a cell; rank -1: none */
    dra_shape x, w, b, beta, start;
} sketch;

static dra_value sketched(dra_graph *g, const char *name, int k, dra_shape shape)
{
    char text[16];
    snprintf(text, sizeof text, "%s%d", name, k);
    return shape.rank < 0 ? none : check_real(g, text, shape);
}

static void refused(int cells, const sketch *from, dra_shape mark, const char *text)
{
    dra_graph   *g = check_graph();
    dra_gru_cell cell[2];
    dra_value    h[2] = {{1}, {1}}, last[2] = {{1}, {1}};
    for (int k = 0; k < cells; k++)
        cell[k] = (dra_gru_cell){sketched(g, "x", k, from[k].x), sketched(g, "w", k, from[k].w),
                                 sketched(g, "b", k, from[k].b),
                                 sketched(g, "beta", k, from[k].beta),
                                 sketched(g, "start", k, from[k].start)};
    const dra_value bits = mark.rank < 0 ? none : dra_input(g, "mark", DRA_I32, mark);
    dra_gru(g, cells, cell, bits, h, last);
    for (int k = 0; k < cells; k++) assert_true(!h[k].id && !last[k].id);
    check_refused(g, DRA_ERR_SHAPE, text);
}

static const dra_shape no = {.rank = -1};

static void refuses_shapes(void **state)
{
    const sketch good = {{4, {2, 5, 3, 12}}, {2, {12, 4}}, no, no, no};
    sketch       s = good;
    s.x = DRA_SHAPE(2, 5, 3, 13);
    refused(1, &s, no, "gru: cell 0: x is " REAL " (2, 5, 3, 13), expected " REAL " (B, T, H, 3D)");
    s.x = DRA_SHAPE(5, 3, 12);
    refused(1, &s, no, "gru: cell 0: x is " REAL " (5, 3, 12), expected " REAL " (B, T, H, 3D)");
    s = good;
    s.w = DRA_SHAPE(12, 5);
    refused(1, &s, no,
            "gru: cell 0: w is " REAL " (12, 5), expected " REAL " (12, 4) or (3, 12, 4)");
    s.w = DRA_SHAPE(2, 12, 4);
    refused(1, &s, no,
            "gru: cell 0: w is " REAL " (2, 12, 4), expected " REAL " (12, 4) or (3, 12, 4)");
    s = good;
    s.b = DRA_SHAPE(4);
    refused(1, &s, no, "gru: cell 0: b is " REAL " (4), expected " REAL " (12) or (3, 12)");
    s = good;
    s.beta = DRA_SHAPE(4);
    refused(1, &s, no, "gru: cell 0: beta is " REAL " (4), expected " REAL " (3, 4)");
    s = good;
    s.start = DRA_SHAPE(3, 4);
    refused(1, &s, no, "gru: cell 0: start is " REAL " (3, 4), expected " REAL " (2, 3, 4)");
    refused(1, &good, DRA_SHAPE(5, 2), "gru: mark is i32 (5, 2), expected i32 (2, 5)");
    const sketch pair[] = {good, {{4, {2, 4, 3, 12}}, {2, {12, 4}}, no, no, no}};
    refused(2, pair, no,
            "gru: cell 1: x is " REAL " (2, 4, 3, 12), expected the B, T and H of cell 0: 2, 5, 3");
}

static void refuses_dtypes(void **state)
{
    dra_graph   *g = check_graph();
    dra_gru_cell cell = {.x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 12)),
                         .w = dra_input(g, "w", DRA_I32, DRA_SHAPE(12, 4))};
    dra_value    h;
    dra_gru(g, 1, &cell, none, &h, NULL);
    check_refused(g, DRA_ERR_DTYPE,
                  "gru: cell 0: w is i32 (12, 4), expected " REAL " (12, 4) or (3, 12, 4)");
    g = check_graph();
    cell = (dra_gru_cell){.x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 12)),
                          .w = check_real(g, "w", DRA_SHAPE(12, 4))};
    dra_gru(g, 1, &cell, check_real(g, "mark", DRA_SHAPE(2, 5)), &h, NULL);
    check_refused(g, DRA_ERR_DTYPE, "gru: mark is " REAL " (2, 5), expected i32 (2, 5)");
}

static void refuses_numbers_of_cells(void **state)
{
    dra_gru_cell cell[5] = {0};
    dra_value    h[5];
    dra_graph   *g = check_graph();
    dra_gru(g, 0, cell, none, h, NULL);
    check_refused(g, DRA_ERR_VALUE, "gru: 0 cells, expected 1 to 4");
    g = check_graph();
    dra_gru(g, 5, cell, none, h, NULL);
    check_refused(g, DRA_ERR_VALUE, "gru: 5 cells, expected 1 to 4");
}

int main(void)
{
    const check_spec specs[] = {
        {"gru", 2, build, oracle, one_cases, COUNT(one_cases)},
        {"gru", 4, build, oracle, two_cases, COUNT(two_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_shapes),
        cmocka_unit_test(refuses_dtypes),
        cmocka_unit_test(refuses_numbers_of_cells),
    };
    return check_main("gru", specs, COUNT(specs), tests, COUNT(tests));
}
