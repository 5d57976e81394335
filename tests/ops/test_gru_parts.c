/* What gru promises beside its formulas: parts of a sequence and rows of a batch give the same
 * bits, gradients agree, states stay within 1, nothing is kept that nobody reads. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "device/device.h"

#ifdef DRA_REAL_DOUBLE
#define TOLERANCE 1e-12
#else
#define TOLERANCE 1e-5
#endif

/* ---- parts of a sequence, rows of a batch ---------------------------------------------------- */

enum { B = 3, T = 41, H = 3, D = 19 };

static dra_real x_data[B * T * H * 3 * D], w_data[H * 3 * D * D], b_data[3 * D], beta_data[H * D];
static dra_real start_data[B * H * D], dh_data[B * T * H * D], dlast_data[B * H * D];
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
    fill(COUNT(start_data), start_data, 1, &seed);
    fill(COUNT(dh_data), dh_data, 1, &seed);
    fill(COUNT(dlast_data), dlast_data, 1, &seed);
    for (size_t i = 0; i < COUNT(mark_data); i++) {
        const double draw = check_random(&seed);
        mark_data[i] = draw < 0.1    ? DRA_MARK_RESET
                       : draw < 0.3  ? DRA_MARK_PAD
                       : draw < 0.35 ? 3
                                     : 0;
    }
}

typedef struct sequence { /* values of a graph */
    dra_gru_cell cell;
    dra_value    mark, h, last;
} sequence;

static sequence declare(dra_graph *g, bool own)
{
    const dra_shape w = own ? DRA_SHAPE(H, 3 * D, D) : DRA_SHAPE(3 * D, D);
    return (sequence){.cell = {check_real(g, "x", DRA_SHAPE(B, T, H, 3 * D)), check_real(g, "w", w),
                               check_real(g, "b", DRA_SHAPE(3 * D)),
                               check_real(g, "beta", DRA_SHAPE(H, D)),
                               check_real(g, "start", DRA_SHAPE(B, H, D))},
                      .mark = dra_input(g, "mark", DRA_I32, DRA_SHAPE(B, T))};
}

/* Tokens first..first+n-1, from the state `start`. */
static sequence read_tokens(dra_graph *g, sequence s, int64_t first, int64_t n, dra_value start)
{
    s.cell.x = dra_slice(g, s.cell.x, 1, first, n);
    s.mark = dra_slice(g, s.mark, 1, first, n);
    s.cell.start = start;
    dra_gru(g, 1, &s.cell, s.mark, &s.h, &s.last);
    return s;
}

static sequence read_in_parts(dra_graph *g, sequence s, int64_t split)
{
    const sequence a = read_tokens(g, s, 0, split, s.cell.start);
    const sequence b = read_tokens(g, s, split, T - split, a.last);
    s.h = dra_concat(g, 2, (const dra_value[]){a.h, b.h}, 1);
    s.last = b.last;
    return s;
}

/* Every row of the batch by a call of its own. */
static sequence read_rows(dra_graph *g, sequence s)
{
    dra_value h[B], last[B];
    for (int b = 0; b < B; b++) {
        dra_gru_cell cell = s.cell;
        cell.x = dra_slice(g, s.cell.x, 0, b, 1);
        cell.start = dra_slice(g, s.cell.start, 0, b, 1);
        dra_gru(g, 1, &cell, dra_slice(g, s.mark, 0, b, 1), &h[b], &last[b]);
    }
    s.h = dra_concat(g, B, h, 0);
    s.last = dra_concat(g, B, last, 0);
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
    check_bind(p, "beta", beta_data, sizeof beta_data);
    check_bind(p, "start", start_data, sizeof start_data);
    check_bind(p, "mark", mark_data, sizeof mark_data);
    check_run(p);
}

static void same_bits(const check_program *p, const char *a, const char *b, size_t n)
{
    assert_memory_equal(check_result(p, a), check_result(p, b), n * sizeof(dra_real));
}

static const int64_t splits[] = {1, 2, 17, T - 1};

static void check_same(dra_device *device, bool own, size_t split)
{
    dra_graph     *g = check_graph();
    const sequence s = declare(g, own), all = read_tokens(g, s, 0, T, s.cell.start);
    const sequence cut = split < COUNT(splits) ? read_in_parts(g, s, splits[split])
                                               : read_rows(g, s);
    dra_output(g, "h", all.h);
    dra_output(g, "last", all.last);
    dra_output(g, "cut h", cut.h);
    dra_output(g, "cut last", cut.last);
    check_program p = compile_on(g, device);
    bind_and_run(&p, own);
    same_bits(&p, "h", "cut h", COUNT(dh_data));
    same_bits(&p, "last", "cut last", COUNT(dlast_data));
    check_free(&p);
}

static void parts_and_rows_give_the_same_bits(void **state)
{
    fill_inputs();
    for (size_t l = 0; dra_device_level_at(l); l++)
        for (size_t i = 0; i < 2 * (COUNT(splits) + 1); i++)
            check_same(check_device(2, dra_device_level_at(l)), i % 2, i / 2);
}

/* dx, dw, db, dbeta, dstart for an upstream on h and last. */
static void put_gradients(dra_graph *g, const sequence *from, const sequence *s, const char **names)
{
    const dra_value y[] = {s->h, s->last};
    const dra_value dy[] = {check_real(g, names[5], DRA_SHAPE(B, T, H, D)),
                            check_real(g, names[6], DRA_SHAPE(B, H, D))};
    const dra_value x[] = {from->cell.x, from->cell.w, from->cell.b, from->cell.beta,
                           from->cell.start};
    dra_value       dx[5];
    dra_gradient(g, 2, y, dy, 5, x, dx);
    for (int i = 0; i < 5; i++) dra_output(g, names[i], dx[i]);
}

static void check_gradients(int64_t split, bool own)
{
    static const char *whole_names[] = {"dx", "dw", "db", "dbeta", "dstart", "dh", "dlast"};
    static const char *cut_names[] = {"cut dx",     "cut dw", "cut db",   "cut dbeta",
                                      "cut dstart", "cut dh", "cut dlast"};
    const size_t size[] = {COUNT(x_data), own ? COUNT(w_data) : COUNT(w_data) / H, COUNT(b_data),
                           COUNT(beta_data), COUNT(start_data)};
    dra_graph   *g = check_graph();
    sequence     s = declare(g, own), all = read_tokens(g, s, 0, T, s.cell.start);
    sequence     cut = read_in_parts(g, s, split);
    put_gradients(g, &s, &all, whole_names);
    put_gradients(g, &s, &cut, cut_names);
    check_program p = check_compile(g, 2);
    for (int i = 0; i < 2; i++) {
        check_bind(&p, i ? "dh" : "cut dh", dh_data, sizeof dh_data);
        check_bind(&p, i ? "dlast" : "cut dlast", dlast_data, sizeof dlast_data);
    }
    bind_and_run(&p, own);
    for (int i = 0; i < 5; i++) {
        double *want = calloc(size[i], sizeof *want);
        for (size_t k = 0; k < size[i]; k++) want[k] = (double)check_result(&p, whole_names[i])[k];
        check_close(whole_names[i], (int64_t)size[i], check_result(&p, cut_names[i]), want,
                    TOLERANCE);
        free(want);
    }
    check_free(&p);
}

static void parts_give_equal_gradients(void **state)
{
    fill_inputs();
    for (size_t i = 0; i < COUNT(splits); i++) check_gradients(splits[i], i % 2);
}

/* ---- promises -------------------------------------------------------------------------------- */

/* States pushed from 1 to -1 and back, with shares of them that are nearly 0 and nearly 1. */
static void check_bounded(const char *level)
{
    uint64_t seed = 5;
    fill_inputs();
    fill(COUNT(x_data), x_data, 40, &seed);
    fill(COUNT(beta_data), beta_data, 20, &seed);
    for (size_t i = 0; i < COUNT(start_data); i++) start_data[i] = i % 2 ? 1 : -1;
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
        const dra_value y = dra_sum_all(g, s.last);
        dra_value       dx;
        dra_gradient(g, 1, &y, NULL, 1, &s.cell.w, &dx);
        dra_output(g, "dw", dx);
    }
    if (h) dra_output(g, "h", s.h);
    dra_output(g, "last", s.last);
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
    assert_true(memory_of(true, true) >= 5 * states);
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
        if (strcmp(rows[i].op, "gru") == 0) forward = rows[i].flops;
        if (strcmp(rows[i].op, "gru_back") == 0) back = rows[i].flops;
    }
    assert_true(forward == 2.0 * 3 * D * D * B * T * H);
    assert_true(back == 2 * forward);
    check_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_and_rows_give_the_same_bits),
        cmocka_unit_test(parts_give_equal_gradients),
        cmocka_unit_test(states_stay_within_1),
        cmocka_unit_test(keeps_only_what_is_read),
        cmocka_unit_test(counts_its_products),
    };
    return check_main("gru parts", NULL, 0, tests, COUNT(tests));
}
