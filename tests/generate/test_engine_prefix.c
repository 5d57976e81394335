/* Kept states: prompts that begin alike are read once, and no bit tells. */
#include "generate/engine.h"
#include "sequence/states.h"
#include "serving.h"

enum { LONG = 1300 };

static dra_job_config job_of(size_t n, const int32_t *ids)
{
    return (dra_job_config){
        .n = n, .ids = ids, .tokens = 6, .logprobs = 1, .sampler = {.temperature = 0.8, .seed = 9}};
}

/* The answer to a prompt of an engine that knows nothing else. */
static void ask_alone(const subject *s, size_t n, const int32_t *ids, answer *a)
{
    dra_engine *e = open_engine(s, NULL);
    run_one(e, job_of(n, ids), a);
    assert_int_equal(a->result.cached_tokens, 0);
    dra_engine_destroy(e);
}

typedef struct ask {
    size_t  n;           /* tokens of the prompt */
    size_t  same;        /* of them like the first */
    int64_t any, blocks; /* reused: where any cut will do, and where multiples of 64 do */
} ask;

static void reuses(const char *preset)
{
    static const ask asks[] = {
        {1300, 1300, 0, 0},       {1300, 1300, 1299, 1280}, {1300, 1299, 1299, 1280},
        {1300, 1200, 1024, 1024}, {700, 700, 512, 512},     {700, 600, 699, 640},
        {400, 400, 0, 0},         {64, 64, 0, 0},           {64, 64, 63, 0},
        {65, 65, 64, 64},         {30, 30, 0, 0},           {30, 30, 29, 0},
    };
    static int32_t first[LONG], ids[LONG];
    static answer  alone, a;
    subject        s;
    int64_t        read = 0, reused = 0;
    open_subject(&s, preset);
    const bool  any = dra_model_cut(s.model) == 1;
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(first, LONG, 0);
    for (size_t k = 0; k < sizeof asks / sizeof *asks; k++) {
        const ask *q = &asks[k];
        char       what[100];
        snprintf(what, sizeof what, "%s, prompt %zu", preset, k);
        memcpy(ids, first, q->n * sizeof *ids);
        for (size_t i = q->same; i < q->n; i++) ids[i] = 255 - first[i];
        if (k == 5) memcpy(ids, first, 700 * sizeof *ids); /* asked before */
        ask_alone(&s, q->n, ids, &alone);
        run_one(e, job_of(q->n, ids), &a);
        expect_answer(what, &a, &alone);
        const int64_t same = k == 5 ? 700 : (int64_t)q->same, most = (int64_t)q->n - 1;
        const int64_t cut = k == 0 ? 0 : same < most ? same : most;
        const int64_t expected = e->cuts ? cut : any ? q->any : q->blocks;
        if (a.result.cached_tokens != expected)
            fail_msg("%s: %lld tokens reused, expected %lld", what,
                     (long long)a.result.cached_tokens, (long long)expected);
        read += (int64_t)q->n - expected;
        reused += expected;
    }
    const dra_engine_stats st = dra_engine_stats_of(e);
    assert_int_equal(st.tokens_read, read);
    assert_int_equal(st.tokens_reused, reused);
    dra_engine_destroy(e);
    close_subject(&s);
}

static void prompts_that_begin_alike(void **state)
{
    for (int i = 0; i < SERVED; i++) reuses(served[i]);
}

/* Different questions after one instruction, one after another and at once. */
static void one_instruction_many_questions(void **state)
{
    enum { INSTRUCTION = 118, ALL = 150, ASKED = 5 };
    static int32_t ids[ASKED][ALL];
    static answer  a[ASKED], alone;
    subject        s;
    open_subject(&s, "gpt2-tiny");
    for (int at_once = 0; at_once < 2; at_once++) {
        dra_engine *e = open_engine(&s, NULL);
        for (int k = 0; k < ASKED; k++) {
            make_prompt(ids[k], ALL, 7);
            for (int i = INSTRUCTION; i < ALL; i++) ids[k][i] = (i + 31 * k) % 256;
            submit(e, job_of(ALL, ids[k]), &a[k]);
            if (!at_once) run(e);
        }
        run(e);
        for (int k = 0; k < ASKED; k++) {
            ask_alone(&s, ALL, ids[k], &alone);
            expect_answer("question", &a[k], &alone);
            if (k && a[k].result.cached_tokens < INSTRUCTION)
                fail_msg("question %d, %d: %lld tokens reused", k, at_once,
                         (long long)a[k].result.cached_tokens);
        }
        dra_engine_destroy(e);
    }
    close_subject(&s);
}

/* The same of states that cannot be cut: one is kept where prompts are said to part, or after two
 * of them did. Owners see nothing of each other. */
static void instructions_of_states(void **state)
{
    enum { INSTRUCTION = 118, ALL = 150, ASKED = 4 };
    static const char *const presets[] = {"rwkv4-tiny", "dra-delta-tiny"};
    static int32_t           ids[ALL];
    static answer            a, alone;
    for (int i = 0; i < 4; i++) {
        subject s;
        open_subject(&s, presets[i / 2]);
        const bool    marked = i % 2;
        const int64_t cut = dra_model_cut(s.model), reused = INSTRUCTION - INSTRUCTION % cut;
        dra_engine   *e = open_engine(&s, NULL);
        for (int k = 0; k < ASKED; k++) {
            make_prompt(ids, ALL, 7);
            for (int t = INSTRUCTION; t < ALL; t++) ids[t] = (t + 31 * k) % 256;
            dra_job_config c = job_of(ALL, ids);
            c.marks[1] = marked ? INSTRUCTION : 0;
            c.owner = k == ASKED - 1 ? 5 : 0;
            run_one(e, c, &a);
            const int64_t known = k == ASKED - 1 || k + marked < 2 ? 0 : reused;
            if (a.result.cached_tokens != known)
                fail_msg("%s, question %d: %lld tokens reused, expected %lld", presets[i / 2], k,
                         (long long)a.result.cached_tokens, (long long)known);
            ask_alone(&s, ALL, ids, &alone);
            expect_answer(presets[i / 2], &a, &alone);
        }
        dra_engine_destroy(e);
        close_subject(&s);
    }
}

/* Ids of a text are held once, however many states are kept of it. */
static void ids_are_held_once(void **state)
{
    static int32_t ids[LONG];
    static answer  a;
    subject        s;
    open_subject(&s, "rwkv4-tiny");
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, LONG, 3);
    run_one(e, job_of(LONG, ids), &a);
    assert_true(e->prefixes.n >= 4);
    assert_int_equal(e->prefixes.ids, LONG + a.n - 1);
    while (e->prefixes.n > 1) dra_prefix_drop_oldest(e);
    assert_int_equal(e->prefixes.ids, LONG + a.n - 1); /* those of the longest */
    dra_prefix_drop_oldest(e);
    assert_int_equal(e->prefixes.ids, 0);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* What was written is the beginning of the next prompt, as in a chat. */
static void turns(void **state)
{
    static int32_t ids[200];
    static answer  a, b, alone;
    subject        s;
    open_subject(&s, "dra-gru-tiny");
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, 50, 2);
    run_one(e, job_of(50, ids), &a);
    memcpy(ids + 50, a.ids, a.n * sizeof *ids);
    make_prompt(ids + 50 + a.n, 20, 3);
    run_one(e, job_of(70 + a.n, ids), &b);
    assert_int_equal(b.result.cached_tokens, 50 + a.n - 1); /* its last token was read by nobody */
    ask_alone(&s, 70 + a.n, ids, &alone);
    expect_answer("second turn", &b, &alone);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* Several jobs with one prompt at once, as for several answers to it. */
static void one_prompt_many_answers(void **state)
{
    static int32_t ids[700];
    static answer  a[4], alone;
    for (int i = 0; i < SERVED; i++) {
        subject s;
        open_subject(&s, served[i]);
        dra_engine   *e = open_engine(&s, NULL);
        const int64_t reused = dra_model_cut(s.model) == 1 ? 699 : 640;
        make_prompt(ids, 700, 2);
        for (int k = 0; k < 4; k++) submit(e, job_of(700, ids), &a[k]);
        run(e);
        ask_alone(&s, 700, ids, &alone);
        for (int k = 0; k < 4; k++) expect_answer(served[i], &a[k], &alone);
        assert_int_equal(dra_engine_stats_of(e).tokens_read, 700 + 3 * (700 - reused));
        dra_engine_destroy(e);
        close_subject(&s);
    }
}

static void drops_the_oldest(void **state)
{
    static answer a;
    int32_t       ids[40];
    subject       s;
    open_subject(&s, "dra-gru-tiny");
    dra_engine *all = open_engine(&s, NULL);
    make_prompt(ids, 40, 1);
    run_one(all, job_of(40, ids), &a);
    const size_t bytes = dra_engine_stats_of(all).state_bytes; /* of three kept states */
    dra_engine_destroy(all);
    dra_engine *e = open_engine(&s, &(dra_engine_config){.memory_limit = 3 * bytes});
    for (int k = 0; k < 12; k++) {
        make_prompt(ids, 40, k);
        run_one(e, job_of(40, ids), &a);
        assert_true(dra_engine_stats_of(e).state_bytes <= 3 * bytes);
    }
    run_one(e, job_of(40, ids), &a);
    assert_int_equal(a.result.cached_tokens, 39);
    make_prompt(ids, 40, 0);
    run_one(e, job_of(40, ids), &a);
    assert_int_equal(a.result.cached_tokens, 0);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* What a job shares with a kept state is not counted twice: a prompt that takes more than half of
 * the memory is still there for the job that asks for it again, and so is a state with a name. */
static void what_is_shared_counts_once(void **state)
{
    static const char *const growing[] = {"gpt2-tiny", "dra-gru-tiny", "hybrid-tiny"};
    static int32_t           ids[LONG];
    static answer            a, again;
    for (int i = 0; i < 3; i++) {
        subject s;
        open_subject(&s, growing[i]);
        dra_engine  *e = open_engine(&s, NULL);
        const size_t need = dra_rows_need(e, LONG);
        dra_engine_destroy(e);
        e = open_engine(&s, &(dra_engine_config){.slots = 2, .memory_limit = need * 3 / 2});
        make_prompt(ids, LONG, 1);
        for (int k = 0; k < 3; k++) {
            dra_job_config c = job_of(LONG, ids);
            c.save = k == 2 ? "end" : NULL;
            run_one(e, c, k ? &again : &a);
            assert_int_equal(again.result.end, DRA_JOB_DONE);
            if (k && again.result.cached_tokens < LONG - 64)
                fail_msg("%s: %lld tokens reused", growing[i],
                         (long long)again.result.cached_tokens);
            if (k) expect_answer(growing[i], &again, &a);
        }
        dra_job_config c = job_of(1, ids);
        c.state = "end";
        run_one(e, c, &again);
        assert_int_equal(again.result.end, DRA_JOB_DONE);
        dra_engine_destroy(e);
        close_subject(&s);
    }
}

/* Jobs that begin alike share pages, and copy the one that they write; so do those that may have to
 * go back before a stop string. All that is counted before it is taken: kept states give way, and
 * the pool, which is as large as the limit, does not grow once more. */
static void copies_are_counted(void **state)
{
    enum { JOBS = 160, TABLE = 6, PAGES = 24 };
    static const char *const stop[] = {"\x01\x02", "ab", "th"};
    static int32_t           ids[TABLE][400];
    static answer            a[JOBS];
    subject                  s;
    int                      done = 0;
    open_subject(&s, "gpt2-tiny");
    const size_t page = 2 * 2 * 24 * 64 * sizeof(dra_real); /* layers, K and V */
    dra_engine *e = open_engine(&s, &(dra_engine_config){.slots = 8, .memory_limit = PAGES * page});
    for (int i = 0; i < TABLE; i++) make_prompt(ids[i], COUNT(ids[i]), i / 2);
    for (int k = 0; k < JOBS; k++) {
        dra_job_config c = job_of((size_t)(5 + k * 37 % 90), ids[k % TABLE]);
        c.tokens = 1 + k * 7 % 12;
        c.n_stop = k % 2 ? COUNT(stop) : 0;
        c.stop = stop;
        c.sampler = (dra_sampler_config){.temperature = 2, .seed = (uint64_t)k};
        submit(e, c, &a[k]);
        if (k % 2) step(e);
        const dra_pages *p = dra_pool_pages(e->lane[0].pool, 0);
        if (p->count > PAGES + 1)
            fail_msg("job %d: %lld pages, the limit is %d", k, (long long)p->count, PAGES);
    }
    run(e);
    assert_true(dra_pool_pages(e->lane[0].pool, 0)->count <= PAGES + 1);
    for (int k = 0; k < JOBS; k++) done += a[k].result.end == DRA_JOB_DONE;
    assert_int_equal(done, JOBS);
    dra_engine_destroy(e);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_that_begin_alike),
        cmocka_unit_test(instructions_of_states),
        cmocka_unit_test(ids_are_held_once),
        cmocka_unit_test(turns),
        cmocka_unit_test(one_prompt_many_answers),
        cmocka_unit_test(drops_the_oldest),
        cmocka_unit_test(what_is_shared_counts_once),
        cmocka_unit_test(one_instruction_many_questions),
        cmocka_unit_test(copies_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
