/* lstm against its formulas in double, and what it refuses. */
enum { GATES = 4, STATES = 2, SLOTS = 0 };
#define START(b, h, d) STATE(b, h, d), STATE(b, h, d)

#include "cells_cases.h"

static void add_cells(dra_graph *g, int cells, const cell_values *v, dra_value mark, dra_value *h,
                      dra_value *const *last)
{
    dra_lstm_cell cell[2];
    for (int k = 0; k < cells; k++)
        cell[k] = (dra_lstm_cell){v[k].x, v[k].w, v[k].b, v[k].beta, v[k].start[0], v[k].start[1]};
    dra_lstm(g, cells, cell, mark, h, last[0], last[1]);
}

static double unit(const double *x, const double *u, double h, double *c)
{
    const double i = sigmoid(x[0] + u[0]), f = sigmoid(x[1] + u[1]);
    const double n = tanh(x[2] + u[2]), o = sigmoid(x[3] + u[3]);
    *c = f * *c + i * n;
    return o * tanh(*c);
}

/* ---- refused --------------------------------------------------------------------------------- */

/* What is its own; the rest is what test_gru.c tries. */
static void refuses_shapes(void **state)
{
    const sketch good = {{4, {2, 5, 3, 12}}, {2, {12, 3}}, no, no, {no, no}};
    sketch       s = good;
    s.x = DRA_SHAPE(2, 5, 3, 9);
    refused(1, &s, no, "lstm: cell 0: x is " REAL " (2, 5, 3, 9), expected " REAL " (B, T, H, 4D)");
    s = good;
    s.w = DRA_SHAPE(9, 3);
    refused(1, &s, no,
            "lstm: cell 0: w is " REAL " (9, 3), expected " REAL " (12, 3) or (3, 12, 3)");
    s = good;
    s.start[0] = DRA_SHAPE(3, 3);
    refused(1, &s, no, "lstm: cell 0: start_h is " REAL " (3, 3), expected " REAL " (2, 3, 3)");
    s = good;
    s.start[1] = DRA_SHAPE(2, 3, 4);
    refused(1, &s, no, "lstm: cell 0: start_c is " REAL " (2, 3, 4), expected " REAL " (2, 3, 3)");
    refused(1, &good, DRA_SHAPE(5, 2), "lstm: mark is i32 (5, 2), expected i32 (2, 5)");
}

static void refuses_numbers_of_cells(void **state)
{
    dra_lstm_cell cell[5] = {0};
    dra_value     h[5], last[5];
    dra_graph    *g = check_graph();
    dra_lstm(g, 0, cell, none, h, NULL, last);
    check_refused(g, DRA_ERR_VALUE, "lstm: 0 cells, expected 1 to 4");
    g = check_graph();
    dra_lstm(g, 5, cell, none, h, last, NULL);
    check_refused(g, DRA_ERR_VALUE, "lstm: 5 cells, expected 1 to 4");
}

int main(void)
{
    const check_spec specs[] = {
        {"lstm", 3, build, oracle, one_cases, COUNT(one_cases)},
        {"lstm", 6, build, oracle, two_cases, COUNT(two_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_shapes),
        cmocka_unit_test(refuses_numbers_of_cells),
    };
    return check_main("lstm", specs, COUNT(specs), tests, COUNT(tests));
}
