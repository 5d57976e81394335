/* Drafts: the text, the state and the log-probabilities are those without, whatever is guessed. */
#include "generate/engine.h"
#include "presets.h"
#include "serving.h"

enum { PROMPT = 90, WRITTEN = 50, JOBS = 4 };

/* A prompt that repeats itself, so that there is something to guess. */
static void make_refrain(int32_t *ids, size_t n, int which)
{
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(65 + (i * i + (size_t)which) % 11 % 7);
}

static const char *const        stops[] = {"\x81", "zq", "ab"};
static const dra_sampler_config samplers[JOBS] = {
    {0},
    {.temperature = 0.3, .seed = 3},
    {.temperature = 0.5, .top_k = 5, .repetition_penalty = 1.1, .seed = 9},
    {.temperature = 1, .seed = 4},
};

static dra_job_config job_of(int k, const int32_t *ids)
{
    dra_job_config c = {.n = PROMPT,
                        .ids = ids,
                        .tokens = WRITTEN,
                        .sampler = samplers[k],
                        .logprobs = 1,
                        .ignore_end = true};
    if (k % 2) c.n_stop = 3, c.stop = stops;
    return c;
}

/* Jobs at once, then each goes on from what it has left; *right: drafts that were. */
static void ask_all(const subject *s, const dra_draft *draft, answer *a, int64_t *made,
                    int64_t *right)
{
    static int32_t ids[JOBS][PROMPT];
    char           name[JOBS][16];
    const int32_t  more[] = {10, 65};
    dra_engine    *e = open_engine(s, &(dra_engine_config){.draft = *draft, .slots = JOBS});
    for (int k = 0; k < JOBS; k++) {
        make_refrain(ids[k], PROMPT, k);
        snprintf(name[k], sizeof name[k], "s%d", k);
        dra_job_config c = job_of(k, ids[k]);
        c.save = name[k];
        submit(e, c, &a[k]);
    }
    run(e);
    for (int k = 0; k < JOBS; k++) {
        dra_job_config c = job_of(k, more);
        c.n = k % 2 ? 0 : 2;
        c.state = name[k];
        c.tokens = 20;
        run_one(e, c, &a[JOBS + k]);
    }
    *made = *right = 0;
    for (int k = 0; k < 2 * JOBS; k++) {
        *made += a[k].result.drafted_tokens;
        *right += a[k].result.accepted_tokens;
    }
    dra_engine_destroy(e);
}

static void compare(const char *preset, const char *how, const answer *a, const answer *plain)
{
    char what[100];
    for (int k = 0; k < 2 * JOBS; k++) {
        snprintf(what, sizeof what, "%s, %s, job %d", preset, how, k);
        expect_answer(what, &a[k], &plain[k]);
        assert_int_equal(a[k].result.finish, plain[k].result.finish);
    }
}

static void try_drafts(const char *preset)
{
    static answer a[2 * JOBS], plain[2 * JOBS];
    int64_t       made, right;
    subject       s, other;
    open_subject(&s, preset);
    open_subject(&other, "rwkv4-tiny");
    ask_all(&s, &(dra_draft){0}, plain, &made, &right);
    assert_int_equal(made, 0);
    ask_all(&s, &(dra_draft){.text = true}, a, &made, &right);
    compare(preset, "by the text", a, plain);
    if (made == 0) fail_msg("%s: nothing was guessed by the text", preset);
    ask_all(&s, &(dra_draft){.model = other.model, .weights = other.weights}, a, &made, &right);
    compare(preset, "by another model", a, plain);
    assert_true(made > 0);
    ask_all(&s, &(dra_draft){.model = s.model, .weights = s.weights, .most = 5}, a, &made, &right);
    compare(preset, "by itself", a, plain);
    if (right * 4 < made * 3)
        fail_msg("%s: %lld of %lld drafts by itself are right", preset, (long long)right,
                 (long long)made);
    close_subject(&other);
    close_subject(&s);
}

static void the_text_is_the_one_without(void **state)
{
    for (size_t i = 0; dra_preset_at(i); i++)
        if (preset_reads_in_parts(dra_preset_at(i)->name)) try_drafts(dra_preset_at(i)->name);
}

static void refuses(void **state)
{
    static const struct {
        dra_engine_config config;
        const char       *text;
    } table[] = {
        {{.draft = {.text = true, .most = 16}}, "draft: 16 tokens at a time, expected 1 to 15"},
        {{.draft = {.text = true, .most = -1}}, "draft: -1 tokens at a time, expected 1 to 15"},
    };
    subject     s, other;
    dra_engine *e;
    dra_error   err = {0};
    open_subject(&s, "gpt2-tiny");
    open_subject(&other, "gpt2-tiny");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        dra_engine_config c = table[i].config;
        c.model = s.model, c.weights = s.weights, c.device = s.device, c.tokenizer = s.tokenizer;
        assert_int_equal(dra_engine_create(&c, &e, &err), DRA_ERR_VALUE);
        assert_string_equal(err.text, table[i].text);
    }
    const dra_amateur amateur = {other.model, other.weights};
    dra_engine_config c = {.model = s.model,
                           .weights = s.weights,
                           .device = s.device,
                           .n_amateurs = 1,
                           .amateurs = &amateur,
                           .alpha = 0.1,
                           .draft = {.text = true}};
    assert_int_equal(dra_engine_create(&c, &e, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "draft: not with an amateur, which reads every token");
    c.n_amateurs = 0;
    c.draft.model = other.model;
    assert_int_equal(dra_engine_create(&c, &e, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "draft: by the text or by a model, not both");
    close_subject(&other);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_the_one_without),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
