/* The folder of a run: what may be there before, what it starts from, what comes along; a run that
 * was killed before its first checkpoint. */
#include <sys/stat.h>

#include "device/device.h"
#include "generate/fixture.h"

static const char *const sentence = "the quick brown fox jumps over the lazy dog; ";

static void refused(const dra_trainer_config *c, const char *text)
{
    dra_trainer *t = NULL;
    dra_error    err = {0};
    assert_int_not_equal(dra_trainer_create(c, &t, &err), DRA_OK);
    assert_null(t);
    if (!strstr(err.text, text)) fail_msg("%s: expected %s", err.text, text);
}

/* Makes a run and leaves it, or runs it to its end. */
static watcher begin(const dra_trainer_config *c, bool run)
{
    dra_trainer *t = NULL;
    dra_error    err = {0};
    watcher      w = {0};
    expect_ok(dra_trainer_create(c, &t, &err), &err);
    if (run) expect_ok(dra_trainer_run(t, watch, &w, &err), &err);
    dra_trainer_destroy(t);
    return w;
}

/* A folder with files that say nothing. */
static const char *put_files(const char *folder, const char *const *names)
{
    char path[300];
    assert_int_equal(mkdir(in_scratch(folder), 0777), 0);
    for (; *names; names++) {
        snprintf(path, sizeof path, "%s/%s", folder, *names);
        put_text(path, "something", 1);
    }
    return in_scratch(folder);
}

/* ---- before the first checkpoint ------------------------------------------------------------- */

static void begins_as_it_was_told_first(void **state)
{
    const dra_train_config train = {.steps = 6, .batch = 2, .lr = 0.01, .seed = 3};
    const dra_train_config other = {.steps = 6, .lr = 0.5}, none = {0};
    fixture                f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    run_until(&f, in_scratch("whole"), &train, 0);
    dra_trainer_config c = trainer_config(&f, in_scratch("killed"), &train);
    assert_int_equal(dra_trainer_saved(c.folder), -1);
    begin(&c, false);
    assert_int_equal(dra_trainer_saved(c.folder), -1);
    c.resume = true;
    c.train = &other;
    refused(&c, "resume: lr was 0.01 and is 0.5 now");
    c.train = &none;
    begin(&c, true);
    assert_int_equal(dra_trainer_saved(c.folder), 6);
    expect_same_step(in_scratch("whole"), c.folder, 6, false);
    expect_same(in_scratch("whole"), c.folder, "train/config.json");
    close_fixture(&f);
}

static void damaged_settings_are_named(void **state)
{
    const dra_train_config train = {.steps = 2, .batch = 2};
    fixture                f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    dra_trainer_config c = trainer_config(&f, in_scratch("damaged"), &train);
    begin(&c, false);
    put_text("damaged/train/config.json", "{\"lr\": ", 1);
    c.resume = true;
    refused(&c, "damaged/train/config.json: ");
    c.resume = false;
    begin(&c, true);
    close_fixture(&f);
}

/* ---- what is there already ------------------------------------------------------------------- */

static void force_leaves_nothing_of_another_model(void **state)
{
    static const char *const old[] = {"config.json",
                                      "pytorch_model.bin",
                                      "pytorch_model-00001-of-00001.bin",
                                      "model.safetensors.index.json",
                                      "model-00001-of-00002.safetensors",
                                      "vocab.json",
                                      "merges.txt",
                                      "encoder.json",
                                      "vocab.bpe",
                                      "tokenizer_config.json",
                                      "special_tokens_map.json",
                                      "mine.txt",
                                      NULL};
    const dra_train_config   train = {.steps = 2, .batch = 2};
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    dra_trainer_config c = trainer_config(&f, put_files("old", old), &train);
    refused(&c, "/old: holds a model that is not a run; force a run over it");
    for (int i = 0; old[i]; i++) assert_true(in_run(c.folder, old[i]));
    c.force = true;
    begin(&c, true);
    assert_true(in_run(c.folder, "model.safetensors"));
    for (int i = 1; old[i]; i++)
        if (in_run(c.folder, old[i]) != (strcmp(old[i], "mine.txt") == 0))
            fail_msg("%s: there, or not", old[i]);
    close_fixture(&f);
}

static void files_of_others_stay(void **state)
{
    static const char *const pair[] = {"vocab.json", "merges.txt", NULL};
    static const char *const some[] = {"merges.txt", "generation_config.json", NULL};
    static const char *const bin[] = {"pytorch_model.bin", NULL};
    const dra_train_config   train = {.steps = 2, .batch = 2};
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    dra_trainer_config c = trainer_config(&f, put_files("pair", pair), &train);
    refused(&c, "/pair: holds a tokenizer that is not the run's; force a run over it");
    assert_true(in_run(c.folder, "vocab.json"));
    c.folder = put_files("bin", bin);
    refused(&c, "/bin: holds a model that is not a run");
    assert_true(in_run(c.folder, "pytorch_model.bin"));
    c.folder = put_files("some", some);
    begin(&c, true);
    assert_true(in_run(c.folder, "merges.txt"));
    close_fixture(&f);
}

/* ---- what killed processes left -------------------------------------------------------------- */

static void only_its_own_leftovers_are_swept(void **state)
{
    static const char *const mine[] = {"notes.tmp",      "a.7.tmp",        ".7-0.tmp",
                                       "a.7-0.tmp.old",  "a.7-.tmp",       "a.x7-0.tmp",
                                       "step-00000.tmp", "model.-0-0.tmp", NULL};
    static const char *const left[] = {"a.b.77-12.tmp", "config.json.77-0.tmp",
                                       "train/config.json.1-0.tmp", "best/x.9-9.tmp",
                                       "train/step-00000009.tmp"};
    const dra_train_config   train = {.steps = 2, .batch = 2, .split = 0.3};
    char                     path[300];
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    dra_trainer_config c = trainer_config(&f, put_files("swept", mine), &train);
    put_text("swept/a.b.77-12.tmp", "something", 1);
    put_text("swept/config.json.77-0.tmp", "something", 1);
    shell("mkdir '%s/folder.7-0.tmp'%s", c.folder, "");
    begin(&c, true);
    assert_true(in_run(c.folder, left[0]));  /* the folder was no run */
    assert_false(in_run(c.folder, left[1])); /* of a file that was written again */
    for (size_t i = 1; i < COUNT(left); i++) {
        snprintf(path, sizeof path, "swept/%s", left[i]);
        put_text(path, "something", 1);
    }
    c.resume = true;
    begin(&c, true);
    for (int i = 0; mine[i]; i++)
        if (!in_run(c.folder, mine[i])) fail_msg("%s: expected to stay", mine[i]);
    assert_true(in_run(c.folder, "folder.7-0.tmp"));
    for (size_t i = 0; i < COUNT(left); i++)
        if (in_run(c.folder, left[i])) fail_msg("%s: expected to go", left[i]);
    close_fixture(&f);
}

/* ---- two at a time --------------------------------------------------------------------------- */

/* What another process does while a run asks for memory, which is before it has its folder. */
static struct {
    dra_trainer_config      c;
    bool                    run;
    const dra_device_table *table;
} meanwhile;

static void *alloc_late(dra_device *d, size_t bytes)
{
    if (meanwhile.c.folder) {
        const dra_trainer_config c = meanwhile.c;
        meanwhile.c.folder = NULL;
        begin(&c, meanwhile.run);
    }
    return meanwhile.table->alloc(d, bytes);
}

static void another_run_begins_meanwhile(void **state)
{
    static const char *const texts[] = {"another process has begun a run there meanwhile",
                                        "holds a run of 3 steps, made meanwhile"};
    const dra_train_config   train = {.steps = 3, .batch = 2};
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    meanwhile.table = f.device->table;
    dra_device_table late = *meanwhile.table;
    late.alloc = alloc_late;
    for (int i = 0; i < 4; i++) {
        dra_trainer_config c = trainer_config(&f, in_scratch(i % 2 ? "raced" : "race"), &train);
        shell("rm -rf '%s%s'", c.folder, "");
        meanwhile.c = c;
        meanwhile.run = i % 2;
        c.force = i / 2;
        f.device->table = &late;
        refused(&c, texts[i % 2]);
        f.device->table = meanwhile.table;
        assert_int_equal(dra_trainer_saved(c.folder), i % 2 ? 3 : -1);
    }
    close_fixture(&f);
}

/* ---- the log --------------------------------------------------------------------------------- */

static void logs_of_others_stay(void **state)
{
    static const char *const log[] = {"log.jsonl", NULL};
    const dra_train_config   train = {.steps = 2, .batch = 2, .log_every = 1};
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    dra_trainer_config c = trainer_config(&f, put_files("logged", log), &train);
    refused(&c, "/logged/log.jsonl: is there already and not the log of this run; force");
    c.folder = in_scratch("unlogged");
    c.log = in_scratch("logged");
    for (int i = 0; i < 2; i++) {
        c.force = i;
        refused(&c, "/logged: is there and no regular file");
    }
    assert_true(in_run(c.log, "log.jsonl"));
    c.log = put_text("notes", "something", 1);
    c.force = false;
    refused(&c, "/notes: is there already and not the log of this run");
    c.resume = true;
    refused(&c, "/notes: is there already and not the log of this run");
    assert_false(in_run(c.folder, "."));
    c.force = true;
    begin(&c, true);
    close_fixture(&f);
}

static void a_run_goes_on_with_its_log_anywhere(void **state)
{
    const dra_train_config train = {.steps = 4, .batch = 2, .log_every = 1};
    fixture                f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    dra_trainer_config c = trainer_config(&f, in_scratch("elsewhere"), &train);
    c.log = in_scratch("elsewhere.jsonl");
    begin(&c, false);
    refused(&c, "/elsewhere.jsonl: is there already");
    c.resume = true;
    begin(&c, true);
    begin(&c, true);
    c.log = put_text("notes", "something", 1);
    refused(&c, "/notes: is there already and not the log of this run");
    close_fixture(&f);
}

/* ---- what it starts from --------------------------------------------------------------------- */

/* A model in shards, in the scratch folder "shards". */
static void make_shards(const fixture *f)
{
    const dra_train_config train = {.steps = 2, .batch = 2, .seed = 7};
    dra_error              err = {0};
    run_until(f, in_scratch("one"), &train, 0);
    const dra_convert_config how = {
        .from = in_scratch("one"), .to = in_scratch("shards"), .shard_bytes = 2000};
    expect_ok(dra_convert(&how, &err), &err);
    shell("mkdir '%s/links' && cd '%s/links' && ln -s ../shards/* .", scratch, scratch);
    shell("ln -s shards '%s/%s'", scratch, "alias");
}

static void starts_from_weights_of_any_form(void **state)
{
    static const char *const forms[] = {"one", "one/model.safetensors", "shards",
                                        "shards/model.safetensors.index.json", "links"};
    const dra_train_config   train = {.steps = 2, .batch = 2};
    double                   first = 0;
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    make_shards(&f);
    for (size_t i = 0; i < COUNT(forms); i++) {
        dra_trainer_config c = trainer_config(&f, in_scratch("further"), &train);
        c.weights = in_scratch(forms[i]);
        c.force = true;
        const watcher w = begin(&c, true);
        if (i == 0) first = w.first.loss;
        assert_true(w.first.loss == first);
    }
    close_fixture(&f);
}

/* After the test before this one. */
static void weights_of_its_own_folder_are_refused(void **state)
{
    static const char *const rows[][2] = {
        {"one", "one"},
        {"one", "one/model.safetensors"},
        {"one", "one/train/step-00000002"},
        {"shards", "shards"},
        {"shards", "shards/model.safetensors.index.json"},
        {"shards", "alias"},
        {"alias", "shards"},
        {"shards", "links"},
        {"links", "links"},
    };
    const dra_train_config train = {.steps = 2, .batch = 2};
    fixture                f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_trainer_config c = trainer_config(&f, in_scratch(rows[i][0]), &train);
        c.weights = in_scratch(rows[i][1]);
        c.force = true;
        refused(&c, "holds the weights to start from; take another folder for the run");
        assert_true(in_run(c.folder, "config.json"));
    }
    close_fixture(&f);
}

static void notes_come_along_with_their_tokenizer(void **state)
{
    static const char *const notes[] = {"tokenizer_config.json", "special_tokens_map.json"};
    const dra_train_config   train = {.steps = 2, .batch = 2, .split = 0.3};
    dra_tokenizer           *bpe = NULL;
    dra_error                err = {0};
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    expect_ok(dra_tokenizer_open("tests/data/bpe", &bpe, &err), &err);
    run_until(&f, in_scratch("noted"), &train, 0);
    shell("cp tests/data/bpe/tokenizer.json '%s/%s'", scratch, "noted");
    put_text("noted/tokenizer_config.json", "{}", 1);
    put_text("noted/special_tokens_map.json", "{}", 1);
    put_text("noted/generation_config.json", "{}", 1);
    for (int same = 0; same < 2; same++) {
        dra_trainer_config c = trainer_config(&f, in_scratch(same ? "same" : "bytes"), &train);
        c.weights = in_scratch("noted");
        if (same) c.tokenizer = bpe;
        begin(&c, true);
        for (size_t i = 0; i < COUNT(notes); i++) {
            assert_int_equal(in_run(c.folder, notes[i]), same);
            assert_int_equal(in_run(in_scratch(same ? "same/best" : "bytes/best"), notes[i]), same);
        }
        assert_true(in_run(c.folder, "generation_config.json"));
    }
    dra_tokenizer_destroy(bpe);
    close_fixture(&f);
}

/* With its weights named again as well. */
static void a_run_that_goes_on_keeps_its_own_settings(void **state)
{
    const dra_train_config train = {.steps = 4, .batch = 2}, none = {0};
    fixture                f;
    open_fixture(&f, "gpt2-tiny", NULL, put_text("text", sentence, 9));
    run_until(&f, in_scratch("first"), &train, 0);
    put_text("first/generation_config.json", "{\"temperature\": 0.5}", 1);
    dra_trainer_config c = trainer_config(&f, in_scratch("second"), &train);
    c.weights = in_scratch("first");
    begin(&c, true);
    expect_same(c.weights, c.folder, "generation_config.json");
    put_text("second/generation_config.json", "{\"temperature\": 0.7}", 1);
    shell("cp '%s/generation_config.json' '%s/kept'", c.folder, scratch);
    c.resume = true;
    c.train = &none;
    begin(&c, true);
    shell("cmp '%s/generation_config.json' '%s/kept'", c.folder, scratch);
    close_fixture(&f);
}

static void another_tokenizer_replaces_the_old_one(void **state)
{
    static const char *const notes[] = {"tokenizer_config.json", "special_tokens_map.json"};
    const dra_train_config   train = {.steps = 2, .batch = 2, .split = 0.3}, none = {0};
    dra_tokenizer           *bpe = NULL;
    dra_error                err = {0};
    fixture                  f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    expect_ok(dra_tokenizer_open("tests/data/bpe", &bpe, &err), &err);
    dra_trainer_config c = trainer_config(&f, in_scratch("changed"), &train);
    c.tokenizer = bpe;
    begin(&c, true);
    put_text("changed/tokenizer_config.json", "{}", 1);
    put_text("changed/special_tokens_map.json", "{}", 1);
    c.resume = true;
    c.train = &none;
    for (int i = 0; i < 2; i++) { /* the same one, and then none at all */
        begin(&c, true);
        assert_true(in_run(c.folder, "tokenizer.json") && in_run(c.folder, notes[0]));
        c.tokenizer = NULL;
    }
    c.tokenizer = f.tokenizer;
    c.force = true;
    begin(&c, true);
    assert_false(in_run(c.folder, "tokenizer.json"));
    for (size_t i = 0; i < COUNT(notes); i++) assert_false(in_run(c.folder, notes[i]));
    dra_tokenizer_destroy(bpe);
    close_fixture(&f);
}

/* ---- memory and size ------------------------------------------------------------------------- */

static void a_batch_too_large_leaves_no_folder(void **state)
{
    const dra_train_config train = {.steps = 2, .batch = 1 << 20};
    fixture                f;
    open_fixture(&f, "gpt2-tiny",
                 (const char *const[]){"dim=256", "heads=4", "depth=4", "context=64", NULL},
                 put_text("text", sentence, 9));
    const dra_trainer_config c = trainer_config(&f, in_scratch("large"), &train);
    refused(&c, "train: out of memory for steps of 1048576 x 64 tokens: ");
    assert_false(in_run(c.folder, "."));
    close_fixture(&f);
}

/* ---- a memory of the program's own ----------------------------------------------------------- */

static void declare_mean(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                         dra_specs *state)
{
    static const char *const names[] = {"mean_0", "mean_1"};
    for (int i = 0; i < s->streams; i++)
        dra_specs_add(state, prefix,
                      &(dra_spec){.name = names[i], .shape = DRA_SHAPE(s->H, s->stream[i].width)});
}

static void step_mean(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    for (int i = 0; i < c->sizes->streams; i++)
        r->item[i] = r->state[i] = dra_affine(g, dra_add(g, c->state[i], c->x[i]), 0.5, 0);
}

static const char *const mean_retrievals[] = {"time", NULL};
static const dra_memory  mean = {
     .name = "mean", .retrievals = mean_retrievals, .declare = declare_mean, .step = step_mean};

/* It has the parameters of attention: only its name tells it from that. */
static void a_memory_of_its_own_keeps_its_name(void **state)
{
    const dra_train_config train = {.steps = 4, .batch = 2};
    const dra_memory      *own[] = {&mean, NULL};
    const char            *run = in_scratch("own");
    CHECK_CONFIG(config);
    dra_model   *model = NULL;
    dra_weights *weights = NULL;
    dra_error    err = {0};
    fixture      f;
    open_fixture(&f, "gpt2-tiny", NULL, put_text("text", sentence, 9));
    expect_ok(dra_model_config_copy(dra_model_config_of(f.model), &config, &err), &err);
    check_mixers(config)->a.own = &mean;
    config->format = DRA_FORMAT_DRA;
    dra_model_destroy(f.model);
    expect_ok(dra_model_create(config, &f.model, &err), &err);
    run_until(&f, run, &train, 2);
    assert_int_equal(dra_folder_load(run, &model, &weights, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "own/config.json: mixer.memory is own:mean, which only"));
    check_drop_config(&config);
    expect_ok(dra_folder_config_own(run, own, &config, &err), &err);
    assert_ptr_equal(config->mixer[0].a.own, &mean);
    assert_int_equal(run_until(&f, run, &train, 0).last.step, 4);
    expect_ok(dra_model_config_set(config, "mixer.memory", "append", &err), &err);
    assert_null(config->mixer[0].a.own);
    close_fixture(&f);
}

static void tokens_beyond_counting_are_the_most(void **state)
{
    const dra_train_config train = {
        .steps = INT64_MAX / 8, .batch = 2, .stages = 2, .stage = {{8, 0}, {16, 1000}}};
    dra_trainer     *t = NULL;
    dra_trainer_plan plan;
    dra_error        err = {0};
    fixture          f;
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", sentence, 9));
    const dra_trainer_config c = trainer_config(&f, in_scratch("endless"), &train);
    expect_ok(dra_trainer_create(&c, &t, &err), &err);
    expect_ok(dra_trainer_look(t, &plan, &err), &err);
    assert_true(plan.run_tokens == INT64_MAX && plan.epochs > 0);
    dra_trainer_destroy(t);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_as_it_was_told_first),
        cmocka_unit_test(damaged_settings_are_named),
        cmocka_unit_test(force_leaves_nothing_of_another_model),
        cmocka_unit_test(files_of_others_stay),
        cmocka_unit_test(only_its_own_leftovers_are_swept),
        cmocka_unit_test(another_run_begins_meanwhile),
        cmocka_unit_test(logs_of_others_stay),
        cmocka_unit_test(a_run_goes_on_with_its_log_anywhere),
        cmocka_unit_test(starts_from_weights_of_any_form),
        cmocka_unit_test(weights_of_its_own_folder_are_refused),
        cmocka_unit_test(notes_come_along_with_their_tokenizer),
        cmocka_unit_test(a_run_that_goes_on_keeps_its_own_settings),
        cmocka_unit_test(another_tokenizer_replaces_the_old_one),
        cmocka_unit_test(a_batch_too_large_leaves_no_folder),
        cmocka_unit_test(a_memory_of_its_own_keeps_its_name),
        cmocka_unit_test(tokens_beyond_counting_are_the_most),
    };
    return cmocka_run_group_tests_name("train folder", tests, scratch_make, scratch_remove);
}
