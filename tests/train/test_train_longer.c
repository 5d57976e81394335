/* Runs that end elsewhere than they were planned to: made longer, with their schedule stretched or
 * kept, or stopped early because evaluations get no better. */
#include <math.h>
#include <string.h>

#include "generate/fixture.h"

static const char *const story = "a small text of several documents,\nwith lines of its own\n--\n"
                                 "another one that is a little longer than the first of them\n--\n";

static const dra_train_config usual = {.steps = 8, .batch = 4, .lr = 0.01, .log_every = 1};

/* ---- longer ---------------------------------------------------------------------------------- */

static dra_trainer_plan plan_of(const fixture *f, const char *folder, const dra_train_config *c)
{
    dra_trainer       *t = NULL;
    dra_trainer_plan   plan;
    dra_error          err = {0};
    dra_trainer_config own = trainer_config(f, folder, c);
    own.resume = true;
    expect_ok(dra_trainer_create(&own, &t, &err), &err);
    expect_ok(dra_trainer_look(t, &plan, &err), &err);
    dra_trainer_destroy(t);
    return plan;
}

/* Done after 8 steps and made longer with its schedule kept, it is a run that was planned so. */
static void keeps_its_schedule(void **state)
{
    fixture          f;
    dra_train_config c = usual;
    const char      *whole = in_scratch("kept.whole"), *parts = in_scratch("kept.parts");
    open_fixture(&f, "hybrid-tiny", (const char *[]){"mixer.b.slots=4", NULL},
                 put_text("text", story, 9));
    run_until(&f, parts, &c, 0);
    dra_train_config       longer = {.steps = 14, .schedule_end = 8};
    const dra_trainer_plan plan = plan_of(&f, parts, &longer);
    assert_true(plan.first == 8 && plan.steps_before == 8 && plan.schedule_before == 0);
    assert_int_equal(run_until(&f, parts, &longer, 0).last.step, 14);
    c.steps = 14, c.schedule_end = 8;
    c.warmup = 1, c.blend_steps = 4; /* what follows from steps stays as it was */
    run_until(&f, whole, &c, 0);
    expect_same_step(whole, parts, 14, false);
    close_fixture(&f);
}

/* Stretched: the rate of every new step is that of the longer schedule. */
static double rates[32];
static bool   keep_rates(void *user, const dra_event *e)
{
    if (e->kind == DRA_EVENT_STEP) rates[e->step] = e->rate;
    return true;
}

static void stretches_its_schedule(void **state)
{
    fixture                f;
    dra_trainer           *t = NULL;
    dra_error              err = {0};
    const dra_train_config longer = {.steps = 16};
    const char            *folder = in_scratch("stretched");
    open_fixture(&f, "gpt2-tiny", NULL, put_text("text", story, 9));
    run_until(&f, folder, &usual, 6); /* not done yet */
    const dra_trainer_plan plan = plan_of(&f, folder, &longer);
    assert_true(plan.first == 6 && plan.steps_before == 8 && plan.schedule_before == 8);
    /* That was a run that was killed before its first step: it is longer all the same. */
    dra_trainer_config own = trainer_config(&f, folder, &(dra_train_config){0});
    own.resume = true;
    expect_ok(dra_trainer_create(&own, &t, &err), &err);
    expect_ok(dra_trainer_run(t, keep_rates, NULL, &err), &err);
    dra_trainer_destroy(t);
    dra_train_config whole = usual;
    whole.steps = 16, whole.warmup = 1;
    expect_ok(dra_train_config_complete(&whole, f.model, &err), &err);
    for (int64_t step = 7; step <= 16; step++)
        assert_true(rates[step] == dra_train_rate(&whole, step));
    const dra_trainer_plan done = plan_of(&f, folder, &(dra_train_config){0});
    assert_true(done.first == 16 && done.steps_before == 0 && done.schedule_before == 0);
    close_fixture(&f);
}

static void refuses_less_steps_and_others(void **state)
{
    static const struct {
        dra_train_config c;
        const char      *text;
    } cases[] = {{{.steps = 7}, "resume: steps was 8 and is 7 now: another run"},
                 {{.steps = 9, .lr = 0.5}, "resume: lr was 0.01 and is 0.5 now: another run"},
                 {{.steps = 9, .optimizer = DRA_OPTIMIZER_LION},
                  "resume: optimizer was not set and is \"lion\" now: another run"}};
    fixture     f;
    const char *folder = in_scratch("others");
    open_fixture(&f, "gpt2-tiny", NULL, put_text("text", story, 9));
    run_until(&f, folder, &usual, 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_trainer       *t = NULL;
        dra_error          err = {0};
        dra_trainer_config own = trainer_config(&f, folder, &cases[i].c);
        own.resume = true;
        assert_int_equal(dra_trainer_create(&own, &t, &err), DRA_ERR_VALUE);
        if (!strstr(err.text, cases[i].text)) fail_msg("%s", err.text);
    }
    close_fixture(&f);
}

/* Forced: another optimizer starts with states of its own. */
static void another_optimizer_can_be_forced(void **state)
{
    fixture                f;
    dra_trainer           *t = NULL;
    dra_error              err = {0};
    const dra_train_config other = {.steps = 12, .optimizer = DRA_OPTIMIZER_MUON};
    const char            *folder = in_scratch("forced");
    open_fixture(&f, "gpt2-tiny", NULL, put_text("text", story, 9));
    run_until(&f, folder, &usual, 0);
    dra_trainer_config own = trainer_config(&f, folder, &other);
    own.resume = own.force = true;
    expect_ok(dra_trainer_create(&own, &t, &err), &err);
    expect_ok(dra_trainer_run(t, NULL, NULL, &err), &err);
    dra_trainer_destroy(t);
    const dra_trainer_plan plan = plan_of(&f, folder, &(dra_train_config){0});
    assert_true(plan.first == 12 && plan.train.optimizer == DRA_OPTIMIZER_MUON);
    assert_true(plan.train.momentum == 0.95 && plan.train.muon_rate == 20);
    close_fixture(&f);
}

/* The plan counts what each optimizer keeps. */
static void plans_its_states(void **state)
{
    fixture          f;
    dra_train_config c = usual;
    open_fixture(&f, "gpt2-tiny", NULL, put_text("text", story, 9));
    const dra_trainer_plan adamw = plan_of(&f, in_scratch("plan.adamw"), &c);
    assert_int_equal(adamw.moments, 2 * adamw.gradients);
    c.optimizer = DRA_OPTIMIZER_LION;
    assert_int_equal(plan_of(&f, in_scratch("plan.lion"), &c).moments, adamw.gradients);
    c.optimizer = DRA_OPTIMIZER_SGD, c.momentum = -1;
    assert_int_equal(plan_of(&f, in_scratch("plan.sgd"), &c).moments, 0);
    c.optimizer = DRA_OPTIMIZER_MUON, c.momentum = 0;
    const size_t muon = plan_of(&f, in_scratch("plan.muon"), &c).moments;
    assert_true(muon > adamw.gradients && muon < adamw.moments);
    close_fixture(&f);
}

/* ---- stopped early --------------------------------------------------------------------------- */

/* With this rate nothing gets better after a few steps. */
static const dra_train_config wild = {.steps = 200,
                                      .batch = 4,
                                      .lr = 2,
                                      .warmup = 1,
                                      .log_every = 1,
                                      .split = 0.2,
                                      .eval_every = 2,
                                      .save_every = 3,
                                      .early_stop = 3};

static void stops_early(void **state)
{
    fixture     f;
    char       *log = NULL;
    const char *whole = in_scratch("early.whole"), *parts = in_scratch("early.parts");
    open_fixture(&f, "gpt2-tiny", NULL, put_text("text", story, 9));
    const watcher w = run_until(&f, whole, &wild, 0);
    assert_true(w.last.stopped_early && w.last.step < 200 && w.last.step % 2 == 0);
    assert_true(w.last.best_loss < w.last.eval_loss);
    const size_t bytes = read_file(whole, "log.jsonl", &log);
    log[bytes] = '\0';
    assert_non_null(strstr(log, "\"stopped_early\":\"3 evaluations without a better one\""));
    free(log);
    /* Stopped between evaluations again and again, it ends at the same step with the same bits. */
    for (int64_t stop = 3; stop < w.last.step; stop += 2) run_until(&f, parts, &wild, stop);
    const watcher v = run_until(&f, parts, &wild, 0);
    assert_true(v.last.stopped_early && v.last.step == w.last.step);
    expect_same_step(whole, parts, w.last.step, false);
    expect_same(whole, parts, "best/model.safetensors");
    /* It has ended, also for who resumes it, and for who makes it longer. */
    const watcher again = run_until(&f, parts, &(dra_train_config){.steps = 300}, 0);
    assert_int_equal(again.events[DRA_EVENT_STEP], 0);
    const dra_trainer_plan plan = plan_of(&f, parts, &(dra_train_config){0});
    assert_true(plan.stopped_early && plan.first == w.last.step);
    /* Unless it shall not stop, or later. */
    const watcher more = run_until(&f, parts, &(dra_train_config){.early_stop = -1},
                                   w.last.step + 5);
    assert_int_equal(more.last.step, w.last.step + 5);
    close_fixture(&f);
}

static void needs_evaluations(void **state)
{
    fixture          f;
    dra_trainer     *t = NULL;
    dra_error        err = {0};
    dra_train_config c = wild;
    c.split = 0;
    open_fixture(&f, "gpt2-tiny", NULL, put_text("text", story, 9));
    const dra_trainer_config own = trainer_config(&f, in_scratch("early.none"), &c);
    assert_int_equal(dra_trainer_create(&own, &t, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "train: early_stop is 3, but there is nothing to evaluate on (a "
                                  "split or evaluation data)");
    assert_false(in_run(own.folder, "train"));
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_its_schedule),
        cmocka_unit_test(stretches_its_schedule),
        cmocka_unit_test(refuses_less_steps_and_others),
        cmocka_unit_test(another_optimizer_can_be_forced),
        cmocka_unit_test(plans_its_states),
        cmocka_unit_test(stops_early),
        cmocka_unit_test(needs_evaluations),
    };
    if (scratch_make(NULL) != 0) return 1;
    const int failed = check_main("longer runs", NULL, 0, tests, COUNT(tests));
    return scratch_remove(NULL) == 0 ? failed : 1;
}
