/* Prompts that others do not wait for: they may be cut at any multiple of 64 tokens, and those that
 * write go on between two slices of a chunk, with the bits that all have alone. */
#include "device/device.h"
#include "generate/engine.h"
#include "presets.h"
#include "serving.h"

enum { LONG = 1030, WRITTEN = 60, STREAMS = 3, FEW = 5 };

static dra_job_config job_of(size_t n, int32_t *ids, int which, int64_t tokens)
{
    dra_job_config c = {.n = n, .ids = ids, .tokens = tokens, .logprobs = 1, .ignore_end = true};
    make_prompt(ids, n, which);
    c.sampler = (dra_sampler_config){.temperature = 0.8, .seed = (uint64_t)which};
    return c;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static void cut_anywhere(const char *preset)
{
    static const int64_t chunks[] = {512, 64, 128, 192, 256};
    static answer        first, other;
    static int32_t       ids[LONG];
    subject              s;
    open_subject(&s, preset);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks && dra_model_cut(s.model) > 0; i++) {
        dra_engine *e = open_engine(&s, &(dra_engine_config){.chunk = chunks[i]});
        char        what[100];
        snprintf(what, sizeof what, "%s, chunks of %d", preset, (int)chunks[i]);
        run_one(e, job_of(LONG, ids, 3, FEW), i ? &other : &first);
        if (i) expect_answer(what, &other, &first);
        dra_engine_destroy(e);
    }
    close_subject(&s);
}

static void any_cut_gives_the_same_bits(void **state)
{
    for (size_t i = 0; dra_preset_at(i); i++)
        if (preset_reads_in_parts(dra_preset_at(i)->name)) cut_anywhere(dra_preset_at(i)->name);
}

/* ---- taking turns ---------------------------------------------------------------------------- */

static void lonely(const subject *s, answer *prompt, answer *stream)
{
    static int32_t ids[LONG];
    dra_engine    *e = open_engine(s, NULL);
    run_one(e, job_of(LONG, ids, 1, FEW), prompt);
    dra_engine_destroy(e);
    for (int k = 0; k < STREAMS; k++) {
        e = open_engine(s, NULL);
        run_one(e, job_of(2, ids, 10 + k, WRITTEN), &stream[k]);
        dra_engine_destroy(e);
    }
}

/* Streams write, a prompt comes. Returns how often they wrote in the middle of a chunk. */
static int64_t together(const subject *s, const dra_engine_config *settings, answer *prompt,
                        answer *stream)
{
    static int32_t ids[LONG];
    dra_engine    *e = open_engine(s, settings);
    int64_t        between = 0;
    for (int k = 0; k < STREAMS; k++) submit(e, job_of(2, ids, 10 + k, WRITTEN), &stream[k]);
    for (int k = 0; k < 6; k++) step(e);
    submit(e, job_of(LONG, ids, 1, FEW), prompt);
    while (prompt->n == 0 && !stream[0].ends) {
        const size_t before = stream[0].n;
        step(e);
        assert_int_equal(stream[0].n, before + 1); /* a token in every step */
        between += e->chunk.job != NULL;
    }
    run(e);
    dra_engine_destroy(e);
    return between;
}

/* Returns what together() does, 2 where a device runs a chunk as a whole. */
static int64_t take_turns(const char *preset, const dra_engine_config *settings)
{
    static answer alone, prompt, single[STREAMS], many[STREAMS];
    subject       s;
    char          what[100];
    open_subject(&s, preset);
    lonely(&s, &alone, single);
    const int64_t between = together(&s, settings, &prompt, many);
    const bool    slices = s.device->table->borrows;
    snprintf(what, sizeof what, "%s, the prompt", preset);
    expect_answer(what, &prompt, &alone);
    for (int k = 0; k < STREAMS; k++) {
        snprintf(what, sizeof what, "%s, stream %d", preset, k);
        expect_answer(what, &many[k], &single[k]);
    }
    close_subject(&s);
    return slices ? between : 2;
}

/* How often follows the clock, and a busy machine may leave one of them without: not all. */
static void others_write_while_a_prompt_is_read(void **state)
{
    int64_t between = 0;
    for (size_t i = 0; dra_preset_at(i); i++)
        if (preset_reads_in_parts(dra_preset_at(i)->name))
            between += take_turns(dra_preset_at(i)->name, NULL);
    if (between < 2) fail_msg("%lld tokens while prompts were read", (long long)between);
}

/* A pool that has to grow: never in the middle of a chunk. */
static void also_when_the_pool_is_small(void **state)
{
    static const char *const presets[] = {"gpt2-tiny", "hybrid-tiny", "dra-gru-tiny"};
    for (int i = 0; i < 3; i++)
        take_turns(presets[i], &(dra_engine_config){.slots = 4, .memory_limit = 3 << 20});
}

/* Prompts are read in turns: a short one does not wait for the end of a long one before it, and one
 * that begins like another waits for what it will keep. */
static void prompts_take_turns(void **state)
{
    static int32_t ids[4][LONG];
    static answer  a[4], alone;
    subject        s;
    open_subject(&s, "gpt2-tiny");
    dra_engine *e = open_engine(&s, &(dra_engine_config){.chunk = 64});
    submit(e, job_of(LONG, ids[0], 1, FEW), &a[0]);
    step(e);
    submit(e, job_of(4, ids[1], 2, FEW), &a[1]);
    submit(e, job_of(LONG, ids[2], 1, FEW), &a[2]);
    submit(e, job_of(700, ids[3], 4, FEW), &a[3]);
    for (int k = 0; k < 3; k++) step(e);
    if (a[1].n == 0) fail_msg("the short prompt has no token after 3 steps");
    assert_int_equal(a[0].n, 0);
    run(e);
    assert_true(a[2].result.cached_tokens >= LONG - 64);
    assert_int_equal(a[3].result.cached_tokens, 0);
    for (int k = 0; k < 4; k++) {
        dra_engine *own = open_engine(&s, NULL);
        run_one(own,
                job_of(k == 1   ? 4
                       : k == 3 ? 700
                                : LONG,
                       ids[k], k == 2 ? 1 : k + 1, FEW),
                &alone);
        expect_answer("in turns", &a[k], &alone);
        dra_engine_destroy(own);
    }
    dra_engine_destroy(e);
    close_subject(&s);
}

/* Of a device that runs a chunk as a whole, by times that are made up: in batches of a second. */
static void pieces_as_a_whole_are_short(void **state)
{
    static int32_t ids[2];
    static answer  a;
    subject        s;
    open_subject(&s, "dra-gru-tiny");
    dra_engine *e = open_engine(&s, NULL);
    dra_pace   *p = &e->pace;
    submit(e, job_of(2, ids, 1, WRITTEN), &a);
    for (int i = 0; i < 3; i++) step(e);
    p->slices = false;
    p->batches = DRA_PACE_BATCHES;
    for (int i = 0; i < DRA_PACE_BATCHES; i++) p->batch[i] = 1;
    memset(p->took, 0, sizeof p->took);
    assert_int_equal(dra_pace_step(e), 64); /* nothing is known */
    assert_false(dra_pace_is_over(e));
    p->took[0] = 1.1;
    assert_int_equal(dra_pace_step(e), 128); /* it may take hardly longer: tried */
    p->took[1] = 1.2;
    assert_int_equal(dra_pace_step(e), 256);
    p->took[2] = 1.5; /* more than 1.4 batches */
    assert_int_equal(dra_pace_step(e), 128);
    for (int i = 0; i < 100; i++) dra_pace_step(e);
    assert_int_equal(dra_pace_step(e), 256); /* once more, later */
    p->took[0] = 3;
    assert_int_equal(dra_pace_step(e), 64); /* the least there is */
    for (int i = 0; i < DRA_PACE_BATCHES; i++) p->batch[i] = 0;
    dra_pace_step(e);
    assert_true(dra_pace_is_over(e)); /* after a chunk, however short */
    run(e);
    assert_int_equal(a.result.end, DRA_JOB_DONE);
    dra_engine_destroy(e);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_gives_the_same_bits),
        cmocka_unit_test(others_write_while_a_prompt_is_read),
        cmocka_unit_test(also_when_the_pool_is_small),
        cmocka_unit_test(prompts_take_turns),
        cmocka_unit_test(pieces_as_a_whole_are_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
