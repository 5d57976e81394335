#include "mixers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef DRA_REAL_DOUBLE
static const double EQUAL = 1e-12;
#else
static const double EQUAL = 1e-5;
#endif

enum { B = 2, T = 20, MOST = 64 };

/* ---- a row with its inputs ------------------------------------------------------------------- */

typedef struct setting {
    const mixer_row *row;
    dra_mixer       *mixer;
    trial            t;
    dra_real        *param[MOST], *x, *u;
    dra_states      *start, *initial;
    uint64_t         seed;
} setting;

static dra_real *numbers(uint64_t *seed, int64_t n, double size)
{
    dra_real *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; x && i < n; i++) x[i] = (dra_real)(size * (2 * check_random(seed) - 1));
    assert_non_null(x);
    return x;
}

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* A sum of weights, by which something is divided: positive. Also behind a blend's prefix. */
static bool is_sum(const char *name)
{
    return ends_with(name, "B") || ends_with(name, "z") || ends_with(name, "S");
}

/* Somewhere in the middle of reading: rows of the batch stand at different places. */
static void random_start(setting *s)
{
    const dra_specs *specs = s->t.module->state;
    dra_error        err = {0};
    for (int64_t b = 0; b < B; b++) {
        const int64_t items = b ? 2 : 5;
        expect_ok(dra_states_place(s->start, b, items, items, &err), &err);
        for (int i = 0; i < dra_specs_count(specs); i++) {
            const size_t n = dra_states_size(s->start, i, b);
            dra_real    *v = numbers(&s->seed, (int64_t)n, 0.8);
            for (size_t k = 0; k < n && is_sum(dra_specs_at(specs, i)->name); k++)
                v[k] = (dra_real)(1 + fabs((double)v[k]));
            expect_ok(dra_states_write(s->start, i, b, v, n, &err), &err);
            free(v);
        }
    }
}

static double upstream(const void *user, int i, int64_t b, int64_t k)
{
    return sin(1.3 * (double)(i + 1) + 0.7 * (double)b + 0.9 * (double)k);
}

static void open_mixer(setting *s, const dra_mixer_config *config)
{
    dra_error err = {0};
    expect_ok(dra_mixer_create(config, &s->mixer, &err), &err);
    s->t.module = dra_mixer_module(s->mixer);
    assert_true(dra_specs_count(s->t.module->params) <= MOST);
}

static void open_setting(setting *s, const mixer_row *row)
{
    dra_error err = {0};
    *s = (setting){.row = row, .seed = 7};
    s->t = (trial){.device = check_device(2, dra_device_level_at(0)),
                   .B = B,
                   .T = T,
                   .C = row->config.dim,
                   .us = upstream};
    open_mixer(s, &row->config);
    for (int i = 0; i < dra_specs_count(s->t.module->params); i++) {
        const dra_spec *p = dra_specs_at(s->t.module->params, i);
        const int64_t   n = dra_shape_count(&p->shape);
        s->param[i] = numbers(&s->seed, n, 0.5);
        for (int64_t k = 0; k < n && ends_with(p->name, "_g"); k++) s->param[i][k] += 1;
    }
    s->x = numbers(&s->seed, B * T * s->t.C, 1);
    s->u = numbers(&s->seed, B * T * s->t.C, 1);
    expect_ok(dra_states_create(s->t.module->state, B, &s->start, &err), &err);
    expect_ok(dra_states_create(s->t.module->state, B, &s->initial, &err), &err);
    random_start(s);
    s->t.x = s->x, s->t.u = s->u, s->t.param = s->param, s->t.start = s->start;
}

static void close_setting(setting *s)
{
    for (int i = 0; i < dra_specs_count(s->t.module->params); i++) free(s->param[i]);
    free(s->x);
    free(s->u);
    dra_states_destroy(s->start);
    dra_states_destroy(s->initial);
    dra_mixer_destroy(s->mixer);
}

static void expect_equal(const trial *t, const outcome *a, const outcome *b, bool same,
                         const char *what)
{
    const outcome_difference d = outcome_compare(t, a, b);
    if (!(d.value <= EQUAL) || !(d.gradient <= EQUAL))
        fail_msg("%s: values differ by %g, gradients by %g, at %s", what, d.value, d.gradient,
                 d.where);
    if (same && !d.same) fail_msg("%s: equal, but not the same bits (%g)", what, d.value);
}

/* ---- invariants ------------------------------------------------------------------------------ */

static void chunks_equal_whole(setting *s)
{
    static const int64_t ones[T] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const int64_t twos[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    static const int64_t long_first[] = {17, 3}, long_last[] = {1, 19}, late[] = {19, 1};
    static const int64_t odd[] = {7, 6, 7};
    const struct {
        const char    *name;
        int            n;
        const int64_t *length;
    } cuts[] = {{"ones", T, ones},          {"twos", 10, twos},    {"17 and 3", 2, long_first},
                {"1 and 19", 2, long_last}, {"19 and 1", 2, late}, {"7, 6, 7", 3, odd}};
    outcome whole, cut;
    trial_run(&s->t, 0, NULL, &whole);
    for (size_t i = 0; i < COUNT(cuts); i++) {
        trial_run(&s->t, cuts[i].n, cuts[i].length, &cut);
        expect_equal(&s->t, &cut, &whole, !s->row->equal, cuts[i].name);
        outcome_free(&s->t, &cut);
    }
    outcome_free(&s->t, &whole);
}

/* The other form of the same memory. */
static void fused_equals_steps(setting *s)
{
    dra_mixer_config config = s->row->config;
    setting          other = *s;
    outcome          fused, steps;
    trial_run(&s->t, 0, NULL, &fused);
    config.a.steps = config.b.steps = true;
    open_mixer(&other, &config);
    trial_run(&other.t, 0, NULL, &steps);
    expect_equal(&s->t, &fused, &steps, false, "fused and steps");
    outcome_free(&other.t, &steps);
    outcome_free(&s->t, &fused);
    dra_mixer_destroy(other.mixer);
}

static void fresh_equals_initial(setting *s)
{
    trial   t = s->t;
    outcome fresh, initial;
    t.start = s->initial;
    t.us = NULL;
    trial_run(&t, 0, NULL, &initial);
    t.fresh = true;
    trial_run(&t, 0, NULL, &fresh);
    expect_equal(&t, &fresh, &initial, true, "fresh and initial");
    outcome_free(&t, &fresh);
    outcome_free(&t, &initial);
}

static void nothing_comes_from_later(setting *s)
{
    outcome   a, b;
    const int from = 11;
    trial_run(&s->t, 0, NULL, &a);
    for (int64_t r = 0; r < B; r++)
        for (int64_t i = from * s->t.C; i < T * s->t.C; i++) s->x[r * T * s->t.C + i] += 3;
    trial_run(&s->t, 0, NULL, &b);
    const size_t bytes = (size_t)(from * s->t.C) * sizeof(dra_real);
    for (int64_t r = 0; r < B; r++)
        assert_memory_equal(a.y + r * T * s->t.C, b.y + r * T * s->t.C, bytes);
    assert_true(memcmp(a.y, b.y, (size_t)(B * T * s->t.C) * sizeof(dra_real)) != 0);
    outcome_free(&s->t, &a);
    outcome_free(&s->t, &b);
}

/* ---- pads and resets ------------------------------------------------------------------------- */

enum { WIDE = T + 7 };

/* Where token t of row b lies among pads. */
static int64_t padded_place(int64_t b, int64_t t)
{
    static const int64_t before[B][4] = {{0, 3, 4, 19}, {1, 1, 8, 12}}; /* pads before these */
    int64_t              at = t;
    for (int i = 0; i < 4; i++) at += before[b][i] <= t;
    return at; /* and three behind the last */
}

static dra_real *spread(const dra_real *x, int64_t C, double fill)
{
    dra_real *wide = malloc((size_t)(B * WIDE * C) * sizeof *wide);
    for (int64_t i = 0; i < B * WIDE * C; i++) wide[i] = (dra_real)fill;
    for (int64_t i = 0; i < B * T; i++)
        memcpy(wide + (i / T * WIDE + padded_place(i / T, i % T)) * C, x + i * C,
               (size_t)C * sizeof *wide);
    return wide;
}

/* A padded row gives what it gives without the pads; pads give 0 and get no gradient. */
static void pads_do_nothing(setting *s)
{
    const int64_t C = s->t.C;
    trial         t = s->t;
    outcome       plain, padded, expected;
    int32_t       mark[B * WIDE];
    const bool    passes = s->row->config.residual != DRA_RESIDUAL_NONE; /* a pad's x passes by */
    dra_real     *x = spread(s->x, C, 0.7), *u = spread(s->u, C, passes ? 0 : 0.3);
    for (int i = 0; i < B * WIDE; i++) mark[i] = DRA_MARK_PAD;
    for (int64_t i = 0; i < B * T; i++) mark[i / T * WIDE + padded_place(i / T, i % T)] = 0;
    trial_run(&s->t, 0, NULL, &plain);
    t.T = WIDE, t.x = x, t.u = u, t.mark = mark;
    trial_run(&t, 0, NULL, &padded);
    expected = plain;
    expected.y = spread(plain.y, C, 0);
    expected.dx = spread(plain.dx, C, 0);
    for (int64_t i = 0; i < B * WIDE * C && passes; i++)
        if (mark[i / C]) expected.y[i] = padded.y[i];
    expect_equal(&t, &padded, &expected, !s->row->equal, "padded and plain");
    static const int64_t cut[] = {1, 9, 17};
    outcome_free(&t, &padded);
    trial_run(&t, 3, cut, &padded);
    expect_equal(&t, &padded, &expected, !s->row->equal, "padded in chunks and plain");
    free(expected.y);
    free(expected.dx);
    free(x);
    free(u);
    outcome_free(&t, &padded);
    outcome_free(&s->t, &plain);
}

/* Tokens first.. of a trial as one of their own. */
static trial part_of(const trial *t, int64_t first, int64_t n, dra_real **x, dra_real **u)
{
    trial        part = *t;
    const size_t row = (size_t)(n * t->C) * sizeof(dra_real);
    *x = malloc((size_t)t->B * row);
    *u = malloc((size_t)t->B * row);
    for (int64_t b = 0; b < t->B; b++) {
        memcpy(*x + b * n * t->C, t->x + (b * t->T + first) * t->C, row);
        memcpy(*u + b * n * t->C, t->u + (b * t->T + first) * t->C, row);
    }
    part.T = n, part.x = *x, part.u = *u;
    return part;
}

static void join(const trial *t, dra_real *to, const dra_real *from, int64_t first, int64_t n)
{
    for (int64_t b = 0; b < t->B; b++)
        memcpy(to + (b * t->T + first) * t->C, from + b * n * t->C,
               (size_t)(n * t->C) * sizeof *to);
}

/* A reset makes the rest of a row a sequence of its own, gradients included. */
static void resets_separate(setting *s)
{
    enum { CUT = 8 };
    int32_t   mark[B * T] = {0};
    trial     t = s->t;
    dra_real *x[2], *u[2];
    outcome   packed, part[2], expected;
    for (int b = 0; b < B; b++) mark[b * T + CUT] = DRA_MARK_RESET;
    t.mark = mark;
    trial_run(&t, 0, NULL, &packed);
    trial first = part_of(&s->t, 0, CUT, &x[0], &u[0]);
    trial second = part_of(&s->t, CUT, T - CUT, &x[1], &u[1]);
    first.us = NULL; /* its state goes nowhere */
    second.start = s->initial;
    trial_run(&first, 0, NULL, &part[0]);
    trial_run(&second, 0, NULL, &part[1]);
    trial_run(&s->t, 0, NULL, &expected); /* for its memory */
    join(&t, expected.y, part[0].y, 0, CUT);
    join(&t, expected.y, part[1].y, CUT, T - CUT);
    join(&t, expected.dx, part[0].dx, 0, CUT);
    join(&t, expected.dx, part[1].dx, CUT, T - CUT);
    for (int i = 0; i < dra_specs_count(t.module->params); i++) {
        const int64_t n = dra_shape_count(&dra_specs_at(t.module->params, i)->shape);
        for (int64_t k = 0; k < n; k++)
            expected.dparam[i][k] = part[0].dparam[i][k] + part[1].dparam[i][k];
    }
    for (int i = 0; i < dra_specs_count(t.module->state); i++)
        memcpy(expected.dstart[i], part[0].dstart[i], live_elements(t.start, i) * sizeof(dra_real));
    dra_states_destroy(expected.final);
    expected.final = part[1].final;
    expect_equal(&t, &packed, &expected, false, "packed and apart");
    expected.final = NULL;
    for (int i = 0; i < 2; i++) free(x[i]), free(u[i]);
    outcome_free(&first, &part[0]);
    outcome_free(&second, &part[1]);
    outcome_free(&t, &packed);
    outcome_free(&t, &expected);
}

/* Resets on pads act too, twice in a row do no harm, and chunks may start with one. */
static void marks_survive_chunks(setting *s)
{
    static const int64_t cut[] = {3, 5, 1, 11};
    int32_t              mark[B * T] = {0};
    trial                t = s->t;
    outcome              whole, chunks;
    mark[3] = DRA_MARK_RESET, mark[8] = DRA_MARK_RESET | DRA_MARK_PAD, mark[9] = DRA_MARK_RESET;
    mark[15] = DRA_MARK_PAD, mark[T] = DRA_MARK_PAD, mark[T + 7] = DRA_MARK_PAD;
    mark[T + 8] = DRA_MARK_RESET, mark[2 * T - 1] = DRA_MARK_PAD | DRA_MARK_RESET;
    t.mark = mark;
    trial_run(&t, 0, NULL, &whole);
    trial_run(&t, 4, cut, &chunks);
    expect_equal(&t, &chunks, &whole, !s->row->equal, "marked chunks and whole");
    assert_int_equal(dra_states_tokens(whole.final, 1), 0);
    outcome_free(&t, &whole);
    outcome_free(&t, &chunks);
}

/* ---- batches, threads, levels ---------------------------------------------------------------- */

static void rows_stand_alone(setting *s)
{
    dra_error   err = {0};
    outcome     all, one;
    trial       t = s->t;
    dra_states *start = NULL, *end = NULL;
    trial_run(&s->t, 0, NULL, &all);
    const int64_t which = 1, n = T * s->t.C;
    expect_ok(dra_states_gather(s->start, 1, &which, &start, &err), &err);
    t.B = 1, t.x += n, t.u += n, t.start = start, t.us = NULL;
    trial_run(&t, 0, NULL, &one);
    if (s->row->equal)
        assert_true(relative_difference(n, one.y, all.y + n, 0) <= EQUAL);
    else
        assert_memory_equal(one.y, all.y + n, (size_t)n * sizeof(dra_real));
    expect_ok(dra_states_gather(all.final, 1, &which, &end, &err), &err);
    dra_states_difference d;
    expect_ok(dra_states_compare(one.final, end, &d, &err), &err);
    assert_true(s->row->equal ? d.worst <= EQUAL : d.same);
    dra_states_destroy(start);
    dra_states_destroy(end);
    outcome_free(&t, &one);
    outcome_free(&s->t, &all);
}

static void expect_same_gradients(const trial *t, const outcome *a, const outcome *b)
{
    assert_memory_equal(a->dx, b->dx, (size_t)(t->B * t->T * t->C) * sizeof(dra_real));
    for (int i = 0; i < dra_specs_count(t->module->params); i++) {
        const int64_t n = dra_shape_count(&dra_specs_at(t->module->params, i)->shape);
        assert_memory_equal(a->dparam[i], b->dparam[i], (size_t)n * sizeof(dra_real));
    }
}

static void threads_change_nothing(setting *s)
{
    static const int count[] = {1, 7};
    outcome          two, other;
    trial            t = s->t;
    trial_run(&s->t, 0, NULL, &two);
    for (size_t i = 0; i < COUNT(count); i++) {
        t.device = check_device(count[i], dra_device_level_at(0));
        trial_run(&t, 0, NULL, &other);
        expect_equal(&t, &other, &two, true, "threads");
        expect_same_gradients(&t, &other, &two);
        outcome_free(&t, &other);
    }
    outcome_free(&s->t, &two);
}

static void levels_agree(setting *s)
{
    outcome best, other;
    trial   t = s->t;
    trial_run(&s->t, 0, NULL, &best);
    for (size_t i = 1; dra_device_level_at(i); i++) {
        t.device = check_device(2, dra_device_level_at(i));
        trial_run(&t, 0, NULL, &other);
        expect_equal(&t, &other, &best, false, dra_device_level_at(i));
        outcome_free(&t, &other);
    }
    outcome_free(&s->t, &best);
}

/* ---- the reader ------------------------------------------------------------------------------ */

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
    if (s->row->equal) return;
    assert_memory_equal(y, whole->y, (size_t)n * sizeof *y);
    assert_true(d.same);
}

static void readers_go_on(setting *s)
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
    assert_true(dra_reader_programs(r) <= 5);
    dra_states_destroy(states);
    dra_reader_destroy(r);
    free(y);
    outcome_free(&s->t, &whole);
}

static void files_go_on(setting *s)
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
    expect_ok(dra_states_load(s->t.module->state, finger, path, &back, &err), &err);
    read_some(s, r, back, 9, T - 9, y);
    expect_same_reading(s, &whole, y, back);
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
static void long_runs_stay_flat(setting *s)
{
    const int64_t steps = 20000;
    dra_error     err = {0};
    dra_reader   *r = make_reader(s);
    dra_states   *states = NULL;
    dra_real     *x = numbers(&s->seed, B * 64 * s->t.C, 1);
    const size_t  bytes = (size_t)(B * s->t.C) * sizeof *x;
    size_t        live = 0, held = 0;
    expect_ok(dra_states_create(s->t.module->state, B, &states, &err), &err);
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

/* ---- derivatives ----------------------------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE
static bool is_maximum(const char *name) { return ends_with(name, "p") || ends_with(name, "max"); }

/* Moves everything with a gradient along a random direction; returns the slope it promises. */
static double move(setting *s, const outcome *out, double by, uint64_t seed)
{
    const int64_t n = B * T * s->t.C;
    double        slope = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = 2 * check_random(&seed) - 1;
        s->x[i] += by * d;
        slope += d * out->dx[i];
    }
    for (int i = 0; i < dra_specs_count(s->t.module->params); i++)
        for (int64_t k = 0; k < dra_shape_count(&dra_specs_at(s->t.module->params, i)->shape);
             k++) {
            const double d = 2 * check_random(&seed) - 1;
            s->param[i][k] += by * d;
            slope += d * out->dparam[i][k];
        }
    for (int i = 0; i < dra_specs_count(s->t.module->state); i++) {
        if (is_maximum(dra_specs_at(s->t.module->state, i)->name)) continue;
        for (int64_t b = 0, at = 0; b < B; b++) {
            const size_t size = dra_states_size(s->start, i, b);
            dra_real    *v = malloc((size + 1) * sizeof *v);
            dra_states_read(s->start, i, b, v, size, NULL);
            for (size_t k = 0; k < size; k++, at++) {
                const double d = 2 * check_random(&seed) - 1;
                v[k] += by * d;
                slope += d * out->dstart[i][at];
            }
            dra_states_write(s->start, i, b, v, size, NULL);
            free(v);
        }
    }
    return slope;
}

/* Upstream on everything but a maximum, and what is measured by it where there is one. */
static double upstream_of_outputs(const void *user, int i, int64_t b, int64_t k)
{
    const setting   *s = user;
    const dra_specs *specs = s->t.module->state;
    const char      *name = dra_specs_at(specs, i)->name;
    bool             relative = false;
    for (int j = 0; j < dra_specs_count(specs); j++)
        relative = relative || is_maximum(dra_specs_at(specs, j)->name);
    if (is_maximum(name) || (relative && (is_sum(name) || ends_with(name, "A")))) return 0;
    return upstream(NULL, i, b, k);
}

/* L with everything moved by `by`, and back. */
static double moved_loss(setting *s, const outcome *out, double by, uint64_t seed)
{
    outcome moved;
    move(s, out, by, seed);
    trial_run(&s->t, 0, NULL, &moved);
    move(s, out, -by, seed);
    const double L = moved.L;
    outcome_free(&s->t, &moved);
    return L;
}

/* Four points, so that curvature does not count: norms of few channels bend sharply. */
static void gradients_are_derivatives(setting *s)
{
    const double h = 1e-5;
    outcome      out;
    s->t.us = upstream_of_outputs;
    s->t.user = s;
    trial_run(&s->t, 0, NULL, &out);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const double slope = move(s, &out, 0, seed);
        const double near = moved_loss(s, &out, h, seed) - moved_loss(s, &out, -h, seed);
        const double far = moved_loss(s, &out, 2 * h, seed) - moved_loss(s, &out, -2 * h, seed);
        const double found = (8 * near - far) / (12 * h);
        if (!(fabs(found - slope) <= 1e-7 * (fabs(slope) + fabs(out.L) + 1)))
            fail_msg("slope is %.10g, gradients say %.10g", found, slope);
    }
    outcome_free(&s->t, &out);
}
#endif

/* ---- all rows through all invariants --------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(setting *s);
} invariants[] = {
    {"chunks equal whole", chunks_equal_whole},
    {"fused equals steps", fused_equals_steps},
    {"fresh equals initial", fresh_equals_initial},
    {"nothing comes from later", nothing_comes_from_later},
    {"pads do nothing", pads_do_nothing},
    {"resets separate", resets_separate},
    {"marks survive chunks", marks_survive_chunks},
    {"rows stand alone", rows_stand_alone},
    {"threads change nothing", threads_change_nothing},
    {"levels agree", levels_agree},
    {"readers go on", readers_go_on},
    {"files go on", files_go_on},
    {"long runs stay flat", long_runs_stay_flat},
#ifdef DRA_REAL_DOUBLE
    {"gradients are derivatives", gradients_are_derivatives},
#endif
};

typedef struct job {
    const mixer_row *row;
    void (*run)(setting *s);
    char name[120];
} job;

static void run_job(void **state)
{
    const job *j = *state;
    setting    s;
    open_setting(&s, j->row);
    j->run(&s);
    close_setting(&s);
}

int mixers_main(const char *name, const mixer_row *rows, size_t n)
{
    const size_t       each = COUNT(invariants);
    job               *jobs = calloc(n * each, sizeof *jobs);
    struct CMUnitTest *tests = calloc(n * each, sizeof *tests);
    size_t             count = 0;
    if (!jobs || !tests) return 1;
    for (size_t i = 0; i < n * each; i++) {
        const mixer_row *row = &rows[i / each];
        if (invariants[i % each].run == long_runs_stay_flat && !row->fixed) continue;
        job *j = &jobs[count];
        *j = (job){.row = row, .run = invariants[i % each].run};
        snprintf(j->name, sizeof j->name, "%s: %s", row->name, invariants[i % each].name);
        tests[count++] = (struct CMUnitTest){j->name, run_job, NULL, NULL, j};
    }
    printf("# %zu rows, %zu invariants; long runs only for the rows with a state of fixed size\n",
           n, each);
    const int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    free(jobs);
    free(tests);
    return failed;
}
