/* Runs on examples: evaluation, resuming, preferences. */
#include "examples.h"

#include <math.h>

/* ---- runs ------------------------------------------------------------------------------------ */

/* Rows of different lengths that count upwards. */
static dra_examples *counting_rows(void)
{
    static int32_t ids[24][12];
    for (int i = 0; i < 24; i++)
        for (int t = 0; t < 12; t++) ids[i][t] = t < 4 + i % 9 ? (i + t) % 10 : -100;
    return put_examples(&(dra_tensor_item){"ids", DRA_I32, DRA_SHAPE(24, 12), ids}, 1);
}

typedef struct course {
    dra_device   *device;
    dra_model    *model;
    dra_examples *examples;
} course;

static void open_course(course *c)
{
    dra_error err = {0};
    c->model = make_model(NULL, NULL, NULL);
    c->examples = counting_rows();
    expect_ok(check_cpu(NULL, &c->device, &err), &err);
}

static void close_course(course *c)
{
    dra_examples_close(c->examples);
    dra_model_destroy(c->model);
    dra_device_destroy(c->device);
}

/* The same as the mean of all losses that a reader sees. */
static void evaluation_is_the_mean_loss(void **state)
{
    course         c;
    dra_error      err = {0};
    dra_weights   *w = NULL;
    dra_gradients *l = NULL;
    dra_evaluation found;
    open_course(&c);
    expect_ok(dra_weights_draw(c.model, 3, &w, &err), &err);
    const dra_gradients_config g = {.model = c.model, .device = c.device, .smoothing = 0.3};
    expect_ok(dra_gradients_create(&g, &l, &err), &err);
    expect_ok(dra_gradients_bind(l, w, &err), &err);
    dra_batches *b = make_batches(c.model, c.examples, 5, true);
    expect_ok(dra_batches_evaluate(b, l, &found, &err), &err);
    const dra_view   view = {.model = c.model, .losses = true};
    const dra_module module = dra_view_module(&view);
    dra_reader      *r = NULL;
    dra_states      *s = NULL;
    double           sum = 0, n = 0;
    expect_ok(dra_reader_create(c.device, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(w, r, &err), &err);
    expect_ok(dra_states_create(c.device, module.state, 5, &s, &err), &err);
    for (int64_t i = 0; i < dra_batches_steps(b); i++) {
        const dra_batch q = take(b, i);
        const size_t    bytes = (size_t)(q.B * q.T) * sizeof *q.ids;
        const dra_named in[] = {{"ids", q.ids, bytes}, {"targets", q.targets, bytes}};
        expect_ok(dra_states_reset(s, -1, &err), &err);
        expect_ok(dra_reader_read(r, s, q.T, q.mark, 2, in, &err), &err);
        const dra_real *losses = dra_reader_result(r, "losses");
        for (int64_t k = 0; k < q.B * q.T; k++)
            if (q.targets[k] >= 0) sum += (double)losses[k], n++;
    }
    assert_true(found.count == n);
    assert_true(fabs(found.loss - sum / n) <= 1e-6 * found.loss);
    assert_true(found.measure[0] == exp(found.loss));
    dra_states_destroy(s);
    dra_reader_destroy(r);
    dra_batches_destroy(b);
    dra_gradients_destroy(l);
    dra_weights_destroy(w);
    close_course(&c);
}

static bool stop_at(void *user, const dra_event *e)
{
    assert_string_equal(e->measure_name[0], "perplexity");
    assert_null(e->measure_name[1]);
    assert_true(e->measure[0] == exp(e->loss));
    if (e->kind == DRA_EVENT_EVAL) assert_true(e->eval_measure[0] == exp(e->eval_loss));
    return e->step < *(const int64_t *)user;
}

static dra_status train(const course *c, const char *name, int64_t until, bool resume,
                        const dra_train_config *train, dra_error *err)
{
    dra_trainer             *t = NULL;
    const dra_trainer_config config = {.folder = in_folder(name),
                                       .train = train,
                                       .device = c->device,
                                       .model = c->model,
                                       .examples = c->examples,
                                       .resume = resume};
    dra_status               st = dra_trainer_create(&config, &t, err);
    if (st == DRA_OK) st = dra_trainer_run(t, stop_at, &until, err);
    dra_trainer_destroy(t);
    return st;
}

static void expect_same_file(const char *a, const char *b)
{
    char  *x[2];
    size_t n[2];
    assert_int_equal(dra_file_read(in_folder(a), 1 << 24, &x[0], &n[0], NULL), DRA_OK);
    assert_int_equal(dra_file_read(in_folder(b), 1 << 24, &x[1], &n[1], NULL), DRA_OK);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(x[0], x[1], n[0]);
    free(x[0]), free(x[1]);
}

static int remove_runs(void **state)
{
    char text[700];
    snprintf(text, sizeof text, "rm -rf '%s'/*", folder);
    return system(text);
}

static void a_resumed_run_is_the_same(void **state)
{
    const dra_train_config settings = {
        .steps = 8, .batch = 4, .accumulate = 2, .lr = 0.01, .split = 0.25, .eval_every = 4};
    const dra_train_config same = {0}, other = {.cross = true},
                           stages = {.stages = 2, .stage = {{8, 0}, {9, 1}}};
    course    c;
    dra_error err = {0};
    open_course(&c);
    expect_ok(train(&c, "whole", 8, false, &settings, &err), &err);
    expect_ok(train(&c, "cut", 3, false, &settings, &err), &err);
    expect_ok(train(&c, "cut", 8, true, &same, &err), &err);
    expect_same_file("whole/model.safetensors", "cut/model.safetensors");
    assert_int_equal(train(&c, "none", 1, false, &other, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "train: cross: the data are examples, expected texts");
    assert_int_equal(train(&c, "none", 1, false, &stages, &err), DRA_ERR_VALUE);
    assert_int_equal(access(in_folder("none"), F_OK), -1);
    close_course(&c);
}

/* ---- preferences ----------------------------------------------------------------------------- */

static dra_examples *make_pairs(void)
{
    static int32_t a[6][8], b[6][8];
    static bool    prompt[6][8];
    for (int i = 0; i < 6; i++)
        for (int t = 0; t < 8; t++) {
            a[i][t] = (i + t) % 10, b[i][t] = t < 3 ? (i + t) % 10 : (i + 7 * t) % 10;
            prompt[i][t] = t < 3;
            if (t > 6 - i % 2) b[i][t] = -100;
        }
    const dra_tensor_item items[] = {{"preferred", DRA_I32, DRA_SHAPE(6, 8), a},
                                     {"unpreferred", DRA_I32, DRA_SHAPE(6, 8), b},
                                     {"prompt_mask", DRA_BOOL, DRA_SHAPE(6, 8), prompt}};
    return put_examples(items, 3);
}

static void rows_are_pairs(void **state)
{
    course       c;
    dra_error    err = {0};
    dra_batches *b = NULL;
    open_course(&c);
    dra_examples      *pairs = make_pairs();
    dra_batches_config config = {.model = c.model, .examples = pairs, .B = 4};
    config.objective.kind = DRA_OBJECTIVE_DPO;
    expect_ok(dra_objective_complete(&config.objective, c.model, &err), &err);
    expect_ok(dra_batches_create(&config, &b, &err), &err);
    assert_int_equal(dra_batches_steps(b), 3);
    const dra_batch q = take(b, 0);
    assert_int_equal(q.T, 7);
    for (int r = 0; r < 4; r += 2) {
        const int32_t *x = q.ids + r * 7, *y = x + 7, *target = q.targets + r * 7;
        assert_memory_equal(x, y, 3 * sizeof *x); /* the prompt */
        assert_int_equal(y[3], (x[0] + 21) % 10);
        for (int t = 0; t < 7; t++) assert_int_equal(target[t], t < 3 ? -1 : (x[0] + t + 1) % 10);
        assert_true(q.counts[r] == 4 && q.counts[r + 1] == 3 - x[0] % 2);
    }
    dra_batches_destroy(b);
    config.B = 3;
    assert_int_equal(dra_batches_create(&config, &b, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "objective dpo: 3 rows of a microbatch, expected pairs of rows");
    dra_examples_close(pairs);
    close_course(&c);
}

typedef struct watching {
    int64_t until;
    double  first, last, accuracy;
} watching;

static bool watch(void *user, const dra_event *e)
{
    watching *w = user;
    assert_string_equal(e->measure_name[0], "accuracy");
    if (e->kind == DRA_EVENT_STEP && e->step == 1) w->first = e->loss;
    w->last = e->loss, w->accuracy = e->measure[0];
    return e->step < w->until;
}

static watching prefer(const course *c, const char *name, int64_t until, bool resume)
{
    const dra_train_config first = {.steps = 20,
                                    .batch = 4,
                                    .accumulate = 2,
                                    .lr = 0.01,
                                    .objective = {.kind = DRA_OBJECTIVE_DPO, .beta = 2}},
                           again = {0};
    const dra_trainer_config config = {.folder = in_folder(name),
                                       .train = resume ? &again : &first,
                                       .device = c->device,
                                       .model = c->model,
                                       .examples = c->examples,
                                       .resume = resume};
    dra_trainer             *t = NULL;
    dra_error                err = {0};
    watching                 w = {.until = until};
    expect_ok(dra_trainer_create(&config, &t, &err), &err);
    expect_ok(dra_trainer_run(t, watch, &w, &err), &err);
    dra_trainer_destroy(t);
    return w;
}

/* It starts from ln 2: nothing is preferred to what the model of the start does. */
static void preferences_are_learned(void **state)
{
    course c;
    open_course(&c);
    dra_examples_close(c.examples);
    c.examples = make_pairs();
    const watching whole = prefer(&c, "whole", 20, false);
    assert_true(fabs(whole.first - log(2)) < 1e-6);
    assert_true(whole.last < 0.6 && whole.accuracy == 1);
    prefer(&c, "cut", 7, false);
    prefer(&c, "cut", 20, true);
    expect_same_file("whole/model.safetensors", "cut/model.safetensors");
    close_course(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_is_the_mean_loss),
        cmocka_unit_test(rows_are_pairs),
        cmocka_unit_test_setup_teardown(preferences_are_learned, remove_runs, remove_runs),
        cmocka_unit_test_setup_teardown(a_resumed_run_is_the_same, remove_runs, remove_runs),
    };
    return cmocka_run_group_tests_name("batch runs", tests, folder_make, folder_remove);
}
