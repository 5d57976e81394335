/* What lstm promises besides its formulas, see cells_parts.h. */
enum { GATES = 4, KEPT = 6, STATES = 2, SLOTS = 0 };

#include "cells_parts.h"

static void add_cell(dra_graph *g, const cell_values *v, dra_value mark, dra_value *h,
                     dra_value *last)
{
    const dra_lstm_cell cell = {v->x, v->w, v->b, v->beta, v->start[0], v->start[1]};
    dra_lstm(g, 1, &cell, mark, h, &last[0], &last[1]);
}

static const char *op_name(bool back) { return back ? "lstm_back" : "lstm"; }

int main(void)
{
    const struct CMUnitTest tests[] = {PROMISES};
    return check_main("lstm parts", NULL, 0, tests, COUNT(tests));
}
