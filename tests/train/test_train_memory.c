/* What the plan of a run says it takes is what it takes: the peak of resident memory of some steps,
 * less that of a run that was made and does no step. Chunked training holds the memory of one
 * chunk. Each run is a process of its own, so that its peak is its own. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generate/fixture.h"

typedef struct course {
    const char      *name;
    const char      *preset;
    dra_train_config train;
} course;

static const course courses[] = {
    {"a context of 256", "dra-delta-tiny", {.batch = 4, .stages = 1, .stage = {{256, 0}}}},
    {"1024 in chunks of 256",
     "dra-delta-tiny",
     {.batch = 4, .stages = 1, .stage = {{1024, 0}}, .chunk = 256}},
    {"512, then 1024", "dra-delta-tiny", {.batch = 4, .stages = 2, .stage = {{512, 0}, {1024, 1}}}},
    {"carried", "dra-delta-tiny", {.batch = 4, .stages = 1, .stage = {{256, 0}}, .carry = true}},
    {"two microbatches, evaluated",
     "gpt2-tiny",
     {.batch = 8,
      .accumulate = 2,
      .stages = 1,
      .stage = {{256, 0}},
      .split = 0.5,
      .eval_every = 1}},
    {"chunks of items",
     "dra-gru-tiny",
     {.batch = 4, .stages = 1, .stage = {{512, 0}}, .chunk = 128}},
};

enum { STEPS = 3 };

/* In the child: the plan goes into the pipe. */
static int train(const course *c, int steps, const char *folder, const char *text, int to)
{
    const dra_cpu_config cpu = {.threads = 2};
    CHECK_CONFIG(config);
    dra_train_config        train = c->train;
    dra_device             *device = NULL;
    dra_tokenizer          *bytes = NULL;
    dra_corpus             *data = NULL;
    dra_model              *model = NULL;
    dra_trainer            *t = NULL;
    dra_trainer_plan        plan;
    const dra_corpus_config corpus = {.n = 1, .paths = &text, .separator = NULL};
    dra_corpus_config       own = corpus;
    train.steps = 100;
    dra_status st = dra_device_create_cpu(&cpu, &device, NULL);
    if (st == DRA_OK) st = dra_tokenizer_bytes(&bytes, NULL);
    own.tokenizer = bytes;
    if (st == DRA_OK) st = dra_corpus_open(&own, NULL, NULL, &data, NULL);
    if (st == DRA_OK) st = dra_preset_config(c->preset, &config, NULL);
    if (st == DRA_OK) config->context = 1024;
    if (st == DRA_OK) st = dra_model_create(config, &model, NULL);
    const dra_trainer_config tc = {.folder = folder,
                                   .train = &train,
                                   .device = device,
                                   .model = model,
                                   .data = data,
                                   .tokenizer = bytes,
                                   .force = true};
    if (st == DRA_OK) st = dra_trainer_create(&tc, &t, NULL);
    if (st == DRA_OK) st = dra_trainer_look(t, &plan, NULL);
    bool more;
    for (int i = 0; i < steps && st == DRA_OK; i++)
        st = dra_trainer_step(t, NULL, NULL, &more, NULL);
    const bool told = st == DRA_OK && write(to, &plan.activations, sizeof plan.activations) ==
                                          (ssize_t)sizeof plan.activations;
    return told ? 0 : 1;
}

/* Bytes at the peak; *plan: what was planned. */
static double peak(const course *c, int steps, double *plan)
{
    static int    number;
    const char   *text = in_scratch("long text");
    char          folder[300];
    int           fd[2], status = 0;
    size_t        planned = 0;
    struct rusage usage = {0};
    snprintf(folder, sizeof folder, "%s/run-%d", in_scratch("."), number++);
    assert_int_equal(pipe(fd), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(train(c, steps, folder, text, fd[1]));
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    if (status) fail_msg("%s: the run failed", c->name);
    assert_int_equal(read(fd[0], &planned, sizeof planned), (int)sizeof planned);
    close(fd[0]);
    close(fd[1]);
    *plan = (double)planned;
    return 1024.0 * (double)usage.ru_maxrss;
}

static void plans_are_what_runs_take(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(DRA_REAL_DOUBLE)
    skip(); /* shadow memory counts as well; doubles take minutes and show nothing more */
#endif
    FILE *f = fopen(in_scratch("long text"), "w");
    assert_non_null(f);
    for (int i = 0; i < 20000; i++) fprintf(f, "%d times %d is %d.\n", i, i % 7, i * (i % 7));
    fclose(f);
    for (size_t i = 0; i < COUNT(courses); i++) {
        double       plan;
        const double rest = peak(&courses[i], 0, &plan);
        const double took = peak(&courses[i], STEPS, &plan) - rest;
        print_message("# %s: planned %.1f MiB, took %.1f MiB\n", courses[i].name, plan / 0x1p20,
                      took / 0x1p20);
        /* 10 %: pages that are touched in part, and the lists of instructions on the host. */
        if (!(fabs(took - plan) <= 0.1 * plan))
            fail_msg("%s: planned %.1f MiB, took %.1f MiB", courses[i].name, plan / 0x1p20,
                     took / 0x1p20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_what_runs_take)};
    return cmocka_run_group_tests_name("train memory", tests, scratch_make, scratch_remove);
}
