/* Prefixes: the tokens of one see each other and no others do; memory/ and model/test_stacks read
 * them in all kinds of calls. Here: against texts that are read as a whole, and what is refused. */
#include <math.h>

#include "reading.h"

enum { C = 8, B = 2, T = 7 };

static const dra_mixer_config plain = {.dim = C, .heads = 2, .prefix = true};

/* Reads T tokens of B fresh rows. */
static void read_fresh(const dra_mixer_config *config, const int32_t *mark, const dra_real *x,
                       dra_real *y)
{
    reading     r = open_reading(config);
    dra_states *s = NULL;
    dra_error   err = {0};
    dra_module  m = *r.module;
    m.whole = config->whole;
    dra_reader_destroy(r.reader);
    expect_ok(dra_reader_create(reading_device(), &m, &r.reader, &err), &err);
    expect_ok(dra_reader_start(r.reader, 1, &err), &err);
    expect_ok(dra_states_create(reading_device(), m.state, B, &s, &err), &err);
    read_tokens(&r, s, T, mark, x, y);
    dra_states_destroy(s);
    close_reading(&r);
}

static double distance(const dra_real *a, const dra_real *b, int n)
{
    double worst = 0;
    for (int i = 0; i < n * C; i++) worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

/* All of a text: an encoder. The first n tokens: as an encoder of these; none: causal. */
static void a_prefix_is_a_whole_text(void **state)
{
    enum { N = 4 };
    dra_mixer_config whole = plain, causal = plain;
    uint64_t         seed = 1;
    dra_real        *x = random_reals(&seed, B * T * C), y[B * T * C], e[B * T * C];
    int32_t          mark[B * T] = {0}, pad[B * T] = {0};
    whole.prefix = causal.prefix = false;
    whole.whole = true;
    read_fresh(&plain, mark, x, y);
    read_fresh(&causal, mark, x, e);
    check_reals(y, e, sizeof y);
    for (int i = 0; i < B * T; i++) mark[i] = DRA_MARK_PREFIX;
    read_fresh(&plain, mark, x, y);
    read_fresh(&whole, NULL, x, e);
    assert_true(distance(y, e, B * T) < 1e-6);
    for (int i = 0; i < B * T; i++) {
        mark[i] = i % T < N ? DRA_MARK_PREFIX : 0;
        pad[i] = i % T < N ? 0 : DRA_MARK_PAD;
    }
    read_fresh(&plain, mark, x, y);
    read_fresh(&whole, pad, x, e);
    for (int b = 0; b < B; b++) assert_true(distance(y + b * T * C, e + b * T * C, N) < 1e-6);
    free(x);
}

static void what_is_refused(void **state)
{
    enum { P = DRA_MARK_PREFIX };
    static const char stray[] = "reader: row 1, token 2: a prefix is read in one call, from the "
                                "first token of its sequence on";
    dra_mixer_config  causal = plain;
    reading           r = open_reading(&plain), other;
    dra_states       *s = NULL;
    dra_error         err = {0};
    dra_real          x[B * T * C] = {0};
    const int32_t     gap[B * T] = {P, P, P, 0, 0, 0, 0, P, 0, P};
    const int32_t     begun[B * T] = {P, P, P, P, P, P, P, P, P, P, P, P, P, P};
    const int32_t     later[B * 2] = {0, DRA_MARK_RESET | P, 0, P};
    const dra_named   in = {"x", x, sizeof x}, two = {"x", x, B * 2 * C * sizeof *x};
    expect_ok(dra_states_create(reading_device(), r.module->state, B, &s, &err), &err);
    expect_refused(dra_reader_read(r.reader, s, T, gap, 1, &in, &err), &err, DRA_ERR_VALUE, stray);
    expect_ok(dra_reader_read(r.reader, s, T, begun, 1, &in, &err), &err);
    expect_refused(dra_reader_read(r.reader, s, 2, later, 1, &two, &err), &err, DRA_ERR_VALUE,
                   "reader: row 1, token 1: a prefix is read in one call, from the first token of "
                   "its sequence on");
    dra_states_destroy(s);
    close_reading(&r);
    causal.prefix = false;
    other = open_reading(&causal);
    expect_ok(dra_states_create(reading_device(), other.module->state, B, &s, &err), &err);
    expect_refused(dra_reader_read(other.reader, s, T, begun, 1, &in, &err), &err, DRA_ERR_VALUE,
                   "reader: mark of row 0, token 0 is 8, expected 0 to 7");
    dra_states_destroy(s);
    close_reading(&other);
}

static void mixers_without_items_are_refused(void **state)
{
    static const struct {
        dra_mixer_config c;
        const char      *text;
    } rows[] = {
        {{.dim = C, .heads = 2, .prefix = true, .attention.forget = true},
         "mixer: forget needs causal attention, not prefix"},
        {{.dim = C, .heads = 2, .prefix = true, .a = {.memory = "delta"}},
         "mixer: prefix needs memory append with retrieval time, found delta with formula"},
        {{.dim = C, .heads = 2, .prefix = true, .rotary = true, .turn.xpos_base = 16},
         "mixer: turn.xpos_base needs causal attention, not prefix"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_mixer *m;
        dra_error  err = {0};
        expect_refused(dra_mixer_create(&rows[i].c, &m, &err), &err, DRA_ERR_VALUE, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_a_whole_text),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(mixers_without_items_are_refused),
    };
    return cmocka_run_group_tests_name("prefix", tests, NULL, NULL);
}
