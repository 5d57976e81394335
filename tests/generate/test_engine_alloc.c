/* Engines without memory, from each allocation on: jobs fail or go on, all end, nothing leaks, and
 * what is done has the answer it always has. */
#include "failing.h"
#include "serving.h"

enum { PROMPT = 70 };

typedef struct turn {
    answer a[3];
    int    taken;
} turn;

static dra_job_config job_of(int k, int32_t *ids)
{
    static const char *const stop[] = {"ab", "xyz"};
    static dra_token_bias    bias[] = {{97, 3}, {98, 3}};
    static int32_t           never[] = {98, 98, 98, 98, 98};
    static const dra_ids     stop_tokens = {never, 5, 0};
    dra_job_config           c = {.n = PROMPT, .ids = ids, .tokens = 5, .logprobs = 2};
    make_prompt(ids, PROMPT, k);
    c.n_stop = 2;
    c.stop = stop;
    c.sampler = (dra_sampler_config){
        .n_bias = 2, .bias = bias, .temperature = 1, .repetition_penalty = 1.1};
    c.sampler.presence_penalty = 0.1;
    c.sampler.dry_multiplier = 0.5;
    c.n_stop_tokens = 1;
    c.stop_tokens = &stop_tokens;
    if (k == 0) c.save = "first";
    if (k == 1) c.kind = DRA_JOB_EMBED;
    if (k == 2) c.echo = true;
    return c;
}

static void end_without_vector(void *user, const dra_job_result *r)
{
    dra_job_result plain = *r;
    plain.width = 0;
    take_end(user, &plain);
}

static void begin(dra_engine *e, int k, turn *r)
{
    int32_t        ids[PROMPT];
    uint64_t       id;
    dra_error      err = {0};
    dra_job_config c = job_of(k, ids);
    r->a[k] = (answer){.end = -1};
    c.token = take_token;
    c.end = end_without_vector;
    c.user = &r->a[k];
    if (dra_engine_submit(e, &c, &id, &err) == DRA_OK)
        r->taken |= 1 << k;
    else
        assert_int_equal(err.code, DRA_ERR_MEMORY);
}

/* All three jobs with n allocations; whether there were more. */
static bool try_at(dra_engine *e, long n, turn *r)
{
    bool      idle = false;
    dra_error err = {0};
    r->taken = 0;
    allocations_left = n;
    for (int k = 0; k < 3; k++) begin(e, k, r);
    for (int steps = 0; !idle; steps++) {
        dra_engine_step(e, &idle, &err);
        assert_true(steps < 100);
    }
    const bool failed = allocations_left == 0;
    allocations_left = -1;
    return failed;
}

static void without_memory(void **state)
{
    static turn good, r;
    subject     s;
    long        n = 0;
    bool        failed = true;
    open_subject(&s, "dra-gru-tiny");
    dra_engine *e = open_engine(&s, NULL);
    try_at(e, -1, &good);
    for (; failed; n += n < 200 ? 1 : 7) {
        dra_engine *other = open_engine(&s, NULL);
        failed = try_at(other, n, &r);
        for (int k = 0; k < 3; k++) {
            if (!(r.taken & 1 << k)) continue;
            assert_int_equal(r.a[k].ends, 1);
            if (r.a[k].result.end == DRA_JOB_DONE)
                expect_answer("after a failure", &r.a[k], &good.a[k]);
            else
                assert_int_equal(r.a[k].result.error.code, DRA_ERR_MEMORY);
        }
        dra_engine_destroy(other);
        assert_true(n < 100000);
    }
    dra_engine_destroy(e);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_memory)};
    return check_main("engines without memory", NULL, 0, tests, 1);
}
