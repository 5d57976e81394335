/* Readers: what they refuse and in which words, what binding does, how many programs they need, and
 * long readings in chunks against the same text read at once. */
#include "reading.h"

#include <stdio.h>

#define SIZES .dim = 8, .heads = 2

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_mixer_config window_of_9 = {SIZES, .a = {.retrieval = "window", .window = 9}};

/* ---- refused --------------------------------------------------------------------------------- */

/* Reads T tokens of zeros; the error, where there is one, is `text`. */
static void expect_reading(const reading *r, dra_states *s, int64_t T, const int32_t *mark, int n,
                           const dra_named *in, dra_status code, const char *text)
{
    dra_error        err = {0};
    const dra_status st = dra_reader_read(r->reader, s, T, mark, n, in, &err);
    if (code == DRA_OK) {
        expect_ok(st, &err);
        assert_non_null(dra_reader_result(r->reader, "y"));
        return;
    }
    expect_refused(st, &err, code, text);
    assert_int_equal(dra_reader_read(r->reader, s, T, mark, n, in, NULL), code);
}

static void refuses_wrong_tokens(void **state)
{
    reading         r = open_reading(&window_of_9);
    dra_states     *s = new_states(r.module->state, 2);
    const dra_real  x[2 * 3 * 8] = {0};
    const dra_named in = {"x", x, sizeof x}, shorter = {"x", x, sizeof x - 4};
    const dra_named unknown = {"z", x, sizeof x}, nothing = {"x", NULL, sizeof x};
    dra_error       err = {0};
    expect_reading(&r, s, 0, NULL, 1, &in, DRA_ERR_VALUE, "reader: 0 tokens, expected 1 or more");
    assert_null(dra_reader_result(r.reader, "y"));
    expect_reading(&r, s, -5, NULL, 1, &in, DRA_ERR_VALUE, "reader: -5 tokens, expected 1 or more");
    expect_reading(&r, s, 3, (int32_t[]){0, 1, 6, 3, 8, 0}, 1, &in, DRA_ERR_VALUE,
                   "reader: mark of row 1, token 1 is 8, expected 0 to 7");
    expect_reading(&r, s, 3, (int32_t[]){0, 0, -1, 0, 0, 0}, 1, &in, DRA_ERR_VALUE,
                   "reader: mark of row 0, token 2 is -1, expected 0 to 7");
    char text[96];
    snprintf(text, sizeof text, "bind: 'x' has %zu bytes, expected %zu", sizeof x - 4, sizeof x);
    expect_reading(&r, s, 3, NULL, 1, &shorter, DRA_ERR_SHAPE, text);
    expect_reading(&r, s, 3, NULL, 1, &unknown, DRA_ERR_NAME, "bind: no input is called 'z'");
    expect_reading(&r, s, 3, NULL, 1, &nothing, DRA_ERR_VALUE, "bind: 'x' gets no memory");
    assert_int_equal(dra_states_tokens(s, 0), 0); /* nothing was read */
    expect_ok(dra_states_reset(s, -1, &err), &err);
    expect_reading(&r, s, 3, (int32_t[]){0, 1, 2, 3, 0, 0}, 1, &in, DRA_OK, NULL);
    assert_null(dra_reader_result(r.reader, "no such output"));
    dra_states_destroy(s);
    close_reading(&r);
}

/* Buffers keep addresses, so an input left out later must not be read from the call before. */
static void refuses_a_missing_input(void **state)
{
    reading r = open_reading(
        &(dra_mixer_config){SIZES, .blend = DRA_BLEND_INPUT, .b = {.memory = "wkv"}});
    dra_states     *s = new_states(r.module->state, 1);
    const dra_real  x[8] = {0}, a = 1;
    const dra_named in[] = {{"x", x, sizeof x}, {"blend", &a, sizeof a}};
    expect_reading(&r, s, 1, NULL, 0, NULL, DRA_ERR_BIND, "run: 'x' is not bound");
    expect_reading(&r, s, 1, NULL, 1, in, DRA_ERR_BIND, "run: 'blend' is not bound");
    expect_reading(&r, s, 1, NULL, 2, in, DRA_OK, NULL);
    expect_reading(&r, s, 1, NULL, 1, in, DRA_ERR_BIND, "run: 'blend' is not bound");
    expect_reading(&r, s, 1, NULL, 0, NULL, DRA_ERR_BIND, "run: 'x' is not bound");
    expect_reading(&r, s, 1, NULL, 2, (dra_named[]){in[1], in[0]}, DRA_OK, NULL);
    assert_int_equal(dra_states_tokens(s, 0), 2);
    dra_states_destroy(s);
    close_reading(&r);
}

static void refuses_states_of_another_module(void **state)
{
    dra_mixer_config other = window_of_9;
    other.a.window = 8;
    reading         r = open_reading(&window_of_9), o = open_reading(&other);
    dra_states     *s = new_states(o.module->state, 1);
    const dra_real  x[8] = {0};
    const dra_named in = {"x", x, sizeof x};
    expect_reading(&r, s, 1, NULL, 1, &in, DRA_ERR_VALUE,
                   "reader: the states belong to another module");
    expect_reading(&o, s, 1, NULL, 1, &in, DRA_OK, NULL);
    dra_states_destroy(s);
    close_reading(&r);
    close_reading(&o);
}

static void refuses_too_many_tokens(void **state)
{
    reading         r = open_reading(&window_of_9);
    dra_states     *s = new_states(r.module->state, 1);
    const dra_real  x[2 * 8] = {0};
    const dra_named in = {"x", x, sizeof x};
    dra_error       err = {0};
    expect_ok(dra_states_place(s, 0, INT32_MAX - 2, INT64_C(1) << 60, &err), &err);
    expect_reading(&r, s, 2, NULL, 1, &in, DRA_OK, NULL);
    assert_int_equal(dra_states_items(s, 0), (INT64_C(1) << 60) + 2);
    expect_reading(&r, s, 2, NULL, 1, &in, DRA_ERR_VALUE,
                   "reader: row 0 has read 2147483647 tokens: too many");
    expect_reading(&r, s, INT64_MAX, NULL, 1, &in, DRA_ERR_VALUE,
                   "reader: row 0 has read 2147483647 tokens: too many");
    dra_states_destroy(s);
    close_reading(&r);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void refuses_wrong_parameters(void **state)
{
    dra_mixer      *mixer = NULL;
    dra_reader     *reader = NULL;
    dra_error       err = {0};
    const dra_real  x[8] = {0}, w[64] = {0};
    const dra_named in = {"x", x, sizeof x};
    char            text[96];
    expect_ok(dra_mixer_create(&window_of_9, &mixer, &err), &err);
    const dra_module *m = dra_mixer_module(mixer);
    expect_ok(dra_reader_create(reading_device(), m, &reader, &err), &err);
    dra_states   *s = new_states(m->state, 1);
    const reading r = {mixer, m, reader, 8};
    expect_reading(&r, s, 1, NULL, 1, &in, DRA_ERR_BIND, "reader: parameter W_q is not bound");
    expect_refused(dra_reader_bind(reader, "W", w, sizeof w, &err), &err, DRA_ERR_NAME,
                   "reader: no parameter is called W");
    snprintf(text, sizeof text, "reader: parameter W_q has 4 bytes, expected %zu", sizeof w);
    expect_refused(dra_reader_bind(reader, "W_q", w, 4, &err), &err, DRA_ERR_SHAPE, text);
    expect_refused(dra_reader_bind(reader, "W_q", NULL, sizeof w, &err), &err, DRA_ERR_VALUE,
                   "reader: parameter W_q gets no memory");
    expect_refused(dra_reader_borrow(reader, "W_q", (dra_param_layout){DRA_I32}, w, sizeof w, &err),
                   &err, DRA_ERR_DTYPE, "reader: parameter W_q cannot be i32");
    expect_refused(dra_reader_borrow(reader, "W_q", (dra_param_layout){DRA_REAL, true, 3, 3}, w,
                                     sizeof w, &err),
                   &err, DRA_ERR_DTYPE,
                   "reader: parameter W_q cannot be " REAL ", transposed, part of a tensor");
    snprintf(text, sizeof text, "reader: parameter W_q has 4 bytes, expected %zu", 3 * sizeof w);
    expect_refused(
        dra_reader_borrow(reader, "W_q", (dra_param_layout){DRA_REAL, true, 2, 3}, w, 4, &err),
        &err, DRA_ERR_SHAPE, text);
    expect_ok(dra_reader_bind(reader, "W_q", w, sizeof w, &err), &err);
    expect_reading(&r, s, 1, NULL, 1, &in, DRA_ERR_BIND, "reader: parameter W_k is not bound");
    expect_ok(dra_reader_start(reader, 1, &err), &err); /* the others */
    expect_reading(&r, s, 1, NULL, 1, &in, DRA_OK, NULL);
    expect_ok(
        dra_reader_borrow(reader, "W_q", (dra_param_layout){DRA_REAL, true}, w, sizeof w, &err),
        &err);
    expect_reading(&r, s, 1, NULL, 1, &in, DRA_OK, NULL); /* compiled again */
    dra_states_destroy(s);
    dra_reader_destroy(reader);
    dra_reader_destroy(NULL);
    dra_mixer_destroy(mixer);
}

/* W_o is bound again, changed in place, and refused: every program follows, or none does. */
static void binding_changes_results(void **state)
{
    reading     r = open_reading(&window_of_9);
    dra_states *s = new_states(r.module->state, 1);
    uint64_t    seed = 5;
    dra_real   *x = random_reals(&seed, 3 * 8), *w = random_reals(&seed, 64), y[4][3 * 8];
    dra_error   err = {0};
    for (int round = 0; round < 4; round++) {
        if (round == 2)
            for (int i = 0; i < 64; i++) w[i] *= 2;
        if (round == 1 || round == 2)
            expect_ok(dra_reader_bind(r.reader, "W_o", w, 64 * sizeof *w, &err), &err);
        if (round == 3)
            assert_int_equal(dra_reader_bind(r.reader, "W_o", w, 4, NULL), DRA_ERR_SHAPE);
        expect_ok(dra_states_reset(s, -1, &err), &err);
        read_tokens(&r, s, 2, NULL, x, y[round]);
        read_tokens(&r, s, 1, NULL, x + 2 * 8, y[round] + 2 * 8);
    }
    for (int t = 0; t < 3; t++)
        assert_true(memcmp(y[0] + t * 8, y[1] + t * 8, 8 * sizeof **y) != 0);
    for (int i = 0; i < 3 * 8; i++) assert_true(y[2][i] == 2 * y[1][i]);
    check_reals(y[2], y[3], sizeof y[2]);
    free(x);
    free(w);
    dra_states_destroy(s);
    close_reading(&r);
}

static void starts_from_the_seed(void **state)
{
    const uint64_t seeds[] = {1, 1, 2};
    dra_real       y[3][8], x[8] = {1, -1, 2};
    for (int i = 0; i < 3; i++) {
        reading     r = open_reading(&window_of_9);
        dra_error   err = {0};
        dra_states *s = new_states(r.module->state, 1);
        dra_reader_destroy(r.reader);
        expect_ok(dra_reader_create(reading_device(), r.module, &r.reader, &err), &err);
        expect_ok(dra_reader_start(r.reader, seeds[i], &err), &err);
        expect_ok(dra_reader_start(r.reader, 99, &err), &err); /* nothing is left to start */
        read_tokens(&r, s, 1, NULL, x, y[i]);
        dra_states_destroy(s);
        close_reading(&r);
    }
    check_reals(y[0], y[1], sizeof y[0]);
    assert_true(memcmp(y[0], y[2], sizeof y[0]) != 0);
}

/* ---- long readings --------------------------------------------------------------------------- */

/* Capacities double from 16 on: a program for each of 16, 32, ..., 8192 and none else. */
static void few_programs_for_many_items(void **state)
{
    reading     r = open_reading(&(dra_mixer_config){SIZES});
    dra_states *s = new_states(r.module->state, 1);
    uint64_t    seed = 5;
    dra_real   *x = random_reals(&seed, 8);
    for (int t = 0; t < 5000; t++) read_tokens(&r, s, 1, NULL, x, NULL);
    assert_int_equal(dra_states_items(s, 0), 5000);
    assert_true(dra_reader_programs(r.reader) <= 10);
    assert_true(dra_states_held(s) <= 2 * 2 * 5000 * 8 * sizeof(dra_real));
    free(x);
    dra_states_destroy(s);
    close_reading(&r);
}

enum { LONG = 700, ROWS = 2 };

/* Tokens first .. first + n - 1 of (ROWS, LONG, each). */
static void *cut(const void *from, size_t each, int64_t first, int64_t n)
{
    unsigned char *to = malloc((size_t)(ROWS * n) * each);
    assert_non_null(to);
    for (int64_t b = 0; b < ROWS; b++)
        memcpy(to + (size_t)(b * n) * each,
               (const unsigned char *)from + (size_t)(b * LONG + first) * each, (size_t)n * each);
    return to;
}

static void random_marks(uint64_t *seed, int32_t *mark)
{
    for (int i = 0; i < ROWS * LONG; i++) {
        mark[i] = check_random(seed) < 0.05 ? DRA_MARK_PAD : 0;
        if (check_random(seed) < 0.01) mark[i] |= DRA_MARK_RESET;
    }
}

/* The whole text at once, then in chunks of many lengths: the same bits, and the state flat. */
static void expect_chunks_as_whole(const dra_mixer_config *config, bool marked)
{
    static const int64_t lengths[] = {1, 3, 1, 40, 1, 1, 2, 130, 64, 1, 9, 10, 65, 8};
    reading              r = open_reading(config);
    uint64_t             seed = 17;
    int32_t              mark[ROWS * LONG];
    dra_real            *x = random_reals(&seed, ROWS * LONG * 8);
    dra_real            *y = random_reals(&seed, ROWS * LONG * 8);
    const size_t         row = 8 * sizeof *x;
    random_marks(&seed, mark);
    dra_states *whole = new_states(r.module->state, ROWS);
    dra_states *parts = new_states(r.module->state, ROWS);
    read_tokens(&r, whole, LONG, marked ? mark : NULL, x, y);
    for (int64_t first = 0, k = 0, n; first < LONG; first += n, k++) {
        n = lengths[k % (int64_t)COUNT(lengths)];
        if (n > LONG - first) n = LONG - first;
        dra_real *part = cut(x, row, first, n), *expected = cut(y, row, first, n);
        int32_t  *m = marked ? cut(mark, sizeof *mark, first, n) : NULL;
        dra_real *found = random_reals(&seed, ROWS * n * 8);
        read_tokens(&r, parts, n, m, part, found);
        check_reals(found, expected, (size_t)(ROWS * n) * row);
        free(part);
        free(expected);
        free(m);
        free(found);
    }
    expect_same_states(parts, whole);
    assert_true(dra_reader_programs(r.reader) <= 2 * COUNT(lengths) + 4);
    dra_states_destroy(whole);
    dra_states_destroy(parts);
    free(x);
    free(y);
    close_reading(&r);
}

static void windows_move(void **state)
{
    expect_chunks_as_whole(&window_of_9, false);
    expect_chunks_as_whole(&window_of_9, true);
}

static void windows_of_two_kinds_move(void **state)
{
    const dra_mixer_config c = {SIZES,
                                .rotary = true,
                                .shift = DRA_SHIFT_HALF,
                                .a = {.retrieval = "window", .window = 70},
                                .blend = DRA_BLEND_NUMBER,
                                .blend_value = 0.25,
                                .b = {"gru", .retrieval = "joint", .window = 5}};
    expect_chunks_as_whole(&c, true);
}

static void no_sequence_is_no_mistake(void **state)
{
    reading         r = open_reading(&window_of_9);
    dra_states     *s = new_states(r.module->state, 0);
    const dra_real  x[1] = {0};
    const dra_named in = {"x", x, 0};
    dra_error       err = {0};
    expect_ok(dra_reader_read(r.reader, s, 3, NULL, 1, &in, &err), &err);
    dra_states_destroy(s);
    close_reading(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_wrong_tokens),
        cmocka_unit_test(refuses_a_missing_input),
        cmocka_unit_test(refuses_states_of_another_module),
        cmocka_unit_test(refuses_too_many_tokens),
        cmocka_unit_test(refuses_wrong_parameters),
        cmocka_unit_test(binding_changes_results),
        cmocka_unit_test(starts_from_the_seed),
        cmocka_unit_test(few_programs_for_many_items),
        cmocka_unit_test(windows_move),
        cmocka_unit_test(windows_of_two_kinds_move),
        cmocka_unit_test(no_sequence_is_no_mistake),
    };
    return check_main("reader", NULL, 0, tests, COUNT(tests));
}
