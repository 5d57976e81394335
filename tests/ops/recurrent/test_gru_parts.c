/* What gru promises besides its formulas, see cells_parts.h. */
enum { GATES = 3, KEPT = 4, STATES = 1, SLOTS = 0 };

#include "cells_parts.h"

static void add_cell(dra_graph *g, const cell_values *v, dra_value mark, dra_value *h,
                     dra_value *last)
{
    const dra_gru_cell cell = {v->x, v->w, v->b, v->beta, v->start[0]};
    dra_gru(g, 1, &cell, mark, h, &last[0]);
}

static const char *op_name(bool back) { return back ? "gru_back" : "gru"; }

int main(void)
{
    const struct CMUnitTest tests[] = {PROMISES};
    return check_main("gru parts", NULL, 0, tests, COUNT(tests));
}
