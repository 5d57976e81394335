/* States by name: begun from, saved, forked, deleted, in files; a job never changes the one it
 * begins from. */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "generate/engine.h"
#include "sequence/states.h"
#include "serving.h"

enum { NAMES = 1000 };

static const char path[] = "test_engine_states.state";

static dra_job_config job_of(size_t n, const int32_t *ids, int64_t tokens)
{
    return (dra_job_config){.n = n,
                            .ids = ids,
                            .tokens = tokens,
                            .logprobs = 1,
                            .sampler = {.temperature = 0.8, .seed = 4, .repetition_penalty = 1.1}};
}

static void count_state(void *user, const dra_state_info *s)
{
    char        *names = user;
    const size_t n = strlen(names);
    snprintf(names + n, NAMES - n, "%s ", s->name);
    assert_true(s->tokens > 0 && s->bytes > 0 && s->created > 1e9 && s->used >= s->created);
}

static void expect_names(dra_engine *e, const char *expected)
{
    char names[NAMES] = "";
    dra_engine_states(e, count_state, names);
    assert_string_equal(names, expected);
}

static void do_job(dra_engine *e, dra_job_kind kind, const char *state, const char *save)
{
    answer a = {0};
    run_one(e, (dra_job_config){.kind = kind, .state = state, .save = save, .path = path}, &a);
}

/* The first tokens of a text, then the rest from their state: as the text at once; and as a
 * generator goes on from the file. */
static void continues(const char *preset)
{
    int32_t ids[90];
    answer  a = {0}, b = {0}, again = {0};
    subject s;
    open_subject(&s, preset);
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, 90, 1);
    dra_job_config c = job_of(64, ids, 0);
    c.save = "start";
    run_one(e, c, &a);
    assert_int_equal(a.n, 0);
    c = job_of(26, ids + 64, 12);
    c.state = "start";
    c.save = "more";
    run_one(e, c, &a);
    run_one(e, job_of(90, ids, 12), &b);
    expect_answer(preset, &a, &b);
    run_one(e, c, &again); /* what it begins from is as it was */
    expect_answer(preset, &again, &a);
    expect_names(e, "more start ");
    do_job(e, DRA_JOB_FORK, "more", "twig");
    do_job(e, DRA_JOB_DELETE, "more", NULL);
    expect_names(e, "start twig ");
    c = job_of(0, NULL, 10);
    c.state = "twig";
    run_one(e, c, &a);
    /* A file is what a generator loads, and the other way round. */
    do_job(e, DRA_JOB_EXPORT, "twig", NULL);
    const dra_generator_config gc = {.model = s.model,
                                     .weights = s.weights,
                                     .device = s.device,
                                     .tokenizer = s.tokenizer,
                                     .sampler = c.sampler};
    const dra_generate_config  gen = {.tokens = 10, .logprobs = 1};
    dra_generator             *g;
    dra_generated              out;
    dra_error                  err = {0};
    expect_ok(dra_generator_create(&gc, &g, &err), &err);
    expect_ok(dra_generator_load(g, path, &err), &err);
    expect_ok(dra_generate(g, &gen, &out, &err), &err);
    assert_int_equal(out.n, a.n);
    assert_memory_equal(out.ids, a.ids, a.n * sizeof *a.ids);
    assert_true(fabs(out.logprobs[0].logprob - a.logprob[0]) < 1e-12);
    expect_ok(dra_generator_save(g, path, &err), &err);
    do_job(e, DRA_JOB_IMPORT, NULL, "back");
    expect_ok(dra_generate(g, &gen, &out, &err), &err);
    c.state = "back";
    run_one(e, c, &b);
    assert_int_equal(out.n, b.n);
    assert_memory_equal(out.ids, b.ids, b.n * sizeof *b.ids);
    unlink(path);
    dra_generator_destroy(g);
    dra_engine_destroy(e);
    close_subject(&s);
}

static void states_continue(void **state)
{
    for (int i = 0; i < SERVED; i++) continues(served[i]);
}

static void only_what_is_done_is_saved(void **state)
{
    int32_t   ids[90];
    answer    a = {0}, b = {0};
    subject   s;
    uint64_t  id;
    dra_error err = {0};
    open_subject(&s, "rwkv4-tiny");
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, 90, 1);
    dra_job_config c = job_of(90, ids, 40);
    c.save = "s";
    id = submit(e, c, &a);
    step(e);
    step(e);
    dra_engine_cancel(e, id);
    run(e);
    expect_names(e, "");
    c.tokens = 3;
    run_one(e, c, &a);
    expect_names(e, "s ");
    /* Held by a job that waits, a state is there though its name is gone. */
    c = job_of(0, NULL, 5);
    c.state = "s";
    submit(e, c, &a);
    submit(e, (dra_job_config){.kind = DRA_JOB_DELETE, .state = "s"}, &b);
    run(e);
    assert_int_equal(a.result.end, DRA_JOB_DONE);
    assert_int_equal(a.n, 5);
    expect_names(e, "");
    assert_int_equal(dra_engine_stats_of(e).states, 0);
    /* Files that are none. */
    answer f = {0};
    submit(e, (dra_job_config){.kind = DRA_JOB_IMPORT, .save = "x", .path = "no/such"}, &f);
    run(e);
    assert_int_equal(f.result.end, DRA_JOB_FAILED);
    assert_int_equal(f.result.error.code, DRA_ERR_FILE);
    c = (dra_job_config){.kind = DRA_JOB_EXPORT, .state = "x", .path = path};
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_NAME);
    dra_engine_destroy(e);
    close_subject(&s);
}

typedef struct gaze {
    dra_engine *e;
    uint64_t    id;
    int         calls;
    double      norm;
} gaze;

static bool look_on(void *user, const dra_job_token *t)
{
    gaze    *g = user;
    dra_look l;
    for (int i = 0; dra_engine_look_at(g->e, g->id, NULL, i, &l); i++) {
        assert_true(l.heads >= 1 && l.name[0]);
        for (int64_t h = 0; h < l.heads; h++) {
            assert_true(isfinite(l.norm[h]));
            g->norm += (double)l.norm[h];
        }
        g->calls++;
    }
    return true;
}

static void looks(void **state)
{
    int32_t ids[20];
    subject s;
    answer  a = {0};
    for (int i = 0; i < SERVED; i++) {
        gaze      g = {0};
        dra_error err = {0};
        dra_look  l;
        open_subject(&s, served[i]);
        g.e = open_engine(&s, NULL);
        make_prompt(ids, 20, i);
        dra_job_config c = job_of(20, ids, 3);
        c.token = look_on;
        c.user = &g;
        g.id = 1;
        expect_ok(dra_engine_submit(g.e, &c, &g.id, &err), &err);
        run(g.e);
        assert_true(g.calls >= 3 && g.norm > 0);
        c = job_of(20, ids, 0);
        c.save = "seen";
        run_one(g.e, c, &a);
        assert_true(dra_engine_look_at(g.e, 0, "seen", 0, &l));
        assert_false(dra_engine_look_at(g.e, 0, "other", 0, &l));
        assert_false(dra_engine_look_at(g.e, 99, NULL, 0, &l));
        dra_engine_destroy(g.e);
        close_subject(&s);
    }
}

/* How long files may take, on however slow a disk. */
enum { FILES_MS = 120000 };

static void step_beside_files(dra_engine *e)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    step(e);
    nanosleep(&ms, NULL);
}

static void note_wake(void *user) { atomic_store((atomic_bool *)user, true); }

/* Where somebody is woken up files are read and written beside the steps, in the order in which
 * they were asked for; others write on. */
static void files_beside_steps(void **state)
{
    enum { FILES = 3 };
    int32_t     ids[60];
    answer      a = {0}, again = {0}, b = {0}, jobs[2 * FILES] = {0};
    char        names[FILES][16];
    atomic_bool woken = false;
    subject     s;
    open_subject(&s, "hybrid-tiny");
    dra_engine *e = open_engine(&s, NULL);
    dra_engine_on_wake(e, note_wake, &woken);
    make_prompt(ids, 60, 1);
    dra_job_config c = job_of(60, ids, 0);
    c.save = "start";
    run_one(e, c, &a);
    for (int i = 0; i < FILES; i++) { /* each file is what the one before was read as */
        snprintf(names[i], sizeof names[i], "copy%d", i);
        submit(e, (dra_job_config){.kind = DRA_JOB_EXPORT, .state = "start", .path = path},
               &jobs[2 * i]);
        submit(e, (dra_job_config){.kind = DRA_JOB_IMPORT, .save = names[i], .path = path},
               &jobs[2 * i + 1]);
    }
    submit(e, job_of(60, ids, 40), &b);
    for (int i = 0; i < FILES_MS && !jobs[2 * FILES - 1].ends; i++) step_beside_files(e);
    assert_int_equal(jobs[2 * FILES - 1].ends, 1);
    for (int i = 0; i < 2 * FILES; i++) assert_int_equal(jobs[i].result.end, DRA_JOB_DONE);
    while (!b.ends) step(e);
    assert_int_equal(b.n, 40);
    assert_true(atomic_load(&woken));
    expect_names(e, "copy0 copy1 copy2 start ");
    c = job_of(0, NULL, 10);
    c.state = "start";
    submit(e, c, &a);
    while (!a.ends) step(e);
    c.state = "copy2";
    submit(e, c, &again);
    while (!again.ends) step(e);
    expect_answer("read back", &again, &a);
    submit(e, (dra_job_config){.kind = DRA_JOB_EXPORT, .state = "start", .path = path}, &jobs[0]);
    step(e); /* under way when the engine ends, which waits for it */
    dra_engine_destroy(e);
    assert_int_equal(jobs[0].ends, 1);
    unlink(path);
    close_subject(&s);
}

/* ---- large states ---------------------------------------------------------------------------- */

enum { TOKENS = 640, SLICE = 32 << 10 };

typedef struct slices { /* what steps have copied, and what was written beside them */
    size_t  n, most, bytes;
    int64_t mute; /* steps that copied, of those that wrote nothing */
} slices;

/* Steps until a job has ended, while another one writes. */
static slices count_slices(dra_engine *e, const answer *job, const answer *stream)
{
    slices x = {0};
    for (int i = 0; i < FILES_MS && !job->ends; i++) {
        const size_t before = dra_engine_stats_of(e).copied, n = stream->n;
        step_beside_files(e);
        const size_t bytes = dra_engine_stats_of(e).copied - before;
        x.n += bytes > 0;
        x.bytes += bytes;
        x.most = bytes > x.most ? bytes : x.most;
        x.mute += bytes > 0 && stream->n == n && !stream->ends;
    }
    assert_int_equal(job->ends, 1);
    if (job->result.end != DRA_JOB_DONE) fail_msg("%s", job->result.error.text);
    return x;
}

static void finish_job(dra_engine *e, const answer *a)
{
    while (!a->ends) step(e);
    if (a->result.end != DRA_JOB_DONE) fail_msg("%s", a->result.error.text);
}

/* A state is copied for its file a slice in each step, in which others write a token, and what
 * becomes of its name, of rows that share its pages and of the pool changes nothing. `whole`: of
 * what a slice ends with. */
static void copies_in_slices(const char *preset, size_t whole)
{
    static int32_t ids[TOKENS];
    answer         a = {0}, b = {0}, stream = {0}, other = {0}, file = {0};
    atomic_bool    woken = false;
    subject        s;
    open_subject(&s, preset);
    dra_engine *e = open_engine(&s, &(dra_engine_config){.slice = SLICE, .forget = true});
    dra_engine_on_wake(e, note_wake, &woken);
    make_prompt(ids, TOKENS, 1);
    dra_job_config c = job_of(TOKENS, ids, 0);
    c.save = "large";
    submit(e, c, &a);
    finish_job(e, &a);
    c = job_of(0, NULL, 10);
    c.state = "large";
    submit(e, c, &a);
    finish_job(e, &a);
    c = job_of(20, ids + 7, ANSWER);
    c.ignore_end = true;
    submit(e, c, &stream);
    step(e);
    submit(e, (dra_job_config){.kind = DRA_JOB_EXPORT, .state = "large", .path = path}, &file);
    step(e);
    c = job_of(30, ids, 30); /* writes into the page that both have */
    c.state = "large";
    submit(e, c, &other);
    submit(e, (dra_job_config){.kind = DRA_JOB_DELETE, .state = "large"}, &b);
    slices x = count_slices(e, &file, &stream);
    x.bytes = x.n ? dra_engine_stats_of(e).copied : 0;
    print_message("%s: saved %zu bytes in %zu steps, %zu at most\n", preset, x.bytes, x.n, x.most);
    assert_true(x.bytes > 0 && x.most <= SLICE + whole && x.mute == 0);
    assert_true((x.n + 1) * (SLICE + whole) >= x.bytes);
    finish_job(e, &stream);
    finish_job(e, &other);
    expect_names(e, "");
    c = job_of(20, ids + 7, ANSWER);
    c.ignore_end = true;
    submit(e, c, &stream);
    submit(e, (dra_job_config){.kind = DRA_JOB_IMPORT, .save = "back", .path = path}, &file);
    x = count_slices(e, &file, &stream);
    print_message("%s: loaded %zu bytes in %zu steps, %zu at most\n", preset, x.bytes, x.n, x.most);
    assert_true(x.bytes > 0 && x.most <= SLICE + whole && x.mute == 0);
    assert_true(x.n * (SLICE + whole) >= x.bytes);
    finish_job(e, &stream);
    c = job_of(0, NULL, 10);
    c.state = "back";
    submit(e, c, &b);
    finish_job(e, &b);
    expect_answer(preset, &b, &a);
    unlink(path);
    dra_engine_destroy(e);
    close_subject(&s);
}

static void large_states_in_slices(void **state)
{
    /* Pages of 64 tokens, of keys and values in two layers; tensors of a fixed size. */
    const size_t page = DRA_ENGINE_CUT * 2 * 2 * 24 * sizeof(dra_real);
    copies_in_slices("gpt2-tiny", page);
    copies_in_slices("hybrid-tiny", page);
    copies_in_slices("rwkv4-tiny", page);
}

/* States that fill the memory make no pool grow, which would stop all who write. */
static void pools_have_their_memory(void **state)
{
    static int32_t ids[TOKENS];
    enum { LIMIT = sizeof(dra_real) << 20 };
    answer  a = {0};
    subject s;
    open_subject(&s, "gpt2-tiny");
    dra_engine   *e = open_engine(&s, &(dra_engine_config){.memory_limit = LIMIT});
    const int64_t size = dra_pool_size(e->lane[0].pool);
    for (int i = 0; i < 14; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        make_prompt(ids, TOKENS, 37 * i + 1);
        ids[0] = i;
        dra_job_config c = job_of(TOKENS, ids, 0);
        c.save = name;
        run_one(e, c, &a);
    }
    assert_true(dra_engine_stats_of(e).state_bytes > LIMIT * 3 / 4);
    if (!check_apart() && !check_cuda()) assert_int_equal(dra_pool_size(e->lane[0].pool), size);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* An engine that ends while a state is copied ends the job, too. */
static void ends_between_slices(void **state)
{
    int32_t     ids[90];
    answer      a = {0}, file = {0}, back = {0};
    atomic_bool woken = false;
    subject     s;
    open_subject(&s, "gpt2-tiny");
    dra_engine *e = open_engine(&s, &(dra_engine_config){.slice = 1});
    dra_engine_on_wake(e, note_wake, &woken);
    make_prompt(ids, 90, 1);
    dra_job_config c = job_of(90, ids, 0);
    c.save = "s";
    submit(e, c, &a);
    finish_job(e, &a);
    submit(e, (dra_job_config){.kind = DRA_JOB_EXPORT, .state = "s", .path = path}, &file);
    submit(e, (dra_job_config){.kind = DRA_JOB_IMPORT, .save = "t", .path = path}, &back);
    for (int i = 0; i < FILES_MS && !file.ends; i++) step_beside_files(e);
    const size_t saved = dra_engine_stats_of(e).copied;
    for (int i = 0; i < FILES_MS && dra_engine_stats_of(e).copied <= saved; i++)
        step_beside_files(e);
    assert_int_equal(back.ends, 0);
    dra_engine_destroy(e);
    assert_int_equal(back.ends, 1);
    unlink(path);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_continue),
        cmocka_unit_test(only_what_is_done_is_saved),
        cmocka_unit_test(looks),
        cmocka_unit_test(files_beside_steps),
        cmocka_unit_test(large_states_in_slices),
        cmocka_unit_test(ends_between_slices),
        cmocka_unit_test(pools_have_their_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
