/* Invariants of mixers: pads, resets and skipped tokens anywhere. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "setting.h"

enum { WIDE = T + 7 };

/* Where token t of row b is among pads. */
static int64_t padded_place(int64_t b, int64_t t)
{
    static const int64_t before[B][4] = {{0, 3, 4, 19}, {1, 1, 8, 12}}; /* pads before these */
    int64_t              at = t;
    for (int i = 0; i < 4; i++) at += before[b][i] <= t;
    return at; /* and three after the last */
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
void pads_do_nothing(setting *s)
{
    const int64_t C = s->t.C;
    trial         t = s->t;
    outcome       plain, padded, expected;
    int32_t       mark[B * WIDE];
    const bool    passes = s->row->around || s->row->model; /* a pad's x passes by */
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

/* A reset makes the rest of a row a sequence of its own, gradients included. */
void resets_separate(setting *s)
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
void marks_survive_chunks(setting *s)
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

/* After a reset nothing of what was there before has an effect, not even NaN. */
void resets_forget(setting *s)
{
    int32_t     mark[B * T] = {0};
    trial       t = s->t;
    outcome     clean, after;
    dra_states *poisoned = NULL;
    dra_error   err = {0};
    expect_ok(dra_states_fork(s->start, &poisoned, &err), &err);
    for (int i = 0; i < dra_specs_count(t.module->state); i++)
        for (int64_t b = 0; b < B; b++) {
            const size_t n = dra_states_size(poisoned, i, b);
            dra_real    *v = numbers(&s->seed, (int64_t)n, 1);
            for (size_t k = 0; k < n; k++) v[k] = (dra_real)NAN;
            expect_ok(dra_states_write(poisoned, i, b, v, n, &err), &err);
            free(v);
        }
    for (int b = 0; b < B; b++) mark[b * T] = DRA_MARK_RESET;
    t.mark = mark;
    trial_run(&t, 0, NULL, &clean);
    t.start = poisoned;
    trial_run(&t, 0, NULL, &after);
    for (int i = 0; i < dra_specs_count(t.module->state); i++) { /* nobody asks for it */
        free(clean.dstart[i]);
        clean.dstart[i] = NULL;
    }
    expect_equal(&t, &after, &clean, true, "after NaN and clean");
    outcome_free(&t, &clean);
    outcome_free(&t, &after);
    dra_states_destroy(poisoned);
}

/* ---- skipped tokens: they read the state, but do not write it -------------------------------- */

/* Alone it leaves every bit of the state. */
static void expect_kept(const setting *s)
{
    const int32_t         mark[B] = {DRA_MARK_SKIP, DRA_MARK_SKIP};
    trial                 t = s->t;
    outcome               out;
    dra_states_difference d;
    dra_error             err = {0};
    t.T = 1, t.mark = mark; /* the first numbers of x and u will do */
    trial_run(&t, 0, NULL, &out);
    for (int64_t b = 0; b < B; b++) out.final->tokens[b]--;
    expect_ok(dra_states_compare(out.final, s->start, &d, &err), &err);
    if (!(check_cuda() ? d.worst <= EQUAL : d.same))
        fail_msg("a skipped token changes %s by %g", d.name, d.worst);
    outcome_free(&t, &out);
}

/* The others, and the state after them, are what they are without it; pos, shift and
 * convolution see it. */
void skips_leave_no_trace(setting *s)
{
    const dra_mixer_config *c = &s->row->config;
    const int64_t           C = s->t.C;
    trial                   t = s->t;
    outcome                 plain, skipped;
    int32_t                 mark[B * WIDE];
    dra_states_difference   d;
    dra_error               err = {0};
    if (c->shift != DRA_SHIFT_NONE || c->rotary || c->conv.width) return;
    expect_kept(s);
    dra_real *x = spread(s->x, C, 0.7), *u = spread(s->u, C, 0.3);
    for (int i = 0; i < B * WIDE; i++) mark[i] = DRA_MARK_SKIP;
    for (int64_t i = 0; i < B * T; i++) mark[i / T * WIDE + padded_place(i / T, i % T)] = 0;
    trial_run(&s->t, 0, NULL, &plain);
    t.T = WIDE, t.x = x, t.u = u, t.mark = mark;
    trial_run(&t, 0, NULL, &skipped);
    for (int64_t i = 0; i < B * T; i++)
        assert_true(relative_difference(C,
                                        skipped.y + (i / T * WIDE + padded_place(i / T, i % T)) * C,
                                        plain.y + i * C, 1) <= EQUAL);
    for (int64_t b = 0; b < B; b++) {
        assert_int_equal(dra_states_tokens(skipped.final, b),
                         dra_states_tokens(plain.final, b) + WIDE - T);
        skipped.final->tokens[b] = plain.final->tokens[b];
    }
    expect_ok(dra_states_compare(skipped.final, plain.final, &d, &err), &err);
    assert_true(d.worst <= EQUAL); /* wkv changes from its fused form to its steps */
    free(x);
    free(u);
    outcome_free(&t, &skipped);
    outcome_free(&s->t, &plain);
}

/* Among pads and resets, whole and in chunks, fused and by steps. */
void skips_survive_chunks(setting *s)
{
    static const int64_t cut[] = {3, 5, 1, 11};
    int32_t              mark[B * T] = {0};
    trial                t = s->t;
    outcome              whole, chunks;
    mark[0] = mark[4] = mark[5] = mark[12] = DRA_MARK_SKIP;
    mark[8] = DRA_MARK_SKIP | DRA_MARK_RESET, mark[9] = DRA_MARK_SKIP | DRA_MARK_PAD;
    mark[T + 3] = DRA_MARK_PAD, mark[T + 4] = mark[T + 8] = DRA_MARK_SKIP;
    mark[T + 10] = DRA_MARK_RESET, mark[T + 11] = mark[2 * T - 1] = DRA_MARK_SKIP;
    t.mark = mark;
    trial_run(&t, 0, NULL, &whole);
    expect_steps(s, &t, &whole);
    trial_run(&t, 4, cut, &chunks);
    expect_equal(&t, &chunks, &whole, !s->row->equal, "chunks with skips and whole");
    outcome_free(&t, &whole);
    outcome_free(&t, &chunks);
}

/* ---- prefixes: they see all of themselves, in one call --------------------------------------- */

const int32_t *prefix_marks(void)
{
    enum { P = DRA_MARK_PREFIX, R = DRA_MARK_RESET, N = DRA_MARK_PAD };
    static const int32_t mark[B * T] = {R | P, P,     P, P, P, 0, 0, 0,     0,     R | P, P,
                                        P,     P,     0, 0, 0, 0, 0, R | P, P, /* two, and an end */
                                        0,     R | N, P, P, N, P, 0, 0,     R | P, P,     N,
                                        0,     0,     0, 0, 0, R, 0, 0,     0};
    return mark;
}

/* Calls that cut no prefix, to single tokens; and tokens of a prefix know of later ones. */
void prefixes_survive_chunks(setting *s)
{
    static const int64_t cut[] = {7, 6, 1, 1, 1, 1, 1, 2};
    trial                t = s->t;
    outcome              whole, chunks, other;
    t.mark = prefix_marks();
    trial_run(&t, 0, NULL, &whole);
    trial_run(&t, COUNT(cut), cut, &chunks);
    expect_equal(&t, &chunks, &whole, !s->row->equal, "chunks with prefixes and whole");
    const int64_t C = t.C;
    for (int64_t c = 0; c < C; c++) s->x[4 * C + c] += 1;
    trial_run(&t, 0, NULL, &other);
    assert_true(relative_difference(C, other.y, whole.y, 0) > 1e-3);
    assert_memory_equal(other.y + 9 * C, whole.y + 9 * C,
                        (size_t)(B * T - 9) * (size_t)C * sizeof(dra_real));
    outcome_free(&t, &whole);
    outcome_free(&t, &chunks);
    outcome_free(&t, &other);
}
