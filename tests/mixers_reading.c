/* Invariants of mixers: through readers and state files, and over many steps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "setting.h"

static dra_reader *make_reader(const setting *s)
{
    dra_error   err = {0};
    dra_reader *r = NULL;
    expect_ok(dra_reader_create(s->t.device, s->t.module, &r, &err), &err);
    for (int i = 0; i < dra_specs_count(s->t.module->params); i++) {
        const dra_spec *p = dra_specs_at(s->t.module->params, i);
        expect_ok(dra_reader_bind(r, p->name, s->param[i],
                                  (size_t)dra_shape_count(&p->shape) * sizeof(dra_real), &err),
                  &err);
    }
    return r;
}

/* Tokens first .. first + n - 1 of the setting through the reader; y as in the setting. */
static void read_some(const setting *s, dra_reader *r, dra_states *states, int64_t first, int64_t n,
                      dra_real *y)
{
    const size_t bytes = (size_t)(B * n * s->t.C) * sizeof(dra_real);
    dra_real    *x = malloc(bytes);
    dra_error    err = {0};
    for (int64_t b = 0; b < B; b++)
        memcpy(x + b * n * s->t.C, s->x + (b * T + first) * s->t.C,
               (size_t)(n * s->t.C) * sizeof *x);
    const dra_named in = {"x", x, bytes};
    expect_ok(dra_reader_read(r, states, n, NULL, 1, &in, &err), &err);
    join(&s->t, y, dra_reader_result(r, "y"), first, n);
    free(x);
}

static void expect_same_reading(const setting *s, const outcome *whole, const dra_real *y,
                                const dra_states *end)
{
    dra_error             err = {0};
    dra_states_difference d;
    const int64_t         n = B * T * s->t.C;
    expect_ok(dra_states_compare(end, whole->final, &d, &err), &err);
    assert_true(relative_difference(n, y, whole->y, 0) <= EQUAL && d.worst <= EQUAL);
    if (s->row->equal || check_cuda()) return;
    assert_memory_equal(y, whole->y, (size_t)n * sizeof *y);
    assert_true(d.same);
}

void readers_continue(setting *s)
{
    dra_error   err = {0};
    dra_reader *r = make_reader(s);
    dra_states *states = NULL;
    outcome     whole;
    dra_real   *y = numbers(&s->seed, B * T * s->t.C, 1);
    trial_run(&s->t, 0, NULL, &whole);
    expect_ok(dra_states_fork(s->start, &states, &err), &err);
    read_some(s, r, states, 0, 6, y);
    for (int64_t t = 6; t < T; t++) read_some(s, r, states, t, 1, y);
    expect_same_reading(s, &whole, y, states);
    /* Segments: three lengths at most of the first six tokens, and tokens with each
     * dra_segment_event. */
    assert_true(dra_reader_programs(r) <= (s->row->segments ? 8 : 5));
    dra_states_destroy(states);
    dra_reader_destroy(r);
    free(y);
    outcome_free(&s->t, &whole);
}

enum { POOL = 5, READ = 3 }; /* rows; of which are read, one of them nobody */

/* The same tokens for rows of a pool; what nobody reads is noise. */
static void read_pool(const setting *s, dra_reader *r, dra_states *pool, const int64_t *rows,
                      int64_t first, int64_t n, dra_real *y)
{
    const size_t row = (size_t)(n * s->t.C), bytes = READ * row * sizeof(dra_real);
    dra_real    *x = malloc(bytes);
    dra_error    err = {0};
    for (int b = 0; b < READ; b++)
        memcpy(x + (size_t)b * row, s->x + (b / 2 * T + first) * s->t.C, row * sizeof *x);
    const dra_named in = {"x", x, bytes};
    expect_ok(dra_reader_read_rows(r, pool, READ, rows, n, NULL, 1, &in, &err), &err);
    const dra_real *out = dra_reader_result(r, "y");
    assert_non_null(out);
    memcpy(x, out, bytes);
    memmove(x + row, x + 2 * row, row * sizeof *x);
    join(&s->t, y, x, first, n);
    free(x);
}

/* Rows of a pool in other company, one of them moved by a fork, as states of their own. */
void pools_continue(setting *s)
{
    static const int64_t  cut[] = {6, 1, 1, 3, 1, 8};
    int64_t               rows[READ] = {3, -1, 0}, first = 0;
    dra_error             err = {0};
    dra_reader           *r = make_reader(s), *alone = make_reader(s);
    dra_states           *pool = NULL, *states = NULL, *end = NULL;
    dra_states_difference d;
    const size_t          n = (size_t)(B * T * s->t.C);
    dra_real *y = numbers(&s->seed, B * T * s->t.C, 1), *own = numbers(&s->seed, B * T * s->t.C, 1);
    expect_ok(dra_states_create_pool(s->t.device, s->t.module->state, POOL, &pool, &err), &err);
    expect_ok(dra_states_fork(s->start, &states, &err), &err);
    expect_ok(dra_states_fork(s->start, &end, &err), &err);
    for (int b = 0; b < B; b++)
        expect_ok(dra_states_copy(pool, rows[2 * b], s->start, b, &err), &err);
    for (size_t i = 0; i < COUNT(cut); first += cut[i++]) {
        read_some(s, alone, states, first, cut[i], own);
        read_pool(s, r, pool, rows, first, cut[i], y);
        if (i != 2) continue;
        expect_ok(dra_states_copy(pool, 4, pool, 3, &err), &err);
        rows[0] = 4;
    }
    for (int b = 0; b < B; b++) expect_ok(dra_states_copy(end, b, pool, rows[2 * b], &err), &err);
    expect_ok(dra_states_compare(end, states, &d, &err), &err);
    assert_true(check_cuda() ? d.worst <= s->t.equal : d.same);
    check_reals(y, own, n * sizeof *y);
    dra_states_destroy(pool);
    dra_states_destroy(states);
    dra_states_destroy(end);
    dra_reader_destroy(r);
    dra_reader_destroy(alone);
    free(y);
    free(own);
}

/* What is resumed from a file has the bits of what went on, on every device, if both are read in
 * the same parts; `back` has read all. */
static void expect_resumed(const setting *s, dra_reader *r, const dra_real *y,
                           const dra_states *back)
{
    const int64_t         n = B * T * s->t.C;
    dra_error             err = {0};
    dra_states_difference d;
    dra_states           *on = NULL;
    dra_real             *again = calloc((size_t)n, sizeof *again);
    assert_non_null(again);
    expect_ok(dra_states_fork(s->start, &on, &err), &err);
    read_some(s, r, on, 0, 9, again);
    read_some(s, r, on, 9, T - 9, again);
    assert_memory_equal(again, y, (size_t)n * sizeof *y);
    expect_ok(dra_states_compare(on, back, &d, &err), &err);
    assert_true(d.same);
    dra_states_destroy(on);
    free(again);
}

void files_continue(setting *s)
{
    dra_error      err = {0};
    dra_reader    *r = make_reader(s);
    dra_states    *states = NULL, *back = NULL;
    const uint64_t finger = dra_specs_fingerprint(s->t.module->params);
    outcome        whole;
    char           path[64];
    dra_real      *y = numbers(&s->seed, B * T * s->t.C, 1);
    snprintf(path, sizeof path, "/tmp/dra-state-%ld", (long)getpid());
    trial_run(&s->t, 0, NULL, &whole);
    expect_ok(dra_states_fork(s->start, &states, &err), &err);
    read_some(s, r, states, 0, 9, y);
    expect_ok(dra_states_save(states, finger, path, &err), &err);
    expect_ok(dra_states_load(s->t.device, s->t.module->state, finger, path, &back, &err), &err);
    read_some(s, r, back, 9, T - 9, y);
    expect_same_reading(s, &whole, y, back);
    expect_resumed(s, r, y, back);
    dra_states_destroy(states);
    dra_states_destroy(back);
    dra_reader_destroy(r);
    unlink(path);
    free(y);
    outcome_free(&s->t, &whole);
}

static double largest_live(const setting *s, const dra_states *states)
{
    double largest = 0;
    for (int i = 0; i < dra_specs_count(s->t.module->state); i++)
        for (int64_t b = 0; b < B; b++) {
            const size_t n = dra_states_size(states, i, b);
            dra_real    *v = malloc((n + 1) * sizeof *v);
            dra_states_read(states, i, b, v, n, NULL);
            for (size_t k = 0; k < n; k++) largest = fmax(largest, fabs((double)v[k]));
            free(v);
        }
    return largest;
}

/* Many steps; memory/test_soak takes more of them, for fewer rows. */
void long_runs_stay_flat(setting *s)
{
    const int64_t steps = 20000;
    dra_error     err = {0};
    dra_reader   *r = make_reader(s);
    dra_states   *states = NULL;
    dra_real     *x = numbers(&s->seed, B * 64 * s->t.C, 1);
    const size_t  bytes = (size_t)(B * s->t.C) * sizeof *x;
    size_t        live = 0, held = 0;
    expect_ok(dra_states_create(s->t.device, s->t.module->state, B, &states, &err), &err);
    for (int64_t t = 0; t < steps; t++) {
        const dra_named in = {"x", x + t % 64 * B * s->t.C, bytes};
        expect_ok(dra_reader_read(r, states, 1, NULL, 1, &in, &err), &err);
        if (t == steps / 2) live = dra_states_bytes(states), held = dra_states_held(states);
        if (s->row->bound > 0 && t % 1000 == 999)
            assert_true(largest_live(s, states) <= s->row->bound);
    }
    const dra_real *y = dra_reader_result(r, "y");
    for (int64_t i = 0; i < B * s->t.C; i++) assert_true(isfinite((double)y[i]));
    assert_int_equal(dra_states_bytes(states), live);
    assert_int_equal(dra_states_held(states), held);
    assert_true(dra_reader_programs(r) <= 4);
    dra_states_destroy(states);
    dra_reader_destroy(r);
    free(x);
}
