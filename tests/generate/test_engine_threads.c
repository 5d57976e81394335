/* Many threads submit, cancel and look while one steps: every job ends once, with its answer. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "serving.h"

enum { THREADS = 4, EACH = 12, PROMPT = 70 };

typedef struct client {
    dra_engine *e;
    int         number;
    pthread_t   thread;
    answer      a[EACH];
    uint64_t    id[EACH];
    atomic_int *ended, *woken;
} client;

static dra_job_config job_of(int which, int32_t *ids)
{
    const size_t n = (size_t)(10 + which % 5 * 13);
    make_prompt(ids, n, which % 7);
    return (dra_job_config){.n = n,
                            .ids = ids,
                            .tokens = 4 + which % 3,
                            .logprobs = 0,
                            .sampler = {.temperature = 1, .seed = (uint64_t)which}};
}

static void pass(void *user, const dra_state_info *s) { (void)user, (void)s; }

static void *ask(void *user)
{
    client *c = user;
    int32_t ids[PROMPT];
    for (int k = 0; k < EACH; k++) {
        dra_job_config job = job_of(c->number * EACH + k, ids);
        job.token = take_token;
        job.end = take_end;
        job.user = &c->a[k];
        if (k % 4 == 3) job.save = "shared";
        c->a[k].end = -1;
        while (dra_engine_submit(c->e, &job, &c->id[k], NULL) == DRA_ERR_BUSY) sched_yield();
        if (k % 5 == 4) dra_engine_cancel(c->e, c->id[k]);
        dra_engine_states(c->e, pass, NULL);
        (void)dra_engine_stats_of(c->e);
    }
    atomic_fetch_add(c->ended, 1);
    return NULL;
}

static void count_wake(void *user) { atomic_fetch_add((atomic_int *)user, 1); }

static void threads_share_an_engine(void **state)
{
    static client clients[THREADS];
    int32_t       ids[PROMPT];
    atomic_int    ended = 0, woken = 0;
    subject       s;
    bool          idle = false;
    dra_error     err = {0};
    open_subject(&s, "dra-gru-tiny");
    dra_engine *e = open_engine(&s, &(dra_engine_config){.slots = 6, .queue = 9});
    dra_engine_on_wake(e, count_wake, &woken);
    for (int i = 0; i < THREADS; i++) {
        clients[i] = (client){.e = e, .number = i, .ended = &ended, .woken = &woken};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, ask, &clients[i]), 0);
    }
    while (!idle || atomic_load(&ended) < THREADS) expect_ok(dra_engine_step(e, &idle, &err), &err);
    for (int i = 0; i < THREADS; i++) pthread_join(clients[i].thread, NULL);
    run(e);
    assert_true(atomic_load(&woken) >= THREADS * EACH);
    for (int i = 0; i < THREADS * EACH; i++) {
        const answer *a = &clients[i / EACH].a[i % EACH];
        answer        alone = {0};
        assert_int_equal(a->ends, 1);
        if (a->result.end == DRA_JOB_CANCELLED) continue;
        assert_int_equal(a->result.end, DRA_JOB_DONE);
        dra_engine *other = open_engine(&s, NULL);
        run_one(other, job_of(i, ids), &alone);
        expect_answer("thread", a, &alone);
        dra_engine_destroy(other);
    }
    dra_engine_destroy(e);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_an_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
