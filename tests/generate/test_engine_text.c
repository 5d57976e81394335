/* What jobs hand out: stop strings, log-probabilities, echoes, penalties, bias, grammars. */
#include "generate/sample.h"
#include "serving.h"

enum { PROMPT = 70, WRITTEN = 30 };

static dra_job_config job_of(size_t n, const int32_t *ids, int64_t tokens)
{
    return (dra_job_config){.n = n,
                            .ids = ids,
                            .tokens = tokens,
                            .logprobs = 1,
                            .ignore_end = true,
                            .sampler = {.temperature = 1.2, .seed = 11}};
}

static dra_generator *open_generator(const subject *s, const dra_sampler_config *sampler,
                                     const dra_grammar *grammar)
{
    const dra_generator_config c = {.model = s->model,
                                    .weights = s->weights,
                                    .device = s->device,
                                    .tokenizer = s->tokenizer,
                                    .sampler = *sampler,
                                    .grammar = grammar};
    dra_generator             *g;
    dra_error                  err = {0};
    expect_ok(dra_generator_create(&c, &g, &err), &err);
    return g;
}

/* A byte tokenizer: text is bytes, broken ones as U+FFFD, so stop strings are bytes of ASCII. */
static void only_letters(dra_job_config *c, dra_token_bias *bias)
{
    int64_t n = 0;
    for (int32_t id = 0; id < 256; id++)
        if (id < 'a' || id > 'e') bias[n++] = (dra_token_bias){id, -INFINITY};
    c->sampler.bias = bias;
    c->sampler.n_bias = n;
}

/* ---- stop strings ---------------------------------------------------------------------------- */

typedef struct page {
    char   text[1000];
    size_t n;
} page;

static bool write_page(void *user, int64_t row, const char *text, size_t bytes)
{
    page *p = user;
    memcpy(p->text + p->n, text, bytes + 1);
    p->n += bytes;
    return true;
}

static void stops(const char *preset)
{
    static dra_token_bias bias[256];
    const char *const     stop[] = {"abca", "dd", "ebe"};
    int32_t               ids[PROMPT];
    subject               s;
    int                   stopped = 0;
    open_subject(&s, preset);
    dra_engine *e = open_engine(&s, NULL);
    for (int k = 0; k < 18; k++) {
        answer         a = {0}, more = {0};
        page           p = {0};
        dra_generated  out;
        dra_error      err = {0};
        dra_job_config c = job_of(PROMPT, ids, WRITTEN);
        make_prompt(ids, PROMPT, k);
        only_letters(&c, bias);
        c.sampler.seed = (uint64_t)k;
        c.sampler.repetition_penalty = 1.1;
        c.n_stop = 3;
        c.stop = stop;
        c.save = "after";
        run_one(e, c, &a);
        dra_generator            *g = open_generator(&s, &c.sampler, NULL);
        const dra_generate_config gc = {.tokens = WRITTEN,
                                        .n_stop = 3,
                                        .stop = stop,
                                        .ignore_end = true,
                                        .write = write_page,
                                        .user = &p};
        expect_ok(dra_generator_read(g, 0, PROMPT, ids, &err), &err);
        expect_ok(dra_generate(g, &gc, &out, &err), &err);
        assert_int_equal(a.result.finish, out.finish);
        assert_int_equal(a.n, out.n);
        assert_memory_equal(a.ids, out.ids, a.n * sizeof *a.ids);
        assert_string_equal(a.text, p.text);
        stopped += out.finish == DRA_FINISH_STOP;
        for (int i = 0; i < 3; i++) assert_null(strstr(a.text, stop[i]));
        /* The state is that of what was handed out. */
        c = job_of(0, NULL, 8);
        only_letters(&c, bias);
        c.sampler.repetition_penalty = 1.1;
        c.sampler.seed = (uint64_t)k;
        c.state = "after";
        run_one(e, c, &more);
        expect_ok(
            dra_generate(g, &(dra_generate_config){.tokens = 8, .ignore_end = true}, &out, &err),
            &err);
        assert_int_equal(more.n, out.n);
        assert_memory_equal(more.ids, out.ids, more.n * sizeof *more.ids);
        dra_generator_destroy(g);
    }
    assert_true(stopped >= 4);
    dra_engine_destroy(e);
    close_subject(&s);
}

static void stop_strings(void **state)
{
    for (int i = 0; i < SERVED; i++) stops(served[i]);
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static double log_softmax(int64_t V, const dra_real *x, int32_t id)
{
    double sum = 0;
    for (int64_t i = 0; i < V; i++) sum += exp((double)x[i]);
    return (double)x[id] - log(sum);
}

static void echoes(const char *preset)
{
    static double  logprob[700], most[700];
    static int32_t ids[700];
    const size_t   n = 620;
    dra_error      err = {0};
    subject        s;
    answer         a = {.prompt = logprob, .prompt_most = most}, plain = {0};
    open_subject(&s, preset);
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, n, 3);
    dra_job_config c = job_of(n, ids, 1);
    c.sampler = (dra_sampler_config){0};
    run_one(e, c, &plain); /* keeps the prompt, which is then read all the same */
    c.echo = true;
    run_one(e, c, &a);
    expect_answer(preset, &a, &plain);
    assert_int_equal(a.result.cached_tokens, 0);
    assert_int_equal(a.n_prompt, n);
    assert_int_equal(a.n, 1);
    assert_true(isnan(logprob[0]) && isnan(most[0]));
    assert_true(a.logprob[0] == a.most[0]); /* greedy: the same number, to the bit */
    dra_generator  *g = open_generator(&s, &c.sampler, NULL);
    const dra_real *x;
    dra_sampler    *sampler;
    expect_ok(dra_sampler_create(&c.sampler, s.V, &sampler, &err), &err);
    for (size_t i = 1; i < 130; i++) {
        dra_ranked best;
        expect_ok(dra_generator_read(g, 0, 1, &ids[i - 1], &err), &err);
        expect_ok(dra_generator_logits(g, 0, &x, &err), &err);
        dra_sampler_rank(sampler, x, NULL, NULL, 1, &best);
        const double expected = log_softmax(s.V, x, ids[i]);
        if (!(fabs(logprob[i] - expected) < near_of(preset)) ||
            !(fabs(most[i] - best.log_prob) < near_of(preset)))
            fail_msg("%s: token %zu: %g, expected %g", preset, i, logprob[i], expected);
        assert_true(logprob[i] <= most[i]);
        if (best.id == ids[i]) assert_true(logprob[i] == most[i]);
    }
    /* Without log-probabilities ids are echoed and what is kept is used. */
    c.logprobs = -1;
    a.prompt = a.prompt_most = NULL;
    run_one(e, c, &a);
    assert_int_equal(a.n_prompt, n);
    assert_true(a.result.cached_tokens > 0);
    c.tokens = 0; /* nothing but the prompt */
    run_one(e, c, &a);
    assert_int_equal(a.n, 0);
    assert_int_equal(a.n_prompt, n);
    dra_sampler_destroy(sampler);
    dra_generator_destroy(g);
    dra_engine_destroy(e);
    close_subject(&s);
}

static void prompts_are_echoed(void **state)
{
    for (int i = 0; i < SERVED; i++) echoes(served[i]);
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* One that is longer than what a step reads of others is read at once all the same. */
static void long_prefixes(void **state)
{
    static int32_t ids[1500];
    subject        s;
    answer         first = {0}, a = {0}, plain = {0};
    open_visible(&s, "gpt2-tiny", DRA_VISIBLE_PREFIX);
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, COUNT(ids), 4);
    dra_job_config c = job_of(COUNT(ids), ids, 3);
    run_one(e, c, &plain);
    c.prefix = true;
    run_one(e, c, &first);
    run_one(e, c, &a);
    assert_int_equal(a.n, 3);
    expect_answer("a long prefix", &a, &first);
    assert_true(a.logprob[0] != plain.logprob[0]);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* ---- penalties ------------------------------------------------------------------------------- */

/* Token by token with a sampler, from the logits of a generator. */
static void penalties(void **state)
{
    const double presence = 0.7, frequency = 0.4;
    int32_t      ids[PROMPT], count[256] = {0};
    dra_real     offered[256];
    dra_error    err = {0};
    subject      s;
    answer       a = {0};
    dra_sampler *sampler;
    open_subject(&s, "dra-ema-tiny");
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, PROMPT, 2);
    dra_token_bias bias[] = {{65, 2.5}, {66, -3}, {65, 0.5}};
    dra_job_config c = job_of(PROMPT, ids, WRITTEN);
    c.sampler.presence_penalty = presence;
    c.sampler.frequency_penalty = frequency;
    c.sampler.n_bias = 3;
    c.sampler.bias = bias;
    run_one(e, c, &a);
    dra_generator  *g = open_generator(&s, &(dra_sampler_config){0}, NULL);
    const dra_real *x;
    expect_ok(dra_sampler_create(&c.sampler, 256, &sampler, &err), &err);
    expect_ok(dra_generator_read(g, 0, PROMPT, ids, &err), &err);
    for (int64_t i = 0; i < WRITTEN; i++) {
        expect_ok(dra_generator_logits(g, 0, &x, &err), &err);
        for (int k = 0; k < 256; k++)
            offered[k] = (dra_real)((double)x[k] - (count[k] ? presence : 0) -
                                    frequency * count[k]);
        const int32_t id = dra_sampler_pick(sampler, offered, NULL, 0, PROMPT + i);
        assert_int_equal(a.ids[i], id);
        count[id]++;
        expect_ok(dra_generator_read(g, 0, 1, &id, &err), &err);
    }
    dra_sampler_destroy(sampler);
    dra_generator_destroy(g);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* ---- ends and grammars ----------------------------------------------------------------------- */

static void ends(void **state)
{
    int32_t ids[PROMPT];
    subject s;
    answer  a = {0}, b = {0};
    open_subject(&s, "hybrid-tiny");
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, PROMPT, 2);
    dra_job_config c = job_of(PROMPT, ids, WRITTEN);
    run_one(e, c, &a);
    const int32_t end = a.ids[9];
    size_t        first = 0;
    while (a.ids[first] != end) first++;
    c.ignore_end = false;
    c.n_ends = 1;
    c.ends = &end;
    run_one(e, c, &b);
    assert_int_equal(b.result.finish, DRA_FINISH_END);
    assert_int_equal(b.n, first);
    assert_int_equal(b.end, end); /* told, but no part of the text */
    assert_int_equal(b.result.written_tokens, first);
    assert_memory_equal(b.ids, a.ids, first * sizeof *b.ids);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* A job that ends where these come in a row: after so many tokens, of which the last is left out.
 */
static void ends_by(dra_engine *e, dra_job_config c, dra_ids *stop, const answer *whole, bool beam)
{
    const size_t n = stop->n;
    size_t       at = 0;
    answer       a = {0};
    while (memcmp(whole->ids + at, stop->data, n * sizeof *stop->data) != 0) at++;
    c.n_stop_tokens = 2;
    c.stop_tokens = (dra_ids[]){{(int32_t[]){255, 255, 255, 255, 255}, 5, 0}, *stop};
    c.beam.beams = beam;
    run_one(e, c, &a);
    assert_int_equal(a.result.finish, DRA_FINISH_STOP);
    assert_int_equal(a.result.written_tokens, at + n - 1);
    if (beam) return;
    assert_int_equal(a.n, at + n - 1);
    assert_int_equal(a.end, stop->data[n - 1]);
    assert_memory_equal(a.ids, whole->ids, a.n * sizeof *a.ids);
}

static void stop_tokens(void **state)
{
    int32_t ids[PROMPT], wrong = 300;
    subject s;
    answer  a = {0};
    open_subject(&s, "hybrid-tiny");
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, PROMPT, 2);
    dra_job_config c = job_of(PROMPT, ids, WRITTEN);
    run_one(e, c, &a);
    for (size_t n = 1; n < 4; n++)
        for (size_t at = 0; at + n < WRITTEN; at += 5)
            ends_by(e, c, &(dra_ids){a.ids + at, n, 0}, &a, false);
    c.sampler = (dra_sampler_config){0};
    c.logprobs = -1;
    run_one(e, c, &a);
    for (size_t n = 1; n < 4; n++) ends_by(e, c, &(dra_ids){a.ids + 4 - n, n, 0}, &a, true);
    ends_by(e, c, &(dra_ids){a.ids, 1, 0}, &a, true);
    c.stop_tokens = &(dra_ids){&wrong, 1, 0};
    c.n_stop_tokens = 1;
    uint64_t  id;
    dra_error err = {0};
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_INDEX);
    assert_non_null(strstr(err.text, "stop tokens: token 0 is 300, the model has 0 to "));
    c.stop_tokens = &(dra_ids){0};
    assert_int_equal(dra_engine_submit(e, &c, &id, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "stop tokens: an empty list");
    dra_engine_destroy(e);
    close_subject(&s);
}

static void grammars(void **state)
{
    static const char rules[] = "root ::= (\"ab\" | \"c\" [0-9]{2,4} \"!\"){3}\n";
    int32_t           ids[PROMPT];
    subject           s;
    dra_grammar      *grammar;
    dra_error         err = {0};
    open_subject(&s, "dra-slots-tiny");
    dra_engine *e = open_engine(&s, NULL);
    expect_ok(dra_grammar_parse("test", rules, sizeof rules - 1, &grammar, &err), &err);
    for (int k = 0; k < 5; k++) {
        answer          a = {0};
        dra_generated   out;
        dra_grammar_fit fit;
        dra_job_config  c = job_of(PROMPT, ids, 50);
        make_prompt(ids, PROMPT, k);
        c.sampler.seed = (uint64_t)k;
        c.grammar = grammar;
        run_one(e, c, &a);
        dra_generator *g = open_generator(&s, &c.sampler, grammar);
        expect_ok(dra_generator_read(g, 0, PROMPT, ids, &err), &err);
        expect_ok(
            dra_generate(g, &(dra_generate_config){.tokens = 50, .ignore_end = true}, &out, &err),
            &err);
        assert_int_equal(a.result.finish, DRA_FINISH_END);
        assert_int_equal(a.n, out.n);
        assert_memory_equal(a.ids, out.ids, a.n * sizeof *a.ids);
        expect_ok(dra_grammar_match(grammar, a.text, a.bytes, &fit, &err), &err);
        assert_int_equal(fit, DRA_GRAMMAR_WHOLE);
        dra_generator_destroy(g);
    }
    dra_grammar_destroy(grammar);
    dra_engine_destroy(e);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings),  cmocka_unit_test(prompts_are_echoed),
        cmocka_unit_test(long_prefixes), cmocka_unit_test(penalties),
        cmocka_unit_test(ends),          cmocka_unit_test(stop_tokens),
        cmocka_unit_test(grammars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
