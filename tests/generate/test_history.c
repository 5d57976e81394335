/* What the text so far says about its next token, against the definitions: of Hugging Face's
 * no_repeat_ngram_size, of llama.cpp's DRY, of OpenAI's penalties; alone, and while texts are
 * written, also by beams. */
#include "generate/sample.h"
#include "serving.h"

enum { V = 7, MOST = 60 };

static uint64_t seed = 3;

static int pick_of(int n) { return (int)(check_random(&seed) * n); }

/* ---- definitions ----------------------------------------------------------------------------- */

/* How long the longest end of the text, up to `most`, is that stands before a token v, too. */
static int repeated(int n, const int32_t *ids, int most, int32_t v)
{
    for (int length = most; length > 0; length--)
        for (int at = length; at < n; at++)
            if (ids[at] == v &&
                !memcmp(ids + at - length, ids + n - length, (size_t)length * sizeof *ids))
                return length;
    return 0;
}

static double dry_of(const dra_sampler_config *c, int n, const int32_t *ids, const bool *breaks,
                     int32_t v)
{
    const int allowed = c->dry_allowed_length ? (int)c->dry_allowed_length : 2;
    int       since = 0;
    while (since < n - 1 && !(breaks && breaks[ids[n - 1 - since]])) since++;
    const int length = repeated(n, ids, since, v);
    if (length < allowed || (breaks && breaks[v])) return 0;
    return c->dry_multiplier * pow(c->dry_base > 0 ? c->dry_base : 1.75, length - allowed);
}

static bool is_ngram(int size, int n, const int32_t *ids, int32_t v)
{
    if (size == 0 || n + 1 < size) return false;
    for (int at = 0; at + size <= n; at++) {
        bool same = ids[at + size - 1] == v;
        for (int i = 0; i < size - 1; i++) same = same && ids[at + i] == ids[n - size + 1 + i];
        if (same) return true;
    }
    return false;
}

static double addition(const dra_sampler_config *c, int prompt, int n, const int32_t *ids,
                       const bool *breaks, int32_t v)
{
    int count = 0;
    for (int i = prompt; i < n; i++) count += ids[i] == v;
    if (is_ngram((int)c->no_repeat_ngram, n, ids, v)) return -INFINITY;
    return -(count ? c->presence_penalty : 0) - c->frequency_penalty * count -
           dry_of(c, n, ids, breaks, v);
}

/* ---- one token ------------------------------------------------------------------------------- */

static dra_sampler_config draw_options(void)
{
    dra_sampler_config c = {0};
    if (pick_of(2)) c.presence_penalty = 4 * check_random(&seed) - 2;
    if (pick_of(2)) c.frequency_penalty = 4 * check_random(&seed) - 2;
    if (pick_of(2)) c.no_repeat_ngram = 1 + pick_of(4);
    if (pick_of(2)) c.dry_multiplier = check_random(&seed);
    if (pick_of(2)) c.dry_base = 1 + check_random(&seed);
    if (pick_of(2)) c.dry_allowed_length = 1 + pick_of(4);
    return c;
}

static dra_sampler *open_sampler(const dra_sampler_config *c, int64_t vocab)
{
    dra_sampler *s;
    dra_error    err = {0};
    expect_ok(dra_sampler_create(c, vocab, &s, &err), &err);
    return s;
}

/* Cut anywhere, into what a state has read, a prompt and what was written; and called twice. */
static void follows_the_definitions(void **unused)
{
    for (int k = 0; k < 20000; k++) {
        const dra_sampler_config c = draw_options();
        const int    letters = 1 + pick_of(V), n = pick_of(MOST), before = pick_of(n + 1);
        const int    prompt = before + pick_of(n - before + 1);
        int32_t      ids[MOST];
        dra_real     bias[2][V];
        dra_sampler *s = open_sampler(&c, V);
        for (int i = 0; i < n; i++) ids[i] = pick_of(letters);
        if (c.dry_multiplier > 0 && k % 3 == 0) {
            s->breaks = calloc(V, sizeof *s->breaks);
            assert_non_null(s->breaks);
            for (int v = 0; v < V; v++) s->breaks[v] = pick_of(6) == 0;
        }
        for (int i = 0; i < 2; i++) {
            const dra_history text = {(size_t)before, ids, (size_t)(n - before), ids + before,
                                      (size_t)(prompt - before)};
            for (int v = 0; v < V; v++) bias[i][v] = (dra_real)(0.25 * v);
            if (dra_sampler_has_history(s)) dra_sampler_add_history(s, &text, bias[i]);
        }
        assert_memory_equal(bias[0], bias[1], sizeof bias[0]);
        for (int32_t v = 0; v < V; v++) {
            const double expected = 0.25 * v + addition(&c, prompt, n, ids, s->breaks, v);
            const double found = (double)bias[0][v];
            if (found != expected && !(fabs(found - expected) <= 1e-5 * (1 + fabs(expected))))
                fail_msg("text %d, token %d: %g, expected %g", k, v, found, expected);
        }
        dra_sampler_destroy(s);
    }
}

/* A repetition without end costs and penalises no more than a long one. */
static void long_repetitions_are_bounded(void **unused)
{
    enum { LONG = 3000 };
    static int32_t           ids[LONG];
    const dra_sampler_config c = {.dry_multiplier = 1, .dry_base = 100};
    dra_real                 bias[2] = {0};
    dra_sampler             *s = open_sampler(&c, 2);
    dra_sampler_add_history(s, &(dra_history){.n = LONG, .ids = ids}, bias);
    assert_true(bias[0] < (dra_real)-1e30 && isfinite(bias[0]) && bias[1] == 0);
    dra_sampler_destroy(s);
}

static void breaks_are_those_of_the_tokenizer(void **unused)
{
    const dra_sampler_config dry = {.dry_multiplier = 1}, none = {0};
    dra_tokenizer           *t;
    dra_error                err = {0};
    expect_ok(dra_tokenizer_bytes(&t, &err), &err);
    dra_sampler *s = open_sampler(&dry, 260), *other = open_sampler(&none, 260);
    expect_ok(dra_sampler_find_breaks(s, t, &err), &err);
    expect_ok(dra_sampler_find_breaks(other, t, &err), &err);
    assert_null(other->breaks);
    for (int v = 0; v < 260; v++)
        assert_int_equal(s->breaks[v], v == '\n' || v == ':' || v == '"' || v == '*');
    dra_sampler_destroy(s);
    dra_sampler_destroy(other);
    dra_tokenizer_destroy(t);
}

/* ---- texts ----------------------------------------------------------------------------------- */

enum { PROMPT = 40, WRITTEN = 40 };

/* Token by token, from the logits of a generator. */
static void write_plainly(const subject *s, const dra_sampler_config *c, int32_t *ids)
{
    const dra_sampler_config   plain = {.temperature = c->temperature, .seed = c->seed};
    const dra_generator_config settings = {
        .model = s->model, .weights = s->weights, .device = s->device};
    bool            breaks[512] = {['\n'] = true, [':'] = true, ['"'] = true, ['*'] = true};
    dra_real        offered[512];
    const dra_real *x;
    dra_generator  *g;
    dra_error       err = {0};
    dra_sampler    *sampler = open_sampler(&plain, s->V);
    expect_ok(dra_generator_create(&settings, &g, &err), &err);
    expect_ok(dra_generator_read(g, 0, PROMPT, ids, &err), &err);
    for (int n = PROMPT; n < PROMPT + WRITTEN; n++) {
        expect_ok(dra_generator_logits(g, 0, &x, &err), &err);
        for (int32_t v = 0; v < s->V; v++) {
            const bool end = v == dra_tokenizer_end(s->tokenizer) && n < PROMPT + c->min_tokens;
            offered[v] = end ? -(dra_real)INFINITY
                             : (dra_real)((double)x[v] + addition(c, PROMPT, n, ids, breaks, v));
        }
        ids[n] = dra_sampler_pick(sampler, offered, NULL, 0, n);
        expect_ok(dra_generator_read(g, 0, 1, &ids[n], &err), &err);
    }
    dra_sampler_destroy(sampler);
    dra_generator_destroy(g);
}

static void take_best(void *user, const dra_job_result *r)
{
    answer *a = user;
    a->ends++;
    a->n = r->beams[0].text.n;
    memcpy(a->ids, r->beams[0].text.ids, a->n * sizeof *a->ids);
}

/* Of a search with one beam, which is greedy. */
static void search(dra_engine *e, dra_job_config job, answer *a)
{
    uint64_t  id;
    dra_error err = {0};
    job.beam.beams = 1;
    job.end = take_best;
    job.user = a;
    expect_ok(dra_engine_submit(e, &job, &id, &err), &err);
    run(e);
    assert_int_equal(a->ends, 1);
}

static void expect_same(const subject *s, const dra_sampler_config *c)
{
    int32_t ids[PROMPT + WRITTEN];
    answer  a = {0};
    make_prompt(ids, PROMPT / 2, 4);
    memcpy(ids + PROMPT / 2, ids, PROMPT / 2 * sizeof *ids);
    write_plainly(s, c, ids);
    dra_engine          *e = open_engine(s, NULL);
    const dra_job_config job = {.n = PROMPT,
                                .ids = ids,
                                .tokens = WRITTEN,
                                .sampler = *c,
                                .logprobs = -1,
                                .ignore_end = true};
    for (int beams = 0; beams <= (c->temperature == 0); beams++) {
        if (beams)
            a = (answer){0}, search(e, job, &a);
        else
            run_one(e, job, &a);
        assert_int_equal(a.n, WRITTEN);
        assert_memory_equal(a.ids, ids + PROMPT, WRITTEN * sizeof *ids);
    }
    dra_engine_destroy(e);
}

static void texts_are_written_so(void **unused)
{
    static const dra_sampler_config all[] = {
        {.presence_penalty = 1, .frequency_penalty = 0.5, .temperature = 1, .seed = 4},
        {.no_repeat_ngram = 1},
        {.no_repeat_ngram = 2, .temperature = 0.7},
        {.dry_multiplier = 3},
        {.dry_multiplier = 3, .dry_base = 2, .dry_allowed_length = 1, .temperature = 0.5},
    };
    subject s;
    open_subject(&s, "dra-ema-tiny");
    for (size_t i = 0; i < COUNT(all); i++) expect_same(&s, &all[i]);
    close_subject(&s);
}

/* Where every token but an unlikely one is the end, there are as many as were asked for. */
static void an_end_may_come_too_early(void **unused)
{
    const dra_token_bias unlikely = {'x', -50};
    int32_t              ids[PROMPT], ends[256];
    subject              s;
    open_subject(&s, "dra-ema-tiny");
    make_prompt(ids, PROMPT, 1);
    for (int i = 0; i < 256; i++) ends[i] = i + (i >= 'x');
    dra_engine *e = open_engine(&s, NULL);
    for (int least = 0; least < 9; least += 4) {
        answer         a = {0};
        dra_job_config job = {.n = PROMPT,
                              .ids = ids,
                              .tokens = WRITTEN,
                              .sampler = {.min_tokens = least, .n_bias = 1, .bias = &unlikely},
                              .logprobs = -1,
                              .n_ends = 255,
                              .ends = ends};
        run_one(e, job, &a);
        assert_int_equal(a.n, least);
        assert_int_equal(a.result.finish, DRA_FINISH_END);
        for (size_t i = 0; i < a.n; i++) assert_int_equal(a.ids[i], 'x');
    }
    dra_engine_destroy(e);
    close_subject(&s);
}

/* When all tokens have been there. */
static void nothing_may_be_left(void **unused)
{
    int32_t ids[300];
    answer  a = {0};
    subject s;
    open_subject(&s, "dra-ema-tiny");
    dra_engine *e = open_engine(&s, NULL);
    for (int i = 0; i < s.V; i++) ids[i] = i;
    dra_job_config job = {.n = (size_t)s.V,
                          .ids = ids,
                          .tokens = 1,
                          .sampler = {.no_repeat_ngram = 1},
                          .logprobs = -1};
    submit(e, job, &a);
    run(e);
    assert_int_equal(a.result.end, DRA_JOB_FAILED);
    assert_non_null(strstr(a.result.error.text, "no token is left"));
    dra_engine_destroy(e);
    close_subject(&s);
}

/* A text that goes on from a state is a whole with what the state has read: n = 1 writes no token
 * that stands in it. */
static void states_know_their_text(void **unused)
{
    enum { LONG = 100, AFTER = 40 };
    int32_t ids[LONG];
    subject s;
    answer  a;
    open_subject(&s, "rwkv4-tiny");
    dra_engine *e = open_engine(&s, NULL);
    for (int i = 0; i < LONG; i++) ids[i] = 100 + i;
    run_one(e, (dra_job_config){.n = LONG, .ids = ids, .logprobs = -1, .save = "read"}, &a);
    run_one(e,
            (dra_job_config){.state = "read",
                             .tokens = AFTER,
                             .logprobs = -1,
                             .ignore_end = true,
                             .sampler = {.no_repeat_ngram = 1}},
            &a);
    assert_int_equal(a.n, AFTER);
    for (int i = 0; i < AFTER; i++) assert_false(a.ids[i] >= 100 && a.ids[i] < 100 + LONG);
    dra_engine_destroy(e);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_definitions),
        cmocka_unit_test(long_repetitions_are_bounded),
        cmocka_unit_test(breaks_are_those_of_the_tokenizer),
        cmocka_unit_test(texts_are_written_so),
        cmocka_unit_test(an_end_may_come_too_early),
        cmocka_unit_test(nothing_may_be_left),
        cmocka_unit_test(states_know_their_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
