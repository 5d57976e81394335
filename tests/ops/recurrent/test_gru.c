/* gru against its formulas in double, and what it refuses. */
enum { GATES = 3, STATES = 1, SLOTS = 0 };
#define START STATE

#include "cells_cases.h"

static void add_cells(dra_graph *g, int cells, const cell_values *v, dra_value mark, dra_value *h,
                      dra_value *const *last)
{
    dra_gru_cell cell[2];
    for (int k = 0; k < cells; k++)
        cell[k] = (dra_gru_cell){v[k].x, v[k].w, v[k].b, v[k].beta, v[k].start[0]};
    dra_gru(g, cells, cell, mark, h, last[0]);
}

static double unit(const double *x, const double *u, double h, double *c)
{
    const double r = sigmoid(x[0] + u[0]), z = sigmoid(x[1] + u[1]), n = tanh(x[2] + r * u[2]);
    return (1 - z) * n + z * h;
}

static void refuses_shapes(void **state)
{
    const sketch good = {{4, {2, 5, 3, 12}}, {2, {12, 4}}, no, no, {no}};
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
    s.start[0] = DRA_SHAPE(3, 4);
    refused(1, &s, no, "gru: cell 0: start is " REAL " (3, 4), expected " REAL " (2, 3, 4)");
    refused(1, &good, DRA_SHAPE(5, 2), "gru: mark is i32 (5, 2), expected i32 (2, 5)");
    const sketch pair[] = {good, {{4, {2, 4, 3, 12}}, {2, {12, 4}}, no, no, {no}}};
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
