/* Small runs for tests: a model, a text, a folder, and a run until some step. */
#ifndef DRA_TESTS_GENERATE_FIXTURE_H
#define DRA_TESTS_GENERATE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "dra/file.h"
#include "dra/train.h"
#include "train/train.h"

static char scratch[200]; /* a folder of this program's own */

static inline void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* A path in the folder; good for the next eight calls. */
static inline const char *in_scratch(const char *name)
{
    static char paths[8][600];
    static int  next;
    char       *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static inline void shell(const char *format, const char *a, const char *b)
{
    char command[1500];
    snprintf(command, sizeof command, format, a, b);
    if (system(command) != 0) fail_msg("%s", command);
}

static inline int scratch_make(void **state)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/dra-runs-%ld", base ? base : "/tmp", (long)getpid());
    shell("rm -rf '%s' && mkdir '%s'", scratch, scratch);
    return 0;
}

static inline int scratch_remove(void **state)
{
    shell("rm -rf '%s%s'", scratch, "");
    return 0;
}

static inline const char *put_text(const char *name, const char *text, int times)
{
    const char *path = in_scratch(name);
    FILE       *f = fopen(path, "w");
    assert_non_null(f);
    while (times--) fputs(text, f);
    fclose(f);
    return path;
}

/* ---- what a run works with ------------------------------------------------------------------- */

typedef struct fixture {
    dra_device    *device;
    dra_tokenizer *tokenizer;
    dra_corpus    *data;
    dra_model     *model;
} fixture;

/* settings: "key=value" ... NULL, over a preset that is made small; "watch=BITS" as well. */
static inline void open_fixture(fixture *f, const char *preset, const char *const *settings,
                                const char *path)
{
    const dra_cpu_config cpu = {.threads = 2};
    CHECK_CONFIG(c);
    dra_error err = {0};
    char      key[100];
    expect_ok(check_cpu(&cpu, &f->device, &err), &err);
    expect_ok(dra_tokenizer_bytes(&f->tokenizer, &err), &err);
    const dra_corpus_config corpus = {
        .n = 1, .paths = (const char *const[]){path}, .tokenizer = f->tokenizer, .separator = "--"};
    expect_ok(dra_corpus_open(&corpus, NULL, NULL, &f->data, &err), &err);
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    c->dim = 16;
    c->heads = 2;
    c->depth = 2;
    c->context = 16;
    for (; settings && *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *settings), *settings);
        if (strcmp(key, "watch") == 0)
            c->aux = (uint32_t)strtoul(equals + 1, NULL, 10);
        else
            expect_ok(dra_model_config_set(c, key, equals + 1, &err), &err);
    }
    expect_ok(dra_model_create(c, &f->model, &err), &err);
}

static inline void close_fixture(fixture *f)
{
    dra_model_destroy(f->model);
    dra_corpus_close(f->data);
    dra_tokenizer_destroy(f->tokenizer);
    dra_device_destroy(f->device);
}

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct watcher {
    int64_t   stop; /* after this step; 0: never */
    int       events[4];
    dra_event first, last;
} watcher;

static inline bool watch(void *user, const dra_event *e)
{
    watcher *w = user;
    w->events[e->kind]++;
    if (e->kind == DRA_EVENT_STEP && w->first.step == 0) w->first = *e;
    w->last = *e;
    return w->stop == 0 || e->step < w->stop;
}

static inline dra_trainer_config trainer_config(const fixture *f, const char *folder,
                                                const dra_train_config *train)
{
    return (dra_trainer_config){.folder = folder,
                                .train = train,
                                .device = f->device,
                                .model = f->model,
                                .data = f->data,
                                .tokenizer = f->tokenizer};
}

/* Runs until it is done or step `stop` is; resumes if the folder holds a run. */
static inline watcher run_until(const fixture *f, const char *folder, const dra_train_config *train,
                                int64_t stop)
{
    watcher            w = {.stop = stop};
    dra_trainer       *t = NULL;
    dra_error          err = {0};
    dra_trainer_config c = trainer_config(f, folder, train);
    c.resume = true;
    expect_ok(dra_trainer_create(&c, &t, &err), &err);
    expect_ok(dra_trainer_run(t, watch, &w, &err), &err);
    dra_trainer_destroy(t);
    return w;
}

static inline size_t read_file(const char *folder, const char *name, char **data)
{
    char      path[1000];
    size_t    bytes = 0;
    dra_error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    expect_ok(dra_file_read(path, 1 << 28, data, &bytes, &err), &err);
    return bytes;
}

/* Both runs hold the same bytes under a name. */
static inline void expect_same(const char *a, const char *b, const char *name)
{
    char        *x = NULL, *y = NULL;
    const size_t n = read_file(a, name, &x), m = read_file(b, name, &y);
    if (n != m || memcmp(x, y, n) != 0) fail_msg("%s differs between %s and %s", name, a, b);
    free(x);
    free(y);
}

/* Weights, moments and, where they are carried, states of the checkpoint of a step. */
static inline void expect_same_step(const char *a, const char *b, int64_t step, bool states)
{
    char name[80];
    expect_same(a, b, "model.safetensors");
    snprintf(name, sizeof name, "train/step-%08lld/optimizer.safetensors", (long long)step);
    expect_same(a, b, name);
    snprintf(name, sizeof name, "train/step-%08lld/states.safetensors", (long long)step);
    if (states) expect_same(a, b, name);
}

static inline bool in_run(const char *folder, const char *name)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

#endif
