/* slot_gru against its formulas in double, and what it refuses. */
enum { GATES = 3, STATES = 1, SLOTS = 1 };

#include "cells.h"

static void add_cells(dra_graph *g, int cells, const cell_values *v, dra_value mark, dra_value *h,
                      dra_value *const *last)
{
    dra_slot_gru_cell cell[2];
    for (int k = 0; k < cells; k++)
        cell[k] = (dra_slot_gru_cell){v[k].x, v[k].w, v[k].b, v[k].beta, v[k].start[0]};
    dra_slot_gru(g, cells, cell, mark, h, last[0]);
}

static double unit(const double *x, const double *u, double h, double *c)
{
    const double r = sigmoid(x[0] + u[0]), z = sigmoid(x[1] + u[1]), n = tanh(x[2] + r * u[2]);
    return (1 - z) * n + z * h;
}

static const parts plain = {1, {"g"}, false}, marked = {1, {"gs"}, true};
static const parts whole = {1, {"bgs"}, true}, two = {2, {"bgs", "g"}, false};

/* clang-format off */
#define FIXED(h, s)          {{2, {h, s}}, CHECK_REAL, 0, 1}
#define TOKENS(b, t, h, s)   {{4, {b, t, h, s}}, CHECK_REAL, 0, 1}
#define START(b, h, s, d)    {{4, {b, h, s, d}}}
#define MARKS(b, t, numbers) {{2, {b, t}}, CHECK_I32, .values = numbers}
/* clang-format on */

static const double ends[] = {0, 1, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1}; /* u of nothing and of all */

static const check_case one_cases[] = {
    {"one slot, fixed", 3, {X(2, 4, 3, 5), W(5), FIXED(3, 1)}, &plain},
    {"one slot, tokens", 3, {X(2, 4, 3, 5), W(5), TOKENS(2, 4, 3, 1)}, &plain},
    {"fixed",
     6,
     {X(2, 5, 2, 3), W(3), BIAS(3), FIXED(2, 4), START(2, 2, 4, 3), MARK(2, 5)},
     &whole},
    {"tokens",
     6,
     {X(2, 5, 2, 3), W(3), BIAS(3), TOKENS(2, 5, 2, 3), START(2, 2, 3, 3), MARK(2, 5)},
     &whole},
    {"own weights",
     6,
     {X(3, 4, 2, 3), EACH(2, 3), EACH_BIAS(2, 3), TOKENS(3, 4, 2, 3), START(3, 2, 3, 3),
      MARK(3, 4)},
     &whole},
    {"own weights, one b, fixed",
     6,
     {X(2, 3, 3, 2), EACH(3, 2), BIAS(2), FIXED(3, 2), START(2, 3, 2, 2), MARK(2, 3)},
     &whole},
    {"own b, one w",
     6,
     {X(2, 3, 3, 2), W(2), EACH_BIAS(3, 2), TOKENS(2, 3, 3, 2), START(2, 3, 2, 2), MARK(2, 3)},
     &whole},
    {"writes of nothing and of all",
     3,
     {X(1, 3, 2, 3), W(3), {{4, {1, 3, 2, 2}}, CHECK_REAL, .values = ends}},
     &plain},
    {"beyond a mean", 3, {X(1, 5, 2, 3), W(3), {{4, {1, 5, 2, 2}}, CHECK_REAL, -2, 2}}, &plain},
    {"pads",
     5,
     {X(2, 3, 2, 2), W(2), TOKENS(2, 3, 2, 3), START(2, 2, 3, 2), MARKS(2, 3, all_pads)},
     &marked},
    {"resets",
     5,
     {X(2, 3, 2, 2), W(2), FIXED(2, 3), START(2, 2, 3, 2), MARKS(2, 3, all_resets)},
     &marked},
    {"a reset at a pad",
     5,
     {X(1, 6, 2, 2), W(2), TOKENS(1, 6, 2, 2), START(1, 2, 2, 2), MARKS(1, 6, late)},
     &marked},
    {"no tokens",
     5,
     {X(2, 0, 2, 3), W(3), TOKENS(2, 0, 2, 3), START(2, 2, 3, 3), MARK(2, 0)},
     &marked},
    {"no rows", 5, {X(0, 3, 2, 3), W(3), FIXED(2, 3), START(0, 2, 3, 3), MARK(0, 3)}, &marked},
    {"no heads",
     5,
     {X(2, 3, 0, 3), EACH(0, 3), FIXED(0, 3), START(2, 0, 3, 3), MARK(2, 3)},
     &marked},
    {"no units",
     5,
     {X(2, 3, 2, 0), W(0), TOKENS(2, 3, 2, 3), START(2, 2, 3, 0), MARK(2, 3)},
     &marked},
    {"a group of 8 slots",
     5,
     {X(2, 3, 2, 2), W(2), TOKENS(2, 3, 2, 8), START(2, 2, 8, 2), MARK(2, 3)},
     &marked},
    {"slots in two parts",
     5,
     {X(1, 3, 2, 2), W(2), TOKENS(1, 3, 2, 9), START(1, 2, 9, 2), MARK(1, 3)},
     &marked},
    {"parts of own weights",
     5,
     {X(2, 3, 2, 2), EACH(2, 2), FIXED(2, 19), START(2, 2, 19, 2), MARK(2, 3)},
     &marked},
    {"several groups", 3, {X(5, 2, 3, 2), W(2), TOKENS(5, 2, 3, 3)}, &plain},
    {"several segments", 3, {X(1, 45, 1, 2), W(2), TOKENS(1, 45, 1, 4)}, &plain},
    {"wide",
     5,
     {X(2, 3, 1, 40), W(40), TOKENS(2, 3, 1, 3), START(2, 1, 3, 40), MARK(2, 3)},
     &marked},
    {"wider than registers",
     5,
     {X(2, 3, 1, 70), W(70), TOKENS(2, 3, 1, 3), START(2, 1, 3, 70), MARK(2, 3)},
     &marked},
    {"wide enough for slices",
     5,
     {X(2, 3, 1, 90), W(90), TOKENS(2, 3, 1, 3), START(2, 1, 3, 90), MARK(2, 3)},
     &marked},
    {"saturated",
     3,
     {{{4, {2, 5, 2, 9}}, CHECK_REAL, -60, 60},
      {{2, {9, 3}}, CHECK_REAL, -20, 20},
      TOKENS(2, 5, 2, 2)},
     &plain},
};

static const check_case two_cases[] = {
    {"two widths",
     8,
     {X(2, 3, 2, 2), W(2), BIAS(2), TOKENS(2, 3, 2, 3), START(2, 2, 3, 2), X(2, 3, 2, 5),
      EACH(2, 5), FIXED(2, 3)},
     &two},
    {"two, one of no units",
     8,
     {X(2, 3, 2, 0), W(0), BIAS(0), TOKENS(2, 3, 2, 3), START(2, 2, 3, 0), X(2, 3, 2, 5), W(5),
      FIXED(2, 3)},
     &two},
};

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_shapes(void **state)
{
    const sketch good = {{4, {2, 5, 3, 12}}, {2, {12, 4}}, no, {2, {3, 6}}, {no}};
    sketch       s = good;
    s.w = DRA_SHAPE(12, 5);
    refused(1, &s, no,
            "slot_gru: cell 0: w is " REAL " (12, 5), expected " REAL " (12, 4) or (3, 12, 4)");
    s = good;
    s.beta = DRA_SHAPE(2, 6);
    refused(1, &s, no,
            "slot_gru: cell 0: u is " REAL " (2, 6), expected " REAL " (3, 6) or (2, 5, 3, 6)");
    s.beta = DRA_SHAPE(2, 4, 3, 6);
    refused(1, &s, no,
            "slot_gru: cell 0: u is " REAL " (2, 4, 3, 6), expected " REAL
            " (3, 6) or (2, 5, 3, 6)");
    s.beta = DRA_SHAPE(3, 0);
    refused(1, &s, no,
            "slot_gru: cell 0: u is " REAL " (3, 0), expected (H, S) or (B, T, H, S) with S > 0");
    s = good;
    s.start[0] = DRA_SHAPE(2, 3, 4);
    refused(1, &s, no,
            "slot_gru: cell 0: start is " REAL " (2, 3, 4), expected " REAL " (2, 3, 6, 4)");
    refused(1, &good, DRA_SHAPE(5, 2), "slot_gru: mark is i32 (5, 2), expected i32 (2, 5)");
    sketch pair[] = {good, good};
    pair[1].beta = DRA_SHAPE(3, 7);
    refused(2, pair, no,
            "slot_gru: cell 1: u is " REAL " (3, 7), expected " REAL " (3, 6) or (2, 5, 3, 6)");
}

static void refuses_cells(void **state)
{
    dra_slot_gru_cell cell[5] = {{.x = none}};
    dra_value         h[5];
    dra_graph        *g = check_graph();
    dra_slot_gru(g, 0, cell, none, h, NULL);
    check_refused(g, DRA_ERR_VALUE, "slot_gru: 0 cells, expected 1 to 4");
    g = check_graph();
    dra_slot_gru(g, 5, cell, none, h, NULL);
    check_refused(g, DRA_ERR_VALUE, "slot_gru: 5 cells, expected 1 to 4");
    g = check_graph();
    cell[0].x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 12));
    cell[0].w = check_real(g, "w", DRA_SHAPE(12, 4));
    dra_slot_gru(g, 1, cell, none, h, NULL);
    check_refused(g, DRA_ERR_VALUE, "slot_gru: input 0 is the null value");
}

int main(void)
{
    const check_spec specs[] = {
        {"slot_gru", 2, build, oracle, one_cases, COUNT(one_cases)},
        {"slot_gru", 4, build, oracle, two_cases, COUNT(two_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_shapes),
        cmocka_unit_test(refuses_cells),
    };
    return check_main("slot_gru", specs, COUNT(specs), tests, COUNT(tests));
}
