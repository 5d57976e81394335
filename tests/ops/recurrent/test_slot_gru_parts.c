/* What slot_gru promises besides its formulas, see cells_parts.h; that it equals a scan of small
 * ops, which has gradients of its own, and that slots are heads of a gru. */
enum { GATES = 3, KEPT = 4, STATES = 1, SLOTS = 3 };

#include "cells_parts.h"

enum { G = GATES * D, S = SLOTS };

/* beta as for a gru: 1 - g. */
static dra_value weight(dra_graph *g, dra_value beta) { return dra_sigmoid(g, dra_neg(g, beta)); }

static void add_cell(dra_graph *g, const cell_values *v, dra_value mark, dra_value *h,
                     dra_value *last)
{
    const dra_slot_gru_cell cell = {v->x, v->w, v->b, weight(g, v->beta), v->start[0]};
    dra_slot_gru(g, 1, &cell, mark, h, &last[0]);
}

static const char *op_name(bool back) { return back ? "slot_gru_back" : "slot_gru"; }

/* ---- a scan ---------------------------------------------------------------------------------- */

/* One token: x (B, H, G), u (B, H, S) and mark (B); w (H, G, D), b (G). */
static void body(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                 const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const dra_shape column = DRA_SHAPE(B, 1, 1, 1);
    const dra_value mark = dra_reshape(g, x[2], column), even = dra_integer(g, 2);
    const dra_value reset = dra_greater_equal(g, mark, even);
    const dra_value pad = dra_equal(g, dra_mod(g, mark, even), dra_integer(g, 1));
    const dra_value h = dra_select(g, reset, dra_number(g, 0), carry[0]);
    const dra_value a = dra_reshape(g, x[0], DRA_SHAPE(B, H, 1, G));
    const dra_value c = dra_add(g, dra_matmul(g, h, dra_transpose(g, constant[0], 1, 2)),
                                constant[1]);
    const dra_value both = dra_add(g, a, c);
    const dra_value r = dra_sigmoid(g, dra_slice(g, both, -1, 0, D));
    const dra_value z = dra_sigmoid(g, dra_slice(g, both, -1, D, D));
    const dra_value n = dra_tanh(
        g, dra_add(g, dra_slice(g, a, -1, 2 * D, D), dra_mul(g, r, dra_slice(g, c, -1, 2 * D, D))));
    const dra_value new = dra_add(g, n, dra_mul(g, z, dra_sub(g, h, n)));
    const dra_value u = dra_reshape(g, x[1], DRA_SHAPE(B, H, S, 1));
    const dra_value to = dra_add(g, h, dra_mul(g, u, dra_sub(g, new, h)));
    carry_out[0] = y[0] = dra_select(g, pad, h, to);
}

static sequence scanned(dra_graph *g, sequence s, int64_t split)
{
    const dra_value w = dra_broadcast(g, s.cell.w, DRA_SHAPE(H, G, D));
    const dra_value u = dra_broadcast(g, weight(g, s.cell.beta), DRA_SHAPE(B, T, H, S));
    const dra_value x[] = {dra_transpose(g, s.cell.x, 0, 1), dra_transpose(g, u, 0, 1),
                           dra_transpose(g, s.mark, 0, 1)};
    dra_value       h;
    dra_scan(g,
             &(dra_scan_config){.length = T,
                                .carries = 1,
                                .xs = 3,
                                .constants = 2,
                                .ys = 1,
                                .carry = s.cell.start,
                                .x = x,
                                .constant = (const dra_value[]){w, s.cell.b},
                                .body = body},
             s.last, &h);
    s.h = dra_transpose(g, h, 0, 1);
    return s;
}

static void equals_a_scan(void **state)
{
    fill_inputs();
    for (int own = 0; own < 2; own++) compare_gradients(own, scanned, 0);
}

/* ---- a gru ----------------------------------------------------------------------------------- */

/* The same x and weight of what is new for all slots of a head. */
static dra_value heads_of_a_gru(dra_graph *g, const sequence *s)
{
    const dra_value    x = dra_broadcast(g, dra_reshape(g, s->cell.x, DRA_SHAPE(B, T, H, 1, G)),
                                         DRA_SHAPE(B, T, H, S, G));
    const dra_value    beta = dra_broadcast(g, dra_reshape(g, s->cell.beta, DRA_SHAPE(H * S, 1)),
                                            DRA_SHAPE(H * S, D));
    const dra_gru_cell cell = {.x = dra_reshape(g, x, DRA_SHAPE(B, T, H * S, G)),
                               .w = s->cell.w,
                               .b = s->cell.b,
                               .beta = beta,
                               .start = dra_reshape(g, s->cell.start[0], DRA_SHAPE(B, H * S, D))};
    dra_value          h;
    dra_gru(g, 1, &cell, s->mark, &h, NULL);
    return h;
}

static void slots_are_heads_of_a_gru(void **state)
{
    dra_graph     *g = check_graph();
    const sequence s = declare(g, false), all = read_tokens(g, s, 0, T, s.cell.start);
    dra_output(g, "slots", all.h);
    dra_output(g, "heads", heads_of_a_gru(g, &s));
    check_program p = check_compile(g, 2);
    fill_inputs();
    bind_and_run(&p, false);
    same_bits(&p, "slots", "heads", COUNT(dh_data));
    check_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {PROMISES, cmocka_unit_test(equals_a_scan),
                                       cmocka_unit_test(slots_are_heads_of_a_gru)};
    return check_main("slot_gru parts", NULL, 0, tests, COUNT(tests));
}
