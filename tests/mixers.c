#include "mixers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "setting.h"

/* ---- invariants ------------------------------------------------------------------------------ */

void chunks_equal_whole(setting *s)
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

void expect_steps(const setting *s, const trial *t, const outcome *fused)
{
    dra_mixer_config config = s->row->config;
    setting          other = *s;
    outcome          steps;
    other.t = *t;
    config.a.steps = config.b.steps = true;
    open_mixer(&other, &config);
    trial_run(&other.t, 0, NULL, &steps);
    expect_equal(t, fused, &steps, false, "fused and steps");
    outcome_free(&other.t, &steps);
    close_mixer(&other);
}

/* The other form of the same memory. */
void fused_equals_steps(setting *s)
{
    outcome fused;
    trial_run(&s->t, 0, NULL, &fused);
    expect_steps(s, &s->t, &fused);
    outcome_free(&s->t, &fused);
}

void fresh_equals_initial(setting *s)
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

void nothing_comes_from_later(setting *s)
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

/* ---- batches, threads, levels ---------------------------------------------------------------- */

void rows_stand_alone(setting *s)
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
    if (s->row->equal || check_cuda())
        assert_true(relative_difference(n, one.y, all.y + n, 0) <= EQUAL);
    else
        assert_memory_equal(one.y, all.y + n, (size_t)n * sizeof(dra_real));
    expect_ok(dra_states_gather(all.final, 1, &which, &end, &err), &err);
    dra_states_difference d;
    expect_ok(dra_states_compare(one.final, end, &d, &err), &err);
    assert_true(s->row->equal || check_cuda() ? d.worst <= EQUAL : d.same);
    dra_states_destroy(start);
    dra_states_destroy(end);
    outcome_free(&t, &one);
    outcome_free(&s->t, &all);
}

/* Bits, on every device. */
static void expect_same_run(const trial *t, const outcome *a, const outcome *b)
{
    const size_t          bytes = (size_t)(t->B * t->T * t->C) * sizeof(dra_real);
    dra_states_difference d;
    dra_error             err = {0};
    assert_memory_equal(a->y, b->y, bytes);
    assert_memory_equal(a->dx, b->dx, bytes);
    expect_ok(dra_states_compare(a->final, b->final, &d, &err), &err);
    assert_true(d.same);
    for (int i = 0; i < dra_specs_count(t->module->params); i++) {
        const int64_t n = dra_shape_count(&dra_specs_at(t->module->params, i)->shape);
        assert_memory_equal(a->dparam[i], b->dparam[i], (size_t)n * sizeof(dra_real));
    }
}

/* On CUDA: the same run again. */
void threads_change_nothing(setting *s)
{
    static const int count[] = {1, 7};
    outcome          two, other;
    trial            t = s->t;
    trial_run(&s->t, 0, NULL, &two);
    for (size_t i = 0; i < COUNT(count); i++) {
        t.device = check_device(count[i], dra_device_level_at(0));
        trial_run(&t, 0, NULL, &other);
        expect_same_run(&t, &other, &two);
        outcome_free(&t, &other);
    }
    outcome_free(&s->t, &two);
}

void levels_agree(setting *s)
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
    {"resets forget", resets_forget},
    {"skips leave no trace", skips_leave_no_trace},
    {"skips survive chunks", skips_survive_chunks},
    {"prefixes survive chunks", prefixes_survive_chunks},
    {"rows stand alone", rows_stand_alone},
    {"threads change nothing", threads_change_nothing},
    {"levels agree", levels_agree},
    {"readers continue", readers_continue},
    {"pools continue", pools_continue},
    {"files continue", files_continue},
    {"long runs stay flat", long_runs_stay_flat},
#ifdef DRA_REAL_DOUBLE
    {"gradients are derivatives", gradients_are_derivatives},
#endif
};

/* Not every row has every invariant. */
static bool leaves_out(const mixer_row *row, void (*run)(setting *s))
{
    if (run == long_runs_stay_flat) return !row->fixed;
    if (run == fused_equals_steps) return row->model != NULL;
    if (run == fresh_equals_initial) return row->segments;
    if (run == skips_survive_chunks) return row->no_skips;
    if (run == prefixes_survive_chunks) return !row->prefix;
    if (run == skips_leave_no_trace) return row->no_skips || row->model != NULL;
#ifdef DRA_REAL_DOUBLE
    if (run == gradients_are_derivatives) return row->straight || row->segments;
#endif
    return false;
}

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

/* Whether this row is one of those that DRA_TEST_ROWS=K/N asks for. */
static bool asked_for(size_t row)
{
    const char *part = getenv("DRA_TEST_ROWS");
    char       *slash = NULL;
    if (!part) return true;
    const unsigned long k = strtoul(part, &slash, 10);
    const unsigned long n = *slash == '/' ? strtoul(slash + 1, NULL, 10) : 0;
    return n > 0 && row % n == k;
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
        if (!asked_for(i / each) || leaves_out(row, invariants[i % each].run)) continue;
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
