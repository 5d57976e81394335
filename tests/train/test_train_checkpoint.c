/* Checkpoints: damage is noticed and named, a full disk and a kill at any moment lose nothing. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "file/seal.h"
#include "generate/fixture.h"

static const char *const story = "a small text of several documents,\nwith lines of its own\n--\n"
                                 "another one that is a little longer than the first of them\n--\n";

static const dra_train_config config = {.steps = 12,
                                        .batch = 2,
                                        .save_every = 2,
                                        .keep = 3,
                                        .log_every = 1,
                                        .eval_every = 3,
                                        .split = 0.2,
                                        .carry = true};

static void open_small(fixture *f)
{
    open_fixture(f, "dra-slots-tiny", (const char *const[]){"mixer.slots=2", "depth=1", NULL},
                 put_text("text", story, 9));
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void put_bytes(const char *path, const char *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

/* Resuming is refused by one line that names the file and the older checkpoint. */
static void expect_damaged(const fixture *f, const char *run, const char *name)
{
    dra_trainer       *t = (dra_trainer *)scratch; /* must be cleared */
    dra_error          err = {0};
    dra_trainer_config c = trainer_config(f, run, &config);
    c.resume = true;
    assert_int_not_equal(dra_trainer_create(&c, &t, &err), DRA_OK);
    assert_null(t);
    if (!strstr(err.text, name) || strchr(err.text, '\n')) fail_msg("%s", err.text);
    if (!strstr(err.text, "; step 4 is there as well: remove ")) fail_msg("%s", err.text);
}

static void damage_is_named(void **state)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                        "states.safetensors", "train.json"};
    const char              *run = in_scratch("damaged");
    fixture                  f;
    uint64_t                 seed = 7;
    open_small(&f);
    run_until(&f, run, &config, 6);
    for (size_t i = 0; i < COUNT(files); i++) {
        char name[100], *data = NULL;
        char path[800];
        snprintf(name, sizeof name, "train/step-00000006/%s", files[i]);
        snprintf(path, sizeof path, "%s/%s", run, name);
        const size_t n = read_file(run, name, &data);
        for (int k = 0; k < 12; k++) { /* a changed byte */
            const size_t at = (size_t)(check_random(&seed) * (double)n);
            data[at] ^= 1;
            put_bytes(path, data, n);
            expect_damaged(&f, run, files[i]);
            data[at] ^= 1;
        }
        for (int k = 0; k < 4; k++) { /* an end that is missing */
            put_bytes(path, data, (size_t)(check_random(&seed) * (double)n));
            expect_damaged(&f, run, files[i]);
        }
        unlink(path);
        expect_damaged(&f, run, files[i]);
        put_bytes(path, data, n);
        free(data);
    }
    run_until(&f, run, &config, 0); /* all is as it was */
    close_fixture(&f);
}

/* A model so small that a checkpoint has few bits; all of them are tried. */
static void every_flipped_bit_is_found(void **state)
{
    static const char *const small[] = {"mixer.slots=1", "depth=1", "dim=2",        "heads=1",
                                        "context=4",     "vocab=2", "ff.kind=none", NULL};
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                        "states.safetensors", "train.json"};
    dra_error                err = {0};
    dra_saved                s = {0};
    dra_checkpoint at = {.step = 6, .tokens = 48, .best_loss = 2.5, .carried = true, .data = 99};
    fixture        f;
    char           run[600], path[800], name[100];
    open_fixture(&f, "dra-slots-tiny", small, put_text("text", story, 9));
    const dra_optimizer_config how = {.decay = 0.1};
    snprintf(run, sizeof run, "%s", in_scratch("bits"));
    shell("mkdir -p '%s%s'", in_scratch("bits/train"), "");
    s = (dra_saved){.device = f.device, .model = f.model};
    at.model = dra_model_fingerprint(f.model);
    expect_ok(dra_optimizer_create(&how, f.model, f.device, &s.optimizer, &err), &err);
    expect_ok(dra_weights_draw(f.model, 1, &s.weights, &err), &err);
    expect_ok(dra_states_create(f.device, dra_model_state(f.model), 1, &s.states, &err), &err);
    expect_ok(dra_checkpoint_save(run, &at, &s, &err), &err);
    for (size_t i = 0; i < COUNT(files); i++) {
        char *data = NULL;
        snprintf(name, sizeof name, "train/step-00000006/%s", files[i]);
        snprintf(path, sizeof path, "%s/%s", run, name);
        const size_t n = read_file(run, name, &data);
        const int    fd = open(path, O_WRONLY);
        assert_true(fd >= 0);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            const char bad = (char)(data[bit / 8] ^ 1 << bit % 8);
            assert_int_equal(pwrite(fd, &bad, 1, (off_t)(bit / 8)), 1);
            if (dra_checkpoint_read(run, 6, &at, &err) == DRA_OK)
                fail_msg("%s: bit %zu of byte %zu was not missed", files[i], bit % 8, bit / 8);
            if (!strstr(err.text, files[i])) fail_msg("%s: %s", files[i], err.text);
            assert_int_equal(pwrite(fd, &data[bit / 8], 1, (off_t)(bit / 8)), 1);
        }
        close(fd);
        free(data);
    }
    expect_ok(dra_checkpoint_read(run, 6, &at, &err), &err);
    dra_states_destroy(s.states);
    dra_weights_destroy(s.weights);
    dra_optimizer_destroy(s.optimizer);
    close_fixture(&f);
}

/* The settings that are noted next to checkpoints may make a run longer. */
static void every_flipped_bit_of_settings_is_found(void **state)
{
    const char *run = in_scratch("settings");
    fixture     f;
    char       *data = NULL, path[800];
    dra_error   err = {0};
    open_small(&f);
    run_until(&f, run, &config, 2);
    const size_t n = read_file(run, "train/config.json", &data);
    snprintf(path, sizeof path, "%s/train/config.json", run);
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        const char bad = (char)(data[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)(bit / 8)), 1);
        dra_objective_config found;
        if (dra_run_objective(run, &found, &err) == DRA_OK)
            fail_msg("bit %zu of byte %zu was not missed", bit % 8, bit / 8);
        if (!strstr(err.text, "train/config.json: ")) fail_msg("%s", err.text);
        assert_int_equal(pwrite(fd, &data[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    data[n / 2] ^= 1;
    put_bytes(path, data, n);
    dra_trainer       *t = NULL;
    dra_trainer_config c = trainer_config(&f, run, &config);
    c.resume = true;
    assert_int_not_equal(dra_trainer_create(&c, &t, &err), DRA_OK);
    if (!strstr(err.text, "train/config.json: ")) fail_msg("%s", err.text);
    close(fd);
    free(data);
    close_fixture(&f);
}

static void expect_refused(const char *run, const char *text)
{
    dra_checkpoint at;
    dra_error      err = {0};
    assert_int_equal(dra_checkpoint_read(run, 6, &at, &err), DRA_ERR_FORMAT);
    if (!strstr(err.text, "train.json: ") || !strstr(err.text, text)) fail_msg("%s", err.text);
}

static void refuses_other_versions(void **state)
{
    const char *run = in_scratch("versions");
    fixture     f;
    json_t     *object = NULL;
    dra_json    j = {0};
    dra_error   err = {0};
    char       *text = NULL, path[800];
    size_t      bytes = 0;
    open_small(&f);
    run_until(&f, run, &config, 6);
    snprintf(path, sizeof path, "%s/train/step-00000006/train.json", run);
    const size_t n = read_file(run, "train/step-00000006/train.json", &text);
    expect_ok(dra_json_parse_sealed(path, text, n, 8, &object, &err), &err);
    free(text);
    json_object_set_new(object, "version", json_integer(1));
    expect_ok(dra_json_dump_sealed(&j, object, path, &text, &bytes, &err), &err);
    put_bytes(path, text, bytes);
    expect_refused(run, "version is 1, expected 2");
    free(text);
    text = json_dumps(object, 0);
    put_bytes(path, text, strlen(text));
    expect_refused(run, "has no hash");
    free(text);
    json_decref(object);
    close_fixture(&f);
}

/* With it removed, as the line says, the run resumes from the older one, to the same bits. */
static void goes_on_from_an_older_one(void **state)
{
    fixture f;
    open_small(&f);
    run_until(&f, in_scratch("older.whole"), &config, 0);
    run_until(&f, in_scratch("older"), &config, 6);
    shell("rm -r '%s%s'", in_scratch("older/train/step-00000006"), "");
    run_until(&f, in_scratch("older"), &config, 0);
    expect_same_step(in_scratch("older.whole"), in_scratch("older"), 12, true);
    close_fixture(&f);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

/* In a child, where files may not be longer than `most`. */
static int run_limited(const char *run, rlim_t most)
{
    const struct rlimit limit = {most, most};
    fixture             f;
    dra_trainer        *t = NULL;
    dra_error           err = {0};
    open_small(&f);
    dra_trainer_config c = trainer_config(&f, run, &config);
    c.resume = true;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    if (dra_trainer_create(&c, &t, &err) != DRA_OK) return 2;
    if (dra_trainer_run(t, NULL, NULL, &err) != DRA_ERR_FILE) return 3;
    return strstr(err.text, ": cannot write it: File too large") ? 0 : 4;
}

static void full_disk_leaves_the_old_checkpoint(void **state)
{
    const char *run = in_scratch("full");
    fixture     f;
    int         status = -1;
    if (check_cuda()) skip(); /* a child cannot use the GPU of its parent */
    open_small(&f);
    run_until(&f, in_scratch("full.whole"), &config, 0);
    run_until(&f, run, &config, 5);
    const pid_t child = fork();
    if (child == 0) _exit(run_limited(run, 15000)); /* weights and moments are longer */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(in_run(run, "train/step-00000005") && !in_run(run, "train/step-00000006"));
    assert_false(in_run(run, "train/step-00000006.tmp"));
    run_until(&f, run, &config, 0);
    expect_same_step(in_scratch("full.whole"), run, 12, true);
    expect_same(in_scratch("full.whole"), run, "best/model.safetensors");
    close_fixture(&f);
}

/* ---- killed ---------------------------------------------------------------------------------- */

static void wait_ms(double ms) { nanosleep(&(struct timespec){0, (long)(1e6 * ms)}, NULL); }

/* In a child: trains, saving all the time, until killed or done. */
static void train_on(const char *run)
{
    fixture f;
    open_small(&f);
    dra_train_config c = config;
    c.save_every = 1;
    dra_trainer_config t = trainer_config(&f, run, &c);
    dra_trainer       *trainer = NULL;
    t.resume = true;
    if (dra_trainer_create(&t, &trainer, NULL) != DRA_OK) _exit(1);
    _exit(dra_trainer_run(trainer, NULL, NULL, NULL) == DRA_OK ? 0 : 2);
}

static void killed_at_any_moment_loses_nothing(void **state)
{
    const char *run = in_scratch("killed");
    fixture     f;
    uint64_t    seed = 11;
    int64_t     newest = -1, now;
    if (check_cuda()) skip(); /* a child cannot use the GPU of its parent */
    open_small(&f);
    run_until(&f, in_scratch("killed.whole"), &config, 0);
    for (int round = 0; round < 40 && newest < 12; round++) {
        int         status = 0;
        const pid_t child = fork();
        if (child == 0) train_on(run);
        wait_ms(10 + 60 * check_random(&seed));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        if (dra_checkpoint_list(run, 1, &now) == 0) now = -1;
        assert_true(now >= newest);
        newest = now;
    }
    run_until(&f, run, &config, 0);
    expect_same_step(in_scratch("killed.whole"), run, 12, true);
    expect_same(in_scratch("killed.whole"), run, "best/model.safetensors");
    close_fixture(&f);
}

/* ---- which there are ------------------------------------------------------------------------- */

static void lists_and_prunes(void **state)
{
    static const char *const names[] = {
        "step-00000007", "step-00000100", "step-00000003", "step-00000009.tmp",
        "other",         "step-x",        "step-",         "step-x.tmp"};
    char      run[600];
    int64_t   steps[2] = {0};
    dra_error err = {0};
    snprintf(run, sizeof run, "%s", in_scratch("list"));
    assert_int_equal(dra_checkpoint_list(run, 2, steps), 0);
    shell("mkdir -p '%s%s'", in_scratch("list/train"), "");
    for (size_t i = 0; i < COUNT(names); i++)
        shell("mkdir '%s/%s'", in_scratch("list/train"), names[i]);
    assert_int_equal(dra_checkpoint_list(run, 2, steps), 3);
    assert_true(steps[0] == 100 && steps[1] == 7);
    expect_ok(dra_checkpoint_prune(run, 2, &err), &err);
    assert_false(in_run(run, "train/step-00000003"));
    dra_sweep_numbered(in_scratch("list/train"), "step-");
    assert_false(in_run(run, "train/step-00000009.tmp"));
    expect_ok(dra_checkpoint_prune(run, -1, &err), &err);
    assert_int_equal(dra_checkpoint_list(run, 2, steps), 0);
    assert_true(in_run(run, "train/other") && in_run(run, "train/step-x.tmp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(every_flipped_bit_of_settings_is_found),
        cmocka_unit_test(refuses_other_versions),
        cmocka_unit_test(goes_on_from_an_older_one),
        cmocka_unit_test(full_disk_leaves_the_old_checkpoint),
        cmocka_unit_test(killed_at_any_moment_loses_nothing),
        cmocka_unit_test(lists_and_prunes),
    };
    if (scratch_make(NULL) != 0) return 1;
    const int failed = check_main("checkpoint", NULL, 0, tests, COUNT(tests));
    return scratch_remove(NULL) == 0 ? failed : 1;
}
