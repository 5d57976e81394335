/* What recurrent cells promise besides their formulas: parts of a sequence and rows of a batch give
 * the same bits, gradients agree, h stays within 1, nothing is kept that nobody reads. A test names
 * its cell before it includes this:
 *   enum { GATES, KEPT, STATES, SLOTS };   parts of D of x and of what a gradient keeps; h, or h
 *                                          and c; 0: one state a head, else how many
 * With slots beta is (H, S), or with weights for each head (B, T, H, S). */
#ifndef DRA_TESTS_OPS_RECURRENT_CELLS_PARTS_H
#define DRA_TESTS_OPS_RECURRENT_CELLS_PARTS_H

#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "device/device.h"

#ifdef DRA_REAL_DOUBLE
#define TOLERANCE 1e-12
#else
#define TOLERANCE 1e-5
#endif

typedef struct cell_values {
    dra_value x, w, b, beta, start[STATES];
} cell_values;

/* The cell of the test, and the names of its ops. */
static void        add_cell(dra_graph *g, const cell_values *v, dra_value mark, dra_value *h,
                            dra_value *last);
static const char *op_name(bool back);

/* ---- parts of a sequence, rows of a batch ---------------------------------------------------- */

enum { B = 3, T = 41, H = 3, D = 19 };
enum { SIZE = H * (SLOTS ? SLOTS : 1) * D, FIXED = SLOTS ? H * SLOTS : H * D };
enum { BETAS = SLOTS ? B * T * H * SLOTS : H * D }; /* SIZE: of all states of a row */

static dra_real x_data[B * T * H * GATES * D], w_data[H * GATES * D * D], b_data[GATES * D],
    beta_data[BETAS];
static dra_real start_data[STATES][B * SIZE], dlast_data[STATES][B * SIZE];
static dra_real dh_data[B * T * SIZE];
static int32_t  mark_data[B * T];

static void fill(size_t n, dra_real *x, double size, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) x[i] = (dra_real)(size * (2 * check_random(seed) - 1));
}

static void fill_inputs(void)
{
    uint64_t seed = 11;
    fill(COUNT(x_data), x_data, 2, &seed);
    fill(COUNT(w_data), w_data, 0.5, &seed);
    fill(COUNT(b_data), b_data, 1, &seed);
    fill(COUNT(beta_data), beta_data, 3, &seed);
    for (int i = 0; i < STATES; i++) fill(B * SIZE, start_data[i], 1, &seed);
    fill(COUNT(dh_data), dh_data, 1, &seed);
    for (int i = 0; i < STATES; i++) fill(B * SIZE, dlast_data[i], 1, &seed);
    for (size_t i = 0; i < COUNT(mark_data); i++) {
        const double draw = check_random(&seed);
        mark_data[i] = draw < 0.1    ? DRA_MARK_RESET
                       : draw < 0.3  ? DRA_MARK_PAD
                       : draw < 0.35 ? 3
                                     : 0;
    }
}

typedef struct sequence { /* values of a graph */
    cell_values cell;
    dra_value   mark, h, last[STATES];
} sequence;

static const char *const start_names[] = {"start h", "start c"};

static dra_shape states_shape(void)
{
    return SLOTS ? DRA_SHAPE(B, H, SLOTS, D) : DRA_SHAPE(B, H, D);
}

static dra_shape beta_shape(bool own)
{
    if (!SLOTS) return DRA_SHAPE(H, D);
    return own ? DRA_SHAPE(B, T, H, SLOTS) : DRA_SHAPE(H, SLOTS);
}

static sequence declare(dra_graph *g, bool own)
{
    const dra_shape w = own ? DRA_SHAPE(H, GATES * D, D) : DRA_SHAPE(GATES * D, D);
    sequence        s = {.cell = {check_real(g, "x", DRA_SHAPE(B, T, H, GATES * D)),
                                  check_real(g, "w", w),
                                  check_real(g, "b", DRA_SHAPE(GATES * D)),
                                  check_real(g, "beta", beta_shape(own)),
                                  {{0}}},
                         .mark = dra_input(g, "mark", DRA_I32, DRA_SHAPE(B, T))};
    for (int i = 0; i < STATES; i++)
        s.cell.start[i] = check_real(g, start_names[i], states_shape());
    return s;
}

/* Part of x, or of beta where it is given for every token. */
static dra_value cut(dra_graph *g, dra_value x, int axis, int64_t first, int64_t n)
{
    return dra_shape_of(g, x).rank == 4 ? dra_slice(g, x, axis, first, n) : x;
}

/* Tokens first..first+n-1, from the states `start`. */
static sequence read_tokens(dra_graph *g, sequence s, int64_t first, int64_t n,
                            const dra_value *start)
{
    s.cell.x = cut(g, s.cell.x, 1, first, n);
    s.cell.beta = cut(g, s.cell.beta, 1, first, n);
    s.mark = dra_slice(g, s.mark, 1, first, n);
    for (int i = 0; i < STATES; i++) s.cell.start[i] = start[i];
    add_cell(g, &s.cell, s.mark, &s.h, s.last);
    return s;
}

static sequence read_in_parts(dra_graph *g, sequence s, int64_t split)
{
    const sequence a = read_tokens(g, s, 0, split, s.cell.start);
    const sequence b = read_tokens(g, s, split, T - split, a.last);
    s.h = dra_concat(g, 2, (const dra_value[]){a.h, b.h}, 1);
    for (int i = 0; i < STATES; i++) s.last[i] = b.last[i];
    return s;
}

/* Every row of the batch by a call of its own. */
static sequence read_rows(dra_graph *g, sequence s)
{
    dra_value h[B], last[STATES][B];
    for (int b = 0; b < B; b++) {
        cell_values cell = s.cell;
        dra_value   end[STATES];
        cell.x = cut(g, s.cell.x, 0, b, 1);
        cell.beta = cut(g, s.cell.beta, 0, b, 1);
        for (int i = 0; i < STATES; i++) cell.start[i] = dra_slice(g, s.cell.start[i], 0, b, 1);
        add_cell(g, &cell, dra_slice(g, s.mark, 0, b, 1), &h[b], end);
        for (int i = 0; i < STATES; i++) last[i][b] = end[i];
    }
    s.h = dra_concat(g, B, h, 0);
    for (int i = 0; i < STATES; i++) s.last[i] = dra_concat(g, B, last[i], 0);
    return s;
}

static check_program compile_on(dra_graph *g, dra_device *device)
{
    check_program p = {0};
    dra_error     err = {0};
    if (dra_compile(g, device, &p.program, &err) != DRA_OK ||
        dra_buffers_create(p.program, &p.buffers, &err) != DRA_OK)
        fail_msg("%s", err.text);
    dra_graph_destroy(g);
    return p;
}

static void bind_and_run(check_program *p, bool own)
{
    check_bind(p, "x", x_data, sizeof x_data);
    check_bind(p, "w", w_data, own ? sizeof w_data : sizeof w_data / H);
    check_bind(p, "b", b_data, sizeof b_data);
    check_bind(p, "beta", beta_data, (own ? BETAS : FIXED) * sizeof *beta_data);
    for (int i = 0; i < STATES; i++)
        check_bind(p, start_names[i], start_data[i], sizeof start_data[i]);
    check_bind(p, "mark", mark_data, sizeof mark_data);
    check_run(p);
}

static void same_bits(check_program *p, const char *a, const char *b, size_t n)
{
    assert_memory_equal(check_result(p, a), check_result(p, b), n * sizeof(dra_real));
}

static const int64_t splits[] = {1, 2, 17, T - 1};

static const char *const last_names[] = {"last h", "last c"};
static const char *const cut_last_names[] = {"cut last h", "cut last c"};

static void check_same(dra_device *device, bool own, size_t split)
{
    dra_graph     *g = check_graph();
    const sequence s = declare(g, own), all = read_tokens(g, s, 0, T, s.cell.start);
    const sequence other = split < COUNT(splits) ? read_in_parts(g, s, splits[split])
                                                 : read_rows(g, s);
    dra_output(g, "h", all.h);
    dra_output(g, "cut h", other.h);
    for (int i = 0; i < STATES; i++) {
        dra_output(g, last_names[i], all.last[i]);
        dra_output(g, cut_last_names[i], other.last[i]);
    }
    check_program p = compile_on(g, device);
    bind_and_run(&p, own);
    same_bits(&p, "h", "cut h", COUNT(dh_data));
    for (int i = 0; i < STATES; i++) same_bits(&p, last_names[i], cut_last_names[i], B * SIZE);
    check_free(&p);
}

static void parts_and_rows_give_the_same_bits(void **state)
{
    fill_inputs();
    for (size_t l = 0; dra_device_level_at(l); l++)
        for (size_t i = 0; i < 2 * (COUNT(splits) + 1); i++)
            check_same(check_device(2, dra_device_level_at(l)), i % 2, i / 2);
}

enum { WANTED = 4 + STATES, GIVEN = 1 + STATES }; /* gradients, and what they come from */

/* dx, dw, db, dbeta and dstart for an upstream on h and last; names of these, then of those. */
static void put_gradients(dra_graph *g, const sequence *from, const sequence *s,
                          const char *const *wanted, const char *const *given)
{
    const cell_values *v = &from->cell;
    dra_value y[GIVEN] = {s->h}, dy[GIVEN] = {check_real(g, given[0], dra_shape_of(g, s->h))};
    dra_value x[WANTED] = {v->x, v->w, v->b, v->beta}, dx[WANTED];
    for (int i = 0; i < STATES; i++) {
        x[4 + i] = v->start[i];
        y[1 + i] = s->last[i];
        dy[1 + i] = check_real(g, given[1 + i], states_shape());
    }
    dra_gradient(g, GIVEN, y, dy, WANTED, x, dx);
    for (int i = 0; i < WANTED; i++) dra_output(g, wanted[i], dx[i]);
}

static const char *const wanted_names[2][6] = {
    {"dx", "dw", "db", "dbeta", "dstart h", "dstart c"},
    {"cut dx", "cut dw", "cut db", "cut dbeta", "cut dstart h", "cut dstart c"}};
static const char *const given_names[2][3] = {{"dh", "dlast h", "dlast c"},
                                              {"cut dh", "cut dlast h", "cut dlast c"}};

/* All tokens at once, and otherwise. */
static void compare_gradients(bool    own, sequence (*otherwise)(dra_graph *, sequence, int64_t),
                              int64_t split)
{
    const size_t w_size = own ? COUNT(w_data) : COUNT(w_data) / H;
    const size_t size[] = {COUNT(x_data),       w_size,   COUNT(b_data),
                           own ? BETAS : FIXED, B * SIZE, B * SIZE};
    dra_graph   *g = check_graph();
    sequence     s = declare(g, own), all = read_tokens(g, s, 0, T, s.cell.start);
    sequence     other = otherwise(g, s, split);
    put_gradients(g, &s, &all, wanted_names[0], given_names[0]);
    put_gradients(g, &s, &other, wanted_names[1], given_names[1]);
    check_program p = check_compile(g, 2);
    for (int i = 0; i < 2; i++) {
        check_bind(&p, given_names[i][0], dh_data, sizeof dh_data);
        for (int k = 0; k < STATES; k++)
            check_bind(&p, given_names[i][1 + k], dlast_data[k], sizeof dlast_data[k]);
    }
    bind_and_run(&p, own);
    for (int i = 0; i < WANTED; i++) {
        double         *want = calloc(size[i], sizeof *want);
        const dra_real *from = check_result(&p, wanted_names[0][i]);
        for (size_t k = 0; k < size[i]; k++) want[k] = (double)from[k];
        check_close(wanted_names[0][i], (int64_t)size[i], check_result(&p, wanted_names[1][i]),
                    want, TOLERANCE);
        free(want);
    }
    check_free(&p);
}

static void parts_give_equal_gradients(void **state)
{
    fill_inputs();
    for (size_t i = 0; i < COUNT(splits); i++) compare_gradients(i % 2, read_in_parts, splits[i]);
}

/* ---- promises -------------------------------------------------------------------------------- */

/* States pushed from 1 to -1 and back, with shares of them that are nearly 0 and nearly 1. */
static void check_bounded(const char *level)
{
    uint64_t seed = 5;
    fill_inputs();
    fill(COUNT(x_data), x_data, 40, &seed);
    fill(COUNT(beta_data), beta_data, 20, &seed);
    for (int k = 0; k < STATES; k++) /* c far out, where its tanh is 1 */
        for (size_t i = 0; i < COUNT(start_data[k]); i++)
            start_data[k][i] = (dra_real)((k ? 20 : 1) * (i % 2 ? 1 : -1));
    memset(mark_data, 0, sizeof mark_data);
    for (int share = 0; share < 2; share++) {
        dra_graph *g = check_graph();
        sequence   s = declare(g, false);
        if (share) s.cell.beta = dra_affine(g, s.cell.beta, 1e-3, -6); /* most of h is new */
        s = read_tokens(g, s, 0, T, s.cell.start);
        dra_output(g, "h", s.h);
        check_program p = compile_on(g, check_device(1, level));
        bind_and_run(&p, false);
        const dra_real *h = check_result(&p, "h");
        bool            reached = false;
        for (size_t i = 0; i < COUNT(dh_data); i++) {
            assert_true(h[i] >= -1 && h[i] <= 1);
            reached = reached || h[i] == 1;
        }
        assert_true(reached); /* else nothing was tried */
        check_free(&p);
    }
}

static void states_stay_within_1(void **state)
{
    for (size_t l = 0; dra_device_level_at(l); l++) check_bounded(dra_device_level_at(l));
}

/* Where only the last state is read, no other is kept; without a gradient, no gates. */
static size_t memory_of(bool h, bool gradient)
{
    dra_graph *g = check_graph();
    sequence   s = declare(g, false);
    s = read_tokens(g, s, 0, T, s.cell.start);
    if (gradient) {
        const dra_value y = dra_sum_all(g, s.last[0]);
        dra_value       dx;
        dra_gradient(g, 1, &y, NULL, 1, &s.cell.w, &dx);
        dra_output(g, "dw", dx);
    }
    if (h) dra_output(g, "h", s.h);
    dra_output(g, "last", s.last[0]);
    check_program p = compile_on(g, check_device(1, "ref"));
    bind_and_run(&p, false);
    const dra_memory_report report = dra_program_memory(p.program);
    check_free(&p);
    return report.activations;
}

static void keeps_only_what_is_read(void **state)
{
    const size_t states = sizeof dh_data;
    fill_inputs();
    assert_true(memory_of(false, false) < states);
    assert_true(memory_of(true, false) >= states && memory_of(true, false) < 2 * states);
    assert_true(memory_of(true, true) >= (1 + KEPT) * states);
}

static void counts_its_products(void **state)
{
    dra_graph *g = check_graph();
    sequence   s = declare(g, false);
    s = read_tokens(g, s, 0, T, s.cell.start);
    const dra_value y = dra_sum_all(g, s.h);
    dra_value       dx;
    dra_gradient(g, 1, &y, NULL, 1, &s.cell.w, &dx);
    dra_output(g, "dw", dx);
    check_program p = check_compile(g, 1);
    dra_profile_enable(p.buffers, true);
    fill_inputs();
    bind_and_run(&p, false);
    dra_profile_row rows[16];
    double          forward = 0, back = 0;
    const size_t    n = dra_profile_read(p.buffers, rows, COUNT(rows));
    for (size_t i = 0; i < n && i < COUNT(rows); i++) {
        if (strcmp(rows[i].op, op_name(false)) == 0) forward = rows[i].flops;
        if (strcmp(rows[i].op, op_name(true)) == 0) back = rows[i].flops;
    }
    assert_true(forward == 2.0 * GATES * D * B * T * SIZE);
    assert_true(back == 2 * forward);
    check_free(&p);
}

#define PROMISES                                                                                   \
    cmocka_unit_test(parts_and_rows_give_the_same_bits),                                           \
        cmocka_unit_test(parts_give_equal_gradients), cmocka_unit_test(states_stay_within_1),      \
        cmocka_unit_test(keeps_only_what_is_read), cmocka_unit_test(counts_its_products)

#endif
