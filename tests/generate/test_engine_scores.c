/* Texts that are scored, not continued: their log-probabilities are the same alone, among others
 * and from a state, and no token is read for nothing. */
#include "serving.h"

enum { TEXT = 140, SPLIT = 37 };

typedef struct score {
    double logprob[TEXT];
    answer a;
} score;

static dra_job_config text_of(size_t n, const int32_t *ids)
{
    return (dra_job_config){.n = n, .ids = ids, .echo = true, .logprobs = TOPS};
}

static void ask(dra_engine *e, dra_job_config c, score *s)
{
    s->a = (answer){.prompt = s->logprob};
    submit(e, c, &s->a);
}

static void expect_scores(const char *what, size_t n, const double *found, const double *expected,
                          bool bits)
{
    for (size_t i = 0; i < n; i++) {
        const double x = found[i], y = expected[i];
        const bool   same = (isnan(x) && isnan(y)) || x == y;
        if (!same && (bits || !(fabs(x - y) < near_of(what))))
            fail_msg("%s: token %zu: %.9g, expected %.9g", what, i, x, y);
    }
}

/* Of several lengths, those that are read together too. */
static void in_company(const subject *s, const char *preset)
{
    static const size_t length[] = {1, 2, 5, 6, 7, 33, 60, 63, 64, 64, 100, 139, TEXT};
    static score        alone, found[COUNT(length)];
    static int32_t      ids[COUNT(length)][TEXT];
    dra_engine         *e = open_engine(s, NULL), *other = open_engine(s, NULL);
    for (size_t i = 0; i < COUNT(length); i++) {
        make_prompt(ids[i], length[i], (int)i);
        ask(e, text_of(length[i], ids[i]), &found[i]);
    }
    run(e);
    for (size_t i = 0; i < COUNT(length); i++) {
        ask(other, text_of(length[i], ids[i]), &alone);
        run(other);
        assert_int_equal(found[i].a.result.end, DRA_JOB_DONE);
        assert_int_equal(found[i].a.n_prompt, length[i]);
        expect_scores(preset, length[i], found[i].logprob, alone.logprob, !check_cuda());
    }
    assert_true(dra_engine_stats_of(e).steps < dra_engine_stats_of(other).steps);
    dra_engine_destroy(e);
    dra_engine_destroy(other);
}

/* A part is read once, and what follows begins from its state. */
static void from_a_state(const subject *s, const char *preset)
{
    static score   whole, rest, one;
    static int32_t ids[TEXT];
    answer         part = {0};
    dra_engine    *e = open_engine(s, NULL);
    make_prompt(ids, TEXT, 3);
    ask(e, text_of(TEXT, ids), &whole);
    run(e);
    assert_true(isnan(whole.logprob[0]));
    assert_int_equal(dra_engine_stats_of(e).tokens_read, TEXT - 1);
    run_one(e, (dra_job_config){.n = SPLIT, .ids = ids, .logprobs = -1, .save = "part"}, &part);
    const int64_t  before = dra_engine_stats_of(e).tokens_read;
    dra_job_config c = text_of(TEXT - SPLIT, ids + SPLIT);
    c.state = "part";
    ask(e, c, &rest);
    c.n = 1;
    ask(e, c, &one);
    run(e);
    assert_int_equal(dra_engine_stats_of(e).tokens_read, before + TEXT - SPLIT - 1);
    expect_scores(preset, TEXT - SPLIT, rest.logprob, whole.logprob + SPLIT, false);
    expect_scores(preset, 1, one.logprob, rest.logprob, true);
    dra_engine_destroy(e);
}

static void texts_are_scored(void **state)
{
    for (int i = 0; i < SERVED; i++) {
        subject s;
        open_subject(&s, served[i]);
        in_company(&s, served[i]);
        from_a_state(&s, served[i]);
        close_subject(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_are_scored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
