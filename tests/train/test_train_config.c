/* Schedules by hand, and the config of a run: its JSON, its defaults, what it refuses. */
#include <math.h>
#include <string.h>

#include "generate/fixture.h"

static dra_model *make_model(const char *preset)
{
    CHECK_CONFIG(c);
    dra_model *m = NULL;
    dra_error  err = {0};
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    expect_ok(dra_model_create(c, &m, &err), &err);
    return m;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12)) fail_msg("%.17g, expected %.17g", a, b);
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void rates_by_hand(void **state)
{
    dra_train_config c = {.steps = 10, .warmup = 2, .lr = 1, .min_lr = 0.2};
    near(dra_train_rate(&c, 1), 0.5);
    near(dra_train_rate(&c, 2), 1);
    near(dra_train_rate(&c, 6), 0.6); /* half way: 0.2 + 0.8 / 2 */
    near(dra_train_rate(&c, 4), 0.2 + 0.8 * (1 + sqrt(0.5)) / 2);
    near(dra_train_rate(&c, 10), 0.2);
    near(dra_train_rate(&c, 11), 0.2);
    c.schedule = DRA_SCHEDULE_LINEAR;
    near(dra_train_rate(&c, 1), 0.5);
    near(dra_train_rate(&c, 3), 0.9);
    near(dra_train_rate(&c, 10), 0.2);
    c.schedule = DRA_SCHEDULE_EXPONENTIAL;
    near(dra_train_rate(&c, 1), 0.5);
    near(dra_train_rate(&c, 6), sqrt(0.2)); /* half way: the geometric mean */
    near(dra_train_rate(&c, 10), 0.2);
    c.min_lr = -1; /* no factor leads to 0 */
    near(dra_train_rate(&c, 6), 0.5);
    c.schedule = DRA_SCHEDULE_CONSTANT;
    near(dra_train_rate(&c, 1), 0.5);
    near(dra_train_rate(&c, 10), 1);
    c.schedule = DRA_SCHEDULE_WSD;
    c.decay_steps = 4;
    near(dra_train_rate(&c, 1), 0.5);
    near(dra_train_rate(&c, 2), 1);
    near(dra_train_rate(&c, 6), 1);
    near(dra_train_rate(&c, 7), 0.75);
    near(dra_train_rate(&c, 9), 0.25);
    near(dra_train_rate(&c, 10), 0);
    near(dra_train_rate(&c, 11), 0);
    c.decay_steps = 100; /* more than there are: from the warm-up on */
    near(dra_train_rate(&c, 2), 1);
    near(dra_train_rate(&c, 6), 0.5);
    c = (dra_train_config){.steps = 4, .warmup = 1, .lr = 1, .min_lr = -1};
    near(dra_train_rate(&c, 1), 1); /* a warm-up of one step is none */
    near(dra_train_rate(&c, 4), 0);
    c.warmup = 100; /* longer than the run */
    near(dra_train_rate(&c, 4), 0.04);
}

static void blends_by_hand(void **state)
{
    dra_train_config c = {.blend_steps = 4};
    near(dra_train_blend(&c, 0.8, 1), 0.8);
    near(dra_train_blend(&c, 0.8, 2), 0.6);
    near(dra_train_blend(&c, 0.8, 4), 0.2);
    assert_true(dra_train_blend(&c, 0.8, 5) == 0 && dra_train_blend(&c, 0.8, 9) == 0);
    c.blend_anneal = DRA_ANNEAL_COSINE;
    near(dra_train_blend(&c, 0.8, 1), 0.8);
    near(dra_train_blend(&c, 0.8, 3), 0.4);
    assert_true(dra_train_blend(&c, 0.8, 5) == 0);
}

static void stages_by_hand(void **state)
{
    const dra_train_config c = {.stages = 3, .stage = {{8, 0}, {16, 3}, {32, 5}}};
    static const int       expected[] = {0, 0, 0, 1, 1, 2, 2};
    for (int i = 0; i < 7; i++) assert_int_equal(dra_train_stage(&c, i + 1), expected[i]);
}

/* ---- config ---------------------------------------------------------------------------------- */

static void defaults_are_filled_in(void **state)
{
    dra_train_config c = {.steps = 200, .stages = 2, .stage = {{64, 0}, {0, 100}}};
    dra_model       *m = make_model("dra-gru-tiny");
    dra_error        err = {0};
    expect_ok(dra_train_config_complete(&c, m, &err), &err);
    assert_int_equal(c.batch, 8);
    assert_int_equal(c.warmup, 8);
    assert_int_equal(c.blend_steps, 100);
    assert_int_equal(c.decay_steps, 0);
    assert_int_equal(c.stage[0].context, 64);
    assert_int_equal(c.stage[1].context, 256);
    assert_int_equal(c.eval_every, 20);
    near(c.min_lr, c.lr / 10);
    near(c.weight_decay, 0.01);
    near(c.clip, 1);
    c = (dra_train_config){.steps = 200, .schedule = DRA_SCHEDULE_WSD};
    expect_ok(dra_train_config_complete(&c, m, &err), &err);
    assert_int_equal(c.decay_steps, 40);
    dra_model_destroy(m);
}

/* Below 0 is 0, which JSON has as 0 and where it is the default not at all. */
static void zeros_are_zeros(void **state)
{
    static const char json[] =
        "{\"weight_decay\": 0, \"clip\": 0.0, \"warmup\": 0, \"min_lr\": 0, \"beta1\": 0, "
        "\"beta2\": 0, \"eval_every\": 0, \"save_every\": 0, \"clamp_steps\": 0, \"chunk\": 0, "
        "\"lr\": 0.5, \"steps\": 10}";
    dra_train_config c;
    dra_model       *m = make_model("dra-gru-tiny");
    char             text[4096];
    dra_error        err = {0};
    expect_ok(dra_train_config_parse("c.json", json, sizeof json - 1, &c, &err), &err);
    for (int i = 0; i < 2; i++) {
        assert_true(c.weight_decay < 0 && c.clip < 0 && c.warmup < 0 && c.min_lr < 0);
        assert_true(c.beta1 < 0 && c.beta2 < 0 && c.eval_every < 0 && c.clamp_steps < 0);
        const dra_optimizer_config o = dra_train_optimizer(&c);
        assert_true(o.decay == 0 && o.clip == 0);
        near(dra_train_rate(&c, 1), 0.5);
        near(dra_train_rate(&c, 10), 0);
        expect_ok(dra_train_config_complete(&c, m, &err), &err);
        assert_true(c.chunk == 0 && c.save_every == -1);
    }
    dra_train_config_text(&c, text, sizeof text);
    assert_non_null(strstr(text, "\"weight_decay\": 0"));
    assert_non_null(strstr(text, "\"warmup\": 0"));
    assert_null(strstr(text, "chunk"));
    assert_null(strstr(text, "-1"));
    dra_model_destroy(m);
}

/* Whose 0 is the default is the same as what is not said. */
static void zeros_are_asked_again(void **state)
{
    const struct {
        dra_train_config given;
        const char      *text; /* NULL: may be */
    } rows[] = {{{.weight_decay = -1}, "resume: weight_decay was 0.01 and is 0.0 now"},
                {{.seed = -1}, "resume: seed was 3 and is 0 now"},
                {{.chunk = -1, .state_dropout = -1}, NULL}};
    dra_model *m = make_model("dra-gru-tiny");
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_train_config saved = {.seed = 3};
        dra_error        err = {0};
        expect_ok(dra_train_config_complete(&saved, m, &err), &err);
        const dra_status st = dra_train_config_merge(&saved, &rows[i].given, false, &err);
        assert_int_equal(st, rows[i].text ? DRA_ERR_VALUE : DRA_OK);
        if (rows[i].text && !strstr(err.text, rows[i].text)) fail_msg("%s", err.text);
    }
    dra_model_destroy(m);
}

static void survives_json(void **state)
{
    dra_train_config a = {.steps = 7,
                          .stages = 2,
                          .stage = {{64, 0}, {128, 3}},
                          .lr = 0.3,
                          .clip = -1,
                          .carry = true,
                          .schedule = DRA_SCHEDULE_LINEAR,
                          .precision = DRA_PRECISION_BF16,
                          .objective = {DRA_OBJECTIVE_MASKED, 0.25, -1},
                          .forgetful_mask = 0.125,
                          .group = {[DRA_PARAM_DECAY] = {2, -1}, [DRA_PARAM_OTHER] = {.wd = 0.5}}};
    dra_train_config b;
    char             text[4096];
    dra_error        err = {0};
    const size_t     n = dra_train_config_text(&a, text, sizeof text);
    assert_true(n > 0 && n < sizeof text);
    expect_ok(dra_train_config_parse("c.json", text, n, &b, &err), &err);
    assert_memory_equal(&a, &b, sizeof a);
}

static void wrong_json_is_named(void **state)
{
    static const char *const rows[][2] = {
        {"{\"stps\": 3}", "c.json: stps is not a key; did you mean steps?"},
        {"{\"steps\": -3}", "c.json: steps is -3, expected a whole number from 1 to 1e+12"},
        {"{\"schedule\": \"cos\"}",
         "c.json: schedule is \"cos\", expected one of cosine, linear, constant, exponential, "
         "wsd; did you mean cosine?"},
        {"{\"stage\": [{\"context\": \"x\"}]}",
         "c.json: stage.0.context is \"x\", expected a whole number from 1 to 1048576"},
        {"{\"group\": {\"decai\": {\"lr\": 2}}}",
         "c.json: group.decai is not a key; did you mean decay?"},
        {"{\"group\": {\"decay\": {\"lr\": -2}}}",
         "c.json: group.decay.lr is -2, expected a number from 0 to 1000000"},
        {"[1]", "c.json: JSON is no object"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_train_config c;
        dra_error        err = {0};
        assert_int_not_equal(
            dra_train_config_parse("c.json", rows[i][0], strlen(rows[i][0]), &c, &err), DRA_OK);
        assert_string_equal(err.text, rows[i][1]);
    }
}

static void refused(const dra_model *m, dra_train_config c, const char *text)
{
    dra_error err = {0};
    assert_int_equal(dra_train_config_complete(&c, m, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, text);
}

static void what_cannot_be_is_refused(void **state)
{
    dra_model *gpt = make_model("gpt2-tiny"), *gru = make_model("dra-gru-tiny");
    refused(gru, (dra_train_config){.batch = 8, .accumulate = 3},
            "train: 8 rows cannot be read in 3 equal microbatches");
    refused(gru, (dra_train_config){.lr = 0.1, .min_lr = 0.2},
            "train: min_lr is 0.2, expected at most lr, 0.1");
    refused(gru, (dra_train_config){.stages = 1, .stage = {{64, 5}}},
            "train: context 64 starts at step 5, expected the first at 0");
    refused(gru, (dra_train_config){.stages = 2, .stage = {{64, 0}, {32, 0}}},
            "train: context 32 starts at step 0, expected more than 0");
    refused(gru, (dra_train_config){.rwkv_stage = 2},
            "train: rwkv_stage is 2, but rwkv_rates is off");
    refused(gru, (dra_train_config){.group = {[DRA_PARAM_HEAD] = {.wd = 1}}},
            "train: group head is set, but has no trained parameter of the model");
    refused(gru, (dra_train_config){.schedule = DRA_SCHEDULE_LINEAR, .decay_steps = 5},
            "train: decay_steps is 5, but schedule is linear, expected wsd");
    refused(gru, (dra_train_config){.lora = {.targets = "q"}},
            "train: lora.targets is set, but lora.rank is not");
    refused(gru, (dra_train_config){.lora = {.alpha = 2}},
            "train: lora.alpha is set, but lora.rank is not");
    refused(gpt, (dra_train_config){.stages = 1, .stage = {{257, 0}}},
            "train: context 257, but the model has learned positions for 256");
    refused(gpt, (dra_train_config){.carry = true},
            "train: carry: the model has learned positions, which end after 256 tokens");
    refused(gru, (dra_train_config){.state_dropout = 0.1, .forgetful_mask = 0.1},
            "train: expected one of state_dropout and forgetful_mask, found both");
    dra_error        err = {0};
    dra_train_config c = {.carry = true};
    assert_int_equal(dra_train_config_complete(&c, gru, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "keeps every token and would grow without limit"));
    dra_model_destroy(gpt);
    dra_model_destroy(gru);
}

/* Biases by distance count tokens that are skipped, which takes whole rows; an encoder reads
 * nothing else. */
static void skipped_tokens_need_whole_rows(void **state)
{
    CHECK_CONFIG(config);
    dra_model       *m = NULL;
    dra_error        err = {0};
    dra_train_config whole = {.forgetful_mask = 0.1};
    expect_ok(dra_preset_config("gpt2-tiny", &config, &err), &err);
    config->positions = DRA_POSITIONS_NONE;
    config->position.distance = DRA_DISTANCE_ALIBI;
    expect_ok(dra_model_create(config, &m, &err), &err);
    expect_ok(dra_train_config_complete(&whole, m, &err), &err);
    refused(m, (dra_train_config){.forgetful_mask = 0.1, .chunk = 8},
            "train: forgetful_mask: the model's biases by distance (position.distance) need "
            "rows that are "
            "read as a whole, without chunk");
    refused(m, (dra_train_config){.state_dropout = 0.1, .carry = true},
            "train: state_dropout: the model's biases by distance (position.distance) need "
            "rows that are "
            "read as a whole, without carry");
    dra_model_destroy(m);
    m = make_model("xt-encoder-tiny");
    refused(m, (dra_train_config){.chunk = 8},
            "train: chunk: the model is an encoder, which reads a text as a whole, not in chunks");
    refused(m, (dra_train_config){.carry = true},
            "train: carry: the model is an encoder, which reads a text as a whole, not in parts "
            "with a state");
    dra_model_destroy(m);
}

/* What was the only objective is still not said; an encoder's is. */
static void objectives_are_filled_in(void **state)
{
    dra_train_config c = {.objective = {DRA_OBJECTIVE_NEXT}}, d = {0};
    dra_model       *gru = make_model("dra-gru-tiny"), *encoder = make_model("xt-encoder-tiny");
    dra_error        err = {0};
    char             text[4096];
    expect_ok(dra_train_config_complete(&c, gru, &err), &err);
    dra_train_config_text(&c, text, sizeof text);
    assert_null(strstr(text, "objective"));
    assert_null(strstr(text, "mask"));
    expect_ok(dra_train_config_complete(&d, encoder, &err), &err);
    dra_train_config_text(&d, text, sizeof text);
    assert_non_null(strstr(text, "\"objective\": \"masked\""));
    assert_non_null(strstr(text, "\"mask_token\": 256"));
    near(d.objective.mask_share, 0.15);
    const dra_train_config next = {.objective = {DRA_OBJECTIVE_NEXT}};
    expect_ok(dra_train_config_merge(&c, &next, false, &err), &err);
    assert_int_equal(dra_train_config_merge(&d, &next, false, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "resume: objective was \"masked\" and is \"next\" now"));
    dra_model_destroy(gru);
    dra_model_destroy(encoder);
}

/* ---- resuming -------------------------------------------------------------------------------- */

static void only_what_matters_must_stay(void **state)
{
    dra_train_config       saved = {.steps = 100, .lr = 0.001, .batch = 4};
    const dra_train_config same = {.steps = 100, .log_every = 3, .keep = 7};
    const dra_train_config other = {.lr = 0.002};
    dra_error              err = {0};
    expect_ok(dra_train_config_merge(&saved, &same, false, &err), &err);
    assert_true(saved.log_every == 3 && saved.keep == 7 && saved.batch == 4);
    assert_int_equal(dra_train_config_merge(&saved, &other, false, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text,
                        "resume: lr was 0.001 and is 0.002 now: another run; leave it out, or "
                        "force it (--force)");
    assert_true(saved.lr == 0.001);
    const dra_train_config grouped = {.group = {[DRA_PARAM_DECAY] = {2, -1}}};
    assert_int_equal(dra_train_config_merge(&saved, &grouped, false, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text,
                        "resume: group was not set and is {\"decay\":{\"lr\":2.0,\"wd\":0.0}} "
                        "now: another run; leave it out, or force it (--force)");
    expect_ok(dra_train_config_merge(&saved, &other, true, &err), &err);
    assert_true(saved.lr == 0.002 && saved.steps == 100);
}

/* Longer, with another end of its schedule, and stopped earlier or later: the same run. Not a
 * shorter one. */
static void runs_may_be_extended(void **state)
{
    dra_train_config       saved = {.steps = 100, .lr = 0.001, .warmup = 4, .blend_steps = 50};
    const dra_train_config longer = {.steps = 200, .schedule_end = 100, .early_stop = 3};
    const dra_train_config shorter = {.steps = 150};
    dra_error              err = {0};
    expect_ok(dra_train_config_merge(&saved, &longer, false, &err), &err);
    assert_true(saved.steps == 200 && saved.schedule_end == 100 && saved.early_stop == 3);
    assert_true(saved.warmup == 4 && saved.blend_steps == 50);
    assert_int_equal(dra_train_config_merge(&saved, &shorter, false, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "resume: steps was 200 and is 150 now: another run; leave it "
                                  "out, or force it (--force)");
}

/* The rate of a schedule that ends before the run, or after it. */
static void schedules_end_where_told(void **state)
{
    dra_train_config whole = {
        .steps = 100, .lr = 1, .min_lr = 0.1, .warmup = 10, .decay_steps = 30};
    dra_train_config longer = whole, later = whole;
    longer.steps = 150, longer.schedule_end = 100;
    later.schedule_end = 400;
    for (int kind = DRA_SCHEDULE_COSINE; kind <= DRA_SCHEDULE_WSD; kind++) {
        whole.schedule = longer.schedule = later.schedule = (dra_schedule_kind)kind;
        const double least = kind == DRA_SCHEDULE_CONSTANT ? 1 : 0.1;
        for (int64_t step = 1; step <= 100; step++)
            assert_true(dra_train_rate(&longer, step) == dra_train_rate(&whole, step));
        for (int64_t step = 101; step <= 150; step++) near(dra_train_rate(&longer, step), least);
        assert_true(dra_train_rate(&later, 100) > least || kind == DRA_SCHEDULE_CONSTANT);
        near(dra_train_rate(&later, 400), least);
    }
}

/* An optimizer's numbers are filled in by its own defaults; those of AdamW are not said. */
static void optimizers_are_filled_in(void **state)
{
    dra_model       *gru = make_model("dra-gru-tiny");
    dra_train_config adamw = {0}, sgd = {.optimizer = DRA_OPTIMIZER_SGD}, back;
    dra_train_config muon = {.optimizer = DRA_OPTIMIZER_MUON, .momentum = 0.9};
    dra_train_config lion = {.optimizer = DRA_OPTIMIZER_LION};
    dra_error        err = {0};
    char             text[4096];
    expect_ok(dra_train_config_complete(&adamw, gru, &err), &err);
    dra_train_config_text(&adamw, text, sizeof text);
    assert_null(strstr(text, "optimizer"));
    assert_null(strstr(text, "momentum"));
    assert_null(strstr(text, "muon"));
    assert_null(strstr(text, "schedule_end"));
    assert_null(strstr(text, "early_stop"));
    expect_ok(dra_train_config_complete(&sgd, gru, &err), &err);
    assert_true(sgd.momentum == 0.9 && sgd.beta1 == 0 && sgd.beta2 == 0 && sgd.eps == 0);
    expect_ok(dra_train_config_complete(&lion, gru, &err), &err);
    assert_true(lion.beta1 == 0.9 && lion.beta2 == 0.99 && lion.eps == 0 && lion.momentum == 0);
    expect_ok(dra_train_config_complete(&muon, gru, &err), &err);
    assert_true(muon.momentum == 0.9 && muon.muon_rate == 20 && muon.beta2 == 0.95);
    const size_t n = dra_train_config_text(&muon, text, sizeof text);
    expect_ok(dra_train_config_parse("it", text, n, &back, &err), &err);
    assert_memory_equal(&back, &muon, sizeof back);
    refused(gru, (dra_train_config){.momentum = 0.5},
            "train: momentum is 0.5, but optimizer adamw has none");
    refused(gru, (dra_train_config){.early_stop = 2, .eval_every = -1},
            "train: early_stop is 2, but nothing is evaluated (eval_every is 0)");
    dra_model_destroy(gru);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_may_be_extended),
        cmocka_unit_test(schedules_end_where_told),
        cmocka_unit_test(optimizers_are_filled_in),
        cmocka_unit_test(rates_by_hand),
        cmocka_unit_test(blends_by_hand),
        cmocka_unit_test(stages_by_hand),
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(zeros_are_zeros),
        cmocka_unit_test(zeros_are_asked_again),
        cmocka_unit_test(survives_json),
        cmocka_unit_test(wrong_json_is_named),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(skipped_tokens_need_whole_rows),
        cmocka_unit_test(objectives_are_filled_in),
        cmocka_unit_test(only_what_matters_must_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
