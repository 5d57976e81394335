/* Ranks: the same bits on any number of them, resumed on any other, and all end where one does. */
#include <string.h>

#include "comm/board.h"
#include "generate/fixture.h"
#include "presets.h"

static const char *const story = "a small text of several documents,\nwith lines of its own\n--\n"
                                 "another one that is a little longer than the first of them\n--\n";

static char book[600]; /* what is read */

/* ---- a run of several ranks ------------------------------------------------------------------ */

typedef struct job { /* what all ranks are asked to do */
    const char             *preset, *text, *folder;
    const char *const      *settings;
    const dra_train_config *train[BOARD_RANKS]; /* by rank; NULL: that of rank 0 */
    int64_t                 stop;
    bool                    force;
    watcher                 seen[BOARD_RANKS];
    const char             *other;   /* the text of rank 1; NULL: the same */
    const char             *level;   /* of rank 1 */
    const char *const      *changed; /* settings of rank 1 */
} job;

static dra_status open_quietly(fixture *f, const job *j, int rank, dra_error *err)
{
    const bool           odd = rank == 1;
    const dra_cpu_config cpu = {.threads = 1, .level = odd ? j->level : NULL};
    CHECK_CONFIG(c);
    char               key[100];
    const char *const *settings = odd && j->changed ? j->changed : j->settings;
    const char        *path = odd && j->other ? j->other : j->text;
    *f = (fixture){0};
    dra_status st = check_cpu(&cpu, &f->device, err);
    if (st == DRA_OK) st = dra_tokenizer_bytes(&f->tokenizer, err);
    const dra_corpus_config corpus = {
        .n = 1, .paths = (const char *const[]){path}, .tokenizer = f->tokenizer, .separator = "--"};
    if (st == DRA_OK) st = dra_corpus_open(&corpus, NULL, NULL, &f->data, err);
    if (st == DRA_OK) st = dra_preset_config(j->preset, &c, err);
    if (st == DRA_OK && strncmp(j->preset, "xt-", 3) != 0)
        c->dim = 16, c->heads = 2; /* one scale goes with another */
    if (st == DRA_OK) c->depth = 1, c->context = 16;
    for (; st == DRA_OK && settings && *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *settings), *settings);
        st = dra_model_config_set(c, key, equals + 1, err);
    }
    return st == DRA_OK ? dra_model_create(c, &f->model, err) : st;
}

static void run_rank(board_seat *s)
{
    job         *j = s->user;
    fixture      f;
    dra_trainer *t = NULL;
    j->seen[s->rank] = (watcher){.stop = j->stop};
    s->status = open_quietly(&f, j, s->rank, &s->error);
    const dra_train_config *own = j->train[s->rank] ? j->train[s->rank] : j->train[0];
    dra_trainer_config      c = trainer_config(&f, j->folder, own);
    c.resume = !j->force;
    c.force = j->force;
    c.comm = s->board->n > 1 ? &s->comm : NULL;
    if (s->status == DRA_OK) s->status = dra_trainer_create(&c, &t, &s->error);
    if (s->status == DRA_OK) s->status = dra_trainer_run(t, watch, &j->seen[s->rank], &s->error);
    dra_trainer_destroy(t);
    close_fixture(&f);
}

static void train_on(int n, job *j)
{
    board b = board_of(n);
    board_run(&b, run_rank, j);
    for (int r = 0; r < n; r++)
        if (b.seat[r].status != DRA_OK) fail_msg("rank %d of %d: %s", r, n, b.seat[r].error.text);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static const struct row {
    const char      *name, *settings[4];
    dra_train_config c;
} ways[] = {
    {"plain", {0}, {.split = 0.2}},
    {"two rows", {0}, {.batch = 16}},
    {"carry", {0}, {.carry = true, .chunk = 5}},
    {"dropout", {"dropout=0.2"}, {.state_dropout = 0.1}},
};

/* Whether a preset can be trained in a way alone: some do not carry states, or have no dropout. */
static bool trains_alone(job *j)
{
    board b = board_of(1);
    board_run(&b, run_rank, j);
    return b.seat[0].status == DRA_OK;
}

/* false: it cannot be trained so. */
static bool same_on(const struct row *way, const char *preset, int n, int64_t leaves)
{
    char             folder[120], alone[100];
    dra_train_config c = way->c;
    c.steps = 3;
    if (!c.batch) c.batch = leaves;
    c.accumulate = leaves;
    c.log_every = 1;
    c.seed = 3;
    job j = {.preset = preset, .settings = way->settings, .train = {&c}, .text = book};
    snprintf(alone, sizeof alone, "%s.%s.%d", preset, way->name, (int)leaves);
    snprintf(folder, sizeof folder, "%s.on.%d", alone, n);
    j.folder = in_scratch(alone);
    if (!in_run(j.folder, "model.safetensors") && !trains_alone(&j)) return false;
    j.folder = in_scratch(folder);
    train_on(n, &j);
    for (int r = 1; r < n; r++)
        if (memcmp(&j.seen[r].last.loss, &j.seen[0].last.loss, sizeof(double)) != 0)
            fail_msg("rank %d has another loss", r);
    expect_same_step(in_scratch(alone), in_scratch(folder), 3, c.carry);
    return true;
}

/* All numbers of ranks for one preset. */
static void any_number_of_ranks_has_the_same_bits(void **state)
{
    static const int ranks[] = {2, 3, 4, 7, 8};
    for (size_t w = 0; w < COUNT(ways); w++)
        for (size_t k = 0; k < COUNT(ranks); k++) same_on(&ways[w], "rwkv4-tiny", ranks[k], 8);
    for (int n = 2; n <= 5; n++) same_on(&ways[0], "dra-gru-tiny", n, 5); /* no power of two */
}

/* All presets, on a number of ranks that divides nothing. */
static void all_presets_have_the_same_bits(void **state)
{
    const dra_preset *p;
    int               trained = 0;
    for (size_t i = 0; (p = dra_preset_at(i)); i++)
        if (preset_reads_in_parts(p->name)) trained += same_on(*state, p->name, 3, 4);
    assert_in_range(trained, 8, 100);
}

/* ---- stopped and resumed --------------------------------------------------------------------- */

static const struct row resumed[] = {
    {"resumed", {0}, {.split = 0.2, .eval_every = 4}},
    {"resumed with states", {0}, {.carry = true, .chunk = 5}},
};

/* A run goes on with any number of ranks, from wherever it was stopped. */
static void goes_on_with_any_number_of_ranks(void **state)
{
    static const int  ranks[] = {4, 1, 3, 8, 2};
    const struct row *way = *state;
    char              whole[100], parts[100];
    dra_train_config  c = way->c;
    c.steps = 10, c.batch = 8, c.accumulate = 8, c.log_every = 1, c.seed = 3;
    job j = {.preset = "dra-delta-tiny", .settings = way->settings, .train = {&c}, .text = book};
    snprintf(whole, sizeof whole, "%s.whole", way->name);
    snprintf(parts, sizeof parts, "%s.parts", way->name);
    j.folder = in_scratch(whole);
    train_on(1, &j);
    j.folder = in_scratch(parts);
    for (size_t k = 0; k < COUNT(ranks); k++) {
        j.stop = 2 * ((int64_t)k + 1);
        train_on(ranks[k], &j);
        assert_int_equal(j.seen[0].last.step, j.stop);
    }
    expect_same_step(in_scratch(whole), in_scratch(parts), 10, c.carry);
    if (c.split > 0) expect_same(in_scratch(whole), in_scratch(parts), "best/model.safetensors");
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* All ranks fail; returns the error of rank 0. */
static const char *fail_on(board *b, job *j)
{
    static dra_error err;
    board_run(b, run_rank, j);
    for (int r = 0; r < b->n; r++)
        if (b->seat[r].status == DRA_OK) fail_msg("rank %d of %d has not failed", r, b->n);
    err = b->seat[0].error;
    return err.text;
}

static job job_of(const dra_train_config *c, const char *folder)
{
    return (job){.preset = "dra-gru-tiny", .text = book, .train = {c}, .folder = folder};
}

/* One that ends, at whatever call, ends all; what was saved goes on to the same bits. */
static void all_end_where_one_ends(void **state)
{
    dra_train_config c = {.steps = 4, .batch = 3, .accumulate = 3, .save_every = 1, .seed = 3};
    job              j = job_of(&c, in_scratch("ends.whole"));
    char             folder[40];
    bool             done = false;
    train_on(1, &j);
    for (int at = 0; !done; at += 5) {
        board b = board_of(3);
        b.ends = at % 3;
        b.at = at;
        snprintf(folder, sizeof folder, "ends.%d", at);
        j.folder = in_scratch(folder);
        board_run(&b, run_rank, &j);
        done = b.seat[0].status == DRA_OK && b.seat[1].status == DRA_OK;
        for (int r = 0; r < 3 && !done; r++) {
            char expected[40];
            snprintf(expected, sizeof expected,
                     r == b.ends ? "this rank ends" : "rank %d has ended", b.ends);
            if (!strstr(b.seat[r].error.text, expected))
                fail_msg("call %d: rank %d: %s", at, r, b.seat[r].error.text);
        }
        train_on(1 + at % 3, &j);
        expect_same_step(in_scratch("ends.whole"), in_scratch(folder), 4, false);
        if (at > 300) fail_msg("%d calls in 4 steps", at);
    }
}

static void expect_text(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("found: %s", text);
}

/* What differs between ranks, or does not go, is one error, and leaves no folder. */
static void ranks_that_differ_are_refused(void **state)
{
    dra_train_config c = {.steps = 2, .batch = 4}, other = c;
    job              j = job_of(&c, in_scratch("refused"));
    board            b = board_of(2);
    other.lr = 0.1;
    j.train[1] = &other;
    expect_text(fail_on(&b, &j), "rank 1: its settings are not that of rank 0");
    j = job_of(&c, in_scratch("refused"));
    j.other = put_text("other", "another text; ", 90);
    expect_text(fail_on(&b, &j), "rank 1: its data is not that of rank 0");
    j = job_of(&c, in_scratch("refused"));
    j.changed = (const char *const[]){"depth=2", NULL};
    expect_text(fail_on(&b, &j), "rank 1: its model is not that of rank 0");
    other = c, other.accumulate = 2;
    j = job_of(&other, in_scratch("refused"));
    b = board_of(3);
    expect_text(fail_on(&b, &j), "train: 3 ranks, but accumulate is 2: each needs a microbatch");
    assert_false(in_run(scratch, "refused"));
}

static void other_levels_are_refused(void **state)
{
    dra_train_config c = {.steps = 2, .batch = 4};
    job              j = job_of(&c, in_scratch("level"));
    board            b = board_of(2);
    if (getenv("DRA_TEST_DEVICE") || strcmp(dra_device_level_at(0), "ref") == 0) skip();
    j.level = "ref";
    expect_text(fail_on(&b, &j), "rank 1: its level of kernels is ref, expected that of rank 0");
    assert_false(in_run(scratch, "level"));
}

/* Without a word about it, a new run has a microbatch for each rank. */
static void each_rank_gets_a_microbatch(void **state)
{
    dra_train_config c = {.steps = 2, .batch = 4}, told = c;
    job              j = job_of(&c, in_scratch("each.4"));
    train_on(4, &j);
    told.accumulate = 4;
    j = job_of(&told, in_scratch("each.1"));
    train_on(1, &j);
    expect_same_step(in_scratch("each.1"), in_scratch("each.4"), 2, false);
}

/* Any rank may be told to stop; then all do, and the run is saved. */
static bool stop_here(void *user, const dra_event *e)
{
    return e->kind != DRA_EVENT_STEP || e->step < *(const int64_t *)user;
}

static void run_until_stopped(board_seat *s)
{
    job          *j = s->user;
    fixture       f;
    dra_trainer  *t = NULL;
    const int64_t stop = s->rank == 2 ? 3 : 100;
    s->status = open_quietly(&f, j, s->rank, &s->error);
    dra_trainer_config c = trainer_config(&f, j->folder, j->train[0]);
    c.comm = &s->comm;
    if (s->status == DRA_OK) s->status = dra_trainer_create(&c, &t, &s->error);
    if (s->status == DRA_OK)
        s->status = dra_trainer_run(t, stop_here, (void *)(uintptr_t)&stop, &s->error);
    dra_trainer_destroy(t);
    close_fixture(&f);
}

static void any_rank_stops_all(void **state)
{
    dra_train_config c = {.steps = 9, .batch = 3};
    job              j = job_of(&c, in_scratch("stopped"));
    board            b = board_of(3);
    board_run(&b, run_until_stopped, &j);
    for (int r = 0; r < 3; r++) assert_int_equal(b.seat[r].status, DRA_OK);
    assert_int_equal(dra_trainer_saved(in_scratch("stopped")), 3);
}

static int prepare(void **state)
{
    const int failed = scratch_make(state);
    snprintf(book, sizeof book, "%s", put_text("text", story, 9));
    return failed;
}

int main(void)
{
    struct CMUnitTest tests[20] = {
        cmocka_unit_test(any_number_of_ranks_has_the_same_bits),
        cmocka_unit_test(all_end_where_one_ends),
        cmocka_unit_test(ranks_that_differ_are_refused),
        cmocka_unit_test(other_levels_are_refused),
        cmocka_unit_test(each_rank_gets_a_microbatch),
        cmocka_unit_test(any_rank_stops_all),
    };
    size_t n = 6;
    for (size_t w = 0; w < COUNT(resumed); w++)
        tests[n++] = (struct CMUnitTest){resumed[w].name, goes_on_with_any_number_of_ranks, NULL,
                                         NULL, (void *)(uintptr_t)&resumed[w]};
    for (size_t w = 0; w < COUNT(ways); w++)
        tests[n++] = (struct CMUnitTest){ways[w].name, all_presets_have_the_same_bits, NULL, NULL,
                                         (void *)(uintptr_t)&ways[w]};
    if (prepare(NULL) != 0) return 1;
    const int failed = check_main("ranks", NULL, 0, tests, n);
    return scratch_remove(NULL) == 0 ? failed : 1;
}
