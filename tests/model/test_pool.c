/* Pools: rows that come, go, fork and are read in any company have the numbers they have alone, in
 * outputs and states; programs depend on how many rows are read, not on which; pages are shared,
 * copied when written, and all free in the end. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/model.h"
#include "presets.h"
#include "sequence/states.h"

enum { ROWS = 6, MOST = 12, STEPS = 60, V = 256, LONGEST = 64 };

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

typedef struct subject {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    dra_view     view;
    dra_reader  *reader, *alone;
    dra_states  *pool, *twin[MOST]; /* twin: the same sequence, read by itself */
    int64_t      rows;
    uint32_t     random;
    double       near; /* what numbers may differ by on a GPU */
} subject;

static uint32_t draw(subject *s, uint32_t below)
{
    s->random = s->random * 1664525u + 1013904223u;
    return (s->random >> 8) % below;
}

static void open_reader(subject *s, dra_reader **out)
{
    dra_error        err = {0};
    const dra_module module = dra_view_module(&s->view);
    expect_ok(dra_reader_create(s->device, &module, out, &err), &err);
    expect_ok(dra_weights_bind(s->weights, *out, &err), &err);
}

static void open_subject(subject *s, const dra_model_config *config)
{
    dra_error err = {0};
    *s = (subject){.rows = ROWS, .random = 7};
    expect_ok(dra_model_create(config, &s->model, &err), &err);
    expect_ok(dra_weights_draw(s->model, 3, &s->weights, &err), &err);
    expect_ok(check_cpu(NULL, &s->device, &err), &err);
    s->view = (dra_view){.model = s->model, .logits = true};
    open_reader(s, &s->reader);
    open_reader(s, &s->alone);
    const dra_specs *specs = dra_view_module(&s->view).state;
    expect_ok(dra_states_create_pool(s->device, specs, ROWS, &s->pool, &err), &err);
    for (int i = 0; i < MOST; i++)
        expect_ok(dra_states_create(s->device, specs, 1, &s->twin[i], &err), &err);
}

static void expect_all_free(const dra_states *pool)
{
    for (int k = 0; k < pool->n_pages; k++)
        assert_int_equal(pool->pages[k].n_free, pool->pages[k].count);
}

static void close_subject(subject *s)
{
    dra_error err = {0};
    expect_ok(dra_states_reset(s->pool, -1, &err), &err);
    expect_all_free(s->pool);
    for (int i = 0; i < MOST; i++) dra_states_destroy(s->twin[i]);
    dra_states_destroy(s->pool);
    dra_reader_destroy(s->reader);
    dra_reader_destroy(s->alone);
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
    dra_device_destroy(s->device);
}

/* Some rows in some order, of n; those that are nobody's are -1. */
static void choose(subject *s, int64_t n, int64_t *rows)
{
    for (int64_t b = 0; b < n; b++) {
        bool again = true;
        while (again) {
            rows[b] = (int64_t)draw(s, (uint32_t)s->rows + 1) - 1;
            again = false;
            for (int64_t a = 0; a < b; a++) again = again || (rows[a] == rows[b] && rows[b] >= 0);
        }
    }
}

/* n rows read T tokens each, together and alone, perhaps pads at the end of some. */
static void expect_near(const subject *s, int64_t n, const dra_real *x, const dra_real *y)
{
    if (!check_cuda() || s->near < 1e-3) {
        check_reals(x, y, (size_t)n * sizeof *x);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - (double)y[i]) <= s->near))
            fail_msg("number %lld: %.9g, %.9g", (long long)i, (double)x[i], (double)y[i]);
}

static void read_step(subject *s, int64_t n, int64_t T, bool ragged)
{
    int64_t   rows[4];
    int32_t   ids[4 * LONGEST], mark[4 * LONGEST] = {0};
    dra_error err = {0};
    choose(s, n, rows);
    for (int64_t b = 0; b < n; b++) {
        const int64_t given = ragged ? 1 + (int64_t)draw(s, (uint32_t)T) : T;
        for (int64_t t = 0; t < T; t++) {
            ids[b * T + t] = (int32_t)draw(s, V);
            mark[b * T + t] = t < given ? 0 : DRA_MARK_PAD;
        }
    }
    const dra_named in = {"ids", ids, (size_t)(n * T) * sizeof *ids};
    expect_ok(
        dra_reader_read_rows(s->reader, s->pool, n, rows, T, ragged ? mark : NULL, 1, &in, &err),
        &err);
    const dra_real *together = dra_reader_result(s->reader, "logits");
    assert_non_null(together);
    for (int64_t b = 0; b < n; b++) {
        if (rows[b] < 0) continue;
        const dra_named own = {"ids", ids + b * T, (size_t)T * sizeof *ids};
        expect_ok(dra_reader_read(s->alone, s->twin[rows[b]], T, ragged ? mark + b * T : NULL, 1,
                                  &own, &err),
                  &err);
        expect_near(s, T * V, together + b * T * V, dra_reader_result(s->alone, "logits"));
    }
}

/* Row `to` becomes a fork of row `from`, or starts over. */
static void change_row(subject *s)
{
    const int64_t to = draw(s, (uint32_t)s->rows), from = draw(s, (uint32_t)s->rows);
    dra_error     err = {0};
    if (to == from) {
        expect_ok(dra_states_reset(s->pool, to, &err), &err);
        expect_ok(dra_states_reset(s->twin[to], 0, &err), &err);
        return;
    }
    expect_ok(dra_states_copy(s->pool, to, s->pool, from, &err), &err);
    expect_ok(dra_states_copy(s->twin[to], 0, s->twin[from], 0, &err), &err);
}

/* Rows of the pool, as states of their own. */
static void expect_same_rows(subject *s)
{
    dra_error             err = {0};
    dra_states           *one = NULL;
    dra_states_difference d;
    expect_ok(dra_states_create(s->device, dra_view_module(&s->view).state, 1, &one, &err), &err);
    for (int64_t b = 0; b < s->rows; b++) {
        assert_int_equal(dra_states_tokens(s->pool, b), dra_states_tokens(s->twin[b], 0));
        assert_int_equal(dra_states_row_bytes(s->pool, b), dra_states_bytes(s->twin[b]));
        expect_ok(dra_states_copy(one, 0, s->pool, b, &err), &err);
        expect_ok(dra_states_compare(one, s->twin[b], &d, &err), &err);
        if (!(check_cuda() ? d.worst <= s->near : d.same))
            fail_msg("row %d: %s differs by %g", (int)b, d.name, d.worst);
        expect_ok(dra_states_copy(s->pool, b, one, 0, &err), &err); /* and back */
    }
    dra_states_destroy(one);
}

static void read_in_company(const dra_model_config *config)
{
    static const int64_t lengths[] = {1, 1, 1, 1, 5, 64, 1, 1, 30, 1};
    subject              s;
    dra_error            err = {0};
    open_subject(&s, config);
    s.near = config->bf16_cache ? 1e-2 : 5e-5; /* rounded to the neighbour, at worst */
    for (int step = 0; step < STEPS; step++) {
        const int64_t T = lengths[draw(&s, COUNT(lengths))];
        read_step(&s, 1 + draw(&s, 4), T, T > 1 && draw(&s, 2));
        if (draw(&s, 4) == 0) change_row(&s);
        if (step % 20 == 19) expect_same_rows(&s);
        if (step == STEPS / 2) {
            s.rows = MOST;
            expect_ok(dra_states_grow(s.pool, MOST, &err), &err);
        }
    }
    expect_same_rows(&s);
    close_subject(&s);
}

static dra_model_config *config_of(const char *preset)
{
    dra_model_config *c;
    dra_error         err = {0};
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    c->dim = 24;
    c->heads = 2;
    c->depth = 2;
    c->context = 4096;
    return c;
}

static void presets_in_company(void **state)
{
    static const char *const names[] = {"adr-tiny",        "dra-delta-tiny",    "dra-ema-tiny",
                                        "dra-gru-tiny",    "dra-moment-tiny",   "dra-pooled-tiny",
                                        "dra-slots-tiny",  "dra-slot-gru-tiny", "gpt2-tiny",
                                        "hybrid-tiny",     "retention-tiny",    "rwkv4-tiny",
                                        "xt-decoder-tiny", "xt-modern-tiny"};
    for (size_t i = 0; i < COUNT(names); i++) {
        dra_model_config *c = config_of(names[i]);
        print_message("# %s\n", names[i]);
        read_in_company(c);
        dra_model_config_destroy(c);
    }
}

/* The same where caches are in bf16, of keys and values, windows of them, and next to slots. */
static void narrow_caches_in_company(void **state)
{
    static const char *const names[] = {"gpt2-tiny", "hybrid-tiny", "xt-decoder-tiny",
                                        "xt-modern-tiny"};
    for (size_t i = 0; i < 2 * COUNT(names); i++) {
        dra_model_config *c = config_of(names[i / 2]);
        c->bf16_cache = true;
        if (i % 2) {
            check_mixers(c)->a.retrieval = "window";
            check_mixers(c)->a.window = 70;
        }
        print_message("# %s%s\n", names[i / 2], i % 2 ? ", windows" : "");
        read_in_company(c);
        dra_model_config_destroy(c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(presets_in_company),
    cmocka_unit_test(narrow_caches_in_company),
};

int main(void) { return cmocka_run_group_tests_name("pool", tests, NULL, NULL); }
