/* Engines: a job gives what a generator gives, alone and in company; how jobs end. */
#include "presets.h"
#include "serving.h"

enum { PROMPT = 100, WRITTEN = 24, LONGEST = 1024 };

static const dra_sampler_config sampled = {
    .repetition_penalty = 1.2, .temperature = 0.9, .top_k = 40, .top_p = 0.95, .seed = 3};

static dra_job_config job_of(size_t n, const int32_t *ids, int64_t tokens)
{
    return (dra_job_config){.n = n, .ids = ids, .tokens = tokens, .logprobs = 1};
}

/* ---- as a generator -------------------------------------------------------------------------- */

static void as_generator(const subject *s, const char *preset, size_t n,
                         const dra_sampler_config *sampler)
{
    const dra_generator_config gc = {.model = s->model,
                                     .weights = s->weights,
                                     .device = s->device,
                                     .tokenizer = s->tokenizer,
                                     .sampler = *sampler};
    const dra_generate_config  c = {.tokens = WRITTEN, .logprobs = 1};
    int32_t                    ids[PROMPT];
    dra_generator             *g;
    dra_generated              out;
    dra_error                  err = {0};
    answer                     a = {0};
    make_prompt(ids, n, 1);
    expect_ok(dra_generator_create(&gc, &g, &err), &err);
    expect_ok(dra_generator_read(g, 0, n, ids, &err), &err);
    expect_ok(dra_generate(g, &c, &out, &err), &err);
    dra_engine    *e = open_engine(s, NULL);
    dra_job_config job = job_of(n, ids, WRITTEN);
    job.sampler = *sampler;
    run_one(e, job, &a);
    if (a.n != out.n) fail_msg("%s: %zu tokens, expected %zu", preset, a.n, out.n);
    for (size_t i = 0; i < out.n; i++) {
        const double d = a.logprob[i] - out.logprobs[2 * i].logprob;
        if (a.ids[i] != out.ids[i] || !(fabs(d) < 1e-4))
            fail_msg("%s: token %zu is %d, off by %g, expected %d", preset, i, a.ids[i], d,
                     out.ids[i]);
    }
    assert_int_equal(a.result.finish, out.finish);
    assert_int_equal(a.result.prompt_tokens, n);
    assert_int_equal(a.result.written_tokens, out.n);
    dra_engine_destroy(e);
    dra_generator_destroy(g);
}

static void writes_what_a_generator_writes(void **state)
{
    for (int i = 0; i < SERVED; i++) {
        subject s;
        open_subject(&s, served[i]);
        as_generator(&s, served[i], PROMPT, &(dra_sampler_config){0});
        as_generator(&s, served[i], 1, &sampled);
        as_generator(&s, served[i], 65, &sampled);
        close_subject(&s);
    }
}

/* ---- in company ------------------------------------------------------------------------------ */

enum { JOBS = 14 };

static size_t length_of(int k)
{
    static const size_t lengths[] = {1, 2, 63, 64, 65, 100, 128, 129, 300, 700, 5, 577, 64, 1030};
    return lengths[k % JOBS];
}

/* Job k; odd ones share the beginning of their prompts. */
static dra_job_config make_job(int k, int32_t *ids)
{
    const size_t   n = length_of(k);
    dra_job_config c = job_of(n, ids, 3 + k % 9);
    make_prompt(ids, n, k % 2 ? 0 : k);
    c.sampler = k % 3 ? (dra_sampler_config){.temperature = 0.9, .top_p = 0.9, .seed = (uint64_t)k}
                      : (dra_sampler_config){0};
    c.sampler.presence_penalty = k % 5 == 0 ? 0.5 : 0;
    c.sampler.repetition_penalty = k % 4 == 0 ? 1.3 : 0;
    if (k % 5 == 3) c.state = k % 2 ? "root" : "twig";
    return c;
}

/* States that some of the jobs begin from. */
static void plant(dra_engine *e)
{
    answer         a = {0};
    int32_t        ids[PROMPT];
    dra_job_config c = job_of(PROMPT, ids, 3);
    make_prompt(ids, PROMPT, 77);
    c.save = "root";
    run_one(e, c, &a);
    run_one(e, (dra_job_config){.kind = DRA_JOB_FORK, .state = "root", .save = "twig"}, &a);
}

static void in_company(const char *preset)
{
    static answer  alone[JOBS], many[2 * JOBS];
    static int32_t ids[1100];
    subject        s;
    unsigned       seed = 5;
    open_subject(&s, preset);
    for (int k = 0; k < JOBS; k++) {
        dra_engine *e = open_engine(&s, NULL);
        plant(e);
        run_one(e, make_job(k, ids), &alone[k]);
        dra_engine_destroy(e);
    }
    dra_engine *e = open_engine(&s, &(dra_engine_config){.slots = 5, .chunk = 256});
    int         sent = 0;
    plant(e);
    while (sent < 2 * JOBS) { /* the second time round much is kept */
        seed = seed * 1103515245 + 12345;
        for (unsigned more = seed >> 16 & 3; more > 0 && sent < 2 * JOBS; more--, sent++) {
            const uint64_t id = submit(e, make_job(sent % JOBS, ids), &many[sent]);
            if (sent % 11 == 7) dra_engine_cancel(e, id);
        }
        step(e);
    }
    run(e);
    int64_t cached = 0;
    for (int k = 0; k < 2 * JOBS; k++) {
        char what[100];
        snprintf(what, sizeof what, "%s, job %d", preset, k);
        assert_int_equal(many[k].ends, 1);
        if (k % 11 == 7)
            assert_int_equal(many[k].result.end, DRA_JOB_CANCELLED);
        else
            expect_answer(what, &many[k], &alone[k % JOBS]);
        cached += many[k].result.cached_tokens;
    }
    assert_true(cached > 512);
    const dra_engine_stats st = dra_engine_stats_of(e);
    assert_int_equal(st.tokens_reused, cached);
    assert_int_equal(st.active, 0);
    assert_int_equal(st.waiting, 0);
    assert_int_equal(st.done + st.cancelled, 2 * JOBS + 2);
    dra_engine_destroy(e);
    close_subject(&s);
}

static void company_changes_no_bit(void **state)
{
    for (size_t i = 0; dra_preset_at(i); i++)
        if (preset_reads_in_parts(dra_preset_at(i)->name)) in_company(dra_preset_at(i)->name);
}

/* ---- how jobs end ---------------------------------------------------------------------------- */

static void cancels(void **state)
{
    subject s;
    int32_t ids[PROMPT];
    answer  a[3];
    open_subject(&s, "dra-gru-tiny");
    dra_engine *e = open_engine(&s, &(dra_engine_config){.slots = 1});
    make_prompt(ids, PROMPT, 1);
    memset(a, 0, sizeof a);
    const uint64_t first = submit(e, job_of(PROMPT, ids, 50), &a[0]);
    const uint64_t second = submit(e, job_of(PROMPT, ids, 5), &a[1]);
    submit(e, job_of(PROMPT, ids, 5), &a[2]);
    step(e);
    step(e);
    assert_true(a[0].n > 0 && !a[0].ends);
    dra_engine_cancel(e, second); /* waits */
    step(e);
    assert_int_equal(a[1].result.end, DRA_JOB_CANCELLED);
    assert_int_equal(a[1].ends, 1);
    dra_engine_cancel(e, first); /* runs */
    step(e);
    assert_int_equal(a[0].result.end, DRA_JOB_CANCELLED);
    dra_engine_cancel(e, first); /* has ended */
    dra_engine_cancel(e, 12345);
    run(e);
    assert_int_equal(a[2].result.end, DRA_JOB_DONE);
    assert_int_equal(a[2].n, 5);
    submit(e, job_of(PROMPT, ids, 5), &a[2]); /* waits when the engine goes */
    submit(e, job_of(PROMPT, ids, 5), &a[1]);
    step(e);
    dra_engine_destroy(e);
    assert_int_equal(a[1].result.end, DRA_JOB_CANCELLED);
    assert_int_equal(a[2].result.end, DRA_JOB_CANCELLED);
    close_subject(&s);
}

static void refuses(void **state)
{
    subject   s;
    int32_t   ids[PROMPT];
    answer    a[4];
    uint64_t  id;
    dra_error err = {0};
    open_subject(&s, "gpt2-tiny");
    dra_engine *e = open_engine(&s, &(dra_engine_config){.slots = 1, .queue = 3});
    make_prompt(ids, PROMPT, 1);
    memset(a, 0, sizeof a);
    for (int k = 0; k < 3; k++) submit(e, job_of(PROMPT, ids, 2), &a[k]);
    dra_job_config c = job_of(PROMPT, ids, 2);
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_BUSY);
    assert_int_equal(id, 0);
    run(e);
    ids[7] = 256;
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_INDEX);
    assert_string_equal(err.text, "token 7 is 256, the model has 0 to 255");
    ids[7] = 7;
    c.n = 0;
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_VALUE);
    c.n = PROMPT;
    c.state = "nobody";
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_NAME);
    assert_string_equal(err.text, "state: there is no 'nobody'");
    c.state = "../x";
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_NAME);
    c.state = NULL;
    c.sampler.temperature = -1;
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_VALUE);
    static int32_t many[2100];
    c = job_of(2049, many, 1);
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "the text has 2049 tokens, this model has positions for 2048; "
                                  "nothing is cut off");
    c.n = 2047; /* the last position is written to, and read by nobody */
    c.tokens = -1;
    c.ignore_end = true;
    run_one(e, c, &a[0]);
    assert_int_equal(a[0].result.finish, DRA_FINISH_CONTEXT);
    assert_int_equal(a[0].n, 1);
    dra_engine_drain(e);
    c = job_of(PROMPT, ids, 2);
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_BUSY);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Jobs of all lengths come and go. */
static void mix(dra_engine *e, int times)
{
    static answer  a[3 * JOBS];
    static int32_t ids[1100];
    for (int k = 0; k < times * JOBS; k++) {
        dra_job_config c = make_job(k % JOBS, ids);
        c.tokens = 2 + k % 13;
        submit(e, c, &a[k]);
        if (k % 3) step(e);
    }
    run(e);
}

/* Pieces, rests and batches of all sizes: which of them a mix meets depends on how long others
 * wait. */
static void read_all_sizes(dra_engine *e)
{
    static int32_t ids[LONGEST];
    static answer  many[8];
    for (int k = 0; k < 8; k++) {
        make_prompt(ids, 2, 100 + k);
        submit(e, job_of(2, ids, 2 + 2 * k), &many[k]);
    }
    run(e);
    for (size_t n = 1; n < 64; n++) {
        answer a = {0};
        make_prompt(ids, n, 300 + (int)n);
        run_one(e, job_of(n, ids, 1), &a);
    }
    for (size_t n = 64; n <= LONGEST / 2; n *= 2)
        for (int more = 0; more < 2; more++) {
            answer a = {0};
            make_prompt(ids, n + (size_t)more, 200 + (int)n + more);
            run_one(e, job_of(n + (size_t)more, ids, 1), &a);
        }
}

static void programs_are_few(void **state)
{
    for (int i = 0; i < SERVED; i++) {
        subject s;
        open_subject(&s, served[i]);
        dra_engine *e = open_engine(&s, &(dra_engine_config){.slots = 8});
        plant(e);
        read_all_sizes(e);
        /* Sizes of pieces follow the clock, and so does who finds whose prefix: a mix may meet one
         * more, but not for ever. */
        int64_t before = -1, n = 0;
        for (int k = 0; k < 20 && n > before; k++) {
            before = n;
            mix(e, 3);
            n = dra_engine_stats_of(e).programs;
        }
        const dra_specs *specs = dra_model_state(s.model);
        bool             grows = false;
        for (int k = 0; k < dra_specs_count(specs); k++) grows |= dra_specs_at(specs, k)->items;
        /* Pieces of 64 to 512 that more text follows, and that none does, rests of 1 to 64,
         * batches of 1 to 8; items are read in spans of 64 to 2048, which are as few, and from a
         * pool that doubles. */
        const int64_t most = (4 + 4 + 7 + 4) * (grows ? 6 : 1);
        if (n > most || (!grows && n > before))
            fail_msg("%s: %lld programs, then %lld, expected %lld at most", served[i],
                     (long long)before, (long long)n, (long long)most);
        dra_engine_destroy(e);
        close_subject(&s);
    }
}

static void keeps_to_its_memory(void **state)
{
    static answer a[8];
    int32_t       ids[PROMPT];
    subject       s;
    dra_error     err = {0};
    uint64_t      id;
    open_subject(&s, "gpt2-tiny");
    const size_t   each = 2 * 2 * 24 * sizeof(dra_real), limit = 320 * each; /* layers, K and V */
    dra_engine    *e = open_engine(&s, &(dra_engine_config){.slots = 4, .memory_limit = limit});
    dra_job_config c = job_of(PROMPT, ids, 300);
    make_prompt(ids, PROMPT, 0);
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_MEMORY);
    for (int k = 0; k < 8; k++) {
        make_prompt(ids, PROMPT, k);
        submit(e, job_of(PROMPT, ids, 20), &a[k]);
    }
    bool idle = false;
    while (!idle) {
        expect_ok(dra_engine_step(e, &idle, &err), &err);
        const dra_engine_stats st = dra_engine_stats_of(e);
        assert_true(st.state_bytes <= limit);
        assert_true(st.active <= 2);
    }
    for (int k = 0; k < 8; k++) assert_int_equal(a[k].result.end, DRA_JOB_DONE);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* One owner has sent much before another sends a little: it finds a slot that is left to it, and
 * its prompt is read in turns with all of the others' together. */
static void owners_take_turns(void **state)
{
    enum { MANY = 24, LENGTH = 640 };
    static int32_t ids[LENGTH];
    static answer  many[MANY], one, two;
    subject        s;
    int            done = 0;
    open_subject(&s, "dra-ema-tiny");
    dra_engine *e = open_engine(&s, &(dra_engine_config){.slots = 8, .queue = 32, .forget = true});
    for (int k = 0; k < MANY; k++) {
        make_prompt(ids, LENGTH, k);
        submit(e,
               (dra_job_config){.n = LENGTH, .ids = ids, .tokens = 40, .logprobs = -1, .owner = 1},
               &many[k]);
    }
    step(e);
    assert_int_equal(dra_engine_stats_of(e).active, 7);
    dra_job_config c = {.n = LENGTH, .ids = ids, .tokens = 2, .logprobs = -1, .owner = 2};
    submit(e, c, &one);
    submit(e, c, &two);
    while (!one.ends || !two.ends) step(e);
    for (int k = 0; k < MANY; k++) done += many[k].ends;
    assert_int_equal(done, 0); /* 7 prompts of theirs are not even read */
    run(e);
    for (int k = 0; k < MANY; k++) assert_int_equal(many[k].n, 40);
    /* And a part of the queue. */
    uint64_t       id;
    dra_error      err = {0};
    dra_job_config more = {.n = 1, .ids = ids, .tokens = 1, .logprobs = -1, .owner = 1};
    more.end = take_end;
    more.user = &many[0];
    int taken = 0;
    while (dra_engine_submit(e, &more, &id, &err) == DRA_OK) taken++;
    assert_int_equal(err.code, DRA_ERR_BUSY);
    assert_int_equal(taken, 28);
    submit(e, c, &one);
    run(e);
    assert_int_equal(one.result.end, DRA_JOB_DONE);
    dra_engine_destroy(e);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_what_a_generator_writes),
        cmocka_unit_test(company_changes_no_bit),
        cmocka_unit_test(cancels),
        cmocka_unit_test(refuses),
        cmocka_unit_test(programs_are_few),
        cmocka_unit_test(keeps_to_its_memory),
        cmocka_unit_test(owners_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
