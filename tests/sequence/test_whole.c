/* Modules that read texts as a whole: attention in both directions against plain loops, with pads,
 * resets and skipped tokens anywhere; every call a text of its own; what is refused. */
#include <math.h>

#include "base/shape.h"
#include "file/folder.h"
#include "reading.h"
#include "slopes.h"

enum { C = 4, B = 3, T = 9 };
enum { W_Q, W_K, W_V, PARAMS };

/* y_t = sum_j softmax_j(q_t k_j / sqrt(C)) v_j + x_{t-1},  k_j = W_k x_j + pos_j / 10, 0 at pads */
static void build_encoder(dra_graph *g, const void *self, const dra_module_call *call,
                          dra_value *state_out)
{
    const dra_tokens *t = &call->tokens;
    const dra_value   x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(t->B, t->T, C)), none = {0};
    const dra_shape   heads = DRA_SHAPE(t->B, 1, t->T, C), column = DRA_SHAPE(t->B, t->T, 1);
    const dra_value   pos = dra_reshape(g, dra_cast(g, t->pos, DRA_REAL), column);
    const dra_value   q = dra_linear(g, x, call->param[W_Q], none);
    const dra_value   k = dra_linear(g, x, call->param[W_K], none);
    const dra_value   v = dra_linear(g, x, call->param[W_V], none);
    dra_attend_config config = {.lo = t->lo, .hi = t->hi};
    dra_value         after;
    if (t->seen.id) config.mask = dra_reshape(g, t->seen, DRA_SHAPE(t->B, 1, 1, t->T));
    if (t->seen.id) dra_output(g, "seen", t->seen);
    const dra_value y = dra_attend(g, dra_reshape(g, q, heads),
                                   dra_reshape(g, dra_add(g, k, dra_affine(g, pos, 0.1, 0)), heads),
                                   dra_reshape(g, v, heads), &config);
    const dra_value shifted = dra_tokens_shift(g, t, x, none, &after);
    const dra_value sum = dra_add(g, dra_reshape(g, y, dra_shape_of(g, x)), shifted);
    dra_output(g, "y", dra_tokens_zero_pads(g, t, sum));
    if (dra_specs_count(self)) state_out[0] = after;
}

typedef struct encoder {
    dra_specs  *params, *state;
    dra_module  module;
    dra_reader *reader;
    dra_real   *param[PARAMS];
} encoder;

/* With a state that nobody may see, if `stateful`. */
static encoder open_encoder(bool stateful)
{
    encoder   e = {0};
    dra_error err = {0};
    expect_ok(dra_specs_create(&e.params, &err), &err);
    expect_ok(dra_specs_create(&e.state, &err), &err);
    for (int i = 0; i < PARAMS; i++)
        dra_specs_add(e.params, NULL,
                      &(dra_spec){(const char *[]){"W_q", "W_k", "W_v"}[i], DRA_SHAPE(C, C),
                                  DRA_FILL_NORMAL, 0.7});
    if (stateful) dra_specs_add(e.state, NULL, &(dra_spec){"last", DRA_SHAPE(C), .number = 3});
    e.module = (dra_module){e.params, e.state, build_encoder, e.state, .whole = true};
    expect_ok(dra_reader_create(reading_device(), &e.module, &e.reader, &err), &err);
    expect_ok(dra_reader_start(e.reader, 1, &err), &err);
    for (int i = 0; i < PARAMS; i++) {
        e.param[i] = malloc(C * C * sizeof *e.param[i]);
        assert_non_null(e.param[i]);
        dra_specs_fill(e.params, i, 1, e.param[i]);
    }
    return e;
}

static void close_encoder(encoder *e)
{
    dra_reader_destroy(e->reader);
    dra_specs_destroy(e->params);
    dra_specs_destroy(e->state);
    for (int i = 0; i < PARAMS; i++) free(e->param[i]);
}

static void read_texts(const encoder *e, dra_states *s, int64_t n, const int32_t *mark,
                       const dra_real *x, dra_real *y)
{
    const reading r = {NULL, &e->module, e->reader, C};
    read_tokens(&r, s, n, mark, x, y);
}

/* ---- plain loops ----------------------------------------------------------------------------- */

static void multiply(const dra_real *w, const dra_real *x, double *y)
{
    for (int o = 0; o < C; o++) {
        y[o] = 0;
        for (int i = 0; i < C; i++) y[o] += (double)w[o * C + i] * (double)x[i];
    }
}

/* The text of token t: from its first to the one before the next. */
static void bounds(const int32_t *mark, int t, int *first, int *end)
{
    for (*first = t; *first > 0 && !(mark[*first] & DRA_MARK_RESET); (*first)--) continue;
    for (*end = t + 1; *end < T && !(mark[*end] & DRA_MARK_RESET); (*end)++) continue;
}

/* Of one row: y (T, C). */
static void expected_row(const encoder *e, const int32_t *mark, const dra_real *x, double *y)
{
    for (int t = 0; t < T; t++, y += C) {
        double q[C], k[C], v[C], sum = 0, top = 0;
        int    first, end;
        for (int c = 0; c < C; c++) y[c] = 0;
        if (mark[t] & DRA_MARK_PAD) continue;
        bounds(mark, t, &first, &end);
        multiply(e->param[W_Q], x + t * C, q);
        for (int j = first; j < end; j++) {
            double s = 0;
            if (mark[j] & (DRA_MARK_PAD | DRA_MARK_SKIP)) continue;
            multiply(e->param[W_K], x + j * C, k);
            multiply(e->param[W_V], x + j * C, v);
            for (int c = 0; c < C; c++) s += q[c] * (k[c] + 0.1 * (j - first));
            s = exp(s / sqrt((double)C));
            sum += s;
            for (int c = 0; c < C; c++) y[c] += s * v[c];
            top = fmax(top, s);
        }
        for (int c = 0; c < C; c++) y[c] = top > 0 ? y[c] / sum : 0;
        const bool alone = t == first || mark[t - 1] & DRA_MARK_PAD;
        for (int c = 0; c < C && !alone; c++) y[c] += (double)x[(t - 1) * C + c];
    }
}

enum { PAD = DRA_MARK_PAD, NEW = DRA_MARK_RESET, SKIP = DRA_MARK_SKIP };

static const struct {
    const char *name;
    bool        masked; /* needs more than intervals */
    int32_t     mark[B * T];
} cases[] = {
    {"plain", false, {0}},
    {"pads at the end", false, {0,   0,   0,   0,   0, 0,   0,   0,   0,   0,   0,   0,   PAD, PAD,
                                PAD, PAD, PAD, PAD, 0, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD}},
    {"pads in front", false, {PAD, PAD, 0, 0,   0, 0, 0, 0, 0, PAD, 0, 0, 0, 0,
                              0,   0,   0, PAD, 0, 0, 0, 0, 0, 0,   0, 0, 0}},
    {"a row of pads", false, {0,   0,   0,   0,   0,   0, 0, 0, 0, PAD, PAD, PAD, PAD, PAD,
                              PAD, PAD, PAD, PAD, NEW, 0, 0, 0, 0, 0,   0,   0,   0}},
    {"several texts", false, {0, 0, NEW, 0,   0, NEW, NEW, 0,   0,         NEW, 0, 0,   0,  0,
                              0, 0, 0,   NEW, 0, 0,   0,   PAD, NEW | PAD, 0,   0, PAD, PAD}},
    {"pads between", true, {0, PAD, 0, 0, PAD, PAD, 0, 0, 0, 0, 0, 0, 0, PAD, PAD, NEW, 0, PAD}},
    {"skipped tokens", true, {0,    SKIP, 0, 0,    SKIP, SKIP, NEW,        SKIP,       0,
                              SKIP, SKIP, 0, 0,    0,    0,    NEW | SKIP, SKIP | PAD, PAD,
                              SKIP, 0,    0, SKIP, 0,    0,    0,          0,          SKIP}},
};

static void tokens_see_all_of_their_text(void **state)
{
    encoder  e = open_encoder(false);
    uint64_t seed = 3;
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_states *s = new_states(e.state, B);
        dra_real   *x = random_reals(&seed, B * T * C), y[B * T * C];
        double      expected[B * T * C];
        dra_shape   shape;
        for (int b = 0; b < B; b++)
            expected_row(&e, cases[i].mark + b * T, x + b * T * C, expected + b * T * C);
        read_texts(&e, s, T, cases[i].mark, x, y);
        check_close(cases[i].name, B * T * C, y, expected, sizeof(dra_real) == 4 ? 1e-5 : 1e-12);
        assert_int_equal(dra_reader_result_shape(e.reader, "seen", &shape), cases[i].masked);
        if (i == 0) { /* the same without marks */
            read_texts(&e, s, T, NULL, x, y);
            check_close("no marks", B * T * C, y, expected, sizeof(dra_real) == 4 ? 1e-5 : 1e-12);
        }
        free(x);
        dra_states_destroy(s);
    }
    close_encoder(&e);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void calls_are_texts_of_their_own(void **state)
{
    encoder     e = open_encoder(true);
    uint64_t    seed = 4;
    dra_real   *x = random_reals(&seed, B * T * C), y[2][B * T * C], last[C];
    dra_states *s = new_states(e.state, B);
    dra_error   err = {0};
    read_texts(&e, s, T, cases[4].mark, x, y[0]);
    read_texts(&e, s, 2, NULL, x, NULL);
    assert_int_equal(dra_states_tokens(s, 0), 2);
    read_texts(&e, s, T, cases[4].mark, x, y[1]);
    check_reals(y[0], y[1], sizeof y[0]);
    assert_int_equal(dra_states_tokens(s, 0), 3); /* of the last text, pads not counted */
    assert_int_equal(dra_states_tokens(s, 1), 1);
    assert_int_equal(dra_states_tokens(s, 2), 2);
    assert_int_equal(dra_states_items(s, 0), 0);
    expect_ok(dra_states_read(s, 0, 1, last, C, &err), &err);
    for (int c = 0; c < C; c++) assert_true(last[c] == 3);
    assert_int_equal(dra_reader_clamped(e.reader), 0);
    free(x);
    dra_states_destroy(s);
    close_encoder(&e);
}

/* A row gives the same bits alone, in any batch, and whatever is in its pads. */
static void rows_are_alone(void **state)
{
    encoder     e = open_encoder(false);
    uint64_t    seed = 5;
    dra_real   *x = random_reals(&seed, B * T * C), y[B * T * C], one[T * C];
    dra_states *s = new_states(e.state, B), *single = new_states(e.state, 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        read_texts(&e, s, T, cases[i].mark, x, y);
        for (int b = 0; b < B; b++) {
            const int32_t *mark = cases[i].mark + b * T;
            for (int k = 0; k < T * C; k++)
                if (mark[k / C] & PAD) x[b * T * C + k] = 1000;
            read_texts(&e, single, T, mark, x + b * T * C, one);
            check_reals(one, y + b * T * C, sizeof one);
        }
    }
    free(x);
    dra_states_destroy(s);
    dra_states_destroy(single);
    close_encoder(&e);
}

static void a_file_holds_counts_alone(void **state)
{
    encoder     e = open_encoder(false);
    uint64_t    seed = 6;
    dra_real   *x = random_reals(&seed, B * T * C);
    dra_states *s = new_states(e.state, B), *loaded = NULL;
    dra_error   err = {0};
    const char *path = in_folder("whole.state");
    read_texts(&e, s, T, cases[1].mark, x, NULL);
    assert_int_equal(dra_states_bytes(s), 0);
    expect_ok(dra_states_save(s, 7, path, &err), &err);
    expect_ok(dra_states_load(reading_device(), e.state, 7, path, &loaded, &err), &err);
    expect_same_states(loaded, s);
    assert_int_equal(dra_states_tokens(loaded, 1), 3);
    free(x);
    dra_states_destroy(s);
    dra_states_destroy(loaded);
    close_encoder(&e);
}

static void gradients_are_derivatives(void **state)
{
    encoder   e = open_encoder(false);
    uint64_t  seed = 8;
    dra_real *x = random_reals(&seed, B * T * C), *u = random_reals(&seed, B * T * C);
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_states *s = new_states(e.state, B);
        expect_slopes(&(trial){.module = &e.module,
                               .device = reading_device(),
                               .B = B,
                               .T = T,
                               .C = C,
                               .mark = cases[i].mark,
                               .x = x,
                               .u = u,
                               .param = e.param,
                               .start = s,
                               .fresh = true});
        dra_states_destroy(s);
    }
    free(x);
    free(u);
    close_encoder(&e);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_items(void **state)
{
    encoder         e = open_encoder(false);
    const dra_real  x[C] = {0};
    const dra_named in = {"x", x, sizeof x};
    dra_error       err = {0};
    dra_specs_add(e.state, NULL, &(dra_spec){"K", DRA_SHAPE(C), .items = true});
    dra_reader_destroy(e.reader);
    expect_ok(dra_reader_create(reading_device(), &e.module, &e.reader, &err), &err);
    expect_ok(dra_reader_start(e.reader, 1, &err), &err);
    dra_states *s = new_states(e.state, 1);
    expect_refused(dra_reader_read(e.reader, s, 1, NULL, 1, &in, &err), &err, DRA_ERR_VALUE,
                   "tokens: a module that reads whole texts has items");
    assert_int_equal(dra_states_tokens(s, 0), 0);
    dra_states_destroy(s);
    close_encoder(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_see_all_of_their_text),
        cmocka_unit_test(calls_are_texts_of_their_own),
        cmocka_unit_test(rows_are_alone),
        cmocka_unit_test(a_file_holds_counts_alone),
        cmocka_unit_test(gradients_are_derivatives),
        cmocka_unit_test(refuses_items),
    };
    return cmocka_run_group_tests_name("whole", tests, folder_make, folder_remove);
}
