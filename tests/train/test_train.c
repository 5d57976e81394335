/* Runs: they learn, and one that stopped resumes to the same bits, whatever it carries. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "device/device.h"
#include "generate/fixture.h"

static const char *const sentence = "the quick brown fox jumps over the lazy dog; ";
static const char *const story = "a small text of several documents,\nwith lines of its own\n--\n"
                                 "another one that is a little longer than the first of them\n--\n";

/* ---- learning -------------------------------------------------------------------------------- */

static void learns_a_repeating_text(void **state)
{
    fixture                f;
    const dra_train_config c = {.steps = 120, .batch = 4, .lr = 0.01};
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 40));
    const watcher w = run_until(&f, in_scratch("learns"), &c, 0);
    if (!(w.last.loss < 0.6 * w.first.loss))
        fail_msg("loss was %g, is %g", w.first.loss, w.last.loss);
    assert_int_equal(w.last.step, 120);
    assert_int_equal(w.events[DRA_EVENT_STEP], 120);
    assert_int_equal(w.events[DRA_EVENT_SAVE], 1);
    assert_in_range(w.last.tokens, 120 * 4 * 15, 120 * 4 * 16); /* without pads */
    close_fixture(&f);
}

/* ---- stopped and resumed --------------------------------------------------------------------- */

static const struct row {
    const char      *name, *preset, *settings[4];
    dra_train_config c;
    int64_t          stop[4];
} rows[] = {
    {"gpt2", "gpt2-tiny", {0}, {0}, {5, 10}},
    {"gru", "dra-gru-tiny", {0}, {.accumulate = 2}, {4, 5, 11}},
    {"slots", "dra-slots-tiny", {"mixer.slots=4"}, {.precision = DRA_PRECISION_BF16}, {7}},
    {"dropout", "gpt2-tiny", {"dropout=0.2"}, {.accumulate = 4}, {1, 3, 8}},
    {"attention_dropout", "gpt2-tiny", {"attention_dropout=0.2"}, {.chunk = 8}, {1, 3, 8}},
    {"state dropout",
     "dra-slots-tiny",
     {"mixer.slots=4"},
     {.state_dropout = 0.2, .accumulate = 2},
     {3, 8}},
    {"forgetful mask", "gpt2-tiny", {0}, {.forgetful_mask = 0.3, .accumulate = 2}, {3, 8}},
    {"forgetful mask and carry",
     "rwkv4-tiny",
     {0},
     {.forgetful_mask = 0.3, .carry = true, .chunk = 5},
     {5}},
    {"masked", "gpt2-tiny", {"visible=bidirectional"}, {.accumulate = 2, .split = 0.2}, {3, 8}},
    {"encoder",
     "xt-encoder-tiny",
     {"position.scale=0.25"},
     {.forgetful_mask = 0.2, .split = 0.2},
     {5}},
    {"blend", "hybrid-tiny", {"mixer.b.slots=4"}, {.split = 0.2, .eval_every = 3}, {4, 7}},
    {"carry", "rwkv4-tiny", {0}, {.carry = true, .accumulate = 2, .split = 0.2}, {3, 6}},
    {"window", "dra-ema-tiny", {"mixer.retrieval=window", "mixer.window=5"}, {.carry = true}, {5}},
    {"chunks",
     "dra-slots-tiny",
     {"mixer.slots=4"},
     {.carry = true, .chunk = 5, .recompute = true},
     {6}},
    {"added",
     "dra-slots-tiny",
     {"mixer.slots=4", "watch=8"},
     {.aux_loss = {[DRA_AUX_SIZE] = 0.5}, .carry = true, .clamp_states = true, .accumulate = 2},
     {5}},
    {"sgd", "gpt2-tiny", {0}, {.optimizer = DRA_OPTIMIZER_SGD, .nesterov = true}, {5, 10}},
    {"no momentum", "gpt2-tiny", {0}, {.optimizer = DRA_OPTIMIZER_SGD, .momentum = -1}, {7}},
    {"lion", "dra-delta-tiny", {0}, {.optimizer = DRA_OPTIMIZER_LION}, {4, 9}},
    {"muon", "dra-gru-tiny", {0}, {.optimizer = DRA_OPTIMIZER_MUON, .accumulate = 2}, {3, 8}},
    {"stages", "dra-delta-tiny", {0}, {.stages = 3, .stage = {{4, 0}, {8, 4}, {16, 8}}}, {4, 6, 9}},
};

static void goes_on_to_the_same_bits(void **state)
{
    const struct row *r = *state;
    fixture           f;
    dra_train_config  c = r->c;
    char              whole[100], parts[100];
    c.steps = 12;
    c.batch = 4;
    c.log_every = 1;
    c.seed = 3;
    snprintf(whole, sizeof whole, "%s.whole", r->name);
    snprintf(parts, sizeof parts, "%s.parts", r->name);
    open_fixture(&f, r->preset, r->settings, put_text("text", story, 9));
    const watcher w = run_until(&f, in_scratch(whole), &c, 0);
    assert_int_equal(w.last.step, 12);
    assert_int_equal(w.last.skipped, 0);
    for (int i = 0; r->stop[i]; i++)
        assert_int_equal(run_until(&f, in_scratch(parts), &c, r->stop[i]).last.step, r->stop[i]);
    const watcher v = run_until(&f, in_scratch(parts), &c, 0);
    assert_true(v.last.loss == w.last.loss && v.last.tokens == w.last.tokens);
    expect_same_step(in_scratch(whole), in_scratch(parts), 12, c.carry);
    if (c.split > 0) expect_same(in_scratch(whole), in_scratch(parts), "best/model.safetensors");
    close_fixture(&f);
}

/* Whatever the number of threads. */
static void threads_give_the_same_bits(void **state)
{
    const dra_train_config c = {.steps = 6, .batch = 4};
    fixture                f;
    dra_error              err = {0};
    open_fixture(&f, "dra-slots-tiny", NULL, put_text("text", story, 9));
    run_until(&f, in_scratch("threads.2"), &c, 0);
    dra_device_destroy(f.device);
    expect_ok(check_cpu(&(dra_cpu_config){.threads = 7}, &f.device, &err), &err);
    run_until(&f, in_scratch("threads.7"), &c, 3);
    run_until(&f, in_scratch("threads.7"), &c, 0);
    expect_same_step(in_scratch("threads.2"), in_scratch("threads.7"), 6, false);
    close_fixture(&f);
}

/* Two runs step by step in turns, on one device, are what each is alone. */
static void steps_in_turns_give_the_same_bits(void **state)
{
    const dra_train_config c = {.steps = 6, .batch = 4};
    const char *const      names[] = {"turn.0", "turn.1"};
    fixture                f;
    dra_error              err = {0};
    dra_trainer           *t[2] = {NULL, NULL};
    watcher                w[2] = {{.stop = 0}, {.stop = 0}};
    bool                   more = true;
    open_fixture(&f, "dra-delta-tiny", NULL, put_text("text", story, 9));
    run_until(&f, in_scratch("alone"), &c, 0);
    for (int i = 0; i < 2; i++) {
        const dra_trainer_config own = trainer_config(&f, in_scratch(names[i]), &c);
        expect_ok(dra_trainer_create(&own, &t[i], &err), &err);
    }
    for (int step = 1; step <= 6; step++)
        for (int i = 0; i < 2; i++) {
            expect_ok(dra_trainer_step(t[i], watch, &w[i], &more, &err), &err);
            assert_int_equal(w[i].last.step, step);
            assert_int_equal(more, step < 6);
            if (step != 3) continue; /* a checkpoint between steps changes nothing */
            expect_ok(dra_trainer_save(t[i], &err), &err);
            assert_int_equal(dra_trainer_saved(in_scratch(names[i])), 3);
        }
    for (int i = 0; i < 2; i++) {
        expect_ok(dra_trainer_step(t[i], watch, &w[i], &more, &err), &err); /* there is none left */
        assert_int_equal(w[i].events[DRA_EVENT_STEP], 6);
        dra_trainer_destroy(t[i]);
        expect_same_step(in_scratch("alone"), in_scratch(names[i]), 6, false);
    }
    close_fixture(&f);
}

/* However many microbatches and chunks it has, a step waits for the device once. */
static void a_step_waits_once(void **state)
{
    const dra_train_config c = {.steps = 4, .batch = 4, .accumulate = 2, .chunk = 8};
    fixture                f;
    dra_error              err = {0};
    dra_trainer           *t = NULL;
    watcher                w = {.stop = 0};
    bool                   more = true;
    open_fixture(&f, "dra-delta-tiny", NULL, put_text("text", story, 9));
    const dra_trainer_config own = trainer_config(&f, in_scratch("waits"), &c);
    expect_ok(dra_trainer_create(&own, &t, &err), &err);
    expect_ok(dra_trainer_step(t, watch, &w, &more, &err), &err);
    for (int step = 2; step < 4; step++) { /* the first allocates, the last writes files */
        const int64_t before = f.device->waits;
        expect_ok(dra_trainer_step(t, watch, &w, &more, &err), &err);
        assert_int_equal(f.device->waits - before, 1);
    }
    dra_trainer_destroy(t);
    close_fixture(&f);
}

/* ---- one batch in other ways ----------------------------------------------------------------- */

static double loss_after(const fixture *f, const char *name, dra_train_config c)
{
    c.steps = 5;
    c.batch = 4;
    c.lr = 0.01;
    return run_until(f, in_scratch(name), &c, 0).last.loss;
}

/* The same gradients but for the order of sums. */
static void accumulating_and_chunks_change_nothing(void **state)
{
    fixture f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", story, 9));
    const double whole = loss_after(&f, "one", (dra_train_config){0});
    const double parts = loss_after(&f, "four", (dra_train_config){.accumulate = 4});
    const double chunks = loss_after(&f, "chunks", (dra_train_config){.chunk = 6});
    const double again = loss_after(&f, "recompute", (dra_train_config){.recompute = true});
    if (!(fabs(parts - whole) < 1e-4 * whole)) fail_msg("in four: %g, %g", parts, whole);
    if (!(fabs(chunks - whole) < 1e-4 * whole)) fail_msg("in chunks: %g, %g", chunks, whole);
    if (!(fabs(again - whole) < 1e-4 * whole)) fail_msg("recomputed: %g, %g", again, whole);
    close_fixture(&f);
}

/* An encoder masks the same tokens in a batch and in parts of it. */
static void masks_do_not_depend_on_microbatches(void **state)
{
    fixture f;
    open_fixture(&f, "gpt2-tiny", (const char *const[]){"visible=bidirectional", NULL},
                 put_text("text", story, 9));
    const double whole = loss_after(&f, "masked.one", (dra_train_config){0});
    const double parts = loss_after(&f, "masked.four", (dra_train_config){.accumulate = 4});
    if (!(fabs(parts - whole) < 1e-4 * whole)) fail_msg("in four: %g, %g", parts, whole);
    close_fixture(&f);
}

/* Evaluations mask the same tokens, however many rows are read at a time. */
static void evaluations_can_be_compared(void **state)
{
    fixture f;
    double  loss[2];
    open_fixture(&f, "gpt2-tiny", (const char *const[]){"visible=bidirectional", NULL},
                 put_text("text", story, 9));
    for (int i = 0; i < 2; i++) {
        const dra_train_config   c = {.steps = 1, .batch = i ? 6 : 2, .split = 0.4};
        const dra_trainer_config config = trainer_config(&f, in_scratch(i ? "six" : "two"), &c);
        dra_trainer             *t = NULL;
        dra_error                err = {0};
        double                   again = 0;
        expect_ok(dra_trainer_create(&config, &t, &err), &err);
        expect_ok(dra_trainer_evaluate(t, &loss[i], &err), &err);
        expect_ok(dra_trainer_evaluate(t, &again, &err), &err);
        assert_true(again == loss[i]);
        dra_trainer_destroy(t);
    }
    if (!(fabs(loss[0] - loss[1]) < 1e-5 * loss[0])) fail_msg("%.9g, %.9g", loss[0], loss[1]);
    close_fixture(&f);
}

/* The loss of an encoder on a text, window by window, each alone and without pads. */
static double loss_of_windows(const fixture *f, const dra_weights *w)
{
    enum { T = 16 };
    const dra_feed_config      feed = {.corpus = f->data, .B = 1, .T = T, .once = true};
    const dra_gradients_config config = {.model = f->model, .device = f->device};
    dra_feed                  *windows = NULL;
    dra_gradients             *g = NULL;
    dra_error                  err = {0};
    dra_objective_config       o = {0};
    double                     sum = 0, n = 0;
    expect_ok(dra_objective_complete(&o, f->model, &err), &err);
    expect_ok(dra_feed_create(&feed, &windows, &err), &err);
    expect_ok(dra_gradients_create(&config, &g, &err), &err);
    expect_ok(dra_gradients_bind(g, w, &err), &err);
    for (int64_t i = 0; i < dra_feed_steps(windows); i++) {
        int32_t               ids[T], targets[T], mark[T];
        dra_microbatch        q = {.B = 1, .ids = ids, .targets = targets, .no_dropout = true};
        dra_microbatch_result r;
        dra_feed_batch(windows, i, ids, targets, mark);
        const dra_objective_rows row = {1, T, ids, targets, mark, DRA_EVAL_SEED, 0, i};
        dra_objective_make(&o, f->model, &row);
        while (q.T < T && !(mark[q.T] & DRA_MARK_PAD)) q.T++;
        expect_ok(dra_gradients_run(g, &q, &r, &err), &err);
        sum += r.loss * (double)r.count;
        n += (double)r.count;
    }
    dra_gradients_destroy(g);
    dra_feed_destroy(windows);
    return sum / n;
}

/* Pads at the end of a text are not seen by its tokens, though they are read in one batch. */
static void encoders_do_not_see_pads(void **state)
{
    const dra_train_config c = {.steps = 1, .batch = 4};
    fixture                f;
    dra_trainer           *t = NULL;
    dra_error              err = {0};
    double                 loss;
    open_fixture(
        &f, "gpt2-tiny", (const char *const[]){"visible=bidirectional", NULL},
        put_text("text", "thirty-seven tokens, three are left: ", 2)); /* 74 = 4 * 16 + 10 */
    dra_trainer_config config = trainer_config(&f, in_scratch("pads"), &c);
    config.eval_data = f.data;
    expect_ok(dra_trainer_create(&config, &t, &err), &err);
    expect_ok(dra_trainer_evaluate(t, &loss, &err), &err);
    const double expected = loss_of_windows(&f, dra_trainer_weights(t));
    if (!(fabs(loss - expected) <= 1e-5 * expected)) fail_msg("%.9g, alone %.9g", loss, expected);
    dra_trainer_destroy(t);
    close_fixture(&f);
}

/* ---- what a run leaves ----------------------------------------------------------------------- */

static int count_lines(const char *folder, const char *with)
{
    char *text = NULL;
    int   n = 0;
    read_file(folder, "log.jsonl", &text);
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        n += strstr(at, with) != NULL;
    }
    free(text);
    return n;
}

static void leaves_a_model_and_a_log(void **state)
{
    const dra_train_config c = {.steps = 12,
                                .batch = 4,
                                .log_every = 2,
                                .eval_every = 4,
                                .save_every = 3,
                                .sample_every = 5,
                                .keep = 2,
                                .split = 0.2};
    const char            *run = in_scratch("leaves");
    fixture                f;
    dra_model             *model = NULL;
    dra_weights           *weights = NULL;
    dra_error              err = {0};
    open_fixture(&f, "hybrid-tiny", (const char *const[]){"mixer.b.slots=4", NULL},
                 put_text("text", story, 9));
    const watcher w = run_until(&f, run, &c, 0);
    assert_int_equal(w.events[DRA_EVENT_EVAL], 3);
    assert_int_equal(w.events[DRA_EVENT_SAVE], 4);
    assert_int_equal(w.events[DRA_EVENT_SAMPLE], 2);
    assert_true(in_run(run, "train/step-00000012") && in_run(run, "train/step-00000009"));
    assert_false(in_run(run, "train/step-00000006"));
    assert_int_equal(count_lines(run, "\"loss\":"), 6);
    assert_int_equal(count_lines(run, "\"eval_loss\":"), 3);
    assert_int_equal(count_lines(run, "\"seconds\":"), 6 + 3);
    assert_int_equal(count_lines(run, "\"blend\":"), 6);
    expect_ok(dra_folder_load(run, &model, &weights, &err), &err);
    const int blend = dra_specs_find(dra_model_params(model), "blend");
    assert_true(dra_weights_at(weights, blend)[0] == 0); /* after half of the run */
    dra_weights_destroy(weights);
    dra_model_destroy(model);
    expect_ok(dra_folder_load(in_scratch("leaves/best"), &model, &weights, &err), &err);
    dra_weights_destroy(weights);
    dra_model_destroy(model);
    close_fixture(&f);
}

static bool write_slowly(void *user, const dra_event *e)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    if (e->kind == DRA_EVENT_SAMPLE) nanosleep(&pause, NULL);
    if (e->kind == DRA_EVENT_SAVE) *(double *)user = e->seconds;
    return true;
}

/* The time of a run is that of all its work. */
static void samples_take_time(void **state)
{
    const dra_train_config c = {.steps = 2, .batch = 2, .sample_every = 1};
    fixture                f;
    dra_trainer           *t = NULL;
    dra_error              err = {0};
    double                 seconds = 0;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    const dra_trainer_config config = trainer_config(&f, in_scratch("slow"), &c);
    expect_ok(dra_trainer_create(&config, &t, &err), &err);
    expect_ok(dra_trainer_run(t, write_slowly, &seconds, &err), &err);
    assert_true(seconds >= 0.2);
    dra_trainer_destroy(t);
    close_fixture(&f);
}

/* Add-ons have an effect, and are logged by name. */
static void logs_what_is_added(void **state)
{
    const dra_train_config plain = {.steps = 8, .batch = 4, .lr = 0.01, .log_every = 1};
    dra_train_config       added = plain;
    fixture                f;
    added.aux_loss[DRA_AUX_SIZE] = 10;
    open_fixture(&f, "dra-slots-tiny", (const char *const[]){"mixer.slots=4", "watch=8", NULL},
                 put_text("text", story, 9));
    const watcher v = run_until(&f, in_scratch("plain"), &plain, 0);
    const watcher w = run_until(&f, in_scratch("added"), &added, 0);
    assert_int_equal(count_lines(in_scratch("plain"), "\"size\":"), 0);
    assert_int_equal(count_lines(in_scratch("added"), "\"size\":"), 8);
    if (!(w.last.aux[DRA_AUX_SIZE] < 0.9 * v.last.aux[DRA_AUX_SIZE]))
        fail_msg("size is %g, without %g", w.last.aux[DRA_AUX_SIZE], v.last.aux[DRA_AUX_SIZE]);
    close_fixture(&f);
}

/* Lines from after the checkpoint, and one that was cut by a kill, are forgotten. */
static void cuts_the_log_back(void **state)
{
    const dra_train_config c = {.steps = 8, .batch = 2, .log_every = 1};
    const char            *run = in_scratch("log");
    fixture                f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    run_until(&f, run, &c, 5);
    FILE *log = fopen(in_scratch("log/log.jsonl"), "a");
    assert_non_null(log);
    fputs("{\"step\":6,\"loss\":1.5}\nnot JSON\n{\"step\":7,\"lo", log);
    fclose(log);
    run_until(&f, run, &c, 0);
    assert_int_equal(count_lines(run, "\"loss\":"), 8);
    assert_int_equal(count_lines(run, "\"loss\":1.5}"), 0);
    assert_int_equal(count_lines(run, "not"), 0);
    close_fixture(&f);
}

/* ---- numbers that are not finite ------------------------------------------------------------- */

static void three_steps_not_finite_stop_it(void **state)
{
    const dra_train_config c = {.steps = 50, .batch = 2, .lr = INFINITY};
    const char            *run = in_scratch("infinite");
    fixture                f;
    dra_trainer           *t = NULL;
    dra_error              err = {0};
    watcher                w = {0};
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    const dra_trainer_config config = trainer_config(&f, run, &c);
    expect_ok(dra_trainer_create(&config, &t, &err), &err);
    assert_int_equal(dra_trainer_run(t, watch, &w, &err), DRA_ERR_VALUE);
    assert_non_null(
        strstr(err.text, "not finite in 3 steps in a row; saved as it was before them"));
    assert_int_equal(w.last.skipped, 3);
    assert_int_equal(w.last.kind, DRA_EVENT_SAVE);
    assert_int_equal(count_lines(run, "\"loss\":null"), 3);
    dra_trainer_destroy(t);
    close_fixture(&f);
}

/* A run whose last steps changed nothing did not end well. */
static void last_steps_not_finite_are_told(void **state)
{
    static const char *const texts[] = {"not finite in the last step; saved as it was before it",
                                        "not finite in the last 2 steps; saved as it was before "
                                        "them"};
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    for (int i = 0; i < 2; i++) {
        const dra_train_config train = {.steps = 2 + i, .batch = 2, .lr = INFINITY};
        dra_trainer_config     c = trainer_config(&f, in_scratch("last"), &train);
        dra_trainer           *t = NULL;
        dra_error              err = {0};
        c.force = true;
        expect_ok(dra_trainer_create(&c, &t, &err), &err);
        assert_int_equal(dra_trainer_run(t, NULL, NULL, &err), DRA_ERR_VALUE);
        if (!strstr(err.text, texts[i])) fail_msg("%s: expected %s", err.text, texts[i]);
        dra_trainer_destroy(t);
        assert_int_equal(dra_trainer_saved(c.folder), 2 + i);
    }
    close_fixture(&f);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refused(const dra_trainer_config *c, const char *text)
{
    dra_trainer *t = (dra_trainer *)scratch; /* must be cleared */
    dra_error    err = {0};
    assert_int_not_equal(dra_trainer_create(c, &t, &err), DRA_OK);
    assert_null(t);
    if (!strstr(err.text, text)) fail_msg("%s: expected %s", err.text, text);
    assert_null(strchr(err.text, '\n'));
}

static void refuses_another_run(void **state)
{
    const dra_train_config train = {.steps = 6, .batch = 2}, other = {.steps = 6, .lr = 0.5};
    const char            *run = in_scratch("refuses");
    fixture                f, g;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    open_fixture(&g, "dra-gru-tiny", (const char *const[]){"dim=24", NULL},
                 put_text("text.other", story, 9));
    run_until(&f, run, &train, 3);
    dra_trainer_config c = trainer_config(&f, run, &train);
    refused(&c,
            "/refuses: holds a run of 3 steps; resume it (--resume), or force a new one over it "
            "(--force)");
    c.resume = true;
    c.model = g.model;
    refused(&c, "/refuses: is a run of another model: its tensors have other names or shapes");
    c.force = true;
    refused(&c, "/refuses: is a run of another model: its tensors have other names or shapes");
    c.force = false;
    c.model = f.model;
    c.data = g.data;
    refused(&c, "/refuses: was trained on other data");
    c.data = f.data;
    c.train = &other;
    refused(&c, "resume: lr was 0.001");
    assert_true(in_run(run, "train/step-00000003"));
    c.force = true;
    c.data = g.data;
    dra_trainer *t = NULL;
    dra_error    err = {0};
    expect_ok(dra_trainer_create(&c, &t, &err), &err);
    refused(&c, "another process is training in ");
    expect_ok(dra_trainer_run(t, NULL, NULL, &err), &err);
    dra_trainer_destroy(t);
    close_fixture(&f);
    close_fixture(&g);
}

/* What a program that resumes a run has to know: its model, measuring what its settings add. */
static void runs_tell_their_model(void **state)
{
    const dra_train_config train = {.steps = 4, .batch = 2, .aux_loss = {[DRA_AUX_DRIFT] = 0.1}};
    const dra_train_config none = {0};
    const char            *run = in_scratch("tells"), *nothing = in_scratch("nothing");
    const char *const      settings[] = {"watch=1", NULL};
    fixture                f;
    dra_error              err = {0};
    dra_model             *model = NULL;
    CHECK_CONFIG(c);
    assert_int_equal(1 << DRA_AUX_DRIFT, 1);
    open_fixture(&f, "dra-gru-tiny", settings, put_text("text", sentence, 9));
    assert_int_equal(dra_run_resumable(nothing, &err), DRA_ERR_FILE);
    assert_non_null(strstr(err.text, "is not a run that can be resumed; a new one needs a model"));
    run_until(&f, run, &train, 2);
    expect_ok(dra_run_resumable(run, &err), &err);
    expect_ok(dra_folder_config(run, &c, &err), &err);
    const dra_run_model_config again = {run, c, &none, .resume = true};
    assert_int_equal(c->aux, 0); /* files do not say it */
    expect_ok(dra_run_model(&again, &model, &err), &err);
    assert_int_equal(dra_model_config_of(model)->aux, 1 << DRA_AUX_DRIFT);
    dra_model_destroy(model);
    c->dim = 32;
    assert_int_equal(dra_run_model(&again, &model, &err), DRA_ERR_VALUE);
    assert_null(model);
    assert_non_null(strstr(err.text, "is a run of another model: config.json says \"dim\": 16, "
                                     "expected \"dim\": 32; force continues anyway"));
    close_fixture(&f);
}

static void refuses_a_folder_with_a_model(void **state)
{
    const dra_train_config train = {.steps = 2, .batch = 2};
    fixture                f;
    dra_weights           *weights = NULL;
    dra_error              err = {0};
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    expect_ok(dra_folder_save_config(in_scratch("model"), dra_model_config_of(f.model), &err),
              &err);
    expect_ok(dra_weights_draw(f.model, 5, &weights, &err), &err);
    expect_ok(dra_weights_save(weights, in_scratch("model/model.safetensors"), &err), &err);
    dra_weights_destroy(weights);
    dra_trainer_config c = trainer_config(&f, in_scratch("model"), &train);
    refused(&c, "/model: holds a model that is not a run");
    c.force = true;
    c.weights = in_scratch("model/model.safetensors");
    refused(&c, "/model: holds the weights to start from; take another folder for the run");
    assert_true(in_run(c.folder, "model.safetensors"));
    close_fixture(&f);
}

/* Training further: the first loss is that of the weights it starts from. */
static void starts_from_weights(void **state)
{
    const dra_train_config train = {.steps = 60, .batch = 4, .lr = 0.01};
    fixture                f;
    dra_trainer           *t = NULL;
    dra_error              err = {0};
    watcher                w = {.stop = 1};
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 40));
    const watcher      first = run_until(&f, in_scratch("first"), &train, 0);
    const double       fresh = first.first.loss, reached = first.last.loss;
    dra_trainer_config c = trainer_config(&f, in_scratch("second"), &train);
    c.weights = in_scratch("first/model.safetensors");
    expect_ok(dra_trainer_create(&c, &t, &err), &err);
    expect_ok(dra_trainer_run(t, watch, &w, &err), &err);
    /* Another batch, so not the same; but as far from a fresh start as the last one was. */
    if (!(w.first.loss < reached + 0.1 * (fresh - reached)))
        fail_msg("starts at %g; fresh %g, reached %g", w.first.loss, fresh, reached);
    dra_trainer_destroy(t);
    close_fixture(&f);
}

static void refuses_tokens_beyond_the_vocabulary(void **state)
{
    const dra_train_config train = {.steps = 2, .batch = 2};
    fixture                f;
    open_fixture(&f, "dra-gru-tiny", (const char *const[]){"vocab=100", NULL},
                 put_text("text", sentence, 9));
    const dra_trainer_config c = trainer_config(&f, in_scratch("vocab"), &train);
    refused(&c, "data: token 122, but the model's vocab is 100");
    close_fixture(&f);
}

int main(void)
{
    struct CMUnitTest tests[40] = {
        cmocka_unit_test(learns_a_repeating_text),
        cmocka_unit_test(threads_give_the_same_bits),
        cmocka_unit_test(steps_in_turns_give_the_same_bits),
        cmocka_unit_test(a_step_waits_once),
        cmocka_unit_test(accumulating_and_chunks_change_nothing),
        cmocka_unit_test(masks_do_not_depend_on_microbatches),
        cmocka_unit_test(evaluations_can_be_compared),
        cmocka_unit_test(encoders_do_not_see_pads),
        cmocka_unit_test(leaves_a_model_and_a_log),
        cmocka_unit_test(samples_take_time),
        cmocka_unit_test(cuts_the_log_back),
        cmocka_unit_test(logs_what_is_added),
        cmocka_unit_test(three_steps_not_finite_stop_it),
        cmocka_unit_test(last_steps_not_finite_are_told),
        cmocka_unit_test(refuses_another_run),
        cmocka_unit_test(runs_tell_their_model),
        cmocka_unit_test(refuses_a_folder_with_a_model),
        cmocka_unit_test(refuses_tokens_beyond_the_vocabulary),
        cmocka_unit_test(starts_from_weights),
    };
    static char names[COUNT(rows)][80];
    size_t      n = 17;
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(names[i], sizeof names[i], "goes_on_to_the_same_bits: %s", rows[i].name);
        tests[n++] = (struct CMUnitTest){names[i], goes_on_to_the_same_bits, NULL, NULL,
                                         (void *)(uintptr_t)&rows[i]};
    }
    if (scratch_make(NULL) != 0) return 1;
    const int failed = check_main("train", NULL, 0, tests, n);
    return scratch_remove(NULL) == 0 ? failed : 1;
}
